//! What becomes of an ASK or BLOCKER that nobody reads: one rung up, then the operator.

use crate::limits::{ESCALATION_RETRY_US, LEASE_AHEAD_US, LEASE_US, SECOND_US, SUMMARY_CHARS_MAX};
use crate::moment::Moment;
use crate::ring::Entry;
use crate::signal::Category;
use crate::text::{clip, one_line};
use serde::{Deserialize, Serialize};

/// `[escalation]` in `config.toml`. A time of 0 switches that category off.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Escalation {
    /// Seconds that an ASK may wait unread before each step.
    pub ask_s: u32,
    /// The same for a BLOCKER.
    pub blocker_s: u32,
    /// What to run for the operator: a program, or a program with its first arguments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub notify: Option<Program>,
}

impl Default for Escalation {
    fn default() -> Self {
        Self {
            ask_s: 120,
            blocker_s: 30,
            notify: None,
        }
    }
}

/// A program and the arguments it is given before ours; no shell ever reads them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "must be a program, or a list of a program and its arguments"
)]
pub enum Program {
    Alone(String),
    WithArguments(Vec<String>),
}

impl Program {
    /// The program and its first arguments; none when nothing is named.
    pub fn parts(&self) -> Option<(&str, &[String])> {
        let (program, arguments) = match self {
            Self::Alone(program) => (program, &[][..]),
            Self::WithArguments(all) => all.split_first()?,
        };
        (!program.trim().is_empty()).then_some((program.as_str(), arguments))
    }
}

impl Escalation {
    /// How long a signal of this category may wait before each step; none: for ever.
    pub fn window_us(&self, category: Category) -> Option<i64> {
        let seconds = match category {
            Category::Ask => self.ask_s,
            Category::Blocker => self.blocker_s,
            Category::Info | Category::Task => 0,
        };
        (seconds > 0).then(|| i64::from(seconds) * SECOND_US)
    }

    /// How far ahead the next look at a signal can lie at the most, twice: what lies further was put
    /// off before the clock was set back.
    pub fn ahead_us(&self) -> i64 {
        let windows = [Category::Ask, Category::Blocker].map(|c| self.window_us(c).unwrap_or(0));
        let waits = windows.into_iter().chain([ESCALATION_RETRY_US, LEASE_US]);
        2 * waits.max().unwrap_or(LEASE_US)
    }
}

/// How the recipient of a signal can be reached right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// A session of theirs holds a socket.
    Connected,
    /// A session is live and may come back: after a restart of the server, for instance.
    Live,
    /// Nobody is there, or it is the operator, who has no session.
    Nobody,
}

/// A signal whose time is up.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// It has climbed a rung before.
    pub climbed: bool,
    /// Somebody is reading it until then.
    pub leased_until: Option<Moment>,
    pub reach: Reach,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Its recipient's sessions ring on their next rung.
    Climb,
    /// The operator is told.
    Operator,
    /// Looked at again then.
    Later(Moment),
}

/// One step: the next rung once, then the operator; straight to the operator where nobody is.
pub fn step(due: Due, now: Moment) -> Step {
    match due.leased_until {
        // One that ends later than any lease can was given before the clock was set back.
        Some(until) if until > now && until.since_us(now) <= LEASE_AHEAD_US => {
            return Step::Later(until);
        }
        _ => {}
    }
    match (due.climbed, due.reach) {
        (false, Reach::Connected) => Step::Climb,
        (false, Reach::Live) => Step::Later(now.plus_us(ESCALATION_RETRY_US)),
        (true, _) | (_, Reach::Nobody) => Step::Operator,
    }
}

/// A signal that has reached the operator, as it is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Whose inbox it waits in.
    pub to: String,
    pub entry: Entry,
}

impl Told {
    /// Its line in the operator's ring: who waits, for whom, and what for.
    pub fn entry(&self) -> Entry {
        let summary = one_line(&format!("for {}: {}", self.to, self.entry.summary));
        Entry {
            summary: clip(&summary, SUMMARY_CHARS_MAX),
            ..self.entry.clone()
        }
    }
}

/// The two arguments of one notification, for all that are new. Each begins with a word of ours
/// or a name, so that no text of an agent is ever taken for an option.
pub fn notification(told: &[Told]) -> Option<(String, String)> {
    let newest = told.last()?;
    let title = format!(
        "{} from {} waits for {}",
        newest.entry.cat, newest.entry.from, newest.to
    );
    let summary = one_line(&newest.entry.summary);
    let body = match told.len() - 1 {
        0 => format!("{}: {summary}", newest.entry.from),
        more => format!("{}: {summary} (and {more} more)", newest.entry.from),
    };
    Some((one_line(&title), one_line(&body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment(1_000_000_000);

    #[test]
    fn asks_and_blockers_wait_so_long_and_nothing_else_escalates() {
        let settings = Escalation::default();
        for (category, seconds) in [
            (Category::Ask, Some(120)),
            (Category::Blocker, Some(30)),
            (Category::Task, None),
            (Category::Info, None),
        ] {
            let window = settings.window_us(category);
            assert_eq!(window, seconds.map(|s| s * SECOND_US), "{category}");
        }
        let off = Escalation {
            ask_s: 0,
            ..settings
        };
        assert_eq!(off.window_us(Category::Ask), None);
    }

    #[test]
    fn the_next_rung_once_then_the_operator_and_straight_to_them_where_nobody_is() {
        let later = |s: i64| Step::Later(NOW.plus_us(s));
        let retry = later(ESCALATION_RETRY_US);
        for (climbed, leased, reach, expected) in [
            (false, None, Reach::Connected, Step::Climb),
            (true, None, Reach::Connected, Step::Operator),
            (false, None, Reach::Nobody, Step::Operator),
            (true, None, Reach::Nobody, Step::Operator),
            // A session that is about to come back is waited for.
            (false, None, Reach::Live, retry),
            (true, None, Reach::Live, Step::Operator),
            // Whoever reads it right now is left in peace.
            (false, Some(5), Reach::Connected, later(5)),
            (true, Some(5), Reach::Nobody, later(5)),
            (false, Some(0), Reach::Connected, Step::Climb),
            (
                false,
                Some(LEASE_AHEAD_US),
                Reach::Connected,
                later(LEASE_AHEAD_US),
            ),
            // A lease of before the clock was set back is over.
            (
                false,
                Some(LEASE_AHEAD_US + 1),
                Reach::Connected,
                Step::Climb,
            ),
        ] {
            let due = Due {
                climbed,
                leased_until: leased.map(|us| NOW.plus_us(us)),
                reach,
            };
            assert_eq!(step(due, NOW), expected, "{due:?}");
        }
    }

    #[test]
    fn nothing_is_put_off_further_than_its_longest_window() {
        let settings: Escalation =
            serde_json::from_str(r#"{"ask_s": 500, "blocker_s": 0}"#).unwrap();
        assert_eq!(settings.ahead_us(), 1000 * SECOND_US);
        let off: Escalation = serde_json::from_str(r#"{"ask_s": 0, "blocker_s": 0}"#).unwrap();
        assert_eq!(off.ahead_us(), 2 * LEASE_US);
    }

    fn told(n: u128, summary: &str) -> Told {
        Told {
            to: "Texi".into(),
            entry: Entry {
                ts: NOW,
                cat: Category::Ask,
                sig_type: "Question".into(),
                from: "Ada".into(),
                summary: summary.into(),
                sid: uuid::Uuid::from_u128(n).to_string(),
                read: false,
                pid: None,
            },
        }
    }

    #[test]
    fn the_operator_reads_who_waits_for_whom_and_no_text_of_theirs_is_an_option() {
        assert_eq!(
            told(1, "which port?").entry().summary,
            "for Texi: which port?"
        );
        let long = told(1, &"x".repeat(300)).entry().summary;
        assert_eq!(long.chars().count(), SUMMARY_CHARS_MAX);
        assert_eq!(notification(&[]), None);
        let (title, body) = notification(&[told(1, "a"), told(2, "--icon=/x\u{1b}[31m")]).unwrap();
        assert_eq!(title, "ASK from Ada waits for Texi");
        assert_eq!(body, "Ada: --icon=/x (and 1 more)");
    }

    #[test]
    fn a_program_is_named_with_or_without_arguments_and_never_through_a_shell() {
        let read = |text: &str| -> Escalation { serde_json::from_str(text).unwrap() };
        let parts = |e: &Escalation| {
            let parts = e.notify.as_ref().and_then(Program::parts);
            parts.map(|(p, a)| (p.to_owned(), a.to_vec()))
        };
        let alone = read(r#"{"notify": "notify-send"}"#);
        assert_eq!(parts(&alone), Some(("notify-send".into(), vec![])));
        let with = read(r#"{"notify": ["say", "-v", "x; rm"], "ask_s": 5}"#);
        let arguments = vec!["-v".to_owned(), "x; rm".to_owned()];
        assert_eq!(parts(&with), Some(("say".into(), arguments)));
        for nothing in [r#"{"notify": []}"#, r#"{"notify": " "}"#, "{}"] {
            assert_eq!(parts(&read(nothing)), None, "{nothing}");
        }
    }
}
