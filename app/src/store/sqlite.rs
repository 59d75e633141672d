//! The embedded store: one SQLite file, one writer thread, and readers of two kinds.

mod candidates;
mod directory;
mod embed_queue;
mod escalation;
mod gate;
mod graph;
mod inboxes;
mod memory;
mod metrics;
mod migrate;
mod opening;
mod page;
#[cfg(test)]
mod plans;
mod probe;
mod projects;
mod proven;
mod readers;
mod recall_events;
mod retention;
mod riding;
mod rot;
mod rows;
mod sessions;
mod signals;
mod trace;
mod training;
mod vectors;
mod verdicts;
mod writer;

use super::{Result, StoreError};
use crate::bus::Bus;
pub use candidates::WordHits;
use prism_core::{Code, Problem};
use readers::Readers;
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::Notify;

/// Readers of a signal's way: reads are short, so a few serve many callers.
const SIGNAL_READERS: usize = 3;
/// Readers of memory: as many recalls, lists and reports run at once.
const MEMORY_READERS: usize = 4;
/// Pages that a reader keeps, in kilobytes. A signal's way reads a few pages here and there, and a
/// long history has ever others: keeping them would only cost memory.
const SIGNAL_CACHE_KB: u32 = 2_000;
const MEMORY_CACHE_KB: u32 = 8_000;

#[derive(Clone)]
pub struct Sqlite {
    writer: Arc<writer::Writer>,
    signal_readers: Readers,
    memory_readers: Readers,
    vectors: Arc<vectors::Vectors>,
    bus: Bus,
    riding: Arc<riding::Riding>,
    inboxes: Arc<inboxes::Inboxes>,
    /// Told whenever a row may wait for its vectors.
    embed_wanted: Arc<Notify>,
}

impl Sqlite {
    pub fn open(file: &Path) -> Result<Self> {
        let mut connection = Connection::open(file).map_err(failed)?;
        let bus = Bus::default();
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
        migrate::migrate(&mut connection)?;
        let signal_readers = Readers::open(file, SIGNAL_READERS, SIGNAL_CACHE_KB)?;
        let memory_readers = Readers::open(file, MEMORY_READERS, MEMORY_CACHE_KB)?;
        let riding = Arc::<riding::Riding>::default();
        let live = bus.hub().live();
        let writer = writer::Writer::start(connection, riding.clone(), live)?;
        Ok(Self {
            writer: Arc::new(writer),
            signal_readers,
            memory_readers,
            vectors: Arc::default(),
            bus,
            riding,
            inboxes: Arc::default(),
            embed_wanted: Arc::default(),
        })
    }

    /// Runs one transaction on the writer thread and waits until it is on disk.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.write(job, |value| value).await
    }

    /// Runs one short read of a signal's way; it never waits behind a recall.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.signal_readers.read(query).await
    }

    /// Runs one read that may take its time: recall, lists of memory, reports.
    async fn read_memory<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let query = move |c: &Connection| {
            if crate::config::failpoint("store.memory_stalls") {
                loop {
                    std::thread::park();
                }
            }
            query(c)
        };
        self.memory_readers.read(query).await
    }

    pub fn bus(&self) -> &Bus {
        &self.bus
    }

    pub async fn settle(&self) -> Result<()> {
        self.writer.settle().await
    }

    pub async fn close(&self) {
        self.writer.stop().await;
    }
}

/// The schema that an older binary left; none when there is nothing to upgrade.
pub fn older_schema(file: &Path) -> Result<Option<usize>> {
    if !file.exists() {
        return Ok(None);
    }
    let found = migrate::schema(&Connection::open(file).map_err(failed)?)?;
    Ok(Some(found).filter(|found| (1..migrate::NEWEST).contains(found)))
}

/// Copies a database whole, with what its log still holds.
pub fn copy(file: &Path, to: &Path) -> Result<()> {
    let from = Connection::open(file).map_err(failed)?;
    let progress: Option<fn(rusqlite::backup::Progress)> = None;
    from.backup("main", to, progress).map_err(failed)
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

/// Names a failure of SQLite by what the operator can do about it.
fn failed(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as E;
    // Projects and personas go in a merge alone; whoever was admitted before it is told.
    let refers_to_nothing = error
        .sqlite_error()
        .is_some_and(|e| e.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY);
    if refers_to_nothing {
        return gone().into();
    }
    match error.sqlite_error_code() {
        Some(
            E::DiskFull | E::ReadOnly | E::SystemIoFailure | E::CannotOpen | E::PermissionDenied,
        ) => StoreError::Unwritable(error.to_string()),
        _ => StoreError::Failed(error.to_string()),
    }
}

/// How rows come out of SQLite: ids and times are stored as text and integers.
mod column {
    use prism_core::Moment;
    use rusqlite::{Row, types::Type};
    use uuid::Uuid;

    pub fn id(row: &Row<'_>, name: &str) -> rusqlite::Result<Uuid> {
        let text: String = row.get(name)?;
        text.parse().map_err(|e: uuid::Error| {
            rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(e))
        })
    }

    pub fn opt_id(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Uuid>> {
        Ok(row
            .get::<_, Option<String>>(name)?
            .and_then(|text| text.parse().ok()))
    }

    pub fn moment(row: &Row<'_>, name: &str) -> rusqlite::Result<Moment> {
        row.get(name).map(Moment)
    }

    pub fn opt_moment(row: &Row<'_>, name: &str) -> rusqlite::Result<Option<Moment>> {
        Ok(row.get::<_, Option<i64>>(name)?.map(Moment))
    }

    pub fn parsed<T: TryFrom<String>>(row: &Row<'_>, name: &str) -> rusqlite::Result<T> {
        T::try_from(row.get(name)?)
            .map_err(|_| rusqlite::Error::InvalidColumnType(0, name.to_owned(), Type::Text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn reads_of_memory_never_take_the_readers_of_a_signal() {
        let dir = tempfile::tempdir().unwrap();
        let store = Sqlite::open(&dir.path().join("x.db")).unwrap();
        let (begun, mut under_way) = tokio::sync::mpsc::unbounded_channel();
        let mut held = Vec::new();
        for _ in 0..MEMORY_READERS {
            let (go_on, wait) = mpsc::channel::<()>();
            let (store, begun) = (store.clone(), begun.clone());
            let read = tokio::spawn(async move {
                let read = store.read_memory(move |_| {
                    let _ = begun.send(());
                    let _ = wait.recv();
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
}
