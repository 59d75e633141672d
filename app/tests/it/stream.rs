//! `/api/v1/stream`, spoken by hand.

use crate::harness::{PATIENCE, PID, Server, ids, states, task, wait_until};
use futures_util::{SinkExt, StreamExt};
use prism::client::Client;
use prism::shim::socket::{self, Socket};
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::receipt::State;
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

struct Stream {
    ws: Socket,
}

impl Stream {
    async fn open(
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
            confirm,
        };
        ws.send(socket::encode(&hello)).await.unwrap();
        Self { ws }
    }

    async fn say(&mut self, frame: ClientFrame) {
        self.ws.send(socket::encode(&frame)).await.unwrap();
    }

    async fn message(&mut self) -> Message {
        tokio::time::timeout(PATIENCE, self.ws.next())
            .await
            .expect("a frame")
            .expect("an open socket")
            .unwrap()
    }

    async fn next(&mut self) -> ServerFrame {
        socket::decode(&self.message().await).expect("a frame of ours")
    }

    /// The signals up to `live`, and whether each was drained.
    async fn backlog(&mut self) -> Vec<(i64, bool)> {
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
        [],
        "a cursor beyond the inbox is another database's"
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
            })
            .await;
    }
    // A client may report what it saw, never what the server alone knows.
    first
        .say(ClientFrame::Receipt {
            state: State::Drained,
            signal_ids: vec![sent["signal_id"].as_str().unwrap().parse().unwrap()],
            strategy: None,
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
