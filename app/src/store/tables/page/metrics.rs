//! The rows that metrics are counted from, each bounded, the newest first where there are more.

use super::super::{Result, Tables, column, failed, memory::list};
use crate::store::sql::{Connection, OptionalExtension, params};
use prism_core::Moment;
use prism_core::api::page::metrics::{Example, Metric};
use prism_core::page::metrics::{
    AttemptFact, COMPARED_MAX, DeliveryFact, DeliveryFacts, Facts, GateFact, InputFact, InputTally,
    REPEAT_WEEKS, RecallFact, VerdictFact,
};
use prism_core::receipt::State;
use prism_core::text::{clip, one_line};
use std::collections::BTreeSet;
use uuid::Uuid;

/// Rows of one kind and project that one answer is counted from.
const FACTS_MAX: i64 = 50_000;
/// Signals whose deliveries say how quick a place is.
const DELIVERIES_MAX: i64 = 20_000;
/// Recall events that say whether a row was ever brought.
const RECALLS_LOOKED_AT: i64 = 5_000;
/// Rows that were never brought and are shown.
const NEVER_SHOWN: usize = 10;

impl Tables {
    pub async fn metric_facts(
        &self,
        projects: Vec<Uuid>,
        wanted: Vec<Metric>,
        since: Moment,
        until: Moment,
    ) -> Result<Facts> {
        self.read_report(move |c| {
            let mut facts = Facts::default();
            for project in projects {
                let within = Within {
                    c,
                    project: project.to_string(),
                    since,
                    until,
                };
                within.add(&mut facts, &wanted)?;
            }
            Ok(facts)
        })
        .await
    }

    pub async fn delivery_facts(
        &self,
        projects: Vec<Uuid>,
        since: Moment,
        until: Moment,
    ) -> Result<DeliveryFacts> {
        self.read_report(move |c| {
            let mut facts = DeliveryFacts::default();
            for project in projects {
                let p = project.to_string();
                let runs: Vec<(i64, String)> = list(
                    c,
                    "select finished_at, envelope from loopback_runs where project_id = ?
                         and finished_at >= ? and finished_at < ? order by finished_at desc limit ?",
                    params![p, since.0, until.0, FACTS_MAX],
                    |r| Ok((r.get(0)?, r.get(1)?)),
                )?;
                facts.runs.extend(runs.into_iter().filter_map(|(at, envelope)| {
                    Some((Moment(at), serde_json::from_str(&envelope).ok()?))
                }));
                facts.deliveries.extend(deliveries(c, &p, since, until)?);
            }
            Ok(facts)
        })
        .await
    }
}

fn deliveries(
    c: &Connection,
    project: &str,
    since: Moment,
    until: Moment,
) -> Result<Vec<DeliveryFact>> {
    let rows: Vec<Vec<DeliveryFact>> = list(
        c,
        "select q.created_at, d.pushed_at, d.received_at, d.rung_at, d.rendered_at, d.drained_at,
             s.surface, s.machine_id
         from (select id, created_at, signal_type from signal_queue where project_id = ?
                 and created_at >= ? and created_at < ? order by created_at desc limit ?) q
         join deliveries d on d.signal_id = q.id join sessions s on s.id = d.session_id
         where q.signal_type <> 'Loopback'",
        params![project, since.0, until.0, DELIVERIES_MAX],
        |r| {
            let sent: i64 = r.get("created_at")?;
            let (surface, machine_id): (String, String) = (r.get("surface")?, r.get("machine_id")?);
            let mut facts = Vec::new();
            for (state, name) in [
                (State::Pushed, "pushed_at"),
                (State::Received, "received_at"),
                (State::Rung, "rung_at"),
                (State::Rendered, "rendered_at"),
                (State::Drained, "drained_at"),
            ] {
                let at: Option<i64> = r.get(name)?;
                facts.extend(at.map(|at| DeliveryFact {
                    surface: surface.clone(),
                    machine_id: machine_id.clone(),
                    state,
                    after_us: (at - sent).max(0),
                }));
            }
            Ok(facts)
        },
    )?;
    Ok(rows.into_iter().flatten().collect())
}

/// The inputs of a range, counted by everything that a metric looks at.
pub(in super::super) const TALLIES: &str =
    "select class, captured_via, surface, confidence, operator_review, count(*) as n from
         (select class, captured_via, surface, confidence, operator_review from operator_inputs
          where project_id = ? and captured_at >= ? and captured_at < ?
          order by captured_at desc limit ?) t
     group by 1, 2, 3, 4, 5";
/// Corrections that count, of the range and before it: no more than are compared.
pub(in super::super) const CORRECTIONS: &str =
    "select id, captured_at, class, prompt_text, triggered_action, captured_via, surface, confidence,
         operator_review
     from operator_inputs where project_id = ? and captured_at >= ? and captured_at < ?
         and class = 'correction' and (operator_review = 'accepted'
             or (operator_review is null and confidence = 'high'))
     order by captured_at desc limit ?";

/// Deltas that ruled something out, of the range and before it.
pub(in super::super) const RULED_OUT: &str =
    "select id, created_at, identity, tried_and_ruled_out from session_deltas
     where tried_and_ruled_out <> '[]' and project_id = ? and created_at >= ? and created_at < ?
     order by created_at desc limit ?";
/// What the operator said of warnings, of all time.
pub(in super::super) const LABELS: &str =
    "select count(*), coalesce(sum(label), 0) from recallgate_events
     where project_id = ? and label is not null";

/// One project in a range of time.
struct Within<'a> {
    c: &'a Connection,
    project: String,
    since: Moment,
    until: Moment,
}

impl Within<'_> {
    /// Reads what these metrics are counted from, and nothing else.
    fn add(&self, facts: &mut Facts, wanted: &[Metric]) -> Result<()> {
        let any = |of: &[Metric]| of.iter().any(|m| wanted.contains(m));
        let pid: Option<String> = self
            .c
            .query_row(
                "select pid from projects where id = ?",
                [&self.project],
                |r| r.get(0),
            )
            .optional()
            .map_err(failed)?;
        // It went away meanwhile.
        let Some(pid) = pid else { return Ok(()) };
        if any(&[Metric::Confirmations]) {
            self.verdicts(facts)?;
        }
        if any(&[Metric::Misclassification, Metric::Surfaces]) {
            self.inputs(facts)?;
        }
        if any(&[Metric::Corrections, Metric::Repeats]) {
            self.corrections(facts, &pid)?;
        }
        if any(&[Metric::DeadEnds]) {
            self.attempts(facts, &pid)?;
        }
        if any(&[Metric::Recall]) {
            self.recalls(facts)?;
            never_recalled(self.c, facts, &self.project, &pid)?;
        }
        if any(&[Metric::Gate]) {
            self.gate(facts)?;
        }
        Ok(())
    }

    fn verdicts(&self, facts: &mut Facts) -> Result<()> {
        facts.verdicts.extend(list(
            self.c,
            "select confirmed_at, verdict, confirmed_via from operator_confirmations
             where project_id = ? and confirmed_at >= ? and confirmed_at < ?
             order by confirmed_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX],
            |r| {
                Ok(VerdictFact {
                    at: column::moment(r, "confirmed_at")?,
                    verdict: r.get("verdict")?,
                    via: r.get("confirmed_via")?,
                })
            },
        )?);
        Ok(())
    }

    fn inputs(&self, facts: &mut Facts) -> Result<()> {
        facts.inputs.extend(list(
            self.c,
            TALLIES,
            params![self.project, self.since.0, self.until.0, FACTS_MAX],
            |r| {
                Ok(InputTally {
                    class: r.get("class")?,
                    via: r.get("captured_via")?,
                    surface: r.get("surface")?,
                    confidence: r.get("confidence")?,
                    review: r.get("operator_review")?,
                    n: r.get::<_, i64>("n")? as u64,
                })
            },
        )?);
        Ok(())
    }

    /// What is said again may have been said long before the range.
    fn also_before(&self) -> i64 {
        self.since.plus_s(-REPEAT_WEEKS * 7 * 86_400).0
    }

    fn corrections(&self, facts: &mut Facts, pid: &str) -> Result<()> {
        facts.corrections.extend(list(
            self.c,
            CORRECTIONS,
            params![
                self.project,
                self.also_before(),
                self.until.0,
                // One more says that there are more.
                COMPARED_MAX as i64 + 1
            ],
            |r| {
                Ok(InputFact {
                    pid: pid.to_owned(),
                    id: column::id(r, "id")?,
                    at: column::moment(r, "captured_at")?,
                    class: r.get("class")?,
                    text: r.get("prompt_text")?,
                    action: r.get("triggered_action")?,
                    via: r.get("captured_via")?,
                    surface: r.get("surface")?,
                    confidence: r.get("confidence")?,
                    review: r.get("operator_review")?,
                })
            },
        )?);
        Ok(())
    }

    fn attempts(&self, facts: &mut Facts, pid: &str) -> Result<()> {
        let tried: Vec<(Uuid, Moment, String, String)> = list(
            self.c,
            RULED_OUT,
            params![self.project, self.also_before(), self.until.0, FACTS_MAX],
            |r| {
                Ok((
                    column::id(r, "id")?,
                    column::moment(r, "created_at")?,
                    r.get("identity")?,
                    r.get("tried_and_ruled_out")?,
                ))
            },
        )?;
        for (delta_id, at, identity, tried) in tried {
            let tried: Vec<serde_json::Value> = serde_json::from_str(&tried).unwrap_or_default();
            facts.attempts.extend(tried.iter().map(|one| AttemptFact {
                pid: pid.to_owned(),
                delta_id,
                at,
                identity: identity.clone(),
                approach: one["approach"].as_str().unwrap_or_default().to_owned(),
            }));
        }
        Ok(())
    }

    fn recalls(&self, facts: &mut Facts) -> Result<()> {
        facts.recalls.extend(list(
            self.c,
            "select e.occurred_at, e.identity, e.latency_us, exists
                 (select 1 from memory_citations c where c.recall_event_id = e.id) as cited
             from memory_recall_events e where e.project_id = ? and e.occurred_at >= ?
                 and e.occurred_at < ? order by e.occurred_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX],
            |r| {
                Ok(RecallFact {
                    at: column::moment(r, "occurred_at")?,
                    identity: r.get("identity")?,
                    latency_us: r.get("latency_us")?,
                    cited: r.get("cited")?,
                })
            },
        )?);
        Ok(())
    }

    fn gate(&self, facts: &mut Facts) -> Result<()> {
        facts.gate.extend(list(
            self.c,
            "select occurred_at, outcome = 'warned' as warned from recallgate_events
             where project_id = ? and occurred_at >= ? and occurred_at < ?
             order by occurred_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX],
            |r| {
                Ok(GateFact {
                    at: column::moment(r, "occurred_at")?,
                    warned: r.get("warned")?,
                })
            },
        )?);
        let (labelled, right): (i64, i64) = self
            .c
            .query_row(LABELS, [&self.project], |r| Ok((r.get(0)?, r.get(1)?)))
            .map_err(failed)?;
        facts.labelled += labelled as u64;
        facts.labelled_right += right as u64;
        Ok(())
    }
}

/// Counts the rows that none of the newest recalls brought.
fn never_recalled(c: &Connection, facts: &mut Facts, project: &str, pid: &str) -> Result<()> {
    let brought: BTreeSet<String> = list(
        c,
        "select distinct json_extract(j.value, '$.id') as id from
             (select results from memory_recall_events where project_id = ?
              order by occurred_at desc limit ?) e, json_each(e.results) j",
        params![project, RECALLS_LOOKED_AT],
        |r| r.get::<_, Option<String>>("id"),
    )?
    .into_iter()
    .flatten()
    .collect();
    let rows: u64 = c
        .query_row(
            "select coalesce((select rows from memory_counts where project_id = ?), 0)",
            [project],
            |r| r.get::<_, i64>(0),
        )
        .map_err(failed)? as u64;
    let known = brought.len() as u64;
    facts.rows += rows;
    facts.rows_never_recalled += rows.saturating_sub(known);
    let oldest = list(
        c,
        "select id, identity, created_at, coalesce(nullif(title, ''), substr(text, 1, 200)) as text
         from memory where project_id = ? and hidden = 0 order by created_at limit ?",
        params![project, (NEVER_SHOWN * 20) as i64],
        |r| {
            Ok(Example {
                pid: pid.to_owned(),
                id: column::id(r, "id")?,
                at: column::moment(r, "created_at")?,
                identity: r.get("identity")?,
                text: clip(&one_line(&r.get::<_, String>("text")?), 120),
            })
        },
    )?;
    let room = NEVER_SHOWN.saturating_sub(facts.never_recalled.len());
    let never = oldest
        .into_iter()
        .filter(|row| !brought.contains(&row.id.to_string()));
    facts.never_recalled.extend(never.take(room));
    Ok(())
}
