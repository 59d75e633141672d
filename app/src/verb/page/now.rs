//! What waits on the operator, and what every agent is at.

use super::projects;
use super::sessions::row_of;
use super::signals::Recipients;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Persona;
use crate::store::page::{Inboxes, OnOperator};
use prism_core::Problem;
use prism_core::api::Nothing;
use prism_core::api::page::{AgentView, Agents, Now, SessionRow};
use prism_core::limits::PEERS_MAX;
use prism_core::ring::ByCategory;
use prism_core::signal::Category;

/// What the operator is told of signals between others.
static PRESSING: [Category; 2] = [Category::Blocker, Category::Ask];

pub async fn now(prism: &Prism, caller: &Caller, _: Nothing) -> Result<Now, Problem> {
    let at = clock::now();
    let scope = prism.scope(caller);
    let ids = projects(prism, caller);
    let everybody = scope.iter().flat_map(|p| prism.directory.personas(p.id));
    let (mine, others): (Vec<_>, Vec<_>) = everybody.partition(|p| p.is_operator);
    let inboxes = |personas: &[Persona], categories| Inboxes {
        personas: personas.iter().map(|p| p.id).collect(),
        categories,
    };
    let sides = [
        inboxes(&mine, &Category::BY_URGENCY),
        inboxes(&others, &PRESSING),
    ];
    let OnOperator {
        to_me,
        unread,
        counts,
        inputs,
        inputs_left,
        warnings,
        warnings_left,
    } = prism.store.on_operator(sides, ids).await?;
    let (mut to_me_left, mut unread_left) = (ByCategory::default(), ByCategory::default());
    for (persona, n) in counts {
        let (left, counted) = match mine.iter().any(|p| p.id == persona) {
            true => (&mut to_me_left, Category::BY_URGENCY.as_slice()),
            false => (&mut unread_left, PRESSING.as_slice()),
        };
        for category in counted {
            left.add(*category, n.get(*category));
        }
    }
    for (shown, left) in [(&to_me, &mut to_me_left), (&unread, &mut unread_left)] {
        let shown = shown.iter().filter_map(|looked| looked.row.category);
        shown.for_each(|category| left.take(category));
    }
    let mut waiting: Vec<SessionRow> = scope
        .iter()
        .flat_map(|project| {
            let sessions = prism.presence.sessions(project.id, at).into_iter();
            sessions.map(|(_, view)| row_of(project.pid.as_str(), view))
        })
        .filter(|session| session.waits_for.is_some())
        .collect();
    waiting.sort_by_key(|session| session.waits_since);
    let mut knows = Recipients::new(prism);
    Ok(Now {
        at,
        to_me: to_me.into_iter().map(|l| knows.row(l)).collect(),
        to_me_more: u64::from(to_me_left.total()),
        to_me_left,
        unread: unread.into_iter().map(|l| knows.row(l)).collect(),
        unread_more: u64::from(unread_left.total()),
        unread_left,
        waiting,
        inputs_more: inputs_left.saturating_sub(inputs.len() as u64),
        inputs,
        warnings_more: warnings_left.saturating_sub(warnings.len() as u64),
        warnings,
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
        let ids = personas.iter().map(|p| p.id).collect();
        let proven = prism.store.last_proven_of_each(ids).await?;
        for (persona, reachable) in personas.into_iter().zip(proven) {
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
                reachable,
                operator: persona.is_operator,
                identity: persona.identity.to_string(),
            });
        }
    }
    Ok(Agents { agents })
}
