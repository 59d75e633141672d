//! One line through time.

use super::projects;
use crate::prism::{Caller, Prism};
use crate::store::page::{Range, StoryFilter};
use prism_core::Problem;
use prism_core::api::page::story::{AskStory, StoryPage};

pub async fn story(
    prism: &Prism,
    caller: &Caller,
    request: AskStory,
) -> Result<StoryPage, Problem> {
    let range = Range::new(
        request.since,
        request.until,
        request.cursor.as_deref(),
        request.limit,
    )?;
    let filter = StoryFilter {
        signal_id: request.signal_id,
        identity: request.identity,
    };
    let listed = prism
        .store
        .story(projects(prism, caller), filter, range)
        .await?;
    Ok(StoryPage {
        items: listed.rows,
        next: listed.next,
    })
}
