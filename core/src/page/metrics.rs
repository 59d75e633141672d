//! What each metric counts: pure functions over rows of a range. `docs/metrics.md` says it in words.

use super::alike::{ALIKE, alike, groups, stems};
use crate::api::memory::Rot;
use crate::api::page::metrics::{
    AgentRate, BucketSize, Confirmations, CorrectionPattern, DeadEnds, DeliveryPlace, Example,
    GateMetrics, LayerTimes, LookedBack, Metric, Pair, RecallMetrics, RecallTally, RepeatWeek,
    Repeats, StateTimes, SurfaceTally, VerdictSeries,
};
use crate::limits::BUCKETS_MAX;
use crate::loopback::{Outcome, Probe};
use crate::moment::Moment;
use crate::problem::Problem;
use crate::receipt::{Layer, State};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;
const WEEK_US: i64 = 7 * DAY_US;
/// 1970 began on a Thursday; weeks begin on Monday.
const FIRST_MONDAY_US: i64 = 4 * DAY_US;
/// Days that a range has unless asked otherwise.
pub const RANGE_DAYS: i64 = 28;
/// Weeks before a range in which what is said again may have been said first.
pub const REPEAT_WEEKS: i64 = 26;
/// Patterns, pairs and examples that one answer lists.
const PATTERNS_MAX: usize = 20;
const PAIRS_MAX: usize = 30;
const EXAMPLES_MAX: usize = 3;
/// Sentences that are compared with each other; the newest count.
pub const COMPARED_MAX: usize = 2_000;

/// A range of time in buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    pub since: Moment,
    pub until: Moment,
    pub size: BucketSize,
    pub starts: Vec<Moment>,
}

impl Buckets {
    pub fn new(
        since: Option<Moment>,
        until: Option<Moment>,
        size: Option<BucketSize>,
        now: Moment,
    ) -> Result<Self, Problem> {
        let until = until.unwrap_or(now);
        let since = since.unwrap_or(until.plus_us(-RANGE_DAYS * DAY_US));
        super::range(Some(since), Some(until))?;
        let size = size.unwrap_or(BucketSize::Day);
        let us = width_us(size);
        let first = begins(since, size);
        let n = (until.since_us(first) + us - 1) / us;
        if n > BUCKETS_MAX as i64 {
            return Err(Problem::field(
                "bucket",
                format!(
                    "divides the range into {n} and may make {BUCKETS_MAX}; ask for a shorter range or a larger bucket"
                ),
            ));
        }
        Ok(Self {
            since,
            until,
            size,
            starts: (0..n).map(|i| first.plus_us(i * us)).collect(),
        })
    }

    /// The bucket of a moment; none outside the range.
    pub fn of(&self, at: Moment) -> Option<usize> {
        let first = *self.starts.first()?;
        let inside = at >= self.since && at < self.until;
        inside.then(|| (at.since_us(first) / width_us(self.size)) as usize)
    }

    fn count(&self, times: impl Iterator<Item = Moment>) -> Vec<u64> {
        let mut n = vec![0; self.starts.len()];
        for i in times.filter_map(|at| self.of(at)) {
            n[i] += 1;
        }
        n
    }
}

const fn width_us(size: BucketSize) -> i64 {
    match size {
        BucketSize::Hour => HOUR_US,
        BucketSize::Day => DAY_US,
        BucketSize::Week => WEEK_US,
    }
}

/// When the bucket of a moment begins, in UTC.
fn begins(at: Moment, size: BucketSize) -> Moment {
    let offset = match size {
        BucketSize::Week => FIRST_MONDAY_US,
        BucketSize::Hour | BucketSize::Day => 0,
    };
    Moment((at.0 - offset).div_euclid(width_us(size)) * width_us(size) + offset)
}

/// A verdict of the operator.
#[derive(Clone, Debug)]
pub struct VerdictFact {
    pub at: Moment,
    pub verdict: String,
    pub via: String,
}

/// How many inputs of a range are alike in everything that is counted.
#[derive(Clone, Debug)]
pub struct InputTally {
    pub class: String,
    pub via: String,
    pub surface: Option<String>,
    pub confidence: String,
    pub review: Option<String>,
    pub n: u64,
}

impl InputTally {
    fn counts(&self) -> bool {
        counts(self.review.as_deref(), &self.confidence)
    }
}

/// Low confidence counts once it was accepted; what was rejected never does.
fn counts(review: Option<&str>, confidence: &str) -> bool {
    match review {
        Some("rejected") => false,
        Some(_) => true,
        None => confidence == "high",
    }
}

/// Words of the operator that an agent captured.
#[derive(Clone, Debug)]
pub struct InputFact {
    pub pid: String,
    pub id: Uuid,
    pub at: Moment,
    pub class: String,
    pub text: String,
    pub action: Option<String>,
    pub via: String,
    pub surface: Option<String>,
    pub confidence: String,
    pub review: Option<String>,
}

impl InputFact {
    pub fn counts(&self) -> bool {
        counts(self.review.as_deref(), &self.confidence)
    }

    fn example(&self, text: &str) -> Example {
        Example {
            pid: self.pid.clone(),
            id: self.id,
            at: self.at,
            identity: self.via.clone(),
            text: crate::text::clip(&crate::text::one_line(text), 200),
        }
    }
}

/// An approach that a delta ruled out.
#[derive(Clone, Debug)]
pub struct AttemptFact {
    pub pid: String,
    pub delta_id: Uuid,
    pub at: Moment,
    pub identity: String,
    pub approach: String,
}

#[derive(Clone, Debug)]
pub struct RecallFact {
    pub at: Moment,
    pub identity: String,
    pub latency_us: i64,
    pub cited: bool,
}

#[derive(Clone, Debug)]
pub struct GateFact {
    pub at: Moment,
    pub warned: bool,
}

/// The rows of a range; corrections and attempts also of the weeks before it.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub verdicts: Vec<VerdictFact>,
    /// Inputs of the range, counted where they are kept.
    pub inputs: Vec<InputTally>,
    /// Those that are compared by their words.
    pub corrections: Vec<InputFact>,
    pub attempts: Vec<AttemptFact>,
    pub recalls: Vec<RecallFact>,
    pub gate: Vec<GateFact>,
    /// Metrics of which a project has more rows than count, and where those end that do.
    pub cut: Vec<LookedBack>,
    /// Labels on warnings of all time, and how many of them said that the warning was right.
    pub labelled: u64,
    pub labelled_right: u64,
    pub rows: u64,
    pub rows_never_recalled: u64,
    pub never_recalled: Vec<Example>,
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64 * 1000.0).round() / 1000.0)
}

pub fn confirmations(verdicts: &[VerdictFact], buckets: &Buckets) -> Confirmations {
    let inside: Vec<&VerdictFact> = verdicts
        .iter()
        .filter(|v| buckets.of(v.at).is_some())
        .collect();
    let mut by: BTreeMap<(&str, &str), Vec<Moment>> = BTreeMap::new();
    for v in &inside {
        by.entry((&v.verdict, &v.via)).or_default().push(v.at);
    }
    let works = |v: &&&VerdictFact| v.verdict == "works";
    let all = buckets.count(inside.iter().map(|v| v.at));
    let good = buckets.count(inside.iter().filter(works).map(|v| v.at));
    Confirmations {
        series: by
            .into_iter()
            .map(|((verdict, via), times)| VerdictSeries {
                verdict: verdict.into(),
                confirmed_via: via.into(),
                total: times.len() as u64,
                n: buckets.count(times.into_iter()),
            })
            .collect(),
        rate: all.iter().zip(&good).map(|(n, g)| share(*g, *n)).collect(),
        total: inside.len() as u64,
        works: inside.iter().filter(works).count() as u64,
    }
}

pub fn misclassification(inputs: &[InputTally]) -> Vec<AgentRate> {
    let mut by: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for input in inputs {
        let (captured, reviewed, rejected) = by.entry(&input.via).or_default();
        let those = |is: bool| if is { input.n } else { 0 };
        *captured += input.n;
        *reviewed += those(input.review.is_some());
        *rejected += those(input.review.as_deref() == Some("rejected"));
    }
    by.into_iter()
        .map(|(agent, (captured, reviewed, rejected))| AgentRate {
            agent: agent.into(),
            captured,
            reviewed,
            rejected,
            rate: share(rejected, reviewed),
        })
        .collect()
}

/// How far back metrics look, where there is more than they compare or count.
pub fn looked_back(facts: &Facts, buckets: &Buckets, wanted: &[Metric]) -> Vec<LookedBack> {
    let oldest = |mut times: Vec<Moment>| {
        times.sort();
        let skip = times.len().checked_sub(COMPARED_MAX).filter(|n| *n > 0)?;
        times.get(skip).copied()
    };
    let corrections = facts.corrections.iter();
    let corrections = corrections.filter(|i| i.class == "correction" && i.counts());
    let corrections = oldest(corrections.map(|i| i.at).collect());
    let attempts = oldest(facts.attempts.iter().map(|a| a.at).collect());
    [
        // Patterns are of the range alone: what lies before it is not missed.
        (
            Metric::Corrections,
            corrections.filter(|at| *at > buckets.since),
        ),
        (Metric::Repeats, corrections),
        (Metric::DeadEnds, attempts),
    ]
    .into_iter()
    .filter(|(metric, _)| wanted.contains(metric))
    .filter_map(|(metric, to)| {
        let rows = COMPARED_MAX as u64;
        to.map(|to| LookedBack { metric, to, rows })
    })
    .chain(together(&facts.cut, wanted))
    .collect()
}

/// What several projects left out, metric by metric: from the latest end on, all of them are whole.
fn together(cut: &[LookedBack], wanted: &[Metric]) -> Vec<LookedBack> {
    let of = |metric: &Metric| {
        let own = cut.iter().filter(|c| c.metric == *metric);
        let to = own.clone().map(|c| c.to).max()?;
        let rows = own.map(|c| c.rows).sum();
        let metric = *metric;
        Some(LookedBack { metric, to, rows })
    };
    wanted.iter().filter_map(of).collect()
}

/// The rot of some rows: the weighed share of those that went stale, by weight and number.
pub fn rot(rows: u64, stale: impl IntoIterator<Item = (f64, u64)>) -> f64 {
    let weighed: f64 = stale.into_iter().map(|(weight, n)| weight * n as f64).sum();
    let score = (weighed / rows.max(1) as f64).min(1.0);
    (score * 1000.0).round() / 1000.0
}

/// The rot of several projects is that of all their rows; none of none.
pub fn rot_of(projects: &[Rot]) -> Option<f64> {
    let stale = projects.iter().flat_map(|p| &p.kinds);
    let rows = projects.iter().map(|p| p.rows).sum();
    (!projects.is_empty()).then(|| rot(rows, stale.map(|k| (k.weight, k.rows))))
}

/// The corrections that count, newest last, and no more than can be compared; how many older ones
/// were left out.
fn counted_corrections(inputs: &[InputFact]) -> (Vec<&InputFact>, usize) {
    let mut counted: Vec<&InputFact> = inputs
        .iter()
        .filter(|i| i.class == "correction" && i.counts())
        .collect();
    counted.sort_by_key(|i| (i.at, i.id));
    let skip = counted.len().saturating_sub(COMPARED_MAX);
    (counted.split_off(skip), skip)
}

pub fn corrections(inputs: &[InputFact], buckets: &Buckets) -> Vec<CorrectionPattern> {
    let counted: Vec<&InputFact> = counted_corrections(inputs)
        .0
        .into_iter()
        .filter(|i| buckets.of(i.at).is_some())
        .collect();
    let (noted, silent): (Vec<&InputFact>, Vec<&InputFact>) = counted
        .into_iter()
        .partition(|i| i.action.as_deref().is_some_and(|a| !a.trim().is_empty()));
    let action = |i: &InputFact| i.action.clone().unwrap_or_default();
    let sentences: Vec<BTreeSet<String>> = noted.iter().map(|i| stems(&action(i))).collect();
    let mut patterns: Vec<CorrectionPattern> = groups(&sentences)
        .into_iter()
        .map(|(shared, group)| {
            let rows: Vec<&InputFact> = group.into_iter().map(|i| noted[i]).collect();
            pattern(shared, &rows, buckets, |i| action(i))
        })
        .collect();
    patterns.sort_by(|a, b| b.total.cmp(&a.total).then_with(|| a.label.cmp(&b.label)));
    patterns.truncate(PATTERNS_MAX);
    if !silent.is_empty() {
        let mut unsaid = pattern(Vec::new(), &silent, buckets, |i| i.text.clone());
        unsaid.label = "(what the agent was doing was not noted)".into();
        patterns.push(unsaid);
    }
    patterns
}

fn pattern(
    shared: Vec<String>,
    rows: &[&InputFact],
    buckets: &Buckets,
    says: impl Fn(&InputFact) -> String,
) -> CorrectionPattern {
    let agents: BTreeSet<&str> = rows.iter().map(|i| i.via.as_str()).collect();
    let newest = rows.iter().rev();
    CorrectionPattern {
        shared,
        label: rows.last().map(|i| says(i)).unwrap_or_default(),
        total: rows.len() as u64,
        n: buckets.count(rows.iter().map(|i| i.at)),
        agents: agents.into_iter().map(str::to_owned).collect(),
        examples: newest
            .take(EXAMPLES_MAX)
            .map(|i| i.example(&i.text))
            .collect(),
    }
}

/// Things that were said again: each with the newest earlier one that says the same.
fn said_again<T>(
    things: &[T],
    at: impl Fn(&T) -> Moment,
    text: impl Fn(&T) -> &str,
    apart: impl Fn(&T, &T) -> bool,
) -> Vec<(usize, usize, f64, Vec<String>)> {
    let sentences: Vec<BTreeSet<String>> = things.iter().map(|t| stems(text(t))).collect();
    let mut spoken: BTreeMap<&str, usize> = BTreeMap::new();
    for stem in sentences.iter().flatten() {
        *spoken.entry(stem).or_default() += 1;
    }
    // Two sentences that are alike share one of the rarest stems of each: what everybody says brings
    // nobody together.
    let telling = |sentence: &'_ BTreeSet<String>| -> Vec<String> {
        let mut rarest: Vec<&String> = sentence.iter().collect();
        rarest.sort_by_key(|stem| (spoken[stem.as_str()], *stem));
        let shared = (ALIKE * sentence.len() as f64).ceil() as usize;
        rarest.truncate(sentence.len() + 1 - shared.max(1));
        rarest.into_iter().cloned().collect()
    };
    let mut by_stem: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut again = Vec::new();
    for (i, sentence) in sentences.iter().enumerate() {
        let telling = telling(sentence);
        let earlier: BTreeSet<usize> = telling
            .iter()
            .filter_map(|stem| by_stem.get(stem))
            .flatten()
            .copied()
            .collect();
        let first = earlier.into_iter().rev().find_map(|j| {
            let told = at(&things[j]) < at(&things[i]) && apart(&things[j], &things[i]);
            let found = told.then(|| alike(&sentences[j], sentence)).flatten();
            found.map(|(similarity, shared)| (j, i, similarity, shared))
        });
        again.extend(first);
        for stem in telling {
            by_stem.entry(stem).or_default().push(i);
        }
    }
    again
}

pub fn repeats(inputs: &[InputFact], buckets: &Buckets) -> Repeats {
    let (corrections, older) = counted_corrections(inputs);
    // Weeks that were not looked at are not weeks without a correction.
    let from = match corrections.first() {
        Some(oldest) if older > 0 => oldest.at.max(buckets.since),
        _ => buckets.since,
    };
    let again = said_again(&corrections, |i| i.at, |i| i.text.as_str(), |_, _| true);
    let inside =
        |i: &usize| corrections[*i].at >= buckets.since && corrections[*i].at < buckets.until;
    let mut weeks: BTreeMap<Moment, (u64, u64)> = BTreeMap::new();
    let mut week = begins(from, BucketSize::Week);
    while week < buckets.until {
        weeks.insert(week, (0, 0));
        week = week.plus_us(WEEK_US);
    }
    let mut add = |i: usize, corrections_n: u64, repeated_n: u64| {
        let entry = weeks.entry(begins(corrections[i].at, BucketSize::Week));
        let (n, repeated) = entry.or_default();
        *n += corrections_n;
        *repeated += repeated_n;
    };
    (0..corrections.len())
        .filter(inside)
        .for_each(|i| add(i, 1, 0));
    let again: Vec<_> = again.into_iter().filter(|(_, i, ..)| inside(i)).collect();
    again.iter().for_each(|(_, i, ..)| add(*i, 0, 1));
    Repeats {
        weeks: weeks
            .into_iter()
            .map(|(week, (corrections, repeated))| RepeatWeek {
                week,
                corrections,
                repeated,
                rate: share(repeated, corrections),
            })
            .collect(),
        pairs: again
            .into_iter()
            .rev()
            .take(PAIRS_MAX)
            .map(|(first, again, similarity, shared)| Pair {
                first: corrections[first].example(&corrections[first].text),
                again: corrections[again].example(&corrections[again].text),
                shared,
                similarity,
            })
            .collect(),
    }
}

pub fn dead_ends(attempts: &[AttemptFact], buckets: &Buckets) -> DeadEnds {
    let mut attempts: Vec<&AttemptFact> = attempts.iter().collect();
    attempts.sort_by_key(|a| (a.at, a.delta_id));
    let attempts = attempts.split_off(attempts.len().saturating_sub(COMPARED_MAX));
    // One delta may list the same thing twice; walking into it again takes another.
    let apart = |a: &&AttemptFact, b: &&AttemptFact| a.delta_id != b.delta_id;
    let again = said_again(&attempts, |a| a.at, |a| a.approach.as_str(), apart);
    let again: Vec<_> = again
        .into_iter()
        .filter(|(_, i, ..)| buckets.of(attempts[*i].at).is_some())
        .collect();
    let example = |a: &AttemptFact| Example {
        pid: a.pid.clone(),
        id: a.delta_id,
        at: a.at,
        identity: a.identity.clone(),
        text: crate::text::clip(&crate::text::one_line(&a.approach), 200),
    };
    let n = buckets.count(attempts.iter().map(|a| a.at));
    DeadEnds {
        total: n.iter().sum(),
        n,
        again_total: again.len() as u64,
        again: buckets.count(again.iter().map(|(_, i, ..)| attempts[*i].at)),
        pairs: again
            .into_iter()
            .rev()
            .take(PAIRS_MAX)
            .map(|(first, again, similarity, shared)| Pair {
                first: example(attempts[first]),
                again: example(attempts[again]),
                shared,
                similarity,
            })
            .collect(),
    }
}

pub fn surfaces(inputs: &[InputTally]) -> Vec<SurfaceTally> {
    let mut by: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
    for input in inputs.iter().filter(|i| i.counts()) {
        let surface = input.surface.as_deref().unwrap_or("unknown");
        let (confirmations, corrections, pivots) = by.entry(surface).or_default();
        match input.class.as_str() {
            "confirmation" => *confirmations += input.n,
            "correction" => *corrections += input.n,
            _ => *pivots += input.n,
        }
    }
    by.into_iter()
        .map(
            |(surface, (confirmations, corrections, direction_pivots))| SurfaceTally {
                surface: surface.into(),
                confirmations,
                corrections,
                direction_pivots,
                rate: share(confirmations, confirmations + corrections),
            },
        )
        .collect()
}

pub fn recall(facts: &Facts, buckets: &Buckets, rot: Option<f64>) -> RecallMetrics {
    let inside: Vec<&RecallFact> = facts
        .recalls
        .iter()
        .filter(|r| buckets.of(r.at).is_some())
        .collect();
    let mut by: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut times: Vec<Vec<i64>> = vec![Vec::new(); buckets.starts.len()];
    for event in &inside {
        let (n, cited) = by.entry(&event.identity).or_default();
        *n += 1;
        *cited += u64::from(event.cited);
        if let Some(i) = buckets.of(event.at) {
            times[i].push(event.latency_us);
        }
    }
    let at = |percent: usize| times.iter().map(|t| percentile_ms(t, percent)).collect();
    RecallMetrics {
        total: inside.len() as u64,
        cited_total: inside.iter().filter(|r| r.cited).count() as u64,
        n: buckets.count(inside.iter().map(|r| r.at)),
        cited: buckets.count(inside.iter().filter(|r| r.cited).map(|r| r.at)),
        p50_ms: at(50),
        p95_ms: at(95),
        by_identity: by
            .into_iter()
            .map(|(identity, (n, cited))| RecallTally {
                identity: identity.into(),
                n,
                cited,
            })
            .collect(),
        rows: facts.rows,
        rows_never_recalled: facts.rows_never_recalled,
        never_recalled: facts.never_recalled.clone(),
        rot,
    }
}

/// The time that so many of a hundred stayed within; none of none.
pub fn percentile_ms(times_us: &[i64], percent: usize) -> Option<f64> {
    let mut sorted = times_us.to_vec();
    sorted.sort_unstable();
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).map(|us| *us as f64 / 1000.0)
}

pub fn gate(facts: &Facts, buckets: &Buckets) -> GateMetrics {
    let (precision, verdict) = crate::gate::precision(facts.labelled, facts.labelled_right);
    let of = |warned: bool| {
        let events = facts.gate.iter().filter(move |g| g.warned == warned);
        buckets.count(events.map(|g| g.at))
    };
    GateMetrics {
        warned: of(true),
        satisfied: of(false),
        labelled: facts.labelled,
        labelled_right: facts.labelled_right,
        precision,
        precision_target: crate::gate::PRECISION_TARGET,
        labels_needed: crate::gate::LABELS_MIN,
        verdict: verdict.into(),
    }
}

/// How long after they were sent signals came into each state in the sessions of one place, in
/// microseconds.
#[derive(Clone, Debug)]
pub struct Arrivals {
    pub surface: String,
    pub machine_id: String,
    pub after_us: BTreeMap<State, Vec<i64>>,
}

#[derive(Clone, Debug, Default)]
pub struct DeliveryFacts {
    pub runs: Vec<(Moment, Probe)>,
    /// A place may come more than once, for several projects.
    pub arrivals: Vec<Arrivals>,
    /// From when on every probe, and every signal, was looked at; none: of the whole range.
    pub probes_from: Option<Moment>,
    pub signals_from: Option<Moment>,
}

/// A place of which nothing is known yet.
pub fn empty_place(surface: &str, machine_id: &str, buckets: &Buckets) -> DeliveryPlace {
    let empty = || vec![0; buckets.starts.len()];
    DeliveryPlace {
        surface: surface.into(),
        machine_id: machine_id.into(),
        runs: 0,
        complete: 0,
        partial: 0,
        timeout: 0,
        drop_rate: None,
        n: empty(),
        dropped: empty(),
        layers: Vec::new(),
        signals: Vec::new(),
        last_run_at: None,
        sessions: Vec::new(),
    }
}

pub fn delivery(facts: &DeliveryFacts, buckets: &Buckets) -> Vec<DeliveryPlace> {
    let mut places: BTreeMap<(String, String), DeliveryPlace> = BTreeMap::new();
    let place = |places: &mut BTreeMap<(String, String), DeliveryPlace>, key: (String, String)| {
        places
            .entry(key.clone())
            .or_insert_with(|| empty_place(&key.0, &key.1, buckets));
        key
    };
    let mut layer_times: BTreeMap<(String, String), BTreeMap<Layer, (u64, Vec<i64>)>> =
        BTreeMap::new();
    for (at, probe) in &facts.runs {
        let Some(i) = buckets.of(*at) else { continue };
        let key = place(
            &mut places,
            (probe.surface.clone(), probe.machine_id.clone()),
        );
        let Some(place) = places.get_mut(&key) else {
            continue;
        };
        place.runs += 1;
        place.n[i] += 1;
        match probe.outcome {
            Outcome::Complete => place.complete += 1,
            Outcome::Partial => place.partial += 1,
            Outcome::Timeout => place.timeout += 1,
        }
        place.dropped[i] += u64::from(probe.outcome != Outcome::Complete);
        place.last_run_at = place.last_run_at.max(Some(*at));
        let times = layer_times.entry(key).or_default();
        for (layer, seen) in probe.layers.each() {
            let (missing, observed) = times.entry(layer).or_default();
            match seen.observed {
                true => observed.push((seen.elapsed_ms.unwrap_or_default() * 1000.0) as i64),
                false => *missing += 1,
            }
        }
    }
    let mut state_times: BTreeMap<(String, String), BTreeMap<State, Vec<i64>>> = BTreeMap::new();
    for here in &facts.arrivals {
        let key = place(&mut places, (here.surface.clone(), here.machine_id.clone()));
        let times = state_times.entry(key).or_default();
        for (state, after_us) in &here.after_us {
            times.entry(*state).or_default().extend(after_us);
        }
    }
    for (key, place) in &mut places {
        place.drop_rate = share(place.partial + place.timeout, place.runs);
        let layers = layer_times.remove(key).unwrap_or_default();
        place.layers = layers
            .into_iter()
            .map(|(layer, (missing, times))| LayerTimes {
                layer,
                observed: times.len() as u64,
                missing,
                p50_ms: percentile_ms(&times, 50),
                p95_ms: percentile_ms(&times, 95),
            })
            .collect();
        let states = state_times.remove(key).unwrap_or_default();
        place.signals = states
            .into_iter()
            .map(|(state, times)| StateTimes {
                state,
                n: times.len() as u64,
                p50_ms: percentile_ms(&times, 50),
                p95_ms: percentile_ms(&times, 95),
            })
            .collect();
    }
    places.into_values().collect()
}

#[cfg(test)]
mod tests;
