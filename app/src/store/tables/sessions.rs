//! Sessions: one running agent host of one identity each.

use super::directory::OPEN_SESSIONS as OPEN;
use super::memory::remember;
use super::{Alone, Result, Tables, beside_its_project, column, failed, signals};
use crate::store::memory::NewMemory;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{ReturnedRow, Room, Seat, Seen, SessionRow};
use prism_core::Moment;
use prism_core::api::WaitsFor;
use prism_core::hook::Waiting;
use prism_core::limits::{CLOCK_AHEAD_US, SESSIONS_PER_IDENTITY_MAX, STALE_US};
use prism_core::presence::Attention;
use uuid::Uuid;

/// What a session has leased and not confirmed. Open leases are few; the index that holds them is
/// read whole.
pub(super) const LEASED: &str = "select id, to_persona_id from signal_queue
    where leased_to = ?1 and leased_until is not null and drained_at is null and ended_at is null";

/// The open sessions of an identity, in whatever project, the longest silent first.
pub(super) const OPEN_OF: &str = "select s.* from personas p
    cross join sessions s on s.persona_id = p.id
    where p.identity_folded = ?1 and s.released_at is null order by s.last_seen_at";
/// Sessions that are silent since `?1` and not yet known to have left.
pub(super) const SILENT: &str = "select id from sessions
    where released_at is null and left_at is null and last_seen_at <= ?1 limit ?2";
/// Sessions of which one sweep says that they left.
const LEFT_AT_ONCE: i64 = 500;

impl Tables {
    pub async fn each_open_session<T: Clone + Send + 'static>(
        &self,
        into: T,
        take: impl FnMut(&mut T, SessionRow) + Clone + Send + 'static,
    ) -> Result<T> {
        self.read(move |c| {
            let (mut into, mut take) = (into, take);
            let each = |row: &Row<'_>| session(row).map(|row| take(&mut into, row));
            let mut open = c.prepare_cached(OPEN).map_err(failed)?;
            open.collect([], each).map_err(failed)?;
            Ok(into)
        })
        .await
    }

    pub async fn sessions_of(&self, ids: Vec<Uuid>) -> Result<Vec<SessionRow>> {
        self.read(move |c| {
            let each: Vec<_> = ids.iter().map(|id| vec![id.to_string().into()]).collect();
            let found = c.query_each("select * from sessions where id = ?", &each, session);
            Ok(found.map_err(failed)?.into_iter().flatten().collect())
        })
        .await
    }

    pub async fn seat_session(&self, id: Uuid, now: Moment) -> Result<Option<Seat>> {
        let server = self.bus.server();
        let seat = move |c: &Connection| {
            // Later than any seat before it, whatever clocks say.
            c.prepare_cached(
                "update sessions set server_id = ?2, left_at = null,
                    connected_at = max(?3, coalesce(connected_at, 0) + 1),
                    last_seen_at = max(last_seen_at, ?3)
                 where id = ?1 and released_at is null returning connected_at",
            )
            .and_then(|mut s| {
                let since = s.query_row(params![id.to_string(), server.to_string(), now.0], |r| {
                    column::moment(r, "connected_at")
                });
                since.optional()
            })
            .map(|since| since.map(|since| Seat { server, since }))
            .map_err(failed)
        };
        self.noted(Alone::Inboxes(vec![id]), seat).await
    }

    pub fn unseat_session(&self, id: Uuid, seat: Seat) {
        let bus = self.bus.clone();
        let leave = move |c: &Connection| {
            let left = "update sessions set server_id = null
                where id = ? and server_id = ? and connected_at = ?";
            let seat = params![id.to_string(), seat.server.to_string(), seat.since.0];
            c.execute(left, seat).map(drop).map_err(failed)
        };
        // Others believe that it can be told here until they read its row.
        let told = move || bus.session_changed(id);
        let what = "that a session is not connected any more";
        self.writer.write_later_then(what, leave, told);
    }

    pub async fn seated_elsewhere(&self, since: Moment) -> Result<Vec<Uuid>> {
        let server = self.bus.server().to_string();
        self.read(move |c| {
            let mut statement = c
                .prepare_cached(
                    "select id from sessions where released_at is null and connected_at >= ?1
                        and server_id <> ?2",
                )
                .map_err(failed)?;
            let ids = statement.query_map(params![since.0, server], |r| column::id(r, "id"));
            ids.and_then(Iterator::collect).map_err(failed)
        })
        .await
    }

    pub async fn any_silent(&self, since: Moment) -> Result<bool> {
        self.read(move |c| {
            c.prepare_cached(SILENT)
                .and_then(|mut s| s.exists(params![since.0, 1]))
                .map_err(failed)
        })
        .await
    }

    pub async fn left_since(
        &self,
        silent_since: Moment,
        seen: Vec<Seen>,
        now: Moment,
    ) -> Result<Vec<SessionRow>> {
        self.write(move |c| {
            touch(c, &seen, now)?;
            let left = format!(
                "update sessions set left_at = ?3, server_id = null where id in ({SILENT}) returning *"
            );
            let mut left = c.prepare_cached(&left).map_err(failed)?;
            left.query_map(params![silent_since.0, LEFT_AT_ONCE, now.0], session)
                .and_then(Iterator::collect)
                .map_err(failed)
        })
        .await
    }

    pub async fn add_session(&self, s: SessionRow) -> Result<Room> {
        // A server that is alone counts its sessions itself, as it sees them.
        let counts = self.is_shared();
        self.write(move |c| {
            if counts && let Some(full) = full(c, &s)? {
                return Ok(full);
            }
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
            Ok(Room::Taken)
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

    pub fn touch_sessions(&self, sessions: Vec<Seen>, now: Moment) {
        self.writer
            .write_later("when sessions were last seen", move |c| {
                touch(c, &sessions, now)
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
                    let returned = release(c, &id.to_string(), "wrap", None, now)?;
                    Ok(returned.unwrap_or_default())
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
        silent_since: Option<Moment>,
        now: Moment,
    ) -> Result<Option<Vec<ReturnedRow>>> {
        let inboxes = self.inboxes.clone();
        self.written(
            Alone::Everywhere,
            move |c| release(c, &id.to_string(), &reason, silent_since, now),
            move |returned| {
                for row in returned.iter().flatten() {
                    inboxes.filled(row.to_persona);
                }
                returned
            },
        )
        .await
    }
}

/// What another write has put down meanwhile is never taken back, unless a clock did that was set back since.
fn touch(c: &Connection, sessions: &[Seen], now: Moment) -> Result<()> {
    let ahead = now.plus_us(CLOCK_AHEAD_US).0;
    let mut sessions = sessions.to_vec();
    // All servers in the same order: none waits for one that waits for it.
    sessions.sort_by_key(|s| s.session);
    for s in sessions {
        let last = s.last_verb_at.map(|m| m.0);
        c.put(
            "update sessions set
                last_seen_at = case when last_seen_at > ?4 then ?1 else max(last_seen_at, ?1) end,
                left_at = case when left_at < ?1 then null else left_at end,
                server_id = case when server_id is null and left_at < ?1 and connected_at = ?5
                    and released_at is null then ?6 else server_id end,
                last_verb_at = max(coalesce(last_verb_at, ?2), coalesce(?2, last_verb_at))
             where id = ?3",
            params![
                s.at.0,
                last,
                s.session.to_string(),
                ahead,
                s.seat.map(|seat| seat.since.0),
                s.seat.map(|seat| seat.server.to_string())
            ],
        )
        .map_err(failed)?;
    }
    Ok(())
}

/// What stands in the way of one session more.
fn full(c: &Connection, new: &SessionRow) -> Result<Option<Room>> {
    let mut open = c.prepare_cached(OPEN_OF).map_err(failed)?;
    let open: Vec<SessionRow> = open
        .query_map([new.identity.folded()], session)
        .and_then(Iterator::collect)
        .map_err(failed)?;
    if open.len() < SESSIONS_PER_IDENTITY_MAX {
        return Ok(None);
    }
    let longest = open.into_iter().next();
    let silent = longest.filter(|s| new.created_at.since_us(s.last_seen_at) >= STALE_US);
    Ok(Some(Room::Full {
        longest_silent: silent.map(Box::new),
    }))
}

/// What the session had leased goes back at once: nobody will confirm it. None when it was over.
fn release(
    c: &Connection,
    id: &str,
    reason: &str,
    silent_since: Option<Moment>,
    now: Moment,
) -> Result<Option<Vec<ReturnedRow>>> {
    let released = c.execute(
        "update sessions set released_at = ?1, release_reason = ?2, server_id = null,
            last_seen_at = max(last_seen_at, ?1)
         where id = ?3 and released_at is null
            and (cast(?4 as integer) is null or last_seen_at <= ?4)",
        params![now.0, reason, id, silent_since.map(|at| at.0)],
    );
    if released.map_err(failed)? == 0 {
        return Ok(None);
    }
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
    Ok(Some(leased))
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
        seat: column::opt_id(row, "server_id")?
            .zip(column::opt_moment(row, "connected_at")?)
            .map(|(server, since)| Seat { server, since }),
        left_at: column::opt_moment(row, "left_at")?,
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
