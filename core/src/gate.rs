//! Recallgate: did work begin with a look at what was learned?
//!
//! Three pure functions: classify the assignment, judge the window, say the
//! event. The gate advises; it never refuses, and it warns once.

use crate::moment::Moment;
use crate::signal::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// How long before an assignment's arrival a recall still counts, in microseconds.
pub const BEFORE_US: i64 = 60 * 1_000_000;
/// Labelled warnings that a verdict on precision needs.
pub const LABELS_MIN: u64 = 50;
/// The precision that warnings should have.
pub const PRECISION_TARGET: f64 = 0.7;
/// How often labelled warnings were right, and what that means: `ok`, `low`, or `too_few_labels`.
pub fn precision(labelled: u64, right: u64) -> (Option<f64>, &'static str) {
    let precision = (labelled > 0).then(|| right as f64 / labelled as f64);
    let verdict = match precision {
        Some(p) if labelled >= LABELS_MIN && p >= PRECISION_TARGET => "ok",
        Some(_) if labelled >= LABELS_MIN => "low",
        _ => "too_few_labels",
    };
    (precision, verdict)
}

/// Characters of a payload that are read; a longer one is a document.
const TEXT_CHARS_MAX: usize = 20_000;

names! {
    TaskClass { Tier1 = "tier1", Tier2 = "tier2", Unmatched = "unmatched" }
}

names! {
    Mode { Off = "off", Advisory = "advisory", Enforce = "enforce" }
}

names! {
    GateOutcome { Satisfied = "satisfied", Warned = "warned" }
}

names! {
    /// Where the gate noticed.
    Trigger { Ack = "ack", TodoAdd = "todo_add", MaterialOutput = "material_output", Recall = "recall" }
}

/// What is known of an assignment when it is judged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    pub text: String,
    pub tags: Vec<String>,
    pub paths: Vec<String>,
}

/// A class, and the words, tags or paths that put it there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classified {
    pub class: TaskClass,
    pub because: Vec<String>,
}

const TIER1_TAGS: [&str; 12] = [
    "governance",
    "ratification",
    "spec-implementation",
    "spec-ratify",
    "authority",
    "method-fragment",
    "adr",
    "cross-lane",
    "session-binding",
    "identity-routing",
    "enforcement",
    "observability-contract",
];
const TIER2_TAGS: [&str; 3] = ["dashboard", "ui", "telemetry"];
/// Stems of words that speak of implementing, ratifying or governing.
const GOVERNING: [&str; 3] = ["implement", "ratif", "govern"];
const BIOS: [&str; 2] = ["claude.md", "agents.md"];

impl Assignment {
    /// Flattens a signal's payload; what is missing or not text is not there.
    pub fn of_payload(payload: &Map<String, Value>) -> Self {
        let list = |field: &str| match payload.get(field) {
            Some(Value::Array(items)) => items
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
            Some(Value::String(one)) => one
                .split(',')
                .map(|s| s.trim().to_owned())
                .filter(|s| !s.is_empty())
                .collect(),
            _ => Vec::new(),
        };
        let text = |field: &str| match payload.get(field) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(items)) => items
                .iter()
                .filter_map(Value::as_str)
                .collect::<Vec<_>>()
                .join(" "),
            _ => String::new(),
        };
        let joined = ["summary", "title", "subject", "body", "ask", "next_actions"]
            .map(text)
            .join("\n");
        Self {
            text: joined.chars().take(TEXT_CHARS_MAX).collect(),
            tags: list("tags"),
            paths: list("paths"),
        }
    }
}

/// Classifies by what is said, never by what might be touched later; in doubt, unmatched.
pub fn classify(assignment: &Assignment) -> Classified {
    let text = without_urls(&assignment.text.to_lowercase());
    let (named, prose): (Vec<&str>, Vec<&str>) = text
        .split(|c: char| c.is_whitespace() || SEPARATORS.contains(c))
        .map(|word| word.trim_matches(is_markup))
        .filter(|word| !word.is_empty())
        .partition(|word| is_path(word));
    // A path named in the text counts as mentioned; what it is called says nothing of the task.
    let paths: Vec<String> = assignment
        .paths
        .iter()
        .map(|path| without_urls(&path.trim().to_lowercase()))
        .chain(named.into_iter().map(str::to_owned))
        .map(|path| bare_path(&path))
        .filter(|path| !path.is_empty())
        .collect();
    let tags: Vec<String> = assignment
        .tags
        .iter()
        .map(|t| t.trim().to_lowercase())
        .collect();
    let governing = prose.iter().find(|word| word.split('-').any(governs));

    let mut tier1: Vec<String> = tags
        .iter()
        .filter(|t| TIER1_TAGS.contains(&t.as_str()))
        .map(|t| format!("tag {t}"))
        .collect();
    let mut tier2: Vec<String> = tags
        .iter()
        .filter(|t| TIER2_TAGS.contains(&t.as_str()))
        .map(|t| format!("tag {t}"))
        .collect();
    for path in &paths {
        let file = path.rsplit('/').next().unwrap_or(path);
        if BIOS.contains(&file) || under(path, "docs/method-fragments") || under(path, "docs/adrs")
        {
            tier1.push(format!("path {path}"));
        } else if under(path, "docs/specs") {
            match governing {
                Some(word) => tier1.push(format!("path {path} with “{word}”")),
                None => tier2.push(format!("path {path}")),
            }
        } else if under(path, "docs") || under(path, "dashboard") {
            tier2.push(format!("path {path}"));
        }
    }
    let (class, mut because) = match (tier1.is_empty(), tier2.is_empty()) {
        (false, _) => (TaskClass::Tier1, tier1),
        (true, false) => (TaskClass::Tier2, tier2),
        (true, true) => (TaskClass::Unmatched, Vec::new()),
    };
    because.sort();
    because.dedup();
    Classified { class, because }
}

/// What stands between words besides spaces.
const SEPARATORS: &str = "()[]{}<>\"'`,;|=+“”„‘’«»…—–";
/// Ends of host names that people write without `https://`.
const HOST_ENDINGS: [&str; 6] = [".com", ".org", ".net", ".io", ".dev", ".ai"];

/// Emphasis, mentions and punctuation around a word.
fn is_markup(c: char) -> bool {
    "@*_~#.:!?".contains(c)
}

/// Blanks out web addresses: a watched path within one is not of this project.
fn without_urls(text: &str) -> String {
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some(at) = rest.find("://") {
        let scheme = rest[..at]
            .rfind(|c: char| !c.is_ascii_alphanumeric())
            .map_or(0, |i| {
                i + rest[i..].chars().next().map_or(1, char::len_utf8)
            });
        kept.push_str(&rest[..scheme]);
        kept.push(' ');
        let end = rest[at..]
            .find(|c: char| c.is_whitespace() || "()[]<>\"`".contains(c))
            .map_or(rest.len(), |i| at + i);
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

/// Says whether a word names a file or folder: it has a slash, or ends like a file.
fn is_path(word: &str) -> bool {
    if let Some((first, _)) = word.split_once(['/', '\\']) {
        // “implement/ratify” is two words, not a folder.
        return first.is_empty() || !word.split('/').all(governs);
    }
    let name = word.split([':', '#']).next().unwrap_or(word);
    name.rsplit_once('.').is_some_and(|(stem, ending)| {
        !stem.is_empty()
            && (1..=5).contains(&ending.len())
            && ending.chars().all(|c| c.is_ascii_alphanumeric())
            && ending.starts_with(|c: char| c.is_ascii_alphabetic())
    })
}

fn governs(word: &str) -> bool {
    GOVERNING.iter().any(|stem| word.starts_with(stem))
}

/// A path as this project would write it: forward slashes, no mention, line or anchor; empty when
/// it is on another host.
fn bare_path(path: &str) -> String {
    let path = path.replace('\\', "/");
    let path = path.trim_matches(|c| SEPARATORS.contains(c) || is_markup(c) && c != '.');
    let path = path.split('#').next().unwrap_or(path);
    // `:12`, `:12:3` and `:12-20` say where in the file.
    let line = path
        .char_indices()
        .find(|(i, c)| *c == ':' && path[i + 1..].starts_with(|d: char| d.is_ascii_digit()))
        .map_or(path.len(), |(i, _)| i);
    let path = path[..line].trim_end_matches(['.', ':', '!', '?']);
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    let host = path.split('/').next().unwrap_or_default();
    let elsewhere = path.contains('/')
        && (host.starts_with("www.") || HOST_ENDINGS.iter().any(|end| host.ends_with(end)));
    if elsewhere {
        String::new()
    } else {
        path.to_owned()
    }
}

fn under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || path.contains(&format!("/{folder}/"))
        || path.ends_with(&format!("/{folder}"))
}

/// A recall as the gate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallFact {
    pub id: Uuid,
    pub at: Moment,
    /// When whoever recalled had last produced something.
    pub output_before: Option<Moment>,
}

/// Whether the agent looked before it leapt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    Satisfied(Vec<Uuid>),
    /// Nothing material yet.
    Open,
    /// Material output came first.
    Missed,
}

/// Judges the window of an assignment: a recall up to a minute before its
/// arrival, or after it and before the first material output.
pub fn judge(arrived: Moment, recalls: &[RecallFact], last_output: Option<Moment>) -> Window {
    let since_arrival = |output: Option<Moment>| output.is_some_and(|at| at >= arrived);
    let satisfying: Vec<Uuid> = recalls
        .iter()
        .filter(|r| arrived.since_us(r.at) <= BEFORE_US)
        .filter(|r| r.at <= arrived || !since_arrival(r.output_before))
        .map(|r| r.id)
        .collect();
    match (satisfying.is_empty(), since_arrival(last_output)) {
        (false, _) => Window::Satisfied(satisfying),
        (true, false) => Window::Open,
        (true, true) => Window::Missed,
    }
}

/// The advice that rides on an acknowledgment or a new todo.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateWarning {
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    pub remediation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_query: Option<String>,
}

pub fn warning(class: TaskClass, assignment_id: &str, assignment: &Assignment) -> GateWarning {
    let first_line = assignment
        .text
        .lines()
        .map(str::trim)
        .find(|l| !l.is_empty())
        .unwrap_or_default();
    GateWarning {
        kind: "missing_recall_on_task_start".into(),
        task_class: Some(class.name().into()),
        assignment_id: Some(assignment_id.into()),
        remediation: "Ask semantic_recall what was learned about this kind of task before you produce anything.".into(),
        suggested_query: Some(crate::text::clip(&crate::text::one_line(first_line), 120)),
    }
}

/// What an assignment is called in every event about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AssignmentSource {
    Signal(Uuid),
    Todo { project: Uuid, number: i64 },
    Unknown,
}

impl AssignmentSource {
    pub fn id(&self) -> Result<String, Box<GateWarning>> {
        match self {
            Self::Signal(id) => Ok(id.to_string()),
            Self::Todo { project, number } => Ok(format!("todo:{project}:{number}")),
            Self::Unknown => Err(Box::new(GateWarning {
                kind: "assignment_id_unknown".into(),
                task_class: None,
                assignment_id: None,
                remediation: "The gate cannot tell which assignment this is and leaves it alone."
                    .into(),
                suggested_query: None,
            })),
        }
    }
}

/// When a verb counts as work produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Material {
    Always,
    CreateOrUpdate,
    /// A signal is work, unless it only acknowledges or probes.
    UnlessAcknowledging,
}

impl Material {
    pub fn is_met(self, action: Option<&str>, signal_type: Option<&str>) -> bool {
        match self {
            Self::Always => true,
            Self::CreateOrUpdate => matches!(action, Some("create" | "update")),
            Self::UnlessAcknowledging => {
                !matches!(signal_type, Some("Acknowledgment" | "Loopback"))
            }
        }
    }
}

/// Reads the mode; `enforce` runs as advisory, and anything unknown refuses to start.
pub fn parse_mode(value: Option<&str>) -> Result<(Mode, Option<&'static str>), crate::Problem> {
    match value
        .map(str::trim)
        .filter(|v| !v.is_empty())
        .map(|v| Mode::from_name(&v.to_ascii_lowercase()))
    {
        None => Ok((Mode::Advisory, None)),
        Some(Some(Mode::Enforce)) => Ok((
            Mode::Advisory,
            Some("PRISM_RECALLGATE_MODE=enforce is not in this version: the gate advises"),
        )),
        Some(Some(mode)) => Ok((mode, None)),
        Some(None) => Err(crate::Problem::field(
            "PRISM_RECALLGATE_MODE",
            format!(
                "is {:?} and must be off or advisory",
                crate::text::clip(value.unwrap_or_default(), 40)
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const T0: Moment = Moment(1_000_000_000);

    #[track_caller]
    fn class(text: &str, tags: &[&str], paths: &[&str], expected: TaskClass) {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        let got = classify(&Assignment {
            text: text.into(),
            tags: own(tags),
            paths: own(paths),
        });
        assert_eq!(
            got.class, expected,
            "{text} {tags:?} {paths:?}: {:?}",
            got.because
        );
        assert_eq!(got.because.is_empty(), expected == TaskClass::Unmatched);
    }

    #[test]
    fn tier1_a_specs_path_with_a_ratify_token() {
        class(
            "Please ratify docs/specs/spec-099.md",
            &[],
            &[],
            TaskClass::Tier1,
        );
        class(
            "implementing the gate",
            &[],
            &["docs/specs/spec-099.md"],
            TaskClass::Tier1,
        );
        class(
            "a governance change",
            &[],
            &["docs/specs/x.md"],
            TaskClass::Tier1,
        );
        class(
            "Spec-Implementation of x",
            &["Spec-Implementation"],
            &[],
            TaskClass::Tier1,
        );
    }

    #[test]
    fn tier1_a_bios_path_mention() {
        class("edit CLAUDE.md", &[], &[], TaskClass::Tier1);
        class("touch up", &[], &["templates/AGENTS.md"], TaskClass::Tier1);
    }

    #[test]
    fn tier1_a_listed_tag_without_case() {
        for tag in TIER1_TAGS {
            class("x", &[&tag.to_uppercase()], &[], TaskClass::Tier1);
        }
        class("move it", &[], &["docs/adrs/027.md"], TaskClass::Tier1);
        class(
            "see docs/method-fragments/wall.md",
            &[],
            &[],
            TaskClass::Tier1,
        );
    }

    #[test]
    fn tier2_routine_docs_and_dashboard_work() {
        class("fix a typo in docs/guide.md", &[], &[], TaskClass::Tier2);
        class(
            "fix a typo",
            &[],
            &["docs/specs/spec-001.md"],
            TaskClass::Tier2,
        );
        class("new colour", &["ui"], &[], TaskClass::Tier2);
        class("new panel", &[], &["dashboard/src/x.tsx"], TaskClass::Tier2);
    }

    #[test]
    fn what_a_path_is_called_says_nothing_of_the_task() {
        for text in [
            "fix a typo in docs/specs/spec-governance.md",
            "fix a typo in docs/specs/implementing/ratification.md",
            "fix a typo in docs/specs/x.md, as in governance.md",
            "fix a typo in docs/specs/x.md and src/governor.rs",
            "fix docs/specs/x.md, see https://example.org/govern/ratify",
        ] {
            class(text, &[], &[], TaskClass::Tier2);
        }
        class(
            "fix a typo",
            &[],
            &["docs/specs/ratify.md"],
            TaskClass::Tier2,
        );
        class(
            "implement/ratify docs/specs/x.md",
            &[],
            &[],
            TaskClass::Tier1,
        );
        class(
            "self-governance: docs/specs/x.md",
            &[],
            &[],
            TaskClass::Tier1,
        );
    }

    #[test]
    fn a_path_is_known_however_it_is_written() {
        for bios in [
            "see @CLAUDE.md",
            "**AGENTS.md** is wrong",
            "__agents.md__",
            "CLAUDE.md:12 is wrong",
            "CLAUDE.md:12:3, please",
            "CLAUDE.md:12-20.",
            "CLAUDE.md#rules",
            "(CLAUDE.md)",
            "is it in CLAUDE.md?",
            "CLAUDE.md's second rule",
            "CLAUDE.md…",
            "`templates/AGENTS.md`.",
            "templates\\AGENTS.md",
            "./CLAUDE.md",
            "[rules](CLAUDE.md)",
        ] {
            class(bios, &[], &[], TaskClass::Tier1);
        }
        for spec in [
            "@docs/specs/x.md",
            "`docs/specs/x.md`",
            "“docs/specs/x.md”",
            "docs/specs/x.md:40!",
            "docs\\specs\\x.md",
            "C:\\work\\docs\\specs\\x.md",
            "/home/me/work/docs/specs/x.md",
            "**docs/specs/**",
        ] {
            class(&format!("look at {spec}"), &[], &[], TaskClass::Tier2);
            class(&format!("ratify {spec}"), &[], &[], TaskClass::Tier1);
            class("ratify it", &[], &[spec], TaskClass::Tier1);
        }
        class("ratify path=docs/specs/x.md", &[], &[], TaskClass::Tier1);
    }

    #[test]
    fn a_web_address_is_not_a_path_of_this_project() {
        for url in [
            "https://example.org/docs/specs/x.md",
            "(https://example.org/docs/specs/x.md)",
            "[x](https://example.org/a;b/docs/specs/x.md)",
            "<http://example.org/CLAUDE.md>",
            "github.com/who/what/blob/main/docs/adrs/1.md",
            "www.example.org/docs/adrs/1.md",
        ] {
            class(&format!("ratify {url}"), &[], &[], TaskClass::Unmatched);
        }
        class(
            "ratify",
            &[],
            &["https://example.org/docs/specs/x.md"],
            TaskClass::Unmatched,
        );
        class(
            "ratify https://a.org/x docs/specs/x.md",
            &[],
            &[],
            TaskClass::Tier1,
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_and_path_has_a_class(text in "\\PC{0,80}", path in "[a-z:/#.@*é\\\\]{0,24}") {
            let both = Assignment { text: format!("{text} {path}://{path} {path}"), tags: vec![], paths: vec![path] };
            let got = classify(&both);
            proptest::prop_assert_eq!(got.because.is_empty(), got.class == TaskClass::Unmatched);
        }
    }

    #[test]
    fn tier1_beats_tier2() {
        class(
            "fix docs/guide.md",
            &["dashboard", "governance"],
            &[],
            TaskClass::Tier1,
        );
    }

    #[test]
    fn unmatched_housekeeping_and_routine_tasks() {
        class("clean up old branches", &[], &[], TaskClass::Unmatched);
        class(
            "run the smoke test again and report",
            &["smoke"],
            &["src/ring.rs"],
            TaskClass::Unmatched,
        );
        class(
            "implement the retry budget",
            &[],
            &["src/retry.rs"],
            TaskClass::Unmatched,
        );
        class("", &[], &[], TaskClass::Unmatched);
        class(
            "look at mydocs/specs-old and documents",
            &[],
            &[],
            TaskClass::Unmatched,
        );
    }

    #[test]
    fn a_payload_is_read_for_what_is_there_and_text() {
        let payload = json!({"summary": "ratify", "body": 7, "next_actions": ["read docs/specs/x.md", 3], "tags": "ui, Governance", "paths": {"a": 1}});
        let assignment = Assignment::of_payload(payload.as_object().unwrap());
        assert_eq!(assignment.tags, ["ui", "Governance"]);
        assert_eq!(classify(&assignment).class, TaskClass::Tier1);
        assert_eq!(
            classify(&Assignment::of_payload(&Map::new())).class,
            TaskClass::Unmatched
        );
        let huge = json!({"body": "x ".repeat(100_000)});
        assert!(
            Assignment::of_payload(huge.as_object().unwrap())
                .text
                .chars()
                .count()
                <= TEXT_CHARS_MAX
        );
    }

    fn at(s: i64) -> Moment {
        T0.plus_s(s)
    }

    #[test]
    fn the_recent_window() {
        // At second `s`, having produced something at second `after`.
        let recall = |s: i64, after: Option<i64>| RecallFact {
            id: Uuid::from_u128(1),
            at: at(s),
            output_before: after.map(at),
        };
        let satisfied = || Window::Satisfied(vec![Uuid::from_u128(1)]);
        for (name, recalls, last_output, expected) in [
            (
                "recall 30 s before arrival",
                vec![recall(-30, None)],
                None,
                satisfied(),
            ),
            (
                "recall 60 s before arrival",
                vec![recall(-60, None)],
                None,
                satisfied(),
            ),
            (
                "recall 90 s before arrival",
                vec![recall(-90, None)],
                None,
                Window::Open,
            ),
            (
                "recall after arrival, before any material output",
                vec![recall(10, None)],
                Some(20),
                satisfied(),
            ),
            (
                "recall after arrival, ages before the ACK",
                vec![recall(10, Some(-500))],
                Some(100_000),
                satisfied(),
            ),
            (
                "no recall, then material output",
                vec![],
                Some(5),
                Window::Missed,
            ),
            (
                "recall after the material output",
                vec![recall(6, Some(5))],
                Some(5),
                Window::Missed,
            ),
            (
                "recall after the material output, and more output",
                vec![recall(6, Some(5))],
                Some(9),
                Window::Missed,
            ),
            (
                "only an ACK: neither recall nor material",
                vec![],
                None,
                Window::Open,
            ),
            (
                "material output before arrival says nothing",
                vec![],
                Some(-5),
                Window::Open,
            ),
            (
                "a recall after output that came before arrival",
                vec![recall(5, Some(-5))],
                Some(-5),
                satisfied(),
            ),
            (
                "a recall before, then material",
                vec![recall(-5, Some(-9))],
                Some(5),
                satisfied(),
            ),
        ] {
            assert_eq!(judge(T0, &recalls, last_output.map(at)), expected, "{name}");
        }
    }

    #[test]
    fn an_assignment_is_named_by_its_signal_or_its_todo() {
        assert_eq!(
            AssignmentSource::Signal(Uuid::from_u128(5)).id().unwrap(),
            Uuid::from_u128(5).to_string()
        );
        assert_eq!(
            AssignmentSource::Todo {
                project: Uuid::from_u128(5),
                number: 12
            }
            .id()
            .unwrap(),
            format!("todo:{}:12", Uuid::from_u128(5))
        );
        assert_eq!(
            AssignmentSource::Unknown.id().unwrap_err().kind,
            "assignment_id_unknown"
        );
    }

    #[test]
    fn the_mode_is_off_advisory_or_refused_and_enforce_advises() {
        assert_eq!(parse_mode(None).unwrap(), (Mode::Advisory, None));
        assert_eq!(parse_mode(Some("OFF")).unwrap().0, Mode::Off);
        let (mode, said) = parse_mode(Some("enforce")).unwrap();
        assert!(mode == Mode::Advisory && said.is_some());
        assert!(parse_mode(Some("strict")).is_err());
    }
}
