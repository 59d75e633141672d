//! A connection to PostgreSQL that takes and gives the values that SQLite takes and gives.

use super::dialect::for_postgres;
use super::secure::Secure;
use super::talk::Talk;
use super::{Error, Result, ToSql, Value, ValueRef};
use ::postgres::config::{Host, SslMode, TargetSessionAttrs};
use ::postgres::error::SqlState;
use ::postgres::row::RowIndex;
use ::postgres::types::private::BytesMut;
use ::postgres::types::{FromSql, IsNull, Kind, ToSql as Bind, Type, to_sql_checked};
use futures_util::{SinkExt, TryStreamExt, future};
use prism_core::database::Apart;
use rusqlite::types::ToSqlOutput;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::error::Error as Cause;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, Config, Row, SimpleQueryMessage, Statement};
use uuid::Uuid;

/// Statements that a connection keeps ready.
const STATEMENTS_MAX: usize = 512;
/// The role that a transaction takes on, which no policy lets pass: a superuser would see everybody's rows.
pub const MEMBER: &str = "prism_member";

/// The right to take on a role, as the database calls it: from version 16 on a member may lack it.
pub const MAY_BECOME: &str =
    "case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end";

/// How long a statement may take, and a little more for the way: the database ends one before that, unless it is gone.
const ANSWER: Duration = Duration::from_secs(63);
/// A server that stands still in the middle of a transaction loses it. What it has waiting behind that gives up sooner; one of
/// these may still get its turn when another gives up, so that both times together are less than what callers wait.
const LIMITED: &str = "set statement_timeout = 60000; set lock_timeout = 2000; set idle_in_transaction_session_timeout = 3000";
const UNLIMITED: &str =
    "set statement_timeout = 0; set lock_timeout = 0; set idle_in_transaction_session_timeout = 0";
/// How long the other end may leave what was sent without a sign.
const SILENT: Duration = Duration::from_secs(9);
/// Statements that wait for the next one, at the most.
const LATER_MAX: usize = 64;
/// Questions that are asked in one breath, at the most.
const TOGETHER_MAX: usize = 64;
/// What triggers have noted in the open transaction.
const NOTED: &str = "select coalesce(current_setting('prism.touched', true), '')";

/// How often anybody here has waited for PostgreSQL.
static ROUND_TRIPS: AtomicU64 = AtomicU64::new(0);

pub fn round_trips() -> &'static AtomicU64 {
    &ROUND_TRIPS
}

/// Where the database is, and how to get in.
#[derive(Clone)]
pub struct Server {
    config: Arc<Config>,
    secure: Secure,
    starts: Arc<Starts>,
}

/// How often the database was started anew, as far as connections have seen: before anything is read there, and so
/// before anybody can be told of it.
#[derive(Default)]
pub struct Starts {
    last_at: AtomicI64,
    times: AtomicU64,
}

impl Starts {
    pub fn saw(&self, at: i64) {
        let before = self.last_at.swap(at, Ordering::AcqRel);
        if before != 0 && before != at {
            self.times.fetch_add(1, Ordering::AcqRel);
        }
    }

    pub fn times(&self) -> u64 {
        self.times.load(Ordering::Acquire)
    }
}

impl Server {
    pub fn parse(url: &str) -> Result<Self> {
        let place = url.split('?').next().unwrap_or_default();
        if place.matches('@').count() > 1 {
            let why = "the URL of the database has more than one @: in a user or password it is written %40, and : / as %3A %2F";
            return Err(Error::Url(why.to_owned()));
        }
        let (url, secure) = Secure::taken_from(url)?;
        let mut config: Config = url.parse()?;
        if secure.is_demanded() {
            config.ssl_mode(SslMode::Require);
        }
        // By this a move sees that somebody serves here, whatever a URL calls it.
        let name = match config.get_application_name() {
            Some(said) => format!("prism: {said}"),
            None => "prism".to_owned(),
        };
        config.application_name(name);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(5));
        }
        // Of several hosts the one that writes is meant, whichever that is by then.
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        // A host that vanished says nothing: whoever waits for it hears that soon.
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(SILENT);
        }
        if !url.contains("keepalives_idle") {
            config.keepalives_idle(SILENT);
            config.keepalives_interval(SILENT / 3);
            config.keepalives_retries(3);
        }
        Ok(Self {
            config: Arc::new(config),
            secure,
            starts: Arc::default(),
        })
    }

    pub fn starts(&self) -> Arc<Starts> {
        self.starts.clone()
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
        let mut talk = Talk::begin(&self.config, self.secure.clone())?;
        // Joins are written in the order in which they are to be taken, and a plan of its own for
        // each question would cost more than it saves. Every question is a search: with the price of a disk that turns,
        // a whole table is read where twenty rows are wanted. What is older than 11 has no jit to switch off, and is to
        // get as far as being told that it is too old.
        let settings = format!(
            "set join_collapse_limit = 1; set random_page_cost = 1.1; set client_min_messages = warning;
             select set_config('jit', 'off', false) where current_setting('server_version_num')::int >= 110000;
             set synchronous_commit = on; {LIMITED};
             select case when exists (select 1 from pg_roles where rolname = '{MEMBER}' and not rolsuper
                     and not rolbypassrls and pg_has_role(current_user, oid, {MAY_BECOME})) then 'role'
                 when rolsuper or rolbypassrls then 'nothing' else 'force' end
                 || case when pg_is_in_recovery() then ' follows ' else ' leads ' end
                 || cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint)
             from pg_roles where rolname = current_user"
        );
        let said = talk.wait(Some(ANSWER), async |client| {
            client.simple_query(&settings).await
        })?;
        let said = last_of(&said).unwrap_or_default();
        let mut said = said.split(' ');
        let apart = said.next().and_then(Apart::from_name);
        let follows = said.next() == Some("follows");
        // Nothing is read from a standby, so when it was started tells nothing of what was read.
        if let Some(at) = said.next().filter(|_| !follows)
            && let Ok(at) = at.parse()
        {
            self.starts.saw(at);
        }
        Ok(Box::new(Link {
            talk: RefCell::new(Some(talk)),
            along: RefCell::default(),
            later: RefCell::default(),
            ahead: RefCell::default(),
            answers: RefCell::default(),
            number: RefCell::default(),
            asks_number: Cell::new(false),
            ready: RefCell::default(),
            in_transaction: Cell::new(false),
            has_begun: Cell::new(false),
            has_failed: Cell::new(false),
            tenant: Cell::new(None),
            kept_apart: apart.unwrap_or(Apart::Nothing),
            follows,
            is_owner: Cell::new(false),
            takes_time: Cell::new(false),
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

/// What is said before the next statement.
#[derive(Default)]
struct Along {
    text: String,
    /// It ends with a select, of which more can be asked: each statement by itself takes its time.
    asks: bool,
}

/// A question that is sent before it is asked.
struct Ahead {
    sql: String,
    statement: Statement,
    values: Vec<Bound>,
}

/// One connection and the statements it has ready.
pub struct Link {
    /// None once it ends.
    talk: RefCell<Option<Talk>>,
    /// How the transaction begins, and what is set in it, sent along with the next statement.
    along: RefCell<Along>,
    /// Statements of which nothing is to be known but that they ran, sent along with the next one.
    later: RefCell<Vec<(Statement, Vec<Bound>)>>,
    /// Questions that will be asked, sent along with the next one, and what was answered to them.
    ahead: RefCell<Vec<Ahead>>,
    answers: RefCell<Vec<(Ahead, Vec<Row>)>>,
    /// Under which number the database remembers the open transaction, where it was asked.
    number: RefCell<Option<String>>,
    asks_number: Cell<bool>,
    ready: RefCell<Ready>,
    in_transaction: Cell<bool>,
    /// Whether anything was said in it.
    has_begun: Cell<bool>,
    /// A statement of it failed: nothing of it will stay.
    has_failed: Cell<bool>,
    /// Whose rows the next transaction is about; without anybody it comes to no row.
    tenant: Cell<Option<Uuid>>,
    /// What keeps it from the rows of others.
    kept_apart: Apart,
    /// The database only followed another one when it was opened. One that is set back to that cuts its connections off.
    follows: bool,
    /// It keeps the role that it came with.
    is_owner: Cell<bool>,
    /// Its statements take as long as they take.
    takes_time: Cell<bool>,
    /// Asked from threads that must not wait: each question waits on one of its own.
    apart: bool,
}

impl Drop for Link {
    fn drop(&mut self) {
        // To say goodbye takes a moment, which not every thread has.
        if let Some(talk) = self.talk.take() {
            std::thread::spawn(move || drop(talk));
        }
    }
}

impl Link {
    fn client<T: Send>(
        &self,
        ask: impl AsyncFnOnce(&Client) -> std::result::Result<T, ::postgres::Error> + Send,
    ) -> Result<T> {
        ROUND_TRIPS.fetch_add(1, Ordering::Relaxed);
        self.has_begun.set(true);
        let (along, later, ahead) = (self.along.take(), self.later.take(), self.ahead.take());
        let questions = &ahead;
        let ask = async move |client: &Client| {
            let begins = async {
                match along.text.is_empty() {
                    true => Ok(Vec::new()),
                    false => client.simple_query(&along.text).await,
                }
            };
            let puts = later.iter().map(async |(statement, values)| {
                let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
                client.execute(statement, &values).await
            });
            let asked = questions.iter().map(async |asked| {
                let values: Vec<&(dyn Bind + Sync)> = asked.values.iter().map(|v| v as _).collect();
                client.query(&asked.statement, &values).await
            });
            // Sent in this order before anything is waited for. Where one fails, the transaction takes nothing
            // more, so what follows fails as well.
            let (puts, asked) = (future::try_join_all(puts), future::try_join_all(asked));
            let (begun, put, known, answer) = future::join4(begins, puts, asked, ask(client)).await;
            let said = begun.and_then(|begun| put.map(|_| last_of(&begun)));
            said.and_then(|said| Ok((said, known?, answer?)))
        };
        let at_most = (!self.takes_time.get()).then_some(ANSWER);
        let asked = match self.talk.borrow_mut().as_mut() {
            Some(talk) if self.apart => apart(|| talk.wait(at_most, ask)),
            Some(talk) => talk.wait(at_most, ask),
            None => Err(Error::NoRows),
        };
        let (said, known, answer) = asked.inspect_err(|error| {
            self.has_failed.set(true);
            self.forget_plans(error);
        })?;
        if self.asks_number.take() {
            self.number.replace(said);
        }
        self.answers
            .borrow_mut()
            .extend(ahead.into_iter().zip(known));
        Ok(answer)
    }

    pub fn follows(&self) -> bool {
        self.follows
    }

    /// A statement for values of these types. The same text may be asked with other types: with
    /// nothing where there was a value.
    fn statement(&self, sql: &str, types: &[Type]) -> Result<Statement> {
        let found = self.ready.borrow().get(sql).and_then(|kinds| {
            let same = kinds.iter().find(|(t, _)| t == types);
            same.map(|(_, statement)| statement.clone())
        });
        if let Some(statement) = found {
            return Ok(statement);
        }
        let spelt = for_postgres(sql);
        let prepared = self.client(async |c| c.prepare_typed(&spelt, types).await)?;
        let mut ready = self.ready.borrow_mut();
        if ready.len() >= STATEMENTS_MAX {
            ready.clear();
        }
        let kinds = ready.entry(sql.to_owned()).or_default();
        kinds.push((types.to_vec(), prepared.clone()));
        Ok(prepared)
    }

    pub fn query(&self, sql: &str, values: &[&dyn ToSql]) -> Result<Vec<Row>> {
        let values = bound(values)?;
        if let Some(known) = self.known(sql, &values)? {
            return Ok(known);
        }
        let statement = self.statement(sql, &types(&values))?;
        let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
        self.client(async |c| c.query(&statement, &values).await)
    }

    /// The same, where there may be many rows: each is made into something as it comes.
    pub fn collect<T: Send>(
        &self,
        sql: &str,
        values: &[&dyn ToSql],
        mut map: impl FnMut(&super::Row<'_>) -> Result<T> + Send,
    ) -> Result<Vec<T>> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        self.client(async |c| {
            let mut rows = pin!(c.query_raw(&statement, values.iter()).await?);
            let mut found = Ok(Vec::new());
            while let Some(row) = rows.try_next().await? {
                let made = map(&super::Row::Postgres(&row));
                found = found.and_then(|mut found| {
                    found.push(made?);
                    Ok(found)
                });
            }
            Ok(found)
        })?
    }

    /// Has a question asked with the next one, whichever that is; whoever asks it then has the answer at once. For what
    /// is read and not written before it is asked.
    pub fn ahead(&self, sql: &str, values: &[&dyn ToSql]) -> Result<()> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        self.ahead.borrow_mut().push(Ahead {
            sql: sql.to_owned(),
            statement,
            values,
        });
        Ok(())
    }

    /// The answer to a question that was sent ahead.
    fn known(&self, sql: &str, values: &[Bound]) -> Result<Option<Vec<Row>>> {
        let is_asked = |asked: &Ahead| asked.sql == sql && asked.values == values;
        if self.ahead.borrow().iter().any(is_asked) {
            self.client(async |_| Ok(()))?;
        }
        let mut answers = self.answers.borrow_mut();
        let at = answers.iter().position(|(asked, _)| is_asked(asked));
        Ok(at.map(|at| answers.swap_remove(at).1))
    }

    /// The same for each of some values, a few of them in one breath.
    pub fn query_each(&self, sql: &str, each: &[Vec<Value>]) -> Result<Vec<Vec<Row>>> {
        let mut found = Vec::with_capacity(each.len());
        for some in each.chunks(TOGETHER_MAX) {
            let mut asked = Vec::with_capacity(some.len());
            for values in some {
                let values: Vec<Bound> = values.iter().cloned().map(Bound).collect();
                asked.push((self.statement(sql, &types(&values))?, values));
            }
            found.extend(self.client(async |c| {
                let all = asked.iter().map(async |(statement, values)| {
                    let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
                    c.query(statement, &values).await
                });
                future::try_join_all(all).await
            })?);
        }
        Ok(found)
    }

    pub fn execute(&self, sql: &str, values: &[&dyn ToSql]) -> Result<usize> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        let values: Vec<&(dyn Bind + Sync)> = values.iter().map(|v| v as _).collect();
        let changed = self.client(async |c| c.execute(&statement, &values).await)?;
        Ok(changed as usize)
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
        self.client(async |c| c.batch_execute(sql).await)
    }

    /// From here on statements take as long as they take, or no longer than any.
    pub fn take_time(&self, takes: bool) -> Result<()> {
        self.takes_time.set(takes);
        self.batch(if takes { UNLIMITED } else { LIMITED })
    }

    /// Takes back what was done since a savepoint: from there on all is well again.
    pub fn back_to(&self, savepoint: &str) -> Result<()> {
        self.forget();
        self.batch(&format!("rollback to {savepoint}"))?;
        self.has_failed.set(false);
        Ok(())
    }

    /// The same, and the last value of the last row.
    pub fn said(&self, sql: &str) -> Result<Option<String>> {
        let messages = self.client(async |c| c.simple_query(sql).await)?;
        Ok(last_of(&messages))
    }

    /// Writes many rows at once, as lines that COPY reads; answers how many it took.
    pub fn copy_in(&self, copy: &str, lines: &[u8]) -> Result<u64> {
        let lines = BytesMut::from(lines).freeze();
        self.client(async |c| {
            let mut writer = pin!(c.copy_in(copy).await?);
            // Why it could not be sent is told at the end.
            drop(writer.send(lines).await);
            writer.finish().await
        })
    }

    /// Begins when the first statement does.
    pub fn begin(&self, how: &str) {
        self.forget();
        self.number.take();
        self.asks_number.set(false);
        self.say_along(how);
        self.in_transaction.set(true);
        self.has_begun.set(false);
        self.has_failed.set(false);
    }

    /// Has statements run before the next one of a transaction, without waiting for them by themselves.
    pub fn say_along(&self, sql: &str) {
        let mut along = self.along.borrow_mut();
        if !along.text.is_empty() {
            along.text.push_str("; ");
        }
        along.text.push_str(sql);
        along.asks = false;
    }

    /// The same of what is done by asking for it, in the order in which it is said.
    pub fn ask_along(&self, what: &str) {
        if !self.along.borrow().asks {
            self.say_along("select ");
        } else {
            self.along.borrow_mut().text.push_str(", ");
        }
        let mut along = self.along.borrow_mut();
        along.text.push_str(what);
        along.asks = true;
    }

    /// Has the database number the transaction that begins.
    pub fn ask_number(&self) {
        self.ask_along("pg_current_xact_id()");
        self.asks_number.set(true);
    }

    /// The number of the open transaction or the one before, if it was asked for and has begun.
    pub fn number(&self) -> Option<String> {
        self.number.borrow().clone()
    }

    /// Runs a statement in the open transaction, of which nothing is to be known but that it ran: with the next
    /// one, which fails if it does.
    pub fn put(&self, sql: &str, values: &[&dyn ToSql]) -> Result<()> {
        let values = bound(values)?;
        let statement = self.statement(sql, &types(&values))?;
        self.later.borrow_mut().push((statement, values));
        let is_room = self.later.borrow().len() < LATER_MAX;
        if is_room { Ok(()) } else { self.flush() }
    }

    pub fn has_put(&self) -> bool {
        !self.later.borrow().is_empty()
    }

    /// Sends what was to go along with the next statement, and waits for it.
    pub fn flush(&self) -> Result<()> {
        let nothing = self.along.borrow().text.is_empty() && self.later.borrow().is_empty();
        if nothing {
            return Ok(());
        }
        self.client(async |_| Ok(()))
    }

    /// Begins a transaction of the tenant whose this connection is now. Tenant and role end with it:
    /// whoever gets the connection next, by a pooler too, finds neither.
    pub fn begin_apart(&self, how: &str) -> Result<()> {
        let tenant = self.tenant.get();
        if tenant.is_some() && self.kept_apart == Apart::Nothing && !self.is_owner.get() {
            return Err(Error::Exposed);
        }
        self.begin(how);
        if let Some(tenant) = tenant {
            self.set_along("prism.tenant", &tenant.to_string());
        }
        if self.steps_down() {
            self.set_along("role", MEMBER);
        }
        Ok(())
    }

    /// Sets something until the open transaction ends.
    fn set_along(&self, what: &str, to: &str) {
        self.ask_along(&format!("set_config('{what}', '{to}', true)"));
    }

    pub fn tenant(&self) -> Option<Uuid> {
        self.tenant.get()
    }

    /// Commits without waiting for the disk: what is committed later brings it there, if nothing else does.
    pub fn hurry(&self) {
        self.say_along("set local synchronous_commit = off");
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

    /// Commits, together with what was put: where one of these failed, it takes all back, and says so. PostgreSQL itself
    /// ends a transaction in which something failed without a word.
    pub fn commit(&self) -> Result<()> {
        if self.has_failed.get() {
            self.rollback()?;
            return Err(Error::Aborted);
        }
        let nothing = !self.has_begun.get() && !self.has_put();
        self.in_transaction.set(false);
        self.ahead.take();
        self.answers.take();
        if nothing {
            self.forget();
            return Ok(());
        }
        self.batch("commit")
    }

    pub fn rollback(&self) -> Result<()> {
        self.in_transaction.set(false);
        self.forget();
        match self.has_begun.get() {
            true => self.batch("rollback"),
            // Nothing was asked since it was to begin.
            false => Ok(()),
        }
    }

    /// Ends a transaction that has only read. Nothing depends on it, so nobody waits for it.
    pub fn leave(&self) {
        self.in_transaction.set(false);
        self.forget();
        if !self.has_begun.get() {
            return;
        }
        if let Some(talk) = self.talk.borrow_mut().as_mut() {
            let ended = async |client: &Client| client.batch_execute("commit").await;
            match self.apart {
                true => apart(|| talk.say(ended)),
                false => talk.say(ended),
            }
        }
    }

    /// Lets go of what was to go along with a statement that did not come.
    fn forget(&self) {
        self.along.take();
        self.later.take();
        self.ahead.take();
        self.answers.take();
    }

    /// Has triggers note which rows this transaction writes.
    pub fn note_touched(&self) {
        self.set_along("prism.watched", "on");
    }

    /// Commits, and says what they have noted.
    pub fn commit_noted(&self) -> Result<String> {
        if self.has_failed.get() || (!self.has_begun.get() && !self.has_put()) {
            return self.commit().map(|()| String::new());
        }
        let statement = self.statement(NOTED, &[])?;
        self.in_transaction.set(false);
        let rows = self.client(async |c| {
            let (noted, ended) =
                future::join(c.query(&statement, &[]), c.batch_execute("commit")).await;
            ended.and(noted)
        })?;
        Ok(rows.first().map(|row| row.get(0)).unwrap_or_default())
    }

    pub fn is_idle(&self) -> bool {
        !self.in_transaction.get()
    }

    pub fn is_closed(&self) -> bool {
        self.talk.borrow().as_ref().is_none_or(Talk::is_over)
    }
}

/// The last value of the last row, unless it says nothing.
fn last_of(messages: &[SimpleQueryMessage]) -> Option<String> {
    let last = messages.iter().rev().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(row.len().checked_sub(1)?),
        _ => None,
    });
    last.filter(|said| !said.is_empty()).map(str::to_owned)
}

/// A value on its way into a statement.
#[derive(Debug, PartialEq)]
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
