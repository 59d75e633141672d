//! What the database in use is, and what is said of one that cannot be used.

use super::{Result, StoreError, Tables, failed, migrate, tenants};
use crate::clock;
use crate::store::sql::{self, Connection, Link, MAY_BECOME, Server};
use prism_core::database::{Apart, Facts};
use prism_core::{Code, Problem};

/// How often a pooler is looked for.
const POOLER_LOOKS: usize = 3;

/// Looks at a database that servers share, without changing anything in it.
pub fn look_at_shared(url: &str) -> Result<Facts> {
    let server = super::super::Store::server(url)?;
    let link = connect(&server)?;
    look(&server, link).map(|(_, facts)| facts)
}

/// What is to be known of a database when one comes to it.
fn look(server: &Server, link: Box<Link>) -> Result<(Connection, Facts)> {
    // Asked first, since it may be why nothing else can be.
    let pooled = is_pooled(server, &link)?;
    let connection = Connection::Postgres(link);
    let found = match facts(&connection).map_err(failed) {
        Err(_) if pooled => Facts::default(),
        found => found?,
    };
    Ok((connection, Facts { pooled, ..found }))
}

/// Whether a pooler lends connections for a transaction: then two that are open at once may meet the same backend.
fn is_pooled(server: &Server, one: &Link) -> Result<bool> {
    let backend = |link: &Link, how: &str| {
        let pid = link.said(&format!("{how}select pg_backend_pid()"));
        pid.map_err(failed)
    };
    let other = connect(server)?;
    // Others who are at it at the same moment may hide it once.
    for _ in 0..POOLER_LOOKS {
        let mine = backend(one, "")?;
        let same = backend(&other, "begin; ")? == mine;
        other.batch("rollback").map_err(failed)?;
        if same {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The first connection of a server: it says what is wrong, and what should be known.
pub fn begin(server: &Server) -> Result<Box<Link>> {
    let (connection, facts) = look(server, connect(server)?)?;
    if let Some(refusal) = facts.refusal(migrate::NEWEST as u64) {
        return Err(refusal.into());
    }
    let (ahead_us, took_us) = clock_of(&connection).map_err(failed)?;
    clock::follow(ahead_us, took_us);
    tracing::info!(database = %server, "The database is {}", facts.line());
    for note in facts.notes() {
        tracing::warn!("{note}");
    }
    match connection {
        Connection::Postgres(link) => Ok(link),
        Connection::Sqlite(_) => Err(StoreError::Closed),
    }
}

fn connect(server: &Server) -> Result<Box<Link>> {
    server
        .connect()
        .map_err(|error| unreached(server, &error).into())
}

impl Tables {
    pub async fn facts(&self) -> Result<Facts> {
        let mut facts = self.read(|c| facts(c).map_err(failed)).await?;
        facts.index = self.near.told();
        // A newer one may have come to it since this server began.
        facts.knows = Some(migrate::NEWEST as u64);
        Ok(facts)
    }

    pub async fn follow_clock(&self) -> Result<()> {
        if !self.is_shared() {
            return Ok(());
        }
        let (ahead_us, took_us) = self.read(|c| clock_of(c).map_err(failed)).await?;
        clock::follow(ahead_us, took_us);
        Ok(())
    }
}

/// How far the database's clock is ahead of this machine's, and how long it took to ask.
fn clock_of(connection: &Connection) -> sql::Result<(i64, i64)> {
    let asked = clock::of_machine();
    let there: i64 = connection.query_row(
        "select cast(extract(epoch from clock_timestamp()) * 1000000 as bigint) as now_us",
        [],
        |row| row.get("now_us"),
    )?;
    let took = clock::of_machine().since_us(asked);
    // Half of the way there and back is what the question took.
    Ok((there - asked.0 - took / 2, took))
}

fn facts(connection: &Connection) -> sql::Result<Facts> {
    if let Connection::Sqlite(c) = connection {
        let version = c.query_row("select sqlite_version()", [], |row| row.get(0))?;
        let schema: i64 = c.pragma_query_value(None, "user_version", |row| row.get(0))?;
        return Ok(Facts {
            engine: "sqlite".into(),
            version,
            schema: schema as u64,
            ..Facts::default()
        });
    }
    let (ahead_us, _) = clock_of(connection)?;
    let mut found = connection.query_row(
        &format!(
            "select current_setting('server_version') as version,
                (select extversion from pg_extension where extname = 'vector') as pgvector,
                cast(pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on'
                     as int) as read_only,
                cast(not coalesce(has_schema_privilege(session_user, current_schema(), 'create'), false)
                     as int) as closed,
                case when u.rolsuper or u.rolcreaterole or exists (select 1 from pg_roles m
                        where m.rolname = 'prism_member' and not m.rolsuper and not m.rolbypassrls
                            and pg_has_role(session_user, m.oid, {MAY_BECOME})) then 'role'
                     when not u.rolbypassrls then 'force' else 'nothing' end as apart
         from pg_roles u where u.rolname = session_user"
        ),
        [],
        |row| {
            Ok(Facts {
                engine: "postgres".into(),
                version: row.get("version")?,
                pgvector: row.get("pgvector")?,
                read_only: row.get::<_, i64>("read_only")? != 0,
                closed: row.get::<_, i64>("closed")? != 0,
                clock_off_ms: ahead_us / 1000,
                apart: Apart::from_name(&row.get::<_, String>("apart")?),
                ..Facts::default()
            })
        },
    )?;
    found.grants = tenants::lacking(connection)?;
    // Whoever may not read it cannot tell, and why is told.
    if !found.grants.iter().any(|g| g.contains(" on prism_schema ")) {
        found.schema = schema(connection)?;
    }
    Ok(found)
}

/// The schema of a shared database; 0 where there is none yet.
pub fn schema(connection: &Connection) -> sql::Result<u64> {
    let there = "select to_regclass('prism_schema') is not null as there";
    if connection.query_row(there, [], |row| row.get::<_, i64>("there"))? == 0 {
        return Ok(0);
    }
    let sql = "select coalesce(max(version), 0) as version from prism_schema";
    let schema: i64 = connection.query_row(sql, [], |row| row.get("version"))?;
    Ok(schema as u64)
}

/// A database that could not be reached or let nobody in.
fn unreached(server: &Server, error: &sql::Error) -> Problem {
    let said = error.to_string();
    let has_code = matches!(error, sql::Error::Postgres(error) if error.code().is_some());
    let hint = match prism_core::database::remedy(&said) {
        Some(next) => next,
        None if has_code => "the database's log says more".into(),
        None if matches!(error, sql::Error::Silent(_)) => {
            "something listens there and says nothing: is it PostgreSQL, and does a firewall let answers through?".into()
        }
        None => "is it running, and is host and port right? `pg_isready` asks from here".into(),
    };
    let message = format!("the database at {server} cannot be used: {said}");
    Problem::new(Code::StorageFull, message, hint)
}
