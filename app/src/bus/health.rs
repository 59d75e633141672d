//! How a carrier does: whether it speaks and hears, since when, and who else is there.

use crate::clock;
use prism_core::Moment;
use prism_core::limits::BUS_GONE_S;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

pub struct Health {
    inner: Mutex<Inner>,
    lost: AtomicU64,
}

struct Inner {
    speaks: Side,
    hears: Side,
    /// From this server through the carrier and back.
    hop_ms: Option<f64>,
    peers: HashMap<Uuid, (String, Moment)>,
}

/// One direction.
#[derive(Clone, Debug)]
struct Side {
    up: bool,
    since: Moment,
    why: Option<String>,
    /// It was not tried yet.
    untried: bool,
}

/// What is known at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// It speaks and hears.
    pub connected: bool,
    /// Since when that is so, or not.
    pub since: Moment,
    /// Why not.
    pub why: Option<String>,
    pub hop_ms: Option<f64>,
    /// The other servers that were heard of lately, the first of them by name, and how many more there are.
    pub peers: Vec<String>,
    pub peers_more: usize,
    /// Messages that did not fit into the queue.
    pub lost: u64,
}

/// Servers that are known to be there, at the most. No database has connections for so many: whoever can speak on the
/// channel can pretend to be some.
const PEERS_MAX: usize = 4_096;
/// Those that are named, and letters of the name of one.
const PEERS_NAMED: usize = 64;
const PEER_NAME_CHARS: usize = 100;

fn is_silent(heard_at: Moment, now: Moment) -> bool {
    now.since_us(heard_at) > BUS_GONE_S as i64 * 1_000_000
}

impl Side {
    /// Whether it was otherwise before.
    fn becomes(&mut self, up: bool, why: Option<String>) -> bool {
        let changed = self.up != up || std::mem::take(&mut self.untried);
        if changed {
            self.since = clock::now();
        }
        self.up = up;
        self.why = why;
        changed
    }
}

impl Health {
    pub(super) fn new(now: Moment) -> Self {
        let down = Side {
            up: false,
            since: now,
            why: Some("not connected yet".into()),
            untried: true,
        };
        Self {
            inner: Mutex::new(Inner {
                speaks: down.clone(),
                hears: down,
                hop_ms: None,
                peers: HashMap::new(),
            }),
            lost: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing is left half-changed by a holder that panicked.
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(super) fn speaks(&self) {
        if self.lock().speaks.becomes(true, None) {
            tracing::info!("Other servers can be told");
        }
    }

    pub(super) fn hears(&self) {
        if self.lock().hears.becomes(true, None) {
            tracing::info!("Other servers can be heard");
        }
    }

    /// Answers whether that is new.
    pub(super) fn cannot_speak(&self, why: String) -> bool {
        let changed = self.lock().speaks.becomes(false, Some(why.clone()));
        if changed {
            tracing::warn!(
                why,
                "Other servers cannot be told; they look every two seconds"
            );
        }
        changed
    }

    /// Answers whether that is new.
    pub(super) fn cannot_hear(&self, why: String) -> bool {
        let changed = self.lock().hears.becomes(false, Some(why.clone()));
        if changed {
            tracing::warn!(
                why,
                "Other servers cannot be heard; this one looks every two seconds"
            );
        }
        changed
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    /// A sign of life came, this server's own or another's. Answers whether it is the first of a server.
    pub(super) fn beat(&self, own: bool, server: Uuid, name: String, at: Moment) -> bool {
        let now = clock::now();
        let mut inner = self.lock();
        let mut is_new = false;
        if own {
            inner.hop_ms = Some(now.since_us(at).max(0) as f64 / 1_000.0);
        } else if inner.peers.len() < PEERS_MAX || inner.peers.contains_key(&server) {
            let name = name.chars().take(PEER_NAME_CHARS).collect();
            is_new = inner.peers.insert(server, (name, now)).is_none();
        }
        inner.peers.retain(|_, (_, at)| !is_silent(*at, now));
        is_new
    }

    /// A server said that it stops.
    pub(super) fn gone(&self, server: Uuid) {
        self.lock().peers.remove(&server);
    }

    /// Whether a server was heard of lately.
    pub fn knows(&self, server: Uuid, now: Moment) -> bool {
        let inner = self.lock();
        let heard = inner.peers.get(&server);
        heard.is_some_and(|(_, at)| !is_silent(*at, now))
    }

    pub fn is_up(&self) -> bool {
        let inner = self.lock();
        inner.speaks.up && inner.hears.up
    }

    /// Whether what others say is heard.
    pub fn is_hearing(&self) -> bool {
        self.lock().hears.up
    }

    /// Other servers that were heard of lately.
    pub fn peers(&self) -> usize {
        self.lock().peers.len()
    }

    pub fn condition(&self) -> Condition {
        let inner = self.lock();
        let connected = inner.speaks.up && inner.hears.up;
        let sides = [&inner.speaks, &inner.hears];
        let decides = sides.into_iter().filter(|side| side.up == connected);
        let mut peers: Vec<String> = inner.peers.values().map(|(name, _)| name.clone()).collect();
        peers.sort();
        let peers_more = peers.len().saturating_sub(PEERS_NAMED);
        peers.truncate(PEERS_NAMED);
        Condition {
            connected,
            since: match connected {
                true => decides.clone().map(|side| side.since).max(),
                false => decides.clone().map(|side| side.since).min(),
            }
            .unwrap_or_default(),
            why: decides.filter_map(|side| side.why.clone()).next(),
            hop_ms: inner.hop_ms.filter(|_| connected),
            peers,
            peers_more,
            lost: self.lost.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_counts_however_many_there_are_until_it_says_that_it_stops() {
        let now = clock::now();
        let health = Health::new(now);
        let server = |n: usize| Uuid::from_u128(n as u128);
        for n in 0..200 {
            assert!(health.beat(false, server(n), format!("{n:03}"), now));
        }
        assert!((0..200).all(|n| health.knows(server(n), now)));
        assert_eq!(health.peers(), 200);
        let told = health.condition();
        assert_eq!((told.peers.len(), told.peers_more), (64, 136));
        health.gone(server(7));
        assert!(!health.knows(server(7), now) && health.peers() == 199);
    }
}
