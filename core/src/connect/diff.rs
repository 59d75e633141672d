//! What would change, as people read it, without the secrets that stand beside it.

use regex::Regex;
use similar::{ChangeTag, TextDiff};
use std::sync::LazyLock;

/// Unchanged lines shown around a change.
const CONTEXT: usize = 3;

/// A unified diff; values of neighbouring lines that look like secrets are not shown.
pub fn unified(name: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut out = format!(
        "--- {}\n+++ {name}\n",
        if before.is_empty() { "/dev/null" } else { name }
    );
    for group in diff.grouped_ops(CONTEXT) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else {
            continue;
        };
        let range = |start: usize, end: usize| match end - start {
            0 => format!("{start},0"),
            1 => format!("{}", start + 1),
            n => format!("{},{n}", start + 1),
        };
        out.push_str(&format!(
            "@@ -{} +{} @@\n",
            range(first.old_range().start, last.old_range().end),
            range(first.new_range().start, last.new_range().end)
        ));
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches(['\r', '\n']);
            let line = hidden(line);
            let sign = match change.tag() {
                ChangeTag::Equal => ' ',
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
            };
            out.push_str(&format!("{sign}{line}\n"));
            if !change.value().ends_with('\n') {
                out.push_str("\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// A line whose value somebody could use is shown without it.
fn hidden(line: &str) -> String {
    static SECRET: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let name =
            r#"["']?[\w.-]*(?:key|token|secret|passw|auth|credential|cookie|bearer)[\w.-]*["']?"#;
        let value = r#""(?:[^"\\]|\\.)*"|'[^']*'"#;
        Regex::new(&format!(r"(?i)({name}\s*[:=]\s*)(?:{value})")).ok()
    });
    match &*SECRET {
        Some(secret) => secret.replace_all(line, "$1\"…\"").into_owned(),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_shown_with_three_lines_around_it() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n";
        let after = before.replace("5\n", "5\nnew\n");
        assert_eq!(
            unified("f.json", before, &after),
            "--- f.json\n+++ f.json\n@@ -3,6 +3,7 @@\n 3\n 4\n 5\n+new\n 6\n 7\n 8\n"
        );
        assert_eq!(
            unified("f", "", "a"),
            "--- /dev/null\n+++ f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn secrets_beside_a_change_are_not_shown() {
        let before = "{\n  \"GITHUB_TOKEN\": \"ghp_x\",\n  \"apiKey\" : \"k\\\"k\"\n}\n";
        let shown = unified("f", before, &before.replace("}\n", "}"));
        assert!(shown.contains("\"GITHUB_TOKEN\": \"…\""), "{shown}");
        assert!(
            !shown.contains("ghp") && !shown.contains("k\\\"k"),
            "{shown}"
        );
        assert_eq!(hidden("api_key = 'abc'"), "api_key = \"…\"");
        assert_eq!(hidden("\"keys\": [1]"), "\"keys\": [1]");
    }
}
