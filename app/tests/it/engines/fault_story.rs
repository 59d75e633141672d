//! Nothing lost, doubled or out of order: two servers on one PostgreSQL and one Redis, while a cable is cut, a server killed, the database
//! restarted and Redis stopped under many senders.

use crate::harness::cable::Cable;
use crate::harness::engines::{Database, Postgres, Redis};
use crate::harness::{PID, Server, task, wait_until};
use futures_util::{SinkExt, StreamExt};
use prism::client::{Client, Locator, Unreachable};
use prism::home::Home;
use prism::shim::socket::{self, Socket};
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::{Code, Problem};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

const SENDERS: usize = 16;
const READERS: usize = 4;
/// Assignments that the gate has something to say about.
const GATED: usize = 12;
/// How long all of it may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How many signals are sent: all of them in `make test-full`.
fn sends() -> usize {
    let said = std::env::var("PRISM_FAULT_SENDS").ok();
    said.and_then(|n| n.parse().ok()).unwrap_or(1_500)
}

/// A server that refuses nobody for asking too often.
fn server(database: &Database, redis: &str) -> Server {
    let server = Server::none();
    let key = prism::clock::new_key().unwrap();
    let config = format!(
        "operator = \"frank\"\napi_key = \"{key}\"\n[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n"
    );
    server.home().create().unwrap();
    server
        .home()
        .write("config.toml", config.as_bytes())
        .unwrap();
    let mut server = server;
    resume(&mut server, database, redis);
    server
}

fn resume(server: &mut Server, database: &Database, redis: &str) {
    server.resume_with(&[
        ("PRISM_DATABASE", database.url.as_str()),
        ("PRISM_REDIS", redis),
    ]);
}

/// Somebody who knows both servers and asks the other one when one does not answer.
#[derive(Clone)]
struct Caller([Client; 2]);

impl Caller {
    fn new(homes: &[Home; 2], key: &str) -> Self {
        let at = |home: &Home| Client::new(Locator::Home(home.clone()), key.to_owned()).unwrap();
        Self([at(&homes[0]), at(&homes[1])])
    }

    fn with_session(&self, session: Uuid) -> Self {
        Self(
            self.0
                .clone()
                .map(|client| client.with_session(Some(session))),
        )
    }

    /// Asks until it is answered, beginning with one of the two. What is refused is not asked again.
    async fn call(&self, first: usize, verb: &str, body: Value) -> Result<Value, Problem> {
        for turn in first.. {
            match self.0[turn % 2].call(PID, verb, body.clone()).await {
                Err(problem) if problem.status >= 500 || problem.is_busy() => {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                answer => return answer,
            }
        }
        unreachable!()
    }
}

/// What somebody's socket was sent, in its order, at whichever server it was.
struct Inbox {
    session: Uuid,
    heard: Vec<(i64, String, String)>,
    /// Sockets that it had to open.
    opened: usize,
}

async fn hello(home: &Home, key: &str, session: Uuid, last_seq: i64) -> Option<Socket> {
    let to = Locator::Home(home.clone()).target().ok()?;
    let mut ws = socket::connect(to, key).await.ok()?;
    let hello = ClientFrame::Hello {
        pid: PID.into(),
        session_id: Some(session),
        last_seq: (last_seq > 0).then_some(last_seq),
        last_id: None,
        copy: None,
        confirm: Vec::new(),
    };
    ws.send(socket::encode(&hello)).await.ok()?;
    Some(ws)
}

/// Reads an inbox until it has heard of everything: a socket that ends is opened at the other server.
async fn read(
    homes: [Home; 2],
    key: String,
    session: Uuid,
    first: usize,
    all: Arc<AtomicUsize>,
    over: Arc<AtomicBool>,
) -> Inbox {
    let mut inbox = Inbox {
        session,
        heard: Vec::new(),
        opened: 0,
    };
    for turn in first.. {
        let after = inbox.heard.last().map_or(0, |(seq, ..)| *seq);
        let Some(mut ws) = hello(&homes[turn % 2], &key, session, after).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        inbox.opened += 1;
        let mut silent = 0;
        loop {
            let message = tokio::time::timeout(Duration::from_secs(1), ws.next()).await;
            let Ok(message) = message else {
                if over.load(Ordering::Acquire) {
                    return inbox;
                }
                silent += 1;
                if silent % 20 == 0 && ws.send(socket::encode(&ClientFrame::Ping)).await.is_err() {
                    break;
                }
                continue;
            };
            let Some(Ok(message)) = message else { break };
            if let Message::Close(Some(frame)) = &message {
                let code = u16::from(frame.code);
                assert!(!close::ends_session(code), "{session} is over: {frame:?}");
                break;
            }
            if let Some(ServerFrame::Signal { envelope, .. }) = socket::decode(&message) {
                let summary = envelope.payload["summary"].as_str().unwrap().to_owned();
                let id = envelope.signal_id.to_string();
                inbox.heard.push((envelope.seq.unwrap(), id, summary));
                all.fetch_add(1, Ordering::Release);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    unreachable!()
}

#[test]
fn two_servers_lose_nothing_while_one_thing_after_the_other_is_taken_from_them() {
    let (mut postgres, mut redis) = (Postgres::start(), Redis::start());
    let database = postgres.database();
    let cable = Cable::to(&redis.url);
    let by_cable = format!("redis://{}", cable.address);
    let (one, mut two) = (server(&database, &by_cable), server(&database, &redis.url));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let homes = [one.home(), two.home()];
    let sends = sends();

    // Senders, readers, and one whose assignments the gate has something to say about.
    let mut keys = HashMap::new();
    let (readers, gated) = runtime.block_on(async {
        for n in 0..SENDERS {
            let name = format!("Sender{n}");
            keys.insert(name.clone(), one.identity(&name).await.key().to_owned());
        }
        let mut readers = Vec::new();
        for n in 0..READERS {
            let (client, session) = one.session(&format!("Reader{n}")).await;
            readers.push((client.key().to_owned(), session));
        }
        let (donna, session) = two.session("Donna").await;
        let caller = Caller::new(&homes, donna.key()).with_session(session);
        let mut gated = Vec::new();
        for n in 0..GATED {
            let task = json!({"to": "Donna", "signal_type": "TaskAssigned",
                "payload": {"summary": format!("ratify docs/specs/spec-{n}.md")}});
            let sent = one.operator().call(PID, "signal", task).await.unwrap();
            gated.push(sent["signal_id"].as_str().unwrap().to_owned());
        }
        let drained = caller.call(0, "signals_pending", json!({})).await.unwrap();
        let lease = json!({"lease_id": drained["lease_id"]});
        caller.call(1, "signals_confirm", lease).await.unwrap();
        (readers, (caller, gated))
    });

    let accepted = Arc::new(AtomicUsize::new(0));
    let (pushed, over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let reading: Vec<_> = readers
        .iter()
        .enumerate()
        .map(|(n, (key, session))| {
            let (key, pushed, over) = (key.clone(), pushed.clone(), over.clone());
            runtime.spawn(read(homes.clone(), key, *session, n, pushed, over))
        })
        .collect();
    let sending: Vec<_> = (0..SENDERS)
        .map(|s| {
            let caller = Caller::new(&homes, &keys[&format!("Sender{s}")]);
            let accepted = accepted.clone();
            runtime.spawn(async move {
                let mut mine = Vec::new();
                for n in (s..sends).step_by(SENDERS) {
                    let signal = json!({"to": format!("Reader{}", n / SENDERS % READERS),
                        "signal_type": "TaskAssigned", "payload": {"summary": format!("{s}-{n}")},
                        "idempotency_key": format!("{s}-{n}")});
                    let sent = caller.call(s + n, "signal", signal).await.unwrap();
                    mine.push((
                        sent["signal_id"].as_str().unwrap().to_owned(),
                        format!("{s}-{n}"),
                    ));
                    accepted.fetch_add(1, Ordering::Release);
                }
                mine
            })
        })
        .collect();
    // Each assignment is acknowledged at both servers at once, again and again while they come and go.
    let (donna, assignments) = gated;
    let warned = {
        let (donna, assignments, accepted) = (donna, assignments.clone(), accepted.clone());
        runtime.spawn(async move {
            let mut warnings = 0;
            for (n, id) in assignments.iter().enumerate() {
                while accepted.load(Ordering::Acquire) < n * sends / GATED {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let ack = json!({"signal_id": id, "state": "model_acted"});
                let (one, two) = tokio::join!(
                    donna.call(0, "signal_ack", ack.clone()),
                    donna.call(1, "signal_ack", ack)
                );
                for ack in [one.unwrap(), two.unwrap()] {
                    warnings += ack["warnings"].as_array().map_or(0, Vec::len);
                }
            }
            warnings
        })
    };

    let until = |part: usize| {
        let began = std::time::Instant::now();
        while accepted.load(Ordering::Acquire) < part * sends / 9 {
            assert!(
                began.elapsed() < PATIENCE,
                "the senders stand still at {part} of 9"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    until(1);
    cable.cut();
    until(2);
    two.kill();
    until(3);
    resume(&mut two, &database, &redis.url);
    until(4);
    cable.mend();
    until(5);
    postgres.stop();
    postgres.start_again();
    until(6);
    redis.stop();
    until(7);
    redis.start_again();
    until(8);
    postgres.stop();
    postgres.start_again();

    let inboxes = runtime.block_on(async {
        let mut sent = HashMap::new();
        for sender in sending {
            let mine = tokio::time::timeout(PATIENCE, sender)
                .await
                .unwrap()
                .unwrap();
            sent.extend(mine);
        }
        assert_eq!(sent.len(), sends, "every send has a signal of its own");
        let kept = "select count(*) from signal_queue where idempotency_key is not null";
        assert_eq!(
            database.sql(kept).trim(),
            sends.to_string(),
            "what was accepted is kept"
        );
        let began = std::time::Instant::now();
        while pushed.load(Ordering::Acquire) < sends {
            assert!(began.elapsed() < PATIENCE, "the sockets lack some");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        over.store(true, Ordering::Release);
        let mut inboxes = Vec::new();
        for reader in reading {
            inboxes.push(reader.await.unwrap());
        }
        let warnings = warned.await.unwrap();
        // A warning may be lost with the answer that a server was killed over; its event is not.
        assert!(
            (1..=GATED).contains(&warnings),
            "{warnings} warnings for {GATED} assignments"
        );
        let warned =
            "select count(*) from recallgate_events where trigger = 'ack' and outcome = 'warned'";
        assert_eq!(database.sql(warned).trim(), GATED.to_string());
        // Exactly once, without a gap, and in each sender's order.
        let mut heard = HashMap::new();
        for inbox in &inboxes {
            let places: Vec<i64> = inbox.heard.iter().map(|(seq, ..)| *seq).collect();
            let every: Vec<i64> = (1..=places.len() as i64).collect();
            assert_eq!(places, every, "an inbox has a gap");
            let mut last: HashMap<&str, usize> = HashMap::new();
            for (_, id, summary) in &inbox.heard {
                let (sender, n) = summary.split_once('-').unwrap();
                let n: usize = n.parse().unwrap();
                let before = last.insert(sender, n);
                assert!(
                    before.is_none_or(|before| before < n),
                    "{summary} came late"
                );
                assert!(heard.insert(id.clone(), summary.clone()).is_none(), "twice");
            }
        }
        assert_eq!(heard, sent);
        assert!(
            inboxes.iter().any(|inbox| inbox.opened > 1),
            "nobody had to move"
        );
        inboxes
    });
    let rows = database.sql(
        "select count(*), count(distinct idempotency_key) from signal_queue where idempotency_key is not null",
    );
    assert_eq!(rows.trim(), format!("{sends}|{sends}"));
    let warned = "select count(*), count(distinct assignment_id) from recallgate_events where outcome = 'warned'";
    assert_eq!(database.sql(warned).trim(), format!("{GATED}|{GATED}"));
    runtime.block_on(async {
        drained_once(&homes, &readers, sends).await;
        moves(&homes, &readers[0].0, inboxes[0].session).await;
    });
}

/// What was pushed is read once, at whichever server.
async fn drained_once(homes: &[Home; 2], readers: &[(String, Uuid)], sends: usize) {
    let mut drained = HashMap::new();
    for (key, session) in readers {
        let caller = Caller::new(homes, key).with_session(*session);
        for turn in 0.. {
            let answer = caller
                .call(turn, "signals_pending", json!({}))
                .await
                .unwrap();
            let signals = answer["signals"].as_array().cloned().unwrap_or_default();
            if signals.is_empty() {
                break;
            }
            let lease = json!({"lease_id": answer["lease_id"]});
            let confirmed = caller
                .call(turn + 1, "signals_confirm", lease)
                .await
                .unwrap();
            assert_eq!(confirmed["confirmed"], signals.len());
            for signal in signals {
                let id = signal["signal_id"].as_str().unwrap().to_owned();
                assert!(drained.insert(id, ()).is_none(), "read twice");
            }
        }
    }
    assert_eq!(drained.len(), sends);
}

/// A session is where it said hello last: its older socket at the other server ends.
async fn moves(homes: &[Home; 2], key: &str, session: Uuid) {
    let open = async |home: &Home| {
        wait_until("a socket", async || hello(home, key, session, 0).await).await
    };
    let mut older = open(&homes[0]).await;
    loop {
        let message = older.next().await.unwrap().unwrap();
        if matches!(socket::decode(&message), Some(ServerFrame::Live)) {
            break;
        }
    }
    let mut newer = open(&homes[1]).await;
    let code = loop {
        let next = tokio::time::timeout(Duration::from_secs(30), older.next()).await;
        match next.expect("the older socket ends") {
            Some(Ok(Message::Close(Some(frame)))) => break u16::from(frame.code),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(code, close::MOVED);
    newer
        .send(socket::encode(&ClientFrame::Ping))
        .await
        .unwrap();
    loop {
        let message = newer.next().await.unwrap().unwrap();
        if matches!(socket::decode(&message), Some(ServerFrame::Pong)) {
            break;
        }
    }
    let refused = |p: &Problem| p.is(Code::SessionReleased);
    let caller = Caller::new(homes, key).with_session(session);
    let status = caller.call(0, "status", json!({})).await;
    assert!(!status.as_ref().is_err_and(refused), "{status:?}");
}

#[test]
fn a_database_that_restarts_holds_callers_up_and_refuses_none() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let operator = server.operator();
    // It is seated, so that receipts are always to be written, which some of the verbs wait for.
    let _texi = server.agent("Texi");
    let first = task("Texi", "the first");
    let first = runtime.block_on(operator.call(PID, "signal", first));
    let first = first.unwrap()["signal_id"].clone();
    let (going, answered) = (
        Arc::new(AtomicBool::new(true)),
        Arc::<AtomicUsize>::default(),
    );
    let verbs = ["status", "signal", "signal_trace", "signal_list", "recall"];
    let asking: Vec<_> = verbs
        .into_iter()
        .map(|verb| {
            let (operator, going, answered) = (operator.clone(), going.clone(), answered.clone());
            let first = first.clone();
            runtime.spawn(async move {
                for n in 0.. {
                    if !going.load(Ordering::Relaxed) {
                        break;
                    }
                    let body = match verb {
                        "signal" => json!({"to": "Texi", "signal_type": "TaskAssigned",
                            "payload": {"summary": n.to_string()}}),
                        "signal_trace" => json!({"signal_id": first}),
                        "recall" => json!({"query": "what is there"}),
                        _ => json!({}),
                    };
                    let answer = match (verb, body) {
                        // As shims and the CLI send: a commit of which nobody knows is asked after under its key.
                        ("signal", Value::Object(body)) => {
                            operator.send_signal(PID, body, Unreachable::Retry).await
                        }
                        (_, body) => operator.call(PID, verb, body).await,
                    };
                    // A recall writes what it answered, and says so when nobody knows whether that is kept.
                    let unknown = |p: &Problem| verb == "recall" && p.is(Code::OutcomeUnknown);
                    let fine = answer.as_ref().is_ok() || answer.as_ref().is_err_and(unknown);
                    assert!(fine, "{verb}: {answer:?}");
                    answered.fetch_add(1, Ordering::Release);
                    tokio::time::sleep(Duration::from_millis(30)).await;
                }
            })
        })
        .collect();
    let some_more = || {
        let before = answered.load(Ordering::Acquire);
        crate::harness::wait_for("verbs are answered", || {
            (answered.load(Ordering::Acquire) > before + 12).then_some(())
        });
    };
    for _ in 0..3 {
        some_more();
        postgres.stop();
        postgres.start_again();
    }
    some_more();
    going.store(false, Ordering::Relaxed);
    for asking in asking {
        runtime.block_on(asking).unwrap();
    }
    let stored = database
        .sql("select count(*) - count(distinct payload), max(seq) - count(*) from signal_queue");
    assert_eq!(stored.trim(), "0|0", "each of them once, and without a gap");
}

/// The way to the database may lead to one that only reads for a while, on connections that stay open.
#[test]
fn a_database_that_only_reads_for_a_while_holds_senders_up_and_refuses_none() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(server.identity("Texi"));
    let name = database.url.rsplit_once('/').unwrap().1;
    let only_reads = |how: &str| {
        let set = format!("alter database \"{name}\" set default_transaction_read_only = {how}");
        postgres.sql(&set);
    };
    let refused = || {
        let count = format!("select xact_rollback from pg_stat_database where datname = '{name}'");
        postgres.sql(&count).trim().parse::<i64>().unwrap()
    };
    only_reads("on");
    postgres.sql(&format!(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"
    ));
    let (operator, before) = (server.operator(), refused());
    let sending = runtime.spawn(async move {
        let sent = task("Texi", "to whoever writes");
        operator.call(PID, "signal", sent).await
    });
    crate::harness::wait_for("a write is refused", || (refused() > before).then_some(()));
    only_reads("off");
    let sent = runtime.block_on(sending).unwrap();
    assert!(sent.is_ok(), "{sent:?}");
}

/// What the gate cannot do is no matter of whoever acknowledges.
#[test]
fn an_acknowledgment_is_stored_though_the_gate_cannot_judge_it() {
    let database = Postgres::shared().database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (texi, _) = server.session("Texi").await;
        let sent = task("Texi", "ratify docs/specs/spec-1.md");
        let sent = server.operator().call(PID, "signal", sent).await.unwrap();
        let drained = texi.call(PID, "signals_pending", json!({})).await.unwrap();
        let lease = json!({"lease_id": drained["lease_id"]});
        texi.call(PID, "signals_confirm", lease).await.unwrap();
        let ack = json!({"signal_id": sent["signal_id"], "state": "model_acted"});
        database.sql("alter table recallgate_events rename to elsewhere");
        let acked = texi.call(PID, "signal_ack", ack.clone()).await.unwrap();
        assert_eq!(acked["warnings"].as_array().map_or(0, Vec::len), 0);
        let stored = database.sql("select count(acted_at) from signal_queue");
        assert_eq!(stored.trim(), "1");
        database.sql("alter table elsewhere rename to recallgate_events");
        let acked = texi.call(PID, "signal_ack", ack).await.unwrap();
        assert_eq!(acked["warnings"].as_array().map_or(0, Vec::len), 1);
    });
}

/// A newer server has changed a table under this one: what was prepared for it as it was is prepared anew.
#[test]
fn a_table_that_was_upgraded_meanwhile_is_read_as_it_is_now() {
    let database = Postgres::shared().database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        for round in 0..3 {
            for n in 0..4 {
                server.identity(&format!("Texi{round}{n}")).await;
            }
            for table in ["api_keys", "sessions", "personas", "signal_queue"] {
                database.sql(&format!("alter table {table} add column extra{round} text"));
            }
        }
        let (texi, _) = server.session("Texi").await;
        texi.call(PID, "status", json!({})).await.unwrap();
    });
}
