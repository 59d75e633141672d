//! `prism bench capacity`: what some number of agents needs, from figures that `prism bench store` saw.
//!
//! Arithmetic says how busy each part is; a simulation of one busy minute says how long acts wait for it. Both
//! know only what is in the two lists below: what an agent does, and what was measured.

use super::memory::Generator;
use super::shown;
use crate::ui::{out_anyway, table};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::PathBuf;

/// What an agent at work does in an hour; nothing measures that, so everybody may say it for theirs.
#[derive(clap::Args, Clone, Debug)]
pub struct Agent {
    /// Signals that an agent sends in an hour
    #[arg(long, default_value_t = 12.0)]
    sends: f64,
    /// Notes, checkpoints and verdicts that it writes
    #[arg(long, default_value_t = 10.0)]
    writes: f64,
    /// Recalls that it asks for
    #[arg(long, default_value_t = 6.0)]
    recalls: f64,
    /// Other verbs that it calls
    #[arg(long, default_value_t = 60.0)]
    reads: f64,
    /// Hours of a day that it works
    #[arg(long, default_value_t = 8.0)]
    hours: f64,
    /// How much busier the busiest minute is than the mean of these hours
    #[arg(long, default_value_t = 3.0)]
    peak: f64,
}

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  prism bench capacity\n  prism bench capacity --agents 500 --sends 60 --recalls 20\n  bench/store --json > mine.json; prism bench capacity --figures mine.json\n\ndocs/capacity.md explains each line."
)]
pub struct Capacity {
    /// How many agents
    #[arg(long, value_delimiter = ',', default_values_t = [10, 1_000, 100_000])]
    agents: Vec<usize>,
    /// What `prism bench store --json` printed [default: the figures that this prism was built with]
    #[arg(long, value_name = "FILE")]
    figures: Option<PathBuf>,
    /// Cores of a server, and of a database
    #[arg(long, default_value_t = 4)]
    cores: usize,
    #[command(flatten)]
    agent: Agent,
}

/// The figures of the run that docs/capacity.md speaks of.
const SEEN: &str = include_str!("../../../bench/store.json");
/// The share of a part's time up to which it is planned with: beyond, waiting grows faster than work.
const PLANNED: f64 = 0.6;
/// Memory of one server that is planned with.
const SERVER_MB: f64 = 4_096.0;
/// Connections that it holds to the database at the most, with one tenant: 8 that write and one for what nobody waits for,
/// 7 that read, 2 for the news where there is no Redis, 1 while the index of vectors is filled.
const CONNECTIONS: usize = 19;
/// What PostgreSQL is set up with unless somebody changes it.
const CONNECTIONS_MAX: usize = 100;
/// Seconds that are simulated, and acts at the most.
const SECONDS: f64 = 60.0;
const ACTS_MAX: usize = 400_000;

/// What was measured, of one engine.
#[derive(Clone, Debug)]
struct Measured {
    /// A send: the server's CPU and the database's, in seconds.
    send_cpu: f64,
    send_database: f64,
    /// Sends a second that went through at the most.
    sends_per_s: f64,
    note_cpu: f64,
    note_database: f64,
    /// Writes of memory a second: one at a time.
    notes_per_s: f64,
    /// A read, in seconds of the server.
    read_s: f64,
    /// A recall without its embedding, in seconds.
    recall_s: f64,
    commit_s: f64,
    base_mb: f64,
    socket_mb: f64,
    bytes_a_row: f64,
}

/// A row of the figures, by the beginning of its name.
struct Rows<'v>(&'v [Value]);

impl Rows<'_> {
    /// The last one of one server: the largest of several sizes.
    fn row(&self, name: &str) -> Result<&Value> {
        let named = |row: &&Value| {
            let its = row["name"].as_str().unwrap_or_default();
            let compares = ["two servers", "row-level security", "by the index"];
            its.starts_with(name) && !compares.iter().any(|other| its.ends_with(other))
        };
        let found = self.0.iter().rev().find(named);
        found.with_context(|| format!("the figures have no row {name:?}: measure that part, too"))
    }

    fn value(&self, name: &str, engine: &str) -> Result<f64> {
        let value = self.row(name)?[engine].as_f64();
        value.with_context(|| format!("{name:?} has no figure of {engine}"))
    }

    fn more(&self, name: &str, what: &str) -> f64 {
        let row = self.row(name).ok();
        row.and_then(|row| row["more"][what].as_f64())
            .unwrap_or_default()
    }
}

impl Measured {
    fn of(rows: &Rows<'_>, engine: &'static str) -> Result<Self> {
        let us = |name: &str| Ok::<f64, anyhow::Error>(rows.value(name, engine)? / 1e6);
        let ms = |name: &str| Ok::<f64, anyhow::Error>(rows.value(name, engine)? / 1e3);
        let shared = engine == "postgres";
        let with_sockets = sockets(rows.0).context("the figures have no row of sockets")?;
        let name = with_sockets["name"].as_str().unwrap_or_default();
        let n = name
            .split(' ')
            .rev()
            .nth(1)
            .and_then(|n| n.parse::<f64>().ok());
        let kb_of = if shared {
            "PostgreSQL"
        } else {
            "KB a socket, SQLite"
        };
        let socket_mb = with_sockets["more"][kb_of].as_f64().unwrap_or_default() / 1024.0;
        let held = with_sockets[engine].as_f64().unwrap_or_default();
        let of_database = |name: &str| match shared {
            true => rows.more(name, "the database's") / 1e6,
            false => 0.0,
        };
        Ok(Self {
            send_cpu: us("server's CPU a send, ")?,
            send_database: of_database("server's CPU a send, "),
            sends_per_s: rows.value("durable sends, ", engine)?,
            note_cpu: us("server's CPU a note")?,
            note_database: of_database("server's CPU a note"),
            notes_per_s: rows.value("notes, ", engine)?,
            read_s: ms("status p50")?,
            recall_s: ms("recall less embedding p50")?,
            commit_s: match shared {
                true => ms("one commit of one row")?,
                false => rows.value("one flush", "sqlite")? / 1e3,
            },
            base_mb: held - socket_mb * n.unwrap_or_default(),
            socket_mb,
            bytes_a_row: rows.value("bytes a row", engine)?,
        })
    }
}

/// The row with the most sockets.
fn sockets(rows: &[Value]) -> Option<&Value> {
    let is = |row: &&Value| {
        row["name"]
            .as_str()
            .is_some_and(|n| n.ends_with(" sockets"))
    };
    rows.iter().rev().find(is)
}

/// One part that acts wait for.
struct Part {
    name: &'static str,
    /// How busy it is in the busiest minute: 1 is all of its time.
    busy: f64,
}

/// What so many agents need of one engine.
struct Plan {
    engine: &'static str,
    agents: usize,
    servers: usize,
    databases: usize,
    parts: Vec<Part>,
    send_ms: (f64, f64),
    write_ms: (f64, f64),
    server_mb: f64,
    gb_a_month: f64,
}

impl Capacity {
    pub fn run(self, json: bool) -> Result<()> {
        let text = match &self.figures {
            Some(file) => std::fs::read_to_string(file)
                .with_context(|| format!("cannot read {}", file.display()))?,
            None => SEEN.to_owned(),
        };
        let report: Value = serde_json::from_str(&text)
            .context("these are no figures of `prism bench store --json`")?;
        let rows = report["rows"]
            .as_array()
            .context("these figures have no rows")?;
        let rows = Rows(rows);
        let mut plans = Vec::new();
        for &agents in &self.agents {
            for engine in ["sqlite", "postgres"] {
                let measured = Measured::of(&rows, engine)?;
                plans.push(plan(engine, agents, self.cores, &self.agent, &measured));
            }
        }
        match json {
            true => {
                let plans: Vec<Value> = plans.iter().map(Plan::json).collect();
                let all = json!({"version": crate::VERSION, "measured_on": report["machine"], "plans": plans});
                out_anyway(&serde_json::to_string_pretty(&all)?);
            }
            false => print(&plans),
        }
        Ok(())
    }
}

/// Acts a second in the busiest minute.
struct Rates {
    sends: f64,
    writes: f64,
    recalls: f64,
    reads: f64,
}

impl Rates {
    fn of(agents: usize, agent: &Agent) -> Self {
        let a_second = |an_hour: f64| agents as f64 * an_hour * agent.peak / 3_600.0;
        Self {
            sends: a_second(agent.sends),
            writes: a_second(agent.writes),
            recalls: a_second(agent.recalls),
            reads: a_second(agent.reads),
        }
    }
}

fn plan(engine: &'static str, agents: usize, cores: usize, agent: &Agent, m: &Measured) -> Plan {
    let rates = Rates::of(agents, agent);
    // Each signal is sent, leased and confirmed; each recall leaves an event, which is a write of memory.
    let inbox = rates.sends * 3.0 / m.sends_per_s;
    let alone = (rates.writes + rates.recalls) / m.notes_per_s;
    // Of reads only the whole time is known, not whose it is: it is planned as if each side worked through all of it.
    let read = rates.recalls * m.recall_s + rates.reads * m.read_s;
    let cpu = rates.sends * 3.0 * m.send_cpu + (rates.writes + rates.recalls) * m.note_cpu + read;
    let database_cpu = rates.sends * 3.0 * m.send_database
        + (rates.writes + rates.recalls) * m.note_database
        + read;
    let memory = agents as f64 * m.socket_mb;
    let room = (SERVER_MB - m.base_mb).max(1.0);
    let shared = engine == "postgres";
    let enough = |busy: f64| (busy / PLANNED).ceil().max(1.0) as usize;
    let servers = match shared {
        true => enough(cpu / cores as f64).max((memory / room).ceil() as usize),
        false => 1,
    };
    let databases = match shared {
        true => enough(alone)
            .max(enough(inbox))
            .max(enough(database_cpu / cores as f64)),
        false => 1,
    };
    let (s, d) = (servers as f64, databases as f64);
    let mut parts = vec![
        Part {
            name: "writes of memory, one at a time",
            busy: alone / d,
        },
        Part {
            name: "commits of inboxes",
            busy: inbox / d,
        },
        Part {
            name: "servers' cores",
            busy: cpu / (cores as f64 * s),
        },
        Part {
            name: "servers' memory for sockets",
            busy: memory / s / room,
        },
    ];
    if shared {
        parts.push(Part {
            name: "databases' cores",
            busy: database_cpu / (cores as f64 * d),
        });
        parts.push(Part {
            name: "databases' connections",
            busy: (CONNECTIONS as f64 * s / d).ceil() / CONNECTIONS_MAX as f64,
        });
    }
    parts.sort_by(|a, b| b.busy.total_cmp(&a.busy));
    let acts_a_day = agents as f64 * agent.hours;
    let rows_a_day = acts_a_day * (agent.sends * 0.5 + agent.writes + agent.recalls * 0.5);
    let one = Minute {
        rates: &rates,
        measured: m,
        cores,
        servers,
        databases,
    };
    Plan {
        engine,
        agents,
        servers,
        databases,
        parts,
        send_ms: one.waits(Act::Send),
        write_ms: one.waits(Act::Write),
        server_mb: m.base_mb + memory / s,
        gb_a_month: rows_a_day * 22.0 * m.bytes_a_row / 1e9,
    }
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq)]
enum Act {
    Send,
    Write,
}

/// The busiest minute, act by act.
struct Minute<'m> {
    rates: &'m Rates,
    measured: &'m Measured,
    cores: usize,
    servers: usize,
    databases: usize,
}

impl Minute<'_> {
    /// The middle and the last of a hundred, in milliseconds, of one kind of act: through the servers' cores,
    /// then through what it must be alone with, then to the disk. No answer when the acts pile up.
    fn waits(&self, act: Act) -> (f64, f64) {
        let m = self.measured;
        let (rate, alone_s) = match act {
            // Of one database: inboxes go side by side, as many as went through when it was measured.
            Act::Send => (self.rates.sends * 3.0, 1.0 / m.sends_per_s),
            Act::Write => (self.rates.writes + self.rates.recalls, 1.0 / m.notes_per_s),
        };
        let rate = rate / self.databases as f64;
        if rate * alone_s >= 1.0 {
            return (f64::INFINITY, f64::INFINITY);
        }
        let cpu_s = match act {
            Act::Send => m.send_cpu,
            Act::Write => m.note_cpu,
        };
        let mut random = Generator::new(17);
        // Times between acts, and of acts, are exponential: as irregular as chance makes them.
        let mut some = |mean: f64| -mean * (1.0 - random.random()).ln();
        let n = ((rate * SECONDS) as usize).clamp(200, ACTS_MAX);
        let mut at = 0.0;
        let arrivals: Vec<f64> = (0..n)
            .map(|_| {
                at += some(1.0 / rate.max(1e-9));
                at
            })
            .collect();
        // Other acts use the same cores: what they leave is what this kind has.
        let others = self.rates.reads * m.read_s + self.rates.recalls * m.recall_s;
        let cores = (self.cores * self.servers) as f64;
        let left = ((cores - others) / self.databases as f64).max(1.0);
        let through = queue(&arrivals, left as usize, || some(cpu_s));
        let done = queue(&through, 1, || some(alone_s));
        let mut waits: Vec<f64> = arrivals
            .iter()
            .zip(&done)
            .map(|(came, done)| (done - came + m.commit_s) * 1000.0)
            .collect();
        (
            super::percentile(&mut waits, 0.5),
            super::percentile(&mut waits, 0.99),
        )
    }
}

/// When each of those who come is done, first come first served by so many at once.
fn queue(arrivals: &[f64], servers: usize, mut takes: impl FnMut() -> f64) -> Vec<f64> {
    // Nanoseconds: a heap wants an order.
    let ns = |s: f64| (s * 1e9) as u64;
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers.max(1)).map(|_| Reverse(0)).collect();
    let mut order: Vec<usize> = (0..arrivals.len()).collect();
    order.sort_by(|a, b| arrivals[*a].total_cmp(&arrivals[*b]));
    let mut done = vec![0.0; arrivals.len()];
    for i in order {
        let Reverse(when) = free.pop().unwrap_or_default();
        let end = ns(arrivals[i]).max(when) + ns(takes());
        free.push(Reverse(end));
        done[i] = end as f64 / 1e9;
    }
    done
}

impl Plan {
    fn json(&self) -> Value {
        let number = |v: f64| v.is_finite().then_some((v * 1000.0).round() / 1000.0);
        let parts = self.parts.iter();
        let parts: Vec<Value> = parts
            .map(|p| json!({"part": p.name, "busy": number(p.busy)}))
            .collect();
        json!({"engine": self.engine, "agents": self.agents, "servers": self.servers,
            "databases": self.databases, "parts": parts,
            "send_p50_ms": number(self.send_ms.0), "send_p99_ms": number(self.send_ms.1),
            "write_p50_ms": number(self.write_ms.0), "write_p99_ms": number(self.write_ms.1),
            "server_mb": number(self.server_mb), "gb_a_month": number(self.gb_a_month)})
    }

    fn cells(&self) -> Vec<String> {
        let first = self.parts.first();
        let first = first.map_or(String::new(), |p| {
            format!("{} ({:.0} %)", p.name, 100.0 * p.busy)
        });
        let both = |(p50, p99): (f64, f64)| match p50.is_finite() {
            true => format!("{} / {}", shown(p50), shown(p99)),
            false => "piles up".to_owned(),
        };
        vec![
            self.agents.to_string(),
            if self.engine == "sqlite" {
                "SQLite"
            } else {
                "PostgreSQL"
            }
            .to_owned(),
            self.servers.to_string(),
            self.databases.to_string(),
            first,
            both(self.send_ms),
            both(self.write_ms),
            shown(self.server_mb),
            shown(self.gb_a_month),
        ]
    }
}

fn print(plans: &[Plan]) {
    let heading = [
        "agents",
        "rows in",
        "servers",
        "databases",
        "first limit (how near)",
        "send ms p50 / p99",
        "write ms p50 / p99",
        "MB a server",
        "GB a month",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(plans.iter().map(Plan::cells));
    out_anyway(&table(&rows));
    for plan in plans.iter().filter(|p| p.engine == "postgres") {
        let parts = plan
            .parts
            .iter()
            .map(|p| format!("{} {:.1} %", p.name, 100.0 * p.busy));
        out_anyway(&format!(
            "{} agents: {}",
            plan.agents,
            parts.collect::<Vec<_>>().join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_who_come_are_served_in_their_order_by_as_many_as_there_are() {
        let one = queue(&[0.0, 0.0, 5.0], 1, || 1.0);
        assert_eq!(one, [1.0, 2.0, 6.0]);
        let two = queue(&[0.0, 0.0, 0.5], 2, || 1.0);
        assert_eq!(two, [1.0, 1.0, 2.0]);
    }

    #[test]
    fn a_part_half_busy_makes_wait_about_as_long_as_it_works() {
        let mut random = Generator::new(1);
        let mut some = |mean: f64| -mean * (1.0 - random.random()).ln();
        let mut at = 0.0;
        let arrivals: Vec<f64> = (0..100_000)
            .map(|_| {
                at += some(2.0);
                at
            })
            .collect();
        let done = queue(&arrivals, 1, || some(1.0));
        let spent = arrivals.iter().zip(&done).map(|(a, d)| d - a).sum::<f64>() / 1e5;
        // One of Erlang's: with exponential times an act takes 1 / (1 - busy) of its own time.
        assert!((spent - 2.0).abs() < 0.1, "{spent}");
    }

    #[test]
    fn more_agents_never_need_less() {
        let report: Value = serde_json::from_str(SEEN).unwrap();
        let rows = Rows(report["rows"].as_array().unwrap());
        let agent = Agent {
            sends: 12.0,
            writes: 10.0,
            recalls: 6.0,
            reads: 60.0,
            hours: 8.0,
            peak: 3.0,
        };
        let measured = Measured::of(&rows, "postgres").unwrap();
        let plans: Vec<Plan> = [10, 1_000, 100_000, 1_000_000]
            .iter()
            .map(|n| plan("postgres", *n, 4, &agent, &measured))
            .collect();
        for pair in plans.windows(2) {
            assert!(pair[0].servers <= pair[1].servers && pair[0].databases <= pair[1].databases);
        }
        assert!(
            plans
                .iter()
                .all(|p| p.parts.iter().all(|part| part.busy.is_finite()))
        );
        assert!(
            plans.iter().all(|p| p.write_ms.0.is_finite()),
            "what is planned does not pile up"
        );
    }
}
