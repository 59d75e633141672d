//! Whose question the worker gets next: one of each asker in turn, and of each the one that waits
//! longest.
//!
//! Somebody who asks two hundred things at once waits for them; somebody else's one question does
//! not. Who gives up waiting is gone from the row, and costs the worker nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// Questions that the worker has at once: one that it works on, and one that it finds when it is
/// done.
const IN_HAND: usize = 2;
/// Questions that one asker may have waiting.
const WAITING_MAX: usize = 64;

/// A row of askers.
#[derive(Clone)]
pub struct Turns(Arc<Mutex<Row>>);

struct Row {
    free: usize,
    askers: VecDeque<Asker>,
}

struct Asker {
    name: String,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// The right to ask one question; its end is the next one's.
pub struct Turn(Option<Turns>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Row {
            free: IN_HAND,
            askers: VecDeque::new(),
        })))
    }
}

impl Turns {
    fn row(&self) -> MutexGuard<'_, Row> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for this asker's turn; none when too many of its questions wait already.
    pub async fn take(&self, name: &str) -> Option<Turn> {
        let turn = {
            let mut row = self.row();
            if row.free > 0 {
                row.free -= 1;
                return Some(Turn(Some(self.clone())));
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

    /// Hands a turn on to whoever is next and still there.
    fn pass(&self) {
        let mut turn = Turn(Some(self.clone()));
        loop {
            let mut row = self.row();
            let Some(mut asker) = row.askers.pop_front() else {
                row.free += 1;
                // There is nobody to hand it to.
                turn.0 = None;
                return;
            };
            let next = asker.waiting.pop_front();
            if !asker.waiting.is_empty() {
                row.askers.push_back(asker);
            }
            drop(row);
            if let Some(next) = next {
                match next.send(turn) {
                    Ok(()) => return,
                    // It has given up.
                    Err(back) => turn = back,
                }
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.pass();
        }
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
        let held: Vec<_> = vec![turns.take("often").await, turns.take("often").await];
        let mut often = Vec::new();
        for _ in 0..20 {
            often.push(waits(&turns, "often").await);
        }
        let mut once = waits(&turns, "once").await;
        let mut held = held.into_iter();
        drop(held.next());
        assert!(matches!(poll!(often[0].as_mut()), Poll::Ready(Some(_))));
        assert!(matches!(poll!(once.as_mut()), Poll::Ready(Some(_))));
    }

    #[tokio::test]
    async fn who_gave_up_is_passed_over() {
        let turns = Turns::default();
        let held = [turns.take("a").await, turns.take("a").await];
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
        let _held = [turns.take("a").await, turns.take("a").await];
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
