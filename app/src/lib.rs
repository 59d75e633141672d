//! What Prism does: one binary, every role a subcommand.
//!
//! A request walks a straight line: `server` (door, key, verb table) → `verb`
//! (the rule's effects) → `store` and `hub`. The rules themselves are in
//! `prism_core`.

pub mod background;
pub mod bench;
pub mod bus;
pub mod cli;
pub mod client;
pub mod clock;
pub mod coder;
pub mod config;
pub mod connect;
pub mod demo;
pub mod directory;
pub mod embed;
pub mod escalation;
pub mod gate;
pub mod home;
pub mod hook;
pub mod hub;
pub mod live;
pub mod log;
pub mod loopback;
pub mod metrics;
pub mod presence;
pub mod prism;
pub mod retention;
pub mod server;
pub mod shim;
pub mod store;
pub mod tenants;
pub mod timing;
pub mod tls;
pub mod ui;
pub mod verb;

/// The version every door reports.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
