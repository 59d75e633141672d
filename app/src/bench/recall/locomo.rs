//! LoCoMo: turns of long conversations are the rows, each question is asked of its own
//! conversation.

use super::super::Server;
use super::{
    COLUMNS, Corpus, Figures, Question, ablate, ablation_json, ask, figures, load, progress,
};
use crate::ui::{Progress, out_anyway, table};
use anyhow::{Context, Result, bail};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];
/// Seconds between two turns; the file only dates the session.
const TURN_S: usize = 30;

pub fn corpora(file: &Path) -> Result<Vec<Corpus>> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let conversations: Vec<Value> = serde_json::from_str(&text)
        .with_context(|| format!("{} is not LoCoMo's JSON", file.display()))?;
    conversations
        .iter()
        .enumerate()
        .map(|(n, c)| corpus(n, c))
        .collect()
}

pub async fn run(server: &Server, file: &Path, ablation: bool, json: bool) -> Result<()> {
    let corpora = corpora(file)?;
    let client = server.operator()?;
    let mut loaded = Vec::new();
    for corpus in &corpora {
        loaded.push((corpus, load(&client, corpus).await?));
    }
    let mut answers: Vec<(&str, &Question, Vec<String>)> = Vec::new();
    let mut bar = Progress::new("questions", corpora.iter().map(|c| c.questions.len()).sum());
    for (corpus, ours) in &loaded {
        for question in &corpus.questions {
            answers.push((
                &corpus.pid,
                question,
                ask(&client, &corpus.pid, ours, question, &[]).await?.ids,
            ));
            bar.at(answers.len());
        }
    }
    bar.done();
    let of = |keep: &dyn Fn(&str, &Question) -> bool| {
        figures(
            answers
                .iter()
                .filter(|(pid, q, _)| keep(pid, q))
                .map(|(_, q, ids)| (*q, ids.as_slice())),
        )
    };
    let overall = of(&|_, _| true);
    let categories: BTreeSet<&str> = answers.iter().map(|(_, q, _)| q.group.as_str()).collect();
    let by_category: BTreeMap<String, Figures> = categories
        .iter()
        .map(|c| ((*c).to_owned(), of(&|_, q| q.group == *c)))
        .collect();
    let by_conversation: BTreeMap<String, Figures> = corpora
        .iter()
        .map(|c| (c.pid.clone(), of(&|pid, _| pid == c.pid)))
        .collect();
    let without: BTreeMap<String, Figures> = corpora
        .iter()
        .map(|c| (c.pid.clone(), of(&|pid, _| pid != c.pid)))
        .collect();
    let ablated = if ablation {
        ablate(&client, &loaded).await?
    } else {
        Vec::new()
    };
    if json {
        let map = |figures: &BTreeMap<String, Figures>| {
            figures
                .iter()
                .map(|(k, f)| (k.clone(), f.json()))
                .collect::<Map<_, _>>()
        };
        let Value::Object(mut report) = overall.json() else {
            bail!("no figures")
        };
        report.insert("by_category".into(), json!(map(&by_category)));
        report.insert("by_conversation".into(), json!(map(&by_conversation)));
        report.insert("leave_one_conversation_out".into(), json!(map(&without)));
        report.insert("ablation".into(), ablation_json(&ablated));
        report.insert("unit".into(), json!("per cent"));
        report.insert("version".into(), json!(crate::VERSION));
        out_anyway(&serde_json::to_string_pretty(&Value::Object(report))?);
        return Ok(());
    }
    let row = |name: String, f: &Figures| [vec![name], f.cells()].concat();
    let mut rows = vec![
        [
            vec!["LoCoMo, turns".to_owned()],
            COLUMNS.map(str::to_owned).to_vec(),
        ]
        .concat(),
        row("all".into(), &overall),
    ];
    rows.extend(
        by_category
            .iter()
            .map(|(name, f)| row(format!("category {name}"), f)),
    );
    rows.extend(by_conversation.iter().map(|(name, f)| row(name.clone(), f)));
    rows.extend(
        without
            .iter()
            .map(|(name, f)| row(format!("all but {name}"), f)),
    );
    rows.extend(ablated.iter().map(|(name, f)| row(name.clone(), f)));
    out_anyway(&table(&rows));
    Ok(())
}

fn corpus(n: usize, sample: &Value) -> Result<Corpus> {
    let talk = sample["conversation"]
        .as_object()
        .context("a conversation is missing")?;
    let pid = sample["sample_id"]
        .as_str()
        .map_or_else(|| format!("conversation-{}", n + 1), str::to_owned);
    let mut rows = Vec::new();
    let mut ids = BTreeSet::new();
    for (session, turns) in talk
        .iter()
        .filter(|(name, turns)| name.starts_with("session_") && turns.is_array())
    {
        let begun = talk
            .get(&format!("{session}_date_time"))
            .and_then(Value::as_str)
            .and_then(day)
            .with_context(|| format!("{pid}: {session} has no time"))?;
        for (turn, said) in turns.as_array().into_iter().flatten().enumerate() {
            let (Some(id), Some(speaker)) = (said["dia_id"].as_str(), said["speaker"].as_str())
            else {
                continue;
            };
            let picture = said["blip_caption"]
                .as_str()
                .map(|c| format!(" [{c}]"))
                .unwrap_or_default();
            let identity: String = speaker
                .chars()
                .filter(char::is_ascii_alphanumeric)
                .collect();
            let at = prism_core::Moment(begun).plus_s((turn * TURN_S) as i64);
            rows.push(json!({"id": id, "kind": "note", "identity": identity, "session": session, "created_at": at, "text": format!("{}{picture}", said["text"].as_str().unwrap_or_default())}));
            ids.insert(id.to_owned());
        }
    }
    rows.retain(|r| r["text"].as_str().is_some_and(|t| !t.trim().is_empty()));
    let mut questions = Vec::new();
    for qa in sample["qa"].as_array().into_iter().flatten() {
        let cited = qa["evidence"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .flat_map(|e| e.split([';', ',', ' ']))
            .map(str::trim);
        let gold: BTreeSet<String> = cited
            .filter(|id| ids.contains(*id))
            .map(str::to_owned)
            .collect();
        let text = qa["question"].as_str().unwrap_or_default().to_owned();
        if gold.is_empty() || text.is_empty() {
            continue;
        }
        questions.push(Question {
            id: String::new(),
            split: String::new(),
            also: Vec::new(),
            over: BTreeSet::new(),
            text,
            group: qa["category"].to_string(),
            gold,
        });
    }
    progress(&format!(
        "{pid}: {} turns, {} questions",
        rows.len(),
        questions.len()
    ));
    Ok(Corpus {
        pid,
        rows,
        questions,
    })
}

/// "1:56 pm on 8 May, 2023" in microseconds since 1970.
fn day(text: &str) -> Option<i64> {
    let (clock, date) = text.split_once(" on ")?;
    let (time, half) = clock.trim().split_once(' ')?;
    let (hour, minute) = time.split_once(':')?;
    let hour = hour.parse::<u32>().ok()? % 12
        + if half.eq_ignore_ascii_case("pm") {
            12
        } else {
            0
        };
    let mut words = date.split([' ', ',']).filter(|w| !w.is_empty());
    let (day, month, year) = (
        words.next()?.parse::<u32>().ok()?,
        words.next()?.to_lowercase(),
        words.next()?,
    );
    let month = MONTHS.iter().position(|m| *m == month)? + 1;
    prism_core::Moment::parse(&format!(
        "{year}-{month:02}-{day:02}T{hour:02}:{minute}:00Z"
    ))
    .map(|m| m.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_dated_as_people_write() {
        assert_eq!(
            day("1:56 pm on 8 May, 2023").map(|us| prism_core::Moment(us).to_string()),
            Some("2023-05-08T13:56:00.000000Z".into())
        );
        assert_eq!(
            day("12:05 am on 1 January, 2023").map(|us| prism_core::Moment(us).to_string()),
            Some("2023-01-01T00:05:00.000000Z".into())
        );
        assert_eq!(day("yesterday"), None);
    }

    #[test]
    fn glued_evidence_is_taken_apart_and_what_does_not_exist_is_left_out() {
        let sample = json!({"sample_id": "c", "conversation": {"session_1_date_time": "1:56 pm on 8 May, 2023", "session_1": [{"speaker": "Ann B", "dia_id": "D1:1", "text": "hi"}, {"speaker": "Bo", "dia_id": "D1:2", "text": ""}]},
            "qa": [{"question": "q", "evidence": ["D1:1; D9:9"], "category": 1}, {"question": "q", "evidence": ["D9:9"], "category": 1}]});
        let corpus = corpus(0, &sample).unwrap();
        assert_eq!(
            (
                corpus.rows.len(),
                corpus.questions.len(),
                corpus.questions[0].gold.len()
            ),
            (1, 1, 1)
        );
        assert_eq!(corpus.rows[0]["identity"], "AnnB");
    }
}
