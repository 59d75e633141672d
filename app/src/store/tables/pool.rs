//! Where several write at once: a transaction each, and locks where they must not meet.
//!
//! The embedded engine runs one write after the other. So does this one with everything that does not
//! say otherwise, on however many servers: such a write holds a lock that all others share. What fills
//! and empties inboxes, and that is what there is much of, holds only its inbox.
//!
//! A database that is away for a moment holds everybody up and refuses nobody; a commit whose answer was
//! cut off is asked after by its number: it is run again where it did not happen, and taken for done by nobody.

use super::full::Full;
use super::{Alone, Result, StoreError};
use crate::config::failpoint;
use crate::live::{self, Live};
use crate::store::sql::{Connection, Server};
use ::postgres::error::SqlState;
use prism_core::database::POOLER;
use prism_core::limits::WRITER_JOBS_MAX;
use prism_core::{Code, Problem};
use std::error::Error as _;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Connections that write, at the most, and those of them that one tenant may have: one whose writes wait for each other
/// keeps nobody else from writing.
const WRITERS: usize = 10;
const WRITERS_OF_ONE: usize = 8;
/// How long the database may be away, or others in the way, until whoever waits is told. A client gives a
/// send up after ten seconds.
pub const AWAY: Duration = Duration::from_secs(8);
/// How long to wait before the next try at first; then twice as long each time, up to the longest.
pub const WAIT: Duration = Duration::from_millis(10);
pub const WAIT_MAX: Duration = Duration::from_millis(500);

/// What is said while the way leads to a standby.
const FOLLOWS: &str = "the database is a standby, which only follows another one";

/// A tenant's way to the connections that all tenants share.
pub struct Pool {
    server: Server,
    tenant: Uuid,
    /// Who is told which of the tenant's rows were written.
    live: Arc<Live>,
    idle: Arc<Mutex<Vec<Connection>>>,
    /// Whoever finds no place waits, so that what waits is bounded.
    places: Arc<Semaphore>,
    writers: Arc<Semaphore>,
    /// The tenant's own share of them.
    own: Arc<Semaphore>,
    /// Whether the database had no room lately, whoever wrote.
    full: Arc<Full>,
    /// How often all connections were given up for others.
    given_up: Arc<AtomicU64>,
}

/// A connection on loan.
pub struct Lent {
    pub connection: Connection,
    /// How often all had been given up when it was lent.
    given_up: u64,
}

impl Pool {
    pub fn new(server: Server, tenant: Uuid, live: Arc<Live>) -> Self {
        Self {
            server,
            tenant,
            live,
            idle: Arc::default(),
            places: Arc::new(Semaphore::new(WRITER_JOBS_MAX)),
            writers: Arc::new(Semaphore::new(WRITERS)),
            own: Arc::new(Semaphore::new(WRITERS_OF_ONE)),
            full: Arc::default(),
            given_up: Arc::default(),
        }
    }

    /// The same connections, for another tenant.
    pub fn of(&self, tenant: Uuid, live: Arc<Live>) -> Self {
        Self {
            server: self.server.clone(),
            tenant,
            live,
            idle: self.idle.clone(),
            places: self.places.clone(),
            writers: self.writers.clone(),
            own: Arc::new(Semaphore::new(WRITERS_OF_ONE)),
            full: self.full.clone(),
            given_up: self.given_up.clone(),
        }
    }

    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs a job and answers once it is on disk. `then` runs whether or not anybody still waits for
    /// the answer it makes.
    pub async fn write<T: 'static, U: Send + 'static>(
        self: Arc<Self>,
        alone: Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| StoreError::Closed)?;
        let own = self.own.clone().try_acquire_owned();
        let writer = self.writers.clone().try_acquire_owned();
        if let (Ok(own), Ok(writer)) = (own, writer) {
            // What has begun runs to its end, whoever waits for it.
            let writing = self.begin((place, own, writer), alone, job, then);
            return writing
                .await
                .map_err(|_| StoreError::Failed("a write panicked".into()))?;
        }
        let written = tokio::spawn(async move {
            let own = self.own.clone().acquire_owned().await;
            let writer = self.writers.clone().acquire_owned().await;
            let held = (
                place,
                own.map_err(|_| StoreError::Closed)?,
                writer.map_err(|_| StoreError::Closed)?,
            );
            let written = self.begin(held, alone, job, then).await;
            written.map_err(|_| StoreError::Failed("a write panicked".into()))?
        });
        written
            .await
            .map_err(|_| StoreError::Failed("a write was cut short".into()))?
    }

    /// Begins a write on a thread that may wait; its places are free again once it is done.
    fn begin<T: 'static, U: Send + 'static>(
        self: Arc<Self>,
        held: (
            OwnedSemaphorePermit,
            OwnedSemaphorePermit,
            OwnedSemaphorePermit,
        ),
        alone: Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> JoinHandle<Result<U>> {
        tokio::task::spawn_blocking(move || {
            let written = self.run(&alone, job);
            if failpoint("writer.answer_late") {
                // Long enough for a test to see the row and hang up before it is answered.
                std::thread::sleep(Duration::from_secs(1));
            }
            let written = written.map(then);
            drop(held);
            written
        })
    }

    fn run<T>(
        &self,
        alone: &Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone,
    ) -> Result<T> {
        let done = patiently(|| self.try_once(alone, job.clone()));
        match &done {
            Err(StoreError::Unwritable(why)) => self.full.refused(why),
            Err(StoreError::Denied(why)) => self.full.denied(why),
            _ => {}
        }
        done
    }

    pub fn full(&self) -> &Full {
        &self.full
    }

    fn try_once<T>(&self, alone: &Alone, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let lent = self.lend()?;
        let connection = &lent.connection;
        let watched = self.live.watching() > 0;
        let begun = connection.begin_writing().map_err(super::failed);
        let done = begun.and_then(|()| {
            if watched {
                connection.note_touched();
            }
            lock(connection, alone);
            ask_number(connection);
            catch_unwind(AssertUnwindSafe(|| job(connection)))
                .unwrap_or_else(|_| Err(StoreError::Failed("a write panicked".into())))
        });
        let done = match done {
            Ok(value) => self.commit(connection, watched).map(|()| value),
            Err(error) => {
                drop(connection.rollback());
                Err(error)
            }
        };
        match &done {
            // One that is away without having said so, or in the way of others, is asked on another connection.
            Err(StoreError::Again(_)) if !connection.is_closed() => drop(lent),
            _ => self.give_back(lent),
        }
        done
    }

    /// Commits, and tells which rows were written.
    fn commit(&self, connection: &Connection, watched: bool) -> Result<()> {
        let committed = match watched {
            true => connection.commit_noted().map(|noted| live::noted(&noted)),
            // Whoever came while nobody watched reads everything again.
            false => connection.commit().map(|()| None),
        };
        let touched = match committed.map_err(super::failed) {
            Err(StoreError::Again(why)) => Err(self.cut_off(connection.number().as_deref(), why)),
            committed => committed,
        }?;
        match touched {
            Some(touched) => self.live.touched(touched),
            None if self.live.watching() > 0 => self.live.too_many(),
            None => {}
        }
        Ok(())
    }

    pub fn give_back(&self, lent: Lent) {
        let Lent {
            connection,
            given_up,
        } = lent;
        let mut idle = self.idle();
        let is_current = given_up == self.given_up.load(Ordering::Acquire);
        if connection.is_closed() {
            // What cut this one off has cut off the others as well.
            idle.clear();
        } else if is_current && connection.is_autocommit() && idle.len() < WRITERS {
            idle.push(connection);
        }
    }

    /// What is to be said of a commit that was cut off. The database is asked by the transaction's number: one that did
    /// not commit is run again. Of one that did, nothing is known for sure: a database that crashed gives numbers which
    /// it had not written down to others, so whoever asked hears that, and asks again under a key.
    fn cut_off(&self, number: Option<&str>, why: String) -> StoreError {
        // One that was answered nothing at all may have been heard to its end.
        let Some(number) = number else {
            return StoreError::Unknown(why);
        };
        let committed = patiently(|| {
            let lent = self.lend()?;
            let asked = lent
                .connection
                .said(&format!("select pg_xact_status('{number}')"));
            let committed = match asked.map_err(super::failed)?.as_deref() {
                // Nobody has told its backend yet that we are gone.
                Some("in progress") => Err(StoreError::Again("the commit is under way".into())),
                fate => Ok(fate == Some("committed")),
            };
            self.give_back(lent);
            committed
        });
        match committed {
            Ok(false) => StoreError::Again(format!("a commit was cut off: {why}")),
            Ok(true) | Err(_) => StoreError::Unknown(why),
        }
    }

    /// Writes from now on by connections that are opened from now on.
    pub fn connect_anew(&self) {
        // Those that are in use are not taken back.
        self.given_up.fetch_add(1, Ordering::AcqRel);
        self.idle().clear();
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a transaction of this tenant.
    pub fn lend(&self) -> Result<Lent> {
        let given_up = self.given_up.load(Ordering::Acquire);
        let connection = loop {
            let Some(idle) = self.idle().pop() else {
                break connect(&self.server)?;
            };
            if !idle.is_closed() {
                break idle;
            }
        };
        connection.becomes(Some(self.tenant));
        Ok(Lent {
            connection,
            given_up,
        })
    }
}

/// A connection with a database that others follow: what a standby shows may be long past, whoever reads it.
pub fn connect(server: &Server) -> Result<Connection> {
    let link = server.connect().map_err(super::failed)?;
    match link.follows() {
        true => Err(StoreError::Again(FOLLOWS.into())),
        false => Ok(Connection::Postgres(link)),
    }
}

/// Asks again while the database is away or others are in the way, for a limited time.
pub fn patiently<T>(mut once: impl FnMut() -> Result<T>) -> Result<T> {
    let (began, mut wait, mut looked) = (Instant::now(), WAIT, false);
    loop {
        match once() {
            Err(StoreError::Again(why)) if began.elapsed() < AWAY => {
                tracing::debug!(why, "The database is asked again");
                std::thread::sleep(wait);
                wait = (wait * 2).min(WAIT_MAX);
            }
            Err(StoreError::Changed(why)) if !looked => {
                tracing::debug!(why, "The database is looked at once more");
                looked = true;
            }
            done => return done,
        }
    }
}

/// Has the next statement wait until nobody else is where a write must be alone. Locks end with the transaction.
pub fn lock(connection: &Connection, alone: &Alone) {
    if let Connection::Postgres(link) = connection {
        for lock in locks(alone, link.tenant()) {
            link.ask_along(&lock);
        }
    }
}

/// Has it say under which number the database remembers the transaction.
fn ask_number(connection: &Connection) {
    if let Connection::Postgres(link) = connection {
        link.ask_number();
    }
}

fn locks(alone: &Alone, tenant: Option<Uuid>) -> Vec<String> {
    let lock = |how: &str, what: String| format!("pg_advisory_xact_lock{how}({what})");
    let named = |name: String| format!("hashtextextended('{name}', 0)");
    // Tenants do not wait for each other.
    let all = named(format!("prism {}", tenant.unwrap_or_default()));
    match alone {
        Alone::Everywhere => vec![lock("", all)],
        Alone::Inboxes(inboxes) => {
            let mut inboxes: Vec<String> = inboxes.iter().map(ToString::to_string).collect();
            // In one order, so that two who want the same two do not wait for each other.
            inboxes.sort();
            let own = inboxes.into_iter().map(|id| lock("", named(id)));
            [lock("_shared", all)].into_iter().chain(own).collect()
        }
    }
}

/// Names a failure of PostgreSQL by what can be done about it.
pub fn failed(error: &::postgres::Error) -> StoreError {
    let said = crate::store::sql::Error::said(error);
    let Some(code) = error.code() else {
        // The connection is gone, and with it all that was not committed; or what was asked cannot be said.
        let gone = error.is_closed() || error.source().is_some_and(|cause| cause.is::<io::Error>());
        return match gone {
            true => StoreError::Again(said),
            false => StoreError::Failed(said),
        };
    };
    let away = [
        "57014", "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "08006", "08001", "08003",
        "53300", "55P03",
    ];
    match *code {
        SqlState::FOREIGN_KEY_VIOLATION => StoreError::Dangling,
        SqlState::T_R_SERIALIZATION_FAILURE | SqlState::T_R_DEADLOCK_DETECTED => {
            StoreError::Again(said)
        }
        // Whoever wrote the same a moment earlier is seen at a second look; a table that another
        // server has upgraded is asked as it is now.
        SqlState::UNIQUE_VIOLATION | SqlState::FEATURE_NOT_SUPPORTED => StoreError::Changed(said),
        SqlState::INVALID_SQL_STATEMENT_NAME | SqlState::DUPLICATE_PSTATEMENT => Problem::new(
            Code::StorageFull,
            format!("a pooler mixes up whose statements are whose: {said}"),
            POOLER,
        )
        .into(),
        SqlState::DISK_FULL | SqlState::IO_ERROR => StoreError::Unwritable(said),
        // Not let in, or not to this: waiting does not help, and whoever mends it need not start anything again.
        SqlState::INSUFFICIENT_PRIVILEGE
        | SqlState::INVALID_AUTHORIZATION_SPECIFICATION
        | SqlState::INVALID_PASSWORD
        | SqlState::INVALID_CATALOG_NAME => StoreError::Denied(said),
        // After a failover the way may still lead to what only reads; the one that writes is found by another.
        SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::Again(said),
        _ if away.contains(&code.code()) => StoreError::Again(said),
        _ => StoreError::Failed(said),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(answers: Vec<Result<i32>>) -> (Result<i32>, usize) {
        let mut answers = answers.into_iter();
        let mut asked = 0;
        let answer = patiently(|| {
            asked += 1;
            answers.next().unwrap_or(Ok(7))
        });
        (answer, asked)
    }

    #[test]
    fn what_is_away_is_asked_again_what_has_changed_once_and_what_is_wrong_never() {
        let away = || Err(StoreError::Again("away".into()));
        let changed = || Err(StoreError::Changed("another row".into()));
        let wrong = || Err(StoreError::Failed("no".into()));
        for (answers, times) in [
            (vec![], 1),
            (vec![away(), away(), away()], 4),
            (vec![changed()], 2),
            (vec![away(), changed(), away()], 4),
        ] {
            let (answer, asked) = asked(answers);
            assert_eq!((answer.unwrap(), asked), (7, times));
        }
        for answers in [vec![changed(), changed()], vec![away(), wrong()]] {
            let (answer, asked) = asked(answers);
            assert!(answer.is_err());
            assert_eq!(asked, 2);
        }
    }
}
