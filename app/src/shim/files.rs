//! The file a shim leaves for others on this machine: where to ask it things.

use crate::home::Home;
use prism_core::hook::find::Shim;
use prism_core::presence::Surface;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShimFile {
    pub session_id: Uuid,
    pub port: u16,
    pub token: String,
    pub pid: u32,
    pub identity: String,
    pub project: String,
    pub surface: String,
    /// The host's own id of the session or thread, once it is known.
    #[serde(default)]
    pub host_session: Option<String>,
    /// The process that started the shim.
    #[serde(default)]
    pub host_pid: Option<u32>,
    /// Where the shim was started.
    #[serde(default)]
    pub cwd: Option<String>,
}

impl ShimFile {
    pub fn name(session_id: Uuid) -> String {
        format!("shims/{session_id}.json")
    }

    /// What tells whether a hook belongs to it.
    pub fn facts(&self) -> Shim<'_> {
        Shim {
            host_session: self.host_session.as_deref(),
            host_pid: self.host_pid,
            cwd: self.cwd.as_deref(),
            surface: Surface::from_name(&self.surface).unwrap_or(Surface::Other),
        }
    }
}

/// The file of one session's shim, while it runs. A file is looked up by its session's name: what
/// another file says of the session counts for nothing.
pub fn of_session(home: &Home, session_id: Uuid) -> Option<ShimFile> {
    let file: ShimFile = serde_json::from_str(&home.read(&ShimFile::name(session_id))?).ok()?;
    (file.session_id == session_id && alive(file.pid)).then_some(file)
}

/// The shims that run here, and how many files of dead ones lie about.
pub fn shims(home: &Home) -> (Vec<ShimFile>, usize) {
    let names = home.list("shims", "", ".json");
    let files: Vec<ShimFile> = names
        .iter()
        .filter_map(|n| serde_json::from_str(&home.read(&format!("shims/{n}"))?).ok())
        .filter(|f: &ShimFile| alive(f.pid))
        .collect();
    let dead = names.len() - files.len();
    (files, dead)
}

/// Removes what dead shims left behind.
pub fn sweep(home: &Home) {
    for name in home.list("shims", "", ".json") {
        let path = format!("shims/{name}");
        let file: Option<ShimFile> = home
            .read(&path)
            .and_then(|text| serde_json::from_str(&text).ok());
        if file.is_none_or(|f| !alive(f.pid)) {
            home.remove(&path);
        }
    }
}

pub fn alive(pid: u32) -> bool {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}
