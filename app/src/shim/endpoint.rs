//! The shim's own small door on loopback: what did you receive, and what does a hook say?

use super::{Session, Shim, hooks};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use prism_core::hook::{Asked, Done};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use uuid::Uuid;

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
    let app = Router::new()
        .route("/tee-frames", get(tee_frames))
        .route("/hook", post(hook))
        .route("/hook-done", post(hook_done))
        .with_state(Endpoint {
            shim,
            session,
            token,
        });
    let task = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
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

async fn tee_frames(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    if let Err(refused) = endpoint.admit(&headers) {
        return *refused;
    }
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
async fn hook(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Json(asked): Json<Asked>,
) -> Response {
    if let Err(refused) = endpoint.admit(&headers) {
        return *refused;
    }
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
async fn hook_done(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Json(done): Json<Done>,
) -> Response {
    if let Err(refused) = endpoint.admit(&headers) {
        return *refused;
    }
    hooks::was_said(&endpoint.shim, &endpoint.session, done.receipt);
    StatusCode::NO_CONTENT.into_response()
}
