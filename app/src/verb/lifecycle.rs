//! Beginning, checkpointing and ending an agent's session.

use crate::clock;
use crate::prism::{Caller, Prism};
use prism_core::presence::SessionState;
use prism_core::{Code, Problem, api};

pub async fn start(prism: &Prism, caller: &Caller, _: api::Start) -> Result<api::Started, Problem> {
    let session = caller.session.as_ref().ok_or_else(|| Problem::new(Code::UnknownSession, "prism_start needs a session", "register one first"))?;
    let sessions = prism.presence.sessions(caller.project.id, clock::now());
    let peers = sessions.into_iter().filter(|(_, s)| s.session_id != session.id && s.state != SessionState::Stale);
    let counts = prism.store.pending_counts(caller.project.id).await?;
    Ok(api::Started {
        session_id: session.id,
        pid: caller.project.pid.to_string(),
        identity: session.identity.to_string(),
        surface: session.surface.clone(),
        peers: peers.map(|(_, s)| api::Peer { identity: s.identity, surface: s.surface, machine_id: s.machine_id, state: s.state }).collect(),
        unread: counts.into_iter().find(|(id, _)| *id == caller.persona.id).map(|(_, n)| n).unwrap_or_default(),
    })
}
