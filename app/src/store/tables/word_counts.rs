//! How many rows hold a word, project by project, kept as rows are written.
//!
//! Rows are counted by the hundred: a word has its place somewhere in the table, and counting each
//! row by itself would write nearly all of it anew with every row.

use super::memory::list;
use super::{Result, Tables, failed};
use crate::store::sql::{Connection, OptionalExtension, Value, params};
use prism_core::memory::stem;
use std::collections::{BTreeMap, HashSet};

/// Rows that are counted in one step. So many may be written before the next.
const STEP_ROWS: i64 = 256;
/// Rows that wait for their count, up to which a question looks at each of them.
const LOOKED_AT: i64 = 8 * STEP_ROWS;

/// A row's words as they were given to the index, but for its label. Of a row that an older prism
/// wrote, words that are not shown are known when they are names of files.
const TEXTS: &str =
    "select project_id, coalesce(title, '') || char(10) || text || char(10) || coalesce(
        also, (select touched_files from session_deltas d where d.id = memory.id), '')
    from memory where rowid > ?1 and rowid <= ?2";
pub(super) const COUNTED: &str = "select last from memory_words_counted";
const LAST: &str = "select coalesce(max(rowid), 0) from memory";
pub(super) const OF_WORD: &str = "select project_id = ?2, rows from memory_words where stem = ?1";
/// The project's rows that are not counted yet.
pub(super) const UNCOUNTED: &str = "select rowid from memory indexed by ix_memory_candidate
    where rowid > ?1 and project_id = ?2";

/// How many rows hold one word, as far as they are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holding {
    pub in_project: u64,
    pub in_all: u64,
}

impl Tables {
    /// Counts the words of rows that wait for it since an older prism wrote them, one step; answers
    /// whether more wait.
    pub async fn count_words(&self) -> Result<bool> {
        let waiting = self
            .read_memory(|c| Ok(newest(c)? - counted(c)? > STEP_ROWS))
            .await?;
        if !waiting {
            return Ok(false);
        }
        self.write(count_step).await
    }
}

fn newest(c: &Connection) -> Result<i64> {
    c.query_row(LAST, [], |r| r.get(0)).map_err(failed)
}

/// Says that it will be asked how far rows are counted.
pub fn ahead(c: &Connection) -> Result<()> {
    c.ahead(COUNTED, []).map_err(failed)?;
    c.ahead(LAST, []).map_err(failed)
}

/// The row that ends the step after one; none where fewer rows wait. Numbers between may be those of another tenant.
fn step_after(c: &Connection, last: i64) -> Result<Option<i64>> {
    c.prepare_cached("select rowid from memory where rowid > ? order by rowid limit 1 offset ?")
        .and_then(|mut s| {
            s.query_row(params![last, STEP_ROWS - 1], |r| r.get(0))
                .optional()
        })
        .map_err(failed)
}

fn counted(c: &Connection) -> Result<i64> {
    let mut statement = c.prepare_cached(COUNTED).map_err(failed)?;
    statement.query_row([], |r| r.get(0)).map_err(failed)
}

/// A row was written: when it is the last of its step, the step is counted with it.
pub fn written(c: &Connection, row: i64) -> Result<()> {
    match row % STEP_ROWS {
        0 => count_step(c).map(drop),
        _ => Ok(()),
    }
}

/// Counts the next rows; answers whether a whole step more waits.
fn count_step(c: &Connection) -> Result<bool> {
    let (last, newest) = (counted(c)?, newest(c)?);
    let until = step_after(c, last)?.unwrap_or(newest);
    add(c, last, until, 1)?;
    c.prepare_cached("update memory_words_counted set last = ?")
        .and_then(|mut s| s.execute([until]))
        .map_err(failed)?;
    Ok(newest - until >= STEP_ROWS)
}

/// A row's text is about to be replaced: what was counted of it goes.
pub fn before_change(c: &Connection, row: i64) -> Result<()> {
    if row <= counted(c)? {
        add(c, row - 1, row, -1)?;
    }
    Ok(())
}

/// A row's text was replaced: what it holds now is counted, if it was counted before.
pub fn after_change(c: &Connection, row: i64) -> Result<()> {
    if row <= counted(c)? {
        add(c, row - 1, row, 1)?;
    }
    Ok(())
}

/// Two projects become one, and so do their counts.
pub fn merge(c: &Connection, old: &str, new: &str) -> Result<()> {
    c.execute(
        "insert into memory_words (stem, project_id, rows)
         select stem, ?2, rows from memory_words where project_id = ?1
         on conflict (stem, project_id) do update set rows = memory_words.rows + excluded.rows",
        [old, new],
    )
    .map_err(failed)?;
    let left = "delete from memory_words where project_id = ?";
    c.execute(left, [old]).map_err(failed)?;
    Ok(())
}

/// Adds or takes back what the rows after one up to another hold.
fn add(c: &Connection, after: i64, until: i64, sign: i64) -> Result<()> {
    let rows = list(c, TEXTS, params![after, until], |r| {
        // A damaged text is counted as far as it can be read: it must not keep others from being written.
        let text = String::from_utf8_lossy(r.get_ref(1)?.as_bytes()?).into_owned();
        Ok((r.get::<_, String>(0)?, text))
    })?;
    // In the order in which they lie in the table.
    let mut holding: BTreeMap<(String, &str), i64> = BTreeMap::new();
    for (project, text) in &rows {
        for stem in stem::stems(text).into_keys() {
            *holding.entry((stem, project)).or_default() += sign;
        }
    }
    // Nobody else writes meanwhile, so nobody waits for each of them.
    let count = "insert into memory_words (stem, project_id, rows) values (?, ?, ?)
        on conflict (stem, project_id) do update set rows = memory_words.rows + excluded.rows";
    for ((stem, project), n) in holding {
        c.put(count, params![stem, project, n]).map_err(failed)?;
    }
    Ok(())
}

/// The project's rows that wait for their count.
pub struct Uncounted {
    pub rows: HashSet<i64>,
    /// No other project has such rows, as far as is known.
    pub only_ours: bool,
}

pub fn uncounted(c: &Connection, project: &str) -> Result<Uncounted> {
    let after = counted(c)?;
    let waiting = newest(c)? - after;
    if waiting > LOOKED_AT {
        // An older home, a while after its upgrade: its counts are only beginning.
        return Ok(Uncounted {
            rows: HashSet::new(),
            only_ours: true,
        });
    }
    let rows: HashSet<i64> = list(c, UNCOUNTED, params![after, project], |r| r.get(0))?
        .into_iter()
        .collect();
    Ok(Uncounted {
        only_ours: rows.len() as i64 == waiting,
        rows,
    })
}

/// How many counted rows hold each of these words.
pub fn holding(c: &Connection, project: &str, stems: &[String]) -> Result<Vec<Holding>> {
    let asked = stems
        .iter()
        .map(|stem| vec![Value::Text(stem.clone()), Value::Text(project.to_owned())]);
    let each: Vec<Vec<Value>> = asked.collect();
    let found = c.query_each(OF_WORD, &each, |row| {
        let n = row.get::<_, i64>(1)?.max(0) as u64;
        Ok((row.get::<_, bool>(0)?, n))
    });
    let one = |rows: Vec<(bool, u64)>| Holding {
        in_all: rows.iter().map(|(_, n)| n).sum(),
        in_project: rows.iter().filter(|(ours, _)| *ours).map(|(_, n)| n).sum(),
    };
    Ok(found.map_err(failed)?.into_iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::path::Path;

    fn files(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                files(&path, found);
            } else if path.extension().is_some_and(|e| e == "jsonl" || e == "md") {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }

    /// Every word of the operator-language set, and some that are spelt otherwise.
    #[test]
    fn stems_are_those_of_fts5() {
        let mut texts = vec![
            "Größe naïve façade Zürich São señor ÇA Łódź straße año coöperate \u{130}stanbul \
             rock\u{301}n dy\u{131}ng sses ies aing yed eed ss's don't x_y a.b 3rd v1.5 ü é\u{301}"
                .to_owned(),
        ];
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench"),
            &mut texts,
        );
        let c = Connection::open_in_memory().unwrap();
        c.execute_batch(
            "create virtual table t using fts5 (x, tokenize = 'porter unicode61', content = '');
             create virtual table v using fts5vocab (t, 'row');",
        )
        .unwrap();
        let mut ours: HashMap<String, i64> = HashMap::new();
        for text in texts.iter().flat_map(|t| t.lines()) {
            c.execute("insert into t (x) values (?)", [text]).unwrap();
            for (stem, n) in stem::stems(text) {
                *ours.entry(stem).or_default() += i64::from(n);
            }
        }
        let theirs = list(&c, "select term, cnt from v", params![], |r| {
            Ok((r.get::<_, String>(0)?, r.get::<_, i64>(1)?))
        });
        let theirs: HashMap<String, i64> = theirs.unwrap().into_iter().collect();
        assert!(theirs.len() > 2_000, "the set is there: {}", theirs.len());
        let differs = |(stem, n): &(&String, &i64)| theirs.get(*stem) != Some(n);
        let wrong: Vec<_> = ours.iter().filter(differs).collect();
        let missing: Vec<_> = theirs.keys().filter(|s| !ours.contains_key(*s)).collect();
        assert!(
            wrong.is_empty() && missing.is_empty(),
            "{wrong:?} {missing:?}"
        );
    }

    fn database() -> Connection {
        let mut c = Connection::open_in_memory().unwrap();
        super::super::migrate::migrate(&mut c).unwrap();
        c.execute_batch("pragma foreign_keys = off").unwrap();
        c
    }

    fn write(c: &Connection, row: i64, project: &str, text: &str, also: Option<&str>) {
        c.execute(
            "insert into memory (rowid, id, project_id, kind, identity, text, created_at, also)
             values (?1, ?1, ?2, 'note', 'A', ?3, ?1, ?4)",
            params![row, project, text, also],
        )
        .unwrap();
        written(c, row).unwrap();
    }

    fn held(c: &Connection, project: &str, word: &str) -> (u64, u64) {
        let found = holding(c, project, &[stem::stem(word)]).unwrap()[0];
        (found.in_project, found.in_all)
    }

    #[test]
    fn words_are_counted_by_project_whatever_becomes_of_their_rows() {
        let c = database();
        for row in 1..=STEP_ROWS {
            let (project, text) = match row % 4 {
                0 => ("q", "deploys failed"),
                _ => ("p", "the deploy, the deployed"),
            };
            write(&c, row, project, text, Some("src/main.rs"));
        }
        let (quarter, rest) = (STEP_ROWS as u64 / 4, STEP_ROWS as u64 * 3 / 4);
        assert_eq!(held(&c, "p", "deploying"), (rest, rest + quarter));
        assert_eq!(held(&c, "q", "failing"), (quarter, quarter));
        assert_eq!(held(&c, "q", "rs"), (quarter, rest + quarter));
        assert_eq!(held(&c, "p", "nothing"), (0, 0));
        // What came since waits for the next step, and a question looks at it itself.
        write(&c, STEP_ROWS + 1, "p", "deploy", Some(""));
        write(&c, STEP_ROWS + 2, "q", "deploy", Some(""));
        let waiting = uncounted(&c, "p").unwrap();
        assert_eq!(waiting.rows, HashSet::from([STEP_ROWS + 1]));
        assert!(!waiting.only_ours);
        assert_eq!(held(&c, "p", "deploy"), (rest, rest + quarter));
        // A row that says something else is counted for that.
        for row in [1, STEP_ROWS + 1] {
            before_change(&c, row).unwrap();
            c.execute(
                "update memory set text = 'rolled back' where rowid = ?",
                [row],
            )
            .unwrap();
            after_change(&c, row).unwrap();
        }
        assert_eq!(held(&c, "p", "deploy"), (rest - 1, rest + quarter - 1));
        assert_eq!(held(&c, "p", "rolling"), (1, 1));
        merge(&c, "q", "p").unwrap();
        let all = rest + quarter - 1;
        assert_eq!(
            (held(&c, "p", "deploy"), held(&c, "q", "deploy")),
            ((all, all), (0, all))
        );
    }

    #[test]
    fn rows_that_an_older_prism_wrote_are_counted_step_by_step_and_once() {
        let c = database();
        for row in 1..=3 * STEP_ROWS {
            c.execute(
                "insert into memory (rowid, id, project_id, kind, identity, text, created_at)
                 values (?1, ?1, 'p', 'note', 'A', 'deploy', ?1)",
                [row],
            )
            .unwrap();
        }
        c.execute(
            "insert into session_deltas (id, tenant_id, project_id, identity, surface, delta_kind,
                summary, touched_files, created_at)
             values ('1', 't', 'p', 'A', 'x', 'note', '', '[\"src/recall.rs\"]', 1)",
            [],
        )
        .unwrap();
        let mut steps = 1;
        while count_step(&c).unwrap() {
            steps += 1;
        }
        assert_eq!(steps, 3);
        let all = 3 * STEP_ROWS as u64;
        assert_eq!(held(&c, "p", "deploy"), (all, all));
        assert_eq!(held(&c, "p", "recall"), (1, 1), "names of files as well");
        assert!(!count_step(&c).unwrap());
        assert_eq!(held(&c, "p", "deploy"), (all, all));
    }
}
