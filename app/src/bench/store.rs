//! `prism bench store`: SQLite and PostgreSQL side by side, in one run on one machine.
//!
//! Every part stands alone: one that fails is told as such, and the others are measured all the same.

mod databases;
mod load;
mod meaning;
mod ranks;
mod sockets;
mod verbs;

use super::{progress, shown};
use crate::home::Home;
use crate::ui::{Failure, Outcome, note, out_anyway, table};
use anyhow::Result;
use databases::Engines;
use serde_json::{Map, Value, json};
use std::time::Instant;

/// The parts of a run, in their order.
const PARTS: [&str; 7] = [
    "verbs", "sends", "servers", "security", "sockets", "recall", "ranks",
];

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  bench/store                          with a PostgreSQL and a Redis of its own\n  bench/store --quick                  does it all run? In under three minutes\n  bench/store --only recall --rows 1000000\n  prism bench store --database postgres://me@host/postgres --only verbs,sends\n\nThe user of the URL makes databases and drops them again. Recall and ranks need the embedding model: `prism model install`."
)]
pub struct Stores {
    /// A PostgreSQL to measure; its user may make databases
    #[arg(long, value_name = "URL")]
    database: String,
    /// The Redis that two servers tell each other by [default: PostgreSQL's NOTIFY]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// Small sizes, to see that it all runs; the figures mean little
    #[arg(long)]
    quick: bool,
    /// Only these parts
    #[arg(long, value_delimiter = ',', value_parser = PARTS)]
    only: Vec<String>,
    /// How many send at once [default: 1,64,512]
    #[arg(long, value_delimiter = ',')]
    senders: Vec<usize>,
    /// Sends of each run [default: 4000]
    #[arg(long)]
    sends: Option<usize>,
    /// Calls of each verb on each engine [default: 300]
    #[arg(long)]
    runs: Option<usize>,
    /// Rows of memory that recall is asked of, with made-up vectors [default: 100000]
    #[arg(long)]
    rows: Option<usize>,
    /// Vectors of each of these rows
    #[arg(long, default_value_t = 1)]
    vectors_a_row: usize,
    /// Sockets held open at once [default: 100,1000,10000]
    #[arg(long, value_delimiter = ',')]
    sockets: Vec<usize>,
}

/// How much of each is measured.
struct Sizes {
    senders: Vec<usize>,
    sends: usize,
    runs: usize,
    rows: usize,
    vectors_a_row: usize,
    sockets: Vec<usize>,
    /// Ranks are compared in a small world alone.
    one_world: bool,
}

impl Stores {
    fn sizes(&self) -> Sizes {
        let either = |given: Option<usize>, quick: usize, full: usize| {
            given.unwrap_or(if self.quick { quick } else { full })
        };
        let list = |given: &[usize], quick: &[usize], full: &[usize]| match (given, self.quick) {
            ([], true) => quick.to_vec(),
            ([], false) => full.to_vec(),
            (given, _) => given.to_vec(),
        };
        Sizes {
            senders: list(&self.senders, &[1, 64], &[1, 64, 512]),
            sends: either(self.sends, 400, 4_000),
            runs: either(self.runs, 40, 300),
            rows: either(self.rows, 2_000, 100_000),
            vectors_a_row: self.vectors_a_row,
            sockets: list(&self.sockets, &[100], &[100, 1_000, 10_000]),
            one_world: self.quick,
        }
    }

    pub async fn run(self, home: &Home, json: bool) -> Outcome {
        let sizes = self.sizes();
        let engines = Engines::at(self.database.clone(), self.redis.clone()).await?;
        for line in engines.warnings() {
            note(&line);
        }
        let mut figures = Figures::default();
        let floor = engines.floor(200).await?;
        figures.add(
            "one flush of 4 KiB, same disk",
            "ms",
            Some(floor.flush_ms),
            None,
        );
        figures.add(
            "one commit of one row, bare",
            "ms",
            None,
            Some(floor.commit_ms),
        );
        for part in PARTS {
            if !self.only.is_empty() && !self.only.iter().any(|only| only == part) {
                continue;
            }
            progress(&format!("{part} ..."));
            let started = Instant::now();
            let measured = match part {
                "verbs" => verbs::side_by_side(&engines, &sizes, &floor, &mut figures).await,
                "sends" => load::sends(&engines, &sizes, &floor, &mut figures).await,
                "servers" => load::servers(&engines, &sizes, &mut figures).await,
                "security" => {
                    verbs::with_and_without_security(&engines, &sizes, &mut figures).await
                }
                "sockets" => sockets::held(&engines, &sizes, &mut figures).await,
                "recall" => meaning::recall(home, &engines, &sizes, &mut figures).await,
                _ => ranks::alike(home, &engines, &sizes, &mut figures).await,
            };
            if let Err(error) = measured {
                note(&format!("{part}: {error:#}"));
                figures.failed.push((part, format!("{error:#}")));
            }
            progress(&format!("{part}: {:.0} s", started.elapsed().as_secs_f64()));
        }
        figures.print(&engines, json);
        match figures.all_within() {
            true => Ok(()),
            false => Err(Failure::Negative),
        }
    }
}

/// What a figure of PostgreSQL is to be.
#[derive(Clone, Copy)]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn is_met(self, figure: f64) -> bool {
        match self {
            Self::AtMost(most) => figure <= most,
            Self::AtLeast(least) => figure >= least,
        }
    }
}

/// One figure of both engines, or of one.
struct Figure {
    name: String,
    unit: &'static str,
    sqlite: Option<f64>,
    postgres: Option<f64>,
    limit: Option<Limit>,
    /// What else is known of it.
    more: Vec<(&'static str, f64)>,
}

impl Figure {
    fn ratio(&self) -> Option<f64> {
        let (sqlite, postgres) = self.sqlite.zip(self.postgres)?;
        (sqlite > 0.0).then(|| postgres / sqlite)
    }

    fn within(&self) -> Option<bool> {
        let (limit, postgres) = self.limit.zip(self.postgres)?;
        Some(limit.is_met(postgres))
    }

    fn json(&self) -> Value {
        let rounded = |v: f64| json!((v * 1000.0).round() / 1000.0);
        let more = self.more.iter();
        let more: Map<String, Value> = more.map(|(k, v)| ((*k).into(), rounded(*v))).collect();
        let (at_most, at_least) = match self.limit {
            Some(Limit::AtMost(most)) => (Some(most), None),
            Some(Limit::AtLeast(least)) => (None, Some(least)),
            None => (None, None),
        };
        json!({"name": self.name, "unit": self.unit, "sqlite": self.sqlite.map(rounded),
            "postgres": self.postgres.map(rounded), "ratio": self.ratio().map(rounded),
            "at_most": at_most.map(rounded), "at_least": at_least.map(rounded),
            "within": self.within(), "more": more})
    }

    fn cells(&self) -> Vec<String> {
        let value =
            |v: Option<f64>| v.map_or(String::new(), |v| format!("{} {}", shown(v), self.unit));
        let mut cells = vec![
            self.name.clone(),
            value(self.sqlite),
            value(self.postgres),
            self.ratio().map_or(String::new(), |r| format!("{r:.2}")),
            match self.limit {
                Some(Limit::AtMost(most)) => format!("≤ {}", shown(most)),
                Some(Limit::AtLeast(least)) => format!("≥ {}", shown(least)),
                None => String::new(),
            },
            match self.within() {
                Some(true) => "within".to_owned(),
                Some(false) => "MISSED".to_owned(),
                None => String::new(),
            },
        ];
        let more = self.more.iter().map(|(k, v)| format!("{k} {}", shown(*v)));
        cells.push(more.collect::<Vec<_>>().join(", "));
        cells
    }
}

#[derive(Default)]
struct Figures {
    all: Vec<Figure>,
    failed: Vec<(&'static str, String)>,
}

impl Figures {
    /// Adds a figure, whose limit and whatever else is known of it may be said behind it.
    fn add(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        sqlite: Option<f64>,
        postgres: Option<f64>,
    ) -> &mut Figure {
        let name = name.into();
        let values = [sqlite, postgres].map(|v| v.map_or("-".to_owned(), shown));
        progress(&format!("  {name}: {} | {} {unit}", values[0], values[1]));
        self.all.push(Figure {
            name,
            unit,
            sqlite,
            postgres,
            limit: None,
            more: Vec::new(),
        });
        let last = self.all.len() - 1;
        &mut self.all[last]
    }

    fn all_within(&self) -> bool {
        self.failed.is_empty() && self.all.iter().all(|f| f.within() != Some(false))
    }

    fn print(&self, engines: &Engines, json: bool) {
        if json {
            let rows: Vec<Value> = self.all.iter().map(Figure::json).collect();
            let failed = self.failed.iter();
            let failed: Map<String, Value> = failed
                .map(|(part, why)| ((*part).into(), json!(why)))
                .collect();
            let report = json!({"version": crate::VERSION, "machine": engines.machine(),
                "rows": rows, "failed": failed});
            return out_anyway(&serde_json::to_string_pretty(&report).unwrap_or_default());
        }
        let heading = ["", "SQLite", "PostgreSQL", "ratio", "limit", "", ""];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        rows.extend(self.all.iter().map(Figure::cells));
        out_anyway(&table(&rows));
        for (name, value) in engines.machine() {
            out_anyway(&format!(
                "{name}: {}",
                value.as_str().unwrap_or(&value.to_string())
            ));
        }
        for (part, why) in &self.failed {
            out_anyway(&format!("{part} could not be measured: {why}"));
        }
    }
}

/// The middle of some samples, and the last of a hundred.
fn middle_and_tail(samples: &mut [f64]) -> (f64, f64) {
    (
        super::percentile(samples, 0.5),
        super::percentile(samples, 0.99),
    )
}

/// How busy the machine's cores are between two looks.
struct Cores {
    busy: f64,
    all: f64,
}

impl Cores {
    fn look() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat")?;
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = line
            .split_whitespace()
            .skip(1)
            .filter_map(|t| t.parse().ok())
            .collect();
        let all: f64 = ticks.iter().take(8).sum();
        let idle: f64 = ticks.iter().skip(3).take(2).sum();
        Ok(Self {
            busy: all - idle,
            all,
        })
    }

    /// How many were busy since then, on average.
    fn busy_since(&self) -> Result<f64> {
        let now = Self::look()?;
        Ok((now.busy - self.busy) / (now.all - self.all).max(1.0) * cores() as f64)
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
