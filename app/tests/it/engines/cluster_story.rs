//! Two servers, each with a home of its own, on one PostgreSQL: one Prism.

use crate::harness::cable::Cable;
use crate::harness::engines::{Database, Postgres, Redis, server};
use crate::harness::{PID, Server, ids, task, wait_until};
use crate::stream::Stream;
use prism::client::{Client, Locator};
use prism_core::api::ServerFrame;
use prism_core::{Code, Problem};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How soon a key that was revoked at one server has no socket at any other.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

/// An agent in a session with a socket at a server.
pub(super) async fn seated(at: &Server, key: String) -> (Client, uuid::Uuid, Stream) {
    let agent = Client::new(Locator::Home(at.home()), key).unwrap();
    let opened = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let opened = agent.call(PID, "session_register", opened).await.unwrap();
    let session = opened["session_id"].as_str().unwrap().parse().unwrap();
    let agent = agent.with_session(Some(session));
    let mut stream = Stream::open(at, &agent, Some(session), None, vec![]).await;
    stream.backlog().await;
    (agent, session, stream)
}

/// A session as a server shows it.
async fn session_at(server: &Server, session: uuid::Uuid) -> Option<Value> {
    let status = server.operator().call(PID, "status", json!({})).await;
    let mine = |s: &&Value| s["session_id"] == session.to_string();
    let status = status.unwrap();
    status["sessions"].as_array()?.iter().find(mine).cloned()
}

/// Waits until a server knows that a session has a socket somewhere.
pub(super) async fn seen_at(server: &Server, session: uuid::Uuid) {
    wait_until("its socket is known to be there", async || {
        let shown = session_at(server, session).await?;
        (shown["connected"] == true).then_some(())
    })
    .await;
}

/// The same agent, by another server.
fn by(server: &Server, agent: &Client, session: uuid::Uuid) -> Client {
    let agent = Client::new(Locator::Home(server.home()), agent.key().to_owned()).unwrap();
    agent.with_session(Some(session))
}

pub(super) async fn next_signal(stream: &mut Stream) -> String {
    loop {
        if let ServerFrame::Signal { envelope, .. } = stream.next().await {
            return envelope.signal_id.to_string();
        }
    }
}

/// A server whose clock no test moves: where one does, names are read every second and a half, whoever speaks.
pub(super) fn unmoved(database: &Database, redis: Option<&str>) -> Server {
    let mut server = Server::none();
    let mut serve = server.command(None);
    serve
        .env_remove("PRISM_CLOCK_FILE")
        .env("PRISM_DATABASE", &database.url)
        .envs(redis.map(|redis| ("PRISM_REDIS", redis)))
        .args(["serve", "--port", "0"]);
    server.resume_as(serve);
    server
}

/// Revokes a key at one server; its socket at another one closes within the time that is promised.
async fn revoked_at(server: &Server, key_id: &Value, stream: &mut Stream) {
    let asked = Instant::now();
    let revoke = json!({"key_id": key_id});
    let revoked = server.operator().call(PID, "key_revoke", revoke).await;
    revoked.unwrap();
    let why = stream.closed().await;
    let took = asked.elapsed();
    assert!(why.contains("revoked"), "{why}");
    assert!(took < REVOKED_WITHIN, "{took:?}");
}

/// A signal goes from an agent of one server to one of the other, is read there, and both know.
fn one_prism(redis: Option<&Redis>) {
    let database = Postgres::shared().database();
    let carrier = redis.map(|redis| redis.url.as_str());
    let (one, two) = (unmoved(&database, carrier), unmoved(&database, carrier));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        // Keys of one server count at the other at once.
        let key = one.identity("Texi").await.key().to_owned();
        let (texi, session, mut stream) = seated(&two, key).await;
        seen_at(&one, session).await;
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
        revoked_at(&one, &key["key_id"], &mut stream).await;
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

/// What is due for somebody at a server that cannot be told is left to that server.
#[tokio::test]
async fn a_step_is_not_put_off_by_a_server_that_cannot_tell_the_one_whose_it_is() {
    let mut redis = Redis::start();
    redis.stop();
    let database = Postgres::shared().database();
    let (one, two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let key = one.identity("Texi").await.key().to_owned();
    let (texi, session, mut stream) = seated(&two, key).await;
    seen_at(&one, session).await;
    let blocker = |to| json!({"to": to, "signal_type": "Question", "category": "BLOCKER", "payload": {"summary": "x"}});
    let sent = one.operator().call(PID, "signal", blocker("Texi")).await;
    let sent = sent.unwrap();
    assert_eq!(next_signal(&mut stream).await, sent["signal_id"]);
    let other = texi.call(PID, "signal", blocker("frank")).await.unwrap();
    let due = || {
        let id = sent["signal_id"].as_str().unwrap();
        database.sql(&format!(
            "select escalate_at from signal_queue where id = '{id}'"
        ))
    };
    let before = due();
    one.advance(Duration::from_secs(31));
    // Both are due there by now, and this one is anybody's.
    wait_until("the other one is the operator's", async || {
        let trace = json!({"signal_id": other["signal_id"]});
        let trace = one.operator().call(PID, "signal_trace", trace).await;
        let states = crate::harness::states(&trace.unwrap());
        states.contains(&"escalated".to_owned()).then_some(())
    })
    .await;
    assert_eq!(due(), before, "put off");
    two.advance(Duration::from_secs(31));
    while !matches!(stream.next().await, ServerFrame::Escalated { .. }) {}
}

/// Only the clock of the first server is moved: what falls due there is told to the socket at the other.
async fn falls_due_elsewhere(redis: Option<&Redis>) {
    let database = Postgres::shared().database();
    let (one, two) = (server(&database, redis), server(&database, redis));
    let key = one.identity("Texi").await.key().to_owned();
    let (texi, session, mut stream) = seated(&two, key).await;
    seen_at(&one, session).await;
    wait_until("they have met", async || {
        let ready = one.operator().ready().await.unwrap();
        (ready["carrier"]["peers"] != json!([])).then_some(())
    })
    .await;
    let ask = json!({"to": "Texi", "signal_type": "Question", "category": "BLOCKER", "payload": {"summary": "x"}});
    let sent = one.operator().call(PID, "signal", ask).await.unwrap();
    assert_eq!(next_signal(&mut stream).await, sent["signal_id"]);
    one.advance(Duration::from_secs(31));
    let climbed = loop {
        if let ServerFrame::Escalated { notices } = stream.next().await {
            break json!(notices);
        }
    };
    let id = sent["signal_id"].as_str().unwrap();
    assert!(climbed.to_string().contains(id), "{climbed}");

    let read = by(&one, &texi, session);
    let read = read.call(PID, "signals_pending", json!({})).await.unwrap();
    assert_eq!(ids(&read), [id]);
    one.advance(Duration::from_secs(31));
    let returned = loop {
        if let ServerFrame::Returned { signal_ids } = stream.next().await {
            break json!(signal_ids);
        }
    };
    assert_eq!(returned, json!([id]));
}

#[tokio::test]
async fn what_climbs_or_comes_back_at_one_server_is_told_at_the_other_by_redis() {
    falls_due_elsewhere(Some(&Redis::shared())).await;
}

#[tokio::test]
async fn what_climbs_or_comes_back_at_one_server_is_told_at_the_other_by_notify() {
    falls_due_elsewhere(None).await;
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
        let (texi, session, mut stream) = seated(&server, key).await;
        postgres.stop();
        postgres.start_again();
        // Nobody knows whether it is the inbox that it was before.
        assert!(stream.closed().await.contains("say hello"));
        let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
        stream.backlog().await;
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

/// A server of which others hear nothing by the carrier is seen by what it writes.
#[test]
fn what_a_server_does_that_cannot_speak_is_known_to_the_others_all_the_same() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let cable = Cable::to(&redis.url);
    cable.cut();
    let mut one = Server::none();
    let by_cable = format!("redis://{}", cable.address);
    one.resume_with(&[
        ("PRISM_DATABASE", &database.url),
        ("PRISM_REDIS", &by_cable),
    ]);
    let two = unmoved(&database, Some(&redis.url));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let minted = json!({"identity": "Texi"});
        let minted = one.operator().call(PID, "key_mint", minted).await.unwrap();
        let key = minted["key"].as_str().unwrap().to_owned();
        let (texi, session, mut stream) = seated(&two, key).await;
        // A session of the mute server, and the end of one.
        let (_, mute) = one.session("Donna").await;
        wait_until("the others know of a new session", async || {
            let status = two.operator().call(PID, "status", json!({})).await.unwrap();
            status.to_string().contains(&mute.to_string()).then_some(())
        })
        .await;
        revoked_at(&one, &minted["key_id"], &mut stream).await;
        let refused = texi.call(PID, "status", json!({})).await.unwrap_err();
        assert!(refused.is_revoked(), "{refused:?} {session}");
        let ready = one.operator().ready().await.unwrap();
        assert_eq!(ready["carrier"]["connected"], false, "{ready}");
        assert!(ready["carrier"]["why"].is_string(), "{ready}");
        cable.mend();
        wait_until("it speaks again", async || {
            let ready = one.operator().ready().await.unwrap();
            let carrier = &ready["carrier"];
            let met = carrier["peers"].as_array().is_some_and(|p| !p.is_empty());
            (carrier["connected"] == true && met && carrier["hop_ms"].is_f64()).then_some(())
        })
        .await;
    });
}

/// The events of a kind that whoever watches is shown, up to a signal that ends the look.
async fn events_until(stream: &mut Stream, kind: &str, last: &str) -> usize {
    let mut seen = 0;
    loop {
        match stream.next().await {
            ServerFrame::Event { envelope } if envelope.signal_type == kind => seen += 1,
            ServerFrame::Watched { envelope, .. } if envelope.payload["summary"] == last => {
                return seen;
            }
            _ => {}
        }
    }
}

/// What a server that is told to stop leaves behind: no seat, and no word that was still to be said.
#[test]
fn a_server_that_stops_in_order_leaves_no_socket_behind_and_the_others_know_at_once() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let one = server(&database, Some(&redis));
    let mut two = server(&database, Some(&redis));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut seats = Vec::new();
        for n in 0..4 {
            let key = two.identity(&format!("Texi{n}")).await.key().to_owned();
            seats.push(seated(&two, key).await);
        }
        for (_, session, _) in &seats {
            seen_at(&one, *session).await;
        }
        wait_until("they have met", async || {
            let ready = one.operator().ready().await.unwrap();
            (ready["carrier"]["peers"] != json!([])).then_some(())
        })
        .await;
        assert_eq!(two.terminate(), Some(0));
        let seated = "select count(*) from sessions where server_id is not null";
        assert_eq!(database.sql(seated).trim(), "0");
        wait_until("nobody is connected there", async || {
            let status = one.operator().call(PID, "status", json!({})).await;
            let status = status.unwrap();
            let mut sessions = status["sessions"].as_array()?.iter();
            let all = sessions.all(|session| session["connected"] == false);
            all.then_some(())
        })
        .await;
        wait_until("nobody else is there", async || {
            let ready = one.operator().ready().await.unwrap();
            (ready["carrier"]["peers"] == json!([])).then_some(())
        })
        .await;
    });
}

#[test]
fn the_sessions_of_a_server_that_died_have_left_and_one_of_the_others_says_so_once() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let (one, three) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let mut two = server(&database, Some(&redis));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let key = one.identity("Texi").await.key().to_owned();
        let (texi, session, _stream) = seated(&two, key).await;
        texi.call(PID, "status", json!({})).await.unwrap();
        // What it heard is written on its own time; the rows of this one must know of a first verb.
        database.sql(&format!(
            "update sessions set first_verb_at = created_at where id = '{session}'"
        ));
        let mut watching = Vec::new();
        for server in [&one, &three] {
            let mut stream = Stream::open(server, &server.operator(), None, None, vec![]).await;
            while !matches!(stream.next().await, ServerFrame::Live) {}
            watching.push(stream);
        }
        two.kill();
        for server in [&one, &three] {
            server.advance(Duration::from_secs(200));
        }
        wait_until("it has left", async || {
            let left = format!("select left_at is not null from sessions where id = '{session}'");
            (database.sql(&left).trim() == "t").then_some(())
        })
        .await;
        one.operator()
            .call(PID, "signal", task("Texi", "the end"))
            .await
            .unwrap();
        for stream in &mut watching {
            assert_eq!(events_until(stream, "PeerLeft", "the end").await, 1);
        }
        wait_until("nobody has released it, and the third knows", async || {
            let status = three.operator().call(PID, "status", json!({})).await;
            let status = status.unwrap();
            let mine = |s: &&Value| s["session_id"] == session.to_string();
            let row = status["sessions"].as_array()?.iter().find(mine)?;
            (row["state"] == "stale").then_some(())
        })
        .await;
    });
}

/// Its clock is an hour ahead: by it, every lease would be over and every signal expired.
#[test]
fn a_server_whose_clock_is_off_goes_by_the_databases() {
    let database = Postgres::shared().database();
    let mut off = Server::none();
    let ahead = [
        ("PRISM_DATABASE", database.url.as_str()),
        ("PRISM_CLOCK_OFF_MS", "3600000"),
    ];
    off.resume_with(&ahead);
    let right = server(&database, None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let ready = off.operator().ready().await.unwrap();
        let by = ready["database"]["clock_off_ms"].as_i64().unwrap();
        assert!((-3_610_000..-3_590_000).contains(&by), "{ready}");
        assert!(ready["notes"].to_string().contains("clock is 3"), "{ready}");
        let key = right.identity("Texi").await.key().to_owned();
        let (texi, _, _stream) = seated(&off, key).await;
        let mut signal = task("Texi", "go");
        signal["ttl_s"] = json!(600);
        let sent = right.operator().call(PID, "signal", signal).await.unwrap();
        let drained = texi.call(PID, "signals_pending", json!({})).await.unwrap();
        assert_eq!(ids(&drained), [sent["signal_id"].as_str().unwrap()]);
        // The server that is off has the duty, and goes on with it once half of its term is over.
        let duty = || database.sql("select until from duties where duty = 'retention'");
        let before = duty();
        off.advance(Duration::from_secs(16));
        wait_until("a sweep", async || (duty() != before).then_some(())).await;
        let here = Client::new(Locator::Home(right.home()), texi.key().to_owned()).unwrap();
        let nothing = here.call(PID, "signals_pending", json!({})).await.unwrap();
        assert!(ids(&nothing).is_empty(), "it is leased");
        let lease = json!({"lease_id": drained["lease_id"]});
        let confirmed = here.call(PID, "signals_confirm", lease).await.unwrap();
        assert_eq!(confirmed["confirmed"], 1);
    });
}

/// No connection came to be, so that nothing was sent.
fn is_not_there(problem: &Problem) -> bool {
    problem.is(Code::ServerUnreachable) && problem.message.starts_with("no prism server ")
}

/// Whoever knows both servers is never refused while each of them is restarted.
#[test]
fn servers_are_restarted_one_after_the_other_without_a_failed_verb() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let (mut one, mut two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let env = [
        ("PRISM_DATABASE", database.url.as_str()),
        ("PRISM_REDIS", redis.url.as_str()),
    ];
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let texi = runtime.block_on(async { one.identity("Texi").await.key().to_owned() });
    let going = Arc::new(AtomicBool::new(true));
    let asking: Vec<_> = (0..6)
        .map(|n| {
            // Connections of their own, none of which is left lying.
            let (operators, going) = ([one.operator(), two.operator()], going.clone());
            runtime.spawn(async move {
                let (mut answered, mut sent) = (0, 0);
                while going.load(Ordering::Relaxed) {
                    let (verb, body) = match (n + answered) % 3 {
                        0 => ("status", json!({})),
                        1 => ("signal", task("Texi", &format!("{n}, number {answered}"))),
                        _ => ("recall", json!({"query": "what is there"})),
                    };
                    let first = &operators[(n + answered) % 2];
                    let answer = match first.call(PID, verb, body.clone()).await {
                        // It is not there, which a proxy sees as well. Of what was sent and not answered nobody knows
                        // whether it was done.
                        Err(p) if is_not_there(&p) => {
                            operators[(n + answered + 1) % 2]
                                .call(PID, verb, body)
                                .await
                        }
                        answer => answer,
                    };
                    assert!(answer.is_ok(), "{verb}: {answer:?}");
                    answered += 1;
                    sent += usize::from(verb == "signal");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                assert!(answered > 0);
                sent
            })
        })
        .collect();
    for server in [&mut one, &mut two] {
        assert_eq!(server.terminate(), Some(0));
        server.resume_with(&env);
    }
    going.store(false, Ordering::Relaxed);
    let sent = asking.into_iter().map(|a| runtime.block_on(a).unwrap());
    let sent: usize = sent.sum();
    let stored = "select count(*), count(distinct payload::jsonb->>'summary') from signal_queue";
    assert_eq!(database.sql(stored).trim(), format!("{sent}|{sent}"));
    // And who had a key has it still.
    let texi = Client::new(Locator::Home(two.home()), texi).unwrap();
    runtime
        .block_on(texi.call(PID, "status", json!({})))
        .unwrap();
}

/// A link made at one server opens the page at the other; a probe says who pushed it.
#[test]
fn links_and_probes_go_from_one_server_to_the_other() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let (one, two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let link = one
            .operator()
            .call(PID, "dashboard_link", json!({}))
            .await
            .unwrap();
        let path = link["url"]
            .as_str()
            .unwrap()
            .rsplit('/')
            .next()
            .unwrap()
            .to_owned();
        let http = prism::client::http_client(Duration::from_secs(10)).unwrap();
        let there = format!("{}/sign-in/{path}", two.url());
        assert_eq!(http.get(&there).send().await.unwrap().status(), 303);
        assert_eq!(http.get(&there).send().await.unwrap().status(), 401, "once");

        let key = one.identity("Texi").await.key().to_owned();
        let (texi, session, mut stream) = seated(&two, key).await;
        wait_until("the way there was measured", async || {
            let ready = two.operator().ready().await.unwrap();
            ready["carrier"]["hop_ms"].is_f64().then_some(())
        })
        .await;
        let asked = wait_until("the session is known", async || {
            let probe = json!({"session_id": session.to_string(), "echo": false});
            one.operator()
                .call(PID, "signal/loopback-issue", probe)
                .await
                .ok()
        })
        .await;
        let id = asked["signal_id"].as_str().unwrap();
        assert_eq!(asked["layers"]["redis_publish"]["transport"], "redis");
        assert_eq!(next_signal(&mut stream).await, id);
        let pushed = wait_until("who pushed it is known", async || {
            let trace = json!({"signal_id": id});
            let trace = one
                .operator()
                .call(PID, "signal_trace", trace)
                .await
                .unwrap();
            let pushed = trace["receipt"]["sessions"][0].clone();
            pushed["pushed_by"].is_string().then_some(pushed)
        })
        .await;
        let by = pushed["pushed_by"].as_str().unwrap();
        assert!(by.ends_with(&format!(":{}", two.pid())), "{pushed}");
        assert!(pushed["hop_us"].is_i64(), "{pushed}");
        // Its model reads its inbox at its own server, and the other one knows.
        let read = json!({"signal_id": id});
        let seen = async || {
            let operator = one.operator();
            let seen = operator.call(PID, "signal/loopback-model", read.clone());
            seen.await.unwrap()["model_ack"].is_string()
        };
        assert!(!seen().await);
        texi.call(PID, "signals_pending", json!({})).await.unwrap();
        assert!(seen().await);
        let probe = json!({"probe": asked});
        one.operator()
            .call(PID, "signal/loopback-finish", probe)
            .await
            .unwrap();
        let kept = database.sql("select envelope from loopback_runs");
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert_eq!(kept["layers"]["redis_publish"]["server"], by);
        assert!(kept["layers"]["redis_publish"]["hop_ms"].is_f64(), "{kept}");
    });
}

/// Its first verbs come to both servers at once, as a proxy may send them.
#[test]
fn a_session_starts_once_and_what_it_does_at_one_server_is_seen_where_its_socket_is() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let (one, two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let key = one.identity("Texi").await.key().to_owned();
        let (texi, session, _stream) = seated(&two, key).await;
        let there = by(&one, &texi, session);
        // The other server knows the session before its first verb.
        there.call(PID, "heartbeat", json!({})).await.unwrap();
        let mut watching = Vec::new();
        for server in [&one, &two] {
            let mut stream = Stream::open(server, &server.operator(), None, None, vec![]).await;
            while !matches!(stream.next().await, ServerFrame::Live) {}
            watching.push(stream);
        }
        let (a, b) = tokio::join!(
            there.call(PID, "status", json!({})),
            texi.call(PID, "status", json!({}))
        );
        a.unwrap();
        b.unwrap();
        let starts = "select count(*) from session_deltas where delta_kind = 'start'";
        assert_eq!(database.sql(starts).trim(), "1");
        let named = json!({"name": "by the other"});
        there.call(PID, "start", named).await.unwrap();
        let waits = json!({"for": "permission"});
        there.call(PID, "session_waiting", waits).await.unwrap();
        wait_until("the server with its socket shows it", async || {
            let shown = session_at(&two, session).await?;
            let waits = &shown["waits"]["for"] == "permission";
            (shown["name"] == "by the other" && waits).then_some(())
        })
        .await;
        assert_eq!(session_at(&one, session).await.unwrap()["state"], "live");
        one.operator()
            .call(PID, "signal", task("Texi", "the end"))
            .await
            .unwrap();
        for stream in &mut watching {
            assert_eq!(events_until(stream, "PeerJoined", "the end").await, 1);
        }
    });
}

#[test]
fn whoever_comes_by_one_server_can_be_written_to_at_the_other_at_once() {
    let database = Postgres::shared().database();
    let (one, two) = (server(&database, None), server(&database, None));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        one.identity("Texi").await;
        let comes = async |n: usize| {
            let name = format!("Reader{n}");
            // Names change at both, and whoever reads them there must not take another's reading for its own.
            let (here, there) = match n % 2 {
                0 => (&one, &two),
                _ => (&two, &one),
            };
            here.identity(&name).await;
            let sent = there
                .operator()
                .call(PID, "signal", task(&name, "go"))
                .await;
            let sent = sent.unwrap_or_else(|problem| panic!("{name}: {problem:?}"));
            assert_eq!(sent["publish_path"], "queued_offline");
        };
        futures_util::future::join_all((0..40).map(comes)).await;
    });
}

/// A session without a socket anywhere is live, and nobody can push to it.
#[test]
fn what_no_server_has_a_socket_for_was_published_to_nobody() {
    let database = Postgres::shared().database();
    let (one, two) = (server(&database, None), server(&database, None));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (_texi, session) = two.session("Texi").await;
        wait_until("Texi is known to be there", async || {
            session_at(&one, session).await
        })
        .await;
        let sent = one.operator().call(PID, "signal", task("Texi", "go")).await;
        assert_eq!(sent.unwrap()["publish_path"], "no_subscriber");
    });
}

#[test]
fn rows_are_embedded_anew_by_more_models_and_never_back_by_a_server_that_has_fewer() {
    use crate::generation_story::{MODELS, embedded_by, give, note};
    let database = Postgres::shared().database();
    let (poor, mut rich) = (server(&database, None), server(&database, None));
    // As five minutes after whoever embedded anew was done.
    let duty_is_free = || database.sql("update duties set until = 0");
    let generation = || database.sql("select distinct model from memory_vectors");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        give(&poor, &MODELS[..1]);
        note(
            &poor.operator(),
            "moved the feature flags to a typed registry",
        )
        .await;
        embedded_by(&poor.operator(), &["minilm"]).await;
        give(&rich, &MODELS);
        duty_is_free();
        note(
            &rich.operator(),
            "the courier mail template uses tables again",
        )
        .await;
        embedded_by(&rich.operator(), &["minilm", "bge-small"]).await;
        wait_until("the vectors of one are gone", async || {
            (!generation().trim().contains('\n')).then_some(())
        })
        .await;
        let both = generation();
        rich.kill();
        duty_is_free();
        note(&poor.operator(), "the nightly export streams rows").await;
        wait_until("it says that it cannot", async || {
            let operator = poor.operator();
            let reembed = operator.call(PID, "memory_reembed", json!({})).await;
            reembed.unwrap()["off"].as_str().map(drop)
        })
        .await;
        assert_eq!(generation(), both);
        rich.resume_with(&[("PRISM_DATABASE", &database.url)]);
        embedded_by(&rich.operator(), &["minilm", "bge-small"]).await;
        assert_eq!(generation(), both);
    });
}

#[test]
fn servers_that_start_at_once_on_an_empty_database_all_come_up() {
    let database = Postgres::shared().database();
    let servers: Vec<Server> = std::thread::scope(|threads| {
        let starting: Vec<_> = (0..4)
            .map(|_| threads.spawn(|| server(&database, None)))
            .collect();
        let started = starting.into_iter().map(|thread| thread.join().unwrap());
        started.collect()
    });
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let key = servers[0].identity("Texi").await.key().to_owned();
        for server in &servers {
            let texi = Client::new(Locator::Home(server.home()), key.clone()).unwrap();
            texi.call(PID, "status", json!({})).await.unwrap();
        }
    });
}

/// What a server had queued when it froze does not take one turn after the other.
#[test]
fn a_server_that_freezes_amid_many_writes_holds_the_others_up_once() {
    let database = Postgres::shared().database();
    let redis = Redis::shared();
    let (one, two) = (
        server(&database, Some(&redis)),
        server(&database, Some(&redis)),
    );
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for name in ["Texi", "Donna", "Wren", "Bob"] {
            one.identity(name).await;
        }
        let done = Arc::new(AtomicUsize::new(0));
        for n in 0..16 {
            let (done, operator) = (done.clone(), two.operator());
            let to = ["Texi", "Donna", "Wren", "Bob"][n % 4];
            tokio::spawn(async move {
                loop {
                    let sent = match n < 12 {
                        true => operator.call(PID, "signal", task(to, "x")).await,
                        false => operator.call(PID, "note", json!({"text": "x"})).await,
                    };
                    if sent.is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        wait_until("they are at it", async || {
            (done.load(Ordering::Relaxed) > 100).then_some(())
        })
        .await;
        two.stop();
        let froze = Instant::now();
        let operator = one.operator();
        let (sent, noted) = tokio::join!(
            operator.call(PID, "signal", task("Texi", "after")),
            operator.call(PID, "note", json!({"text": "after"})),
        );
        sent.unwrap();
        noted.unwrap();
        let took = froze.elapsed();
        two.go_on();
        assert!(took < Duration::from_secs(9), "{took:?}");
    });
    // Those that still send are not waited for.
    runtime.shutdown_background();
}
