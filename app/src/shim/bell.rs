//! Handing the bell to the host: a closed list of ringers, each with a state of its own.

use crate::clock;
use prism_core::bell::{Coalescer, Handover, Notice, Strategy};
use prism_core::limits::BELL_HANDOVER_S;
use prism_core::presence::Surface;
use rmcp::model::{CustomNotification, ServerNotification};
use rmcp::{Peer, RoleServer, ServiceError};
use serde_json::json;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// How long a host may take to accept a bell.
const HANDOVER: Duration = Duration::from_secs(BELL_HANDOVER_S);

/// A bell that was rung: by which ringer, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rang {
    pub strategy: Strategy,
    pub handover: Handover,
}

/// What can ring a host.
enum Ringer {
    ClaudeChannel(Channel),
    /// No bell: a signal rides on the agent's next verb.
    Piggyback,
    /// A bell that this version does not have.
    NotInThisVersion,
}

impl Ringer {
    fn of(strategy: Strategy) -> Self {
        match strategy {
            Strategy::ClaudeChannel => Self::ClaudeChannel(Channel::default()),
            Strategy::Auto | Strategy::None => Self::Piggyback,
            Strategy::ClaudeInbox | Strategy::Codex | Strategy::Opencode | Strategy::Hooks => {
                Self::NotInThisVersion
            }
        }
    }

    fn can_ring(&self) -> bool {
        matches!(self, Self::ClaudeChannel(_))
    }

    async fn ring(&mut self, notice: &Notice, peer: Option<&Peer<RoleServer>>) -> Handover {
        match self {
            Self::ClaudeChannel(channel) => channel.ring(notice, peer).await,
            Self::Piggyback => Handover::Failed("this host has no bell".into()),
            Self::NotInThisVersion => Handover::Failed("this bell is not in this version".into()),
        }
    }
}

/// `notifications/claude/channel`: sent over MCP, and never confirmed by anything.
#[derive(Default)]
struct Channel {
    /// A bell that the host's pipe has not taken yet: there is never a second one behind it.
    unwritten: Option<JoinHandle<Result<(), ServiceError>>>,
}

impl Channel {
    async fn ring(&mut self, notice: &Notice, peer: Option<&Peer<RoleServer>>) -> Handover {
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

/// The one bell of this shim, whoever rings it.
pub struct Bell {
    configured: Strategy,
    peer: OnceLock<Peer<RoleServer>>,
    standing: Mutex<Coalescer>,
    /// One bell at a time, in the order in which they are asked for.
    ringer: tokio::sync::Mutex<Option<(Strategy, Ringer)>>,
}

impl Bell {
    pub fn new(configured: Strategy) -> Self {
        Self {
            configured,
            peer: OnceLock::new(),
            standing: Mutex::default(),
            ringer: tokio::sync::Mutex::default(),
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

    /// A hook of this host was heard: its hooks are installed and trusted.
    pub fn hook_heard(&self) {}

    /// The host took this text as a prompt. Says whether it was a bell of ours; one that was
    /// rung and not known to be rendered is rendered now.
    pub fn prompt_was(&self, prompt: &str) -> bool {
        prism_core::bell::is_bell(prompt)
    }

    /// The bell that waits for a hook to carry it, if its signals still wait.
    pub fn take_for_hook(&self) -> Option<Notice> {
        None
    }

    /// A hook's output with this bell was consumed by the host.
    pub fn hook_carried(&self, _signal_id: uuid::Uuid) {}

    /// The strategy in force on this surface.
    pub fn strategy(&self, surface: Surface) -> Strategy {
        match (self.configured, surface) {
            (Strategy::Auto, Surface::ClaudeCode) => Strategy::ClaudeChannel,
            (Strategy::Auto, _) => Strategy::None,
            (pinned, _) => pinned,
        }
    }

    /// Rings unless a bell stands already, and says what came of it; a probe always rings.
    pub async fn ring(&self, notice: &Notice, surface: Surface) -> Option<Rang> {
        let strategy = self.strategy(surface);
        let mut ringer = self.ringer.lock().await;
        if !notice.is_probe() {
            let (mut standing, now) = (self.standing(), clock::now());
            if !standing.rings(now) {
                return None;
            }
            // Noted before the host has it: it may drain before we hear that it took the bell.
            standing.rang(now);
        }
        let ringer = match &mut *ringer {
            Some((known, ringer)) if *known == strategy => ringer,
            // The surface is known only once the host has introduced itself.
            other => &mut other.insert((strategy, Ringer::of(strategy))).1,
        };
        let handover = ringer.ring(notice, self.peer.get()).await;
        if let Handover::Failed(reason) = &handover {
            if !notice.is_probe() {
                self.standing().drained();
            }
            // A host without a bell was told of that once, at the start.
            if ringer.can_ring() {
                tracing::warn!(doorbell = %strategy, %reason, "A bell did not reach the host");
            }
        }
        Some(Rang { strategy, handover })
    }
}
