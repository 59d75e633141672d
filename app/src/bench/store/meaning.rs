//! Recall of many rows on both engines, and what PostgreSQL's index of vectors keeps of the exact scan.

use super::super::memory::{Generator, fill};
use super::super::recall::{MadeUp, Vectors, embed, vocabulary};
use super::super::{PID, Server, ms, percentile, progress};
use super::databases::{Database, Engines, lend_models};
use super::{Figures, Limit, Sizes, middle_and_tail};
use crate::client::Client;
use crate::embed::model;
use crate::home::Home;
use crate::store::Store;
use anyhow::{Context, Result};
use serde_json::json;
use std::time::Instant;

const TIMES_MAX: f64 = 3.0;
const WORDS_A_QUESTION: usize = 12;
const WARM_UP: usize = 10;
/// Made-up questions whose nearest vectors are sought by the index and among all.
const COMPARED: usize = 50;
/// How many nearest each is to find.
const NEAREST: [usize; 2] = [10, 100];

/// What is measured of each recall.
const MEASURED: [&str; 6] = [
    "recall",
    "recall less embedding",
    "recall, words",
    "recall, vectors",
    "recall, what is named",
    "recall, the rest",
];

pub async fn recall(
    home: &Home,
    engines: &Engines,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<()> {
    let wanted = model::wanted(home).context("recall by meaning needs a model")?;
    let (n, words) = (sizes.rows, vocabulary(home)?);
    let mut embedded = Server::stopped()?;
    let file = embedded.home.path("prism.db");
    progress(&format!("  {n} rows, with made-up vectors"));
    fill(&file, n, Generator::of(words.clone(), 7)).await?;
    embed(home, &file, n, Vectors::MadeUp(sizes.vectors_a_row)).await?;
    let database = engines.database().await?;
    progress("  the same rows into PostgreSQL");
    database.take_in(file.clone()).await?;
    database.analyze().await?;
    let without_index = database.bytes().await?;
    lend_models(home, &embedded)?;
    embedded.launch()?;
    let asker = embedded.session("Asker").await?.0;
    let mut embedded = (embedded, asker);
    let (mut made, mut with_index) = (false, None);
    // As a server does it with so few vectors, then as with many.
    for how in ["", ", by the index"] {
        if made {
            index(&database, wanted.id, wanted.dimensions(), n, figures).await?;
            with_index = Some(database.bytes().await?);
        }
        made = true;
        let shared = engines.server(&database, "operator")?;
        lend_models(home, &shared)?;
        let shared = shared.resume()?;
        let clients = [embedded.1, shared.session("Asker").await?.0];
        let asking = Generator::of(words.clone(), 99);
        let [sqlite, postgres] = questions(&clients, sizes.runs, asking).await?;
        for ((name, mut sqlite), mut postgres) in MEASURED.iter().zip(sqlite).zip(postgres) {
            let (a, b) = (middle_and_tail(&mut sqlite), middle_and_tail(&mut postgres));
            let name = format!("{name} p50, {n} rows{how}");
            let figure = figures.add(&name, "ms", Some(a.0), Some(b.0));
            figure.more = vec![("p99 SQLite", a.1), ("PostgreSQL", b.1)];
            if name.starts_with("recall p50") {
                figure.limit = Some(Limit::AtMost(TIMES_MAX * a.0));
            }
        }
        figures.add(
            format!("server memory, {n} rows{how}"),
            "MB",
            Some(embedded.0.rss_mb()?),
            Some(shared.rss_mb()?),
        );
        let [asker, _] = clients;
        embedded.1 = asker;
    }
    let bytes = std::fs::metadata(&file)?.len() as f64;
    let figure = figures.add(
        format!(
            "bytes a row, {n} rows with {} made-up vectors each",
            sizes.vectors_a_row
        ),
        "B",
        Some(bytes / n as f64),
        Some(without_index / n as f64),
    );
    figure.more = with_index
        .map(|all| ("with the index", all / n as f64))
        .into_iter()
        .collect();
    Ok(())
}

/// Makes the index where there is to be one, and compares it with looking at all vectors.
async fn index(
    database: &Database,
    model: &'static str,
    dimensions: usize,
    n: usize,
    figures: &mut Figures,
) -> Result<()> {
    let url = database.url.clone();
    let opened = tokio::task::spawn_blocking(move || Store::open_shared(&url));
    let store = opened.await??;
    let started = Instant::now();
    let mut steps = 0;
    while store.make_index(model, dimensions, 1).await? {
        steps += 1;
        if steps % 20 == 0 {
            progress(&format!("  the index: step {steps}"));
        }
    }
    let took = started.elapsed().as_secs_f64();
    let loaded = store.load().await?;
    let project = loaded.projects.iter().find(|p| p.pid.as_str() == PID);
    let project = project.context("the project is gone")?.id;
    let mut made_up = MadeUp::new(dimensions);
    let questions: Vec<Vec<f32>> = (0..COMPARED).map(|_| made_up.vector()).collect();
    for nearest in NEAREST {
        let compared = store.kept_by_index(model, project, questions.clone(), nearest);
        let Some((share, mut by_index, mut exact)) = compared.await? else {
            figures.add(
                format!("vectors in PostgreSQL's index, {n} rows"),
                "",
                None,
                Some(0.0),
            );
            break;
        };
        let figure = figures.add(
            format!("HNSW beside the exact scan, recall@{nearest}, {n} rows"),
            "%",
            None,
            Some(100.0 * share),
        );
        figure.more = vec![
            ("ms by the index", percentile(&mut by_index, 0.5)),
            ("ms looking at all", percentile(&mut exact, 0.5)),
            ("made in s", took),
        ];
    }
    store.close().await;
    Ok(())
}

/// Asks both the same, taking turns.
async fn questions(
    clients: &[Client; 2],
    n: usize,
    mut text: Generator,
) -> Result<[[Vec<f64>; MEASURED.len()]; 2]> {
    let mut samples: [[Vec<f64>; MEASURED.len()]; 2] = Default::default();
    for round in 0..n + WARM_UP {
        let query = text.words(WORDS_A_QUESTION);
        for (client, samples) in clients.iter().zip(&mut samples) {
            let asked = Instant::now();
            let answer = client.call(PID, "recall", json!({"query": query})).await?;
            let all = ms(asked);
            if round < WARM_UP {
                continue;
            }
            let leg = |name: &str, field: &str| answer["legs"][name][field].as_f64();
            let embedding = leg("vector", "embedding_ms").with_context(|| {
                format!(
                    "the vector leg is off: {}",
                    answer["legs"]["vector"]["reason"]
                )
            })?;
            let figures = [
                Some(all),
                Some(all - embedding),
                leg("lexical", "ms"),
                leg("vector", "ms"),
                leg("graph", "ms"),
                leg("recency", "ms"),
            ];
            for (samples, figure) in samples.iter_mut().zip(figures) {
                samples.push(figure.unwrap_or_default());
            }
        }
    }
    Ok(samples)
}
