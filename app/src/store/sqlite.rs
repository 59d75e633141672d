//! The embedded store: one SQLite file, one writer thread, a few readers.

mod candidates;
mod directory;
mod memory;
mod migrate;
#[cfg(test)]
mod plans;
mod proof;
mod recall;
mod sessions;
mod signals;
mod upkeep;
mod vectors;
mod writer;

use super::{Result, StoreError};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, Semaphore};

/// Read-only connections; reads are short, so a few serve many callers.
const READERS: usize = 4;

#[derive(Clone)]
pub struct Sqlite {
    writer: Arc<writer::Writer>,
    readers: Arc<Readers>,
    vectors: Arc<vectors::Vectors>,
    /// Told whenever a row may wait for its vectors.
    embed_wanted: Arc<Notify>,
}

struct Readers {
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
}

impl Sqlite {
    pub fn open(file: &Path) -> Result<Self> {
        let mut connection = Connection::open(file).map_err(failed)?;
        connection
            .execute_batch(
                "pragma journal_mode = wal; pragma synchronous = full; pragma foreign_keys = on; pragma busy_timeout = 5000;
                 pragma temp_store = memory; pragma cache_size = -8000; pragma journal_size_limit = 16777216;",
            )
            .map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(128);
        migrate::migrate(&mut connection)?;
        let readers = (0..READERS)
            .map(|_| reader(file))
            .collect::<Result<Vec<_>>>()?;
        let writer = writer::Writer::start(connection)?;
        Ok(Self {
            writer: Arc::new(writer),
            readers: Arc::new(Readers {
                idle: Mutex::new(readers),
                permits: Semaphore::new(READERS),
            }),
            vectors: Arc::default(),
            embed_wanted: Arc::default(),
        })
    }

    /// Runs one transaction on the writer thread and waits until it is on disk.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.write(job, |_| ()).await
    }

    /// Runs one read on a connection of its own, in one snapshot.
    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = self.readers.clone();
        let _permit = readers
            .permits
            .acquire()
            .await
            .map_err(|_| StoreError::Closed)?;
        let pool = self.readers.clone();
        tokio::task::spawn_blocking(move || {
            let connection = pool
                .idle
                .lock()
                .ok()
                .and_then(|mut idle| idle.pop())
                .ok_or(StoreError::Closed)?;
            let result = snapshot(&connection, query);
            if let Ok(mut idle) = pool.idle.lock() {
                idle.push(connection);
            }
            result
        })
        .await
        .map_err(|_| StoreError::Failed("a read was cut short".into()))?
    }

    pub async fn settle(&self) -> Result<()> {
        self.write(|_| Ok(())).await
    }

    pub async fn close(&self) {
        self.writer.stop().await;
    }
}

fn reader(file: &Path) -> Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_URI;
    let connection = Connection::open_with_flags(file, flags).map_err(failed)?;
    connection
        .execute_batch(
            "pragma busy_timeout = 5000; pragma temp_store = memory; pragma cache_size = -8000;",
        )
        .map_err(failed)?;
    connection.set_prepared_statement_cache_capacity(128);
    Ok(connection)
}

fn snapshot<T>(connection: &Connection, query: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
    connection.execute_batch("begin").map_err(failed)?;
    let result = query(connection);
    connection.execute_batch("commit").map_err(failed)?;
    result
}

/// Names a failure of SQLite by what the operator can do about it.
fn failed(error: rusqlite::Error) -> StoreError {
    use rusqlite::ErrorCode as E;
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
