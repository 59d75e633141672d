//! What months of use leave behind: what goes and what stays, and that nothing runs on alone.

use crate::harness::{BIN, PID, Server, task, wait_for, wait_until};
use crate::recall_story::give_model;
use prism::client::Client;
use prism::config::ServerFile;
use prism::home::Home;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Whether a process is gone, or only waits for whoever inherited it.
fn has_ended(pid: u32) -> Option<()> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    (state.is_empty() || state.starts_with('Z')).then_some(())
}

#[test]
fn a_bench_that_is_killed_takes_its_server_along() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Command::new(BIN)
        .env_clear()
        .env("HOME", dir.path())
        .env("TMPDIR", dir.path())
        .args(["bench", "gate", "--acks", "1000000"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = wait_for("the bench starts a server", || {
        let homes = std::fs::read_dir(dir.path()).unwrap().flatten();
        let mut files = homes.map(|home| ServerFile::load(&Home::at(home.path())));
        files.find_map(|file| file)
    });
    assert_eq!(has_ended(server.pid), None, "it runs");
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_for("its server ends", || has_ended(server.pid));
}

#[tokio::test]
async fn a_server_that_is_killed_takes_its_worker_along_even_one_that_hangs() {
    let mut server = Server::start();
    give_model(&server);
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.hangs")]);
    let (mira, _) = server.session("Mira").await;
    let note = json!({"text": "the worker hangs over this"});
    mira.call(PID, "note", note).await.unwrap();
    let worker: u32 = wait_for("the worker starts", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let children = tasks
            .flatten()
            .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        children
            .collect::<String>()
            .split_whitespace()
            .find_map(|pid| pid.parse().ok())
    });
    server.kill();
    wait_for("its worker ends", || has_ended(worker));
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn count(server: &Server, sql: &str) -> i64 {
    server.rows().query_row(sql, [], |r| r.get(0)).unwrap()
}

/// Sends a task and drains it, so that it is over.
async fn drained(from: &Client, to: &Client, summary: &str) -> String {
    let mut send = task("Texi", summary);
    send["idempotency_key"] = json!(summary);
    let sent = from.call(PID, "signal", send).await.unwrap();
    let pending = to.call(PID, "signals_pending", json!({})).await.unwrap();
    let lease = json!({"lease_id": pending["lease_id"]});
    to.call(PID, "signals_confirm", lease).await.unwrap();
    sent["signal_id"].as_str().unwrap().to_owned()
}

async fn trace(operator: &Client, id: &str) -> Result<Value, String> {
    let traced = operator.call(PID, "signal_trace", json!({"signal_id": id}));
    traced.await.map_err(|problem| problem.code)
}

async fn goes(operator: &Client, id: &str) {
    wait_until("an old signal goes", || async {
        let gone = trace(operator, id).await.err()?;
        assert_eq!(gone, "unknown_signal");
        Some(())
    })
    .await;
}

#[tokio::test]
async fn history_goes_in_time_and_what_something_refers_to_stays_as_long_as_that() {
    let server = Server::start();
    let operator = server.operator();
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let plain = drained(&donna, &texi, "water the plants").await;
    let judged = drained(&donna, &texi, "paint the fence").await;
    let verdict = json!({"refers_to": format!("signal:{judged}"), "verdict": "works"});
    operator.call(PID, "confirm", verdict).await.unwrap();
    let gated = drained(&donna, &texi, "implement docs/specs/spec-1.md").await;
    let ack = json!({"signal_id": gated});
    texi.call(PID, "signal_ack", ack).await.unwrap();
    let note = json!({"text": "the fence was green before"});
    texi.call(PID, "note", note).await.unwrap();
    let asked = json!({"query": "the fence"});
    let answer = texi.call(PID, "recall", asked).await.unwrap();
    let (cited, found) = (&answer["recall_event_id"], &answer["results"][0]["id"]);
    let cite = json!({"recall_event_id": cited, "result_id": found});
    texi.call(PID, "memory_cite", cite).await.unwrap();
    let asked = json!({"query": "what about the plants"});
    texi.call(PID, "recall", asked).await.unwrap();
    let probe = texi.call(PID, "signal/loopback-issue", json!({}));
    let finish = json!({"probe": probe.await.unwrap()});
    texi.call(PID, "signal/loopback-finish", finish)
        .await
        .unwrap();
    // One session that only came and went; the others left something in memory.
    let (passing, _) = server.session("Passing").await;
    passing
        .call(PID, "session_release", json!({}))
        .await
        .unwrap();
    let sessions = "select count(*) from sessions";
    let runs = "select count(*) from loopback_runs";
    assert_eq!((count(&server, sessions), count(&server, runs)), (3, 1));
    let memory = count(&server, "select count(*) from memory");

    server.advance(31 * DAY);
    wait_for("the probe's envelope goes", || {
        (count(&server, runs) == 0).then_some(())
    });
    let folded = "select sum(runs) from loopback_days where identity = 'Texi'";
    assert_eq!(count(&server, folded), 1, "and leaves its day's total");
    assert!(trace(&operator, &plain).await.is_ok(), "31 days are not 90");
    let mut again = task("Texi", "water the plants");
    again["idempotency_key"] = json!("water the plants");
    let repeated = operator_as(&server, "Donna", again.clone()).await;
    assert_eq!(repeated, plain, "a key lives as long as its row");

    server.advance(60 * DAY);
    goes(&operator, &plain).await;
    assert!(
        trace(&operator, &judged).await.is_ok(),
        "a verdict keeps it"
    );
    assert!(trace(&operator, &gated).await.is_ok(), "so does the gate");
    let of_the_gone = format!("select count(*) from deliveries where signal_id = '{plain}'");
    assert_eq!(count(&server, &of_the_gone), 0);
    wait_for("the session that left nothing goes", || {
        (count(&server, sessions) == 2).then_some(())
    });
    let whois = json!({"identity": "Passing"});
    let known = operator.call(PID, "whois", whois).await.unwrap();
    assert_eq!(
        known["recipient_state"], "offline",
        "that it was there is known for ever"
    );
    let fresh = operator_as(&server, "Donna", again).await;
    assert_ne!(fresh, plain, "and so is its key");

    server.advance(90 * DAY);
    let events = "select count(*) from memory_recall_events";
    wait_for("a recall that nobody cited goes", || {
        (count(&server, events) == 1).then_some(())
    });

    server.advance(185 * DAY);
    wait_for("what the gate noticed goes", || {
        (count(&server, "select count(*) from recallgate_events") == 0).then_some(())
    });
    goes(&operator, &gated).await;
    assert!(
        trace(&operator, &judged).await.is_ok(),
        "memory is for ever"
    );
    assert_eq!(count(&server, events), 1, "a citation keeps its recall");
    assert_eq!(count(&server, "select count(*) from memory"), memory);
}

/// Sends as somebody without a session; the answer's id.
async fn operator_as(server: &Server, name: &str, send: Value) -> String {
    let sent = server.identity(name).await.call(PID, "signal", send).await;
    sent.unwrap()["signal_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_upgraded_home_hears_for_seven_days_what_will_go() {
    let mut server = Server::start();
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let old = drained(&donna, &texi, "water the plants").await;
    server.terminate();
    // As a home is left by the migration that brought retention.
    let connection = server.rows();
    let upgraded = "update retention set begins_at = null";
    connection.execute(upgraded, []).unwrap();
    drop(connection);
    server.advance(91 * DAY);
    server.resume();
    let doctor = server.ok(None, &["doctor"]);
    assert!(
        doctor.contains("on old rows go: up to") && doctor.contains("1 signals"),
        "{doctor}"
    );
    let operator = server.operator();
    assert!(trace(&operator, &old).await.is_ok());
    server.advance(6 * DAY);
    let kept = operator.call(PID, "retention", json!({})).await.unwrap();
    assert_eq!(kept["kinds"][3]["rows"], 1, "not yet: {kept}");
    server.advance(2 * DAY);
    goes(&operator, &old).await;
    let doctor = server.ok(None, &["doctor"]);
    assert!(
        doctor.contains("signals: 0 row(s), kept 90 days"),
        "{doctor}"
    );
}

#[tokio::test]
async fn what_the_operator_keeps_for_ever_stays() {
    let server = Server::start_with("[retention]\nsignals = 0\nrecall_events = 1\n");
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let kept = drained(&donna, &texi, "water the plants").await;
    let asked = json!({"query": "plants"});
    texi.call(PID, "recall", asked).await.unwrap();
    server.advance(4000 * DAY);
    wait_for("the walk has been there", || {
        let events = "select count(*) from memory_recall_events";
        (count(&server, events) == 0).then_some(())
    });
    // Recalls go before signals in the same walk: wait for the end of it.
    wait_for("and came to its end", || {
        (count(
            &server,
            "select count(*) from sessions where released_at is null",
        ) == 0)
            .then_some(())
    });
    assert!(trace(&server.operator(), &kept).await.is_ok());
    let doctor = server.ok(None, &["doctor"]);
    assert!(doctor.contains("signals: 1 row(s)"), "{doctor}");
    assert!(doctor.contains("kept for ever"), "{doctor}");
}
