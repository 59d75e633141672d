//! What the store is handed and hands back about memory.

use prism_core::api::memory::{ArtifactView, DeltaView, InputView, RuledOut, VerdictView};
use prism_core::memory::entity::Entity;
use prism_core::memory::question::Question;
use prism_core::memory::recall::{Candidates, Standing, Weights};
pub use prism_core::memory::row::{
    ArtifactRow, ConfirmationRow, DeltaRow, Edge, InputRow, Node, Row,
};
use prism_core::memory::{Indexed, Kind};
use prism_core::{Identity, Moment};
use serde_json::{Map, Value};
use uuid::Uuid;

/// Who writes a row, when, from where.
#[derive(Clone, Debug)]
pub struct Author {
    pub project_id: Uuid,
    pub session_id: Option<Uuid>,
    pub identity: Identity,
    pub surface: String,
    pub now: Moment,
}

/// A row of memory with all that is written beside it, in one transaction.
#[derive(Clone, Debug)]
pub struct NewMemory {
    pub id: Uuid,
    pub by: Author,
    pub row: Row,
    /// None: bookkeeping that recall does not show.
    pub indexed: Option<Indexed>,
    pub entities: Vec<Entity>,
    /// From this row, or from the named node.
    pub edges: Vec<Edge>,
    pub supersedes: Option<Uuid>,
    /// The session a row had where it came from; its neighbours are those of that session.
    pub imported_session: Option<Uuid>,
}

/// A line of a file on its way in.
#[derive(Clone, Debug)]
pub struct ImportRow {
    pub line_id: String,
    pub sha256: String,
    pub new: NewMemory,
}

/// A change to a numbered thing; its versions are kept.
#[derive(Clone, Debug)]
pub struct ArtifactChange {
    pub kind: Kind,
    pub number: i64,
    pub title: Option<String>,
    pub body: Option<String>,
    pub status: Option<String>,
    pub fields: Map<String, Value>,
    pub by: Author,
}

/// Which artifacts a list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Any,
    /// Neither done nor dropped nor resolved.
    Open,
    /// Not superseded.
    Standing,
    Is(String),
}

/// Whose work is taken over: an identity's, a session's, or an identity's in one session.
#[derive(Clone, Debug)]
pub struct PickupFrom {
    pub identity: Option<Identity>,
    pub session: Option<Uuid>,
}

/// A signal as a verdict on it tells of it.
#[derive(Clone, Debug)]
pub struct SignalSummary {
    pub signal_type: String,
    pub from: String,
    pub to: String,
    pub summary: Option<String>,
}

/// What a legs query may be narrowed to.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub kinds: Vec<Kind>,
    pub since: Option<Moment>,
    pub until: Option<Moment>,
    pub as_of: Option<Moment>,
}

/// The words of one phrasing, and which of them read as identifiers.
#[derive(Clone, Debug)]
pub struct Terms {
    pub words: Vec<String>,
    pub identifiers: Vec<String>,
}

/// What looking the question's words up brought.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// Only the engine that looked them up can read them.
    pub(super) hits: WordHits,
    pub us: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) enum WordHits {
    #[default]
    Nothing,
    Found(Box<super::tables::WordHits>),
}

/// One way of asking: its words looked up, and its meaning.
#[derive(Clone, Debug, Default)]
pub struct Phrasing {
    pub words: Words,
    /// Those of its words that read as identifiers.
    pub identifiers: Vec<String>,
    pub vector: Option<Vec<f32>>,
}

/// What is asked of the store once the words were looked up and the question was embedded.
#[derive(Clone, Debug)]
pub struct Search {
    pub project_id: Uuid,
    pub question: Question,
    /// The question's own first.
    pub phrasings: Vec<Phrasing>,
    pub model: &'static str,
    pub entities: Vec<Entity>,
    pub filter: Filter,
    /// By these `core` says which rows are worth looking around.
    pub weights: Weights,
    pub neighbours: bool,
}

/// What the legs found, unranked, and what each of them took.
#[derive(Clone, Debug, Default)]
pub struct Found {
    pub candidates: Candidates,
    pub lexical: usize,
    pub vector: usize,
    pub vector_us: u64,
    /// Vectors are still being read into memory; what is there was looked at.
    pub still_reading: bool,
    pub graph: usize,
    pub graph_us: u64,
    pub recency_us: u64,
    pub embed_pending: u64,
}

/// A row as a result shows it.
#[derive(Clone, Debug)]
pub struct MemoryRow {
    pub id: Uuid,
    pub kind: String,
    pub identity: String,
    pub title: Option<String>,
    pub text: String,
    pub created_at: Moment,
    pub standing: Standing,
    pub verdicts: Vec<VerdictView>,
    pub refers_to: Option<String>,
    pub ruled_out: Vec<RuledOut>,
}

#[derive(Clone, Debug)]
pub struct RecallEvent {
    pub id: Uuid,
    pub by: Author,
    pub query: String,
    pub results: Value,
    pub latency_us: u64,
    pub tokens: u64,
    /// Whose open windows it closes; none: the gate is off.
    pub gate: Option<super::gate::Actor>,
}

/// What `prism_start` shows of the past.
#[derive(Clone, Debug, Default)]
pub struct Opening {
    pub recent_deltas: Vec<DeltaView>,
    pub open_todos: Vec<ArtifactView>,
    pub open_postmortems: Vec<ArtifactView>,
    pub anti_examples: Vec<InputView>,
    /// Session, time of its last row, how many rows.
    pub unwrapped: Option<(Uuid, Moment, u64)>,
}
