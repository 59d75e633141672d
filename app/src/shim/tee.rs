//! The tee log on disk: what this identity's shims received, metadata only.

use crate::clock;
use crate::home::Home;
use anyhow::Result;
use prism_core::Moment;
use prism_core::tee::{TEE_AGE_US, TEE_FRAMES_MAX, TeeFrame, lines, parse, rotated};
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// What this shim knows of the file after its own last write.
#[derive(Clone, Copy, Debug)]
struct Known {
    bytes: u64,
    frames: usize,
    oldest: Option<Moment>,
}

#[derive(Clone, Debug)]
pub struct Tee {
    home: Home,
    identity: String,
    known: Arc<Mutex<Option<Known>>>,
}

impl Tee {
    pub fn new(home: Home, identity: &str) -> Self {
        Self {
            home,
            identity: identity.to_owned(),
            known: Arc::default(),
        }
    }

    fn file(&self) -> String {
        format!("tee-frames-{}.jsonl", self.identity)
    }

    /// Adds frames at the end of the log; rewrites it when it is full, holds
    /// something too old, or was written by another shim meanwhile.
    pub fn record(&self, frames: &[TeeFrame]) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let _lock = self
            .home
            .lock(&format!("tee-frames-{}.lock", self.identity))?;
        let (file, now) = (self.file(), clock::now());
        let bytes = std::fs::metadata(self.home.path(&file))
            .map(|m| m.len())
            .unwrap_or(0);
        let mut known = self
            .known
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let fits = known.filter(|k| {
            k.bytes == bytes
                && k.frames + frames.len() <= TEE_FRAMES_MAX
                && k.oldest.is_none_or(|at| now.since_us(at) < TEE_AGE_US)
        });
        let after = match fits {
            Some(k) => {
                let added = lines(frames);
                self.home.append(&file, added.as_bytes())?;
                Known {
                    bytes: bytes + added.len() as u64,
                    frames: k.frames + frames.len(),
                    oldest: k.oldest.or_else(|| frames.first().map(|f| f.received_at)),
                }
            }
            None => {
                let (log, frames, oldest) =
                    rotated(&self.home.read(&file).unwrap_or_default(), frames, now);
                self.home.write(&file, log.as_bytes())?;
                Known {
                    bytes: log.len() as u64,
                    frames,
                    oldest,
                }
            }
        };
        *known = Some(after);
        Ok(())
    }

    pub fn find(&self, loopback_id: Uuid) -> Option<TeeFrame> {
        let log = self.home.read(&self.file())?;
        // The echo carries the same id; the probe came first.
        parse(&log)
            .into_iter()
            .find(|f| f.loopback_id == Some(loopback_id))
    }
}
