//! Opening the store: what an older Prism wrote is copied before a newer one changes it.

use crate::clock;
use crate::home::Home;
use crate::store::Store;
use anyhow::{Context, Result};
use prism_core::limits::BACKUPS_KEPT;
use std::path::PathBuf;

pub const DATABASE: &str = "prism.db";
const FOLDER: &str = "backups";
/// The copy of a database that could not be upgraded: one, however often that was tried.
const NOT_UPGRADED: &str = "backups/not-upgraded.db";

/// Opens this home's store, and says where the copy is if it had to be upgraded.
pub fn open(home: &Home, replaces: Option<&str>) -> Result<(Store, Option<PathBuf>)> {
    let file = home.path(DATABASE);
    let backup = before_upgrade(home, replaces)?;
    let shown = file.display();
    let store = Store::open_embedded(&file);
    let Some(name) = backup else {
        let store = store.with_context(|| format!("cannot open {shown}"))?;
        return Ok((store, None));
    };
    let copy = home.path(&name);
    match store {
        Ok(store) => {
            tracing::info!(copy = %copy.display(), "The database was upgraded; the old one is kept");
            // Only now: a start that fails makes a copy, too, and must not push out an older one.
            forget_oldest(home);
            Ok((store, Some(copy)))
        }
        Err(error) => {
            home.rename(&name, NOT_UPGRADED)?;
            let copy = home.path(NOT_UPGRADED);
            Err(error).with_context(|| {
                format!(
                    "cannot upgrade {shown}; it is as it was, and a copy is at {}",
                    copy.display()
                )
            })
        }
    }
}

/// Copies a database whose schema is older than this program's; the copy's name in the home.
fn before_upgrade(home: &Home, replaces: Option<&str>) -> Result<Option<String>> {
    let file = home.path(DATABASE);
    let Some(schema) =
        Store::older_schema(&file).with_context(|| format!("cannot open {}", file.display()))?
    else {
        return Ok(None);
    };
    home.folder(FOLDER)?;
    // Copies that a killed start began; whoever runs now holds the home's lock.
    for unfinished in home.list(FOLDER, "prism-", ".db.tmp") {
        home.remove(&format!("{FOLDER}/{unfinished}"));
    }
    // What another program wrote there is text, and part of a file's name here.
    let writer = replaces.filter(|v| {
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
        v.len() <= 40 && v.chars().all(plain) && !v.starts_with('.')
    });
    let writer = writer.map_or_else(|| format!("schema{schema}"), str::to_owned);
    let time = clock::now().to_string();
    let time: String = time.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let name = format!("{FOLDER}/prism-{writer}-{time}.db");
    let unfinished = format!("{name}.tmp");
    let copied = Store::copy(&file, &home.path(&unfinished));
    if copied.is_err() {
        home.remove(&unfinished);
    }
    copied.with_context(|| {
        format!(
            "the database must be upgraded, and cannot be copied to {} first; it is as it was: \
             make room, then start again",
            home.path(&name).display()
        )
    })?;
    home.rename(&unfinished, &name)?;
    Ok(Some(name))
}

/// Keeps the newest copies; the time is the end of a copy's name.
fn forget_oldest(home: &Home) {
    let mut copies = home.list(FOLDER, "prism-", ".db");
    let time = |name: &String| name.rsplit('-').next().unwrap_or_default().to_owned();
    copies.sort_by_key(time);
    let too_many = copies.len().saturating_sub(BACKUPS_KEPT);
    for name in &copies[..too_many] {
        home.remove(&format!("{FOLDER}/{name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_fail_leave_one_copy_and_the_older_ones_alone() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.folder(FOLDER).unwrap();
        let older: Vec<String> = (1..=BACKUPS_KEPT)
            .map(|n| format!("prism-0.{n}.0-2026010{n}T000000Z.db"))
            .collect();
        for name in older
            .iter()
            .map(String::as_str)
            .chain(["prism-0.9.0-x.db.tmp"])
        {
            home.write(&format!("{FOLDER}/{name}"), b"x").unwrap();
        }
        // An older schema whose tables are not what an upgrade expects.
        let database = rusqlite::Connection::open(home.path(DATABASE)).unwrap();
        database
            .execute_batch("create table stranger (x); pragma user_version = 1;")
            .unwrap();
        drop(database);
        for _ in 0..2 {
            let said = open(&home, Some("0.9.0")).err().unwrap();
            assert!(format!("{said:#}").contains("not-upgraded.db"), "{said:#}");
        }
        let mut kept = older;
        kept.insert(0, "not-upgraded.db".into());
        assert_eq!(home.list(FOLDER, "", ""), kept);
    }

    #[test]
    fn only_the_newest_copies_are_kept_whatever_version_wrote_them() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.folder(FOLDER).unwrap();
        let names = [
            "prism-0.10.0-20260103T000000Z.db",
            "prism-0.9.0-20260102T000000Z.db",
            "prism-0.9.1-20260101T000000Z.db",
            "prism-1.0.0-rc.1-20260104T000000Z.db",
            "settings.json",
        ];
        for name in names {
            home.write(&format!("{FOLDER}/{name}"), b"x").unwrap();
        }
        forget_oldest(&home);
        let kept = home.list(FOLDER, "", "");
        assert_eq!(kept, [names[0], names[1], names[3], names[4]]);
    }
}
