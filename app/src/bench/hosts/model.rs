//! A loopback model for the bench: it reads when a bell rings, and otherwise does what the state
//! of its host asks for.

use anyhow::{Context, Result};
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc};

/// What a model takes to answer while its turn goes on: no real one is quicker.
const ANSWER: Duration = Duration::from_millis(20);
/// More than any conversation of a bench.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Which of the two APIs a host speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Messages,
    Responses,
}

/// What the model does when no bell rang.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Ends its turn.
    Ends,
    /// Thinks until it is told to end its turn.
    Thinks,
    /// Goes on with tools that do not drain.
    Works,
}

/// One request, as far as the bench cares.
pub struct Asked {
    pub at: Instant,
    /// What stands behind the model's own last words.
    pub new: String,
    /// The inbox was read: its result is in this request.
    pub drained: bool,
}

pub struct Model {
    pub url: String,
    mind: Arc<Mind>,
    pub asked: mpsc::UnboundedReceiver<Asked>,
}

struct Mind {
    api: Api,
    sentence: String,
    mode: Mutex<Mode>,
    thought: Notify,
    asked: mpsc::UnboundedSender<Asked>,
}

enum Step {
    Say,
    Call(&'static str, Value),
}

impl Model {
    /// Listens on a loopback port; `sentence` is the bell it answers to.
    pub async fn start(api: Api, sentence: String) -> Result<Self> {
        let (sender, asked) = mpsc::unbounded_channel();
        let mind = Arc::new(Mind {
            api,
            sentence,
            mode: Mutex::new(Mode::Ends),
            thought: Notify::new(),
            asked: sender,
        });
        let routes = Router::new()
            .route("/v1/messages", post(answer))
            .route("/v1/responses", post(answer))
            .route(
                "/v1/messages/count_tokens",
                post(|| async { Json(json!({"input_tokens": 1})) }),
            )
            .route(
                "/v1/models",
                get(|| async { Json(json!({"data": [], "models": []})) }),
            )
            .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
            .with_state(Arc::clone(&mind));
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Ok(Self { url, mind, asked })
    }

    pub fn now(&self, mode: Mode) {
        *self
            .mind
            .mode
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// Ends a thought.
    pub fn go_on(&self) {
        self.mind.thought.notify_one();
    }

    /// The next request that meets a condition.
    pub async fn saw(
        &mut self,
        within: Duration,
        wanted: impl Fn(&Asked) -> bool,
    ) -> Option<Asked> {
        let looking = async {
            loop {
                match self.asked.recv().await {
                    Some(asked) if wanted(&asked) => return Some(asked),
                    Some(_) => {}
                    None => return None,
                }
            }
        };
        tokio::time::timeout(within, looking).await.ok().flatten()
    }
}

async fn answer(State(mind): State<Arc<Mind>>, body: Bytes) -> Response {
    match mind.answer(&body).await {
        Ok(events) => ([("content-type", "text/event-stream")], events).into_response(),
        Err(error) => (axum::http::StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

impl Mind {
    async fn answer(&self, body: &[u8]) -> Result<String> {
        let at = Instant::now();
        let body: Value = serde_json::from_slice(body)?;
        let tools = tools(&body);
        // Hosts also ask for titles and guesses, without tools.
        if tools.is_empty() {
            return self.events(&body, &Step::Say, &tools);
        }
        let (new, drained) = match self.api {
            Api::Messages => new_messages(&body),
            Api::Responses => new_items(&body),
        };
        let rang = new.contains(&self.sentence);
        drop(self.asked.send(Asked { at, new, drained }));
        let mode = *self.mode.lock().unwrap_or_else(PoisonError::into_inner);
        let step = match mode {
            _ if rang => Step::Call("prism_signals_pending", json!({})),
            Mode::Works => {
                tokio::time::sleep(ANSWER).await;
                Step::Call("prism_signals", json!({"action": "count"}))
            }
            Mode::Thinks if !drained => {
                self.thought.notified().await;
                Step::Say
            }
            Mode::Thinks | Mode::Ends => Step::Say,
        };
        self.events(&body, &step, &tools)
    }

    fn events(&self, body: &Value, step: &Step, tools: &[(String, Value)]) -> Result<String> {
        let called = match step {
            Step::Say => None,
            Step::Call(tool, arguments) => {
                let (_, how) = tools
                    .iter()
                    .find(|(name, _)| name.ends_with(tool))
                    .with_context(|| format!("the host does not offer {tool}"))?;
                Some((how, arguments))
            }
        };
        let events = match self.api {
            Api::Messages => messages_events(body, called),
            Api::Responses => responses_events(called),
        };
        Ok(events.iter().fold(String::new(), |mut text, event| {
            let kind = event["type"].as_str().unwrap_or_default();
            let _ = write!(text, "event: {kind}\ndata: {event}\n\n");
            text
        }))
    }
}

/// Each offered tool and how it is called; those of an MCP server may stand in a namespace.
fn tools(body: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    let name = |tool: &Value| tool["name"].as_str().unwrap_or_default().to_owned();
    for tool in body["tools"].as_array().into_iter().flatten() {
        if tool["type"] == "namespace" {
            for inner in tool["tools"].as_array().into_iter().flatten() {
                let how = json!({"name": name(inner), "namespace": name(tool)});
                found.push((name(inner), how));
            }
        } else {
            found.push((name(tool), json!({"name": name(tool)})));
        }
    }
    found
}

/// What stands behind the last item that the model said itself, and whether the inbox's content is
/// in it.
fn since_own_words(items: &[Value], own: impl Fn(&Value) -> bool) -> (String, bool) {
    let from = items.iter().rposition(&own).map_or(0, |last| last + 1);
    let new = items[from..]
        .iter()
        .fold(String::new(), |text, item| text + &texts(item) + "\n");
    let last_call = items[..from]
        .last()
        .map(Value::to_string)
        .unwrap_or_default();
    (new, last_call.contains("prism_signals_pending"))
}

/// The role `system` comes behind what the user or a tool said, so it is new too.
fn new_messages(body: &Value) -> (String, bool) {
    let messages = body["messages"].as_array().map_or(&[][..], Vec::as_slice);
    since_own_words(messages, |message| message["role"] == "assistant")
}

fn new_items(body: &Value) -> (String, bool) {
    let items = body["input"].as_array().map_or(&[][..], Vec::as_slice);
    since_own_words(items, |item| {
        item["role"] == "assistant" || item["type"] == "function_call"
    })
}

/// Every text in an item, whatever its form.
fn texts(item: &Value) -> String {
    match item {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(|part| texts(part) + "\n").collect(),
        Value::Object(_) => ["content", "output", "text"]
            .iter()
            .map(|field| texts(&item[*field]))
            .collect(),
        _ => String::new(),
    }
}

fn messages_events(body: &Value, called: Option<(&Value, &Value)>) -> Vec<Value> {
    let (stop, block, delta) = match called {
        Some((how, arguments)) => (
            "tool_use",
            json!({"type": "tool_use", "id": id("toolu"), "name": how["name"], "input": {}}),
            json!({"type": "input_json_delta", "partial_json": arguments.to_string()}),
        ),
        None => (
            "end_turn",
            json!({"type": "text", "text": ""}),
            json!({"type": "text_delta", "text": "Done."}),
        ),
    };
    let usage = json!({"input_tokens": 1, "output_tokens": 1});
    vec![
        json!({"type": "message_start", "message": {
            "id": id("msg"), "type": "message", "role": "assistant", "model": body["model"], "content": [],
            "stop_reason": null, "stop_sequence": null, "usage": usage}}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": null}, "usage": usage}),
        json!({"type": "message_stop"}),
    ]
}

fn responses_events(called: Option<(&Value, &Value)>) -> Vec<Value> {
    let item = match called {
        Some((how, arguments)) => {
            let mut item = json!({"type": "function_call", "id": id("fc"), "call_id": id("call"),
                "name": how["name"], "arguments": arguments.to_string()});
            if !how["namespace"].is_null() {
                item["namespace"] = how["namespace"].clone();
            }
            item
        }
        None => json!({"type": "message", "id": id("msg"), "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}]}),
    };
    let response = id("resp");
    let usage = json!({"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2});
    vec![
        json!({"type": "response.created", "response": {"id": response}}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item}),
        json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
        json!({"type": "response.completed", "response": {"id": response, "usage": usage}}),
    ]
}

fn id(prefix: &str) -> String {
    format!("{prefix}_{}", crate::clock::new_id().simple())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_new_stands_behind_the_models_own_last_words() {
        let body = json!({"messages": [
            {"role": "user", "content": "old"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "mcp__prism__prism_signals_pending", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "result"}]}]},
            {"role": "system", "content": "a note of the host"},
        ]});
        let (new, drained) = new_messages(&body);
        assert!(drained && new.contains("result") && new.contains("a note of the host"));
        assert!(!new.contains("old"));

        let body = json!({"input": [
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a bell"}]},
        ]});
        let (new, drained) = new_items(&body);
        assert!(!drained && new.contains("a bell") && !new.contains("Done."));
    }

    #[test]
    fn a_tool_in_a_namespace_is_called_by_both_names() {
        let body = json!({"tools": [{"type": "namespace", "name": "mcp__prism", "tools": [{"name": "prism_signals"}]}]});
        assert_eq!(
            tools(&body),
            vec![(
                "prism_signals".to_owned(),
                json!({"name": "prism_signals", "namespace": "mcp__prism"})
            )]
        );
    }
}
