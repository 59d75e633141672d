//! The tee log on disk: what this identity's shims received, metadata only.

use crate::clock;
use crate::home::Home;
use anyhow::Result;
use prism_core::tee::{TeeFrame, append, parse};
use uuid::Uuid;

#[derive(Clone, Debug)]
pub struct Tee {
    home: Home,
    identity: String,
}

impl Tee {
    pub fn new(home: Home, identity: &str) -> Self {
        Self { home, identity: identity.to_owned() }
    }

    fn file(&self) -> String {
        format!("tee-frames-{}.jsonl", self.identity)
    }

    pub fn record(&self, frames: &[TeeFrame]) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let _lock = self.home.lock(&format!("tee-frames-{}.lock", self.identity))?;
        let log = self.home.read(&self.file()).unwrap_or_default();
        self.home.write(&self.file(), append(&log, frames, clock::now()).as_bytes())
    }

    pub fn find(&self, loopback_id: Uuid) -> Option<TeeFrame> {
        let log = self.home.read(&self.file())?;
        // The echo carries the same id; the probe came first.
        parse(&log).into_iter().find(|f| f.loopback_id == Some(loopback_id))
    }
}
