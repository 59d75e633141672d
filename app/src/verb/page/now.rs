//! What waits on the operator, and what every agent is at.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn now(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::Nothing,
) -> Result<prism_core::api::page::Now, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn agents(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::Nothing,
) -> Result<prism_core::api::page::Agents, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
