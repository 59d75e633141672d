//! `prism bench recall`: does the question find its row? Everything goes through a real server.

mod ablation;
mod asked_for;
mod descent;
mod facts;
mod fit;
mod literal;
mod locomo;
mod operator;
mod plain;
mod synthetic;
pub(super) use operator::corpora;
pub use synthetic::vocabulary;
pub(super) use synthetic::{MadeUp, Vectors, embed};

use super::{Server, ms, progress};
use crate::client::Client;
use crate::embed::model;
use crate::home::Home;
use crate::ui::Progress;
use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use prism_core::api::memory::{Imported, MemoryStats, Recalled};
use prism_core::memory::import::{Line, order, target, without_nulls};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::time::Duration;

/// Results asked for; the deepest figure looks at ten.
const K: usize = 10;
/// Lines of one import call.
const BATCH: usize = 200;

#[derive(Args)]
#[group(id = "what", required = true, multiple = false)]
struct Set {
    /// Plain questions about rows in engineering words; the set is part of Prism
    #[arg(long)]
    operator: bool,
    /// The same measurements on a set of your own: a folder with rows.jsonl and questions.jsonl
    #[arg(long, value_name = "DIR")]
    set: Option<PathBuf>,
    /// The LoCoMo file (long conversations); it is not part of Prism
    #[arg(long, value_name = "FILE")]
    locomo: Option<PathBuf>,
    /// Fit the weights on the tune half of the operator's questions and on this LoCoMo file
    #[arg(long, value_name = "FILE")]
    fit: Option<PathBuf>,
    /// Learn what sort of row a question's meaning asks for, and write the fitted lines to this file
    #[arg(long, value_name = "OUT")]
    fit_asked_for: Option<PathBuf>,
    /// Which vectors of a row and which model earn their keep, on the tune half and this LoCoMo file
    #[arg(long, value_name = "FILE")]
    ablation: Option<PathBuf>,
    /// What other phrasings of a question cost: one against four, side by side
    #[arg(long)]
    also_cost: bool,
    /// Speed on so many rows of made-up text
    #[arg(long, value_name = "N")]
    synthetic: Option<usize>,
    /// Does a question that repeats the words of one of N nearly equal rows find it? Beside FTS5
    #[arg(long, value_name = "N")]
    literal: Option<usize>,
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism bench recall --operator\n  prism bench recall --operator --split tune\n  prism bench recall --set ~/my-questions --asked-by Ada\n  prism bench recall --locomo locomo10.json --json\n  prism bench recall --synthetic 10000\n  prism bench recall --literal 10000\n  prism bench recall --fit locomo10.json --keep ~/bench-homes\n  prism bench recall --ablation locomo10.json --keep ~/bench-homes\n\nIt needs the embedding model: `prism model install`."
)]
pub struct Recall {
    #[command(flatten)]
    set: Set,
    /// Who asks in a set of your own: the operator's name there
    #[arg(long, value_name = "NAME", default_value = "operator")]
    asked_by: String,
    /// Which half of the set: tune, held or all
    #[arg(long, default_value = "all", value_parser = ["tune", "held", "all"])]
    split: String,
    /// Ask with other phrasings (`also`), or with rows that say which questions they answer
    /// (`asked_as`): only in worlds that have them, in also.jsonl and asked_as.jsonl
    #[arg(long, value_delimiter = ',', value_parser = ["also", "asked_as"])]
    with: Vec<String>,
    /// With --fit: print the held half, too. That is a look at it: bench/FIGURES.md counts them
    #[arg(long)]
    look_at_held: bool,
    /// Leave out the table of each leg alone and each leg left out
    #[arg(long)]
    no_ablation: bool,
    /// Really embed the rows up to this many. Beyond, vectors of --synthetic (10000 unless said
    /// otherwise) are made up and labelled so, and rows of --literal (0) have none
    #[arg(long, value_name = "N")]
    embed_up_to: Option<usize>,
    /// Vectors that each row of --synthetic is given where they are made up
    #[arg(long, value_name = "N", default_value_t = 1)]
    vectors_a_row: usize,
    /// Keep the server's home here, so that another run need not embed again
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
}

impl Recall {
    pub async fn run(self, home: &Home, json: bool) -> Result<()> {
        if let Some(n) = self.set.literal {
            let embed_up_to = self.embed_up_to.unwrap_or_default();
            return literal::run(home, n, embed_up_to, self.keep, json).await;
        }
        let wanted = model::wanted(home).context("this measures recall by meaning")?;
        for half in wanted.models() {
            model::verify(&model::folder(home), half)?;
        }
        if let Some(n) = self.set.synthetic {
            let task = synthetic::Task {
                n,
                embed_up_to: self.embed_up_to.unwrap_or(synthetic::EMBED_UP_TO),
                vectors_a_row: self.vectors_a_row,
                keep: self.keep,
            };
            return synthetic::run(home, task, json).await;
        }
        if self.set.also_cost {
            let report = operator::also_cost(home, self.keep).await?;
            report.print(json);
            return Ok(());
        }
        if let Some(file) = &self.set.fit {
            return fit::run(home, file, self.keep, self.look_at_held).await;
        }
        if let Some(to) = &self.set.fit_asked_for {
            return asked_for::run(home, to);
        }
        if let Some(file) = &self.set.ablation {
            return ablation::run(home, file, self.keep).await;
        }
        match &self.set.locomo {
            Some(file) => {
                locomo::run(
                    &server(home, "operator", self.keep)?,
                    file,
                    !self.no_ablation,
                    json,
                )
                .await
            }
            None => {
                let own = self.set.set.map(|folder| (folder, self.asked_by));
                operator::run(
                    home,
                    operator::Task {
                        own,
                        split: self.split,
                        with: self.with,
                        ablation: !self.no_ablation,
                        keep: self.keep,
                        json,
                    },
                )
                .await
            }
        }
    }
}

/// A server with this home's model, in a home of its own.
fn server(home: &Home, operator: &str, keep: Option<PathBuf>) -> Result<Server> {
    let server = Server::of_operator(operator, keep)?;
    let models = server.home.path("models");
    if !models.exists() {
        std::os::unix::fs::symlink(std::fs::canonicalize(home.path("models"))?, &models)?;
    }
    server.resume()
}

/// A question and the rows that answer it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    id: String,
    pub(super) text: String,
    /// tune or held, in sets that are parted.
    split: String,
    /// Other phrasings of it.
    also: Vec<String>,
    /// Category or kind.
    group: String,
    gold: BTreeSet<String>,
    /// Rows that say nearly the same and must stand below.
    over: BTreeSet<String>,
}

impl Question {
    /// Whether a row that answers stands above every row that must stand below it.
    fn in_order(&self, ranked: &[String]) -> bool {
        let place = |of: &BTreeSet<String>| ranked.iter().position(|id| of.contains(id));
        let answer = place(&self.gold);
        answer.is_some_and(|answer| place(&self.over).is_none_or(|other| answer < other))
    }
}

/// Rows that compete, in a project of their own, and what is asked of them.
#[derive(Clone)]
pub(super) struct Corpus {
    pub(super) pid: String,
    pub(super) rows: Vec<Value>,
    pub(super) questions: Vec<Question>,
}

/// What a recall brought, in the file's own ids.
pub(super) struct Answer {
    pub(super) ids: Vec<String>,
    confidence: f64,
}

/// Imports a corpus; answers with the file's id of each row.
async fn load_rows(client: &Client, corpus: &Corpus) -> Result<HashMap<String, String>> {
    let mut ours = HashMap::new();
    for batch in ordered(&corpus.rows)?.chunks(BATCH) {
        let lines: Vec<Value> = batch
            .iter()
            .map(|i| json!({"line": i + 1, "row": corpus.rows[*i]}))
            .collect();
        let answer = client
            .call(
                &corpus.pid,
                "import",
                json!({"source": "bench", "lines": lines}),
            )
            .await?;
        let imported: Imported = serde_json::from_value(answer)?;
        if let Some(id) = imported.changed.first() {
            bail!(
                "the kept home has another row {id:?}: it was made with another set; name a new folder with --keep"
            );
        }
        ours.extend(
            imported
                .ids
                .into_iter()
                .map(|(theirs, id)| (id.to_string(), theirs)),
        );
    }
    Ok(ours)
}

/// Imports a corpus and waits until every row has its vectors.
pub(super) async fn load(client: &Client, corpus: &Corpus) -> Result<HashMap<String, String>> {
    let ours = load_rows(client, corpus).await?;
    let mut bar = Progress::new(&format!("{}: embedding", corpus.pid), corpus.rows.len());
    loop {
        let stats: MemoryStats =
            serde_json::from_value(client.call(&corpus.pid, "memory_stats", json!({})).await?)?;
        bar.at(corpus
            .rows
            .len()
            .saturating_sub(stats.embed_pending as usize));
        if stats.embed_set_aside > 0 {
            bail!("{} rows could not be embedded", stats.embed_set_aside);
        }
        if stats.embed_pending == 0 {
            bar.done();
            return Ok(ours);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

/// The places of the rows, each after those it points at.
fn ordered(rows: &[Value]) -> Result<Vec<usize>> {
    let read = |(i, row): (usize, &Value)| {
        let line: Line = serde_json::from_value(without_nulls(row))
            .with_context(|| format!("line {}", i + 1))?;
        Ok((
            line.id.clone(),
            line.references().map(|r| target(r).to_owned()).collect(),
        ))
    };
    let lines = rows
        .iter()
        .enumerate()
        .map(read)
        .collect::<Result<Vec<_>>>()?;
    order(&lines).map_err(|circle| {
        anyhow!(
            "these lines point at each other in a circle: {}",
            circle.join(" -> ")
        )
    })
}

/// Asks one question with some of the legs; none named means all of them.
pub(super) async fn ask(
    client: &Client,
    pid: &str,
    ours: &HashMap<String, String>,
    question: &Question,
    legs: &[&str],
) -> Result<Answer> {
    let answer = client
        .call(
            pid,
            "recall",
            json!({"query": question.text, "also": question.also, "k": K, "legs": legs}),
        )
        .await?;
    let recalled: Recalled = serde_json::from_value(answer)?;
    if recalled.legs.vector.state == "off"
        && (legs.is_empty() || legs.contains(&"vector"))
        && recalled
            .legs
            .vector
            .reason
            .as_deref()
            .is_some_and(|r| !r.contains("names"))
    {
        bail!(
            "the vector leg is off: {}",
            recalled.legs.vector.reason.unwrap_or_default()
        );
    }
    let ids = recalled
        .results
        .iter()
        .filter_map(|r| ours.get(&r.id.to_string()).cloned())
        .collect();
    Ok(Answer {
        ids,
        confidence: recalled.confidence,
    })
}

/// The figures of some questions, in per cent.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    questions: usize,
    r_at_1: f64,
    r_at_5: f64,
    r_at_10: f64,
    ndcg_at_10: f64,
}

impl Figures {
    /// The figures of these questions and of others together.
    fn with(self, other: Self) -> Self {
        let (mine, theirs) = (self.questions as f64, other.questions as f64);
        let mean = |a: f64, b: f64| (a * mine + b * theirs) / (mine + theirs).max(1.0);
        Self {
            questions: self.questions + other.questions,
            r_at_1: mean(self.r_at_1, other.r_at_1),
            r_at_5: mean(self.r_at_5, other.r_at_5),
            r_at_10: mean(self.r_at_10, other.r_at_10),
            ndcg_at_10: mean(self.ndcg_at_10, other.ndcg_at_10),
        }
    }

    fn json(self) -> Value {
        let rounded = |v: f64| (v * 100.0).round() / 100.0;
        json!({"questions": self.questions, "r_at_1": rounded(self.r_at_1), "r_at_5": rounded(self.r_at_5), "r_at_10": rounded(self.r_at_10), "ndcg_at_10": rounded(self.ndcg_at_10)})
    }

    fn cells(self) -> Vec<String> {
        vec![
            format!("{:.1}", self.r_at_1),
            format!("{:.1}", self.r_at_5),
            format!("{:.1}", self.r_at_10),
            format!("{:.1}", self.ndcg_at_10),
            self.questions.to_string(),
        ]
    }
}

const COLUMNS: [&str; 5] = ["R@1", "R@5", "R@10", "nDCG@10", "questions"];

/// The share of a question's rows among the first `k`.
fn recall_at(ranked: &[String], gold: &BTreeSet<String>, k: usize) -> f64 {
    ranked
        .iter()
        .take(k)
        .filter(|id| gold.contains(*id))
        .count() as f64
        / gold.len() as f64
}

fn ndcg_at_10(ranked: &[String], gold: &BTreeSet<String>) -> f64 {
    let gain = |place: usize| 1.0 / ((place + 2) as f64).log2();
    let got: f64 = ranked
        .iter()
        .take(10)
        .enumerate()
        .filter(|(_, id)| gold.contains(*id))
        .map(|(i, _)| gain(i))
        .sum();
    got / (0..gold.len().min(10)).map(gain).sum::<f64>()
}

/// Averages over questions that have an answer.
fn figures<'a>(answers: impl Iterator<Item = (&'a Question, &'a [String])>) -> Figures {
    let mut sum = Figures::default();
    for (question, ranked) in answers.filter(|(q, _)| !q.gold.is_empty()) {
        sum.questions += 1;
        sum.r_at_1 += recall_at(ranked, &question.gold, 1);
        sum.r_at_5 += recall_at(ranked, &question.gold, 5);
        sum.r_at_10 += recall_at(ranked, &question.gold, 10);
        sum.ndcg_at_10 += ndcg_at_10(ranked, &question.gold);
    }
    let n = sum.questions.max(1) as f64 / 100.0;
    Figures {
        questions: sum.questions,
        r_at_1: sum.r_at_1 / n,
        r_at_5: sum.r_at_5 / n,
        r_at_10: sum.r_at_10 / n,
        ndcg_at_10: sum.ndcg_at_10 / n,
    }
}

const LEGS: [&str; 6] = [
    "lexical",
    "vector",
    "graph",
    "recency",
    "neighbours",
    "verdicts",
];

/// The ways of asking that the ablation compares.
fn ablations() -> Vec<(String, Vec<&'static str>)> {
    let alone = LEGS
        .iter()
        .take(4)
        .map(|leg| (format!("{leg} alone"), vec![*leg]));
    let without = LEGS.iter().map(|leg| {
        (
            format!("without {leg}"),
            LEGS.iter().copied().filter(|l| l != leg).collect(),
        )
    });
    alone.chain(without).collect()
}

/// Asks every question in every way of the ablation; the question's vector is remembered meanwhile.
async fn ablate(
    client: &Client,
    loaded: &[(&Corpus, HashMap<String, String>)],
) -> Result<Vec<(String, Figures)>> {
    let ways = ablations();
    let total = loaded.iter().map(|(c, _)| c.questions.len()).sum();
    let mut ranked: BTreeMap<usize, Vec<(&Question, Vec<String>)>> = BTreeMap::new();
    let (mut bar, mut n) = (Progress::new("ablation", total), 0);
    for (corpus, ours) in loaded {
        for question in corpus.questions.iter().filter(|q| !q.gold.is_empty()) {
            for (way, (_, legs)) in ways.iter().enumerate() {
                let answer = ask(client, &corpus.pid, ours, question, legs).await?;
                ranked.entry(way).or_default().push((question, answer.ids));
            }
            n += 1;
            bar.at(n);
        }
    }
    bar.done();
    let figure = |(way, (name, _)): (usize, &(String, Vec<&str>))| {
        let answers = ranked.get(&way).map(Vec::as_slice).unwrap_or_default();
        (
            name.clone(),
            figures(answers.iter().map(|(q, ids)| (*q, ids.as_slice()))),
        )
    };
    Ok(ways.iter().enumerate().map(figure).collect())
}

fn ablation_json(table: &[(String, Figures)]) -> Value {
    let mut ablation: Map<String, Value> = table
        .iter()
        .map(|(name, f)| (name.clone(), f.json()))
        .collect();
    for (leg, weight) in prism_core::memory::recall::Weights::default().legs() {
        if weight == 0.0 {
            ablation.insert(leg.into(), json!("off: its weight is 0"));
        }
    }
    Value::Object(ablation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shares_of_the_rows_that_answer() {
        let gold: BTreeSet<String> = ["a".to_owned(), "b".to_owned()].into();
        let ranked: Vec<String> = ["x", "a", "y", "b"].map(str::to_owned).to_vec();
        assert_eq!(
            (recall_at(&ranked, &gold, 2), recall_at(&ranked, &gold, 5)),
            (0.5, 1.0)
        );
        let ideal = 1.0 + 1.0 / 3f64.log2();
        assert!(
            (ndcg_at_10(&ranked, &gold) - (1.0 / 3f64.log2() + 1.0 / 5f64.log2()) / ideal).abs()
                < 1e-9
        );
        let none = Question {
            id: String::new(),
            split: String::new(),
            also: Vec::new(),
            over: BTreeSet::new(),
            text: String::new(),
            group: String::new(),
            gold: BTreeSet::new(),
        };
        assert_eq!(
            figures([(&none, ranked.as_slice())].into_iter()).questions,
            0,
            "a question without an answer is counted elsewhere"
        );
    }
}
