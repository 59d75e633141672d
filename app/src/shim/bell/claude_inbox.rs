//! Claude Code's inbox: one line into the socket of the session that started this shim.

use super::HANDOVER;
use prism_core::bell::{Handover, Notice};
use prism_core::limits::BELL_HANDOVER_S;
use serde_json::json;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

pub struct Inbox {
    path: PathBuf,
}

impl Inbox {
    pub fn at(path: &str) -> Self {
        Self { path: path.into() }
    }

    /// The host says nothing back: that it closed its end means that it has the line, no more.
    pub async fn ring(&mut self, notice: &Notice) -> Handover {
        match timeout(HANDOVER, self.hand(notice)).await {
            Ok(Ok(())) => Handover::Handed,
            Ok(Err(error)) => Handover::Failed(format!("the inbox socket: {error}")),
            Err(_) => Handover::Failed(format!(
                "the host did not take it from its inbox socket within {BELL_HANDOVER_S} s"
            )),
        }
    }

    async fn hand(&self, notice: &Notice) -> std::io::Result<()> {
        let mut socket = UnixStream::connect(&self.path).await?;
        socket.write_all(line(notice).as_bytes()).await?;
        socket.shutdown().await?;
        let mut said = [0; 256];
        while socket.read(&mut said).await? > 0 {}
        Ok(())
    }
}

/// Each bell has a sender of its own: the host drops a text that equals the last one of a sender.
fn line(notice: &Notice) -> String {
    let line = json!({
        "type": "user",
        "message": {"role": "user", "content": notice.sentence()},
        "from": format!("prism:{}", notice.signal_id),
    });
    format!("{line}\n")
}
