//! A connection to PostgreSQL that takes and gives the values that SQLite takes and gives.

use super::dialect::for_postgres;
use super::secure::Secure;
use super::{Error, Result, ToSql, Value, ValueRef};
use ::postgres::config::{Host, SslMode};
use ::postgres::error::SqlState;
use ::postgres::row::RowIndex;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{FromSql, IsNull, Kind, ToSql as Bind, Type, to_sql_checked};
use ::postgres::{Client, Config, Row, SimpleQueryMessage, Statement};
use prism_core::database::Apart;
use rusqlite::types::ToSqlOutput;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error as Cause;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::Arc;
use uuid::Uuid;

/// Statements that a connection keeps ready.
const STATEMENTS_MAX: usize = 512;
/// The role that a transaction takes on, which no policy lets pass: a superuser would see everybody's rows.
pub const MEMBER: &str = "prism_member";

/// Where the database is, and how to get in.
#[derive(Clone)]
pub struct Server {
    config: Arc<Config>,
    secure: Secure,
}

impl Server {
    pub fn parse(url: &str) -> Result<Self> {
        let (url, secure) = Secure::taken_from(url)?;
        let mut config: Config = url.parse()?;
        if secure.is_demanded() {
            config.ssl_mode(SslMode::Require);
        }
        if config.get_application_name().is_none() {
            config.application_name("prism");
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(std::time::Duration::from_secs(5));
        }
        Ok(Self {
            config: Arc::new(config),
            secure,
        })
    }

    /// The place without who comes in and with which password.
    pub fn shown(&self) -> String {
        let host = match self.config.get_hosts().first() {
            Some(::postgres::config::Host::Tcp(name)) => name.clone(),
            Some(::postgres::config::Host::Unix(folder)) => folder.display().to_string(),
            None => "localhost".to_owned(),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let name = self.config.get_dbname().or(self.config.get_user());
        format!("postgres://{host}:{port}/{}", name.unwrap_or_default())
    }

    pub fn connect(&self) -> Result<Box<Link>> {
        let mut client = self.config.connect(self.secure.clone())?;
        // Joins are written in the order in which they are to be taken, and a plan of its own for
        // each question would cost more than it saves.
        let said = client.simple_query(&format!(
            "set join_collapse_limit = 1; set client_min_messages = warning; set jit = off;
             set synchronous_commit = on; set statement_timeout = 60000;
             set idle_in_transaction_session_timeout = 60000;
             select case when exists (select 1 from pg_roles where rolname = '{MEMBER}' and not rolsuper
                     and not rolbypassrls and pg_has_role(current_user, oid, 'member')) then 'role'
                 when rolsuper or rolbypassrls then 'nothing' else 'force' end
             from pg_roles where rolname = current_user"
        ))?;
        let apart = said.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0).and_then(Apart::from_name),
            _ => None,
        });
        Ok(Box::new(Link {
            client: RefCell::new(Some(client)),
            ready: RefCell::default(),
            in_transaction: Cell::new(false),
            tenant: Cell::new(None),
            kept_apart: apart.unwrap_or(Apart::Nothing),
            is_owner: Cell::new(false),
            apart: false,
        }))
    }

    /// A connection for whoever is inside an asynchronous runtime.
    pub fn connect_apart(&self) -> Result<Box<Link>> {
        let mut link = apart(|| self.connect())?;
        link.apart = true;
        Ok(link)
    }
}

fn apart<T: Send>(ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|threads| match threads.spawn(ask).join() {
        Ok(answer) => answer,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

/// Host, port and name, and who comes: never the password.
impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hosts = self.config.get_hosts().iter().map(|host| match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(folder) => folder.display().to_string(),
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        let user = self.config.get_user().unwrap_or_default();
        let ports = self.config.get_ports().iter().map(|p| format!(":{p}"));
        let ports = ports.collect::<Vec<_>>().join(",");
        let name = self.config.get_dbname().unwrap_or(user);
        write!(f, "{user}@{hosts}{ports}/{name}")
    }
}

type Ready = HashMap<String, Vec<(Vec<Type>, Statement)>>;

/// One connection and the statements it has ready.
pub struct Link {
    /// None once it ends.
    client: RefCell<Option<Client>>,
    ready: RefCell<Ready>,
    in_transaction: Cell<bool>,
    /// Whose rows the next transaction is about; without anybody it comes to no row.
    tenant: Cell<Option<Uuid>>,
    /// What keeps it from the rows of others.
    kept_apart: Apart,
    /// It keeps the role that it came with.
    is_owner: Cell<bool>,
    /// Asked from threads that must not wait: each question waits on one of its own.
    apart: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        // To say goodbye takes a moment, which not every thread has.
        if let Some(client) = self.client.take() {
            std::thread::spawn(move || drop(client));
        }
    }
}

impl Link {
    fn client<T: Send>(
        &self,
        ask: impl FnOnce(&mut Client) -> std::result::Result<T, ::postgres::Error> + Send,
    ) -> Result<T> {
        match self.client.borrow_mut().as_mut() {
            Some(client) if self.apart => Ok(apart(|| ask(client))?),
            Some(client) => Ok(ask(client)?),
            None => Err(Error::NoRows),
        }
    }

    /// A statement for values of these types. The same text may be asked with other types: with
    /// nothing where there was a value.
    fn statement(&self, sql: &str, types: &[Type]) -> Result<Statement> {
        let mut ready = self.ready.borrow_mut();
        let found = ready.get(sql).and_then(|kinds| {
            let same = kinds.iter().find(|(t, _)| t == types);
            same.map(|(_, statement)| statement.clone())
        });
        if let Some(statement) = found {
            return Ok(statement);
        }
        let prepared = self.client(|c| c.prepare_typed(&for_postgres(sql), types))?;
        if ready.len() >= STATEMENTS_MAX {
            ready.clear();
        }
        let kinds = ready.entry(sql.to_owned()).or_default();
        kinds.push((types.to_vec(), prepared.clone()));
        Ok(prepared)
    }

    pub fn query(&self, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<Row>> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
        let asked = self.client(|c| c.query(&statement, &values));
        asked.inspect_err(|error| self.forget_plans(error))
    }

    pub fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> Result<usize> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
        let done = self.client(|c| c.execute(&statement, &values).map(|n| n as usize));
        done.inspect_err(|error| self.forget_plans(error))
    }

    /// A server of a newer version has changed a table: what was prepared for it as it was counts no more.
    fn forget_plans(&self, error: &Error) {
        if let Error::Postgres(error) = error
            && error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
        {
            self.ready.borrow_mut().clear();
        }
    }

    /// Runs statements as they stand: they are PostgreSQL's own.
    pub fn batch(&self, sql: &str) -> Result<()> {
        self.client(|c| c.batch_execute(sql))
    }

    /// The same, and the first value of the last row.
    pub fn said(&self, sql: &str) -> Result<Option<String>> {
        let messages = self.client(|c| c.simple_query(sql))?;
        let last = messages.iter().rev().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        Ok(last.map(str::to_owned))
    }

    /// Writes many rows at once, as lines that COPY reads; answers how many it took.
    pub fn copy_in(&self, copy: &str, lines: &[u8]) -> Result<u64> {
        self.client(|c| {
            let mut writer = c.copy_in(copy)?;
            // Why it could not be sent is told at the end.
            drop(writer.write_all(lines));
            writer.finish()
        })
    }

    pub fn begin(&self, how: &str) -> Result<()> {
        if let Err(error) = self.batch(how) {
            // It may have come half of the way.
            drop(self.batch("rollback"));
            return Err(error);
        }
        self.in_transaction.set(true);
        Ok(())
    }

    /// Begins a transaction of the tenant whose this connection is now. Tenant and role end with it:
    /// whoever gets the connection next, by a pooler too, finds neither.
    pub fn begin_apart(&self, how: &str) -> Result<()> {
        let mut how = how.to_owned();
        if let Some(tenant) = self.tenant.get() {
            if self.kept_apart == Apart::Nothing && !self.is_owner.get() {
                return Err(Error::Exposed);
            }
            let _ = write!(how, "; set local prism.tenant = '{tenant}'");
        }
        if self.steps_down() {
            let _ = write!(how, "; set local role {MEMBER}");
        }
        self.begin(&how)
    }

    /// Whose the transactions are that begin from now on.
    pub fn becomes(&self, tenant: Option<Uuid>) {
        self.tenant.set(tenant);
    }

    /// Whether it keeps the role that it came with, which owns the tables.
    pub fn stays_owner(&self, stays: bool) {
        self.is_owner.set(stays);
    }

    /// Whether transactions take on the member's role.
    pub fn steps_down(&self) -> bool {
        self.kept_apart == Apart::Role && !self.is_owner.get()
    }

    pub fn commit(&self) -> Result<()> {
        self.in_transaction.set(false);
        self.batch("commit")
    }

    pub fn rollback(&self) -> Result<()> {
        self.in_transaction.set(false);
        self.batch("rollback")
    }

    pub fn is_idle(&self) -> bool {
        !self.in_transaction.get()
    }

    pub fn is_closed(&self) -> bool {
        self.client.borrow().as_ref().is_none_or(Client::is_closed)
    }
}

/// A value on its way into a statement.
#[derive(Debug)]
struct Bound(Value);

fn bound(values: &[&dyn ToSql]) -> Result<Vec<Bound>> {
    let one = |value: &&dyn ToSql| {
        Ok(Bound(match value.to_sql()? {
            ToSqlOutput::Borrowed(value) => value.try_into().map_err(|e| Error::column("?", e))?,
            ToSqlOutput::Owned(value) => value,
            _ => return Err(Error::column("?", "a value of SQLite's own")),
        }))
    };
    values.iter().map(one).collect()
}

fn types(values: &[Bound]) -> Vec<Type> {
    let one = |value: &Bound| match value.0 {
        // What the place is for says which kind of nothing it is.
        Value::Null => Type::UNKNOWN,
        Value::Integer(_) => Type::INT8,
        Value::Real(_) => Type::FLOAT8,
        Value::Text(_) => Type::TEXT,
        Value::Blob(_) => Type::BYTEA,
    };
    values.iter().map(one).collect()
}

type Bytes = std::result::Result<IsNull, Box<dyn Cause + Sync + Send>>;

impl Bind for Bound {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Bytes {
        match &self.0 {
            Value::Null => Ok(IsNull::Yes),
            Value::Integer(n) => Bind::to_sql(n, ty, out),
            Value::Real(x) => Bind::to_sql(x, ty, out),
            Value::Text(text) => Bind::to_sql(text, ty, out),
            Value::Blob(bytes) => Bind::to_sql(bytes, ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A value on its way out of a row.
struct Raw<'r>(ValueRef<'r>);

impl<'r> FromSql<'r> for Raw<'r> {
    fn from_sql(
        ty: &Type,
        raw: &'r [u8],
    ) -> std::result::Result<Self, Box<dyn Cause + Sync + Send>> {
        Ok(Self(match *ty {
            Type::INT8 => ValueRef::Integer(FromSql::from_sql(ty, raw)?),
            Type::INT4 => ValueRef::Integer(i64::from(<i32 as FromSql>::from_sql(ty, raw)?)),
            Type::INT2 => ValueRef::Integer(i64::from(<i16 as FromSql>::from_sql(ty, raw)?)),
            Type::BOOL => ValueRef::Integer(i64::from(<bool as FromSql>::from_sql(ty, raw)?)),
            Type::FLOAT8 => ValueRef::Real(FromSql::from_sql(ty, raw)?),
            Type::FLOAT4 => ValueRef::Real(f64::from(<f32 as FromSql>::from_sql(ty, raw)?)),
            Type::NUMERIC => numeric(raw).ok_or("a number that does not fit")?,
            Type::BYTEA => ValueRef::Blob(raw),
            _ => ValueRef::Text(raw),
        }))
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn Cause + Sync + Send>> {
        Ok(Self(ValueRef::Null))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(ty.kind(), Kind::Simple | Kind::Enum(_))
    }
}

/// Sums and averages of whole numbers come as decimal digits, four at a time.
fn numeric(raw: &[u8]) -> Option<ValueRef<'static>> {
    let mut halves = raw
        .chunks_exact(2)
        .map(|b| i16::from_be_bytes([b[0], b[1]]));
    let (n, weight, sign, scale) = (
        halves.next()?,
        halves.next()?,
        halves.next()?,
        halves.next()?,
    );
    let digits: Vec<i16> = halves.take(n as usize).collect();
    let negative = sign as u16 == 0x4000;
    if scale == 0 {
        let mut whole: i64 = 0;
        for at in 0..=i32::from(weight) {
            let digit = digits.get(at as usize).copied().unwrap_or(0);
            whole = whole.checked_mul(10_000)?.checked_add(i64::from(digit))?;
        }
        return Some(ValueRef::Integer(if negative { -whole } else { whole }));
    }
    let part = |(at, digit): (usize, &i16)| {
        f64::from(*digit) * 10_000_f64.powi(i32::from(weight) - at as i32)
    };
    let sum: f64 = digits.iter().enumerate().map(part).sum();
    Some(ValueRef::Real(if negative { -sum } else { sum }))
}

/// A value of a row, by number or name.
pub fn value<I: RowIndex + std::fmt::Display>(row: &Row, column: I) -> Result<ValueRef<'_>> {
    Ok(row.try_get::<_, Raw<'_>>(column).map(|raw| raw.0)?)
}

/// What the server said, without the values it was given.
pub fn said(error: &::postgres::Error) -> String {
    match error.as_db_error() {
        Some(db) => format!("{} ({})", db.message(), db.code().code()),
        // Its own words say only that something went wrong; what it was stands behind it.
        None => match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        },
    }
}
