//! Where several write at once: a transaction each, and locks where they must not meet.
//!
//! The embedded engine runs one write after the other. So does this one with everything that does not
//! say otherwise, on however many servers: such a write holds a lock that all others share. What fills
//! and empties inboxes, and that is what there is much of, holds only its inbox.

use super::{Alone, Result, StoreError};
use crate::config::failpoint;
use crate::store::sql::{Connection, Server};
use ::postgres::error::SqlState;
use prism_core::limits::WRITER_JOBS_MAX;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// Connections that write, at the most.
const WRITERS: usize = 8;
/// How often a write is tried that others got in the way of.
const TRIES: u32 = 10;
/// How long it waits before the next try at first; then twice as long each time, up to the longest.
const WAIT: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);

/// A tenant's way to the connections that all tenants share.
pub struct Pool {
    server: Server,
    tenant: Uuid,
    idle: Arc<Mutex<Vec<Connection>>>,
    /// Whoever finds no place waits, so that what waits is bounded.
    places: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

impl Pool {
    pub fn new(server: Server, tenant: Uuid) -> Self {
        Self {
            server,
            tenant,
            idle: Arc::default(),
            places: Arc::new(Semaphore::new(WRITER_JOBS_MAX)),
            writers: Arc::new(Semaphore::new(WRITERS)),
        }
    }

    /// The same connections, for another tenant.
    pub fn of(&self, tenant: Uuid) -> Self {
        Self {
            server: self.server.clone(),
            tenant,
            idle: self.idle.clone(),
            places: self.places.clone(),
            writers: self.writers.clone(),
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
        let written = tokio::spawn(async move {
            let writer = self.writers.clone().acquire_owned().await;
            let writer = writer.map_err(|_| StoreError::Closed)?;
            let written = tokio::task::spawn_blocking(move || {
                let written = self.run(&alone, job);
                if failpoint("writer.answer_late") {
                    // Long enough for a test to see the row and hang up before it is answered.
                    std::thread::sleep(Duration::from_secs(1));
                }
                let written = written.map(then);
                drop(writer);
                written
            });
            let written = written.await;
            drop(place);
            written.map_err(|_| StoreError::Failed("a write panicked".into()))?
        });
        written
            .await
            .map_err(|_| StoreError::Failed("a write was cut short".into()))?
    }

    fn run<T>(
        &self,
        alone: &Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone,
    ) -> Result<T> {
        let mut wait = WAIT;
        for _ in 1..TRIES {
            match self.try_once(alone, job.clone()) {
                Err(StoreError::Again(why)) => {
                    tracing::debug!(why, "A write is tried again");
                    std::thread::sleep(wait);
                    wait = (wait * 2).min(WAIT_MAX);
                }
                done => return done,
            }
        }
        self.try_once(alone, job)
    }

    fn try_once<T>(&self, alone: &Alone, job: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let connection = self.connection()?;
        connection.begin_writing().map_err(super::failed)?;
        let done = lock(&connection, alone).and_then(|()| {
            catch_unwind(AssertUnwindSafe(|| job(&connection)))
                .unwrap_or_else(|_| Err(StoreError::Failed("a write panicked".into())))
        });
        let done = match done {
            Ok(value) => connection.commit().map(|()| value).map_err(committing),
            Err(error) => {
                drop(connection.rollback());
                Err(error)
            }
        };
        self.give_back(connection);
        done
    }

    pub fn give_back(&self, connection: Connection) {
        let mut idle = self.idle();
        if !connection.is_closed() && connection.is_autocommit() && idle.len() < WRITERS {
            idle.push(connection);
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a transaction of this tenant.
    pub fn connection(&self) -> Result<Connection> {
        let connection = loop {
            let Some(idle) = self.idle().pop() else {
                break Connection::Postgres(self.server.connect().map_err(super::failed)?);
            };
            if !idle.is_closed() {
                break idle;
            }
        };
        connection.becomes(Some(self.tenant));
        Ok(connection)
    }
}

/// Waits until nobody else is where a write must be alone. Locks end with the transaction.
pub fn lock(connection: &Connection, alone: &Alone) -> Result<()> {
    if let Connection::Sqlite(_) = connection {
        return Ok(());
    }
    // Tenants do not wait for each other.
    let all = "select pg_advisory_xact_lock(hashtextextended('prism ' || this_tenant(), 0))";
    let among =
        "select pg_advisory_xact_lock_shared(hashtextextended('prism ' || this_tenant(), 0))";
    match alone {
        Alone::Everywhere => connection.run(all),
        Alone::Inboxes(inboxes) => {
            let mut inboxes: Vec<String> = inboxes.iter().map(ToString::to_string).collect();
            // In one order, so that two who want the same two do not wait for each other.
            inboxes.sort();
            let own = inboxes
                .iter()
                .map(|id| format!("; select pg_advisory_xact_lock(hashtextextended('{id}', 0))"));
            connection.run(&format!("{among}{}", own.collect::<String>()))
        }
    }
    .map_err(super::failed)
}

/// Names a failure of PostgreSQL by what can be done about it.
pub fn failed(error: &::postgres::Error) -> StoreError {
    let said = crate::store::sql::Error::said(error);
    let Some(code) = error.code() else {
        // The connection is gone, and with it all that was not committed.
        return StoreError::Again(said);
    };
    let away = [
        "57P01", "57P02", "57P03", "08006", "08001", "08003", "53300",
    ];
    match *code {
        SqlState::FOREIGN_KEY_VIOLATION => StoreError::Dangling,
        // Whoever wrote the same a moment earlier is seen at the next try.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::UNIQUE_VIOLATION => StoreError::Again(said),
        SqlState::DISK_FULL | SqlState::READ_ONLY_SQL_TRANSACTION => StoreError::Unwritable(said),
        _ if away.contains(&code.code()) => StoreError::Again(said),
        _ => StoreError::Failed(said),
    }
}

/// A commit of which nothing is known may stand: to run it again could write it twice.
fn committing(error: crate::store::sql::Error) -> StoreError {
    match super::failed(error) {
        StoreError::Again(why) => StoreError::Failed(format!("a commit was cut off: {why}")),
        error => error,
    }
}
