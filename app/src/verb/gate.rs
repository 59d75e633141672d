//! The operator's view of the gate: labels and the report.

use crate::clock;
use crate::prism::{Caller, Prism};
use prism_core::api::gate::{GateEvents, GateLabel, GateLabelled, GateReport, ListEvents};
use prism_core::id::Quoted;
use prism_core::{Problem, api};

pub async fn label(
    prism: &Prism,
    caller: &Caller,
    request: GateLabel,
) -> Result<GateLabelled, Problem> {
    let id = prism
        .store
        .label_gate_event(
            caller.project.id,
            Quoted::parse("event_id", &request.event_id)?,
            request.right,
            clock::now(),
        )
        .await?;
    Ok(GateLabelled {
        event_id: id,
        right: request.right,
    })
}

pub async fn report(
    prism: &Prism,
    caller: &Caller,
    _: api::Nothing,
) -> Result<GateReport, Problem> {
    prism.store.settle().await?;
    Ok(prism.store.gate_report(caller.project.id).await?)
}

pub async fn events(
    prism: &Prism,
    caller: &Caller,
    request: ListEvents,
) -> Result<GateEvents, Problem> {
    let n = request.n.unwrap_or(50);
    if !(1..=500).contains(&n) {
        return Err(Problem::field("n", format!("is {n} and must be 1 to 500")));
    }
    prism.store.settle().await?;
    Ok(GateEvents {
        events: prism
            .store
            .gate_events(caller.project.id, request.unlabelled, n)
            .await?,
    })
}
