//! Rows of memory, recalls and captured inputs, by cursor.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn list(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::memory::ListMemory,
) -> Result<prism_core::api::page::memory::MemoryPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn show(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::memory::ShowMemory,
) -> Result<prism_core::api::page::memory::MemoryShown, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn recalls(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::memory::ListRecalls,
) -> Result<prism_core::api::page::memory::RecallPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn inputs(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::memory::ListInputs,
) -> Result<prism_core::api::page::memory::InputPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
