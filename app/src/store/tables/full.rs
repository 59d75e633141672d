//! Whether the disk under a database that servers share was full or failed, and what is said of it.

use prism_core::database::remedy;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a write that found no room shows that the next one would find none.
const LATELY: Duration = Duration::from_secs(5);
/// How often the log says that something keeps rows from being written.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// Takes a megabyte, which is given back with the transaction's end.
pub const TAKES_ROOM: &str = "create temporary table prism_room on commit drop as
    select (select string_agg(md5(n::text || m::text), '') from generate_series(1, 50) m) as room
    from generate_series(1, 640) n";

/// Takes none.
pub const TAKES_NONE: &str = "update prism_schema set version = version";

#[derive(Default)]
pub struct Full {
    refusal: Mutex<Option<Refused>>,
    /// When the log last said that a right is missing.
    denied: Mutex<Option<Instant>>,
}

struct Refused {
    last: Instant,
    said: Instant,
    why: String,
}

/// When a write was last refused for want of room, while none is known to have found some since.
#[derive(Debug, PartialEq, Eq)]
pub enum Since {
    Lately(String),
    Earlier,
}

impl Full {
    fn refusal(&self) -> std::sync::MutexGuard<'_, Option<Refused>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write found no room. Whoever asked is told each time, the log now and then.
    pub fn refused(&self, why: &str) {
        let now = Instant::now();
        let mut refusal = self.refusal();
        let said = refusal.as_ref().map(|refused| refused.said);
        let is_said = said.is_some_and(|said| now.duration_since(said) < SAID_EVERY);
        if !is_said {
            let next = remedy(why).unwrap_or("its log says more".into());
            tracing::error!(
                "The database cannot be written, and what callers send is refused: {why}; {next}"
            );
        }
        *refusal = Some(Refused {
            last: now,
            said: said.filter(|_| is_said).unwrap_or(now),
            why: why.to_owned(),
        });
    }

    /// A write lacked a right; whether it still does is seen by looking at rights.
    pub fn denied(&self, why: &str) {
        let mut denied = self.denied.lock().unwrap_or_else(PoisonError::into_inner);
        if denied.is_none_or(|said| said.elapsed() >= SAID_EVERY) {
            *denied = Some(Instant::now());
            tracing::error!(
                "What callers send is refused: {why}; `prism doctor` says what to do about it"
            );
        }
    }

    pub fn since(&self) -> Option<Since> {
        let refusal = self.refusal();
        let refused = refusal.as_ref()?;
        Some(match refused.last.elapsed() < LATELY {
            true => Since::Lately(refused.why.clone()),
            false => Since::Earlier,
        })
    }

    pub fn is_over(&self) {
        if self.refusal().take().is_some() {
            tracing::info!("The database can be written again");
        }
    }
}
