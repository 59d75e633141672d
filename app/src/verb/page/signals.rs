//! Signals looked at, not read.

use crate::prism::{Caller, Prism};
use prism_core::Problem;

pub async fn list(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::signals::ListSignals,
) -> Result<prism_core::api::page::signals::SignalPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn show(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::signals::ShowSignal,
) -> Result<prism_core::api::page::signals::SignalShown, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn inbox(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::signals::LookInbox,
) -> Result<prism_core::api::page::signals::InboxPage, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}

pub async fn read(
    _: &Prism,
    _: &Caller,
    _: prism_core::api::page::signals::ReadInbox,
) -> Result<prism_core::api::page::signals::InboxRead, Problem> {
    Err(Problem::new(
        prism_core::Code::Internal,
        "not served yet",
        "wait for the next build",
    ))
}
