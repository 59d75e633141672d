//! Verbs on both engines, taking turns, and how often each goes to the database.

use super::super::history::Seeding;
use super::super::memory::{Generator, fill};
use super::super::{PID, Server, ms};
use super::databases::{Engines, Floor};
use super::{Figures, Limit, Sizes, middle_and_tail};
use crate::client::Client;
use crate::clock;
use crate::ui::note;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Instant;

/// The target: a read takes at most so many times what it takes on SQLite, and a durable write one commit
/// and so much more.
const TIMES_MAX: f64 = 3.0;
const OVER_A_COMMIT_MS: f64 = 1.5;
/// Rows of memory behind the verbs, and the share of a past with a million signals.
const ROWS: usize = 2_000;
const PAST: f64 = 0.01;
/// Calls that open connections and prepare statements.
const WARM_UP: usize = 10;
/// Calls whose ways to the database are counted together, and how often: housekeeping may come between.
const COUNTED: usize = 20;
const COUNTS: usize = 3;

/// Who asks.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Agent,
    Operator,
}

/// What a verb waits for.
#[derive(Clone, Copy, PartialEq)]
enum Waits {
    /// For nothing that must be on disk.
    Reads,
    /// For so many commits, one after the other.
    Commits(u32),
}

/// A verb as it is asked.
struct Asked {
    name: &'static str,
    path: &'static str,
    who: Who,
    waits: Waits,
    body: fn(&str) -> Value,
}

const fn reads(name: &'static str, who: Who, body: fn(&str) -> Value) -> Asked {
    Asked {
        name,
        path: name,
        who,
        waits: Waits::Reads,
        body,
    }
}

const fn writes(name: &'static str, body: fn(&str) -> Value) -> Asked {
    Asked {
        name,
        path: name,
        who: Who::Agent,
        waits: Waits::Commits(1),
        body,
    }
}

/// Every kind of read and write; the word that is handed over is another each time.
const VERBS: &[Asked] = &[
    reads("ping", Who::Agent, |_| json!({})),
    reads("whois", Who::Agent, |_| json!({"identity": PEER})),
    reads("status", Who::Agent, |_| json!({})),
    reads("deltas", Who::Agent, |_| json!({})),
    reads("session_brief", Who::Agent, |_| json!({})),
    reads("memory_stats", Who::Agent, |_| json!({})),
    reads("gate_report", Who::Agent, |_| json!({})),
    reads(
        "recall",
        Who::Agent,
        |word| json!({"query": format!("what made {word} stop"), "legs": ["lexical", "graph", "recency"]}),
    ),
    reads("now", Who::Operator, |_| json!({})),
    reads("agents", Who::Operator, |_| json!({})),
    reads("session_list", Who::Operator, |_| json!({"limit": 50})),
    reads("signal_list", Who::Operator, |_| json!({"limit": 50})),
    reads("memory_list", Who::Operator, |_| json!({"limit": 50})),
    reads("recall_list", Who::Operator, |_| json!({"limit": 50})),
    reads("input_list", Who::Operator, |_| json!({"limit": 50})),
    reads("gate_list", Who::Operator, |_| json!({"limit": 50})),
    reads("story", Who::Operator, |_| json!({})),
    reads("key_list", Who::Operator, |_| json!({})),
    reads("project_list", Who::Operator, |_| json!({})),
    writes("signal", |word| {
        // To the operator, who has no socket.
        json!({"to": "operator", "signal_type": "StatusUpdate", "payload": {"summary": word},
            "idempotency_key": clock::new_id()})
    }),
    writes(
        "note",
        |word| json!({"text": format!("the ring holds {word}")}),
    ),
    writes(
        "checkpoint",
        |word| json!({"summary": format!("looked at {word}"), "touched_files": ["src/a.rs"]}),
    ),
    writes(
        "operator_input",
        |word| json!({"class": "correction", "prompt_text": format!("no, {word}"), "confidence": "high"}),
    ),
    writes(
        "decide",
        |word| json!({"title": word, "context": "c", "decision": "d"}),
    ),
];

const AGENT: &str = "Texi";
const PEER: &str = "Donna";

/// A server with somebody who asks.
struct Side<'s> {
    server: &'s Server,
    agent: Client,
    operator: Client,
    words: Generator,
}

impl<'s> Side<'s> {
    async fn enter(server: &'s Server) -> Result<Self> {
        server.session(PEER).await?;
        let (agent, _) = server.session(AGENT).await?;
        Ok(Self {
            server,
            agent,
            operator: server.operator()?,
            words: Generator::new(11),
        })
    }

    async fn call(&mut self, asked: &Asked) -> Result<f64> {
        let body = (asked.body)(&self.words.words(1));
        let client = match asked.who {
            Who::Agent => &self.agent,
            Who::Operator => &self.operator,
        };
        let started = Instant::now();
        let answer = client.call(PID, asked.path, body).await;
        let took = ms(started);
        answer.with_context(|| asked.path)?;
        Ok(took)
    }

    /// How often a call of this goes to the database and back.
    async fn round_trips(&mut self, asked: &Asked) -> Result<f64> {
        let mut fewest = f64::INFINITY;
        for _ in 0..COUNTS {
            let before = metric(self.server, "database_round_trips_total")?;
            for _ in 0..COUNTED {
                self.call(asked).await?;
            }
            let after = metric(self.server, "database_round_trips_total")?;
            fewest = fewest.min((after - before) / COUNTED as f64);
        }
        Ok(fewest)
    }

    /// One signal from the peer, read and confirmed: the time of the reading.
    async fn drain(&mut self) -> Result<f64> {
        let signal = json!({"to": AGENT, "signal_type": "StatusUpdate",
            "payload": {"summary": "bench"}, "idempotency_key": clock::new_id()});
        self.operator.call(PID, "signal", signal).await?;
        let started = Instant::now();
        let drained = self.agent.call(PID, "signals_pending", json!({})).await?;
        ensure!(
            drained["signals"].as_array().map(Vec::len) == Some(1),
            "a drain brings one signal: {drained}"
        );
        let lease = json!({"lease_id": drained["lease_id"]});
        self.agent.call(PID, "signals_confirm", lease).await?;
        Ok(ms(started))
    }
}

/// A number that a server tells of itself.
pub fn metric(server: &Server, name: &str) -> Result<f64> {
    let url = server.url()?;
    let at = url.strip_prefix("http://").context("no http")?;
    let mut stream = TcpStream::connect(at)?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: {at}\r\nconnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let line = format!("prism_{name} ");
    let told = text
        .lines()
        .find_map(|l| l.strip_prefix(&line)?.trim().parse().ok());
    told.with_context(|| format!("the server does not tell {name}"))
}

/// A store with a little of everything in it.
async fn seed(file: &Path) -> Result<()> {
    fill(file, ROWS, Generator::new(7)).await?;
    let file = file.to_owned();
    tokio::task::spawn_blocking(move || Seeding::open(&file)?.run(PAST)).await?
}

/// The middle and the tail of every verb on two servers that take turns, and of a drain at the end.
async fn measured(sides: &mut [Side<'_>; 2], runs: usize) -> Result<Vec<[(f64, f64); 2]>> {
    let mut figures = Vec::new();
    // All reads come before all writes: what these leave behind is not counted by those.
    for asked in VERBS.iter().map(Some).chain([None]) {
        let mut samples = [Vec::new(), Vec::new()];
        for round in 0..runs + WARM_UP {
            for (side, samples) in sides.iter_mut().zip(&mut samples) {
                let took = match asked {
                    Some(asked) => side.call(asked).await?,
                    None => side.drain().await?,
                };
                if round >= WARM_UP {
                    samples.push(took);
                }
            }
        }
        figures.push(samples.map(|mut samples| middle_and_tail(&mut samples)));
    }
    Ok(figures)
}

pub async fn side_by_side(
    engines: &Engines,
    sizes: &Sizes,
    floor: &Floor,
    figures: &mut Figures,
) -> Result<()> {
    let (database, mut embedded) = (engines.database().await?, Server::stopped()?);
    let file = embedded.home.path("prism.db");
    seed(&file).await?;
    database.take_in(file).await?;
    database.analyze().await?;
    embedded.launch()?;
    let shared = engines.server(&database, "operator")?.resume()?;
    let mut sides = [Side::enter(&embedded).await?, Side::enter(&shared).await?];
    let all = measured(&mut sides, sizes.runs).await?;
    let drain = Asked {
        name: "drain (lease and confirm)",
        path: "",
        who: Who::Agent,
        waits: Waits::Commits(2),
        body: |_| json!({}),
    };
    for (asked, [sqlite, postgres]) in VERBS.iter().chain([&drain]).zip(all) {
        let times = TIMES_MAX * sqlite.0;
        let most = match asked.waits {
            Waits::Reads => times,
            Waits::Commits(n) => f64::from(n) * (floor.commit_ms + OVER_A_COMMIT_MS),
        };
        let figure = figures.add(
            format!("{} p50", asked.name),
            "ms",
            Some(sqlite.0),
            Some(postgres.0),
        );
        figure.limit = Some(Limit::AtMost(most));
        figure.more = vec![("p99 SQLite", sqlite.1), ("PostgreSQL", postgres.1)];
        if !asked.path.is_empty() {
            let trips = sides[1].round_trips(asked).await?;
            figure.more.push(("round trips", trips));
        }
    }
    Ok(())
}

/// The same verbs by a user for whom rows are kept apart by tenant, and in a database where they are not.
pub async fn with_and_without_security(
    engines: &Engines,
    sizes: &Sizes,
    figures: &mut Figures,
) -> Result<()> {
    let (Some(with), Some(without)) = (
        engines.members_database().await?,
        engines.members_database().await?,
    ) else {
        note(
            "security: --database names no superuser, so no user can be made for whom rows are kept apart",
        );
        return Ok(());
    };
    let filled = Server::stopped()?;
    let file = filled.home.path("prism.db");
    seed(&file).await?;
    for database in [&with, &without] {
        database.take_in(file.clone()).await?;
        database.analyze().await?;
    }
    drop(filled);
    let kept_apart = with.secured_tables().await?;
    if kept_apart.is_empty() {
        note(
            "security: no table has row-level security in this schema, so there is nothing to compare",
        );
        return Ok(());
    }
    without.without_security().await?;
    let servers = [&without, &with].map(|database| engines.server(database, "operator")?.resume());
    let [without, with] = servers;
    let (without, with) = (without?, with?);
    let mut sides = [Side::enter(&without).await?, Side::enter(&with).await?];
    let all = measured(&mut sides, sizes.runs).await?;
    let names = VERBS.iter().map(|asked| asked.name).chain(["drain"]);
    for (name, [without, with]) in names.zip(all) {
        let figure = figures.add(
            format!("{name} p50, row-level security"),
            "ms",
            None,
            Some(with.0),
        );
        figure.more = vec![("without", without.0), ("times", with.0 / without.0)];
    }
    Ok(())
}
