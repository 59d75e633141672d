//! Nothing lost: the server is killed again and again while clients send and drain.

use crate::harness::{PID, Server, ids, wait_for};
use prism::client::Client;
use prism_core::Code;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;

const SENDERS: usize = 4;
const RECIPIENTS: usize = 2;
const KILLS: usize = 6;

async fn successor(client: Client) -> Client {
    while let Err(problem) = client.call(PID, "session_release", json!({})).await {
        if problem.is(Code::SessionReleased) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let alone = client.with_session(None);
    loop {
        if let Ok(answer) = alone
            .call(
                PID,
                "session_register",
                json!({"surface": "other", "machine_id": "m", "process_pid": 1}),
            )
            .await
        {
            return client.with_session(answer["session_id"].as_str().unwrap().parse().ok());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_accepted_send_is_drained_exactly_once_under_kill_9() {
    let mut server =
        Server::start_with("[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n");
    let accepted: Arc<Mutex<Vec<String>>> = Arc::default();
    let drained: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let (sending, draining) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicBool::new(true)),
    );
    let mut senders = Vec::new();
    for s in 0..SENDERS {
        let (client, accepted, sending) = (
            server.identity(&format!("Sender{s}")).await,
            accepted.clone(),
            sending.clone(),
        );
        let mut n = 0;
        senders.push(async move {
            while sending.load(Ordering::Relaxed) {
                n += 1;
                let request = json!({"to": format!("Reader{}", n % RECIPIENTS), "signal_type": "TaskAssigned", "payload": {"summary": format!("{s}-{n}")}, "idempotency_key": format!("{s}-{n}")});
                // Retried under its key until the server says yes: an answer is a promise.
                while let Err(problem) = client.call(PID, "signal", request.clone()).await {
                    assert!(problem.status >= 500, "{problem:?}");
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                accepted.lock().await.push(format!("{s}-{n}"));
            }
        });
    }
    let mut readers = Vec::new();
    for r in 0..RECIPIENTS {
        let ((mut client, _), drained, draining) = (
            server.session(&format!("Reader{r}")).await,
            drained.clone(),
            draining.clone(),
        );
        readers.push(async move {
            let mut unconfirmed: Option<(Value, Vec<String>)> = None;
            loop {
                if unconfirmed.is_none() {
                    let last_round = !draining.load(Ordering::Relaxed);
                    match client
                        .call(PID, "signals_pending", json!({"limit": 20}))
                        .await
                    {
                        Ok(answer)
                            if answer["signals"].as_array().is_some_and(|s| !s.is_empty()) =>
                        {
                            let summaries = answer["signals"]
                                .as_array()
                                .unwrap()
                                .iter()
                                .map(|e| e["payload"]["summary"].as_str().unwrap().to_owned())
                                .collect();
                            unconfirmed = Some((answer["lease_id"].clone(), summaries));
                        }
                        Ok(_) if last_round => return,
                        Ok(_) => tokio::time::sleep(Duration::from_millis(3)).await,
                        // The answer may have been lost with its lease, as when a host
                        // dies: the session ends, what it had goes back, a new one reads on.
                        Err(_) => client = successor(client).await,
                    }
                }
                // A confirmation is repeated until it is answered: then it counts, once.
                if let Some((lease, summaries)) = &unconfirmed
                    && let Ok(answer) = client
                        .call(PID, "signals_confirm", json!({"lease_id": lease}))
                        .await
                {
                    let confirmed = answer["confirmed"].as_u64().unwrap() as usize;
                    assert!(
                        confirmed == summaries.len() || confirmed == 0,
                        "a lease is confirmed whole, or was confirmed before the crash"
                    );
                    let mut counts = drained.lock().await;
                    for summary in summaries {
                        *counts.entry(summary.clone()).or_default() += 1;
                    }
                    drop(counts);
                    unconfirmed = None;
                }
            }
        });
    }
    let senders = tokio::spawn(futures_util::future::join_all(senders));
    let readers = tokio::spawn(futures_util::future::join_all(readers));
    for kill in 0..KILLS {
        // Each life of the server must accept some sends before it ends.
        let target = accepted.lock().await.len() + 20 + kill * 7;
        while accepted.lock().await.len() < target {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        server.kill();
        server.resume();
    }
    sending.store(false, Ordering::Relaxed);
    let patience = Duration::from_secs(90);
    tokio::time::timeout(patience, senders)
        .await
        .expect("senders finish")
        .unwrap();
    // Only now is an empty inbox the last one: a send that was still under way would arrive after
    // it.
    draining.store(false, Ordering::Relaxed);
    tokio::time::timeout(patience, readers)
        .await
        .expect("readers finish")
        .unwrap();
    let (accepted, drained) = (accepted.lock().await, drained.lock().await);
    assert!(accepted.len() >= KILLS * 20);
    for summary in accepted.iter() {
        assert_eq!(drained.get(summary), Some(&1), "{summary}");
    }
    assert_eq!(drained.len(), accepted.len(), "nothing was made up");
    for r in 0..RECIPIENTS {
        let rest = server
            .identity(&format!("Reader{r}"))
            .await
            .call(PID, "signals_pending", json!({}))
            .await
            .unwrap();
        assert!(ids(&rest).is_empty());
    }
}

#[test]
fn a_server_whose_lock_or_database_was_taken_away_stops_and_says_so() {
    for (name, put) in [
        ("serve.lock", false),
        ("prism.db", false),
        ("prism.db", true),
    ] {
        let mut server = Server::none();
        if name == "prism.db" && !server.is_embedded() {
            continue;
        }
        let mut serve = server.command(None);
        serve.args(["serve", "--port", "0"]);
        let serve = serve.stdout(std::process::Stdio::null());
        let mut process = serve.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let home = server.home();
        wait_for("server.json", || prism::config::ServerFile::load(&home));
        std::fs::remove_file(home.path(name)).unwrap();
        if put {
            std::fs::write(home.path(name), b"").unwrap();
        }
        let ended = wait_for("the end of the server", || process.try_wait().unwrap());
        assert_eq!(ended.code(), Some(2), "{name}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut process.stderr.take().unwrap(), &mut said).unwrap();
        assert!(said.contains(name) && said.contains("taken away"), "{said}");
        server.kill();
    }
}
