//! Every verb's third door: what each command writes, what it prints, and how it ends.

use crate::harness::{Server, task, wait_for};
use serde_json::{Value, json};
use std::io::Write;
use std::process::{Output, Stdio};

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command that must succeed with `--json`, and reads its answer.
#[track_caller]
fn answer(server: &Server, identity: Option<&str>, args: &[&str]) -> Value {
    let printed = server.ok(identity, &[args, &["--json"]].concat());
    serde_json::from_str(&printed).unwrap_or_else(|e| panic!("{args:?}: {e}: {printed}"))
}

/// Runs a command that reads its text from standard input.
#[track_caller]
fn fed(server: &Server, identity: Option<&str>, args: &[&str], input: &str) -> Value {
    let mut process = server
        .command(identity)
        .args(args)
        .arg("--json")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = process.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success(), "{args:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The delta as `prism deltas` lists it.
fn delta(server: &Server, id: &Value) -> Value {
    let listed = answer(server, None, &["deltas", "-n", "200"]);
    let deltas = listed["deltas"].as_array().unwrap().clone();
    deltas
        .into_iter()
        .find(|d| d["id"] == *id)
        .unwrap_or_else(|| panic!("{id} is in no delta: {listed}"))
}

#[test]
fn a_look_at_a_server_that_hangs_says_so_within_seconds() {
    let server = Server::start();
    server.ok(None, &["status"]);
    server.stop();
    let looked = server.cli(None, &["status"]);
    server.go_on();
    assert_eq!(looked.status.code(), Some(2));
    let said = stderr(&looked);
    assert!(said.contains("did not answer within 5 s"), "{said}");
    assert!(said.contains("prism restart"), "{said}");
}

#[test]
fn what_the_page_lists_is_listed_in_a_terminal_too() {
    let server = Server::start();
    server.ok(None, &["demo"]);
    let list = |args: &[&str], field: &str| -> Vec<Value> {
        let args = [&["--pid", "PID-DEMO"], args].concat();
        let answer = answer(&server, None, &args);
        let rows = answer[field].as_array();
        rows.unwrap_or_else(|| panic!("{args:?}: {answer}")).clone()
    };
    for (args, field) in [
        (&["story", "-n", "200"][..], "items"),
        (&["memory", "list", "--kinds", "checkpoint"], "rows"),
        (&["memory", "recalls", "--cited"], "events"),
        (&["session", "list", "--which", "released"], "sessions"),
        (&["gate", "list", "--unlabelled"], "events"),
        (&["delivery"], "places"),
        (&["delivery", "--runs", "--outcome", "partial"], "runs"),
        (
            &["signals", "list", "--all", "--category", "TASK"],
            "signals",
        ),
    ] {
        let rows = list(args, field);
        assert!(!rows.is_empty(), "{args:?}");
        // Drawn, each row has a line of its own.
        let drawn = [&["--pid", "PID-DEMO"], args].concat();
        let drawn = server.ok(None, &drawn);
        assert_eq!(drawn.lines().count(), rows.len(), "{args:?}: {drawn}");
    }
    let first = list(&["memory", "list", "-n", "1"], "rows");
    let id = first[0]["id"].as_str().unwrap();
    let shown = server.ok(None, &["memory", "show", &id[..8]]);
    assert!(
        shown.contains(first[0]["kind"].as_str().unwrap()),
        "{shown}"
    );
    // A list goes on where it ended, until it ends.
    let all = list(&["story", "-n", "200"], "items");
    let (mut walked, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut args = vec!["--pid", "PID-DEMO", "story", "-n", "50"];
        args.extend(cursor.iter().flat_map(|c| ["--cursor", c.as_str()]));
        let page = answer(&server, None, &args);
        walked.extend(page["items"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(walked, all);
    let metrics = ["--pid", "PID-DEMO", "metrics", "--only", "gate,repeats"];
    let counted = answer(&server, None, &metrics);
    assert!(
        counted["gate"].is_object() && counted["recall"].is_null(),
        "{counted}"
    );
    let drawn = server.ok(None, &metrics);
    assert!(drawn.contains("precision of the gate"), "{drawn}");
    let settings = answer(&server, None, &["settings"]);
    assert!(settings["stored"]["database_bytes"].as_u64() > Some(0));
    let drawn = server.ok(None, &["settings"]);
    assert!(
        drawn.contains("PID-DEMO") && drawn.contains("database"),
        "{drawn}"
    );
    // A nonsense filter names itself, and an agent is told whose list it is.
    let refused = server.cli(
        None,
        &["--pid", "PID-DEMO", "session", "list", "--which", "lost"],
    );
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("which"), "{}", stderr(&refused));
}

#[test]
fn start_checkpoint_and_wrap_act_on_the_newest_live_session_here_or_on_the_named_one() {
    let server = Server::start();
    let (mut older, mut newer) = (server.agent("Texi"), server.agent("Texi"));
    let id = |a: &crate::harness::Agent| a.started["session_id"].as_str().unwrap().to_owned();
    let (first, second) = (id(&older), id(&newer));
    let texi = Some("Texi");
    assert_eq!(
        answer(&server, texi, &["start"])["session_id"],
        json!(second)
    );
    older.call("prism_status", json!({}));
    let started = answer(&server, None, &["start", "--as", "Texi"]);
    assert_eq!(
        started["session_id"],
        json!(first),
        "the newest by last verb"
    );
    let status = answer(&server, None, &["status"]);
    assert_eq!(
        status["sessions"].as_array().unwrap().len(),
        2,
        "none was opened"
    );

    // A session of another machine is never taken by itself.
    let kept = answer(
        &server,
        texi,
        &[
            "checkpoint",
            "the ring holds",
            "--session",
            &second[..8],
            "--file",
            "bin/coder.sh",
            "--next",
            "the bell",
            "--open-loop",
            "colours",
            "--open-loop",
            "sounds",
            "--ruled-out",
            "a pipe",
            "it blocks",
        ],
    );
    assert_eq!(kept["touched_files_source"], "caller");
    assert_eq!(
        kept["warnings"][0]["kind"],
        "missing_operator_visible_effect"
    );
    let row = delta(&server, &kept["delta_id"]);
    assert_eq!(row["session_id"], json!(second));
    assert_eq!(row["open_loops"], json!(["colours", "sounds"]));
    assert_eq!(
        row["tried_and_ruled_out"][0],
        json!({"approach": "a pipe", "outcome": "it blocks"})
    );
    let drawn = server.cli(texi, &["checkpoint", "again", "--file", "bin/coder.sh"]);
    assert!(drawn.status.success());
    assert!(
        stderr(&drawn).contains("warning:") && stderr(&drawn).contains("bin/coder.sh"),
        "{}",
        stderr(&drawn)
    );

    std::fs::create_dir(server.folder().join(".git")).unwrap();
    let absolute = server.folder().join("bin/coder.sh");
    let absolute = ["checkpoint", "x", "--file", absolute.to_str().unwrap()];
    assert_eq!(
        answer(&server, texi, &absolute)["warnings"][0]["paths"],
        json!(["bin/coder.sh"]),
        "as the project knows it"
    );

    // The checkpoint made the second session the newest; its host learns that it was wrapped.
    let named = &["wrap", "-", "--session", &second[..8], "--effect", "a bell"];
    let wrapped = fed(&server, texi, named, "all done\nand tested\n");
    assert_eq!(wrapped["touched_files_source"], "none");
    let row = delta(&server, &wrapped["delta_id"]);
    assert_eq!(
        (row["kind"].as_str(), row["summary"].as_str()),
        (Some("wrap"), Some("all done\nand tested"))
    );
    wait_for("the host to know", || {
        let asked = json!({"name": "prism_status", "arguments": {}});
        let answer = newer.request("tools/call", asked);
        (answer["result"]["structuredContent"]["error"]["code"] == "session_released").then_some(())
    });
    let printed = server.ok(texi, &["wrap", "the other one"]);
    assert!(printed.contains(&first[..8]), "{printed}");

    for (args, says) in [
        (vec!["wrap", "x"], "no live session on this machine"),
        (vec!["start"], "--session"),
        (
            vec!["checkpoint", "x", "--session", &second[..8]],
            "no open session",
        ),
        (vec!["checkpoint", "x", "--session", "abc"], "8 hex digits"),
    ] {
        let refused = server.cli(texi, &args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        let said = stderr(&refused);
        assert!(said.contains(says) && said.contains("hint:"), "{said}");
    }
    let operator = server.cli(None, &["wrap", "x"]);
    assert_eq!(operator.status.code(), Some(2));
    assert!(stderr(&operator).contains("--as"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_on_another_machine_is_acted_on_only_when_it_is_named() {
    let server = Server::start();
    let (_client, id) = server.session("Texi").await;
    // As `prism mcp` would have left it.
    server.ok(None, &["key", "mint", "Texi"]);
    let refused = server.cli(Some("Texi"), &["wrap", "x"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    let named = ["wrap", "x", "--session", &id.to_string()[..8]];
    assert_eq!(
        answer(&server, Some("Texi"), &named)["touched_files_source"],
        "none"
    );
}

#[test]
fn what_one_agent_wrapped_another_picks_up() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let session = donna.started["session_id"].as_str().unwrap().to_owned();
    donna.call(
        "prism_wrap",
        json!({"summary": "half of the ring", "next": "the other half"}),
    );
    server.ok(None, &["key", "mint", "Texi"]);
    let picked = answer(&server, Some("Texi"), &["pickup", "donna"]);
    assert_eq!(picked["wrap"]["next"], "the other half");
    let printed = server.ok(Some("Texi"), &["pickup", "--from-session", &session[..8]]);
    assert!(
        printed.contains("half of the ring") && printed.contains("next: the other half"),
        "{printed}"
    );
    let unknown = server.cli(None, &["pickup", "Nobody"]);
    assert_eq!(unknown.status.code(), Some(2), "{}", stderr(&unknown));
    let own = server.cli(Some("Texi"), &["pickup"]);
    assert_eq!(own.status.code(), Some(0));
    assert!(stderr(&own).contains("warning:"), "{}", stderr(&own));
}

#[test]
fn every_command_that_writes_prints_what_its_verb_answers() {
    let server = Server::start();
    server.ok(None, &["status"]);
    let note = answer(&server, None, &["note", "the", "printer", "hums"]);
    let note_id = note["id"].as_str().unwrap().to_owned();
    assert_eq!(delta(&server, &note["id"])["summary"], "the printer hums");
    let piped = fed(&server, None, &["note", "-"], "from a file\n");
    assert_eq!(delta(&server, &piped["id"])["summary"], "from a file");
    for (args, numbered) in [
        (
            vec!["remember", "rule", "never on a Friday", "--tags", "release"],
            false,
        ),
        (
            vec![
                "remember",
                "integration_narrative",
                "--sees",
                "one bell",
                "--piece",
                &note_id[..8],
                "--breaks",
                "two homes",
            ],
            false,
        ),
        (
            vec![
                "remember",
                "note",
                "it still hums",
                "--supersedes",
                &note_id[..8],
            ],
            false,
        ),
        (vec!["journal", "a calm day", "--title", "Tuesday"], true),
        (
            vec![
                "retro", "--well", "tests", "--badly", "haste", "--change", "recall",
            ],
            true,
        ),
        (
            vec![
                "postmortem",
                "lost rows",
                "--happened",
                "gone",
                "--choice-point",
                "a backup",
                "--prevention",
                "try it",
            ],
            true,
        ),
        (vec!["postmortem", "--resolve", "1"], true),
        (
            vec![
                "decide",
                "a ring",
                "--context",
                "speed",
                "--decision",
                "a file",
            ],
            true,
        ),
        (
            vec![
                "decide",
                "no ring",
                "--context",
                "doubt",
                "--decision",
                "memory",
                "--supersedes",
                "1",
            ],
            true,
        ),
    ] {
        let kept = answer(&server, None, &args);
        assert!(kept["id"].is_string(), "{args:?}: {kept}");
        assert_eq!(kept["number"].is_i64(), numbered, "{args:?}: {kept}");
    }
    let printed = server.ok(None, &["remember", "fact", "the cable is blue"]);
    assert!(printed.starts_with("kept as "), "{printed}");
}

#[test]
fn specs_plans_and_todos_are_written_changed_shown_and_listed() {
    let server = Server::start();
    for kind in ["spec", "plan"] {
        let made = fed(
            &server,
            None,
            &[kind, "create", "The ring", "-"],
            "# Ring\n\n    a line a frame\n",
        );
        assert_eq!((&made["number"], &made["version"]), (&json!(1), &json!(1)));
        let changed = answer(
            &server,
            None,
            &[
                kind, "update", "1", "--body", "short", "--status", "accepted",
            ],
        );
        assert_eq!(changed["version"], 2);
        let newest = answer(&server, None, &[kind, "get", "1"]);
        assert_eq!(
            (&newest["item"]["body"], &newest["item"]["status"]),
            (&json!("short"), &json!("accepted"))
        );
        let printed = server.ok(None, &[kind, "get", "1", "--at", "1"]);
        assert!(printed.contains("\n    a line a frame"), "{printed}");
        let listed = answer(&server, None, &[kind, "list", "--status", "accepted"]);
        assert_eq!(listed["items"].as_array().unwrap().len(), 1);
        let none = server.ok(None, &[kind, "list", "--status", "dropped"]);
        assert_eq!(none, format!("no {kind}s\n"));
        let unknown = server.cli(None, &[kind, "get", "9"]);
        assert_eq!(unknown.status.code(), Some(2));
    }
    server.ok(None, &["todo", "add", "sweep", "--tags", "a,b"]);
    let changed = answer(
        &server,
        None,
        &[
            "todo", "update", "1", "--title", "sweep it", "--status", "doing",
        ],
    );
    assert_eq!(changed["version"], 2);
    let listed = answer(&server, None, &["todo", "list", "--status", "doing"]);
    assert_eq!(listed["items"][0]["title"], "sweep it");
    let wrong = server.cli(None, &["todo", "update", "1", "--status", "someday"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("dropped"), "{}", stderr(&wrong));
    assert_eq!(answer(&server, None, &["todo", "done", "1"])["number"], 1);
}

#[test]
fn a_recall_that_finds_nothing_is_a_no_in_either_form_and_one_that_helped_is_cited() {
    let server = Server::start();
    server.ok(None, &["note", "the zebra crossing is painted blue"]);
    for args in [
        vec!["recall", "zebra", "--kinds", "decision"],
        vec!["recall", "zebra", "--kinds", "decision", "--json"],
    ] {
        let output = server.cli(None, &args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
    }
    let found = answer(&server, None, &["recall", "zebra"]);
    let (event, row) = (
        found["recall_event_id"].as_str().unwrap(),
        found["results"][0]["id"].as_str().unwrap(),
    );
    let printed = server.ok(None, &["recall", "zebra"]);
    assert!(printed.contains("prism cite "), "{printed}");
    let cited = answer(
        &server,
        None,
        &["cite", &event[..8], &row[..8], "--for", "paint"],
    );
    assert_eq!(cited, json!({"ok": true}));
    assert_eq!(answer(&server, None, &["memory", "stats"])["citations"], 1);
    let wrong = server.cli(None, &["cite", &event[..8], "deadbeef"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(stderr(&wrong).contains("did not bring"));
}

#[test]
fn an_acknowledgment_shows_the_gates_warning_to_people_too() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call(
        "prism_signal",
        task("Texi", "implement docs/specs/spec-060.md"),
    );
    texi.call("prism_signals_pending", json!({}));
    let id = sent["signal_id"].as_str().unwrap();
    let output = server.cli(Some("Texi"), &["signals", "ack", &id[..8]]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "noted\n");
    let said = stderr(&output);
    assert!(
        said.starts_with("warning: ") && said.contains("prism recall"),
        "{said}"
    );
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_one_is() {
    let server = Server::start();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = server
        .command(None)
        .args(["recall", "nothing at all"])
        .stdin(Stdio::null())
        .stdout(writer)
        .output()
        .unwrap();
    assert_eq!(closed.status.code(), Some(0), "{}", stderr(&closed));
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let full = server
        .command(None)
        .arg("status")
        .stdin(Stdio::null())
        .stdout(full)
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(2));
    assert!(
        stderr(&full).contains("standard output"),
        "{}",
        stderr(&full)
    );
}

#[test]
fn what_is_wrong_with_a_home_is_said_with_what_to_do() {
    let server = Server::none();
    let folder = server.folder();
    let write = |path: &str, bytes: &[u8]| {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    write("file", b"x");
    write("config/config.toml", b"garbage = [");
    write("garbage/prism.db", &[7; 100_000]);
    write("database/prism.db/x", b"");
    write("address/server.json/x", b"");
    let serve = ["serve", "--port", "0", "--database", "sqlite:"];
    let status = ["status"];
    for (home, args, says, hint) in [
        ("file", &serve[..], "is not a folder", "PRISM_HOME"),
        ("file", &status[..], "is not a folder", "PRISM_HOME"),
        ("/dev/null", &serve[..], "is not a folder", "PRISM_HOME"),
        ("/dev/null", &status[..], "is not a folder", "PRISM_HOME"),
        ("/proc/x", &serve[..], "cannot create", "PRISM_HOME"),
        ("config", &serve[..], "line 1", "move it away"),
        ("config", &status[..], "line 1", "move it away"),
        ("garbage", &serve[..], "not a database", "move it away"),
        ("database", &serve[..], "prism.db", "move away"),
        ("address", &serve[..], "server.json", "move it away"),
    ] {
        let mut command = server.command(None);
        let output = command.env("PRISM_HOME", folder.join(home)).args(args);
        let output = output.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{home}: {said}");
        let (told, step) = said.split_once("hint: ").unwrap_or((&said, ""));
        assert!(told.contains(says), "{home} {args:?}: {said}");
        assert!(step.contains(hint), "{home} {args:?}: {said}");
    }
}

#[test]
fn without_a_home_nothing_is_written_into_the_working_folder() {
    let server = Server::none();
    for args in [&["status"][..], &["serve", "--port", "0"], &["mcp"]] {
        let mut command = server.command(None);
        command.env_remove("HOME").env_remove("PRISM_HOME");
        let output = command.args(args).stdin(std::process::Stdio::null());
        let output = output.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("hint: set PRISM_HOME"), "{args:?}: {said}");
    }
    let mut line = server.command(Some("Texi"));
    line.env_remove("HOME").env_remove("PRISM_HOME");
    let line = line.arg("statusline").output().unwrap();
    assert!(line.status.success() && !line.stdout.is_empty(), "{line:?}");
    assert!(!server.folder().join(".prism").exists());
}

#[test]
fn an_inbox_is_not_read_to_a_closed_output() {
    let server = Server::start();
    let donna = server.agent("Donna");
    server.ok(None, &["send", "Donna", "somebody must see this"]);
    drop(donna);
    for (command, ends) in [
        ("\"$0\" pending >&-", Some(2)),
        ("\"$0\" wait --timeout 1 >&-", Some(2)),
        ("\"$0\" pending > /dev/null", Some(0)),
    ] {
        let waits = server.ok(None, &["--json", "status"]);
        let waits: Value = serde_json::from_str(&waits).unwrap();
        let donna = waits["personas"].as_array().unwrap().iter();
        let mut donna = donna.filter(|p| p["identity"] == "Donna");
        assert_eq!(donna.next().unwrap()["pending"]["INFO"], 1, "{waits}");
        let prism = server.command(Some("Donna"));
        let mut shell = std::process::Command::new("sh");
        shell.env_clear().current_dir(server.folder());
        for (name, value) in prism.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let shell = shell.arg("-c").arg(command).arg(prism.get_program());
        let ended = shell.output().unwrap();
        assert_eq!(ended.status.code(), ends, "{command}: {}", stderr(&ended));
    }
    assert!(
        server
            .ok(Some("Donna"), &["pending"])
            .contains("nothing waits")
    );
}
