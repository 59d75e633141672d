//! Where the time of one call goes, for whoever asks with it; nobody else pays for the clocks.

use axum::http::HeaderValue;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A part of a call that is measured by itself.
#[derive(Clone, Copy)]
pub enum Part {
    /// What waits in the inbox, added to an answer.
    Piggyback,
    /// Reads and writes, whoever asked for them; a part of the others.
    Store,
}

/// Nanoseconds of one call.
struct Spent {
    began: Instant,
    /// Until the caller was admitted: key, body, project, session.
    door: AtomicU64,
    piggyback: AtomicU64,
    store: AtomicU64,
}

tokio::task_local! {
    static SPENT: Spent;
}

/// Runs a call and says what its parts took.
pub async fn measured<T>(
    began: Instant,
    call: impl Future<Output = T>,
) -> (T, Option<HeaderValue>) {
    let spent = Spent {
        began,
        door: AtomicU64::new(0),
        piggyback: AtomicU64::new(0),
        store: AtomicU64::new(0),
    };
    SPENT
        .scope(spent, async {
            let answer = call.await;
            let said = SPENT.try_with(Spent::said).ok();
            (answer, said.and_then(|text| text.parse().ok()))
        })
        .await
}

/// The caller was admitted: what follows is the verb.
pub fn admitted() {
    let _ = SPENT.try_with(|spent| spent.door.store(ns(spent.began), Ordering::Relaxed));
}

/// Runs a part of a call.
pub async fn of<T>(part: Part, running: impl Future<Output = T>) -> T {
    if SPENT.try_with(|_| ()).is_err() {
        return running.await;
    }
    let began = Instant::now();
    let answer = running.await;
    let _ = SPENT.try_with(|spent| {
        let sum = match part {
            Part::Piggyback => &spent.piggyback,
            Part::Store => &spent.store,
        };
        sum.fetch_add(ns(began), Ordering::Relaxed);
    });
    answer
}

fn ns(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Spent {
    fn said(&self) -> String {
        let [door, piggyback, store] =
            [&self.door, &self.piggyback, &self.store].map(|part| part.load(Ordering::Relaxed));
        let verb = ns(self.began)
            .saturating_sub(door)
            .saturating_sub(piggyback);
        let parts = [
            ("door", door),
            ("verb", verb),
            ("piggyback", piggyback),
            ("store", store),
        ];
        let said = parts.map(|(name, ns)| format!("{name};dur={:.4}", ns as f64 / 1e6));
        said.join(", ")
    }
}
