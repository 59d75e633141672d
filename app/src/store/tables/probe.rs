//! What probes found: ending them in the queue, and their results.

use super::memory::list;
use super::{Result, Tables, column, failed};
use crate::store::READ_ITS_INBOX;
use crate::store::sql::{self, Connection};
use prism_core::Moment;
use prism_core::api::LoopbackRun;
use prism_core::loopback::Probe;
use prism_core::receipt::Layer;
use sql::params;
use uuid::Uuid;

/// Takes a probe and its echo out of the queue.
pub(super) const END_PROBE: &str = "update signal_queue set ended_at = ?1, ended_as = 'recalled'
    where id in (select ?3 union all select id from signal_queue
            where in_reply_to = ?3 and signal_type = 'Loopback' and ended_at is null)
        and signal_type = 'Loopback' and +project_id = ?2 and ended_at is null";

/// The probes that wait for a session in its inbox, without their echoes.
pub(super) const PROBES_OF: &str = "select id from signal_queue indexed by ix_signal_waiting
    where to_persona_id = ?1 and drained_at is null and ended_at is null
        and signal_type = 'Loopback' and from_session = ?2 and in_reply_to is null";

impl Tables {
    pub async fn finish_probe(&self, project: Uuid, probe: Probe, now: Moment) -> Result<()> {
        self.write(move |c| {
            let (project, signal) = (project.to_string(), probe.signal_id.to_string());
            c.execute(END_PROBE, params![now.0, project, signal])
                .map_err(failed)?;
            let envelope = serde_json::to_string(&probe).unwrap_or_default();
            c.execute(
                "insert into loopback_runs (loopback_id, project_id, session_id,
                    identity, signal_id, outcome, envelope, finished_at)
                 values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing",
                params![
                    probe.loopback_id.to_string(),
                    project,
                    probe.requested_by_session.map(|s| s.to_string()),
                    probe.requested_by_identity,
                    signal,
                    probe.outcome.name(),
                    envelope,
                    now.0
                ],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }

    /// Notes on the probe's own trace that its model answered; once.
    pub async fn note_model_ack(
        &self,
        signal_id: Uuid,
        session_id: Uuid,
        detail: &'static str,
        at: Moment,
    ) -> Result<()> {
        self.write(move |c| {
            c.execute(
                "insert into signal_trace_events
                    (signal_id, layer, state, observed_at, session_id, detail)
                 select ?1, ?2, 'observed', ?3, ?4, ?5 where not exists
                    (select 1 from signal_trace_events where signal_id = ?1 and layer = ?2)",
                params![
                    signal_id.to_string(),
                    Layer::ModelAck.name(),
                    at.0,
                    session_id.to_string(),
                    detail
                ],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }

    /// Notes that a session's model has read its inbox, on the probes that wait for it there: whichever server is
    /// asked about them finds it.
    pub async fn note_read(&self, persona: Uuid, session: Uuid, now: Moment) -> Result<()> {
        let asked = move |c: &Connection| {
            c.prepare_cached(PROBES_OF)
                .and_then(|mut s| {
                    let ids = s.query_map([persona.to_string(), session.to_string()], |r| {
                        column::id(r, "id")
                    });
                    ids?.collect::<sql::Result<Vec<Uuid>>>()
                })
                .map_err(failed)
        };
        for probe in self.read(asked).await? {
            self.note_model_ack(probe, session, READ_ITS_INBOX, now)
                .await?;
        }
        Ok(())
    }

    /// The newest results of a project's probes, of one identity when it is named.
    pub async fn loopback_runs(
        &self,
        project: Uuid,
        identity: Option<String>,
        n: usize,
    ) -> Result<Vec<LoopbackRun>> {
        self.read_memory(move |c| {
            list(
                c,
                "select loopback_id, session_id, identity, outcome, envelope, finished_at
                 from loopback_runs
                 where project_id = ?1 and (cast(?2 as text) is null or lower(identity) = lower(?2))
                 order by finished_at desc limit ?3",
                params![project.to_string(), identity, n as i64],
                |r| {
                    let envelope: Option<Probe> =
                        serde_json::from_str(&r.get::<_, String>("envelope")?).ok();
                    Ok(LoopbackRun {
                        loopback_id: column::id(r, "loopback_id")?,
                        session_id: column::opt_id(r, "session_id")?,
                        identity: r.get("identity")?,
                        outcome: r.get("outcome")?,
                        finished_at: column::moment(r, "finished_at")?,
                        missing_layers: envelope.map(|p| p.missing_layers).unwrap_or_default(),
                    })
                },
            )
        })
        .await
    }
}
