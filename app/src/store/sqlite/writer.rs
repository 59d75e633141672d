//! The one writer: a thread that runs jobs in order and commits them in groups.
//!
//! Group commit is what makes durable writes cheap: one flush pays for every
//! job that was waiting. A job that can wait rides on the next group.

use super::{Result, StoreError, failed};
use crate::config::failpoint;
use rusqlite::Connection;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// Jobs in one group; more wait for the next.
const GROUP_JOBS_MAX: usize = 512;
/// How long a job that nobody waits for may ride before it is committed on its own.
const RIDE: Duration = Duration::from_millis(20);

/// Runs in the open transaction and returns what to do once its fate is known.
type Job = Box<dyn FnOnce(std::result::Result<&Connection, StoreError>) -> Settle + Send>;
type Settle = Box<dyn FnOnce(std::result::Result<(), StoreError>)>;

enum Message {
    Now(Job),
    Later(Job),
    Stop,
}

pub struct Writer {
    jobs: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub fn start(connection: Connection) -> Result<Self> {
        let (jobs, inbox) = channel();
        let thread = std::thread::Builder::new()
            .name("prism-writer".into())
            .spawn(move || run(&connection, &inbox))
            .map_err(|e| StoreError::Failed(format!("no writer thread: {e}")))?;
        Ok(Self {
            jobs,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs a job and answers once it is on disk. `committed` runs on the
    /// writer thread, in commit order, before the answer.
    pub async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
        committed: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = connection.and_then(|connection| in_savepoint(connection, job));
            Box::new(move |fate| {
                let result = result.and_then(|value| fate.map(|()| value));
                if let Ok(value) = &result {
                    committed(value);
                }
                // The caller may have gone away; the row stands all the same.
                drop(answer.send(result));
            })
        });
        self.jobs
            .send(Message::Now(job))
            .map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Hands over a job that nobody waits for.
    pub fn write_later(
        &self,
        what: &'static str,
        job: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) {
        let job: Job = Box::new(move |connection| {
            let result = connection.and_then(|connection| in_savepoint(connection, job));
            Box::new(move |fate| {
                if let Err(error) = result.and(fate) {
                    tracing::warn!(%error, "Could not write {what}");
                }
            })
        });
        drop(self.jobs.send(Message::Later(job)));
    }

    /// Commits what is queued and ends the thread.
    pub async fn stop(&self) {
        drop(self.jobs.send(Message::Stop));
        let thread = self.thread.lock().ok().and_then(|mut t| t.take());
        if let Some(thread) = thread {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }
}

fn run(connection: &Connection, inbox: &Receiver<Message>) {
    loop {
        let (group, stop) = next_group(inbox);
        if !group.is_empty() {
            commit(connection, group);
        }
        if stop {
            break;
        }
    }
    // A clean stop leaves one file behind instead of three.
    drop(connection.execute_batch("pragma wal_checkpoint(truncate);"));
}

/// Collects jobs until somebody waits for one of them, or the first has ridden long enough.
fn next_group(inbox: &Receiver<Message>) -> (Vec<Job>, bool) {
    let mut group: Vec<Job> = Vec::new();
    let mut leave_at: Option<Instant> = None;
    let mut urgent = false;
    while group.len() < GROUP_JOBS_MAX {
        let message = if urgent {
            inbox.try_recv().map_err(|_| RecvTimeoutError::Timeout)
        } else {
            match leave_at {
                None => inbox.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => inbox.recv_timeout(at.saturating_duration_since(Instant::now())),
            }
        };
        match message {
            Ok(Message::Now(job)) => {
                group.push(job);
                urgent = true;
            }
            Ok(Message::Later(job)) => {
                group.push(job);
                leave_at.get_or_insert_with(|| Instant::now() + RIDE);
            }
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return (group, true),
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    (group, false)
}

fn commit(connection: &Connection, group: Vec<Job>) {
    let begun = connection.execute_batch("begin immediate").map_err(failed);
    let settles: Vec<Settle> = group
        .into_iter()
        .map(|job| job(begun.clone().map(|()| connection)))
        .collect();
    let fate = begun.and_then(|()| connection.execute_batch("commit").map_err(failed));
    if fate.is_err() && !connection.is_autocommit() {
        drop(connection.execute_batch("rollback"));
    }
    if failpoint("writer.answer_late") {
        // Long enough for a test to see the row and hang up before it is answered.
        std::thread::sleep(Duration::from_secs(1));
    }
    for settle in settles {
        settle(fate.clone());
    }
}

/// A job that fails takes back its own writes and nobody else's.
fn in_savepoint<T>(
    connection: &Connection,
    job: impl FnOnce(&Connection) -> Result<T>,
) -> Result<T> {
    if connection.is_autocommit() {
        // A full disk makes SQLite roll the whole group back; what follows in
        // the group must not be written on its own.
        return Err(StoreError::Unwritable(
            "the group this write was part of was rolled back".into(),
        ));
    }
    let run = |sql: &str| {
        connection
            .prepare_cached(sql)
            .and_then(|mut s| s.execute([]))
            .map_err(failed)
    };
    run("savepoint job")?;
    let result = catch_unwind(AssertUnwindSafe(|| job(connection)))
        .unwrap_or_else(|_| Err(StoreError::Failed("a write panicked".into())));
    if result.is_err() && !connection.is_autocommit() {
        run("rollback to job")?;
    }
    run("release job")?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writer() -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("create table t (x integer unique)")
            .unwrap();
        Writer::start(connection).unwrap()
    }

    fn insert(x: i64) -> impl FnOnce(&Connection) -> Result<i64> + Send + 'static {
        move |c| {
            c.execute("insert into t values (?)", [x])
                .map(|_| x)
                .map_err(failed)
        }
    }

    fn count(c: &Connection) -> Result<i64> {
        c.query_row("select count(*) from t", [], |r| r.get(0))
            .map_err(failed)
    }

    #[tokio::test]
    async fn a_job_that_fails_or_panics_takes_back_only_its_own_writes() {
        let writer = writer();
        writer.write(insert(1), |_| ()).await.unwrap();
        let failing = writer.write(
            |c| {
                insert(2)(c)?;
                Err::<(), _>(StoreError::Failed("no".into()))
            },
            |_| (),
        );
        assert!(failing.await.is_err());
        assert!(
            writer
                .write(
                    |c| {
                        insert(3)(c)?;
                        if true {
                            panic!("boom")
                        }
                        Ok(())
                    },
                    |_| ()
                )
                .await
                .is_err()
        );
        writer.write(insert(4), |_| ()).await.unwrap();
        assert_eq!(writer.write(count, |_| ()).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_job_nobody_waits_for_is_committed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.db");
        let connection = Connection::open(&file).unwrap();
        connection
            .execute_batch("create table t (x integer unique)")
            .unwrap();
        let writer = Writer::start(connection).unwrap();
        writer.write_later("a test row", |c| insert(1)(c).map(drop));
        writer.stop().await;
        assert_eq!(count(&Connection::open(&file).unwrap()).unwrap(), 1);
        assert!(matches!(
            writer.write(count, |_| ()).await,
            Err(StoreError::Closed)
        ));
    }

    #[tokio::test]
    async fn commits_are_told_in_order_and_before_the_answer() {
        let writer = std::sync::Arc::new(writer());
        let told = std::sync::Arc::new(Mutex::new(Vec::new()));
        let sends = (0..100).map(|x| {
            let (writer, told) = (writer.clone(), told.clone());
            async move {
                let seen = told.clone();
                writer
                    .write(insert(x), move |x| seen.lock().unwrap().push(*x))
                    .await
                    .unwrap();
                assert!(told.lock().unwrap().contains(&x));
            }
        });
        futures_util::future::join_all(sends).await;
        assert_eq!(*told.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }
}
