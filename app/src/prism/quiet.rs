//! A Prism whom nobody asks anything: it looks rarely, until somebody comes or says something.
//!
//! A server may serve many tenants, of whom few are at work. What rows say is looked at by whoever comes to a quiet one,
//! before they are answered.

use super::Prism;
use crate::clock;
use crate::config::failpoint;
use prism_core::Problem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long nobody has asked or said anything, with no socket and no page open, until it is quiet.
const QUIET_AFTER: Duration = Duration::from_secs(60);
/// The same in a test that waits for it.
const QUIET_SOON: Duration = Duration::from_millis(500);
/// How often a quiet one looks what is to be done.
const QUIET_LOOK: Duration = Duration::from_secs(30);

/// When something last happened.
pub(super) struct Quiet {
    began: Instant,
    stirred_ms: AtomicU64,
    stirring: Notify,
}

impl Default for Quiet {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            stirred_ms: AtomicU64::new(0),
            stirring: Notify::new(),
        }
    }
}

impl Quiet {
    fn after() -> Duration {
        match failpoint("quiet.soon") {
            true => QUIET_SOON,
            false => QUIET_AFTER,
        }
    }

    fn lasts(&self) -> Duration {
        let stirred = Duration::from_millis(self.stirred_ms.load(Ordering::Relaxed));
        self.began.elapsed().saturating_sub(stirred)
    }

    /// Something happens.
    pub(super) fn ends(&self) {
        let was_quiet = self.lasts() >= Self::after();
        let now = self.began.elapsed().as_millis() as u64;
        self.stirred_ms.store(now, Ordering::Relaxed);
        if was_quiet {
            self.stirring.notify_waiters();
        }
    }
}

impl Prism {
    pub(super) fn is_quiet(&self) -> bool {
        self.store.is_shared()
            && self.quiet.lasts() >= Quiet::after()
            && self.hub.sockets() == 0
            && self.hub.live().pages() == 0
    }

    /// Somebody has come. What others have changed while it was quiet is seen before they are answered.
    pub(super) async fn is_asked(&self) -> Result<(), Problem> {
        // Whoever else comes meanwhile waits for a look as well.
        if self.is_quiet() {
            self.look_again(Instant::now(), Duration::ZERO).await?;
        }
        self.quiet.ends();
        Ok(())
    }

    /// Waits for the next round of what is done again and again.
    pub(super) async fn pause(&self, period: Duration) {
        self.rest(period, async || QUIET_LOOK).await;
    }

    /// The same where something may be due before a quiet one looks again.
    pub(super) async fn pause_until_due(&self, period: Duration) {
        let until_due = async || match self.store.next_due().await {
            Ok(Some(due)) => {
                let us = due.since_us(clock::now()).max(0) as u64;
                QUIET_LOOK.min(Duration::from_micros(us))
            }
            Ok(None) | Err(_) => QUIET_LOOK,
        };
        self.rest(period, until_due).await;
    }

    async fn rest(&self, period: Duration, quiet: impl AsyncFnOnce() -> Duration) {
        let mut stirring = std::pin::pin!(self.quiet.stirring.notified());
        stirring.as_mut().enable();
        tokio::time::sleep(period).await;
        if self.is_quiet() {
            let rest = quiet().await;
            tokio::select! {
                () = stirring => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }
}
