//! The probe beside a bare send, and what the gate adds to an acknowledgment.

use super::signals::Shim;
use super::{PID, Report, Server, ms, p50_p99};
use crate::client::Client;
use crate::loopback::{self, Options, Witness};
use anyhow::{Context, Result, ensure};
use prism_core::loopback::{Outcome, Probe};
use serde_json::{Value, json};
use std::time::Instant;

pub async fn probe(runs: usize) -> Result<Report> {
    let mut report = Report::default();
    let server = Server::start()?;
    let _shim = Shim::start(&server, "Reader")?;
    let (sender, _) = server.session("Sender").await?;
    let whois = sender
        .call(PID, "whois", json!({"identity": "Reader"}))
        .await?;
    let session = whois["sessions"][0]["session_id"]
        .as_str()
        .context("no session")?;
    let operator = server.operator()?;
    let witness = Witness::Home(server.home.clone());
    let options = Options::new(Some(session.to_owned()), None, None)?;
    let (mut sends, mut probes, mut layers): (Vec<f64>, Vec<f64>, [Vec<f64>; 4]) =
        Default::default();
    for i in 0..runs + 10 {
        let started = Instant::now();
        sender.call(PID, "signal", json!({"to": "Reader", "signal_type": "StatusUpdate", "payload": {"summary": "bare"}})).await?;
        let send = ms(started);
        let started = Instant::now();
        let probe: Probe = loopback::run(&operator, PID, &options, &witness).await?;
        let whole = ms(started);
        ensure!(
            probe.outcome == Outcome::Complete,
            "a probe was {}: {:?}",
            probe.outcome,
            probe.missing_layers
        );
        if i >= 10 {
            sends.push(send);
            probes.push(whole);
            for (samples, (_, seen)) in layers.iter_mut().zip(probe.layers.each()) {
                samples.extend(seen.elapsed_ms);
            }
        }
    }
    report.add("bare send", p50_p99(&mut sends));
    report.add("whole probe, from outside", p50_p99(&mut probes));
    for (name, samples) in [
        "backend_write",
        "redis_publish",
        "shim_tee_receipt",
        "channel_notification",
    ]
    .iter()
    .zip(&mut layers)
    {
        report.add(format!("  to {name}"), p50_p99(samples));
    }
    Ok(report)
}

/// A server with tasks to acknowledge, and what that has cost it so far.
struct Acks {
    server: Server,
    reader: Client,
    signals: Vec<Value>,
    samples: Vec<f64>,
    cpu_us: f64,
}

impl Acks {
    async fn prepare(mode: &'static str, n: usize) -> Result<Self> {
        let server = Server::stopped()?
            .with_env("PRISM_RECALLGATE_MODE", mode)
            .resume()?;
        let (sender, _) = server.session("Sender").await?;
        let (reader, _) = server.session("Reader").await?;
        let mut signals = Vec::with_capacity(n);
        for _ in 0..n {
            let task = json!({"to": "Reader", "signal_type": "TaskAssigned", "payload": {"summary": "ratify docs/specs/spec-099.md", "tags": ["governance"]}});
            signals.push(sender.call(PID, "signal", task).await?["signal_id"].clone());
        }
        // Without its session: what waits in the inbox is not part of the question.
        Ok(Self {
            server,
            reader: reader.with_session(None),
            signals,
            samples: Vec::new(),
            cpu_us: 0.0,
        })
    }

    async fn acknowledge(&mut self, n: usize) -> Result<()> {
        let cpu = self.server.cpu_us()?;
        for signal in self.signals.drain(..n.min(self.signals.len())) {
            let started = Instant::now();
            self.reader
                .call(PID, "signal_ack", json!({ "signal_id": signal }))
                .await?;
            self.samples.push(ms(started));
        }
        self.cpu_us += self.server.cpu_us()? - cpu;
        Ok(())
    }
}

/// The same acknowledgments on two servers, the gate off and on, taking turns.
pub async fn gate(acks: usize) -> Result<Report> {
    let mut sides = [
        Acks::prepare("off", acks).await?,
        Acks::prepare("advisory", acks).await?,
    ];
    for _ in 0..10 {
        for side in &mut sides {
            side.acknowledge(acks.div_ceil(10)).await?;
        }
    }
    let mut report = Report::default();
    for (mode, side) in ["off", "advisory"].iter().zip(&mut sides) {
        let mut figures = p50_p99(&mut side.samples);
        figures.push(("CPU us each", side.cpu_us / acks as f64));
        report.add(format!("ACK, gate {mode}"), figures);
    }
    report.add(
        "the gate adds",
        vec![("CPU us", (sides[1].cpu_us - sides[0].cpu_us) / acks as f64)],
    );
    Ok(report)
}
