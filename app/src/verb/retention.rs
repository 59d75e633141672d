//! What history is kept, and how long.

use crate::clock;
use crate::prism::{Caller, Prism};
use crate::retention::kept;
use prism_core::{Problem, api};

pub async fn retained(
    prism: &Prism,
    _: &Caller,
    _: api::Nothing,
) -> Result<api::Retained, Problem> {
    let now = clock::now();
    let begins_at = prism.store.pruning_begins(now).await?;
    let rules = prism.retention;
    let kept = kept(&prism.store, rules, begins_at.max(now)).await?;
    let kinds = kept.into_iter().map(|k| api::RetainedKind {
        kind: k.what.name().into(),
        days: rules.days(k.what),
        rows: k.rows,
        at_most: k.at_most,
        oldest: k.oldest,
        going: k.going,
    });
    Ok(api::Retained {
        begins_at,
        kinds: kinds.collect(),
    })
}
