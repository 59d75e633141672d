//! Beginning, checkpointing, picking up and ending an agent's session.

use super::memory::{author, entities_of};
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::memory::{DeltaRow, NewMemory, PickupFrom, Row, Status};
use crate::store::{StoreError, Table};
use prism_core::api::memory::{PickedUp, Pickup, Wrap, Wrapped};
use prism_core::hook::left::LEFT_BY_HOST;
use prism_core::id::Quoted;
use prism_core::limits::{
    HOOK_CORRECTIONS_MAX, OPEN_LOOP_CHARS_MAX, PEERS_MAX, RULED_OUT_MAX, SESSION_NAME_CHARS_MAX,
};
use prism_core::memory::brief::Room;
use prism_core::memory::row;
use prism_core::memory::surface::{Surfaces, Warning, first_files, is_whole, relative_to};
use prism_core::memory::{DeltaKind, Kind, asked_as, check_list, check_number, optional, required};
use prism_core::presence::SessionState;
use prism_core::{Code, Problem, api, text};
use uuid::Uuid;

/// What a pickup shows of each at the most.
const DELTAS_PICKED_UP: usize = 10;
const TODOS_PICKED_UP: usize = 20;
const DECISIONS_PICKED_UP: usize = 10;

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
        prism.presence.named(session.id, name, clock::now());
        prism.bus().session_changed(session.id);
    }
    let sessions = prism.presence.sessions(caller.project.id, clock::now());
    // Who is here, on whatever machine, has not forgotten to wrap.
    let live = sessions
        .iter()
        .filter(|(_, s)| s.state != SessionState::Stale)
        .map(|(_, s)| s.session_id)
        .collect();
    let mut peers: Vec<api::Peer> = sessions
        .into_iter()
        .filter(|(_, s)| s.session_id != session.id && s.state != SessionState::Stale)
        .map(|(_, s)| api::Peer {
            identity: s.identity,
            surface: s.surface,
            machine_id: s.machine_id,
            state: s.state,
        })
        .collect();
    let peers_more = peers.len().saturating_sub(PEERS_MAX) as u64;
    peers.truncate(PEERS_MAX);
    let counts = prism.store.pending_counts(caller.project.id).await?;
    let mut opening = prism.store.opening(author(caller), live).await?;
    let deltas = opening.recent_deltas.iter_mut();
    deltas.for_each(|row| Room::DELTA.delta(row));
    let open = opening
        .open_todos
        .iter_mut()
        .chain(&mut opening.open_postmortems);
    open.for_each(|row| Room::ARTIFACT.artifact(row));
    let rejected = opening.anti_examples.iter_mut();
    rejected.for_each(|row| Room::DELTA.input(row));
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
        peers,
        peers_more,
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

/// What a hook tells an agent that has not asked. It is no verb of the agent's: it neither opens
/// the session nor empties its inbox.
pub async fn brief(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<api::SessionBrief, Problem> {
    let nothing = api::Start {
        identity: None,
        name: None,
    };
    let started = start(prism, caller, nothing).await?;
    let found = prism
        .store
        .corrections(caller.project.id, HOOK_CORRECTIONS_MAX);
    let (mut corrections, corrections_unreviewed) = found.await?;
    corrections
        .iter_mut()
        .for_each(|row| Room::DELTA.input(row));
    Ok(api::SessionBrief {
        started,
        corrections,
        corrections_unreviewed,
    })
}

/// What a host's hook leaves of a session: a checkpoint that says that no agent wrote it, and no
/// wrap.
pub async fn left(
    prism: &Prism,
    caller: &Caller,
    request: api::SessionLeft,
) -> Result<Wrapped, Problem> {
    let request = Wrap {
        summary: request.summary,
        next: None,
        open_loops: Vec::new(),
        touched_files_source: request.touched_files.as_ref().map(|_| "git".to_owned()),
        touched_files: request.touched_files,
        operator_visible_effect: None,
        tried_and_ruled_out: Vec::new(),
        asked_as: Vec::new(),
        surfaces: Vec::new(),
        root: request.root,
    };
    record(
        prism,
        caller,
        request,
        DeltaKind::Checkpoint,
        &[LEFT_BY_HOST],
    )
    .await
}

/// The first verb of a session opens it in memory, too; false when it was opened at another server.
pub async fn opened(
    prism: &Prism,
    caller: &Caller,
    session: Uuid,
    by_verb: &str,
) -> Result<bool, Problem> {
    let summary = format!(
        "{} started on {} ({by_verb})",
        caller.persona.identity,
        author(caller).surface
    );
    let mut new = line_of(caller, DeltaKind::Start, summary);
    // Tried again with the time of the first try: by that its row tells whose it is.
    let tried = prism.presence.opening(session);
    new.by.now = tried.unwrap_or(new.by.now);
    let began = new.by.now;
    let unknown = match prism.store.open_session(session, new).await {
        Ok(true) => None,
        Ok(false) if tried.is_none() => return Ok(false),
        Ok(false) => Some(None),
        Err(StoreError::Unknown(why)) => Some(Some(why)),
        Err(error) => return Err(error.into()),
    };
    let is_known = unknown.is_none();
    // Its row tells whether it was opened here after all: then its peers have still to hear of it.
    let opened = match unknown {
        None => true,
        Some(why) => {
            prism.presence.is_opening(session, Some(began));
            let row = prism.store.sessions_of(vec![session]).await?;
            match (row.first().and_then(|row| row.first_verb_at), why) {
                (Some(at), _) => at == began,
                (None, Some(why)) => return Err(StoreError::Unknown(why).into()),
                (None, None) => false,
            }
        }
    };
    // Of two verbs that find this out at once, one tells.
    let is_first = prism.presence.is_opening(session, None).is_some();
    let opened = opened && (is_known || is_first);
    if opened {
        prism.bus().session_changed(session);
    }
    Ok(opened)
}

async fn bookkeeping(
    prism: &Prism,
    caller: &Caller,
    kind: DeltaKind,
    summary: String,
) -> Result<Uuid, Problem> {
    let new = line_of(caller, kind, summary);
    let id = new.id;
    prism.store.remember(new).await?;
    Ok(id)
}

/// A delta that nobody looks for.
fn line_of(caller: &Caller, kind: DeltaKind, summary: String) -> NewMemory {
    NewMemory {
        id: clock::new_id(),
        by: author(caller),
        row: Row::Delta(DeltaRow::of(kind, summary)),
        indexed: None,
        entities: Vec::new(),
        edges: Vec::new(),
        supersedes: None,
        imported_session: None,
    }
}

pub async fn checkpoint(prism: &Prism, caller: &Caller, request: Wrap) -> Result<Wrapped, Problem> {
    record(prism, caller, request, DeltaKind::Checkpoint, &[]).await
}

pub async fn wrap(prism: &Prism, caller: &Caller, request: Wrap) -> Result<Wrapped, Problem> {
    record(prism, caller, request, DeltaKind::Wrap, &[]).await
}

async fn record(
    prism: &Prism,
    caller: &Caller,
    request: Wrap,
    kind: DeltaKind,
    tags: &[&str],
) -> Result<Wrapped, Problem> {
    let (surfaces, root) = (request.surfaces.clone(), request.root.clone());
    let asked = asked_as(&request.asked_as)?;
    let (mut row, cut) = checked(prism, caller, request, kind).await?;
    row.tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    // Where the project's folder is known, what lies outside of it is no surface of the project.
    let watched: Vec<String> = row
        .touched_files
        .iter()
        .filter(|path| root.is_none() || !is_whole(path))
        .cloned()
        .collect();
    let effect = row.operator_visible_effect.clone();
    let is_default = surfaces.is_empty();
    let matched = move || {
        let given = Surfaces::of(&surfaces);
        let missing = given.missing_effect(&watched, effect.as_deref());
        let warnings = missing.into_iter().chain(given.warnings);
        warnings.collect::<Vec<Warning>>()
    };
    let mut warnings = match is_default {
        true => matched(),
        // Somebody else's globs may take long to match: beside what answers everybody. Nothing that
        // goes wrong there stops the record.
        false => tokio::task::spawn_blocking(matched)
            .await
            .unwrap_or_default(),
    };
    warnings.extend(cut);
    let id = clock::new_id();
    let indexed =
        Kind::of_delta(kind).map(|kind| row::delta(kind, caller.persona.identity.as_str(), &row));
    let indexed = indexed.map(|indexed| indexed.asked_as(asked));
    let mut spoken = indexed.as_ref().map(|i| i.text.clone()).unwrap_or_default();
    for file in &row.touched_files {
        spoken.push(' ');
        spoken.push_str(file);
    }
    let edges = row::attempts_to_edges(id, &row.tried_and_ruled_out);
    let source = row.touched_files_source;
    let entities = entities_of(prism, caller, &spoken);
    let new = NewMemory {
        id,
        by: author(caller),
        row: Row::Delta(row),
        indexed,
        entities,
        edges,
        supersedes: None,
        imported_session: None,
    };
    match &caller.session {
        Some(session) if kind == DeltaKind::Wrap => {
            let now = new.by.now;
            let returned = prism.store.wrap_session(session.id, new).await?;
            prism.released(session, "wrap", returned, now);
        }
        _ => drop(prism.store.remember(new).await?),
    }
    Ok(Wrapped {
        delta_id: id,
        touched_files_source: source.into(),
        warnings,
    })
}

async fn checked(
    prism: &Prism,
    caller: &Caller,
    request: Wrap,
    kind: DeltaKind,
) -> Result<(DeltaRow, Option<Warning>), Problem> {
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
    let name = |path: String| match &request.root {
        Some(root) => relative_to(root, &path),
        None => path,
    };
    let files = request.touched_files.unwrap_or_default().into_iter();
    // Whatever a session touched, its work is written down.
    let (files, cut) = first_files(files.map(name).collect(), usize::MAX);
    row.touched_files = files;
    check_list("open_loops", &row.open_loops, OPEN_LOOP_CHARS_MAX)?;
    let ruled_out = request.tried_and_ruled_out.len();
    check_number("tried_and_ruled_out", ruled_out, RULED_OUT_MAX)?;
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
    Ok((row, cut))
}

pub async fn pickup(prism: &Prism, caller: &Caller, request: Pickup) -> Result<PickedUp, Problem> {
    let (store, project) = (&prism.store, caller.project.id);
    let identity = match (&request.from_identity, &request.from_session) {
        (Some(name), _) => Some(
            prism
                .directory
                .named(project, name, Code::UnknownIdentity)?
                .identity,
        ),
        (None, Some(_)) => None,
        (None, None) => Some(caller.persona.identity.clone()),
    };
    let session = match &request.from_session {
        Some(quoted) => {
            let quoted = Quoted::parse("from_session", quoted)?;
            let session = store.resolve(project, Table::Sessions, "from_session", quoted);
            Some(session.await?)
        }
        None => None,
    };
    let from = match (&identity, session) {
        (Some(name), _) => name.to_string(),
        (None, Some(session)) => format!("session {}", &session.to_string()[..8]),
        (None, None) => String::new(),
    };
    let (mut wrap, mut deltas) = store
        .baton(project, PickupFrom { identity, session }, DELTAS_PICKED_UP)
        .await?;
    wrap.iter_mut().for_each(|row| Room::BATON.delta(row));
    deltas.iter_mut().for_each(|row| Room::DELTA.delta(row));
    let mut warnings = Vec::new();
    if wrap.is_none() {
        warnings.push(Warning {
            kind: "no_wrap".into(),
            paths: Vec::new(),
            remediation: format!("{from} never wrapped; the deltas are all there is."),
        });
    }
    let delta_id = bookkeeping(
        prism,
        caller,
        DeltaKind::Pickup,
        format!("{} picked up from {from}", caller.persona.identity),
    )
    .await?;
    let mut decisions = store
        .artifacts(
            project,
            Kind::Decision,
            Status::Standing,
            DECISIONS_PICKED_UP,
        )
        .await?;
    let mut open_todos = store
        .artifacts(project, Kind::Todo, Status::Open, TODOS_PICKED_UP)
        .await?;
    let listed = decisions.iter_mut().chain(&mut open_todos);
    listed.for_each(|row| Room::ARTIFACT.artifact(row));
    Ok(PickedUp {
        delta_id,
        wrap,
        deltas,
        open_todos,
        decisions,
        warnings,
    })
}
