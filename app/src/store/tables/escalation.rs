//! What has waited for too long: due rows, the steps they take, and what the operator is told.
//!
//! Only rows that wait are ever read: each index here holds nothing that was drained or ended.

use super::trace::{category, envelope};
use super::{Result, Tables, column, failed};
use crate::store::sql::{self, Connection, Row, params};
use crate::store::{DueRow, Escalated};
use prism_core::Moment;
use prism_core::bell::Notice;
use prism_core::escalation::{Step, Told};
use prism_core::limits::{LEASE_AHEAD_US, RING_ENTRIES_MAX};
use prism_core::receipt::Layer;
use prism_core::ring::Entry;
use prism_core::signal::Category;

const CLIMBED: i64 = 1;
const AT_OPERATOR: i64 = 2;

/// What is due by `?1`, the longest due first.
pub(super) const DUE: &str = "select q.id, q.from_identity, q.signal_type, q.category,
        q.to_persona_id, q.escalate_at, q.escalation, q.leased_until, p.is_operator
    from signal_queue q indexed by ix_signal_escalates
        cross join personas p on p.id = q.to_persona_id
    where q.escalate_at <= ?1 and q.drained_at is null and q.ended_at is null
    order by q.escalate_at limit ?2";
/// What is due later than anything can be: it was put off before the clock was set back, and is due.
pub(super) fn due_too_late() -> String {
    DUE.replacen("q.escalate_at <= ?1", "q.escalate_at > ?1", 1)
}
/// Moves a row on, unless somebody has read it or moved it on meanwhile.
pub(super) const MOVE_ON: &str = "update signal_queue
    set escalate_at = ?3, escalation = coalesce(?4, escalation),
        escalated_at = case when cast(?4 as integer) is null then escalated_at else ?5 end
    where id = ?1 and escalate_at = ?2 and drained_at is null and ended_at is null
        and (leased_until is null or leased_until <= ?5 or leased_until > ?5 + ?6 or cast(?4 as integer) is null)";
/// What the operator is told of and nobody has read, the newest first.
pub(super) const AT_OPERATORS: &str = "select q.id, q.signal_type, q.category, q.from_identity,
        q.from_session, q.to_identity, q.payload, q.in_reply_to, q.created_at, q.trace_id, q.seq,
        q.escalated_at, p.pid
    from signal_queue q indexed by ix_signal_at_operator
        cross join projects p on p.id = q.project_id
    where q.escalation = 2 and q.drained_at is null and q.ended_at is null
    order by q.escalated_at desc limit ?1";
/// What the operator's command was not run for.
pub(super) const UNNOTIFIED: &str = "select q.id, q.signal_type, q.category, q.from_identity,
        q.from_session, q.to_identity, q.payload, q.in_reply_to, q.created_at, q.trace_id, q.seq,
        q.escalated_at, p.pid
    from signal_queue q indexed by ix_signal_unnotified
        cross join projects p on p.id = q.project_id
    where q.escalation = 2 and q.notified_at is null and q.drained_at is null
        and q.ended_at is null
    limit ?1";

impl Tables {
    pub async fn escalation_due(
        &self,
        now: Moment,
        latest: Moment,
        limit: usize,
    ) -> Result<Vec<DueRow>> {
        self.read(move |c| {
            let mut due = Vec::new();
            for (sql, at) in [(DUE, now), (&due_too_late(), latest)] {
                let mut statement = c.prepare_cached(sql).map_err(failed)?;
                let rows = statement.query_map(params![at.0, limit as i64], due_row);
                for row in rows.map_err(failed)? {
                    due.push(row.map_err(failed)?);
                }
            }
            Ok(due)
        })
        .await
    }

    /// Takes the steps that still stand, and says which they were: in the row, so that neither a
    /// restart nor another server repeats one.
    pub async fn escalate(&self, steps: Vec<Escalated>, now: Moment) -> Result<Vec<Escalated>> {
        self.write(move |c| {
            let mut taken = Vec::new();
            for step in steps {
                if move_on(c, &step, now)? {
                    taken.push(step);
                }
            }
            Ok(taken)
        })
        .await
    }

    /// What the operator is told of and nobody has read, oldest first.
    pub async fn at_operator(&self) -> Result<Vec<Told>> {
        self.read(|c| told(c, RING_ENTRIES_MAX)).await
    }

    /// What the operator's command was not run for, oldest first.
    pub async fn unnotified(&self, limit: usize) -> Result<Vec<Told>> {
        self.read(move |c| {
            let mut statement = c.prepare_cached(UNNOTIFIED).map_err(failed)?;
            let rows = statement.query_map([limit as i64], told_row);
            let rows = rows.map_err(failed)?.collect::<sql::Result<_>>();
            let mut told: Vec<Told> = rows.map_err(failed)?;
            told.sort_by_key(|t| t.entry.ts);
            Ok(told)
        })
        .await
    }

    /// The command runs for those of these that it was not run for: never again, and nowhere else.
    pub async fn notified(&self, signals: Vec<String>, now: Moment) -> Result<Vec<String>> {
        self.write(move |c| {
            let note =
                "update signal_queue set notified_at = ? where id = ? and notified_at is null";
            let mut statement = c.prepare_cached(note).map_err(failed)?;
            let mut mine = Vec::new();
            for id in signals {
                if statement.execute(params![now.0, id]).map_err(failed)? > 0 {
                    mine.push(id);
                }
            }
            Ok(mine)
        })
        .await
    }

    pub async fn not_notified(&self, signals: Vec<String>) -> Result<()> {
        self.write(move |c| {
            let take_back = "update signal_queue set notified_at = null where id = ?";
            let mut statement = c.prepare_cached(take_back).map_err(failed)?;
            for id in signals {
                statement.execute([id]).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }
}

fn due_row(row: &Row<'_>) -> sql::Result<DueRow> {
    Ok(DueRow {
        notice: Notice {
            signal_id: column::id(row, "id")?,
            from: row.get("from_identity")?,
            signal_type: row.get("signal_type")?,
            category: category(row)?.unwrap_or(Category::Info),
        },
        to_persona: column::id(row, "to_persona_id")?,
        to_operator: row.get("is_operator")?,
        escalate_at: column::moment(row, "escalate_at")?,
        climbed: row.get::<_, i64>("escalation")? >= CLIMBED,
        leased_until: column::opt_moment(row, "leased_until")?,
    })
}

fn move_on(c: &Connection, escalated: &Escalated, now: Moment) -> Result<bool> {
    let id = escalated.row.notice.signal_id.to_string();
    let (reached, told) = match escalated.step {
        Step::Climb => (Some(CLIMBED), Some("to the next rung")),
        Step::Operator => (Some(AT_OPERATOR), Some("to the operator")),
        Step::Later(_) => (None, None),
    };
    let moved = c
        .prepare_cached(MOVE_ON)
        .and_then(|mut s| {
            s.execute(params![
                id,
                escalated.row.escalate_at.0,
                escalated.again_at.map(|at| at.0),
                reached,
                now.0,
                LEASE_AHEAD_US,
            ])
        })
        .map_err(failed)?;
    if let Some(told) = told.filter(|_| moved > 0) {
        c.prepare_cached(
            "insert into signal_trace_events (signal_id, layer, state, observed_at, detail)
             values (?, ?, 'escalated', ?, ?)",
        )
        .and_then(|mut s| s.execute(params![id, Layer::ChannelNotification.name(), now.0, told]))
        .map_err(failed)?;
    }
    Ok(moved > 0)
}

fn told_row(row: &Row<'_>) -> sql::Result<Told> {
    let signal = envelope(row)?;
    Ok(Told {
        to: signal.to_identity.clone(),
        entry: Entry {
            // When the operator is told is when it is news to them.
            ts: column::moment(row, "escalated_at")?,
            cat: signal.resolved_category(),
            sig_type: signal.signal_type.clone(),
            from: signal.from_identity.clone(),
            summary: signal.summary(),
            sid: signal.signal_id.to_string(),
            read: false,
            pid: signal.pid,
        },
    })
}

fn told(c: &Connection, limit: usize) -> Result<Vec<Told>> {
    let mut statement = c.prepare_cached(AT_OPERATORS).map_err(failed)?;
    let rows = statement.query_map([limit as i64], told_row);
    let rows = rows.map_err(failed)?.collect::<sql::Result<Vec<_>>>();
    let mut told = rows.map_err(failed)?;
    told.reverse();
    Ok(told)
}
