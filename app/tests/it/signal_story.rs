//! A signal's way, told through the real server and real shims.

use crate::harness::{PID, Server, ids, states, task, wait_for, wait_until};
use prism_core::Code;
use serde_json::json;

#[test]
fn one_agent_asks_and_the_other_answers_and_the_receipt_says_what_happened() {
    // A slow machine asks for the trace more often than one key may.
    let server =
        Server::start_with("[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n");
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", json!({"to": "texi", "signal_type": "ReviewRequested", "payload": {"summary": "review the ring"}}));
    assert_eq!(
        (
            sent["publish_path"].as_str(),
            sent["recipient_state"].as_str()
        ),
        (Some("pushed_to_ws"), Some("live"))
    );
    assert_eq!(
        texi.bell(),
        "Signal from Donna: ReviewRequested. Use prism_signals_pending to read; prism_signal to reply if needed."
    );

    let read = texi.call("prism_signals_pending", json!({}));
    assert_eq!(ids(&read), [sent["signal_id"].as_str().unwrap()]);
    assert_eq!(
        (
            read["signals"][0]["payload"]["shape"].as_str(),
            read["signals"][0]["to_identity"].as_str()
        ),
        (Some("review"), Some("Texi"))
    );
    assert!(
        read["lease_id"].is_null(),
        "leases are between shim and server"
    );

    let reply = texi.call("prism_signal", json!({"to": "Donna", "signal_type": "ReviewCompleted", "payload": {"summary": "ok"}, "in_reply_to": sent["signal_id"]}));
    assert_eq!(
        donna.bell(),
        "Signal from Texi: ReviewCompleted. Use prism_signals_pending to read; prism_signal to reply if needed."
    );
    let mut rode = Vec::new();
    let seen = wait_for("a full trace", || {
        let trace = donna.call(
            "prism_signal_trace",
            json!({"signal_id": sent["signal_id"]}),
        );
        rode.extend(ids(&trace));
        let seen = states(&trace);
        // The reply may be stored before its agent's drain is confirmed.
        let is_full = ["drained", "acted"]
            .iter()
            .all(|s| seen.iter().any(|state| state == s));
        is_full.then_some(seen)
    });
    assert_eq!(
        seen,
        ["queued", "pushed", "received", "rung", "drained", "acted"]
    );
    assert_eq!(
        rode,
        [reply["signal_id"].as_str().unwrap()],
        "the reply rides on one answer, once"
    );
}

#[test]
fn two_sessions_of_one_identity_never_work_one_task_twice() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let (mut one, mut two) = (server.agent("Texi"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "build it"));
    one.bell();
    two.bell();
    assert_eq!(
        ids(&one.call("prism_signals_pending", json!({}))),
        [sent["signal_id"].as_str().unwrap()]
    );
    assert!(
        ids(&two.call("prism_status", json!({}))).is_empty(),
        "the other session is given nothing"
    );
    // The other session heard of the drain, so its bell is free for the next task.
    wait_for("the drain to be confirmed", || {
        states(&donna.call(
            "prism_signal_trace",
            json!({"signal_id": sent["signal_id"]}),
        ))
        .contains(&"drained".into())
        .then_some(())
    });
    donna.call("prism_signal", task("Texi", "and this"));
    one.bell();
    two.bell();
    assert_eq!(
        ids(&two.call("prism_status", json!({}))).len(),
        1,
        "a task rides on any draining verb"
    );
    assert!(ids(&one.call("prism_signals_pending", json!({}))).is_empty());
}

#[test]
fn lifecycle_verbs_do_not_drain_and_a_second_start_is_the_same() {
    let server = Server::start();
    let (mut donna, mut texi) = (server.agent("Donna"), server.agent("Texi"));
    donna.call("prism_signal", task("Texi", "x"));
    texi.bell();
    let again = texi.call("prism_start", json!({}));
    assert!(ids(&again).is_empty());
    assert_eq!(
        (&again["session_id"], &again["unread"]["TASK"]),
        (&texi.started["session_id"], &json!(1))
    );
    assert!(ids(&texi.call("prism_signals", json!({"action": "count"}))).is_empty());
    assert_eq!(
        ids(&texi.call("prism_whois", json!({"identity": "donna"}))).len(),
        1
    );
}

#[test]
fn a_backlog_rings_one_bell_and_a_burst_is_coalesced_until_the_drain() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    let texi = server.agent("Texi");
    assert_eq!(texi.close(), Some(0));
    for n in 0..5 {
        let sent = donna.call("prism_signal", task("Texi", &format!("task {n}")));
        assert_eq!(sent["publish_path"], "queued_offline");
    }
    let mut texi = server.agent("Texi");
    texi.bell();
    for n in 0..5 {
        donna.call("prism_signal", task("Texi", &format!("more {n}")));
    }
    assert_eq!(
        ids(&texi.call("prism_signals_pending", json!({}))).len(),
        10
    );
    assert_eq!(texi.bells_so_far(), 0, "one bell stood for all of them");
    wait_for("the ring to be read", || {
        server
            .ok(Some("Texi"), &["signals", "count"])
            .starts_with("0 unread")
            .then_some(())
    });
    donna.call("prism_signal", task("Texi", "after the drain"));
    texi.bell();
}

#[test]
fn what_an_earlier_session_left_unread_rings_for_the_next_one() {
    let server = Server::start();
    let (mut donna, texi) = (server.agent("Donna"), server.agent("Texi"));
    let sent = donna.call("prism_signal", task("Texi", "seen and never read"));
    texi.bell();
    assert_eq!(texi.close(), Some(0));
    let mut texi = server.agent("Texi");
    texi.bell();
    assert_eq!(
        ids(&texi.call("prism_signals_pending", json!({}))),
        [sent["signal_id"].as_str().unwrap()]
    );
    assert_eq!(texi.bells_so_far(), 0);
}

#[tokio::test]
async fn a_retry_with_the_same_key_is_the_same_signal() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let mut request = task("Texi", "once");
    request["idempotency_key"] = json!("k1");
    let first = donna.call(PID, "signal", request.clone()).await.unwrap();
    let again = donna.call(PID, "signal", request.clone()).await.unwrap();
    assert_eq!(first["signal_id"], again["signal_id"]);
    request["payload"]["summary"] = json!("something else");
    let conflict = donna
        .call(PID, "signal", request.clone())
        .await
        .unwrap_err();
    assert!(conflict.is(Code::IdempotencyConflict) && conflict.status == 409);
    // The key is the sender's own: another sender may use the same word.
    let other = server
        .identity("Lola")
        .await
        .call(PID, "signal", request)
        .await
        .unwrap();
    assert_ne!(other["signal_id"], first["signal_id"]);
    let pending = server
        .identity("Texi")
        .await
        .call(PID, "signals_pending", json!({}))
        .await
        .unwrap();
    assert_eq!(ids(&pending).len(), 2);
}

#[tokio::test]
async fn what_nobody_has_read_can_be_taken_back_and_only_by_its_sender() {
    let server = Server::start();
    let (donna, texi) = (
        server.identity("Donna").await,
        server.identity("Texi").await,
    );
    let sent = donna
        .call(PID, "signal", task("Texi", "never mind"))
        .await
        .unwrap();
    let id = &sent["signal_id"].as_str().unwrap()[..8];
    assert!(
        texi.call(PID, "signal_recall", json!({"signal_id": id}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    assert_eq!(
        donna
            .call(PID, "signal_recall", json!({"signal_id": id}))
            .await
            .unwrap()["recalled"],
        true
    );
    assert_eq!(
        donna
            .call(PID, "signal_recall", json!({"signal_id": id}))
            .await
            .unwrap()["recalled"],
        false
    );
    assert!(ids(&texi.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
    let read = donna
        .call(PID, "signal", task("Texi", "read me"))
        .await
        .unwrap();
    let lease = texi.call(PID, "signals_pending", json!({})).await.unwrap()["lease_id"].clone();
    let during = donna
        .call(
            PID,
            "signal_recall",
            json!({"signal_id": read["signal_id"]}),
        )
        .await
        .unwrap();
    assert_eq!(during["recalled"], false, "{during}");
    assert_eq!(
        texi.call(PID, "signals_confirm", json!({"lease_id": lease}))
            .await
            .unwrap()["confirmed"],
        1
    );
    let after = donna
        .call(
            PID,
            "signal_recall",
            json!({"signal_id": read["signal_id"]}),
        )
        .await
        .unwrap();
    assert_eq!(after["reason"], "it was drained already");
    let acted = donna
        .call(PID, "signal", task("Texi", "acted on unread"))
        .await
        .unwrap();
    texi.call(
        PID,
        "signal_ack",
        json!({"signal_id": acted["signal_id"], "state": "model_acted"}),
    )
    .await
    .unwrap();
    assert_eq!(
        donna
            .call(
                PID,
                "signal_recall",
                json!({"signal_id": acted["signal_id"]})
            )
            .await
            .unwrap()["recalled"],
        false
    );
}

#[tokio::test]
async fn a_sync_send_to_nobody_fails_and_its_row_is_kept() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let mut request = task("Texi", "now or never");
    request["delivery_class"] = json!("sync");
    let refused = donna
        .call(PID, "signal", request.clone())
        .await
        .unwrap_err();
    assert!(refused.is(Code::RecipientUnavailable) && refused.status == 409);
    let trace = donna
        .call(
            PID,
            "signal_trace",
            json!({"signal_id": refused.facts["signal_id"]}),
        )
        .await
        .unwrap();
    assert_eq!(
        (states(&trace), trace["receipt"]["state"].as_str()),
        (vec!["failed".to_owned()], Some("failed"))
    );
    let (_live, _) = server.session("Texi").await;
    let sent = donna.call(PID, "signal", request).await.unwrap();
    assert_eq!(sent["publish_path"], "no_subscriber");
}

#[tokio::test]
async fn a_signal_expires_unread_and_says_so() {
    let server = Server::start();
    let (donna, texi) = (
        server.identity("Donna").await,
        server.identity("Texi").await,
    );
    let mut request = task("Texi", "short-lived");
    request["ttl_s"] = json!(1);
    let sent = donna.call(PID, "signal", request).await.unwrap();
    wait_until("the expiry", || async {
        let trace = donna
            .call(PID, "signal_trace", json!({"signal_id": sent["signal_id"]}))
            .await
            .unwrap();
        (trace["receipt"]["state"] == "expired").then_some(())
    })
    .await;
    assert!(ids(&texi.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
}

#[tokio::test]
async fn acknowledging_and_dismissing_are_for_the_recipient() {
    let server = Server::start();
    let (donna, (texi, _)) = (server.identity("Donna").await, server.session("Texi").await);
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let id = sent["signal_id"].clone();
    assert!(
        donna
            .call(PID, "signal_ack", json!({"signal_id": id}))
            .await
            .unwrap_err()
            .is(Code::NotYours)
    );
    assert!(
        texi.call(PID, "signal_ack", json!({"signal_id": "00000000"}))
            .await
            .unwrap_err()
            .is(Code::UnknownSignal)
    );
    assert!(
        texi.call(PID, "signal_ack", json!({"signal_id": id, "state": "done"}))
            .await
            .is_err()
    );
    let read = texi.call(PID, "signals_ack", json!({})).await.unwrap();
    assert_eq!(
        (&read["dismissed"], ids(&read).len()),
        (&json!(0), 1),
        "it rides on this very answer, and was not given before"
    );
    texi.call(
        PID,
        "signals_confirm",
        json!({"lease_id": read["lease_id"]}),
    )
    .await
    .unwrap();
    texi.call(PID, "signal_ack", json!({"signal_id": id, "note": "on it"}))
        .await
        .unwrap();
    texi.call(
        PID,
        "signal_ack",
        json!({"signal_id": id, "state": "model_acted"}),
    )
    .await
    .unwrap();
    assert_eq!(
        texi.call(PID, "signals_ack", json!({"signal_ids": [id]}))
            .await
            .unwrap()["dismissed"],
        1
    );
    let trace = donna
        .call(PID, "signal_trace", json!({"trace_id": sent["trace_id"]}))
        .await
        .unwrap();
    let mut seen = states(&trace);
    seen.sort();
    assert_eq!(
        seen,
        [
            "acted",
            "dismissed",
            "drained",
            "model_acted",
            "observed",
            "queued"
        ]
    );
    assert_eq!(
        trace["timeline"]
            .as_array()
            .unwrap()
            .iter()
            .find(|e| e["state"] == "observed")
            .unwrap()["detail"],
        "on it"
    );
}

#[tokio::test]
async fn bad_sends_are_refused_with_what_to_do_and_nothing_is_stored() {
    let server = Server::start();
    let (donna, texi) = (
        server.identity("Donna").await,
        server.identity("Texi").await,
    );
    let sent = donna
        .call(PID, "signal", task("Texi", "the one"))
        .await
        .unwrap();
    for (change, code, says) in [
        (json!({"to": "Texxi"}), Code::UnknownRecipient, "Texi"),
        (json!({"to": "*"}), Code::Broadcast, "each recipient"),
        (json!({"to": "Bot"}), Code::NoInbox, "PRISM_AGENT_IDENTITY"),
        (
            json!({"signal_type": "Nope"}),
            Code::UnknownType,
            "TaskAssigned",
        ),
        (
            json!({"category": "URGENT"}),
            Code::UnknownCategory,
            "BLOCKER",
        ),
        (
            json!({"in_reply_to": sent["trace_id"]}),
            Code::TraceIdAsReply,
            "signal_id",
        ),
        (
            json!({"in_reply_to": "deadbeef"}),
            Code::UnknownSignal,
            "id",
        ),
        (
            json!({"in_reply_to": "no id"}),
            Code::InvalidRequest,
            "in_reply_to",
        ),
        (
            json!({"payload": {"body": "x".repeat(70_000)}}),
            Code::TooLarge,
            "summary",
        ),
        (json!({"payload": "text"}), Code::InvalidRequest, "fields"),
        (json!({"prioritty": 1}), Code::InvalidRequest, "fields"),
    ] {
        let mut request = task("Texi", "bad");
        request
            .as_object_mut()
            .unwrap()
            .extend(change.as_object().unwrap().clone());
        let problem = donna.call(PID, "signal", request).await.unwrap_err();
        assert!(problem.is(code), "{change}: {problem:?}");
        assert!(problem.hint.contains(says), "{change}: {}", problem.hint);
    }
    assert_eq!(
        ids(&texi.call(PID, "signals_pending", json!({})).await.unwrap()).len(),
        1
    );
}

#[tokio::test]
async fn an_unconfirmed_drain_comes_back_when_its_session_ends() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (one, _) = server.session("Texi").await;
    donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let leased = one.call(PID, "signals_pending", json!({})).await.unwrap();
    let (two, _) = server.session("Texi").await;
    assert!(ids(&two.call(PID, "signals_pending", json!({})).await.unwrap()).is_empty());
    one.call(PID, "session_release", json!({})).await.unwrap();
    assert!(
        one.call(PID, "status", json!({}))
            .await
            .unwrap_err()
            .is(Code::SessionReleased)
    );
    // It knew its inbox to be empty; any verb brings what has come back.
    assert_eq!(
        ids(&two.call(PID, "status", json!({})).await.unwrap()),
        ids(&leased)
    );
}

#[tokio::test]
async fn another_projects_signals_are_out_of_reach() {
    let server = Server::start();
    let (donna, _texi) = (
        server.identity("Donna").await,
        server.identity("Texi").await,
    );
    let sent = donna
        .call(PID, "signal", task("Texi", "secret"))
        .await
        .unwrap();
    let other = server.operator();
    other
        .call("PID-OTHER", "persona_add", json!({"identity": "Eve"}))
        .await
        .unwrap();
    let eve = other
        .call("PID-OTHER", "key_mint", json!({"identity": "Eve"}))
        .await
        .unwrap();
    let eve = prism::client::Client::new(
        prism::client::Locator::Home(server.home()),
        eve["key"].as_str().unwrap().into(),
    )
    .unwrap();
    assert!(
        eve.call(PID, "status", json!({}))
            .await
            .unwrap_err()
            .is(Code::NoPersona)
    );
    assert!(
        eve.call(
            "PID-OTHER",
            "signal_trace",
            json!({"signal_id": sent["signal_id"]})
        )
        .await
        .unwrap_err()
        .is(Code::UnknownSignal)
    );
    let unknown = eve.call("PID-NONE", "status", json!({})).await.unwrap_err();
    assert!(
        unknown.is(Code::UnknownProject) && unknown.facts["projects"] == json!(["PID-OTHER"]),
        "{unknown:?}"
    );
}

#[tokio::test]
async fn signals_to_the_operator_wait_without_a_session() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let sent = donna
        .call(
            PID,
            "signal",
            json!({"to": "frank", "signal_type": "Question", "payload": {"summary": "ship it?"}}),
        )
        .await
        .unwrap();
    assert_eq!(
        (
            sent["recipient_state"].as_str(),
            sent["publish_path"].as_str()
        ),
        (Some("operator"), Some("queued_offline"))
    );
    let printed = server.ok(None, &["pending"]);
    assert!(
        printed.contains("ASK") && printed.contains("Donna") && printed.contains("ship it?"),
        "{printed}"
    );
    assert_eq!(server.ok(None, &["pending"]).trim(), "nothing waits");
    let ask = json!({"signal_id": sent["signal_id"]});
    let trace = donna.call(PID, "signal_trace", ask).await.unwrap();
    assert_eq!(states(&trace), ["queued", "drained"]);
    assert_eq!(
        trace["receipt"]["sessions"],
        json!([]),
        "the operator has no session"
    );
}

#[tokio::test]
async fn a_drain_that_is_confirmed_after_the_answer_was_over_by_then() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
    let acted = json!({"signal_id": sent["signal_id"], "state": "model_acted"});
    texi.call(PID, "signal_ack", acted).await.unwrap();
    let lease = json!({"lease_id": read["lease_id"]});
    texi.call(PID, "signals_confirm", lease).await.unwrap();
    let ask = json!({"signal_id": sent["signal_id"]});
    let trace = donna.call(PID, "signal_trace", ask).await.unwrap();
    let times = &trace["receipt"]["states"];
    assert!(
        times["drained"].is_string() && times["drained"] == times["acted"],
        "{times}"
    );
}

#[tokio::test]
async fn a_key_used_in_one_project_is_refused_in_another_and_stands_where_it_was_used() {
    let server = Server::start();
    let (donna, operator) = (server.identity("Donna").await, server.operator());
    server.identity("Texi").await;
    for identity in ["Texi", "Donna"] {
        let add = json!({"identity": identity});
        operator
            .call("PID-OTHER", "persona_add", add)
            .await
            .unwrap();
    }
    let mut request = task("Texi", "x");
    request["idempotency_key"] = json!("k");
    let first = donna.call(PID, "signal", request.clone()).await.unwrap();
    let other = donna.call("PID-OTHER", "signal", request.clone()).await;
    let other = other.unwrap_err();
    assert!(other.is(Code::IdempotencyConflict), "{other:?}");
    assert_eq!(other.status, 409);
    let again = donna.call(PID, "signal", request.clone()).await.unwrap();
    assert_eq!(again["signal_id"], first["signal_id"]);
    request["idempotency_key"] = json!("k2");
    donna.call("PID-OTHER", "signal", request).await.unwrap();
}

#[tokio::test]
async fn a_session_acknowledges_once_and_its_newest_note_counts() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let ack = |client: &prism::client::Client, state: &str, note: Option<String>| {
        let client = client.clone();
        let ack = json!({"signal_id": sent["signal_id"], "state": state, "note": note});
        async move { client.call(PID, "signal_ack", ack).await.unwrap() }
    };
    for i in 0..30 {
        ack(&texi, "observed", Some(format!("note {i}"))).await;
    }
    ack(&texi, "observed", None).await;
    ack(&texi, "model_acted", Some("done".into())).await;
    let trace = json!({"signal_id": sent["signal_id"]});
    let notes = |trace: &serde_json::Value| -> Vec<String> {
        let events = trace["timeline"].as_array().unwrap().clone();
        let details = events.iter().filter_map(|e| e["detail"].as_str());
        details.map(str::to_owned).collect()
    };
    let told = donna
        .call(PID, "signal_trace", trace.clone())
        .await
        .unwrap();
    assert_eq!(notes(&told), ["note 29", "done"], "{told}");
    // However many sessions say it, the trace has an end.
    for i in 0..30 {
        let (texi, _) = server.session("Texi").await;
        ack(&texi, "observed", Some(format!("session {i}"))).await;
    }
    let told = donna.call(PID, "signal_trace", trace).await.unwrap();
    let notes = notes(&told);
    assert_eq!(notes.len(), 20, "{told}");
    assert_eq!(notes.last().unwrap(), "session 29");
}

#[tokio::test]
async fn whoever_has_no_session_dismisses_what_it_was_given_lately_and_is_told_how_far_back() {
    let mut server = Server::start();
    let donna = server.identity("Donna").await;
    let texi = server.identity("Texi").await;
    for n in 0..3 {
        let sent = donna
            .call(PID, "signal", task("Texi", &n.to_string()))
            .await;
        sent.unwrap();
    }
    let read = texi
        .call(PID, "signals_pending", json!({"limit": 2}))
        .await
        .unwrap();
    let lease = json!({"lease_id": read["lease_id"]});
    texi.call(PID, "signals_confirm", lease).await.unwrap();
    let dismissed = texi.call(PID, "signals_ack", json!({})).await.unwrap();
    assert_eq!(dismissed["dismissed"], 2, "what waits is left alone");
    assert!(
        dismissed["only_newest"].is_null(),
        "that was the whole inbox"
    );
    let again = texi.call(PID, "signals_ack", json!({})).await.unwrap();
    assert_eq!(again["dismissed"], 0);
    server.terminate();
    let db = server.rows();
    db.execute_batch("update personas set inbox_seq = 2001 where identity = 'Texi'")
        .unwrap();
    drop(db);
    server.resume();
    let longer = texi.call(PID, "signals_ack", json!({})).await.unwrap();
    assert_eq!(longer["only_newest"], 2000, "{longer}");
}
