//! What memory amounts to: how much there is, verdicts, corrections and dead ends.

use super::memory::list;
use super::{Result, Tables, failed};
use crate::store::StoreError;
use crate::store::sql::{Connection, params};
use prism_core::api::memory::{AgentTally, MemoryStats, Metrics, Tally};
use serde_json::Value;
use std::collections::HashMap;
use uuid::Uuid;

impl Tables {
    pub async fn memory_stats(&self, project: Uuid) -> Result<MemoryStats> {
        self.read_memory(move |c| {
            let p = project.to_string();
            let count = |sql: &str| c.query_row(sql, [&p], |r| r.get::<_, i64>(0)).map(|n| n as u64).map_err(failed);
            let rows = list(c, "select kind, count(*) as n from memory where project_id = ? and hidden = 0 group by 1", params![p], |r| {
                Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)? as u64))
            })?;
            Ok(MemoryStats {
                rows: rows.into_iter().collect(),
                entities: count("select count(*) from entities where project_id = ?")?,
                edges: count("select count(*) from edges where project_id = ?")?,
                recalls: count("select count(*) from memory_recall_events where project_id = ?")?,
                citations: count("select count(*) from memory_citations x join memory_recall_events e on e.id = x.recall_event_id where e.project_id = ?")?,
                embed_pending: count("select count(*) from embed_intents i join memory m on m.id = i.memory_id where m.project_id = ?")?,
                embed_set_aside: count("select count(*) from embed_intents i join memory m on m.id = i.memory_id where m.project_id = ? and i.attempts > 2")?,
                vectors: count("select count(*) from memory_vectors v join memory m on m.rowid = v.memory_row where m.project_id = ?")?,
                models: Vec::new(),
                switching: None,
                off: None,
            })
        })
        .await
    }

    /// A row a project says it.
    pub async fn embed_waiting(&self) -> Result<u64> {
        self.read_memory(|c| {
            let sql = "select cast(coalesce(sum(waiting), 0) as bigint) from memory_counts";
            let waiting: i64 = c.query_row(sql, [], |r| r.get(0)).map_err(failed)?;
            Ok(waiting.max(0) as u64)
        })
        .await
    }

    pub async fn metrics(&self, project: Uuid) -> Result<Metrics> {
        self.read_memory(move |c| metrics(c, &project.to_string()))
            .await
    }
}

fn metrics(c: &Connection, project: &str) -> Result<Metrics> {
    let tally = |sql: &str| {
        list(c, sql, params![project], |r| {
            Ok(Tally {
                what: r.get(0)?,
                group: r.get(1)?,
                n: r.get::<_, i64>(2)? as u64,
            })
        })
    };
    // Low confidence counts once accepted; what was rejected never does.
    let counted = "operator_review is distinct from 'rejected' and (confidence = 'high' or operator_review = 'accepted')";
    let inputs = list(
        c,
        &format!(
            "select captured_via, coalesce(sum({counted}), 0), sum(operator_review is null), sum(operator_review is not distinct from 'rejected'), sum(operator_review is not null) from operator_inputs where project_id = ? group by 1 order by 1"
        ),
        params![project],
        |r| {
            let (rejected, reviewed): (i64, i64) = (r.get(3)?, r.get(4)?);
            Ok(AgentTally {
                agent: r.get(0)?,
                counted: r.get::<_, i64>(1)? as u64,
                unreviewed: r.get::<_, i64>(2)? as u64,
                rejected: rejected as u64,
                misclassification_rate: if reviewed == 0 {
                    0.0
                } else {
                    rejected as f64 / reviewed as f64
                },
            })
        },
    )?;
    let mut dead_ends: HashMap<String, u64> = HashMap::new();
    for tried in list(
        c,
        "select tried_and_ruled_out from session_deltas where project_id = ? and tried_and_ruled_out <> '[]'",
        params![project],
        |r| r.get::<_, String>(0),
    )? {
        for attempt in serde_json::from_str::<Vec<Value>>(&tried)
            .map_err(|e| StoreError::Failed(e.to_string()))?
        {
            *dead_ends
                .entry(
                    attempt["approach"]
                        .as_str()
                        .unwrap_or_default()
                        .to_lowercase(),
                )
                .or_default() += 1;
        }
    }
    let mut dead_ends: Vec<Tally> = dead_ends
        .into_iter()
        .map(|(what, n)| Tally {
            what,
            group: "ruled_out".into(),
            n,
        })
        .collect();
    dead_ends.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.what.cmp(&b.what)));
    dead_ends.truncate(50);
    Ok(Metrics {
        confirmations: tally(
            "select verdict, confirmed_via, count(*) from operator_confirmations where project_id = ? group by 1, 2 order by 3 desc",
        )?,
        inputs,
        corrections: tally(&format!(
            "select coalesce(lower(triggered_action), '(not said)'), captured_via, count(*) from operator_inputs where project_id = ? and class = 'correction' and {counted} group by 1, 2 order by 3 desc limit 50"
        ))?,
        dead_ends,
    })
}
