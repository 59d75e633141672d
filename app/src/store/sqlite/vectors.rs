//! Vectors in memory: an exact scan over all of a project's.
//!
//! The scan runs over whole numbers in memory; the best of it are compared
//! again as they lie on disk.

use super::{Result, Sqlite, failed};
use crate::store::memory::Filter;
use prism_core::Moment;
use prism_core::memory::Kind;
use prism_core::memory::recall::Nearness;
use prism_core::memory::vector::{DIMENSIONS, Role, from_bytes, quantise};
use rusqlite::{Connection, params};
use simsimd::SpatialSimilarity;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Condvar, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Vectors that are compared again exactly.
const RERANKED: usize = 100;
/// From so many vectors on, the scan uses a second thread.
const TWO_THREADS_FROM: usize = 150_000;

/// Vectors that are read in one step; between two steps anybody may scan what is there.
const STEP_VECTORS: usize = 1_000;
/// Forgotten vectors of a block from which on their room is given back.
const FORGOTTEN_MIN: usize = 1_000;
/// How long a recall waits for vectors that are still being read.
pub(super) const RECALL_WAITS: Duration = Duration::from_secs(2);

/// One wait of a warm-up, which waits again for as long as it takes.
const PATIENT: Duration = Duration::from_secs(60);

/// Vectors after the last one that is in memory, in order. By any index but the id's, each look would
/// read and sort all of them.
pub(super) const NEWER: &str = "select v.id, v.memory_row, v.ordinal, m.kind, m.created_at,
        m.project_id, v.vector from memory_vectors v not indexed
    cross join memory m on m.rowid = v.memory_row where v.id > ? and v.model = ? order by v.id";
/// Vectors as they were made.
pub(super) const EXACT: &str = "select v.id, v.vector from json_each(?) j
    cross join memory_vectors v on v.id = j.value";

/// Every vector of one model, project by project, in a form that is quick to scan.
#[derive(Default)]
pub struct Vectors {
    matrices: RwLock<Matrices>,
    /// Whether somebody reads a step now; the others wait for it instead of reading the same.
    reading: Mutex<bool>,
    step_ended: Condvar,
}

#[derive(Default)]
struct Matrices {
    /// How often everything was let go of: a step that was read before that is of no use after it.
    generation: u64,
    model: String,
    /// The last vector that was read.
    last: i64,
    projects: HashMap<String, Matrix>,
}

/// One project's vectors: those a scan looks at, and those that only judge what it found.
#[derive(Default)]
struct Matrix {
    scanned: Block,
    judging: Block,
}

/// Vectors as whole numbers, column by column. Those of one row stand together.
#[derive(Default)]
struct Block {
    codes: Vec<i8>,
    /// What one whole number is worth; nothing when the row was embedded anew since.
    steps: Vec<f32>,
    ids: Vec<i64>,
    roles: Vec<Role>,
    rows: Vec<i64>,
    times: Vec<i64>,
    kinds: Vec<u8>,
    /// Where a row's vectors begin.
    starts: HashMap<i64, u32>,
    /// Vectors of rows that were embedded anew since; they are passed over, and cleared in time.
    forgotten: usize,
}

/// A vector on its way up the scan; the lowest comes out first.
#[derive(PartialEq)]
struct Hit {
    score: f32,
    at: usize,
}

impl Eq for Hit {}

impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        other
            .score
            .total_cmp(&self.score)
            .then_with(|| self.at.cmp(&other.at))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One vector on its way into memory.
struct Read {
    project: String,
    id: i64,
    row: i64,
    role: Role,
    kind: u8,
    time: i64,
    codes: Vec<i8>,
    step: f32,
}

impl Block {
    /// Forgets what a row said before it was embedded again.
    fn forget(&mut self, row: i64) {
        if let Some(start) = self.starts.remove(&row) {
            for at in (start as usize..self.rows.len()).take_while(|at| self.rows[*at] == row) {
                self.steps[at] = 0.0;
                self.forgotten += 1;
            }
        }
    }

    /// Gives back the room of what was forgotten, once that is worth the copying.
    fn clear_forgotten(&mut self) {
        if self.forgotten < FORGOTTEN_MIN || self.forgotten * 4 < self.rows.len() {
            return;
        }
        let old = std::mem::take(self);
        for at in (0..old.rows.len()).filter(|at| old.steps[*at] > 0.0) {
            self.starts
                .entry(old.rows[at])
                .or_insert(self.rows.len() as u32);
            let code = &old.codes[at * DIMENSIONS..(at + 1) * DIMENSIONS];
            self.codes.extend_from_slice(code);
            self.steps.push(old.steps[at]);
            self.ids.push(old.ids[at]);
            self.roles.push(old.roles[at]);
            self.rows.push(old.rows[at]);
            self.times.push(old.times[at]);
            self.kinds.push(old.kinds[at]);
        }
    }

    fn push(&mut self, read: Read) {
        self.starts
            .entry(read.row)
            .or_insert(self.rows.len() as u32);
        self.codes.extend(read.codes);
        self.steps.push(read.step);
        self.ids.push(read.id);
        self.roles.push(read.role);
        self.rows.push(read.row);
        self.times.push(read.time);
        self.kinds.push(read.kind);
    }

    fn dot(&self, at: usize, question: &[i8]) -> f32 {
        let code = &self.codes[at * DIMENSIONS..(at + 1) * DIMENSIONS];
        i8::dot(question, code).unwrap_or_default() as f32 * self.steps[at]
    }

    /// The places of one row's vectors.
    fn of_row(&self, row: i64) -> impl Iterator<Item = usize> {
        let start = self
            .starts
            .get(&row)
            .map_or(self.rows.len(), |s| *s as usize);
        (start..self.rows.len()).take_while(move |at| self.rows[*at] == row)
    }

    /// The vectors nearest to the question, in no order.
    fn scan(
        &self,
        range: std::ops::Range<usize>,
        question: &[i8],
        filter: &ScanFilter,
        n: usize,
    ) -> Vec<Hit> {
        let mut best: BinaryHeap<Hit> = BinaryHeap::with_capacity(n + 1);
        for at in range {
            if self.steps[at] <= 0.0 || !filter.allows(self.times[at], self.kinds[at]) {
                continue;
            }
            let score = self.dot(at, question);
            if best.len() < n {
                best.push(Hit { score, at });
            } else if best.peek().is_some_and(|worst| score > worst.score) {
                best.pop();
                best.push(Hit { score, at });
            }
        }
        best.into_vec()
    }
}

/// Which vectors a scan may find.
#[derive(Clone, Copy)]
pub struct ScanFilter {
    since: i64,
    until: i64,
    /// One bit a kind; None lets all through.
    kinds: Option<u32>,
}

impl ScanFilter {
    pub fn of(filter: &Filter) -> Self {
        let kinds = (!filter.kinds.is_empty()).then(|| {
            filter
                .kinds
                .iter()
                .fold(0u32, |bits, k| bits | 1 << kind_number(*k))
        });
        let until = [filter.until, filter.as_of]
            .into_iter()
            .flatten()
            .map(|m| m.0)
            .min()
            .unwrap_or(i64::MAX);
        Self {
            since: filter.since.map_or(i64::MIN, |m| m.0),
            until,
            kinds,
        }
    }

    /// The same, in a span of time only.
    pub fn within(self, from: Moment, until: Moment) -> Self {
        Self {
            since: self.since.max(from.0),
            until: self.until.min(until.0 - 1),
            ..self
        }
    }

    fn allows(&self, time: i64, kind: u8) -> bool {
        self.since <= time
            && time <= self.until
            && self.kinds.is_none_or(|kinds| kinds & (1 << kind) != 0)
    }
}

fn kind_number(kind: Kind) -> u8 {
    Kind::ALL
        .iter()
        .position(|k| *k == kind)
        .unwrap_or_default() as u8
}

impl Sqlite {
    /// Reads the vectors into memory before anybody asks.
    pub async fn warm_vectors(&self, model: &'static str) -> Result<()> {
        let vectors = self.vectors.clone();
        let whole = move |c: &Connection| vectors.catch_up(c, model, Duration::MAX);
        self.read_memory(whole).await.map(drop)
    }
}

impl Vectors {
    /// Lets go of everything: rows have moved from one project to another.
    pub fn forget(&self) {
        let mut matrices = self
            .matrices
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *matrices = Matrices {
            generation: matrices.generation + 1,
            ..Matrices::default()
        };
    }

    /// Reads what was embedded since the last look, step by step; one small query when there is
    /// nothing. Answers whether all of it is there, or `patience` was over before.
    pub fn catch_up(&self, c: &Connection, model: &str, patience: Duration) -> Result<bool> {
        let newest: i64 = c
            .query_row("select coalesce(max(id), 0) from memory_vectors", [], |r| {
                r.get(0)
            })
            .map_err(failed)?;
        let deadline = Instant::now().checked_add(patience);
        loop {
            if self.read_up_to(model).is_some_and(|last| newest <= last) {
                return Ok(true);
            }
            let left = deadline.map_or(PATIENT, |at| at.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            if let Some(_turn) = self.turn_to_read(left) {
                self.read_step(c, model, newest)?;
            }
        }
    }

    /// The last vector of this model that is in memory; none when those of another one are.
    fn read_up_to(&self, model: &str) -> Option<i64> {
        let matrices = self.matrices.read().unwrap_or_else(PoisonError::into_inner);
        (matrices.model == model).then_some(matrices.last)
    }

    /// The right to read the next step; none when somebody else has read one meanwhile.
    fn turn_to_read(&self, patience: Duration) -> Option<Turn<'_>> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if *reading {
            drop(self.step_ended.wait_timeout(reading, patience));
            return None;
        }
        *reading = true;
        Some(Turn(self))
    }

    /// Reads the next vectors and only then asks for the lock to put them in.
    fn read_step(&self, c: &Connection, model: &str, newest: i64) -> Result<()> {
        let (generation, last) = {
            let matrices = self.matrices.read().unwrap_or_else(PoisonError::into_inner);
            let known = matrices.model == model;
            (matrices.generation, if known { matrices.last } else { 0 })
        };
        let step = next_vectors(c, model, last, newest)?;
        self.take_in(model, generation, step);
        Ok(())
    }

    /// Puts a step in, unless rows have moved since it was begun.
    fn take_in(&self, model: &str, generation: u64, (step, reached): (Vec<Read>, i64)) {
        let mut matrices = self
            .matrices
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if matrices.generation != generation {
            return;
        }
        if matrices.model != model {
            *matrices = Matrices {
                generation,
                model: model.to_owned(),
                ..Matrices::default()
            };
        }
        let mut current = None;
        for read in step {
            let matrix = matrices.projects.entry(read.project.clone()).or_default();
            if current != Some(read.row) {
                current = Some(read.row);
                matrix.scanned.forget(read.row);
                matrix.judging.forget(read.row);
            }
            if read.role.is_scanned() {
                matrix.scanned.push(read)
            } else {
                matrix.judging.push(read)
            }
        }
        matrices.last = matrices.last.max(reached);
        for matrix in matrices.projects.values_mut() {
            matrix.scanned.clear_forgotten();
            matrix.judging.clear_forgotten();
        }
    }

    /// The rows nearest in meaning, `n` at the most, each with its best cosine; the nearest of them
    /// exact.
    pub fn nearest(
        &self,
        c: &Connection,
        project: &str,
        question: &[f32],
        filter: &ScanFilter,
        n: usize,
    ) -> Result<HashMap<i64, f64>> {
        let matrices = self.matrices.read().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = matrices.projects.get(project).map(|m| &m.scanned) else {
            return Ok(HashMap::new());
        };
        let (codes, step) = quantise(question);
        // Several fields of one row may be near: more vectors than rows are asked for.
        let (wanted, total) = (n * 2, block.ids.len());
        let mut best = if total < TWO_THREADS_FROM {
            block.scan(0..total, &codes, filter, wanted)
        } else {
            std::thread::scope(|scope| {
                let other = scope.spawn(|| block.scan(0..total / 2, &codes, filter, wanted));
                let mut mine = block.scan(total / 2..total, &codes, filter, wanted);
                mine.extend(other.join().unwrap_or_default());
                mine
            })
        };
        best.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.at.cmp(&b.at)));
        best.truncate(wanted);
        let exact = exact(
            c,
            best.iter().take(RERANKED).map(|hit| block.ids[hit.at]),
            question,
        )?;
        let mut by_row: HashMap<i64, f64> = HashMap::new();
        for (place, hit) in best.iter().enumerate() {
            if place >= RERANKED && by_row.len() >= n {
                break;
            }
            let score = match place < RERANKED {
                // Gone from the table: the row was embedded anew since it was read.
                true => match exact.get(&block.ids[hit.at]) {
                    Some(score) => *score,
                    None => continue,
                },
                false => hit.score * step,
            };
            let row = by_row.entry(block.rows[hit.at]).or_insert(-1.0);
            *row = row.max(f64::from(score));
        }
        Ok(by_row)
    }

    /// How near each of these rows is, role by role. `exact` are cosines that are known better than
    /// the scan knows them.
    pub fn judge(
        &self,
        project: &str,
        question: &[f32],
        rows: &[i64],
        exact: &HashMap<i64, f64>,
    ) -> HashMap<i64, Nearness> {
        let matrices = self.matrices.read().unwrap_or_else(PoisonError::into_inner);
        let Some(matrix) = matrices.projects.get(project) else {
            return HashMap::new();
        };
        let (codes, step) = quantise(question);
        let judged = rows.iter().filter_map(|row| {
            let mut best = [f64::MIN; 5];
            for block in [&matrix.scanned, &matrix.judging] {
                for at in block.of_row(*row) {
                    let role = &mut best[block.roles[at] as usize];
                    *role = role.max(f64::from(block.dot(at, &codes) * step));
                }
            }
            let [mut field, sentence, joined, context, asked] = best;
            if field == f64::MIN {
                return None;
            }
            // The scan's best is a field's or the whole's; exact where it was compared again.
            if let Some(known) = exact
                .get(row)
                .filter(|known| (**known - field).abs() < 0.02)
            {
                field = *known;
            }
            let or_field = |score: f64| if score == f64::MIN { field } else { score };
            Some((
                *row,
                // A question that the row answers speaks for the row as a whole.
                Nearness {
                    field: field.max(sentence).max(asked),
                    joined: or_field(joined).max(asked),
                    context: or_field(context).max(asked),
                    asked: asked > field.max(sentence),
                },
            ))
        });
        judged.collect()
    }
}

/// Ends a step, however it ended.
struct Turn<'a>(&'a Vectors);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let vectors = self.0;
        *vectors
            .reading
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = false;
        vectors.step_ended.notify_all();
    }
}

/// The vectors after `last`, about [`STEP_VECTORS`] of them, and how far that is. A row's vectors
/// are never parted, because a row that comes again replaces what it was.
fn next_vectors(c: &Connection, model: &str, last: i64, newest: i64) -> Result<(Vec<Read>, i64)> {
    let mut statement = c.prepare_cached(NEWER).map_err(failed)?;
    let mut rows = statement.query(params![last, model]).map_err(failed)?;
    let (mut step, mut reached, mut current) = (Vec::new(), last, None);
    let mut seen = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        let get = || -> rusqlite::Result<(i64, i64, i64, String, i64, String)> {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
            ))
        };
        let (id, memory_row, ordinal, kind, time, project) = get().map_err(failed)?;
        if seen >= STEP_VECTORS && current != Some(memory_row) {
            return Ok((step, reached));
        }
        (reached, current) = (id, Some(memory_row));
        seen += 1;
        let vector = row
            .get_ref(6)
            .ok()
            .and_then(|v| v.as_blob().ok().and_then(from_bytes));
        let (Some(vector), Some(kind)) = (vector, Kind::from_name(&kind)) else {
            continue;
        };
        let (codes, worth) = quantise(&vector);
        step.push(Read {
            project,
            id,
            row: memory_row,
            role: Role::of(ordinal),
            kind: kind_number(kind),
            time,
            codes,
            step: worth,
        });
    }
    Ok((step, reached.max(newest)))
}

/// The cosines of the best, from the vectors as they were made.
fn exact(
    c: &Connection,
    ids: impl Iterator<Item = i64>,
    question: &[f32],
) -> Result<HashMap<i64, f32>> {
    let wanted = serde_json::to_string(&ids.collect::<Vec<_>>()).unwrap_or_default();
    let mut statement = c.prepare_cached(EXACT).map_err(failed)?;
    let mut rows = statement.query([wanted]).map_err(failed)?;
    let mut scores = HashMap::new();
    while let Some(row) = rows.next().map_err(failed)? {
        let vector = row
            .get_ref(1)
            .ok()
            .and_then(|v| v.as_blob().ok().and_then(from_bytes));
        if let Some(vector) = vector {
            scores.insert(
                row.get(0).map_err(failed)?,
                f32::dot(question, &vector).unwrap_or_default() as f32,
            );
        }
    }
    Ok(scores)
}

#[cfg(test)]
mod tests {
    use super::*;
    use prism_core::memory::vector::to_bytes;

    const MODEL: &str = "m";

    /// A project with `n` rows of two vectors each, the first of them unlike all others.
    fn database(dir: &tempfile::TempDir, n: i64) -> Connection {
        let mut c = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut c).unwrap();
        c.execute_batch("pragma foreign_keys = off; begin").unwrap();
        for i in 1..=n {
            c.execute(
                "insert into memory (rowid, id, project_id, kind, identity, text, created_at)
                 values (?1, ?1, 'p', 'note', 'A', 'x', ?1)",
                [i],
            )
            .unwrap();
            for ordinal in [0, 1] {
                let at = if i == 1 { 0 } else { 1 + i as usize % 300 };
                c.execute(
                    "insert into memory_vectors (memory_row, ordinal, model, vector)
                     values (?, ?, ?, ?)",
                    params![i, ordinal, MODEL, to_bytes(&unit(at))],
                )
                .unwrap();
            }
        }
        c.execute_batch("commit").unwrap();
        c
    }

    fn unit(at: usize) -> Vec<f32> {
        let mut vector = vec![0.0; DIMENSIONS];
        vector[at] = 1.0;
        vector
    }

    fn loaded(vectors: &Vectors) -> usize {
        let matrices = vectors.matrices.read().unwrap();
        matrices
            .projects
            .get("p")
            .map_or(0, |m| m.scanned.ids.len())
    }

    fn nearest(vectors: &Vectors, c: &Connection, at: usize) -> HashMap<i64, f64> {
        let all = ScanFilter::of(&Filter::default());
        vectors.nearest(c, "p", &unit(at), &all, 1).unwrap()
    }

    #[test]
    fn vectors_are_read_in_steps_and_what_is_there_can_be_scanned_between_them() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 2 * STEP_VECTORS as i64);
        let vectors = Vectors::default();
        assert!(!vectors.catch_up(&c, MODEL, Duration::ZERO).unwrap());
        vectors
            .read_step(&c, MODEL, 4 * STEP_VECTORS as i64)
            .unwrap();
        assert_eq!(loaded(&vectors), STEP_VECTORS, "one step, and no more");
        assert!(nearest(&vectors, &c, 0).contains_key(&1));
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        assert_eq!(loaded(&vectors), 4 * STEP_VECTORS, "each of them once");
    }

    #[test]
    fn a_recall_neither_waits_for_ever_nor_reads_what_another_is_reading() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 3);
        let vectors = Vectors::default();
        let turn = vectors.turn_to_read(Duration::ZERO).expect("the first");
        let moment = Duration::from_millis(1);
        assert!(!vectors.catch_up(&c, MODEL, moment).unwrap());
        assert_eq!(loaded(&vectors), 0);
        assert!(nearest(&vectors, &c, 0).is_empty(), "and it can be asked");
        drop(turn);
        assert!(vectors.catch_up(&c, MODEL, moment * 60_000).unwrap());
        assert_eq!(loaded(&vectors), 6);
    }

    #[test]
    fn a_step_that_was_read_before_projects_were_merged_is_not_put_in_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 3);
        let vectors = Vectors::default();
        let step = next_vectors(&c, MODEL, 0, 6).unwrap();
        c.execute_batch("update memory set project_id = 'q'")
            .unwrap();
        vectors.forget();
        vectors.take_in(MODEL, 0, step);
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        assert_eq!(loaded(&vectors), 0, "all of it has moved");
        let all = ScanFilter::of(&Filter::default());
        let moved = vectors.nearest(&c, "q", &unit(0), &all, 1).unwrap();
        assert!(moved.contains_key(&1));
    }

    #[test]
    fn rows_embedded_anew_again_and_again_take_no_more_room() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 200);
        let vectors = Vectors::default();
        for _ in 0..20 {
            // Newer ids, as a row has that is embedded again.
            c.execute_batch("update memory_vectors set id = id + 1000")
                .unwrap();
            assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        }
        assert!(loaded(&vectors) < 400 + FORGOTTEN_MIN + 400);
        assert!(nearest(&vectors, &c, 0).contains_key(&1));
        let judged = vectors.judge("p", &unit(0), &[1, 2], &HashMap::new());
        assert!(judged[&1].field > 0.99 && judged[&2].field < 0.01);
    }

    #[test]
    fn a_row_embedded_anew_replaces_what_it_was_also_right_after_itself() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 1);
        let vectors = Vectors::default();
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        c.execute("delete from memory_vectors", []).unwrap();
        let again = params![MODEL, to_bytes(&unit(9))];
        let sql = "insert into memory_vectors (memory_row, ordinal, model, vector)
            values (1, 0, ?, ?)";
        c.execute(sql, again).unwrap();
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        let near = |at: usize| nearest(&vectors, &c, at)[&1];
        assert!(near(9) > 0.99 && near(0) < 0.01);
    }
}
