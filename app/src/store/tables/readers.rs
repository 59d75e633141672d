//! Read-only connections, a few of them: each read has one to itself, in one snapshot.
//!
//! A place in the pool belongs to the read that runs, not to whoever waits for
//! it: a caller that goes away leaves its read running, and the place comes
//! back when that read ends. A read that lost its connection is run again.

use super::{Result, StoreError, failed, pool};
use crate::store::sql::{Connection, Server};
use rusqlite::OpenFlags;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{Semaphore, oneshot};
use uuid::Uuid;

/// Some readers of one database.
#[derive(Clone)]
pub struct Readers {
    pool: Arc<Pool>,
    places: Arc<Semaphore>,
    /// Whose rows they read, where there is more than one tenant.
    tenant: Option<Uuid>,
}

/// Where readers read.
#[derive(Clone)]
pub enum Source {
    /// Each may keep so many kilobytes of the file in memory.
    File {
        file: PathBuf,
        cache_kb: u32,
    },
    Server(Server),
}

struct Pool {
    source: Source,
    idle: Mutex<Vec<Connection>>,
    /// How often all of them were given up for others.
    given_up: AtomicU64,
}

impl Readers {
    /// Opens `n` connections.
    pub fn open(source: Source, n: usize) -> Result<Self> {
        let idle = (0..n).map(|_| source.connect());
        let idle = idle.collect::<Result<Vec<_>>>()?;
        Ok(Self {
            pool: Arc::new(Pool {
                source,
                idle: Mutex::new(idle),
                given_up: AtomicU64::new(0),
            }),
            places: Arc::new(Semaphore::new(n)),
            tenant: None,
        })
    }

    /// The same readers, for a tenant; for nobody, who sees no tenant's rows.
    pub fn of(&self, tenant: Option<Uuid>) -> Self {
        Self {
            tenant,
            ..self.clone()
        }
    }

    /// Reads from now on by connections that are opened from now on.
    pub fn connect_anew(&self) {
        self.pool.given_up.fetch_add(1, Ordering::AcqRel);
        self.pool.idle().clear();
    }

    /// Runs one read, as soon as a place is free.
    pub async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| StoreError::Closed)?;
        let (pool, tenant) = (self.pool.clone(), self.tenant);
        let (answer, answered) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            let read = pool.run(tenant, query);
            drop(place);
            drop(answer.send(read));
        });
        answered
            .await
            .map_err(|_| StoreError::Failed("a read was cut short".into()))?
    }

    /// Runs one read of a few rows here and now, when a place is free; else as any other.
    pub async fn glance<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let is_near = matches!(self.pool.source, Source::File { .. });
        match self.places.try_acquire() {
            Ok(_place) if is_near => self.pool.run(self.tenant, query),
            place => {
                drop(place);
                self.read(query).await
            }
        }
    }
}

impl Pool {
    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a query in a snapshot of its own.
    fn run<T>(
        &self,
        tenant: Option<Uuid>,
        query: impl FnOnce(&Connection) -> Result<T> + Clone,
    ) -> Result<T> {
        pool::patiently(|| {
            let given_up = self.given_up.load(Ordering::Acquire);
            let connection = self.connection()?;
            connection.becomes(tenant);
            let read = catch_unwind(AssertUnwindSafe(|| {
                connection.begin_reading().map_err(failed)?;
                query.clone()(&connection)
            }));
            let read = read.map_err(|_| StoreError::Failed("a read panicked".into()))?;
            let ended = self.end(connection, given_up);
            read.and_then(|value| ended.map(|()| value))
        })
    }

    /// Ends a read, and keeps its connection for the next.
    fn end(&self, connection: Connection, given_up: u64) -> Result<()> {
        let ended = connection.leave().map_err(failed);
        if connection.is_closed() {
            // What cut this one off has cut off the others as well.
            self.idle().clear();
        } else if connection.is_autocommit() {
            let mut idle = self.idle();
            if given_up == self.given_up.load(Ordering::Acquire) {
                idle.push(connection);
            }
        }
        ended
    }

    fn connection(&self) -> Result<Connection> {
        while let Some(connection) = self.idle().pop() {
            // A server may have gone away since.
            if !connection.is_closed() {
                return Ok(connection);
            }
        }
        // None is idle when a read before this one broke its connection.
        self.source.connect()
    }
}

impl Source {
    fn connect(&self) -> Result<Connection> {
        match self {
            Self::File { file, cache_kb } => connect(file, *cache_kb),
            Self::Server(server) => pool::connect(server),
        }
    }
}

fn connect(file: &Path, cache_kb: u32) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = rusqlite::Connection::open_with_flags(file, flags).map_err(failed)?;
    connection
        .execute_batch(&format!(
            "pragma busy_timeout = 5000; pragma temp_store = memory; pragma cache_size = -{cache_kb};",
        ))
        .map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(Connection::Sqlite(connection))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const PLACES: usize = 3;

    fn readers() -> (Readers, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("x.db");
        let database = Connection::open(&file).unwrap();
        database
            .execute_batch("create table t (x integer); insert into t values (7)")
            .unwrap();
        let source = Source::File {
            file,
            cache_kb: 1_000,
        };
        (Readers::open(source, PLACES).unwrap(), dir)
    }

    fn seven(c: &Connection) -> Result<i64> {
        c.query_row("select x from t", [], |r| r.get(0))
            .map_err(failed)
    }

    /// As many reads as there are places, each waiting until all of them run.
    async fn all_places_serve(readers: &Readers) {
        let together = Arc::new(std::sync::Barrier::new(PLACES));
        let reads: Vec<_> = (0..PLACES)
            .map(|_| {
                let (readers, together) = (readers.clone(), together.clone());
                tokio::spawn(async move {
                    let read = readers.read(move |c| {
                        together.wait();
                        seven(c)
                    });
                    read.await
                })
            })
            .collect();
        for read in reads {
            assert_eq!(read.await.unwrap().unwrap(), 7);
        }
    }

    #[tokio::test]
    async fn a_read_whose_caller_went_away_keeps_its_place_until_it_ends() {
        let (readers, _dir) = readers();
        let (go_on, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, mut under_way) = tokio::sync::mpsc::unbounded_channel();
        let callers: Vec<_> = (0..PLACES)
            .map(|_| {
                let (readers, held, begun) = (readers.clone(), held.clone(), begun.clone());
                tokio::spawn(async move {
                    let read = readers.read(move |_| {
                        begun.send(()).unwrap();
                        held.lock().unwrap().recv().unwrap();
                        Ok(())
                    });
                    read.await
                })
            })
            .collect();
        for _ in 0..PLACES {
            under_way.recv().await.unwrap();
        }
        for caller in &callers {
            caller.abort();
        }
        for caller in callers {
            assert!(caller.await.unwrap_err().is_cancelled());
        }
        let waiting = readers.clone();
        let next = tokio::spawn(async move { waiting.read(seven).await });
        for _ in 0..PLACES {
            go_on.send(()).unwrap();
        }
        assert_eq!(next.await.unwrap().unwrap(), 7, "it waits and is served");
        all_places_serve(&readers).await;
    }

    #[tokio::test]
    async fn a_glance_is_taken_on_the_callers_thread_and_waits_for_a_place_like_others() {
        let (readers, _dir) = readers();
        let here = std::thread::current().id();
        let on = |c: &Connection| seven(c).map(|x| (x, std::thread::current().id()));
        assert_eq!(readers.glance(on).await.unwrap(), (7, here));
        let (go_on, held) = mpsc::channel::<()>();
        let held = Arc::new(Mutex::new(held));
        let (begun, mut under_way) = tokio::sync::mpsc::unbounded_channel();
        let busy: Vec<_> = (0..PLACES)
            .map(|_| {
                let (readers, held, begun) = (readers.clone(), held.clone(), begun.clone());
                tokio::spawn(async move {
                    let read = readers.read(move |_| {
                        begun.send(()).unwrap();
                        held.lock().unwrap().recv().unwrap();
                        Ok(())
                    });
                    read.await
                })
            })
            .collect();
        for _ in 0..PLACES {
            under_way.recv().await.unwrap();
        }
        let mut waiting = Box::pin(readers.glance(on));
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        for _ in 0..PLACES {
            go_on.send(()).unwrap();
        }
        assert_ne!(waiting.await.unwrap().1, here);
        for read in busy {
            read.await.unwrap().unwrap();
        }
        let broken = readers.glance(|_| -> Result<()> { panic!("in a glance") });
        assert!(broken.await.unwrap_err().to_string().contains("panicked"));
        all_places_serve(&readers).await;
    }

    #[tokio::test]
    async fn a_read_that_panics_is_an_error_and_costs_no_place() {
        let (readers, _dir) = readers();
        for _ in 0..2 * PLACES {
            let failed = readers
                .read(|_| -> Result<()> { panic!("in a read") })
                .await;
            assert!(failed.unwrap_err().to_string().contains("panicked"));
        }
        all_places_serve(&readers).await;
    }
}
