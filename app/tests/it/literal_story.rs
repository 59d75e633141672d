//! Exact words are never lost: whoever repeats what a row says finds it, among many nearly like it.

use crate::harness::BIN;
use serde_json::Value;
use std::process::Command;

/// Rows of nearly the same text; a test on more of them would take long.
const ROWS: &str = "3000";

#[test]
fn a_question_that_repeats_the_words_of_a_row_finds_it_wherever_plain_fts5_does() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(BIN)
        .env_clear()
        .env("HOME", dir.path())
        .env("TMPDIR", dir.path())
        .args(["bench", "recall", "--literal", ROWS, "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figure = |who: usize, name: &str| {
        let figure = report["rows"][who]["figures"][name].as_f64();
        figure.unwrap_or_else(|| panic!("{name} of {report}"))
    };
    assert_eq!(figure(1, "of"), 100.0);
    for name in ["in ten", "first"] {
        let (ours, theirs) = (figure(0, name), figure(1, name));
        assert!(
            ours >= theirs,
            "{name}: {ours} of prism's, {theirs} of FTS5's"
        );
    }
    assert!(figure(1, "in ten") > 90.0, "FTS5 has something to find");
}
