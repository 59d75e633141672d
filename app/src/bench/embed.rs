//! How fast texts become vectors: a question beside Python's onnxruntime on the same files, and rows
//! through the queue of a real server.

use super::memory::Generator;
use super::recall::vocabulary;
use super::{PID, Report, Server, command, ms, percentile};
use crate::clock;
use crate::config::ServerFile;
use crate::embed::encoder::Encoder;
use crate::embed::model;
use crate::home::Home;
use crate::ui::note;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use prism_core::api::memory::MemoryStats;
use prism_core::memory::generation::{self, Generation};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Fourteen words, as people ask.
const QUESTION: &str = "why did the export of the invoices stop halfway on the last night shift";
/// Other ways to ask it.
const PHRASINGS: [&str; 4] = [
    QUESTION,
    "the nightly billing job died before all of the files had been written out",
    "invoice exporter crashed in the middle of its run during the late batch window",
    "what made the accounting dump end early when nobody was there to look at it",
];
/// Runs of each question in a round, and rounds; ours and theirs take turns. All of it takes a minute.
const RUNS: usize = 30;
const ROUNDS: usize = 3;
/// Where onnxruntime is looked for.
const PYTHON: &str = "python3";
/// Sentences and words of a row: five vectors.
const SENTENCES: usize = 4;
const WORDS_A_SENTENCE: usize = 15;
const IMPORTED_AT_ONCE: usize = 100;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism bench embed                            beside onnxruntime, where python3 has it\n  prism bench embed --python ~/venv/bin/python  with the onnxruntime that is there\n  prism bench embed --beside /opt/old/prism     rows a second of another binary, too\n\nIt needs the embedding models: `prism model install`."
)]
pub struct Embed {
    /// A Python that has onnxruntime (`pip install onnxruntime`)
    #[arg(long, value_name = "PATH", default_value = PYTHON)]
    python: PathBuf,
    /// Rows that go through the queue; none leaves that part out
    #[arg(long, default_value_t = 300)]
    rows: usize,
    /// Another prism, to embed the same rows
    #[arg(long, value_name = "PATH")]
    beside: Option<PathBuf>,
}

impl Embed {
    pub async fn run(self, home: &Home) -> Result<Report> {
        let wanted = model::wanted(home).context("this measures the embedding models")?;
        let mut report = Report::default();
        let python = Python::find(&self.python);
        if let Err(reason) = &python {
            note(&format!("onnxruntime is left out: {reason:#}"));
        }
        questions(home, wanted, python.ok().as_ref(), &mut report)?;
        if self.rows > 0 {
            let lines = lines(home, self.rows)?;
            rows(home, None, &lines, &mut report).await?;
            if let Some(other) = &self.beside {
                rows(home, Some(other), &lines, &mut report).await?;
            }
        }
        Ok(report)
    }
}

/// Every generation that the installed models can make, each at one thread and at two.
fn questions(
    home: &Home,
    wanted: &'static Generation,
    python: Option<&Python>,
    report: &mut Report,
) -> Result<()> {
    let models = model::folder(home);
    let encoder = Encoder::new(&models);
    let mut measured: Vec<&'static Generation> = Vec::new();
    for one in [&generation::MINILM, &generation::BGE_SMALL] {
        let here = one.models().all(|m| wanted.models().any(|w| w == m));
        measured.extend(here.then_some(one));
    }
    if wanted.halves.len() > 1 {
        measured.push(wanted);
    }
    for generation in measured {
        for threads in [1, 2] {
            let names = generation.names().join(" + ");
            note(&format!("a question by {names}, {threads} thread(s)"));
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()?;
            let (mut ours, mut four, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let texts = PHRASINGS.map(str::to_owned);
                ours.push(pool.install(|| p50(&encoder, generation, &texts[..1]))?);
                four.push(pool.install(|| p50(&encoder, generation, &texts))?);
                if let Some(python) = python {
                    let mut sum = 0.0;
                    for half in generation.halves {
                        let ids = encoder.tokens(half, QUESTION)?;
                        let file = model::within(&models, half.model).join("model.onnx");
                        sum += python.p50(&file, &ids, threads)?;
                    }
                    theirs.push(sum);
                }
            }
            let least = |samples: Vec<f64>| samples.into_iter().fold(f64::NAN, f64::min);
            let (ours, four) = (least(ours), least(four));
            let mut figures = vec![("p50 ms", ours), ("four phrasings", four)];
            if !theirs.is_empty() {
                let theirs = least(theirs);
                figures.extend([("onnxruntime", theirs), ("ours / theirs", ours / theirs)]);
            }
            let name = format!("question of 14 words, {names}, {threads} thread(s)");
            report.add(name, figures);
        }
    }
    Ok(())
}

fn p50(encoder: &Encoder, generation: &Generation, texts: &[String]) -> Result<f64> {
    let models: Vec<_> = generation.models().collect();
    let mut samples = Vec::with_capacity(RUNS);
    encoder.questions(generation, &models, texts)?;
    for _ in 0..RUNS {
        let started = Instant::now();
        encoder.questions(generation, &models, texts)?;
        samples.push(ms(started));
    }
    Ok(percentile(&mut samples, 0.5))
}

/// Rows to import: sixty words of the model's own vocabulary in four sentences.
fn lines(home: &Home, n: usize) -> Result<Vec<Value>> {
    let mut text = Generator::of(vocabulary(home)?, 11);
    let base = clock::now().plus_s(-(n as i64));
    let row = |i: usize| {
        let sentences: Vec<String> = (0..SENTENCES)
            .map(|_| format!("{}.", text.words(WORDS_A_SENTENCE)))
            .collect();
        let at = base.plus_s(i as i64);
        json!({"line": i + 1, "row": {"id": format!("r{i}"), "kind": "journal", "identity": "Writer",
            "created_at": at, "text": sentences.join(" ")}})
    };
    Ok((0..n).map(row).collect())
}

/// Rows a second from the first import to the last vector.
async fn rows(
    home: &Home,
    other: Option<&Path>,
    lines: &[Value],
    report: &mut Report,
) -> Result<()> {
    note(&format!("{} rows through the queue", lines.len()));
    let server = Server::stopped()?;
    let models = std::fs::canonicalize(home.path("models"))?;
    std::os::unix::fs::symlink(models, server.home.path("models"))?;
    let (server, beside) = match other {
        Some(program) => {
            let beside = Beside::start(program, &server.home)?;
            (server, Some(beside))
        }
        None => (server.resume()?, None),
    };
    let client = server.operator()?;
    // The first row brings the worker up; that is not what is measured.
    let (first, rest) = lines.split_at(1);
    let import = |lines: &[Value]| json!({"source": "bench", "lines": lines});
    client.call(PID, "import", import(first)).await?;
    embedded(&client).await?;
    let started = Instant::now();
    for some in rest.chunks(IMPORTED_AT_ONCE) {
        client.call(PID, "import", import(some)).await?;
    }
    let stats = embedded(&client).await?;
    let took = started.elapsed().as_secs_f64();
    let vectors = stats.vectors as f64 / lines.len() as f64;
    let n = rest.len() as f64;
    let which = match (other, stats.models.is_empty()) {
        (Some(program), _) => program.display().to_string(),
        (None, _) => stats.models.join(" + "),
    };
    report.add(
        format!("rows of 60 words through the queue, {which}"),
        vec![
            ("rows/s", n / took),
            ("ms a row", took * 1000.0 / n),
            ("vectors a row", vectors),
            ("ms a vector", took * 1000.0 / n / vectors),
        ],
    );
    drop(beside);
    Ok(())
}

async fn embedded(client: &crate::client::Client) -> Result<MemoryStats> {
    loop {
        let answer = client.call(PID, "memory_stats", json!({})).await?;
        let stats: MemoryStats = serde_json::from_value(answer)?;
        if stats.embed_set_aside > 0 {
            bail!("{} rows could not be embedded", stats.embed_set_aside);
        }
        if stats.embed_pending == 0 && stats.vectors > 0 {
            return Ok(stats);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server of another binary.
struct Beside(Child);

impl Beside {
    fn start(program: &Path, home: &Home) -> Result<Self> {
        let ours = command(home)?;
        let mut theirs = Command::new(program);
        theirs.env_clear().current_dir(home.dir());
        theirs.envs(ours.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let process = theirs
            .args(["serve", "--port", "0", "--ends-with-stdin"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        let mut beside = Self(process);
        let deadline = Instant::now() + Duration::from_secs(20);
        while ServerFile::load(home).is_none() {
            if beside.0.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the server of {} did not start", program.display());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(beside)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // Its standard input ends, and so does it.
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}

/// Times one session of onnxruntime; prints the median in milliseconds.
const SESSION: &str = "import json, sys, time
import numpy, onnxruntime
file, ids, threads, runs = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
session = onnxruntime.InferenceSession(file, options, providers=['CPUExecutionProvider'])
ids = numpy.array([ids], dtype=numpy.int64)
feed = {'input_ids': ids, 'attention_mask': numpy.ones_like(ids), 'token_type_ids': numpy.zeros_like(ids)}
feed = {i.name: feed[i.name] for i in session.get_inputs()}
times = []
for _ in range(runs + 10):
    begun = time.perf_counter()
    session.run(None, feed)
    times.append(time.perf_counter() - begun)
times = sorted(times[10:])
print(times[len(times) // 2] * 1000)";

/// A Python with onnxruntime.
struct Python(PathBuf);

impl Python {
    fn find(program: &Path) -> Result<Self> {
        let there = Command::new(program)
            .args(["-c", "import numpy, onnxruntime"])
            .output()
            .with_context(|| format!("cannot run {}", program.display()))?;
        if !there.status.success() {
            bail!(
                "{} has none; name one that has with --python",
                program.display()
            );
        }
        Ok(Self(program.to_owned()))
    }

    fn p50(&self, file: &Path, ids: &[u32], threads: usize) -> Result<f64> {
        let output = Command::new(&self.0)
            .args(["-c", SESSION])
            .arg(file)
            .arg(serde_json::to_string(ids)?)
            .args([threads.to_string(), RUNS.to_string()])
            .output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        said.trim().parse().with_context(|| {
            let why = String::from_utf8_lossy(&output.stderr);
            format!("onnxruntime failed: {}", why.trim())
        })
    }
}
