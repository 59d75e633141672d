//! `prism embed-worker`: a child that turns texts into vectors and ends when nobody asks.
//!
//! A line of JSON in; a line of JSON and the vectors' bytes out. Questions run at
//! once, on several threads; texts of rows run niced on a thread of their own, and
//! stand still while a question runs. The models live and die with this process, so a
//! burst of embedding never delays a signal and its memory goes back.

use super::encoder::{Encoder, Questions, Trouble};
use anyhow::{Context, Result};
use prism_core::memory::generation::{Generation, Model};
use prism_core::memory::vector::to_bytes;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How much rows step back behind everything else on the machine.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// Threads of a question, where the machine has as many.
const THREADS_MAX: usize = 4;
/// How long a few texts of rows stand still while questions come one after the other.
const ROWS_WAIT: Duration = Duration::from_millis(500);
/// Threads of rows: niced, they take what nobody else wants.
const ROWS_THREADS_MAX: usize = 2;

/// Texts to embed.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    pub id: u64,
    pub generation: String,
    /// The models that a question is asked by; none for the texts of rows, which need all of them.
    pub question: Option<Vec<String>>,
    pub texts: Vec<String>,
}

/// The answer to what was asked under the same id.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reply {
    pub id: u64,
    pub answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// So many vectors of so many numbers; their bytes follow the line.
    Vectors {
        count: usize,
        dimensions: usize,
        /// The models that made them, and why one that was asked for did not.
        models: Vec<String>,
        lacks: Option<String>,
    },
    /// The models cannot be loaded.
    NoModel(String),
    /// These texts cannot be embedded.
    Failed(String),
}

/// Serves until standard input ends, or until nobody has asked for `idle`.
pub fn run(models: &Path, idle: Duration) -> Result<()> {
    let encoder = Arc::new(Encoder::new(models));
    let turn = Arc::new(Turn::default());
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get().min(THREADS_MAX));
    let questions = rayon::ThreadPoolBuilder::new().num_threads(threads);
    let rows = rayon::ThreadPoolBuilder::new()
        .num_threads(threads.min(ROWS_THREADS_MAX))
        .start_handler(|_| step_back());
    let (beat, beats) = channel();
    let questions = serve(questions.build()?, encoder.clone(), turn.clone(), &beat);
    let rows = serve(rows.build()?, encoder, turn, &beat);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let sent = match serde_json::from_str::<Asked>(&line) {
                Ok(asked) if asked.question.is_some() => questions.send(asked).is_ok(),
                Ok(asked) => rows.send(asked).is_ok(),
                // Whoever speaks otherwise is no server of this build; it hears nothing, and says so.
                Err(_) => false,
            };
            if !sent || beat.send(true).is_err() {
                break;
            }
        }
        // Whoever asked is gone: nobody wants what is being worked on, or still being loaded.
        std::process::exit(0);
    });
    let mut under_way = 0i64;
    loop {
        match beats.recv_timeout(idle) {
            Ok(begins) => under_way += if begins { 1 } else { -1 },
            Err(RecvTimeoutError::Timeout) if under_way > 0 => {}
            Err(_) => return Ok(()),
        }
    }
}

/// Rows are niced thread by thread, which only Linux can do.
fn step_back() {
    // Refused only where a sandbox forbids it; then they work unniced.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(NICE);
}

/// A thread that answers what it is sent, one after the other, on the threads of a pool.
fn serve(
    pool: rayon::ThreadPool,
    encoder: Arc<Encoder>,
    turn: Arc<Turn>,
    beat: &Sender<bool>,
) -> Sender<Asked> {
    let (sender, asked): (_, Receiver<Asked>) = channel();
    let beat = beat.clone();
    std::thread::spawn(move || {
        for asked in asked {
            let said = pool.install(|| embed(&encoder, &turn, &asked));
            if reply(asked.id, said).is_err() || beat.send(false).is_err() {
                return;
            }
        }
    });
    sender
}

fn embed(encoder: &Encoder, turn: &Turn, asked: &Asked) -> Result<Questions, Trouble> {
    let poisoned = || asked.texts.iter().any(|text| text.contains("poison"));
    if crate::config::failpoint("embed.dies")
        || (crate::config::failpoint("embed.dies_over_poison") && poisoned())
    {
        std::process::abort();
    }
    if crate::config::failpoint("embed.hangs") {
        std::thread::sleep(Duration::from_secs(3600));
    }
    let generation = Generation::of(&asked.generation)
        .with_context(|| {
            format!(
                "this prism knows no model {}; restart the server after an upgrade",
                asked.generation
            )
        })
        .map_err(Trouble::Model)?;
    match &asked.question {
        Some(by) => {
            let _first = turn.first();
            let by: Vec<Model> = by
                .iter()
                .filter_map(|name| Model::from_name(name))
                .collect();
            encoder.questions(generation, &by, &asked.texts)
        }
        None => {
            let vectors = encoder.rows(generation, &asked.texts, &|| turn.wait())?;
            Ok(Questions {
                vectors,
                models: generation.names(),
                lacks: None,
            })
        }
    }
}

fn reply(id: u64, said: Result<Questions, Trouble>) -> Result<()> {
    let mut bytes = Vec::new();
    let answer = match said {
        Ok(made) => {
            let vectors = &made.vectors;
            bytes.extend(vectors.iter().flat_map(|vector| to_bytes(vector)));
            Answer::Vectors {
                count: vectors.len(),
                dimensions: vectors.first().map_or(0, Vec::len),
                models: made.models.iter().map(|&name| name.to_owned()).collect(),
                lacks: made.lacks,
            }
        }
        Err(Trouble::Model(error)) => Answer::NoModel(format!("{error:#}")),
        Err(Trouble::Texts(error)) => Answer::Failed(format!("{error:#}")),
    };
    let mut line = serde_json::to_vec(&Reply { id, answer })?;
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line)?;
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

/// Who may run: rows stand still while a question does, but not for ever.
#[derive(Default)]
struct Turn {
    questions: Mutex<usize>,
    ended: Condvar,
}

impl Turn {
    fn first(&self) -> First<'_> {
        *self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
        First(self)
    }

    fn wait(&self) {
        let questions = self
            .questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let runs = |running: &mut usize| *running > 0;
        let waited = self.ended.wait_timeout_while(questions, ROWS_WAIT, runs);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// A question that runs.
struct First<'a>(&'a Turn);

impl Drop for First<'_> {
    fn drop(&mut self) {
        let questions = &self.0.questions;
        *questions.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_without_end_do_not_hold_rows_up_for_ever() {
        let turn = Turn::default();
        let _question = turn.first();
        turn.wait();
    }
}
