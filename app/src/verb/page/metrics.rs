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
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use uuid::Uuid;

type Counted = Result<MetricsAnswer, Problem>;

/// Metrics take turns, and whoever asks for what still waits for its turn gets the same answer:
/// pages that are opened and left again pile up nothing.
#[derive(Default)]
pub struct Counting {
    turn: tokio::sync::Mutex<()>,
    /// By what is asked. What is being counted is not here: what changed since would be missing.
    waiting: Mutex<HashMap<String, watch::Receiver<Option<Counted>>>>,
}

impl Counting {
    fn waiting(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Option<Counted>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to tell the answer, for the first who asks; for others, where to hear it.
    fn join(
        &self,
        asked: &str,
    ) -> Result<watch::Sender<Option<Counted>>, watch::Receiver<Option<Counted>>> {
        let mut waiting = self.waiting();
        match waiting.get(asked) {
            // Whoever was to count it is still there.
            Some(hears) if hears.has_changed().is_ok() => Err(hears.clone()),
            _ => {
                let (tells, hears) = watch::channel(None);
                waiting.insert(asked.to_owned(), hears);
                Ok(tells)
            }
        }
    }

    /// From here on it is too late to join.
    fn begin(&self, asked: &str) {
        self.waiting().remove(asked);
    }
}

pub async fn metrics(prism: &Prism, caller: &Caller, request: AskMetrics) -> Counted {
    // What cannot be answered is refused at once.
    Buckets::new(request.since, request.until, request.bucket, clock::now())?;
    let scope = projects(prism, caller);
    let asked = serde_json::to_string(&(&scope, &request)).unwrap_or_default();
    let tells = match prism.counting.join(&asked) {
        Ok(tells) => tells,
        Err(mut hears) => {
            if let Ok(answer) = hears.wait_for(Option::is_some).await
                && let Some(answer) = answer.as_ref()
            {
                return answer.clone();
            }
            watch::channel(None).0
        }
    };
    let _turn = prism.counting.turn.lock().await;
    prism.counting.begin(&asked);
    let answer = count(prism, scope, request).await;
    tells.send_replace(Some(answer.clone()));
    answer
}

async fn count(prism: &Prism, scope: Vec<Uuid>, request: AskMetrics) -> Counted {
    let now = clock::now();
    let buckets = Buckets::new(request.since, request.until, request.bucket, now)?;
    let wanted = match request.only.is_empty() {
        true => Metric::ALL.to_vec(),
        false => request.only,
    };
    let mut rots = Vec::new();
    if wanted.contains(&Metric::Recall) {
        for project in &scope {
            rots.push(prism.store.rot(*project, Vec::new(), now).await?);
        }
    }
    let rot = metrics::rot_of(&rots);
    let (since, until) = (buckets.since, buckets.until);
    let store = &prism.store;
    let facts = store
        .metric_facts(scope, wanted.clone(), since, until)
        .await?;
    // Comparing what was said takes its time, and nobody else's.
    let counted = tokio::task::spawn_blocking(move || {
        let is = |metric| wanted.contains(&metric);
        MetricsAnswer {
            looked_back: metrics::looked_back(&facts, &buckets, &wanted),
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
        probes_from: facts.probes_from,
        signals_from: facts.signals_from,
        places,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_same_question_is_counted_once_while_it_waits_and_again_once_it_is_being_counted() {
        let counting = Counting::default();
        let first = counting.join("a").unwrap();
        let mut second = counting.join("a").unwrap_err();
        let other = counting.join("b").unwrap();
        counting.begin("a");
        assert!(
            counting.join("a").is_ok(),
            "what changed since must be seen"
        );
        first.send_replace(Some(Err(Problem::field("bucket", "is no answer"))));
        assert!(second.wait_for(Option::is_some).await.is_ok());
        // Whoever was to count it went away.
        drop(other);
        assert!(counting.join("b").is_ok());
    }
}
