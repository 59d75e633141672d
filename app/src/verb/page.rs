//! What the operator's page asks: it reads, and leaves everything as it was.

pub mod demo;
pub mod gate;
pub mod memory;
pub mod metrics;
pub mod now;
pub mod probes;
pub mod sessions;
pub mod settings;
pub mod sign_in;
pub mod signals;
pub mod story;

use crate::prism::{Caller, Prism};
use uuid::Uuid;

/// The ids of the projects that a caller asks about.
fn projects(prism: &Prism, caller: &Caller) -> Vec<Uuid> {
    prism.scope(caller).into_iter().map(|p| p.id).collect()
}
