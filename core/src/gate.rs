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
    let text = assignment.text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "()[]{}<>\"'`,;|".contains(c))
        .map(|w| w.trim_end_matches(['.', ':', '!', '?']))
        .filter(|w| !w.is_empty())
        .collect();
    // A path named in the text counts as mentioned.
    let named = words
        .iter()
        .filter(|w| w.contains('/') || w.ends_with(".md"))
        .map(|w| (*w).to_owned());
    let paths: Vec<String> = assignment
        .paths
        .iter()
        .map(|p| p.to_lowercase())
        .chain(named)
        .map(|p| p.trim_start_matches("./").to_owned())
        .collect();
    let tags: Vec<String> = assignment
        .tags
        .iter()
        .map(|t| t.trim().to_lowercase())
        .collect();
    let governing = words.iter().find(|w| {
        GOVERNING
            .iter()
            .any(|stem| w.split('-').any(|part| part.starts_with(stem)))
    });

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

fn under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        || path.contains(&format!("/{folder}/"))
}

/// Something the session did that bears on the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    Recall(Uuid),
    /// A verb that produces something others will read.
    Material,
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
pub fn judge(arrived: Moment, deeds: &[(Moment, Deed)]) -> Window {
    let mut deeds: Vec<_> = deeds
        .iter()
        .filter(|(at, _)| arrived.since_us(*at) <= BEFORE_US)
        .collect();
    deeds.sort_by_key(|(at, _)| *at);
    let first_material = deeds
        .iter()
        .find(|(at, deed)| *deed == Deed::Material && *at >= arrived)
        .map(|(at, _)| *at);
    let recalls: Vec<Uuid> = deeds
        .iter()
        .filter(|(at, _)| first_material.is_none_or(|m| *at <= m))
        .filter_map(|(_, deed)| match deed {
            Deed::Recall(id) => Some(*id),
            Deed::Material => None,
        })
        .collect();
    match (recalls.is_empty(), first_material) {
        (false, _) => Window::Satisfied(recalls),
        (true, None) => Window::Open,
        (true, Some(_)) => Window::Missed,
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
        let recall = Deed::Recall(Uuid::from_u128(1));
        let satisfied = Window::Satisfied(vec![Uuid::from_u128(1)]);
        for (name, deeds, expected) in [
            (
                "recall 30 s before arrival",
                vec![(at(-30), recall)],
                satisfied.clone(),
            ),
            (
                "recall 60 s before arrival",
                vec![(at(-60), recall)],
                satisfied.clone(),
            ),
            (
                "recall 90 s before arrival",
                vec![(at(-90), recall)],
                Window::Open,
            ),
            (
                "recall after arrival, before any material output",
                vec![(at(10), recall), (at(20), Deed::Material)],
                satisfied.clone(),
            ),
            (
                "no recall, then material output",
                vec![(at(5), Deed::Material)],
                Window::Missed,
            ),
            (
                "recall after the material output",
                vec![(at(5), Deed::Material), (at(6), recall)],
                Window::Missed,
            ),
            (
                "only an ACK: neither recall nor material",
                vec![],
                Window::Open,
            ),
            (
                "material output before arrival says nothing",
                vec![(at(-5), Deed::Material)],
                Window::Open,
            ),
            (
                "a recall before, then material",
                vec![(at(-5), recall), (at(5), Deed::Material)],
                satisfied,
            ),
        ] {
            assert_eq!(judge(T0, &deeds), expected, "{name}");
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
