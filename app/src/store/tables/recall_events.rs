//! What came of a recall: the event it leaves, and the results that were cited.

use super::{Result, Tables, failed};
use crate::store::memory::RecallEvent;
use crate::store::sql;
use prism_core::id::Quoted;
use prism_core::{Code, Moment, Problem};
use serde::Deserialize;
use serde_json::Value;
use sql::params;
use std::collections::HashMap;
use uuid::Uuid;

/// Recall events that say whether a row is ever brought.
pub(super) const LOOKED_AT: i64 = 5_000;
/// What the newest recalls of a project brought.
pub(super) const NEWEST: &str = "select results from memory_recall_events
    where project_id = ? order by occurred_at desc limit ?";

/// A result as its event has it.
#[derive(Deserialize)]
struct Brought {
    id: String,
    #[serde(default)]
    rank: u64,
}

/// The rows that the newest recalls of a project brought, each with its best place.
pub(super) fn brought(c: &sql::Connection, project: &str) -> Result<HashMap<String, u64>> {
    let mut best: HashMap<String, u64> = HashMap::new();
    let mut statement = c.prepare_cached(NEWEST).map_err(failed)?;
    let mut events = statement
        .query(params![project, LOOKED_AT])
        .map_err(failed)?;
    while let Some(event) = events.next().map_err(failed)? {
        let results: String = event.get(0).map_err(failed)?;
        let results: Vec<Brought> = serde_json::from_str(&results).unwrap_or_default();
        for Brought { id, rank } in results {
            let place = best.entry(id).or_insert(rank);
            *place = rank.min(*place);
        }
    }
    Ok(best)
}

impl Tables {
    pub async fn note_recall(&self, event: RecallEvent) -> Result<()> {
        self.write(move |c| {
            c.execute(
                "insert into memory_recall_events (id, tenant_id, project_id, session_id, identity, surface, query, results, latency_us, tokens, occurred_at)
                 select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9 from projects where id = ?10",
                params![
                    event.id.to_string(),
                    event.by.session_id.map(|s| s.to_string()),
                    event.by.identity.as_str(),
                    event.by.surface,
                    event.query,
                    event.results.to_string(),
                    event.latency_us as i64,
                    event.tokens as i64,
                    event.by.now.0,
                    event.by.project_id.to_string()
                ],
            )
            .map_err(failed)?;
            match &event.gate {
                Some(actor) => super::gate::recalled(c, actor, event.id, event.by.now),
                None => Ok(()),
            }
        })
        .await
    }

    /// Notes that a result of a recall was of use; both may be quoted by their first digits.
    pub async fn cite(
        &self,
        project: Uuid,
        event: Quoted,
        result: Quoted,
        purpose: Option<String>,
        identity: String,
        now: Moment,
    ) -> Result<()> {
        self.write(move |c| {
            let event = super::memory::resolve(
                c,
                &project.to_string(),
                "memory_recall_events",
                "recall_event_id",
                &event,
            )?
            .to_string();
            let (brought, asked_by): (String, String) = c
                .query_row(
                    "select results, identity from memory_recall_events where id = ?",
                    [&event],
                    |r| Ok((r.get(0)?, r.get(1)?)),
                )
                .map_err(failed)?;
            if !asked_by.eq_ignore_ascii_case(&identity) {
                return Err(Problem::new(
                    Code::NotYours,
                    format!("{asked_by} asked that, and {identity} cannot say what helped"),
                    "cite a result of your own recall",
                )
                .into());
            }
            let result = brought_by(&brought, &result)?;
            c.execute(
                "insert into memory_citations
                     (recall_event_id, result_id, purpose, identity, cited_at)
                 values (?, ?, ?, ?, ?)
                 on conflict (recall_event_id, result_id) do update
                     set purpose = excluded.purpose, cited_at = excluded.cited_at",
                params![event, result, purpose, identity, now.0],
            )
            .map_err(failed)?;
            // Pages hear of rows with a number; a citation has none, its recall has.
            let same = "update memory_recall_events set tokens = tokens where id = ?";
            c.execute(same, [&event]).map_err(failed)?;
            Ok(())
        })
        .await
    }
}

/// The one result of a recall that is quoted.
fn brought_by(results: &str, quoted: &Quoted) -> Result<String> {
    let results: Vec<Value> = serde_json::from_str(results).unwrap_or_default();
    let mut ids = results
        .iter()
        .filter_map(|r| r["id"].as_str())
        .filter(|id| quoted.begins(id));
    match (ids.next(), ids.next()) {
        (Some(id), None) => Ok(id.to_owned()),
        (None, _) => Err(Problem::new(
            Code::UnknownReference,
            format!("that recall did not bring {}", quoted.prefix()),
            "give the id of one of its results",
        )
        .into()),
        (Some(_), Some(_)) => Err(Problem::new(
            Code::Ambiguous,
            format!("{} begins more than one of its results", quoted.prefix()),
            "quote more digits",
        )
        .into()),
    }
}
