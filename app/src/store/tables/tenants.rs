//! Tenants: whose rows there are. An operation comes to the rows of one of them; what is here stands beside them all, and
//! is for whoever may change the database.

use super::directory::{insert_key, insert_project};
use super::{Result, StoreError, Tables, column, failed, health, migrate, near};
use crate::clock;
use crate::store::sql::{self, Connection, Link, MAY_BECOME, MEMBER, Row, Server, params};
use crate::store::{KeyRow, Project, Tenant, TenantCounted};
use prism_core::tenant::{DEFAULT, TenantName};
use prism_core::{Code, Identity, Problem};
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// Rows that go in one transaction when a tenant is removed.
const REMOVED_ROWS: i64 = 2_000;
/// How often all tables are gone through, and the pause between: a server that still serves the tenant may write until
/// it hears of its end.
const REMOVAL_ROUNDS: usize = 10;
const REMOVAL_PAUSE: Duration = Duration::from_millis(500);
/// Stands before the id where a tenant's name was, from the moment it is being removed.
const GOING: &str = "removed ";

/// The one that is served by keys without a name, then by age.
const ALL: &str =
    "select id, name, created_at from tenants order by name <> 'default', created_at, id";
/// Keeps others from changing tenants or the schema until the transaction ends.
const ALONE: &str = "begin; select pg_advisory_xact_lock(hashtextextended('prism schema', 0))";

/// The rights that transactions need: a row for each table and right, under `name` and `needs`.
const RIGHTS: &str = "select c.oid, c.relname as name, r.needs
    from pg_class c cross join lateral unnest(case c.relname
        when 'tenants' then array['select'] when 'prism_schema' then array['select', 'update']
        when 'memory_fts' then array['insert', 'delete']
        else array['select', 'insert', 'update', 'delete'] end) as r(needs)
    where c.relnamespace = current_schema()::regnamespace and c.relkind in ('r', 'p')
        and c.relname <> 'prism_moving'";

/// What would give transactions the rights that they lack: those of the role they take on, or of the server's user where
/// they take on none.
pub(super) fn lacking(c: &Connection) -> sql::Result<Vec<String>> {
    let sql = format!(
        "with who as (select coalesce((select rolname from pg_roles where rolname = '{MEMBER}' and not rolsuper
                and not rolbypassrls and pg_has_role(session_user, oid, {MAY_BECOME})), session_user) as name)
         select format('grant %s on %I to %I', string_agg(n.needs, ', ' order by n.needs), n.name, who.name) as grant_them
         from ({RIGHTS}) n cross join who
         where not has_table_privilege(who.name, n.oid, n.needs)
             -- Others may have tables here, too.
             and exists (select 1 from pg_policy p where p.polname = 'tenant'
                 and (p.polrelid = n.oid or n.name in ('tenants', 'prism_schema')))
         group by n.name, who.name order by n.name"
    );
    let mut asked = c.prepare(&sql)?;
    asked.query_map([], |row| row.get("grant_them"))?.collect()
}

/// Makes the role that transactions take on, and lets it come to every table. Where that is not allowed all
/// stays as it is.
pub(super) fn let_members_in() -> String {
    format!(
        "do $$
        declare
            held_in record;
        begin
            begin
                if not exists (select 1 from pg_roles where rolname = '{MEMBER}') then
                    create role {MEMBER} nologin;
                end if;
            exception when duplicate_object or unique_violation then
                null;
            end;
            if not pg_has_role(current_user, '{MEMBER}', {MAY_BECOME}) then
                execute format('grant {MEMBER} to %I', current_user);
            end if;
            if not has_schema_privilege('{MEMBER}', current_schema(), 'usage') then
                execute format('grant usage on schema %I to {MEMBER}', current_schema());
            end if;
            for held_in in
                select n.name, string_agg(n.needs, ', ') || case n.name
                        when 'memory_fts' then ', select (rowid, tenant_id)' else '' end as rights
                from ({RIGHTS}) n where not has_table_privilege('{MEMBER}', n.oid, n.needs)
                group by n.name
            loop
                execute format('grant %s on %I to {MEMBER}', held_in.rights, held_in.name);
            end loop;
        exception when insufficient_privilege then
            null;
        end $$"
    )
}

/// Makes the database ready for tenants, and answers which one is the first.
pub fn prepare(connection: &Connection) -> Result<Uuid> {
    let link = owner(connection)?;
    in_transaction(link, || {
        link.batch(&let_members_in()).map_err(failed)?;
        let first = tenants(connection)?.into_iter().next();
        match first {
            Some(tenant) => Ok(tenant.id),
            None => insert(connection, DEFAULT),
        }
    })
}

fn owner(connection: &Connection) -> Result<&Link> {
    match connection {
        Connection::Postgres(link) => {
            link.stays_owner(true);
            Ok(link)
        }
        Connection::Sqlite(_) => Err(StoreError::Closed),
    }
}

pub(super) fn in_transaction<T>(link: &Link, work: impl FnOnce() -> Result<T>) -> Result<T> {
    link.begin(ALONE);
    let done = work();
    match &done {
        Ok(_) => link.commit().map_err(failed)?,
        Err(_) => drop(link.rollback()),
    }
    done
}

/// The rows from here to the transaction's end are this tenant's.
fn become_tenant(c: &Connection, tenant: &str) -> Result<()> {
    c.execute("select set_config('prism.tenant', ?, true)", [tenant])
        .map(drop)
        .map_err(failed)
}

/// Adds a tenant with the rows that a new store begins with.
fn insert(c: &Connection, name: &str) -> Result<Uuid> {
    let id = clock::new_id();
    c.execute(
        "insert into tenants (id, name, created_at) values (?, ?, ?)",
        params![id.to_string(), name, clock::now().0],
    )
    .map_err(failed)?;
    become_tenant(c, &id.to_string())?;
    c.run("insert into retention (id, begins_at) values (1, 0)")
        .map_err(failed)?;
    // Rows are numbered for all tenants: none of this one's comes before.
    c.run(
        "insert into memory_words_counted (last) select coalesce(pg_sequence_last_value(
            cast(pg_get_serial_sequence('memory', 'rowid') as regclass)), 0)",
    )
    .map_err(failed)?;
    Ok(id)
}

fn tenants(c: &Connection) -> Result<Vec<Tenant>> {
    let mut statement = c.prepare(ALL).map_err(failed)?;
    let rows = statement.query_map([], tenant).map_err(failed)?;
    rows.collect::<sql::Result<_>>().map_err(failed)
}

fn tenant(row: &Row<'_>) -> sql::Result<Tenant> {
    Ok(Tenant {
        id: column::id(row, "id")?,
        name: row.get("name")?,
        created_at: column::moment(row, "created_at")?,
    })
}

impl Tenant {
    pub fn is_going(&self) -> bool {
        self.name.starts_with(GOING)
    }
}

impl Tables {
    /// Every tenant, the first one first; those that are being removed are none any more.
    pub async fn tenants(&self) -> Result<Vec<Tenant>> {
        if self.pool.is_none() {
            return Ok(Vec::new());
        }
        let everybody = self.signal_readers.of(None);
        let mut tenants = everybody.read(tenants).await?;
        tenants.retain(|tenant| !tenant.is_going());
        Ok(tenants)
    }

    pub fn tenant(&self) -> Option<Uuid> {
        self.tenant
    }
}

/// A database as whoever administers it comes in.
struct Opened {
    connection: Connection,
    server: Server,
}

fn open(url: &str) -> Result<Opened> {
    let server = crate::store::Store::server(url)?;
    let connection = Connection::Postgres(health::begin(&server)?);
    Ok(Opened { connection, server })
}

/// What there is in the database, which servers of another version may stand on: it is upgraded by a server only.
fn open_as_it_is(url: &str) -> Result<Opened> {
    let opened = open(url)?;
    let schema = health::schema(&opened.connection).map_err(failed)?;
    if schema != migrate::NEWEST as u64 {
        return Err(Problem::new(
            Code::Conflict,
            match schema {
                0 => "this database holds no Prism yet".to_owned(),
                schema => format!(
                    "the database has schema {schema} and this prism writes {}",
                    migrate::NEWEST
                ),
            },
            "start a server of this version on it first: `prism serve --database URL`",
        )
        .into());
    }
    owner(&opened.connection)?;
    Ok(opened)
}

/// Adds a tenant with its operator's key and its first project.
pub fn add(
    url: &str,
    name: &TenantName,
    operator: Identity,
    project: Project,
    key: KeyRow,
) -> Result<Uuid> {
    let Opened { connection, server } = open_as_it_is(url)?;
    let link = owner(&connection)?;
    in_transaction(link, || {
        link.batch(&let_members_in()).map_err(failed)?;
        Ok(())
    })?;
    may_be_several(&server)?;
    in_transaction(link, || {
        let taken = tenants(&connection)?
            .into_iter()
            .any(|t| t.name == name.as_str());
        if taken {
            return Err(Problem::new(
                Code::Conflict,
                format!("there is a tenant {name} already"),
                "`prism tenant list` shows all; choose another name",
            )
            .into());
        }
        let id = insert(&connection, name.as_str())?;
        insert_project(&connection, &project, operator, key.created_at)?;
        insert_key(&connection, key)?;
        Ok(id)
    })
}

/// Whether whoever comes in there can serve more than one tenant.
pub fn may_be_several(server: &Server) -> Result<()> {
    if server.connect().map_err(failed)?.steps_down() {
        return Ok(());
    }
    Err(Problem::new(
        Code::Conflict,
        format!(
            "tenants cannot be kept apart here: the database's user may not take on the role {MEMBER}"
        ),
        format!(
            "as a superuser: `create role {MEMBER} nologin; grant {MEMBER} to USER`, then try again"
        ),
    )
    .into())
}

/// Every tenant with how much it has.
pub fn list(url: &str) -> Result<Vec<TenantCounted>> {
    let Opened { connection: c, .. } = open_as_it_is(url)?;
    let link = owner(&c)?;
    let mut counted = Vec::new();
    for tenant in tenants(&c)? {
        link.begin("begin read only");
        become_tenant(&c, &tenant.id.to_string())?;
        let id = tenant.id.to_string();
        let count = |sql: &str| -> Result<u64> {
            let counted = c.query_row(sql, [&id], |row| row.get::<_, i64>(0));
            Ok(counted.map_err(failed)? as u64)
        };
        counted.push(TenantCounted {
            projects: count("select count(*) from projects where tenant_id = ?")?,
            agents: count(
                "select count(distinct identity_folded) from personas
                 where tenant_id = ? and is_operator = 0",
            )?,
            sessions: count(
                "select count(*) from sessions where tenant_id = ? and released_at is null",
            )?,
            memory: count("select coalesce(sum(rows), 0) from memory_counts where tenant_id = ?")?,
            being_removed: tenant.is_going(),
            tenant,
        });
        link.commit().map_err(failed)?;
    }
    Ok(counted)
}

/// The tenant of that name or, where one is being removed, of that id.
pub fn find(url: &str, wanted: &str) -> Result<Tenant> {
    let Opened { connection, .. } = open_as_it_is(url)?;
    found(&connection, wanted)
}

fn found(c: &Connection, wanted: &str) -> Result<Tenant> {
    let all = tenants(c)?;
    let first = all.first().map(|tenant| tenant.id);
    let is_it = |t: &&Tenant| t.name == wanted || t.id.to_string() == wanted;
    let Some(tenant) = all.iter().find(is_it) else {
        let names: Vec<_> = all.iter().map(|t| t.name.as_str()).collect();
        return Err(Problem::new(
            Code::NotFound,
            format!(
                "there is no tenant {:?}",
                prism_core::text::clip(wanted, 40)
            ),
            format!("known: {}", names.join(", ")),
        )
        .into());
    };
    if Some(tenant.id) == first {
        return Err(Problem::new(
            Code::Conflict,
            format!(
                "{} is the tenant that this database began with, whose operator's key is in config.toml",
                tenant.name
            ),
            "it goes with the database: `dropdb`; the others can be removed",
        )
        .into());
    }
    Ok(tenant.clone())
}

/// Takes a tenant out with every row it has, and answers how many those were.
pub fn remove(url: &str, wanted: &str) -> Result<u64> {
    let Opened { connection: c, .. } = open_as_it_is(url)?;
    let link = owner(&c)?;
    let id = in_transaction(link, || {
        let tenant = found(&c, wanted)?;
        // From here on nobody serves it, and whoever is cut off here can go on.
        c.execute(
            "update tenants set name = ? where id = ?",
            [format!("{GOING}{}", tenant.id), tenant.id.to_string()],
        )
        .map_err(failed)?;
        Ok(tenant.id.to_string())
    })?;
    let mut tables = children_first(&c)?;
    // It counts what goes from other tables, too.
    tables.sort_by_key(|table| table == "directory_versions");
    let mut gone = 0;
    for _ in 0..REMOVAL_ROUNDS {
        let emptied = empty(&c, &id, &tables, &mut gone)
            .and_then(|()| near::forget_tenant(&c, link, &id))
            .and_then(|()| in_transaction(link, || forget(&c, &id)));
        match emptied {
            // Somebody wrote behind us.
            Err(StoreError::Dangling | StoreError::Again(_)) => std::thread::sleep(REMOVAL_PAUSE),
            emptied => return emptied.map(|()| gone),
        }
    }
    Err(Problem::new(
        Code::Conflict,
        "rows of this tenant are still being written",
        format!("run `prism tenant remove {id}` again; a server that was cut off from the database may still serve it"),
    )
    .into())
}

fn forget(c: &Connection, id: &str) -> Result<()> {
    c.execute("delete from tenants where id = ?", [id])
        .map(drop)
        .map_err(failed)
}

fn empty(c: &Connection, id: &str, tables: &[String], gone: &mut u64) -> Result<()> {
    for table in tables {
        let sql = format!(
            "delete from \"{table}\" where ctid = any (array(
                select ctid from \"{table}\" where tenant_id = ?1 limit ?2))"
        );
        loop {
            c.begin_writing().map_err(failed)?;
            let deleted = become_tenant(c, id)
                .and_then(|()| c.execute(&sql, params![id, REMOVED_ROWS]).map_err(failed));
            let deleted = match deleted {
                Ok(deleted) => deleted,
                Err(error) => {
                    drop(c.rollback());
                    return Err(error);
                }
            };
            c.commit().map_err(failed)?;
            *gone += deleted as u64;
            if (deleted as i64) < REMOVED_ROWS {
                break;
            }
        }
    }
    Ok(())
}

/// The tables that hold tenants' rows, each before those that it refers to.
fn children_first(c: &Connection) -> Result<Vec<String>> {
    let names = |sql: &str| -> Result<Vec<(String, String)>> {
        let mut statement = c.prepare(sql).map_err(failed)?;
        let rows = statement
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
            .map_err(failed)?;
        rows.collect::<sql::Result<_>>().map_err(failed)
    };
    let mut left: BTreeSet<String> = names(
        "select cast(table_name as text), '' from information_schema.columns
         where table_schema = current_schema() and column_name = 'tenant_id'",
    )?
    .into_iter()
    .map(|(table, _)| table)
    .collect();
    let refers = names(
        "select cast(t.relname as text), cast(r.relname as text)
         from pg_constraint k join pg_class t on t.oid = k.conrelid join pg_class r on r.oid = k.confrelid
         where k.contype = 'f' and k.connamespace = cast(current_schema() as regnamespace)
             and t.oid <> r.oid",
    )?;
    // What is counted by triggers need not be counted down row by row.
    let mut ordered = vec!["memory_counts".to_owned()];
    left.remove("memory_counts");
    while !left.is_empty() {
        let free = |table: &&String| {
            let by = |(from, to): &(String, String)| to == *table && left.contains(from);
            !refers.iter().any(by)
        };
        let Some(table) = left.iter().find(free).cloned() else {
            return Err(StoreError::Failed("tables refer to each other".into()));
        };
        left.remove(&table);
        ordered.push(table);
    }
    Ok(ordered)
}

/// The tenant whose rows are moved out of a database, which is the one that is named or the only one; and whether there
/// are rows of others.
pub(super) fn to_move(c: &Connection, wanted: Option<&str>, shown: &str) -> Result<(Tenant, bool)> {
    let all = tenants(c)?;
    let several = all.len() > 1;
    let names: Vec<_> = all.iter().map(|t| t.name.clone()).collect();
    let known = format!("known: {}", names.join(", "));
    let refused = |code, message: String, hint: String| Problem::new(code, message, hint);
    let found = match wanted {
        Some(wanted) => all.into_iter().find(|t| t.name == wanted).ok_or_else(|| {
            let message = format!("there is no tenant {wanted:?} in {shown}");
            refused(Code::NotFound, message, known)
        }),
        None if several => Err(refused(
            Code::Conflict,
            format!(
                "{shown} has {} tenants, and a SQLite file has room for one",
                names.len()
            ),
            format!("say which one with --tenant; {known}"),
        )),
        None => all.into_iter().next().ok_or_else(|| {
            let message = format!("{shown} holds no tenant");
            refused(Code::NotFound, message, "there is nothing to move".into())
        }),
    };
    Ok((found?, several))
}
