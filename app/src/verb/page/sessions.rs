//! Sessions past and present.

use super::asked;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::page::SessionFilter;
use prism_core::Problem;
use prism_core::api::SessionView;
use prism_core::api::page::{ListSessions, SessionPage, SessionRow};

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListSessions,
) -> Result<SessionPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = SessionFilter {
        identity: request.identity,
        surface: request.surface,
        which: request.which,
    };
    let listed = prism.store.list_sessions(scope, filter, range).await?;
    let now = clock::now();
    // Who is here is known in memory; the rows are written down now and then.
    let listed = listed.map(|row| match prism.presence.view(row.session_id, now) {
        Some(view) if row.released_at.is_none() => row_of(&row.pid, view),
        _ => row,
    });
    Ok(SessionPage {
        sessions: listed.rows,
        next: listed.next,
    })
}

/// An open session as a page shows it.
pub fn row_of(pid: &str, view: SessionView) -> SessionRow {
    SessionRow {
        pid: pid.to_owned(),
        session_id: view.session_id,
        name: view.name,
        identity: view.identity,
        surface: view.surface,
        machine_id: view.machine_id,
        process_pid: view.process_pid,
        state: view.state,
        connected: view.connected,
        started_at: view.started_at,
        last_seen_at: view.last_seen_at,
        last_verb_at: view.last_verb_at,
        released_at: None,
        release_reason: None,
        waits_for: view.waits.as_ref().map(|w| w.r#for),
        waits_since: view.waits.map(|w| w.since),
    }
}
