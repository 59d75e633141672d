//! Handing the bell to the host: one strategy per kind of host.

use crate::clock;
use prism_core::bell::{Coalescer, Strategy, sentence};
use prism_core::envelope::Envelope;
use prism_core::presence::Surface;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::{Peer, RoleServer};
use serde_json::json;
use std::sync::{Mutex, OnceLock};

/// A bell that a host's transport took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rang {
    pub strategy: Strategy,
}

pub struct Bell {
    configured: Strategy,
    peer: OnceLock<Peer<RoleServer>>,
    standing: Mutex<Coalescer>,
}

impl Bell {
    pub fn new(configured: Strategy) -> Self {
        Self {
            configured,
            peer: OnceLock::new(),
            standing: Mutex::default(),
        }
    }

    /// Learns how to reach the host.
    pub fn connect(&self, peer: Peer<RoleServer>) {
        drop(self.peer.set(peer));
    }

    fn standing(&self) -> std::sync::MutexGuard<'_, Coalescer> {
        self.standing
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Somebody drained the inbox: the next arrival rings again.
    pub fn drained(&self) {
        self.standing().drained();
    }

    /// The strategy in force on this surface.
    pub fn strategy(&self, surface: Surface) -> Strategy {
        match (self.configured, surface) {
            (Strategy::Auto, Surface::ClaudeCode) => Strategy::ClaudeChannel,
            (Strategy::Auto, _) => Strategy::None,
            (pinned, _) => pinned,
        }
    }

    /// Rings for an arrival unless a bell stands already; says what was achieved.
    pub async fn ring(&self, envelope: &Envelope, surface: Surface) -> Option<Rang> {
        let strategy = self.strategy(surface);
        let now = clock::now();
        if !envelope.is_loopback() && !self.standing().rings(now) {
            return None;
        }
        let handed = match strategy {
            Strategy::ClaudeChannel => self.claude_channel(envelope).await,
            // No bell of its own: the signal rides on the agent's next verb.
            Strategy::Auto
            | Strategy::ClaudeInbox
            | Strategy::Codex
            | Strategy::Hooks
            | Strategy::None => false,
        };
        if handed && !envelope.is_loopback() {
            self.standing().rang(now);
        }
        handed.then_some(Rang { strategy })
    }

    /// Fire and forget: nothing ever confirms a channel notification.
    async fn claude_channel(&self, envelope: &Envelope) -> bool {
        let Some(peer) = self.peer.get() else {
            return false;
        };
        let params = json!({
            "content": sentence(&envelope.from_identity, &envelope.signal_type),
            "meta": {"from": envelope.from_identity, "category": envelope.resolved_category().name(), "signal_id": envelope.signal_id.to_string()},
        });
        let bell = CustomNotification::new("notifications/claude/channel", Some(params));
        match peer
            .send_notification(ServerNotification::CustomNotification(bell))
            .await
        {
            Ok(()) => true,
            Err(error) => {
                tracing::warn!(%error, "The host did not take the bell");
                false
            }
        }
    }
}
