//! Identities and projects that a host's files fix: they win over the shell that the host is started in.

use super::{Machine, files};
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
