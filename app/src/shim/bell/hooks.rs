//! A bell that waits until a hook of the host asks for it.

use prism_core::Moment;
use prism_core::bell::Notice;
use prism_core::limits::BELL_UNRENDERED_US;
use uuid::Uuid;

/// One bell at the most: a newer one takes the place of an older.
#[derive(Default)]
pub struct ForHook {
    waits: Option<Waits>,
}

pub struct Waits {
    pub notice: Notice,
    pub others: Vec<Uuid>,
    /// A hook has it, and has not said yet that the host took it.
    offered: Option<Moment>,
}

impl Waits {
    /// All the signals that it stands for, its own last.
    pub fn signal_ids(&self) -> Vec<Uuid> {
        let mut ids = self.others.clone();
        ids.push(self.notice.signal_id);
        ids
    }

    fn is_carried(&self, now: Moment) -> bool {
        let carried = |at: Moment| now >= at && now.since_us(at) < BELL_UNRENDERED_US;
        self.offered.is_some_and(carried)
    }
}

impl ForHook {
    pub fn put(&mut self, notice: &Notice, others: &[Uuid]) {
        self.waits = Some(Waits {
            notice: notice.clone(),
            others: others.to_vec(),
            offered: None,
        });
    }

    /// The bell that no hook carries at the moment: two hooks may ask at once, and one that was
    /// killed never says what became of it.
    pub fn offer(&mut self, now: Moment) -> Option<&Waits> {
        let waits = self.waits.as_mut()?;
        if waits.is_carried(now) {
            return None;
        }
        waits.offered = Some(now);
        Some(waits)
    }

    /// The bell that no hook carries at the moment, left where it is.
    pub fn kept(&self, now: Moment) -> Option<Notice> {
        let waits = self.waits.as_ref()?;
        (!waits.is_carried(now)).then(|| waits.notice.clone())
    }

    /// Takes the bell of this signal out.
    pub fn take(&mut self, signal_id: Uuid) -> Option<Waits> {
        let its_own = self.waits.as_ref()?.notice.signal_id == signal_id;
        if its_own { self.waits.take() } else { None }
    }
}
