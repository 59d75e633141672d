//! `prism project`: which folders use which project.

use super::{Context, print_json};
use crate::client::{self, Client, Locator};
use crate::clock;
use crate::config::{self, Env};
use crate::ui::{Failure, Outcome, ago, out, table};
use clap::{Args, Subcommand};
use prism_core::api;
use serde_json::{Value, json};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism project list\n  prism project allow PID-PGR01      agents of this folder may use that project\n  prism project merge old-name new   everything of old-name becomes part of new\n\nA project belongs to the folder it was first used in. A folder that only finds its\nproject (by .prism/project.toml or by its own name) joins one of another folder once it\nis allowed; PRISM_PID and --pid name a project and may join any."
)]
pub struct Project {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Every project with its folders
    List,
    /// Let the agents of this folder use a project
    Allow { pid: String },
    /// Take this folder away from a project
    Forget { pid: String },
    /// Make one project out of two: everything of OLD becomes part of NEW
    Merge { old: String, new: String },
}

impl Project {
    pub async fn run(self, context: Context) -> Outcome {
        let (answer, done) = match &self.action {
            Action::List => return list(&context).await,
            Action::Allow { pid } => {
                let (here, folder) = this_folder()?;
                let answer = call(&context, pid, "project_allow", here).await?;
                (answer, format!("{folder} may use {pid}"))
            }
            Action::Forget { pid } => {
                let (here, folder) = this_folder()?;
                let answer = call(&context, pid, "project_forget", here).await?;
                (answer, format!("{folder} is no folder of {pid} any more"))
            }
            Action::Merge { old, new } => {
                let answer = call(&context, new, "project_merge", json!({"from": old})).await?;
                (answer, format!("{old} is part of {new} now"))
            }
        };
        if context.json {
            print_json(&answer);
        } else {
            out(&done);
        }
        Ok(())
    }
}

async fn list(context: &Context) -> Outcome {
    // About all of them: looking at the list makes no project of this folder.
    let (list, answer): (api::ProjectList, Value) =
        context.ask_everywhere("project_list", json!({})).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let (now, mut rows) = (clock::now(), Vec::new());
    for project in &list.projects {
        let personas = format!("{} personas", project.personas);
        if project.folders.is_empty() {
            rows.push(vec![
                project.pid.clone(),
                personas.clone(),
                "no folder".into(),
            ]);
        }
        for folder in &project.folders {
            let how = if folder.allowed {
                "allowed"
            } else {
                "first used"
            };
            rows.push(vec![
                project.pid.clone(),
                personas.clone(),
                format!("{}:{}", folder.machine_id, folder.folder),
                format!("{how} {}", ago(folder.since, now)),
            ]);
        }
    }
    out(&table(&rows));
    Ok(())
}

/// This folder as sessions in it name it, whatever the environment says of the project.
fn this_folder() -> Result<(Value, String), Failure> {
    let cwd = std::env::current_dir()
        .map_err(|e| anyhow::anyhow!("cannot tell the working directory: {e}"))?;
    let choice = config::choose_project(None, &Env::default(), &cwd)?;
    let folder = choice.found.map(|f| f.folder).unwrap_or_default();
    let here = json!({"machine_id": config::machine_id(), "folder": folder});
    Ok((here, folder))
}

/// Calls a verb in a project that is named, and must be there.
async fn call(context: &Context, pid: &str, path: &str, body: Value) -> Result<Value, Failure> {
    let key = client::find_key(&context.env, &context.home, context.identity.as_ref())?;
    let client = Client::new(Locator::of(&context.env, &context.home)?, key)?;
    Ok(client.call(pid, path, body).await?)
}
