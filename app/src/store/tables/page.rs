//! Lists as the page reads them: newest first, by cursor, filtered where the rows are, and never
//! more than a window of them at a time.

pub mod changes;
pub mod demo;
pub mod memory;
pub mod metrics;
pub mod now;
pub mod signals;
pub mod stored;
pub mod story;

use super::{Result, failed};
use crate::store::page::{Listed, Range};
use crate::store::sql::Value;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params_from_iter};
use prism_core::limits::PAGE_LOOK_ROWS;
use prism_core::page::Cursor;
use prism_core::{Moment, Problem};
use uuid::Uuid;

/// What is listed: a table whose rows have a project and a time.
pub(super) struct Listing {
    pub table: &'static str,
    pub time: &'static str,
    /// Over `t`, a row of the table, and over what is joined to it.
    pub columns: &'static str,
    /// Left joins alone: they leave the order as it is.
    pub joins: &'static str,
    /// The part of the table that is listed, where an index holds just that part; else `true`.
    pub only: &'static str,
}

/// Conditions over `t`, each with its values.
#[derive(Default)]
pub(super) struct Where {
    sql: Vec<String>,
    values: Vec<Value>,
}

impl Where {
    pub fn is(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) {
        self.sql.push(sql.to_owned());
        self.values.extend(values);
    }

    pub fn equal(&mut self, sql: &str, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            let value: String = value.into();
            self.is(sql, [Value::Text(value)]);
        }
    }

    /// Each word stands somewhere in a text, whatever its case.
    pub fn words(&mut self, text: &str, words: &[String]) {
        for word in words {
            let word = word.to_ascii_lowercase();
            self.is(&format!("instr(lower({text}), ?) > 0"), [Value::Text(word)]);
        }
    }
}

impl Listing {
    /// The rows of one project, at most a window of them: `?` are project, cursor (time and row),
    /// since, what the conditions take, and how many.
    pub fn sql(&self, conditions: &Where) -> String {
        let Self {
            table,
            time,
            columns,
            joins,
            only,
        } = self;
        let wanted = match conditions.sql.is_empty() {
            true => "true".to_owned(),
            false => conditions.sql.join(" and "),
        };
        format!(
            "select t.page_time, t.page_row, {columns} from
                 (select rowid as page_row, {time} as page_time, * from {table}
                  where {only} and project_id = ? and ({time}, rowid) < (?, ?) and {time} >= ?
                  order by {time} desc, rowid desc limit {PAGE_LOOK_ROWS}) t
             {joins} where {wanted} limit ?"
        )
    }

    /// Where the window of one project ends, if it does not reach the beginning.
    pub fn window_end(&self) -> String {
        let Self {
            table, time, only, ..
        } = self;
        format!(
            "select {time}, rowid from {table}
             where {only} and project_id = ? and ({time}, rowid) < (?, ?) and {time} >= ?
             order by {time} desc, rowid desc limit 1 offset {}",
            PAGE_LOOK_ROWS - 1
        )
    }

    /// Says that these projects will be listed.
    pub fn ahead(
        &self,
        c: &Connection,
        projects: &[Uuid],
        range: &Range,
        conditions: &Where,
    ) -> Result<()> {
        let sql = self.sql(conditions);
        for project in projects {
            let values = params_from_iter(values(*project, range, conditions));
            c.ahead(&sql, values).map_err(failed)?;
        }
        Ok(())
    }

    /// Lists the rows of these projects as one.
    pub fn list<T>(
        &self,
        c: &Connection,
        projects: &[Uuid],
        range: &Range,
        conditions: &Where,
        map: impl Fn(&Row<'_>) -> sql::Result<T>,
    ) -> Result<Listed<T>> {
        let (rows, looked_to) = self.look(c, projects, range, conditions, map)?;
        Ok(Listed::of(rows, looked_to, range))
    }

    /// What these projects have in the window, and where the nearest end of a window is.
    pub fn look<T>(
        &self,
        c: &Connection,
        projects: &[Uuid],
        range: &Range,
        conditions: &Where,
        map: impl Fn(&Row<'_>) -> sql::Result<T>,
    ) -> Result<(Vec<(Cursor, T)>, Option<Cursor>)> {
        let sql = self.sql(conditions);
        let mut rows: Vec<(Cursor, T)> = Vec::new();
        let mut looked_to: Option<Cursor> = None;
        // Where every row counts, a window that is not full reaches the beginning.
        let all_count = conditions.sql.is_empty() && range.limit < PAGE_LOOK_ROWS;
        for project in projects {
            let mut statement = c.prepare_cached(&sql).map_err(failed)?;
            let values = values(*project, range, conditions);
            let found = statement
                .query_map(params_from_iter(values), |r| {
                    let at = Cursor {
                        at: Moment(r.get("page_time")?),
                        row: r.get("page_row")?,
                    };
                    Ok((at, map(r)?))
                })
                .and_then(Iterator::collect::<sql::Result<Vec<_>>>)
                .map_err(failed)?;
            if found.len() <= range.limit && !all_count {
                let end = c
                    .prepare_cached(&self.window_end())
                    .and_then(|mut s| {
                        s.query_row(params_from_iter(head(*project, range)), |r| {
                            Ok(Cursor {
                                at: Moment(r.get(0)?),
                                row: r.get(1)?,
                            })
                        })
                        .optional()
                    })
                    .map_err(failed)?;
                looked_to = looked_to.max(end);
            }
            rows.extend(found);
        }
        Ok((rows, looked_to))
    }
}

/// What the window of one project begins with.
fn head(project: Uuid, range: &Range) -> [Value; 4] {
    let (at, row) = match (&range.cursor, range.until) {
        (Some(cursor), _) => (cursor.at.0, cursor.row),
        (None, Some(until)) => (until.0, i64::MIN),
        (None, None) => (i64::MAX, i64::MAX),
    };
    let since = range.since.map_or(i64::MIN, |at| at.0);
    [
        Value::Text(project.to_string()),
        Value::Integer(at),
        Value::Integer(row),
        Value::Integer(since),
    ]
}

/// What the list of one project takes.
fn values(project: Uuid, range: &Range, conditions: &Where) -> Vec<Value> {
    let wanted = conditions.values.iter().cloned();
    let most = Value::Integer(range.limit as i64 + 1);
    let values = head(project, range).into_iter().chain(wanted);
    values.chain([most]).collect()
}

/// A row by id or unique prefix, wherever in these projects.
pub(super) fn find(
    c: &Connection,
    table: &str,
    projects: &[Uuid],
    field: &str,
    quoted: &str,
    what: &str,
) -> Result<String> {
    let id = prism_core::id::Quoted::parse(field, quoted)?;
    let mut statement = c
        .prepare_cached(&format!(
            "select id, project_id from {table} where id >= ? and id < ? limit 20"
        ))
        .map_err(failed)?;
    let found = statement
        .query_map([id.prefix(), id.upper().as_str()], |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))
        })
        .and_then(Iterator::collect::<sql::Result<Vec<_>>>)
        .map_err(failed)?;
    let mut found = found
        .into_iter()
        .filter(|(_, project)| projects.iter().any(|p| p.to_string() == *project));
    match (found.next(), found.next()) {
        (Some((id, _)), None) => Ok(id),
        (None, _) => Err(Problem::new(
            prism_core::Code::NotFound,
            format!("no {what} {quoted}"),
            "it may have gone, or stand in another project",
        )
        .into()),
        _ => Err(Problem::new(
            prism_core::Code::Ambiguous,
            format!("{quoted} begins the id of more than one {what}"),
            "quote more digits",
        )
        .into()),
    }
}
