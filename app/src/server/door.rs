//! The door in front of every route and of the WebSocket upgrade.

use super::connections::Connection;
use super::sign_in;
use super::{Refusal, VERSION_HEADER, text};
use crate::prism::Prism;
use crate::tenants::Tenants;
use axum::Extension;
use axum::extract::{ConnectInfo, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use prism_core::access::{host_allowed, origin_allowed};
use prism_core::{Code, Problem};
use std::sync::Arc;

/// Whose Prism a request is about: the tenant's that its key or cookie names.
pub struct Whose(pub Arc<Prism>);

impl FromRequestParts<Tenants> for Whose {
    type Rejection = Refusal;

    async fn from_request_parts(
        parts: &mut Parts,
        tenants: &Tenants,
    ) -> Result<Self, Self::Rejection> {
        let whose = whose(tenants, &parts.headers).await;
        whose.map(Self).map_err(Refusal)
    }
}

async fn whose(tenants: &Tenants, headers: &HeaderMap) -> Result<Arc<Prism>, Problem> {
    if let Some(bearer) = text(headers, header::AUTHORIZATION.as_str()) {
        let key = bearer.strip_prefix("Bearer ").unwrap_or_default().trim();
        return tenants.of_key(key).await;
    }
    let everybody = tenants.all();
    let with_cookie = || everybody.iter().filter(|p| sign_in::has_cookie(p, headers));
    let signed_in = with_cookie().find(|p| sign_in::signed_in(p, headers));
    let whose = signed_in.or_else(|| with_cookie().next());
    Ok(whose.unwrap_or(tenants.first()).clone())
}

pub async fn check(
    State(tenants): State<Tenants>,
    connection: Option<Extension<ConnectInfo<Connection>>>,
    request: Request,
    next: Next,
) -> Response {
    let in_use = connection.map(|Extension(ConnectInfo(Connection(c)))| c.request());
    let answer = match judge(tenants.first(), &request) {
        Ok(()) => next.run(request).await,
        Err(problem) => Refusal(problem).into_response(),
    };
    let mut answer = answer;
    let version = HeaderValue::from_static(crate::config::version());
    answer.headers_mut().insert(VERSION_HEADER, version);
    if let Some(in_use) = &in_use {
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            in_use.upgraded();
        } else if in_use.is_last() {
            let close = HeaderValue::from_static("close");
            answer.headers_mut().insert(header::CONNECTION, close);
        }
    }
    answer
}

fn judge(prism: &Prism, request: &Request) -> Result<(), Problem> {
    let headers = request.headers();
    let host = text(headers, header::HOST.as_str()).unwrap_or_default();
    if !host_allowed(host, &prism.allowed_hosts) && !prism.is_called(host) {
        let message = format!("this server is not {:?}", prism_core::text::clip(host, 80));
        return Err(Problem::new(
            Code::ForeignHost,
            message,
            "call it by a loopback name, or add the name to server.allowed_hosts in config.toml",
        ));
    }
    if let Some(origin) = headers.get(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        if !origin_allowed(origin, host, &prism.allowed_hosts) {
            return Err(Problem::new(
                Code::ForeignOrigin,
                format!(
                    "pages of {:?} may not call this server",
                    prism_core::text::clip(origin, 80)
                ),
                "open Prism's own page, or call it without a browser",
            ));
        }
    }
    let version = text(headers, VERSION_HEADER).unwrap_or_default();
    prism_core::launch::admit(version, crate::config::version())?;
    // A page can send a simple POST without asking; only JSON makes it ask first.
    if matches!(
        *request.method(),
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE
    ) {
        let kind = text(headers, header::CONTENT_TYPE.as_str()).unwrap_or_default();
        if !kind
            .split(';')
            .next()
            .is_some_and(|k| k.trim().eq_ignore_ascii_case("application/json"))
        {
            return Err(Problem::new(
                Code::WrongContentType,
                "a call's body is application/json",
                "send `Content-Type: application/json`",
            ));
        }
    }
    Ok(())
}
