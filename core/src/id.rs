//! Names and ids that people quote.

use crate::problem::{Code, Problem};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The identity that has no inbox: an agent that never said who it is.
pub const BOT: &str = "Bot";

/// An identity in its canonical spelling, such as `Donna`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Identity(String);

impl Identity {
    pub const CHARS_MAX: usize = 32;

    /// An operator whom nobody has named.
    pub fn operator() -> Self {
        Self("operator".to_owned())
    }

    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut chars = text.chars();
        let ok = text.len() <= Self::CHARS_MAX
            && chars.next().is_some_and(|c| c.is_ascii_alphabetic())
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        if ok {
            return Ok(Self(text.to_owned()));
        }
        Err(Problem::new(
            Code::InvalidIdentity,
            format!("{:?} is not an identity", crate::text::clip(text, 40)),
            "an identity starts with a letter and has at most 32 letters, digits, `_` or `-`",
        ))
    }

    /// The form two spellings of one identity share.
    pub fn folded(&self) -> String {
        self.0.to_ascii_lowercase()
    }

    pub fn is(&self, other: &str) -> bool {
        self.0.eq_ignore_ascii_case(other)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Identity {
    type Error = Problem;
    fn try_from(text: String) -> Result<Self, Problem> {
        Self::parse(&text)
    }
}

impl From<Identity> for String {
    fn from(identity: Identity) -> Self {
        identity.0
    }
}

/// The name of a project as people type it (`pid`), such as `PID-PGR01`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProjectName(String);

impl ProjectName {
    pub const CHARS_MAX: usize = 64;

    pub fn parse(text: &str) -> Result<Self, Problem> {
        let ok = (1..=Self::CHARS_MAX).contains(&text.len())
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c));
        if ok {
            return Ok(Self(text.to_owned()));
        }
        Err(Problem::field(
            "pid",
            format!(
                "{:?} is not a project: 1 to 64 letters, digits, `.`, `_` or `-`",
                crate::text::clip(text, 80)
            ),
        ))
    }

    /// Makes a project name out of a folder's name.
    pub fn from_folder(folder: &str) -> Self {
        let mapped: String = folder
            .chars()
            .map(|c| {
                if c.is_ascii_alphanumeric() || "._-".contains(c) {
                    c
                } else {
                    '-'
                }
            })
            .collect();
        let trimmed = mapped.trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
        let cut: String = trimmed.chars().take(Self::CHARS_MAX).collect();
        Self(if cut.is_empty() {
            "default".into()
        } else {
            cut
        })
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for ProjectName {
    type Error = Problem;
    fn try_from(text: String) -> Result<Self, Problem> {
        Self::parse(&text)
    }
}

impl From<ProjectName> for String {
    fn from(name: ProjectName) -> Self {
        name.0
    }
}

/// A quoted id: the whole of it, or at least its first eight hex digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quoted(String);

impl Quoted {
    pub const DIGITS_MIN: usize = 8;

    /// Reads what a person or an agent quoted, with or without dashes.
    pub fn parse(field: &str, text: &str) -> Result<Self, Problem> {
        let hex: String = text
            .trim()
            .chars()
            .filter(|c| *c != '-')
            .collect::<String>()
            .to_ascii_lowercase();
        if hex.len() < Self::DIGITS_MIN
            || hex.len() > 32
            || !hex.chars().all(|c| c.is_ascii_hexdigit())
        {
            return Err(Problem::field(
                field,
                format!(
                    "{:?} is not an id: quote the whole id or at least its first 8 hex digits",
                    crate::text::clip(text, 60)
                ),
            ));
        }
        let mut dashed = String::with_capacity(36);
        for (i, c) in hex.chars().enumerate() {
            if matches!(i, 8 | 12 | 16 | 20) {
                dashed.push('-');
            }
            dashed.push(c);
        }
        Ok(Self(dashed))
    }

    /// The dashed lower-case text that a stored id must start with.
    pub fn prefix(&self) -> &str {
        &self.0
    }

    pub fn begins(&self, id: impl fmt::Display) -> bool {
        id.to_string().starts_with(&self.0)
    }

    pub fn is_whole(&self) -> bool {
        self.0.len() == 36
    }

    /// The smallest text above every id that has this prefix.
    pub fn upper(&self) -> String {
        format!("{}g", self.0)
    }
}

/// Returns the known names nearest to a misspelt one, best first.
pub fn nearest<'a>(
    wanted: &str,
    known: impl IntoIterator<Item = &'a str>,
    most: usize,
) -> Vec<String> {
    let wanted = wanted.to_lowercase();
    let mut scored: Vec<(usize, &str)> = known
        .into_iter()
        .map(|name| {
            let lower = name.to_lowercase();
            let mut d = distance(&wanted, &lower);
            if lower.starts_with(&wanted) || wanted.starts_with(&lower) {
                d = d.min(1);
            }
            (d, name)
        })
        .filter(|(d, name)| *d <= 2.max(name.len() / 2))
        .collect();
    scored.sort();
    scored
        .into_iter()
        .take(most)
        .map(|(_, name)| name.to_owned())
        .collect()
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let substituted = corner + usize::from(ca != *cb);
            corner = row[j + 1];
            row[j + 1] = substituted.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_a_letter_then_up_to_31_letters_digits_dashes() {
        for good in ["A", "Donna", "a-b_c9", &"x".repeat(32)] {
            assert!(Identity::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "9a",
            "-a",
            "a b",
            "a/b",
            "é",
            "*",
            &"x".repeat(33),
            "a\n",
        ] {
            assert!(Identity::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_becomes_a_project_name() {
        for (folder, name) in [
            ("prism", "prism"),
            ("my app (2)", "my-app--2-"),
            (".hidden", "hidden"),
            ("äö", "default"),
            ("", "default"),
        ] {
            assert_eq!(ProjectName::from_folder(folder).as_str(), name);
            assert!(ProjectName::parse(name).is_ok());
        }
    }

    #[test]
    fn an_id_may_be_quoted_by_eight_hex_digits_or_more() {
        assert_eq!(Quoted::parse("x", "2901D7CE").unwrap().prefix(), "2901d7ce");
        assert_eq!(
            Quoted::parse("x", "2901d7ce01").unwrap().prefix(),
            "2901d7ce-01"
        );
        assert!(
            Quoted::parse("x", "2901d7ce-0123-4567-89ab-cdef01234567")
                .unwrap()
                .is_whole()
        );
        for bad in [
            "",
            "2901d7c",
            "zzzzzzzz",
            "2901d7ce-0123-4567-89ab-cdef0123456789",
        ] {
            assert!(Quoted::parse("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest_known_ones() {
        let known = ["Donna", "Texi", "Lafonda", "Desiree"];
        assert_eq!(nearest("dona", known, 3), ["Donna"]);
        assert_eq!(nearest("Lafonds", known, 3)[0], "Lafonda");
        assert!(nearest("Zxqwvk", known, 3).is_empty());
    }
}
