//! Another copy of the database answers under running servers: a standby that lacked the newest commits, an earlier state, a
//! copy beside the original.

use crate::harness::engines::{Postgres, Redis, server};
use crate::harness::{PATIENCE, PID, Server, task, wait_until};
use futures_util::{SinkExt, StreamExt};
use prism::client::Client;
use prism::shim::socket::{self, Socket};
use prism_core::api::{ClientFrame, ServerFrame, close};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

/// A shim's side of a socket: it comes back with what it knows whenever the socket ends.
struct Reader<'a> {
    server: &'a Server,
    key: String,
    session: Uuid,
    ws: Option<Socket>,
    last: Option<(i64, Uuid)>,
    copy: Option<String>,
    /// Hellos whose answer said that the inbox is another copy.
    restarted: usize,
}

impl<'a> Reader<'a> {
    async fn open(server: &'a Server, name: &str) -> (Client, Self) {
        let (client, session) = server.session(name).await;
        let reader = Self {
            server,
            key: client.key().to_owned(),
            session,
            ws: None,
            last: None,
            copy: None,
            restarted: 0,
        };
        (client, reader)
    }

    async fn next(&mut self) -> ServerFrame {
        loop {
            if self.ws.is_none() {
                let url = self.server.url();
                let mut ws = socket::connect(&url, &self.key).await.unwrap();
                let hello = ClientFrame::Hello {
                    pid: PID.into(),
                    session_id: Some(self.session),
                    last_seq: self.last.map(|(seq, _)| seq),
                    last_id: self.last.map(|(_, id)| id),
                    copy: self.copy.clone(),
                    confirm: Vec::new(),
                };
                ws.send(socket::encode(&hello)).await.unwrap();
                self.ws = Some(ws);
            }
            let ws = self.ws.as_mut().unwrap();
            match tokio::time::timeout(PATIENCE, ws.next())
                .await
                .expect("a frame")
            {
                Some(Ok(Message::Close(Some(frame)))) => {
                    assert!(!close::ends_session(frame.code.into()), "{frame:?}");
                    self.ws = None;
                }
                Some(Ok(message)) => match socket::decode(&message) {
                    Some(frame) => return frame,
                    None => continue,
                },
                _ => self.ws = None,
            }
        }
    }

    /// Reads until a frame that is looked for.
    async fn until(&mut self, found: impl Fn(&ServerFrame) -> bool) {
        loop {
            let frame = self.next().await;
            match &frame {
                ServerFrame::Hello {
                    head_seq,
                    restarted,
                    copy,
                    ..
                } => {
                    self.restarted += usize::from(*restarted);
                    self.last = self.last.filter(|(seq, _)| seq <= head_seq && !restarted);
                    self.copy.clone_from(copy);
                }
                ServerFrame::Signal { envelope, .. } => {
                    let seq = envelope.seq.unwrap();
                    self.last = self.last.max(Some((seq, envelope.signal_id)));
                }
                _ => {}
            }
            if found(&frame) {
                return;
            }
        }
    }

    async fn is_live(&mut self) {
        self.until(|frame| matches!(frame, ServerFrame::Live)).await;
    }

    async fn hears(&mut self, id: &str) {
        let its = |frame: &ServerFrame| matches!(frame, ServerFrame::Signal { envelope, .. } if envelope.signal_id.to_string() == id);
        self.until(its).await;
    }
}

async fn send(server: &Server, to: &str) -> String {
    let sent = server.operator().call(PID, "signal", task(to, "go")).await;
    sent.unwrap()["signal_id"].as_str().unwrap().to_owned()
}

/// A failover that lost the newest commits: their places are given to others, which are pushed like any.
#[test]
fn what_takes_the_places_of_lost_signals_is_pushed() {
    let database = Postgres::shared().database();
    let server = server(&database, None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (_texi, mut reader) = Reader::open(&server, "Texi").await;
        reader.is_live().await;
        for _ in 0..3 {
            let id = send(&server, "Texi").await;
            reader.hears(&id).await;
        }
        database.sql(
            "begin; set local session_replication_role = replica;
             delete from deliveries where signal_id in (select id from signal_queue where seq > 1);
             delete from signal_queue where seq > 1;
             update personas set inbox_seq = 1 where inbox_seq = 3;
             commit",
        );
        let id = send(&server, "Texi").await;
        assert_eq!(
            database
                .sql(&format!("select seq from signal_queue where id = '{id}'"))
                .trim(),
            "2",
            "it has the place of one that was lost"
        );
        reader.hears(&id).await;
        let id = send(&server, "Texi").await;
        reader.hears(&id).await;
    });
}

/// Nobody may see that rows were lost where as many have come since: the database says that it is another one.
#[test]
fn a_standby_that_takes_over_has_every_socket_say_hello_anew() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let server = server(&database, None);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (_texi, mut reader) = Reader::open(&server, "Texi").await;
        reader.is_live().await;
        let id = send(&server, "Texi").await;
        reader.hears(&id).await;
        let copy = reader
            .copy
            .clone()
            .expect("PostgreSQL says which copy it is");
        postgres.stop();
        postgres.takes_over();
        // It was not drained: whoever cannot know what its cursor means is offered it again.
        reader.hears(&id).await;
        assert_eq!(reader.restarted, 1);
        assert_ne!(reader.copy, Some(copy));
        let id = send(&server, "Texi").await;
        reader.hears(&id).await;
    });
}

/// A snapshot of the same files begins no timeline, and may reach as far as before by the time that a server looks.
#[test]
fn an_earlier_state_that_has_grown_since_is_seen_where_the_database_was_started_anew() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let (one, two) = (server(&database, None), server(&database, None));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (_texi, mut reader) = Reader::open(&one, "Texi").await;
        reader.is_live().await;
        for _ in 0..3 {
            let id = send(&one, "Texi").await;
            reader.hears(&id).await;
        }
        let copy = reader.copy.clone();
        one.stop();
        database.sql(
            "begin; set local session_replication_role = replica;
             delete from deliveries where signal_id in (select id from signal_queue where seq > 1);
             delete from signal_queue where seq > 1;
             update personas set inbox_seq = 1 where inbox_seq = 3;
             commit",
        );
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.push(send(&two, "Texi").await);
        }
        postgres.stop();
        postgres.start_again();
        one.go_on();
        reader.hears(&sent[0]).await;
        assert_eq!(reader.restarted, 1, "its last signal has lost its place");
        assert_eq!(reader.copy, copy, "the database has the name that it had");
        for id in &sent[1..] {
            reader.hears(id).await;
        }
        // Where nothing was lost, whoever says hello goes on where it was.
        postgres.stop();
        postgres.start_again();
        reader.is_live().await;
        let last = send(&two, "Texi").await;
        reader.hears(&last).await;
        assert_eq!(reader.restarted, 1);
    });
}

async fn carrier(server: &Server) -> Value {
    server.operator().ready().await.unwrap()["carrier"].clone()
}

/// A copy of a database has its tenants' ids; on the same Redis it is another Prism all the same.
#[test]
fn a_copy_of_a_database_beside_the_original_is_another_prism() {
    let (postgres, redis) = (Postgres::shared(), Redis::shared());
    let database = postgres.database();
    drop(server(&database, Some(&redis)));
    let copy = postgres.copy_of(&database);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let speaks = async |server: &Server| {
            wait_until("it hears itself", async || {
                let carrier = carrier(server).await;
                carrier["hop_ms"].is_number().then_some(carrier)
            })
            .await
        };
        let one = server(&database, Some(&redis));
        speaks(&one).await;
        let of_copy = server(&copy, Some(&redis));
        let there = speaks(&of_copy).await;
        assert_eq!(there["peers"], json!([]));
        assert_eq!(carrier(&one).await["peers"], json!([]));
        // One of the same database is heard at once.
        let two = server(&database, Some(&redis));
        wait_until("the other of its kind", async || {
            let peers = carrier(&one).await["peers"].clone();
            (peers.as_array().is_some_and(|peers| !peers.is_empty())).then_some(())
        })
        .await;
        drop(two);
    });
}
