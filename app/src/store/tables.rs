//! What is kept, one file for each thing, in SQL that both engines understand. The embedded engine is one SQLite file with one writer
//! thread; PostgreSQL is written to by many at once (`pool`). Readers of two kinds serve both.

pub mod backup;
mod candidates;
mod directory;
mod embed_queue;
mod escalation;
mod full;
mod gate;
mod graph;
mod health;
mod held;
mod inboxes;
mod memory;
mod metrics;
mod migrate;
pub mod moving;
mod near;
mod opening;
mod page;
#[cfg(test)]
mod plans;
mod pool;
mod probe;
mod projects;
mod proven;
mod readers;
mod recall_events;
mod retention;
mod riding;
mod rot;
mod rows;
mod servers;
mod sessions;
mod signals;
pub mod tenants;
mod trace;
mod training;
mod vectors;
mod verdicts;
mod word_counts;
mod words;
mod writer;

use super::sql::{self, Connection};
use super::{Result, StoreError};
use crate::bus::Bus;
use crate::timing::{self, Part};
use full::{Full, Since};
pub use health::look_at_shared;
pub use inboxes::Looked;
use prism_core::{Code, Problem};
use readers::{Readers, Source};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;
pub use words::WordHits;

/// The schema that this binary writes.
pub const NEWEST_SCHEMA: u64 = migrate::NEWEST as u64;

/// Readers of a signal's way: reads are short, so a few serve many callers.
const SIGNAL_READERS: usize = 3;
/// Readers of memory: as many recalls, lists and reports run at once.
const MEMORY_READERS: usize = 4;
/// Pages that a reader keeps, in kilobytes. A signal's way reads a few pages here and there, and a
/// long history has ever others: keeping them would only cost memory.
const SIGNAL_CACHE_KB: u32 = 2_000;
const MEMORY_CACHE_KB: u32 = 8_000;

#[derive(Clone)]
pub struct Tables {
    /// Whose rows these are, where there is more than one tenant.
    tenant: Option<Uuid>,
    /// Writes what nobody waits for; in the embedded engine everything else as well.
    writer: Arc<writer::Writer>,
    /// Where several write at once.
    pool: Option<Arc<pool::Pool>>,
    signal_readers: Readers,
    memory_readers: Readers,
    /// One place for all reports: a recall never waits behind several.
    reports: Arc<Semaphore>,
    vectors: Arc<vectors::Vectors>,
    /// What is known of PostgreSQL's own index of them.
    near: Arc<near::Indexed>,
    bus: Bus,
    riding: Arc<riding::Riding>,
    inboxes: Arc<inboxes::Inboxes>,
    /// Told whenever a row may wait for its vectors.
    embed_wanted: Arc<Notify>,
    /// Rows that this server has taken to embed, where others might.
    taken: Arc<Mutex<HashSet<String>>>,
    /// Whether two projects have become one since the start.
    merged: Arc<AtomicBool>,
    /// Whether the file could not grow lately, where rows are in one.
    full: Arc<Full>,
}

impl Tables {
    pub fn open(file: &Path) -> Result<Self> {
        moving::nothing_on_its_way(file)?;
        let connection = rusqlite::Connection::open(file).map_err(failed)?;
        // A send touches a page of each index, and the next one others: checkpoints that come
        // seldom write most pages once instead of seven times.
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on;
                 pragma busy_timeout = 5000; pragma temp_store = memory;
                 pragma cache_size = -8000; pragma wal_autocheckpoint = 4000;
                 pragma journal_size_limit = 16777216;",
            )
            .map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(128);
        let source = |cache_kb| Source::File {
            file: file.to_owned(),
            cache_kb,
        };
        let mut connection = Connection::Sqlite(connection);
        migrate::migrate(&mut connection)?;
        let readers = [
            Readers::open(source(SIGNAL_CACHE_KB), SIGNAL_READERS)?,
            Readers::open(source(MEMORY_CACHE_KB), MEMORY_READERS)?,
        ];
        let reports = Arc::new(Semaphore::new(1));
        Self::start(connection.into(), Bus::default(), readers, reports)
    }

    /// Opens a store that other servers may stand on as well: the rows of its first tenant.
    pub fn open_shared(server: sql::Server) -> Result<Self> {
        let mut connection = Connection::Postgres(health::begin(&server)?);
        migrate::migrate(&mut connection)?;
        let tenant = tenants::prepare(&connection)?;
        let source = Source::Server(server.clone());
        let readers = [
            Readers::open(source.clone(), SIGNAL_READERS)?,
            Readers::open(source, MEMORY_READERS)?,
        ];
        let reports = Arc::new(Semaphore::new(1));
        let bus = Bus::default();
        let pool = pool::Pool::new(server, tenant, bus.hub().live());
        Self::start_shared(tenant, bus, readers, reports, pool)
    }

    /// The rows of another tenant of the same database, by the same connections.
    pub fn of_tenant(&self, tenant: Uuid) -> Result<Self> {
        let pool = self.pool.as_ref().ok_or(StoreError::Closed)?;
        tenants::may_be_several(pool.server())?;
        let readers = [self.signal_readers.clone(), self.memory_readers.clone()];
        let bus = Bus::default();
        let pool = pool.of(tenant, bus.hub().live());
        Self::start_shared(tenant, bus, readers, self.reports.clone(), pool)
    }

    fn start_shared(
        tenant: Uuid,
        bus: Bus,
        readers: [Readers; 2],
        reports: Arc<Semaphore>,
        pool: pool::Pool,
    ) -> Result<Self> {
        let pool = Arc::new(pool);
        bus.hub().stands_on(pool.server().starts());
        let readers = readers.map(|readers| readers.of(Some(tenant)));
        let ground = writer::Ground::Shared(pool.clone());
        let started = Self::start(ground, bus, readers, reports)?;
        Ok(Self {
            tenant: Some(tenant),
            near: Arc::new(near::Indexed::of(tenant)),
            pool: Some(pool),
            ..started
        })
    }

    fn start(
        ground: writer::Ground,
        bus: Bus,
        [signal_readers, memory_readers]: [Readers; 2],
        reports: Arc<Semaphore>,
    ) -> Result<Self> {
        let riding = Arc::<riding::Riding>::default();
        let live = bus.hub().live();
        let writer = writer::Writer::start(ground, riding.clone(), live)?;
        Ok(Self {
            tenant: None,
            writer: Arc::new(writer),
            pool: None,
            signal_readers,
            memory_readers,
            reports,
            vectors: Arc::default(),
            near: Arc::default(),
            bus,
            riding,
            inboxes: Arc::default(),
            embed_wanted: Arc::default(),
            taken: Arc::default(),
            merged: Arc::default(),
            full: Arc::default(),
        })
    }

    /// Runs one transaction by itself and waits until it is on disk.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        self.written(Alone::Everywhere, job, |value| value).await
    }

    /// The same, with something to do once it is on disk. In the embedded engine all jobs come one
    /// after the other; in the other those that say so.
    async fn written<T: 'static, U: Send + 'static>(
        &self,
        alone: Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let written = match &self.pool {
            None => {
                let written = timing::of(Part::Store, self.writer.write(job, then)).await;
                if let Err(StoreError::Unwritable(why)) = &written {
                    self.full.refused(why);
                }
                written
            }
            Some(pool) => {
                let job = inboxes::with_look(job);
                let writer = self.writer.clone();
                let then = move |value| {
                    let answer = then(value);
                    // What became of a push may ride.
                    writer.something_rides();
                    answer
                };
                timing::of(Part::Store, pool.clone().write(alone, job, then)).await
            }
        };
        // Projects and personas go in a merge alone, which another server may have made just now; whoever was
        // admitted before it is told.
        let merged = || self.is_shared() || self.merged.load(Ordering::Relaxed);
        written.map_err(|error| match error {
            StoreError::Dangling if merged() => gone().into(),
            error => error,
        })
    }

    /// Runs a write that no page shows, beside others, where several servers write; else as any other.
    async fn noted<T: Send + 'static>(
        &self,
        alone: Alone,
        job: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        match &self.pool {
            None => self.written(alone, job, |value| value).await,
            Some(pool) => {
                let writing = pool.clone().write(alone, job, |value| value);
                timing::of(Part::Store, writing).await
            }
        }
    }

    /// Runs one short read of a signal's way; it never waits behind a recall.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let query = inboxes::with_look(query);
        timing::of(Part::Store, self.signal_readers.read(query)).await
    }

    /// Runs one read of a few rows on the caller's own thread: to hand it to another would take
    /// longer than the read.
    async fn glance<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let query = inboxes::with_look(query);
        timing::of(Part::Store, self.signal_readers.glance(query)).await
    }

    /// Runs one read that may take its time: recall, lists of memory.
    async fn read_memory<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let query = move |c: &Connection| {
            if crate::config::failpoint("store.memory_stalls") {
                loop {
                    std::thread::park();
                }
            }
            query(c)
        };
        let query = inboxes::with_look(query);
        timing::of(Part::Store, self.memory_readers.read(query)).await
    }

    /// Runs one read that goes through weeks of rows. Reports take turns, so that they hold one of
    /// the readers of memory and leave the others to recalls; the turn belongs to the read, not to
    /// whoever waits for it.
    async fn read_report<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let turn = self.reports.clone().acquire_owned().await;
        let turn = Arc::new(turn.map_err(|_| StoreError::Closed)?);
        let query = move |c: &Connection| {
            let _turn = turn;
            query(c)
        };
        self.read_memory(query).await
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    pub async fn settle(&self) -> Result<()> {
        timing::of(Part::Store, self.writer.settle()).await
    }

    /// Writes something that changes nothing, and waits until it is on disk. Where a disk was full, what
    /// changes nothing may find room and a row none, so what is written takes some.
    pub async fn ready(&self) -> Result<()> {
        let full = self.full();
        let was_full = match full.since() {
            None => false,
            Some(Since::Lately(why)) => return Err(StoreError::Unwritable(why)),
            Some(Since::Earlier) => true,
        };
        if was_full {
            match self.writes_nothing(full::TAKES_ROOM).await {
                // Whoever may make no table can only see whether anything is taken.
                Err(StoreError::Denied(_)) => {}
                written => {
                    written?;
                    full.is_over();
                    return Ok(());
                }
            }
        }
        let written = self.writes_nothing(full::TAKES_NONE).await;
        if was_full && written.is_ok() {
            full.is_over();
        }
        written
    }

    /// Whether there was no room lately.
    fn full(&self) -> &Full {
        self.pool.as_ref().map_or(&*self.full, |pool| pool.full())
    }

    async fn writes_nothing(&self, shared: &'static str) -> Result<()> {
        let nothing = move |c: &Connection| {
            let embedded = format!("pragma user_version = {}", migrate::NEWEST);
            c.execute_batch(c.either(&embedded, shared)).map_err(failed)
        };
        self.noted(Alone::Inboxes(Vec::new()), nothing).await
    }

    /// Sees whether a disk that was full has room again.
    pub async fn look_for_room(&self) {
        if matches!(self.full().since(), Some(Since::Earlier)) {
            drop(self.ready().await);
        }
    }

    pub async fn close(&self) {
        // What is not given back to a database that is away, others take later.
        let leaving = async {
            drop(self.leave_duties().await);
            drop(self.give_back_jobs(self.taken()).await);
        };
        drop(tokio::time::timeout(LEAVING, leaving).await);
        self.writer.stop().await;
    }
}

/// How long it is tried to leave work to others.
const LEAVING: std::time::Duration = std::time::Duration::from_secs(2);

/// The schema that an older binary left; none when there is nothing to upgrade.
pub fn older_schema(file: &Path) -> Result<Option<usize>> {
    if !file.exists() {
        return Ok(None);
    }
    let found = migrate::schema(&rusqlite::Connection::open(file).map_err(failed)?)?;
    Ok(Some(found).filter(|found| (1..migrate::NEWEST).contains(found)))
}

/// A row that is written beside its project must have found it: two projects may have become one
/// since the caller was admitted.
fn beside_its_project(rows: usize) -> Result<()> {
    match rows {
        1 => Ok(()),
        _ => Err(gone().into()),
    }
}

/// What a caller stood on when it was admitted is no longer there.
fn gone() -> Problem {
    Problem::new(
        Code::UnknownProject,
        "this project has become part of another one",
        "`prism project list` shows what there is; ask again there",
    )
}

/// Names a failure of the engine by what the operator can do about it.
fn failed(error: impl Into<sql::Error>) -> StoreError {
    match error.into() {
        sql::Error::Sqlite(error) => failed_embedded(&error),
        sql::Error::Postgres(error) => pool::failed(&error),
        error @ sql::Error::Silent(_) => StoreError::Again(error.to_string()),
        error => StoreError::Failed(error.to_string()),
    }
}

fn failed_embedded(error: &rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as E;
    let refers_to_nothing = error
        .sqlite_error()
        .is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    if refers_to_nothing {
        return StoreError::Dangling;
    }
    match error.sqlite_error_code() {
        Some(
            E::DiskFull | E::ReadOnly | E::SystemIoFailure | E::CannotOpen | E::PermissionDenied,
        ) => StoreError::Unwritable(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

/// What a write must be alone with, where several write at once.
#[derive(Clone, Debug)]
enum Alone {
    /// With everything, as in the embedded engine.
    Everywhere,
    /// With these inboxes, while others fill and empty theirs.
    Inboxes(Vec<Uuid>),
}

/// How rows come out of SQLite: ids and times are stored as text and integers.
mod column {
    use crate::store::sql::{self, Error, Row};
    use prism_core::Moment;
    use uuid::Uuid;

    pub fn id(row: &Row<'_>, name: &str) -> sql::Result<Uuid> {
        let text: String = row.get(name)?;
        text.parse()
            .map_err(|e: uuid::Error| Error::column(name, e))
    }

    pub fn opt_id(row: &Row<'_>, name: &str) -> sql::Result<Option<Uuid>> {
        Ok(row
            .get::<_, Option<String>>(name)?
            .and_then(|text| text.parse().ok()))
    }

    pub fn moment(row: &Row<'_>, name: &str) -> sql::Result<Moment> {
        row.get(name).map(Moment)
    }

    pub fn opt_moment(row: &Row<'_>, name: &str) -> sql::Result<Option<Moment>> {
        Ok(row.get::<_, Option<i64>>(name)?.map(Moment))
    }

    pub fn parsed<T: TryFrom<String>>(row: &Row<'_>, name: &str) -> sql::Result<T> {
        T::try_from(row.get(name)?).map_err(|_| Error::column(name, "unknown"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Mutex, mpsc};

    #[tokio::test]
    async fn a_row_that_refers_to_nothing_is_told_as_a_merge_only_after_one() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        let dangling = || {
            store.write(|c| {
                c.execute_batch(
                    "insert into projects (id, tenant_id, pid, created_at)
                     values ('a', 'none', 'P', 0)",
                )
                .map_err(failed)
            })
        };
        let before = dangling().await.unwrap_err();
        assert!(matches!(before, StoreError::Dangling), "{before}");
        store.merged.store(true, Ordering::Relaxed);
        let after = dangling().await.unwrap_err();
        assert!(after.to_string().contains("part of another"), "{after}");
        store.close().await;
    }

    #[tokio::test]
    async fn a_store_is_ready_while_it_can_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        store.ready().await.unwrap();
        let full = |c: &Connection| c.execute_batch("pragma query_only = true").map_err(failed);
        store.write(full).await.unwrap();
        let said = store.ready().await.unwrap_err();
        assert!(matches!(said, StoreError::Unwritable(_)), "{said}");
        store.close().await;
    }

    #[tokio::test]
    async fn reads_of_memory_never_take_the_readers_of_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        let (begun, mut under_way) = tokio::sync::mpsc::unbounded_channel();
        let mut held = Vec::new();
        for _ in 0..MEMORY_READERS {
            let (go_on, wait) = mpsc::channel::<()>();
            let (store, begun, wait) = (store.clone(), begun.clone(), Arc::new(Mutex::new(wait)));
            let read = tokio::spawn(async move {
                let read = store.read_memory(move |_| {
                    let _ = begun.send(());
                    let _ = wait.lock().unwrap().recv();
                    Ok(())
                });
                read.await
            });
            held.push((go_on, read));
            under_way.recv().await.unwrap();
        }
        assert!(store.heads(Vec::new()).await.unwrap().is_empty());
        for (go_on, read) in held {
            drop(go_on);
            read.await.unwrap().unwrap();
        }
        store.close().await;
    }

    #[tokio::test]
    async fn reports_never_take_more_than_one_reader_of_memory() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        let (begun, mut under_way) = tokio::sync::mpsc::unbounded_channel();
        let mut held = Vec::new();
        for _ in 0..2 * MEMORY_READERS {
            let (go_on, wait) = mpsc::channel::<()>();
            let (store, begun, wait) = (store.clone(), begun.clone(), Arc::new(Mutex::new(wait)));
            let report = tokio::spawn(async move {
                let report = store.read_report(move |_| {
                    let _ = begun.send(());
                    let _ = wait.lock().unwrap().recv();
                    Ok(())
                });
                report.await
            });
            held.push((go_on, report));
        }
        under_way.recv().await.unwrap();
        // All readers but the one serve at the same time.
        let together = Arc::new(std::sync::Barrier::new(MEMORY_READERS - 1));
        let recalls: Vec<_> = (1..MEMORY_READERS)
            .map(|_| {
                let (store, together) = (store.clone(), together.clone());
                tokio::spawn(async move {
                    let recall = store.read_memory(move |_| {
                        together.wait();
                        Ok(())
                    });
                    recall.await
                })
            })
            .collect();
        for recall in recalls {
            recall.await.unwrap().unwrap();
        }
        assert!(under_way.is_empty(), "the other reports wait their turn");
        for (go_on, report) in held {
            drop(go_on);
            report.await.unwrap().unwrap();
        }
        store.close().await;
    }

    #[tokio::test]
    async fn what_the_settings_count_waits_for_the_turn_of_reports() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        assert!(store.stored().await.is_ok());
        // Nobody is given a turn any more.
        store.reports.close();
        assert!(store.stored().await.is_err());
        assert!(store.project_settings().await.is_err());
        assert!(store.kept(Vec::new()).await.is_err());
        store.close().await;
    }
}
