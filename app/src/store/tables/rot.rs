//! What in memory has gone stale.

use super::memory::list;
use super::recall_events::brought;
use super::{Result, Tables, failed};
use crate::store::sql::{self, Connection, params};
use prism_core::Moment;
use prism_core::api::memory::{Rot, RotRow};
use prism_core::memory::surface::Surfaces;
use prism_core::page::metrics::rot as score;
use prism_core::text::{clip, one_line};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use uuid::Uuid;

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
    let found = brought(c, project)?;
    let in_the_way = |id: &str| found.get(id).is_some_and(|rank| *rank <= IN_THE_WAY);
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
        if at < now.0 - NEVER_RECALLED_AFTER_US && !found.contains_key(&id) {
            never.add(&id, &text);
        }
        if is_superseded && in_the_way(&id) {
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
    // The same files are touched again and again.
    let mut seen: HashMap<String, bool> = HashMap::new();
    for (id, summary, touched) in touched {
        let shows = *seen.entry(touched).or_insert_with_key(|touched| {
            let files: Vec<String> = serde_json::from_str(touched).unwrap_or_default();
            surfaces.missing_effect(&files, None).is_some()
        });
        if shows {
            wordless.add(&id, &summary);
        }
    }
    let kinds = vec![
        duplicate.row("duplicate", 1.0),
        never.row("never_recalled", 0.25),
        superseded.row("superseded_but_ranked", 1.0),
        wordless.row("visible_without_operator_words", 0.5),
    ];
    Ok(Rot {
        rows: total,
        score: score(total, kinds.iter().map(|r| (r.weight, r.rows))),
        kinds,
    })
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
        let recalled = plan(super::super::recall_events::NEWEST, params!["p", 5]);
        let recent = "SEARCH memory_recall_events USING INDEX ix_recall_project (project_id=?)";
        assert!(
            recalled.iter().any(|step| step == recent)
                && !recalled.iter().any(|step| step.contains("TEMP B-TREE")),
            "the newest recalls only: {recalled:?}"
        );
    }
}
