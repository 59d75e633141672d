//! How Prism stands in the files of agent hosts: which files, which parts, how they go in and out.

pub mod block;
pub mod command;
pub mod diff;
pub mod json;
pub mod parts;
pub mod toml;

pub use command::Launch;
pub use parts::{Added, Found, Hooks, add, look, remove};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// The name under which hosts know our MCP server.
pub const SERVER: &str = "prism";
/// The rule that lets Claude Code call our tools unasked.
pub const ALLOW: &str = "mcp__prism";
/// Variables that Codex hands on to the shim; without the list it hands on none of them.
pub const CODEX_ENV_VARS: [&str; 11] = [
    "PRISM_AGENT_IDENTITY",
    "PRISM_HOME",
    "PRISM_PID",
    "PRISM_AGENT_SURFACE",
    "CODEX_HOME",
    "PRISM_DOORBELL",
    "PRISM_AUTOSTART",
    "PRISM_URL",
    "PRISM_API_KEY",
    "PRISM_ALLOW_HTTP",
    "PRISM_CA_FILE",
];

/// A file that is left alone, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Line and column, counted from one.
    pub place: Option<(usize, usize)>,
    pub message: String,
}

impl Refusal {
    pub fn new(message: impl Into<String>) -> Self {
        Self {
            place: None,
            message: message.into(),
        }
    }

    pub fn at(text: &str, offset: usize, message: impl Into<String>) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line = before.rfind('\n').map_or(0, |n| n + 1);
        Self {
            place: Some((
                before.matches('\n').count() + 1,
                before[line..].chars().count() + 1,
            )),
            message: message.into(),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.place {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Host {
    ClaudeCode,
    Codex,
    Cursor,
    #[serde(rename = "vscode")]
    VsCode,
    Gemini,
    #[serde(rename = "opencode")]
    OpenCode,
}

impl Host {
    pub const ALL: [Self; 6] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::Cursor,
        Self::VsCode,
        Self::Gemini,
        Self::OpenCode,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Cursor => "cursor",
            Self::VsCode => "vscode",
            Self::Gemini => "gemini",
            Self::OpenCode => "opencode",
        }
    }

    pub const fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::VsCode => "VS Code",
            Self::Gemini => "Gemini CLI",
            Self::OpenCode => "OpenCode",
        }
    }

    /// The programs whose presence says that a host is installed.
    pub const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["claude"],
            Self::Codex => &["codex"],
            Self::Cursor => &["cursor", "cursor-agent"],
            Self::VsCode => &["code"],
            Self::Gemini => &["gemini"],
            Self::OpenCode => &["opencode"],
        }
    }

    /// The version that connecting was tried with, where it was tried with the real program.
    pub const fn tried(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("2.1.325"),
            Self::Codex => Some("0.166.0"),
            Self::Gemini => Some("0.61.0"),
            Self::OpenCode => Some("1.18.33"),
            Self::Cursor | Self::VsCode => None,
        }
    }

    /// The events whose hooks run `prism hook`: where a session starts and ends, is told something,
    /// waits for its user, and goes on after that, however its turn went. Only what the tried version
    /// knows: a host warns about any other.
    pub const fn events(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &[
                "SessionStart",
                "UserPromptSubmit",
                "PostToolUse",
                "PostToolUseFailure",
                "Notification",
                "PermissionRequest",
                "PermissionDenied",
                "ElicitationResult",
                "Stop",
                "StopFailure",
                "SessionEnd",
            ],
            Self::Codex => &[
                "SessionStart",
                "UserPromptSubmit",
                "PostToolUse",
                "PermissionRequest",
                "Interrupt",
                "Stop",
                "SessionEnd",
            ],
            Self::Cursor => &[
                "sessionStart",
                "beforeSubmitPrompt",
                "postToolUse",
                "stop",
                "sessionEnd",
            ],
            Self::VsCode => &["SessionStart", "UserPromptSubmit", "PostToolUse", "Stop"],
            Self::Gemini => &[
                "SessionStart",
                "BeforeAgent",
                "AfterTool",
                "AfterAgent",
                "Notification",
                "SessionEnd",
            ],
            // Its hooks are TypeScript plugins.
            Self::OpenCode => &[],
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Whose files: the user's, or those of one folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    User,
    Project,
}

impl Scope {
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Project => "project",
        }
    }
}

/// Where hosts keep their files on this machine, and which folder is meant.
#[derive(Clone, Debug)]
pub struct Places {
    pub home: PathBuf,
    /// `CLAUDE_CONFIG_DIR`, else `~/.claude`.
    pub claude: PathBuf,
    /// `.claude.json`: beside that folder, or in it when the variable is set.
    pub claude_json: PathBuf,
    /// `CODEX_HOME`, else `~/.codex`.
    pub codex: PathBuf,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    pub config: PathBuf,
    /// VS Code's `User` folder.
    pub code_user: PathBuf,
    /// The repository, else the folder itself.
    pub root: PathBuf,
}

impl Places {
    /// The folder that is there when a host has run.
    pub fn folder(&self, host: Host) -> PathBuf {
        match host {
            Host::ClaudeCode => self.claude.clone(),
            Host::Codex => self.codex.clone(),
            Host::Cursor => self.home.join(".cursor"),
            Host::VsCode => self.code_user.clone(),
            Host::Gemini => self.home.join(".gemini"),
            Host::OpenCode => self.config.join("opencode"),
        }
    }
}

/// What is pinned for everybody who starts the host there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pins {
    pub identity: Option<String>,
    pub pid: Option<String>,
}

impl Pins {
    pub fn is_empty(&self) -> bool {
        self.identity.is_none() && self.pid.is_none()
    }

    pub fn variables(&self) -> Vec<(&'static str, &str)> {
        let pins = [
            (IDENTITY, self.identity.as_deref()),
            (PID, self.pid.as_deref()),
        ];
        pins.into_iter()
            .filter_map(|(k, v)| Some((k, v?)))
            .collect()
    }
}

pub(crate) const IDENTITY: &str = "PRISM_AGENT_IDENTITY";
pub(crate) const PID: &str = "PRISM_PID";

/// What the user wants of a connection.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    pub pins: Pins,
    /// Claude Code may call our tools without asking.
    pub allow_tools: bool,
    /// Codex starts a server for each terminal, so that each has its own identity.
    pub own_servers: bool,
    pub instructions: bool,
    /// The files have no hooks of ours: something else runs them.
    pub without_hooks: bool,
    /// The file has no server of ours: a plugin brings it.
    pub without_server: bool,
    /// Codex keeps its hooks in `config.toml`; a second place would make it complain.
    pub hooks_in_toml: bool,
    /// The status line of this scope is not ours to set.
    pub without_line: bool,
}

/// How a file is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    Json(json::Dialect),
    Toml,
    Text,
}

/// How a host writes an MCP server down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ServerShape {
    /// `command`, `args`, `env`.
    Plain,
    /// The same with `"type": "stdio"`.
    Stdio,
    /// OpenCode: one list of words, `environment`, `enabled`.
    Local,
}

/// How a host writes a hook down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HookShape {
    /// An event has groups, a group has handlers. The number is the timeout, in the host's unit.
    Groups(i64),
    /// An event has handlers; the file has a version.
    Versioned,
    /// An event has handlers that say their type.
    Typed(i64),
}

/// One thing of ours in a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// The MCP entry, in the object at this path.
    Server(Vec<String>, ServerShape, Pins),
    Hooks(HookShape, &'static [&'static str]),
    /// Hooks that wait beside an idle session and wake it: Claude Code's `asyncRewake`.
    Waiters(HookShape, &'static [&'static str]),
    StatusLine,
    /// `permissions.allow`.
    Allow,
    /// `env` of the host's settings: reaches hooks and status line as well.
    Env(Pins),
    /// `features.daemon_auto_start = false`.
    OwnServers,
    /// The marked block of instructions.
    Block,
    /// What Codex noted when its user approved our hooks: looked for and taken out, never put in.
    Trust(Vec<String>),
}

/// A file and what of ours belongs in it.
#[derive(Clone, Debug)]
pub struct HostFile {
    pub path: PathBuf,
    pub format: Format,
    pub parts: Vec<Part>,
    /// Shared with whoever else works in the folder.
    pub shared: bool,
}

/// How long a hook may take. Codex complains above this at the end of a session; ours needs a twentieth.
const SECONDS: i64 = 3;
/// How long a waiter may wait; it ends before by itself, and with its session.
const WAITING_SECONDS: i64 = 86_400;
const _: () = assert!((WAITING_SECONDS as u64) > crate::limits::REWAKE_WAIT_S);
/// Where a session becomes idle.
const WAITING_EVENTS: &[&str] = &["SessionStart", "Stop"];
const PLAIN: Format = Format::Json(json::Dialect::Plain);
const COMMENTED: Format = Format::Json(json::Dialect::Commented);

/// The files that a connection is written into.
pub fn files(
    host: Host,
    scope: Scope,
    places: &Places,
    wish: &Wish,
) -> Result<Vec<HostFile>, Refusal> {
    if scope == Scope::Project && !wish.pins.is_empty() && host != Host::ClaudeCode {
        return Err(Refusal::new(format!(
            "{} keeps what belongs to one folder in the repository, where an identity or a project \
             must not be pinned: leave --as and --pid out and set PRISM_AGENT_IDENTITY and PRISM_PID in \
             the shell, or pin them with --user",
            host.title()
        )));
    }
    let mut files = match host {
        Host::ClaudeCode => claude(scope, places, wish),
        Host::Codex => codex(scope, places, wish),
        Host::Cursor => cursor(scope, places, wish),
        Host::VsCode => vscode(scope, places, wish),
        Host::Gemini => gemini(scope, places, wish),
        Host::OpenCode => opencode(scope, places, wish),
    };
    if wish.instructions {
        let path = instructions(host, scope, places).ok_or_else(|| {
            Refusal::new(format!(
                "{} has no file of instructions for all folders: use --project",
                host.title()
            ))
        })?;
        files.push(file(path, Format::Text, scope, [Part::Block]));
    }
    files.retain(|f| !f.parts.is_empty());
    Ok(files)
}

/// Every file that may hold something of ours, with everything that may stand in it.
pub fn everywhere(host: Host, scope: Scope, places: &Places) -> Vec<HostFile> {
    let wish = Wish {
        allow_tools: true,
        own_servers: true,
        ..Wish::default()
    };
    let mut all = files(host, scope, places, &wish).unwrap_or_default();
    if host == Host::Codex {
        let toml = Wish {
            hooks_in_toml: true,
            ..wish
        };
        all.extend(
            files(host, scope, places, &toml)
                .unwrap_or_default()
                .into_iter()
                .filter(|f| f.format == Format::Toml),
        );
    }
    if host == Host::ClaudeCode && scope == Scope::User {
        let settings = places.claude.join("settings.json");
        all.push(file(settings, PLAIN, scope, [Part::Env(Pins::default())]));
    }
    if host == Host::ClaudeCode && scope == Scope::Project {
        all.push(file(
            places.claude_json.clone(),
            PLAIN,
            Scope::User,
            [local_server(places, Pins::default())],
        ));
    }
    if let Some(path) = instructions(host, scope, places) {
        all.push(file(path, Format::Text, scope, [Part::Block]));
    }
    // One file, one entry.
    let mut merged: Vec<HostFile> = Vec::new();
    for file in all {
        match merged.iter_mut().find(|m| m.path == file.path) {
            Some(known) => {
                let new = file.parts.into_iter().filter(|p| !known.parts.contains(p));
                let new: Vec<Part> = new.collect();
                known.parts.extend(new);
            }
            None => merged.push(file),
        }
    }
    merged
}

/// Where a host reads what its model is told in every session.
pub fn instructions(host: Host, scope: Scope, places: &Places) -> Option<PathBuf> {
    Some(match (host, scope) {
        (Host::ClaudeCode, Scope::User) => places.claude.join("CLAUDE.md"),
        (Host::ClaudeCode, Scope::Project) => places.root.join("CLAUDE.md"),
        (Host::Codex, Scope::User) => places.codex.join("AGENTS.md"),
        (Host::OpenCode, Scope::User) => places.config.join("opencode/AGENTS.md"),
        (Host::Gemini, Scope::User) => places.home.join(".gemini/GEMINI.md"),
        (Host::Gemini, Scope::Project) => places.root.join("GEMINI.md"),
        (Host::Cursor | Host::VsCode, Scope::User) => return None,
        (_, Scope::Project) => places.root.join("AGENTS.md"),
    })
}

fn file<const N: usize>(path: PathBuf, format: Format, scope: Scope, parts: [Part; N]) -> HostFile {
    HostFile {
        path,
        format,
        parts: parts.into(),
        shared: scope == Scope::Project,
    }
}

/// The parts that are wanted, in one list.
fn some<const N: usize>(parts: [(bool, Part); N]) -> Vec<Part> {
    let wanted = parts.into_iter().filter(|(wanted, _)| *wanted);
    wanted.map(|(_, part)| part).collect()
}

fn names<const N: usize>(path: [&str; N]) -> Vec<String> {
    path.map(str::to_owned).into()
}

fn local_server(places: &Places, pins: Pins) -> Part {
    let root = places.root.to_string_lossy();
    let at = names(["projects", &root, "mcpServers"]);
    Part::Server(at, ServerShape::Stdio, pins)
}

fn claude(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let hooks = Part::Hooks(HookShape::Groups(SECONDS), Host::ClaudeCode.events());
    let waiters = Part::Waiters(HookShape::Groups(WAITING_SECONDS), WAITING_EVENTS);
    let server = |pins| Part::Server(names(["mcpServers"]), ServerShape::Stdio, pins);
    let mut files = Vec::new();
    let (server, settings) = match scope {
        Scope::User => (
            file(
                places.claude_json.clone(),
                PLAIN,
                scope,
                [server(wish.pins.clone())],
            ),
            places.claude.join("settings.json"),
        ),
        Scope::Project => (
            if wish.pins.is_empty() {
                file(
                    places.root.join(".mcp.json"),
                    PLAIN,
                    scope,
                    [server(Pins::default())],
                )
            } else {
                // The user's own note about this folder, outside of it.
                let local = local_server(places, wish.pins.clone());
                file(places.claude_json.clone(), PLAIN, Scope::User, [local])
            },
            places.root.join(".claude/settings.json"),
        ),
    };
    if !wish.without_server {
        files.push(server);
    }
    let pinned = scope == Scope::User && !wish.pins.is_empty();
    files.push(HostFile {
        path: settings,
        format: PLAIN,
        parts: some([
            (!wish.without_hooks, hooks),
            (!wish.without_hooks, waiters),
            (!wish.without_line, Part::StatusLine),
            (wish.allow_tools, Part::Allow),
            (pinned, Part::Env(wish.pins.clone())),
        ]),
        shared: scope == Scope::Project,
    });
    files
}

fn codex(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let folder = match scope {
        Scope::User => places.codex.clone(),
        Scope::Project => places.root.join(".codex"),
    };
    let hooks = Part::Hooks(HookShape::Groups(SECONDS), Host::Codex.events());
    let server = Part::Server(
        names(["mcp_servers"]),
        ServerShape::Plain,
        wish.pins.clone(),
    );
    let in_toml = wish.hooks_in_toml;
    let config = HostFile {
        path: folder.join("config.toml"),
        format: Format::Toml,
        parts: some([
            (in_toml && !wish.without_hooks, hooks.clone()),
            (wish.own_servers && scope == Scope::User, Part::OwnServers),
            (true, server),
        ]),
        shared: scope == Scope::Project,
    };
    let hooks = HostFile {
        path: folder.join("hooks.json"),
        format: PLAIN,
        parts: some([(!in_toml && !wish.without_hooks, hooks)]),
        shared: scope == Scope::Project,
    };
    vec![config, hooks]
}

fn cursor(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let folder = match scope {
        Scope::User => places.home.join(".cursor"),
        Scope::Project => places.root.join(".cursor"),
    };
    let server = Part::Server(names(["mcpServers"]), ServerShape::Plain, wish.pins.clone());
    let hooks = Part::Hooks(HookShape::Versioned, Host::Cursor.events());
    let mut files = vec![file(folder.join("mcp.json"), COMMENTED, scope, [server])];
    if !wish.without_hooks {
        files.push(file(folder.join("hooks.json"), COMMENTED, scope, [hooks]));
    }
    files
}

fn vscode(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let (servers, hooks) = match scope {
        Scope::User => (
            places.code_user.join("mcp.json"),
            places.home.join(".copilot/hooks/prism.json"),
        ),
        Scope::Project => (
            places.root.join(".vscode/mcp.json"),
            places.root.join(".github/hooks/prism.json"),
        ),
    };
    let server = Part::Server(names(["servers"]), ServerShape::Stdio, wish.pins.clone());
    let part = Part::Hooks(HookShape::Typed(SECONDS), Host::VsCode.events());
    let mut files = vec![file(servers, COMMENTED, scope, [server])];
    if !wish.without_hooks {
        files.push(file(hooks, COMMENTED, scope, [part]));
    }
    files
}

fn gemini(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let folder = match scope {
        Scope::User => places.home.join(".gemini"),
        Scope::Project => places.root.join(".gemini"),
    };
    let server = Part::Server(names(["mcpServers"]), ServerShape::Plain, wish.pins.clone());
    // This host counts milliseconds.
    let hooks = Part::Hooks(HookShape::Groups(SECONDS * 1000), Host::Gemini.events());
    vec![HostFile {
        path: folder.join("settings.json"),
        format: COMMENTED,
        parts: some([(true, server), (!wish.without_hooks, hooks)]),
        shared: scope == Scope::Project,
    }]
}

fn opencode(scope: Scope, places: &Places, wish: &Wish) -> Vec<HostFile> {
    let folder = match scope {
        Scope::User => places.config.join("opencode"),
        Scope::Project => places.root.clone(),
    };
    let server = Part::Server(names(["mcp"]), ServerShape::Local, wish.pins.clone());
    vec![file(
        folder.join("opencode.json"),
        COMMENTED,
        scope,
        [server],
    )]
}

/// Whether a file lies in a folder, both as they really are.
pub fn is_under(file: &Path, folder: &Path) -> bool {
    file.starts_with(folder)
}

#[cfg(test)]
mod tests;
