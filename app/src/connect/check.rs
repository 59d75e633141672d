//! `prism connect --check`: what each host really has, and whether it works.

use super::backups::Approval;
use super::pins::half_pinned;
use super::{Machine, approvals_in, files, has_plugin, line_words, runs_hooks_elsewhere, settings};
use crate::config::Env;
use prism_core::connect::parts::{Found, Line, Server};
use prism_core::connect::{self as rules, Host, HostFile, Part, Pins, Scope};
use serde::Serialize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a host may take to say its version.
const VERSION: Duration = Duration::from_secs(5);

/// One host in one scope.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub host: Host,
    pub scope: Scope,
    pub installed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    pub connected: bool,
    pub server: Option<ServerReport>,
    pub hooks: Option<HookReport>,
    /// None: the host has no such line.
    pub statusline: Option<&'static str>,
    /// Whether Claude Code calls our tools unasked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools_allowed: Option<bool>,
    pub instructions: bool,
    pub identity: Identity,
    /// Whether Codex runs one server for all terminals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_server: Option<bool>,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ServerReport {
    pub file: PathBuf,
    pub command: String,
    pub resolves: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct HookReport {
    pub file: PathBuf,
    pub present: Vec<String>,
    pub missing: Vec<String>,
    /// Only where the host asks its user first: `yes`, `no`, `partly`, or `again` when a hook changed
    /// after it was approved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trusted: Option<&'static str>,
    pub resolves: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Identity {
    /// `pinned`, or `environment`: of whoever starts the host.
    pub from: &'static str,
    pub name: Option<String>,
}

/// Looks at one host in one scope.
pub fn check(machine: &Machine, env: &Env, host: Host, scope: Scope, ask_version: bool) -> Report {
    let mut report = Report {
        host,
        scope,
        installed: machine.is_installed(host),
        version: None,
        connected: false,
        server: None,
        hooks: None,
        statusline: (host == Host::ClaudeCode).then_some("none"),
        tools_allowed: (host == Host::ClaudeCode).then_some(false),
        instructions: false,
        identity: Identity {
            from: "environment",
            name: env.identity.clone(),
        },
        shared_server: None,
        problems: Vec::new(),
        notes: Vec::new(),
    };
    for file in machine.everywhere(host, scope) {
        look_at(machine, &file, &mut report);
    }
    report.connected = report.server.is_some() || report.hooks.is_some();
    if host == Host::ClaudeCode {
        claude_facts(machine, &mut report);
        let known = env.identity.as_deref();
        if report.identity.from == "pinned" && scope == Scope::Project {
            let name = report.identity.name.as_deref().unwrap_or_default();
            report.notes.extend(half_pinned(machine, name, known));
        }
    }
    if report.connected {
        judge(machine, &mut report);
        if ask_version && (machine.host_program(host).is_some() || host.tried().is_none()) {
            report.version = version(machine, host);
            report
                .notes
                .extend(version_note(host, report.version.as_deref()));
        }
    }
    report
}

fn look_at(machine: &Machine, file: &HostFile, report: &mut Report) {
    let shown = file.path.display();
    let seen = match files::look(&file.path) {
        Ok(seen) => seen,
        Err(e) => return report.problems.push(format!("{shown}: {e:#}")),
    };
    let Some(text) = &seen.text else { return };
    let found = match rules::look(text, file.format, &file.parts, &machine.launch) {
        Ok(found) => found,
        Err(refusal) => return report.problems.push(format!("{shown}: {refusal}")),
    };
    let holds = |part: fn(&Part) -> bool| file.parts.iter().any(part);
    if let Some(server) = &found.server {
        look_at_server(machine, file, server, report);
    }
    if !found.hooks.handlers.is_empty() {
        look_at_hooks(machine, file, &found, report);
    }
    if holds(|p| *p == Part::StatusLine) {
        report.statusline = Some(line_words(found.line.as_ref()));
        if let Some(Line::Ours(ours)) = &found.line
            && machine.program(&ours.program).is_none()
        {
            let program = &ours.program;
            let what = format!("the status line runs {program}, which is not there");
            report.problems.push(what);
        }
        report.tools_allowed = Some(found.allowed);
    }
    if found.pins.identity.is_some() {
        report.identity = pinned(&found.pins);
    }
    let known = report.server.is_some() || found.daemon.is_some();
    if holds(|p| *p == Part::OwnServers) && known {
        report.shared_server = Some(found.daemon != Some(false));
    }
    report.instructions |= found.block;
}

fn look_at_server(machine: &Machine, file: &HostFile, server: &Server, report: &mut Report) {
    let shown = file.path.display();
    let Some(program) = &server.program else {
        let what = format!("{shown}: another MCP server is called `{}`", rules::SERVER);
        return report.problems.push(what);
    };
    if server.off {
        report
            .problems
            .push(format!("{shown}: the server is switched off"));
    }
    let resolves = machine.program(program).is_some();
    if !resolves {
        let what = format!("{shown}: {program} is not there, or not on your PATH");
        report.problems.push(what);
    }
    report.server = Some(ServerReport {
        file: file.path.clone(),
        command: format!("{program} mcp"),
        resolves,
    });
    if server.pins.identity.is_some() {
        report.identity = pinned(&server.pins);
    }
}

fn pinned(pins: &Pins) -> Identity {
    Identity {
        from: "pinned",
        name: pins.identity.clone(),
    }
}

fn look_at_hooks(machine: &Machine, file: &HostFile, found: &Found, report: &mut Report) {
    let shown = file.path.display();
    let handlers = &found.hooks.handlers;
    let mut present: Vec<String> = handlers.iter().map(|(event, ..)| event.clone()).collect();
    present.dedup();
    if !found.hooks.missing.is_empty() {
        report.problems.push(format!(
            "{shown}: no hook for {}: `prism connect {}` adds it",
            found.hooks.missing.join(", "),
            report.host
        ));
    }
    if !found.waiters.missing.is_empty() && report.host == Host::ClaudeCode {
        report.problems.push(format!(
            "{shown}: no hook waits beside an idle session ({}): `prism connect {}` adds it",
            found.waiters.missing.join(", "),
            report.host
        ));
    }
    let gone = handlers.iter().find(|(.., p)| machine.program(p).is_none());
    if let Some((event, .., program)) = gone {
        let what = format!("{shown}: the hook of {event} runs {program}, which is not there");
        report.problems.push(what);
    }
    let trusted = (report.host == Host::Codex).then(|| trusted(machine, file, found));
    report.hooks = Some(HookReport {
        file: file.path.clone(),
        present,
        missing: found.hooks.missing.clone(),
        trusted,
        resolves: gone.is_none(),
    });
}

/// Whether the user let Codex run our hooks. An approval is for a hook as it was written then; where
/// that is known to have changed since, Codex skips the hook until it is approved again.
fn trusted(machine: &Machine, file: &HostFile, found: &Found) -> &'static str {
    let approvals = approvals_in(machine, file, found);
    let is_stale = |now: &&Approval| {
        let known = machine.approvals.iter();
        let mut known = known.filter(|a| a.key == now.key && a.hash == now.hash);
        known.any(|before| before.hook != now.hook)
    };
    let given = approvals.iter().flatten();
    match given.clone().count() {
        _ if given.clone().any(|now| is_stale(&now)) => "again",
        0 => "no",
        n if n >= found.hooks.handlers.len() => "yes",
        _ => "partly",
    }
}

/// What Claude Code's settings say besides.
fn claude_facts(machine: &Machine, report: &mut Report) {
    let user = settings(&machine.places.claude.join("settings.json"));
    if has_plugin(&user) && report.scope == Scope::User {
        report
            .notes
            .push("the prism plugin is enabled: it brings server and hooks".into());
    }
    if user["disableAllHooks"] == true && report.connected {
        let what = "settings.json says disableAllHooks: neither hooks nor status line run";
        report.problems.push(what.into());
    }
}

/// What follows from what was found.
fn judge(machine: &Machine, report: &mut Report) {
    let host = report.host;
    // A folder's hooks may go with a server that the user has for all folders.
    if report.server.is_none() && report.scope == Scope::User {
        let what = format!("hooks, but no MCP server: `prism connect {host}` adds it");
        report.problems.push(what);
    }
    let elsewhere = runs_hooks_elsewhere(machine, host, report.scope);
    if report.hooks.is_none() && !host.events().is_empty() && !elsewhere {
        let what = format!("no hooks: `prism connect {host}` adds them");
        report.notes.push(what);
    }
    if let Some(hooks) = &report.hooks
        && matches!(hooks.trusted, Some("no" | "partly"))
    {
        report.notes.push(
            "Codex runs our hooks once you approved them: start `codex`, which asks \"Hooks need review\" (or \
             type /hooks there)"
                .into(),
        );
    }
    if report
        .hooks
        .as_ref()
        .is_some_and(|h| h.trusted == Some("again"))
    {
        report.notes.push(
            "our hooks changed after you approved them: approve once more in Codex, which skips them until \
             then (start `codex`, or type /hooks there)"
                .into(),
        );
    }
    if report.shared_server == Some(true) && report.identity.from != "pinned" {
        report.notes.push(
            "Codex runs one server for all terminals, which gives each the identity of the first: \
             `prism connect codex --own-server` turns it off, or start it with `prism coder --as NAME -- codex`"
                .into(),
        );
    }
    if report.hooks.is_some() && elsewhere && host != Host::ClaudeCode {
        let what = "our hooks stand in your files and in this folder's, and run twice here";
        report.notes.push(what.into());
    }
    if !report.installed {
        report
            .notes
            .push(format!("{} is not installed here", host.title()));
    }
    if machine.host_program(host).is_none() && report.installed {
        report
            .notes
            .push(format!("{} is not on your PATH", host.title()));
    }
}

/// What the host says when asked for its version; a host that does not answer is not waited for.
pub fn version(machine: &Machine, host: Host) -> Option<String> {
    let program = machine.host_program(host)?;
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let deadline = Instant::now() + VERSION;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => break,
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            _ => {
                drop(child.kill());
                drop(child.wait());
                return None;
            }
        }
    }
    let said = child.wait_with_output().ok()?.stdout;
    let said = String::from_utf8_lossy(&said);
    let words = said.split(|c: char| c.is_whitespace() || c == 'v');
    let version = words
        .filter(|w| w.contains('.'))
        .find(|w| w.starts_with(|c: char| c.is_ascii_digit()))?;
    Some(version.chars().take(30).collect())
}

/// What there is to say about a version other than the one that was tried.
pub fn version_note(host: Host, version: Option<&str>) -> Option<String> {
    let title = host.title();
    let numbers = |v: &str| -> Vec<u64> {
        let numbers = v.split(|c: char| !c.is_ascii_digit());
        numbers.map_while(|n| n.parse().ok()).take(3).collect()
    };
    match (host.tried(), version) {
        (None, _) => Some(format!(
            "what is written for {title} follows its documentation; it was not tried with the program itself"
        )),
        (Some(tried), Some(version)) if numbers(version) < numbers(tried) => Some(format!(
            "this is {title} {version}; connecting was tried with {tried}: if hooks do not run, update it"
        )),
        (Some(tried), None) => Some(format!(
            "{title} does not say its version; connecting was tried with {tried}"
        )),
        (Some(tried), Some(version)) if numbers(version) > numbers(tried) => Some(format!(
            "this is {title} {version}, newer than {tried}, which connecting was tried with: if something does \
             not work, that may be why"
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_version_but_the_tried_one_is_mentioned() {
        for (host, version, says) in [
            (Host::ClaudeCode, Some("2.1.99"), Some("2.1.99")),
            (Host::ClaudeCode, Some("2.1.325"), None),
            (Host::ClaudeCode, Some("3.0.0"), Some("newer than 2.1.325")),
            (Host::ClaudeCode, Some("2.1.326"), Some("newer")),
            (Host::Codex, None, Some("does not say")),
            (Host::Codex, Some("0.166.0-alpha.1"), None),
            (Host::Cursor, Some("9.9"), Some("documentation")),
        ] {
            let said = version_note(host, version);
            assert_eq!(said.is_some(), says.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().contains(says.unwrap_or_default()));
        }
    }
}
