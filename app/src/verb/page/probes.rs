//! Probes: what earlier ones found, and one more.

use super::asked;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::page::ProbeFilter;
use crate::verb::loopback;
use prism_core::api::page::house::{ListProbes, ProbePage, RunProbe};
use prism_core::api::{LoopbackFinish, LoopbackIssue};
use prism_core::loopback::{
    EchoSeen, Notification, Probe, ShimEvidence, TIMEOUT_MS, TIMEOUT_MS_MAX,
};
use prism_core::{Moment, Problem};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How often the server looks what the shim has said.
const LOOK: Duration = Duration::from_millis(25);

pub async fn list(
    prism: &Prism,
    caller: &Caller,
    request: ListProbes,
) -> Result<ProbePage, Problem> {
    let (scope, range) = asked(prism, caller, &request)?;
    let filter = ProbeFilter {
        identity: request.identity,
        surface: request.surface,
        machine_id: request.machine_id,
        outcome: request.outcome,
    };
    let listed = prism
        .store
        .list_probes(scope, filter, range)
        .await?
        .map(|(_, row)| row);
    Ok(ProbePage {
        runs: listed.rows,
        next: listed.next,
        looked_back_to: listed.looked_back_to,
    })
}

/// Runs a probe with what the shim reports to the server: for a page, which cannot ask a shim.
pub async fn run(prism: &Prism, caller: &Caller, request: RunProbe) -> Result<Probe, Problem> {
    let timeout_ms = request.timeout_ms.unwrap_or(TIMEOUT_MS);
    if timeout_ms > TIMEOUT_MS_MAX {
        let most = format!("is {timeout_ms} and may be {TIMEOUT_MS_MAX} ms");
        return Err(Problem::field("timeout_ms", most));
    }
    let issue = LoopbackIssue {
        session_id: Some(request.session_id),
        echo: None,
        ring: request.ring,
    };
    let issued = loopback::issue(prism, caller, issue).await?;
    let deadline = Instant::now() + Duration::from_millis(timeout_ms);
    let evidence = loop {
        let seen = reported(prism, caller, &issued).await?;
        if seen.is_whole(issued.echo.expected) || Instant::now() >= deadline {
            break seen;
        }
        tokio::time::sleep(LOOK).await;
    };
    let probe = issued.finish(&evidence, None, clock::now());
    let finish = LoopbackFinish {
        probe: probe.clone(),
    };
    loopback::finish(prism, caller, finish).await?;
    Ok(probe)
}

/// What the receipts of the probe, and its echo, say of the shim.
async fn reported(prism: &Prism, caller: &Caller, issued: &Probe) -> Result<ShimEvidence, Problem> {
    prism.store.settle().await?;
    let id = issued.signal_id.to_string();
    let trace = prism.store.trace(caller.project.id, Some(id), None).await?;
    let session = issued.requested_by_session;
    let receipt = trace
        .sessions
        .into_iter()
        .find(|r| Some(r.session_id) == session);
    let echo: Option<(Uuid, Moment)> = prism.store.echo_of(issued.signal_id).await?;
    Ok(ShimEvidence {
        received_at: receipt.as_ref().and_then(|r| r.received),
        notification: receipt.and_then(|r| {
            let observed_at = r.rung.or(r.rendered)?;
            Some(Notification {
                observed_at,
                strategy: r.strategy.unwrap_or_else(|| "unknown".into()),
                evidence: Some(match r.rendered {
                    Some(_) => "accepted".into(),
                    None => "sent".into(),
                }),
                handed: true,
            })
        }),
        echo: echo.map(|(signal_id, observed_at)| EchoSeen {
            signal_id,
            observed_at,
        }),
    })
}
