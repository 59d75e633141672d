//! One line through time.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn story(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::story::AskStory,
) -> Result<prism_core::api::page::story::StoryPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
