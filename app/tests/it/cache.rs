//! Ring, count file and statusline, as several processes write and read them.

use crate::harness::{Agent, Server, ids, task, wait_for};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Stdio;

fn ring(server: &Server, identity: &str) -> Vec<Value> {
    let text = server
        .home()
        .read(&format!("signals-{identity}.jsonl"))
        .unwrap_or_default();
    text.lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

fn count(server: &Server, identity: &str) -> Value {
    server
        .home()
        .read(&format!("sigcount-{identity}.json"))
        .map(|t| serde_json::from_str(&t).unwrap())
        .unwrap_or_default()
}

fn statusline(server: &Server, identity: Option<&str>, args: &[&str]) -> String {
    server.ok(identity, &[&["statusline"], args].concat())
}

#[test]
fn a_signal_enters_the_ring_rings_the_line_and_stays_after_the_drain() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    donna.call("prism_signal", json!({"to": "Texi", "signal_type": "Question", "payload": {"title": "\u{1b}[31mwhich\u{7} \u{202e}port?"}}));
    texi.bell();
    // Whoever hears the bell finds the files.
    let (entry, counted) = (ring(&server, "Texi")[0].clone(), count(&server, "Texi"));
    assert_eq!(
        (
            entry["cat"].as_str(),
            entry["summary"].as_str(),
            entry["read"].as_bool(),
            entry["pid"].as_str()
        ),
        (
            Some("ASK"),
            Some("which port?"),
            Some(false),
            Some("PID-TEST")
        )
    );
    assert_eq!(
        (
            &counted["unread"],
            &counted["by_cat"]["ASK"],
            &counted["latest_actionable"]["from"]
        ),
        (&json!(1), &json!(1), &json!("Donna"))
    );
    let line = statusline(&server, Some("texi"), &["--color", "never"]);
    assert_eq!(line, "[texi] ~ · 🔔 1 ASK · Donna: which port?\n");
    assert!(statusline(&server, Some("Texi"), &[]).contains("\u{1b}[31mASK\u{1b}[0m"));
    assert_eq!(
        texi.call("prism_signals", json!({"action": "count"}))["count"]["unread"],
        1
    );
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
    wait_for("the mark", || {
        (count(&server, "Texi")["unread"] == 0).then_some(())
    });
    assert_eq!(statusline(&server, Some("Texi"), &[]), "[Texi] ~\n");
    let local = texi.call("prism_signals", json!({"action": "both"}));
    assert_eq!(
        (
            local["tail"][0]["read"].as_bool(),
            local["count"]["unread"].as_u64()
        ),
        (Some(true), Some(0))
    );
    assert!(local["count"]["seen_seq"].is_null());
    let modes: Vec<_> = [
        "signals-Texi.jsonl",
        "sigcount-Texi.json",
        "tee-frames-Texi.jsonl",
        "keys/Texi.key",
    ]
    .iter()
    .map(|f| server.home().mode(f))
    .collect();
    assert_eq!(modes, [Some(0o600); 4]);
}

#[test]
fn four_shims_of_one_identity_write_one_ring() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let shims: Vec<Agent> = (0..4).map(|_| server.agent("Texi")).collect();
    let sent: Vec<String> = (0..40)
        .map(|n| {
            donna.call("prism_signal", task("Texi", &format!("{n}")))["signal_id"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    wait_for("all of them in the ring", || {
        (ring(&server, "Texi").len() == sent.len()).then_some(())
    });
    for shim in &shims {
        shim.bell();
    }
    let recorded: Vec<String> = ring(&server, "Texi")
        .iter()
        .map(|e| e["sid"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(recorded, sent, "each once, in order");
    wait_for("the count", || {
        (count(&server, "Texi")["unread"] == 40).then_some(())
    });
}

#[test]
fn what_arrived_while_the_shim_was_dead_is_recorded_once_and_a_kill_loses_nothing() {
    let mut server = Server::start();
    let mut donna = server.agent("Donna");
    let mut texi = server.agent("Texi");
    donna.call("prism_signal", task("Texi", "before"));
    texi.bell();
    texi.kill();
    donna.call("prism_signal", task("Texi", "while it was dead"));
    server.kill();
    server.resume();
    let mut texi = server.agent("Texi");
    texi.bell();
    let summaries: Vec<Value> = ring(&server, "Texi")
        .iter()
        .map(|e| e["summary"].clone())
        .collect();
    assert_eq!(summaries, ["before", "while it was dead"]);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 2);
}

#[test]
fn a_drain_elsewhere_is_learnt_at_the_next_hello() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let texi = server.agent("Texi");
    donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    texi.close();
    // Another machine drains: same identity and key, another home.
    let elsewhere = tempfile::tempdir().unwrap();
    let key = server.home().read("keys/Texi.key").unwrap();
    let drained = server
        .command(Some("Texi"))
        .env("PRISM_HOME", elsewhere.path())
        .env("PRISM_URL", server.url())
        .env("PRISM_API_KEY", key)
        .args(["pending", "--json"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&drained.stdout).contains("TaskAssigned"));
    assert_eq!(count(&server, "Texi")["unread"], 1);
    let _texi = server.agent("Texi");
    wait_for("the count to agree", || {
        (count(&server, "Texi")["unread"] == 0).then_some(())
    });
}

#[test]
fn torn_foreign_and_huge_files_are_skipped_and_reported() {
    let server = Server::start();
    let (mut donna, texi) = (server.agent("Donna"), server.agent("Texi"));
    donna.call("prism_signal", task("Texi", "kept"));
    texi.bell();
    let home = server.home();
    let torn = format!(
        "{}{{\"ts\":\"20\nnot json\n",
        home.read("signals-Texi.jsonl").unwrap()
    );
    home.write("signals-Texi.jsonl", torn.as_bytes()).unwrap();
    assert!(server.ok(None, &["doctor"]).contains("2 torn or foreign"));
    donna.call("prism_signal", task("Texi", "next"));
    wait_for("a mended ring", || {
        (home.read("signals-Texi.jsonl").unwrap().lines().count() == 2).then_some(())
    });
    home.remove("sigcount-Texi.json");
    assert!(
        statusline(&server, Some("Texi"), &["--color=never"]).contains("🔔 2 TASK"),
        "without a count file the ring is read"
    );
    home.write("signals-Texi.jsonl", &vec![b'x'; 5 * 1024 * 1024])
        .unwrap();
    assert!(statusline(&server, Some("Texi"), &[]).starts_with("[Texi] ~"));
    home.write("sigcount-Texi.json", b"{\"unread\":").unwrap();
    assert!(statusline(&server, Some("Texi"), &[]).starts_with("[Texi] ~"));
}

#[test]
fn the_statusline_always_prints_and_takes_its_folder_from_the_host() {
    let server = Server::start();
    assert_eq!(statusline(&server, None, &[]), "~\n");
    assert_eq!(statusline(&server, Some("not an identity"), &[]), "~\n");
    assert!(server.ok(None, &["statusline", "--help"]).contains("Usage"));
    assert_eq!(
        statusline(&server, Some("Texi"), &["--no-such-flag"]),
        "[Texi] ~\n"
    );
    let mut host = server
        .command(Some("Texi"))
        .arg("statusline")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(
        &mut host.stdin.take().unwrap(),
        json!({"cwd": "/x", "workspace": {"current_dir": "/repo"}})
            .to_string()
            .as_bytes(),
    )
    .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&host.wait_with_output().unwrap().stdout),
        "[Texi] /repo\n"
    );
    // A host that holds its end open without a word does not hold up the line.
    let mut silent = server
        .command(Some("Texi"))
        .arg("statusline")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let held = silent.stdin.take();
    let status = wait_for("the line", || silent.try_wait().unwrap());
    drop(held);
    assert!(status.success());
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../bin/statusline-claude-code.sh"
    );
    let wrapped = std::process::Command::new(script)
        .env_clear()
        .env(
            "PATH",
            format!(
                "{}:/usr/bin:/bin",
                std::path::Path::new(crate::harness::BIN)
                    .parent()
                    .unwrap()
                    .display()
            ),
        )
        .env("HOME", server.folder())
        .current_dir(server.folder())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&wrapped.stdout), "~\n");
}

#[test]
fn the_line_is_printed_whichever_way_it_is_asked_for() {
    let server = Server::start();
    let printed = |args: &[&str]| server.ok(None, args);
    assert_eq!(printed(&["--as", "Texi", "statusline"]), "[Texi] ~\n");
    assert_eq!(printed(&["statusline", "--as", "Texi"]), "[Texi] ~\n");
    let json: serde_json::Value =
        serde_json::from_str(&printed(&["--json", "statusline"])).unwrap();
    assert_eq!(json, json!({"line": "~"}));
    let own = ["--pid", "x", "statusline", "--append-to", "echo mine"];
    assert_eq!(printed(&own), "mine\n~\n");
    let version = printed(&["--version"]);
    assert_eq!(
        printed(&["statusline", "-V"]).split(' ').next_back(),
        version.split(' ').next_back()
    );
    // What is not understood runs nothing: the bar has its line, and stderr says why.
    for args in [
        &["statusline", "--", "--append-to", "echo mine"][..],
        &[
            "statusline",
            "--append-to",
            "echo mine",
            "--append-to",
            "echo other",
        ],
        &["statusline", "--color", "blue"],
    ] {
        let output = server.command(None).args(args).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "~\n", "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("error:"), "{said}");
    }
    // A hook's exit code would hold up the agent.
    let hook = server
        .command(None)
        .args(["hook", "--no-such-flag"])
        .output();
    let hook = hook.unwrap();
    assert!(hook.status.success() && hook.stdout.is_empty());
    assert!(!hook.stderr.is_empty());
    assert_eq!(printed(&["--json", "hook", "codex"]), "");
}

#[test]
fn a_pipe_a_device_or_a_huge_file_in_place_of_the_cache_holds_up_no_statusline() {
    let server = Server::none();
    server.home().create().unwrap();
    for name in ["sigcount-Texi.json", "signals-Texi.jsonl"] {
        let path = server.home().path(name);
        let pipe = |path: &Path| {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        };
        let device = |path: &Path| std::os::unix::fs::symlink("/dev/zero", path).unwrap();
        let huge = |path: &Path| {
            let file = std::fs::File::create(path).unwrap();
            file.set_len(20 * 1024 * 1024 * 1024).unwrap();
        };
        let folder = |path: &Path| std::fs::create_dir(path).unwrap();
        let puts: [&dyn Fn(&Path); 3] = [&pipe, &device, &huge];
        for put in puts {
            put(&path);
            let line = server.ok(Some("Texi"), &["statusline", "--color", "never"]);
            assert!(line.contains("Texi") && !line.contains("🔔"), "{line}");
            server.ok(Some("Texi"), &["signals", "count"]);
            std::fs::remove_file(&path).unwrap();
        }
        folder(&path);
        server.ok(Some("Texi"), &["statusline"]);
        std::fs::remove_dir(&path).unwrap();
    }
}
