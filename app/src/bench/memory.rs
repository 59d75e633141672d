//! Memory: what a write costs, and how recall holds up as rows grow.

use super::{PID, Report, Server, ms, p50_p99, percentile, progress};
use crate::clock;
use crate::store::memory::{Author, DeltaRow, NewMemory, Row};
use crate::store::{Project, Store};
use anyhow::Result;
use futures_util::future;
use prism_core::memory::row;
use prism_core::memory::{DeltaKind, Kind};
use prism_core::{Identity, Moment, ProjectName};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Instant;

const VOCABULARY: usize = 20_000;
const WORDS_A_ROW: usize = 60;
const WORDS_A_QUESTION: usize = 12;

/// Text with the statistics of language: a few words everywhere, most of them rare. Always the
/// same.
pub struct Generator {
    state: u64,
    cumulative: Vec<f64>,
    /// Words by rank; none means pronounceable ones are made up.
    words: Vec<String>,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        Self::of(Vec::new(), seed)
    }

    /// Text of these words, the most frequent first.
    pub fn of(words: Vec<String>, seed: u64) -> Self {
        let mut total = 0.0;
        let size = if words.is_empty() {
            VOCABULARY
        } else {
            words.len()
        };
        let cumulative = (1..=size).map(|rank| {
            total += 1.0 / rank as f64;
            total
        });
        Self {
            state: seed,
            cumulative: cumulative.collect(),
            words,
        }
    }

    pub fn random(&mut self) -> f64 {
        // splitmix64: small, fast, the same on every machine.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn words(&mut self, n: usize) -> String {
        let words = (0..n).map(|_| {
            let at = self.random() * self.cumulative.last().copied().unwrap_or(1.0);
            let rank = self.cumulative.partition_point(|c| *c < at);
            self.words.get(rank).cloned().unwrap_or_else(|| word(rank))
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// A pronounceable word for a rank.
fn word(mut rank: usize) -> String {
    const SYLLABLES: [&str; 24] = [
        "ba", "do", "ke", "li", "mo", "nu", "pa", "ri", "so", "tu", "va", "ze", "cha", "dre",
        "fli", "gro", "pla", "qua", "shi", "tre", "whi", "kno", "sta", "bru",
    ];
    let mut word = String::new();
    loop {
        word.push_str(SYLLABLES[rank % SYLLABLES.len()]);
        rank /= SYLLABLES.len();
        if rank == 0 {
            return word;
        }
        rank -= 1;
    }
}

pub async fn run(sizes: &[usize]) -> Result<Report> {
    let mut report = Report::default();
    writes(&mut report).await?;
    for n in sizes {
        recalls(&mut report, *n).await?;
    }
    Ok(report)
}

/// Each kind of write through the verb, one after the other: latency, and the server's CPU.
async fn writes(report: &mut Report) -> Result<()> {
    let server = Server::start()?;
    let (client, _) = server.session("Writer").await?;
    let mut text = Generator::new(1);
    let first = client
        .call(PID, "checkpoint", json!({"summary": "the first"}))
        .await?["delta_id"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let mut requests: Vec<(&str, Box<dyn FnMut(String) -> Value>)> = vec![
        (
            "checkpoint",
            Box::new(
                |t| json!({"summary": t, "touched_files": ["src/a.rs", "src/b.rs"], "operator_visible_effect": "a line", "tried_and_ruled_out": [{"approach": "x", "outcome": "y"}]}),
            ),
        ),
        ("note", Box::new(|t| json!({"text": t}))),
        (
            "decide",
            Box::new(|t| json!({"title": "t", "context": t, "decision": "d"})),
        ),
        (
            "operator_input",
            Box::new(|t| json!({"class": "correction", "prompt_text": t, "confidence": "high"})),
        ),
        (
            "confirm",
            Box::new(
                move |t| json!({"refers_to": format!("delta:{first}"), "verdict": "works", "notes": t}),
            ),
        ),
        ("todo", Box::new(|t| json!({"action": "add", "title": t}))),
    ];
    for (verb, request) in &mut requests {
        let n = 300;
        let (mut samples, cpu) = (Vec::with_capacity(n), server.cpu_us()?);
        for _ in 0..n {
            let body = request(text.words(WORDS_A_ROW));
            let started = Instant::now();
            client.call(PID, verb, body).await?;
            samples.push(ms(started));
        }
        let mut figures = p50_p99(&mut samples);
        figures.push(("CPU us each", (server.cpu_us()? - cpu) / n as f64));
        report.add(format!("write: {verb}"), figures);
    }
    Ok(())
}

/// Fills a store and asks it, through the verb.
async fn recalls(report: &mut Report, n: usize) -> Result<()> {
    let server = Server::stopped()?;
    let file = server.home.path("prism.db");
    let started = Instant::now();
    fill(&file, n, Generator::new(7)).await?;
    let seconds = started.elapsed().as_secs_f64();
    let bytes = std::fs::metadata(&file)?.len() as f64;
    report.add(
        format!("ingest, {n} rows"),
        vec![
            ("rows per s", n as f64 / seconds),
            ("bytes per row", bytes / n as f64),
        ],
    );
    let server = server.resume()?;
    let (client, _) = server.session("Asker").await?;
    let mut text = Generator::new(99);
    let (mut samples, mut lexical, mut graph) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..110 {
        let query = text.words(WORDS_A_QUESTION);
        let asked = Instant::now();
        let answer = client.call(PID, "recall", json!({"query": query})).await?;
        if i >= 10 {
            samples.push(ms(asked));
            lexical.push(answer["legs"]["lexical"]["ms"].as_f64().unwrap_or_default());
            graph.push(answer["legs"]["graph"]["ms"].as_f64().unwrap_or_default());
        }
    }
    let mut figures = p50_p99(&mut samples);
    figures.extend([
        ("lexical p50", percentile(&mut lexical, 0.5)),
        ("graph p50", percentile(&mut graph, 0.5)),
        ("server MB", server.rss_mb()?),
    ]);
    report.add(format!("recall, {n} rows"), figures);
    Ok(())
}

pub async fn fill(file: &Path, n: usize, mut text: Generator) -> Result<()> {
    fill_with(file, n, |_| text.words(WORDS_A_ROW)).await
}

/// A project of so many rows, each of the text that it is given.
pub async fn fill_with(file: &Path, n: usize, mut text: impl FnMut(usize) -> String) -> Result<()> {
    let store = Store::open_embedded(file)?;
    store.load().await?;
    let refused = |p: prism_core::Problem| anyhow::anyhow!(p.message);
    let project = Project {
        id: clock::new_id(),
        pid: ProjectName::parse(PID).map_err(refused)?,
    };
    store
        .add_project(
            project.clone(),
            Identity::parse("operator").map_err(refused)?,
            clock::now(),
        )
        .await?;
    let identity = Identity::parse("Writer").map_err(refused)?;
    let base = clock::now().plus_s(-(n as i64));
    for chunk in 0..n.div_ceil(500) {
        let rows = (chunk * 500..n.min((chunk + 1) * 500)).map(|i| {
            let mut row = DeltaRow::of(DeltaKind::Checkpoint, text(i));
            row.touched_files = vec![format!("src/m{}.rs", i % 997)];
            let indexed = row::delta(Kind::Checkpoint, identity.as_str(), &row);
            let entities = prism_core::memory::entity::find(&row.touched_files.join(" "), &[]);
            let by = Author {
                project_id: project.id,
                session_id: None,
                identity: identity.clone(),
                surface: "bench".into(),
                now: Moment(base.0 + i as i64 * 1_000_000),
            };
            NewMemory {
                id: clock::new_id(),
                by,
                row: Row::Delta(row),
                indexed: Some(indexed),
                entities,
                edges: Vec::new(),
                supersedes: None,
                imported_session: None,
            }
        });
        future::try_join_all(rows.map(|new| store.remember(new))).await?;
        if chunk % 20 == 19 {
            progress(&format!("{} rows", (chunk + 1) * 500));
        }
    }
    store.close().await;
    Ok(())
}
