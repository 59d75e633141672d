//! What months of use leave behind: what goes and what stays, and that nothing runs on alone.

use crate::harness::{BIN, Server, wait_for};
use crate::recall_story::give_model;
use prism::config::ServerFile;
use prism::home::Home;
use serde_json::json;
use std::process::{Command, Stdio};

/// Whether a process is gone, or only waits for whoever inherited it.
fn has_ended(pid: u32) -> Option<()> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().unwrap_or_default();
    (state.is_empty() || state.starts_with('Z')).then_some(())
}

#[test]
fn a_bench_that_is_killed_takes_its_server_along() {
    let dir = tempfile::tempdir().unwrap();
    let mut bench = Command::new(BIN)
        .env_clear()
        .env("HOME", dir.path())
        .env("TMPDIR", dir.path())
        .args(["bench", "gate", "--acks", "1000000"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = wait_for("the bench starts a server", || {
        let homes = std::fs::read_dir(dir.path()).unwrap().flatten();
        let mut files = homes.map(|home| ServerFile::load(&Home::at(home.path())));
        files.find_map(|file| file)
    });
    assert_eq!(has_ended(server.pid), None, "it runs");
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_for("its server ends", || has_ended(server.pid));
}

#[tokio::test]
async fn a_server_that_is_killed_takes_its_worker_along_even_one_that_hangs() {
    let mut server = Server::start();
    give_model(&server);
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "embed.hangs")]);
    let (mira, _) = server.session("Mira").await;
    let note = json!({"text": "the worker hangs over this"});
    mira.call(crate::harness::PID, "note", note).await.unwrap();
    let worker: u32 = wait_for("the worker starts", || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let children = tasks
            .flatten()
            .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        children
            .collect::<String>()
            .split_whitespace()
            .find_map(|pid| pid.parse().ok())
    });
    server.kill();
    wait_for("its worker ends", || has_ended(worker));
}
