//! Reading memory: rows as results show them, what came of a recall, and the graph.

use super::memory::list;
use super::{Result, Sqlite, column, failed};
use crate::store::StoreError;
use crate::store::memory::{MemoryRow, RecallEvent};
use prism_core::api::memory::{
    AgentTally, GraphAnswer, GraphEdge, GraphNode, MemoryStats, Metrics, RuledOut, Tally,
    VerdictView,
};
use prism_core::id::Quoted;
use prism_core::memory::operator::{Class, Directness, Verdict, verdict_weight};
use prism_core::memory::recall::Standing;
use prism_core::{Code, Moment, Problem};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use uuid::Uuid;

/// Edges followed from one node in each direction; a hub says little.
const FAN_OUT: usize = 50;
/// One hop, out of a node and into it. Both must be a search, never a scan.
const HOP_OUT: &str =
    "select dst as node, kind from edges where src = ? and kind <> 'REFERENCES_RECALL' limit ?";
const HOP_IN: &str = "select src as node, kind from edges where dst = ? and kind in ('CONFIRMS','LABELS','COMBINES','RULED_OUT_IN','REPLIES_TO','MENTIONS','SUPERSEDES') limit ?";

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

    pub async fn graph_of(&self, project: Uuid, wanted: String) -> Result<GraphAnswer> {
        self.read(move |c| {
            let project = project.to_string();
            let node = find_node(c, &project, &wanted)?;
            let mut edges = Vec::new();
            for (out, sql) in [(true, HOP_OUT), (false, HOP_IN)] {
                for (other, kind) in hop(c, sql, &node)? {
                    edges.push(GraphEdge {
                        kind,
                        out,
                        node: describe(c, &other)?,
                    });
                }
            }
            Ok(GraphAnswer {
                node: describe(c, &node)?,
                edges,
            })
        })
        .await
    }

    pub async fn memory_stats(&self, project: Uuid) -> Result<MemoryStats> {
        self.read(move |c| {
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
            })
        })
        .await
    }

    pub async fn metrics(&self, project: Uuid) -> Result<Metrics> {
        self.read(move |c| metrics(c, &project.to_string())).await
    }
}

fn hop(c: &Connection, sql: &str, node: &str) -> Result<Vec<(String, String)>> {
    list(c, sql, params![node, FAN_OUT as i64], |r| {
        Ok((r.get("node")?, r.get("kind")?))
    })
}

/// Rows as results show them, in the order asked for.
pub(super) fn rows(c: &Connection, project: &str, ids: &[String]) -> Result<Vec<MemoryRow>> {
    let spoken_of = spoken_of(c, ids)?;
    ids.iter()
        .filter_map(|id| row(c, project, id, spoken_of.contains(id)).transpose())
        .collect()
}

/// Those of the rows that a verdict, a label or an attempt is about, or that are one.
fn spoken_of(c: &Connection, ids: &[String]) -> Result<HashSet<String>> {
    let wanted = serde_json::to_string(ids).unwrap_or_default();
    let mut touched = HashSet::new();
    for sql in [
        "select j.value from json_each(?) j where exists (select 1 from edges e where e.dst = j.value and e.kind in ('CONFIRMS','LABELS','RULED_OUT_IN'))",
        "select j.value from json_each(?) j where exists (select 1 from edges e where e.src = j.value and e.kind in ('CONFIRMS','LABELS'))",
    ] {
        touched.extend(list(c, sql, params![wanted], |r| r.get::<_, String>(0))?);
    }
    Ok(touched)
}

fn row(c: &Connection, project: &str, id: &str, spoken_of: bool) -> Result<Option<MemoryRow>> {
    let found = c
        .prepare_cached("select m.*, s.superseded_by from memory m left join entity_states s on s.node = m.id where m.id = ? and m.project_id = ? and m.hidden = 0")
        .and_then(|mut s| {
            s.query_row(params![id, project], |r| {
                Ok(MemoryRow {
                    id: column::id(r, "id")?,
                    kind: r.get("kind")?,
                    identity: r.get("identity")?,
                    title: r.get("title")?,
                    text: r.get("text")?,
                    created_at: column::moment(r, "created_at")?,
                    standing: Standing { superseded_by: r.get("superseded_by")?, ..Standing::default() },
                    verdicts: Vec::new(),
                    refers_to: None,
                    ruled_out: Vec::new(),
                })
            })
            .optional()
        })
        .map_err(failed)?;
    let Some(mut row) = found else {
        return Ok(None);
    };
    if !spoken_of {
        return Ok(Some(row));
    }
    for (view, verdict, weight) in verdicts_on(c, id)? {
        row.verdicts.push(view);
        row.standing.verdicts.push((verdict, weight));
    }
    row.standing.labels = list(
        c,
        "select i.class from edges e cross join operator_inputs i on i.id = e.src where e.dst = ? and e.kind = 'LABELS' and i.operator_review is not 'rejected' and (i.confidence = 'high' or i.operator_review = 'accepted')",
        params![id],
        |r| r.get::<_, String>(0),
    )?
    .iter()
    .filter_map(|name| Class::from_name(name))
    .collect();
    row.refers_to = c
        .prepare_cached(
            "select dst from edges where src = ? and kind in ('CONFIRMS','LABELS') limit 1",
        )
        .and_then(|mut s| s.query_row([id], |r| r.get::<_, String>(0)).optional())
        .map_err(failed)?
        .map(|node| {
            if node.contains(':') {
                node
            } else {
                format!("delta:{node}")
            }
        });
    row.ruled_out = ruled_out(c, id)?;
    Ok(Some(row))
}

fn verdicts_on(c: &Connection, id: &str) -> Result<Vec<(VerdictView, Verdict, f64)>> {
    let rows = list(
        c,
        "select * from operator_confirmations where refers_to_kind = 'delta' and refers_to_id = ? order by confirmed_at desc limit 5",
        params![id],
        |r| {
            let view = VerdictView {
                id: column::id(r, "id")?,
                verdict: r.get("verdict")?,
                confirmed_by: r.get("confirmed_by")?,
                confirmed_via: r.get("confirmed_via")?,
                directness: r.get("directness")?,
                at: column::moment(r, "confirmed_at")?,
                notes: r.get("notes")?,
            };
            Ok((view, r.get::<_, bool>("on_own_delta")?))
        },
    )?;
    Ok(rows
        .into_iter()
        .filter_map(|(view, own)| {
            let (verdict, directness) = (
                Verdict::from_name(&view.verdict)?,
                Directness::from_name(&view.directness)?,
            );
            Some((view, verdict, verdict_weight(directness, own)))
        })
        .collect())
}

/// Attempts that this delta tried, and those that were ruled out in it.
fn ruled_out(c: &Connection, id: &str) -> Result<Vec<RuledOut>> {
    let nodes = list(
        c,
        "select src from edges where dst = ? and kind = 'RULED_OUT_IN' limit 10",
        params![id],
        |r| r.get::<_, String>(0),
    )?;
    let mut attempts = Vec::new();
    for node in nodes {
        let Some((delta, n)) = node
            .strip_prefix("attempt:")
            .and_then(|rest| rest.split_once('#'))
        else {
            continue;
        };
        let tried: Option<String> = c
            .prepare_cached("select tried_and_ruled_out from session_deltas where id = ?")
            .and_then(|mut s| s.query_row([delta], |r| r.get(0)).optional())
            .map_err(failed)?;
        let tried: Vec<RuledOut> = tried
            .and_then(|t| serde_json::from_str(&t).ok())
            .unwrap_or_default();
        attempts.extend(n.parse::<usize>().ok().and_then(|n| tried.get(n).cloned()));
    }
    Ok(attempts)
}

/// A node as people name it: an id or its prefix, or `type:name` of an entity.
fn find_node(c: &Connection, project: &str, wanted: &str) -> Result<String> {
    if let Some((kind, name)) = wanted.split_once(':')
        && let Some(id) = c
            .query_row(
                "select id from entities where project_id = ? and type = ? and name = ?",
                params![project, kind, name],
                |r| r.get::<_, i64>(0),
            )
            .optional()
            .map_err(failed)?
    {
        return Ok(format!("entity:{id}"));
    }
    let quoted = Quoted::parse("id", wanted.trim_start_matches("delta:"))?;
    super::memory::resolve(c, project, "memory", "id", &quoted).map(|id| id.to_string())
}

fn describe(c: &Connection, node: &str) -> Result<GraphNode> {
    let named = |kind: String, title: String| GraphNode {
        id: node.to_owned(),
        kind,
        title,
    };
    if let Some(id) = node.strip_prefix("entity:") {
        let found: Option<(String, String)> = c
            .query_row("select type, name from entities where id = ?", [id], |r| {
                Ok((r.get(0)?, r.get(1)?))
            })
            .optional()
            .map_err(failed)?;
        return Ok(found.map_or_else(
            || named("entity".into(), String::new()),
            |(kind, name)| named(kind, name),
        ));
    }
    if let Some((kind, rest)) = node.split_once(':') {
        return Ok(named(kind.into(), rest.into()));
    }
    let found: Option<(String, Option<String>, String)> = c
        .query_row(
            "select kind, title, text from memory where id = ?",
            [node],
            |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)),
        )
        .optional()
        .map_err(failed)?;
    Ok(found.map_or_else(
        || named("row".into(), String::new()),
        |(kind, title, text)| {
            named(
                kind,
                prism_core::text::clip(&prism_core::text::one_line(&title.unwrap_or(text)), 90),
            )
        },
    ))
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
    let counted = "operator_review is not 'rejected' and (confidence = 'high' or operator_review = 'accepted')";
    let inputs = list(
        c,
        &format!(
            "select captured_via, coalesce(sum({counted}), 0), sum(operator_review is null), sum(operator_review is 'rejected'), sum(operator_review is not null) from operator_inputs where project_id = ? group by 1 order by 1"
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The obvious join order is a hundred times slower once statistics exist; this holds the plan.
    #[test]
    fn every_hop_is_a_search_and_never_a_scan() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut connection).unwrap();
        connection
            .execute_batch("pragma foreign_keys = off")
            .unwrap();
        for i in 0..2000 {
            connection
                .execute(
                    "insert into edges values (?, 'MENTIONS', ?, 'p', 0)",
                    params![format!("{i}"), format!("entity:{}", i % 7)],
                )
                .unwrap();
        }
        connection.execute_batch("analyze").unwrap();
        for (sql, index) in [
            (HOP_OUT, "USING PRIMARY KEY (src=?"),
            (HOP_IN, "USING COVERING INDEX ix_edges_back (dst=?"),
        ] {
            let plan: Vec<String> = connection
                .prepare(&format!("explain query plan {sql}"))
                .unwrap()
                .query_map(params!["x", 5], |r| r.get(3))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap();
            assert!(
                plan.iter()
                    .all(|step| step.starts_with("SEARCH") && step.contains(index)),
                "{plan:?}"
            );
        }
    }
}
