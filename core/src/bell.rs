//! The doorbell: one sentence that names the verbs to act with.

mod ladder;
mod rung;
mod thread;

pub use ladder::{HostHas, ladder, next_rung, takes_waiter};
pub use rung::{Rung, RungBell};
pub use thread::{LoadedThread, born, own_thread};

use crate::envelope::Envelope;
use crate::limits::{BELL_COALESCE_US, RECEIPT_IDS_MAX};
use crate::moment::Moment;
use crate::ring::Entry;
use crate::signal::{Category, SignalType, names};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

names! {
    /// How a bell is handed to a host.
    Strategy {
        Auto = "auto",
        ClaudeChannel = "claude_channel",
        ClaudeInbox = "claude_inbox",
        ClaudeRewake = "claude_rewake",
        Codex = "codex",
        Opencode = "opencode",
        Hooks = "hooks",
        None = "none",
    }
}

names! {
    /// What is told of a bell beyond the receipt's facts: a rung did not take it; it waits until
    /// the host asks for it; a further rung took it; there is no further one; its signal was read
    /// before it was handed over.
    BellNote {
        Failed = "bell_failed",
        Waits = "bell_waits",
        Again = "rung_again",
        NoRungLeft = "no_rung_left",
        NotNeeded = "not_needed",
    }
}

impl Strategy {
    /// Whether the host's prompt hook tells of a bell that was handed over so.
    pub const fn is_seen_by_prompt_hook(self) -> bool {
        matches!(self, Self::ClaudeInbox | Self::ClaudeRewake | Self::Codex)
    }
}

/// What one bell tells of: a signal without its content.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notice {
    pub signal_id: Uuid,
    pub from: String,
    pub signal_type: String,
    pub category: Category,
}

impl Notice {
    pub fn of(envelope: &Envelope) -> Self {
        Self {
            signal_id: envelope.signal_id,
            from: envelope.from_identity.clone(),
            signal_type: envelope.signal_type.clone(),
            category: envelope.resolved_category(),
        }
    }

    /// Of a signal that waits in the ring.
    pub fn of_entry(entry: &Entry) -> Option<Self> {
        Some(Self {
            signal_id: entry.sid.parse().ok()?,
            from: entry.from.clone(),
            signal_type: entry.sig_type.clone(),
            category: entry.cat,
        })
    }

    pub fn sentence(&self) -> String {
        sentence(&self.from, &self.signal_type)
    }

    /// A probe rings whether a bell stands or not.
    pub fn is_probe(&self) -> bool {
        SignalType::from_name(&self.signal_type) == Some(SignalType::Loopback)
    }
}

/// What became of a bell at the host's door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handover {
    /// The host's transport took it; nothing says that the host did.
    Handed,
    /// The host gave evidence that it took the bell.
    Confirmed,
    /// It is kept until the host asks for it.
    Waits,
    /// It did not reach the host, and why.
    Failed(String),
}

impl Handover {
    /// How a probe's result names the evidence; none for a bell that failed.
    pub fn evidence(&self) -> Option<&'static str> {
        match self {
            Self::Handed => Some("sent"),
            Self::Confirmed => Some("accepted"),
            Self::Waits | Self::Failed(_) => None,
        }
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

/// The bell in a notification of Claude Code's, which puts what a waiting hook said into words of
/// its own: the end of a line of it, whole.
pub fn in_notification(prompt: &str) -> Option<&str> {
    let prompt = prompt.trim();
    if !prompt.starts_with("<task-notification>") {
        return None;
    }
    prompt.lines().find_map(|line| {
        let (_, said) = line.trim_end().split_once("\": ")?;
        is_bell(said).then_some(said)
    })
}

/// Keeps a standing bell from ringing again for every further signal.
///
/// It cannot jam: a drain resets it, and so does a minute. Nor does it lose anything: what came
/// while a drain was on its way is not in that drain, and is left to ring for after it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Coalescer {
    rung_at: Option<Moment>,
    /// What came while the bell stood, oldest first.
    behind: Vec<Notice>,
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

    /// Notes what came while a bell stands.
    pub fn came(&mut self, notices: Vec<Notice>) {
        self.behind.extend(notices);
        let over = self.behind.len().saturating_sub(RECEIPT_IDS_MAX);
        self.behind.drain(..over);
    }

    /// The host took a bell now: it tells of whatever came before, too.
    pub fn took(&mut self) {
        self.behind.clear();
    }

    /// No bell reached the host: the next arrival rings.
    pub fn failed(&mut self) {
        self.rung_at = None;
    }

    /// Notes that these were drained, here or by a sibling session. Says whether anything may be
    /// left that came too late for that drain.
    pub fn drained(&mut self, ids: &[Uuid]) -> bool {
        self.rung_at = None;
        self.behind.retain(|n| !ids.contains(&n.signal_id));
        !self.behind.is_empty()
    }

    /// Takes out what is left, to be rung for once.
    pub fn take_left(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SECOND_US;
    use proptest::prelude::*;

    #[test]
    fn a_notification_of_the_host_is_a_bell_when_a_hook_said_exactly_that() {
        let bell = sentence("Ada", "TaskAssigned");
        let notified = |hook: &str, said: &str| {
            format!(
                "<task-notification>\n<summary>Stop hook feedback</summary>\n</task-notification>\n\
                 <system-reminder>\nStop hook blocking error from command \"{hook}\": {said}\n\n</system-reminder>"
            )
        };
        for (prompt, expected) in [
            (notified("Stop", &bell), Some(bell.as_str())),
            (notified("SessionStart:startup", &bell), Some(bell.as_str())),
            (notified("Stop", &format!("{bell} Now.")), None),
            (notified("Stop", "the build is red"), None),
            (bell.clone(), None),
            (format!("see \"x\": {bell}"), None),
        ] {
            assert_eq!(in_notification(&prompt), expected, "{prompt}");
        }
    }

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
        assert!(!bell.drained(&[]));
        assert!(bell.rings(t0.plus_us(1)));
    }

    fn task(n: u128) -> Notice {
        Notice {
            signal_id: Uuid::from_u128(n),
            from: "Ada".into(),
            signal_type: "TaskAssigned".into(),
            category: Category::Task,
        }
    }

    #[test]
    fn what_came_behind_a_bell_and_was_not_in_the_drain_is_left_to_ring_for_once() {
        let mut bell = Coalescer::default();
        bell.rang(Moment(0));
        bell.came(vec![task(2), task(3)]);
        assert!(bell.drained(&[Uuid::from_u128(1), Uuid::from_u128(2)]));
        assert_eq!(bell.take_left(), [task(3)]);
        assert_eq!(bell.take_left(), []);
        bell.rang(Moment(0));
        bell.came(vec![task(4)]);
        assert!(!bell.drained(&[Uuid::from_u128(4)]), "the drain carried it");
        bell.came(vec![task(5)]);
        bell.took();
        assert!(!bell.drained(&[]), "a later bell told of it");
        bell.came((0..2 * RECEIPT_IDS_MAX as u128).map(task).collect());
        let left = bell.take_left();
        assert_eq!(left.len(), RECEIPT_IDS_MAX);
        assert_eq!(left.last(), Some(&task(2 * RECEIPT_IDS_MAX as u128 - 1)));
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
                if drain { bell.drained(&[]); last = None; }
                let due = last.is_none_or(|at: Moment| now.since_us(at) >= BELL_COALESCE_US);
                prop_assert_eq!(bell.rings(now), due);
                if due { bell.rang(now); last = Some(now); }
            }
        }
    }
}
