//! The shim as a host meets it: handshake, tools, releases, bad input.

use crate::harness::{Agent, Server, ids, task, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn the_handshake_keeps_bells_possible_and_the_tool_list_is_small() {
    let server = Server::start();
    let mut donna = Agent::launch(&server, Some("Donna"), &[]);
    assert_eq!(donna.init["result"]["protocolVersion"], "2025-11-25");
    assert!(donna.init["result"]["capabilities"]["experimental"]["claude/channel"].is_object());
    let discover = donna.request(
        "server/discover",
        json!({"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),
    );
    assert_eq!(discover["error"]["code"], -32601);
    let tools = donna.request("tools/list", json!({}))["result"]["tools"]
        .as_array()
        .unwrap()
        .clone();
    assert!(
        serde_json::to_string(&tools).unwrap().len() / 4 < 5000,
        "tokens, at four characters each"
    );
    for tool in &tools {
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool}");
        assert!(
            tool["outputSchema"].is_null() && tool["inputSchema"]["properties"]["pid"].is_null(),
            "{tool}"
        );
    }
    let listing: Vec<String> = tools
        .iter()
        .map(|t| {
            format!(
                "{} {}",
                t["name"].as_str().unwrap(),
                t["inputSchema"]["properties"]
                    .as_object()
                    .map(|p| p.keys().cloned().collect::<Vec<_>>().join(" "))
                    .unwrap_or_default()
            )
        })
        .collect();
    insta::assert_snapshot!(listing.join("\n"));
    let mut core = Agent::launch(&server, Some("Lola"), &[("PRISM_TOOLS", "core")]);
    assert!(
        core.request("tools/list", json!({}))["result"]["tools"]
            .as_array()
            .unwrap()
            .len()
            <= 8
    );
}

#[test]
fn a_fixed_identity_cannot_be_argued_with_and_a_free_one_is_named_at_start() {
    let server = Server::start();
    let mut donna = Agent::launch(&server, Some("Donna"), &[]);
    assert_eq!(
        donna.refused("prism_start", json!({"identity": "Eve"}))["code"],
        "identity_fixed"
    );
    assert_eq!(
        donna.call("prism_start", json!({"identity": "donna"}))["identity"],
        "Donna"
    );
    let mut free = Agent::launch(&server, None, &[]);
    assert_eq!(free.call("prism_status", json!({}))["pid"], "PID-TEST");
    assert_eq!(
        free.call("prism_start", json!({"identity": "Texi"}))["identity"],
        "Texi"
    );
    donna.call("prism_signal", task("texi", "x"));
    free.bell();
    assert_eq!(
        donna.refused("prism_signal", task("Bot", "x"))["code"],
        "no_inbox"
    );
}

#[test]
fn many_hosts_may_meet_a_new_project_at_once() {
    let server = Server::start();
    let agents: Vec<_> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..6)
            .map(|n| {
                scope.spawn({
                    let server = &server;
                    move || server.agent(if n % 2 == 0 { "Texi" } else { "Donna" })
                })
            })
            .collect();
        starting
            .into_iter()
            .map(|agent| agent.join().unwrap())
            .collect()
    });
    assert_eq!(agents.len(), 6);
    let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
    assert_eq!(
        (
            status["sessions"].as_array().unwrap().len(),
            status["personas"].as_array().unwrap().len()
        ),
        (6, 3)
    );
}

#[test]
fn a_session_released_by_force_is_over_until_the_next_start() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let session = texi.started["session_id"].as_str().unwrap().to_owned();
    assert!(
        server
            .home()
            .path(&format!("shims/{session}.json"))
            .exists()
    );
    for (quoted, says) in [("deadbeef", "prism status"), ("abc", "8 hex digits")] {
        let refused = server.cli(None, &["session", "release", quoted]);
        assert_eq!(refused.status.code(), Some(2));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(said.contains(says), "{said}");
    }
    // The first digits, as `prism status` shows them, are enough.
    server.ok(None, &["session", "release", &session[..8]]);
    wait_for("the refusal", || {
        let answer = texi.request(
            "tools/call",
            json!({"name": "prism_status", "arguments": {}}),
        );
        (answer["result"]["structuredContent"]["error"]["code"] == "session_released").then_some(())
    });
    assert!(texi.call("prism_signals", json!({})).is_object());
    assert!(
        !server
            .home()
            .path(&format!("shims/{session}.json"))
            .exists()
    );
    let again = texi.call("prism_start", json!({}));
    assert_ne!(again["session_id"].as_str(), Some(session.as_str()));
    texi.call("prism_status", json!({}));
}

#[test]
fn a_host_that_leaves_releases_its_session_and_its_file() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let file = format!(
        "shims/{}.json",
        texi.started["session_id"].as_str().unwrap()
    );
    assert!(server.home().path(&file).exists());
    assert_eq!(texi.close(), Some(0));
    assert!(!server.home().path(&file).exists());
    let whois: Value =
        serde_json::from_str(&server.ok(None, &["whois", "Texi", "--json"])).unwrap();
    assert_eq!(
        (
            whois["recipient_state"].as_str(),
            whois["sessions"].as_array().map(Vec::len)
        ),
        (Some("offline"), Some(0))
    );
}

#[test]
fn without_a_server_every_verb_says_how_to_start_it_and_it_comes_back_by_itself() {
    let mut server = Server::start();
    let mut texi = server.agent("Texi");
    server.kill();
    let refused = texi.refused("prism_status", json!({}));
    assert_eq!(refused["code"], "server_unreachable");
    assert!(refused["hint"].as_str().unwrap().contains("prism serve"));
    assert!(texi.call("prism_signals", json!({}))["count"].is_object());
    server.resume();
    assert_eq!(texi.call("prism_status", json!({}))["pid"], "PID-TEST");
    let donna = server.agent("Donna");
    wait_for("the stream to be back", || {
        let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
        status["sessions"]
            .as_array()?
            .iter()
            .find(|s| s["identity"] == "Texi" && s["connected"] == true)
            .map(|_| ())
    });
    let mut donna = donna;
    donna.call("prism_signal", task("Texi", "welcome back"));
    texi.bell();
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
}

#[test]
fn broken_json_rpc_is_answered_or_skipped_and_never_ends_the_shim() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    texi.raw("{");
    texi.raw("not json at all");
    texi.raw(&format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":900,\"method\":\"tools/call\",\"params\":{{\"name\":\"prism_note\",\"arguments\":{{\"x\":\"{}\"}}}}}}",
        "y".repeat(5 * 1024 * 1024)
    ));
    let unknown = texi.request(
        "tools/call",
        json!({"name": "prism_signalz", "arguments": {}}),
    );
    assert!(
        unknown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("prism_signal"),
        "{unknown}"
    );
    assert_eq!(
        texi.refused("prism_signal", json!({"to": "Donna"}))["code"],
        "invalid_request"
    );
    assert_eq!(
        texi.refused("prism_signals", json!({"action": "all"}))["code"],
        "invalid_request"
    );
    assert_eq!(
        texi.refused("prism_whois", json!({"identity": "Txi"}))["code"],
        "unknown_identity"
    );
    assert_eq!(
        texi.refused("prism_status", json!({"pid": "PID-NONE"}))["code"],
        "unknown_project"
    );
    assert_eq!(
        texi.call("prism_status", json!({"pid": "PID-TEST"}))["pid"],
        "PID-TEST"
    );
}

#[test]
fn a_host_that_dies_before_it_has_the_answer_loses_nothing() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    // The host ends with its question on the way: the server leases to nobody.
    server.stop();
    drop(texi.ask("prism_signals_pending", json!({})));
    texi.kill();
    server.go_on();
    let mut again = server.agent("Texi");
    let read = wait_for("the signal to come back", || {
        let read = ids(&again.call("prism_signals_pending", json!({})));
        if read.is_empty() {
            server.advance(Duration::from_secs(31));
        }
        (!read.is_empty()).then_some(read)
    });
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
}

#[test]
fn a_read_only_home_costs_the_history_and_not_the_signal() {
    // Root may write anywhere, so the home's folder is replaced by a file instead.
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    std::fs::create_dir(server.home().path("signals-Texi.jsonl")).unwrap();
    donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
}

#[test]
fn what_a_host_gets_wrong_is_answered_with_what_to_do() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let refused = texi.refused("prism_start", json!({"identity": 5}));
    assert!(
        refused["message"].as_str().unwrap().contains("`identity`"),
        "{refused}"
    );
    let call = json!({"name": "prism_status", "arguments": ["Texi"]});
    let answer = texi.request("tools/call", call);
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.contains("must be an object"), "{answer}");
    let body = "z".repeat(5 * 1024 * 1024);
    let call = json!({"name": "prism_note", "arguments": {"text": body}});
    let answer = texi.request("tools/call", call);
    let said = answer["error"]["message"].as_str().unwrap();
    assert!(said.contains("send less at once"), "{answer}");
    texi.call("prism_status", json!({}));
}
