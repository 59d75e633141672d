//! The probe beside a bare send, and what the gate adds to an acknowledgment.

use super::signals::Shim;
use super::{PID, Report, Server, ms, p50_p99};
use crate::loopback::{self, Door, Options, Source};
use anyhow::{Context, Result, ensure};
use prism_core::loopback::{Outcome, Probe};
use serde_json::json;
use std::time::Instant;

pub async fn probe(runs: usize) -> Result<Report> {
    let mut report = Report::default();
    let server = Server::start()?;
    let _shim = Shim::start(&server, "Reader")?;
    let (sender, _) = server.session("Sender").await?;
    let whois = sender.call(PID, "whois", json!({"identity": "Reader"})).await?;
    let session = whois["sessions"][0]["session_id"].as_str().and_then(|s| s.parse().ok()).context("no session")?;
    let operator = server.operator()?;
    let source = Source::Door(Door::of(&server.home, Some(session))?);
    let options = Options::new(Some(session), None, None)?;
    let (mut sends, mut probes, mut layers): (Vec<f64>, Vec<f64>, [Vec<f64>; 4]) = Default::default();
    for i in 0..runs + 10 {
        let started = Instant::now();
        sender.call(PID, "signal", json!({"to": "Reader", "signal_type": "StatusUpdate", "payload": {"summary": "bare"}})).await?;
        let send = ms(started);
        let started = Instant::now();
        let probe: Probe = loopback::run(&operator, PID, &options, &source).await?;
        let whole = ms(started);
        ensure!(probe.outcome == Outcome::Complete, "a probe was {}: {:?}", probe.outcome, probe.missing_layers);
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
    for (name, samples) in ["backend_write", "redis_publish", "shim_tee_receipt", "channel_notification"].iter().zip(&mut layers) {
        report.add(format!("  to {name}"), p50_p99(samples));
    }
    Ok(report)
}

/// The same acknowledgments on two servers, the gate off and on.
pub async fn gate(acks: usize) -> Result<Report> {
    let mut report = Report::default();
    let mut each = Vec::new();
    for mode in ["off", "advisory"] {
        let server = Server::stopped()?.with_env("PRISM_RECALLGATE_MODE", mode).resume()?;
        let (sender, _) = server.session("Sender").await?;
        let (reader, _) = server.session("Reader").await?;
        let mut signals = Vec::new();
        for _ in 0..acks {
            let sent = sender
                .call(
                    PID,
                    "signal",
                    json!({"to": "Reader", "signal_type": "TaskAssigned", "payload": {"summary": "ratify docs/specs/spec-099.md", "tags": ["governance"]}}),
                )
                .await?;
            signals.push(sent["signal_id"].clone());
        }
        let read = reader.call(PID, "signals_pending", json!({"limit": 200})).await?;
        reader.call(PID, "signals_confirm", json!({"lease_id": read["lease_id"]})).await?;
        let (mut samples, cpu) = (Vec::new(), server.cpu_us()?);
        for signal in &signals {
            let started = Instant::now();
            reader.with_session(None).call(PID, "signal_ack", json!({"signal_id": signal})).await?;
            samples.push(ms(started));
        }
        let cpu = (server.cpu_us()? - cpu) / acks as f64;
        each.push(cpu);
        let mut figures = p50_p99(&mut samples);
        figures.push(("CPU us each", cpu));
        report.add(format!("ACK, gate {mode}"), figures);
    }
    report.add("the gate adds", vec![("CPU us", each[1] - each[0])]);
    Ok(report)
}
