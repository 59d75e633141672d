//! Each metric on a table of rows small enough to count by hand.

use super::*;

const MONDAY: Moment = Moment(FIRST_MONDAY_US);

fn day(n: i64) -> Moment {
    MONDAY.plus_us(n * DAY_US + HOUR_US)
}

fn days(n: i64) -> Buckets {
    let until = Some(MONDAY.plus_us(n * DAY_US));
    Buckets::new(Some(MONDAY), until, Some(BucketSize::Day), day(n)).unwrap()
}

fn verdict(at: Moment, verdict: &str, via: &str) -> VerdictFact {
    VerdictFact {
        at,
        verdict: verdict.into(),
        via: via.into(),
    }
}

fn input(id: u128, at: Moment, class: &str, text: &str) -> InputFact {
    InputFact {
        pid: "P".into(),
        id: Uuid::from_u128(id),
        at,
        class: class.into(),
        text: text.into(),
        action: None,
        via: "Donna".into(),
        surface: Some("codex".into()),
        confidence: "high".into(),
        review: None,
    }
}

#[test]
fn a_range_is_divided_at_midnight_and_on_mondays_and_not_too_finely() {
    let buckets = days(3);
    assert_eq!(
        buckets.starts,
        [day(0), day(1), day(2)].map(|m| m.plus_us(-HOUR_US))
    );
    assert_eq!(buckets.of(MONDAY.plus_us(-1)), None);
    assert_eq!(buckets.of(day(2)), Some(2));
    assert_eq!(buckets.of(MONDAY.plus_us(3 * DAY_US)), None);
    let weeks = Buckets::new(Some(day(3)), Some(day(8)), Some(BucketSize::Week), day(8)).unwrap();
    assert_eq!(weeks.starts, [MONDAY, MONDAY.plus_us(WEEK_US)]);
    assert!(Buckets::new(Some(MONDAY), Some(day(40)), Some(BucketSize::Hour), day(40)).is_err());
    assert!(Buckets::new(Some(day(2)), Some(day(1)), None, day(2)).is_err());
    let usual = Buckets::new(None, None, None, day(0)).unwrap();
    assert_eq!(usual.since, day(0).plus_us(-RANGE_DAYS * DAY_US));
}

#[test]
fn the_confirmation_rate_is_the_share_of_works_by_day_verdict_and_via() {
    let verdicts = [
        verdict(day(0), "works", "Donna/codex"),
        verdict(day(0), "broken", "Donna/codex"),
        verdict(day(2), "works", "dashboard"),
        verdict(day(9), "works", "dashboard"),
    ];
    let found = confirmations(&verdicts, &days(3));
    assert_eq!(found.rate, [Some(0.5), None, Some(1.0)]);
    assert_eq!((found.total, found.works), (3, 2));
    let series: Vec<_> = found
        .series
        .iter()
        .map(|s| (s.verdict.as_str(), s.confirmed_via.as_str(), s.n.clone()))
        .collect();
    assert_eq!(
        series,
        [
            ("broken", "Donna/codex", vec![1, 0, 0]),
            ("works", "Donna/codex", vec![1, 0, 0]),
            ("works", "dashboard", vec![0, 0, 1]),
        ]
    );
}

fn tally(class: &str, n: u64) -> InputTally {
    InputTally {
        class: class.into(),
        via: "Donna".into(),
        surface: Some("codex".into()),
        confidence: "high".into(),
        review: None,
        n,
    }
}

#[test]
fn misclassification_is_rejected_over_reviewed_by_whoever_captured() {
    let mut rows = [1, 1, 1, 1].map(|n| tally("correction", n));
    rows[0].review = Some("rejected".into());
    rows[1].review = Some("accepted".into());
    rows[3].via = "Texi".into();
    let found = misclassification(&rows);
    let found: Vec<_> = found
        .iter()
        .map(|a| (a.agent.as_str(), a.captured, a.reviewed, a.rejected, a.rate))
        .collect();
    assert_eq!(
        found,
        [("Donna", 3, 2, 1, Some(0.5)), ("Texi", 1, 0, 0, None)]
    );
}

#[test]
fn corrections_are_grouped_by_what_the_actions_share_and_only_those_that_count() {
    let mut rows: Vec<InputFact> = [
        "ran git reset",
        "looking at git history",
        "painted it red",
        "git push",
    ]
    .iter()
    .enumerate()
    .map(|(n, action)| InputFact {
        action: Some((*action).into()),
        ..input(n as u128, day(n as i64), "correction", "no")
    })
    .collect();
    rows[3].review = Some("rejected".into());
    rows.push(input(9, day(0), "correction", "nothing noted"));
    rows.push(input(10, day(0), "confirmation", "yes"));
    let found = corrections(&rows, &days(4));
    let found: Vec<_> = found
        .iter()
        .map(|p| (p.shared.join(" "), p.total, p.n.clone()))
        .collect();
    assert_eq!(
        found,
        [
            ("git".into(), 2, vec![1, 1, 0, 0]),
            ("paint red".into(), 1, vec![0, 0, 1, 0]),
            (String::new(), 1, vec![1, 0, 0, 0]),
        ]
    );
}

#[test]
fn a_correction_counts_as_repeated_when_an_earlier_one_says_the_same() {
    let rows = [
        input(1, day(-10), "correction", "stop going to git first"),
        input(2, day(1), "correction", "the colours are wrong"),
        input(
            3,
            day(2),
            "correction",
            "you went to git first, going again",
        ),
        input(4, day(8), "correction", "do not go to git first"),
    ];
    let found = repeats(&rows, &days(14));
    let weeks: Vec<_> = found
        .weeks
        .iter()
        .map(|w| (w.corrections, w.repeated, w.rate))
        .collect();
    assert_eq!(weeks, [(2, 1, Some(0.5)), (1, 1, Some(1.0))]);
    let pairs: Vec<_> = found
        .pairs
        .iter()
        .map(|p| {
            (
                p.first.id.as_u128(),
                p.again.id.as_u128(),
                p.shared.join(" "),
            )
        })
        .collect();
    assert_eq!(pairs[1], (1, 3, "first git going".into()));
    assert_eq!(pairs[0].1, 4, "the newest first");
}

#[test]
fn a_dead_end_is_walked_into_again_by_another_delta_that_ruled_the_same_out() {
    let attempt = |id: u128, at, approach: &str| AttemptFact {
        pid: "P".into(),
        delta_id: Uuid::from_u128(id),
        at,
        identity: "Donna".into(),
        approach: approach.into(),
    };
    let found = dead_ends(
        &[
            attempt(1, day(0), "a named pipe for the bell"),
            attempt(1, day(0), "named pipes for the bell"),
            attempt(2, day(2), "ring the bell through a named pipe"),
            attempt(3, day(2), "polling"),
        ],
        &days(3),
    );
    assert_eq!((found.total, found.n), (4, vec![2, 0, 2]));
    assert_eq!((found.again_total, found.again), (1, vec![0, 0, 1]));
    assert_eq!(found.pairs[0].again.id.as_u128(), 2);
}

#[test]
fn surfaces_compare_confirmations_with_corrections() {
    let mut rows = vec![
        tally("confirmation", 2),
        tally("correction", 2),
        tally("correction", 1),
        tally("direction_pivot", 1),
        tally("correction", 9),
        tally("correction", 9),
    ];
    rows[2].surface = None;
    rows[4].confidence = "low".into();
    rows[5].review = Some("rejected".into());
    let found = surfaces(&rows);
    let found: Vec<_> = found
        .iter()
        .map(|s| {
            (
                s.surface.as_str(),
                s.confirmations,
                s.corrections,
                s.direction_pivots,
                s.rate,
            )
        })
        .collect();
    assert_eq!(
        found,
        [
            ("codex", 2, 2, 1, Some(0.5)),
            ("unknown", 0, 1, 0, Some(0.0))
        ]
    );
}

#[test]
fn recalls_are_counted_with_how_fast_and_whether_cited() {
    let recalls = [(0, 1_000, true), (0, 3_000, false), (2, 9_000, true)]
        .map(|(n, latency_us, cited)| RecallFact {
            at: day(n),
            identity: "Donna".into(),
            latency_us,
            cited,
        })
        .to_vec();
    let facts = Facts {
        recalls,
        ..Facts::default()
    };
    let found = super::recall(&facts, &days(3), Some(0.1));
    assert_eq!((found.n, found.cited), (vec![2, 0, 1], vec![1, 0, 1]));
    assert_eq!(found.p50_ms, [Some(1.0), None, Some(9.0)]);
    assert_eq!(found.p95_ms, [Some(3.0), None, Some(9.0)]);
    assert_eq!((found.total, found.cited_total), (3, 2));
}

#[test]
fn the_gate_shows_precision_only_from_what_was_labelled() {
    let facts = Facts {
        gate: vec![
            GateFact {
                at: day(0),
                warned: true,
            },
            GateFact {
                at: day(1),
                warned: false,
            },
        ],
        labelled: 4,
        labelled_right: 3,
        ..Facts::default()
    };
    let found = gate(&facts, &days(2));
    assert_eq!((found.warned, found.satisfied), (vec![1, 0], vec![0, 1]));
    assert_eq!(found.precision, Some(0.75));
    assert_eq!(found.verdict, "too_few_labels");
    assert_eq!(gate(&Facts::default(), &days(1)).precision, None);
}

fn probe(surface: &str, outcome: Outcome, shim_ms: Option<f64>) -> Probe {
    let seen = |elapsed_ms: Option<f64>| crate::loopback::Seen {
        observed: elapsed_ms.is_some(),
        observed_at: None,
        elapsed_ms,
    };
    Probe {
        spec: "SPEC-100".into(),
        version: "0.1".into(),
        loopback_id: Uuid::nil(),
        signal_id: Uuid::nil(),
        trace_id: Uuid::nil(),
        requested_by_identity: "Donna".into(),
        requested_by_session: None,
        surface: surface.into(),
        machine_id: "here".into(),
        started_at: MONDAY,
        finished_at: None,
        outcome,
        layers: crate::loopback::Layers {
            backend_write: seen(Some(1.0)),
            shim_tee_receipt: seen(shim_ms),
            ..Default::default()
        },
        missing_layers: Vec::new(),
        echo: Default::default(),
        recipient_state: None,
    }
}

#[test]
fn delivery_counts_drops_and_times_by_surface_and_machine() {
    let pushed = |surface: &str, after_us| Arrivals {
        surface: surface.into(),
        machine_id: "here".into(),
        after_us: BTreeMap::from([(State::Pushed, after_us)]),
    };
    let facts = DeliveryFacts {
        runs: vec![
            (day(0), probe("codex", Outcome::Complete, Some(4.0))),
            (day(2), probe("codex", Outcome::Complete, Some(8.0))),
            (day(2), probe("codex", Outcome::Partial, None)),
            (day(2), probe("codex", Outcome::Timeout, None)),
            (day(9), probe("codex", Outcome::Timeout, None)),
        ],
        // Of two projects.
        arrivals: vec![
            pushed("codex", vec![2_000]),
            pushed("codex", vec![1_000]),
            pushed("cursor", vec![500]),
        ],
        ..DeliveryFacts::default()
    };
    let found = delivery(&facts, &days(3));
    let [codex, cursor] = found.as_slice() else {
        panic!("two places: {found:?}")
    };
    assert_eq!((codex.runs, codex.complete), (4, 2));
    assert_eq!((codex.partial, codex.timeout), (1, 1));
    assert_eq!(codex.drop_rate, Some(0.5));
    assert_eq!((&codex.n, &codex.dropped), (&vec![1, 0, 3], &vec![0, 0, 2]));
    assert_eq!(codex.last_run_at, Some(day(2)));
    let tee = |l: &&LayerTimes| l.layer == Layer::ShimTeeReceipt;
    let tee = codex.layers.iter().find(tee).unwrap();
    assert_eq!((tee.observed, tee.missing), (2, 2));
    assert_eq!((tee.p50_ms, tee.p95_ms), (Some(4.0), Some(8.0)));
    let [pushed] = codex.signals.as_slice() else {
        panic!("one state: {codex:?}")
    };
    assert_eq!((pushed.n, pushed.p50_ms), (2, Some(1.0)));
    // Where signals went and no probe ever did, nothing is said of drops.
    assert_eq!((cursor.runs, cursor.drop_rate), (0, None));
    assert_eq!(cursor.signals[0].n, 1);
}

#[test]
fn a_percentile_is_a_time_that_was_seen() {
    assert_eq!(percentile_ms(&[], 50), None);
    assert_eq!(percentile_ms(&[5_000], 95), Some(5.0));
    let many: Vec<i64> = (1..=100).map(|n| n * 1_000).collect();
    assert_eq!(percentile_ms(&many, 50), Some(50.0));
    assert_eq!(percentile_ms(&many, 95), Some(95.0));
}

#[test]
fn what_was_too_much_to_compare_is_said_and_weeks_not_looked_at_are_left_out() {
    // One more than can be compared, all but the oldest in the second week.
    let mut rows = vec![input(0, day(0), "correction", "not the title bar")];
    let newer = (1..=COMPARED_MAX as u128).map(|n| {
        let at = day(8).plus_us(n as i64);
        input(n, at, "correction", &format!("word{n}"))
    });
    rows.extend(newer);
    let attempt = |i: &InputFact| AttemptFact {
        pid: "P".into(),
        delta_id: i.id,
        at: i.at,
        identity: "Donna".into(),
        approach: i.text.clone(),
    };
    let facts = Facts {
        attempts: rows[1..].iter().map(attempt).collect(),
        corrections: rows,
        ..Facts::default()
    };
    let (range, to) = (days(14), day(8).plus_us(1));
    let back = |metric| LookedBack {
        metric,
        to,
        rows: COMPARED_MAX as u64,
    };
    assert_eq!(
        looked_back(&facts, &range, Metric::ALL),
        [back(Metric::Corrections), back(Metric::Repeats)],
        "attempts are as many as can be compared, and no more"
    );
    assert_eq!(looked_back(&facts, &range, &[Metric::Gate]), []);
    let weeks = repeats(&facts.corrections, &range).weeks;
    assert_eq!(weeks.len(), 1, "{weeks:?}");
    assert_eq!(weeks[0].corrections, COMPARED_MAX as u64);
    // Patterns of a range that was looked at whole miss nothing.
    let until = Some(day(14));
    let later = Buckets::new(Some(day(9)), until, Some(BucketSize::Day), day(14)).unwrap();
    let said = looked_back(&facts, &later, &[Metric::Corrections, Metric::Repeats]);
    assert_eq!(said, [back(Metric::Repeats)]);
    let few = repeats(&facts.corrections[..2], &range).weeks;
    assert_eq!(few.len(), 2, "nothing was left out");
}

#[test]
fn what_was_too_much_to_count_is_said_from_the_latest_end_of_any_project() {
    let cut = |metric, at, rows| LookedBack {
        metric,
        to: day(at),
        rows,
    };
    let facts = Facts {
        cut: vec![
            cut(Metric::Recall, 2, 10),
            cut(Metric::Recall, 5, 10),
            cut(Metric::Gate, 1, 10),
        ],
        ..Facts::default()
    };
    let said = looked_back(&facts, &days(7), &[Metric::Confirmations, Metric::Recall]);
    assert_eq!(
        said,
        [cut(Metric::Recall, 5, 20)],
        "the gate was not asked for"
    );
}

#[test]
fn the_rot_of_several_projects_is_that_of_all_their_rows() {
    let project = |rows, stale: &[(f64, u64)]| {
        let kind = |(weight, rows): &(f64, u64)| crate::api::memory::RotRow {
            kind: "duplicate".into(),
            rows: *rows,
            weight: *weight,
            examples: Vec::new(),
        };
        Rot {
            rows,
            score: rot(rows, stale.iter().copied()),
            kinds: stale.iter().map(kind).collect(),
        }
    };
    let (one, other) = (project(10, &[(1.0, 5), (0.25, 2)]), project(90, &[]));
    assert_eq!((one.score, other.score), (0.55, 0.0));
    assert_eq!(rot_of(std::slice::from_ref(&one)), Some(one.score));
    assert_eq!(
        rot_of(&[one, other]),
        Some(0.055),
        "not the mean of two scores"
    );
    assert_eq!(rot_of(&[]), None);
    assert_eq!(rot_of(&[project(0, &[])]), Some(0.0));
    assert_eq!(rot(1, [(1.0, 3)]), 1.0, "no more than wholly rotten");
}
