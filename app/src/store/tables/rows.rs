//! Rows as results show them: with verdicts, labels and what was ruled out.

use super::memory::list;
use super::{Result, Tables, column, failed, verdicts};
use crate::store::memory::MemoryRow;
use crate::store::sql::{Connection, OptionalExtension, params};
use prism_core::api::memory::RuledOut;
use prism_core::memory::operator::Class;
use prism_core::memory::recall::Standing;
use std::collections::HashSet;
use uuid::Uuid;

const ROW: &str =
    "select m.*, s.superseded_by from memory m left join entity_states s on s.node = m.id
    where m.id = ? and m.project_id = ? and m.hidden = 0";

impl Tables {
    /// Rows in the order asked for; what the project does not show is left out.
    pub async fn rows(&self, project: Uuid, ids: Vec<String>) -> Result<Vec<MemoryRow>> {
        self.read_memory(move |c| {
            let project = project.to_string();
            for id in &ids {
                c.ahead(ROW, [id, &project]).map_err(failed)?;
            }
            let spoken_of = spoken_of(c, &ids)?;
            ids.iter()
                .filter_map(|id| row(c, &project, id, spoken_of.contains(id)).transpose())
                .collect()
        })
        .await
    }
}

/// Those of the rows that a verdict, a label or an attempt is about, or that are one.
fn spoken_of(c: &Connection, ids: &[String]) -> Result<HashSet<String>> {
    let wanted = serde_json::to_string(ids).unwrap_or_default();
    let mut touched = HashSet::new();
    let ways = [
        "select j.value from json_each(?) j where exists (select 1 from edges e where e.dst = j.value and e.kind in ('CONFIRMS','LABELS','RULED_OUT_IN'))",
        "select j.value from json_each(?) j where exists (select 1 from edges e where e.src = j.value and e.kind in ('CONFIRMS','LABELS'))",
        verdicts::NAMES_JUDGED,
        verdicts::JUDGED_SPECS,
    ];
    for sql in ways {
        c.ahead(sql, [&wanted]).map_err(failed)?;
    }
    for sql in ways {
        touched.extend(list(c, sql, params![wanted], |r| r.get::<_, String>(0))?);
    }
    Ok(touched)
}

fn row(c: &Connection, project: &str, id: &str, spoken_of: bool) -> Result<Option<MemoryRow>> {
    let found = c
        .prepare_cached(ROW)
        .and_then(|mut s| {
            s.query_row(params![id, project], |r| {
                Ok(MemoryRow {
                    id: column::id(r, "id")?,
                    kind: r.get("kind")?,
                    identity: r.get("identity")?,
                    title: r.get("title")?,
                    text: r.get("text")?,
                    created_at: column::moment(r, "created_at")?,
                    standing: Standing {
                        superseded_by: r.get("superseded_by")?,
                        ..Standing::default()
                    },
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
    let (said, newest) = verdicts::verdicts_on(c, project, id, &row.kind)?;
    row.verdicts = said;
    row.standing.verdicts.extend(newest);
    row.standing.labels = list(
        c,
        "select i.class from edges e cross join operator_inputs i on i.id = e.src where e.dst = ? and e.kind = 'LABELS' and i.operator_review is distinct from 'rejected' and (i.confidence = 'high' or i.operator_review = 'accepted')",
        params![id],
        |r| r.get::<_, String>(0),
    )?
    .iter()
    .filter_map(|name| Class::from_name(name))
    .collect();
    row.refers_to = verdicts::refers_to(c, id)?;
    row.ruled_out = ruled_out(c, id)?;
    Ok(Some(row))
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
