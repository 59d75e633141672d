//! SQL as both engines take it: one connection, one kind of row, one kind of value.
//!
//! Statements are written once, in what SQLite and PostgreSQL have in common;
//! [`dialect`] turns the few things that are spelt otherwise. What a value is
//! says rusqlite's own pair of traits, whichever engine it comes from.

mod dialect;
mod postgres;
mod secure;
mod talk;

pub use self::postgres::{Link, MAY_BECOME, MEMBER, Server, Starts, round_trips};
pub use self::secure::{Secure, Secured};
pub use rusqlite::types::{FromSql, FromSqlError, ToSql, Value, ValueRef};
use uuid::Uuid;

/// Why a statement did not run or a value could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error("{}", postgres::said(.0))]
    Postgres(#[from] ::postgres::Error),
    /// The URL asks for something that cannot be had.
    #[error("{0}")]
    Url(String),
    /// Nothing would keep this connection from the rows of other tenants.
    #[error(
        "the database's user passes row-level security, and may not take on the role prism_member, \
         which does not: as a superuser, `grant prism_member to USER`"
    )]
    Exposed,
    /// The database is there, or was, and says nothing.
    #[error("the database said nothing for {} s", .0.as_secs())]
    Silent(std::time::Duration),
    /// A statement failed in the middle of a transaction, and somebody went on.
    #[error("nothing was stored: a statement before the commit failed")]
    Aborted,
    #[error("no row was found")]
    NoRows,
    #[error("column {column}: {why}")]
    Column { column: String, why: String },
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// What PostgreSQL said, without the values it was given.
    pub fn said(error: &::postgres::Error) -> String {
        postgres::said(error)
    }

    /// A value that means nothing here.
    pub fn column(column: impl Into<String>, why: impl std::fmt::Display) -> Self {
        Self::Column {
            column: column.into(),
            why: why.to_string(),
        }
    }
}

impl From<FromSqlError> for Error {
    fn from(error: FromSqlError) -> Self {
        Self::column("", error)
    }
}

/// Makes "no row" a value.
pub trait OptionalExtension<T> {
    fn optional(self) -> Result<Option<T>>;
}

impl<T> OptionalExtension<T> for Result<T> {
    fn optional(self) -> Result<Option<T>> {
        match self {
            Ok(value) => Ok(Some(value)),
            Err(Error::NoRows) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Values for a statement's places, in their order.
pub trait Params {
    fn values(&self) -> Vec<&dyn ToSql>;
}

impl Params for [&dyn ToSql; 0] {
    fn values(&self) -> Vec<&dyn ToSql> {
        Vec::new()
    }
}

/// Not for every length at once: `[]` alone would not say what it is a list of.
macro_rules! list_of_values {
    ($($n:literal)*) => {
        $(impl<T: ToSql> Params for [T; $n] {
            fn values(&self) -> Vec<&dyn ToSql> {
                self.iter().map(|v| v as &dyn ToSql).collect()
            }
        })*
    };
}
list_of_values!(1 2 3 4 5 6 7 8);

impl Params for &[&dyn ToSql] {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.to_vec()
    }
}

impl<const N: usize> Params for &[&dyn ToSql; N] {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.to_vec()
    }
}

/// As many values as there are.
pub struct Many(Vec<Value>);

pub fn params_from_iter(values: impl IntoIterator<Item = impl Into<Value>>) -> Many {
    Many(values.into_iter().map(Into::into).collect())
}

impl Params for Many {
    fn values(&self) -> Vec<&dyn ToSql> {
        self.0.iter().map(|v| v as &dyn ToSql).collect()
    }
}

pub use rusqlite::params;

/// Where a value stands in a row.
#[derive(Clone, Copy)]
pub enum Column<'n> {
    Number(usize),
    Name(&'n str),
}

impl From<usize> for Column<'_> {
    fn from(number: usize) -> Self {
        Self::Number(number)
    }
}

impl<'n> From<&'n str> for Column<'n> {
    fn from(name: &'n str) -> Self {
        Self::Name(name)
    }
}

impl std::fmt::Display for Column<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(n) => write!(f, "{n}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// A row as its statement found it.
pub enum Row<'r> {
    Sqlite(&'r rusqlite::Row<'r>),
    Postgres(&'r ::postgres::Row),
}

impl<'r> Row<'r> {
    pub fn get<'n, C: Into<Column<'n>>, T: FromSql>(&self, column: C) -> Result<T> {
        let column = column.into();
        let value = self.get_ref(column)?;
        T::column_result(value).map_err(|e| Error::column(column.to_string(), e))
    }

    pub fn get_ref<'n>(&self, column: impl Into<Column<'n>>) -> Result<ValueRef<'r>> {
        Ok(match (self, column.into()) {
            (Self::Sqlite(row), Column::Number(n)) => row.get_ref(n)?,
            (Self::Sqlite(row), Column::Name(name)) => row.get_ref(name)?,
            (Self::Postgres(row), Column::Number(n)) => postgres::value(row, n)?,
            (Self::Postgres(row), Column::Name(name)) => postgres::value(row, name)?,
        })
    }
}

/// The rows that a statement finds, one after the other.
pub enum Rows<'s> {
    Sqlite(rusqlite::Rows<'s>),
    Postgres {
        rows: std::vec::IntoIter<::postgres::Row>,
        at: Option<::postgres::Row>,
    },
}

impl Rows<'_> {
    #[expect(
        clippy::should_implement_trait,
        reason = "a row lives until the next: an iterator's items do not"
    )]
    pub fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(match self {
            Self::Sqlite(rows) => rows.next()?.map(Row::Sqlite),
            Self::Postgres { rows, at } => {
                *at = rows.next();
                at.as_ref().map(Row::Postgres)
            }
        })
    }
}

/// What a statement finds, made into something each.
pub struct Mapped<'s, F> {
    rows: Rows<'s>,
    map: F,
}

impl<T, F: FnMut(&Row<'_>) -> Result<T>> Iterator for Mapped<'_, F> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        match self.rows.next() {
            Ok(row) => row.map(|row| (self.map)(&row)),
            Err(error) => Some(Err(error)),
        }
    }
}

/// A statement, ready to run.
pub enum Statement<'c> {
    Sqlite(rusqlite::Statement<'c>),
    Cached(rusqlite::CachedStatement<'c>),
    Postgres { link: &'c Link, sql: String },
}

impl Statement<'_> {
    pub fn query(&mut self, params: impl Params) -> Result<Rows<'_>> {
        match self {
            Self::Sqlite(s) => Ok(Rows::Sqlite(s.query(&*params.values())?)),
            Self::Cached(s) => Ok(Rows::Sqlite(s.query(&*params.values())?)),
            Self::Postgres { link, sql } => Ok(Rows::Postgres {
                rows: link.query(sql, &params.values())?.into_iter(),
                at: None,
            }),
        }
    }

    pub fn query_map<T, F: FnMut(&Row<'_>) -> Result<T>>(
        &mut self,
        params: impl Params,
        map: F,
    ) -> Result<Mapped<'_, F>> {
        let rows = self.query(params)?;
        Ok(Mapped { rows, map })
    }

    pub fn query_row<T>(
        &mut self,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut rows = self.query(params)?;
        let row = rows.next()?.ok_or(Error::NoRows)?;
        map(&row)
    }

    /// All that it finds, where that may be much: a row is gone once something is made of it.
    pub fn collect<T: Send>(
        &mut self,
        params: impl Params,
        map: impl FnMut(&Row<'_>) -> Result<T> + Send,
    ) -> Result<Vec<T>> {
        match self {
            Self::Postgres { link, sql } => link.collect(sql, &params.values(), map),
            _ => self.query_map(params, map)?.collect(),
        }
    }

    pub fn exists(&mut self, params: impl Params) -> Result<bool> {
        Ok(self.query(params)?.next()?.is_some())
    }

    pub fn execute(&mut self, params: impl Params) -> Result<usize> {
        Ok(match self {
            Self::Sqlite(s) => s.execute(&*params.values())?,
            Self::Cached(s) => s.execute(&*params.values())?,
            Self::Postgres { link, sql } => link.execute(sql, &params.values())?,
        })
    }
}

/// A connection to either engine, in a transaction wherever an operation gets it.
pub enum Connection {
    Sqlite(rusqlite::Connection),
    Postgres(Box<Link>),
}

impl Connection {
    pub fn prepare(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Self::Sqlite(c) => Statement::Sqlite(c.prepare(sql)?),
            Self::Postgres(link) => Statement::Postgres {
                link,
                sql: sql.to_owned(),
            },
        })
    }

    pub fn prepare_cached(&self, sql: &str) -> Result<Statement<'_>> {
        Ok(match self {
            Self::Sqlite(c) => Statement::Cached(c.prepare_cached(sql)?),
            Self::Postgres(_) => self.prepare(sql)?,
        })
    }

    pub fn execute(&self, sql: &str, params: impl Params) -> Result<usize> {
        self.prepare(sql)?.execute(params)
    }

    pub fn query_row<T>(
        &self,
        sql: &str,
        params: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T>,
    ) -> Result<T> {
        self.prepare(sql)?.query_row(params, map)
    }

    pub fn execute_batch(&self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(c) => Ok(c.execute_batch(sql)?),
            Self::Postgres(link) => link.batch(sql),
        }
    }

    /// One of two spellings, where the engines have nothing in common.
    pub fn either<T>(&self, sqlite: T, postgres: T) -> T {
        match self {
            Self::Sqlite(_) => sqlite,
            Self::Postgres(_) => postgres,
        }
    }

    /// Runs a statement without values or rows.
    pub fn run(&self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(c) => Ok(c.prepare_cached(sql)?.execute([]).map(drop)?),
            Self::Postgres(link) => link.batch(sql),
        }
    }

    /// Runs PostgreSQL's own statements, and answers the last value of the last row.
    pub fn said(&self, sql: &str) -> Result<Option<String>> {
        match self {
            Self::Sqlite(_) => Ok(None),
            Self::Postgres(link) => link.said(sql),
        }
    }

    /// Everything read from here on is of one moment.
    pub fn begin_reading(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run("begin"),
            Self::Postgres(link) => {
                link.begin_apart("begin isolation level repeatable read read only")
            }
        }
    }

    pub fn begin_writing(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run("begin immediate"),
            Self::Postgres(link) => link.begin_apart("begin"),
        }
    }

    /// Runs one statement for each of some values, and answers in their order. Where each is a way to the database
    /// and back, they go together.
    pub fn query_each<T>(
        &self,
        sql: &str,
        each: &[Vec<Value>],
        mut map: impl FnMut(&Row<'_>) -> Result<T>,
    ) -> Result<Vec<Vec<T>>> {
        match self {
            Self::Sqlite(_) => {
                let mut statement = self.prepare_cached(sql)?;
                let mut one = |values: &Vec<Value>| {
                    let found = statement.query_map(Many(values.clone()), &mut map)?;
                    found.collect::<Result<Vec<T>>>()
                };
                each.iter().map(&mut one).collect()
            }
            Self::Postgres(link) => {
                let found = link.query_each(sql, each)?;
                let mut one = |rows: &Vec<::postgres::Row>| {
                    rows.iter().map(|row| map(&Row::Postgres(row))).collect()
                };
                found.iter().map(&mut one).collect()
            }
        }
    }

    /// Says that a question will be asked in this transaction, word for word: where each is a way to the database and
    /// back, it goes with the next one. For what nothing writes before it is asked.
    pub fn ahead(&self, sql: &str, params: impl Params) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(link) => link.ahead(sql, &params.values()),
        }
    }

    /// Runs a statement of which nothing is to be known but that it ran. Where that takes a way to the database
    /// and back, it goes with the next one.
    pub fn put(&self, sql: &str, params: impl Params) -> Result<()> {
        match self {
            Self::Sqlite(c) => Ok(c
                .prepare_cached(sql)?
                .execute(&*params.values())
                .map(drop)?),
            Self::Postgres(link) => link.put(sql, &params.values()),
        }
    }

    /// Takes back what was done since a savepoint.
    pub fn back_to(&self, savepoint: &str) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run(&format!("rollback to {savepoint}")),
            Self::Postgres(link) => link.back_to(savepoint),
        }
    }

    /// Waits for what goes along with the next statement: how a transaction begins, and what was put.
    pub fn flush(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => Ok(()),
            Self::Postgres(link) => link.flush(),
        }
    }

    pub fn commit(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run("commit"),
            Self::Postgres(link) => link.commit(),
        }
    }

    /// Ends a transaction that has only read.
    pub fn leave(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run("commit"),
            Self::Postgres(link) => {
                link.leave();
                Ok(())
            }
        }
    }

    /// Nobody waits for the open transaction to be on disk, and where it is lost, nothing that came after it stays
    /// either. The embedded engine flushes several at once.
    pub fn hurry(&self) {
        if let Self::Postgres(link) = self {
            link.hurry();
        }
    }

    /// Has the open transaction note which rows it writes, where the engine does not say so by itself.
    pub fn note_touched(&self) {
        if let Self::Postgres(link) = self {
            link.note_touched();
        }
    }

    /// Commits, and says what was noted.
    pub fn commit_noted(&self) -> Result<String> {
        match self {
            Self::Sqlite(_) => self.commit().map(|()| String::new()),
            Self::Postgres(link) => link.commit_noted(),
        }
    }

    pub fn rollback(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.run("rollback"),
            Self::Postgres(link) => link.rollback(),
        }
    }

    /// Whether no transaction is open.
    pub fn is_autocommit(&self) -> bool {
        match self {
            Self::Sqlite(c) => c.is_autocommit(),
            Self::Postgres(link) => link.is_idle(),
        }
    }

    /// Under which number the engine remembers the transaction that was begun last, where it was asked.
    pub fn number(&self) -> Option<String> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(link) => link.number(),
        }
    }

    /// Says whose the transactions are that begin from now on; a file has one tenant.
    pub fn becomes(&self, tenant: Option<Uuid>) {
        if let Self::Postgres(link) = self {
            link.becomes(tenant);
        }
    }

    /// Whether the other side has gone.
    pub fn is_closed(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(link) => link.is_closed(),
        }
    }
}

#[cfg(test)]
impl Statement<'_> {
    /// How many values it takes, where that is known before it runs.
    pub fn parameter_count(&self) -> usize {
        match self {
            Self::Sqlite(s) => s.parameter_count(),
            Self::Cached(s) => s.parameter_count(),
            Self::Postgres { .. } => 0,
        }
    }
}

impl Connection {
    /// The embedded engine's file, for whoever looks at it from outside.
    pub fn open(file: impl AsRef<std::path::Path>) -> Result<Self> {
        Ok(Self::Sqlite(rusqlite::Connection::open(file)?))
    }

    #[cfg(test)]
    pub fn open_in_memory() -> Result<Self> {
        Ok(Self::Sqlite(rusqlite::Connection::open_in_memory()?))
    }
}
