//! Canonical entities, found by rule and never by a model.

use crate::signal::names;
use std::collections::BTreeSet;

names! {
    EntityType {
        Path = "path",
        Commit = "commit",
        Spec = "spec",
        Decision = "decision",
        Todo = "todo",
        Plan = "plan",
        Identity = "identity",
        Id = "id",
    }
}

/// A thing a text names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entity {
    pub kind: EntityType,
    pub name: String,
}

/// Digits of a commit by which it goes here: what git itself shows of one.
pub const COMMIT_DIGITS: usize = 7;

impl Entity {
    /// One spec, however it is written: `SPEC-060`, `spec-60` and `60` are the same.
    pub fn spec(name: &str) -> Self {
        let lower = name.trim().to_ascii_lowercase();
        let bare = lower.trim_start_matches("spec-").trim_start_matches('#');
        Self {
            kind: EntityType::Spec,
            name: number(bare).unwrap_or_else(|| bare.to_owned()),
        }
    }

    /// One commit, however much of its hash is written.
    pub fn commit(sha: &str) -> Self {
        let lower = sha.trim().to_ascii_lowercase();
        let is_hash = lower.chars().all(|c| c.is_ascii_hexdigit());
        Self {
            kind: EntityType::Commit,
            name: if is_hash {
                lower.chars().take(COMMIT_DIGITS).collect()
            } else {
                lower
            },
        }
    }
}

/// A number without the zeros before it.
fn number(text: &str) -> Option<String> {
    let digits = !text.is_empty() && text.len() <= 6 && text.chars().all(|c| c.is_ascii_digit());
    digits.then(|| match text.trim_start_matches('0') {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    })
}

/// Entities that one row may mention; a dump of paths is not knowledge.
pub const ENTITIES_MAX: usize = 64;

/// Finds what a text names: paths, commits, numbers of specs, decisions and
/// todos, quoted ids, and known identities.
pub fn find(text: &str, identities: &[String]) -> Vec<Entity> {
    let mut found = BTreeSet::new();
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || "()[]{}<>\"'`,;|".contains(c))
        .map(|w| {
            w.trim_end_matches(|c: char| ".:!?".contains(c))
                .trim_start_matches(|c: char| ":!?".contains(c))
        })
        .filter(|w| !w.is_empty())
        .collect();
    for (i, word) in words.iter().enumerate() {
        let previous = i
            .checked_sub(1)
            .map(|p| words[p].to_ascii_lowercase())
            .unwrap_or_default();
        found.extend(of_word(word, &previous, identities));
        if found.len() >= ENTITIES_MAX {
            break;
        }
    }
    found.into_iter().take(ENTITIES_MAX).collect()
}

fn of_word(word: &str, previous: &str, identities: &[String]) -> Option<Entity> {
    let entity = |kind, name: String| Some(Entity { kind, name });
    if let Some(identity) = identities.iter().find(|i| {
        i.eq_ignore_ascii_case(word)
            || word
                .strip_suffix("'s")
                .is_some_and(|w| i.eq_ignore_ascii_case(w))
    }) {
        return entity(EntityType::Identity, identity.clone());
    }
    if let Some((kind, number)) = numbered(word, previous) {
        return entity(kind, number);
    }
    if is_path(word) {
        return entity(EntityType::Path, word.trim_start_matches("./").to_owned());
    }
    let bare = word
        .trim_start_matches("commit:")
        .trim_start_matches("delta:")
        .trim_start_matches("signal:");
    let hex = bare.replace('-', "");
    if bare.len() >= 7
        && bare.len() <= 40
        && hex.chars().all(|c| c.is_ascii_hexdigit())
        && hex.chars().any(|c| c.is_ascii_digit())
        && hex.chars().any(|c| c.is_ascii_alphabetic())
    {
        // Ids are quoted by eight digits, with dashes, or whole.
        let quotes_an_id = bare.len() != hex.len() || hex.len() == 8 || hex.len() == 32;
        let is_commit =
            word.starts_with("commit:") || previous.ends_with("commit") || !quotes_an_id;
        return if is_commit {
            Some(Entity::commit(bare))
        } else {
            entity(
                EntityType::Id,
                hex.to_ascii_lowercase().chars().take(8).collect(),
            )
        };
    }
    None
}

/// `SPEC-060`, `ADR-27`, `decision #4`, `todo 12`.
fn numbered(word: &str, previous: &str) -> Option<(EntityType, String)> {
    let kind_of = |name: &str| match name {
        "spec" => Some(EntityType::Spec),
        "adr" | "decision" => Some(EntityType::Decision),
        "todo" => Some(EntityType::Todo),
        "plan" => Some(EntityType::Plan),
        _ => None,
    };
    let lower = word.to_ascii_lowercase();
    if let Some((name, rest)) = lower.split_once(['-', ':', '#'])
        && let Some(kind) = kind_of(name)
    {
        if kind == EntityType::Spec {
            return (!rest.is_empty()).then(|| (kind, Entity::spec(rest).name));
        }
        return number(rest.trim_start_matches("adr-")).map(|n| (kind, n));
    }
    let kind = kind_of(previous.trim_end_matches('s'))?;
    number(lower.trim_start_matches('#')).map(|n| (kind, n))
}

fn is_path(word: &str) -> bool {
    if word.contains("://")
        || word.len() > 200
        || !word
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-+@".contains(c))
        || !word.chars().any(|c| c.is_ascii_alphabetic())
    {
        return false;
    }
    let last = word.rsplit('/').next().unwrap_or(word);
    let has_extension = last.rsplit_once('.').is_some_and(|(stem, ext)| {
        stem.len() >= 2
            && (1..=5).contains(&ext.len())
            && ext.chars().all(|c| c.is_ascii_alphanumeric())
            && ext.chars().any(|c| c.is_ascii_alphabetic())
    });
    has_extension || (word.contains('/') && word.split('/').filter(|p| !p.is_empty()).count() >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        find(text, &["Donna".into(), "frank".into()])
            .into_iter()
            .map(|e| format!("{}:{}", e.kind, e.name))
            .collect()
    }

    #[test]
    fn things_are_found_by_rule() {
        for (text, expected) in [
            (
                "moved it to core/src/ring.rs.",
                vec!["path:core/src/ring.rs"],
            ),
            (
                "see CLAUDE.md and ./docs/specs/",
                vec!["path:CLAUDE.md", "path:docs/specs/"],
            ),
            ("turn/steer when active", vec!["path:turn/steer"]),
            ("fixed in commit 1a2b3c4d5e", vec!["commit:1a2b3c4"]),
            ("what about 9F8E7D6C5B4A", vec!["commit:9f8e7d6"]),
            ("9f8e7d6c5b4a3928 broke it", vec!["commit:9f8e7d6"]),
            (
                "delta 2901d7ce, delta:8b148959",
                vec!["id:2901d7ce", "id:8b148959"],
            ),
            (
                "SPEC-060 and spec 52, ADR-27, todo #12, decision 4",
                vec!["spec:52", "spec:60", "decision:27", "decision:4", "todo:12"],
            ),
            (
                "Frank told Donna's agent",
                vec!["identity:Donna", "identity:frank"],
            ),
            ("nothing here, v1.2 or 3.14 or e.g. this", vec![]),
            ("https://example.org/a/b", vec![]),
        ] {
            assert_eq!(names(text), expected, "{text}");
        }
    }

    #[test]
    fn a_spec_and_a_commit_are_one_thing_however_they_are_written() {
        for written in ["SPEC-060", "spec-60", "060", "60", " Spec-060 "] {
            assert_eq!(Entity::spec(written).name, "60", "{written}");
        }
        assert_eq!(Entity::spec("Login-Page").name, "login-page");
        for written in [
            "2901D7C",
            "2901d7ce",
            "2901d7ce0123456789abcdef0123456789abcdef",
        ] {
            assert_eq!(Entity::commit(written).name, "2901d7c", "{written}");
            assert_eq!(
                names(&format!("fixed in commit {written}")),
                ["commit:2901d7c"]
            );
        }
        assert_eq!(Entity::commit("HEAD").name, "head");
        assert_eq!(names("see spec:SPEC-060"), ["spec:60"]);
    }

    #[test]
    fn a_dump_of_paths_is_cut() {
        let dump: String = (0..500).map(|n| format!("src/f{n}.rs ")).collect();
        assert_eq!(find(&dump, &[]).len(), ENTITIES_MAX);
    }
}
