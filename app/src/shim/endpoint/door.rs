//! Who may stand in the shim's door: few at once, and nobody for long without a request.
//!
//! A shim's descriptors are its host's pipes, its files and its socket to the server; whoever
//! floods its door must not take them.

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use prism_core::limits::{SHIM_CONNECTIONS_MAX, SHIM_REQUEST_S};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// How long a request may take to arrive, head and body, and how long the next one may stay away.
const PATIENCE: Duration = Duration::from_secs(SHIM_REQUEST_S);
/// A pause after the system refused a connection, for want of descriptors for instance.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Lets in a bounded number; a newcomer takes the place of whoever idles longest.
pub struct Door {
    listener: TcpListener,
    places: Arc<Semaphore>,
    visitors: Vec<Arc<Visitor>>,
}

/// One connection, as the door and the requests on it know it.
pub struct Visitor {
    state: Mutex<State>,
}

struct State {
    /// A whole request of somebody with the token is being answered.
    in_use: bool,
    /// When it has idled for too long.
    until: Instant,
    sent_away: bool,
    waker: Option<Waker>,
}

impl Visitor {
    fn new() -> Self {
        Self {
            state: Mutex::new(State {
                in_use: false,
                until: Instant::now() + PATIENCE,
                sent_away: false,
                waker: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request is here whole: its answer may take as long as it takes.
    pub fn served(self: Arc<Self>) -> Served {
        self.state().in_use = true;
        Served(self)
    }

    fn send_away(&self) {
        let waker = {
            let mut state = self.state();
            state.sent_away = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A request being answered; the patience for the next one begins when it is dropped.
pub struct Served(Arc<Visitor>);

impl Drop for Served {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.in_use = false;
        state.until = Instant::now() + PATIENCE;
    }
}

/// What a request knows of its connection.
#[derive(Clone)]
pub struct Standing(pub Arc<Visitor>);

impl Connected<IncomingStream<'_, Door>> for Standing {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(stream.io().visitor.clone())
    }
}

impl Door {
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            places: Arc::new(Semaphore::new(SHIM_CONNECTIONS_MAX)),
            visitors: Vec::new(),
        }
    }

    /// Sends away whoever idles longest.
    fn make_room(&mut self) {
        let idle = self.visitors.iter().filter(|visitor| {
            let state = visitor.state();
            !state.in_use && !state.sent_away
        });
        if let Some(longest) = idle.min_by_key(|visitor| visitor.state().until) {
            longest.send_away();
        }
    }

    /// A place, as soon as there is one: until then whoever comes waits outside.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Some(place);
        }
        // What nobody else holds is gone already.
        self.visitors.retain(|v| Arc::strong_count(v) > 1);
        self.make_room();
        self.places.clone().acquire_owned().await.ok()
    }
}

impl Listener for Door {
    type Io = Visit;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, address) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "A connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(place) = self.place().await else {
                continue;
            };
            let visitor = Arc::new(Visitor::new());
            if self.visitors.len() >= SHIM_CONNECTIONS_MAX {
                self.visitors.retain(|v| Arc::strong_count(v) > 1);
            }
            self.visitors.push(visitor.clone());
            let timer = Box::pin(tokio::time::sleep(PATIENCE));
            let visit = Visit {
                stream,
                visitor,
                timer,
                _place: place,
            };
            return (visit, address);
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// The stream of one connection: it ends when its time is up.
pub struct Visit {
    stream: TcpStream,
    visitor: Arc<Visitor>,
    timer: Pin<Box<Sleep>>,
    _place: OwnedSemaphorePermit,
}

impl Visit {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        loop {
            let until = {
                let mut state = self.visitor.state();
                state.waker = Some(context.waker().clone());
                if state.in_use {
                    return Ok(());
                }
                if state.sent_away || state.until <= Instant::now() {
                    return Err(late());
                }
                state.until
            };
            if self.timer.deadline() != until {
                self.timer.as_mut().reset(until);
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Ok(());
            }
        }
    }
}

impl AsyncRead for Visit {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Looked at before every read: a request that comes byte by byte is late, too.
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Visit {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
