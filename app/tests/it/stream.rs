//! `/api/v1/stream`, spoken by hand.

use crate::harness::{PATIENCE, PID, Server, ids, states, task, wait_until};
use futures_util::{SinkExt, StreamExt};
use prism::client::Client;
use prism::shim::socket::{self, Socket};
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::receipt::State;
use serde_json::json;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

pub struct Stream {
    pub ws: Socket,
}

impl Stream {
    pub async fn open(
        server: &Server,
        client: &Client,
        session_id: Option<Uuid>,
        last_seq: Option<i64>,
        confirm: Vec<Uuid>,
    ) -> Self {
        let mut ws = socket::connect(&server.url(), client.key()).await.unwrap();
        let hello = ClientFrame::Hello {
            pid: PID.into(),
            session_id,
            last_seq,
            last_id: None,
            copy: None,
            confirm,
        };
        ws.send(socket::encode(&hello)).await.unwrap();
        Self { ws }
    }

    pub async fn say(&mut self, frame: ClientFrame) {
        self.ws.send(socket::encode(&frame)).await.unwrap();
    }

    async fn message(&mut self) -> Message {
        tokio::time::timeout(PATIENCE, self.ws.next())
            .await
            .expect("a frame")
            .expect("an open socket")
            .unwrap()
    }

    pub async fn next(&mut self) -> ServerFrame {
        socket::decode(&self.message().await).expect("a frame of ours")
    }

    /// Waits for the close, and why.
    pub async fn closed(&mut self) -> String {
        loop {
            match self.message().await {
                Message::Close(Some(frame)) => return frame.reason.to_string(),
                Message::Close(None) => return String::new(),
                _ => {}
            }
        }
    }

    /// The signals up to `live`, and whether each was drained.
    pub async fn backlog(&mut self) -> Vec<(i64, bool)> {
        let mut rows = Vec::new();
        loop {
            match self.next().await {
                ServerFrame::Signal { envelope, drained } => {
                    rows.push((envelope.seq.unwrap(), drained))
                }
                ServerFrame::Live => return rows,
                _ => {}
            }
        }
    }
}

async fn send(client: &Client, n: usize) -> Vec<String> {
    let mut sent = Vec::new();
    for i in 0..n {
        sent.push(
            client
                .call(PID, "signal", task("Texi", &format!("{i}")))
                .await
                .unwrap()["signal_id"]
                .as_str()
                .unwrap()
                .to_owned(),
        );
    }
    sent
}

const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";

#[tokio::test]
async fn a_reconnect_replays_what_was_missed_and_marks_what_was_drained() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    send(&donna, 3).await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    let ServerFrame::Hello {
        head_seq, pending, ..
    } = stream.next().await
    else {
        panic!("hello first")
    };
    assert_eq!((head_seq, pending.len()), (3, 3));
    assert_eq!(stream.backlog().await, [(1, false), (2, false), (3, false)]);
    drop(stream);
    let read = texi
        .call(PID, "signals_pending", json!({"limit": 2}))
        .await
        .unwrap();
    texi.call(
        PID,
        "signals_confirm",
        json!({"lease_id": read["lease_id"]}),
    )
    .await
    .unwrap();
    send(&donna, 1).await;
    let backlog = async |last_seq| {
        Stream::open(&server, &texi, Some(session), last_seq, vec![])
            .await
            .backlog()
            .await
    };
    assert_eq!(
        backlog(None).await,
        [(3, false), (4, false)],
        "without a cursor only what is undrained"
    );
    assert_eq!(
        backlog(Some(1)).await,
        [(2, true), (3, false), (4, false)],
        "with one, everything after it"
    );
    assert_eq!(
        backlog(Some(99)).await,
        [(3, false), (4, false)],
        "a cursor beyond the inbox is another database's, and counts as none"
    );
}

#[tokio::test]
async fn what_a_sibling_drains_while_a_socket_says_hello_is_not_lost() {
    let mut server = Server::start();
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "hello.dawdle")]);
    let donna = server.identity("Donna").await;
    let ((one, s1), (two, _)) = (server.session("Texi").await, server.session("Texi").await);
    let sent = send(&donna, 1).await;
    let mut stream = Stream::open(&server, &one, Some(s1), None, vec![]).await;
    // The inbox was read for the hello, which waits until it is out of date.
    assert!(matches!(stream.message().await, Message::Ping(_)));
    let read = two.call(PID, "signals_pending", json!({})).await.unwrap();
    two.call(
        PID,
        "signals_confirm",
        json!({"lease_id": read["lease_id"]}),
    )
    .await
    .unwrap();
    let ServerFrame::Hello { pending, .. } = stream.next().await else {
        panic!("hello first")
    };
    assert_eq!(pending.len(), 1, "it does not know of the drain");
    loop {
        if let ServerFrame::Drained { signal_ids, .. } = stream.next().await {
            assert_eq!(signal_ids[0].to_string(), sent[0]);
            break;
        }
    }
}

#[tokio::test]
async fn a_hello_that_fails_for_now_is_not_the_end_of_its_session() {
    let mut server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let close_code = async |server: &Server| {
        let mut stream = Stream::open(server, &texi, Some(session), None, vec![]).await;
        match stream.message().await {
            Message::Close(Some(close)) => Some(u16::from(close.code)),
            _ => None,
        }
    };
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "hello.busy")]);
    let code = close_code(&server).await.expect("closed with a reason");
    assert_eq!(code, close::TRY_AGAIN);
    assert!(!close::ends_session(code));
    server.terminate();
    server.resume();
    assert_eq!(
        close_code(&server).await,
        None,
        "the same hello succeeds later"
    );
    texi.call(PID, "session_release", json!({})).await.unwrap();
    let code = close_code(&server).await.expect("closed with a reason");
    assert!(code == close::REFUSED && close::ends_session(code));
}

#[tokio::test]
async fn a_socket_that_is_still_replaying_is_a_subscriber() {
    let server = Server::start_with(FAST);
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    let body = "z".repeat(50_000);
    for n in 0..200 {
        let payload = json!({"summary": n.to_string(), "body": body});
        let signal = json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": payload});
        donna.call(PID, "signal", signal).await.unwrap();
    }
    // It says hello and reads nothing: the backlog does not fit into the kernel's buffers.
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    assert!(matches!(stream.next().await, ServerFrame::Hello { .. }));
    let sent = donna
        .call(PID, "signal", task("Texi", "last"))
        .await
        .unwrap();
    assert_eq!(sent["publish_path"], json!("pushed_to_ws"));
    assert_eq!(
        sent["receipt"]["sessions"],
        json!([]),
        "its queue has not got it yet"
    );
    let backlog = stream.backlog().await;
    assert_eq!(backlog.last(), Some(&(201, false)));
    let ask = json!({"signal_id": sent["signal_id"]});
    let trace = donna.call(PID, "signal_trace", ask).await.unwrap();
    assert_eq!(states(&trace), ["queued", "pushed"]);
}

#[tokio::test]
async fn only_a_session_that_had_a_signal_reports_about_it() {
    let server = Server::start();
    let (donna, d) = server.session("Donna").await;
    let ((one, s1), (two, s2)) = (server.session("Texi").await, server.session("Texi").await);
    let mut had = Stream::open(&server, &one, Some(s1), None, vec![]).await;
    had.backlog().await;
    let sent = send(&donna, 1).await;
    let id: Uuid = sent[0].parse().unwrap();
    // A sibling that was never sent it, and another identity altogether.
    let mut sibling = Stream::open(&server, &two, Some(s2), Some(1), vec![]).await;
    let mut foreign = Stream::open(&server, &donna, Some(d), None, vec![]).await;
    for stream in [&mut sibling, &mut foreign] {
        stream.backlog().await;
        for state in [State::Received, State::Rendered] {
            stream
                .say(ClientFrame::Receipt {
                    state,
                    signal_ids: vec![id],
                    strategy: None,
                    via: None,
                })
                .await;
        }
        stream.say(ClientFrame::Ping).await;
        while !matches!(stream.next().await, ServerFrame::Pong) {}
    }
    let ask = json!({"signal_id": sent[0]});
    let trace = donna.call(PID, "signal_trace", ask.clone()).await.unwrap();
    assert_eq!(states(&trace), ["queued", "pushed"]);
    // One that it was pushed to reports late and out of order, with a strategy nobody knows.
    for state in [State::Rendered, State::Received] {
        had.say(ClientFrame::Receipt {
            state,
            signal_ids: vec![id],
            strategy: Some("smoke signals".into()),
            via: None,
        })
        .await;
    }
    had.say(ClientFrame::Ping).await;
    while !matches!(had.next().await, ServerFrame::Pong) {}
    let trace = donna.call(PID, "signal_trace", ask).await.unwrap();
    assert_eq!(states(&trace), ["queued", "pushed", "received", "rendered"]);
    let receipt = &trace["receipt"]["sessions"][0];
    assert_eq!(
        receipt["received"], receipt["rendered"],
        "not later than what came next"
    );
    assert!(receipt["strategy"].is_null(), "{receipt}");
}

#[tokio::test]
async fn a_lease_of_another_project_is_confirmed_by_its_identity_and_by_nobody_else() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let (donna, operator) = (server.identity("Donna").await, server.operator());
    for identity in ["Texi", "Donna"] {
        let add = json!({"identity": identity});
        operator
            .call("PID-OTHER", "persona_add", add)
            .await
            .unwrap();
    }
    let alone = texi.with_session(None);
    let lease = async || {
        let sent = donna.call("PID-OTHER", "signal", task("Texi", "x")).await;
        let read = alone.call("PID-OTHER", "signals_pending", json!({})).await;
        let lease = read.unwrap()["lease_id"].as_str().unwrap().to_owned();
        (sent.unwrap()["signal_id"].clone(), lease)
    };
    let drained = async |id: &serde_json::Value| {
        let ask = json!({"signal_id": id});
        let trace = donna.call("PID-OTHER", "signal_trace", ask).await.unwrap();
        states(&trace).contains(&"drained".to_owned())
    };
    let (first, first_lease) = lease().await;
    let confirm = json!({"lease_id": first_lease});
    let stolen = donna.call(PID, "signals_confirm", confirm.clone()).await;
    assert_eq!(stolen.unwrap()["confirmed"], json!(0));
    assert!(!drained(&first).await);
    let confirmed = texi.call(PID, "signals_confirm", confirm).await.unwrap();
    assert_eq!(confirmed["confirmed"], json!(1));
    assert!(drained(&first).await);
    let (second, second_lease) = lease().await;
    let confirm = vec![second_lease.parse().unwrap()];
    let mut stream = Stream::open(&server, &texi, Some(session), None, confirm).await;
    stream.backlog().await;
    assert!(drained(&second).await);
}

#[tokio::test]
async fn peers_hear_once_that_a_session_left_and_again_when_it_is_back() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    // Its first verb is its last.
    let (brief, _) = server.session("Brief").await;
    brief
        .call(PID, "wrap", json!({"summary": "done"}))
        .await
        .unwrap();
    // It goes silent, comes back, goes silent again and is released then.
    let (gone, id) = server.session("Gone").await;
    gone.call(PID, "status", json!({})).await.unwrap();
    let stale = || async {
        let status = texi.call(PID, "status", json!({})).await.unwrap();
        let sessions = status["sessions"].as_array().unwrap().clone();
        let mine = sessions.iter().find(|s| s["session_id"] == id.to_string());
        (mine.unwrap()["state"] == "stale").then_some(())
    };
    let mut heard = Vec::new();
    let mut hear = async |stream: &mut Stream, n: usize| {
        while heard.len() < n {
            if let ServerFrame::Event { envelope } = stream.next().await {
                heard.push(format!(
                    "{} {}",
                    envelope.from_identity, envelope.signal_type
                ));
            }
        }
        heard.clone()
    };
    hear(&mut stream, 3).await;
    server.advance(Duration::from_secs(91));
    wait_until("it is stale", stale).await;
    hear(&mut stream, 4).await;
    gone.call(PID, "heartbeat", json!({})).await.unwrap();
    hear(&mut stream, 5).await;
    server.advance(Duration::from_secs(91));
    wait_until("it is stale", stale).await;
    hear(&mut stream, 6).await;
    let forced = json!({"session_id": id});
    server
        .operator()
        .call(PID, "session_release", forced)
        .await
        .unwrap();
    let (last, _) = server.session("Last").await;
    last.call(PID, "status", json!({})).await.unwrap();
    assert_eq!(
        hear(&mut stream, 7).await,
        [
            "Brief PeerJoined",
            "Brief PeerLeft",
            "Gone PeerJoined",
            "Gone PeerLeft",
            "Gone PeerJoined",
            "Gone PeerLeft",
            "Last PeerJoined"
        ]
    );
}

#[tokio::test]
async fn live_signals_reach_every_session_and_receipts_come_back() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let ((one, s1), (two, s2)) = (server.session("Texi").await, server.session("Texi").await);
    let mut first = Stream::open(&server, &one, Some(s1), None, vec![]).await;
    let mut second = Stream::open(&server, &two, Some(s2), None, vec![]).await;
    first.backlog().await;
    second.backlog().await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    assert_eq!(sent["receipt"]["sessions"].as_array().unwrap().len(), 2);
    for stream in [&mut first, &mut second] {
        let ServerFrame::Signal {
            envelope,
            drained: false,
        } = stream.next().await
        else {
            panic!("a signal")
        };
        stream
            .say(ClientFrame::Receipt {
                state: State::Received,
                signal_ids: vec![envelope.signal_id],
                strategy: None,
                via: None,
            })
            .await;
    }
    // A client may report what it saw, never what the server alone knows.
    first
        .say(ClientFrame::Receipt {
            state: State::Drained,
            signal_ids: vec![sent["signal_id"].as_str().unwrap().parse().unwrap()],
            strategy: None,
            via: None,
        })
        .await;
    wait_until("both receipts", || async {
        let trace = donna
            .call(PID, "signal_trace", json!({"signal_id": sent["signal_id"]}))
            .await
            .unwrap();
        (states(&trace).iter().filter(|s| *s == "received").count() == 2).then_some(())
    })
    .await;
    let read = one.call(PID, "signals_pending", json!({})).await.unwrap();
    one.call(
        PID,
        "signals_confirm",
        json!({"lease_id": read["lease_id"]}),
    )
    .await
    .unwrap();
    let (signal_ids, by_session) = loop {
        // Peers come and go meanwhile.
        match second.next().await {
            ServerFrame::Drained {
                signal_ids,
                by_session,
            } => break (signal_ids, by_session),
            ServerFrame::Event { .. } => {}
            other => panic!("the sibling hears of the drain, not {other:?}"),
        }
    };
    assert_eq!((signal_ids.len(), by_session), (1, Some(s1)));
    let trace = donna
        .call(PID, "signal_trace", json!({"signal_id": sent["signal_id"]}))
        .await
        .unwrap();
    assert_eq!(states(&trace).iter().filter(|s| *s == "drained").count(), 1);
}

#[tokio::test]
async fn a_slow_reader_gets_everything_in_order_once_it_reads() {
    let server = Server::start_with(FAST);
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    // More than the socket's queue holds, in bodies large enough to fill the kernel's buffers.
    let body = "z".repeat(50_000);
    for n in 1..=300 {
        donna.call(PID, "signal", json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": {"summary": n.to_string(), "body": body}})).await.unwrap();
    }
    let mut seqs = Vec::new();
    while seqs.len() < 300 {
        if let ServerFrame::Signal { envelope, .. } = stream.next().await {
            seqs.push(envelope.seq.unwrap());
        }
    }
    assert_eq!(seqs, (1..=300).collect::<Vec<_>>());
}

#[tokio::test]
async fn peers_hear_of_each_other_and_system_events_never_enter_an_inbox() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    let (donna, _) = server.session("Donna").await;
    donna.call(PID, "status", json!({})).await.unwrap();
    donna.call(PID, "status", json!({})).await.unwrap();
    donna.call(PID, "session_release", json!({})).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        if let ServerFrame::Event { envelope } = stream.next().await {
            assert_eq!(
                (envelope.from_identity.as_str(), envelope.category),
                ("Donna", None)
            );
            events.push(envelope.signal_type);
        }
    }
    assert_eq!(events, ["PeerJoined", "PeerLeft"]);
    assert!(ids(&texi.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
}

#[tokio::test]
async fn a_lease_can_be_confirmed_at_the_next_hello() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    let sent = send(&donna, 1).await;
    let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
    let lease: Uuid = read["lease_id"].as_str().unwrap().parse().unwrap();
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![lease]).await;
    let ServerFrame::Hello { pending, .. } = stream.next().await else {
        panic!("hello first")
    };
    assert!(pending.is_empty());
    let trace = donna
        .call(PID, "signal_trace", json!({"signal_id": sent[0]}))
        .await
        .unwrap();
    assert!(states(&trace).contains(&"drained".to_owned()));
}

#[tokio::test]
async fn the_operator_watches_everything_and_an_agent_may_not() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let mut watch = Stream::open(&server, &server.operator(), None, None, vec![]).await;
    watch.backlog().await;
    send(&donna, 1).await;
    let ServerFrame::Watched { envelope, .. } = watch.next().await else {
        panic!("the operator sees it")
    };
    assert_eq!(
        (
            envelope.from_identity.as_str(),
            envelope.to_identity.as_str()
        ),
        ("Donna", "Texi")
    );
    let mut refused = Stream::open(&server, &donna, None, None, vec![]).await;
    let Message::Close(Some(close)) = refused.message().await else {
        panic!("closed with a reason")
    };
    assert!(
        u16::from(close.code) == 4001 && close.reason.contains("operator_only"),
        "{close:?}"
    );
}

#[tokio::test]
async fn broken_frames_do_not_end_a_session_and_a_bad_hello_does() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    for broken in [
        "{",
        "[]",
        "{\"kind\":\"future\"}",
        "{\"kind\":\"receipt\",\"state\":\"received\",\"signal_ids\":[\"00000000-0000-0000-0000-000000000000\"]}",
    ] {
        stream.ws.send(Message::Text(broken.into())).await.unwrap();
    }
    stream.say(ClientFrame::Ping).await;
    assert!(matches!(stream.next().await, ServerFrame::Pong));
    send(&donna, 1).await;
    assert!(matches!(stream.next().await, ServerFrame::Signal { .. }));
    let mut foreign = Stream::open(&server, &donna, Some(session), None, vec![]).await;
    let Message::Close(Some(close)) = foreign.message().await else {
        panic!("closed with a reason")
    };
    assert_eq!(u16::from(close.code), 4001);
}
