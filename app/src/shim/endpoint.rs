//! The shim's own small door on loopback: what did you receive?

use super::probe::Probes;
use super::tee::Tee;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpListener;
use uuid::Uuid;

#[derive(Clone)]
struct Endpoint {
    tee: Tee,
    probes: Probes,
    token: String,
}

#[derive(Deserialize)]
struct Wanted {
    loopback_id: Uuid,
}

/// Listens on a random loopback port until the task is dropped.
pub async fn start(
    tee: Tee,
    probes: Probes,
    token: String,
) -> std::io::Result<(u16, tokio::task::JoinHandle<()>)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let port = listener.local_addr()?.port();
    let app = Router::new()
        .route("/tee-frames", get(tee_frames))
        .with_state(Endpoint { tee, probes, token });
    let task = tokio::spawn(async move { drop(axum::serve(listener, app).await) });
    Ok((port, task))
}

async fn tee_frames(
    State(endpoint): State<Endpoint>,
    headers: HeaderMap,
    Query(wanted): Query<Wanted>,
) -> Response {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "));
    // A browser page has an Origin; this door is for programs on this machine.
    if bearer != Some(endpoint.token.as_str()) || headers.contains_key(header::ORIGIN) {
        return (
            StatusCode::UNAUTHORIZED,
            Json(json!({"error": {"code": "invalid_key", "message": "this needs the shim's token", "hint": "it is in $PRISM_HOME/shims/<session_id>.json"}})),
        )
            .into_response();
    }
    match endpoint.tee.find(wanted.loopback_id) {
        Some(frame) => {
            let seen = endpoint.probes.get(wanted.loopback_id).unwrap_or_default();
            Json(json!({"frame": frame, "notification": seen.notification, "echo": seen.echo})).into_response()
        }
        None => (StatusCode::NOT_FOUND, Json(json!({"error": {"code": "not_found", "message": "no such probe was received here", "hint": "it may still be on its way, or a layer before the shim lost it"}}))).into_response(),
    }
}
