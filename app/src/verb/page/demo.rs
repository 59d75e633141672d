//! The demonstration project.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn demo(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::house::AskDemo,
) -> Result<prism_core::api::page::house::DemoDone, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
