//! The index of meaning that PostgreSQL has where pgvector is there, in place of vectors in memory.
//!
//! A copy of the vectors, as half floats, with an HNSW index for each generation. It is made once there are
//! so many vectors that they take too much of every server's memory, beside whatever goes on: filled in steps, then indexed without holding anybody up, and used from then on. Each tenant has
//! an index of its own, for which its own vectors count. What was embedded since the last step is compared by itself, so nothing is missed meanwhile. Without the extension, before there are so
//! many, and whenever the index is gone, the scan in memory answers.

use super::vectors::{self, Near, ROLES, ScanFilter};
use super::{Result, Tables, failed, tenants};
use crate::store::sql::{self, Connection, Link, OptionalExtension, params};
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
/// Vectors that are copied in one step.
const STEP_VECTORS: usize = 1_000;
/// Rows of a project up to which all of its vectors are compared: to seek a small project's in an index of
/// all would look at many of others first.
const ALL_UP_TO_ROWS: u64 = 2_000;
/// Vectors that were not copied yet and are compared by themselves, at the most.
const TAIL_MAX: i64 = 4_000;
/// How many an index keeps in sight, and at how many it stops where a filter lets few through.
const IN_SIGHT_MIN: usize = 200;
const IN_SIGHT_MAX: usize = 1_000;
const LOOKED_AT_MAX: usize = 40_000;
/// How soon it is looked again whether there is something to do: what came meanwhile is compared by itself.
const LOOK_AGAIN: Duration = Duration::from_secs(20);
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
        vectors   bigint not null default 0,
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

/// What a server knows of the index: for which generation it is whole.
#[derive(Default)]
pub struct Indexed {
    /// Whose vectors; nobody's where there is no such index.
    tenant: Option<Uuid>,
    whole: Mutex<Option<String>>,
    /// When it was looked at and there was nothing to do.
    rests_since: Mutex<Option<Instant>>,
}

impl Indexed {
    pub fn of(tenant: Uuid) -> Self {
        Self {
            tenant: Some(tenant),
            ..Self::default()
        }
    }

    pub fn is_whole(&self, model: &str) -> bool {
        let whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        whole.as_deref() == Some(model)
    }

    fn set(&self, model: Option<&str>) {
        let mut whole = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        *whole = model.map(str::to_owned);
    }

    fn rests(&self) -> MutexGuard<'_, Option<Instant>> {
        self.rests_since
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The index, as it can be asked in this transaction; none where the scan in memory answers.
    pub fn index<'c>(
        &self,
        c: &'c Connection,
        model: &str,
        dimensions: usize,
    ) -> Result<Option<Index<'c>>> {
        let Some(tenant) = self.tenant.filter(|_| self.is_whole(model)) else {
            return Ok(None);
        };
        let there = c
            .query_row(
                "select to_regclass(?) is not null",
                [&name(tenant, model)],
                |r| r.get::<_, bool>(0),
            )
            .map_err(failed)?;
        if !there {
            // Taken away under us: what is in memory is read again.
            self.set(None);
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
        let small = !from_few() && super::words::counts(self.c, project)?.rows <= ALL_UP_TO_ROWS;
        let mut found = self.sought(project, question, filter, wanted, small)?;
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
        let far = format!("{near} <#> cast(cast(?1 as text) as halfvec({n}))");
        let of = within(self.tenant, &self.model, "n");
        let of_project = format!("m.project_id = ?2{}", filter.sql());
        let sql = match all {
            // Not in the index's order, so that it is not asked.
            true => format!(
                "select n.id, n.memory_row, {far} as far from memory m
                 join memory_near n on n.memory_row = m.rowid
                 where {of} and {of_project} order by ({far}) + 0 limit ?3"
            ),
            false => {
                let in_sight = wanted.clamp(IN_SIGHT_MIN, IN_SIGHT_MAX);
                self.set(&format!(
                    "set local hnsw.ef_search = {in_sight};
                     set local hnsw.iterative_scan = strict_order;
                     set local hnsw.max_scan_tuples = {LOOKED_AT_MAX};
                     set local enable_seqscan = off; set local enable_sort = off"
                ));
                format!(
                    "select n.id, n.memory_row, {far} as far from memory_near n
                     join memory m on m.rowid = n.memory_row
                     where {of} and {of_project} order by {far} limit ?3"
                )
            }
        };
        let bound = params![written(question), project, wanted as i64];
        let found = super::memory::list(self.c, &sql, bound, |r| {
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

    /// What was embedded since the last step.
    fn tail(&self, project: &str, filter: &ScanFilter) -> Result<Vec<Newer>> {
        let sql = format!(
            "select v.id, v.memory_row, v.ordinal, v.vector from memory_vectors v
             join memory m on m.rowid = v.memory_row
             where v.id > ?1 and v.model = ?2 and m.project_id = ?3{} order by v.id desc limit ?4",
            filter.sql()
        );
        let bound = params![self.last, self.model, project, TAIL_MAX];
        let newer = super::memory::list(self.c, &sql, bound, |r| {
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
        let sql = "select n.memory_row, n.ordinal, n.near <#> cast(cast(?1 as text) as halfvec)
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
    /// The filter as SQL on a row `m` of memory: numbers, and names of a closed list.
    fn sql(&self) -> String {
        let mut sql = String::new();
        if self.since > i64::MIN {
            let _ = write!(sql, " and m.created_at >= {}", self.since);
        }
        if self.until < i64::MAX {
            let _ = write!(sql, " and m.created_at <= {}", self.until);
        }
        if let Some(kinds) = self.kinds {
            let allowed = Kind::ALL.iter().enumerate();
            let allowed = allowed.filter(|(at, _)| kinds & (1 << at) != 0);
            let names: Vec<String> = allowed.map(|(_, kind)| format!("'{kind}'")).collect();
            let _ = write!(sql, " and m.kind in ({})", names.join(","));
        }
        sql
    }
}

impl Tables {
    /// Does the next piece of work on the index, where there is one to be; whether there was any.
    pub async fn tend_index(&self, model: &'static str, dimensions: usize) -> Result<bool> {
        let rests = self
            .near
            .rests()
            .is_some_and(|since| since.elapsed() < LOOK_AGAIN);
        match rests && !from_few() {
            true => Ok(false),
            false => self.make_index(model, dimensions, from_vectors()).await,
        }
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
            let tended = tend(&c, link, &of, from);
            // At once, and not when this connection has ended: the next step may be here before.
            drop(link.batch("select pg_advisory_unlock_all()"));
            let Tended { worked, is_whole } = tended?;
            let was = near.is_whole(model);
            near.set(is_whole.then_some(model));
            if is_whole && !was {
                tracing::info!(model, "Meaning is found by pgvector's index from now on");
                vectors.forget();
            }
            *near.rests() = (!worked).then(Instant::now);
            Ok(worked)
        });
        tended
            .await
            .map_err(|_| super::StoreError::Failed("tending the index was cut short".into()))?
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

fn tend(c: &Connection, link: &Link, of: &Generation, from: i64) -> Result<Tended> {
    let extension = "select exists (select 1 from pg_extension where extname = 'vector'
        and string_to_array(extversion, '.')::int[] >= array[0, 8])";
    if !is_there(c, extension)? {
        return Ok(Tended::default());
    }
    let table = "select exists (select 1 from pg_attribute where attname = 'near'
        and attrelid = to_regclass('memory_near') and not attisdropped)";
    if !is_there(c, table)? {
        let sql = "select count(*) from (select 1 from memory_vectors where model = ? limit ?) v";
        let vectors: i64 = with_rows(c, || {
            c.query_row(sql, params![of.model, from], |r| r.get(0))
                .map_err(failed)
        })?;
        if vectors < from {
            return Ok(Tended::default());
        }
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
    // One server at a time; the others look again later.
    let mine = "select pg_try_advisory_lock(hashtextextended('prism near', 0))";
    let has_index = has_index(c, of)?;
    if !is_there(c, mine)? {
        return Ok(Tended {
            worked: false,
            is_whole: has_index && is_enough(c, of, from)?,
        });
    }
    forget_others(c, link, of)?;
    let more = with_rows(c, || copy_step(c, of))? == STEP_VECTORS;
    let enough = is_enough(c, of, from)?;
    if !more && enough && !has_index {
        build(link, of).map_err(failed)?;
        return Ok(Tended {
            worked: true,
            is_whole: true,
        });
    }
    Ok(Tended {
        worked: more,
        is_whole: has_index && enough,
    })
}

/// Whether so many vectors were copied.
fn is_enough(c: &Connection, of: &Generation, from: i64) -> Result<bool> {
    let sql = "select coalesce((select vectors from memory_near_state where model = ?), 0) >= ?";
    with_rows(c, || {
        c.query_row(sql, params![of.model, from], |r| r.get(0))
            .map_err(failed)
    })
}

fn has_index(c: &Connection, of: &Generation) -> Result<bool> {
    c.query_row(
        "select exists (select 1 from pg_index where indexrelid = to_regclass(?) and indisvalid)",
        [&name(of.tenant, of.model)],
        |r| r.get(0),
    )
    .map_err(failed)
}

/// What generations left of which no vector is there any more.
fn forget_others(c: &Connection, link: &Link, of: &Generation) -> Result<()> {
    let gone = "select s.model from memory_near_state s where s.model <> ?
        and not exists (select 1 from memory_vectors v where v.model = s.model)";
    let gone = with_rows(c, || {
        super::memory::list(c, gone, params![of.model], |r| r.get::<_, String>(0))
    })?;
    for gone in gone {
        link.batch(&format!(
            "drop index concurrently if exists {}",
            name(of.tenant, &gone)
        ))
        .map_err(failed)?;
        with_rows(c, || {
            let sql = "delete from memory_near_state where model = ?";
            c.execute(sql, [&gone]).map(drop).map_err(failed)
        })?;
    }
    Ok(())
}

/// Takes away the indexes of a tenant that is no more.
pub(super) fn forget_tenant(link: &Link, tenant: &str) -> Result<()> {
    let gone = format!(
        "do $$
        declare
            gone regclass;
        begin
            for gone in
                select indexrelid::regclass from pg_index
                where indrelid = to_regclass('memory_near')
                    and pg_get_expr(indpred, indrelid) like '%{tenant}%'
            loop
                execute format('drop index %s', gone);
            end loop;
        end $$"
    );
    link.batch(&gone).map_err(failed)
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
    let mut taken = 0;
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
        taken += 1;
    }
    c.execute(
        "insert into memory_near_state (model, last, vectors) values (?1, ?2, ?3)
         on conflict (model) do update set last = excluded.last,
            vectors = memory_near_state.vectors + excluded.vectors",
        params![of.model, reached, taken],
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
    fn a_filter_is_the_same_in_sql() {
        assert_eq!(ScanFilter::all().sql(), "");
        let filter = Filter {
            kinds: vec![Kind::Fact, Kind::Note],
            since: Some(Moment(3)),
            until: Some(Moment(9)),
            ..Filter::default()
        };
        let sql = ScanFilter::of(&filter).sql();
        assert!(sql.starts_with(" and m.created_at >= 3 and m.created_at <= 9 and m.kind in ("));
        assert!(sql.contains("'fact'") && sql.contains("'note'"), "{sql}");
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
