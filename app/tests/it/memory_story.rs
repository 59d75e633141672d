//! Memory in the operator's language: SPEC-060's acceptance criteria by name, and what must never
//! happen.

use crate::harness::{PID, Server, wait_for};
use prism::client::{Client, Locator};
use prism_core::Code;
use serde_json::{Value, json};

const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";

async fn recall(client: &Client, query: &str, k: usize) -> Vec<Value> {
    let answer = client
        .call(PID, "recall", json!({"query": query, "k": k}))
        .await
        .unwrap();
    answer["results"].as_array().unwrap().clone()
}

fn position(hits: &[Value], id: &Value) -> Option<usize> {
    hits.iter().position(|h| h["id"] == *id)
}

async fn checkpoint(client: &Client, summary: &str) -> Value {
    client
        .call(PID, "checkpoint", json!({"summary": summary}))
        .await
        .unwrap()["delta_id"]
        .clone()
}

/// Deltas in the vocabulary of engineers, among which the operator's words must be found.
async fn competing(client: &Client, n: usize) {
    let areas = [
        "codex launcher",
        "statusline renderer",
        "session manager",
        "git plumbing",
        "memory index",
        "signal queue",
        "inline parser",
        "retry budget",
    ];
    let deeds = [
        "refactored",
        "moved into its own module",
        "covered by a smoke test",
        "wired through the config",
        "guarded against a race",
        "working again after the rebase",
    ];
    for i in 0..n {
        let summary = format!(
            "{} {}: state machine {} now takes {} arguments, fixed in commit {:07x}a, inline docs updated",
            areas[i % areas.len()],
            deeds[i % deeds.len()],
            i,
            i % 7,
            i * 7919
        );
        checkpoint(client, &summary).await;
    }
}

#[tokio::test]
async fn acceptance_1_a_confirmation_is_stored_and_found_through_its_target() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    competing(&donna, 30).await;
    let delta = checkpoint(
        &donna,
        "thread state aware injection: turn/steer when active, turn/start when idle",
    )
    .await;
    let prefix = &delta.as_str().unwrap()[..8];
    let id = donna
        .call(PID, "confirm", json!({"refers_to": format!("delta:{prefix}"), "verdict": "works", "notes": "a note above the input bar shows persona and project"}))
        .await
        .unwrap()["id"]
        .clone();
    let hits = recall(&donna, "turn/steer turn/start injection", 5).await;
    let target = &hits[position(&hits, &delta).expect("the delta itself")];
    assert_eq!(
        (
            &target["verdicts"][0]["id"],
            &target["verdicts"][0]["verdict"],
            &target["verdicts"][0]["directness"]
        ),
        (&id, &json!("works"), &json!("reported"))
    );
    assert!(
        target["why"].to_string().contains("half"),
        "a reported verdict on one's own work says so: {}",
        target["why"]
    );
    let confirmation = &hits[position(&hits, &id).expect("the confirmation beside it")];
    assert_eq!(
        (confirmation["kind"].as_str(), &confirmation["refers_to"]),
        (
            Some("confirmation"),
            &json!(format!("delta:{}", delta.as_str().unwrap()))
        )
    );
}

#[tokio::test]
async fn acceptance_2_an_operator_input_is_stored_labelled_and_reviewed() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let delta = checkpoint(&donna, "searched the history with git log").await;
    let input = json!({"class": "correction", "prompt_text": "stop, memory first", "triggered_action": "running git log", "confidence": "low"});
    let id = donna.call(PID, "operator_input", input).await.unwrap()["id"].clone();
    let graph = donna.call(PID, "graph", json!({"id": id})).await.unwrap();
    assert!(
        graph["edges"]
            .as_array()
            .unwrap()
            .iter()
            .any(|e| e["kind"] == "LABELS" && e["node"]["id"] == delta),
        "{graph}"
    );
    assert!(
        donna
            .call(PID, "review", json!({"ids": [id], "action": "accept"}))
            .await
            .unwrap_err()
            .is(Code::OperatorOnly)
    );
    let operator = server.operator();
    let review = async |action: &str| {
        operator
            .call(PID, "review", json!({"ids": [id], "action": action}))
            .await
    };
    let metrics = async || {
        operator
            .call(PID, "memory_metrics", json!({}))
            .await
            .unwrap()["inputs"][0]
            .clone()
    };
    assert_eq!(
        metrics().await["counted"],
        0,
        "low confidence does not count until accepted"
    );
    review("accept").await.unwrap();
    assert_eq!(metrics().await["counted"], 1);
    assert!(
        review("reject").await.unwrap_err().is(Code::Conflict),
        "a reviewed row is not reviewed again"
    );
    review("undo").await.unwrap();
    review("reject").await.unwrap();
    assert_eq!(
        (
            metrics().await["misclassification_rate"].as_f64(),
            metrics().await["counted"].as_u64()
        ),
        (Some(1.0), Some(0))
    );
    assert!(
        recall(&donna, "stop memory first", 5)
            .await
            .iter()
            .all(|h| h["id"] != id),
        "a rejected row leaves recall"
    );
    let started = donna.call(PID, "start", json!({})).await.unwrap();
    assert_eq!(
        started["anti_examples"][0]["prompt_text"],
        "stop, memory first"
    );
    review("undo").await.unwrap();
    assert!(
        position(&recall(&donna, "stop memory first", 5).await, &id).is_some(),
        "undo restores"
    );
    let (texi, _) = server.session("Texi").await;
    assert!(
        texi.call(PID, "start", json!({})).await.unwrap()["anti_examples"]
            .as_array()
            .unwrap()
            .is_empty(),
        "anti-examples are for the persona that captured them"
    );
}

#[tokio::test]
async fn acceptance_3_a_wrap_on_a_visible_surface_without_an_effect_warns_and_is_kept() {
    let server = Server::start();
    let (donna, session) = server.session("Donna").await;
    let warned = donna
        .call(
            PID,
            "checkpoint",
            json!({"summary": "x", "touched_files": ["bin/coder.sh", "src/lib.rs"]}),
        )
        .await
        .unwrap();
    assert_eq!(
        (
            &warned["warnings"][0]["kind"],
            &warned["warnings"][0]["paths"]
        ),
        (
            &json!("missing_operator_visible_effect"),
            &json!(["bin/coder.sh"])
        )
    );
    assert_eq!(warned["touched_files_source"], "caller");
    let fine = donna.call(PID, "wrap", json!({"summary": "x", "touched_files": ["bin/coder.sh"], "operator_visible_effect": "the bell stays"})).await.unwrap();
    assert!(fine["warnings"].is_null());
    assert!(
        donna
            .call(PID, "note", json!({"text": "x"}))
            .await
            .unwrap_err()
            .is(Code::SessionReleased),
        "a wrap releases"
    );
    let deltas = server
        .operator()
        .call(PID, "deltas", json!({}))
        .await
        .unwrap();
    let kinds: Vec<&str> = deltas["deltas"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["wrap", "checkpoint", "start"]);
    assert_eq!(deltas["deltas"][0]["session_id"], session.to_string());
}

#[tokio::test]
async fn acceptance_7_the_working_state_frank_confirmed_is_in_the_top_five_of_500() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    competing(&texi, 250).await;
    let delta = checkpoint(&texi, "signals surface in Codex through thread state aware delivery: turn/steer when a turn is active, turn/start when idle").await;
    competing(&texi, 250).await;
    let notes = "inline note appears above input bar in Codex TUI showing persona+project; rendered when turn/steer fires during active turn";
    let id =
        texi.call(PID, "confirm", json!({"refers_to": format!("delta:{}", delta.as_str().unwrap()), "verdict": "works", "notes": notes})).await.unwrap()["id"].clone();
    let hits = recall(
        &texi,
        "Codex inline statusline working state Frank confirmed",
        5,
    )
    .await;
    assert!(
        position(&hits, &id).is_some(),
        "{:?}",
        hits.iter().map(|h| h["text"].clone()).collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn acceptance_8_the_corrections_for_going_to_git_are_found_among_500() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    competing(&donna, 250).await;
    let mut corrections = Vec::new();
    for (prompt, action) in [
        (
            "stop, you keep doing the same error",
            "running git log to find what shipped",
        ),
        (
            "your bashing again and going after git",
            "grepping the repository instead of asking memory",
        ),
    ] {
        let input = json!({"class": "correction", "prompt_text": prompt, "triggered_action": action, "confidence": "high"});
        corrections.push(donna.call(PID, "operator_input", input).await.unwrap()["id"].clone());
    }
    competing(&donna, 250).await;
    let hits = recall(
        &donna,
        "Frank corrected Donna for going to git instead of memory",
        5,
    )
    .await;
    for id in &corrections {
        let hit = &hits[position(&hits, id).unwrap_or_else(|| {
            panic!(
                "{:?}",
                hits.iter().map(|h| h["text"].clone()).collect::<Vec<_>>()
            )
        })];
        assert_eq!(hit["kind"], "operator_input");
    }
}

#[tokio::test]
async fn a_dead_end_comes_back_with_what_it_was_ruled_out_for() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    competing(&texi, 40).await;
    let old = checkpoint(&texi, "watch the title from a daemon").await;
    let attempt = json!({"approach": "title-watcher daemon for the terminal title", "outcome": "clobbers the richer title every second", "ruled_out_in_delta": &old.as_str().unwrap()[..8]});
    texi.call(
        PID,
        "checkpoint",
        json!({"summary": "went with in-thread notes", "tried_and_ruled_out": [attempt]}),
    )
    .await
    .unwrap();
    let hits = recall(&texi, "title watcher daemon", 5).await;
    let tempting = &hits[position(&hits, &old).expect("the tempting one")];
    assert_eq!(
        tempting["ruled_out"][0]["outcome"],
        "clobbers the richer title every second"
    );
    let unknown = json!({"summary": "x", "tried_and_ruled_out": [{"approach": "a", "outcome": "b", "ruled_out_in_delta": "deadbeef"}]});
    assert!(
        texi.call(PID, "checkpoint", unknown)
            .await
            .unwrap_err()
            .is(Code::UnknownReference)
    );
    assert!(
        texi.call(
            PID,
            "checkpoint",
            json!({"summary": "x", "tried_and_ruled_out": [{"approach": "", "outcome": "b"}]})
        )
        .await
        .unwrap_err()
        .message
        .contains("tried_and_ruled_out[0].approach")
    );
}

#[tokio::test]
async fn a_narrative_needs_its_three_answers_and_combines_its_pieces() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let (a, b) = (
        checkpoint(&texi, "env forwarding").await,
        checkpoint(&texi, "turn/steer").await,
    );
    let whole = json!({"kind": "integration_narrative", "subject": "inline render", "operator_sees": "a line above the input bar", "pieces": [a, format!("delta:{}", b.as_str().unwrap()), "commit:abc123", "spec:SPEC-060"], "would_break_it": "losing the forwarded variables"});
    for missing in ["operator_sees", "pieces", "would_break_it"] {
        let mut request = whole.clone();
        request.as_object_mut().unwrap().remove(missing);
        let problem = texi.call(PID, "remember", request).await.unwrap_err();
        assert!(
            problem.is(Code::InvalidRequest) && problem.message.contains(missing),
            "{problem:?}"
        );
    }
    let id = texi.call(PID, "remember", whole).await.unwrap()["id"].clone();
    let graph = texi.call(PID, "graph", json!({"id": id})).await.unwrap();
    assert_eq!(
        graph["edges"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|e| e["kind"] == "COMBINES")
            .count(),
        4
    );
    let hits = recall(&texi, "what would break the line above the input bar", 3).await;
    assert_eq!(
        (&hits[0]["id"], hits[0]["kind"].as_str()),
        (&id, Some("integration_narrative"))
    );
}

#[tokio::test]
async fn what_was_superseded_sinks_and_is_superseded_once() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let remember = async |body: &str, supersedes: Option<&Value>| {
        texi.call(
            PID,
            "remember",
            json!({"kind": "fact", "body": body, "supersedes": supersedes}),
        )
        .await
    };
    let old = remember("the server listens on port 8765", None)
        .await
        .unwrap()["id"]
        .clone();
    let before = prism::clock::now();
    let new = remember("the server listens on port 7747", Some(&old))
        .await
        .unwrap()["id"]
        .clone();
    let hits = recall(&texi, "which port does the server listen on", 5).await;
    let (newer, older) = (position(&hits, &new), position(&hits, &old));
    assert!(
        newer.expect("the new") < older.expect("the old"),
        "{hits:?}"
    );
    assert_eq!(hits[position(&hits, &old).unwrap()]["superseded_by"], new);
    assert!(
        remember("again", Some(&old))
            .await
            .unwrap_err()
            .is(Code::Conflict),
        "what is superseded already stays so"
    );
    let then = texi
        .call(
            PID,
            "recall",
            json!({"query": "which port does the server listen on", "as_of": before}),
        )
        .await
        .unwrap();
    let then: Vec<Value> = then["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|h| h["id"].clone())
        .collect();
    assert_eq!(then, [old]);
    texi.call(
        PID,
        "decide",
        json!({"title": "one", "context": "c", "decision": "d"}),
    )
    .await
    .unwrap();
    let two = texi
        .call(
            PID,
            "decide",
            json!({"title": "two", "context": "c", "decision": "d", "supersedes": "1"}),
        )
        .await
        .unwrap();
    assert_eq!(two["number"], 2);
    assert!(
        texi.call(
            PID,
            "decide",
            json!({"title": "x", "context": "c", "decision": "d", "supersedes": "9"})
        )
        .await
        .unwrap_err()
        .is(Code::UnknownReference)
    );
}

#[tokio::test]
async fn numbers_never_collide_and_versions_are_kept() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let made = futures_util::future::join_all((0..40).map(|i| {
        texi.call(
            PID,
            "spec",
            json!({"action": "create", "title": format!("spec {i}"), "body": "first"}),
        )
        .then_unwrap()
    }))
    .await;
    let mut numbers: Vec<i64> = made.iter().map(|m| m["number"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
    texi.call(
        PID,
        "spec",
        json!({"action": "update", "number": 7, "body": "second"}),
    )
    .await
    .unwrap();
    let get = async |version: Option<i64>| {
        texi.call(
            PID,
            "spec",
            json!({"action": "get", "number": 7, "version": version}),
        )
        .await
    };
    assert_eq!(get(None).await.unwrap()["item"]["body"], "second");
    assert_eq!(get(Some(1)).await.unwrap()["item"]["body"], "first");
    assert!(get(Some(9)).await.unwrap_err().is(Code::UnknownReference));
    assert_eq!(
        texi.call(PID, "spec", json!({"action": "list"}))
            .await
            .unwrap()["items"]
            .as_array()
            .unwrap()
            .len(),
        40
    );
    let hits = recall(&texi, "second", 5).await;
    assert_eq!(hits[0]["kind"], "spec");
    // The words of the others are gone from the index as well as from the row that is shown.
    let db = server.rows();
    let held = |word: &str| -> i64 {
        let sql = "select count(*) from memory_fts f cross join memory m on m.rowid = f.rowid
             where memory_fts match ? and m.id = ?";
        db.query_row(sql, [word, hits[0]["id"].as_str().unwrap()], |r| r.get(0))
            .unwrap()
    };
    assert_eq!((held("second"), held("first")), (1, 0));
}

trait ThenUnwrap {
    fn then_unwrap(self) -> impl Future<Output = Value>;
}

impl<F: Future<Output = Result<Value, prism_core::Problem>>> ThenUnwrap for F {
    async fn then_unwrap(self) -> Value {
        self.await.unwrap()
    }
}

#[tokio::test]
async fn every_verb_of_memory_writes_what_recall_finds() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    for (verb, request, word, kind) in [
        ("note", json!({"text": "aardvark"}), "aardvark", "note"),
        (
            "remember",
            json!({"kind": "rule", "body": "never buffalo on fridays"}),
            "buffalo",
            "rule",
        ),
        (
            "remember",
            json!({"kind": "other", "body": "cheetah"}),
            "cheetah",
            "other",
        ),
        (
            "journal",
            json!({"body": "dolphin day"}),
            "dolphin",
            "journal",
        ),
        (
            "retro",
            json!({"went_well": "elephant", "went_badly": "b", "change": "c"}),
            "elephant",
            "retro",
        ),
        (
            "postmortem",
            json!({"title": "t", "what_happened": "flamingo", "choice_point": "b", "prevention": "c"}),
            "flamingo",
            "postmortem",
        ),
        (
            "decide",
            json!({"title": "gazelle", "context": "b", "decision": "c"}),
            "gazelle",
            "decision",
        ),
        (
            "plan",
            json!({"action": "create", "title": "hippo", "body": "b"}),
            "hippo",
            "plan",
        ),
        (
            "todo",
            json!({"action": "add", "title": "iguana"}),
            "iguana",
            "todo",
        ),
        (
            "checkpoint",
            json!({"summary": "jaguar"}),
            "jaguar",
            "checkpoint",
        ),
        (
            "checkpoint",
            json!({"summary": "x", "operator_visible_effect": "a kangaroo jumps"}),
            "kangaroo",
            "checkpoint",
        ),
        (
            "checkpoint",
            json!({"summary": "x", "tried_and_ruled_out": [{"approach": "llama", "outcome": "no"}]}),
            "llama",
            "checkpoint",
        ),
    ] {
        texi.call(PID, verb, request)
            .await
            .unwrap_or_else(|p| panic!("{verb}: {p:?}"));
        let hits = recall(&texi, word, 1).await;
        assert_eq!(
            hits.first().map(|h| h["kind"].as_str().unwrap()),
            Some(kind),
            "{verb} {word}"
        );
        assert!(!hits[0]["why"].as_array().unwrap().is_empty());
    }
    let started = texi.call(PID, "start", json!({})).await.unwrap();
    assert_eq!(
        (
            started["open_todos"][0]["title"].as_str(),
            started["open_postmortems"].as_array().unwrap().len()
        ),
        (Some("iguana"), 1)
    );
    texi.call(PID, "todo", json!({"action": "done", "number": 1}))
        .await
        .unwrap();
    texi.call(PID, "postmortem", json!({"resolve": 1}))
        .await
        .unwrap();
    let started = texi.call(PID, "start", json!({})).await.unwrap();
    assert!(
        started["open_todos"].as_array().unwrap().is_empty()
            && started["open_postmortems"].as_array().unwrap().is_empty()
    );
    let stats = texi.call(PID, "memory_stats", json!({})).await.unwrap();
    assert_eq!(stats["rows"]["checkpoint"], 3);
}

#[tokio::test]
async fn bad_input_names_its_field_and_stores_nothing() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let delta = checkpoint(&texi, "x").await;
    let target = format!("delta:{}", delta.as_str().unwrap());
    let huge = "x".repeat(60_000);
    let before = texi.call(PID, "memory_stats", json!({})).await.unwrap()["rows"].clone();
    for (verb, request, field) in [
        ("checkpoint", json!({"summary": " "}), "summary"),
        ("checkpoint", json!({"summary": huge}), "summary"),
        (
            "checkpoint",
            json!({"summary": "x", "open_loops": vec!["f"; 501]}),
            "open_loops",
        ),
        (
            "confirm",
            json!({"refers_to": "deadbeef", "verdict": "works"}),
            "refers_to",
        ),
        (
            "confirm",
            json!({"refers_to": "delta:deadbeef", "verdict": "works"}),
            "refers_to",
        ),
        (
            "confirm",
            json!({"refers_to": target, "verdict": "fine"}),
            "verdict",
        ),
        (
            "operator_input",
            json!({"class": "praise", "prompt_text": "x y", "confidence": "high"}),
            "class",
        ),
        (
            "operator_input",
            json!({"class": "correction", "prompt_text": "", "confidence": "high"}),
            "prompt_text",
        ),
        (
            "operator_input",
            json!({"class": "correction", "prompt_text": "x y", "confidence": "maybe"}),
            "confidence",
        ),
        (
            "operator_input",
            json!({"class": "correction", "prompt_text": "x y", "confidence": "high", "reverses_delta": "deadbeef"}),
            "reverses_delta",
        ),
        ("remember", json!({"kind": "poem", "body": "x"}), "kind"),
        (
            "remember",
            json!({"kind": "note", "body": "x", "supersedes": "deadbeef"}),
            "supersedes",
        ),
        (
            "remember",
            json!({"kind": "note", "body": "x", "refs": ["nowhere"]}),
            "refs",
        ),
        ("recall", json!({"query": ""}), "query"),
        ("recall", json!({"query": "x", "k": 0}), "k"),
        ("recall", json!({"query": "x", "kinds": ["poem"]}), "kinds"),
        (
            "recall",
            json!({"query": "x", "since": "yesterday"}),
            "since",
        ),
        ("todo", json!({"action": "done"}), "number"),
        ("todo", json!({"action": "fly"}), "action"),
        ("spec", json!({"action": "update", "number": 1}), "action"),
        ("todo", json!({"action": "update", "number": 1}), "action"),
    ] {
        let problem = texi.call(PID, verb, request.clone()).await.unwrap_err();
        assert!(
            problem.message.contains(field),
            "{verb} {}: {}",
            prism_core::text::clip(&request.to_string(), 80),
            problem.message
        );
    }
    for routine in ["ok", "Next.", "thanks!"] {
        let answer = texi
            .call(
                PID,
                "operator_input",
                json!({"class": "confirmation", "prompt_text": routine, "confidence": "high"}),
            )
            .await
            .unwrap();
        assert_eq!(
            (&answer["captured"], &answer["reason"]),
            (&json!(false), &json!("routine_ack"))
        );
    }
    let perfect = texi
        .call(
            PID,
            "operator_input",
            json!({"class": "confirmation", "prompt_text": "perfect", "confidence": "high"}),
        )
        .await
        .unwrap();
    assert_eq!(perfect["captured"], true);
    let mut after = texi.call(PID, "memory_stats", json!({})).await.unwrap()["rows"].clone();
    after.as_object_mut().unwrap().remove("operator_input");
    assert_eq!(before, after);
}

#[tokio::test]
async fn another_projects_memory_never_comes_back() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let secret = checkpoint(&donna, "zanzibar secret in src/secret.rs for frank").await;
    let operator = server.operator();
    let minted = operator
        .call("PID-OTHER", "key_mint", json!({"identity": "Eve"}))
        .await
        .unwrap();
    let eve = Client::new(
        Locator::Home(server.home()),
        minted["key"].as_str().unwrap().into(),
    )
    .unwrap();
    eve.call(
        "PID-OTHER",
        "note",
        json!({"text": "our own src/secret.rs by frank"}),
    )
    .await
    .unwrap();
    for query in [
        "zanzibar secret",
        "src/secret.rs",
        "frank",
        secret.as_str().unwrap(),
    ] {
        let answer = eve
            .call("PID-OTHER", "recall", json!({"query": query}))
            .await
            .unwrap();
        assert!(!answer.to_string().contains("zanzibar"), "{query}");
    }
    let id = secret.as_str().unwrap();
    for (verb, request) in [
        (
            "confirm",
            json!({"refers_to": format!("delta:{id}"), "verdict": "works"}),
        ),
        (
            "operator_input",
            json!({"class": "correction", "prompt_text": "x y", "confidence": "high", "reverses_delta": id}),
        ),
        (
            "remember",
            json!({"kind": "note", "body": "x", "supersedes": id}),
        ),
        (
            "remember",
            json!({"kind": "note", "body": "x", "refs": [format!("delta:{id}")]}),
        ),
        ("graph", json!({"id": id})),
    ] {
        assert!(
            eve.call("PID-OTHER", verb, request)
                .await
                .unwrap_err()
                .is(Code::UnknownReference),
            "{verb}"
        );
    }
    let session = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let session = eve.call("PID-OTHER", "session_register", session).await;
    let session = session.unwrap()["session_id"].as_str().unwrap().parse();
    let eve = eve.with_session(Some(session.unwrap()));
    for verb in [
        "deltas",
        "memory_stats",
        "memory_metrics",
        "start",
        "pickup",
    ] {
        let answer = eve.call("PID-OTHER", verb, json!({})).await;
        let answer = answer.unwrap_or_else(|p| panic!("{verb}: {p:?}"));
        assert!(!answer.to_string().contains("zanzibar"), "{verb}");
    }
    assert!(
        eve.call(PID, "recall", json!({"query": "zanzibar"}))
            .await
            .unwrap_err()
            .is(Code::NoPersona)
    );
}

#[tokio::test]
async fn a_recall_leaves_an_event_that_can_be_cited_and_filters_hold() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let delta = checkpoint(&texi, "the zebra crossing").await;
    texi.call(PID, "note", json!({"text": "another zebra"}))
        .await
        .unwrap();
    let answer = texi
        .call(
            PID,
            "recall",
            json!({"query": "zebra", "kinds": ["checkpoint"]}),
        )
        .await
        .unwrap();
    assert_eq!(answer["results"].as_array().unwrap().len(), 1);
    assert_eq!(
        (
            answer["legs"]["lexical"]["state"].as_str(),
            answer["legs"]["vector"]["state"].as_str()
        ),
        (Some("on"), Some("off"))
    );
    assert_eq!(
        answer["legs"]["vector"]["pending"], 2,
        "the intents to embed wait"
    );
    let cite = json!({"recall_event_id": answer["recall_event_id"], "result_id": delta, "for": "the crossing"});
    assert_eq!(
        texi.call(PID, "memory_cite", cite.clone()).await.unwrap()["ok"],
        true
    );
    // Whether it helped is for whoever asked to say.
    let other = server.identity("Wren").await;
    let refused = other.call(PID, "memory_cite", cite.clone()).await;
    let refused = refused.unwrap_err();
    assert!(refused.is(Code::NotYours), "{refused:?}");
    let first_digits = |id: &Value| id.as_str().unwrap()[..8].to_owned();
    let by_prefix = json!({
        "recall_event_id": first_digits(&cite["recall_event_id"]),
        "result_id": first_digits(&cite["result_id"]),
    });
    texi.call(PID, "memory_cite", by_prefix).await.unwrap();
    let stats = texi.call(PID, "memory_stats", json!({})).await.unwrap();
    assert_eq!(stats["citations"], 1, "both name the same citation");
    for (field, wrong) in [
        ("recall_event_id", json!("not an id")),
        ("result_id", json!("deadbee")),
    ] {
        let mut cite = cite.clone();
        cite[field] = wrong;
        let refused = texi.call(PID, "memory_cite", cite).await.unwrap_err();
        assert!(refused.message.contains("8 hex digits"), "{refused:?}");
    }
    for (field, wrong) in [
        ("recall_event_id", json!(prism::clock::new_id())),
        ("result_id", json!(prism::clock::new_id())),
    ] {
        let mut cite = cite.clone();
        cite[field] = wrong;
        assert!(
            texi.call(PID, "memory_cite", cite)
                .await
                .unwrap_err()
                .is(Code::UnknownReference),
            "{field}"
        );
    }
    let future = json!({"query": "zebra", "since": "2999-01-01T00:00:00Z"});
    assert!(
        texi.call(PID, "recall", future).await.unwrap()["results"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    assert!(
        texi.call(PID, "recall", json!({"query": "?!"}))
            .await
            .unwrap()["results"]
            .as_array()
            .unwrap()
            .is_empty()
    );
}

#[test]
fn an_unwrapped_session_is_noticed_and_a_wrap_is_picked_up() {
    let server = Server::start();
    let mut donna = server.agent("Donna");
    donna.call("prism_note", json!({"text": "half done"}));
    assert_eq!(donna.close(), Some(0));
    let mut donna = server.agent("Donna");
    assert_eq!(donna.started["unwrapped_session"]["deltas"], 1);
    donna.call(
        "prism_wrap",
        json!({"summary": "all done", "next": "ship it", "open_loops": ["docs"]}),
    );
    assert_eq!(
        donna.refused("prism_note", json!({"text": "x"}))["code"],
        "session_released"
    );
    let again = donna.call("prism_start", json!({}));
    assert!(again["unwrapped_session"].is_null());
    let mut texi = server.agent("Texi");
    let baton = texi.call("prism_pickup", json!({"from_identity": "donna"}));
    assert_eq!(
        (
            baton["wrap"]["summary"].as_str(),
            baton["wrap"]["next"].as_str(),
            &baton["wrap"]["open_loops"]
        ),
        (Some("all done"), Some("ship it"), &json!(["docs"]))
    );
    assert!(
        texi.call("prism_pickup", json!({"from_identity": "Texi"}))["warnings"]
            .to_string()
            .contains("no_wrap")
    );
}

#[test]
fn touched_files_are_found_with_git_when_nobody_names_them() {
    let server = Server::start();
    let git = |args: &[&str]| {
        assert!(
            std::process::Command::new("git")
                .args(["-c", "user.name=t", "-c", "user.email=t@t"])
                .args(args)
                .current_dir(server.folder())
                .output()
                .unwrap()
                .status
                .success(),
            "git {args:?}"
        )
    };
    git(&["init", "-q"]);
    std::fs::write(server.folder().join("old.rs"), "1").unwrap();
    std::fs::write(server.folder().join(".gitignore"), "home\n").unwrap();
    git(&["add", "."]);
    git(&["commit", "-qm", "one"]);
    std::fs::write(server.folder().join("dirty-before.rs"), "1").unwrap();
    let mut donna = server.agent("Donna");
    // The baseline is noted in the background; a first checkpoint waits for it.
    let empty = donna.call("prism_checkpoint", json!({"summary": "nothing yet"}));
    assert_eq!(empty["touched_files_source"], "git");
    std::fs::write(server.folder().join("old.rs"), "2").unwrap();
    std::fs::create_dir_all(server.folder().join("dashboard")).unwrap();
    std::fs::write(server.folder().join("dashboard/new.rs"), "1").unwrap();
    git(&["add", "old.rs"]);
    git(&["commit", "-qm", "two"]);
    let wrapped = donna.call("prism_checkpoint", json!({"summary": "changed two files"}));
    assert_eq!(
        (
            wrapped["touched_files_source"].as_str(),
            &wrapped["warnings"][0]["paths"]
        ),
        (Some("git"), &json!(["dashboard/new.rs"]))
    );
    let db = server.rows();
    let touched = wait_for("the row", || {
        db.query_row(
            "select touched_files from session_deltas where summary = 'changed two files'",
            [],
            |r| r.get::<_, String>(0),
        )
        .ok()
    });
    assert_eq!(touched, r#"["dashboard/new.rs","old.rs"]"#);
    std::fs::create_dir_all(server.folder().join(".prism")).unwrap();
    std::fs::write(
        server.folder().join(".prism/project.toml"),
        "surfaces = [\"old.*\"]",
    )
    .unwrap();
    assert_eq!(
        donna.call("prism_checkpoint", json!({"summary": "own surfaces"}))["warnings"][0]["paths"],
        json!(["old.rs"])
    );
}

#[tokio::test]
async fn the_operators_own_hands_are_direct_and_the_command_line_shows_it() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let delta = checkpoint(&donna, "the bell is back in the statusline").await;
    let id = &delta.as_str().unwrap()[..8];
    server.ok(
        None,
        &["confirm", &format!("delta:{id}"), "works", "I see the bell"],
    );
    let hits = recall(&donna, "bell statusline", 3).await;
    let hit = &hits[position(&hits, &delta).unwrap()];
    assert_eq!(
        (
            &hit["verdicts"][0]["directness"],
            &hit["verdicts"][0]["confirmed_by"]
        ),
        (&json!("direct"), &json!("frank"))
    );
    let printed = server.ok(None, &["recall", "bell", "statusline"]);
    assert!(
        printed.contains("✓ works")
            && printed.contains("frank: I see the bell")
            && printed.contains("lexical #"),
        "{printed}"
    );
    assert_eq!(
        server.cli(None, &["recall", "xylophone"]).status.code(),
        Some(1)
    );
    let reported = server
        .command(None)
        .env("CLAUDECODE", "1")
        .args(["confirm", &format!("delta:{id}"), "broken", "--json"])
        .output()
        .unwrap();
    assert!(reported.status.success());
    let hits = recall(&donna, "bell statusline", 3).await;
    assert_eq!(
        hits[position(&hits, &delta).unwrap()]["verdicts"][0]["directness"],
        "reported",
        "inside a host the agent types"
    );
    assert!(server.ok(None, &["graph", "show", id]).contains("CONFIRMS"));
    assert!(
        server
            .ok(None, &["memory", "stats"])
            .contains("confirmation")
    );
    assert!(server.ok(None, &["memory", "metrics"]).contains("verdicts"));
    server.ok(None, &["key", "mint", "Donna"]);
    assert!(
        server
            .ok(
                Some("Donna"),
                &[
                    "input",
                    "correction",
                    "not the title bar",
                    "--confidence",
                    "low"
                ]
            )
            .contains("kept as")
    );
    assert!(
        server
            .ok(None, &["review", "--list"])
            .contains("not the title bar")
    );
    assert_eq!(
        server
            .cli(Some("Donna"), &["input", "confirmation", "ok"])
            .status
            .code(),
        Some(1)
    );
}

/// A failure between the row and its last edge leaves neither: the graph's own check makes one.
#[tokio::test]
async fn a_failure_in_the_middle_of_a_write_leaves_nothing_of_it() {
    use prism::store::memory::{Author, DeltaRow, Edge, NewMemory, Node, Row};
    use prism::store::{Project, Store};
    use prism_core::memory::{DeltaKind, EdgeKind, Indexed, Kind};
    use prism_core::{Identity, Moment, ProjectName};
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("prism.db");
    let store = Store::open_embedded(&file).unwrap();
    store.load().await.unwrap();
    let project = Project {
        id: prism::clock::new_id(),
        pid: ProjectName::parse("P").unwrap(),
    };
    store
        .add_project(
            project.clone(),
            Identity::parse("frank").unwrap(),
            Moment(0),
        )
        .await
        .unwrap();
    let by = Author {
        project_id: project.id,
        session_id: None,
        identity: Identity::parse("Texi").unwrap(),
        surface: "cli".into(),
        now: Moment(1),
    };
    let indexed = Indexed::new(
        Kind::Note,
        None,
        "label",
        vec![("body", Some("text".into()))],
    );
    let new = |supersedes| NewMemory {
        id: prism::clock::new_id(),
        by: by.clone(),
        row: Row::Delta(DeltaRow::of(DeltaKind::Note, "text")),
        indexed: Some(indexed.clone()),
        entities: vec![],
        edges: vec![Edge {
            src: None,
            kind: EdgeKind::Mentions,
            dst: Node::Id("signal:x".into()),
        }],
        supersedes,
        imported_session: None,
    };
    let first = new(None);
    let id = first.id;
    store.remember(first).await.unwrap();
    store.remember(new(Some(id))).await.unwrap();
    let counts = || {
        let db = rusqlite::Connection::open(&file).unwrap();
        [
            "session_deltas",
            "memory",
            "memory_fts",
            "memory_fields",
            "embed_intents",
            "edges",
            "entity_states",
        ]
        .map(|t| {
            db.query_row(&format!("select count(*) from {t}"), [], |r| {
                r.get::<_, i64>(0)
            })
            .unwrap()
        })
    };
    let before = counts();
    // The last step of the write, superseding what is superseded already, fails after everything
    // else was written.
    assert!(store.remember(new(Some(id))).await.is_err());
    assert_eq!(counts(), before);
    assert_eq!(before[..3], [2, 2, 2]);

    // A circle, of one row and of two: the second was superseded by the first before it came.
    let mut own = new(None);
    own.supersedes = Some(own.id);
    let third = new(None);
    let late = new(Some(third.id));
    let (third_id, late_id) = (third.id.to_string(), late.id.to_string());
    store.remember(third).await.unwrap();
    let db = rusqlite::Connection::open(&file).unwrap();
    let superseded = "insert into entity_states (node, valid_from, superseded_by) values (?, 0, ?)";
    db.execute(superseded, [late_id, third_id]).unwrap();
    for circle in [own, late] {
        let refused = store.remember(circle).await.unwrap_err().to_string();
        assert!(refused.contains("a row that supersedes it"), "{refused}");
    }
}
