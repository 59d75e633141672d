//! What the gate noticed, by cursor.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn list(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::ListGateEvents,
) -> Result<prism_core::api::page::GatePage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
