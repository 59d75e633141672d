//! Remembering, citing, and what stands beside a row.

use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{Author, Edge, NewMemory, Node, Row};
use prism_core::api::memory::{self as wire, DeltaView, Id};
use prism_core::id::Quoted;
use prism_core::limits::{LISTED_BYTES_MAX, SURFACE_GLOBS_MAX, TAG_CHARS_MAX, TEXT_CHARS_MAX};
use prism_core::memory::brief::{Room, first_rows};
use prism_core::memory::entity::{self, Entity};
use prism_core::memory::generation::{self, Generation};
use prism_core::memory::reference::Reference;
use prism_core::memory::row::{self, Narrative};
use prism_core::memory::{
    DeltaKind, EdgeKind, Indexed, Kind, asked_as, check_list, optional, required,
};
use prism_core::{Code, Problem, api, text};

/// Who writes, as every row records it.
pub fn author(caller: &Caller) -> Author {
    Author {
        project_id: caller.project.id,
        session_id: caller.session_id(),
        identity: caller.persona.identity.clone(),
        surface: caller
            .session
            .as_ref()
            .map_or_else(|| "cli".to_owned(), |s| s.surface.clone()),
        now: clock::now(),
    }
}

/// The names of everybody in the project.
pub fn names_of(prism: &Prism, caller: &Caller) -> Vec<String> {
    prism
        .directory
        .personas(caller.project.id)
        .iter()
        .map(|p| p.identity.to_string())
        .collect()
}

/// The entities a text names, with the project's own names known.
pub fn entities_of(prism: &Prism, caller: &Caller, text: &str) -> Vec<Entity> {
    entity::find(text, &names_of(prism, caller))
}

/// What a reference names: its node in the graph, and what is known of it.
pub struct Target {
    /// By the name it goes by: a spec that was named by its id has a number.
    pub reference: Reference,
    pub node: Node,
    /// A whole id, or the name as it was written.
    pub id: String,
    /// What it said, in a line.
    pub words: Option<String>,
    /// Whose work it is.
    pub identity: Option<String>,
}

/// Looks a reference up.
pub async fn target_of(
    prism: &Prism,
    caller: &Caller,
    field: &'static str,
    reference: &Reference,
) -> Result<Target, Problem> {
    let (store, project) = (&prism.store, caller.project.id);
    Ok(match reference {
        Reference::Delta(quoted) => {
            let id = store
                .resolve(project, Table::Deltas, field, quoted.clone())
                .await?;
            let delta = store.delta(project, id).await?;
            Target {
                reference: reference.clone(),
                node: Node::Id(id.to_string()),
                id: id.to_string(),
                identity: delta.as_ref().map(|d| d.identity.clone()),
                words: delta.map(|d| d.summary),
            }
        }
        Reference::Signal(quoted) => {
            let id = store
                .resolve(project, Table::Signals, field, quoted.clone())
                .await?;
            let signal = store.signal_summary(project, id).await?;
            // What a signal says is its sender's, its recipient's and the operator's to pass on.
            let mine = signal.as_ref().is_some_and(|s| {
                let name = &caller.persona.identity;
                caller.is_operator || name.is(&s.from) || name.is(&s.to)
            });
            Target {
                reference: reference.clone(),
                node: Node::Id(format!("signal:{id}")),
                id: id.to_string(),
                words: signal.map(|s| match s.summary.filter(|_| mine) {
                    Some(summary) => format!("{} from {}: {summary}", s.signal_type, s.from),
                    None => format!("{} from {}", s.signal_type, s.from),
                }),
                identity: None,
            }
        }
        Reference::Spec(name) => {
            let spec = store.spec_named(project, name.clone()).await?;
            let number = spec.as_ref().and_then(|s| s.number);
            let name = match number.map(|n| format!("SPEC-{n:03}")) {
                Some(numbered) if Entity::spec(&numbered) != Entity::spec(name) => numbered,
                _ => name.clone(),
            };
            Target {
                node: Node::Entity(Entity::spec(&name)),
                reference: Reference::Spec(name.clone()),
                id: name,
                identity: spec.as_ref().map(|s| s.identity.clone()),
                words: spec.map(|s| s.title),
            }
        }
        Reference::Commit(sha) => Target {
            reference: reference.clone(),
            node: Node::Entity(Entity::commit(sha)),
            id: sha.clone(),
            words: None,
            identity: None,
        },
    })
}

pub async fn cite(prism: &Prism, caller: &Caller, request: wire::Cite) -> Result<api::Ok, Problem> {
    let purpose = optional("for", request.r#for.as_deref())?;
    prism
        .store
        .cite(
            caller.project.id,
            Quoted::parse("recall_event_id", &request.recall_event_id)?,
            Quoted::parse("result_id", &request.result_id)?,
            purpose,
            caller.persona.identity.to_string(),
            clock::now(),
        )
        .await?;
    Ok(api::Ok { ok: true })
}

pub async fn remember(
    prism: &Prism,
    caller: &Caller,
    request: wire::Remember,
) -> Result<Id, Problem> {
    check_list("tags", &request.tags, TAG_CHARS_MAX)?;
    check_list("refs", &request.refs, TEXT_CHARS_MAX)?;
    check_list("pieces", &request.pieces, TEXT_CHARS_MAX)?;
    let mut edges = Vec::new();
    for reference in &request.refs {
        let reference = Reference::parse("refs", reference)?;
        let target = target_of(prism, caller, "refs", &reference).await?;
        edges.push(Edge::to(EdgeKind::Mentions, target.node));
    }
    let supersedes = match &request.supersedes {
        Some(quoted) => Some(
            prism
                .store
                .resolve(
                    caller.project.id,
                    Table::Memory,
                    "supersedes",
                    Quoted::parse("supersedes", quoted.trim_start_matches("delta:"))?,
                )
                .await?,
        ),
        None => None,
    };
    let subject = optional("subject", request.subject.as_deref())?;
    let asked = asked_as(&request.asked_as)?;
    let identity = caller.persona.identity.as_str();
    let (row, indexed) = match request.kind.as_str() {
        "note" => row::words(
            DeltaKind::Note,
            identity,
            required("body", &request.body)?,
            subject,
            request.tags,
        ),
        "other" => row::words(
            DeltaKind::Other,
            identity,
            required("body", &request.body)?,
            subject,
            request.tags,
        ),
        "fact" => row::standing(
            Kind::Fact,
            identity,
            required("body", &request.body)?,
            subject,
            &request.tags,
        ),
        "rule" => row::standing(
            Kind::Rule,
            identity,
            required("body", &request.body)?,
            subject,
            &request.tags,
        ),
        "integration_narrative" => narrative(prism, caller, &request, &mut edges).await?,
        other => {
            return Err(Problem::field(
                "kind",
                format!(
                    "{:?} is not one of note, fact, rule, integration_narrative, other",
                    text::clip(other, 40)
                ),
            ));
        }
    };
    let id = clock::new_id();
    let entities = entities_of(prism, caller, &indexed.text);
    prism
        .store
        .remember(NewMemory {
            id,
            by: author(caller),
            row,
            indexed: Some(indexed.asked_as(asked)),
            entities,
            edges,
            supersedes,
            imported_session: None,
        })
        .await?;
    Ok(Id {
        id,
        number: None,
        version: None,
        warnings: Vec::new(),
    })
}

/// What the operator sees, what had to land together, what would break it: all three or none.
async fn narrative(
    prism: &Prism,
    caller: &Caller,
    request: &wire::Remember,
    edges: &mut Vec<Edge>,
) -> Result<(Row, Indexed), Problem> {
    let answer = |field: &str, given: Option<&str>| {
        required(field, given.unwrap_or_default()).map_err(|_| row::unanswered(field))
    };
    let operator_sees = answer("operator_sees", request.operator_sees.as_deref())?;
    let would_break_it = answer("would_break_it", request.would_break_it.as_deref())?;
    if request.pieces.is_empty() {
        return Err(Problem::field(
            "pieces",
            "must name the deltas, commits and specs that had to land together",
        ));
    }
    for piece in &request.pieces {
        let reference = Reference::parse_loose("pieces", piece)?;
        let target = target_of(prism, caller, "pieces", &reference).await?;
        edges.push(Edge::to(EdgeKind::Combines, target.node));
    }
    let told = Narrative {
        operator_sees,
        pieces: request.pieces.clone(),
        would_break_it,
        body: optional("body", Some(&request.body))?,
        subject: optional("subject", request.subject.as_deref())?,
        tags: request.tags.clone(),
    };
    Ok(row::narrative(caller.persona.identity.as_str(), told))
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
        asked_as: request.asked_as,
    };
    remember(prism, caller, request).await
}

pub async fn deltas(
    prism: &Prism,
    caller: &Caller,
    request: wire::Deltas,
) -> Result<wire::DeltasAnswer, Problem> {
    if let Some(id) = &request.id {
        let deltas = vec![whole_delta(prism, caller, id).await?];
        return Ok(wire::DeltasAnswer { deltas, more: None });
    }
    let n = request.n.unwrap_or(20);
    if !(1..=200).contains(&n) {
        return Err(Problem::field("n", format!("is {n} and must be 1 to 200")));
    }
    if let Some(kind) = &request.kind
        && DeltaKind::from_name(kind).is_none()
    {
        return Err(Problem::field(
            "kind",
            format!(
                "{:?} is not one of {}",
                text::clip(kind, 40),
                DeltaKind::names()
            ),
        ));
    }
    let mut deltas = prism
        .store
        .deltas(caller.project.id, request.since, request.kind, n)
        .await?;
    deltas.iter_mut().for_each(|row| Room::DELTA.delta(row));
    let (deltas, more) = first_rows(deltas, LISTED_BYTES_MAX);
    let more = (more > 0).then_some(more as u64);
    Ok(wire::DeltasAnswer { deltas, more })
}

/// One delta with everything that was written down.
async fn whole_delta(prism: &Prism, caller: &Caller, id: &str) -> Result<DeltaView, Problem> {
    let (store, project) = (&prism.store, caller.project.id);
    let quoted = Quoted::parse("id", id)?;
    let id = store.resolve(project, Table::Deltas, "id", quoted).await?;
    let delta = store.delta(project, id).await?;
    delta.ok_or_else(|| {
        Problem::new(
            Code::UnknownReference,
            format!("there is no delta {id} any more"),
            "`prism deltas` lists those there are",
        )
    })
}

pub async fn graph(
    prism: &Prism,
    caller: &Caller,
    request: wire::GraphShow,
) -> Result<wire::GraphAnswer, Problem> {
    Ok(prism.store.graph_of(caller.project.id, request.id).await?)
}

pub async fn stats(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<wire::MemoryStats, Problem> {
    let mut stats = prism.store.memory_stats(caller.project.id).await?;
    let names = prism.embedder.generation().map(Generation::names);
    stats.models = names.into_iter().flatten().map(str::to_owned).collect();
    stats.switching = prism.embedder.switching();
    stats.off = prism.embedder.waits();
    Ok(stats)
}

pub async fn metrics(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<wire::Metrics, Problem> {
    Ok(prism.store.metrics(caller.project.id).await?)
}

pub async fn reembed(
    prism: &Prism,
    caller: &Caller,
    request: wire::Reembed,
) -> Result<wire::Reembedding, Problem> {
    let generation = prism.embedder.generation().unwrap_or(&generation::BOTH);
    let queued = prism
        .store
        .reembed(caller.project.id, generation.id, request.all, clock::now())
        .await?;
    Ok(wire::Reembedding {
        queued,
        model: generation.names().join(" and "),
        off: prism.embedder.off(),
    })
}

pub async fn training(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<wire::Training, Problem> {
    Ok(wire::Training {
        inputs: prism.store.training(caller.project.id).await?,
    })
}

pub async fn rot(
    prism: &Prism,
    caller: &Caller,
    request: wire::AskRot,
) -> Result<wire::Rot, Problem> {
    if request.surfaces.len() > SURFACE_GLOBS_MAX {
        return Err(Problem::field(
            "surfaces",
            format!(
                "has {} globs and may have {SURFACE_GLOBS_MAX}",
                request.surfaces.len()
            ),
        ));
    }
    Ok(prism
        .store
        .rot(caller.project.id, request.surfaces, clock::now())
        .await?)
}
