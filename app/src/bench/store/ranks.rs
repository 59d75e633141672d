//! Whether both engines rank alike: the operator-language set, asked of the same rows in each.

use super::super::recall::{Question, ask, corpora, load};
use super::super::{Server, progress};
use super::databases::{Engines, lend_models};
use super::{Figures, Limit, Sizes};
use crate::home::Home;
use anyhow::Result;

/// The share of questions whose first ten are the same rows in the same order.
const ALIKE_MIN: f64 = 95.0;
/// The smallest world, for a quick look.
const SMALL: &str = "standing";

/// What the answers to some questions have in common.
#[derive(Default)]
struct Tally {
    questions: usize,
    /// The same rows in the same order.
    alike: usize,
    /// The same rows in any order.
    same_rows: usize,
    same_first: usize,
}

pub async fn alike(
    home: &Home,
    engines: &Engines,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<()> {
    let mut tally = Tally::default();
    for (asker, corpus) in corpora()? {
        if sizes.one_world && corpus.pid != SMALL {
            continue;
        }
        progress(&format!("  {} ({} rows)", corpus.pid, corpus.rows.len()));
        let mut embedded = Server::of_operator(asker, None)?;
        lend_models(home, &embedded)?;
        embedded.launch()?;
        let ours = load(&embedded.operator()?, &corpus).await?;
        embedded.stop();
        let database = engines.database().await?;
        database.take_in(embedded.home.path("prism.db")).await?;
        embedded.launch()?;
        let shared = engines.server(&database, asker)?;
        lend_models(home, &shared)?;
        let shared = shared.resume()?;
        let clients = [embedded.operator()?, shared.operator()?];
        for question in &corpus.questions {
            let mut answers = Vec::new();
            for client in &clients {
                answers.push(ask(client, &corpus.pid, &ours, question, &[]).await?.ids);
            }
            tally.count(question, &answers[0], &answers[1]);
        }
    }
    let share = |n: usize| Some(100.0 * n as f64 / tally.questions.max(1) as f64);
    let figure = figures.add(
        "questions whose first ten are alike",
        "%",
        None,
        share(tally.alike),
    );
    figure.limit = Some(Limit::AtLeast(ALIKE_MIN));
    figure.more = vec![
        ("of", tally.questions as f64),
        (
            "the same ten in any order",
            share(tally.same_rows).unwrap_or_default(),
        ),
        (
            "the same first",
            share(tally.same_first).unwrap_or_default(),
        ),
    ];
    Ok(())
}

impl Tally {
    fn count(&mut self, question: &Question, sqlite: &[String], postgres: &[String]) {
        let sorted = |ids: &[String]| {
            let mut ids = ids.to_vec();
            ids.sort();
            ids
        };
        self.questions += 1;
        self.alike += usize::from(sqlite == postgres);
        self.same_rows += usize::from(sorted(sqlite) == sorted(postgres));
        self.same_first += usize::from(sqlite.first() == postgres.first());
        if sqlite != postgres {
            tracing::debug!(
                question = question.text,
                ?sqlite,
                ?postgres,
                "Ranked otherwise"
            );
            progress(&format!("  otherwise: {}", question.text));
        }
    }
}
