//! Counters for `/metrics`, in the text format that scrapers read.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub struct Metrics {
    pub sent: AtomicU64,
    pub pushed: AtomicU64,
    pub received: AtomicU64,
    pub drained: AtomicU64,
    pub expired: AtomicU64,
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

/// What is so at the moment at which somebody asks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    pub sockets: usize,
    pub live_sessions: usize,
    /// Of what carries word between servers, where there is something.
    pub carrier: Option<Carrying>,
    /// Rows that wait for vectors, where that could be counted.
    pub embed_waiting: Option<u64>,
}

/// Whether word is carried between servers, and how much of it was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carrying {
    pub connected: bool,
    pub lost: u64,
}

impl Carrying {
    /// Of several carriers: all of them carry, or it is said that they do not.
    pub fn sum(all: impl Iterator<Item = Self>) -> Option<Self> {
        all.reduce(|sum, one| Self {
            connected: sum.connected && one.connected,
            lost: sum.lost + one.lost,
        })
    }
}

impl Metrics {
    /// What several have counted.
    pub fn sum<'a>(all: impl Iterator<Item = &'a Self>) -> Self {
        let sum = Self::default();
        for one in all {
            let add = |to: &AtomicU64, from: &AtomicU64| {
                to.fetch_add(from.load(Ordering::Relaxed), Ordering::Relaxed);
            };
            add(&sum.sent, &one.sent);
            add(&sum.pushed, &one.pushed);
            add(&sum.received, &one.received);
            add(&sum.drained, &one.drained);
            add(&sum.expired, &one.expired);
            let locked = |of: &'a Self| {
                let requests = of.requests.lock();
                requests.unwrap_or_else(std::sync::PoisonError::into_inner)
            };
            for (what, n) in locked(one).iter() {
                let mut requests = sum.requests.lock();
                if let Ok(requests) = &mut requests {
                    *requests.entry(*what).or_default() += n;
                }
            }
        }
        sum
    }

    pub fn request(&self, verb: &'static str, status: u16) {
        *self
            .requests
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry((verb, status))
            .or_default() += 1;
    }

    pub fn text(&self, now: &Now) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                out,
                "# HELP prism_{name} {help}\n# TYPE prism_{name} {kind}\nprism_{name} {value}"
            );
        };
        gauge(
            "sockets",
            "gauge",
            "Open stream sockets.",
            now.sockets as u64,
        );
        gauge(
            "live_sessions",
            "gauge",
            "Sessions that are idle or live.",
            now.live_sessions as u64,
        );
        if let Some(carrier) = now.carrier {
            gauge(
                "carrier_connected",
                "gauge",
                "Whether word is carried between servers (1) or they look for it (0).",
                carrier.connected.into(),
            );
            gauge(
                "carrier_lost_total",
                "counter",
                "Messages to other servers, or of theirs, that did not fit and were looked up.",
                carrier.lost,
            );
        }
        if let Some(waiting) = now.embed_waiting {
            gauge(
                "embed_waiting",
                "gauge",
                "Rows that wait for vectors, counted some seconds ago.",
                waiting,
            );
        }
        for (name, help, counter) in [
            ("signals_sent_total", "Signals committed.", &self.sent),
            (
                "signals_pushed_total",
                "Frames taken by a socket's queue.",
                &self.pushed,
            ),
            (
                "signals_received_total",
                "Frames confirmed by a shim.",
                &self.received,
            ),
            (
                "signals_drained_total",
                "Signals drained and confirmed.",
                &self.drained,
            ),
            (
                "signals_expired_total",
                "Signals that expired undrained.",
                &self.expired,
            ),
            (
                "database_round_trips_total",
                "Questions to PostgreSQL that were waited for.",
                crate::store::sql::round_trips(),
            ),
        ] {
            gauge(name, "counter", help, counter.load(Ordering::Relaxed));
        }
        out.push_str("# HELP prism_requests_total Requests by verb and status.\n# TYPE prism_requests_total counter\n");
        for ((verb, status), n) in self
            .requests
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .iter()
        {
            let _ = writeln!(
                out,
                "prism_requests_total{{verb=\"{verb}\",status=\"{status}\"}} {n}"
            );
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_or_not_known_is_left_out() {
        let metrics = Metrics::default();
        let bare = metrics.text(&Now::default());
        assert!(!bare.contains("carrier") && !bare.contains("embed_waiting"));
        let one = |connected, lost| Carrying { connected, lost };
        let all = [one(true, 2), one(false, 0), one(true, 1)];
        let full = metrics.text(&Now {
            carrier: Carrying::sum(all.into_iter()),
            embed_waiting: Some(7),
            ..Now::default()
        });
        for line in [
            "prism_carrier_connected 0",
            "prism_carrier_lost_total 3",
            "# TYPE prism_carrier_lost_total counter",
            "prism_embed_waiting 7",
        ] {
            assert!(full.lines().any(|l| l == line), "{line}: {full}");
        }
        assert_eq!(Carrying::sum([].into_iter()), None);
        assert_eq!(Carrying::sum(all[..1].iter().copied()), Some(one(true, 2)));
    }
}
