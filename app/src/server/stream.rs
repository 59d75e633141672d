//! `/api/v1/stream`: hello, replay, live push, receipts back.

use super::{Refusal, text};
use crate::clock;
use crate::config::failpoint;
use crate::hub::{Socket, Work, encode};
use crate::prism::{Caller, Prism};
use crate::store::{KeyRow, Mark};
use crate::verb::signals::confirm_lease;
use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::limits::{FRAME_BYTES_MAX, HELLO_PENDING_MAX, REPLAY_ROWS, STALE_US};
use prism_core::receipt::State as ReceiptState;
use prism_core::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long a new socket may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

pub async fn open(
    State(prism): State<Arc<Prism>>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let key = match prism.authenticate(text(&headers, header::AUTHORIZATION.as_str())) {
        Ok(key) => key,
        Err(problem) => return Refusal(problem).into_response(),
    };
    // The default read buffer would cost 128 KiB for every idle session.
    upgrade
        .read_buffer_size(4096)
        .write_buffer_size(0)
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .on_upgrade(move |socket| async move { serve(prism, key, socket).await })
        .into_response()
}

async fn serve(prism: Arc<Prism>, key: KeyRow, mut ws: WebSocket) {
    let (caller, last_seq) = match hello(&prism, &key, &mut ws).await {
        Ok(said) => said,
        Err(problem) => {
            let reason =
                prism_core::text::clip(&format!("{}: {}", problem.code, problem.message), 40);
            drop(
                ws.send(Message::Close(Some(CloseFrame {
                    code: close::REFUSED,
                    reason: reason.into(),
                })))
                .await,
            );
            return;
        }
    };
    let socket = Socket::new(
        key.id,
        caller.session_id(),
        caller.persona.id,
        caller.project.id,
        last_seq.unwrap_or(0),
    );
    if !prism.hub.join(socket.clone()) {
        drop(
            ws.send(Message::Close(Some(CloseFrame {
                code: close::REFUSED,
                reason: "too many sockets of this identity".into(),
            })))
            .await,
        );
        return;
    }
    if !prism.directory.in_force(key.id) {
        // Revoked since the door let it in; whoever revoked it did not see this socket.
        socket.close(close::RELEASED, "its key was revoked");
    }
    if let Some(session) = caller.session_id() {
        prism.presence.connected(session, clock::now());
    }
    let (sink, source) = ws.split();
    tokio::select! {
        () = write(&prism, &socket, sink, last_seq) => {}
        () = listen(&prism, &caller, &socket, source) => {}
    }
    prism.hub.leave(&socket);
    if let Some(session) = caller.session_id() {
        prism.presence.disconnected(session, clock::now());
    }
}

/// Reads the first frame, settles what the client confirms, and answers with the state of the
/// inbox.
async fn hello(
    prism: &Prism,
    key: &KeyRow,
    ws: &mut WebSocket,
) -> Result<(Caller, Option<i64>), Problem> {
    let refuse = |why: &str| {
        Problem::new(
            Code::InvalidRequest,
            why,
            "send {\"kind\":\"hello\",\"pid\":...,\"session_id\":...} first",
        )
    };
    let first = tokio::time::timeout(HELLO, ws.recv())
        .await
        .map_err(|_| refuse("no hello came"))?;
    let Some(Ok(Message::Text(frame))) = first else {
        return Err(refuse("the first frame was no hello"));
    };
    let Ok(ClientFrame::Hello {
        pid,
        session_id,
        last_seq,
        confirm,
    }) = serde_json::from_str(&frame)
    else {
        return Err(refuse("the first frame was no hello"));
    };
    let caller = prism.caller(key, &pid, session_id)?;
    if session_id.is_none() && !caller.is_operator {
        return Err(Problem::new(
            Code::OperatorOnly,
            "only the operator watches without a session",
            "say hello with a session_id",
        ));
    }
    for lease in confirm {
        confirm_lease(prism, caller.persona.id, lease).await?;
    }
    let (pending, head_seq) = prism
        .store
        .undrained(caller.persona.id, HELLO_PENDING_MAX)
        .await?;
    let answer = ServerFrame::Hello {
        project_id: caller.project.id,
        pid,
        server_version: crate::VERSION.into(),
        head_seq,
        pending,
    };
    ws.send(Message::Text(encode(&answer)))
        .await
        .map_err(|_| refuse("the socket closed"))?;
    // A ring that has seen more than there is belongs to another database.
    let last_seq = last_seq
        .map(|seq| seq.min(head_seq))
        .filter(|_| session_id.is_some());
    Ok((
        caller,
        if session_id.is_none() {
            Some(head_seq)
        } else {
            last_seq
        },
    ))
}

/// Writes what the socket is owed; the backlog ends with `live`.
async fn write(
    prism: &Prism,
    socket: &Socket,
    mut sink: SplitSink<WebSocket, Message>,
    last_seq: Option<i64>,
) {
    // Without a cursor only undrained rows are replayed, page by page.
    let mut undrained_only = last_seq.is_none();
    let mut live = false;
    loop {
        let sent = match socket.work().await {
            Work::Send(frame)
                if failpoint("stream.swallow") && frame.contains("\"kind\":\"signal\"") =>
            {
                Ok(())
            }
            Work::Send(frame) => sink.send(Message::Text(frame)).await,
            Work::Close(code, reason) => {
                if code == close::RELEASED {
                    drop(
                        sink.send(Message::Text(encode(&ServerFrame::Released {
                            reason: reason.clone(),
                        })))
                        .await,
                    );
                }
                drop(
                    sink.send(Message::Close(Some(CloseFrame {
                        code,
                        reason: reason.into(),
                    })))
                    .await,
                );
                return;
            }
            Work::Replay { after } => match replay(prism, socket, after, undrained_only).await {
                Ok(caught_up) => {
                    undrained_only &= !caught_up;
                    // Queued behind the backlog, so that it is written after it.
                    if caught_up && !std::mem::replace(&mut live, true) {
                        socket.tell(encode(&ServerFrame::Live));
                    }
                    Ok(())
                }
                Err(problem) => {
                    tracing::warn!(%problem, "Could not replay an inbox");
                    socket.close(close::SLOW, "the store did not answer: reconnect");
                    Ok(())
                }
            },
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Reads one page of the inbox into the socket's outbox; true when nothing is left out.
async fn replay(
    prism: &Prism,
    socket: &Socket,
    after: i64,
    undrained_only: bool,
) -> Result<bool, Problem> {
    let page = prism
        .store
        .replay(
            socket.persona_id,
            socket.session_id,
            after,
            undrained_only,
            REPLAY_ROWS,
        )
        .await?;
    let now = clock::now();
    if let Some(session_id) = socket.session_id {
        let pushed = page.rows.iter().filter(|r| !r.drained);
        let marks: Vec<Mark> = pushed
            .map(|r| Mark {
                signal_id: r.envelope.signal_id,
                session_id,
                state: ReceiptState::Pushed,
                strategy: None,
                at: now,
            })
            .collect();
        if !marks.is_empty() {
            prism.store.mark(marks);
        }
    }
    let caught_up = !page.more;
    let rows = page
        .rows
        .into_iter()
        .map(|r| {
            (
                r.seq,
                encode(&ServerFrame::Signal {
                    envelope: r.envelope,
                    drained: r.drained,
                }),
            )
        })
        .collect();
    socket.replayed(rows, caught_up.then_some(page.head));
    Ok(caught_up)
}

/// Hears heartbeats and receipts until the client is gone or silent for too long.
async fn listen(
    prism: &Prism,
    caller: &Caller,
    socket: &Socket,
    mut source: SplitStream<WebSocket>,
) {
    let silence = Duration::from_micros(STALE_US as u64);
    loop {
        let message = match tokio::time::timeout(silence, source.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(_) | Err(_) => return,
        };
        if let Some(session) = caller.session_id() {
            prism.presence.seen(session, clock::now());
        }
        let Message::Text(frame) = message else {
            continue;
        };
        match serde_json::from_str::<ClientFrame>(&frame) {
            Ok(ClientFrame::Ping) => socket.tell(encode(&ServerFrame::Pong)),
            Ok(ClientFrame::Receipt {
                state,
                signal_ids,
                strategy,
            }) if state.is_reported_by_shim() => {
                let Some(session_id) = caller.session_id() else {
                    continue;
                };
                if state == ReceiptState::Received {
                    prism
                        .metrics
                        .received
                        .fetch_add(signal_ids.len() as u64, Ordering::Relaxed);
                }
                let at = clock::now();
                prism.store.mark(
                    signal_ids
                        .into_iter()
                        .map(|signal_id| Mark {
                            signal_id,
                            session_id,
                            state,
                            strategy: strategy.clone(),
                            at,
                        })
                        .collect(),
                );
            }
            // A frame that says nothing we know is not worth a session.
            Ok(_) | Err(_) => tracing::debug!("Skipped a frame that is neither ping nor receipt"),
        }
    }
}
