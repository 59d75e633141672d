//! Metrics over time.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn metrics(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::metrics::AskMetrics,
) -> Result<prism_core::api::page::metrics::MetricsAnswer, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn delivery(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::metrics::AskMetrics,
) -> Result<prism_core::api::page::metrics::DeliveryAnswer, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
