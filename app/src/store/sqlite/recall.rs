//! Reading memory: the legs of a recall, what stands beside a row, and the graph.

use super::memory::list;
use super::{Result, Sqlite, column, failed};
use crate::store::StoreError;
use crate::store::memory::{Filter, Found, MemoryRow, RecallEvent};
use prism_core::api::memory::{AgentTally, GraphAnswer, GraphEdge, GraphNode, MemoryStats, Metrics, RuledOut, Tally, VerdictView};
use prism_core::id::Quoted;
use prism_core::memory::entity::Entity;
use prism_core::memory::operator::{Class, Directness, Verdict, verdict_weight};
use prism_core::memory::recall::{LEG_CANDIDATES, NEIGHBOUR_US, Standing};
use prism_core::{Code, Moment, Problem};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::time::Instant;
use uuid::Uuid;

/// Rows that the words of one question may be expected to match. Words that
/// stand in nearly every row cost the most and tell the least.
const MATCHES_EXPECTED_MAX: f64 = 1_200.0;
/// Newest rows in which the share of a word is estimated.
const SAMPLE_ROWS: i64 = 400;
/// Waiting embed intents are counted up to here.
const PENDING_COUNTED: i64 = 10_000;
/// Rows of the other legs that the graph starts from.
const GRAPH_SEEDS: usize = 20;
/// Edges followed from one node in each direction; a hub says little.
const FAN_OUT: usize = 50;
/// Rows beside one row that are looked at.
const NEIGHBOURS_MAX: usize = 16;
/// Nodes that the second hop starts from.
const SECOND_HOP: usize = 60;

/// One hop, out of a node and into it. Both must be a search, never a scan.
const HOP_OUT: &str = "select dst as node, kind from edges where src = ? and kind <> 'REFERENCES_RECALL' limit ?";
const HOP_IN: &str =
    "select src as node, kind from edges where dst = ? and kind in ('CONFIRMS','LABELS','COMBINES','RULED_OUT_IN','REPLIES_TO','MENTIONS','SUPERSEDES') limit ?";

impl Sqlite {
    pub async fn find(&self, project: Uuid, terms: Vec<String>, entities: Vec<Entity>, filter: Filter) -> Result<Found> {
        self.read(move |c| {
            let project = project.to_string();
            let started = Instant::now();
            let lexical = lexical(c, &project, &terms, &filter)?;
            let lexical_us = started.elapsed().as_micros() as u64;
            let started = Instant::now();
            let seeds: Vec<String> = lexical.iter().take(GRAPH_SEEDS).map(|(id, _)| id.clone()).collect();
            let graph = graph(c, &project, &seeds, &entities, &filter)?;
            let graph_us = started.elapsed().as_micros() as u64;
            let started = Instant::now();
            // Recency orders what other legs found; alone it would answer every question with today.
            let mut dated: HashMap<&String, i64> = lexical.iter().chain(&graph).map(|(id, at)| (id, *at)).collect();
            let mut recency: Vec<(String, i64)> = dated.drain().map(|(id, at)| (id.clone(), at)).collect();
            recency.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            let embed_pending =
                c.query_row("select count(*) from (select 1 from embed_intents limit ?)", [PENDING_COUNTED], |r| r.get::<_, i64>(0)).map_err(failed)? as u64;
            let ids = |rows: Vec<(String, i64)>| rows.into_iter().map(|(id, _)| id).collect();
            Ok(Found {
                recency: ids(recency),
                recency_us: started.elapsed().as_micros() as u64,
                lexical: ids(lexical),
                lexical_us,
                graph: ids(graph),
                graph_us,
                embed_pending,
            })
        })
        .await
    }

    /// The rows beside each of these: before and after in their session, and one edge away.
    pub async fn neighbours(&self, ids: Vec<String>) -> Result<HashMap<String, Vec<String>>> {
        self.read(move |c| beside(c, &ids)).await
    }

    pub async fn rows(&self, project: Uuid, ids: Vec<String>) -> Result<Vec<MemoryRow>> {
        self.read(move |c| {
            let (project, spoken_of) = (project.to_string(), spoken_of(c, &ids)?);
            ids.iter().filter_map(|id| row(c, &project, id, spoken_of.contains(id)).transpose()).collect()
        })
        .await
    }

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

    pub async fn cite(&self, project: Uuid, event: Uuid, result: Uuid, purpose: Option<String>, identity: String, now: Moment) -> Result<()> {
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
                    edges.push(GraphEdge { kind, out, node: describe(c, &other)? });
                }
            }
            Ok(GraphAnswer { node: describe(c, &node)?, edges })
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
            })
        })
        .await
    }

    pub async fn metrics(&self, project: Uuid) -> Result<Metrics> {
        self.read(move |c| metrics(c, &project.to_string())).await
    }
}

/// The rows that hold the question's words, best first, with their time.
fn lexical(c: &Connection, project: &str, terms: &[String], filter: &Filter) -> Result<Vec<(String, i64)>> {
    if terms.is_empty() {
        return Ok(Vec::new());
    }
    let question = telling(c, terms)?.iter().map(|t| format!("\"{t}\"")).collect::<Vec<_>>().join(" OR ");
    let sql = format!(
        "select m.id, m.created_at from memory_fts f cross join memory m on m.rowid = f.rowid where memory_fts match ?1 and m.project_id = ?2 and m.hidden = 0 {}
         order by bm25(memory_fts, 1.0, 1.0, 0.6) limit ?3",
        narrowed(filter)
    );
    list(c, &sql, params![question, project, LEG_CANDIDATES as i64], dated)
}

/// The words worth matching: all of them in a small store, the rarer ones in a large one.
fn telling(c: &Connection, terms: &[String]) -> Result<Vec<String>> {
    let newest: i64 = c.query_row("select coalesce(max(rowid), 0) from memory", [], |r| r.get(0)).map_err(failed)?;
    if newest as f64 <= MATCHES_EXPECTED_MAX {
        return Ok(terms.to_vec());
    }
    let mut sampled = c.prepare_cached("select count(*) from memory_fts where memory_fts match ? and rowid > ?").map_err(failed)?;
    let mut expected = Vec::with_capacity(terms.len());
    for term in terms {
        let hits: i64 = sampled.query_row(params![format!("\"{term}\""), newest - SAMPLE_ROWS], |r| r.get(0)).map_err(failed)?;
        expected.push((hits as f64 / SAMPLE_ROWS as f64 * newest as f64, term));
    }
    expected.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut total = 0.0;
    let rare = expected.iter().enumerate().take_while(|(i, (rows, _))| {
        total += rows;
        *i == 0 || total <= MATCHES_EXPECTED_MAX
    });
    Ok(rare.map(|(_, (_, term))| (*term).clone()).collect())
}

fn dated(row: &rusqlite::Row<'_>) -> rusqlite::Result<(String, i64)> {
    Ok((row.get(0)?, row.get(1)?))
}

/// The filter as SQL. Kinds are names of a closed list and times are numbers, so nothing here is anybody's text.
fn narrowed(filter: &Filter) -> String {
    let mut sql = String::new();
    if !filter.kinds.is_empty() {
        let kinds: Vec<String> = filter.kinds.iter().map(|k| format!("'{k}'")).collect();
        sql.push_str(&format!(" and m.kind in ({})", kinds.join(",")));
    }
    if let Some(since) = filter.since {
        sql.push_str(&format!(" and m.created_at >= {}", since.0));
    }
    if let Some(until) = filter.until {
        sql.push_str(&format!(" and m.created_at <= {}", until.0));
    }
    if let Some(at) = filter.as_of {
        sql.push_str(&format!(" and m.created_at <= {0} and not exists (select 1 from entity_states s where s.node = m.id and s.valid_until <= {0})", at.0));
    }
    sql
}

fn hop(c: &Connection, sql: &str, node: &str) -> Result<Vec<(String, String)>> {
    list(c, sql, params![node, FAN_OUT as i64], |r| Ok((r.get("node")?, r.get("kind")?)))
}

/// Rows within two hops of the question's entities and of the best rows, nearest first.
fn graph(c: &Connection, project: &str, seeds: &[String], entities: &[Entity], filter: &Filter) -> Result<Vec<(String, i64)>> {
    let mut reached: HashMap<String, f64> = HashMap::new();
    let named = entity_nodes(c, project, entities)?;
    let mut frontier: Vec<(String, f64)> =
        named.into_iter().map(|n| (n, 1.0)).chain(seeds.iter().enumerate().map(|(i, s)| (s.clone(), 0.8 / (1.0 + i as f64 * 0.2)))).collect();
    let start: HashSet<String> = frontier.iter().map(|(n, _)| n.clone()).collect();
    for damping in [1.0, 0.4] {
        let mut next: HashMap<String, f64> = HashMap::new();
        for (node, weight) in &frontier {
            let around = [hop(c, HOP_OUT, node)?, hop(c, HOP_IN, node)?].concat();
            // The more a node touches, the less one touch says.
            let share = weight * damping / (1.0 + (around.len() as f64).ln_1p());
            for (other, kind) in around {
                let strong = if kind == "MENTIONS" { 0.6 } else { 1.0 };
                *next.entry(other).or_default() += share * strong;
            }
        }
        for (node, score) in &next {
            *reached.entry(node.clone()).or_default() += score;
        }
        frontier = next.into_iter().filter(|(n, _)| !start.contains(n)).collect();
        frontier.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        frontier.truncate(SECOND_HOP);
    }
    let mut ranked: Vec<(String, f64)> = reached.into_iter().filter(|(n, _)| !n.contains(':')).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    ranked.truncate(LEG_CANDIDATES);
    // Edges may lead anywhere; only rows of this project that the filter allows come back.
    let sql = format!("select m.id, m.created_at from memory m where m.id = ?1 and m.project_id = ?2 and m.hidden = 0 {}", narrowed(filter));
    let mut statement = c.prepare_cached(&sql).map_err(failed)?;
    let rows = ranked.iter().map(|(id, _)| statement.query_row(params![id, project], dated).optional().map_err(failed));
    Ok(rows.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn entity_nodes(c: &Connection, project: &str, entities: &[Entity]) -> Result<Vec<String>> {
    let mut statement = c.prepare_cached("select id from entities where project_id = ? and type = ? and name = ?").map_err(failed)?;
    let ids = entities.iter().map(|e| statement.query_row(params![project, e.kind.name(), e.name], |r| r.get::<_, i64>(0)).optional().map_err(failed));
    Ok(ids.collect::<Result<Vec<_>>>()?.into_iter().flatten().map(|id| format!("entity:{id}")).collect())
}

fn beside(c: &Connection, ids: &[String]) -> Result<HashMap<String, Vec<String>>> {
    let wanted = serde_json::to_string(ids).unwrap_or_default();
    let mut around: HashMap<String, Vec<String>> = HashMap::new();
    let places = list(
        c,
        "select m.id, m.session_id, m.created_at from json_each(?) j cross join memory m on m.id = j.value where m.session_id is not null",
        params![wanted],
        |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?, r.get::<_, i64>(2)?)),
    )?;
    for (id, session, at) in places {
        for sql in [
            "select id from memory where session_id = ?1 and created_at < ?2 and created_at >= ?2 - ?3 and hidden = 0 order by created_at desc limit 1",
            "select id from memory where session_id = ?1 and created_at > ?2 and created_at <= ?2 + ?3 and hidden = 0 order by created_at limit 1",
        ] {
            around.entry(id.clone()).or_default().extend(list(c, sql, params![session, at, NEIGHBOUR_US], |r| r.get::<_, String>(0))?);
        }
    }
    for sql in [
        "select e.src, e.dst from json_each(?) j cross join edges e on e.src = j.value and e.kind in ('CONFIRMS','LABELS','COMBINES','SUPERSEDES')",
        "select e.dst, e.src from json_each(?) j cross join edges e on e.dst = j.value and e.kind in ('CONFIRMS','LABELS','COMBINES','SUPERSEDES')",
    ] {
        for (id, other) in list(c, sql, params![wanted], |r| Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?)))? {
            let mine = around.entry(id).or_default();
            if !other.contains(':') && mine.len() < NEIGHBOURS_MAX {
                mine.push(other);
            }
        }
    }
    Ok(around)
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
    let Some(mut row) = found else { return Ok(None) };
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
        .prepare_cached("select dst from edges where src = ? and kind in ('CONFIRMS','LABELS') limit 1")
        .and_then(|mut s| s.query_row([id], |r| r.get::<_, String>(0)).optional())
        .map_err(failed)?
        .map(|node| if node.contains(':') { node } else { format!("delta:{node}") });
    row.ruled_out = ruled_out(c, id)?;
    Ok(Some(row))
}

fn verdicts_on(c: &Connection, id: &str) -> Result<Vec<(VerdictView, Verdict, f64)>> {
    let rows =
        list(c, "select * from operator_confirmations where refers_to_kind = 'delta' and refers_to_id = ? order by confirmed_at desc limit 5", params![id], |r| {
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
        })?;
    Ok(rows
        .into_iter()
        .filter_map(|(view, own)| {
            let (verdict, directness) = (Verdict::from_name(&view.verdict)?, Directness::from_name(&view.directness)?);
            Some((view, verdict, verdict_weight(directness, own)))
        })
        .collect())
}

/// Attempts that this delta tried, and those that were ruled out in it.
fn ruled_out(c: &Connection, id: &str) -> Result<Vec<RuledOut>> {
    let nodes = list(c, "select src from edges where dst = ? and kind = 'RULED_OUT_IN' limit 10", params![id], |r| r.get::<_, String>(0))?;
    let mut attempts = Vec::new();
    for node in nodes {
        let Some((delta, n)) = node.strip_prefix("attempt:").and_then(|rest| rest.split_once('#')) else { continue };
        let tried: Option<String> = c
            .prepare_cached("select tried_and_ruled_out from session_deltas where id = ?")
            .and_then(|mut s| s.query_row([delta], |r| r.get(0)).optional())
            .map_err(failed)?;
        let tried: Vec<RuledOut> = tried.and_then(|t| serde_json::from_str(&t).ok()).unwrap_or_default();
        attempts.extend(n.parse::<usize>().ok().and_then(|n| tried.get(n).cloned()));
    }
    Ok(attempts)
}

/// A node as people name it: an id or its prefix, or `type:name` of an entity.
fn find_node(c: &Connection, project: &str, wanted: &str) -> Result<String> {
    if let Some((kind, name)) = wanted.split_once(':')
        && let Some(id) = c
            .query_row("select id from entities where project_id = ? and type = ? and name = ?", params![project, kind, name], |r| r.get::<_, i64>(0))
            .optional()
            .map_err(failed)?
    {
        return Ok(format!("entity:{id}"));
    }
    let quoted = Quoted::parse("id", wanted.trim_start_matches("delta:"))?;
    super::memory::resolve(c, project, "memory", "id", &quoted).map(|id| id.to_string())
}

fn describe(c: &Connection, node: &str) -> Result<GraphNode> {
    let named = |kind: String, title: String| GraphNode { id: node.to_owned(), kind, title };
    if let Some(id) = node.strip_prefix("entity:") {
        let found: Option<(String, String)> =
            c.query_row("select type, name from entities where id = ?", [id], |r| Ok((r.get(0)?, r.get(1)?))).optional().map_err(failed)?;
        return Ok(found.map_or_else(|| named("entity".into(), String::new()), |(kind, name)| named(kind, name)));
    }
    if let Some((kind, rest)) = node.split_once(':') {
        return Ok(named(kind.into(), rest.into()));
    }
    let found: Option<(String, Option<String>, String)> =
        c.query_row("select kind, title, text from memory where id = ?", [node], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?))).optional().map_err(failed)?;
    Ok(found.map_or_else(
        || named("row".into(), String::new()),
        |(kind, title, text)| named(kind, prism_core::text::clip(&prism_core::text::one_line(&title.unwrap_or(text)), 90)),
    ))
}

fn metrics(c: &Connection, project: &str) -> Result<Metrics> {
    let tally = |sql: &str| list(c, sql, params![project], |r| Ok(Tally { what: r.get(0)?, group: r.get(1)?, n: r.get::<_, i64>(2)? as u64 }));
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
                misclassification_rate: if reviewed == 0 { 0.0 } else { rejected as f64 / reviewed as f64 },
            })
        },
    )?;
    let mut dead_ends: HashMap<String, u64> = HashMap::new();
    for tried in
        list(c, "select tried_and_ruled_out from session_deltas where project_id = ? and tried_and_ruled_out <> '[]'", params![project], |r| r.get::<_, String>(0))?
    {
        for attempt in serde_json::from_str::<Vec<Value>>(&tried).map_err(|e| StoreError::Failed(e.to_string()))? {
            *dead_ends.entry(attempt["approach"].as_str().unwrap_or_default().to_lowercase()).or_default() += 1;
        }
    }
    let mut dead_ends: Vec<Tally> = dead_ends.into_iter().map(|(what, n)| Tally { what, group: "ruled_out".into(), n }).collect();
    dead_ends.sort_by(|a, b| b.n.cmp(&a.n).then_with(|| a.what.cmp(&b.what)));
    dead_ends.truncate(50);
    Ok(Metrics {
        confirmations: tally("select verdict, confirmed_via, count(*) from operator_confirmations where project_id = ? group by 1, 2 order by 3 desc")?,
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
        connection.execute_batch("pragma foreign_keys = off").unwrap();
        for i in 0..2000 {
            connection.execute("insert into edges values (?, 'MENTIONS', ?, 'p', 0)", params![format!("{i}"), format!("entity:{}", i % 7)]).unwrap();
        }
        connection.execute_batch("analyze").unwrap();
        for (sql, index) in [(HOP_OUT, "USING PRIMARY KEY (src=?"), (HOP_IN, "USING COVERING INDEX ix_edges_back (dst=?")] {
            let plan: Vec<String> = connection
                .prepare(&format!("explain query plan {sql}"))
                .unwrap()
                .query_map(params!["x", 5], |r| r.get(3))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap();
            assert!(plan.iter().all(|step| step.starts_with("SEARCH") && step.contains(index)), "{plan:?}");
        }
        let sql = "select m.id, m.created_at from memory_fts f cross join memory m on m.rowid = f.rowid where memory_fts match ?1 and m.project_id = ?2 and m.hidden = 0 order by bm25(memory_fts) limit 200";
        let plan: Vec<String> = connection
            .prepare(&format!("explain query plan {sql}"))
            .unwrap()
            .query_map(params!["x", "p"], |r| r.get(3))
            .unwrap()
            .collect::<rusqlite::Result<_>>()
            .unwrap();
        assert!(plan[0].contains("SCAN f VIRTUAL TABLE") && plan[1].contains("SEARCH m USING INTEGER PRIMARY KEY"), "{plan:?}");
    }
}
