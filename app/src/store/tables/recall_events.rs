//! What came of a recall: the event it leaves, and the results that were cited.

use super::{Result, Tables, failed};
use crate::store::memory::RecallEvent;
use crate::store::sql;
use prism_core::id::Quoted;
use prism_core::{Code, Moment, Problem};
use serde_json::Value;
use sql::params;
use uuid::Uuid;

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
