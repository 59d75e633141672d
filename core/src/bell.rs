//! The doorbell: one sentence that names the verbs to act with.

use crate::limits::BELL_COALESCE_US;
use crate::moment::Moment;
use crate::signal::names;

names! {
    /// How a bell is handed to a host.
    Strategy {
        Auto = "auto",
        ClaudeChannel = "claude_channel",
        ClaudeInbox = "claude_inbox",
        Codex = "codex",
        Hooks = "hooks",
        None = "none",
    }
}

/// The bell, exactly: who, what, and the least set of verbs to act on it.
pub fn sentence(from: &str, signal_type: &str) -> String {
    format!(
        "Signal from {from}: {signal_type}. Use prism_signals_pending to read; prism_signal to reply if needed."
    )
}

/// Says whether a prompt is a bell of ours, by its whole sentence.
pub fn is_bell(prompt: &str) -> bool {
    let Some(rest) = prompt.trim().strip_prefix("Signal from ") else {
        return false;
    };
    let Some((from, rest)) = rest.split_once(": ") else {
        return false;
    };
    let Some((signal_type, _)) = rest.split_once(". ") else {
        return false;
    };
    crate::Identity::parse(from).is_ok()
        && signal_type.chars().all(|c| c.is_ascii_alphanumeric())
        && prompt.trim() == sentence(from, signal_type)
}

/// Keeps a standing bell from ringing again for every further signal.
///
/// It cannot jam: a drain resets it, and so does a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Coalescer {
    rung_at: Option<Moment>,
}

impl Coalescer {
    /// Says whether an arrival rings now.
    pub fn rings(&self, now: Moment) -> bool {
        self.rung_at
            .is_none_or(|at| now.since_us(at) >= BELL_COALESCE_US || now < at)
    }

    /// Notes that a bell was handed to the host.
    pub fn rang(&mut self, now: Moment) {
        self.rung_at = Some(now);
    }

    /// Notes that the inbox was drained, here or by a sibling session.
    pub fn drained(&mut self) {
        self.rung_at = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_US;
    use proptest::prelude::*;

    #[test]
    fn the_sentence_is_exact_and_recognised_only_whole() {
        let bell = sentence("Donna", "TaskAssigned");
        assert_eq!(
            bell,
            "Signal from Donna: TaskAssigned. Use prism_signals_pending to read; prism_signal to reply if needed."
        );
        assert!(is_bell(&bell) && is_bell(&format!("{bell}\n")));
        for other in [
            "Signal from Donna: TaskAssigned.",
            &format!("{bell} and stop"),
            &format!("look: {bell}"),
            "Signal from a b: X. Use",
            "",
        ] {
            assert!(!is_bell(other), "{other}");
        }
    }

    #[test]
    fn a_second_signal_waits_for_the_first_bell_until_a_drain_or_a_minute() {
        let (mut bell, t0) = (Coalescer::default(), Moment(0));
        assert!(bell.rings(t0));
        bell.rang(t0);
        assert!(!bell.rings(t0.plus_us(59 * SECOND_US)));
        assert!(bell.rings(t0.plus_us(60 * SECOND_US)));
        bell.drained();
        assert!(bell.rings(t0.plus_us(1)));
    }

    #[test]
    fn a_clock_that_jumps_back_does_not_jam_the_bell() {
        let mut bell = Coalescer::default();
        bell.rang(Moment(1_000_000_000));
        assert!(bell.rings(Moment(0)));
    }

    proptest! {
        #[test]
        fn the_bell_never_jams(arrivals in proptest::collection::vec((0i64..200 * SECOND_US, any::<bool>()), 1..50)) {
            let (mut bell, mut now, mut last) = (Coalescer::default(), Moment(0), None::<Moment>);
            for (gap, drain) in arrivals {
                now = now.plus_us(gap);
                if drain { bell.drained(); last = None; }
                let due = last.is_none_or(|at: Moment| now.since_us(at) >= BELL_COALESCE_US);
                prop_assert_eq!(bell.rings(now), due);
                if due { bell.rang(now); last = Some(now); }
            }
        }
    }
}
