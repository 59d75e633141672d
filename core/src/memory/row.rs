//! What each kind of row is: what is stored of it, and what recall knows of it.
//!
//! Verbs and imports build rows here, so a row reads the same whichever way it came.

use super::entity::Entity;
use super::import::NOT_SAID;
use super::operator::{Class, Confidence, Directness, Verdict};
use super::question::cue;
use super::reference::Reference;
use super::vector::RULED_OUT;
use super::{DeltaKind, EdgeKind, Indexed, Kind};
use crate::api::memory::{ArtifactView, RuledOut};
use crate::{Problem, text};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// A row as it is stored, by the table it stands in.
#[derive(Clone, Debug)]
pub enum Row {
    Delta(DeltaRow),
    Confirmation(ConfirmationRow),
    Input(InputRow),
    Artifact(ArtifactRow),
}

#[derive(Clone, Debug)]
pub struct DeltaRow {
    pub kind: DeltaKind,
    pub summary: String,
    pub next: Option<String>,
    pub open_loops: Vec<String>,
    pub touched_files: Vec<String>,
    pub touched_files_source: &'static str,
    pub operator_visible_effect: Option<String>,
    pub tried_and_ruled_out: Vec<RuledOut>,
    pub subject: Option<String>,
    pub tags: Vec<String>,
    pub operator_sees: Option<String>,
    pub pieces: Vec<String>,
    pub would_break_it: Option<String>,
}

impl DeltaRow {
    pub fn of(kind: DeltaKind, summary: impl Into<String>) -> Self {
        Self {
            kind,
            summary: summary.into(),
            next: None,
            open_loops: Vec::new(),
            touched_files: Vec::new(),
            touched_files_source: "none",
            operator_visible_effect: None,
            tried_and_ruled_out: Vec::new(),
            subject: None,
            tags: Vec::new(),
            operator_sees: None,
            pieces: Vec::new(),
            would_break_it: None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ConfirmationRow {
    pub refers_to_kind: &'static str,
    /// A whole id, or the name of a spec or commit as it was written.
    pub refers_to_id: String,
    pub verdict: Verdict,
    pub notes: Option<String>,
    pub confirmed_by: String,
    pub confirmed_via: String,
    pub directness: Directness,
    pub on_own_delta: bool,
}

#[derive(Clone, Debug)]
pub struct InputRow {
    pub class: Class,
    pub prompt_text: String,
    pub triggered_action: Option<String>,
    pub reverses_delta: Option<Uuid>,
    pub confidence: Confidence,
}

#[derive(Clone, Debug)]
pub struct ArtifactRow {
    pub kind: Kind,
    /// Whether it gets the next number of its kind.
    pub numbered: bool,
    pub title: String,
    pub body: String,
    pub fields: Map<String, Value>,
    pub status: String,
}

/// A node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// The id of a row, or `signal:<id>`, `session:<id>`, `attempt:<delta>#<n>`.
    Id(String),
    /// A thing that rows name; the store knows its number.
    Entity(Entity),
    /// What a session did last, else the session.
    Work(Uuid),
}

#[derive(Clone, Debug)]
pub struct Edge {
    /// None: the row itself.
    pub src: Option<String>,
    pub kind: EdgeKind,
    pub dst: Node,
}

impl Edge {
    /// From the row itself.
    pub const fn to(kind: EdgeKind, dst: Node) -> Self {
        Self {
            src: None,
            kind,
            dst,
        }
    }
}

/// Parts of an artifact: each is a field of its own in the index.
pub type Parts = Vec<(&'static str, Option<String>)>;

/// What recall knows of a delta: its words, what the operator sees, what was ruled out.
pub fn delta(kind: Kind, identity: &str, row: &DeltaRow) -> Indexed {
    let mut fields = vec![
        ("summary", Some(row.summary.clone())),
        (
            "operator_visible_effect",
            row.operator_visible_effect.clone(),
        ),
    ];
    let told = |a: &RuledOut| {
        if a.outcome == NOT_SAID {
            a.approach.clone()
        } else {
            format!("{}: {}", a.approach, a.outcome)
        }
    };
    fields.extend(row.tried_and_ruled_out.iter().map(|a| {
        (
            "tried_and_ruled_out",
            Some(format!("{RULED_OUT}{}", told(a))),
        )
    }));
    fields.extend([
        ("next", row.next.clone()),
        (
            "open_loops",
            (!row.open_loops.is_empty()).then(|| row.open_loops.join("\n")),
        ),
    ]);
    let mut label = format!("{identity} {kind}");
    if row.operator_visible_effect.is_some() {
        label.push_str(" what the operator sees");
    }
    if !row.tried_and_ruled_out.is_empty() {
        label.push_str(" dead end tried ruled out");
    }
    Indexed::new(kind, row.subject.as_deref(), label, fields).found_by(&row.touched_files)
}

/// Each attempt is a node that points at the delta it was ruled out in, and at the one that tells
/// of it.
pub fn attempts_to_edges(delta: Uuid, attempts: &[RuledOut]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (n, attempt) in attempts.iter().enumerate() {
        let src = Some(format!("attempt:{delta}#{n}"));
        edges.push(Edge {
            src: src.clone(),
            kind: EdgeKind::RuledOutIn,
            dst: Node::Id(delta.to_string()),
        });
        edges.extend(attempt.ruled_out_in_delta.clone().map(|dst| Edge {
            src,
            kind: EdgeKind::RuledOutIn,
            dst: Node::Id(dst),
        }));
    }
    edges
}

/// A note, or another delta that is its own words.
pub fn words(
    kind: DeltaKind,
    identity: &str,
    body: String,
    subject: Option<String>,
    tags: Vec<String>,
) -> (Row, Indexed) {
    let mut row = DeltaRow::of(kind, body);
    (row.subject, row.tags) = (subject, tags);
    let label = format!("{identity} {kind} {}", row.tags.join(" "));
    let indexed = Indexed::new(
        Kind::of_delta(kind).unwrap_or(Kind::Other),
        row.subject.as_deref(),
        label,
        vec![("body", Some(row.summary.clone()))],
    );
    (Row::Delta(row), indexed)
}

/// A fact or a rule.
pub fn standing(
    kind: Kind,
    identity: &str,
    body: String,
    subject: Option<String>,
    tags: &[String],
) -> (Row, Indexed) {
    let title = subject
        .clone()
        .unwrap_or_else(|| text::clip(&text::one_line(&body), 80));
    let label = format!("{identity} {kind} {}", tags.join(" "));
    let indexed = Indexed::new(
        kind,
        subject.as_deref(),
        label,
        vec![("body", Some(body.clone()))],
    );
    let fields = Map::from_iter([("tags".to_owned(), json!(tags))]);
    (
        Row::Artifact(ArtifactRow {
            kind,
            numbered: false,
            title,
            body,
            fields,
            status: "current".into(),
        }),
        indexed,
    )
}

/// The three answers of an integration narrative, and what else was said.
pub struct Narrative {
    pub operator_sees: String,
    pub pieces: Vec<String>,
    pub would_break_it: String,
    pub body: Option<String>,
    pub subject: Option<String>,
    pub tags: Vec<String>,
}

pub fn narrative(identity: &str, told: Narrative) -> (Row, Indexed) {
    let mut row = DeltaRow::of(
        DeltaKind::IntegrationNarrative,
        told.body
            .clone()
            .unwrap_or_else(|| told.operator_sees.clone()),
    );
    row.pieces.clone_from(&told.pieces);
    row.subject.clone_from(&told.subject);
    row.tags = told.tags;
    (row.operator_sees, row.would_break_it) = (
        Some(told.operator_sees.clone()),
        Some(told.would_break_it.clone()),
    );
    let label = format!(
        "{identity} integration narrative what the operator sees what would break it {}",
        row.tags.join(" ")
    );
    let said = |text: String| Some(text).filter(|t| t != NOT_SAID);
    let mut fields = vec![
        ("operator_sees", said(told.operator_sees)),
        ("body", told.body),
        ("would_break_it", said(told.would_break_it)),
    ];
    // A piece in words says something; one that is a reference only names it.
    let (words, names): (Vec<String>, Vec<String>) = told
        .pieces
        .into_iter()
        .filter(|p| p != NOT_SAID)
        .partition(|p| is_told(p));
    fields.extend(words.into_iter().map(|piece| ("piece", Some(piece))));
    fields.push(("pieces", Some(names.join(", ")).filter(|n| !n.is_empty())));
    (
        Row::Delta(row),
        Indexed::new(
            Kind::IntegrationNarrative,
            told.subject.as_deref(),
            label,
            fields,
        ),
    )
}

/// Whether a piece of a narrative is told in words instead of named.
pub fn is_told(piece: &str) -> bool {
    piece.split_whitespace().count() > 2
}

/// A verdict of the operator on something; `about` is what that something said.
pub fn confirmation(
    row: ConfirmationRow,
    target: &Reference,
    about: Option<&str>,
) -> (Row, Indexed) {
    let (operator, verdict) = (&row.confirmed_by, row.verdict);
    let refers_to = format!("{}:{}", row.refers_to_kind, row.refers_to_id);
    let label = format!(
        "{operator} the operator {} verdict {verdict} {refers_to} working state",
        verdict.says()
    );
    let title = format!("{operator} {}", verdict.says());
    let mut fields = vec![
        ("notes", row.notes.clone()),
        ("about", about.map(|said| format!("about: {said}"))),
    ];
    // Specs, commits and signals go by their names; an id of a delta tells nobody anything.
    let named = !matches!(target, Reference::Delta(_));
    fields.push(("refers_to", named.then(|| refers_to.clone())));
    let indexed = Indexed::new(Kind::Confirmation, Some(&title), label, fields)
        .found_by(&[refers_to, target.also_written()])
        .with_cue(if verdict == Verdict::Works {
            cue::CONFIRMATION
        } else {
            cue::TROUBLE
        });
    (Row::Confirmation(row), indexed)
}

/// What the operator typed, and to whom: the agent that captured it, or whose work it reverses when
/// the operator wrote it down with their own hands.
pub fn input(operator: &str, spoken_to: Option<&str>, row: InputRow) -> (Row, Indexed) {
    let (class, deed) = (row.class, row.class.deed());
    let object = spoken_to.map(|name| format!(" {name}")).unwrap_or_default();
    let title = format!("{operator} {deed}{object}");
    let label = format!("{operator} the operator {deed}{object} {class} instead");
    let indexed = Indexed::new(
        Kind::OperatorInput,
        Some(&title),
        label,
        vec![
            ("prompt_text", Some(row.prompt_text.clone())),
            ("triggered_action", row.triggered_action.clone()),
        ],
    );
    let indexed = indexed.with_cue(match class {
        Class::Correction => cue::CORRECTION,
        Class::Confirmation => cue::CONFIRMATION,
        Class::DirectionPivot => cue::PIVOT,
    });
    (Row::Input(row), indexed)
}

/// Journals, retros, postmortems, decisions, specs, plans and todos.
pub struct New {
    pub kind: Kind,
    pub title: String,
    pub parts: Parts,
    pub status: String,
    pub fields: Map<String, Value>,
}

pub fn artifact(identity: &str, new: New) -> (Row, Indexed) {
    let body = new
        .parts
        .iter()
        .filter_map(|(name, text)| Some((name, text.as_ref()?)))
        .map(|(name, text)| {
            if *name == "body" {
                text.clone()
            } else {
                format!("{}: {text}", name.replace('_', " "))
            }
        })
        .collect::<Vec<_>>()
        .join("\n");
    let mut fields = new.fields;
    for (name, text) in new.parts.iter().filter(|(name, _)| *name != "body") {
        if let Some(text) = text {
            fields.insert((*name).to_owned(), json!(text));
        }
    }
    let indexed = Indexed::new(
        new.kind,
        Some(&new.title),
        format!("{identity} {}", new.kind),
        new.parts,
    )
    .found_by(&listed_words(&fields));
    (
        Row::Artifact(ArtifactRow {
            kind: new.kind,
            numbered: true,
            title: new.title,
            body,
            fields,
            status: new.status,
        }),
        indexed,
    )
}

/// What recall knows of an artifact that was changed.
pub fn changed_artifact(kind: Kind, item: &ArtifactView) -> Indexed {
    Indexed::new(
        kind,
        Some(&item.title),
        format!("{} {kind} {}", item.identity, item.status),
        vec![("body", Some(item.body.clone()))],
    )
    .found_by(&listed_words(&item.fields))
}

/// The tags and paths of an artifact: it is found by them, but they are not its text.
fn listed_words(fields: &Map<String, Value>) -> Vec<String> {
    ["tags", "paths"]
        .iter()
        .filter_map(|name| fields.get(*name)?.as_array())
        .flatten()
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

/// Says which of a narrative's three answers is missing.
pub fn unanswered(field: &str) -> Problem {
    Problem::field(
        field,
        "must answer: an integration_narrative says what the operator sees, which pieces had to land together, and what would break it",
    )
}
