//! What the operator said of a row, or of a thing that it names: the newest verdict decides.

use super::memory::list;
use super::{Result, column, failed};
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use prism_core::api::memory::VerdictView;
use prism_core::memory::operator::{Directness, Verdict, verdict_weight};
use prism_core::memory::question::cue;
use prism_core::memory::recall::VerdictOn;

/// Verdicts that one row shows.
const SHOWN: i64 = 5;
/// Things that a row names whose verdicts are looked at.
const NAMED: i64 = 50;

/// Verdicts on a node, newest first. How many there are in all costs nothing.
pub(super) const ON_NODE: &str = "select c.*, null as on_what
    from (select src, created_at from edges indexed by ix_edges_verdicts
        where dst = ?1 and kind = 'CONFIRMS' and project_id = ?2
        order by created_at desc limit ?3) e
    cross join operator_confirmations c on c.id = e.src
    order by e.created_at desc, c.rowid desc";
/// Specs, commits and signals that a row names and somebody gave a verdict on.
pub(super) const JUDGED_NAMED: &str = "select m.dst from edges m
    where m.src = ?1 and m.kind in ('MENTIONS', 'COMBINES') and instr(m.dst, ':') > 0
    and exists (select 1 from edges e where e.dst = m.dst and e.kind = 'CONFIRMS')
    limit ?2";
/// Rows that name something which the operator gave a verdict on.
pub(super) const NAMES_JUDGED: &str = "select j.value from json_each(?) j where exists
    (select 1 from edges m cross join edges e on e.dst = m.dst and e.kind = 'CONFIRMS'
     where m.src = j.value and m.kind in ('MENTIONS', 'COMBINES') and instr(m.dst, ':') > 0)";
/// The node of a spec that is a row itself: verdicts name it by its number.
const SPEC_NODE: &str = "select 'entity:' || e.id from artifacts a cross join entities e
    on e.project_id = a.project_id and e.type = 'spec' and e.name = cast(a.number as text)
    where a.id = ? and a.kind = 'spec'";
/// Rows that are specs with a verdict on their number.
pub(super) const JUDGED_SPECS: &str = "select j.value from json_each(?) j
    cross join artifacts a on a.id = j.value and a.kind = 'spec'
    cross join entities n on n.project_id = a.project_id and n.type = 'spec'
    and n.name = cast(a.number as text)
    where exists (select 1 from edges e where e.dst = 'entity:' || n.id and e.kind = 'CONFIRMS')";

/// What the operator said of a row, and what that weighs: the newest verdict on the row itself.
/// Verdicts on what it names are shown, each with what it is about, and weigh nothing here.
pub(super) fn verdicts_on(
    c: &Connection,
    project: &str,
    id: &str,
    kind: &str,
) -> Result<(Vec<VerdictView>, Option<VerdictOn>)> {
    let mut found = list(c, ON_NODE, params![id, project, SHOWN], verdict)?;
    if kind == "spec"
        && let Some(node) = spec_node(c, id)?
    {
        found.extend(list(c, ON_NODE, params![node, project, SHOWN], verdict)?);
        found.sort_by_key(|(view, _)| std::cmp::Reverse(view.at));
    }
    let newest = found.first().and_then(|(view, own)| weighed(view, *own));
    if kind != "confirmation" {
        found.extend(on_named(c, project, id)?);
    }
    let mut views: Vec<VerdictView> = Vec::new();
    for (view, _) in found {
        if views.len() < SHOWN as usize && !views.iter().any(|v| v.id == view.id) {
            views.push(view);
        }
    }
    Ok((views, newest))
}

/// Verdicts on specs, commits and signals that a row names, each with its name, newest first.
fn on_named(c: &Connection, project: &str, id: &str) -> Result<Vec<(VerdictView, bool)>> {
    let named: Vec<String> = list(c, JUDGED_NAMED, params![id, NAMED], |r| r.get(0))?;
    let sql = ON_NODE.replacen(
        "null as on_what",
        "c.refers_to_kind || ':' || c.refers_to_id as on_what",
        1,
    );
    let mut found = Vec::new();
    for node in named {
        found.extend(list(c, &sql, params![node, project, SHOWN], verdict)?);
    }
    found.retain(|(view, _): &(VerdictView, bool)| view.id.to_string() != id);
    found.sort_by_key(|(view, _)| std::cmp::Reverse(view.at));
    found.truncate(SHOWN as usize);
    Ok(found)
}

/// What a verdict or an input speaks of, as people write it.
pub(super) fn refers_to(c: &Connection, id: &str) -> Result<Option<String>> {
    c.prepare_cached(
        "select refers_to_kind || ':' || refers_to_id from operator_confirmations where id = ?1
         union all select case when instr(dst, ':') > 0 then dst else 'delta:' || dst end
         from edges where src = ?1 and kind = 'LABELS' limit 1",
    )
    .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
    .map_err(failed)
}

/// What was confirmed is an answer to whoever asks what works, for as long as its newest verdict
/// says so, and by half when an agent reported it of its own work.
pub(super) fn set_cue(c: &Connection, project: &str, node: &str) -> Result<()> {
    let newest = list(c, ON_NODE, params![node, project, 1], verdict)?;
    let newest = newest.first().and_then(|(view, own)| weighed(view, *own));
    let bits = match newest {
        Some(said) if said.verdict != Verdict::Works => 0,
        Some(said) if verdict_weight(said.directness, said.on_own_delta) < 1.0 => {
            cue::HALF_CONFIRMED
        }
        Some(_) => cue::CONFIRMATION,
        None => 0,
    };
    let row = match node.strip_prefix("entity:") {
        Some(number) => match row_of_spec(c, number)? {
            Some(row) => row,
            None => return Ok(()),
        },
        None => node.to_owned(),
    };
    // A row that is the operator's own word keeps what it is.
    c.prepare_cached(
        "update memory set cues = (cues & ~?1) | ?2 where id = ?3 and project_id = ?4
         and kind not in ('confirmation', 'operator_input')",
    )
    .and_then(|mut s| {
        let cleared = cue::CONFIRMATION | cue::HALF_CONFIRMED;
        s.execute(params![cleared, bits, row, project])
    })
    .map_err(failed)?;
    Ok(())
}

/// The row of a spec that is kept here, by the number of its entity.
fn row_of_spec(c: &Connection, entity: &str) -> Result<Option<String>> {
    // Not every name is a number, and PostgreSQL insists.
    let number = c.either("cast(n.name as integer)", "number_in(n.name)");
    c.prepare_cached(&format!(
        "select a.id from entities n cross join artifacts a on a.project_id = n.project_id
         and a.kind = 'spec' and a.number = {number}
         where n.id = cast(? as integer) and n.type = 'spec' and cast(a.number as text) = n.name",
    ))
    .and_then(|mut s| s.query_row([entity], |r| r.get(0)).optional())
    .map_err(failed)
}

/// The node under which others name a spec that is kept here.
pub(super) fn spec_node(c: &Connection, id: &str) -> Result<Option<String>> {
    c.prepare_cached(SPEC_NODE)
        .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
        .map_err(failed)
}

fn weighed(view: &VerdictView, on_own_delta: bool) -> Option<VerdictOn> {
    Some(VerdictOn {
        verdict: Verdict::from_name(&view.verdict)?,
        directness: Directness::from_name(&view.directness)?,
        on_own_delta,
    })
}

/// A verdict, and whether it is an agent's on its own work.
fn verdict(r: &Row<'_>) -> sql::Result<(VerdictView, bool)> {
    let view = VerdictView {
        id: column::id(r, "id")?,
        on: r.get("on_what")?,
        verdict: r.get("verdict")?,
        confirmed_by: r.get("confirmed_by")?,
        confirmed_via: r.get("confirmed_via")?,
        directness: r.get("directness")?,
        at: column::moment(r, "confirmed_at")?,
        notes: r.get("notes")?,
    };
    Ok((view, r.get("on_own_delta")?))
}
