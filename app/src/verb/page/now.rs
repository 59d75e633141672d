//! What waits on the operator, and what every agent is at.

use super::projects;
use super::sessions::row_of;
use super::signals::Recipients;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::page::{GateFilter, InputFilter, Look, Range};
use prism_core::Problem;
use prism_core::api::Nothing;
use prism_core::api::page::memory::ReviewWanted;
use prism_core::api::page::{AgentView, Agents, GateOutcomeName, Now, SessionRow};
use prism_core::limits::{NOW_ROWS, PEERS_MAX};
use prism_core::signal::Category;

pub async fn now(prism: &Prism, caller: &Caller, _: Nothing) -> Result<Now, Problem> {
    let at = clock::now();
    let scope = prism.scope(caller);
    let ids = projects(prism, caller);
    let everybody = scope.iter().flat_map(|p| prism.directory.personas(p.id));
    let (mine, others): (Vec<_>, Vec<_>) = everybody.partition(|p| p.is_operator);
    let store = &prism.store;
    let own = |personas: &[crate::store::Persona]| personas.iter().map(|p| p.id).collect();
    let look = |newest| Look {
        after: -1,
        newest,
        n: NOW_ROWS,
    };
    let to_me = store.look_into(own(&mine), Vec::new(), look(true)).await?;
    let urgent = vec![Category::Blocker, Category::Ask];
    let unread = store.look_into(own(&others), urgent, look(false)).await?;
    let (mut to_me_more, mut unread_more) = (0, 0);
    for project in &scope {
        for (persona, n) in store.pending_counts(project.id).await? {
            match mine.iter().any(|p| p.id == persona) {
                true => to_me_more += u64::from(n.ask + n.blocker + n.task + n.info),
                false => unread_more += u64::from(n.ask + n.blocker),
            }
        }
    }
    to_me_more = to_me_more.saturating_sub(to_me.len() as u64);
    unread_more = unread_more.saturating_sub(unread.len() as u64);
    let mut waiting: Vec<SessionRow> = scope
        .iter()
        .flat_map(|project| {
            let sessions = prism.presence.sessions(project.id, at).into_iter();
            sessions.map(|(_, view)| row_of(project.pid.as_str(), view))
        })
        .filter(|session| session.waits_for.is_some())
        .collect();
    waiting.sort_by_key(|session| session.waits_since);
    let newest = Range {
        since: None,
        until: None,
        cursor: None,
        limit: NOW_ROWS,
    };
    let unreviewed = InputFilter {
        review: Some(ReviewWanted::Unreviewed),
        ..InputFilter::default()
    };
    let inputs = store
        .list_inputs(ids.clone(), unreviewed, newest.clone())
        .await?;
    let unlabelled = GateFilter {
        outcome: Some(GateOutcomeName::Warned),
        labelled: Some(false),
        identity: None,
    };
    let warnings = store.list_gate(ids.clone(), unlabelled, newest).await?;
    let (inputs_left, warnings_left) = store.left_to_judge(ids).await?;
    let mut knows = Recipients::new(prism);
    Ok(Now {
        at,
        to_me: to_me.into_iter().map(|(_, l)| knows.row(l)).collect(),
        to_me_more,
        unread: unread.into_iter().map(|(_, l)| knows.row(l)).collect(),
        unread_more,
        waiting,
        inputs_more: inputs_left.saturating_sub(inputs.rows.len() as u64),
        inputs: inputs.rows,
        warnings_more: warnings_left.saturating_sub(warnings.rows.len() as u64),
        warnings: warnings.rows,
    })
}

pub async fn agents(prism: &Prism, caller: &Caller, _: Nothing) -> Result<Agents, Problem> {
    let at = clock::now();
    let mut agents = Vec::new();
    let mut knows = Recipients::new(prism);
    for project in prism.scope(caller) {
        let personas = prism.directory.personas(project.id);
        let counts = prism.store.pending_counts(project.id).await?;
        let mut doing = prism
            .store
            .doing(personas.iter().map(|p| p.id).collect())
            .await?;
        let sessions = prism.presence.sessions(project.id, at);
        for persona in personas {
            let doing = doing.remove(&persona.id).unwrap_or_default();
            let mine = sessions.iter().filter(|(id, _)| *id == persona.id);
            let mut mine: Vec<SessionRow> = mine
                .map(|(_, view)| row_of(project.pid.as_str(), view.clone()))
                .collect();
            let sessions_more = mine.len().saturating_sub(PEERS_MAX) as u64;
            mine.truncate(PEERS_MAX);
            agents.push(AgentView {
                pid: project.pid.to_string(),
                state: prism
                    .presence
                    .recipient_state(persona.id, persona.is_operator, at),
                sessions: mine,
                sessions_more,
                unread: counts
                    .iter()
                    .find(|(id, _)| *id == persona.id)
                    .map(|(_, n)| *n)
                    .unwrap_or_default(),
                oldest_unread_at: doing.oldest_unread_at,
                last_delta: doing.last_delta,
                task: doing.task.map(|looked| knows.row(looked)),
                reachable: prism.store.last_proven_of(persona.id).await?,
                operator: persona.is_operator,
                identity: persona.identity.to_string(),
            });
        }
    }
    Ok(Agents { agents })
}
