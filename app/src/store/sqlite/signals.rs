//! The queue: send, lease, confirm, end, trace.

use super::{Result, Sqlite, column, failed, proven};
use crate::clock;
use crate::store::{
    Ack, ConfirmedRow, Drain, EndedRow, InboxRow, Mark, NewSignal, Page, SentRow, StoreError,
    Swept, TraceRow,
};
use prism_core::delivery::{Lease, may_lease};
use prism_core::envelope::Envelope;
use prism_core::gate::GateWarning;
use prism_core::id::Quoted;
use prism_core::limits::LEASE_US;
use prism_core::receipt::{Layer, PublishPath, SessionReceipt, SignalFacts, State, TraceEvent};
use prism_core::ring::ByCategory;
use prism_core::signal::{AckState, Category, SignalType};
use prism_core::{Code, Identity, Moment, Problem};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// The columns an envelope is made of.
const ENVELOPE: &str = "q.id, q.signal_type, q.category, q.from_identity, q.from_session, q.to_identity, q.payload, q.in_reply_to, q.created_at, q.trace_id, q.seq, \
                        q.drained_at, q.lease_id, q.leased_until, p.pid";

/// Whether a sweep has anything to do. Both halves look only at rows that wait, never at history.
pub(super) const DUE: &str = "select exists (select 1 from signal_queue
        where expires_at <= ?1 and drained_at is null and ended_at is null)
    or exists (select 1 from signal_queue
        where leased_until <= ?1 and drained_at is null and ended_at is null)";
/// Ends what nobody read in time; what somebody is reading right now waits for its lease.
pub(super) const EXPIRE: &str = "update signal_queue
    set ended_at = ?1, ended_as = 'expired', lease_id = null, leased_to = null, leased_until = null
    where rowid in (select rowid from signal_queue
        where expires_at <= ?1 and drained_at is null and ended_at is null
            and (leased_until is null or leased_until <= ?1) limit ?2)
    returning id, to_persona_id";
/// Leases that were not confirmed in time.
pub(super) const OVERDUE: &str =
    "q.leased_until <= ?1 and q.drained_at is null and q.ended_at is null limit ?2";
/// Dismisses all that a session was given: found by its own deliveries, not in the inbox's past.
pub(super) const DISMISS_GIVEN: &str = "update signal_queue set dismissed_at = ?1
    where id in (select signal_id from deliveries where session_id = ?3)
        and +to_persona_id = ?2 and drained_by = ?3 and drained_at is not null
        and dismissed_at is null";
/// What waits in each inbox of a project, by category: one short look an inbox.
pub(super) const WAITING: &str = "select q.to_persona_id, q.category, count(*) as n
    from personas p cross join signal_queue q on q.to_persona_id = p.id
    where p.project_id = ?1 and q.drained_at is null and q.ended_at is null
        and q.signal_type <> 'Loopback'
    group by 1, 2 order by 1";

impl Sqlite {
    pub async fn send(
        &self,
        new: NewSignal,
        committed: impl FnOnce(&SentRow) + Send + 'static,
    ) -> Result<SentRow> {
        self.writer.write(move |c| send(c, new), committed).await
    }

    pub fn note_push(&self, signal_id: Uuid, path: PublishPath, sessions: Vec<Uuid>, now: Moment) {
        self.writer.write_later("a push", move |c| {
            let id = signal_id.to_string();
            c.prepare_cached("update signal_queue set publish_path = ? where id = ?")
                .and_then(|mut s| s.execute(params![path.name(), id]))
                .map_err(failed)?;
            for session in sessions {
                mark(
                    c,
                    &Mark {
                        signal_id,
                        session_id: session,
                        state: State::Pushed,
                        strategy: None,
                        at: now,
                    },
                )?;
            }
            Ok(())
        });
    }

    pub fn mark(&self, marks: Vec<Mark>) {
        self.writer.write_later("receipts", move |c| {
            marks.iter().try_for_each(|m| mark(c, m))?;
            proven::prove(c, marks.iter())
        });
    }

    pub async fn has_pending(&self, persona: Uuid, now: Moment) -> Result<bool> {
        self.read(move |c| {
            c.prepare_cached(
                "select exists (select 1 from signal_queue where to_persona_id = ? and drained_at is null and ended_at is null and expires_at > ?
                 and signal_type <> 'Loopback' and (leased_until is null or leased_until <= ?))",
            )
            .and_then(|mut s| s.query_row(params![persona.to_string(), now.0, now.0], |r| r.get(0)))
            .map_err(failed)
        })
        .await
    }

    pub async fn lease(
        &self,
        persona: Uuid,
        holder: Option<Uuid>,
        limit: usize,
        now: Moment,
    ) -> Result<Option<Drain>> {
        self.write(move |c| lease(c, persona, holder, limit, now))
            .await
    }

    pub async fn confirm(
        &self,
        persona: Uuid,
        lease_id: Uuid,
        now: Moment,
    ) -> Result<Vec<ConfirmedRow>> {
        self.write(move |c| confirm(c, persona, lease_id, now))
            .await
    }

    pub async fn dismiss(
        &self,
        persona: Uuid,
        session: Option<Uuid>,
        signal_ids: Vec<String>,
        now: Moment,
    ) -> Result<u64> {
        self.write(move |c| {
            let given = "to_persona_id = ? and drained_at is not null and dismissed_at is null and (? is null or drained_by is null or drained_by = ?)";
            let (persona, session) = (persona.to_string(), session.map(|s| s.to_string()));
            if signal_ids.is_empty() {
                let n = match &session {
                    Some(session) => c.execute(DISMISS_GIVEN, params![now.0, persona, session]),
                    None => c.execute(&format!("update signal_queue set dismissed_at = ? where {given}"), params![now.0, persona, session, session]),
                };
                return Ok(n.map_err(failed)? as u64);
            }
            let mut dismissed = 0;
            for quoted in signal_ids {
                let id = own_signal(c, &persona, &quoted)?;
                let n = c
                    .execute(&format!("update signal_queue set dismissed_at = ? where id = ? and {given}"), params![now.0, id, persona, session, session])
                    .map_err(failed)?;
                dismissed += n as u64;
            }
            Ok(dismissed)
        })
        .await
    }

    pub async fn acknowledge(&self, ack: Ack) -> Result<(TraceRow, Option<GateWarning>)> {
        self.write(move |c| {
            let id = own_signal(c, &ack.persona.id.to_string(), &ack.signal_id)?;
            c.execute(
                "insert into signal_trace_events (signal_id, layer, state, observed_at, session_id, detail) values (?, ?, ?, ?, ?, ?)",
                params![id, Layer::ModelAck.name(), ack.state.name(), ack.now.0, ack.session.map(|s| s.to_string()), ack.note],
            )
            .map_err(failed)?;
            if ack.state == AckState::ModelActed {
                c.execute("update signal_queue set acted_at = coalesce(acted_at, ?) where id = ?", params![ack.now.0, id]).map_err(failed)?;
            }
            let row = trace(c, &id)?;
            let warning = super::gate::acknowledged(c, &ack, &row);
            Ok((row, warning))
        })
        .await
    }

    pub async fn recall(
        &self,
        project: Uuid,
        signal_id: String,
        sender: Option<Identity>,
        now: Moment,
    ) -> Result<std::result::Result<EndedRow, String>> {
        self.write(move |c| {
            let id = find_signal(c, &project.to_string(), "signal_id", &signal_id)?;
            let row = trace(c, &id)?;
            if sender.is_some_and(|s| !s.is(&row.envelope.from_identity)) {
                return Err(Problem::new(Code::NotYours, format!("{} sent this signal, and only its sender can take it back", row.envelope.from_identity), "ask the sender, or use the operator's key").into());
            }
            let refusal = match &row.facts {
                f if f.drained.is_some() => Some("it was drained already"),
                f if f.acted.is_some() => Some("the recipient has acted on it already"),
                f if f.expired.is_some() => Some("it had expired"),
                f if f.recalled.is_some() => Some("it was recalled before"),
                f if f.failed.is_some() => Some("it was never queued"),
                _ => None,
            };
            let changed = match refusal {
                Some(_) => 0,
                None => c
                    .execute(
                        "update signal_queue set ended_at = ?1, ended_as = 'recalled' where id = ?2 and drained_at is null and ended_at is null and (leased_until is null or leased_until <= ?1)",
                        params![now.0, id],
                    )
                    .map_err(failed)?,
            };
            Ok(match (changed, refusal) {
                (1, _) => Ok(EndedRow { signal_id: row.envelope.signal_id, to_persona: row.to_persona }),
                (_, Some(why)) => Err(why.to_owned()),
                _ => Err("the recipient is reading it right now".to_owned()),
            })
        })
        .await
    }

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

    pub async fn replay(
        &self,
        persona: Uuid,
        session: Option<Uuid>,
        after: i64,
        undrained_only: bool,
        limit: usize,
    ) -> Result<Page> {
        self.read(move |c| {
            let head = head(c, persona)?;
            let undrained = if undrained_only { "and q.drained_at is null" } else { "" };
            // A probe is for the one session it names.
            let mut rows = inbox_rows(
                c,
                &format!("q.to_persona_id = ?1 and q.seq > ?2 and q.ended_at is null {undrained} and (q.signal_type <> 'Loopback' or json_extract(q.payload, '$.requested_by_session') = ?4) order by q.seq limit ?3"),
                params![persona.to_string(), after, limit as i64 + 1, session.map(|s| s.to_string())],
            )?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            Ok(Page { rows, head, more })
        })
        .await
    }

    pub async fn undrained(&self, persona: Uuid, limit: usize) -> Result<(Vec<Uuid>, i64)> {
        self.read(move |c| {
            let mut statement = c
                .prepare_cached("select id from signal_queue where to_persona_id = ? and drained_at is null and ended_at is null and signal_type <> 'Loopback' order by seq desc limit ?")
                .map_err(failed)?;
            let ids = statement.query_map(params![persona.to_string(), limit as i64], |r| column::id(r, "id")).map_err(failed)?;
            Ok((ids.collect::<rusqlite::Result<_>>().map_err(failed)?, head(c, persona)?))
        })
        .await
    }

    pub async fn heads(&self, personas: Vec<Uuid>) -> Result<Vec<(Uuid, i64)>> {
        self.read(move |c| personas.into_iter().map(|p| Ok((p, head(c, p)?))).collect())
            .await
    }

    pub async fn pending_counts(&self, project: Uuid) -> Result<Vec<(Uuid, ByCategory)>> {
        self.read(move |c| {
            let mut statement = c.prepare_cached(WAITING).map_err(failed)?;
            let mut counts: Vec<(Uuid, ByCategory)> = Vec::new();
            let mut rows = statement.query([project.to_string()]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                let persona = column::id(row, "to_persona_id").map_err(failed)?;
                let category = category(row).map_err(failed)?.unwrap_or(Category::Info);
                if counts.last().is_none_or(|(last, _)| *last != persona) {
                    counts.push((persona, ByCategory::default()));
                }
                if let Some((_, by_category)) = counts.last_mut() {
                    by_category.add(category, row.get("n").map_err(failed)?);
                }
            }
            Ok(counts)
        })
        .await
    }

    pub async fn sweep(&self, now: Moment, limit: usize) -> Result<Swept> {
        let due = move |c: &Connection| -> Result<bool> {
            c.prepare_cached(DUE)
                .and_then(|mut s| s.query_row([now.0], |r| r.get(0)))
                .map_err(failed)
        };
        if !self.read(due).await? {
            return Ok(Swept::default());
        }
        self.write(move |c| sweep(c, now, limit)).await
    }
}

fn send(c: &Connection, new: NewSignal) -> Result<SentRow> {
    let sender = new.from_persona.identity.as_str();
    if let Some(repeated) = repeated(c, &new, sender)? {
        return Ok(repeated);
    }
    let in_reply_to = match &new.send.in_reply_to {
        Some(quoted) => Some(answer(c, &new, quoted)?),
        None => None,
    };
    let to_persona = new.to_persona.id.to_string();
    let seq: Option<i64> = match new.failed {
        true => None,
        false => Some(
            c.prepare_cached(
                "update personas set inbox_seq = inbox_seq + 1 where id = ? returning inbox_seq",
            )
            .and_then(|mut s| s.query_row([&to_persona], |r| r.get(0)))
            .map_err(failed)?,
        ),
    };
    let payload =
        serde_json::to_string(&new.send.payload).map_err(|e| StoreError::Failed(e.to_string()))?;
    c.prepare_cached(
        "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity, seq, from_identity, from_session, signal_type, category, payload,
            in_reply_to, delivery_class, idempotency_key, body_sha256, created_at, expires_at, ended_at, ended_as)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18 from projects where id = ?19",
    )
    .and_then(|mut s| {
        s.execute(params![
            new.signal_id.to_string(),
            new.trace_id.to_string(),
            to_persona,
            new.to_persona.identity.as_str(),
            seq,
            sender,
            new.from_session.map(|s| s.to_string()),
            new.send.signal_type.name(),
            new.send.category.name(),
            payload,
            in_reply_to.map(|id| id.to_string()),
            new.send.delivery_class.name(),
            new.send.idempotency_key,
            new.send.body_sha256,
            new.now.0,
            new.now.plus_s(new.send.ttl_s).0,
            new.failed.then_some(new.now.0),
            new.failed.then_some(State::Failed.name()),
            new.project.id.to_string(),
        ])
    })
    .map_err(failed)?;
    let envelope = Envelope {
        signal_id: new.signal_id,
        signal_type: new.send.signal_type.name().into(),
        category: Some(new.send.category),
        from_identity: sender.to_owned(),
        from_session: new.from_session,
        to_identity: new.to_persona.identity.to_string(),
        payload: new.send.payload,
        in_reply_to,
        created_at: Some(new.now),
        trace_id: Some(new.trace_id),
        seq,
        pid: Some(new.project.pid.to_string()),
    };
    Ok(SentRow {
        envelope,
        to_persona: new.to_persona.id,
        repeated: false,
        failed: new.failed,
    })
}

/// A send that was accepted before under the same key gets the same answer.
fn repeated(c: &Connection, new: &NewSignal, sender: &str) -> Result<Option<SentRow>> {
    let Some(key) = &new.send.idempotency_key else {
        return Ok(None);
    };
    let found: Option<(String, String, Option<String>)> = c
        .prepare_cached(
            "select q.id, q.body_sha256, q.ended_as from signal_queue q join projects p on p.id = q.project_id
             where q.tenant_id = (select tenant_id from projects where id = ?) and q.from_identity = ? and q.idempotency_key = ?",
        )
        .and_then(|mut s| s.query_row(params![new.project.id.to_string(), sender, key], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).optional())
        .map_err(failed)?;
    let Some((id, hash, ended_as)) = found else {
        return Ok(None);
    };
    if hash != new.send.body_sha256 {
        return Err(Problem::new(
            Code::IdempotencyConflict,
            format!("idempotency_key {key:?} was used for another signal"),
            "use a new key for a new signal",
        )
        .with("signal_id", id)
        .into());
    }
    let row = trace(c, &id)?;
    Ok(Some(SentRow {
        to_persona: row.to_persona,
        envelope: row.envelope,
        repeated: true,
        failed: ended_as.as_deref() == Some("failed"),
    }))
}

/// Resolves `in_reply_to` and notes that the recipient of that signal acted on it.
fn answer(c: &Connection, new: &NewSignal, quoted: &str) -> Result<Uuid> {
    let project = new.project.id.to_string();
    let id = match find_signal(c, &project, "in_reply_to", quoted) {
        Ok(id) => id,
        Err(unknown) => {
            if find_by_trace(c, &project, quoted).is_ok() {
                return Err(Problem::new(
                    Code::TraceIdAsReply,
                    "`in_reply_to` was given a trace_id",
                    "give the `signal_id` of the signal you answer; `prism_signal_trace` shows it",
                )
                .into());
            }
            return Err(unknown);
        }
    };
    // An echo is the shim's doing; only an agent acts.
    if new.send.signal_type != SignalType::Loopback {
        c.prepare_cached(
            "update signal_queue set acted_at = coalesce(acted_at, ?)
             where id = ? and to_persona_id = ?",
        )
        .and_then(|mut s| s.execute(params![new.now.0, id, new.from_persona.id.to_string()]))
        .map_err(failed)?;
    }
    id.parse()
        .map_err(|_| StoreError::Failed("an id in the queue is not a UUID".into()))
}

fn mark(c: &Connection, m: &Mark) -> Result<()> {
    let column = match m.state {
        State::Pushed => "pushed_at",
        State::Received => "received_at",
        State::Rung => "rung_at",
        State::Rendered => "rendered_at",
        State::Drained => "drained_at",
        _ => return Ok(()),
    };
    // The first time counts: a repeat says nothing new. A receipt for a signal
    // that was never addressed to that session is ignored.
    c.prepare_cached(&format!(
        "insert into deliveries (signal_id, session_id, {column}, strategy)
         select q.id, s.id, ?3, ?4 from signal_queue q join sessions s on s.persona_id = q.to_persona_id where q.id = ?1 and s.id = ?2
         on conflict do update set {column} = coalesce({column}, excluded.{column}), strategy = coalesce(excluded.strategy, strategy)"
    ))
    .and_then(|mut s| s.execute(params![m.signal_id.to_string(), m.session_id.to_string(), m.at.0, m.strategy]))
    .map_err(failed)?;
    Ok(())
}

fn lease(
    c: &Connection,
    persona: Uuid,
    holder: Option<Uuid>,
    limit: usize,
    now: Moment,
) -> Result<Option<Drain>> {
    // The persona's whole waiting list is small by design (expiry, drains), so
    // the one rule about leases is asked row by row instead of written twice.
    let waiting = inbox_rows(
        c,
        "q.to_persona_id = ? and q.drained_at is null and q.ended_at is null and q.expires_at > ? and q.signal_type <> 'Loopback' order by q.seq",
        params![persona.to_string(), now.0],
    )?;
    let mut free = waiting
        .into_iter()
        .filter(|row| may_lease(row.lease, now))
        .map(|row| row.envelope);
    let envelopes: Vec<Envelope> = free.by_ref().take(limit).collect();
    let more = free.count() as u64;
    if envelopes.is_empty() {
        return Ok(None);
    }
    let lease_id = clock::new_id();
    let mut update = c
        .prepare_cached(
            "update signal_queue set lease_id = ?, leased_to = ?, leased_until = ? where id = ?",
        )
        .map_err(failed)?;
    for envelope in &envelopes {
        update
            .execute(params![
                lease_id.to_string(),
                holder.map(|h| h.to_string()),
                now.plus_us(LEASE_US).0,
                envelope.signal_id.to_string()
            ])
            .map_err(failed)?;
    }
    Ok(Some(Drain {
        lease_id,
        envelopes,
        more,
    }))
}

fn confirm(
    c: &Connection,
    persona: Uuid,
    lease_id: Uuid,
    now: Moment,
) -> Result<Vec<ConfirmedRow>> {
    let mut statement = c
        .prepare_cached(
            "update signal_queue set drained_at = ?, drained_by = leased_to, leased_until = null
             where lease_id = ? and to_persona_id = ? and drained_at is null and ended_at is null returning id, drained_by",
        )
        .map_err(failed)?;
    let rows = statement
        .query_map(
            params![now.0, lease_id.to_string(), persona.to_string()],
            |r| {
                Ok(ConfirmedRow {
                    signal_id: column::id(r, "id")?,
                    to_persona: persona,
                    by_session: column::opt_id(r, "drained_by")?,
                })
            },
        )
        .map_err(failed)?
        .collect::<rusqlite::Result<Vec<_>>>()
        .map_err(failed)?;
    let drained = rows.iter().filter_map(|row| {
        Some(Mark {
            signal_id: row.signal_id,
            session_id: row.by_session?,
            state: State::Drained,
            strategy: None,
            at: now,
        })
    });
    let drained: Vec<Mark> = drained.collect();
    drained.iter().try_for_each(|m| mark(c, m))?;
    proven::prove(c, drained.iter())?;
    Ok(rows)
}

fn sweep(c: &Connection, now: Moment, limit: usize) -> Result<Swept> {
    let expired = c
        .prepare_cached(EXPIRE)
        .map_err(failed)?
        .query_map(params![now.0, limit as i64], |r| {
            Ok(EndedRow {
                signal_id: column::id(r, "id")?,
                to_persona: column::id(r, "to_persona_id")?,
            })
        })
        .map_err(failed)?
        .collect::<rusqlite::Result<Vec<_>>>()
        .map_err(failed)?;
    let returned = inbox_rows(c, OVERDUE, params![now.0, limit as i64])?;
    for row in &returned {
        let id = row.envelope.signal_id.to_string();
        c.execute(
            "insert into signal_trace_events (signal_id, layer, state, observed_at, session_id, detail)
             select id, ?2, 'lease_returned', ?3, leased_to, 'a drain was not confirmed in time' from signal_queue where id = ?1",
            params![id, Layer::ModelAck.name(), now.0],
        )
        .map_err(failed)?;
        c.execute("update signal_queue set lease_id = null, leased_to = null, leased_until = null where id = ?", params![id]).map_err(failed)?;
    }
    Ok(Swept {
        expired,
        leases_returned: returned,
    })
}

fn head(c: &Connection, persona: Uuid) -> Result<i64> {
    c.prepare_cached("select inbox_seq from personas where id = ?")
        .and_then(|mut s| s.query_row([persona.to_string()], |r| r.get(0)))
        .map_err(failed)
}

/// Finds a signal of the project by id or unique prefix.
fn find_signal(c: &Connection, project: &str, field: &str, quoted: &str) -> Result<String> {
    let quoted_id = Quoted::parse(field, quoted)?;
    let mut statement = c
        .prepare_cached(
            "select id from signal_queue where id >= ? and id < ? and project_id = ? limit 2",
        )
        .map_err(failed)?;
    let ids = statement
        .query_map(
            params![quoted_id.prefix(), quoted_id.upper(), project],
            |r| r.get::<_, String>(0),
        )
        .map_err(failed)?
        .collect::<rusqlite::Result<Vec<_>>>()
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

fn find_by_trace(c: &Connection, project: &str, quoted: &str) -> Result<String> {
    let quoted_id = Quoted::parse("trace_id", quoted)?;
    c.prepare_cached("select id from signal_queue where trace_id >= ? and trace_id < ? and project_id = ? limit 1")
        .and_then(|mut s| s.query_row(params![quoted_id.prefix(), quoted_id.upper(), project], |r| r.get(0)).optional())
        .map_err(failed)?
        .ok_or_else(|| Problem::new(Code::UnknownSignal, format!("no signal with trace_id {quoted} in this project"), "check the id; a send's answer shows it").into())
}

/// Finds a signal that was addressed to this persona: unknown and foreign are told apart.
fn own_signal(c: &Connection, persona: &str, quoted: &str) -> Result<String> {
    let (project, identity): (String, String) = c
        .query_row(
            "select project_id, identity from personas where id = ?",
            [persona],
            |r| Ok((r.get(0)?, r.get(1)?)),
        )
        .map_err(failed)?;
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

fn category(row: &Row<'_>) -> rusqlite::Result<Option<Category>> {
    let name: Option<String> = row.get("category")?;
    let unknown = || rusqlite::Error::InvalidColumnType(0, "category".into(), Type::Text);
    name.map(|n| Category::from_name(&n).ok_or_else(unknown))
        .transpose()
}

fn envelope(row: &Row<'_>) -> rusqlite::Result<Envelope> {
    Ok(Envelope {
        signal_id: column::id(row, "id")?,
        signal_type: row.get("signal_type")?,
        category: category(row)?,
        from_identity: row.get("from_identity")?,
        from_session: column::opt_id(row, "from_session")?,
        to_identity: row.get("to_identity")?,
        payload: serde_json::from_str(&row.get::<_, String>("payload")?).unwrap_or_default(),
        in_reply_to: column::opt_id(row, "in_reply_to")?,
        created_at: column::opt_moment(row, "created_at")?,
        trace_id: column::opt_id(row, "trace_id")?,
        seq: row.get("seq")?,
        pid: row.get("pid")?,
    })
}

pub(super) fn inbox_sql(condition: &str) -> String {
    // The queue first: a project's rows are never what is asked for.
    format!(
        "select {ENVELOPE} from signal_queue q cross join projects p on p.id = q.project_id
         where {condition}"
    )
}

fn inbox_rows(
    c: &Connection,
    condition: &str,
    bound: &[&dyn rusqlite::ToSql],
) -> Result<Vec<InboxRow>> {
    let mut statement = c.prepare_cached(&inbox_sql(condition)).map_err(failed)?;
    let rows = statement
        .query_map(bound, |row| {
            let until = column::opt_moment(row, "leased_until")?;
            Ok(InboxRow {
                seq: row.get::<_, Option<i64>>("seq")?.unwrap_or(0),
                drained: column::opt_moment(row, "drained_at")?.is_some(),
                lease: column::opt_id(row, "lease_id")?
                    .zip(until)
                    .map(|(lease_id, until)| Lease { lease_id, until }),
                envelope: envelope(row)?,
            })
        })
        .map_err(failed)?;
    rows.collect::<rusqlite::Result<_>>().map_err(failed)
}

/// Everything that is known of one signal.
fn trace(c: &Connection, id: &str) -> Result<TraceRow> {
    let mut row = c
        .prepare_cached(&format!(
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
        .map_err(failed)?;
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
            })
        })
        .map_err(failed)?
        .collect::<rusqlite::Result<_>>()
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
        .collect::<rusqlite::Result<_>>()
        .map_err(failed)?;
    Ok(row)
}
