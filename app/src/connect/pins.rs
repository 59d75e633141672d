//! Identities and projects that a host's files fix: they win over the shell that the host is started in.

use super::{Machine, Planned, files, settings};
use prism_core::connect::{self as rules, Format, Host, HostFile, Part, Pins, Scope};
use std::path::PathBuf;

/// A pin, and where it stands.
#[derive(Clone, Debug)]
pub struct Pinned {
    pub file: PathBuf,
    pub scope: Scope,
    pub pins: Pins,
}

/// Every pin that a host started here would follow. A file that cannot be read pins nothing.
pub fn pinned(machine: &Machine, host: Host) -> Vec<Pinned> {
    let mut found = Vec::new();
    for scope in [Scope::User, Scope::Project] {
        let mut all = machine.everywhere(host, scope);
        if host == Host::ClaudeCode && scope == Scope::Project {
            // We write none there, but a user may have.
            let folder = machine.places.root.join(".claude");
            all.extend(
                ["settings.json", "settings.local.json"].map(|name| HostFile {
                    path: folder.join(name),
                    format: Format::Json(rules::json::Dialect::Plain),
                    parts: vec![Part::Env(Pins::default())],
                    shared: true,
                }),
            );
        }
        for file in all {
            let text = files::look(&file.path).ok().and_then(|seen| seen.text);
            let Some(text) = text else { continue };
            let Ok(held) = rules::look(&text, file.format, &file.parts, &machine.launch) else {
                continue;
            };
            let server = held.server.filter(|s| s.program.is_some() && !s.off);
            let places = [server.map(|s| s.pins), Some(held.pins)];
            let pins = places.into_iter().flatten().filter(|p| !p.is_empty());
            found.extend(pins.map(|pins| Pinned {
                file: file.path.clone(),
                scope,
                pins,
            }));
        }
    }
    found
}

/// What a pin of one folder leaves out in Claude Code: it reaches the server, and nothing that the
/// folder's shared settings start. `known` is who the shell says it is.
pub fn half_pinned(machine: &Machine, name: &str, known: Option<&str>) -> Option<String> {
    let user = settings(&machine.places.claude.join("settings.json"));
    let set = user["env"]["PRISM_AGENT_IDENTITY"].as_str();
    let same = |other: &str| other.eq_ignore_ascii_case(name);
    match set.or(known) {
        Some(who) if same(who) => None,
        _ => Some(match set {
            Some(other) => format!(
                "the pin to {name} reaches the server alone; status line and hooks say {other} here, as your \
                 own settings pin for all folders"
            ),
            None => format!(
                "the pin to {name} reaches the server alone; status line and hooks show no identity here \
                 unless Claude Code is started with PRISM_AGENT_IDENTITY={name}"
            ),
        }),
    }
}

/// Whom a new pin replaces in the files that are about to be written.
pub fn replaced(machine: &Machine, scope: Scope, planned: &[Planned], new: &Pins) -> Vec<String> {
    let whose = match scope {
        Scope::User => "of yours",
        Scope::Project => "in this folder",
    };
    let mut said: Vec<String> = Vec::new();
    for planned in planned {
        let (file, text) = (&planned.file, planned.seen.text());
        let Ok(held) = rules::look(text, file.format, &file.parts, &machine.launch) else {
            continue;
        };
        for old in [held.server.map(|s| s.pins), Some(held.pins)]
            .into_iter()
            .flatten()
        {
            let pairs = [(old.identity, &new.identity), (old.pid, &new.pid)];
            for (old, new) in pairs {
                if let (Some(old), Some(new)) = (old, new)
                    && old != *new
                {
                    said.push(format!(
                        "sessions {whose} were {old}, and are {new} from now on"
                    ));
                }
            }
        }
    }
    said.sort();
    said.dedup();
    said
}
