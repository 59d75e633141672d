//! The queue of rows that wait for their vectors, and what is read and written for it.

use super::memory::list;
use super::{Alone, Result, Tables, failed};
use crate::clock;
use crate::store::sql::{self, Connection, OptionalExtension, Value, params};
use crate::store::{EmbedJob, StoreError, VectorRow};
use prism_core::Moment;
use prism_core::limits::EMBED_TAKEN_US;
use prism_core::memory::Kind;
use prism_core::memory::recall::NEIGHBOUR_US;
use prism_core::memory::vector::{Embeddable, to_bytes};
use std::collections::HashSet;
use std::sync::{MutexGuard, PoisonError};
use uuid::Uuid;

/// Rows with vectors of another model; two ranges of an index, where "is not" would read the table.
const FOREIGN: &str = "select memory_row from memory_vectors where model < ?1
    union all select memory_row from memory_vectors where model > ?1";
/// Rows that have vectors of one generation and none of the other, after a place, in order. A row whose
/// text breaks the worker holds up nothing.
const BEHIND: &str = "select m.rowid, m.id, m.session_id, m.created_at from memory m
    where m.rowid > ?3
        and exists (select 1 from memory_vectors v where v.memory_row = m.rowid and v.model = ?1)
        and not exists (select 1 from memory_vectors w where w.memory_row = m.rowid and w.model = ?2)
        and not exists (select 1 from embed_intents i where i.memory_id = m.id and i.attempts > 0)
    order by m.rowid limit ?4";
/// The next model in order that has vectors.
const NEXT_MODEL: &str = "select min(model) from memory_vectors where model > ?";
/// The rows to embed next; those whose text broke the worker come last.
const QUEUED: &str = "select m.id, i.queued_at, m.session_id, m.created_at
    from embed_intents i cross join memory m on m.id = i.memory_id
    where i.attempts < ? order by i.attempts, i.queued_at limit ?";
/// The same where several servers embed: rows that nobody is at work on are taken, and nobody waits for
/// another who takes some.
const TAKE: &str = "update embed_intents i set taken_until = ?4 from memory m
    where m.id = i.memory_id and i.memory_id in (select memory_id from embed_intents
        where attempts < ?1 and (taken_until is null or taken_until <= ?3)
        order by attempts, queued_at limit ?2 for update skip locked)
    returning m.id, i.queued_at, m.session_id, m.created_at";
/// Rows that are known to be taken here, at the most.
const AT_WORK_MAX: usize = 1_000;
/// Whoever comes next may take it.
const GIVE_BACK: &str = "update embed_intents set taken_until = null where memory_id = ?";

impl Tables {
    /// Resolves once there may be rows to embed.
    pub async fn embed_wanted(&self) {
        self.embed_wanted.notified().await;
    }

    pub async fn embed_jobs(&self, n: usize, attempts_max: i64) -> Result<Vec<EmbedJob>> {
        if !self.is_shared() {
            let queued = move |c: &Connection| {
                let queued = list(c, QUEUED, params![attempts_max, n as i64], queued_row)?;
                jobs(c, queued)
            };
            return self.read_memory(queued).await;
        }
        // Most looks find nothing, and are not worth a commit.
        let now = clock::now();
        let waiting = move |c: &Connection| {
            let waiting = "select 1 from embed_intents
                where attempts < ? and (taken_until is null or taken_until <= ?) limit 1";
            c.prepare_cached(waiting)
                .and_then(|mut s| s.exists(params![attempts_max, now.0]))
                .map_err(failed)
        };
        if !self.read(waiting).await? {
            return Ok(Vec::new());
        }
        let take = move |c: &Connection| {
            let until = now.plus_us(EMBED_TAKEN_US);
            let taken = params![attempts_max, n as i64, now.0, until.0];
            let mut taken = list(c, TAKE, taken, queued_row)?;
            taken.sort_by_key(|(_, queued_at, ..)| *queued_at);
            jobs(c, taken)
        };
        let taken = self.noted(Alone::Inboxes(Vec::new()), take).await?;
        let ids = taken.iter().map(|job| job.memory_id.clone());
        let mut at_work = self.at_work();
        if at_work.len() > AT_WORK_MAX {
            // Rows that were set aside are not taken off.
            at_work.clear();
        }
        at_work.extend(ids);
        drop(at_work);
        Ok(taken)
    }

    fn at_work(&self) -> MutexGuard<'_, HashSet<String>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn done_with(&self, rows: &[String]) {
        self.at_work().retain(|row| !rows.contains(row));
    }

    /// The rows that this server has taken and not done with, which it is done with now.
    pub(super) fn taken(&self) -> Vec<String> {
        self.at_work().drain().collect()
    }

    pub async fn give_back_jobs(&self, rows: Vec<String>) -> Result<()> {
        if !self.is_shared() || rows.is_empty() {
            return Ok(());
        }
        self.done_with(&rows);
        let give_back = move |c: &Connection| {
            for row in &rows {
                c.put(GIVE_BACK, [row]).map_err(failed)?;
            }
            Ok(())
        };
        self.noted(Alone::Inboxes(Vec::new()), give_back).await
    }

    /// Stores the vectors of some rows and ends their intents, unless a row has changed meanwhile.
    /// Those rows lose their vectors of a generation that can no longer be made.
    pub async fn add_vectors(
        &self,
        model: &'static str,
        instead_of: Option<&'static str>,
        done: Vec<(EmbedJob, Vec<VectorRow>)>,
    ) -> Result<()> {
        let ids: Vec<String> = done.iter().map(|(job, _)| job.memory_id.clone()).collect();
        let stored = self
            .write(move |c| {
                full_disk()?;
                add_vectors(c, model, instead_of, &done).map_err(failed)?;
                let end = "delete from embed_intents where memory_id = ? and queued_at = ?";
                for (job, _) in &done {
                    c.put(end, params![job.memory_id, job.queued_at])
                        .map_err(failed)?;
                    // One that has changed meanwhile is still there, and waits again.
                    c.put(GIVE_BACK, [&job.memory_id]).map_err(failed)?;
                }
                // The first vectors say which generation answers.
                let begin = "insert into vector_generation (one, generation) values (1, ?)
                on conflict do nothing";
                c.put(begin, [model]).map_err(failed)
            })
            .await;
        if self.is_shared() && stored.is_err() {
            // Nobody is at work on them any more.
            drop(self.give_back_jobs(ids.clone()).await);
        }
        self.done_with(&ids);
        stored
    }

    pub async fn add_vectors_beside(
        &self,
        model: &'static str,
        done: Vec<(EmbedJob, Vec<VectorRow>)>,
    ) -> Result<()> {
        self.write(move |c| {
            full_disk()?;
            add_vectors(c, model, None, &done).map_err(failed)
        })
        .await
    }

    /// Asked at the start: it waits for no reader of memory.
    pub async fn generation(&self) -> Result<Option<String>> {
        self.read(|c| {
            c.query_row("select generation from vector_generation", [], |r| r.get(0))
                .optional()
                .map_err(failed)
        })
        .await
    }

    pub async fn switch_progress(
        &self,
        from: &'static str,
        to: &'static str,
    ) -> Result<(u64, u64)> {
        self.read_memory(move |c| {
            let rows = "select count(distinct memory_row) from memory_vectors where model = ?";
            let count = |model: &str| {
                c.query_row(rows, [model], |r| r.get::<_, i64>(0))
                    .map(|n| n as u64)
                    .map_err(failed)
            };
            let (done, rows) = (count(to)?, count(from)?);
            Ok((done.min(rows), rows))
        })
        .await
    }

    pub async fn rows_to_switch(
        &self,
        from: &'static str,
        to: &'static str,
        after: i64,
        n: usize,
    ) -> Result<(i64, Vec<EmbedJob>)> {
        self.read_memory(move |c| {
            let behind = list(c, BEHIND, params![from, to, after, n as i64], |r| {
                let row = (r.get(1)?, 0, r.get(2)?, r.get(3)?);
                Ok((r.get::<_, i64>(0)?, row))
            })?;
            let reached = behind.last().map_or(after, |(row, _)| *row);
            let behind = behind.into_iter().map(|(_, row)| row).collect();
            Ok((reached, jobs(c, behind)?))
        })
        .await
    }

    pub async fn switch_generation(
        &self,
        from: Option<(&'static str, i64)>,
        to: &'static str,
    ) -> Result<bool> {
        self.write(move |c| {
            if let Some((from, after)) = from {
                let left = c
                    .prepare(BEHIND)
                    .and_then(|mut s| s.exists(params![from, to, after, 1]))
                    .map_err(failed)?;
                if left {
                    return Ok(false);
                }
            }
            // Another server may have begun with others, or have switched before.
            let switched = match from {
                None => c.execute(
                    "insert into vector_generation (one, generation) values (1, ?)
                     on conflict (one) do update set generation = excluded.generation
                     where vector_generation.generation = excluded.generation",
                    [to],
                ),
                Some((from, _)) => c.execute(
                    "update vector_generation set generation = ? where generation = ?",
                    [to, from],
                ),
            };
            switched.map(|rows| rows > 0).map_err(failed)
        })
        .await
    }

    pub async fn remove_vectors_but(&self, stay: Vec<&'static str>, n: usize) -> Result<u64> {
        let stays = stay.clone();
        let other = self
            .read_memory(move |c| {
                // From one generation to the next by the index, without reading any vector.
                let mut after = String::new();
                loop {
                    let next: Option<String> = c
                        .query_row(NEXT_MODEL, [&after], |r| r.get(0))
                        .map_err(failed)?;
                    match next {
                        Some(model) if stay.contains(&model.as_str()) => after = model,
                        other => return Ok(other),
                    }
                }
            })
            .await?;
        let Some(other) = other else {
            // What nobody can ask for any more leaves memory, too.
            self.vectors.keep_only(&stays);
            return Ok(0);
        };
        let remove = "delete from memory_vectors where id in
            (select id from memory_vectors where model = ? limit ?)";
        self.write(move |c| {
            let removed = c.execute(remove, params![other, n as i64]);
            removed.map(|n| n as u64).map_err(failed)
        })
        .await
    }

    pub async fn embed_failed(&self, memory_id: String) -> Result<()> {
        self.write(move |c| {
            // A row that is embedded anew has no intent until it fails.
            let tried =
                "insert into embed_intents (memory_id, queued_at, attempts) values (?, 0, 1)
                on conflict (memory_id) do update
                    set attempts = embed_intents.attempts + 1, taken_until = null";
            c.execute(tried, [&memory_id]).map(drop).map_err(failed)
        })
        .await
    }

    /// Queues every row whose vectors another model made.
    pub async fn requeue_foreign(&self, model: &'static str) -> Result<u64> {
        let queued = self
            .write(move |c| c.execute(&requeue_foreign_sql(), [model]).map_err(failed))
            .await?;
        Ok(queued as u64)
    }

    /// Queues rows of a project again: those without vectors of this model, or all.
    pub async fn reembed(
        &self,
        project: Uuid,
        model: &'static str,
        all: bool,
        now: Moment,
    ) -> Result<u64> {
        let queued = self
            .write(move |c| {
                c.execute(
                    "insert into embed_intents (memory_id, queued_at) select m.id, ?1 from memory m where m.project_id = ?2
                        and (?3 = 1 or not exists (select 1 from memory_vectors v where v.memory_row = m.rowid and v.model = ?4))
                     on conflict (memory_id) do update set attempts = 0, queued_at = excluded.queued_at",
                    params![now.0, project.to_string(), all, model],
                )
                .map_err(failed)
            })
            .await?;
        self.embed_wanted.notify_one();
        Ok(queued as u64)
    }
}

pub(super) fn requeue_foreign_sql() -> String {
    format!(
        "insert into embed_intents (memory_id, queued_at) select m.id, 0 from memory m
         where m.rowid in ({FOREIGN}) and not exists
            (select 1 from memory_vectors v indexed by ix_memory_vectors_row
                where v.memory_row = m.rowid and v.model = ?1)
         on conflict do nothing"
    )
}

/// A test's disk that takes no more vectors.
fn full_disk() -> Result<()> {
    match crate::config::failpoint("embed.disk_full") {
        true => Err(StoreError::Unwritable("database or disk is full".into())),
        false => Ok(()),
    }
}

/// Puts the vectors of some rows in the place of those that they had, and takes away those of another model.
fn add_vectors(
    c: &Connection,
    model: &str,
    instead_of: Option<&str>,
    done: &[(EmbedJob, Vec<VectorRow>)],
) -> sql::Result<()> {
    let ids = done.iter().map(|(job, _)| text(&job.memory_id));
    let ids: Vec<Vec<Value>> = ids.collect();
    let numbers = "select rowid from memory where id = ?";
    let numbers = c.query_each(numbers, &ids, |r| r.get::<_, i64>(0))?;
    for ((_, vectors), number) in done.iter().zip(numbers) {
        // It may be gone.
        let Some(row) = number.first() else { continue };
        for model in [Some(model), instead_of].into_iter().flatten() {
            let before = "delete from memory_vectors where memory_row = ? and model = ?";
            c.put(before, params![row, model])?;
        }
        let insert =
            "insert into memory_vectors (memory_row, ordinal, model, vector) values (?, ?, ?, ?)";
        for vector in vectors {
            let bytes = to_bytes(&vector.vector);
            c.put(insert, params![row, vector.ordinal, model, bytes])?;
        }
    }
    Ok(())
}

fn text(value: &str) -> Vec<Value> {
    vec![Value::Text(value.to_owned())]
}

/// Id, when it was queued, session, when it was written.
type Queued = (String, i64, Option<String>, i64);

fn queued_row(r: &sql::Row<'_>) -> sql::Result<Queued> {
    Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
}

/// Rows with their texts, each kind of question asked for all of them at once.
fn jobs(c: &Connection, queued: Vec<Queued>) -> Result<Vec<EmbedJob>> {
    let before = before(c, &queued)?;
    let mut ids: Vec<&str> = queued.iter().map(|(id, ..)| id.as_str()).collect();
    ids.extend(before.iter().flatten().map(String::as_str));
    let mut rows = embeddable(c, &ids)?;
    let others = rows.split_off(queued.len());
    let mut others = others.into_iter();
    let mut jobs = Vec::with_capacity(queued.len());
    for (((id, queued_at, ..), row), before) in queued.into_iter().zip(rows).zip(before) {
        let before = before.and_then(|_| others.next()).map(|other| other.main());
        jobs.push(EmbedJob {
            queued_at,
            texts: row.texts(before.as_deref()),
            memory_id: id,
        });
    }
    Ok(jobs)
}

/// The row that each of these speaks of, else the one before it in its session.
fn before(c: &Connection, queued: &[Queued]) -> Result<Vec<Option<String>>> {
    let id = |r: &sql::Row<'_>| r.get::<_, String>(0);
    let spoken_of = "select dst from edges where src = ? and kind in ('CONFIRMS','LABELS','SUPERSEDES') and instr(dst, ':') = 0
        and not exists (select 1 from memory h where h.id = dst and h.hidden = 1) order by kind limit 1";
    let each: Vec<Vec<Value>> = queued.iter().map(|(id, ..)| text(id)).collect();
    let spoken_of = c.query_each(spoken_of, &each, id).map_err(failed)?;
    let mut before: Vec<Option<String>> = spoken_of.into_iter().map(|mut of| of.pop()).collect();
    let in_session =
        "select id from memory where session_id = ?1 and hidden = 0 and created_at < ?2
        and created_at >= ?2 - ?3 order by created_at desc limit 1";
    let mut places = Vec::new();
    let mut each = Vec::new();
    for (place, (_, _, session, at)) in queued.iter().enumerate() {
        if let (None, Some(session)) = (&before[place], session) {
            places.push(place);
            each.push(vec![
                Value::Text(session.clone()),
                Value::Integer(*at),
                Value::Integer(NEIGHBOUR_US),
            ]);
        }
    }
    let found = c.query_each(in_session, &each, id).map_err(failed)?;
    for (place, mut found) in places.into_iter().zip(found) {
        before[place] = found.pop();
    }
    Ok(before)
}

fn embeddable(c: &Connection, ids: &[&str]) -> Result<Vec<Embeddable>> {
    let each: Vec<Vec<Value>> = ids.iter().map(|id| text(id)).collect();
    let kinds = "select kind, title from memory where id = ?";
    let kinds = c.query_each(kinds, &each, |r| Ok((r.get::<_, String>(0)?, r.get(1)?)));
    let fields = "select field, text from memory_fields where memory_id = ? order by ordinal";
    let fields = c.query_each(fields, &each, |r| Ok((r.get(0)?, r.get(1)?)));
    let rows = kinds.map_err(failed)?.into_iter();
    let rows = rows.zip(fields.map_err(failed)?).map(|(mut row, fields)| {
        let (kind, title) = row.pop().unwrap_or_else(|| ("note".into(), None));
        Embeddable {
            kind: Kind::from_name(&kind).unwrap_or(Kind::Note),
            title,
            fields,
        }
    });
    Ok(rows.collect())
}
