//! The legs of a recall: words, meaning, and what the question names, with what stands beside each
//! row.

use super::memory::list;
use super::vectors::ScanFilter;
use super::{Result, Sqlite, failed};
use crate::store::memory::{Ask, Filter, Found, Postings};
use prism_core::Moment;
use prism_core::memory::entity::{Entity, EntityType};
use prism_core::memory::question::{RELEASE_WORDS, released_version, year};
use prism_core::memory::recall::{
    Candidate, Candidates, LEG_CANDIDATES, LOOKED_AROUND, NEIGHBOUR_US, idf, rank, word_weight,
};
use rusqlite::{Connection, OptionalExtension, params};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Instant;
use uuid::Uuid;

/// Rows that the words of one question may be expected to match. Words that
/// stand in nearly every row cost the most and tell the least.
const MATCHES_EXPECTED_MAX: f64 = 1_200.0;
/// Newest rows in which the share of a word is estimated.
const SAMPLE_ROWS: i64 = 400;
/// Waiting embed intents are counted up to here.
const PENDING_COUNTED: i64 = 10_000;
/// Rows that mention what the question names, at the most; a hub says little.
const MENTIONS_MAX: usize = 60;
/// The newest rows that speak of a person; those by another are sought among them.
const SPOKEN_OF_MAX: i64 = 2_000;
/// Rows by some people among the newest that speak of another.
const BETWEEN: &str = "select m.rowid from (select rowid from memory_fts where memory_fts match ?1 order by rowid desc limit ?2) f
    cross join memory m on m.rowid = f.rowid where m.project_id = ?3 and m.identity in (select value from json_each(?4)) limit ?5";
/// Rows beside one row that are looked at.
const BESIDE_MAX: usize = 16;
/// FTS5's own damping of repeated words.
const K1: f64 = 1.2;
/// Notes of releases that are read when a question asks around one.
const RELEASE_NOTES: i64 = 2_000;

impl Sqlite {
    /// Looks the question's words up. Runs while the question is embedded.
    pub async fn postings(
        &self,
        project: Uuid,
        terms: Vec<String>,
        filter: Filter,
    ) -> Result<Postings> {
        self.read_memory(move |c| postings(c, &project.to_string(), &terms, &filter))
            .await
    }

    /// Brings what the legs found together, with what stands beside it.
    pub async fn find(&self, mut ask: Ask) -> Result<Found> {
        let vectors = self.vectors.clone();
        self.read_memory(move |c| {
            let project = ask.project_id.to_string();
            let (span, years) = span(c, &project)?;
            let windows = ask.question.windows(&years);
            let mut known = std::mem::take(&mut ask.postings.known);
            let own: HashMap<i64, f64> = known
                .keys()
                .map(|row| (*row, ask.postings.rows[row].iter().map(|(_, w)| w).sum()))
                .collect();
            let mut chosen: HashSet<i64> = best(
                own.iter().map(|(row, weight)| (*row, *weight)),
                LEG_CANDIDATES,
            )
            .collect();
            let lexical = own.len();

            let started = Instant::now();
            let mut near: HashMap<i64, f64> = HashMap::new();
            if let Some(vector) = &ask.vector {
                vectors.catch_up(c, ask.model)?;
                let plain = ScanFilter::of(&ask.filter);
                near = vectors.nearest(c, &project, vector, &plain, LEG_CANDIDATES)?;
                for window in &windows {
                    // What was asked of a time is looked for in that time, too.
                    near.extend(vectors.nearest(
                        c,
                        &project,
                        vector,
                        &plain.within(window.from, window.until),
                        LEG_CANDIDATES / 8,
                    )?);
                }
            }
            let vector_us = started.elapsed().as_micros() as u64;
            let found_by_meaning = near.len();

            let started = Instant::now();
            let mentions: HashSet<i64> =
                mentions(c, &project, &ask.entities)?.into_iter().collect();
            let between: HashSet<i64> = between(c, &project, &ask.question.named)?
                .into_iter()
                .collect();
            // Where much passed between them, that it did tells little.
            let rarity = 1.0 - between.len().min(MENTIONS_MAX) as f64 / MENTIONS_MAX as f64;
            chosen.extend(near.keys().chain(&mentions).chain(&between));
            let missing: Vec<i64> = chosen
                .iter()
                .filter(|row| !known.contains_key(row))
                .copied()
                .collect();
            known.extend(metas(c, &project, missing.into_iter(), &ask.filter)?);
            chosen.retain(|row| known.contains_key(row));
            let mass = ask.postings.mass.max(1e-6);
            let promise = |row: &i64| {
                let named = if mentions.contains(row) {
                    ask.weights.graph
                } else {
                    0.0
                } + if between.contains(row) {
                    ask.weights.between * rarity
                } else {
                    0.0
                };
                ask.weights.promise(
                    own.get(row).copied().unwrap_or_default() / mass,
                    near.get(row).copied().unwrap_or_default(),
                ) + named
            };
            let mut rows: Vec<i64> =
                best(chosen.iter().map(|row| (*row, promise(row))), LOOKED_AROUND).collect();
            let beside = if ask.neighbours {
                beside(c, &project, &rows, &mut known, &ask.filter)?
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
            let nearness = ask
                .vector
                .as_ref()
                .map(|vector| vectors.judge(&project, vector, &rows, &near))
                .unwrap_or_default();
            let candidates = rows.iter().filter_map(|row| {
                Some(Candidate {
                    matches: ask.postings.rows.get(row).cloned().unwrap_or_default(),
                    near: nearness.get(row).copied(),
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
            let release = match &ask.question.around_release {
                Some(around) => around.span(&releases(c, &project)?),
                None => None,
            };
            let embed_pending = c
                .query_row(
                    "select count(*) from (select 1 from embed_intents limit ?)",
                    [PENDING_COUNTED],
                    |r| r.get::<_, i64>(0),
                )
                .map_err(failed)? as u64;
            let candidates = Candidates {
                rows,
                mass: ask.postings.mass,
                windows,
                release,
                span,
            };
            let ranking = rank(&ask.question, &candidates, &ask.weights, ask.now);
            let best: Vec<String> = ranking
                .rows
                .iter()
                .take(ask.show)
                .map(|r| r.id.clone())
                .collect();
            Ok(Found {
                rows: super::rows::rows(c, &project, &best)?,
                candidates,
                ranking,
                lexical,
                vector: found_by_meaning,
                vector_us,
                graph: mentions.len(),
                graph_us,
                recency_us: started.elapsed().as_micros() as u64,
                embed_pending,
            })
        })
        .await
    }
}

/// The best of them, in no order.
fn best(scored: impl Iterator<Item = (i64, f64)>, n: usize) -> impl Iterator<Item = i64> {
    let mut all: Vec<(i64, f64)> = scored.collect();
    let by_score = |a: &(i64, f64), b: &(i64, f64)| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0));
    if all.len() > n {
        all.select_nth_unstable_by(n, by_score);
        all.truncate(n);
    }
    all.into_iter().map(|(row, _)| row)
}

fn postings(c: &Connection, project: &str, terms: &[String], filter: &Filter) -> Result<Postings> {
    let started = Instant::now();
    let total: i64 = c
        .query_row("select coalesce(max(rowid), 0) from memory", [], |r| {
            r.get(0)
        })
        .map_err(failed)?;
    let total = total as f64;
    let (mut rows, mut mass): (HashMap<i64, Vec<(usize, f64)>>, f64) = (HashMap::new(), 0.0);
    let mut statement = c.prepare_cached("select rowid, bm25(memory_fts, 1.0, 1.0, 0.0) from memory_fts where memory_fts match ?").map_err(failed)?;
    for (number, term) in telling(c, terms, total)?.into_iter().enumerate() {
        let hits = statement
            .query_map([format!("{{title body}} : \"{term}\"")], |r| {
                Ok((r.get::<_, i64>(0)?, r.get::<_, f64>(1)?))
            })
            .map_err(failed)?;
        let hits = hits.collect::<rusqlite::Result<Vec<_>>>().map_err(failed)?;
        let holding = hits.len() as f64;
        let idf = idf(total, holding);
        mass += idf;
        // What FTS5 multiplied with; divided out, the row's own share of the word is left.
        let theirs = ((total - holding + 0.5) / (holding + 0.5)).ln().max(1e-6) * (K1 + 1.0);
        for (row, score) in hits {
            rows.entry(row)
                .or_default()
                .push((number, word_weight(idf, (-score / theirs).clamp(0.0, 1.0))));
        }
    }
    let known = metas(c, project, rows.keys().copied(), filter)?;
    Ok(Postings {
        rows,
        known,
        mass,
        us: started.elapsed().as_micros() as u64,
    })
}

/// The words worth matching: all of them in a small store, the rarer ones in a large one.
fn telling<'a>(c: &Connection, terms: &'a [String], total: f64) -> Result<Vec<&'a String>> {
    if total <= MATCHES_EXPECTED_MAX {
        return Ok(terms.iter().collect());
    }
    let mut sampled = c
        .prepare_cached("select count(*) from memory_fts where memory_fts match ? and rowid > ?")
        .map_err(failed)?;
    let mut expected = Vec::with_capacity(terms.len());
    for term in terms {
        let hits: i64 = sampled
            .query_row(
                params![
                    format!("{{title body}} : \"{term}\""),
                    total as i64 - SAMPLE_ROWS
                ],
                |r| r.get(0),
            )
            .map_err(failed)?;
        expected.push((hits as f64 / SAMPLE_ROWS as f64 * total, term));
    }
    expected.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut sum = 0.0;
    let rare = expected.iter().enumerate().take_while(|(i, (rows, _))| {
        sum += rows;
        *i == 0 || sum <= MATCHES_EXPECTED_MAX
    });
    Ok(rare.map(|(_, (_, term))| *term).collect())
}

/// The filter as SQL. Kinds are names of a closed list and times are numbers, so nothing here is
/// anybody's text.
fn narrowed(filter: &Filter) -> String {
    let mut sql = String::new();
    if !filter.kinds.is_empty() {
        let kinds: Vec<String> = filter.kinds.iter().map(|k| format!("'{k}'")).collect();
        sql.push_str(&format!(" and m.kind in ({})", kinds.join(",")));
    }
    if let Some(since) = filter.since {
        sql.push_str(&format!(" and m.created_at >= {}", since.0));
    }
    if let Some(until) = filter.until {
        sql.push_str(&format!(" and m.created_at <= {}", until.0));
    }
    if let Some(at) = filter.as_of {
        sql.push_str(&format!(" and m.created_at <= {0} and not exists (select 1 from entity_states s where s.node = m.id and s.valid_until <= {0})", at.0));
    }
    sql
}

/// What is known of these rows, of those that the project and the filter allow.
fn metas(
    c: &Connection,
    project: &str,
    rows: impl Iterator<Item = i64>,
    filter: &Filter,
) -> Result<HashMap<i64, Candidate>> {
    let wanted: Vec<i64> = rows.collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = format!(
        "select m.rowid, m.id, m.identity, m.session_id, m.created_at, m.cues, m.words from json_each(?1) j
         cross join memory m indexed by ix_memory_candidate on m.rowid = j.value where m.project_id = ?2 and m.hidden = 0 {}",
        narrowed(filter)
    );
    let found = list(
        c,
        &sql,
        params![serde_json::to_string(&wanted).unwrap_or_default(), project],
        |r| {
            let row = Candidate {
                id: r.get(1)?,
                identity: r.get(2)?,
                session: r.get(3)?,
                at: Moment(r.get(4)?),
                cues: r.get(5)?,
                words: r.get(6)?,
                ..Candidate::default()
            };
            Ok((r.get(0)?, row))
        },
    )?;
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
        rows.extend(list(
            c,
            "select m.rowid from edges e cross join memory m on m.id = e.src where e.dst = ? and e.kind = 'MENTIONS' limit ?",
            params![format!("entity:{node}"), (MENTIONS_MAX - rows.len().min(MENTIONS_MAX)) as i64],
            |r| r.get::<_, i64>(0),
        )?);
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
        rows.extend(list(
            c,
            BETWEEN,
            params![
                format!("{{title body}} : \"{spoken_of}\""),
                SPOKEN_OF_MAX,
                project,
                serde_json::to_string(&others).unwrap_or_default(),
                MENTIONS_MAX as i64
            ],
            |r| r.get::<_, i64>(0),
        )?);
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
    let mut pairs: Vec<(i64, i64)> = Vec::new();
    let in_session: Vec<i64> = rows
        .iter()
        .filter(|row| known.get(row).is_some_and(|m| m.session.is_some()))
        .copied()
        .collect();
    if !in_session.is_empty() {
        let wanted = serde_json::to_string(&in_session).unwrap_or_default();
        for (compare, order) in [("<", "desc"), (">", "asc")] {
            let bound = if compare == "<" {
                "n.created_at >= m.created_at - ?2"
            } else {
                "n.created_at <= m.created_at + ?2"
            };
            let sql = format!(
                "select m.rowid, (select n.rowid from memory n indexed by ix_memory_session where n.session_id = m.session_id and n.created_at {compare} m.created_at and {bound}
                    order by n.created_at {order} limit 1) as other from json_each(?1) j cross join memory m indexed by ix_memory_candidate on m.rowid = j.value"
            );
            let found = list(c, &sql, params![wanted, NEIGHBOUR_US], |r| {
                Ok((r.get::<_, i64>(0)?, r.get::<_, Option<i64>>(1)?))
            })?;
            pairs.extend(
                found
                    .into_iter()
                    .filter_map(|(row, other)| Some((row, other?))),
            );
        }
    }
    let ids: Vec<&str> = rows
        .iter()
        .filter_map(|row| known.get(row).map(|m| m.id.as_str()))
        .collect();
    let wanted = serde_json::to_string(&ids).unwrap_or_default();
    for (mine, other) in [("src", "dst"), ("dst", "src")] {
        let sql = format!(
            "select a.rowid, m.rowid from json_each(?) j cross join edges e on e.{mine} = j.value and e.kind in ('CONFIRMS','LABELS','COMBINES','SUPERSEDES')
             cross join memory m on m.id = e.{other} cross join memory a on a.id = j.value"
        );
        pairs.extend(list(c, &sql, params![wanted], |r| {
            Ok((r.get::<_, i64>(0)?, r.get::<_, i64>(1)?))
        })?);
    }
    let missing: BTreeSet<i64> = pairs
        .iter()
        .map(|(_, other)| *other)
        .filter(|row| !known.contains_key(row))
        .collect();
    known.extend(metas(c, project, missing.into_iter(), filter)?);
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
    let end = |order: &str| {
        let sql = format!(
            "select created_at from memory where project_id = ? order by created_at {order} limit 1"
        );
        c.prepare_cached(&sql)
            .and_then(|mut s| s.query_row([project], |r| r.get::<_, i64>(0)).optional())
            .map_err(failed)
    };
    let (first, last) = (
        Moment(end("asc")?.unwrap_or_default()),
        Moment(end("desc")?.unwrap_or_default()),
    );
    // A clock that was once far off must not make a question mean a thousand Junes.
    let years: Vec<i16> = (year(first)..=year(last)).rev().take(12).collect();
    Ok(((first, last), years))
}

/// The releases that rows speak of, each with the time it was first spoken of.
fn releases(c: &Connection, project: &str) -> Result<Vec<(String, Moment)>> {
    let words = RELEASE_WORDS.map(|w| format!("\"{w}\"")).join(" OR ");
    let notes = list(
        c,
        "select coalesce(m.title, '') || ' ' || m.text, m.created_at from memory_fts f cross join memory m on m.rowid = f.rowid
         where memory_fts match ?1 and m.project_id = ?2 and m.hidden = 0 and m.kind <> 'confirmation' order by m.created_at limit ?3",
        params![words, project, RELEASE_NOTES],
        |r| Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?)),
    )?;
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
    use super::*;

    /// Candidates are judged from one index, words are looked up by word, and no step scans a
    /// table.
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
        let plan = |sql: &str, bound: &[&dyn rusqlite::ToSql]| -> Vec<String> {
            let mut statement = connection
                .prepare(&format!("explain query plan {sql}"))
                .unwrap();
            statement
                .query_map(bound, |r| r.get(3))
                .unwrap()
                .collect::<rusqlite::Result<_>>()
                .unwrap()
        };
        let judged = plan(
            "select m.id, m.cues from json_each(?1) j cross join memory m indexed by ix_memory_candidate on m.rowid = j.value where m.project_id = ?2 and m.hidden = 0",
            params!["[1]", "p"],
        );
        assert!(
            judged[1].contains("SEARCH m USING COVERING INDEX ix_memory_candidate (rowid=?"),
            "{judged:?}"
        );
        let told = plan(BETWEEN, params!["x", 9, "p", "[]", 9]);
        assert!(
            told.iter().any(|s| s.starts_with("SEARCH m USING"))
                && !told.iter().any(|s| s.contains("TEMP B-TREE")),
            "{told:?}"
        );
        let foreign = plan(super::super::embed_queue::FOREIGN, params!["x"]);
        assert_eq!(
            foreign
                .iter()
                .filter(|step| step.contains("COVERING INDEX ix_memory_vectors_model"))
                .count(),
            2,
            "no vector is read at start: {foreign:?}"
        );
        let newer = plan(super::super::vectors::NEWER, params![5, "x"]);
        assert!(
            newer[0].contains("SEARCH v USING INTEGER PRIMARY KEY (rowid>?)")
                && !newer.iter().any(|s| s.contains("TEMP B-TREE")),
            "only new vectors are read: {newer:?}"
        );
        let edges = plan(
            "select m.rowid from json_each(?) j cross join edges e on e.src = j.value and e.kind in ('CONFIRMS') cross join memory m on m.id = e.dst",
            params!["[]"],
        );
        assert!(
            edges[1].contains("SEARCH e USING PRIMARY KEY (src=?")
                && edges[2].contains("SEARCH m USING"),
            "{edges:?}"
        );
    }
}
