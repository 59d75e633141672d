//! Rules of the operator's page: cursors and filters, why a signal is stuck, what a metric counts.

pub mod alike;
pub mod metrics;
pub mod stuck;

use crate::limits::{PAGE_ROWS, PAGE_ROWS_MAX, PAGE_WORDS_MAX};
use crate::moment::Moment;
use crate::problem::Problem;

/// Where a list goes on: after a time, and among those of one time after a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub at: Moment,
    pub row: i64,
}

impl Cursor {
    /// As it goes over the wire: opaque to whoever gets it, and good for one list.
    pub fn write(self, list: &str) -> String {
        format!("{list}.{:x}.{:x}", self.at.0, self.row)
    }

    pub fn parse(list: &str, text: &str) -> Result<Self, Problem> {
        let hex = |part: &str| u64::from_str_radix(part, 16).ok().map(|n| n as i64);
        let read = || {
            let (of, place) = text.split_once('.')?;
            let (at, row) = place.split_once('.')?;
            let at = Moment(hex(at)?);
            Some((of, Self { at, row: hex(row)? }))
        };
        let why = match read() {
            Some((of, cursor)) if of == list => return Ok(cursor),
            Some(_) => "is another list's: pass on what `next` of this one said, or leave it out",
            None => "is none: pass on what `next` said, or leave it out",
        };
        Err(Problem::field("cursor", why))
    }
}

/// How many rows are asked for.
pub fn rows_wanted(limit: Option<usize>) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(PAGE_ROWS);
    match (1..=PAGE_ROWS_MAX).contains(&limit) {
        true => Ok(limit),
        false => Err(Problem::field(
            "limit",
            format!("is {limit} and must be 1 to {PAGE_ROWS_MAX}"),
        )),
    }
}

/// The words of a search.
pub fn words(text: Option<&str>) -> Result<Vec<String>, Problem> {
    let words: Vec<String> = text
        .unwrap_or_default()
        .split_whitespace()
        .map(str::to_owned)
        .collect();
    match words.len() <= PAGE_WORDS_MAX {
        true => Ok(words),
        false => Err(Problem::field(
            "words",
            format!("may be {PAGE_WORDS_MAX}; these are {}", words.len()),
        )),
    }
}

/// A range of time that is no nonsense.
pub fn range(since: Option<Moment>, until: Option<Moment>) -> Result<(), Problem> {
    match (since, until) {
        (Some(since), Some(until)) if since >= until => {
            Err(Problem::field("since", "must be before `until`"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_and_nonsense_is_refused() {
        for (at, row) in [(0, 0), (1_763_200_000_123_456, 42), (-5, -1)] {
            let cursor = Cursor {
                at: Moment(at),
                row,
            };
            assert_eq!(Cursor::parse("story", &cursor.write("story")), Ok(cursor));
            let other = Cursor::parse("inbox", &cursor.write("story")).unwrap_err();
            assert!(other.message.contains("another list's"), "{other:?}");
        }
        for wrong in [
            "", "x", "1", "1.2", "l.", "l.1", "l.1.", "l..1", "l.1.2.3", "l.1.g",
        ] {
            assert!(Cursor::parse("l", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn filters_that_make_no_sense_are_refused() {
        assert!(rows_wanted(Some(0)).is_err());
        assert!(rows_wanted(Some(PAGE_ROWS_MAX + 1)).is_err());
        assert_eq!(rows_wanted(None), Ok(PAGE_ROWS));
        assert!(words(Some(&"a ".repeat(PAGE_WORDS_MAX + 1))).is_err());
        assert_eq!(words(Some(" a  b ")), Ok(vec!["a".into(), "b".into()]));
        assert!(range(Some(Moment(2)), Some(Moment(1))).is_err());
        assert!(range(Some(Moment(2)), None).is_ok());
    }
}
