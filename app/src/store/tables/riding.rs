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
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use uuid::Uuid;

/// How long what nobody waits for may ride before it is committed on its own.
pub const RIDE: Duration = Duration::from_millis(20);
/// Deliveries whose facts are kept when they cannot be written: there stays room for new ones.
const KEPT_FACTS_MAX: usize = RIDING_FACTS_MAX / 2;
/// How long a report waits for its push, which is noted beside it or at another server, until it is looked at again.
const SECOND_LOOK: Duration = Duration::from_millis(250);
/// Deliveries of which reports wait for their push; more are not waited for.
const STRANGERS_MAX: usize = RIDING_FACTS_MAX / 8;
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
    /// Reports whose push nobody knew when they were written: who writes the one may be quicker than who notes the
    /// other. They are looked at once more.
    strangers: HashMap<(Uuid, Uuid), Vec<Fact>>,
    look_again_at: Option<Instant>,
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
    /// Of these there was a look before: who is a stranger now stays one.
    looked_at: HashSet<(Uuid, Uuid)>,
    strangers: Vec<(Uuid, Uuid)>,
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

    /// Notes a push. Where one thread writes everything, that is before any receipt of it can be written; elsewhere a
    /// receipt may have come before it.
    pub fn pushed(&self, signal_id: Uuid, expected: PublishPath, pushed: &Pushed) {
        if pushed.took.is_empty() && pushed.path == expected {
            return;
        }
        let mut waiting = self.waiting();
        for session in &pushed.took {
            waiting.add(signal_id, *session, Fact::new(State::Pushed, pushed.at));
            waiting.is_known((signal_id, *session));
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
        let leaves_at = match (waiting.since, waiting.facts.len() >= RIDING_FACTS_MAX / 2) {
            (Some(since), true) => Some(since),
            (since, _) => since.map(|at| at + RIDE),
        };
        leaves_at.into_iter().chain(waiting.look_again_at).min()
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
        let mut waiting = self.waiting();
        let mut taken = std::mem::replace(&mut *waiting, on_its_way);
        let mut looked_at = HashSet::new();
        if taken.look_again_at.is_some_and(|at| at <= Instant::now()) {
            looked_at.extend(taken.strangers.keys().copied());
            looked_at.iter().for_each(|key| taken.is_known(*key));
        } else {
            waiting.strangers = taken.strangers;
            waiting.look_again_at = taken.look_again_at;
        }
        self.room.notify_waiters();
        Taken {
            facts: taken.facts,
            looked_at,
            strangers: Vec::new(),
            paths: taken.paths,
            bells: taken.bells,
            written: Ok(()),
        }
    }

    /// Keeps what was reported of a push that nobody knows yet, for one more look.
    pub fn keep_strangers(&self, taken: Taken) {
        let Taken {
            mut facts,
            looked_at,
            strangers,
            ..
        } = taken;
        let mut waiting = self.waiting();
        for key in strangers {
            let Some(facts) = facts.remove(&key).filter(|_| !looked_at.contains(&key)) else {
                continue;
            };
            if let Some(newer) = waiting.facts.get_mut(&key) {
                let newer = std::mem::replace(newer, facts);
                newer
                    .into_iter()
                    .for_each(|fact| waiting.add(key.0, key.1, fact));
            } else if waiting.strangers.len() < STRANGERS_MAX {
                waiting.strangers.insert(key, facts);
                let look_at = Instant::now() + SECOND_LOOK;
                waiting.look_again_at.get_or_insert(look_at);
            }
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
    /// Notes what came of writing it, and of whom no push was known.
    pub fn tried(mut self, written: Result<Vec<(Uuid, Uuid)>>) -> Self {
        if let Err(error) = &written {
            tracing::warn!(%error, "Could not write receipts");
        }
        self.written = written.map(|strangers| self.strangers = strangers);
        self
    }

    /// Whether it is on disk or never will be: what the disk refused, or a database
    /// that was away, may be taken later; what is wrong in itself would only hold up the rest.
    pub fn is_settled(&self, committed: bool) -> bool {
        match &self.written {
            Ok(()) => committed,
            Err(
                StoreError::Unwritable(_)
                | StoreError::Denied(_)
                | StoreError::Again(_)
                | StoreError::Changed(_),
            ) => false,
            Err(_) => true,
        }
    }

    /// The signals of which something is told.
    pub fn signals(&self) -> impl Iterator<Item = Uuid> {
        self.facts.keys().map(|(signal, _)| *signal)
    }

    /// Writes it, and says of which deliveries no push is known.
    pub fn write(&self, c: &Connection) -> Result<Vec<(Uuid, Uuid)>> {
        for (signal_id, path) in &self.paths {
            c.prepare_cached("update signal_queue set publish_path = ? where id = ?")
                .and_then(|mut s| s.execute(params![path.name(), signal_id.to_string()]))
                .map_err(failed)?;
        }
        let (mut news, mut strangers) = (Vec::new(), Vec::new());
        // In one order, so that two who write the same rows do not wait for each other.
        let mut facts: Vec<_> = self.facts.iter().collect();
        facts.sort_unstable_by_key(|(key, _)| **key);
        for (key, facts) in facts {
            match write(c, key.0, key.1, facts)? {
                Some(written) => news.extend(written),
                None => strangers.push(*key),
            }
        }
        proven::prove(c, &news)?;
        self.bells.iter().try_for_each(|bell| write_bell(c, bell))?;
        Ok(strangers)
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

    /// What was reported before its push was known belongs to it.
    fn is_known(&mut self, key: (Uuid, Uuid)) {
        for fact in self.strangers.remove(&key).unwrap_or_default() {
            self.add(key.0, key.1, fact);
        }
        if self.strangers.is_empty() {
            self.look_again_at = None;
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
/// signal was pushed or leased to: none of another.
pub fn write(
    c: &Connection,
    signal_id: Uuid,
    session_id: Uuid,
    reported: &[Fact],
) -> Result<Option<Vec<Report>>> {
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
        return Ok(None);
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
        return Ok(Some(news));
    }
    // Only what is news says how: a rung's bell and the one that was rendered may differ.
    let new = |state: State| news.iter().find(|r| r.state == state);
    let (rung, rendered) = (new(State::Rung), new(State::Rendered));
    // Who pushes is worth a word only where another server may.
    let pushed = new(State::Pushed).filter(|_| c.either(false, true));
    // Of a signal or a session that is gone, lost in a failover for instance, there is nothing to say, and what is
    // written along with it stands.
    let written = c.prepare_cached(
        "insert into deliveries (signal_id, session_id, pushed_at, received_at, rung_at,
            rendered_at, drained_at, strategy, rendered_by, via, pushed_by, hop_us)
         select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12
         where exists (select 1 from signal_queue where id = ?1)
            and exists (select 1 from sessions where id = ?2)
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
    });
    match written.map_err(failed)? {
        0 => Ok(Some(Vec::new())),
        _ => Ok(Some(news)),
    }
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
            (Ok(Vec::new()), true, true),
            (Ok(Vec::new()), false, false),
            (full(), true, false),
            (wrong(), true, true),
            (wrong(), false, true),
        ] {
            let told = format!("{written:?}, committed: {committed}");
            let taken = riding.take().tried(written);
            assert_eq!(taken.is_settled(committed), settled, "{told}");
        }
    }

    /// Writes what rides into a store that knows of no signals and sessions.
    fn write_all(riding: &Riding, c: &Connection) {
        let taken = riding.take();
        let written = taken.write(c);
        assert!(written.is_ok(), "{written:?}");
        riding.keep_strangers(taken.tried(written));
        riding.arrived();
    }

    fn store() -> Connection {
        let mut c = Connection::open_in_memory().unwrap();
        super::super::migrate::migrate(&mut c).unwrap();
        c.execute_batch("pragma foreign_keys = off").unwrap();
        // What rows refer to, without all that they hold.
        c.execute_batch(
            "create temp table signal_queue as select * from main.signal_queue;
             create temp table sessions as select * from main.sessions;
             insert into signal_queue (id) values ('00000000-0000-0000-0000-000000000001');
             insert into sessions (id) values ('00000000-0000-0000-0000-000000000002')",
        )
        .unwrap();
        c
    }

    #[test]
    fn a_receipt_of_a_signal_that_is_gone_takes_no_other_along() {
        let (c, riding) = (store(), Riding::default());
        let (gone, signal, session) = (Uuid::nil(), Uuid::from_u128(1), Uuid::from_u128(2));
        for signal in [gone, signal] {
            let pushed = Fact::new(State::Pushed, Moment(1));
            let received = Fact::new(State::Received, Moment(2));
            riding.waiting().add(signal, session, pushed);
            riding.waiting().add(signal, session, received);
        }
        write_all(&riding, &c);
        assert_eq!(known(&c), Some((1, 2)));
        let rows = "select count(*) from deliveries";
        let rows: i64 = c.query_row(rows, [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 1, "none of the one that is gone");
    }

    fn known(c: &Connection) -> Option<(i64, i64)> {
        let times = "select pushed_at, received_at from deliveries";
        c.query_row(times, [], |r| Ok((r.get(0)?, r.get(1)?)))
            .optional()
            .unwrap()
    }

    #[test]
    fn a_receipt_that_is_written_before_its_push_is_noted_counts_all_the_same() {
        let (c, riding) = (store(), Riding::default());
        let (signal, session) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let received = Fact::new(State::Received, Moment(2));
        riding.waiting().add(signal, session, received);
        write_all(&riding, &c);
        assert_eq!(known(&c), None);
        let pushed = Pushed {
            at: Moment(1),
            took: vec![session],
            reading: Vec::new(),
            path: PublishPath::PushedToWs,
        };
        riding.pushed(signal, PublishPath::PushedToWs, &pushed);
        write_all(&riding, &c);
        assert_eq!(known(&c), Some((1, 2)));
        assert!(riding.due_at().is_none());
    }

    #[test]
    fn a_report_of_a_push_that_nobody_knows_is_looked_at_once_more_and_then_forgotten() {
        let (signal, session) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let received = Fact::new(State::Received, Moment(2));
        for pushed_elsewhere in [true, false] {
            let (c, riding) = (store(), Riding::default());
            riding.waiting().add(signal, session, received);
            write_all(&riding, &c);
            assert!(riding.is_settled() && riding.due_at().is_some());
            if pushed_elsewhere {
                // By another server, into the rows alone.
                let pushed = [Fact::new(State::Pushed, Moment(1))];
                write(&c, signal, session, &pushed).unwrap();
            }
            // Not before its time, whoever else wants something written.
            write_all(&riding, &c);
            assert_eq!(riding.waiting().strangers.len(), 1);
            riding.waiting().look_again_at = Some(Instant::now());
            write_all(&riding, &c);
            assert_eq!(known(&c), pushed_elsewhere.then_some((1, 2)));
            assert!(riding.due_at().is_none() && riding.waiting().strangers.is_empty());
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
