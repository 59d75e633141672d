//! Open pages on PostgreSQL: a page at one server is told of the one row that another server wrote.

use crate::harness::engines::{Database, Postgres};
use crate::harness::{PATIENCE, PID, Server, task};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

fn server(database: &Database) -> Server {
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", database.url.as_str())]);
    server
}

type Socket =
    tokio_tungstenite::WebSocketStream<tokio_tungstenite::MaybeTlsStream<tokio::net::TcpStream>>;

async fn page(at: &Server) -> Socket {
    let address = at.url().replace("http", "ws") + "/api/v1/watch";
    let mut request = address.into_client_request().unwrap();
    let bearer = format!("Bearer {}", at.operator_key());
    let headers = request.headers_mut();
    headers.insert("authorization", bearer.parse().unwrap());
    let (mut page, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    next(&mut page).await;
    page
}

async fn next(page: &mut Socket) -> Value {
    let frame = tokio::time::timeout(PATIENCE, page.next()).await;
    let frame = frame.expect("a frame").expect("an open socket").unwrap();
    serde_json::from_str(frame.to_text().unwrap()).unwrap()
}

/// What the page is told until it hears of this id.
async fn until(page: &mut Socket, id: &str) -> Vec<Value> {
    let mut told = Vec::new();
    loop {
        let frame = next(page).await;
        let here = frame.to_string().contains(id);
        told.push(frame);
        if here {
            return told;
        }
    }
}

async fn send(at: &Server) -> String {
    let sent = at.operator().call(PID, "signal", task("Texi", "go")).await;
    sent.unwrap()["signal_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_page_is_told_of_the_rows_that_any_server_wrote_and_reads_nothing_else_again() {
    let database = Postgres::shared().database();
    let (one, two) = (server(&database), server(&database));
    one.identity("Texi").await;
    let mut page = page(&two).await;
    // Servers that have just found each other may have missed something, and say so.
    let mut first = send(&one).await;
    loop {
        let frame = next(&mut page).await;
        match frame["kind"].as_str() {
            _ if frame.to_string().contains(&first) => break,
            Some("behind") => first = send(&one).await,
            _ => {}
        }
    }
    for at in [&one, &two] {
        let told = until(&mut page, &send(at).await).await;
        let behind = told.iter().any(|frame| frame["kind"] == "behind");
        assert!(!behind, "{told:?}");
        // Everything else that a page shows is told the same way.
        let note = json!({"text": "the ring holds fifty"});
        let note = at.operator().call(PID, "note", note).await.unwrap();
        let told = until(&mut page, note["id"].as_str().unwrap()).await;
        let other = |frame: &&Value| frame["kind"] == "behind";
        assert_eq!(told.iter().find(other), None, "{told:?}");
    }
    // A citation and a folder have no number; the rows that they belong to are told.
    let texi = one.identity("Texi").await;
    let note = json!({"text": "the bell is bronze"});
    let note = texi.call(PID, "note", note).await.unwrap();
    let recalled = texi.call(PID, "recall", json!({"query": "bell bronze"}));
    let recalled = recalled.await.unwrap();
    let event = recalled["recall_event_id"].as_str().unwrap();
    until(&mut page, event).await;
    let cite = json!({"recall_event_id": event, "result_id": note["id"]});
    texi.call(PID, "memory_cite", cite).await.unwrap();
    until(&mut page, event).await;
    let allow = json!({"machine_id": "m", "folder": "/bells"});
    one.operator()
        .call(PID, "project_allow", allow)
        .await
        .unwrap();
    until(&mut page, "settings").await;
    // What a project or a key is called stands on one page alone.
    one.identity("Donna").await;
    let told = until(&mut page, "settings").await;
    assert!(
        told.iter().all(|frame| frame["kind"] != "behind"),
        "{told:?}"
    );
}
