//! The bells of one session that were rung: which of them the host is known to have taken, which
//! signals stand behind each, and which is due to be rung once more.

use super::{Notice, Strategy};
use crate::limits::{BELL_UNRENDERED_US, BELLS_REMEMBERED, RECEIPT_IDS_MAX};
use crate::moment::Moment;
use std::collections::VecDeque;
use uuid::Uuid;

/// One bell on its way through the rungs.
#[derive(Clone, Debug, PartialEq)]
pub struct RungBell {
    /// The signal whose sentence was rung.
    pub notice: Notice,
    /// Signals that this bell stands for besides.
    pub others: Vec<Uuid>,
    /// The rungs that took it, in order.
    pub handed: Vec<Strategy>,
    /// When the last of them did.
    pub rung_at: Moment,
    pub rendered: bool,
    /// It was rung once more because nothing told that it was rendered.
    pub repeated: bool,
}

impl RungBell {
    /// All the signals that it stands for.
    pub fn signal_ids(&self) -> Vec<Uuid> {
        let mut ids = vec![self.notice.signal_id];
        ids.extend(&self.others);
        ids
    }

    fn stands_for(&self, id: Uuid) -> bool {
        self.notice.signal_id == id || self.others.contains(&id)
    }
}

/// Bells that were rung, oldest first; the oldest are forgotten.
#[derive(Clone, Debug, Default)]
pub struct Rung {
    bells: VecDeque<RungBell>,
}

impl Rung {
    /// Notes a bell that a rung took: a new one, or one that climbed. `before` are the rungs that
    /// its signals had already, perhaps with another one's bell.
    pub fn handed(
        &mut self,
        notice: &Notice,
        others: Vec<Uuid>,
        before: &[Strategy],
        by: Strategy,
        now: Moment,
    ) {
        let known = self
            .bells
            .iter_mut()
            .rev()
            .find(|b| b.notice.signal_id == notice.signal_id && !b.handed.contains(&by));
        if let Some(bell) = known {
            bell.handed.push(by);
            bell.rung_at = now;
            return;
        }
        self.bells.push_back(RungBell {
            notice: notice.clone(),
            others,
            handed: before.iter().copied().chain([by]).collect(),
            rung_at: now,
            rendered: false,
            repeated: false,
        });
        let over = self.bells.len().saturating_sub(BELLS_REMEMBERED);
        self.bells.drain(..over);
    }

    /// These came while a bell stood that the host was not seen to take: it rings for them, too.
    pub fn coalesced(&mut self, ids: &[Uuid]) {
        let standing = self.bells.back_mut().filter(|b| !b.rendered);
        let Some(bell) = standing.filter(|b| !b.notice.is_probe()) else {
            return;
        };
        let room = RECEIPT_IDS_MAX.saturating_sub(bell.others.len());
        bell.others.extend(ids.iter().take(room));
    }

    /// The host took this text as a prompt: the oldest bell with that sentence that was not
    /// rendered yet is rendered now.
    pub fn prompted(&mut self, prompt: &str) -> Option<(RungBell, Strategy)> {
        let sentence = prompt.trim();
        let bell = self
            .bells
            .iter_mut()
            .find(|b| !b.rendered && b.notice.sentence() == sentence)?;
        bell.rendered = true;
        let seen = bell.handed.iter().rev();
        let by = seen.copied().find(|s| s.is_seen_by_prompt_hook());
        let by = by.or(bell.handed.last().copied())?;
        Some((bell.clone(), by))
    }

    /// The host is known to have taken the bell of this signal; none when that was known before.
    pub fn rendered(&mut self, signal_id: Uuid) -> Option<RungBell> {
        let bell = self
            .bells
            .iter_mut()
            .rev()
            .find(|b| b.notice.signal_id == signal_id && !b.rendered)?;
        bell.rendered = true;
        Some(bell.clone())
    }

    /// The next bell to ring once more: the host would have told of it by now. It is said once.
    pub fn overdue(&mut self, now: Moment) -> Option<RungBell> {
        let due = |b: &&mut RungBell| {
            let tells = b.handed.last().is_some_and(|s| s.is_seen_by_prompt_hook());
            let late = now.since_us(b.rung_at) >= BELL_UNRENDERED_US;
            tells && late && !b.rendered && !b.repeated && !b.notice.is_probe()
        };
        let bell = self.bells.iter_mut().find(due)?;
        bell.repeated = true;
        Some(bell.clone())
    }

    /// Whether a bell may come to be overdue.
    pub fn any_unrendered(&self) -> bool {
        let open = |b: &RungBell| {
            let tells = b.handed.last().is_some_and(|s| s.is_seen_by_prompt_hook());
            tells && !b.rendered && !b.repeated && !b.notice.is_probe()
        };
        self.bells.iter().any(open)
    }

    /// The newest bell that stands for a signal.
    pub fn of(&self, signal_id: Uuid) -> Option<&RungBell> {
        self.bells.iter().rev().find(|b| b.stands_for(signal_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_US;
    use crate::signal::Category;

    fn notice(n: u128, from: &str, signal_type: &str) -> Notice {
        Notice {
            signal_id: Uuid::from_u128(n),
            from: from.into(),
            signal_type: signal_type.into(),
            category: Category::Task,
        }
    }

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    const T0: Moment = Moment(1_000_000_000);

    #[test]
    fn a_prompt_renders_the_oldest_open_bell_with_its_very_sentence_and_what_stands_behind_it() {
        let mut rung = Rung::default();
        let task = |n| notice(n, "Ada", "TaskAssigned");
        rung.handed(&task(1), vec![id(11)], &[], Strategy::ClaudeInbox, T0);
        rung.handed(&task(2), vec![], &[], Strategy::ClaudeInbox, T0);
        rung.handed(
            &notice(3, "Bea", "Question"),
            vec![],
            &[],
            Strategy::ClaudeInbox,
            T0,
        );
        rung.coalesced(&[id(31), id(32)]);
        let mut ask = |prompt: &str| {
            let found = rung.prompted(prompt);
            found.map(|(bell, by)| (bell.signal_ids(), by))
        };
        let sentence = task(1).sentence();
        for other in ["", "hello", &format!("{sentence} now"), &sentence[1..]] {
            assert_eq!(ask(other), None, "{other}");
        }
        let by = Strategy::ClaudeInbox;
        assert_eq!(ask(&sentence), Some((vec![id(1), id(11)], by)));
        assert_eq!(ask(&format!("{sentence}\n")), Some((vec![id(2)], by)));
        assert_eq!(ask(&sentence), None, "each bell once");
        let question = notice(3, "Bea", "Question").sentence();
        assert_eq!(ask(&question), Some((vec![id(3), id(31), id(32)], by)));
    }

    #[test]
    fn what_comes_behind_a_rendered_bell_is_not_rendered_by_it() {
        let mut rung = Rung::default();
        rung.handed(
            &notice(1, "Ada", "TaskAssigned"),
            vec![],
            &[],
            Strategy::Codex,
            T0,
        );
        assert_eq!(rung.rendered(id(1)).unwrap().signal_ids(), [id(1)]);
        rung.coalesced(&[id(2)]);
        assert!(rung.of(id(2)).is_none(), "its host spoke before it came");
        assert_eq!(rung.rendered(id(1)), None, "and says so once");
    }

    #[test]
    fn a_bell_is_overdue_once_after_ten_seconds_and_only_where_the_host_would_have_told() {
        for (by, rendered, probe, due) in [
            (Strategy::ClaudeInbox, false, false, true),
            (Strategy::Codex, false, false, true),
            (Strategy::ClaudeInbox, true, false, false),
            (Strategy::ClaudeInbox, false, true, false),
            (Strategy::ClaudeChannel, false, false, false),
            (Strategy::Opencode, false, false, false),
            (Strategy::Hooks, false, false, false),
        ] {
            let mut rung = Rung::default();
            let kind = if probe { "Loopback" } else { "TaskAssigned" };
            rung.handed(&notice(1, "Ada", kind), vec![], &[], by, T0);
            if rendered {
                rung.rendered(id(1));
            }
            let told = format!("{by} {rendered} {probe}");
            assert_eq!(rung.any_unrendered(), due, "{told}");
            assert_eq!(rung.overdue(T0.plus_us(9 * SECOND_US)), None, "{told}");
            let late = T0.plus_us(10 * SECOND_US);
            assert_eq!(rung.overdue(late).is_some(), due, "{told}");
            assert_eq!(rung.overdue(late), None, "once: {told}");
        }
    }

    #[test]
    fn a_bell_that_climbs_stays_one_bell_and_the_prompt_is_the_earlier_rungs() {
        let mut rung = Rung::default();
        let asked = notice(1, "Ada", "Question");
        rung.handed(&asked, vec![id(2)], &[], Strategy::ClaudeInbox, T0);
        rung.handed(
            &asked,
            vec![],
            &[],
            Strategy::Hooks,
            T0.plus_us(10 * SECOND_US),
        );
        let bell = rung.of(id(2)).unwrap();
        assert_eq!(bell.handed, [Strategy::ClaudeInbox, Strategy::Hooks]);
        let (bell, by) = rung.prompted(&asked.sentence()).unwrap();
        assert_eq!((bell.signal_ids().len(), by), (2, Strategy::ClaudeInbox));
        assert_eq!(rung.prompted(&asked.sentence()), None);
    }

    #[test]
    fn the_same_signal_may_ring_again_later_and_old_bells_are_forgotten() {
        let mut rung = Rung::default();
        let task = |n| notice(n, "Ada", "TaskAssigned");
        rung.handed(&task(1), vec![], &[], Strategy::ClaudeInbox, T0);
        rung.handed(&task(1), vec![], &[], Strategy::ClaudeInbox, T0);
        assert!(rung.prompted(&task(1).sentence()).is_some());
        assert!(rung.prompted(&task(1).sentence()).is_some());
        for n in 0..2 * BELLS_REMEMBERED as u128 {
            rung.handed(&task(100 + n), vec![], &[], Strategy::ClaudeInbox, T0);
        }
        assert!(rung.of(id(1)).is_none() && rung.of(id(100)).is_none());
        assert_eq!(rung.bells.len(), BELLS_REMEMBERED);
        rung.coalesced(&vec![id(7); 2 * RECEIPT_IDS_MAX]);
        assert_eq!(rung.bells.back().unwrap().others.len(), RECEIPT_IDS_MAX);
    }
}
