//! Copies of an embedded store: made while a server writes, and looked at before anybody relies on them.

use super::{Result, StoreError, failed, migrate};
use prism_core::{Code, Problem};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::time::Duration;

/// Pages that are copied at a time.
const STEP_PAGES: i32 = 1_000;
/// The pause before another try when somebody holds the file.
const PAUSE: Duration = Duration::from_millis(10);
/// Tries before it is given up.
const TRIES: u32 = 500;

/// Copies a database whole, with what its log still holds, as it was at one moment: whatever is
/// written meanwhile is not in the copy, and does not hold it up.
pub fn copy(file: &Path, to: &Path) -> Result<()> {
    copy_telling(file, to, &mut |_, _| {})
}

/// The same, and says after how many pages of how many it is.
pub fn copy_telling(file: &Path, to: &Path, tell: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let from = open_to_read(file)?;
    // An open look at the database is what the copy is taken from.
    from.execute_batch("begin").map_err(failed)?;
    migrate::schema(&from)?;
    let mut into = Connection::open(to).map_err(failed)?;
    let copying = Backup::new(&from, &mut into).map_err(failed)?;
    let mut tries = 0;
    loop {
        match copying.step(STEP_PAGES).map_err(failed)? {
            StepResult::Done => break,
            StepResult::More => {
                let at = copying.progress();
                let done = at.pagecount - at.remaining;
                tell(done.max(0) as u64, at.pagecount.max(0) as u64);
            }
            _ if tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            _ => return Err(StoreError::Again("it is held by somebody else".into())),
        }
    }
    drop(copying);
    // One file, without a log beside it.
    into.pragma_update(None, "journal_mode", "delete")
        .map_err(failed)?;
    into.close().map_err(|(_, error)| failed(error))
}

/// Opens a database that is not to be changed. Where no log lies beside it nobody has it open, and
/// then none is made. The log of one that was named by a link lies beside the file itself.
fn open_to_read(file: &Path) -> Result<Connection> {
    let file = &file.canonicalize().unwrap_or_else(|_| file.to_owned());
    let mut log = file.as_os_str().to_owned();
    log.push("-wal");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let (Some(plain), false) = (file.to_str(), Path::new(&log).exists()) else {
        return Connection::open_with_flags(file, flags).map_err(failed);
    };
    let quoted = plain
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let uri = format!("file:{quoted}?immutable=1");
    Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_URI).map_err(failed)
}

/// The schema that this binary writes.
pub fn newest_schema() -> usize {
    migrate::NEWEST
}

/// Writes what the log of a database holds into the database, as far as it can be: whoever takes
/// the file then takes all of it.
pub fn write_log_back(file: &Path) {
    let written = Connection::open(file).and_then(|c| {
        c.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        c.close().map_err(|(_, error)| error)
    });
    if let Err(error) = written {
        tracing::debug!(%error, "A log stays beside its database");
    }
}

/// Looks whether a file is a whole store that this binary can open, and says which schema it has.
pub fn check(file: &Path) -> Result<usize> {
    let shown = file.display();
    if !file.is_file() {
        return Err(Problem::new(
            Code::NotFound,
            format!("there is no file {shown}"),
            "check that path",
        )
        .into());
    }
    let connection = open_to_read(file)?;
    let schema = is_store(&connection, &shown)?;
    whole(&connection, &shown)?;
    Ok(schema)
}

/// The schema of a store; what is none, or a newer one, is refused.
pub fn is_store(connection: &Connection, shown: &impl std::fmt::Display) -> Result<usize> {
    let stranger = || {
        Problem::new(
            Code::InvalidRequest,
            format!("{shown} is not a Prism database"),
            "name a file that `prism backup` wrote, or a prism.db",
        )
    };
    let schema = match migrate::schema(connection) {
        Err(StoreError::Failed(why)) if why.contains("not a database") => {
            return Err(stranger().into());
        }
        Err(StoreError::Failed(why)) => return Err(damaged(shown, &why).into()),
        schema => schema?,
    };
    let ours = connection
        .query_row(
            "select count(*) from sqlite_schema where type = 'table' and name in ('tenants', 'signal_queue')",
            [],
            |row| row.get::<_, i64>(0),
        )
        .map_err(|error| match failed(error) {
            StoreError::Failed(why) => damaged(shown, &why).into(),
            other => other,
        })?;
    if schema == 0 || ours != 2 {
        return Err(stranger().into());
    }
    if schema > migrate::NEWEST {
        return Err(Problem::new(
            Code::Conflict,
            format!(
                "{shown} has schema {schema} and this prism knows {}: a newer prism wrote it",
                migrate::NEWEST
            ),
            "use that prism",
        )
        .into());
    }
    Ok(schema)
}

/// Looks at every page of a database.
pub fn whole(connection: &Connection, shown: &impl std::fmt::Display) -> Result<()> {
    let found = connection.query_row("pragma integrity_check(1)", [], |row| {
        row.get::<_, String>(0)
    });
    let why = match found {
        Ok(said) if said == "ok" => return Ok(()),
        Ok(said) => said,
        Err(error) => match failed(error) {
            StoreError::Failed(said) => said,
            other => return Err(other),
        },
    };
    Err(damaged(shown, &why).into())
}

fn damaged(shown: &impl std::fmt::Display, why: &str) -> Problem {
    Problem::new(
        Code::Conflict,
        format!(
            "{shown} is damaged: {}",
            why.lines().next().unwrap_or_default()
        ),
        "take an older copy: `prism backup` wrote it where you said, and upgrades leave theirs in $PRISM_HOME/backups",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_copy_is_of_one_moment_and_one_file_while_others_write() {
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("x?#%.db"), dir.path().join("copy.db"));
        drop(Store::open_embedded(&file).unwrap());
        let writer = Connection::open(&file).unwrap();
        let insert = "insert into tenants values (?, hex(randomblob(200000)), 1)";
        for n in 0..20 {
            writer.execute(insert, [n.to_string()]).unwrap();
        }
        let mut steps = 0;
        copy_telling(&file, &to, &mut |_, _| {
            steps += 1;
            let name = format!("later {steps}");
            writer.execute(insert, [name]).unwrap();
        })
        .unwrap();
        assert!(steps > 0, "nothing was written meanwhile");
        assert_eq!(check(&to).unwrap(), migrate::NEWEST);
        let copied = Connection::open(&to).unwrap();
        let rows: i64 = copied
            .query_row("select count(*) from tenants", [], |r| r.get(0))
            .unwrap();
        assert_eq!(rows, 20);
        let mut names: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("copy"))
            .collect();
        names.sort();
        assert_eq!(names, ["copy.db"]);
    }

    #[test]
    fn a_copy_by_a_link_has_what_the_log_beside_the_file_holds() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("far")).unwrap();
        drop(Store::open_embedded(&at("far/real.db")).unwrap());
        std::os::unix::fs::symlink("far/real.db", at("prism.db")).unwrap();
        let writer = Connection::open(at("prism.db")).unwrap();
        let insert = "insert into tenants values ('late', 'late', 1)";
        writer.execute(insert, []).unwrap();
        assert!(at("far/real.db-wal").exists() && !at("prism.db-wal").exists());
        copy(&at("prism.db"), &at("copy.db")).unwrap();
        let copied = Connection::open(at("copy.db")).unwrap();
        let rows = "select count(*) from tenants where id = 'late'";
        let rows: i64 = copied.query_row(rows, [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 1);
    }

    #[test]
    fn what_is_no_whole_store_of_ours_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        let said = |name: &str| check(&file(name)).unwrap_err().to_string();
        assert!(said("nowhere.db").contains("there is no file"));
        Connection::open(file("stranger.db"))
            .unwrap()
            .execute_batch("create table t (x); pragma user_version = 3")
            .unwrap();
        assert!(said("stranger.db").contains("not a Prism database"));
        drop(Store::open_embedded(&file("newer.db")).unwrap());
        Connection::open(file("newer.db"))
            .unwrap()
            .execute_batch("pragma user_version = 999")
            .unwrap();
        assert!(said("newer.db").contains("newer prism"));
    }
}
