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
use std::sync::{PoisonError, RwLock};

/// Vectors that are compared again exactly.
const RERANKED: usize = 100;
/// From so many vectors on, the scan uses a second thread.
const TWO_THREADS_FROM: usize = 150_000;

/// Vectors after the last one that is held, in order. By any index but the id's, each look would
/// read and sort all of them.
pub(super) const NEWER: &str = "select v.id, v.memory_row, v.ordinal, m.kind, m.created_at, m.project_id, v.vector from memory_vectors v not indexed
    cross join memory m on m.rowid = v.memory_row where v.id > ? and v.model = ? order by v.id";

/// Every vector of one model, project by project, in a form that is quick to scan.
#[derive(Default)]
pub struct Vectors {
    held: RwLock<Held>,
}

#[derive(Default)]
struct Held {
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
    id: i64,
    row: i64,
    role: Role,
    kind: u8,
    time: i64,
    vector: Vec<f32>,
}

impl Block {
    /// Forgets what a row said before it was embedded again.
    fn forget(&mut self, row: i64) {
        if let Some(start) = self.starts.remove(&row) {
            for at in (start as usize..self.rows.len()).take_while(|at| self.rows[*at] == row) {
                self.steps[at] = 0.0;
            }
        }
    }

    fn push(&mut self, read: Read) {
        let (codes, step) = quantise(&read.vector);
        self.starts
            .entry(read.row)
            .or_insert(self.rows.len() as u32);
        self.codes.extend(codes);
        self.steps.push(step);
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
        self.read_memory(move |c| vectors.catch_up(c, model)).await
    }
}

impl Vectors {
    /// Reads what was embedded since the last look; one small query when there is nothing.
    pub fn catch_up(&self, c: &Connection, model: &str) -> Result<()> {
        let (known, last) = {
            let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
            (held.model == model, held.last)
        };
        let newest: i64 = c
            .query_row("select coalesce(max(id), 0) from memory_vectors", [], |r| {
                r.get(0)
            })
            .map_err(failed)?;
        if known && newest <= last {
            return Ok(());
        }
        let mut held = self.held.write().unwrap_or_else(PoisonError::into_inner);
        if held.model != model {
            *held = Held {
                model: model.to_owned(),
                ..Held::default()
            };
        }
        let mut statement = c.prepare_cached(NEWER).map_err(failed)?;
        let mut rows = statement.query(params![held.last, model]).map_err(failed)?;
        let mut current = 0;
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
            held.last = held.last.max(id);
            let vector = row
                .get_ref(6)
                .ok()
                .and_then(|v| v.as_blob().ok().and_then(from_bytes));
            let (Some(vector), Some(kind)) = (vector, Kind::from_name(&kind)) else {
                continue;
            };
            let matrix = held.projects.entry(project).or_default();
            if memory_row != current {
                current = memory_row;
                matrix.scanned.forget(memory_row);
                matrix.judging.forget(memory_row);
            }
            let read = Read {
                id,
                row: memory_row,
                role: Role::of(ordinal),
                kind: kind_number(kind),
                time,
                vector,
            };
            if read.role.is_scanned() {
                matrix.scanned.push(read)
            } else {
                matrix.judging.push(read)
            }
        }
        held.last = held.last.max(newest);
        Ok(())
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
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let Some(block) = held.projects.get(project).map(|m| &m.scanned) else {
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
        let held = self.held.read().unwrap_or_else(PoisonError::into_inner);
        let Some(matrix) = held.projects.get(project) else {
            return HashMap::new();
        };
        let (codes, step) = quantise(question);
        let judged = rows.iter().filter_map(|row| {
            let mut best = [f64::MIN; 4];
            for block in [&matrix.scanned, &matrix.judging] {
                for at in block.of_row(*row) {
                    let role = &mut best[block.roles[at] as usize];
                    *role = role.max(f64::from(block.dot(at, &codes) * step));
                }
            }
            let [mut field, sentence, joined, context] = best;
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
                Nearness {
                    field: field.max(sentence),
                    joined: or_field(joined),
                    context: or_field(context),
                },
            ))
        });
        judged.collect()
    }
}

/// The cosines of the best, from the vectors as they were made.
fn exact(
    c: &Connection,
    ids: impl Iterator<Item = i64>,
    question: &[f32],
) -> Result<HashMap<i64, f32>> {
    let wanted = serde_json::to_string(&ids.collect::<Vec<_>>()).unwrap_or_default();
    let mut statement = c.prepare_cached("select v.id, v.vector from json_each(?) j cross join memory_vectors v on v.id = j.value").map_err(failed)?;
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
