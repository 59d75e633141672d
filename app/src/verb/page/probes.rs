//! Probes: what earlier ones found, and one more.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn list(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::house::ListProbes,
) -> Result<prism_core::api::page::house::ProbePage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn run(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::house::RunProbe,
) -> Result<prism_core::loopback::Probe, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
