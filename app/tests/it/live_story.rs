//! What a page's socket says of everything that can change, whoever changed it.

use crate::harness::{PATIENCE, PID, Server, task, wait_until};
use crate::page_story::{Browser, signed_in};
use futures_util::{SinkExt, StreamExt};
use prism_core::limits::PAGES_MAX;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn watch(browser: &Browser, pid: &str) -> Socket {
    let url = format!(
        "{}/api/v1/watch?pid={pid}",
        browser.url.replace("http", "ws")
    );
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("origin", browser.url.parse().unwrap());
    headers.insert(
        "cookie",
        browser.cookie.as_deref().unwrap().parse().unwrap(),
    );
    tokio_tungstenite::connect_async(request).await.unwrap().0
}

async fn frame(socket: &mut Socket) -> Value {
    loop {
        let next = tokio::time::timeout(Duration::from_secs(30), socket.next());
        match next.await.unwrap().unwrap().unwrap() {
            Message::Text(text) => return serde_json::from_str(&text).unwrap(),
            Message::Close(frame) => {
                return json!({"kind": "closed", "code": frame.map(|f| u16::from(f.code))});
            }
            _ => {}
        }
    }
}

/// Waits until the socket has said that this changed, and forgets what came before.
async fn heard(socket: &mut Socket, what: &str, id: &Value) -> Value {
    let found = |c: &Value| c["what"] == what && (id.is_null() || c["id"] == *id);
    // Signs of life come all the time.
    let told = tokio::time::timeout(PATIENCE, async {
        loop {
            let frame = frame(socket).await;
            assert_ne!(frame["kind"], "closed", "while waiting for {what}");
            let changes = frame["changes"].as_array().cloned().unwrap_or_default();
            if let Some(found) = changes.into_iter().find(found) {
                return found;
            }
        }
    });
    told.await
        .unwrap_or_else(|_| panic!("nothing was said of {what} {id}"))
}

#[tokio::test]
async fn everything_that_a_page_shows_is_told_when_it_changes() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let browser = signed_in(&server).await;
    let other = signed_in(&server).await;
    let mut socket = watch(&other, PID).await;
    assert_eq!(frame(&mut socket).await["kind"], "hello");
    let ask = |verb: &'static str, body: Value| browser.ask(PID, verb, body);

    // A signal in each of its states.
    let to_texi = json!({"to": "Texi", "signal_type": "TaskAssigned",
        "payload": {"summary": "ratify docs/specs/spec-099.md", "tags": ["architecture"]}});
    let sent = ask("signal", to_texi).await["signal_id"].clone();
    assert_eq!(heard(&mut socket, "signal", &sent).await["pid"], PID);
    let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
    let lease = json!({"lease_id": read["lease_id"]});
    texi.call(PID, "signals_confirm", lease).await.unwrap();
    heard(&mut socket, "signal", &sent).await;
    // The gate warns of an assignment that is taken without a recall; then it is labelled.
    let ack = json!({"signal_id": sent, "state": "model_acted"});
    texi.call(PID, "signal_ack", ack).await.unwrap();
    heard(&mut socket, "gate", &Value::Null).await;
    let events = ask("gate_list", json!({"outcome": "warned"})).await;
    let warned = events["events"][0]["id"].clone();
    ask("gate_label", json!({"event_id": warned, "right": false})).await;
    heard(&mut socket, "gate", &warned).await;

    // What an agent captured, and what the operator made of it.
    let input =
        json!({"class": "correction", "prompt_text": "not the title bar", "confidence": "low"});
    let input = texi.call(PID, "operator_input", input).await.unwrap()["id"].clone();
    heard(&mut socket, "memory", &input).await;
    for action in ["reject", "undo", "accept"] {
        ask("review", json!({"ids": [input], "action": action})).await;
        heard(&mut socket, "review", &input).await;
    }
    // A row, a verdict on it, and somebody who looks it up.
    let note = texi
        .call(PID, "note", json!({"text": "the ring is kept"}))
        .await
        .unwrap();
    heard(&mut socket, "memory", &note["id"]).await;
    let about = format!("delta:{}", note["id"].as_str().unwrap());
    let verdict = ask("confirm", json!({"refers_to": about, "verdict": "works"})).await;
    heard(&mut socket, "memory", &verdict["id"]).await;
    let recalled = texi
        .call(PID, "recall", json!({"query": "the ring"}))
        .await
        .unwrap();
    let event = &recalled["recall_event_id"];
    heard(&mut socket, "recall", event).await;
    let cites = json!({"recall_event_id": event, "result_id": note["id"]});
    texi.call(PID, "memory_cite", cites).await.unwrap();
    heard(&mut socket, "recall", event).await;

    // A probe, a session that waits and one that ends, a persona and a key.
    let probe = ask("probe_run", json!({"session_id": session, "timeout_ms": 1})).await;
    heard(&mut socket, "probe", &probe["loopback_id"]).await;
    let waits = json!({"for": "permission"});
    texi.call(PID, "session_waiting", waits).await.unwrap();
    heard(&mut socket, "session", &json!(session)).await;
    ask("session_release", json!({"session_id": session})).await;
    heard(&mut socket, "session", &json!(session)).await;
    ask("persona_add", json!({"identity": "Quill"})).await;
    heard(&mut socket, "settings", &Value::Null).await;
    ask("key_mint", json!({"identity": "Quill"})).await;
    heard(&mut socket, "settings", &Value::Null).await;
    // A folder, allowed and forgotten.
    let folder = json!({"machine_id": "desk", "folder": "/srv/ring"});
    for verb in ["project_allow", "project_forget"] {
        ask(verb, folder.clone()).await;
        heard(&mut socket, "settings", &Value::Null).await;
    }
}

#[tokio::test]
async fn one_projects_page_hears_nothing_of_another() {
    let server = Server::start();
    let operator = server.operator();
    for pid in [PID, "PID-OTHER"] {
        let body = json!({"identity": "Texi"});
        operator.call(pid, "persona_add", body).await.unwrap();
    }
    let browser = signed_in(&server).await;
    let (mut one, mut all) = (watch(&browser, PID).await, watch(&browser, "*").await);
    for socket in [&mut one, &mut all] {
        assert_eq!(frame(socket).await["kind"], "hello");
    }
    let there = operator
        .call("PID-OTHER", "signal", task("Texi", "there"))
        .await
        .unwrap();
    heard(&mut all, "signal", &there["signal_id"]).await;
    let here = operator
        .call(PID, "signal", task("Texi", "here"))
        .await
        .unwrap();
    // What came before it would have come by now.
    loop {
        let frame = frame(&mut one).await;
        let changes = frame["changes"].as_array().cloned().unwrap_or_default();
        assert!(
            changes.iter().all(|c| c["id"] != there["signal_id"]),
            "{frame}"
        );
        if changes.iter().any(|c| c["id"] == here["signal_id"]) {
            break;
        }
    }
}

#[tokio::test]
async fn one_page_too_many_is_told_so_and_comes_in_when_another_goes() {
    let server = Server::start();
    let browser = signed_in(&server).await;
    let mut open = Vec::new();
    for _ in 0..PAGES_MAX {
        let mut socket = watch(&browser, "*").await;
        assert_eq!(frame(&mut socket).await["kind"], "hello");
        open.push(socket);
    }
    let mut beyond = watch(&browser, "*").await;
    let told = frame(&mut beyond).await;
    assert_eq!(
        (&told["kind"], &told["code"]),
        (&json!("closed"), &json!(4029))
    );
    let mut first = open.remove(0);
    first.close(None).await.unwrap();
    wait_until("there is room again", async || {
        let mut again = watch(&browser, "*").await;
        let said = frame(&mut again).await;
        (said["kind"] == "hello").then_some(())
    })
    .await;
    for mut socket in open {
        let _ = socket.send(Message::Close(None)).await;
    }
}

#[test]
fn every_kind_of_change_has_a_story() {
    let told = include_str!("live_story.rs");
    let kinds: BTreeSet<&str> = prism_core::api::page::live::Changed::ALL
        .iter()
        .map(|kind| kind.name())
        .collect();
    for kind in kinds {
        assert!(told.contains(&format!("&mut socket, \"{kind}\"")), "{kind}");
    }
}
