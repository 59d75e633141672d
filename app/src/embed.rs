//! The embedder: questions first, then the rows that wait for their vectors.
//!
//! One task owns the worker. It asks one thing at a time, so a question waits
//! for at most one text; rows keep their intent in the store until their
//! vectors are on disk, so nothing is lost with a worker, a server or a disk.

pub mod model;
pub mod worker;

use crate::home::Home;
use crate::store::{EmbedJob, Store, VectorRow};
use anyhow::{Context, Result, bail};
use model::MODEL_ID;
use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use worker::{Reply, Texts};

/// A worker that was not asked for so long ends itself.
pub const WORKER_IDLE: Duration = Duration::from_secs(300);
/// How long a text, or the loading of the model, may take before the worker counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a recall waits for its question's vector; then it goes on without.
pub const QUESTION_PATIENCE: Duration = Duration::from_secs(4);
/// How long the embedder keeps away from what failed: a model that cannot be loaded, a disk that is
/// full.
const SETBACK: Duration = Duration::from_secs(5);
/// How often waiting rows are looked for without being told.
const LOOK_AROUND: Duration = Duration::from_secs(30);
/// Rows taken from the queue at once, and written at once.
const BATCH_ROWS: usize = 32;
/// A row whose text broke the worker so often is set aside.
const ATTEMPTS_MAX: i64 = 3;
/// Questions whose vectors are kept: agents of one task ask alike.
const REMEMBERED_QUESTIONS: usize = 64;

/// Asks the embedder; cheap to clone.
#[derive(Clone)]
pub struct Embedder {
    home: Home,
    questions: mpsc::Sender<Question>,
    /// Why there are no vectors now; empty when there are.
    trouble: Arc<Mutex<Option<String>>>,
}

struct Question {
    /// Every phrasing of it.
    texts: Vec<String>,
    answer: oneshot::Sender<Result<Vec<Vec<f32>>, String>>,
}

/// What the embedder's task owns.
pub struct Task {
    embedder: Embedder,
    questions: mpsc::Receiver<Question>,
    worker: Option<Worker>,
    not_before: Option<Instant>,
    remembered: VecDeque<(String, Vec<f32>)>,
}

impl Embedder {
    pub fn new(home: Home) -> (Self, Task) {
        let (sender, questions) = mpsc::channel(256);
        let embedder = Self {
            home,
            questions: sender,
            trouble: Arc::default(),
        };
        (
            embedder.clone(),
            Task {
                embedder,
                questions,
                worker: None,
                not_before: None,
                remembered: VecDeque::new(),
            },
        )
    }

    /// Why the vector leg is off, when it is.
    pub fn off(&self) -> Option<String> {
        if let Err(reason) = model::present(&self.home) {
            return Some(reason.to_string());
        }
        self.trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The vectors of a question's phrasings, or why there are none.
    pub async fn question(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, String> {
        model::present(&self.home).map_err(|e| e.to_string())?;
        let (answer, answered) = oneshot::channel();
        if self.questions.try_send(Question { texts, answer }).is_err() {
            return Err("the embedder has too many questions waiting".into());
        }
        match tokio::time::timeout(QUESTION_PATIENCE, answered).await {
            Ok(Ok(vectors)) => vectors,
            Ok(Err(_)) => Err("the embedder has stopped".into()),
            Err(_) => Err(format!(
                "the embedder did not answer within {} s",
                QUESTION_PATIENCE.as_secs()
            )),
        }
    }

    fn trouble(&self, reason: Option<String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if *trouble != reason {
            match &reason {
                Some(reason) => tracing::warn!("No vectors: {reason}"),
                None => tracing::info!("Vectors are back"),
            }
            *trouble = reason;
        }
    }
}

impl Task {
    /// Answers questions and works through the queue, until dropped.
    pub async fn run(mut self, store: Store) {
        if let Err(error) = store.requeue_foreign(MODEL_ID).await {
            tracing::warn!(%error, "Could not look for vectors of other models");
        }
        let warming = store.clone();
        tokio::spawn(async move {
            if let Err(error) = warming.warm_vectors(MODEL_ID).await {
                tracing::warn!(%error, "Could not read the vectors");
            }
        });
        loop {
            let mut jobs = match self.ready() {
                true => store
                    .embed_jobs(BATCH_ROWS, ATTEMPTS_MAX)
                    .await
                    .inspect_err(|error| tracing::warn!(%error, "The queue cannot be read"))
                    .unwrap_or_default(),
                false => Vec::new(),
            };
            if !jobs.is_empty() {
                self.embed(&store, &mut jobs).await;
                continue;
            }
            let worker_ends = async {
                match &mut self.worker {
                    Some(worker) => drop(worker.child.wait().await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                question = self.questions.recv() => match question {
                    Some(question) => self.answer(question).await,
                    None => return,
                },
                () = worker_ends => self.worker = None,
                () = store.embed_wanted() => {}
                () = tokio::time::sleep(if self.not_before.is_some() { SETBACK } else { LOOK_AROUND }) => {}
            }
        }
    }

    fn ready(&mut self) -> bool {
        if self.not_before.is_some_and(|at| Instant::now() < at)
            || model::present(&self.embedder.home).is_err()
        {
            return false;
        }
        self.not_before = None;
        true
    }

    fn set_back(&mut self, reason: String) {
        self.worker = None;
        self.not_before = Some(Instant::now() + SETBACK);
        self.embedder.trouble(Some(reason));
    }

    async fn answer(&mut self, question: Question) {
        if question.answer.is_closed() {
            return;
        }
        let new: Vec<String> = question
            .texts
            .iter()
            .filter(|text| self.remembers(text).is_none())
            .cloned()
            .collect();
        let asked = match new.is_empty() {
            true => Ok(Vec::new()),
            false => self.ask(&new).await,
        };
        let result = match asked {
            Ok(vectors) => {
                // A full disk is still full when a question was answered.
                if !new.is_empty() && self.not_before.is_none_or(|at| Instant::now() >= at) {
                    self.embedder.trouble(None);
                }
                for known in new.into_iter().zip(vectors) {
                    self.remembered.push_front(known);
                }
                let vectors = question.texts.iter();
                let vectors = vectors.filter_map(|text| self.remembers(text).cloned());
                let vectors = vectors.collect();
                self.remembered.truncate(REMEMBERED_QUESTIONS);
                Ok(vectors)
            }
            Err(error) => {
                self.set_back(format!("{error:#}"));
                Err(format!("{error:#}"))
            }
        };
        drop(question.answer.send(result));
    }

    fn remembers(&self, text: &str) -> Option<&Vec<f32>> {
        let known = self.remembered.iter().find(|(known, _)| known == text);
        known.map(|(_, vector)| vector)
    }

    /// Embeds a batch of rows, letting questions in between any two texts, and stores what came of
    /// it.
    async fn embed(&mut self, store: &Store, jobs: &mut Vec<EmbedJob>) {
        let mut done: Vec<(EmbedJob, Vec<VectorRow>)> = Vec::new();
        while let Some(job) = jobs.pop() {
            let mut rows = Vec::with_capacity(job.texts.len());
            for (ordinal, text) in &job.texts {
                while let Ok(question) = self.questions.try_recv() {
                    self.answer(question).await;
                }
                let asked = self.ask(std::slice::from_ref(text)).await;
                match asked.and_then(|mut vectors| vectors.pop().context("no vector")) {
                    Ok(vector) => rows.push(VectorRow {
                        ordinal: *ordinal,
                        vector,
                    }),
                    Err(error) => {
                        // A worker that died over this text may die over it again; one that never
                        // came up says nothing about it.
                        if self.worker.is_some()
                            && let Err(error) = store.embed_failed(job.memory_id.clone()).await
                        {
                            tracing::warn!(%error, "Could not note a failed row");
                        }
                        self.set_back(format!("{error:#}"));
                        jobs.clear();
                        break;
                    }
                }
            }
            if rows.len() == job.texts.len() {
                done.push((job, rows));
            }
        }
        if done.is_empty() {
            return;
        }
        match store.add_vectors(MODEL_ID, done).await {
            Ok(()) if self.not_before.is_none() => self.embedder.trouble(None),
            Ok(()) => {}
            // The intents stand, so nothing is lost but the work.
            Err(error) => self.set_back(error.to_string()),
        }
    }

    async fn ask(&mut self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        // One that ended idle, or was killed, is replaced; one that goes down with this very text
        // as well, once.
        if self.worker.as_mut().is_some_and(Worker::has_ended) {
            self.worker = None;
        }
        let fresh = self.worker.is_none();
        let result = self.ask_once(texts).await;
        if result.is_err() && !fresh && self.worker.as_mut().is_some_and(Worker::has_ended) {
            self.worker = None;
            return self.ask_once(texts).await;
        }
        result
    }

    async fn ask_once(&mut self, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        if self.worker.is_none() {
            self.worker = Some(Worker::start(&self.embedder.home).await?);
        }
        let worker = self.worker.as_mut().context("no worker")?;
        match worker
            .ask(&Texts {
                texts: texts.to_vec(),
            })
            .await?
        {
            Reply::Vectors(vectors) if vectors.len() == texts.len() => Ok(vectors),
            Reply::Failed(reason) => bail!(reason),
            _ => bail!("the worker answered something else"),
        }
    }
}

/// The child process and the two ends of its pipe.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    async fn start(home: &Home) -> Result<Self> {
        let mut child = Command::new(crate::config::this_program()?)
            .arg("embed-worker")
            .arg("--model")
            .arg(model::folder(home))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("cannot start the embedding worker")?;
        let (input, output) = (
            child.stdin.take().context("no pipe")?,
            child.stdout.take().context("no pipe")?,
        );
        let mut worker = Self {
            child,
            input,
            output: BufReader::new(output).lines(),
        };
        match worker.hear().await? {
            Reply::Ready { model } if model == MODEL_ID => Ok(worker),
            Reply::Ready { model } => bail!(
                "the worker loaded {model}, not {MODEL_ID}; restart the server after an upgrade"
            ),
            Reply::Failed(reason) => bail!(reason),
            Reply::Vectors(_) => bail!("the worker spoke out of turn"),
        }
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    async fn ask(&mut self, asked: &Texts) -> Result<Reply> {
        let mut line = serde_json::to_vec(asked)?;
        line.push(b'\n');
        self.input
            .write_all(&line)
            .await
            .context("the embedding worker is gone")?;
        self.hear().await
    }

    async fn hear(&mut self) -> Result<Reply> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let Ok(line) = line else {
            bail!(
                "the embedding worker hung for {} s and was ended",
                PATIENCE.as_secs()
            )
        };
        let Some(line) = line.context("the embedding worker's pipe broke")? else {
            // Its end of the pipe is closed, so it is ending; whether it has ended is asked next.
            drop(tokio::time::timeout(PATIENCE, self.child.wait()).await);
            bail!("the embedding worker died");
        };
        serde_json::from_str(&line).context("the embedding worker spoke nonsense")
    }
}
