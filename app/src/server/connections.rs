//! How many connections a server holds, and how long one may be silent between requests.
//!
//! Whoever connects and asks nothing holds a descriptor without having shown a key, and so does
//! whoever asked once and is silent since, or does not read its answers. Such a connection ends
//! after a while, and the one that is idle longest ends at once when a newcomer finds no room.

use super::wire::Wire;
use crate::{clock, config};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use prism_core::limits::{FILES_RESERVED, FIRST_REQUEST_S, IDLE_CONNECTION_S, UNREAD_ANSWER_S};
use prism_core::{Code, Moment, Problem};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

/// How often an idle connection looks at the clock; a test moves the clock meanwhile.
const TICK: Duration = Duration::from_secs(FIRST_REQUEST_S);
const TICK_OF_A_MOVED_CLOCK: Duration = Duration::from_millis(50);
/// Connections that are told at once that there is no room; more than that are just closed.
const TOLD_AT_ONCE: usize = 16;
/// How long telling one may take.
const TELLING: Duration = Duration::from_secs(1);
/// A pause after the system refused a connection, for want of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a newcomer waits for the place of a connection that was told to end.
const LEAVING: Duration = Duration::from_millis(250);

/// How long whoever is connected with a server that stops may take to ask once more.
const LAST_ANSWERS: Duration = Duration::from_millis(250);

/// Newcomers who wait for that at once: each holds a descriptor beyond the limit.
fn outside_max(most: usize) -> usize {
    (most / 8).clamp(1, FILES_RESERVED / 2)
}

/// The configured number, as far as the process may open so many files.
pub fn capped(wanted: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let cap = files.saturating_sub(FILES_RESERVED).max(1);
    if cap < wanted {
        tracing::warn!(
            connections = cap,
            "[limits] connections is {wanted}, but this process may open {files} files"
        );
    }
    wanted.min(cap)
}

/// The end of a server, as its listener and its connections know of it. A connection that is closed while nobody uses it
/// may be the one that a request was just written to, of which its sender does not know what became; so whoever is
/// connected is told first, with an answer, that it was the last one.
#[derive(Default)]
pub struct Ending {
    begun: AtomicBool,
    begins: Notify,
    /// Nobody is on the way in any more.
    closed: Notify,
    /// Whoever has not asked again meanwhile is to go.
    over: Notify,
    open: Arc<Places>,
}

impl Ending {
    fn is_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whoever connects from now on is refused, and every answer says that it was the last on its connection.
    pub fn begin(&self) {
        self.begun.store(true, Ordering::Relaxed);
        self.begins.notify_one();
    }

    /// Waits until everybody has left: first with an answer, then those who ask nothing.
    pub async fn everybody_left(&self) {
        let left = async {
            self.closed.notified().await;
            self.open.emptied().await;
        };
        if tokio::time::timeout(LAST_ANSWERS, left).await.is_err() {
            self.over.notify_one();
            let _ = tokio::time::timeout(LEAVING, self.open.emptied()).await;
        }
    }
}

/// Where connections come from.
struct Door {
    /// None once the server ends.
    listener: Option<TcpListener>,
    /// Who had connected when it was closed.
    last: Vec<(TcpStream, SocketAddr)>,
    ending: Arc<Ending>,
}

impl Door {
    /// The next who connects; once the server ends, those who had connected by then, and nobody after them.
    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        if let Some(listener) = &self.listener {
            tokio::select! {
                accepted = listener.accept() => return accepted,
                () = self.ending.begins.notified() => {}
            }
        }
        if let Some(listener) = self.listener.take() {
            let listener = listener.into_std()?;
            while let Ok((stream, address)) = listener.accept() {
                stream.set_nonblocking(true)?;
                self.last.push((TcpStream::from_std(stream)?, address));
            }
        }
        match self.last.pop() {
            Some(accepted) => Ok(accepted),
            None => {
                self.ending.closed.notify_one();
                std::future::pending().await
            }
        }
    }
}

/// Accepts connections up to a limit.
pub struct Limited {
    door: Door,
    tls: Option<TlsAcceptor>,
    most: usize,
    open: Arc<Places>,
    telling: Arc<Places>,
    connections: Vec<Arc<Activity>>,
    /// Newcomers who wait for the place of a connection that was told to end.
    outside: Arc<Places>,
    came_in: mpsc::UnboundedSender<Newcomer>,
    coming_in: mpsc::UnboundedReceiver<Newcomer>,
}

/// Who has waited outside, and has a place now.
struct Newcomer {
    stream: TcpStream,
    address: SocketAddr,
    place: Place,
}

/// What a connection does now: serve requests, carry a WebSocket, or nothing.
pub struct Activity {
    requests: AtomicUsize,
    /// Since when it is idle, in microseconds.
    idle_since: AtomicI64,
    /// Seconds that it may be idle.
    patience_s: AtomicI64,
    /// It carries a WebSocket now, which has limits of its own.
    upgraded: AtomicBool,
    evicted: AtomicBool,
    /// Its place is free again, whoever still knows of it.
    gone: AtomicBool,
    /// Requests that it has brought since it was told to end.
    brought_since: AtomicUsize,
    waker: Mutex<Option<Waker>>,
    ending: Arc<Ending>,
}

impl Activity {
    fn new(ending: Arc<Ending>) -> Self {
        Self {
            requests: AtomicUsize::new(0),
            idle_since: AtomicI64::new(clock::now().0),
            patience_s: AtomicI64::new(FIRST_REQUEST_S as i64),
            upgraded: AtomicBool::new(false),
            evicted: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            brought_since: AtomicUsize::new(0),
            waker: Mutex::new(None),
            ending,
        }
    }

    /// A request came: the connection is in use until the answer is dropped.
    pub fn request(self: Arc<Self>) -> InUse {
        self.requests.fetch_add(1, Ordering::Relaxed);
        if self.is_evicted() {
            self.brought_since.fetch_add(1, Ordering::Relaxed);
        }
        InUse(self)
    }

    fn is_idle(&self) -> bool {
        self.requests.load(Ordering::Relaxed) == 0 && !self.upgraded.load(Ordering::Relaxed)
    }

    fn idle_since(&self) -> Moment {
        Moment(self.idle_since.load(Ordering::Relaxed))
    }

    /// Microseconds that it may still be idle. A clock that was set back begins the term anew.
    fn idle_left_us(&self, now: Moment) -> i64 {
        self.idle_since.fetch_min(now.0, Ordering::Relaxed);
        self.idle_since()
            .plus_s(self.patience_s.load(Ordering::Relaxed))
            .since_us(now)
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    fn is_evicted(&self) -> bool {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Says whether it was told to end and goes on asking. What it asked at that very moment is
    /// answered; the rest of a long row of requests is not.
    fn overstays(&self) -> bool {
        self.is_evicted() && self.brought_since.load(Ordering::Relaxed) > 1
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        let waker = self.waker.lock().ok().and_then(|mut w| w.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Nobody needs to wake it any more: the task that asked for it, which is over, would take its room until then.
    fn sleep(&self) {
        if let Ok(mut slot) = self.waker.lock() {
            *slot = None;
        }
    }

    fn wake_by(&self, waker: &Waker) {
        if let Ok(mut slot) = self.waker.lock() {
            *slot = Some(waker.clone());
        }
    }
}

/// One request of a connection, from its headers to its answer.
pub struct InUse(Arc<Activity>);

impl InUse {
    /// Whether its answer is the last one on its connection.
    pub fn is_last(&self) -> bool {
        self.0.ending.is_begun()
    }

    /// The answer turns the connection into a WebSocket.
    pub fn upgraded(&self) {
        self.0.upgraded.store(true, Ordering::Relaxed);
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let connection = &self.0;
        connection.patience_s.store(idle_s(), Ordering::Relaxed);
        connection
            .idle_since
            .store(clock::now().0, Ordering::Relaxed);
        connection.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What a request knows of its connection.
#[derive(Clone)]
pub struct Connection(pub Arc<Activity>);

impl Connected<IncomingStream<'_, Limited>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Self(stream.io().activity.clone())
    }
}

impl Limited {
    pub fn new(listener: TcpListener, tls: Option<TlsAcceptor>, most: usize) -> Self {
        let (came_in, coming_in) = mpsc::unbounded_channel();
        let ending = Arc::<Ending>::default();
        Self {
            open: ending.open.clone(),
            door: Door {
                listener: Some(listener),
                last: Vec::new(),
                ending,
            },
            tls,
            most,
            telling: Arc::default(),
            connections: Vec::new(),
            outside: Arc::default(),
            came_in,
            coming_in,
        }
    }

    pub fn ending(&self) -> Arc<Ending> {
        self.door.ending.clone()
    }

    /// A place for a newcomer; who waits for one already goes first.
    fn place(&self) -> Option<Place> {
        let nobody_waits = self.outside.taken.load(Ordering::Relaxed) == 0;
        let place = nobody_waits.then(|| Place::take_of(&self.open, self.most));
        place.flatten()
    }

    /// Has a newcomer wait for the place of a connection that was told to end, if there is one. Who
    /// comes after them is held up only while as many wait as may.
    async fn wait_outside(&mut self, stream: TcpStream, address: SocketAddr) {
        self.evict_longest_idle();
        let staying = self.connections.iter().filter(|c| !c.is_evicted());
        // A place that nobody here stays in is about to be free, or somebody is on the way to it.
        if staying.count() >= self.most {
            let wire = Wire::new(stream, self.tls.as_ref());
            return refuse(wire, self.most, &self.telling);
        }
        let outside = Place::free(&self.outside, outside_max(self.most)).await;
        let (open, telling) = (self.open.clone(), self.telling.clone());
        let (most, came_in, tls) = (self.most, self.came_in.clone(), self.tls.clone());
        tokio::spawn(async move {
            let place = tokio::time::timeout(LEAVING, Place::free(&open, most)).await;
            drop(outside);
            match place {
                Ok(place) => drop(came_in.send(Newcomer {
                    stream,
                    address,
                    place,
                })),
                Err(_) => refuse(Wire::new(stream, tls.as_ref()), most, &telling),
            }
        });
    }

    /// Whoever came in may be what somebody behind them waits for.
    fn evict_for_those_outside(&mut self) {
        self.connections.retain(|c| !c.is_gone());
        let leaving = self.connections.iter().filter(|c| c.is_evicted()).count();
        let waiting = self.outside.taken.load(Ordering::Relaxed);
        for _ in leaving..waiting {
            self.evict_longest_idle();
        }
    }

    /// Tells the connection that is idle longest to end; false when all are in use.
    fn evict_longest_idle(&mut self) -> bool {
        self.connections.retain(|c| !c.is_gone());
        let idle = self.connections.iter().filter(|c| c.is_idle());
        let idle = idle.filter(|c| !c.is_evicted());
        let Some(longest) = idle.min_by_key(|c| c.idle_since()) else {
            return false;
        };
        longest.evict();
        true
    }

    fn admit(&mut self, stream: TcpStream, place: Place) -> Limit {
        if self.connections.len() >= self.most {
            self.connections.retain(|c| !c.is_gone());
        }
        let activity = Arc::new(Activity::new(self.ending()));
        self.connections.push(activity.clone());
        Limit {
            stream: Wire::new(stream, self.tls.as_ref()),
            activity,
            tick: Some(Box::pin(tokio::time::sleep(tick()))),
            unread: None,
            _place: place,
        }
    }
}

/// Tells a newcomer that there is no room, beside everything else.
fn refuse(mut stream: Wire, most: usize, telling: &Arc<Places>) {
    let Some(place) = Place::take_of(telling, TOLD_AT_ONCE) else {
        return;
    };
    let body = refusal(most).body().to_string();
    tokio::spawn(async move {
        let _place = place;
        let answer = format!(
            "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
             retry-after: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        // Unread bytes would turn the close into a reset, and the reason would be lost.
        let tell = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            let mut unread = [0; 1024];
            while stream.read(&mut unread).await? > 0 {}
            io::Result::Ok(())
        };
        drop(tokio::time::timeout(TELLING, tell).await);
    });
}

fn refusal(most: usize) -> Problem {
    Problem::new(
        Code::TooManyConnections,
        format!("this server holds {most} connections, and all of them are in use"),
        "close some, or raise `[limits] connections` in config.toml (and `ulimit -n`)",
    )
    .with("limit", most)
}

impl Listener for Limited {
    type Io = Limit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let ending = self.ending();
        loop {
            let accepted = tokio::select! {
                biased;
                Some(newcomer) = self.coming_in.recv() => {
                    let admitted = self.admit(newcomer.stream, newcomer.place);
                    self.evict_for_those_outside();
                    return (admitted, newcomer.address);
                }
                accepted = self.door.accept() => accepted,
                () = ending.over.notified() => {
                    self.connections.iter().for_each(|c| c.evict());
                    continue;
                }
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    // For want of descriptors, perhaps: then the first that leaves brings one.
                    let left = self.open.clone();
                    let left = left.left.notified();
                    let pause = match self.evict_longest_idle() {
                        true => LEAVING,
                        false => ACCEPT_PAUSE,
                    };
                    let _ = tokio::time::timeout(pause, left).await;
                    continue;
                }
            };
            // Frames are small and follow each other: one that waited until the other side had
            // acknowledged the one before it would be 40 ms late.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "A connection sends its frames in its own time");
            }
            match self.place() {
                Some(place) => return (self.admit(stream, place), address),
                None => self.wait_outside(stream, address).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        let listener = self.door.listener.as_ref();
        listener.ok_or(io::ErrorKind::NotConnected)?.local_addr()
    }
}

/// Seconds that a connection may be idle after a request. A test that moves the clock by days keeps
/// its connections, unless they are what it looks at.
fn idle_s() -> i64 {
    let moved = config::clock_file().is_some() && !config::failpoint("connections.idle");
    if moved {
        i64::from(u32::MAX)
    } else {
        IDLE_CONNECTION_S as i64
    }
}

/// Microseconds that an answer may wait for its reader; a moved clock as above.
fn unread_us() -> i64 {
    match idle_s() {
        s if s > IDLE_CONNECTION_S as i64 => i64::MAX,
        _ => UNREAD_ANSWER_S as i64 * 1_000_000,
    }
}

/// How many there are of something, and word of each that leaves.
#[derive(Default)]
struct Places {
    taken: AtomicUsize,
    left: Notify,
}

impl Places {
    /// Waits until all of them have left.
    async fn emptied(&self) {
        loop {
            let left = self.left.notified();
            tokio::pin!(left);
            left.as_mut().enable();
            if self.taken.load(Ordering::Relaxed) == 0 {
                return;
            }
            left.await;
        }
    }
}

/// One of them, until it is dropped.
struct Place(Arc<Places>);

impl Place {
    /// One of so many, if one is free.
    fn take_of(of: &Arc<Places>, most: usize) -> Option<Self> {
        let one_more = |taken| (taken < most).then_some(taken + 1);
        let took = of
            .taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        took.ok().map(|_| Self(of.clone()))
    }

    /// One of so many, as soon as one is free.
    async fn free(of: &Arc<Places>, most: usize) -> Self {
        loop {
            let left = of.left.notified();
            tokio::pin!(left);
            // From here on: a place that becomes free while we look is not missed.
            left.as_mut().enable();
            if let Some(place) = Self::take_of(of, most) {
                return place;
            }
            left.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
        self.0.left.notify_waiters();
    }
}

/// One connection within the limit.
pub struct Limit {
    stream: Wire,
    activity: Arc<Activity>,
    /// When to look at the clock again; none once it carries a WebSocket.
    tick: Option<Pin<Box<Sleep>>>,
    /// Nothing of an answer could be written since then.
    unread: Option<Unread>,
    _place: Place,
}

impl Drop for Limit {
    /// Before its place is free: a request or a task may still hold what is known of it, and it must
    /// not pass for one that is about to leave.
    fn drop(&mut self) {
        self.activity.gone.store(true, Ordering::Relaxed);
    }
}

struct Unread {
    since: Moment,
    tick: Pin<Box<Sleep>>,
}

fn tick() -> Duration {
    config::clock_file().map_or(TICK, |_| TICK_OF_A_MOVED_CLOCK)
}

impl Limit {
    /// Fails once the connection was idle for too long, or another needs its place more.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(timer) = &mut self.tick else {
            return Ok(());
        };
        if self.activity.upgraded.load(Ordering::Relaxed) {
            self.tick = None;
            self.activity.sleep();
            return Ok(());
        }
        self.activity.wake_by(context.waker());
        if !self.activity.is_idle() {
            return Ok(());
        }
        // What has arrived a moment ago is about to be read.
        if self.activity.is_evicted() && !self.stream.has_unread() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        while timer.as_mut().poll(context).is_ready() {
            let left = self.activity.idle_left_us(clock::now());
            let left = u64::try_from(left).unwrap_or(0);
            if left == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            timer.set(tokio::time::sleep(Duration::from_micros(left).min(tick())));
        }
        Ok(())
    }

    /// Passes on what a write came to, and fails for one that waits too long for its reader, or
    /// whose connection another needs more. Whoever does not read is not read either: nothing else
    /// would end it.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.activity.upgraded.load(Ordering::Relaxed) {
            return write;
        }
        if self.activity.overstays() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if write.is_ready() {
            self.unread = None;
            return write;
        }
        self.activity.wake_by(context.waker());
        if self.activity.is_idle() && self.activity.is_evicted() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let unread = self.unread.get_or_insert_with(|| Unread {
            since: clock::now(),
            tick: Box::pin(tokio::time::sleep(tick())),
        });
        while unread.tick.as_mut().poll(context).is_ready() {
            let now = clock::now();
            unread.since = unread.since.min(now);
            if now.since_us(unread.since) >= unread_us() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            unread.tick.set(tokio::time::sleep(tick()));
        }
        write
    }
}

impl AsyncRead for Limit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // What has arrived is read, however late: only silence is a reason to end.
        let read = Pin::new(&mut self.stream).poll_read(context, into);
        if read.is_pending() {
            self.check(context)?;
        }
        read
    }
}

impl AsyncWrite for Limit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(context, write)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(context, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.stream).poll_flush(context);
        // A flush of what is with the system already says nothing of the reader; one of what TLS
        // still holds waits for it.
        match flush.is_pending() {
            true => self.written(context, flush),
            false => flush,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_waits_for_a_place_holds_up_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut limited = Limited::new(listener, None, 16);
        let mut house = Vec::new();
        for _ in 0..16 {
            let stream = TcpStream::connect(address).await.unwrap();
            let (held, _) = limited.accept().await;
            let busy = held.activity.clone().request();
            house.push((stream, held, busy));
        }
        // Told to end, and busy with what it asked at that very moment.
        house[0].1.activity.evict();
        let outside = limited.outside.clone();
        let _others = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        let both_wait = async {
            while outside.taken.load(Ordering::Relaxed) < 2 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = limited.accept() => panic!("there is no place yet"),
            () = both_wait => {}
        }
        drop(house.remove(0));
        let (_newcomer, _) = limited.accept().await;
        assert_eq!(limited.open.taken.load(Ordering::Relaxed), 16);
    }
}
