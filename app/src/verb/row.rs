//! What each kind of row is: what is stored of it, and what recall knows of it.
//!
//! Verbs and imports build rows here, so a row reads the same whichever way it came.

use crate::store::memory::{ArtifactRow, ConfirmationRow, DeltaRow, Edge, InputRow, Row};
use prism_core::api::memory::RuledOut;
use prism_core::memory::import::NOT_SAID;
use prism_core::memory::operator::{Class, Verdict};
use prism_core::memory::question::cue;
use prism_core::memory::vector::RULED_OUT;
use prism_core::memory::{DeltaKind, EdgeKind, Indexed, Kind};
use prism_core::{Problem, text};
use serde_json::{Map, Value, json};
use uuid::Uuid;

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
            dst: delta.to_string(),
        });
        edges.extend(attempt.ruled_out_in_delta.clone().map(|dst| Edge {
            src,
            kind: EdgeKind::RuledOutIn,
            dst,
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
}

pub fn narrative(identity: &str, told: Narrative) -> (Row, Indexed) {
    let mut row = DeltaRow::of(
        DeltaKind::IntegrationNarrative,
        told.body
            .clone()
            .unwrap_or_else(|| told.operator_sees.clone()),
    );
    row.pieces.clone_from(&told.pieces);
    (row.operator_sees, row.would_break_it) = (
        Some(told.operator_sees.clone()),
        Some(told.would_break_it.clone()),
    );
    let label =
        format!("{identity} integration narrative what the operator sees what would break it");
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
pub fn confirmation(row: ConfirmationRow, refers_to: &str, about: Option<&str>) -> (Row, Indexed) {
    let (operator, verdict) = (&row.confirmed_by, row.verdict);
    let label = format!(
        "{operator} the operator {} verdict {verdict} {refers_to} working state",
        verdict.says()
    );
    let title = format!("{operator} {}", verdict.says());
    let about = about.map(|said| format!("about: {said}"));
    let indexed = Indexed::new(
        Kind::Confirmation,
        Some(&title),
        label,
        vec![("notes", row.notes.clone()), ("about", about)],
    );
    let indexed = indexed.with_cue(if verdict == Verdict::Works {
        cue::CONFIRMATION
    } else {
        cue::TROUBLE
    });
    (Row::Confirmation(row), indexed)
}

/// What the operator typed, and what the agent was doing.
pub fn input(operator: &str, identity: &str, row: InputRow) -> (Row, Indexed) {
    let (class, deed) = (row.class, row.class.deed());
    let title = format!("{operator} {deed} {identity}");
    let label = format!("{operator} the operator {deed} {identity} {class} instead");
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
    );
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

/// Says which of a narrative's three answers is missing.
pub fn unanswered(field: &str) -> Problem {
    Problem::field(
        field,
        "must answer: an integration_narrative says what the operator sees, which pieces had to land together, and what would break it",
    )
}
