//! The rows that metrics are counted from, each bounded, the newest first where there are more.

use super::super::{Result, Tables, column, failed, memory::list, recall_events::brought};
use crate::store::sql::{Connection, OptionalExtension, params};
use prism_core::Moment;
use prism_core::api::page::metrics::{Example, LookedBack, Metric};
use prism_core::page::metrics::{
    Arrivals, AttemptFact, COMPARED_MAX, DeliveryFacts, Facts, GateFact, InputFact, InputTally,
    REPEAT_WEEKS, RecallFact, VerdictFact,
};
use prism_core::receipt::State;
use prism_core::text::{clip, one_line};
use std::collections::{BTreeMap, HashMap};
use uuid::Uuid;

/// Rows of one kind and project that one answer is counted from.
const FACTS_MAX: i64 = 50_000;
/// Signals whose deliveries say how quick a place is.
const DELIVERIES_MAX: i64 = 20_000;
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
                    params![p, since.0, until.0, FACTS_MAX + 1],
                    |r| Ok((r.get(0)?, r.get(1)?)),
                )?;
                let (runs, end) = newest(runs, |(at, _)| Moment(*at));
                facts.probes_from = facts.probes_from.max(end);
                facts.runs.extend(runs.into_iter().filter_map(|(at, envelope)| {
                    Some((Moment(at), serde_json::from_str(&envelope).ok()?))
                }));
                facts.arrivals.extend(arrivals(c, &p, since, until)?);
                let end = end_of(c, SIGNALS_END, &p, since, until, DELIVERIES_MAX)?;
                facts.signals_from = facts.signals_from.max(end);
            }
            Ok(facts)
        })
        .await
    }
}

/// The rows that count, of which one more than that was asked for; where they end if there are more.
fn newest<T>(mut rows: Vec<T>, at: impl Fn(&T) -> Moment) -> (Vec<T>, Option<Moment>) {
    let more = rows.len() > FACTS_MAX as usize;
    rows.truncate(FACTS_MAX as usize);
    let end = rows.last().filter(|_| more).map(at);
    (rows, end)
}

/// When the last of so many of the newest was, and the one after it.
pub(in super::super) const SIGNALS_END: &str = "select created_at from signal_queue
    where project_id = ? and created_at >= ? and created_at < ?
    order by created_at desc limit 2 offset ?";
pub(in super::super) const INPUTS_END: &str = "select captured_at from operator_inputs
    where project_id = ? and captured_at >= ? and captured_at < ?
    order by captured_at desc limit 2 offset ?";

/// Where so many rows end, if there are more.
fn end_of(
    c: &Connection,
    sql: &str,
    project: &str,
    since: Moment,
    until: Moment,
    rows: i64,
) -> Result<Option<Moment>> {
    let at = list(c, sql, params![project, since.0, until.0, rows - 1], |r| {
        r.get::<_, i64>(0)
    })?;
    Ok((at.len() > 1).then(|| Moment(at[0])))
}

/// What became of the newest signals of a range, session by session.
pub(in super::super) const DELIVERIES: &str =
    "select q.created_at, d.session_id, d.pushed_at, d.received_at, d.rung_at, d.rendered_at, d.drained_at
     from (select id, created_at, signal_type from signal_queue where project_id = ?
             and created_at >= ? and created_at < ? order by created_at desc limit ?) q
     join deliveries d on d.signal_id = q.id
     where q.signal_type <> 'Loopback'";
const STATES: [(State, &str); 5] = [
    (State::Pushed, "pushed_at"),
    (State::Received, "received_at"),
    (State::Rung, "rung_at"),
    (State::Rendered, "rendered_at"),
    (State::Drained, "drained_at"),
];

/// How quick each place was. Where a session stands is looked up once, however many signals it got.
fn arrivals(c: &Connection, project: &str, since: Moment, until: Moment) -> Result<Vec<Arrivals>> {
    let rows: Vec<(String, Vec<(State, i64)>)> = list(
        c,
        DELIVERIES,
        params![project, since.0, until.0, DELIVERIES_MAX],
        |r| {
            let sent: i64 = r.get("created_at")?;
            let mut after_us = Vec::new();
            for (state, name) in STATES {
                let at: Option<i64> = r.get(name)?;
                after_us.extend(at.map(|at| (state, (at - sent).max(0))));
            }
            Ok((r.get("session_id")?, after_us))
        },
    )?;
    let mut places: Vec<Arrivals> = Vec::new();
    let mut place_of: HashMap<String, Option<usize>> = HashMap::new();
    for (session, after_us) in rows {
        let place = match place_of.get(&session) {
            Some(place) => *place,
            None => {
                let place = place_of_session(c, &session, &mut places)?;
                place_of.insert(session, place);
                place
            }
        };
        let Some(place) = place else { continue };
        for (state, us) in after_us {
            places[place].after_us.entry(state).or_default().push(us);
        }
    }
    Ok(places)
}

/// Which of the places a session stands at; one that is new is added.
fn place_of_session(
    c: &Connection,
    session: &str,
    places: &mut Vec<Arrivals>,
) -> Result<Option<usize>> {
    let found = c
        .prepare_cached("select surface, machine_id from sessions where id = ?")
        .and_then(|mut s| {
            s.query_row([session], |r| {
                Ok((r.get::<_, String>(0)?, r.get::<_, String>(1)?))
            })
            .optional()
        })
        .map_err(failed)?;
    let Some((surface, machine_id)) = found else {
        return Ok(None);
    };
    let known = places
        .iter()
        .position(|p| p.surface == surface && p.machine_id == machine_id);
    Ok(Some(known.unwrap_or_else(|| {
        places.push(Arrivals {
            surface,
            machine_id,
            after_us: BTreeMap::new(),
        });
        places.len() - 1
    })))
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

    /// Says of a metric where the rows end that count, if there are more.
    fn cut(&self, facts: &mut Facts, metric: Metric, end: Option<Moment>) {
        let rows = FACTS_MAX as u64;
        let cut = end.map(|to| LookedBack { metric, to, rows });
        facts.cut.extend(cut);
    }

    fn verdicts(&self, facts: &mut Facts) -> Result<()> {
        let verdicts = list(
            self.c,
            "select confirmed_at, verdict, confirmed_via from operator_confirmations
             where project_id = ? and confirmed_at >= ? and confirmed_at < ?
             order by confirmed_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX + 1],
            |r| {
                Ok(VerdictFact {
                    at: column::moment(r, "confirmed_at")?,
                    verdict: r.get("verdict")?,
                    via: r.get("confirmed_via")?,
                })
            },
        )?;
        let (verdicts, end) = newest(verdicts, |v| v.at);
        self.cut(facts, Metric::Confirmations, end);
        facts.verdicts.extend(verdicts);
        Ok(())
    }

    fn inputs(&self, facts: &mut Facts) -> Result<()> {
        let tallies: Vec<InputTally> = list(
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
        )?;
        if tallies.iter().map(|t| t.n).sum::<u64>() >= FACTS_MAX as u64 {
            let (since, until) = (self.since, self.until);
            let end = end_of(self.c, INPUTS_END, &self.project, since, until, FACTS_MAX)?;
            for metric in [Metric::Misclassification, Metric::Surfaces] {
                self.cut(facts, metric, end);
            }
        }
        facts.inputs.extend(tallies);
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
        let recalls = list(
            self.c,
            "select e.occurred_at, e.identity, e.latency_us, exists
                 (select 1 from memory_citations c where c.recall_event_id = e.id) as cited
             from memory_recall_events e where e.project_id = ? and e.occurred_at >= ?
                 and e.occurred_at < ? order by e.occurred_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX + 1],
            |r| {
                Ok(RecallFact {
                    at: column::moment(r, "occurred_at")?,
                    identity: r.get("identity")?,
                    latency_us: r.get("latency_us")?,
                    cited: r.get("cited")?,
                })
            },
        )?;
        let (recalls, end) = newest(recalls, |r| r.at);
        self.cut(facts, Metric::Recall, end);
        facts.recalls.extend(recalls);
        Ok(())
    }

    fn gate(&self, facts: &mut Facts) -> Result<()> {
        let events = list(
            self.c,
            "select occurred_at, outcome = 'warned' as warned from recallgate_events
             where project_id = ? and occurred_at >= ? and occurred_at < ?
             order by occurred_at desc limit ?",
            params![self.project, self.since.0, self.until.0, FACTS_MAX + 1],
            |r| {
                Ok(GateFact {
                    at: column::moment(r, "occurred_at")?,
                    warned: r.get("warned")?,
                })
            },
        )?;
        let (events, end) = newest(events, |e| e.at);
        self.cut(facts, Metric::Gate, end);
        facts.gate.extend(events);
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
    let brought = brought(c, project)?;
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
        .filter(|row| !brought.contains_key(&row.id.to_string()));
    facts.never_recalled.extend(never.take(room));
    Ok(())
}
