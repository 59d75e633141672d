//! What one agent may ask of everybody, and how it is told when that is too much.

use crate::harness::{Agent, PID, Server, ids, task};
use crate::stream::Stream;
use prism::client::{Client, Locator};
use prism_core::Code;
use prism_core::api::{ClientFrame, ServerFrame};
use prism_core::limits::{
    INBOX_WAITING_MAX, LISTED_BYTES_MAX, OPENING_BYTES_MAX, PEERS_MAX, PENDING_BYTES_MAX,
    PICKUP_BYTES_MAX, PIGGYBACK_BYTES_MAX, SESSIONS_PER_IDENTITY_MAX, WATCHERS_MAX,
};
use prism_core::receipt::State;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";

#[tokio::test]
async fn a_full_inbox_is_refused_to_the_sender_by_name_until_somebody_reads() {
    let mut server = Server::start();
    let donna = server.identity("Donna").await;
    let texi = server.identity("Texi").await;
    donna
        .call(PID, "signal", task("Texi", "first"))
        .await
        .unwrap();
    server.terminate();
    // As if they had been sent one by one.
    let db = server.rows();
    db.execute(
        "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity,
            seq, from_identity, signal_type, category, payload, delivery_class, body_sha256,
            created_at, expires_at)
         with recursive n(i) as (select 2 union all select i + 1 from n where i < ?)
         select (10000000 + n.i) || '-0000-4000-8000-000000000000',
            tenant_id, project_id, (10000000 + n.i) || '-0000-4000-8000-000000000001',
            to_persona_id, to_identity, n.i, from_identity, signal_type, category, payload,
            delivery_class, body_sha256, created_at, expires_at
         from n, signal_queue where seq = 1",
        [INBOX_WAITING_MAX as i64],
    )
    .unwrap();
    db.execute(
        "update personas set inbox_seq = ? where identity = 'Texi'",
        [INBOX_WAITING_MAX as i64],
    )
    .unwrap();
    drop(db);
    server.resume();
    let full = donna.call(PID, "signal", task("Texi", "one more")).await;
    let full = full.unwrap_err();
    assert!(full.is(Code::InboxFull) && full.status == 429, "{full:?}");
    assert_eq!(full.facts["recipient"], json!("Texi"));
    assert!(
        full.message.contains("Texi") && full.message.contains("10000"),
        "{full:?}"
    );
    let read = texi
        .call(PID, "signals_pending", json!({"limit": 3}))
        .await
        .unwrap();
    assert_eq!((ids(&read).len(), read["more"].as_u64()), (3, Some(9_997)));
    let lease = json!({"lease_id": read["lease_id"]});
    texi.call(PID, "signals_confirm", lease).await.unwrap();
    donna
        .call(PID, "signal", task("Texi", "one more"))
        .await
        .unwrap();
}

#[tokio::test]
async fn an_identity_opens_so_many_sessions_and_a_stale_one_makes_room() {
    let server = Server::start_with(FAST);
    let texi = server.identity("Texi").await;
    let host = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let register = || texi.call(PID, "session_register", host.clone());
    for _ in 0..SESSIONS_PER_IDENTITY_MAX {
        register().await.unwrap();
    }
    let refused = register().await.unwrap_err();
    assert!(refused.is(Code::TooManySessions), "{refused:?}");
    assert!(refused.message.contains("64") && !refused.hint.is_empty());
    server.advance(Duration::from_secs(91));
    register().await.unwrap();
}

#[tokio::test]
async fn an_answer_lists_so_many_peers_and_how_many_more_there_are() {
    let server = Server::start_with(FAST);
    let crowd = server.identity("Crowd").await;
    let host = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    for _ in 0..PEERS_MAX + 7 {
        let registered = crowd.call(PID, "session_register", host.clone()).await;
        registered.unwrap();
    }
    let (texi, id) = server.session("Texi").await;
    let started = texi.call(PID, "start", json!({})).await.unwrap();
    assert_eq!(started["peers"].as_array().unwrap().len(), PEERS_MAX);
    assert_eq!(started["peers_more"], json!(7));
    let status = texi.call(PID, "status", json!({})).await.unwrap();
    let sessions = status["sessions"].as_array().unwrap();
    assert_eq!(sessions.len(), PEERS_MAX);
    assert_eq!(
        sessions[0]["session_id"],
        json!(id),
        "the own ones come first"
    );
    assert_eq!(status["sessions_more"], json!(8));
}

#[tokio::test]
async fn what_a_session_says_of_itself_has_a_size_in_every_list() {
    let server = Server::start();
    let eve = server.identity("Eve").await;
    let long = "m".repeat(10_000);
    for _ in 0..20 {
        let request = json!({"surface": "other", "machine_id": long, "process_pid": 1});
        eve.call(PID, "session_register", request).await.unwrap();
    }
    let (texi, _) = server.session("Texi").await;
    let started = texi
        .call(PID, "start", json!({"name": long}))
        .await
        .unwrap();
    assert!(started["peers"].to_string().len() < 20 * 1_000, "{started}");
    let status = texi.call(PID, "status", json!({})).await.unwrap();
    assert!(status.to_string().len() < 25 * 1_000);
}

#[tokio::test]
async fn whoever_watches_holds_so_many_sockets_and_is_told_the_number() {
    let server = Server::start_with(FAST);
    server.identity("Texi").await;
    let operator = server.operator();
    let mut open = Vec::new();
    for _ in 0..WATCHERS_MAX {
        let mut stream = Stream::open(&server, &operator, None, None, vec![]).await;
        stream.backlog().await;
        open.push(stream);
    }
    let mut refused = Stream::open(&server, &operator, None, None, vec![]).await;
    let reason = refused.closed().await;
    assert!(reason.contains("may hold 64 sockets"), "{reason}");
}

fn memory_kb(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn forty_frames_of_one_agent_cost_the_server_no_memory_to_speak_of() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    let before = memory_kb(server.pid());
    let ids: Vec<_> = (0..1_600).map(uuid::Uuid::from_u128).collect();
    for _ in 0..40 {
        stream
            .say(ClientFrame::Receipt {
                state: State::Rung,
                signal_ids: ids.clone(),
                strategy: Some("x".repeat(60_000)),
                via: None,
            })
            .await;
    }
    stream.say(ClientFrame::Ping).await;
    while !matches!(stream.next().await, ServerFrame::Pong) {}
    let after = memory_kb(server.pid());
    assert!(after < before + 32 * 1024, "{before} KiB, then {after} KiB");
}

#[tokio::test]
async fn a_socket_that_sends_too_much_is_read_slower_and_stays_open() {
    let server = Server::start_with("[limits]\nrequests_per_second = 1\nrequests_burst = 20\n");
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    for _ in 0..20 {
        stream.say(ClientFrame::Ping).await;
    }
    let mut answered = 0;
    while answered < 20 {
        answered += u32::from(matches!(stream.next().await, ServerFrame::Pong));
    }
    // The account is empty, and the same key's requests are charged to it.
    let refused = texi.call(PID, "ping", json!({})).await;
    assert!(refused.is_err_and(|p| p.is(Code::TooManyRequests)));
    // It stays open: with more on the account, it is read again.
    server.advance(Duration::from_secs(5));
    stream.say(ClientFrame::Ping).await;
    assert!(matches!(stream.next().await, ServerFrame::Pong));
}

/// A payload of so many arrays inside one another.
fn nested(levels: usize) -> String {
    let (open, close) = ("[".repeat(levels), "]".repeat(levels));
    format!(r#"{{"summary":"deep","deep":{open}{close}}}"#)
}

#[tokio::test]
async fn a_payload_nested_too_deep_is_refused_and_an_old_one_blocks_no_inbox() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, session) = server.session("Texi").await;
    let mut deep = task("Texi", "deep");
    deep["payload"] = serde_json::from_str(&nested(120)).unwrap();
    let refused = donna.call(PID, "signal", deep).await.unwrap_err();
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.message.contains("121") && refused.message.contains("32"));
    // One that an earlier version took, at each depth that it did, and a plain one behind them.
    let levels = [100, 124, 125, 126];
    for _ in levels {
        let sent = donna.call(PID, "signal", task("Texi", "deep")).await;
        sent.unwrap();
    }
    let last = donna.call(PID, "signal", task("Texi", "plain")).await;
    let last = last.unwrap()["signal_id"].clone();
    let db = server.rows();
    for (i, levels) in levels.into_iter().enumerate() {
        let sql = "update signal_queue set payload = ? where to_identity = 'Texi' and seq = ?";
        db.execute(sql, rusqlite::params![nested(levels), i as i64 + 1])
            .unwrap();
    }
    let mut stream = Stream::open(&server, &texi, Some(session), Some(0), vec![]).await;
    let pushed = stream.backlog().await;
    assert_eq!(pushed.len(), 5, "every frame can be read");
    let note = texi.call(PID, "note", json!({"text": "walrus"})).await;
    let note = note.unwrap();
    let signals = note["signals"].as_array().unwrap();
    assert_eq!(signals.len(), 5);
    assert_eq!(signals[4]["signal_id"], last);
    assert_eq!(signals[1]["payload"]["unreadable"], json!(nested(124)));
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_is_told_from_a_closed_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\n{\"a\":";
            drop(socket.read(&mut [0; 4096]).await);
            drop(socket.write_all(answer.as_bytes()).await);
        }
    });
    let client = Client::new(Locator::Url(url.into()), "prk_x".into()).unwrap();
    let problem = client.call(PID, "note", json!({"text": "x"})).await;
    let problem = problem.unwrap_err();
    assert!(problem.is(Code::Internal), "{problem:?}");
    assert!(problem.message.contains("could not be read"), "{problem:?}");
}

fn kinds(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().map(Vec::as_slice);
    let kinds = warnings.unwrap_or_default().iter();
    kinds.map(|w| w["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_path_without_end_is_left_out_and_the_checkpoint_is_kept() {
    let server = Server::start_with(FAST);
    let (eve, _) = server.session("Eve").await;
    let endless = format!("/{}", "a/".repeat(100_000));
    for n in 0..3 {
        let request = json!({"summary": format!("{n}"), "touched_files": [endless, "/r/a.css"]});
        let answer = eve.call(PID, "checkpoint", request).await.unwrap();
        let warned = kinds(&answer);
        assert_eq!(
            warned,
            ["missing_operator_visible_effect", "touched_files_cut"]
        );
        assert_eq!(answer["warnings"][0]["paths"], json!(["/r/a.css"]));
        let said = answer["warnings"][1].to_string();
        assert!(said.contains("1 of 2") && said.contains("1024") && said.len() < 1_000);
    }
    let many = json!({"summary": "many", "touched_files": vec!["f"; 501]});
    let answer = eve.call(PID, "checkpoint", many).await.unwrap();
    assert_eq!(kinds(&answer), ["touched_files_cut"]);
    let db = server.rows();
    let mut rows = db
        .prepare(
            "select touched_files from session_deltas
             where delta_kind = 'checkpoint' order by created_at",
        )
        .unwrap();
    let kept = rows.query_map([], |r| r.get::<_, String>(0)).unwrap();
    let kept = kept.map(|files| {
        serde_json::from_str::<Vec<String>>(&files.unwrap())
            .unwrap()
            .len()
    });
    assert_eq!(kept.collect::<Vec<_>>(), [1, 1, 1, 500]);
}

fn project_says(server: &Server, text: &str) {
    let folder = server.folder().join(".prism");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("project.toml"), text).unwrap();
}

#[test]
fn no_list_of_surfaces_keeps_a_session_from_starting_or_ending() {
    let server = Server::start();
    let globs: Vec<String> = (0..20_000).map(|n| format!("some/folder/{n}/**")).collect();
    let mut texi = server.agent("Texi");
    let touched = json!({"summary": "x", "touched_files": ["some/folder/7/x", "a.css"]});
    for (text, warned, seen) in [
        (
            format!("surfaces = {}", json!(globs)),
            "too_many_surface_globs",
            "some/folder/7/x",
        ),
        (
            format!("surfaces = [{}]", json!("é".repeat(300_000))),
            "bad_surface_glob",
            "",
        ),
        ("surfaces = \"x\"".into(), "bad_surfaces", "a.css"),
        ("surfaces = [1, \"*.css\"]".into(), "bad_surfaces", "a.css"),
        ("surfaces = [".into(), "bad_surfaces", "a.css"),
    ] {
        project_says(&server, &text);
        let kept = texi.call("prism_checkpoint", touched.clone());
        assert!(kinds(&kept).contains(&warned), "{kept}");
        if !seen.is_empty() {
            assert_eq!(kept["warnings"][0]["paths"], json!([seen]), "{warned}");
        }
        let rot = server.cli(None, &["memory", "rot"]);
        assert!(rot.status.success(), "{warned}: {rot:?}");
        let kept = server.ok(Some("Texi"), &["--json", "checkpoint", "by hand"]);
        let kept: Value = serde_json::from_str(&kept).unwrap();
        assert!(kinds(&kept).contains(&warned), "{kept}");
    }
    // The folder's file is read to find the project, too.
    for text in ["surfaces = \"x\"", "pid = \"PID-FILE\"\nsurfaces = 7"] {
        project_says(&server, text);
        let mut command = server.command(Some("Donna"));
        let mut donna = Agent::run(command.env_remove("PRISM_PID"));
        donna.call("prism_start", json!({}));
        let wrapped = donna.call("prism_wrap", json!({"summary": "x"}));
        assert_eq!(kinds(&wrapped), ["bad_surfaces"]);
    }
}

#[test]
fn files_with_long_names_are_cut_to_what_fits_and_the_wrap_is_kept() {
    let server = Server::start();
    let git = std::process::Command::new("git")
        .args(["init", "-q"])
        .current_dir(server.folder())
        .status();
    assert!(git.unwrap().success());
    let mut texi = server.agent("Texi");
    texi.call("prism_checkpoint", json!({"summary": "nothing yet"}));
    let deep = server.folder().join("d".repeat(250)).join("e".repeat(250));
    std::fs::create_dir_all(&deep).unwrap();
    for n in 0..500 {
        std::fs::write(deep.join(format!("{n:03}{}", "f".repeat(100))), "x").unwrap();
    }
    let kept = texi.call("prism_checkpoint", json!({"summary": "long names"}));
    assert_eq!(kept["touched_files_source"], "git");
    assert_eq!(kinds(&kept), ["touched_files_cut"]);
    // Also beside the largest text that goes into one request.
    let long = "x".repeat(50_000);
    let most = json!({"summary": long, "next": long, "operator_visible_effect": long,
        "tried_and_ruled_out": [{"approach": long, "outcome": long}]});
    let kept = texi.call("prism_wrap", most);
    assert_eq!(kinds(&kept), ["touched_files_cut"]);
}

#[tokio::test]
async fn what_one_agent_writes_does_not_fill_the_opening_of_another() {
    let server = Server::start_with(FAST);
    let (eve, _) = server.session("Eve").await;
    let text = "x".repeat(50_000);
    let todo = json!({"action": "add", "title": text, "body": text,
        "paths": vec!["p".repeat(1_024); 100], "tags": vec!["t".repeat(200); 200]});
    for _ in 0..21 {
        eve.call(PID, "todo", todo.clone()).await.unwrap();
    }
    let postmortem = json!({"title": text, "what_happened": text, "choice_point": text,
        "prevention": text});
    for _ in 0..10 {
        let written = eve.call(PID, "postmortem", postmortem.clone());
        written.await.unwrap();
    }
    let decision = json!({"title": text, "context": text, "decision": text, "consequences": text});
    for _ in 0..10 {
        eve.call(PID, "decide", decision.clone()).await.unwrap();
    }
    let dead_end = json!({"approach": "a".repeat(500), "outcome": "o".repeat(500)});
    let record = json!({"summary": text, "next": text, "operator_visible_effect": "x".repeat(9_000),
        "open_loops": vec!["l".repeat(2_000); 20], "tried_and_ruled_out": vec![dead_end; 90]});
    for _ in 0..10 {
        eve.call(PID, "checkpoint", record.clone()).await.unwrap();
    }
    eve.call(PID, "wrap", record).await.unwrap();

    let (donna, _) = server.session("Donna").await;
    let started = donna.call(PID, "start", json!({})).await.unwrap();
    assert_eq!(started["open_todos"].as_array().unwrap().len(), 20);
    assert_eq!(started["open_todos"][0]["more"]["paths"], json!(97));
    assert_eq!(started["recent_deltas"][0]["more"]["open_loops"], json!(17));
    let told = started.to_string().len();
    assert!(told < OPENING_BYTES_MAX, "{told}");
    let picked = donna.call(PID, "pickup", json!({"from_identity": "Eve"}));
    let picked = picked.await.unwrap();
    assert_eq!(picked["wrap"]["open_loops"].as_array().unwrap().len(), 20);
    let told = picked.to_string().len();
    assert!(told < PICKUP_BYTES_MAX, "{told}");
    let (eve, _) = server.session("Eve").await;
    for _ in 0..79 {
        eve.call(PID, "todo", todo.clone()).await.unwrap();
    }
    let listed = donna.call(PID, "todo", json!({"action": "list"}));
    let listed = listed.await.unwrap();
    assert_eq!(listed["items"].as_array().unwrap().len(), 100);
    let told = listed.to_string().len();
    assert!(told < LISTED_BYTES_MAX, "{told}");
    // One of them, by its number, is shown whole.
    let one = donna.call(PID, "todo", json!({"action": "list", "number": 7}));
    let one = one.await.unwrap();
    assert_eq!(one["item"]["body"].as_str().unwrap().len(), 50_000);
    assert_eq!(
        one["item"]["fields"]["paths"].as_array().unwrap().len(),
        100
    );
}

#[tokio::test]
async fn what_rides_on_an_answer_and_what_one_drain_brings_is_bounded_in_bytes() {
    let server = Server::start_with(FAST);
    let donna = server.identity("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let mut sent = Vec::new();
    for n in 0..40 {
        let mut large = task("Texi", &format!("large {n}"));
        large["payload"]["pad"] = json!("y".repeat(60_000));
        let answer = donna.call(PID, "signal", large).await.unwrap();
        sent.push(answer["signal_id"].as_str().unwrap().to_owned());
    }
    let status = texi.call(PID, "status", json!({})).await.unwrap();
    let mut read = ids(&status);
    assert_eq!((read.len(), &status["signals_more"]), (1, &json!(39)));
    assert!(status.to_string().len() < PIGGYBACK_BYTES_MAX + 64 * 1024);
    loop {
        let request = json!({"limit": 200});
        let pending = texi.call(PID, "signals_pending", request).await.unwrap();
        assert!(pending.to_string().len() < PENDING_BYTES_MAX + 64 * 1024);
        read.extend(ids(&pending));
        let more = pending["more"].as_u64().unwrap_or(0) as usize;
        assert_eq!(more, 40 - read.len());
        if read.len() == 40 {
            break;
        }
    }
    assert_eq!(read, sent, "in order, each once");
}

#[tokio::test]
async fn a_list_of_deltas_shows_so_much_of_each_and_says_what_it_cut() {
    let server = Server::start_with(FAST);
    let (eve, _) = server.session("Eve").await;
    for n in 0..20 {
        let text = format!("{n} {}", "walrus ".repeat(6_000));
        eve.call(PID, "note", json!({ "text": text }))
            .await
            .unwrap();
    }
    let listed = eve.call(PID, "deltas", json!({})).await.unwrap();
    assert_eq!(listed["deltas"].as_array().unwrap().len(), 20);
    assert!(listed.to_string().len() < LISTED_BYTES_MAX);
    assert!(
        !listed["deltas"][0]["more"]["summary"].is_null(),
        "{listed}"
    );
    let id = listed["deltas"][0]["id"].as_str().unwrap();
    let whole = eve.call(PID, "deltas", json!({"id": &id[..8]})).await;
    let whole = whole.unwrap()["deltas"][0].clone();
    assert_eq!(whole["id"], id);
    assert_eq!(whole["summary"].as_str().unwrap().len(), 3 + 7 * 6_000 - 1);
    assert!(whole["more"].is_null());
    let shown = server.ok(None, &["deltas", &id[..8]]);
    assert!(shown.len() > 7 * 6_000, "all of it");
    let (ada, _) = server.session("Ada").await;
    let operator = server.operator();
    let elsewhere = operator.call("PID-OTHER", "deltas", json!({"id": id}));
    assert!(elsewhere.await.unwrap_err().is(Code::UnknownReference));
    let unknown = ada.call(PID, "deltas", json!({"id": "00000000"})).await;
    assert!(unknown.unwrap_err().is(Code::UnknownReference));
}

#[tokio::test]
async fn a_list_of_deltas_has_a_size_however_many_are_asked_for() {
    let server = Server::start_with(FAST);
    let (eve, _) = server.session("Eve").await;
    for n in 0..200 {
        let text = format!("{n} {}", "walrus ".repeat(200));
        eve.call(PID, "note", json!({ "text": text }))
            .await
            .unwrap();
    }
    let listed = eve.call(PID, "deltas", json!({"n": 200})).await.unwrap();
    assert!(listed.to_string().len() < LISTED_BYTES_MAX + 1_000);
    let shown = listed["deltas"].as_array().unwrap().len() as u64;
    assert_eq!(shown + listed["more"].as_u64().unwrap(), 200);
}

#[tokio::test]
async fn a_list_of_memory_has_so_many_items_of_so_many_characters() {
    let server = Server::start_with(FAST);
    let (eve, _) = server.session("Eve").await;
    for (verb, request, said) in [
        (
            "checkpoint",
            json!({"summary": "x", "open_loops": ["f".repeat(2_001)]}),
            "`open_loops[0]` has 2001 characters and may have 2000",
        ),
        (
            "checkpoint",
            json!({"summary": "x", "tried_and_ruled_out":
                vec![json!({"approach": "a", "outcome": "o"}); 101]}),
            "`tried_and_ruled_out` has 101 items and may have 100",
        ),
        (
            "todo",
            json!({"action": "add", "title": "t", "tags": vec!["f"; 501]}),
            "`tags` has 501 items and may have 500",
        ),
        (
            "todo",
            json!({"action": "add", "title": "t", "paths": vec!["f"; 501]}),
            "`paths` has 501 items",
        ),
        (
            "todo",
            json!({"action": "add", "title": "t", "paths": ["a", "f".repeat(1_025)]}),
            "`paths[1]` has 1025 characters and may have 1024",
        ),
        (
            "remember",
            json!({"kind": "note", "body": "b", "tags": ["f".repeat(201)]}),
            "`tags[0]` has 201 characters and may have 200",
        ),
    ] {
        let refused = eve.call(PID, verb, request).await.unwrap_err();
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.message.contains(said), "{refused:?}");
    }
}
