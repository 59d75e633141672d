//! Vectors: which texts of a row get one, and how they are kept small and compared.

use crate::memory::Kind;

/// Numbers that one model gives a text. Vectors of two models stand side by side, as one of twice
/// the length.
pub const DIMENSIONS: usize = 384;
/// Numbers in the longest vector that is kept.
const DIMENSIONS_MAX: usize = 4_096;

/// What a vector stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// One field of the row, in its own words.
    Field,
    /// One sentence of a field that has several.
    Sentence,
    /// All fields together.
    Joined,
    /// The row after what it speaks of, or what came before it.
    Context,
    /// A question that the row is said to answer.
    Asked,
}

/// Name of the fields that are questions which a row answers.
pub const ASKED_AS: &str = "asked_as";

/// Vectors of one role that a row may have.
const ROLE_MAX: i64 = 1_000;

impl Role {
    /// The vector's place among those of its row.
    pub const fn ordinal(self, n: usize) -> i64 {
        self as i64 * ROLE_MAX + n as i64
    }

    pub const fn of(ordinal: i64) -> Self {
        match ordinal / ROLE_MAX {
            0 => Self::Field,
            1 => Self::Sentence,
            2 => Self::Joined,
            3 => Self::Context,
            _ => Self::Asked,
        }
    }

    /// Whether a scan looks at it; the others only judge what the scan found.
    pub const fn is_scanned(self) -> bool {
        matches!(self, Self::Field | Self::Joined | Self::Asked)
    }
}

/// A row as it is embedded.
#[derive(Clone, Debug)]
pub struct Embeddable {
    pub kind: Kind,
    pub title: Option<String>,
    /// Name and text of each field, in order.
    pub fields: Vec<(String, String)>,
}

/// Words of a sentence that is worth a vector.
const SENTENCE_WORDS_MIN: usize = 3;
/// What begins the text of an attempt that was ruled out.
pub const RULED_OUT: &str = "tried and ruled out: ";
/// Fields that name things instead of saying something.
const SAYS_NOTHING: [&str; 5] = ["about", "pieces", "tags", "paths", ASKED_AS];
/// Fields that are the row's own words, whatever else it says.
const MAIN: [&str; 6] = [
    "summary",
    "body",
    "decision",
    "what_happened",
    "prompt_text",
    "notes",
];

impl Embeddable {
    /// The row's fields in their own words, the main one first.
    fn plain(&self) -> Vec<String> {
        let speaking: Vec<&(String, String)> = self
            .fields
            .iter()
            .filter(|(name, _)| !SAYS_NOTHING.contains(&name.as_str()))
            .collect();
        let main = speaking
            .iter()
            .position(|(name, _)| MAIN.contains(&name.as_str()));
        // The titles of the operator's words are labels that all of them share.
        let title = self
            .title
            .as_deref()
            .filter(|_| !matches!(self.kind, Kind::Confirmation | Kind::OperatorInput));
        let mut texts = Vec::new();
        match (title, main) {
            (Some(title), Some(i)) => texts.push(format!("{title}. {}", speaking[i].1)),
            (Some(title), None) => texts.push(title.to_owned()),
            (None, Some(i)) => texts.push(speaking[i].1.clone()),
            (None, None) => {}
        }
        let others = speaking
            .iter()
            .enumerate()
            .filter(|(i, _)| Some(*i) != main)
            .map(|(_, (_, text))| text.strip_prefix(RULED_OUT).unwrap_or(text).to_owned());
        texts.extend(others);
        if texts.is_empty() {
            let own = self.fields.iter().filter(|(name, _)| name != ASKED_AS);
            texts.extend(own.map(|(_, text)| text.clone()));
        }
        texts
    }

    /// The words that stand for the row where another one speaks of it.
    pub fn main(&self) -> String {
        self.plain().into_iter().next().unwrap_or_default()
    }

    /// Every text of the row that gets a vector, with its place. `before` is the
    /// main text of what the row speaks of, else of what came before it.
    pub fn texts(&self, before: Option<&str>) -> Vec<(i64, String)> {
        let plain = self.plain();
        let mut texts: Vec<(i64, String)> = Vec::new();
        let mut add = |role: Role, all: Vec<String>| {
            texts.extend(
                all.into_iter()
                    .take(ROLE_MAX as usize)
                    .enumerate()
                    .map(|(n, text)| (role.ordinal(n), text)),
            )
        };
        if plain.len() > 1 {
            add(Role::Joined, vec![plain.join("\n")]);
        }
        if let (Some(before), Some(main)) = (before.filter(|b| !b.trim().is_empty()), plain.first())
        {
            add(Role::Context, vec![format!("{before}\n{main}")]);
        }
        add(
            Role::Sentence,
            plain.iter().flat_map(|field| sentences(field)).collect(),
        );
        let asked = self.fields.iter().filter(|(name, _)| name == ASKED_AS);
        add(Role::Asked, asked.map(|(_, text)| text.clone()).collect());
        add(Role::Field, plain);
        texts
    }
}

/// The sentences of a text that has more than one, without those that say too little.
fn sentences(text: &str) -> Vec<String> {
    let text = text.trim_end();
    // A picture's caption in brackets is no part of what was said.
    let text = text
        .strip_suffix(']')
        .and_then(|t| t.rsplit_once('['))
        .map_or(text, |(said, _)| said);
    let mut found = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let ends = |(i, c): (usize, char)| {
            c == '\n'
                || (".!?;".contains(c) && rest[i + c.len_utf8()..].starts_with(char::is_whitespace))
        };
        let end = rest
            .char_indices()
            .find(|at| ends(*at))
            .map_or(rest.len(), |(i, c)| i + c.len_utf8());
        let sentence = rest[..end].trim();
        if sentence.split_whitespace().count() >= SENTENCE_WORDS_MIN {
            found.push(sentence.to_owned());
        }
        rest = &rest[end..];
    }
    if found.len() > 1 { found } else { Vec::new() }
}

/// Scales a vector to length one; a vector of nothing stays as it is.
pub fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x /= length);
    }
}

/// A vector in a quarter of the space: whole numbers, and what one of them is worth.
pub fn quantise(vector: &[f32]) -> (Vec<i8>, f32) {
    let largest = vector.iter().fold(0f32, |most, x| most.max(x.abs()));
    if largest == 0.0 {
        return (vec![0; vector.len()], 0.0);
    }
    let step = largest / 127.0;
    (
        vector.iter().map(|x| (x / step).round() as i8).collect(),
        step,
    )
}

/// The vector as it lies on disk.
pub fn to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// The vector that these bytes are, of whatever length, when they are one.
pub fn from_bytes(bytes: &[u8]) -> Option<Vec<f32>> {
    let vector: Vec<f32> = bytes
        .as_chunks::<4>()
        .0
        .iter()
        .map(|b| f32::from_le_bytes(*b))
        .collect();
    let whole = bytes.len() == vector.len() * 4 && (1..=DIMENSIONS_MAX).contains(&vector.len());
    (whole && vector.iter().all(|x| x.is_finite())).then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(
        kind: Kind,
        title: Option<&str>,
        fields: &[(&str, &str)],
        before: Option<&str>,
    ) -> Vec<String> {
        let fields = fields
            .iter()
            .map(|(n, t)| ((*n).to_owned(), (*t).to_owned()))
            .collect();
        let row = Embeddable {
            kind,
            title: title.map(str::to_owned),
            fields,
        };
        row.texts(before)
            .into_iter()
            .map(|(ordinal, text)| format!("{:?} {text}", Role::of(ordinal)).replace('\n', " / "))
            .collect()
    }

    #[test]
    fn every_field_gets_a_vector_and_so_do_its_sentences_the_whole_and_its_context() {
        let wrap = [
            ("summary", "did x"),
            ("operator_visible_effect", "it is blue"),
            ("tried_and_ruled_out", "tried and ruled out: red: ugly"),
        ];
        assert_eq!(
            texts(Kind::Wrap, None, &wrap, Some("before")),
            [
                "Joined did x / it is blue / red: ugly",
                "Context before / did x",
                "Field did x",
                "Field it is blue",
                "Field red: ugly"
            ]
        );
        let input = [
            ("prompt_text", "not blue"),
            ("triggered_action", "reverted"),
        ];
        assert_eq!(
            texts(
                Kind::OperatorInput,
                Some("lena corrected Mira"),
                &input,
                None
            ),
            [
                "Joined not blue / reverted",
                "Field not blue",
                "Field reverted"
            ]
        );
        let decision = [("context", "why"), ("decision", "we do")];
        assert_eq!(
            texts(Kind::Decision, Some("One way"), &decision, None),
            [
                "Joined One way. we do / why",
                "Field One way. we do",
                "Field why"
            ]
        );
        assert_eq!(
            texts(Kind::Note, None, &[("body", "plain")], None),
            ["Field plain"]
        );
        assert_eq!(
            texts(
                Kind::Confirmation,
                Some("lena said"),
                &[("about", "about: x")],
                None
            ),
            ["Field about: x"]
        );
        assert_eq!(
            texts(
                Kind::Note,
                None,
                &[("body", "It is blue now. See v1.5 of it! Ok. [a photo]")],
                None
            ),
            [
                "Sentence It is blue now.",
                "Sentence See v1.5 of it!",
                "Field It is blue now. See v1.5 of it! Ok. [a photo]"
            ]
        );
    }

    #[test]
    fn a_small_vector_says_nearly_what_the_whole_one_does() {
        let mut vector: Vec<f32> = (0..DIMENSIONS)
            .map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0)
            .collect();
        normalise(&mut vector);
        let (codes, step) = quantise(&vector);
        let cosine: f32 = vector
            .iter()
            .zip(&codes)
            .map(|(x, c)| x * f32::from(*c) * step)
            .sum();
        assert!((cosine - 1.0).abs() < 0.005, "{cosine}");
        assert_eq!(quantise(&[0.0, 0.0]), (vec![0, 0], 0.0));
    }

    #[test]
    fn bytes_that_are_no_vector_are_refused() {
        for length in [1, DIMENSIONS, 2 * DIMENSIONS] {
            let vector = vec![0.5; length];
            assert_eq!(from_bytes(&to_bytes(&vector)), Some(vector));
        }
        assert_eq!(from_bytes(&[]), None);
        assert_eq!(from_bytes(&[0; 13]), None);
        assert_eq!(from_bytes(&[0; (DIMENSIONS_MAX + 1) * 4]), None);
        assert_eq!(from_bytes(&to_bytes(&[f32::NAN; DIMENSIONS])), None);
    }
}
