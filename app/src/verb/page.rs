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
use crate::store::page::Range;
use prism_core::Problem;
use prism_core::api::page as wire;
use uuid::Uuid;

/// The ids of the projects that a caller asks about.
fn projects(prism: &Prism, caller: &Caller) -> Vec<Uuid> {
    prism.scope(caller).into_iter().map(|p| p.id).collect()
}

/// What every list is asked with: which part of it.
trait AsksForPart {
    fn part(&self) -> Result<Range, Problem>;
}

macro_rules! asks_for_part {
    ($($list:literal $request:ty),* $(,)?) => {
        $(impl AsksForPart for $request {
            fn part(&self) -> Result<Range, Problem> {
                let cursor = self.cursor.as_deref();
                Range::new($list, self.since, self.until, cursor, self.limit)
            }
        })*
    };
}

asks_for_part!(
    "gate" wire::ListGateEvents,
    "sessions" wire::ListSessions,
    "probes" wire::house::ListProbes,
    "inputs" wire::memory::ListInputs,
    "memory" wire::memory::ListMemory,
    "recalls" wire::memory::ListRecalls,
    "signals" wire::signals::ListSignals,
    "story" wire::story::AskStory,
);

/// In which projects a list is looked for, and which part of it is wanted.
fn asked(
    prism: &Prism,
    caller: &Caller,
    request: &impl AsksForPart,
) -> Result<(Vec<Uuid>, Range), Problem> {
    Ok((projects(prism, caller), request.part()?))
}
