//! What this server holds, and for whom.

use crate::clock;
use crate::config::Env;
use crate::connect::{Machine, check};
use crate::home::Home;
use crate::prism::{Caller, Prism};
use prism_core::Problem;
use prism_core::api::Nothing;
use prism_core::api::page::house::{HostConnected, Settings};
use prism_core::connect::{Host, Scope};
use prism_core::limits::PAGES_MAX;

pub async fn settings(prism: &Prism, caller: &Caller, _: Nothing) -> Result<Settings, Problem> {
    let retained = crate::verb::retention::retained(prism, caller, Nothing {}).await?;
    let keys = crate::verb::keys::list(prism, caller, Nothing {}).await?;
    let mut projects = prism.store.project_settings().await?;
    if !caller.everywhere {
        projects.retain(|p| p.pid == caller.project.pid.as_str());
    }
    let (stored, mut surfaces) = prism.store.stored().await?;
    let home = prism.home.clone();
    // Files of other programs: nobody else waits for them.
    let hosts = match prism.is_guest() {
        // This machine is not theirs.
        true => Ok(Vec::new()),
        false => tokio::task::spawn_blocking(move || hosts(&home)).await,
    };
    let now = clock::now();
    for surface in &mut surfaces {
        let open = prism.directory.projects().into_iter().flat_map(|p| {
            let sessions = prism.presence.sessions(p.id, now);
            sessions.into_iter().map(|(_, view)| view)
        });
        let here = open.filter(|view| {
            view.surface == surface.surface && view.machine_id == surface.machine_id
        });
        surface.open = here.count() as u64;
    }
    Ok(Settings {
        server_version: crate::config::version().into(),
        started_at: prism.started_at,
        operator: prism.operator.to_string(),
        public_url: prism
            .browsers
            .public()
            .map(|p| format!("{}{}", p.origin, p.path)),
        projects,
        keys: keys.keys,
        retention_begins_at: retained.begins_at,
        retention: retained.kinds,
        surfaces,
        hosts: hosts.unwrap_or_default(),
        stored,
        gate_mode: prism.gate.mode().name().into(),
        embedder_off: prism.embedder.off(),
        watchers: prism.hub.live().pages() as u64,
        watchers_max: PAGES_MAX as u64,
    })
}

/// The hosts of this machine that are here or have something of ours in their files.
fn hosts(home: &Home) -> Vec<HostConnected> {
    let Ok(env) = Env::read() else {
        return Vec::new();
    };
    let Ok(machine) = Machine::look(&env, home) else {
        return Vec::new();
    };
    let reports = Host::ALL.map(|host| check::check(&machine, &env, host, Scope::User, false));
    let there = reports.into_iter().filter(|r| r.installed || r.connected);
    there
        .map(|report| {
            let hooks =
                |of: fn(&check::HookReport) -> usize| report.hooks.as_ref().map_or(0, of) as u64;
            HostConnected {
                host: report.host.title().into(),
                installed: report.installed,
                connected: report.connected,
                server: report.server.is_some(),
                hooks: hooks(|h| h.present.len()),
                hooks_missing: hooks(|h| h.missing.len()),
                statusline: report.statusline.map(str::to_owned),
                problems: report.problems,
            }
        })
        .collect()
}
