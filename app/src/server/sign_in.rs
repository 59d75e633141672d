//! How a browser comes in: a link for one use, then a cookie that stands for a key of its own.

use super::door::Whose;
use super::watch::origin_of;
use super::{Refusal, text};
use crate::prism::Prism;
use crate::store::KeyRow;
use crate::tenants::Tenants;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use prism_core::access::from_own_page;
use prism_core::limits::{BROWSER_DAYS, BROWSER_NAME_CHARS_MAX, COOKIES_TRIED_MAX};
use prism_core::{Code, Problem};

/// The key a request comes with: in a header, or in the page's cookie, which counts only in
/// requests of the page itself.
pub fn who(prism: &Prism, headers: &HeaderMap) -> Result<KeyRow, Problem> {
    let bearer = text(headers, header::AUTHORIZATION.as_str());
    let mut cookies = cookies(prism, headers).peekable();
    if bearer.is_some() || cookies.peek().is_none() {
        return prism.authenticate(bearer);
    }
    let host = text(headers, header::HOST.as_str()).unwrap_or_default();
    let (origin, site) = origin_of(headers);
    if !from_own_page(origin, site, host, prism.browsers.public()) {
        return Err(Problem::new(
            Code::ForeignOrigin,
            "the page's session counts only on the page itself",
            "open the page with `prism dashboard`, or send a key in the Authorization header",
        ));
    }
    prism.authenticate_browser(cookies)
}

/// Whether a browser is signed in, for reading the page itself.
pub fn signed_in(prism: &Prism, headers: &HeaderMap) -> bool {
    cookies(prism, headers).any(|secret| prism.browser(secret).is_ok())
}

pub fn has_cookie(prism: &Prism, headers: &HeaderMap) -> bool {
    cookies(prism, headers).next().is_some()
}

/// Every cookie of the page's name: another server of this host, or a longer path, may have set one
/// that a browser sends first.
fn cookies<'a>(prism: &'a Prism, headers: &'a HeaderMap) -> impl Iterator<Item = &'a str> {
    let wanted = prism.browsers.cookie();
    headers
        .get_all(header::COOKIE)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .filter(move |(name, _)| *name == wanted)
        .map(|(_, value)| value)
        .take(COOKIES_TRIED_MAX)
}

/// `GET /sign-in/{token}`: once, and soon; then the address is the page's own.
pub async fn enter(
    State(tenants): State<Tenants>,
    token: Result<Path<String>, PathRejection>,
    method: Method,
    headers: HeaderMap,
) -> Response {
    // Whoever only looks where a link leads does not use it up.
    if method == Method::HEAD {
        return StatusCode::OK.into_response();
    }
    // What is no text is no link of ours.
    let token = token.map(|Path(token)| token).unwrap_or_default();
    let prism = &match tenants.of_link(&token).await {
        Ok(prism) => prism,
        Err(problem) => return Refusal(problem).into_response(),
    };
    let taking = prism.clone();
    let taken = prism.to_its_end(async move { taking.take_link(&token).await });
    let taken = match taken.await {
        Ok(taken) => taken,
        Err(problem) => return Refusal(problem).into_response(),
    };
    if !taken {
        return said(
            StatusCode::UNAUTHORIZED,
            "This link does not open the page any more",
            "A link is good for 30 seconds and for one use.",
        );
    }
    let agent = text(&headers, header::USER_AGENT.as_str()).unwrap_or("a browser");
    let name = prism_core::text::clip(&prism_core::text::one_line(agent), BROWSER_NAME_CHARS_MAX);
    let knowing = prism.clone();
    let known = prism.to_its_end(async move { knowing.know_browser(name).await });
    let secret = match known.await {
        Ok(secret) => secret,
        Err(problem) => return Refusal(problem).into_response(),
    };
    let age = BROWSER_DAYS * 24 * 3600;
    let home = prism.browsers.path().to_owned();
    let mut answer = answered(prism, &home, &secret, age);
    let everybody = tenants.all();
    // A browser is signed in to one tenant at a time: the page has no other way to say which one it means.
    let others = everybody.iter().filter(|p| p.tenant != prism.tenant);
    for other in others.filter(|p| has_cookie(p, &headers)) {
        let ended = set_cookie(other, "", 0);
        answer.headers_mut().append(header::SET_COOKIE, ended);
    }
    answer
}

/// `POST /sign-out`: the session and its key end.
pub async fn leave(Whose(prism): Whose, headers: HeaderMap) -> Response {
    let key = match who(&prism, &headers) {
        Ok(key) => key,
        Err(problem) => return Refusal(problem).into_response(),
    };
    if key.browser.is_some() {
        let leaving = prism.clone();
        let shut = async move { crate::verb::keys::shut(&leaving, key.id).await };
        if let Err(problem) = prism.to_its_end(shut).await {
            return Refusal(problem).into_response();
        }
    }
    let cookie = set_cookie(&prism, "", 0);
    (
        [(header::SET_COOKIE, cookie)],
        axum::Json(serde_json::json!({"ok": true})),
    )
        .into_response()
}

fn answered(prism: &Prism, to: &str, secret: &str, age_s: i64) -> Response {
    let location = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    let headers = [
        (header::LOCATION, location),
        (header::SET_COOKIE, set_cookie(prism, secret, age_s)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (
            header::REFERRER_POLICY,
            HeaderValue::from_static("no-referrer"),
        ),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

fn set_cookie(prism: &Prism, secret: &str, age_s: i64) -> HeaderValue {
    let browsers = &prism.browsers;
    let secure = if browsers.secure() { "; Secure" } else { "" };
    let text = format!(
        "{}={secret}; Path={}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}",
        browsers.cookie(),
        browsers.path(),
    );
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// What whoever is not signed in reads.
pub fn ask_in() -> Response {
    said(
        StatusCode::UNAUTHORIZED,
        "You are not signed in",
        "This is the operator's page of Prism.",
    )
}

fn said(status: StatusCode, title: &str, why: &str) -> Response {
    let body = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Prism</title></head>\n\
         <body><main><h1>{title}</h1><p>{why}</p>\n\
         <p>Run <code>prism dashboard</code> on the machine that runs Prism: it opens this page, signed in. \
         <code>prism dashboard --print</code> prints the link instead, for another browser or an SSH tunnel.</p>\
         </main></body></html>\n"
    );
    let headers = [(header::CACHE_CONTROL, "no-store")];
    let mut answer = (status, headers, Html(body)).into_response();
    super::assets::guard(answer.headers_mut());
    answer
}
