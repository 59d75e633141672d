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

    pub fn text(&self, sockets: usize, live_sessions: usize) -> String {
        let mut out = String::new();
        let mut gauge = |name: &str, kind: &str, help: &str, value: u64| {
            let _ = writeln!(
                out,
                "# HELP prism_{name} {help}\n# TYPE prism_{name} {kind}\nprism_{name} {value}"
            );
        };
        gauge("sockets", "gauge", "Open stream sockets.", sockets as u64);
        gauge(
            "live_sessions",
            "gauge",
            "Sessions that are idle or live.",
            live_sessions as u64,
        );
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
