//! What this store holds, and how large it is.

use super::super::{Result, Sqlite, column, failed, memory::list};
use crate::store::sql::{Connection, params};
use prism_core::api::FolderView;
use prism_core::api::page::house::{PersonaSeen, ProjectSettings, Stored, SurfaceSeen};
use std::collections::BTreeMap;

/// Sessions that say which surfaces there are; the newest count.
const SESSIONS_LOOKED_AT: i64 = 5_000;
/// Rows of one kind that are counted one by one; beyond that their numbering says it nearly.
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

impl Sqlite {
    pub async fn project_settings(&self) -> Result<Vec<ProjectSettings>> {
        self.read_memory(|c| {
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
        self.read_memory(|c| {
            let mut rows = BTreeMap::new();
            for (name, table) in COUNTED {
                let n: i64 = c
                    .query_row(&format!("select count(*) from {table}"), [], |r| r.get(0))
                    .map_err(failed)?;
                rows.insert((*name).to_owned(), n as u64);
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

fn journal_bytes(c: &Connection) -> u64 {
    let size = |path: &str| std::fs::metadata(format!("{path}-wal")).map(|m| m.len());
    match c {
        Connection::Sqlite(c) => c.path().and_then(|path| size(path).ok()),
        Connection::Postgres(_) => None,
    }
    .unwrap_or_default()
}
