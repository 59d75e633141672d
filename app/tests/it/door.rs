//! The door: host, origin, content type, size, key, rate.

use crate::harness::{PID, Server, task};
use prism_core::Code;
use serde_json::{Value, json};

pub fn http() -> reqwest::Client {
    drop(rustls::crypto::ring::default_provider().install_default());
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn post(
    url: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: impl Into<reqwest::Body>,
) -> (u16, Value) {
    let mut request = http().post(format!("{url}{path}")).body(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = request.send().await.unwrap();
    (
        response.status().as_u16(),
        response.json().await.unwrap_or_default(),
    )
}

#[tokio::test]
async fn what_does_not_belong_here_is_turned_away_with_a_reason() {
    let server = Server::start();
    server.identity("Texi").await;
    let (url, key) = (server.url(), format!("Bearer {}", server.operator_key()));
    let (auth, json_type) = (
        ("authorization", key.as_str()),
        ("content-type", "application/json"),
    );
    let path = format!("/api/v1/{PID}/signal");
    let good = task("Texi", "x").to_string();
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(300 * 1024));
    let cases: Vec<(&str, Vec<(&str, &str)>, String, u16, &str)> = vec![
        ("no key", vec![json_type], good.clone(), 401, "missing_key"),
        (
            "a foreign key",
            vec![
                json_type,
                ("authorization", "Bearer prk_000000000000000000000000"),
            ],
            good.clone(),
            401,
            "invalid_key",
        ),
        (
            "not a bearer",
            vec![json_type, ("authorization", "Basic eDp5")],
            good.clone(),
            401,
            "invalid_key",
        ),
        (
            "another origin",
            vec![json_type, auth, ("origin", "http://evil.example")],
            good.clone(),
            403,
            "foreign_origin",
        ),
        (
            "a null origin",
            vec![json_type, auth, ("origin", "null")],
            good.clone(),
            403,
            "foreign_origin",
        ),
        (
            "another host",
            vec![json_type, auth, ("host", "evil.example")],
            good.clone(),
            403,
            "foreign_host",
        ),
        (
            "a form's type",
            vec![auth, ("content-type", "text/plain")],
            good.clone(),
            415,
            "wrong_content_type",
        ),
        (
            "not JSON",
            vec![json_type, auth],
            "{\"to\":".into(),
            400,
            "invalid_request",
        ),
        (
            "not an object",
            vec![json_type, auth],
            "[1]".into(),
            400,
            "invalid_request",
        ),
        ("too large", vec![json_type, auth], long, 413, "too_large"),
        (
            "no uuid as session",
            vec![json_type, auth, ("prism-session", "x")],
            good.clone(),
            400,
            "invalid_request",
        ),
    ];
    for (name, headers, body, status, code) in cases {
        let (got, answer) = post(&url, &path, &headers, body).await;
        assert_eq!(
            (got, answer["error"]["code"].as_str()),
            (status, Some(code)),
            "{name}: {answer}"
        );
        assert!(
            !answer["error"]["hint"].as_str().unwrap().is_empty(),
            "{name}"
        );
    }
    let (status, answer) = post(
        &url,
        "/api/v1/NOPE/signal",
        &[json_type, auth],
        good.clone(),
    )
    .await;
    assert_eq!(
        (status, answer["error"]["code"].as_str()),
        (404, Some("unknown_project"))
    );
    assert!(answer["error"]["hint"].as_str().unwrap().contains(PID));
    let (status, answer) = post(
        &url,
        &format!("/api/v1/{PID}/signall"),
        &[json_type, auth],
        good.clone(),
    )
    .await;
    assert_eq!(status, 404);
    assert!(
        answer["error"]["hint"].as_str().unwrap().contains("signal"),
        "{answer}"
    );
    let (status, answer) = post(&url, &path, &[json_type, auth, ("origin", &url)], good).await;
    assert_eq!(status, 200, "our own page may call: {answer}");
}

#[tokio::test]
async fn a_revoked_key_opens_nothing_and_the_last_operator_key_stays() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    texi.call(PID, "status", json!({})).await.unwrap();
    let keys = server
        .operator()
        .call(PID, "key_list", json!({}))
        .await
        .unwrap();
    let of = |who: &str| {
        keys["keys"]
            .as_array()
            .unwrap()
            .iter()
            .find(|k| k["identity"] == who)
            .unwrap()["key_id"]
            .clone()
    };
    server
        .operator()
        .call(PID, "key_revoke", json!({"key_id": of("Texi")}))
        .await
        .unwrap();
    let refused = texi.call(PID, "status", json!({})).await.unwrap_err();
    assert!(
        refused.is(Code::InvalidKey) && refused.message.contains("revoked"),
        "{refused:?}"
    );
    assert!(
        server
            .operator()
            .call(PID, "key_revoke", json!({"key_id": of("frank")}))
            .await
            .unwrap_err()
            .is(Code::Conflict)
    );
    assert!(!keys.to_string().contains("key_sha256"));
}

#[tokio::test]
async fn an_agents_key_does_no_operators_work() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    for (verb, body) in [
        ("key_mint", json!({"identity": "Eve"})),
        ("key_list", json!({})),
        ("key_revoke", json!({"key_id": "00000000"})),
        ("persona_add", json!({"identity": "Eve"})),
    ] {
        assert!(
            texi.call(PID, verb, body)
                .await
                .unwrap_err()
                .is(Code::OperatorOnly),
            "{verb}"
        );
    }
    assert!(
        texi.creating_project()
            .call("PID-NEW", "status", json!({}))
            .await
            .unwrap_err()
            .is(Code::UnknownProject)
    );
}

#[tokio::test]
async fn going_over_the_rate_gets_a_clear_429() {
    let server = Server::start_with("[limits]\nrequests_per_second = 1\nrequests_burst = 3\n");
    let client = server.operator();
    let mut refused = None;
    for _ in 0..10 {
        if let Err(problem) = client.call(PID, "ping", json!({})).await {
            refused = Some(problem);
        }
    }
    let refused = refused.expect("ten requests in a burst of three");
    assert!(
        refused.is(Code::TooManyRequests) && refused.facts["retry_after_ms"].as_u64().is_some(),
        "{refused:?}"
    );
}

#[tokio::test]
async fn the_openapi_document_lists_every_verb_of_the_table() {
    let server = Server::start();
    let document: Value = http()
        .get(format!("{}/api/v1/openapi.json", server.url()))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let served = prism::verb::VERBS.iter();
    for verb in served.filter(|v| !v.is(prism::verb::Is::Local)) {
        let operation = &document["paths"][format!("/api/v1/{{pid}}/{}", verb.path)]["post"];
        assert_eq!(operation["operationId"], verb.name);
        assert!(operation["requestBody"]["content"]["application/json"]["schema"].is_object());
    }
    for (path, expected) in [
        ("/healthz", "ok"),
        ("/readyz", "ready"),
        ("/metrics", "prism_requests_total"),
    ] {
        let text = http()
            .get(format!("{}{path}", server.url()))
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        assert!(text.contains(expected), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_text_that_not_every_engine_can_keep_is_refused_with_its_place() {
    let server = Server::start();
    server.identity("Texi").await;
    let operator = server.operator();
    let mut keyed = task("Texi", "x");
    keyed["idempotency_key"] = "a\0".into();
    for (verb, body, field) in [
        ("note", json!({"text": "a\0b"}), "`text`"),
        ("recall", json!({"query": "\0"}), "`query`"),
        ("signal", task("Texi", "a\0b"), "`payload.summary`"),
        ("signal", keyed, "`idempotency_key`"),
    ] {
        let refused = operator.call(PID, verb, body).await.unwrap_err();
        assert!(refused.is(Code::InvalidRequest), "{verb}: {refused}");
        assert!(refused.message.contains(field), "{verb}: {refused}");
    }
    // To speak of it is another matter.
    let spoken = json!({"text": "it was \\u0000 that broke it"});
    operator.call(PID, "note", spoken).await.unwrap();
}
