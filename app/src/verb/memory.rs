//! Recalling, citing and remembering.

use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{ArtifactRow, DeltaRow, Edge, Filter, NewMemory, RecallEvent, Row, Writer};
use prism_core::api::memory::{self as wire, Id, LegView, Legs, RecallHit, RuledOut};
use prism_core::id::Quoted;
use prism_core::memory::entity::{self, Entity};
use prism_core::memory::recall::{self, Leg, Weights};
use prism_core::memory::reference::Reference;
use prism_core::memory::{DeltaKind, EdgeKind, Indexed, Kind, LIST_ITEMS_MAX, optional, required};
use prism_core::{Problem, api, text};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::time::Instant;
use uuid::Uuid;

/// Results unless asked otherwise, and at the most.
const K_DEFAULT: usize = 8;
const K_MAX: usize = 50;
/// Characters of a question; a longer one is a document.
const QUERY_CHARS_MAX: usize = 4_000;
/// Characters of one result's text; the rest is read by its id.
const HIT_CHARS_MAX: usize = 1_200;
/// Rows whose neighbours are looked at: a gain worth having comes from a row near the top.
const CONTEXT_ROWS: usize = 60;

/// Who writes, as every row records it.
pub fn writer(caller: &Caller) -> Writer {
    Writer {
        project_id: caller.project.id,
        session_id: caller.session_id(),
        identity: caller.persona.identity.clone(),
        surface: caller.session.as_ref().map_or_else(|| "cli".to_owned(), |s| s.surface.clone()),
        now: clock::now(),
    }
}

/// The entities a text names, with the project's own names known.
pub fn entities_of(prism: &Prism, caller: &Caller, text: &str) -> Vec<Entity> {
    let names: Vec<String> = prism.directory.personas(caller.project.id).iter().map(|p| p.identity.to_string()).collect();
    entity::find(text, &names)
}

/// Each attempt is a node that points at the delta it was ruled out in, and at the one that tells of it.
pub fn attempts_to_edges(delta: Uuid, attempts: &[RuledOut]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (n, attempt) in attempts.iter().enumerate() {
        let src = Some(format!("attempt:{delta}#{n}"));
        edges.push(Edge { src: src.clone(), kind: EdgeKind::RuledOutIn, dst: delta.to_string() });
        edges.extend(attempt.ruled_out_in_delta.clone().map(|dst| Edge { src, kind: EdgeKind::RuledOutIn, dst }));
    }
    edges
}

/// Looks a reference up and names its node in the graph.
pub async fn node_of(prism: &Prism, caller: &Caller, field: &'static str, reference: &Reference) -> Result<String, Problem> {
    Ok(match reference {
        Reference::Delta(quoted) => prism.store.resolve(caller.project.id, Table::Deltas, field, quoted.clone()).await?.to_string(),
        Reference::Signal(quoted) => format!("signal:{}", prism.store.resolve(caller.project.id, Table::Signals, field, quoted.clone()).await?),
        Reference::Spec(name) => format!("spec:{name}"),
        Reference::Commit(sha) => format!("commit:{sha}"),
    })
}

pub async fn recall(prism: &Prism, caller: &Caller, request: wire::Recall) -> Result<wire::Recalled, Problem> {
    let started = Instant::now();
    let query = required("query", &request.query)?;
    if query.chars().count() > QUERY_CHARS_MAX {
        return Err(Problem::field("query", format!("may have {QUERY_CHARS_MAX} characters; ask in a sentence")));
    }
    let k = request.k.unwrap_or(K_DEFAULT);
    if !(1..=K_MAX).contains(&k) {
        return Err(Problem::field("k", format!("is {k} and must be 1 to {K_MAX}")));
    }
    let kind = |name: &String| Kind::from_name(name).ok_or_else(|| Problem::field("kinds", format!("{:?} is not one of {}", text::clip(name, 40), Kind::names())));
    let filter = Filter { kinds: request.kinds.iter().map(kind).collect::<Result<_, _>>()?, since: request.since, until: request.until, as_of: request.as_of };
    let found = prism.store.find(caller.project.id, recall::terms(&query), entities_of(prism, caller, &query), filter.clone()).await?;
    let weights = Weights::default();
    let leg = |name, weight, ranked: &[String]| Leg { name, weight, ranked: ranked.to_vec() };
    let fused =
        recall::fuse(&[leg("lexical", weights.lexical, &found.lexical), leg("graph", weights.graph, &found.graph), leg("recency", weights.recency, &found.recency)]);
    let neighbours = prism.store.neighbours(fused.iter().take(CONTEXT_ROWS).map(|r| r.id.clone()).collect()).await?;
    let scored = recall::with_neighbours(fused, &neighbours);
    // More than asked for: the operator's word and the filter may still reorder or drop some.
    let rows = prism.store.rows(caller.project.id, scored.iter().take(k * 2 + 6).map(|r| r.id.clone()).collect()).await?;
    let allowed = |row: &crate::store::memory::MemoryRow| {
        (filter.kinds.is_empty() || filter.kinds.iter().any(|k| k.name() == row.kind))
            && filter.since.is_none_or(|t| row.created_at >= t)
            && filter.until.or(filter.as_of).is_none_or(|t| row.created_at <= t)
    };
    let mut by_id: HashMap<String, _> = rows.into_iter().filter(allowed).map(|row| (row.id.to_string(), row)).collect();
    let standing = by_id.iter().map(|(id, row)| (id.clone(), row.standing.clone())).collect();
    let known = scored.into_iter().filter(|r| by_id.contains_key(&r.id)).collect();
    let ranked = recall::with_standing(known, &standing, &weights);
    let results: Vec<RecallHit> = ranked
        .into_iter()
        .filter_map(|scored| by_id.remove(&scored.id).map(|row| (scored, row)))
        .take(k)
        .map(|(scored, row)| RecallHit {
            id: row.id,
            kind: row.kind,
            identity: row.identity,
            created_at: row.created_at,
            title: row.title,
            text: text::clip(&row.text, HIT_CHARS_MAX),
            score: (scored.score * 1e4).round() / 1e4,
            why: scored.why,
            verdicts: row.verdicts,
            refers_to: row.refers_to,
            ruled_out: row.ruled_out,
            superseded_by: row.standing.superseded_by.and_then(|id| id.parse().ok()),
        })
        .collect();
    let recall_event_id = clock::new_id();
    let tokens = results.iter().map(|r| recall::tokens(&r.text)).sum();
    let place = |ranked: &[String], id: Uuid| ranked.iter().position(|r| *r == id.to_string()).map(|p| p + 1);
    let summary: Vec<Value> = results
        .iter()
        .enumerate()
        .map(|(i, r)| json!({"id": r.id, "rank": i + 1, "score": r.score, "lexical": place(&found.lexical, r.id), "graph": place(&found.graph, r.id), "recency": place(&found.recency, r.id)}))
        .collect();
    let event = RecallEvent { id: recall_event_id, by: writer(caller), query, results: summary.into(), latency_us: started.elapsed().as_micros() as u64, tokens };
    prism.store.note_recall(event).await?;
    prism.gate.recalled(&prism.store, caller, recall_event_id);
    let on = |hits: usize, us: u64| LegView { state: "on".into(), hits, ms: us as f64 / 1000.0, ..LegView::default() };
    let legs = Legs {
        lexical: on(found.lexical.len(), found.lexical_us),
        vector: LegView { reason: Some("this version has no embedding model".into()), pending: Some(found.embed_pending), ..LegView::default() },
        graph: on(found.graph.len(), found.graph_us),
        recency: on(found.recency.len(), found.recency_us),
    };
    Ok(wire::Recalled { recall_event_id, results, legs })
}

pub async fn cite(prism: &Prism, caller: &Caller, request: wire::Cite) -> Result<api::Ok, Problem> {
    let purpose = optional("for", request.r#for.as_deref())?;
    prism.store.cite(caller.project.id, request.recall_event_id, request.result_id, purpose, caller.persona.identity.to_string(), clock::now()).await?;
    Ok(api::Ok { ok: true })
}

pub async fn remember(prism: &Prism, caller: &Caller, request: wire::Remember) -> Result<Id, Problem> {
    for (field, n) in [("tags", request.tags.len()), ("refs", request.refs.len()), ("pieces", request.pieces.len())] {
        if n > LIST_ITEMS_MAX {
            return Err(Problem::field(field, format!("has {n} items and may have {LIST_ITEMS_MAX}")));
        }
    }
    let mut edges = Vec::new();
    for reference in &request.refs {
        let node = node_of(prism, caller, "refs", &Reference::parse("refs", reference)?).await?;
        edges.push(Edge { src: None, kind: EdgeKind::Mentions, dst: node });
    }
    let supersedes = match &request.supersedes {
        Some(quoted) => {
            Some(prism.store.resolve(caller.project.id, Table::Memory, "supersedes", Quoted::parse("supersedes", quoted.trim_start_matches("delta:"))?).await?)
        }
        None => None,
    };
    let subject = optional("subject", request.subject.as_deref())?;
    let identity = caller.persona.identity.as_str();
    let (row, indexed) = match request.kind.as_str() {
        "note" | "other" => {
            let kind = if request.kind == "note" { DeltaKind::Note } else { DeltaKind::Other };
            let mut row = DeltaRow::of(kind, required("body", &request.body)?);
            (row.subject, row.tags) = (subject.clone(), request.tags);
            let label = format!("{identity} {} {}", kind, row.tags.join(" "));
            let indexed = Indexed::new(Kind::of_delta(kind).unwrap_or(Kind::Other), subject.as_deref(), label, vec![("body", Some(row.summary.clone()))]);
            (Row::Delta(row), indexed)
        }
        "fact" | "rule" => {
            let kind = if request.kind == "fact" { Kind::Fact } else { Kind::Rule };
            let body = required("body", &request.body)?;
            let title = subject.clone().unwrap_or_else(|| text::clip(&text::one_line(&body), 80));
            let label = format!("{identity} {kind} {}", request.tags.join(" "));
            let indexed = Indexed::new(kind, subject.as_deref(), label, vec![("body", Some(body.clone()))]);
            (
                Row::Artifact(ArtifactRow {
                    kind,
                    numbered: false,
                    title,
                    body,
                    fields: Map::from_iter([("tags".to_owned(), json!(request.tags))]),
                    status: "current".into(),
                }),
                indexed,
            )
        }
        "integration_narrative" => narrative(prism, caller, &request, &mut edges).await?,
        other => return Err(Problem::field("kind", format!("{:?} is not one of note, fact, rule, integration_narrative, other", text::clip(other, 40)))),
    };
    let id = clock::new_id();
    let entities = entities_of(prism, caller, &indexed.text);
    prism.store.remember(NewMemory { id, by: writer(caller), row, indexed: Some(indexed), entities, edges, supersedes }).await?;
    Ok(Id { id, number: None, version: None, warnings: Vec::new() })
}

/// What the operator sees, what had to land together, what would break it: all three or none.
async fn narrative(prism: &Prism, caller: &Caller, request: &wire::Remember, edges: &mut Vec<Edge>) -> Result<(Row, Indexed), Problem> {
    let answer = |field: &str, given: Option<&str>| {
        required(field, given.unwrap_or_default()).map_err(|_| {
            Problem::field(field, "must answer: an integration_narrative says what the operator sees, which pieces had to land together, and what would break it")
        })
    };
    let operator_sees = answer("operator_sees", request.operator_sees.as_deref())?;
    let would_break_it = answer("would_break_it", request.would_break_it.as_deref())?;
    if request.pieces.is_empty() {
        return Err(Problem::field("pieces", "must name the deltas, commits and specs that had to land together"));
    }
    for piece in &request.pieces {
        let node = node_of(prism, caller, "pieces", &Reference::parse_loose("pieces", piece)?).await?;
        edges.push(Edge { src: None, kind: EdgeKind::Combines, dst: node });
    }
    let body = optional("body", Some(&request.body))?;
    let mut row = DeltaRow::of(DeltaKind::IntegrationNarrative, body.clone().unwrap_or_else(|| operator_sees.clone()));
    row.pieces.clone_from(&request.pieces);
    (row.operator_sees, row.would_break_it) = (Some(operator_sees.clone()), Some(would_break_it.clone()));
    let label = format!("{} integration narrative what the operator sees what would break it", caller.persona.identity);
    let indexed = Indexed::new(
        Kind::IntegrationNarrative,
        request.subject.as_deref(),
        label,
        vec![("operator_sees", Some(operator_sees)), ("body", body), ("would_break_it", Some(would_break_it)), ("pieces", Some(request.pieces.join(", ")))],
    );
    Ok((Row::Delta(row), indexed))
}

pub async fn note(prism: &Prism, caller: &Caller, request: wire::Note) -> Result<Id, Problem> {
    required("text", &request.text)?;
    let request = wire::Remember {
        kind: "note".into(),
        body: request.text,
        subject: None,
        tags: Vec::new(),
        refs: Vec::new(),
        supersedes: None,
        operator_sees: None,
        pieces: Vec::new(),
        would_break_it: None,
    };
    remember(prism, caller, request).await
}

pub async fn deltas(prism: &Prism, caller: &Caller, request: wire::Deltas) -> Result<wire::DeltasAnswer, Problem> {
    let n = request.n.unwrap_or(20);
    if !(1..=200).contains(&n) {
        return Err(Problem::field("n", format!("is {n} and must be 1 to 200")));
    }
    if let Some(kind) = &request.kind
        && DeltaKind::from_name(kind).is_none()
    {
        return Err(Problem::field("kind", format!("{:?} is not one of {}", text::clip(kind, 40), DeltaKind::names())));
    }
    Ok(wire::DeltasAnswer { deltas: prism.store.deltas(caller.project.id, request.since, request.kind, n).await? })
}

pub async fn graph(prism: &Prism, caller: &Caller, request: wire::GraphShow) -> Result<wire::GraphAnswer, Problem> {
    Ok(prism.store.graph_of(caller.project.id, request.id).await?)
}

pub async fn stats(prism: &Prism, caller: &Caller, _: api::Nothing) -> Result<wire::MemoryStats, Problem> {
    Ok(prism.store.memory_stats(caller.project.id).await?)
}

pub async fn metrics(prism: &Prism, caller: &Caller, _: api::Nothing) -> Result<wire::Metrics, Problem> {
    Ok(prism.store.metrics(caller.project.id).await?)
}
