//! The queue of rows that wait for their vectors, and what is read and written for it.

use super::memory::list;
use super::{Result, Sqlite, failed};
use crate::store::{EmbedJob, VectorRow};
use prism_core::Moment;
use prism_core::memory::Kind;
use prism_core::memory::recall::NEIGHBOUR_US;
use prism_core::memory::vector::{Embeddable, to_bytes};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

/// Rows with vectors of another model; two ranges of an index, where "is not" would read the table.
pub(super) const FOREIGN: &str = "select memory_row from memory_vectors where model < ?1 union all select memory_row from memory_vectors where model > ?1";
impl Sqlite {
    /// Resolves once there may be rows to embed.
    pub async fn embed_wanted(&self) {
        self.embed_wanted.notified().await;
    }

    pub async fn embed_jobs(&self, n: usize, attempts_max: i64) -> Result<Vec<EmbedJob>> {
        self.read_memory(move |c| {
            let queued = list(
                c,
                "select m.rowid, m.id, i.queued_at, m.session_id, m.created_at from embed_intents i cross join memory m on m.id = i.memory_id
                 where i.attempts < ? order by i.attempts, i.queued_at limit ?",
                params![attempts_max, n as i64],
                |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?, r.get(4)?)),
            )?;
            let job = |(memory_row, id, queued_at, session, at): (i64, String, i64, Option<String>, i64)| {
                let before = match before(c, &id, session.as_deref(), at)? {
                    Some(other) => Some(embeddable(c, &other)?.main()),
                    None => None,
                };
                Ok(EmbedJob { memory_row, queued_at, texts: embeddable(c, &id)?.texts(before.as_deref()), memory_id: id })
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
                return Err(crate::store::StoreError::Unwritable("database or disk is full".into()));
            }
            for (job, rows) in &done {
                c.execute("delete from memory_vectors where memory_row = ?", [job.memory_row]).map_err(failed)?;
                let mut insert = c.prepare_cached("insert into memory_vectors (memory_row, ordinal, model, vector) values (?, ?, ?, ?)").map_err(failed)?;
                for row in rows {
                    insert.execute(params![job.memory_row, row.ordinal, model, to_bytes(&row.vector)]).map_err(failed)?;
                }
                c.execute("delete from embed_intents where memory_id = ? and queued_at = ?", params![job.memory_id, job.queued_at]).map_err(failed)?;
            }
            Ok(())
        })
        .await
    }

    pub async fn embed_failed(&self, memory_row: i64) -> Result<()> {
        self.write(move |c| {
            let changed = c.execute("update embed_intents set attempts = attempts + 1 where memory_id = (select id from memory where rowid = ?)", [memory_row]);
            changed.map(drop).map_err(failed)
        })
        .await
    }

    /// Queues every row whose vectors another model made.
    pub async fn requeue_foreign(&self, model: &'static str) -> Result<u64> {
        let queued = self
            .write(move |c| {
                let queue = format!("insert into embed_intents (memory_id, queued_at) select m.id, 0 from memory m where m.rowid in ({FOREIGN}) on conflict do nothing");
                c.execute(&queue, [model]).map_err(failed)
            })
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

/// The row that this one speaks of, else the one before it in its session.
fn before(c: &Connection, id: &str, session: Option<&str>, at: i64) -> Result<Option<String>> {
    let spoken_of = c
        .prepare_cached("select dst from edges where src = ? and kind in ('CONFIRMS','LABELS','SUPERSEDES') and instr(dst, ':') = 0 order by kind limit 1")
        .and_then(|mut s| s.query_row([id], |r| r.get(0)).optional())
        .map_err(failed)?;
    match (spoken_of, session) {
        (Some(other), _) => Ok(Some(other)),
        (None, Some(session)) => c
            .prepare_cached("select id from memory where session_id = ?1 and created_at < ?2 and created_at >= ?2 - ?3 order by created_at desc limit 1")
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
