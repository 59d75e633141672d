//! The words of a question: which rows hold them, and what they weigh there.
//!
//! Rare words are looked up whole. Where they leave many rows alike, more of the frequent ones are,
//! up to a bound; what was not looked up is sought in the text of the rows that were found, so that
//! a row which holds all of a question's words gets all of them counted.

use super::held;
use super::memory::list;
use super::word_counts::{self, Uncounted};
use super::{Result, failed};
use crate::store::memory::{Filter, Terms};
use crate::store::sql::{self, Connection, OptionalExtension, ToSql, Value};
use prism_core::memory::question::TERMS_MAX;
use prism_core::memory::recall::{Candidate, LEG_CANDIDATES, Points, Word, best, idf, word_weight};
use prism_core::memory::stem::{Sought, stem_of_term};
use std::collections::{HashMap, HashSet};

/// Rows holding a word that one question looks up in any case, and at the most.
const POSTINGS: u64 = 10_000;
const POSTINGS_MAX: u64 = 120_000;
/// Rows that hold the most of a question's words, and how many of them are read at once; of the
/// others, those that come far enough.
const SHORTLIST: usize = LEG_CANDIDATES;
const READ: usize = SHORTLIST / 2;
/// Words of a long question that are looked up although no counted row holds them.
const UNCOUNTED: usize = 8;
/// Damping of repeated words, and how much the length of a row counts.
const K1: f64 = 1.2;
const B: f64 = 0.75;

/// How many rows the project holds, how many words they have, and how many rows wait for vectors.
pub(super) const COUNTS: &str =
    "select rows, waiting, words from memory_counts where project_id = ?";
/// The rows of all projects that hold a word. Whose they are is asked once for all words.
pub(super) const HOLDING: &str = "select rowid from memory_fts where memory_fts match ? limit ?";
/// The rows of a project that hold all of some words, the newest, as far as the filter allows them: rows of other
/// projects take no place. With the times for its places.
pub(super) fn together_sql(filter: &Filter) -> (String, Vec<i64>) {
    let (narrowed, times) = super::candidates::narrowed(filter, 4);
    let sql = format!(
        "select m.rowid from memory_fts f
            cross join memory m indexed by ix_memory_candidate on m.rowid = f.rowid
         where memory_fts match ?1 and m.project_id = ?2 {narrowed} order by f.rowid desc limit ?3"
    );
    (sql, times)
}
/// The words of some rows.
pub(super) const TEXTS: &str = "select m.rowid, coalesce(m.title, ''), m.text, coalesce(m.also, '')
    from json_each(?) j cross join memory m on m.rowid = cast(j.value as integer)";

/// The rows that hold the question's words. Numbers of rows are this engine's own.
#[derive(Clone, Debug, Default)]
pub struct WordHits {
    terms: Vec<String>,
    /// What one occurrence of each word weighs in a row of usual length.
    idf: Vec<f64>,
    /// How many rows of the project hold each word, and how many it has.
    holding: Vec<f64>,
    total: f64,
    /// Words that were not looked up; which rows hold them is known from their text only.
    unknown: bool,
    /// Which words each row holds, one bit a word, in the order of rows.
    rows: Vec<(i64, u32)>,
    /// What the words of a row weigh, where its text was read.
    read: HashMap<i64, Vec<(usize, f64)>>,
    /// What is known of the best of those rows that the project and the filter allow.
    pub known: HashMap<i64, Candidate>,
    /// What all words weigh together.
    pub mass: f64,
    /// Words of a row of the project, on average.
    length: f64,
}

impl WordHits {
    /// Its words in their order, when these of them read as identifiers.
    pub fn words(&self, identifiers: &[String]) -> Vec<Word> {
        let one = |i: usize| {
            let is_identifier = identifiers.contains(&self.terms[i]);
            Word {
                weight: self.idf[i],
                points: Points::of(is_identifier, self.holding[i], self.total),
            }
        };
        (0..self.terms.len()).map(one).collect()
    }

    /// Which words a row holds, by number, and what each weighs.
    pub fn matches(&self, row: i64) -> Vec<(usize, f64)> {
        if let Some(read) = self.read.get(&row) {
            return read.clone();
        }
        let held = self.rows.binary_search_by_key(&row, |(row, _)| *row);
        let bits = held.map_or(0, |at| self.rows[at].1);
        let weight = |i: usize| (i, word_weight(self.idf[i], share(1.0, 1.0)));
        of_bits(bits).map(weight).collect()
    }
}

fn of_bits(mut bits: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (bits != 0).then(|| bits.trailing_zeros() as usize);
        bits &= bits.wrapping_sub(1);
        lowest
    })
}

/// The share of a word's weight that a row gets: less than 1, and the less the longer it is.
fn share(times: f64, length: f64) -> f64 {
    times / (times + K1 * (1.0 - B + B * length))
}

/// What a project holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub rows: u64,
    /// Rows that wait for their vectors.
    pub waiting: u64,
    pub words: u64,
}

pub fn counts(c: &Connection, project: &str) -> Result<Counts> {
    let found = c
        .prepare_cached(COUNTS)
        .and_then(|mut s| {
            s.query_row([project], |r| {
                let number = |i: usize| r.get::<_, i64>(i).map(|n| n.max(0) as u64);
                Ok(Counts {
                    rows: number(0)?,
                    waiting: number(1)?,
                    words: number(2)?,
                })
            })
            .optional()
        })
        .map_err(failed)?;
    Ok(found.unwrap_or_default())
}

/// The words of a long phrasing that tell most, in their order: what reads as an identifier, then what
/// the fewest rows hold. A word that no row holds tells nothing, unless its row was not counted yet.
fn telling(c: &Connection, project: &str, asked: &Terms) -> Result<Vec<String>> {
    let terms = &asked.words;
    if terms.len() <= TERMS_MAX {
        return Ok(terms.clone());
    }
    let stems: Vec<String> = terms.iter().map(|term| stem_of_term(term)).collect();
    let holding = word_counts::holding(c, project, &stems)?;
    let is_identifier = |i: &usize| asked.identifiers.contains(&terms[*i]);
    let (mut held, mut unheld): (Vec<usize>, Vec<usize>) =
        (0..terms.len()).partition(|i| holding[*i].in_project > 0);
    held.sort_by_key(|i| (!is_identifier(i), holding[*i].in_project));
    unheld.sort_by_key(|i| !is_identifier(i));
    unheld.truncate(TERMS_MAX.saturating_sub(held.len()).max(UNCOUNTED));
    held.truncate(TERMS_MAX - unheld.len());
    let mut order = [held, unheld].concat();
    order.sort_unstable();
    Ok(order.into_iter().map(|i| terms[i].clone()).collect())
}

/// Looks the words of one phrasing up.
pub fn words(c: &Connection, project: &str, asked: &Terms, filter: &Filter) -> Result<WordHits> {
    let counts = counts(c, project)?;
    if counts.rows == 0 || asked.words.is_empty() {
        return Ok(WordHits::default());
    }
    let terms = &telling(c, project, asked)?;
    let sought = Sought::new(terms.iter().map(String::as_str));
    let terms = &terms[..sought.stems().len()];
    let holding = word_counts::holding(c, project, sought.stems())?;
    let uncounted = word_counts::uncounted(c, project)?;
    let mut order: Vec<usize> = (0..terms.len()).collect();
    order.sort_by_key(|i| holding[*i].in_all);

    let mut expected = 0;
    for i in &order {
        expected += holding[*i].in_all;
        if expected > POSTINGS {
            break;
        }
        let bound = Lookup::bound(c, &terms[*i]);
        c.ahead(HOLDING, bound).map_err(failed)?;
    }
    let mut found = Lookup::default();
    let total = counts.rows as f64;
    let counted = holding.iter().map(|h| (h.in_project as f64).min(total));
    let mut held_by: Vec<f64> = counted.collect();
    let mut weights: Vec<f64> = held_by.iter().map(|n| idf(total, *n)).collect();
    for i in order {
        if found.postings.len() as u64 + holding[i].in_all > POSTINGS && found.is_decided(&weights)
        {
            break;
        }
        let Some(rows) = found.look_up(c, &terms[i], i)? else {
            break;
        };
        held_by[i] = in_project(rows, holding[i], &uncounted).min(total);
        weights[i] = idf(total, held_by[i]);
    }
    if !found.is_decided(&weights) {
        found.look_up_together(c, project, terms, filter)?;
    }
    let rows = found.rows();
    let known = shortlist(c, project, &rows, &weights, filter)?;
    let mut hits = WordHits {
        terms: terms.to_vec(),
        mass: weights.iter().sum(),
        idf: weights,
        holding: held_by,
        total,
        unknown: found.complete.count_ones() < terms.len() as u32,
        rows,
        read: HashMap::new(),
        length: counts.words as f64 / total,
        known,
    };
    let held = hits
        .rows
        .iter()
        .filter(|(row, _)| hits.known.contains_key(row));
    let held = held.map(|(row, bits)| (*row, weight(*bits, &hits.idf)));
    let most = best(held, READ);
    read(c, &mut hits, &sought, &most)?;
    Ok(hits)
}

/// How many rows of the project hold a word that these rows hold: exactly, but for a home that is
/// still being counted.
fn in_project(rows: &[u64], counted: word_counts::Holding, uncounted: &Uncounted) -> f64 {
    if counted.in_all == counted.in_project && uncounted.only_ours {
        return rows.len() as f64;
    }
    let newer = rows.iter().map(|packed| row_of(*packed));
    let newer = newer.filter(|row| uncounted.rows.contains(row)).count() as u64;
    (counted.in_project + newer).min(rows.len() as u64) as f64
}

/// What was looked up so far. A row and a word are one number, so that they sort quickly.
#[derive(Default)]
struct Lookup {
    postings: Vec<u64>,
    /// Which words were looked up whole.
    complete: u32,
}

const fn row_of(packed: u64) -> i64 {
    (packed >> 5) as i64
}

impl Lookup {
    /// What is asked of a word: the same whatever was found before it, so that it can be asked ahead.
    fn bound(c: &Connection, term: &str) -> sql::Many {
        let sought = held::sought(c, &held::Sought::Phrase(term));
        sql::params_from_iter([Value::Text(sought), Value::Integer(POSTINGS_MAX as i64 + 1)])
    }

    /// The rows that hold a word; none when there are too many of them.
    fn look_up(&mut self, c: &Connection, term: &str, number: usize) -> Result<Option<&[u64]>> {
        let left = POSTINGS_MAX.saturating_sub(self.postings.len() as u64);
        let before = self.postings.len();
        let mut statement = c.prepare_cached(HOLDING).map_err(failed)?;
        let mut rows = statement.query(Self::bound(c, term)).map_err(failed)?;
        while let Some(row) = rows.next().map_err(failed)? {
            if (self.postings.len() - before) as u64 == left {
                self.postings.truncate(before);
                return Ok(None);
            }
            let row: i64 = row.get(0).map_err(failed)?;
            self.postings.push((row as u64) << 5 | number as u64);
        }
        self.complete |= 1 << number;
        Ok(Some(&self.postings[before..]))
    }

    /// The rows that hold all words at once. Where each of them is frequent, that is what tells.
    fn look_up_together(
        &mut self,
        c: &Connection,
        project: &str,
        terms: &[String],
        filter: &Filter,
    ) -> Result<()> {
        let all = held::sought(c, &held::Sought::All(terms));
        let limit = SHORTLIST as i64;
        let (sql, times) = together_sql(filter);
        let mut bound: Vec<&dyn ToSql> = vec![&all, &project, &limit];
        bound.extend(times.iter().map(|time| time as &dyn ToSql));
        let rows = list(c, &sql, &bound, |r| r.get::<_, i64>(0))?;
        let of_row = |row: i64| (0..terms.len()).map(move |i| (row as u64) << 5 | i as u64);
        self.postings.extend(rows.into_iter().flat_map(of_row));
        Ok(())
    }

    /// Each row with the words that it holds.
    fn rows(&mut self) -> Vec<(i64, u32)> {
        // Stable: it makes use of runs that are in order already.
        self.postings.sort();
        let mut rows: Vec<(i64, u32)> = Vec::new();
        for packed in &self.postings {
            let (row, bit) = (row_of(*packed), 1 << (packed & 31));
            match rows.last_mut() {
                Some((last, bits)) if *last == row => *bits |= bit,
                _ => rows.push((row, bit)),
            }
        }
        rows
    }

    /// Whether the rows that hold the most are few enough to be looked at one by one.
    fn is_decided(&mut self, weights: &[f64]) -> bool {
        let scores: Vec<f64> = self
            .rows()
            .iter()
            .map(|(_, bits)| weight(*bits, weights))
            .collect();
        let most = scores.iter().copied().fold(0.0, f64::max);
        let best = scores.iter().filter(|score| **score >= most - 1e-9).count();
        (1..=READ).contains(&best)
    }
}

fn weight(bits: u32, weights: &[f64]) -> f64 {
    of_bits(bits).filter_map(|i| weights.get(i)).sum()
}

/// The rows of the project that hold the most of the words, as far as the filter allows them.
fn shortlist(
    c: &Connection,
    project: &str,
    rows: &[(i64, u32)],
    weights: &[f64],
    filter: &Filter,
) -> Result<HashMap<i64, Candidate>> {
    let mut scored: Vec<(f64, i64)> = rows
        .iter()
        .map(|(row, bits)| (weight(*bits, weights), *row))
        .collect();
    let by_weight = |a: &(f64, i64), b: &(f64, i64)| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1));
    scored.sort_unstable_by(by_weight);
    let mut known = HashMap::new();
    let mut asked = 0;
    // Rows of other projects, and rows that the filter takes out, make room for the next.
    while known.len() < SHORTLIST && asked < scored.len() {
        let step = (SHORTLIST - known.len()).max(asked);
        let next = &scored[asked..scored.len().min(asked + step)];
        asked += next.len();
        let next = next.iter().map(|(_, row)| *row).collect();
        known.extend(super::candidates::known_rows(c, project, next, filter)?);
    }
    // The last step may bring more than there is room for: how many, other projects decide.
    let best = scored.iter().map(|(_, row)| *row);
    let best = best.filter(|row| known.contains_key(row)).take(SHORTLIST);
    let best: HashSet<i64> = best.collect();
    known.retain(|row, _| best.contains(row));
    Ok(known)
}

/// Weighs the words of some rows by their text.
pub fn weigh(c: &Connection, hits: &mut WordHits, rows: &[i64]) -> Result<()> {
    if !hits.unknown {
        return Ok(());
    }
    let sought = Sought::new(hits.terms.iter().map(String::as_str));
    let unread: Vec<i64> = rows
        .iter()
        .filter(|row| !hits.read.contains_key(row))
        .copied()
        .collect();
    read(c, hits, &sought, &unread)
}

fn read(c: &Connection, hits: &mut WordHits, sought: &Sought, rows: &[i64]) -> Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let wanted = serde_json::to_string(rows).unwrap_or_default();
    let mut statement = c.prepare_cached(TEXTS).map_err(failed)?;
    let mut texts = statement.query([wanted]).map_err(failed)?;
    while let Some(row) = texts.next().map_err(failed)? {
        let text = |i: usize| {
            let value = row.get_ref(i).map_err(failed)?;
            value.as_str().map_err(failed)
        };
        let id: i64 = row.get(0).map_err(failed)?;
        let (mut times, mut words) = sought.count(text(2)?);
        for other in [text(1)?, text(3)?] {
            let (more, _) = sought.count(other);
            times.iter_mut().zip(more).for_each(|(n, m)| *n += m);
        }
        words = words.max(1);
        let at = hits.rows.binary_search_by_key(&id, |(row, _)| *row);
        let bits = at.map_or(0, |at| hits.rows[at].1);
        let length = f64::from(words) / hits.length.max(1.0);
        // What the index found stands, even where the text does not show it.
        let weight = |(i, n): (usize, &u32)| {
            let n = f64::from(*n).max(f64::from(bits >> i & 1));
            (n > 0.0).then(|| (i, word_weight(hits.idf[i], share(n, length))))
        };
        let weights = times.iter().enumerate().filter_map(weight).collect();
        hits.read.insert(id, weights);
    }
    Ok(())
}
