//! What a command costs as a process, beside `/bin/true` and one flush in the same run.

use super::signals::Flush;
use super::{PID, Report, Server, command, ms, p50_p99, percentile};
use crate::shim::files;
use anyhow::{Result, ensure};
use serde_json::json;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

const AGENT: &str = "Texi";
/// Who is written to, and has no shim that would ring meanwhile.
const PEER: &str = "Donna";
/// What the host calls its session.
const HOST: &str = "bench";

/// What is run, as whom, with which words on its standard input.
struct Row {
    name: &'static str,
    args: &'static [&'static str],
    identity: Option<&'static str>,
    /// Flushes that it waits for.
    flushes: usize,
}

const ROWS: &[Row] = &[
    row("/bin/true", &[], None, 0),
    row("prism statusline", &["statusline"], Some(AGENT), 0),
    row("prism hook", &["hook"], Some(AGENT), 0),
    row("prism status", &["status"], None, 0),
    row("prism pending, nothing waits", &["pending"], None, 0),
    row(
        "prism recall",
        &["recall", "how many the ring holds"],
        None,
        1,
    ),
    row("prism send", &["send", PEER, "the build is green"], None, 1),
];

const fn row(
    name: &'static str,
    args: &'static [&'static str],
    identity: Option<&'static str>,
    flushes: usize,
) -> Row {
    Row {
        name,
        args,
        identity,
        flushes,
    }
}

/// Whole processes in turn, so that all of them meet the same machine.
pub async fn run(runs: usize) -> Result<Report> {
    let server = Server::start()?;
    server.session(PEER).await?;
    let _shim = super::verb::shim(&server, AGENT)?;
    let operator = server.operator()?;
    for n in 0..20 {
        let note =
            json!({"text": format!("the ring holds fifty entries, said for the {n}th time")});
        operator.call(PID, "note", note).await?;
    }
    let run = |row: &Row, event: &str| -> Result<f64> {
        let mut command = match row.args {
            [] => Command::new(row.name),
            args => {
                let mut ours = command(&server.home)?;
                ours.args(args);
                if let Some(identity) = row.identity {
                    ours.env("PRISM_AGENT_IDENTITY", identity);
                }
                ours
            }
        };
        let started = Instant::now();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        // A program that reads nothing may be gone already.
        if let Some(mut stdin) = process.stdin.take() {
            let _ = stdin.write_all(event.as_bytes());
        }
        let done = process.wait_with_output()?;
        let said = String::from_utf8_lossy(&done.stderr);
        ensure!(done.status.success(), "{}: {said}", row.name);
        Ok(ms(started))
    };
    let event = json!({"hook_event_name": "UserPromptSubmit", "session_id": HOST,
        "cwd": server.home.dir(), "prompt": "go on"})
    .to_string();
    // A session is called what its host's hooks call it, once one of them has found it.
    run(&ROWS[2], &event)?;
    let (shims, _) = files::shims(&server.home);
    let found = shims
        .iter()
        .any(|s| s.host_session.as_deref() == Some(HOST));
    ensure!(found, "the hook did not find its session");
    let mut samples = vec![Vec::with_capacity(runs); ROWS.len()];
    let (mut flush, mut fsync) = (Flush::new()?, Vec::with_capacity(runs));
    for round in 0..runs + 3 {
        fsync.push(flush.sample()?);
        for (row, samples) in ROWS.iter().zip(&mut samples) {
            let took = run(row, &event)?;
            if round >= 3 {
                samples.push(took);
            }
        }
    }
    let flush = percentile(&mut fsync, 0.5);
    let base = percentile(&mut samples[0], 0.5);
    let mut report = Report::default();
    report.add("one fsync (4 KiB, same disk)", p50_p99(&mut fsync));
    for (row, samples) in ROWS.iter().zip(&mut samples) {
        let mut figures = p50_p99(samples);
        let over = figures[0].1 - base;
        figures.push(("p50 over /bin/true", over));
        if row.flushes > 0 {
            figures.push(("and one fsync", over - flush));
        }
        report.add(row.name, figures);
    }
    Ok(report)
}
