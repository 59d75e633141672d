//! What this server holds, and for whom.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn settings(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::Nothing,
) -> Result<prism_core::api::page::house::Settings, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
