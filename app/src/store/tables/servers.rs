//! What servers on one database leave for each other: signs of change, duties, links into the page.

use super::directory::the_tenant;
use super::{Alone, Result, Tables, column, failed};
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{Copy, Duty, Signs};
use ::postgres::error::SqlState;
use prism_core::Moment;
use prism_core::limits::LINKS_MAX;
use uuid::Uuid;

/// Takes a duty that nobody has, or no longer, or goes on with one.
const TAKE_DUTY: &str = "insert into duties as d (tenant_id, duty, server_id, until) values (?1, ?2, ?3, ?4)
    on conflict (tenant_id, duty) do update set server_id = excluded.server_id, until = excluded.until
    where d.server_id = excluded.server_id or d.until <= ?5";

/// Who has a duty, and until when.
const HELD_DUTY: &str =
    "select server_id, until from duties where tenant_id = this_tenant() and duty = ?";

/// Whoever had a socket here has none.
const LEAVE_SEATS: &str =
    "update sessions set server_id = null where released_at is null and server_id = ?";
/// What changes when others have changed something.
const SIGNS: &str = "select (select names from directory_versions limit 1),
    (select sessions from directory_versions limit 1), (select generation from vector_generation limit 1)";
/// What a database is called wherever it moves with its files.
const DATABASE: &str = "select (select system_identifier from pg_control_system()) || '_'
    || (select oid from pg_database where datname = current_database())";
/// The same with its timeline, which changes whenever one begins that may lack the newest commits of the one before; and
/// when it was started, since an earlier state of its files begins no timeline.
const COPY: &str = "select (select system_identifier from pg_control_system()) || '_'
    || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) as name,
    cast(extract(epoch from pg_postmaster_start_time()) * 1000000 as bigint) as started_at";
/// The signal that has a place in an inbox.
pub(super) const AT_PLACE: &str =
    "select id from signal_queue where to_persona_id = ?1 and seq = ?2";

impl Tables {
    pub fn is_shared(&self) -> bool {
        self.pool.is_some()
    }

    /// One look at one row each: it is asked once a second.
    pub async fn signs(&self) -> Result<Signs> {
        self.read(|c| {
            let signs = c.query_row(SIGNS, [], |r| {
                Ok(Signs {
                    names: r.get::<_, Option<i64>>(0)?.unwrap_or_default(),
                    sessions: r.get::<_, Option<i64>>(1)?.unwrap_or_default(),
                    generation: r.get(2)?,
                })
            });
            signs.map_err(failed)
        })
        .await
    }

    pub async fn database(&self) -> Result<Option<String>> {
        self.says(DATABASE, |r| r.get(0)).await
    }

    pub async fn which_copy(&self) -> Result<Option<Copy>> {
        let copy = |r: &Row<'_>| {
            Ok(Copy {
                name: r.get("name")?,
                started_at: Moment(r.get("started_at")?),
            })
        };
        self.says(COPY, copy).await
    }

    pub async fn signal_at(&self, persona: Uuid, seq: i64) -> Result<Option<Uuid>> {
        self.read(move |c| {
            let place = params![persona.to_string(), seq];
            let there = c.query_row(AT_PLACE, place, |r| column::id(r, "id"));
            there.optional().map_err(failed)
        })
        .await
    }

    pub fn connect_anew(&self) {
        if let Some(pool) = &self.pool {
            pool.connect_anew();
            self.signal_readers.connect_anew();
            self.memory_readers.connect_anew();
        }
    }

    /// What the database says of itself, which not every one lets everybody ask. One that could not be asked has not
    /// said that.
    async fn says<T: Send + 'static>(
        &self,
        question: &'static str,
        read: fn(&Row<'_>) -> sql::Result<T>,
    ) -> Result<Option<T>> {
        if self.pool.is_none() {
            return Ok(None);
        }
        self.read(move |c| match c.query_row(question, [], read) {
            Err(sql::Error::Postgres(error)) if error.code().is_some_and(is_withheld) => {
                let why = sql::Error::said(&error);
                tracing::debug!(why, "The database does not say which one it is");
                Ok(None)
            }
            answer => answer.map(Some).map_err(failed),
        })
        .await
    }

    /// Leaves this server's duties to whoever comes next, who need not wait for their end. No socket is here any more.
    pub async fn leave_duties(&self) -> Result<()> {
        if self.pool.is_none() {
            return Ok(());
        }
        let server = self.bus.server().to_string();
        let leave = move |c: &Connection| {
            c.execute(LEAVE_SEATS, [&server]).map_err(failed)?;
            c.execute("delete from duties where server_id = ?", [server])
                .map_err(failed)
        };
        self.noted(Alone::Inboxes(Vec::new()), leave)
            .await
            .map(drop)
    }

    pub async fn has_duty(&self, duty: Duty, now: Moment, until: Moment) -> Result<bool> {
        if self.pool.is_none() {
            return Ok(true);
        }
        let server = self.bus.server().to_string();
        let held = move |c: &Connection| {
            let held = c.query_row(HELD_DUTY, [duty.name()], |r| {
                Ok((r.get::<_, String>(0)?, Moment(r.get(1)?)))
            });
            held.optional().map_err(failed)
        };
        // It is asked in every sweep: a write only where something changes, or half of the term is over.
        match self.read(held).await? {
            Some((holder, end)) if holder == server => {
                let half = until.since_us(now) / 2;
                if end.since_us(now) > half && end <= until {
                    return Ok(true);
                }
            }
            Some((_, end)) if end > now => return Ok(false),
            _ => {}
        }
        let take = move |c: &Connection| {
            let tenant = the_tenant(c)?.to_string();
            let taken = c.execute(
                TAKE_DUTY,
                params![tenant, duty.name(), server, until.0, now.0],
            );
            taken.map(|rows| rows > 0).map_err(failed)
        };
        self.noted(Alone::Inboxes(Vec::new()), take).await
    }

    pub async fn add_link(&self, sha256: String, until: Moment, now: Moment) -> Result<()> {
        self.write(move |c| {
            let tenant = the_tenant(c)?.to_string();
            c.execute("delete from sign_in_links where until <= ?", [now.0])
                .map_err(failed)?;
            // Those that nobody used make room.
            c.execute(
                "delete from sign_in_links where link_sha256 in
                     (select link_sha256 from sign_in_links where tenant_id = ?1
                      order by until desc, link_sha256 limit 1000 offset ?2)",
                params![tenant, LINKS_MAX as i64 - 1],
            )
            .map_err(failed)?;
            c.execute(
                "insert into sign_in_links (link_sha256, tenant_id, until) values (?, ?, ?)",
                params![sha256, tenant, until.0],
            )
            .map(drop)
            .map_err(failed)
        })
        .await
    }

    pub async fn take_link(&self, sha256: String, now: Moment) -> Result<bool> {
        // Anybody may try any link: what is none costs a look, not a write.
        let link = sha256.clone();
        let there = move |c: &Connection| {
            c.prepare_cached("select 1 from sign_in_links where link_sha256 = ?")
                .and_then(|mut s| s.exists([&link]))
                .map_err(failed)
        };
        if !self.read(there).await? {
            return Ok(false);
        }
        self.write(move |c| {
            let until: Option<i64> = c
                .query_row(
                    "delete from sign_in_links where link_sha256 = ? returning until",
                    [sha256],
                    |r| r.get(0),
                )
                .optional()
                .map_err(failed)?;
            Ok(until.is_some_and(|until| until > now.0))
        })
        .await
    }
}

/// Whether the database will never say it to this user, or has no word for it.
fn is_withheld(code: &SqlState) -> bool {
    [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::FEATURE_NOT_SUPPORTED,
    ]
    .contains(code)
}

/// How often names and sessions were changed.
pub(super) fn changes(c: &Connection) -> Result<(i64, i64)> {
    let changes = c.query_row(
        "select names, sessions from directory_versions limit 1",
        [],
        |r| Ok((r.get(0)?, r.get(1)?)),
    );
    Ok(changes.optional().map_err(failed)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_could_not_be_asked_has_not_said_that_it_will_not_tell() {
        assert!(is_withheld(&SqlState::INSUFFICIENT_PRIVILEGE));
        assert!(is_withheld(&SqlState::UNDEFINED_FUNCTION));
        for passing in [
            SqlState::OUT_OF_MEMORY,
            SqlState::DISK_FULL,
            SqlState::IO_ERROR,
            SqlState::CONNECTION_FAILURE,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        ] {
            assert!(!is_withheld(&passing), "{passing:?}");
        }
    }
}
