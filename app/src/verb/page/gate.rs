//! What the gate noticed, by cursor.

use super::projects;
use crate::prism::{Caller, Prism};
use crate::store::page::{GateFilter, Range};
use prism_core::Problem;
use prism_core::api::page::{GatePage, ListGateEvents};

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListGateEvents,
) -> Result<GatePage, Problem> {
    let range = Range::new(
        request.since,
        request.until,
        request.cursor.as_deref(),
        request.limit,
    )?;
    let filter = GateFilter {
        outcome: request.outcome,
        labelled: request.labelled,
        identity: request.identity,
    };
    let listed = prism
        .store
        .list_gate(projects(prism, caller), filter, range)
        .await?;
    Ok(GatePage {
        events: listed.rows,
        next: listed.next,
    })
}
