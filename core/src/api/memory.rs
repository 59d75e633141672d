//! Requests and answers of the memory verbs.

use crate::gate::GateWarning;
use crate::memory::surface::Warning;
use crate::moment::Moment;
use std::collections::BTreeMap;
use uuid::Uuid;

wire! {
    RuledOut {
        approach: String,
        outcome: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] ruled_out_in_delta: Option<String>,
    }

    Wrap {
        /// What happened.
        summary: String,
        #[serde(default)] next: Option<String>,
        #[serde(default)] open_loops: Vec<String>,
        /// Left out: found with git.
        #[serde(default)] touched_files: Option<Vec<String>>,
        /// What the operator sees now, in their words.
        #[serde(default)] operator_visible_effect: Option<String>,
        /// Dead ends.
        #[serde(default)] tried_and_ruled_out: Vec<RuledOut>,
        /// Up to three questions that this answers, in the operator's words.
        #[serde(default)] asked_as: Vec<String>,
        #[serde(default)] #[schemars(skip)] touched_files_source: Option<String>,
        #[serde(default)] #[schemars(skip)] surfaces: Vec<String>,
        /// The folder that holds the project, where whoever calls knows it.
        #[serde(default)] #[schemars(skip)] root: Option<String>,
    }

    Wrapped {
        delta_id: Uuid,
        touched_files_source: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] warnings: Vec<Warning>,
    }

    Pickup {
        #[serde(default)] from_identity: Option<String>,
        #[serde(default)] from_session: Option<String>,
    }

    PickedUp {
        delta_id: Uuid,
        wrap: Option<DeltaView>,
        deltas: Vec<DeltaView>,
        open_todos: Vec<ArtifactView>,
        decisions: Vec<ArtifactView>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] warnings: Vec<Warning>,
    }

    DeltaView {
        id: Uuid,
        kind: String,
        identity: String,
        surface: String,
        created_at: Moment,
        summary: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] open_loops: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] operator_visible_effect: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] tried_and_ruled_out: Vec<RuledOut>,
        #[serde(default, skip_serializing_if = "Option::is_none")] subject: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] tags: Vec<String>,
        /// The three answers of an integration narrative.
        #[serde(default, skip_serializing_if = "Option::is_none")] operator_sees: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] pieces: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] would_break_it: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] touched_files: Vec<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] session_id: Option<Uuid>,
        /// What is not shown here: characters of a text, items of a list.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")] more: BTreeMap<String, u64>,
    }

    ArtifactView {
        id: Uuid,
        kind: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] number: Option<i64>,
        title: String,
        #[serde(default, skip_serializing_if = "String::is_empty")] body: String,
        status: String,
        version: i64,
        identity: String,
        created_at: Moment,
        updated_at: Moment,
        #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")] fields: serde_json::Map<String, serde_json::Value>,
        /// The row that took its place.
        #[serde(default, skip_serializing_if = "Option::is_none")] superseded_by: Option<Uuid>,
        /// What is not shown here: characters of a text, items of a list.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")] more: BTreeMap<String, u64>,
    }

    Deltas {
        /// Only this delta (id, or a prefix of at least 8 digits), and all of it.
        #[serde(default)] id: Option<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] kind: Option<String>,
        #[serde(default)] n: Option<usize>,
    }

    DeltasAnswer {
        deltas: Vec<DeltaView>,
        /// How many more there are than fit into one answer.
        #[serde(default, skip_serializing_if = "Option::is_none")] more: Option<u64>,
    }

    Recall {
        /// Plain words: what was seen, said or done.
        query: String,
        /// Up to five other ways it may have been written down, in plain and in engineering words.
        #[serde(default)] also: Vec<String>,
        #[serde(default)] k: Option<usize>,
        #[serde(default)] kinds: Vec<String>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        /// Only what was valid then.
        #[serde(default)] as_of: Option<Moment>,
        /// Only these legs, for measuring.
        #[serde(default)] #[schemars(skip)] legs: Vec<String>,
        /// Operator only: look without a trace. Nothing is recorded, and no gate hears of it.
        #[serde(default)] #[schemars(extend("x-operator" = true))] preview: bool,
    }

    Recalled {
        /// None for a preview.
        #[serde(default, skip_serializing_if = "Option::is_none")] recall_event_id: Option<Uuid>,
        results: Vec<RecallHit>,
        /// How sure memory is that the answer is among the results, 0 to 1.
        confidence: f64,
        /// What a low confidence means, and whether the recall could not be recorded.
        #[serde(default, skip_serializing_if = "Option::is_none")] note: Option<String>,
        legs: Legs,
    }

    RecallHit {
        id: Uuid,
        kind: String,
        identity: String,
        created_at: Moment,
        #[serde(default, skip_serializing_if = "Option::is_none")] title: Option<String>,
        text: String,
        score: f64,
        why: Vec<String>,
        verdicts: Vec<VerdictView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] refers_to: Option<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] ruled_out: Vec<RuledOut>,
        #[serde(default, skip_serializing_if = "Option::is_none")] superseded_by: Option<Uuid>,
    }

    VerdictView {
        id: Uuid,
        /// What it is about, where that is not the row itself but a thing the row names.
        #[serde(default, skip_serializing_if = "Option::is_none")] on: Option<String>,
        verdict: String,
        confirmed_by: String,
        confirmed_via: String,
        directness: String,
        at: Moment,
        #[serde(default, skip_serializing_if = "Option::is_none")] notes: Option<String>,
    }

    Legs { lexical: LegView, vector: LegView, graph: LegView, recency: LegView }

    LegView {
        /// on or off
        state: String,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
        hits: usize,
        ms: f64,
        /// What the question's own vector took; not part of `ms`.
        #[serde(default, skip_serializing_if = "Option::is_none")] embedding_ms: Option<f64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] pending: Option<u64>,
        /// The models that took part, by name.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] models: Vec<String>,
    }

    Cite {
        /// What semantic_recall answered, or at least its first 8 digits; so with the result.
        recall_event_id: String,
        result_id: String,
        /// What it supported.
        #[serde(default)] r#for: Option<String>,
    }

    Remember {
        /// note, fact, rule, integration_narrative or other
        kind: String,
        #[serde(default)] body: String,
        #[serde(default)] subject: Option<String>,
        #[serde(default)] tags: Vec<String>,
        /// delta:, signal:, spec: or commit: references
        #[serde(default)] refs: Vec<String>,
        #[serde(default)] supersedes: Option<String>,
        /// Narrative: what the operator sees now.
        #[serde(default)] operator_sees: Option<String>,
        /// Narrative: what had to land together.
        #[serde(default)] pieces: Vec<String>,
        /// Narrative: what would break it.
        #[serde(default)] would_break_it: Option<String>,
        /// Up to three questions that this answers, in the operator's words.
        #[serde(default)] asked_as: Vec<String>,
    }

    Note {
        text: String,
        /// Up to three questions that this answers, in the operator's words.
        #[serde(default)] asked_as: Vec<String>,
    }

    Journal { body: String, #[serde(default)] title: Option<String> }

    Retro { went_well: String, went_badly: String, change: String }

    Postmortem {
        #[serde(default)] title: String,
        #[serde(default)] what_happened: String,
        /// Where checking was possible and was skipped.
        #[serde(default)] choice_point: String,
        #[serde(default)] prevention: String,
        /// Number of one to close instead.
        #[serde(default)] resolve: Option<i64>,
        /// Up to three questions that this answers, in the operator's words.
        #[serde(default)] asked_as: Vec<String>,
    }

    Decide {
        title: String,
        context: String,
        decision: String,
        #[serde(default)] consequences: Option<String>,
        /// Number or id of the decision this replaces.
        #[serde(default)] supersedes: Option<String>,
        /// Up to three questions that this answers, in the operator's words.
        #[serde(default)] asked_as: Vec<String>,
    }

    Document {
        /// create, update, get or list
        action: String,
        #[serde(default)] number: Option<i64>,
        #[serde(default)] title: Option<String>,
        #[serde(default)] body: Option<String>,
        #[serde(default)] status: Option<String>,
        #[serde(default)] version: Option<i64>,
    }

    Todo {
        /// add, list (with a number: that one, whole), update or done
        action: String,
        #[serde(default)] number: Option<i64>,
        #[serde(default)] title: Option<String>,
        #[serde(default)] body: Option<String>,
        #[serde(default)] tags: Vec<String>,
        #[serde(default)] paths: Vec<String>,
        #[serde(default)] status: Option<String>,
    }

    Confirm {
        /// delta:<id>, signal:<id>, spec:<name> or commit:<sha>
        refers_to: String,
        /// works, broken or partial
        verdict: String,
        /// What the operator saw, in their words.
        #[serde(default)] notes: Option<String>,
        #[serde(default)] #[schemars(skip)] direct: bool,
    }

    OperatorInput {
        /// correction, confirmation or direction_pivot
        class: String,
        /// What the operator typed, verbatim.
        prompt_text: String,
        /// What you were doing.
        #[serde(default)] triggered_action: Option<String>,
        #[serde(default)] reverses_delta: Option<String>,
        /// high or low
        confidence: String,
    }

    Captured {
        #[serde(default, skip_serializing_if = "Option::is_none")] id: Option<Uuid>,
        captured: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")] reason: Option<String>,
    }

    Id {
        id: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")] number: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] version: Option<i64>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] warnings: Vec<Warning>,
    }

    Artifacts {
        #[serde(default, skip_serializing_if = "Option::is_none")] id: Option<Uuid>,
        #[serde(default, skip_serializing_if = "Option::is_none")] number: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] version: Option<i64>,
        #[serde(default, skip_serializing_if = "Option::is_none")] item: Option<ArtifactView>,
        #[serde(default, skip_serializing_if = "Option::is_none")] items: Option<Vec<ArtifactView>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] warnings: Vec<GateWarning>,
    }

    Inputs {
        /// unreviewed, accepted, rejected or all
        #[serde(default)] review: Option<String>,
        #[serde(default)] n: Option<usize>,
    }

    InputView {
        id: Uuid,
        class: String,
        prompt_text: String,
        #[serde(default)] triggered_action: Option<String>,
        #[serde(default)] reverses_delta: Option<Uuid>,
        confidence: String,
        captured_via: String,
        /// Where it was captured; none for rows from before this was kept.
        #[serde(default)] surface: Option<String>,
        captured_at: Moment,
        #[serde(default)] operator_review: Option<String>,
        /// What is not shown here: characters of a text, items of a list.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")] more: BTreeMap<String, u64>,
    }

    InputsAnswer { inputs: Vec<InputView> }

    ReviewInputs {
        ids: Vec<String>,
        /// accept, reject or undo
        action: String,
    }

    Reviewed { reviewed: Vec<Uuid>, action: String }

    GraphShow {
        /// A row's id (or its first 8 digits), signal:<id>, or a thing such as spec:SPEC-060,
        /// commit:<sha> or path:core/src/ring.rs
        id: String,
    }

    GraphAnswer { node: GraphNode, edges: Vec<GraphEdge> }

    GraphNode { id: String, kind: String, title: String }

    GraphEdge { kind: String, out: bool, node: GraphNode }

    MemoryStats {
        rows: BTreeMap<String, u64>,
        entities: u64,
        edges: u64,
        recalls: u64,
        citations: u64,
        embed_pending: u64,
        /// Rows that broke the embedding worker and wait for `prism memory reembed`.
        #[serde(default)] embed_set_aside: u64,
        #[serde(default)] vectors: u64,
        /// The models that made the vectors which answer.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] models: Vec<String>,
        /// Other models are installed, and the rows are embedded anew.
        #[serde(default, skip_serializing_if = "Option::is_none")] switching: Option<Switching>,
        /// Why no row is embedded now.
        #[serde(default, skip_serializing_if = "Option::is_none")] off: Option<String>,
    }

    Switching {
        /// The models whose vectors answer meanwhile.
        from: Vec<String>,
        to: Vec<String>,
        /// Rows that have their new vectors.
        done: u64,
        rows: u64,
    }

    Import {
        /// The file's name: the same line of the same source is written once.
        source: String,
        lines: Vec<ImportLine>,
        /// Check, and write nothing.
        #[serde(default)] dry_run: bool,
    }

    ImportLine {
        /// Where in the file it stands.
        line: u64,
        row: serde_json::Value,
    }

    Imported {
        imported: u64,
        /// Lines that were in already.
        known: u64,
        /// Ids of those that have changed in the file since; what was imported stands.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] changed: Vec<String>,
        /// Ids of routine acks, which are never captured.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] routine: Vec<String>,
        /// The file's ids and ours.
        ids: BTreeMap<String, Uuid>,
    }

    Training { inputs: Vec<TrainingInput> }

    TrainingInput {
        id: Uuid,
        /// The operator's words.
        prompt: String,
        class: String,
        /// What the agent was doing.
        #[serde(default)] context: Option<String>,
        /// The work it spoke of.
        #[serde(default)] about: Option<String>,
        confidence: String,
        /// accepted, rejected or unreviewed
        verdict: String,
        anti_example: bool,
        captured_via: String,
        captured_at: Moment,
    }

    AskRot {
        /// Globs of files whose effect the operator sees; none means the default ones.
        #[serde(default)] surfaces: Vec<String>,
    }

    Rot {
        rows: u64,
        /// Nought is fresh, one is rotten: the weighed share of rows below.
        score: f64,
        kinds: Vec<RotRow>,
    }

    RotRow {
        kind: String,
        rows: u64,
        /// What one such row counts in the score.
        weight: f64,
        examples: Vec<String>,
    }

    Reembed {
        /// Every row, not only those without vectors of this model.
        #[serde(default)] all: bool,
    }

    Reembedding {
        queued: u64,
        model: String,
        /// Why nothing is embedded now.
        #[serde(default, skip_serializing_if = "Option::is_none")] off: Option<String>,
    }

    Metrics {
        /// Verdicts by via.
        confirmations: Vec<Tally>,
        /// Inputs by agent: how many count, how many were rejected.
        inputs: Vec<AgentTally>,
        /// Corrections by what the agent was doing.
        corrections: Vec<Tally>,
        /// Dead ends by approach.
        dead_ends: Vec<Tally>,
    }

    Tally { what: String, group: String, n: u64 }

    AgentTally { agent: String, counted: u64, unreviewed: u64, rejected: u64, misclassification_rate: f64 }
}

impl std::fmt::Display for Switching {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { done, rows, .. } = self;
        let (from, to) = (self.from.join(" and "), self.to.join(" and "));
        write!(
            f,
            "rows are embedded anew by {to}: {done} of {rows}; until all are, the vectors of {from} answer"
        )
    }
}

impl Default for LegView {
    fn default() -> Self {
        Self {
            state: "off".into(),
            reason: None,
            hits: 0,
            ms: 0.0,
            embedding_ms: None,
            pending: None,
            models: Vec::new(),
        }
    }
}
