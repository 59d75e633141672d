//! Memory as the operator looks at it: rows by cursor, one row whole, what was recalled.

use crate::api::memory::{ArtifactView, DeltaView, GraphAnswer, InputView, RuledOut, VerdictView};
use crate::moment::Moment;
use crate::signal::names;
use uuid::Uuid;

names! {
    /// Which inputs are asked for by what the operator said of them.
    ReviewWanted { Unreviewed = "unreviewed", Accepted = "accepted", Rejected = "rejected", All = "all" }
}

names! {
    InputClass { Correction = "correction", Confirmation = "confirmation", DirectionPivot = "direction_pivot" }
}

wire! {
    ListMemory {
        /// Only these kinds, as in `results[].kind` of a recall; none: every kind.
        #[serde(default)] kinds: Vec<String>,
        #[serde(default)] identity: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        /// Each of these words stands in the row.
        #[serde(default)] words: Option<String>,
        #[serde(default)] cursor: Option<String>,
        /// 1 to 200; 50 unless said.
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    MemoryPage {
        rows: Vec<MemoryView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] looked_back_to: Option<Moment>,
    }

    MemoryView {
        pid: String,
        id: Uuid,
        kind: String,
        identity: String,
        created_at: Moment,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        /// The first characters of its text in a list, all of it where one row is shown.
        text: String,
        /// Characters of the text that a list leaves out.
        #[serde(default, skip_serializing_if = "crate::api::is_zero")] more: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] number: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] status: Option<String>,
        /// The newest verdict on it.
        #[serde(default, skip_serializing_if = "Option::is_none")] verdict: Option<String>,
        /// Rejected by the operator: out of recall.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] hidden: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] superseded_by: Option<Uuid>,
    }

    ShowMemory {
        /// The id, or at least its first 8 digits.
        id: String,
    }

    /// One row: its text, what it is in its own table, what was said of it, and what stands beside it.
    MemoryShown {
        row: MemoryView,
        #[serde(default, skip_serializing_if = "Option::is_none")] session_id: Option<Uuid>,
        #[serde(default, skip_serializing_if = "Option::is_none")] delta: Option<DeltaView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] artifact: Option<ArtifactView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] input: Option<InputView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] confirmation: Option<ConfirmationView>,
        /// What prism_confirm takes as `refers_to` for this row; none where no verdict can stand on it.
        #[serde(default, skip_serializing_if = "Option::is_none")] refers_to: Option<String>,
        verdicts: Vec<VerdictView>,
        /// Oldest first; only of what is kept in versions.
        versions: Vec<VersionView>,
        graph: GraphAnswer,
        /// How often a recall brought it, how often it was cited, and when it last came.
        recalls: RowRecalls,
    }

    ConfirmationView {
        id: Uuid,
        refers_to: String,
        verdict: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] notes: Option<String>,
        confirmed_by: String,
        confirmed_via: String,
        directness: String,
        confirmed_at: Moment,
    }

    VersionView {
        version: i64,
        title: String,
        body: String,
        status: String,
        identity: String,
        created_at: Moment,
    }

    RowRecalls {
        /// Among the project's newest recall events that were looked at.
        shown: u64,
        cited: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] last_at: Option<Moment>,
    }

    ListRecalls {
        #[serde(default)] identity: Option<String>,
        #[serde(default)] session_id: Option<String>,
        /// Only those of which something was cited, or nothing.
        #[serde(default)] cited: Option<bool>,
        /// Each of these words stands in the question.
        #[serde(default)] words: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    RecallPage {
        events: Vec<RecallRow>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] looked_back_to: Option<Moment>,
    }

    RecallRow {
        pid: String,
        id: Uuid,
        at: Moment,
        identity: String,
        surface: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] session_id: Option<Uuid>,
        query: String,
        results: Vec<RecallShown>,
        latency_ms: f64,
        tokens: u64,
    }

    /// One result as it was shown then.
    RecallShown {
        id: Uuid,
        rank: u64,
        score: f64,
        /// None once the row has gone.
        #[serde(default, skip_serializing_if = "Option::is_none")] kind: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        cited: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] cited_for: Option<String>,
    }

    ListInputs {
        /// unreviewed, accepted, rejected or all; all unless said.
        #[serde(default)] review: Option<ReviewWanted>,
        #[serde(default)] class: Option<InputClass>,
        /// Captured by this identity.
        #[serde(default)] identity: Option<String>,
        #[serde(default)] surface: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    InputPage {
        inputs: Vec<InputRow>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
    }

    InputRow {
        pid: String,
        id: Uuid,
        class: InputClass,
        /// Long words are cut, and so is what was being done; `memory_show` has them whole.
        prompt_text: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] triggered_action: Option<String>,
        /// Characters that were left out of both.
        #[serde(default, skip_serializing_if = "crate::api::is_zero")] more: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")] reverses_delta: Option<Uuid>,
        /// high or low
        confidence: String,
        captured_via: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] surface: Option<String>,
        captured_at: Moment,
        /// accepted or rejected; none: nobody has said.
        #[serde(default, skip_serializing_if = "Option::is_none")] operator_review: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] reviewed_at: Option<Moment>,
    }

    /// A dead end as a list shows it.
    DeadEnd { delta_id: Uuid, identity: String, at: Moment, #[serde(flatten)] ruled_out: RuledOut }
}
