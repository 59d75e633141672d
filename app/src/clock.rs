//! The only reader of the clock, and the only maker of random ids.

#![expect(
    clippy::disallowed_methods,
    reason = "the door to the clock and to chance"
)]

use prism_core::Moment;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use uuid::Uuid;

/// What time it was by the database's clock when this process began; nothing while it goes by its machine's.
static BEGAN_US: AtomicI64 = AtomicI64::new(NOT_FOLLOWED);
const NOT_FOLLOWED: i64 = i64::MIN;
/// Counts on from there, whatever the machine's clock is set to meanwhile.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

pub fn now() -> Moment {
    let began_us = BEGAN_US.load(Ordering::Relaxed);
    let now = match began_us {
        NOT_FOLLOWED => of_machine(),
        began_us => Moment(began_us).plus_us(since_us()),
    };
    now.plus_us(moved_us())
}

fn since_us() -> i64 {
    BEGAN.elapsed().as_micros() as i64
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
    let known = BEGAN_US.load(Ordering::Relaxed);
    let began = followed(known, since_us(), of_machine(), measured_us, took_us);
    if began != known {
        let ahead_ms = measured_us / 1000;
        tracing::info!(ahead_ms, "The database's clock is gone by");
        BEGAN_US.store(began, Ordering::Relaxed);
    }
}

/// What time it was when the process began, by what was known of it and what was measured after so long.
fn followed(known_us: i64, since_us: i64, machine: Moment, measured_us: i64, took_us: i64) -> i64 {
    // How far ahead of the machine's clock it is now that it is gone by.
    let ahead = match known_us {
        NOT_FOLLOWED => 0,
        known_us => known_us + since_us - machine.0,
    };
    let next = prism_core::database::ahead(ahead, measured_us, took_us);
    match known_us {
        NOT_FOLLOWED => machine.0 + next - since_us,
        known_us => known_us + next - ahead,
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_machine_whose_clock_is_set_goes_on_by_the_databases() {
        let machine = Moment(1_000 * SECOND);
        // Nearly alike: the machine's own is as good.
        let began = followed(NOT_FOLLOWED, 2 * SECOND, machine, 1_000, 500);
        assert_eq!(began, machine.0 - 2 * SECOND);
        // Set back by an hour: what was gone by counts on, and is what the database says.
        let set_back = machine.plus_s(10 - 3600);
        let again = followed(began, 12 * SECOND, set_back, 3600 * SECOND, 500);
        assert_eq!(again, began);
        // The database's own clock was set.
        let set = followed(began, 12 * SECOND, machine.plus_s(10), 60 * SECOND, 500);
        assert_eq!(set, began + 60 * SECOND);
    }

    #[test]
    fn a_machine_that_is_off_goes_by_the_database_from_its_first_answer() {
        let machine = Moment(5_000 * SECOND);
        let began = followed(NOT_FOLLOWED, SECOND, machine, -3600 * SECOND, 500);
        assert_eq!(began + SECOND, machine.0 - 3600 * SECOND);
    }
}
