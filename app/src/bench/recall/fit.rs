//! `prism bench recall --fit`: the weights that suit the tune half and LoCoMo, and which signs earn
//! their place.
//!
//! Judged by leaving out: each world and each conversation is ranked with weights that were fitted
//! without it, and so is what sort of row its questions ask for. The held half takes no part; it is
//! printed only when asked for.

use super::descent::{Counted, Fit};
use super::facts::{self, Facts, gather};
use super::operator::STANDING;
use super::{asked_for, figures};
use crate::home::Home;
use crate::ui::{out_anyway, table};
use anyhow::Result;
use prism_core::memory::recall::{Signs, Weights};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// How strongly weights may be held to where they stand; leaving out decides.
const PULLS: [f64; 4] = [0.05, 0.2, 0.8, 3.0];
/// What one point of a score says; leaving out decides.
const TEMPERATURES: [f64; 6] = [0.3, 0.4, 0.5, 0.6, 0.8, 1.0];
/// What the pairs count beside the two large sets.
const PAIRS_SHARE: f64 = 0.1;

pub async fn run(
    home: &Home,
    file: &Path,
    keep: Option<PathBuf>,
    look_at_held: bool,
) -> Result<()> {
    let mut all = Vec::new();
    for loaded in facts::load_all(home, file, keep.as_ref()).await? {
        all.extend(gather(&loaded).await?);
    }
    asked_for::leave_out(home, &mut all)?;
    let (held, tune): (Vec<Facts>, Vec<Facts>) =
        all.into_iter().partition(|f| f.question.split == "held");
    let bench = Bench { tune: &tune };
    let present = Weights::default();
    let mut rows = vec![Judged::header()];
    rows.push(Judged::of(&bench.ranked(&tune, |_| present)).cells("present weights"));
    let temperature = bench.temperature(&present);
    let mut best: Option<(f64, LeftOut, Judged)> = None;
    for pull in PULLS {
        let fitted = bench.left_out(&bench.fit(present, pull, temperature));
        let judged = bench.judge(&fitted, |weights| *weights);
        rows.push(judged.cells(&format!("fitted, pull {pull}, each left out")));
        if best
            .as_ref()
            .is_none_or(|(.., b)| judged.worth() > b.worth())
        {
            best = Some((pull, fitted, judged));
        }
    }
    let Some((pull, left_out, whole)) = best else {
        return Ok(());
    };
    let fitted = bench
        .fit(present, pull, temperature)
        .run(&bench.counted(None));
    rows.push(Judged::of(&bench.ranked(&tune, |_| fitted)).cells("fitted on all of it"));
    out_anyway(&table(&rows));
    out_anyway(&format!("pull {pull}, temperature {temperature}"));
    for (name, weight) in Signs::NAMES.iter().zip(fitted.values()) {
        out_anyway(&format!("    {name} = {weight:.2};"));
    }
    let mut rows = vec![Judged::header(), whole.cells("all signs, each left out")];
    for (i, name) in Signs::NAMES.iter().enumerate() {
        let without = |weights: &Weights| {
            let mut values = weights.values();
            values[i] = 0.0;
            Weights::of(values)
        };
        rows.push(
            bench
                .judge(&left_out, without)
                .cells(&format!("without {name}")),
        );
    }
    out_anyway(&table(&rows));
    if look_at_held {
        let rows = [
            Judged::header(),
            Judged::of(&bench.ranked(&held, |_| present)).cells("held, present weights"),
            Judged::of(&bench.ranked(&held, |_| fitted)).cells("held, fitted weights"),
        ];
        out_anyway(&table(&rows));
    }
    Ok(())
}

/// Questions to fit on.
struct Bench<'a> {
    tune: &'a [Facts],
}

/// World by world, the weights that were fitted without it.
type LeftOut = BTreeMap<String, Weights>;

/// A question and what was answered.
pub type Ranked<'a> = (&'a Facts, Vec<String>);

impl<'a> Bench<'a> {
    const fn fit(&self, start: Weights, pull: f64, temperature: f64) -> Fit {
        Fit {
            start,
            pull,
            temperature,
        }
    }

    /// The questions that count, but for those of one world; both large sets count alike.
    fn counted(&self, but: Option<&str>) -> Vec<Counted<'a>> {
        let counts = |f: &&Facts| !f.question.gold.is_empty() && Some(f.of.as_str()) != but;
        let of_set = |set: Set| {
            self.tune
                .iter()
                .filter(counts)
                .filter(|f| Set::of(f) == set)
                .count()
        };
        let each = |set: Set| set.share() / of_set(set).max(1) as f64;
        let shares = Set::ALL.map(each);
        let counted = self.tune.iter().filter(counts).map(|facts| Counted {
            facts,
            share: shares[Set::of(facts) as usize],
        });
        counted.collect()
    }

    /// The temperature at which these weights are least surprised.
    fn temperature(&self, weights: &Weights) -> f64 {
        let counted = self.counted(None);
        let cost = |t: f64| self.fit(*weights, 0.0, t).cost(&counted, weights).0;
        let best = TEMPERATURES
            .into_iter()
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        best.unwrap_or(TEMPERATURES[0])
    }

    /// For each world the weights that were fitted without it.
    fn left_out(&self, fit: &Fit) -> LeftOut {
        let worlds: BTreeSet<&str> = self.tune.iter().map(|f| f.of.as_str()).collect();
        let fitted = |world: &str| fit.run(&self.counted(Some(world)));
        worlds
            .into_iter()
            .map(|world| (world.to_owned(), fitted(world)))
            .collect()
    }

    /// How well each world is answered with weights that do not know it, changed somehow.
    fn judge(&self, left_out: &LeftOut, change: impl Fn(&Weights) -> Weights) -> Judged {
        Judged::of(&self.ranked(self.tune, |world| {
            left_out.get(world).map(&change).unwrap_or_default()
        }))
    }

    fn ranked<'f>(&self, facts: &'f [Facts], weights: impl Fn(&str) -> Weights) -> Vec<Ranked<'f>> {
        let answer = |f: &'f Facts| (f, f.answer(&weights(&f.of)).0);
        facts.iter().map(answer).collect()
    }
}

/// The sets that a fit looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    Operator,
    Locomo,
    Pairs,
}

impl Set {
    const ALL: [Self; 3] = [Self::Operator, Self::Locomo, Self::Pairs];

    fn of(facts: &Facts) -> Self {
        match facts.question.split.as_str() {
            "" => Self::Locomo,
            _ if facts.of == STANDING => Self::Pairs,
            _ => Self::Operator,
        }
    }

    const fn share(self) -> f64 {
        match self {
            Self::Operator | Self::Locomo => 1.0,
            Self::Pairs => PAIRS_SHARE,
        }
    }
}

/// How well questions were answered, set by set.
pub struct Judged {
    operator: super::Figures,
    locomo: super::Figures,
    pairs: (usize, usize),
}

impl Judged {
    pub fn of(ranked: &[Ranked]) -> Self {
        let of_set = |set: Set| {
            let own = ranked.iter().filter(|(f, _)| Set::of(f) == set);
            figures(own.map(|(f, ids)| (&f.question, ids.as_slice())))
        };
        let pairs: Vec<&Ranked> = ranked
            .iter()
            .filter(|(f, _)| Set::of(f) == Set::Pairs)
            .collect();
        let in_order = pairs
            .iter()
            .filter(|(f, ids)| f.question.in_order(ids))
            .count();
        Self {
            operator: of_set(Set::Operator),
            locomo: of_set(Set::Locomo),
            pairs: (in_order, pairs.len()),
        }
    }

    /// One figure to choose by.
    fn worth(&self) -> f64 {
        let pairs = self.pairs.0 as f64 / self.pairs.1.max(1) as f64;
        self.operator.r_at_5
            + self.operator.ndcg_at_10
            + self.locomo.r_at_10
            + self.locomo.ndcg_at_10
            + pairs * 100.0 * PAIRS_SHARE
    }

    pub fn header() -> Vec<String> {
        [
            "",
            "operator R@5",
            "nDCG@10",
            "LoCoMo R@10",
            "nDCG@10",
            "pairs in order",
        ]
        .map(str::to_owned)
        .to_vec()
    }

    pub fn cells(&self, name: &str) -> Vec<String> {
        let of = |figure: f64| format!("{figure:.1}");
        vec![
            name.to_owned(),
            of(self.operator.r_at_5),
            of(self.operator.ndcg_at_10),
            of(self.locomo.r_at_10),
            of(self.locomo.ndcg_at_10),
            format!("{} of {}", self.pairs.0, self.pairs.1),
        ]
    }
}
