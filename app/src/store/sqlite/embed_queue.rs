//! The queue of rows that wait for their vectors, and what is read and written for it.

use super::memory::list;
use super::{Result, Sqlite, failed};
use crate::store::{EmbedJob, StoreError, VectorRow};
use prism_core::Moment;
use prism_core::memory::Kind;
use prism_core::memory::recall::NEIGHBOUR_US;
use prism_core::memory::vector::{Embeddable, to_bytes};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

/// Rows with vectors of another model; two ranges of an index, where "is not" would read the table.
const FOREIGN: &str = "select memory_row from memory_vectors where model < ?1
    union all select memory_row from memory_vectors where model > ?1";
/// The rows to embed next; those whose text broke the worker come last.
const QUEUED: &str = "select m.id, i.queued_at, m.session_id, m.created_at
    from embed_intents i cross join memory m on m.id = i.memory_id
    where i.attempts < ? order by i.attempts, i.queued_at limit ?";

impl Sqlite {
    /// Resolves once there may be rows to embed.
    pub async fn embed_wanted(&self) {
        self.embed_wanted.notified().await;
    }

    pub async fn embed_jobs(&self, n: usize, attempts_max: i64) -> Result<Vec<EmbedJob>> {
        self.read_memory(move |c| {
            let queued = list(c, QUEUED, params![attempts_max, n as i64], |r| {
                Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
            })?;
            let job = |(id, queued_at, session, at): (String, i64, Option<String>, i64)| {
                let before = match before(c, &id, session.as_deref(), at)? {
                    Some(other) => Some(embeddable(c, &other)?.main()),
                    None => None,
                };
                Ok(EmbedJob {
                    queued_at,
                    texts: embeddable(c, &id)?.texts(before.as_deref()),
                    memory_id: id,
                })
            };
            queued.into_iter().map(job).collect()
        })
        .await
    }

    /// Stores the vectors of some rows and ends their intents, unless a row has changed meanwhile.
    pub async fn add_vectors(
        &self,
        model: &'static str,
        done: Vec<(EmbedJob, Vec<VectorRow>)>,
    ) -> Result<()> {
        self.write(move |c| {
            if crate::config::failpoint("embed.disk_full") {
                return Err(StoreError::Unwritable("database or disk is full".into()));
            }
            for (job, rows) in &done {
                add_vectors(c, model, job, rows).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    pub async fn embed_failed(&self, memory_id: String) -> Result<()> {
        self.write(move |c| {
            let tried = "update embed_intents set attempts = attempts + 1 where memory_id = ?";
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
                        and (?3 or not exists (select 1 from memory_vectors v where v.memory_row = m.rowid and v.model = ?4))
                     on conflict do update set attempts = 0, queued_at = excluded.queued_at",
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
         where m.rowid in ({FOREIGN}) on conflict do nothing"
    )
}

fn add_vectors(
    c: &Connection,
    model: &str,
    job: &EmbedJob,
    rows: &[VectorRow],
) -> rusqlite::Result<()> {
    let row: Option<i64> = c
        .prepare_cached("select rowid from memory where id = ?")?
        .query_row([&job.memory_id], |r| r.get(0))
        .optional()?;
    if let Some(row) = row {
        c.execute("delete from memory_vectors where memory_row = ?", [row])?;
        let mut insert = c.prepare_cached(
            "insert into memory_vectors (memory_row, ordinal, model, vector) values (?, ?, ?, ?)",
        )?;
        for vector in rows {
            insert.execute(params![
                row,
                vector.ordinal,
                model,
                to_bytes(&vector.vector)
            ])?;
        }
    }
    c.execute(
        "delete from embed_intents where memory_id = ? and queued_at = ?",
        params![job.memory_id, job.queued_at],
    )?;
    Ok(())
}

/// The row that this one speaks of, else the one before it in its session.
fn before(c: &Connection, id: &str, session: Option<&str>, at: i64) -> Result<Option<String>> {
    let spoken_of = c
        .prepare_cached("select dst from edges where src = ? and kind in ('CONFIRMS','LABELS','SUPERSEDES') and instr(dst, ':') = 0
             and not exists (select 1 from memory h where h.id = dst and h.hidden) order by kind limit 1")
        .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
        .map_err(failed)?;
    match (spoken_of, session) {
        (Some(other), _) => Ok(Some(other)),
        (None, Some(session)) => c
            .prepare_cached("select id from memory where session_id = ?1 and hidden = 0 and created_at < ?2 and created_at >= ?2 - ?3 order by created_at desc limit 1")
            .and_then(|mut s| s.query_row(params![session, at, NEIGHBOUR_US], |r| r.get(0)).optional())
            .map_err(failed),
        (None, None) => Ok(None),
    }
}

fn embeddable(c: &Connection, id: &str) -> Result<Embeddable> {
    let found = c
        .prepare_cached("select kind, title from memory where id = ?")
        .and_then(|mut s| {
            s.query_row([id], |r| Ok((r.get::<_, String>(0)?, r.get(1)?)))
                .optional()
        })
        .map_err(failed)?;
    let (kind, title) = found.unwrap_or_else(|| ("note".into(), None));
    let fields = list(
        c,
        "select field, text from memory_fields where memory_id = ? order by ordinal",
        params![id],
        |r| Ok((r.get(0)?, r.get(1)?)),
    )?;
    Ok(Embeddable {
        kind: Kind::from_name(&kind).unwrap_or(Kind::Note),
        title,
        fields,
    })
}
