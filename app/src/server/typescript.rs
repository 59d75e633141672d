//! The types of the wire in TypeScript, made from the same table and types that serve the calls.

use crate::verb::{Is, VERBS};
use prism_core::Code;
use prism_core::api::page::{EVERYWHERE, live::WatchFrame};
use schemars::generate::SchemaSettings;
use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What a name gains that means one thing to ask with and another in an answer.
const ASKED: &str = "Asked";

/// The whole of `dashboard/src/wire.ts`.
pub fn build() -> String {
    let mut asks = generator(SchemaSettings::draft2020_12().for_deserialize());
    let mut answers = generator(SchemaSettings::draft2020_12().for_serialize());
    let verbs = VERBS.iter().filter(|v| !v.is(Is::Local));
    let calls: Vec<_> = verbs
        .map(|v| (v, (v.named)(&mut asks, &mut answers)))
        .collect();
    answers.subschema_for::<WatchFrame>();
    let (asks, answers) = (definitions(asks), definitions(answers));
    let twofold = twofold(&asks, &answers);
    let asked = |name: &str| match twofold.contains(name) {
        true => format!("{name}{ASKED}"),
        false => name.to_owned(),
    };
    let mut types: BTreeMap<String, String> = BTreeMap::new();
    for (name, schema) in &answers {
        types.insert(name.clone(), declaration(name, schema, &str::to_owned));
    }
    for (name, schema) in &asks {
        let name = asked(name);
        types.insert(name.clone(), declaration(&name, schema, &asked));
    }
    let mut out = String::from(
        "// Made by `prism wire-types > dashboard/src/wire.ts` from the server's own types. Do not edit.\n\n",
    );
    let _ = writeln!(
        out,
        "/** The project's place in a path that means every project. */\nexport const EVERYWHERE = {EVERYWHERE:?};\n"
    );
    let codes: Vec<_> = Code::ALL
        .iter()
        .map(|c| format!("{:?}", c.name()))
        .collect();
    let _ = writeln!(out, "export type Code = {};\n", codes.join(" | "));
    out.push_str("/** What a refused call answers. */\nexport interface Refusal {\n  error: { code: Code; message: string; hint: string; [more: string]: unknown };\n}\n\n");
    for text in types.values() {
        out.push_str(text);
        out.push('\n');
    }
    out.push_str("/** Every call: `POST api/v1/{pid}/<name>`. */\nexport interface Calls {\n");
    for (verb, (ask, answer)) in calls {
        let _ = writeln!(
            out,
            "  /** {} */\n  {:?}: {{ ask: {}; answer: {} }};",
            verb.about,
            verb.path,
            written(ask.as_value(), &asked),
            written(answer.as_value(), &str::to_owned),
        );
    }
    out.push_str("}\n\n/** The calls that may be asked about every project at once. */\nexport type WideCall =\n");
    for verb in VERBS.iter().filter(|v| v.is(Is::Wide)) {
        let _ = writeln!(out, "  | {:?}", verb.path);
    }
    out.truncate(out.trim_end().len());
    out.push_str(";\n");
    out
}

fn generator(settings: SchemaSettings) -> SchemaGenerator {
    settings.into_generator()
}

fn definitions(mut generator: SchemaGenerator) -> BTreeMap<String, Schema> {
    let all = generator.take_definitions(true).into_iter();
    all.filter_map(|(name, value)| Some((name, Schema::try_from(value).ok()?)))
        .collect()
}

/// The names that an ask and an answer write differently, themselves or by what they are made of.
fn twofold(
    asks: &BTreeMap<String, Schema>,
    answers: &BTreeMap<String, Schema>,
) -> BTreeSet<String> {
    let shown = |name: &str, schema: &Schema| declaration(name, schema, &str::to_owned);
    let mut twofold: BTreeSet<String> = asks
        .iter()
        .filter(|(name, ask)| {
            answers
                .get(*name)
                .is_some_and(|answer| shown(name, ask) != shown(name, answer))
        })
        .map(|(name, _)| name.clone())
        .collect();
    loop {
        let more: Vec<String> = asks
            .iter()
            .filter(|(name, _)| answers.contains_key(*name) && !twofold.contains(*name))
            .filter(|(_, ask)| {
                let text = ask.as_value().to_string();
                twofold.iter().any(|t| text.contains(&format!("/{t}\"")))
            })
            .map(|(name, _)| name.clone())
            .collect();
        if more.is_empty() {
            return twofold;
        }
        twofold.extend(more);
    }
}

type Name<'a> = &'a dyn Fn(&str) -> String;

fn declaration(name: &str, schema: &Schema, named: Name<'_>) -> String {
    let value = schema.as_value();
    let mut out = comment(value, "");
    match value.get("properties").and_then(Value::as_object) {
        Some(properties) if value.get("oneOf").is_none() => {
            let _ = writeln!(
                out,
                "export interface {name} {}",
                object(value, properties, "", named)
            );
        }
        _ => {
            let _ = writeln!(out, "export type {name} = {};", written(value, named));
        }
    }
    out
}

fn comment(value: &Value, indent: &str) -> String {
    match value.get("description").and_then(Value::as_str) {
        Some(text) => format!(
            "{indent}/** {} */\n",
            text.split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
                .replace("*/", "*\\/")
        ),
        None => String::new(),
    }
}

fn object(
    schema: &Value,
    properties: &Map<String, Value>,
    indent: &str,
    named: Name<'_>,
) -> String {
    let required: BTreeSet<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let inner = format!("{indent}  ");
    let mut out = String::from("{\n");
    for (name, property) in properties {
        out.push_str(&comment(property, &inner));
        let mark = if required.contains(name.as_str()) {
            ""
        } else {
            "?"
        };
        let _ = writeln!(out, "{inner}{name}{mark}: {};", written(property, named));
    }
    out.push_str(indent);
    out.push('}');
    out
}

/// A schema as a type expression.
fn written(schema: &Value, named: Name<'_>) -> String {
    let Some(schema_map) = schema.as_object() else {
        return "unknown".into();
    };
    if let Some(name) = schema_map.get("$ref").and_then(Value::as_str) {
        return named(name.rsplit('/').next().unwrap_or_default());
    }
    if let Some(value) = schema_map.get("const") {
        return value.to_string();
    }
    if let Some(values) = schema_map.get("enum").and_then(Value::as_array) {
        return union(values.iter().map(Value::to_string));
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(parts) = schema_map.get(key).and_then(Value::as_array) {
            return union(parts.iter().map(|part| written(part, named)));
        }
    }
    match schema_map.get("type") {
        Some(Value::Array(kinds)) => union(kinds.iter().filter_map(Value::as_str).map(|kind| {
            let mut one = schema_map.clone();
            one.insert("type".into(), kind.into());
            written(&Value::Object(one), named)
        })),
        Some(Value::String(kind)) => match kind.as_str() {
            "string" => "string".into(),
            "integer" | "number" => "number".into(),
            "boolean" => "boolean".into(),
            "null" => "null".into(),
            "array" => {
                let item = schema_map
                    .get("items")
                    .map_or("unknown".into(), |i| written(i, named));
                match item.contains(['|', '{']) {
                    true => format!("({item})[]"),
                    false => format!("{item}[]"),
                }
            }
            _ => structure(schema, schema_map, named),
        },
        _ => "unknown".into(),
    }
}

fn structure(schema: &Value, map: &Map<String, Value>, named: Name<'_>) -> String {
    if let Some(properties) = map.get("properties").and_then(Value::as_object) {
        return object(schema, properties, "", named);
    }
    match map.get("additionalProperties") {
        Some(Value::Bool(false)) => "Record<string, never>".into(),
        Some(values) => format!("Record<string, {}>", written(values, named)),
        None => "Record<string, unknown>".into(),
    }
}

fn union(parts: impl Iterator<Item = String>) -> String {
    let mut seen = BTreeSet::new();
    let parts: Vec<String> = parts.filter(|p| seen.insert(p.clone())).collect();
    parts.join(" | ")
}
