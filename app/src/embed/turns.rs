//! Whose question the worker gets next: one of each asker in turn, and of each the one that waits
//! longest.
//!
//! Somebody who asks two hundred things at once waits for them; somebody else's one question does
//! not. Who gives up waiting is gone from the row, and costs the worker nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Questions that the worker has at once: one that it works on, and one that it finds when it is
/// done. They are of different askers: whoever comes waits for one question of anybody, however
/// long, not for two.
const IN_HAND: usize = 2;
/// Questions that one asker may have waiting.
const WAITING_MAX: usize = 64;

/// A row of askers.
#[derive(Clone, Default)]
pub struct Turns(Arc<Mutex<Row>>);

#[derive(Default)]
struct Row {
    /// Whose questions the worker has.
    in_hand: Vec<String>,
    askers: VecDeque<Asker>,
}

struct Asker {
    name: String,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to ask one question; its end is the next one's.
pub struct Turn {
    turns: Turns,
    name: String,
}

impl Turns {
    fn row(&self) -> MutexGuard<'_, Row> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this asker's turn; none when too many of its questions wait already.
    pub async fn take(&self, name: &str) -> Option<Turn> {
        let turn = {
            let mut row = self.row();
            if row.has_room_for(name) {
                row.in_hand.push(name.to_owned());
                return Some(self.turn_of(name));
            }
            let at = match row.askers.iter().position(|asker| asker.name == name) {
                Some(at) => at,
                None => {
                    row.askers.push_back(Asker {
                        name: name.to_owned(),
                        waiting: VecDeque::new(),
                    });
                    row.askers.len() - 1
                }
            };
            let waiting = &mut row.askers[at].waiting;
            waiting.retain(|one| !one.is_closed());
            if waiting.len() >= WAITING_MAX {
                return None;
            }
            let (sender, turn) = oneshot::channel();
            waiting.push_back(sender);
            turn
        };
        turn.await.ok()
    }

    fn turn_of(&self, name: &str) -> Turn {
        Turn {
            turns: self.clone(),
            name: name.to_owned(),
        }
    }

    /// Hands on what has become free, to whoever is next and still there.
    fn hand_on(&self) {
        loop {
            // Apart from the look at the row: who gives up just now drops the turn and comes here.
            let next = self.row().next();
            let Some((name, next)) = next else {
                return;
            };
            drop(next.send(self.turn_of(&name)));
        }
    }
}

impl Row {
    fn has_room_for(&self, name: &str) -> bool {
        self.in_hand.len() < IN_HAND && !self.in_hand.iter().any(|held| held == name)
    }

    /// The next in the row whose turn it may be.
    fn next(&mut self) -> Option<(String, oneshot::Sender<Turn>)> {
        let at = self
            .askers
            .iter()
            .position(|a| self.has_room_for(&a.name))?;
        let mut asker = self.askers.remove(at)?;
        let next = asker.waiting.pop_front()?;
        let name = asker.name.clone();
        if !asker.waiting.is_empty() {
            self.askers.push_back(asker);
        }
        self.in_hand.push(name.clone());
        Some((name, next))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut row = self.turns.row();
        if let Some(at) = row.in_hand.iter().position(|held| *held == self.name) {
            row.in_hand.remove(at);
        }
        drop(row);
        self.turns.hand_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, poll};
    use std::task::Poll;

    /// What stands in the row, and who has a turn by now.
    type Waits<'a> = std::pin::Pin<Box<dyn Future<Output = Option<Turn>> + 'a>>;

    async fn waits<'a>(turns: &'a Turns, name: &'a str) -> Waits<'a> {
        let mut one: Waits<'a> = Box::pin(turns.take(name));
        assert!(poll!(one.as_mut()).is_pending());
        one
    }

    #[tokio::test]
    async fn whoever_asks_once_waits_for_one_question_of_who_asks_often() {
        let turns = Turns::default();
        let held = turns.take("often").await;
        let mut often = Vec::new();
        for _ in 0..20 {
            often.push(waits(&turns, "often").await);
        }
        // The worker finds it when it is done with the one that it has.
        let once = turns.take("once").now_or_never().flatten();
        assert!(once.is_some());
        let mut later = waits(&turns, "later").await;
        drop(held);
        assert!(matches!(poll!(often[0].as_mut()), Poll::Ready(Some(_))));
        let Poll::Ready(Some(_later)) = poll!(later.as_mut()) else {
            panic!("it is next after one of those");
        };
        assert!(poll!(often[1].as_mut()).is_pending());
    }

    #[tokio::test]
    async fn who_gave_up_is_passed_over() {
        let turns = Turns::default();
        let held = turns.take("a").await;
        let mut waiting = Vec::new();
        for _ in 0..5 {
            waiting.push(waits(&turns, "a").await);
        }
        let mut last = waits(&turns, "a").await;
        drop(waiting);
        drop(held);
        let Poll::Ready(Some(_turn)) = poll!(last.as_mut()) else {
            panic!("the one that still waits has its turn");
        };
        assert!(turns.take("b").now_or_never().flatten().is_some());
    }

    #[tokio::test]
    async fn one_asker_fills_its_own_row_and_nobody_elses() {
        let turns = Turns::default();
        let _held = [turns.take("a").await, turns.take("z").await];
        let mut waiting = Vec::new();
        for _ in 0..WAITING_MAX {
            waiting.push(waits(&turns, "a").await);
        }
        assert!(turns.take("a").await.is_none(), "and hears it at once");
        drop(waits(&turns, "b").await);
        waiting.clear();
        drop(waits(&turns, "a").await);
    }
}
