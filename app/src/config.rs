//! The only reader of the environment, and of `config.toml`.

#![expect(clippy::disallowed_methods, reason = "the door to the environment")]

mod key;
mod standing;

pub use standing::{Standing, Told, database, redis};

use crate::clock;
use crate::home::Home;
use crate::tls::Files;
use anyhow::{Context, Result, bail};
use key::{KEY_CHARS_MIN, is_key, plain_key, with_key};
use prism_core::access::{FoundBy, PublicUrl};
use prism_core::escalation::Escalation;
use prism_core::limits::{CONNECTIONS_MAX, HOOK_MS, RATE_BURST, RATE_PER_S};
use prism_core::memory::surface::{Warning, first_globs};
use prism_core::retention::Retention;
use prism_core::{Code, Identity, Problem, ProjectName};
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where `prism serve` listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 7747;

/// Everything Prism reads from the environment, read once.
#[derive(Clone, Debug, Default)]
pub struct Env {
    pub home: Option<String>,
    pub prism_home: Option<String>,
    /// Where the rows are, if not in this home.
    pub database: Option<String>,
    /// What tells the servers of one database of each other.
    pub redis: Option<String>,
    pub identity: Option<String>,
    pub surface: Option<String>,
    pub pid: Option<String>,
    pub url: Option<String>,
    pub api_key: Option<String>,
    /// The operator's key of a server whose home may not outlive it.
    pub operator_key: Option<String>,
    /// The authority of a server elsewhere, if this machine does not know it.
    pub ca_file: Option<String>,
    /// The certificate that a server shows, and its key.
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    /// Keys may travel in the clear to another machine.
    pub allow_http: bool,
    pub doorbell: Option<String>,
    /// Claude Code's inbox socket for the session that started us.
    pub claude_inbox: Option<String>,
    /// `PRISM_CLAUDE_CHANNEL=1`: Claude Code's channel is switched on, which it is not by default.
    pub claude_channel: bool,
    pub codex_home: Option<String>,
    /// The control socket of a Codex app-server that serves this identity alone.
    pub codex_socket: Option<String>,
    /// Where OpenCode's server listens, and which of its sessions is this one.
    pub opencode_url: Option<String>,
    pub opencode_session: Option<String>,
    pub tools: Option<String>,
    pub recallgate_mode: Option<String>,
    pub user: Option<String>,
    pub no_color: bool,
    /// Claude Code's own session, its process and its project, as it tells its children.
    pub claude_session: Option<String>,
    /// How Claude Code was started: `cli` is a person's terminal.
    pub claude_entrypoint: Option<String>,
    pub claude_pid: Option<String>,
    pub claude_project: Option<String>,
    /// Milliseconds that a hook may take, instead of the usual ones.
    pub hook_ms: Option<String>,
    /// Run from inside an agent host's shell: the agent types, not the operator.
    pub inside_host: bool,
    /// `PRISM_AUTOSTART=0`: neither a shim nor a launcher starts a server.
    pub no_autostart: bool,
    /// What the terminal says it is.
    pub term: Option<String>,
}

impl Env {
    /// What cannot be read is an error: left out, it would mean another home, another project or
    /// the operator.
    pub fn read() -> Result<Self> {
        let var = |name: &str| std::env::var(name).ok().filter(|v| !v.trim().is_empty());
        // As a file may have it, with an end of line.
        let secret = |name: &str| var(name).map(|said| said.trim().to_owned());
        for (name, value) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("PRISM_") && value.to_str().is_none() {
                bail!("{name} is not valid UTF-8: set it again, or unset it");
            }
        }
        let identity = std::env::var("PRISM_AGENT_IDENTITY").ok();
        if identity.is_some_and(|i| !i.is_empty() && i.trim().is_empty()) {
            bail!("PRISM_AGENT_IDENTITY is blank: give the agent's name, or unset it");
        }
        Ok(Self {
            home: var("HOME"),
            prism_home: var("PRISM_HOME"),
            // Empty, they are no longer nothing: a server would begin on another store than was meant.
            database: std::env::var("PRISM_DATABASE").ok(),
            redis: std::env::var("PRISM_REDIS").ok(),
            identity: var("PRISM_AGENT_IDENTITY"),
            surface: var("PRISM_AGENT_SURFACE"),
            pid: var("PRISM_PID"),
            url: secret("PRISM_URL"),
            api_key: secret("PRISM_API_KEY"),
            operator_key: secret(OPERATOR_KEY),
            ca_file: var("PRISM_CA_FILE"),
            tls_cert: var("PRISM_TLS_CERT"),
            tls_key: var("PRISM_TLS_KEY"),
            allow_http: var("PRISM_ALLOW_HTTP").is_some_and(|v| v == "1"),
            doorbell: var("PRISM_DOORBELL"),
            claude_inbox: var("CLAUDE_CODE_MESSAGING_SOCKET"),
            claude_channel: var("PRISM_CLAUDE_CHANNEL").is_some_and(|v| v == "1"),
            codex_home: var("CODEX_HOME"),
            codex_socket: var("PRISM_CODEX_SOCKET"),
            opencode_url: var("PRISM_OPENCODE_URL"),
            opencode_session: var("PRISM_OPENCODE_SESSION"),
            tools: var("PRISM_TOOLS"),
            recallgate_mode: var("PRISM_RECALLGATE_MODE"),
            user: var("USER").or_else(|| var("LOGNAME")),
            claude_session: var("CLAUDE_CODE_SESSION_ID"),
            claude_entrypoint: var("CLAUDE_CODE_ENTRYPOINT"),
            claude_pid: var("CLAUDE_PID"),
            claude_project: var("CLAUDE_PROJECT_DIR"),
            hook_ms: var("PRISM_HOOK_MS"),
            no_color: std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()),
            inside_host: [
                "CLAUDECODE",
                "CODEX_SANDBOX",
                "CODEX_THREAD_ID",
                "CURSOR_AGENT",
                "GEMINI_CLI",
                "OPENCODE",
            ]
            .iter()
            .any(|name| std::env::var_os(name).is_some()),
            no_autostart: var("PRISM_AUTOSTART").is_some_and(|v| v.trim() == "0"),
            term: var("TERM"),
        })
    }

    /// `$PRISM_HOME`, else `~/.prism`. Without either there is none: in whatever folder a command
    /// happens to run, keys would lie about and nobody would find them again.
    pub fn prism_home(&self) -> Result<Home, Problem> {
        match (&self.prism_home, &self.home) {
            (Some(dir), _) => Ok(Home::at(dir)),
            (None, Some(home)) => Ok(Home::at(Path::new(home).join(".prism"))),
            (None, None) => Err(Problem::new(
                Code::InvalidRequest,
                "neither PRISM_HOME nor HOME is set, so there is no place for Prism's files",
                "set PRISM_HOME to a folder of your own, or HOME",
            )),
        }
    }

    /// How long a hook may take in all.
    pub fn hook_patience(&self) -> Duration {
        let said = self.hook_ms.as_deref().and_then(|ms| ms.parse().ok());
        Duration::from_millis(said.unwrap_or(HOOK_MS))
    }

    /// The identity of the environment; a malformed one is an error, not `Bot`.
    pub fn identity(&self) -> Result<Option<Identity>> {
        self.identity
            .as_deref()
            .map(|i| {
                Identity::parse(i)
                    .map_err(|p| anyhow::anyhow!("PRISM_AGENT_IDENTITY: {}; {}", p.message, p.hint))
            })
            .transpose()
    }
}

/// What tells where agent hosts keep their files and programs.
#[derive(Clone, Debug, Default)]
pub struct HostEnv {
    pub claude_config_dir: Option<PathBuf>,
    pub codex_home: Option<PathBuf>,
    pub xdg_config_home: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
}

impl HostEnv {
    pub fn read() -> Self {
        let folder = |name: &str| {
            let set = std::env::var_os(name).filter(|v| !v.is_empty());
            set.map(PathBuf::from)
        };
        Self {
            claude_config_dir: folder("CLAUDE_CONFIG_DIR"),
            codex_home: folder("CODEX_HOME"),
            // A relative one is to be ignored, says its specification.
            xdg_config_home: folder("XDG_CONFIG_HOME").filter(|p| p.is_absolute()),
            path: std::env::var_os("PATH")
                .map(|path| std::env::split_paths(&path).collect())
                .unwrap_or_default(),
        }
    }
}

/// What a background server takes over from whoever starts it: how to find things on this
/// machine, and its own settings. Not a word about the agent or the host beside which it started.
const OF_A_SERVER: [&str; 25] = [
    "PATH",
    "PRISM_REDIS",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "NIX_LD",
    "NIX_LD_LIBRARY_PATH",
    "RUST_BACKTRACE",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "XDG_RUNTIME_DIR",
    "PRISM_DATABASE",
    OPERATOR_KEY,
    "PRISM_TLS_CERT",
    "PRISM_TLS_KEY",
    "PRISM_LOG",
    "PRISM_RECALLGATE_MODE",
    "PRISM_FAILPOINTS",
    "PRISM_CLOCK_FILE",
    "PRISM_TEST_VERSION",
];

/// What a variable says that somebody names, so that a list of processes does not show it.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// The environment of a background server.
pub fn server_environment() -> Vec<(OsString, OsString)> {
    let of_server = |name: &OsString| {
        let name = name.to_string_lossy();
        OF_A_SERVER.contains(&name.as_ref()) || name.starts_with("LC_")
    };
    std::env::vars_os()
        .filter(|(name, _)| of_server(name))
        .collect()
}

/// What the environment of a server said of its store when it was started, as the machine remembers it; none
/// where it does not.
pub fn store_of_process(pid: u32) -> Option<Told> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok();
    let environment = environment.filter(|said| !said.is_empty())?;
    let said = |name: &str| {
        let lines = environment.split(|b| *b == 0);
        let mut values = lines.filter_map(|line| {
            let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            String::from_utf8(value.to_vec()).ok()
        });
        values.next()
    };
    Some(Told {
        database: said(Told::DATABASE),
        redis: said(Told::REDIS),
    })
}

/// The program that a shell would run under this name, if it may be run.
pub fn find_program(name: &OsStr) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    let can_run = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(can_run);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(can_run)
}

/// The running program itself, even when an upgrade has put another in its place.
pub fn this_program() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell which program runs")?;
    // Linux names a file that is gone by what it was called, with a word behind it.
    let running = Path::new("/proc/self/exe");
    Ok(match program.exists() || !running.exists() {
        true => program,
        false => running.to_owned(),
    })
}

/// The version that this program goes by; only debug builds can be told another.
pub fn version() -> &'static str {
    static OTHER: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("PRISM_TEST_VERSION").ok());
    let other = OTHER.as_deref().filter(|_| cfg!(debug_assertions));
    other.unwrap_or(crate::VERSION)
}

/// What `PRISM_LOG` asks to be logged.
pub fn log_filter() -> Option<String> {
    std::env::var("PRISM_LOG").ok()
}

/// Where whoever works on the page has its files, instead of those in the binary
/// (`PRISM_PAGE_DIR`).
pub fn page_dir() -> Option<&'static std::path::Path> {
    static DIR: std::sync::LazyLock<Option<PathBuf>> = std::sync::LazyLock::new(|| {
        let dir = std::env::var("PRISM_PAGE_DIR").ok();
        dir.filter(|d| !d.is_empty()).map(PathBuf::from)
    });
    DIR.as_deref()
}

/// Whether a named fault is switched on; only debug builds have faults to switch on.
pub fn failpoint(name: &str) -> bool {
    static ON: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| std::env::var("PRISM_FAILPOINTS").unwrap_or_default());
    cfg!(debug_assertions) && ON.split(',').any(|on| on == name)
}

/// How far the clock of this process's machine is off; only debug builds can be told.
pub fn clock_off_us() -> i64 {
    static OFF: std::sync::LazyLock<i64> = std::sync::LazyLock::new(|| {
        let said = std::env::var("PRISM_CLOCK_OFF_MS").ok();
        said.and_then(|ms| ms.parse::<i64>().ok()).unwrap_or(0) * 1000
    });
    if cfg!(debug_assertions) { *OFF } else { 0 }
}

/// The file that moves this process's clock; only debug builds have one.
pub fn clock_file() -> Option<&'static std::path::Path> {
    static FILE: std::sync::LazyLock<Option<std::path::PathBuf>> =
        std::sync::LazyLock::new(|| std::env::var_os("PRISM_CLOCK_FILE").map(Into::into));
    FILE.as_deref().filter(|_| cfg!(debug_assertions))
}

/// `config.toml`: this home's operator and how its server runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The operator's name, as agents address it.
    #[serde(default = "Identity::operator")]
    pub operator: Identity,
    /// The operator's key; it opens everything in this home. Empty until a server has made one.
    #[serde(default)]
    pub api_key: String,
    #[serde(default)]
    pub server: ServerConfig,
    #[serde(default)]
    pub limits: Limits,
    /// Days that history is kept.
    #[serde(default)]
    pub retention: Retention,
    #[serde(default)]
    pub hooks: HooksConfig,
    /// When what nobody reads climbs, and what is run for the operator then.
    #[serde(default)]
    pub escalation: Escalation,
    /// Nobody has chosen the operator's name: it is the login's.
    #[serde(skip)]
    pub named_by_login: bool,
    /// The key that stood here until the environment gave another.
    #[serde(skip)]
    pub replaced_key: Option<String>,
}

/// What hosts' hooks may say to an agent unasked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HooksConfig {
    /// Offer to keep the operator's words when they correct, confirm or turn the work.
    pub offer_capture: bool,
    /// Hold the end of a turn once while somebody waits for an answer.
    pub hold_turn: bool,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self {
            offer_capture: true,
            hold_turn: true,
        }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Names besides loopback under which this server is reached.
    pub allowed_hosts: Vec<String>,
    /// Where people reach the page when a proxy stands in front: https://host/path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub public_url: Option<String>,
    /// The PostgreSQL database that this and other servers stand on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
    /// The Redis that tells those servers of each other's commits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redis: Option<String>,
    /// The certificate that this server shows and its key, as PEM; in the home, unless they say
    /// where.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_key: Option<PathBuf>,
}

/// The certificate and the key of a server that speaks TLS: as it was started with, else as the
/// environment says, else the configuration.
pub fn tls_files(
    arguments: (Option<PathBuf>, Option<PathBuf>),
    env: &Env,
    config: &ServerConfig,
    home: &Home,
) -> Result<Option<Files>> {
    let of_env = |path: &Option<String>| path.as_ref().map(PathBuf::from);
    let of_home = |path: &Option<PathBuf>| path.as_ref().map(|p| home.dir().join(p));
    let sources = [
        arguments,
        (of_env(&env.tls_cert), of_env(&env.tls_key)),
        (of_home(&config.tls_cert), of_home(&config.tls_key)),
    ];
    let said = sources.into_iter().find(|s| *s != (None, None));
    match said {
        None => Ok(None),
        Some((Some(cert), Some(key))) => Ok(Some(Files { cert, key })),
        Some((Some(cert), None)) => bail!(
            "the certificate {} comes without its key: give --tls-key too (PRISM_TLS_KEY, server.tls_key)",
            cert.display()
        ),
        Some((None, _)) => bail!(
            "a key comes without its certificate: give --tls-cert too (PRISM_TLS_CERT, server.tls_cert)"
        ),
    }
}

impl ServerConfig {
    pub fn public_url(&self) -> Result<Option<PublicUrl>, Problem> {
        let parse =
            |url: &String| PublicUrl::parse(url).map_err(|why| Problem::field("public_url", why));
        self.public_url.as_ref().map(parse).transpose()
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    pub requests_per_second: u32,
    pub requests_burst: u32,
    /// Connections at once, capped by how many files the process may open.
    pub connections: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_per_second: RATE_PER_S,
            requests_burst: RATE_BURST,
            connections: CONNECTIONS_MAX,
        }
    }
}

const CONFIG: &str = "config.toml";
/// The variable that gives a home its operator's key.
const OPERATOR_KEY: &str = "PRISM_OPERATOR_KEY";

impl Config {
    /// What stands in the file, without the mark that some editors put in front. One that is there and cannot be read
    /// is not none: another would be written in its place.
    fn text(home: &Home) -> Result<Option<String>> {
        match home.read_secret(CONFIG)? {
            Some(text) => Ok(Some(text.trim_start_matches('\u{feff}').to_owned())),
            None if home.file_id(CONFIG).is_none() => Ok(None),
            None => Err(Problem::new(
                Code::Internal,
                format!("{} cannot be read", home.path(CONFIG).display()),
                "make it a file of text in UTF-8 that is yours to read, or move it away: `prism up` writes a new one",
            )
            .into()),
        }
    }

    pub fn load(home: &Home) -> Result<Option<Self>> {
        let Some(text) = Self::text(home)? else {
            return Ok(None);
        };
        let path = home.path(CONFIG);
        // The error's own text shows the line, and with it the key.
        toml::from_str(&text).map(Some).map_err(|error| {
            let line = error.span().map_or(1, |at| {
                1 + text[..at.start.min(text.len())].matches('\n').count()
            });
            let message = format!(
                "{} is not valid in line {line}: {}",
                path.display(),
                prism_core::text::without_keys(error.message())
            );
            let hint = "mend it, or move it away and run `prism up`, which writes a new one";
            Problem::new(Code::Internal, message, hint).into()
        })
    }

    /// The operator's key. Where the file says it plainly nothing else of it is read: every command
    /// needs the key, and hardly any the rest.
    pub fn key(home: &Home) -> Result<Option<String>> {
        let Some(text) = Self::text(home)? else {
            return Ok(None);
        };
        match plain_key(&text) {
            Some(key) => Ok(Some(key.to_owned())),
            None => {
                let key = Self::load(home)?.map(|config| config.api_key);
                Ok(key.filter(|key| !key.is_empty()))
            }
        }
    }

    /// Whether a server may run with it: the key opens everything, so nobody may guess it, and the
    /// operator has an inbox.
    pub fn check(&self) -> Result<()> {
        if !is_key(&self.api_key) {
            bail!(
                "the api_key in {CONFIG} is no key: write `prk_` and at least {KEY_CHARS_MIN} \
                 random letters or digits"
            );
        }
        if self.operator.is(prism_core::id::BOT) {
            bail!(
                "`operator` in {CONFIG} is {}, the name of agents without one: choose another",
                self.operator
            );
        }
        Ok(())
    }

    /// Reads the configuration, or makes one with a fresh operator's key.
    pub fn load_or_create(home: &Home, env: &Env) -> Result<Self> {
        home.create()?;
        // Before anything is written: what stood in the file then would be refused from there on.
        let given = env.given_key()?;
        let login = login_name(env)?;
        Self::complete(home, &login, given.as_deref())?;
        if let Some(mut config) = Self::load(home)? {
            config.named_by_login = config.operator == login;
            if let Some(key) = given.filter(|key| *key != config.api_key) {
                config.replaced_key = Some(std::mem::replace(&mut config.api_key, key));
                config.check()?;
                let written = Self::text(home)?.and_then(|text| with_key(&text, &config.api_key));
                let text = match written {
                    Some(text) => text,
                    None => toml::to_string(&config)?,
                };
                home.write(CONFIG, text.as_bytes())?;
            }
            config.check()?;
            return Ok(config);
        }
        let config = Self {
            operator: login,
            named_by_login: true,
            replaced_key: None,
            api_key: match given {
                Some(key) => key,
                None => clock::new_key()?,
            },
            server: ServerConfig::default(),
            limits: Limits::default(),
            retention: Retention::default(),
            hooks: HooksConfig::default(),
            escalation: Escalation::default(),
        };
        config.check()?;
        home.write(CONFIG, toml::to_string(&config)?.as_bytes())?;
        Ok(config)
    }

    /// Puts what every home has in front of settings that somebody wrote before a server ran.
    fn complete(home: &Home, login: &Identity, key: Option<&str>) -> Result<()> {
        let Some(text) = Self::text(home)? else {
            return Ok(());
        };
        // What is not valid is said by whoever reads all of it.
        let Ok(written) = text.parse::<toml::Table>() else {
            return Ok(());
        };
        let mut lines = String::new();
        if !written.contains_key("operator") {
            lines.push_str(&format!("operator = \"{login}\"\n"));
        }
        if !written.contains_key("api_key") {
            let key = match key {
                Some(key) => key.to_owned(),
                None => clock::new_key()?,
            };
            lines.push_str(&format!("api_key = {}\n", toml::Value::from(key)));
        }
        if lines.is_empty() {
            return Ok(());
        }
        // Nothing is written into a file that a server would refuse.
        Self::load(home)?;
        home.write(CONFIG, format!("{lines}{text}").as_bytes())
    }
}

/// What the operator is called until somebody chooses.
fn login_name(env: &Env) -> Result<Identity> {
    let login = env.user.as_deref().and_then(|u| Identity::parse(u).ok());
    match login.filter(|name| !name.is(prism_core::id::BOT)) {
        Some(name) => Ok(name),
        None => Ok(Identity::operator()),
    }
}

/// `server.json`: where the running server is found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerFile {
    pub url: String,
    pub pid: u32,
    pub version: String,
    pub started_at: prism_core::Moment,
    /// Runs in the background, started by `prism up`, a launcher or a shim.
    #[serde(default)]
    pub autostarted: bool,
    /// Fingerprints of the certificates it may show: by them its own machine knows it, whatever name
    /// they are for and whoever signed them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// The copy of the database that was made before this server upgraded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<PathBuf>,
}

impl ServerFile {
    pub const NAME: &str = "server.json";
    /// Held by the server for as long as it runs.
    pub const LOCK: &str = "serve.lock";

    /// The server that runs on this home. A file that outlived its server names nobody: whoever
    /// listens on that port now is a stranger.
    pub fn load(home: &Home) -> Option<Self> {
        let file: Self = serde_json::from_str(&home.read(Self::NAME)?).ok()?;
        (home.lock_holder(Self::LOCK)? == file.pid).then_some(file)
    }
}

/// Which project a call is about, and whether a person named it.
#[derive(Clone, Debug, PartialEq)]
pub struct ProjectChoice {
    pub pid: ProjectName,
    /// Named as an argument: it must exist. Otherwise first use creates it.
    pub named: bool,
    /// Neither argument nor environment named it.
    pub found: Option<Found>,
}

/// Where a project was found, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The repository's common git folder, so that all its worktrees are one; else the folder.
    pub folder: String,
    pub by: FoundBy,
    /// What earlier versions called it: the working folder's own name.
    pub formerly: Option<ProjectName>,
}

#[derive(Deserialize)]
struct ProjectFile {
    pid: Option<String>,
    /// Globs of files that the operator sees the effect of; what else stands there only warns.
    surfaces: Option<toml::Value>,
}

/// `--pid`, else `PRISM_PID`, else `.prism/project.toml` upward, else the folder's name.
pub fn choose_project(argument: Option<&str>, env: &Env, cwd: &Path) -> Result<ProjectChoice> {
    let parse = |text: &str| ProjectName::parse(text).map_err(|p| anyhow::anyhow!(p.message));
    if let Some(pid) = argument {
        return Ok(ProjectChoice {
            pid: parse(pid)?,
            named: true,
            found: None,
        });
    }
    if let Some(pid) = &env.pid {
        return Ok(ProjectChoice {
            pid: parse(pid).context("PRISM_PID")?,
            named: false,
            found: None,
        });
    }
    if let Some((file, text)) = project_file(cwd) {
        let project: ProjectFile =
            toml::from_str(&text).with_context(|| format!("{} is not valid", file.display()))?;
        if let Some(pid) = project.pid {
            return Ok(ProjectChoice {
                pid: parse(&pid).with_context(|| file.display().to_string())?,
                named: false,
                found: Some(Found {
                    folder: place_of(file.ancestors().nth(2).unwrap_or(cwd)),
                    by: FoundBy::File,
                    formerly: None,
                }),
            });
        }
    }
    let formerly = ProjectName::from_folder(&folder_name(cwd));
    let pid = worktrees_of(cwd).map_or_else(
        || formerly.clone(),
        |(main, _)| ProjectName::from_folder(&folder_name(&main)),
    );
    Ok(ProjectChoice {
        found: Some(Found {
            folder: place_of(cwd),
            by: FoundBy::Folder,
            formerly: Some(formerly).filter(|name| *name != pid),
        }),
        pid,
        named: false,
    })
}

fn folder_name(path: &Path) -> String {
    path.file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// What a project is bound to: the repository's common git folder, else the folder itself.
fn place_of(folder: &Path) -> String {
    let place = worktrees_of(folder).map_or_else(|| folder.to_owned(), |(_, common)| common);
    let place = place.canonicalize().unwrap_or(place);
    place.to_string_lossy().into_owned()
}

/// The main worktree around a folder, and the git folder that all its worktrees share.
///
/// Only what git itself would have written counts: a folder that merely points at a repository
/// elsewhere is none of its worktrees.
fn worktrees_of(folder: &Path) -> Option<(PathBuf, PathBuf)> {
    let found = folder.ancestors().find_map(|dir| {
        let git = dir.join(".git");
        Some((dir, std::fs::symlink_metadata(&git).ok()?, git))
    });
    let (dir, meta, git) = found?;
    if meta.is_dir() {
        return Some((dir.to_owned(), git));
    }
    let worktree = || {
        let text = std::fs::read_to_string(&git).ok()?;
        let own = dir.join(text.strip_prefix("gitdir:")?.trim());
        let back = std::fs::read_to_string(own.join("gitdir")).ok()?;
        let points_back = own.join(back.trim()).canonicalize().ok()? == git.canonicalize().ok()?;
        let common = std::fs::read_to_string(own.join("commondir")).ok()?;
        let common = own.join(common.trim()).canonicalize().ok()?;
        let main = match common.ends_with(".git") {
            true => common.parent()?.to_owned(),
            false => common.with_extension(""),
        };
        points_back.then_some((main, common))
    };
    // A submodule, or something that only looks like a worktree, stands for itself.
    Some(worktree().unwrap_or_else(|| (dir.to_owned(), dir.to_owned())))
}

/// The project's own list of visible surfaces, as much of it as fits into so many bytes of JSON;
/// empty means the default one. What is wrong with it is said and stops nothing.
pub fn surfaces(cwd: &Path, bytes: usize) -> (Vec<String>, Vec<Warning>) {
    let Some((file, text)) = project_file(cwd) else {
        return (Vec::new(), Vec::new());
    };
    let bad = |paths: Vec<String>, remediation: String| Warning {
        kind: "bad_surfaces".into(),
        paths,
        remediation,
    };
    let listed = match toml::from_str::<ProjectFile>(&text).map(|p| p.surfaces) {
        Ok(None) => return (Vec::new(), Vec::new()),
        Ok(Some(toml::Value::Array(listed))) => listed,
        Ok(Some(_)) => {
            let said = "`surfaces` must be a list of globs, such as [\"ui/**\"], and is none: the \
                        default surfaces count until it is mended.";
            let file = file.display().to_string();
            return (Vec::new(), vec![bad(vec![file], said.into())]);
        }
        Err(error) => {
            let said = format!(
                "This file is not valid, so the default surfaces count until it is mended: {}",
                error.message()
            );
            let file = file.display().to_string();
            return (Vec::new(), vec![bad(vec![file], said)]);
        }
    };
    let given = listed.len();
    let globs: Vec<String> = listed
        .into_iter()
        .filter_map(|glob| glob.as_str().map(str::to_owned))
        .collect();
    let mut warnings = Vec::new();
    if globs.len() < given {
        let said = format!(
            "{} of {given} items of `surfaces` are no text and were passed over: mend them.",
            given - globs.len()
        );
        warnings.push(bad(vec![file.display().to_string()], said));
    }
    let (globs, cut) = first_globs(globs, bytes);
    warnings.extend(cut);
    (globs, warnings)
}

/// The repository's folder around this one.
pub fn repository(cwd: &Path) -> Option<PathBuf> {
    let mut around = cwd.ancestors();
    around
        .find(|dir| dir.join(".git").exists())
        .map(Path::to_owned)
}

/// The nearest `.prism/project.toml` from here upward.
pub fn project_file(cwd: &Path) -> Option<(PathBuf, String)> {
    cwd.ancestors().find_map(|dir| {
        let file = dir.join(".prism/project.toml");
        std::fs::read_to_string(&file).ok().map(|text| (file, text))
    })
}

/// The name of this machine, as receipts show it.
pub fn machine_id() -> String {
    rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .into_owned()
}

/// What people call this server among several: its machine and process.
pub fn server_name() -> &'static str {
    static NAME: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| format!("{}:{}", machine_id(), std::process::id()));
    &NAME
}

/// Where programs are looked for: PATH, and behind it what the tests keep.
pub fn search_path() -> Vec<PathBuf> {
    let of = |name| std::env::var_os(name).unwrap_or_default();
    let cache = match of("PRISM_TEST_CACHE") {
        cache if cache.is_empty() => Path::new(&of("HOME")).join(".cache/prism-tests"),
        cache => cache.into(),
    };
    let kept = cache.join("hosts/node_modules/.bin");
    std::env::split_paths(&of("PATH")).chain([kept]).collect()
}

/// Refuses to listen beyond this machine unless a proxy in front ends TLS.
pub fn check_bind(host: &str, behind_proxy: bool, tls: bool) -> Result<()> {
    if prism_core::access::is_loopback_name(host) || behind_proxy || tls {
        return Ok(());
    }
    bail!(
        "--host {host} is reachable from other machines, and keys would travel in the clear: give --tls-cert and --tls-key, or put a TLS proxy in front and say --behind-proxy, or use 127.0.0.1"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use prism_core::limits::FILE_BYTES_MAX;

    #[test]
    fn a_project_comes_from_the_argument_the_environment_the_file_or_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("my app");
        std::fs::create_dir_all(folder.join("deep")).unwrap();
        let choose = |argument, pid: Option<&str>, at: &Path| {
            let env = Env {
                pid: pid.map(str::to_owned),
                ..Env::default()
            };
            choose_project(argument, &env, at).map(|c| (c.pid.to_string(), c.named))
        };
        assert_eq!(
            choose(Some("A"), Some("B"), &folder).unwrap(),
            ("A".into(), true)
        );
        assert_eq!(
            choose(None, Some("B"), &folder).unwrap(),
            ("B".into(), false)
        );
        assert_eq!(
            choose(None, None, &folder).unwrap(),
            ("my-app".into(), false)
        );
        std::fs::create_dir_all(folder.join(".prism")).unwrap();
        std::fs::write(folder.join(".prism/project.toml"), "pid = \"PID-X\"").unwrap();
        assert_eq!(
            choose(None, None, &folder.join("deep")).unwrap(),
            ("PID-X".into(), false)
        );
        assert!(choose(Some("no/slash"), None, &folder).is_err());
    }

    #[test]
    fn worktrees_are_one_folder_and_what_only_points_at_a_repository_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let at = |path: &str| root.join(path).to_string_lossy().into_owned();
        write("app/.git/HEAD", "");
        write("app/deep/er/x", "");
        // As `git worktree add ../fix` leaves it.
        write(
            "fix/.git",
            &format!("gitdir: {}\n", at("app/.git/worktrees/fix")),
        );
        write(
            "app/.git/worktrees/fix/gitdir",
            &format!("{}\n", at("fix/.git")),
        );
        write("app/.git/worktrees/fix/commondir", "../..\n");
        write(
            "evil/.git",
            &format!("gitdir: {}\n", at("app/.git/worktrees/fix")),
        );
        write("bad/.git", &format!("gitdir: {}\n", at("app/.git")));
        std::fs::create_dir_all(root.join("link")).unwrap();
        std::os::unix::fs::symlink(root.join("app/.git"), root.join("link/.git")).unwrap();
        std::fs::create_dir_all(root.join("plain")).unwrap();
        let found = |path: &str| {
            let choice = choose_project(None, &Env::default(), &root.join(path)).unwrap();
            let found = choice.found.unwrap();
            let formerly = found.formerly.map(String::from).unwrap_or_default();
            (choice.pid.to_string(), found.folder, formerly)
        };
        for (path, pid, folder, formerly) in [
            ("app", "app", "app/.git", ""),
            ("app/deep/er", "app", "app/.git", "er"),
            ("fix", "app", "app/.git", "fix"),
            ("evil", "evil", "evil", ""),
            ("bad", "bad", "bad", ""),
            ("link", "link", "link", ""),
            ("plain", "plain", "plain", ""),
        ] {
            assert_eq!(
                found(path),
                (pid.into(), at(folder), formerly.into()),
                "{path}"
            );
        }
    }

    #[test]
    fn what_is_wrong_with_the_config_is_said_without_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        for (text, line) in [
            ("operator = \"frank\"\napi_key = \"prk_secret\n", 2),
            ("operator = \"frank\"\napi_key = prk_secret\n", 2),
            ("operator = \"prk_secret!\"\napi_key = \"x\"\n", 1),
            (
                "operator = \"a\"\napi_key = \"prk_secret\"\nprk_secret = 1\n",
                3,
            ),
        ] {
            home.write(CONFIG, text.as_bytes()).unwrap();
            let said = format!("{:#}", Config::load(&home).unwrap_err());
            assert!(!said.contains("secret"), "{said}");
            assert!(said.contains(&format!("line {line}")), "{said}");
        }
    }

    #[test]
    fn settings_that_were_written_before_the_first_start_stay_and_get_a_name_and_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let env = Env {
            user: Some("frank".into()),
            ..Env::default()
        };
        for (n, text) in [
            "[server]\ndatabase = \"postgres://h/d\" # ours\n",
            "[server]\nredis = \"redis://h\"\n",
            "# nothing yet\n",
            "",
            "operator = \"maria\"\n[limits]\nrequests_burst = 7\n",
        ]
        .into_iter()
        .enumerate()
        {
            let home = Home::at(dir.path().join(n.to_string()));
            home.create().unwrap();
            home.write(CONFIG, text.as_bytes()).unwrap();
            assert_eq!(Config::key(&home).unwrap(), None, "{text}");
            let made = Config::load_or_create(&home, &env).unwrap();
            let name = if text.contains("maria") {
                "maria"
            } else {
                "frank"
            };
            assert_eq!(made.operator.as_str(), name, "{text}");
            assert!(made.api_key.starts_with("prk_"), "{text}");
            assert_eq!(Config::key(&home).unwrap(), Some(made.api_key));
            let kept = home.read(CONFIG).unwrap();
            assert!(kept.ends_with(text), "{kept}");
            Config::load_or_create(&home, &env).unwrap();
            assert_eq!(home.read(CONFIG).unwrap(), kept);
        }
        let home = Home::at(dir.path().join("bad"));
        home.create().unwrap();
        home.write(CONFIG, b"databse = 1\n").unwrap();
        assert!(Config::load_or_create(&home, &env).is_err());
        assert_eq!(home.read(CONFIG).unwrap(), "databse = 1\n");
    }

    #[test]
    fn a_config_with_a_mark_in_front_is_read_and_one_that_cannot_be_read_is_not_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.create().unwrap();
        let env = Env::default();
        for text in ["", "[limits]\nrequests_burst = 7\n"] {
            home.write(CONFIG, format!("\u{feff}{text}").as_bytes())
                .unwrap();
            let made = Config::load_or_create(&home, &env).unwrap();
            assert_eq!(made.limits.requests_burst == 7, !text.is_empty());
            let kept = format!("\u{feff}{}", home.read(CONFIG).unwrap());
            home.write(CONFIG, kept.as_bytes()).unwrap();
            assert_eq!(Config::key(&home).unwrap(), Some(made.api_key));
        }
        // As some editors write it: two bytes a letter.
        let wide = b"\xff\xfeo\0p\0".as_slice();
        for unreadable in [wide, &vec![b'#'; FILE_BYTES_MAX as usize + 1]] {
            home.write(CONFIG, unreadable).unwrap();
            let said = Config::load_or_create(&home, &env).unwrap_err().to_string();
            assert!(said.contains("cannot be read"), "{said}");
            assert_eq!(home.size(CONFIG), Some(unreadable.len() as u64));
        }
    }

    #[test]
    fn a_server_does_not_leave_this_machine_by_accident() {
        assert!(
            check_bind("127.0.0.1", false, false).is_ok()
                && check_bind("localhost", false, false).is_ok()
        );
        assert!(check_bind("0.0.0.0", false, false).is_err());
        assert!(check_bind("0.0.0.0", true, false).is_ok());
        assert!(check_bind("0.0.0.0", false, true).is_ok());
    }

    #[test]
    fn the_first_start_makes_a_private_config_and_the_next_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let env = Env {
            user: Some("frank".into()),
            ..Env::default()
        };
        let made = Config::load_or_create(&home, &env).unwrap();
        assert!(made.api_key.starts_with("prk_") && made.operator.as_str() == "frank");
        assert_eq!(
            Config::load_or_create(&home, &env).unwrap().api_key,
            made.api_key
        );
        assert_eq!(home.mode("config.toml"), Some(0o600));
    }

    #[test]
    fn a_certificate_comes_from_the_argument_the_environment_or_the_home() {
        let home = Home::at("/home/of/prism");
        let pair = |name: &str| (Some(PathBuf::from(name)), Some(PathBuf::from(name)));
        let env = |name: &str| Env {
            tls_cert: Some(name.into()),
            tls_key: Some(name.into()),
            ..Env::default()
        };
        let config = |name: &str| ServerConfig {
            tls_cert: Some(name.into()),
            tls_key: Some(name.into()),
            ..ServerConfig::default()
        };
        let (none, unset) = (Env::default(), ServerConfig::default());
        for (argument, env, config, expected) in [
            ((None, None), &none, &unset, None),
            (pair("a"), &env("b"), &config("c"), Some("a")),
            ((None, None), &env("b"), &config("c"), Some("b")),
            ((None, None), &none, &config("c"), Some("/home/of/prism/c")),
            ((None, None), &none, &config("/c"), Some("/c")),
        ] {
            let files = tls_files(argument, env, config, &home).unwrap();
            let files = files.map(|f| (f.cert, f.key));
            let expected = expected.map(|name| (PathBuf::from(name), PathBuf::from(name)));
            assert_eq!(files, expected);
        }
        // Half of one is not made whole by half of another.
        assert!(tls_files((pair("a").0, None), &env("b"), &unset, &home).is_err());
        assert!(tls_files((None, pair("a").1), &none, &unset, &home).is_err());
    }
}
