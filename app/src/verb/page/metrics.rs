//! Metrics over time.

use super::projects;
use super::sessions::row_of;
use crate::clock;
use crate::prism::{Caller, Prism};
use prism_core::api::page::metrics::{
    AskDelivery, AskMetrics, DeliveryAnswer, Metric, MetricsAnswer,
};
use prism_core::page::metrics::{self, Buckets};
use prism_core::{Code, Problem};

pub async fn metrics(
    prism: &Prism,
    caller: &Caller,
    request: AskMetrics,
) -> Result<MetricsAnswer, Problem> {
    let now = clock::now();
    let buckets = Buckets::new(request.since, request.until, request.bucket, now)?;
    let scope = projects(prism, caller);
    let wanted = match request.only.is_empty() {
        true => Metric::ALL.to_vec(),
        false => request.only,
    };
    let rot = match scope.as_slice() {
        [project] if wanted.contains(&Metric::Recall) => {
            Some(prism.store.rot(*project, Vec::new(), now).await?.score)
        }
        _ => None,
    };
    let (since, until) = (buckets.since, buckets.until);
    let store = &prism.store;
    let facts = store
        .metric_facts(scope, wanted.clone(), since, until)
        .await?;
    // Comparing what was said takes its time, and nobody else's.
    let counted = tokio::task::spawn_blocking(move || {
        let is = |metric| wanted.contains(&metric);
        MetricsAnswer {
            confirmations: is(Metric::Confirmations)
                .then(|| metrics::confirmations(&facts.verdicts, &buckets)),
            misclassification: is(Metric::Misclassification)
                .then(|| metrics::misclassification(&facts.inputs)),
            corrections: is(Metric::Corrections)
                .then(|| metrics::corrections(&facts.corrections, &buckets)),
            dead_ends: is(Metric::DeadEnds).then(|| metrics::dead_ends(&facts.attempts, &buckets)),
            surfaces: is(Metric::Surfaces).then(|| metrics::surfaces(&facts.inputs)),
            repeats: is(Metric::Repeats).then(|| metrics::repeats(&facts.corrections, &buckets)),
            recall: is(Metric::Recall).then(|| metrics::recall(&facts, &buckets, rot)),
            gate: is(Metric::Gate).then(|| metrics::gate(&facts, &buckets)),
            since,
            until,
            bucket: buckets.size,
            buckets: buckets.starts,
        }
    });
    counted.await.map_err(|error| {
        let hint = "ask again; `prism logs` says more";
        Problem::new(Code::Internal, format!("counting failed: {error}"), hint)
    })
}

pub async fn delivery(
    prism: &Prism,
    caller: &Caller,
    request: AskDelivery,
) -> Result<DeliveryAnswer, Problem> {
    let now = clock::now();
    let buckets = Buckets::new(request.since, request.until, request.bucket, now)?;
    let (since, until) = (buckets.since, buckets.until);
    let facts = prism
        .store
        .delivery_facts(projects(prism, caller), since, until)
        .await?;
    let mut places = metrics::delivery(&facts, &buckets);
    for project in prism.scope(caller) {
        for (_, view) in prism.presence.sessions(project.id, now) {
            let here = places
                .iter()
                .position(|p| p.surface == view.surface && p.machine_id == view.machine_id);
            let here = here.unwrap_or_else(|| {
                places.push(metrics::empty_place(
                    &view.surface,
                    &view.machine_id,
                    &buckets,
                ));
                places.len() - 1
            });
            places[here]
                .sessions
                .push(row_of(project.pid.as_str(), view));
        }
    }
    Ok(DeliveryAnswer {
        since,
        until,
        bucket: buckets.size,
        buckets: buckets.starts,
        places,
    })
}
