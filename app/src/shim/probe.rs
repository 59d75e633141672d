//! The shim's part of a probe: received, rung, echoed, and remembered for whoever asks.

use super::{Session, Shim};
use crate::clock;
use crate::loopback::{self, Options, Witness};
use prism_core::api::LoopbackTest;
use prism_core::bell::Notice;
use prism_core::envelope::Envelope;
use prism_core::loopback::{
    EchoSeen, Notification, Probe, SUPPRESSED, ShimEvidence, TIMEOUT_MS_MAX,
};
use prism_core::{Moment, Problem};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use uuid::Uuid;

/// Probes remembered; older ones are over.
const PROBES_MAX: usize = 100;

/// What this session saw of recent probes, oldest first.
#[derive(Clone, Default)]
pub struct Probes {
    recent: Arc<Mutex<VecDeque<(Uuid, ShimEvidence)>>>,
}

impl Probes {
    fn recent(&self) -> MutexGuard<'_, VecDeque<(Uuid, ShimEvidence)>> {
        self.recent
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub fn get(&self, loopback_id: Uuid) -> Option<ShimEvidence> {
        let recent = self.recent();
        let found = recent.iter().find(|(id, _)| *id == loopback_id);
        found.map(|(_, evidence)| evidence.clone())
    }

    /// Notes a receipt; false when this probe was received before, as in a replay.
    fn received(&self, loopback_id: Uuid, at: Moment) -> bool {
        let mut recent = self.recent();
        if recent.iter().any(|(id, _)| *id == loopback_id) {
            return false;
        }
        let evidence = ShimEvidence {
            received_at: Some(at),
            ..ShimEvidence::default()
        };
        recent.push_back((loopback_id, evidence));
        let over = recent.len().saturating_sub(PROBES_MAX);
        recent.drain(..over);
        true
    }

    /// Adds to what is known of a probe that was received here.
    fn note(&self, loopback_id: Uuid, change: impl FnOnce(&mut ShimEvidence)) {
        let mut recent = self.recent();
        if let Some((_, evidence)) = recent.iter_mut().find(|(id, _)| *id == loopback_id) {
            change(evidence);
        }
    }
}

/// The probe a frame belongs to, when it is for this session.
pub fn belongs(session: &Session, envelope: &Envelope) -> Option<Uuid> {
    let text = |field: &str| envelope.payload.get(field).and_then(Value::as_str);
    (text("requested_by_session")? == session.id.to_string())
        .then(|| text("loopback_id")?.parse().ok())?
}

/// Rings and echoes a probe; an echo is only noted.
pub async fn arrived(
    shim: &Shim,
    session: &Arc<Session>,
    envelope: &Envelope,
    loopback_id: Uuid,
    at: Moment,
) {
    if envelope.in_reply_to.is_some() {
        session.probes.note(loopback_id, |e| {
            e.echo = Some(EchoSeen {
                signal_id: envelope.signal_id,
                observed_at: at,
            })
        });
        return;
    }
    if !session.probes.received(loopback_id, at) {
        return;
    }
    let wanted = |field: &str| {
        envelope
            .payload
            .get(field)
            .and_then(Value::as_bool)
            .unwrap_or(true)
    };
    let notification = if wanted("ring") {
        let rang = shim.bell().ring_probe(&Notice::of(envelope)).await;
        let evidence = rang.handover.evidence();
        Notification {
            observed_at: clock::now(),
            strategy: rang.strategy.name().into(),
            evidence: evidence.map(str::to_owned),
            handed: evidence.is_some(),
        }
    } else {
        Notification {
            observed_at: clock::now(),
            strategy: SUPPRESSED.into(),
            evidence: None,
            handed: false,
        }
    };
    session
        .probes
        .note(loopback_id, |e| e.notification = Some(notification));
    if wanted("echo") {
        tokio::spawn(echo(session.clone(), envelope.signal_id));
    }
}

/// Echoes a probe; a server that is busy is asked again, for as long as a probe may last.
async fn echo(session: Arc<Session>, signal_id: Uuid) {
    let request = json!({ "signal_id": signal_id });
    let within = Duration::from_millis(TIMEOUT_MS_MAX);
    let echoed =
        session
            .client
            .call_while_busy(&session.pid, "signal/loopback-echo", request, within);
    if let Err(problem) = echoed.await {
        tracing::warn!(%problem, "A probe was not echoed");
    }
}

/// `prism_loopback_test`: the shim knows its own side, so it assembles the whole envelope.
pub async fn test(session: &Arc<Session>, request: LoopbackTest) -> Result<Probe, Problem> {
    let mut options = Options::new(
        Some(session.id.to_string()),
        request.timeout_ms,
        request.drain_timeout_ms,
    )?;
    options.echo = request.echo.unwrap_or(true);
    loopback::run(
        &session.client,
        &session.pid,
        &options,
        &Witness::Own(session.probes.clone()),
    )
    .await
}
