//! The operator's command line: every verb, drawn for people, or `--json`.

mod doctor;
mod export;
mod gate;
mod import;
mod keys;
mod loopback;
mod memory;
mod model;
mod roster;
mod serve;
mod signals;
mod watch;

use crate::client::{self, Client, Locator};
use crate::config::{self, Env, ProjectChoice};
use crate::home::Home;
use crate::ui::{Failure, Outcome, Style, note, out};
use clap::{CommandFactory, Parser, Subcommand};
use prism_core::{Code, Identity, Problem};
use serde_json::Value;
use std::ffi::OsString;

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

#[derive(clap::Args, Clone)]
struct Shared {
    /// Act as this agent, with its key [default: PRISM_AGENT_IDENTITY, else the operator]
    #[arg(long = "as", id = "as", global = true, value_name = "IDENTITY")]
    identity: Option<String>,
    /// The project; it must exist [default: PRISM_PID, .prism/project.toml, the folder's name]
    #[arg(long, global = true, value_name = "PID")]
    pid: Option<String>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server
    Serve(serve::Serve),
    /// Run the MCP shim beside an agent host (the host starts this)
    Mcp,
    /// Send a signal to an agent or to the operator
    Send(signals::Send),
    /// Read what waits in the inbox
    Pending(signals::Pending),
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
    /// Look up what was learned, in plain words
    Recall(memory::Recall),
    /// Say that something works, is broken, or partly works
    Confirm(memory::Confirm),
    /// Keep a correction, confirmation or change of direction
    Input(memory::Input),
    /// Accept or reject what agents captured of your words
    Review(memory::Review),
    /// Keep a note
    Note(memory::Note),
    /// Todos of the project
    Todo(memory::Todo),
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
    /// Personas of a project
    Persona(keys::Persona),
    /// Keys of agents
    Key(keys::Key),
    /// Sessions of agent hosts
    Session(roster::Session),
    /// Look at this machine's Prism and say what is wrong
    Doctor,
    /// Measure this machine's Prism
    Bench(crate::bench::Bench),
    /// One line for a host's status bar
    Statusline {
        /// `always` or `never` [default: always, unless NO_COLOR is set]
        #[arg(long)]
        color: Option<String>,
    },
    /// Print a shell's completion script
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
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
}

impl Context {
    fn new(shared: &Shared) -> Result<Self, Failure> {
        let env = Env::read();
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
            home: env.prism_home(),
            style: Style::of_stdout(env.no_color),
            json: shared.json,
            identity,
            project,
            env,
        })
    }

    pub fn client(&self) -> Result<Client, Problem> {
        let key = client::find_key(&self.env, &self.home, self.identity.as_ref())?;
        let client = Client::new(Locator::of(&self.env, &self.home)?, key)?;
        Ok(if self.project.named {
            client
        } else {
            client.creating_project()
        })
    }

    pub fn pid(&self) -> &str {
        self.project.pid.as_str()
    }

    /// Calls a verb; an identity that is new to a project found (not named) is added first.
    pub async fn call(&self, path: &str, body: Value) -> Result<Value, Failure> {
        let client = self.client()?;
        let first = match (path, body.clone()) {
            ("signal", Value::Object(map)) => client.send_signal(self.pid(), map).await,
            (_, body) => client.call(self.pid(), path, body).await,
        };
        match (first, &self.identity) {
            (Err(p), Some(identity))
                if (p.is(Code::UnknownProject) || p.is(Code::NoPersona)) && !self.project.named =>
            {
                let Some(key) = client::operator_key(&self.env, &self.home)? else {
                    return Err(p.into());
                };
                Client::new(client.locator().clone(), key)?
                    .ensure_persona(self.pid(), identity)
                    .await?;
                Ok(client.call(self.pid(), path, body).await?)
            }
            (first, _) => Ok(first?),
        }
    }

    /// Calls a verb and reads its answer.
    pub async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: Value,
    ) -> Result<(T, Value), Failure> {
        let answer = self.call(path, body).await?;
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
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            drop(error.print());
            return error.exit_code() as u8;
        }
    };
    match dispatch(cli) {
        Ok(()) => 0,
        Err(Failure::Negative) => 1,
        Err(Failure::Unable { message, hint }) => {
            note(&format!("prism: {message}"));
            if let Some(hint) = hint.filter(|h| !h.is_empty()) {
                note(&format!("hint: {hint}"));
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
    let context = Context::new(&cli.shared)?;
    match cli.command {
        Command::Serve(serve) => return block_on(true, serve.run(context)),
        Command::Mcp => return block_on(false, crate::shim::run(context.env.clone())),
        Command::Bench(bench) => return block_on(true, bench.run(context)),
        Command::Model(model) => return model.run(&context),
        Command::EmbedWorker(worker) => return worker.run(),
        _ => {}
    }
    block_on(false, async move {
        match cli.command {
            Command::Send(send) => send.run(context).await,
            Command::Pending(pending) => pending.run(context).await,
            Command::Signals(signals) => signals.run(context).await,
            Command::Trace(trace) => trace.run(context).await,
            Command::LoopbackTest(test) => test.run(context).await,
            Command::Status => roster::status(context).await,
            Command::Whois(whois) => whois.run(context).await,
            Command::Recall(recall) => recall.run(context).await,
            Command::Confirm(confirm) => confirm.run(context).await,
            Command::Input(input) => input.run(context).await,
            Command::Review(review) => review.run(context).await,
            Command::Note(note) => note.run(context).await,
            Command::Todo(todo) => todo.run(context).await,
            Command::Graph(graph) => graph.run(context).await,
            Command::Memory(memory) => memory.run(context).await,
            Command::Export(export) => export.run(context).await,
            Command::Import(import) => import.run(context).await,
            Command::Gate(gate) => gate.run(context).await,
            Command::Watch => watch::run(context).await,
            Command::Persona(persona) => persona.run(context).await,
            Command::Key(key) => key.run(context).await,
            Command::Session(session) => session.run(context).await,
            Command::Doctor => doctor::run(context).await,
            // Handled before any of this is set up, or above.
            Command::Statusline { .. }
            | Command::Serve(_)
            | Command::Mcp
            | Command::Bench(_)
            | Command::Model(_)
            | Command::EmbedWorker(_)
            | Command::Completions { .. } => Ok(()),
        }
    })
}

/// The server gets every core; everything else waits on one socket and needs one thread.
fn block_on(many_threads: bool, future: impl Future<Output = Outcome>) -> Outcome {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
