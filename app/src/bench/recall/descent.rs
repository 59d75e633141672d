//! Which weights put the rows that answer first.
//!
//! Listwise: what a question costs is how unlikely the rows that answer it are to come first when
//! rows are drawn by their score. What a row borrows from its session and its neighbours hangs on
//! the other weights; its slope is taken through the rows it is borrowed from.

use super::facts::Facts;
use prism_core::memory::recall::{Signs, Told, Weights};

const N: usize = Signs::NAMES.len();
type Vector = [f64; N];

/// Steps of one fit; it ends before when it has arrived.
const STEPS_MAX: usize = 80;
/// How little a step must gain for the fit to have arrived.
const GAIN_MIN: f64 = 1e-6;
/// How far even a weight of nothing may move.
const SLACK: f64 = 0.5;

/// One question that counts, and how much.
pub struct Counted<'a> {
    pub facts: &'a Facts,
    pub share: f64,
}

/// What a fit starts from and is held to.
pub struct Fit {
    pub start: Weights,
    /// How strongly weights are held to where they stand.
    pub pull: f64,
    /// What one point of a score says: small makes the best row nearly certain.
    pub temperature: f64,
}

impl Fit {
    /// The weights that suit these questions best.
    pub fn run(&self, questions: &[Counted]) -> Weights {
        let start = self.start.values();
        let scale = start.map(|weight| weight.abs().max(SLACK));
        let weights =
            |moved: &Vector| Weights::of(std::array::from_fn(|i| start[i] + scale[i] * moved[i]));
        minimum(|moved| {
            let (cost, slope) = self.cost(questions, &weights(moved));
            let held: f64 = moved.iter().map(|m| m * m).sum();
            let slope = std::array::from_fn(|i| slope[i] * scale[i] + 2.0 * self.pull * moved[i]);
            (cost + self.pull * held, slope)
        })
        .map_or(self.start, |moved| weights(&moved))
    }

    /// What these questions cost with some weights, and how that changes with each weight.
    pub fn cost(&self, questions: &[Counted], weights: &Weights) -> (f64, Vector) {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let each = questions.len().div_ceil(threads).max(1);
        let parts: Vec<(f64, Vector)> = std::thread::scope(|scope| {
            let started: Vec<_> = questions
                .chunks(each)
                .map(|part| scope.spawn(|| self.cost_of_part(part, weights)))
                .collect();
            let joined = started.into_iter().map(|part| part.join());
            joined
                .map(|part| part.unwrap_or((f64::NAN, [0.0; N])))
                .collect()
        });
        parts
            .into_iter()
            .fold((0.0, [0.0; N]), |(sum, slope), (cost, of_part)| {
                (sum + cost, std::array::from_fn(|i| slope[i] + of_part[i]))
            })
    }

    fn cost_of_part(&self, questions: &[Counted], weights: &Weights) -> (f64, Vector) {
        let (mut sum, mut slope) = (0.0, [0.0; N]);
        for Counted { facts, share } in questions {
            let told = facts.told(weights);
            let scores: Vec<f64> = told
                .iter()
                .map(|t| weights.score(&t.signs) / self.temperature)
                .collect();
            let slopes = slopes(&told, weights);
            let answers: Vec<bool> = facts.answers();
            let highest = scores.iter().copied().fold(f64::MIN, f64::max);
            let chance: Vec<f64> = scores.iter().map(|s| (s - highest).exp()).collect();
            let mut others = f64::MIN_POSITIVE;
            let mut others_slope = [0.0; N];
            for (i, chance) in chance.iter().enumerate().filter(|(i, _)| !answers[*i]) {
                others += chance;
                add(&mut others_slope, &slopes[i], *chance);
            }
            let each = share / facts.question.gold.len().max(1) as f64;
            for i in (0..chance.len()).filter(|i| answers[*i]) {
                let first = (chance[i] / (chance[i] + others)).max(f64::MIN_POSITIVE);
                sum -= each * first.ln();
                let missed = each * (1.0 - first) / self.temperature;
                add(&mut slope, &others_slope, missed / others);
                add(&mut slope, &slopes[i], -missed);
            }
        }
        (sum, slope)
    }
}

fn add(sum: &mut Vector, other: &Vector, times: f64) {
    for (sum, other) in sum.iter_mut().zip(other) {
        *sum += other * times;
    }
}

/// How each row's score changes with each weight.
fn slopes(told: &[Told], weights: &Weights) -> Vec<Vector> {
    let content: Vec<Vector> = told.iter().map(|t| t.signs.content().values()).collect();
    let mut mean = [0.0; N];
    for row in &content {
        add(&mut mean, row, 1.0 / content.len() as f64);
    }
    let one = |(i, told): (usize, &Told)| {
        let mut slope = told.signs.values();
        add(&mut slope, &content[told.session_best], weights.session);
        add(&mut slope, &mean, -weights.session);
        if let Some(better) = told.better_beside {
            let of_kind = told.signs.kind_beside > 0.0;
            let beside = weights.beside + if of_kind { weights.kind_beside } else { 0.0 };
            add(&mut slope, &content[better], beside);
            add(&mut slope, &content[i], -beside);
        }
        if let Some(asks) = told.answers {
            add(&mut slope, &content[asks], weights.answer);
            add(&mut slope, &mean, -weights.answer);
        }
        slope
    };
    told.iter().enumerate().map(one).collect()
}

/// Where a function of value and slope is least, beginning at nothing (BFGS).
fn minimum(mut function: impl FnMut(&Vector) -> (f64, Vector)) -> Option<Vector> {
    let dot = |a: &Vector, b: &Vector| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let mut at = [0.0; N];
    let (mut value, mut slope) = function(&at);
    let mut inverse = [[0.0; N]; N];
    (0..N).for_each(|i| inverse[i][i] = 1.0);
    for _ in 0..STEPS_MAX {
        let mut way: Vector = std::array::from_fn(|i| -dot(&inverse[i], &slope));
        let mut down = dot(&way, &slope);
        if down >= 0.0 {
            way = slope.map(|s| -s);
            down = dot(&way, &slope);
            inverse = [[0.0; N]; N];
            (0..N).for_each(|i| inverse[i][i] = 1.0);
        }
        // Half the step until it leads down far enough.
        let mut length = 1.0;
        let (next, next_value, next_slope) = loop {
            let next: Vector = std::array::from_fn(|i| at[i] + length * way[i]);
            let (next_value, next_slope) = function(&next);
            if next_value <= value + 1e-4 * length * down {
                break (next, next_value, next_slope);
            }
            length /= 2.0;
            if length < 1e-6 {
                return Some(at);
            }
        };
        let moved: Vector = std::array::from_fn(|i| next[i] - at[i]);
        let turned: Vector = std::array::from_fn(|i| next_slope[i] - slope[i]);
        let along = dot(&moved, &turned);
        if along > 1e-12 {
            let bent: Vector = std::array::from_fn(|i| dot(&inverse[i], &turned));
            let stretch = 1.0 + dot(&turned, &bent) / along;
            for i in 0..N {
                for j in 0..N {
                    inverse[i][j] +=
                        (stretch * moved[i] * moved[j] - bent[i] * moved[j] - moved[i] * bent[j])
                            / along;
                }
            }
        }
        let gained = value - next_value;
        (at, value, slope) = (next, next_value, next_slope);
        if gained < GAIN_MIN {
            break;
        }
    }
    value.is_finite().then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::Question;
    use super::*;
    use prism_core::memory::recall::{Candidate, Candidates, Nearness};
    use std::collections::BTreeSet;

    fn row(id: &str, near: [f64; 3], word: f64) -> Candidate {
        Candidate {
            id: id.into(),
            session: Some("s".into()),
            words: 20,
            matches: vec![(0, word)],
            near: Some(Nearness {
                field: near[0],
                joined: near[1],
                context: near[2],
                asked: false,
            }),
            ..Candidate::default()
        }
    }

    fn facts() -> Facts {
        let mut rows = vec![
            row("a", [0.5, 0.4, 0.3], 0.2),
            row("b", [0.3, 0.45, 0.2], 0.7),
            row("c", [0.42, 0.2, 0.4], 0.1),
        ];
        rows[0].beside = vec![1, 2];
        rows[2].beside = vec![0];
        rows[2].mentions = true;
        Facts {
            of: "world".into(),
            question: Question {
                id: String::new(),
                text: String::new(),
                split: "tune".into(),
                also: Vec::new(),
                group: String::new(),
                gold: BTreeSet::from(["c".to_owned()]),
                over: BTreeSet::new(),
            },
            asked: prism_core::memory::question::Question::default(),
            found: Candidates {
                rows,
                mass: 1.0,
                ..Candidates::default()
            },
            standing: Default::default(),
        }
    }

    fn fit(pull: f64) -> Fit {
        Fit {
            start: Weights::default(),
            pull,
            temperature: 0.7,
        }
    }

    #[test]
    fn the_slope_is_what_a_small_step_shows_also_through_neighbours_and_session() {
        let facts = facts();
        let counted = [Counted {
            facts: &facts,
            share: 1.0,
        }];
        let at = Weights::default().values();
        let (_, slope) = fit(0.0).cost(&counted, &Weights::of(at));
        for (i, name) in Signs::NAMES.iter().enumerate() {
            let cost = |step: f64| {
                let mut moved = at;
                moved[i] += step;
                fit(0.0).cost(&counted, &Weights::of(moved)).0
            };
            let seen = (cost(1e-5) - cost(-1e-5)) / 2e-5;
            assert!(
                (seen - slope[i]).abs() < 1e-6,
                "{name}: {seen}, {}",
                slope[i]
            );
        }
    }

    #[test]
    fn a_fit_lowers_what_it_costs_and_a_strong_pull_keeps_the_weights() {
        let facts = facts();
        let counted = [Counted {
            facts: &facts,
            share: 1.0,
        }];
        let cost = |weights: &Weights| fit(0.0).cost(&counted, weights).0;
        let start = Weights::default();
        let fitted = fit(0.01).run(&counted);
        assert!(cost(&fitted) < cost(&start) * 0.5, "{}", cost(&fitted));
        let held = fit(1e6).run(&counted);
        assert!((cost(&held) - cost(&start)).abs() < 1e-3);
    }
}
