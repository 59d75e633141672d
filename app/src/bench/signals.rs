//! Sends: how many, how fast, at what cost.

use super::{PID, Report, Server, command, ms, p50_p99, percentile, progress};
use crate::client::Client;
use crate::clock;
use crate::shim::socket;
use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt, future};
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::receipt::State;
use rusqlite::Connection;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Live recipients that a run with many senders spreads over.
const RECIPIENTS_MAX: usize = 64;
const BODY_BYTES: usize = 300;

pub async fn run(sends: usize, sessions: usize, senders: &[usize]) -> Result<Report> {
    let mut report = Report::default();
    let mut fsync = fsync_samples(200)?;
    report.add("one fsync (4 KiB, same disk)", p50_p99(&mut fsync));
    for &senders in senders {
        let n = if senders == 1 { sends / 4 } else { sends };
        report.add(
            format!("bare SQLite group commit, {senders} senders"),
            vec![("per s", bare_sqlite(senders, n).await?)],
        );
        report.add(
            format!("no-op verb, {senders} callers"),
            vec![("per s", no_op(senders, n).await?)],
        );
        report.add(
            format!("no-op verb + a frame each way, {senders} callers"),
            vec![("per s", no_op_with_frames(senders, n).await?)],
        );
        let sent = durable(&[Server::start()?], senders, n).await?;
        report.add(
            format!("durable sends, {senders} senders"),
            vec![
                ("per s", sent.per_s),
                ("with receipts", sent.with_receipts),
                ("CPU us each", sent.cpu_us),
            ],
        );
    }
    let server = Server::start()?;
    let mut latency = latency(&server, 500).await?;
    let fsync_p50 = percentile(&mut fsync, 0.5);
    let mut figures = p50_p99(&mut latency);
    figures.push(("p50 over one fsync", figures[0].1 - fsync_p50));
    report.add("send to the client's socket", figures);
    drop(server);
    let server = Server::start()?;
    for n in [1, sessions] {
        let held = idle_sessions(&server, n).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        report.add(
            format!("server memory, {n} idle session(s)"),
            vec![("MB", server.rss_mb()?)],
        );
        drop(held);
    }
    Ok(report)
}

/// What durability costs on this disk, whoever asks for it.
pub fn fsync_samples(n: usize) -> Result<Vec<f64>> {
    let mut flush = Flush::new()?;
    (0..n).map(|_| flush.sample()).collect()
}

/// A file that is written and flushed, 4 KiB at a time.
pub struct Flush {
    file: std::fs::File,
    path: std::path::PathBuf,
}

impl Flush {
    pub fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("prism-fsync-{}", clock::new_id()));
        let file = std::fs::File::create(&path)?;
        Ok(Self { file, path })
    }

    pub fn sample(&mut self) -> Result<f64> {
        self.file.write_all(&[7; 4096])?;
        let started = Instant::now();
        self.file.sync_data()?;
        Ok(ms(started))
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// The limit: the same file format and flush, one insert a row, nothing else.
async fn bare_sqlite(senders: usize, n: usize) -> Result<f64> {
    let dir = std::env::temp_dir().join(format!("prism-bare-{}", clock::new_id()));
    std::fs::create_dir_all(&dir)?;
    let connection = Connection::open(dir.join("bare.db"))?;
    connection.execute_batch("pragma journal_mode = wal; pragma synchronous = full; create table t (id text primary key, body text)")?;
    let (jobs, inbox) = std::sync::mpsc::channel::<tokio::sync::oneshot::Sender<()>>();
    let writer = std::thread::spawn(move || -> rusqlite::Result<()> {
        let body = "x".repeat(BODY_BYTES);
        while let Ok(first) = inbox.recv() {
            let group: Vec<_> = std::iter::once(first)
                .chain(inbox.try_iter().take(511))
                .collect();
            connection.execute_batch("begin immediate")?;
            for _ in &group {
                connection
                    .prepare_cached("insert into t values (?, ?)")?
                    .execute((clock::new_id().to_string(), &body))?;
            }
            connection.execute_batch("commit")?;
            for answer in group {
                let _ = answer.send(());
            }
        }
        Ok(())
    });
    let per_s = throughput(senders, n, |_| {
        let jobs = jobs.clone();
        async move {
            let (answer, answered) = tokio::sync::oneshot::channel();
            jobs.send(answer).ok().context("writer gone")?;
            answered.await.context("writer gone")
        }
    })
    .await?;
    drop(jobs);
    drop(writer.join());
    std::fs::remove_dir_all(dir)?;
    Ok(per_s)
}

/// Runs `n` calls from `senders` tasks and returns calls a second.
pub async fn throughput<F: Future<Output = Result<()>>>(
    senders: usize,
    n: usize,
    call: impl Fn(usize) -> F,
) -> Result<f64> {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let tasks = (0..senders).map(|_| async {
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= n {
                return anyhow::Ok(());
            }
            call(i).await?;
        }
    });
    future::try_join_all(tasks).await?;
    Ok(n as f64 / started.elapsed().as_secs_f64())
}

async fn no_op(callers: usize, n: usize) -> Result<f64> {
    let server = Server::start()?;
    let (client, _) = server.session("Caller").await?;
    throughput(callers, n, |_| async {
        client.call(PID, "ping", json!({})).await?;
        Ok(())
    })
    .await
}

/// The limit of a push: a request, a frame to a socket and one back, and no store behind them.
async fn no_op_with_frames(callers: usize, n: usize) -> Result<f64> {
    let server = Server::start()?;
    let (framed, mut frames) = mpsc::unbounded_channel();
    let mut sockets = Vec::new();
    for r in 0..callers.min(RECIPIENTS_MAX) {
        let (client, id) = server.session(&format!("Reader{r}")).await?;
        let mut ws = open(&server, &client, id).await?;
        let (ask, mut asked) = mpsc::unbounded_channel::<()>();
        let framed = framed.clone();
        sockets.push(ask);
        tokio::spawn(async move {
            while asked.recv().await.is_some() {
                if ws.send(socket::encode(&ClientFrame::Ping)).await.is_err() {
                    return;
                }
                while let Some(Ok(message)) = ws.next().await {
                    if let Some(ServerFrame::Pong) = socket::decode(&message) {
                        break;
                    }
                }
                let _ = framed.send(());
            }
        });
    }
    let (client, _) = server.session("Caller").await?;
    let (sockets, client) = (&sockets, &client);
    let started = Instant::now();
    throughput(callers, n, |i| async move {
        client.call(PID, "ping", json!({})).await?;
        sockets[i % sockets.len()].send(())?;
        Ok(())
    })
    .await?;
    for _ in 0..n {
        frames.recv().await.context("a frame is missing")?;
    }
    Ok(n as f64 / started.elapsed().as_secs_f64())
}

/// Under a key of its own, as every client sends one.
fn signal(to: &str) -> Value {
    json!({
        "to": to,
        "signal_type": "StatusUpdate",
        "payload": {"summary": "bench", "body": "x".repeat(BODY_BYTES)},
        "idempotency_key": clock::new_id(),
    })
}

/// A live session that confirms every frame, as a shim does.
async fn recipient(
    server: &Server,
    name: &str,
    received: mpsc::UnboundedSender<Instant>,
) -> Result<tokio::task::JoinHandle<()>> {
    let (client, id) = server.session(name).await?;
    let mut ws = open(server, &client, id).await?;
    Ok(tokio::spawn(async move {
        while let Some(Ok(message)) = ws.next().await {
            if let Some(ServerFrame::Signal { envelope, .. }) = socket::decode(&message) {
                let _ = received.send(Instant::now());
                let receipt = ClientFrame::Receipt {
                    state: State::Received,
                    signal_ids: vec![envelope.signal_id],
                    strategy: None,
                    via: None,
                };
                if ws.send(socket::encode(&receipt)).await.is_err() {
                    return;
                }
            }
        }
    }))
}

pub async fn open(server: &Server, client: &Client, session: Uuid) -> Result<socket::Socket> {
    let mut ws = socket::connect(&server.url()?, client.key()).await?;
    ws.send(socket::encode(&ClientFrame::Hello {
        pid: PID.into(),
        session_id: Some(session),
        last_seq: None,
        last_id: None,
        copy: None,
        confirm: vec![],
    }))
    .await?;
    while let Some(message) = ws.next().await {
        if matches!(socket::decode(&message?), Some(ServerFrame::Live)) {
            return Ok(ws);
        }
    }
    bail!("the stream closed before it was live")
}

/// What a run of durable sends came to.
pub struct Durable {
    pub per_s: f64,
    /// Until every receipt is committed, too.
    pub with_receipts: f64,
    /// Of all servers together, for each send.
    pub cpu_us: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// Sends until every receipt is committed, too; CPU is the servers' own. Of several servers on one store
/// each has its share of those who send and of those who receive: with two, half of what is sent is pushed
/// by the other one.
pub async fn durable(servers: &[Server], senders: usize, n: usize) -> Result<Durable> {
    let recipients = senders.min(RECIPIENTS_MAX).max(servers.len());
    let (received, mut frames) = mpsc::unbounded_channel();
    let mut tasks = Vec::new();
    for r in 0..recipients {
        let at = &servers[r % servers.len()];
        tasks.push(recipient(at, &format!("Reader{r}"), received.clone()).await?);
    }
    let mut clients = Vec::new();
    for server in servers {
        clients.push(server.session("Sender").await?.0);
    }
    for client in &clients {
        for r in 0..recipients {
            knows(client, &format!("Reader{r}")).await?;
        }
    }
    let cpu = || servers.iter().map(Server::cpu_us).sum::<Result<f64>>();
    let samples = Mutex::new(Vec::with_capacity(n));
    let (before, started) = (cpu()?, Instant::now());
    throughput(senders, n, |i| {
        // Not in step with the recipients: each server sends to those of all.
        let client = &clients[i / recipients % clients.len()];
        let samples = &samples;
        async move {
            let began = Instant::now();
            let to = format!("Reader{}", i % recipients);
            client.call(PID, "signal", signal(&to)).await?;
            let mut samples = samples.lock().unwrap_or_else(PoisonError::into_inner);
            samples.push(ms(began));
            Ok(())
        }
    })
    .await?;
    let accepted = started.elapsed();
    for _ in 0..n {
        frames.recv().await.context("a frame is missing")?;
    }
    // A trace settles the store: every receipt handed over is committed.
    for client in &clients {
        client.call(PID, "status", json!({})).await?;
    }
    let all = started.elapsed();
    let cpu_us = (cpu()? - before) / n as f64;
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    let mut samples = samples.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(Durable {
        per_s: n as f64 / accepted.as_secs_f64(),
        with_receipts: n as f64 / all.as_secs_f64(),
        cpu_us,
        p50_ms: percentile(&mut samples, 0.5),
        p99_ms: percentile(&mut samples, 0.99),
    })
}

/// Waits until a server knows somebody who may have come to another one a moment ago.
async fn knows(client: &Client, name: &str) -> Result<()> {
    let whois = json!({"identity": name});
    for _ in 0..50 {
        if client.call(PID, "whois", whois.clone()).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    bail!("a server does not get to know {name}")
}

async fn latency(server: &Server, n: usize) -> Result<Vec<f64>> {
    let (received, mut frames) = mpsc::unbounded_channel();
    let task = recipient(server, "Reader", received).await?;
    let (client, _) = server.session("Sender").await?;
    let mut samples = Vec::with_capacity(n);
    for i in 0..n + 20 {
        let started = Instant::now();
        let (arrived, sent) =
            tokio::join!(frames.recv(), client.call(PID, "signal", signal("Reader")));
        sent?;
        if i >= 20 {
            samples.push(
                arrived
                    .context("a frame is missing")?
                    .duration_since(started)
                    .as_secs_f64()
                    * 1000.0,
            );
        }
    }
    task.abort();
    Ok(samples)
}

async fn idle_sessions(server: &Server, n: usize) -> Result<Vec<socket::Socket>> {
    let mut sockets = Vec::with_capacity(n);
    for i in 0..n {
        let (client, id) = server.session(&format!("Idle{i}")).await?;
        sockets.push(open(server, &client, id).await?);
        if i % 200 == 199 {
            progress(&format!("{} sessions", i + 1));
        }
    }
    Ok(sockets)
}

/// A real shim process whose host is this bench.
pub struct Shim {
    process: Child,
}

impl Shim {
    pub fn start(server: &Server, identity: &str) -> Result<Self> {
        let mut process = command(&server.home)?
            .env("PRISM_AGENT_IDENTITY", identity)
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = process.stdin.as_mut().context("no stdin")?;
        let mut lines = BufReader::new(process.stdout.as_mut().context("no stdout")?).lines();
        let init = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}});
        writeln!(stdin, "{init}")?;
        lines.next().context("no answer")??;
        writeln!(
            stdin,
            "{}",
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
        )?;
        writeln!(
            stdin,
            "{}",
            json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "prism_start", "arguments": {}}})
        )?;
        lines.next().context("no answer")??;
        drop(lines);
        // The bench is a host that reads its bells and thinks nothing of them.
        let mut stdout = process.stdout.take().context("no stdout")?;
        std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
        Ok(Self { process })
    }
}

impl Drop for Shim {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// From the send to the ring file on disk, seen from outside.
pub async fn to_ring() -> Result<Report> {
    let mut report = Report::default();
    let mut fsync = fsync_samples(200)?;
    report.add("one fsync (4 KiB, same disk)", p50_p99(&mut fsync));
    let fsync_p50 = percentile(&mut fsync, 0.5);
    for sessions in [1usize, 100] {
        let server = Server::start()?;
        let mut shims = vec![Shim::start(&server, "Reader")?];
        for i in 1..sessions {
            shims.push(Shim::start(&server, &format!("Other{i}"))?);
        }
        let (client, _) = server.session("Sender").await?;
        let file = server.home.path("signals-Reader.jsonl");
        let mut samples = Vec::new();
        for i in 0..220 {
            let started = Instant::now();
            let (mark, watched) = (format!("\"ring {i}\""), file.clone());
            let seen = tokio::task::spawn_blocking(move || {
                let deadline = Instant::now() + Duration::from_secs(10);
                while Instant::now() < deadline {
                    if std::fs::read_to_string(&watched).is_ok_and(|text| text.contains(&mark)) {
                        return Some(Instant::now());
                    }
                    std::thread::sleep(Duration::from_micros(50));
                }
                None
            });
            client.call(PID, "signal", json!({"to": "Reader", "signal_type": "StatusUpdate", "payload": {"summary": format!("ring {i}")}})).await?;
            let seen = seen.await?.context("a signal did not reach the ring")?;
            if i >= 20 {
                samples.push(seen.duration_since(started).as_secs_f64() * 1000.0);
            }
        }
        let mut figures = p50_p99(&mut samples);
        figures.push(("p50 over one fsync", figures[0].1 - fsync_p50));
        report.add(format!("send to ring, {sessions} session(s)"), figures);
    }
    Ok(report)
}
