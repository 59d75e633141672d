//! What a watcher's socket says: where it stands, and which rows to read again.

use crate::moment::Moment;
use crate::receipt::State;
use crate::signal::{Category, names};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

names! {
    /// What changed.
    Changed {
        // A signal was sent, or something became known about it.
        Signal = "signal",
        Session = "session",
        // A row of memory: a delta, a verdict, an artifact, an input.
        Memory = "memory",
        // The operator reviewed an input.
        Review = "review",
        Recall = "recall",
        // A gate event, or its label.
        Gate = "gate",
        // A probe has ended.
        Probe = "probe",
        // Projects, personas, folders or keys.
        Settings = "settings",
    }
}

/// One frame of `/api/v1/watch`. Receivers skip kinds they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum WatchFrame {
    /// The first: what is read after this, together with what follows, is whole.
    Hello {
        /// The project, or `*`.
        pid: String,
        at: Moment,
        server_version: String,
        mark: u64,
    },
    /// These changed; whatever shows them reads them again.
    Changed { mark: u64, changes: Vec<Change> },
    /// More changed than this socket took: everything shown is to be read again.
    Behind { mark: u64 },
    /// The connection stands; every 15 s while nothing changes.
    Beat { at: Moment },
}

/// Which row to read again; a page that shows no such row need not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    pub what: Changed,
    pub pid: String,
    /// The row; none: several, or all of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// For a signal: what became known, its category and recipient.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}
