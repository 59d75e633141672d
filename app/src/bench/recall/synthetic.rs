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
use prism_core::memory::vector::normalise;
use serde_json::{Value, json};
use std::time::Instant;

const WORDS_A_QUESTION: usize = 12;
/// Questions that are counted, after a few that warm everything up.
const QUESTIONS: usize = 200;
const WARM_UP: usize = 20;
/// Rows that are given their vectors in one transaction.
const BATCH: usize = 500;
/// Made-up vectors lie around so many centres, as those of language do.
const CENTRES: usize = 2_000;

pub async fn run(home: &Home, n: usize, embed_up_to: usize, json: bool) -> Result<()> {
    let mut report = Report::default();
    let empty = server(home, "operator", None)?;
    empty.operator()?.call(PID, "ping", json!({})).await?;
    report.add(
        "idle server, empty store",
        vec![("server MB", empty.rss_mb()?)],
    );
    drop(empty);
    let at = Server::stopped()?;
    let file = at.home.path("prism.db");
    let vocabulary = vocabulary(home)?;
    let started = Instant::now();
    fill(&file, n, Generator::of(vocabulary.clone(), 7)).await?;
    let seconds = started.elapsed().as_secs_f64();
    report.add(
        format!("ingest, {n} rows"),
        vec![("rows per s", n as f64 / seconds)],
    );
    let real = n <= embed_up_to;
    let started = Instant::now();
    embed(home, &file, n, real).await?;
    let label = if real {
        "embedding"
    } else {
        "vectors labelled synthetic"
    };
    report.add(
        format!("{label}, {n} rows"),
        vec![("rows per s", n as f64 / started.elapsed().as_secs_f64())],
    );
    report.add(
        format!("disk, {n} rows"),
        vec![(
            "bytes per row",
            std::fs::metadata(&file)?.len() as f64 / n as f64,
        )],
    );
    std::os::unix::fs::symlink(
        std::fs::canonicalize(home.path("models"))?,
        at.home.path("models"),
    )?;
    let server = at.resume()?;
    questions(&server, &mut report, n, Generator::of(vocabulary, 99)).await?;
    report.print(json);
    Ok(())
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

/// Gives every row its vectors: from the model, or made up.
async fn embed(home: &Home, file: &std::path::Path, n: usize, real: bool) -> Result<()> {
    let store = Store::open_embedded(file)?;
    let generation = model::wanted(home)?;
    let encoder = Encoder::new(&model::folder(home));
    let mut made_up = MadeUp::new(generation.dimensions());
    let (mut bar, mut done) = (
        Progress::new(
            if real {
                "embedding"
            } else {
                "making up vectors"
            },
            n,
        ),
        0,
    );
    loop {
        let jobs = store.embed_jobs(BATCH, 1).await?;
        if jobs.is_empty() {
            bar.done();
            store.close().await;
            return Ok(());
        }
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            let texts: Vec<String> = job.texts.iter().map(|(_, text)| text.clone()).collect();
            let vectors = match real {
                true => encoder.rows(generation, &texts, &|| ())?,
                false => texts.iter().map(|_| made_up.vector()).collect(),
            };
            let ordinals = job.texts.iter().map(|(ordinal, _)| *ordinal);
            let vectors = ordinals
                .zip(vectors)
                .map(|(ordinal, vector)| VectorRow { ordinal, vector })
                .collect();
            rows.push((job, vectors));
            done += 1;
            bar.at(done);
        }
        store.add_vectors(generation.id, rows).await?;
    }
}

/// Vectors around some centres, always the same.
struct MadeUp {
    random: Generator,
    centres: Vec<Vec<f32>>,
}

impl MadeUp {
    fn new(dimensions: usize) -> Self {
        let mut random = Generator::new(3);
        let mut vector = || {
            (0..dimensions)
                .map(|_| random.random() as f32 - 0.5)
                .collect::<Vec<f32>>()
        };
        let centres = (0..CENTRES).map(|_| vector()).collect();
        Self { random, centres }
    }

    fn vector(&mut self) -> Vec<f32> {
        let centre = (self.random.random() * CENTRES as f64) as usize;
        let mut vector: Vec<f32> = self.centres[centre]
            .iter()
            .map(|x| x + (self.random.random() as f32 - 0.5) * 0.6)
            .collect();
        normalise(&mut vector);
        vector
    }
}
