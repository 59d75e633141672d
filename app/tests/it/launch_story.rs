//! Starting things: one background server a home, who replaces whom, and hosts in real terminals.

use crate::harness::{Agent, BIN, PID, Pty, Server, ids, task, wait_for};
use prism::client::Unreachable;
use prism::config::ServerFile;
use prism_core::limits::{LOG_BYTES_MAX, LOG_GENERATIONS};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

const NEWER: [(&str, &str); 1] = [("PRISM_TEST_VERSION", "99.0.0")];
/// The title of the window is kept, and given back.
const PUSH: &str = "\u{1b}[22;2t";
const POP: &str = "\u{1b}[23;2t";

/// A command of a person or host who wants a server.
fn wanting(server: &Server, identity: Option<&str>) -> Command {
    let mut command = server.command(identity);
    command.env_remove("PRISM_AUTOSTART");
    command
}

/// The environment that a command would get.
fn variables(command: &Command) -> Vec<(OsString, OsString)> {
    let set = |(name, value): (&OsStr, Option<&OsStr>)| Some((name.into(), value?.into()));
    command.get_envs().filter_map(set).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn run(server: &Server, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = wanting(server, None);
    command.args(args).envs(env.iter().copied());
    command.stdin(Stdio::null()).output().unwrap()
}

/// `prism <args> --json`, which must succeed.
#[track_caller]
fn told(server: &Server, args: &[&str], env: &[(&str, &str)]) -> Value {
    let output = run(server, &[args, &["--json"]].concat(), env);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn alive(pid: u64) -> bool {
    Pid::from_raw(pid as i32).is_some_and(|pid| test_kill_process(pid).is_ok())
        && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| s.contains(") Z "))
}

fn kill(pid: u64) {
    kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
}

/// The field of `/proc/<pid>/stat` with this number, as `man proc` counts.
fn stat(pid: u64, field: usize) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    fields[field - 3].parse().unwrap()
}

/// The processes that were started with this word among their arguments.
fn processes_with(word: &str) -> Vec<u64> {
    let dirs = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = dirs.filter_map(|d| d.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &u64| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|b| *b == 0).any(|arg| arg == word.as_bytes()) && alive(*pid)
    })
    .collect()
}

#[test]
fn up_starts_one_server_that_holds_nothing_of_its_starter() {
    let server = Server::none();
    let host = [
        ("PRISM_AGENT_IDENTITY", "Donna"),
        ("PRISM_API_KEY", "prk_x"),
        ("CLAUDECODE", "1"),
        ("CODEX_THREAD_ID", "x"),
    ];
    let up = told(&server, &["up"], &host);
    assert_eq!(
        (&up["state"], &up["autostarted"]),
        (&json!("started"), &json!(true))
    );
    let pid = up["pid"].as_u64().unwrap();
    let file: Value = serde_json::from_str(&server.home().read("server.json").unwrap()).unwrap();
    assert_eq!(
        (&file["pid"], &file["url"], &file["autostarted"]),
        (&json!(pid), &up["url"], &json!(true))
    );
    // A session of its own, nobody's child here, in a folder that nobody wants to remove.
    let me = u64::from(std::process::id());
    assert_ne!(stat(pid, 6), stat(me, 6), "another session");
    assert_ne!(
        stat(pid, 6),
        pid,
        "not its leader, so it never gets a terminal"
    );
    assert_ne!(stat(pid, 4), me);
    let cwd = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, server.home().dir().canonicalize().unwrap());
    let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environ = String::from_utf8_lossy(&environ).into_owned();
    for name in [
        "IDENTITY",
        "API_KEY",
        "PRISM_PID",
        "PRISM_URL",
        "CLAUDE",
        "CODEX",
        "DOORBELL",
    ] {
        assert!(!environ.contains(name), "{name}: {environ}");
    }
    let again = told(&server, &["up"], &[]);
    assert_eq!(
        (&again["state"], &again["pid"]),
        (&json!("running"), &json!(pid))
    );
    assert!(server.ok(None, &["doctor"]).contains("in the background"));
    assert!(
        server
            .ok(None, &["up"])
            .contains(up["url"].as_str().unwrap())
    );

    let down = told(&server, &["down"], &[]);
    assert_eq!(down, json!({"stopped": true, "pid": pid}));
    wait_for("the process to end", || (!alive(pid)).then_some(()));
    assert!(!server.home().path("server.json").exists());
    assert_eq!(told(&server, &["down"], &[])["stopped"], json!(false));
}

#[test]
fn several_starters_at_once_end_with_one_server() {
    let server = Server::none();
    let starters: Vec<_> = (0..5)
        .map(|_| {
            let mut command = wanting(&server, None);
            command.args(["up", "--json"]).stdin(Stdio::null());
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut pids: Vec<u64> = starters
        .into_iter()
        .map(|starter| {
            let output = starter.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            let up: Value = serde_json::from_slice(&output.stdout).unwrap();
            up["pid"].as_u64().unwrap()
        })
        .collect();
    pids.dedup();
    assert_eq!(pids.len(), 1, "{pids:?}");
    let home = server.home().dir().to_string_lossy().into_owned();
    wait_for("the others to end", || {
        (processes_with(&home) == pids).then_some(())
    });
}

#[test]
fn a_restart_keeps_the_port_and_what_waits() {
    let server = Server::none();
    let up = told(&server, &["up", "--port", "0"], &[]);
    server.ok(None, &["key", "mint", "Texi"]);
    server.ok(
        None,
        &["send", "Texi", "look at the ring", "--type", "TaskAssigned"],
    );
    let back = told(&server, &["restart"], &[]);
    assert_ne!(up["pid"], back["pid"]);
    assert_eq!(up["url"], back["url"]);
    let waits = server.ok(Some("Texi"), &["pending", "--json"]);
    assert!(waits.contains("look at the ring"), "{waits}");
}

#[test]
fn a_server_in_a_terminal_is_neither_stopped_restarted_nor_replaced() {
    let server = Server::start();
    let (pid, file) = (server.pid(), server.home().read("server.json").unwrap());
    assert!(file.contains("\"autostarted\": false"), "{file}");
    for args in [&["down"][..], &["restart"]] {
        let refused = run(&server, args, &[]);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(
            stderr(&refused).contains(&pid.to_string()),
            "{}",
            stderr(&refused)
        );
    }
    let up = run(&server, &["up"], &NEWER);
    assert!(
        up.status.success() && stderr(&up).contains("restart it there"),
        "{}",
        stderr(&up)
    );
    assert!(server.ok(None, &["doctor"]).contains("in a terminal"));
    assert_eq!(ServerFile::load(&server.home()).unwrap().pid, pid);
    let forced = told(&server, &["down", "--force"], &[]);
    assert_eq!(forced["pid"], json!(pid));
}

#[test]
fn a_server_that_cannot_start_says_why_and_a_port_that_is_taken_is_named() {
    let server = Server::none();
    server.home().create().unwrap();
    server
        .home()
        .write("config.toml", b"operator = 7\n")
        .unwrap();
    let failed = run(&server, &["up"], &[]);
    assert_eq!(failed.status.code(), Some(2));
    let said = stderr(&failed);
    assert!(
        said.contains("config.toml is not valid in line 1"),
        "{said}"
    );
    assert!(said.contains("prism logs"), "{said}");
    let logs = run(&server, &["logs"], &[]);
    assert!(String::from_utf8_lossy(&logs.stdout).contains("config.toml"));

    server.home().remove("config.toml");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let failed = run(&server, &["up", "--port", &port], &[]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(stderr(&failed).contains(&port), "{}", stderr(&failed));
    let elsewhere = run(&server, &["up"], &[("PRISM_URL", "http://127.0.0.1:1")]);
    assert_eq!(elsewhere.status.code(), Some(2));
    assert!(ServerFile::load(&server.home()).is_none());
}

#[test]
fn the_log_begins_anew_when_it_is_long_is_private_and_holds_no_key() {
    let server = Server::none();
    let home = server.home();
    home.folder("log").unwrap();
    for n in (1..=LOG_GENERATIONS).rev() {
        home.write(&format!("log/server.log.{n}"), n.to_string().as_bytes())
            .unwrap();
    }
    let long = "an old line\n".repeat(LOG_BYTES_MAX as usize / 12 + 1);
    home.write("log/server.log", long.as_bytes()).unwrap();
    told(&server, &["up"], &[("PRISM_LOG", "trace")]);
    server.ok(None, &["key", "mint", "Texi"]);
    let mut texi = Agent::run(&mut server.command(Some("Texi")));
    texi.call("prism_start", json!({}));
    told(&server, &["restart"], &[("PRISM_LOG", "trace")]);
    texi.call("prism_status", json!({}));
    let log = home.read("log/server.log").unwrap();
    assert!(log.contains("is listening") && log.len() < LOG_BYTES_MAX as usize);
    assert!(!log.contains("an old line"));
    assert!(
        home.read("log/server.log.1")
            .unwrap()
            .contains("an old line")
    );
    assert_eq!(home.read("log/server.log.2").unwrap(), "1");
    assert_eq!(
        home.list("log", "server.log", "").len(),
        1 + LOG_GENERATIONS
    );
    assert_eq!(
        (home.mode("log/server.log"), home.mode("log")),
        (Some(0o600), Some(0o700))
    );
    let secret = server.operator_key().replace("prk_", "");
    for name in home.list("log", "server.log", "") {
        assert!(
            !home.read(&format!("log/{name}")).unwrap().contains(&secret),
            "{name}"
        );
    }
    assert!(
        server
            .ok(None, &["logs", "-n", "200"])
            .contains("is listening")
    );
    let one = told(&server, &["logs", "-n", "1"], &[]);
    assert_eq!(one["lines"].as_array().unwrap().len(), 1);
}

#[test]
fn a_log_can_be_followed_while_the_server_is_replaced() {
    let server = Server::none();
    assert_eq!(run(&server, &["logs"], &[]).status.code(), Some(1));
    told(&server, &["up"], &[]);
    let mut follow = wanting(&server, None)
        .args(["logs", "-f", "-n", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = follow.stdout.take().unwrap();
    let (tell, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = out.read(&mut bytes) {
            let _ = tell.send(String::from_utf8_lossy(&bytes[..n]).into_owned());
        }
    });
    let mut text = heard.recv_timeout(crate::harness::PATIENCE).unwrap();
    told(&server, &["restart"], &[]);
    wait_for("what was logged later", || {
        text.extend(heard.try_iter());
        (text.contains("Stopped") && text.contains("is listening")).then_some(())
    });
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn a_newer_binary_replaces_an_older_background_server_and_an_older_one_never_does() {
    let server = Server::none();
    let old = told(&server, &["up"], &[("PRISM_TEST_VERSION", "0.2.0")]);
    assert_eq!(old["version"], "0.2.0");
    let new = told(&server, &["up"], &[("PRISM_TEST_VERSION", "0.10.0")]);
    assert_eq!(
        (&new["state"], &new["version"]),
        (&json!("replaced"), &json!("0.10.0"))
    );
    assert_eq!(
        new["replaced"],
        json!({"version": "0.2.0", "pid": old["pid"]})
    );
    assert!(!alive(old["pid"].as_u64().unwrap()));
    for version in ["0.9.0", "0.10.0-rc.1", "0.10.0"] {
        let same = told(&server, &["up"], &[("PRISM_TEST_VERSION", version)]);
        assert_eq!(
            (&same["state"], &same["pid"]),
            (&json!("running"), &new["pid"]),
            "{version}"
        );
    }
    let refused = run(&server, &["restart"], &[("PRISM_TEST_VERSION", "0.9.0")]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(alive(new["pid"].as_u64().unwrap()), "the newer one stays");
    let said = run(&server, &["up"], &NEWER);
    assert!(
        stderr(&said).contains("replaced the background server 0.10.0"),
        "{}",
        stderr(&said)
    );
}

#[test]
fn a_replacement_loses_no_signal_and_the_shims_find_the_new_server() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let mut texi = Agent::run(&mut server.command(Some("Texi")));
    texi.call("prism_start", json!({}));
    let operator = server.operator();
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let sending = std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut sent = Vec::new();
            while stopped.try_recv().is_err() {
                let body = task("Texi", &format!("task {}", sent.len()));
                let body = body.as_object().unwrap().clone();
                let answer = operator
                    .send_signal(PID, body, Unreachable::Say)
                    .await
                    .unwrap();
                sent.push(answer["signal_id"].as_str().unwrap().to_owned());
                // Below the rate of one key.
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            sent
        })
    });
    let mut seen = Vec::new();
    for version in ["1.0.0", "1.1.0", "1.2.0"] {
        let up = told(&server, &["up"], &[("PRISM_TEST_VERSION", version)]);
        assert_eq!(up["state"], "replaced");
        seen.extend(ids(&texi.call("prism_signals_pending", json!({}))));
    }
    stop.send(()).unwrap();
    let sent = sending.join().unwrap();
    wait_for("every signal", || {
        seen.extend(ids(
            &texi.call("prism_signals_pending", json!({"limit": 100}))
        ));
        sent.iter().all(|id| seen.contains(id)).then_some(())
    });
    assert_eq!(ServerFile::load(&server.home()).unwrap().version, "1.2.0");
}

/// Leaves a database as an older version wrote it, with a row in it.
fn older_database(server: &Server, schemas: usize) -> rusqlite::Connection {
    server.home().create().unwrap();
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/sqlite");
    let mut files: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .flatten()
        .map(|f| f.path())
        .collect();
    files.sort();
    let database = rusqlite::Connection::open(server.home().path("prism.db")).unwrap();
    for file in &files[..schemas] {
        database
            .execute_batch(&std::fs::read_to_string(file).unwrap())
            .unwrap();
    }
    database
        .pragma_update(None, "user_version", schemas as i64)
        .unwrap();
    database
        .execute_batch(
            "insert into tenants values ('8a6d1f1e-3c55-4d0e-9a43-0c1f6f1f7f11', 'kept', 1)",
        )
        .unwrap();
    database
}

fn schema(file: &std::path::Path) -> (i64, i64, String) {
    let database = rusqlite::Connection::open(file).unwrap();
    let version = database
        .pragma_query_value(None, "user_version", |r| r.get(0))
        .unwrap();
    let ask = |sql: &str| -> String { database.query_row(sql, [], |r| r.get(0)).unwrap() };
    let tables = database
        .query_row("select count(*) from sqlite_schema", [], |r| r.get(0))
        .unwrap();
    (version, tables, ask("select name from tenants"))
}

#[test]
fn a_database_is_copied_before_it_is_upgraded() {
    let server = Server::none();
    drop(older_database(&server, 9));
    let before = schema(&server.home().path("prism.db"));
    let up = told(&server, &["up"], &NEWER);
    let copy = std::path::PathBuf::from(up["backup"].as_str().unwrap());
    assert!(copy.starts_with(server.home().path("backups").canonicalize().unwrap()));
    assert_eq!(schema(&copy), before, "the copy is as the database was");
    assert_eq!(
        std::fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert!(schema(&server.home().path("prism.db")).0 > 9);
    assert_eq!(server.home().list("backups", "prism-", "").len(), 1);
    let next = told(&server, &["restart"], &NEWER);
    assert!(
        next["backup"].is_null(),
        "nothing to upgrade, nothing to copy"
    );
}

#[test]
fn an_upgrade_that_fails_leaves_the_database_as_it_was_and_says_where_the_copy_is() {
    let server = Server::none();
    let database = older_database(&server, 9);
    // The second of the missing migrations finds its place taken.
    database
        .execute_batch("create table memory_counts (x)")
        .unwrap();
    drop(database);
    let before = schema(&server.home().path("prism.db"));
    let failed = run(&server, &["up"], &[]);
    assert_eq!(failed.status.code(), Some(2));
    let said = stderr(&failed);
    assert!(
        said.contains("it is as it was") && said.contains("backups/not-upgraded.db"),
        "{said}"
    );
    assert_eq!(schema(&server.home().path("prism.db")), before);
    let copy = server.home().path("backups/not-upgraded.db");
    assert_eq!(schema(&copy), before);
    for _ in 0..4 {
        run(&server, &["up"], &[]);
    }
    let kept = server.home().list("backups", "", "");
    assert_eq!(kept, ["not-upgraded.db"], "one, however often it was tried");
}

#[test]
fn a_starting_shim_brings_its_server_which_outlives_it_and_holds_no_pipe() {
    let server = Server::none();
    let mcp = wanting(&server, Some("Texi"));
    // A host may leave more of its pipes open than it means to.
    let inner = format!("exec 9>&1; exec {BIN} \"$0\"");
    let mut shell = Command::new("sh");
    shell
        .args(["-c", &inner])
        .env_clear()
        .current_dir(server.folder());
    shell.envs(variables(&mcp));
    let mut texi = Agent::run(&mut shell);
    assert_eq!(texi.init["result"]["serverInfo"]["name"], "prism");
    let started = texi.call("prism_start", json!({}));
    assert_eq!(started["identity"], "Texi");
    let file = ServerFile::load(&server.home()).unwrap();
    assert!(file.autostarted);
    // Everything it wrote is read to the end of its pipe, though the server lives.
    assert_eq!(texi.leave(), Some(0));
    assert!(alive(file.pid.into()));
    assert_eq!(ServerFile::load(&server.home()).unwrap().pid, file.pid);
}

#[test]
fn nobody_starts_a_server_who_was_not_asked_to() {
    let server = Server::none();
    let status = run(&server, &["status"], &[]);
    assert_eq!(status.status.code(), Some(2));
    assert!(stderr(&status).contains("prism up"), "{}", stderr(&status));
    let mut off = Agent::run(&mut server.command(Some("Texi")));
    let refused = off.refused("prism_start", json!({}));
    assert_eq!(refused["code"], "server_unreachable");
    assert!(
        refused["hint"].as_str().unwrap().contains("prism up"),
        "{refused}"
    );
    let key = prism::clock::new_key().unwrap();
    let elsewhere = [
        ("PRISM_URL", "http://127.0.0.1:9"),
        ("PRISM_API_KEY", key.as_str()),
    ];
    let mut far = Agent::run(wanting(&server, Some("Texi")).envs(elsewhere));
    assert_eq!(
        far.refused("prism_start", json!({}))["code"],
        "server_unreachable"
    );
    assert!(server.home().lock_holder(ServerFile::LOCK).is_none());

    // A shim that had reached one waits for it to come back; it starts none.
    told(&server, &["up"], &[]);
    let mut texi = Agent::run(&mut wanting(&server, Some("Texi")));
    texi.call("prism_start", json!({}));
    told(&server, &["down"], &[]);
    let refused = texi.refused("prism_status", json!({}));
    assert!(
        refused["hint"].as_str().unwrap().contains("prism up"),
        "{refused}"
    );
    assert!(server.home().lock_holder(ServerFile::LOCK).is_none());
    told(&server, &["up"], &[]);
    texi.call("prism_status", json!({}));
}

#[test]
fn a_shim_whose_server_cannot_start_answers_and_says_why() {
    let server = Server::none();
    server.home().create().unwrap();
    server
        .home()
        .write("config.toml", b"operator = 7\n")
        .unwrap();
    let mut texi = Agent::run(&mut wanting(&server, Some("Texi")));
    let refused = texi.refused("prism_start", json!({}));
    assert_eq!(refused["code"], "server_unreachable");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("not valid in line 1"),
        "{refused}"
    );
    assert!(
        refused["hint"].as_str().unwrap().contains("prism up"),
        "{refused}"
    );
    assert!(texi.call("prism_signals", json!({}))["count"].is_object());
}

#[test]
fn a_shim_of_another_version_is_served_told_or_brings_the_newer_server() {
    let server = Server::none();
    told(&server, &["up"], &[("PRISM_TEST_VERSION", "2.0.0")]);
    let texi = |version: &str| {
        let mut command = wanting(&server, Some("Texi"));
        Agent::run(command.env("PRISM_TEST_VERSION", version))
    };
    assert_eq!(
        texi("1.9.0").call("prism_start", json!({}))["identity"],
        "Texi"
    );
    let refused = texi("0.0.9").refused("prism_start", json!({}));
    assert_eq!(refused["code"], "client_too_old");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .contains("0.1.0 or newer"),
        "{refused}"
    );
    assert_eq!(ServerFile::load(&server.home()).unwrap().version, "2.0.0");
    let mut newer = texi("2.1.0");
    let started = newer.call("prism_start", json!({}));
    assert_eq!(started["warnings"][0]["kind"], "server_version");
    let said = started["warnings"][0]["remediation"].as_str().unwrap();
    assert!(
        said.contains("replaced the background server 2.0.0"),
        "{said}"
    );
    assert_eq!(ServerFile::load(&server.home()).unwrap().version, "2.1.0");
}

#[test]
fn a_background_server_ends_when_its_home_is_removed() {
    let server = Server::none();
    let up = told(&server, &["up"], &[]);
    // A server that has just begun may still put a file where one was taken away.
    wait_for("the home to go", || {
        drop(std::fs::remove_dir_all(server.home().dir()));
        (!server.home().dir().exists()).then_some(())
    });
    let pid = up["pid"].as_u64().unwrap();
    wait_for("the server to end", || (!alive(pid)).then_some(()));
}

/// `prism coder --as Donna -- sh -c <script>`.
fn coder(server: &Server, script: &str) -> Command {
    let mut command = wanting(server, None);
    command.args(["coder", "--as", "Donna", "--", "sh", "-c", script]);
    command
}

#[test]
fn a_host_gets_its_name_and_project_and_its_exit_code_is_passed_on() {
    let server = Server::none();
    let script = "echo $PRISM_AGENT_IDENTITY $PRISM_PID $PRISM_HOME; exit 7";
    let ran = coder(&server, script).output().unwrap();
    assert_eq!(ran.status.code(), Some(7), "{}", stderr(&ran));
    let home = server.home().dir().display().to_string();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        format!("Donna {PID} {home}\n")
    );
    assert!(stderr(&ran).contains("started prism"), "{}", stderr(&ran));
    let all = [ran.stdout, ran.stderr].concat();
    assert!(!all.contains(&0x1b), "without a terminal there is no title");
    let first = ServerFile::load(&server.home()).unwrap();
    for (script, code) in [
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("exit 0", 0),
        ("exit 255", 255),
    ] {
        let ran = coder(&server, script).output().unwrap();
        assert_eq!(ran.status.code(), Some(code), "{script}");
    }
    assert_eq!(ServerFile::load(&server.home()).unwrap().pid, first.pid);
    // What the shell opened for the host stays open for it, also while a server is started.
    told(&server, &["down"], &[]);
    std::fs::write(server.folder().join("text"), "from the shell").unwrap();
    let mut shell = Command::new("sh");
    let inner = "exec 7<text; exec \"$0\" coder --as Donna -- sh -c 'cat <&7'";
    shell.args(["-c", inner, BIN]).env_clear();
    shell.envs(variables(&wanting(&server, None)));
    let ran = shell.current_dir(server.folder()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "from the shell");
    // What was only found is not handed on as if somebody had named it.
    let mut found = coder(&server, "echo ${PRISM_PID-none}");
    let ran = found.env_remove("PRISM_PID").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "none\n");
    let mut named = wanting(&server, None);
    named.env_remove("PRISM_PID");
    named.args([
        "coder",
        "--as",
        "Donna",
        "--project",
        "PID-X",
        "--",
        "sh",
        "-c",
        "echo $PRISM_PID",
    ]);
    assert_eq!(
        String::from_utf8_lossy(&named.output().unwrap().stdout),
        "PID-X\n"
    );
}

#[test]
fn a_launcher_that_cannot_run_says_so_with_exit_code_2() {
    let server = Server::none();
    std::fs::write(server.folder().join("text"), "no program").unwrap();
    for (args, said) in [
        (&["coder", "--", "sh"][..], "whose terminal"),
        (&["coder", "--as", "Bot", "--", "sh"], "without a name"),
        (
            &["coder", "--as", "Donna", "--", "no-such-host"],
            "no-such-host",
        ),
        (&["coder", "--as", "Donna", "--", "./text"], "./text"),
        (&["coder", "--as", "Donna"], "required"),
        (&["coder", "--as", "1", "--", "sh"], "identity"),
    ] {
        let ran = run(&server, args, &[]);
        assert_eq!(ran.status.code(), Some(2), "{args:?}");
        assert!(stderr(&ran).contains(said), "{args:?}: {}", stderr(&ran));
    }
    server.home().create().unwrap();
    server
        .home()
        .write("config.toml", b"operator = 7\n")
        .unwrap();
    run(&server, &["down"], &[]);
    let ran = coder(&server, "echo ran").output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
    assert!(
        stderr(&ran).contains("PRISM_AUTOSTART=0"),
        "{}",
        stderr(&ran)
    );
    let ran = coder(&server, "echo ran")
        .env("PRISM_AUTOSTART", "0")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "ran\n");
    assert!(stderr(&ran).contains("prism up"), "{}", stderr(&ran));
}

/// Puts a count file beside the ring, as a shim does.
fn unread(server: &Server, ask: u32) {
    let count = json!({"unread": ask, "by_cat": {"INFO": 0, "TASK": 0, "ASK": ask, "BLOCKER": 0},
        "last_sid": null, "last_ts": null, "latest_actionable": null});
    server
        .home()
        .write("sigcount-Donna.json", count.to_string().as_bytes())
        .unwrap();
}

fn titles(written: &str) -> Vec<String> {
    let mut titles = Vec::new();
    for part in written.split("\u{1b}]2;").skip(1) {
        titles.push(part.split('\u{7}').next().unwrap().to_owned());
    }
    titles
}

#[test]
fn a_terminals_title_follows_what_waits_and_is_given_back() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let mut terminal = Pty::run(&coder(&server, "read x; echo got $x; read y"));
    terminal.shows("[Donna] PID-TEST\u{7}");
    unread(&server, 2);
    terminal.shows("[Donna] PID-TEST · 🔔 2 ASK\u{7}");
    terminal.types("hello\r");
    terminal.shows("got hello");
    unread(&server, 0);
    wait_for("the bell to go", || {
        (titles(&terminal.written()).len() == 3).then_some(())
    });
    terminal.types("\r");
    assert_eq!(terminal.code(), 0);
    let written = terminal.written();
    let plain = "[Donna] PID-TEST";
    let belled = format!("{plain} · 🔔 2 ASK");
    assert_eq!(
        titles(&written),
        [plain, &belled, plain, ""],
        "only when it changes: {written:?}"
    );
    assert_eq!(
        (written.matches(PUSH).count(), written.matches(POP).count()),
        (1, 1)
    );
    assert!(written.ends_with(POP), "{written:?}");

    let mut quiet = wanting(&server, None);
    quiet.args(["coder", "--as", "Donna", "--no-title", "--", "true"]);
    let mut terminal = Pty::run(&quiet);
    assert_eq!(terminal.code(), 0);
    assert!(
        !terminal.written().contains('\u{1b}'),
        "{:?}",
        terminal.written()
    );
}

#[test]
fn a_killed_host_leaves_the_terminal_as_it_was_and_no_process() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let mut terminal = Pty::run(&coder(
        &server,
        "stty raw -echo; echo pid=$$; exec sleep 1234",
    ));
    terminal.shows("pid=");
    terminal.shows("[Donna]");
    let host = wait_for("the host", || {
        let pids = processes_with("1234");
        pids.into_iter()
            .find(|pid| stat(*pid, 6) == u64::from(terminal.pid()))
    });
    assert!(!terminal.is_cooked());
    kill(host);
    assert_eq!(terminal.code(), 137);
    assert!(
        terminal.written().ends_with(POP),
        "{:?}",
        terminal.written()
    );
    assert!(terminal.is_cooked(), "nobody else would have mended it");
}

#[test]
fn a_killed_launcher_takes_its_host_along() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let mut terminal = Pty::run(&coder(&server, "echo pid=$$; exec sleep 4321"));
    terminal.shows("pid=");
    let session = u64::from(terminal.pid());
    let host = wait_for("the host", || {
        let pids = processes_with("4321");
        pids.into_iter().find(|pid| stat(*pid, 6) == session)
    });
    kill(session);
    assert_eq!(terminal.code(), 137);
    wait_for("the host to end", || (!alive(host)).then_some(()));
}

#[test]
fn what_is_typed_is_the_hosts_to_answer() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let script = "trap 'echo interrupted; exit 5' INT; echo ready; while :; do sleep 0.05; done";
    let mut terminal = Pty::run(&coder(&server, script));
    terminal.shows("ready");
    terminal.types("\u{3}");
    assert_eq!(terminal.code(), 5);
    assert_eq!(terminal.written().matches("interrupted").count(), 1);
    // Sent to the launcher by hand, a signal reaches the host.
    let script = "trap 'echo told; exit 6' TERM; echo ready; while :; do sleep 0.05; done";
    let mut terminal = Pty::run(&coder(&server, script));
    terminal.shows("ready");
    kill_process(Pid::from_raw(terminal.pid() as i32).unwrap(), Signal::TERM).unwrap();
    assert_eq!(terminal.code(), 6);
}

#[test]
fn what_its_launcher_was_started_to_ignore_a_host_ignores_too() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let wanted = coder(&server, "kill -HUP $PPID; kill -HUP $$; echo still here");
    let mut ignoring = Command::new("sh");
    ignoring.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    ignoring.arg(wanted.get_program()).args(wanted.get_args());
    for (name, value) in wanted.get_envs() {
        match value {
            Some(value) => ignoring.env(name, value),
            None => ignoring.env_remove(name),
        };
    }
    let ran = ignoring.output().unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}", stderr(&ran));
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "still here\n");
}

#[test]
fn a_host_can_be_stopped_and_continued_from_its_shell() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let mut shell = Command::new("bash");
    shell
        .args(["--norc", "--noprofile", "--noediting", "-i"])
        .current_dir(server.folder());
    shell.envs(variables(&wanting(&server, None)));
    shell
        .env("PS1", "READY> ")
        .env("PRISM", BIN)
        .env("HISTFILE", "/dev/null");
    let mut terminal = Pty::run(&shell);
    terminal.shows("READY> ");
    terminal.types(
        "$PRISM coder --as Donna -- sh -c 'read a; echo one-$a; read b; echo two-$b; exit 9'\r",
    );
    terminal.shows("[Donna] PID-TEST\u{7}");
    terminal.types("x\r");
    terminal.shows("one-x");
    terminal.types("\u{1a}");
    terminal.shows("Stopped");
    // The shell has its title back, and its prompt.
    wait_for("the title to be given back", || {
        (terminal.written().matches(POP).count() == 1).then_some(())
    });
    terminal.types("echo in-the-$((1+1))-shell\r");
    terminal.shows("in-the-2-shell");
    terminal.types("fg\r");
    wait_for("the title to come back", || {
        (terminal.written().matches(PUSH).count() == 2).then_some(())
    });
    terminal.types("y\r");
    terminal.shows("two-y");
    terminal.types("echo code-$?\r");
    terminal.shows("code-9");
    terminal.types("exit\r");
    terminal.ends();
}

/// A program called `codex`: its app-server listens, its terminal says how it was called.
const CODEX: &str = r#"#!/usr/bin/env python3
import os, socket, sys
args = sys.argv[1:]
if args[:1] == ["app-server"]:
    if os.path.exists("broken"):
        sys.exit("no such luck")
    path = args[args.index("--listen") + 1].removeprefix("unix://")
    with open("server", "w") as f:
        f.write("\n".join([str(os.getpid()), os.environ["PRISM_AGENT_IDENTITY"], os.environ["PRISM_CODEX_SOCKET"], *args]))
    s = socket.socket(socket.AF_UNIX)
    s.bind(path)
    s.listen()
    while True:
        s.accept()
print("terminal", *args)
sys.stdin.readline()
"#;

#[test]
fn a_codex_terminal_has_an_app_server_of_its_own_which_ends_with_it() {
    let server = Server::none();
    told(&server, &["up"], &[]);
    let bin = server.folder().join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("codex"), CODEX).unwrap();
    std::fs::set_permissions(bin.join("codex"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir_all(server.folder().join(".codex")).unwrap();
    let config = "[mcp_servers.prism]\ncommand = \"prism\"\n";
    std::fs::write(server.folder().join(".codex/config.toml"), config).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", bin.display());
    let codex = |args: &[&str]| {
        let mut command = wanting(&server, None);
        command
            .args(["coder", "--as", "Donna", "--", "codex"])
            .args(args);
        command.env("PATH", &path);
        command
    };
    let mut terminal = Pty::run(&codex(&["-c", "a=b", "fix it"]));
    terminal.shows("terminal --remote unix://");
    let said = std::fs::read_to_string(server.folder().join("server")).unwrap();
    let said: Vec<&str> = said.lines().collect();
    let (pid, socket) = (said[0].parse::<u64>().unwrap(), said[2]);
    terminal.shows(&format!(
        "terminal --remote unix://{socket} -c tui.terminal_title=[] -c a=b fix it"
    ));
    assert_eq!(said[1], "Donna");
    let args = said[3..].join(" ");
    assert!(args.starts_with("app-server -c a=b"), "{args}");
    for (name, value) in [
        ("PRISM_AGENT_IDENTITY", "Donna"),
        ("PRISM_CODEX_SOCKET", socket),
        ("PRISM_PID", PID),
    ] {
        let setting = format!("mcp_servers.prism.env.{name}=\"{value}\"");
        assert!(args.contains(&setting), "{setting}: {args}");
    }
    let folder = std::path::Path::new(socket).parent().unwrap();
    assert!(
        folder.starts_with(server.home().path("run")) || folder.starts_with(std::env::temp_dir())
    );
    assert_eq!(
        std::fs::metadata(folder).unwrap().permissions().mode() & 0o777,
        0o700
    );
    assert!(alive(pid));
    terminal.types("\r");
    assert_eq!(terminal.code(), 0);
    assert!(!alive(pid) && !folder.exists());

    // A launcher that is killed takes its server along, and the next one sweeps its folder.
    let mut terminal = Pty::run(&codex(&[]));
    terminal.shows("terminal --remote");
    let said = std::fs::read_to_string(server.folder().join("server")).unwrap();
    let pid = said.lines().next().unwrap().parse::<u64>().unwrap();
    kill(terminal.pid().into());
    wait_for("the app-server to end", || (!alive(pid)).then_some(()));
    terminal.code();

    // Where there is no server to be had, the identity is still the terminal's own.
    std::fs::write(server.folder().join("broken"), "").unwrap();
    let mut terminal = Pty::run(&codex(&["fix"]));
    terminal.shows("no such luck");
    terminal.shows("terminal --no-daemon -c tui.terminal_title=[] fix");
    assert!(server.home().list("run", "", "").is_empty(), "swept");
    terminal.types("\r");
    assert_eq!(terminal.code(), 0);
    let mut terminal = Pty::run(&codex(&["exec", "fix"]));
    terminal.shows("terminal exec fix");
    terminal.types("\r");
    assert_eq!(terminal.code(), 0);
}

#[test]
fn the_launch_script_starts_the_launcher() {
    let server = Server::none();
    let dir = std::path::Path::new(BIN).parent().unwrap();
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap());
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../bin/coder.sh");
    let mut command = Command::new("sh");
    command.args([
        script,
        "--as",
        "Donna",
        "--",
        "sh",
        "-c",
        "echo $PRISM_AGENT_IDENTITY; exit 4",
    ]);
    command.env_clear();
    command.envs(variables(&wanting(&server, None)));
    let ran = command.env("PATH", path).output().unwrap();
    assert_eq!(
        (ran.status.code(), &ran.stdout[..]),
        (Some(4), &b"Donna\n"[..]),
        "{}",
        stderr(&ran)
    );
}

#[test]
fn a_pipe_in_the_place_of_the_log_is_named_and_nobody_waits_for_it() {
    let server = Server::none();
    server.home().create().unwrap();
    let log = server.home().folder("log").unwrap().join("server.log");
    let made = Command::new("mkfifo").arg(&log).status();
    assert!(made.unwrap().success());
    let up = run(&server, &["up"], &[]);
    assert_eq!(up.status.code(), Some(2));
    let said = stderr(&up);
    assert!(said.contains("log/server.log is not a file"), "{said}");
    run(&server, &["logs"], &[]);
    std::fs::remove_file(log).unwrap();
    told(&server, &["up"], &[]);
    told(&server, &["down"], &[]);
}

#[test]
fn a_server_that_hangs_is_named_with_what_ends_it() {
    let server = Server::start();
    server.stop();
    let kill = format!("kill -9 {}", server.pid());
    for (args, code) in [(&["up"][..], 2), (&["doctor"], 1)] {
        let found = run(&server, args, &[]);
        let said = String::from_utf8_lossy(&found.stdout) + String::from_utf8_lossy(&found.stderr);
        assert_eq!(found.status.code(), Some(code), "{said}");
        assert!(
            said.contains("did not answer within") && said.contains(&kill),
            "{said}"
        );
    }
    server.go_on();
    told(&server, &["up"], &[]);
}

#[test]
fn nobody_is_asked_about_a_change_that_went_into_a_file_unseen() {
    let server = Server::none();
    let known = server.command(None);
    let mut shell = Command::new("sh");
    let line = format!("{BIN} connect claude-code > said.txt");
    shell.args(["-c", &line]).env_clear();
    shell.envs(variables(&known)).current_dir(server.folder());
    let mut terminal = Pty::run(&shell);
    assert_eq!(terminal.code(), 2, "{}", terminal.written());
    let written = terminal.written();
    assert!(written.contains("nobody is here to say yes"), "{written}");
    let said = std::fs::read_to_string(server.folder().join("said.txt")).unwrap();
    assert!(said.contains("mcpServers"), "{said}");
}

/// A pipe whose reader has gone, or a full disk, costs the log and nothing else.
#[test]
fn a_server_whose_log_nobody_reads_any_more_goes_on() {
    let server = Server::none();
    let mut serve = server.command(None);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full");
    serve.args(["serve", "--port", "0"]);
    serve.stdout(full.as_ref().unwrap().try_clone().unwrap());
    serve.stderr(full.unwrap());
    let mut serve = serve.spawn().unwrap();
    wait_for("it serves", || {
        assert_eq!(serve.try_wait().unwrap(), None, "it ended");
        server.home().read("server.json")
    });
    server.ok(None, &["note", "all is well"]);
    let pid = Pid::from_child(&serve);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(serve.wait().unwrap().code(), Some(0));
    drop(server);
}
