//! What is known of deliveries and waits for the next commit: pushes and receipts, one entry for
//! each signal and session, so that a push and its receipt are one write.

use super::{Result, StoreError, column, failed, proven};
use crate::bus::Pushed;
use crate::config;
use crate::store::sql::{Connection, OptionalExtension, params};
use crate::store::{BellReport, Report};
use prism_core::Moment;
use prism_core::bell::Strategy;
use prism_core::limits::{BELL_NOTES_MAX, RIDING_FACTS_MAX};
use prism_core::receipt::{Layer, PublishPath, SessionReceipt, State};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use uuid::Uuid;

/// How long what nobody waits for may ride before it is committed on its own.
pub const RIDE: Duration = Duration::from_millis(20);
/// Deliveries whose facts are kept when they cannot be written: there stays room for new ones.
const KEPT_FACTS_MAX: usize = RIDING_FACTS_MAX / 2;
/// How long what could not be written waits until it is tried again.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Default)]
pub struct Riding {
    waiting: Mutex<Waiting>,
    /// Told when there is room again.
    room: Notify,
}

#[derive(Default)]
struct Waiting {
    /// What is known of one signal in one session, in the order it was reported.
    facts: HashMap<(Uuid, Uuid), Vec<Fact>>,
    /// Pushes that came to something else than their row says.
    paths: Vec<(Uuid, PublishPath)>,
    /// What is told of bells, behind the facts it speaks of.
    bells: Vec<BellReport>,
    since: Option<Instant>,
    /// They could not be written; when to try again.
    retry_at: Option<Instant>,
    /// Somebody waits to read them.
    wanted: bool,
    /// A commit that carries some is under way.
    on_its_way: bool,
}

/// What a commit carries; it comes back when the commit fails.
pub struct Taken {
    facts: HashMap<(Uuid, Uuid), Vec<Fact>>,
    paths: Vec<(Uuid, PublishPath)>,
    bells: Vec<BellReport>,
    written: Result<()>,
}

/// One thing that is known of a signal in a session, and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct Fact {
    pub state: State,
    pub at: Moment,
    pub strategy: Option<Strategy>,
    pub via: Option<Uuid>,
    pub hop_us: Option<i64>,
}

impl Fact {
    pub fn new(state: State, at: Moment) -> Self {
        Self {
            state,
            at,
            strategy: None,
            via: None,
            hop_us: None,
        }
    }
}

impl Riding {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Entries are added whole, so a holder that panicked left nothing half-done.
        self.waiting
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes a push, on the writer's own thread: before any receipt of it can be written.
    pub fn pushed(&self, signal_id: Uuid, expected: PublishPath, pushed: &Pushed) {
        if pushed.took.is_empty() && pushed.path == expected {
            return;
        }
        let mut waiting = self.waiting();
        for session in &pushed.took {
            waiting.add(signal_id, *session, Fact::new(State::Pushed, pushed.at));
        }
        if pushed.path != expected {
            waiting.paths.push((signal_id, pushed.path));
        }
        waiting.since.get_or_insert_with(Instant::now);
    }

    /// Takes reports, once there is room for them; true when nothing was riding before.
    pub async fn add(&self, reports: &[Report]) -> bool {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            // Listening starts here, so that room made between the look and the wait is noticed.
            room.as_mut().enable();
            {
                let mut waiting = self.waiting();
                if waiting.facts.len() < RIDING_FACTS_MAX {
                    for r in reports {
                        let fact = Fact {
                            state: r.state,
                            at: r.at,
                            strategy: r.strategy,
                            via: r.via,
                            hop_us: r.hop_us,
                        };
                        waiting.add(r.signal_id, r.session_id, fact);
                    }
                    return waiting.rides();
                }
            }
            room.await;
        }
    }

    /// Takes what is told of bells; what there is no room for is not told.
    pub fn add_bells(&self, bells: Vec<BellReport>) -> bool {
        let mut waiting = self.waiting();
        let room = RIDING_FACTS_MAX.saturating_sub(waiting.bells.len());
        waiting.bells.extend(bells.into_iter().take(room));
        waiting.rides()
    }

    /// The commit that carried some is over; what it could not carry rides again.
    pub fn arrived(&self) {
        self.waiting().on_its_way = false;
    }

    /// Whether everything that ever rode can be read.
    pub fn is_settled(&self) -> bool {
        let waiting = self.waiting();
        waiting.since.is_none() && !waiting.on_its_way
    }

    /// Makes the next commit carry everything.
    pub fn want(&self) {
        self.waiting().wanted = true;
    }

    /// When what rides has ridden long enough.
    pub fn due_at(&self) -> Option<Instant> {
        let waiting = self.waiting();
        if waiting.retry_at.is_some() {
            return waiting.retry_at;
        }
        match (waiting.since, waiting.facts.len() >= RIDING_FACTS_MAX / 2) {
            (Some(since), true) => Some(since),
            (since, _) => since.map(|at| at + RIDE),
        }
    }

    /// Whether it has ridden long enough, or somebody wants to read it.
    pub fn is_due(&self) -> bool {
        self.waiting().wanted || self.due_at().is_some_and(|at| at <= Instant::now())
    }

    /// Takes what rides, for `write` to write.
    pub fn take(&self) -> Taken {
        let on_its_way = Waiting {
            on_its_way: true,
            ..Waiting::default()
        };
        let Waiting {
            facts,
            paths,
            bells,
            ..
        } = std::mem::replace(&mut *self.waiting(), on_its_way);
        self.room.notify_waiters();
        Taken {
            facts,
            paths,
            bells,
            written: Ok(()),
        }
    }

    /// Keeps what a commit could not carry, before anything newer: without its push, every later
    /// report of a session is a stranger's.
    pub fn keep(&self, taken: Option<Taken>) {
        let mut waiting = self.waiting();
        if let Some(Taken {
            facts,
            paths,
            mut bells,
            ..
        }) = taken
        {
            let newer = std::mem::take(&mut waiting.facts);
            let lost = facts.len().saturating_sub(KEPT_FACTS_MAX);
            waiting.facts = facts.into_iter().take(KEPT_FACTS_MAX).collect();
            for ((signal_id, session_id), facts) in newer {
                for fact in facts {
                    waiting.add(signal_id, session_id, fact);
                }
            }
            bells.truncate(KEPT_FACTS_MAX);
            bells.append(&mut waiting.bells);
            waiting.bells = bells;
            let newer = std::mem::take(&mut waiting.paths);
            waiting.paths = paths
                .into_iter()
                .take(KEPT_FACTS_MAX)
                .chain(newer)
                .collect();
            waiting.since.get_or_insert_with(Instant::now);
            if lost > 0 {
                tracing::error!(
                    "Lost the receipts of {lost} deliveries: too many wait to be written"
                );
            }
        }
        if waiting.since.is_some() {
            waiting.retry_at = Some(Instant::now() + RETRY);
        }
    }
}

impl Taken {
    /// Notes what came of writing it.
    pub fn tried(mut self, written: Result<()>) -> Self {
        if let Err(error) = &written {
            tracing::warn!(%error, "Could not write receipts");
        }
        self.written = written;
        self
    }

    /// Whether it is on disk or never will be: what the disk refused, or a database
    /// that was away, may be taken later; what is wrong in itself would only hold up the rest.
    pub fn is_settled(&self, committed: bool) -> bool {
        match &self.written {
            Ok(()) => committed,
            Err(StoreError::Unwritable(_) | StoreError::Again(_) | StoreError::Changed(_)) => false,
            Err(_) => true,
        }
    }

    /// The signals of which something is told.
    pub fn signals(&self) -> impl Iterator<Item = Uuid> {
        self.facts.keys().map(|(signal, _)| *signal)
    }

    pub fn write(&self, c: &Connection) -> Result<()> {
        for (signal_id, path) in &self.paths {
            c.prepare_cached("update signal_queue set publish_path = ? where id = ?")
                .and_then(|mut s| s.execute(params![path.name(), signal_id.to_string()]))
                .map_err(failed)?;
        }
        let mut news = Vec::new();
        // In one order, so that two who write the same rows do not wait for each other.
        let mut facts: Vec<_> = self.facts.iter().collect();
        facts.sort_unstable_by_key(|(key, _)| **key);
        for ((signal_id, session_id), facts) in facts {
            news.extend(write(c, *signal_id, *session_id, facts)?);
        }
        proven::prove(c, &news)?;
        self.bells.iter().try_for_each(|bell| write_bell(c, bell))
    }
}

impl Waiting {
    fn add(&mut self, signal_id: Uuid, session_id: Uuid, fact: Fact) {
        let facts = self.facts.entry((signal_id, session_id)).or_default();
        // The first report of a state counts, so there are never more than there are states.
        if !facts.iter().any(|f| f.state == fact.state) {
            facts.push(fact);
        }
    }

    /// Something rides now; true when nothing did before.
    fn rides(&mut self) -> bool {
        let first = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        first
    }
}

/// Writes facts about one signal in one session, and says which were news. A report counts only from a session that the
/// signal was pushed or leased to.
pub fn write(
    c: &Connection,
    signal_id: Uuid,
    session_id: Uuid,
    reported: &[Fact],
) -> Result<Vec<Report>> {
    let (signal, session) = (signal_id.to_string(), session_id.to_string());
    let known = c
        .prepare_cached(
            "select pushed_at, received_at, rung_at, rendered_at, drained_at
             from deliveries where signal_id = ? and session_id = ?",
        )
        .and_then(|mut s| {
            s.query_row(params![signal, session], |r| {
                Ok(SessionReceipt {
                    pushed: column::opt_moment(r, "pushed_at")?,
                    received: column::opt_moment(r, "received_at")?,
                    rung: column::opt_moment(r, "rung_at")?,
                    rendered: column::opt_moment(r, "rendered_at")?,
                    drained: column::opt_moment(r, "drained_at")?,
                    ..SessionReceipt::default()
                })
            })
            .optional()
        })
        .map_err(failed)?;
    let by_server = reported
        .iter()
        .any(|fact| matches!(fact.state, State::Pushed | State::Drained));
    if known.is_none() && !by_server && !was_leased(c, &signal, &session)? {
        return Ok(Vec::new());
    }
    let mut receipt = known.unwrap_or_default();
    let mut news = Vec::new();
    for fact in reported {
        if let Some(at) = receipt.note(fact.state, fact.at) {
            news.push(Report {
                signal_id,
                session_id,
                state: fact.state,
                strategy: fact.strategy,
                via: fact.via,
                hop_us: fact.hop_us,
                at,
            });
        }
    }
    if news.is_empty() {
        return Ok(news);
    }
    // Only what is news says how: a rung's bell and the one that was rendered may differ.
    let new = |state: State| news.iter().find(|r| r.state == state);
    let (rung, rendered) = (new(State::Rung), new(State::Rendered));
    // Who pushes is worth a word only where another server may.
    let pushed = new(State::Pushed).filter(|_| c.either(false, true));
    c.prepare_cached(
        "insert into deliveries (signal_id, session_id, pushed_at, received_at, rung_at,
            rendered_at, drained_at, strategy, rendered_by, via, pushed_by, hop_us)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         on conflict (signal_id, session_id) do update set
            pushed_at = coalesce(deliveries.pushed_at, ?3),
            received_at = coalesce(deliveries.received_at, ?4),
            rung_at = coalesce(deliveries.rung_at, ?5),
            rendered_at = coalesce(deliveries.rendered_at, ?6),
            drained_at = coalesce(deliveries.drained_at, ?7), strategy = coalesce(deliveries.strategy, ?8),
            rendered_by = coalesce(deliveries.rendered_by, ?9),
            via = coalesce(deliveries.via, ?10),
            pushed_by = coalesce(deliveries.pushed_by, ?11),
            hop_us = coalesce(deliveries.hop_us, ?12)",
    )
    .and_then(|mut s| {
        s.execute(params![
            signal,
            session,
            receipt.pushed.map(|m| m.0),
            receipt.received.map(|m| m.0),
            receipt.rung.map(|m| m.0),
            receipt.rendered.map(|m| m.0),
            receipt.drained.map(|m| m.0),
            rung.and_then(|r| r.strategy).map(Strategy::name),
            rendered.and_then(|r| r.strategy).map(Strategy::name),
            rendered.and_then(|r| r.via).map(|id| id.to_string()),
            pushed.map(|_| config::server_name()),
            pushed.and_then(|r| r.hop_us),
        ])
    })
    .map_err(failed)?;
    Ok(news)
}

/// Writes what was told of a bell: once, of a signal that the session was sent, and not for ever.
fn write_bell(c: &Connection, bell: &BellReport) -> Result<()> {
    c.prepare_cached(
        "insert into signal_trace_events (signal_id, layer, state, observed_at, session_id, detail)
         select ?1, ?2, ?3, ?4, ?5, ?6
         where exists (select 1 from deliveries where signal_id = ?1 and session_id = ?5)
            and not exists (select 1 from signal_trace_events where signal_id = ?1
                and session_id = ?5 and state = ?3 and detail is not distinct from ?6)
            and ?7 > (select count(*) from signal_trace_events
                where signal_id = ?1 and session_id = ?5)",
    )
    .and_then(|mut s| {
        s.execute(params![
            bell.signal_id.to_string(),
            Layer::ChannelNotification.name(),
            bell.note.name(),
            bell.at.0,
            bell.session_id.to_string(),
            bell.detail,
            BELL_NOTES_MAX as i64,
        ])
    })
    .map(|_| ())
    .map_err(failed)
}

fn was_leased(c: &Connection, signal: &str, session: &str) -> Result<bool> {
    c.prepare_cached(
        "select exists (select 1 from signal_queue
         where id = ?1 and (leased_to = ?2 or drained_by = ?2))",
    )
    .and_then(|mut s| s.query_row(params![signal, session], |r| r.get(0)))
    .map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_disk_refused_is_tried_again_and_what_is_wrong_in_itself_is_not() {
        let full = || Err(StoreError::Unwritable("full".into()));
        let wrong = || Err(StoreError::Failed("no such signal".into()));
        let riding = Riding::default();
        for (written, committed, settled) in [
            (Ok(()), true, true),
            (Ok(()), false, false),
            (full(), true, false),
            (wrong(), true, true),
            (wrong(), false, true),
        ] {
            let told = format!("{written:?}, committed: {committed}");
            let taken = riding.take().tried(written);
            assert_eq!(taken.is_settled(committed), settled, "{told}");
        }
    }

    #[test]
    fn what_is_kept_leaves_room_for_what_is_new() {
        let riding = Riding::default();
        for n in 0..RIDING_FACTS_MAX as u128 {
            let signal = Uuid::from_u128(n);
            let mut waiting = riding.waiting();
            waiting.add(signal, signal, Fact::new(State::Pushed, Moment(1)));
        }
        let taken = riding.take();
        riding.keep(Some(taken));
        assert_eq!(riding.waiting().facts.len(), KEPT_FACTS_MAX);
        assert!(!riding.is_due(), "a full disk is not asked all the time");
    }
}
