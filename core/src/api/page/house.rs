//! Probes, settings, the way in, and the demonstration project.

use crate::api::{FolderView, KeyView, RetainedKind};
use crate::loopback::{Layers, Outcome};
use crate::moment::Moment;
use crate::receipt::Layer;
use std::collections::BTreeMap;
use uuid::Uuid;

wire! {
    ListProbes {
        #[serde(default)] identity: Option<String>,
        #[serde(default)] surface: Option<String>,
        #[serde(default)] machine_id: Option<String>,
        /// complete, partial or timeout
        #[serde(default)] outcome: Option<Outcome>,
        #[serde(default)] since: Option<Moment>,
        #[serde(default)] until: Option<Moment>,
        #[serde(default)] cursor: Option<String>,
        #[serde(default)] limit: Option<usize>,
    }

    /// Newest first.
    ProbePage {
        runs: Vec<ProbeRow>,
        #[serde(default, skip_serializing_if = "Option::is_none")] next: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")] looked_back_to: Option<Moment>,
    }

    ProbeRow {
        pid: String,
        loopback_id: Uuid,
        signal_id: Uuid,
        #[serde(default, skip_serializing_if = "Option::is_none")] session_id: Option<Uuid>,
        identity: String,
        surface: String,
        machine_id: String,
        outcome: Outcome,
        started_at: Moment,
        finished_at: Moment,
        layers: Layers,
        missing_layers: Vec<Layer>,
    }

    /// Runs a probe from the server, without a shim's door: the answer is the whole probe.
    RunProbe {
        /// Which session, or at least its first 8 digits.
        session_id: String,
        /// The bell may cost a model's turn; rung unless false.
        #[serde(default)] ring: Option<bool>,
        /// How long to wait for the shim: 2000 unless said.
        #[serde(default)] timeout_ms: Option<u64>,
    }

    Settings {
        server_version: String,
        started_at: Moment,
        operator: String,
        /// Where links to the page point, where the operator said so.
        #[serde(default, skip_serializing_if = "Option::is_none")] public_url: Option<String>,
        projects: Vec<ProjectSettings>,
        keys: Vec<KeyView>,
        /// Nothing of history goes before.
        retention_begins_at: Moment,
        retention: Vec<RetainedKind>,
        surfaces: Vec<SurfaceSeen>,
        /// What `prism connect` has written on the server's machine, host by host.
        #[serde(default)] hosts: Vec<HostConnected>,
        stored: Stored,
        /// off or advisory
        gate_mode: String,
        /// Why recall works without meaning now; none: it works with it.
        #[serde(default, skip_serializing_if = "Option::is_none")] embedder_off: Option<String>,
        watchers: u64,
        watchers_max: u64,
    }

    ProjectSettings {
        pid: String,
        created_at: Moment,
        /// Made by `prism demo`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")] demo: bool,
        personas: Vec<PersonaSeen>,
        folders: Vec<FolderView>,
        memory_rows: u64,
    }

    PersonaSeen {
        identity: String,
        operator: bool,
        since: Moment,
        /// Whether anybody ever ran under this name.
        started: bool,
    }

    /// A kind of host on a machine, as sessions showed it.
    SurfaceSeen { surface: String, machine_id: String, open: u64, last_seen_at: Moment }

    /// One agent host on the server's machine, as `prism connect --check` finds it.
    HostConnected {
        host: String,
        /// Whether the host is there at all.
        installed: bool,
        /// Prism's server or hooks stand in its files.
        connected: bool,
        /// Whether its file names Prism as a server of tools.
        server: bool,
        /// Hooks that are there, and those that are missing.
        hooks: u64,
        hooks_missing: u64,
        /// ours, theirs, both or none; none where the host has no such line.
        #[serde(default, skip_serializing_if = "Option::is_none")] statusline: Option<String>,
        problems: Vec<String>,
    }

    Stored {
        /// Bytes of the database file, and of its journal.
        database_bytes: u64,
        journal_bytes: u64,
        /// Rows by kind.
        rows: BTreeMap<String, u64>,
        /// Kinds of which there are so many that they are not counted: there are at most as many.
        #[serde(default, skip_serializing_if = "Vec::is_empty")] at_most: Vec<String>,
    }

    /// A way into the page: for one browser, once, and soon.
    DashboardLink { url: String, expires_at: Moment }

    AskDemo {
        /// Take the demonstration project away instead.
        #[serde(default)] remove: bool,
        /// What is told is the same for every seed; delays, and ids of signals, sessions, recalls and
        /// probes, are those of the seed. Ids of memory are new each time.
        #[serde(default)] seed: Option<u64>,
    }

    DemoDone {
        pid: String,
        /// False: there was nothing to remove, or it stood already.
        changed: bool,
        rows: BTreeMap<String, u64>,
    }
}
