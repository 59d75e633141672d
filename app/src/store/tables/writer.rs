//! The one writer: a thread that runs jobs in order and commits them in groups.
//!
//! Group commit is what makes durable writes cheap: one flush pays for every
//! job that was waiting. A job that can wait rides on the next group.

use super::page::changes::watched;
use super::riding::{RIDE, Riding};
use super::{Alone, Result, StoreError, failed, pool};
use crate::config::failpoint;
use crate::live::{self, Live, Touched};
use crate::store::sql::Connection;
use prism_core::limits::{LATER_JOBS_MAX, PAGE_CHANGES_MAX, WRITER_JOBS_MAX};
use rusqlite::hooks::Action;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Jobs in one group; more wait for the next.
const GROUP_JOBS_MAX: usize = 512;

/// Runs in the open transaction and returns what to do once its fate is known.
type Job = Box<dyn FnOnce(std::result::Result<&Connection, StoreError>) -> Settle + Send>;
type Settle = Box<dyn FnOnce(std::result::Result<(), StoreError>)>;

/// A job and its place in the queue, given back when the job is done.
struct Queued {
    job: Job,
    place: OwnedSemaphorePermit,
}

enum Message {
    Now(Queued),
    Later(Queued),
    /// Something rides that nobody waits for.
    Riding,
    Stop,
}

/// Where the writer's connection comes from.
pub enum Ground {
    /// It has one for itself.
    Own(Connection),
    /// It borrows one for each group from those that all tenants share.
    Shared(Arc<pool::Pool>),
}

impl From<Connection> for Ground {
    fn from(connection: Connection) -> Self {
        Self::Own(connection)
    }
}

impl Ground {
    /// Runs something with a connection, or with why there is none.
    fn with<T>(&mut self, work: impl FnOnce(Result<&Connection>) -> T) -> T {
        match self {
            Self::Own(connection) => work(Ok(connection)),
            Self::Shared(pool) => match pool.lend() {
                Ok(lent) => {
                    let done = work(Ok(&lent.connection));
                    pool.give_back(lent);
                    done
                }
                Err(error) => {
                    tracing::warn!(%error, "The database is away");
                    work(Err(error))
                }
            },
        }
    }
}

pub struct Writer {
    jobs: Sender<Message>,
    /// Places in the queue: whoever finds none waits, so that the queue's memory is bounded.
    places: Arc<Semaphore>,
    later_places: Arc<Semaphore>,
    riding: Arc<Riding>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    pub fn start(ground: impl Into<Ground>, riding: Arc<Riding>, live: Arc<Live>) -> Result<Self> {
        let mut ground = ground.into();
        let touched = Arc::<Mutex<Vec<Touched>>>::default();
        if let Ground::Own(connection) = &mut ground {
            note_what_is_touched(connection, touched.clone(), live.clone())?;
        }
        let (jobs, inbox) = channel();
        let rides = riding.clone();
        let thread = std::thread::Builder::new()
            .name("prism-writer".into())
            .spawn(move || run(ground, &inbox, &rides, &Telling { touched, live }))
            .map_err(|e| StoreError::Failed(format!("no writer thread: {e}")))?;
        Ok(Self {
            jobs,
            places: Arc::new(Semaphore::new(WRITER_JOBS_MAX)),
            later_places: Arc::new(Semaphore::new(LATER_JOBS_MAX)),
            riding,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Runs a job and answers once it is on disk. `then` runs on the writer's thread, in commit
    /// order, whether or not anybody still waits for the answer it makes.
    pub async fn write<T: 'static, U: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
        then: impl FnOnce(T) -> U + Send + 'static,
    ) -> Result<U> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = connection.and_then(|connection| in_savepoint(connection, job));
            Box::new(move |fate| {
                let result = result.and_then(|value| fate.map(|()| then(value)));
                // The caller may have gone away; the row stands all the same.
                drop(answer.send(result));
            })
        });
        let place = self.places.clone().acquire_owned().await;
        let place = place.map_err(|_| StoreError::Closed)?;
        let queued = Queued { job, place };
        self.jobs
            .send(Message::Now(queued))
            .map_err(|_| StoreError::Closed)?;
        answered.await.map_err(|_| StoreError::Closed)?
    }

    /// Hands over a job that nobody waits for.
    pub fn write_later(
        &self,
        what: &'static str,
        job: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
    ) {
        self.write_later_then(what, job, || ());
    }

    /// The same, and does something once it is committed.
    pub fn write_later_then(
        &self,
        what: &'static str,
        job: impl FnOnce(&Connection) -> Result<()> + Send + 'static,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Ok(place) = self.later_places.clone().try_acquire_owned() else {
            tracing::error!(
                "Could not write {what}: {LATER_JOBS_MAX} writes that nobody waits for are queued \
                 already; is the disk of $PRISM_HOME keeping up?"
            );
            return;
        };
        let job: Job = Box::new(move |connection| {
            let result = connection.and_then(|connection| in_savepoint(connection, job));
            Box::new(move |fate| match result.and(fate) {
                Ok(()) => then(),
                Err(error) => tracing::warn!(%error, "Could not write {what}"),
            })
        });
        drop(self.jobs.send(Message::Later(Queued { job, place })));
    }

    /// Says that something has begun to ride.
    pub fn something_rides(&self) {
        drop(self.jobs.send(Message::Riding));
    }

    /// Waits until everything handed over so far can be read; as long as any write for a database that is away.
    pub async fn settle(&self) -> Result<()> {
        let (began, mut wait) = (Instant::now(), pool::WAIT);
        loop {
            // A job gives its place back when it is committed.
            let none_later = self.later_places.available_permits() == LATER_JOBS_MAX;
            if none_later && self.riding.is_settled() {
                return Ok(());
            }
            self.riding.want();
            match self.write(|_| Ok(()), |()| ()).await {
                Err(StoreError::Again(_)) if began.elapsed() < pool::AWAY => {}
                settled => return settled,
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(pool::WAIT_MAX);
        }
    }

    /// Commits what is queued and ends the thread.
    pub async fn stop(&self) {
        self.riding.want();
        drop(self.jobs.send(Message::Stop));
        let thread = self.thread.lock().ok().and_then(|mut t| t.take());
        if let Some(thread) = thread {
            drop(tokio::task::spawn_blocking(move || thread.join()).await);
        }
    }
}

/// What the open transaction has touched, and who is told of it once it stands.
struct Telling {
    touched: Arc<Mutex<Vec<Touched>>>,
    live: Arc<Live>,
}

impl Telling {
    /// Adds what the engine has noted by itself.
    fn note(&self, noted: &str) {
        match live::noted(noted) {
            Some(more) => drop(self.touched.lock().map(|mut touched| touched.extend(more))),
            None => self.live.too_many(),
        }
    }

    /// Tells of a commit, or forgets what came to nothing. Where nobody watched when it began, not all
    /// of it was noted: whoever came meanwhile reads everything again.
    fn settle(&self, committed: bool, unwatched: bool, signals: Vec<Touched>) {
        let touched = self.touched.lock().map(|mut t| std::mem::take(&mut *t));
        if committed && let Ok(touched) = touched {
            let came_meanwhile = unwatched && self.live.watching() > 0;
            if touched.len() > PAGE_CHANGES_MAX || came_meanwhile {
                self.live.too_many();
            }
            self.live.touched(touched.into_iter().chain(signals));
        }
    }
}

/// Has SQLite say which rows are written, while anybody watches.
fn note_what_is_touched(
    connection: &mut Connection,
    touched: Arc<Mutex<Vec<Touched>>>,
    live: Arc<Live>,
) -> Result<()> {
    let hook = move |action: Action, _: &str, table: &str, row: i64| {
        if live.watching() == 0 {
            return;
        }
        if let Some(table) = watched(action, table)
            && let Ok(mut touched) = touched.lock()
            && touched.len() <= PAGE_CHANGES_MAX
        {
            touched.push(Touched::Row(table, row));
        }
    };
    match connection {
        Connection::Sqlite(c) => c.update_hook(Some(hook)).map_err(failed),
        Connection::Postgres(_) => Ok(()),
    }
}

fn run(mut ground: Ground, inbox: &Receiver<Message>, riding: &Riding, telling: &Telling) {
    loop {
        let (group, stop) = next_group(inbox, riding);
        ground.with(|connection| commit(connection, group, riding, telling));
        if stop {
            break;
        }
    }
    if let Ground::Own(Connection::Sqlite(c)) = &ground {
        // A clean stop leaves one file behind instead of three.
        drop(c.execute_batch("pragma wal_checkpoint(truncate);"));
    }
}

/// Collects jobs until somebody waits for one of them, or something has ridden long enough.
fn next_group(inbox: &Receiver<Message>, riding: &Riding) -> (Vec<Queued>, bool) {
    let mut group: Vec<Queued> = Vec::new();
    let mut leave_at = riding.due_at();
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
                leave_at = leave_at.into_iter().chain([Instant::now() + RIDE]).min();
            }
            Ok(Message::Riding) => leave_at = leave_at.into_iter().chain(riding.due_at()).min(),
            Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return (group, true),
            Err(RecvTimeoutError::Timeout) => break,
        }
    }
    (group, false)
}

fn commit(connection: Result<&Connection>, group: Vec<Queued>, riding: &Riding, telling: &Telling) {
    let unwatched = telling.live.watching() == 0;
    let begun = connection.clone().and_then(|c| {
        c.begin_writing().map_err(failed)?;
        if !unwatched {
            c.note_touched();
        }
        // Others write beside it, but nobody who must be alone.
        pool::lock(c, &Alone::Inboxes(Vec::new()));
        // A database that is away keeps what rides from leaving.
        c.flush().map(|()| c).map_err(failed)
    });
    // What rides goes first: a job may want to read it.
    let carried = match &begun {
        Ok(c) if riding.is_due() => {
            let taken = riding.take();
            let written = in_savepoint(c, |c| taken.write(c));
            Some(taken.tried(written))
        }
        _ => None,
    };
    let mut places = Vec::with_capacity(group.len());
    let mut settles: Vec<Settle> = Vec::with_capacity(group.len());
    for Queued { job, place } in group {
        settles.push(job(begun.clone()));
        places.push(place);
    }
    let fate = begun.and_then(|c| match unwatched {
        true => c.commit().map_err(failed),
        false => c
            .commit_noted()
            .map_err(failed)
            .map(|noted| telling.note(&noted)),
    });
    if let (Err(_), Ok(connection)) = (&fate, connection)
        && !connection.is_autocommit()
    {
        drop(connection.rollback());
    }
    let reported = match (&carried, telling.live.watching()) {
        (Some(taken), 1..) => taken.signals().map(Touched::Signal).collect(),
        _ => Vec::new(),
    };
    telling.settle(fate.is_ok(), unwatched, reported);
    // Before anybody is answered: what the answers bring is newer.
    let to_keep = carried.and_then(|taken| match taken.is_settled(fate.is_ok()) {
        true => {
            riding.keep_strangers(taken);
            None
        }
        false => Some(taken),
    });
    if fate.is_err() || to_keep.is_some() {
        riding.keep(to_keep);
    }
    riding.arrived();
    if failpoint("writer.answer_late") {
        // Long enough for a test to see the row and hang up before it is answered.
        std::thread::sleep(Duration::from_secs(1));
    }
    for settle in settles {
        // Whoever is told of a commit may fail; the rows stand, and the writer goes on.
        if catch_unwind(AssertUnwindSafe(|| settle(fate.clone()))).is_err() {
            tracing::error!("Telling of a commit panicked");
        }
    }
}

/// A job that fails takes back its own writes and nobody else's.
pub(super) fn in_savepoint<T>(
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
    let run = |sql: &str| connection.run(sql).map_err(failed);
    run("savepoint job")?;
    let result = catch_unwind(AssertUnwindSafe(|| job(connection)))
        .unwrap_or_else(|_| Err(StoreError::Failed("a write panicked".into())));
    let result = result.and_then(|value| connection.flush().map(|()| value).map_err(failed));
    if result.is_err() && !connection.is_autocommit() {
        connection.back_to("job").map_err(failed)?;
    }
    run("release job")?;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Report;
    use crate::store::sql::OptionalExtension;
    use prism_core::Moment;
    use prism_core::receipt::State;
    use uuid::Uuid;

    fn writer() -> Writer {
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("create table t (x integer unique)")
            .unwrap();
        Writer::start(connection, Arc::default(), Arc::default()).unwrap()
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
        assert_eq!(writer.write(count, |n| n).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_job_nobody_waits_for_is_committed_all_the_same() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("t.db");
        let connection = Connection::open(&file).unwrap();
        connection
            .execute_batch("create table t (x integer unique)")
            .unwrap();
        let writer = Writer::start(connection, Arc::default(), Arc::default()).unwrap();
        writer.write_later("a test row", |c| insert(1)(c).map(drop));
        writer.stop().await;
        assert_eq!(count(&Connection::open(&file).unwrap()).unwrap(), 1);
        assert!(matches!(
            writer.write(count, |n| n).await,
            Err(StoreError::Closed)
        ));
    }

    #[tokio::test]
    async fn what_nobody_waits_for_is_refused_when_the_queue_is_full() {
        let writer = writer();
        let (block, blocked) = std::sync::mpsc::channel::<()>();
        let busy = writer.write(
            move |_| {
                let _ = blocked.recv();
                Ok(())
            },
            |()| (),
        );
        tokio::pin!(busy);
        // The writer is held up by the first job from here on.
        assert!(futures_util::poll!(busy.as_mut()).is_pending());
        for x in 0..LATER_JOBS_MAX as i64 + 10 {
            writer.write_later("a test row", move |c| insert(x)(c).map(drop));
        }
        block.send(()).unwrap();
        busy.await.unwrap();
        let written = writer.write(count, |n| n).await.unwrap();
        assert_eq!(written, LATER_JOBS_MAX as i64);
    }

    #[tokio::test]
    async fn settling_waits_for_what_is_not_on_disk_and_for_nothing_else() {
        let riding = Arc::<Riding>::default();
        let connection = Connection::open_in_memory().unwrap();
        let writer = Writer::start(connection, riding.clone(), Arc::default()).unwrap();
        let (block, blocked) = std::sync::mpsc::channel::<()>();
        let busy = writer.write(
            move |_| {
                let _ = blocked.recv();
                Ok(())
            },
            |()| (),
        );
        tokio::pin!(busy);
        // The writer is held up from here on.
        assert!(futures_util::poll!(busy.as_mut()).is_pending());
        let settled = || Box::pin(writer.settle());
        assert!(futures_util::poll!(settled().as_mut()).is_ready());
        writer.write_later("nothing", |_| Ok(()));
        let mut later = settled();
        assert!(futures_util::poll!(later.as_mut()).is_pending());
        riding.add_bells(Vec::new());
        let mut rides = settled();
        assert!(futures_util::poll!(rides.as_mut()).is_pending());
        block.send(()).unwrap();
        busy.await.unwrap();
        later.await.unwrap();
        rides.await.unwrap();
        // A job's place comes back right after whoever waited for it was told.
        while futures_util::poll!(settled().as_mut()).is_pending() {
            tokio::task::yield_now().await;
        }
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
                    .write(insert(x), move |x| seen.lock().unwrap().push(x))
                    .await
                    .unwrap();
                assert!(told.lock().unwrap().contains(&x));
            }
        });
        futures_util::future::join_all(sends).await;
        assert_eq!(*told.lock().unwrap(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn whoever_begins_to_watch_during_a_commit_reads_everything_after_it() {
        let live = Arc::<Live>::default();
        let connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch("create table memory (x integer unique)")
            .unwrap();
        let writer = Writer::start(connection, Arc::default(), live.clone()).unwrap();
        let joining = live.clone();
        let written = writer.write(
            move |c| {
                c.execute("insert into memory values (1)", [])
                    .map_err(failed)?;
                joining.join(crate::live::Watcher::new(Uuid::nil(), None));
                Ok(())
            },
            |()| (),
        );
        written.await.unwrap();
        assert!(matches!(live.take().0, crate::live::Told::TooMany));
        let row = |c: &Connection| {
            c.execute("insert into memory values (2)", [])
                .map(drop)
                .map_err(failed)
        };
        writer.write(row, |()| ()).await.unwrap();
        assert!(matches!(live.take().0, crate::live::Told::These(one) if one.len() == 1));
    }

    #[tokio::test]
    async fn receipts_that_a_commit_could_not_carry_are_carried_by_a_later_one() {
        let mut connection = Connection::open_in_memory().unwrap();
        super::super::migrate::migrate(&mut connection).unwrap();
        // A child without its parent fails the commit. Of the signal and the session that the receipts speak of
        // only that they are there matters here.
        connection
            .execute_batch(
                "drop table deliveries;
                 create table deliveries (signal_id, session_id, pushed_at, received_at, rung_at,
                    rendered_at, drained_at, strategy, rendered_by, via, pushed_by, hop_us, primary key (signal_id, session_id));
                 create temp table signal_queue as select * from main.signal_queue;
                 create temp table sessions as select * from main.sessions;
                 insert into signal_queue (id) values ('00000000-0000-0000-0000-000000000001');
                 insert into sessions (id) values ('00000000-0000-0000-0000-000000000002');
                 create table parent (x integer primary key);
                 create table child (x references parent(x) deferrable initially deferred);
                 pragma foreign_keys = on;",
            )
            .unwrap();
        let riding = Arc::<Riding>::default();
        let writer = Writer::start(connection, riding.clone(), Arc::default()).unwrap();
        let at = |state, at| Report {
            signal_id: Uuid::from_u128(1),
            session_id: Uuid::from_u128(2),
            state,
            strategy: None,
            via: None,
            hop_us: None,
            at: Moment(at),
        };
        let known = || async {
            let times = "select pushed_at, received_at, rung_at from deliveries";
            let row = writer.write(
                move |c| {
                    c.query_row(times, [], |r| Ok([r.get(0)?, r.get(1)?, r.get(2)?]))
                        .optional()
                        .map_err(failed)
                },
                |row: Option<[Option<i64>; 3]>| row,
            );
            row.await.unwrap()
        };
        riding.add(&[at(State::Pushed, 1)]).await;
        riding.want();
        let fails = writer.write(
            |c| {
                c.execute_batch("insert into child values (7)")
                    .map_err(failed)
            },
            |()| (),
        );
        assert!(fails.await.is_err());
        riding.add(&[at(State::Received, 2)]).await;
        riding
            .add(&[at(State::Pushed, 3), at(State::Rung, 4)])
            .await;
        writer.settle().await.unwrap();
        assert_eq!(known().await, Some([Some(1), Some(2), Some(4)]));
    }
}
