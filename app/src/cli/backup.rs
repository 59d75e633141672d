//! `prism backup` and `prism restore`: this home's database as one file.

use super::moving::{failure, homes_of, no_server, only_for_this_user};
use super::up::of_this_home;
use super::{Context, print_json};
use crate::clock;
use crate::config::{self, Config, ServerFile};
use crate::home::Home;
use crate::server::DATABASE;
use crate::store::backup;
use crate::ui::{Failure, Outcome, Progress, out};
use prism_core::{Code, Problem};
use serde_json::json;
use std::path::{Path, PathBuf};

/// How the copy is called until it is whole, behind the name that it gets.
const RESTORING: &str = "restoring";
/// Where what was replaced is kept.
const FOLDER: &str = "backups";

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism backup ~/prism-monday.db
  prism backup /mnt/usb/prism.db --json

A server may run and be written to meanwhile: the copy is of the moment at which it began. It is
checked before it gets its name. Keys and settings (config.toml, keys/) are files of the home.")]
pub struct Backup {
    /// The file to write; it must not be there yet
    file: PathBuf,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism down && prism restore ~/prism-monday.db && prism up

The copy is checked first. The database that it replaces is kept in $PRISM_HOME/backups; where
prism.db is a link, the file that it leads to is replaced, and kept in a folder backups beside it.")]
pub struct Restore {
    /// A file that `prism backup` wrote
    file: PathBuf,
}

impl Backup {
    pub fn run(self, context: &Context) -> Outcome {
        only_for_this_user();
        in_this_home(context)?;
        let database = context.home.path(DATABASE);
        if !database.is_file() {
            return Err(refused(
                Code::NotFound,
                format!("there is no database in {}", context.home.dir().display()),
                "set PRISM_HOME to the home that you mean; a server makes its database when it first starts",
            ));
        }
        let (folder, name) = folder_and_name(&self.file)?;
        let taken = || {
            refused(
                Code::Conflict,
                format!("{} exists already", self.file.display()),
                "name a file that is not there",
            )
        };
        if self.file.exists() {
            return Err(taken());
        }
        forget_cut_off(&folder, &name);
        let unfinished = format!("{name}.{}.tmp", std::process::id());
        let made = copy(&database, &folder, &unfinished).and_then(|schema| {
            folder.put(&unfinished, &name)?;
            Ok(schema)
        });
        if made.is_err() {
            remove(&folder, &unfinished);
        }
        let schema = made?;
        let bytes = folder.size(&name).unwrap_or(0);
        match context.json {
            true => print_json(&json!({"file": self.file, "bytes": bytes, "schema": schema})),
            false => out(&format!(
                "{} holds this home's database ({bytes} bytes, checked). `prism restore` puts it back.",
                self.file.display()
            )),
        }
        Ok(())
    }
}

impl Restore {
    pub fn run(self, context: &Context) -> Outcome {
        only_for_this_user();
        in_this_home(context)?;
        let home = &context.home;
        let schema = backup::check(&self.file).map_err(failure)?;
        home.create()?;
        let (place, name) = where_it_lies(home)?;
        let mut held = vec![no_server(home, "restore")?];
        for (other, _) in homes_of(&home.path(DATABASE)).into_iter().skip(1) {
            if other.path(ServerFile::LOCK).exists() {
                held.push(no_server(&other, "restore")?);
            }
        }
        let restoring = format!("{name}.{RESTORING}");
        remove(&place, &restoring);
        let copied = copy(&self.file, &place, &restoring);
        let copied = copied.and_then(|_| put_in_place(&place, &restoring, &name));
        if copied.is_err() {
            remove(&place, &restoring);
        }
        let kept = copied?.map(|name| place.path(&name));
        let older = schema < backup::newest_schema();
        if context.json {
            print_json(&json!({
                "file": self.file, "schema": schema, "will_be_upgraded": older, "replaced": kept
            }));
            return Ok(());
        }
        out(&format!(
            "{} is this home's database now.",
            self.file.display()
        ));
        if let Some(kept) = kept {
            out(&format!("The one before it is {}.", kept.display()));
        }
        if older {
            out("An older prism wrote it: the next server upgrades it, and keeps a copy.");
        }
        Ok(())
    }
}

/// Rows that are in PostgreSQL are in no file here.
fn in_this_home(context: &Context) -> Outcome {
    of_this_home(
        context,
        "copy or put back",
        "unset PRISM_URL for the database of this home; that server's is copied where it runs",
    )?;
    let config = Config::load(&context.home)?.map(|c| c.server);
    let config = config.unwrap_or_default();
    if config::database(None, &context.env, &config, &context.home)?.is_none() {
        return Ok(());
    }
    Err(refused(
        Code::Conflict,
        "this home's rows are in PostgreSQL (PRISM_DATABASE, or server.database in config.toml)",
        "use pg_dump and pg_restore: docs/moving.md shows how",
    ))
}

/// The folder and the name of this home's database: of the file that a link leads to, which is where its owner wants
/// it to be and where its log lies.
fn where_it_lies(home: &Home) -> Result<(Home, String), Failure> {
    let database = home.path(DATABASE);
    if !database.is_symlink() {
        return Ok((home.clone(), DATABASE.to_owned()));
    }
    match database.canonicalize() {
        Ok(file) if file.is_file() => folder_and_name(&file),
        _ => Err(refused(
            Code::Conflict,
            format!(
                "{} is a link that leads to no file; nothing was done",
                database.display()
            ),
            "mount what it leads to, or remove the link to have the database in this home",
        )),
    }
}

fn refused(code: Code, message: impl Into<String>, hint: &str) -> Failure {
    Problem::new(code, message, hint).into()
}

fn folder_and_name(file: &Path) -> Result<(Home, String), Failure> {
    let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    match file.file_name().and_then(|name| name.to_str()) {
        Some(name) if folder.is_dir() => Ok((Home::at(folder), name.to_owned())),
        Some(_) => Err(refused(
            Code::NotFound,
            format!("there is no folder {}", folder.display()),
            "make it first, or name another",
        )),
        None => Err(refused(
            Code::InvalidRequest,
            format!("{} is no name for a file", file.display()),
            "name a file that is not there yet",
        )),
    }
}

/// Copies a database and looks at every page of the copy.
fn copy(database: &Path, folder: &Home, name: &str) -> Result<usize, Failure> {
    let copy = folder.path(name);
    let mut progress: Option<Progress> = None;
    let copied = backup::copy_telling(database, &copy, &mut |at, of| {
        let progress = progress.get_or_insert_with(|| Progress::new("Copying pages", of as usize));
        progress.at(at as usize);
    });
    if let Some(mut progress) = progress {
        progress.done();
    }
    copied.and_then(|()| backup::check(&copy)).map_err(failure)
}

fn remove(folder: &Home, name: &str) {
    for end in ["", "-journal", "-wal", "-shm"] {
        folder.remove(&format!("{name}{end}"));
    }
}

/// Removes what backups to this file have left that were killed.
fn forget_cut_off(folder: &Home, name: &str) {
    let prefix = format!("{name}.");
    for left in folder.list("", &prefix, ".tmp") {
        let middle = left.strip_prefix(&prefix);
        let pid = middle.and_then(|m| m.strip_suffix(".tmp"));
        let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.parse().ok()?));
        if pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_err()) {
            remove(folder, &left);
        }
    }
}

/// Gives the copy its place, and says under which name what stood there is kept.
fn put_in_place(place: &Home, restoring: &str, name: &str) -> Result<Option<String>, Failure> {
    if !place.path(name).exists() {
        // A log without its database is nobody's, and would be taken for the new one's.
        remove(place, name);
        place.put(restoring, name)?;
        return Ok(None);
    }
    place.folder(FOLDER)?;
    let time = clock::now().to_string();
    let time: String = time.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    let kept = format!("{FOLDER}/replaced-{time}.db");
    backup::write_log_back(&place.path(name));
    // What could not be written back goes along with its database.
    for end in ["-wal", "-shm"] {
        if place.path(&format!("{name}{end}")).exists() {
            place.rename(&format!("{name}{end}"), &format!("{kept}{end}"))?;
        }
    }
    place.replace_keeping(restoring, name, &kept)?;
    Ok(Some(kept))
}
