//! What time does to sessions, leases and signals; a test moves the clock instead of waiting.

use crate::harness::{PID, Server, ids, states, task, wait_until};
use crate::stream::Stream;
use prism_core::api::ServerFrame;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test]
async fn a_silent_session_is_stale_after_90_seconds_and_released_after_a_day() {
    let server = Server::start();
    let (donna, id) = server.session("Donna").await;
    donna.call(PID, "status", json!({})).await.unwrap();
    let operator = server.operator();
    let state = || async {
        let status = operator.call(PID, "status", json!({})).await.unwrap();
        let sessions = status["sessions"].as_array().unwrap().clone();
        let mine = sessions.iter().find(|s| s["session_id"] == id.to_string());
        mine.map(|s| s["state"].as_str().unwrap().to_owned())
    };
    assert_eq!(state().await.as_deref(), Some("live"));
    server.advance(Duration::from_secs(91));
    assert_eq!(state().await.as_deref(), Some("stale"));
    server.advance(Duration::from_secs(24 * 3600));
    wait_until("the sweep releases it", || async {
        state().await.is_none().then_some(())
    })
    .await;
    let refused = donna.call(PID, "status", json!({})).await.unwrap_err();
    assert_eq!(refused.code, "session_released");
}

async fn returned(stream: &mut Stream) -> Vec<String> {
    loop {
        if let ServerFrame::Returned { signal_ids } = stream.next().await {
            return signal_ids.iter().map(ToString::to_string).collect();
        }
    }
}

fn details<'a>(trace: &'a Value, state: &str) -> Vec<&'a str> {
    let events = trace["timeline"].as_array().unwrap().iter();
    events
        .filter(|e| e["state"] == state)
        .map(|e| e["detail"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_lease_comes_back_to_the_siblings_in_time_and_when_its_session_ends() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let ((one, s1), (two, s2)) = (server.session("Texi").await, server.session("Texi").await);
    let mut sibling = Stream::open(&server, &two, Some(s2), None, vec![]).await;
    sibling.backlog().await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let id = sent["signal_id"].as_str().unwrap().to_owned();
    let read = || async { ids(&one.call(PID, "signals_pending", json!({})).await.unwrap()) };
    let trace = || async {
        let ask = json!({"signal_id": id});
        donna.call(PID, "signal_trace", ask).await.unwrap()
    };
    // Nobody confirms: after 30 seconds it waits again, and everybody is told.
    assert_eq!(read().await, [id.as_str()]);
    assert!(read().await.is_empty(), "it is leased");
    server.advance(Duration::from_secs(31));
    assert_eq!(returned(&mut sibling).await, [id.as_str()]);
    assert_eq!(details(&trace().await, "lease_returned").len(), 1);
    // The operator ends the session that reads it: at once, for the same reason.
    assert_eq!(read().await, [id.as_str()]);
    let release = json!({"session_id": s1});
    server
        .operator()
        .call(PID, "session_release", release)
        .await
        .unwrap();
    assert_eq!(returned(&mut sibling).await, [id.as_str()]);
    let trace = trace().await;
    let why = details(&trace, "lease_returned");
    assert!(why.len() == 2 && why[1].contains("forced"), "{why:?}");
    assert!(!states(&trace).contains(&"drained".to_owned()));
    let again = two.call(PID, "status", json!({})).await.unwrap();
    assert_eq!(
        ids(&again),
        [id.as_str()],
        "the sibling's next verb brings it"
    );
}

#[tokio::test]
async fn a_session_that_is_swept_gives_back_what_it_read() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (one, s1) = server.session("Texi").await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let read = one.call(PID, "signals_pending", json!({})).await.unwrap();
    assert_eq!(ids(&read), [sent["signal_id"].as_str().unwrap()]);
    // Its host dies while it reads, and nobody says so.
    server.advance(Duration::from_secs(24 * 3600 + 1));
    let operator = server.operator();
    wait_until("the sweep releases it", || async {
        let status = operator.call(PID, "status", json!({})).await.unwrap();
        let sessions = status["sessions"].as_array().unwrap();
        let open = sessions.iter().any(|s| s["session_id"] == s1.to_string());
        (!open).then_some(())
    })
    .await;
    let (two, _) = server.session("Texi").await;
    let again = two.call(PID, "signals_pending", json!({})).await.unwrap();
    assert_eq!(ids(&again), [sent["signal_id"].as_str().unwrap()]);
}

#[tokio::test]
async fn a_session_begins_once_however_soon_the_server_is_killed() {
    let mut server = Server::start();
    let (donna, _) = server.session("Donna").await;
    donna.call(PID, "status", json!({})).await.unwrap();
    server.kill();
    server.resume();
    donna.call(PID, "status", json!({})).await.unwrap();
    let deltas = server
        .operator()
        .call(PID, "deltas", json!({"n": 50}))
        .await;
    let deltas = deltas.unwrap()["deltas"].as_array().unwrap().clone();
    let starts = deltas.iter().filter(|d| d["kind"] == "start").count();
    assert_eq!(starts, 1, "{deltas:?}");
}

#[tokio::test]
async fn a_clock_that_is_set_back_holds_up_neither_leases_nor_the_end_of_a_session() {
    let server = Server::start();
    let hour = Duration::from_secs(3600);
    server.advance(hour);
    let donna = server.identity("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let (silent, id) = server.session("Texi").await;
    let before = silent.call(PID, "status", json!({})).await.unwrap();
    let before = before["sessions"].as_array().unwrap().clone();
    let before = before
        .iter()
        .find(|s| s["session_id"] == json!(id))
        .unwrap();
    donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let read = || texi.call(PID, "signals_pending", json!({}));
    assert_eq!(ids(&read().await.unwrap()).len(), 1);
    // Once more, so that the inbox is known to be empty until the lease ends.
    assert_eq!(ids(&read().await.unwrap()).len(), 0);
    server.set_back(hour);
    // Neither its drain nor what rides on another verb waits for the hour.
    let ridden = texi.call(PID, "status", json!({})).await.unwrap();
    assert_eq!(ids(&ridden).len(), 1, "{ridden}");
    let seen = || async {
        let status = donna.call(PID, "status", json!({})).await.unwrap();
        let sessions = status["sessions"].as_array().unwrap().clone();
        let mine = sessions.iter().find(|s| s["session_id"] == json!(id));
        mine.unwrap().clone()
    };
    // What was seen in the future was seen now.
    wait_until("a look at the sessions", || async {
        (seen().await["last_seen_at"] != before["last_seen_at"]).then_some(())
    })
    .await;
    server.advance(Duration::from_secs(91));
    let now = seen().await;
    assert_eq!(now["state"], "stale", "{now}");
}
