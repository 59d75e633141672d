//! The only reader of the clock, and the only maker of random ids.

use prism_core::Moment;
use std::time::{SystemTime, UNIX_EPOCH};
use uuid::Uuid;

pub fn now() -> Moment {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Moment(since.as_micros() as i64)
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
