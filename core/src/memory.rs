//! Memory: what a row is, what it says of itself, and what it touches.

pub mod brief;
pub mod entity;
pub mod generation;
pub mod import;
pub mod markdown;
pub mod operator;
pub mod question;
pub mod recall;
pub mod redact;
pub mod reference;
pub mod row;
pub mod stem;
pub mod surface;
pub mod transcript;
pub mod vector;

use crate::limits::{
    ASKED_AS_CHARS_MAX, ASKED_AS_GIVEN_MAX, ASKED_AS_MAX, LIST_ITEMS_MAX, TEXT_CHARS_MAX,
};
use crate::signal::names;
use question::cue;
use vector::ASKED_AS;

names! {
    /// What kind of row a delta is.
    DeltaKind {
        Start = "start",
        Wrap = "wrap",
        Checkpoint = "checkpoint",
        Pickup = "pickup",
        BootstrapOnly = "bootstrap_only",
        Note = "note",
        IntegrationNarrative = "integration_narrative",
        Other = "other",
    }
}

impl DeltaKind {
    /// Bookkeeping kinds say that something began, not what was learned.
    pub const fn is_recalled(self) -> bool {
        !matches!(self, Self::Start | Self::Pickup | Self::BootstrapOnly)
    }
}

names! {
    /// What can be recalled.
    Kind {
        Wrap = "wrap",
        Checkpoint = "checkpoint",
        Note = "note",
        IntegrationNarrative = "integration_narrative",
        Other = "other",
        Confirmation = "confirmation",
        OperatorInput = "operator_input",
        Decision = "decision",
        Spec = "spec",
        Plan = "plan",
        Todo = "todo",
        Journal = "journal",
        Retro = "retro",
        Postmortem = "postmortem",
        Fact = "fact",
        Rule = "rule",
    }
}

names! {
    /// How rows, entities, signals and sessions hang together.
    EdgeKind {
        Confirms = "CONFIRMS",
        Labels = "LABELS",
        Combines = "COMBINES",
        RuledOutIn = "RULED_OUT_IN",
        RepliesTo = "REPLIES_TO",
        Mentions = "MENTIONS",
        Supersedes = "SUPERSEDES",
        ReferencesRecall = "REFERENCES_RECALL",
    }
}

impl Kind {
    pub fn of_delta(kind: DeltaKind) -> Option<Self> {
        kind.is_recalled()
            .then(|| Self::from_name(kind.name()))
            .flatten()
    }
}

/// Checks a text that must say something.
pub fn required(field: &str, text: &str) -> Result<String, crate::Problem> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(crate::Problem::field(field, "must say something"));
    }
    bounded(field, trimmed)
}

/// Checks a text that may be left out; blank counts as left out.
pub fn optional(field: &str, text: Option<&str>) -> Result<Option<String>, crate::Problem> {
    text.map(str::trim)
        .filter(|t| !t.is_empty())
        .map(|t| bounded(field, t))
        .transpose()
}

fn bounded(field: &str, text: &str) -> Result<String, crate::Problem> {
    within(field, text, TEXT_CHARS_MAX)?;
    Ok(text.to_owned())
}

fn within(field: &str, text: &str, most: usize) -> Result<(), crate::Problem> {
    match text.chars().count() {
        chars if chars > most => Err(crate::Problem::field(
            field,
            format!("has {chars} characters and may have {most}"),
        )),
        _ => Ok(()),
    }
}

/// Checks how many items a list has, and how many characters each of them.
pub fn check_list(field: &str, items: &[String], chars: usize) -> Result<(), crate::Problem> {
    check_number(field, items.len(), LIST_ITEMS_MAX)?;
    let mut each = items.iter().enumerate();
    each.try_for_each(|(i, item)| within(&format!("{field}[{i}]"), item, chars))
}

/// Checks how many items a list has.
pub fn check_number(field: &str, items: usize, most: usize) -> Result<(), crate::Problem> {
    if items > most {
        return Err(crate::Problem::field(
            field,
            format!("has {items} items and may have {most}"),
        ));
    }
    Ok(())
}

/// Checks the questions that a row is said to answer; blank ones and repetitions fall away.
pub fn asked_as(questions: &[String]) -> Result<Vec<String>, crate::Problem> {
    // Each is compared with the others: how many there are is known first.
    check_number("asked_as", questions.len(), ASKED_AS_GIVEN_MAX)?;
    let mut asked: Vec<String> = Vec::new();
    for (i, question) in questions.iter().enumerate() {
        let question = question.trim();
        within(&format!("asked_as[{i}]"), question, ASKED_AS_CHARS_MAX)?;
        let known = asked.iter().any(|q| q.eq_ignore_ascii_case(question));
        if !question.is_empty() && !known {
            asked.push(question.to_owned());
        }
    }
    check_number("asked_as", asked.len(), ASKED_AS_MAX)?;
    Ok(asked)
}

/// One searchable part of a row. Each gets a vector of its own: joined into
/// one text, the words a person remembers drown in the rest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    pub text: String,
}

/// A row as recall sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indexed {
    pub kind: Kind,
    pub title: Option<String>,
    /// What a person is shown.
    pub text: String,
    /// What the row is, in words people search with: who confirmed, corrected, ruled out.
    pub label: String,
    pub fields: Vec<Field>,
    /// Words that are looked up but not shown, such as names of files.
    pub also: String,
    /// What kind of answer it can be.
    pub cues: u32,
}

impl Indexed {
    pub fn new(
        kind: Kind,
        title: Option<&str>,
        label: impl Into<String>,
        fields: Vec<(&'static str, Option<String>)>,
    ) -> Self {
        let fields: Vec<Field> = fields
            .into_iter()
            .filter_map(|(name, text)| {
                Some(Field {
                    name,
                    text: text.filter(|t| !t.trim().is_empty())?,
                })
            })
            .collect();
        let text = fields
            .iter()
            .map(|f| f.text.as_str())
            .collect::<Vec<_>>()
            .join("\n");
        let mut cues = question::cues_of_text(
            fields.first().map(|f| f.text.as_str()).unwrap_or_default(),
            &text,
        );
        for (name, bit) in [
            ("operator_visible_effect", cue::EFFECT),
            ("tried_and_ruled_out", cue::DEAD_END),
        ] {
            if fields.iter().any(|f| f.name == name) {
                cues |= bit;
            }
        }
        cues |= match kind {
            Kind::Decision => cue::PIVOT | cue::DECISION,
            Kind::IntegrationNarrative => cue::NARRATIVE,
            Kind::Postmortem => cue::TROUBLE,
            Kind::OperatorInput | Kind::Confirmation => cue::OPERATOR,
            _ => 0,
        };
        Self {
            kind,
            title: title.map(str::to_owned),
            text,
            label: label.into(),
            fields,
            also: String::new(),
            cues,
        }
    }

    /// Adds words under which it is found.
    pub fn found_by(mut self, words: &[String]) -> Self {
        self.also = words.join(" ");
        self
    }

    /// Adds questions that it answers: found by them, and not shown as its words.
    pub fn asked_as(mut self, questions: Vec<String>) -> Self {
        for text in questions {
            self.also.push('\n');
            self.also.push_str(&text);
            self.fields.push(Field {
                name: ASKED_AS,
                text,
            });
        }
        self
    }

    /// Says what the operator did in it.
    pub fn with_cue(mut self, cue: u32) -> Self {
        self.cues |= cue;
        self
    }

    /// How many words it has.
    pub fn words(&self) -> usize {
        self.text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookkeeping_deltas_are_not_recalled_and_the_others_have_a_kind() {
        for kind in DeltaKind::ALL {
            assert_eq!(
                Kind::of_delta(*kind).is_some(),
                kind.is_recalled(),
                "{kind}"
            );
        }
        assert!(
            !DeltaKind::Start.is_recalled()
                && !DeltaKind::Pickup.is_recalled()
                && !DeltaKind::BootstrapOnly.is_recalled()
        );
    }

    #[test]
    fn a_row_answers_up_to_three_questions_each_said_once() {
        let asked = |questions: &[&str]| {
            let questions: Vec<String> = questions.iter().map(|q| (*q).to_owned()).collect();
            asked_as(&questions)
        };
        let thrice = asked(&["why?", " Why? ", "", "how?", "when?"]).unwrap();
        assert_eq!(thrice, ["why?", "how?", "when?"]);
        assert!(asked(&["a", "b", "c", "d"]).is_err());
        // What is far too much is refused before anything is compared.
        assert!(asked(&["a"; ASKED_AS_GIVEN_MAX]).is_ok());
        assert!(asked(&["a"; ASKED_AS_GIVEN_MAX + 1]).is_err());
        assert!(asked(&[&"x".repeat(ASKED_AS_CHARS_MAX + 1)]).is_err());
        let said = vec![("body", Some("the ring is kept".to_owned()))];
        let row = Indexed::new(Kind::Note, None, "", said).asked_as(thrice);
        assert_eq!(row.text, "the ring is kept", "its words are its own");
        assert!(row.also.contains("how?") && row.fields.len() == 4);
    }

    #[test]
    fn a_text_must_say_something_and_not_too_much() {
        assert!(
            required("summary", "  ")
                .unwrap_err()
                .message
                .contains("summary")
        );
        assert!(required("summary", &"x".repeat(TEXT_CHARS_MAX + 1)).is_err());
        assert_eq!(required("summary", " x ").unwrap(), "x");
        assert_eq!(optional("next", Some("  ")).unwrap(), None);
    }
}
