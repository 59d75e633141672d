//! Recall: several legs, one ranking, and a reason for every hit.

use crate::memory::operator::{Class, Verdict};
use std::collections::{HashMap, HashSet};

/// Damping of reciprocal ranks. The customary 60 flattens the top of a list,
/// which is where the answer is.
pub const RRF_K: f64 = 15.0;
/// Candidates that one leg hands over at the most.
pub const LEG_CANDIDATES: usize = 200;
/// The share of its best neighbour's score that a row gains.
pub const NEIGHBOUR_SHARE: f64 = 0.3;
/// How far apart two rows of one session may be to count as neighbours, in microseconds.
pub const NEIGHBOUR_US: i64 = 2 * 3600 * 1_000_000;
/// The half-life of recency, in days.
pub const HALF_LIFE_DAYS: f64 = 180.0;

/// What each leg adds, and what the operator's word is worth.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    pub lexical: f64,
    pub graph: f64,
    pub recency: f64,
    pub works: f64,
    pub broken: f64,
    pub corrected: f64,
    pub superseded: f64,
}

impl Default for Weights {
    fn default() -> Self {
        Self { lexical: 1.0, graph: 0.35, recency: 0.06, works: 0.15, broken: -0.2, corrected: -0.1, superseded: -0.6 }
    }
}

/// Words that say nothing about what is sought.
const STOPWORDS: &str = "a about above after again all also am an and any are as at be because been before being below between both but by can could did do does doing down during each few for from \
further had has have having he her here hers him his how i if in into is it its itself just me more most my no nor not now of off on once only or other our out over own s same she should so some such t \
than that the their them then there these they this those through to too under until up us very was we were what when where which while who whom why will with would you your yours";

/// The words of a question that are worth looking up, in order, once each.
pub fn terms(question: &str) -> Vec<String> {
    let stop: HashSet<&str> = STOPWORDS.split(' ').collect();
    let words = |keep_all: bool| {
        let mut seen = HashSet::new();
        let split = question.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).map(str::to_lowercase);
        split.filter(|w| keep_all || !stop.contains(w.as_str())).filter(|w| seen.insert(w.clone())).take(TERMS_MAX).collect::<Vec<_>>()
    };
    let chosen = words(false);
    // A question of nothing but small words is still a question.
    if chosen.is_empty() { words(true) } else { chosen }
}

/// Words of one question that are looked up; the rest of a long one is context.
pub const TERMS_MAX: usize = 32;

/// One leg's ranking, best first.
#[derive(Clone, Debug)]
pub struct Leg {
    pub name: &'static str,
    pub weight: f64,
    pub ranked: Vec<String>,
}

/// A row on its way up.
#[derive(Clone, Debug, PartialEq)]
pub struct Scored {
    pub id: String,
    pub score: f64,
    pub why: Vec<String>,
}

/// Fuses the legs by weighted reciprocal rank; each leg that knows a row says so.
pub fn fuse(legs: &[Leg]) -> Vec<Scored> {
    let mut rows: HashMap<&str, Scored> = HashMap::new();
    for leg in legs.iter().filter(|l| l.weight > 0.0) {
        for (rank, id) in leg.ranked.iter().enumerate() {
            let row = rows.entry(id).or_insert_with(|| Scored { id: id.clone(), score: 0.0, why: Vec::new() });
            row.score += leg.weight / (RRF_K + rank as f64 + 1.0);
            row.why.push(format!("{} #{}", leg.name, rank + 1));
        }
    }
    sorted(rows.into_values().collect())
}

/// Best first; ties in a fixed order, so that the same question gets the same answer.
pub fn sorted(mut rows: Vec<Scored>) -> Vec<Scored> {
    rows.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.id.cmp(&b.id)));
    rows
}

/// Lets each row gain from its best neighbour: context says as much as words do.
///
/// `neighbours` names the rows beside each row; one that no leg found enters by its neighbour alone.
pub fn with_neighbours(rows: Vec<Scored>, neighbours: &HashMap<String, Vec<String>>) -> Vec<Scored> {
    let base: HashMap<String, f64> = rows.iter().map(|r| (r.id.clone(), r.score)).collect();
    let mut gained: HashMap<&str, (f64, &str)> = HashMap::new();
    for (id, beside) in neighbours {
        for other in beside {
            // Neighbourhood is mutual: what stands beside a good row is good, too.
            for (to, from) in [(id, other), (other, id)] {
                if let Some(score) = base.get(from.as_str()) {
                    let best = gained.entry(to).or_insert((0.0, from));
                    if *score > best.0 {
                        *best = (*score, from);
                    }
                }
            }
        }
    }
    let mut by_id: HashMap<String, Scored> = rows.into_iter().map(|r| (r.id.clone(), r)).collect();
    for (id, (score, from)) in gained {
        let row = by_id.entry(id.to_owned()).or_insert_with(|| Scored { id: id.to_owned(), score: 0.0, why: Vec::new() });
        row.score += NEIGHBOUR_SHARE * score;
        row.why.push(format!("beside {}", from.get(..8).unwrap_or(from)));
    }
    sorted(by_id.into_values().collect())
}

/// What the operator and later rows say of one row.
#[derive(Clone, Debug, Default)]
pub struct Standing {
    /// Verdicts with how much each weighs.
    pub verdicts: Vec<(Verdict, f64)>,
    pub labels: Vec<Class>,
    pub superseded_by: Option<String>,
}

/// Lifts what the operator confirmed, lowers what was broken or corrected,
/// and sinks what was superseded below its successor.
pub fn with_standing(mut rows: Vec<Scored>, standing: &HashMap<String, Standing>, weights: &Weights) -> Vec<Scored> {
    for row in &mut rows {
        let Some(said) = standing.get(&row.id) else { continue };
        let mut factor = 1.0;
        for (verdict, weight) in &said.verdicts {
            let effect = match verdict {
                Verdict::Works => weights.works,
                Verdict::Broken => weights.broken,
                Verdict::Partial => 0.0,
            };
            factor += effect * weight;
            if effect != 0.0 {
                row.why.push(format!("operator: {verdict}{}", if *weight < 1.0 { " (reported, own work: half)" } else { "" }));
            }
        }
        if said.labels.contains(&Class::Correction) {
            factor += weights.corrected;
            row.why.push("operator corrected it".into());
        }
        if let Some(by) = &said.superseded_by {
            factor += weights.superseded;
            row.why.push(format!("superseded by {}", by.get(..8).unwrap_or(by)));
        }
        row.score *= factor.clamp(0.1, 1.6);
    }
    let scores: HashMap<String, f64> = rows.iter().map(|r| (r.id.clone(), r.score)).collect();
    for row in &mut rows {
        let successor = standing.get(&row.id).and_then(|s| s.superseded_by.as_ref()).and_then(|by| scores.get(by));
        if let Some(score) = successor
            && row.score >= *score
        {
            row.score = score * 0.99;
        }
    }
    sorted(rows)
}

/// The share of its weight that age leaves a row.
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

    fn leg(name: &'static str, weight: f64, ids: &[&str]) -> Leg {
        Leg { name, weight, ranked: ids.iter().map(|s| (*s).to_owned()).collect() }
    }

    fn order(rows: &[Scored]) -> Vec<&str> {
        rows.iter().map(|r| r.id.as_str()).collect()
    }

    #[test]
    fn small_words_are_not_looked_up_unless_there_is_nothing_else() {
        assert_eq!(terms("The line that finally showed up above the INPUT bar"), ["line", "finally", "showed", "input", "bar"]);
        assert_eq!(terms("what was it"), ["what", "was", "it"]);
        assert_eq!(terms("turn/steer turn/start"), ["turn", "steer", "start"]);
        assert!(terms("?!").is_empty());
    }

    #[test]
    fn a_row_that_two_legs_know_beats_one_that_either_ranks_first_alone() {
        let rows = fuse(&[leg("lexical", 1.0, &["a", "b"]), leg("graph", 1.0, &["c", "b"])]);
        assert_eq!(order(&rows)[0], "b");
        assert_eq!(rows[0].why, ["lexical #2", "graph #2"]);
    }

    #[test]
    fn a_leg_of_weight_nought_says_nothing() {
        let rows = fuse(&[leg("lexical", 1.0, &["a"]), leg("recency", 0.0, &["z"])]);
        assert_eq!(order(&rows), ["a"]);
    }

    #[test]
    fn a_neighbour_gains_and_may_enter_by_its_neighbour_alone() {
        let rows = fuse(&[leg("lexical", 1.0, &["delta", "x"])]);
        let beside = HashMap::from([("delta".to_owned(), vec!["confirmation".to_owned()])]);
        let rows = with_neighbours(rows, &beside);
        let confirmation = rows.iter().find(|r| r.id == "confirmation").unwrap();
        assert_eq!(confirmation.why, ["beside delta"]);
        assert!(confirmation.score < rows[0].score);
    }

    #[test]
    fn the_operators_word_lifts_lowers_and_sinks() {
        let rows = fuse(&[leg("lexical", 1.0, &["old", "broken", "works", "new"])]);
        let standing = HashMap::from([
            ("old".to_owned(), Standing { superseded_by: Some("new".into()), ..Default::default() }),
            ("broken".to_owned(), Standing { verdicts: vec![(Verdict::Broken, 1.0)], ..Default::default() }),
            ("works".to_owned(), Standing { verdicts: vec![(Verdict::Works, 1.0)], ..Default::default() }),
        ]);
        let rows = with_standing(rows, &standing, &Weights::default());
        assert_eq!(order(&rows), ["works", "new", "broken", "old"]);
    }

    #[test]
    fn what_was_superseded_never_stands_above_its_successor() {
        let rows = vec![Scored { id: "old".into(), score: 100.0, why: vec![] }, Scored { id: "new".into(), score: 0.1, why: vec![] }];
        let standing = HashMap::from([("old".to_owned(), Standing { superseded_by: Some("new".into()), ..Default::default() })]);
        assert_eq!(order(&with_standing(rows, &standing, &Weights::default())), ["new", "old"]);
    }

    #[test]
    fn half_of_a_row_is_left_after_half_a_year() {
        assert!((recency(180.0) - 0.5).abs() < 1e-9 && recency(0.0) == 1.0);
    }
}
