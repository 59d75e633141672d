//! Projects and their folders: the operator's side of which folder is which project.

use crate::clock;
use crate::config::failpoint;
use crate::prism::{Caller, Prism};
use prism_core::access::{FoundBy, Place};
use prism_core::{Code, Problem, api};

pub async fn list(prism: &Prism, _: &Caller, _: api::Nothing) -> Result<api::ProjectList, Problem> {
    let folders = prism.store.project_folders().await?;
    let projects = prism.directory.projects().into_iter().map(|project| {
        let mine = folders.iter().filter(|f| f.project_id == project.id);
        api::ProjectView {
            personas: prism.directory.personas(project.id).len(),
            folders: mine
                .map(|f| api::FolderView {
                    machine_id: f.machine_id.clone(),
                    folder: f.folder.clone(),
                    since: f.since,
                    allowed: f.allowed,
                })
                .collect(),
            pid: project.pid.to_string(),
        }
    });
    Ok(api::ProjectList {
        projects: projects.collect(),
    })
}

pub async fn allow(
    prism: &Prism,
    caller: &Caller,
    request: api::ProjectFolder,
) -> Result<api::Ok, Problem> {
    let place = Place {
        machine_id: request.machine_id,
        folder: request.folder,
        by: FoundBy::File,
    };
    prism
        .store
        .allow_folder(caller.project.id, place, clock::now())
        .await?;
    Ok(api::Ok { ok: true })
}

pub async fn forget(
    prism: &Prism,
    caller: &Caller,
    request: api::ProjectFolder,
) -> Result<api::Ok, Problem> {
    let (machine, folder) = (request.machine_id, request.folder);
    let message = format!("{folder} is no folder of {}", caller.project.pid);
    let known = prism
        .store
        .forget_folder(caller.project.id, machine, folder)
        .await?;
    known.then_some(api::Ok { ok: true }).ok_or_else(|| {
        Problem::new(
            Code::NotFound,
            message,
            "`prism project list` shows which folders there are",
        )
    })
}

pub async fn merge(
    prism: &Prism,
    caller: &Caller,
    request: api::ProjectMerge,
) -> Result<api::Ok, Problem> {
    let old = prism.directory.project(&request.from).ok_or_else(|| {
        Problem::new(
            Code::UnknownProject,
            format!(
                "there is no project {:?}",
                prism_core::text::clip(&request.from, 64)
            ),
            "`prism project list` shows which there are",
        )
    })?;
    if old.id == caller.project.id {
        return Err(Problem::field("from", "is the same project"));
    }
    prism
        .store
        .merge_projects(old, caller.project.clone())
        .await?;
    // They are one now, whatever follows: names that cannot be read again now are read later.
    prism.names_changed();
    if failpoint("merge.names_stay_old") {
        return Ok(api::Ok { ok: true });
    }
    if let Err(problem) = prism.read_names().await {
        tracing::warn!(%problem, "The names of a merge could not be read yet");
    }
    Ok(api::Ok { ok: true })
}
