//! Opening and closing sessions.

use super::lifecycle::session_name;
use crate::clock;
use crate::presence::TooMany;
use crate::prism::{Caller, Prism};
use crate::store::{Room, SessionRow};
use prism_core::limits::{SESSIONS_PER_IDENTITY_MAX, STALE_US};
use prism_core::presence::Surface;
use prism_core::{Code, Problem, api, text};

pub async fn register(
    prism: &Prism,
    caller: &Caller,
    request: api::SessionRegister,
) -> Result<api::SessionRegistered, Problem> {
    let surface = Surface::from_name(&request.surface)
        .ok_or_else(|| Problem::field("surface", format!("must be one of {}", Surface::names())))?;
    if caller.is_operator {
        return Err(Problem::new(
            Code::InvalidRequest,
            "the operator needs no session",
            "agents register with a key of their own",
        ));
    }
    let now = clock::now();
    let row = SessionRow {
        id: clock::new_id(),
        project_id: caller.project.id,
        persona_id: caller.persona.id,
        identity: caller.persona.identity.clone(),
        surface: surface.name().into(),
        machine_id: text::clip(&text::one_line(&request.machine_id), 64),
        process_pid: request.process_pid,
        name: request.name.as_deref().map(session_name),
        created_at: now,
        last_seen_at: now,
        first_verb_at: None,
        last_verb_at: None,
        released_at: None,
        waits: None,
        attention: None,
        seat: None,
        left_at: None,
    };
    loop {
        open(prism, &row).await?;
        let room = prism.store.add_session(row.clone()).await;
        if !matches!(room, Ok(Room::Taken)) {
            prism.presence.remove(row.id);
        }
        match room? {
            Room::Taken => break,
            Room::Full { longest_silent } => make_room(prism, &row, longest_silent).await?,
        }
    }
    prism.bus().session_changed(row.id);
    let answer = api::SessionRegistered {
        session_id: row.id,
        pid: caller.project.pid.to_string(),
        project_id: row.project_id,
        identity: row.identity.to_string(),
    };
    Ok(answer)
}

/// Takes a place among the identity's open sessions; a stale one is released to make room.
async fn open(prism: &Prism, row: &SessionRow) -> Result<(), Problem> {
    while let Err(TooMany { longest_silent }) = prism.presence.add(row.clone(), clock::now()) {
        make_room(prism, row, longest_silent).await?;
    }
    Ok(())
}

/// Ends a session that was silent for too long; where there is none, there is no room.
async fn make_room(
    prism: &Prism,
    row: &SessionRow,
    longest_silent: Option<Box<SessionRow>>,
) -> Result<(), Problem> {
    let Some(stale) = longest_silent else {
        let limit = SESSIONS_PER_IDENTITY_MAX;
        return Err(Problem::new(
            Code::TooManySessions,
            format!(
                "{} has {limit} open sessions, and may have no more",
                row.identity
            ),
            "end one of them (`prism status` lists them, `prism session release` ends one)",
        )
        .with("limit", limit));
    };
    let silent_since = clock::now().plus_us(-STALE_US);
    prism.release_silent(&stale, silent_since).await
}

pub async fn release(
    prism: &Prism,
    caller: &Caller,
    request: api::SessionRelease,
) -> Result<api::Ok, Problem> {
    let session = match (&request.session_id, &caller.session) {
        (None, Some(own)) => own.clone(),
        (Some(text), own) => {
            let named = prism.known(|| quoted(prism, caller, text)).await?;
            if !caller.is_operator && own.as_ref().is_none_or(|s| s.id != named.id) {
                return Err(Problem::new(
                    Code::OperatorOnly,
                    "only the operator releases another session",
                    "leave out session_id to release your own",
                ));
            }
            named
        }
        (None, None) => {
            return Err(Problem::field(
                "session_id",
                "must say whose session to release",
            ));
        }
    };
    let reason = request.reason.map_or_else(
        || {
            if caller.is_operator {
                "forced"
            } else {
                "released"
            }
            .to_owned()
        },
        |r| text::clip(&text::one_line(&r), 64),
    );
    prism.release(&session, &reason).await?;
    Ok(api::Ok { ok: true })
}

/// The open session of this project that is quoted, whoever's it is: its id or a unique beginning.
pub fn quoted(prism: &Prism, caller: &Caller, text: &str) -> Result<SessionRow, Problem> {
    let quoted = prism_core::id::Quoted::parse("session_id", text)?;
    let mut found = prism.presence.beginning(caller.project.id, &quoted);
    match (found.pop(), found.is_empty()) {
        (Some(session), true) => Ok(session),
        (None, _) => Err(Problem::new(
            Code::UnknownSession,
            format!("no open session {} in this project", quoted.prefix()),
            "`prism status` lists them",
        )),
        (Some(_), false) => Err(Problem::new(
            Code::Ambiguous,
            format!("more than one open session begins with {}", quoted.prefix()),
            "quote more digits; `prism status --json` shows whole ids",
        )),
    }
}

/// A host's hook says that the session waits for its human, or that it goes on.
pub async fn waiting(
    prism: &Prism,
    caller: &Caller,
    request: api::SessionWaiting,
) -> Result<api::Ok, Problem> {
    if let Some(session) = &caller.session {
        let since = clock::now();
        let waits = request.r#for.map(|r#for| match &session.waits {
            // Told twice, it waits since the first time.
            Some(waits) if waits.r#for == r#for => waits.clone(),
            _ => api::WaitsFor { r#for, since },
        });
        let (presence, id) = (prism.presence.clone(), session.id);
        // Memory follows the rows in their order: two hooks may come at once.
        prism
            .store
            .session_waits(id, waits, move |waits| {
                presence.waits(id, waits, clock::now());
            })
            .await?;
        prism.bus().session_changed(id);
    }
    Ok(api::Ok { ok: true })
}

/// A shim says whether somebody is at its host.
pub async fn attention(
    prism: &Prism,
    caller: &Caller,
    request: api::SessionAttention,
) -> Result<api::Ok, Problem> {
    if let Some(session) = &caller.session {
        let (presence, id) = (prism.presence.clone(), session.id);
        let then = move |attention| presence.attention(id, attention, clock::now());
        let noted = prism.store.session_attention(id, request.attention, then);
        noted.await?;
        prism.bus().session_changed(id);
    }
    Ok(api::Ok { ok: true })
}

pub async fn heartbeat(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<api::Ok, Problem> {
    if let Some(session) = &caller.session {
        let came = prism.presence.seen(session.id, clock::now());
        prism.announce_arrival(session, came);
    }
    Ok(api::Ok { ok: true })
}
