//! `/api/v1/stream`: hello, replay, live push, receipts back.

use super::door::Whose;
use super::{Refusal, text};
use crate::clock;
use crate::config::failpoint;
use crate::hub::{Socket, Work, encode};
use crate::live::Touched;
use crate::presence::Came;
use crate::prism::{Caller, Prism};
use crate::store::{BellReport, KeyRow, Report, Seat, Undrained};
use crate::verb::signals::confirm_leases;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::bell::Strategy;
use prism_core::limits::{
    BELL_NOTE_CHARS_MAX, FRAME_BYTES_MAX, HELLO_CONFIRMS_MAX, HELLO_PENDING_MAX, RECEIPT_IDS_MAX,
    REPLAY_ROWS, SOCKETS_PER_IDENTITY_MAX, STALE_US, WATCHERS_MAX,
};
use prism_core::receipt::State as ReceiptState;
use prism_core::{Code, Problem};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use uuid::Uuid;

/// How long a socket may take to read one frame.
const SEND: Duration = Duration::from_secs(20);
/// Bytes of the reason that a close frame may carry.
const CLOSE_REASON_BYTES: usize = 120;
/// Bytes that are read at once: pings and receipts are small, and what is larger gets room while it comes.
const READ_BYTES: usize = 256;
/// How long a socket that is to end may take to read what it is still owed and why it ends.
const ENDING: Duration = Duration::from_secs(3);
/// How long a new socket may take to say hello.
const HELLO: Duration = Duration::from_secs(10);

pub async fn open(Whose(prism): Whose, headers: HeaderMap, upgrade: WebSocketUpgrade) -> Response {
    let bearer = text(&headers, header::AUTHORIZATION.as_str());
    let key = match prism.known(|| prism.authenticate(bearer)).await {
        Ok(key) => key,
        Err(problem) => return Refusal(problem).into_response(),
    };
    // The default read buffer would cost 128 KiB for every idle session.
    upgrade
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(0)
        .max_message_size(FRAME_BYTES_MAX)
        .max_frame_size(FRAME_BYTES_MAX)
        .on_upgrade(move |socket| receive(prism, key, socket))
        .into_response()
}

/// Hears who comes and greets them. They stay in a task of their own: a task keeps the room of the largest thing it
/// ever did, and most of those who stay are silent.
async fn receive(prism: Arc<Prism>, key: KeyRow, mut ws: WebSocket) {
    let hello = match first_frame(&prism, &key, &mut ws).await {
        Ok(hello) => hello,
        Err(problem) => return refuse(&mut ws, &problem).await,
    };
    let caller = &hello.caller;
    let socket = Socket::new(
        key.id,
        caller.session_id(),
        caller.persona.id,
        caller.project.id,
    );
    // It joins before the inbox is read: what is drained, ended or given back from here on is
    // queued behind the hello, and what is sent is read from the store.
    if !prism.hub.join(socket.clone()) {
        let (whose, most) = match caller.session {
            Some(_) => ("an identity", SOCKETS_PER_IDENTITY_MAX),
            None => ("whoever watches", WATCHERS_MAX),
        };
        let problem = Problem::new(
            Code::TooManyRequests,
            format!("{whose} may hold {most} sockets: close one"),
            "close one, or wait",
        );
        return refuse(&mut ws, &problem).await;
    }
    if !prism.directory.in_force(&key) {
        // Revoked since the door let it in; whoever revoked it did not see this socket.
        socket.close(close::RELEASED, close::KEY_REVOKED);
    }
    if let Some(session) = &caller.session {
        if prism
            .presence
            .get(session.id)
            .is_none_or(|s| s.released_at.is_some())
        {
            // Released since its hello was read; whoever released it did not see this socket.
            socket.close(close::RELEASED, "the session is over");
        }
        let came = prism.presence.connected(session.id, clock::now());
        prism.hub.live().touched([Touched::Session(session.id)]);
        prism.announce_arrival(session, came);
    }
    let seat = match seat(&prism, caller).await {
        Ok(seat) => seat,
        Err(problem) => {
            socket.close(close::TRY_AGAIN, &problem.message);
            None
        }
    };
    if seat.is_none() && caller.session.is_some() && prism.store.is_shared() {
        socket.close(close::RELEASED, "the session is over");
    }
    let greeted = greet(&prism, &hello, &socket, &mut ws).await;
    let here = Here {
        prism,
        socket,
        seat,
    };
    match greeted {
        Ok(replay) => {
            let (sink, source) = ws.split();
            tokio::spawn(stay(here, sink, source, replay));
        }
        Err(problem) => {
            refuse(&mut ws, &problem).await;
            here.leave();
        }
    }
}

/// Who has come, until they leave.
struct Here {
    prism: Arc<Prism>,
    socket: Arc<Socket>,
    seat: Option<Seat>,
}

impl Here {
    fn leave(self) {
        let Self {
            prism,
            socket,
            seat,
        } = self;
        prism.hub.leave(&socket);
        if let Some(session) = socket.session_id {
            if let Some(seat) = seat {
                prism.store.unseat_session(session, seat);
            }
            prism.presence.disconnected(session, clock::now());
            prism.hub.live().touched([Touched::Session(session)]);
        }
    }
}

/// Ten thousand of these may be there at once: what is done seldom has a box of its own while it lasts.
async fn stay(
    here: Here,
    sink: SplitSink<WebSocket, Message>,
    source: SplitStream<WebSocket>,
    replayed: Replay,
) {
    tokio::select! {
        () = write(&here, sink, replayed) => {}
        () = listen(&here, source) => {}
        () = overdue(&here.socket) => {}
    }
    here.leave();
}

/// Waits until a socket that is to end has had its time: whoever does not read must not keep one whose key was revoked or
/// whose session is over.
async fn overdue(socket: &Socket) {
    socket.closing().await;
    Box::pin(tokio::time::sleep(ENDING)).await;
}

/// Notes where the session's socket is, where there are several servers: the others end theirs.
async fn seat(prism: &Prism, caller: &Caller) -> Result<Option<Seat>, Problem> {
    let Some(session) = caller.session_id() else {
        return Ok(None);
    };
    if !prism.store.is_shared() {
        return Ok(None);
    }
    let seat = prism.store.seat_session(session, clock::now()).await?;
    if let Some(seat) = seat {
        prism.presence.seated(session, seat);
        prism.bus().session_changed(session);
    }
    Ok(seat)
}

/// Closes a socket whose hello failed, and says whether the same hello may succeed later: a busy
/// store or a full disk is not the end of a session.
async fn refuse(ws: &mut WebSocket, problem: &Problem) {
    let for_good = (400..500).contains(&problem.status) && !problem.is(Code::TooManyRequests);
    let code = match for_good {
        true => close::REFUSED,
        false => close::TRY_AGAIN,
    };
    // A close frame has room for 123 bytes.
    let reason = format!("{}: {}", problem.code, problem.message);
    let reason = prism_core::text::within_json(&reason, CLOSE_REASON_BYTES).to_owned();
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    drop(ws.send(Message::Close(Some(frame))).await);
}

/// A hello that may go on: who says it, and what it says.
struct Hello {
    caller: Caller,
    pid: String,
    last_seq: Option<i64>,
    last_id: Option<Uuid>,
    copy: Option<String>,
    confirm: Vec<Uuid>,
}

/// What of an inbox a new socket is sent first.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    /// Everything after the client's cursor.
    AfterCursor,
    /// Without a cursor: what nobody has drained.
    Undrained,
}

/// Reads the first frame and finds out who it is from.
async fn first_frame(prism: &Prism, key: &KeyRow, ws: &mut WebSocket) -> Result<Hello, Problem> {
    let hint = "send {\"kind\":\"hello\",\"pid\":...,\"session_id\":...} first";
    // Whoever was asleep for so long, or lost its connection, comes back with the same hello.
    let late = || Problem::new(Code::TooManyRequests, "no hello came in time", hint);
    let frame = match tokio::time::timeout(HELLO, ws.recv()).await {
        Ok(Some(Ok(Message::Text(frame)))) => frame,
        Ok(Some(Ok(_))) => {
            let why = "the first frame was no hello";
            return Err(Problem::new(Code::InvalidRequest, why, hint));
        }
        _ => return Err(late()),
    };
    let Ok(ClientFrame::Hello {
        pid,
        session_id,
        last_seq,
        last_id,
        copy,
        mut confirm,
    }) = serde_json::from_str(&frame)
    else {
        let why = "the first frame was no hello";
        return Err(Problem::new(Code::InvalidRequest, why, hint));
    };
    let caller = prism.known(|| prism.caller(key, &pid, session_id)).await?;
    if session_id.is_none() && !caller.is_operator {
        return Err(Problem::new(
            Code::OperatorOnly,
            "only the operator watches without a session",
            "say hello with a session_id",
        ));
    }
    confirm.truncate(HELLO_CONFIRMS_MAX);
    Ok(Hello {
        caller,
        pid,
        last_seq,
        last_id,
        copy,
        confirm,
    })
}

/// Settles what the client confirms, and answers with the state of the inbox.
async fn greet(
    prism: &Prism,
    hello: &Hello,
    socket: &Socket,
    ws: &mut WebSocket,
) -> Result<Replay, Problem> {
    let caller = &hello.caller;
    let personas = prism.directory.personas_of(caller);
    confirm_leases(prism, personas, hello.confirm.clone()).await?;
    if failpoint("hello.busy") {
        return Err(Problem::new(Code::StorageFull, "the store is busy", "wait"));
    }
    let Undrained {
        ids: pending,
        head: head_seq,
        head_id,
    } = prism
        .store
        .undrained(caller.persona.id, HELLO_PENDING_MAX)
        .await?;
    if failpoint("hello.dawdle") {
        // Tells that the inbox was read, and waits until what was read is drained.
        drop(ws.send(Message::Ping(Default::default())).await);
        while !prism
            .store
            .undrained(caller.persona.id, 1)
            .await?
            .ids
            .is_empty()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let restarted = is_another_copy(prism, hello).await?;
    let answer = ServerFrame::Hello {
        project_id: caller.project.id,
        pid: hello.pid.clone(),
        server_version: crate::config::version().into(),
        head_seq,
        head_id,
        pending,
        restarted,
        copy: prism.copy(),
    };
    in_time(ws.send(Message::Text(encode(&answer))))
        .await
        .map_err(|_| Problem::new(Code::ServerUnreachable, "the socket closed", "reconnect"))?;
    if caller.session.is_none() {
        // Whoever watches sees what happens from now on.
        socket.resume_after(head_seq);
        return Ok(Replay::AfterCursor);
    }
    // A cursor beyond the inbox is another database's, and says nothing about this one.
    let cursor = hello.last_seq.filter(|_| !restarted);
    match cursor.filter(|seq| *seq <= head_seq) {
        Some(seen) => {
            socket.resume_after(seen);
            Ok(Replay::AfterCursor)
        }
        None => Ok(Replay::Undrained),
    }
}

/// Whether the client has come so far in another copy of this inbox: the database says that it is another one, or another
/// signal than the client's has its place. Then this inbox is an older copy and has grown since.
async fn is_another_copy(prism: &Prism, hello: &Hello) -> Result<bool, Problem> {
    if hello
        .copy
        .as_ref()
        .zip(prism.copy().as_ref())
        .is_some_and(|(theirs, ours)| theirs != ours)
    {
        return Ok(true);
    }
    let (Some(seq), Some(id)) = (hello.last_seq, hello.last_id) else {
        return Ok(false);
    };
    let there = prism.store.signal_at(hello.caller.persona.id, seq).await?;
    Ok(there.is_some_and(|there| there != id))
}

/// Ends a send that its reader does not take in time: whoever pings and never reads must not keep a socket.
async fn in_time(
    sending: impl Future<Output = Result<(), axum::Error>>,
) -> Result<(), axum::Error> {
    let late = |_| Err(axum::Error::new("the reader does not read"));
    tokio::time::timeout(SEND, sending)
        .await
        .unwrap_or_else(late)
}

/// Writes what the socket is owed; the backlog ends with `live`.
async fn write(here: &Here, mut sink: SplitSink<WebSocket, Message>, replayed: Replay) {
    let Here { prism, socket, .. } = here;
    let mut undrained_only = replayed == Replay::Undrained;
    let mut live = false;
    loop {
        let sent = match socket.work().await {
            Work::Send(frame)
                if failpoint("stream.swallow") && frame.contains("\"kind\":\"signal\"") =>
            {
                Ok(())
            }
            Work::Send(frame) => in_time(sink.send(Message::Text(frame))).await,
            Work::Close(code, reason) => return Box::pin(end(&mut sink, code, reason)).await,
            Work::Replay { after } => {
                match Box::pin(replay(prism, socket, after, undrained_only, live)).await {
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
                }
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Says why the socket ends.
async fn end(sink: &mut SplitSink<WebSocket, Message>, code: u16, reason: String) {
    if code == close::RELEASED {
        let released = encode(&ServerFrame::Released {
            reason: reason.clone(),
        });
        drop(in_time(sink.send(Message::Text(released))).await);
    }
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    drop(in_time(sink.send(Message::Close(Some(frame)))).await);
}

/// Reads one page of the inbox into the socket's outbox; true when nothing is left out.
async fn replay(
    prism: &Prism,
    socket: &Socket,
    after: i64,
    undrained_only: bool,
    live: bool,
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
    if page.head < after {
        socket.restart();
        return Ok(false);
    }
    // Nothing is said to have been pushed that its socket does not take.
    if !prism.hub.is_current(socket) {
        return Ok(false);
    }
    let now = clock::now();
    if let Some(session_id) = socket.session_id {
        let pushed = page.rows.iter().filter(|r| !r.drained);
        let reports: Vec<Report> = pushed
            .map(|r| Report {
                signal_id: r.envelope.signal_id,
                session_id,
                state: ReceiptState::Pushed,
                strategy: None,
                via: None,
                // What a socket that has caught up reads was sent at another server.
                hop_us: live.then(|| socket.word_took(r.seq)).flatten(),
                at: now,
            })
            .collect();
        if !reports.is_empty() {
            prism.store.report(reports).await;
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
    let head = caught_up.then_some(page.head);
    // What was not taken is no backlog that has come to its end.
    Ok(prism.hub.replayed(socket, rows, head) && caught_up)
}

/// Hears heartbeats and receipts until the client is gone or silent for too long.
async fn listen(here: &Here, mut source: SplitStream<WebSocket>) {
    let Here { prism, socket, .. } = here;
    let silence = Duration::from_micros(STALE_US as u64);
    loop {
        let message = match tokio::time::timeout(silence, source.next()).await {
            Ok(Some(Ok(message))) => message,
            Ok(_) | Err(_) => return,
        };
        // A frame costs what a request costs. Whoever sends too many is read slower: what it sent
        // waits in the kernel's buffers, and nothing is lost.
        while let Err(wait_ms) = prism.charge(socket.key_id) {
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        }
        if let Some(session) = socket.session_id
            && prism.presence.seen(session, clock::now()) == Came::Back
            && let Some(session) = prism.presence.get(session)
        {
            prism.announce_arrival(&session, Came::Back);
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
                via,
            }) if state.is_reported_by_shim() => {
                let Some(session_id) = socket.session_id else {
                    continue;
                };
                let via = via.filter(|_| state == ReceiptState::Rendered);
                let reports = reports(session_id, state, signal_ids, strategy.as_deref(), via);
                if state == ReceiptState::Received {
                    let n = reports.len() as u64;
                    prism.metrics.received.fetch_add(n, Ordering::Relaxed);
                }
                Box::pin(prism.store.report(reports)).await;
            }
            Ok(ClientFrame::Bell {
                note,
                mut signal_ids,
                detail,
            }) => {
                let Some(session_id) = socket.session_id else {
                    continue;
                };
                signal_ids.truncate(RECEIPT_IDS_MAX);
                let detail = prism_core::text::one_line(&detail);
                let detail = prism_core::text::clip(&detail, BELL_NOTE_CHARS_MAX);
                let at = clock::now();
                let told = signal_ids.into_iter().map(|signal_id| BellReport {
                    signal_id,
                    session_id,
                    note,
                    detail: detail.clone(),
                    at,
                });
                prism.store.report_bells(told.collect());
            }
            // A frame that says nothing we know is not worth a session.
            Ok(_) | Err(_) => tracing::debug!("Skipped a frame that is neither ping nor receipt"),
        }
    }
}

/// What one receipt frame says, within its bound; a strategy that is none of ours is left out.
fn reports(
    session_id: Uuid,
    state: ReceiptState,
    signal_ids: Vec<Uuid>,
    strategy: Option<&str>,
    via: Option<Uuid>,
) -> Vec<Report> {
    if signal_ids.len() > RECEIPT_IDS_MAX {
        tracing::warn!(
            %session_id,
            "A receipt names {} signals; only the first {RECEIPT_IDS_MAX} are read",
            signal_ids.len()
        );
    }
    let strategy = strategy.and_then(Strategy::from_name);
    let at = clock::now();
    signal_ids
        .into_iter()
        .take(RECEIPT_IDS_MAX)
        .map(|signal_id| Report {
            signal_id,
            session_id,
            state,
            strategy,
            via,
            hop_us: None,
            at,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that a task takes for as long as it lasts.
    fn room<F: Future>(
        _: impl Fn(Here, SplitSink<WebSocket, Message>, SplitStream<WebSocket>, Replay) -> F,
    ) -> usize {
        size_of::<F>()
    }

    #[test]
    fn who_is_there_and_silent_takes_little_room() {
        assert!(room(stay) <= 1024, "{} bytes a socket", room(stay));
    }
}
