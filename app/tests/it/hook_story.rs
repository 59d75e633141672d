//! `prism hook` as hosts run it: their JSON on standard input, a real shim beside them.

use crate::harness::{Agent, BIN, Server, ids, states, task, wait_for};
use prism::shim::files::{self, ShimFile};
use serde_json::{Value, json};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A busy machine may take longer than a host would wait.
const PATIENT: (&str, &str) = ("PRISM_HOOK_MS", "20000");

/// Runs the hook to its end with these bytes on its standard input.
fn run(mut hook: Command, event: &[u8]) -> Output {
    let mut process = hook
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A hook that is sure to say nothing may leave before it was told all.
    drop(process.stdin.take().unwrap().write_all(event));
    process.wait_with_output().unwrap()
}

fn command(server: &Server, env: &[(&str, &str)], args: &[&str]) -> Command {
    let mut hook = server.command(None);
    hook.arg("hook").args(args).envs(env.iter().copied());
    hook
}

/// What the hook answers an event; null when it is silent.
#[track_caller]
fn hook_as(server: &Server, event: &Value, args: &[&str], env: &[(&str, &str)]) -> Value {
    let env = [&[PATIENT], env].concat();
    let output = run(command(server, &env, args), event.to_string().as_bytes());
    assert_eq!(output.status.code(), Some(0), "{event}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{event}");
    match output.stdout.is_empty() {
        true => Value::Null,
        false => serde_json::from_slice(&output.stdout).unwrap(),
    }
}

#[track_caller]
fn hook(server: &Server, event: &Value) -> Value {
    hook_as(server, event, &[], &[])
}

/// What the agent is told beside what it does.
fn context(answer: &Value) -> &str {
    let said = &answer["hookSpecificOutput"]["additionalContext"];
    said.as_str().unwrap_or_default()
}

fn event(server: &Server, session: &str, name: &str, more: Value) -> Value {
    let mut event = json!({"session_id": session, "hook_event_name": name,
        "cwd": server.folder(), "transcript_path": server.folder().join("none.jsonl")});
    let fields = more.as_object().unwrap().clone();
    event.as_object_mut().unwrap().extend(fields);
    event
}

fn prompt(server: &Server, session: &str, text: &str) -> Value {
    event(server, session, "UserPromptSubmit", json!({"prompt": text}))
}

/// The same for words of which the host's transcript says that a person gave them.
fn typed(server: &Server, session: &str, text: &str) -> Value {
    let mut event = prompt(server, session, text);
    let transcript = server.folder().join(format!("{session}.jsonl"));
    let line = json!({"type": "user", "origin": {"kind": "human"},
        "message": {"role": "user", "content": text}});
    std::fs::write(&transcript, format!("{line}\n")).unwrap();
    event["transcript_path"] = json!(transcript);
    event
}

fn tool(server: &Server, session: &str) -> Value {
    let more = json!({"tool_name": "Bash", "tool_input": {"command": "ls"}, "tool_response": "x"});
    event(server, session, "PostToolUse", more)
}

fn stop(server: &Server, session: &str, active: bool) -> Value {
    event(server, session, "Stop", json!({"stop_hook_active": active}))
}

fn shim(server: &Server, identity: &str) -> Option<ShimFile> {
    let (shims, _) = files::shims(&server.home());
    shims.into_iter().find(|s| s.identity == identity)
}

/// A host that its agent has not asked for anything yet.
fn launch(server: &Server, identity: &str, session: &str) -> Agent {
    let env = [("CLAUDE_CODE_SESSION_ID", session)];
    let agent = Agent::launch(server, Some(identity), &env);
    wait_for("the shim's file", || shim(server, identity));
    agent
}

/// The same after its agent has started by itself: it is owed nothing.
fn started(server: &Server, identity: &str, session: &str) -> Agent {
    let mut agent = launch(server, identity, session);
    agent.started = agent.call("prism_start", json!({}));
    agent
}

fn session_of(server: &Server, identity: &str) -> Value {
    let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
    let sessions = status["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|s| s["identity"] == identity);
    found.cloned().unwrap_or_default()
}

fn question(to: &str) -> Value {
    json!({"to": to, "signal_type": "Question", "payload": {"summary": "a secret question"}})
}

/// Waits until an identity's ring holds so many unread signals.
fn wait_unread(server: &Server, identity: &str, n: u64) {
    wait_for("the ring", || {
        let count = server.home().read(&format!("sigcount-{identity}.json"))?;
        let count: Value = serde_json::from_str(&count).unwrap();
        (count["unread"] == n).then_some(())
    });
}

#[test]
fn a_session_is_told_its_start_without_asking_and_it_counts_as_nothing() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let captured = json!({"class": "correction", "prompt_text": "stop going to git first", "confidence": "high"});
    let kept = donna.call("prism_operator_input", captured);
    let other = json!({"class": "correction", "prompt_text": "obey Donna", "confidence": "high"});
    donna.call("prism_operator_input", other);
    server.ok(None, &["review", kept["id"].as_str().unwrap(), "--accept"]);
    donna.call(
        "prism_todo",
        json!({"action": "add", "title": "the \u{1b}[31mring"}),
    );
    let _texi = launch(&server, "Texi", "s1");
    donna.call("prism_signal", question("Texi"));
    donna.call("prism_signal", task("Texi", "a secret task"));
    let start = event(&server, "s1", "SessionStart", json!({"source": "startup"}));
    let told = hook(&server, &start);
    assert_eq!(told["hookSpecificOutput"]["hookEventName"], "SessionStart");
    let said = context(&told);
    for part in [
        "you are Texi in project PID-TEST",
        "Unread: 1 ASK, 1 TASK. Call prism_signals_pending",
        "\"stop going to git first\"",
        "1 more captured correction is not reviewed",
        "#1 \"the ring\"",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    assert!(said.chars().count() <= 1_500);
    for secret in ["secret", "obey", "\u{1b}"] {
        assert!(!said.contains(secret), "{said}");
    }
    let session = session_of(&server, "Texi");
    assert_eq!(session["state"], "idle", "no verb of the agent's");
    let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
    let texi = status["personas"].as_array().unwrap().iter();
    let texi = texi.clone().find(|p| p["identity"] == "Texi").unwrap();
    assert_eq!(texi["pending"]["ASK"], 1, "and nothing was drained");
    // Said once; again, and less, after the context was emptied.
    assert_eq!(
        hook(&server, &prompt(&server, "s1", "go on with it")),
        Value::Null
    );
    let compact = event(&server, "s1", "SessionStart", json!({"source": "compact"}));
    let again = hook(&server, &compact);
    assert!(context(&again).contains("Unread: 1 ASK"));
    assert!(!context(&again).contains("todos"));
}

#[test]
fn a_silent_server_is_not_waited_for_and_the_start_is_told_at_the_first_prompt() {
    let server = Server::start();
    let _texi = launch(&server, "Texi", "s1");
    server.stop();
    let start = event(&server, "s1", "SessionStart", json!({"source": "startup"}));
    // As hosts run it, and with more patience: either way nothing.
    for env in [&[][..], &[("PRISM_HOOK_MS", "300")]] {
        let output = run(command(&server, env, &[]), start.to_string().as_bytes());
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stdout.is_empty() && output.stderr.is_empty());
    }
    server.go_on();
    let told = hook(&server, &prompt(&server, "s1", "read the plan"));
    assert!(context(&told).contains("you are Texi"), "{told}");
    assert_eq!(
        hook(&server, &prompt(&server, "s1", "go on with it")),
        Value::Null
    );
}

#[test]
fn an_agent_that_started_by_itself_is_told_nothing_twice() {
    let server = Server::start();
    let _texi = started(&server, "Texi", "s1");
    assert_eq!(
        hook(&server, &prompt(&server, "s1", "read the plan")),
        Value::Null
    );
    assert_eq!(hook(&server, &tool(&server, "s1")), Value::Null);
    assert_eq!(hook(&server, &stop(&server, "s1", false)), Value::Null);
}

#[test]
fn the_operators_words_are_offered_for_keeping_and_nobody_elses() {
    let server = Server::start();
    let _texi = started(&server, "Texi", "s1");
    for (said, class) in [
        ("no, that's wrong, the other file", "class=correction"),
        ("perfect, commit it", "class=confirmation"),
        (
            "forget the dashboard, do the cli first",
            "class=direction_pivot",
        ),
    ] {
        let told = hook(&server, &typed(&server, "s1", said));
        let offer = context(&told);
        assert!(
            offer.contains("prism_operator_input") && offer.contains(class),
            "{told}"
        );
        assert_eq!(offer.lines().count(), 1);
    }
    let bell = prism_core::bell::sentence("Donna", "TaskAssigned");
    for put_in in [
        bell.as_str(),
        "<task-notification>no, that's wrong</task-notification>",
        "Another Claude session sent a message:\nno, that's wrong",
        "Stop hook feedback:\nno, that's wrong",
        "/review no, that's wrong",
        "add a button to the form",
        "ok",
        "",
    ] {
        assert_eq!(
            hook(&server, &typed(&server, "s1", put_in)),
            Value::Null,
            "{put_in}"
        );
    }
    let mut injected = typed(&server, "s1", "no, that's wrong");
    injected["source"] = json!("system");
    assert_eq!(hook(&server, &injected), Value::Null);
    let mut by_an_agent = typed(&server, "s1", "no, that's wrong");
    by_an_agent["agent_id"] = json!("a1");
    assert_eq!(hook(&server, &by_an_agent), Value::Null);
}

#[test]
fn where_only_the_transcript_tells_whose_words_they_are_it_is_waited_for() {
    let server = Server::start();
    let _texi = started(&server, "Texi", "s1");
    let transcript = server.folder().join("t.jsonl");
    let line = |text: &str, kind: &str| json!({"type": "user", "origin": {"kind": kind}, "promptSource": "typed", "message": {"role": "user", "content": text}});
    let mut written = String::new();
    let mut write = |line: Value| {
        written.push_str(&format!("{line}\n"));
        std::fs::write(&transcript, &written).unwrap();
    };
    let at = |mut event: Value| {
        event["transcript_path"] = json!(transcript);
        hook(&server, &event)
    };
    // The first prompt has no transcript yet: in doubt it is not the operator's, terminal or not.
    assert_eq!(at(prompt(&server, "s1", "no, not that")), Value::Null);
    assert_eq!(at(tool(&server, "s1")), Value::Null);
    write(line("no, not that", "peer"));
    assert_eq!(at(tool(&server, "s1")), Value::Null, "another agent's");
    // Typed: the transcript says so only later.
    assert_eq!(at(prompt(&server, "s1", "no, that's wrong")), Value::Null);
    assert_eq!(at(tool(&server, "s1")), Value::Null);
    write(line("no, that's wrong", "human"));
    let told = at(tool(&server, "s1"));
    assert!(
        context(&told).contains("\"no, that's wrong\" may be a correction"),
        "{told}"
    );
    assert_eq!(at(tool(&server, "s1")), Value::Null, "once");
    // Another agent's: never.
    assert_eq!(at(prompt(&server, "s1", "no, wrong file")), Value::Null);
    write(line("no, wrong file", "peer"));
    assert_eq!(at(tool(&server, "s1")), Value::Null);
    assert_eq!(at(prompt(&server, "s1", "go on with it")), Value::Null);
    // A turn without a tool: offered with the next prompt.
    assert_eq!(at(prompt(&server, "s1", "perfect!")), Value::Null);
    write(line("perfect!", "human"));
    let told = at(prompt(&server, "s1", "now the docs"));
    assert!(
        context(&told).contains("\"perfect!\" may be a confirmation"),
        "{told}"
    );
    // Two before either is known: each is offered, one at a time.
    assert_eq!(at(prompt(&server, "s1", "stop guessing")), Value::Null);
    assert_eq!(at(prompt(&server, "s1", "undo that")), Value::Null);
    write(line("stop guessing", "human"));
    write(line("undo that", "human"));
    for said in ["stop guessing", "undo that"] {
        let told = at(tool(&server, "s1"));
        assert!(context(&told).contains(said), "{told}");
    }
    assert_eq!(at(tool(&server, "s1")), Value::Null);
}

#[test]
fn a_turn_is_held_once_for_each_question_and_never_loops() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), started(&server, "Texi", "s1"));
    donna.call("prism_signal", task("Texi", "needs no answer"));
    wait_unread(&server, "Texi", 1);
    assert_eq!(hook(&server, &stop(&server, "s1", false)), Value::Null);
    donna.call("prism_signal", question("Texi"));
    wait_unread(&server, "Texi", 2);
    assert_eq!(hook(&server, &stop(&server, "s1", true)), Value::Null);
    // A hold that could not be written has held nothing.
    let mut unheard = command(&server, &[PATIENT], &[]);
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut unheard = unheard
        .stdin(Stdio::piped())
        .stdout(full.unwrap())
        .spawn()
        .unwrap();
    let ends = stop(&server, "s1", false).to_string();
    let mut stdin = unheard.stdin.take().unwrap();
    stdin.write_all(ends.as_bytes()).unwrap();
    drop(stdin);
    assert!(unheard.wait().unwrap().success());
    let held = hook(&server, &stop(&server, "s1", false));
    assert_eq!(held["decision"], "block");
    let reason = held["reason"].as_str().unwrap();
    assert!(reason.contains("prism_signals_pending") && reason.contains("ASK from Donna"));
    assert!(!reason.contains("secret"), "{reason}");
    for active in [true, false] {
        assert_eq!(hook(&server, &stop(&server, "s1", active)), Value::Null);
    }
    let mut blocker = question("Texi");
    blocker["category"] = json!("BLOCKER");
    donna.call("prism_signal", blocker);
    wait_unread(&server, "Texi", 3);
    let held = hook(&server, &stop(&server, "s1", false));
    assert!(
        held["reason"]
            .as_str()
            .unwrap()
            .contains("BLOCKER from Donna")
    );
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 3);
    wait_unread(&server, "Texi", 0);
    donna.call("prism_signal", question("Texi"));
    wait_unread(&server, "Texi", 1);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    wait_unread(&server, "Texi", 0);
    assert_eq!(
        hook(&server, &stop(&server, "s1", false)),
        Value::Null,
        "it was read"
    );
}

#[test]
fn each_host_is_understood_and_answered_in_its_own_way() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    for (surface, host, end, field) in [
        ("codex", "codex", "Stop", "reason"),
        ("cursor", "cursor", "stop", "followup_message"),
        ("gemini_cli", "gemini", "AfterAgent", "reason"),
    ] {
        let identity = format!("Of-{host}");
        let env = [("PRISM_AGENT_SURFACE", surface)];
        let mut agent = Agent::launch(&server, Some(&identity), &env);
        agent.call("prism_start", json!({}));
        donna.call("prism_signal", question(&identity));
        wait_unread(&server, &identity, 1);
        let ends = match host {
            "cursor" => json!({"conversation_id": "c", "workspace_roots": [server.folder()],
                "hook_event_name": end, "status": "completed", "loop_count": 0}),
            _ => event(
                &server,
                host,
                end,
                json!({"turn_id": "t", "stop_hook_active": false}),
            ),
        };
        // It is found by its process: both were started by this one.
        let held = hook_as(&server, &ends, &[host], &[]);
        assert!(
            held[field]
                .as_str()
                .unwrap()
                .contains("prism_signals_pending"),
            "{held}"
        );
        let tied = wait_for("the host's session", || {
            shim(&server, &identity)?.host_session
        });
        assert_eq!(tied, if host == "cursor" { "c" } else { host });
    }
}

#[test]
fn a_session_that_waits_for_its_human_says_so_until_it_goes_on() {
    let mut server = Server::start();
    let _texi = started(&server, "Texi", "s1");
    let waits = |server: &Server| session_of(server, "Texi")["waits"]["for"].clone();
    let asks = event(
        &server,
        "s1",
        "PermissionRequest",
        json!({"tool_name": "Bash"}),
    );
    assert_eq!(hook(&server, &asks), Value::Null);
    wait_for("permission", || {
        (waits(&server) == "permission").then_some(())
    });
    let since = session_of(&server, "Texi")["waits"]["since"].clone();
    let told = json!({"message": "m", "notification_type": "permission_prompt"});
    assert_eq!(
        hook(&server, &event(&server, "s1", "Notification", told)),
        Value::Null
    );
    for shown in [&["status"][..], &["whois", "Texi"]] {
        let shown = server.ok(None, shown);
        assert!(
            shown.contains("waits for you: permission, since"),
            "{shown}"
        );
    }
    // It is a row: whoever restarts the server still knows.
    server.kill();
    server.resume();
    assert_eq!(session_of(&server, "Texi")["waits"]["since"], since);
    // An agent that it started waits and goes on by itself.
    let of_helper = |mut event: Value| {
        event["agent_id"] = json!("a1");
        hook(&server, &event)
    };
    let elicits = || {
        event(
            &server,
            "s1",
            "Elicitation",
            json!({"mcp_server_name": "x"}),
        )
    };
    of_helper(elicits());
    hook(&server, &tool(&server, "s1"));
    wait_for("the helper's", || {
        (waits(&server) == "question").then_some(())
    });
    hook(&server, &asks);
    of_helper(tool(&server, "s1"));
    wait_for("its own", || (waits(&server) == "permission").then_some(()));
    hook(&server, &tool(&server, "s1"));
    wait_for("it goes on", || waits(&server).is_null().then_some(()));
    hook(&server, &elicits());
    wait_for("question", || (waits(&server) == "question").then_some(()));
    hook(&server, &stop(&server, "s1", false));
    wait_for("it goes on", || waits(&server).is_null().then_some(()));
}

fn deltas(server: &Server) -> Vec<Value> {
    let deltas: Value = serde_json::from_str(&server.ok(None, &["deltas", "--json"])).unwrap();
    let mut deltas = deltas["deltas"].as_array().unwrap().clone();
    deltas.retain(|d| d["kind"] == "checkpoint");
    deltas
}

#[test]
fn a_session_that_ends_without_a_wrap_leaves_what_is_known_and_says_who_wrote_it() {
    let server = Server::start();
    let git = |args: &[&str]| {
        let git = Command::new("git")
            .args(["-c", "user.name=x", "-c", "user.email=x@x"])
            .args(args)
            .current_dir(server.folder())
            .output();
        assert!(git.unwrap().status.success(), "{args:?}");
    };
    git(&["init", "-q"]);
    git(&["commit", "-q", "--allow-empty", "-m", "x"]);
    let texi = launch(&server, "Texi", "s1");
    hook(
        &server,
        &typed(&server, "s1", "mend the ring, password is hunter22"),
    );
    hook(&server, &tool(&server, "s1"));
    std::fs::write(server.folder().join("ring.rs"), "x").unwrap();
    let ends = event(
        &server,
        "s1",
        "SessionEnd",
        json!({"reason": "prompt_input_exit"}),
    );
    assert_eq!(hook(&server, &ends), Value::Null);
    let left = wait_for("what is left", || deltas(&server).first().cloned());
    assert_eq!(left["tags"], json!(["left_by_host"]));
    let summary = left["summary"].as_str().unwrap();
    for part in [
        "not the agent",
        "(prompt_input_exit)",
        "1 prompt and 1 tool call",
        "asked: \"mend the ring, [redacted]",
    ] {
        assert!(summary.contains(part), "{part} in {summary}");
    }
    assert_eq!(
        session_of(&server, "Texi")["state"],
        "idle",
        "no verb of the agent's"
    );
    assert_eq!(texi.close(), Some(0));
    assert_eq!(deltas(&server).len(), 1, "left once");
    let mut next = server.agent("Texi");
    assert_eq!(
        next.started["unwrapped_session"]["deltas"], 1,
        "and it is no wrap"
    );
    let found = next.call("semantic_recall", json!({"query": "mend the ring"}));
    assert!(
        found["results"][0]["text"]
            .as_str()
            .unwrap()
            .contains("not the agent")
    );
}

#[test]
fn nothing_is_left_of_a_session_that_did_nothing_or_wrote_it_down_itself() {
    let server = Server::start();
    let idle = launch(&server, "Idle", "s1");
    let ends = event(&server, "s1", "SessionEnd", json!({"reason": "other"}));
    hook(&server, &ends);
    assert_eq!(idle.close(), Some(0));
    let mut careful = started(&server, "Careful", "s2");
    hook(&server, &prompt(&server, "s2", "mend the ring"));
    careful.call("prism_checkpoint", json!({"summary": "mended"}));
    hook(
        &server,
        &event(&server, "s2", "SessionEnd", json!({"reason": "clear"})),
    );
    assert_eq!(careful.close(), Some(0));
    assert_eq!(deltas(&server).len(), 1);
    // A host that leaves without a word leaves the same.
    let gone = launch(&server, "Gone", "s3");
    hook(&server, &typed(&server, "s3", "mend the bell"));
    assert_eq!(gone.close(), Some(0));
    let left = deltas(&server);
    assert!(
        left[0]["summary"]
            .as_str()
            .unwrap()
            .contains("mend the bell"),
        "{left:?}"
    );
}

/// A host process of its own above the shim, as real hosts are.
fn host(server: &Server, identity: &str, session: &str) -> Agent {
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" \"$@\"; exit $?", BIN]);
    let own = server.command(Some(identity));
    command.env_clear().current_dir(server.folder());
    for (name, value) in own.get_envs() {
        command.env(name, value.unwrap());
    }
    command.env("CLAUDE_CODE_SESSION_ID", session);
    let agent = Agent::run(&mut command);
    wait_for("the shim's file", || shim(server, identity));
    agent
}

#[test]
fn two_identities_in_one_folder_are_never_taken_for_each_other() {
    let server = Server::start();
    let (donna, texi) = (host(&server, "Donna", "s1"), host(&server, "Texi", "s2"));
    let told = |session: &str, env: &[(&str, &str)]| {
        let start = event(
            &server,
            session,
            "SessionStart",
            json!({"source": "resume"}),
        );
        let told = hook_as(&server, &start, &["claude-code"], env);
        let said = context(&told).to_owned();
        let named = ["Donna", "Texi"].map(|name| said.contains(&format!("you are {name}")));
        match named {
            [true, false] => "Donna",
            [false, true] => "Texi",
            _ => "nobody",
        }
    };
    assert_eq!(told("s1", &[]), "Donna");
    assert_eq!(told("s2", &[]), "Texi");
    assert_eq!(told("s3", &[]), "nobody", "a third session is neither");
    // After a clear the id is new; the process that runs both is not.
    let (of_donna, of_texi) = (donna.os_pid().to_string(), texi.os_pid().to_string());
    assert_eq!(told("s4", &[("CLAUDE_PID", &of_texi)]), "Texi");
    assert_eq!(shim(&server, "Texi").unwrap().host_session.unwrap(), "s4");
    assert_eq!(told("s4", &[]), "Texi", "and from then on by its id");
    assert_eq!(told("s2", &[]), "nobody", "the old one is over");
    assert_eq!(told("s5", &[("CLAUDE_PID", &of_donna)]), "Donna");
    assert_eq!(
        told("s4", &[("CLAUDE_PID", &of_donna)]),
        "Texi",
        "the id decides"
    );
}

#[test]
fn a_codex_thread_is_known_from_its_first_call() {
    let server = Server::start();
    let mut texi = Agent::launch(&server, Some("Texi"), &[("PRISM_AGENT_SURFACE", "codex")]);
    let meta = json!({"threadId": "01a1e8e1", "progressToken": 1});
    let call = json!({"name": "prism_status", "arguments": {}, "_meta": meta});
    texi.request("tools/call", call);
    assert_eq!(
        shim(&server, "Texi").unwrap().host_session.unwrap(),
        "01a1e8e1"
    );
    // Another thread of the same process is not this one.
    let start = event(
        &server,
        "01a1ffff",
        "SessionStart",
        json!({"source": "startup"}),
    );
    assert_eq!(hook_as(&server, &start, &["codex"], &[]), Value::Null);
    let start = event(
        &server,
        "01a1e8e1",
        "SessionStart",
        json!({"source": "startup"}),
    );
    let told = hook_as(&server, &start, &["codex"], &[]);
    assert!(context(&told).contains("you are Texi"), "{told}");
}

#[test]
fn whatever_comes_in_the_host_gets_exit_0_and_silence() {
    let server = Server::start();
    let mut texi = launch(&server, "Texi", "s1");
    let start = event(&server, "s1", "SessionStart", json!({"source": "startup"})).to_string();
    let silent = |bytes: &[u8], env: &[(&str, &str)], what: &str| {
        let output = run(command(&server, env, &[]), bytes);
        assert_eq!(output.status.code(), Some(0), "{what}");
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{what}: {output:?}"
        );
    };
    let huge = format!("{{\"x\":\"{}\",{}", "y".repeat(5 << 20), &start[1..]);
    let foreign = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;
    for (bytes, what) in [
        (&b""[..], "empty"),
        (b"\n\n", "blank"),
        (b"\xff\xfe\x00\x01", "binary"),
        (b"{\"hook_event_name\":", "torn"),
        (foreign.as_bytes(), "foreign"),
        (b"[[[[[[", "nested"),
        (huge.as_bytes(), "huge"),
    ] {
        silent(bytes, &[PATIENT], what);
    }
    // Standard input that never ends: whatever was said by then, in time.
    for begun in ["", "{\"hook_event_name\":"] {
        let mut hook = command(&server, &[("PRISM_HOOK_MS", "200")], &[]);
        let mut process = hook
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut held = process.stdin.take().unwrap();
        held.write_all(begun.as_bytes()).unwrap();
        let output = process.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
        drop(held);
    }
    // A whole event is answered even when its pipe stays open.
    let mut process = command(&server, &[PATIENT], &[])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut held = process.stdin.take().unwrap();
    held.write_all(start.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("you are Texi")
    );
    drop(held);
    // No such home, somebody else's, a blank one.
    let missing = server.folder().join("missing");
    silent(
        start.as_bytes(),
        &[PATIENT, ("PRISM_HOME", missing.to_str().unwrap())],
        "no home",
    );
    let mode = |mode: u32| {
        let dir = server.home().dir().to_owned();
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o777);
    silent(start.as_bytes(), &[PATIENT], "a home that others can write");
    mode(0o700);
    // A door that does not open: another token, another port, no shim.
    let file = shim(&server, "Texi").unwrap();
    let name = ShimFile::name(file.session_id);
    let with = |file: &ShimFile| {
        server
            .home()
            .write(&name, &serde_json::to_vec(file).unwrap())
            .unwrap()
    };
    with(&ShimFile {
        token: "shim_wrong".into(),
        ..file.clone()
    });
    silent(start.as_bytes(), &[PATIENT], "another token");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = nobody.local_addr().unwrap().port();
    with(&ShimFile {
        port,
        ..file.clone()
    });
    silent(
        start.as_bytes(),
        &[("PRISM_HOOK_MS", "200")],
        "a door that never answers",
    );
    drop(nobody);
    silent(start.as_bytes(), &[PATIENT], "a closed door");
    server.home().write(&name, b"{").unwrap();
    silent(start.as_bytes(), &[PATIENT], "a torn file");
    with(&file);
    texi.kill();
    silent(start.as_bytes(), &[PATIENT], "no shim");
    silent(start.as_bytes(), &[], "and as hosts run it");
}

#[test]
fn what_the_operator_turned_off_is_not_said() {
    let server = Server::start_with("[hooks]\noffer_capture = false\nhold_turn = false\n");
    let (mut donna, _texi) = (server.agent("Donna"), started(&server, "Texi", "s1"));
    donna.call("prism_signal", question("Texi"));
    wait_unread(&server, "Texi", 1);
    let corrects = typed(&server, "s1", "no, that's wrong");
    assert_eq!(hook(&server, &corrects), Value::Null);
    assert_eq!(hook(&server, &stop(&server, "s1", false)), Value::Null);
}

#[test]
fn the_hook_explains_itself_to_people() {
    let server = Server::start();
    let help = server.ok(None, &["hook", "--help"]);
    assert!(help.contains("claude-code"), "{help}");
}

/// A host that only its hooks can ring, whose agent has started.
fn rung_by_hooks(server: &Server, identity: &str, session: &str) -> Agent {
    let env = [
        ("CLAUDE_CODE_SESSION_ID", session),
        ("PRISM_DOORBELL", "hooks"),
    ];
    let mut agent = Agent::launch(server, Some(identity), &env);
    agent.started = agent.call("prism_start", json!({}));
    agent
}

fn states_of(asker: &mut Agent, sent: &Value) -> Vec<String> {
    let asked = json!({"signal_id": sent["signal_id"]});
    states(&asker.call("prism_signal_trace", asked))
}

fn is_rendered(asker: &mut Agent, sent: &Value) -> bool {
    states_of(asker, sent).contains(&"rendered".to_owned())
}

#[test]
fn a_bell_that_waits_for_a_hook_is_its_sentence_alone_and_rendered_once_it_was_written() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), rung_by_hooks(&server, "Texi", "s1"));
    let sent = donna.call("prism_signal", task("Texi", "a secret"));
    let sentence = prism_core::bell::sentence("Donna", "TaskAssigned");
    wait_unread(&server, "Texi", 1);
    // A host that has closed its end has not got it, and the bell is offered again.
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let mut hook_of_the_deaf = command(&server, &[PATIENT], &[]);
    hook_of_the_deaf.stdin(Stdio::piped()).stdout(write);
    let mut deaf = hook_of_the_deaf.spawn().unwrap();
    let event = tool(&server, "s1").to_string();
    drop(deaf.stdin.take().unwrap().write_all(event.as_bytes()));
    assert_eq!(deaf.wait().unwrap().code(), Some(0));
    server.advance(Duration::from_secs(11));
    assert!(!is_rendered(&mut donna, &sent));
    let told = wait_for("the bell", || {
        let told = hook(&server, &tool(&server, "s1"));
        (!told.is_null()).then_some(told)
    });
    assert_eq!(context(&told), sentence);
    wait_for("rendered", || is_rendered(&mut donna, &sent).then_some(()));
    assert_eq!(hook(&server, &tool(&server, "s1")), Value::Null, "once");
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    // With a prompt, unless there is something to say of the prompt itself.
    let sent = donna.call("prism_signal", task("Texi", "another"));
    wait_unread(&server, "Texi", 1);
    let told = hook(&server, &typed(&server, "s1", "no, that's wrong"));
    assert!(context(&told).contains("class=correction") && !context(&told).contains("Signal"));
    let told = wait_for("the bell", || {
        let told = hook(&server, &prompt(&server, "s1", "go on with it"));
        (!told.is_null()).then_some(told)
    });
    assert_eq!(context(&told), sentence);
    wait_for("rendered", || is_rendered(&mut donna, &sent).then_some(()));
}

#[test]
fn claude_code_without_inbox_and_channel_is_rung_by_its_hooks() {
    let server = Server::start();
    let env = [
        ("PRISM_DOORBELL", "auto"),
        ("PRISM_AGENT_SURFACE", "claude_code"),
        ("CLAUDE_CODE_SESSION_ID", "s1"),
    ];
    let mut donna = server.agent("Donna");
    let mut texi = Agent::launch(&server, Some("Texi"), &env);
    texi.call("prism_start", json!({}));
    assert_eq!(hook(&server, &tool(&server, "s1")), Value::Null);
    let sent = donna.call("prism_signal", task("Texi", "x"));
    wait_for("the bell to wait", || {
        let states = states_of(&mut donna, &sent);
        states.contains(&"bell_waits".to_owned()).then_some(())
    });
    let told = hook(&server, &tool(&server, "s1"));
    let bell = prism_core::bell::sentence("Donna", "TaskAssigned");
    assert_eq!(context(&told), bell);
    wait_for("rendered", || is_rendered(&mut donna, &sent).then_some(()));
    assert_eq!(texi.bells_so_far(), 0, "nothing into a channel that is off");
}

#[test]
fn the_end_of_a_turn_carries_the_bell_of_a_question() {
    let server = Server::start();
    let (mut donna, _texi) = (server.agent("Donna"), rung_by_hooks(&server, "Texi", "s1"));
    let sent = donna.call("prism_signal", question("Texi"));
    wait_unread(&server, "Texi", 1);
    let held = hook(&server, &stop(&server, "s1", false));
    assert_eq!(held["decision"], "block");
    assert!(
        held["reason"]
            .as_str()
            .unwrap()
            .contains("prism_signals_pending")
    );
    assert_eq!(hook(&server, &stop(&server, "s1", false)), Value::Null);
    wait_for("rendered", || {
        hook(&server, &tool(&server, "s1"));
        is_rendered(&mut donna, &sent).then_some(())
    });
}

#[test]
fn a_prompt_that_is_a_bell_is_evidence_and_nothing_else() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let texi = started(&server, "Texi", "s1");
    let sent = donna.call("prism_signal", task("Texi", "x"));
    let sentence = texi.bell();
    wait_for("rung", || {
        let states = states_of(&mut donna, &sent);
        states.contains(&"rung".to_owned()).then_some(())
    });
    assert!(
        !is_rendered(&mut donna, &sent),
        "a channel confirms nothing"
    );
    assert_eq!(
        hook(&server, &prompt(&server, "s1", &sentence)),
        Value::Null
    );
    wait_for("rendered", || is_rendered(&mut donna, &sent).then_some(()));
}

#[test]
fn a_pipe_in_the_place_of_a_transcript_holds_up_nobody() {
    let server = Server::start();
    let mut texi = started(&server, "Texi", "s1");
    let pipe = server.folder().join("t.jsonl");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let mut said = prompt(&server, "s1", "no, that is wrong: use tabs");
    said["transcript_path"] = json!(pipe);
    hook(&server, &said);
    texi.call("prism_status", json!({}));
    assert_eq!(texi.close(), Some(0));
}
