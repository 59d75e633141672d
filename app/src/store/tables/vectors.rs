//! Vectors in memory: an exact scan over all of a project's.
//!
//! Of many vectors, first only the signs of their numbers are compared; then whole numbers, of
//! those that are left; and the best are compared again as they lie on disk.

use super::{Result, Tables, failed};
use crate::store::memory::Filter;
use crate::store::sql::{self, Connection, params};
use prism_core::Moment;
use prism_core::memory::Kind;
use prism_core::memory::recall::Nearness;
use prism_core::memory::vector::{Role, from_bytes, quantise};
use simsimd::SpatialSimilarity;
use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Condvar, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What a vector of a row may stand for.
pub(super) const ROLES: usize = 5;
/// Vectors that are compared again exactly.
const RERANKED: usize = 100;
/// From so many vectors on, the scan uses a second thread.
const TWO_THREADS_FROM: usize = 150_000;
/// From so many vectors on, signs say which of them are compared as whole numbers: one in so many,
/// and so many at least.
const BY_SIGNS_FROM: usize = 60_000;
const BY_SIGNS_ONE_IN: usize = 64;
const BY_SIGNS_MIN: usize = 4_096;

/// Vectors that are read in one step; between two steps anybody may scan what is there.
const STEP_VECTORS: usize = 1_000;
/// Forgotten vectors of a block from which on their room is given back.
const FORGOTTEN_MIN: usize = 1_000;
/// How long a recall waits for vectors that are still being read.
pub(super) const RECALL_WAITS: Duration = Duration::from_secs(2);

/// One wait of a warm-up, which waits again for as long as it takes.
const PATIENT: Duration = Duration::from_secs(60);
/// A generation that nobody asked for so long is let go of once another one is there.
const LET_GO_AFTER: Duration = Duration::from_secs(60);

/// Vectors after the last one that is in memory, in order. By any index but the id's, each look would
/// read and sort all of them; without a limit PostgreSQL would send them all for every step.
pub(super) const NEWER: &str = "select v.id, v.memory_row, v.ordinal, m.kind, m.created_at,
        m.project_id, v.vector from memory_vectors v not indexed
    cross join memory m on m.rowid = v.memory_row where v.id > ? and v.model = ?
    order by v.id limit ?";
/// Vectors as they were made.
pub(super) const EXACT: &str = "select v.id, v.vector from json_each(?) j
    cross join memory_vectors v on v.id = cast(j.value as integer)";

/// The vectors of a generation, project by project, in a form that is quick to scan. While the next
/// one is read, the one before it answers; two never mix.
#[derive(Default)]
pub struct Vectors {
    generations: RwLock<Generations>,
    /// Whether somebody reads a step now; the others wait for it instead of reading the same.
    reading: Mutex<bool>,
    step_ended: Condvar,
}

#[derive(Default)]
struct Generations {
    /// How often everything was let go of: a step that was read before that is of no use after it.
    epoch: u64,
    held: Vec<Generation>,
}

/// All vectors of one model, or of several whose halves stand side by side: all of one length.
struct Generation {
    model: String,
    /// Numbers in each vector; none before the first was read.
    dimensions: usize,
    /// The last vector that was read.
    last: i64,
    /// Vectors that were passed over because their length is another.
    skipped: usize,
    projects: HashMap<String, Matrix>,
    asked: Mutex<Instant>,
}

impl Generation {
    fn of(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            dimensions: 0,
            last: 0,
            skipped: 0,
            projects: HashMap::new(),
            asked: Mutex::new(Instant::now()),
        }
    }

    fn asked(&self) -> Instant {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Generations {
    fn of(&self, model: &str) -> Option<&Generation> {
        self.held.iter().find(|g| g.model == model)
    }

    /// One project's vectors, when a question of so many dimensions can be compared with them.
    fn matrix(&self, model: &str, project: &str, dimensions: usize) -> Option<&Matrix> {
        self.of(model)
            .filter(|generation| generation.dimensions == dimensions)?
            .projects
            .get(project)
    }
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
    /// Numbers in each vector.
    dimensions: usize,
    codes: Vec<i8>,
    /// The signs of each vector, one bit a number.
    signs: Vec<u64>,
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
        self.dimensions = old.dimensions;
        for at in (0..old.rows.len()).filter(|at| old.steps[*at] > 0.0) {
            self.starts
                .entry(old.rows[at])
                .or_insert(self.rows.len() as u32);
            self.codes.extend_from_slice(old.code(at));
            self.signs.extend(signs(old.code(at)));
            self.steps.push(old.steps[at]);
            self.ids.push(old.ids[at]);
            self.roles.push(old.roles[at]);
            self.rows.push(old.rows[at]);
            self.times.push(old.times[at]);
            self.kinds.push(old.kinds[at]);
        }
    }

    fn push(&mut self, read: Read) {
        self.dimensions = read.codes.len();
        self.starts
            .entry(read.row)
            .or_insert(self.rows.len() as u32);
        self.signs.extend(signs(&read.codes));
        self.codes.extend(read.codes);
        self.steps.push(read.step);
        self.ids.push(read.id);
        self.roles.push(read.role);
        self.rows.push(read.row);
        self.times.push(read.time);
        self.kinds.push(read.kind);
    }

    fn code(&self, at: usize) -> &[i8] {
        &self.codes[at * self.dimensions..(at + 1) * self.dimensions]
    }

    fn dot(&self, at: usize, question: &[i8]) -> f32 {
        i8::dot(question, self.code(at)).unwrap_or_default() as f32 * self.steps[at]
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
        range: Range<usize>,
        question: &[i8],
        filter: &ScanFilter,
        n: usize,
        by_signs: bool,
    ) -> Vec<Hit> {
        if by_signs {
            let wanted = (range.len() / BY_SIGNS_ONE_IN).max(BY_SIGNS_MIN);
            let alike = self.alike(range, &signs(question).collect::<Vec<_>>(), filter, wanted);
            self.best(alike.into_iter(), question, n)
        } else {
            let allowed = range.filter(|at| self.allows(*at, filter));
            self.best(allowed, question, n)
        }
    }

    fn allows(&self, at: usize, filter: &ScanFilter) -> bool {
        self.steps[at] > 0.0 && filter.allows(self.times[at], self.kinds[at])
    }

    fn best(&self, places: impl Iterator<Item = usize>, question: &[i8], n: usize) -> Vec<Hit> {
        let mut best: BinaryHeap<Hit> = BinaryHeap::with_capacity(n + 1);
        for at in places {
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

    /// The vectors whose signs are most alike, `wanted` of those that the filter allows, and those
    /// that are as far as the last of them.
    fn alike(
        &self,
        range: Range<usize>,
        question: &[u64],
        filter: &ScanFilter,
        wanted: usize,
    ) -> Vec<usize> {
        let mut distances = vec![u16::MAX; range.len()];
        // Where the length is known beforehand, the comparison is several times as quick.
        match question.len() {
            6 => differing::<6>(&self.signs, question, range.start, &mut distances),
            12 => differing::<12>(&self.signs, question, range.start, &mut distances),
            n => {
                let rows = self.signs.chunks_exact(n.max(1)).skip(range.start);
                let all = distances.iter_mut().zip(rows);
                all.for_each(|(distance, signs)| *distance = differ(signs, question));
            }
        }
        if self.forgotten > 0 || !filter.lets_all() {
            for (at, distance) in range.clone().zip(&mut distances) {
                if !self.allows(at, filter) {
                    *distance = u16::MAX;
                }
            }
        }
        let mut how_many = vec![0usize; self.dimensions + 1];
        for distance in &distances {
            if let Some(n) = how_many.get_mut(usize::from(*distance)) {
                *n += 1;
            }
        }
        let mut sum = 0;
        let farthest = how_many.iter().position(|n| {
            sum += n;
            sum >= wanted
        });
        let farthest = farthest.unwrap_or(self.dimensions) as u16;
        let near = range.zip(distances);
        near.filter(|(_, distance)| *distance <= farthest)
            .map(|(at, _)| at)
            .collect()
    }
}

/// The signs of a vector, 64 to a number.
fn signs(codes: &[i8]) -> impl Iterator<Item = u64> {
    let bits = |chunk: &[i8]| {
        let positive = chunk.iter().enumerate().filter(|(_, code)| **code > 0);
        positive.fold(0, |bits, (i, _)| bits | 1 << i)
    };
    codes.chunks(64).map(bits)
}

fn differ(a: &[u64], b: &[u64]) -> u16 {
    let bits = a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones());
    bits.sum::<u32>() as u16
}

/// In how many signs each vector from a place on differs from the question.
fn differing<const N: usize>(all: &[u64], question: &[u64], from: usize, into: &mut [u16]) {
    let Some(question) = question.first_chunk::<N>() else {
        return;
    };
    let rows = all.as_chunks::<N>().0.iter().skip(from);
    for (distance, signs) in into.iter_mut().zip(rows) {
        *distance = differ(signs, question);
    }
}

/// Which vectors a scan may find.
#[derive(Clone, Copy)]
pub struct ScanFilter {
    pub(super) since: i64,
    pub(super) until: i64,
    /// One bit a kind; None lets all through.
    pub(super) kinds: Option<u32>,
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

    pub fn all() -> Self {
        Self::of(&Filter::default())
    }

    /// The same, in a span of time only.
    pub fn within(self, from: Moment, until: Moment) -> Self {
        Self {
            since: self.since.max(from.0),
            until: self.until.min(until.0 - 1),
            ..self
        }
    }

    pub(super) const fn lets_all(&self) -> bool {
        self.since == i64::MIN && self.until == i64::MAX && self.kinds.is_none()
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

impl Tables {
    /// Reads the vectors into memory before anybody asks.
    pub async fn warm_vectors(&self, model: &'static str) -> Result<()> {
        let (vectors, near) = (self.vectors.clone(), self.near.clone());
        // Where PostgreSQL has an index of them, they need not be in memory.
        let whole = move |c: &Connection| match near.index(c, model, 0)? {
            Some(_) => Ok(true),
            None => vectors.catch_up(c, model, Duration::MAX),
        };
        self.read_memory(whole).await.map(drop)
    }

    /// What the scan keeps by signs alone of the `n` nearest vectors to each question, as a share;
    /// none where there are too few vectors for it.
    pub async fn kept_by_signs(
        &self,
        model: &'static str,
        project: Uuid,
        questions: Vec<Vec<f32>>,
        n: usize,
    ) -> Result<Option<f64>> {
        let vectors = self.vectors.clone();
        self.read_memory(move |c| {
            vectors.catch_up(c, model, Duration::MAX)?;
            Ok(vectors.kept_by_signs((model, &project.to_string()), &questions, n))
        })
        .await
    }
}

impl Vectors {
    /// Lets go of everything: rows have moved from one project to another.
    pub fn forget(&self) {
        let mut generations = self.change();
        generations.epoch += 1;
        generations.held.clear();
    }

    /// Lets go of one generation, where it is held: something else answers in its place.
    pub fn let_go_of(&self, model: &str) -> bool {
        let held = self.look().of(model).is_some();
        if held {
            let mut generations = self.change();
            generations.epoch += 1;
            generations.held.retain(|g| g.model != model);
        }
        held
    }

    /// Gives back the room of all other generations: their vectors are gone from the store.
    pub fn keep_only(&self, stay: &[&str]) {
        let stays = |g: &Generation| stay.contains(&g.model.as_str());
        let all_stay = self.look().held.iter().all(stays);
        if !all_stay {
            self.change().held.retain(stays);
        }
    }

    fn look(&self) -> RwLockReadGuard<'_, Generations> {
        self.generations
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Generations> {
        self.generations
            .write()
            .unwrap_or_else(PoisonError::into_inner)
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
                self.let_go_beside(model);
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

    /// The last vector of this generation that is in memory; none before its first step.
    fn read_up_to(&self, model: &str) -> Option<i64> {
        let generations = self.look();
        let generation = generations.of(model)?;
        *generation
            .asked
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Some(generation.last)
    }

    /// Gives back the room of generations that nobody asks for any more, now that this one is there.
    fn let_go_beside(&self, model: &str) {
        let stays = |g: &Generation| g.model == model || g.asked().elapsed() < LET_GO_AFTER;
        let all_stay = self.look().held.iter().all(stays);
        if !all_stay {
            self.change().held.retain(stays);
        }
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
        let (epoch, last) = {
            let generations = self.look();
            let last = generations.of(model).map_or(0, |g| g.last);
            (generations.epoch, last)
        };
        let step = next_vectors(c, model, last, newest, STEP_VECTORS)?;
        self.take_in(model, epoch, step);
        Ok(())
    }

    /// Puts a step in, unless rows have moved since it was begun.
    fn take_in(&self, model: &str, epoch: u64, (step, reached): (Vec<Read>, i64)) {
        let mut generations = self.change();
        if generations.epoch != epoch {
            return;
        }
        let place = generations.held.iter().position(|g| g.model == model);
        let place = place.unwrap_or_else(|| {
            generations.held.push(Generation::of(model));
            generations.held.len() - 1
        });
        let generation = &mut generations.held[place];
        if generation.dimensions == 0 {
            generation.dimensions = usual_length(&step);
        }
        let (mut current, skipped) = (None, generation.skipped);
        for read in step {
            let projects = &mut generation.projects;
            let matrix = projects.entry(read.project.clone()).or_default();
            if current != Some(read.row) {
                current = Some(read.row);
                matrix.scanned.forget(read.row);
                matrix.judging.forget(read.row);
            }
            if read.codes.len() != generation.dimensions {
                generation.skipped += 1;
            } else if read.role.is_scanned() {
                matrix.scanned.push(read)
            } else {
                matrix.judging.push(read)
            }
        }
        generation.last = generation.last.max(reached);
        for matrix in generation.projects.values_mut() {
            matrix.scanned.clear_forgotten();
            matrix.judging.clear_forgotten();
        }
        if generation.skipped > skipped {
            let (skipped, dimensions) = (generation.skipped, generation.dimensions);
            tracing::warn!(
                model,
                skipped,
                dimensions,
                "Vectors of another length are not looked at; `prism memory reembed` makes them anew"
            );
        }
    }

    /// The rows nearest in meaning, `n` at the most, each with its best cosine; the nearest of them
    /// exact.
    pub fn nearest(
        &self,
        c: &Connection,
        (model, project): (&str, &str),
        question: &[f32],
        filter: &ScanFilter,
        n: usize,
    ) -> Result<HashMap<i64, f64>> {
        let best = {
            let generations = self.look();
            let Some(matrix) = generations.matrix(model, project, question.len()) else {
                return Ok(HashMap::new());
            };
            let block = &matrix.scanned;
            let (codes, step) = quantise(question);
            // Several fields of one row may be near: more vectors than rows are asked for.
            let by_signs = block.ids.len() >= BY_SIGNS_FROM;
            let best = nearest_of(block, &codes, filter, n * 2, by_signs);
            let found = best.into_iter().map(|hit| Near {
                id: block.ids[hit.at],
                row: block.rows[hit.at],
                score: hit.score * step,
            });
            found.collect::<Vec<_>>()
        };
        by_row(c, &best, question, n)
    }

    fn kept_by_signs(
        &self,
        (model, project): (&str, &str),
        questions: &[Vec<f32>],
        n: usize,
    ) -> Option<f64> {
        let generations = self.look();
        let (mut kept, mut all) = (0, 0);
        for question in questions {
            let matrix = generations.matrix(model, project, question.len())?;
            let block = &matrix.scanned;
            if block.ids.len() < BY_SIGNS_FROM {
                return None;
            }
            let everything = ScanFilter::of(&Filter::default());
            let (codes, _) = quantise(question);
            let found = |by_signs| nearest_of(block, &codes, &everything, n, by_signs);
            let by_signs: HashSet<usize> = found(true).iter().map(|hit| hit.at).collect();
            let nearest = found(false);
            all += nearest.len();
            kept += nearest.iter().filter(|h| by_signs.contains(&h.at)).count();
        }
        Some(kept as f64 / f64::from(all.max(1) as u32))
    }

    /// How near each of these rows is, role by role. `exact` are cosines that are known better than
    /// the scan knows them.
    pub fn judge(
        &self,
        (model, project): (&str, &str),
        question: &[f32],
        rows: &[i64],
        exact: &HashMap<i64, f64>,
    ) -> HashMap<i64, Nearness> {
        let generations = self.look();
        let Some(matrix) = generations.matrix(model, project, question.len()) else {
            return HashMap::new();
        };
        let (codes, step) = quantise(question);
        let judged = rows.iter().filter_map(|row| {
            let mut best = [f64::MIN; ROLES];
            for block in [&matrix.scanned, &matrix.judging] {
                for at in block.of_row(*row) {
                    let role = &mut best[block.roles[at] as usize];
                    *role = role.max(f64::from(block.dot(at, &codes) * step));
                }
            }
            Some((*row, nearness(best, exact.get(row).copied())?))
        });
        judged.collect()
    }
}

/// How near a row is by the best cosine of each role; none when it has no field. `exact` is known better
/// than the others.
pub(super) fn nearness(best: [f64; ROLES], exact: Option<f64>) -> Option<Nearness> {
    let [mut field, sentence, joined, context, asked] = best;
    if field == f64::MIN {
        return None;
    }
    // The scan's best is a field's or the whole's; exact where it was compared again.
    if let Some(known) = exact.filter(|known| (known - field).abs() < 0.02) {
        field = known;
    }
    let or_field = |score: f64| if score == f64::MIN { field } else { score };
    // A question that the row answers speaks for the row as a whole.
    Some(Nearness {
        field: field.max(sentence).max(asked),
        joined: or_field(joined).max(asked),
        context: or_field(context).max(asked),
        asked: asked > field.max(sentence),
    })
}

/// A vector that was found near, wherever it was sought.
pub(super) struct Near {
    pub id: i64,
    pub row: i64,
    pub score: f32,
}

/// The rows of the nearest vectors, which come in order: `n` at the most, each with its best cosine. The first
/// are compared again, exactly.
pub(super) fn by_row(
    c: &Connection,
    best: &[Near],
    question: &[f32],
    n: usize,
) -> Result<HashMap<i64, f64>> {
    let exact = exact(c, best.iter().take(RERANKED).map(|near| near.id), question)?;
    let mut by_row: HashMap<i64, f64> = HashMap::new();
    for (place, near) in best.iter().enumerate() {
        if place >= RERANKED && by_row.len() >= n {
            break;
        }
        let score = match place < RERANKED {
            // Gone from the table: the row was embedded anew since it was read.
            true => match exact.get(&near.id) {
                Some(score) => *score,
                None => continue,
            },
            false => near.score,
        };
        let row = by_row.entry(near.row).or_insert(-1.0);
        *row = row.max(f64::from(score));
    }
    Ok(by_row)
}

/// The vectors of a block nearest to the question, `wanted` at the most, the nearest first.
fn nearest_of(
    block: &Block,
    question: &[i8],
    filter: &ScanFilter,
    wanted: usize,
    by_signs: bool,
) -> Vec<Hit> {
    let total = block.ids.len();
    let scan = |range| block.scan(range, question, filter, wanted, by_signs);
    let mut best = if total < TWO_THREADS_FROM {
        scan(0..total)
    } else {
        std::thread::scope(|scope| {
            let other = scope.spawn(|| scan(0..total / 2));
            let mut mine = scan(total / 2..total);
            mine.extend(other.join().unwrap_or_default());
            mine
        })
    };
    best.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| a.at.cmp(&b.at)));
    best.truncate(wanted);
    best
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

/// The vectors after `last`, `step` of them or a few less, and how far that is. A row's vectors are never parted,
/// because a row that comes again replaces what it was.
fn next_vectors(
    c: &Connection,
    model: &str,
    last: i64,
    newest: i64,
    step: usize,
) -> Result<(Vec<Read>, i64)> {
    // One more than is taken says whether the last row may go on behind it.
    let bound = params![last, model, step as i64 + 1];
    let mut found = super::memory::list(c, NEWER, bound, read)?;
    if found.len() <= step {
        let reached = found.last().map_or(last, |(id, ..)| *id).max(newest);
        return Ok((
            found.into_iter().filter_map(|(.., read)| read).collect(),
            reached,
        ));
    }
    let cut = found.last().map(|(_, row, _)| *row);
    while found.last().map(|(_, row, _)| *row) == cut {
        found.pop();
    }
    match found.last().map(|(id, ..)| *id) {
        Some(reached) => Ok((
            found.into_iter().filter_map(|(.., read)| read).collect(),
            reached,
        )),
        // One row has more vectors than a step.
        None => next_vectors(c, model, last, newest, step * 2),
    }
}

/// A vector's number and row, and the vector itself if it can be read.
fn read(row: &sql::Row<'_>) -> sql::Result<(i64, i64, Option<Read>)> {
    let (id, memory_row) = (row.get(0)?, row.get(1)?);
    let kind: String = row.get(3)?;
    let vector = row.get_ref(6)?.as_blob().ok().and_then(from_bytes);
    let (Some(vector), Some(kind)) = (vector, Kind::from_name(&kind)) else {
        return Ok((id, memory_row, None));
    };
    let (codes, step) = quantise(&vector);
    let read = Read {
        project: row.get(5)?,
        id,
        row: memory_row,
        role: Role::of(row.get(2)?),
        kind: kind_number(kind),
        time: row.get(4)?,
        codes,
        step,
    };
    Ok((id, memory_row, Some(read)))
}

/// The length that most of these vectors have: one that was torn says nothing of the others.
fn usual_length(step: &[Read]) -> usize {
    let mut lengths: HashMap<usize, usize> = HashMap::new();
    for read in step {
        *lengths.entry(read.codes.len()).or_default() += 1;
    }
    let most = lengths.into_iter().max_by_key(|(length, n)| (*n, *length));
    most.map_or(0, |(length, _)| length)
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
        if let Some(vector) = vector.filter(|v| v.len() == question.len()) {
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

    const DIMENSIONS: usize = 384;

    fn unit(at: usize) -> Vec<f32> {
        let mut vector = vec![0.0; DIMENSIONS];
        vector[at] = 1.0;
        vector
    }

    fn loaded(vectors: &Vectors) -> usize {
        let generations = vectors.look();
        let matrix = generations.matrix(MODEL, "p", DIMENSIONS);
        matrix.map_or(0, |m| m.scanned.ids.len())
    }

    fn nearest(vectors: &Vectors, c: &Connection, at: usize) -> HashMap<i64, f64> {
        let all = ScanFilter::of(&Filter::default());
        vectors
            .nearest(c, (MODEL, "p"), &unit(at), &all, 1)
            .unwrap()
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
    fn a_step_never_parts_the_vectors_of_a_row_and_comes_to_the_end_whatever_its_length() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 9);
        for length in 1..=19 {
            let (mut last, mut seen) = (0, Vec::new());
            loop {
                let (step, reached) = next_vectors(&c, MODEL, last, 18, length).unwrap();
                let rows: Vec<i64> = step.iter().map(|read| read.row).collect();
                assert!(rows.len() <= length.max(2), "{length}: {rows:?}");
                seen.extend(rows.chunks(2).map(|pair| {
                    assert_eq!(pair, [pair[0]; 2], "{length}");
                    pair[0]
                }));
                last = reached;
                if step.is_empty() {
                    break;
                }
            }
            assert_eq!(seen, (1..=9).collect::<Vec<_>>(), "{length}");
            assert_eq!(last, 18);
        }
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
        let step = next_vectors(&c, MODEL, 0, 6, STEP_VECTORS).unwrap();
        c.execute_batch("update memory set project_id = 'q'")
            .unwrap();
        vectors.forget();
        vectors.take_in(MODEL, 0, step);
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        assert_eq!(loaded(&vectors), 0, "all of it has moved");
        let all = ScanFilter::of(&Filter::default());
        let moved = vectors
            .nearest(&c, (MODEL, "q"), &unit(0), &all, 1)
            .unwrap();
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
        let judged = vectors.judge((MODEL, "p"), &unit(0), &[1, 2], &HashMap::new());
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

    fn insert(c: &Connection, row: i64, model: &str, vector: &[f32]) {
        let sql = "insert into memory_vectors (memory_row, ordinal, model, vector)
            values (?1, (select coalesce(max(ordinal) + 1, 0) from memory_vectors
                where memory_row = ?1), ?2, ?3)";
        c.execute(sql, params![row, model, to_bytes(vector)])
            .unwrap();
    }

    #[test]
    fn the_generation_before_answers_until_the_next_is_read_and_they_never_mix() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 3);
        let vectors = Vectors::default();
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        // Twice as long, as the vectors of two models side by side are.
        let long = |at: usize| [unit(at), unit(at)].concat();
        insert(&c, 2, "two", &long(7));
        let all = ScanFilter::of(&Filter::default());
        let near = |model: &str, question: &[f32]| {
            vectors
                .nearest(&c, (model, "p"), question, &all, 9)
                .unwrap()
        };
        assert!(near("two", &long(7)).is_empty(), "not read yet");
        assert_eq!(near(MODEL, &unit(0)).len(), 3);
        assert!(vectors.catch_up(&c, "two", Duration::MAX).unwrap());
        assert_eq!(near(MODEL, &unit(0)).len(), 3, "still asked for");
        assert_eq!(near("two", &long(7)).into_keys().collect::<Vec<_>>(), [2]);
        let judged = vectors.judge(("two", "p"), &long(7), &[1, 2], &HashMap::new());
        assert_eq!(judged.into_keys().collect::<Vec<_>>(), [2]);
        assert!(near("two", &unit(7)).is_empty(), "of another length");
        let ages_ago = Instant::now().checked_sub(LET_GO_AFTER).unwrap();
        *vectors.look().of(MODEL).unwrap().asked.lock().unwrap() = ages_ago;
        assert!(vectors.catch_up(&c, "two", Duration::MAX).unwrap());
        assert!(near(MODEL, &unit(0)).is_empty() && !near("two", &long(7)).is_empty());
    }

    #[test]
    fn a_generation_that_left_the_store_leaves_memory_whether_or_not_anybody_asks() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 3);
        let vectors = Vectors::default();
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        insert(&c, 2, "two", &unit(7));
        assert!(vectors.catch_up(&c, "two", Duration::MAX).unwrap());
        vectors.keep_only(&["two"]);
        let held: Vec<_> = vectors
            .look()
            .held
            .iter()
            .map(|g| g.model.clone())
            .collect();
        assert_eq!(held, ["two"]);
    }

    #[test]
    fn a_vector_of_another_length_is_passed_over_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let c = database(&dir, 3);
        // The first of all is torn, another is of a model that says more, and one is nothing.
        let changed = |id: i64, vector: &[f32]| {
            let sql = "update memory_vectors set vector = ? where id = ?";
            c.execute(sql, params![to_bytes(vector), id]).unwrap();
        };
        changed(1, &[1.0]);
        changed(4, &[1.0; 2 * DIMENSIONS]);
        changed(6, &[]);
        let vectors = Vectors::default();
        assert!(vectors.catch_up(&c, MODEL, Duration::MAX).unwrap());
        assert_eq!(loaded(&vectors), 3);
        assert_eq!(vectors.look().of(MODEL).unwrap().skipped, 2);
        assert!(nearest(&vectors, &c, 3).contains_key(&2));
    }

    /// A block of `n` vectors around some centres, and the vectors.
    fn around_centres(n: usize, dimensions: usize) -> (Block, Vec<Vec<f32>>) {
        let mut state = 5u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        };
        let centres: Vec<Vec<f32>> = (0..n / 20)
            .map(|_| (0..dimensions).map(|_| random()).collect())
            .collect();
        let mut vectors = Vec::with_capacity(n);
        let mut block = Block::default();
        for i in 0..n {
            let centre = &centres[i % centres.len()];
            let vector: Vec<f32> = centre.iter().map(|x| x + random() * 1.2).collect();
            let (codes, step) = quantise(&vector);
            block.push(Read {
                project: String::new(),
                id: i as i64,
                row: i as i64,
                role: Role::Field,
                kind: (i % 2) as u8,
                time: i as i64,
                codes,
                step,
            });
            vectors.push(vector);
        }
        (block, vectors)
    }

    /// The places of the ten nearest, with and without a look at signs first.
    fn ten_nearest(block: &Block, question: &[f32], filter: &ScanFilter) -> [HashSet<usize>; 2] {
        let (codes, _) = quantise(question);
        let wanted = block.rows.len() / BY_SIGNS_ONE_IN;
        let alike = block.alike(
            0..block.rows.len(),
            &signs(&codes).collect::<Vec<_>>(),
            filter,
            wanted,
        );
        let by_signs = block.best(alike.into_iter(), &codes, 10);
        let all = block.scan(0..block.rows.len(), &codes, filter, 10, false);
        [by_signs, all].map(|hits| hits.iter().map(|hit| hit.at).collect())
    }

    #[test]
    fn signs_alone_keep_nearly_all_of_the_nearest_one_in_sixty_four() {
        for dimensions in [384, 768, 100] {
            let (block, vectors) = around_centres(16_384, dimensions);
            let (mut kept, mut all) = (0, 0);
            for question in vectors.iter().step_by(331) {
                let filter = ScanFilter::of(&Filter::default());
                let [by_signs, nearest] = ten_nearest(&block, question, &filter);
                all += nearest.len();
                kept += nearest.intersection(&by_signs).count();
            }
            // Shorter ones say too little; the way of looking is the same.
            let least = if dimensions < 384 { 0.6 } else { 0.99 };
            let share = f64::from(kept as u32) / f64::from(all as u32);
            assert!(share >= least, "{dimensions}: {share}");
        }
    }

    #[test]
    fn what_the_filter_takes_out_or_was_forgotten_takes_no_place_from_what_is_left() {
        let (mut block, vectors) = around_centres(16_384, 384);
        let filter = ScanFilter {
            since: 16_384 - 300,
            until: i64::MAX,
            kinds: Some(0b10),
        };
        for row in 0..8 {
            block.forget(16_383 - 2 * row);
        }
        let [by_signs, nearest] = ten_nearest(&block, &vectors[3], &filter);
        assert_eq!(by_signs, nearest);
        let allowed = |at: &usize| *at >= 16_384 - 300 && at % 2 == 1 && *at < 16_368;
        assert!(
            nearest.len() == 10 && nearest.iter().all(allowed),
            "{nearest:?}"
        );
    }
}
