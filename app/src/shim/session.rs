//! One registered session: what it is, how far it has come, what it has handed over.

use super::cache::Cache;
use super::files::ShimFile;
use super::hooks::Hooks;
use super::tee::Tee;
use super::{git, probe};
use crate::client::Client;
use crate::clock;
use crate::config;
use crate::home::Home;
use prism_core::bell::Notice;
use prism_core::delivery::Drained;
use prism_core::limits::{ADDED_LIST_BYTES_MAX, BODY_BYTES_MAX, LEASE_AHEAD_US, PENDING_MAX};
use prism_core::memory::surface::{Warning, first_files};
use prism_core::presence::Surface;
use prism_core::ring::Which;
use prism_core::{Identity, Moment};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// Signals remembered as handed to the host, in case the stream brings them later.
const HANDED_MAX: usize = 5 * PENDING_MAX;
/// The first and the longest pause between two tries to confirm a drain.
const CONFIRM_PAUSE: Duration = Duration::from_millis(100);
const CONFIRM_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A drain whose signals the host has, and of which the server has not heard that yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Unconfirmed {
    pub pid: String,
    pub lease_id: Uuid,
}

/// A place in an inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub seq: i64,
    /// The signal that has it, if this session has seen that.
    pub id: Option<Uuid>,
}

pub struct Session {
    pub id: Uuid,
    pub pid: String,
    pub project_id: Uuid,
    pub identity: Identity,
    pub surface: Surface,
    pub client: Client,
    pub cache: Cache,
    pub tee: Tee,
    pub probes: probe::Probes,
    /// Whether the stream has said hello.
    pub connected: watch::Sender<bool>,
    /// Whether its host was told of what waited from before.
    pub greeted: AtomicBool,
    /// The operator took its key away: another session needs another key.
    pub revoked: AtomicBool,
    /// Set when the session is over, so that its stream ends.
    pub over: watch::Sender<bool>,
    unconfirmed: watch::Sender<Vec<Unconfirmed>>,
    /// How far this session itself has come in its inbox; the ring's cursor is its siblings', too.
    cursor: Mutex<Option<Place>>,
    /// The copy of the store in which it has come so far, where the server says which.
    copy: Mutex<Option<String>>,
    handed: Mutex<VecDeque<Uuid>>,
    /// When some were handed over last.
    handed_at: Mutex<Option<Moment>>,
    /// Told whenever something may wait in the inbox that did not before.
    pub(super) news: Notify,
    /// The repository as it was when the session opened; none outside of one.
    baseline: tokio::sync::OnceCell<Option<git::Baseline>>,
    pub(super) endpoint: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// What the host's hooks have said and been told.
    pub hooks: Hooks,
    /// What stands in the file that others find this shim by.
    pub(super) file: Mutex<Option<ShimFile>>,
}

/// What a session is made of once the server has registered it.
pub struct Registered {
    pub id: Uuid,
    pub pid: String,
    pub project_id: Uuid,
    pub identity: Identity,
    pub surface: Surface,
    pub client: Client,
    pub cache: Cache,
    pub tee: Tee,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Session {
    pub fn new(registered: Registered) -> Self {
        Self {
            id: registered.id,
            pid: registered.pid,
            project_id: registered.project_id,
            identity: registered.identity,
            surface: registered.surface,
            client: registered.client,
            cache: registered.cache,
            tee: registered.tee,
            probes: probe::Probes::default(),
            connected: watch::Sender::new(false),
            greeted: AtomicBool::new(false),
            revoked: AtomicBool::new(false),
            over: watch::Sender::new(false),
            unconfirmed: watch::Sender::default(),
            cursor: Mutex::default(),
            copy: Mutex::default(),
            handed: Mutex::default(),
            handed_at: Mutex::default(),
            news: Notify::new(),
            baseline: tokio::sync::OnceCell::new(),
            endpoint: Mutex::default(),
            hooks: Hooks::default(),
            file: Mutex::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    pub(super) fn end(&self) {
        self.over.send_replace(true);
        self.connected.send_replace(false);
        if let Some(task) = lock(&self.endpoint).take() {
            task.abort();
        }
    }

    /// Whether this identity has an inbox at all.
    pub fn has_inbox(&self) -> bool {
        !self.identity.is(prism_core::id::BOT)
    }

    /// The host calls the session so: from now on it is found by that name.
    pub(super) fn is_called(&self, home: &Home, host_session: &str) {
        let mut file = lock(&self.file);
        let Some(file) = file.as_mut().filter(|_| !self.is_over()) else {
            return;
        };
        if file.host_session.as_deref() == Some(host_session) {
            return;
        }
        file.host_session = Some(host_session.to_owned());
        let written = serde_json::to_vec(file)
            .map_err(anyhow::Error::from)
            .and_then(|json| home.write(&ShimFile::name(self.id), &json));
        if let Err(error) = written {
            tracing::warn!(%error, "Hooks will not find this session by its new name");
        }
    }

    /// Waits until the stream has said hello; false after two seconds.
    pub async fn is_connected_soon(&self) -> bool {
        let mut connected = self.connected.subscribe();
        tokio::time::timeout(Duration::from_secs(2), connected.wait_for(|c| *c))
            .await
            .is_ok_and(|r| r.is_ok())
    }

    /// A session belongs to one project; in another the identity acts without it.
    pub fn client_for(&self, pid: &str) -> Client {
        if pid == self.pid {
            self.client.clone()
        } else {
            self.client.with_session(None)
        }
    }

    /// How far this session has come in its inbox; nothing before its first backlog.
    pub fn cursor(&self) -> Option<Place> {
        *lock(&self.cursor)
    }

    pub(super) fn has_come_to(&self, seq: i64, id: Option<Uuid>) {
        let mut cursor = lock(&self.cursor);
        if cursor.is_none_or(|at| at.seq < seq || (at.seq == seq && id.is_some())) {
            *cursor = Some(Place { seq, id });
        }
        self.news.notify_waiters();
    }

    /// Which copy of the store the cursor is of.
    pub(super) fn copy(&self) -> Option<String> {
        lock(&self.copy).clone()
    }

    pub(super) fn reads(&self, copy: Option<String>) {
        *lock(&self.copy) = copy;
    }

    /// The inbox is another copy of the one that this session had come so far in: it says so, or
    /// it reaches less far.
    pub(super) fn forget_cursor_of_another(&self, head: i64, restarted: bool) {
        let mut cursor = lock(&self.cursor);
        *cursor = cursor.filter(|at| at.seq <= head && !restarted);
    }

    /// Whether this session's host was handed a signal already.
    pub fn was_handed(&self, signal_id: Uuid) -> bool {
        lock(&self.handed).contains(&signal_id)
    }

    /// The signals wait again: whatever the host was handed, the next bell is for them.
    pub(super) fn take_back(&self, signal_ids: &[Uuid]) {
        lock(&self.handed).retain(|id| !signal_ids.contains(id));
        self.news.notify_waiters();
    }

    /// Whether something may become of signals that this session knows of: some are unread, or were handed over lately.
    pub(super) fn has_something_open(&self) -> bool {
        let lately = |at: Moment| clock::now().since_us(at) < LEASE_AHEAD_US;
        lock(&self.handed_at).is_some_and(lately)
            || !self.unconfirmed.borrow().is_empty()
            || self.cache.load().0.count().unread > 0
    }

    /// Records what a drain brought, before the host is shown it.
    pub fn record_drain(&self, drained: &Drained, pid: &str) {
        let project = (pid == self.pid).then(|| self.project_id.to_string());
        let recorded = self.cache.drained(&drained.envelopes, project.as_deref());
        if let Err(error) = recorded {
            tracing::warn!(error = %format!("{error:#}"), "Could not write the ring");
        }
    }

    /// The host has these signals: they are read here.
    pub fn note_handed(&self, signal_ids: &[Uuid]) {
        {
            let mut handed = lock(&self.handed);
            handed.extend(signal_ids);
            let over = handed.len().saturating_sub(HANDED_MAX);
            handed.drain(..over);
        }
        *lock(&self.handed_at) = Some(clock::now());
        let sids: Vec<String> = signal_ids.iter().map(Uuid::to_string).collect();
        if let Err(error) = self.cache.mark_read(Which::These(&sids)) {
            tracing::warn!(error = %format!("{error:#}"), "Could not mark signals read");
        }
    }

    /// The newest signal of this project that nobody has read.
    pub fn newest_unread(&self) -> Option<Notice> {
        let (ring, _) = self.cache.load();
        let mut entries = ring.entries.iter().rev();
        let newest = entries.find(|e| !e.read && e.pid.as_deref() == Some(&self.pid));
        newest.and_then(Notice::of_entry)
    }

    /// Leases that the server has still to hear of.
    pub fn unconfirmed(&self) -> Vec<Unconfirmed> {
        self.unconfirmed.borrow().clone()
    }

    pub(super) fn note_confirmed(&self, leases: &[Unconfirmed]) {
        self.unconfirmed
            .send_modify(|waiting| waiting.retain(|u| !leases.contains(u)));
    }

    /// Waits until the server has heard of every drain, or until the time is up.
    pub async fn all_confirmed(&self, within: Duration) {
        let mut unconfirmed = self.unconfirmed.subscribe();
        drop(tokio::time::timeout(within, unconfirmed.wait_for(Vec::is_empty)).await);
    }

    /// Tells the server that the host has what was leased, again and again until it hears;
    /// a hello may tell it first.
    pub async fn confirm(&self, lease: Unconfirmed) {
        self.unconfirmed
            .send_modify(|waiting| waiting.push(lease.clone()));
        let client = self.client_for(&lease.pid);
        let mut waiting = self.unconfirmed.subscribe();
        let mut over = self.over.subscribe();
        let mut pause = CONFIRM_PAUSE;
        loop {
            let request = json!({ "lease_id": lease.lease_id });
            let told = client.call(&lease.pid, "signals_confirm", request).await;
            match told {
                Ok(_) => break,
                Err(problem) if problem.status >= 500 || problem.is_busy() => {
                    tracing::debug!(%problem, "A drain is not confirmed yet");
                }
                Err(problem) => {
                    tracing::warn!(%problem, "A drain cannot be confirmed; its signals come again");
                    break;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(CONFIRM_PAUSE_MAX),
                _ = waiting.wait_for(|waiting| !waiting.contains(&lease)) => return,
                _ = over.wait_for(|over| *over) => break,
            }
        }
        self.note_confirmed(&[lease]);
    }

    pub(super) async fn baseline(&self) -> Option<&git::Baseline> {
        let note = async {
            match std::env::current_dir() {
                Ok(cwd) => git::Baseline::of(&cwd).await,
                Err(_) => None,
            }
        };
        self.baseline.get_or_init(|| note).await.as_ref()
    }

    /// Fills in what a checkpoint or wrap left out: the files git saw change, the project's
    /// surfaces. What does not fit into the request is left out and said: a session's work is
    /// written down however much there is of it.
    pub async fn complete_wrap(&self, arguments: &mut Map<String, Value>) -> Vec<Warning> {
        let mut warnings = Vec::new();
        let baseline = self.baseline().await;
        let mut files = match arguments.remove("touched_files") {
            None => match baseline {
                Some(baseline) => baseline.touched().await.inspect(|_| {
                    arguments.insert("touched_files_source".into(), "git".into());
                }),
                None => None,
            },
            Some(given) => match Vec::<String>::deserialize(&given) {
                Ok(files) => Some(files),
                Err(_) => {
                    // The server says what is wrong with it.
                    arguments.insert("touched_files".into(), given);
                    None
                }
            },
        };
        if let Some(root) = baseline.map(git::Baseline::root) {
            git::name_from(root, files.as_deref_mut().unwrap_or_default());
            arguments.insert("root".into(), json!(root));
        }
        let cwd = std::env::current_dir().ok();
        let (surfaces, wrong) = cwd
            .map(|cwd| config::surfaces(&cwd, room_beside(arguments) / 2))
            .unwrap_or_default();
        warnings.extend(wrong);
        if !surfaces.is_empty() {
            arguments.insert("surfaces".into(), json!(surfaces));
        }
        if let Some(files) = files {
            let (files, cut) = first_files(files, room_beside(arguments));
            warnings.extend(cut);
            arguments.insert("touched_files".into(), json!(files));
        }
        warnings
    }
}

/// Bytes that a list may take beside what a request says already.
fn room_beside(arguments: &Map<String, Value>) -> usize {
    /// For the names of what is added, and what stands around it.
    const WRAPPING: usize = 1_024;
    let taken = json!(arguments).to_string().len() + WRAPPING;
    BODY_BYTES_MAX
        .saturating_sub(taken)
        .min(ADDED_LIST_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Locator;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn session(url: String, home: &Home) -> Session {
        let identity = Identity::parse("Texi").unwrap();
        Session::new(Registered {
            id: Uuid::from_u128(1),
            pid: "OWN".into(),
            project_id: Uuid::from_u128(2),
            surface: Surface::Other,
            client: Client::new(Locator::Url(url.into()), "prk_x".into()).unwrap(),
            cache: Cache::new(home.clone(), &identity),
            tee: Tee::new(home.clone(), "Texi"),
            identity,
        })
    }

    /// Answers one request and returns its first line.
    async fn answer(listener: &TcpListener, status: &str, body: &str) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = String::new();
        while !request.contains("lease_id") {
            let mut part = [0; 4096];
            let n = stream.read(&mut part).await.unwrap();
            assert!(n > 0, "a whole request");
            request.push_str(&String::from_utf8_lossy(&part[..n]));
        }
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(answer.as_bytes()).await.unwrap();
        request.lines().next().unwrap().to_owned()
    }

    #[tokio::test]
    async fn a_drain_is_confirmed_under_its_own_project_until_the_server_has_heard() {
        let dir = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let session = session(url, &Home::at(dir.path()));
        let server = async {
            let busy = r#"{"error":{"code":"too_many_requests","message":"x","hint":"x"}}"#;
            let full = r#"{"error":{"code":"storage_unavailable","message":"x","hint":"x"}}"#;
            let mut asked = Vec::new();
            for (status, body) in [
                ("429 Too Many Requests", busy),
                ("503 Service Unavailable", full),
                ("200 OK", r#"{"confirmed":1}"#),
            ] {
                asked.push(answer(&listener, status, body).await);
                assert_eq!(session.unconfirmed().len(), 1, "until it has heard");
            }
            asked
        };
        let lease = Unconfirmed {
            pid: "OTHER".into(),
            lease_id: Uuid::from_u128(3),
        };
        let (asked, ()) = tokio::join!(server, session.confirm(lease));
        assert_eq!(asked, ["POST /api/v1/OTHER/signals_confirm HTTP/1.1"; 3]);
        assert!(session.unconfirmed().is_empty());
    }

    #[test]
    fn a_session_comes_to_its_own_place_in_the_inbox_and_forgets_one_beyond_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let session = session("http://127.0.0.1:1".into(), &Home::at(dir.path()));
        let seq = || session.cursor().map(|at| at.seq);
        assert_eq!(seq(), None);
        session.has_come_to(7, Some(Uuid::from_u128(7)));
        session.has_come_to(5, Some(Uuid::from_u128(5)));
        session.has_come_to(7, None);
        session.forget_cursor_of_another(7, false);
        let id = Some(Uuid::from_u128(7));
        assert_eq!(session.cursor(), Some(Place { seq: 7, id }));
        session.forget_cursor_of_another(6, false);
        assert_eq!(seq(), None);
        session.has_come_to(7, None);
        session.forget_cursor_of_another(9, true);
        assert_eq!(seq(), None, "another signal has its place");
    }
}
