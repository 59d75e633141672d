//! What in memory has gone stale.

use super::memory::list;
use super::{Result, Sqlite, failed};
use prism_core::Moment;
use prism_core::api::memory::{Rot, RotRow};
use prism_core::memory::surface::missing_effect;
use prism_core::text::{clip, one_line};
use rusqlite::{Connection, params};
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Recalls that say whether a row is ever found.
const RECALLS_LOOKED_AT: i64 = 5_000;
/// A row that nobody has found for so long was perhaps never worth keeping, in microseconds.
const NEVER_RECALLED_AFTER_US: i64 = 30 * 86_400_000_000;
/// A superseded row among so many first results is in the way.
const IN_THE_WAY: u64 = 3;
/// Rows of each kind that the report names.
const EXAMPLES: usize = 5;

impl Sqlite {
    /// What in the project's memory has gone stale.
    pub async fn rot(&self, project: Uuid, surfaces: Vec<String>, now: Moment) -> Result<Rot> {
        self.read_memory(move |c| rot(c, &project.to_string(), &surfaces, now))
            .await
    }
}

fn rot(c: &Connection, project: &str, surfaces: &[String], now: Moment) -> Result<Rot> {
    let rows: i64 = c
        .query_row(
            "select count(*) from memory where project_id = ? and hidden = 0",
            [project],
            |r| r.get(0),
        )
        .map_err(failed)?;
    let named = |sql: &str, bound: &[&dyn rusqlite::ToSql]| -> Result<Vec<(String, String)>> {
        list(c, sql, bound, |r| Ok((r.get(0)?, r.get(1)?)))
    };
    let duplicates = named(
        "select m.id, m.text from memory m where m.project_id = ?1 and m.hidden = 0 and exists
            (select 1 from memory o where o.project_id = ?1 and o.hidden = 0 and o.kind = m.kind and o.rowid < m.rowid and lower(o.text) = lower(m.text) and length(o.text) = length(m.text))",
        params![project],
    )?;
    let (found, in_the_way) = recalled(c, project)?;
    let old = named(
        "select id, text from memory where project_id = ? and hidden = 0 and created_at < ?",
        params![project, now.0 - NEVER_RECALLED_AFTER_US],
    )?;
    let never: Vec<(String, String)> = old
        .into_iter()
        .filter(|(id, _)| !found.contains(id))
        .collect();
    let superseded: Vec<(String, String)> = named(
        "select m.id, m.text from memory m join entity_states s on s.node = m.id where m.project_id = ? and m.hidden = 0 and s.superseded_by is not null",
        params![project],
    )?
    .into_iter()
    .filter(|(id, _)| in_the_way.contains(id))
    .collect();
    let touched = list(
        c,
        "select id, summary, touched_files from session_deltas where project_id = ? and touched_files <> '[]' and coalesce(trim(operator_visible_effect), '') = ''",
        params![project],
        |r| {
            Ok((
                r.get::<_, String>(0)?,
                r.get::<_, String>(1)?,
                r.get::<_, String>(2)?,
            ))
        },
    )?;
    let mut wordless = Vec::new();
    for (id, summary, files) in touched {
        let files: Vec<String> = serde_json::from_str(&files).unwrap_or_default();
        if missing_effect(&files, None, surfaces)?.is_some() {
            wordless.push((id, summary));
        }
    }
    let line = |kind: &str, weight: f64, found: &[(String, String)]| RotRow {
        kind: kind.into(),
        rows: found.len() as u64,
        weight,
        examples: found
            .iter()
            .take(EXAMPLES)
            .map(|(id, text)| format!("{} {}", &id[..8.min(id.len())], clip(&one_line(text), 70)))
            .collect(),
    };
    let rows_of = vec![
        line("duplicate", 1.0, &duplicates),
        line("never_recalled", 0.25, &never),
        line("superseded_but_ranked", 1.0, &superseded),
        line("visible_without_operator_words", 0.5, &wordless),
    ];
    let weighed: f64 = rows_of.iter().map(|r| r.weight * r.rows as f64).sum();
    let score = (weighed / rows.max(1) as f64).min(1.0);
    Ok(Rot {
        rows: rows as u64,
        score: (score * 1000.0).round() / 1000.0,
        kinds: rows_of,
    })
}

/// The rows that recent recalls brought, and those they brought among the first.
fn recalled(c: &Connection, project: &str) -> Result<(HashSet<String>, HashSet<String>)> {
    let places = list(
        c,
        "select json_extract(j.value, '$.id'), json_extract(j.value, '$.rank') from
            (select results from memory_recall_events where project_id = ? order by occurred_at desc limit ?) e, json_each(e.results) j",
        params![project, RECALLS_LOOKED_AT],
        |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)? as u64)),
    )?;
    let mut best: HashMap<String, u64> = HashMap::new();
    for (id, rank) in places {
        let most = best.entry(id).or_insert(rank);
        *most = rank.min(*most);
    }
    let first = best
        .iter()
        .filter(|(_, rank)| **rank <= IN_THE_WAY)
        .map(|(id, _)| id.clone())
        .collect();
    Ok((best.into_keys().collect(), first))
}
