//! The operator-language set: rows in engineering words, questions in plain ones.

use super::super::Server;
use super::plain::{Plain, Words};
use super::{Answer, COLUMNS, Corpus, Figures, K, Question, ablate, ablation_json, ask, figures, load};
use crate::embed::model::{self, Model};
use crate::home::Home;
use crate::ui::{Progress, out_anyway, table};
use anyhow::{Context, Result, bail};
use prism_core::memory::question::telling_words;
use prism_core::memory::recall::LOW_CONFIDENCE;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

const ROWS: &str = include_str!("../../../../bench/operator-language/rows.jsonl");
const QUESTIONS: &str = include_str!("../../../../bench/operator-language/questions.jsonl");
/// Who asks in the set that is part of Prism.
pub const OPERATOR: &str = "Lena";
/// What stands side by side, Prism last.
const SYSTEMS: [&str; 4] = ["FTS5", "MiniLM", "RRF", "Prism"];

/// Measures a set: the one that is part of Prism, or one in a folder of the same form.
pub async fn run(server: &Server, home: &Home, folder: Option<&Path>, asker: &str, split: &str, ablation: bool, json: bool) -> Result<()> {
    let corpus = match folder {
        None => corpus(ROWS, QUESTIONS, split)?,
        Some(folder) => corpus(&read(folder, "rows.jsonl")?, &read(folder, "questions.jsonl")?, split)?,
    };
    if corpus.questions.is_empty() {
        bail!("no question of the set has the split {split:?}");
    }
    let client = server.operator()?;
    let ours = load(&client, &corpus).await?;
    let mut bar = Progress::new("the plain systems", corpus.rows.len());
    let plain = Plain::new(&corpus.rows, Model::load(&model::folder(home))?, |n| bar.at(n))?;
    bar.done();
    let mut bar = Progress::new("questions", corpus.questions.len());
    let (mut ranked, mut answers): (Vec<[Vec<String>; 4]>, Vec<Answer>) = (Vec::new(), Vec::new());
    for (n, question) in corpus.questions.iter().enumerate() {
        let answer = ask(&client, &corpus.pid, &ours, &question.text, &[]).await?;
        ranked.push([plain.fts5(&question.text, K)?, plain.minilm(&question.text, K)?, plain.rrf(&question.text)?, answer.ids.clone()]);
        answers.push(answer);
        bar.at(n + 1);
    }
    bar.done();
    let of =
        |system: usize, keep: &dyn Fn(&Question) -> bool| figures(corpus.questions.iter().zip(&ranked).filter(|(q, _)| keep(q)).map(|(q, r)| (q, r[system].as_slice())));
    let kinds: BTreeSet<&str> = corpus.questions.iter().filter(|q| !q.gold.is_empty()).map(|q| q.group.as_str()).collect();
    let refusals = refusals(&corpus.questions, &answers);
    let answerable = corpus.questions.iter().filter(|q| !q.gold.is_empty()).count();
    let without_stem = without_stem(&corpus, plain.words(), asker)?;
    let doubted = corpus.questions.iter().zip(&answers).filter(|(q, a)| !q.gold.is_empty() && a.confidence < LOW_CONFIDENCE).count();
    let ablated = if ablation { ablate(&client, &[(&corpus, ours)]).await? } else { Vec::new() };
    if json {
        let systems = |keep: &dyn Fn(&Question) -> bool| SYSTEMS.iter().enumerate().map(|(i, name)| ((*name).to_owned(), of(i, keep).json())).collect::<Map<_, _>>();
        let by_kind: Map<String, Value> = kinds.iter().map(|k| ((*k).to_owned(), json!(systems(&|q| q.group == *k)))).collect();
        let report = json!({"version": crate::VERSION, "unit": "per cent", "split": split, "rows": corpus.rows.len(), "share_no_stem": without_stem, "overall": systems(&|_| true),
            "by_kind": by_kind, "no_answer": refusals.iter().map(|r| (r.kind.to_owned(), r.json())).collect::<Map<_, _>>(), "answerable_doubted": doubted, "low_confidence": LOW_CONFIDENCE, "ablation": ablation_json(&ablated),
            "questions": corpus.questions.iter().zip(&ranked).zip(&answers).map(|((q, r), a)| asked_json(q, r, a)).collect::<Vec<_>>()});
        out_anyway(&serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    let mut rows = vec![vec![format!("{} rows, split {split}", corpus.rows.len()), "R@5".into(), String::new(), String::new(), String::new(), "nDCG@10".into()]];
    rows.push([vec![String::new()], SYSTEMS.map(str::to_owned).to_vec(), SYSTEMS.map(str::to_owned).to_vec(), vec!["questions".into()]].concat());
    let line = |name: &str, keep: &dyn Fn(&Question) -> bool| {
        let figures: Vec<Figures> = (0..SYSTEMS.len()).map(|s| of(s, keep)).collect();
        let cells = |value: fn(&Figures) -> f64| figures.iter().map(move |f| format!("{:.1}", value(f))).collect::<Vec<_>>();
        [vec![name.to_owned()], cells(|f| f.r_at_5), cells(|f| f.ndcg_at_10), vec![figures[0].questions.to_string()]].concat()
    };
    rows.push(line("all", &|_| true));
    rows.extend(kinds.iter().map(|k| line(k, &|q| q.group == *k)));
    out_anyway(&table(&rows));
    for r in &refusals {
        out_anyway(&format!("{}: {} of {} recognised (confidence below {LOW_CONFIDENCE}), {:.1} results each", r.says, r.recognised, r.questions, r.results_each));
    }
    out_anyway(&format!("answerable but called unsure: {doubted} of {answerable}"));
    out_anyway(&format!("answerable and without a word stem in common with what answers: {without_stem} of {answerable}"));
    if !ablated.is_empty() {
        let mut rows = vec![[vec![String::new()], COLUMNS.map(str::to_owned).to_vec()].concat()];
        rows.extend(ablated.iter().map(|(name, f)| [vec![name.clone()], f.cells()].concat()));
        out_anyway(&table(&rows));
    }
    Ok(())
}

/// One question, and where each system has the first row that answers it (none: not among the ten).
fn asked_json(question: &Question, ranked: &[Vec<String>; 4], answer: &Answer) -> Value {
    let place = |ids: &[String]| ids.iter().position(|id| question.gold.contains(id)).map(|i| i + 1);
    let places: Map<String, Value> = SYSTEMS.iter().zip(ranked).map(|(name, ids)| ((*name).to_owned(), json!(place(ids)))).collect();
    json!({"question": question.text, "kind": question.group, "answers": question.gold, "place": places, "confidence": answer.confidence, "results": answer.ids})
}

/// Questions that no row answers, and what they are called.
const UNANSWERABLE: [(&str, &str); 2] = [("none", "no answer, though of this world"), ("foreign", "no answer, of another world")];

/// How questions without an answer were met.
struct Refusals {
    kind: &'static str,
    says: &'static str,
    questions: usize,
    recognised: usize,
    results_each: f64,
}

impl Refusals {
    fn json(&self) -> Value {
        json!({"questions": self.questions, "recognised": self.recognised, "results_each": self.results_each})
    }
}

fn refusals(questions: &[Question], answers: &[Answer]) -> Vec<Refusals> {
    let met = |(kind, says): (&'static str, &'static str)| {
        let asked: Vec<&Answer> = questions.iter().zip(answers).filter(|(q, _)| q.group == kind).map(|(_, a)| a).collect();
        let results: usize = asked.iter().map(|a| a.ids.len()).sum();
        let recognised = asked.iter().filter(|a| a.confidence < LOW_CONFIDENCE).count();
        Refusals { kind, says, questions: asked.len(), recognised, results_each: results as f64 / asked.len().max(1) as f64 }
    };
    UNANSWERABLE.map(met).into()
}

fn read(folder: &Path, name: &str) -> Result<String> {
    let file = folder.join(name);
    std::fs::read_to_string(&file).with_context(|| format!("cannot read {}: a set is a folder with rows.jsonl and questions.jsonl", file.display()))
}

fn corpus(rows: &str, questions: &str, split: &str) -> Result<Corpus> {
    let lines = |text: &str| text.lines().filter(|l| !l.trim().is_empty()).map(serde_json::from_str).collect::<serde_json::Result<Vec<Value>>>();
    let rows = lines(rows).context("the set's rows")?;
    let asked = lines(questions).context("the set's questions")?;
    let questions = asked.iter().filter(|q| split == "all" || q["split"] == split).map(|q| Question {
        text: q["question"].as_str().unwrap_or_default().to_owned(),
        group: q["kind"].as_str().unwrap_or_default().to_owned(),
        gold: q["answers"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
    });
    Ok(Corpus { pid: "operator-language".into(), questions: questions.collect(), rows })
}

/// Questions that have no word in common with any row that answers them, by Porter's stems and without small words and names.
fn without_stem(corpus: &Corpus, words: &Words, asker: &str) -> Result<usize> {
    let names: BTreeSet<&str> = corpus.rows.iter().filter_map(|r| r["identity"].as_str()).chain([asker]).collect();
    let mut without = 0;
    for question in corpus.questions.iter().filter(|q| !q.gold.is_empty()) {
        let telling = telling_words(&question.text);
        let terms: Vec<&str> = telling.iter().map(String::as_str).filter(|w| !names.iter().any(|n| n.eq_ignore_ascii_case(w))).collect();
        let mut shared = false;
        for id in &question.gold {
            shared |= words.has_stem_of(id, &terms)?;
        }
        without += usize::from(!shared);
    }
    Ok(without)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_set_is_what_it_says_it_is() {
        let all = corpus(ROWS, QUESTIONS, "all").unwrap();
        let ids: BTreeSet<&str> = all.rows.iter().filter_map(|r| r["id"].as_str()).collect();
        assert!(all.rows.len() >= 300 && ids.len() == all.rows.len(), "rows compete, each with an id of its own");
        assert!(all.questions.len() >= 100);
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for q in &all.questions {
            *kinds.entry(&q.group).or_default() += 1;
            assert!(q.gold.iter().all(|id| ids.contains(id.as_str())), "{} names a row that is not there", q.text);
            assert_eq!(q.gold.is_empty(), UNANSWERABLE.iter().any(|(kind, _)| *kind == q.group), "{}", q.text);
        }
        for kind in ["visible_effect", "confirmation", "correction", "pivot", "dead_end", "narrative", "name", "time", "engineering", "none", "foreign"] {
            assert!(kinds.get(kind).is_some_and(|n| *n >= 10), "{kind}: {kinds:?}");
        }
        let half = |split| corpus(ROWS, QUESTIONS, split).unwrap().questions.len();
        let (tune, held) = (half("tune"), half("held"));
        assert!(tune + held == all.questions.len() && held * 2 >= all.questions.len(), "half of it is held out: {tune} and {held}");
        let answerable = all.questions.iter().filter(|q| !q.gold.is_empty()).count();
        let without = without_stem(&all, &Words::new(&all.rows).unwrap(), OPERATOR).unwrap();
        assert!(without * 2 >= answerable, "half of them share no stem with their row: {without} of {answerable}");
    }
}
