//! Signals as the operator looks at them: nothing is leased, drained or acknowledged by it.

use crate::moment::Moment;
use crate::receipt::{PublishPath, Receipt, State, TraceEvent};
use crate::ring::ByCategory;
use crate::signal::{Category, DeliveryClass, names};
use serde_json::{Map, Value};
use uuid::Uuid;

names! {
    /// The state that signals are asked for by: where each stands now.
    Standing {
        Waiting = "waiting",
        Drained = "drained",
        Acted = "acted",
        Dismissed = "dismissed",
        Expired = "expired",
        Recalled = "recalled",
        Failed = "failed",
    }
}

wire! {
    ListSignals {
        /// From or to this identity.
        #[serde(default)] identity: Option<String>,
        #[serde(default)] from: Option<String>,
        #[serde(default)] to: Option<String>,
        #[serde(default)] category: Option<Category>,
        #[serde(default)] signal_type: Option<String>,
        /// waiting, drained, acted, dismissed, expired, recalled or failed
        #[serde(default)] state: Option<Standing>,
        /// Sent at or after.
        #[serde(default)] since: Option<Moment>,
        /// Sent before.
        #[serde(default)] until: Option<Moment>,
        /// Each of these words stands in the payload, the names or the type.
        #[serde(default)] words: Option<String>,
        /// Probes and their echoes too.
        #[serde(default)] probes: bool,
        #[serde(default)] cursor: Option<String>,
        /// 1 to 200; 50 unless said.
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    SignalPage {
        signals: Vec<SignalRow>,
        /// Ask with this for what comes after; a page may be short although there is more.
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
        /// Everything sent after this was looked at; only where more is left to look at.
        #[serde(default, skip_serializing_if = "Option::is_none")] looked_back_to: Option<Moment>,
    }

    SignalRow {
        pid: String,
        signal_id: Uuid,
        trace_id: Uuid,
        signal_type: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] category: Option<Category>,
        from_identity: String,
        to_identity: String,
        to_operator: bool,
        summary: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] in_reply_to: Option<Uuid>,
        created_at: Moment,
        /// What is known to have happened last, and when.
        state: State,
        at: Moment,
        /// Nobody has read it, and it has not ended.
        waiting: bool,
        /// Somebody is reading it now.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] leased: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] escalated_at: Option<Moment>,
        /// Only while it waits for longer than it should.
        #[serde(default, skip_serializing_if = "Option::is_none")] stuck: Option<Stuck>,
    }

    /// Why a signal is not read, and what the operator can do about it.
    #[derive(PartialEq)]
    Stuck {
        /// A word for programs: `never_started`, `nobody_here`, `no_socket`, `not_received`, `not_rung`,
        /// `not_rendered`, `not_read`, `being_read`, `waits_for_human`, `at_operator`.
        cause: String,
        /// One sentence.
        why: String,
        /// One sentence.
        what_to_do: String,
    }

    LookInbox {
        /// Whose; the operator's own unless said.
        #[serde(default)] identity: Option<String>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    /// What waits in an inbox, in the order in which it would be read.
    InboxPage {
        identity: String,
        unread: ByCategory,
        signals: Vec<SignalRow>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
    }

    /// Takes these out of the operator's own inbox, as read.
    ReadInbox { signal_ids: Vec<String> }

    InboxRead {
        /// How many of them waited; the others were read or had ended.
        read: u64,
    }

    ShowSignal {
        /// The id, or at least its first 8 digits.
        signal_id: String,
    }

    /// One signal: what it says, what became of it for each session, and what it belongs to.
    SignalShown {
        signal: SignalRow,
        payload: Map<String, Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")] from_session: Option<Uuid>,
        delivery_class: DeliveryClass,
        publish_path: PublishPath,
        expires_at: Moment,
        receipt: Receipt,
        timeline: Vec<TraceEvent>,
        /// The whole conversation, oldest first, this signal included.
        thread: Vec<SignalRow>,
        #[serde(default, skip_serializing_if = "super::super::is_zero")] thread_more: u64,
        /// Nobody has read it: it can be taken back.
        can_take_back: bool,
    }
}
