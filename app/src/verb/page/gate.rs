//! What the gate noticed, by cursor.

use super::asked;
use crate::prism::{Caller, Prism};
use crate::store::page::GateFilter;
use prism_core::Problem;
use prism_core::api::page::{GatePage, ListGateEvents};

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListGateEvents,
) -> Result<GatePage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = GateFilter {
        outcome: request.outcome,
        labelled: request.labelled,
        identity: request.identity,
    };
    let listed = prism.store.list_gate(scope, filter, range).await?;
    Ok(GatePage {
        events: listed.rows,
        next: listed.next,
    })
}
