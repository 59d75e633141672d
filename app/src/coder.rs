//! `prism coder`: an agent's host in this terminal, with its name, its project and a title.
//!
//! The host is a child in the same process group, with the same terminal: what
//! the terminal sends to the one it sends to the other. This process only waits,
//! stops when its host stops, writes the title, and cleans up at the end.

mod codex;
mod terminal;

use crate::config;
use crate::home::Home;
use crate::ui::{Failure, Outcome, note};
use anyhow::Context as _;
use prism_core::launch::{CodexRun, Host, codex_run};
use prism_core::{Identity, ProjectName};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use terminal::Terminal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// How often the count file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What is started, and as whom.
pub struct Launch {
    pub home: Home,
    pub identity: Identity,
    /// The project, if somebody named it; what was only found stays to be found.
    pub named: Option<ProjectName>,
    /// The project as the title shows it.
    pub project: String,
    pub command: Vec<OsString>,
    pub title: bool,
    pub term: Option<String>,
    pub codex_home: Option<String>,
    pub user_home: Option<PathBuf>,
}

/// A variable of the host's environment.
type Variable = (&'static str, OsString);

impl Launch {
    /// Starts the host, stays beside it, and ends as it ends.
    pub async fn run(self) -> Outcome {
        let (program, mut args) = self.program()?;
        let mut terminal = Terminal::here(self.title, self.term.as_deref());
        let variables = self.variables(terminal.has_title())?;
        let beside = match self.host() {
            Host::Codex => self.codex(&program, &mut args, &variables, terminal.has_title()),
            Host::ClaudeCode | Host::Other => None,
        };
        // Caught before there is a host, so that nothing typed at it ends its launcher.
        let caught = ignored().map(Caught::all_but).transpose()?;
        let host = start_host(&program, &args, &variables)?;
        let caught = caught.map_or_else(|| Caught::all_but(0), Ok)?;
        let status = stay(host, caught, &mut terminal, || self.title_now()).await?;
        terminal.end(status.terminating_signal().is_some());
        drop(beside);
        match exit_code(status) {
            0 => Ok(()),
            code => Err(Failure::Exit(code)),
        }
    }

    fn host(&self) -> Host {
        let program = self.command.first().map(|name| name.to_string_lossy());
        program.map_or(Host::Other, |name| Host::of_program(&name))
    }

    /// Gives a Codex terminal a server of its own, and changes the arguments to match.
    fn codex(
        &self,
        program: &std::path::Path,
        args: &mut Vec<OsString>,
        variables: &[Variable],
        title: bool,
    ) -> Option<codex::Server> {
        let words: Vec<String> = args.iter().map(|a| a.to_string_lossy().into()).collect();
        let run = codex_run(&words);
        if title && run != CodexRun::AsIs && !words.iter().any(|w| w.contains("terminal_title")) {
            args.splice(0..0, ["-c".into(), "tui.terminal_title=[]".into()]);
        }
        let of_server = match run {
            CodexRun::AsIs => return None,
            CodexRun::NoDaemon => {
                args.insert(0, "--no-daemon".into());
                return None;
            }
            CodexRun::OwnServer(of_server) => of_server,
        };
        match codex::Server::start(self, program, &of_server, variables) {
            Ok(server) => {
                args.splice(0..0, ["--remote".into(), server.address()]);
                Some(server)
            }
            // A slow bell is better than a wrong identity.
            Err(error) => {
                note(&format!(
                    "prism: Codex runs without a server of its own, so bells take up to 10 s: {error:#}"
                ));
                args.insert(0, "--no-daemon".into());
                None
            }
        }
    }

    fn program(&self) -> Result<(PathBuf, Vec<OsString>), Failure> {
        let (name, args) = self.command.split_first().ok_or_else(|| Failure::Unable {
            message: "no command to run".into(),
            hint: Some("prism coder --as Donna -- claude".into()),
        })?;
        let program = config::find_program(name).ok_or_else(|| Failure::Unable {
            message: format!("there is no program {}", name.to_string_lossy()),
            hint: Some("is it installed, and on the PATH of this shell?".into()),
        })?;
        Ok((program, args.to_vec()))
    }

    /// What the host, and so the shim beside it, is told by its environment.
    fn variables(&self, title: bool) -> anyhow::Result<Vec<Variable>> {
        let home = std::path::absolute(self.home.dir()).context("cannot tell where the home is")?;
        let mut variables = vec![
            ("PRISM_AGENT_IDENTITY", self.identity.as_str().into()),
            ("PRISM_HOME", home.into_os_string()),
        ];
        if let Some(pid) = &self.named {
            variables.push(("PRISM_PID", pid.as_str().into()));
        }
        if title && self.host() == Host::ClaudeCode {
            // Its own switch: two writers of one title would take turns.
            variables.push(("CLAUDE_CODE_DISABLE_TERMINAL_TITLE", "1".into()));
        }
        Ok(variables)
    }

    fn title_now(&self) -> String {
        let count = crate::shim::statusline::read_count(&self.home, &self.identity);
        let (identity, project) = (self.identity.as_str(), self.project.as_str());
        prism_core::statusline::title(identity, project, count.as_ref())
    }
}

/// Starts a program that gets `on_death` should this process die before it.
fn tied(program: &std::path::Path, on_death: Signal) -> anyhow::Result<Command> {
    let mut command = Command::new(config::this_program()?);
    command
        .arg("coder-host")
        .arg(format!("--parent={}", std::process::id()))
        .arg(format!("--on-death={}", on_death.as_raw()))
        .arg("--")
        .arg(program);
    Ok(command)
}

/// `prism coder-host`: becomes the program, having asked to be told when its launcher dies.
pub fn become_host(parent: u32, on_death: i32, command: &[OsString]) -> Failure {
    #[cfg(target_os = "linux")]
    if let Some(signal) = Signal::from_named_raw(on_death) {
        // Where this is refused, a killed launcher leaves its host running; nothing else changes.
        let _ = rustix::process::set_parent_process_death_signal(Some(signal));
        let now = rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get());
        if u32::try_from(now) != Ok(parent) {
            return Failure::Exit(128u8.saturating_add(on_death as u8));
        }
    }
    let Some((program, args)) = command.split_first() else {
        return Failure::Negative;
    };
    let error = Command::new(program).args(args).exec();
    Failure::Unable {
        message: format!("cannot run {}: {error}", program.to_string_lossy()),
        hint: None,
    }
}

fn start_host(
    program: &std::path::Path,
    args: &[OsString],
    variables: &[Variable],
) -> anyhow::Result<Pid> {
    let mut command = tied(program, Signal::HUP)?;
    command.args(args).envs(variables.iter().cloned());
    let child = command.spawn().context("cannot start the host")?;
    Ok(Pid::from_child(&child))
}

/// The signals that this process ignores, one bit each, where that can be read. They stay ignored: a
/// caught signal would not be ignored by the host, as whoever started us wished.
fn ignored() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(mask.trim(), 16).ok()
}

/// What is sent to this process instead of ending or stopping it.
struct Caught {
    child: tokio::signal::unix::Signal,
    /// To be handed on to the host.
    sent: mpsc::UnboundedReceiver<Signal>,
}

impl Caught {
    fn all_but(ignored: u64) -> anyhow::Result<Self> {
        let child = signal(SignalKind::child())?;
        let (hand_on, sent) = mpsc::unbounded_channel();
        // Sent to this process by somebody's hand; the terminal sends some to its host as well, to
        // which hearing them twice means nothing more.
        let by_hand = [Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2];
        // Typed at the terminal, they are the host's to answer: caught here, they do nothing.
        let typed = [Signal::INT, Signal::QUIT, Signal::TSTP];
        for caught in by_hand.into_iter().chain(typed) {
            if ignored & (1 << (caught.as_raw() - 1)) != 0 {
                continue;
            }
            let mut heard = signal(SignalKind::from_raw(caught.as_raw()))?;
            let hand_on = by_hand.contains(&caught).then(|| hand_on.clone());
            tokio::spawn(async move {
                while heard.recv().await.is_some() {
                    if let Some(hand_on) = &hand_on {
                        let _ = hand_on.send(caught);
                    }
                }
            });
        }
        Ok(Self { child, sent })
    }
}

/// Waits for the host to end; stops when it stops, and hands on what was sent to this process.
async fn stay(
    host: Pid,
    mut caught: Caught,
    terminal: &mut Terminal,
    title: impl Fn() -> String,
) -> anyhow::Result<WaitStatus> {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // The first look is at once: a host may have ended before anybody listened.
        let looked = waitpid(Some(host), WaitOptions::NOHANG | WaitOptions::UNTRACED);
        match looked.context("the host cannot be waited for")? {
            Some((_, status)) if status.stopped() => {
                if somebody_can_continue_us() {
                    terminal.give_back();
                    let myself = rustix::process::getpid();
                    kill_process(myself, Signal::STOP).context("cannot stop with the host")?;
                    // From here on somebody has continued us.
                    let _ = kill_process(host, Signal::CONT);
                    terminal.take();
                }
                continue;
            }
            Some((_, status)) => return Ok(status),
            None => {}
        }
        tokio::select! {
            _ = caught.child.recv() => {}
            _ = look.tick() => terminal.show(&title()),
            Some(signal) = caught.sent.recv() => {
                // A host that has just ended needs no signal.
                let _ = kill_process(host, signal);
            }
        }
    }
}

/// Whether a shell with job control waits for us: it would see a stopped host, so it has to see us
/// stopped. Nobody else could continue us.
fn somebody_can_continue_us() -> bool {
    use rustix::process::{getpgid, getpgrp, getppid, getsid};
    let Some(parent) = getppid() else {
        return false;
    };
    let same_session = getsid(None).ok() == getsid(Some(parent)).ok();
    same_session && getpgid(Some(parent)).ok() != Some(getpgrp())
}

/// As a shell tells it: the host's own code, or 128 and the number of the signal that ended it.
fn exit_code(status: WaitStatus) -> u8 {
    let code = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code & 0xff).ok())
        .unwrap_or(1)
}
