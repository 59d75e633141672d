//! The tools a host lists: every verb for agents, with schemas as small as they can be.

use crate::verb::{Is, VERBS, Verb};
use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::generate::SchemaSettings;
use serde_json::Value;
use std::sync::Arc;

pub fn tools() -> Vec<Tool> {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schemas = settings.into_generator();
    let tool = |verb: &Verb| {
        let schema = (verb.request)(&mut schemas).to_value();
        let mut tool = Tool::new(verb.name, verb.about, Arc::new(minified(schema)));
        if verb.is(Is::ReadOnly) {
            tool.annotations = Some(ToolAnnotations::new().read_only(true));
        }
        tool
    };
    let listed = VERBS.iter().filter(|v| v.is(Is::Tool));
    listed.map(tool).collect()
}

/// Leaves only what a model needs to fill in the arguments.
fn minified(schema: Value) -> JsonObject {
    fn shrink(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for noise in [
                    "$schema",
                    "title",
                    "default",
                    "format",
                    "minimum",
                    "additionalProperties",
                    "$defs",
                ] {
                    // A property may well be called `title`; only keywords go.
                    if !map
                        .get(noise)
                        .is_some_and(|v| v.is_object() && v.get("type").is_some())
                    {
                        map.remove(noise);
                    }
                }
                if let Some(Value::Array(types)) = map.get("type") {
                    let named: Vec<Value> =
                        types.iter().filter(|t| *t != "null").cloned().collect();
                    if let [only] = named.as_slice() {
                        map.insert("type".into(), only.clone());
                    }
                }
                // What only the operator may say is no argument of a tool.
                map.retain(|_, v| v.get("x-operator").is_none());
                map.values_mut().for_each(shrink);
            }
            Value::Array(items) => items.iter_mut().for_each(shrink),
            _ => {}
        }
    }
    let mut schema = schema;
    shrink(&mut schema);
    match schema {
        Value::Object(mut map) => {
            map.remove("description");
            map.entry("type").or_insert_with(|| "object".into());
            map
        }
        _ => JsonObject::new(),
    }
}
