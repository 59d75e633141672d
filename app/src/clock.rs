//! The only reader of the clock, and the only maker of random ids.

#![expect(
    clippy::disallowed_methods,
    reason = "the door to the clock and to chance"
)]

use prism_core::Moment;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

pub fn now() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment(since.as_micros() as i64 + moved_us())
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
