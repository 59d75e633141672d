//! Who is connected: offers committed signals to sockets, and tells siblings.
//!
//! A socket is a doorbell. What it misses it reads from the store, so nothing
//! here is ever the only copy of anything.

use crate::config::failpoint;
use crate::live::Live;
use crate::store::Audience;
use crate::store::sql::Starts;
use axum::extract::ws::Utf8Bytes;
use futures_util::task::AtomicWaker;
use prism_core::api::{ServerFrame, close};
use prism_core::delivery::{Next, Offer, Outbox};
use prism_core::limits::{
    CONTROL_BYTES_MAX, CONTROL_FRAMES_MAX, OUTBOX_FRAMES_MAX, SOCKETS_PER_IDENTITY_MAX,
    WATCHERS_MAX,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::Poll;
use tokio::sync::Notify;
use uuid::Uuid;

pub struct Socket {
    /// The key it was opened with: the socket ends with it.
    pub key_id: Uuid,
    pub session_id: Option<Uuid>,
    pub persona_id: Uuid,
    pub project_id: Uuid,
    state: Mutex<SocketState>,
    wake: Notify,
    /// Whoever waits for its end: one, and in as little room as there can be.
    closes: AtomicWaker,
    /// How often the database had been started anew when it came.
    started: AtomicU64,
}

struct SocketState {
    outbox: Outbox<Utf8Bytes>,
    control: VecDeque<Utf8Bytes>,
    control_bytes: usize,
    close: Option<(u16, String)>,
    /// How far another server's word came, and how long it took: what is read beyond it, nobody has told of.
    word: Option<(i64, i64)>,
}

/// Which sessions' sockets a signal found.
#[derive(Clone, Debug, Default)]
pub struct Offered {
    /// Their queue has the frame.
    pub took: Vec<Uuid>,
    /// They are behind, and come to it in the store.
    pub reading: Vec<Uuid>,
}

/// What a socket's writer does next.
pub enum Work {
    Send(Utf8Bytes),
    Replay { after: i64 },
    Close(u16, String),
}

pub fn encode(frame: &ServerFrame) -> Utf8Bytes {
    serde_json::to_string(frame)
        .unwrap_or_else(|_| r#"{"kind":"unknown"}"#.into())
        .into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock only means that some other holder panicked between two
    // consistent states; the maps are never left half-changed.
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Socket {
    /// A socket that has been sent nothing yet.
    pub fn new(
        key_id: Uuid,
        session_id: Option<Uuid>,
        persona_id: Uuid,
        project_id: Uuid,
    ) -> Arc<Self> {
        let state = SocketState {
            outbox: Outbox::new(0, OUTBOX_FRAMES_MAX),
            control: VecDeque::new(),
            control_bytes: 0,
            close: None,
            word: None,
        };
        Arc::new(Self {
            key_id,
            session_id,
            persona_id,
            project_id,
            state: Mutex::new(state),
            wake: Notify::new(),
            closes: AtomicWaker::new(),
            started: AtomicU64::new(0),
        })
    }

    /// Says what the client has seen of its inbox already.
    pub fn resume_after(&self, seen: i64) {
        lock(&self.state).outbox.resume_after(seen);
    }

    /// Takes a signal, unless it ends: whoever comes back reads it from the store.
    fn offer(&self, seq: i64, frame: Utf8Bytes) -> Option<Offer> {
        let mut state = lock(&self.state);
        if state.close.is_some() {
            return None;
        }
        let offer = state.outbox.offer(seq, frame);
        drop(state);
        self.wake.notify_one();
        Some(offer)
    }

    pub fn tell(&self, frame: Utf8Bytes) {
        let mut state = lock(&self.state);
        if state.control.len() >= CONTROL_FRAMES_MAX
            || state.control_bytes + frame.len() > CONTROL_BYTES_MAX
        {
            state
                .close
                .get_or_insert((close::SLOW, "too slow: reconnect and replay".into()));
            self.closes.wake();
        } else {
            state.control_bytes += frame.len();
            state.control.push_back(frame);
        }
        drop(state);
        self.wake.notify_one();
    }

    pub fn close(&self, code: u16, reason: &str) {
        lock(&self.state).close.get_or_insert((code, reason.into()));
        self.wake.notify_one();
        self.closes.wake();
    }

    fn is_closing(&self) -> bool {
        lock(&self.state).close.is_some()
    }

    /// Waits until it is to end.
    pub async fn closing(&self) {
        std::future::poll_fn(|context| {
            self.closes.register(context.waker());
            match self.is_closing() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        })
        .await;
    }

    /// How long the word took that told of a signal; none where none did.
    pub fn word_took(&self, seq: i64) -> Option<i64> {
        let word = lock(&self.state).word;
        word.filter(|(reach, _)| seq <= *reach).map(|(_, us)| us)
    }

    /// How far it was sent its inbox; none while it ends.
    pub fn reach(&self) -> Option<i64> {
        let state = lock(&self.state);
        state.close.is_none().then(|| state.outbox.reach())
    }

    /// The inbox may be an older copy of the one that it was sent: whoever is at the other end agrees anew on where it stands.
    pub fn restart(&self) {
        self.close(close::TRY_AGAIN, "the inbox may be another copy: say hello");
    }

    /// Signals go before control frames, so that a `drained` never overtakes its signal.
    pub async fn work(&self) -> Work {
        loop {
            {
                let mut state = lock(&self.state);
                match state.outbox.next() {
                    Next::Send(frame) => return Work::Send(frame),
                    Next::Replay { after } if state.close.is_none() => {
                        return Work::Replay { after };
                    }
                    Next::Replay { .. } | Next::Idle => {}
                }
                if let Some(frame) = state.control.pop_front() {
                    state.control_bytes -= frame.len();
                    return Work::Send(frame);
                }
                if let Some((code, reason)) = state.close.clone() {
                    return Work::Close(code, reason);
                }
            }
            self.wake.notified().await;
        }
    }
}

#[derive(Default)]
pub struct Hub {
    sockets: Mutex<HashMap<Uuid, Vec<Arc<Socket>>>>,
    watchers: Mutex<Vec<Arc<Socket>>>,
    live: Arc<Live>,
    left: Notify,
    /// How often the database was started anew, where that is not this process's own.
    starts: OnceLock<Arc<Starts>>,
}

impl Hub {
    /// Who is told which rows changed.
    pub fn live(&self) -> Arc<Live> {
        self.live.clone()
    }

    /// Has sockets end that were there before the database was started anew.
    pub fn stands_on(&self, starts: Arc<Starts>) {
        let _ = self.starts.set(starts);
    }

    fn starts(&self) -> u64 {
        self.starts.get().map_or(0, |starts| starts.times())
    }

    /// Whether a socket is sent what rows say by now. Its inbox may be an earlier state of the one that it was sent,
    /// and have grown since: whoever is at the other end says which signal it heard last, before it hears another.
    pub fn is_current(&self, socket: &Socket) -> bool {
        let is_current = socket.started.load(Ordering::Relaxed) == self.starts();
        if !is_current {
            socket.restart();
        }
        is_current
    }

    /// Adds a socket; false when the identity holds too many already.
    pub fn join(&self, socket: Arc<Socket>) -> bool {
        socket.started.store(self.starts(), Ordering::Relaxed);
        if socket.session_id.is_none() {
            let mut watchers = lock(&self.watchers);
            let room = watchers.len() < WATCHERS_MAX;
            if room {
                watchers.push(socket);
            }
            return room;
        }
        let mut sockets = lock(&self.sockets);
        let mine = sockets.entry(socket.persona_id).or_default();
        if mine.len() >= SOCKETS_PER_IDENTITY_MAX {
            return false;
        }
        mine.push(socket);
        true
    }

    pub fn leave(&self, socket: &Arc<Socket>) {
        lock(&self.watchers).retain(|s| !Arc::ptr_eq(s, socket));
        let mut sockets = lock(&self.sockets);
        if let Some(mine) = sockets.get_mut(&socket.persona_id) {
            mine.retain(|s| !Arc::ptr_eq(s, socket));
            if mine.is_empty() {
                sockets.remove(&socket.persona_id);
            }
        }
        drop(sockets);
        self.left.notify_waiters();
    }

    /// Waits until nobody is here any more.
    pub async fn is_left(&self) {
        loop {
            let mut left = std::pin::pin!(self.left.notified());
            left.as_mut().enable();
            if self.sockets() == 0 {
                return;
            }
            left.await;
        }
    }

    /// Whether a socket would hear of a signal.
    pub fn is_subscribed(&self, persona: Uuid, audience: Audience) -> bool {
        !failpoint("hub.pause")
            && lock(&self.sockets).get(&persona).is_some_and(|mine| {
                let hears = |s: &&Arc<Socket>| audience.includes(s.session_id);
                mine.iter().filter(hears).any(|s| !s.is_closing())
            })
    }

    /// Offers a committed signal to those of its recipient's sockets that it is for; the frame is
    /// written only when there is one.
    pub fn offer(
        &self,
        persona: Uuid,
        audience: Audience,
        seq: i64,
        frame: impl FnOnce() -> Utf8Bytes,
    ) -> Offered {
        let mut offered = Offered::default();
        if failpoint("hub.pause") {
            return offered;
        }
        let sockets = lock(&self.sockets);
        let (mine, others): (Vec<_>, Vec<_>) = sockets
            .get(&persona)
            .into_iter()
            .flatten()
            .partition(|s| audience.includes(s.session_id));
        for other in others {
            lock(&other.state).outbox.skip(seq);
        }
        if mine.is_empty() {
            return offered;
        }
        let frame = frame();
        for socket in mine {
            let Some(session) = socket.session_id.filter(|_| self.is_current(socket)) else {
                continue;
            };
            match socket.offer(seq, frame.clone()) {
                Some(Offer::Queued) => offered.took.push(session),
                // Known means that it was read before it was offered here.
                Some(Offer::Behind | Offer::Known) => offered.reading.push(session),
                None => {}
            }
        }
        offered
    }

    /// Tells the sessions of an identity, except one.
    pub fn tell(&self, persona: Uuid, except: Option<Uuid>, frame: &ServerFrame) {
        let sockets = lock(&self.sockets);
        let Some(mine) = sockets.get(&persona) else {
            return;
        };
        let frame = encode(frame);
        for socket in mine
            .iter()
            .filter(|s| s.session_id != except || except.is_none())
        {
            socket.tell(frame.clone());
        }
    }

    /// Tells everybody in a project, except one session.
    pub fn tell_project(&self, project: Uuid, except: Option<Uuid>, frame: &ServerFrame) {
        let frame = encode(frame);
        let everybody: Vec<_> = lock(&self.sockets)
            .values()
            .flatten()
            .chain(lock(&self.watchers).iter())
            .cloned()
            .collect();
        for socket in everybody
            .iter()
            .filter(|s| s.project_id == project && (s.session_id != except || except.is_none()))
        {
            socket.tell(frame.clone());
        }
    }

    /// Whether somebody watches a project here.
    pub fn is_watched(&self, project: Uuid) -> bool {
        lock(&self.watchers).iter().any(|s| s.project_id == project)
    }

    /// Shows something to those who watch a project; encoding is skipped when nobody does.
    pub fn show(&self, project: Uuid, frame: impl FnOnce() -> ServerFrame) {
        let watchers: Vec<_> = lock(&self.watchers)
            .iter()
            .filter(|s| s.project_id == project)
            .cloned()
            .collect();
        if watchers.is_empty() {
            return;
        }
        let frame = encode(&frame());
        for watcher in watchers {
            watcher.tell(frame.clone());
        }
    }

    /// How far the sockets of each inbox have come. Whoever is to compare rows with it asks this first.
    pub fn reached(&self) -> HashMap<Uuid, i64> {
        let sockets = lock(&self.sockets);
        // One that ends may have come further than the inbox reaches: its successor is not to end for it.
        let furthest = |mine: &Vec<Arc<Socket>>| {
            let stay = mine.iter().filter_map(|s| s.reach());
            stay.max().unwrap_or(0)
        };
        let reached = sockets
            .iter()
            .map(|(persona, mine)| (*persona, furthest(mine)));
        reached.collect()
    }

    /// Rows reach less far than sockets had come before they were read: they are an older copy, and what they count
    /// from here on was never sent.
    pub fn fell_short(&self, reached: &HashMap<Uuid, i64>, heads: &[(Uuid, i64)]) {
        let short = |(persona, head): &&(Uuid, i64)| {
            reached.get(persona).is_some_and(|reached| head < reached)
        };
        let sockets = lock(&self.sockets);
        for (persona, head) in heads.iter().filter(short) {
            tracing::warn!(%persona, head, "An inbox reaches less far than it did: it is sent again");
            for socket in sockets.get(persona).into_iter().flatten() {
                socket.restart();
            }
        }
    }

    /// Every inbox may be an older copy.
    pub fn restart(&self) {
        for socket in lock(&self.sockets).values().flatten() {
            socket.restart();
        }
    }

    /// The database was started anew: whoever has not said hello since does.
    pub fn restart_older(&self) {
        for socket in lock(&self.sockets).values().flatten() {
            self.is_current(socket);
        }
    }

    /// Hands a socket what was read for it: rows, and how far the inbox reached (`None` when rows were left out). False
    /// where it does not take them: it says hello anew.
    pub fn replayed(
        &self,
        socket: &Socket,
        rows: Vec<(i64, Utf8Bytes)>,
        head: Option<i64>,
    ) -> bool {
        let is_current = self.is_current(socket);
        if is_current {
            lock(&socket.state).outbox.replayed(rows, head);
        }
        is_current
    }

    /// Something may have been said of signals in these inboxes that nobody here heard.
    pub fn say_again(&self, is_meant: impl Fn(Uuid) -> bool) {
        let frame = encode(&ServerFrame::Again);
        let sockets = lock(&self.sockets);
        let meant = sockets.iter().filter(|(persona, _)| is_meant(**persona));
        for socket in meant.flat_map(|(_, mine)| mine) {
            socket.tell(frame.clone());
        }
    }

    /// Another server says how far an inbox reaches, and its word took so long.
    pub fn heard_by_word(&self, persona: Uuid, seq: i64, took_us: i64) {
        for socket in lock(&self.sockets).get(&persona).into_iter().flatten() {
            let mut state = lock(&socket.state);
            if seq > state.outbox.reach() {
                state.word = Some((seq, took_us));
            }
        }
        self.heard_of(&[(persona, seq)]);
    }

    /// Says how far inboxes reach, so that a socket that missed a push reads the store.
    pub fn heard_of(&self, heads: &[(Uuid, i64)]) {
        if failpoint("hub.pause") {
            return;
        }
        let sockets = lock(&self.sockets);
        for (persona, head) in heads {
            let mine = sockets.get(persona).into_iter().flatten();
            for socket in mine.filter(|socket| self.is_current(socket)) {
                lock(&socket.state).outbox.heard_of(*head);
                socket.wake.notify_one();
            }
        }
    }

    pub fn sockets(&self) -> usize {
        lock(&self.sockets).values().map(Vec::len).sum::<usize>() + lock(&self.watchers).len()
    }

    pub fn close_session(&self, session: Uuid, code: u16, reason: &str) {
        for socket in lock(&self.sockets)
            .values()
            .flatten()
            .filter(|s| s.session_id == Some(session))
        {
            socket.close(code, reason);
        }
    }

    /// Closes exactly the sockets that were opened with a key, watchers included.
    pub fn close_key(&self, key: Uuid, code: u16, reason: &str) {
        self.live.close_key(key, code, reason);
        for socket in lock(&self.sockets)
            .values()
            .flatten()
            .chain(lock(&self.watchers).iter())
            .filter(|s| s.key_id == key)
        {
            socket.close(code, reason);
        }
    }

    /// The keys that sockets and pages were opened with.
    pub fn keys(&self) -> HashSet<Uuid> {
        let mut keys = self.live.keys();
        let sockets = lock(&self.sockets);
        let watchers = lock(&self.watchers);
        let all = sockets.values().flatten().chain(watchers.iter());
        keys.extend(all.map(|s| s.key_id));
        keys
    }

    /// The sessions whose sockets were opened with a key.
    pub fn sessions_of_key(&self, key: Uuid) -> Vec<Uuid> {
        let sockets = lock(&self.sockets);
        let its = sockets.values().flatten().filter(|s| s.key_id == key);
        its.filter_map(|s| s.session_id).collect()
    }

    /// Closes the sockets of a project that is gone.
    pub fn close_project(&self, project: Uuid, code: u16, reason: &str) {
        self.live.close_project(project, code, reason);
        for socket in lock(&self.sockets)
            .values()
            .flatten()
            .chain(lock(&self.watchers).iter())
            .filter(|s| s.project_id == project)
        {
            socket.close(code, reason);
        }
    }

    pub fn close_all(&self, code: u16, reason: &str) {
        self.live.close_all(code, reason);
        for socket in lock(&self.sockets)
            .values()
            .flatten()
            .chain(lock(&self.watchers).iter())
        {
            socket.close(code, reason);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comes(hub: &Hub, session: u128) -> Arc<Socket> {
        let session = Some(Uuid::from_u128(session));
        let socket = Socket::new(Uuid::nil(), session, Uuid::from_u128(9), Uuid::nil());
        assert!(hub.join(socket.clone()));
        socket
    }

    fn offer(hub: &Hub, seq: i64) -> Offered {
        hub.offer(Uuid::from_u128(9), Audience::Everybody, seq, || "x".into())
    }

    #[test]
    fn a_signal_that_its_socket_has_read_before_it_was_offered_has_found_it() {
        let hub = Hub::default();
        let socket = comes(&hub, 1);
        assert!(hub.replayed(&socket, vec![(1, "x".into())], Some(1)));
        assert_eq!(offer(&hub, 1).reading, [Uuid::from_u128(1)]);
    }

    #[test]
    fn a_socket_that_is_to_end_is_offered_nothing_more() {
        let hub = Hub::default();
        let socket = comes(&hub, 1);
        hub.replayed(&socket, Vec::new(), Some(0));
        assert_eq!(offer(&hub, 1).took.len(), 1);
        socket.close(close::RELEASED, close::KEY_REVOKED);
        let offered = offer(&hub, 2);
        assert!(offered.took.is_empty() && offered.reading.is_empty());
        assert!(!hub.is_subscribed(Uuid::from_u128(9), Audience::Everybody));
    }

    #[test]
    fn what_was_read_from_a_database_that_started_anew_is_taken_by_no_socket_from_before() {
        let hub = Hub::default();
        let starts = Arc::<Starts>::default();
        hub.stands_on(starts.clone());
        starts.saw(1);
        let socket = comes(&hub, 1);
        starts.saw(2);
        assert!(!hub.replayed(&socket, vec![(1, "x".into())], Some(1)));
        assert!(socket.is_closing());
    }

    #[test]
    fn how_long_a_word_took_counts_for_what_it_told_of_and_no_further() {
        let hub = Hub::default();
        let socket = comes(&hub, 1);
        hub.heard_by_word(Uuid::from_u128(9), 3, 250);
        assert_eq!(
            (
                socket.word_took(2),
                socket.word_took(3),
                socket.word_took(4)
            ),
            (Some(250), Some(250), None)
        );
    }

    #[test]
    fn a_socket_that_ends_does_not_say_how_far_its_inbox_must_reach() {
        let hub = Hub::default();
        let texi = Uuid::from_u128(9);
        let comes = |session: u128, seen: i64| {
            let session = Some(Uuid::from_u128(session));
            let socket = Socket::new(Uuid::nil(), session, texi, Uuid::nil());
            socket.resume_after(seen);
            assert!(hub.join(socket.clone()));
            socket
        };
        let ended = |socket: &Socket| lock(&socket.state).close.is_some();
        let first = comes(1, 10);
        hub.fell_short(&hub.reached(), &[(texi, 7)]);
        assert!(ended(&first), "it was sent what is not there any more");
        let second = comes(1, 7);
        hub.fell_short(&hub.reached(), &[(texi, 7)]);
        assert!(!ended(&second), "it has said hello since");
    }
}
