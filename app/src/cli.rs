//! The operator's command line: every verb, drawn for people, or `--json`.

mod artifacts;
mod backup;
mod coder;
mod connect;
mod dashboard;
mod doctor;
mod export;
mod gate;
mod import;
mod keys;
mod lifecycle;
mod lists;
mod loopback;
mod memory;
mod model;
mod moving;
mod projects;
mod review;
mod roster;
mod serve;
mod signals;
mod tenant;
mod up;
mod watch;

use crate::client::{self, Client, Locator};
use crate::clock;
use crate::config::{self, Env, ProjectChoice};
use crate::home::Home;
use crate::shim::statusline::Line;
use crate::ui::{Failure, Outcome, Style, note, out, short};
use clap::{CommandFactory, Parser, Subcommand};
use prism_core::api::memory::Id;
use prism_core::connect::Pins;
use prism_core::limits::PAGE_ROWS;
use prism_core::ring::ByCategory;
use prism_core::text::one_line;
use prism_core::{Code, Identity, Problem, api};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Read;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// Signals, proof of delivery and memory for one operator and many coding agents.
#[derive(Parser)]
#[command(
    name = "prism",
    version,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Command,
}

/// The heading above what every command takes, apart from its own options.
const EVERYWHERE: &str = "Everywhere";

#[derive(clap::Args, Clone)]
struct Shared {
    /// Act as this agent, with its key [default: PRISM_AGENT_IDENTITY, else the operator]
    #[arg(
        long = "as",
        id = "as",
        global = true,
        value_name = "IDENTITY",
        help_heading = EVERYWHERE
    )]
    identity: Option<String>,
    /// The project; it must exist [default: PRISM_PID, .prism/project.toml, the folder's name]
    #[arg(long, global = true, value_name = "PID", help_heading = EVERYWHERE)]
    pid: Option<String>,
    /// Print the answer as JSON
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    json: bool,
}

// What a command takes is worked out when it is the one that was typed.
#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    /// Run the server
    Serve(serve::Serve),
    /// Start the server in the background, unless one runs
    Up(up::Up),
    /// Stop the background server
    Down(up::Down),
    /// Stop the background server and start it again
    Restart(up::Restart),
    /// What the background server logged
    Logs(up::Logs),
    #[command(hide = true)]
    Background(crate::background::Between),
    /// Start an agent's host: name, project, server and terminal title
    Coder(coder::Coder),
    #[command(hide = true)]
    CoderHost(coder::CoderHost),
    /// Run the MCP shim beside an agent host (the host starts this)
    Mcp,
    /// Send a signal to an agent or to the operator
    Send(signals::Send),
    /// Read what waits in the inbox
    Pending(signals::Pending),
    /// Wait for the next signal, and read it
    Wait(signals::Wait),
    /// The local ring, and what can be done with one signal
    Signals(signals::Signals),
    /// Show where a signal got to, layer by layer
    Trace(signals::Trace),
    /// Probe a session: where does a signal get to, layer by layer?
    LoopbackTest(loopback::LoopbackTest),
    /// Who is here and what waits for them
    Status,
    /// One persona: its sessions, and what was last proven to reach it
    Whois(roster::Whois),
    /// What an agent's session was told at its start
    Start(lifecycle::Start),
    /// Record what an agent's session did so far; it goes on
    #[command(after_help = CHECKPOINT_EXAMPLES)]
    Checkpoint(lifecycle::Record),
    /// Record what an agent's session did, and end it
    #[command(after_help = WRAP_EXAMPLES)]
    Wrap(lifecycle::Record),
    /// Take over from a wrap: what was done, what is open
    Pickup(lifecycle::Pickup),
    /// What sessions recorded lately
    Deltas(lifecycle::Deltas),
    /// Look up what was learned, in plain words
    Recall(memory::Recall),
    /// Say that a recalled row helped
    Cite(memory::Cite),
    /// Say that something works, is broken, or partly works
    Confirm(memory::Confirm),
    /// Keep a correction, confirmation or change of direction
    Input(memory::Input),
    /// Accept or reject what agents captured of your words
    Review(review::Review),
    /// Keep a note, fact, rule or integration narrative
    Remember(memory::Remember),
    /// Keep a note
    Note(memory::Note),
    /// Write a journal entry
    Journal(artifacts::Journal),
    /// Write a retrospective
    Retro(artifacts::Retro),
    /// Write a postmortem, or resolve one
    Postmortem(artifacts::Postmortem),
    /// Record a decision
    Decide(artifacts::Decide),
    /// Specs of the project, with their versions
    #[command(after_help = SPEC_EXAMPLES)]
    Spec(artifacts::Document),
    /// Plans of the project, with their versions
    #[command(after_help = PLAN_EXAMPLES)]
    Plan(artifacts::Document),
    /// Todos of the project
    Todo(artifacts::Todo),
    /// The graph around a row or an entity
    Graph(memory::Graph),
    /// What is remembered, and what the operator said of it
    Memory(memory::Memory),
    /// Bring in rows from JSON lines or Markdown
    Import(import::Import),
    /// Write out what the operator said, as examples
    Export(export::Export),
    /// The embedding model that recall by meaning needs
    Model(model::Model),
    #[command(hide = true)]
    EmbedWorker(model::EmbedWorker),
    /// Did work begin with recall? Warnings, labels, precision
    Gate(gate::Gate),
    /// Watch the project's signals as they are sent
    Watch,
    /// Open the page in the browser: what waits on you, what they did, what you said
    Dashboard(dashboard::Dashboard),
    /// What waits on you now
    Now(dashboard::NowArgs),
    /// Every agent: its state, what it is at, what waits for it
    Agents(dashboard::AgentsArgs),
    /// Look into an inbox without reading it
    Inbox(dashboard::Inbox),
    /// One line through time: what was asked, looked up, done, and what you said of it
    Story(lists::Story),
    /// What the operator's words say about the agents, over time
    Metrics(lists::Metrics),
    /// Whether signals arrive, by surface and machine
    Delivery(lists::Delivery),
    /// Projects, keys, hosts, what is kept, and how large it is
    Settings,
    /// A believable week in a project of its own, to look around in
    Demo(dashboard::Demo),
    /// Personas of a project
    Persona(keys::Persona),
    /// Which folders use which project
    Project(projects::Project),
    /// Keys of agents
    Key(keys::Key),
    /// Sessions of agent hosts
    Session(roster::Session),
    /// Put Prism into an agent host: server, hooks, status line
    Connect(connect::Connect),
    /// Take Prism out of an agent host again
    Disconnect(connect::Disconnect),
    /// Copy this home's database into a file, while a server runs too
    Backup(backup::Backup),
    /// Put such a copy in the place of this home's database
    Restore(backup::Restore),
    /// Move every row from SQLite to PostgreSQL, or back
    MigrateStore(moving::MigrateStore),
    /// Several teams on one PostgreSQL, each with rows of its own
    Tenant(tenant::Tenant),
    /// Look at this machine's Prism and say what is wrong
    Doctor,
    /// Say whether the server takes what it is sent, for whoever watches over it (exit 1: not now)
    Ready,
    /// Measure this machine's Prism
    Bench(crate::bench::Bench),
    /// One line for a host's status bar
    Statusline {
        /// `always` or `never` [default: always, unless NO_COLOR is set]
        #[arg(long, value_parser = ["always", "never"], hide_possible_values = true)]
        color: Option<String>,
        /// Your own status line's command: its lines come first, then Prism's
        #[arg(long, value_name = "COMMAND")]
        append_to: Option<String>,
    },
    /// Answer an agent host's hook (the host runs this, with its event on standard input)
    Hook {
        /// claude-code, codex, cursor, vscode, gemini or opencode [default: seen by the event]
        host: Option<String>,
        #[arg(long, hide = true)]
        rewake: bool,
    },
    /// Print the types of the wire in TypeScript, for the page's sources
    #[command(hide = true)]
    WireTypes,
    /// Print a shell's completion script
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

/// The commands that are run most: by hooks, scripts and agents, many times a minute.
#[derive(Subcommand)]
#[command(defer = true)]
enum Often {
    Send(signals::Send),
    Pending(signals::Pending),
    Status,
    Whois(roster::Whois),
    Recall(memory::Recall),
    Note(memory::Note),
}

/// Their own parser: building the one of all commands takes longer than what these do. It never
/// has the last word: what it does not understand goes to the whole one.
#[derive(Parser)]
#[command(name = "prism", disable_help_flag = true, disable_version_flag = true)]
#[command(disable_help_subcommand = true)]
struct Quick {
    #[command(flatten)]
    shared: Shared,
    #[command(subcommand)]
    command: Often,
}

impl From<Quick> for Cli {
    fn from(quick: Quick) -> Self {
        Self {
            shared: quick.shared,
            command: match quick.command {
                Often::Send(send) => Command::Send(send),
                Often::Pending(pending) => Command::Pending(pending),
                Often::Status => Command::Status,
                Often::Whois(whois) => Command::Whois(whois),
                Often::Recall(recall) => Command::Recall(recall),
                Often::Note(note) => Command::Note(note),
            },
        }
    }
}

impl Command {
    fn is_one_of_often(&self) -> bool {
        use Command::{Note, Pending, Recall, Send, Status, Whois};
        matches!(
            self,
            Send(_) | Pending(_) | Status | Whois(_) | Recall(_) | Note(_)
        )
    }
}

impl Cli {
    fn read(args: Vec<OsString>) -> Result<Self, clap::Error> {
        let often = Often::has_subcommand;
        let name = args.get(1).and_then(|name| name.to_str());
        if name.is_some_and(often)
            && let Ok(quick) = Quick::try_parse_from(&args)
        {
            return Ok(quick.into());
        }
        Self::try_parse_from(args)
    }
}

const CHECKPOINT_EXAMPLES: &str = "Examples:
  prism checkpoint \"the ring survives a restart\" --as Texi --file core/src/ring.rs
  prism checkpoint - --as Texi --effect \"the bell stays until it is read\" < notes.md";
const WRAP_EXAMPLES: &str = "Examples:
  prism wrap \"the ring is done\" --as Texi --next \"the status line\" --open-loop \"colours\"
  prism wrap \"no luck\" --as Texi --ruled-out \"a named pipe\" \"it blocks without a reader\"";
const SPEC_EXAMPLES: &str = "Examples:
  prism spec create \"The ring file\" - < ring.md
  prism spec update 4 --status accepted
  prism spec get 4 --at 1";
const PLAN_EXAMPLES: &str = "Examples:
  prism plan create \"This week\" \"ring, then status line\"
  prism plan update 2 --body - < plan.md
  prism plan list";

/// The command that is a verb's third door, for every verb that agents have.
pub const DOORS: &[(&str, &[&str])] = &[
    ("prism_start", &["start"]),
    ("prism_checkpoint", &["checkpoint"]),
    ("prism_wrap", &["wrap"]),
    ("prism_pickup", &["pickup"]),
    ("prism_status", &["status"]),
    ("prism_whois", &["whois"]),
    ("prism_signal", &["send"]),
    ("prism_signals_pending", &["pending"]),
    ("prism_wait", &["wait"]),
    ("prism_signals_ack", &["signals dismiss"]),
    ("prism_signal_ack", &["signals ack"]),
    ("prism_signals", &["signals tail", "signals count"]),
    ("prism_signal_trace", &["trace"]),
    ("prism_signal_recall", &["signals recall"]),
    ("prism_loopback_test", &["loopback-test"]),
    ("semantic_recall", &["recall"]),
    ("prism_memory_cite", &["cite"]),
    ("prism_remember", &["remember"]),
    ("prism_note", &["note"]),
    ("prism_journal", &["journal"]),
    ("prism_retro", &["retro"]),
    ("prism_postmortem", &["postmortem"]),
    ("prism_decide", &["decide"]),
    (
        "prism_spec",
        &["spec create", "spec update", "spec get", "spec list"],
    ),
    (
        "prism_plan",
        &["plan create", "plan update", "plan get", "plan list"],
    ),
    (
        "prism_todo",
        &["todo add", "todo list", "todo update", "todo done"],
    ),
    ("prism_confirm", &["confirm"]),
    ("prism_operator_input", &["input"]),
    ("prism_deltas", &["deltas"]),
];

/// What a server answers at once or not at all: whoever looks is told so soon.
const GLANCES: &[&str] = &["status", "whois", "ping", "now", "agents", "inbox"];

/// What a verb that only looks answers of a project that does not exist yet: that there is nothing.
/// None for a verb that does more.
fn nothing_yet(path: &str, body: &Value) -> Option<Value> {
    let range = || {
        let at = clock::now();
        json!({"since": at, "until": at, "bucket": "day", "buckets": []})
    };
    let with = |mut answer: Value, field: &str| {
        answer[field] = json!([]);
        answer
    };
    Some(match path {
        "now" => {
            json!({"at": clock::now(), "to_me": [], "unread": [], "waiting": [], "inputs": [], "warnings": []})
        }
        "agents" => json!({"agents": []}),
        "inbox" => {
            let identity = body["identity"].as_str().unwrap_or("you");
            json!({"identity": identity, "unread": ByCategory::default(), "signals": []})
        }
        "signal_list" => json!({"signals": []}),
        "story" => json!({"items": []}),
        "memory_list" => json!({"rows": []}),
        "recall_list" => json!({"events": []}),
        "session_list" => json!({"sessions": []}),
        "gate_list" => json!({"events": []}),
        "probe_list" => json!({"runs": []}),
        "metrics" => range(),
        "delivery" => with(range(), "places"),
        _ => return None,
    })
}

/// Whether a question has more to it than how many rows are wanted.
fn asks_for_something(body: &Value) -> bool {
    let fields = body.as_object().into_iter().flatten();
    fields.into_iter().any(|(name, value)| {
        let said = !value.is_null() && *value != json!([]);
        said && (name != "limit" || *value != json!(PAGE_ROWS))
    })
}

/// The names of all commands that people are shown.
pub fn commands() -> Vec<String> {
    let shown = Cli::command();
    let shown = shown.get_subcommands().filter(|c| !c.is_hide_set());
    shown.map(|c| c.get_name().to_owned()).collect()
}

/// What every command needs: where, who, which project, how to print.
pub struct Context {
    pub env: Env,
    pub home: Home,
    pub style: Style,
    pub json: bool,
    /// None: the operator.
    pub identity: Option<Identity>,
    pub project: ProjectChoice,
    /// The command does nothing but call, one call after the other.
    alone: bool,
    /// One for all calls of a command: its key is read once, and its connection kept.
    client: OnceLock<Client>,
    /// Whether it was said whose project this is.
    folder_told: AtomicBool,
}

impl Context {
    /// `home` is the one that the command itself names.
    fn new(shared: &Shared, home: Option<Home>) -> Result<Self, Failure> {
        let env = Env::read()?;
        let parse = |name: &str| Identity::parse(name).map_err(Failure::from);
        let identity = shared
            .identity
            .as_deref()
            .or(env.identity.as_deref())
            .map(parse)
            .transpose()?;
        let cwd = std::env::current_dir()
            .map_err(|e| anyhow::anyhow!("cannot tell the working directory: {e}"))?;
        let project = config::choose_project(shared.pid.as_deref(), &env, &cwd)?;
        Ok(Self {
            home: home.map_or_else(|| env.prism_home(), Ok)?,
            style: Style::of_stdout(env.no_color),
            json: shared.json,
            identity,
            project,
            alone: false,
            client: OnceLock::new(),
            folder_told: AtomicBool::new(false),
            env,
        })
    }

    pub fn client(&self) -> Result<Client, Problem> {
        if let Some(client) = self.client.get() {
            return Ok(client.clone());
        }
        let key = client::find_key(&self.env, &self.home, self.identity.as_ref())?;
        let client = Client::new(Locator::of(&self.env, &self.home)?, key)?;
        let client = client.once_called(&self.project);
        let client = match self.alone {
            true => client.alone(),
            false => client,
        };
        let client = match self.project.named {
            true => client,
            false => client.creating_project(),
        };
        Ok(self.client.get_or_init(|| client).clone())
    }

    pub fn pid(&self) -> &str {
        self.project.pid.as_str()
    }

    pub async fn call(&self, path: &str, body: Value) -> Result<Value, Failure> {
        self.call_in(None, path, body).await
    }

    /// Calls a verb, as part of a session when one is given; an identity that is new to a project
    /// found (not named) is added first.
    async fn call_in(
        &self,
        session: Option<Uuid>,
        path: &str,
        body: Value,
    ) -> Result<Value, Failure> {
        let mut client = self.client()?.with_session(session);
        let nothing = nothing_yet(path, &body).filter(|_| !self.project.named);
        if nothing.is_some() {
            client = client.looking();
        }
        if GLANCES.contains(&path) {
            client = client.with_patience(client::GLANCE);
        }
        if self.identity.is_none() && !path.starts_with("project_") {
            client = client.speaking_from(&self.project);
        }
        let first = match (path, body.clone()) {
            ("signal", Value::Object(map)) => {
                let say = client::Unreachable::Say;
                client.send_signal(self.pid(), map, say).await
            }
            (_, body) => client.call(self.pid(), path, body).await,
        };
        self.warn_of_foreign_folder(&client);
        if let (Err(problem), Some(nothing)) = (&first, nothing)
            && problem.is(Code::UnknownProject)
        {
            // Where there is nothing to filter, nonsense is nonsense all the same.
            if self.identity.is_none() && asks_for_something(&body) && path != "inbox" {
                client.call(api::page::EVERYWHERE, path, body).await?;
            }
            note(&format!(
                "{} does not exist yet: the first agent, signal or note here makes it; --pid names another",
                self.pid()
            ));
            return Ok(nothing);
        }
        match (first, &self.identity) {
            (Err(p), Some(identity))
                if (p.is(Code::UnknownProject) || p.is(Code::NoPersona)) && !self.project.named =>
            {
                let Some(key) = client::operator_key(&self.env, &self.home)? else {
                    return Err(p.into());
                };
                Client::new(client.locator().clone(), key)?
                    .standing_at(&self.project)
                    .ensure_persona(self.pid(), identity)
                    .await?;
                Ok(client.call(self.pid(), path, body).await?)
            }
            (first, _) => Ok(first?),
        }
    }

    /// The operator may write anywhere, but not by accident: says once when the project that was
    /// found belongs to another folder.
    fn warn_of_foreign_folder(&self, client: &Client) {
        let (Some(found), Some(there)) = (&self.project.found, client.elsewhere()) else {
            return;
        };
        if self.folder_told.swap(true, Ordering::Relaxed) {
            return;
        }
        note(&format!(
            "warning: {pid} is the project of {there}, and this is {here}; name another with \
             --pid, or run `prism project allow {pid}` here if they are one",
            pid = self.pid(),
            here = found.folder
        ));
    }

    /// Calls a verb and reads its answer.
    pub async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: Value,
    ) -> Result<(T, Value), Failure> {
        self.ask_in(None, path, body).await
    }

    async fn ask_in<T: serde::de::DeserializeOwned>(
        &self,
        session: Option<Uuid>,
        path: &str,
        body: Value,
    ) -> Result<(T, Value), Failure> {
        let answer = self.call_in(session, path, body).await?;
        let typed = serde_json::from_value(answer.clone()).map_err(|e| {
            anyhow::anyhow!(
                "the server's answer is not what this prism expects ({e}); are both of one version?"
            )
        })?;
        Ok((typed, answer))
    }
}

/// Runs the command line and returns the exit code: 0 done, 1 the answer is no, 2 could not run.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    let first = args.get(1).cloned();
    let cli = match Cli::read(args) {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return match first.as_deref().and_then(|name| name.to_str()) {
                // Whatever a host was told to run: its bar shows a line, and its agent is not held
                // up by our exit code.
                Some("statusline") if error.use_stderr() => {
                    Line::default().print();
                    0
                }
                Some("hook") => 0,
                _ => error.exit_code() as u8,
            };
        }
    };
    let json = cli.shared.json;
    let failure = match dispatch(cli) {
        Ok(()) => return 0,
        Err(failure) => failure,
    };
    if let Some((message, hint)) = failure.words() {
        note(&format!("prism: {message}"));
        if let Some(hint) = hint.filter(|h| !h.is_empty()) {
            note(&format!("hint: {hint}"));
        }
    }
    match failure {
        Failure::Negative => 1,
        Failure::Exit(code) => code,
        Failure::Unable { .. } => 2,
        Failure::Refused(problem) => {
            // A program reads the facts, such as the key to send a signal again with.
            if json {
                print_json(&problem.body());
            }
            2
        }
    }
}

fn dispatch(cli: Cli) -> Outcome {
    if let Command::Completions { shell } = cli.command {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "prism", &mut script);
        out(String::from_utf8_lossy(&script).trim_end());
        return Ok(());
    }
    if let Command::WireTypes = cli.command {
        out(crate::server::typescript::build().trim_end());
        return Ok(());
    }
    if let Command::Statusline { color, append_to } = cli.command {
        let line = Line {
            identity: cli.shared.identity,
            color,
            append_to,
        };
        match cli.shared.json {
            true => print_json(&serde_json::json!({"line": line.text()})),
            false => line.print(),
        }
        return Ok(());
    }
    if let Command::Hook { host, rewake } = cli.command {
        return match crate::hook::answered(host.as_deref(), rewake, std::time::Instant::now()) {
            0 => Ok(()),
            code => Err(Failure::Exit(code)),
        };
    }
    // A project file that cannot be read must not keep a host from its shim.
    if let Command::Mcp = cli.command {
        let env = Env::read()?;
        return block_on(false, boxed(|| crate::shim::run(env)));
    }
    match cli.command {
        Command::Background(between) => {
            return match between.run()? {
                true => Ok(()),
                false => Err(Failure::Negative),
            };
        }
        Command::CoderHost(host) => return host.run(),
        _ => {}
    }
    let named = match &cli.command {
        Command::Serve(serve) => serve.home(),
        _ => None,
    };
    let mut context = Context::new(&cli.shared, named)?;
    context.alone = cli.command.is_one_of_often();
    let pins = Pins {
        identity: cli.shared.identity.clone(),
        pid: cli.shared.pid.clone(),
    };
    match cli.command {
        Command::Serve(serve) => return block_on(true, boxed(|| serve.run(context))),
        Command::Bench(bench) => {
            let many_threads = !bench.is_peer();
            return block_on(many_threads, boxed(|| bench.run(context)));
        }
        Command::Model(model) => return model.run(&context),
        Command::Backup(backup) => return backup.run(&context),
        Command::Restore(restore) => return restore.run(&context),
        Command::MigrateStore(moving) => return moving.run(&context),
        Command::Tenant(tenant) => return tenant.run(&context),
        Command::Up(up) => return up.run(&context),
        Command::Down(down) => return down.run(&context),
        Command::Restart(restart) => return restart.run(&context),
        Command::Logs(logs) => return logs.run(&context),
        Command::EmbedWorker(worker) => return worker.run(),
        _ => {}
    }
    let command = match cli.command {
        Command::Send(send) => boxed(|| send.run(context)),
        Command::Pending(pending) => boxed(|| pending.run(context)),
        Command::Wait(wait) => boxed(|| wait.run(context)),
        Command::Signals(signals) => boxed(|| signals.run(context)),
        Command::Trace(trace) => boxed(|| trace.run(context)),
        Command::LoopbackTest(test) => boxed(|| test.run(context)),
        Command::Status => boxed(|| roster::status(context)),
        Command::Whois(whois) => boxed(|| whois.run(context)),
        Command::Start(start) => boxed(|| start.run(context)),
        Command::Checkpoint(record) => boxed(|| record.run(context, "checkpoint")),
        Command::Wrap(record) => boxed(|| record.run(context, "wrap")),
        Command::Pickup(pickup) => boxed(|| pickup.run(context)),
        Command::Deltas(deltas) => boxed(|| deltas.run(context)),
        Command::Recall(recall) => boxed(|| recall.run(context)),
        Command::Cite(cite) => boxed(|| cite.run(context)),
        Command::Confirm(confirm) => boxed(|| confirm.run(context)),
        Command::Input(input) => boxed(|| input.run(context)),
        Command::Review(review) => boxed(|| review.run(context)),
        Command::Remember(remember) => boxed(|| remember.run(context)),
        Command::Note(note) => boxed(|| note.run(context)),
        Command::Journal(journal) => boxed(|| journal.run(context)),
        Command::Retro(retro) => boxed(|| retro.run(context)),
        Command::Postmortem(postmortem) => boxed(|| postmortem.run(context)),
        Command::Decide(decide) => boxed(|| decide.run(context)),
        Command::Spec(spec) => boxed(|| spec.run(context, "spec")),
        Command::Plan(plan) => boxed(|| plan.run(context, "plan")),
        Command::Todo(todo) => boxed(|| todo.run(context)),
        Command::Graph(graph) => boxed(|| graph.run(context)),
        Command::Memory(memory) => boxed(|| memory.run(context)),
        Command::Export(export) => boxed(|| export.run(context)),
        Command::Import(import) => boxed(|| import.run(context)),
        Command::Gate(gate) => boxed(|| gate.run(context)),
        Command::Watch => boxed(|| watch::run(context)),
        Command::Dashboard(dashboard) => boxed(|| dashboard.run(context)),
        Command::Now(now) => boxed(|| now.run(context)),
        Command::Agents(agents) => boxed(|| agents.run(context)),
        Command::Inbox(inbox) => boxed(|| inbox.run(context)),
        Command::Story(story) => boxed(|| story.run(context)),
        Command::Metrics(metrics) => boxed(|| metrics.run(context)),
        Command::Delivery(delivery) => boxed(|| delivery.run(context)),
        Command::Settings => boxed(|| lists::settings(context)),
        Command::Demo(demo) => boxed(|| demo.run(context)),
        Command::Persona(persona) => boxed(|| persona.run(context)),
        Command::Project(project) => boxed(|| project.run(context)),
        Command::Key(key) => boxed(|| key.run(context)),
        Command::Session(session) => boxed(|| session.run(context)),
        Command::Connect(connect) => boxed(|| connect.run(context, pins)),
        Command::Disconnect(disconnect) => boxed(|| async { disconnect.run(context) }),
        Command::Doctor => boxed(|| doctor::run(context)),
        Command::Ready => boxed(|| doctor::ready(context)),
        Command::Coder(coder) => boxed(|| coder.run(context)),
        // Handled before any of this is set up, or above.
        Command::Statusline { .. }
        | Command::Hook { .. }
        | Command::Serve(_)
        | Command::Mcp
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::MigrateStore(_)
        | Command::Tenant(_)
        | Command::Up(_)
        | Command::Down(_)
        | Command::Restart(_)
        | Command::Logs(_)
        | Command::Background(_)
        | Command::CoderHost(_)
        | Command::Bench(_)
        | Command::Model(_)
        | Command::EmbedWorker(_)
        | Command::WireTypes
        | Command::Completions { .. } => return Ok(()),
    };
    block_on(false, command)
}

/// A command, where it costs the stack nothing: the largest of all of them would be laid out there
/// whichever runs, and each of its pages is a fault.
#[inline(never)]
fn boxed<F: Future<Output = Outcome> + 'static>(
    command: impl FnOnce() -> F,
) -> Pin<Box<dyn Future<Output = Outcome>>> {
    Box::pin(command())
}

/// The server gets every core; everything else waits on one socket and needs one thread.
fn block_on(many_threads: bool, future: Pin<Box<dyn Future<Output = Outcome>>>) -> Outcome {
    let mut builder = if many_threads {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime = builder
        .enable_all()
        .build()
        .map_err(|e| anyhow::anyhow!("cannot start the runtime: {e}"))?;
    let outcome = runtime.block_on(future);
    // A host may hold standard input open; nothing is owed to a thread that still reads it.
    runtime.shutdown_background();
    outcome
}

/// Prints the answer as it came, for `--json`.
pub fn print_json(answer: &Value) {
    let json = serde_json::to_string_pretty(answer).unwrap_or_default();
    out(&prism_core::text::escape_json(&json));
}

/// The same on one line, for what goes on and on.
pub fn print_json_line(answer: &impl serde::Serialize) {
    let json = serde_json::to_string(answer).unwrap_or_default();
    out(&prism_core::text::escape_json(&json));
}

/// Says on stderr what an answer warns of: stdout is for the answer.
pub fn print_warnings(answer: &Value) {
    let warnings = answer["warnings"].as_array().map(Vec::as_slice);
    for warning in warnings.unwrap_or_default() {
        let said = |field: &str| warning[field].as_str().map(one_line);
        note(&format!(
            "warning: {}",
            said("remediation").unwrap_or_default()
        ));
        if let Some(query) = said("suggested_query") {
            note(&format!("  prism recall {query:?}"));
        }
        for path in warning["paths"].as_array().into_iter().flatten() {
            note(&format!(
                "  {}",
                one_line(path.as_str().unwrap_or_default())
            ));
        }
    }
}

/// Calls a verb that writes a row, and says under which id it is kept.
async fn keep(context: &Context, path: &str, body: Value) -> Outcome {
    let (id, answer): (Id, _) = context.ask(path, body).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let number = id.number.map(|n| format!("{path} #{n}, "));
    out(&format!(
        "{}kept as {}",
        number.unwrap_or_default(),
        short(id.id)
    ));
    print_warnings(&answer);
    Ok(())
}

/// A text as it was typed, or what standard input holds for `-`.
fn written(text: String) -> Result<String, Failure> {
    if text != "-" {
        return Ok(text);
    }
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|e| anyhow::anyhow!("cannot read standard input: {e}"))?;
    Ok(text.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verb::{Is, VERBS};

    /// The command line with all that its commands take.
    fn whole() -> clap::Command {
        let mut whole = Cli::command();
        whole.build();
        whole
    }

    #[test]
    fn every_verb_of_an_agent_has_a_command() {
        let known: Vec<&str> = DOORS.iter().map(|(verb, _)| *verb).collect();
        for verb in VERBS.iter().filter(|v| v.is(Is::Tool)) {
            assert!(known.contains(&verb.name), "{} has no command", verb.name);
        }
        for (verb, commands) in DOORS {
            assert!(crate::verb::by_name(verb).is_some(), "there is no {verb}");
            assert!(!commands.is_empty(), "{verb} has no command");
            for path in *commands {
                let found = path.split(' ').try_fold(whole(), |command, name| {
                    command.find_subcommand(name).cloned()
                });
                assert!(found.is_some(), "{verb}: there is no `prism {path}`");
            }
        }
    }

    #[test]
    fn every_command_and_option_says_what_it_is_for() {
        fn look(command: &clap::Command, path: &str, silent: &mut Vec<String>) {
            let path = format!("{path} {}", command.get_name());
            if command.get_about().is_none() {
                silent.push(path.clone());
            }
            let options = command.get_opts().filter(|o| o.get_help().is_none());
            silent.extend(options.map(|o| format!("{path}: {}", o.get_id())));
            // Benches are for whoever changes Prism.
            let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
            for command in shown.filter(|c| !["bench", "help"].contains(&c.get_name())) {
                look(command, &path, silent);
            }
        }
        let mut silent = Vec::new();
        look(&whole(), "", &mut silent);
        assert!(silent.is_empty(), "{silent:#?}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        Quick::command().debug_assert();
    }

    #[test]
    fn commands_that_are_run_often_are_read_by_a_parser_of_their_own() {
        let whole = whole();
        let mut quick = Quick::command();
        quick.build();
        for often in quick.get_subcommands() {
            let name = often.get_name();
            let of = |command: &clap::Command| -> Vec<String> {
                let args = command.get_arguments().map(|a| a.get_id().to_string());
                let everywhere = ["as", "pid", "json", "help", "version"];
                args.filter(|a| !everywhere.contains(&a.as_str())).collect()
            };
            let same = whole.find_subcommand(name).map(of);
            assert_eq!(same, Some(of(often)), "{name} takes the same in both");
        }
        let read = |words: &[&str]| {
            let args = words.iter().map(OsString::from).collect();
            Cli::read(args).map_err(|e| e.kind())
        };
        let send = read(&["prism", "send", "Texi", "hello", "--as", "Donna", "--json"]);
        let send = send.unwrap_or_else(|kind| panic!("{kind:?}"));
        assert!(matches!(send.command, Command::Send(_)) && send.shared.json);
        assert_eq!(send.shared.identity.as_deref(), Some("Donna"));
        // The whole one has the last word: help, what is wrong, and everything else.
        use clap::error::ErrorKind::{DisplayHelp, MissingRequiredArgument};
        assert_eq!(read(&["prism", "send", "-h"]).err(), Some(DisplayHelp));
        let missing = read(&["prism", "send", "Texi"]).err();
        assert_eq!(missing, Some(MissingRequiredArgument));
        assert!(matches!(
            read(&["prism", "--pid", "app", "status"]).map(|cli| cli.command),
            Ok(Command::Status)
        ));
    }
}
