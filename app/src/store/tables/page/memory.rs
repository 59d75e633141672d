//! Memory, recalls, inputs, sessions, gate events and probes as the operator lists them.

use super::super::{Result, Tables, column, failed, graph, memory as rows, verdicts};
use super::{Listing, Where, find};
use crate::store::page::{
    GateFilter, InputFilter, Listed, MemoryFilter, ProbeFilter, Range, RecallFilter, SessionFilter,
};
use crate::store::sql::Value;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use prism_core::api::memory::{GraphAnswer, GraphNode};
use prism_core::api::page::house::ProbeRow;
use prism_core::api::page::memory::{
    ConfirmationView, InputClass, InputRow, MemoryShown, MemoryView, RecallRow, RecallShown,
    ReviewWanted, RowRecalls, VersionView,
};
use prism_core::api::page::{GateOutcomeName, GateRow, SessionRow, SessionsWanted};
use prism_core::hook::Waiting;
use prism_core::limits::{PAGE_TEXT_CHARS, PAGE_WORDS_CHARS};
use prism_core::loopback::Probe;
use prism_core::presence::SessionState;
use prism_core::text::{clip, one_line};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Recall events that say how often a row is found.
const RECALLS_LOOKED_AT: i64 = 1_000;

const PROJECT: &str = "left join projects p on p.id = t.project_id";

pub(in super::super) const MEMORY: Listing = Listing {
    table: "memory",
    time: "created_at",
    columns: "t.*, p.pid, a.number, a.status, s.superseded_by,
        (select c.verdict from operator_confirmations c where c.refers_to_kind = 'delta'
            and c.refers_to_id = t.id order by c.confirmed_at desc limit 1) as verdict",
    joins: "left join projects p on p.id = t.project_id left join artifacts a on a.id = t.id
        left join entity_states s on s.node = t.id",
    only: "true",
};
pub(in super::super) const RECALLS: Listing = Listing {
    table: "memory_recall_events",
    time: "occurred_at",
    columns: "t.*, p.pid",
    joins: PROJECT,
    only: "true",
};
pub(in super::super) const INPUTS: Listing = Listing {
    table: "operator_inputs",
    time: "captured_at",
    columns: "t.*, p.pid",
    joins: PROJECT,
    only: "true",
};
/// What nobody has reviewed, however much was.
pub(in super::super) const INPUTS_LEFT: Listing = Listing {
    only: "operator_review is null",
    ..INPUTS
};
pub(in super::super) const GATE: Listing = Listing {
    table: "recallgate_events",
    time: "occurred_at",
    columns: "t.*, p.pid, q.payload, a.title",
    joins: "left join projects p on p.id = t.project_id
        left join signal_queue q on q.id = t.assignment_id
        left join artifacts a on a.id = t.assignment_id",
    only: "true",
};
/// Warnings that nobody has labelled, however many were.
pub(in super::super) const GATE_LEFT: Listing = Listing {
    only: "outcome = 'warned' and label is null",
    ..GATE
};
pub(in super::super) const SESSIONS: Listing = Listing {
    table: "sessions",
    time: "created_at",
    columns: "t.*, p.pid",
    joins: PROJECT,
    only: "true",
};
pub(in super::super) const PROBES: Listing = Listing {
    table: "loopback_runs",
    time: "finished_at",
    columns: "t.*, p.pid",
    joins: PROJECT,
    only: "true",
};

impl Tables {
    pub async fn list_memory(
        &self,
        projects: Vec<Uuid>,
        filter: MemoryFilter,
        range: Range,
    ) -> Result<Listed<MemoryView>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            if !filter.kinds.is_empty() {
                let among = vec!["?"; filter.kinds.len()].join(", ");
                wanted.is(
                    &format!("t.kind in ({among})"),
                    filter.kinds.into_iter().map(Value::Text),
                );
            }
            wanted.equal("lower(t.identity) = lower(?)", filter.identity);
            wanted.words("coalesce(t.title, '') || ' ' || t.text", &filter.words);
            MEMORY.list(c, &projects, &range, &wanted, |r| view(r, PAGE_TEXT_CHARS))
        })
        .await
    }

    pub async fn show_memory(&self, projects: Vec<Uuid>, id: String) -> Result<MemoryShown> {
        self.read_memory(move |c| {
            let id = find(c, "memory", &projects, "id", &id, "row of memory")?;
            shown(c, &id)
        })
        .await
    }

    pub async fn list_recalls(
        &self,
        projects: Vec<Uuid>,
        filter: RecallFilter,
        range: Range,
    ) -> Result<Listed<RecallRow>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            wanted.equal("lower(t.identity) = lower(?)", filter.identity);
            if let Some(session) = filter.session {
                let quoted = prism_core::id::Quoted::parse("session_id", &session)?;
                wanted.is(
                    "t.session_id >= ? and t.session_id < ?",
                    [
                        Value::Text(quoted.prefix().into()),
                        Value::Text(quoted.upper()),
                    ],
                );
            }
            if let Some(cited) = filter.cited {
                let not = if cited { "" } else { "not" };
                wanted.is(
                    &format!("{not} exists (select 1 from memory_citations c where c.recall_event_id = t.id)"),
                    [],
                );
            }
            wanted.words("t.query", &filter.words);
            let mut listed = RECALLS.list(c, &projects, &range, &wanted, recalled)?;
            name_results(c, &mut listed.rows)?;
            Ok(listed)
        })
        .await
    }

    pub async fn list_inputs(
        &self,
        projects: Vec<Uuid>,
        filter: InputFilter,
        range: Range,
    ) -> Result<Listed<InputRow>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            let mut listing = INPUTS;
            match filter.review {
                Some(ReviewWanted::Unreviewed) => listing = INPUTS_LEFT,
                Some(ReviewWanted::Accepted) => wanted.is("t.operator_review = 'accepted'", []),
                Some(ReviewWanted::Rejected) => wanted.is("t.operator_review = 'rejected'", []),
                Some(ReviewWanted::All) | None => {}
            }
            wanted.equal("t.class = ?", filter.class.map(|c| c.name()));
            wanted.equal("lower(t.captured_via) = lower(?)", filter.identity);
            wanted.equal("t.surface = ?", filter.surface);
            listing.list(c, &projects, &range, &wanted, input)
        })
        .await
    }

    pub async fn list_gate(
        &self,
        projects: Vec<Uuid>,
        filter: GateFilter,
        range: Range,
    ) -> Result<Listed<GateRow>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            let mut listing = GATE;
            wanted.equal("t.outcome = ?", filter.outcome.map(|o| o.name()));
            match filter.labelled {
                Some(true) => wanted.is("t.label is not null", []),
                Some(false) => listing = GATE_LEFT,
                None => {}
            }
            wanted.equal("lower(t.actor_persona) = lower(?)", filter.identity);
            listing.list(c, &projects, &range, &wanted, gate)
        })
        .await
    }

    pub async fn list_sessions(
        &self,
        projects: Vec<Uuid>,
        filter: SessionFilter,
        range: Range,
    ) -> Result<Listed<SessionRow>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            wanted.equal("lower(t.identity) = lower(?)", filter.identity);
            wanted.equal("t.surface = ?", filter.surface);
            match filter.which {
                Some(SessionsWanted::Open) => wanted.is("t.released_at is null", []),
                Some(SessionsWanted::Released) => wanted.is("t.released_at is not null", []),
                Some(SessionsWanted::All) | None => {}
            }
            SESSIONS.list(c, &projects, &range, &wanted, session)
        })
        .await
    }

    pub async fn list_probes(
        &self,
        projects: Vec<Uuid>,
        filter: ProbeFilter,
        range: Range,
    ) -> Result<Listed<(Probe, ProbeRow)>> {
        self.read_memory(move |c| {
            let mut wanted = Where::default();
            wanted.equal("lower(t.identity) = lower(?)", filter.identity);
            wanted.equal("t.outcome = ?", filter.outcome.map(|o| o.name()));
            wanted.equal("json_extract(t.envelope, '$.surface') = ?", filter.surface);
            wanted.equal(
                "json_extract(t.envelope, '$.machine_id') = ?",
                filter.machine_id,
            );
            PROBES.list(c, &projects, &range, &wanted, probe)
        })
        .await
    }
}

pub(in super::super) const UNREVIEWED: &str =
    "select count(*) from operator_inputs indexed by ix_operator_inputs_left
        where operator_review is null and project_id = ?";
pub(in super::super) const UNLABELLED: &str =
    "select count(*) from recallgate_events indexed by ix_gate_left
    where project_id = ? and outcome = 'warned' and label is null";

fn view(r: &Row<'_>, chars: usize) -> sql::Result<MemoryView> {
    let text: String = r.get("text")?;
    let more = text.chars().count().saturating_sub(chars) as u64;
    Ok(MemoryView {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        id: column::id(r, "id")?,
        kind: r.get("kind")?,
        identity: r.get("identity")?,
        created_at: column::moment(r, "created_at")?,
        title: r.get("title")?,
        text: clip(&text, chars),
        more,
        number: r.get("number")?,
        status: r.get("status")?,
        verdict: r.get("verdict")?,
        hidden: r.get("hidden")?,
        superseded_by: column::opt_id(r, "superseded_by")?,
    })
}

fn one<T>(
    c: &Connection,
    sql: &str,
    id: &str,
    map: impl FnOnce(&Row<'_>) -> sql::Result<T>,
) -> Result<Option<T>> {
    c.prepare_cached(sql)
        .and_then(|mut s| s.query_row([id], map).optional())
        .map_err(failed)
}

fn shown(c: &Connection, id: &str) -> Result<MemoryShown> {
    let sql = format!(
        "select {}, t.session_id, t.project_id from memory t {} where t.id = ?",
        MEMORY.columns, MEMORY.joins
    );
    let (row, session_id, project) = one(c, &sql, id, |r| {
        Ok((
            view(r, usize::MAX)?,
            column::opt_id(r, "session_id")?,
            r.get::<_, String>("project_id")?,
        ))
    })?
    .ok_or_else(super::super::gone)?;
    let delta = one(
        c,
        "select * from session_deltas where id = ?",
        id,
        rows::delta,
    )?;
    let artifact = one(
        c,
        "select * from artifacts where id = ?",
        id,
        rows::artifact,
    )?;
    let input = one(
        c,
        "select * from operator_inputs where id = ?",
        id,
        rows::input,
    )?;
    let confirmation = one(
        c,
        "select * from operator_confirmations where id = ?",
        id,
        confirmation,
    )?;
    let refers_to = match (&delta, &artifact, &confirmation, &input) {
        (Some(delta), ..) => Some(format!("delta:{}", delta.id)),
        (_, Some(spec), ..) if spec.kind == "spec" => {
            spec.number.map(|number| format!("spec:{number}"))
        }
        (_, _, Some(confirmation), _) => Some(confirmation.refers_to.clone()),
        (.., Some(input)) => input.reverses_delta.map(|delta| format!("delta:{delta}")),
        _ => None,
    };
    let (verdicts, _) = verdicts::verdicts_on(c, &project, id, &row.kind)?;
    let versions = rows::list(
        c,
        "select * from artifact_versions where artifact_id = ? order by version",
        params![id],
        |r| {
            Ok(VersionView {
                version: r.get("version")?,
                title: r.get("title")?,
                body: r.get("body")?,
                status: r.get("status")?,
                identity: r.get("identity")?,
                created_at: column::moment(r, "created_at")?,
            })
        },
    )?;
    let graph = match row.hidden {
        // What was rejected stands beside nothing.
        true => GraphAnswer {
            node: GraphNode {
                id: id.to_owned(),
                kind: row.kind.clone(),
                title: row.title.clone().unwrap_or_default(),
            },
            edges: Vec::new(),
        },
        false => graph::graph(c, &project, id)?,
    };
    let (shown, cited, last_at): (i64, i64, Option<i64>) = c
        .prepare_cached(
            "select count(*), coalesce(sum(exists (select 1 from memory_citations x
                 where x.recall_event_id = e.id and x.result_id = ?1)), 0), max(e.occurred_at)
             from (select id, results, occurred_at from memory_recall_events
                 where project_id = ?2 order by occurred_at desc limit ?3) e
             where instr(e.results, ?1) > 0",
        )
        .and_then(|mut s| {
            s.query_row(params![id, project, RECALLS_LOOKED_AT], |r| {
                Ok((r.get(0)?, r.get(1)?, r.get(2)?))
            })
        })
        .map_err(failed)?;
    Ok(MemoryShown {
        row,
        session_id,
        delta,
        artifact,
        input,
        confirmation,
        refers_to,
        verdicts,
        versions,
        graph,
        recalls: RowRecalls {
            shown: shown as u64,
            cited: cited as u64,
            last_at: last_at.map(prism_core::Moment),
        },
    })
}

fn confirmation(r: &Row<'_>) -> sql::Result<ConfirmationView> {
    let (kind, what): (String, String) = (r.get("refers_to_kind")?, r.get("refers_to_id")?);
    Ok(ConfirmationView {
        id: column::id(r, "id")?,
        refers_to: format!("{kind}:{what}"),
        verdict: r.get("verdict")?,
        notes: r.get("notes")?,
        confirmed_by: r.get("confirmed_by")?,
        confirmed_via: r.get("confirmed_via")?,
        directness: r.get("directness")?,
        confirmed_at: column::moment(r, "confirmed_at")?,
    })
}

fn recalled(r: &Row<'_>) -> sql::Result<RecallRow> {
    let results: Vec<serde_json::Value> =
        serde_json::from_str(&r.get::<_, String>("results")?).unwrap_or_default();
    let results = results.iter().filter_map(|one| {
        Some(RecallShown {
            id: one["id"].as_str()?.parse().ok()?,
            rank: one["rank"].as_u64().unwrap_or_default(),
            score: one["score"].as_f64().unwrap_or_default(),
            kind: None,
            title: None,
            cited: false,
            cited_for: None,
        })
    });
    Ok(RecallRow {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        id: column::id(r, "id")?,
        at: column::moment(r, "occurred_at")?,
        identity: r.get("identity")?,
        surface: r.get("surface")?,
        session_id: column::opt_id(r, "session_id")?,
        query: r.get("query")?,
        results: results.collect(),
        latency_ms: r.get::<_, i64>("latency_us")? as f64 / 1000.0,
        tokens: r.get::<_, i64>("tokens")? as u64,
    })
}

/// Says of each result what it is now and whether it was cited.
fn name_results(c: &Connection, rows: &mut [RecallRow]) -> Result<()> {
    let of = |id: Uuid| vec![Value::Text(id.to_string())];
    let events: Vec<Vec<Value>> = rows.iter().map(|row| of(row.id)).collect();
    let cited = c
        .query_each(
            "select result_id, purpose from memory_citations where recall_event_id = ?",
            &events,
            |r| Ok((r.get::<_, String>(0)?, r.get::<_, Option<String>>(1)?)),
        )
        .map_err(failed)?;
    // Recalls bring the same rows again and again.
    let brought = rows.iter().flat_map(|row| row.results.iter().map(|r| r.id));
    let brought: Vec<Uuid> = brought.collect::<BTreeSet<_>>().into_iter().collect();
    let ids: Vec<Vec<Value>> = brought.iter().map(|id| of(*id)).collect();
    let found = c
        .query_each(
            "select kind, title, substr(text, 1, 200) as text from memory where id = ?",
            &ids,
            |r| {
                let title: Option<String> = r.get("title")?;
                let text: String = r.get("text")?;
                let shown = title.filter(|t| !t.is_empty()).unwrap_or(text);
                Ok((r.get::<_, String>("kind")?, clip(&one_line(&shown), 120)))
            },
        )
        .map_err(failed)?;
    let found = found.into_iter().map(|one| one.into_iter().next());
    let known: BTreeMap<Uuid, Option<(String, String)>> = brought.into_iter().zip(found).collect();
    for (row, cited) in rows.iter_mut().zip(cited) {
        for result in &mut row.results {
            if let Some(Some((kind, title))) = known.get(&result.id) {
                result.kind = Some(kind.clone());
                result.title = Some(title.clone());
            }
            let id = result.id.to_string();
            if let Some((_, purpose)) = cited.iter().find(|(cited, _)| *cited == id) {
                result.cited = true;
                result.cited_for = purpose.clone();
            }
        }
    }
    Ok(())
}

fn named<T>(r: &Row<'_>, column: &str, parse: fn(&str) -> Option<T>) -> sql::Result<T> {
    let name: String = r.get(column)?;
    parse(&name).ok_or_else(|| sql::Error::column(column, "unknown"))
}

pub(super) fn input(r: &Row<'_>) -> sql::Result<InputRow> {
    let (said, action): (String, Option<String>) =
        (r.get("prompt_text")?, r.get("triggered_action")?);
    let beyond = |text: &str| text.chars().count().saturating_sub(PAGE_WORDS_CHARS) as u64;
    Ok(InputRow {
        more: beyond(&said) + action.as_deref().map_or(0, beyond),
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        id: column::id(r, "id")?,
        class: named(r, "class", InputClass::from_name)?,
        prompt_text: clip(&said, PAGE_WORDS_CHARS),
        triggered_action: action.map(|text| clip(&text, PAGE_WORDS_CHARS)),
        reverses_delta: column::opt_id(r, "reverses_delta")?,
        confidence: r.get("confidence")?,
        captured_via: r.get("captured_via")?,
        surface: r.get("surface")?,
        captured_at: column::moment(r, "captured_at")?,
        operator_review: r.get("operator_review")?,
        reviewed_at: column::opt_moment(r, "reviewed_at")?,
    })
}

pub(super) fn gate(r: &Row<'_>) -> sql::Result<GateRow> {
    let payload: Option<String> = r.get("payload")?;
    let summary = payload
        .and_then(|text| serde_json::from_str(&text).ok())
        .map(|payload| prism_core::envelope::summary_of(&payload));
    Ok(GateRow {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        id: column::id(r, "id")?,
        assignment_id: r.get("assignment_id")?,
        assignment: summary
            .or(r.get("title")?)
            .map(|text| clip(&one_line(&text), 120)),
        task_class: r.get("task_class")?,
        outcome: named(r, "outcome", GateOutcomeName::from_name)?,
        trigger: r.get("trigger")?,
        persona: r.get("actor_persona")?,
        surface: r.get("actor_surface")?,
        recall_count: r.get::<_, i64>("recall_count")? as u64,
        occurred_at: column::moment(r, "occurred_at")?,
        right: r.get("label")?,
        labelled_at: column::opt_moment(r, "labelled_at")?,
    })
}

/// A session as its row has it; who is live is known elsewhere.
fn session(r: &Row<'_>) -> sql::Result<SessionRow> {
    let released_at = column::opt_moment(r, "released_at")?;
    let waits: Option<String> = r.get("waiting_for")?;
    Ok(SessionRow {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        session_id: column::id(r, "id")?,
        name: r.get("name")?,
        identity: r.get("identity")?,
        surface: r.get("surface")?,
        machine_id: r.get("machine_id")?,
        process_pid: r.get("process_pid")?,
        state: match released_at {
            Some(_) => SessionState::Released,
            None => SessionState::Stale,
        },
        connected: false,
        started_at: column::moment(r, "created_at")?,
        last_seen_at: column::moment(r, "last_seen_at")?,
        last_verb_at: column::opt_moment(r, "last_verb_at")?,
        release_reason: r.get("release_reason")?,
        waits_for: waits
            .filter(|_| released_at.is_none())
            .and_then(|name| Waiting::from_name(&name)),
        waits_since: column::opt_moment(r, "waiting_since")?.filter(|_| released_at.is_none()),
        released_at,
    })
}

fn probe(r: &Row<'_>) -> sql::Result<(Probe, ProbeRow)> {
    let envelope: String = r.get("envelope")?;
    let probe: Probe = serde_json::from_str(&envelope).map_err(|e| sql::Error::column("", e))?;
    let row = ProbeRow {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        loopback_id: probe.loopback_id,
        signal_id: probe.signal_id,
        session_id: probe.requested_by_session,
        identity: r.get("identity")?,
        surface: probe.surface.clone(),
        machine_id: probe.machine_id.clone(),
        outcome: probe.outcome,
        started_at: probe.started_at,
        finished_at: column::moment(r, "finished_at")?,
        layers: probe.layers.clone(),
        missing_layers: probe.missing_layers.clone(),
    };
    Ok((probe, row))
}
