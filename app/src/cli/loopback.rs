//! `prism loopback-test`: where does a signal get to?

use super::{Context, print_json};
use crate::clock;
use crate::config;
use crate::loopback::{self, Options, Witness};
use crate::ui::{Failure, Outcome, Style, ago, out, short, table};
use prism_core::api::{LoopbackRunsAnswer, WhoisAnswer};
use prism_core::limits::LOOPBACK_RUNS_DEFAULT;
use prism_core::loopback::{Layers, Outcome as ProbeOutcome, Probe, Published, Seen, diagnosis};
use prism_core::receipt::Layer;
use serde_json::json;
use std::time::Duration;

#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  prism loopback-test --as Texi                 the newest session of Texi on this machine\n  prism loopback-test --session <id> --json     any session, as the operator\n  prism loopback-test --as Texi --repeat 20 --every 250\n  prism loopback-test --history                 what earlier probes found\n\nExit: 0 complete, 1 a required layer is missing, 2 it could not run."
)]
pub struct LoopbackTest {
    /// Milliseconds to wait for the shim
    #[arg(long, value_name = "MS", default_value_t = prism_core::loopback::TIMEOUT_MS)]
    timeout: u64,
    /// Milliseconds to wait for the model to read its inbox
    #[arg(long, value_name = "MS", default_value_t = 0)]
    wait_model: u64,
    /// Which session: its id, or the first 8 digits that `prism status` shows
    #[arg(long)]
    session: Option<String>,
    /// How many probes
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    /// Milliseconds between probes
    #[arg(long, value_name = "MS", default_value_t = 200)]
    every: u64,
    /// Ring the bell for each probe of a series, not only for the first
    #[arg(long)]
    ring: bool,
    /// Probe nothing: list what the last probes found
    #[arg(long, conflicts_with_all = ["session", "repeat", "ring", "wait_model"])]
    history: bool,
    /// How many of them
    #[arg(short, requires = "history", default_value_t = LOOPBACK_RUNS_DEFAULT)]
    n: usize,
}

impl LoopbackTest {
    pub async fn run(self, context: Context) -> Outcome {
        if self.history {
            return history(&context, self.n).await;
        }
        let session = self.choose(&context).await?;
        let mut options = Options::new(session, Some(self.timeout), Some(self.wait_model))?;
        let client = context.client()?;
        let witness = Witness::Home(context.home.clone());
        let mut probes = Vec::new();
        for i in 0..self.repeat.max(1) {
            options.ring = i == 0 || self.ring;
            let probe = loopback::run(&client, context.pid(), &options, &witness).await?;
            probes.push(probe);
            if i + 1 < self.repeat {
                tokio::time::sleep(Duration::from_millis(self.every)).await;
            }
        }
        let all = probes.iter().all(|p| p.outcome == ProbeOutcome::Complete);
        match probes.as_slice() {
            [probe] if context.json => print_json(&serde_json::to_value(probe).unwrap_or_default()),
            many if context.json => print_json(
                &json!({"probes": many, "complete": many.iter().filter(|p| p.outcome == ProbeOutcome::Complete).count()}),
            ),
            [probe] => out(&drawn(probe, context.style)),
            many => out(&series(many, context.style)),
        }
        if all { Ok(()) } else { Err(Failure::Negative) }
    }

    /// The named session, else the identity's newest live one on this machine.
    async fn choose(&self, context: &Context) -> Result<Option<String>, Failure> {
        if self.session.is_some() {
            return Ok(self.session.clone());
        }
        let Some(identity) = &context.identity else {
            return Err(Failure::Unable {
                message: "whose session shall be probed?".into(),
                hint: Some(
                    "--as <identity> takes its newest session here; --session <id> any".into(),
                ),
            });
        };
        let (whois, _): (WhoisAnswer, _) = context
            .ask("whois", json!({ "identity": identity }))
            .await?;
        let here = config::machine_id();
        // Sessions come newest verb first.
        Ok(whois
            .sessions
            .iter()
            .find(|s| s.machine_id == here && s.state.name() != "stale")
            .map(|s| s.session_id.to_string()))
    }
}

fn drawn(probe: &Probe, style: Style) -> String {
    let who = format!(
        "{}  {}",
        style.bold(&probe.requested_by_identity),
        style.dim(&probe.requested_by_session.map_or_else(
            || "no live session here".into(),
            |s| format!("{} on {} ({})", probe.surface, probe.machine_id, short(s))
        ))
    );
    let rows: Vec<Vec<String>> = probe
        .layers
        .each()
        .iter()
        .map(|(layer, seen)| line(*layer, seen, &probe.layers, style))
        .collect();
    let verdict = match probe.broken_at() {
        None => style.paint("32", "complete"),
        Some(layer) => {
            let elsewhere = probe.requested_by_session.is_some()
                && layer == Layer::ShimTeeReceipt
                && probe.machine_id != config::machine_id();
            let (means, todo) = match elsewhere {
                true => (
                    "its shim runs on another machine, and only that one can be asked there",
                    "run `prism loopback-test` on that machine",
                ),
                false => diagnosis(layer),
            };
            format!(
                "{}: it got lost at {}.\n  {means};\n  {todo}.",
                style.paint("31", probe.outcome.name()),
                style.bold(layer.name())
            )
        }
    };
    let echo = match (probe.echo.expected, probe.echo.signal_id) {
        (true, Some(id)) => format!("echo {}", short(id)),
        (true, None) => "no echo came".into(),
        (false, _) => "no echo was asked for".into(),
    };
    format!(
        "{who}\n{}\n{verdict}\n{}",
        table(&rows),
        style.dim(&format!("loopback {}, {echo}", short(probe.loopback_id)))
    )
}

fn line(layer: Layer, seen: &Seen, layers: &Layers, style: Style) -> Vec<String> {
    let bell = &layers.channel_notification;
    let optional = match layer {
        Layer::ChannelNotification => bell.is_suppressed(),
        _ => layer == Layer::ModelAck,
    };
    let mark = match (seen.observed, optional) {
        (true, _) => style.paint("32", "✓"),
        (false, true) => style.dim("·"),
        (false, false) => style.paint("31", "✗"),
    };
    let strategy = bell.strategy.clone().unwrap_or_default();
    let remark = match (layer, bell.evidence.as_deref(), seen.observed) {
        (Layer::ChannelNotification, Some("sent"), true) => {
            format!("{strategy}: sent; this host cannot confirm it")
        }
        (Layer::ChannelNotification, ..) => strategy,
        (Layer::RedisPublish, ..) => by(&layers.redis_publish),
        (Layer::ModelAck, _, false) => "not waited for, or silent: no failure".into(),
        _ => String::new(),
    };
    vec![
        format!("  {mark}"),
        layer.name().into(),
        seen.elapsed_ms
            .map_or_else(|| "-".into(), |ms| format!("{ms:.1} ms")),
        style.dim(&remark),
    ]
}

/// By what a probe went, and by whom it was pushed where there are several servers.
fn by(published: &Published) -> String {
    let mut by = published.transport.clone().unwrap_or_default();
    if let Some(server) = &published.server {
        by.push_str(&format!(", pushed by {server}"));
    }
    if let Some(hop_ms) = published.hop_ms {
        by.push_str(&format!(", {hop_ms:.1} ms away"));
    }
    by
}

/// A series: each layer's time as a bar, and how often it was missed.
fn series(probes: &[Probe], style: Style) -> String {
    let layers = [
        Layer::BackendWrite,
        Layer::RedisPublish,
        Layer::ShimTeeReceipt,
        Layer::ChannelNotification,
    ];
    let stats: Vec<(Layer, f64, f64, usize, usize)> = layers
        .iter()
        .enumerate()
        .map(|(i, layer)| {
            let bell = *layer == Layer::ChannelNotification;
            let asked: Vec<&Seen> = probes
                .iter()
                .filter(|p| !(bell && p.layers.channel_notification.is_suppressed()))
                .map(|p| p.layers.each()[i].1)
                .collect();
            let mut times: Vec<f64> = asked.iter().filter_map(|s| s.elapsed_ms).collect();
            times.sort_by(f64::total_cmp);
            let at = |share: f64| {
                times
                    .get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)))
                    .copied()
                    .unwrap_or(0.0)
            };
            (
                *layer,
                at(0.5),
                at(0.95),
                asked.len() - times.len(),
                asked.len(),
            )
        })
        .collect();
    let longest = stats.iter().map(|s| s.2).fold(0.001, f64::max);
    let rows: Vec<Vec<String>> = stats
        .iter()
        .map(|(layer, p50, p95, missed, asked)| {
            let bar = "█".repeat(((p50 / longest) * 24.0).ceil() as usize);
            let missed = if *missed == 0 {
                style.dim("none missed")
            } else {
                style.paint("31", &format!("{missed} of {asked} missed"))
            };
            vec![
                format!("  {}", layer.name()),
                format!("p50 {p50:.1} ms"),
                format!("p95 {p95:.1} ms"),
                missed,
                style.paint("36", &bar),
            ]
        })
        .collect();
    let complete = probes
        .iter()
        .filter(|p| p.outcome == ProbeOutcome::Complete)
        .count();
    format!("{complete} of {} complete\n{}", probes.len(), table(&rows))
}

/// What earlier probes found; of one identity when it is named.
async fn history(context: &Context, n: usize) -> Outcome {
    let request = json!({"identity": context.identity, "n": n});
    let (answer, verbatim): (LoopbackRunsAnswer, _) =
        context.ask("signal/loopback-runs", request).await?;
    if context.json {
        print_json(&verbatim);
        return Ok(());
    }
    let (style, now) = (context.style, clock::now());
    let rows: Vec<Vec<String>> = answer
        .runs
        .iter()
        .map(|run| {
            let complete = run.outcome == ProbeOutcome::Complete.name();
            let missing = run.missing_layers.iter().find(|l| **l != Layer::ModelAck);
            vec![
                style.paint(if complete { "32" } else { "31" }, &run.outcome),
                run.identity.clone(),
                missing.map_or_else(String::new, |l| format!("lost at {l}")),
                ago(run.finished_at, now),
                style.dim(&format!(
                    "{} {}",
                    run.session_id.map_or_else(|| "no session".into(), short),
                    short(run.loopback_id)
                )),
            ]
        })
        .collect();
    out(&if rows.is_empty() {
        "nobody has probed anything yet".into()
    } else {
        table(&rows)
    });
    Ok(())
}
