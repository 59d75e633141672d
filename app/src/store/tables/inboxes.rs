//! Which inboxes are known to be empty, so that most verbs need not ask the database.
//!
//! A cache that may be thrown away: an inbox that is not here is asked. In the embedded engine it is written on the
//! writer's thread alone, in commit order, so a send is never hidden by an older look. Where others write too nobody goes
//! by it: there only how often an inbox was filled counts.

use super::signals::FREE;
use super::{Result, Tables, failed};
use crate::store::sql::{Connection, Value};
use prism_core::Moment;
use prism_core::limits::LEASE_AHEAD_US;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
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

tokio::task_local! {
    /// The look of the verb that runs.
    static LOOK: Arc<Look>;
}

/// A look into an inbox that goes along with whatever its owner's verb asks the database first: by itself it would be
/// a transaction more for every verb.
struct Look {
    persona: Uuid,
    now: Moment,
    /// How often the inbox was filled before.
    fills: u64,
    is_taken: AtomicBool,
    held: Mutex<Option<bool>>,
}

impl Look {
    fn values(&self) -> [Value; 2] {
        [self.persona.to_string().into(), self.now.0.into()]
    }

    fn held(&self) -> MutexGuard<'_, Option<bool>> {
        self.held
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Runs something that may ask the database, and says what it has seen of an inbox by the way.
pub async fn looking<T>(
    inboxes: &Inboxes,
    persona: Uuid,
    now: Moment,
    running: impl Future<Output = T>,
) -> (T, Looked) {
    let look = Arc::new(Look {
        persona,
        now,
        fills: inboxes.fills(persona),
        is_taken: AtomicBool::new(false),
        held: Mutex::default(),
    });
    let done = LOOK.scope(look.clone(), running).await;
    let held = *look.held();
    (done, Looked(held.map(|held| (held, look.fills))))
}

/// Has the look that waits, if one does, go along with a transaction.
pub fn with_look<T>(
    job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
) -> impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static {
    let look = LOOK.try_with(Arc::clone).ok();
    let look = look.filter(|look| !look.is_taken.swap(true, Ordering::AcqRel));
    move |c: &Connection| {
        let Some(look) = look else {
            return job(c);
        };
        let (sql, values) = (holds(), look.values());
        c.ahead(&sql, values.clone()).map_err(failed)?;
        let done = job(c)?;
        let held = c.query_row(&sql, values, |r| r.get(0)).map_err(failed)?;
        *look.held() = Some(held);
        Ok(done)
    }
}

/// Whether a drain would find something.
pub fn holds() -> String {
    format!("select exists (select 1 from signal_queue q where {FREE})")
}

impl Looked {
    /// Whether it holds something, if that is known after it was filled so often.
    pub fn holds(self, fills: u64) -> Option<bool> {
        let (held, before) = self.0?;
        (held || before == fills).then_some(held)
    }
}

impl Tables {
    pub fn inbox_filled(&self, persona: Uuid) {
        self.inboxes.filled(persona);
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
        let looked = Looked(Some((false, inboxes.fills(mine))));
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(false));
        inboxes.filled(Uuid::from_u128(8));
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(false));
        inboxes.filled(mine);
        assert_eq!(looked.holds(inboxes.fills(mine)), None);
        let looked = Looked(Some((true, inboxes.fills(mine))));
        inboxes.forget();
        assert_eq!(looked.holds(inboxes.fills(mine)), Some(true));
        let looked = Looked(Some((false, inboxes.fills(mine))));
        inboxes.forget();
        assert_eq!(looked.holds(inboxes.fills(mine)), None);
        assert_eq!(Looked::default().holds(inboxes.fills(mine)), None);
    }
}
