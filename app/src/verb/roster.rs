//! Who is here, and what is known of reaching them.

use crate::clock;
use crate::prism::{Caller, Prism};
use prism_core::api::{self, Reachable, SessionView};
use prism_core::limits::PEERS_MAX;
use prism_core::{Code, Problem};
use uuid::Uuid;

pub async fn status(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<api::Status, Problem> {
    let now = clock::now();
    let mut sessions = prism.presence.sessions(caller.project.id, now);
    // Where not all can be listed, the caller's own come first.
    sessions.sort_by_key(|(persona, _)| *persona != caller.persona.id);
    let sessions_more = sessions.len().saturating_sub(PEERS_MAX) as u64;
    sessions.truncate(PEERS_MAX);
    let counts = async { Ok(prism.store.pending_counts(caller.project.id).await?) };
    let (counts, sessions) = tokio::try_join!(counts, with_proof(prism, sessions))?;
    let personas = prism
        .directory
        .personas(caller.project.id)
        .into_iter()
        .map(|p| api::PersonaView {
            recipient_state: prism.presence.recipient_state(p.id, p.is_operator, now),
            pending: counts
                .iter()
                .find(|(id, _)| *id == p.id)
                .map(|(_, n)| *n)
                .unwrap_or_default(),
            identity: p.identity.to_string(),
            operator: p.is_operator,
        });
    Ok(api::Status {
        pid: caller.project.pid.to_string(),
        server_version: crate::config::version().into(),
        sessions: sessions.into_iter().map(|(_, view)| view).collect(),
        sessions_more,
        personas: personas.collect(),
    })
}

pub async fn whois(
    prism: &Prism,
    caller: &Caller,
    request: api::Whois,
) -> Result<api::WhoisAnswer, Problem> {
    let persona =
        prism
            .directory
            .named(caller.project.id, &request.identity, Code::UnknownIdentity)?;
    let now = clock::now();
    let mine = prism.presence.sessions(caller.project.id, now).into_iter();
    let mine = mine.filter(|(id, _)| *id == persona.id);
    let mut sessions: Vec<SessionView> = mine.map(|(_, view)| view).collect();
    prism.store.settle().await?;
    // What was proven stays proven when the session is over.
    let ids = sessions.iter().map(|s| s.session_id).collect();
    let (reachable, proven) = prism.store.last_proven_of(persona.id, ids).await?;
    add_proof(&mut sessions, &proven);
    Ok(api::WhoisAnswer {
        recipient_state: prism
            .presence
            .recipient_state(persona.id, persona.is_operator, now),
        identity: persona.identity.to_string(),
        operator: persona.is_operator,
        since: persona.created_at,
        sessions,
        reachable,
    })
}

/// Adds to each session what was last proven about it.
async fn with_proof(
    prism: &Prism,
    mut sessions: Vec<(Uuid, SessionView)>,
) -> Result<Vec<(Uuid, SessionView)>, Problem> {
    if sessions.is_empty() {
        return Ok(sessions);
    }
    prism.store.settle().await?;
    let proven = prism
        .store
        .last_proven(sessions.iter().map(|(_, s)| s.session_id).collect())
        .await?;
    add_proof(sessions.iter_mut().map(|(_, session)| session), &proven);
    Ok(sessions)
}

fn add_proof<'s>(sessions: impl IntoIterator<Item = &'s mut SessionView>, proven: &[Reachable]) {
    for session in sessions {
        let of_session = proven.iter().find(|r| r.session_id == session.session_id);
        session.reachable = of_session.cloned();
    }
}

pub async fn ping(_: &Prism, _: &Caller, _: api::Nothing) -> Result<api::Ok, Problem> {
    Ok(api::Ok { ok: true })
}

pub async fn projects(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<api::ProjectsAnswer, Problem> {
    let identity = (!caller.is_operator).then_some(&caller.persona.identity);
    Ok(api::ProjectsAnswer {
        projects: prism.directory.visible_projects(identity),
    })
}
