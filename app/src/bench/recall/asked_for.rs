//! `prism bench recall --fit-asked-for`: learns from questions what sort of row their meaning asks for.
//!
//! From the questions of `bench/operator-language/asked_for.jsonl`, which are about no world and say
//! what they ask for, and from those of the tune half by the rows that answer them. A softmax over
//! the question's vector, held to small weights.

use super::facts::Facts;
use super::{Corpus, operator};
use crate::embed::encoder::{Encoder, Trouble};
use crate::embed::model;
use crate::home::Home;
use crate::ui::{out_anyway, table};
use anyhow::{Context, Result, bail};
use prism_core::memory::generation::BGE_SMALL;
use prism_core::memory::question::Question as Asked;
use prism_core::memory::question::asked_for::{AskedFor, LINE, PARTS, Sort, TOLD_BY};
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;

const SORTS: usize = Sort::ALL.len();
/// Questions that say what they ask for.
const WRITTEN: &str = include_str!("../../../../bench/operator-language/asked_for.jsonl");
/// What one of them counts beside a question of the tune half.
const WRITTEN_COUNTS: f64 = 0.3;
/// How strongly weights are held to nothing.
const PULL: f64 = 0.05;
/// Steps of a fit; more change nothing that is seen.
const STEPS: usize = 1_500;

/// Fitted lines, one a sort.
type Lines = Vec<Vec<f64>>;

/// A question's vector, and how much of each sort it asks for.
struct Example {
    /// The world, unless it was written for this.
    of: Option<String>,
    question: String,
    vector: Vec<f32>,
    sorts: [f64; SORTS],
}

/// Fits the lines on all examples, writes them, and says how well such lines know a world that they
/// have not seen.
pub fn run(home: &Home, to: &Path) -> Result<()> {
    let examples = examples(home)?;
    let worlds: BTreeSet<&str> = examples.iter().filter_map(|e| e.of.as_deref()).collect();
    let cell = |text: &str| text.to_owned();
    let mut rows = vec![["", "right", "cost", "questions"].map(cell).to_vec()];
    let mut all = (0.0, 0.0, 0.0);
    for world in &worlds {
        let lines = fit(&examples, Some(world));
        let own = examples.iter().filter(|e| e.of.as_deref() == Some(world));
        let mut sum = (0.0, 0.0, 0.0);
        for example in own {
            let told = AskedFor::told_by(&example.vector, &lines);
            let likely = Sort::ALL.into_iter();
            let likely = likely.max_by(|a, b| told.chance(*a).total_cmp(&told.chance(*b)));
            sum.0 += likely.map_or(0.0, |sort| example.sorts[sort as usize]);
            let cost = Sort::ALL.map(|s| -example.sorts[s as usize] * told.chance(s).ln());
            sum.1 += cost.iter().sum::<f64>();
            sum.2 += 1.0;
        }
        rows.push(row(&format!("{world}, left out"), sum));
        all = (all.0 + sum.0, all.1 + sum.1, all.2 + sum.2);
    }
    rows.push(row("all of them", all));
    out_anyway(&table(&rows));
    let whole = |weight: &f64| format!("{}", (weight * PARTS).round() as i64);
    let text: String = fit(&examples, None)
        .iter()
        .map(|line| line.iter().map(whole).collect::<Vec<_>>().join(" ") + "\n")
        .collect();
    let name = to.file_name().and_then(|name| name.to_str());
    let name = name.with_context(|| format!("{} names no file", to.display()))?;
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    Home::at(folder.unwrap_or(Path::new("."))).write(name, text.as_bytes())
}

fn row(name: &str, (right, cost, n): (f64, f64, f64)) -> Vec<String> {
    vec![
        name.to_owned(),
        format!("{:.1}", 100.0 * right / n),
        format!("{:.3}", cost / n),
        n.to_string(),
    ]
}

/// Tells each question of the tune half what it asks for by lines that do not know its world.
pub fn leave_out(home: &Home, facts: &mut [Facts]) -> Result<()> {
    if !model::installed(home).contains(&TOLD_BY) {
        return Ok(());
    }
    let examples = examples(home)?;
    let vectors: HashMap<(&str, &str), &Example> = examples
        .iter()
        .filter_map(|e| Some(((e.of.as_deref()?, e.question.as_str()), e)))
        .collect();
    let mut lines: HashMap<String, Lines> = HashMap::new();
    for facts in facts.iter_mut().filter(|f| f.asked.asked_for.is_some()) {
        let key = (facts.of.as_str(), facts.question.text.as_str());
        if let Some(example) = vectors.get(&key) {
            let fitted = || fit(&examples, Some(&facts.of));
            let lines = lines.entry(facts.of.clone()).or_insert_with(fitted);
            facts.asked.asked_for = Some(AskedFor::told_by(&example.vector, lines));
        }
    }
    Ok(())
}

/// All that there is to learn from.
fn examples(home: &Home) -> Result<Vec<Example>> {
    let mut known: Vec<(Option<String>, String, String, [f64; SORTS])> = Vec::new();
    for (n, line) in WRITTEN.lines().enumerate() {
        let line: Value = serde_json::from_str(line).with_context(|| format!("line {}", n + 1))?;
        let sort = Sort::ALL
            .into_iter()
            .find(|s| line["asked_for"] == s.name());
        let Some(sort) = sort else {
            bail!("line {}: {} is no sort", n + 1, line["asked_for"]);
        };
        let mut sorts = [0.0; SORTS];
        sorts[sort as usize] = 1.0;
        let question = line["question"].as_str().unwrap_or_default().to_owned();
        let embedded = Asked::of(&question, &[], "operator").embedded;
        known.push((None, question, embedded, sorts));
    }
    for (operator, corpus) in operator::corpora()? {
        if corpus.pid != operator::STANDING {
            known.extend(of_tune(operator, &corpus));
        }
    }
    known.retain(|(_, _, embedded, _)| !embedded.is_empty());
    let texts: Vec<String> = known.iter().map(|(_, _, text, _)| text.clone()).collect();
    let encoder = Encoder::new(&model::folder(home));
    let vectors =
        encoder
            .questions(&BGE_SMALL, &[TOLD_BY], &texts)
            .map_err(|trouble| match trouble {
                Trouble::Model(reason) | Trouble::Texts(reason) => reason,
            })?;
    let example = |((of, question, _, sorts), vector)| Example {
        of,
        question,
        vector,
        sorts,
    };
    Ok(known
        .into_iter()
        .zip(vectors.vectors)
        .map(example)
        .collect())
}

/// The questions of the tune half of a world, with the sorts of the rows that answer them.
fn of_tune<'a>(
    operator: &'a str,
    corpus: &'a Corpus,
) -> impl Iterator<Item = (Option<String>, String, String, [f64; SORTS])> + 'a {
    let names: BTreeSet<String> = corpus
        .rows
        .iter()
        .filter_map(|row| row["identity"].as_str())
        .chain([operator])
        .map(str::to_owned)
        .collect();
    let names: Vec<String> = names.into_iter().collect();
    let of_rows: HashMap<&str, Sort> = corpus
        .rows
        .iter()
        .filter_map(|row| Some((row["id"].as_str()?, sort_of(row))))
        .collect();
    let tune = |q: &&super::Question| q.split == "tune" && !q.gold.is_empty();
    corpus.questions.iter().filter(tune).map(move |question| {
        let mut sorts = [0.0; SORTS];
        for id in &question.gold {
            if let Some(sort) = of_rows.get(id.as_str()) {
                sorts[*sort as usize] += 1.0 / question.gold.len() as f64;
            }
        }
        let embedded = Asked::of(&question.text, &names, operator).embedded;
        let of = Some(corpus.pid.clone());
        (of, question.text.clone(), embedded, sorts)
    })
}

/// The sort of a row as its file tells it.
fn sort_of(row: &Value) -> Sort {
    let has = |field: &str| !row[field].is_null();
    match row["kind"].as_str().unwrap_or_default() {
        "confirmation" => Sort::Verdict,
        "operator_input" if row["class"] == "confirmation" => Sort::Verdict,
        "operator_input" => Sort::Word,
        "integration_narrative" => Sort::Whole,
        _ if has("operator_visible_effect") || has("tried_and_ruled_out") => Sort::Work,
        _ => Sort::Other,
    }
}

/// The lines that suit these examples best, but for those of one world (Nesterov's descent: the cost
/// has one lowest point).
fn fit(examples: &[Example], but: Option<&str>) -> Lines {
    let counted: Vec<(&Example, f64)> = examples
        .iter()
        .filter(|e| e.of.is_none() || e.of.as_deref() != but)
        .map(|e| (e, if e.of.is_none() { WRITTEN_COUNTS } else { 1.0 }))
        .collect();
    let steepest: f64 = counted.iter().map(|(_, counts)| counts).sum();
    let step = 1.0 / (steepest + 2.0 * PULL);
    let mut lines = vec![vec![0.0; LINE]; SORTS];
    let mut before = lines.clone();
    for n in 0..STEPS {
        let swing = n as f64 / (n as f64 + 3.0);
        let ahead: Lines = lines
            .iter()
            .zip(&before)
            .map(|(now, before)| {
                let pairs = now.iter().zip(before);
                pairs
                    .map(|(now, before)| now + swing * (now - before))
                    .collect()
            })
            .collect();
        let mut slope: Lines = ahead
            .iter()
            .map(|line| line.iter().map(|w| 2.0 * PULL * w).collect())
            .collect();
        for (example, counts) in &counted {
            let told = AskedFor::told_by(&example.vector, &ahead);
            for sort in Sort::ALL {
                let wrong = counts * (told.chance(sort) - example.sorts[sort as usize]);
                let line = &mut slope[sort as usize];
                for (slope, x) in line.iter_mut().zip(example.vector.iter().chain([&1.0])) {
                    *slope += wrong * f64::from(*x);
                }
            }
        }
        before = std::mem::replace(&mut lines, ahead);
        for (line, slope) in lines.iter_mut().zip(&slope) {
            for (weight, slope) in line.iter_mut().zip(slope) {
                *weight -= step * slope;
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_learns_what_examples_say_and_not_what_a_left_out_world_says() {
        let example = |of: Option<&str>, at: usize, sort: Sort| {
            let mut vector = vec![0.0; LINE - 1];
            vector[at] = 1.0;
            let mut sorts = [0.0; SORTS];
            sorts[sort as usize] = 1.0;
            Example {
                of: of.map(str::to_owned),
                question: String::new(),
                vector,
                sorts,
            }
        };
        let examples = [
            example(None, 0, Sort::Work),
            example(Some("one"), 1, Sort::Verdict),
            example(Some("other"), 2, Sort::Whole),
        ];
        let sure = |but: Option<&str>, at: usize, sort: Sort| {
            let lines = fit(&examples, but);
            AskedFor::told_by(&example(None, at, sort).vector, &lines).chance(sort)
        };
        assert!(sure(None, 1, Sort::Verdict) > 0.6);
        assert!(sure(None, 2, Sort::Whole) > 0.6);
        assert!(sure(Some("one"), 1, Sort::Verdict) < 0.2);
        assert!(sure(Some("one"), 2, Sort::Whole) > 0.6);
    }

    #[test]
    fn every_written_question_says_what_it_asks_for_and_stands_once() {
        let mut seen = BTreeSet::new();
        for line in WRITTEN.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let sort = line["asked_for"].as_str().unwrap();
            assert!(Sort::ALL.iter().any(|s| s.name() == sort), "{line}");
            assert!(seen.insert(line["question"].to_string()), "{line}");
        }
    }
}
