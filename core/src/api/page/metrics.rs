//! Metrics over a range of time, in buckets. `docs/metrics.md` defines each.

use crate::moment::Moment;
use crate::receipt::Layer;
use crate::signal::names;
use uuid::Uuid;

names! {
    /// How a range is divided; days and weeks are those of UTC, weeks begin on Monday.
    BucketSize { Hour = "hour", Day = "day", Week = "week" }
}

names! {
    /// A metric that may be asked for by itself.
    Metric {
        Confirmations = "confirmations",
        Misclassification = "misclassification",
        Corrections = "corrections",
        DeadEnds = "dead_ends",
        Surfaces = "surfaces",
        Repeats = "repeats",
        Recall = "recall",
        Gate = "gate",
    }
}

wire! {
    AskMetrics {
        /// Left out: 28 days before `until`.
        #[serde(default)] since: Option<Moment>,
        /// Left out: now.
        #[serde(default)] until: Option<Moment>,
        /// hour, day or week; day unless said. At most 400 buckets.
        #[serde(default)] bucket: Option<BucketSize>,
        /// Only these: confirmations, misclassification, corrections, dead_ends, surfaces, repeats,
        /// recall or gate. None: all of them.
        #[serde(default)] only: Vec<Metric>,
    }

    /// Every list called `n`, or after a state, has one number for each bucket. A metric that was not
    /// asked for is left out.
    MetricsAnswer {
        since: Moment,
        until: Moment,
        bucket: BucketSize,
        /// When each bucket begins.
        buckets: Vec<Moment>,
        /// Metrics that had more than is compared or counted at once; none: all of it was.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] looked_back: Vec<LookedBack>,
        #[serde(default, skip_serializing_if = "Option::is_none")] confirmations: Option<Confirmations>,
        #[serde(default, skip_serializing_if = "Option::is_none")] misclassification: Option<Vec<AgentRate>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] corrections: Option<Vec<CorrectionPattern>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] dead_ends: Option<DeadEnds>,
        #[serde(default, skip_serializing_if = "Option::is_none")] surfaces: Option<Vec<SurfaceTally>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] repeats: Option<Repeats>,
        #[serde(default, skip_serializing_if = "Option::is_none")] recall: Option<RecallMetrics>,
        #[serde(default, skip_serializing_if = "Option::is_none")] gate: Option<GateMetrics>,
    }

    /// How far back a metric looked: what is older was neither counted nor compared.
    #[derive(PartialEq)]
    LookedBack {
        metric: Metric,
        to: Moment,
        /// The newest so many were looked at, of the projects that have more.
        rows: u64,
    }

    AskDelivery {
        /// Left out: 28 days before `until`.
        #[serde(default)] since: Option<Moment>,
        /// Left out: now.
        #[serde(default)] until: Option<Moment>,
        /// hour, day or week; day unless said. At most 400 buckets.
        #[serde(default)] bucket: Option<BucketSize>,
    }

    /// Verdicts over time.
    Confirmations {
        series: Vec<VerdictSeries>,
        /// Share of `works` among the verdicts of each bucket; none where there was none.
        rate: Vec<Option<f64>>,
        total: u64,
        works: u64,
    }

    VerdictSeries {
        /// works, broken or partial
        verdict: String,
        confirmed_via: String,
        total: u64,
        n: Vec<u64>,
    }

    /// How often what an agent captured was no such thing.
    AgentRate {
        agent: String,
        captured: u64,
        reviewed: u64,
        rejected: u64,
        /// rejected / reviewed; none before anything was reviewed.
        #[serde(default, skip_serializing_if = "Option::is_none")] rate: Option<f64>,
    }

    /// What agents were doing when the operator corrected them, grouped by what they share.
    CorrectionPattern {
        /// The stems that every action of the group shares; none: the action was not noted.
        shared: Vec<String>,
        /// One of the actions, as it was written.
        label: String,
        total: u64,
        n: Vec<u64>,
        agents: Vec<String>,
        /// The newest few.
        examples: Vec<Example>,
    }

    #[derive(PartialEq)]
    Example { pid: String, id: Uuid, at: Moment, identity: String, text: String }

    DeadEnds {
        total: u64,
        n: Vec<u64>,
        /// Walked into again, by bucket of the second time.
        again_total: u64,
        again: Vec<u64>,
        /// The newest first.
        pairs: Vec<Pair>,
    }

    /// Two rows that say the same thing, and by which words.
    #[derive(PartialEq)]
    Pair {
        first: Example,
        again: Example,
        shared: Vec<String>,
        /// 0 to 1: shared stems over all stems of both.
        similarity: f64,
    }

    /// Confirmations against corrections on one surface.
    SurfaceTally {
        /// `unknown` for rows from before surfaces were kept.
        surface: String,
        confirmations: u64,
        corrections: u64,
        direction_pivots: u64,
        /// confirmations / (confirmations + corrections)
        #[serde(default, skip_serializing_if = "Option::is_none")] rate: Option<f64>,
    }

    /// The same correction typed again.
    Repeats {
        weeks: Vec<RepeatWeek>,
        /// The newest first.
        pairs: Vec<Pair>,
    }

    RepeatWeek {
        week: Moment,
        corrections: u64,
        repeated: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] rate: Option<f64>,
    }

    RecallMetrics {
        total: u64,
        cited_total: u64,
        n: Vec<u64>,
        /// Events of which something was cited.
        cited: Vec<u64>,
        p50_ms: Vec<Option<f64>>,
        p95_ms: Vec<Option<f64>>,
        by_identity: Vec<RecallTally>,
        rows: u64,
        rows_never_recalled: u64,
        never_recalled: Vec<Example>,
        /// 0 is fresh, 1 is rotten; see `prism memory rot`. Of several projects, that of all their rows.
        #[serde(default, skip_serializing_if = "Option::is_none")] rot: Option<f64>,
    }

    RecallTally { identity: String, n: u64, cited: u64 }

    GateMetrics {
        warned: Vec<u64>,
        satisfied: Vec<u64>,
        labelled: u64,
        labelled_right: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] precision: Option<f64>,
        precision_target: f64,
        labels_needed: u64,
        /// ok, low or too_few_labels
        verdict: String,
    }

    /// Whether signals arrive, by surface and machine.
    DeliveryAnswer {
        since: Moment,
        until: Moment,
        bucket: BucketSize,
        buckets: Vec<Moment>,
        /// From when on every probe was looked at; none: all of the range were.
        #[serde(default, skip_serializing_if = "Option::is_none")] probes_from: Option<Moment>,
        /// From when on every signal was looked at for its times; none: all of the range were.
        #[serde(default, skip_serializing_if = "Option::is_none")] signals_from: Option<Moment>,
        places: Vec<DeliveryPlace>,
    }

    DeliveryPlace {
        surface: String,
        machine_id: String,
        runs: u64,
        complete: u64,
        partial: u64,
        timeout: u64,
        /// Runs that were not complete, over all.
        #[serde(default, skip_serializing_if = "Option::is_none")] drop_rate: Option<f64>,
        /// Runs, and how many of them were not complete, by bucket.
        n: Vec<u64>,
        dropped: Vec<u64>,
        layers: Vec<LayerTimes>,
        /// How signals fared that were pushed there.
        signals: Vec<StateTimes>,
        #[serde(default, skip_serializing_if = "Option::is_none")] last_run_at: Option<Moment>,
        /// Its open sessions, by which a probe can be run.
        sessions: Vec<super::SessionRow>,
    }

    LayerTimes {
        layer: Layer,
        observed: u64,
        missing: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] p50_ms: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] p95_ms: Option<f64>,
    }

    StateTimes {
        /// pushed, received, rung, rendered or drained
        state: crate::receipt::State,
        n: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] p50_ms: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] p95_ms: Option<f64>,
    }
}
