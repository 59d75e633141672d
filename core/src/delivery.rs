//! How a signal reaches a socket and leaves the queue, without any I/O.
//!
//! The store is the truth; a socket is a doorbell. An [`Outbox`] is the small
//! state machine between them: it sends what it is offered while it keeps up,
//! and reads from the store by cursor when it does not. Nothing is dropped.

use crate::envelope::Envelope;
use crate::limits::LEASE_AHEAD_US;
use crate::moment::Moment;
use serde_json::{Map, Value};
use std::collections::{HashSet, VecDeque};
use uuid::Uuid;

/// What became of an envelope offered to a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// It will be written next in turn.
    Queued,
    /// The socket is behind; the store will be read for it.
    Behind,
    /// It was already sent or queued.
    Known,
}

/// What a socket's writer should do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<T> {
    Send(T),
    /// Read rows after this `seq` from the store and hand them to [`Outbox::replayed`].
    Replay {
        after: i64,
    },
    Idle,
}

/// What one socket was sent of one inbox, and what it is owed.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    queue: VecDeque<(i64, T)>,
    queued_through: i64,
    /// The highest place that was heard of since the store was last asked. A word that no row bears out is
    /// forgotten with the next look.
    heard: i64,
    behind: bool,
    capacity: usize,
}

impl<T> Outbox<T> {
    /// A new socket knows nothing of the inbox after `seen` and starts with a replay.
    pub fn new(seen: i64, capacity: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            queued_through: seen,
            heard: 0,
            behind: true,
            capacity,
        }
    }

    /// Says where the first replay begins; meant for a socket that was sent nothing yet.
    pub fn resume_after(&mut self, seen: i64) {
        self.queued_through = self.queued_through.max(seen);
    }

    /// Takes an envelope that was just committed.
    ///
    /// A gap in `seq` means that something was missed, so the store is asked.
    pub fn offer(&mut self, seq: i64, item: T) -> Offer {
        if seq <= self.queued_through {
            return Offer::Known;
        }
        self.heard = self.heard.max(seq);
        if self.behind || seq != self.queued_through + 1 || self.queue.len() >= self.capacity {
            self.behind = true;
            return Offer::Behind;
        }
        self.queued_through = seq;
        self.queue.push_back((seq, item));
        Offer::Queued
    }

    /// Passes over a row that is for another session, so that it leaves no gap here.
    pub fn skip(&mut self, seq: i64) {
        if !self.behind && seq == self.queued_through + 1 {
            self.queued_through = seq;
        }
    }

    /// Tells the outbox how far the inbox reaches, as a sweep found it or somebody says.
    pub fn heard_of(&mut self, head: i64) {
        if head > self.queued_through {
            self.heard = self.heard.max(head);
            self.behind = true;
        }
    }

    /// Takes a batch read from the store: rows after the asked `seq`, and how
    /// far the inbox reached in the same read (`None` when rows were left out).
    pub fn replayed(&mut self, rows: Vec<(i64, T)>, head: Option<i64>) {
        for (seq, item) in rows {
            if seq > self.queued_through {
                self.queued_through = seq;
                self.queue.push_back((seq, item));
            }
        }
        if let Some(head) = head {
            self.queued_through = self.queued_through.max(head);
            self.behind = self.heard > self.queued_through;
        }
    }

    /// How far this socket has come: rows that are read from now on reach at least as far, or the inbox is an
    /// older copy of the one that it was sent.
    pub fn reach(&self) -> i64 {
        self.queued_through
    }

    /// Says what to do next; the queue always goes before another replay.
    #[expect(
        clippy::should_implement_trait,
        reason = "an outbox is never exhausted, only idle"
    )]
    pub fn next(&mut self) -> Next<T> {
        if let Some((_, item)) = self.queue.pop_front() {
            return Next::Send(item);
        }
        if self.behind {
            self.heard = 0;
            return Next::Replay {
                after: self.queued_through,
            };
        }
        Next::Idle
    }
}

/// A drain that waits for its shim: the rows belong to this lease until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub lease_id: Uuid,
    pub until: Moment,
}

/// Says whether a waiting row may be handed out now.
pub fn may_lease(standing: Option<Lease>, now: Moment) -> bool {
    standing.is_none_or(|lease| lease.until <= now || lease.until.since_us(now) > LEASE_AHEAD_US)
}

/// What a verb's answer drained, taken out of the answer where the host must not see it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Drained {
    pub lease_id: Option<Uuid>,
    pub envelopes: Vec<Envelope>,
}

/// Merges what a draining verb brought into what the host is shown: the
/// server's list decides, each signal stands there once, and only those
/// addressed to this identity. What this version cannot read is shown as it
/// came: its lease is confirmed with the others, so it must reach the host.
///
/// The one place where piggybacked signals meet an answer.
pub fn merge_drained(answer: &mut Map<String, Value>, identity: &str) -> Drained {
    let lease_id = answer
        .remove("lease_id")
        .and_then(|v| v.as_str().and_then(|s| s.parse().ok()));
    let Some(Value::Array(listed)) = answer.get_mut("signals") else {
        return Drained {
            lease_id,
            envelopes: Vec::new(),
        };
    };
    let mut seen = HashSet::new();
    let mut envelopes = Vec::new();
    listed.retain(|value| {
        let Ok(envelope) = serde_json::from_value::<Envelope>(value.clone()) else {
            return true;
        };
        let mine = envelope.to_identity.eq_ignore_ascii_case(identity) && !envelope.is_system();
        let fresh = mine && seen.insert(envelope.signal_id);
        if fresh {
            envelopes.push(envelope);
        }
        fresh
    });
    Drained {
        lease_id,
        envelopes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_socket_that_keeps_up_gets_each_envelope_in_order_from_memory() {
        let mut outbox = Outbox::new(0, 4);
        assert_eq!(outbox.next(), Next::Replay { after: 0 });
        outbox.replayed(vec![(1, "a")], Some(1));
        assert_eq!(outbox.offer(2, "b"), Offer::Queued);
        assert_eq!(outbox.offer(2, "b"), Offer::Known);
        assert_eq!(
            (outbox.next(), outbox.next(), outbox.next()),
            (Next::Send("a"), Next::Send("b"), Next::Idle)
        );
    }

    #[test]
    fn a_slow_reader_is_served_from_the_store_and_never_dropped() {
        let mut outbox = Outbox::new(0, 2);
        outbox.replayed(vec![], Some(0));
        for seq in 1..=5 {
            outbox.offer(seq, seq);
        }
        assert_eq!(
            (outbox.next(), outbox.next()),
            (Next::Send(1), Next::Send(2))
        );
        assert_eq!(outbox.next(), Next::Replay { after: 2 });
        outbox.replayed(vec![(3, 3), (4, 4), (5, 5)], Some(5));
        assert_eq!(
            (outbox.next(), outbox.next(), outbox.next(), outbox.next()),
            (Next::Send(3), Next::Send(4), Next::Send(5), Next::Idle)
        );
    }

    #[test]
    fn what_is_committed_during_a_replay_is_read_in_the_next_one() {
        let mut outbox = Outbox::new(0, 4);
        assert_eq!(outbox.next(), Next::Replay { after: 0 });
        assert_eq!(outbox.offer(1, "late"), Offer::Behind);
        outbox.replayed(vec![], Some(0));
        assert_eq!(outbox.next(), Next::Replay { after: 0 });
        outbox.replayed(vec![(1, "late")], Some(1));
        assert_eq!(
            (outbox.next(), outbox.next()),
            (Next::Send("late"), Next::Idle)
        );
    }

    #[test]
    fn a_sweep_that_finds_more_turns_a_dead_bus_into_polling() {
        let mut outbox: Outbox<i64> = Outbox::new(0, 4);
        outbox.replayed(vec![], Some(0));
        assert_eq!(outbox.next(), Next::Idle);
        outbox.heard_of(1);
        assert_eq!(outbox.next(), Next::Replay { after: 0 });
    }

    #[test]
    fn a_word_that_no_row_bears_out_is_forgotten_after_one_look() {
        let mut outbox: Outbox<i64> = Outbox::new(0, 4);
        outbox.replayed(vec![], Some(0));
        outbox.heard_of(i64::MAX);
        assert_eq!(outbox.next(), Next::Replay { after: 0 });
        outbox.replayed(vec![], Some(0));
        assert_eq!(outbox.next(), Next::Idle);
        assert_eq!(outbox.offer(1, 1), Offer::Queued);
        // One that comes during the look is looked for once more.
        outbox.heard_of(7);
        assert_eq!(outbox.next(), Next::Send(1));
        assert_eq!(outbox.next(), Next::Replay { after: 1 });
        outbox.heard_of(9);
        outbox.replayed(vec![], Some(1));
        assert_eq!(outbox.next(), Next::Replay { after: 1 });
        outbox.replayed(vec![], Some(1));
        assert_eq!((outbox.next(), outbox.reach()), (Next::Idle, 1));
    }

    #[test]
    fn a_socket_that_joins_before_its_cursor_is_known_misses_nothing() {
        let mut outbox = Outbox::new(0, 4);
        assert_eq!(outbox.offer(8, "committed meanwhile"), Offer::Behind);
        outbox.resume_after(6);
        assert_eq!(outbox.next(), Next::Replay { after: 6 });
        outbox.replayed(vec![(7, "missed"), (8, "committed meanwhile")], Some(8));
        assert_eq!(
            (outbox.next(), outbox.next(), outbox.next()),
            (
                Next::Send("missed"),
                Next::Send("committed meanwhile"),
                Next::Idle
            )
        );
    }

    #[test]
    fn a_row_for_another_session_leaves_no_gap() {
        let mut outbox = Outbox::new(0, 4);
        outbox.replayed(vec![], Some(0));
        outbox.skip(1);
        assert_eq!(
            (outbox.offer(2, "b"), outbox.next(), outbox.next()),
            (Offer::Queued, Next::Send("b"), Next::Idle)
        );
    }

    #[test]
    fn a_lease_holds_until_its_time_and_not_longer() {
        let lease = Lease {
            lease_id: Uuid::nil(),
            until: Moment(10),
        };
        assert!(may_lease(None, Moment(0)));
        assert!(!may_lease(Some(lease), Moment(9)));
        assert!(may_lease(Some(lease), Moment(10)));
        // The clock was set back since: no lease is that long.
        assert!(may_lease(Some(lease), Moment(9 - LEASE_AHEAD_US)));
        assert!(!may_lease(Some(lease), Moment(10 - LEASE_AHEAD_US)));
    }

    #[test]
    fn an_answer_shows_each_drained_signal_once_and_no_lease() {
        let id = Uuid::from_u128(7);
        let mine = json!({"signal_id": id, "signal_type": "TaskAssigned", "from_identity": "A", "to_identity": "texi"});
        let theirs = json!({"signal_id": Uuid::from_u128(8), "signal_type": "TaskAssigned", "from_identity": "A", "to_identity": "Donna"});
        let mut answer = json!({"ok": true, "lease_id": Uuid::from_u128(9), "signals": [mine, mine, theirs, "junk"]}).as_object().unwrap().clone();
        let drained = merge_drained(&mut answer, "Texi");
        assert_eq!(drained.lease_id, Some(Uuid::from_u128(9)));
        assert_eq!(
            drained
                .envelopes
                .iter()
                .map(|e| e.signal_id)
                .collect::<Vec<_>>(),
            [id]
        );
        assert_eq!(answer["signals"].as_array().unwrap().len(), 2);
        assert!(!answer.contains_key("lease_id"));
    }

    #[test]
    fn what_cannot_be_read_is_handed_to_the_host_as_it_came() {
        let newer = json!({"signal_id": "in another form", "signal_type": "TaskAssigned"});
        let mut answer = Map::new();
        answer.insert("signals".into(), json!([newer]));
        assert!(merge_drained(&mut answer, "Texi").envelopes.is_empty());
        assert_eq!(answer["signals"], json!([newer]));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Commit {
            offered: bool,
        },
        Write,
        Sweep,
        /// A word of a place that no row has.
        Forged,
        Reconnect,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => any::<bool>().prop_map(|offered| Step::Commit { offered }),
            4 => Just(Step::Write),
            1 => Just(Step::Sweep),
            1 => Just(Step::Forged),
            1 => Just(Step::Reconnect),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever is offered, lost on the bus, swept or cut: after a sweep
        /// the socket has been sent every row exactly once and in order.
        #[test]
        fn every_committed_row_reaches_the_socket_once_and_in_order(steps in steps(), capacity in 1usize..6, page in 1usize..4) {
            let (mut head, mut outbox, mut received) = (0i64, Outbox::new(0, capacity), Vec::new());
            let write = |outbox: &mut Outbox<i64>, head: i64, received: &mut Vec<i64>| match outbox.next() {
                Next::Send(seq) => { received.push(seq); true }
                Next::Replay { after } => {
                    let rows: Vec<_> = (after + 1..=head).take(page).map(|s| (s, s)).collect();
                    let whole = rows.len() < page || rows.last().is_some_and(|r| r.0 == head);
                    outbox.replayed(rows, whole.then_some(head));
                    true
                }
                Next::Idle => false,
            };
            for step in steps {
                match step {
                    Step::Commit { offered } => { head += 1; if offered { outbox.offer(head, head); } }
                    Step::Write => { write(&mut outbox, head, &mut received); }
                    Step::Sweep => outbox.heard_of(head),
                    Step::Forged => outbox.heard_of(i64::MAX),
                    // A new socket says how far the shim has got.
                    Step::Reconnect => outbox = Outbox::new(received.last().copied().unwrap_or(0), capacity),
                }
                prop_assert!(outbox.queue.len() <= capacity.max(page));
            }
            outbox.heard_of(head);
            while write(&mut outbox, head, &mut received) {}
            prop_assert_eq!(received, (1..=head).collect::<Vec<_>>());
        }
    }
}
