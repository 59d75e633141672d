//! The shim's side of the stream: connect, hello, frames, and again.

use super::cache::Arrival;
use super::socket::{self, Socket};
use super::{Session, Shim, probe};
use crate::clock;
use futures_util::{SinkExt, StreamExt};
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::envelope::Envelope;
use prism_core::limits::HEARTBEAT_S;
use prism_core::receipt::State;
use prism_core::ring::{Recorded, Which};
use prism_core::tee::TeeFrame;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

enum End {
    /// The session is over; the shim does not come back as it.
    Over,
    /// The socket broke; try again.
    Broken,
}

/// A signal of the backlog or off the live stream.
struct Arrived {
    envelope: Envelope,
    drained: bool,
    bytes: usize,
}

/// Keeps the session's socket up until the session is over.
pub async fn run(shim: Arc<Shim>, session: Arc<Session>) {
    let mut over = session.over.subscribe();
    let mut pause = Duration::from_millis(50);
    loop {
        let end = tokio::select! {
            end = connected(&shim, &session, &mut pause) => end,
            _ = over.wait_for(|over| *over) => return,
        };
        session.connected.send_replace(false);
        if matches!(end, End::Over) {
            shim.released(&session).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(Duration::from_secs(2)),
            _ = over.wait_for(|over| *over) => return,
        }
    }
}

/// One connection, from hello to its end.
async fn connected(shim: &Shim, session: &Arc<Session>, pause: &mut Duration) -> End {
    let Ok(url) = session.client.locator().url() else {
        return End::Broken;
    };
    let mut ws = match socket::connect(&url, session.client.key()).await {
        Ok(ws) => ws,
        Err(problem) => {
            tracing::debug!(%problem, "No stream yet");
            return End::Broken;
        }
    };
    let unconfirmed: Vec<Uuid> = session
        .unconfirmed
        .lock()
        .map(|u| u.clone())
        .unwrap_or_default();
    let project = session.project_id.to_string();
    let hello = ClientFrame::Hello {
        pid: session.pid.clone(),
        session_id: Some(session.id),
        last_seq: session.cache.seen(&project),
        confirm: unconfirmed.clone(),
    };
    if ws.send(socket::encode(&hello)).await.is_err() {
        return End::Broken;
    }
    let mut heartbeat = tokio::time::interval(Duration::from_secs(HEARTBEAT_S));
    let mut backlog = Some(Vec::new());
    let mut left_over: Vec<String> = Vec::new();
    loop {
        let message = tokio::select! {
            message = ws.next() => message,
            _ = heartbeat.tick() => {
                if ws.send(socket::encode(&ClientFrame::Ping)).await.is_err() { return End::Broken }
                continue;
            }
        };
        let message = match message {
            Some(Ok(Message::Close(Some(frame)))) if close::ends_session(frame.code.into()) => {
                return End::Over;
            }
            Some(Ok(message)) => message,
            Some(Err(_)) | None => return End::Broken,
        };
        let Some(frame) = socket::decode(&message) else {
            continue;
        };
        match frame {
            ServerFrame::Hello {
                pid,
                head_seq,
                pending,
                ..
            } => {
                let pending: Vec<String> = pending.iter().map(Uuid::to_string).collect();
                logged(
                    "agree with the server",
                    session.cache.reconcile(&pid, &project, &pending, head_seq),
                );
                left_over = pending;
                if let Ok(mut list) = session.unconfirmed.lock() {
                    list.retain(|lease| !unconfirmed.contains(lease));
                }
                *pause = Duration::from_millis(50);
                session.connected.send_replace(true);
            }
            ServerFrame::Signal { envelope, drained } => {
                let arrived = Arrived {
                    envelope,
                    drained,
                    bytes: message.len(),
                };
                match &mut backlog {
                    // The backlog is recorded and rung for as one.
                    Some(backlog) => backlog.push(arrived),
                    None => arrive(shim, session, &mut ws, vec![arrived]).await,
                }
            }
            ServerFrame::Live => {
                arrive(shim, session, &mut ws, backlog.take().unwrap_or_default()).await;
                // What an earlier session saw and never drained waits for this one, too.
                if !session.greeted.swap(true, Ordering::Relaxed) {
                    ring_for(shim, session, &mut ws, &left_over).await;
                }
            }
            ServerFrame::Drained { signal_ids, .. } | ServerFrame::Ended { signal_ids, .. } => {
                let sids: Vec<String> = signal_ids.iter().map(Uuid::to_string).collect();
                logged(
                    "mark signals read",
                    session.cache.mark_read(Which::These(&sids)),
                );
                shim.bell().drained();
            }
            ServerFrame::Returned { signal_ids } => {
                returned(shim, session, &mut ws, &signal_ids).await
            }
            ServerFrame::Released { .. } => return End::Over,
            ServerFrame::Event { .. }
            | ServerFrame::Watched { .. }
            | ServerFrame::Pong
            | ServerFrame::Unknown => {}
        }
    }
}

fn logged<T>(what: &str, result: anyhow::Result<T>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(error = %format!("{error:#}"), "Could not {what}"))
        .ok()
}

/// Tee, ring and count, then the bell, then what was achieved.
async fn arrive(shim: &Shim, session: &Arc<Session>, ws: &mut Socket, mut arrived: Vec<Arrived>) {
    // A probe is for one session; the other shims of the identity leave it alone.
    arrived.retain(|a| !a.envelope.is_loopback() || probe::belongs(session, &a.envelope).is_some());
    if arrived.is_empty() || !session.has_inbox() {
        return;
    }
    let now = clock::now();
    let frames: Vec<TeeFrame> = arrived
        .iter()
        .map(|a| TeeFrame::of(&a.envelope, a.bytes, now))
        .collect();
    logged("write the tee log", session.tee.record(&frames));
    let arrivals: Vec<Arrival<'_>> = arrived
        .iter()
        .map(|a| Arrival {
            envelope: &a.envelope,
            drained: a.drained,
        })
        .collect();
    let recorded = logged(
        "write the ring",
        session
            .cache
            .record(&arrivals, &session.project_id.to_string()),
    );
    let fresh: Vec<&Envelope> = match &recorded {
        // Another shim of this identity may have recorded it first; our host still needs its bell.
        Some(recorded) => arrived
            .iter()
            .zip(recorded)
            .filter(|(a, r)| {
                !a.drained
                    && !a.envelope.is_loopback()
                    && matches!(r, Recorded::Added | Recorded::Known)
            })
            .map(|(a, _)| &a.envelope)
            .collect(),
        // A home that cannot be written costs the history, not the bell.
        None => arrived
            .iter()
            .filter(|a| {
                !a.drained
                    && !a.envelope.is_loopback()
                    && a.envelope
                        .to_identity
                        .eq_ignore_ascii_case(session.identity.as_str())
            })
            .map(|a| &a.envelope)
            .collect(),
    };
    let ids: Vec<Uuid> = arrived
        .iter()
        .filter(|a| !a.drained)
        .map(|a| a.envelope.signal_id)
        .collect();
    report(ws, State::Received, ids, None).await;
    ring(shim, session, ws, &fresh).await;
    for envelope in arrived
        .iter()
        .map(|a| &a.envelope)
        .filter(|e| e.is_loopback())
    {
        let Some(loopback_id) = probe::belongs(session, envelope) else {
            continue;
        };
        if let Some(strategy) = probe::arrived(shim, session, envelope, loopback_id, now).await {
            report(ws, State::Rung, vec![envelope.signal_id], Some(strategy)).await;
        }
    }
}

/// One bell for all of them, in the name of the newest.
async fn ring(shim: &Shim, session: &Session, ws: &mut Socket, waiting: &[&Envelope]) {
    let Some(newest) = waiting.last() else { return };
    if let Some(rang) = shim.bell().ring(newest, session.surface).await {
        let ids = waiting.iter().map(|e| e.signal_id).collect();
        report(ws, State::Rung, ids, Some(rang.strategy.name().to_owned())).await;
    }
}

async fn report(ws: &mut Socket, state: State, signal_ids: Vec<Uuid>, strategy: Option<String>) {
    if signal_ids.is_empty() {
        return;
    }
    // A socket that broke is noticed where it is read; the replay repeats the receipt.
    drop(
        ws.send(socket::encode(&ClientFrame::Receipt {
            state,
            signal_ids,
            strategy,
        }))
        .await,
    );
}

/// A drain was not confirmed in time: the signals wait again, so the bell rings again.
async fn returned(shim: &Shim, session: &Session, ws: &mut Socket, signal_ids: &[Uuid]) {
    let sids: Vec<String> = signal_ids.iter().map(Uuid::to_string).collect();
    logged("mark signals unread", session.cache.mark_unread(&sids));
    shim.bell().drained();
    ring_for(shim, session, ws, &sids).await;
}

/// Rings for the newest of these that is unread in the ring, unless a bell stands.
async fn ring_for(shim: &Shim, session: &Session, ws: &mut Socket, sids: &[String]) {
    let (ring_file, _) = session.cache.load();
    let newest = ring_file
        .entries
        .iter()
        .rev()
        .find(|e| !e.read && sids.contains(&e.sid));
    let Some((entry, id)) = newest.and_then(|e| Some((e, e.sid.parse::<Uuid>().ok()?))) else {
        return;
    };
    let envelope = Envelope {
        signal_id: id,
        signal_type: entry.sig_type.clone(),
        category: Some(entry.cat),
        from_identity: entry.from.clone(),
        from_session: None,
        to_identity: session.identity.to_string(),
        payload: serde_json::Map::new(),
        in_reply_to: None,
        created_at: Some(entry.ts),
        trace_id: None,
        seq: None,
        pid: entry.pid.clone(),
    };
    ring(shim, session, ws, &[&envelope]).await;
}
