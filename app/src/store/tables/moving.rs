//! Moving house: every row of a store, from one engine to the other.
//!
//! Rows are copied table by table in the order of their keys, a batch a transaction, all from one
//! look at the source. How far a table has come is how many rows it has, so a move that was cut off
//! goes on by itself, after a look whether the source still begins with those rows. At the end every
//! table is counted and hashed on both sides, by a new look at the source. Until then the target is
//! marked, and no server starts on it.

mod tables;

use super::{Result, StoreError, backup, failed, held, migrate, tenants};
use crate::config::failpoint;
use crate::home::Home;
use crate::store::sql::{Connection, Link, Server, params};
use prism_core::{Code, Problem};
use rusqlite::OpenFlags;
use rusqlite::config::DbConfig;
use serde::Serialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tables::{Table, Which, count};

/// The table that stands in a target until its move is done, and says whose rows it holds.
const MARK: &str = "prism_moving";
/// Rows, or bytes, that are committed together.
const BATCH_ROWS: usize = 1_000;
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// How often it is looked whether servers are gone, and the pause between.
const GONE_TRIES: u32 = 20;
const GONE_PAUSE: Duration = Duration::from_millis(50);
/// How a connection of a move is called: `prism` is a server's.
const APPLICATION: &str = "prism migrate-store";
/// Rows of memory with the words under which they are found.
const WORDS: &str = "select rowid, title, text, coalesce(
        also, (select touched_files from session_deltas d where d.id = memory.id), '')
    from memory where rowid > ? order by rowid limit ?";

/// Where a store is.
#[derive(Clone)]
pub enum Place {
    File(PathBuf),
    Server(Box<Server>),
}

impl Place {
    pub fn file(file: PathBuf) -> Self {
        Self::File(file)
    }

    pub fn server(url: &str) -> Result<Self> {
        let parsed = Server::parse(url).map_err(|e| {
            Problem::new(
                Code::InvalidRequest,
                format!("not the URL of a PostgreSQL database: {e}"),
                "write postgres://user:password@host:5432/name",
            )
        })?;
        Ok(Self::Server(Box::new(parsed)))
    }

    /// The place as it may be shown: without a password.
    pub fn shown(&self) -> String {
        match self {
            Self::File(file) => format!("sqlite:{}", file.display()),
            Self::Server(server) => server.shown(),
        }
    }
}

/// What a move did.
#[derive(Debug, Serialize)]
pub struct Moved {
    pub from: String,
    pub to: String,
    /// It went on with what another one had begun.
    pub resumed: bool,
    /// The source was no longer what another one had begun to copy.
    pub began_anew: bool,
    /// Rows that were copied now and held U+0000, which PostgreSQL cannot keep: another sign stands there.
    pub changed: u64,
    pub rows: u64,
    pub tables: Vec<MovedTable>,
}

#[derive(Debug, Serialize)]
pub struct MovedTable {
    pub table: String,
    pub rows: u64,
    /// Those that were copied now, and not by one that was cut off.
    pub copied: u64,
    /// Of all values of all rows, the same on both sides.
    pub sha256: String,
}

/// Told what is being done, how many rows it has come through, and of how many.
pub type Tell<'a> = &'a mut dyn FnMut(&'static str, u64, u64);

/// Whether it is a way from one engine to the other.
pub fn check(from: &Place, to: &Place) -> Result<()> {
    match (from, to) {
        (Place::File(_), Place::File(_)) => Err(refused(
            Code::InvalidRequest,
            "both are SQLite files",
            "`prism backup FILE` copies one, while a server runs too",
        )),
        (Place::Server(_), Place::Server(_)) => Err(refused(
            Code::InvalidRequest,
            "both are PostgreSQL databases",
            "pg_dump and pg_restore copy one: see docs/moving.md",
        )),
        _ => Ok(()),
    }
}

/// Copies every row from one place to another, which holds none yet, and proves it.
/// Of a database with several tenants one is moved.
pub fn run(from: &Place, to: &Place, tenant: Option<&str>, tell: Tell<'_>) -> Result<Moved> {
    check(from, to)?;
    let source = open_source(from)?;
    let whose = whose(&source, from, tenant)?;
    let mut target = open_target(to, &whose)?;
    let tables = match (&source, &target.connection) {
        (Connection::Sqlite(_), other) => tables::of(&source, other)?,
        (other, embedded) => tables::of(embedded, other)?,
    };
    let mut sizes = Vec::new();
    for table in &tables {
        sizes.push(count(&source, &table.name)?);
    }
    let all: u64 = sizes.iter().sum();
    let resumed = target.begun;
    let mut began_anew = false;
    if !target.begun {
        target.mark(&tables, &whose)?;
    } else if !is_beginning(&source, &target.connection, &tables, tell)? {
        target.begin_anew(to, &tables, &whose)?;
        began_anew = true;
    }
    let c = &target.connection;
    let (mut at, mut copied, mut changed) = (0, Vec::new(), 0);
    for table in &tables {
        let there = count(c, &table.name)?;
        at += there;
        let (now, mended) = copy(table, &source, c, there, &mut |rows| {
            at += rows;
            tell("Copying", at, all);
        })?;
        copied.push(now);
        changed += mended;
    }
    index_words(c, tell)?;
    if let Connection::Postgres(link) = c {
        set_sequences(c, link)?;
        link.batch("analyze").map_err(failed)?;
    }
    if failpoint("moving.waits") {
        // Until a test has done something to the source.
        eprintln!("waiting");
        drop(std::io::stdin().read_line(&mut String::new()));
    }
    // Another look: what was written since the first one is seen as well.
    source.commit().map_err(failed)?;
    source.begin_reading().map_err(failed)?;
    let proven = prove(&source, c, &tables, tell)?;
    let tables: Vec<MovedTable> = (tables.into_iter().zip(proven).zip(copied))
        .map(|((table, tally), copied)| MovedTable {
            table: table.name,
            rows: tally.rows,
            copied,
            sha256: tally.sha256,
        })
        .collect();
    target.finish(to)?;
    Ok(Moved {
        from: from.shown(),
        to: to.shown(),
        resumed: resumed && !began_anew,
        began_anew,
        changed,
        rows: tables.iter().map(|t| t.rows).sum(),
        tables,
    })
}

fn refused(code: Code, message: impl Into<String>, hint: impl Into<String>) -> StoreError {
    Problem::new(code, message, hint).into()
}

/// A connection to PostgreSQL for work that takes as long as it takes.
fn connect(server: &Server) -> Result<Connection> {
    let link = server.connect().map_err(failed)?;
    link.take_time(true).map_err(failed)?;
    link.batch(&format!("set application_name = '{APPLICATION}'"))
        .map_err(failed)?;
    Ok(Connection::Postgres(link))
}

/// Opens a store that is not changed, and begins to look at it.
fn open_source(place: &Place) -> Result<Connection> {
    let shown = place.shown();
    let connection = match place {
        Place::File(file) => {
            if !file.is_file() {
                let message = format!("there is no file {}", file.display());
                return Err(refused(Code::NotFound, message, "check that path"));
            }
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let c = rusqlite::Connection::open_with_flags(file, flags).map_err(failed)?;
            Connection::Sqlite(c)
        }
        Place::Server(server) => {
            let connection = connect(server)?;
            nobody_serves(&connection, &shown)?;
            // A store that was moved or restored here has never let anybody else in.
            if let Connection::Postgres(link) = &connection {
                link.stays_owner(true);
            }
            connection
        }
    };
    connection.begin_reading().map_err(failed)?;
    let schema = match &connection {
        Connection::Sqlite(c) => backup::is_store(c, &shown)?,
        Connection::Postgres(link) => {
            let schema = shared_schema(link)?.ok_or_else(|| {
                let message = format!("{shown} is not a Prism database");
                refused(Code::InvalidRequest, message, "check the URL's last part")
            })?;
            migrate::known(schema)?;
            schema
        }
    };
    if is_marked(&connection)? {
        return Err(refused(
            Code::Conflict,
            format!("a move into {shown} was begun and is not done"),
            "finish that one first, or move from where it came from",
        ));
    }
    if schema < migrate::NEWEST {
        return Err(refused(
            Code::Conflict,
            format!(
                "{shown} has schema {schema}, and this prism writes {}",
                migrate::NEWEST
            ),
            "start a server of this version on it once (`prism up`, then `prism down`), which upgrades it",
        ));
    }
    if let Connection::Postgres(_) = &connection {
        only_ours(&connection, &shown)?;
    }
    if let Connection::Sqlite(c) = &connection {
        backup::whole(c, &shown)?;
        refers_to_what_is_there(&connection, &shown)?;
    }
    Ok(connection)
}

/// Refuses a database that others keep their tables in: whose rows would be moved, or in whose midst, nobody could say.
fn only_ours(c: &Connection, shown: &str) -> Result<()> {
    match tables::stranger(c, &new_store()?)? {
        None => Ok(()),
        Some(name) => Err(refused(
            Code::Conflict,
            format!("{shown} has a table that is not Prism's: {name}"),
            "name a database of Prism's own (`createdb NAME`); nothing was changed in this one",
        )),
    }
}

fn refers_to_what_is_there(c: &Connection, shown: &str) -> Result<()> {
    let found = c
        .prepare("select \"table\", parent from pragma_foreign_key_check limit 1")
        .and_then(|mut statement| {
            let mut rows = statement.query([])?;
            let row = rows.next()?;
            row.map(|r| Ok((r.get(0)?, r.get(1)?))).transpose()
        });
    match found.map_err(failed)? {
        None::<(String, String)> => Ok(()),
        Some((table, parent)) => Err(refused(
            Code::Conflict,
            format!(
                "{shown} is damaged: a row of {table} refers to one of {parent} that is not there"
            ),
            "take an older copy, or mend that row",
        )),
    }
}

fn shared_schema(link: &Link) -> Result<Option<usize>> {
    if !has_table(link, "prism_schema")? {
        return Ok(None);
    }
    let found = link.query("select version from prism_schema", &[]);
    let found = found.map_err(failed)?;
    Ok(found.first().map(|row| row.get::<_, i64>(0) as usize))
}

fn has_table(link: &Link, name: &str) -> Result<bool> {
    let found = link.query("select to_regclass(?) is not null", &[&name]);
    Ok(found.map_err(failed)?.iter().any(|row| row.get(0)))
}

fn is_marked(c: &Connection) -> Result<bool> {
    match c {
        Connection::Postgres(link) => has_table(link, MARK),
        Connection::Sqlite(_) => c
            .prepare("select 1 from sqlite_schema where name = ?")
            .and_then(|mut s| s.exists([MARK]))
            .map_err(failed),
    }
}

/// Refuses a database that a move was begun into: it holds only some of its rows.
pub(super) fn not_half_way(link: &Link) -> Result<()> {
    match has_table(link, MARK)? {
        true => Err(StoreError::Failed(
            "a move into this database was begun and is not done: run `prism migrate-store` again, which goes on with it".into(),
        )),
        false => Ok(()),
    }
}

/// What servers write while it is copied would stay behind. One that was just stopped may need a
/// moment to be gone.
fn nobody_serves(c: &Connection, shown: &str) -> Result<()> {
    let sql = "select count(*) from pg_stat_activity
        where datname = current_database() and (application_name = 'prism' or application_name like 'prism: %')";
    let mut connections = 0;
    for _ in 0..GONE_TRIES {
        connections = c
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map_err(failed)?;
        if connections == 0 {
            return Ok(());
        }
        std::thread::sleep(GONE_PAUSE);
    }
    Err(refused(
        Code::Conflict,
        format!("a server runs on {shown} ({connections} connections)"),
        "stop every server that stands on it (`prism down`), then run this again",
    ))
}

/// Says whose rows these are, whatever the place is called next time: the id of their tenant. From here on the source is
/// looked at as that tenant sees it.
fn whose(source: &Connection, from: &Place, tenant: Option<&str>) -> Result<String> {
    if let Connection::Sqlite(_) = source {
        if let Some(name) = tenant {
            return Err(refused(
                Code::InvalidRequest,
                format!(
                    "{} has one tenant, which has no name: {name:?} says nothing here",
                    from.shown()
                ),
                "leave out --tenant",
            ));
        }
        let tenants = tables::names(source, "select id from tenants order by id", &[])?;
        return Ok(tenants.join(" "));
    }
    let (tenant, is_one_of_several) = tenants::to_move(source, tenant, &from.shown())?;
    source.commit().map_err(failed)?;
    source.becomes(Some(tenant.id));
    if let Connection::Postgres(link) = source {
        link.stays_owner(!is_one_of_several);
    }
    source.begin_reading().map_err(failed)?;
    Ok(tenant.id.to_string())
}

/// Where rows come to.
struct Target {
    connection: Connection,
    /// Another move has begun to fill it.
    begun: bool,
}

fn unfinished(file: &Path) -> Result<(Home, String, String)> {
    let folder = match file.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => Path::new("."),
    };
    let name = file.file_name().and_then(|name| name.to_str());
    let Some(name) = name.filter(|_| folder.is_dir()) else {
        return Err(refused(
            Code::NotFound,
            format!("{} is no file in a folder that is there", file.display()),
            "make that folder first, or name another",
        ));
    };
    Ok((Home::at(folder), name.to_owned(), format!("{name}.moving")))
}

/// Refuses a file into which rows are on their way: whoever began anew beside them would never see them.
pub fn nothing_on_its_way(file: &Path) -> Result<()> {
    let half = PathBuf::from(format!("{}.moving", file.display()));
    if file.exists() || !half.exists() {
        return Ok(());
    }
    let next = "`prism migrate-store` with the same two places goes on with it";
    Err(refused(
        Code::Conflict,
        format!(
            "a move into it is not done: {next}, or remove {}",
            half.display()
        ),
        next,
    ))
}

fn open_target(place: &Place, whose: &str) -> Result<Target> {
    let target = match place {
        Place::File(file) => open_target_file(file)?,
        Place::Server(server) => open_target_database(server, &place.shown())?,
    };
    if target.begun {
        let from = tables::names(
            &target.connection,
            &format!("select whose from {MARK}"),
            &[],
        )?;
        if from.first().is_none_or(|from| from != whose) {
            let (what, next) = match place {
                Place::File(file) => (
                    format!("{}.moving", file.display()),
                    "go on with that one, or remove that file",
                ),
                Place::Server(_) => (
                    place.shown(),
                    "go on with that one, or make another database",
                ),
            };
            let message = format!("{what} holds a part of another store, whose move is not done");
            return Err(refused(Code::Conflict, message, next));
        }
    }
    if let Connection::Postgres(link) = &target.connection {
        let tenant: uuid::Uuid = whose.parse().map_err(|_| {
            StoreError::Failed(format!(
                "the source's tenant has no id that can be kept: {whose:?}"
            ))
        })?;
        link.batch(&format!("set prism.tenant = '{tenant}'"))
            .map_err(failed)?;
    }
    Ok(target)
}

/// A file gets its name when it is whole.
fn open_target_file(file: &Path) -> Result<Target> {
    let (home, _, unfinished) = unfinished(file)?;
    if file.exists() {
        return Err(refused(
            Code::Conflict,
            format!("{} exists already", file.display()),
            "name a file that is not there; an old one is yours to move away",
        ));
    }
    let path = home.path(&unfinished);
    let c = rusqlite::Connection::open(&path).map_err(failed)?;
    let opened = c
        .execute_batch(
            "pragma locking_mode = exclusive; pragma journal_mode = delete; pragma synchronous = full;
             pragma foreign_keys = off; pragma temp_store = memory; pragma cache_size = -64000;
             begin exclusive; commit",
        )
        .and_then(|()| c.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false));
    if let Err(error) = opened {
        return Err(match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DatabaseBusy) => another_moves(&path.display()),
            _ => failed(error),
        });
    }
    let mut connection = Connection::Sqlite(c);
    let mut begun = is_marked(&connection)?;
    if !begun {
        migrate::migrate(&mut connection)?;
        begun = mark_again(&connection)?;
    }
    Ok(Target { connection, begun })
}

/// A move that was killed between its last two steps leaves a file that is whole and has no mark and not yet its name. It
/// gets its mark back, and is looked through like any other that was cut off. False for one that has no rows.
fn mark_again(c: &Connection) -> Result<bool> {
    let tenants = tables::names(c, "select id from tenants order by id", &[])?;
    if tenants.is_empty() {
        return Ok(false);
    }
    c.begin_writing().map_err(failed)?;
    put_mark(c, &tenants.join(" "))?;
    c.commit().map_err(failed)?;
    Ok(true)
}

fn put_mark(c: &Connection, whose: &str) -> Result<()> {
    c.execute_batch(&format!("create table {MARK} (whose text not null)"))
        .map_err(failed)?;
    c.execute(&format!("insert into {MARK} (whose) values (?)"), [whose])
        .map_err(failed)?;
    Ok(())
}

fn another_moves(shown: &impl std::fmt::Display) -> StoreError {
    refused(
        Code::Conflict,
        format!("another move into {shown} is under way"),
        "wait for its end",
    )
}

fn open_target_database(server: &Server, shown: &str) -> Result<Target> {
    let mut connection = connect(server)?;
    let Connection::Postgres(link) = &connection else {
        return Err(StoreError::Closed);
    };
    link.stays_owner(true);
    let locked = link.query(
        "select pg_try_advisory_lock(hashtextextended('prism moving', 0))",
        &[],
    );
    if !locked.map_err(failed)?.iter().any(|row| row.get(0)) {
        return Err(another_moves(&shown));
    }
    let begun = has_table(link, MARK)?;
    if !begun {
        // Before anything is done to it: an upgrade would be.
        only_ours(&connection, shown)?;
        if let Some(schema) = shared_schema(link)? {
            migrate::known(schema)?;
            let tenants = link.query("select count(*) from tenants", &[]);
            let tenants: i64 = tenants.map_err(failed)?.first().map_or(0, |row| row.get(0));
            holds_nothing("tenants", tenants as u64, 0)?;
        }
        migrate::migrate(&mut connection)?;
    }
    Ok(Target { connection, begun })
}

fn holds_nothing(table: &str, rows: u64, fresh: u64) -> Result<()> {
    match rows > fresh {
        true => Err(refused(
            Code::Conflict,
            format!("the target holds rows already: {rows} in {table}"),
            "name a database that is empty; nothing was changed in this one",
        )),
        false => Ok(()),
    }
}

impl Target {
    /// Sees that nothing is there, and marks what comes from now on as unfinished.
    fn mark(&self, tables: &[Table], whose: &str) -> Result<()> {
        let c = &self.connection;
        c.begin_writing().map_err(failed)?;
        if let Connection::Postgres(link) = c {
            // Rows come many at a time, which no policy is asked about: until the mark is gone nobody
            // else comes here.
            link.batch(&no_force(tables)).map_err(failed)?;
        }
        let fresh = rows_of_a_new_store(tables)?;
        for table in tables {
            let fresh = fresh.get(&table.name).copied().unwrap_or(0);
            holds_nothing(&table.name, count(c, &table.name)?, fresh)?;
        }
        put_mark(c, whose)?;
        self.empty(tables)?;
        c.commit().map_err(failed)
    }

    /// Takes out every row, those that a new store begins with as well: the source has its own.
    fn empty(&self, tables: &[Table]) -> Result<()> {
        let names: Vec<String> = tables.iter().map(|t| format!("\"{}\"", t.name)).collect();
        let sql = match &self.connection {
            Connection::Postgres(_) => format!("truncate memory_fts, {}", names.join(", ")),
            Connection::Sqlite(_) => names.iter().map(|n| format!("delete from {n};")).collect(),
        };
        self.connection.execute_batch(&sql).map_err(failed)
    }

    fn begin_anew(&mut self, place: &Place, tables: &[Table], whose: &str) -> Result<()> {
        let Place::File(file) = place else {
            return self.empty(tables);
        };
        let (home, _, unfinished) = unfinished(file)?;
        let none = rusqlite::Connection::open_in_memory().map_err(failed)?;
        self.connection = Connection::Sqlite(none);
        home.remove(&unfinished);
        home.remove(&format!("{unfinished}-journal"));
        *self = open_target_file(file)?;
        self.mark(tables, whose)
    }

    /// Takes the mark away: from here on it is a store.
    fn finish(self, place: &Place) -> Result<()> {
        let drop_mark = format!("drop table {MARK}");
        let apart = tenants::let_members_in();
        let forced = format!("begin; select keep_tenants_apart(); {apart}; {drop_mark}; commit");
        let finish = self.connection.either(&drop_mark, &forced);
        self.connection.execute_batch(finish).map_err(failed)?;
        let (Place::File(file), Connection::Sqlite(c)) = (place, self.connection) else {
            return Ok(());
        };
        c.close().map_err(|(_, error)| failed(error))?;
        if failpoint("moving.unnamed") {
            std::process::exit(137);
        }
        let (home, name, unfinished) = unfinished(file)?;
        home.put(&unfinished, &name).map_err(|e| {
            refused(
                Code::Conflict,
                format!(
                    "{e:#}; all rows are in {}",
                    home.path(&unfinished).display()
                ),
                "move away what stands there, then give that file its name",
            )
        })
    }
}

/// Lets the owner of the tables pass their policies.
fn no_force(tables: &[Table]) -> String {
    let of = |table: &Table| {
        format!(
            "alter table \"{}\" no force row level security;",
            table.name
        )
    };
    let but_tenants = tables.iter().filter(|table| table.name != "tenants");
    but_tenants.map(of).collect()
}

/// A store of this version that nobody has used.
fn new_store() -> Result<Connection> {
    let fresh = rusqlite::Connection::open_in_memory().map_err(failed)?;
    let mut fresh = Connection::Sqlite(fresh);
    migrate::migrate(&mut fresh)?;
    Ok(fresh)
}

/// How many rows each table has in a store that was just made.
fn rows_of_a_new_store(tables: &[Table]) -> Result<HashMap<String, u64>> {
    let fresh = new_store()?;
    let rows = |table: &Table| Ok((table.name.clone(), count(&fresh, &table.name)?));
    tables.iter().map(rows).collect()
}

/// Whether what was copied is what the source begins with.
fn is_beginning(
    source: &Connection,
    target: &Connection,
    tables: &[Table],
    tell: Tell<'_>,
) -> Result<bool> {
    let (mut at, mut all) = (0, 0);
    for table in tables {
        all += count(target, &table.name)?;
    }
    target.begin_reading().map_err(failed)?;
    let compared = tables.iter().try_fold(true, |same, table| {
        let there = table.tally(target, Which::All, || {
            at += 1;
            tell("Checking what was copied before", at, all);
        })?;
        let first = table.tally(source, Which::First(there.rows), || {})?;
        Ok(same && there == first)
    });
    target.commit().map_err(failed)?;
    compared
}

/// Copies the rows of a table that are not there yet; answers how many.
fn copy(
    table: &Table,
    source: &Connection,
    target: &Connection,
    there: u64,
    tell: &mut dyn FnMut(u64),
) -> Result<(u64, u64)> {
    let most = if failpoint("moving.killed") {
        2
    } else {
        BATCH_ROWS
    };
    let (mut batch, mut bytes, mut copied, mut changed) = (Vec::new(), 0, 0, 0);
    let mut flush = |batch: &mut Vec<_>| -> Result<()> {
        target.begin_writing().map_err(failed)?;
        table.write(target, batch)?;
        target.commit().map_err(failed)?;
        if failpoint("moving.killed") && table.name == "memory" {
            std::process::exit(137);
        }
        copied += batch.len() as u64;
        tell(batch.len() as u64);
        batch.clear();
        Ok(())
    };
    table.read(source, Which::After(there), |mut row| {
        changed += u64::from(tables::make_keepable(&mut row));
        bytes += tables::size(&row);
        batch.push(row);
        if batch.len() >= most || bytes >= BATCH_BYTES {
            bytes = 0;
            flush(&mut batch)?;
        }
        Ok(())
    })?;
    if !batch.is_empty() {
        flush(&mut batch)?;
    }
    Ok((copied, changed))
}

/// Makes the index of words, which each engine has in its own way, from the rows that are there.
fn index_words(c: &Connection, tell: Tell<'_>) -> Result<()> {
    let all = count(c, "memory")?;
    let mut done = count(c, "memory_fts")?;
    let last = "select coalesce(max(rowid), 0) from memory_fts";
    let mut last: i64 = c.query_row(last, [], |r| r.get(0)).map_err(failed)?;
    loop {
        c.begin_writing().map_err(failed)?;
        let mut statement = c.prepare_cached(WORDS).map_err(failed)?;
        let rows: Vec<(i64, Option<String>, String, String)> = statement
            .query_map(params![last, BATCH_ROWS as i64], |r| {
                Ok((r.get(0)?, r.get(1)?, r.get(2)?, r.get(3)?))
            })
            .and_then(Iterator::collect)
            .map_err(failed)?;
        drop(statement);
        for (row, title, text, also) in &rows {
            // Nothing is looked up by its label.
            held::add(c, *row, title.as_deref(), &format!("{text}\n{also}"), "")?;
        }
        c.commit().map_err(failed)?;
        let Some((row, ..)) = rows.last() else {
            return Ok(());
        };
        last = *row;
        done += rows.len() as u64;
        tell("Making the index of words", done, all);
    }
}

/// Numbers that PostgreSQL gives go on behind those that came with the rows.
fn set_sequences(c: &Connection, link: &Link) -> Result<()> {
    let numbered = "select table_name || ' ' || column_name from information_schema.columns
        where table_schema = current_schema() and is_identity = 'YES'";
    for numbered in tables::names(c, numbered, &[])? {
        let Some((table, column)) = numbered.split_once(' ') else {
            continue;
        };
        link.batch(&format!(
            "select setval(pg_get_serial_sequence('\"{table}\"', '{column}'),
                greatest(coalesce(max(\"{column}\"), 0), 1), max(\"{column}\") is not null)
             from \"{table}\""
        ))
        .map_err(failed)?;
    }
    Ok(())
}

/// Counts and hashes every table on both sides.
fn prove(
    source: &Connection,
    target: &Connection,
    tables: &[Table],
    tell: Tell<'_>,
) -> Result<Vec<tables::Tally>> {
    let (mut at, mut all) = (0, 0);
    for table in tables {
        all += count(source, &table.name)?;
    }
    target.begin_reading().map_err(failed)?;
    let mut proven = Vec::new();
    for table in tables {
        let here = table.tally(source, Which::All, || {
            at += 1;
            tell("Verifying", at, all);
        })?;
        let there = table.tally(target, Which::All, || {})?;
        if here != there {
            let how = match here.rows == there.rows {
                true => format!("{} rows on both sides, and not the same", here.rows),
                false => format!(
                    "{} rows in the source and {} in the target",
                    here.rows, there.rows
                ),
            };
            return Err(refused(
                Code::Conflict,
                format!(
                    "{} has {how}: rows changed while they were copied",
                    table.name
                ),
                "stop whatever writes there, then run the same command again: it begins anew",
            ));
        }
        proven.push(here);
    }
    let (rows, indexed) = (count(target, "memory")?, count(target, "memory_fts")?);
    if rows != indexed {
        return Err(StoreError::Failed(format!(
            "the index of words has {indexed} rows and memory {rows}"
        )));
    }
    if let Connection::Sqlite(_) = target {
        refers_to_what_is_there(target, "the copy")?;
    }
    target.commit().map_err(failed)?;
    Ok(proven)
}
