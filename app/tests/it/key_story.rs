//! Whose rights a key carries, and what ends with it.

use crate::harness::{Agent, PATIENCE, PID, Server, task, wait_for, wait_until};
use crate::stream::Stream;
use futures_util::{SinkExt, StreamExt};
use prism::client::{Client, Locator};
use prism::shim::socket::{self, Socket};
use prism_core::Code;
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::signal::sha256_hex;
use serde_json::{Value, json};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

fn database(server: &Server) -> prism::store::sql::Connection {
    server.rows()
}

fn rename_operator(server: &Server, name: &str) {
    let config = server.home().read("config.toml").unwrap();
    let lines: Vec<String> = config
        .lines()
        .map(|line| match line.starts_with("operator") {
            true => format!("operator = {name:?}"),
            false => line.to_owned(),
        })
        .collect();
    server
        .home()
        .write("config.toml", lines.join("\n").as_bytes())
        .unwrap();
}

async fn operator_name(client: &Client, pid: &str) -> String {
    let status = client.call(pid, "status", json!({})).await.unwrap();
    let personas = status["personas"].as_array().unwrap().clone();
    let operators: Vec<_> = personas.iter().filter(|p| p["operator"] == true).collect();
    assert_eq!(operators.len(), 1, "{status}");
    operators[0]["identity"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn an_operator_is_renamed_although_the_new_name_once_sent_under_the_same_key() {
    let mut server = Server::start();
    server.identity("Texi").await;
    let mut keyed = task("Texi", "x");
    keyed["idempotency_key"] = json!("once");
    let operator = server.operator();
    operator.call(PID, "signal", keyed.clone()).await.unwrap();
    let database = server.rows();
    let earlier = "update signal_queue set from_identity = 'boss'";
    assert_eq!(database.execute(earlier, []).unwrap(), 1);
    operator.call(PID, "signal", keyed).await.unwrap();
    server.terminate();
    rename_operator(&server, "boss");
    server.resume();
    let of_boss = "select count(*) from signal_queue where from_identity = 'boss'";
    let of_boss: i64 = database.query_row(of_boss, [], |r| r.get(0)).unwrap();
    assert_eq!(of_boss, 2);
}

#[tokio::test]
async fn a_renamed_operator_is_renamed_everywhere_and_leaves_no_rights_behind() {
    let mut server = Server::start();
    let texi = server.identity("Texi").await;
    texi.call(PID, "signal", task("frank", "before the rename"))
        .await
        .unwrap();
    server.terminate();
    rename_operator(&server, "boss");
    server.resume();
    let boss = server.operator();
    assert_eq!(operator_name(&boss, PID).await, "boss");
    boss.call("PID-B", "status", json!({})).await.unwrap();
    // The old name is free now, and means nothing in the older project.
    let minted = boss
        .call("PID-B", "key_mint", json!({"identity": "frank"}))
        .await
        .unwrap();
    let frank = Client::new(
        Locator::Home(server.home()),
        minted["key"].as_str().unwrap().into(),
    )
    .unwrap();
    for pid in [PID, "PID-B"] {
        let refused = frank.call(pid, "key_list", json!({})).await.unwrap_err();
        assert!(
            refused.is(Code::NoPersona) || refused.is(Code::OperatorOnly),
            "{pid}: {refused:?}"
        );
    }
    let refused = frank.call(PID, "signals_pending", json!({})).await;
    assert!(refused.unwrap_err().is(Code::NoPersona));
    let read = boss.call(PID, "signals_pending", json!({})).await.unwrap();
    assert_eq!(read["signals"][0]["to_identity"], "boss", "{read}");
}

#[tokio::test]
async fn whoever_gets_the_operators_old_name_gets_none_of_what_was_sent_under_it() {
    let mut server = Server::start();
    let texi = server.identity("Texi").await;
    let mut keyed = task("Texi", "from the human");
    keyed["idempotency_key"] = json!("k");
    let first = server.operator().call(PID, "signal", keyed.clone()).await;
    let first = first.unwrap();
    let signal = json!({"signal_id": first["signal_id"]});
    let mut ack = signal.clone();
    (ack["state"], ack["note"]) = (json!("observed"), json!("PRIVATE"));
    texi.call(PID, "signal_ack", ack.clone()).await.unwrap();
    // And one to the operator that was read under the old name.
    let asked = texi.call(PID, "signal", task("frank", "a question")).await;
    let asked = json!({"signal_id": asked.unwrap()["signal_id"]});
    let operator = server.operator();
    let read = operator.call(PID, "signals_pending", json!({})).await;
    let lease = json!({"lease_id": read.unwrap()["lease_id"]});
    operator.call(PID, "signals_confirm", lease).await.unwrap();
    ack["signal_id"] = asked["signal_id"].clone();
    operator.call(PID, "signal_ack", ack).await.unwrap();
    server.terminate();
    rename_operator(&server, "boss");
    server.resume();
    let frank = server.identity("frank").await;
    let refused = frank.call(PID, "signal_recall", signal.clone()).await;
    assert!(refused.unwrap_err().is(Code::NotYours));
    for traced in [&signal, &asked] {
        let told = frank.call(PID, "signal_trace", traced.clone()).await;
        let told = told.unwrap().to_string();
        assert!(!told.contains("PRIVATE"), "{told}");
    }
    let own = frank.call(PID, "signal", keyed.clone()).await.unwrap();
    assert_ne!(own["signal_id"], first["signal_id"], "its key is its own");
    // The operator goes on under the new name.
    let boss = server.operator();
    let again = boss.call(PID, "signal", keyed).await.unwrap();
    assert_eq!(again["signal_id"], first["signal_id"]);
    let told = boss.call(PID, "signal_trace", signal).await.unwrap();
    assert_eq!(told["from_identity"], "boss", "{told}");
}

#[tokio::test]
async fn an_operator_cannot_take_the_name_of_an_agent() {
    let mut server = Server::start();
    server.identity("Texi").await;
    server.terminate();
    rename_operator(&server, "texi");
    let output = server.cli(None, &["serve", "--port", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("an agent has that name in PID-TEST"),
        "{said}"
    );
}

#[tokio::test]
async fn the_operators_name_is_no_agents_in_any_project() {
    let server = Server::start();
    let operator = server.operator();
    operator.call(PID, "status", json!({})).await.unwrap();
    // As an older home may have it: another name in another project.
    let elsewhere = operator.call("PID-B", "status", json!({})).await.unwrap();
    assert!(elsewhere["personas"].is_array(), "{elsewhere}");
    database(&server)
        .execute(
            "update personas set identity = 'Chief', identity_folded = 'chief'
             where project_id = (select id from projects where pid = 'PID-B')",
            [],
        )
        .unwrap();
    for name in ["frank", "FRANK", "chief"] {
        for verb in ["key_mint", "persona_add"] {
            let refused = operator.call(PID, verb, json!({"identity": name})).await;
            let refused = refused.unwrap_err();
            assert!(
                refused.is(Code::Conflict) && refused.message.contains("operator's name"),
                "{verb} {name}: {refused:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_key_whose_holder_cannot_be_read_opens_nothing() {
    let mut server = Server::start();
    let texi = server.identity("Texi").await;
    server.terminate();
    database(&server)
        .execute(
            "update api_keys set identity = 'no such name!' where identity = 'Texi'",
            [],
        )
        .unwrap();
    server.resume();
    for verb in ["status", "key_list"] {
        let refused = texi.call(PID, verb, json!({})).await.unwrap_err();
        assert!(refused.is(Code::InvalidKey), "{verb}: {refused:?}");
    }
}

#[tokio::test]
async fn the_key_of_an_agent_is_no_operators_key_for_standing_in_the_config() {
    let mut server = Server::start();
    let texi = server.identity("Texi").await;
    server.terminate();
    let config = format!("operator = \"frank\"\napi_key = \"{}\"\n", texi.key());
    server
        .home()
        .write("config.toml", config.as_bytes())
        .unwrap();
    let output = server.cli(None, &["serve", "--port", "0"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is the key of the agent Texi"), "{said}");
    assert!(!said.contains(texi.key()), "{said}");
}

#[tokio::test]
async fn what_the_store_has_and_memory_has_not_is_found_again() {
    let server = Server::start();
    let operator = server.operator();
    operator.call(PID, "status", json!({})).await.unwrap();
    // As after a writer that committed for somebody who no longer listened.
    let (project, key) = (Uuid::new_v4().to_string(), "prk_left_behind");
    let db = database(&server);
    let tenant: String = db
        .query_row("select id from tenants", [], |r| r.get(0))
        .unwrap();
    db.execute(
        "insert into projects (id, tenant_id, pid, created_at) values (?, ?, 'PID-LOST', 1)",
        [&project, &tenant],
    )
    .unwrap();
    for (name, is_operator) in [("frank", "1"), ("Texi", "0")] {
        db.execute(
            "insert into personas
             (id, tenant_id, project_id, identity, identity_folded, is_operator, created_at)
             values (?, ?, ?, ?, lower(?4), cast(? as integer), 1)",
            [
                &Uuid::new_v4().to_string(),
                &tenant,
                &project,
                name,
                is_operator,
            ],
        )
        .unwrap();
    }
    db.execute(
        "insert into api_keys (id, tenant_id, identity, key_sha256, prefix, created_at)
         values (?, ?, 'Texi', ?, 'prk_left', 1)",
        [
            &Uuid::new_v4().to_string(),
            &tenant,
            &sha256_hex(key.as_bytes()),
        ],
    )
    .unwrap();
    drop(db);
    let status = operator.call("PID-LOST", "status", json!({})).await;
    assert_eq!(status.unwrap()["pid"], "PID-LOST");
    let added = operator
        .call("PID-LOST", "persona_add", json!({"identity": "texi"}))
        .await
        .unwrap();
    assert_eq!(
        (added["identity"].as_str(), added["created"].as_bool()),
        (Some("Texi"), Some(false))
    );
}

async fn hello(server: &Server, client: &Client, session_id: Option<Uuid>) -> Socket {
    let mut ws = socket::connect(&server.url(), client.key()).await.unwrap();
    let hello = ClientFrame::Hello {
        pid: PID.into(),
        session_id,
        last_seq: None,
        last_id: None,
        copy: None,
        confirm: vec![],
    };
    ws.send(socket::encode(&hello)).await.unwrap();
    loop {
        if let Some(ServerFrame::Live) = socket::decode(&next(&mut ws).await) {
            return ws;
        }
    }
}

async fn next(ws: &mut Socket) -> Message {
    tokio::time::timeout(PATIENCE, ws.next())
        .await
        .expect("a frame")
        .expect("an open socket")
        .unwrap()
}

async fn close_code(ws: &mut Socket) -> u16 {
    loop {
        if let Message::Close(Some(frame)) = next(ws).await {
            return frame.code.into();
        }
    }
}

async fn register(client: &Client) -> (Client, Uuid) {
    let session = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let registered = client.call(PID, "session_register", session).await.unwrap();
    let id = registered["session_id"].as_str().unwrap().parse().unwrap();
    (client.with_session(Some(id)), id)
}

async fn key_id(server: &Server, key: &str) -> Value {
    let keys = server.operator().call(PID, "key_list", json!({})).await;
    let keys = keys.unwrap()["keys"].as_array().unwrap().clone();
    let found = keys
        .iter()
        .find(|k| key.starts_with(k["prefix"].as_str().unwrap()));
    found.unwrap()["key_id"].clone()
}

#[tokio::test]
async fn revoking_one_of_two_keys_closes_the_sockets_of_that_key_alone() {
    let server = Server::start();
    let (one, two) = (server.identity("Texi").await, server.identity("Texi").await);
    let ((one, first), (two, second)) = (register(&one).await, register(&two).await);
    let mut gone = hello(&server, &one, Some(first)).await;
    let mut stays = hello(&server, &two, Some(second)).await;
    let revoked = json!({"key_id": key_id(&server, one.key()).await});
    server
        .operator()
        .call(PID, "key_revoke", revoked)
        .await
        .unwrap();
    assert_eq!(close_code(&mut gone).await, close::RELEASED);
    server
        .operator()
        .call(PID, "signal", task("Texi", "for the other key"))
        .await
        .unwrap();
    loop {
        match socket::decode(&next(&mut stays).await) {
            Some(ServerFrame::Signal { .. }) => break,
            Some(_) => {}
            None => panic!("the other key's socket was closed"),
        }
    }
}

#[tokio::test]
async fn revoking_a_key_ends_the_sessions_that_were_opened_with_it() {
    let server = Server::start();
    let (one, two) = (server.identity("Texi").await, server.identity("Texi").await);
    let ((one, first), (two, second)) = (register(&one).await, register(&two).await);
    let _gone = hello(&server, &one, Some(first)).await;
    let _stays = hello(&server, &two, Some(second)).await;
    let open = async || {
        let status = server.operator().call(PID, "status", json!({})).await;
        let sessions = status.unwrap()["sessions"].as_array().unwrap().clone();
        let ids = sessions.iter().map(|s| s["session_id"].clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(open().await.len(), 2);
    for (key, left) in [(one.key(), vec![json!(second)]), (two.key(), vec![])] {
        let revoked = json!({"key_id": key_id(&server, key).await});
        let operator = server.operator();
        operator.call(PID, "key_revoke", revoked).await.unwrap();
        assert_eq!(open().await, left);
    }
    // One without a socket goes with the last key of its identity.
    let donna = server.identity("Donna").await;
    register(&donna).await;
    let revoked = json!({"key_id": key_id(&server, donna.key()).await});
    let operator = server.operator();
    operator.call(PID, "key_revoke", revoked).await.unwrap();
    assert!(open().await.is_empty());
}

#[tokio::test]
async fn an_operators_watch_ends_with_its_key() {
    let mut server = Server::start();
    let old = server.operator();
    old.call(PID, "status", json!({})).await.unwrap();
    server.terminate();
    let fresh = prism::clock::new_key().unwrap();
    let config = format!("operator = \"frank\"\napi_key = \"{fresh}\"\n");
    server
        .home()
        .write("config.toml", config.as_bytes())
        .unwrap();
    server.resume();
    let mut watch = hello(&server, &old, None).await;
    let mut stays = hello(&server, &server.operator(), None).await;
    let revoked = json!({"key_id": key_id(&server, old.key()).await});
    server
        .operator()
        .call(PID, "key_revoke", revoked)
        .await
        .unwrap();
    assert_eq!(close_code(&mut watch).await, close::RELEASED);
    let texi = server.identity("Texi").await;
    texi.call(PID, "signal", task("frank", "seen by who may"))
        .await
        .unwrap();
    assert!(socket::decode(&next(&mut stays).await).is_some());
}

#[test]
fn a_server_starts_with_no_key_that_can_be_guessed_and_with_no_nameless_operator() {
    let mut server = Server::start();
    let good = server.operator_key();
    server.terminate();
    for (operator, key, says) in [
        ("frank", "", "api_key"),
        ("frank", "x", "at least 32"),
        ("frank", "prk_short", "at least 32"),
        ("frank", &good[4..], "prk_"),
        ("bot", good.as_str(), "`operator`"),
    ] {
        let config = format!("operator = \"{operator}\"\napi_key = \"{key}\"\n");
        server
            .home()
            .write("config.toml", config.as_bytes())
            .unwrap();
        let output = server.command(None).args(["serve", "--port", "0"]).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(2), "{config}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(
            told.contains(says) && told.contains("config.toml"),
            "{told}"
        );
        if key.len() > 4 {
            assert!(!told.contains(key), "{told}");
        }
    }
}

#[test]
fn a_key_that_left_the_configuration_is_told_until_it_is_revoked() {
    let mut server = Server::start();
    let old = server.operator_key();
    server.ok(None, &["status"]);
    server.terminate();
    let fresh = prism::clock::new_key().unwrap();
    let config = format!("operator = \"frank\"\napi_key = \"{fresh}\"\n");
    server
        .home()
        .write("config.toml", config.as_bytes())
        .unwrap();
    server.resume();
    let listed = server.command(None).args(["key", "list"]).output().unwrap();
    let told = String::from_utf8(listed.stderr).unwrap();
    assert!(
        told.contains(&old[..12]) && !told.contains(&fresh[..12]),
        "{told}"
    );
    let doctor = server.command(None).arg("doctor").output().unwrap();
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    assert!(doctor.contains("prism key revoke"), "{doctor}");
    let id = told.split("prism key revoke ").nth(1).unwrap();
    server.ok(
        None,
        &["key", "revoke", id.trim_end().trim_end_matches('`')],
    );
    let listed = server.command(None).args(["key", "list"]).output().unwrap();
    assert!(
        listed.status.success() && listed.stderr.is_empty(),
        "{listed:?}"
    );
}

#[test]
fn a_key_that_the_environment_replaces_is_told_and_a_server_in_the_background_is_given_it_too() {
    let server = Server::none();
    let up = |command: &str, key: &str| {
        let mut up = server.command(None);
        let up = up.env("PRISM_OPERATOR_KEY", key).args([command, "--json"]);
        let output = up.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), said)
    };
    let [one, two] = [(); 2].map(|()| prism::clock::new_key().unwrap());
    assert!(up("up", &one).0);
    assert_eq!(server.operator_key(), one);
    server.ok(None, &["status"]);
    let log = || server.home().read("log/server.log").unwrap();
    assert!(!log().contains("still opens everything"), "{}", log());
    // Nothing stops for what could not start.
    let (_, said) = up("restart", "guess");
    assert!(said.contains("PRISM_OPERATOR_KEY is no key"), "{said}");
    assert_eq!(server.operator_key(), one);
    server.ok(None, &["status"]);
    assert!(up("restart", &two).0);
    assert_eq!(server.operator_key(), two);
    let log = log();
    let told: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("still opens everything"))
        .collect();
    assert_eq!(told.len(), 1, "{log}");
    let id = told[0].split("prism key revoke ").nth(1).unwrap();
    server.ok(None, &["key", "revoke", &id[..8]]);
    let mut old = server.command(None);
    let old = old.env("PRISM_API_KEY", &one).arg("status").output();
    assert!(!old.unwrap().status.success());
}

#[test]
fn a_revoked_key_comes_back_by_the_operators_hand_alone() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let keys =
        || -> Value { serde_json::from_str(&server.ok(None, &["key", "list", "--json"])).unwrap() };
    let of_texi = |keys: &Value| -> Vec<Value> {
        let keys = keys["keys"].as_array().unwrap().iter();
        keys.filter(|k| k["identity"] == "Texi").cloned().collect()
    };
    let minted = of_texi(&keys());
    let id = minted[0]["key_id"].as_str().unwrap();
    server.ok(None, &["key", "revoke", id]);
    // The shim says what is wrong, not only that its session is over.
    let refused = wait_for("the shim hears of it", || {
        let refused = texi.refused("prism_status", json!({}));
        let hint = refused["hint"].as_str().unwrap();
        hint.contains("prism key mint Texi").then_some(refused)
    });
    assert_eq!(refused["code"], "invalid_key", "{refused}");
    let refused = texi.refused("prism_start", json!({}));
    assert_eq!(refused["code"], "invalid_key", "{refused}");
    assert_eq!(refused["reason"], "revoked", "{refused}");
    assert!(
        refused["hint"].as_str().unwrap().contains("prism key mint"),
        "{refused}"
    );
    // A host that starts afresh gets no further.
    let mut again = Agent::launch(&server, Some("Texi"), &[]);
    let refused = again.refused("prism_start", json!({}));
    assert_eq!(refused["reason"], "revoked", "{refused}");
    assert_eq!(of_texi(&keys()).len(), 1, "no new key was made");
    server.ok(None, &["key", "mint", "Texi"]);
    again.call("prism_start", json!({}));
    texi.call("prism_start", json!({}));
}

#[test]
fn a_key_that_cannot_be_kept_is_not_in_force() {
    let server = Server::start();
    let in_force = |name: &str| {
        let keys = server.ok(None, &["key", "list", "--json"]);
        let keys: Value = serde_json::from_str(&keys).unwrap();
        let keys = keys["keys"].as_array().unwrap().clone();
        let of_name = keys.iter().filter(|k| k["identity"] == name);
        of_name.filter(|k| k["revoked_at"].is_null()).count()
    };
    // A folder stands in the place of the key.
    std::fs::create_dir(server.home().path("keys/Zoe.key")).unwrap();
    let refused = server.cli(None, &["key", "mint", "Zoe"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(
        said.contains("revoked again") && said.contains("hint: "),
        "{said}"
    );
    assert_eq!(in_force("Zoe"), 0);
    let mut zoe = Agent::launch(&server, Some("Zoe"), &[]);
    let refused = zoe.refused("prism_start", json!({}));
    assert_eq!(refused["code"], "storage_unavailable", "{refused}");
    let keys = server.ok(None, &["key", "list", "--json"]);
    assert_eq!(
        keys.matches("\"Zoe\"").count(),
        1,
        "none was made again: {keys}"
    );
    std::fs::remove_dir(server.home().path("keys/Zoe.key")).unwrap();
    // The folder of keys itself cannot be written: none is made at all.
    server.home().remove("keys/mint.lock");
    std::fs::create_dir(server.home().path("keys/mint.lock")).unwrap();
    let refused = server.cli(None, &["key", "mint", "Ada"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let listed = server.ok(None, &["key", "list"]);
    assert!(!listed.contains("Ada"), "{listed}");
}

/// Whoever reads nothing must not keep what a key has opened.
#[tokio::test]
async fn a_socket_whose_key_was_revoked_ends_though_nobody_reads_it() {
    let server = Server::start();
    let (texi, session) = server.session("Texi").await;
    let mut stream = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    stream.backlog().await;
    let operator = server.operator();
    // More than the system keeps for a reader that does not read.
    for n in 0..300 {
        let mut long = task("Texi", &format!("no. {n}"));
        long["payload"]["body"] = json!("x".repeat(60_000));
        operator.call(PID, "signal", long).await.unwrap();
    }
    let keys = operator.call(PID, "key_list", json!({})).await.unwrap();
    let mine = |k: &&serde_json::Value| k["identity"] == "Texi";
    let key = keys["keys"].as_array().unwrap().iter().find(mine).unwrap();
    let revoke = json!({"key_id": key["key_id"]});
    operator.call(PID, "key_revoke", revoke).await.unwrap();
    let after = operator.call(PID, "signal", task("Texi", "after")).await;
    let after = after.unwrap();
    assert_ne!(after["publish_path"], "pushed_to_ws", "{after}");
    let left = wait_until("its socket is gone", async || {
        let ready = server.operator().ready().await.unwrap();
        (ready["sockets"] == 0).then_some(())
    });
    let soon = tokio::time::timeout(Duration::from_secs(10), left).await;
    soon.expect("a reader that does not read keeps it no longer than one that does");
}
