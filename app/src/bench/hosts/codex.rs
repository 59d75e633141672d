//! A thread of Codex in an app-server of its own, driven over the server's socket.

use super::{PATIENCE, Start, Turns};
use crate::clock;
use crate::ui::short;
use anyhow::{Context, Result, bail};
use futures_util::{SinkExt, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

/// How long the server may take to end by itself.
const GONE: Duration = Duration::from_secs(2);

pub struct Codex {
    process: Child,
    socket: PathBuf,
    asks: mpsc::UnboundedSender<Message>,
    answers: mpsc::UnboundedReceiver<Value>,
    asked: u64,
    thread: String,
    pub turns: Turns,
}

impl Codex {
    pub async fn start(start: &Start<'_>) -> Result<Self> {
        let home = start.dir.join(".codex");
        std::fs::create_dir_all(&home)?;
        std::fs::write(home.join("config.toml"), config(start))?;
        start.connect("codex").await?;
        // As `prism coder` does it: a server of this identity alone, which the shim is told of. A
        // socket's path has to be short.
        let socket = std::env::temp_dir().join(format!("prism-{}", short(clock::new_id())));
        let told = format!(
            "mcp_servers.prism.env.PRISM_CODEX_SOCKET=\"{}\"",
            socket.display()
        );
        let process = start
            .command(&std::env::current_exe()?)?
            // Nothing else would end it when this process is killed; asked politely, it waits for turns.
            .arg("coder-host")
            .arg(format!("--parent={}", std::process::id()))
            .arg(format!("--on-death={}", Signal::KILL.as_raw()))
            .arg("--")
            .arg(&start.host.program)
            .args(["app-server", "-c", &told, "--listen"])
            .arg(format!("unix://{}", socket.display()))
            .env("LOOPBACK_KEY", "dummy-key")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let from = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => break stream,
                Err(error) if from.elapsed() > PATIENCE => {
                    bail!("codex app-server did not start: {error}")
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        let (ws, _) = tokio_tungstenite::client_async("ws://localhost/", stream).await?;
        let (mut writer, mut reader) = ws.split();
        let (asks, mut to_send) = mpsc::unbounded_channel();
        let (answered, answers) = mpsc::unbounded_channel();
        let (ended, turns) = Turns::new();
        tokio::spawn(async move {
            while let Some(message) = to_send.recv().await {
                if writer.send(message).await.is_err() {
                    return;
                }
            }
        });
        tokio::spawn(async move {
            while let Some(Ok(message)) = reader.next().await {
                let Message::Text(text) = message else {
                    continue;
                };
                let said: Value = serde_json::from_str(&text).unwrap_or_default();
                match said["method"].as_str() {
                    Some("turn/completed") => ended.now(),
                    Some(_) => {}
                    None => drop(answered.send(said)),
                }
            }
        });
        let mut codex = Self {
            process,
            socket,
            asks,
            answers,
            asked: 0,
            thread: String::new(),
            turns,
        };
        codex
            .ask("initialize", json!({"clientInfo": {"name": "prism_bench", "title": "Prism", "version": crate::VERSION}, "capabilities": {"experimentalApi": true}}))
            .await?;
        codex.say(&json!({"method": "initialized"}))?;
        let thread = codex
            .ask("thread/start", json!({"cwd": start.dir, "approvalPolicy": "never", "sandbox": "danger-full-access"}))
            .await?;
        codex.thread = thread["thread"]["id"]
            .as_str()
            .context("no thread")?
            .to_owned();
        Ok(codex)
    }

    fn say(&self, message: &Value) -> Result<()> {
        self.asks
            .send(Message::Text(message.to_string().into()))
            .context("the app-server hung up")
    }

    async fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.asked += 1;
        self.say(&json!({"id": self.asked, "method": method, "params": params}))?;
        let answer = tokio::time::timeout(PATIENCE, self.answers.recv())
            .await
            .with_context(|| format!("{method} was not answered"))?
            .context("the app-server hung up")?;
        if answer["result"].is_null() {
            bail!("{method}: {}", answer["error"]);
        }
        Ok(answer["result"].clone())
    }

    pub async fn prompt(&mut self, text: &str) -> Result<()> {
        let input = json!([{"type": "text", "text": text, "text_elements": []}]);
        let params = json!({"threadId": self.thread, "input": input});
        self.ask("turn/start", params).await?;
        Ok(())
    }

    pub async fn close(mut self) {
        drop(self.asks);
        if let Some(pid) = self.process.id().and_then(|pid| Pid::from_raw(pid as i32)) {
            let _ = kill_process(pid, Signal::TERM);
        }
        // It waits for turns that it thinks are running; whoever is left goes with `kill_on_drop`.
        drop(tokio::time::timeout(GONE, self.process.wait()).await);
        drop(std::fs::remove_file(self.socket));
    }
}

fn config(start: &Start<'_>) -> String {
    format!(
        r#"model = "loopback"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[features]
daemon_auto_start = false

[model_providers.loopback]
name = "loopback"
base_url = "{}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false

[projects."{}"]
trust_level = "trusted"
"#,
        start.model,
        start.dir.display()
    )
}
