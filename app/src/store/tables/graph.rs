//! The graph as people look at it: one node, and what stands beside it.

use super::memory::list;
use super::{Result, Tables, failed, verdicts};
use crate::store::sql::{Connection, OptionalExtension, params};
use prism_core::api::memory::{GraphAnswer, GraphEdge, GraphNode};
use prism_core::id::Quoted;
use prism_core::memory::entity::Entity;
use prism_core::memory::reference::Reference;
use prism_core::{Code, Problem};
use std::collections::HashSet;
use uuid::Uuid;

/// Edges followed from one node in each direction; a hub says little.
const FAN_OUT: usize = 50;
/// One hop, out of a node and into it. Both must be a search, never a scan.
const HOP_OUT: &str = "select dst as node, kind from edges where src = ? and kind <> 'REFERENCES_RECALL' order by kind, dst limit ?";
const HOP_IN: &str = "select src as node, kind from edges where dst = ? and kind in ('CONFIRMS','LABELS','COMBINES','RULED_OUT_IN','REPLIES_TO','MENTIONS','SUPERSEDES') order by kind, src limit ?";

impl Tables {
    pub async fn graph_of(&self, project: Uuid, wanted: String) -> Result<GraphAnswer> {
        self.read_memory(move |c| graph(c, &project.to_string(), &wanted))
            .await
    }
}

/// One node and what stands beside it.
pub(super) fn graph(c: &Connection, project: &str, wanted: &str) -> Result<GraphAnswer> {
    let node = find_node(c, project, wanted)?;
    // A spec that is kept here is a row and a thing that others name: one to whoever looks.
    let mut nodes = vec![node];
    nodes.extend(verdicts::spec_node(c, &nodes[0])?);
    let mut seen = HashSet::new();
    let mut edges = Vec::new();
    for node in &nodes {
        for (out, sql) in [(true, HOP_OUT), (false, HOP_IN)] {
            for (other, kind) in hop(c, sql, node)? {
                let known = !seen.insert((other.clone(), kind.clone(), out));
                if known || nodes.contains(&other) || is_hidden(c, &other)? {
                    continue;
                }
                edges.push(GraphEdge {
                    kind,
                    out,
                    node: describe(c, &other)?,
                });
            }
        }
    }
    Ok(GraphAnswer {
        node: describe(c, &nodes[0])?,
        edges,
    })
}

fn hop(c: &Connection, sql: &str, node: &str) -> Result<Vec<(String, String)>> {
    list(c, sql, params![node, FAN_OUT as i64], |r| {
        Ok((r.get("node")?, r.get("kind")?))
    })
}

/// What the operator rejected is out of sight.
fn is_hidden(c: &Connection, node: &str) -> Result<bool> {
    c.prepare_cached("select 1 from memory where id = ? and hidden = 1")
        .and_then(|mut s| s.exists([node]))
        .map_err(failed)
}

/// A node as people name it: an id or its prefix, a spec, commit or signal as references write
/// them, or `type:name` of another entity.
fn find_node(c: &Connection, project: &str, wanted: &str) -> Result<String> {
    let (entity, row) = match wanted
        .split_once(':')
        .map(|_| Reference::parse("id", wanted))
    {
        None => (None, Some(Quoted::parse("id", wanted)?)),
        Some(Ok(Reference::Delta(quoted))) => (None, Some(quoted)),
        Some(Ok(Reference::Signal(quoted))) => {
            let id = super::memory::resolve(c, project, "signal_queue", "id", &quoted)?;
            return Ok(format!("signal:{id}"));
        }
        Some(Ok(Reference::Spec(name))) => match super::memory::own_spec(c, project, &name)? {
            Some(spec) => return Ok(spec.id.to_string()),
            None => {
                let spec = Entity::spec(&name);
                (Some((spec.kind.name().to_owned(), spec.name)), None)
            }
        },
        Some(Ok(named)) => (
            named.entity().map(|e| (e.kind.name().to_owned(), e.name)),
            None,
        ),
        Some(Err(_)) => {
            let (kind, name) = wanted.split_once(':').unwrap_or_default();
            (
                Some((kind.trim().to_ascii_lowercase(), name.trim().to_owned())),
                None,
            )
        }
    };
    let unknown = || {
        Problem::new(
            Code::UnknownReference,
            format!(
                "nothing in this project names {:?}",
                prism_core::text::clip(wanted, 60)
            ),
            "`prism recall` shows ids; a thing is named like spec:SPEC-060, commit:<sha>, \
             signal:<id> or path:src/main.rs",
        )
    };
    if let Some((kind, name)) = entity {
        let found: Option<i64> = c
            .query_row(
                "select id from entities where project_id = ? and type = ? and name = ?",
                params![project, kind, name],
                |r| r.get(0),
            )
            .optional()
            .map_err(failed)?;
        return Ok(found.map(|id| format!("entity:{id}")).ok_or_else(unknown)?);
    }
    let quoted = row.ok_or_else(unknown)?;
    let id = super::memory::resolve(c, project, "memory", "id", &quoted)?.to_string();
    if is_hidden(c, &id)? {
        return Err(Problem::new(
            Code::UnknownReference,
            format!("{} was rejected in review", &id[..8]),
            format!("`prism review {} --undo` brings it back", &id[..8]),
        )
        .into());
    }
    Ok(id)
}

fn describe(c: &Connection, node: &str) -> Result<GraphNode> {
    let named = |kind: String, title: String| GraphNode {
        id: node.to_owned(),
        kind,
        title,
    };
    if let Some(id) = node.strip_prefix("entity:") {
        let found: Option<(String, String)> = c
            .query_row(
                "select type, name from entities where id = cast(? as integer)",
                [id],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
            .optional()
            .map_err(failed)?;
        // By the name it can be asked for; its number is this engine's own.
        let (kind, name) = found.unwrap_or_default();
        return Ok(GraphNode {
            id: format!("{kind}:{name}"),
            kind,
            title: name,
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sql;

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
                .collect::<sql::Result<_>>()
                .unwrap();
            assert!(
                plan.iter()
                    .all(|step| step.starts_with("SEARCH") && step.contains(index)),
                "{plan:?}"
            );
        }
    }
}
