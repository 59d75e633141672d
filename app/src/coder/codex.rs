//! An app-server of Codex for one terminal, so that its identity is that terminal's own.
//!
//! A Codex server that several terminals share gives all of them the identity of
//! the one that started it. This one listens on a socket in a private folder, is
//! known to the shim beside its threads, and ends with the terminal.

use super::{Launch, Variable, tied};
use crate::home::{Home, ShortLived};
use crate::ui::note;
use anyhow::{Context, Result, bail};
use prism_core::limits::SOCKET_PATH_BYTES_MAX;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process};
use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where the shim beside a thread finds its thread's server.
const SOCKET_VARIABLE: &str = "PRISM_CODEX_SOCKET";
/// How long it may take until it listens.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// How long it may take to end by itself.
const GONE_WITHIN: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of what it says that are kept, for the case that it does not start.
const LINES_KEPT: usize = 8;
const RUN: &str = "run";

pub struct Server {
    process: Child,
    socket: PathBuf,
    /// Goes after the server did.
    _folder: ShortLived,
}

impl Server {
    pub fn start(
        launch: &Launch,
        program: &Path,
        of_server: &[String],
        variables: &[Variable],
    ) -> Result<Self> {
        let folder = private_folder(&launch.home)?;
        let socket = folder.dir().join("s");
        // Asked politely it would wait for a turn that runs, and then there is nobody to ask twice.
        let mut command = tied(program, Signal::KILL)?;
        command.arg("app-server").args(of_server);
        let mut told = variables.to_vec();
        told.push((SOCKET_VARIABLE, socket.clone().into_os_string()));
        if let Some(dir) = &launch.codex_home {
            told.push(("CODEX_HOME", dir.into()));
        }
        // Codex hands its MCP servers only the variables that their entry names.
        match knows_prism(launch) {
            true => {
                for (name, value) in &told {
                    command.arg("-c").arg(for_the_shim(name, value));
                }
            }
            false => note(
                "prism: Codex does not know Prism yet: `prism connect codex`, then start it again",
            ),
        }
        command
            .arg("--listen")
            .arg(address(&socket))
            .envs(variables.iter().cloned())
            .env(SOCKET_VARIABLE, &socket)
            // What is typed at the terminal is the host's to answer.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = command.spawn().context("cannot start its app-server")?;
        let said = Said::default();
        if let Some(out) = process.stdout.take() {
            said.listen(out);
        }
        if let Some(err) = process.stderr.take() {
            said.listen(err);
        }
        let mut server = Self {
            process,
            socket,
            _folder: folder,
        };
        server.listens(&said)?;
        Ok(server)
    }

    /// What `codex --remote` takes.
    pub fn address(&self) -> OsString {
        address(&self.socket)
    }

    fn listens(&mut self, said: &Said) -> Result<()> {
        let patience = Instant::now() + READY_WITHIN;
        loop {
            if UnixStream::connect(&self.socket).is_ok() {
                return Ok(());
            }
            if let Some(status) = self.process.try_wait()? {
                bail!("its app-server ended at once ({status}): {}", said.last());
            }
            if Instant::now() > patience {
                bail!(
                    "its app-server does not listen after {} s: {}",
                    READY_WITHIN.as_secs(),
                    said.last()
                );
            }
            std::thread::sleep(PAUSE);
        }
    }
}

impl Drop for Server {
    /// Ends it with all it started, politely first.
    fn drop(&mut self) {
        let group = Pid::from_child(&self.process);
        let _ = kill_process_group(group, Signal::TERM);
        let patience = Instant::now() + GONE_WITHIN;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < patience {
            std::thread::sleep(PAUSE);
        }
        // Whoever of the group is left did not want to go.
        let _ = kill_process_group(group, Signal::KILL);
        drop(self.process.wait());
    }
}

fn address(socket: &Path) -> OsString {
    let mut address = OsString::from("unix://");
    address.push(socket);
    address
}

/// A setting that reaches the shim whatever its entry names.
fn for_the_shim(name: &str, value: &OsString) -> String {
    let value = toml::Value::String(value.to_string_lossy().into_owned());
    format!("mcp_servers.prism.env.{name}={value}")
}

/// Whether a Codex in this folder has an entry for Prism: a setting alone makes none.
fn knows_prism(launch: &Launch) -> bool {
    let user = launch.codex_home.as_ref().map_or_else(
        || launch.user_home.as_ref().map(|home| home.join(".codex")),
        |dir| Some(PathBuf::from(dir)),
    );
    let here = std::env::current_dir().unwrap_or_default();
    let projects = here.ancestors().map(|dir| dir.join(".codex"));
    let has_entry = |dir: PathBuf| {
        let text = std::fs::read_to_string(dir.join("config.toml")).ok()?;
        let config: toml::Table = toml::from_str(&text).ok()?;
        config.get("mcp_servers")?.get("prism").map(|_| ())
    };
    user.into_iter()
        .chain(projects)
        .any(|dir| has_entry(dir).is_some())
}

/// A folder for the socket that nobody else can enter, with a name short enough for one.
fn private_folder(home: &Home) -> Result<ShortLived> {
    let run = std::path::absolute(home.folder(RUN)?)?;
    sweep(home);
    let name = format!(
        "{}-{}",
        std::process::id(),
        crate::ui::short(crate::clock::new_id())
    );
    let fits = |dir: &Path| dir.as_os_str().as_bytes().len() + 2 <= SOCKET_PATH_BYTES_MAX;
    let short = [
        run.join(&name),
        std::env::temp_dir().join(format!("prism-{name}")),
    ];
    let Some(dir) = short.into_iter().find(|dir| fits(dir)) else {
        bail!(
            "{} is too long for a socket, and so is {}",
            run.display(),
            std::env::temp_dir().display()
        );
    };
    ShortLived::make(dir)
}

/// Removes what launchers that were killed could not.
fn sweep(home: &Home) {
    for name in home.list(RUN, "", "") {
        let pid = name.split('-').next().and_then(|pid| pid.parse().ok());
        let process = pid.and_then(Pid::from_raw);
        if process.is_some_and(|pid| test_kill_process(pid).is_err()) {
            drop(ShortLived::left_behind(home.path(&format!("{RUN}/{name}"))));
        }
    }
}

/// The last lines that the server said.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<VecDeque<String>>>);

impl Said {
    /// Reads to the end whatever comes: a full pipe would hold the server up.
    fn listen(&self, from: impl std::io::Read + Send + 'static) {
        let lines = self.0.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
                let line = prism_core::text::one_line(&String::from_utf8_lossy(&line));
                let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() == LINES_KEPT {
                    lines.pop_front();
                }
                lines.push_back(prism_core::text::clip(&line, 300));
            }
        });
    }

    fn last(&self) -> String {
        let lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        match lines.is_empty() {
            true => "it said nothing".into(),
            false => lines.join("; "),
        }
    }
}
