//! Sending, reading, answering and tracing signals.

use crate::bus::Pushed;
use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::{Ack, Audience, Committed, DrainLimit, NewSignal, SendOutcome, TraceRow};
use prism_core::api::gate::Acknowledged;
use prism_core::api::{self, ServerFrame};
use prism_core::envelope::Envelope;
use prism_core::limits::{
    DISMISS_IDS_MAX, NOTE_CHARS_MAX, PENDING_BYTES_MAX, PENDING_DEFAULT, PENDING_MAX,
};
use prism_core::presence::RecipientState;
use prism_core::receipt::{Receipt, SessionReceipt, SignalFacts, State, TraceEvent, timeline};
use prism_core::signal::{AckState, DeliveryClass, SendSignal};
use prism_core::{Code, Problem};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use uuid::Uuid;

pub async fn send(
    prism: &Prism,
    caller: &Caller,
    request: SendSignal,
) -> Result<api::Sent, Problem> {
    let send = request.check()?;
    let named = || {
        let (project, to) = (caller.project.id, send.to.as_str());
        prism.directory.named(project, to, Code::UnknownRecipient)
    };
    let to_persona = prism.known(named).await?;
    let now = clock::now();
    let recipient_state =
        prism
            .presence
            .recipient_state(to_persona.id, to_persona.is_operator, now);
    let nobody = matches!(
        recipient_state,
        RecipientState::Stale | RecipientState::Offline | RecipientState::NeverStarted
    );
    let new = NewSignal {
        signal_id: clock::new_id(),
        trace_id: clock::new_id(),
        project: caller.project.clone(),
        from_persona: caller.persona.clone(),
        from_session: caller.session_id(),
        audience: Audience::Everybody,
        recipient_live: recipient_state == RecipientState::Live,
        recipient_elsewhere: prism.is_elsewhere(to_persona.id, now),
        failed: send.delivery_class == DeliveryClass::Sync && nobody,
        escalates_after_us: prism.escalator.settings.window_us(send.category),
        to_persona,
        send,
        now,
    };
    // The row is durable before anybody is told: a lost push costs a poll, never a signal.
    match prism.store.send(new).await? {
        SendOutcome::Stored(row, _) if row.envelope.seq.is_none() => {
            Err(unavailable(&row.envelope, recipient_state))
        }
        SendOutcome::Stored(row, pushed) => Ok(stored(prism, &row, &pushed, recipient_state)),
        SendOutcome::Repeated(row) if row.facts.failed.is_some() => {
            Err(unavailable(&row.envelope, recipient_state))
        }
        // A retry is answered like the first try, with what has become of the signal since.
        SendOutcome::Repeated(row) => Ok(api::Sent {
            signal_id: row.envelope.signal_id,
            trace_id: row.envelope.trace_id.unwrap_or_default(),
            publish_path: row.publish_path,
            recipient_state,
            receipt: Receipt::assemble(&row.facts, row.sessions),
        }),
    }
}

fn unavailable(kept: &Envelope, recipient_state: RecipientState) -> Problem {
    let message = format!(
        "{} is {recipient_state}, and a sync signal does not wait; it was kept as failed",
        kept.to_identity
    );
    Problem::new(
        Code::RecipientUnavailable,
        message,
        "send it without delivery_class to leave it in the inbox",
    )
    .with("signal_id", kept.signal_id.to_string())
    .with("recipient_state", recipient_state.name())
}

fn stored(
    prism: &Prism,
    row: &Committed,
    pushed: &Pushed,
    recipient_state: RecipientState,
) -> api::Sent {
    let took = pushed.took.len() as u64;
    prism.metrics.sent.fetch_add(1, Ordering::Relaxed);
    prism.metrics.pushed.fetch_add(took, Ordering::Relaxed);
    let sessions = pushed.took.iter().filter_map(|id| prism.presence.get(*id));
    let receipts = sessions
        .map(|s| SessionReceipt {
            session_id: s.id,
            surface: s.surface,
            machine_id: s.machine_id,
            pushed: Some(pushed.at),
            ..Default::default()
        })
        .collect();
    let facts = SignalFacts {
        queued: row.envelope.created_at.unwrap_or(pushed.at),
        ..Default::default()
    };
    api::Sent {
        signal_id: row.envelope.signal_id,
        trace_id: row.envelope.trace_id.unwrap_or_default(),
        publish_path: pushed.path,
        recipient_state,
        receipt: Receipt::assemble(&facts, receipts),
    }
}

pub async fn pending(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalsPending,
) -> Result<api::Pending, Problem> {
    let limit = request.limit.unwrap_or(PENDING_DEFAULT);
    if !(1..=PENDING_MAX).contains(&limit) {
        return Err(Problem::field(
            "limit",
            format!("is {limit} and must be 1 to {PENDING_MAX}"),
        ));
    }
    // One time for all that is noted of it.
    let now = clock::now();
    if let Some(session) = caller.session_id() {
        prism.presence.read(session, now);
    }
    let room = DrainLimit {
        signals: limit,
        payload_bytes: PENDING_BYTES_MAX,
    };
    let leased = (prism.store).lease(caller.persona.id, caller.session_id(), room, now);
    // A probe may be asked about at another server, which has not seen this one.
    let read = async {
        let session = caller.session_id().filter(|_| prism.store.is_shared());
        let Some(session) = session else { return };
        let noted = prism.store.note_read(caller.persona.id, session, now).await;
        if let Err(error) = noted {
            tracing::warn!(%error, "That an inbox was read is not on the trace of its probes");
        }
    };
    let (drain, ()) = tokio::join!(leased, read);
    Ok(match drain? {
        Some(drain) => api::Pending {
            signals: drain.envelopes,
            lease_id: Some(drain.lease_id),
            more: drain.more,
        },
        None => api::Pending {
            signals: Vec::new(),
            lease_id: None,
            more: 0,
        },
    })
}

pub async fn confirm(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalsConfirm,
) -> Result<api::Confirmed, Problem> {
    let personas = prism.directory.personas_of(caller);
    confirm_leases(prism, personas, vec![request.lease_id])
        .await
        .map(|confirmed| api::Confirmed { confirmed })
}

/// Ends drains of any of these inboxes: the rows are drained for good, and the siblings hear of it.
pub async fn confirm_leases(
    prism: &Prism,
    personas: Vec<Uuid>,
    leases: Vec<Uuid>,
) -> Result<u64, Problem> {
    if leases.is_empty() {
        return Ok(0);
    }
    let comes = |personas: &[Uuid]| {
        for persona in personas {
            prism.gate.assignment_comes(*persona);
        }
    };
    comes(&personas);
    let rows = prism
        .store
        .confirm(personas.clone(), leases, clock::now())
        .await?;
    comes(&personas);
    let n = rows.len() as u64;
    prism.metrics.drained.fetch_add(n, Ordering::Relaxed);
    let mut by_reader: BTreeMap<(Uuid, Option<Uuid>), Vec<Uuid>> = BTreeMap::new();
    for row in rows {
        let reader = (row.to_persona, row.by_session);
        by_reader.entry(reader).or_default().push(row.signal_id);
    }
    for ((persona, by_session), signal_ids) in by_reader {
        let drained = ServerFrame::Drained {
            signal_ids,
            by_session,
        };
        prism.bus().tell(persona, by_session, drained);
    }
    Ok(n)
}

pub async fn dismiss(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalsAck,
) -> Result<api::Dismissed, Problem> {
    if request.signal_ids.len() > DISMISS_IDS_MAX {
        let n = request.signal_ids.len();
        return Err(Problem::field(
            "signal_ids",
            format!("has {n} and may have {DISMISS_IDS_MAX}; dismiss the rest with another call"),
        ));
    }
    let dismissed = prism.store.dismiss(
        caller.persona.id,
        caller.session_id(),
        request.signal_ids,
        clock::now(),
    );
    Ok(dismissed.await?)
}

pub async fn acknowledge(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalAck,
) -> Result<Acknowledged, Problem> {
    let state = request.parsed_state()?;
    if request
        .note
        .as_ref()
        .is_some_and(|n| n.chars().count() > NOTE_CHARS_MAX)
    {
        return Err(Problem::field(
            "note",
            format!("may have {NOTE_CHARS_MAX} characters"),
        ));
    }
    let ack = Ack {
        signal_id: request.signal_id,
        persona: caller.persona.clone(),
        session: caller.session_id(),
        state,
        note: request.note,
        gate: prism.gate.actor(caller),
        now: clock::now(),
    };
    // An acknowledgment is not acceptance: the gate may advise beside it, and changes nothing.
    prism.gate.settled(caller).await;
    prism.gate.assignment_comes(caller.persona.id);
    let warning = prism.store.acknowledge(ack).await?;
    prism.gate.assignment_comes(caller.persona.id);
    Ok(Acknowledged {
        ok: true,
        warnings: warning.into_iter().collect(),
    })
}

pub async fn trace(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalTrace,
) -> Result<api::Trace, Problem> {
    // What a shim just reported may still be riding; a trace shows it all.
    prism.store.settle().await?;
    let TraceRow {
        envelope,
        facts,
        sessions,
        notes,
        to_persona,
        ..
    } = prism
        .store
        .trace(caller.project.id, request.signal_id, request.trace_id)
        .await?;
    let loopback_id = envelope
        .payload
        .get("loopback_id")
        .and_then(|id| id.as_str()?.parse().ok())
        .filter(|_| envelope.is_loopback());
    // A name may have been somebody else's when a signal was read under it; an inbox never was.
    let concerned = caller.is_operator
        || caller.persona.id == to_persona
        || caller.persona.identity.is(&envelope.from_identity);
    let timeline = timeline(&facts, &sessions, notes)
        .into_iter()
        .map(|event| TraceEvent {
            loopback_id,
            // The note of an acknowledgment is between those two and the operator.
            detail: event
                .detail
                .filter(|_| concerned || AckState::from_name(&event.state).is_none()),
            ..event
        })
        .collect();
    Ok(api::Trace {
        signal_id: envelope.signal_id,
        trace_id: envelope.trace_id.unwrap_or_default(),
        from_identity: envelope.from_identity,
        to_identity: envelope.to_identity,
        signal_type: envelope.signal_type,
        timeline,
        receipt: Receipt::assemble(&facts, sessions),
    })
}

pub async fn take_back(
    prism: &Prism,
    caller: &Caller,
    request: api::SignalRecall,
) -> Result<api::Recalled, Problem> {
    let sender = (!caller.is_operator).then(|| caller.persona.identity.clone());
    match prism
        .store
        .take_back(caller.project.id, request.signal_id, sender, clock::now())
        .await?
    {
        Ok(ended) => {
            prism.bus().tell(
                ended.to_persona,
                None,
                ServerFrame::Ended {
                    signal_ids: vec![ended.signal_id],
                    state: State::Recalled,
                },
            );
            Ok(api::Recalled {
                recalled: true,
                reason: "nobody had read it".into(),
            })
        }
        Err(reason) => Ok(api::Recalled {
            recalled: false,
            reason,
        }),
    }
}
