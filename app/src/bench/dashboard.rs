//! The page: what it reads as rows grow, what open pages cost the server, and how soon it is on
//! screen in a real browser.

use super::history::Seeding;
use super::memory::{Generator, fill};
use super::{PID, Report, Server, ms, p50_p99, progress};
use crate::client::Client;
use crate::shim::socket;
use crate::ui::note;
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, future};
use prism_core::api::page::live::WatchFrame;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Rows of a home of a million signals; smaller ones have their share.
const FULL: f64 = 1_000_000.0;
const MEMORY_ROWS: f64 = 100_000.0;
const INPUTS: f64 = 50_000.0;
const VERDICTS: f64 = 20_000.0;
/// What waits on the operator, in a home of any size.
const WAITING: usize = 40;
/// Sends a second while pages are open.
const SENDS_A_SECOND: u64 = 100;
/// How the page paces what it reads again (`dashboard/src/read.ts`): a read waits so long after the
/// one before while changes keep coming.
const READ_AGAIN: Duration = Duration::from_millis(700);
/// What the browser's run prints its figures behind.
const FIGURE: &str = "FIGURE ";

#[derive(clap::Args)]
pub struct Dashboard {
    /// Signals in each home; memory, recalls and the rest grow with them
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    signals: Vec<usize>,
    /// Times that each list is read
    #[arg(long, default_value_t = 60)]
    rounds: usize,
    /// How many pages are open at once
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 10, 50])]
    pages: Vec<usize>,
    /// Seconds of sends for each number of pages
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// The folder of the page's tests, which drive Chromium [default: tests/page, if it is there]
    #[arg(long, value_name = "DIR")]
    browser: Option<PathBuf>,
    /// Leave the browser out
    #[arg(long)]
    no_browser: bool,
}

impl Dashboard {
    pub async fn run(self) -> Result<Report> {
        let mut report = Report::default();
        let mut figures: Vec<(&'static str, usize, Vec<f64>)> = Vec::new();
        for n in &self.signals {
            figures.extend(reads(*n, self.rounds).await?);
        }
        // One list under the other, each as its rows grow.
        for (what, ..) in queries() {
            for (_, n, samples) in figures.iter_mut().filter(|(name, ..)| *name == what) {
                report.add(format!("{what}, {n} signals"), p50_p99(samples));
            }
        }
        for n in &self.pages {
            open_pages(&mut report, *n, self.seconds).await?;
        }
        if !self.no_browser {
            on_screen(&mut report, self.browser)?;
        }
        Ok(report)
    }
}

/// What is asked, for which verb, with what.
fn queries() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("signals", "signal_list", json!({"limit": 100})),
        (
            "signals of one agent",
            "signal_list",
            json!({"limit": 100, "identity": "Past3"}),
        ),
        (
            "signals from one agent",
            "signal_list",
            json!({"limit": 100, "from": "Past3"}),
        ),
        (
            "signals to one agent",
            "signal_list",
            json!({"limit": 100, "to": "past3"}),
        ),
        (
            "signals of a category there is",
            "signal_list",
            json!({"limit": 100, "category": "TASK"}),
        ),
        (
            "signals of a category there is not",
            "signal_list",
            json!({"limit": 100, "category": "BLOCKER"}),
        ),
        (
            "signals of a type",
            "signal_list",
            json!({"limit": 100, "signal_type": "Question"}),
        ),
        (
            "signals that wait",
            "signal_list",
            json!({"limit": 100, "state": "waiting"}),
        ),
        (
            "signals that were acted on",
            "signal_list",
            json!({"limit": 100, "state": "acted"}),
        ),
        (
            "signals that expired",
            "signal_list",
            json!({"limit": 100, "state": "expired"}),
        ),
        (
            "signals of an hour long ago",
            "signal_list",
            json!({"limit": 100, "since": "AGO", "until": "LATER"}),
        ),
        (
            "signals with words that stand there",
            "signal_list",
            json!({"limit": 100, "words": "done long"}),
        ),
        (
            "signals with words that stand nowhere",
            "signal_list",
            json!({"limit": 100, "words": "nowhere at all"}),
        ),
        ("one signal", "signal_show", json!({"signal_id": "NEWEST"})),
        ("what waits on the operator", "now", json!({})),
        ("agents", "agents", json!({})),
        ("an inbox", "inbox", json!({})),
        ("the story", "story", json!({"limit": 100})),
        (
            "the story of one agent",
            "story",
            json!({"limit": 100, "identity": "Past3"}),
        ),
        (
            "the story of one task",
            "story",
            json!({"limit": 100, "signal_id": "NEWEST"}),
        ),
        ("memory", "memory_list", json!({"limit": 100})),
        (
            "memory of a kind there is not",
            "memory_list",
            json!({"limit": 100, "kinds": ["decision"]}),
        ),
        (
            "memory with words that stand nowhere",
            "memory_list",
            json!({"limit": 100, "words": "nowhere at all"}),
        ),
        ("inputs", "input_list", json!({"limit": 100})),
        (
            "inputs to review",
            "input_list",
            json!({"limit": 100, "review": "unreviewed"}),
        ),
        (
            "inputs that were rejected",
            "input_list",
            json!({"limit": 100, "review": "rejected"}),
        ),
        ("recalls", "recall_list", json!({"limit": 100})),
        (
            "recalls of which something was cited",
            "recall_list",
            json!({"limit": 100, "cited": true}),
        ),
        ("gate events", "gate_list", json!({"limit": 100})),
        (
            "warnings to label",
            "gate_list",
            json!({"limit": 100, "outcome": "warned", "labelled": false}),
        ),
        ("probes", "probe_list", json!({"limit": 100})),
        ("sessions", "session_list", json!({"limit": 100})),
        (
            "open sessions",
            "session_list",
            json!({"limit": 100, "which": "open"}),
        ),
        ("metrics, all of them", "metrics", json!({})),
        ("metrics: gate", "metrics", json!({"only": ["gate"]})),
        (
            "metrics: confirmations",
            "metrics",
            json!({"only": ["confirmations"]}),
        ),
        (
            "metrics: misclassification",
            "metrics",
            json!({"only": ["misclassification"]}),
        ),
        (
            "metrics: corrections",
            "metrics",
            json!({"only": ["corrections"]}),
        ),
        ("metrics: repeats", "metrics", json!({"only": ["repeats"]})),
        (
            "metrics: surfaces",
            "metrics",
            json!({"only": ["surfaces"]}),
        ),
        (
            "metrics: dead ends",
            "metrics",
            json!({"only": ["dead_ends"]}),
        ),
        ("metrics: recall", "metrics", json!({"only": ["recall"]})),
        ("delivery", "delivery", json!({})),
        ("settings", "settings", json!({})),
    ]
}

/// Every list on a home of so many signals, through the verb, taking turns.
async fn reads(n: usize, rounds: usize) -> Result<Vec<(&'static str, usize, Vec<f64>)>> {
    let scale = n as f64 / FULL;
    let server = Server::stopped()?;
    let file = server.home.path("prism.db");
    let share = |full: f64| (full * scale).max(1.0) as usize;
    let mut text = Generator::new(7);
    fill(&file, share(MEMORY_ROWS), Generator::new(11)).await?;
    let seeding = Seeding::open(&file)?;
    seeding.said(share(INPUTS), share(VERDICTS), &mut text)?;
    seeding.run(scale)?;
    drop(seeding);
    let server = server.resume()?;
    let operator = server.operator()?;
    waiting(&server, &operator).await?;
    let newest = operator
        .call(PID, "signal_list", json!({"limit": 1}))
        .await?;
    let newest = newest["signals"][0]["signal_id"].clone();
    let ago = crate::clock::now().plus_s(-20 * 86_400);
    let known = |mut ask: Value| {
        for (_, value) in ask.as_object_mut().into_iter().flatten() {
            match value.as_str() {
                Some("NEWEST") => *value = newest.clone(),
                Some("AGO") => *value = json!(ago),
                Some("LATER") => *value = json!(ago.plus_s(3_600)),
                _ => {}
            }
        }
        ask
    };
    let asked: Vec<_> = queries()
        .into_iter()
        .map(|(what, verb, ask)| (what, verb, known(ask)))
        .collect();
    let mut samples: Vec<Vec<f64>> = vec![Vec::with_capacity(rounds); asked.len()];
    for round in 0..rounds + 2 {
        for ((what, verb, ask), samples) in asked.iter().zip(&mut samples) {
            let started = Instant::now();
            let answer = operator.call(PID, verb, ask.clone()).await;
            let took = ms(started);
            answer.map_err(|p| anyhow::anyhow!("{what}: {}", p.message))?;
            // The first rounds read the files into memory.
            if round >= 2 {
                samples.push(took);
            }
        }
    }
    progress(&format!("every list at {n} signals: done"));
    let names = asked.into_iter().map(|(what, ..)| what);
    Ok(names.zip(samples).map(|(what, s)| (what, n, s)).collect())
}

/// Leaves something for the operator, and something stuck.
async fn waiting(server: &Server, operator: &Client) -> Result<()> {
    let (agent, _) = server.session("Writer").await?;
    for i in 0..WAITING {
        let summary = format!("question {i}");
        let ask = |to: &str| json!({"to": to, "signal_type": "Question", "payload": {"summary": summary}});
        agent.call(PID, "signal", ask("operator")).await?;
        operator.call(PID, "signal", ask("Writer")).await?;
    }
    Ok(())
}

/// An open page: it hears what changed, and reads what the shell and its list show.
async fn page(server: &Server, reads: Arc<AtomicUsize>) -> Result<JoinHandle<()>> {
    let client = server.operator()?;
    let path = format!("/api/v1/watch?pid={PID}");
    let socket = socket::connect_to(&server.url()?, &path, client.key()).await;
    let mut socket = socket.map_err(|p| anyhow::anyhow!(p.message))?;
    let (changed, mut changes) = tokio::sync::watch::channel(0u64);
    let hearing = async move {
        while let Some(Ok(message)) = socket.next().await {
            let frame = message
                .to_text()
                .ok()
                .and_then(|t| serde_json::from_str(t).ok());
            if !matches!(frame, Some(WatchFrame::Beat { .. }) | None) {
                changed.send_modify(|n| *n += 1);
            }
        }
    };
    let reading = async move {
        while changes.changed().await.is_ok() {
            let began = Instant::now();
            for (verb, ask) in [("now", json!({})), ("signal_list", json!({"limit": 100}))] {
                if client.call(PID, verb, ask).await.is_ok() {
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
            tokio::time::sleep(READ_AGAIN.saturating_sub(began.elapsed())).await;
        }
    };
    Ok(tokio::spawn(async move {
        future::join(hearing, reading).await;
    }))
}

/// What so many pages cost while signals are sent, and what they cost whoever sends.
async fn open_pages(report: &mut Report, n: usize, seconds: u64) -> Result<()> {
    let server = Server::start()?;
    let (sender, _) = server.session("Sender").await?;
    server.session("Reader").await?;
    let reads = Arc::new(AtomicUsize::new(0));
    let opened = (0..n).map(|_| page(&server, reads.clone()));
    let pages = future::try_join_all(opened).await?;
    let (cpu, began) = (server.cpu_us()?, Instant::now());
    let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / SENDS_A_SECOND));
    let mut sends = Vec::new();
    for i in 0..seconds * SENDS_A_SECOND {
        ticks.tick().await;
        let sender = sender.clone();
        sends.push(tokio::spawn(async move {
            let started = Instant::now();
            let body = json!({"to": "Reader", "signal_type": "StatusUpdate",
                "idempotency_key": crate::clock::new_id(), "payload": {"summary": format!("change {i}")}});
            sender.call(PID, "signal", body).await.map(|_| ms(started))
        }));
    }
    let mut samples = Vec::with_capacity(sends.len());
    for sent in sends {
        samples.push(sent.await?.map_err(|p| anyhow::anyhow!(p.message))?);
    }
    let spent_s = began.elapsed().as_secs_f64();
    let mut figures = vec![
        ("CPU %", (server.cpu_us()? - cpu) / 10_000.0 / spent_s),
        ("MB", server.rss_mb()?),
        (
            "reads per s",
            reads.load(Ordering::Relaxed) as f64 / spent_s,
        ),
    ];
    figures.extend([("send p50 ms", super::percentile(&mut samples, 0.5))]);
    figures.extend([("send p99 ms", super::percentile(&mut samples, 0.99))]);
    report.add(
        format!("{n} open pages, {SENDS_A_SECOND} signals a second"),
        figures,
    );
    pages.iter().for_each(JoinHandle::abort);
    Ok(())
}

/// Drives Chromium through the page's own tests, which need Node and are no part of the binary.
fn on_screen(report: &mut Report, folder: Option<PathBuf>) -> Result<()> {
    let named = folder.is_some();
    let folder = folder.unwrap_or_else(|| PathBuf::from("tests/page"));
    if !folder.join("run").is_file() {
        ensure!(
            !named,
            "{} has no `run`: name the tests/page of Prism's sources",
            folder.display()
        );
        note(
            "the browser's figures are left out: run this in a clone of Prism's sources with Node 20.19 or \
             later and Chromium, or name its tests/page with --browser",
        );
        return Ok(());
    }
    let figures = browser(&folder)?;
    ensure!(!figures.is_empty(), "the browser's run printed no figures");
    for (name, mut samples) in figures {
        report.add(name, p50_p99(&mut samples));
    }
    Ok(())
}

fn browser(folder: &Path) -> Result<Vec<(String, Vec<f64>)>> {
    let output = Command::new(folder.join("run").canonicalize()?)
        .args(["--config", "figures.config.ts"])
        .env("PRISM_BIN", std::env::current_exe()?)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run the page's tests")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "the browser's run failed:\n{text}");
    let figures = text.lines().filter_map(|line| {
        let (_, figure) = line.split_once(FIGURE)?;
        let figure: Value = serde_json::from_str(figure).ok()?;
        let samples = figure["ms"].as_array()?.iter().filter_map(Value::as_f64);
        Some((figure["name"].as_str()?.to_owned(), samples.collect()))
    });
    Ok(figures.collect())
}
