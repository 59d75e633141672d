//! A wire between a shim and its server that a test can cut, freeze or answer on.

use super::Server;
use futures_util::{SinkExt, StreamExt};
use prism_core::api::ServerFrame;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

/// What the wire does with sockets; plain requests pass, unless the test refuses some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    Pass,
    /// Nothing moves on those that are open, as after a sleep; new ones pass.
    Freeze,
    /// Those that are open are cut, and new ones are not let through.
    Cut,
    /// Those that are open are cut, and new ones closed with this code.
    Close(u16),
    /// Those that are open are cut; on new ones the test says what the server would.
    Script,
}

pub struct Wire {
    pub url: String,
    mode: watch::Sender<Sockets>,
    refused: Arc<AtomicUsize>,
    script: Arc<Mutex<Vec<ServerFrame>>>,
    refusals: watch::Sender<VecDeque<Value>>,
    _runtime: tokio::runtime::Runtime,
}

impl Wire {
    pub fn to(server: &Server) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let target: SocketAddr = server.url()["http://".len()..].parse().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mode = watch::Sender::new(Sockets::Pass);
        let (refused, script) = (Arc::default(), Arc::default());
        let refusals = watch::Sender::default();
        runtime.spawn(accept(
            listener,
            target,
            mode.clone(),
            Arc::clone(&refused),
            Arc::clone(&script),
            refusals.clone(),
        ));
        Self {
            url,
            mode,
            refused,
            script,
            refusals,
            _runtime: runtime,
        }
    }

    pub fn set(&self, mode: Sockets) {
        self.mode.send_replace(mode);
    }

    /// Takes the server's place on the next socket: after its hello these are said.
    pub fn play(&self, frames: Vec<ServerFrame>) {
        *self.script.lock().unwrap() = frames;
        self.set(Sockets::Script);
    }

    /// The next plain requests are answered with these problems: with 429, or the status that one says.
    pub fn refuse(&self, problems: &[Value]) {
        self.refusals
            .send_replace(problems.iter().cloned().collect());
    }

    /// How many of the refusals nobody has met yet.
    pub fn refusals_left(&self) -> usize {
        self.refusals.borrow().len()
    }

    /// How many new sockets did not get through.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    mode: watch::Sender<Sockets>,
    refused: Arc<AtomicUsize>,
    script: Arc<Mutex<Vec<ServerFrame>>>,
    refusals: watch::Sender<VecDeque<Value>>,
) {
    while let Ok((client, _)) = listener.accept().await {
        let (mut mode, refused) = (mode.subscribe(), refused.clone());
        let (script, refusals) = (script.clone(), refusals.clone());
        tokio::spawn(async move {
            let mut head = [0; 64];
            let n = client.peek(&mut head).await.unwrap_or(0);
            if !head[..n].starts_with(b"GET /api/v1/stream") {
                return pass(client, target, refusals).await;
            }
            let now = *mode.borrow();
            match now {
                Sockets::Pass | Sockets::Freeze => socket(client, target, mode).await,
                Sockets::Cut => {
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Sockets::Close(code) => {
                    if let Ok(mut ws) = tokio_tungstenite::accept_async(client).await {
                        let reason = "not now".into();
                        let frame = CloseFrame {
                            code: code.into(),
                            reason,
                        };
                        drop(ws.send(Message::Close(Some(frame))).await);
                    }
                    refused.fetch_add(1, Ordering::Relaxed);
                }
                Sockets::Script => {
                    let Ok(mut ws) = tokio_tungstenite::accept_async(client).await else {
                        return;
                    };
                    drop(ws.next().await);
                    let frames = std::mem::take(&mut *script.lock().unwrap());
                    for frame in frames {
                        let text = serde_json::to_string(&frame).unwrap();
                        drop(ws.send(Message::Text(text.into())).await);
                    }
                    drop(mode.wait_for(|mode| *mode != Sockets::Script).await);
                }
            }
        });
    }
}

async fn pass(mut client: TcpStream, target: SocketAddr, refusals: watch::Sender<VecDeque<Value>>) {
    let mut changed = refusals.subscribe();
    let mut refusal = None;
    refusals.send_if_modified(|left| {
        refusal = left.pop_front();
        false
    });
    if let Some(problem) = refusal {
        return refuse(client, &problem).await;
    }
    if let Ok(mut server) = TcpStream::connect(target).await {
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
            // A connection that is kept open would carry the next request past the refusal.
            _ = changed.changed() => {}
        }
    }
}

/// Reads one request and refuses it.
async fn refuse(mut client: TcpStream, problem: &Value) {
    let (mut request, mut part) = (Vec::new(), [0; 8192]);
    while !is_whole(&request) {
        match client.read(&mut part).await {
            Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
            _ => return,
        }
    }
    let body = json!({ "error": problem }).to_string();
    let status = problem["status"].as_u64().unwrap_or(429);
    let answer = format!(
        "HTTP/1.1 {status} Not now\r\ncontent-type: application/json\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    drop(client.write_all(answer.as_bytes()).await);
}

/// Whether a request is there with the body that it announced.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let announced = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let length = name.eq_ignore_ascii_case("content-length");
        length.then(|| value.trim().parse::<usize>().unwrap())
    });
    body.len() >= announced.unwrap_or(0)
}

/// Passes bytes until the mode changes to one that ends or freezes what is open.
async fn socket(mut client: TcpStream, target: SocketAddr, mut mode: watch::Receiver<Sockets>) {
    let Ok(mut server) = TcpStream::connect(target).await else {
        return;
    };
    // A freeze is for the sockets that were open when it came.
    let now = *mode.borrow_and_update();
    if !matches!(now, Sockets::Pass | Sockets::Freeze) {
        return;
    }
    let (mut up, mut down) = ([0; 8192], [0; 8192]);
    loop {
        let alive = tokio::select! {
            // First: nothing that comes after a cut gets through.
            biased;
            _ = mode.changed() => match *mode.borrow_and_update() {
                Sockets::Cut | Sockets::Close(_) | Sockets::Script => return,
                Sockets::Freeze => break,
                Sockets::Pass => true,
            },
            read = client.read(&mut up) => match read {
                Ok(n) if n > 0 => server.write_all(&up[..n]).await.is_ok(),
                _ => false,
            },
            read = server.read(&mut down) => match read {
                Ok(n) if n > 0 => client.write_all(&down[..n]).await.is_ok(),
                _ => false,
            },
        };
        if !alive {
            return;
        }
    }
    // Frozen: both ends stay open, and nothing moves until the test is over.
    std::future::pending::<()>().await;
}
