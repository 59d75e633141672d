//! One line through time: what was asked, looked up, done, and what the operator made of it.

use crate::moment::Moment;
use crate::receipt::State;
use crate::signal::{Category, names};
use uuid::Uuid;

names! {
    StoryKind { Signal = "signal", Recall = "recall", Delta = "delta", Verdict = "verdict", Input = "input" }
}

names! {
    /// How one thing of a story leads to another.
    StoryWhy {
        // An answer to it.
        RepliesTo = "replies_to",
        // Looked up by the session that had read it.
        LookedUpFor = "looked_up_for",
        // Done by the session that had read it.
        DoneFor = "done_for",
        // Done after the same session had looked this up.
        BuiltOn = "built_on",
        // The operator's verdict on it.
        VerdictOn = "verdict_on",
        // The operator's words about it.
        SaidOf = "said_of",
        // The operator took it back.
        Reverses = "reverses",
    }
}

wire! {
    AskStory {
        /// Only what belongs to the conversation of this signal (id, or its first 8 digits).
        #[serde(default)] signal_id: Option<String>,
        #[serde(default)] identity: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        /// 1 to 200; 50 unless said.
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    StoryPage {
        items: Vec<StoryItem>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
    }

    StoryItem {
        pid: String,
        kind: StoryKind,
        id: Uuid,
        at: Moment,
        /// Who sent, asked, did or captured it; the operator for a verdict.
        identity: String,
        /// To whom, for a signal.
        #[serde(default, skip_serializing_if = "Option::is_none")] to: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] session_id: Option<Uuid>,
        /// The signal's type, the delta's kind, the verdict, the input's class.
        what: String,
        text: String,
        /// What the operator sees of it, for a delta.
        #[serde(default, skip_serializing_if = "Option::is_none")] effect: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] category: Option<Category>,
        #[serde(default, skip_serializing_if = "Option::is_none")] state: Option<State>,
        /// Results that a recall brought, and how many of them were cited.
        #[serde(default, skip_serializing_if = "Option::is_none")] results: Option<u64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] cited: Option<u64>,
        /// accepted or rejected, for an input.
        #[serde(default, skip_serializing_if = "Option::is_none")] review: Option<String>,
        /// What it follows from; the other end may be on another page.
        links: Vec<StoryLink>,
    }

    #[derive(PartialEq)]
    StoryLink { why: StoryWhy, kind: StoryKind, id: Uuid }
}
