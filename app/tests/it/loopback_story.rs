//! The loopback probe bisects a miss to a layer, and says only what it knows.

use crate::harness::{Agent, PID, Server, ids, states, wait_for};
use prism_core::Code;
use serde_json::{Value, json};

/// Probes with patience, unless the story is about a miss.
fn probe(server: &Server, identity: &str, args: &[&str]) -> (i32, Value) {
    let patience: &[&str] = if args.iter().any(|a| a.starts_with("--timeout")) {
        &[]
    } else {
        &["--timeout=20000"]
    };
    let output = server.cli(
        Some(identity),
        &[&["loopback-test", "--json"], patience, args].concat(),
    );
    (
        output.status.code().unwrap(),
        serde_json::from_slice(&output.stdout).unwrap_or_default(),
    )
}

fn missing(probe: &Value) -> Vec<&str> {
    probe["missing_layers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| l.as_str().unwrap())
        .collect()
}

/// Every key of an envelope, with its path, but not what the numbers in lists are.
fn keys(value: &Value) -> Vec<String> {
    let Some(fields) = value.as_object() else {
        return Vec::new();
    };
    fields
        .iter()
        .flat_map(|(key, value)| {
            let inner = keys(value).into_iter().map(move |k| format!("{key}.{k}"));
            std::iter::once(key.clone()).chain(inner)
        })
        .collect()
}

/// What the command line prints of a probe.
fn printed(server: &Server, identity: &str, args: &[&str]) -> String {
    String::from_utf8(
        server
            .cli(Some(identity), &[&["loopback-test"], args].concat())
            .stdout,
    )
    .unwrap()
}

#[test]
fn a_healthy_session_is_complete_and_says_what_the_host_cannot_confirm() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &[]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)),
        (0, Some("complete"), vec!["model_ack"])
    );
    let carrier = match server.is_embedded() {
        true => "in_process",
        false => "pg_notify",
    };
    assert_eq!(
        (
            envelope["requested_by_session"].clone(),
            envelope["layers"]["redis_publish"]["transport"].as_str()
        ),
        (texi.started["session_id"].clone(), Some(carrier))
    );
    let drawn = printed(&server, "texi", &[]);
    assert!(
        drawn.contains("sent; this host cannot confirm it") && drawn.contains("complete"),
        "{drawn}"
    );
    let verb = texi.call("prism_loopback_test", json!({}));
    assert_eq!(keys(&envelope), keys(&verb), "both doors, one envelope");
    for key in [
        "echo.observed_at",
        "finished_at",
        "layers.redis_publish.transport",
        "layers.channel_notification.strategy",
        "layers.channel_notification.evidence",
        "layers.model_ack.elapsed_ms",
        "recipient_state",
    ] {
        assert!(keys(&envelope).contains(&key.to_owned()), "{key}");
    }
    assert_eq!(
        (
            verb["outcome"].as_str(),
            verb["echo"]["signal_id"].is_string()
        ),
        (Some("complete"), true)
    );
    assert!(
        ids(&texi.call("prism_status", json!({}))).is_empty(),
        "probe and echo never ride"
    );
    assert_eq!(
        texi.call("prism_signals", json!({"action": "count"}))["count"]["unread"],
        0
    );
    let trace = texi.call(
        "prism_signal_trace",
        json!({"signal_id": envelope["signal_id"]}),
    );
    assert_eq!(
        trace["receipt"]["state"], "recalled",
        "it left the queue when the probe ended"
    );
    assert!(
        !states(&trace).contains(&"acted".to_owned()),
        "an echo is not a model: {trace}"
    );
    assert!(
        trace["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .all(|e| e["loopback_id"] == envelope["loopback_id"]),
        "{trace}"
    );
    wait_for("the last proof", || {
        (texi.call("prism_whois", json!({"identity": "Texi"}))["reachable"]["layer"]
            == "channel_notification")
            .then_some(())
    });
}

#[test]
fn each_broken_layer_is_named_with_what_to_do() {
    let mut server = Server::start();
    // The bus stands still: stored, and pushed to nobody.
    server.kill();
    server.resume_with(&[("PRISM_FAILPOINTS", "hub.pause")]);
    let texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &["--timeout=300"]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)[0]),
        (1, Some("timeout"), "redis_publish")
    );
    assert!(printed(&server, "Texi", &["--timeout=300"]).contains("nothing was pushed"));
    drop(texi);
    // The socket swallows what is written to it.
    server.kill();
    server.resume_with(&[("PRISM_FAILPOINTS", "stream.swallow")]);
    let texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &["--timeout=300"]);
    assert_eq!((code, missing(&envelope)[0]), (1, "shim_tee_receipt"));
    drop(texi);
    server.kill();
    server.resume();
    // The shim hangs.
    let texi = server.agent("Texi");
    signal(texi.os_pid(), rustix::process::Signal::STOP);
    let (code, envelope) = probe(&server, "Texi", &["--timeout=600"]);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)[0]),
        (1, Some("timeout"), "shim_tee_receipt")
    );
    assert!(printed(&server, "Texi", &["--timeout=300"]).contains("restart the agent host"));
    signal(texi.os_pid(), rustix::process::Signal::CONT);
    drop(texi);
    // A host whose pipe is closed takes no bell; one that never drains is only named.
    let mut deaf = server.agent("Donna");
    deaf.close_stdout();
    let (code, envelope) = probe(&server, "Donna", &[]);
    assert_eq!(
        (code, envelope["outcome"].as_str()),
        (1, Some("partial")),
        "{envelope}"
    );
    assert_eq!(missing(&envelope)[0], "channel_notification");
    let lola = server.agent("Lola");
    let (code, envelope) = probe(&server, "Lola", &["--wait-model=200"]);
    assert_eq!((code, missing(&envelope)), (0, vec!["model_ack"]));
    drop(lola);
    // A probe that found nobody has the same keys, and null where nothing was seen.
    server.ok(None, &["key", "mint", "Nemo"]);
    let (_, nobody) = probe(&server, "Nemo", &["--timeout=100"]);
    assert_eq!(keys(&nobody), keys(&envelope));
    assert!(nobody["layers"]["channel_notification"]["strategy"].is_null());
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), signal)
        .unwrap();
}

/// Starts a probe that waits for the model.
fn waiting(server: &Server) -> std::process::Child {
    server
        .command(Some("Texi"))
        .args(["loopback-test", "--json", "--wait-model=20000"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap()
}

fn ended(command: std::process::Child) -> (Option<i32>, Value) {
    let output = command.wait_with_output().unwrap();
    let envelope = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), envelope)
}

#[test]
fn a_model_that_reads_its_inbox_or_acknowledges_the_probe_is_the_fifth_layer() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let newest = |texi: &mut Agent| {
        let tail = texi.call("prism_signals", json!({"action": "tail", "n": 20}));
        let entries = tail["tail"].as_array().unwrap().clone();
        let probe = entries
            .iter()
            .rev()
            .find(|e| e["summary"] == "loopback probe");
        probe.map(|e| e["sid"].clone())
    };
    for evidence in ["read its inbox", "seen"] {
        let command = waiting(&server);
        texi.bell();
        match evidence {
            "seen" => {
                let id = wait_for("the probe in the ring", || newest(&mut texi));
                texi.call(
                    "prism_signal_ack",
                    json!({"signal_id": id, "note": evidence}),
                );
            }
            _ => drop(texi.call("prism_signals_pending", json!({}))),
        }
        let (code, envelope) = ended(command);
        assert_eq!(code, Some(0));
        assert!(
            envelope["layers"]["model_ack"]["observed"] == true && missing(&envelope).is_empty(),
            "{evidence}: {envelope}"
        );
        let request = json!({"signal_id": envelope["signal_id"]});
        let trace = texi.call("prism_signal_trace", request);
        let row = trace["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["layer"] == "model_ack" && e["loopback_id"] == envelope["loopback_id"]);
        let row = row.unwrap_or_else(|| panic!("{evidence}: {trace}"));
        assert_eq!(
            (row["detail"].as_str(), row["observed_at"].as_str()),
            (
                Some(evidence),
                envelope["layers"]["model_ack"]["observed_at"].as_str()
            )
        );
    }
}

#[test]
fn a_session_that_ends_while_its_model_is_waited_for_costs_no_evidence() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let command = waiting(&server);
    texi.bell();
    let session = texi.started["session_id"].as_str().unwrap();
    // Whoever asks for the model has heard what the shim saw.
    wait_for("the wait for the model", || {
        let url = format!("{}/metrics", server.url());
        let (_, metrics) = get(&url, "");
        metrics.contains("loopback-model").then_some(())
    });
    server.ok(None, &["session", "release", &session[..8]]);
    let (code, envelope) = ended(command);
    assert_eq!(
        (code, envelope["outcome"].as_str(), missing(&envelope)),
        (Some(0), Some("complete"), vec!["model_ack"]),
        "{envelope}"
    );
}

#[test]
fn both_doors_agree_when_the_tee_log_cannot_be_written() {
    let server = Server::start();
    std::fs::create_dir(server.home().path("tee-frames-Texi.jsonl")).unwrap();
    let mut texi = server.agent("Texi");
    let (code, envelope) = probe(&server, "Texi", &[]);
    let verb = texi.call("prism_loopback_test", json!({"timeout_ms": 20_000}));
    assert_eq!(
        (code, &envelope["outcome"], &verb["outcome"]),
        (0, &json!("complete"), &json!("complete"))
    );
    assert_eq!(missing(&envelope), missing(&verb));
}

#[test]
fn the_tee_log_forgets_after_ten_minutes_also_while_nothing_arrives() {
    let server = Server::start();
    let _texi = server.agent("Texi");
    let (_, envelope) = probe(&server, "Texi", &[]);
    let id = envelope["loopback_id"].as_str().unwrap().to_owned();
    let log = || {
        let log = server.home().read("tee-frames-Texi.jsonl");
        log.unwrap_or_default()
    };
    assert!(log().contains(&id));
    server.advance(std::time::Duration::from_secs(601));
    wait_for("an empty log", || log().is_empty().then_some(()));
}

#[test]
fn an_agent_without_a_name_is_told_why_it_cannot_be_probed() {
    let server = Server::start();
    let mut nameless = Agent::launch(&server, None, &[]);
    let refused = nameless.refused("prism_loopback_test", json!({}));
    assert_eq!(refused["code"], "no_inbox");
    assert!(
        refused["hint"]
            .as_str()
            .unwrap()
            .contains("PRISM_AGENT_IDENTITY")
    );
    let status: Value = serde_json::from_str(&server.ok(None, &["status", "--json"])).unwrap();
    let session = status["sessions"][0]["session_id"].as_str().unwrap();
    let output = server.cli(None, &["loopback-test", "--session", session]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no inbox"));
}

#[test]
fn a_probe_that_its_socket_will_come_to_was_published() {
    let server = Server::start();
    let (mut lola, texi) = (server.agent("Lola"), server.agent("Texi"));
    signal(texi.os_pid(), rustix::process::Signal::STOP);
    // More than pipes and queues hold: the socket falls behind, and reads the store for the rest.
    for _ in 0..250 {
        let payload = json!({"summary": "x", "body": "y".repeat(50_000)});
        lola.call(
            "prism_signal",
            json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": payload}),
        );
    }
    let (_, envelope) = probe(&server, "Texi", &["--timeout=300"]);
    signal(texi.os_pid(), rustix::process::Signal::CONT);
    assert_eq!(missing(&envelope)[0], "shim_tee_receipt", "{envelope}");
}

#[tokio::test]
async fn a_probe_for_nobody_is_queued_offline_and_in_no_sockets_way() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let (lola, _) = server.session("Lola").await;
    // Texi's key without a session: there is none to probe, though Texi has a socket.
    let key = server.home().read("keys/Texi.key").unwrap();
    let locator = prism::client::Locator::Home(server.home());
    let nobody = prism::client::Client::new(locator, key.trim().to_owned()).unwrap();
    let issued = nobody
        .call(PID, "signal/loopback-issue", json!({}))
        .await
        .unwrap();
    assert!(issued["requested_by_session"].is_null());
    let db = server.rows();
    let path = wait_for("what became of the push", || {
        let sql = "select publish_path from signal_queue where id = ?";
        let id = issued["signal_id"].as_str().unwrap();
        db.query_row(sql, [id], |r| r.get::<_, String>(0)).ok()
    });
    assert_eq!(path, "queued_offline");
    let placed = "select count(*) from signal_queue where signal_type = 'Loopback' and seq > 0";
    let placed = db.query_row(placed, [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!(placed, 0, "it has no place that every socket would miss");
    let sent = lola
        .call(PID, "signal", crate::harness::task("Texi", "after it"))
        .await
        .unwrap();
    assert_eq!(sent["publish_path"], "pushed_to_ws");
    assert_eq!(sent["receipt"]["sessions"].as_array().unwrap().len(), 1);
    assert_eq!(ids(&texi.call("prism_signals_pending", json!({}))).len(), 1);
}

#[test]
fn what_probes_found_can_be_listed() {
    let server = Server::start();
    let _texi = server.agent("Texi");
    server.ok(None, &["key", "mint", "Nemo"]);
    let (_, found) = probe(&server, "Texi", &[]);
    probe(&server, "Nemo", &["--timeout=100"]);
    let listed = server.ok(None, &["loopback-test", "--history", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(
        (runs.len(), &runs[1]["loopback_id"], &runs[1]["outcome"]),
        (2, &found["loopback_id"], &json!("complete"))
    );
    assert_eq!(
        (&runs[0]["identity"], &runs[0]["missing_layers"][0]),
        (&json!("Nemo"), &json!("redis_publish"))
    );
    let mine = server.ok(Some("Texi"), &["loopback-test", "--history"]);
    assert!(
        mine.contains("complete") && !mine.contains("Nemo"),
        "{mine}"
    );
}

#[test]
fn exit_codes_tell_no_from_could_not() {
    let mut server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    let (code, envelope) = probe(&server, "Texi", &["--timeout=100"]);
    assert_eq!(
        (
            code,
            envelope["recipient_state"].as_str(),
            envelope["requested_by_session"].is_null()
        ),
        (1, Some("never_started"), true),
        "no session: it ran, and the answer is no"
    );
    assert_eq!(
        server.cli(None, &["loopback-test"]).status.code(),
        Some(2),
        "whose?"
    );
    assert_eq!(
        server
            .cli(Some("Texi"), &["loopback-test", "--timeout=999999999"])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        server
            .cli(
                None,
                &[
                    "loopback-test",
                    "--session",
                    "00000000-0000-0000-0000-000000000000"
                ]
            )
            .status
            .code(),
        Some(2)
    );
    server.kill();
    assert_eq!(probe(&server, "Texi", &[]).0, 2);
}

#[test]
fn a_series_rings_once_and_two_probes_at_once_do_not_mix() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let series = server.ok(
        Some("Texi"),
        &["loopback-test", "--repeat", "4", "--every", "1"],
    );
    assert!(
        series.contains("4 of 4 complete") && series.contains("█"),
        "{series}"
    );
    assert_eq!((texi.bell(), texi.bells_so_far()), ("Signal from Texi: Loopback. Use prism_signals_pending to read; prism_signal to reply if needed.".into(), 0));
    let both: Vec<_> = (0..2)
        .map(|_| {
            server
                .command(Some("Texi"))
                .args(["loopback-test", "--json"])
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let envelopes: Vec<Value> = both
        .into_iter()
        .map(|c| serde_json::from_slice(&c.wait_with_output().unwrap().stdout).unwrap())
        .collect();
    assert!(
        envelopes.iter().all(|e| e["outcome"] == "complete")
            && envelopes[0]["loopback_id"] != envelopes[1]["loopback_id"]
    );
}

#[test]
fn only_the_probed_session_answers_and_its_door_needs_the_token() {
    let server = Server::start();
    let (one, two) = (server.agent("Texi"), server.agent("Texi"));
    let session = one.started["session_id"].as_str().unwrap();
    let envelope: Value = serde_json::from_str(&server.ok(
        None,
        &["loopback-test", "--json", "--session", &session[..8]],
    ))
    .unwrap();
    assert_eq!(
        (
            envelope["outcome"].as_str(),
            envelope["requested_by_identity"].as_str()
        ),
        (Some("complete"), Some("Texi"))
    );
    one.bell();
    assert_eq!(two.bells_so_far(), 0);
    let (mine, sibling) = (shim_file(&server, &one), shim_file(&server, &two));
    let ask = |token: &str, id: &str| ask_door(&mine["port"], token, id);
    let (token, id) = (
        mine["token"].as_str().unwrap(),
        envelope["loopback_id"].as_str().unwrap(),
    );
    assert_eq!(
        [
            ask(token, id),
            ask("wrong", id),
            ask(token, "00000000-0000-0000-0000-000000000000")
        ],
        [200, 401, 404]
    );
    // Both write one tee file; the sibling never had this frame and does not vouch for it.
    let theirs = sibling["token"].as_str().unwrap();
    assert_eq!(ask_door(&sibling["port"], theirs, id), 404);
}

fn shim_file(server: &Server, agent: &Agent) -> Value {
    let session = agent.started["session_id"].as_str().unwrap();
    let file = server.home().read(&format!("shims/{session}.json"));
    serde_json::from_str(&file.unwrap()).unwrap()
}

/// The status with which a shim's door answers.
fn ask_door(port: &Value, token: &str, loopback_id: &str) -> u16 {
    let url = format!("http://127.0.0.1:{port}/tee-frames?loopback_id={loopback_id}");
    get(&url, token).0
}

/// Status and body of a page.
pub fn get(url: &str, token: &str) -> (u16, String) {
    drop(rustls::crypto::ring::default_provider().install_default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = http.get(url).bearer_auth(token).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    })
}

/// A listener that claims to have received whatever it is asked for.
fn liar() -> u16 {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut asked = [0; 4096];
            let n = stream.read(&mut asked).unwrap_or(0);
            let asked = String::from_utf8_lossy(&asked[..n]).into_owned();
            let id = asked.split("loopback_id=").nth(1).unwrap_or_default();
            let id = id.split(' ').next().unwrap_or_default();
            let at = "2026-11-16T00:00:00.000000Z";
            let body = json!({
                "frame": {"loopback_id": id, "received_at": at},
                "notification": {"observed_at": at, "strategy": "claude_channel", "evidence": "sent", "handed": true},
                "echo": {"signal_id": id, "observed_at": at},
            })
            .to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    port
}

#[test]
fn a_file_that_names_the_session_of_another_is_not_asked() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let mut forged = shim_file(&server, &texi);
    // Alive, of the same identity and session, newer, and before or after the real one by name.
    forged["pid"] = std::process::id().into();
    forged["port"] = liar().into();
    for name in [
        "00000000-0000-4000-8000-000000000000",
        "ffffffff-ffff-4fff-bfff-ffffffffffff",
    ] {
        let path = format!("shims/{name}.json");
        server
            .home()
            .write(&path, forged.to_string().as_bytes())
            .unwrap();
    }
    signal(texi.os_pid(), rustix::process::Signal::STOP);
    let (code, envelope) = probe(&server, "Texi", &["--timeout=500"]);
    signal(texi.os_pid(), rustix::process::Signal::CONT);
    assert_eq!(
        (code, missing(&envelope)[0]),
        (1, "shim_tee_receipt"),
        "the shim hangs, and nobody answers for it: {envelope}"
    );
    // The lie itself would have been believed: under the session's own name it is.
    let session = texi.started["session_id"].as_str().unwrap();
    let own = format!("shims/{session}.json");
    server
        .home()
        .write(&own, forged.to_string().as_bytes())
        .unwrap();
    assert_eq!(probe(&server, "Texi", &["--timeout=5000"]).0, 0);
}

#[tokio::test]
async fn a_foreign_probe_is_refused_and_an_echo_is_never_echoed() {
    let server = Server::start();
    let ((texi, _), (donna, other)) = (server.session("Texi").await, server.session("Donna").await);
    assert!(
        texi.call(PID, "signal/loopback-issue", json!({"session_id": other}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    let issued = donna
        .call(PID, "signal/loopback-issue", json!({}))
        .await
        .unwrap();
    assert!(
        issued["layers"]["backend_write"]["observed"]
            .as_bool()
            .unwrap()
            && !issued["layers"]["redis_publish"]["observed"]
                .as_bool()
                .unwrap(),
        "live, but without a socket"
    );
    assert!(
        texi.call(
            PID,
            "signal/loopback-echo",
            json!({"signal_id": issued["signal_id"]})
        )
        .await
        .is_err()
    );
    let echo = donna
        .call(
            PID,
            "signal/loopback-echo",
            json!({"signal_id": issued["signal_id"]}),
        )
        .await
        .unwrap();
    assert!(
        donna
            .call(
                PID,
                "signal/loopback-echo",
                json!({"signal_id": echo["signal_id"]})
            )
            .await
            .is_err()
    );
    assert!(
        texi.call(PID, "signal/loopback-finish", json!({"probe": issued}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    assert!(ids(&donna.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
}

#[tokio::test]
async fn a_result_is_what_the_server_knows_and_only_then_what_it_is_told() {
    let server = Server::start();
    // No socket: nothing was pushed, so no shim can have seen it.
    let (eve, _) = server.session("Eve").await;
    let mut probe = eve
        .call(PID, "signal/loopback-issue", json!({}))
        .await
        .unwrap();
    let long = format!("\u{1b}[31m{}", "A".repeat(20_000));
    for layer in probe["layers"].as_object_mut().unwrap().values_mut() {
        layer["observed"] = json!(true);
        layer["observed_at"] = json!("2031-01-01T00:00:00Z");
        layer["elapsed_ms"] = json!(1e300);
    }
    for field in ["surface", "machine_id", "spec", "version"] {
        probe[field] = json!(long);
    }
    probe["layers"]["channel_notification"]["strategy"] = json!(long);
    probe["layers"]["redis_publish"]["transport"] = json!(long);
    (probe["outcome"], probe["missing_layers"]) = (json!("complete"), json!([]));
    eve.call(PID, "signal/loopback-finish", json!({ "probe": probe }))
        .await
        .unwrap();
    let runs = eve
        .call(PID, "signal/loopback-runs", json!({}))
        .await
        .unwrap();
    let run = &runs["runs"][0];
    assert_eq!(run["outcome"], "timeout", "{run}");
    assert_eq!(
        run["missing_layers"],
        json!([
            "redis_publish",
            "shim_tee_receipt",
            "channel_notification",
            "model_ack"
        ])
    );
    let db = server.rows();
    let kept: String = db
        .query_row("select envelope from loopback_runs", [], |r| r.get(0))
        .unwrap();
    assert!(kept.len() < 2_000 && !kept.contains("AAAA"), "{kept}");
}
