//! What a session is shown of the past: at its start, and when it takes over from another.

use super::memory::{artifact, delta, input, list};
use super::{Result, Tables, failed};
use crate::store::memory::{Author, Opening, PickupFrom};
use crate::store::sql::{Connection, OptionalExtension, params};
use prism_core::Moment;
use prism_core::api::memory::{ArtifactView, DeltaView, InputView};
use prism_core::memory::Kind;
use uuid::Uuid;

/// What a start shows of each at the most.
const RECENT_DELTAS: i64 = 5;
const OPEN_TODOS: i64 = 20;
const OPEN_POSTMORTEMS: i64 = 10;
const ANTI_EXAMPLES: i64 = 5;

/// Kinds that say that something began, not what was done.
pub(super) const BOOKKEEPING: &str = "('start', 'pickup', 'bootstrap_only')";
/// Statuses of what nobody needs to look at any more.
pub(super) const CLOSED: &str = "('done', 'dropped', 'resolved')";

/// What the operator typed themselves needs no review.
const OF_THE_OPERATOR: &str = "captured_via in (select identity from personas
    where project_id = ?1 and is_operator = 1)";

/// The newest corrections that are the operator's or were accepted.
pub(super) fn corrections() -> String {
    format!(
        "select * from operator_inputs indexed by ix_operator_inputs_corrections
         where project_id = ?1 and class = 'correction' and (operator_review = 'accepted'
             or operator_review is null and {OF_THE_OPERATOR})
         order by captured_at desc limit ?2"
    )
}

/// How many corrections wait for the operator's word.
pub(super) fn to_review() -> String {
    format!(
        "select count(*) from operator_inputs indexed by ix_operator_inputs_to_review
         where project_id = ?1 and class = 'correction' and operator_review is null
         and not ({OF_THE_OPERATOR})"
    )
}

impl Tables {
    pub async fn opening(&self, by: Author, live: Vec<Uuid>) -> Result<Opening> {
        self.read_memory(move |c| opening(c, &by, &live)).await
    }

    pub async fn corrections(&self, project: Uuid, n: usize) -> Result<(Vec<InputView>, u64)> {
        self.read_memory(move |c| {
            let project = project.to_string();
            let corrections = list(c, &corrections(), params![project, n as i64], input)?;
            let unreviewed: i64 = c
                .prepare_cached(&to_review())
                .and_then(|mut s| s.query_row([&project], |r| r.get(0)))
                .map_err(failed)?;
            Ok((corrections, unreviewed as u64))
        })
        .await
    }

    pub async fn baton(
        &self,
        project: Uuid,
        from: PickupFrom,
        n: usize,
    ) -> Result<(Option<DeltaView>, Vec<DeltaView>)> {
        self.read_memory(move |c| {
            let wraps = handed_over(c, project, &from, "delta_kind = 'wrap'", 1)?;
            let worked = format!("delta_kind not in {BOOKKEEPING}");
            Ok((
                wraps.into_iter().next(),
                handed_over(c, project, &from, &worked, n)?,
            ))
        })
        .await
    }
}

/// The newest deltas of an identity or a session. Each asks its own index, so that a wrap is found
/// however much was written since.
fn handed_over(
    c: &Connection,
    project: Uuid,
    from: &PickupFrom,
    kinds: &str,
    n: usize,
) -> Result<Vec<DeltaView>> {
    let whose = match (&from.identity, from.session) {
        (_, Some(_)) => {
            "session_id = ?2 and (cast(?3 as text) is null or lower(identity) = lower(?3))"
        }
        (_, None) => "identity = ?3 and cast(?2 as text) is null",
    };
    list(
        c,
        &format!(
            "select * from session_deltas where project_id = ?1 and {whose} and {kinds}
             order by created_at desc limit ?4"
        ),
        params![
            project.to_string(),
            from.session.map(|s| s.to_string()),
            from.identity.as_ref().map(|i| i.as_str()),
            n as i64
        ],
        delta,
    )
}

fn opening(c: &Connection, by: &Author, live: &[Uuid]) -> Result<Opening> {
    let project = by.project_id.to_string();
    let recent_deltas = list(
        c,
        "select * from session_deltas where project_id = ? and delta_kind <> 'start'
         order by created_at desc limit ?",
        params![project, RECENT_DELTAS],
        delta,
    )?;
    let open = |kind: Kind, n: i64| -> Result<Vec<ArtifactView>> {
        list(
            c,
            &format!(
                "select * from artifacts where project_id = ? and kind = ?
                 and status not in {CLOSED} order by created_at desc limit ?"
            ),
            params![project, kind.name(), n],
            artifact,
        )
    };
    let anti_examples = list(
        c,
        "select * from operator_inputs where project_id = ? and lower(captured_via) = lower(?)
         and operator_review = 'rejected' order by reviewed_at desc limit ?",
        params![project, by.identity.as_str(), ANTI_EXAMPLES],
        input,
    )?;
    Ok(Opening {
        recent_deltas,
        open_todos: open(Kind::Todo, OPEN_TODOS)?,
        open_postmortems: open(Kind::Postmortem, OPEN_POSTMORTEMS)?,
        anti_examples,
        unwrapped: unwrapped(c, by, live)?,
    })
}

/// The identity's newest session that did something and is over, unless it was wrapped. Sessions
/// that are still here, and those that did nothing, are passed over.
fn unwrapped(c: &Connection, by: &Author, live: &[Uuid]) -> Result<Option<(Uuid, Moment, u64)>> {
    let here: Vec<String> = live
        .iter()
        .chain(by.session_id.as_ref())
        .map(Uuid::to_string)
        .collect();
    let newest: Option<(String, i64)> = c
        .prepare_cached(&format!(
            "select session_id, created_at from session_deltas
             where project_id = ?1 and identity = ?2 and session_id is not null
             and delta_kind not in {BOOKKEEPING}
             and session_id not in (select value from json_each(?3))
             order by created_at desc limit 1"
        ))
        .and_then(|mut s| {
            s.query_row(
                params![
                    by.project_id.to_string(),
                    by.identity.as_str(),
                    serde_json::to_string(&here).unwrap_or_default()
                ],
                |r| Ok((r.get(0)?, r.get(1)?)),
            )
            .optional()
        })
        .map_err(failed)?;
    let Some((session, at)) = newest else {
        return Ok(None);
    };
    let (deltas, wraps): (i64, i64) = c
        .prepare_cached(&format!(
            "select count(*), coalesce(sum(delta_kind = 'wrap'), 0) from session_deltas
             where session_id = ? and delta_kind not in {BOOKKEEPING}"
        ))
        .and_then(|mut s| s.query_row([&session], |r| Ok((r.get(0)?, r.get(1)?))))
        .map_err(failed)?;
    Ok(session
        .parse()
        .ok()
        .filter(|_| wraps == 0)
        .map(|session| (session, Moment(at), deltas as u64)))
}
