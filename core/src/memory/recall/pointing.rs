//! Words of a question that point at rows: so rare in the project that they all but name them.
//!
//! Rows of nearly the same text are all near to a question, and which of them is nearest is chance.
//! What the question quotes of one of them is not.

/// Rows that may hold a word which points at them, at the most: all of them fit among the first
/// results.
const FEW: f64 = 8.0;
/// Rows of a project for each of those.
const ROWS_FOR_EACH: f64 = 50.0;
/// Rows of a project from which on it tells something that one of them alone holds a word.
const ROWS_FOR_ONE: f64 = 100.0;
/// The share of a question's words that a row must hold for an ordinary word to point at it: people
/// ask in words of their own, and one of them may stand in any row.
const MOST: f64 = 0.5;
/// What an ordinary word counts then, next to an identifier.
const ORDINARY: f64 = 0.5;
/// Words that count for one row.
const WORDS_MAX: usize = 3;
/// The share of a question's words from which on a row without vectors is taken to be nearer than
/// the others are on average, and how much more makes it as near as the nearest.
const SOME: f64 = 0.5;
const SOME_TO_ALL: f64 = 0.4;

/// A word of a question, and how rare it is in the project.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Word {
    /// What it weighs, wherever it stands.
    pub weight: f64,
    pub points: Points,
}

/// At what a word points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Points {
    #[default]
    Nowhere,
    /// One row alone holds it.
    AtOne,
    /// It reads as an identifier, and few rows hold it.
    AtFew,
}

impl Points {
    /// Of a word that so many of the project's rows hold.
    pub fn of(is_identifier: bool, holding: f64, rows: f64) -> Self {
        if is_identifier && (1.0..=FEW).contains(&holding) && holding * ROWS_FOR_EACH <= rows {
            return Self::AtFew;
        }
        match holding == 1.0 && rows >= ROWS_FOR_ONE {
            true => Self::AtOne,
            false => Self::Nowhere,
        }
    }
}

/// One phrasing of a question: its words in their order, and what they weigh together.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub words: &'a [Word],
    pub mass: f64,
}

impl Asked<'_> {
    /// The share of its words that a row holds, however long the row is.
    pub fn covered(&self, matches: &[(usize, f64)]) -> f64 {
        let held = matches.iter().filter_map(|(i, _)| self.words.get(*i));
        held.map(|word| word.weight).sum::<f64>() / self.mass.max(1e-6)
    }

    /// How many of its words point at a row that holds these; an ordinary one counts less.
    pub fn points(&self, matches: &[(usize, f64)]) -> f64 {
        let held = |points: Points| {
            let held = matches.iter().filter_map(|(i, _)| self.words.get(*i));
            held.filter(|word| word.points == points).count()
        };
        match held(Points::AtFew).min(WORDS_MAX) {
            0 if held(Points::AtOne) > 0 && self.covered(matches) >= MOST => ORDINARY,
            few => few as f64,
        }
    }
}

/// How near a row is taken to be whose vectors nobody has seen: as the others are on average, and
/// the nearer the more of the question's words it holds, up to the nearest of all.
pub fn taken_for(covered: f64, average: f64, nearest: f64) -> f64 {
    let sure = ((covered - SOME) / SOME_TO_ALL).clamp(0.0, 1.0);
    average + sure * (nearest - average)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identifier_points_at_few_rows_and_an_ordinary_word_at_one_of_many() {
        for (is_identifier, holding, rows, points) in [
            (true, 1.0, 2_600.0, Points::AtFew),
            (true, 8.0, 2_600.0, Points::AtFew),
            (true, 9.0, 2_600.0, Points::Nowhere),
            (true, 0.0, 2_600.0, Points::Nowhere),
            (true, 1.0, 50.0, Points::AtFew),
            (true, 1.0, 49.0, Points::Nowhere),
            (true, 3.0, 149.0, Points::Nowhere),
            (false, 1.0, 100.0, Points::AtOne),
            (false, 1.0, 99.0, Points::Nowhere),
            (false, 2.0, 2_600.0, Points::Nowhere),
        ] {
            let said = Points::of(is_identifier, holding, rows);
            assert_eq!(said, points, "{is_identifier}, {holding} of {rows}");
        }
    }

    #[test]
    fn an_ordinary_word_points_only_where_most_of_the_question_stands() {
        let word = |weight, points| Word { weight, points };
        let words = [
            word(6.0, Points::AtOne),
            word(4.0, Points::Nowhere),
            word(2.0, Points::Nowhere),
            word(8.0, Points::AtFew),
        ];
        let points = |words: &[Word], held: &[usize]| {
            let mass = words.iter().map(|word| word.weight).sum();
            let held: Vec<(usize, f64)> = held.iter().map(|i| (*i, 0.1)).collect();
            Asked { words, mass }.points(&held)
        };
        assert_eq!(points(&words[..3], &[0]), ORDINARY, "half of it");
        assert_eq!(points(&words, &[0, 2]), 0.0, "less than half");
        assert_eq!(points(&words, &[3]), 1.0, "an identifier in any case");
        assert_eq!(points(&words, &[1, 2]), 0.0);
        assert_eq!(points(&[words[3]; 5], &[0, 1, 2, 3, 4]), 3.0);
        assert_eq!(points(&[], &[0]), 0.0, "nothing is known of the words");
    }

    #[test]
    fn what_nobody_has_seen_is_as_near_as_its_words_say() {
        for (covered, near) in [(0.0, 0.2), (0.5, 0.2), (0.7, 0.5), (0.9, 0.8), (1.0, 0.8)] {
            let said = taken_for(covered, 0.2, 0.8);
            assert!((said - near).abs() < 1e-9, "{covered}: {said}");
        }
    }
}
