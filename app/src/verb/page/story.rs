//! One line through time.

use super::asked;
use crate::prism::{Caller, Prism};
use crate::store::page::StoryFilter;
use prism_core::Problem;
use prism_core::api::page::story::{AskStory, StoryPage};

pub async fn story(
    prism: &Prism,
    caller: &Caller,
    request: AskStory,
) -> Result<StoryPage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = StoryFilter {
        signal_id: request.signal_id,
        identity: request.identity,
    };
    let listed = prism.store.story(scope, filter, range).await?;
    Ok(StoryPage {
        items: listed.rows,
        next: listed.next,
    })
}
