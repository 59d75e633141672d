//! The page's files, carried in the binary: `index.html` for whoever is signed in, the rest for
//! everybody, since it holds no data.

use super::door::Whose;
use super::sign_in;
use crate::config;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use prism_core::signal::sha256_hex;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

include!(concat!(env!("OUT_DIR"), "/page_files.rs"));

/// The names of the page's parts, each of which is the same file.
pub const PARTS: &[&str] = &[
    "now", "signals", "story", "memory", "operator", "delivery", "gate", "settings",
];
/// Nothing from elsewhere, nothing inline, in nobody's frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'self'; form-action 'self'; \
    frame-ancestors 'none'";
/// What a `dashboard/dist` that nobody has built looks like.
const UNBUILT: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Prism</title></head>\n\
    <body><main><h1>The page is not part of this build</h1>\
    <p>Prism works: the CLI is <code>prism --help</code>, the API is <code>/api/v1/openapi.json</code>.</p>\
    <p>To build the page: <code>npm ci &amp;&amp; npm run build</code> in <code>dashboard/</code>, then build prism again. \
    <code>make run</code> does both.</p></main></body></html>\n";

/// The base that the page is written with, and that becomes the path of the public address.
const BASE: &str = "<base href=\"/\">";

static TAGS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let tag = |bytes: &[u8]| format!("\"{}\"", &sha256_hex(bytes)[..16]);
    FILES
        .iter()
        .map(|(name, bytes)| (*name, tag(bytes)))
        .collect()
});

/// One of the page's files; from a folder where whoever works on the page names one.
fn file(name: &str) -> Option<Cow<'static, [u8]>> {
    if let Some(folder) = config::page_dir() {
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        return name
            .split('/')
            .all(plain)
            .then(|| std::fs::read(folder.join(name)).ok())
            .flatten()
            .map(Cow::Owned);
    }
    FILES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, bytes)| Cow::Borrowed(*bytes))
}

/// The page itself, with its parts.
pub async fn index(Whose(prism): Whose, headers: HeaderMap) -> Response {
    if !sign_in::signed_in(&prism, &headers) {
        return sign_in::ask_in();
    }
    let mut answer = match file("index.html") {
        Some(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let base = format!("<base href=\"{}\">", prism.browsers.path());
            tagged(&headers, text.replacen(BASE, &base, 1).into_bytes())
        }
        None => (StatusCode::OK, UNBUILT).into_response(),
    };
    let out = answer.headers_mut();
    out.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/html; charset=utf-8"),
    );
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    guard(out);
    answer
}

fn tagged(headers: &HeaderMap, body: Vec<u8>) -> Response {
    let tag = format!("\"{}\"", &sha256_hex(&body)[..16]);
    let mut answer = match known(headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => Body::from(body).into_response(),
    };
    if let Ok(tag) = tag.parse() {
        answer.headers_mut().insert(header::ETAG, tag);
    }
    answer
}

fn known(headers: &HeaderMap, tag: &str) -> bool {
    let has = super::text(headers, header::IF_NONE_MATCH.as_str()).unwrap_or_default();
    has.split(',').any(|one| one.trim() == tag)
}

/// `GET /assets/...`, and the few files beside `index.html`.
pub async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Response {
    serve(&format!("assets/{name}"), &headers)
}

/// A file beside `index.html`, such as its icon.
pub async fn beside(
    axum::extract::OriginalUri(uri): axum::extract::OriginalUri,
    headers: HeaderMap,
) -> Response {
    let name = uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    serve(&name, &headers)
}

fn serve(name: &str, headers: &HeaderMap) -> Response {
    let Some(plain) = file(name) else {
        return super::Refusal(prism_core::Problem::new(
            prism_core::Code::NotFound,
            format!("there is no file {}", prism_core::text::clip(name, 80)),
            "load the page again: it may be older than the server",
        ))
        .into_response();
    };
    let accepts = super::text(headers, header::ACCEPT_ENCODING.as_str()).unwrap_or_default();
    let packed = accepts
        .contains("gzip")
        .then(|| file(&format!("{name}.gz")))
        .flatten();
    let tag = match TAGS.get(name) {
        Some(tag) if config::page_dir().is_none() => tag.clone(),
        _ => format!("\"{}\"", &sha256_hex(&plain)[..16]),
    };
    let is_packed = packed.is_some();
    let body = packed.unwrap_or(plain);
    let mut answer = match known(headers, &tag) {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => match body {
            Cow::Borrowed(bytes) => Body::from(bytes).into_response(),
            Cow::Owned(bytes) => Body::from(bytes).into_response(),
        },
    };
    let out = answer.headers_mut();
    if is_packed {
        out.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    out.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    out.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind(name)));
    // Names under `assets/` carry a hash of what is in them.
    let keep = match name.starts_with("assets/") {
        true => "public, max-age=31536000, immutable",
        false => "no-cache",
    };
    out.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    if let Ok(tag) = tag.parse() {
        out.insert(header::ETAG, tag);
    }
    guard(out);
    answer
}

fn kind(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "webmanifest" | "json" => "application/json",
        _ => "application/octet-stream",
    }
}

/// What every file of the page says to a browser.
pub fn guard(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
