//! The OpenAPI document, made from the same table and types that serve the calls.

use crate::verb::{Is, VERBS, Verb, Who};
use axum::body::Bytes;
use axum::http::header;
use axum::response::IntoResponse;
use prism_core::Code;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The same for everybody and for as long as the server runs, and dear to make: made once.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| build().to_string().into());

pub async fn document() -> impl IntoResponse {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (kind, Bytes::clone(&DOCUMENT))
}

pub fn build() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let paths: Map<String, Value> = VERBS
        .iter()
        .filter(|v| !v.is(Is::Local))
        .map(|verb| {
            (
                format!("/api/v1/{{pid}}/{}", verb.path),
                json!({ "post": operation(verb, &mut schemas) }),
            )
        })
        .collect();
    let mut components: Map<String, Value> = schemas.take_definitions(true).into_iter().collect();
    components.insert("Error".into(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Prism", "version": crate::config::version(), "description": "Signals, proof of delivery and memory for one operator and many coding agents.", "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
        "security": [{"key": []}],
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "prk_..."}}},
    })
}

fn operation(verb: &Verb, schemas: &mut SchemaGenerator) -> Value {
    let mut answer = (verb.answer)(schemas).to_value();
    // Answers may gain fields, and any may carry signals and warnings.
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("additionalProperties");
    }
    let about = match verb.who {
        Who::Operator => format!("{} Operator only.", verb.about),
        _ => verb.about.to_owned(),
    };
    let mut responses = Map::from_iter([(
        "200".to_owned(),
        json!({"description": "The verb's answer.", "content": {"application/json": {"schema": answer}}}),
    )]);
    let mut statuses: Vec<u16> = Code::ALL.iter().map(|c| c.status()).collect();
    statuses.sort_unstable();
    statuses.dedup();
    for status in statuses {
        let codes: Vec<_> = Code::ALL
            .iter()
            .filter(|c| c.status() == status)
            .map(|c| c.name())
            .collect();
        responses
            .insert(status.to_string(), json!({"description": codes.join(", "), "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}));
    }
    json!({
        "operationId": verb.name,
        "summary": about,
        "parameters": [
            {"name": "pid", "in": "path", "required": true, "schema": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}, "description": "The project."},
            {"name": "Prism-Session", "in": "header", "required": false, "schema": {"type": "string", "format": "uuid"}, "description": "The session the call comes from."},
        ],
        "requestBody": {"required": true, "content": {"application/json": {"schema": (verb.request)(schemas)}}},
        "responses": responses,
    })
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": {"error": {"type": "object", "required": ["code", "message", "hint"], "properties": {
            "code": {"type": "string", "enum": Code::ALL.iter().map(|c| c.name()).collect::<Vec<_>>()},
            "message": {"type": "string"},
            "hint": {"type": "string"},
        }}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_document_is_made_once_and_is_the_one_that_would_be_made() {
        let (one, two) = (answered().await, answered().await);
        assert_eq!(one.as_ptr(), two.as_ptr(), "nobody makes it anew");
        let said: Value = serde_json::from_slice(&one).unwrap();
        assert_eq!(said, build());
    }

    async fn answered() -> Bytes {
        let answer = document().await.into_response();
        let kind = &answer.headers()[header::CONTENT_TYPE];
        assert_eq!(kind, "application/json");
        axum::body::to_bytes(answer.into_body(), usize::MAX)
            .await
            .unwrap()
    }
}
