//! Old rows go, a few at a time and between other people's commits.

use crate::clock;
use crate::store::{Kept, Result, Store};
use prism_core::Moment;
use prism_core::limits::{PRUNE_ROWS, PRUNE_STEPS};
use prism_core::retention::{History, Retention, Walk};

pub struct Pruner {
    walk: Walk,
}

impl Pruner {
    /// Finds out from when on rows go, and says so while it is still to come.
    pub async fn open(store: &Store, rules: Retention) -> Result<Self> {
        let now = clock::now();
        let begins = store.pruning_begins(now).await?;
        if now < begins {
            let going = going(&kept(store, rules, begins).await?);
            tracing::info!(
                "Old rows go from {begins} on (up to: {}); [retention] in config.toml \
                 keeps them longer, `prism doctor` says more",
                if going.is_empty() { "none yet" } else { &going }
            );
        }
        Ok(Self {
            walk: Walk::new(rules, begins),
        })
    }

    /// A few steps; each is a read, and a commit of its own when something goes.
    pub async fn step(&mut self, store: &Store) {
        for _ in 0..PRUNE_STEPS {
            let Some(look) = self.walk.next(clock::now()) else {
                return;
            };
            match store.prune(look, PRUNE_ROWS).await {
                Ok(step) => self.walk.reached(step.reached),
                Err(error) => {
                    tracing::warn!(%error, "Old {} stay for now", look.what.name());
                    return self.walk.rest();
                }
            }
        }
    }
}

/// What is kept now, and what of it goes by `when`.
pub async fn kept(store: &Store, rules: Retention, when: Moment) -> Result<Vec<Kept>> {
    let cutoffs = History::ALL.map(|what| (what, rules.cutoff(what, when)));
    store.kept(cutoffs.to_vec()).await
}

fn going(kept: &[Kept]) -> String {
    let some = kept.iter().filter(|k| k.going > 0);
    let named: Vec<_> = some
        .map(|k| format!("{} {}", k.going, k.what.name()))
        .collect();
    named.join(", ")
}
