//! Sessions: one running agent host of one identity each.

use super::memory::remember;
use super::{Alone, Result, Tables, beside_its_project, column, failed, signals};
use crate::store::memory::NewMemory;
use crate::store::sql::{self, Connection, Row, params};
use crate::store::{ReturnedRow, SessionRow};
use prism_core::Moment;
use prism_core::api::WaitsFor;
use prism_core::hook::Waiting;
use prism_core::presence::Attention;
use uuid::Uuid;

/// What a session has leased and not confirmed. Open leases are few; the index that holds them is
/// read whole.
pub(super) const LEASED: &str = "select id, to_persona_id from signal_queue
    where leased_to = ?1 and leased_until is not null and drained_at is null and ended_at is null";

impl Tables {
    pub async fn add_session(&self, s: SessionRow) -> Result<()> {
        self.write(move |c| {
            let rows = c.execute(
                "insert into sessions (id, tenant_id, project_id, persona_id, identity, surface, machine_id, process_pid, name, created_at, last_seen_at)
                 select ?, tenant_id, ?, ?, ?, ?, ?, ?, ?, ?, ? from projects where id = ?",
                params![
                    s.id.to_string(),
                    s.project_id.to_string(),
                    s.persona_id.to_string(),
                    s.identity.as_str(),
                    s.surface,
                    s.machine_id,
                    s.process_pid,
                    s.name,
                    s.created_at.0,
                    s.last_seen_at.0,
                    s.project_id.to_string()
                ],
            );
            beside_its_project(rows.map_err(failed)?)?;
            c.execute(
                "update personas set started_at = coalesce(started_at, ?) where id = ?",
                params![s.created_at.0, s.persona_id.to_string()],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }

    pub async fn name_session(&self, id: Uuid, name: String) -> Result<()> {
        self.write(move |c| {
            c.prepare_cached("update sessions set name = ? where id = ?")
                .and_then(|mut s| s.execute(params![name, id.to_string()]))
                .map_err(failed)?;
            Ok(())
        })
        .await
    }

    pub async fn session_waits(
        &self,
        id: Uuid,
        waits: Option<WaitsFor>,
        then: impl FnOnce(Option<WaitsFor>) + Send + 'static,
    ) -> Result<()> {
        let note = move |c: &Connection| {
            let (what, since) = match &waits {
                Some(waits) => (Some(waits.r#for.name()), Some(waits.since.0)),
                None => (None, None),
            };
            c.prepare_cached("update sessions set waiting_for = ?, waiting_since = ? where id = ?")
                .and_then(|mut s| s.execute(params![what, since, id.to_string()]))
                .map_err(failed)?;
            Ok(waits)
        };
        self.written(Alone::Everywhere, note, then).await
    }

    pub async fn session_attention(
        &self,
        id: Uuid,
        attention: Attention,
        then: impl FnOnce(Attention) + Send + 'static,
    ) -> Result<()> {
        let note = move |c: &Connection| {
            c.prepare_cached("update sessions set attention = ? where id = ?")
                .and_then(|mut s| s.execute(params![attention.name(), id.to_string()]))
                .map_err(failed)?;
            Ok(attention)
        };
        self.written(Alone::Everywhere, note, then).await
    }

    pub fn touch_sessions(&self, sessions: Vec<SessionRow>) {
        self.writer
            .write_later("when sessions were last seen", move |c| {
                // What another write has put down meanwhile is never taken back.
                let mut update = c
                    .prepare_cached(
                        "update sessions set last_seen_at = max(last_seen_at, ?1),
                        first_verb_at = coalesce(first_verb_at, ?2),
                        last_verb_at = max(coalesce(last_verb_at, ?3), coalesce(?3, last_verb_at)) where id = ?4",
                    )
                    .map_err(failed)?;
                for s in sessions {
                    let (first, last) = (s.first_verb_at.map(|m| m.0), s.last_verb_at.map(|m| m.0));
                    update
                        .execute(params![s.last_seen_at.0, first, last, s.id.to_string()])
                        .map_err(failed)?;
                }
                Ok(())
            });
    }

    pub async fn wrap_session(&self, id: Uuid, wrap: NewMemory) -> Result<Vec<ReturnedRow>> {
        let inboxes = self.inboxes.clone();
        let wrapped = self
            .written(
                Alone::Everywhere,
                move |c| {
                    let now = wrap.by.now;
                    remember(c, wrap)?;
                    release(c, &id.to_string(), "wrap", now)
                },
                move |returned| {
                    for row in &returned {
                        inboxes.filled(row.to_persona);
                    }
                    returned
                },
            )
            .await;
        self.embed_wanted.notify_one();
        wrapped
    }

    pub async fn release_session(
        &self,
        id: Uuid,
        reason: String,
        now: Moment,
    ) -> Result<Vec<ReturnedRow>> {
        let inboxes = self.inboxes.clone();
        self.written(
            Alone::Everywhere,
            move |c| release(c, &id.to_string(), &reason, now),
            move |returned| {
                for row in &returned {
                    inboxes.filled(row.to_persona);
                }
                returned
            },
        )
        .await
    }
}

/// What the session had leased goes back at once: nobody will confirm it.
fn release(c: &Connection, id: &str, reason: &str, now: Moment) -> Result<Vec<ReturnedRow>> {
    c.execute(
        "update sessions set released_at = ?, release_reason = ?,
            last_seen_at = max(last_seen_at, ?) where id = ? and released_at is null",
        params![now.0, reason, now.0, id],
    )
    .map_err(failed)?;
    let leased = c
        .prepare_cached(LEASED)
        .map_err(failed)?
        .query_map([id], signals::returned)
        .map_err(failed)?
        .collect::<sql::Result<Vec<_>>>()
        .map_err(failed)?;
    // Nothing it does can close its windows any more.
    c.execute("delete from recallgate_windows where session_id = ?", [id])
        .map_err(failed)?;
    let why = format!("the session that was reading it ended ({reason})");
    for row in &leased {
        signals::give_back(c, row, now, &why)?;
    }
    Ok(leased)
}

fn waits(row: &Row<'_>) -> sql::Result<Option<WaitsFor>> {
    let what: Option<String> = row.get("waiting_for")?;
    let since = column::opt_moment(row, "waiting_since")?;
    let what = what.as_deref().and_then(Waiting::from_name);
    Ok(what
        .zip(since)
        .map(|(r#for, since)| WaitsFor { r#for, since }))
}

pub(super) fn session(row: &Row<'_>) -> sql::Result<SessionRow> {
    Ok(SessionRow {
        id: column::id(row, "id")?,
        project_id: column::id(row, "project_id")?,
        persona_id: column::id(row, "persona_id")?,
        identity: column::parsed(row, "identity")?,
        surface: row.get("surface")?,
        machine_id: row.get("machine_id")?,
        process_pid: row.get("process_pid")?,
        name: row.get("name")?,
        created_at: column::moment(row, "created_at")?,
        last_seen_at: column::moment(row, "last_seen_at")?,
        first_verb_at: column::opt_moment(row, "first_verb_at")?,
        last_verb_at: column::opt_moment(row, "last_verb_at")?,
        released_at: column::opt_moment(row, "released_at")?,
        waits: waits(row)?,
        // A word that this version does not know tells it nothing.
        attention: row
            .get::<_, Option<String>>("attention")?
            .map(|name| Attention::from_name(&name).unwrap_or(Attention::Unknown)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test]
    async fn what_sessions_wait_for_is_told_in_the_order_of_the_rows() {
        let dir = tempfile::tempdir().unwrap();
        let store = Tables::open(&dir.path().join("x.db")).unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let waits = |n: i64| {
            (n % 2 == 0).then_some(WaitsFor {
                r#for: Waiting::Permission,
                since: Moment(n),
            })
        };
        let hooks = (0..20).map(|n| {
            let told = told.clone();
            let then = move |waits: Option<WaitsFor>| {
                told.lock().unwrap().push(waits.map(|w| w.since.0));
            };
            store.session_waits(Uuid::nil(), waits(n), then)
        });
        for hook in futures_util::future::join_all(hooks).await {
            hook.unwrap();
        }
        let in_order: Vec<_> = (0..20).map(|n| waits(n).map(|w| w.since.0)).collect();
        assert_eq!(*told.lock().unwrap(), in_order);
        store.close().await;
    }
}
