//! What in memory has gone stale.

use super::memory::list;
use super::{Result, Tables, failed};
use crate::store::sql::{self, Connection, params};
use prism_core::Moment;
use prism_core::api::memory::{Rot, RotRow};
use prism_core::memory::surface::Surfaces;
use prism_core::text::{clip, one_line};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use uuid::Uuid;

/// Recalls that say whether a row is ever found.
const RECALLS_LOOKED_AT: i64 = 5_000;
/// A row that nobody has found for so long was perhaps never worth keeping, in microseconds.
const NEVER_RECALLED_AFTER_US: i64 = 30 * 86_400_000_000;
/// A superseded row among so many first results is in the way.
const IN_THE_WAY: u64 = 3;
/// Rows of each kind that the report names.
const EXAMPLES: usize = 5;

impl Tables {
    /// What in the project's memory has gone stale.
    pub async fn rot(&self, project: Uuid, surfaces: Vec<String>, now: Moment) -> Result<Rot> {
        self.read_report(move |c| rot(c, &project.to_string(), &surfaces, now))
            .await
    }
}

/// One pass over the project's rows, oldest first.
const ROWS: &str = "select m.id, m.kind, m.text, m.created_at, s.superseded_by is not null
    from memory m left join entity_states s on s.node = m.id
    where m.project_id = ? and m.hidden = 0 order by m.created_at";
/// Deltas that touched files and say nothing of what the operator sees.
const WORDLESS: &str = "select id, summary, touched_files from session_deltas
    where project_id = ? and touched_files <> '[]'
    and coalesce(trim(operator_visible_effect), '') = ''";
/// What recent recalls brought, each with its place.
const RECALLED: &str =
    "select json_extract(j.value, '$.id'), cast(json_extract(j.value, '$.rank') as integer)
    from (select results from memory_recall_events
        where project_id = ? order by occurred_at desc limit ?) e, json_each(e.results) j";

/// One way to go stale: how many rows did, and some of them.
#[derive(Default)]
struct Stale {
    rows: u64,
    examples: Vec<String>,
}

impl Stale {
    fn add(&mut self, id: &str, text: &str) {
        self.rows += 1;
        if self.examples.len() < EXAMPLES {
            let id = &id[..8.min(id.len())];
            self.examples
                .push(format!("{id} {}", clip(&one_line(text), 70)));
        }
    }

    fn row(self, kind: &str, weight: f64) -> RotRow {
        RotRow {
            kind: kind.into(),
            rows: self.rows,
            weight,
            examples: self.examples,
        }
    }
}

fn rot(c: &Connection, project: &str, surfaces: &[String], now: Moment) -> Result<Rot> {
    let (found, in_the_way) = recalled(c, project)?;
    let (mut duplicate, mut never, mut superseded) =
        (Stale::default(), Stale::default(), Stale::default());
    let mut total = 0u64;
    // What a row says, as a number: each row is looked at once, however many there are.
    let mut said: HashSet<u64> = HashSet::new();
    let mut statement = c.prepare_cached(ROWS).map_err(failed)?;
    let mut rows = statement.query([project]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let get = || -> sql::Result<(String, String, String, i64, bool)> {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
            ))
        };
        let (id, kind, text, at, is_superseded) = get().map_err(failed)?;
        total += 1;
        let mut hash = DefaultHasher::new();
        (&kind, text.to_ascii_lowercase()).hash(&mut hash);
        if !said.insert(hash.finish()) {
            duplicate.add(&id, &text);
        }
        if at < now.0 - NEVER_RECALLED_AFTER_US && !found.contains(&id) {
            never.add(&id, &text);
        }
        if is_superseded && in_the_way.contains(&id) {
            superseded.add(&id, &text);
        }
    }
    let touched = list(c, WORDLESS, params![project], |r| {
        Ok((
            r.get::<_, String>(0)?,
            r.get::<_, String>(1)?,
            r.get::<_, String>(2)?,
        ))
    })?;
    let surfaces = Surfaces::of(surfaces);
    let mut wordless = Stale::default();
    for (id, summary, files) in touched {
        let files: Vec<String> = serde_json::from_str(&files).unwrap_or_default();
        if surfaces.missing_effect(&files, None).is_some() {
            wordless.add(&id, &summary);
        }
    }
    let kinds = vec![
        duplicate.row("duplicate", 1.0),
        never.row("never_recalled", 0.25),
        superseded.row("superseded_but_ranked", 1.0),
        wordless.row("visible_without_operator_words", 0.5),
    ];
    let weighed: f64 = kinds.iter().map(|r| r.weight * r.rows as f64).sum();
    let score = (weighed / total.max(1) as f64).min(1.0);
    Ok(Rot {
        rows: total,
        score: (score * 1000.0).round() / 1000.0,
        kinds,
    })
}

/// The rows that recent recalls brought, and those they brought among the first.
fn recalled(c: &Connection, project: &str) -> Result<(HashSet<String>, HashSet<String>)> {
    let places = list(c, RECALLED, params![project, RECALLS_LOOKED_AT], |r| {
        Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)? as u64))
    })?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_looks_at_each_row_once_and_compares_it_with_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut c = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut c).unwrap();
        c.execute_batch("pragma foreign_keys = off").unwrap();
        for (i, text) in ["One", "two", "one", "ONE", "three"].iter().enumerate() {
            c.execute(
                "insert into memory (id, project_id, kind, identity, text, created_at)
                 values (?, 'p', 'note', 'A', ?, ?)",
                params![format!("{i}"), text, i as i64],
            )
            .unwrap();
        }
        let report = rot(&c, "p", &[], Moment(9)).unwrap();
        assert_eq!((report.rows, report.kinds[0].rows), (5, 2));
        assert_eq!(report.kinds[0].examples, ["2 one", "3 ONE"]);
        let plan = |sql: &str, bound: &[&dyn sql::ToSql]| -> Vec<String> {
            let mut statement = c.prepare(&format!("explain query plan {sql}")).unwrap();
            let steps = statement.query_map(bound, |r| r.get(3)).unwrap();
            steps.collect::<sql::Result<_>>().unwrap()
        };
        let rows = plan(ROWS, params!["p"]);
        assert!(
            rows.len() == 2 && rows.iter().all(|step| step.starts_with("SEARCH")),
            "by project and by node, in the order of the index: {rows:?}"
        );
        let recalled = plan(RECALLED, params!["p", 5]);
        let recent = "SEARCH memory_recall_events USING INDEX ix_recall_project (project_id=?)";
        assert!(
            recalled.iter().any(|step| step == recent)
                && !recalled.iter().any(|step| step.contains("TEMP B-TREE")),
            "the newest recalls only: {recalled:?}"
        );
    }
}
