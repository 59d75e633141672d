//! Which inboxes are known to be empty, so that most verbs need not ask the database.
//!
//! A cache that may be thrown away: an inbox that is not here is asked. It is written on the
//! writer's thread alone, in commit order, so a send is never hidden by an older look.

use prism_core::Moment;
use prism_core::limits::LEASE_AHEAD_US;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Until something is sent there.
const FOR_GOOD: Moment = Moment(i64::MAX);

#[derive(Default)]
pub struct Inboxes {
    /// Until when a drain finds nothing: the first lease that runs out, or for good.
    quiet_until: Mutex<HashMap<Uuid, Moment>>,
    /// How often this server has filled inboxes, each counted with others whose ids end alike.
    fills: [AtomicU64; 32],
}

/// What somebody found in an inbox, and how often it was filled before they looked. None: nobody looked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looked(Option<(bool, u64)>);

impl Looked {
    pub const fn found(held: bool, fills: u64) -> Self {
        Self(Some((held, fills)))
    }

    /// Whether it holds something, if that is known after it was filled so often.
    pub fn holds(self, fills: u64) -> Option<bool> {
        let (held, before) = self.0?;
        (held || before == fills).then_some(held)
    }
}

impl Inboxes {
    fn quiet(&self) -> MutexGuard<'_, HashMap<Uuid, Moment>> {
        self.quiet_until
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn may_hold(&self, persona: Uuid, now: Moment) -> bool {
        // What ends later than any lease was noted before the clock was set back.
        let over = |until: Moment| {
            now >= until || until != FOR_GOOD && until.since_us(now) > LEASE_AHEAD_US
        };
        self.quiet().get(&persona).is_none_or(|until| over(*until))
    }

    /// A drain found nothing; `lease_ends` is when the first leased row may come back.
    pub fn found_empty(&self, persona: Uuid, lease_ends: Option<Moment>) {
        let until = lease_ends.unwrap_or(FOR_GOOD);
        self.quiet().insert(persona, until);
    }

    /// Something waits there now, or waits again.
    pub fn filled(&self, persona: Uuid) {
        self.fills_like(persona).fetch_add(1, Ordering::AcqRel);
        self.quiet().remove(&persona);
    }

    pub fn fills(&self, persona: Uuid) -> u64 {
        self.fills_like(persona).load(Ordering::Acquire)
    }

    fn fills_like(&self, persona: Uuid) -> &AtomicU64 {
        &self.fills[usize::from(persona.as_bytes()[15]) % self.fills.len()]
    }

    /// Rows moved between inboxes: every one of them is asked again.
    pub fn forget(&self) {
        for fills in &self.fills {
            fills.fetch_add(1, Ordering::AcqRel);
        }
        self.quiet().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_found_nothing_counts_until_the_inbox_is_filled() {
        let (inboxes, mine) = (Inboxes::default(), Uuid::from_u128(7));
        let looked = Looked::found(false, inboxes.fills(mine));
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(false));
        inboxes.filled(Uuid::from_u128(8));
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(false));
        inboxes.filled(mine);
        assert_eq!(looked.holds(inboxes.fills(mine)), None);
        let looked = Looked::found(true, inboxes.fills(mine));
        inboxes.forget();
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(true));
        let looked = Looked::found(false, inboxes.fills(mine));
        inboxes.forget();
        assert_eq!(looked.holds(inboxes.fills(mine)), None);
        assert_eq!(Looked::default().holds(inboxes.fills(mine)), None);
    }
}
