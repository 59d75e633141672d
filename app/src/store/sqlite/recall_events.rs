//! What came of a recall: the event it leaves, and the results that were cited.

use super::{Result, Sqlite, failed};
use crate::store::memory::RecallEvent;
use prism_core::{Code, Moment, Problem};
use rusqlite::{OptionalExtension, params};
use uuid::Uuid;

impl Sqlite {
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
            Ok(())
        })
        .await
    }

    pub async fn cite(
        &self,
        project: Uuid,
        event: Uuid,
        result: Uuid,
        purpose: Option<String>,
        identity: String,
        now: Moment,
    ) -> Result<()> {
        self.write(move |c| {
            let results: Option<String> = c
                .query_row("select results from memory_recall_events where id = ? and project_id = ?", params![event.to_string(), project.to_string()], |r| r.get(0))
                .optional()
                .map_err(failed)?;
            let results = results.ok_or_else(|| {
                Problem::new(Code::UnknownReference, format!("no recall {event} in this project"), "give the recall_event_id that semantic_recall answered")
            })?;
            if !results.contains(&result.to_string()) {
                return Err(Problem::new(Code::UnknownReference, format!("that recall did not bring {result}"), "give the id of one of its results").into());
            }
            c.execute(
                "insert or replace into memory_citations (recall_event_id, result_id, purpose, identity, cited_at) values (?, ?, ?, ?, ?)",
                params![event.to_string(), result.to_string(), purpose, identity, now.0],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }
}
