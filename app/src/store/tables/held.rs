//! The index of words: which rows hold a word. FTS5 in the embedded engine, a tsvector of the same
//! stems in the other.

use super::{Result, failed};
use crate::store::sql::{Connection, params};
use prism_core::memory::stem;
use std::fmt::Write;

/// The longest stem that a tsvector takes, in bytes, and the last place it tells apart.
const STEM_BYTES_MAX: usize = 2_000;
const PLACES_MAX: usize = 16_383;

/// What rows are to hold in title or body.
pub enum Sought<'a> {
    /// A word, or words that stand side by side.
    Phrase(&'a str),
    All(&'a [String]),
    Any(&'a [&'a str]),
}

/// What stands behind `memory_fts match`.
pub fn sought(c: &Connection, sought: &Sought<'_>) -> String {
    let phrase = c.either(fts_phrase as fn(&str) -> String, ts_phrase);
    let join = |phrases: Vec<String>, word: &str| phrases.join(word);
    match sought {
        Sought::Phrase(term) => phrase(term),
        Sought::All(terms) => join(
            terms.iter().map(|t| phrase(t)).collect(),
            c.either(" AND ", " & "),
        ),
        Sought::Any(terms) => join(
            terms.iter().map(|t| phrase(t)).collect(),
            c.either(" OR ", " | "),
        ),
    }
}

/// Adds what a row holds. Only FTS5 knows the label.
pub fn add(c: &Connection, row: i64, title: Option<&str>, body: &str, label: &str) -> Result<()> {
    let added = match c {
        Connection::Sqlite(_) => c.put(
            "insert into memory_fts (rowid, title, body, label) values (?, ?, ?, ?)",
            params![row, title, body, label],
        ),
        Connection::Postgres(_) => c.put(
            "insert into memory_fts (rowid, held) values (?, cast(cast(? as text) as tsvector))",
            params![row, ts_vector(title.unwrap_or_default(), body)],
        ),
    };
    added.map_err(failed)
}

fn fts_phrase(term: &str) -> String {
    format!("{{title body}} : \"{term}\"")
}

fn ts_phrase(term: &str) -> String {
    let stems = stem::in_order(term);
    let quoted = stems.iter().map(|stem| quoted(stem));
    match stems.is_empty() {
        // Nothing holds no word at all.
        true => "''".to_owned(),
        false => format!("({})", quoted.collect::<Vec<_>>().join(" <-> ")),
    }
}

fn quoted(stem: &str) -> String {
    format!("'{}'", stem.replace('\\', "\\\\").replace('\'', "''"))
}

fn ts_vector(title: &str, body: &str) -> String {
    let mut vector = String::new();
    // A phrase does not reach from the title into the body.
    let title = stem::in_order(title);
    let gap = title.len() + 2;
    let placed = title.into_iter().enumerate();
    let body = stem::in_order(body).into_iter().enumerate();
    let body = body.map(|(place, stem)| (place + gap, stem));
    for (place, stem) in placed.chain(body) {
        if stem.len() <= STEM_BYTES_MAX {
            let place = (place + 1).min(PLACES_MAX);
            let _ = write!(vector, "{}:{place} ", quoted(&stem));
        }
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tsvector_holds_the_stems_of_fts5_at_their_places() {
        assert_eq!(
            ts_vector("Deploys", "it's failing"),
            "'deploi':1 'it':4 's':5 'fail':6 "
        );
        assert_eq!(ts_phrase("failing_tests"), "('fail' <-> 'test')");
        assert_eq!(ts_phrase("?!"), "''");
        let long = "x".repeat(STEM_BYTES_MAX + 1);
        assert_eq!(ts_vector("", &long), "");
    }
}
