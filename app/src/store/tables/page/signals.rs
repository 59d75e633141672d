//! Signals as the operator looks at them: nothing is leased by it.

use super::super::trace::category;
use super::super::{Result, Tables, column, failed};
use super::{Listing, Where, find};
use crate::store::page::{Doing, Listed, Look, LookedAt, Range, SignalFilter};
use crate::store::sql::Value;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use prism_core::Moment;
use prism_core::api::page::LastDelta;
use prism_core::api::page::signals::{SignalRow, Standing};
use prism_core::envelope::summary_of;
use prism_core::limits::{PAGE_TEXT_CHARS, THREAD_MAX};
use prism_core::receipt::{Receipt, SessionReceipt, SignalFacts};
use prism_core::signal::{Category, SignalType};
use prism_core::text::{clip, one_line};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use uuid::Uuid;

const COLUMNS: &str = "t.id, t.trace_id, t.signal_type, t.category, t.from_identity, t.to_identity,
    t.to_persona_id, t.payload, t.in_reply_to, t.created_at, t.seq, t.drained_at, t.acted_at,
    t.dismissed_at, t.ended_at, t.ended_as, t.leased_until, t.escalated_at, p.pid,
    coalesce(r.is_operator, 0) as to_operator";
const JOINS: &str =
    "left join projects p on p.id = t.project_id left join personas r on r.id = t.to_persona_id";

pub(in super::super) const LISTING: Listing = Listing {
    table: "signal_queue",
    time: "created_at",
    columns: COLUMNS,
    joins: JOINS,
    only: "true",
};

/// The echo of a probe that is under way.
pub(in super::super) const ECHO: &str = "select id, created_at from signal_queue
    where in_reply_to = ? and signal_type = 'Loopback' and ended_at is null limit 1";

/// What waits in one inbox, of some categories, in order.
pub(in super::super) fn waiting_rows(categories: usize, newest: bool) -> String {
    let order = if newest { "desc" } else { "" };
    let among = vec!["?"; categories].join(", ");
    let wanted = match categories {
        0 => String::new(),
        _ => format!("and t.category in ({among})"),
    };
    format!(
        "select {COLUMNS} from signal_queue t indexed by ix_signal_waiting {JOINS}
         where t.to_persona_id = ? and t.seq > ? and t.drained_at is null and t.ended_at is null
             and t.signal_type <> 'Loopback' {wanted}
         order by t.seq {order} limit ?"
    )
}

/// The newest task that a persona has read and not acted on.
pub(in super::super) fn newest_task() -> String {
    format!(
        "select {COLUMNS} from signal_queue t {JOINS}
         where t.to_persona_id = ?1
             and t.seq > (select inbox_seq - 200 from personas where id = ?1)
             and t.category = 'TASK' and t.drained_at is not null and t.acted_at is null
             and t.dismissed_at is null and t.ended_at is null order by t.seq desc limit 1"
    )
}

impl Tables {
    pub async fn list_signals(
        &self,
        projects: Vec<Uuid>,
        filter: SignalFilter,
        range: Range,
    ) -> Result<Listed<LookedAt>> {
        self.read_memory(move |c| {
            let conditions = conditions(&filter);
            let mut listed = LISTING.list(c, &projects, &range, &conditions, looked)?;
            with_receipts(c, &mut listed.rows)?;
            Ok(listed)
        })
        .await
    }

    pub async fn look_into(
        &self,
        personas: Vec<Uuid>,
        categories: Vec<Category>,
        look: Look,
    ) -> Result<Vec<(i64, LookedAt)>> {
        self.read_memory(move |c| {
            let sql = waiting_rows(categories.len(), look.newest);
            let several = personas.len() > 1;
            let mut rows = Vec::new();
            let inboxes = personas.iter().map(|persona| {
                [Value::Text(persona.to_string()), Value::Integer(look.after)]
                    .into_iter()
                    .chain(categories.iter().map(|c| Value::Text(c.name().into())))
                    .chain([Value::Integer(look.n as i64)])
                    .collect()
            });
            let found = c.query_each(&sql, &inboxes.collect::<Vec<_>>(), |r| {
                Ok((r.get::<_, i64>("seq")?, looked(r)?))
            });
            rows.extend(found.map_err(failed)?.into_iter().flatten());
            // One inbox has an order of its own.
            if several {
                rows.sort_by_key(|(_, looked)| looked.row.created_at);
                if look.newest {
                    rows.reverse();
                }
            }
            rows.truncate(look.n);
            with_receipts(c, rows.iter_mut().map(|(_, row)| row))?;
            Ok(rows)
        })
        .await
    }

    pub async fn conversation(
        &self,
        projects: Vec<Uuid>,
        signal_id: String,
    ) -> Result<(LookedAt, Vec<LookedAt>, u64)> {
        self.read_memory(move |c| {
            let id = find(
                c,
                "signal_queue",
                &projects,
                "signal_id",
                &signal_id,
                "signal",
            )?;
            let (ids, more) = thread(c, &id)?;
            let mut rows = Vec::new();
            for one in &ids {
                rows.extend(one_signal(c, one)?);
            }
            rows.sort_by_key(|l| (l.row.created_at, l.row.signal_id));
            let own = rows
                .iter()
                .find(|l| l.row.signal_id.to_string() == id)
                .cloned();
            let own = own.ok_or_else(super::super::gone)?;
            Ok((own, rows, more))
        })
        .await
    }

    pub async fn signal_terms(&self, signal_id: String) -> Result<(String, Moment)> {
        self.read(move |c| {
            c.prepare_cached("select delivery_class, expires_at from signal_queue where id = ?")
                .and_then(|mut s| {
                    s.query_row([signal_id], |r| {
                        Ok((r.get(0)?, column::moment(r, "expires_at")?))
                    })
                })
                .map_err(failed)
        })
        .await
    }

    pub async fn echo_of(&self, probe: Uuid) -> Result<Option<(Uuid, Moment)>> {
        self.read(move |c| {
            c.prepare_cached(ECHO)
                .and_then(|mut s| {
                    s.query_row([probe.to_string()], |r| {
                        Ok((column::id(r, "id")?, column::moment(r, "created_at")?))
                    })
                    .optional()
                })
                .map_err(failed)
        })
        .await
    }

    pub async fn read_ids(
        &self,
        persona: Uuid,
        signal_ids: Vec<String>,
        now: Moment,
    ) -> Result<Vec<Uuid>> {
        self.write(move |c| {
            let mut read = Vec::new();
            for quoted in signal_ids {
                let id = super::super::trace::own_signal(c, &persona.to_string(), &quoted)?;
                let n = c
                    .execute(
                        "update signal_queue set drained_at = ?, drained_by = null, lease_id = null,
                             leased_to = null, leased_until = null
                         where id = ? and drained_at is null and ended_at is null",
                        params![now.0, id],
                    )
                    .map_err(failed)?;
                if n == 1 {
                    read.extend(id.parse::<Uuid>());
                }
            }
            Ok(read)
        })
        .await
    }

    pub async fn doing(&self, personas: Vec<Uuid>) -> Result<BTreeMap<Uuid, Doing>> {
        self.read_memory(move |c| {
            let all = doing(c, &personas)?;
            Ok(personas.into_iter().zip(all).collect())
        })
        .await
    }
}

/// What each of some personas is at.
fn doing(c: &Connection, personas: &[Uuid]) -> Result<Vec<Doing>> {
    let ids: Vec<Vec<Value>> = personas
        .iter()
        .map(|p| vec![Value::Text(p.to_string())])
        .collect();
    // Of one identity, said as a range, so that its own index is the only one in this order: another would be walked to
    // its end for whoever has written nothing.
    let last_deltas = c
        .query_each(
            "select d.id, d.delta_kind, d.created_at, d.summary, d.operator_visible_effect
             from session_deltas d
             where d.project_id = (select project_id from personas where id = ?1)
                 and d.identity >= (select identity from personas where id = ?1)
                 and d.identity <= (select identity from personas where id = ?1)
                 and d.delta_kind <> 'start' order by d.identity, d.created_at desc limit 1",
            &ids,
            |r| {
                let line = |text: String| clip(&one_line(&text), PAGE_TEXT_CHARS);
                Ok(LastDelta {
                    id: column::id(r, "id")?,
                    kind: r.get("delta_kind")?,
                    at: column::moment(r, "created_at")?,
                    summary: line(r.get("summary")?),
                    operator_visible_effect: r
                        .get::<_, Option<String>>("operator_visible_effect")?
                        .map(line),
                })
            },
        )
        .map_err(failed)?;
    let tasks = c.query_each(&newest_task(), &ids, looked).map_err(failed)?;
    let first = |mut id: Vec<Value>| {
        id.extend([Value::Integer(-1), Value::Integer(1)]);
        id
    };
    let firsts: Vec<Vec<Value>> = ids.into_iter().map(first).collect();
    let oldest = c
        .query_each(&waiting_rows(0, false), &firsts, |r| {
            column::moment(r, "created_at")
        })
        .map_err(failed)?;
    let all = last_deltas.into_iter().zip(tasks).zip(oldest);
    let one = |((delta, task), oldest): ((Vec<LastDelta>, Vec<LookedAt>), Vec<Moment>)| Doing {
        last_delta: delta.into_iter().next(),
        task: task.into_iter().next(),
        oldest_unread_at: oldest.into_iter().next(),
    };
    Ok(all.map(one).collect())
}

pub(super) fn one_signal(c: &Connection, id: &str) -> Result<Option<LookedAt>> {
    let row = c
        .prepare_cached(&format!(
            "select {COLUMNS} from signal_queue t {JOINS} where t.id = ?"
        ))
        .and_then(|mut s| s.query_row([id], looked).optional())
        .map_err(failed)?;
    row.map(|mut row| {
        with_receipts(c, [&mut row])?;
        Ok(row)
    })
    .transpose()
}

/// What answers a signal.
pub(in super::super) const REPLIES: &str = "select id from signal_queue
    where in_reply_to = ? and signal_type <> 'Loopback' order by created_at";

/// The ids of a whole conversation: up to what began it, then everything that answers.
pub(super) fn thread(c: &Connection, id: &str) -> Result<(Vec<String>, u64)> {
    let mut root = id.to_owned();
    for _ in 0..THREAD_MAX {
        let parent: Option<Option<String>> = c
            .prepare_cached("select in_reply_to from signal_queue where id = ?")
            .and_then(|mut s| s.query_row([&root], |r| r.get(0)).optional())
            .map_err(failed)?;
        match parent.flatten() {
            Some(parent) if exists(c, &parent)? => root = parent,
            _ => break,
        }
    }
    let mut seen = BTreeSet::from([root.clone()]);
    let mut ids = vec![root.clone()];
    let mut open = VecDeque::from([root]);
    let mut more = 0;
    while let Some(next) = open.pop_front() {
        let replies: Vec<String> = c
            .prepare_cached(REPLIES)
            .and_then(|mut s| {
                s.query_map([&next], |r| r.get(0))?
                    .collect::<sql::Result<_>>()
            })
            .map_err(failed)?;
        for reply in replies {
            if !seen.insert(reply.clone()) {
                continue;
            }
            if ids.len() >= THREAD_MAX {
                more += 1;
                continue;
            }
            ids.push(reply.clone());
            open.push_back(reply);
        }
    }
    Ok((ids, more))
}

fn exists(c: &Connection, id: &str) -> Result<bool> {
    c.prepare_cached("select exists (select 1 from signal_queue where id = ?)")
        .and_then(|mut s| s.query_row([id], |r| r.get(0)))
        .map_err(failed)
}

fn conditions(filter: &SignalFilter) -> Where {
    let mut wanted = Where::default();
    if let Some(identity) = &filter.identity {
        wanted.is(
            "(lower(t.from_identity) = lower(?) or lower(t.to_identity) = lower(?))",
            [Value::Text(identity.clone()), Value::Text(identity.clone())],
        );
    }
    wanted.equal("lower(t.from_identity) = lower(?)", filter.from.clone());
    wanted.equal("lower(t.to_identity) = lower(?)", filter.to.clone());
    wanted.equal("t.category = ?", filter.category.map(|c| c.name()));
    wanted.equal("t.signal_type = ?", filter.signal_type.clone());
    if !filter.probes {
        wanted.is("t.signal_type <> 'Loopback'", []);
    }
    if let Some(state) = filter.state {
        wanted.is(standing(state), []);
    }
    wanted.words(
        "t.payload || ' ' || t.from_identity || ' ' || t.to_identity || ' ' || t.signal_type",
        &filter.words,
    );
    wanted
}

const fn standing(state: Standing) -> &'static str {
    match state {
        Standing::Waiting => "t.drained_at is null and t.ended_at is null",
        Standing::Drained => {
            "t.drained_at is not null and t.acted_at is null and t.dismissed_at is null and t.ended_at is null"
        }
        Standing::Acted => {
            "t.acted_at is not null and t.dismissed_at is null and t.ended_at is null"
        }
        Standing::Dismissed => "t.dismissed_at is not null and t.ended_at is null",
        Standing::Expired => "t.ended_as = 'expired'",
        Standing::Recalled => "t.ended_as = 'recalled'",
        Standing::Failed => "t.ended_as = 'failed'",
    }
}

/// A row before its deliveries are known.
pub(super) fn looked(r: &Row<'_>) -> sql::Result<LookedAt> {
    let payload: String = r.get("payload")?;
    let payload = serde_json::from_str(&payload).unwrap_or_default();
    let signal_type: String = r.get("signal_type")?;
    let drained = column::opt_moment(r, "drained_at")?;
    let ended = column::opt_moment(r, "ended_at")?;
    let waiting = drained.is_none() && ended.is_none();
    let created_at = column::moment(r, "created_at")?;
    let known = SignalType::from_name(&signal_type);
    let ended_as: Option<String> = r.get("ended_as")?;
    let ended_as = |name: &str| ended.filter(|_| ended_as.as_deref() == Some(name));
    Ok(LookedAt {
        to_persona: column::id(r, "to_persona_id")?,
        facts: SignalFacts {
            queued: created_at,
            drained,
            acted: column::opt_moment(r, "acted_at")?,
            dismissed: column::opt_moment(r, "dismissed_at")?,
            expired: ended_as("expired"),
            recalled: ended_as("recalled"),
            failed: ended_as("failed"),
        },
        receipts: Vec::new(),
        row: SignalRow {
            pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
            signal_id: column::id(r, "id")?,
            trace_id: column::id(r, "trace_id")?,
            category: category(r)?.or_else(|| known.and_then(SignalType::default_category)),
            signal_type,
            from_identity: r.get("from_identity")?,
            to_identity: r.get("to_identity")?,
            to_operator: r.get("to_operator")?,
            summary: summary_of(&payload),
            in_reply_to: column::opt_id(r, "in_reply_to")?,
            created_at,
            state: prism_core::receipt::State::Queued,
            at: created_at,
            waiting,
            leased: waiting && r.get::<_, Option<i64>>("leased_until")?.is_some(),
            escalated_at: column::opt_moment(r, "escalated_at")?,
            stuck: None,
        },
    })
}

/// Signals whose deliveries are asked for with one statement: few enough for an index to find each.
const SIGNALS_TOGETHER: usize = 16;

fn receipts_of() -> String {
    let signals = ["?"; SIGNALS_TOGETHER].join(", ");
    format!(
        "select d.signal_id, d.session_id, d.pushed_at, d.received_at, d.rung_at, d.rendered_at, d.drained_at
         from deliveries d where d.signal_id in ({signals})"
    )
}

/// Adds what became of each.
pub(super) fn with_receipts<'l>(
    c: &Connection,
    all: impl IntoIterator<Item = &'l mut LookedAt>,
) -> Result<()> {
    let all: Vec<&mut LookedAt> = all.into_iter().collect();
    if all.is_empty() {
        return Ok(());
    }
    let ids: Vec<Value> = all
        .iter()
        .map(|l| Value::Text(l.row.signal_id.to_string()))
        .collect();
    let some = ids.chunks(SIGNALS_TOGETHER).map(|some| {
        let mut some = some.to_vec();
        some.resize(SIGNALS_TOGETHER, Value::Text(String::new()));
        some
    });
    let receipts = c.query_each(&receipts_of(), &some.collect::<Vec<_>>(), |r| {
        let receipt = SessionReceipt {
            session_id: column::id(r, "session_id")?,
            pushed: column::opt_moment(r, "pushed_at")?,
            received: column::opt_moment(r, "received_at")?,
            rung: column::opt_moment(r, "rung_at")?,
            rendered: column::opt_moment(r, "rendered_at")?,
            drained: column::opt_moment(r, "drained_at")?,
            ..SessionReceipt::default()
        };
        Ok((column::id(r, "signal_id")?, receipt))
    });
    let mut by_signal: HashMap<Uuid, Vec<SessionReceipt>> = HashMap::new();
    for (signal, receipt) in receipts.map_err(failed)?.into_iter().flatten() {
        by_signal.entry(signal).or_default().push(receipt);
    }
    for looked in all {
        let receipts = by_signal.remove(&looked.row.signal_id);
        looked.receipts = receipts.unwrap_or_default();
        let receipt = Receipt::assemble(&looked.facts, looked.receipts.clone());
        looked.row.state = receipt.state;
        looked.row.at = receipt.at;
    }
    Ok(())
}
