//! The operator-language set: rows in engineering words, questions in plain ones.

use super::super::{Report, ms, p50_p99, percentile};
use super::plain::{Plain, Words};
use super::{
    Answer, COLUMNS, Corpus, Figures, K, Question, ablate, ablation_json, ask, figures, load,
    server,
};
use crate::embed::encoder::Encoder;
use crate::embed::model;
use crate::home::Home;
use crate::ui::{Progress, out_anyway, table};
use anyhow::{Context, Result, bail};
use prism_core::memory::question::telling_words;
use prism_core::memory::recall::LOW_CONFIDENCE;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The worlds of the set, each with who asks there, its rows and its questions.
macro_rules! worlds {
    ($($name:literal, asked by $asker:literal;)+) => {
        const WORLDS: &[(&str, &str, &str, &str)] = &[$((
            $name,
            $asker,
            include_str!(concat!("../../../../bench/operator-language/", $name, "/rows.jsonl")),
            include_str!(concat!("../../../../bench/operator-language/", $name, "/questions.jsonl")),
        )),+];
    };
}

worlds! {
    "ferry", asked by "Lena";
    "clinic", asked by "Bram";
    "podcast", asked by "Yuki";
    "warehouse", asked by "Ines";
    "energy", asked by "Goran";
}

/// Pairs of rows of which one stands and the other does not, or no longer.
pub const STANDING: &str = "standing";
const PAIRS: (&str, &str, &str, &str) = (
    STANDING,
    "Maud",
    include_str!("../../../../bench/operator-language/standing/rows.jsonl"),
    include_str!("../../../../bench/operator-language/standing/questions.jsonl"),
);

/// Of the worlds that have them: other phrasings of the questions, and questions that rows answer.
const HELPED: &[(&str, &str, &str)] = &[(
    "energy",
    include_str!("../../../../bench/operator-language/energy/also.jsonl"),
    include_str!("../../../../bench/operator-language/energy/asked_as.jsonl"),
)];

/// What stands side by side, Prism last.
const SYSTEMS: [&str; 4] = ["FTS5", "MiniLM", "RRF", "Prism"];

/// What to measure, and how.
pub struct Task {
    /// A folder with a set of one's own, and who asks there.
    pub own: Option<(PathBuf, String)>,
    pub split: String,
    /// `also`, `asked_as`.
    pub with: Vec<String>,
    pub ablation: bool,
    pub keep: Option<PathBuf>,
    pub json: bool,
}

/// Rows and questions of one operator.
struct World {
    asker: String,
    corpus: Corpus,
}

/// One question, and what each system and Prism said to it.
struct Asked {
    world: String,
    question: Question,
    ranked: [Vec<String>; 4],
    confidence: f64,
    shares_no_stem: bool,
}

pub async fn run(home: &Home, task: Task) -> Result<()> {
    let worlds = match &task.own {
        None => WORLDS
            .iter()
            .map(|(name, asker, rows, questions)| world(name, asker, rows, questions, &task.split))
            .collect::<Result<Vec<_>>>()?,
        Some((folder, asker)) => vec![world(
            "own",
            asker,
            &read(folder, "rows.jsonl")?,
            &read(folder, "questions.jsonl")?,
            &task.split,
        )?],
    };
    let mut worlds: Vec<World> = worlds
        .into_iter()
        .filter(|w| !w.corpus.questions.is_empty())
        .collect();
    if !task.with.is_empty() {
        worlds.retain(|w| task.own.is_some() || helped(&w.corpus.pid).is_some());
    }
    for world in &mut worlds {
        for what in &task.with {
            let text = match &task.own {
                Some((folder, _)) => read(folder, &format!("{what}.jsonl"))?,
                None => {
                    let (also, asked_as) = helped(&world.corpus.pid).unwrap_or_default();
                    let text = if what == "also" { also } else { asked_as };
                    text.to_owned()
                }
            };
            help(&mut world.corpus, what, &text)?;
        }
    }
    if worlds.is_empty() {
        bail!("no question of the set has the split {:?}", task.split);
    }
    let (mut asked, mut ablated): (Vec<Asked>, Vec<(String, Figures)>) = (Vec::new(), Vec::new());
    for world in &worlds {
        let keep = task
            .keep
            .as_ref()
            .map(|folder| folder.join(&world.corpus.pid));
        measure(home, world, keep, task.ablation, &mut asked, &mut ablated).await?;
    }
    let pairs = match task.own.is_none() && task.with.is_empty() {
        true => Some(pairs_in_order(home, &task).await?),
        false => None,
    };
    if task.json {
        report_json(&task, &worlds, &asked, &ablated, pairs)
    } else {
        report(&task, &worlds, &asked, &ablated, pairs)
    }
}

/// Of how many pairs the row that stands comes before the other, and of how many.
async fn pairs_in_order(home: &Home, task: &Task) -> Result<(usize, usize)> {
    let (name, asker, rows, questions) = PAIRS;
    let World { corpus, asker } = world(name, asker, rows, questions, &task.split)?;
    let keep = task.keep.as_ref().map(|folder| folder.join(name));
    let server = server(home, &asker, keep)?;
    let client = server.operator()?;
    let ours = load(&client, &corpus).await?;
    let mut in_order = 0;
    for question in &corpus.questions {
        let answer = ask(&client, &corpus.pid, &ours, question, &[]).await?;
        in_order += usize::from(question.in_order(&answer.ids));
    }
    Ok((in_order, corpus.questions.len()))
}

/// Every world with all its questions and who asks there, the pairs last.
pub fn corpora() -> Result<Vec<(&'static str, Corpus)>> {
    let all = WORLDS.iter().chain([&PAIRS]);
    all.map(|(name, asker, rows, questions)| {
        Ok((*asker, world(name, asker, rows, questions, "all")?.corpus))
    })
    .collect()
}

/// What a recall takes with the question alone and with its other phrasings, in milliseconds each.
pub async fn also_cost(home: &Home, keep: Option<PathBuf>) -> Result<Report> {
    let (name, also, _) = HELPED.first().context("no world has other phrasings")?;
    let known = WORLDS.iter().find(|(world, ..)| world == name);
    let (name, asker, rows, questions) = known.context("its world is gone")?;
    let mut corpus = world(name, asker, rows, questions, "all")?.corpus;
    let server = server(home, asker, keep.map(|folder| folder.join(name)))?;
    let client = server.operator()?;
    load(&client, &corpus).await?;
    let mut report = Report::default();
    let mut medians = Vec::new();
    // Each pass has more questions than the embedder remembers, so that every text is embedded.
    for phrasings in ["alone", "with three other phrasings"] {
        let mut times = Vec::new();
        for question in &corpus.questions {
            let asked = json!({"query": question.text, "also": question.also, "k": K});
            let started = Instant::now();
            client.call(&corpus.pid, "recall", asked).await?;
            times.push(ms(started));
        }
        medians.push(percentile(&mut times, 0.5));
        let mut figures = p50_p99(&mut times);
        if let [one, several] = medians[..] {
            figures.push(("times one", several / one));
        }
        report.add(format!("recall, {phrasings}"), figures);
        help(&mut corpus, "also", also)?;
    }
    Ok(report)
}

fn helped(world: &str) -> Option<(&'static str, &'static str)> {
    let known = HELPED.iter().find(|(name, ..)| *name == world);
    known.map(|(_, also, asked_as)| (*also, *asked_as))
}

/// Adds phrasings to questions, or questions to rows, by their ids.
fn help(corpus: &mut Corpus, what: &str, text: &str) -> Result<()> {
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let line: Value = serde_json::from_str(line).with_context(|| format!("in {what}"))?;
        if what == "also" {
            let same = corpus.questions.iter_mut().find(|q| line["id"] == q.id);
            if let Some(question) = same {
                question.also = serde_json::from_value(line["also"].clone())?;
            }
        } else {
            let same = corpus.rows.iter_mut().find(|r| r["id"] == line["id"]);
            if let Some(row) = same {
                row["asked_as"] = line["asked_as"].clone();
            }
        }
    }
    Ok(())
}

/// Asks every question of one world, in a server whose operator is the one who asks.
async fn measure(
    home: &Home,
    world: &World,
    keep: Option<PathBuf>,
    ablation: bool,
    asked: &mut Vec<Asked>,
    ablated: &mut Vec<(String, Figures)>,
) -> Result<()> {
    let World { corpus, asker } = world;
    let server = server(home, asker, keep)?;
    let client = server.operator()?;
    let ours = load(&client, corpus).await?;
    let mut bar = Progress::new(
        &format!("{}: the plain systems", corpus.pid),
        corpus.rows.len(),
    );
    let plain = Plain::new(&corpus.rows, Encoder::new(&model::folder(home)), |n| {
        bar.at(n)
    })?;
    bar.done();
    let mut bar = Progress::new(
        &format!("{}: questions", corpus.pid),
        corpus.questions.len(),
    );
    for (n, question) in corpus.questions.iter().enumerate() {
        let Answer { ids, confidence } = ask(&client, &corpus.pid, &ours, question, &[]).await?;
        asked.push(Asked {
            world: corpus.pid.clone(),
            ranked: [
                plain.fts5(&question.text, K)?,
                plain.minilm(&question.text, K)?,
                plain.rrf(&question.text)?,
                ids,
            ],
            confidence,
            shares_no_stem: shares_no_stem(world, plain.words(), question)?,
            question: question.clone(),
        });
        bar.at(n + 1);
    }
    bar.done();
    if ablation {
        for (way, figures) in ablate(&client, &[(corpus, ours)]).await? {
            match ablated.iter_mut().find(|(name, _)| *name == way) {
                Some((_, sum)) => *sum = sum.with(figures),
                None => ablated.push((way, figures)),
            }
        }
    }
    Ok(())
}

fn of(asked: &[Asked], system: usize, keep: &dyn Fn(&Asked) -> bool) -> Figures {
    figures(
        asked
            .iter()
            .filter(|a| keep(a))
            .map(|a| (&a.question, a.ranked[system].as_slice())),
    )
}

/// Kinds of question that have answers.
fn kinds(asked: &[Asked]) -> BTreeSet<&str> {
    asked
        .iter()
        .filter(|a| !a.question.gold.is_empty())
        .map(|a| a.question.group.as_str())
        .collect()
}

fn report_json(
    task: &Task,
    worlds: &[World],
    asked: &[Asked],
    ablated: &[(String, Figures)],
    pairs: Option<(usize, usize)>,
) -> Result<()> {
    let systems = |keep: &dyn Fn(&Asked) -> bool| {
        SYSTEMS
            .iter()
            .enumerate()
            .map(|(i, name)| ((*name).to_owned(), of(asked, i, keep).json()))
            .collect::<Map<_, _>>()
    };
    let by_kind: Map<String, Value> = kinds(asked)
        .into_iter()
        .map(|k| (k.to_owned(), json!(systems(&|a| a.question.group == k))))
        .collect();
    let by_world: Map<String, Value> = worlds
        .iter()
        .map(|w| {
            (
                w.corpus.pid.clone(),
                json!(systems(&|a| a.world == w.corpus.pid)),
            )
        })
        .collect();
    let totals = Totals::of(asked);
    let report = json!({
        "version": crate::VERSION,
        "unit": "per cent",
        "split": task.split,
        "rows": worlds.iter().map(|w| w.corpus.rows.len()).sum::<usize>(),
        "share_no_stem": totals.without_stem,
        "overall": systems(&|_| true),
        "by_world": by_world,
        "by_kind": by_kind,
        "no_answer": refusals(asked).iter().map(|r| (r.kind.to_owned(), r.json())).collect::<Map<_, _>>(),
        "answerable_doubted": totals.doubted,
        "low_confidence": LOW_CONFIDENCE,
        "reliability": reliability(asked).iter().map(Reliable::json).collect::<Vec<_>>(),
        "pairs_in_order": pairs.map(|(in_order, of)| json!({"in_order": in_order, "of": of})),
        "ablation": ablation_json(ablated),
        "questions": asked.iter().map(Asked::json).collect::<Vec<_>>(),
    });
    out_anyway(&serde_json::to_string_pretty(&report)?);
    Ok(())
}

fn report(
    task: &Task,
    worlds: &[World],
    asked: &[Asked],
    ablated: &[(String, Figures)],
    pairs: Option<(usize, usize)>,
) -> Result<()> {
    let total: usize = worlds.iter().map(|w| w.corpus.rows.len()).sum();
    let mut rows = vec![vec![
        format!("{total} rows, split {}", task.split),
        "R@5".into(),
        String::new(),
        String::new(),
        String::new(),
        "nDCG@10".into(),
    ]];
    rows.push(
        [
            vec![String::new()],
            SYSTEMS.map(str::to_owned).to_vec(),
            SYSTEMS.map(str::to_owned).to_vec(),
            vec!["questions".into()],
        ]
        .concat(),
    );
    let line = |name: &str, keep: &dyn Fn(&Asked) -> bool| {
        let figures: Vec<Figures> = (0..SYSTEMS.len()).map(|s| of(asked, s, keep)).collect();
        let cells = |value: fn(&Figures) -> f64| {
            figures
                .iter()
                .map(move |f| format!("{:.1}", value(f)))
                .collect::<Vec<_>>()
        };
        [
            vec![name.to_owned()],
            cells(|f| f.r_at_5),
            cells(|f| f.ndcg_at_10),
            vec![figures[0].questions.to_string()],
        ]
        .concat()
    };
    rows.push(line("all", &|_| true));
    if worlds.len() > 1 {
        rows.extend(
            worlds
                .iter()
                .map(|w| line(&w.corpus.pid, &|a| a.world == w.corpus.pid)),
        );
    }
    rows.extend(
        kinds(asked)
            .into_iter()
            .map(|k| line(k, &|a| a.question.group == k)),
    );
    out_anyway(&table(&rows));
    for r in refusals(asked).iter().filter(|r| r.questions > 0) {
        out_anyway(&format!(
            "{}: {} of {} recognised (confidence below {LOW_CONFIDENCE}), {:.1} results each",
            r.says, r.recognised, r.questions, r.results_each
        ));
    }
    let Totals {
        answerable,
        doubted,
        without_stem,
    } = Totals::of(asked);
    out_anyway(&format!(
        "answerable but called unsure: {doubted} of {answerable}"
    ));
    out_anyway(&format!(
        "answerable and without a word stem in common with what answers: {without_stem} of {answerable}"
    ));
    if let Some((in_order, of)) = pairs {
        out_anyway(&format!(
            "pairs of which one stands and the other does not: {in_order} of {of} in order"
        ));
    }
    let mut rows = vec![Reliable::header()];
    rows.extend(reliability(asked).iter().map(Reliable::cells));
    out_anyway(&table(&rows));
    if !ablated.is_empty() {
        let mut rows = vec![[vec![String::new()], COLUMNS.map(str::to_owned).to_vec()].concat()];
        rows.extend(
            ablated
                .iter()
                .map(|(name, f)| [vec![name.clone()], f.cells()].concat()),
        );
        out_anyway(&table(&rows));
    }
    Ok(())
}

impl Asked {
    /// Where each system has the first row that answers (none: not among the ten).
    fn json(&self) -> Value {
        let place = |ids: &[String]| {
            ids.iter()
                .position(|id| self.question.gold.contains(id))
                .map(|i| i + 1)
        };
        let places: Map<String, Value> = SYSTEMS
            .iter()
            .zip(&self.ranked)
            .map(|(name, ids)| ((*name).to_owned(), json!(place(ids))))
            .collect();
        json!({"world": self.world, "question": self.question.text, "kind": self.question.group, "answers": self.question.gold, "place": places,
            "confidence": self.confidence, "results": self.ranked[SYSTEMS.len() - 1]})
    }
}

/// What became of answers of like confidence, those to questions without an answer included.
struct Reliable {
    from: f64,
    answers: usize,
    confidence: f64,
    first: f64,
    in_five: f64,
}

impl Reliable {
    /// Bands of confidence.
    const BANDS: usize = 5;

    fn header() -> Vec<String> {
        [
            "confidence",
            "answers",
            "mean",
            "right first",
            "right in five",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    fn cells(&self) -> Vec<String> {
        let until = self.from + 1.0 / Self::BANDS as f64;
        vec![
            format!("{:.1} to {until:.1}", self.from),
            self.answers.to_string(),
            format!("{:.2}", self.confidence),
            format!("{:.2}", self.first),
            format!("{:.2}", self.in_five),
        ]
    }

    fn json(&self) -> Value {
        json!({"from": self.from, "answers": self.answers, "confidence": self.confidence, "right_first": self.first, "right_in_five": self.in_five})
    }
}

fn reliability(asked: &[Asked]) -> Vec<Reliable> {
    let band = |confidence: f64| {
        let band = (confidence * Reliable::BANDS as f64) as usize;
        band.min(Reliable::BANDS - 1)
    };
    let of = |n: usize| {
        let own: Vec<&Asked> = asked.iter().filter(|a| band(a.confidence) == n).collect();
        let share = |sum: f64| sum / own.len().max(1) as f64;
        let right = |a: &&&Asked, k: usize| {
            let shown = a.ranked[SYSTEMS.len() - 1].iter().take(k);
            shown.into_iter().any(|id| a.question.gold.contains(id))
        };
        Reliable {
            from: n as f64 / Reliable::BANDS as f64,
            answers: own.len(),
            confidence: share(own.iter().map(|a| a.confidence).sum()),
            first: share(own.iter().filter(|a| right(a, 1)).count() as f64),
            in_five: share(own.iter().filter(|a| right(a, 5)).count() as f64),
        }
    };
    let bands = (0..Reliable::BANDS).map(of);
    bands.filter(|band| band.answers > 0).collect()
}

/// Counts over the questions that have an answer.
struct Totals {
    answerable: usize,
    doubted: usize,
    without_stem: usize,
}

impl Totals {
    fn of(asked: &[Asked]) -> Self {
        let answerable: Vec<&Asked> = asked
            .iter()
            .filter(|a| !a.question.gold.is_empty())
            .collect();
        let doubted = answerable
            .iter()
            .filter(|a| a.confidence < LOW_CONFIDENCE)
            .count();
        Self {
            doubted,
            without_stem: answerable.iter().filter(|a| a.shares_no_stem).count(),
            answerable: answerable.len(),
        }
    }
}

/// Questions that no row answers, and what they are called.
const UNANSWERABLE: [(&str, &str); 2] = [
    ("none", "no answer, though of this world"),
    ("foreign", "no answer, of another world"),
];

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

fn refusals(asked: &[Asked]) -> Vec<Refusals> {
    let met = |(kind, says): (&'static str, &'static str)| {
        let asked: Vec<&Asked> = asked.iter().filter(|a| a.question.group == kind).collect();
        let results: usize = asked
            .iter()
            .map(|a| a.ranked[SYSTEMS.len() - 1].len())
            .sum();
        let recognised = asked
            .iter()
            .filter(|a| a.confidence < LOW_CONFIDENCE)
            .count();
        Refusals {
            kind,
            says,
            questions: asked.len(),
            recognised,
            results_each: results as f64 / asked.len().max(1) as f64,
        }
    };
    UNANSWERABLE.map(met).into()
}

fn read(folder: &Path, name: &str) -> Result<String> {
    let file = folder.join(name);
    std::fs::read_to_string(&file).with_context(|| {
        format!(
            "cannot read {}: a set is a folder with rows.jsonl and questions.jsonl",
            file.display()
        )
    })
}

fn world(name: &str, asker: &str, rows: &str, questions: &str, split: &str) -> Result<World> {
    let lines = |what: &str, text: &str| {
        let parsed = text
            .lines()
            .enumerate()
            .filter(|(_, l)| !l.trim().is_empty());
        parsed
            .map(|(n, l)| {
                serde_json::from_str::<Value>(l)
                    .with_context(|| format!("{name}: line {} of the {what}", n + 1))
            })
            .collect::<Result<Vec<_>>>()
    };
    let questions = lines("questions", questions)?
        .into_iter()
        .filter(|q| split == "all" || q["split"] == split)
        .map(|q| Question {
            id: q["id"].as_str().unwrap_or_default().to_owned(),
            split: q["split"].as_str().unwrap_or_default().to_owned(),
            also: Vec::new(),
            over: strings(&q["over"]),
            text: q["question"].as_str().unwrap_or_default().to_owned(),
            group: q["kind"].as_str().unwrap_or_default().to_owned(),
            gold: strings(&q["answers"]),
        });
    Ok(World {
        asker: asker.to_owned(),
        corpus: Corpus {
            pid: name.to_owned(),
            questions: questions.collect(),
            rows: lines("rows", rows)?,
        },
    })
}

fn strings(list: &Value) -> BTreeSet<String> {
    let items = list.as_array().into_iter().flatten();
    let texts = items.filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

/// Whether a question has no word in common with any row that answers it, by Porter's stems and
/// without small words and names.
fn shares_no_stem(world: &World, words: &Words, question: &Question) -> Result<bool> {
    let names: BTreeSet<&str> = world
        .corpus
        .rows
        .iter()
        .filter_map(|r| r["identity"].as_str())
        .chain([world.asker.as_str()])
        .collect();
    let telling = telling_words(&question.text);
    let terms: Vec<&str> = telling
        .iter()
        .map(String::as_str)
        .filter(|w| !names.iter().any(|n| n.eq_ignore_ascii_case(w)))
        .collect();
    for id in &question.gold {
        if words.has_stem_of(id, &terms)? {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_set_is_what_it_says_it_is() {
        let (mut kinds, mut splits): (BTreeMap<String, usize>, BTreeMap<&str, usize>) =
            (BTreeMap::new(), BTreeMap::new());
        let (mut answerable, mut without_stem) = (0, 0);
        for (name, asker, rows, questions) in WORLDS {
            let all = world(name, asker, rows, questions, "all").unwrap();
            let ids: BTreeSet<&str> = all
                .corpus
                .rows
                .iter()
                .filter_map(|r| r["id"].as_str())
                .collect();
            assert!(
                all.corpus.rows.len() >= 300 && ids.len() == all.corpus.rows.len(),
                "{name}: rows compete, each with an id of its own"
            );
            let words = Words::new(&all.corpus.rows).unwrap();
            for q in &all.corpus.questions {
                *kinds.entry(q.group.clone()).or_default() += 1;
                assert!(
                    q.gold.iter().all(|id| ids.contains(id.as_str())),
                    "{name}: {} names a row that is not there",
                    q.text
                );
                assert_eq!(
                    q.gold.is_empty(),
                    UNANSWERABLE.iter().any(|(kind, _)| *kind == q.group),
                    "{name}: {}",
                    q.text
                );
                if !q.gold.is_empty() {
                    answerable += 1;
                    without_stem += usize::from(shares_no_stem(&all, &words, q).unwrap());
                }
            }
            for split in ["tune", "held", "all"] {
                *splits.entry(split).or_default() += world(name, asker, rows, questions, split)
                    .unwrap()
                    .corpus
                    .questions
                    .len();
            }
        }
        for kind in [
            "visible_effect",
            "confirmation",
            "correction",
            "pivot",
            "dead_end",
            "narrative",
            "name",
            "time",
            "engineering",
            "none",
            "foreign",
        ] {
            assert!(
                kinds.get(kind).is_some_and(|n| *n >= 10),
                "{kind}: {kinds:?}"
            );
        }
        assert!(
            splits["tune"] + splits["held"] == splits["all"] && splits["held"] * 2 >= splits["all"],
            "half of it is held out: {splits:?}"
        );
        assert!(
            without_stem * 2 >= answerable,
            "half of them share no stem with their row: {without_stem} of {answerable}"
        );
    }

    #[test]
    fn every_pair_is_one_row_that_answers_and_one_that_must_come_after_it() {
        let (name, asker, rows, questions) = PAIRS;
        let World { corpus, .. } = world(name, asker, rows, questions, "all").unwrap();
        let ids: BTreeSet<&str> = corpus
            .rows
            .iter()
            .filter_map(|r| r["id"].as_str())
            .collect();
        assert_eq!(ids.len(), corpus.rows.len());
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for question in &corpus.questions {
            *kinds.entry(&question.group).or_default() += 1;
            let both: Vec<&String> = question.gold.iter().chain(&question.over).collect();
            assert!(both.len() == 2 && both[0] != both[1], "{}", question.id);
            assert!(
                both.iter().all(|id| ids.contains(id.as_str())),
                "{}",
                question.id
            );
            let (answer, other) = (both[0].clone(), both[1].clone());
            assert!(question.in_order(&[answer.clone(), other.clone()]));
            assert!(question.in_order(std::slice::from_ref(&answer)));
            assert!(!question.in_order(&[other, answer]) && !question.in_order(&[]));
        }
        let all = [
            "asked_for_the_other",
            "corrected",
            "recent",
            "superseded",
            "verdict",
        ];
        assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), all);
        let tune = corpus
            .questions
            .iter()
            .filter(|q| q.split == "tune")
            .count();
        assert!(tune.abs_diff(corpus.questions.len() - tune) <= 1);
    }

    #[test]
    fn answers_are_reliable_by_their_confidence_and_one_without_an_answer_is_never_right() {
        let asked = |confidence: f64, gold: &[&str], ranked: &[&str]| {
            let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
            Asked {
                world: String::new(),
                question: Question {
                    id: String::new(),
                    text: String::new(),
                    split: String::new(),
                    also: Vec::new(),
                    group: String::new(),
                    gold: owned(gold).into_iter().collect(),
                    over: BTreeSet::new(),
                },
                ranked: [vec![], vec![], vec![], owned(ranked)],
                confidence,
                shares_no_stem: false,
            }
        };
        let table = reliability(&[
            asked(0.95, &["a"], &["a", "b"]),
            asked(1.0, &["b"], &["a", "b"]),
            asked(0.85, &[], &["a"]),
            asked(0.1, &["f"], &["a", "b", "c", "d", "e", "f"]),
        ]);
        let bands: Vec<(usize, String, String)> = table
            .iter()
            .map(|b| {
                (
                    b.answers,
                    format!("{:.2}", b.first),
                    format!("{:.2}", b.in_five),
                )
            })
            .collect();
        let band = |n, first: &str, five: &str| (n, first.to_owned(), five.to_owned());
        assert_eq!(bands, [band(1, "0.00", "0.00"), band(3, "0.33", "0.67")]);
    }
}
