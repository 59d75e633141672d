//! Importing: times and references are kept, nothing is written twice or by half, and a broken line
//! is named.

use crate::harness::{PID, Server};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;

fn write(server: &Server, name: &str, text: &str) -> PathBuf {
    let file = server.folder().join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    file
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(|r| format!("{r}\n")).collect()
}

fn import(server: &Server, file: &std::path::Path, more: &[&str]) -> Value {
    let args = [&["import", file.to_str().unwrap(), "--json"], more].concat();
    serde_json::from_str(&server.ok(None, &args)).unwrap()
}

/// A file in which rows speak of rows that come later.
fn memory() -> Vec<Value> {
    vec![
        json!({"id": "c1", "kind": "confirmation", "identity": "Mira", "surface": "codex", "created_at": "2026-03-02T10:00:00Z", "refers_to": "delta:w1", "verdict": "works", "text": "the map stays put now"}),
        json!({"id": "w1", "kind": "wrap", "identity": "Mira", "created_at": "2026-03-01T09:30:00Z", "text": "clamped the viewport in SeatMap.tsx", "operator_visible_effect": "the map no longer jumps",
            "tried_and_ruled_out": [{"approach": "sticky scroll", "outcome": "broke on phones"}], "touched_files": ["web/SeatMap.tsx"]}),
        json!({"id": "i1", "kind": "operator_input", "identity": "Wren", "created_at": "2026-03-03T08:00:00Z", "class": "correction", "prompt_text": "not the header, the map", "triggered_action": "was editing the header", "refers_to": "delta:w1", "confidence": "low"}),
        json!({"id": "n1", "kind": "integration_narrative", "identity": "Wren", "created_at": "2026-03-04T08:00:00Z", "text": "what the map needs", "operator_sees": "a steady map", "pieces": ["delta:w1", "commit:ab12cd3"], "would_break_it": "a second observer"}),
        json!({"id": 7, "kind": "decision", "identity": "Wren", "created_at": "2026-03-05", "title": "One map", "text": "there is one map component", "context": "two drifted", "supersedes": "d0"}),
        json!({"id": "d0", "kind": "decision", "identity": "Wren", "created_at": "2026-02-05", "title": "Two maps", "text": "a map for phones", "context": "phones are small"}),
        json!({"id": "p1", "kind": "postmortem", "identity": "Mira", "created_at": "2026-03-06T08:00:00Z", "title": "Map outage", "text": "tiles were gone", "choice_point": "the deploy", "prevention": "a check"}),
        json!({"id": "f1", "kind": "fact", "identity": "Mira", "created_at": "2026-03-07T08:00:00Z", "text": "tiles expire after a day"}),
        json!({"id": "t1", "kind": "todo", "identity": "Mira", "created_at": "2026-03-08T08:00:00Z", "title": "Warm the tiles", "text": "before the season"}),
        json!({"id": "j1", "kind": "journal", "identity": "Mira", "created_at": "2026-03-09T08:00:00Z", "text": "a quiet day"}),
    ]
}

#[tokio::test]
async fn a_file_comes_in_with_its_times_and_references_once() {
    let server = Server::start();
    let file = write(&server, "memory.jsonl", &lines(&memory()));
    let checked = import(&server, &file, &["--dry-run"]);
    assert_eq!(
        (&checked["imported"], &checked["ids"]),
        (&json!(10), &json!({}))
    );
    let operator = server.operator();
    assert_eq!(
        operator.call(PID, "memory_stats", json!({})).await.unwrap()["rows"],
        json!({}),
        "a dry run writes nothing"
    );

    let first = import(&server, &file, &[]);
    assert_eq!(
        (&first["imported"], &first["known"]),
        (&json!(10), &json!(0))
    );
    let again = import(&server, &file, &[]);
    assert_eq!(
        (&again["imported"], &again["known"], &again["ids"]),
        (&json!(0), &json!(10), &first["ids"]),
        "the same file once more changes nothing"
    );

    let hits = operator
        .call(PID, "recall", json!({"query": "clamped the viewport"}))
        .await
        .unwrap();
    let wrap = hits["results"]
        .as_array()
        .unwrap()
        .iter()
        .find(|h| h["id"] == first["ids"]["w1"])
        .expect("the wrap")
        .clone();
    assert_eq!(
        (wrap["created_at"].as_str(), wrap["identity"].as_str()),
        (Some("2026-03-01T09:30:00.000000Z"), Some("Mira"))
    );
    assert_eq!(
        wrap["verdicts"][0]["id"], first["ids"]["c1"],
        "a verdict that stood before its delta in the file is on it"
    );
    assert_eq!(wrap["ruled_out"][0]["approach"], "sticky scroll");
    let kinds: Vec<&str> = hits["results"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|h| h["kind"].as_str())
        .collect();
    assert!(
        kinds.contains(&"confirmation") && kinds.contains(&"operator_input"),
        "what speaks of it comes with it: {kinds:?}"
    );
    let old = operator
        .call(PID, "recall", json!({"query": "a map for phones"}))
        .await
        .unwrap();
    let old = old["results"]
        .as_array()
        .unwrap()
        .iter()
        .find(|h| h["id"] == first["ids"]["d0"])
        .unwrap()
        .clone();
    assert_eq!(old["superseded_by"], first["ids"]["7"]);
    let inputs = operator
        .call(PID, "inputs", json!({"review": "unreviewed"}))
        .await
        .unwrap();
    assert_eq!(
        inputs["inputs"][0]["prompt_text"], "not the header, the map",
        "an imported input waits for review like any other"
    );
}

#[tokio::test]
async fn a_broken_line_is_named_its_batch_is_not_half_written_and_the_rest_resumes() {
    let server =
        Server::start_with("[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n");
    let note = |i: usize| json!({"id": format!("n{i}"), "kind": "note", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "text": format!("note number {i}")});
    let mut text = lines(&(0..450).map(note).collect::<Vec<_>>());
    let whole = text.clone();
    // Line 310 is refused by the server, in the middle of the second batch of 200.
    text = text.replace("note number 309", " ");
    let file = write(&server, "big.jsonl", &text);
    let output = server.cli(None, &["import", file.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        error.contains("line 310")
            && error.contains("`text` must say something")
            && error.contains("hint:"),
        "{error}"
    );
    let operator = server.operator();
    assert_eq!(
        operator.call(PID, "memory_stats", json!({})).await.unwrap()["rows"]["note"],
        200,
        "the first batch stands, the second was taken back"
    );

    // A line that is no JSON at all stops the file there; what stands before it goes in.
    let mut broken = String::new();
    for (n, line) in whole.lines().enumerate() {
        writeln!(
            broken,
            "{}",
            if n == 309 {
                "{\"id\": \"n309\", "
            } else {
                line
            }
        )
        .unwrap();
    }
    write(&server, "big.jsonl", &broken);
    let output = server.cli(None, &["import", file.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("line 310: this is not JSON"));
    assert_eq!(
        operator.call(PID, "memory_stats", json!({})).await.unwrap()["rows"]["note"],
        309
    );
    write(&server, "big.jsonl", &whole);
    let mended = import(&server, &file, &[]);
    assert_eq!(
        (&mended["imported"], &mended["known"]),
        (&json!(141), &json!(309))
    );
    assert_eq!(
        operator.call(PID, "memory_stats", json!({})).await.unwrap()["rows"]["note"],
        450
    );
}

#[tokio::test]
async fn wrong_lines_are_told_apart() {
    let server = Server::start();
    let base = || json!({"id": "x", "kind": "note", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "text": "words"});
    let with = |field: &str, value: Value| {
        let mut row = base();
        row[field] = value;
        row
    };
    for (row, expected) in [
        (
            with("kind", json!("novel")),
            "`kind` \"novel\" is not one of",
        ),
        (with("created_at", json!("soon")), "not an ISO 8601 time"),
        (
            with("created_at", Value::Null),
            "`created_at` must be there",
        ),
        (with("identity", json!("no name!")), "identity"),
        (with("id", json!("")), "`id` must be there"),
        (
            with("supersedes", json!("nowhere")),
            "neither a line of this file nor the id of a row",
        ),
        (
            json!({"id": "x", "kind": "confirmation", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "verdict": "works"}),
            "`refers_to` must name",
        ),
        (
            json!({"id": "x", "kind": "operator_input", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "class": "rant", "prompt_text": "y"}),
            "`class` must be one of",
        ),
        (
            json!({"id": "x", "kind": "integration_narrative", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "text": "y", "operator_sees": "z"}),
            "`pieces` must answer",
        ),
        (
            with("tags", json!(["x".repeat(200_000)])),
            "bytes and may have",
        ),
        (json!(["not", "an", "object"]), "line 1"),
    ] {
        let file = write(&server, "one.jsonl", &lines(std::slice::from_ref(&row)));
        let output = server.cli(None, &["import", file.to_str().unwrap()]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && error.contains(expected) && error.contains("line 1"),
            "{row}: {error}"
        );
    }
    let twice = write(&server, "twice.jsonl", &lines(&[base(), base()]));
    assert!(
        String::from_utf8_lossy(
            &server
                .cli(None, &["import", twice.to_str().unwrap()])
                .stderr
        )
        .contains("is that of line 1, too")
    );
    let itself = write(
        &server,
        "itself.jsonl",
        &lines(&[with("supersedes", json!("x"))]),
    );
    assert!(
        String::from_utf8_lossy(
            &server
                .cli(None, &["import", itself.to_str().unwrap()])
                .stderr
        )
        .contains("line 1: `supersedes` names the line itself")
    );
    let circle = write(
        &server,
        "circle.jsonl",
        &lines(&[with("supersedes", json!("y")), {
            let mut other = with("supersedes", json!("x"));
            other["id"] = json!("y");
            other
        }]),
    );
    assert!(
        String::from_utf8_lossy(
            &server
                .cli(None, &["import", circle.to_str().unwrap()])
                .stderr
        )
        .contains("in a circle")
    );
    assert!(
        !server
            .cli(Some("Mira"), &["import", circle.to_str().unwrap()])
            .status
            .success(),
        "an agent may not import"
    );
}

#[tokio::test]
async fn a_routine_ack_is_not_captured_and_a_line_that_names_itself_refuses_nothing() {
    let server = Server::start();
    let row = |id: &str, more: Value| {
        let mut row = json!({"id": id, "identity": "Mira", "created_at": "2026-01-01T00:00:00Z"});
        let fields = more.as_object().unwrap().clone();
        row.as_object_mut().unwrap().extend(fields);
        row
    };
    let rows = [
        row(
            "ack",
            json!({"kind": "operator_input", "class": "confirmation", "prompt_text": "OK!"}),
        ),
        row(
            "said",
            json!({"kind": "operator_input", "class": "correction", "prompt_text": "not the roof", "reverses_delta": "said"}),
        ),
        row("fact", json!({"kind": "fact", "text": "slate is heavy"})),
        row(
            "wrap",
            json!({"kind": "wrap", "text": "roof done", "tried_and_ruled_out": [{"approach": "tin", "outcome": "loud", "ruled_out_in_delta": "delta:wrap"}]}),
        ),
        row(
            "whole",
            json!({"kind": "integration_narrative", "operator_sees": "a roof", "pieces": ["whole", "delta:wrap"], "would_break_it": "wind", "tags": ["east"]}),
        ),
        row(
            "job",
            json!({"kind": "todo", "title": "gutters", "tags": ["east"], "paths": ["a b.rs"]}),
        ),
    ];
    let file = write(&server, "roof.jsonl", &lines(&rows));
    let first = import(&server, &file, &[]);
    assert_eq!(
        (&first["imported"], &first["routine"]),
        (&json!(5), &json!(["ack"]))
    );
    let again = import(&server, &file, &[]);
    assert_eq!(
        (&again["imported"], &again["known"], &again["routine"]),
        (&json!(0), &json!(5), &json!(["ack"]))
    );
    let operator = server.operator();
    let inputs = operator.call(PID, "inputs", json!({})).await.unwrap();
    assert_eq!(inputs["inputs"].as_array().unwrap().len(), 1);
    let graph = operator
        .call(PID, "graph", json!({"id": first["ids"]["whole"]}))
        .await
        .unwrap();
    let combined = graph["edges"].as_array().unwrap().iter();
    let combined = combined.filter(|e| e["kind"] == "COMBINES");
    let combined: Vec<&Value> = combined.map(|e| &e["node"]["id"]).collect();
    assert_eq!(combined, [&first["ids"]["wrap"]], "but not itself");
    let narrative = json!({"kind": "integration_narrative"});
    let narrative = operator.call(PID, "deltas", narrative).await.unwrap();
    assert_eq!(narrative["deltas"][0]["tags"], json!(["east"]));
    let todo = json!({"action": "list"});
    let todo = operator.call(PID, "todo", todo).await.unwrap();
    assert_eq!(
        todo["items"][0]["fields"],
        json!({"tags": ["east"], "paths": ["a b.rs"]})
    );
    let verdict = row(
        "v",
        json!({"kind": "confirmation", "refers_to": "delta:v", "verdict": "works"}),
    );
    let file = write(&server, "verdict.jsonl", &lines(&[verdict]));
    let refused = server.cli(None, &["import", file.to_str().unwrap()]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("line 1") && said.contains("names the line itself"),
        "{said}"
    );
}

#[tokio::test]
async fn a_verdict_on_a_spec_comes_in_from_a_file_and_is_found() {
    let server = Server::start();
    let row = |id: &str, refers_to: &str| json!({"id": id, "kind": "confirmation", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "refers_to": refers_to, "verdict": "partial"});
    let rows = [row("a", "spec:SPEC-007"), row("b", "commit:0A1B2C3D4E")];
    let file = write(&server, "verdicts.jsonl", &lines(&rows));
    let ids = import(&server, &file, &[])["ids"].clone();
    let operator = server.operator();
    for (question, node, id) in [
        ("SPEC-007", "spec:7", "a"),
        ("commit 0a1b2c3", "commit:0a1b2c3", "b"),
    ] {
        let found = operator.call(PID, "recall", json!({"query": question}));
        let found = found.await.unwrap();
        assert_eq!(found["results"][0]["id"], ids[id], "{question}: {found}");
        let graph = operator.call(PID, "graph", json!({"id": node}));
        let graph = graph.await.unwrap();
        assert_eq!(graph["edges"][0]["kind"], "CONFIRMS", "{graph}");
        assert_eq!(graph["edges"][0]["node"]["id"], ids[id], "{graph}");
    }
}

#[tokio::test]
async fn what_was_written_elsewhere_may_say_less_than_an_agent_must() {
    let server = Server::start();
    let rows = [
        json!({"id": "n", "kind": "integration_narrative", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "text": "the lamp needs the relay and the new firmware at once"}),
        json!({"id": "m", "kind": "integration_narrative", "identity": "Mira", "created_at": "2026-01-02T00:00:00Z", "operator_sees": "the siren sounds", "pieces": ["a horn with enough watts", "delta:n"], "would_break_it": "a weak battery"}),
        json!({"id": "w", "kind": "wrap", "identity": "Mira", "created_at": "2026-01-03T00:00:00Z", "text": "wired the relay", "tried_and_ruled_out": ["soldering it live"]}),
        json!({"id": "p", "kind": "operator_input", "identity": "Mira", "created_at": "2026-01-04T00:00:00Z", "class": "pivot", "prompt_text": "no lamps, bells"}),
    ];
    let file = write(&server, "elsewhere.jsonl", &lines(&rows));
    let ids = import(&server, &file, &[])["ids"].clone();
    for (question, id) in [
        ("lamp relay firmware", "n"),
        ("horn with watts", "m"),
        ("soldering live", "w"),
        ("bells", "p"),
    ] {
        let found = server
            .operator()
            .call(PID, "recall", json!({"query": question}))
            .await
            .unwrap();
        assert_eq!(found["results"][0]["id"], ids[id], "{question}: {found}");
        assert!(
            !found["results"][0]["text"]
                .as_str()
                .unwrap()
                .contains("not said"),
            "what was left out is not found by"
        );
    }
}

#[tokio::test]
async fn a_line_that_changed_since_is_told_and_left_alone() {
    let server = Server::start();
    let row = |text: &str| json!({"id": "a", "kind": "note", "identity": "Mira", "created_at": "2026-01-01T00:00:00Z", "text": text});
    let file = write(&server, "notes.jsonl", &lines(&[row("one")]));
    import(&server, &file, &[]);
    write(&server, "notes.jsonl", &lines(&[row("two")]));
    assert_eq!(import(&server, &file, &[])["changed"], json!(["a"]));
}

#[tokio::test]
async fn markdown_notes_and_decisions_come_in() {
    let server = Server::start();
    write(
        &server,
        "docs/adr/0003-one-queue.md",
        "---\ndate: 2026-04-01\nauthor: Mira\n---\n# 3. One queue\n\n## Context\nTwo lost messages.\n\n## Decision\nWe keep one durable queue.\n",
    );
    write(
        &server,
        "docs/2026-05-02-printer.md",
        "# Printer\n\n## What helped\nA driver from the vendor.\n",
    );
    let answer = import(
        &server,
        &server.folder().join("docs"),
        &["--as-identity", "Wren"],
    );
    assert_eq!(answer["imported"], 2);
    let hits = server
        .operator()
        .call(PID, "recall", json!({"query": "one durable queue"}))
        .await
        .unwrap();
    let decision = &hits["results"][0];
    assert_eq!(
        (
            decision["kind"].as_str(),
            decision["title"].as_str(),
            decision["identity"].as_str()
        ),
        (Some("decision"), Some("One queue"), Some("Mira"))
    );
    assert_eq!(decision["created_at"], "2026-04-01T00:00:00.000000Z");
    let hits = server
        .operator()
        .call(PID, "recall", json!({"query": "driver from the vendor"}))
        .await
        .unwrap();
    assert_eq!(
        (
            hits["results"][0]["title"].as_str(),
            hits["results"][0]["identity"].as_str()
        ),
        (Some("Printer: What helped"), Some("Wren"))
    );
}

#[tokio::test]
async fn a_transcript_offers_the_operators_words_for_review() {
    let server = Server::start();
    let line = |uuid: &str, text: &str| json!({"type": "user", "uuid": uuid, "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "message": {"role": "user", "content": text}});
    let bell = "Signal from Donna: TaskAssigned. Use prism_signals_pending to read; prism_signal to reply if needed.";
    let text = lines(&[
        line("a", "no, not the header, the map"),
        line("b", bell),
        line("c", "add a footer"),
        line("d", "perfect"),
    ]) + "{\"type\": \"user\", \"cut";
    let file = write(&server, "session.jsonl", &text);
    let nobody = server.cli(None, &["import", file.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("--as-identity"));
    assert_eq!(
        import(&server, &file, &["--as-identity", "Mira"])["imported"],
        2
    );
    assert_eq!(
        import(&server, &file, &["--as-identity", "Mira"])["known"],
        2
    );
    let inputs = server
        .operator()
        .call(PID, "inputs", json!({"review": "unreviewed"}))
        .await
        .unwrap();
    let found: Vec<_> = inputs["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|i| {
            (
                i["class"].as_str().unwrap(),
                i["confidence"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(found.len(), 2);
    assert!(
        found.contains(&("correction", "low")) && found.contains(&("confirmation", "low")),
        "{found:?}"
    );
}

#[tokio::test]
async fn what_the_operator_said_is_exported_without_secrets_and_with_a_card() {
    let server = Server::start();
    assert!(
        String::from_utf8_lossy(&server.cli(None, &["export", "--training"]).stderr)
            .contains("no input was captured")
    );
    let (mira, _) = server.session("Mira").await;
    mira.call(PID, "checkpoint", json!({"summary": "moved the header"}))
        .await
        .unwrap();
    let said = |text: &str| json!({"class": "correction", "prompt_text": text, "triggered_action": "was editing", "confidence": "high"});
    mira.call(
        PID,
        "operator_input",
        said("not the header, my password is hunter22"),
    )
    .await
    .unwrap();
    let wrong = mira
        .call(PID, "operator_input", said("could you explain the map"))
        .await
        .unwrap();
    server
        .operator()
        .call(
            PID,
            "review",
            json!({"ids": [wrong["id"]], "action": "reject"}),
        )
        .await
        .unwrap();
    let out = server.folder().join("out");
    let done: Value = serde_json::from_str(&server.ok(
        None,
        &[
            "export",
            "--training",
            "--out",
            out.to_str().unwrap(),
            "--json",
        ],
    ))
    .unwrap();
    assert_eq!((&done["inputs"], &done["redacted"]), (&json!(2), &json!(1)));
    let lines: Vec<Value> = std::fs::read_to_string(out.join("inputs.jsonl"))
        .unwrap()
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(
        (lines[0]["prompt"].as_str(), lines[0]["about"].as_str()),
        (
            Some("not the header, my [redacted]"),
            Some("moved the header")
        )
    );
    assert_eq!(
        (&lines[1]["anti_example"], &lines[1]["verdict"]),
        (&json!(true), &json!("rejected"))
    );
    let card = std::fs::read_to_string(out.join("CARD.md")).unwrap();
    assert!(
        card.contains("| rejected | 1 |") && card.contains("PID-TEST"),
        "{card}"
    );
    assert!(
        !server
            .cli(Some("Mira"), &["export", "--training"])
            .status
            .success(),
        "an agent may not"
    );
}

#[tokio::test]
async fn memory_says_what_in_it_has_gone_stale() {
    let server = Server::start();
    let row = |id: &str, text: &str| json!({"id": id, "kind": "fact", "identity": "Mira", "created_at": "2020-01-01T00:00:00Z", "text": text});
    let mut newer = row("c", "tiles live for a week");
    newer["supersedes"] = json!("b");
    let wrap = json!({"id": "w", "kind": "wrap", "identity": "Mira", "created_at": "2020-01-01T00:00:00Z", "text": "new colours", "touched_files": ["web/app.css"]});
    let file = write(
        &server,
        "old.jsonl",
        &lines(&[
            row("a", "The sea is blue"),
            row("a2", "the sea is BLUE"),
            row("b", "tiles expire after a day"),
            newer,
            wrap,
        ]),
    );
    import(&server, &file, &[]);
    let operator = server.operator();
    operator
        .call(PID, "recall", json!({"query": "tiles expire after a day"}))
        .await
        .unwrap();
    let rot: Value = serde_json::from_str(&server.ok(None, &["memory", "rot", "--json"])).unwrap();
    let counted: Vec<(String, u64)> = rot["kinds"]
        .as_array()
        .unwrap()
        .iter()
        .map(|k| {
            (
                k["kind"].as_str().unwrap().to_owned(),
                k["rows"].as_u64().unwrap(),
            )
        })
        .collect();
    let of = |kind: &str| counted.iter().find(|(k, _)| k == kind).unwrap().1;
    assert_eq!(
        (
            of("duplicate"),
            of("superseded_but_ranked"),
            of("visible_without_operator_words")
        ),
        (1, 1, 1),
        "{counted:?}"
    );
    assert!(
        of("never_recalled") >= 2 && rot["score"].as_f64().unwrap() > 0.5,
        "{rot:#}"
    );
    assert!(
        server
            .ok(None, &["memory", "rot"])
            .contains("never recalled")
    );
}

#[tokio::test]
async fn what_the_operator_wrote_comes_in_as_the_operators() {
    let server = Server::start();
    let notes = write(
        &server,
        "notes.md",
        "# A note\n\nthe otter sleeps at noon\n",
    );
    assert_eq!(import(&server, &notes, &[])["imported"], 1);
    let named = write(&server, "named.md", "# Another\n\nthe otter eats at one\n");
    let by_name = import(&server, &named, &["--as-identity", "Frank"]);
    assert_eq!(by_name["imported"], 1);
    let row = json!({"id": "j1", "kind": "journal", "identity": "frank",
        "created_at": "2026-01-01T00:00:00Z", "title": "Otters", "text": "the otter swam"});
    let file = write(&server, "rows.jsonl", &lines(&[row]));
    assert_eq!(import(&server, &file, &[])["imported"], 1);
    let asked = json!({"query": "the otter"});
    let hits = server.operator().call(PID, "recall", asked).await.unwrap();
    let hits = hits["results"].as_array().unwrap();
    assert_eq!(hits.len(), 3, "{hits:?}");
    for hit in hits {
        assert_eq!(hit["identity"], "frank", "{hit}");
    }
}

#[tokio::test]
async fn a_file_that_is_imported_by_several_at_once_comes_in_once() {
    let server = Server::start();
    let rows: Vec<_> = (0..300)
        .map(|n| {
            let row = json!({"id": format!("n{n}"), "kind": "note", "identity": "Mira",
                "created_at": "2026-03-01T09:30:00Z", "text": format!("otter {n}")});
            json!({"line": n + 1, "row": row})
        })
        .collect();
    let request = json!({"source": "otters.jsonl", "lines": rows});
    let mut imports = Vec::new();
    for _ in 0..4 {
        let (operator, request) = (server.operator(), request.clone());
        imports.push(tokio::spawn(async move {
            operator.call(PID, "import", request).await
        }));
    }
    let (mut imported, mut known) = (0, 0);
    for import in imports {
        let answer = import.await.unwrap().unwrap();
        imported += answer["imported"].as_u64().unwrap();
        known += answer["known"].as_u64().unwrap();
    }
    assert_eq!((imported, known), (300, 900));
    let stats = server.operator().call(PID, "memory_stats", json!({})).await;
    assert_eq!(stats.unwrap()["rows"], json!({"note": 300}));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_file() {
    let server = Server::start();
    let rows = format!("\u{feff}{}", lines(&memory()));
    let file = write(&server, "memory.jsonl", &rows);
    assert_eq!(import(&server, &file, &[])["imported"], 10);
    let page = write(
        &server,
        "page.md",
        "\u{feff}# Tiles\n\nTiles expire after a day.\n",
    );
    assert_eq!(import(&server, &page, &[])["imported"], 1);
}
