//! Two servers on one SQLite file, without their housekeeping: whatever one learns of the other came by the carrier. What
//! PostgreSQL's rows say to servers is told in `cluster_story.rs`.

use crate::harness::engines::{Postgres, Redis};
use crate::harness::{PATIENCE, PID, task, wait_until};
use futures_util::{SinkExt, StreamExt};
use prism::bus::{Carrier, Member};
use prism::client::{Client, Locator};
use prism::clock::new_id;
use prism::config::{Config, Env};
use prism::embed::Embedder;
use prism::home::Home;
use prism::prism::Prism;
use prism::server;
use prism::shim::socket::{self, Socket};
use prism::store::Store;
use prism_core::Problem;
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::gate::Mode;
use prism_core::limits::RATE_BURST;
use serde_json::{Value, json};
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

/// What carries the news of a test.
enum By {
    Redis(Redis),
    Postgres(Postgres),
}

impl By {
    fn both() -> [Self; 2] {
        [
            Self::Redis(Redis::shared()),
            Self::Postgres(Postgres::shared()),
        ]
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "redis",
            Self::Postgres(_) => "pg_notify",
        }
    }
}

/// One of two servers.
struct One {
    prism: Arc<Prism>,
    url: String,
    operator: Client,
}

impl One {
    async fn start(dir: &TempDir, name: &str, channel: &str, by: &By) -> Self {
        let home = Home::at(dir.path().join("home"));
        let config = Config::load_or_create(&home, &Env::default()).unwrap();
        let store = Store::open_embedded(&dir.path().join("prism.db")).unwrap();
        let (embedder, _) = Embedder::open(home.clone(), &store).await.unwrap();
        let prism = Prism::open(store, &config, &home, Mode::Off, embedder);
        let prism = prism.await.unwrap();
        let member = Member {
            tenant: Uuid::from_u128(1),
            server: new_id(),
            name: name.into(),
            channel: channel.into(),
        };
        let (carrier, incoming) = match by {
            By::Redis(redis) => Carrier::redis(&redis.url, member),
            By::Postgres(postgres) => Carrier::pg_notify(postgres.url(), member),
        }
        .unwrap();
        tokio::spawn(prism.clone().join(carrier, incoming));
        tokio::spawn(server::watch::tell(prism.clone()));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let routes = server::router(prism.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let operator = Client::new(Locator::Url(url.clone().into()), config.api_key).unwrap();
        Self {
            prism,
            url,
            operator: operator.creating_project(),
        }
    }

    async fn pair(by: &By) -> (TempDir, Self, Self) {
        let dir = tempfile::tempdir().unwrap();
        let channel = format!("prism_{}", new_id().simple());
        let one = Self::start(&dir, "one", &channel, by).await;
        let two = Self::start(&dir, "two", &channel, by).await;
        for server in [&one, &two] {
            wait_until("the carrier", async || {
                server.prism.bus().carrier().reaches_others().then_some(())
            })
            .await;
        }
        (dir, one, two)
    }

    /// A client of an agent whose key another server has made.
    fn client(&self, key: &str) -> Client {
        Client::new(Locator::Url(self.url.clone().into()), key.to_owned()).unwrap()
    }

    async fn mint(&self, identity: &str) -> Value {
        let minted = self
            .operator
            .call(PID, "key_mint", json!({"identity": identity}));
        minted.await.unwrap()
    }

    async fn stream(&self, key: &str, session_id: Uuid) -> Stream {
        let mut ws = socket::connect(&self.url, key).await.unwrap();
        let hello = ClientFrame::Hello {
            pid: PID.into(),
            session_id: Some(session_id),
            last_seq: None,
            last_id: None,
            copy: None,
            confirm: Vec::new(),
        };
        ws.send(socket::encode(&hello)).await.unwrap();
        let mut stream = Stream(ws);
        while !matches!(stream.next().await, Some(ServerFrame::Live)) {}
        stream
    }
}

struct Stream(Socket);

impl Stream {
    /// None when it was closed.
    async fn next(&mut self) -> Option<ServerFrame> {
        let message = tokio::time::timeout(PATIENCE, self.0.next()).await;
        socket::decode(&message.expect("a frame")?.ok()?)
    }
}

async fn register(client: &Client) -> (Client, Uuid) {
    let session = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let registered = client.call(PID, "session_register", session).await.unwrap();
    let id: Uuid = registered["session_id"].as_str().unwrap().parse().unwrap();
    (client.clone().with_session(Some(id)), id)
}

fn key(minted: &Value) -> &str {
    minted["key"].as_str().unwrap()
}

fn by_every_carrier(test: impl AsyncFn(By)) {
    for by in By::both() {
        println!("by {}", by.name());
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(test(by));
    }
}

#[test]
fn a_signal_sent_at_one_server_is_pushed_by_the_other_and_what_becomes_of_it_comes_back() {
    by_every_carrier(async |by| {
        let (_dir, one, two) = One::pair(&by).await;
        let minted = one.mint("Texi").await;
        // Known at the other server at once, whoever is quicker.
        let (texi, session) = register(&two.client(key(&minted))).await;
        let mut stream = two.stream(key(&minted), session).await;
        wait_until("the other server knows that Texi is there", async || {
            let status = one.operator.call(PID, "status", json!({})).await.unwrap();
            status
                .to_string()
                .contains(&session.to_string())
                .then_some(())
        })
        .await;
        let sent = one.operator.call(PID, "signal", task("Texi", "go")).await;
        let sent = sent.unwrap();
        // A file has no seats, by which a server knows that a socket is at another.
        assert_eq!(sent["publish_path"], "no_subscriber", "{sent}");
        let id = sent["signal_id"].as_str().unwrap();
        let pushed = loop {
            let frame = stream.next().await.expect("an open socket");
            if let ServerFrame::Signal { envelope, .. } = frame {
                break envelope.signal_id;
            }
        };
        assert_eq!(pushed.to_string(), id);
        // Taken back at the first server, and the socket at the second hears of it.
        let recalled = json!({"signal_id": id});
        one.operator
            .call(PID, "signal_recall", recalled)
            .await
            .unwrap();
        loop {
            if let ServerFrame::Ended { signal_ids, .. } = stream.next().await.expect("open") {
                assert_eq!(signal_ids, [pushed]);
                break;
            }
        }
        // The session speaks with the other server next, and goes on there.
        let there = one.client(texi.key()).with_session(Some(session));
        there.call(PID, "heartbeat", json!({})).await.unwrap();
    });
}

#[test]
fn what_a_session_at_one_server_has_read_is_read_for_its_sibling_at_the_other() {
    by_every_carrier(async |by| {
        let (_dir, one, two) = One::pair(&by).await;
        let minted = one.mint("Texi").await;
        let (reader, _) = register(&one.client(key(&minted))).await;
        let (_, sibling) = register(&two.client(key(&minted))).await;
        let mut stream = two.stream(key(&minted), sibling).await;
        let sent = one.operator.call(PID, "signal", task("Texi", "go")).await;
        let read = reader.call(PID, "signals_pending", json!({})).await;
        let lease = json!({"lease_id": read.unwrap()["lease_id"]});
        let confirmed = reader.call(PID, "signals_confirm", lease).await;
        confirmed.unwrap();
        let read = loop {
            if let ServerFrame::Drained { signal_ids, .. } = stream.next().await.expect("open") {
                break signal_ids;
            }
        };
        assert_eq!(json!(read), json!([sent.unwrap()["signal_id"]]));
    });
}

#[test]
fn a_key_revoked_at_one_server_opens_nothing_at_the_other_and_its_sockets_close() {
    by_every_carrier(async |by| {
        let (_dir, one, two) = One::pair(&by).await;
        let minted = one.mint("Texi").await;
        let (texi, session) = register(&two.client(key(&minted))).await;
        let mut stream = two.stream(key(&minted), session).await;
        let revoked = json!({"key_id": minted["key_id"]});
        one.operator.call(PID, "key_revoke", revoked).await.unwrap();
        while stream.next().await.is_some() {}
        let refused: Problem = texi.call(PID, "status", json!({})).await.unwrap_err();
        assert!(refused.is_revoked(), "{refused:?}");
    });
}

#[test]
fn a_session_released_at_one_server_is_over_at_the_other() {
    by_every_carrier(async |by| {
        let (_dir, one, two) = One::pair(&by).await;
        let minted = one.mint("Texi").await;
        let (_, session) = register(&two.client(key(&minted))).await;
        let mut stream = two.stream(key(&minted), session).await;
        wait_until("the session is known at the other server", async || {
            let release = json!({"session_id": session.to_string()});
            let released = one.operator.call(PID, "session_release", release).await;
            released.ok()
        })
        .await;
        let mut told = false;
        while let Some(frame) = stream.next().await {
            told |= matches!(frame, ServerFrame::Released { .. });
        }
        assert!(told);
    });
}

#[test]
fn a_page_at_one_server_hears_what_the_other_writes() {
    by_every_carrier(async |by| {
        let (_dir, one, two) = One::pair(&by).await;
        one.mint("Texi").await;
        let address = two.url.replace("http", "ws") + "/api/v1/watch";
        let mut request =
            tokio_tungstenite::tungstenite::client::IntoClientRequest::into_client_request(address)
                .unwrap();
        let bearer = format!("Bearer {}", two.operator.key());
        request
            .headers_mut()
            .insert("authorization", bearer.parse().unwrap());
        let (mut page, _) = tokio_tungstenite::connect_async(request).await.unwrap();
        let hello = tokio::time::timeout(PATIENCE, page.next()).await;
        assert!(hello.is_ok(), "it watches once it was greeted");
        let send = async || {
            let sent = one.operator.call(PID, "signal", task("Texi", "go")).await;
            sent.unwrap()["signal_id"].as_str().unwrap().to_owned()
        };
        let told = async {
            let mut id = send().await;
            while let Some(Ok(frame)) = page.next().await {
                match frame.to_text() {
                    Ok(text) if text.contains(&id) => return,
                    // The carrier had just been found: everything is read again, and then one by one.
                    Ok(text) if text.contains("\"behind\"") => id = send().await,
                    _ => {}
                }
            }
            panic!("the socket closed");
        };
        let told = tokio::time::timeout(PATIENCE, told).await;
        told.expect("the page is told");
    });
}

#[test]
fn several_servers_let_a_key_ask_no_more_than_twice_what_one_would() {
    by_every_carrier(async |by| {
        let dir = tempfile::tempdir().unwrap();
        let channel = format!("prism_{}", new_id().simple());
        let mut servers = Vec::new();
        for name in ["one", "two", "three"] {
            servers.push(One::start(&dir, name, &channel, &by).await);
        }
        for server in &servers {
            wait_until("all know of each other", async || {
                (server.prism.bus().carrier().servers() == servers.len()).then_some(())
            })
            .await;
        }
        let key = new_id();
        let taken = |server: &One| {
            (0..)
                .take_while(|_| server.prism.charge(key).is_ok())
                .count()
        };
        let all: usize = servers.iter().map(taken).sum();
        let burst = RATE_BURST as usize;
        // A few come back while they are taken.
        assert!((burst..burst * 2).contains(&all), "{all} of {burst}");
    });
}
