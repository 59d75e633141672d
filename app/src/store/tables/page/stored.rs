//! What this store holds, and how large it is.

use super::super::{Result, Tables, column, failed, memory::list};
use crate::store::sql::{Connection, params};
use prism_core::api::FolderView;
use prism_core::api::page::house::{PersonaSeen, ProjectSettings, Stored, SurfaceSeen};
use std::collections::BTreeMap;

/// Sessions that say which surfaces there are; the newest count.
const SESSIONS_LOOKED_AT: i64 = 5_000;
/// Rows of one kind that are counted one by one; of more their numbering says how many there are at
/// the most.
const COUNTED_MAX: i64 = 100_000;
const COUNTED: &[(&str, &str)] = &[
    ("signals", "signal_queue"),
    ("deltas", "session_deltas"),
    ("verdicts", "operator_confirmations"),
    ("inputs", "operator_inputs"),
    ("artifacts", "artifacts"),
    ("memory", "memory"),
    ("recalls", "memory_recall_events"),
    ("gate_events", "recallgate_events"),
    ("probes", "loopback_runs"),
    ("sessions", "sessions"),
];

impl Tables {
    pub async fn project_settings(&self) -> Result<Vec<ProjectSettings>> {
        self.read_report(|c| {
            let mut projects: Vec<(String, ProjectSettings)> = list(
                c,
                "select p.id, p.pid, p.created_at, p.demo, coalesce(n.rows, 0) as rows
                 from projects p left join memory_counts n on n.project_id = p.id order by p.pid",
                params![],
                |r| {
                    Ok((
                        r.get("id")?,
                        ProjectSettings {
                            pid: r.get("pid")?,
                            created_at: column::moment(r, "created_at")?,
                            demo: r.get("demo")?,
                            personas: Vec::new(),
                            folders: Vec::new(),
                            memory_rows: r.get::<_, i64>("rows")? as u64,
                        },
                    ))
                },
            )?;
            for (id, project) in &mut projects {
                project.personas = list(
                    c,
                    "select * from personas where project_id = ? order by identity_folded",
                    params![&*id],
                    |r| {
                        Ok(PersonaSeen {
                            identity: r.get("identity")?,
                            operator: r.get("is_operator")?,
                            since: column::moment(r, "created_at")?,
                            started: r.get::<_, Option<i64>>("started_at")?.is_some(),
                        })
                    },
                )?;
                project.folders = list(
                    c,
                    "select * from project_folders where project_id = ? order by since",
                    params![&*id],
                    |r| {
                        Ok(FolderView {
                            machine_id: r.get("machine_id")?,
                            folder: r.get("folder")?,
                            since: column::moment(r, "since")?,
                            allowed: r.get("allowed")?,
                        })
                    },
                )?;
            }
            Ok(projects.into_iter().map(|(_, project)| project).collect())
        })
        .await
    }

    pub async fn stored(&self) -> Result<(Stored, Vec<SurfaceSeen>)> {
        self.read_report(|c| {
            let (mut rows, mut at_most) = (BTreeMap::new(), Vec::new());
            for (name, table) in COUNTED {
                let counted = how_many(c, table, COUNTED_MAX)?;
                rows.insert((*name).to_owned(), counted.rows);
                if counted.at_most {
                    at_most.push((*name).to_owned());
                }
            }
            let size = c.either(
                "select page_count * page_size from pragma_page_count, pragma_page_size",
                "select pg_database_size(current_database())",
            );
            let bytes: i64 = c.query_row(size, [], |r| r.get(0)).map_err(failed)?;
            let stored = Stored {
                database_bytes: bytes as u64,
                journal_bytes: journal_bytes(c),
                rows,
                at_most,
            };
            let surfaces = list(
                c,
                "select surface, machine_id, sum(released_at is null) as open,
                     max(last_seen_at) as seen
                 from (select * from sessions order by rowid desc limit ?)
                 group by 1, 2 order by seen desc limit 50",
                params![SESSIONS_LOOKED_AT],
                |r| {
                    Ok(SurfaceSeen {
                        surface: r.get("surface")?,
                        machine_id: r.get("machine_id")?,
                        open: r.get::<_, i64>("open")? as u64,
                        last_seen_at: column::moment(r, "seen")?,
                    })
                },
            )?;
            Ok((stored, surfaces))
        })
        .await
    }
}

/// How many rows a table has: exactly up to a number, beyond it at the most.
pub(in super::super) struct HowMany {
    pub rows: u64,
    pub at_most: bool,
}

/// Looks at no more rows than are counted, however large the table is.
fn how_many(c: &Connection, table: &str, counted_max: i64) -> Result<HowMany> {
    let few = format!("select count(*) from (select 1 from {table} limit ?)");
    let n: i64 = c
        .prepare_cached(&few)
        .and_then(|mut s| s.query_row([counted_max + 1], |r| r.get(0)))
        .map_err(failed)?;
    if n <= counted_max {
        return Ok(HowMany {
            rows: n as u64,
            at_most: false,
        });
    }
    let numbered =
        format!("select (select max(rowid) from {table}) - (select min(rowid) from {table}) + 1");
    let n: i64 = c
        .prepare_cached(&numbered)
        .and_then(|mut s| s.query_row([], |r| r.get(0)))
        .map_err(failed)?;
    Ok(HowMany {
        rows: n as u64,
        at_most: true,
    })
}

/// The same for a table of history, as retention counts it.
pub(in super::super) fn rows_of(c: &Connection, table: &str) -> Result<HowMany> {
    how_many(c, table, COUNTED_MAX)
}

fn journal_bytes(c: &Connection) -> u64 {
    let size = |path: &str| std::fs::metadata(format!("{path}-wal")).map(|m| m.len());
    match c {
        Connection::Sqlite(c) => c.path().and_then(|path| size(path).ok()),
        Connection::Postgres(_) => None,
    }
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_table_is_counted_and_of_a_large_one_its_numbering_says_at_most() {
        let c = Connection::open_in_memory().unwrap();
        c.execute_batch(
            "create table t (x integer);
             with recursive n(i) as (select 1 union all select i + 1 from n where i < 20)
             insert into t select i from n;
             delete from t where x in (5, 6, 7);",
        )
        .unwrap();
        let of = |max| {
            let found = how_many(&c, "t", max).unwrap();
            (found.rows, found.at_most)
        };
        assert_eq!(of(17), (17, false));
        assert_eq!(of(16), (20, true), "three of the numbers are gone");
    }
}
