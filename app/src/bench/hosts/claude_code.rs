//! A session of Claude Code without a screen, driven over its standard streams.

use super::{PATIENCE, Start, Turns};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin};

/// The host asks about a key that it was not told of.
const KEY: &str = "dummy-key";

pub struct ClaudeCode {
    process: Child,
    stdin: ChildStdin,
    pub turns: Turns,
}

impl ClaudeCode {
    pub async fn start(start: &Start<'_>) -> Result<Self> {
        // What the first run would ask a human.
        let config = json!({"hasCompletedOnboarding": true,
            "customApiKeyResponses": {"approved": [KEY], "rejected": []},
            "projects": {start.dir.to_string_lossy(): {"hasTrustDialogAccepted": true}}});
        std::fs::write(start.dir.join(".claude.json"), config.to_string())?;
        start.connect("claude-code").await?;
        let mut process = start
            .command(&start.host.program)?
            .args(["-p", "--verbose", "--allowedTools", "mcp__prism"])
            .args(["--input-format", "stream-json"])
            .args(["--output-format", "stream-json"])
            .env("ANTHROPIC_BASE_URL", start.model)
            .env("ANTHROPIC_API_KEY", KEY)
            .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
            .env("DISABLE_TELEMETRY", "1")
            .env("DISABLE_AUTOUPDATER", "1")
            // Otherwise tools of MCP servers are not in a request before they were searched for.
            .env("ENABLE_TOOL_SEARCH", "false")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let stdin = process.stdin.take().context("no stdin")?;
        let stdout = process.stdout.take().context("no stdout")?;
        let (ended, turns) = Turns::new();
        let mut lines = BufReader::new(stdout).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let line: Value = serde_json::from_str(&line).unwrap_or_default();
                if line["type"] == "result" {
                    ended.now();
                }
            }
        });
        Ok(Self {
            process,
            stdin,
            turns,
        })
    }

    pub async fn prompt(&mut self, text: &str) -> Result<()> {
        let message = json!({"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}});
        let line = format!("{message}\n");
        Ok(self.stdin.write_all(line.as_bytes()).await?)
    }

    /// Its input ends, and so does the session.
    pub async fn close(mut self) {
        drop(self.stdin);
        drop(tokio::time::timeout(PATIENCE, self.process.wait()).await);
    }
}
