//! One line through time: signals, recalls, deltas, verdicts and inputs, each with what it follows
//! from.

use super::super::{Result, Tables, column, failed, memory::list};
use super::signals::{looked, thread};
use super::{Listing, Where, find};
use crate::store::page::{Listed, Range, StoryFilter};
use crate::store::sql::Value;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use prism_core::Moment;
use prism_core::api::page::story::{StoryItem, StoryKind, StoryLink, StoryWhy};
use prism_core::limits::PAGE_TEXT_CHARS;
use prism_core::page::Cursor;
use prism_core::text::clip;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// Rows of one session that a task's story looks at.
const SESSION_ROWS_MAX: i64 = 500;
/// Recalls that one delta is linked to, and how old they may be, in microseconds.
const BUILT_ON_MAX: i64 = 3;
const BUILT_ON_US: i64 = 6 * 3_600_000_000;
/// Bookkeeping is no part of a story.
const TOLD: &str = "t.delta_kind not in ('start', 'pickup', 'bootstrap_only')";

/// The sources, in the order in which those of one moment are told.
const SOURCES: i64 = 5;

const DELTAS: Listing = Listing {
    table: "session_deltas",
    time: "created_at",
    columns: "t.*, p.pid",
    joins: "left join projects p on p.id = t.project_id",
    only: "true",
};
const RECALLS: Listing = Listing {
    table: "memory_recall_events",
    time: "occurred_at",
    columns: "t.*, p.pid, (select count(*) from memory_citations c where c.recall_event_id = t.id) as cited",
    joins: "left join projects p on p.id = t.project_id",
    only: "true",
};
pub(in super::super) const VERDICTS: Listing = Listing {
    table: "operator_confirmations",
    time: "confirmed_at",
    columns: "t.*, p.pid",
    joins: "left join projects p on p.id = t.project_id",
    only: "true",
};

impl Tables {
    pub async fn story(
        &self,
        projects: Vec<Uuid>,
        filter: StoryFilter,
        range: Range,
    ) -> Result<Listed<StoryItem>> {
        self.read_memory(move |c| {
            let mut listed = match &filter.signal_id {
                Some(signal) => of_task(c, &projects, signal, &filter, &range)?,
                None => of_everything(c, &projects, &filter, &range)?,
            };
            let mut read = Read::default();
            for item in &mut listed.rows {
                item.links = links(c, item, &mut read)?;
            }
            Ok(listed)
        })
        .await
    }
}

/// A cursor of the story as a cursor of one source, and back: rows are numbered by each table for
/// itself, so a place in the story is the row and the source.
fn to_source(cursor: Cursor, source: i64) -> Cursor {
    Cursor {
        at: cursor.at,
        row: (cursor.row.saturating_sub(source + 1)).div_euclid(SOURCES) + 1,
    }
}

fn to_story(cursor: Cursor, source: i64) -> Cursor {
    Cursor {
        at: cursor.at,
        row: cursor.row * SOURCES + source,
    }
}

fn of_everything(
    c: &Connection,
    projects: &[Uuid],
    filter: &StoryFilter,
    range: &Range,
) -> Result<Listed<StoryItem>> {
    type Map = fn(&Row<'_>) -> sql::Result<StoryItem>;
    let named = |sql: &str, wanted: &mut Where| {
        if let Some(identity) = &filter.identity {
            let n = sql.matches('?').count();
            wanted.is(sql, std::iter::repeat_n(Value::Text(identity.clone()), n));
        }
    };
    let mut sources: Vec<(&Listing, Where, Map)> = Vec::new();
    let mut wanted = Where::default();
    wanted.is("t.signal_type <> 'Loopback'", []);
    named(
        "(lower(t.from_identity) = lower(?) or lower(t.to_identity) = lower(?))",
        &mut wanted,
    );
    sources.push((&super::signals::LISTING, wanted, signal));
    let mut wanted = Where::default();
    named("lower(t.identity) = lower(?)", &mut wanted);
    sources.push((&RECALLS, wanted, recall));
    let mut wanted = Where::default();
    wanted.is(TOLD, []);
    named("lower(t.identity) = lower(?)", &mut wanted);
    sources.push((&DELTAS, wanted, delta));
    let mut wanted = Where::default();
    // Via an agent, or on what it did.
    named(
        "(instr(lower(t.confirmed_via) || '/', lower(?) || '/') = 1 or exists (select 1 from session_deltas d
            where d.id = t.refers_to_id and lower(d.identity) = lower(?)))",
        &mut wanted,
    );
    sources.push((&VERDICTS, wanted, verdict));
    let mut wanted = Where::default();
    named("lower(t.captured_via) = lower(?)", &mut wanted);
    sources.push((&super::memory::INPUTS, wanted, input));

    let mut rows = Vec::new();
    let mut looked_to: Option<Cursor> = None;
    for (source, (listing, wanted, map)) in sources.into_iter().enumerate() {
        let source = source as i64;
        let range = Range {
            cursor: range.cursor.map(|cursor| to_source(cursor, source)),
            ..range.clone()
        };
        let (found, end) = listing.look(c, projects, &range, &wanted, map)?;
        let found = found
            .into_iter()
            .map(|(at, item)| (to_story(at, source), item));
        rows.extend(found);
        looked_to = looked_to.max(end.map(|end| to_story(end, source)));
    }
    Ok(Listed::of(rows, looked_to, range))
}

/// The story of one conversation: its signals, what those who read them looked up and did for
/// them, and what the operator said of that.
fn of_task(
    c: &Connection,
    projects: &[Uuid],
    signal_id: &str,
    filter: &StoryFilter,
    range: &Range,
) -> Result<Listed<StoryItem>> {
    let id = find(
        c,
        "signal_queue",
        projects,
        "signal_id",
        signal_id,
        "signal",
    )?;
    let (thread, _) = thread(c, &id)?;
    let of: BTreeSet<&str> = thread.iter().map(String::as_str).collect();
    let mut items: Vec<(i64, i64, StoryItem)> = Vec::new();
    let mut sessions: BTreeSet<String> = BTreeSet::new();
    for id in &thread {
        items.extend(rows_by(
            c,
            0,
            &super::signals::LISTING,
            "t.id = ?",
            id,
            signal,
        )?);
        let readers: Vec<String> = list(
            c,
            "select session_id from deliveries where signal_id = ? and drained_at is not null",
            params![id],
            |r| r.get(0),
        )?;
        sessions.extend(readers);
    }
    let mut read = Read::default();
    for session in &sessions {
        let by = "t.session_id = ?";
        let recalls = rows_by(c, 1, &RECALLS, by, session, recall)?;
        let deltas = rows_by(c, 2, &DELTAS, &format!("{by} and {TOLD}"), session, delta)?;
        for row in recalls.into_iter().chain(deltas) {
            let was_for = read.last(c, session, row.2.at)?;
            if was_for.is_some_and(|id| of.contains(id.as_str())) {
                items.push(row);
            }
        }
    }
    let told: Vec<(StoryKind, String)> = items
        .iter()
        .map(|(.., item)| (item.kind, item.id.to_string()))
        .collect();
    for (kind, id) in told {
        let about = "t.refers_to_kind = 'delta' and t.refers_to_id = ?";
        let about = match kind {
            StoryKind::Delta => about.to_owned(),
            _ => about.replace("'delta'", "'signal'"),
        };
        items.extend(rows_by(c, 3, &VERDICTS, &about, &id, verdict)?);
        if kind == StoryKind::Delta {
            let said = "(t.reverses_delta = ?1 or t.id in
                (select src from edges where dst = ?1 and kind = 'LABELS'))";
            items.extend(rows_by(c, 4, &super::memory::INPUTS, said, &id, input)?);
        }
    }
    let mut seen = BTreeSet::new();
    let rows = items
        .into_iter()
        .filter(|(source, row, _)| seen.insert((*source, *row)))
        .map(|(source, row, item)| (to_story(Cursor { at: item.at, row }, source), item))
        .filter(|(at, item)| {
            range.cursor.is_none_or(|cursor| *at < cursor)
                && range.since.is_none_or(|since| item.at >= since)
                && range.until.is_none_or(|until| item.at < until)
                && filter.identity.as_ref().is_none_or(|name| {
                    item.identity.eq_ignore_ascii_case(name)
                        || item
                            .to
                            .as_ref()
                            .is_some_and(|to| to.eq_ignore_ascii_case(name))
                })
        });
    Ok(Listed::of(rows.collect(), None, range))
}

fn rows_by(
    c: &Connection,
    source: i64,
    listing: &Listing,
    by: &str,
    value: &str,
    map: fn(&Row<'_>) -> sql::Result<StoryItem>,
) -> Result<Vec<(i64, i64, StoryItem)>> {
    let Listing {
        table,
        columns,
        joins,
        time,
        ..
    } = listing;
    let sql = format!(
        "select t.rowid as page_row, {columns} from {table} t {joins} where {by}
         order by t.{time} desc limit {SESSION_ROWS_MAX}"
    );
    list(c, &sql, params![value], |r| {
        Ok((source, r.get("page_row")?, map(r)?))
    })
}

/// What each session had read, and when: newest first.
#[derive(Default)]
struct Read(BTreeMap<String, Vec<(Moment, String)>>);

impl Read {
    /// The last assignment or question that a session had read by then.
    fn last(&mut self, c: &Connection, session: &str, at: Moment) -> Result<Option<String>> {
        if !self.0.contains_key(session) {
            let read = list(
                c,
                "select d.drained_at, d.signal_id from deliveries d
                 join signal_queue q on q.id = d.signal_id
                 where d.session_id = ? and d.drained_at is not null
                     and q.category in ('TASK', 'ASK', 'BLOCKER')
                 order by d.drained_at desc limit ?",
                params![session, SESSION_ROWS_MAX],
                |r| Ok((Moment(r.get(0)?), r.get::<_, String>(1)?)),
            )?;
            self.0.insert(session.to_owned(), read);
        }
        let read = self.0.get(session).into_iter().flatten();
        Ok(read
            .into_iter()
            .find(|(drained, _)| *drained <= at)
            .map(|(_, id)| id.clone()))
    }
}

fn links(c: &Connection, item: &StoryItem, read: &mut Read) -> Result<Vec<StoryLink>> {
    let mut links = item.links.clone();
    let mut add = |why, kind, id: &str| {
        if let Ok(id) = id.parse() {
            let link = StoryLink { why, kind, id };
            if !links.contains(&link) {
                links.push(link);
            }
        }
    };
    let session = item.session_id.map(|s| s.to_string());
    match (item.kind, session) {
        (StoryKind::Recall, Some(session)) => {
            if let Some(id) = read.last(c, &session, item.at)? {
                add(StoryWhy::LookedUpFor, StoryKind::Signal, &id);
            }
        }
        (StoryKind::Delta, Some(session)) => {
            if let Some(id) = read.last(c, &session, item.at)? {
                add(StoryWhy::DoneFor, StoryKind::Signal, &id);
            }
            let recalls: Vec<String> = list(
                c,
                "select id from memory_recall_events where session_id = ?
                     and occurred_at <= ? and occurred_at > ? order by occurred_at desc limit ?",
                params![session, item.at.0, item.at.0 - BUILT_ON_US, BUILT_ON_MAX],
                |r| r.get(0),
            )?;
            for id in recalls {
                add(StoryWhy::BuiltOn, StoryKind::Recall, &id);
            }
        }
        (StoryKind::Input, _) => {
            let labelled: Option<String> = c
                .prepare_cached("select dst from edges where src = ? and kind = 'LABELS' limit 1")
                .and_then(|mut s| s.query_row([item.id.to_string()], |r| r.get(0)).optional())
                .map_err(failed)?;
            if let Some(id) = labelled.filter(|_| links.is_empty()) {
                match id.split_once(':') {
                    None => links.extend(id.parse().ok().map(|id| StoryLink {
                        why: StoryWhy::SaidOf,
                        kind: StoryKind::Delta,
                        id,
                    })),
                    Some(("signal", id)) => links.extend(id.parse().ok().map(|id| StoryLink {
                        why: StoryWhy::SaidOf,
                        kind: StoryKind::Signal,
                        id,
                    })),
                    Some(_) => {}
                }
            }
        }
        _ => {}
    }
    Ok(links)
}

fn blank(r: &Row<'_>, kind: StoryKind, time: &str) -> sql::Result<StoryItem> {
    Ok(StoryItem {
        pid: r.get::<_, Option<String>>("pid")?.unwrap_or_default(),
        kind,
        id: column::id(r, "id")?,
        at: column::moment(r, time)?,
        identity: String::new(),
        to: None,
        session_id: None,
        what: String::new(),
        text: String::new(),
        effect: None,
        category: None,
        state: None,
        results: None,
        cited: None,
        review: None,
        links: Vec::new(),
    })
}

fn short(text: &str) -> String {
    clip(text, PAGE_TEXT_CHARS)
}

fn signal(r: &Row<'_>) -> sql::Result<StoryItem> {
    let row = looked(r)?.row;
    let time = |name: &str| column::opt_moment(r, name);
    let ended: Option<String> = r.get("ended_as")?;
    use prism_core::receipt::State;
    let state = match (
        time("dismissed_at")?,
        time("acted_at")?,
        time("drained_at")?,
    ) {
        _ if ended.is_some() => ended.and_then(|name| State::from_name(&name)),
        (Some(_), ..) => Some(State::Dismissed),
        (_, Some(_), _) => Some(State::Acted),
        (.., Some(_)) => Some(State::Drained),
        _ => Some(State::Queued),
    };
    Ok(StoryItem {
        identity: row.from_identity,
        to: Some(row.to_identity),
        what: row.signal_type,
        text: row.summary,
        category: row.category,
        state,
        links: row
            .in_reply_to
            .map(|id| StoryLink {
                why: StoryWhy::RepliesTo,
                kind: StoryKind::Signal,
                id,
            })
            .into_iter()
            .collect(),
        ..blank(r, StoryKind::Signal, "created_at")?
    })
}

fn recall(r: &Row<'_>) -> sql::Result<StoryItem> {
    let results: Vec<serde_json::Value> =
        serde_json::from_str(&r.get::<_, String>("results")?).unwrap_or_default();
    Ok(StoryItem {
        identity: r.get("identity")?,
        session_id: column::opt_id(r, "session_id")?,
        what: "recall".into(),
        text: short(&r.get::<_, String>("query")?),
        results: Some(results.len() as u64),
        cited: Some(r.get::<_, i64>("cited")? as u64),
        ..blank(r, StoryKind::Recall, "occurred_at")?
    })
}

fn delta(r: &Row<'_>) -> sql::Result<StoryItem> {
    let effect: Option<String> = r.get("operator_visible_effect")?;
    Ok(StoryItem {
        identity: r.get("identity")?,
        session_id: column::opt_id(r, "session_id")?,
        what: r.get("delta_kind")?,
        text: short(&r.get::<_, String>("summary")?),
        effect: effect.or(r.get("operator_sees")?).map(|e| short(&e)),
        ..blank(r, StoryKind::Delta, "created_at")?
    })
}

fn verdict(r: &Row<'_>) -> sql::Result<StoryItem> {
    let (kind, id): (String, String) = (r.get("refers_to_kind")?, r.get("refers_to_id")?);
    let about = match kind.as_str() {
        "delta" => Some(StoryKind::Delta),
        "signal" => Some(StoryKind::Signal),
        _ => None,
    };
    let notes: Option<String> = r.get("notes")?;
    Ok(StoryItem {
        identity: r.get("confirmed_by")?,
        session_id: column::opt_id(r, "session_id")?,
        what: r.get("verdict")?,
        text: short(&notes.unwrap_or_else(|| format!("{kind}:{id}"))),
        links: about
            .and_then(|kind| {
                Some(StoryLink {
                    why: StoryWhy::VerdictOn,
                    kind,
                    id: id.parse().ok()?,
                })
            })
            .into_iter()
            .collect(),
        ..blank(r, StoryKind::Verdict, "confirmed_at")?
    })
}

fn input(r: &Row<'_>) -> sql::Result<StoryItem> {
    Ok(StoryItem {
        identity: r.get("captured_via")?,
        session_id: column::opt_id(r, "session_id")?,
        what: r.get("class")?,
        text: short(&r.get::<_, String>("prompt_text")?),
        review: r.get("operator_review")?,
        links: column::opt_id(r, "reverses_delta")?
            .map(|id| StoryLink {
                why: StoryWhy::Reverses,
                kind: StoryKind::Delta,
                id,
            })
            .into_iter()
            .collect(),
        ..blank(r, StoryKind::Input, "captured_at")?
    })
}
