//! Old rows: looking at a few of them at a time, and taking out those whose time is over.
//!
//! A table is walked by row number, which is the order in which its rows were written: no index
//! is needed, and the walk ends at the first row that is too young.

use super::page::stored::{HowMany, rows_of};
use super::{Result, Tables, column, failed};
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{Kept, PruneStep};
use prism_core::Moment;
use prism_core::retention::{self, Aged, History, Look};

/// How one kind of history lies in the store.
struct Shape {
    table: &'static str,
    /// When a row was written; a walk meets these in order.
    born: &'static str,
    /// When it was over.
    over: &'static str,
    /// Whether anything that stays refers to it.
    referred: &'static str,
    /// What else goes with the row `?1`; the row itself goes last.
    with_it: &'static [&'static str],
}

const fn shape(what: History) -> Shape {
    match what {
        History::LoopbackRuns => Shape {
            table: "loopback_runs",
            born: "t.finished_at",
            over: "t.finished_at",
            referred: "false",
            with_it: &[
                "insert into loopback_days (project_id, day, identity, outcome, runs)
                 select project_id, date(finished_at / 1000000, 'unixepoch'), identity, outcome, 1
                 from loopback_runs where rowid = ?1
                 on conflict (project_id, day, identity, outcome) do update set runs = loopback_days.runs + 1",
            ],
        },
        History::GateEvents => Shape {
            table: "recallgate_events",
            born: "t.occurred_at",
            over: "t.occurred_at",
            referred: "exists (select 1 from edges e where e.dst = 'gate:' || t.id)",
            with_it: &["delete from edges where src =
                 (select 'gate:' || id from recallgate_events where rowid = ?1)"],
        },
        History::RecallEvents => Shape {
            table: "memory_recall_events",
            born: "t.occurred_at",
            over: "t.occurred_at",
            referred: "exists (select 1 from memory_citations c where c.recall_event_id = t.id)
                or exists (select 1 from edges e where e.dst = 'recall:' || t.id)",
            with_it: &[],
        },
        History::Signals => Shape {
            table: "signal_queue",
            born: "t.created_at",
            over: "coalesce(t.drained_at, t.ended_at)",
            referred: "exists (select 1 from operator_confirmations c
                    where c.refers_to_kind = 'signal' and c.refers_to_id = t.id)
                or exists (select 1 from edges e where e.dst = 'signal:' || t.id)
                or exists (select 1 from recallgate_events g where g.assignment_id = t.id)
                or exists (select 1 from loopback_runs l where l.signal_id = t.id)",
            with_it: &[
                "delete from deliveries where signal_id =
                 (select id from signal_queue where rowid = ?1)",
                "delete from signal_trace_events where signal_id =
                 (select id from signal_queue where rowid = ?1)",
            ],
        },
        History::Sessions => Shape {
            table: "sessions",
            born: "t.created_at",
            over: "t.released_at",
            referred: "exists (select 1 from deliveries d where d.session_id = t.id)
                or exists (select 1 from session_deltas d where d.session_id = t.id)
                or exists (select 1 from memory m where m.session_id = t.id)
                or exists (select 1 from artifacts a where a.session_id = t.id)
                or exists (select 1 from operator_inputs i where i.session_id = t.id)
                or exists (select 1 from operator_confirmations c where c.session_id = t.id)
                or exists (select 1 from recallgate_events g where g.actor_session_id = t.id)
                or exists (select 1 from edges e where e.dst = 'session:' || t.id)",
            with_it: &[],
        },
    }
}

/// Rows of a kind with what decides their fate; who refers to a row is asked only of an old one.
pub(super) fn look_sql(what: History, condition: &str) -> String {
    let Shape {
        table,
        born,
        over,
        referred,
        ..
    } = shape(what);
    format!(
        "select t.rowid as place, {born} as born, {over} as over,
            case when {over} < ?1 then ({referred}) else false end as referred
         from {table} t where {condition}"
    )
}

pub(super) const NEXT: &str = "t.rowid > ?2 order by t.rowid limit ?3";
pub(super) const THE_ONE: &str = "t.rowid = ?2";

#[cfg(test)]
pub(super) fn table(what: History) -> &'static str {
    shape(what).table
}

fn aged(row: &Row<'_>) -> sql::Result<Aged> {
    Ok(Aged {
        over: column::opt_moment(row, "over")?,
        referred: row.get("referred")?,
    })
}

impl Tables {
    /// Looks at the next few rows of a walk and takes out those that go. Looking is a read; the
    /// writer is asked only when something goes, and for these few rows only.
    pub async fn prune(&self, look: Look, rows: usize) -> Result<PruneStep> {
        let found = self.read(move |c| next_rows(c, look, rows)).await?;
        let mut step = PruneStep {
            reached: found.reached,
            gone: 0,
        };
        if !found.going.is_empty() {
            step.gone = self.write(move |c| take_out(c, look, &found.going)).await?;
        }
        Ok(step)
    }

    /// From when on rows go; set now when this home had none and was not new.
    pub async fn pruning_begins(&self, now: Moment) -> Result<Moment> {
        let set = self.read(begins_at).await?;
        if let Some(set) = set {
            return Ok(set);
        }
        self.write(move |c| {
            let begins = retention::begins(begins_at(c)?, now);
            c.execute("update retention set begins_at = ?", [begins.0])
                .map_err(failed)?;
            Ok(begins)
        })
        .await
    }

    /// How much of each kind there is, since when, and how much of it lies before its cutoff.
    pub async fn kept(&self, cutoffs: Vec<(History, Option<Moment>)>) -> Result<Vec<Kept>> {
        self.read_report(move |c| {
            let kept = cutoffs
                .into_iter()
                .map(|(what, cutoff)| kept(c, what, cutoff));
            kept.collect()
        })
        .await
    }
}

struct Found {
    reached: Option<i64>,
    going: Vec<i64>,
}

fn next_rows(c: &Connection, look: Look, n: usize) -> Result<Found> {
    let mut statement = c
        .prepare_cached(&look_sql(look.what, NEXT))
        .map_err(failed)?;
    let mut rows = statement
        .query(params![look.cutoff.0, look.after, n as i64])
        .map_err(failed)?;
    let mut found = Found {
        reached: None,
        going: Vec::new(),
    };
    while let Some(row) = rows.next().map_err(failed)? {
        let place = row.get("place").map_err(failed)?;
        if column::moment(&row, "born").map_err(failed)? >= look.cutoff {
            found.reached = None;
            return Ok(found);
        }
        if retention::goes(aged(&row).map_err(failed)?, look.cutoff) {
            found.going.push(place);
        }
        found.reached = Some(place);
    }
    Ok(found)
}

fn take_out(c: &Connection, look: Look, places: &[i64]) -> Result<u64> {
    let Shape { table, with_it, .. } = shape(look.what);
    let mut gone = 0;
    for place in places {
        // Asked again: somebody may have come to refer to it since.
        let row = c
            .prepare_cached(&look_sql(look.what, THE_ONE))
            .and_then(|mut s| s.query_row(params![look.cutoff.0, place], aged).optional())
            .map_err(failed)?;
        if !row.is_some_and(|row| retention::goes(row, look.cutoff)) {
            continue;
        }
        let itself = format!("delete from {table} where rowid = ?1");
        for sql in with_it.iter().copied().chain([itself.as_str()]) {
            c.prepare_cached(sql)
                .and_then(|mut s| s.execute([place]))
                .map_err(failed)?;
        }
        gone += 1;
    }
    Ok(gone)
}

fn begins_at(c: &Connection) -> Result<Option<Moment>> {
    c.query_row("select begins_at from retention", [], |r| {
        column::opt_moment(r, "begins_at")
    })
    .map_err(failed)
}

fn kept(c: &Connection, what: History, cutoff: Option<Moment>) -> Result<Kept> {
    let Shape { table, born, .. } = shape(what);
    let HowMany { rows, at_most } = rows_of(c, table)?;
    let at = |from: i64| -> Result<Option<(i64, Moment)>> {
        let sql = format!(
            "select t.rowid as place, {born} as born from {table} t
             where t.rowid >= ?1 order by t.rowid limit 1"
        );
        c.prepare_cached(&sql)
            .and_then(|mut s| {
                s.query_row([from], |r| Ok((r.get(0)?, column::moment(r, "born")?)))
                    .optional()
            })
            .map_err(failed)
    };
    let oldest = at(i64::MIN)?;
    let mut going = 0;
    if let (Some((first, _)), Some(cutoff)) = (oldest, cutoff) {
        let last: i64 = c
            .query_row(&format!("select max(rowid) from {table}"), [], |r| r.get(0))
            .map_err(failed)?;
        // The first row that is too young, by halves: rows lie in the order of their birth.
        let (mut old, mut young) = (first, last + 1);
        while old < young {
            let middle = old + (young - old) / 2;
            match at(middle)? {
                Some((place, born)) if born < cutoff => old = place + 1,
                _ => young = middle,
            }
        }
        going = (old - first).min(rows as i64);
    }
    Ok(Kept {
        what,
        rows,
        at_most,
        oldest: oldest.map(|(_, born)| born),
        going: going as u64,
    })
}
