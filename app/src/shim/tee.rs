//! The tee log: what this session received, in memory for its own door, and on disk with what the
//! identity's other shims received. Metadata only, 100 frames, ten minutes.

use crate::clock;
use crate::config;
use crate::home::Home;
use anyhow::Result;
use prism_core::Moment;
use prism_core::tee::{TEE_AGE_US, TEE_FRAMES_MAX, TeeFrame, append, lines, parse, rotated};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// How often the log is looked at for frames that have grown too old.
const TRIM: Duration = Duration::from_secs(10);

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
    file: Arc<Mutex<Option<Known>>>,
    /// The frames of this very session: a sibling's are in the file, and are not ours to vouch for.
    own: Arc<Mutex<VecDeque<TeeFrame>>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl Tee {
    pub fn new(home: Home, identity: &str) -> Self {
        Self {
            home,
            identity: identity.to_owned(),
            file: Arc::default(),
            own: Arc::default(),
        }
    }

    fn name(&self) -> String {
        format!("tee-frames-{}.jsonl", self.identity)
    }

    fn lock(&self) -> Result<crate::home::Lock> {
        self.home
            .lock(&format!("tee-frames-{}.lock", self.identity))
    }

    fn bytes(&self) -> u64 {
        std::fs::metadata(self.home.path(&self.name()))
            .map(|m| m.len())
            .unwrap_or(0)
    }

    /// Adds frames at the end of the log; rewrites it when it is full, holds
    /// something too old, or was written by another shim meanwhile.
    pub fn record(&self, frames: &[TeeFrame]) -> Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        {
            let mut own = locked(&self.own);
            own.extend(frames.iter().cloned());
            let over = own.len().saturating_sub(TEE_FRAMES_MAX);
            own.drain(..over);
        }
        let _lock = self.lock()?;
        let (file, bytes) = (self.name(), self.bytes());
        let mut known = locked(&self.file);
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

    /// The frame by which this session received a probe; the echo carries the same id and came
    /// later.
    pub fn find(&self, loopback_id: Uuid) -> Option<TeeFrame> {
        let now = clock::now();
        locked(&self.own)
            .iter()
            .filter(|f| now.since_us(f.received_at) < TEE_AGE_US)
            .find(|f| f.loopback_id == Some(loopback_id))
            .cloned()
    }

    /// Drops what has grown too old, also while nothing arrives, until the session is over.
    pub async fn keep_trimmed(self, mut over: watch::Receiver<bool>) {
        let period = config::clock_file().map_or(TRIM, |_| TRIM / 100);
        loop {
            if let Err(error) = self.trim() {
                tracing::debug!(%error, "The tee log was not trimmed");
            }
            tokio::select! {
                () = tokio::time::sleep(period) => {}
                _ = over.wait_for(|over| *over) => return,
            }
        }
    }

    fn trim(&self) -> Result<()> {
        let now = clock::now();
        let old = |at: Moment| now.since_us(at) >= TEE_AGE_US;
        locked(&self.own).retain(|f| !old(f.received_at));
        let bytes = self.bytes();
        let known = *locked(&self.file);
        if bytes == 0 || known.is_some_and(|k| k.bytes == bytes && !k.oldest.is_some_and(old)) {
            return Ok(());
        }
        let _lock = self.lock()?;
        let log = self.home.read(&self.name()).unwrap_or_default();
        let kept = append(&log, &[], now);
        if kept != log {
            self.home.write(&self.name(), kept.as_bytes())?;
        }
        let frames = parse(&kept);
        *locked(&self.file) = Some(Known {
            bytes: kept.len() as u64,
            frames: frames.len(),
            oldest: frames.first().map(|f| f.received_at),
        });
        Ok(())
    }
}
