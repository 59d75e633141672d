//! What sort of row a question asks for, by its meaning: the question's own vector tells, softly,
//! where no cue word does.

use super::cue;
use crate::memory::generation::{Generation, Model};
use crate::memory::vector::DIMENSIONS;
use std::sync::LazyLock;

/// The model whose vectors tell. The other one's were tried: they tell less, alone and beside it.
pub const TOLD_BY: Model = Model::BgeSmall;
/// Numbers of one sort's line: what each number of a vector says for it, and where it begins.
pub const LINE: usize = DIMENSIONS + 1;
/// What the numbers of the file are parts of.
pub const PARTS: f64 = 1_000.0;
/// No sort is so unlikely that it could not be meant after all.
const CHANCE_LEFT: f64 = 0.03;

/// Fitted by `prism bench recall --fit-asked-for`: a line of whole numbers a sort.
static FITTED: &str = include_str!("asked_for.txt");

static LINES: LazyLock<Vec<Vec<f64>>> = LazyLock::new(|| {
    let number = |text: &str| text.parse::<f64>().map_or(0.0, |n| n / PARTS);
    let line = |line: &str| line.split(' ').map(number).collect();
    FITTED.lines().map(line).collect()
});

/// What rows are to somebody who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// What an agent did, and what is seen of it.
    Work,
    /// What the operator wants, or does not.
    Word,
    /// How something was received.
    Verdict,
    /// What must be in place together.
    Whole,
    /// Facts, decisions, notes, mishaps.
    Other,
}

impl Sort {
    pub const ALL: [Self; 5] = [
        Self::Work,
        Self::Word,
        Self::Verdict,
        Self::Whole,
        Self::Other,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Word => "word",
            Self::Verdict => "verdict",
            Self::Whole => "whole",
            Self::Other => "other",
        }
    }

    /// The sort of a row with these cues.
    pub fn of(cues: u32) -> Self {
        let is = |bits: u32| cues & bits != 0;
        if is(cue::OPERATOR) {
            let judges = is(cue::CONFIRMATION | cue::TROUBLE | cue::HALF_CONFIRMED);
            return match judges && !is(cue::CORRECTION | cue::PIVOT) {
                true => Self::Verdict,
                false => Self::Word,
            };
        }
        if is(cue::NARRATIVE) && !is(cue::EFFECT) {
            return Self::Whole;
        }
        match is(cue::EFFECT | cue::DEAD_END) {
            true => Self::Work,
            false => Self::Other,
        }
    }
}

/// How likely each sort is the one that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AskedFor([f64; Sort::ALL.len()]);

impl AskedFor {
    /// What a question's vector of this generation tells; nothing without the model that tells.
    pub fn of(generation: &Generation, vector: &[f32]) -> Option<Self> {
        let half = generation.half(TOLD_BY, vector)?;
        Some(Self::told_by(&half, &LINES))
    }

    /// The same, by other lines than the fitted ones.
    pub fn told_by(half: &[f32], lines: &[Vec<f64>]) -> Self {
        let odds = Sort::ALL.map(|sort| {
            let line = lines.get(sort as usize).map(Vec::as_slice);
            let line = line.unwrap_or_default();
            let products = half.iter().zip(line).map(|(x, w)| f64::from(*x) * w);
            products.sum::<f64>() + line.last().copied().unwrap_or_default()
        });
        let most = odds.into_iter().fold(f64::MIN, f64::max);
        let parts = odds.map(|odds| (odds - most).exp());
        let whole: f64 = parts.iter().sum();
        Self(parts.map(|part| part / whole))
    }

    pub const fn chance(&self, sort: Sort) -> f64 {
        self.0[sort as usize]
    }

    /// How much more likely this sort is asked for than by mere chance, as a logarithm: nothing
    /// when all are equally likely.
    pub fn speaks_for(&self, sort: Sort) -> f64 {
        let even = 1.0 / Sort::ALL.len() as f64;
        ((self.chance(sort) + CHANCE_LEFT) / (even + CHANCE_LEFT)).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::generation::{BGE_SMALL, BOTH, MINILM};

    #[test]
    fn a_row_is_of_one_sort_by_its_cues() {
        for (cues, sort) in [
            (cue::EFFECT, Sort::Work),
            (cue::DEAD_END, Sort::Work),
            (cue::EFFECT | cue::NARRATIVE, Sort::Work),
            (cue::NARRATIVE, Sort::Whole),
            (cue::OPERATOR | cue::CORRECTION, Sort::Word),
            (cue::OPERATOR | cue::PIVOT, Sort::Word),
            (cue::OPERATOR, Sort::Word),
            (cue::OPERATOR | cue::CONFIRMATION, Sort::Verdict),
            (cue::BAD_VERDICT, Sort::Verdict),
            (cue::DECISION | cue::PIVOT, Sort::Other),
            (cue::TROUBLE, Sort::Other),
            (0, Sort::Other),
        ] {
            assert_eq!(Sort::of(cues), sort, "{cues:b}");
        }
    }

    #[test]
    fn every_sort_has_a_line_of_its_own_and_they_differ() {
        assert_eq!(LINES.len(), Sort::ALL.len());
        for (line, text) in LINES.iter().zip(FITTED.lines()) {
            assert_eq!(line.len(), LINE);
            assert!(text.split(' ').all(|n| n.parse::<i32>().is_ok()), "{text}");
            assert!(line.iter().any(|w| *w != 0.0));
        }
        // A vector that points where a sort's line does asks for that sort.
        for sort in Sort::ALL {
            let line = &LINES[sort as usize][..DIMENSIONS];
            let length = line.iter().map(|w| w * w).sum::<f64>().sqrt();
            let vector: Vec<f32> = line.iter().map(|w| (w / length) as f32).collect();
            let asked = AskedFor::of(&BGE_SMALL, &vector).unwrap();
            let others = Sort::ALL.into_iter().filter(|other| *other != sort);
            for other in others {
                assert!(
                    asked.chance(sort) > asked.chance(other),
                    "{sort:?} {other:?}"
                );
            }
            assert!(asked.speaks_for(sort) > 0.0);
            let whole: f64 = Sort::ALL.map(|sort| asked.chance(sort)).iter().sum();
            assert!((whole - 1.0).abs() < 1e-9);
            let both = BOTH.question(&[Some(&vector), Some(&vector)]);
            let same = AskedFor::of(&BOTH, &both).unwrap();
            assert!((same.chance(sort) - asked.chance(sort)).abs() < 1e-4);
        }
    }

    #[test]
    fn without_the_model_that_tells_nothing_is_told() {
        let half = vec![0.5; DIMENSIONS];
        assert_eq!(AskedFor::of(&MINILM, &half), None);
        let gone = BOTH.question(&[Some(&half), None]);
        assert_eq!(AskedFor::of(&BOTH, &gone), None);
        let even = AskedFor::told_by(&half, &[]);
        assert!(Sort::ALL.iter().all(|sort| even.speaks_for(*sort) == 0.0));
    }
}
