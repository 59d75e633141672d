//! The worker process from the server's side: started when it is needed, asked by several at once.

use super::model;
use super::worker::{Answer, Asked, Reply};
use crate::home::Home;
use anyhow::{Context, Result, bail};
use prism_core::memory::generation::Generation;
use prism_core::memory::vector::from_bytes;
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::task::JoinHandle;

/// Bytes of one answer; a worker that announces more speaks nonsense.
const ANSWER_BYTES_MAX: usize = 1 << 28;

/// Why texts have no vectors.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The worker went down with these texts.
    #[error("the embedding worker died")]
    Died,
    #[error("the embedding worker hung for {0} s and was ended")]
    Hung(u64),
    #[error("{0}")]
    Refused(String),
    /// No text is to blame.
    #[error("{0}")]
    NoModel(String),
}

/// The one worker of a home, when there is one.
pub struct Workers {
    home: Home,
    worker: Turn<Option<Arc<Worker>>>,
}

impl Workers {
    pub fn new(home: Home) -> Self {
        Self {
            home,
            worker: Turn::new(None),
        }
    }

    /// The vectors of some texts. A worker that ended idle, or was killed, is replaced; one that goes
    /// down with these very texts as well, once.
    pub async fn embed(
        &self,
        generation: &Generation,
        question: Option<&[&str]>,
        texts: &[String],
        patience: Duration,
    ) -> Result<Made, Fault> {
        let (worker, fresh) = self.worker().await?;
        match worker.embed(generation, question, texts, patience).await {
            // One that was ended because it hung at something else did not die of these texts.
            Err(Fault::Died) if !fresh || worker.was_ended() => {
                self.let_go(&worker).await;
                let (worker, _) = self.worker().await?;
                let answer = worker.embed(generation, question, texts, patience).await;
                self.told(&worker, answer).await
            }
            answer => self.told(&worker, answer).await,
        }
    }

    /// Lets go of a worker that died, also before whoever listens to it has heard so.
    async fn let_go(&self, dead: &Arc<Worker>) {
        let mut held = self.worker.lock().await;
        if held
            .as_ref()
            .is_some_and(|worker| Arc::ptr_eq(worker, dead))
        {
            *held = None;
        }
    }

    /// Ends a worker that hangs, and that one alone: another may have taken its place.
    async fn told<T>(&self, worker: &Arc<Worker>, answer: Result<T, Fault>) -> Result<T, Fault> {
        if matches!(answer, Err(Fault::Hung(_))) {
            self.let_go(worker).await;
            worker.end();
        }
        answer
    }

    async fn worker(&self) -> Result<(Arc<Worker>, bool), Fault> {
        let mut held = self.worker.lock().await;
        if let Some(worker) = held.as_ref().filter(|worker| !worker.has_ended()) {
            return Ok((worker.clone(), false));
        }
        let started = Worker::start(&self.home).map_err(|e| Fault::NoModel(format!("{e:#}")))?;
        let worker = Arc::new(started);
        *held = Some(worker.clone());
        Ok((worker, true))
    }
}

/// Vectors, and who made them.
pub struct Made {
    pub vectors: Vec<Vec<f32>>,
    pub models: Vec<String>,
    /// Why a model that was asked for did not take part.
    pub lacks: Option<String>,
}

type Vectors = Result<Made, Fault>;
/// Who waits for which answer; none once the worker has ended.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Vectors>>>>>;

/// A child process and the task that hears it.
struct Worker {
    input: Turn<ChildStdin>,
    waiting: Waiting,
    next: AtomicU64,
    listener: JoinHandle<()>,
    ended: AtomicBool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The child goes with the task that holds it.
        self.listener.abort();
    }
}

impl Worker {
    fn start(home: &Home) -> Result<Self> {
        let mut command = Command::new(crate::config::this_program()?);
        command
            .arg("embed-worker")
            .arg("--models")
            .arg(model::folder(home))
            .stderr(Stdio::null());
        Self::of(command)
    }

    fn of(mut command: Command) -> Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the embedding worker")?;
        let input = child.stdin.take().context("no pipe")?;
        let output = child.stdout.take().context("no pipe")?;
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let listener = tokio::spawn(listen(child, output, waiting.clone()));
        Ok(Self {
            input: Turn::new(input),
            waiting,
            next: AtomicU64::new(1),
            listener,
            ended: AtomicBool::new(false),
        })
    }

    /// Ends the process, whoever else still waits for it: they hear of it by the end of their
    /// channels.
    fn end(&self) {
        self.ended.store(true, Ordering::Release);
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        drop(waiting.take());
        self.listener.abort();
    }

    fn was_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    fn has_ended(&self) -> bool {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.is_none()
    }

    async fn embed(
        &self,
        generation: &Generation,
        question: Option<&[&str]>,
        texts: &[String],
        patience: Duration,
    ) -> Vectors {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let asked = Asked {
            id,
            generation: generation.id.to_owned(),
            question: question.map(|by| by.iter().map(|name| (*name).to_owned()).collect()),
            texts: texts.to_vec(),
        };
        let mut line = serde_json::to_vec(&asked).map_err(|e| Fault::Refused(format!("{e:#}")))?;
        line.push(b'\n');
        let (sender, answered) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let waiting = waiting.as_mut().ok_or(Fault::Died)?;
            waiting.insert(id, sender);
        }
        let ask = async {
            let mut input = self.input.lock().await;
            if input.write_all(&line).await.is_err() {
                return Err(Fault::Died);
            }
            drop(input);
            answered.await.unwrap_or(Err(Fault::Died))
        };
        match tokio::time::timeout(patience, ask).await {
            Ok(Ok(made)) if made.vectors.len() != texts.len() => {
                Err(Fault::Refused("the worker answered something else".into()))
            }
            Ok(vectors) => vectors,
            Err(_) => Err(Fault::Hung(patience.as_secs())),
        }
    }
}

/// Hands every answer to whoever waits for it, until the worker ends.
async fn listen(mut child: Child, output: ChildStdout, waiting: Waiting) {
    let mut output = BufReader::new(output);
    loop {
        match hear(&mut output).await {
            Ok((id, vectors)) => {
                let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
                let asked = waiting.as_mut().and_then(|waiting| waiting.remove(&id));
                if let Some(asked) = asked {
                    drop(asked.send(vectors));
                }
            }
            Err(error) => {
                tracing::debug!("The embedding worker has ended: {error:#}");
                break;
            }
        }
    }
    // Whoever waited hears of it by the end of their channel.
    drop(
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(),
    );
    drop(child.start_kill());
    drop(child.wait().await);
}

async fn hear(output: &mut BufReader<ChildStdout>) -> Result<(u64, Vectors)> {
    let mut line = String::new();
    if output.read_line(&mut line).await? == 0 {
        bail!("its output is closed");
    }
    let Reply { id, answer } = serde_json::from_str(&line).context("it speaks nonsense")?;
    let vectors = match answer {
        Answer::Vectors {
            count,
            dimensions,
            models,
            lacks,
        } => {
            let one = dimensions * 4;
            if count.saturating_mul(one) > ANSWER_BYTES_MAX {
                bail!("it announces {count} vectors of {dimensions} numbers");
            }
            let mut bytes = vec![0; count * one];
            output.read_exact(&mut bytes).await?;
            let vectors = bytes.chunks_exact(one.max(1)).map(from_bytes);
            let vectors: Option<Vec<_>> = vectors.collect();
            let made = vectors.map(|vectors| Made {
                vectors,
                models,
                lacks,
            });
            made.ok_or_else(|| Fault::Refused("a vector holds no numbers".into()))
        }
        Answer::NoModel(reason) => Err(Fault::NoModel(reason)),
        Answer::Failed(reason) => Err(Fault::Refused(reason)),
    };
    Ok((id, vectors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use prism_core::memory::generation;
    use std::io::Read;

    /// A worker that reads and never answers, and a pipe that is open as long as it lives.
    fn silent() -> (Arc<Worker>, std::io::PipeReader) {
        let (life, held) = std::io::pipe().unwrap();
        let mut command = Command::new("sh");
        command
            .args(["-c", "while read line; do :; done"])
            .stderr(held);
        (Arc::new(Worker::of(command).unwrap()), life)
    }

    #[tokio::test]
    async fn a_worker_that_hangs_is_ended_and_the_one_in_its_place_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let workers = Workers::new(Home::at(dir.path()));
        let (hangs, mut life) = silent();
        let (healthy, _life) = silent();
        *workers.worker.lock().await = Some(healthy.clone());
        let texts = ["a".to_owned()];
        let patience = Duration::from_millis(1);
        let answer = hangs.embed(&generation::BOTH, None, &texts, patience);
        let answer = workers.told(&hangs, answer.await).await;
        assert!(matches!(answer, Err(Fault::Hung(_))));
        let held = workers.worker.lock().await.clone();
        assert!(held.is_some_and(|held| Arc::ptr_eq(&held, &healthy)));
        assert!(!healthy.has_ended() && hangs.has_ended());
        // Its process is gone although somebody still holds it.
        let gone = tokio::task::spawn_blocking(move || life.read_to_end(&mut Vec::new()));
        assert_eq!(gone.await.unwrap().unwrap(), 0);
        let again = hangs.embed(&generation::BOTH, None, &texts, patience).await;
        assert!(matches!(again, Err(Fault::Died)));
    }
}
