//! How many connections a server holds, and how long one may be silent before its first request.
//!
//! Whoever connects and asks nothing holds a descriptor without having shown a key. Such a
//! connection ends after ten seconds, and at once when a newcomer finds no room.

use crate::{clock, config};
use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use prism_core::limits::{FILES_RESERVED, FIRST_REQUEST_S};
use prism_core::{Code, Moment, Problem};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;

/// How long a connection may take to bring its first request.
const FIRST_REQUEST: Duration = Duration::from_secs(FIRST_REQUEST_S);
/// Connections that are told at once that there is no room; more than that are just closed.
const TOLD_AT_ONCE: usize = 16;
/// How long telling one may take.
const TELLING: Duration = Duration::from_secs(1);
/// A pause after the system refused a connection, for want of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

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

/// Accepts connections up to a limit.
pub struct Limited {
    listener: TcpListener,
    most: usize,
    open: Arc<AtomicUsize>,
    telling: Arc<AtomicUsize>,
    /// Those that may still be without a request, oldest first.
    silent: VecDeque<Arc<Silence>>,
}

/// Whether a connection has brought a request yet, or was told to go.
#[derive(Default)]
pub struct Silence {
    asked: AtomicBool,
    evicted: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Silence {
    /// A request came: from now on the connection stays as long as it likes.
    pub fn broken(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.asked.load(Ordering::Relaxed) || self.evicted.load(Ordering::Relaxed)
    }

    fn evict(&self) {
        self.evicted.store(true, Ordering::Relaxed);
        let waker = self.waker.lock().ok().and_then(|mut w| w.take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wake_by(&self, waker: &Waker) {
        if let Ok(mut slot) = self.waker.lock() {
            *slot = Some(waker.clone());
        }
    }
}

/// What a request knows of its connection.
#[derive(Clone)]
pub struct Connection(pub Arc<Silence>);

impl Connected<IncomingStream<'_, Limited>> for Connection {
    fn connect_info(stream: IncomingStream<'_, Limited>) -> Self {
        Self(stream.io().silence.clone())
    }
}

impl Limited {
    pub fn new(listener: TcpListener, most: usize) -> Self {
        Self {
            listener,
            most,
            open: Arc::default(),
            telling: Arc::default(),
            silent: VecDeque::new(),
        }
    }

    /// Makes room by ending the connection that has been silent longest; false when none is.
    fn make_room(&mut self) -> bool {
        while let Some(oldest) = self.silent.pop_front() {
            // What nobody else holds is gone already, and made room by itself.
            if !oldest.is_over() && Arc::strong_count(&oldest) > 1 {
                oldest.evict();
                return true;
            }
        }
        false
    }

    fn admit(&mut self, stream: TcpStream) -> Limit {
        // Those that asked, and those that are gone, are silent no more.
        if self.silent.len() >= self.most {
            self.silent
                .retain(|s| !s.is_over() && Arc::strong_count(s) > 1);
        }
        let silence = Arc::new(Silence::default());
        self.silent.push_back(silence.clone());
        self.open.fetch_add(1, Ordering::Relaxed);
        Limit {
            stream,
            silence,
            patience: Some(Patience::new()),
            _place: Place(self.open.clone()),
        }
    }

    fn refuse(&self, mut stream: TcpStream) {
        if self.telling.load(Ordering::Relaxed) >= TOLD_AT_ONCE {
            return;
        }
        self.telling.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.telling.clone());
        let body = refusal(self.most).body().to_string();
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
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "A connection could not be accepted");
                    if !self.make_room() {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                    tokio::task::yield_now().await;
                    continue;
                }
            };
            // Frames are small and follow each other: one that waited until the other side had
            // acknowledged the one before it would be 40 ms late.
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "A connection sends its frames in its own time");
            }
            if self.open.load(Ordering::Relaxed) < self.most || self.make_room() {
                return (self.admit(stream), address);
            }
            self.refuse(stream);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Counts down when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection within the limit.
pub struct Limit {
    stream: TcpStream,
    silence: Arc<Silence>,
    /// Runs until the first request is there.
    patience: Option<Patience>,
    _place: Place,
}

/// Waits for the first request, by the clock that a test can move.
struct Patience {
    until: Moment,
    tick: Pin<Box<Sleep>>,
}

impl Patience {
    fn new() -> Self {
        Self {
            until: clock::now().plus_s(FIRST_REQUEST_S as i64),
            tick: Box::pin(tokio::time::sleep(tick())),
        }
    }

    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        while self.tick.as_mut().poll(context).is_ready() {
            let left = u64::try_from(self.until.since_us(clock::now())).unwrap_or(0);
            if left == 0 {
                return true;
            }
            let left = Duration::from_micros(left).min(tick());
            self.tick.set(tokio::time::sleep(left));
        }
        false
    }
}

/// The whole wait at once, unless somebody moves the clock meanwhile.
fn tick() -> Duration {
    config::clock_file().map_or(FIRST_REQUEST, |_| FIRST_REQUEST / 200)
}

impl Limit {
    /// Fails once the connection was silent for too long.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Some(patience) = &mut self.patience else {
            return Ok(());
        };
        if self.silence.asked.load(Ordering::Relaxed) {
            self.patience = None;
            return Ok(());
        }
        self.silence.wake_by(context.waker());
        if patience.is_over(context) || self.silence.evicted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl AsyncRead for Limit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Limit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
