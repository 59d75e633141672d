//! `prism hook --rewake`: a hook that waits beside an idle session of Claude Code and wakes it.

use crate::harness::{Agent, Server, states, task, wait_for};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::process::{Child, Stdio};

const INTERACTIVE: &str = "cli";

/// A session of Claude Code's without an inbox socket; more of its environment may say otherwise.
fn session(server: &Server, more: &[(&str, &str)]) -> Agent {
    let env = [
        ("PRISM_DOORBELL", "auto"),
        ("PRISM_AGENT_SURFACE", "claude_code"),
        ("CLAUDE_CODE_SESSION_ID", "s1"),
    ];
    let mut agent = Agent::launch(server, Some("Texi"), &[&env, more].concat());
    agent.call("prism_start", json!({}));
    agent
}

fn event(server: &Server, name: &str, more: Value) -> String {
    let mut event = json!({"session_id": "s1", "hook_event_name": name, "cwd": server.folder()});
    let more = more.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(more);
    event.to_string()
}

fn run(server: &Server, args: &[&str], entrypoint: &str, event: &str) -> Child {
    let mut hook = server.command(None);
    hook.arg("hook").args(args);
    hook.env("CLAUDE_CODE_ENTRYPOINT", entrypoint);
    hook.env("PRISM_HOOK_MS", "20000");
    hook.stdin(Stdio::piped());
    hook.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = hook.spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(event.as_bytes()));
    child
}

fn waiter(server: &Server, entrypoint: &str) -> Child {
    let stop = event(server, "Stop", json!({"stop_hook_active": false}));
    run(server, &["--rewake"], entrypoint, &stop)
}

/// Its exit code, and what it said to whoever reads it.
fn ended(mut waiter: Child) -> (Option<i32>, String) {
    let code = waiter.wait().unwrap().code();
    let mut said = String::new();
    waiter.stdout.unwrap().read_to_string(&mut said).unwrap();
    waiter.stderr.unwrap().read_to_string(&mut said).unwrap();
    (code, said)
}

fn silent() -> (Option<i32>, String) {
    (Some(0), String::new())
}

fn wait_for_state(asker: &mut Agent, sent: &Value, state: &str) {
    wait_for(state, || {
        let asked = json!({"signal_id": sent["signal_id"]});
        let trace = asker.call("prism_signal_trace", asked);
        states(&trace).contains(&state.to_owned()).then_some(())
    });
}

/// Waits until one waiter stands beside the session: then, and only then, a second one leaves.
fn one_waits(server: &Server) -> Child {
    let mut two = [waiter(server, INTERACTIVE), waiter(server, INTERACTIVE)];
    // Which of the two came first is theirs to settle.
    let left = wait_for("one of them to leave", || {
        two.iter_mut()
            .position(|one| one.try_wait().unwrap().is_some())
    });
    let [first, second] = two;
    let (gone, waits) = if left == 0 {
        (first, second)
    } else {
        (second, first)
    };
    assert_eq!(ended(gone), silent(), "one waits already");
    waits
}

#[test]
fn an_idle_session_without_an_inbox_is_woken_by_the_one_hook_that_waits() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let _texi = session(&server, &[]);
    let waits = one_waits(&server);
    let sent = donna.call("prism_signal", task("Texi", "a secret"));
    let sentence = prism_core::bell::sentence("Donna", "TaskAssigned");
    assert_eq!(ended(waits), (Some(2), format!("{sentence}\n")));
    wait_for_state(&mut donna, &sent, "rung");
    let trace = donna.call(
        "prism_signal_trace",
        json!({"signal_id": sent["signal_id"]}),
    );
    assert!(trace.to_string().contains("claude_rewake"), "{trace}");
    assert!(
        !states(&trace).contains(&"rendered".to_owned()),
        "nothing told yet that the host took it"
    );
    // The host tells of it in words of its own.
    let notified = format!(
        "<task-notification>\n<summary>Stop hook feedback</summary>\n</task-notification>\n\
         <system-reminder>\nStop hook blocking error from command \"Stop\": {sentence}\n\n</system-reminder>"
    );
    let prompt = event(&server, "UserPromptSubmit", json!({"prompt": notified}));
    assert_eq!(
        ended(run(&server, &[], INTERACTIVE, &prompt)),
        silent(),
        "no words of the operator's"
    );
    wait_for_state(&mut donna, &sent, "rendered");
}

#[test]
fn what_was_kept_for_a_hook_goes_to_the_waiter_that_comes() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let _texi = session(&server, &[]);
    // A hook was heard, so the bell is kept for the next one; the turn ends without it.
    let done = event(&server, "Notification", json!({"notification_type": "x"}));
    assert_eq!(ended(run(&server, &[], INTERACTIVE, &done)), silent());
    let sent = donna.call("prism_signal", task("Texi", "x"));
    wait_for_state(&mut donna, &sent, "bell_waits");
    let sentence = prism_core::bell::sentence("Donna", "TaskAssigned");
    let woken = ended(waiter(&server, INTERACTIVE));
    assert_eq!(woken, (Some(2), format!("{sentence}\n")));
    wait_for_state(&mut donna, &sent, "rung");
}

#[test]
fn nobody_waits_where_a_better_bell_is_or_nobody_sits() {
    let server = Server::start();
    // `claude -p` would not end before its hook.
    assert_eq!(ended(waiter(&server, "sdk-cli")), silent());
    let inbox = server.folder().join("inbox.sock");
    let inbox = inbox.to_string_lossy();
    for more in [
        ("CLAUDE_CODE_MESSAGING_SOCKET", inbox.as_ref()),
        ("PRISM_CLAUDE_CHANNEL", "1"),
        ("PRISM_DOORBELL", "hooks"),
    ] {
        let texi = session(&server, &[more]);
        assert_eq!(ended(waiter(&server, INTERACTIVE)), silent(), "{more:?}");
        assert_eq!(texi.close(), Some(0));
    }
}

#[test]
fn a_waiter_ends_with_its_session_and_with_its_shim() {
    let server = Server::start();
    let mut texi = session(&server, &[]);
    let waits = one_waits(&server);
    texi.call("prism_wrap", json!({"summary": "done"}));
    assert_eq!(ended(waits), silent());
    texi.call("prism_start", json!({}));
    let waits = one_waits(&server);
    texi.kill();
    assert_eq!(ended(waits), silent());
}
