//! What needs no server: the statusline's process.

use super::{Report, command, ms, p50_p99, percentile};
use crate::clock;
use crate::home::Home;
use crate::shim::cache::{Arrival, Cache};
use anyhow::Result;
use prism_core::Identity;
use prism_core::envelope::Envelope;
use serde_json::json;
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
