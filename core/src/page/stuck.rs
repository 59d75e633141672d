//! Why a signal is not read yet, and what the operator can do about it.

use crate::api::page::signals::Stuck;
use crate::hook::Waiting;
use crate::moment::Moment;
use crate::presence::RecipientState;
use crate::receipt::SessionReceipt;
use crate::signal::Category;

/// Seconds after which a signal that nobody has read counts as stuck.
pub const fn stuck_after_s(category: Category) -> i64 {
    match category {
        Category::Blocker => 30,
        Category::Ask => 120,
        Category::Task => 600,
        Category::Info => 3_600,
    }
}

/// What is known of a signal that waits, and of whom it waits for.
#[derive(Clone, Copy, Debug)]
pub struct Waits<'a> {
    pub to: &'a str,
    pub to_operator: bool,
    pub category: Category,
    pub since: Moment,
    pub leased: bool,
    pub recipient: RecipientState,
    /// A session of the recipient has a socket.
    pub connected: bool,
    /// A session of the recipient waits for its human.
    pub waits_for_human: Option<Waiting>,
    pub receipts: &'a [SessionReceipt],
}

/// Says why it is stuck; none while it may still be on its way.
pub fn stuck(waits: &Waits<'_>, now: Moment) -> Option<Stuck> {
    let overdue = now.since_us(waits.since) >= stuck_after_s(waits.category) * 1_000_000;
    overdue.then(|| {
        let (cause, why, what_to_do) = cause(waits);
        Stuck {
            cause: cause.into(),
            why,
            what_to_do,
        }
    })
}

fn cause(w: &Waits<'_>) -> (&'static str, String, String) {
    let to = w.to;
    let any = |fact: fn(&SessionReceipt) -> bool| w.receipts.iter().any(fact);
    if w.to_operator {
        return (
            "at_operator",
            "It waits for you.".into(),
            "Answer it here, or read it with `prism pending`.".into(),
        );
    }
    if w.leased {
        return (
            "being_read",
            format!("{to} is reading it now."),
            "Wait half a minute: what is not confirmed by then goes back to the inbox.".into(),
        );
    }
    match w.recipient {
        RecipientState::NeverStarted => {
            return (
                "never_started",
                format!("Nobody has ever run as {to} in this project."),
                format!(
                    "Start a host as {to}: `prism coder --as {to} -- claude`, or take the signal back."
                ),
            );
        }
        RecipientState::Offline | RecipientState::Stale => {
            return (
                "nobody_here",
                format!("{to} has no running session."),
                format!(
                    "Start {to} again, and it finds the signal; or take it back and send it to somebody who is here."
                ),
            );
        }
        RecipientState::Live | RecipientState::Operator => {}
    }
    if let Some(waiting) = w.waits_for_human {
        let what = match waiting {
            Waiting::Permission => "a permission",
            Waiting::Question => "an answer",
        };
        return (
            "waits_for_human",
            format!("{to} has stopped and waits for {what} from you."),
            format!("Go to {to}'s terminal and answer; it reads its signals when it goes on."),
        );
    }
    if !w.connected {
        return (
            "no_socket",
            format!("{to} runs, but has no connection to this server."),
            format!(
                "It reads the signal with its next tool call. If it makes none, run `prism doctor` on {to}'s machine."
            ),
        );
    }
    if !any(|r| r.received.is_some()) {
        return (
            "not_received",
            format!("It was sent to {to}'s session, and the shim there has not confirmed it."),
            "Run a probe to that session; if it drops too, restart the host.".into(),
        );
    }
    if !any(|r| r.rung.is_some() || r.rendered.is_some()) {
        return (
            "not_rung",
            format!("{to}'s shim has it, and found no bell that the host takes."),
            format!(
                "`prism connect --check` on {to}'s machine says which bell is missing; {to} reads it with its next tool call."
            ),
        );
    }
    if !any(|r| r.rendered.is_some()) {
        return (
            "not_rendered",
            format!("The bell was handed to {to}'s host, which has not said that it took it."),
            format!(
                "Look at {to}'s terminal: a turn that runs takes the bell at its end. Typing anything there helps too."
            ),
        );
    }
    (
        "not_read",
        format!("{to} was told, and has not read it."),
        format!(
            "{to} is at something else or has ignored the bell: tell it in its terminal, or send a BLOCKER."
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(10_000_000_000);

    fn causes(change: impl Fn(&mut Waits<'_>)) -> Option<String> {
        let mut waits = Waits {
            to: "Texi",
            to_operator: false,
            category: Category::Ask,
            since: Moment(0),
            leased: false,
            recipient: RecipientState::Live,
            connected: true,
            waits_for_human: None,
            receipts: &[],
        };
        change(&mut waits);
        stuck(&waits, NOW).map(|s| s.cause)
    }

    #[test]
    fn the_first_layer_that_is_missing_is_the_cause() {
        let at = Some(Moment(1));
        let received = [SessionReceipt {
            received: at,
            ..Default::default()
        }];
        let rung = [SessionReceipt {
            rung: at,
            ..received[0].clone()
        }];
        let rendered = [SessionReceipt {
            rendered: at,
            ..rung[0].clone()
        }];
        let cause = |change: &dyn Fn(&mut Waits<'_>)| causes(change).unwrap();
        assert_eq!(cause(&|w| w.to_operator = true), "at_operator");
        assert_eq!(cause(&|w| w.leased = true), "being_read");
        let recipient = |state| move |w: &mut Waits<'_>| w.recipient = state;
        assert_eq!(
            cause(&recipient(RecipientState::NeverStarted)),
            "never_started"
        );
        assert_eq!(cause(&recipient(RecipientState::Offline)), "nobody_here");
        assert_eq!(cause(&recipient(RecipientState::Stale)), "nobody_here");
        assert_eq!(
            cause(&|w| w.waits_for_human = Some(Waiting::Question)),
            "waits_for_human"
        );
        assert_eq!(cause(&|w| w.connected = false), "no_socket");
        assert_eq!(cause(&|_| ()), "not_received");
        let known = |receipts: &[SessionReceipt]| {
            let waits = Waits {
                to: "Texi",
                to_operator: false,
                category: Category::Ask,
                since: Moment(0),
                leased: false,
                recipient: RecipientState::Live,
                connected: true,
                waits_for_human: None,
                receipts,
            };
            stuck(&waits, NOW).unwrap().cause
        };
        assert_eq!(known(&received), "not_rung");
        assert_eq!(known(&rung), "not_rendered");
        assert_eq!(known(&rendered), "not_read");
    }

    #[test]
    fn a_signal_that_may_still_be_on_its_way_is_not_stuck() {
        for category in Category::ALL {
            let just = NOW.plus_s(-stuck_after_s(*category));
            let at = |since: Moment| {
                causes(|w| {
                    w.category = *category;
                    w.since = since;
                })
            };
            assert!(at(just).is_some(), "{category}");
            assert_eq!(at(just.plus_us(1)), None, "{category}");
        }
    }
}
