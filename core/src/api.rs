//! What goes over the wire: requests, answers and stream frames.
//!
//! One struct per verb, whatever door it came through. Unknown fields are
//! refused, so that a misspelt one is never silently ignored.

macro_rules! wire {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })+) => {
        $($(#[$doc])* #[derive(Clone, Debug, serde::Serialize, serde::Deserialize, schemars::JsonSchema)] #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type),* })+
    };
}

pub mod gate;
pub mod memory;
pub mod page;

use crate::bell::{BellNote, Notice};
use crate::envelope::Envelope;
use crate::moment::Moment;
use crate::presence::{Attention, RecipientState, SessionState};
use crate::receipt::{PublishPath, Receipt, State, TraceEvent};
use crate::ring::{ByCategory, Count, Entry};
use crate::signal::AckState;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

wire! {
    Nothing {}

    SignalsPending { #[serde(default)] limit: Option<usize> }

    Wait {
        /// Seconds to wait at most: 1 to 60.
        #[serde(default)] timeout_s: Option<u64>,
        #[serde(default)] limit: Option<usize>,
    }

    SignalsAck {
        /// None: all this session was given.
        #[serde(default)] signal_ids: Vec<String>,
    }

    SignalAck {
        signal_id: String,
        /// observed or model_acted
        #[serde(default)] state: Option<String>,
        #[serde(default)] note: Option<String>,
    }

    SignalTrace {
        #[serde(default)] signal_id: Option<String>,
        #[serde(default)] trace_id: Option<String>,
    }

    SignalRecall { signal_id: String }

    SignalsConfirm {
        /// The lease that a draining verb answered with.
        lease_id: Uuid,
    }

    Whois { identity: String }

    Start {
        /// Who you are, unless the host was started with a name.
        #[serde(default)] identity: Option<String>,
        /// A name for this session.
        #[serde(default)] name: Option<String>,
    }

    SessionRegister {
        surface: String,
        machine_id: String,
        process_pid: i64,
        #[serde(default)] name: Option<String>,
    }

    SessionRelease {
        #[serde(default)] reason: Option<String>,
        /// Operator only: which session to release, or at least its first 8 digits.
        #[serde(default)] session_id: Option<String>,
    }

    SessionWaiting {
        /// permission or question; none: it goes on.
        #[serde(default)] r#for: Option<crate::hook::Waiting>,
    }

    SessionAttention { attention: Attention }

    /// What a host's hook leaves of a session whose agent did not wrap.
    SessionLeft {
        summary: String,
        #[serde(default)] touched_files: Option<Vec<String>>,
        #[serde(default)] root: Option<String>,
    }

    LoopbackIssue {
        /// Which session to probe, or at least its first 8 digits; default the caller's own.
        #[serde(default)] session_id: Option<String>,
        #[serde(default)] echo: Option<bool>,
        /// False in a series: the bell may cost a model's turn.
        #[serde(default)] ring: Option<bool>,
    }

    LoopbackEcho { signal_id: Uuid }

    LoopbackEchoed { signal_id: Uuid }

    LoopbackModel {
        /// The probe's own id.
        signal_id: Uuid,
    }

    LoopbackModelSeen {
        model_ack: Option<Moment>,
        /// The session has ended: no model will answer any more.
        #[serde(default)] session_over: bool,
    }

    LoopbackFinish { probe: crate::loopback::Probe }

    LoopbackRuns {
        /// Only probes of this identity.
        #[serde(default)] identity: Option<String>,
        /// How many, newest first.
        #[serde(default)] n: Option<usize>,
    }

    LoopbackRunsAnswer { runs: Vec<LoopbackRun> }

    LoopbackRun {
        loopback_id: Uuid,
        session_id: Option<Uuid>,
        identity: String,
        outcome: String,
        finished_at: Moment,
        missing_layers: Vec<crate::receipt::Layer>,
    }

    LoopbackTest {
        /// How long to wait for the shim.
        #[serde(default)] timeout_ms: Option<u64>,
        /// How long to wait for the model to read.
        #[serde(default)] drain_timeout_ms: Option<u64>,
        #[serde(default)] echo: Option<bool>,
    }

    PersonaAdd { identity: String }

    KeyMint { identity: String }

    KeyRevoke {
        /// The key's id, as `prism key list` shows it.
        key_id: String,
    }

    // Answers.

    Started {
        session_id: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
        pid: String,
        identity: String,
        surface: String,
        peers: Vec<Peer>,
        /// How many more are here than an answer lists.
        #[serde(default, skip_serializing_if = "is_zero")] peers_more: u64,
        unread: ByCategory,
        recent_deltas: Vec<memory::DeltaView>,
        open_todos: Vec<memory::ArtifactView>,
        open_postmortems: Vec<memory::ArtifactView>,
        /// What this persona captured and the operator rejected: do not tag the like again.
        anti_examples: Vec<memory::InputView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] unwrapped_session: Option<UnwrappedSession>,
    }

    /// What a hook tells an agent that has not asked: the start, and the operator's corrections.
    SessionBrief {
        started: Started,
        /// Reviewed by the operator or written down by them, newest first.
        corrections: Vec<memory::InputView>,
        /// How many more nobody has reviewed.
        corrections_unreviewed: u64,
    }

    /// What a session waits for its human with, and since when.
    #[derive(PartialEq)]
    WaitsFor { r#for: crate::hook::Waiting, since: Moment }

    /// The identity's last session ended without a wrap.
    UnwrappedSession { session_id: Uuid, last_delta_at: Moment, deltas: u64, remediation: String }

    Peer { identity: String, surface: String, machine_id: String, state: SessionState }

    Ok { ok: bool }

    Sent {
        signal_id: Uuid,
        trace_id: Uuid,
        publish_path: PublishPath,
        recipient_state: RecipientState,
        receipt: Receipt,
    }

    Pending {
        signals: Vec<Envelope>,
        #[serde(default, skip_serializing_if = "Option::is_none")] lease_id: Option<Uuid>,
        /// How many more wait.
        #[serde(default, skip_serializing_if = "is_zero")] more: u64,
    }

    Dismissed {
        dismissed: u64,
        /// Only so many of the newest places in the inbox were looked at, and it has more.
        #[serde(default, skip_serializing_if = "Option::is_none")] only_newest: Option<u64>,
    }

    Confirmed { confirmed: u64 }

    Trace {
        signal_id: Uuid,
        trace_id: Uuid,
        from_identity: String,
        to_identity: String,
        signal_type: String,
        timeline: Vec<TraceEvent>,
        receipt: Receipt,
    }

    Recalled { recalled: bool, reason: String }

    SessionView {
        session_id: Uuid,
        /// What its agent called it at the start.
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
        identity: String,
        surface: String,
        machine_id: String,
        process_pid: i64,
        state: SessionState,
        connected: bool,
        started_at: Moment,
        last_seen_at: Moment,
        #[serde(default)] last_verb_at: Option<Moment>,
        /// Its human must say something before it goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")] waits: Option<WaitsFor>,
        /// Whether somebody is at its host; left out of a session that is not live.
        #[serde(default, skip_serializing_if = "Option::is_none")] attention: Option<Attention>,
        #[serde(default)] reachable: Option<Reachable>,
    }

    /// What was last proven about a session, by which layer, when.
    Reachable {
        layer: String,
        state: State,
        at: Moment,
        session_id: Uuid,
        #[serde(default)] surface: String,
        /// How the bell was handed over, where a bell is the proof.
        #[serde(default, skip_serializing_if = "Option::is_none")] evidence: Option<String>,
    }

    PersonaView {
        identity: String,
        operator: bool,
        recipient_state: RecipientState,
        pending: ByCategory,
    }

    Status {
        pid: String,
        server_version: String,
        sessions: Vec<SessionView>,
        /// How many more are open than an answer lists.
        #[serde(default, skip_serializing_if = "is_zero")] sessions_more: u64,
        personas: Vec<PersonaView>,
    }

    WhoisAnswer {
        identity: String,
        operator: bool,
        recipient_state: RecipientState,
        since: Moment,
        sessions: Vec<SessionView>,
        reachable: Option<Reachable>,
    }

    SessionRegistered { session_id: Uuid, pid: String, project_id: Uuid, identity: String }

    PersonaAdded { identity: String, pid: String, created: bool }

    KeyMinted {
        identity: String,
        pid: String,
        key_id: Uuid,
        /// Shown once; only its hash is kept.
        key: String,
    }

    KeyView {
        key_id: Uuid,
        prefix: String,
        identity: String,
        operator: bool,
        created_at: Moment,
        #[serde(default)] revoked_at: Option<Moment>,
        /// A browser that signed in to the page, as it calls itself.
        #[serde(default, skip_serializing_if = "Option::is_none")] browser: Option<String>,
        /// When it ends by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")] expires_at: Option<Moment>,
    }

    Keys { keys: Vec<KeyView> }

    /// What history there is, and how long it stays.
    Retained {
        /// Nothing goes before.
        begins_at: Moment,
        kinds: Vec<RetainedKind>,
    }

    RetainedKind {
        /// As `[retention]` in `config.toml` calls it.
        kind: String,
        /// 0: for ever.
        days: u32,
        rows: u64,
        /// There are so many that they are not counted: at most these.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] at_most: bool,
        oldest: Option<Moment>,
        /// At most so many rows go next; those that something refers to stay.
        going: u64,
    }

    ProjectsAnswer { projects: Vec<String> }

    /// A folder as sessions in it name it: a repository's common git folder, else the folder.
    ProjectFolder { machine_id: String, folder: String }

    ProjectMerge {
        /// The project that becomes part of this one.
        from: String,
    }

    FolderView {
        machine_id: String,
        folder: String,
        since: Moment,
        /// The operator allowed it; otherwise the project was first used there.
        allowed: bool,
    }

    ProjectView { pid: String, personas: usize, folders: Vec<FolderView> }

    ProjectList { projects: Vec<ProjectView> }

    AskLocalSignals {
        #[serde(default)] action: LocalAction,
        #[serde(default = "default_tail")] n: usize,
    }

    LocalSignals {
        #[serde(default, skip_serializing_if = "Option::is_none")] tail: Option<Vec<Entry>>,
        #[serde(default, skip_serializing_if = "Option::is_none")] count: Option<Count>,
    }
}

/// Which part of the local inbox to show.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum LocalAction {
    Tail,
    Count,
    #[default]
    Both,
}

const fn default_tail() -> usize {
    5
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl SignalAck {
    pub fn parsed_state(&self) -> Result<AckState, crate::Problem> {
        let name = self.state.as_deref().unwrap_or(AckState::Observed.name());
        AckState::from_name(name).ok_or_else(|| {
            crate::Problem::field(
                "state",
                format!("is {name:?} and must be one of {}", AckState::names()),
            )
        })
    }
}

/// What a client says on the stream. Unknown kinds are refused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ClientFrame {
    /// The first frame: which session, and how far its ring has seen.
    Hello {
        pid: String,
        /// Left out by the operator's `watch`.
        session_id: Option<Uuid>,
        #[serde(default)]
        last_seq: Option<i64>,
        /// The signal that has this place in the inbox, where the shim knows it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        last_id: Option<Uuid>,
        /// The copy of the store that both are of, as the last hello was told.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<String>,
        /// Leases whose signals the host has, from before the socket was cut.
        #[serde(default)]
        confirm: Vec<Uuid>,
    },
    /// Facts about signals this session was sent.
    Receipt {
        state: State,
        signal_ids: Vec<Uuid>,
        #[serde(default)]
        strategy: Option<String>,
        /// The signal whose bell these stood behind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        via: Option<Uuid>,
    },
    /// What became of a bell on one rung, beyond the facts of a receipt.
    Bell {
        note: BellNote,
        signal_ids: Vec<Uuid>,
        detail: String,
    },
    Ping,
}

/// What the server says on the stream. Receivers skip kinds they do not know.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ServerFrame {
    Hello {
        project_id: Uuid,
        pid: String,
        server_version: String,
        /// How far the inbox reaches.
        head_seq: i64,
        /// The signal in that place, while it is kept: an inbox in which another has it is another copy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        head_id: Option<Uuid>,
        /// What is still undrained; an unread ring entry that is not here is settled.
        pending: Vec<Uuid>,
        /// Another signal has the place that the client named: this is another copy of the inbox,
        /// and how far the client had come in its own says nothing about it.
        #[serde(default)]
        restarted: bool,
        /// Which copy of the store this is, where that can be known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        copy: Option<String>,
    },
    Signal {
        envelope: Envelope,
        /// Somebody has drained it already; it belongs in the history only.
        #[serde(default)]
        drained: bool,
    },
    /// Everything before this was backlog.
    Live,
    /// Another session of this identity has taken these.
    Drained {
        signal_ids: Vec<Uuid>,
        by_session: Option<Uuid>,
    },
    /// These left the queue without anybody draining them.
    Ended {
        signal_ids: Vec<Uuid>,
        state: State,
    },
    /// A drain of these was not confirmed in time: they wait again.
    Returned {
        signal_ids: Vec<Uuid>,
    },
    /// These wait for too long: ring for them on the next rung.
    Escalated {
        notices: Vec<Notice>,
    },
    /// Something may have been said of signals that were here before, and nobody heard it: whoever has some unread, or has
    /// handed some over, says hello anew.
    Again,
    /// Something about the mesh: never queued, drained or recorded.
    Event {
        envelope: Envelope,
    },
    /// For `prism watch`: a signal somewhere in the project, as it was sent.
    Watched {
        envelope: Envelope,
        publish_path: PublishPath,
    },
    /// The session is over; the client must not come back as it.
    Released {
        reason: String,
    },
    Pong,
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_server_frame_is_skipped_and_an_unknown_request_field_is_not() {
        assert!(matches!(
            serde_json::from_str::<ServerFrame>(r#"{"kind":"from_the_future","x":1}"#),
            Ok(ServerFrame::Unknown)
        ));
        assert!(serde_json::from_str::<SignalsPending>(r#"{"limits":5}"#).is_err());
    }
}

/// Why a server closes a stream; both sides read the codes here.
pub mod close {
    /// The hello was refused for good: wrong key, no such session, not this identity's.
    pub const REFUSED: u16 = 4001;
    /// As many pages watch as may.
    pub const TOO_MANY: u16 = 4029;
    /// The reader fell behind on control frames; it reconnects and replays.
    pub const SLOW: u16 = 4008;
    /// The session is over.
    pub const RELEASED: u16 = 4010;
    /// Its reason where the key was revoked: a new session needs another key.
    pub const KEY_REVOKED: &str = "its key was revoked";
    /// The session has said hello at another server since.
    pub const MOVED: u16 = 4009;
    /// Not now (a busy store, a full disk, too many sockets): the same hello may succeed later.
    pub const TRY_AGAIN: u16 = 4013;
    /// The server stops.
    pub const GOING_AWAY: u16 = 1001;

    /// Whether a shim takes a close for the end of its session.
    pub const fn ends_session(code: u16) -> bool {
        matches!(code, REFUSED | RELEASED)
    }
}
