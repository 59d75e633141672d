//! The demonstration project.

use crate::clock;
use crate::demo::{self, PID, Week};
use crate::prism::{Caller, Prism};
use crate::verb::import;
use prism_core::api::memory::Import;
use prism_core::api::page::house::{AskDemo, DemoDone};
use prism_core::api::{WaitsFor, close};
use prism_core::hook::Waiting;
use prism_core::memory::operator::Review;
use prism_core::{Code, Identity, Problem, ProjectName};
use std::collections::BTreeMap;

pub async fn demo(prism: &Prism, caller: &Caller, request: AskDemo) -> Result<DemoDone, Problem> {
    // Several at once take turns: the second finds what the first has made.
    let _turn = prism.demo.lock().await;
    let known = prism.directory.project(PID);
    let answer = |changed, rows| DemoDone {
        pid: PID.into(),
        changed,
        rows,
    };
    match (known, request.remove) {
        (None, true) => Ok(answer(false, BTreeMap::new())),
        (Some(project), true) => {
            // Those of the demonstration belong to no process.
            let sessions = prism.presence.sessions(project.id, clock::now());
            let real = sessions.iter().filter(|(_, s)| s.process_pid != 0).count();
            if real > 0 {
                return Err(Problem::new(
                    Code::Conflict,
                    format!("{real} session(s) of agents are open in {PID}"),
                    "end them first (`prism status --pid PID-DEMO` lists them): their work would go with it",
                ));
            }
            let removed = prism.store.remove_demo(project.id).await?;
            let rows = removed.ok_or_else(not_ours)?;
            prism.presence.forget_project(project.id);
            let gone = "its project is gone";
            prism.hub.close_project(project.id, close::REFUSED, gone);
            prism.names_changed();
            prism.read_names().await?;
            Ok(answer(true, rows))
        }
        (Some(_), false) => {
            let settings = prism.store.project_settings().await?;
            match settings.iter().any(|p| p.pid == PID && p.demo) {
                true => Ok(answer(false, BTreeMap::new())),
                false => Err(not_ours()),
            }
        }
        (None, false) => Ok(answer(true, write(prism, caller, request.seed).await?)),
    }
}

fn not_ours() -> Problem {
    Problem::new(
        Code::Conflict,
        format!("{PID} is a project that `prism demo` did not make"),
        "give that project another name first",
    )
}

async fn write(
    prism: &Prism,
    caller: &Caller,
    seed: Option<u64>,
) -> Result<BTreeMap<String, u64>, Problem> {
    let now = clock::now();
    let project = prism.ensure_project(ProjectName::parse(PID)?).await?;
    // From here on it can be taken away, however far this comes.
    prism.store.mark_demo(project.id).await?;
    let operator = prism.directory.operator(project.id).ok_or_else(not_ours)?;
    let Week {
        lines,
        mut rows,
        accepted,
        rejected,
    } = demo::week(seed, now, operator.identity.as_str());
    rows.project = project.id;
    rows.personas
        .insert(operator.identity.to_string(), operator.id);
    for (name, ..) in demo::agents(operator.identity.as_str()) {
        let (persona, _) = prism
            .ensure_persona(&project, &Identity::parse(name)?)
            .await?;
        rows.personas.insert(name.to_owned(), persona.id);
    }
    let here = Caller {
        project: project.clone(),
        persona: operator,
        everywhere: false,
        ..caller.clone()
    };
    let request = Import {
        source: "prism demo".into(),
        lines,
        dry_run: false,
    };
    let ids = std::mem::take(&mut rows.ids);
    let id_of = |line: &str| ids.get(line).copied().unwrap_or_else(clock::new_id);
    rows.ids = import::import_as(prism, &here, request, &id_of).await?.ids;
    for (lines, review) in [(accepted, Review::Accepted), (rejected, Review::Rejected)] {
        let ids = lines.iter().filter_map(|line| rows.ids.get(*line));
        let ids = ids.map(ToString::to_string).collect();
        prism
            .store
            .review(project.id, ids, Some(review), now)
            .await?;
    }
    // Those that are at work now are known to be, as far as anybody can tell from a row.
    let open: Vec<_> = rows.sessions.iter().filter(|s| !s.released).collect();
    let mut sessions = Vec::new();
    for session in open {
        sessions.push(crate::store::SessionRow {
            id: session.id,
            project_id: project.id,
            persona_id: rows.personas[session.identity],
            identity: Identity::parse(session.identity)?,
            surface: session.surface.into(),
            machine_id: session.machine_id.into(),
            process_pid: 0,
            name: None,
            created_at: session.from,
            last_seen_at: now,
            first_verb_at: Some(session.from),
            last_verb_at: Some(session.last),
            released_at: None,
            waits: session.waits_since.map(|since| WaitsFor {
                r#for: Waiting::Permission,
                since,
            }),
            attention: None,
            seat: None,
            left_at: None,
        });
    }
    let written = prism.store.write_demo(rows).await?;
    for session in sessions {
        // An identity with too many sessions of its own is shown without this one.
        let _ = prism.presence.add(session, now);
    }
    Ok(written)
}
