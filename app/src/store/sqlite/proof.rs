//! What probes found, and what the gate noticed.

use super::memory::list;
use super::{Result, Sqlite, column, failed};
use crate::store::{GateLoaded, GateRow, WindowChange, WindowRow};
use prism_core::api::gate::{GateEventView, GateReport, GateTally};
use prism_core::gate::{GateOutcome, LABELS_MIN, PRECISION_TARGET, TaskClass, Trigger};
use prism_core::id::Quoted;
use prism_core::loopback::Probe;
use prism_core::{Code, Moment, Problem};
use rusqlite::{Connection, params};
use uuid::Uuid;

/// How long it is remembered that something was said, in microseconds.
const SAID_US: i64 = 30 * 24 * 3600 * 1_000_000;

/// Takes a probe and its echo out of the queue.
pub(super) const END_PROBE: &str = "update signal_queue set ended_at = ?1, ended_as = 'recalled'
    where id in (select ?3 union all select id from signal_queue
            where in_reply_to = ?3 and signal_type = 'Loopback' and ended_at is null)
        and signal_type = 'Loopback' and project_id = ?2 and ended_at is null";

impl Sqlite {
    pub async fn finish_probe(&self, project: Uuid, probe: Probe, now: Moment) -> Result<()> {
        self.write(move |c| {
            let (project, signal) = (project.to_string(), probe.signal_id.to_string());
            c.execute(END_PROBE, params![now.0, project, signal])
                .map_err(failed)?;
            let envelope = serde_json::to_string(&probe).unwrap_or_default();
            c.execute(
                "insert or ignore into loopback_runs (loopback_id, project_id, session_id, identity, signal_id, outcome, envelope, finished_at) values (?, ?, ?, ?, ?, ?, ?, ?)",
                params![probe.loopback_id.to_string(), project, probe.requested_by_session.map(|s| s.to_string()), probe.requested_by_identity, signal, probe.outcome.name(), envelope, now.0],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }
}

impl Sqlite {
    pub async fn load_gate(&self, now: Moment) -> Result<GateLoaded> {
        self.read(move |c| {
            let recalls = list(
                c,
                "select coalesce(session_id, '') as actor, occurred_at, id from memory_recall_events where occurred_at > ? and session_id is not null",
                params![now.0 - 3_600_000_000],
                |r| Ok((column::id(r, "actor")?, column::moment(r, "occurred_at")?, column::id(r, "id")?)),
            )?;
            let windows = list(c, "select * from recallgate_windows", params![], |r| {
                Ok(WindowRow {
                    actor: column::id(r, "session_id")?,
                    project_id: column::id(r, "project_id")?,
                    assignment_id: r.get("assignment_id")?,
                    class: TaskClass::from_name(&r.get::<_, String>("task_class")?).unwrap_or(TaskClass::Tier2),
                    arrived: column::moment(r, "arrived_at")?,
                })
            })?;
            let said = list(c, "select assignment_id, trigger, outcome from recallgate_events where occurred_at > ?", params![now.0 - SAID_US], |r| {
                Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?, r.get::<_, String>(2)?))
            })?;
            let said = said.into_iter().filter_map(|(id, trigger, outcome)| Some((id, Trigger::from_name(&trigger)?, GateOutcome::from_name(&outcome)?))).collect();
            Ok(GateLoaded { recalls, windows, said })
        })
        .await
    }

    pub fn note_gate(&self, event: Option<GateRow>, window: Option<WindowChange>) {
        self.writer.write_later("what the gate noticed", move |c| {
            if let Some(event) = &event {
                insert_event(c, event)?;
            }
            match &window {
                Some(WindowChange::Opened(w)) => c
                    .prepare_cached("insert or ignore into recallgate_windows (project_id, assignment_id, session_id, task_class, arrived_at) values (?, ?, ?, ?, ?)")
                    .and_then(|mut s| s.execute(params![w.project_id.to_string(), w.assignment_id, w.actor.to_string(), w.class.name(), w.arrived.0])),
                Some(WindowChange::Closed(w)) => c
                    .prepare_cached("delete from recallgate_windows where project_id = ? and assignment_id = ? and session_id = ?")
                    .and_then(|mut s| s.execute(params![w.project_id.to_string(), w.assignment_id, w.actor.to_string()])),
                None => Ok(0),
            }
            .map_err(failed)?;
            Ok(())
        });
    }

    pub async fn label_gate_event(
        &self,
        project: Uuid,
        quoted: Quoted,
        right: bool,
        now: Moment,
    ) -> Result<Uuid> {
        self.write(move |c| {
            let id = super::memory::resolve(
                c,
                &project.to_string(),
                "recallgate_events",
                "event_id",
                &quoted,
            )?;
            let outcome: String = c
                .query_row(
                    "select outcome from recallgate_events where id = ?",
                    [id.to_string()],
                    |r| r.get(0),
                )
                .map_err(failed)?;
            if outcome != GateOutcome::Warned.name() {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    "only a warning can be right or wrong",
                    "`prism gate events` lists warnings",
                )
                .into());
            }
            c.execute(
                "update recallgate_events set label = ?, labelled_at = ? where id = ?",
                params![right, now.0, id.to_string()],
            )
            .map_err(failed)?;
            Ok(id)
        })
        .await
    }

    pub async fn gate_events(
        &self,
        project: Uuid,
        unlabelled: bool,
        n: usize,
    ) -> Result<Vec<GateEventView>> {
        self.read(move |c| {
            let only = if unlabelled { "and outcome = 'warned' and label is null" } else { "" };
            list(
                c,
                &format!("select * from recallgate_events where project_id = ? {only} order by occurred_at desc limit ?"),
                params![project.to_string(), n as i64],
                |r| {
                    Ok(GateEventView {
                        id: column::id(r, "id")?,
                        assignment_id: r.get("assignment_id")?,
                        task_class: r.get("task_class")?,
                        outcome: r.get("outcome")?,
                        trigger: r.get("trigger")?,
                        persona: r.get("actor_persona")?,
                        surface: r.get("actor_surface")?,
                        recall_count: r.get::<_, i64>("recall_count")? as u64,
                        occurred_at: column::moment(r, "occurred_at")?,
                        right: r.get("label")?,
                    })
                },
            )
        })
        .await
    }

    pub async fn gate_report(&self, project: Uuid) -> Result<GateReport> {
        self.read(move |c| {
            let p = project.to_string();
            let tally = |by: &str| {
                list(
                    c,
                    &format!("select {by}, sum(outcome = 'warned'), sum(outcome = 'satisfied') from recallgate_events where project_id = ? group by 1 order by 1"),
                    params![p],
                    |r| Ok(GateTally { name: r.get(0)?, warned: r.get::<_, i64>(1)? as u64, satisfied: r.get::<_, i64>(2)? as u64 }),
                )
            };
            let by_class = tally("task_class")?;
            let (labelled, labelled_right): (i64, i64) = c
                .query_row("select count(label), coalesce(sum(label), 0) from recallgate_events where project_id = ?", [&p], |r| Ok((r.get(0)?, r.get(1)?)))
                .map_err(failed)?;
            let precision = (labelled > 0).then(|| labelled_right as f64 / labelled as f64);
            let verdict = match precision {
                Some(p) if labelled as u64 >= LABELS_MIN => {
                    if p >= PRECISION_TARGET {
                        "ok"
                    } else {
                        "low"
                    }
                }
                _ => "too_few_labels",
            };
            Ok(GateReport {
                warned: by_class.iter().map(|t| t.warned).sum(),
                satisfied: by_class.iter().map(|t| t.satisfied).sum(),
                labelled: labelled as u64,
                labelled_right: labelled_right as u64,
                precision,
                precision_target: PRECISION_TARGET,
                labels_needed: LABELS_MIN,
                verdict: verdict.into(),
                by_identity: tally("actor_persona")?,
                by_class,
                by_day: tally("date(occurred_at / 1000000, 'unixepoch')")?,
            })
        })
        .await
    }
}

fn insert_event(c: &Connection, e: &GateRow) -> Result<()> {
    let (id, project) = (e.id.to_string(), e.project_id.to_string());
    c.prepare_cached(
        "insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class, gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface, recall_count, occurred_at)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 from projects where id = ?12",
    )
    .and_then(|mut s| {
        s.execute(params![
            id,
            e.assignment_id,
            e.class.name(),
            e.mode.name(),
            e.outcome.name(),
            e.trigger.name(),
            e.session_id.map(|s| s.to_string()),
            e.persona,
            e.surface,
            e.recalls.len() as i64,
            e.now.0,
            project
        ])
    })
    .map_err(failed)?;
    for recall in &e.recalls {
        c.prepare_cached("insert or ignore into edges (src, kind, dst, project_id, created_at) values (?, 'REFERENCES_RECALL', ?, ?, ?)")
            .and_then(|mut s| s.execute(params![format!("gate:{id}"), format!("recall:{recall}"), project, e.now.0]))
            .map_err(failed)?;
    }
    Ok(())
}
