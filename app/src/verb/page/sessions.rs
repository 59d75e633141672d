//! Sessions past and present.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn list(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::ListSessions,
) -> Result<prism_core::api::page::SessionPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
