//! `/api/v1/watch`: an open page hears which rows to read again.

use super::door::Whose;
use super::sign_in::who;
use super::{Refusal, text};
use crate::clock;
use crate::live::{Next, Told, Watcher, encode};
use crate::prism::Prism;
use crate::store::KeyRow;
use axum::extract::Query;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use prism_core::api::close;
use prism_core::api::page::{EVERYWHERE, live::WatchFrame};
use prism_core::bus::News;
use prism_core::limits::{PAGE_BEAT_S, PAGES_MAX};
use prism_core::{Code, Problem};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How long changes are collected before they are told.
const COLLECT: Duration = Duration::from_millis(60);
/// How long a socket may take to read one frame.
const SEND: Duration = Duration::from_secs(20);
/// Bytes of one frame from a page, which has nothing to say.
const HEARD_BYTES_MAX: usize = 4 * 1024;

#[derive(serde::Deserialize)]
pub struct Wanted {
    #[serde(default)]
    pid: Option<String>,
}

pub async fn open(
    Whose(prism): Whose,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    let admitted = prism.known(|| admit(&prism, &headers, wanted.pid.as_deref()));
    let (key, project, pid) = match admitted.await {
        Ok(admitted) => admitted,
        Err(problem) => return Refusal(problem).into_response(),
    };
    upgrade
        .read_buffer_size(1024)
        .write_buffer_size(0)
        .max_message_size(HEARD_BYTES_MAX)
        .on_upgrade(move |socket| serve(prism, key, project, pid, socket))
        .into_response()
}

fn admit(
    prism: &Prism,
    headers: &HeaderMap,
    pid: Option<&str>,
) -> Result<(KeyRow, Option<Uuid>, String), Problem> {
    let key = who(prism, headers)?;
    if key.identity.is_some() {
        return Err(Problem::new(
            Code::OperatorOnly,
            "only the operator watches everything",
            "unset PRISM_AGENT_IDENTITY and use the operator's key",
        ));
    }
    match pid.filter(|pid| !pid.is_empty() && *pid != EVERYWHERE) {
        None => Ok((key, None, EVERYWHERE.into())),
        Some(pid) => {
            let caller = prism.caller(&key, pid, None)?;
            Ok((key, Some(caller.project.id), caller.project.pid.to_string()))
        }
    }
}

async fn serve(
    prism: Arc<Prism>,
    key: KeyRow,
    project: Option<Uuid>,
    pid: String,
    mut ws: WebSocket,
) {
    let watcher = Watcher::new(key.id, project);
    let live = prism.hub.live();
    let Some(mark) = live.join(watcher.clone()) else {
        let frame = CloseFrame {
            code: close::TOO_MANY,
            reason: format!("{PAGES_MAX} pages watch already: close one").into(),
        };
        drop(ws.send(Message::Close(Some(frame))).await);
        return;
    };
    if !prism.directory.in_force(&key) {
        watcher.close(close::REFUSED, close::KEY_REVOKED);
    }
    let hello = WatchFrame::Hello {
        pid,
        at: clock::now(),
        server_version: crate::config::version().into(),
        mark,
    };
    if ws.send(Message::Text(encode(&hello))).await.is_ok() {
        let (mut sink, mut source) = ws.split();
        let writing = async {
            loop {
                let beat = Duration::from_secs(PAGE_BEAT_S);
                let next = tokio::time::timeout(beat, watcher.next()).await;
                // However much there is to tell, it is told to nobody who is signed out.
                let ended = key.expires_at.is_some_and(|at| at <= clock::now());
                if ended && !matches!(next, Ok(Next::Close(..))) {
                    watcher.close(close::REFUSED, "this session has ended: sign in again");
                    continue;
                }
                let message = match next {
                    Ok(Next::Send(frame)) => Message::Text(frame),
                    Ok(Next::Close(code, reason)) => {
                        let reason = reason.into();
                        let frame = CloseFrame { code, reason };
                        drop(sink.send(Message::Close(Some(frame))).await);
                        return;
                    }
                    Err(_) => Message::Text(encode(&WatchFrame::Beat { at: clock::now() })),
                };
                let sent = tokio::time::timeout(SEND, sink.send(message)).await;
                if !matches!(sent, Ok(Ok(()))) {
                    return;
                }
            }
        };
        // A page says nothing; what it sends is read so that its end is noticed.
        let listening = async {
            while let Some(Ok(_)) = source.next().await {
                while let Err(wait_ms) = prism.charge(key.id) {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            () = listening => {}
        }
    }
    live.leave(&watcher);
}

/// Finds out which rows were touched and tells the watchers, until the server stops.
pub async fn tell(prism: Arc<Prism>) {
    let live = prism.hub.live();
    loop {
        live.something().await;
        tokio::time::sleep(COLLECT).await;
        let (told, for_others) = live.take();
        if let Some(rows) = for_others {
            prism.bus().carrier().say(|| News::Touched(rows));
        }
        if live.pages() == 0 {
            continue;
        }
        let touched = match told {
            Told::These(touched) if touched.is_empty() => continue,
            Told::These(touched) => touched,
            Told::TooMany => {
                live.tell_behind();
                continue;
            }
        };
        match prism.store.changes(touched).await {
            Ok(changes) => live.tell(&changes),
            Err(error) => {
                tracing::warn!(%error, "What changed could not be looked up");
                live.tell_behind();
            }
        }
    }
}

/// What a page's request says of where it comes from.
pub fn origin_of(headers: &HeaderMap) -> (Option<&str>, Option<&str>) {
    (
        text(headers, header::ORIGIN.as_str()),
        text(headers, "sec-fetch-site"),
    )
}
