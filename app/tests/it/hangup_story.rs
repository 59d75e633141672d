//! A client that hangs up while its verb commits: store and memory agree all the same.

use crate::harness::{PID, Server, task, wait_for, wait_until};
use crate::stream::Stream;
use prism::client::{Client, Locator};
use prism_core::api::ServerFrame;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

/// A server whose commits can be seen a second before their callers are answered.
fn late_to_answer(server: &mut Server) {
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "writer.answer_late")]);
}

/// Calls a verb, waits until its row is in the database, and hangs up without an answer.
fn hang_up(server: &Server, key: &str, path: &str, extra: &str, body: &Value, committed: &str) {
    let address = server.url().replace("http://", "");
    let mut stream = TcpStream::connect(&address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST /api/v1/{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{extra}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let database = server.rows();
    wait_for("the row is committed", || {
        database
            .query_row(committed, [], |row| row.get::<_, bool>(0))
            .unwrap()
            .then_some(())
    });
}

#[tokio::test]
async fn a_key_revoked_by_a_client_that_hung_up_opens_nothing() {
    let mut server = Server::start();
    let texi = server.identity("Texi").await;
    let keys = server.operator().call(PID, "key_list", json!({})).await;
    let keys = keys.unwrap()["keys"].as_array().unwrap().clone();
    let key = keys.iter().find(|k| k["identity"] == "Texi").unwrap();
    late_to_answer(&mut server);
    hang_up(
        &server,
        &server.operator_key(),
        &format!("{PID}/key_revoke"),
        "",
        &json!({"key_id": key["key_id"]}),
        "select count(*) = 1 from api_keys where revoked_at is not null",
    );
    wait_until("the key opens nothing", || async {
        let refused = texi.call(PID, "ping", json!({})).await.err()?;
        (refused.code == "invalid_key").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_project_and_a_persona_made_by_clients_that_hung_up_can_be_used() {
    let mut server = Server::start();
    server
        .operator()
        .call(PID, "ping", json!({}))
        .await
        .unwrap();
    let key = server.operator_key();
    late_to_answer(&mut server);
    hang_up(
        &server,
        &key,
        "PID-NEW/ping",
        "prism-create-project: 1\r\n",
        &json!({}),
        "select count(*) = 1 from projects where pid = 'PID-NEW'",
    );
    // Not creating: the project must be known from the verb that nobody waited for.
    let operator = Client::new(Locator::Home(server.home()), key.clone()).unwrap();
    wait_until("the project is known", || async {
        operator.call("PID-NEW", "ping", json!({})).await.ok()
    })
    .await;
    hang_up(
        &server,
        &key,
        "PID-NEW/persona_add",
        "",
        &json!({"identity": "Texi"}),
        "select count(*) = 1 from personas where identity = 'Texi'",
    );
    wait_until("the persona gets signals", || async {
        operator
            .call("PID-NEW", "signal", task("Texi", "x"))
            .await
            .ok()
    })
    .await;
}

#[tokio::test]
async fn a_session_released_by_a_client_that_hung_up_is_over_everywhere() {
    let mut server = Server::start();
    let (donna, id) = server.session("Donna").await;
    donna.call(PID, "status", json!({})).await.unwrap();
    late_to_answer(&mut server);
    hang_up(
        &server,
        donna.key(),
        &format!("{PID}/session_release"),
        &format!("prism-session: {id}\r\n"),
        &json!({}),
        "select count(*) = 1 from sessions where released_at is not null",
    );
    let operator = server.operator();
    wait_until("nobody sees it live", || async {
        let status = operator.call(PID, "status", json!({})).await.ok()?;
        status["sessions"].as_array()?.is_empty().then_some(())
    })
    .await;
    let refused = donna.call(PID, "status", json!({})).await.unwrap_err();
    assert_eq!(refused.code, "session_released");
}

#[tokio::test]
async fn a_signal_sent_by_a_client_that_hung_up_is_pushed_and_the_push_is_noted() {
    let mut server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    late_to_answer(&mut server);
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    hang_up(
        &server,
        donna.key(),
        &format!("{PID}/signal"),
        "",
        &task("Texi", "x"),
        "select count(*) = 1 from signal_queue",
    );
    let ServerFrame::Signal { envelope, .. } = stream.next().await else {
        panic!("the signal is pushed");
    };
    let traced = json!({"signal_id": envelope.signal_id});
    wait_until("the push is noted", || async {
        let traced = traced.clone();
        let trace = texi.call(PID, "signal_trace", traced).await.ok()?;
        let pushed = &trace["receipt"]["states"]["pushed"];
        pushed.is_string().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_verb_that_succeeded_is_not_refused_because_the_inbox_cannot_be_read() {
    let mut server = Server::start();
    server.identity("Texi").await;
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "piggyback.fail")]);
    let (donna, _) = server.session("Donna").await;
    let sent = donna.call(PID, "signal", task("Texi", "stored")).await;
    let sent = sent.expect("a committed send is answered as sent");
    let traced = json!({"signal_id": sent["signal_id"]});
    let operator = server.operator();
    let trace = operator.call(PID, "signal_trace", traced).await.unwrap();
    assert_eq!(trace["receipt"]["state"], "queued");
}
