//! The shim when things go wrong: sockets that break or fall silent, hosts that do not read or
//! leave, leases that are not confirmed, other projects' inboxes.

use crate::harness::{Agent, PID, Server, Sockets, Wire, ids, states, task, wait_for};
use prism_core::Identity;
use prism_core::api::{ServerFrame, close};
use serde_json::{Value, json};
use std::time::Duration;

/// A slow machine asks more often than one key may.
const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";
const OTHER: &str = "PID-OTHER";

fn count(server: &Server, identity: &str) -> Value {
    server
        .home()
        .read(&format!("sigcount-{identity}.json"))
        .map(|t| serde_json::from_str(&t).unwrap())
        .unwrap_or_default()
}

fn unread(server: &Server, identity: &str) -> u64 {
    count(server, identity)["unread"].as_u64().unwrap_or(0)
}

fn trace(asker: &mut Agent, sent: &Value) -> Value {
    let asked = json!({"signal_id": sent["signal_id"]});
    asker.call("prism_signal_trace", asked)
}

fn wait_for_state(asker: &mut Agent, sent: &Value, state: &str) {
    wait_for(state, || {
        states(&trace(asker, sent))
            .contains(&state.to_owned())
            .then_some(())
    });
}

/// Waits until a lease that nobody confirmed has run out.
fn wait_for_return(server: &Server, asker: &mut Agent, sent: &Value) {
    wait_for("the lease to run out", || {
        if states(&trace(asker, sent)).contains(&"lease_returned".to_owned()) {
            return Some(());
        }
        server.advance(Duration::from_secs(31));
        None
    });
}

/// An agent whose every byte goes through a wire of the test's.
fn agent_on(server: &Server, wire: &Wire, identity: &str) -> Agent {
    let minted = server.ok(None, &["key", "mint", identity, "--json"]);
    let minted: Value = serde_json::from_str(&minted).unwrap();
    let key = minted["key"].as_str().unwrap();
    let env = [("PRISM_URL", wire.url.as_str()), ("PRISM_API_KEY", key)];
    let mut agent = Agent::launch(server, Some(identity), &env);
    agent.started = agent.call("prism_start", json!({}));
    agent
}

/// Gives an identity a persona in another project.
fn enrol(server: &Server, identity: &str, pid: &str) {
    let identity = Identity::parse(identity).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let enrolled = server.operator();
    let enrolled = enrolled.ensure_persona(pid, &identity);
    runtime.block_on(enrolled).unwrap();
}

/// The sessions of an identity, as the operator sees them.
fn sessions(server: &Server, identity: &str) -> Vec<Value> {
    let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
    let mut sessions = status["sessions"].as_array().unwrap().clone();
    sessions.retain(|s| s["identity"] == identity);
    sessions
}

fn wait_connected(server: &Server, identity: &str, connected: bool) {
    wait_for("the stream", || {
        let sessions = sessions(server, identity);
        (sessions.first()?["connected"] == connected).then_some(())
    });
}

#[test]
fn another_projects_inbox_is_drained_for_good_and_the_own_one_left_alone() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    enrol(&server, "Donna", OTHER);
    enrol(&server, "Texi", OTHER);
    // The other inbox is far ahead of the own one.
    let mut last = Value::Null;
    for n in 0..5 {
        let mut there = task("Texi", &format!("there {n}"));
        there["pid"] = json!(OTHER);
        last = donna.call("prism_signal", there);
    }
    let here = donna.call("prism_signal", task("Texi", "here"));
    texi.bell();
    let read = texi.call("prism_signals_pending", json!({"pid": OTHER}));
    assert_eq!(ids(&read).len(), 5);
    let asked = json!({"signal_id": last["signal_id"], "pid": OTHER});
    wait_for("the drain there to be confirmed", || {
        let trace = donna.call("prism_signal_trace", asked.clone());
        states(&trace).contains(&"drained".to_owned()).then_some(())
    });
    wait_for("only the own one to be unread", || {
        (unread(&server, "Texi") == 1).then_some(())
    });
    assert!(!states(&trace(&mut donna, &here)).contains(&"drained".to_owned()));
    let again = texi.call("prism_signals_pending", json!({"pid": OTHER}));
    assert!(ids(&again).is_empty(), "{again}");
    // The own bell still stands for the own signal; a drain there is no drain here.
    donna.call("prism_signal", task("Texi", "here, too"));
    wait_for("the own inbox in ring and count", || {
        (unread(&server, "Texi") == 2).then_some(())
    });
    assert_eq!(texi.bells_so_far(), 0);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 2);
}

#[test]
fn verbs_about_the_session_stay_in_its_project_and_a_project_is_checked() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    enrol(&server, "Texi", OTHER);
    for (verb, mut arguments) in [
        ("prism_start", json!({})),
        ("prism_checkpoint", json!({"summary": "x"})),
        ("prism_wrap", json!({"summary": "x"})),
        ("prism_loopback_test", json!({})),
    ] {
        arguments["pid"] = json!(OTHER);
        assert_eq!(texi.refused(verb, arguments)["code"], "conflict", "{verb}");
    }
    for pid in ["../../healthz?", "a/b", ""] {
        let refused = texi.refused("prism_status", json!({"pid": pid}));
        assert_eq!(refused["code"], "invalid_request", "{pid}");
    }
    texi.call("prism_signals", json!({"pid": PID}));
    let again = texi.call("prism_start", json!({"pid": PID}));
    assert_eq!(again["session_id"], texi.started["session_id"]);
}

#[test]
fn after_a_wrap_an_agent_is_who_it_was_and_its_session_has_the_name_it_was_given() {
    let server = Server::start();
    let mut free = Agent::launch(&server, None, &[]);
    let named = json!({"identity": "Texi", "name": "the \u{1b}[31mring\n"});
    assert_eq!(free.call("prism_start", named)["name"], "the ring");
    assert_eq!(sessions(&server, "Texi")[0]["name"], "the ring");
    assert!(server.ok(None, &["status"]).contains("the ring"));
    assert!(server.ok(None, &["whois", "Texi"]).contains("the ring"));
    let kept = free.call("prism_start", json!({}));
    assert_eq!(kept["name"], "the ring", "a start without a name keeps it");
    free.call("prism_wrap", json!({"summary": "done"}));
    let again = free.call("prism_start", json!({}));
    assert_eq!(
        (&again["identity"], &again["name"]),
        (&json!("Texi"), &Value::Null)
    );
}

#[test]
fn a_host_that_does_not_read_has_not_got_its_signals() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    // More than any pipe holds.
    let mut sent = Vec::new();
    for n in 0..4 {
        let body = "z".repeat(60_000);
        let payload = json!({"summary": n.to_string(), "body": body});
        let request = json!({"to": "Texi", "signal_type": "TaskAssigned", "payload": payload});
        sent.push(donna.call("prism_signal", request));
    }
    texi.bell();
    texi.stop_reading();
    drop(texi.ask("prism_signals_pending", json!({})));
    wait_for("a full pipe", || {
        (texi.unread_bytes() > 60_000).then_some(())
    });
    wait_for_return(&server, &mut donna, &sent[3]);
    assert!(!states(&trace(&mut donna, &sent[3])).contains(&"drained".to_owned()));
    assert_eq!(unread(&server, "Texi"), 4);
    let mut next = server.agent("Texi");
    let read = ids(&next.call("prism_signals_pending", json!({})));
    assert_eq!(read.len(), 4);
}

#[test]
fn a_question_that_was_taken_back_confirms_nothing_whatever_is_asked_next() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    server.stop();
    let (id, _) = texi.ask("prism_signals_pending", json!({}));
    texi.notify("notifications/cancelled", json!({"requestId": id}));
    texi.request("ping", json!({}));
    server.go_on();
    wait_for_return(&server, &mut donna, &sent);
    // An answer to another question of that number is not the answer that was taken back.
    let local = json!({"name": "prism_signals", "arguments": {}});
    let again = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": local});
    texi.raw(&again.to_string());
    texi.request("ping", json!({}));
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
    wait_for_state(&mut donna, &sent, "drained");
}

#[test]
fn a_host_that_leaves_in_the_middle_of_a_question_is_not_waited_for() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    // It would be answered after three seconds.
    let waiting = json!({"drain_timeout_ms": 3_000, "timeout_ms": 3_000});
    let (_, answer) = texi.ask("prism_loopback_test", waiting);
    texi.bell();
    assert_eq!(texi.leave(), Some(0));
    assert!(
        answer.try_recv().is_err(),
        "the shim left before the answer"
    );
    assert!(sessions(&server, "Texi").is_empty(), "and said goodbye");
}

#[test]
fn a_send_without_an_answer_is_of_unknown_outcome_and_can_be_repeated() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    server.stop();
    let unknown = donna.refused("prism_signal", task("Texi", "once"));
    server.go_on();
    assert_eq!(unknown["code"], "outcome_unknown");
    let mut again = task("Texi", "once");
    again["idempotency_key"] = unknown["idempotency_key"].clone();
    assert!(again["idempotency_key"].is_string());
    let sent = donna.call("prism_signal", again);
    texi.bell();
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
}

#[test]
fn a_send_in_the_middle_of_a_restart_arrives_when_the_server_is_back() {
    let mut server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    server.terminate();
    let (_, answer) = donna.ask("prism_signal", task("Texi", "while you were away"));
    // A command at a terminal does not wait.
    let at_once = server.cli(None, &["send", "Texi", "hello"]);
    assert_eq!(at_once.status.code(), Some(2), "{at_once:?}");
    let said = String::from_utf8_lossy(&at_once.stderr).into_owned();
    assert!(said.contains("no prism server runs"), "{said}");
    assert!(answer.try_recv().is_err(), "the shim is still trying");
    server.resume();
    let answer = answer.recv_timeout(crate::harness::PATIENCE).unwrap();
    let sent = &answer["result"]["structuredContent"];
    assert!(sent["signal_id"].is_string(), "{sent}");
    texi.bell();
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
}

#[test]
fn a_command_whose_send_is_of_unknown_outcome_prints_the_key_to_repeat_it_with() {
    let server = Server::start();
    let _texi = server.agent("Texi");
    server.stop();
    let (human, json) = std::thread::scope(|both| {
        let human = both.spawn(|| server.cli(None, &["send", "Texi", "hello"]));
        let json = both.spawn(|| server.cli(None, &["send", "Texi", "hello", "--json"]));
        (human.join().unwrap(), json.join().unwrap())
    });
    server.go_on();
    assert_eq!(
        (human.status.code(), json.status.code()),
        (Some(2), Some(2))
    );
    let said = String::from_utf8(human.stderr).unwrap();
    assert!(said.contains("(idempotency_key "), "{said}");
    let error: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(error["error"]["code"], "outcome_unknown", "{error}");
    assert!(error["error"]["idempotency_key"].is_string(), "{error}");
}

#[test]
fn a_shim_whose_socket_broke_rings_for_what_its_sibling_recorded() {
    let server = Server::start_with(FAST);
    let wire = Wire::to(&server);
    let mut donna = server.agent("Donna");
    let sibling = server.agent("Texi");
    let texi = agent_on(&server, &wire, "Texi");
    donna.call("prism_signal", task("Texi", "before"));
    texi.bell();
    sibling.bell();
    wire.set(Sockets::Cut);
    // The bell of a minute ago stands no more.
    server.advance(Duration::from_secs(61));
    let sent = donna.call("prism_signal", task("Texi", "while it was away"));
    sibling.bell();
    wait_for("the sibling's record", || {
        (unread(&server, "Texi") == 2).then_some(())
    });
    wire.set(Sockets::Pass);
    texi.bell();
    let own = texi.started["session_id"].clone();
    wait_for("its own receipt", || {
        let trace = trace(&mut donna, &sent);
        let sessions = trace["receipt"]["sessions"].as_array()?.clone();
        let mine = sessions.iter().find(|s| s["session_id"] == own)?;
        (mine["received"].is_string() && mine["rung"].is_string()).then_some(())
    });
    assert_eq!(unread(&server, "Texi"), 2, "and it is recorded once");
}

#[test]
fn a_silent_socket_is_given_up_and_what_it_lost_is_rung_for() {
    let server = Server::start_with(FAST);
    let wire = Wire::to(&server);
    let mut donna = server.agent("Donna");
    let texi = agent_on(&server, &wire, "Texi");
    // What it hears after the clock has moved would be a sign of life: all is said before.
    let first = donna.call("prism_signal", task("Texi", "before the silence"));
    texi.bell();
    wait_for_state(&mut donna, &first, "rung");
    wire.set(Sockets::Freeze);
    let sent = donna.call("prism_signal", task("Texi", "into the void"));
    assert_eq!(sent["publish_path"], "pushed_to_ws");
    server.advance(Duration::from_secs(76));
    texi.bell();
    wait_for_state(&mut donna, &sent, "received");
}

#[test]
fn without_a_socket_the_session_lives_by_heartbeats_over_http() {
    let server = Server::start_with(FAST);
    let wire = Wire::to(&server);
    wire.set(Sockets::Cut);
    let texi = agent_on(&server, &wire, "Texi");
    assert_eq!(texi.started["stream"], "connecting");
    let seen = |server: &Server| sessions(server, "Texi")[0]["last_seen_at"].clone();
    for _ in 0..3 {
        let before = seen(&server);
        server.advance(Duration::from_secs(40));
        wait_for("a heartbeat", || (seen(&server) != before).then_some(()));
    }
    assert_eq!(sessions(&server, "Texi")[0]["state"], "live");
    assert_eq!(sessions(&server, "Texi")[0]["connected"], false);
}

#[test]
fn only_the_end_of_a_session_ends_it_and_a_server_that_says_not_now_is_asked_again() {
    let server = Server::start_with(FAST);
    let wire = Wire::to(&server);
    let mut texi = agent_on(&server, &wire, "Texi");
    for code in [close::TRY_AGAIN, close::SLOW, close::GOING_AWAY, 1011] {
        let before = wire.refused();
        wire.set(Sockets::Close(code));
        wait_for("two more tries", || {
            (wire.refused() > before + 1).then_some(())
        });
        wire.set(Sockets::Pass);
        wait_connected(&server, "Texi", true);
        texi.call("prism_status", json!({}));
    }
    wire.set(Sockets::Close(close::RELEASED));
    wait_for("the end of the session", || {
        let answer = texi.request(
            "tools/call",
            json!({"name": "prism_status", "arguments": {}}),
        );
        let error = &answer["result"]["structuredContent"]["error"]["code"];
        (error == "session_released").then_some(())
    });
}

#[test]
fn a_drain_that_was_never_confirmed_rings_again_for_whoever_comes_back() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    // Killed between the mark and the confirmation: read in the ring, waiting at the server.
    let killed = [("PRISM_FAILPOINTS", "shim.die_before_confirm")];
    let mut dying = Agent::launch(&server, Some("Texi"), &killed);
    dying.call("prism_start", json!({}));
    dying.bell();
    dying.call("prism_signals_pending", json!({}));
    wait_for("the mark", || (unread(&server, "Texi") == 0).then_some(()));
    drop(dying);
    texi.kill();
    server.advance(Duration::from_secs(31));
    wait_for_state(&mut donna, &sent, "lease_returned");
    let mut back = server.agent("Texi");
    back.bell();
    assert_eq!(unread(&server, "Texi"), 1);
    let read = ids(&back.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
    wait_for_state(&mut donna, &sent, "drained");
}

#[test]
fn a_lease_that_comes_back_rings_again_on_the_socket_that_stands() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    // Read by a sibling that died before it could confirm: nobody but the server knows.
    let killed = [("PRISM_FAILPOINTS", "shim.die_before_confirm")];
    let mut dying = Agent::launch(&server, Some("Texi"), &killed);
    dying.call("prism_start", json!({}));
    dying.call("prism_signals_pending", json!({}));
    wait_for("the mark", || (unread(&server, "Texi") == 0).then_some(()));
    drop(dying);
    server.advance(Duration::from_secs(31));
    wait_for_state(&mut donna, &sent, "lease_returned");
    texi.bell();
    wait_for("unread again", || {
        (unread(&server, "Texi") == 1).then_some(())
    });
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
}

#[test]
fn what_was_drained_before_the_backlog_was_whole_is_neither_unread_nor_rung_for() {
    let server = Server::start_with(FAST);
    let wire = Wire::to(&server);
    let mut donna = server.agent("Donna");
    let texi = agent_on(&server, &wire, "Texi");
    wire.set(Sockets::Cut);
    let sent = donna.call("prism_signal", task("Texi", "a sibling has it"));
    let gone: uuid::Uuid = sent["signal_id"].as_str().unwrap().parse().unwrap();
    let signal = |signal_id: uuid::Uuid, kind: &str, seq: i64| ServerFrame::Signal {
        envelope: serde_json::from_value(json!({
            "signal_id": signal_id, "signal_type": kind, "from_identity": "Donna",
            "to_identity": "Texi", "seq": seq, "pid": PID,
        }))
        .unwrap(),
        drained: false,
    };
    let hello = ServerFrame::Hello {
        project_id: uuid::Uuid::nil(),
        pid: PID.into(),
        server_version: "1".into(),
        head_seq: 1,
        head_id: None,
        pending: vec![gone],
        restarted: false,
        copy: None,
    };
    let drained = ServerFrame::Drained {
        signal_ids: vec![gone],
        by_session: None,
    };
    wire.play(vec![
        hello,
        signal(gone, "TaskAssigned", 1),
        drained,
        ServerFrame::Live,
        signal(uuid::Uuid::from_u128(2), "Question", 2),
    ]);
    assert!(
        texi.bell().contains("Question"),
        "the first bell is for the next signal"
    );
    assert_eq!(unread(&server, "Texi"), 1);
}

#[test]
fn after_a_restore_what_waits_again_is_unread_again_and_new_signals_ring() {
    let mut server = Server::start_with(FAST);
    if !server.is_embedded() {
        return println!("the copy of a file is the embedded engine's");
    }
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "in the copy"));
    texi.bell();
    server.kill();
    let copies = ["prism.db", "prism.db-wal"].map(|name| (name, server.home().path(name)));
    let copies = copies.map(|(name, path)| (name, std::fs::read(path).ok()));
    server.resume();
    wait_connected(&server, "Texi", true);
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
    wait_for_state(&mut donna, &sent, "drained");
    for n in 0..3 {
        donna.call(
            "prism_signal",
            task("Texi", &format!("lost by the restore {n}")),
        );
    }
    texi.bell();
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 3);
    wait_for("everything read", || {
        (unread(&server, "Texi") == 0).then_some(())
    });
    server.kill();
    for (name, copy) in copies {
        server.home().remove(name);
        if let Some(copy) = copy {
            server.home().write(name, &copy).unwrap();
        }
    }
    server.home().remove("prism.db-shm");
    server.resume();
    texi.bell();
    wait_for("it waits again", || {
        (unread(&server, "Texi") == 1).then_some(())
    });
    let read = ids(&texi.call("prism_signals_pending", json!({})));
    assert_eq!(read, [sent["signal_id"].as_str().unwrap()]);
    donna.call("prism_signal", task("Texi", "after the restore"));
    texi.bell();
    assert_eq!(unread(&server, "Texi"), 1);
}

#[test]
fn a_restored_inbox_that_has_caught_up_with_a_shim_rings_for_what_it_has_new() {
    let mut server = Server::start_with(FAST);
    if !server.is_embedded() {
        return println!("the copy of a file is the embedded engine's");
    }
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let send = |server: &Server, text: &str| {
        let sent = server.ok(None, &["send", "Texi", text, "--json"]);
        let sent: Value = serde_json::from_str(&sent).unwrap();
        sent["signal_id"].as_str().unwrap().to_owned()
    };
    let sent = donna.call("prism_signal", task("Texi", "in the copy"));
    texi.bell();
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    wait_for_state(&mut donna, &sent, "drained");
    server.terminate();
    let copy = std::fs::read(server.home().path("prism.db")).unwrap();
    server.resume();
    wait_connected(&server, "Texi", true);
    for n in 0..4 {
        send(&server, &format!("lost by the restore {n}"));
    }
    wait_for("four", || (unread(&server, "Texi") == 4).then_some(()));
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 4);
    wait_for("everything read", || {
        (unread(&server, "Texi") == 0).then_some(())
    });
    let shim = rustix::process::Pid::from_raw(texi.os_pid() as i32).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::STOP).unwrap();
    server.kill();
    for name in ["prism.db", "prism.db-wal", "prism.db-shm"] {
        server.home().remove(name);
    }
    server.home().write("prism.db", &copy).unwrap();
    server.resume();
    let sent: Vec<String> = (0..4).map(|n| send(&server, &format!("new {n}"))).collect();
    texi.bells_so_far();
    rustix::process::kill_process(shim, rustix::process::Signal::CONT).unwrap();
    texi.bell();
    wait_for("four that wait", || {
        (unread(&server, "Texi") == 4).then_some(())
    });
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))), sent);
    // And from here on as ever.
    send(&server, "after the restore");
    texi.bell();
}

#[test]
fn probes_never_silence_waiting_tasks() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    for n in 0..3 {
        donna.call("prism_signal", task("Texi", &format!("{n}")));
    }
    wait_for("three", || (unread(&server, "Texi") == 3).then_some(()));
    for _ in 0..26 {
        let probe = texi.call("prism_loopback_test", json!({"timeout_ms": 20_000}));
        assert_eq!(probe["outcome"], "complete", "{probe}");
    }
    assert_eq!(unread(&server, "Texi"), 3);
}

#[test]
fn a_host_that_does_not_read_holds_up_neither_the_stream_nor_the_ring() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    // One answer too large for the pipe stands in it, and every bell waits behind.
    let body = "z".repeat(60_000);
    for _ in 0..4 {
        let payload = json!({"summary": "large", "body": body});
        let request = json!({"to": "Texi", "signal_type": "TaskAssigned", "payload": payload});
        donna.call("prism_signal", request);
    }
    texi.bell();
    texi.stop_reading();
    drop(texi.ask("prism_signals_pending", json!({})));
    wait_for("a full pipe", || {
        (texi.unread_bytes() > 60_000).then_some(())
    });
    server.advance(Duration::from_secs(61));
    let sent: Vec<Value> = (0..3)
        .map(|n| donna.call("prism_signal", task("Texi", &n.to_string())))
        .collect();
    for sent in &sent {
        wait_for_state(&mut donna, sent, "received");
    }
    let rung = states(&trace(&mut donna, &sent[0])).contains(&"rung".to_owned());
    assert!(!rung, "a bell that nobody took did not ring");
}

/// A refusal as a server writes it.
fn refusal(code: &str, retry_after_ms: Option<u64>) -> Value {
    let mut problem = json!({"code": code, "message": "not now", "hint": "later"});
    if let Some(ms) = retry_after_ms {
        problem["retry_after_ms"] = ms.into();
    }
    problem
}

#[test]
fn a_server_without_room_for_a_session_is_asked_again_until_it_has() {
    let server = Server::start();
    let wire = Wire::to(&server);
    let minted = server.ok(None, &["key", "mint", "Texi", "--json"]);
    let minted: Value = serde_json::from_str(&minted).unwrap();
    let key = minted["key"].as_str().unwrap();
    wire.refuse(&[
        refusal("too_many_sessions", None),
        refusal("too_many_requests", Some(1)),
        refusal("too_many_connections", None),
    ]);
    let env = [("PRISM_URL", wire.url.as_str()), ("PRISM_API_KEY", key)];
    let _texi = Agent::launch(&server, Some("Texi"), &env);
    wait_for("a session without any verb", || {
        (!sessions(&server, "Texi").is_empty()).then_some(())
    });
    assert_eq!(wire.refusals_left(), 0);
}

#[test]
fn an_echo_that_a_busy_server_refuses_is_sent_again() {
    let server = Server::start();
    let wire = Wire::to(&server);
    let texi = agent_on(&server, &wire, "Texi");
    let session = texi.started["session_id"].as_str().unwrap();
    wait_connected(&server, "Texi", true);
    wire.refuse(&[
        refusal("too_many_requests", Some(1)),
        refusal("too_many_connections", None),
    ]);
    let probe = ["--json", "loopback-test", "--session", session];
    let proof = server.ok(None, &[&probe[..], &["--timeout", "20000"]].concat());
    let proof: Value = serde_json::from_str(&proof).unwrap();
    assert!(proof["echo"]["observed_at"].is_string(), "{proof}");
    assert_eq!(wire.refusals_left(), 0);
}

#[test]
fn a_send_that_a_busy_server_refuses_is_sent_again_and_a_full_inbox_is_final() {
    let server = Server::start();
    let wire = Wire::to(&server);
    let mut texi = server.agent("Texi");
    let mut donna = agent_on(&server, &wire, "Donna");
    wire.refuse(&[
        refusal("too_many_requests", Some(1)),
        refusal("too_many_connections", None),
    ]);
    let sent = donna.call("prism_signal", task("Texi", "once"));
    assert_eq!(wire.refusals_left(), 0);
    let read = texi.call("prism_signals_pending", json!({}));
    assert_eq!(json!(ids(&read)), json!([sent["signal_id"]]));
    // What no waiting helps against within the time of a send is reported as it was said.
    for (code, retry_after_ms) in [("inbox_full", None), ("too_many_requests", Some(60_000))] {
        wire.refuse(&[refusal(code, retry_after_ms), refusal("internal", None)]);
        let refused = donna.refused("prism_signal", task("Texi", "not now"));
        assert_eq!(refused["code"], code);
        assert_eq!(wire.refusals_left(), 1, "{code} is asked once");
    }
    wire.refuse(&[]);
    // The first one may come once more where its end was not said yet.
    let left = texi.call("prism_signals_pending", json!({}));
    assert!(ids(&left).iter().all(|id| *id == sent["signal_id"]));
}

#[test]
fn a_send_that_may_be_stored_is_never_told_as_not_stored() {
    let server = Server::start();
    let wire = Wire::to(&server);
    let mut texi = server.agent("Texi");
    let mut donna = agent_on(&server, &wire, "Donna");
    let with = |status: u64, code: &str, retry_after_ms| {
        let mut problem = refusal(code, retry_after_ms);
        problem["status"] = status.into();
        problem
    };
    // A second attempt that stored nothing says nothing of the first one.
    wire.refuse(&[
        with(504, "outcome_unknown", Some(1)),
        with(503, "storage_unavailable", Some(1)),
        with(500, "internal", Some(1)),
    ]);
    let sent = donna.call("prism_signal", task("Texi", "once"));
    assert_eq!(wire.refusals_left(), 0);
    let read = texi.call("prism_signals_pending", json!({}));
    assert_eq!(json!(ids(&read)), json!([sent["signal_id"]]));
    // Where no answer comes in time, the outcome stays unknown, and the key says how to ask again.
    wire.refuse(&[
        with(504, "outcome_unknown", Some(1)),
        with(503, "storage_unavailable", Some(60_000)),
    ]);
    let refused = donna.refused("prism_signal", task("Texi", "perhaps"));
    assert_eq!(refused["code"], "outcome_unknown", "{refused}");
    assert!(refused["idempotency_key"].is_string(), "{refused}");
    // What was surely not stored is told as that.
    wire.refuse(&[
        with(503, "storage_unavailable", None),
        refusal("internal", None),
    ]);
    let refused = donna.refused("prism_signal", task("Texi", "surely not"));
    assert_eq!(refused["code"], "storage_unavailable", "{refused}");
    assert_eq!(wire.refusals_left(), 1);
}

#[test]
fn what_a_killed_shim_left_behind_is_ignored_and_swept_by_the_next() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let files = || server.home().list("shims", "", ".json");
    wait_for("its file", || (files().len() == 1).then_some(()));
    texi.kill();
    assert_eq!(files().len(), 1, "a killed shim tidies nothing up");
    assert!(prism::shim::files::shims(&server.home()).0.is_empty());
    let left = files();
    let _ada = server.agent("Ada");
    wait_for("only the living one's file", || {
        let files = files();
        (files.len() == 1 && files != left).then_some(())
    });
}

#[test]
fn looking_at_a_session_from_the_command_line_is_not_its_first_verb() {
    let server = Server::start();
    let mut texi = Agent::launch(&server, Some("Texi"), &[]);
    wait_connected(&server, "Texi", true);
    let seen = |server: &Server| {
        let session = sessions(server, "Texi").remove(0);
        (session["state"].clone(), session["last_verb_at"].clone())
    };
    let before = seen(&server);
    assert_eq!(before.0, "idle");
    let shown = server.ok(None, &["start", "--as", "Texi"]);
    assert!(shown.contains("Texi"), "{shown}");
    let shown = server.ok(None, &["start", "--as", "Texi", "--json"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["identity"], "Texi", "{shown}");
    assert_eq!(seen(&server), before);
    assert_eq!(start_deltas(&server, "Texi"), 0);
    texi.call("prism_status", json!({}));
    assert_eq!(start_deltas(&server, "Texi"), 1);
}

fn start_deltas(server: &Server, identity: &str) -> i64 {
    let database = server.rows();
    let count = "select count(*) from session_deltas where delta_kind = 'start' and identity = ?1";
    database.query_row(count, [identity], |r| r.get(0)).unwrap()
}

#[test]
fn whoever_is_killed_after_the_first_verb_joins_once() {
    let mut server = Server::start();
    let mut ada = server.agent("Ada");
    let mut texi = server.agent("Texi");
    texi.call("prism_status", serde_json::json!({}));
    server.kill();
    server.resume();
    wait_connected(&server, "Texi", true);
    texi.call("prism_status", serde_json::json!({}));
    assert_eq!(start_deltas(&server, "Texi"), 1);
    drop(ada.call("prism_status", serde_json::json!({})));
}

#[test]
fn whether_somebody_is_at_a_host_is_a_fact_of_its_session() {
    let mut server = Server::start();
    let _texi = Agent::launch(
        &server,
        Some("Texi"),
        &[
            ("PRISM_AGENT_SURFACE", "codex"),
            ("PRISM_CODEX_SOCKET", "/nowhere/s"),
        ],
    );
    let mut cedar = Agent::launch(&server, Some("Cedar"), &[("PRISM_AGENT_SURFACE", "codex")]);
    let mut birch = Agent::launch(
        &server,
        Some("Birch"),
        &[("PRISM_AGENT_SURFACE", "claude_code")],
    );
    let attention = |server: &Server, who: &str| {
        let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
        let sessions = status["sessions"].as_array().unwrap().iter();
        let mut known = sessions.filter(|s| s["identity"] == who);
        known.next().map(|s| s["attention"].clone())
    };
    let wait_until = |server: &Server, who: &str, is: Value| {
        wait_for(who, || {
            (attention(server, who) == Some(is.clone())).then_some(())
        });
    };
    // Started by the launcher, whose server ends with the terminal; by whom the second one was, the
    // process above it does not say; the third goes with its host.
    wait_until(&server, "Texi", json!("attended"));
    wait_until(&server, "Cedar", json!("unknown"));
    wait_until(&server, "Birch", json!("attended"));
    let shown = server.ok(None, &["whois", "Cedar"]);
    assert!(shown.contains("idle, attention unknown"), "{shown}");
    let shown = server.ok(None, &["whois", "Texi"]);
    assert!(!shown.contains("attention"), "{shown}");
    server.kill();
    server.resume();
    assert_eq!(attention(&server, "Texi"), Some(json!("attended")));
    // Of a session that is not there, nothing is said.
    birch.kill();
    cedar.kill();
    wait_for("both gone", || {
        server.advance(Duration::from_secs(91));
        let gone = |who| attention(&server, who) == Some(Value::Null);
        (gone("Birch") && gone("Cedar")).then_some(())
    });
}
