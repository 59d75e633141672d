//! The only reader of the clock, and the only maker of random ids.

#![expect(
    clippy::disallowed_methods,
    reason = "the door to the clock and to chance"
)]

use prism_core::Moment;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// How far the clock that this process goes by is ahead of its machine's.
static AHEAD_US: AtomicI64 = AtomicI64::new(0);

pub fn now() -> Moment {
    let ahead = AHEAD_US.load(Ordering::Relaxed);
    of_machine().plus_us(ahead + moved_us())
}

/// What the machine itself says.
pub fn of_machine() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment(since.as_micros() as i64 + crate::config::clock_off_us())
}

/// Goes by the clock of the database from now on, as all servers on it do: it was found to be so far ahead of
/// the machine's by a question that took so long.
pub fn follow(measured_us: i64, took_us: i64) {
    let known = AHEAD_US.load(Ordering::Relaxed);
    let ahead = prism_core::database::ahead(known, measured_us, took_us);
    if ahead != known {
        tracing::info!(ahead_ms = ahead / 1000, "The database's clock is gone by");
        AHEAD_US.store(ahead, Ordering::Relaxed);
    }
}

/// How far a test has moved the clock of this process, in microseconds. A file says it, so that
/// server and shims move together; only debug builds look.
fn moved_us() -> i64 {
    let Some(file) = crate::config::clock_file() else {
        return 0;
    };
    let said = std::fs::read_to_string(file).unwrap_or_default();
    said.trim().parse().unwrap_or(0)
}

pub fn new_id() -> Uuid {
    Uuid::new_v4()
}

/// A fresh key: `prk_` and 192 random bits.
pub fn new_key() -> anyhow::Result<String> {
    let mut bytes = [0u8; 24];
    getrandom::fill(&mut bytes)
        .map_err(|e| anyhow::anyhow!("the system gave no random bytes: {e}"))?;
    Ok(format!(
        "prk_{}",
        bytes.iter().map(|b| format!("{b:02x}")).collect::<String>()
    ))
}
