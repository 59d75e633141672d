//! The tables of a store as both engines have them: read from the databases, so that none is forgotten.

use super::super::{Result, StoreError, failed};
use crate::store::sql::{self, Connection, Error, Link, Row, Value, params_from_iter};
use prism_core::text::without_nul;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// What one engine has for itself: its schema's number, its indexes of words and of meaning, and the mark
/// of a move.
const OWN: [&str; 5] = [
    "prism_schema",
    "memory_fts",
    "memory_near",
    "memory_near_state",
    super::MARK,
];
/// The column that says whose a row is.
const TENANT: &str = "tenant_id";
/// Rows that are read from PostgreSQL at a time.
const FETCHED_ROWS: u32 = 500;

pub struct Table {
    pub name: String,
    columns: Vec<Column>,
    /// The columns that tell rows apart, in their order.
    key: Vec<String>,
    /// Whether rows that are written set something else in motion.
    has_triggers: bool,
}

struct Column {
    name: String,
    is_text: bool,
}

/// The tables of an embedded store.
const EMBEDDED: &str = "select name from pragma_table_list
    where schema = 'main' and type = 'table' and substr(name, 1, 7) <> 'sqlite_'";
/// The tables where Prism's are on PostgreSQL, but for those that came with an extension.
const SHARED: &str = "select cast(t.tablename as text) from pg_tables t
    where t.schemaname = current_schema() and not exists (select 1 from pg_depend d
        where d.classid = cast('pg_class' as regclass) and d.deptype = 'e'
            and d.objid = cast(quote_ident(t.schemaname) || '.' || quote_ident(t.tablename) as regclass))";

/// Those that both engines have, if all is well.
fn common(names: Vec<String>) -> BTreeSet<String> {
    let common = names.into_iter().filter(|n| !OWN.contains(&n.as_str()));
    common.collect()
}

/// A table that is not Prism's, where there is one; `ours` is a store of this version.
pub fn stranger(shared: &Connection, ours: &Connection) -> Result<Option<String>> {
    let (there, ours) = (names(shared, SHARED, &[])?, names(ours, EMBEDDED, &[])?);
    let mut strange = common(there).into_iter().filter(|n| !ours.contains(n));
    Ok(strange.next())
}

/// All tables, each after those that it refers to.
pub fn of(embedded: &Connection, shared: &Connection) -> Result<Vec<Table>> {
    let embedded_names = common(names(embedded, EMBEDDED, &[])?);
    let shared_names = common(names(shared, SHARED, &[])?);
    same("table", &embedded_names, &shared_names)?;
    let mut waiting = BTreeMap::new();
    for name in embedded_names {
        let refers_to = names(
            embedded,
            "select distinct \"table\" from pragma_foreign_key_list(?)",
            &[&name],
        )?;
        waiting.insert(name, refers_to);
    }
    let mut ordered: Vec<String> = Vec::new();
    while !waiting.is_empty() {
        let free = waiting.iter().find(|(name, refers_to)| {
            let there = |other: &&String| ordered.contains(other) || other == name;
            refers_to.iter().all(|other| there(&other))
        });
        let Some(name) = free.map(|(name, _)| name.clone()) else {
            return Err(StoreError::Failed("tables refer to each other".into()));
        };
        waiting.remove(&name);
        ordered.push(name);
    }
    let table = |name: String| table(embedded, shared, name);
    ordered.into_iter().map(table).collect()
}

fn table(embedded: &Connection, shared: &Connection, name: String) -> Result<Table> {
    let mut statement = shared
        .prepare(
            "select cast(column_name as text), cast(data_type as text) from information_schema.columns
             where table_schema = current_schema() and table_name = ? order by ordinal_position",
        )
        .map_err(failed)?;
    let mut columns: Vec<Column> = statement
        .query_map([&name], |row| {
            Ok(Column {
                name: row.get(0)?,
                is_text: row.get::<_, String>(1)? == "text",
            })
        })
        .and_then(Iterator::collect)
        .map_err(failed)?;
    // SQLite has a number for every row without saying so.
    let without_number = |names: &mut dyn Iterator<Item = String>| -> BTreeSet<String> {
        names.filter(|name| name != "rowid").collect()
    };
    let listed = names(embedded, "select name from pragma_table_info(?)", &[&name])?;
    // A file has one tenant, and says whose a row is only here and there; elsewhere the move says it.
    columns.retain(|c| c.name != TENANT || listed.iter().any(|name| name == TENANT));
    same(
        &format!("column of {name}"),
        &without_number(&mut listed.iter().cloned()),
        &without_number(&mut columns.iter().map(|c| c.name.clone())),
    )?;
    let mut key = names(
        embedded,
        "select name from pragma_table_info(?) where pk > 0 order by pk",
        &[&name],
    )?;
    if key.is_empty() {
        key = columns.iter().map(|c| c.name.clone()).collect();
    }
    let triggers = names(
        shared,
        "select cast(tgname as text) from pg_trigger
         where tgrelid = cast(cast(? as text) as regclass) and not tgisinternal",
        &[&name],
    )?;
    Ok(Table {
        columns,
        key,
        has_triggers: !triggers.is_empty(),
        name,
    })
}

/// What only one engine has would be lost on the way.
fn same(what: &str, embedded: &BTreeSet<String>, shared: &BTreeSet<String>) -> Result<()> {
    match embedded.symmetric_difference(shared).next() {
        None => Ok(()),
        Some(name) => Err(StoreError::Failed(format!(
            "the {what} {name} is in one of the two databases only: it was changed by hand, or this prism has a fault"
        ))),
    }
}

pub fn names(c: &Connection, sql: &str, values: &[&String]) -> Result<Vec<String>> {
    let mut statement = c.prepare(sql).map_err(failed)?;
    let values = params_from_iter(values.iter().map(|v| (*v).clone()));
    statement
        .query_map(values, |row| row.get(0))
        .and_then(Iterator::collect)
        .map_err(failed)
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

/// The list of tenants is everybody's: of it one row is moved.
fn only(c: &Connection, table: &str) -> &'static str {
    match table {
        "tenants" => c.either("", " where id = this_tenant()"),
        _ => "",
    }
}

pub fn count(c: &Connection, table: &str) -> Result<u64> {
    let sql = format!("select count(*) from {}{}", quoted(table), only(c, table));
    let counted = c.query_row(&sql, [], |row| row.get::<_, i64>(0));
    Ok(counted.map_err(failed)? as u64)
}

/// Which of a table's rows are read, in the order of their keys.
#[derive(Clone, Copy)]
pub enum Which {
    All,
    First(u64),
    After(u64),
}

impl Table {
    fn columns(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|c| quoted(&c.name)).collect();
        names.join(", ")
    }

    /// Both engines sort numbers alike, and text by its bytes.
    fn reading(&self, c: &Connection, which: Which) -> String {
        let by = |name: &String| {
            let is_text = self.columns.iter().any(|c| c.name == *name && c.is_text);
            let collate = if is_text {
                c.either("", " collate \"C\"")
            } else {
                ""
            };
            format!("{}{collate}", quoted(name))
        };
        let by: Vec<String> = self.key.iter().map(by).collect();
        let all = c.either("-1", "all").to_owned();
        let (most, skipped) = match which {
            Which::All => (all, 0),
            Which::First(rows) => (rows.to_string(), 0),
            Which::After(rows) => (all, rows),
        };
        format!(
            "select {} from {}{} order by {} limit {most} offset {skipped}",
            self.columns(),
            quoted(&self.name),
            only(c, &self.name),
            by.join(", ")
        )
    }

    /// Reads rows one after the other, however many there are.
    pub fn read(
        &self,
        c: &Connection,
        which: Which,
        mut each: impl FnMut(Vec<Value>) -> Result<()>,
    ) -> Result<()> {
        let sql = self.reading(c, which);
        let Connection::Postgres(link) = c else {
            let mut statement = c.prepare(&sql).map_err(failed)?;
            let mut rows = statement.query([]).map_err(failed)?;
            while let Some(row) = rows.next().map_err(failed)? {
                each(self.values(&row).map_err(failed)?)?;
            }
            return Ok(());
        };
        let cursor = quoted(&format!("moving_{}", self.name));
        link.batch(&format!("declare {cursor} no scroll cursor for {sql}"))
            .map_err(failed)?;
        let fetch = format!("fetch {FETCHED_ROWS} from {cursor}");
        loop {
            let rows = link.query(&fetch, &[]).map_err(failed)?;
            if rows.is_empty() {
                break;
            }
            for row in &rows {
                each(self.values(&Row::Postgres(row)).map_err(failed)?)?;
            }
        }
        link.batch(&format!("close {cursor}")).map_err(failed)
    }

    fn values(&self, row: &Row<'_>) -> sql::Result<Vec<Value>> {
        let value = |at: usize| {
            let place = || format!("{}.{}", self.name, self.columns[at].name);
            Value::try_from(row.get_ref(at)?).map_err(|e| Error::column(place(), e))
        };
        (0..self.columns.len()).map(value).collect()
    }

    /// Writes rows as they are: what they would set in motion has its own rows, which come as well.
    pub fn write(&self, c: &Connection, rows: &[Vec<Value>]) -> Result<()> {
        match c {
            Connection::Sqlite(_) => self.insert(c, rows),
            Connection::Postgres(link) => self.copy_in(link, rows),
        }
    }

    /// The connection's triggers are off.
    fn insert(&self, c: &Connection, rows: &[Vec<Value>]) -> Result<()> {
        let places = vec!["?"; self.columns.len()].join(", ");
        let sql = format!(
            "insert into {} ({}) values ({places})",
            quoted(&self.name),
            self.columns()
        );
        let mut statement = c.prepare_cached(&sql).map_err(failed)?;
        for row in rows {
            let values = params_from_iter(row.iter().cloned());
            statement.execute(values).map_err(failed)?;
        }
        Ok(())
    }

    fn copy_in(&self, link: &Link, rows: &[Vec<Value>]) -> Result<()> {
        let name = quoted(&self.name);
        let mut lines = String::new();
        for row in rows {
            line(&mut lines, row);
        }
        let turn = |how: &str| match self.has_triggers {
            // Ends with the transaction if that does not come to its end.
            true => link.batch(&format!("alter table {name} {how} trigger user")),
            false => Ok(()),
        };
        let copy = format!("copy {name} ({}) from stdin", self.columns());
        turn("disable").map_err(failed)?;
        let taken = link.copy_in(&copy, lines.as_bytes()).map_err(failed)?;
        if taken != rows.len() as u64 {
            let name = &self.name;
            return Err(StoreError::Again(format!("rows of {name} were cut off")));
        }
        turn("enable").map_err(failed)
    }

    /// Counts and hashes rows: equal on both sides when every value of every row is.
    pub fn tally(&self, c: &Connection, which: Which, mut tell: impl FnMut()) -> Result<Tally> {
        let (mut rows, mut hash) = (0, Sha256::new());
        self.read(c, which, |mut row| {
            rows += 1;
            make_keepable(&mut row);
            for value in &row {
                hash_value(&mut hash, value);
            }
            tell();
            Ok(())
        })?;
        let sha256 = hash.finalize().iter().map(|b| format!("{b:02x}")).collect();
        Ok(Tally { rows, sha256 })
    }
}

/// Has a row hold only what both engines can keep: an older Prism took U+0000 into its file, and PostgreSQL would not.
/// True when another sign stands there now.
pub fn make_keepable(row: &mut [Value]) -> bool {
    let mut is_changed = false;
    for value in row {
        if let Value::Text(text) = value
            && let Some(kept) = without_nul(text)
        {
            *text = kept;
            is_changed = true;
        }
    }
    is_changed
}

/// A row as COPY reads it.
fn line(out: &mut String, row: &[Value]) {
    for (at, value) in row.iter().enumerate() {
        if at > 0 {
            out.push('\t');
        }
        match value {
            Value::Null => out.push_str("\\N"),
            Value::Integer(n) => out.push_str(&n.to_string()),
            Value::Real(x) => out.push_str(&x.to_string()),
            Value::Text(text) => {
                for c in text.chars() {
                    match c {
                        '\\' => out.push_str("\\\\"),
                        '\n' => out.push_str("\\n"),
                        '\r' => out.push_str("\\r"),
                        '\t' => out.push_str("\\t"),
                        c => out.push(c),
                    }
                }
            }
            Value::Blob(bytes) => {
                out.push_str("\\\\x");
                out.extend(bytes.iter().map(|b| format!("{b:02x}")));
            }
        }
    }
    out.push('\n');
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    pub rows: u64,
    pub sha256: String,
}

/// With its kind and its length, so that no two rows look alike by where one value ends.
fn hash_value(hash: &mut Sha256, value: &Value) {
    let mut add = |kind: u8, bytes: &[u8]| {
        hash.update([kind]);
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match value {
        Value::Null => add(0, &[]),
        Value::Integer(n) => add(1, &n.to_be_bytes()),
        Value::Real(x) => add(2, &x.to_bits().to_be_bytes()),
        Value::Text(text) => add(3, text.as_bytes()),
        Value::Blob(bytes) => add(4, bytes),
    }
}

/// How much of memory a row takes, about.
pub fn size(row: &[Value]) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        _ => 8,
    };
    row.iter().map(value).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(values: &[Value]) -> Vec<u8> {
        let mut hash = Sha256::new();
        values.iter().for_each(|v| hash_value(&mut hash, v));
        hash.finalize().to_vec()
    }

    #[test]
    fn rows_that_differ_by_kind_or_border_alone_have_other_hashes() {
        let text = |s: &str| Value::Text(s.into());
        let rows = [
            vec![text("ab"), text("c")],
            vec![text("a"), text("bc")],
            vec![Value::Null, text("")],
            vec![text(""), Value::Null],
            vec![Value::Integer(1), Value::Null],
            vec![text("1"), Value::Null],
            vec![Value::Blob(b"ab".to_vec()), text("c")],
        ];
        let hashes: BTreeSet<Vec<u8>> = rows.iter().map(|row| hashed(row)).collect();
        assert_eq!(hashes.len(), rows.len());
    }

    #[test]
    fn a_line_for_copy_keeps_what_means_something_to_it() {
        let row = |text: &str| {
            vec![
                Value::Text(text.into()),
                Value::Null,
                Value::Integer(-7),
                Value::Blob(vec![0, 255]),
            ]
        };
        let mut line = String::new();
        super::line(&mut line, &row("\\N\t\\.\r\n'é"));
        assert_eq!(line, "\\\\N\\t\\\\.\\r\\n'é\t\\N\t-7\t\\\\x00ff\n");
        let mut older = row("a\0b");
        assert!(make_keepable(&mut older) && !make_keepable(&mut older));
        assert_eq!(older, row("a\u{fffd}b"));
    }
}
