//! `prism bench`: figures anyone can run again, each beside its limit or peer.
//!
//! Servers are real processes in throw-away homes; clocks are compared only
//! within one run.

#![expect(
    clippy::disallowed_methods,
    reason = "a bench makes and clears homes and files of its own"
)]

mod capacity;
mod cli;
mod dashboard;
mod embed;
mod history;
mod hosts;
mod local;
mod memory;
mod proof;
mod recall;
mod signals;
mod store;
mod verb;

use crate::cli::Context;
use crate::client::{Client, Locator};
use crate::clock;
use crate::config::ServerFile;
use crate::home::Home;
use crate::ui::{Outcome, note, out_anyway, table};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism bench signals              durable sends, latency, CPU and memory\n  prism bench signals --to-ring    from a send to the recipient's ring file\n  prism bench cli                  commands as processes, beside /bin/true\n  prism bench verb                 verbs through the shim, beside an empty tool\n\nUse a release build on an idle machine; every table names what it is compared with."
)]
pub struct Bench {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Durable sends a second, send to socket, CPU per send, memory
    Signals {
        /// Measure from the send to the recipient's ring file instead
        #[arg(long)]
        to_ring: bool,
        /// Sends in each throughput run
        #[arg(long, default_value_t = 4000)]
        sends: usize,
        /// Idle sessions in the memory run
        #[arg(long, default_value_t = 1000)]
        sessions: usize,
        /// How many send at once
        #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 512])]
        senders: Vec<usize>,
    },
    /// The page: what it reads as rows grow, what open pages cost, and how soon it is on screen
    Dashboard(dashboard::Dashboard),
    /// How fast texts become vectors, beside Python's onnxruntime
    Embed(embed::Embed),
    /// The same acts on an empty home and on one with a million signals behind it
    History(history::History),
    /// From a send to the model's request in real agent hosts, and how often a bell is lost
    Hosts(hosts::Hosts),
    /// The whole probe and each of its layers, beside a bare send
    Loopback {
        #[arg(long, default_value_t = 200)]
        runs: usize,
    },
    /// What the gate adds to an acknowledgment
    Gate {
        #[arg(long, default_value_t = 1500)]
        acks: usize,
    },
    /// What a write of memory costs, and recall as rows grow
    Memory {
        /// Rows in each recall run
        #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000])]
        rows: Vec<usize>,
    },
    /// SQLite and PostgreSQL side by side: sends, drains, verbs, recall, sockets, one server and two
    Store(store::Stores),
    /// What some number of agents needs, worked out from measured figures
    Capacity(capacity::Capacity),
    /// Does a question find its row? Against plain systems, on LoCoMo, and how fast
    Recall(recall::Recall),
    /// The statusline's whole process, beside /bin/true
    Statusline {
        #[arg(long, default_value_t = 400)]
        runs: usize,
    },
    /// Commands as processes, beside /bin/true and one flush
    Cli {
        #[arg(long, default_value_t = 300)]
        runs: usize,
    },
    /// Verbs through the shim, beside an empty tool, and where their time goes
    Verb {
        #[arg(long, default_value_t = 500)]
        runs: usize,
    },
    /// The empty tool that verbs are compared with
    #[command(hide = true)]
    EmptyTool,
}

impl Bench {
    /// Whether it only stands beside what is measured: it has one thread then, as a shim has.
    pub fn is_peer(&self) -> bool {
        matches!(self.what, What::EmptyTool)
    }

    pub async fn run(self, context: Context) -> Outcome {
        if cfg!(debug_assertions) && !self.is_peer() {
            note("this is a debug build: the figures mean nothing");
        }
        let report = match self.what {
            What::Signals {
                to_ring: false,
                sends,
                sessions,
                senders,
            } => signals::run(sends, sessions, &senders).await?,
            What::Signals { to_ring: true, .. } => signals::to_ring().await?,
            What::Loopback { runs } => proof::probe(runs).await?,
            What::Gate { acks } => proof::gate(acks).await?,
            What::History(history) => return history.run(context.json).await,
            What::Recall(recall) => return Ok(recall.run(&context.home, context.json).await?),
            What::Store(stores) => return stores.run(&context.home, context.json).await,
            What::Capacity(capacity) => return Ok(capacity.run(context.json)?),
            What::Dashboard(dashboard) => dashboard.run().await?,
            What::Embed(embed) => embed.run(&context.home).await?,
            What::Hosts(hosts) => hosts.run().await?,
            What::Memory { rows } => memory::run(&rows).await?,
            What::Statusline { runs } => local::statusline(runs)?,
            What::Cli { runs } => cli::run(runs).await?,
            What::Verb { runs } => verb::run(runs).await?,
            What::EmptyTool => return Ok(verb::empty_tool().await?),
        };
        report.print(context.json);
        Ok(())
    }
}

/// Rows of named figures.
#[derive(Default)]
pub struct Report {
    rows: Vec<(String, Vec<(&'static str, f64)>)>,
}

impl Report {
    fn add(&mut self, name: impl Into<String>, figures: Vec<(&'static str, f64)>) {
        let name = name.into();
        progress(&format!("{name}: done"));
        self.rows.push((name, figures));
    }

    fn print(&self, json: bool) {
        if json {
            let rows: Vec<Value> = self.rows.iter().map(|(name, figures)| json!({"name": name, "figures": figures.iter().map(|(k, v)| ((*k).to_owned(), json!((v * 1000.0).round() / 1000.0))).collect::<serde_json::Map<_, _>>()})).collect();
            return out_anyway(
                &serde_json::to_string_pretty(&json!({"version": crate::VERSION, "rows": rows}))
                    .unwrap_or_default(),
            );
        }
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|(name, figures)| {
                [
                    vec![name.clone()],
                    figures
                        .iter()
                        .map(|(k, v)| format!("{k} {}", shown(*v)))
                        .collect(),
                ]
                .concat()
            })
            .collect();
        out_anyway(&table(&rows));
    }
}

fn shown(v: f64) -> String {
    match v {
        v if v >= 1000.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.3}"),
    }
}

/// Told on a terminal, kept quiet in a pipe.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        note(text);
    }
}

/// The value below which this share of the samples lies.
fn percentile(samples: &mut [f64], share: f64) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples
        .get(((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1)))
        .copied()
        .unwrap_or(f64::NAN)
}

fn p50_p99(samples: &mut [f64]) -> Vec<(&'static str, f64)> {
    vec![
        ("p50 ms", percentile(samples, 0.5)),
        ("p99 ms", percentile(samples, 0.99)),
    ]
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// A server of this binary in a home of its own, without rate limits.
pub struct Server {
    process: Option<Child>,
    pub home: Home,
    dir: PathBuf,
    keep: bool,
    env: Vec<(&'static str, String)>,
}

impl Server {
    pub fn start() -> Result<Self> {
        Self::stopped()?.resume()
    }

    /// A home that no server runs on yet.
    pub fn stopped() -> Result<Self> {
        Self::of_operator("operator", None)
    }

    /// A home of this operator, kept in a folder of its own when one is named; it may be there
    /// already.
    pub fn of_operator(operator: &str, keep: Option<PathBuf>) -> Result<Self> {
        let passing = || std::env::temp_dir().join(format!("prism-bench-{}", clock::new_id()));
        let stays = keep.is_some();
        Self::at(keep.unwrap_or_else(passing), stays, operator)
    }

    fn at(dir: PathBuf, keep: bool, operator: &str) -> Result<Self> {
        let home = Home::at(&dir);
        home.create()?;
        if home.read("config.toml").is_some() {
            return Ok(Self {
                process: None,
                home,
                dir,
                keep,
                env: Vec::new(),
            });
        }
        let config = format!(
            "operator = \"{operator}\"\napi_key = \"{}\"\n[limits]\nrequests_per_second = 1000000000\nrequests_burst = 1000000000\nconnections = 16000\n",
            clock::new_key()?
        );
        home.write("config.toml", config.as_bytes())?;
        Ok(Self {
            process: None,
            home,
            dir,
            keep,
            env: Vec::new(),
        })
    }

    pub fn with_env(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.env.push((name, value.into()));
        self
    }

    pub fn resume(mut self) -> Result<Self> {
        self.launch()?;
        Ok(self)
    }

    /// Starts the process and waits until it accepts connections.
    pub fn launch(&mut self) -> Result<()> {
        let process = command(&self.home)?
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .args(["serve", "--port", "0", "--ends-with-stdin"])
            // Held open for as long as this process lives: a bench that is killed takes its server
            // along, and the server its worker.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let process = self.process.insert(process);
        let deadline = Instant::now() + Duration::from_secs(20);
        while ServerFile::load(&self.home).is_none() {
            if process.try_wait()?.is_some() || Instant::now() > deadline {
                bail!("the bench's server did not start");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        Ok(())
    }

    fn proc(&self, file: &str) -> Result<String> {
        let pid = self
            .process
            .as_ref()
            .map(Child::id)
            .context("no server runs")?;
        Ok(std::fs::read_to_string(format!("/proc/{pid}/{file}"))?)
    }

    pub fn operator(&self) -> Result<Client> {
        let key = crate::config::Config::load(&self.home)?
            .context("no config")?
            .api_key;
        Ok(Client::new(Locator::Home(self.home.clone()), key)?.creating_project())
    }

    /// A new key for an identity.
    pub async fn key_of(&self, name: &str) -> Result<String> {
        let mint = json!({"identity": name});
        let minted = self.operator()?.call(PID, "key_mint", mint).await?;
        Ok(minted["key"].as_str().context("no key")?.to_owned())
    }

    /// A client with a key and a session of its own.
    pub async fn session(&self, name: &str) -> Result<(Client, uuid::Uuid)> {
        let key = self.key_of(name).await?;
        let client = Client::new(Locator::Home(self.home.clone()), key)?;
        let registered = client
            .call(
                PID,
                "session_register",
                json!({"surface": "other", "machine_id": "bench", "process_pid": 1}),
            )
            .await?;
        let id = registered["session_id"]
            .as_str()
            .and_then(|s| s.parse().ok())
            .context("no session")?;
        Ok((client.with_session(Some(id)), id))
    }

    pub fn url(&self) -> Result<String> {
        Ok(ServerFile::load(&self.home).context("no server.json")?.url)
    }

    /// CPU time the server has used so far, in microseconds.
    fn cpu_us(&self) -> Result<f64> {
        let stat = self.proc("stat")?;
        let fields: Vec<&str> = stat
            .rsplit(") ")
            .next()
            .unwrap_or_default()
            .split(' ')
            .collect();
        let ticks: f64 = [11, 12]
            .iter()
            .filter_map(|i| fields.get(*i)?.parse::<f64>().ok())
            .sum();
        Ok(ticks * 10_000.0)
    }

    /// Resident memory, in megabytes.
    fn rss_mb(&self) -> Result<f64> {
        let status = self.proc("status")?;
        let kb = status
            .lines()
            .find_map(|l| l.strip_prefix("VmRSS:"))
            .and_then(|l| l.trim().split(' ').next()?.parse::<f64>().ok());
        Ok(kb.context("no VmRSS")? / 1024.0)
    }
}

impl Server {
    /// Asked to stop, so that a kept home is left clean; its worker ends with it.
    pub fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            if let Some(pid) = rustix::process::Pid::from_raw(process.id() as i32) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
            }
            drop(process.wait());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        if !self.keep {
            drop(std::fs::remove_dir_all(&self.dir));
        }
    }
}

const PID: &str = "PID-BENCH";

/// This binary, knowing only the bench's home.
fn command(home: &Home) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .env_clear()
        .env("PRISM_HOME", home.dir())
        .env("HOME", home.dir())
        .env("PRISM_PID", PID)
        .env("PRISM_DOORBELL", "claude_channel")
        .env("PRISM_AUTOSTART", "0")
        .current_dir(home.dir());
    Ok(command)
}
