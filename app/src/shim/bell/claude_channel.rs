//! `notifications/claude/channel`: sent over MCP, and never confirmed by anything.

use super::HANDOVER;
use prism_core::bell::{Handover, Notice};
use prism_core::limits::BELL_HANDOVER_S;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::{Peer, RoleServer, ServiceError};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio::time::timeout;

#[derive(Default)]
pub struct Channel {
    /// A bell that the host's pipe has not taken yet: there is never a second one behind it.
    unwritten: Option<JoinHandle<Result<(), ServiceError>>>,
}

impl Channel {
    pub async fn ring(&mut self, notice: &Notice, peer: Option<&Peer<RoleServer>>) -> Handover {
        let Some(peer) = peer.cloned() else {
            return Handover::Failed("the host has not introduced itself".into());
        };
        if let Some(earlier) = &mut self.unwritten {
            if timeout(HANDOVER, earlier).await.is_err() {
                return Handover::Failed("the host has not read the bell before this one".into());
            }
            self.unwritten = None;
        }
        let params = json!({
            "content": notice.sentence(),
            "meta": {
                "from": notice.from,
                "category": notice.category.name(),
                "signal_id": notice.signal_id.to_string(),
            },
        });
        let bell = CustomNotification::new("notifications/claude/channel", Some(params));
        let bell = ServerNotification::CustomNotification(bell);
        let mut writing = tokio::spawn(async move { peer.send_notification(bell).await });
        match timeout(HANDOVER, &mut writing).await {
            Ok(Ok(Ok(()))) => Handover::Handed,
            Ok(Ok(Err(error))) => Handover::Failed(error.to_string()),
            Ok(Err(error)) => Handover::Failed(error.to_string()),
            Err(_) => {
                self.unwritten = Some(writing);
                Handover::Failed(format!(
                    "the host did not read it within {BELL_HANDOVER_S} s"
                ))
            }
        }
    }
}
