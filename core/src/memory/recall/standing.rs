//! What the operator and later rows say of a row, and what that does to its place.

use super::{Scored, Signs, Weights, sorted};
use crate::memory::operator::{Class, Directness, Verdict, verdict_weight};
use crate::memory::question::Question;
use std::collections::HashMap;

/// A verdict on a row, and how it came about.
#[derive(Clone, Copy, Debug)]
pub struct VerdictOn {
    pub verdict: Verdict,
    pub directness: Directness,
    pub on_own_delta: bool,
}

impl VerdictOn {
    fn weight(&self) -> f64 {
        verdict_weight(self.directness, self.on_own_delta)
    }
}

/// What the operator and later rows say of one row.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    pub verdicts: Vec<VerdictOn>,
    pub labels: Vec<Class>,
    pub superseded_by: Option<String>,
}

impl Standing {
    /// The signs that it gives its row. Whoever asks how it was first asks for what was superseded.
    pub fn signs(&self, question: &Question) -> Signs {
        let said = |verdict: Verdict| {
            let given = self.verdicts.iter().filter(|v| v.verdict == verdict);
            given.map(VerdictOn::weight).sum()
        };
        let is_corrected = self.labels.contains(&Class::Correction);
        let is_superseded = self.superseded_by.is_some() && !question.earliest;
        Signs {
            works: said(Verdict::Works),
            broken: said(Verdict::Broken),
            corrected: f64::from(u8::from(is_corrected)),
            superseded: f64::from(u8::from(is_superseded)),
            ..Signs::default()
        }
    }

    /// What a person is told of it.
    fn reasons(&self) -> Vec<String> {
        let told = |given: &VerdictOn| {
            let by_half = if given.weight() < 1.0 {
                " (reported, own work: half)"
            } else {
                ""
            };
            format!("operator: {}{by_half}", given.verdict)
        };
        let telling = |given: &&VerdictOn| given.verdict != Verdict::Partial;
        let mut why: Vec<String> = self.verdicts.iter().filter(telling).map(told).collect();
        if self.labels.contains(&Class::Correction) {
            why.push("operator corrected it".into());
        }
        if let Some(by) = &self.superseded_by {
            why.push(format!("superseded by {}", by.get(..8).unwrap_or(by)));
        }
        why
    }
}

/// Lifts what the operator confirmed, lowers what was broken or corrected,
/// and sinks what was superseded below its successor.
pub fn with_standing(
    mut rows: Vec<Scored>,
    standing: &HashMap<String, Standing>,
    weights: &Weights,
    question: &Question,
) -> Vec<Scored> {
    for row in &mut rows {
        if let Some(known) = standing.get(&row.id) {
            row.score += weights.score(&known.signs(question));
            row.why.extend(known.reasons());
        }
    }
    if question.earliest {
        return sorted(rows);
    }
    let scores: HashMap<String, f64> = rows.iter().map(|r| (r.id.clone(), r.score)).collect();
    for row in &mut rows {
        let successor = standing
            .get(&row.id)
            .and_then(|s| s.superseded_by.as_ref())
            .and_then(|by| scores.get(by));
        if let Some(score) = successor
            && row.score >= *score
        {
            row.score = score - 1e-6;
        }
    }
    sorted(rows)
}
