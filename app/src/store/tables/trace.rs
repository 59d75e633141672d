//! A signal found by what people quote of it, and told with all that is known of it.

use super::{Result, Tables, column, failed, gone};
use crate::store::TraceRow;
use prism_core::envelope::Envelope;
use prism_core::id::Quoted;
use prism_core::limits::PAYLOAD_DEPTH_MAX;
use prism_core::receipt::{Layer, PublishPath, SessionReceipt, SignalFacts, TraceEvent};
use prism_core::signal::{Category, depth};
use prism_core::{Code, Moment, Problem};

use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use serde_json::{Map, Value};
use uuid::Uuid;

/// The columns an envelope is made of.
pub(super) const ENVELOPE: &str = "q.id, q.signal_type, q.category, q.from_identity, q.from_session, q.to_identity, q.payload, q.in_reply_to, q.created_at, q.trace_id, q.seq, \
                        q.drained_at, q.lease_id, q.leased_until, p.pid";
/// A signal by what people quote of its trace.
pub(super) const BY_TRACE: &str = "select id from signal_queue
    where substr(trace_id, 1, 8) = substr(?1, 1, 8) and trace_id >= ?1 and trace_id < ?2
        and +project_id = ?3 limit 1";
/// A signal by what people quote of its id. The id finds it; what the project has is history.
pub(super) const BY_ID: &str =
    "select id from signal_queue where id >= ? and id < ? and +project_id = ? limit 2";

impl Tables {
    pub async fn trace(
        &self,
        project: Uuid,
        signal_id: Option<String>,
        trace_id: Option<String>,
    ) -> Result<TraceRow> {
        self.read(move |c| {
            let project = project.to_string();
            let id = match (&signal_id, &trace_id) {
                (Some(id), _) => find_signal(c, &project, "signal_id", id)?,
                (None, Some(id)) => find_by_trace(c, &project, id)?,
                (None, None) => {
                    return Err(Problem::field("signal_id", "or `trace_id` must be given").into());
                }
            };
            trace(c, &id)
        })
        .await
    }
}

/// Finds a signal of the project by id or unique prefix.
pub(super) fn find_signal(
    c: &Connection,
    project: &str,
    field: &str,
    quoted: &str,
) -> Result<String> {
    let quoted_id = Quoted::parse(field, quoted)?;
    let mut statement = c.prepare_cached(BY_ID).map_err(failed)?;
    let ids = statement
        .query_map(
            params![quoted_id.prefix(), quoted_id.upper(), project],
            |r| r.get::<_, String>(0),
        )
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    match <[String; 1]>::try_from(ids) {
        Ok([id]) => Ok(id),
        Err(ids) if ids.is_empty() => Err(Problem::new(
            Code::UnknownSignal,
            format!("no signal {quoted} in this project"),
            "check the id; `prism signals tail` and a send's answer show ids",
        )
        .into()),
        Err(_) => Err(Problem::new(
            Code::Ambiguous,
            format!("{quoted} begins more than one signal's id"),
            "quote more digits",
        )
        .into()),
    }
}

pub(super) fn find_by_trace(c: &Connection, project: &str, quoted: &str) -> Result<String> {
    let quoted_id = Quoted::parse("trace_id", quoted)?;
    c.prepare_cached(BY_TRACE)
        .and_then(|mut s| {
            let bound = params![quoted_id.prefix(), quoted_id.upper(), project];
            s.query_row(bound, |r| r.get(0)).optional()
        })
        .map_err(failed)?
        .ok_or_else(|| {
            Problem::new(
                Code::UnknownSignal,
                format!("no signal with trace_id {quoted} in this project"),
                "check the id; a send's answer shows it",
            )
            .into()
        })
}

/// Finds a signal that was addressed to this persona: unknown and foreign are told apart.
pub(super) fn own_signal(c: &Connection, persona: &str, quoted: &str) -> Result<String> {
    let (project, identity): (String, String) = c
        .query_row(
            "select project_id, identity from personas where id = ?",
            [persona],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .optional()
        .map_err(failed)?
        .ok_or_else(gone)?;
    let id = find_signal(c, &project, "signal_id", quoted)?;
    let (to, to_identity): (String, String) = c
        .query_row(
            "select to_persona_id, to_identity from signal_queue where id = ?",
            [&id],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .map_err(failed)?;
    if to != persona {
        return Err(Problem::new(
            Code::NotYours,
            format!("this signal was sent to {to_identity}, not to {identity}"),
            "acknowledge only what was sent to you",
        )
        .into());
    }
    Ok(id)
}

pub(super) fn category(row: &Row<'_>) -> sql::Result<Option<Category>> {
    let name: Option<String> = row.get("category")?;
    let unknown = || sql::Error::column("category", "unknown");
    name.map(|n| Category::from_name(&n).ok_or_else(unknown))
        .transpose()
}

/// A payload that is no JSON any more, or nested too deep for an answer, still reaches its reader,
/// as the text it is.
fn payload(row: &Row<'_>) -> sql::Result<Map<String, Value>> {
    let text: String = row.get("payload")?;
    let why = match serde_json::from_str::<Map<String, Value>>(&text) {
        Ok(payload) if payload.values().map(depth).max() < Some(PAYLOAD_DEPTH_MAX) => {
            return Ok(payload);
        }
        Ok(_) => "it is nested too deep".to_owned(),
        Err(error) => error.to_string(),
    };
    let id: String = row.get("id").unwrap_or_default();
    tracing::error!(why, signal = id, "A payload in the queue cannot be read");
    let summary = "The payload of this signal cannot be read; its text follows.";
    Ok(Map::from_iter([
        ("summary".to_owned(), summary.into()),
        ("unreadable".to_owned(), text.into()),
    ]))
}

pub(super) fn envelope(row: &Row<'_>) -> sql::Result<Envelope> {
    Ok(Envelope {
        signal_id: column::id(row, "id")?,
        signal_type: row.get("signal_type")?,
        category: category(row)?,
        from_identity: row.get("from_identity")?,
        from_session: column::opt_id(row, "from_session")?,
        to_identity: row.get("to_identity")?,
        payload: payload(row)?,
        in_reply_to: column::opt_id(row, "in_reply_to")?,
        created_at: column::opt_moment(row, "created_at")?,
        trace_id: column::opt_id(row, "trace_id")?,
        seq: row.get("seq")?,
        pid: row.get("pid")?,
    })
}

/// What is known of one signal itself, without its deliveries and notes: the same work however
/// often it was pushed and acknowledged.
pub(super) fn facts(c: &Connection, id: &str) -> Result<TraceRow> {
    c.prepare_cached(&format!(
            "select {ENVELOPE}, q.to_persona_id, q.publish_path, q.acted_at, q.dismissed_at, q.ended_at, q.ended_as from signal_queue q join projects p on p.id = q.project_id where q.id = ?"
        ))
        .and_then(|mut s| {
            s.query_row([id], |r| {
                let (ended_at, ended_as): (Option<Moment>, Option<String>) = (column::opt_moment(r, "ended_at")?, r.get("ended_as")?);
                let ended = |name: &str| ended_at.filter(|_| ended_as.as_deref() == Some(name));
                Ok(TraceRow {
                    envelope: envelope(r)?,
                    to_persona: column::id(r, "to_persona_id")?,
                    facts: SignalFacts {
                        queued: column::moment(r, "created_at")?,
                        drained: column::opt_moment(r, "drained_at")?,
                        acted: column::opt_moment(r, "acted_at")?,
                        dismissed: column::opt_moment(r, "dismissed_at")?,
                        expired: ended("expired"),
                        recalled: ended("recalled"),
                        failed: ended("failed"),
                    },
                    sessions: Vec::new(),
                    notes: Vec::new(),
                    publish_path: PublishPath::from_name(&r.get::<_, String>("publish_path")?).unwrap_or(PublishPath::QueuedOffline),
                })
            })
        })
        .map_err(failed)
}

/// Everything that is known of one signal.
pub(super) fn trace(c: &Connection, id: &str) -> Result<TraceRow> {
    let mut row = facts(c, id)?;
    row.sessions = c
        .prepare_cached("select d.*, s.surface, s.machine_id from deliveries d join sessions s on s.id = d.session_id where d.signal_id = ?")
        .map_err(failed)?
        .query_map([id], |r| {
            Ok(SessionReceipt {
                session_id: column::id(r, "session_id")?,
                surface: r.get("surface")?,
                machine_id: r.get("machine_id")?,
                pushed: column::opt_moment(r, "pushed_at")?,
                received: column::opt_moment(r, "received_at")?,
                rung: column::opt_moment(r, "rung_at")?,
                rendered: column::opt_moment(r, "rendered_at")?,
                drained: column::opt_moment(r, "drained_at")?,
                strategy: r.get("strategy")?,
                rendered_by: r.get("rendered_by")?,
                via: column::opt_id(r, "via")?,
                pushed_by: r.get("pushed_by")?,
                hop_us: r.get("hop_us")?,
            })
        })
        .map_err(failed)?
        .collect::<sql::Result<_>>()
        .map_err(failed)?;
    row.notes = c
        .prepare_cached("select * from signal_trace_events where signal_id = ? order by id")
        .map_err(failed)?
        .query_map([id], |r| {
            Ok(TraceEvent {
                layer: Layer::from_name(&r.get::<_, String>("layer")?)
                    .unwrap_or(Layer::BackendWrite),
                state: r.get("state")?,
                observed_at: column::moment(r, "observed_at")?,
                session_id: column::opt_id(r, "session_id")?,
                detail: r.get("detail")?,
                loopback_id: None,
            })
        })
        .map_err(failed)?
        .collect::<sql::Result<_>>()
        .map_err(failed)?;
    Ok(row)
}
