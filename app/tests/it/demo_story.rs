//! The demonstration: whoever asks for it at once, whatever the operator is called, and its end.

use crate::harness::{Server, wait_until};
use futures_util::StreamExt;
use prism::shim::socket;
use prism_core::api::close;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

const DEMO: &str = "PID-DEMO";

#[test]
fn several_demonstrations_at_once_are_one() {
    let server = Server::start();
    let started: Vec<_> = (0..4)
        .map(|_| {
            let mut command = server.command(None);
            command.args(["demo", "--json"]).stdin(Stdio::null());
            command
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut made = 0;
    for process in started {
        let output = process.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let done: Value = serde_json::from_slice(&output.stdout).unwrap();
        made += usize::from(done["changed"] == true);
    }
    assert_eq!(made, 1, "one made it, the others found it");
}

#[tokio::test]
async fn an_operator_who_is_called_like_an_agent_of_it_sees_the_whole_week() {
    let mut server = Server::none();
    let key = prism::clock::new_key().unwrap();
    server.home().create().unwrap();
    let config = format!("operator = \"marlow\"\napi_key = \"{key}\"\n");
    server
        .home()
        .write("config.toml", config.as_bytes())
        .unwrap();
    server.resume();
    server.ok(None, &["demo"]);
    let agents = server.operator().call(DEMO, "agents", json!({})).await;
    let agents = agents.unwrap()["agents"].clone();
    let names: Vec<&str> = agents
        .as_array()
        .unwrap()
        .iter()
        .map(|a| a["identity"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(names.contains(&"Wren"), "{names:?}");
    let now = server
        .operator()
        .call(DEMO, "now", json!({}))
        .await
        .unwrap();
    assert!(!now["warnings"].as_array().unwrap().is_empty(), "{now}");
    server.ok(None, &["demo", "--remove"]);
}

#[tokio::test]
async fn its_sessions_stay_awake_and_it_has_a_plan() {
    let mut server = Server::start();
    server.ok(None, &["demo"]);
    let operator = server.operator();
    let plans = json!({"kinds": ["plan"]});
    let plans = operator.call(DEMO, "memory_list", plans).await.unwrap();
    assert_eq!(plans["rows"].as_array().unwrap().len(), 1, "{plans}");
    let awake = async |server: &Server| {
        let operator = server.operator();
        wait_until("its four sessions are live", async || {
            let open = json!({"which": "open"});
            let listed = operator.call(DEMO, "session_list", open).await.unwrap();
            let live = listed["sessions"].as_array().unwrap().clone();
            (live.iter().filter(|s| s["state"] == "live").count() == 4).then_some(())
        })
        .await
    };
    server.advance(Duration::from_secs(300));
    awake(&server).await;
    server.kill();
    server.advance(Duration::from_secs(300));
    server.resume();
    awake(&server).await;
}

#[tokio::test]
async fn whoever_watches_it_is_told_when_it_goes_and_nobody_brings_it_back_by_reading() {
    let server = Server::start();
    server.ok(None, &["demo"]);
    let operator = server.operator();
    let page = format!("/api/v1/watch?pid={DEMO}");
    let mut page = socket::connect_to(&server.url(), &page, operator.key())
        .await
        .unwrap();
    server.ok(None, &["demo", "--remove"]);
    let code = loop {
        match page.next().await.unwrap().unwrap() {
            Message::Close(frame) => break frame.map(|f| u16::from(f.code)),
            _ => continue,
        }
    };
    assert_eq!(code, Some(close::REFUSED));
    // Where its name is found, not typed, a look makes no project of it.
    let folder = server.folder().join("demo");
    std::fs::create_dir_all(folder.join(".prism")).unwrap();
    std::fs::write(folder.join(".prism/project.toml"), "pid = \"PID-DEMO\"").unwrap();
    let look = |args: &[&str]| {
        let mut command = server.command(None);
        command.env_remove("PRISM_PID").current_dir(&folder);
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let projects = || server.ok(None, &["project", "list", "--json"]);
    let before = projects();
    let recalled = look(&["recall", "what was learned"]);
    assert_eq!(recalled.status.code(), Some(2), "{recalled:?}");
    let said = String::from_utf8_lossy(&recalled.stderr).into_owned();
    assert!(said.contains("PID-DEMO"), "{said}");
    assert!(look(&["project", "list"]).status.success());
    assert!(look(&["now", "--all"]).status.success());
    assert_eq!(projects(), before);
}
