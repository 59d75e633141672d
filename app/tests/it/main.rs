//! Every story and contract test, in one binary: one link, one harness.

#![expect(
    clippy::disallowed_methods,
    reason = "a story stands outside, with files and an environment of its own"
)]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ask_story;
mod backup_story;
mod bell_story;
mod bounds_story;
mod cache;
mod cli;
mod commands;
mod connect_story;
mod crash_story;
mod demo_story;
mod deploy;
mod door;
mod engines;
mod escalation_story;
mod gate_story;
mod generation_story;
mod hangup_story;
mod harness;
mod history_story;
mod hook_story;
mod import_story;
mod key_story;
mod launch_story;
mod list_story;
mod literal_story;
mod live_story;
mod loopback_story;
mod mcp;
mod memory_story;
mod metrics_story;
mod page_story;
mod project_story;
mod reach_story;
mod recall_story;
mod shim_story;
mod sign_in_story;
mod signal_story;
mod store_suite;
mod stream;
mod tidy;
mod time_story;
mod trust;
mod truth_story;
mod wait_story;
mod waiter_story;
