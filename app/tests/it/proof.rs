//! Proof: the loopback probe bisects a miss, and the gate warns exactly where it should.

use crate::harness::{Agent, PID, Server, ids, wait_for};
use prism_core::Code;
use serde_json::{Value, json};

/// Probes with patience, unless the story is about a miss.
fn probe(server: &Server, identity: &str, args: &[&str]) -> (i32, Value) {
    let patience: &[&str] = if args.iter().any(|a| a.starts_with("--timeout")) {
        &[]
    } else {
        &["--timeout=20000"]
    };
    let output = server.cli(
        Some(identity),
        &[&["loopback-test", "--json"], patience, args].concat(),
    );
    (
        output.status.code().unwrap(),
        serde_json::from_slice(&output.stdout).unwrap_or_default(),
    )
}

fn missing(probe: &Value) -> Vec<&str> {
    probe["missing_layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l.as_str().unwrap())
        .collect()
}

/// What the command line says of the first missing layer.
fn said(server: &Server, identity: &str, args: &[&str]) -> String {
    String::from_utf8(
        server
            .cli(Some(identity), &[&["loopback-test"], args].concat())
            .stdout,
    )
    .unwrap()
}

#[test]
fn a_healthy_session_is_complete_and_says_what_the_host_cannot_confirm() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &[]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)),
        (0, Some("complete"), vec!["model_ack"])
    );
    assert_eq!(
        (
            envelope["requested_by_session"].clone(),
            envelope["layers"]["redis_publish"]["transport"].as_str()
        ),
        (texi.started["session_id"].clone(), Some("in_process"))
    );
    let printed = said(&server, "texi", &[]);
    assert!(
        printed.contains("sent; this host cannot confirm it") && printed.contains("complete"),
        "{printed}"
    );
    let verb = texi.call("prism_loopback_test", json!({}));
    assert_eq!(
        (
            verb["outcome"].as_str(),
            verb["echo"]["signal_id"].is_string()
        ),
        (Some("complete"), true)
    );
    assert!(
        ids(&texi.call("prism_status", json!({}))).is_empty(),
        "probe and echo never ride"
    );
    assert_eq!(
        texi.call("prism_signals", json!({"action": "count"}))["count"]["unread"],
        0
    );
    let trace = texi.call(
        "prism_signal_trace",
        json!({"signal_id": envelope["signal_id"]}),
    );
    assert_eq!(
        trace["receipt"]["state"], "recalled",
        "it left the queue when the probe ended"
    );
    assert!(
        trace["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .all(|e| e["loopback_id"] == envelope["loopback_id"]),
        "{trace}"
    );
    wait_for("the last proof", || {
        (texi.call("prism_whois", json!({"identity": "Texi"}))["reachable"]["layer"]
            == "channel_notification")
            .then_some(())
    });
}

#[test]
fn each_broken_layer_is_named_with_what_to_do() {
    let mut server = Server::start();
    // The bus stands still: stored, and pushed to nobody.
    server.kill();
    server.resume_with(&[("PRISM_FAILPOINTS", "hub.pause")]);
    let texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &["--timeout=300"]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)[0]),
        (1, Some("timeout"), "redis_publish")
    );
    assert!(said(&server, "Texi", &["--timeout=300"]).contains("nothing was pushed"));
    drop(texi);
    // The socket swallows what is written to it.
    server.kill();
    server.resume_with(&[("PRISM_FAILPOINTS", "stream.swallow")]);
    let texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &["--timeout=300"]);
    assert_eq!((code, missing(&envelope)[0]), (1, "shim_tee_receipt"));
    drop(texi);
    server.kill();
    server.resume();
    // The shim hangs.
    let texi = server.agent("Texi");
    signal(texi.os_pid(), rustix::process::Signal::STOP);
    let (code, envelope) = probe(&server, "Texi", &["--timeout=600"]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)[0]),
        (1, Some("timeout"), "shim_tee_receipt")
    );
    assert!(said(&server, "Texi", &["--timeout=300"]).contains("restart the agent host"));
    signal(texi.os_pid(), rustix::process::Signal::CONT);
    drop(texi);
    // A host whose pipe is closed takes no bell; one that never drains is only named.
    let mut deaf = server.agent("Donna");
    deaf.close_stdout();
    let (code, envelope) = probe(&server, "Donna", &[]);
    assert_eq!(
        (code, envelope["outcome"].as_str()),
        (1, Some("partial")),
        "{envelope}"
    );
    assert_eq!(missing(&envelope)[0], "channel_notification");
    let lola = server.agent("Lola");
    let (code, envelope) = probe(&server, "Lola", &["--wait-model=200"]);
    assert_eq!((code, missing(&envelope)), (0, vec!["model_ack"]));
    drop(lola);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), signal)
        .unwrap();
}

#[test]
fn a_model_that_reads_its_inbox_is_the_fifth_layer() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let command = server
        .command(Some("Texi"))
        .args(["loopback-test", "--json", "--wait-model=20000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    texi.bell();
    texi.call("prism_signals_pending", json!({}));
    let output = command.wait_with_output().unwrap();
    let envelope: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(
        envelope["layers"]["model_ack"]["observed"]
            .as_bool()
            .unwrap()
            && missing(&envelope).is_empty(),
        "{envelope}"
    );
}

#[test]
fn exit_codes_tell_no_from_could_not() {
    let mut server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    let (code, envelope) = probe(&server, "Texi", &["--timeout=100"]);
    assert_eq!(
        (
            code,
            envelope["recipient_state"].as_str(),
            envelope["requested_by_session"].is_null()
        ),
        (1, Some("never_started"), true),
        "no session: it ran, and the answer is no"
    );
    assert_eq!(
        server.cli(None, &["loopback-test"]).status.code(),
        Some(2),
        "whose?"
    );
    assert_eq!(
        server
            .cli(Some("Texi"), &["loopback-test", "--timeout=999999999"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        server
            .cli(
                None,
                &[
                    "loopback-test",
                    "--session",
                    "00000000-0000-0000-0000-000000000000"
                ]
            )
            .status
            .code(),
        Some(2)
    );
    server.kill();
    assert_eq!(probe(&server, "Texi", &[]).0, 2);
}

#[test]
fn a_series_rings_once_and_two_probes_at_once_do_not_mix() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let series = server.ok(
        Some("Texi"),
        &["loopback-test", "--repeat", "4", "--every", "1"],
    );
    assert!(
        series.contains("4 of 4 complete") && series.contains("█"),
        "{series}"
    );
    assert_eq!((texi.bell(), texi.bells_so_far()), ("Signal from Texi: Loopback. Use prism_signals_pending to read; prism_signal to reply if needed.".into(), 0));
    let both: Vec<_> = (0..2)
        .map(|_| {
            server
                .command(Some("Texi"))
                .args(["loopback-test", "--json"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let envelopes: Vec<Value> = both
        .into_iter()
        .map(|c| serde_json::from_slice(&c.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    assert!(
        envelopes.iter().all(|e| e["outcome"] == "complete")
            && envelopes[0]["loopback_id"] != envelopes[1]["loopback_id"]
    );
}

#[test]
fn only_the_probed_session_answers_and_its_door_needs_the_token() {
    let server = Server::start();
    let (one, two) = (server.agent("Texi"), server.agent("Texi"));
    let session = one.started["session_id"].as_str().unwrap();
    let envelope: Value =
        serde_json::from_str(&server.ok(None, &["loopback-test", "--json", "--session", session]))
            .unwrap();
    assert_eq!(
        (
            envelope["outcome"].as_str(),
            envelope["requested_by_identity"].as_str()
        ),
        (Some("complete"), Some("Texi"))
    );
    one.bell();
    assert_eq!(two.bells_so_far(), 0);
    let file: Value = serde_json::from_str(
        &server
            .home()
            .read(&format!("shims/{session}.json"))
            .unwrap(),
    )
    .unwrap();
    let ask = |token: &str, id: &str| {
        let url = format!(
            "http://127.0.0.1:{}/tee-frames?loopback_id={id}",
            file["port"]
        );
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        runtime.block_on(async {
            reqwest::Client::builder()
                .no_proxy()
                .build()
                .unwrap()
                .get(url)
                .bearer_auth(token)
                .send()
                .await
                .unwrap()
                .status()
                .as_u16()
        })
    };
    let (token, id) = (
        file["token"].as_str().unwrap(),
        envelope["loopback_id"].as_str().unwrap(),
    );
    assert_eq!(
        [
            ask(token, id),
            ask("wrong", id),
            ask(token, "00000000-0000-0000-0000-000000000000")
        ],
        [200, 401, 404]
    );
    // Files of dead or forged shims are ignored.
    server
        .home()
        .write(
            &format!("shims/{}.json", prism::clock::new_id()),
            b"{\"port\":1}",
        )
        .unwrap();
    assert_eq!(probe(&server, "Texi", &[]).0, 0);
}

#[tokio::test]
async fn a_foreign_probe_is_refused_and_an_echo_is_never_echoed() {
    let server = Server::start();
    let ((texi, _), (donna, other)) = (server.session("Texi").await, server.session("Donna").await);
    assert!(
        texi.call(PID, "signal/loopback-issue", json!({"session_id": other}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    let issued = donna
        .call(PID, "signal/loopback-issue", json!({}))
        .await
        .unwrap();
    assert!(
        issued["layers"]["backend_write"]["observed"]
            .as_bool()
            .unwrap()
            && !issued["layers"]["redis_publish"]["observed"]
                .as_bool()
                .unwrap(),
        "live, but without a socket"
    );
    assert!(
        texi.call(
            PID,
            "signal/loopback-echo",
            json!({"signal_id": issued["signal_id"]})
        )
        .await
        .is_err()
    );
    let echo = donna
        .call(
            PID,
            "signal/loopback-echo",
            json!({"signal_id": issued["signal_id"]}),
        )
        .await
        .unwrap();
    assert!(
        donna
            .call(
                PID,
                "signal/loopback-echo",
                json!({"signal_id": echo["signal_id"]})
            )
            .await
            .is_err()
    );
    assert!(
        texi.call(PID, "signal/loopback-finish", json!({"probe": issued}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    assert!(ids(&donna.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
}

fn assigned(server: &Server, from: &mut Agent, to: &mut Agent, payload: Value) -> String {
    let sent = from.call(
        "prism_signal",
        json!({"to": to.started["identity"], "signal_type": "TaskAssigned", "payload": payload}),
    );
    let id = sent["signal_id"].as_str().unwrap().to_owned();
    wait_for("the task", || {
        ids(&to.call("prism_signals_pending", json!({})))
            .contains(&id)
            .then_some(())
    });
    wait_for("the drain", || {
        server
            .ok(None, &["trace", &id])
            .contains("drained")
            .then_some(())
    });
    id
}

fn warnings(answer: &Value) -> Vec<String> {
    answer["warnings"]
        .as_array()
        .map(|w| {
            w.iter()
                .map(|w| w["kind"].as_str().unwrap().to_owned())
                .collect()
        })
        .unwrap_or_default()
}

fn events(server: &Server) -> Vec<(String, String, String)> {
    let answer: Value =
        serde_json::from_str(&server.ok(None, &["gate", "events", "--json", "-n", "100"])).unwrap();
    let text = |e: &Value, f: &str| e[f].as_str().unwrap().to_owned();
    answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|e| (text(e, "persona"), text(e, "trigger"), text(e, "outcome")))
        .collect()
}

#[test]
fn tier1_without_recall_warns_beside_an_ack_that_is_otherwise_unchanged() {
    let server = Server::start();
    let (mut frank, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let id = assigned(
        &server,
        &mut frank,
        &mut texi,
        json!({"summary": "ratify docs/specs/spec-099.md"}),
    );
    let ack = texi.call(
        "prism_signal_ack",
        json!({"signal_id": id, "state": "model_acted"}),
    );
    assert_eq!(
        (ack["ok"].as_bool(), warnings(&ack)),
        (Some(true), vec!["missing_recall_on_task_start".into()])
    );
    assert_eq!(
        (
            ack["warnings"][0]["task_class"].as_str(),
            ack["warnings"][0]["assignment_id"].as_str(),
            ack["warnings"][0]["suggested_query"].as_str()
        ),
        (
            Some("tier1"),
            Some(id.as_str()),
            Some("ratify docs/specs/spec-099.md")
        )
    );
    assert!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty(),
        "once per assignment and surface"
    );
    assert_eq!(
        texi.refused("prism_signal_ack", json!({"signal_id": "deadbeef"}))["code"],
        "unknown_signal"
    );
    assert_eq!(
        frank.refused("prism_signal_ack", json!({"signal_id": id}))["code"],
        "not_yours"
    );
    let plain = assigned(
        &server,
        &mut frank,
        &mut texi,
        json!({"summary": "run the smoke test"}),
    );
    assert!(warnings(&texi.call("prism_signal_ack", json!({"signal_id": plain}))).is_empty());
    for odd in [
        json!({}),
        json!({"summary": "x", "tags": 7, "paths": {"a": [1]}}),
        json!({"body": "y".repeat(60_000)}),
    ] {
        let id = assigned(&server, &mut frank, &mut texi, odd);
        assert!(warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty());
    }
    assert_eq!(
        events(&server),
        [("Texi".into(), "ack".into(), "warned".into())]
    );
}

/// A mixed working day of three agents: the gate warns exactly where it should.
#[test]
fn a_golden_day_is_warned_only_where_work_began_without_recall() {
    let server = Server::start();
    let (mut lola, mut texi, mut donna) = (
        server.agent("Lola"),
        server.agent("Texi"),
        server.agent("Donna"),
    );
    // Donna recalls before she starts: no warning, a satisfied event with its reference.
    let governed = assigned(
        &server,
        &mut lola,
        &mut donna,
        json!({"summary": "change the rule", "tags": ["Governance"]}),
    );
    donna.call("semantic_recall", json!({"query": "governance rule"}));
    assert!(warnings(&donna.call("prism_signal_ack", json!({"signal_id": governed}))).is_empty());
    donna.call("prism_journal", json!({"body": "wrote it down"}));
    // Texi acknowledges (a warning), then recalls: satisfied, and her journal is no miss.
    let docs = assigned(
        &server,
        &mut lola,
        &mut texi,
        json!({"summary": "fix the typo in docs/guide.md"}),
    );
    assert_eq!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": docs}))).len(),
        1
    );
    texi.call("semantic_recall", json!({"query": "typo guide"}));
    texi.call("prism_journal", json!({"body": "fixed"}));
    // Ambient traffic: answers, statuses, notes, housekeeping todos. Nothing.
    lola.call("prism_signal", json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": {"summary": "docs/specs/ is moving"}}));
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "clean up old branches"})
        ))
        .is_empty()
    );
    texi.call("prism_note", json!({"text": "ratify nothing"}));
    // Lola adds a watched todo without recall, then decides: warned at the todo and at the output.
    let todo = lola.call(
        "prism_todo",
        json!({"action": "add", "title": "new panel", "paths": ["dashboard/src/x.tsx"]}),
    );
    assert_eq!(warnings(&todo), ["missing_recall_on_task_start"]);
    assert!(
        todo["warnings"][0]["assignment_id"]
            .as_str()
            .unwrap()
            .starts_with("todo:")
    );
    let decided = lola.call(
        "prism_decide",
        json!({"title": "t", "context": "c", "decision": "d"}),
    );
    assert!(
        warnings(&decided).is_empty(),
        "material output's own answer is unchanged"
    );
    lola.call(
        "prism_decide",
        json!({"title": "t2", "context": "c", "decision": "d"}),
    );
    // A recall within the minute covers the next todo.
    texi.call("semantic_recall", json!({"query": "colours"}));
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "new colour", "tags": ["ui"]})
        ))
        .is_empty()
    );
    let expect = |who: &str, trigger: &str, outcome: &str| {
        (who.to_owned(), trigger.to_owned(), outcome.to_owned())
    };
    assert_eq!(
        events(&server),
        [
            expect("Donna", "ack", "satisfied"),
            expect("Texi", "ack", "warned"),
            expect("Texi", "recall", "satisfied"),
            expect("Lola", "todo_add", "warned"),
            expect("Lola", "material_output", "warned"),
            expect("Texi", "todo_add", "satisfied"),
        ]
    );
    let db = rusqlite::Connection::open(server.home().path("prism.db")).unwrap();
    let count = |sql: &str| db.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!(
        count("select count(*) from edges where kind = 'REFERENCES_RECALL'"),
        4,
        "the last todo is covered by both of Texi's recalls"
    );
    assert_eq!(
        count(
            "select count(*) from pragma_table_info('recallgate_events') where name in ('query', 'text', 'payload', 'results')"
        ),
        0,
        "ids and counts only"
    );
    // The operator labels a warning, and the report shows it beside the target.
    let unlabelled: Value =
        serde_json::from_str(&server.ok(None, &["gate", "events", "--unlabelled", "--json"]))
            .unwrap();
    let event = unlabelled["events"][0]["id"].as_str().unwrap();
    assert_eq!(
        server
            .cli(Some("Texi"), &["gate", "label", &event[..8], "--right"])
            .status
            .code(),
        Some(2)
    );
    server.ok(None, &["gate", "label", &event[..8], "--wrong"]);
    let report: Value =
        serde_json::from_str(&server.ok(None, &["gate", "report", "--json"])).unwrap();
    assert_eq!(
        (
            report["precision"].as_f64(),
            report["labelled"].as_u64(),
            report["verdict"].as_str(),
            report["warned"].as_u64()
        ),
        (Some(0.0), Some(1), Some("too_few_labels"), Some(3))
    );
    assert!(server.ok(None, &["gate", "report"]).contains("target 0.7"));
    assert!(
        server
            .ok(
                None,
                &["gate", "explain", "ratify docs/specs/x.md", "--tags", "ui"]
            )
            .contains("tier1: path docs/specs/x.md with “ratify”")
    );
}

#[test]
fn the_gate_remembers_across_a_restart_and_its_modes_hold() {
    let mut server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let id = assigned(
        &server,
        &mut lola,
        &mut texi,
        json!({"summary": "edit CLAUDE.md"}),
    );
    assert_eq!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).len(),
        1
    );
    assert_eq!(events(&server).len(), 1);
    server.kill();
    server.resume();
    assert!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty(),
        "said before the restart"
    );
    texi.call("prism_journal", json!({"body": "edited"}));
    assert_eq!(
        events(&server).last().unwrap().1,
        "material_output",
        "the window was still open"
    );
    server.kill();
    server.resume_with(&[("PRISM_RECALLGATE_MODE", "off")]);
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "x", "tags": ["governance"]})
        ))
        .is_empty()
    );
    assert_eq!(events(&server).len(), 2, "off writes nothing");
    server.kill();
    server.resume_with(&[("PRISM_RECALLGATE_MODE", "enforce")]);
    assert_eq!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "y", "tags": ["governance"]})
        ))
        .len(),
        1,
        "enforce advises"
    );
    server.kill();
    let refused = server
        .command(None)
        .args(["serve", "--port", "0"])
        .env("PRISM_RECALLGATE_MODE", "strict")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("off or advisory"));
}
