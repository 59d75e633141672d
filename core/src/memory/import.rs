//! Rows that come from a file: what a line may say, what it points at, and in which order lines go
//! in.

use crate::moment::Moment;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// One line of an import: its own id, what it is, and the fields of its verb.
/// Fields that Prism does not know are left out.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Line {
    #[serde(deserialize_with = "id")]
    pub id: String,
    pub kind: String,
    pub identity: String,
    pub surface: Option<String>,
    /// Rows of one session in the order of their times are neighbours.
    #[serde(deserialize_with = "optional_id")]
    pub session: Option<String>,
    #[serde(deserialize_with = "time")]
    pub created_at: Option<Moment>,
    pub text: Option<String>,
    pub title: Option<String>,
    pub subject: Option<String>,
    pub tags: Vec<String>,
    pub asked_as: Vec<String>,
    #[serde(deserialize_with = "optional_id")]
    pub supersedes: Option<String>,
    // Deltas.
    pub summary: Option<String>,
    pub next: Option<String>,
    pub open_loops: Vec<String>,
    pub touched_files: Vec<String>,
    pub operator_visible_effect: Option<String>,
    pub tried_and_ruled_out: Vec<Attempt>,
    pub operator_sees: Option<String>,
    pub pieces: Vec<String>,
    pub would_break_it: Option<String>,
    // The operator's word.
    pub refers_to: Option<String>,
    pub verdict: Option<String>,
    pub notes: Option<String>,
    pub class: Option<String>,
    pub prompt_text: Option<String>,
    pub triggered_action: Option<String>,
    pub reverses_delta: Option<String>,
    pub confidence: Option<String>,
    // Artifacts.
    pub body: Option<String>,
    pub status: Option<String>,
    pub context: Option<String>,
    pub decision: Option<String>,
    pub consequences: Option<String>,
    pub what_happened: Option<String>,
    pub choice_point: Option<String>,
    pub prevention: Option<String>,
    pub went_well: Option<String>,
    pub went_badly: Option<String>,
    pub change: Option<String>,
    pub paths: Vec<String>,
}

/// An approach that was tried and ruled out: what and why, or one sentence that says both.
#[derive(Clone, Debug, Default)]
pub struct Attempt {
    pub approach: String,
    pub outcome: String,
    pub ruled_out_in_delta: Option<String>,
}

impl<'de> Deserialize<'de> for Attempt {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(
            untagged,
            expecting = "an attempt is a sentence, or an object with `approach` and `outcome`"
        )]
        enum Told {
            Sentence(String),
            Fields {
                approach: String,
                outcome: Option<String>,
                ruled_out_in_delta: Option<String>,
            },
        }
        Ok(match Told::deserialize(d)? {
            Told::Sentence(approach) => Self {
                approach,
                outcome: NOT_SAID.into(),
                ruled_out_in_delta: None,
            },
            Told::Fields {
                approach,
                outcome,
                ruled_out_in_delta,
            } => Self {
                approach,
                outcome: outcome.unwrap_or_else(|| NOT_SAID.into()),
                ruled_out_in_delta,
            },
        })
    }
}

/// What stands where a file leaves an answer out that an agent would have had to give.
pub const NOT_SAID: &str = "not said";

/// A line without the fields that say null: they are left out, whatever they would hold.
pub fn without_nulls(row: &Value) -> Value {
    match row {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, v)| !v.is_null())
            .map(|(k, v)| (k.clone(), without_nulls(v)))
            .collect(),
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Ids of files are words or numbers.
fn id<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    optional_id(d).map(Option::unwrap_or_default)
}

fn optional_id<'de, D: Deserializer<'de>>(d: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Id {
        Text(String),
        Number(i64),
        None,
    }
    Ok(match Id::deserialize(d)? {
        Id::Text(text) => Some(text.trim().to_owned()).filter(|t| !t.is_empty()),
        Id::Number(number) => Some(number.to_string()),
        Id::None => None,
    })
}

/// A time, or a day.
fn time<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Moment>, D::Error> {
    let Some(text) = Option::<String>::deserialize(d)? else {
        return Ok(None);
    };
    let text = text.trim();
    let parsed = Moment::parse(text)
        .or_else(|| Moment::parse(&format!("{text}Z")))
        .or_else(|| Moment::parse(&format!("{text}T00:00:00Z")));
    parsed.map(Some).ok_or_else(|| {
        serde::de::Error::custom(format!("{:?} is not an ISO 8601 time such as 2026-11-15T09:30:00Z, nor a day such as 2026-11-15", crate::text::clip(text, 40)))
    })
}

impl Line {
    /// Everything this line points at, as written.
    pub fn references(&self) -> impl Iterator<Item = &str> {
        let single = [&self.refers_to, &self.supersedes, &self.reverses_delta]
            .into_iter()
            .flatten();
        let attempts = self
            .tried_and_ruled_out
            .iter()
            .filter_map(|a| a.ruled_out_in_delta.as_ref());
        single
            .chain(attempts)
            .chain(&self.pieces)
            .map(String::as_str)
    }

    /// The first of these that says something.
    pub fn said<'a>(&'a self, fields: &[&'a Option<String>]) -> Option<&'a str> {
        fields
            .iter()
            .find_map(|f| f.as_deref().map(str::trim).filter(|t| !t.is_empty()))
    }
}

/// The id that a reference to another line names: `delta:a12` and `a12` are both `a12`.
pub fn target(reference: &str) -> &str {
    let reference = reference.trim();
    match reference.split_once(':') {
        Some((kind, rest)) if kind.chars().all(|c| c.is_ascii_alphabetic() || c == '_') => {
            rest.trim()
        }
        _ => reference,
    }
}

/// Puts every line after those it points at, and otherwise leaves the order as it is.
/// Lines that point at each other in a circle are named instead.
pub fn order(lines: &[(String, Vec<String>)]) -> Result<Vec<usize>, Vec<String>> {
    let place: HashMap<&str, usize> = lines
        .iter()
        .enumerate()
        .map(|(i, (id, _))| (id.as_str(), i))
        .collect();
    let (mut done, mut open, mut ordered) = (
        HashSet::new(),
        HashSet::new(),
        Vec::with_capacity(lines.len()),
    );
    for start in 0..lines.len() {
        // Depth first, with a stack of our own: a file may be one long chain.
        let mut stack = vec![(start, 0)];
        while let Some((at, next)) = stack.pop() {
            if done.contains(&at) {
                continue;
            }
            open.insert(at);
            let wanted = lines[at]
                .1
                .iter()
                .skip(next)
                .enumerate()
                .find_map(|(i, id)| {
                    let to = *place.get(id.as_str())?;
                    (to != at && !done.contains(&to)).then_some((next + i, to))
                });
            match wanted {
                Some((_, to)) if open.contains(&to) => {
                    return Err(stack
                        .iter()
                        .map(|(i, _)| *i)
                        .chain([at, to])
                        .map(|i| lines[i].0.clone())
                        .collect());
                }
                Some((i, to)) => stack.extend([(at, i + 1), (to, 0)]),
                None => {
                    done.insert(at);
                    open.remove(&at);
                    ordered.push(at);
                }
            }
        }
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(given: &[(&str, &[&str])]) -> Vec<(String, Vec<String>)> {
        given
            .iter()
            .map(|(id, refs)| {
                (
                    (*id).to_owned(),
                    refs.iter().map(|r| (*r).to_owned()).collect(),
                )
            })
            .collect()
    }

    #[test]
    fn a_line_goes_in_after_what_it_points_at() {
        assert_eq!(
            order(&lines(&[("a", &[]), ("b", &[]), ("c", &["a"])])).unwrap(),
            [0, 1, 2]
        );
        assert_eq!(
            order(&lines(&[("a", &["c", "x"]), ("b", &["a"]), ("c", &[])])).unwrap(),
            [2, 0, 1]
        );
        assert_eq!(order(&lines(&[("a", &["a"])])).unwrap(), [0]);
        assert!(
            order(&lines(&[("a", &["b"]), ("b", &["a"])]))
                .unwrap_err()
                .contains(&"b".to_owned())
        );
    }

    #[test]
    fn a_line_is_lenient_about_what_it_does_not_need() {
        let line: Line = serde_json::from_str(r#"{"id": 7, "kind": "note", "identity": "Mira", "created_at": "2026-03-14", "text": "x", "colour": "red"}"#).unwrap();
        assert_eq!(
            (
                line.id.as_str(),
                line.created_at.unwrap().to_string().as_str()
            ),
            ("7", "2026-03-14T00:00:00.000000Z")
        );
        let row = serde_json::json!({"id": "a", "tags": null, "tried_and_ruled_out": [{"approach": "x", "outcome": "y", "ruled_out_in_delta": null, "why": "z"}]});
        let line: Line = serde_json::from_value(without_nulls(&row)).unwrap();
        assert_eq!(
            (
                line.tags.len(),
                line.tried_and_ruled_out[0].approach.as_str()
            ),
            (0, "x")
        );
        let row = serde_json::json!({"id": "a", "tried_and_ruled_out": ["polling: too slow", {"approach": "x"}]});
        let line: Line = serde_json::from_value(row).unwrap();
        let told: Vec<(&str, &str)> = line
            .tried_and_ruled_out
            .iter()
            .map(|a| (a.approach.as_str(), a.outcome.as_str()))
            .collect();
        assert_eq!(told, [("polling: too slow", NOT_SAID), ("x", NOT_SAID)]);
        let error = serde_json::from_str::<Line>(r#"{"id": "a", "tried_and_ruled_out": [7]}"#)
            .unwrap_err()
            .to_string();
        assert!(error.contains("an attempt is a sentence"), "{error}");
        let error = serde_json::from_str::<Line>(r#"{"id": "a", "created_at": "tomorrow"}"#)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("\"tomorrow\" is not an ISO 8601 time"),
            "{error}"
        );
    }

    #[test]
    fn a_reference_names_a_line_with_or_without_its_kind() {
        for (written, id) in [
            ("delta:a12", "a12"),
            ("a12", "a12"),
            (" delta: a12 ", "a12"),
            ("operator_input:7", "7"),
            ("notes.md#a: b", "notes.md#a: b"),
        ] {
            assert_eq!(target(written), id);
        }
    }
}
