//! The command line: what it prints, and how it ends.

use crate::harness::{Server, task, wait_for};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_first_conversation_on_the_command_line() {
    let server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    server.ok(None, &["key", "mint", "Donna"]);
    let sent: Value = serde_json::from_str(&server.ok(
        Some("Donna"),
        &[
            "send",
            "Texi",
            "review the ring",
            "--type",
            "ReviewRequested",
            "--json",
        ],
    ))
    .unwrap();
    let id = sent["signal_id"].as_str().unwrap();
    let printed = server.ok(Some("Texi"), &["pending"]);
    assert!(
        printed.starts_with("ASK     Donna ReviewRequested now")
            && printed.contains("review the ring"),
        "{printed}"
    );
    let reply = server.ok(
        None,
        &[
            "--as",
            "Texi",
            "send",
            "Donna",
            "looks right",
            "--type",
            "ReviewCompleted",
            "--reply-to",
            &id[..8],
        ],
    );
    assert!(
        reply.contains("queued; the recipient is never_started"),
        "{reply}"
    );
    let trace = server.ok(None, &["trace", &id[..8]]);
    let shape: Vec<&str> = trace
        .lines()
        .map(|l| l.split_whitespace().next().unwrap_or_default())
        .collect();
    assert_eq!(shape, [&id[..8], "├●", "├●", "└●", "It"], "{trace}");
    assert!(
        trace.contains("ReviewRequested  Donna → Texi")
            && trace.contains("queued")
            && trace.contains("It is acted."),
        "{trace}"
    );
    let status = server.ok(None, &["status"]);
    assert!(
        status.contains("frank (operator)") && status.contains("INFO:1"),
        "{status}"
    );
}

#[test]
fn errors_say_what_to_do_and_exit_codes_tell_no_from_could_not() {
    let server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    for (args, identity, code, says) in [
        (vec!["send", "Texxi", "x"], None, 2, "did you mean Texi?"),
        (
            vec!["send", "Texi", "x", "--category", "LOUD"],
            None,
            2,
            "INFO, TASK, ASK, BLOCKER",
        ),
        (vec!["send", "Texi"], None, 2, "Usage"),
        (vec!["nonsense"], None, 2, "Usage"),
        (vec!["--pid", "PID-NONE", "status"], None, 2, "PID-TEST"),
        (
            vec!["key", "mint", "Eve"],
            Some("Texi"),
            2,
            "act as the operator",
        ),
        (
            vec!["--as", "Nobody", "status"],
            None,
            2,
            "prism key mint Nobody",
        ),
        (vec!["trace", "zzz"], None, 2, "8 hex digits"),
        (vec!["trace", "deadbeef"], None, 2, "check the id"),
        (vec!["signals", "tail"], None, 2, "--as"),
        (vec!["watch"], Some("Texi"), 2, "PRISM_AGENT_IDENTITY"),
    ] {
        let output = server.cli(identity, &args);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{args:?}: {}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains(says),
            "{args:?}: {}",
            stderr(&output)
        );
    }
    let sent: Value =
        serde_json::from_str(&server.ok(None, &["send", "Texi", "x", "--json"])).unwrap();
    let id = sent["signal_id"].as_str().unwrap();
    assert_eq!(
        server.cli(None, &["signals", "recall", id]).status.code(),
        Some(0)
    );
    assert_eq!(
        server.cli(None, &["signals", "recall", id]).status.code(),
        Some(1),
        "it ran, and the answer is no"
    );
}

#[test]
fn a_second_server_on_the_same_home_names_the_first() {
    let mut server = Server::start();
    assert_eq!(server.home().mode("prism.db"), Some(0o600));
    let second = server.cli(None, &["serve", "--port", "0"]);
    assert_eq!(second.status.code(), Some(2));
    assert!(
        stderr(&second).contains(&format!("pid {}", server.pid())),
        "{}",
        stderr(&second)
    );
    assert_eq!(server.terminate(), Some(0));
    assert!(
        !server.home().path("server.json").exists(),
        "a clean stop removes it"
    );
    assert!(
        !server.home().path("prism.db-wal").exists()
            || std::fs::metadata(server.home().path("prism.db-wal"))
                .unwrap()
                .len()
                == 0
    );
    let away = server.cli(None, &["status"]);
    assert_eq!(
        (away.status.code(), stderr(&away).contains("prism serve")),
        (Some(2), true)
    );
    server.resume();
    server.ok(None, &["status"]);
}

#[test]
fn a_server_does_not_listen_beyond_this_machine_by_accident() {
    let server = Server::start();
    let refused = server.cli(
        None,
        &[
            "serve",
            "--home",
            server.folder().join("other").to_str().unwrap(),
            "--host",
            "0.0.0.0",
            "--port",
            "0",
        ],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--behind-proxy"));
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let mut server = Server::start();
    server.terminate();
    let file = server.home().path("prism.db");
    rusqlite::Connection::open(&file)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let refused = server.cli(None, &["serve", "--port", "0"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("schema 99"),
        "{}",
        stderr(&refused)
    );
    let version: i64 = rusqlite::Connection::open(&file)
        .unwrap()
        .pragma_query_value(None, "user_version", |r| r.get(0))
        .unwrap();
    assert_eq!(version, 99);
}

#[test]
fn the_doctor_finds_what_is_wrong_and_says_so_by_its_exit_code() {
    let server = Server::start();
    let _texi = server.agent("Texi");
    let fine = server.cli(None, &["doctor"]);
    let printed = String::from_utf8_lossy(&fine.stdout).into_owned();
    assert_eq!(fine.status.code(), Some(0), "{printed}");
    assert!(
        printed.contains("shim") && printed.contains("Texi on claude_code"),
        "{printed}"
    );
    std::fs::set_permissions(
        server.home().path("keys/Texi.key"),
        std::os::unix::fs::PermissionsExt::from_mode(0o644),
    )
    .unwrap();
    let wrong = server.cli(None, &["doctor", "--json"]);
    assert_eq!(wrong.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&wrong.stdout).unwrap();
    assert!(
        answer["findings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|f| f["level"] == "wrong" && f["says"].as_str().unwrap().contains("chmod 600"))
    );
}

#[test]
fn watching_shows_signals_as_they_are_sent() {
    let server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    let mut watch = server
        .command(None)
        .arg("watch")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("watching PID-TEST"));
    server.ok(None, &["send", "Texi", "hello there"]);
    let line = lines.next().unwrap().unwrap();
    assert!(
        line.contains("frank → Texi") && line.contains("hello there"),
        "{line}"
    );
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn help_has_examples_and_completions_are_printed() {
    let server = Server::start();
    for command in ["send", "pending", "trace", "whois", "key", "serve"] {
        assert!(
            server.ok(None, &[command, "--help"]).contains("Example"),
            "{command}"
        );
    }
    assert!(server.ok(None, &["completions", "bash"]).contains("_prism"));
    assert!(server.ok(None, &["--version"]).starts_with("prism "));
}

/// Bytes that the server's largest file may still grow by until its disk is "full".
const ROOM: u64 = 300_000;

/// Lets no file of a process grow beyond so many bytes, or takes that limit away.
fn limit_files(pid: u32, bytes: Option<u64>) {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    let pid = Pid::from_raw(i32::try_from(pid).unwrap());
    prlimit(pid, Resource::Fsize, limit).expect("a limit on the server's files can be set");
}

#[test]
fn a_full_disk_refuses_the_send_loses_nothing_and_recovers() {
    let mut server = Server::start();
    server.kill();
    // A write beyond the limit fails, as on a full disk; the shell lets it fail without a signal.
    let launch = "trap '' XFSZ; exec \"$0\" serve --port 0";
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", launch, crate::harness::BIN])
        .env_clear()
        .envs(
            server
                .command(None)
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .current_dir(server.folder());
    server.resume_as(shell);
    server.ok(None, &["key", "mint", "Texi"]);
    server.ok(None, &["note", "the printer wants the blue cable"]);
    let size = |name| std::fs::metadata(server.home().path(name)).map_or(0, |m| m.len());
    let largest = size("prism.db").max(size("prism.db-wal"));
    limit_files(server.pid(), Some(largest + ROOM));
    let body = "x".repeat(30_000);
    let mut accepted: Vec<Value> = Vec::new();
    let refused = wait_for("a full disk", || {
        let output = server.cli(None, &["send", "Texi", "x", "--body", &body, "--json"]);
        if !output.status.success() {
            return Some(output);
        }
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        accepted.push(sent["signal_id"].clone());
        None
    });
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("free space"),
        "{}",
        stderr(&refused)
    );
    assert!(!accepted.is_empty(), "something was stored before");
    // Reads still work, and everything that was accepted is there.
    let waiting = |server: &Server| {
        let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
        let personas = status["personas"].as_array().unwrap().clone();
        let texi = personas.iter().find(|p| p["identity"] == "Texi").unwrap();
        texi["pending"]["INFO"].as_u64().unwrap() as usize
    };
    assert_eq!(waiting(&server), accepted.len());
    assert!(
        server
            .ok(None, &["recall", "the printer's cable"])
            .contains("blue cable"),
        "what is known is told"
    );
    let unkept = wait_for("a recall that cannot be kept", || {
        let ask = ["recall", "the printer's cable", "--json"];
        let answer: Value = serde_json::from_str(&server.ok(None, &ask)).unwrap();
        let note = answer["note"].as_str().unwrap_or_default();
        note.contains("not recorded").then_some(answer)
    });
    assert!(
        unkept["recall_event_id"].is_null(),
        "nobody could cite it: {unkept:#}"
    );
    // Room again: the same server goes on, and what was accepted outlives a kill.
    limit_files(server.pid(), None);
    server.ok(None, &["send", "Texi", "there is room", "--json"]);
    assert_eq!(waiting(&server), accepted.len() + 1);
    server.kill();
    server.resume();
    assert_eq!(waiting(&server), accepted.len() + 1);
    let read: Value =
        serde_json::from_str(&server.ok(Some("Texi"), &["pending", "-n", "100", "--json"]))
            .unwrap();
    let read: Vec<Value> = read["signals"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["signal_id"].clone())
        .collect();
    assert!(accepted.iter().all(|id| read.contains(id)), "{read:?}");
}

#[test]
fn the_server_may_go_away_in_the_middle_of_a_send() {
    let mut server = Server::start();
    let mut donna = server.agent("Donna");
    let _texi = server.agent("Texi");
    let answers: Vec<_> = (0..20)
        .map(|n| {
            donna.post(
                "tools/call",
                json!({"name": "prism_signal", "arguments": task("Texi", &format!("{n}"))}),
            )
        })
        .collect();
    let mut answers = answers.into_iter().map(|answer| {
        let answer = answer
            .recv_timeout(crate::harness::PATIENCE)
            .expect("every send is answered");
        answer["result"]["structuredContent"].clone()
    });
    let first = answers.next().unwrap();
    server.kill();
    server.resume();
    // Each send was stored, or its error says that it was not sent or how to ask again.
    let mut stored = vec![first["signal_id"].clone()];
    let mut unsent = Vec::new();
    for (n, body) in (1..).zip(answers) {
        match body["error"]["code"].as_str() {
            None => stored.push(body["signal_id"].clone()),
            Some("server_unreachable") => unsent.push(json!(format!("{n}"))),
            Some("outcome_unknown") => assert!(body["error"]["idempotency_key"].is_string()),
            Some(other) => panic!("{other}: {body}"),
        }
    }
    let read: Value =
        serde_json::from_str(&server.ok(Some("Texi"), &["pending", "-n", "100", "--json"]))
            .unwrap();
    let read = read["signals"].as_array().unwrap();
    for id in &stored {
        let times = read.iter().filter(|s| s["signal_id"] == *id).count();
        assert_eq!(times, 1, "{id} of {} that were stored", stored.len());
    }
    for summary in &unsent {
        let kept = read.iter().find(|s| s["payload"]["summary"] == *summary);
        assert!(kept.is_none(), "told that it was not sent: {kept:?}");
    }
}

#[test]
fn an_environment_that_cannot_be_read_makes_nobody_the_operator() {
    use std::os::unix::ffi::OsStrExt;
    let server = Server::start();
    let not_text = std::ffi::OsStr::from_bytes(b"Ad\xff");
    for (name, value) in [
        ("PRISM_AGENT_IDENTITY", not_text),
        ("PRISM_AGENT_IDENTITY", "  ".as_ref()),
        ("PRISM_PID", not_text),
        ("PRISM_HOME", not_text),
        ("PRISM_API_KEY", not_text),
    ] {
        let mut command = server.command(None);
        let output = command.env(name, value).args(["key", "list"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.stdout.is_empty() && told.contains(name), "{told}");
    }
}
