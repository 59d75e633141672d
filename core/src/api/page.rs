//! What the operator's page reads: lists by cursor, one thing whole, what waits, what changed.
//!
//! Every verb here is for the operator's key alone, changes nothing, and may be asked about one
//! project or about all of them (the path then names [`EVERYWHERE`]).

pub mod house;
pub mod live;
pub mod memory;
pub mod metrics;
pub mod signals;
pub mod story;

use crate::hook::Waiting;
use crate::moment::Moment;
use crate::presence::{RecipientState, SessionState};
use crate::ring::ByCategory;
use crate::signal::names;
use signals::SignalRow;
use uuid::Uuid;

/// The project's place in a path that means every project; no project can be called so.
pub const EVERYWHERE: &str = "*";

names! {
    /// What a session's state is asked for.
    SessionsWanted { Open = "open", Released = "released", All = "all" }
}

wire! {
    /// What waits on the operator now.
    Now {
        at: Moment,
        /// Signals to the operator that nobody has read: BLOCKER, ASK, TASK, INFO, each newest first.
        to_me: Vec<SignalRow>,
        #[serde(default, skip_serializing_if = "super::is_zero")] to_me_more: u64,
        /// The same, by category.
        #[serde(default)] to_me_left: ByCategory,
        /// BLOCKER, then ASK, to anybody else that nobody has read, each newest first.
        unread: Vec<SignalRow>,
        #[serde(default, skip_serializing_if = "super::is_zero")] unread_more: u64,
        #[serde(default)] unread_left: ByCategory,
        /// Sessions whose human must say something, longest first.
        waiting: Vec<SessionRow>,
        /// What agents captured of the operator's words and nobody has reviewed, newest first.
        inputs: Vec<memory::InputRow>,
        #[serde(default, skip_serializing_if = "super::is_zero")] inputs_more: u64,
        /// Warnings of the gate that nobody has labelled, newest first.
        warnings: Vec<GateRow>,
        #[serde(default, skip_serializing_if = "super::is_zero")] warnings_more: u64,
    }

    Agents { agents: Vec<AgentView> }

    /// One persona in one project, and what it is at.
    AgentView {
        pid: String,
        identity: String,
        operator: bool,
        state: RecipientState,
        /// Its open sessions, the one that was last at work first.
        sessions: Vec<SessionRow>,
        #[serde(default, skip_serializing_if = "super::is_zero")] sessions_more: u64,
        unread: ByCategory,
        #[serde(default, skip_serializing_if = "Option::is_none")] oldest_unread_at: Option<Moment>,
        /// The last thing it wrote down.
        #[serde(default, skip_serializing_if = "Option::is_none")] last_delta: Option<LastDelta>,
        /// The newest task that it has read and not acted on.
        #[serde(default, skip_serializing_if = "Option::is_none")] task: Option<SignalRow>,
        /// What was last proven to reach it.
        #[serde(default, skip_serializing_if = "Option::is_none")] reachable: Option<super::Reachable>,
    }

    LastDelta {
        id: Uuid,
        kind: String,
        at: Moment,
        summary: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] operator_visible_effect: Option<String>,
    }

    ListSessions {
        #[serde(default)] identity: Option<String>,
        #[serde(default)] surface: Option<String>,
        /// open, released or all; all unless said.
        #[serde(default)] which: Option<SessionsWanted>,
        /// Started at or after.
        #[serde(default)] since: Option<Moment>,
        /// Started before.
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    SessionPage {
        sessions: Vec<SessionRow>,
        /// Ask with this for what comes after; none: that was all.
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
    }

    SessionRow {
        pid: String,
        session_id: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")] name: Option<String>,
        identity: String,
        surface: String,
        machine_id: String,
        process_pid: i64,
        state: SessionState,
        connected: bool,
        started_at: Moment,
        last_seen_at: Moment,
        #[serde(default, skip_serializing_if = "Option::is_none")] last_verb_at: Option<Moment>,
        #[serde(default, skip_serializing_if = "Option::is_none")] released_at: Option<Moment>,
        #[serde(default, skip_serializing_if = "Option::is_none")] release_reason: Option<String>,
        /// permission or question: its human must say something before it goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")] waits_for: Option<Waiting>,
        #[serde(default, skip_serializing_if = "Option::is_none")] waits_since: Option<Moment>,
    }

    ListGateEvents {
        /// warned or satisfied
        #[serde(default)] outcome: Option<GateOutcomeName>,
        /// Labelled by the operator, or not yet.
        #[serde(default)] labelled: Option<bool>,
        #[serde(default)] identity: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    GatePage {
        events: Vec<GateRow>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
    }

    GateRow {
        pid: String,
        id: Uuid,
        assignment_id: String,
        /// The assignment in a few words, while it is kept.
        #[serde(default, skip_serializing_if = "Option::is_none")] assignment: Option<String>,
        /// tier1 or tier2
        task_class: String,
        outcome: GateOutcomeName,
        /// ack, todo_add, material_output or recall
        trigger: String,
        persona: String,
        surface: String,
        recall_count: u64,
        occurred_at: Moment,
        /// Whether the warning was right, as the operator said.
        #[serde(default, skip_serializing_if = "Option::is_none")] right: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")] labelled_at: Option<Moment>,
    }
}

names! {
    /// What the gate noticed of an assignment.
    GateOutcomeName { Warned = "warned", Satisfied = "satisfied" }
}
