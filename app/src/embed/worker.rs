//! `prism embed-worker`: a child that turns texts into vectors and ends when nobody asks.
//!
//! One line of JSON in, one line out. The model lives and dies with this
//! process, so a burst of embedding never delays a signal and its memory goes back.

use super::model::{MODEL_ID, Model};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

/// How much it steps back behind everything else on the machine.
const NICE: i32 = 10;

#[derive(Debug, Serialize, Deserialize)]
pub struct Ask {
    pub texts: Vec<String>,
}

/// What the worker says: first whether the model could be loaded, then one answer a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    Ready { model: String },
    Vectors(Vec<Vec<f32>>),
    Failed(String),
}

/// Serves until standard input ends, or until nobody has asked for `idle`.
pub fn run(dir: &Path, idle: Duration) -> Result<()> {
    // Refused only where a sandbox forbids it; then it works unniced.
    let _ = rustix::process::nice(NICE);
    let model = match Model::load(dir) {
        Ok(model) => model,
        Err(error) => return say(&Said::Failed(format!("{error:#}"))),
    };
    say(&Said::Ready {
        model: MODEL_ID.into(),
    })?;
    let (lines, asked) = sync_channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
        // The server is gone: nobody waits for a text that is under way.
        std::process::exit(0);
    });
    loop {
        let line = match asked.recv_timeout(idle) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return Ok(()),
        };
        if crate::config::failpoint("embed.dies") {
            std::process::abort();
        }
        if crate::config::failpoint("embed.hangs") {
            std::thread::sleep(Duration::from_secs(3600));
        }
        let answer = serde_json::from_str::<Ask>(&line)
            .context("the question is not JSON")
            .and_then(|ask| {
                ask.texts
                    .iter()
                    .map(|text| model.embed(text))
                    .collect::<Result<Vec<_>>>()
            })
            .map_or_else(|error| Said::Failed(format!("{error:#}")), Said::Vectors);
        say(&answer)?;
    }
}

fn say(said: &Said) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, said)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
