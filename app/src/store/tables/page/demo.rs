//! Writes the demonstration's rows, and takes the project away again.

use super::super::directory::the_tenant;
use super::super::{Result, Tables, failed};
use crate::demo::{GateIn, RecallIn, Rows, SessionIn, SignalIn};
use crate::store::sql::{Connection, ToSql, params};
use prism_core::Problem;
use prism_core::loopback::Probe;
use prism_core::signal::sha256_hex;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use uuid::Uuid;

/// Seconds that an unread signal of the demonstration waits.
const WAITS_S: i64 = 30 * 86_400;

impl Tables {
    pub async fn mark_demo(&self, project: Uuid) -> Result<()> {
        self.write(move |c| {
            let mark = "update projects set demo = 1 where id = ?";
            run(c, mark, params![project.to_string()]).map(drop)
        })
        .await
    }

    pub async fn write_demo(&self, rows: Rows) -> Result<BTreeMap<String, u64>> {
        let rows = std::sync::Arc::new(rows);
        self.write(move |c| {
            let project = rows.project.to_string();
            let tenant = the_tenant(c)?.to_string();
            for session in &rows.sessions {
                add_session(c, &tenant, &project, &rows, session)?;
            }
            for signal in &rows.signals {
                add_signal(c, &tenant, &project, &rows, signal)?;
            }
            for recall in &rows.recalls {
                add_recall(c, &tenant, &project, &rows, recall)?;
            }
            for event in &rows.gate {
                add_gate(c, &tenant, &project, event)?;
            }
            for probe in &rows.probes {
                add_probe(c, &tenant, &project, &rows, probe)?;
            }
            for (line, session) in &rows.written_by {
                let Some(id) = rows.ids.get(line) else {
                    continue;
                };
                for table in [
                    "session_deltas",
                    "operator_confirmations",
                    "operator_inputs",
                    "artifacts",
                    "memory",
                ] {
                    let sql = format!("update {table} set session_id = ? where id = ?");
                    run(c, &sql, params![session.to_string(), id.to_string()])?;
                }
            }
            Ok(BTreeMap::from([
                ("memory".to_owned(), rows.ids.len() as u64),
                ("sessions".to_owned(), rows.sessions.len() as u64),
                ("signals".to_owned(), rows.signals.len() as u64),
                ("recalls".to_owned(), rows.recalls.len() as u64),
                ("gate_events".to_owned(), rows.gate.len() as u64),
                ("probes".to_owned(), rows.probes.len() as u64),
            ]))
        })
        .await
    }

    pub async fn remove_demo(&self, project: Uuid) -> Result<Option<BTreeMap<String, u64>>> {
        // Whoever was admitted before is told that it is gone.
        self.merged.store(true, Ordering::Relaxed);
        self.write(move |c| {
            let project = project.to_string();
            let is_demo: bool = c
                .query_row(
                    "select exists (select 1 from projects where id = ? and demo = 1)",
                    [&project],
                    |r| r.get(0),
                )
                .map_err(failed)?;
            if !is_demo {
                return Ok(None);
            }
            // Whoever refers to a row goes before it.
            c.execute_batch(c.either(
                "pragma defer_foreign_keys = on",
                "set constraints all deferred",
            ))
            .map_err(failed)?;
            let mut gone = BTreeMap::new();
            for (name, sql) in REMOVED {
                let n = run(c, sql, params![project])?;
                if n > 0 {
                    *gone.entry((*name).to_owned()).or_default() += n as u64;
                }
            }
            // The numbers of its rows are given out again, to rows that are yet to be counted.
            let counted = "update memory_words_counted
                set last = min(last, (select coalesce(max(rowid), 0) from memory))";
            run(c, counted, &[])?;
            Ok(Some(gone))
        })
        .await
    }
}

/// Everything that stands in a project, what refers first.
const REMOVED: &[(&str, &str)] = &[
    ("probes", "delete from loopback_runs where project_id = ?"),
    ("probes", "delete from loopback_days where project_id = ?"),
    (
        "gate_events",
        "delete from recallgate_events where project_id = ?",
    ),
    (
        "gate_events",
        "delete from recallgate_windows where project_id = ?",
    ),
    (
        "citations",
        "delete from memory_citations where recall_event_id in (select id from memory_recall_events where project_id = ?)",
    ),
    (
        "recalls",
        "delete from memory_recall_events where project_id = ?",
    ),
    (
        "vectors",
        "delete from memory_vectors where memory_row in (select rowid from memory where project_id = ?)",
    ),
    (
        "memory_texts",
        "delete from memory_fts where rowid in (select rowid from memory where project_id = ?)",
    ),
    (
        "memory_texts",
        "delete from memory_fields where memory_id in (select id from memory where project_id = ?)",
    ),
    (
        "memory_texts",
        "delete from embed_intents where memory_id in (select id from memory where project_id = ?)",
    ),
    (
        "memory_texts",
        "delete from entity_states where node in (select id from memory where project_id = ?)",
    ),
    ("memory", "delete from memory where project_id = ?"),
    ("edges", "delete from edges where project_id = ?"),
    ("edges", "delete from entities where project_id = ?"),
    ("imported", "delete from imports where project_id = ?"),
    (
        "verdicts",
        "delete from operator_confirmations where project_id = ?",
    ),
    ("inputs", "delete from operator_inputs where project_id = ?"),
    (
        "artifacts",
        "delete from artifact_versions where artifact_id in (select id from artifacts where project_id = ?)",
    ),
    ("artifacts", "delete from artifacts where project_id = ?"),
    ("deltas", "delete from session_deltas where project_id = ?"),
    (
        "deliveries",
        "delete from deliveries where signal_id in (select id from signal_queue where project_id = ?)",
    ),
    (
        "deliveries",
        "delete from signal_trace_events where signal_id in (select id from signal_queue where project_id = ?)",
    ),
    ("signals", "delete from signal_queue where project_id = ?"),
    (
        "sessions",
        "delete from last_proven where persona_id in (select id from personas where project_id = ?)",
    ),
    ("sessions", "delete from sessions where project_id = ?"),
    (
        "folders",
        "delete from project_folders where project_id = ?",
    ),
    ("counts", "delete from memory_counts where project_id = ?"),
    ("counts", "delete from memory_words where project_id = ?"),
    ("personas", "delete from personas where project_id = ?"),
    ("projects", "delete from projects where id = ?"),
];

fn run(c: &Connection, sql: &str, values: &[&dyn ToSql]) -> Result<usize> {
    c.prepare_cached(sql)
        .and_then(|mut s| s.execute(values))
        .map_err(failed)
}

fn persona<'a>(rows: &'a Rows, name: &str) -> Result<&'a Uuid> {
    rows.personas
        .get(name)
        .ok_or_else(|| Problem::field("identity", format!("{name} has no persona")).into())
}

fn add_session(
    c: &Connection,
    tenant: &str,
    project: &str,
    rows: &Rows,
    s: &SessionIn,
) -> Result<()> {
    let persona = persona(rows, s.identity)?.to_string();
    run(
        c,
        "insert into sessions (id, tenant_id, project_id, persona_id, identity, surface, machine_id,
             process_pid, created_at, last_seen_at, first_verb_at, last_verb_at, released_at,
             release_reason, waiting_for, waiting_since)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, 0, ?8, ?9, ?8, ?9, ?10, ?11, ?12, ?13)",
        params![
            s.id.to_string(),
            tenant,
            project,
            persona,
            s.identity,
            s.surface,
            s.machine_id,
            s.from.0,
            s.last.0,
            s.released.then_some(s.last.0),
            s.released.then_some("wrap"),
            s.waits_since.map(|_| "permission"),
            s.waits_since.map(|at| at.0)
        ],
    )?;
    run(
        c,
        "update personas set started_at = coalesce(started_at, ?) where id = ?",
        params![s.from.0, persona],
    )?;
    run(
        c,
        "insert into last_proven (persona_id, session_id, state, at, surface, evidence, signal_id)
         values (?, ?, 'drained', ?, ?, null, ?) on conflict do nothing",
        params![
            persona,
            s.id.to_string(),
            s.last.0,
            s.surface,
            s.id.to_string()
        ],
    )?;
    Ok(())
}

fn next_seq(c: &Connection, persona: &str) -> Result<i64> {
    c.prepare_cached(
        "update personas set inbox_seq = inbox_seq + 1 where id = ? returning inbox_seq",
    )
    .and_then(|mut s| s.query_row([persona], |r| r.get(0)))
    .map_err(failed)
}

fn add_signal(
    c: &Connection,
    tenant: &str,
    project: &str,
    rows: &Rows,
    s: &SignalIn,
) -> Result<()> {
    let persona = persona(rows, &s.to)?.to_string();
    let seq = next_seq(c, &persona)?;
    let payload = s.payload.to_string();
    let after = |n: i64| s.at.plus_us(n * s.pace_us).0;
    let drained_at = s
        .drained
        .then(|| s.at.plus_us(5 * s.pace_us + 20_000_000).0);
    run(
        c,
        "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity,
             seq, from_identity, signal_type, category, payload, in_reply_to, delivery_class,
             publish_path, body_sha256, created_at, expires_at, drained_at, drained_by, acted_at,
             ended_at, ended_as)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'async', ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            s.id.to_string(),
            tenant,
            project,
            s.id.to_string(),
            persona,
            s.to,
            seq,
            s.from,
            s.signal_type,
            s.category.name(),
            payload,
            s.in_reply_to.map(|id| id.to_string()),
            match s.to_session {
                Some(_) => "pushed_to_ws",
                None => "queued_offline",
            },
            sha256_hex(payload.as_bytes()),
            s.at.0,
            s.at.plus_s(WAITS_S).0,
            drained_at,
            s.to_session
                .filter(|_| s.drained)
                .map(|(id, _)| id.to_string()),
            s.acted_at.map(|at| at.0),
            s.ended_as.map(|_| s.at.plus_s(86_400).0),
            s.ended_as
        ],
    )?;
    if let Some((session, known)) = s.to_session {
        let at = |n: usize| (known > n).then(|| after(n as i64 + 1));
        run(
            c,
            "insert into deliveries (signal_id, session_id, pushed_at, received_at, rung_at,
                 rendered_at, drained_at, strategy)
             values (?, ?, ?, ?, ?, ?, ?, ?)",
            params![
                s.id.to_string(),
                session.to_string(),
                at(0),
                at(1),
                at(2),
                at(3),
                drained_at,
                s.strategy
            ],
        )?;
    }
    Ok(())
}

fn add_recall(
    c: &Connection,
    tenant: &str,
    project: &str,
    rows: &Rows,
    r: &RecallIn,
) -> Result<()> {
    let ids: Vec<&Uuid> = r
        .results
        .iter()
        .filter_map(|line| rows.ids.get(*line))
        .collect();
    let results: Vec<_> = ids
        .iter()
        .enumerate()
        .map(|(n, id)| json!({"id": id, "rank": n + 1, "score": 0.9 - 0.2 * n as f64}))
        .collect();
    run(
        c,
        "insert into memory_recall_events (id, tenant_id, project_id, session_id, identity, surface,
             query, results, latency_us, tokens, occurred_at)
         values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            r.id.to_string(),
            tenant,
            project,
            r.session.to_string(),
            r.identity,
            r.surface,
            r.query,
            json!(results).to_string(),
            r.latency_us,
            60 * ids.len() as i64,
            r.at.0
        ],
    )?;
    if let Some(first) = ids.first().filter(|_| r.cited) {
        run(
            c,
            "insert into memory_citations (recall_event_id, result_id, purpose, identity, cited_at)
             values (?, ?, 'what it was built on', ?, ?)",
            params![
                r.id.to_string(),
                first.to_string(),
                r.identity,
                r.at.plus_s(120).0
            ],
        )?;
    }
    Ok(())
}

fn add_gate(c: &Connection, tenant: &str, project: &str, g: &GateIn) -> Result<()> {
    run(
        c,
        "insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class,
             gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface,
             recall_count, occurred_at, label, labelled_at, is_first)
         values (?, ?, ?, ?, ?, 'advisory', ?, ?, ?, ?, ?, ?, ?, ?, ?, 1)",
        params![
            g.id.to_string(),
            tenant,
            project,
            g.assignment.to_string(),
            g.class,
            if g.warned { "warned" } else { "satisfied" },
            g.trigger,
            g.session.to_string(),
            g.identity,
            g.surface,
            g.recalls,
            g.at.0,
            g.label,
            g.label.map(|_| g.at.plus_s(3_600).0)
        ],
    )?;
    Ok(())
}

fn add_probe(c: &Connection, tenant: &str, project: &str, rows: &Rows, p: &Probe) -> Result<()> {
    let persona = persona(rows, &p.requested_by_identity)?.to_string();
    let seq = next_seq(c, &persona)?;
    let finished = p.finished_at.unwrap_or(p.started_at).0;
    let payload = json!({"summary": "loopback probe", "loopback_id": p.loopback_id}).to_string();
    run(
        c,
        "insert into signal_queue (id, tenant_id, project_id, trace_id, to_persona_id, to_identity,
             seq, from_identity, signal_type, category, payload, delivery_class, body_sha256,
             created_at, expires_at, ended_at, ended_as)
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 'Loopback', 'INFO', ?9, 'async', ?10, ?11, ?12, ?12, 'expired')",
        params![
            p.signal_id.to_string(),
            tenant,
            project,
            p.trace_id.to_string(),
            persona,
            p.requested_by_identity,
            seq,
            rows.operator,
            payload,
            sha256_hex(payload.as_bytes()),
            p.started_at.0,
            finished
        ],
    )?;
    run(
        c,
        "insert into loopback_runs (loopback_id, project_id, session_id, identity, signal_id,
             outcome, envelope, finished_at)
         values (?, ?, ?, ?, ?, ?, ?, ?)",
        params![
            p.loopback_id.to_string(),
            project,
            p.requested_by_session.map(|s| s.to_string()),
            p.requested_by_identity,
            p.signal_id.to_string(),
            p.outcome.name(),
            serde_json::to_string(p).unwrap_or_default(),
            finished
        ],
    )?;
    Ok(())
}
