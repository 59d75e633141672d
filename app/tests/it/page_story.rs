//! The page's way in, what it reads, and what it hears.

use crate::harness::{PID, Server, task, wait_until};
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

/// A browser: it keeps one cookie and says where its requests come from.
pub struct Browser {
    pub http: reqwest::Client,
    pub url: String,
    pub cookie: Option<String>,
}

impl Browser {
    pub fn of(server: &Server) -> Self {
        drop(rustls::crypto::ring::default_provider().install_default());
        Self {
            http: reqwest::Client::builder()
                .no_proxy()
                .redirect(reqwest::redirect::Policy::none())
                .build()
                .unwrap(),
            url: server.url(),
            cookie: None,
        }
    }

    pub async fn get(&self, path: &str) -> reqwest::Response {
        let url = match path.contains("://") {
            true => path.to_owned(),
            false => format!("{}{path}", self.url),
        };
        let mut request = self.http.get(url);
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        request.send().await.unwrap()
    }

    /// Uses a link, and keeps the cookie it sets.
    pub async fn open(&mut self, link: &str) -> reqwest::Response {
        let answer = self.get(link).await;
        if let Some(set) = answer.headers().get("set-cookie") {
            let pair = set.to_str().unwrap().split(';').next().unwrap();
            self.cookie = Some(pair.to_owned());
        }
        answer
    }

    async fn post_from(
        &self,
        origin: Option<&str>,
        pid: &str,
        verb: &str,
        body: Value,
    ) -> (u16, Value) {
        let mut request = self
            .http
            .post(format!("{}/api/v1/{pid}/{verb}", self.url))
            .json(&body);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        if let Some(cookie) = &self.cookie {
            request = request.header("cookie", cookie);
        }
        let answer = request.send().await.unwrap();
        (
            answer.status().as_u16(),
            answer.json().await.unwrap_or_default(),
        )
    }

    pub async fn call(&self, pid: &str, verb: &str, body: Value) -> (u16, Value) {
        let own = self.url.clone();
        self.post_from(Some(&own), pid, verb, body).await
    }

    pub async fn ask(&self, pid: &str, verb: &str, body: Value) -> Value {
        let (status, answer) = self.call(pid, verb, body).await;
        assert_eq!(status, 200, "{verb}: {answer}");
        answer
    }
}

pub fn link(server: &Server) -> String {
    server.ok(None, &["dashboard", "--print"]).trim().to_owned()
}

pub async fn signed_in(server: &Server) -> Browser {
    let mut browser = Browser::of(server);
    let answer = browser.open(&link(server)).await;
    assert_eq!(answer.status(), 303);
    browser
}

#[tokio::test]
async fn a_link_opens_the_page_once_and_for_thirty_seconds() {
    let server = Server::start();
    let mut browser = Browser::of(&server);
    let outside = browser.get("/").await;
    assert_eq!(outside.status(), 401);
    let text = outside.text().await.unwrap();
    assert!(text.contains("prism dashboard"), "{text}");

    let one = link(&server);
    let answer = browser.open(&one).await;
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], "/");
    let set = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains("Secure"), "loopback has no TLS: {set}");
    let page = browser.get("/").await;
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap();
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("unsafe"),
        "{policy}"
    );
    assert_eq!(browser.get("/signals").await.status(), 200);

    let mut second = Browser::of(&server);
    assert_eq!(second.open(&one).await.status(), 401, "used");
    assert_eq!(second.get("/").await.status(), 401);
    let late = link(&server);
    server.advance(Duration::from_secs(31));
    assert_eq!(second.open(&late).await.status(), 401, "too late");
    assert_eq!(second.open("/sign-in/0000").await.status(), 401, "foreign");
    let nonsense = second.open("/sign-in/%ff").await;
    assert_eq!(nonsense.status(), 401, "no text at all");
    let said = nonsense.text().await.unwrap();
    assert!(said.contains("prism dashboard"), "{said}");

    let keys = server.ok(None, &["key", "list"]);
    assert!(keys.contains("browser"), "{keys}");
    server.advance(Duration::from_secs(31 * 86_400));
    assert_eq!(browser.get("/").await.status(), 401, "expired");
    let (status, refused) = browser.call("*", "now", json!({})).await;
    assert_eq!(
        (status, refused["error"]["code"].as_str()),
        (401, Some("invalid_key"))
    );
}

#[tokio::test]
async fn a_cookie_counts_only_for_the_page_itself_and_until_it_is_revoked() {
    let server = Server::start();
    server.identity("Texi").await;
    let browser = signed_in(&server).await;
    assert_eq!(browser.call(PID, "now", json!({})).await.0, 200);
    for origin in [
        None,
        Some("http://127.0.0.1:1"),
        Some("https://evil.example"),
        Some("null"),
    ] {
        let (status, refused) = browser.post_from(origin, PID, "now", json!({})).await;
        assert_eq!(status, 403, "{origin:?}: {refused}");
    }
    // The secret of a cookie is no bearer key, and no agent's key opens the page.
    let secret = browser
        .cookie
        .as_deref()
        .unwrap()
        .split_once('=')
        .unwrap()
        .1;
    let bearer = |key: String| {
        browser
            .http
            .post(format!("{}/api/v1/{PID}/now", browser.url))
            .bearer_auth(key)
            .json(&json!({}))
    };
    assert_eq!(
        bearer(secret.to_owned()).send().await.unwrap().status(),
        401
    );
    let agent = server.cli(Some("Texi"), &["dashboard", "--print"]);
    assert!(!agent.status.success());
    // Whoever has a key or not is told the same: it is not theirs to open.
    for name in ["Texi", "Donna"] {
        let agent = server.cli(None, &["dashboard", "--print", "--as", name]);
        let said = String::from_utf8_lossy(&agent.stderr).into_owned();
        assert!(said.contains("leave out --as"), "{said}");
        assert!(!said.contains("key mint"), "{said}");
    }
    let (status, refused) = browser.call("*", "dashboard_link", json!({})).await;
    assert_eq!(
        (status, refused["error"]["code"].as_str()),
        (403, Some("operator_only"))
    );

    let keys = browser.ask("*", "key_list", json!({})).await;
    let own = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|k| k["browser"].is_string())
        .unwrap();
    server.ok(None, &["key", "revoke", own["key_id"].as_str().unwrap()]);
    assert_eq!(browser.call(PID, "now", json!({})).await.0, 401);
    assert_eq!(browser.get("/").await.status(), 401);
}

#[tokio::test]
async fn signals_are_looked_at_without_reading_them() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let donna = server.identity("Donna").await;
    let browser = signed_in(&server).await;
    let ask = json!({"to": "Texi", "signal_type": "Question", "payload": {"summary": "which colour is the bell?"}});
    let sent = donna.call(PID, "signal", ask).await.unwrap();
    donna
        .call(PID, "signal", task("Texi", "paint the title"))
        .await
        .unwrap();
    let found = browser
        .ask(
            "*",
            "signal_list",
            json!({"words": "COLOUR bell", "category": "ASK"}),
        )
        .await;
    assert_eq!(found["signals"].as_array().unwrap().len(), 1, "{found}");
    let row = &found["signals"][0];
    assert_eq!(
        (
            row["pid"].as_str(),
            row["state"].as_str(),
            row["waiting"].as_bool()
        ),
        (Some(PID), Some("queued"), Some(true))
    );
    assert!(row["stuck"].is_null(), "it was just sent");
    server.advance(Duration::from_secs(200));
    let shown = browser
        .ask(PID, "signal_show", json!({"signal_id": sent["signal_id"]}))
        .await;
    assert_eq!(
        shown["signal"]["stuck"]["cause"], "never_started",
        "{shown}"
    );
    assert_eq!(shown["can_take_back"], true);
    let inbox = browser.ask(PID, "inbox", json!({"identity": "Texi"})).await;
    assert_eq!(inbox["signals"].as_array().unwrap().len(), 2);
    let now = browser.ask("*", "now", json!({})).await;
    assert_eq!(now["unread"][0]["signal_id"], sent["signal_id"]);
    // Nothing of that took it from its reader.
    let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
    assert_eq!(read["signals"].as_array().unwrap().len(), 2);

    // Page by page, the same rows in the same order.
    let all = browser.ask(PID, "signal_list", json!({})).await;
    let first = browser.ask(PID, "signal_list", json!({"limit": 1})).await;
    let second = browser
        .ask(
            PID,
            "signal_list",
            json!({"limit": 1, "cursor": first["next"]}),
        )
        .await;
    assert_eq!(
        all["signals"][0]["signal_id"],
        first["signals"][0]["signal_id"]
    );
    assert_eq!(
        all["signals"][1]["signal_id"],
        second["signals"][0]["signal_id"]
    );
    assert!(second["next"].is_null(), "{second}");
    for (nonsense, field) in [
        (json!({"state": "lost"}), "state"),
        (json!({"cursor": "x"}), "cursor"),
        (json!({"limit": 0}), "limit"),
        (json!({"category": "URGENT"}), "category"),
        (
            json!({"since": "2026-01-02T00:00:00Z", "until": "2026-01-01T00:00:00Z"}),
            "since",
        ),
        (json!({"colour": 1}), "colour"),
    ] {
        let (status, refused) = browser.call(PID, "signal_list", nonsense).await;
        assert_eq!(status, 400);
        assert!(
            refused["error"]["message"]
                .as_str()
                .unwrap()
                .contains(field),
            "{refused}"
        );
    }
    let gone = json!({"signal_id": "00000000-0000-4000-8000-000000000000"});
    assert_eq!(browser.call(PID, "signal_show", gone).await.0, 404);
    let listed = server.ok(None, &["signals", "list", "--pid", PID, "bell"]);
    assert!(listed.contains("which colour is the bell?"), "{listed}");
    let agents = browser.ask("*", "agents", json!({})).await;
    assert!(
        agents["agents"]
            .as_array()
            .unwrap()
            .iter()
            .any(|a| a["identity"] == "Texi")
    );
}

#[tokio::test]
async fn what_is_pressing_is_not_hidden_by_what_is_not() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let browser = signed_in(&server).await;
    let settings = browser.ask("*", "settings", json!({})).await;
    let operator = settings["operator"].as_str().unwrap();
    let send = async |to: &str, category: &str, summary: &str| {
        let body = json!({"to": to, "signal_type": "StatusUpdate", "category": category,
            "payload": {"summary": summary}});
        donna.call(PID, "signal", body).await.unwrap();
    };
    send(operator, "ASK", "may the old ring go?").await;
    send("Texi", "ASK", "the oldest question").await;
    for n in 0..55 {
        send(operator, "INFO", &format!("done {n}")).await;
        send("Texi", "ASK", &format!("and question {n}?")).await;
    }
    send("Texi", "BLOCKER", "nothing builds").await;
    let now = browser.ask(PID, "now", json!({})).await;
    assert_eq!(now["to_me"][0]["summary"], "may the old ring go?", "{now}");
    assert_eq!(now["to_me"][1]["summary"], "done 54", "the newest first");
    assert_eq!(now["to_me"].as_array().unwrap().len(), 50);
    assert_eq!(now["to_me_more"], 6);
    let left = json!({"INFO": 6, "TASK": 0, "ASK": 0, "BLOCKER": 0});
    assert_eq!(now["to_me_left"], left);
    assert_eq!(now["unread"][0]["summary"], "nothing builds");
    assert_eq!(now["unread"][1]["summary"], "and question 54?");
    assert_eq!(now["unread_left"]["ASK"], 7, "{now}");
    let said = server.ok(None, &["now", "--pid", PID]);
    assert!(said.contains("and 6 more (6 INFO)"), "{said}");
    assert!(said.contains("and 7 more (7 ASK)"), "{said}");
}

#[tokio::test]
async fn the_operator_acts_from_the_page_through_the_verbs_that_everybody_has() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let browser = signed_in(&server).await;
    let me = browser.ask("*", "settings", json!({})).await["operator"]
        .as_str()
        .unwrap()
        .to_owned();
    let ask = json!({"to": me, "signal_type": "Question", "payload": {"summary": "may I?"}});
    let asked = texi.call(PID, "signal", ask).await.unwrap();
    let id = asked["signal_id"].clone();
    let now = browser.ask(PID, "now", json!({})).await;
    assert_eq!(now["to_me"][0]["signal_id"], id);
    let reply = json!({"to": "Texi", "signal_type": "Answer", "in_reply_to": id, "payload": {"summary": "yes"}});
    let answered = browser.ask(PID, "signal", reply).await;
    assert_eq!(
        browser
            .ask(PID, "inbox_read", json!({"signal_ids": [id]}))
            .await["read"],
        1
    );
    assert_eq!(
        browser
            .ask(PID, "inbox_read", json!({"signal_ids": [id]}))
            .await["read"],
        0
    );
    let shown = browser
        .ask("*", "signal_show", json!({"signal_id": id}))
        .await;
    assert_eq!(shown["thread"].as_array().unwrap().len(), 2, "{shown}");
    assert_eq!(shown["signal"]["waiting"], false);
    let back = json!({"signal_id": answered["signal_id"]});
    assert_eq!(
        browser.ask(PID, "signal_recall", back).await["recalled"],
        true
    );

    let input =
        json!({"class": "correction", "prompt_text": "not the title bar", "confidence": "low"});
    let captured = texi.call(PID, "operator_input", input).await.unwrap();
    let ids = json!({"ids": [captured["id"]], "action": "reject"});
    browser.ask(PID, "review", ids).await;
    let rejected = browser
        .ask("*", "input_list", json!({"review": "rejected"}))
        .await;
    assert_eq!(rejected["inputs"][0]["id"], captured["id"]);
    browser
        .ask(
            PID,
            "review",
            json!({"ids": [captured["id"]], "action": "undo"}),
        )
        .await;
    let note = texi
        .call(PID, "note", json!({"text": "the ring survives a restart"}))
        .await
        .unwrap();
    let shown = browser
        .ask("*", "memory_show", json!({"id": note["id"]}))
        .await;
    let verdict = json!({"refers_to": shown["refers_to"], "verdict": "works"});
    browser.ask(PID, "confirm", verdict).await;
    let shown = browser
        .ask("*", "memory_show", json!({"id": note["id"]}))
        .await;
    assert_eq!(shown["verdicts"][0]["directness"], "direct", "{shown}");
    let minted = browser
        .ask(PID, "key_mint", json!({"identity": "Quill"}))
        .await;
    browser
        .ask(PID, "key_revoke", json!({"key_id": minted["key_id"]}))
        .await;

    let before = browser.ask(PID, "recall_list", json!({})).await;
    let preview = json!({"query": "the ring after a restart", "preview": true});
    let found = browser.ask(PID, "recall", preview.clone()).await;
    assert!(
        found["recall_event_id"].is_null() && !found["results"].as_array().unwrap().is_empty(),
        "{found}"
    );
    assert_eq!(
        browser.ask(PID, "recall_list", json!({})).await,
        before,
        "no trace"
    );
    let agent = texi.call(PID, "recall", preview).await.unwrap_err();
    assert_eq!(agent.code, "operator_only");
}

#[tokio::test]
async fn a_page_hears_what_changed_of_its_project_and_ends_with_its_key() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let browser = signed_in(&server).await;
    let socket = |origin: &str, pid: &str| {
        let url = format!(
            "{}/api/v1/watch?pid={pid}",
            browser.url.replace("http", "ws")
        );
        let mut request = url.into_client_request().unwrap();
        let headers = request.headers_mut();
        headers.insert("origin", origin.parse().unwrap());
        headers.insert(
            "cookie",
            browser.cookie.as_deref().unwrap().parse().unwrap(),
        );
        tokio_tungstenite::connect_async(request)
    };
    assert!(socket("https://evil.example", PID).await.is_err());
    assert!(socket(&browser.url, "PID-NONE").await.is_err());
    let (mut ws, _) = socket(&browser.url, "*").await.unwrap();
    let mut next = async || loop {
        let frame = tokio::time::timeout(Duration::from_secs(30), ws.next())
            .await
            .unwrap();
        match frame.unwrap().unwrap() {
            tokio_tungstenite::tungstenite::Message::Text(text) => {
                return serde_json::from_str::<Value>(&text).unwrap();
            }
            tokio_tungstenite::tungstenite::Message::Close(frame) => {
                return json!({"kind": "closed", "code": frame.map(|f| u16::from(f.code))});
            }
            _ => {}
        }
    };
    assert_eq!(next().await["kind"], "hello");
    let sent = texi
        .call(PID, "signal", task("Texi", "to myself"))
        .await
        .unwrap();
    let mut heard = async |what: &str, id: &Value| loop {
        let frame = next().await;
        let changes = frame["changes"].as_array().cloned().unwrap_or_default();
        let found = changes
            .into_iter()
            .find(|c| c["what"] == what && c["id"] == *id);
        if let Some(found) = found {
            return found;
        }
    };
    let change = heard("signal", &sent["signal_id"]).await;
    assert_eq!(
        (change["pid"].as_str(), change["category"].as_str()),
        (Some(PID), Some("TASK"))
    );
    let note = texi
        .call(PID, "note", json!({"text": "a note"}))
        .await
        .unwrap();
    heard("memory", &note["id"]).await;
    let (_, session) = server.session("Donna").await;
    heard("session", &json!(session)).await;

    let keys = browser.ask("*", "key_list", json!({})).await;
    let own = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|k| k["browser"].is_string())
        .unwrap();
    server.ok(None, &["key", "revoke", own["key_id"].as_str().unwrap()]);
    loop {
        let frame = next().await;
        if frame["kind"] == "closed" {
            break;
        }
    }
}

#[tokio::test]
async fn a_browser_that_is_signed_out_by_time_hears_no_more() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let browser = signed_in(&server).await;
    let url = format!("{}/api/v1/watch?pid=*", browser.url.replace("http", "ws"));
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("origin", browser.url.parse().unwrap());
    let cookie = browser.cookie.as_deref().unwrap();
    headers.insert("cookie", cookie.parse().unwrap());
    let (mut ws, _) = tokio_tungstenite::connect_async(request).await.unwrap();
    let hello = ws.next().await.unwrap().unwrap().into_text().unwrap();
    assert!(hello.contains("hello"), "{hello}");
    server.advance(Duration::from_secs(31 * 86_400));
    let sent = texi.call(PID, "signal", task("Texi", "to myself")).await;
    sent.unwrap();
    let next = ws.next().await.unwrap().unwrap();
    assert!(next.is_close(), "{next:?}");
}

#[test]
fn whoever_looks_at_a_folder_makes_no_project_of_it() {
    let server = Server::start();
    let folder = server.folder().join("never-used");
    std::fs::create_dir(&folder).unwrap();
    let looks: &[&[&str]] = &[
        &["story"],
        &["metrics"],
        &["delivery"],
        &["delivery", "--runs"],
        &["memory", "list"],
        &["memory", "recalls"],
        &["session", "list"],
        &["gate", "list"],
        &["now"],
        &["agents"],
        &["inbox"],
        &["signals", "list"],
        &["settings"],
    ];
    for args in looks {
        for json in [&[][..], &["--json"]] {
            let mut command = server.command(None);
            command.current_dir(&folder).args(*args).args(json);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{args:?}: {output:?}");
            let said = String::from_utf8_lossy(&output.stderr);
            let hinted = said.contains("does not exist yet") || args[0] == "settings";
            assert!(hinted, "{args:?}: {said}");
        }
    }
    let projects = server.ok(None, &["project", "list"]);
    assert!(
        !projects.to_lowercase().contains("never-used"),
        "{projects}"
    );
}

#[test]
fn a_filter_that_matches_nothing_is_told_from_a_project_where_nothing_happened() {
    let server = Server::start();
    server.ok(None, &["demo"]);
    let listed = |args: &[&str]| server.ok(None, &[args, &["--pid", "PID-DEMO"]].concat());
    for args in [
        &["story", "--identity", "Nobody"][..],
        &["memory", "list", "xylophone"],
        &["gate", "list", "--identity", "Nobody"],
        &["delivery", "--runs", "--identity", "Nobody"],
    ] {
        assert_eq!(listed(args).trim(), "nothing matches", "{args:?}");
    }
    for args in [&["delivery", "-n", "3"][..], &["delivery", "--cursor", "x"]] {
        let output = server.command(None).args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("--runs"));
    }
    for command in ["story", "delivery"] {
        let help = server.ok(None, &[command, "--help"]);
        assert!(!help.contains("part of a list"), "{help}");
    }
}

#[tokio::test]
async fn a_demonstration_whose_words_were_counted_goes_all_the_same() {
    let server = Server::start();
    let line = |i: usize| {
        json!({"id": format!("n{i}"), "kind": "note", "identity": "Mira",
        "created_at": "2026-01-01T00:00:00Z", "text": format!("the note with number {i}")})
    };
    let lines: Vec<String> = (0..250).map(|i| line(i).to_string()).collect();
    let file = server.home().path("notes.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    server.ok(None, &["import", file.to_str().unwrap()]);
    server.ok(None, &["demo"]);
    let counted = || {
        let database = server.rows();
        let of_demo = "select count(*) from memory_words w join projects p on p.id = w.project_id
            where p.pid = 'PID-DEMO'";
        database
            .query_row(of_demo, [], |r| r.get::<_, i64>(0))
            .unwrap()
    };
    assert!(counted() > 0, "its words are counted");
    server.ok(None, &["demo", "--remove"]);
    assert_eq!(counted(), 0);
    server.ok(None, &["demo"]);
    // What took a real project in is nobody's to take away.
    server.ok(None, &["project", "merge", PID, "PID-DEMO"]);
    let refused = server.cli(None, &["--pid", "PID-DEMO", "demo", "--remove"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[tokio::test]
async fn a_demonstration_fills_every_part_of_the_page_and_goes_without_a_trace() {
    let server = Server::start();
    let browser = signed_in(&server).await;
    let before = browser.ask("*", "settings", json!({})).await["stored"]["rows"].clone();
    server.ok(None, &["demo"]);
    assert!(server.ok(None, &["demo"]).contains("already"));
    let pid = "PID-DEMO";
    let now = browser.ask(pid, "now", json!({})).await;
    for part in ["to_me", "unread", "waiting", "inputs", "warnings"] {
        assert!(!now[part].as_array().unwrap().is_empty(), "{part}: {now}");
    }
    assert!(now["unread"][0]["stuck"].is_object(), "{now}");
    let agents = browser.ask(pid, "agents", json!({})).await;
    assert_eq!(agents["agents"].as_array().unwrap().len(), 5);
    let metrics = browser.ask(pid, "metrics", json!({"bucket": "day"})).await;
    assert!(
        metrics["confirmations"]["total"].as_u64().unwrap() >= 5,
        "{metrics}"
    );
    assert!(
        !metrics["repeats"]["pairs"].as_array().unwrap().is_empty(),
        "{metrics}"
    );
    assert!(
        metrics["dead_ends"]["again_total"].as_u64().unwrap() >= 1,
        "{metrics}"
    );
    assert!(metrics["recall"]["cited_total"].as_u64().unwrap() >= 1);
    let delivery = browser.ask(pid, "delivery", json!({})).await;
    let places = delivery["places"].as_array().unwrap();
    assert!(
        places.iter().any(|p| p["drop_rate"].as_f64() > Some(0.0)),
        "{delivery}"
    );
    assert!(
        places.iter().any(|p| p["drop_rate"].as_f64() == Some(0.0)),
        "{delivery}"
    );
    let probes = browser
        .ask(pid, "probe_list", json!({"outcome": "partial"}))
        .await;
    assert!(!probes["runs"].as_array().unwrap().is_empty());
    let gate = browser
        .ask(
            pid,
            "gate_list",
            json!({"outcome": "warned", "labelled": false}),
        )
        .await;
    assert!(gate["events"][0]["assignment"].is_string(), "{gate}");
    let recalls = browser
        .ask(pid, "recall_list", json!({"cited": true}))
        .await;
    assert!(
        recalls["events"][0]["results"][0]["cited"]
            .as_bool()
            .unwrap(),
        "{recalls}"
    );
    let sessions = browser
        .ask(pid, "session_list", json!({"which": "released"}))
        .await;
    assert_eq!(sessions["sessions"].as_array().unwrap().len(), 4);

    // The story of one task: what was asked, looked up, done, and what the operator said of it.
    let tasks = browser
        .ask(
            pid,
            "signal_list",
            json!({"words": "phone", "category": "TASK"}),
        )
        .await;
    let id = &tasks["signals"][0]["signal_id"];
    let story = browser.ask(pid, "story", json!({"signal_id": id})).await;
    let items = story["items"].as_array().unwrap();
    for kind in ["signal", "recall", "delta", "verdict"] {
        assert!(items.iter().any(|i| i["kind"] == kind), "{kind}: {story}");
    }
    let delta = items.iter().find(|i| i["kind"] == "delta").unwrap();
    assert!(delta["effect"].is_string(), "{delta}");
    let links = delta["links"].as_array().unwrap();
    assert!(
        links
            .iter()
            .any(|l| l["why"] == "done_for" && l["id"] == *id),
        "{delta}"
    );
    // Page by page it is the same line.
    let whole = browser.ask(pid, "story", json!({"limit": 200})).await;
    let (mut walked, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = browser
            .ask(pid, "story", json!({"limit": 7, "cursor": cursor}))
            .await;
        walked.extend(page["items"].as_array().unwrap().clone());
        cursor = page["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    assert_eq!(Value::Array(walked), whole["items"]);
    let rows = browser
        .ask(pid, "memory_list", json!({"kinds": ["spec", "postmortem"]}))
        .await;
    assert_eq!(rows["rows"].as_array().unwrap().len(), 2, "{rows}");

    server.ok(None, &["demo", "--remove"]);
    assert_eq!(browser.call(pid, "now", json!({})).await.0, 404);
    let after = browser.ask("*", "settings", json!({})).await["stored"]["rows"].clone();
    assert_eq!(after, before);
    assert!(
        server
            .ok(None, &["demo", "--remove"])
            .contains("no demonstration")
    );
}

#[tokio::test]
async fn the_page_labels_warnings_and_acknowledges_signals_with_its_cookie() {
    let server = Server::start();
    server.ok(None, &["demo"]);
    let browser = signed_in(&server).await;
    let pid = "PID-DEMO";
    let now = browser.ask(pid, "now", json!({})).await;
    let warning = &now["warnings"][0]["id"];
    let labels = async || browser.ask(pid, "gate_report", json!({})).await["labelled"].clone();
    let before = labels().await.as_u64().unwrap();
    let label = json!({"event_id": warning, "right": true});
    browser.ask(pid, "gate_label", label.clone()).await;
    assert_eq!(labels().await.as_u64(), Some(before + 1));
    let (status, _) = browser.post_from(None, pid, "gate_label", label).await;
    assert_eq!(status, 403, "from anywhere else it does not count");

    let question = now["to_me"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["category"] == "ASK")
        .unwrap();
    let id = &question["signal_id"];
    let ack = json!({"signal_id": id, "state": "model_acted", "note": "yes, once"});
    browser.ask(pid, "signal_ack", ack).await;
    let shown = browser
        .ask(pid, "signal_show", json!({"signal_id": id}))
        .await;
    assert_eq!(shown["signal"]["state"], "acted", "{shown}");
}

#[tokio::test]
async fn metrics_are_counted_one_by_one_or_all_together_and_say_the_same() {
    let server = Server::start();
    server.ok(None, &["demo"]);
    let browser = signed_in(&server).await;
    let range = json!({"since": "2020-01-01T00:00:00Z", "until": "2020-02-01T00:00:00Z"});
    let empty = browser.ask("PID-DEMO", "metrics", range).await;
    assert_eq!(empty["confirmations"]["total"], 0, "{empty}");
    let until = json!(prism::clock::now());
    let ask = |only: Value| json!({"until": until, "only": only});
    let all = browser.ask("PID-DEMO", "metrics", ask(json!([]))).await;
    let parts = [
        "confirmations",
        "misclassification",
        "corrections",
        "dead_ends",
        "surfaces",
        "repeats",
        "recall",
        "gate",
    ];
    for part in parts {
        let one = browser.ask("PID-DEMO", "metrics", ask(json!([part]))).await;
        assert_eq!(one[part], all[part], "{part}");
        assert!(!one[part].is_null(), "{part}");
        let others = parts.iter().filter(|other| **other != part);
        for other in others {
            assert!(one[*other].is_null(), "{other} was not asked for");
        }
    }
    let nonsense = ask(json!(["mood"]));
    let (status, refused) = browser.call("PID-DEMO", "metrics", nonsense).await;
    assert_eq!(status, 400, "{refused}");
}

#[tokio::test]
async fn what_is_left_to_review_is_found_behind_any_number_of_reviewed_rows() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let words = json!({"class": "correction", "prompt_text": "read the failing test first", "confidence": "high"});
    let kept = texi.call(PID, "operator_input", words).await.unwrap();
    // More than one window of rows that were reviewed since.
    server
        .rows()
        .execute_batch(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 10500)
             insert into operator_inputs (id, tenant_id, project_id, captured_via, captured_at, class,
                 prompt_text, confidence, operator_review)
             select 'past-' || i, tenant_id, project_id, 'Texi', captured_at + i, 'confirmation', 'yes',
                 'high', 'accepted' from n, (select * from operator_inputs limit 1) first",
        )
        .unwrap();
    let browser = signed_in(&server).await;
    let now = browser.ask(PID, "now", json!({})).await;
    assert_eq!(now["inputs"].as_array().unwrap().len(), 1, "{now}");
    assert_eq!(now["inputs"][0]["id"], kept["id"]);
    assert!(now["inputs_more"].is_null(), "{now}");
}

#[tokio::test]
async fn the_settings_say_what_connect_has_written_on_the_servers_machine() {
    let server = Server::start();
    let browser = signed_in(&server).await;
    let host = async || {
        let settings = browser.ask("*", "settings", json!({})).await;
        let hosts = settings["hosts"].as_array().unwrap().clone();
        hosts.into_iter().find(|h| h["host"] == "Codex")
    };
    std::fs::create_dir_all(server.folder().join(".codex")).unwrap();
    let before = host().await.expect("its folder is there");
    assert_eq!(before["connected"], false, "{before}");
    server.ok(None, &["connect", "codex", "--user", "--yes"]);
    let after = host().await.unwrap();
    assert_eq!(
        (after["connected"].as_bool(), after["server"].as_bool()),
        (Some(true), Some(true)),
        "{after}"
    );
}

#[tokio::test]
async fn the_page_stands_under_the_path_of_its_public_address() {
    let mut server = Server::start();
    server.kill();
    let mut serve = server.command(None);
    serve.args([
        "serve",
        "--port",
        "0",
        "--public-url",
        "https://prism.example/p",
    ]);
    server.resume_as(serve);
    let link = link(&server);
    let token = link
        .strip_prefix("https://prism.example/p/sign-in/")
        .expect(&link);
    let mut browser = Browser::of(&server);
    let answer = browser.open(&format!("/p/sign-in/{token}")).await;
    assert_eq!(answer.status(), 303);
    assert_eq!(answer.headers()["location"], "/p/");
    let set = answer.headers()["set-cookie"].to_str().unwrap();
    assert!(
        set.contains("Path=/p/") && set.contains("; Secure"),
        "{set}"
    );
    for path in ["/", "/p", "/p/", "/p/now"] {
        assert_eq!(browser.get(path).await.status(), 200, "{path}");
    }
    let public = Some("https://prism.example");
    assert_eq!(
        browser.post_from(public, "*", "now", json!({})).await.0,
        200
    );
    browser.url = format!("{}/p", browser.url);
    assert_eq!(
        browser.post_from(public, "*", "now", json!({})).await.0,
        200
    );
    let mut wrong = server.command(None);
    wrong.args([
        "serve",
        "--port",
        "0",
        "--public-url",
        "http://prism.example",
    ]);
    let refused = wrong.output().unwrap();
    assert!(!refused.status.success());
}

#[tokio::test]
async fn a_probe_is_run_from_the_page_with_what_the_shim_reports() {
    let server = Server::start();
    let mut agent = server.agent("Texi");
    let started = agent.call("prism_start", json!({}));
    let browser = signed_in(&server).await;
    let session = started["session_id"].clone();
    let found = wait_until("the shim's socket", async || {
        let sessions = browser
            .ask(PID, "session_list", json!({"which": "open"}))
            .await;
        sessions["sessions"][0]["connected"]
            .as_bool()
            .filter(|c| *c)
    });
    found.await;
    let probe = browser
        .ask(PID, "probe_run", json!({"session_id": session}))
        .await;
    assert_eq!(
        probe["layers"]["shim_tee_receipt"]["observed"], true,
        "{probe}"
    );
    let runs = browser.ask("*", "probe_list", json!({})).await;
    assert_eq!(runs["runs"][0]["loopback_id"], probe["loopback_id"]);
}

#[test]
fn the_types_of_the_page_are_those_of_the_server() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/src/wire.ts");
    let kept = std::fs::read_to_string(file).unwrap();
    assert!(
        kept == prism::server::typescript::build(),
        "dashboard/src/wire.ts is stale: run `make wire`"
    );
}
