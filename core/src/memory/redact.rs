//! What looks like a secret is taken out of what leaves Prism.

use regex::{Regex, RegexSet};
use std::sync::LazyLock;

/// What stands in its place.
const REDACTED: &str = "[redacted]";

/// Keys by their known beginnings, tokens by how they are passed, and whatever is said to be a
/// secret.
const SECRETS: [&str; 8] = [
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?s:.*?)(-----END [A-Z ]*PRIVATE KEY-----|\z)",
    r"\b(sk|pk|rk|prk|ghp|gho|ghs|ghu|glpat|xox[abpsr]|npm|pypi|hf|dop_v1|shpat)[-_][A-Za-z0-9_-]{12,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\b(AKIA|ASIA)[A-Z0-9]{16}\b",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*",
    r"(?i)\b(bearer|basic) [A-Za-z0-9._~+/=-]{12,}",
    r#"(?i)\b[a-z0-9_.-]*(password|passwd|secret|api[_-]?key|token|credential)[a-z0-9_-]*["']?\s*(=|:|\bis\b)\s*["']?[^\s"',;]{4,}"#,
    r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@",
];

static FOUND: LazyLock<RegexSet> =
    LazyLock::new(|| RegexSet::new(SECRETS).unwrap_or_else(|e| unreachable!("{e}")));
static EACH: LazyLock<Vec<Regex>> =
    LazyLock::new(|| SECRETS.iter().filter_map(|s| Regex::new(s).ok()).collect());

/// The text without what looks like a secret, and how many were taken out.
pub fn redact(text: &str) -> (String, usize) {
    let mut clean = text.to_owned();
    let mut taken = 0;
    for i in FOUND.matches(text) {
        taken += EACH[i].find_iter(&clean).count();
        clean = EACH[i].replace_all(&clean, REDACTED).into_owned();
    }
    (clean, taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_taken_out_and_counted() {
        for (text, expected) in [
            ("use prk_0123456789abcdef please", "use [redacted] please"),
            (
                "curl -H 'Authorization: Bearer abc.def-ghi_jklmno'",
                "curl -H 'Authorization: [redacted]'",
            ),
            ("my password is hunter22, ok", "my [redacted], ok"),
            ("AWS_SECRET_ACCESS_KEY=abcd1234 make", "[redacted] make"),
            ("postgres://me:pw12@host/db", "[redacted]host/db"),
            ("AKIAIOSFODNN7EXAMPLE leaked", "[redacted] leaked"),
            (
                "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY----- x",
                "[redacted] x",
            ),
        ] {
            assert_eq!(redact(text), (expected.to_owned(), 1), "{text}");
        }
        for text in [
            "the token bucket is full",
            "no, not the header",
            "sk-ip this",
            "see commit ab12cd3 of the secret santa page",
        ] {
            assert_eq!(redact(text), (text.to_owned(), 0), "{text}");
        }
    }
}
