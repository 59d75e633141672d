//! What changed, told to whoever watches: after the commit, collected for an instant, and never on
//! the time of whoever wrote it.

use axum::extract::ws::Utf8Bytes;
use prism_core::api::page::live::{Change, WatchFrame};
use prism_core::bus::TouchedRows;
use prism_core::limits::{PAGE_CHANGES_MAX, PAGE_FRAMES_MAX, PAGES_MAX};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Notify;
use uuid::Uuid;

/// The tables whose rows a page shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    Signals,
    Sessions,
    Memory,
    Inputs,
    Recalls,
    Gate,
    Probes,
    Settings,
}

impl Table {
    const NAMES: [(Self, &str); 8] = [
        (Self::Signals, "signals"),
        (Self::Sessions, "sessions"),
        (Self::Memory, "memory"),
        (Self::Inputs, "inputs"),
        (Self::Recalls, "recalls"),
        (Self::Gate, "gate"),
        (Self::Probes, "probes"),
        (Self::Settings, "settings"),
    ];

    fn name(self) -> &'static str {
        let named = Self::NAMES.iter().find(|(table, _)| *table == self);
        named.map_or("", |(_, name)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        let named = Self::NAMES.iter().find(|(_, known)| *known == name);
        named.map(|(table, _)| *table)
    }
}

/// What PostgreSQL's triggers have noted of a transaction, unless it is more than a page is told one by one
/// (`migrations/postgres/0023_touched.sql`).
pub fn noted(list: &str) -> Option<Vec<Touched>> {
    let one = |one: &str| {
        let (table, row) = one.split_once(' ')?;
        Some(Touched::Row(Table::from_name(table)?, row.parse().ok()?))
    };
    let all = list.split_terminator(';').map(one);
    (list.len() < NOTED_MAX).then(|| all.collect()).flatten()
}

/// Letters of a list from which on nothing is added to it.
const NOTED_MAX: usize = 40_000;

/// Something that a commit wrote, or that was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Touched {
    /// As the engine numbers its rows.
    Row(Table, i64),
    /// What was told of a signal.
    Signal(Uuid),
    Session(Uuid),
}

#[derive(Default)]
pub struct Live {
    watchers: Mutex<Vec<Arc<Watcher>>>,
    /// For nobody, nothing is collected.
    watching: AtomicUsize,
    /// Other servers have pages, too.
    others: AtomicBool,
    collected: Mutex<Collected>,
    wake: Notify,
    mark: AtomicU64,
}

#[derive(Default)]
struct Collected {
    here: Noted,
    /// At other servers, which tell each other themselves.
    elsewhere: Noted,
}

#[derive(Default)]
struct Noted {
    touched: HashSet<Touched>,
    /// More than there is room for.
    too_many: bool,
}

/// What was collected, to be told.
pub enum Told {
    These(Vec<Touched>),
    TooMany,
}

impl Noted {
    fn note(&mut self, what: impl IntoIterator<Item = Touched>) {
        for one in what {
            if self.touched.len() >= PAGE_CHANGES_MAX {
                self.too_many = true;
                break;
            }
            self.touched.insert(one);
        }
    }

    /// As other servers are told of it; none when there is nothing to tell.
    fn rows(&self) -> Option<TouchedRows> {
        let mut rows = TouchedRows {
            too_many: self.too_many,
            ..TouchedRows::default()
        };
        for touched in &self.touched {
            match *touched {
                Touched::Row(table, row) => rows.rows.push((table.name().to_owned(), row)),
                Touched::Signal(id) => rows.signals.push(id),
                Touched::Session(id) => rows.sessions.push(id),
            }
        }
        (rows != TouchedRows::default()).then_some(rows)
    }
}

/// One open page.
pub struct Watcher {
    pub key_id: Uuid,
    /// None: every project.
    pub project: Option<Uuid>,
    state: Mutex<WatcherState>,
    wake: Notify,
}

#[derive(Default)]
struct WatcherState {
    frames: VecDeque<Utf8Bytes>,
    close: Option<(u16, String)>,
}

/// What a watcher's socket does next.
pub enum Next {
    Send(Utf8Bytes),
    Close(u16, String),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is left half-changed by a holder that panicked.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

pub fn encode(frame: &WatchFrame) -> Utf8Bytes {
    serde_json::to_string(frame)
        .unwrap_or_else(|_| r#"{"kind":"unknown"}"#.into())
        .into()
}

impl Watcher {
    pub fn new(key_id: Uuid, project: Option<Uuid>) -> Arc<Self> {
        Arc::new(Self {
            key_id,
            project,
            state: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// A page that does not keep up reads everything again instead.
    fn tell(&self, frame: Utf8Bytes, mark: u64) {
        let mut state = lock(&self.state);
        if state.frames.len() >= PAGE_FRAMES_MAX {
            state.frames.clear();
            state.frames.push_back(encode(&WatchFrame::Behind { mark }));
        } else {
            state.frames.push_back(frame);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub fn close(&self, code: u16, reason: &str) {
        lock(&self.state).close.get_or_insert((code, reason.into()));
        self.wake.notify_one();
    }

    pub async fn next(&self) -> Next {
        loop {
            {
                let mut state = lock(&self.state);
                if let Some((code, reason)) = state.close.clone() {
                    return Next::Close(code, reason);
                }
                if let Some(frame) = state.frames.pop_front() {
                    return Next::Send(frame);
                }
            }
            self.wake.notified().await;
        }
    }
}

impl Live {
    /// Adds a watcher; none when there are too many. Otherwise where the changes stand.
    pub fn join(&self, watcher: Arc<Watcher>) -> Option<u64> {
        let mut watchers = lock(&self.watchers);
        if watchers.len() >= PAGES_MAX {
            return None;
        }
        watchers.push(watcher);
        self.watching.store(watchers.len(), Ordering::Release);
        Some(self.mark.load(Ordering::Acquire))
    }

    pub fn leave(&self, watcher: &Arc<Watcher>) {
        let mut watchers = lock(&self.watchers);
        watchers.retain(|w| !Arc::ptr_eq(w, watcher));
        self.watching.store(watchers.len(), Ordering::Release);
    }

    /// The open pages of this server.
    pub fn pages(&self) -> usize {
        self.watching.load(Ordering::Acquire)
    }

    /// Who wants to know: the pages of this server, and other servers for theirs.
    pub fn watching(&self) -> usize {
        self.pages() + usize::from(self.others.load(Ordering::Acquire))
    }

    /// Other servers are told from now on, whether or not this one has pages.
    pub fn tells_others(&self) {
        self.others.store(true, Ordering::Release);
    }

    /// Notes what a commit wrote: a set in memory, and no more.
    pub fn touched(&self, what: impl IntoIterator<Item = Touched>) {
        if self.watching() == 0 {
            return;
        }
        lock(&self.collected).here.note(what);
        self.wake.notify_one();
    }

    /// Notes what another server says was written.
    pub fn heard(&self, rows: TouchedRows) {
        if self.pages() == 0 {
            return;
        }
        let numbered = rows.rows.iter().filter_map(|(table, row)| {
            Table::from_name(table).map(|table| Touched::Row(table, *row))
        });
        let signals = rows.signals.iter().map(|id| Touched::Signal(*id));
        let sessions = rows.sessions.iter().map(|id| Touched::Session(*id));
        let mut collected = lock(&self.collected);
        collected
            .elsewhere
            .note(numbered.chain(signals).chain(sessions));
        collected.elsewhere.too_many |= rows.too_many;
        drop(collected);
        self.wake.notify_one();
    }

    /// More was written than was noted: who watches reads everything again.
    pub fn too_many(&self) {
        lock(&self.collected).here.too_many = true;
        self.wake.notify_one();
    }

    /// Something may have been written that nobody was told of.
    pub fn behind(&self) {
        if self.pages() == 0 {
            return;
        }
        lock(&self.collected).elsewhere.too_many = true;
        self.wake.notify_one();
    }

    /// Waits until something was noted, and says that it was.
    pub async fn something(&self) {
        self.wake.notified().await;
    }

    /// What the pages are to be told, and what other servers are.
    pub fn take(&self) -> (Told, Option<TouchedRows>) {
        let Collected { here, elsewhere } = std::mem::take(&mut *lock(&self.collected));
        let for_others = match self.others.load(Ordering::Acquire) {
            true => here.rows(),
            false => None,
        };
        let told = match here.too_many || elsewhere.too_many {
            true => Told::TooMany,
            false => Told::These(here.touched.union(&elsewhere.touched).copied().collect()),
        };
        (told, for_others)
    }

    /// Tells each watcher what concerns it.
    pub fn tell(&self, changes: &[(Option<Uuid>, Change)]) {
        let mark = self.mark.fetch_add(1, Ordering::AcqRel) + 1;
        for watcher in lock(&self.watchers).iter() {
            let concerns = |project: &Option<Uuid>| {
                watcher.project.is_none() || project.is_none() || *project == watcher.project
            };
            let changes: Vec<Change> = changes
                .iter()
                .filter(|(project, _)| concerns(project))
                .map(|(_, change)| change.clone())
                .collect();
            if !changes.is_empty() {
                watcher.tell(encode(&WatchFrame::Changed { mark, changes }), mark);
            }
        }
    }

    /// Tells everybody to read again.
    pub fn tell_behind(&self) {
        let mark = self.mark.fetch_add(1, Ordering::AcqRel) + 1;
        let frame = encode(&WatchFrame::Behind { mark });
        for watcher in lock(&self.watchers).iter() {
            watcher.tell(frame.clone(), mark);
        }
    }

    pub fn close_key(&self, key: Uuid, code: u16, reason: &str) {
        for watcher in lock(&self.watchers).iter().filter(|w| w.key_id == key) {
            watcher.close(code, reason);
        }
    }

    /// The keys that pages are watched with.
    pub fn keys(&self) -> HashSet<Uuid> {
        lock(&self.watchers).iter().map(|w| w.key_id).collect()
    }

    pub fn close_project(&self, project: Uuid, code: u16, reason: &str) {
        let its = |w: &&Arc<Watcher>| w.project == Some(project);
        for watcher in lock(&self.watchers).iter().filter(its) {
            watcher.close(code, reason);
        }
    }

    pub fn close_all(&self, code: u16, reason: &str) {
        for watcher in lock(&self.watchers).iter() {
            watcher.close(code, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prism_core::api::page::live::Changed;

    fn change(id: u128) -> Change {
        Change {
            what: Changed::Signal,
            pid: "P".into(),
            id: Some(Uuid::from_u128(id)),
            state: None,
            category: None,
            to: None,
        }
    }

    #[tokio::test]
    async fn a_page_that_does_not_keep_up_is_told_to_read_again_and_never_dropped() {
        let live = Live::default();
        let (project, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let slow = Watcher::new(Uuid::nil(), Some(project));
        live.join(slow.clone()).unwrap();
        for n in 0..PAGE_FRAMES_MAX as u128 {
            live.tell(&[(Some(project), change(n)), (Some(other), change(n))]);
        }
        let Next::Send(first) = slow.next().await else {
            panic!("a frame")
        };
        assert_eq!(first.matches("\"what\"").count(), 1, "of its project alone");
        for n in 0..2 {
            live.tell(&[(Some(project), change(n))]);
        }
        let Next::Send(frame) = slow.next().await else {
            panic!("a frame")
        };
        assert!(frame.contains("\"behind\""), "{frame}");
        live.tell(&[(Some(project), change(7))]);
        let Next::Send(frame) = slow.next().await else {
            panic!("a frame")
        };
        assert!(frame.contains("\"changed\""), "{frame}");
    }

    #[test]
    fn nothing_is_collected_for_nobody_and_too_much_is_one_word() {
        let live = Live::default();
        live.touched([Touched::Signal(Uuid::nil())]);
        assert!(matches!(live.take(), (Told::These(none), None) if none.is_empty()));
        live.join(Watcher::new(Uuid::nil(), None)).unwrap();
        live.touched((0..PAGE_CHANGES_MAX as i64 + 1).map(|n| Touched::Row(Table::Signals, n)));
        assert!(matches!(live.take(), (Told::TooMany, None)));
        live.touched([Touched::Signal(Uuid::nil())]);
        assert!(matches!(live.take(), (Told::These(one), None) if one.len() == 1));
    }

    #[test]
    fn what_is_written_here_is_told_to_other_servers_and_what_they_say_is_not_told_back() {
        let live = Live::default();
        live.tells_others();
        let here = [
            Touched::Row(Table::Gate, 7),
            Touched::Signal(Uuid::from_u128(1)),
            Touched::Session(Uuid::from_u128(2)),
        ];
        live.touched(here);
        let (_, said) = live.take();
        let said = said.expect("others are told even where no page is open");
        let other = Live::default();
        other.heard(said.clone());
        assert!(matches!(other.take(), (Told::These(none), None) if none.is_empty()));
        other.tells_others();
        other.join(Watcher::new(Uuid::nil(), None)).unwrap();
        other.heard(said);
        let (Told::These(heard), None) = other.take() else {
            panic!("rows, and nothing to tell back")
        };
        assert_eq!(HashSet::from_iter(heard), HashSet::from(here));
    }

    #[test]
    fn what_a_transaction_noted_is_read_whole_or_not_at_all() {
        assert_eq!(noted(""), Some(Vec::new()));
        let two = vec![
            Touched::Row(Table::Signals, 7),
            Touched::Row(Table::Settings, 1),
        ];
        assert_eq!(noted("signals 7;settings 1;"), Some(two));
        assert_eq!(noted("signals 7;unheard 1;"), None);
        assert_eq!(noted(&"signals 7;".repeat(4_000)), None);
    }

    #[test]
    fn every_table_has_a_name_of_its_own() {
        for (table, name) in Table::NAMES {
            assert_eq!(Table::from_name(table.name()), Some(table));
            assert_eq!(table.name(), name);
        }
    }

    #[test]
    fn only_so_many_watch() {
        let live = Live::default();
        for _ in 0..PAGES_MAX {
            assert!(live.join(Watcher::new(Uuid::nil(), None)).is_some());
        }
        assert!(live.join(Watcher::new(Uuid::nil(), None)).is_none());
    }
}
