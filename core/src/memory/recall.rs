//! Recall: several legs, one ranking, and a reason for every hit.
//!
//! A leg counts as much as it knows about this question: words by the share of
//! the question's weight that a row holds, meaning by how near it is. A leg that
//! knows nothing adds nothing, so it cannot drown one that does.

mod confidence;
mod phrasings;
mod places;
mod pointing;
mod signs;
mod standing;

use confidence::confidence;
pub use confidence::{LOW_CONFIDENCE, shown};
use phrasings::{Heard, best_phrasings};
pub use places::Places;
use places::places;
pub use pointing::{Asked, Points, Word, taken_for};
pub use signs::{Signs, Weights};
pub use standing::{Standing, VerdictOn, with_standing};

use crate::memory::operator::OWN_WORK_WEIGHT;
use crate::memory::question::asked_for::Sort;
use crate::memory::question::{Question, Window, cue};
use crate::moment::Moment;
use std::collections::HashMap;

/// Candidates that one leg hands over at the most.
pub const LEG_CANDIDATES: usize = 200;
/// Candidates whose surroundings are looked at.
pub const LOOKED_AROUND: usize = 120;
/// Rows beyond those asked for that the operator's word may still bring up.
pub const SPARE: usize = 8;
/// How far apart two rows of one session may be to count as neighbours, in microseconds.
pub const NEIGHBOUR_US: i64 = 2 * 3600 * 1_000_000;
/// The half-life of recency, in days.
pub const HALF_LIFE_DAYS: f64 = 180.0;
/// What the rare words of another phrasing count where the question has some of its own.
const OTHERS_POINT: f64 = 0.5;
/// How far certainty about words takes back what the kind of a row adds.
const CERTAINTY: f64 = 0.6;
/// From here on a person is told that a question sounds like asking for this sort of row.
const SPEAKS_FOR: f64 = 0.3;
/// Words beyond which a longer row gains nothing more.
const WORDS_CAP: u32 = 80;

impl Signs {
    /// The signs of words and meaning alone: those that other rows may borrow.
    pub fn content(&self) -> Self {
        Self {
            lexical: self.lexical,
            field: self.field,
            joined: self.joined,
            context: self.context,
            agreement: self.agreement,
            ..Self::default()
        }
    }

    /// The same, with what the operator and later rows say of the row.
    pub fn with_standing(self, standing: &Standing, question: &Question) -> Self {
        let said = standing.signs(question);
        Self {
            works: said.works,
            broken: said.broken,
            corrected: said.corrected,
            superseded: said.superseded,
            ..self
        }
    }
}

impl Weights {
    /// Each leg's name and weight.
    pub fn legs(&self) -> [(&'static str, f64); 4] {
        [
            ("lexical", self.lexical),
            ("vector", self.field + self.joined + self.context),
            ("graph", self.graph),
            ("recency", self.recency),
        ]
    }

    /// What a row is worth that shows these signs.
    pub fn score(&self, signs: &Signs) -> f64 {
        let pairs = self.values().into_iter().zip(signs.values());
        pairs.map(|(weight, sign)| weight * sign).sum()
    }

    /// What a row promises before its surroundings are known.
    fn promise(&self, seen: &Sighting) -> f64 {
        self.lexical * seen.own_words
            + (self.field + self.joined + self.context) * seen.nearest
            + if seen.mentions { self.graph } else { 0.0 }
            + self.between * seen.between
            + self.pointed * seen.pointed
    }
}

/// What the legs know of a row before anybody has looked around it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sighting {
    /// The share of the question's words that it holds.
    pub own_words: f64,
    /// The cosine of its best vector.
    pub nearest: f64,
    pub mentions: bool,
    /// As in [`Candidate`].
    pub between: f64,
    /// How many of the question's words point at it.
    pub pointed: f64,
}

/// The rows whose surroundings are worth a look, `n` at the most, in no order.
pub fn promising<Row: Ord>(
    seen: impl Iterator<Item = (Row, Sighting)>,
    weights: &Weights,
    n: usize,
) -> Vec<Row> {
    let scored = seen.map(|(row, seen)| (row, weights.promise(&seen)));
    best(scored, n)
}

/// The best of them, `n` at the most, in no order.
pub fn best<Row: Ord>(scored: impl Iterator<Item = (Row, f64)>, n: usize) -> Vec<Row> {
    let mut all: Vec<(Row, f64)> = scored.collect();
    if all.len() > n {
        all.select_nth_unstable_by(n, |a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(n);
    }
    all.into_iter().map(|(row, _)| row).collect()
}

/// How rare it is that something passed between the people of a question: 1 when hardly any of the
/// rows looked at say so, 0 when all of them do.
pub fn rarity(found: usize, looked_at: usize) -> f64 {
    1.0 - found.min(looked_at) as f64 / looked_at.max(1) as f64
}

/// How near a row's vectors are to the question's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Nearness {
    /// Of its best field, sentence or question that it answers.
    pub field: f64,
    pub joined: f64,
    pub context: f64,
    /// It is nearest by a question that it is said to answer.
    pub asked: bool,
}

impl Nearness {
    /// The same on another scale.
    pub fn on(self, scale: impl Fn(f64) -> f64) -> Self {
        Self {
            field: scale(self.field),
            joined: scale(self.joined),
            context: scale(self.context),
            ..self
        }
    }
}

/// A row that some leg brought, with what the legs know of it.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    pub id: String,
    pub identity: String,
    pub session: Option<String>,
    pub at: Moment,
    pub cues: u32,
    pub words: u32,
    /// Which of the question's words it holds, by number, and how much each weighs.
    pub matches: Vec<(usize, f64)>,
    /// None: it has no vectors yet, or there is no model.
    pub near: Option<Nearness>,
    /// It mentions a thing that the question names.
    pub mentions: bool,
    /// It is by one of the people that the question names and speaks of another: 1 when hardly any
    /// row does, less when many do.
    pub between: f64,
    /// Rows beside it, as places in the same list.
    pub beside: Vec<usize>,
    /// What it holds of each other phrasing of the question, in their order.
    pub also: Vec<Phrased>,
}

impl Candidate {
    /// What it holds of one phrasing; the question itself is the first.
    fn phrased(&self, phrasing: usize) -> (&[(usize, f64)], Option<Nearness>) {
        match phrasing.checked_sub(1) {
            None => (&self.matches, self.near),
            Some(n) => self
                .also
                .get(n)
                .map_or((&[], None), |other| (&other.matches, other.near)),
        }
    }
}

/// What a row holds of one phrasing of the question.
#[derive(Clone, Debug, Default)]
pub struct Phrased {
    /// As in [`Candidate`].
    pub matches: Vec<(usize, f64)>,
    pub near: Option<Nearness>,
}

/// All that the legs found for one question.
#[derive(Clone, Debug, Default)]
pub struct Candidates {
    pub rows: Vec<Candidate>,
    /// What all words of the question weigh together.
    pub mass: f64,
    /// The same, of each other phrasing.
    pub also_mass: Vec<f64>,
    /// The words of each phrasing in their order, the question's own first.
    pub words: Vec<Vec<Word>>,
    /// Days and months the question names.
    pub windows: Vec<Window>,
    /// The span before or after the release the question names.
    pub release: Option<(Moment, Moment)>,
    /// The times of the oldest and the newest row.
    pub span: (Moment, Moment),
}

/// How much a word tells: much when few rows hold it.
pub fn idf(rows: f64, holding: f64) -> f64 {
    (1.0 + (rows - holding + 0.5) / (holding + 0.5))
        .max(1.0)
        .ln()
}

/// What one word adds to a row: its idf, less when the row is long or repeats it. `share` is 0 to
/// 1.
pub fn word_weight(idf: f64, share: f64) -> f64 {
    1.7 * idf * share
}

/// A row on its way up.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub id: String,
    pub score: f64,
    pub why: Vec<String>,
}

/// Best first; ties in a fixed order, so that the same question gets the same answer.
pub fn sorted(mut rows: Vec<Scored>) -> Vec<Scored> {
    rows.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
    rows
}

/// What recall says of a question as a whole.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    pub rows: Vec<Scored>,
    /// Where each candidate stood in each leg.
    pub places: Places,
    /// How likely a row that answers is among the first five, 0 to 1.
    pub confidence: f64,
}

/// The signs of one row, and where those come from that other rows lend it.
#[derive(Clone, Debug, Default)]
pub struct Told {
    pub signs: Signs,
    /// The best row of its session, as a place in the same list.
    pub session_best: usize,
    /// The row beside it that is better by most.
    pub better_beside: Option<usize>,
    /// The row before it that asks something, if it stands out.
    pub answers: Option<usize>,
    /// The phrasing that speaks best for it; the question itself is the first.
    phrasing: usize,
    /// The neighbour whose words helped most.
    words_by: Option<usize>,
    /// It is the kind asked for, by half.
    by_half: bool,
}

/// Ranks what the legs found.
pub fn rank(question: &Question, found: &Candidates, weights: &Weights) -> Ranking {
    let rows = &found.rows;
    let places = places(rows);
    let told = tell(question, found, weights);
    let scored = rows.iter().zip(&told).enumerate().map(|(i, (row, told))| {
        let mut why = places.why(i);
        if row.phrased(told.phrasing).1.is_some_and(|near| near.asked) {
            why.push("a question it answers".to_owned());
        }
        if let Some(n) = told.phrasing.checked_sub(1) {
            why.push(format!("also #{}", n + 1));
        }
        why.extend(
            told.words_by
                .map(|by| format!("beside {}", rows[by].id.get(..8).unwrap_or(&rows[by].id))),
        );
        why.extend(told.reasons().map(str::to_owned));
        Scored {
            id: row.id.clone(),
            score: weights.score(&told.signs),
            why,
        }
    });
    let ranked = sorted(scored.collect());
    Ranking {
        confidence: confidence(rows, &told, &ranked, weights),
        rows: ranked,
        places,
    }
}

impl Told {
    /// What a person is told of the signs that are facts.
    fn reasons(&self) -> impl Iterator<Item = &'static str> {
        let signs = &self.signs;
        let kind = match self.by_half {
            true => "the kind asked for, by half",
            false => "the kind asked for",
        };
        [
            (signs.when, "says when"),
            (signs.person, "by the one named"),
            (signs.between, "between those named"),
            (signs.pointed, "holds a rare word of the question"),
            (signs.kind, kind),
            (signs.hint, "a kind it may mean"),
            (signs.asked_for - SPEAKS_FOR, "a kind it sounds like"),
            (signs.answer, "answers what was asked before it"),
            (signs.operator, "the operator's word"),
            (signs.day, "on that day"),
            (signs.month, "in that month"),
            (
                signs.release + signs.near_release,
                "on that side of the release",
            ),
        ]
        .into_iter()
        .filter(|(sign, _)| *sign > 0.0)
        .map(|(_, reason)| reason)
    }
}

/// The signs of every row. What a row shares with its session and its neighbours hangs on what the
/// rows themselves are worth, hence on the weights.
pub fn tell(question: &Question, found: &Candidates, weights: &Weights) -> Vec<Told> {
    let rows = &found.rows;
    let phrasings: Vec<Heard> = std::iter::once(&found.mass)
        .chain(&found.also_mass)
        .enumerate()
        .map(|(n, mass)| {
            let words = found.words.get(n).map_or(&[][..], Vec::as_slice);
            Heard::of(rows, n, &Asked { words, mass: *mass })
        })
        .collect();
    let best = best_phrasings(&phrasings, rows.len(), weights);
    let content: Vec<f64> = best.iter().map(|(signs, _)| weights.score(signs)).collect();
    // What another phrasing names counts less than what the question itself does.
    let points = |heard: &Heard| heard.pointed.iter().any(|pointed| *pointed > 0.0);
    let others_point = match phrasings.first().is_some_and(points) {
        true => OTHERS_POINT,
        false => 1.0,
    };
    let own = |i: usize| phrasings[best[i].1].own[i];
    let surest = (0..rows.len()).map(own).fold(0.0, f64::max).min(1.0);
    // Where words are sure, what kind of row it is matters less.
    let doubt = 1.0 - CERTAINTY * surest;
    let mean = content.iter().sum::<f64>() / content.len().max(1) as f64;
    let sessions = session_best(rows, &content);
    let alone = match question.named.as_slice() {
        [one] => Some(one.as_str()),
        _ => None,
    };
    let flag = |holds: bool| f64::from(u8::from(holds));
    let one = |(i, row): (usize, &Candidate)| {
        let (of_content, phrasing) = best[i];
        let better_beside = row
            .beside
            .iter()
            .copied()
            .filter(|b| content[*b] > content[i])
            .reduce(|a, b| if content[b] > content[a] { b } else { a });
        let asks = |b: &usize| rows[*b].cues & cue::ASKS != 0 && rows[*b].at < row.at;
        let answers = (row.beside.iter().copied())
            .filter(|b| asks(b) && content[*b] > mean)
            .reduce(|a, b| if content[b] > content[a] { b } else { a });
        let asked_for = question.asked_for.as_ref();
        let asked_for = asked_for.map_or(0.0, |asked| asked.speaks_for(Sort::of(row.cues)));
        let of_kind = question.cues & row.cues != 0
            || question.verdict && row.cues & cue::BAD_VERDICT == cue::BAD_VERDICT;
        let by_half = !of_kind
            && question.cues & cue::CONFIRMATION != 0
            && row.cues & cue::HALF_CONFIRMED != 0;
        let kind = flag(of_kind) + flag(by_half) * OWN_WORK_WEIGHT;
        let within = |is_day: bool| {
            let mut windows = found.windows.iter().filter(|w| w.is_day == is_day);
            windows.any(|w| w.holds(row.at))
        };
        let in_release = found
            .release
            .is_none_or(|(from, until)| from <= row.at && row.at < until);
        let on_side = flag(found.release.is_some() && in_release);
        let near = flag(question.around_release.as_ref().is_some_and(|a| a.near));
        let age = age(row.at, found);
        let is_named = alone.is_some_and(|name| name.eq_ignore_ascii_case(&row.identity));
        let its_word = question.operator && !of_kind && row.cues & cue::OPERATOR != 0;
        let signs = Signs {
            session: content[sessions[i]] - mean,
            beside: better_beside.map_or(0.0, |b| content[b] - content[i]),
            kind_beside: match of_kind {
                true => better_beside.map_or(0.0, |b| content[b] - content[i]),
                false => 0.0,
            },
            answer: answers.map_or(0.0, |b| content[b] - mean),
            own_words: own(i),
            pointed: (phrasings.iter().enumerate())
                .map(|(n, heard)| heard.pointed[i] * if n > 0 { others_point } else { 1.0 })
                .fold(0.0, f64::max),
            length: f64::from(row.words.min(WORDS_CAP)).ln_1p(),
            graph: flag(row.mentions),
            asks: flag(row.cues & cue::ASKS != 0),
            when: flag(question.when && row.cues & cue::TIME != 0),
            person: flag(is_named),
            between: row.between,
            kind: kind * doubt,
            hint: flag(question.hints & row.cues != 0) * doubt,
            asked_for: asked_for * doubt,
            operator: flag(its_word) * doubt,
            day: flag(within(true)),
            month: flag(within(false)),
            release: on_side * (1.0 - near),
            near_release: on_side * near,
            recency: recency(found.span.1.since_us(row.at) as f64 / 86_400e6),
            latest: flag(question.latest && in_release) * age,
            earliest: flag(question.earliest && found.release.is_none()) * (1.0 - age),
            ..of_content
        };
        Told {
            signs,
            session_best: sessions[i],
            better_beside,
            answers,
            phrasing,
            words_by: phrasings[phrasing].words_by[i],
            by_half,
        }
    };
    rows.iter().enumerate().map(one).collect()
}

/// Where a row lies between the oldest and the newest, 0 to 1, within the asked span.
fn age(at: Moment, found: &Candidates) -> f64 {
    let (mut from, mut until) = found.span;
    if let Some((a, b)) = found.release {
        (from, until) = (from.max(a), until.min(b));
    }
    (at.since_us(from) as f64 / until.since_us(from).max(1) as f64).clamp(0.0, 1.0)
}

/// The best row of each row's session; a row without one is its own session.
fn session_best(rows: &[Candidate], content: &[f64]) -> Vec<usize> {
    let mut best: HashMap<&str, usize> = HashMap::new();
    for (i, row) in rows.iter().enumerate() {
        if let Some(session) = &row.session {
            let most = best.entry(session).or_insert(i);
            if content[i] > content[*most] {
                *most = i;
            }
        }
    }
    let of_session = |(i, row): (usize, &Candidate)| {
        let session = row.session.as_deref();
        session.and_then(|s| best.get(s)).copied().unwrap_or(i)
    };
    rows.iter().enumerate().map(of_session).collect()
}

/// What is left of a row's freshness so many days before the newest row. Memory that nobody adds to
/// does not fade.
pub fn recency(age_days: f64) -> f64 {
    0.5f64.powf(age_days.max(0.0) / HALF_LIFE_DAYS)
}

/// Tokens that a text costs a model, by the usual rule of four characters.
pub fn tokens(text: &str) -> u64 {
    text.chars().count().div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::operator::{Directness, Verdict};
    use crate::memory::question::asked_for::AskedFor;

    fn row(id: &str) -> Candidate {
        Candidate {
            id: id.into(),
            words: 20,
            near: Some(Nearness::default()),
            ..Candidate::default()
        }
    }

    fn near(row: Candidate, field: f64) -> Candidate {
        Candidate {
            near: Some(Nearness {
                field,
                joined: field,
                context: field,
                asked: false,
            }),
            ..row
        }
    }

    fn ranked(question: &str, rows: Vec<Candidate>) -> Vec<Scored> {
        let question = Question::of(question, &["Mira".into(), "Wren".into()], "lena");
        rank(
            &question,
            &Candidates {
                rows,
                mass: 10.0,
                span: (Moment(0), Moment(100 * 86_400_000_000)),
                ..Candidates::default()
            },
            &Weights::default(),
        )
        .rows
    }

    fn direct(verdict: Verdict) -> VerdictOn {
        VerdictOn {
            verdict,
            directness: Directness::Direct,
            on_own_delta: false,
        }
    }

    fn order(rows: &[Scored]) -> Vec<&str> {
        rows.iter().map(|r| r.id.as_str()).collect()
    }

    #[test]
    fn a_leg_that_knows_nothing_does_not_drown_one_that_does() {
        // One stray word against clear meaning, and clear words against a vague resemblance.
        let stray = Candidate {
            matches: vec![(0, 1.0)],
            ..near(row("stray"), 0.1)
        };
        assert_eq!(
            order(&ranked("q", vec![stray, near(row("meant"), 0.6)])),
            ["meant", "stray"]
        );
        let exact = Candidate {
            matches: vec![(0, 5.0), (1, 5.0)],
            ..near(row("exact"), 0.3)
        };
        assert_eq!(
            order(&ranked("q", vec![near(row("vague"), 0.45), exact])),
            ["exact", "vague"]
        );
    }

    #[test]
    fn words_beside_a_row_count_for_it_and_it_says_so() {
        let beside = Candidate {
            matches: vec![(0, 5.0)],
            beside: vec![1],
            ..row("said")
        };
        let rows = ranked(
            "q",
            vec![
                beside,
                Candidate {
                    beside: vec![0],
                    ..row("answered")
                },
                row("elsewhere"),
            ],
        );
        assert_eq!(order(&rows)[2], "elsewhere");
        assert!(
            rows.iter()
                .find(|r| r.id == "answered")
                .unwrap()
                .why
                .contains(&"beside said".to_owned())
        );
    }

    #[test]
    fn a_row_without_vectors_yet_is_neither_found_nor_hidden_by_meaning() {
        let fresh = Candidate {
            near: None,
            matches: vec![(0, 8.0)],
            ..row("fresh")
        };
        assert_eq!(
            order(&ranked(
                "q",
                vec![near(row("far"), 0.2), fresh, near(row("mid"), 0.3)]
            ))[0],
            "fresh"
        );
    }

    /// A crowd of rows that are all near, and one that is not.
    fn crowd_and(one: Candidate) -> Vec<Candidate> {
        let crowd = (0..40).map(|i| Candidate {
            matches: vec![(1, 2.0)],
            ..near(row(&format!("near{i}")), 0.6 + f64::from(i) / 150.0)
        });
        crowd.chain([one]).collect()
    }

    fn place_of(id: &str, question: &str, rows: Vec<Candidate>, words: Vec<Word>) -> usize {
        let found = Candidates {
            rows,
            mass: words.iter().map(|word| word.weight).sum(),
            words: vec![words],
            ..Candidates::default()
        };
        let question = Question::of(question, &[], "lena");
        let ranked = rank(&question, &found, &Weights::default()).rows;
        ranked.iter().position(|r| r.id == id).unwrap()
    }

    #[test]
    fn a_word_that_points_at_a_row_finds_it_whatever_the_vectors_say() {
        let place = |points: Points| {
            let word = |weight, points| Word { weight, points };
            let words = vec![
                word(7.0, points),
                word(3.0, Points::Nowhere),
                word(9.0, Points::Nowhere),
            ];
            let quoted = Candidate {
                matches: vec![(0, 5.0)],
                ..near(row("quoted"), 0.2)
            };
            let question = "QX01046 the socket leaks";
            place_of("quoted", question, crowd_and(quoted), words)
        };
        assert_eq!(place(Points::AtFew), 0);
        assert!(place(Points::AtOne) > 10, "too little of the question");
    }

    #[test]
    fn a_row_without_vectors_that_holds_all_of_the_question_is_as_near_as_any() {
        let place = |held: &[usize]| {
            let waiting = Candidate {
                near: None,
                matches: held.iter().map(|i| (*i, 2.0)).collect(),
                ..row("waiting")
            };
            let word = Word {
                weight: 3.0,
                points: Points::Nowhere,
            };
            place_of("waiting", "q", crowd_and(waiting), vec![word; 10])
        };
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(place(&all), 0);
        assert!(place(&all[..2]) > 5, "two words are chance");
    }

    #[test]
    fn kinds_people_and_days_lift_what_the_question_points_at() {
        let correction = Candidate {
            cues: cue::CORRECTION | cue::OPERATOR,
            ..near(row("corrected"), 0.3)
        };
        assert_eq!(
            order(&ranked(
                "what did I complain about",
                vec![near(row("other"), 0.4), correction]
            )),
            ["corrected", "other"]
        );
        let hers = Candidate {
            identity: "Wren".into(),
            ..near(row("hers"), 0.3)
        };
        assert_eq!(
            order(&ranked(
                "what did Wren change",
                vec![near(row("other"), 0.35), hers.clone()]
            )),
            ["hers", "other"]
        );
        assert_eq!(
            order(&ranked(
                "what did Wren and Mira change",
                vec![near(row("other"), 0.35), hers]
            )),
            ["other", "hers"],
            "two names point at nobody alone"
        );
        let between = Candidate {
            between: 1.0,
            ..near(row("told"), 0.2)
        };
        assert_eq!(
            order(&ranked(
                "what did Wren tell Mira",
                vec![near(row("other"), 0.4), between]
            )),
            ["told", "other"]
        );
        let late = Candidate {
            at: Moment(90 * 86_400_000_000),
            ..near(row("late"), 0.3)
        };
        assert_eq!(
            order(&ranked(
                "the last time it broke",
                vec![near(row("early"), 0.32), late]
            )),
            ["late", "early"]
        );
    }

    #[test]
    fn a_question_nothing_answers_gets_a_low_confidence() {
        let question = Question::of("q", &[], "lena");
        let confidence = |rows| {
            rank(
                &question,
                &Candidates {
                    rows,
                    mass: 10.0,
                    ..Candidates::default()
                },
                &Weights::default(),
            )
            .confidence
        };
        assert!(confidence(vec![near(row("a"), 0.15), near(row("b"), 0.1)]) < LOW_CONFIDENCE);
        assert!(confidence(vec![near(row("a"), 0.7), near(row("b"), 0.1)]) > LOW_CONFIDENCE);
        assert!(
            confidence(vec![Candidate {
                matches: vec![(0, 9.0)],
                ..near(row("a"), 0.3)
            }]) > LOW_CONFIDENCE
        );
        let words = |weight| Candidate {
            near: None,
            matches: vec![(0, weight)],
            ..row("a")
        };
        assert!(
            confidence(vec![words(5.0)]) > LOW_CONFIDENCE
                && confidence(vec![words(1.0)]) < LOW_CONFIDENCE,
            "without a model, words decide"
        );
        let named = Candidate {
            near: None,
            mentions: true,
            ..row("a")
        };
        assert!(
            confidence(vec![named]) > LOW_CONFIDENCE,
            "so does a thing that was named"
        );
        assert_eq!(confidence(vec![]), 0.0);
    }

    #[test]
    fn the_less_sure_memory_is_the_less_it_shows() {
        let ranked = plain(&["a", "b", "c", "d", "e", "f", "g"]);
        for (confidence, k, expected) in [
            (0.9, 6, 6),
            (0.9, 20, 7),
            (0.25, 6, 5),
            (0.15, 6, 2),
            (0.15, 1, 1),
            (0.05, 6, 2),
            (0.004, 6, 0),
        ] {
            assert_eq!(shown(&ranked, confidence, k), expected, "{confidence}");
        }
    }

    fn plain(ids: &[&str]) -> Vec<Scored> {
        ids.iter()
            .enumerate()
            .map(|(i, id)| Scored {
                id: (*id).into(),
                score: 5.0 - i as f64 * 0.1,
                why: vec![],
            })
            .collect()
    }

    #[test]
    fn the_operators_word_lifts_lowers_and_sinks() {
        let standing = HashMap::from([
            (
                "old".to_owned(),
                Standing {
                    superseded_by: Some("new".into()),
                    ..Default::default()
                },
            ),
            (
                "broken".to_owned(),
                Standing {
                    verdicts: vec![direct(Verdict::Broken)],
                    ..Default::default()
                },
            ),
            (
                "works".to_owned(),
                Standing {
                    verdicts: vec![direct(Verdict::Works)],
                    ..Default::default()
                },
            ),
        ]);
        let rows = with_standing(
            plain(&["old", "broken", "works", "new"]),
            &standing,
            &Weights::default(),
            &Question::default(),
        );
        assert_eq!(order(&rows), ["works", "new", "broken", "old"]);
    }

    #[test]
    fn what_was_superseded_never_stands_above_its_successor() {
        let rows = vec![
            Scored {
                id: "old".into(),
                score: 100.0,
                why: vec![],
            },
            Scored {
                id: "new".into(),
                score: 0.1,
                why: vec![],
            },
        ];
        let standing = HashMap::from([(
            "old".to_owned(),
            Standing {
                superseded_by: Some("new".into()),
                ..Default::default()
            },
        )]);
        let settled = |question: &str| {
            let question = Question::of(question, &[], "lena");
            with_standing(rows.clone(), &standing, &Weights::default(), &question)
        };
        assert_eq!(order(&settled("how long may it be kept")), ["new", "old"]);
        assert_eq!(
            order(&settled("how long could it be kept originally")),
            ["old", "new"],
            "unless that is what was asked for"
        );
    }

    #[test]
    fn a_score_is_the_product_of_signs_and_weights_name_by_name() {
        let weights = Weights::default();
        assert_eq!(Weights::of(weights.values()), weights);
        let signs = Signs {
            field: 0.5,
            kind: 1.0,
            broken: 2.0,
            ..Signs::default()
        };
        let by_hand = 0.5 * weights.field + weights.kind + 2.0 * weights.broken;
        assert!((weights.score(&signs) - by_hand).abs() < 1e-12);
        let named = Signs::NAMES.iter().zip(signs.values());
        let shown: Vec<&str> = named.filter(|(_, v)| *v != 0.0).map(|(n, _)| *n).collect();
        assert_eq!(shown, ["field", "kind", "broken"]);
        assert_eq!(signs.content().values().iter().sum::<f64>(), 0.5);
    }

    #[test]
    fn how_something_was_received_is_a_verdict_good_or_bad() {
        let good = Candidate {
            cues: cue::CONFIRMATION | cue::OPERATOR,
            ..near(row("good"), 0.3)
        };
        let bad = Candidate {
            cues: cue::BAD_VERDICT,
            ..near(row("bad"), 0.31)
        };
        let trouble = Candidate {
            cues: cue::TROUBLE,
            ..near(row("trouble"), 0.32)
        };
        let rows = vec![near(row("other"), 0.35), good, bad, trouble];
        let of = |question: &str| {
            let ranked = ranked(question, rows.clone());
            order(&ranked)
                .into_iter()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("what did my ears make of it")[..2], ["bad", "good"]);
        assert_eq!(of("which fix was approved")[0], "good");
    }

    #[test]
    fn the_word_on_a_row_is_found_by_what_it_is_about() {
        let about = |kind: u32| {
            let word = Candidate {
                cues: kind,
                beside: vec![1],
                ..near(row("word"), 0.2)
            };
            let thing = Candidate {
                beside: vec![0],
                ..near(row("thing"), 0.5)
            };
            let rows = ranked("what did I complain about", vec![word, thing]);
            rows.iter().find(|r| r.id == "word").unwrap().score
        };
        let weights = Weights::default();
        let asked_for = about(cue::CORRECTION) - about(0);
        assert!(asked_for > weights.kind, "{asked_for}");
    }

    #[test]
    fn a_phrasing_that_contradicts_the_question_brings_its_row_and_hides_none() {
        let phrased = |id: &str, question: f64, other: f64| Candidate {
            also: vec![Phrased {
                near: near(row(""), other).near,
                matches: Vec::new(),
            }],
            ..near(row(id), question)
        };
        let mut rows = vec![phrased("asked", 0.6, 0.1), phrased("contrary", 0.1, 0.6)];
        rows.extend((0..20).map(|i| phrased(&format!("other{i}"), 0.2, 0.2)));
        let question = Question::of("which are green", &[], "lena");
        let found = |rows: Vec<Candidate>, phrasings: usize| Candidates {
            rows,
            mass: 10.0,
            also_mass: vec![10.0; phrasings],
            ..Candidates::default()
        };
        let ranking = rank(&question, &found(rows.clone(), 1), &Weights::default());
        assert_eq!(order(&ranking.rows)[..2], ["asked", "contrary"]);
        assert!(ranking.confidence > LOW_CONFIDENCE);
        // The question said twice is the question.
        let twice: Vec<Candidate> = rows
            .into_iter()
            .map(|row| Candidate {
                also: vec![Phrased {
                    near: row.near,
                    matches: row.matches.clone(),
                }],
                ..row
            })
            .collect();
        let once = rank(&question, &found(twice.clone(), 0), &Weights::default());
        let again = rank(&question, &found(twice, 1), &Weights::default());
        assert_eq!(order(&once.rows), order(&again.rows));
    }

    #[test]
    fn a_phrasing_that_fits_the_only_row_there_is_is_heard() {
        let only = |other: f64| {
            let alone = Candidate {
                also: vec![Phrased {
                    near: near(row(""), other).near,
                    matches: Vec::new(),
                }],
                ..near(row("only"), 0.05)
            };
            let found = Candidates {
                rows: vec![alone],
                mass: 10.0,
                also_mass: vec![10.0],
                ..Candidates::default()
            };
            let question = Question::of("wie viele passen hinein", &[], "lena");
            rank(&question, &found, &Weights::default())
        };
        let (heard, unheard) = (only(0.9), only(0.05));
        assert!(heard.rows[0].score > unheard.rows[0].score + 1.0);
        assert!(heard.confidence > unheard.confidence);
    }

    #[test]
    fn what_the_question_names_comes_before_what_another_phrasing_names() {
        let word = Word {
            weight: 4.0,
            points: Points::AtFew,
        };
        let named = |id: &str, own: bool| {
            let held = |holds: bool| if holds { vec![(0, 4.0)] } else { Vec::new() };
            Candidate {
                matches: held(own),
                also: vec![Phrased {
                    near: near(row(""), 0.3).near,
                    matches: held(!own),
                }],
                ..near(row(id), 0.3)
            }
        };
        let mut rows = vec![named("theirs", false), named("mine", true)];
        rows.extend((0..20).map(|i| Candidate {
            also: vec![Phrased::default()],
            ..near(row(&format!("other{i}")), 0.3)
        }));
        let found = Candidates {
            rows,
            mass: 8.0,
            also_mass: vec![8.0],
            words: vec![vec![word], vec![word]],
            ..Candidates::default()
        };
        let question = Question::of("what was PRJ-1043", &[], "lena");
        let ranking = rank(&question, &found, &Weights::default());
        assert_eq!(order(&ranking.rows)[..2], ["mine", "theirs"]);
    }

    #[test]
    fn of_equal_rows_the_fresher_comes_first_however_long_nobody_wrote() {
        let aged = |id: &str, days: i64| Candidate {
            at: Moment(days * 86_400_000_000),
            ..near(row(id), 0.3)
        };
        let rows = ranked("q", vec![aged("old", 10), aged("new", 100)]);
        assert_eq!(order(&rows), ["new", "old"]);
        let fresh = Weights::default().recency;
        assert!((rows[0].score - rows[1].score - fresh * (1.0 - recency(90.0))).abs() < 1e-9);
    }

    #[test]
    fn a_row_right_after_a_question_that_fits_answers_it() {
        let aged = |id: &str, minutes: i64, cues: u32, beside: Vec<usize>, field: f64| Candidate {
            at: Moment(minutes * 60_000_000),
            cues,
            beside,
            ..near(row(id), field)
        };
        let told = |cues: u32, at: i64| {
            let rows = vec![
                aged("asks", at, cues, vec![1], 0.5),
                aged("after", 10, 0, vec![0], 0.2),
                aged("stray", 5, 0, vec![], 0.2),
            ];
            let found = Candidates {
                rows,
                mass: 10.0,
                ..Candidates::default()
            };
            let question = Question::of("what did she paint", &[], "lena");
            tell(&question, &found, &Weights::default())[1].signs.answer
        };
        assert!(told(cue::ASKS, 9) > 1.0);
        assert_eq!(told(0, 9), 0.0, "the row before it asks nothing");
        assert_eq!(told(cue::ASKS, 11), 0.0, "it was asked afterwards");
    }

    #[test]
    fn what_a_question_sounds_like_lifts_that_sort_of_row() {
        let verdict = Candidate {
            cues: cue::BAD_VERDICT,
            ..near(row("verdict"), 0.3)
        };
        let rows = vec![near(row("note"), 0.31), verdict];
        let found = Candidates {
            rows,
            mass: 10.0,
            ..Candidates::default()
        };
        let mut question = Question::of("which phone was it", &[], "lena");
        let first = |question: &Question| {
            let ranking = rank(question, &found, &Weights::default());
            (ranking.rows[0].id.clone(), ranking.rows[0].why.clone())
        };
        assert_eq!(first(&question).0, "note");
        // A line each for work, word, verdict: this vector speaks for the third.
        let lines = [vec![0.0, 0.0], vec![0.0, 0.0], vec![3.0, 0.0]];
        question.asked_for = Some(AskedFor::told_by(&[1.0], &lines));
        let (id, why) = first(&question);
        assert_eq!(id, "verdict");
        assert!(why.contains(&"a kind it sounds like".to_owned()), "{why:?}");
    }

    #[test]
    fn half_of_a_row_is_left_after_half_a_year() {
        assert!((recency(180.0) - 0.5).abs() < 1e-9 && recency(0.0) == 1.0);
    }

    #[test]
    fn a_reported_verdict_on_ones_own_work_lifts_half_as_much() {
        let lifted = |verdict: VerdictOn| {
            let standing = Standing {
                verdicts: vec![verdict],
                ..Default::default()
            };
            let row = Scored {
                id: "a".into(),
                score: 0.0,
                why: Vec::new(),
            };
            let standing = HashMap::from([("a".to_owned(), standing)]);
            with_standing(
                vec![row],
                &standing,
                &Weights::default(),
                &Question::default(),
            )[0]
            .score
        };
        let reported = VerdictOn {
            directness: Directness::Reported,
            on_own_delta: true,
            ..direct(Verdict::Works)
        };
        assert_eq!(lifted(direct(Verdict::Works)), Weights::default().works);
        assert_eq!(lifted(reported), Weights::default().works / 2.0);
    }

    #[test]
    fn what_is_named_near_or_spoken_is_looked_around_before_what_is_not() {
        let seen = |i: usize| match i {
            3 => Sighting {
                mentions: true,
                ..Sighting::default()
            },
            5 => Sighting {
                own_words: 0.5,
                ..Sighting::default()
            },
            7 => Sighting {
                nearest: 0.4,
                ..Sighting::default()
            },
            9 => Sighting {
                between: rarity(1, 60),
                ..Sighting::default()
            },
            _ => Sighting::default(),
        };
        let rows = (0..2 * LOOKED_AROUND).rev().map(|i| (i, seen(i)));
        let mut chosen = promising(rows, &Weights::default(), LOOKED_AROUND);
        chosen.sort_unstable();
        assert_eq!(chosen, (0..LOOKED_AROUND).collect::<Vec<_>>());
        let rows = (0..LOOKED_AROUND).map(|i| (i + 10, seen(0)));
        let rows = rows.chain([3, 5, 7, 9].map(|i| (1000 + i, seen(i))));
        let mut chosen = promising(rows, &Weights::default(), LOOKED_AROUND);
        chosen.sort_unstable();
        assert_eq!(chosen[LOOKED_AROUND - 4..], [1003, 1005, 1007, 1009]);
    }

    #[test]
    fn what_passed_between_many_tells_little() {
        assert_eq!(rarity(0, 60), 1.0);
        assert_eq!(rarity(30, 60), 0.5);
        assert_eq!(rarity(90, 60), 0.0);
    }
}
