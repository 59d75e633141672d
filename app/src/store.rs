//! The store: one narrow set of operations, whatever engine stands behind it.
//!
//! Every operation is one transaction. Nothing here knows HTTP, and no verb
//! knows SQL.

pub mod gate;
pub mod memory;
pub mod page;
mod servers;
pub mod sql;
pub mod tables;
mod vectors;

pub use servers::{Copy, Duty, Room, Seat, Seen, Signs};
pub use tables::{Looked, backup, moving, tenants};

use crate::bus::{Bus, Pushed};
use gate::{Actor, Assigned};
use memory::{
    ArtifactChange, Author, Filter, Found, ImportRow, MemoryRow, NewMemory, Opening, PickupFrom,
    RecallEvent, Search, SignalSummary, Status, Terms, Words,
};
use prism_core::access::Place;
use prism_core::api::gate::{GateEventView, GateReport};
use prism_core::api::memory::{
    ArtifactView, DeltaView, GraphAnswer, InputView, MemoryStats, Metrics, Rot, TrainingInput,
};
use prism_core::api::{LoopbackRun, Reachable, WaitsFor};
use prism_core::bell::{BellNote, Notice, Strategy};
use prism_core::database::{Facts, remedy};
use prism_core::delivery::Lease;
use prism_core::envelope::Envelope;
use prism_core::escalation::{Step, Told};
use prism_core::gate::{GateOutcome, GateWarning};
use prism_core::id::Quoted;
use prism_core::loopback::Probe;
use prism_core::memory::entity::Entity;
use prism_core::memory::operator::Review;
use prism_core::memory::{Indexed, Kind};
use prism_core::presence::Attention;
use prism_core::receipt::{PublishPath, SessionReceipt, SignalFacts, State, TraceEvent};
use prism_core::retention::{History, Look};
use prism_core::ring::ByCategory;
use prism_core::signal::{AckState, CheckedSend};
use prism_core::{Code, Identity, Moment, Problem, ProjectName};
use std::collections::HashMap;
use std::path::Path;
use uuid::Uuid;

/// Why the store could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// A rule said no; nothing was written.
    #[error("{0}")]
    Refused(Box<Problem>),
    /// The disk is full, read-only or failing; nothing was written.
    #[error("the database cannot be written: {0}")]
    Unwritable(String),
    #[error("the database answered: {0}")]
    Failed(String),
    /// Somebody has taken away a right that Prism had on its tables; nothing was written.
    #[error("the database answered: {0}")]
    Denied(String),
    /// A row would have referred to one that is not there; nothing was written.
    #[error("the database refused a row that refers to nothing")]
    Dangling,
    /// Somebody else was in the way, or the database was away; nothing was written.
    #[error("the database could not be asked: {0}")]
    Again(String),
    /// Something is not as it was a moment before; nothing was written, and a second look is worth it.
    #[error("the database answered: {0}")]
    Changed(String),
    /// The answer to a commit was cut off, and nobody knows what became of it.
    #[error("whether it is stored is not known: {0}")]
    Unknown(String),
    #[error("the store is closed")]
    Closed,
}

/// The schema that this binary writes.
pub const NEWEST_SCHEMA: u64 = tables::NEWEST_SCHEMA;

pub type Result<T> = std::result::Result<T, StoreError>;

impl From<Problem> for StoreError {
    fn from(problem: Problem) -> Self {
        Self::Refused(Box::new(problem))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Refused(problem) => *problem,
            StoreError::Unwritable(why) => Problem::new(
                Code::StorageFull,
                format!("nothing was stored: {why}"),
                remedy(&why).unwrap_or(
                    "free space on the disk that the database is on ($PRISM_HOME, or PostgreSQL's own) or make it \
                     writable, then send it again"
                        .into(),
                ),
            ),
            StoreError::Again(why) => Problem::new(
                Code::StorageFull,
                format!("nothing was stored: the database could not be asked: {why}"),
                remedy(&why).unwrap_or(
                    "send it again in a moment; `prism doctor` on the server's machine looks at the database".into(),
                ),
            ),
            StoreError::Denied(why) => {
                let next = remedy(&why).unwrap_or("the database's log says more".into());
                let message = format!("nothing was stored: the database answered: {why}");
                Problem::new(Code::StorageFull, message, next)
            }
            StoreError::Unknown(why) => Problem::new(
                Code::OutcomeUnknown,
                format!("the database went away in the middle of a commit: {why}"),
                "it may or may not be stored: look, or send a signal again with the same \
                 idempotency_key, under which it will not arrive twice",
            ),
            other => {
                tracing::error!(error = %other, "The store failed");
                Problem::new(
                    Code::Internal,
                    "the store failed; nothing was stored",
                    "`prism doctor` looks at the database; the server's log has the cause",
                )
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Project {
    pub id: Uuid,
    pub pid: ProjectName,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Persona {
    pub id: Uuid,
    pub project_id: Uuid,
    pub identity: Identity,
    pub is_operator: bool,
    pub created_at: Moment,
}

#[derive(Clone, Debug, PartialEq)]
pub struct KeyRow {
    pub id: Uuid,
    /// None: the operator's.
    pub identity: Option<Identity>,
    pub key_sha256: String,
    pub prefix: String,
    pub created_at: Moment,
    pub revoked_at: Option<Moment>,
    /// What the browser calls itself whose cookie carries it; nothing else may.
    pub browser: Option<String>,
    pub expires_at: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionRow {
    pub id: Uuid,
    pub project_id: Uuid,
    pub persona_id: Uuid,
    pub identity: Identity,
    pub surface: String,
    pub machine_id: String,
    pub process_pid: i64,
    pub name: Option<String>,
    pub created_at: Moment,
    pub last_seen_at: Moment,
    pub first_verb_at: Option<Moment>,
    pub last_verb_at: Option<Moment>,
    pub released_at: Option<Moment>,
    /// What it waits for its human with, and since when.
    pub waits: Option<WaitsFor>,
    /// Whether somebody is at its host, as far as its shim has said.
    pub attention: Option<Attention>,
    /// Where its socket is, as far as several servers note it.
    pub seat: Option<Seat>,
    /// When its peers were told that it had left.
    pub left_at: Option<Moment>,
}

/// One of those that share a database and know nothing of each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenant {
    pub id: Uuid,
    pub name: String,
    pub created_at: Moment,
}

/// A tenant with how much it has.
#[derive(Clone, Debug, PartialEq)]
pub struct TenantCounted {
    pub tenant: Tenant,
    pub projects: u64,
    pub agents: u64,
    /// Those that are open.
    pub sessions: u64,
    /// Rows of memory.
    pub memory: u64,
    pub being_removed: bool,
}

/// A folder that uses a project.
#[derive(Clone, Debug, PartialEq)]
pub struct FolderRow {
    pub project_id: Uuid,
    pub machine_id: String,
    pub folder: String,
    pub since: Moment,
    pub allowed: bool,
}

/// Everything that is read once when a server starts.
#[derive(Debug, Default)]
pub struct Loaded {
    pub tenant_id: Uuid,
    pub projects: Vec<Project>,
    pub personas: Vec<Persona>,
    pub keys: Vec<KeyRow>,
    pub started_personas: Vec<Uuid>,
    /// As of which change the names are.
    pub names: i64,
}

/// Which sockets of the recipient a signal is pushed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Every session of the identity.
    Everybody,
    /// A probe goes to one session.
    Session(Uuid),
    /// A probe without a session is written and goes nowhere.
    Nobody,
}

impl Audience {
    pub fn includes(self, session: Option<Uuid>) -> bool {
        match self {
            Self::Everybody => true,
            Self::Session(id) => session == Some(id),
            Self::Nobody => false,
        }
    }
}

/// How the trace of a probe says that the model it was for has looked.
pub const READ_ITS_INBOX: &str = "read its inbox";

/// A send, ready for its row.
#[derive(Clone, Debug)]
pub struct NewSignal {
    pub signal_id: Uuid,
    pub trace_id: Uuid,
    pub project: Project,
    pub from_persona: Persona,
    pub from_session: Option<Uuid>,
    pub to_persona: Persona,
    pub send: CheckedSend,
    pub now: Moment,
    pub audience: Audience,
    /// Whether a session of the recipient is live, with a socket or without.
    pub recipient_live: bool,
    /// Whether one of them has its socket at another server.
    pub recipient_elsewhere: bool,
    /// A `sync` send that finds nobody is kept as failed.
    pub failed: bool,
    /// How long it may wait unread before it escalates.
    pub escalates_after_us: Option<i64>,
}

/// A signal that was just committed, as the bus gets it.
#[derive(Clone, Debug)]
pub struct Committed {
    /// Without its payload.
    pub envelope: Envelope,
    pub payload_json: String,
    pub project: Uuid,
    pub to_persona: Uuid,
    pub audience: Audience,
    pub recipient_live: bool,
    pub recipient_elsewhere: bool,
}

impl Committed {
    /// The envelope with its payload, for the few who need it as a value.
    pub fn whole(&self) -> Envelope {
        Envelope {
            payload: serde_json::from_str(&self.payload_json).unwrap_or_default(),
            ..self.envelope.clone()
        }
    }
}

/// What a send came to.
#[derive(Clone, Debug)]
pub enum SendOutcome {
    /// The row is new and durable, and this became of its push.
    Stored(Box<Committed>, Pushed),
    /// The same key and body had been accepted before; nothing new was written.
    Repeated(Box<TraceRow>),
}

/// One row of an inbox as a socket or a drain gets it.
#[derive(Clone, Debug)]
pub struct InboxRow {
    pub seq: i64,
    pub envelope: Envelope,
    pub drained: bool,
    pub lease: Option<Lease>,
}

/// A part of an inbox and how far the inbox reached in the same read.
#[derive(Clone, Debug)]
pub struct Page {
    pub rows: Vec<InboxRow>,
    pub head: i64,
    /// Rows were left out because the page was full.
    pub more: bool,
}

/// How much one drain may take; the first signal it takes whatever its size.
#[derive(Clone, Copy, Debug)]
pub struct DrainLimit {
    pub signals: usize,
    pub payload_bytes: usize,
}

#[derive(Clone, Debug)]
pub struct Drain {
    pub lease_id: Uuid,
    pub envelopes: Vec<Envelope>,
    pub more: u64,
}

#[derive(Clone, Debug)]
pub struct ConfirmedRow {
    pub signal_id: Uuid,
    pub to_persona: Uuid,
    pub by_session: Option<Uuid>,
    pub at: Moment,
}

#[derive(Clone, Debug)]
pub struct TraceRow {
    pub envelope: Envelope,
    pub to_persona: Uuid,
    pub facts: SignalFacts,
    pub sessions: Vec<SessionReceipt>,
    pub notes: Vec<TraceEvent>,
    pub publish_path: PublishPath,
}

/// A row whose fields wait for their vectors.
#[derive(Clone, Debug)]
pub struct EmbedJob {
    pub memory_id: String,
    /// When it was queued: a row that changes meanwhile is queued anew.
    pub queued_at: i64,
    /// Field by field; -1 is the title.
    pub texts: Vec<(i64, String)>,
}

#[derive(Clone, Debug)]
pub struct VectorRow {
    pub ordinal: i64,
    pub vector: Vec<f32>,
}

/// What a session says, or is known, to have had of a signal; written when convenient.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    pub signal_id: Uuid,
    pub session_id: Uuid,
    pub state: State,
    pub strategy: Option<Strategy>,
    /// The signal whose bell it was, when it was another's.
    pub via: Option<Uuid>,
    /// How long news takes to reach the server that pushed, when it came from another.
    pub hop_us: Option<i64>,
    pub at: Moment,
}

/// What a session tells of a bell beyond the facts; written when convenient.
#[derive(Clone, Debug)]
pub struct BellReport {
    pub signal_id: Uuid,
    pub session_id: Uuid,
    pub note: BellNote,
    pub detail: String,
    pub at: Moment,
}

/// An ASK or BLOCKER that has waited for its time.
#[derive(Clone, Debug)]
pub struct DueRow {
    pub notice: Notice,
    pub to_persona: Uuid,
    pub to_operator: bool,
    /// When it was due: whoever moves it on first has done so.
    pub escalate_at: Moment,
    pub climbed: bool,
    pub leased_until: Option<Moment>,
}

/// What becomes of such a row.
#[derive(Clone, Debug)]
pub struct Escalated {
    pub row: DueRow,
    pub step: Step,
    /// When it is due again.
    pub again_at: Option<Moment>,
}

#[derive(Clone, Debug)]
pub struct Ack {
    pub signal_id: String,
    pub persona: Persona,
    pub session: Option<Uuid>,
    pub state: AckState,
    pub note: Option<String>,
    /// Who is advised when it is an assignment; none: the gate is off.
    pub gate: Option<Actor>,
    pub now: Moment,
}

/// A signal that left the queue, and whose inbox it was.
#[derive(Clone, Debug)]
pub struct EndedRow {
    pub signal_id: Uuid,
    pub to_persona: Uuid,
}

/// A leased signal that waits again, and whose inbox it is in.
#[derive(Clone, Debug)]
pub struct ReturnedRow {
    pub signal_id: Uuid,
    pub to_persona: Uuid,
}

/// What nobody has drained of an inbox.
#[derive(Clone, Debug)]
pub struct Undrained {
    /// Newest first.
    pub ids: Vec<Uuid>,
    /// How far the inbox reaches, and the signal there.
    pub head: i64,
    pub head_id: Option<Uuid>,
}

/// What waits in an inbox up to a place, to be compared with what waited there before: another one means that something was
/// drained, ended, leased or given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingSign(pub [i64; 3]);

impl WaitingSign {
    /// How many wait.
    pub fn count(&self) -> i64 {
        self.0[0]
    }
}

#[derive(Clone, Debug, Default)]
pub struct Swept {
    pub expired: Vec<EndedRow>,
    pub leases_returned: Vec<ReturnedRow>,
}

/// What a look at old rows came to.
#[derive(Clone, Copy, Debug)]
pub struct PruneStep {
    /// The last row looked at; none when there is nothing older.
    pub reached: Option<i64>,
    pub gone: u64,
}

/// How much of a kind of history there is.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    pub what: History,
    pub rows: u64,
    /// There are so many that their numbering says it.
    pub at_most: bool,
    pub oldest: Option<Moment>,
    /// At most so many have had their time.
    pub going: u64,
}

/// What a quoted id may be an id of.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    Deltas,
    Signals,
    Sessions,
    Memory,
}

impl Table {
    const fn name(self) -> &'static str {
        match self {
            Self::Deltas => "session_deltas",
            Self::Signals => "signal_queue",
            Self::Sessions => "sessions",
            Self::Memory => "memory",
        }
    }
}

/// The door to what is kept: nothing else of the tables is seen from outside.
#[derive(Clone)]
pub struct Store(tables::Tables);

impl Store {
    /// Opens the embedded store, migrating it if it is older than this binary.
    pub fn open_embedded(file: &Path) -> Result<Self> {
        Ok(Self(tables::Tables::open(file)?))
    }

    /// Opens a store that several servers may stand on, migrating it if it is older than this binary.
    pub fn open_shared(url: &str) -> Result<Self> {
        Ok(Self(tables::Tables::open_shared(Self::server(url)?)?))
    }

    fn server(url: &str) -> Result<sql::Server> {
        sql::Server::parse(url).map_err(|e| {
            StoreError::from(Problem::new(
                Code::InvalidRequest,
                format!("that is not the URL of a PostgreSQL database: {e}"),
                "write it like postgres://user:password@host:5432/name?sslmode=verify-full",
            ))
        })
    }

    /// The rows of another tenant of the same database.
    pub fn of_tenant(&self, tenant: Uuid) -> Result<Self> {
        Ok(Self(self.0.of_tenant(tenant)?))
    }

    /// Every tenant of a database that servers share, the first one first.
    pub async fn tenants(&self) -> Result<Vec<Tenant>> {
        self.0.tenants().await
    }

    /// Whose rows these are, where there may be several tenants.
    pub fn tenant(&self) -> Option<Uuid> {
        self.0.tenant()
    }

    /// The schema of an embedded store that this binary would upgrade; none where there is nothing
    /// to upgrade.
    pub fn older_schema(file: &Path) -> Result<Option<usize>> {
        tables::older_schema(file)
    }

    /// Copies an embedded store whole into a file that does not exist yet.
    pub fn copy(file: &Path, to: &Path) -> Result<()> {
        backup::copy(file, to)
    }

    pub async fn load(&self) -> Result<Loaded> {
        self.0.load().await
    }

    pub async fn add_project(
        &self,
        project: Project,
        operator: Identity,
        now: Moment,
    ) -> Result<(Project, Persona)> {
        self.0.add_project(project, operator, now).await
    }

    pub async fn add_persona(&self, persona: Persona) -> Result<(Persona, bool)> {
        self.0.add_persona(persona).await
    }

    pub async fn enter_project(&self, pid: ProjectName, place: Place, now: Moment) -> Result<()> {
        self.0.enter_project(pid, place, now).await
    }

    /// The folder of this machine that a project belongs to, where this one is none of its own.
    pub async fn elsewhere(
        &self,
        project: Uuid,
        machine: String,
        folder: String,
    ) -> Result<Option<String>> {
        self.0.elsewhere(project, machine, folder).await
    }

    pub async fn goes_on(&self, project: Uuid, machine: String, folder: String) -> Result<bool> {
        self.0.goes_on(project, machine, folder).await
    }

    pub async fn allow_folder(&self, project: Uuid, place: Place, now: Moment) -> Result<()> {
        self.0.allow_folder(project, place, now).await
    }

    pub async fn forget_folder(
        &self,
        project: Uuid,
        machine: String,
        folder: String,
    ) -> Result<bool> {
        self.0.forget_folder(project, machine, folder).await
    }

    pub async fn project_folders(&self) -> Result<Vec<FolderRow>> {
        self.0.project_folders().await
    }

    pub async fn merge_projects(&self, old: Project, new: Project) -> Result<()> {
        self.0.merge_projects(old, new).await
    }

    pub async fn name_operator(&self, operator: Identity) -> Result<()> {
        self.0.name_operator(operator).await
    }

    pub async fn add_key(&self, key: KeyRow) -> Result<Option<KeyRow>> {
        self.0.add_key(key).await
    }

    pub async fn revoke_key(&self, id: Uuid, now: Moment) -> Result<()> {
        self.0.revoke_key(id, now).await
    }

    pub async fn add_session(&self, session: SessionRow) -> Result<Room> {
        self.0.add_session(session).await
    }

    pub async fn name_session(&self, id: Uuid, name: String) -> Result<()> {
        self.0.name_session(id, name).await
    }

    /// Notes what a session waits for, then tells it, in the order of the rows.
    pub async fn session_waits(
        &self,
        id: Uuid,
        waits: Option<WaitsFor>,
        then: impl FnOnce(Option<WaitsFor>) + Send + 'static,
    ) -> Result<()> {
        self.0.session_waits(id, waits, then).await
    }

    pub async fn session_attention(
        &self,
        id: Uuid,
        attention: Attention,
        then: impl FnOnce(Attention) + Send + 'static,
    ) -> Result<()> {
        self.0.session_attention(id, attention, then).await
    }

    /// Writes what changed about sessions, without waiting for the disk.
    pub fn touch_sessions(&self, sessions: Vec<Seen>, now: Moment) {
        self.0.touch_sessions(sessions, now)
    }

    /// Writes a session's wrap and ends it, both or neither; gives back what it had leased.
    pub async fn wrap_session(&self, id: Uuid, wrap: NewMemory) -> Result<Vec<ReturnedRow>> {
        self.0.wrap_session(id, wrap).await
    }

    /// Ends a session and gives back what it had leased and not confirmed; none when it is over already, or
    /// was seen after `silent_since`.
    pub async fn release_session(
        &self,
        id: Uuid,
        reason: String,
        silent_since: Option<Moment>,
        now: Moment,
    ) -> Result<Option<Vec<ReturnedRow>>> {
        let released = self.0.release_session(id, reason, silent_since, now);
        released.await
    }

    /// Writes a signal durably, offers it to the bus in commit order, and says what became of it.
    pub async fn send(&self, new: NewSignal) -> Result<SendOutcome> {
        self.0.send(new).await
    }

    /// The bus that committed signals are told on.
    pub fn bus(&self) -> &Bus {
        self.0.bus()
    }

    /// Takes what is told of bells without waiting for the disk.
    pub fn report_bells(&self, bells: Vec<BellReport>) {
        self.0.report_bells(bells)
    }

    /// What has waited for its time by now, and what would be due later than anything can be.
    pub async fn escalation_due(
        &self,
        now: Moment,
        latest: Moment,
        limit: usize,
    ) -> Result<Vec<DueRow>> {
        self.0.escalation_due(now, latest, limit).await
    }

    /// Takes the steps that still stand; returns those.
    pub async fn escalate(&self, steps: Vec<Escalated>, now: Moment) -> Result<Vec<Escalated>> {
        self.0.escalate(steps, now).await
    }

    /// What the operator is told of and nobody has read.
    pub async fn at_operator(&self) -> Result<Vec<Told>> {
        self.0.at_operator().await
    }

    /// What the operator's command was not run for.
    pub async fn unnotified(&self, limit: usize) -> Result<Vec<Told>> {
        self.0.unnotified(limit).await
    }

    /// Notes that the operator's command is run for these signals, here and by nobody else; answers for
    /// which of them.
    pub async fn notified(&self, signals: Vec<String>, now: Moment) -> Result<Vec<String>> {
        self.0.notified(signals, now).await
    }

    /// It could not be run after all.
    pub async fn not_notified(&self, signals: Vec<String>) -> Result<()> {
        self.0.not_notified(signals).await
    }

    /// Takes receipts without waiting for the disk; waits only while too many are on their way.
    pub async fn report(&self, reports: Vec<Report>) {
        self.0.report(reports).await
    }

    /// Waits until everything handed over so far can be read.
    pub async fn settle(&self) -> Result<()> {
        self.0.settle().await
    }

    /// Whether a drain may find something. A no is certain; a yes may turn out empty.
    pub async fn has_pending(&self, persona: Uuid, now: Moment) -> Result<bool> {
        self.0.may_have_pending(persona, now).await
    }

    /// Runs something that may ask the database, and looks into an inbox by the way, where that is a way by itself.
    pub async fn looking<T>(
        &self,
        persona: Uuid,
        now: Moment,
        running: impl Future<Output = T>,
    ) -> (T, Looked) {
        self.0.looking(persona, now, running).await
    }

    /// The same as `has_pending`, by whoever has looked.
    pub async fn still_pending(&self, looked: Looked, persona: Uuid, now: Moment) -> Result<bool> {
        self.0.still_pending(looked, persona, now).await
    }

    pub async fn lease(
        &self,
        persona: Uuid,
        holder: Option<Uuid>,
        limit: DrainLimit,
        now: Moment,
    ) -> Result<Option<Drain>> {
        self.0.lease(persona, holder, limit, now).await
    }

    /// Ends drains of any of these inboxes: their rows are drained for good.
    pub async fn confirm(
        &self,
        personas: Vec<Uuid>,
        leases: Vec<Uuid>,
        now: Moment,
    ) -> Result<Vec<ConfirmedRow>> {
        self.0.confirm(personas, leases, now).await
    }

    pub async fn dismiss(
        &self,
        persona: Uuid,
        session: Option<Uuid>,
        signal_ids: Vec<String>,
        now: Moment,
    ) -> Result<prism_core::api::Dismissed> {
        self.0.dismiss(persona, session, signal_ids, now).await
    }

    /// Notes an acknowledgment, with the gate's advice on it, and answers both.
    pub async fn acknowledge(&self, ack: Ack) -> Result<Option<GateWarning>> {
        self.0.acknowledge(ack).await
    }

    pub async fn take_back(
        &self,
        project: Uuid,
        signal_id: String,
        sender: Option<Identity>,
        now: Moment,
    ) -> Result<std::result::Result<EndedRow, String>> {
        self.0.take_back(project, signal_id, sender, now).await
    }

    pub async fn trace(
        &self,
        project: Uuid,
        signal_id: Option<String>,
        trace_id: Option<String>,
    ) -> Result<TraceRow> {
        self.0.trace(project, signal_id, trace_id).await
    }

    /// Reads a page of an inbox after `after`, all of it or only what is undrained.
    pub async fn replay(
        &self,
        persona: Uuid,
        session: Option<Uuid>,
        after: i64,
        undrained_only: bool,
        limit: usize,
    ) -> Result<Page> {
        self.0
            .replay(persona, session, after, undrained_only, limit)
            .await
    }

    pub async fn undrained(&self, persona: Uuid, limit: usize) -> Result<Undrained> {
        self.0.undrained(persona, limit).await
    }

    /// What waits in each of these inboxes up to a first place and up to a second.
    pub async fn waiting_signs(
        &self,
        inboxes: Vec<(Uuid, i64, i64)>,
    ) -> Result<Vec<(Uuid, [WaitingSign; 2])>> {
        self.0.waiting_signs(inboxes).await
    }

    pub async fn heads(&self, personas: Vec<Uuid>) -> Result<Vec<(Uuid, i64)>> {
        self.0.heads(personas).await
    }

    pub async fn pending_counts(&self, project: Uuid) -> Result<Vec<(Uuid, ByCategory)>> {
        self.0.pending_counts(project).await
    }

    /// What was last proven about each of these sessions.
    pub async fn last_proven(&self, sessions: Vec<Uuid>) -> Result<Vec<Reachable>> {
        self.0.last_proven(sessions).await
    }

    /// Looks at the next few old rows and takes out those whose time is over.
    pub async fn prune(&self, look: Look, rows: usize) -> Result<PruneStep> {
        self.0.prune(look, rows).await
    }

    /// From when on old rows go.
    pub async fn pruning_begins(&self, now: Moment) -> Result<Moment> {
        self.0.pruning_begins(now).await
    }

    pub async fn kept(&self, cutoffs: Vec<(History, Option<Moment>)>) -> Result<Vec<Kept>> {
        self.0.kept(cutoffs).await
    }

    pub async fn last_proven_of_each(&self, personas: Vec<Uuid>) -> Result<Vec<Option<Reachable>>> {
        self.0.last_proven_of_each(personas).await
    }

    /// What was last proven about a persona, whichever session it was, and about each of these sessions.
    pub async fn last_proven_of(
        &self,
        persona: Uuid,
        sessions: Vec<Uuid>,
    ) -> Result<(Option<Reachable>, Vec<Reachable>)> {
        self.0.last_proven_of(persona, sessions).await
    }

    pub async fn sweep(&self, now: Moment, limit: usize) -> Result<Swept> {
        self.0.sweep(now, limit).await
    }

    /// Judges an assignment and notes the outcome; none when its surface was noted before.
    pub async fn meet_assignment(&self, assigned: Assigned) -> Result<Option<GateOutcome>> {
        self.0.meet_assignment(assigned).await
    }

    /// Notes material output before the gate.
    pub async fn produced_before_gate(&self, actor: Actor, now: Moment) -> Result<()> {
        self.0.produced_before_gate(actor, now).await
    }

    pub async fn label_gate_event(
        &self,
        project: Uuid,
        quoted: Quoted,
        right: bool,
        now: Moment,
    ) -> Result<Uuid> {
        self.0.label_gate_event(project, quoted, right, now).await
    }

    pub async fn gate_events(
        &self,
        project: Uuid,
        unlabelled: bool,
        n: usize,
    ) -> Result<Vec<GateEventView>> {
        self.0.gate_events(project, unlabelled, n).await
    }

    pub async fn gate_report(&self, project: Uuid) -> Result<GateReport> {
        self.0.gate_report(project).await
    }

    /// Takes a finished probe and its echo out of the queue and keeps its result.
    pub async fn finish_probe(&self, project: Uuid, probe: Probe, now: Moment) -> Result<()> {
        self.0.finish_probe(project, probe, now).await
    }

    /// Notes on the probe's own trace that its model answered; once.
    pub async fn note_model_ack(
        &self,
        signal_id: Uuid,
        session_id: Uuid,
        detail: &'static str,
        at: Moment,
    ) -> Result<()> {
        self.0
            .note_model_ack(signal_id, session_id, detail, at)
            .await
    }

    /// Notes on the probes that wait for a session that its model has read its inbox.
    pub async fn note_read(&self, persona: Uuid, session: Uuid, now: Moment) -> Result<()> {
        self.0.note_read(persona, session, now).await
    }

    pub async fn loopback_runs(
        &self,
        project: Uuid,
        identity: Option<String>,
        n: usize,
    ) -> Result<Vec<LoopbackRun>> {
        self.0.loopback_runs(project, identity, n).await
    }

    /// Writes a row of memory with its text, edges and embed intent; answers its number.
    /// Begins a session with its first row of memory; false when that was done before, here or at another server.
    pub async fn open_session(&self, session: Uuid, first: NewMemory) -> Result<bool> {
        self.0.open_session(session, first).await
    }

    pub async fn remember(&self, new: NewMemory) -> Result<Option<i64>> {
        self.0.remember(new).await
    }

    pub async fn imported(
        &self,
        project: Uuid,
        source: String,
        lines: Vec<String>,
    ) -> Result<HashMap<String, (Uuid, String)>> {
        self.0.imported(project, source, lines).await
    }

    /// Writes a batch of lines, unless another import brought some of them meanwhile.
    pub async fn import(
        &self,
        project: Uuid,
        source: String,
        rows: Vec<ImportRow>,
    ) -> Result<bool> {
        self.0.import(project, source, rows).await
    }

    pub async fn resolve(
        &self,
        project: Uuid,
        what: Table,
        field: &'static str,
        quoted: Quoted,
    ) -> Result<Uuid> {
        self.0.resolve(project, what.name(), field, quoted).await
    }

    pub async fn delta(&self, project: Uuid, id: Uuid) -> Result<Option<DeltaView>> {
        self.0.delta(project, id).await
    }

    pub async fn signal_summary(&self, project: Uuid, id: Uuid) -> Result<Option<SignalSummary>> {
        self.0.signal_summary(project, id).await
    }

    /// The project's own spec of that number or id.
    pub async fn spec_named(&self, project: Uuid, name: String) -> Result<Option<ArtifactView>> {
        self.0.spec_named(project, name).await
    }

    /// The newest wrap, however old, and the newest deltas.
    pub async fn baton(
        &self,
        project: Uuid,
        from: PickupFrom,
        n: usize,
    ) -> Result<(Option<DeltaView>, Vec<DeltaView>)> {
        self.0.baton(project, from, n).await
    }

    pub async fn deltas(
        &self,
        project: Uuid,
        since: Option<Moment>,
        kind: Option<String>,
        n: usize,
    ) -> Result<Vec<DeltaView>> {
        self.0.deltas(project, since, kind, n).await
    }

    /// What `prism_start` shows of the past; `live` are the sessions that are still here.
    pub async fn opening(&self, by: Author, live: Vec<Uuid>) -> Result<Opening> {
        self.0.opening(by, live).await
    }

    /// The newest corrections that the operator reviewed or wrote down, and how many more nobody
    /// has reviewed.
    pub async fn corrections(&self, project: Uuid, n: usize) -> Result<(Vec<InputView>, u64)> {
        self.0.corrections(project, n).await
    }

    pub async fn artifacts(
        &self,
        project: Uuid,
        kind: Kind,
        status: Status,
        n: usize,
    ) -> Result<Vec<ArtifactView>> {
        self.0.artifacts(project, kind, status, n).await
    }

    pub async fn artifact(
        &self,
        project: Uuid,
        kind: Kind,
        number: i64,
        version: Option<i64>,
    ) -> Result<ArtifactView> {
        self.0.artifact(project, kind, number, version).await
    }

    pub async fn change_artifact(
        &self,
        change: ArtifactChange,
        indexed: impl Fn(&ArtifactView) -> (Indexed, Vec<Entity>) + Clone + Send + 'static,
    ) -> Result<ArtifactView> {
        self.0.change_artifact(change, indexed).await
    }

    pub async fn inputs(
        &self,
        project: Uuid,
        review: Option<String>,
        n: usize,
    ) -> Result<Vec<InputView>> {
        self.0.inputs(project, review, n).await
    }

    pub async fn review(
        &self,
        project: Uuid,
        ids: Vec<String>,
        review: Option<Review>,
        now: Moment,
    ) -> Result<Vec<Uuid>> {
        self.0.review(project, ids, review, now).await
    }

    /// Looks the words of each phrasing up; the vector leg can be asked meanwhile.
    pub async fn words(
        &self,
        project: Uuid,
        phrasings: Vec<Terms>,
        filter: Filter,
    ) -> Result<Vec<Words>> {
        self.0.words(project, phrasings, filter).await
    }

    /// What the legs find for a question, with what stands beside it, for `core` to rank.
    pub async fn candidates(&self, search: Search) -> Result<Found> {
        self.0.candidates(search).await
    }

    /// Rows as results show them, in the order asked for; what has gone meanwhile is left out.
    pub async fn rows(&self, project: Uuid, ids: Vec<String>) -> Result<Vec<MemoryRow>> {
        self.0.rows(project, ids).await
    }

    /// Counts words of rows that an older prism wrote, a few; answers whether more wait.
    pub async fn count_words(&self) -> Result<bool> {
        self.0.count_words().await
    }

    pub async fn training(&self, project: Uuid) -> Result<Vec<TrainingInput>> {
        self.0.training(project).await
    }

    pub async fn rot(&self, project: Uuid, surfaces: Vec<String>, now: Moment) -> Result<Rot> {
        self.0.rot(project, surfaces, now).await
    }

    pub async fn note_recall(&self, event: RecallEvent) -> Result<()> {
        self.0.note_recall(event).await
    }

    pub async fn cite(
        &self,
        project: Uuid,
        event: Quoted,
        result: Quoted,
        purpose: Option<String>,
        identity: String,
        now: Moment,
    ) -> Result<()> {
        self.0
            .cite(project, event, result, purpose, identity, now)
            .await
    }

    pub async fn graph_of(&self, project: Uuid, wanted: String) -> Result<GraphAnswer> {
        self.0.graph_of(project, wanted).await
    }

    pub async fn memory_stats(&self, project: Uuid) -> Result<MemoryStats> {
        self.0.memory_stats(project).await
    }

    /// Rows of all projects that wait for vectors.
    pub async fn embed_waiting(&self) -> Result<u64> {
        self.0.embed_waiting().await
    }

    pub async fn metrics(&self, project: Uuid) -> Result<Metrics> {
        self.0.metrics(project).await
    }

    /// Looks at a database that servers share, without changing anything in it.
    pub fn look_at_shared(url: &str) -> Result<Facts> {
        tables::look_at_shared(url)
    }

    /// What the database is.
    pub async fn facts(&self) -> Result<Facts> {
        self.0.facts().await
    }

    /// Checks that the database answers and can be written.
    pub async fn ready(&self) -> Result<()> {
        self.0.ready().await
    }

    pub async fn look_for_room(&self) {
        self.0.look_for_room().await
    }

    pub async fn close(&self) {
        self.0.close().await
    }
}
