//! What nobody reads: one rung up, then the operator, each step once, and silence after the drain.

use crate::bell_story::{app_server, call_from, in_codex, thread, thread_id};
use crate::harness::{Agent, Server, states, wait_for};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

fn signal(to: &str, category: &str, summary: &str) -> Value {
    json!({"to": to, "signal_type": "Question", "category": category,
        "payload": {"summary": summary}})
}

/// The steps of a signal's escalation so far.
fn steps(asker: &mut Agent, sent: &Value) -> Vec<String> {
    let asked = json!({"signal_id": sent["signal_id"]});
    let trace = asker.call("prism_signal_trace", asked);
    let events = trace["timeline"].as_array().unwrap().iter();
    let steps = events.filter(|e| e["state"] == "escalated");
    steps
        .map(|e| e["detail"].as_str().unwrap().to_owned())
        .collect()
}

fn wait_for_state(asker: &mut Agent, sent: &Value, state: &str) {
    let asked = json!({"signal_id": sent["signal_id"]});
    wait_for(state, || {
        let trace = asker.call("prism_signal_trace", asked.clone());
        states(&trace).contains(&state.to_owned()).then_some(())
    });
}

fn wait_for_steps(asker: &mut Agent, sent: &Value, expected: &[&str]) {
    wait_for(&format!("{expected:?}"), || {
        (steps(asker, sent) == expected).then_some(())
    });
}

/// A slow machine asks more often than one key may.
const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";
const RUNG: &str = "to the next rung";
const OPERATOR: &str = "to the operator";

/// The operator's own status line.
fn line(server: &Server) -> String {
    let statusline = ["statusline", "--color", "never"];
    server.ok(Some("frank"), &statusline).trim().to_owned()
}

/// A command that notes each run with its arguments.
fn notify_command(folder: &std::path::Path) -> (PathBuf, PathBuf) {
    let (program, noted) = (folder.join("tell me"), folder.join("told"));
    let script = format!(
        "#!/bin/sh\n[ $# -eq 3 ] && printf '%s|%s|%s\\n' \"$1\" \"$2\" \"$3\" >> '{}'\n",
        noted.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    (program, noted)
}

/// Restarts a server with a command to run for the operator.
fn with_notify(server: &mut Server) -> PathBuf {
    let (program, noted) = notify_command(server.folder());
    server.kill();
    let config = server.home().read("config.toml").unwrap();
    let config = config.split("[escalation]").next().unwrap().to_owned();
    let notify = format!(
        "[escalation]\nnotify = [{:?}, \"$(id) -x\"]\n",
        program.display().to_string()
    );
    let home = server.home();
    home.write("config.toml", format!("{config}{notify}").as_bytes())
        .unwrap();
    server.resume();
    noted
}

fn notified(noted: &PathBuf) -> Vec<String> {
    let text = std::fs::read_to_string(noted).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_blocker_climbs_after_30_seconds_and_an_ask_after_two_minutes_then_the_operator_sees_it() {
    let mut server = Server::start_with(FAST);
    let noted = with_notify(&mut server);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let blocker = donna.call(
        "prism_signal",
        signal("Texi", "BLOCKER", "the build is red"),
    );
    texi.bell();
    let ask = donna.call("prism_signal", signal("Texi", "ASK", "which port?"));
    let task = donna.call("prism_signal", signal("Texi", "TASK", "whenever"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &blocker, &[RUNG]);
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &blocker, &[RUNG, OPERATOR]);
    assert!(steps(&mut donna, &ask).is_empty());
    wait_for("the operator's line", || {
        let line = line(&server);
        (line.contains("🔔 1 BLOCKER") && line.contains("Donna: for Texi: the build is red"))
            .then_some(())
    });
    let told = wait_for("the command", || {
        Some(notified(&noted)).filter(|t| !t.is_empty())
    });
    assert_eq!(
        told,
        ["$(id) -x|BLOCKER from Donna waits for Texi|Donna: the build is red"]
    );
    server.advance(Duration::from_secs(60));
    wait_for_steps(&mut donna, &ask, &[RUNG]);
    server.advance(Duration::from_secs(121));
    wait_for_steps(&mut donna, &ask, &[RUNG, OPERATOR]);
    wait_for("both on the line", || {
        line(&server).contains("🔔 2 ASK:1 BLOCKER:1").then_some(())
    });
    wait_for("the command again", || {
        (notified(&noted).len() == 2).then_some(())
    });
    // Silent after the drain, and nothing ever repeats.
    texi.call("prism_signals_pending", json!({}));
    wait_for("an empty line", || {
        (!line(&server).contains('🔔')).then_some(())
    });
    server.advance(Duration::from_secs(24 * 3600));
    let later = donna.call("prism_signal", signal("frank", "BLOCKER", "later"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &later, &[OPERATOR]);
    assert_eq!(steps(&mut donna, &blocker).len(), 2);
    assert_eq!(steps(&mut donna, &ask).len(), 2);
    assert!(steps(&mut donna, &task).is_empty(), "a TASK waits");
    wait_for("the third", || (notified(&noted).len() == 3).then_some(()));
    assert_eq!(texi.bells_so_far(), 0, "a pinned bell never climbs");
}

#[test]
fn where_nobody_is_there_it_goes_straight_to_the_operator() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    assert_eq!(server.agent("Texi").close(), Some(0));
    let sent = donna.call("prism_signal", signal("Texi", "ASK", "anybody?"));
    server.advance(Duration::from_secs(121));
    wait_for_steps(&mut donna, &sent, &[OPERATOR]);
    wait_for("the operator's line", || {
        line(&server)
            .contains("Donna: for Texi: anybody?")
            .then_some(())
    });
    // Taken back: there is nothing to see any more.
    donna.call(
        "prism_signal_recall",
        json!({"signal_id": sent["signal_id"]}),
    );
    wait_for("an empty line", || {
        (!line(&server).contains('🔔')).then_some(())
    });
}

#[test]
fn a_restart_neither_repeats_a_step_nor_forgets_one() {
    let mut server = Server::start_with(FAST);
    let noted = with_notify(&mut server);
    let env = [("PRISM_DOORBELL", "auto"), ("PRISM_AGENT_SURFACE", "other")];
    let mut donna = server.agent("Donna");
    let mut texi = Agent::launch(&server, Some("Texi"), &env);
    texi.call("prism_start", json!({}));
    let sent = donna.call("prism_signal", signal("Texi", "BLOCKER", "x"));
    wait_for_state(&mut donna, &sent, "received");
    // It becomes due while no server runs; its recipient comes back first.
    server.kill();
    server.advance(Duration::from_secs(31));
    server.resume();
    wait_for_steps(&mut donna, &sent, &[RUNG]);
    wait_for_state(&mut donna, &sent, "no_rung_left");
    server.kill();
    server.resume();
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &sent, &[RUNG, OPERATOR]);
    wait_for("the command", || {
        (notified(&noted).len() == 1).then_some(())
    });
    for _ in 0..2 {
        server.kill();
        server.home().remove("sigcount-frank.json");
        server.home().remove("signals-frank.jsonl");
        server.resume();
        wait_for("the line, made again from rows", || {
            line(&server).contains("🔔 1 BLOCKER").then_some(())
        });
    }
    // Another one goes all its way: by then anything that repeats would have.
    let next = donna.call("prism_signal", signal("frank", "BLOCKER", "y"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &next, &[OPERATOR]);
    wait_for("its command", || {
        (notified(&noted).len() == 2).then_some(())
    });
    assert_eq!(steps(&mut donna, &sent), [RUNG, OPERATOR]);
}

#[test]
fn times_are_settings_and_zero_is_never() {
    let server = Server::start_with(&format!("{FAST}[escalation]\nask_s = 5\nblocker_s = 0\n"));
    let mut donna = server.agent("Donna");
    assert_eq!(server.agent("Texi").close(), Some(0));
    let blocker = donna.call("prism_signal", signal("Texi", "BLOCKER", "x"));
    let ask = donna.call("prism_signal", signal("Texi", "ASK", "y"));
    server.advance(Duration::from_secs(6));
    wait_for_steps(&mut donna, &ask, &[OPERATOR]);
    server.advance(Duration::from_secs(3600));
    let last = donna.call("prism_signal", signal("Texi", "ASK", "z"));
    server.advance(Duration::from_secs(6));
    wait_for_steps(&mut donna, &last, &[OPERATOR]);
    assert!(steps(&mut donna, &blocker).is_empty());
}

#[test]
fn what_was_read_does_not_climb() {
    let server = Server::start_with(FAST);
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let read = donna.call("prism_signal", signal("Texi", "BLOCKER", "x"));
    texi.bell();
    texi.call("prism_signals_pending", json!({}));
    wait_for_state(&mut donna, &read, "drained");
    let unread = donna.call("prism_signal", signal("Texi", "BLOCKER", "y"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &unread, &[RUNG]);
    assert!(steps(&mut donna, &read).is_empty());
}

#[test]
fn a_host_that_could_not_be_rung_at_first_is_rung_once_when_its_time_is_up() {
    let server = Server::start_with(FAST);
    let own = thread_id(0, 1);
    let mut donna = server.agent("Donna");
    let mut texi = in_codex(&server, "Texi", &[("PATH", "/nowhere")]);
    call_from(&mut texi, &own, "t");
    let sent = donna.call("prism_signal", signal("Texi", "BLOCKER", "x"));
    wait_for_state(&mut donna, &sent, "bell_failed");
    let codex = app_server(&server, vec![thread(&server, &own)]);
    server.advance(Duration::from_secs(31));
    codex.wait_for("turn/start", 1);
    for state in ["rung", "rung_again", "rendered"] {
        wait_for_state(&mut donna, &sent, state);
    }
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &sent, &[RUNG, OPERATOR]);
    server.advance(Duration::from_secs(3600));
    // Whatever would ring again has rung by the time that another one's bell is due.
    let next = donna.call("prism_signal", signal("Texi", "BLOCKER", "y"));
    wait_for_state(&mut donna, &next, "rung");
    assert_eq!(codex.asked("turn/start").len(), 2);
}

#[test]
fn a_pinned_bell_says_that_it_does_not_climb() {
    let server = Server::start_with(FAST);
    let (mut donna, texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", signal("Texi", "BLOCKER", "x"));
    texi.bell();
    server.advance(Duration::from_secs(31));
    wait_for_state(&mut donna, &sent, "no_rung_left");
    assert_eq!(texi.bells_so_far(), 0);
}

#[test]
fn a_command_that_cannot_be_started_is_tried_again_and_then_run_once() {
    let mut server = Server::start_with(FAST);
    let noted = with_notify(&mut server);
    let program = server.folder().join("tell me");
    let away = server.folder().join("away");
    std::fs::rename(&program, &away).unwrap();
    let mut donna = server.agent("Donna");
    let sent = donna.call(
        "prism_signal",
        signal("frank", "BLOCKER", "the disk is full"),
    );
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &sent, &[OPERATOR]);
    wait_for("the line", || {
        line(&server).contains("🔔 1 BLOCKER").then_some(())
    });
    // Another round has begun when another one got there: the command was tried by then.
    let next = donna.call("prism_signal", signal("frank", "BLOCKER", "still"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &next, &[OPERATOR]);
    assert!(notified(&noted).is_empty());
    std::fs::rename(&away, &program).unwrap();
    server.advance(Duration::from_secs(61));
    wait_for("the command", || {
        (notified(&noted).len() == 1).then_some(())
    });
    assert!(notified(&noted)[0].contains("(and 1 more)"));
    server.advance(Duration::from_secs(120));
    let third = donna.call("prism_signal", signal("frank", "BLOCKER", "again"));
    server.advance(Duration::from_secs(31));
    wait_for_steps(&mut donna, &third, &[OPERATOR]);
    wait_for("the command for the third alone", || {
        (notified(&noted).len() == 2).then_some(())
    });
    assert!(!notified(&noted)[1].contains("more"));
}

#[test]
fn a_clock_that_is_set_back_puts_no_escalation_off() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    let sent = donna.call(
        "prism_signal",
        signal("frank", "BLOCKER", "the build is red"),
    );
    server.set_back(Duration::from_secs(3600));
    wait_for_steps(&mut donna, &sent, &[OPERATOR]);
}
