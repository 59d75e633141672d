//! A short conversation with a Codex app-server: WebSocket over its Unix socket, JSON-RPC in text
//! frames.

use futures_util::{SinkExt, StreamExt};
use prism_core::limits::FRAME_BYTES_MAX;
use serde_json::{Value, json};
use std::path::Path;
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Bytes of one answer: a list of threads, or one thread without its turns.
const ANSWER_BYTES_MAX: usize = 16 * FRAME_BYTES_MAX;

pub struct AppServer {
    ws: WebSocketStream<UnixStream>,
    asked: u64,
}

/// Why there is no answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Nobody listens there.
    NotThere(String),
    /// It said no, and why.
    Refused(String),
    /// The conversation broke off.
    Broken(String),
}

impl NoAnswer {
    pub fn reason(self) -> String {
        match self {
            Self::NotThere(why) | Self::Refused(why) | Self::Broken(why) => why,
        }
    }
}

fn broken(error: impl std::fmt::Display) -> NoAnswer {
    NoAnswer::Broken(format!("its app-server: {error}"))
}

impl AppServer {
    /// Opens a conversation and introduces us.
    pub async fn open(socket: &Path) -> Result<Self, NoAnswer> {
        let stream = UnixStream::connect(socket)
            .await
            .map_err(|e| NoAnswer::NotThere(format!("its control socket: {e}")))?;
        let limits = WebSocketConfig::default()
            .read_buffer_size(4096)
            .write_buffer_size(0)
            .max_message_size(Some(ANSWER_BYTES_MAX))
            .max_frame_size(Some(ANSWER_BYTES_MAX));
        let opened =
            tokio_tungstenite::client_async_with_config("ws://localhost/", stream, Some(limits));
        let (ws, _) = opened.await.map_err(broken)?;
        let mut server = Self { ws, asked: 0 };
        let client = json!({"name": "prism", "title": "Prism", "version": crate::VERSION});
        let hello = json!({"clientInfo": client, "capabilities": {"experimentalApi": true}});
        server.ask("initialize", hello).await?;
        server.say(json!({"method": "initialized"})).await?;
        Ok(server)
    }

    /// Asks, and waits for the answer to this very question; whoever calls sets the time.
    pub async fn ask(&mut self, method: &str, params: Value) -> Result<Value, NoAnswer> {
        self.asked += 1;
        let id = self.asked;
        self.say(json!({"id": id, "method": method, "params": params}))
            .await?;
        while let Some(message) = self.ws.next().await {
            let Message::Text(text) = message.map_err(broken)? else {
                continue;
            };
            let mut answer: Value = serde_json::from_str(&text).map_err(broken)?;
            // What it tells or asks besides is for whoever shows the thread.
            if answer["id"] != id || answer.get("method").is_some() {
                continue;
            }
            if let Some(error) = answer.get("error") {
                let message = error["message"].as_str().unwrap_or("it gave no reason");
                return Err(NoAnswer::Refused(message.to_owned()));
            }
            return Ok(answer["result"].take());
        }
        Err(broken("it closed the socket"))
    }

    async fn say(&mut self, message: Value) -> Result<(), NoAnswer> {
        let message = Message::Text(message.to_string().into());
        self.ws.send(message).await.map_err(broken)
    }
}
