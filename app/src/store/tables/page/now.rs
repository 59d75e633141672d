//! What waits on the operator, in as few ways to the database as there can be.

use super::super::signals::{WAITING, counted};
use super::super::{Result, Tables, failed};
use super::memory::{GATE_LEFT, INPUTS_LEFT, UNLABELLED, UNREVIEWED, gate, input};
use super::signals::{looked, waiting_rows, with_receipts};
use super::{Listing, Where};
use crate::store::page::{Inboxes, LookedAt, OnOperator, Range};
use crate::store::sql::{Connection, Value};
use prism_core::limits::NOW_ROWS;
use prism_core::signal::Category;
use uuid::Uuid;

/// Projects whose questions go together, at the most.
const TOGETHER_MAX: usize = 16;

impl Tables {
    pub async fn on_operator(
        &self,
        inboxes: [Inboxes; 2],
        projects: Vec<Uuid>,
    ) -> Result<OnOperator> {
        self.read_memory(move |c| {
            let newest = Range {
                list: "now",
                since: None,
                until: None,
                cursor: None,
                limit: NOW_ROWS,
            };
            let all = Where::default();
            let lists: [&Listing; 2] = [&INPUTS_LEFT, &GATE_LEFT];
            if projects.len() <= TOGETHER_MAX {
                for list in lists {
                    list.ahead(c, &projects, &newest, &all)?;
                }
                for project in &projects {
                    for sql in [WAITING, UNREVIEWED, UNLABELLED] {
                        c.ahead(sql, [project.to_string()]).map_err(failed)?;
                    }
                }
            }
            let [mut to_me, mut unread] = most_urgent(c, &inboxes)?;
            with_receipts(c, to_me.iter_mut().chain(&mut unread))?;
            let mut on_operator = OnOperator {
                to_me,
                unread,
                inputs: INPUTS_LEFT.list(c, &projects, &newest, &all, input)?.rows,
                warnings: GATE_LEFT.list(c, &projects, &newest, &all, gate)?.rows,
                ..OnOperator::default()
            };
            for project in projects.iter().map(Uuid::to_string) {
                let count = |sql: &str| {
                    c.prepare_cached(sql)
                        .and_then(|mut s| s.query_row([&project], |r| r.get::<_, i64>(0)))
                        .map(|n| n as u64)
                        .map_err(failed)
                };
                on_operator.inputs_left += count(UNREVIEWED)?;
                on_operator.warnings_left += count(UNLABELLED)?;
                on_operator.counts.extend(counted(c, &project)?);
            }
            Ok(on_operator)
        })
        .await
    }
}

/// Questions about inboxes that are asked at once.
const AT_ONCE_MAX: usize = 64;

/// What waits in these inboxes, category by category, the newest of each first: what is pressing is
/// never hidden by what is not, nor what just came by what has waited long.
fn most_urgent(c: &Connection, inboxes: &[Inboxes; 2]) -> Result<[Vec<LookedAt>; 2]> {
    let sql = waiting_rows(1, true);
    let ask = |inboxes: &Inboxes, category: Category, n: usize| {
        let asked = inboxes.personas.iter().map(move |persona| {
            vec![
                Value::Text(persona.to_string()),
                Value::Integer(-1),
                Value::Text(category.name().into()),
                Value::Integer(n as i64),
            ]
        });
        asked.collect::<Vec<_>>()
    };
    let questions: usize = inboxes
        .iter()
        .map(|side| side.personas.len() * side.categories.len())
        .sum();
    // Where a question is a way to the database and back all are asked at once, whether or not it comes to them. Many would
    // bring more rows than the ways are worth.
    let mut known = match c {
        Connection::Postgres(_) if questions <= AT_ONCE_MAX => {
            let sides = inboxes.iter();
            let all = sides.flat_map(|side| {
                let categories = side.categories.iter();
                categories.flat_map(|category| ask(side, *category, NOW_ROWS))
            });
            let found = c.query_each(&sql, &all.collect::<Vec<_>>(), looked);
            Some(found.map_err(failed)?.into_iter())
        }
        _ => None,
    };
    let mut sides = [Vec::new(), Vec::new()];
    for (side, found) in inboxes.iter().zip(&mut sides) {
        for category in side.categories {
            let room = NOW_ROWS - found.len();
            let mut rows: Vec<LookedAt> = match &mut known {
                Some(known) => {
                    let of_each = known.by_ref().take(side.personas.len());
                    of_each.flatten().collect()
                }
                None if room == 0 => break,
                None => {
                    let of_each = c.query_each(&sql, &ask(side, *category, room), looked);
                    of_each.map_err(failed)?.into_iter().flatten().collect()
                }
            };
            // One inbox has an order of its own.
            if side.personas.len() > 1 {
                rows.sort_by_key(|looked| looked.row.created_at);
                rows.reverse();
            }
            rows.truncate(room);
            found.extend(rows);
        }
    }
    Ok(sides)
}
