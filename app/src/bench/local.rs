//! What needs no server: the statusline's process and the local verb.

use super::{Report, command, ms, p50_p99, percentile};
use crate::clock;
use crate::home::Home;
use crate::shim::cache::{Arrival, Cache};
use anyhow::{Context, Result};
use prism_core::Identity;
use prism_core::envelope::Envelope;
use serde_json::json;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A home whose identity has a full ring.
fn full_ring() -> Result<Home> {
    let home = Home::at(std::env::temp_dir().join(format!("prism-bench-{}", clock::new_id())));
    home.create()?;
    let envelopes: Vec<Envelope> = (0..50)
        .map(|n| serde_json::from_value(json!({"signal_id": clock::new_id(), "signal_type": "Question", "from_identity": "Donna", "to_identity": "Texi", "payload": {"summary": format!("question {n}")}, "seq": n})))
        .collect::<serde_json::Result<_>>()?;
    let arrivals: Vec<Arrival<'_>> = envelopes
        .iter()
        .map(|envelope| Arrival {
            envelope,
            drained: false,
        })
        .collect();
    let identity = Identity::parse("Texi").map_err(|p| anyhow::anyhow!(p.message))?;
    Cache::new(home.clone(), &identity).arrived(&arrivals, "bench")?;
    Ok(home)
}

/// Whole processes, the two commands taking turns so that both meet the same machine.
pub fn statusline(runs: usize) -> Result<Report> {
    let home = full_ring()?;
    let time = |mut command: Command| -> Result<f64> {
        let started = Instant::now();
        let status = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()?;
        anyhow::ensure!(status.success());
        Ok(ms(started))
    };
    let (mut peer, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        peer.push(time(Command::new("/bin/true"))?);
        let mut line = command(&home)?;
        line.env("PRISM_AGENT_IDENTITY", "Texi").arg("statusline");
        ours.push(time(line)?);
    }
    let mut report = Report::default();
    report.add("/bin/true", p50_p99(&mut peer));
    let mut figures = p50_p99(&mut ours);
    figures.push(("p50 over it", figures[0].1 - percentile(&mut peer, 0.5)));
    report.add("prism statusline", figures);
    std::fs::remove_dir_all(home.dir())?;
    Ok(report)
}

/// The round trip of `prism_signals` through the shim's standard streams.
pub fn verb(runs: usize) -> Result<Report> {
    let home = full_ring()?;
    let mut process = command(&home)?
        .env("PRISM_AGENT_IDENTITY", "Texi")
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut stdin = process.stdin.take().context("no stdin")?;
    let mut lines = BufReader::new(process.stdout.take().context("no stdout")?).lines();
    let mut ask = |id: usize, method: &str, params: serde_json::Value| -> Result<f64> {
        let started = Instant::now();
        writeln!(
            stdin,
            "{}",
            json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
        )?;
        lines.next().context("no answer")??;
        Ok(ms(started))
    };
    ask(
        1,
        "initialize",
        json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}),
    )?;
    let mut report = Report::default();
    let mut pings = Vec::new();
    let mut samples = Vec::new();
    for i in 0..runs {
        pings.push(ask(10 + 2 * i, "ping", json!({}))?);
        samples.push(ask(
            11 + 2 * i,
            "tools/call",
            json!({"name": "prism_signals", "arguments": {"action": "both"}}),
        )?);
    }
    report.add("MCP ping", p50_p99(&mut pings));
    report.add("prism_signals, both", p50_p99(&mut samples));
    drop(stdin);
    process.wait()?;
    std::fs::remove_dir_all(home.dir())?;
    Ok(report)
}
