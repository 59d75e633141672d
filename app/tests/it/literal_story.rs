//! Exact words are never lost: whoever repeats what a row says finds it, among many nearly like it.

use crate::harness::BIN;
use crate::recall_story::installed_models;
use serde_json::Value;
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
