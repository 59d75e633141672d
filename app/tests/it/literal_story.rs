//! Exact words are never lost: whoever repeats what a row says finds it, among many nearly like it.

use crate::harness::{BIN, PID, Server};
use crate::recall_story::installed_models;
use prism::client::Client;
use serde_json::{Value, json};
use std::process::Command;

/// What prism and plain FTS5 find among so many rows of nearly the same text.
fn report(rows: &str, embed_up_to: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join(".prism");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::symlink(installed_models(), home.join("models")).unwrap();
    let output = Command::new(BIN)
        .env_clear()
        .env("HOME", dir.path())
        .env("TMPDIR", dir.path())
        .args(["bench", "recall", "--literal", rows, "--json"])
        .args(["--embed-up-to", embed_up_to])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Prism finds what FTS5 finds, by these figures.
fn assert_not_behind(report: &Value, names: &[&str]) {
    let figure = |who: usize, name: &str| {
        let figure = report["rows"][who]["figures"][name].as_f64();
        figure.unwrap_or_else(|| panic!("{name} of {report}"))
    };
    assert_eq!(figure(1, "of"), 100.0);
    for name in names {
        let (ours, theirs) = (figure(0, name), figure(1, name));
        assert!(
            ours >= theirs,
            "{name}: {ours} of prism's, {theirs} of FTS5's"
        );
    }
    assert!(figure(1, "in ten") > 90.0, "FTS5 has something to find");
}

#[test]
fn a_question_that_repeats_the_words_of_a_row_finds_it_wherever_plain_fts5_does() {
    assert_not_behind(&report("3000", "0"), &["in ten", "first"]);
}

#[test]
fn it_does_so_among_vectors_that_are_all_near() {
    assert_not_behind(&report("400", "400"), &["in ten"]);
}

/// Rows of one template, each with a ticket of its own.
async fn tickets(client: &Client, pid: &str, numbers: std::ops::Range<usize>) {
    const TREES: [&str; 7] = [
        "amber", "birch", "cedar", "delta", "ember", "fjord", "grove",
    ];
    let line = |n: usize| {
        let tree = TREES[n % 7];
        let text = format!("deploy run PRJ-{n} finished and the service came back, {tree}");
        let row = json!({"id": format!("r{n}"), "kind": "note", "identity": "Mira",
            "created_at": "2026-11-01T10:00:00Z", "text": text});
        json!({"line": n, "row": row})
    };
    let lines: Vec<Value> = numbers.map(line).collect();
    for some in lines.chunks(100) {
        let import = json!({"source": "tickets", "lines": some});
        client.call(pid, "import", import).await.unwrap();
    }
}

/// The texts that a question finds, best first.
async fn found(client: &Client, pid: &str, ask: Value) -> Vec<String> {
    let answer = client.call(pid, "recall", ask).await.unwrap();
    let rows = answer["results"].as_array().unwrap().iter();
    rows.map(|row| row["text"].as_str().unwrap().to_owned())
        .collect()
}

/// Ninety words that no row holds, and two that all do.
fn long_winded() -> String {
    let letters = || 'a'..='z';
    let word = |(a, b): (char, char)| format!("every{a}{b}day");
    let words = letters().flat_map(|a| letters().map(move |b| word((a, b))));
    let words: Vec<String> = words.take(90).collect();
    format!("{} finished service", words.join(" "))
}

#[tokio::test]
async fn a_word_that_names_a_row_is_looked_up_wherever_it_stands_in_a_long_question() {
    let server = Server::start();
    let operator = server.operator();
    tickets(&operator, PID, 1000..1300).await;
    let long = long_winded();
    let ask = json!({"query": format!("{long} please tell me what was PRJ-1044")});
    let texts = found(&operator, PID, ask).await;
    assert!(texts[0].contains("PRJ-1044"), "{texts:?}");
}

#[tokio::test]
async fn a_phrasing_that_fits_every_row_alike_hides_none_that_the_question_finds() {
    let server = Server::start();
    let operator = server.operator();
    tickets(&operator, PID, 1000..1300).await;
    let odd = "deploy run finished after the heron sat on the mast";
    operator
        .call(PID, "note", json!({"text": odd}))
        .await
        .unwrap();
    tickets(&operator, PID, 1300..1600).await;
    let ask = json!({"query": "what happened with heron and mast", "legs": ["lexical"],
        "also": ["deploy run finished and the service came back"]});
    let texts = found(&operator, PID, ask).await;
    assert!(texts.iter().any(|text| text == odd), "{texts:?}");
}

#[tokio::test]
async fn what_another_project_holds_brings_no_other_rows_here() {
    let server = Server::start();
    let operator = server.operator();
    tickets(&operator, PID, 1000..1250).await;
    let ask = json!({"query": "deploy run finished", "k": 50});
    let before = operator.call(PID, "recall", ask.clone()).await.unwrap();
    tickets(&operator, "elsewhere", 1000..1250).await;
    let after = operator.call(PID, "recall", ask).await.unwrap();
    assert_eq!(
        before["legs"]["lexical"]["hits"],
        after["legs"]["lexical"]["hits"]
    );
    assert_eq!(before["results"][0]["text"], after["results"][0]["text"]);
}

#[tokio::test]
async fn an_accent_that_is_a_sign_of_its_own_is_one_with_its_letter() {
    let server = Server::start();
    let operator = server.operator();
    let note = json!({"text": "the \u{d6}ffnung in Z\u{fc}rich was moved"});
    operator.call(PID, "note", note).await.unwrap();
    for question in ["O\u{308}ffnung", "Zu\u{308}rich"] {
        let ask = json!({"query": question, "legs": ["lexical"]});
        assert_eq!(found(&operator, PID, ask).await.len(), 1, "{question}");
    }
}

#[tokio::test]
async fn a_leg_that_is_none_is_refused_with_those_that_are() {
    let server = Server::start();
    let ask = json!({"query": "gate", "legs": ["lexcal"]});
    let refused = server.operator().call(PID, "recall", ask).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("lexcal"), "{refused}");
}
