//! Which inboxes are known to be empty, so that most verbs need not ask the database.
//!
//! A cache that may be thrown away: an inbox that is not here is asked. It is written on the
//! writer's thread alone, in commit order, so a send is never hidden by an older look.

use prism_core::Moment;
use prism_core::limits::LEASE_AHEAD_US;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Until something is sent there.
const FOR_GOOD: Moment = Moment(i64::MAX);

#[derive(Default)]
pub struct Inboxes {
    /// Until when a drain finds nothing: the first lease that runs out, or for good.
    quiet_until: Mutex<HashMap<Uuid, Moment>>,
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
        self.quiet().remove(&persona);
    }

    /// Rows moved between inboxes: every one of them is asked again.
    pub fn forget(&self) {
        self.quiet().clear();
    }
}
