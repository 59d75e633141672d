//! The way into the page.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn link(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::Nothing,
) -> Result<prism_core::api::page::house::DashboardLink, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
