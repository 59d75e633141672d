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
