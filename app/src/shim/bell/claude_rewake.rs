//! Claude Code's `asyncRewake` hook: a process of ours waits beside the idle session, and wakes it
//! with the sentence when a bell is to be rung. One at a time.

use super::HANDOVER;
use prism_core::bell::{Handover, Notice};
use prism_core::limits::BELL_HANDOVER_S;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

/// The waiter beside this session, if there is one.
#[derive(Default)]
pub struct Waiter {
    waits: Mutex<Option<oneshot::Sender<Notice>>>,
    /// A bell that was handed to a waiter, until it says that it goes to wake the host.
    handed: Mutex<Option<(Uuid, oneshot::Sender<()>)>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Waiter {
    /// A waiter came; it is told of the next bell, unless another waits already.
    pub fn came(&self) -> Option<oneshot::Receiver<Notice>> {
        let mut waits = lock(&self.waits);
        if waits.as_ref().is_some_and(|waiter| !waiter.is_closed()) {
            return None;
        }
        let (tell, told) = oneshot::channel();
        *waits = Some(tell);
        Some(told)
    }

    pub fn is_there(&self) -> bool {
        let waits = lock(&self.waits);
        waits.as_ref().is_some_and(|waiter| !waiter.is_closed())
    }

    /// Handed over is what the waiter says it goes to wake the host with; whether the host then
    /// takes it, its prompt hook tells.
    pub async fn ring(&self, notice: &Notice) -> Handover {
        let nobody = || Handover::Failed("no hook waits beside the session".into());
        let Some(waiter) = lock(&self.waits).take() else {
            return nobody();
        };
        let (goes, going) = oneshot::channel();
        *lock(&self.handed) = Some((notice.signal_id, goes));
        if waiter.send(notice.clone()).is_err() {
            return nobody();
        }
        let went = timeout(HANDOVER, going).await;
        lock(&self.handed).take();
        match went {
            Ok(Ok(())) => Handover::Handed,
            _ => Handover::Failed(format!(
                "the hook that waited did not take it within {BELL_HANDOVER_S} s"
            )),
        }
    }

    /// The waiter goes to wake its host with this bell; false when it came too late.
    pub fn goes(&self, signal_id: Uuid) -> bool {
        let handed = lock(&self.handed).take_if(|(id, _)| *id == signal_id);
        handed.is_some_and(|(_, goes)| goes.send(()).is_ok())
    }
}
