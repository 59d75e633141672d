//! What history costs: the same acts on an empty home and on one with months behind it.

use super::memory::{Generator, fill};
use super::{PID, Server, ms, percentile, progress, shown};
use crate::client::Client;
use crate::clock;
use crate::store::Store;
use crate::ui::{Failure, Outcome, out_anyway, table};
use anyhow::{Context, Result, ensure};
use prism_core::Moment;
use prism_core::limits::DAY_US;
use rusqlite::{Connection, Statement, params};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use uuid::Uuid;

/// Rows of a home of full size.
const SIGNALS: f64 = 1_000_000.0;
const RECALL_EVENTS: f64 = 200_000.0;
const MEMORY_ROWS: f64 = 100_000.0;
const GATE_EVENTS: f64 = 20_000.0;
const LOOPBACK_RUNS: f64 = 5_000.0;
const DONE_TODOS: f64 = 5_000.0;
/// Who sent and read all that, and in how many sessions each.
const PERSONAS: usize = 20;
const SESSIONS_EACH: usize = 100;
/// How far back it reaches: nothing is old enough to go.
const DAYS: i64 = 25;
/// Rows in one transaction of the seeding.
const BATCH: usize = 50_000;

/// The target: at most so many times the empty home's figure, or so much more.
const TIMES_MAX: f64 = 1.5;
const MORE_MS_MAX: f64 = 1.0;
const MORE_MB_MAX: f64 = 30.0;

#[derive(clap::Args)]
pub struct History {
    /// A smaller past: 0.1 is a tenth of the rows
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Keep the home with the past in this folder, and use it again
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Rounds of every act, the two homes taking turns
    #[arg(long, default_value_t = 200)]
    rounds: usize,
    /// Starts of each server
    #[arg(long, default_value_t = 15)]
    starts: usize,
}

const MARK: &str = "history.json";

impl History {
    pub async fn run(self, json: bool) -> Outcome {
        let figures = self.measure().await?;
        let all_within = figures.iter().all(Figure::within);
        print(&figures, json);
        match all_within {
            true => Ok(()),
            false => Err(Failure::Negative),
        }
    }

    async fn measure(&self) -> Result<Vec<Figure>> {
        let past = Server::of_operator("operator", self.keep.clone())?;
        self.seed(&past).await?;
        let mut sides = [Side::new(Server::stopped()?), Side::new(past)];
        for round in 0..self.starts {
            for side in &mut sides {
                side.start()?;
            }
            progress(&format!("start {} of {}", round + 1, self.starts));
        }
        for side in &mut sides {
            side.enter().await?;
        }
        for round in 0..self.rounds {
            for side in &mut sides {
                side.round().await?;
            }
            if round % 20 == 19 {
                progress(&format!("round {} of {}", round + 1, self.rounds));
            }
        }
        let memory = [sides[0].server.rss_mb()?, sides[1].server.rss_mb()?];
        let mut sweeps = Vec::new();
        for side in &mut sides {
            side.leave().await?;
            side.server.stop();
            sweeps.push(Sweeps::open(&side.server.home.path("prism.db"))?);
        }
        for _ in 0..self.rounds {
            for (side, sweep) in sides.iter_mut().zip(&sweeps) {
                sweep.round(side).await?;
            }
        }
        for sweep in sweeps {
            sweep.store.close().await;
        }
        let [mut empty, mut past] = sides.map(|side| side.samples);
        let mut figures: Vec<Figure> = empty
            .iter_mut()
            .map(|(name, samples)| Figure {
                name,
                unit: "ms",
                empty: percentile(samples, 0.5),
                past: past
                    .get_mut(name)
                    .map_or(f64::NAN, |samples| percentile(samples, 0.5)),
            })
            .collect();
        figures.push(Figure {
            name: "9 server memory, vectors aside",
            unit: "MB",
            empty: memory[0],
            past: memory[1],
        });
        Ok(figures)
    }

    /// Fills the home, unless it was kept from another run.
    async fn seed(&self, past: &Server) -> Result<()> {
        let mark = json!({ "scale": self.scale }).to_string();
        match past.home.read(MARK) {
            Some(kept) => {
                ensure!(
                    kept == mark,
                    "{} holds a past of another size ({kept}): use another folder",
                    past.home.dir().display()
                );
                Ok(())
            }
            None => {
                let file = past.home.path("prism.db");
                progress("writing memory");
                fill(&file, rows(MEMORY_ROWS, self.scale), Generator::new(7)).await?;
                Seeding::open(&file)?.run(self.scale)?;
                past.home.write(MARK, mark.as_bytes())
            }
        }
    }
}

fn rows(full: f64, scale: f64) -> usize {
    (full * scale).max(1.0) as usize
}

/// One figure of both homes.
struct Figure {
    name: &'static str,
    unit: &'static str,
    empty: f64,
    past: f64,
}

impl Figure {
    fn limit(&self) -> f64 {
        match self.unit {
            "MB" => self.empty + MORE_MB_MAX,
            _ => (self.empty * TIMES_MAX).max(self.empty + MORE_MS_MAX),
        }
    }

    fn within(&self) -> bool {
        self.past <= self.limit()
    }

    /// The number in front only orders the rows.
    fn title(&self) -> &str {
        self.name
            .split_once(' ')
            .map_or(self.name, |(_, name)| name)
    }
}

fn print(figures: &[Figure], json: bool) {
    if json {
        let rounded = |v: f64| (v * 1000.0).round() / 1000.0;
        let rows: Vec<Value> = figures
            .iter()
            .map(|f| {
                json!({"name": f.title(), "unit": f.unit, "empty": rounded(f.empty),
                    "history": rounded(f.past), "ratio": rounded(f.past / f.empty),
                    "limit": rounded(f.limit()), "within": f.within()})
            })
            .collect();
        let report = json!({"version": crate::VERSION, "rows": rows});
        return out_anyway(&serde_json::to_string_pretty(&report).unwrap_or_default());
    }
    let heading = ["p50", "empty", "history", "ratio", "limit", ""];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(figures.iter().map(|f| {
        vec![
            f.title().to_owned(),
            format!("{} {}", shown(f.empty), f.unit),
            format!("{} {}", shown(f.past), f.unit),
            format!("{:.2}", f.past / f.empty),
            format!("{} {}", shown(f.limit()), f.unit),
            if f.within() { "within" } else { "OVER" }.to_owned(),
        ]
    }));
    out_anyway(&table(&rows));
}

/// One of the two homes, its server, and what was measured on it.
struct Side {
    server: Server,
    samples: BTreeMap<&'static str, Vec<f64>>,
    sender: Option<Client>,
    reader: Option<Client>,
    sweeper: Option<Client>,
}

impl Side {
    fn new(server: Server) -> Self {
        Self {
            server,
            samples: BTreeMap::new(),
            sender: None,
            reader: None,
            sweeper: None,
        }
    }

    fn note(&mut self, name: &'static str, since: Instant) {
        self.samples.entry(name).or_default().push(ms(since));
    }

    fn start(&mut self) -> Result<()> {
        self.server.stop();
        let started = Instant::now();
        self.server.launch()?;
        self.note("1 start to ready", started);
        Ok(())
    }

    /// Opens the sessions that act, and leaves one signal for the sweeps.
    async fn enter(&mut self) -> Result<()> {
        let (sender, _) = self.server.session("Sender").await?;
        let (reader, _) = self.server.session("Reader").await?;
        let (sweeper, _) = self.server.session("Sweeper").await?;
        sender.call(PID, "signal", task("Sweeper")).await?;
        (self.sender, self.reader) = (Some(sender), Some(reader));
        self.sweeper = Some(sweeper);
        Ok(())
    }

    /// Ends the sessions, so that the next run on a kept home meets as few as this one did.
    async fn leave(&mut self) -> Result<()> {
        let here = [&mut self.sender, &mut self.reader, &mut self.sweeper];
        for client in here.into_iter().filter_map(Option::take) {
            client.call(PID, "session_release", json!({})).await?;
        }
        Ok(())
    }

    async fn round(&mut self) -> Result<()> {
        let (sender, reader) = self
            .sender
            .clone()
            .zip(self.reader.clone())
            .context("nobody is here")?;
        let started = Instant::now();
        sender.call(PID, "signal", task("Reader")).await?;
        self.note("2 send", started);

        let started = Instant::now();
        let drained = reader.call(PID, "signals_pending", json!({})).await?;
        ensure!(
            drained["signals"].as_array().map(Vec::len) == Some(1),
            "the drain brings one signal: {drained}"
        );
        let lease = json!({"lease_id": drained["lease_id"]});
        reader.call(PID, "signals_confirm", lease).await?;
        self.note("3 drain (lease and confirm)", started);

        let (passing, _) = self.server.session("Passing").await?;
        let started = Instant::now();
        passing.call(PID, "session_release", json!({})).await?;
        self.note("5 session release", started);

        let probe = reader
            .call(PID, "signal/loopback-issue", json!({"ring": false}))
            .await?;
        let started = Instant::now();
        let finish = json!({ "probe": probe });
        reader.call(PID, "signal/loopback-finish", finish).await?;
        self.note("6 finished probe", started);

        let started = Instant::now();
        sender.call(PID, "status", json!({})).await?;
        self.note("7 status", started);

        let started = Instant::now();
        sender.call(PID, "start", json!({})).await?;
        self.note("8 prism_start", started);
        Ok(())
    }
}

fn task(to: &str) -> Value {
    json!({"to": to, "signal_type": "TaskAssigned", "idempotency_key": clock::new_id(),
        "payload": {"summary": "bench", "body": "x".repeat(300)}})
}

/// The sweep itself, on the store: from outside a server it cannot be told from silence.
struct Sweeps {
    store: Store,
    beside: Connection,
}

impl Sweeps {
    fn open(file: &Path) -> Result<Self> {
        Ok(Self {
            store: Store::open_embedded(file)?,
            beside: Connection::open(file)?,
        })
    }

    async fn round(&self, side: &mut Side) -> Result<()> {
        let now = clock::now();
        let started = Instant::now();
        self.store.sweep(now, 500).await?;
        side.note("4a sweep, nothing to do", started);
        let leased = self.beside.execute(
            "update signal_queue set lease_id = ?, leased_until = ? where rowid =
                (select q.rowid from personas p cross join signal_queue q
                    on q.to_persona_id = p.id
                 where p.identity = 'Sweeper' and q.drained_at is null and q.ended_at is null
                 limit 1)",
            params![clock::new_id().to_string(), now.plus_s(-1).0],
        )?;
        ensure!(leased == 1, "one signal waits for the sweep, not {leased}");
        let started = Instant::now();
        let swept = self.store.sweep(now, 500).await?;
        side.note("4b sweep, one lease to give back", started);
        ensure!(swept.leases_returned.len() == 1, "the lease came back");
        Ok(())
    }
}

/// Writes a past straight into the tables: through the verbs it would take hours.
pub(super) struct Seeding {
    c: Connection,
    project: String,
    tenant: String,
    from: Moment,
}

impl Seeding {
    pub(super) fn open(file: &Path) -> Result<Self> {
        let c = Connection::open(file)?;
        c.execute_batch(
            "pragma journal_mode = off; pragma synchronous = off; pragma foreign_keys = off;
             pragma cache_size = -800000;",
        )?;
        c.set_prepared_statement_cache_capacity(64);
        let (project, tenant) = c.query_row("select id, tenant_id from projects", [], |r| {
            Ok((r.get(0)?, r.get(1)?))
        })?;
        Ok(Self {
            c,
            project,
            tenant,
            from: clock::now().plus_us(-DAYS * DAY_US),
        })
    }

    pub(super) fn run(&self, scale: f64) -> Result<()> {
        let personas = self.personas(rows(SIGNALS, scale))?;
        let sessions = self.sessions(&personas)?;
        self.signals(rows(SIGNALS, scale), &personas, &sessions)?;
        self.recall_events(rows(RECALL_EVENTS, scale), &sessions)?;
        self.gate_events(rows(GATE_EVENTS, scale), &sessions)?;
        self.loopback_runs(rows(LOOPBACK_RUNS, scale))?;
        self.todos(rows(DONE_TODOS, scale))?;
        progress("closing the store");
        self.c
            .execute_batch("pragma journal_mode = wal; pragma wal_checkpoint(truncate);")?;
        Ok(())
    }

    /// The `i`th of `n` moments between then and now.
    fn at(&self, i: usize, n: usize) -> i64 {
        self.from.0 + (DAYS * DAY_US / n as i64) * i as i64
    }

    /// Runs `insert` for every row, in a few large transactions.
    fn each(
        &self,
        what: &str,
        n: usize,
        sql: &str,
        mut insert: impl FnMut(&mut Statement<'_>, usize) -> rusqlite::Result<()>,
    ) -> Result<()> {
        let mut statement = self.c.prepare(sql).with_context(|| what.to_owned())?;
        for batch in (0..n).step_by(BATCH) {
            self.c.execute_batch("begin")?;
            for i in batch..n.min(batch + BATCH) {
                insert(&mut statement, i).with_context(|| what.to_owned())?;
            }
            self.c.execute_batch("commit")?;
            progress(&format!("{} of {n} {what}", n.min(batch + BATCH)));
        }
        Ok(())
    }

    fn personas(&self, signals: usize) -> Result<Vec<String>> {
        let ids = ids(PERSONAS);
        self.each(
            "personas",
            PERSONAS,
            "insert into personas (id, tenant_id, project_id, identity, identity_folded,
                inbox_seq, created_at, started_at) values (?, ?, ?, ?, ?, ?, ?, ?)",
            |s, i| {
                let (name, at) = (format!("Past{i}"), self.from.0);
                s.execute(params![
                    ids[i],
                    self.tenant,
                    self.project,
                    name,
                    name.to_lowercase(),
                    signals.div_ceil(PERSONAS) as i64,
                    at,
                    at
                ])
                .map(drop)
            },
        )?;
        Ok(ids)
    }

    fn sessions(&self, personas: &[String]) -> Result<Vec<String>> {
        let n = PERSONAS * SESSIONS_EACH;
        let ids = ids(n);
        self.each(
            "sessions",
            n,
            "insert into sessions (id, tenant_id, project_id, persona_id, identity, surface,
                machine_id, process_pid, created_at, last_seen_at, first_verb_at, last_verb_at,
                released_at, release_reason)
             values (?1, ?2, ?3, ?4, ?5, 'claude_code', 'bench', 1, ?6, ?7, ?6, ?7, ?7, 'wrap')",
            |s, i| {
                let (from, until) = (self.at(i, n), self.at(i + 1, n));
                let persona = i % PERSONAS;
                let name = format!("Past{persona}");
                s.execute(params![
                    ids[i],
                    self.tenant,
                    self.project,
                    personas[persona],
                    name,
                    from,
                    until
                ])
                .map(drop)
            },
        )?;
        Ok(ids)
    }

    fn signals(&self, n: usize, personas: &[String], sessions: &[String]) -> Result<()> {
        let body = json!({"summary": "done long ago", "body": "x".repeat(300)}).to_string();
        let hash = "0".repeat(64);
        let signals = ids(n);
        self.each(
            "signals",
            n,
            "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id,
                to_identity, seq, from_identity, from_session, signal_type, category, payload,
                delivery_class, publish_path, idempotency_key, body_sha256, created_at,
                expires_at, lease_id, leased_to, drained_at, drained_by, acted_at)
             values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 'TaskAssigned', 'TASK', ?10, 'async',
                'pushed_to_ws', ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?16, ?17)",
            |s, i| {
                let (persona, at) = (i % PERSONAS, self.at(i, n));
                let session = &sessions[session_of(i, n, sessions.len())];
                s.execute(params![
                    signals[i],
                    self.tenant,
                    self.project,
                    new(),
                    personas[persona],
                    format!("Past{persona}"),
                    (i / PERSONAS + 1) as i64,
                    format!("Past{}", (i + 1) % PERSONAS),
                    session,
                    body,
                    new(),
                    hash,
                    at,
                    at + 7 * DAY_US,
                    new(),
                    session,
                    at + 5_000_000
                ])
                .map(drop)
            },
        )?;
        self.each(
            "deliveries",
            n,
            "insert into deliveries (signal_id, session_id, pushed_at, received_at, rung_at,
                drained_at, strategy) values (?, ?, ?, ?, ?, ?, 'claude_channel')",
            |s, i| {
                let at = self.at(i, n);
                let session = &sessions[session_of(i, n, sessions.len())];
                s.execute(params![
                    signals[i],
                    session,
                    at + 500,
                    at + 900,
                    at + 1_000,
                    at + 5_000_000
                ])
                .map(drop)
            },
        )?;
        self.each(
            "trace events",
            n / 10,
            "insert into signal_trace_events (signal_id, layer, state, observed_at, session_id)
             values (?, 'model_ack', 'model_acted', ?, ?)",
            |s, i| {
                let session = &sessions[session_of(i * 10, n, sessions.len())];
                s.execute(params![signals[i * 10], self.at(i * 10, n), session])
                    .map(drop)
            },
        )
    }

    fn recall_events(&self, n: usize, sessions: &[String]) -> Result<()> {
        let results: Vec<Value> = (1..=5)
            .map(|rank| json!({"id": clock::new_id(), "rank": rank, "score": 0.5, "words": 0.4}))
            .collect();
        let results = Value::from(results).to_string();
        self.each(
            "recall events",
            n,
            "insert into memory_recall_events (id, tenant_id, project_id, session_id, identity,
                surface, query, results, latency_us, tokens, occurred_at)
             values (?, ?, ?, ?, 'Past0', 'claude_code', 'what was learned about it', ?, 9000,
                400, ?)",
            |s, i| {
                let session = &sessions[session_of(i, n, sessions.len())];
                s.execute(params![
                    new(),
                    self.tenant,
                    self.project,
                    session,
                    results,
                    self.at(i, n)
                ])
                .map(drop)
            },
        )
    }

    fn gate_events(&self, n: usize, sessions: &[String]) -> Result<()> {
        self.each(
            "gate events",
            n,
            "insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class,
                gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface,
                recall_count, occurred_at)
             values (?, ?, ?, ?, 'tier1', 'advisory', 'satisfied', 'ack', ?, 'Past0',
                'claude_code', 1, ?)",
            |s, i| {
                let session = &sessions[session_of(i, n, sessions.len())];
                s.execute(params![
                    new(),
                    self.tenant,
                    self.project,
                    new(),
                    session,
                    self.at(i, n)
                ])
                .map(drop)
            },
        )
    }

    fn loopback_runs(&self, n: usize) -> Result<()> {
        let probed: String = self
            .c
            .query_row("select id from signal_queue limit 1", [], |r| r.get(0))?;
        let envelope = complete_probe(&probed).to_string();
        self.each(
            "probes",
            n,
            "insert into loopback_runs (loopback_id, project_id, identity, signal_id, outcome,
                envelope, finished_at) values (?, ?, 'Past0', ?, 'complete', ?, ?)",
            |s, i| {
                s.execute(params![
                    new(),
                    self.project,
                    probed,
                    envelope,
                    self.at(i, n)
                ])
                .map(drop)
            },
        )
    }

    /// What the operator said of all that: words that agents captured, a part of them reviewed, and
    /// verdicts.
    pub(super) fn said(&self, inputs: usize, verdicts: usize, text: &mut Generator) -> Result<()> {
        self.each(
            "inputs",
            inputs,
            "insert into operator_inputs (id, tenant_id, project_id, captured_via, captured_at, class,
                prompt_text, triggered_action, confidence, operator_review, surface)
             values (?, ?, ?, ?, ?, ?, ?, ?, 'high', ?, 'claude_code')",
            |s, i| {
                let class = ["correction", "confirmation", "direction_pivot"][i % 3];
                // The newest few wait for a review, as they do.
                let review = (i + 20 < inputs).then_some(["accepted", "rejected"][i % 7 / 6]);
                let words = (text.words(25), text.words(8));
                let at = self.at(i, inputs);
                s.execute(params![
                    new(),
                    self.tenant,
                    self.project,
                    format!("Past{}", i % PERSONAS),
                    at,
                    class,
                    words.0,
                    words.1,
                    review
                ])
                .map(drop)
            },
        )?;
        self.each(
            "verdicts",
            verdicts,
            "insert into operator_confirmations (id, tenant_id, project_id, refers_to_kind, refers_to_id,
                verdict, notes, confirmed_by, confirmed_via, directness, confirmed_at)
             values (?, ?, ?, 'commit', ?, ?, 'seen', 'operator', 'dashboard', 'direct', ?)",
            |s, i| {
                let verdict = ["works", "works", "partial", "broken"][i % 4];
                let at = self.at(i, verdicts);
                s.execute(params![new(), self.tenant, self.project, new(), verdict, at])
                    .map(drop)
            },
        )
    }

    fn todos(&self, n: usize) -> Result<()> {
        self.each(
            "done todos",
            n,
            "insert into artifacts (id, tenant_id, project_id, kind, number, title, body, status,
                identity, created_at, updated_at)
             values (?1, ?2, ?3, 'todo', ?4, 'done long ago', '', 'done', 'Past0', ?5, ?5)",
            |s, i| {
                s.execute(params![
                    new(),
                    self.tenant,
                    self.project,
                    i as i64 + 1,
                    self.at(i, n)
                ])
                .map(drop)
            },
        )
    }
}

/// What a probe that arrived leaves behind.
fn complete_probe(signal: &str) -> Value {
    let at = Moment(0);
    let seen = json!({"observed": true, "observed_at": at, "elapsed_ms": 1.0});
    json!({
        "spec": "SPEC-100", "version": "0.1", "loopback_id": clock::new_id(), "signal_id": signal,
        "trace_id": clock::new_id(), "requested_by_identity": "Past0", "requested_by_session": null,
        "surface": "claude_code", "machine_id": "bench", "started_at": at, "finished_at": at,
        "outcome": "complete", "missing_layers": ["model_ack"],
        "layers": {"backend_write": seen, "redis_publish": seen, "shim_tee_receipt": seen,
            "channel_notification": seen, "model_ack": {"observed": false, "observed_at": null, "elapsed_ms": null}},
        "echo": {"expected": true, "signal_id": signal, "observed_at": at},
    })
}

/// The session that was there when the `i`th of `n` things happened, of the same persona.
fn session_of(i: usize, n: usize, sessions: usize) -> usize {
    let round = (i * SESSIONS_EACH / n).min(SESSIONS_EACH - 1);
    (round * PERSONAS + i % PERSONAS).min(sessions - 1)
}

fn new() -> String {
    Uuid::to_string(&clock::new_id())
}

fn ids(n: usize) -> Vec<String> {
    (0..n).map(|_| new()).collect()
}
