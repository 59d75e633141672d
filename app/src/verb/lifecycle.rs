//! Beginning, checkpointing, picking up and ending an agent's session.

use super::memory::{entities_of, writer};
use super::row;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Table;
use crate::store::memory::{DeltaRow, NewMemory, Row};
use prism_core::api::memory::{PickedUp, Pickup, Wrap, Wrapped};
use prism_core::id::Quoted;
use prism_core::limits::SESSION_NAME_CHARS_MAX;
use prism_core::memory::surface::{Warning, missing_effect};
use prism_core::memory::{DeltaKind, Kind, LIST_ITEMS_MAX, optional, required};
use prism_core::presence::SessionState;
use prism_core::{Code, Problem, api, text};
use uuid::Uuid;

pub async fn start(
    prism: &Prism,
    caller: &Caller,
    request: api::Start,
) -> Result<api::Started, Problem> {
    let session = caller.session.as_ref().ok_or_else(|| {
        Problem::new(
            Code::UnknownSession,
            "prism_start needs a session",
            "register one first",
        )
    })?;
    let asked = request.name.as_deref().map(session_name);
    if let Some(name) = asked.as_ref().filter(|_| asked != session.name) {
        prism.store.name_session(session.id, name.clone()).await?;
        prism.presence.named(session.id, name);
    }
    let sessions = prism.presence.sessions(caller.project.id, clock::now());
    let peers = sessions
        .into_iter()
        .filter(|(_, s)| s.session_id != session.id && s.state != SessionState::Stale);
    let counts = prism.store.pending_counts(caller.project.id).await?;
    let opening = prism.store.opening(writer(caller)).await?;
    let unwrapped_session = opening.unwrapped.map(|(session_id, last_delta_at, deltas)| api::UnwrappedSession {
        session_id,
        last_delta_at,
        deltas,
        remediation: "Your last session ended without prism_wrap: say with prism_checkpoint what came of it, and wrap this one.".into(),
    });
    Ok(api::Started {
        session_id: session.id,
        name: asked.or_else(|| session.name.clone()),
        pid: caller.project.pid.to_string(),
        identity: session.identity.to_string(),
        surface: session.surface.clone(),
        peers: peers
            .map(|(_, s)| api::Peer {
                identity: s.identity,
                surface: s.surface,
                machine_id: s.machine_id,
                state: s.state,
            })
            .collect(),
        unread: counts
            .into_iter()
            .find(|(id, _)| *id == caller.persona.id)
            .map(|(_, n)| n)
            .unwrap_or_default(),
        recent_deltas: opening.recent_deltas,
        open_todos: opening.open_todos,
        open_postmortems: opening.open_postmortems,
        anti_examples: opening.anti_examples,
        unwrapped_session,
    })
}

/// A session's name as others see it: one line, and not a long one.
pub fn session_name(given: &str) -> String {
    text::clip(&text::one_line(given), SESSION_NAME_CHARS_MAX)
}

/// The first verb of a session opens it in memory, too.
pub async fn opened(prism: &Prism, caller: &Caller, by_verb: &str) -> Result<(), Problem> {
    bookkeeping(
        prism,
        caller,
        DeltaKind::Start,
        format!(
            "{} started on {} ({by_verb})",
            caller.persona.identity,
            writer(caller).surface
        ),
    )
    .await
    .map(drop)
}

async fn bookkeeping(
    prism: &Prism,
    caller: &Caller,
    kind: DeltaKind,
    summary: String,
) -> Result<Uuid, Problem> {
    let id = clock::new_id();
    let new = NewMemory {
        id,
        by: writer(caller),
        row: Row::Delta(DeltaRow::of(kind, summary)),
        indexed: None,
        entities: Vec::new(),
        edges: Vec::new(),
        supersedes: None,
        imported_session: None,
    };
    prism.store.remember(new).await?;
    Ok(id)
}

pub async fn checkpoint(prism: &Prism, caller: &Caller, request: Wrap) -> Result<Wrapped, Problem> {
    record(prism, caller, request, DeltaKind::Checkpoint).await
}

pub async fn wrap(prism: &Prism, caller: &Caller, request: Wrap) -> Result<Wrapped, Problem> {
    let wrapped = record(prism, caller, request, DeltaKind::Wrap).await?;
    if let Some(session) = &caller.session {
        prism.release(session, "wrap").await?;
    }
    Ok(wrapped)
}

async fn record(
    prism: &Prism,
    caller: &Caller,
    request: Wrap,
    kind: DeltaKind,
) -> Result<Wrapped, Problem> {
    let (row, surfaces) = checked(prism, caller, request, kind).await?;
    let warning = missing_effect(
        &row.touched_files,
        row.operator_visible_effect.as_deref(),
        &surfaces,
    )?;
    let id = clock::new_id();
    let indexed =
        Kind::of_delta(kind).map(|kind| row::delta(kind, caller.persona.identity.as_str(), &row));
    let mut spoken = indexed.as_ref().map(|i| i.text.clone()).unwrap_or_default();
    for file in &row.touched_files {
        spoken.push(' ');
        spoken.push_str(file);
    }
    let edges = row::attempts_to_edges(id, &row.tried_and_ruled_out);
    let source = row.touched_files_source;
    let entities = entities_of(prism, caller, &spoken);
    prism
        .store
        .remember(NewMemory {
            id,
            by: writer(caller),
            row: Row::Delta(row),
            indexed,
            entities,
            edges,
            supersedes: None,
            imported_session: None,
        })
        .await?;
    Ok(Wrapped {
        delta_id: id,
        touched_files_source: source.into(),
        warnings: warning.into_iter().collect(),
    })
}

async fn checked(
    prism: &Prism,
    caller: &Caller,
    request: Wrap,
    kind: DeltaKind,
) -> Result<(DeltaRow, Vec<String>), Problem> {
    let mut row = DeltaRow::of(kind, required("summary", &request.summary)?);
    row.next = optional("next", request.next.as_deref())?;
    row.open_loops = request.open_loops;
    row.operator_visible_effect = optional(
        "operator_visible_effect",
        request.operator_visible_effect.as_deref(),
    )?;
    row.touched_files_source = match (
        &request.touched_files,
        request.touched_files_source.as_deref(),
    ) {
        (Some(_), Some("git")) => "git",
        (Some(_), _) => "caller",
        (None, _) => "none",
    };
    row.touched_files = request.touched_files.unwrap_or_default();
    for (field, list) in [
        ("open_loops", &row.open_loops),
        ("touched_files", &row.touched_files),
    ] {
        if list.len() > LIST_ITEMS_MAX {
            return Err(Problem::field(
                field,
                format!("has {} items and may have {LIST_ITEMS_MAX}", list.len()),
            ));
        }
    }
    for (i, mut attempt) in request.tried_and_ruled_out.into_iter().enumerate() {
        attempt.approach = required(
            &format!("tried_and_ruled_out[{i}].approach"),
            &attempt.approach,
        )?;
        attempt.outcome = required(
            &format!("tried_and_ruled_out[{i}].outcome"),
            &attempt.outcome,
        )?;
        if let Some(quoted) = &attempt.ruled_out_in_delta {
            let quoted = Quoted::parse("ruled_out_in_delta", quoted.trim_start_matches("delta:"))?;
            let id = prism
                .store
                .resolve(
                    caller.project.id,
                    Table::Deltas,
                    "ruled_out_in_delta",
                    quoted,
                )
                .await?;
            attempt.ruled_out_in_delta = Some(id.to_string());
        }
        row.tried_and_ruled_out.push(attempt);
    }
    Ok((row, request.surfaces))
}

pub async fn pickup(prism: &Prism, caller: &Caller, request: Pickup) -> Result<PickedUp, Problem> {
    let deltas = prism
        .store
        .deltas(caller.project.id, None, None, 200)
        .await?;
    let session = match &request.from_session {
        Some(quoted) => Some(Quoted::parse("from_session", quoted)?),
        None => None,
    };
    let identity = match (&request.from_identity, &session) {
        (Some(name), _) => Some(
            prism
                .directory
                .named(caller.project.id, name, Code::UnknownIdentity)?
                .identity,
        ),
        (None, Some(_)) => None,
        (None, None) => Some(caller.persona.identity.clone()),
    };
    let theirs = |d: &api::memory::DeltaView| {
        identity.as_ref().is_none_or(|i| i.is(&d.identity))
            && session.as_ref().is_none_or(|q| {
                d.session_id
                    .is_some_and(|s| s.to_string().starts_with(q.prefix()))
            })
    };
    let work: Vec<_> = deltas
        .into_iter()
        .filter(|d| theirs(d) && !matches!(d.kind.as_str(), "start" | "pickup"))
        .collect();
    let wrap = work.iter().find(|d| d.kind == "wrap").cloned();
    let from = identity.map_or_else(
        || request.from_session.unwrap_or_default(),
        |i| i.to_string(),
    );
    let mut warnings = Vec::new();
    if wrap.is_none() {
        warnings.push(Warning {
            kind: "no_wrap".into(),
            paths: Vec::new(),
            remediation: format!(
                "{} never wrapped; the deltas are all there is.",
                text::one_line(&from)
            ),
        });
    }
    let delta_id = bookkeeping(
        prism,
        caller,
        DeltaKind::Pickup,
        format!(
            "{} picked up from {}",
            caller.persona.identity,
            text::one_line(&from)
        ),
    )
    .await?;
    Ok(PickedUp {
        delta_id,
        wrap,
        deltas: work.into_iter().take(10).collect(),
        open_todos: prism
            .store
            .artifacts(caller.project.id, Kind::Todo, Some("open".into()), 20)
            .await?,
        decisions: prism
            .store
            .artifacts(caller.project.id, Kind::Decision, None, 10)
            .await?,
        warnings,
    })
}
