//! Bells through real sockets: what each host is handed, what that proves, and what happens when
//! it is gone, hangs or refuses.

use crate::harness::hosts::{AppServer, FakeThread, Inbox, codex_command};
use crate::harness::{Agent, Server, ids, states, task, wait_for};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

const AUTO: (&str, &str) = ("PRISM_DOORBELL", "auto");
const CHANNEL: (&str, &str) = ("PRISM_CLAUDE_CHANNEL", "1");
/// A slow machine asks more often than one key may.
const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";
const SECRET: &str = "the-payload-never-rings";

fn sentence(from: &str, signal_type: &str) -> String {
    format!(
        "Signal from {from}: {signal_type}. Use prism_signals_pending to read; prism_signal to reply if needed."
    )
}

/// An agent in Claude Code, rung through an inbox socket.
fn in_claude_code(server: &Server, identity: &str, more: &[(&str, &str)]) -> (Agent, Inbox) {
    let inbox = Inbox::listen(server.folder().join(format!("{identity}.sock")));
    let path = inbox.path.to_str().unwrap().to_owned();
    let mut env = vec![AUTO, ("CLAUDE_CODE_MESSAGING_SOCKET", path.as_str())];
    env.extend(more);
    let mut agent = Agent::launch(server, Some(identity), &env);
    agent.started = agent.call("prism_start", json!({}));
    (agent, inbox)
}

/// An agent in Codex, with its home in the test's folder.
pub fn in_codex(server: &Server, identity: &str, more: &[(&str, &str)]) -> Agent {
    let home = server.folder().join("codex").to_str().unwrap().to_owned();
    let mut env = vec![
        AUTO,
        ("PRISM_AGENT_SURFACE", "codex"),
        ("CODEX_HOME", &home),
    ];
    env.extend(more);
    Agent::launch(server, Some(identity), &env)
}

pub fn app_server(server: &Server, threads: Vec<FakeThread>) -> AppServer {
    let folder = server.folder().join("codex/app-server-control");
    std::fs::create_dir_all(&folder).unwrap();
    AppServer::listen(folder.join("app-server-control.sock"), threads)
}

/// The id of a thread that was made so many milliseconds from now.
pub fn thread_id(ms_from_now: i128, n: u128) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let ms = (now.as_millis() as i128 + ms_from_now) as u128;
    uuid::Uuid::from_u128((ms << 80) | (7 << 76) | (2 << 62) | n).to_string()
}

pub fn thread(server: &Server, id: &str) -> FakeThread {
    FakeThread {
        id: id.into(),
        cwd: server.folder().to_str().unwrap().into(),
        ephemeral: false,
        turn: None,
        name: None,
    }
}

/// A verb as Codex calls it: it says which thread and turn it comes from.
pub fn call_from(agent: &mut Agent, thread: &str, turn: &str) {
    let meta = json!({"threadId": thread,
        "x-codex-turn-metadata": {"thread_id": thread, "turn_id": turn}});
    let call = json!({"name": "prism_start", "arguments": {}, "_meta": meta});
    let answer = agent.request("tools/call", call);
    assert!(answer["result"]["isError"] != true, "{answer}");
}

fn secret_task(to: &str) -> Value {
    json!({"to": to, "signal_type": "TaskAssigned",
        "payload": {"summary": SECRET, "body": SECRET}})
}

fn question(to: &str) -> Value {
    json!({"to": to, "signal_type": "Question", "payload": {"summary": "which one?"}})
}

fn trace(asker: &mut Agent, sent: &Value) -> Value {
    let asked = json!({"signal_id": sent["signal_id"]});
    asker.call("prism_signal_trace", asked)
}

/// What a trace says in a state, once it does.
#[track_caller]
fn told(asker: &mut Agent, sent: &Value, state: &str) -> String {
    wait_for(state, || {
        let trace = trace(asker, sent);
        let events = trace["timeline"].as_array().unwrap();
        let found = events.iter().find(|e| e["state"] == state)?;
        Some(found["detail"].as_str().unwrap_or_default().to_owned())
    })
}

fn has(asker: &mut Agent, sent: &Value, state: &str) -> bool {
    states(&trace(asker, sent)).contains(&state.to_owned())
}

#[test]
fn claude_code_is_handed_the_exact_sentence_in_one_line_and_that_proves_no_more_than_rung() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    let (mut texi, inbox) = in_claude_code(&server, "Texi", &[]);
    let sent = donna.call("prism_signal", secret_task("Texi"));
    let line = inbox.line();
    assert_eq!(
        line,
        json!({
            "type": "user",
            "message": {"role": "user", "content": sentence("Donna", "TaskAssigned")},
            "from": format!("prism:{}", sent["signal_id"].as_str().unwrap()),
        })
    );
    assert_eq!(told(&mut donna, &sent, "rung"), "claude_inbox");
    assert!(!has(&mut donna, &sent, "rendered"), "nothing says so");
    // One bell until the inbox is read.
    donna.call("prism_signal", task("Texi", "behind it"));
    wait_for("the second one in the ring", || {
        let count = texi.call("prism_signals", json!({}))["count"].clone();
        (count["unread"] == 2).then_some(())
    });
    assert_eq!(inbox.lines_so_far(), 0);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 2);
    assert_eq!(texi.bells_so_far(), 0, "one rung is enough");
}

#[test]
fn what_a_drain_left_unread_behind_the_bell_is_rung_for_once_when_it_is_confirmed() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    let (mut texi, inbox) = in_claude_code(&server, "Texi", &[]);
    let unread = |texi: &mut Agent, n: u64| {
        wait_for("the ring", || {
            let count = texi.call("prism_signals", json!({}))["count"].clone();
            (count["unread"] == n).then_some(())
        });
    };
    let first = donna.call("prism_signal", secret_task("Texi"));
    inbox.line();
    let second = donna.call("prism_signal", question("Texi"));
    unread(&mut texi, 2);
    assert_eq!(inbox.lines_so_far(), 0, "it stands behind the bell");
    // As a drain that was listed before the second one came.
    let read = texi.call("prism_signals_pending", json!({"limit": 1}));
    assert_eq!(ids(&read), [first["signal_id"].as_str().unwrap()]);
    let line = inbox.line();
    assert_eq!(line["message"]["content"], sentence("Donna", "Question"));
    assert_eq!(told(&mut donna, &second, "rung"), "claude_inbox");
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    unread(&mut texi, 0);
    let last = donna.call("prism_signal", task("Texi", "after it"));
    inbox.line();
    assert_eq!(told(&mut donna, &last, "rung"), "claude_inbox");
    assert_eq!(inbox.lines_so_far(), 0, "no bell but those");
}

#[test]
fn twenty_equal_sentences_in_a_row_each_come_from_a_sender_of_their_own() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    let (mut texi, inbox) = in_claude_code(&server, "Texi", &[]);
    let mut senders = std::collections::HashSet::new();
    for n in 0..20 {
        let sent = donna.call("prism_signal", task("Texi", &n.to_string()));
        let line = inbox.line();
        assert_eq!(
            line["message"]["content"],
            sentence("Donna", "TaskAssigned")
        );
        assert!(senders.insert(line["from"].as_str().unwrap().to_owned()));
        assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
        wait_for("the drain to be confirmed", || {
            has(&mut donna, &sent, "drained").then_some(())
        });
    }
    assert_eq!(senders.len(), 20);
}

#[test]
fn an_inbox_that_is_gone_or_hangs_gives_way_to_the_channel_and_the_trace_says_why() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    for (name, breaks, why) in [
        ("Texi", Inbox::remove as fn(&Inbox), "No such file"),
        ("Lafonda", Inbox::hang, "within 2 s"),
    ] {
        let (mut agent, inbox) = in_claude_code(&server, name, &[CHANNEL]);
        breaks(&inbox);
        let sent = donna.call("prism_signal", secret_task(name));
        assert_eq!(agent.bell(), sentence("Donna", "TaskAssigned"));
        assert_eq!(told(&mut donna, &sent, "rung"), "claude_channel");
        let failed = told(&mut donna, &sent, "bell_failed");
        assert!(
            failed.starts_with("claude_inbox: ") && failed.contains(why),
            "{failed}"
        );
        assert_eq!(
            ids(&agent.call("prism_signals_pending", json!({}))).len(),
            1
        );
    }
}

#[test]
fn a_pinned_bell_that_fails_stays_alone_and_the_signal_waits() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    for (name, pinned, why) in [
        (
            "Texi",
            "claude_inbox",
            "CLAUDE_CODE_MESSAGING_SOCKET is not set",
        ),
        ("Porsche", "opencode", "PRISM_OPENCODE_URL is not set"),
        ("Desiree", "codex", "control socket"),
    ] {
        let mut agent = Agent::launch(&server, Some(name), &[("PRISM_DOORBELL", pinned)]);
        agent.call("prism_start", json!({}));
        let sent = donna.call("prism_signal", task(name, "x"));
        let failed = told(&mut donna, &sent, "bell_failed");
        assert!(failed.contains(pinned) && failed.contains(why), "{failed}");
        assert!(!has(&mut donna, &sent, "rung"));
        assert_eq!(agent.bells_so_far(), 0);
        assert_eq!(
            ids(&agent.call("prism_signals_pending", json!({}))).len(),
            1
        );
    }
}

#[test]
fn what_was_read_before_its_bell_is_not_rung_for() {
    let server = Server::start_with(FAST);
    let mut donna = server.agent("Donna");
    let (mut texi, inbox) = in_claude_code(&server, "Texi", &[("PRISM_DOORBELL", "claude_inbox")]);
    inbox.hang();
    donna.call("prism_signal", task("Texi", "first"));
    wait_for("a bell that hangs", || inbox.is_being_rung().then_some(()));
    // The second one comes and is read while the host still chews on the first bell.
    let second = donna.call("prism_signal", task("Texi", "second"));
    wait_for("both to be read", || {
        let count = texi.call("prism_signals", json!({}))["count"].clone();
        (count["last_sid"] == second["signal_id"]).then_some(())
    });
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 2);
    inbox.go_on();
    told(&mut donna, &second, "not_needed");
    assert!(!has(&mut donna, &second, "rung"));
    // A bell that came after all would come before this one.
    let third = donna.call("prism_signal", task("Texi", "third"));
    let from = format!("prism:{}", third["signal_id"].as_str().unwrap());
    assert_eq!(inbox.line()["from"], from);
}

#[test]
fn an_idle_codex_begins_a_turn_and_its_id_is_the_hosts_word() {
    let server = Server::start_with(FAST);
    let own = thread_id(0, 1);
    let codex = app_server(&server, vec![thread(&server, &own)]);
    let (mut donna, mut texi) = (server.agent("Donna"), in_codex(&server, "Texi", &[]));
    call_from(&mut texi, &own, "turn-0");
    let sent = donna.call("prism_signal", secret_task("Texi"));
    let input = json!([{"type": "text", "text": sentence("Donna", "TaskAssigned"),
        "text_elements": []}]);
    let started = codex.wait_for("turn/start", 1);
    assert_eq!(started, [json!({"threadId": own, "input": input})]);
    assert_eq!(told(&mut donna, &sent, "rendered"), "codex");
    assert_eq!(told(&mut donna, &sent, "rung"), "codex");
    assert!(codex.asked("turn/steer").is_empty());
    assert!(!format!("{:?}", codex.state().asked).contains(SECRET));
}

#[test]
fn a_busy_codex_is_steered_into_the_turn_that_runs() {
    let server = Server::start_with(FAST);
    let own = thread_id(0, 1);
    let mut busy = thread(&server, &own);
    busy.turn = Some("turn-2".into());
    let codex = app_server(&server, vec![busy]);
    let (mut donna, mut texi) = (server.agent("Donna"), in_codex(&server, "Texi", &[]));
    // The turn that called last is over; the server names the one that runs.
    call_from(&mut texi, &own, "turn-1");
    let sent = donna.call("prism_signal", secret_task("Texi"));
    assert_eq!(told(&mut donna, &sent, "rendered"), "codex");
    let expected: Vec<Value> = codex.asked("turn/steer");
    let expected: Vec<&Value> = expected.iter().map(|p| &p["expectedTurnId"]).collect();
    assert_eq!(expected, [&json!("turn-1"), &json!("turn-2")]);
    assert!(codex.asked("turn/start").is_empty());
}

#[test]
fn before_its_first_call_a_thread_is_known_by_folder_and_birth_or_not_rung_at_all() {
    let server = Server::start_with(FAST);
    let elsewhere = FakeThread {
        cwd: "/elsewhere".into(),
        ..thread(&server, &thread_id(0, 2))
    };
    let hidden = FakeThread {
        ephemeral: true,
        ..thread(&server, &thread_id(0, 3))
    };
    let old = thread(&server, &thread_id(-60_000, 4));
    let codex = app_server(&server, vec![elsewhere, hidden, old]);
    let mut donna = server.agent("Donna");
    // Made right before its shim, as Codex does it.
    let own = thread_id(0, 1);
    codex.state().threads.push(thread(&server, &own));
    let mut texi = in_codex(&server, "Texi", &[]);
    texi.call("prism_start", json!({}));
    let sent = donna.call("prism_signal", task("Texi", "x"));
    let started = codex.wait_for("turn/start", 1);
    assert_eq!(started[0]["threadId"], own);
    assert_eq!(told(&mut donna, &sent, "rendered"), "codex");
    drop(texi);
    // Two that could be it: whichever it is, the other one is not rung.
    codex.state().threads.clear();
    for n in 5..7 {
        let id = thread_id(0, n);
        codex.state().threads.push(thread(&server, &id));
    }
    let mut lafonda = in_codex(&server, "Lafonda", &[]);
    lafonda.call("prism_start", json!({}));
    let sent = donna.call("prism_signal", task("Lafonda", "x"));
    let failed = told(&mut donna, &sent, "bell_failed");
    assert!(failed.contains("first tool call"), "{failed}");
    assert_eq!(codex.asked("turn/start").len(), 1);
    assert_eq!(ids(&lafonda.call("prism_status", json!({}))).len(), 1);
}

#[test]
fn threads_of_two_identities_are_rung_each_for_its_own() {
    let server = Server::start_with(FAST);
    let (one, two) = (thread_id(0, 1), thread_id(0, 2));
    let codex = app_server(&server, vec![thread(&server, &one), thread(&server, &two)]);
    let mut donna = server.agent("Donna");
    let mut texi = in_codex(&server, "Texi", &[]);
    let mut lafonda = in_codex(&server, "Lafonda", &[]);
    call_from(&mut texi, &one, "t");
    call_from(&mut lafonda, &two, "t");
    donna.call("prism_signal", task("Lafonda", "x"));
    assert_eq!(codex.wait_for("turn/start", 1)[0]["threadId"], two);
    donna.call("prism_signal", task("Texi", "x"));
    assert_eq!(codex.wait_for("turn/start", 2)[1]["threadId"], one);
}

#[test]
fn a_codex_thread_in_another_process_is_left_a_message_and_that_is_no_more_than_rung() {
    let server = Server::start_with(FAST);
    let path = codex_command(server.folder(), "exit 0");
    // A shared server runs, and does not hold the thread; then none runs at all.
    let codex = app_server(&server, vec![]);
    let mut donna = server.agent("Donna");
    let mut texi = in_codex(&server, "Texi", &[("PATH", &path)]);
    let own = thread_id(0, 1);
    call_from(&mut texi, &own, "t");
    let noted = server.folder().join("codex-arguments");
    for _ in 0..2 {
        let sent = donna.call("prism_signal", secret_task("Texi"));
        let arguments = wait_for("codex to be run", || std::fs::read_to_string(&noted).ok());
        let bell = sentence("Donna", "TaskAssigned");
        let expected = format!("queue\n--thread\n{own}\n--message\n{bell}\n");
        assert_eq!(arguments, expected);
        assert_eq!(told(&mut donna, &sent, "rung"), "codex");
        assert!(!has(&mut donna, &sent, "rendered"));
        assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
        std::fs::remove_file(&noted).unwrap();
        drop(std::fs::remove_file(&codex.path));
    }
}

#[test]
fn a_codex_that_hangs_refuses_or_is_not_meant_to_last_leaves_the_signal_waiting() {
    let server = Server::start_with(FAST);
    let path = codex_command(
        server.folder(),
        "echo 'Error: no rollout found for thread id x (code -32603)' >&2; exit 1",
    );
    let (gone, ephemeral, hangs) = (thread_id(0, 1), thread_id(0, 2), thread_id(0, 3));
    let brief = FakeThread {
        ephemeral: true,
        ..thread(&server, &ephemeral)
    };
    let codex = app_server(&server, vec![brief, thread(&server, &hangs)]);
    let mut donna = server.agent("Donna");
    for (name, id, why) in [
        ("Texi", &gone, "codex queue: Error: no rollout found"),
        ("Lafonda", &ephemeral, "ephemeral"),
        ("Porsche", &hangs, "did not answer within 2 s"),
    ] {
        codex.state().hangs = id == &hangs;
        let mut agent = in_codex(&server, name, &[("PATH", &path)]);
        call_from(&mut agent, id, "t");
        let sent = donna.call("prism_signal", task(name, "x"));
        let failed = told(&mut donna, &sent, "bell_failed");
        assert!(
            failed.starts_with("codex: ") && failed.contains(why),
            "{failed}"
        );
        assert!(!has(&mut donna, &sent, "rung"));
        assert_eq!(ids(&agent.call("prism_status", json!({}))).len(), 1);
    }
    assert!(codex.asked("turn/start").is_empty());
}

#[test]
fn a_launchers_own_server_is_rung_and_no_message_is_left_when_it_is_gone() {
    let server = Server::start_with(FAST);
    let path = codex_command(server.folder(), "exit 0");
    let own = thread_id(-4_000, 1);
    let socket = server.folder().join("own.sock");
    let codex = AppServer::listen(socket.clone(), vec![thread(&server, &own)]);
    let address = format!("unix://{}", socket.display());
    let env = [("PRISM_CODEX_SOCKET", address.as_str()), ("PATH", &path)];
    let mut donna = server.agent("Donna");
    let mut texi = in_codex(&server, "Texi", &env);
    texi.call("prism_start", json!({}));
    // All its threads are of this identity, so a slow start is no reason to doubt.
    donna.call("prism_signal", task("Texi", "x"));
    assert_eq!(codex.wait_for("turn/start", 1)[0]["threadId"], own);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    std::fs::remove_file(&socket).unwrap();
    let sent = donna.call("prism_signal", task("Texi", "y"));
    assert!(told(&mut donna, &sent, "bell_failed").contains("control socket"));
    assert!(!server.folder().join("codex-arguments").exists());
}

#[test]
fn a_codex_thread_is_called_after_its_agent_and_what_waits_unless_its_user_named_it() {
    let server = Server::start_with(FAST);
    let (own, named) = (thread_id(0, 1), thread_id(0, 2));
    let mut theirs = thread(&server, &named);
    theirs.name = Some("my refactoring".into());
    let codex = app_server(&server, vec![thread(&server, &own), theirs]);
    let name_of = |id: &str| {
        let state = codex.state();
        let found = state.threads.iter().find(|t| t.id == id).unwrap();
        found.name.clone().unwrap_or_default()
    };
    let mut donna = server.agent("Donna");
    let mut texi = in_codex(&server, "Texi", &[]);
    call_from(&mut texi, &own, "t");
    let called = |name: &str| wait_for(name, || (name_of(&own) == name).then_some(()));
    called("[Texi] PID-TEST");
    let ask = json!({"to": "Texi", "signal_type": "Question", "payload": {"summary": SECRET}});
    donna.call("prism_signal", ask);
    called("[Texi] PID-TEST · 🔔 1 ASK");
    donna.call("prism_signal", task("Texi", "x"));
    called("[Texi] PID-TEST · 🔔 2 ASK:1 TASK:1");
    texi.call("prism_signals_pending", json!({}));
    called("[Texi] PID-TEST");
    assert_eq!(
        codex.asked("thread/name/set").len(),
        4,
        "only when it changes"
    );
    let mut lafonda = in_codex(&server, "Lafonda", &[]);
    call_from(&mut lafonda, &named, "t");
    donna.call("prism_signal", task("Lafonda", "x"));
    codex.wait_for("turn/start", 2);
    lafonda.call("prism_signals_pending", json!({}));
    assert_eq!(name_of(&named), "my refactoring");
}

#[test]
fn a_probe_says_accepted_where_the_host_gave_its_word_and_sent_where_it_did_not() {
    let server = Server::start_with(FAST);
    let own = thread_id(0, 1);
    let codex = app_server(&server, vec![thread(&server, &own)]);
    let mut texi = in_codex(&server, "Texi", &[]);
    call_from(&mut texi, &own, "t");
    let (mut lafonda, inbox) = in_claude_code(&server, "Lafonda", &[]);
    for (agent, strategy, evidence) in [
        (&mut texi, "codex", "accepted"),
        (&mut lafonda, "claude_inbox", "sent"),
    ] {
        let probe = agent.call("prism_loopback_test", json!({"timeout_ms": 20_000}));
        let seen = &probe["layers"]["channel_notification"];
        assert_eq!(probe["outcome"], "complete", "{probe}");
        assert_eq!(
            (&seen["strategy"], &seen["evidence"]),
            (&json!(strategy), &json!(evidence))
        );
    }
    let bell = inbox.line();
    assert_eq!(bell["message"]["content"], sentence("Lafonda", "Loopback"));
    let bell = &codex.asked("turn/start")[0]["input"][0]["text"];
    assert_eq!(bell, &json!(sentence("Texi", "Loopback")));
}

#[test]
fn opencode_is_given_a_prompt_in_its_one_session_here_and_none_when_there_are_two() {
    use std::io::{BufRead, BufReader, Read, Write};
    let server = Server::start_with(FAST);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let here = server.folder().to_str().unwrap().to_owned();
    let sessions = json!([
        {"id": "ses_one", "directory": here}, {"id": "ses_two", "directory": here},
        {"id": "ses_child", "directory": here, "parentID": "ses_one"},
        {"id": "ses_away", "directory": "/elsewhere"},
    ]);
    let (say, prompts) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut first = sessions.as_array().unwrap().clone();
        first.remove(1);
        let mut lists = [json!(first), sessions].into_iter();
        for connection in listener.incoming() {
            let mut reader = BufReader::new(connection.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                head.push_str(&line);
                if line.trim().is_empty() {
                    break;
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = match head.starts_with("GET ") {
                true => {
                    let list = lists.next().unwrap().to_string();
                    format!("200 OK\r\ncontent-length: {}\r\n\r\n{list}", list.len())
                }
                false => {
                    let asked = head.lines().next().unwrap().to_owned();
                    let body: Value = serde_json::from_slice(&body).unwrap();
                    say.send((asked, body)).unwrap();
                    "204 No Content\r\n\r\n".to_owned()
                }
            };
            let answer =
                format!("HTTP/1.1 {answer}").replacen("\r\n", "\r\nconnection: close\r\n", 1);
            reader.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    let mut donna = server.agent("Donna");
    let env = [
        AUTO,
        ("PRISM_AGENT_SURFACE", "opencode"),
        ("PRISM_OPENCODE_URL", &url),
    ];
    let mut texi = Agent::launch(&server, Some("Texi"), &env);
    texi.call("prism_start", json!({}));
    let sent = donna.call("prism_signal", secret_task("Texi"));
    let (asked, body) = prompts.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(asked, "POST /session/ses_one/prompt_async HTTP/1.1");
    let bell = sentence("Donna", "TaskAssigned");
    assert_eq!(body, json!({"parts": [{"type": "text", "text": bell}]}));
    assert_eq!(told(&mut donna, &sent, "rung"), "opencode");
    assert!(!has(&mut donna, &sent, "rendered"), "accepted is not seen");
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    let sent = donna.call("prism_signal", task("Texi", "y"));
    let failed = told(&mut donna, &sent, "bell_failed");
    assert!(failed.contains("PRISM_OPENCODE_SESSION"), "{failed}");
}
