//! The table of verbs: one line each, whatever door a call comes through.
//!
//! The only code that touches store, hub and rules together is in the files
//! below; a new verb is a struct in `prism_core::api`, a function here and a
//! line in [`VERBS`].

pub mod artifacts;
pub mod gate;
pub mod import;
pub mod keys;
pub mod lifecycle;
pub mod loopback;
pub mod memory;
pub mod operator;
pub mod page;
pub mod projects;
pub mod recall;
pub mod retention;
pub mod roster;
pub mod sessions;
pub mod signals;

use crate::clock;
use crate::config::failpoint;
use crate::presence::Came;
use crate::prism::{Caller, Prism};
use crate::store::{DrainLimit, Looked};
use crate::timing::{self, Part};
use Is::{Core, End, Keyed, Local, Material as M, ReadOnly, Record, Start, Tool, Wide};
use prism_core::api::memory as wire;
use prism_core::api::page as page_api;
use prism_core::gate::Material::{self, Always, CreateOrUpdate, UnlessAcknowledging};
use prism_core::limits::{PIGGYBACK_BYTES_MAX, PIGGYBACK_SIGNALS_MAX};
use prism_core::loopback::Probe;
use prism_core::signal::SendSignal;
use prism_core::{Code, Problem, api};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use uuid::Uuid;

/// Who may call a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every key that has a persona in the project.
    Anyone,
    /// Only from inside a registered session.
    Session,
    /// Only the operator's key.
    Operator,
}

/// Whether a verb's answer carries what waits in the caller's inbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inbox {
    /// Pending signals ride on the answer.
    Drains,
    /// The answer is about the verb alone.
    Leaves,
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<Value, Problem>> + Send + 'a>>;

/// What else is true of a verb, for whoever stands in front of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Is {
    /// Agents see it as a tool.
    Tool,
    /// Among the few tools shown with `PRISM_TOOLS=core`.
    Core,
    /// Changes nothing.
    ReadOnly,
    /// Opens a session: the shim registers one first.
    Start,
    /// Writes down the session's work: the shim fills in what changed.
    Record,
    /// Ends the session.
    End,
    /// Sent under an idempotency key, and retried with it.
    Keyed,
    /// Runs in the shim; it has no HTTP door.
    Local,
    /// Work that the gate looks at.
    Material(Material),
    /// May be asked about every project at once.
    Wide,
}

pub struct Verb {
    /// What agents call it.
    pub name: &'static str,
    /// What follows `/api/v1/{pid}/`; empty for a local verb.
    pub path: &'static str,
    pub who: Who,
    pub inbox: Inbox,
    is: &'static [Is],
    pub about: &'static str,
    pub request: fn(&mut SchemaGenerator) -> Schema,
    pub answer: fn(&mut SchemaGenerator) -> Schema,
    /// Request and answer by name, each from a generator of its own.
    pub named: fn(&mut SchemaGenerator, &mut SchemaGenerator) -> (Schema, Schema),
    run: for<'a> fn(&'a Prism, &'a Caller, Value) -> Answer<'a>,
}

macro_rules! verb {
    ($name:literal, $path:literal, $who:ident, $inbox:ident, $is:expr, $function:path, $request:ty => $answer:ty, $about:literal) => {
        Verb {
            name: $name,
            path: $path,
            who: Who::$who,
            inbox: Inbox::$inbox,
            is: $is,
            about: $about,
            request: <$request as JsonSchema>::json_schema,
            answer: <$answer as JsonSchema>::json_schema,
            named: |requests, answers| {
                (
                    requests.subschema_for::<$request>(),
                    answers.subschema_for::<$answer>(),
                )
            },
            run: |prism, caller, body| {
                Box::pin(async move {
                    let answer: $answer =
                        $function(prism, caller, parse::<$request>(body)?).await?;
                    serde_json::to_value(answer).map_err(|e| {
                        Problem::new(
                            Code::Internal,
                            format!("the answer could not be written: {e}"),
                            "report this",
                        )
                    })
                })
            },
        }
    };
    (local $name:literal, $is:expr, $request:ty => $answer:ty, $about:literal) => {
        Verb {
            name: $name,
            path: "",
            who: Who::Anyone,
            inbox: Inbox::Leaves,
            is: $is,
            about: $about,
            request: <$request as JsonSchema>::json_schema,
            answer: <$answer as JsonSchema>::json_schema,
            named: |requests, answers| {
                (
                    requests.subschema_for::<$request>(),
                    answers.subschema_for::<$answer>(),
                )
            },
            run: |_, _, _| {
                Box::pin(async {
                    Err(Problem::new(
                        Code::UnknownVerb,
                        concat!($name, " runs in the shim"),
                        "call it as an MCP tool",
                    ))
                })
            },
        }
    };
}

/// Every verb. Those that are no `Tool` are for shims, scripts and the operator, not for models.
#[rustfmt::skip]
pub static VERBS: &[Verb] = &[
    verb!("prism_start", "start", Session, Leaves, &[Tool, Core, Start], lifecycle::start, api::Start => api::Started, "Begin: who you are, who else is here, what was learned, what waits. Call first."),
    verb!("prism_checkpoint", "checkpoint", Session, Leaves, &[Tool, Core, Record], lifecycle::checkpoint, wire::Wrap => wire::Wrapped, "Record what happened so far; the session goes on."),
    verb!("prism_wrap", "wrap", Session, Leaves, &[Tool, Core, Record, End], lifecycle::wrap, wire::Wrap => wire::Wrapped, "Record what happened and end the session."),
    verb!("prism_pickup", "pickup", Anyone, Drains, &[Tool], lifecycle::pickup, wire::Pickup => wire::PickedUp, "Take over from a wrap: what was done, what is open."),
    verb!("prism_status", "status", Anyone, Drains, &[Tool, Core, ReadOnly], roster::status, api::Nothing => api::Status, "Who is here: sessions, their state, pending counts."),
    verb!("prism_whois", "whois", Anyone, Drains, &[Tool, ReadOnly], roster::whois, api::Whois => api::WhoisAnswer, "One persona: its sessions and what was last proven to reach it."),
    verb!("prism_signal", "signal", Anyone, Drains, &[Tool, Core, Keyed, M(UnlessAcknowledging)], signals::send, SendSignal => api::Sent, "Send a signal to another agent or the operator; also how to reply."),
    verb!("prism_signals_pending", "signals_pending", Anyone, Leaves, &[Tool, Core], signals::pending, api::SignalsPending => api::Pending, "Read the signals waiting for you."),
    verb!("prism_signals_ack", "signals_ack", Anyone, Drains, &[Tool], signals::dismiss, api::SignalsAck => api::Dismissed, "Dismiss signals you were given."),
    verb!("prism_signal_ack", "signal_ack", Anyone, Drains, &[Tool, Core], signals::acknowledge, api::SignalAck => api::gate::Acknowledged, "Say that you saw a signal, or acted on it."),
    verb!("prism_signal_trace", "signal_trace", Anyone, Drains, &[Tool, ReadOnly], signals::trace, api::SignalTrace => api::Trace, "Where a signal got to, layer by layer, with times."),
    verb!("prism_signal_recall", "signal_recall", Anyone, Drains, &[Tool], signals::take_back, api::SignalRecall => api::Recalled, "Take back a signal nobody has read."),
    verb!("semantic_recall", "recall", Anyone, Drains, &[Tool, Core, ReadOnly], recall::recall, wire::Recall => wire::Recalled, "Look up what was learned, in plain words, before you start work."),
    verb!("prism_memory_cite", "memory_cite", Anyone, Drains, &[Tool], memory::cite, wire::Cite => api::Ok, "Say that a recalled row supported what you did."),
    verb!("prism_remember", "remember", Anyone, Drains, &[Tool, M(Always)], memory::remember, wire::Remember => wire::Id, "Keep a note, fact, rule or integration narrative."),
    verb!("prism_note", "note", Anyone, Drains, &[Tool], memory::note, wire::Note => wire::Id, "Keep a note."),
    verb!("prism_journal", "journal", Anyone, Drains, &[Tool, M(Always)], artifacts::journal, wire::Journal => wire::Id, "Write a journal entry."),
    verb!("prism_retro", "retro", Anyone, Drains, &[Tool, M(Always)], artifacts::retro, wire::Retro => wire::Id, "Write a retrospective."),
    verb!("prism_postmortem", "postmortem", Anyone, Drains, &[Tool, M(Always)], artifacts::postmortem, wire::Postmortem => wire::Id, "Write a postmortem, or resolve one."),
    verb!("prism_decide", "decide", Anyone, Drains, &[Tool, M(Always)], artifacts::decide, wire::Decide => wire::Id, "Record a decision."),
    verb!("prism_spec", "spec", Anyone, Drains, &[Tool, M(CreateOrUpdate)], artifacts::spec, wire::Document => wire::Artifacts, "Create, update, get or list specs."),
    verb!("prism_plan", "plan", Anyone, Drains, &[Tool, M(CreateOrUpdate)], artifacts::plan, wire::Document => wire::Artifacts, "Create, update, get or list plans."),
    verb!("prism_todo", "todo", Anyone, Drains, &[Tool], artifacts::todo, wire::Todo => wire::Artifacts, "Add, list, update or finish todos."),
    verb!("prism_confirm", "confirm", Anyone, Drains, &[Tool], operator::confirm, wire::Confirm => wire::Id, "Record the operator's verdict on a delta, signal, spec or commit."),
    verb!("prism_operator_input", "operator_input", Anyone, Drains, &[Tool], operator::operator_input, wire::OperatorInput => wire::Captured, "When the operator corrected, confirmed or redirected you: keep their words."),
    verb!("prism_deltas", "deltas", Anyone, Drains, &[Tool, ReadOnly], memory::deltas, wire::Deltas => wire::DeltasAnswer, "Recent deltas."),
    verb!("prism_review", "review", Operator, Leaves, &[], operator::review, wire::ReviewInputs => wire::Reviewed, "Accept or reject captured inputs, or undo that."),
    verb!("prism_inputs", "inputs", Operator, Leaves, &[], operator::inputs, wire::Inputs => wire::InputsAnswer, "Captured inputs, by review."),
    verb!("prism_graph", "graph", Anyone, Leaves, &[], memory::graph, wire::GraphShow => wire::GraphAnswer, "What stands beside a row or an entity."),
    verb!("prism_memory_stats", "memory_stats", Anyone, Leaves, &[], memory::stats, api::Nothing => wire::MemoryStats, "How much is remembered."),
    verb!("prism_memory_metrics", "memory_metrics", Anyone, Leaves, &[], memory::metrics, api::Nothing => wire::Metrics, "Verdicts, misclassifications, corrections and dead ends."),
    verb!("prism_import", "import", Operator, Leaves, &[], import::import, wire::Import => wire::Imported, "Write rows that come from a file, a batch at a time."),
    verb!("prism_memory_reembed", "memory_reembed", Operator, Leaves, &[], memory::reembed, wire::Reembed => wire::Reembedding, "Queue rows to be embedded again."),
    verb!("prism_training", "training", Operator, Leaves, &[], memory::training, api::Nothing => wire::Training, "Captured inputs with what became of them."),
    verb!("prism_memory_rot", "memory_rot", Operator, Leaves, &[], memory::rot, wire::AskRot => wire::Rot, "What in memory has gone stale."),
    verb!("prism_gate_label", "gate_label", Operator, Leaves, &[], gate::label, api::gate::GateLabel => api::gate::GateLabelled, "Say whether a gate warning was right."),
    verb!("prism_gate_report", "gate_report", Anyone, Leaves, &[], gate::report, api::Nothing => api::gate::GateReport, "Precision, warnings and recalls of the gate."),
    verb!("prism_gate_events", "gate_events", Anyone, Leaves, &[], gate::events, api::gate::ListEvents => api::gate::GateEvents, "What the gate noticed."),
    verb!("prism_loopback_issue", "signal/loopback-issue", Anyone, Leaves, &[], loopback::issue, api::LoopbackIssue => Probe, "Write a probe to one session and say what the server saw of it."),
    verb!("prism_loopback_echo", "signal/loopback-echo", Session, Leaves, &[], loopback::echo, api::LoopbackEcho => api::LoopbackEchoed, "A shim's answer to a probe."),
    verb!("prism_loopback_model", "signal/loopback-model", Anyone, Leaves, &[], loopback::model, api::LoopbackModel => api::LoopbackModelSeen, "Whether the model has read its inbox since."),
    verb!("prism_loopback_finish", "signal/loopback-finish", Anyone, Leaves, &[], loopback::finish, api::LoopbackFinish => api::Ok, "End a probe and keep its result."),
    verb!("prism_loopback_runs", "signal/loopback-runs", Anyone, Leaves, &[ReadOnly], loopback::runs, api::LoopbackRuns => api::LoopbackRunsAnswer, "Results of earlier probes, newest first."),
    verb!("prism_signals_confirm", "signals_confirm", Anyone, Leaves, &[], signals::confirm, api::SignalsConfirm => api::Confirmed, "Confirm that a drain reached its reader."),
    verb!("prism_session_register", "session_register", Anyone, Leaves, &[], sessions::register, api::SessionRegister => api::SessionRegistered, "Open a session for a running agent host."),
    verb!("prism_session_release", "session_release", Anyone, Leaves, &[], sessions::release, api::SessionRelease => api::Ok, "Close a session; the operator may close anybody's."),
    verb!("prism_session_waiting", "session_waiting", Session, Leaves, &[], sessions::waiting, api::SessionWaiting => api::Ok, "Say that the session waits for its human, or goes on."),
    verb!("prism_session_attention", "session_attention", Session, Leaves, &[], sessions::attention, api::SessionAttention => api::Ok, "Say whether somebody is at the session's host."),
    verb!("prism_session_brief", "session_brief", Session, Leaves, &[ReadOnly], lifecycle::brief, api::Nothing => api::SessionBrief, "What a session is told at its start, for a hook to say."),
    verb!("prism_session_left", "session_left", Session, Leaves, &[], lifecycle::left, api::SessionLeft => wire::Wrapped, "Leave what is known of a session whose agent did not wrap."),
    verb!("prism_heartbeat", "heartbeat", Session, Leaves, &[], sessions::heartbeat, api::Nothing => api::Ok, "Say that the session lives when it has no socket."),
    verb!("prism_ping", "ping", Anyone, Leaves, &[], roster::ping, api::Nothing => api::Ok, "Do nothing, through every layer of a request."),
    verb!("prism_persona_add", "persona_add", Operator, Leaves, &[], keys::add_persona, api::PersonaAdd => api::PersonaAdded, "Add an identity to a project."),
    verb!("prism_key_mint", "key_mint", Operator, Leaves, &[], keys::mint, api::KeyMint => api::KeyMinted, "Make a key for an identity; it is shown once."),
    verb!("prism_key_list", "key_list", Operator, Leaves, &[Wide], keys::list, api::Nothing => api::Keys, "List keys without their secrets."),
    verb!("prism_key_revoke", "key_revoke", Operator, Leaves, &[Wide], keys::revoke, api::KeyRevoke => api::Ok, "Revoke a key at once."),
    verb!(local "prism_loopback_test", &[Tool, Local], api::LoopbackTest => Probe, "Probe your own inbox: which layers a signal reaches, with times."),
    verb!(local "prism_signals", &[Tool, ReadOnly, Local], api::AskLocalSignals => api::LocalSignals, "What arrived lately and what is unread, from the local ring; works without the server."),
    verb!(local "prism_wait", &[Tool, Local], api::Wait => api::Pending, "Wait up to a minute for the next signal, then read as prism_signals_pending does; for when you have nothing else to do."),
    verb!("prism_retention", "retention", Operator, Leaves, &[Wide], retention::retained, api::Nothing => api::Retained, "What history is kept, since when, and what goes next."),
    verb!("prism_project_list", "project_list", Operator, Leaves, &[Wide], projects::list, api::Nothing => api::ProjectList, "Every project with its folders."),
    verb!("prism_project_allow", "project_allow", Operator, Leaves, &[], projects::allow, api::ProjectFolder => api::Ok, "Let the sessions of a folder use a project."),
    verb!("prism_project_forget", "project_forget", Operator, Leaves, &[], projects::forget, api::ProjectFolder => api::Ok, "Take a folder away from a project."),
    verb!("prism_project_merge", "project_merge", Operator, Leaves, &[], projects::merge, api::ProjectMerge => api::Ok, "Make one project out of two."),
    verb!("prism_now", "now", Operator, Leaves, &[ReadOnly, Wide], page::now::now, api::Nothing => page_api::Now, "What waits on the operator now."),
    verb!("prism_agents", "agents", Operator, Leaves, &[ReadOnly, Wide], page::now::agents, api::Nothing => page_api::Agents, "Every agent: its state, what it is at, what waits for it, what was last proven to reach it."),
    verb!("prism_session_list", "session_list", Operator, Leaves, &[ReadOnly, Wide], page::sessions::list, page_api::ListSessions => page_api::SessionPage, "Sessions past and present, newest first."),
    verb!("prism_signal_list", "signal_list", Operator, Leaves, &[ReadOnly, Wide], page::signals::list, page_api::signals::ListSignals => page_api::signals::SignalPage, "Signals by identity, category, state, time and words, newest first."),
    verb!("prism_signal_show", "signal_show", Operator, Leaves, &[ReadOnly, Wide], page::signals::show, page_api::signals::ShowSignal => page_api::signals::SignalShown, "One signal with its thread, every receipt, and why it is stuck."),
    verb!("prism_inbox", "inbox", Operator, Leaves, &[ReadOnly], page::signals::inbox, page_api::signals::LookInbox => page_api::signals::InboxPage, "What waits in an inbox, without reading it for its owner."),
    verb!("prism_inbox_read", "inbox_read", Operator, Leaves, &[], page::signals::read, page_api::signals::ReadInbox => page_api::signals::InboxRead, "Mark signals to the operator as read."),
    verb!("prism_memory_list", "memory_list", Operator, Leaves, &[ReadOnly, Wide], page::memory::list, page_api::memory::ListMemory => page_api::memory::MemoryPage, "Rows of memory by kind, identity, time and words, newest first."),
    verb!("prism_memory_show", "memory_show", Operator, Leaves, &[ReadOnly, Wide], page::memory::show, page_api::memory::ShowMemory => page_api::memory::MemoryShown, "One row of memory with its versions, verdicts and neighbours."),
    verb!("prism_recall_list", "recall_list", Operator, Leaves, &[ReadOnly, Wide], page::memory::recalls, page_api::memory::ListRecalls => page_api::memory::RecallPage, "What was recalled, shown and cited, newest first."),
    verb!("prism_input_list", "input_list", Operator, Leaves, &[ReadOnly, Wide], page::memory::inputs, page_api::memory::ListInputs => page_api::memory::InputPage, "Captured inputs by review, class, agent and time, newest first."),
    verb!("prism_story", "story", Operator, Leaves, &[ReadOnly, Wide], page::story::story, page_api::story::AskStory => page_api::story::StoryPage, "One line through time: signals, recalls, deltas, verdicts and inputs, linked."),
    verb!("prism_metrics", "metrics", Operator, Leaves, &[ReadOnly, Wide], page::metrics::metrics, page_api::metrics::AskMetrics => page_api::metrics::MetricsAnswer, "Verdicts, corrections, dead ends, recalls and the gate over time."),
    verb!("prism_delivery", "delivery", Operator, Leaves, &[ReadOnly, Wide], page::metrics::delivery, page_api::metrics::AskDelivery => page_api::metrics::DeliveryAnswer, "Whether signals arrive, by surface and machine."),
    verb!("prism_probe_list", "probe_list", Operator, Leaves, &[ReadOnly, Wide], page::probes::list, page_api::house::ListProbes => page_api::house::ProbePage, "Probes by identity, surface, machine, outcome and time, newest first."),
    verb!("prism_probe_run", "probe_run", Operator, Leaves, &[], page::probes::run, page_api::house::RunProbe => Probe, "Probe a session from the server, and wait for what its shim says."),
    verb!("prism_gate_list", "gate_list", Operator, Leaves, &[ReadOnly, Wide], page::gate::list, page_api::ListGateEvents => page_api::GatePage, "What the gate noticed, by outcome, label, agent and time, newest first."),
    verb!("prism_settings", "settings", Operator, Leaves, &[ReadOnly, Wide], page::settings::settings, api::Nothing => page_api::house::Settings, "Projects, personas, keys, retention, and what is stored."),
    verb!("prism_dashboard_link", "dashboard_link", Operator, Leaves, &[Wide], page::sign_in::link, api::Nothing => page_api::house::DashboardLink, "A link that opens the page in one browser, once."),
    verb!("prism_demo", "demo", Operator, Leaves, &[Wide], page::demo::demo, page_api::house::AskDemo => page_api::house::DemoDone, "Write a believable week into a project of its own, or take it away."),
    verb!("prism_projects", "projects", Anyone, Leaves, &[Wide], roster::projects, api::Nothing => api::ProjectsAnswer, "The projects this key may see."),
];

pub fn by_path(path: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|v| v.path == path && !v.is(Local))
}

pub fn by_name(name: &str) -> Option<&'static Verb> {
    VERBS.iter().find(|v| v.name == name)
}

/// Reads a request, naming the field that is wrong.
pub fn parse<T: DeserializeOwned>(body: Value) -> Result<T, Problem> {
    serde_path_to_error::deserialize(body).map_err(|error| {
        let path = error.path().to_string();
        let what = error.inner().to_string();
        let place = if path == "." {
            String::new()
        } else {
            format!("`{path}`: ")
        };
        Problem::new(
            Code::InvalidRequest,
            format!("{place}{what}"),
            "`/api/v1/openapi.json` and `prism <command> --help` list the fields",
        )
    })
}

/// Adds what waits in the caller's inbox to an answer, under a lease.
const PIGGYBACK: DrainLimit = DrainLimit {
    signals: PIGGYBACK_SIGNALS_MAX,
    payload_bytes: PIGGYBACK_BYTES_MAX,
};

async fn piggyback(
    prism: &Prism,
    caller: &Caller,
    session: Uuid,
    looked: Looked,
    answer: &mut Map<String, Value>,
) -> Result<(), Problem> {
    let (inbox, now) = (caller.persona.id, clock::now());
    if failpoint("piggyback.fail") {
        return Err(Problem::new(Code::Internal, "a failpoint", "switch it off"));
    }
    if !prism.store.still_pending(looked, inbox, now).await? {
        return Ok(());
    }
    let leased = prism.store.lease(inbox, Some(session), PIGGYBACK, now);
    let Some(drain) = leased.await? else {
        return Ok(());
    };
    answer.insert("lease_id".into(), drain.lease_id.to_string().into());
    answer.insert(
        "signals".into(),
        serde_json::to_value(drain.envelopes).unwrap_or_default(),
    );
    if drain.more > 0 {
        answer.insert("signals_more".into(), drain.more.into());
    }
    Ok(())
}

impl Verb {
    /// Runs the verb for a caller who was authenticated: who may, what it
    /// does, and what waits in the inbox.
    pub async fn call(
        &self,
        prism: &Prism,
        caller: &Caller,
        mut body: Map<String, Value>,
    ) -> Result<Value, Problem> {
        // Every verb accepts `pid`; the path has decided it already.
        body.remove("pid");
        self.admit(caller)?;
        if caller.everywhere && !self.is(Wide) {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("{} is about one project", self.name),
                "name the project in the path instead of `*`",
            ));
        }
        self.note_first_verb(prism, caller).await?;
        let material = self.is_material(&body);
        let reader = caller.session_id().filter(|_| self.inbox == Inbox::Drains);
        let running = (self.run)(prism, caller, Value::Object(body));
        let (answer, looked) = match reader {
            Some(_) => {
                let inbox = caller.persona.id;
                prism.store.looking(inbox, clock::now(), running).await
            }
            None => (running.await, Looked::default()),
        };
        let mut answer = answer?;
        if material {
            prism.gate.produced(&prism.store, caller).await;
        }
        if let Some(session) = reader
            && let Value::Object(answer) = &mut answer
        {
            // The verb has done its work: an inbox that cannot be read now is read with the next.
            let adding = piggyback(prism, caller, session, looked, answer);
            if let Err(problem) = timing::of(Part::Piggyback, adding).await {
                tracing::warn!(%problem, "Could not add what waits to an answer");
            }
        }
        Ok(answer)
    }

    pub fn is(&self, what: Is) -> bool {
        self.is.contains(&what)
    }

    fn is_material(&self, body: &Map<String, Value>) -> bool {
        let said = |field: &str| body.get(field).and_then(Value::as_str);
        self.is.iter().any(|is| match is {
            M(when) => when.is_met(said("action"), said("signal_type")),
            _ => false,
        })
    }

    fn admit(&self, caller: &Caller) -> Result<(), Problem> {
        match self.who {
            Who::Operator if !caller.is_operator => Err(Problem::new(
                Code::OperatorOnly,
                format!("{} is for the operator", self.name),
                "unset PRISM_AGENT_IDENTITY and leave out --as to act as the operator",
            )),
            Who::Session if caller.session.is_none() => Err(Problem::new(
                Code::UnknownSession,
                format!("{} needs a session", self.name),
                "register one and send its id as the `Prism-Session` header",
            )),
            _ => Ok(()),
        }
    }

    async fn note_first_verb(&self, prism: &Prism, caller: &Caller) -> Result<(), Problem> {
        // What the shim does by itself is no sign of an agent at work.
        if !self.is(Tool) {
            return Ok(());
        }
        let Some(session) = &caller.session else {
            return Ok(());
        };
        let mut came = prism.presence.verb(session.id, clock::now());
        if came == Came::First {
            match lifecycle::opened(prism, caller, session.id, self.name).await {
                Ok(true) => {}
                // Another server was quicker, and has told its peers.
                Ok(false) => came = Came::Known,
                Err(problem) => {
                    prism.presence.not_opened(session.id);
                    return Err(problem);
                }
            }
        }
        prism.announce_arrival(session, came);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn material_verbs_are_those_of_the_list() {
        for (verb, body, material) in [
            ("prism_journal", json!({}), true),
            ("prism_remember", json!({}), true),
            ("prism_postmortem", json!({}), true),
            ("prism_decide", json!({}), true),
            ("prism_retro", json!({}), true),
            ("prism_spec", json!({"action": "create"}), true),
            ("prism_spec", json!({"action": "list"}), false),
            ("prism_plan", json!({"action": "update"}), true),
            ("prism_signal", json!({"signal_type": "Answer"}), true),
            (
                "prism_signal",
                json!({"signal_type": "Acknowledgment"}),
                false,
            ),
            ("prism_signal", json!({"signal_type": "Loopback"}), false),
            ("prism_signal_ack", json!({}), false),
            ("prism_note", json!({}), false),
            ("prism_checkpoint", json!({}), false),
            ("prism_todo", json!({"action": "add"}), false),
        ] {
            let known = by_name(verb).unwrap();
            let body_map = body.as_object().unwrap();
            assert_eq!(known.is_material(body_map), material, "{verb} {body}");
        }
    }

    #[test]
    fn a_local_verb_has_no_http_door() {
        for verb in VERBS {
            assert_eq!(verb.is(Local), verb.path.is_empty(), "{}", verb.name);
            assert_eq!(
                verb.is(Local),
                by_path(verb.path).is_none(),
                "{}",
                verb.name
            );
        }
    }
}
