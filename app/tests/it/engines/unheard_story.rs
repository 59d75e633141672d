//! What a server did not hear of others it sees in rows: nothing that is said between servers is the only copy of anything.

use super::cluster_story::{next_signal, seated, unmoved};
use crate::harness::cable::Cable;
use crate::harness::engines::{Database, Postgres, Redis, server};
use crate::harness::{PID, Server, task, wait_for, wait_until};
use crate::stream::Stream;
use prism::client::Client;
use prism_core::api::ServerFrame;
use serde_json::{Value, json};
use std::time::Duration;

/// Less than half of the time after which everything is read again whatever happens.
const SOON: Duration = Duration::from_secs(14);

/// A server on a Redis, and one to whom the way is cut.
struct DeafOne {
    database: Database,
    one: Server,
    two: Server,
    cable: Cable,
}

impl DeafOne {
    fn start() -> Self {
        let database = Postgres::shared().database();
        let redis = Redis::shared();
        let cable = Cable::to(&redis.url);
        cable.cut();
        Self {
            one: server(&database, Some(&redis)),
            two: by_cable(&database, &cable),
            database,
            cable,
        }
    }

    /// An agent of both, with a socket at the deaf one.
    async fn texi(&self) -> (Client, uuid::Uuid, Stream) {
        let key = self.one.identity("Texi").await.key().to_owned();
        seated(&self.two, key).await
    }

    /// Waits until the deaf one has looked at what waits: the second of these comes by the look after that.
    async fn has_looked(&self, stream: &mut Stream) {
        for n in 0..2 {
            let more = task("Texi", &format!("more {n}"));
            let sent = self.one.operator().call(PID, "signal", more).await;
            sent.unwrap();
            next_signal(stream).await;
        }
    }
}

fn told(story: impl Future<Output = ()>) {
    tokio::runtime::Runtime::new().unwrap().block_on(story);
}

/// A server that reads nothing again but what it hears of and looks for.
fn by_cable(database: &Database, cable: &Cable) -> Server {
    unmoved(database, Some(&format!("redis://{}", cable.address)))
}

async fn is_told_to_say_hello(stream: &mut Stream) {
    while !matches!(stream.next().await, ServerFrame::Again) {}
}

#[test]
fn a_signal_that_is_taken_back_at_one_server_is_unread_no_more_beside_a_deaf_one() {
    let there = DeafOne::start();
    let (one, two) = (&there.one, &there.two);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let texi = two.agent("Texi");
    let unread = || {
        let count = two.home().read("sigcount-Texi.json")?;
        let count: Value = serde_json::from_str(&count).ok()?;
        count["unread"].as_u64()
    };
    let operator = one.operator();
    let sent = runtime.block_on(wait_until("the other server knows of Texi", async || {
        let sent = operator.call(PID, "signal", task("Texi", "go"));
        sent.await.ok()
    }));
    wait_for("it is in the ring", || (unread() == Some(1)).then_some(()));
    let back = json!({"signal_id": sent["signal_id"]});
    let back = runtime.block_on(operator.call(PID, "signal_recall", back));
    assert_eq!(back.unwrap()["recalled"], true);
    wait_for("it is out of the ring", || {
        (unread() == Some(0)).then_some(())
    });
    drop(texi);
}

#[test]
fn whoever_missed_what_was_said_has_its_sockets_say_hello() {
    let there = DeafOne::start();
    told(async {
        let (_texi, _, mut stream) = there.texi().await;
        there.has_looked(&mut stream).await;
        // Nothing has become of anything: only that something may have is known.
        there.cable.mend();
        is_told_to_say_hello(&mut stream).await;
    });
}

#[test]
fn a_drain_that_went_back_is_told_beside_a_deaf_server() {
    let there = DeafOne::start();
    told(async {
        let (texi, session, mut stream) = there.texi().await;
        let sent = there
            .one
            .operator()
            .call(PID, "signal", task("Texi", "go"))
            .await;
        let id = sent.unwrap()["signal_id"].clone();
        assert_eq!(next_signal(&mut stream).await, id);
        let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
        assert_eq!(read["signals"][0]["signal_id"], id);
        // A lease is longer than looks are apart.
        there.has_looked(&mut stream).await;
        // Its lease is given back by the other server, which nobody hears.
        let until =
            format!("update signal_queue set leased_until = 1 where leased_to = '{session}'");
        there.database.sql(&until);
        is_told_to_say_hello(&mut stream).await;
    });
}

#[test]
fn a_session_that_has_just_begun_and_ends_at_one_server_ends_at_a_deaf_one() {
    let there = DeafOne::start();
    told(async {
        let (texi, session, mut stream) = there.texi().await;
        let end = json!({"session_id": session});
        wait_until("the other server ends it", async || {
            let operator = there.one.operator();
            let ended = operator.call(PID, "session_release", end.clone());
            ended.await.ok()
        })
        .await;
        let closed = tokio::time::timeout(SOON, stream.closed()).await;
        closed.expect("its socket ends");
        let refused = texi.call(PID, "status", json!({})).await.unwrap_err();
        assert!(refused.is(prism_core::Code::SessionReleased), "{refused:?}");
    });
}

#[test]
fn a_session_that_comes_to_a_server_which_cannot_speak_leaves_the_one_it_was_at() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let cable = Cable::to(&redis.url);
    let two = by_cable(&database, &cable);
    let mute_way = Cable::to(&redis.url);
    mute_way.cut();
    let mute = by_cable(&database, &mute_way);
    told(async {
        let key = two.identity("Texi").await.key().to_owned();
        let (texi, session, mut stream) = seated(&two, key).await;
        let mut there = Stream::open(&mute, &texi, Some(session), None, vec![]).await;
        there.backlog().await;
        let closed = tokio::time::timeout(SOON, stream.closed()).await;
        let why = closed.expect("the socket at its former server ends");
        assert!(why.contains("another server"), "{why}");
    });
}

#[test]
fn a_probe_that_nobody_was_told_of_came_by_looking() {
    let there = DeafOne::start();
    told(async {
        let (_texi, session, mut stream) = there.texi().await;
        let operator = there.one.operator();
        let asked = wait_until("the session is known", async || {
            let probe = json!({"session_id": session.to_string(), "echo": false});
            let asked = operator.call(PID, "signal/loopback-issue", probe);
            asked.await.ok()
        })
        .await;
        assert_eq!(next_signal(&mut stream).await, asked["signal_id"]);
        wait_until("who pushed it is known", async || {
            let trace = json!({"signal_id": asked["signal_id"]});
            let trace = operator.call(PID, "signal_trace", trace).await.unwrap();
            let by = trace["receipt"]["sessions"][0]["pushed_by"]
                .as_str()?
                .to_owned();
            by.ends_with(&format!(":{}", there.two.pid())).then_some(())
        })
        .await;
        let finish = json!({"probe": asked});
        let finished = operator.call(PID, "signal/loopback-finish", finish);
        finished.await.unwrap();
        let kept = there.database.sql("select envelope from loopback_runs");
        let kept: Value = serde_json::from_str(&kept).unwrap();
        let layer = &kept["layers"]["redis_publish"];
        assert_eq!(layer["transport"], "sweep", "{kept}");
        assert!(layer["hop_ms"].is_null(), "{kept}");
    });
}
