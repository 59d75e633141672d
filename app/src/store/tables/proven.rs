//! What was last proven to reach a session: one row each, which outlives signals and sessions.

use super::memory::list;
use super::{Result, Tables, column, failed};
use crate::store::Report;
use crate::store::sql::{self, Connection, Row, params};
use prism_core::api::Reachable;
use prism_core::bell::Strategy;
use prism_core::receipt::State;
use std::cmp::Reverse;
use uuid::Uuid;

/// Only what the recipient's side showed proves anything, and an echo proves nothing that its probe
/// did not. Of two facts of one time the one further on the way counts.
const PROVE: &str = "insert into last_proven
        (persona_id, session_id, state, at, surface, evidence, signal_id)
    select s.persona_id, s.id, ?3, ?4, s.surface, ?5, q.id
    from signal_queue q cross join sessions s on s.id = ?2 and s.persona_id = q.to_persona_id
    where q.id = ?1 and not (q.signal_type = 'Loopback' and q.in_reply_to is not null)
    on conflict (persona_id, session_id) do update set state = excluded.state, at = excluded.at,
        evidence = excluded.evidence, signal_id = excluded.signal_id where excluded.at >= last_proven.at";

/// The newest of what was proven of a persona.
const NEWEST_OF: &str = "select * from last_proven where persona_id = ? order by at desc limit 1";

/// What was last proven of each of some sessions.
const NEWEST_BY: &str = "select p.* from json_each(?) j cross join sessions s on s.id = j.value
    cross join last_proven p on p.persona_id = s.persona_id and p.session_id = s.id";

/// Notes the newest of what each session is known to have had.
pub(super) fn prove(c: &Connection, reports: &[Report]) -> Result<()> {
    let proves = |r: &&Report| r.state.is_reported_by_shim() || r.state == State::Drained;
    let mut newest_first: Vec<&Report> = reports.iter().filter(proves).collect();
    newest_first.sort_by_key(|r| (r.session_id, Reverse((r.at, r.state))));
    let mut statement = c.prepare_cached(PROVE).map_err(failed)?;
    let mut proven = None;
    for report in newest_first {
        // The newest may be an echo's and prove nothing: then the next one is asked.
        if proven == Some(report.session_id) {
            continue;
        }
        let changed = statement
            .execute(params![
                report.signal_id.to_string(),
                report.session_id.to_string(),
                report.state.name(),
                report.at.0,
                report.strategy.map(Strategy::name)
            ])
            .map_err(failed)?;
        if changed > 0 {
            proven = Some(report.session_id);
        }
    }
    Ok(())
}

impl Tables {
    pub async fn last_proven(&self, sessions: Vec<Uuid>) -> Result<Vec<Reachable>> {
        self.glance(move |c| list(c, NEWEST_BY, params![ids(&sessions)], reachable))
            .await
    }

    /// The newest of what was proven of each of some personas.
    pub async fn last_proven_of_each(&self, personas: Vec<Uuid>) -> Result<Vec<Option<Reachable>>> {
        self.read(move |c| {
            let ids = personas
                .iter()
                .map(|p| vec![sql::Value::Text(p.to_string())]);
            let newest = c.query_each(NEWEST_OF, &ids.collect::<Vec<_>>(), reachable);
            let newest = newest.map_err(failed)?.into_iter();
            Ok(newest.map(|one| one.into_iter().next()).collect())
        })
        .await
    }

    pub async fn last_proven_of(
        &self,
        persona: Uuid,
        sessions: Vec<Uuid>,
    ) -> Result<(Option<Reachable>, Vec<Reachable>)> {
        self.glance(move |c| {
            let (persona, sessions) = (persona.to_string(), ids(&sessions));
            c.ahead(NEWEST_OF, params![persona]).map_err(failed)?;
            let by_session = list(c, NEWEST_BY, params![sessions], reachable)?;
            let newest = list(c, NEWEST_OF, params![persona], reachable)?;
            Ok((newest.into_iter().next(), by_session))
        })
        .await
    }
}

fn ids(sessions: &[Uuid]) -> String {
    let ids: Vec<String> = sessions.iter().map(Uuid::to_string).collect();
    serde_json::to_string(&ids).unwrap_or_default()
}

fn reachable(row: &Row<'_>) -> sql::Result<Reachable> {
    let state = State::from_name(&row.get::<_, String>("state")?).unwrap_or(State::Received);
    Ok(Reachable {
        layer: state.layer().name().into(),
        state,
        at: column::moment(row, "at")?,
        session_id: column::id(row, "session_id")?,
        surface: row.get("surface")?,
        evidence: row.get("evidence")?,
    })
}
