//! The shim's own small door on loopback: what did you receive, and what does a hook say?

mod door;

use super::{Session, Shim, hooks};
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use door::{Door, Standing};
use prism_core::hook::{Asked, Done, Rings};
use prism_core::limits::SHIM_BODY_BYTES_MAX;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

/// How long a waiter stands before it is asked to carry what was kept for a hook.
const SETTLING: Duration = Duration::from_millis(500);

#[derive(Clone)]
struct Endpoint {
    shim: Arc<Shim>,
    session: Arc<Session>,
    token: String,
}

#[derive(Deserialize)]
struct Wanted {
    loopback_id: Uuid,
}

/// Listens on a random loopback port until the task is dropped.
pub async fn start(
    shim: Arc<Shim>,
    session: Arc<Session>,
    token: String,
) -> std::io::Result<(u16, tokio::task::JoinHandle<()>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let endpoint = Endpoint {
        shim,
        session,
        token,
    };
    let app = Router::new()
        .route("/tee-frames", get(tee_frames))
        .route("/hook", post(hook))
        .route("/hook-done", post(hook_done))
        .route("/hook-wait", post(hook_wait))
        .route("/hook-goes", post(hook_goes))
        .layer(from_fn_with_state(endpoint.clone(), let_in))
        .with_state(endpoint)
        .into_make_service_with_connect_info::<Standing>();
    let task = tokio::spawn(async move { drop(axum::serve(Door::new(listener), app).await) });
    Ok((port, task))
}

impl Endpoint {
    /// Lets in whoever read the shim file.
    fn admit(&self, headers: &HeaderMap) -> Result<(), Box<Response>> {
        let bearer = headers
            .get(header::AUTHORIZATION)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.strip_prefix("Bearer "));
        // A browser page has an Origin; this door is for programs on this machine.
        if bearer == Some(self.token.as_str()) && !headers.contains_key(header::ORIGIN) {
            return Ok(());
        }
        let refused = (
            StatusCode::UNAUTHORIZED,
            Json(
                json!({"error": {"code": "invalid_key", "message": "this needs the shim's token", "hint": "it is in $PRISM_HOME/shims/<session_id>.json"}}),
            ),
        );
        Err(Box::new(refused.into_response()))
    }
}

/// Lets in whoever has the token, and reads the request whole; the door gives it its time for that.
async fn let_in(
    State(endpoint): State<Endpoint>,
    ConnectInfo(standing): ConnectInfo<Standing>,
    request: Request,
    next: Next,
) -> Response {
    if let Err(refused) = endpoint.admit(request.headers()) {
        return *refused;
    }
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, SHIM_BODY_BYTES_MAX).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let _served = standing.0.served();
    next.run(Request::from_parts(head, Body::from(body))).await
}

async fn tee_frames(State(endpoint): State<Endpoint>, Query(wanted): Query<Wanted>) -> Response {
    let session = &endpoint.session;
    match session.tee.find(wanted.loopback_id) {
        Some(frame) => {
            let seen = session.probes.get(wanted.loopback_id).unwrap_or_default();
            Json(json!({"frame": frame, "notification": seen.notification, "echo": seen.echo})).into_response()
        }
        None => (StatusCode::NOT_FOUND, Json(json!({"error": {"code": "not_found", "message": "no such probe was received here", "hint": "it may still be on its way, or a layer before the shim lost it"}}))).into_response(),
    }
}

/// An event of the host; answered with what its hook is to print, or with nothing.
async fn hook(State(endpoint): State<Endpoint>, Json(asked): Json<Asked>) -> Response {
    let within = Duration::from_millis(asked.within_ms);
    let Endpoint { shim, session, .. } = endpoint;
    // What the event means is noted to its end, whether or not its hook still waits.
    let answering = tokio::spawn(async move { hooks::heard(&shim, &session, asked).await });
    match tokio::time::timeout(within, answering).await {
        Ok(Ok(Some(answered))) => Json(answered).into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    }
}

/// A hook's output was written: its host has what it said.
async fn hook_done(State(endpoint): State<Endpoint>, Json(done): Json<Done>) -> Response {
    hooks::was_said(&endpoint.shim, &endpoint.session, done.receipt);
    StatusCode::NO_CONTENT.into_response()
}

/// A hook that waits beside an idle session; answered when a bell is to be rung, or at once when
/// nobody needs it. It ends with the session.
async fn hook_wait(State(endpoint): State<Endpoint>) -> Response {
    let Endpoint { shim, session, .. } = endpoint;
    let Some(bell) = shim.bell().waiter_came() else {
        return StatusCode::NO_CONTENT.into_response();
    };
    let beside = shim.clone();
    tokio::spawn(async move {
        // The end of a turn has a hook of its own, which may carry what was kept.
        tokio::time::sleep(SETTLING).await;
        beside.bell().ring_for_waiter().await;
    });
    let mut over = session.over.subscribe();
    tokio::select! {
        notice = bell => match notice {
            Ok(notice) => Json(Rings {
                signal_id: notice.signal_id,
                sentence: notice.sentence(),
            })
            .into_response(),
            Err(_) => StatusCode::NO_CONTENT.into_response(),
        },
        _ = over.wait_for(|over| *over) => StatusCode::NO_CONTENT.into_response(),
    }
}

/// The waiter goes to wake its host; too late, another rung has the bell.
async fn hook_goes(State(endpoint): State<Endpoint>, Json(rings): Json<Rings>) -> Response {
    match endpoint.shim.bell().waiter_goes(rings.signal_id) {
        true => StatusCode::NO_CONTENT.into_response(),
        false => StatusCode::GONE.into_response(),
    }
}
