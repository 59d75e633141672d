//! What Prism is compared with: plain FTS5, plain MiniLM, and their plain fusion.

use super::K;
use crate::embed::encoder::Encoder;
use anyhow::{Context, Result};
use prism_core::memory::generation;
use rusqlite::Connection;
use serde_json::Value;
use std::collections::HashMap;

/// Fields of a row that are not its words.
const NOT_WORDS: [&str; 11] = [
    "id",
    "kind",
    "identity",
    "surface",
    "created_at",
    "refers_to",
    "supersedes",
    "verdict",
    "class",
    "confidence",
    "session",
];
/// Candidates that each side hands to the fusion.
const CANDIDATES: usize = 50;
/// The customary damping of reciprocal ranks.
const DAMPING: f64 = 60.0;

/// The words of every row, as one document each, found by plain FTS5.
pub struct Words(Connection);

impl Words {
    pub fn new(rows: &[Value]) -> Result<Self> {
        let fts = Connection::open_in_memory()?;
        fts.execute_batch("create virtual table rows using fts5 (id unindexed, words, tokenize = 'porter unicode61')")?;
        for row in rows {
            fts.execute(
                "insert into rows (id, words) values (?, ?)",
                [row["id"].as_str().unwrap_or_default(), &words(row)],
            )?;
        }
        Ok(Self(fts))
    }

    pub fn find(&self, question: &str, n: usize) -> Result<Vec<String>> {
        let terms: Vec<&str> = question
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .collect();
        let mut statement = self.0.prepare_cached(
            "select id from rows where rows match ? order by bm25(rows), id limit ?",
        )?;
        let ids = statement.query_map((any_of(&terms), n as i64), |r| r.get(0))?;
        Ok(ids.collect::<rusqlite::Result<_>>()?)
    }

    /// Whether a row has a word with the stem of one of these.
    pub fn has_stem_of(&self, id: &str, terms: &[&str]) -> Result<bool> {
        let mut statement = self
            .0
            .prepare_cached("select 1 from rows where rows match ? and id = ?")?;
        Ok(!terms.is_empty() && statement.exists((any_of(terms), id))?)
    }
}

fn any_of(terms: &[&str]) -> String {
    terms
        .iter()
        .map(|w| format!("\"{w}\""))
        .collect::<Vec<_>>()
        .join(" OR ")
}

fn minilm(model: &Encoder, text: &str) -> Result<Vec<f32>> {
    let texts = [text.to_owned()];
    let vectors = model.rows(&generation::MINILM, &texts, &|| ())?;
    vectors.into_iter().next().context("no vector")
}

/// Every row as one document.
pub struct Plain {
    words: Words,
    vectors: Vec<(String, Vec<f32>)>,
    model: Encoder,
}

impl Plain {
    pub fn new(rows: &[Value], model: Encoder, mut progress: impl FnMut(usize)) -> Result<Self> {
        let mut vectors = Vec::with_capacity(rows.len());
        for (n, row) in rows.iter().enumerate() {
            vectors.push((
                row["id"].as_str().unwrap_or_default().to_owned(),
                minilm(&model, &words(row))?,
            ));
            progress(n + 1);
        }
        Ok(Self {
            words: Words::new(rows)?,
            vectors,
            model,
        })
    }

    pub fn fts5(&self, question: &str, n: usize) -> Result<Vec<String>> {
        self.words.find(question, n)
    }

    pub const fn words(&self) -> &Words {
        &self.words
    }

    pub fn minilm(&self, question: &str, n: usize) -> Result<Vec<String>> {
        let asked = minilm(&self.model, question)?;
        let cosine = |v: &[f32]| v.iter().zip(&asked).map(|(a, b)| a * b).sum::<f32>();
        let mut scored: Vec<(f32, &str)> = self
            .vectors
            .iter()
            .map(|(id, v)| (cosine(v), id.as_str()))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        Ok(scored
            .into_iter()
            .take(n)
            .map(|(_, id)| id.to_owned())
            .collect())
    }

    /// Reciprocal ranks with the customary 60, both sides alike.
    pub fn rrf(&self, question: &str) -> Result<Vec<String>> {
        let mut scores: HashMap<String, f64> = HashMap::new();
        for ranked in [
            self.fts5(question, CANDIDATES)?,
            self.minilm(question, CANDIDATES)?,
        ] {
            for (place, id) in ranked.into_iter().enumerate() {
                *scores.entry(id).or_default() += 1.0 / (DAMPING + place as f64 + 1.0);
            }
        }
        let mut fused: Vec<(String, f64)> = scores.into_iter().collect();
        fused.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(fused.into_iter().take(K).map(|(id, _)| id).collect())
    }
}

/// All the words of a row, whatever its fields are called.
fn words(row: &Value) -> String {
    fn collect(value: &Value, into: &mut Vec<String>) {
        match value {
            Value::String(text) => into.push(text.clone()),
            Value::Array(items) => items.iter().for_each(|v| collect(v, into)),
            Value::Object(map) => map.values().for_each(|v| collect(v, into)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (_, value) in row
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| !NOT_WORDS.contains(&name.as_str()))
    {
        collect(value, &mut found);
    }
    found.join("\n")
}
