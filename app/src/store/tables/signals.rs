//! The queue: send, lease, confirm, end.

use super::trace::{
    ENVELOPE, category, envelope, facts, find_by_trace, find_signal, own_signal, trace,
};
use super::{
    Alone, Looked, Result, Tables, beside_its_project, column, failed, gone, inboxes, proven,
    riding,
};
use crate::clock;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{
    Ack, Audience, BellReport, Committed, ConfirmedRow, Drain, DrainLimit, EndedRow, InboxRow,
    NewSignal, Page, Report, ReturnedRow, SendOutcome, StoreError, Swept, Undrained, WaitingSign,
};
use prism_core::api::Dismissed;
use prism_core::delivery::{Lease, may_lease};
use prism_core::envelope::Envelope;
use prism_core::gate::GateWarning;
use prism_core::limits::{
    ACKS_PER_SIGNAL_MAX, DISMISSED_LATELY_MAX, INBOX_WAITING_MAX, LEASE_AHEAD_US, LEASE_US,
};
use prism_core::receipt::{Layer, PublishPath, State};
use prism_core::ring::ByCategory;
use prism_core::signal::{AckState, Category, SignalType};
use prism_core::{Code, Identity, Moment, Problem};
use serde_json::Map;
use uuid::Uuid;

/// Whether a sweep has anything to do. Both halves look only at rows that wait, never at history.
pub(super) const DUE: &str = "select exists (select 1 from signal_queue
        where expires_at <= ?1 and drained_at is null and ended_at is null)
    or exists (select 1 from signal_queue
        where leased_until <= ?1 and drained_at is null and ended_at is null)
    or exists (select 1 from signal_queue
        where leased_until > ?1 + ?2 and drained_at is null and ended_at is null)";
/// When the next of what waits expires, climbs or comes back from whoever leased it: the first of three short lists.
pub(super) const NEXT_DUE: &str = "select min(due) as due from (
    select min(expires_at) as due from signal_queue where drained_at is null and ended_at is null
    union all select min(escalate_at) from signal_queue
        where escalate_at is not null and drained_at is null and ended_at is null
    union all select min(leased_until) from signal_queue
        where leased_until is not null and drained_at is null and ended_at is null) d";
/// Ends what nobody read in time; what somebody is reading right now waits for its lease.
pub(super) const EXPIRE: &str = "update signal_queue
    set ended_at = ?1, ended_as = 'expired', lease_id = null, leased_to = null, leased_until = null
    where rowid in (select rowid from signal_queue
        where expires_at <= ?1 and drained_at is null and ended_at is null
            and (leased_until is null or leased_until <= ?1 or leased_until > ?1 + ?3) limit ?2)
    returning id, to_persona_id";
/// Leases that were not confirmed in time. One that ends later than any lease can was given before
/// the clock was set back, and is over as well.
pub(super) const OVERDUE: &str = "select id, to_persona_id from signal_queue
        where leased_until <= ?1 and drained_at is null and ended_at is null
    union all select id, to_persona_id from signal_queue
        where leased_until > ?1 + ?3 and drained_at is null and ended_at is null limit ?2";
/// Dismisses all that a session was given: found by its own deliveries, not in the inbox's past.
pub(super) const DISMISS_GIVEN: &str = "update signal_queue set dismissed_at = ?1
    where id in (select signal_id from deliveries where session_id = ?3)
        and +to_persona_id = ?2 and drained_by = ?3 and drained_at is not null
        and dismissed_at is null";
/// Dismisses what whoever has no session was given lately: among the newest places of the inbox, not
/// in its past.
pub(super) const DISMISS_LATELY: &str = "update signal_queue set dismissed_at = ?1
    where to_persona_id = ?2
        and seq > (select inbox_seq - ?3 from personas where id = ?2)
        and drained_at is not null and dismissed_at is null";
/// What waits in each inbox of a project, by category: one short look an inbox.
pub(super) const WAITING: &str = "select q.to_persona_id, q.category, count(*) as n
    from personas p cross join signal_queue q indexed by ix_signal_waiting
        on q.to_persona_id = p.id
    where p.project_id = ?1 and q.drained_at is null and q.ended_at is null
        and q.signal_type <> 'Loopback'
    group by 1, 2 order by 1";
/// What nobody has drained of an inbox, newest first.
pub(super) const UNDRAINED: &str = "select id from signal_queue indexed by ix_signal_waiting
    where to_persona_id = ?1 and drained_at is null and ended_at is null
        and signal_type <> 'Loopback' order by seq desc limit ?2";
/// The next place in an inbox and the first that is still taken there: for a signal that the sender's key has not made
/// before, of a project that is there.
pub(super) const NEXT_PLACE: &str = "update personas set inbox_seq = inbox_seq + 1
    where id = ?1 and exists (select 1 from projects where id = ?2)
        and not exists (select 1 from signal_queue where idempotency_key = ?3 and from_identity = ?4)
    returning inbox_seq, (select min(q.seq) from signal_queue q indexed by ix_signal_waiting
        where q.to_persona_id = ?1 and q.drained_at is null and q.ended_at is null) as first";
/// How far an inbox reaches.
const HEAD: &str = "select inbox_seq from personas where id = ?";
/// The signal that came last, while it is kept.
const AT_HEAD: &str = "select q.id from personas p cross join signal_queue q
    on q.to_persona_id = p.id and q.seq = p.inbox_seq where p.id = ?";
/// Which signals wait in an inbox up to the place `?2`, and up to `?3`: how many, which, and which of them nobody has leased.
pub(super) const WAITING_SIGNS: &str = "select
        cast(coalesce(sum(case when seq <= ?2 then 1 end), 0) as bigint),
        cast(coalesce(sum(case when seq <= ?2 then seq end), 0) as bigint),
        cast(coalesce(sum(case when seq <= ?2 and leased_until is null then seq end), 0) as bigint),
        count(*), cast(coalesce(sum(seq), 0) as bigint),
        cast(coalesce(sum(case when leased_until is null then seq end), 0) as bigint)
    from signal_queue indexed by ix_signal_waiting
    where to_persona_id = ?1 and seq <= ?3 and drained_at is null and ended_at is null
        and signal_type <> 'Loopback'";
/// The signal that a sender's key made before.
pub(super) const SENT_BEFORE: &str = "select id, body_sha256, project_id from signal_queue
    where idempotency_key = ?1 and from_identity = ?2";
/// When the first of an inbox's leases runs out.
pub(super) const FIRST_RETURN: &str = "select min(leased_until)
    from signal_queue indexed by ix_signal_waiting
    where to_persona_id = ?1 and drained_at is null and ended_at is null and leased_until > ?2";
/// The rows of a lease that nobody has confirmed yet.
pub(super) const UNCONFIRMED: &str = "select id, to_persona_id, leased_to, acted_at
    from signal_queue where lease_id = ?1 and drained_at is null and ended_at is null";
/// What a drain may take: `?1` whose inbox, `?2` now. The last line is [`may_lease`] with [`LEASE_AHEAD_US`]
/// in it.
pub(super) const FREE: &str = "q.to_persona_id = ?1 and q.drained_at is null and q.ended_at is null
    and q.expires_at > ?2 and q.signal_type <> 'Loopback'
    and (q.leased_until is null or q.leased_until <= ?2 or q.leased_until > ?2 + 60000000)";

impl Tables {
    /// One transaction, then one offer to the bus on the writer's thread, then the answer. What
    /// became of the push is noted there, too: it does not depend on anybody waiting for it.
    pub async fn send(&self, new: NewSignal) -> Result<SendOutcome> {
        let expected = self.bus.expects(&new);
        let (bus, riding, inboxes) = (self.bus.clone(), self.riding.clone(), self.inboxes.clone());
        let inbox = Alone::Inboxes(vec![new.to_persona.id]);
        let written = self
            .written(
                inbox,
                move |c| send(c, new, expected),
                move |written| match written {
                    Written::New(committed) => {
                        inboxes.filled(committed.to_persona);
                        let pushed = bus.publish(&committed);
                        riding.pushed(committed.envelope.signal_id, expected, &pushed);
                        Ok((committed, pushed))
                    }
                    Written::Before(signal_id) => Err(signal_id),
                },
            )
            .await?;
        let signal_id = match written {
            Ok((committed, pushed)) => return Ok(SendOutcome::Stored(committed, pushed)),
            Err(signal_id) => signal_id,
        };
        // It is stored, and that is what was asked: receipts that cannot be written yet are told later.
        if let Err(error) = self.settle().await {
            tracing::warn!(%error, "A signal that was sent before is answered without its newest receipts");
        }
        let row = self.read(move |c| trace(c, &signal_id)).await?;
        Ok(SendOutcome::Repeated(Box::new(row)))
    }

    pub async fn report(&self, reports: Vec<Report>) {
        if self.riding.add(&reports).await {
            self.writer.something_rides();
        }
    }

    pub fn report_bells(&self, bells: Vec<BellReport>) {
        if self.riding.add_bells(bells) {
            self.writer.something_rides();
        }
    }

    pub async fn may_have_pending(&self, persona: Uuid, now: Moment) -> Result<bool> {
        if self.pool.is_none() {
            return Ok(self.inboxes.may_hold(persona, now));
        }
        // Another server may have filled it.
        self.read(move |c| {
            c.prepare_cached(&inboxes::holds())
                .and_then(|mut s| s.query_row(params![persona.to_string(), now.0], |r| r.get(0)))
                .map_err(failed)
        })
        .await
    }

    /// What another server sends there from here on is seen by the next look; what this one sends, by whoever asks
    /// whether it is still so.
    pub async fn looking<T>(
        &self,
        persona: Uuid,
        now: Moment,
        running: impl Future<Output = T>,
    ) -> (T, Looked) {
        match &self.pool {
            Some(_) => inboxes::looking(&self.inboxes, persona, now, running).await,
            None => (running.await, Looked::default()),
        }
    }

    pub async fn still_pending(&self, looked: Looked, persona: Uuid, now: Moment) -> Result<bool> {
        match looked.holds(self.inboxes.fills(persona)) {
            Some(held) => Ok(held),
            None => self.may_have_pending(persona, now).await,
        }
    }

    pub async fn lease(
        &self,
        persona: Uuid,
        holder: Option<Uuid>,
        limit: DrainLimit,
        now: Moment,
    ) -> Result<Option<Drain>> {
        let inboxes = self.inboxes.clone();
        self.written(
            Alone::Inboxes(vec![persona]),
            move |c| lease(c, persona, holder, limit, now),
            move |leased| match leased {
                Leased::Some(drain) => Some(drain),
                Leased::Nothing { first_return } => {
                    inboxes.found_empty(persona, first_return);
                    None
                }
            },
        )
        .await
    }

    pub async fn confirm(
        &self,
        personas: Vec<Uuid>,
        leases: Vec<Uuid>,
        now: Moment,
    ) -> Result<Vec<ConfirmedRow>> {
        let inboxes = Alone::Inboxes(personas.clone());
        let confirm = move |c: &Connection| {
            let mut confirmed = Vec::new();
            for lease in leases {
                confirmed.extend(confirm(c, &personas, lease, now)?);
            }
            Ok(confirmed)
        };
        self.written(inboxes, confirm, |confirmed| confirmed).await
    }

    pub async fn dismiss(
        &self,
        persona: Uuid,
        session: Option<Uuid>,
        signal_ids: Vec<String>,
        now: Moment,
    ) -> Result<Dismissed> {
        self.write(move |c| {
            let given = "to_persona_id = ? and drained_at is not null and dismissed_at is null and (cast(? as text) is null or drained_by is null or drained_by = ?)";
            let (persona_id, session) = (persona.to_string(), session.map(|s| s.to_string()));
            let mut only_newest = None;
            if signal_ids.is_empty() {
                let n = match &session {
                    Some(session) => c.execute(DISMISS_GIVEN, params![now.0, persona_id, session]),
                    None => {
                        let places = DISMISSED_LATELY_MAX as i64;
                        only_newest = (head(c, persona)? > places).then_some(places as u64);
                        c.execute(DISMISS_LATELY, params![now.0, persona_id, places])
                    }
                };
                let dismissed = n.map_err(failed)? as u64;
                return Ok(Dismissed { dismissed, only_newest });
            }
            let mut dismissed = 0;
            for quoted in signal_ids {
                let id = own_signal(c, &persona_id, &quoted)?;
                let n = c
                    .execute(&format!("update signal_queue set dismissed_at = ? where id = ? and {given}"), params![now.0, id, persona_id, session, session])
                    .map_err(failed)?;
                dismissed += n as u64;
            }
            Ok(Dismissed { dismissed, only_newest })
        })
        .await
    }

    pub async fn acknowledge(&self, ack: Ack) -> Result<Option<GateWarning>> {
        self.write(move |c| {
            let id = own_signal(c, &ack.persona.id.to_string(), &ack.signal_id)?;
            note_ack(c, &id, &ack)?;
            if ack.state == AckState::ModelActed {
                c.execute(
                    "update signal_queue set acted_at = coalesce(acted_at, ?) where id = ?",
                    params![ack.now.0, id],
                )
                .map_err(failed)?;
            }
            super::gate::acknowledged(c, &ack, &facts(c, &id)?)
        })
        .await
    }

    pub async fn take_back(
        &self,
        project: Uuid,
        signal_id: String,
        sender: Option<Identity>,
        now: Moment,
    ) -> Result<std::result::Result<EndedRow, String>> {
        self.write(move |c| {
            let id = find_signal(c, &project.to_string(), "signal_id", &signal_id)?;
            let row = facts(c, &id)?;
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
                        "update signal_queue set ended_at = ?1, ended_as = 'recalled' where id = ?2 and drained_at is null and ended_at is null and (leased_until is null or leased_until <= ?1 or leased_until > ?1 + ?3)",
                        params![now.0, id, LEASE_AHEAD_US],
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
            let mut rows = rows_of(
                c,
                &replayed_rows(undrained_only),
                params![
                    persona.to_string(),
                    after,
                    limit as i64 + 1,
                    session.map(|s| s.to_string())
                ],
            )?;
            let more = rows.len() > limit;
            rows.truncate(limit);
            Ok(Page { rows, head, more })
        })
        .await
    }

    pub async fn undrained(&self, persona: Uuid, limit: usize) -> Result<Undrained> {
        self.read(move |c| {
            let whose = persona.to_string();
            c.ahead(HEAD, [&whose]).map_err(failed)?;
            c.ahead(AT_HEAD, [&whose]).map_err(failed)?;
            let mut statement = c.prepare_cached(UNDRAINED).map_err(failed)?;
            let ids = statement
                .query_map(params![whose, limit as i64], |r| column::id(r, "id"))
                .map_err(failed)?;
            Ok(Undrained {
                ids: ids.collect::<sql::Result<_>>().map_err(failed)?,
                head: head(c, persona)?,
                head_id: c
                    .prepare_cached(AT_HEAD)
                    .and_then(|mut s| s.query_row([whose], |r| column::id(r, "id")).optional())
                    .map_err(failed)?,
            })
        })
        .await
    }

    pub async fn waiting_signs(
        &self,
        inboxes: Vec<(Uuid, i64, i64)>,
    ) -> Result<Vec<(Uuid, [WaitingSign; 2])>> {
        self.read(move |c| {
            let values = |(persona, then, now): &(Uuid, i64, i64)| {
                vec![persona.to_string().into(), (*then).into(), (*now).into()]
            };
            let each: Vec<_> = inboxes.iter().map(values).collect();
            let signs = |r: &sql::Row<'_>| {
                Ok([
                    WaitingSign([r.get(0)?, r.get(1)?, r.get(2)?]),
                    WaitingSign([r.get(3)?, r.get(4)?, r.get(5)?]),
                ])
            };
            let signs = c.query_each(WAITING_SIGNS, &each, signs).map_err(failed)?;
            let personas = inboxes.into_iter().map(|(persona, ..)| persona);
            Ok(personas.zip(signs.into_iter().flatten()).collect())
        })
        .await
    }

    pub async fn heads(&self, personas: Vec<Uuid>) -> Result<Vec<(Uuid, i64)>> {
        self.read(move |c| {
            let each: Vec<_> = personas
                .iter()
                .map(|p| vec![p.to_string().into()])
                .collect();
            let heads = c.query_each(HEAD, &each, |r| r.get(0)).map_err(failed)?;
            // One that went away with its project has no inbox any more.
            let known = personas.into_iter().zip(heads);
            let known = known.filter_map(|(p, head)| head.first().map(|head| (p, *head)));
            Ok(known.collect())
        })
        .await
    }

    pub async fn pending_counts(&self, project: Uuid) -> Result<Vec<(Uuid, ByCategory)>> {
        self.glance(move |c| counted(c, &project.to_string())).await
    }

    pub async fn next_due(&self) -> Result<Option<Moment>> {
        self.read(|c| {
            c.query_row(NEXT_DUE, [], |r| column::opt_moment(r, "due"))
                .map_err(failed)
        })
        .await
    }

    pub async fn sweep(&self, now: Moment, limit: usize) -> Result<Swept> {
        let due = move |c: &Connection| -> Result<bool> {
            c.prepare_cached(DUE)
                .and_then(|mut s| s.query_row([now.0, LEASE_AHEAD_US], |r| r.get(0)))
                .map_err(failed)
        };
        if !self.read(due).await? {
            return Ok(Swept::default());
        }
        let inboxes = self.inboxes.clone();
        self.written(
            Alone::Everywhere,
            move |c| sweep(c, now, limit),
            move |swept| {
                for row in &swept.leases_returned {
                    inboxes.filled(row.to_persona);
                }
                swept
            },
        )
        .await
    }
}

const _: () = assert!(LEASE_AHEAD_US == 60_000_000, "FREE says so too");

/// What a send wrote.
enum Written {
    New(Box<Committed>),
    /// The signal that an earlier send with this key made.
    Before(String),
}

/// What a drain was given.
enum Leased {
    Some(Drain),
    /// Nothing waits; the first row that is leased to somebody may wait again then.
    Nothing {
        first_return: Option<Moment>,
    },
}

/// What waits in each inbox of a project.
pub(super) fn counted(c: &Connection, project: &str) -> Result<Vec<(Uuid, ByCategory)>> {
    let mut statement = c.prepare_cached(WAITING).map_err(failed)?;
    let mut counts: Vec<(Uuid, ByCategory)> = Vec::new();
    let mut rows = statement.query([project]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let persona = column::id(&row, "to_persona_id").map_err(failed)?;
        let category = category(&row).map_err(failed)?.unwrap_or(Category::Info);
        if counts.last().is_none_or(|(last, _)| *last != persona) {
            counts.push((persona, ByCategory::default()));
        }
        if let Some((_, by_category)) = counts.last_mut() {
            by_category.add(category, row.get("n").map_err(failed)?);
        }
    }
    Ok(counts)
}

fn send(c: &Connection, new: NewSignal, expected: PublishPath) -> Result<Written> {
    let sender = new.from_persona.identity.as_str();
    let to_persona = new.to_persona.id.to_string();
    let project = new.project.id.to_string();
    // What goes to nobody has no place in the inbox: a place that no socket gets is a gap.
    let to_nobody = new.failed || new.audience == Audience::Nobody;
    let place: Option<(i64, Option<i64>)> = match to_nobody {
        true => None,
        false => c
            .prepare_cached(NEXT_PLACE)
            .and_then(|mut s| {
                let of = params![to_persona, project, new.send.idempotency_key, sender];
                s.query_row(of, |r| Ok((r.get(0)?, r.get(1)?))).optional()
            })
            .map_err(failed)?,
    };
    if place.is_none() {
        if let Some(id) = sent_before(c, &new, sender)? {
            return Ok(Written::Before(id));
        }
        let there = "select count(*) from projects where id = ?";
        let there = c.query_row(there, [&project], |r| r.get::<_, i64>(0));
        beside_its_project(there.map_err(failed)? as usize)?;
        if !to_nobody {
            return Err(gone().into());
        }
    }
    let in_reply_to = match &new.send.in_reply_to {
        Some(quoted) => Some(answer(c, &new, quoted)?),
        None => None,
    };
    if let Some((seq, first)) = place
        && new.send.signal_type != SignalType::Loopback
    {
        check_room(c, &new, &to_persona, seq, first)?;
    }
    let seq = place.map(|(seq, _)| seq);
    c.put(
        "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity,
            seq, from_identity, from_session, signal_type, category, payload, in_reply_to,
            delivery_class, idempotency_key, body_sha256, created_at, expires_at, ended_at,
            ended_as, publish_path, escalate_at)
         select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15,
            ?16, ?17, ?18, ?19, ?20 from projects where id = ?21",
        params![
            new.signal_id.to_string(),
            new.trace_id.to_string(),
            to_persona,
            new.to_persona.identity.as_str(),
            seq,
            sender,
            new.from_session.map(|s| s.to_string()),
            new.send.signal_type.name(),
            new.send.category.name(),
            new.send.payload_json,
            in_reply_to.map(|id| id.to_string()),
            new.send.delivery_class.name(),
            new.send.idempotency_key,
            new.send.body_sha256,
            new.now.0,
            new.now.plus_s(new.send.ttl_s).0,
            new.failed.then_some(new.now.0),
            new.failed.then_some(State::Failed.name()),
            expected.name(),
            new.escalates_after_us.map(|us| new.now.plus_us(us).0),
            project,
        ],
    )
    .map_err(failed)?;
    let envelope = Envelope {
        signal_id: new.signal_id,
        signal_type: new.send.signal_type.name().into(),
        category: Some(new.send.category),
        from_identity: sender.to_owned(),
        from_session: new.from_session,
        to_identity: new.to_persona.identity.to_string(),
        payload: Map::new(),
        in_reply_to,
        created_at: Some(new.now),
        trace_id: Some(new.trace_id),
        seq,
        pid: Some(new.project.pid.to_string()),
    };
    Ok(Written::New(Box::new(Committed {
        envelope,
        payload_json: new.send.payload_json,
        project: new.project.id,
        to_persona: new.to_persona.id,
        audience: new.audience,
        recipient_live: new.recipient_live,
        recipient_elsewhere: new.recipient_elsewhere,
    })))
}

/// Refuses what would wait behind too many others.
fn check_room(
    c: &Connection,
    new: &NewSignal,
    to_persona: &str,
    seq: i64,
    first: Option<i64>,
) -> Result<()> {
    let full = INBOX_WAITING_MAX as i64;
    // Numbers are given in order, so no more can wait than were given since the first of them.
    if first.is_none_or(|first| seq - first < full) {
        return Ok(());
    }
    let waits: i64 = c
        .prepare_cached(
            "select count(*) from signal_queue indexed by ix_signal_waiting
             where to_persona_id = ? and drained_at is null and ended_at is null
                and signal_type <> 'Loopback'",
        )
        .and_then(|mut s| s.query_row([to_persona], |r| r.get(0)))
        .map_err(failed)?;
    if waits < full {
        return Ok(());
    }
    let to = &new.to_persona.identity;
    Err(Problem::new(
        Code::InboxFull,
        format!("{to} has {waits} signals waiting, and an inbox holds {INBOX_WAITING_MAX}"),
        format!("wait until {to} has read some, or take back what is no longer needed"),
    )
    .with("recipient", to.as_str())
    .with("limit", INBOX_WAITING_MAX)
    .into())
}

/// The signal that the same key and body made before. A key is used up in whatever project: the
/// same words in another one are another signal.
fn sent_before(c: &Connection, new: &NewSignal, sender: &str) -> Result<Option<String>> {
    let Some(key) = &new.send.idempotency_key else {
        return Ok(None);
    };
    let found: Option<(String, String, String)> = c
        .prepare_cached(SENT_BEFORE)
        .and_then(|mut s| {
            let row = |r: &Row<'_>| Ok((r.get(0)?, r.get(1)?, r.get(2)?));
            s.query_row(params![key, sender], row).optional()
        })
        .map_err(failed)?;
    let Some((id, hash, project)) = found else {
        return Ok(None);
    };
    if hash != new.send.body_sha256 || project != new.project.id.to_string() {
        return Err(Problem::new(
            Code::IdempotencyConflict,
            format!("idempotency_key {key:?} was used for another signal"),
            "use a new key for a new signal",
        )
        .with("signal_id", id)
        .into());
    }
    Ok(Some(id))
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

/// Leases what waits, oldest first. SQL narrows to rows that are free; the one rule about leases
/// decides.
fn lease(
    c: &Connection,
    persona: Uuid,
    holder: Option<Uuid>,
    limit: DrainLimit,
    now: Moment,
) -> Result<Leased> {
    let persona = persona.to_string();
    let bound = params![persona, now.0, limit.signals as i64];
    let (rows, rest) = rows_within(c, &free_rows(), bound, limit.payload_bytes)?;
    let envelopes: Vec<Envelope> = rows
        .into_iter()
        .filter(|row| may_lease(row.lease, now))
        .map(|row| row.envelope)
        .collect();
    if envelopes.is_empty() {
        return first_return(c, &persona, now);
    }
    let lease_id = clock::new_id();
    let leased =
        "update signal_queue set lease_id = ?, leased_to = ?, leased_until = ? where id = ?";
    for envelope in &envelopes {
        let bound = params![
            lease_id.to_string(),
            holder.map(|h| h.to_string()),
            now.plus_us(LEASE_US).0,
            envelope.signal_id.to_string()
        ];
        c.put(leased, bound).map_err(failed)?;
    }
    let more: i64 = match envelopes.len() < limit.signals && !rest {
        true => 0,
        false => c
            .prepare_cached(&free_count())
            .and_then(|mut s| s.query_row(params![persona, now.0], |r| r.get(0)))
            .map_err(failed)?,
    };
    Ok(Leased::Some(Drain {
        lease_id,
        envelopes,
        more: more as u64,
    }))
}

/// The oldest free rows, `?3` of them.
pub(super) fn free_rows() -> String {
    waiting_sql(&format!("{FREE} order by q.seq limit ?3"))
}

/// A page of an inbox after `?2`; a probe is for the one session it names.
pub(super) fn replayed_rows(undrained_only: bool) -> String {
    let rows = "q.to_persona_id = ?1 and q.seq > ?2 and q.ended_at is null
        and (q.signal_type <> 'Loopback'
            or json_extract(q.payload, '$.requested_by_session') = ?4)";
    match undrained_only {
        true => waiting_sql(&format!(
            "{rows} and q.drained_at is null order by q.seq limit ?3"
        )),
        false => inbox_sql(&format!("{rows} order by q.seq limit ?3")),
    }
}

/// Rows that wait. Left to choose, SQLite would read the whole inbox for them.
fn waiting_sql(condition: &str) -> String {
    inbox_sql(condition).replace(
        "signal_queue q ",
        "signal_queue q indexed by ix_signal_waiting ",
    )
}

pub(super) fn free_count() -> String {
    format!("select count(*) from signal_queue q indexed by ix_signal_waiting where {FREE}")
}

fn first_return(c: &Connection, persona: &str, now: Moment) -> Result<Leased> {
    c.prepare_cached(FIRST_RETURN)
        .and_then(|mut s| s.query_row(params![persona, now.0], |r| r.get::<_, Option<i64>>(0)))
        .map(|until| Leased::Nothing {
            first_return: until.map(Moment),
        })
        .map_err(failed)
}

fn confirm(
    c: &Connection,
    personas: &[Uuid],
    lease_id: Uuid,
    now: Moment,
) -> Result<Vec<ConfirmedRow>> {
    let mut statement = c.prepare_cached(UNCONFIRMED).map_err(failed)?;
    let mut rows = statement
        .query_map([lease_id.to_string()], |r| {
            // Whoever has acted on it had it by then, however late the word of that comes.
            let acted = column::opt_moment(r, "acted_at")?;
            Ok(ConfirmedRow {
                signal_id: column::id(r, "id")?,
                to_persona: column::id(r, "to_persona_id")?,
                by_session: column::opt_id(r, "leased_to")?,
                at: acted.map_or(now, |acted| acted.min(now)),
            })
        })
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    // Somebody else's lease is nobody's business here.
    rows.retain(|row| personas.contains(&row.to_persona));
    // In one order, so that two who write the same rows do not wait for each other.
    rows.sort_by_key(|row| row.signal_id);
    let drained =
        "update signal_queue set drained_at = ?, drained_by = leased_to, leased_until = null
        where id = ?";
    let mut news = Vec::new();
    for row in &rows {
        c.put(drained, params![row.at.0, row.signal_id.to_string()])
            .map_err(failed)?;
        if let Some(session) = row.by_session {
            let drained = [riding::Fact::new(State::Drained, row.at)];
            let written = riding::write(c, row.signal_id, session, &drained)?;
            news.extend(written.into_iter().flatten());
        }
    }
    proven::prove(c, &news)?;
    Ok(rows)
}

/// Keeps an acknowledgment. A session says each thing once: what it says again takes the place of
/// what it said, and keeps the note when it brings none.
fn note_ack(c: &Connection, id: &str, ack: &Ack) -> Result<()> {
    let (layer, state) = (Layer::ModelAck.name(), ack.state.name());
    let session = ack.session.map(|s| s.to_string());
    let said: Option<String> = c
        .prepare_cached(
            "select detail from signal_trace_events
             where signal_id = ? and layer = ? and state = ? and session_id is not distinct from ?
             order by id desc limit 1",
        )
        .and_then(|mut s| {
            let before = s.query_row(params![id, layer, state, session], |r| r.get(0));
            before.optional()
        })
        .map_err(failed)?
        .flatten();
    c.prepare_cached(
        "delete from signal_trace_events
         where signal_id = ? and layer = ? and state = ? and session_id is not distinct from ?",
    )
    .and_then(|mut s| s.execute(params![id, layer, state, session]))
    .map_err(failed)?;
    c.prepare_cached(
        "insert into signal_trace_events
            (signal_id, layer, state, observed_at, session_id, detail) values (?, ?, ?, ?, ?, ?)",
    )
    .and_then(|mut s| {
        let note = ack.note.as_ref().or(said.as_ref());
        s.execute(params![id, layer, state, ack.now.0, session, note])
    })
    .map_err(failed)?;
    forget_old_notes(c, id)
}

/// Whoever reads and acknowledges one signal for ever leaves so many rows, and no more.
fn forget_old_notes(c: &Connection, id: &str) -> Result<()> {
    c.prepare_cached(
        "delete from signal_trace_events where id in (select id from
            (select id, row_number() over (partition by state = 'lease_returned' order by id desc)
                as place
             from signal_trace_events where signal_id = ?1 and layer = ?2)
         where place > ?3)",
    )
    .and_then(|mut s| {
        s.execute(params![
            id,
            Layer::ModelAck.name(),
            ACKS_PER_SIGNAL_MAX as i64
        ])
    })
    .map_err(failed)?;
    Ok(())
}

/// Puts a leased row back into the queue, and says so in its trace.
pub(super) fn give_back(c: &Connection, row: &ReturnedRow, now: Moment, why: &str) -> Result<()> {
    let id = row.signal_id.to_string();
    c.prepare_cached(
        "insert into signal_trace_events (signal_id, layer, state, observed_at, session_id, detail)
         select id, ?2, 'lease_returned', ?3, leased_to, ?4 from signal_queue where id = ?1",
    )
    .and_then(|mut s| s.execute(params![id, Layer::ModelAck.name(), now.0, why]))
    .map_err(failed)?;
    forget_old_notes(c, &id)?;
    c.prepare_cached(
        "update signal_queue set lease_id = null, leased_to = null, leased_until = null
         where id = ?",
    )
    .and_then(|mut s| s.execute([id]))
    .map_err(failed)?;
    Ok(())
}

/// Whose lease stands on which row.
pub(super) fn returned(row: &Row<'_>) -> sql::Result<ReturnedRow> {
    Ok(ReturnedRow {
        signal_id: column::id(row, "id")?,
        to_persona: column::id(row, "to_persona_id")?,
    })
}

fn sweep(c: &Connection, now: Moment, limit: usize) -> Result<Swept> {
    let expired = c
        .prepare_cached(EXPIRE)
        .map_err(failed)?
        .query_map(params![now.0, limit as i64, LEASE_AHEAD_US], |r| {
            Ok(EndedRow {
                signal_id: column::id(r, "id")?,
                to_persona: column::id(r, "to_persona_id")?,
            })
        })
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    let leases_returned = c
        .prepare_cached(OVERDUE)
        .map_err(failed)?
        .query_map(params![now.0, limit as i64, LEASE_AHEAD_US], returned)
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    for row in &leases_returned {
        give_back(c, row, now, "a drain was not confirmed in time")?;
    }
    Ok(Swept {
        expired,
        leases_returned,
    })
}

fn head(c: &Connection, persona: Uuid) -> Result<i64> {
    known_head(c, persona)?.ok_or_else(|| gone().into())
}

fn known_head(c: &Connection, persona: Uuid) -> Result<Option<i64>> {
    c.prepare_cached(HEAD)
        .and_then(|mut s| {
            let head = s.query_row([persona.to_string()], |r| r.get(0));
            head.optional()
        })
        .map_err(failed)
}

pub(super) fn inbox_sql(condition: &str) -> String {
    // The queue first: a project's rows are never what is asked for.
    format!(
        "select {ENVELOPE} from signal_queue q cross join projects p on p.id = q.project_id
         where {condition}"
    )
}

fn rows_of(c: &Connection, sql: &str, bound: &[&dyn sql::ToSql]) -> Result<Vec<InboxRow>> {
    rows_within(c, sql, bound, usize::MAX).map(|(rows, _)| rows)
}

/// The first rows whose payloads fit into so many bytes, at least one, and whether others did not.
fn rows_within(
    c: &Connection,
    sql: &str,
    bound: &[&dyn sql::ToSql],
    payload_bytes: usize,
) -> Result<(Vec<InboxRow>, bool)> {
    let mut statement = c.prepare_cached(sql).map_err(failed)?;
    let mut found = statement.query(bound).map_err(failed)?;
    let (mut rows, mut bytes) = (Vec::new(), 0usize);
    while let Some(row) = found.next().map_err(failed)? {
        let payload = row.get_ref("payload").map_err(failed)?;
        bytes += payload.as_bytes().map_or(0, <[u8]>::len);
        if bytes > payload_bytes && !rows.is_empty() {
            return Ok((rows, true));
        }
        rows.push(inbox_row(&row).map_err(failed)?);
    }
    Ok((rows, false))
}

fn inbox_row(row: &Row<'_>) -> sql::Result<InboxRow> {
    let until = column::opt_moment(row, "leased_until")?;
    Ok(InboxRow {
        seq: row.get::<_, Option<i64>>("seq")?.unwrap_or(0),
        drained: column::opt_moment(row, "drained_at")?.is_some(),
        lease: column::opt_id(row, "lease_id")?
            .zip(until)
            .map(|(lease_id, until)| Lease { lease_id, until }),
        envelope: envelope(row)?,
    })
}
