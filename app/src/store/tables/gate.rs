//! The gate's rows: what was done, which windows are open, what was noticed.
//!
//! Judging happens on the writer, so that it sees everything that was handed over before it, in
//! order: nothing here is decided from memory.

use super::memory::list;
use super::writer::in_savepoint;
use super::{Alone, Result, StoreError, Tables, column, failed};
use crate::clock;
use crate::store::gate::{Actor, Assigned};
use crate::store::sql::{self, Connection, OptionalExtension, params};
use crate::store::{Ack, TraceRow};
use prism_core::api::gate::{GateEventView, GateReport, GateTally};
use prism_core::gate::{
    Assignment, AssignmentSource, BEFORE_US, GateOutcome, GateWarning, LABELS_MIN,
    PRECISION_TARGET, RecallFact, TaskClass, Trigger, Window, classify, judge, warning,
};
use prism_core::id::Quoted;
use prism_core::limits::{CLOCK_AHEAD_US, GATE_RECALLS_MAX, GATE_WINDOW_US};
use prism_core::signal::SignalType;
use prism_core::{Code, Moment, Problem};
use uuid::Uuid;

impl Tables {
    pub async fn meet_assignment(&self, assigned: Assigned) -> Result<Option<GateOutcome>> {
        self.write(move |c| meet(c, &assigned)).await
    }

    pub async fn produced_before_gate(&self, actor: Actor, now: Moment) -> Result<()> {
        // Whoever judges is alone with everything: an output need only be alone with its own maker's.
        let alone = Alone::Inboxes(vec![actor.id()]);
        let note = move |c: &Connection| {
            // Whoever writes next would wait for the flush of what nobody waits for.
            c.hurry();
            let (table, id) = keeper(&actor);
            // Another server may have noted a later one. What lies ahead is from before a clock was set back.
            c.prepare_cached(&format!(
                "update {table} set last_output_at = case when last_output_at > ?3 then ?1
                    else max(coalesce(last_output_at, 0), ?1) end where id = ?2"
            ))
            .and_then(|mut s| {
                let ahead = now.plus_us(CLOCK_AHEAD_US).0;
                s.execute(params![now.0, id.to_string(), ahead])
            })
            .map_err(failed)?;
            let warned = (GateOutcome::Warned, Trigger::MaterialOutput);
            // An assignment that came after the output is not met by it, in whatever order they are noted.
            close_windows(c, &actor, warned, &[], now, now)
        };
        self.written(alone, note, |()| ()).await
    }

    pub async fn label_gate_event(
        &self,
        project: Uuid,
        quoted: Quoted,
        right: bool,
        now: Moment,
    ) -> Result<Uuid> {
        self.write(move |c| {
            let id = super::memory::resolve(
                c,
                &project.to_string(),
                "recallgate_events",
                "event_id",
                &quoted,
            )?;
            let outcome: String = c
                .query_row(
                    "select outcome from recallgate_events where id = ?",
                    [id.to_string()],
                    |r| r.get(0),
                )
                .map_err(failed)?;
            if outcome != GateOutcome::Warned.name() {
                return Err(Problem::new(
                    Code::InvalidRequest,
                    "only a warning can be right or wrong",
                    "`prism gate events` lists warnings",
                )
                .into());
            }
            c.execute(
                "update recallgate_events set label = ?, labelled_at = ? where id = ?",
                params![right, now.0, id.to_string()],
            )
            .map_err(failed)?;
            Ok(id)
        })
        .await
    }

    pub async fn gate_events(
        &self,
        project: Uuid,
        unlabelled: bool,
        n: usize,
    ) -> Result<Vec<GateEventView>> {
        self.read_memory(move |c| {
            let only = if unlabelled { "and outcome = 'warned' and label is null" } else { "" };
            list(
                c,
                &format!("select * from recallgate_events where project_id = ? {only} order by occurred_at desc limit ?"),
                params![project.to_string(), n as i64],
                |r| {
                    Ok(GateEventView {
                        id: column::id(r, "id")?,
                        assignment_id: r.get("assignment_id")?,
                        task_class: r.get("task_class")?,
                        outcome: r.get("outcome")?,
                        trigger: r.get("trigger")?,
                        persona: r.get("actor_persona")?,
                        surface: r.get("actor_surface")?,
                        recall_count: r.get::<_, i64>("recall_count")? as u64,
                        occurred_at: column::moment(r, "occurred_at")?,
                        right: r.get("label")?,
                    })
                },
            )
        })
        .await
    }

    pub async fn gate_report(&self, project: Uuid) -> Result<GateReport> {
        self.read_memory(move |c| {
            let p = project.to_string();
            let tally = |by: &str| {
                list(
                    c,
                    &format!(
                        "select {by}, count(case when outcome = 'warned' then 1 end), count(case when outcome = 'satisfied' then 1 end)
                         from recallgate_events where project_id = ? group by 1 order by 1"
                    ),
                    params![p],
                    |r| Ok(GateTally { name: r.get(0)?, warned: r.get::<_, i64>(1)? as u64, satisfied: r.get::<_, i64>(2)? as u64 }),
                )
            };
            let by_class = tally("task_class")?;
            let (labelled, labelled_right): (i64, i64) = c
                .query_row("select count(label), coalesce(sum(label), 0) from recallgate_events where project_id = ?", [&p], |r| Ok((r.get(0)?, r.get(1)?)))
                .map_err(failed)?;
            let (precision, verdict) =
                prism_core::gate::precision(labelled as u64, labelled_right as u64);
            Ok(GateReport {
                warned: by_class.iter().map(|t| t.warned).sum(),
                satisfied: by_class.iter().map(|t| t.satisfied).sum(),
                labelled: labelled as u64,
                labelled_right: labelled_right as u64,
                precision,
                precision_target: PRECISION_TARGET,
                labels_needed: LABELS_MIN,
                verdict: verdict.into(),
                by_identity: tally("actor_persona")?,
                by_class,
                by_day: tally("date(occurred_at / 1000000, 'unixepoch')")?,
            })
        })
        .await
    }
}

/// The row that says what an actor last produced.
fn keeper(actor: &Actor) -> (&'static str, Uuid) {
    match actor.session_id {
        Some(session) => ("sessions", session),
        None => ("personas", actor.persona_id),
    }
}

fn last_output(c: &Connection, actor: &Actor) -> sql::Result<Option<Moment>> {
    let (table, id) = keeper(actor);
    c.prepare_cached(&format!("select last_output_at from {table} where id = ?"))
        .and_then(|mut s| {
            s.query_row([id.to_string()], |r| r.get::<_, Option<i64>>(0))
                .optional()
        })
        .map(|at| at.flatten().map(Moment))
}

/// The actor's recalls since a moment, oldest first.
fn recalls(c: &Connection, actor: &Actor, since: Moment) -> Result<Vec<RecallFact>> {
    let fact = |r: &sql::Row<'_>| {
        Ok(RecallFact {
            id: column::id(r, "id")?,
            at: column::moment(r, "occurred_at")?,
            output_before: column::opt_moment(r, "output_before")?,
        })
    };
    let limit = GATE_RECALLS_MAX as i64;
    match actor.session_id {
        Some(session) => list(
            c,
            "select id, occurred_at, output_before from memory_recall_events
             where session_id = ? and occurred_at >= ? order by occurred_at limit ?",
            params![session.to_string(), since.0, limit],
            fact,
        ),
        None => list(
            c,
            "select id, occurred_at, output_before from memory_recall_events
             where session_id is null and identity = ? and project_id = ? and occurred_at >= ?
             order by occurred_at limit ?",
            params![actor.persona, actor.project_id.to_string(), since.0, limit],
            fact,
        ),
    }
}

/// A recall closes every open window of whoever made it, well, and keeps what they had produced
/// before it.
pub(super) fn recalled(c: &Connection, actor: &Actor, id: Uuid, now: Moment) -> Result<()> {
    let before = last_output(c, actor).map_err(failed)?;
    c.prepare_cached("update memory_recall_events set output_before = ? where id = ?")
        .and_then(|mut s| s.execute(params![before.map(|at| at.0), id.to_string()]))
        .map_err(failed)?;
    let satisfied = (GateOutcome::Satisfied, Trigger::Recall);
    close_windows(c, actor, satisfied, &[id], now, Moment(i64::MAX))
}

/// The gate's advice on an acknowledgment. An acknowledgment never fails for its sake: what went wrong in judging is
/// taken back by itself, and only what is worth another try tries all of it again.
pub(super) fn acknowledged(
    c: &Connection,
    ack: &Ack,
    row: &TraceRow,
) -> Result<Option<GateWarning>> {
    let Some(actor) = ack.gate.as_ref() else {
        return Ok(None);
    };
    if row.envelope.known_type() != Some(SignalType::TaskAssigned) {
        return Ok(None);
    }
    let assignment = Assignment::of_payload(&row.envelope.payload);
    let class = classify(&assignment).class;
    if class == TaskClass::Unmatched {
        return Ok(None);
    }
    let assignment_id = match AssignmentSource::Signal(row.envelope.signal_id).id() {
        Ok(id) => id,
        Err(unknown) => return Ok(Some(*unknown)),
    };
    let assigned = Assigned {
        actor: actor.clone(),
        assignment_id,
        class,
        arrived: row.facts.drained.unwrap_or(ack.now),
        trigger: Trigger::Ack,
        now: ack.now,
    };
    match in_savepoint(c, |c| meet(c, &assigned)) {
        Ok(Some(GateOutcome::Warned)) => {
            let advice = warning(class, &assigned.assignment_id, &assignment);
            Ok(Some(advice))
        }
        Ok(_) => Ok(None),
        Err(error @ (StoreError::Again(_) | StoreError::Changed(_))) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "The gate could not judge an assignment");
            Ok(None)
        }
    }
}

/// Judges an assignment from what its actor did; none when this surface was noted before.
fn meet(c: &Connection, assigned: &Assigned) -> Result<Option<GateOutcome>> {
    let actor = &assigned.actor;
    let since = assigned.arrived.plus_us(-BEFORE_US);
    let window = judge(
        assigned.arrived,
        &recalls(c, actor, since)?,
        last_output(c, actor).map_err(failed)?,
    );
    let (outcome, references) = match &window {
        Window::Satisfied(recalls) => (GateOutcome::Satisfied, recalls.as_slice()),
        Window::Open | Window::Missed => (GateOutcome::Warned, [].as_slice()),
    };
    if !insert_event(c, assigned, outcome, references)? {
        return Ok(None);
    }
    if window == Window::Open {
        open_window(c, assigned)?;
    }
    Ok(Some(outcome))
}

fn open_window(c: &Connection, assigned: &Assigned) -> Result<()> {
    let actor = &assigned.actor;
    // A session takes its windows with it; whoever has none leaves them to time.
    if actor.session_id.is_none() {
        c.prepare_cached("delete from recallgate_windows where session_id = ? and arrived_at < ?")
            .and_then(|mut s| {
                let before = assigned.now.plus_us(-GATE_WINDOW_US);
                s.execute(params![actor.id().to_string(), before.0])
            })
            .map_err(failed)?;
    }
    c.prepare_cached(
        "insert into recallgate_windows
            (project_id, assignment_id, session_id, task_class, arrived_at) values (?, ?, ?, ?, ?) on conflict do nothing",
    )
    .and_then(|mut s| {
        s.execute(params![
            actor.project_id.to_string(),
            assigned.assignment_id,
            actor.id().to_string(),
            assigned.class.name(),
            assigned.arrived.0
        ])
    })
    .map_err(failed)?;
    Ok(())
}

/// Closes the windows of the actor in its project that were open by then, and notes how.
fn close_windows(
    c: &Connection,
    actor: &Actor,
    (outcome, trigger): (GateOutcome, Trigger),
    references: &[Uuid],
    now: Moment,
    open_by: Moment,
) -> Result<()> {
    let windows = c
        .prepare_cached(
            "delete from recallgate_windows where session_id = ? and project_id = ? and arrived_at <= ?
             returning assignment_id, task_class, arrived_at",
        )
        .map_err(failed)?
        .query_map(
            params![
                actor.id().to_string(),
                actor.project_id.to_string(),
                open_by.0
            ],
            |r| {
                let class: String = r.get("task_class")?;
                Ok(Assigned {
                    actor: actor.clone(),
                    assignment_id: r.get("assignment_id")?,
                    class: TaskClass::from_name(&class).unwrap_or(TaskClass::Tier2),
                    arrived: column::moment(r, "arrived_at")?,
                    trigger,
                    now,
                })
            },
        )
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    for window in &windows {
        insert_event(c, window, outcome, references)?;
    }
    Ok(())
}

/// Writes an event with its references; false when there was one for this assignment and trigger.
fn insert_event(
    c: &Connection,
    assigned: &Assigned,
    outcome: GateOutcome,
    references: &[Uuid],
) -> Result<bool> {
    let actor = &assigned.actor;
    let (id, project) = (clock::new_id(), actor.project_id.to_string());
    let written = c
        .prepare_cached(
            "insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class,
                gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface,
                recall_count, occurred_at, is_first)
             select ?1, tenant_id, id, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1
             from projects where id = ?12
             on conflict (project_id, assignment_id, trigger) where is_first = 1 do nothing",
        )
        .and_then(|mut s| {
            s.execute(params![
                id.to_string(),
                assigned.assignment_id,
                assigned.class.name(),
                actor.mode.name(),
                outcome.name(),
                assigned.trigger.name(),
                actor.session_id.map(|s| s.to_string()),
                actor.persona,
                actor.surface,
                references.len() as i64,
                assigned.now.0,
                project
            ])
        })
        .map_err(failed)?;
    if written == 0 {
        return Ok(false);
    }
    for recall in references {
        c.prepare_cached(
            "insert into edges (src, kind, dst, project_id, created_at)
             values (?, 'REFERENCES_RECALL', ?, ?, ?) on conflict do nothing",
        )
        .and_then(|mut s| {
            s.execute(params![
                format!("gate:{id}"),
                format!("recall:{recall}"),
                project,
                assigned.now.0
            ])
        })
        .map_err(failed)?;
    }
    Ok(true)
}
