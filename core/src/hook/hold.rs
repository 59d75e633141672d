//! Whether the end of a turn is held: once for each signal whose sender waits, and never twice.

use crate::ring::{Entry, Ring};
use crate::signal::Category;

/// Senders named in a reason.
const SENDERS_MAX: usize = 3;
/// Signals remembered as held for.
const HELD_MAX: usize = 500;

/// The signals that a turn of this session was held for.
#[derive(Clone, Debug, Default)]
pub struct Held {
    sids: Vec<String>,
}

impl Held {
    /// The reason to go on, when somebody waits for an answer and this turn's end was not held
    /// for it before; and the signals it is for, to be noted once it was said.
    pub fn reason(&self, ring: &Ring, pid: &str) -> Option<(String, Vec<String>)> {
        let waits = |e: &&Entry| {
            !e.read
                && matches!(e.cat, Category::Ask | Category::Blocker)
                && e.pid.as_deref().is_none_or(|of| of == pid)
        };
        let waiting: Vec<&Entry> = ring.entries.iter().filter(waits).collect();
        if waiting.iter().all(|e| self.sids.contains(&e.sid)) {
            return None;
        }
        let sids = waiting.iter().map(|e| e.sid.clone()).collect();
        Some((reason(&waiting), sids))
    }

    /// The host was told to go on for these.
    pub fn said(&mut self, sids: Vec<String>) {
        self.sids.extend(sids);
        let over = self.sids.len().saturating_sub(HELD_MAX);
        self.sids.drain(..over);
    }
}

fn reason(waiting: &[&Entry]) -> String {
    let named: Vec<String> = waiting
        .iter()
        .rev()
        .take(SENDERS_MAX)
        .map(|e| format!("{} from {}", e.cat, e.from))
        .collect();
    let more = waiting.len().saturating_sub(SENDERS_MAX);
    let more = match more {
        0 => String::new(),
        n => format!(", and {n} more"),
    };
    let (are, their) = match waiting.len() {
        1 => ("1 unread signal waits", "its sender"),
        n => (&*format!("{n} unread signals wait"), "their senders"),
    };
    format!(
        "Before you end: {are} for you ({}{more}). Call prism_signals_pending to read, answer {their} \
         with prism_signal if you can, then end your turn.",
        named.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    fn entry(sid: &str, cat: Category, read: bool, pid: &str) -> Entry {
        Entry {
            ts: Moment(0),
            cat,
            sig_type: "Question".into(),
            from: format!("From{sid}"),
            summary: "a secret".into(),
            sid: sid.into(),
            read,
            pid: Some(pid.into()),
        }
    }

    fn ring(entries: &[Entry]) -> Ring {
        Ring {
            entries: entries.to_vec(),
            ..Ring::default()
        }
    }

    #[test]
    fn an_unread_ask_or_blocker_holds_one_turn_and_names_the_verb() {
        let mut held = Held::default();
        let one = ring(&[entry("A", Category::Ask, false, "P")]);
        let (reason, sids) = held.reason(&one, "P").unwrap();
        assert_eq!(sids, ["A"]);
        assert!(held.reason(&one, "P").is_some(), "it was not said yet");
        held.said(sids);
        assert!(reason.contains("prism_signals_pending"), "{reason}");
        assert!(reason.contains("ASK from FromA"), "{reason}");
        assert!(!reason.contains("secret"), "{reason}");
        assert_eq!(held.reason(&one, "P"), None, "never twice for the same");
        let two = ring(&[
            entry("A", Category::Ask, false, "P"),
            entry("B", Category::Blocker, false, "P"),
        ]);
        let (reason, sids) = held.reason(&two, "P").unwrap();
        held.said(sids);
        assert!(reason.contains("2 unread") && reason.contains("BLOCKER from FromB"));
        assert_eq!(held.reason(&two, "P"), None);
    }

    #[test]
    fn what_is_read_needs_nobody_or_is_of_another_project_holds_nothing() {
        for quiet in [
            entry("A", Category::Ask, true, "P"),
            entry("A", Category::Task, false, "P"),
            entry("A", Category::Info, false, "P"),
            entry("A", Category::Blocker, false, "OTHER"),
        ] {
            assert_eq!(Held::default().reason(&ring(&[quiet]), "P"), None);
        }
        assert_eq!(Held::default().reason(&Ring::default(), "P"), None);
    }
}
