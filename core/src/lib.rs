//! What Prism means: the rules of signals, receipts, inboxes and sessions.
//!
//! Everything here is pure. No file, socket, clock or environment variable is
//! touched; the caller reads those and passes values in. That is what lets a
//! rule be tested as a table and a protocol be tested as a state machine.

pub mod access;
pub mod api;
pub mod bell;
pub mod bus;
pub mod connect;
pub mod database;
pub mod delivery;
pub mod envelope;
pub mod escalation;
pub mod gate;
pub mod hook;
pub mod id;
pub mod launch;
pub mod limits;
pub mod loopback;
pub mod memory;
pub mod moment;
pub mod page;
pub mod presence;
pub mod problem;
pub mod receipt;
pub mod retention;
pub mod ring;
pub mod signal;
pub mod statusline;
pub mod tee;
pub mod tenant;
pub mod text;

pub use id::{Identity, ProjectName};
pub use moment::Moment;
pub use problem::{Code, Problem};
