//! How sure memory is, and how much it shows then.

use super::{Candidate, Scored, Signs, Told, Weights};

/// Below this, memory says that it may not know.
pub const LOW_CONFIDENCE: f64 = 0.3;
/// Below this, it very likely does not.
const VERY_LOW_CONFIDENCE: f64 = 0.2;
/// Below this, nothing that was found has anything to do with the question.
const NO_CONFIDENCE: f64 = 0.005;
/// How sure it is that memory knows a thing which was named and is mentioned.
const KNOWN_BY_NAME: f64 = 0.75;
/// The place from which on rows are the crowd that the best one must stand out from.
const CROWD: usize = 19;
/// How near even a stray row is.
const STRAY_NEAR: f64 = 0.2;
/// Results that are shown all the same when memory may not know, and when it very likely does not.
const FEW: usize = 5;
const VERY_FEW: usize = 2;

/// How likely it is that a row which answers is among the first five: that memory knows the subject,
/// times that the best row stands out from the others. Fitted on questions of which some have no
/// answer; `prism bench recall --operator` shows what became of it.
pub(super) fn confidence(
    rows: &[Candidate],
    told: &[Told],
    ranked: &[Scored],
    weights: &Weights,
) -> f64 {
    let Some(best) = ranked.first() else {
        return 0.0;
    };
    let near = rows
        .iter()
        .flat_map(|r| std::iter::once(r.near).chain(r.also.iter().map(|a| a.near)))
        .flatten()
        .map(|n| (n.field + n.joined + n.context) / 3.0)
        .reduce(f64::max);
    let surest = told.iter().map(|t| t.signs.own_words).fold(0.0, f64::max);
    let surest = surest.min(1.0);
    let is_named = rows.iter().any(|r| r.mentions || r.between > 0.5)
        || told.iter().any(|t| t.signs.pointed > 0.0);
    let by_name = if is_named { KNOWN_BY_NAME } else { 0.0 };
    let Some(near) = near else {
        // Words alone must say it.
        return likely(8.0 * surest - 2.2).max(by_name);
    };
    let by_words = likely(12.0 * (surest - 0.6));
    let known = likely(30.0 * (near - 0.29)).max(by_words).max(by_name);
    // Where memory has few rows, those that are missing are taken for strays.
    let stray = Signs {
        field: STRAY_NEAR,
        joined: STRAY_NEAR,
        context: STRAY_NEAR,
        ..Signs::default()
    };
    let crowd = ranked.get(CROWD);
    let crowd = crowd.map_or(weights.score(&stray), |row| row.score);
    known * likely(0.5 * (best.score - crowd) - 0.85)
}

/// The chance that odds in favour speak of, given as their logarithm.
fn likely(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}

/// How many results are worth showing: all that were asked for, but only the nearest when memory
/// likely does not know.
pub fn shown(ranked: &[Scored], confidence: f64, k: usize) -> usize {
    let few = match confidence {
        c if c < NO_CONFIDENCE => 0,
        c if c < VERY_LOW_CONFIDENCE => VERY_FEW,
        c if c < LOW_CONFIDENCE => FEW,
        _ => k,
    };
    few.min(k).min(ranked.len())
}
