//! `prism_wait`: a host without a bell waits for the next signal.

use crate::harness::{Server, ids, task, wait_for};
use serde_json::{Value, json};
use std::process::Stdio;

#[test]
fn a_wait_ends_with_the_signal_and_reads_it_as_pending_would() {
    let server = Server::start();
    let (mut texi, mut donna) = (server.agent("Texi"), server.agent("Donna"));
    let (_, answer) = texi.ask("prism_wait", json!({"timeout_s": 60}));
    // It waits beside the other verbs, and takes nothing before there is something.
    assert_eq!(ids(&texi.call("prism_status", json!({}))), [""; 0]);
    let sent = donna.call("prism_signal", task("Texi", "look"));
    let answer = answer.recv_timeout(crate::harness::PATIENCE).unwrap();
    let read = &answer["result"]["structuredContent"];
    assert_eq!(ids(read), [sent["signal_id"].as_str().unwrap()]);
    assert!(read["lease_id"].is_null());
    wait_for("the drain to be confirmed", || {
        let asked = json!({"signal_id": sent["signal_id"]});
        let trace = donna.call("prism_signal_trace", asked);
        (trace["receipt"]["state"] == "drained").then_some(())
    });
    // What waits already is read at once; the next wait has nothing of it.
    donna.call("prism_signal", task("Texi", "again"));
    assert_eq!(ids(&texi.call("prism_wait", json!({}))).len(), 1);
    let nothing = texi.call("prism_wait", json!({"timeout_s": 1}));
    assert_eq!(nothing["signals"], json!([]));
    for bad in [
        json!({"timeout_s": 0}),
        json!({"timeout_s": 61}),
        json!({"timeout_s": "x"}),
    ] {
        assert_eq!(texi.refused("prism_wait", bad)["code"], "invalid_request");
    }
}

#[test]
fn of_two_sessions_that_wait_one_gets_a_task_and_a_wait_that_is_taken_back_gets_none() {
    let server = Server::start();
    let (mut one, mut two) = (server.agent("Texi"), server.agent("Texi"));
    let (id, _never) = one.ask("prism_wait", json!({"timeout_s": 60}));
    one.notify("notifications/cancelled", json!({"requestId": id}));
    one.call("prism_status", json!({}));
    let (_, answer) = two.ask("prism_wait", json!({"timeout_s": 60}));
    server.ok(None, &["send", "Texi", "look", "--type", "TaskAssigned"]);
    let answer = answer.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(ids(&answer["result"]["structuredContent"]).len(), 1);
    assert!(ids(&one.call("prism_signals_pending", json!({}))).is_empty());
}

#[test]
fn the_command_waits_too_and_says_when_nothing_came() {
    let server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    let nothing = server.cli(Some("Texi"), &["wait", "--timeout", "1", "--json"]);
    assert_eq!(nothing.status.code(), Some(1));
    let waiting = server
        .command(Some("Texi"))
        .args(["wait", "--timeout", "60", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    server.ok(None, &["send", "Texi", "look", "--type", "TaskAssigned"]);
    let output = waiting.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ids(&read).len(), 1);
    assert!(
        server
            .ok(Some("Texi"), &["pending"])
            .contains("nothing waits")
    );
}
