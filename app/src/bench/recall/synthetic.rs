//! Speed: the verb, each leg, ingest, memory and disk, on rows of made-up text.

use super::super::memory::{Generator, fill};
use super::super::{PID, Report, p50_p99, percentile};
use super::{Server, ms, server};
use crate::embed::encoder::Encoder;
use crate::embed::model;
use crate::home::Home;
use crate::store::{Store, VectorRow};
use crate::ui::Progress;
use anyhow::{Context, Result};
use prism_core::memory::generation;
use prism_core::memory::vector::{Role, normalise};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Instant;

const WORDS_A_QUESTION: usize = 12;
/// Questions that are counted, after a few that warm everything up.
const QUESTIONS: usize = 200;
const WARM_UP: usize = 20;
/// Rows that are given their vectors in one transaction.
const BATCH: usize = 500;
/// Made-up vectors lie around so many centres, as those of language do.
const CENTRES: usize = 2_000;

/// Rows that are really embedded unless said otherwise.
pub const EMBED_UP_TO: usize = 10_000;
/// Made-up questions whose nearest vectors are sought with and without a look at signs first.
const COMPARED: usize = 50;

pub struct Task {
    pub n: usize,
    pub embed_up_to: usize,
    pub vectors_a_row: usize,
    /// A folder for the home, which may be there already from another run.
    pub keep: Option<PathBuf>,
}

pub async fn run(home: &Home, task: Task, json: bool) -> Result<()> {
    let n = task.n;
    let mut report = Report::default();
    let empty = server(home, "operator", None)?;
    empty.operator()?.call(PID, "ping", json!({})).await?;
    let idle_mb = empty.rss_mb()?;
    report.add("idle server, empty store", vec![("server MB", idle_mb)]);
    drop(empty);
    let at = Server::of_operator("operator", task.keep)?;
    let file = at.home.path("prism.db");
    let vocabulary = vocabulary(home)?;
    let real = n <= task.embed_up_to;
    let label = if real {
        "embedding"
    } else {
        "vectors labelled synthetic"
    };
    if !file.exists() {
        let started = Instant::now();
        fill(&file, n, Generator::of(vocabulary.clone(), 7)).await?;
        let seconds = started.elapsed().as_secs_f64();
        report.add(
            format!("ingest, {n} rows"),
            vec![("rows per s", n as f64 / seconds)],
        );
        let started = Instant::now();
        let vectors = match real {
            true => Vectors::Real,
            false => Vectors::MadeUp(task.vectors_a_row),
        };
        embed(home, &file, n, vectors).await?;
        report.add(
            format!("{label}, {n} rows"),
            vec![("rows per s", n as f64 / started.elapsed().as_secs_f64())],
        );
    }
    report.add(
        format!("disk, {n} rows"),
        vec![(
            "bytes per row",
            std::fs::metadata(&file)?.len() as f64 / n as f64,
        )],
    );
    if let Some(share) = kept_by_signs(home, &file).await? {
        report.add(
            format!("{label}, {n} rows: kept by signs of the 10 nearest"),
            vec![("share", share)],
        );
    }
    let models = at.home.path("models");
    if !models.exists() {
        std::os::unix::fs::symlink(std::fs::canonicalize(home.path("models"))?, models)?;
    }
    let server = at.resume()?;
    questions(&server, &mut report, n, Generator::of(vocabulary, 99)).await?;
    let mb = server.rss_mb()? - idle_mb;
    report.add(
        format!("memory, {n} rows"),
        vec![("bytes per row", mb * 1e6 / n as f64)],
    );
    report.print(json);
    Ok(())
}

/// What a look at signs alone keeps of the ten nearest vectors.
async fn kept_by_signs(home: &Home, file: &Path) -> Result<Option<f64>> {
    let store = Store::open_embedded(file)?;
    let loaded = store.load().await?;
    let generation = model::wanted(home)?;
    let mut made_up = MadeUp::new(generation.dimensions());
    let questions = (0..COMPARED).map(|_| made_up.vector()).collect();
    let share = match loaded.projects.iter().find(|p| p.pid.as_str() == PID) {
        Some(project) => {
            store
                .kept_by_signs(generation.id, project.id, questions, 10)
                .await?
        }
        None => None,
    };
    store.close().await;
    Ok(share)
}

async fn questions(
    server: &Server,
    report: &mut Report,
    n: usize,
    mut text: Generator,
) -> Result<()> {
    let (client, _) = server.session("Asker").await?;
    let names = [
        "verb",
        "embedding",
        "verb less embedding",
        "lexical",
        "vector",
        "graph",
        "recency",
    ];
    let mut samples: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    let mut bar = Progress::new("questions", QUESTIONS);
    for i in 0..QUESTIONS + WARM_UP {
        let query = text.words(WORDS_A_QUESTION);
        let asked = Instant::now();
        let answer = client.call(PID, "recall", json!({"query": query})).await?;
        let all = ms(asked);
        if i < WARM_UP {
            continue;
        }
        bar.at(i + 1 - WARM_UP);
        let leg = |name: &str, field: &str| answer["legs"][name][field].as_f64();
        let embedding = leg("vector", "embedding_ms").with_context(|| {
            format!(
                "the vector leg is off: {}",
                answer["legs"]["vector"]["reason"]
            )
        })?;
        let figures = [
            Some(all),
            Some(embedding),
            Some(all - embedding),
            leg("lexical", "ms"),
            leg("vector", "ms"),
            leg("graph", "ms"),
            leg("recency", "ms"),
        ];
        for (sample, figure) in samples.iter_mut().zip(figures) {
            sample.push(figure.unwrap_or_default());
        }
    }
    bar.done();
    for (name, samples) in names.iter().zip(&mut samples) {
        report.add(format!("recall, {n} rows: {name}"), p50_p99(samples));
    }
    let mut less = samples.swap_remove(2);
    report.add(
        format!("recall, {n} rows: memory"),
        vec![
            ("server MB", server.rss_mb()?),
            ("p50 less embedding", percentile(&mut less, 0.5)),
        ],
    );
    Ok(())
}

/// The whole words that the model knows, the most frequent first.
pub fn vocabulary(home: &Home) -> Result<Vec<String>> {
    let one = model::installed(home).into_iter().next();
    let one = one.context("no embedding model is installed")?;
    let dir = model::within(&model::folder(home), one);
    let file = std::fs::read_to_string(dir.join("tokenizer.json"))?;
    let tokenizer: Value = serde_json::from_str(&file)?;
    let known = tokenizer["model"]["vocab"]
        .as_object()
        .context("the tokenizer has no vocabulary")?;
    let mut words: Vec<(u64, &String)> = known
        .iter()
        .filter(|(w, _)| w.len() > 2 && w.chars().all(|c| c.is_ascii_lowercase()))
        .filter_map(|(w, n)| Some((n.as_u64()?, w)))
        .collect();
    words.sort_unstable();
    Ok(words.into_iter().map(|(_, w)| w.clone()).collect())
}

/// Where the vectors of rows come from.
#[derive(Clone, Copy)]
pub enum Vectors {
    Real,
    /// So many a row, around some centres.
    MadeUp(usize),
    None,
}

/// Roles of the vectors that a row with several fields has.
const ROLES: [Role; 5] = [
    Role::Field,
    Role::Joined,
    Role::Context,
    Role::Sentence,
    Role::Sentence,
];

/// Gives every row its vectors.
pub async fn embed(home: &Home, file: &Path, n: usize, vectors: Vectors) -> Result<()> {
    let store = Store::open_embedded(file)?;
    // Rows that get no vectors need no model.
    let generation = match vectors {
        Vectors::None => &generation::MINILM,
        _ => model::wanted(home)?,
    };
    let encoder = Encoder::new(&model::folder(home));
    let mut made_up = MadeUp::new(generation.dimensions());
    let mut bar = Progress::new("vectors", n);
    let mut done = 0;
    loop {
        let jobs = store.embed_jobs(BATCH, 1).await?;
        if jobs.is_empty() {
            bar.done();
            store.close().await;
            return Ok(());
        }
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            let of_row: Vec<VectorRow> = match vectors {
                Vectors::Real => {
                    let texts: Vec<String> =
                        job.texts.iter().map(|(_, text)| text.clone()).collect();
                    let vectors = encoder.rows(generation, &texts, &|| ())?;
                    let ordinals = job.texts.iter().map(|(ordinal, _)| *ordinal);
                    ordinals
                        .zip(vectors)
                        .map(|(ordinal, vector)| VectorRow { ordinal, vector })
                        .collect()
                }
                Vectors::MadeUp(a_row) => {
                    let one = |(i, role): (usize, &Role)| VectorRow {
                        ordinal: role.ordinal(i),
                        vector: made_up.vector(),
                    };
                    let roles = ROLES.iter().cycle().take(a_row);
                    roles.enumerate().map(one).collect()
                }
                Vectors::None => Vec::new(),
            };
            rows.push((job, of_row));
            done += 1;
            bar.at(done);
        }
        store.add_vectors(generation.id, None, rows).await?;
    }
}

/// Vectors around some centres, always the same.
pub struct MadeUp {
    random: Generator,
    centres: Vec<Vec<f32>>,
}

impl MadeUp {
    pub fn new(dimensions: usize) -> Self {
        let mut random = Generator::new(3);
        let mut vector = || {
            (0..dimensions)
                .map(|_| random.random() as f32 - 0.5)
                .collect::<Vec<f32>>()
        };
        let centres = (0..CENTRES).map(|_| vector()).collect();
        Self { random, centres }
    }

    pub fn vector(&mut self) -> Vec<f32> {
        let centre = (self.random.random() * CENTRES as f64) as usize;
        let mut vector: Vec<f32> = self.centres[centre]
            .iter()
            .map(|x| x + (self.random.random() as f32 - 0.5) * 0.6)
            .collect();
        normalise(&mut vector);
        vector
    }
}
