//! Two servers, each with a home of its own, on one PostgreSQL: one Prism.

use crate::harness::engines::{Database, Postgres, Redis};
use crate::harness::{PID, Server, ids, task, wait_until};
use crate::stream::Stream;
use prism::client::{Client, Locator};
use prism_core::api::ServerFrame;
use serde_json::json;

/// Starts a server on a database, and on a Redis if there is one.
fn server(database: &Database, redis: Option<&Redis>) -> Server {
    let mut server = Server::none();
    let mut env = vec![("PRISM_DATABASE", database.url.as_str())];
    env.extend(redis.map(|redis| ("PRISM_REDIS", redis.url.as_str())));
    server.resume_with(&env);
    server
}

/// An agent in a session with a socket at a server.
async fn seated(at: &Server, key: String) -> (Client, uuid::Uuid, Stream) {
    let agent = Client::new(Locator::Home(at.home()), key).unwrap();
    let opened = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let opened = agent.call(PID, "session_register", opened).await.unwrap();
    let session = opened["session_id"].as_str().unwrap().parse().unwrap();
    let agent = agent.with_session(Some(session));
    let mut stream = Stream::open(at, &agent, Some(session), None, vec![]).await;
    stream.backlog().await;
    (agent, session, stream)
}

async fn next_signal(stream: &mut Stream) -> String {
    loop {
        if let ServerFrame::Signal { envelope, .. } = stream.next().await {
            return envelope.signal_id.to_string();
        }
    }
}

/// A signal goes from an agent of one server to one of the other, is read there, and both know.
fn one_prism(redis: Option<&Redis>) {
    let database = Postgres::shared().database();
    let (one, two) = (server(&database, redis), server(&database, redis));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // Keys of one server count at the other at once.
        let key = one.identity("Texi").await.key().to_owned();
        let (texi, session, mut stream) = seated(&two, key).await;
        wait_until("Texi is known to be there", async || {
            let status = one.operator().call(PID, "status", json!({})).await.unwrap();
            status
                .to_string()
                .contains(&session.to_string())
                .then_some(())
        })
        .await;
        let sent = one.operator().call(PID, "signal", task("Texi", "go")).await;
        let sent = sent.unwrap();
        assert_eq!(sent["publish_path"], "published", "{sent}");
        let id = sent["signal_id"].as_str().unwrap();
        assert_eq!(next_signal(&mut stream).await, id);
        let drained = texi.call(PID, "signals_pending", json!({})).await.unwrap();
        assert_eq!(ids(&drained), [id]);
        let trace = json!({"signal_id": id});
        wait_until("the first server knows of the push", async || {
            let trace = one
                .operator()
                .call(PID, "signal_trace", trace.clone())
                .await;
            trace.unwrap()["receipt"]["states"]["pushed"]
                .is_string()
                .then_some(())
        })
        .await;
        // Nobody keeps a revoked key, wherever its socket is.
        let keys = one
            .operator()
            .call(PID, "key_list", json!({}))
            .await
            .unwrap();
        let mine = |k: &&serde_json::Value| k["identity"] == "Texi";
        let key = keys["keys"].as_array().unwrap().iter().find(mine).unwrap();
        let revoke = json!({"key_id": key["key_id"]});
        one.operator()
            .call(PID, "key_revoke", revoke)
            .await
            .unwrap();
        stream.closed().await;
        let refused = texi.call(PID, "status", json!({})).await.unwrap_err();
        assert!(refused.is_revoked(), "{refused:?}");
    });
}

#[test]
fn two_servers_are_one_prism_by_redis() {
    one_prism(Some(&Redis::shared()));
}

#[test]
fn two_servers_are_one_prism_by_notify() {
    one_prism(None);
}

#[test]
fn two_servers_whose_redis_is_away_are_one_prism_by_looking() {
    let mut redis = Redis::start();
    redis.stop();
    let database = Postgres::shared().database();
    let (one, two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let key = one.identity("Texi").await.key().to_owned();
        let (_texi, _, mut stream) = seated(&two, key).await;
        let sent = one.operator().call(PID, "signal", task("Texi", "go")).await;
        let sent = sent.unwrap();
        assert_ne!(sent["publish_path"], "published", "nobody could be told");
        assert_eq!(next_signal(&mut stream).await, sent["signal_id"]);
    });
}

#[test]
fn a_redis_without_a_database_is_refused_with_what_to_do() {
    let server = Server::none();
    let args = ["serve", "--port", "0", "--redis", "redis://127.0.0.1:1"];
    let refused = server
        .command(None)
        .env_remove("PRISM_DATABASE")
        .args(args)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("--database"), "{said}");
}

/// What nobody waits for has a connection of its own, which must come back as well.
#[test]
fn receipts_are_written_again_once_a_database_that_was_away_is_back() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let server = server(&database, None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let key = server.identity("Texi").await.key().to_owned();
        let (_texi, _, _stream) = seated(&server, key).await;
        postgres.stop();
        postgres.start_again();
        let operator = server.operator();
        let sent = wait_until("a signal is sent", async || {
            let sent = operator.call(PID, "signal", task("Texi", "go")).await;
            sent.ok()
        })
        .await;
        wait_until("its push is written", async || {
            let wanted = json!({"signal_id": sent["signal_id"]});
            let trace = operator.call(PID, "signal_trace", wanted).await.ok()?;
            let pushed = &trace["receipt"]["states"]["pushed"];
            pushed.is_string().then_some(())
        })
        .await;
    });
}
