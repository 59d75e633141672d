//! The legs of a recall: words, meaning, and what the question names, with what stands beside each
//! row.

use super::memory::list;
use super::vectors::{RECALL_WAITS, ScanFilter};
use super::word_counts;
use super::words::{self, WordHits};
use super::{Result, Tables, failed, held};
use crate::store::memory::{Filter, Found, Phrasing, Search, Terms, WordHits as Hits, Words};
use crate::store::sql::{Connection, OptionalExtension, ToSql, Value, params};
use prism_core::Moment;
use prism_core::memory::entity::{Entity, EntityType};
use prism_core::memory::generation::Generation;
use prism_core::memory::question::{RELEASE_WORDS, released_version, year};
use prism_core::memory::recall::{
    Asked, Candidate, Candidates, LEG_CANDIDATES, LOOKED_AROUND, NEIGHBOUR_US, Nearness, Phrased,
    Sighting, Word, best, promising, rarity, taken_for,
};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;
use uuid::Uuid;

/// Rows that mention what the question names, at the most; a hub says little.
const MENTIONS_MAX: usize = 60;
/// The newest rows that speak of a person; those by another are sought among them.
const SPOKEN_OF_MAX: i64 = 2_000;
/// Rows beside one row that are looked at.
const BESIDE_MAX: usize = 16;
/// Notes of releases that are read when a question asks around one.
const RELEASE_NOTES: i64 = 2_000;

/// Rows by some people among the project's newest that speak of another.
const BETWEEN: &str = "select rowid from (select m.rowid, m.identity from memory_fts f
        cross join memory m indexed by ix_memory_candidate on m.rowid = f.rowid
        where memory_fts match ?1 and m.project_id = ?3 order by f.rowid desc limit ?2)
    where identity in (select value from json_each(?4))";
/// Rows that mention an entity in one way: of many the same ones, whichever engine is asked.
const MENTIONING: &str = "select m.rowid from edges e cross join memory m on m.id = e.src
    where e.dst = ? and e.kind = ? order by e.src limit ?";
const WAYS_TO_MENTION: [&str; 3] = ["MENTIONS", "CONFIRMS", "COMBINES"];
/// The row before each row in its session.
const BEFORE: &str = "select m.rowid, (select n.rowid from memory n indexed by ix_memory_session
        where n.session_id = m.session_id and n.created_at < m.created_at
        and n.created_at >= m.created_at - ?2 order by n.created_at desc limit 1) as other
    from json_each(?1) j
    cross join memory m indexed by ix_memory_candidate on m.rowid = cast(j.value as integer)";
/// The row after each row in its session.
const AFTER: &str = "select m.rowid, (select n.rowid from memory n indexed by ix_memory_session
        where n.session_id = m.session_id and n.created_at > m.created_at
        and n.created_at <= m.created_at + ?2 order by n.created_at asc limit 1) as other
    from json_each(?1) j
    cross join memory m indexed by ix_memory_candidate on m.rowid = cast(j.value as integer)";
/// Rows that these rows point at, and rows that point at them.
const EDGES_OUT: &str = "select a.rowid, m.rowid from json_each(?) j
    cross join edges e on e.src = j.value
        and e.kind in ('CONFIRMS','LABELS','COMBINES','SUPERSEDES')
    cross join memory m on m.id = e.dst cross join memory a on a.id = j.value";
const EDGES_IN: &str = "select a.rowid, m.rowid from json_each(?) j
    cross join edges e on e.dst = j.value
        and e.kind in ('CONFIRMS','LABELS','COMBINES','SUPERSEDES')
    cross join memory m on m.id = e.src cross join memory a on a.id = j.value";
/// The oldest and the newest row of a project.
const OLDEST: &str =
    "select created_at from memory where project_id = ? order by created_at asc limit 1";
const NEWEST: &str =
    "select created_at from memory where project_id = ? order by created_at desc limit 1";
/// Notes of releases, oldest first.
const RELEASES: &str = "select coalesce(m.title, '') || ' ' || m.text, m.created_at
    from memory_fts f cross join memory m on m.rowid = f.rowid
    where memory_fts match ?1 and m.project_id = ?2 and m.hidden = 0
    and m.kind <> 'confirmation' order by m.created_at limit ?3";

impl Tables {
    /// Looks the question's words up. Runs while the question is embedded.
    pub async fn words(
        &self,
        project: Uuid,
        phrasings: Vec<Terms>,
        filter: Filter,
    ) -> Result<Vec<Words>> {
        self.read_memory(move |c| {
            let project = project.to_string();
            let looked_up = |terms: &Terms| {
                let started = Instant::now();
                word_counts::ahead(c)?;
                let hits = words::words(c, &project, terms, &filter)?;
                Ok(Words {
                    hits: Hits::Found(Box::new(hits)),
                    us: started.elapsed().as_micros() as u64,
                })
            };
            phrasings.iter().map(looked_up).collect()
        })
        .await
    }

    /// Brings what the legs found together, with what stands beside it.
    pub async fn candidates(&self, mut search: Search) -> Result<Found> {
        let (vectors, indexed) = (self.vectors.clone(), self.near.clone());
        self.read_memory(move |c| {
            let project = search.project_id.to_string();
            for sql in [OLDEST, NEWEST, words::COUNTS] {
                c.ahead(sql, [&project]).map_err(failed)?;
            }
            let (span, years) = span(c, &project)?;
            let windows = search.question.windows(&years);
            let phrasings = std::mem::take(&mut search.phrasings);
            // Where there are several phrasings, each brings half of what one alone would.
            let share = LEG_CANDIDATES / phrasings.len().clamp(1, 2);
            let mut legs: Vec<Leg> = phrasings.into_iter().map(Leg::of).collect();
            let mut known: HashMap<i64, Candidate> = HashMap::new();
            let mut chosen: HashSet<i64> = HashSet::new();
            for leg in &mut legs {
                known.extend(std::mem::take(&mut leg.words.known));
                let scored = leg.own.iter().map(|(row, weight)| (*row, *weight));
                chosen.extend(best(scored, share));
            }
            let held: HashSet<&i64> = legs.iter().flat_map(|leg| leg.own.keys()).collect();
            let lexical = held.len();

            let started = Instant::now();
            let (mut still_reading, mut index) = (false, None);
            if let Some(vector) = legs.iter().find_map(|leg| leg.vector.as_ref()) {
                index = indexed.index(c, search.model, vector.len())?;
                if index.is_none() {
                    still_reading = !vectors.catch_up(c, search.model, RECALL_WAITS)?;
                }
            }
            let nearest = |vector: &[f32], filter: &ScanFilter, n: usize| match &index {
                Some(index) => index.nearest(&project, vector, filter, n),
                None => vectors.nearest(c, (search.model, &project), vector, filter, n),
            };
            let asked = legs.iter().find_map(|leg| leg.vector.as_deref());
            let generation = Generation::of(search.model);
            let generation = generation.map(|g| asked.map_or(g, |vector| g.heard_by(vector)));
            // Each generation's cosines lie differently; the ranking knows one scale.
            let scaled = |cosine: f64| generation.map_or(cosine, |g| g.scaled(cosine));
            let plain = ScanFilter::of(&search.filter);
            for (n, leg) in legs.iter_mut().enumerate() {
                let Some(vector) = &leg.vector else { continue };
                leg.near = nearest(vector, &plain, share)?;
                for window in windows.iter().filter(|_| n == 0) {
                    // What was asked of a time is looked for in that time, too.
                    let within = plain.within(window.from, window.until);
                    let found = nearest(vector, &within, LEG_CANDIDATES / 8)?;
                    leg.near.extend(found);
                }
            }
            let vector_us = started.elapsed().as_micros() as u64;
            let near: HashSet<i64> = legs.iter().flat_map(|l| l.near.keys()).copied().collect();
            let found_by_meaning = near.len();

            let started = Instant::now();
            let mentions: HashSet<i64> = mentions(c, &project, &search.entities)?
                .into_iter()
                .collect();
            let between: HashSet<i64> = between(c, &project, &search.question.named)?
                .into_iter()
                .collect();
            // Where much passed between them, that it did tells little.
            let rarity = rarity(between.len(), MENTIONS_MAX);
            chosen.extend(near.iter().chain(&mentions).chain(&between));
            let missing: Vec<i64> = chosen
                .iter()
                .filter(|row| !known.contains_key(row))
                .copied()
                .collect();
            known.extend(known_rows(c, &project, missing, &search.filter)?);
            chosen.retain(|row| known.contains_key(row));
            let seen_by = |row: &i64, legs: &[Leg]| {
                let most = |of: &dyn Fn(&Leg) -> f64| legs.iter().map(of).fold(0.0, f64::max);
                Sighting {
                    own_words: most(&|leg| leg.share_of_words(*row)),
                    nearest: most(&|leg| leg.nearness(*row, &scaled)),
                    pointed: most(&|leg| leg.asked().points(&leg.words.matches(*row))),
                    mentions: mentions.contains(row),
                    between: if between.contains(row) { rarity } else { 0.0 },
                }
            };
            let looked_around = |legs: &[Leg], n: usize| {
                let sightings = chosen.iter().map(|row| (*row, seen_by(row, legs)));
                promising(sightings, &search.weights, n)
            };
            let mut rows: Vec<i64> = looked_around(&legs, LOOKED_AROUND);
            if legs.len() > 1 {
                // A phrasing that fits all rows alike takes no place from what the question finds.
                rows.extend(looked_around(&legs[..1], LOOKED_AROUND / 2));
                rows.sort_unstable();
                rows.dedup();
            }
            let beside = if search.neighbours {
                beside(c, &project, &rows, &mut known, &search.filter)?
            } else {
                HashMap::new()
            };
            let drawn_in: BTreeSet<i64> = beside
                .values()
                .flatten()
                .filter(|row| known.contains_key(row))
                .copied()
                .collect();
            rows.extend(drawn_in.into_iter().filter(|row| !chosen.contains(row)));
            rows.sort_unstable();
            rows.dedup();
            let graph_us = started.elapsed().as_micros() as u64;

            let started = Instant::now();
            let places: HashMap<i64, usize> =
                rows.iter().enumerate().map(|(i, row)| (*row, i)).collect();
            let judge = |leg: &Leg| match (&leg.vector, &index) {
                (Some(vector), Some(index)) => index.judge(&project, vector, &rows, &leg.near),
                (Some(vector), None) => {
                    let of = (search.model, project.as_str());
                    Ok(vectors.judge(of, vector, &rows, &leg.near))
                }
                (None, _) => Ok(HashMap::new()),
            };
            let judged: Vec<HashMap<i64, Nearness>> =
                legs.iter().map(judge).collect::<Result<_>>()?;
            for leg in &mut legs {
                words::weigh(c, &mut leg.words, &rows)?;
            }
            let phrased = |n: usize, row: &i64| Phrased {
                matches: legs[n].words.matches(*row),
                near: judged[n].get(row).map(|near| near.on(scaled)),
            };
            let candidates = rows.iter().filter_map(|row| {
                let Phrased { matches, near } = phrased(0, row);
                Some(Candidate {
                    matches,
                    near,
                    also: (1..legs.len()).map(|n| phrased(n, row)).collect(),
                    mentions: mentions.contains(row),
                    between: if between.contains(row) { rarity } else { 0.0 },
                    beside: beside
                        .get(row)
                        .into_iter()
                        .flatten()
                        .filter_map(|b| places.get(b))
                        .copied()
                        .collect(),
                    ..known.get(row)?.clone()
                })
            });
            let rows: Vec<Candidate> = candidates.collect();
            let release = match &search.question.around_release {
                Some(around) => around.span(&releases(c, &project)?),
                None => None,
            };
            Ok(Found {
                candidates: Candidates {
                    rows,
                    mass: legs[0].words.mass,
                    also_mass: legs[1..].iter().map(|leg| leg.words.mass).collect(),
                    words: legs.iter().map(|leg| leg.asked.clone()).collect(),
                    windows,
                    release,
                    span,
                },
                lexical,
                vector: found_by_meaning,
                vector_us,
                still_reading,
                graph: mentions.len(),
                graph_us,
                recency_us: started.elapsed().as_micros() as u64,
                embed_pending: words::counts(c, &project)?.waiting,
            })
        })
        .await
    }
}

/// One phrasing on its way: what its words and its meaning have found.
struct Leg {
    words: WordHits,
    /// What those words are.
    asked: Vec<Word>,
    /// What the words of each row weigh that the filter allows.
    own: HashMap<i64, f64>,
    vector: Option<Vec<f32>>,
    near: HashMap<i64, f64>,
}

impl Leg {
    fn of(phrasing: Phrasing) -> Self {
        let words = match phrasing.words.hits {
            Hits::Found(words) => *words,
            Hits::Nothing => WordHits::default(),
        };
        let weight = |row: &i64| words.matches(*row).iter().map(|(_, w)| w).sum();
        let own = words.known.keys().map(|row| (*row, weight(row))).collect();
        Self {
            asked: words.words(&phrasing.identifiers),
            words,
            own,
            vector: phrasing.vector,
            near: HashMap::new(),
        }
    }

    fn asked(&self) -> Asked<'_> {
        Asked {
            words: &self.asked,
            mass: self.words.mass,
        }
    }

    /// How near a row is; one that was not found by meaning may have no vectors yet.
    fn nearness(&self, row: i64, scaled: &impl Fn(f64) -> f64) -> f64 {
        self.near.get(&row).copied().map_or_else(
            || {
                let covered = self.asked().covered(&self.words.matches(row));
                let nearest = self.near.values().copied().map(scaled).fold(0.0, f64::max);
                taken_for(covered, 0.0, nearest)
            },
            scaled,
        )
    }

    fn share_of_words(&self, row: i64) -> f64 {
        self.own.get(&row).copied().unwrap_or_default() / self.words.mass.max(1e-6)
    }
}

/// The filter as SQL, and the times for its places, which are numbered from one on. Kinds are names of a closed list;
/// times are bound, so that the statement is the same one whenever it is asked.
pub(super) fn narrowed(filter: &Filter, first: usize) -> (String, Vec<i64>) {
    let (mut sql, mut times) = (String::new(), Vec::new());
    if !filter.kinds.is_empty() {
        let kinds: Vec<String> = filter.kinds.iter().map(|k| format!("'{k}'")).collect();
        sql.push_str(&format!(" and m.kind in ({})", kinds.join(",")));
    }
    let mut place = |time: Moment| {
        times.push(time.0);
        first + times.len() - 1
    };
    if let Some(since) = filter.since {
        sql.push_str(&format!(" and m.created_at >= ?{}", place(since)));
    }
    if let Some(until) = filter.until {
        sql.push_str(&format!(" and m.created_at <= ?{}", place(until)));
    }
    if let Some(at) = filter.as_of {
        sql.push_str(&format!(
            " and m.created_at <= ?{0} and not exists (select 1 from entity_states s
                where s.node = m.id and s.valid_until <= ?{0})",
            place(at)
        ));
    }
    (sql, times)
}

/// Looks rows up that are the project's, shown, and let through by the filter.
fn known_sql(filter: &Filter) -> (String, Vec<i64>) {
    let (narrowed, times) = narrowed(filter, 3);
    let sql = format!(
        "select m.rowid, m.id, m.identity, m.session_id, m.created_at, m.cues, m.words
         from json_each(?1) j
         cross join memory m indexed by ix_memory_candidate on m.rowid = cast(j.value as integer)
         where m.project_id = ?2 and m.hidden = 0 {narrowed}"
    );
    (sql, times)
}

/// What is known of some rows, as far as they may be shown.
pub(super) fn known_rows(
    c: &Connection,
    project: &str,
    rows: Vec<i64>,
    filter: &Filter,
) -> Result<HashMap<i64, Candidate>> {
    if rows.is_empty() {
        return Ok(HashMap::new());
    }
    let wanted = serde_json::to_string(&rows).unwrap_or_default();
    let (sql, times) = known_sql(filter);
    let mut bound: Vec<&dyn ToSql> = vec![&wanted, &project];
    bound.extend(times.iter().map(|time| time as &dyn ToSql));
    let found = list(c, &sql, &bound, |r| {
        let row = Candidate {
            id: r.get(1)?,
            identity: r.get(2)?,
            session: r.get(3)?,
            at: Moment(r.get(4)?),
            cues: r.get(5)?,
            words: r.get(6)?,
            ..Candidate::default()
        };
        Ok((r.get::<_, i64>(0)?, row))
    })?;
    Ok(found.into_iter().collect())
}

/// Rows that mention what the question names; people are left to the ranking.
fn mentions(c: &Connection, project: &str, entities: &[Entity]) -> Result<Vec<i64>> {
    let mut rows = Vec::new();
    for entity in entities.iter().filter(|e| e.kind != EntityType::Identity) {
        let node: Option<i64> = c
            .prepare_cached(
                "select id from entities where project_id = ? and type = ? and name = ?",
            )
            .and_then(|mut s| {
                s.query_row(params![project, entity.kind.name(), entity.name], |r| {
                    r.get(0)
                })
                .optional()
            })
            .map_err(failed)?;
        let Some(node) = node else { continue };
        let left = MENTIONS_MAX - rows.len().min(MENTIONS_MAX);
        let asked = WAYS_TO_MENTION.map(|way| {
            vec![
                Value::Text(format!("entity:{node}")),
                Value::Text(way.to_owned()),
                Value::Integer(left as i64),
            ]
        });
        let found = c.query_each(MENTIONING, &asked, |r| r.get::<_, i64>(0));
        rows.extend(found.map_err(failed)?.into_iter().flatten().take(left));
    }
    Ok(rows)
}

/// Rows by one of these people that speak of another of them.
fn between(c: &Connection, project: &str, people: &[String]) -> Result<Vec<i64>> {
    let mut rows = Vec::new();
    if people.len() < 2 {
        return Ok(rows);
    }
    for spoken_of in people {
        let others: Vec<&String> = people.iter().filter(|p| *p != spoken_of).collect();
        let mut found = list(
            c,
            BETWEEN,
            params![
                held::sought(c, &held::Sought::Phrase(spoken_of)),
                SPOKEN_OF_MAX,
                project,
                serde_json::to_string(&others).unwrap_or_default()
            ],
            |r| r.get::<_, i64>(0),
        )?;
        found.sort_unstable_by(|a, b| b.cmp(a));
        rows.extend(found.into_iter().take(MENTIONS_MAX));
    }
    Ok(rows)
}

/// For each row the rows before and after it in its session, and those one edge away.
fn beside(
    c: &Connection,
    project: &str,
    rows: &[i64],
    known: &mut HashMap<i64, Candidate>,
    filter: &Filter,
) -> Result<HashMap<i64, Vec<i64>>> {
    let ids: Vec<&str> = rows
        .iter()
        .filter_map(|row| known.get(row).map(|m| m.id.as_str()))
        .collect();
    let wanted = serde_json::to_string(&ids).unwrap_or_default();
    for sql in [EDGES_OUT, EDGES_IN] {
        c.ahead(sql, [&wanted]).map_err(failed)?;
    }
    let mut pairs: Vec<(i64, i64)> = Vec::new();
    for sql in [EDGES_OUT, EDGES_IN] {
        pairs.extend(list(c, sql, params![wanted], |r| {
            Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?))
        })?);
    }
    let in_session: Vec<i64> = rows
        .iter()
        .filter(|row| known.get(row).is_some_and(|m| m.session.is_some()))
        .copied()
        .collect();
    if !in_session.is_empty() {
        let wanted = serde_json::to_string(&in_session).unwrap_or_default();
        c.ahead(AFTER, params![wanted, NEIGHBOUR_US])
            .map_err(failed)?;
        for sql in [BEFORE, AFTER] {
            let found = list(c, sql, params![wanted, NEIGHBOUR_US], |r| {
                Ok((r.get::<_, i64>(0)?, r.get::<_, Option<i64>>(1)?))
            })?;
            pairs.extend(
                found
                    .into_iter()
                    .filter_map(|(row, other)| Some((row, other?))),
            );
        }
    }
    let missing: BTreeSet<i64> = pairs
        .iter()
        .map(|(_, other)| *other)
        .filter(|row| !known.contains_key(row))
        .collect();
    let missing = missing.into_iter().collect();
    known.extend(known_rows(c, project, missing, filter)?);
    let mut around: HashMap<i64, Vec<i64>> = HashMap::new();
    for (row, other) in pairs {
        // Neighbourhood is mutual.
        for (a, b) in [(row, other), (other, row)] {
            let mine = around.entry(a).or_default();
            if known.contains_key(&b) && !mine.contains(&b) && mine.len() < BESIDE_MAX {
                mine.push(b);
            }
        }
    }
    Ok(around)
}

/// The times of the project's oldest and newest row, and the years between them.
fn span(c: &Connection, project: &str) -> Result<((Moment, Moment), Vec<i16>)> {
    let end = |sql: &str| {
        c.prepare_cached(sql)
            .and_then(|mut s| s.query_row([project], |r| r.get::<_, i64>(0)).optional())
            .map_err(failed)
    };
    let (first, last) = (
        Moment(end(OLDEST)?.unwrap_or_default()),
        Moment(end(NEWEST)?.unwrap_or_default()),
    );
    // A clock that was once far off must not make a question mean a thousand Junes.
    let years: Vec<i16> = (year(first)..=year(last)).rev().take(12).collect();
    Ok(((first, last), years))
}

/// The releases that rows speak of, each with the time it was first spoken of.
fn releases(c: &Connection, project: &str) -> Result<Vec<(String, Moment)>> {
    let words = held::sought(c, &held::Sought::Any(&RELEASE_WORDS));
    let bound = params![words, project, RELEASE_NOTES];
    let notes = list(c, RELEASES, bound, |r| {
        Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?))
    })?;
    let mut releases: Vec<(String, Moment)> = Vec::new();
    for (text, at) in notes {
        if let Some(version) = released_version(&text)
            && !releases.iter().any(|(v, _)| *v == version)
        {
            releases.push((version, Moment(at)));
        }
    }
    Ok(releases)
}

#[cfg(test)]
mod tests {
    use super::super::word_counts;
    use super::*;
    use crate::store::sql;
    use prism_core::memory::question::TERMS_MAX;
    use prism_core::memory::recall::idf;

    /// Candidates are judged from one index, words are looked up by word, and no step scans a
    /// table.
    fn asked(words: &[String]) -> Terms {
        Terms {
            words: words.to_vec(),
            identifiers: Vec::new(),
        }
    }

    #[test]
    fn every_step_of_a_recall_is_a_search() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut connection).unwrap();
        connection
            .execute_batch("pragma foreign_keys = off; begin")
            .unwrap();
        for i in 0..2000 {
            connection
                .execute(
                    "insert into memory (id, project_id, session_id, kind, identity, text, created_at) values (?, 'p', 's', 'note', 'A', 'x', ?)",
                    params![format!("{i}"), i],
                )
                .unwrap();
            connection
                .execute(
                    "insert into edges values (?, 'CONFIRMS', ?, 'p', 0)",
                    params![format!("{i}"), format!("{}", i % 7)],
                )
                .unwrap();
        }
        connection.execute_batch("commit; analyze").unwrap();
        let plan = |sql: &str, bound: &[&dyn sql::ToSql]| -> Vec<String> {
            let mut statement = connection
                .prepare(&format!("explain query plan {sql}"))
                .unwrap();
            statement
                .query_map(bound, |r| r.get(3))
                .unwrap()
                .collect::<sql::Result<_>>()
                .unwrap()
        };
        // Every statement of a recall, as it runs: each step finds its rows by an index, and the
        // only things read whole are the ids that were handed over.
        let filters = [
            Filter::default(),
            Filter {
                kinds: vec![prism_core::memory::Kind::Note],
                since: Some(Moment(1)),
                until: Some(Moment(9)),
                as_of: Some(Moment(5)),
            },
        ];
        for filter in filters {
            let (sql, times) = known_sql(&filter);
            let mut bound: Vec<&dyn sql::ToSql> = vec![&"[1]", &"p"];
            bound.extend(times.iter().map(|time| time as &dyn sql::ToSql));
            let known = plan(&sql, &bound);
            let search = "SEARCH m USING COVERING INDEX ix_memory_candidate (rowid=?";
            assert!(known.iter().any(|s| s.contains(search)), "{known:?}");
            assert_searches(&known);
        }
        let (together, _) = words::together_sql(&Filter::default());
        let none: &[&dyn sql::ToSql] = params![];
        for (sql, bound) in [
            (words::COUNTS, params!["p"]),
            (words::HOLDING, params!["x", 9]),
            (words::TEXTS, params!["[]"]),
            (&together, params!["x", "p", 9]),
            (word_counts::COUNTED, none),
            (word_counts::OF_WORD, params!["x", "p"]),
            (word_counts::UNCOUNTED, params![9, "p"]),
            (BETWEEN, params!["x", 9, "p", "[]"]),
            (MENTIONING, params!["x", "MENTIONS", 9]),
            (BEFORE, params!["[]", 9]),
            (AFTER, params!["[]", 9]),
            (EDGES_OUT, params!["[]"]),
            (EDGES_IN, params!["[]"]),
            (OLDEST, params!["p"]),
            (NEWEST, params!["p"]),
            (super::super::vectors::NEWER, params![5, "x", 9]),
            (super::super::vectors::EXACT, params!["[]"]),
        ] {
            let steps = plan(sql, bound);
            assert_searches(&steps);
            let sorted = steps.iter().any(|s| s.contains("TEMP B-TREE"));
            assert!(!sorted, "{sql}: {steps:?}");
        }
        assert_searches(&plan(RELEASES, params!["x", "p", 9]));
        let newer = plan(super::super::vectors::NEWER, params![5, "x", 9]);
        assert!(
            newer[0].contains("SEARCH v USING INTEGER PRIMARY KEY (rowid>?)"),
            "only new vectors are read: {newer:?}"
        );
        let foreign = plan(
            &super::super::embed_queue::requeue_foreign_sql(),
            params!["x"],
        );
        let by_index = |step: &&String| step.contains("COVERING INDEX ix_memory_vectors_");
        assert_eq!(
            foreign.iter().filter(by_index).count(),
            3,
            "no vector is read at start: {foreign:?}"
        );
    }

    #[test]
    fn a_project_knows_how_many_rows_it_holds_and_how_many_wait_whatever_becomes_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut connection = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut connection).unwrap();
        let run = |sql: &str| connection.execute_batch(sql).unwrap();
        let counted = |project: &str| {
            let counts = words::counts(&connection, project).unwrap();
            (counts.rows, counts.waiting)
        };
        run("pragma foreign_keys = off");
        for i in 0..3 {
            run(&format!(
                "insert into memory (id, project_id, kind, identity, text, created_at)
                    values ('{i}', 'p', 'note', 'A', 'x', {i});
                 insert into embed_intents (memory_id, queued_at) values ('{i}', 0)"
            ));
        }
        assert_eq!(counted("p"), (3, 3));
        // Queued again, it waits once.
        run(
            "insert into embed_intents (memory_id, queued_at) values ('0', 5)
             on conflict (memory_id) do update set queued_at = excluded.queued_at",
        );
        run("delete from embed_intents where memory_id = '1'");
        assert_eq!(counted("p"), (3, 2));
        run("update memory set project_id = 'q' where id in ('0', '1')");
        assert_eq!((counted("p"), counted("q")), ((1, 1), (2, 1)));
        run("delete from embed_intents where memory_id = '2'; delete from memory where id = '2'");
        assert_eq!((counted("p"), counted("nobody")), ((0, 0), (0, 0)));
    }

    /// A database to which rows can be added: number, project, text.
    fn filled(dir: &tempfile::TempDir, rows: &[(&str, String)]) -> Connection {
        let mut c = Connection::open(dir.path().join("x.db")).unwrap();
        super::super::migrate::migrate(&mut c).unwrap();
        c.execute_batch("pragma foreign_keys = off; begin").unwrap();
        for (at, (project, text)) in rows.iter().enumerate() {
            let at = at as i64 + 1;
            let words = text.split_whitespace().count() as i64;
            c.execute(
                "insert into memory (rowid, id, project_id, kind, identity, text, created_at, words)
                 values (?1, ?1, ?2, 'note', 'A', ?3, ?1, ?4)",
                params![at, project, text, words],
            )
            .unwrap();
            c.execute(
                "insert into memory_fts (rowid, title, body, label) values (?, '', ?, '')",
                params![at, text],
            )
            .unwrap();
            word_counts::written(&c, at).unwrap();
        }
        c.execute_batch("commit").unwrap();
        c
    }

    #[test]
    fn which_words_tell_is_a_matter_of_the_project_alone() {
        let dir = tempfile::tempdir().unwrap();
        let here = |i: usize| {
            let rare = if i.is_multiple_of(100) { "seldom" } else { "" };
            format!("often {rare}")
        };
        let mut rows: Vec<(&str, String)> = (0..1_300).map(|i| ("alone", here(i))).collect();
        for i in 0..1_300 {
            rows.extend([("mixed", here(i)), ("other", "seldom".to_owned())]);
        }
        let connection = filled(&dir, &rows);
        let terms = ["often".to_owned(), "seldom".to_owned()];
        for project in ["alone", "mixed"] {
            let found =
                words::words(&connection, project, &asked(&terms), &Filter::default()).unwrap();
            let mass = idf(1_300.0, 1_300.0) + idf(1_300.0, 13.0);
            assert!(
                (found.mass - mass).abs() < 1e-9,
                "{project}: {}",
                found.mass
            );
            let both = found.known.keys();
            let both = both.filter(|row| found.matches(**row).len() == 2).count();
            assert_eq!(both, 13, "{project}");
        }
    }

    #[test]
    fn of_a_long_question_the_rarest_words_are_looked_up() {
        let dir = tempfile::tempdir().unwrap();
        let common: Vec<String> = (0..40).map(|i| format!("common{i}")).collect();
        let mut rows = vec![("ours", "a walrus on the roof".to_owned())];
        rows.extend((0..300).map(|_| ("ours", common.join(" "))));
        let connection = filled(&dir, &rows);
        let mut terms = common;
        terms.extend((0..40).map(|i| format!("unheld{i}")));
        terms.push("walrus".to_owned());
        let found = words::words(&connection, "ours", &asked(&terms), &Filter::default()).unwrap();
        assert!(found.known.contains_key(&1));
        assert_eq!(found.words(&[]).len(), TERMS_MAX);
    }

    #[test]
    fn words_are_found_however_many_rows_of_others_hold_them() {
        let dir = tempfile::tempdir().unwrap();
        let text = || "kingfisher quota exceeded".to_owned();
        let mut rows = vec![("ours", text())];
        rows.extend((0..9_000).map(|_| ("theirs", text())));
        let connection = filled(&dir, &rows);
        connection
            .execute_batch("update memory set kind = 'fact' where rowid = 2")
            .unwrap();
        let terms = ["kingfisher", "quota", "exceeded"].map(str::to_owned);
        let found = |project: &str, filter: &Filter| {
            let found = words::words(&connection, project, &asked(&terms), filter).unwrap();
            found.known.into_keys().collect::<Vec<i64>>()
        };
        assert_eq!(found("ours", &Filter::default()), [1]);
        let facts = Filter {
            kinds: vec![prism_core::memory::Kind::Fact],
            ..Filter::default()
        };
        assert_eq!(found("theirs", &facts), [2]);
        let old = Filter {
            until: Some(Moment(2)),
            ..Filter::default()
        };
        assert_eq!(found("theirs", &old), [2]);
    }

    fn assert_searches(plan: &[String]) {
        let scans = plan.iter().filter(|step| step.starts_with("SCAN"));
        // The list that was handed over, the words' own index, and a table of one row.
        let read_whole = |step: &str| {
            step.contains("VIRTUAL TABLE INDEX")
                || step == "SCAN (subquery-1)"
                || step == "SCAN memory_words_counted"
        };
        let others: Vec<&String> = scans.filter(|step| !read_whole(step)).collect();
        assert!(others.is_empty(), "{others:?} in {plan:?}");
    }
}
