//! What servers on one PostgreSQL do by themselves: how little where nobody comes, who goes on when one dies, what strangers cost,
//! what one knows of what the other has moved, and how they are found behind one address.

use super::tenants;
use crate::door::http;
use crate::harness::engines::{Database, Postgres, Redis};
use crate::harness::{PID, Server, task, wait_until};
use crate::recall_story::give_model;
use futures_util::future::join_all;
use futures_util::{SinkExt, StreamExt};
use prism::client::{Client, Locator};
use prism::shim::socket::{self, Socket};
use prism_core::Code;
use prism_core::api::{ClientFrame, ServerFrame};
use serde_json::json;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use uuid::Uuid;

fn server(database: &Database, more: &[(&'static str, &str)]) -> Server {
    let mut server = Server::none();
    let mut env = vec![("PRISM_DATABASE", database.url.as_str())];
    env.extend_from_slice(more);
    server.resume_with(&env);
    server
}

/// How often a server has gone to its database.
async fn round_trips(server: &Server) -> u64 {
    let metrics = http().get(format!("{}/metrics", server.url())).send().await;
    let metrics = metrics.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    let line = lines.find(|line| line.starts_with("prism_database_round_trips_total"));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

/// Tenants that were asked something once cost next to nothing, and whoever comes back meets what rows say.
#[tokio::test]
async fn a_tenant_that_nobody_asks_anything_is_left_alone_until_somebody_comes() {
    let database = Postgres::shared().database();
    let server = server(&database, &[("PRISM_FAILPOINTS", "quiet.soon")]);
    let mut teams = Vec::new();
    for name in ["acme", "bolt", "crux"] {
        let (operator, id) = tenants::add(&server, &database.url, name);
        operator.call(PID, "status", json!({})).await.unwrap();
        teams.push((operator, id));
    }
    wait_until("all of them rest", async || {
        let before = round_trips(&server).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        // Which tenants there are is looked up once a second for all of them.
        (round_trips(&server).await - before < 8).then_some(())
    })
    .await;
    // Nobody tells the server of this.
    let (operator, id) = &teams[1];
    database.sql(&format!(
        "update api_keys set revoked_at = created_at where tenant_id = '{id}'"
    ));
    let refused = operator.call(PID, "status", json!({})).await.unwrap_err();
    assert!(refused.is_revoked(), "{refused:?}");
    teams[0].0.call(PID, "status", json!({})).await.unwrap();
}

/// Nobody comes to it any more, and still what nobody reads ends when it was to end.
#[tokio::test]
async fn what_is_due_at_a_quiet_one_is_done_when_it_is_due() {
    let database = Postgres::shared().database();
    let server = server(&database, &[("PRISM_FAILPOINTS", "quiet.soon")]);
    server.identity("Texi").await;
    let mut signal = task("Texi", "soon over");
    signal["ttl_s"] = json!(5);
    server.operator().call(PID, "signal", signal).await.unwrap();
    let late = wait_until("it has expired", async || {
        let late = "select (ended_at - expires_at) / 1000000 from signal_queue";
        database.sql(late).trim().parse::<i64>().ok()
    })
    .await;
    assert!(
        late < 15,
        "{late} s late: its next look was in half a minute"
    );
}

/// What does not depend on each other is asked in one breath, with what waits in the caller's inbox.
#[tokio::test]
async fn a_verb_goes_to_the_database_no_more_often_than_it_must() {
    let database = Postgres::shared().database();
    let server = server(&database, &[]);
    let (texi, _) = server.session("Texi").await;
    let operator = server.operator();
    for summary in ["one", "two"] {
        let blocker = json!({"to": "frank", "signal_type": "StatusUpdate", "category": "BLOCKER", "payload": {"summary": summary}});
        texi.call(PID, "signal", blocker).await.unwrap();
    }
    let whois = json!({"identity": "Texi"});
    let input =
        json!({"class": "correction", "prompt_text": "no, the other one", "confidence": "high"});
    for (client, verb, body, most) in [
        (&texi, "whois", whois, 1),
        (&operator, "now", json!({}), 2),
        (&texi, "note", json!({"text": "the ring holds"}), 2),
        (&texi, "operator_input", input, 2),
    ] {
        let mut fewest = u64::MAX;
        for _ in 0..40 {
            // What it does by itself may come between.
            let before = round_trips(&server).await;
            client.call(PID, verb, body.clone()).await.unwrap();
            fewest = fewest.min(round_trips(&server).await - before);
        }
        assert!(fewest <= most, "{verb}: {fewest}");
    }
}

/// What one server did for all is another's once it has been dead for its term.
#[test]
fn a_duty_whose_holder_was_killed_is_taken_over() {
    let database = Postgres::shared().database();
    let mut one = server(&database, &[]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let holder = async || {
        let asked = "select server_id from duties where duty = 'retention'";
        Some(database.sql(asked).trim().to_owned()).filter(|id| !id.is_empty())
    };
    runtime.block_on(async {
        let first = wait_until("the first has it", holder).await;
        let two = server(&database, &[]);
        two.identity("Texi").await;
        one.kill();
        // Its term is over.
        database.sql("update duties set until = until - 60000000");
        wait_until("the other has it", async || {
            holder().await.filter(|id| *id != first)
        })
        .await;
    });
}

/// However many keys somebody makes up, the rows are looked at for all of them together.
#[tokio::test]
async fn keys_that_are_made_up_cost_the_database_no_more_than_a_few_looks() {
    let database = Postgres::shared().database();
    let server = server(&database, &[]);
    server.identity("Texi").await;
    let stranger = || async {
        let key = prism::clock::new_key().unwrap();
        let client = Client::new(Locator::Url(server.url().into()), key).unwrap();
        client.call(PID, "status", json!({})).await.unwrap_err()
    };
    let before = round_trips(&server).await;
    let began = std::time::Instant::now();
    let refused = join_all((0..300).map(|_| stranger())).await;
    let seconds = began.elapsed().as_secs() + 1;
    assert!(
        refused.iter().all(|problem| problem.is(Code::InvalidKey)),
        "{refused:?}"
    );
    let trips = round_trips(&server).await - before;
    // What it does by itself in that time, in a test ten times as often, and a look a second for strangers.
    assert!(trips < 150 * seconds, "{trips} in {seconds} s");
}

/// Rows that were another project's are found by their meaning at both servers once the two are one.
#[tokio::test]
async fn what_a_merge_has_moved_is_found_by_its_meaning_at_the_other_server() {
    let database = Postgres::shared().database();
    let one = server(&database, &[]);
    give_model(&one);
    let two = server(&database, &[]);
    give_model(&two);
    let operator = two.operator();
    let note = json!({"text": "debounced the resize observer in SeatMap.tsx, layout now computed once per animation frame"});
    operator
        .call(
            PID,
            "note",
            json!({"text": "moved the flags to a registry"}),
        )
        .await
        .unwrap();
    let noted = operator.call("OLDER", "note", note).await.unwrap();
    for pid in [PID, "OLDER"] {
        wait_until("rows have their vectors", async || {
            let stats = operator.call(pid, "memory_stats", json!({})).await.unwrap();
            (stats["embed_pending"] == 0 && stats["vectors"].as_u64() > Some(0)).then_some(())
        })
        .await;
    }
    let question = "why the picture of chairs no longer shakes when the window changes its width";
    let asked = json!({"query": question, "k": 5, "legs": ["vector"]});
    let found = async |by: &Server| {
        let answer = by.operator().call(PID, "recall", asked.clone()).await;
        answer.unwrap()["results"]
            .to_string()
            .contains(noted["id"].as_str().unwrap())
    };
    // Both have the project's vectors in memory by now.
    for by in [&one, &two] {
        wait_until("meaning answers", async || {
            let answer = by
                .operator()
                .call(PID, "recall", asked.clone())
                .await
                .unwrap();
            (answer["legs"]["vector"]["state"] == "on").then_some(())
        })
        .await;
        assert!(!found(by).await);
    }
    one.operator()
        .call(PID, "project_merge", json!({"from": "OLDER"}))
        .await
        .unwrap();
    for by in [&one, &two] {
        wait_until("it is found", async || found(by).await.then_some(())).await;
    }
}

/// Hands each connection to the next of two servers, as a proxy before them does.
async fn proxy(servers: [&Server; 2]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let to = servers.map(|server| server.url().rsplit('/').next().unwrap().to_owned());
    tokio::spawn(async move {
        for turn in 0.. {
            let (mut near, _) = listener.accept().await.unwrap();
            // Neither one after the other nor by turns: whoever opens a session with a call and a socket meets both.
            let to = to[[0, 1, 1, 0][turn % 4]].clone();
            tokio::spawn(async move {
                if let Ok(mut far) = TcpStream::connect(to).await {
                    drop(tokio::io::copy_bidirectional(&mut near, &mut far).await);
                }
            });
        }
    });
    url
}

async fn socket_by(url: &str, client: &Client, session: Uuid) -> Socket {
    let mut ws = socket::connect(url, client.key()).await.unwrap();
    let hello = ClientFrame::Hello {
        pid: PID.into(),
        session_id: Some(session),
        last_seq: None,
        last_id: None,
        copy: None,
        confirm: Vec::new(),
    };
    ws.send(socket::encode(&hello)).await.unwrap();
    ws
}

/// The frames of the deployed topology: one address, a proxy, two servers, a database and a Redis.
#[tokio::test]
async fn behind_one_address_sockets_and_verbs_meet_whichever_server_each_of_them_came_to() {
    let (database, redis) = (Postgres::shared().database(), Redis::shared());
    let behind = [("PRISM_REDIS", redis.url.as_str())];
    let (one, two) = (server(&database, &behind), server(&database, &behind));
    let url = proxy([&one, &two]).await;
    // A connection for each call, so that each may come to another server.
    let by_proxy =
        |key: &str| Client::new(Locator::Url(url.clone().into()), key.to_owned()).unwrap();
    let mut sockets = Vec::new();
    for name in ["Ada", "Bea", "Cleo", "Dora"] {
        let minted = one.identity(name).await;
        let agent = by_proxy(minted.key());
        let opened = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
        let opened = agent.call(PID, "session_register", opened).await.unwrap();
        let session = opened["session_id"].as_str().unwrap().parse().unwrap();
        sockets.push((name, agent.clone(), socket_by(&url, &agent, session).await));
    }
    let here = [&one, &two].map(|server| async {
        let ready = server.operator().ready().await.unwrap();
        ready["sockets"].as_u64().unwrap()
    });
    let mut sent = Vec::new();
    for (name, agent, _) in &sockets {
        for (to, ..) in &sockets {
            let text = format!("{name} to {to}");
            let signal = by_proxy(agent.key())
                .call(PID, "signal", task(to, &text))
                .await;
            sent.push((
                to.to_string(),
                signal.unwrap()["signal_id"].as_str().unwrap().to_owned(),
            ));
        }
    }
    for (name, _, ws) in &mut sockets {
        let mut mine: Vec<&String> = sent
            .iter()
            .filter(|(to, _)| to == name)
            .map(|(_, id)| id)
            .collect();
        while !mine.is_empty() {
            let message = tokio::time::timeout(crate::harness::PATIENCE, ws.next()).await;
            let message = message.expect("a frame").expect("an open socket").unwrap();
            if let Some(ServerFrame::Signal { envelope, .. }) = socket::decode(&message) {
                mine.retain(|id| **id != envelope.signal_id.to_string());
            }
        }
    }
    for held in join_all(here).await {
        assert!(held > 0, "each server has sockets");
    }
}
