//! The index of meaning that PostgreSQL has where pgvector is there, in place of vectors in memory.
//!
//! A copy of the vectors, as half floats, with an HNSW index for each generation. It is made once there are
//! so many vectors that they take too much of every server's memory, beside whatever goes on: filled in steps, then indexed without holding anybody up, and used from then on. Each tenant has
//! an index of its own, for which its own vectors count. What was embedded since the last step is compared by itself, as far as it is not too much: copying keeps pace with
//! embedding, and what it lags behind by more than that is missed until it is copied. Without the extension, before there are so
//! many, and whenever the index is gone, the scan in memory answers.

use super::vectors::{self, Near, ROLES, ScanFilter};
use super::{Result, Tables, failed, tenants};
use crate::store::sql::{self, Connection, Link, OptionalExtension, params};
use prism_core::database::Index as Told;
use prism_core::memory::Kind;
use prism_core::memory::recall::Nearness;
use prism_core::memory::vector::{Role, from_bytes};
use simsimd::SpatialSimilarity;
use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Vectors of a generation from which on it is used. Up to so many a scan in memory is quicker and finds more
/// (`prism bench store --only recall`), and takes a quarter of a gigabyte.
const FROM_VECTORS: i64 = 250_000;
/// The same where a test has few.
const FROM_FEW: i64 = 10;
/// Vectors that are copied in one step, and steps that are made by one connection.
const STEP_VECTORS: usize = 1_000;
const STEPS: usize = 20;
/// Rows of a project up to which all of its vectors are compared: to seek a small project's in an index of
/// all would look at many of others first.
const ALL_UP_TO_ROWS: u64 = 2_000;
/// The same where the index has looked at all it may and found too few that the filter lets through.
const ALL_UP_TO_ROWS_AFTER: u64 = 10_000;
/// Vectors that were not copied yet and are compared by themselves, at the most.
const TAIL_MAX: i64 = 4_000;
/// How many an index keeps in sight, and at how many it stops where a filter lets few through; what it may use for
/// that, in multiples of `work_mem`, of which one would not last so far.
const IN_SIGHT_MIN: usize = 200;
const IN_SIGHT_MAX: usize = 1_000;
const LOOKED_AT_MAX: usize = 40_000;
const LOOKED_AT_MEMORY: usize = 16;
/// The same where a test has few.
const LOOKED_AT_FEW: usize = 200;
/// How soon it is looked again whether there is something to do; and where an index answers, whose copy is to keep
/// pace with what is embedded.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
const KEEP_PACE: Duration = Duration::from_secs(1);
/// How long whoever takes an index away waits for one that is being made.
const LET_BUILD: &str = "5s";
/// Vectors up to which it is counted how many are not copied yet.
const BEHIND_MAX: i64 = 100_000;
/// What an index may take while it is made.
const BUILDING_MEMORY: &str = "512MB";

/// What an extension that was dropped has left is of no use to one that comes after it. Rows are kept apart by tenant
/// as `keep_tenants_apart()` does it, without the locks on all tables that it takes.
const TABLES: &str = "drop table if exists memory_near, memory_near_state;
    create table memory_near (
        tenant_id  text collate \"C\" not null default this_tenant(),
        id         bigint not null,
        memory_row bigint not null,
        ordinal    bigint not null,
        model      text collate \"C\" not null,
        scanned    boolean not null,
        near       halfvec not null,
        primary key (tenant_id, id),
        foreign key (tenant_id, id) references memory_vectors(tenant_id, id) on delete cascade
    );
    create index ix_memory_near_row on memory_near (memory_row, model);
    create table memory_near_state (
        tenant_id text collate \"C\" not null default this_tenant(),
        model     text collate \"C\" not null,
        last      bigint not null default 0,
        primary key (tenant_id, model)
    );
    create policy tenant on memory_near
        using (tenant_id = (select this_tenant())) with check (tenant_id = (select this_tenant()));
    create policy tenant on memory_near_state
        using (tenant_id = (select this_tenant())) with check (tenant_id = (select this_tenant()));
    alter table memory_near enable row level security, force row level security;
    alter table memory_near_state enable row level security, force row level security";
/// The vectors after those that were copied, in order.
const NEXT: &str = "select v.id, v.memory_row, v.ordinal, v.vector from memory_vectors v
    where v.id > ?1 and v.model = ?2 order by v.id limit ?3";

/// COPY takes no rows behind a policy; these go many at a time as well.
const COPY: &str = "insert into memory_near (id, memory_row, ordinal, model, scanned, near)
    values (?, ?, ?, ?, ? <> 0, cast(cast(? as text) as halfvec))";

/// Servers that copy vectors of one tenant take turns; the lock ends with the step.
const TURN: &str =
    "select pg_try_advisory_xact_lock(hashtextextended('prism near ' || this_tenant(), 0))";
/// Indexes of all tenants are on one table: to make or drop one waits for any other that is being made.
const ALONE: &str = "select pg_try_advisory_lock(hashtextextended('prism near', 0))";
/// The indexes of tenants that are no more.
const OF_NOBODY: &str = "select cast(cast(i.indexrelid as regclass) as text) from pg_index i
    where i.indrelid = to_regclass('memory_near') and i.indpred is not null and not exists (
        select 1 from tenants t where strpos(pg_get_expr(i.indpred, i.indrelid), t.id) > 0)";

/// What a server knows of the index.
#[derive(Default)]
pub struct Indexed {
    /// Whose vectors; nobody's where there is no such index.
    tenant: Option<Uuid>,
    generations: Mutex<HashMap<String, Seen>>,
}

/// A generation's index as it was seen last.
#[derive(Clone, Copy)]
struct Seen {
    is_whole: bool,
    /// When it was looked for; nothing while it was not, whatever else is known of it.
    at: Option<Instant>,
    /// When there was nothing to do.
    rests_since: Option<Instant>,
    /// What whoever runs the server is told.
    told: Told,
}

impl Indexed {
    pub fn of(tenant: Uuid) -> Self {
        Self {
            tenant: Some(tenant),
            ..Self::default()
        }
    }

    fn generations(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        self.generations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, model: &str, change: impl FnOnce(&mut Seen)) {
        let mut generations = self.generations();
        let seen = generations.entry(model.to_owned()).or_insert(Seen {
            is_whole: false,
            at: None,
            rests_since: None,
            told: Told::default(),
        });
        change(seen);
    }

    /// Notes whether the index is there.
    fn note(&self, model: &str, is_whole: bool) {
        self.change(model, |seen| {
            (seen.is_whole, seen.at) = (is_whole, Some(Instant::now()));
            seen.told.in_use = is_whole;
        });
    }

    /// Whether it need not be looked for: a moment ago there was none.
    fn is_missing(&self, model: &str) -> bool {
        let seen = self.generations().get(model).copied();
        seen.is_some_and(|seen| {
            let lately = seen.at.is_some_and(|at| at.elapsed() < LOOK_AGAIN);
            !seen.is_whole && lately
        })
    }

    /// Whether there was nothing to do a moment ago.
    fn rests(&self, model: &str) -> bool {
        let seen = self.generations().get(model).copied();
        seen.is_some_and(|seen| {
            let rest = if seen.is_whole { KEEP_PACE } else { LOOK_AGAIN };
            seen.rests_since.is_some_and(|since| since.elapsed() < rest)
        })
    }

    /// How far the index is, of the generation that is farthest; none where there is to be none.
    pub fn told(&self) -> Option<Told> {
        let generations = self.generations();
        let told = generations.values().map(|seen| seen.told);
        told.filter(|told| *told != Told::default())
            .max_by_key(|told| (told.in_use, told.being_made))
    }

    /// The index, as it can be asked in this transaction; none where the scan in memory answers.
    pub fn index<'c>(
        &self,
        c: &'c Connection,
        model: &str,
        dimensions: usize,
    ) -> Result<Option<Index<'c>>> {
        let Some(tenant) = self.tenant.filter(|_| !self.is_missing(model)) else {
            return Ok(None);
        };
        // It may have been taken away under us: then what is in memory is read again.
        let is_whole = has_index(c, tenant, model)?;
        self.note(model, is_whole);
        if !is_whole {
            return Ok(None);
        }
        let last: Option<i64> = c
            .query_row(
                "select last from memory_near_state where model = ?",
                [model],
                |r| r.get(0),
            )
            .optional()
            .map_err(failed)?;
        Ok(last.map(|last| Index {
            c,
            tenant,
            model: model.to_owned(),
            dimensions,
            last,
        }))
    }
}

/// Whether a test has an index made of few vectors, and asked in any case.
fn from_few() -> bool {
    crate::config::failpoint("near.from_few")
}

fn from_vectors() -> i64 {
    if from_few() { FROM_FEW } else { FROM_VECTORS }
}

/// The name of the index of a tenant's generation.
fn name(tenant: Uuid, model: &str) -> String {
    let digest = prism_core::signal::sha256_hex(format!("{tenant} {model}").as_bytes());
    format!("ix_memory_near_{}", &digest[..12])
}

/// The vectors that are in it, as the index says it and whoever wants it to be used.
fn within(tenant: Uuid, model: &str, row: &str) -> String {
    let model = model.replace('\'', "''");
    format!("{row}.tenant_id = '{tenant}' and {row}.model = '{model}' and {row}.scanned")
}

/// A vector as pgvector reads it.
fn written(vector: &[f32]) -> String {
    let mut text = String::with_capacity(vector.len() * 10);
    for (i, x) in vector.iter().enumerate() {
        let _ = write!(text, "{}{x}", if i == 0 { "[" } else { "," });
    }
    text.push(']');
    text
}

/// The index in one transaction.
pub struct Index<'c> {
    c: &'c Connection,
    tenant: Uuid,
    model: String,
    dimensions: usize,
    /// The last vector that was copied into it.
    last: i64,
}

impl Index<'_> {
    /// The rows nearest in meaning, as vectors in memory tell them.
    pub fn nearest(
        &self,
        project: &str,
        question: &[f32],
        filter: &ScanFilter,
        n: usize,
    ) -> Result<HashMap<i64, f64>> {
        if question.len() != self.dimensions {
            return Ok(HashMap::new());
        }
        // Several fields of one row may be near.
        let wanted = n * 2;
        let small = !from_few() && self.lets_few(project, filter, ALL_UP_TO_ROWS)?;
        let mut found = self.sought(project, question, filter, wanted, small)?;
        // Those that the filter lets through may be farther than all that the index looked at.
        if found.len() < wanted && !small && self.lets_few(project, filter, ALL_UP_TO_ROWS_AFTER)? {
            found = self.sought(project, question, filter, wanted, true)?;
        }
        let newer = self.tail(project, filter)?.into_iter();
        found.extend(newer.filter(|v| v.role.is_scanned()).map(|v| Near {
            id: v.id,
            row: v.row,
            score: v.dot(question),
        }));
        found.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        found.truncate(wanted);
        vectors::by_row(self.c, &found, question, n)
    }

    /// Whether the filter lets no more rows of a project through than so many.
    fn lets_few(&self, project: &str, filter: &ScanFilter, most: u64) -> Result<bool> {
        if filter.lets_all() {
            return Ok(super::words::counts(self.c, project)?.rows <= most);
        }
        let (narrowed, times) = filter.sql(3);
        let sql = format!(
            "select count(*) from
                (select 1 from memory m where m.project_id = ?1{narrowed} limit ?2) r"
        );
        let limit = most as i64 + 1;
        let mut bound: Vec<&dyn sql::ToSql> = vec![&project, &limit];
        bound.extend(times.iter().map(|time| time as &dyn sql::ToSql));
        let rows = super::memory::list(self.c, &sql, &bound, |r| r.get::<_, i64>(0))?;
        Ok(rows.first().is_some_and(|n| *n < limit))
    }

    fn sought(
        &self,
        project: &str,
        question: &[f32],
        filter: &ScanFilter,
        wanted: usize,
        all: bool,
    ) -> Result<Vec<Near>> {
        let n = self.dimensions;
        let near = format!("cast(n.near as halfvec({n}))");
        // Read from its text once, not for every row.
        let far = format!("{near} <#> (select cast(cast(?1 as text) as halfvec({n})))");
        let of = within(self.tenant, &self.model, "n");
        let (narrowed, times) = filter.sql(4);
        let of_project = format!("m.project_id = ?2{narrowed}");
        let sql = match all {
            // Not in the index's order, so that it is not asked.
            true => format!(
                "select n.id, n.memory_row, {far} as far from memory m
                 join memory_near n on n.memory_row = m.rowid
                 where {of} and {of_project} order by ({far}) + 0 limit ?3"
            ),
            false => {
                let in_sight = wanted.clamp(IN_SIGHT_MIN, IN_SIGHT_MAX);
                let looked_at = if from_few() {
                    LOOKED_AT_FEW
                } else {
                    LOOKED_AT_MAX
                };
                self.set(&format!(
                    "set local hnsw.ef_search = {in_sight};
                     set local hnsw.iterative_scan = strict_order;
                     set local hnsw.max_scan_tuples = {looked_at};
                     set local hnsw.scan_mem_multiplier = {LOOKED_AT_MEMORY};
                     set local enable_seqscan = off; set local enable_sort = off"
                ));
                format!(
                    "select n.id, n.memory_row, {far} as far from memory_near n
                     join memory m on m.rowid = n.memory_row
                     where {of} and {of_project} order by {far} limit ?3"
                )
            }
        };
        let (question, limit) = (written(question), wanted as i64);
        let mut bound: Vec<&dyn sql::ToSql> = vec![&question, &project, &limit];
        bound.extend(times.iter().map(|time| time as &dyn sql::ToSql));
        let found = super::memory::list(self.c, &sql, &bound, |r| {
            Ok(Near {
                id: r.get(0)?,
                row: r.get(1)?,
                // The index tells the product as a distance: its opposite.
                score: -r.get::<_, f64>(2)? as f32,
            })
        })?;
        if !all {
            self.set("set local enable_seqscan = on; set local enable_sort = on");
        }
        Ok(found)
    }

    /// Sets something for the next statement.
    fn set(&self, sql: &str) {
        if let Connection::Postgres(link) = self.c {
            link.say_along(sql);
        }
    }

    /// What was embedded since the last step: the newest, where it is much.
    fn tail(&self, project: &str, filter: &ScanFilter) -> Result<Vec<Newer>> {
        let (narrowed, times) = filter.sql(5);
        let sql = format!(
            "select v.id, v.memory_row, v.ordinal, v.vector from memory_vectors v
             join memory m on m.rowid = v.memory_row
             where v.id > ?1 and v.model = ?2 and m.project_id = ?3{narrowed} order by v.id desc limit ?4"
        );
        let mut bound: Vec<&dyn sql::ToSql> = vec![&self.last, &self.model, &project, &TAIL_MAX];
        bound.extend(times.iter().map(|time| time as &dyn sql::ToSql));
        let newer = super::memory::list(self.c, &sql, &bound, |r| {
            let vector = r.get_ref(3)?.as_blob().ok().and_then(from_bytes);
            Ok(Newer {
                id: r.get(0)?,
                row: r.get(1)?,
                role: Role::of(r.get(2)?),
                vector: vector.unwrap_or_default(),
            })
        })?;
        let whole = |v: &Newer| v.vector.len() == self.dimensions;
        Ok(newer.into_iter().filter(whole).collect())
    }

    /// How near each of these rows is, role by role.
    pub fn judge(
        &self,
        project: &str,
        question: &[f32],
        rows: &[i64],
        exact: &HashMap<i64, f64>,
    ) -> Result<HashMap<i64, Nearness>> {
        let mut best: HashMap<i64, [f64; ROLES]> = HashMap::new();
        if question.len() != self.dimensions || rows.is_empty() {
            return Ok(HashMap::new());
        }
        let mut note = |row: i64, role: Role, score: f64| {
            let roles = best.entry(row).or_insert([f64::MIN; ROLES]);
            roles[role as usize] = roles[role as usize].max(score);
        };
        let sql = "select n.memory_row, n.ordinal,
                n.near <#> (select cast(cast(?1 as text) as halfvec))
            from json_each(?2) j join memory_near n on n.memory_row = cast(j.value as integer)
            where n.model = ?3";
        let wanted = serde_json::to_string(rows).unwrap_or_default();
        let bound = params![written(question), wanted, self.model];
        let found = super::memory::list(self.c, sql, bound, |r| {
            Ok((r.get(0)?, Role::of(r.get(1)?), -r.get::<_, f64>(2)?))
        })?;
        for (row, role, score) in found {
            note(row, role, score);
        }
        let asked: HashSet<i64> = rows.iter().copied().collect();
        for newer in self.tail(project, &ScanFilter::all())? {
            if asked.contains(&newer.row) {
                note(newer.row, newer.role, f64::from(newer.dot(question)));
            }
        }
        let judged = best.into_iter();
        let judged = judged.filter_map(|(row, best)| {
            Some((row, vectors::nearness(best, exact.get(&row).copied())?))
        });
        Ok(judged.collect())
    }
}

/// A vector that was not copied yet.
struct Newer {
    id: i64,
    row: i64,
    role: Role,
    vector: Vec<f32>,
}

impl Newer {
    fn dot(&self, question: &[f32]) -> f32 {
        f32::dot(question, &self.vector).unwrap_or_default() as f32
    }
}

impl ScanFilter {
    /// The filter as SQL on a row `m` of memory, and the times for its places, which are numbered from one on. Kinds are
    /// names of a closed list; times are bound, so that the statement is the same one whenever it is asked.
    fn sql(&self, first: usize) -> (String, Vec<i64>) {
        let (mut sql, mut times) = (String::new(), Vec::new());
        if self.since > i64::MIN {
            let _ = write!(sql, " and m.created_at >= ?{first}");
            times.push(self.since);
        }
        if self.until < i64::MAX {
            let _ = write!(sql, " and m.created_at <= ?{}", first + times.len());
            times.push(self.until);
        }
        if let Some(kinds) = self.kinds {
            let allowed = Kind::ALL.iter().enumerate();
            let allowed = allowed.filter(|(at, _)| kinds & (1 << at) != 0);
            let names: Vec<String> = allowed.map(|(_, kind)| format!("'{kind}'")).collect();
            let _ = write!(sql, " and m.kind in ({})", names.join(","));
        }
        (sql, times)
    }
}

impl Tables {
    /// Does the next piece of work on the index, where there is one to be; whether there was any.
    pub async fn tend_index(&self, model: &'static str, dimensions: usize) -> Result<bool> {
        if self.near.rests(model) && !from_few() {
            return Ok(false);
        }
        let Some(tenant) = self.tenant.filter(|_| self.pool.is_some()) else {
            return Ok(false);
        };
        let from = from_vectors();
        // Most tenants have few vectors and no index: to see that takes no connection of its own.
        let is_wanted = self.read_memory(move |c| is_wanted(c, tenant, model, from));
        if !is_wanted.await? {
            self.near.change(model, |seen| {
                seen.rests_since = Some(Instant::now());
                seen.told.failed = false;
            });
            self.near.note(model, false);
            return Ok(false);
        }
        self.make_index(model, dimensions, from).await
    }

    /// The same, where it is to be made of so many vectors.
    pub async fn make_index(
        &self,
        model: &'static str,
        dimensions: usize,
        from: i64,
    ) -> Result<bool> {
        let Some(pool) = self.pool.clone() else {
            return Ok(false);
        };
        let (near, vectors) = (self.near.clone(), self.vectors.clone());
        let Some(tenant) = self.tenant else {
            return Ok(false);
        };
        let tended = tokio::task::spawn_blocking(move || {
            // A connection of its own: what it sets and locks ends with it.
            let link = pool.server().connect().map_err(failed)?;
            let c = Connection::Postgres(link);
            let Connection::Postgres(link) = &c else {
                return Ok(false);
            };
            link.becomes(Some(tenant));
            let of = Generation {
                tenant,
                model,
                dimensions,
            };
            let tended = Tending {
                c: &c,
                link,
                of: &of,
                near: &near,
            }
            .tend(from);
            near.change(model, |seen| {
                let worked = tended.as_ref().is_ok_and(|tended| tended.worked);
                seen.rests_since = (!worked).then(Instant::now);
                seen.told.failed = tended.is_err();
            });
            let Tended { worked, is_whole } = tended?;
            near.note(model, is_whole);
            if is_whole && vectors.let_go_of(model) {
                tracing::info!(model, "Meaning is found by pgvector's index from now on");
            }
            Ok(worked)
        });
        tended
            .await
            .map_err(|_| super::StoreError::Failed("tending the index was cut short".into()))?
    }

    /// Whether a generation is to have its index before it answers: the one before it has one, and there are so many
    /// vectors that they are not to be read into memory.
    pub async fn awaits_index(&self, before: &'static str, model: &'static str) -> Result<bool> {
        let Some(tenant) = self.tenant.filter(|_| self.pool.is_some()) else {
            return Ok(false);
        };
        self.read_memory(move |c| {
            Ok(has_index(c, tenant, before)?
                && !has_index(c, tenant, model)?
                && is_enough(c, model, from_vectors())?)
        })
        .await
    }

    /// What the index finds of the `n` nearest vectors to each question, as a share, and how long each took
    /// to be found by it and by looking at all of them, in milliseconds; none where there is no index.
    pub async fn kept_by_index(
        &self,
        model: &'static str,
        project: Uuid,
        questions: Vec<Vec<f32>>,
        n: usize,
    ) -> Result<Option<(f64, Vec<f64>, Vec<f64>)>> {
        let near = self.near.clone();
        self.read_memory(move |c| {
            let dimensions = questions.first().map_or(0, Vec::len);
            let Some(index) = near.index(c, model, dimensions)? else {
                return Ok(None);
            };
            let (project, all) = (project.to_string(), ScanFilter::all());
            let (mut kept, mut exact) = (0, 0);
            let mut times = (Vec::new(), Vec::new());
            let ms = |since: Instant| since.elapsed().as_secs_f64() * 1000.0;
            for question in &questions {
                let started = Instant::now();
                let found = index.sought(&project, question, &all, n, false)?;
                times.0.push(ms(started));
                let found: HashSet<i64> = found.iter().map(|f| f.id).collect();
                let started = Instant::now();
                let nearest = index.sought(&project, question, &all, n, true)?;
                times.1.push(ms(started));
                exact += nearest.len();
                kept += nearest.iter().filter(|f| found.contains(&f.id)).count();
            }
            let share = kept as f64 / f64::from(exact.max(1) as u32);
            Ok(Some((share, times.0, times.1)))
        })
        .await
    }
}

/// How the index is, and whether something was done to it.
#[derive(Default)]
struct Tended {
    worked: bool,
    is_whole: bool,
}

fn is_there(c: &Connection, sql: &str) -> Result<bool> {
    c.query_row(sql, [], |r| r.get(0)).map_err(failed)
}

/// The vectors of one model and one tenant.
struct Generation {
    tenant: Uuid,
    model: &'static str,
    dimensions: usize,
}

/// Comes to the rows of the tenant whose the connection is.
fn with_rows<T>(c: &Connection, work: impl FnOnce() -> Result<T>) -> Result<T> {
    c.begin_writing().map_err(failed)?;
    let done = work();
    match &done {
        Ok(_) => c.commit().map_err(failed)?,
        Err(_) => drop(c.rollback()),
    }
    done
}

/// A connection that works on one generation's index.
struct Tending<'a> {
    c: &'a Connection,
    link: &'a Link,
    of: &'a Generation,
    near: &'a Indexed,
}

impl Tending<'_> {
    fn tend(&self, from: i64) -> Result<Tended> {
        let Self { c, link, of, near } = *self;
        let extension = "select exists (select 1 from pg_extension where extname = 'vector'
            and string_to_array(extversion, '.')::int[] >= array[0, 8])";
        if !is_there(c, extension)? {
            return Ok(Tended::default());
        }
        let table = "select exists (select 1 from pg_attribute where attname = 'near'
            and attrelid = to_regclass('memory_near') and not attisdropped)";
        let (has_table, has_index) = (is_there(c, table)?, has_index(c, of.tenant, of.model)?);
        // What others have is not copied for a tenant that has few; an index that is there stays.
        if !has_index && !with_rows(c, || is_enough(c, of.model, from))? {
            return match has_table {
                true => with_rows(c, || self.copies_none()),
                false => Ok(Tended::default()),
            };
        }
        if !has_table {
            tracing::info!(
                model = of.model,
                "Vectors are copied into an index by pgvector"
            );
            tenants::in_transaction(link, || match is_there(c, table)? {
                // Another server was quicker.
                true => Ok(()),
                false => {
                    let tables = format!("{TABLES}; {}", tenants::let_members_in());
                    link.batch(&tables).map_err(failed)
                }
            })?;
        }
        let is_whole = has_index;
        for _ in 0..STEPS {
            let copied = with_rows(c, || match is_there(c, TURN)? {
                true => copy_step(c, of).map(Some),
                // Another server is at it.
                false => Ok(None),
            })?;
            match copied {
                Some(STEP_VECTORS) => {}
                Some(_) => {
                    near.change(of.model, |seen| seen.told.behind = 0);
                    let made = self.alone(|| self.clear_and_build(has_index))?;
                    return Ok(made.unwrap_or(Tended {
                        worked: false,
                        is_whole,
                    }));
                }
                None => {
                    let worked = false;
                    return Ok(Tended { worked, is_whole });
                }
            }
        }
        let behind = with_rows(c, || behind(c, of.model))?;
        near.change(of.model, |seen| seen.told.behind = behind);
        Ok(Tended {
            worked: true,
            is_whole,
        })
    }

    /// Takes away what was copied though there are too few for an index, a part of it.
    fn copies_none(&self) -> Result<Tended> {
        let left = "delete from memory_near where id in
            (select id from memory_near where model = ? limit ?)";
        let bound = params![self.of.model, STEP_VECTORS as i64];
        let gone = self.c.execute(left, bound).map_err(failed)?;
        let state = "delete from memory_near_state where model = ?";
        self.c.execute(state, [self.of.model]).map_err(failed)?;
        Ok(Tended {
            worked: gone == STEP_VECTORS,
            is_whole: false,
        })
    }

    /// Does what only one may do at a time, of all servers and for all tenants; none where another is at it. The lock
    /// is this connection's, and ends with it at the latest.
    fn alone<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        if !is_there(self.c, ALONE)? {
            return Ok(None);
        }
        let done = work();
        // At once: the next step may be here before this connection has ended.
        drop(self.link.batch("select pg_advisory_unlock_all()"));
        done.map(Some)
    }

    fn clear_and_build(&self, has_index: bool) -> Result<Tended> {
        self.forget_others()?;
        if !has_index {
            let of = self.of;
            tracing::info!(model = of.model, "The index of vectors is being made");
            let is_being_made = |is| {
                self.near.change(of.model, |seen| seen.told.being_made = is);
            };
            is_being_made(true);
            let built = build(self.link, of);
            is_being_made(false);
            built.map_err(failed)?;
        }
        Ok(Tended {
            worked: !has_index,
            is_whole: true,
        })
    }

    /// What generations left of which no vector is there any more, and tenants that are no more.
    fn forget_others(&self) -> Result<()> {
        let Self { c, link, of, .. } = *self;
        let gone = "select s.model from memory_near_state s where s.model <> ?
            and not exists (select 1 from memory_vectors v where v.model = s.model)";
        let gone = with_rows(c, || {
            super::memory::list(c, gone, params![of.model], |r| r.get::<_, String>(0))
        })?;
        for gone in gone {
            drop_index(link, &name(of.tenant, &gone))?;
            with_rows(c, || {
                let sql = "delete from memory_near_state where model = ?";
                c.execute(sql, [&gone]).map(drop).map_err(failed)
            })?;
        }
        let left = super::memory::list(c, OF_NOBODY, params![], |r| r.get::<_, String>(0))?;
        for index in left {
            drop_index(link, &index)?;
        }
        Ok(())
    }
}

/// Takes an index away without holding up anybody who reads.
fn drop_index(link: &Link, index: &str) -> Result<()> {
    link.batch(&format!("drop index concurrently if exists {index}"))
        .map_err(failed)
}

/// Whether a model has so many vectors; no more of them are counted.
fn is_enough(c: &Connection, model: &str, from: i64) -> Result<bool> {
    let sql = "select count(*) from (select 1 from memory_vectors where model = ? limit ?) v";
    let vectors: i64 = c
        .query_row(sql, params![model, from], |r| r.get(0))
        .map_err(failed)?;
    Ok(vectors >= from)
}

/// Whether a generation has an index, is to have one, or has copies left that nobody needs.
fn is_wanted(c: &Connection, tenant: Uuid, model: &str, from: i64) -> Result<bool> {
    if has_index(c, tenant, model)? || is_enough(c, model, from)? {
        return Ok(true);
    }
    if !is_there(c, "select to_regclass('memory_near') is not null")? {
        return Ok(false);
    }
    let copied = "select exists (select 1 from memory_near_state where model = ?1)
        or exists (select 1 from memory_near where model = ?1)";
    c.query_row(copied, [model], |r| r.get(0)).map_err(failed)
}

/// How many vectors were not copied yet.
fn behind(c: &Connection, model: &str) -> Result<u64> {
    let sql = "select count(*) from (select 1 from memory_vectors v where v.model = ?1 and v.id >
        (select coalesce(max(last), 0) from memory_near_state where model = ?1) limit ?2) v";
    let behind: i64 = c
        .query_row(sql, params![model, BEHIND_MAX], |r| r.get(0))
        .map_err(failed)?;
    Ok(behind as u64)
}

/// Whether there is an index that answers: one that is being made, or was cut off, does not.
fn has_index(c: &Connection, tenant: Uuid, model: &str) -> Result<bool> {
    c.query_row(
        "select exists (select 1 from pg_index where indexrelid = to_regclass(?) and indisvalid)",
        [&name(tenant, model)],
        |r| r.get(0),
    )
    .map_err(failed)
}

/// Takes away the indexes of a tenant that is no more, outside of any transaction: whoever reads goes on. Where one is
/// being made, they are left to whoever tends the next index.
pub(super) fn forget_tenant(c: &Connection, link: &Link, tenant: &str) -> Result<()> {
    let indexes = "select cast(cast(indexrelid as regclass) as text) from pg_index
        where indrelid = to_regclass('memory_near')
            and strpos(pg_get_expr(indpred, indrelid), ?) > 0";
    let indexes = super::memory::list(c, indexes, params![tenant], |r| r.get::<_, String>(0))?;
    if indexes.is_empty() {
        return Ok(());
    }
    let wait = |how: &str| link.batch(&format!("set lock_timeout = '{how}'"));
    wait(LET_BUILD).map_err(failed)?;
    for index in indexes {
        if let Err(error) = drop_index(link, &index) {
            tracing::warn!(%error, index, "An index of vectors is left for later");
        }
    }
    wait("0").map_err(failed)
}

/// Copies the next vectors; answers how many it came through.
fn copy_step(c: &Connection, of: &Generation) -> Result<usize> {
    let last: i64 = c
        .query_row(
            "select coalesce((select last from memory_near_state where model = ?), 0)",
            [of.model],
            |r| r.get(0),
        )
        .map_err(failed)?;
    let bound = params![last, of.model, STEP_VECTORS as i64];
    let next = super::memory::list(c, NEXT, bound, |r| {
        let vector = r.get_ref(3)?.as_blob().ok().and_then(from_bytes);
        Ok((
            r.get::<_, i64>(0)?,
            r.get::<_, i64>(1)?,
            r.get::<_, i64>(2)?,
            vector,
        ))
    })?;
    let Some((reached, ..)) = next.last() else {
        return Ok(0);
    };
    for (id, row, ordinal, vector) in &next {
        // One of another length is passed over, as in memory.
        let Some(vector) = vector.as_ref().filter(|v| v.len() == of.dimensions) else {
            continue;
        };
        let scanned = i64::from(Role::of(*ordinal).is_scanned());
        c.put(
            COPY,
            params![id, row, ordinal, of.model, scanned, written(vector)],
        )
        .map_err(failed)?;
    }
    c.put(
        "insert into memory_near_state (model, last) values (?1, ?2)
         on conflict (model) do update set last = excluded.last",
        params![of.model, reached],
    )
    .map_err(failed)?;
    Ok(next.len())
}

/// Makes the index while everything goes on. One that was cut off is made anew.
fn build(link: &Link, of: &Generation) -> sql::Result<()> {
    let (index, n) = (name(of.tenant, of.model), of.dimensions);
    let within = within(of.tenant, of.model, "memory_near");
    link.take_time(true)?;
    link.batch(&format!("set maintenance_work_mem = '{BUILDING_MEMORY}'"))?;
    link.batch(&format!("drop index concurrently if exists {index}"))?;
    link.batch(&format!(
        "create index concurrently {index} on memory_near
         using hnsw ((near::halfvec({n})) halfvec_ip_ops) where {within}"
    ))?;
    link.batch("analyze memory_near")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::Filter;
    use prism_core::Moment;

    #[test]
    fn an_index_that_was_not_looked_for_is_not_missing() {
        let indexed = Indexed::of(Uuid::nil());
        // Work on it is noted before anybody has asked for it: all vectors would be read into memory.
        indexed.change("m", |seen| seen.rests_since = Some(Instant::now()));
        assert!(!indexed.is_missing("m"));
        indexed.note("m", false);
        assert!(indexed.is_missing("m"));
        indexed.note("m", true);
        assert!(!indexed.is_missing("m"));
    }

    #[test]
    fn a_filter_is_the_same_in_sql() {
        assert_eq!(ScanFilter::all().sql(4), (String::new(), Vec::new()));
        let filter = Filter {
            kinds: vec![Kind::Fact, Kind::Note],
            since: Some(Moment(3)),
            until: Some(Moment(9)),
            ..Filter::default()
        };
        let (sql, times) = ScanFilter::of(&filter).sql(4);
        assert!(sql.starts_with(" and m.created_at >= ?4 and m.created_at <= ?5 and m.kind in ("));
        assert!(sql.contains("'fact'") && sql.contains("'note'"), "{sql}");
        assert_eq!(times, [3, 9]);
        let until = Filter {
            until: Some(Moment(9)),
            ..Filter::default()
        };
        let (sql, times) = ScanFilter::of(&until).sql(4);
        assert_eq!((sql.as_str(), times), (" and m.created_at <= ?4", vec![9]));
    }

    #[test]
    fn a_vector_is_written_as_pgvector_reads_it() {
        assert_eq!(written(&[0.5, -1.0, 2.0]), "[0.5,-1,2]");
    }

    #[test]
    fn every_generation_of_every_tenant_has_an_index_of_its_own() {
        let (one, two) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_ne!(name(one, "a"), name(one, "b"));
        assert_ne!(name(one, "a"), name(two, "a"));
        assert!(
            name(one, "a'; drop table x")
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || c == '_')
        );
    }
}
