//! Several phrasings of one question: what each says of the rows, and which of them speaks best for one.

use super::{Asked, Candidate, Nearness, Signs, Weights, taken_for};
use std::collections::HashMap;

/// What a word beside a row counts for it, next to one of its own.
const BESIDE_SHARE: f64 = 0.85;
/// The share of a question's words that even a stray row holds, and how much more makes words sure.
const STRAY: f64 = 0.1;
const STRAY_TO_SURE: f64 = 0.15;
/// What is left of words that are not sure at all.
const HARDLY: f64 = 0.2;
/// Rows that tell as much of how high a phrasing lies as is taken for granted.
const FEW_ROWS: f64 = 3.0;

/// What one phrasing of the question says of each row.
pub(super) struct Heard {
    /// The share of its words that a row holds itself.
    pub own: Vec<f64>,
    /// How many of its words point at a row.
    pub pointed: Vec<f64>,
    /// Which neighbour's words helped each row most.
    pub words_by: Vec<Option<usize>>,
    /// The signs of words and meaning, and no others.
    pub content: Vec<Signs>,
    /// Their average.
    mean: Signs,
}

impl Heard {
    pub fn of(rows: &[Candidate], phrasing: usize, asked: &Asked<'_>) -> Self {
        let mass = asked.mass.max(1e-6);
        // A row without vectors yet is taken to be as near as the others are on average: it is
        // neither found nor hidden by meaning. One that holds what the question says is near.
        let near = |row: &Candidate| row.phrased(phrasing).1;
        let known: Vec<Nearness> = rows.iter().filter_map(near).collect();
        let taken_for = |covered: f64, value: fn(&Nearness) -> f64| {
            let average = known.iter().map(value).sum::<f64>() / known.len().max(1) as f64;
            let nearest = known.iter().map(value).reduce(f64::max);
            taken_for(covered, average, nearest.unwrap_or(average))
        };
        let unknown = |row: &Candidate| {
            let covered = asked.covered(row.phrased(phrasing).0);
            Nearness {
                field: taken_for(covered, |n| n.field),
                joined: taken_for(covered, |n| n.joined),
                context: taken_for(covered, |n| n.context),
                asked: false,
            }
        };
        let pointed = rows.iter().map(|r| asked.points(r.phrased(phrasing).0));
        let own: Vec<f64> = rows
            .iter()
            .map(|r| r.phrased(phrasing).0.iter().map(|(_, w)| w).sum::<f64>() / mass)
            .collect();
        let surest = own.iter().copied().fold(0.0, f64::max).min(1.0);
        // Stray words say nothing; where there is meaning to go by, they are hardly heard.
        let heard = if known.is_empty() {
            1.0
        } else {
            ((surest - STRAY) / STRAY_TO_SURE).clamp(HARDLY, 1.0)
        };
        let (words, words_by): (Vec<f64>, Vec<Option<usize>>) = (0..rows.len())
            .map(|i| words_around(rows, i, phrasing))
            .unzip();
        let signs = |(row, words): (&Candidate, &f64)| {
            let near = near(row).unwrap_or_else(|| unknown(row));
            Signs {
                lexical: heard * words / mass,
                field: near.field,
                joined: near.joined,
                context: near.context,
                ..Signs::default()
            }
        };
        let content: Vec<Signs> = rows.iter().zip(&words).map(signs).collect();
        let average = |value: fn(&Signs) -> f64| {
            content.iter().map(value).sum::<f64>() / content.len().max(1) as f64
        };
        let mean = Signs {
            lexical: average(|s| s.lexical),
            field: average(|s| s.field),
            joined: average(|s| s.joined),
            context: average(|s| s.context),
            ..Signs::default()
        };
        Self {
            pointed: pointed.collect(),
            own,
            words_by,
            content,
            mean,
        }
    }
}

/// How high each phrasing lies. A few rows hardly tell: then phrasings count as equally high, so that
/// one which fits the only row there is stands out.
fn usual(phrasings: &[Heard], rows: usize) -> Vec<Signs> {
    let told = rows as f64 / (rows as f64 + FEW_ROWS);
    let of = |value: fn(&Signs) -> f64| {
        let all: f64 = phrasings.iter().map(|p| value(&p.mean)).sum();
        let all = all / phrasings.len().max(1) as f64;
        move |p: &Heard| told * value(&p.mean) + (1.0 - told) * all
    };
    let (lexical, field) = (of(|s| s.lexical), of(|s| s.field));
    let (joined, context) = (of(|s| s.joined), of(|s| s.context));
    let one = |p: &Heard| Signs {
        lexical: lexical(p),
        field: field(p),
        joined: joined(p),
        context: context(p),
        ..Signs::default()
    };
    phrasings.iter().map(one).collect()
}

/// Each row by the phrasing that speaks best for it: its signs, and which phrasing. What several
/// agree on counts a little more.
pub(super) fn best_phrasings(
    phrasings: &[Heard],
    rows: usize,
    weights: &Weights,
) -> Vec<(Signs, usize)> {
    // Phrasings lie differently high as a whole, a long one higher than a short one: what counts
    // is how far a row stands out in each.
    let usual = usual(phrasings, rows);
    let mean = usual.first().copied().unwrap_or_default();
    let means: Vec<f64> = usual.iter().map(|mean| weights.score(mean)).collect();
    let one = |i: usize| {
        let stands_out: Vec<f64> = phrasings
            .iter()
            .zip(&means)
            .map(|(heard, mean)| weights.score(&heard.content[i]) - mean)
            .collect();
        let best = (0..phrasings.len())
            .reduce(|a, b| if stands_out[b] > stands_out[a] { b } else { a })
            .unwrap_or_default();
        let others = (0..phrasings.len()).filter(|n| *n != best);
        let agree: f64 = others.map(|n| stands_out[n].max(0.0)).sum();
        let (own, of) = (&phrasings[best].content[i], &usual[best]);
        let signs = Signs {
            lexical: own.lexical - of.lexical + mean.lexical,
            field: own.field - of.field + mean.field,
            joined: own.joined - of.joined + mean.joined,
            context: own.context - of.context + mean.context,
            agreement: agree / (phrasings.len().max(2) - 1) as f64,
            ..Signs::default()
        };
        (signs, best)
    };
    (0..rows).map(one).collect()
}

/// The weight of the question's words that a row or the rows beside it hold, and which neighbour
/// helped most.
fn words_around(rows: &[Candidate], i: usize, phrasing: usize) -> (f64, Option<usize>) {
    let mut best: HashMap<usize, f64> = rows[i].phrased(phrasing).0.iter().copied().collect();
    let mut helped: Option<(f64, usize)> = None;
    for by in &rows[i].beside {
        let mut gain = 0.0;
        for (term, weight) in rows[*by].phrased(phrasing).0 {
            let (mine, theirs) = (best.entry(*term).or_insert(0.0), weight * BESIDE_SHARE);
            if theirs > *mine {
                gain += theirs - *mine;
                *mine = theirs;
            }
        }
        if gain > 0.0 && helped.is_none_or(|(most, _)| gain > most) {
            helped = Some((gain, *by));
        }
    }
    (best.values().sum(), helped.map(|(_, by)| by))
}
