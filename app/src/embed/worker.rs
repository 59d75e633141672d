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
pub struct Texts {
    pub texts: Vec<String>,
}

/// What the worker answers: first whether the model could be loaded, then one answer a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Ready { model: String },
    Vectors(Vec<Vec<f32>>),
    Failed(String),
}

/// Serves until standard input ends, or until nobody has asked for `idle`.
pub fn run(dir: &Path, idle: Duration) -> Result<()> {
    // Refused only where a sandbox forbids it; then it works unniced.
    let _ = rustix::process::nice(NICE);
    let (lines, asked) = sync_channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
        // Whoever asked is gone: nobody wants what is being worked on, or still being loaded.
        std::process::exit(0);
    });
    let model = match Model::load(dir) {
        Ok(model) => model,
        Err(error) => return reply(&Reply::Failed(format!("{error:#}"))),
    };
    reply(&Reply::Ready {
        model: MODEL_ID.into(),
    })?;
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
        let answer = serde_json::from_str::<Texts>(&line)
            .context("the question is not JSON")
            .and_then(|asked| {
                asked
                    .texts
                    .iter()
                    .map(|text| model.embed(text))
                    .collect::<Result<Vec<_>>>()
            })
            .map_or_else(|error| Reply::Failed(format!("{error:#}")), Reply::Vectors);
        reply(&answer)?;
    }
}

fn reply(reply: &Reply) -> Result<()> {
    let mut out = std::io::stdout().lock();
    serde_json::to_writer(&mut out, reply)?;
    out.write_all(b"\n")?;
    Ok(out.flush()?)
}
