//! The probe's way through the server: issue, echo, ask, finish.

use crate::clock;
use crate::config;
use crate::prism::{Caller, Prism};
use crate::store::{
    Audience, NewSignal, Persona, READ_ITS_INBOX, SendOutcome, SessionRow, TraceRow,
};
use prism_core::api;
use prism_core::envelope::Envelope;
use prism_core::id::BOT;
use prism_core::limits::{LOOPBACK_RUNS_DEFAULT, LOOPBACK_RUNS_MAX, TTL_LOOPBACK_S};
use prism_core::loopback::{Echo, Layers, NONCE_BYTES, Outcome, Probe};
use prism_core::presence::RecipientState;
use prism_core::receipt::Layer;
use prism_core::signal::{Category, CheckedSend, DeliveryClass, SignalType, sha256_hex};
use prism_core::{Code, Moment, Problem};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Writes a probe to one session and says what the server saw of it; always answers.
pub async fn issue(
    prism: &Prism,
    caller: &Caller,
    request: api::LoopbackIssue,
) -> Result<Probe, Problem> {
    let started_at = clock::now();
    let named = request.session_id.as_deref();
    let target = prism.known(|| target(prism, caller, named)).await?;
    let persona = match &target {
        Some(session) => prism.directory.named(
            caller.project.id,
            session.identity.as_str(),
            Code::UnknownIdentity,
        )?,
        None => caller.persona.clone(),
    };
    if persona.identity.is(BOT) {
        return Err(Problem::new(
            Code::NoInbox,
            "this agent never said who it is: `Bot` has no inbox, so there is no way to probe",
            "start its host with PRISM_AGENT_IDENTITY, or call prism_start with an identity",
        ));
    }
    let echo = request.echo.unwrap_or(true);
    let loopback_id = clock::new_id();
    let (surface, machine_id) = target.as_ref().map_or_else(
        || ("none".to_owned(), String::new()),
        |s| (s.surface.clone(), s.machine_id.clone()),
    );
    let payload = Map::from_iter([
        ("loopback_id".to_owned(), loopback_id.to_string().into()),
        ("nonce".to_owned(), nonce()?.into()),
        (
            "requested_by_identity".to_owned(),
            persona.identity.to_string().into(),
        ),
        (
            "requested_by_session".to_owned(),
            target.as_ref().map(|s| s.id.to_string()).into(),
        ),
        ("surface".to_owned(), surface.clone().into()),
        ("machine_id".to_owned(), machine_id.clone().into()),
        ("summary".to_owned(), "loopback probe".into()),
        ("echo".to_owned(), echo.into()),
        ("ring".to_owned(), request.ring.unwrap_or(true).into()),
    ]);
    let session = target.as_ref().map(|s| s.id);
    let sent = send(prism, caller, &persona, session, payload, None).await?;
    let state = prism
        .presence
        .recipient_state(persona.id, persona.is_operator, clock::now());
    let mut probe = Probe {
        spec: "SPEC-100".into(),
        version: "0.1".into(),
        loopback_id,
        signal_id: sent.signal_id,
        trace_id: sent.trace_id,
        requested_by_identity: persona.identity.to_string(),
        requested_by_session: session,
        surface,
        machine_id,
        started_at,
        finished_at: None,
        outcome: Outcome::Timeout,
        layers: Layers::default(),
        missing_layers: Vec::new(),
        echo: Echo {
            expected: echo,
            ..Echo::default()
        },
        recipient_state: Some(state.name().into()),
    };
    probe.layers.backend_write = probe.seen(sent.committed_at, 0.0);
    if let Some(at) = sent.pushed_at {
        probe.layers.redis_publish.seen =
            probe.seen(at, probe.layers.backend_write.elapsed_ms.unwrap_or(0.0));
        let shared = prism.store.is_shared();
        probe.layers.redis_publish.server = shared.then(|| config::server_name().to_owned());
    }
    let pushed_here = sent.pushed_at.is_some();
    let carrier = prism.bus().carrier();
    // As far as is known before anybody else has pushed it.
    let brought = carrier.brought(pushed_here, carrier.reaches_others());
    probe.layers.redis_publish.transport = Some(brought.into());
    Ok(probe.finish(
        &prism_core::loopback::ShimEvidence::default(),
        None,
        clock::now(),
    ))
}

/// The session a probe is for: the caller's own, one that the operator or the same identity names,
/// or none.
fn target(
    prism: &Prism,
    caller: &Caller,
    named: Option<&str>,
) -> Result<Option<SessionRow>, Problem> {
    let Some(named) = named else {
        return Ok(caller.session.clone());
    };
    let session = super::sessions::quoted(prism, caller, named)?;
    if session.persona_id != caller.persona.id && !caller.is_operator {
        return Err(Problem::new(
            Code::NotYours,
            format!("that session is {}'s", session.identity),
            "probe your own sessions, or use the operator's key",
        ));
    }
    Ok(Some(session))
}

fn nonce() -> Result<String, Problem> {
    let mut bytes = [0u8; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| {
        Problem::new(
            Code::Internal,
            format!("the system gave no random bytes: {e}"),
            "try again",
        )
    })?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

struct Issued {
    signal_id: Uuid,
    trace_id: Uuid,
    committed_at: Moment,
    pushed_at: Option<Moment>,
}

/// Writes a Loopback row and offers it to the one session it is for.
async fn send(
    prism: &Prism,
    caller: &Caller,
    to: &Persona,
    session: Option<Uuid>,
    payload: Map<String, Value>,
    in_reply_to: Option<String>,
) -> Result<Issued, Problem> {
    let now = clock::now();
    let payload_json = Value::Object(payload).to_string();
    let body_sha256 = sha256_hex(payload_json.as_bytes());
    let send = CheckedSend {
        to: to.identity.clone(),
        signal_type: SignalType::Loopback,
        category: Category::Info,
        payload_json,
        in_reply_to,
        delivery_class: DeliveryClass::Sync,
        ttl_s: TTL_LOOPBACK_S,
        idempotency_key: None,
        body_sha256,
    };
    let new = NewSignal {
        escalates_after_us: None,
        signal_id: clock::new_id(),
        trace_id: clock::new_id(),
        project: caller.project.clone(),
        from_persona: to.clone(),
        from_session: session,
        to_persona: to.clone(),
        send,
        now,
        audience: session.map_or(Audience::Nobody, Audience::Session),
        recipient_live: session.is_some(),
        recipient_elsewhere: session.is_some() && prism.is_elsewhere(to.id, now),
        failed: false,
    };
    // A probe has no key of its own, so it is never a repeat.
    let SendOutcome::Stored(row, pushed) = prism.store.send(new).await? else {
        return Err(Problem::new(
            Code::Internal,
            "a probe was taken for a repeat",
            "report this",
        ));
    };
    let offered = !pushed.took.is_empty() || !pushed.reading.is_empty();
    Ok(Issued {
        signal_id: row.envelope.signal_id,
        trace_id: row.envelope.trace_id.unwrap_or_default(),
        committed_at: pushed.at,
        pushed_at: offered.then_some(pushed.at),
    })
}

/// The shim's answer to a probe; a probe is answered once, and an echo never.
pub async fn echo(
    prism: &Prism,
    caller: &Caller,
    request: api::LoopbackEcho,
) -> Result<api::LoopbackEchoed, Problem> {
    let probe = prism
        .store
        .trace(caller.project.id, Some(request.signal_id.to_string()), None)
        .await?
        .envelope;
    let refuse = |why: &str| {
        Problem::new(
            Code::InvalidRequest,
            why.to_owned(),
            "a shim echoes the probes that its own session received",
        )
    };
    if !probe.is_loopback() || probe.in_reply_to.is_some() {
        return Err(refuse("this is no probe to echo"));
    }
    let asked = probe
        .payload
        .get("requested_by_session")
        .and_then(Value::as_str);
    if asked != caller.session_id().map(|s| s.to_string()).as_deref() {
        return Err(refuse("this probe was for another session"));
    }
    let mut payload = probe.payload.clone();
    // Outside the probe's own payload only the nonce's hash is kept.
    if let Some(nonce) = payload
        .remove("nonce")
        .and_then(|n| n.as_str().map(str::to_owned))
    {
        payload.insert("nonce_hash".into(), sha256_hex(nonce.as_bytes()).into());
    }
    payload.insert("summary".into(), "loopback echo".into());
    let sent = send(
        prism,
        caller,
        &caller.persona,
        caller.session_id(),
        payload,
        Some(request.signal_id.to_string()),
    )
    .await?;
    Ok(api::LoopbackEchoed {
        signal_id: sent.signal_id,
    })
}

/// A probe of the caller's, as the store has it.
async fn own_probe(prism: &Prism, caller: &Caller, signal_id: Uuid) -> Result<TraceRow, Problem> {
    let issued = prism
        .store
        .trace(caller.project.id, Some(signal_id.to_string()), None)
        .await?;
    let mine = issued.to_persona == caller.persona.id || caller.is_operator;
    if !mine || !issued.envelope.is_loopback() || issued.envelope.in_reply_to.is_some() {
        return Err(Problem::new(
            Code::NotYours,
            "this is no probe of yours",
            "ask about the probe you issued",
        ));
    }
    Ok(issued)
}

fn probed_session(probe: &Envelope) -> Option<Uuid> {
    let id = probe.payload.get("requested_by_session")?.as_str()?;
    id.parse().ok()
}

/// When the probed session acknowledged the probe.
fn acknowledged(issued: &TraceRow, session: Uuid) -> Option<Moment> {
    let notes = issued.notes.iter();
    notes
        .filter(|n| n.layer == Layer::ModelAck && n.session_id == Some(session))
        .map(|n| n.observed_at)
        .min()
}

/// When it last read its inbox, if that was after the probe.
fn read(prism: &Prism, issued: &TraceRow, session: Uuid) -> Option<Moment> {
    let read = prism.presence.last_read(session);
    read.filter(|at| *at >= issued.facts.queued)
}

fn model_ack(prism: &Prism, issued: &TraceRow) -> Option<Moment> {
    let session = probed_session(&issued.envelope)?;
    acknowledged(issued, session).or_else(|| read(prism, issued, session))
}

/// Whether the probed session's model acknowledged the probe, or has read its inbox since.
pub async fn model(
    prism: &Prism,
    caller: &Caller,
    request: api::LoopbackModel,
) -> Result<api::LoopbackModelSeen, Problem> {
    let issued = own_probe(prism, caller, request.signal_id).await?;
    let Some(session) = probed_session(&issued.envelope) else {
        return Ok(api::LoopbackModelSeen {
            model_ack: None,
            session_over: true,
        });
    };
    let (acknowledged, read) = (
        acknowledged(&issued, session),
        read(prism, &issued, session),
    );
    if let (None, Some(at)) = (acknowledged, read) {
        prism
            .store
            .note_model_ack(request.signal_id, session, READ_ITS_INBOX, at)
            .await?;
    }
    let open = prism.presence.get(session);
    Ok(api::LoopbackModelSeen {
        model_ack: acknowledged.or(read),
        session_over: open.is_none_or(|s| s.released_at.is_some()),
    })
}

/// The probe is over: its rows leave the queue, its result is kept.
pub async fn finish(
    prism: &Prism,
    caller: &Caller,
    request: api::LoopbackFinish,
) -> Result<api::Ok, Problem> {
    // What became of its push may still be riding.
    prism.store.settle().await?;
    let issued = own_probe(prism, caller, request.probe.signal_id).await?;
    let loopback_id = issued.envelope.payload.get("loopback_id");
    if loopback_id.and_then(Value::as_str) != Some(&request.probe.loopback_id.to_string()) {
        return Err(Problem::new(
            Code::NotYours,
            "the probe's two ids do not belong together",
            "finish the probe you issued",
        ));
    }
    let probe = judged(prism, &issued, &request.probe, clock::now());
    prism
        .store
        .finish_probe(caller.project.id, probe, clock::now())
        .await?;
    Ok(api::Ok { ok: true })
}

/// A probe as its row has it, with what the server itself knows of its way. What only the shim can
/// have seen is taken from the result that came, as far as that can be.
fn judged(prism: &Prism, issued: &TraceRow, said: &Probe, now: Moment) -> Probe {
    let row = &issued.envelope;
    let text = |field: &str| row.payload.get(field).and_then(Value::as_str);
    let session = probed_session(row);
    let queued = issued.facts.queued;
    let mut probe = Probe {
        spec: "SPEC-100".into(),
        version: "0.1".into(),
        loopback_id: said.loopback_id,
        signal_id: row.signal_id,
        trace_id: row.trace_id.unwrap_or_default(),
        requested_by_identity: row.to_identity.clone(),
        requested_by_session: session,
        surface: text("surface").unwrap_or("none").to_owned(),
        machine_id: text("machine_id").unwrap_or_default().to_owned(),
        // The clock was read for it right before the row was written.
        started_at: said.started_at.clamp(queued.plus_s(-1), queued),
        finished_at: None,
        outcome: Outcome::Timeout,
        layers: Layers::default(),
        missing_layers: Vec::new(),
        echo: Echo {
            expected: row.payload.get("echo") == Some(&Value::Bool(true)),
            ..Echo::default()
        },
        recipient_state: said
            .recipient_state
            .as_deref()
            .and_then(RecipientState::from_name)
            .map(|state| state.name().to_owned()),
    };
    probe.layers.backend_write = probe.seen(queued, 0.0);
    let reached = issued
        .sessions
        .iter()
        .find(|s| Some(s.session_id) == session);
    let by = reached.and_then(|s| s.pushed_by.as_deref());
    let by_this = by.is_none_or(|server| server == config::server_name());
    let hop_us = reached.and_then(|s| s.hop_us);
    let carrier = prism.bus().carrier();
    // Whoever was told of it noted how long that took.
    let brought = carrier.brought(by_this, hop_us.is_some());
    probe.layers.redis_publish.transport = Some(brought.into());
    let pushed = reached.and_then(|s| s.pushed.or(s.received));
    if let Some(at) = pushed {
        let floor = probe.layers.backend_write.elapsed_ms.unwrap_or(0.0);
        probe.layers.redis_publish.seen = probe.seen(at, floor);
        probe.layers.redis_publish.server = reached.and_then(|s| s.pushed_by.clone());
        probe.layers.redis_publish.hop_ms = hop_us.map(|us| us as f64 / 1_000.0);
    }
    let shim = said.claimed(pushed.is_some(), probe.started_at, now);
    let model = said.layers.model_ack.observed;
    let model = model.then(|| model_ack(prism, issued)).flatten();
    probe.finish(&shim, model, now)
}

/// Results of earlier probes.
pub async fn runs(
    prism: &Prism,
    caller: &Caller,
    request: api::LoopbackRuns,
) -> Result<api::LoopbackRunsAnswer, Problem> {
    let n = request.n.unwrap_or(LOOPBACK_RUNS_DEFAULT);
    if !(1..=LOOPBACK_RUNS_MAX).contains(&n) {
        return Err(Problem::field(
            "n",
            format!("is {n} and must be 1 to {LOOPBACK_RUNS_MAX}"),
        ));
    }
    let runs = prism
        .store
        .loopback_runs(caller.project.id, request.identity, n)
        .await?;
    Ok(api::LoopbackRunsAnswer { runs })
}
