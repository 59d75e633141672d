//! Which rows a commit touched, as a page knows them.

use super::super::{Result, Tables, column, failed};
use super::signals::one_signal;
use crate::live::{Table, Touched};
use crate::store::sql::{self, Connection, OptionalExtension};
use prism_core::api::page::EVERYWHERE;
use prism_core::api::page::live::{Change, Changed};
use rusqlite::hooks::Action;
use uuid::Uuid;

/// What a page is told of a write to a table. Some are written with every signal and say nothing
/// new.
pub(in super::super) fn watched(action: Action, table: &str) -> Option<Table> {
    let added = action == Action::SQLITE_INSERT;
    let kept = action != Action::SQLITE_DELETE;
    match table {
        "signal_queue" => kept.then_some(Table::Signals),
        "sessions" => kept.then_some(Table::Sessions),
        "memory" => kept.then_some(Table::Memory),
        "operator_inputs" => kept.then_some(Table::Inputs),
        "memory_recall_events" => kept.then_some(Table::Recalls),
        "recallgate_events" => kept.then_some(Table::Gate),
        "loopback_runs" => kept.then_some(Table::Probes),
        "personas" => added.then_some(Table::Settings),
        "projects" | "api_keys" => Some(Table::Settings),
        _ => None,
    }
}

impl Tables {
    pub async fn changes(&self, touched: Vec<Touched>) -> Result<Vec<(Option<Uuid>, Change)>> {
        self.read_memory(move |c| {
            let mut changes: Vec<(Option<Uuid>, Change)> = Vec::new();
            for one in touched {
                let Some(change) = change(c, one)? else {
                    continue;
                };
                if !changes.contains(&change) {
                    changes.push(change);
                }
            }
            Ok(changes)
        })
        .await
    }
}

fn change(c: &Connection, touched: Touched) -> Result<Option<(Option<Uuid>, Change)>> {
    let (table, column_of, what) = match touched {
        Touched::Signal(id) => return signal(c, &id.to_string()),
        Touched::Row(Table::Signals, row) => {
            let id: Option<String> = c
                .prepare_cached("select id from signal_queue where rowid = ?")
                .and_then(|mut s| s.query_row([row], |r| r.get(0)).optional())
                .map_err(failed)?;
            return id.map_or(Ok(None), |id| signal(c, &id));
        }
        Touched::Row(Table::Settings, _) => {
            return Ok(Some((
                None,
                plain(Changed::Settings, EVERYWHERE.into(), None),
            )));
        }
        Touched::Session(_) | Touched::Row(Table::Sessions, _) => {
            ("sessions", "id", Changed::Session)
        }
        Touched::Row(Table::Memory, _) => ("memory", "id", Changed::Memory),
        Touched::Row(Table::Inputs, _) => ("operator_inputs", "id", Changed::Review),
        Touched::Row(Table::Recalls, _) => ("memory_recall_events", "id", Changed::Recall),
        Touched::Row(Table::Gate, _) => ("recallgate_events", "id", Changed::Gate),
        Touched::Row(Table::Probes, _) => ("loopback_runs", "loopback_id", Changed::Probe),
    };
    let (by, value) = match touched {
        Touched::Session(id) | Touched::Signal(id) => ("t.id", sql::Value::Text(id.to_string())),
        Touched::Row(_, row) => ("t.rowid", sql::Value::Integer(row)),
    };
    c.prepare_cached(&format!(
        "select t.{column_of} as id, p.id as project_id, p.pid from {table} t
         join projects p on p.id = t.project_id where {by} = ?"
    ))
    .and_then(|mut s| {
        s.query_row([value], |r| {
            let id = column::id(r, "id")?;
            let project = column::id(r, "project_id")?;
            Ok((Some(project), plain(what, r.get("pid")?, Some(id))))
        })
        .optional()
    })
    .map_err(failed)
}

fn plain(what: Changed, pid: String, id: Option<Uuid>) -> Change {
    Change {
        what,
        pid,
        id,
        state: None,
        category: None,
        to: None,
    }
}

fn signal(c: &Connection, id: &str) -> Result<Option<(Option<Uuid>, Change)>> {
    let Some(looked) = one_signal(c, id)? else {
        return Ok(None);
    };
    let project: Option<String> = c
        .prepare_cached("select project_id from signal_queue where id = ?")
        .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
        .map_err(failed)?;
    let row = looked.row;
    Ok(Some((
        project.and_then(|p| p.parse().ok()),
        Change {
            what: Changed::Signal,
            pid: row.pid,
            id: Some(row.signal_id),
            state: Some(row.state),
            category: row.category,
            to: Some(row.to_identity),
        },
    )))
}
