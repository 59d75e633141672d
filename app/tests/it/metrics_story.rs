//! What metrics say of more rows than they count, of several projects, and of long words.

use crate::harness::{PID, Server};
use crate::page_story::signed_in;
use prism_core::limits::PAGE_WORDS_CHARS;
use serde_json::{Value, json};

/// Rows of one kind that count.
const COUNTED: i64 = 50_000;

/// Writes so many rows, a second apart and each like the others, the last of them a second ago.
fn many(server: &Server, columns: &str, values: &str, table: &str, n: i64) {
    let now = prism::clock::now().0;
    let sql = format!(
        "with recursive n(i) as (select cast(1 as bigint) union all select i + 1 from n where i < {n})
         insert into {table} (id, tenant_id, project_id, {columns})
         select '{table}-' || i, p.tenant_id, p.id, {values} from n, projects p
         where p.pid = '{PID}'",
        values = values.replace("AT", &format!("({now} - i * 1000000)")),
    );
    server.rows().execute_batch(&sql).unwrap();
}

#[tokio::test]
async fn rows_that_wait_for_vectors_are_told_to_whoever_watches_over_the_process() {
    let server = Server::start();
    // There is no model here, so they wait.
    for text in ["the harbour is closed", "the ring holds"] {
        server.ok(None, &["note", text]);
    }
    let mut elsewhere = server.command(None);
    elsewhere.env("PRISM_PID", "elsewhere");
    let third = elsewhere.args(["note", "the third one"]).output().unwrap();
    assert!(third.status.success(), "{third:?}");
    let metrics = crate::door::http().get(format!("{}/metrics", server.url()));
    let said = metrics.send().await.unwrap().text().await.unwrap();
    assert!(said.lines().any(|l| l == "prism_embed_waiting 3"), "{said}");
    // Only servers that share a database have something that carries word.
    let carries = said.contains("prism_carrier_connected");
    assert_eq!(carries, server.is_shared(), "{said}");
}

#[tokio::test]
async fn a_metric_that_leaves_rows_out_says_from_when_on_it_counted() {
    let server = Server::start();
    server.identity("Texi").await;
    let browser = signed_in(&server).await;
    let metrics = async || browser.ask(PID, "metrics", json!({})).await;
    let fill = |n: i64| {
        let rows = server.rows();
        for (table, columns, values) in [
            (
                "operator_confirmations",
                "session_id, confirmed_by, confirmed_via, directness, refers_to_kind, refers_to_id, verdict, confirmed_at",
                "null, 'frank', 'frank/dashboard', 'direct', 'commit', 'c' || i, 'works', AT",
            ),
            (
                "operator_inputs",
                "captured_via, captured_at, class, prompt_text, confidence, operator_review",
                "'Texi', AT, 'confirmation', 'perfect', 'high', 'accepted'",
            ),
            (
                "memory_recall_events",
                "session_id, identity, surface, query, results, latency_us, tokens, occurred_at",
                "null, 'Texi', 'other', 'q', '[]', 5, 0, AT",
            ),
            (
                "recallgate_events",
                "assignment_id, task_class, gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface, recall_count, occurred_at, is_first",
                "'a' || i, 'tier1', 'advisory', 'warned', 'ack', 's', 'Texi', 'other', 0, AT, 1",
            ),
        ] {
            rows.execute_batch(&format!("delete from {table}")).unwrap();
            many(&server, columns, values, table, n);
        }
    };
    fill(COUNTED);
    let whole = metrics().await;
    assert_eq!(whole["looked_back"], Value::Null, "just as many as count");
    assert_eq!(whole["confirmations"]["total"], COUNTED);
    fill(COUNTED + 1);
    let cut = metrics().await;
    let said = cut["looked_back"].as_array().unwrap();
    let metrics: Vec<&str> = said.iter().map(|b| b["metric"].as_str().unwrap()).collect();
    for metric in [
        "confirmations",
        "misclassification",
        "surfaces",
        "recall",
        "gate",
    ] {
        assert!(metrics.contains(&metric), "{metric}: {said:?}");
    }
    assert_eq!(metrics.len(), 5, "{metrics:?}");
    assert!(said.iter().all(|b| b["rows"] == COUNTED), "{said:?}");
    assert_eq!(cut["confirmations"]["total"], COUNTED);
    assert_eq!(cut["recall"]["total"], COUNTED);
    assert_eq!(cut["misclassification"][0]["captured"], COUNTED);
    let told = server.cli(None, &["metrics", "--only", "gate"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(
        told.contains("gate: there is more than counts at once"),
        "{told}"
    );
}

#[tokio::test]
async fn rot_is_a_figure_of_one_project_and_of_all_of_them() {
    let server = Server::start();
    let operator = server.operator();
    let note = |text: &str| json!({"text": text});
    for (pid, text) in [
        (PID, "the ring is kept"),
        (PID, "the ring is kept"),
        ("PID-OTHER", "the bell is rung"),
        ("PID-OTHER", "the mast is up"),
    ] {
        operator.call(pid, "note", note(text)).await.unwrap();
    }
    let browser = signed_in(&server).await;
    let rot = async |pid: &str| {
        let metrics = browser
            .ask(pid, "metrics", json!({"only": ["recall"]}))
            .await;
        metrics["recall"]["rot"].clone()
    };
    // One of two says what another says; of four it is one.
    assert_eq!(rot(PID).await, 0.5);
    assert_eq!(rot("PID-OTHER").await, 0.0);
    assert_eq!(rot("*").await, 0.25);
    let stale = operator.call(PID, "memory_rot", json!({})).await.unwrap();
    assert_eq!(stale["score"], 0.5);
    let told = server.ok(None, &["metrics", "--all", "--only", "recall"]);
    assert!(
        told.contains("memory rot") && told.contains("0.25"),
        "{told}"
    );
}

#[tokio::test]
async fn long_words_are_cut_in_lists_and_whole_where_one_is_shown() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let (words, action) = ("wört ".repeat(9_000), "läuft ".repeat(8_000));
    let (words, action) = (words.trim(), action.trim());
    let long = json!({"class": "correction", "prompt_text": words, "triggered_action": action,
        "confidence": "high"});
    let id = texi.call(PID, "operator_input", long).await.unwrap()["id"].clone();
    let browser = signed_in(&server).await;
    let now = browser.ask(PID, "now", json!({})).await;
    let listed = browser.ask(PID, "input_list", json!({})).await;
    for answer in [&now, &listed] {
        let row = &answer["inputs"][0];
        let chars = |field: &str| row[field].as_str().unwrap().chars().count();
        assert_eq!(chars("prompt_text"), PAGE_WORDS_CHARS);
        assert_eq!(chars("triggered_action"), PAGE_WORDS_CHARS);
        let whole = words.chars().count() + action.chars().count();
        assert_eq!(row["more"], whole - 2 * PAGE_WORDS_CHARS);
        assert!(answer.to_string().len() < 10_000);
    }
    let shown = browser.ask("*", "memory_show", json!({"id": id})).await;
    assert_eq!(shown["input"]["prompt_text"], words);
    assert_eq!(shown["input"]["triggered_action"], action);
    // What is short is whole, and says nothing of more.
    let short = json!({"class": "correction", "prompt_text": "not so", "confidence": "high"});
    texi.call(PID, "operator_input", short).await.unwrap();
    let now = browser.ask(PID, "now", json!({})).await;
    assert_eq!(now["inputs"][0]["prompt_text"], "not so");
    assert_eq!(now["inputs"][0]["more"], Value::Null);
}

#[tokio::test]
async fn the_same_demonstration_has_the_same_rows_each_time() {
    let server = Server::start();
    let operator = server.operator();
    let ids = async || {
        let mut all = Vec::new();
        for (verb, rows, id) in [
            ("memory_list", "rows", "id"),
            ("signal_list", "signals", "signal_id"),
            ("session_list", "sessions", "session_id"),
            ("recall_list", "events", "id"),
            ("gate_list", "events", "id"),
            ("probe_list", "runs", "loopback_id"),
        ] {
            let listed = operator.call("PID-DEMO", verb, json!({"limit": 200})).await;
            let listed = listed.unwrap();
            let rows = listed[rows].as_array().unwrap().iter();
            all.push(rows.map(|r| r[id].clone()).collect::<Vec<_>>());
        }
        all
    };
    let again = |args: &[&str]| {
        server.ok(None, &["demo", "--remove"]);
        server.ok(None, args);
    };
    server.ok(None, &["demo"]);
    let first = ids().await;
    again(&["demo"]);
    assert_eq!(ids().await, first);
    again(&["demo", "--seed", "8"]);
    let other = ids().await;
    for (one, other) in first.iter().zip(&other) {
        assert_eq!(one.len(), other.len());
        assert!(one.iter().all(|id| !other.contains(id)));
    }
}

#[tokio::test]
async fn what_is_said_or_tried_again_may_be_half_a_year_old_and_no_older() {
    let server = Server::start();
    let now = prism::clock::now();
    let weeks_ago = |n: i64| now.plus_s(-n * 7 * 86_400).to_string();
    let said = |id: &str, weeks: i64, words: &str, surface: &str| {
        json!({"id": id, "kind": "operator_input", "identity": "Mira", "surface": surface,
            "class": "correction", "confidence": "high", "prompt_text": words,
            "created_at": weeks_ago(weeks)})
    };
    let tried = |id: &str, weeks: i64, approach: &str| {
        json!({"id": id, "kind": "wrap", "identity": "Mira", "text": "a wrap",
            "created_at": weeks_ago(weeks),
            "tried_and_ruled_out": [{"approach": approach, "outcome": "it fell over"}]})
    };
    // The range is the last four weeks; half a year before it counts as earlier.
    let lines = [
        said("i1", 29, "never touch the title bar", "codex"),
        said("i2", 1, "never touch the title bar", "cursor"),
        said("i3", 31, "leave the mainsail alone please", "codex"),
        said("i4", 1, "leave the mainsail alone please", "cursor"),
        tried("w1", 29, "a daemon that watches the title"),
        tried("w2", 1, "a daemon that watches the title"),
        tried("w3", 31, "polling the ring every second"),
        tried("w4", 1, "polling the ring every second"),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    let file = server.home().path("lines.jsonl");
    std::fs::write(&file, lines.join("\n")).unwrap();
    server.ok(None, &["import", file.to_str().unwrap()]);
    let browser = signed_in(&server).await;
    let metrics = browser.ask(PID, "metrics", json!({})).await;
    let pairs = metrics["repeats"]["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 1, "{pairs:?}");
    assert_eq!(pairs[0]["again"]["text"], "never touch the title bar");
    let weeks = metrics["repeats"]["weeks"].as_array().unwrap().iter();
    let (all, again) = weeks.fold((0, 0), |(n, r), week| {
        let of = |field: &str| week[field].as_u64().unwrap();
        (n + of("corrections"), r + of("repeated"))
    });
    assert_eq!((all, again), (2, 1));
    let ends = &metrics["dead_ends"];
    assert_eq!(
        (&ends["total"], &ends["again_total"]),
        (&json!(2), &json!(1)),
        "{ends}"
    );
    assert_eq!(
        ends["pairs"][0]["again"]["text"],
        "a daemon that watches the title"
    );
    // An import names the surface on which it was said.
    let surfaces = metrics["surfaces"].as_array().unwrap();
    assert_eq!(surfaces.len(), 1, "{surfaces:?}");
    assert_eq!(
        (&surfaces[0]["surface"], &surfaces[0]["corrections"]),
        (&json!("cursor"), &json!(2))
    );
}

#[tokio::test]
async fn a_row_that_a_recall_brought_is_no_row_that_nobody_found() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    for text in ["the anchor holds in mud", "the mainsail tears in a gale"] {
        texi.call(PID, "note", json!({"text": text})).await.unwrap();
    }
    let browser = signed_in(&server).await;
    let recall = async || {
        browser
            .ask(PID, "metrics", json!({"only": ["recall"]}))
            .await["recall"]
            .clone()
    };
    let before = recall().await;
    assert_eq!(
        (&before["rows"], &before["rows_never_recalled"]),
        (&json!(2), &json!(2))
    );
    let asked = json!({"query": "anchor mud", "k": 1});
    let found = texi.call(PID, "recall", asked).await.unwrap();
    assert_eq!(found["results"].as_array().unwrap().len(), 1, "{found}");
    let after = recall().await;
    assert_eq!(
        (&after["total"], &after["rows_never_recalled"]),
        (&json!(1), &json!(1))
    );
    let left = after["never_recalled"].as_array().unwrap();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(left[0]["text"], "the mainsail tears in a gale");
    assert_eq!(
        after["by_identity"],
        json!([{"identity": "Texi", "n": 1, "cited": 0}])
    );
    // A look of the operator's is nobody's recall.
    browser
        .ask(PID, "recall", json!({"query": "mainsail", "preview": true}))
        .await;
    assert_eq!(recall().await, after);
}

#[tokio::test]
async fn precision_is_of_all_labels_however_old_and_delivery_says_where_it_ends() {
    let server = Server::start();
    server.identity("Texi").await;
    // Two months old: no longer in any plot, and not yet gone with history.
    let event =
        "assignment_id, task_class, gate_mode, outcome, trigger, actor_session_id, actor_persona,
        actor_surface, recall_count, occurred_at, label, is_first";
    let values = "'a' || i, 'tier1', 'advisory', 'warned', 'ack', 's', 'Texi', 'other', 0, AT - 5000000000000, case when i % 4 > 0 then 1 else 0 end, 1";
    many(&server, event, values, "recallgate_events", 60);
    let browser = signed_in(&server).await;
    let gate = browser.ask(PID, "metrics", json!({"only": ["gate"]})).await["gate"].clone();
    assert_eq!(
        (&gate["labelled"], &gate["labelled_right"]),
        (&json!(60), &json!(45)),
        "{gate}"
    );
    assert_eq!(
        (&gate["precision"], &gate["verdict"]),
        (&json!(0.75), &json!("ok")),
        "{gate}"
    );
    let warned = gate["warned"].as_array().unwrap();
    assert!(warned.iter().all(|n| n == 0), "none of them in the range");

    let signal =
        "trace_id, to_persona_id, to_identity, seq, from_identity, signal_type, category, payload,
        delivery_class, body_sha256, created_at, expires_at";
    let values =
        "'t' || i, (select r.id from personas r where r.project_id = p.id and r.identity = 'Texi'),
        'Texi', i, 'Texi', 'StatusUpdate', 'INFO', '{}', 'async', '', AT, 9000000000000000";
    many(&server, signal, values, "signal_queue", 20_000);
    let delivery = async || browser.ask(PID, "delivery", json!({})).await;
    assert_eq!(delivery().await["signals_from"], Value::Null);
    server
        .rows()
        .execute_batch("delete from signal_queue")
        .unwrap();
    many(&server, signal, values, "signal_queue", 20_001);
    let cut = delivery().await;
    assert!(cut["signals_from"].is_string(), "{cut}");
    assert_eq!(cut["probes_from"], Value::Null);
    let told = server.cli(None, &["delivery"]);
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.contains("more signals than count at once"), "{told}");
}

#[tokio::test]
async fn more_inputs_than_one_call_reviews_are_refused_with_how_many_it_takes() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let words = json!({"class": "correction", "prompt_text": "not so", "confidence": "high"});
    let id = texi.call(PID, "operator_input", words).await.unwrap()["id"].clone();
    let review = |n: usize| json!({"ids": vec![id.clone(); n], "action": "accept"});
    let operator = server.operator();
    let most = prism_core::limits::REVIEW_IDS_MAX;
    let taken = operator.call(PID, "review", review(most)).await;
    assert!(!taken.is_err_and(|refused| refused.message.contains("may be")));
    let refused = operator
        .call(PID, "review", review(most + 1))
        .await
        .unwrap_err();
    assert!(refused.message.contains(&most.to_string()), "{refused:?}");
}
