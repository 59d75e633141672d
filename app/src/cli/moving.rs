//! `prism migrate-store`: all rows from one engine to the other.

use super::{Context, print_json};
use crate::config::{self, ServerFile, Standing};
use crate::home::{Home, Lock};
use crate::server::DATABASE;
use crate::store::StoreError;
use crate::store::moving::{self, Moved, Place};
use crate::ui::{Failure, Outcome, Progress, out, table};
use prism_core::database::remedy;
use prism_core::launch::OWN_FILE;
use prism_core::{Code, Problem};
use std::borrow::Cow;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism migrate-store sqlite: postgres://prism@db.example/prism           this home's rows
  prism migrate-store sqlite: env:PRISM_DATABASE                          with a password that nobody sees
  prism migrate-store sqlite:/var/lib/prism/prism.db postgres://prism@127.0.0.1/prism
  prism migrate-store postgres://prism@127.0.0.1/prism sqlite:prism.db    and back

env:NAME is what that variable says: a URL among the arguments is shown to every user of the machine while it runs.

Stop the servers first. What was cut off goes on when it is run again. The source is read and never
changed; the target must be empty, and no server starts on it before every table was counted and
hashed on both sides. docs/moving.md says how to go on.")]
pub struct MigrateStore {
    /// Where the rows are: sqlite:FILE (sqlite: alone is this home's), postgres://... or env:NAME
    #[arg(value_name = "FROM")]
    from: String,
    /// Where they are to go: sqlite:FILE, postgres://... or env:NAME
    #[arg(value_name = "TO")]
    to: String,
    /// Of a PostgreSQL with several tenants, the one to move
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
}

impl MigrateStore {
    pub fn run(self, context: &Context) -> Outcome {
        only_for_this_user();
        let (from, to) = (place(context, &self.from)?, place(context, &self.to)?);
        moving::check(&from, &to).map_err(failure)?;
        // No server starts there meanwhile.
        let _held = [stopped(&from)?, stopped(&to)?];
        let mut shown: Option<(&str, u64, Progress)> = None;
        let tenant = self.tenant.as_deref();
        let moved = moving::run(&from, &to, tenant, &mut |what, at, of| {
            if shown.as_ref().is_none_or(|(was, ..)| *was != what) {
                shown = Some((what, 0, Progress::new(what, of as usize)));
            }
            // A line for each row would take longer than the row.
            if let Some((_, last, progress)) = &mut shown
                && (at >= *last + 500 || at == of)
            {
                *last = at;
                progress.at(at as usize);
            }
        });
        if let Some((_, _, mut progress)) = shown {
            progress.done();
        }
        let moved = moved.map_err(failure)?;
        remember(&from, &to)?;
        match context.json {
            true => print_json(&serde_json::to_value(&moved).map_err(anyhow::Error::from)?),
            false => tell(&moved, &to),
        }
        Ok(())
    }
}

fn tell(moved: &Moved, to: &Place) {
    let rows = moved.tables.iter().filter(|t| t.rows > 0);
    let rows = rows.map(|t| {
        vec![
            t.table.clone(),
            t.rows.to_string(),
            t.sha256[..16].to_owned(),
        ]
    });
    let heading = ["table", "rows", "sha256"].map(str::to_owned).to_vec();
    out(&table(
        &std::iter::once(heading).chain(rows).collect::<Vec<_>>(),
    ));
    if moved.began_anew {
        out("The source had changed since a move was cut off, so it began anew.");
    } else if moved.resumed {
        out("It went on with a move that was cut off.");
    }
    if moved.changed > 0 {
        out(&format!(
            "{} rows held the character U+0000, which PostgreSQL cannot keep: \u{fffd} stands in its place.",
            moved.changed
        ));
    }
    out(&format!(
        "{} rows of {} tables are in {} now; every table was counted and hashed on both sides. {} is as it was.",
        moved.rows,
        moved.tables.len(),
        moved.to,
        moved.from
    ));
    out(match to {
        Place::Server(_) => {
            "Next: `database = \"URL\"` under [server] in config.toml (or PRISM_DATABASE), and `prism up`."
        }
        Place::File(_) => {
            "Next: take `database` out of config.toml (and PRISM_DATABASE away), and `prism up` in the folder's home."
        }
    });
}

/// Whatever is written from here on is for this user alone.
pub fn only_for_this_user() {
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
}

fn place(context: &Context, said: &str) -> Result<Place, Failure> {
    if let Some(name) = said.strip_prefix("env:") {
        let value = config::variable(name).unwrap_or_default();
        return match value.trim() {
            "" => Err(Problem::new(
                Code::InvalidRequest,
                format!("{name} is not set, or empty"),
                "let it say sqlite:FILE or postgres://user:password@host/name",
            )
            .into()),
            said => place_of(context, said),
        };
    }
    place_of(context, said)
}

fn place_of(context: &Context, said: &str) -> Result<Place, Failure> {
    if said.starts_with("postgres://") || said.starts_with("postgresql://") {
        return Place::server(said).map_err(failure);
    }
    let Some(file) = said.strip_prefix("sqlite:") else {
        return Err(Problem::new(
            Code::InvalidRequest,
            "a store is sqlite:FILE or postgres://user:password@host/name, or env:NAME of a variable that says one",
            "`prism migrate-store --help` has examples",
        )
        .into());
    };
    let home = context.env.home.as_deref().map(Path::new);
    let file = match (file, file.strip_prefix("~/"), home) {
        ("", ..) => context.home.path(DATABASE),
        // The shell leaves it alone behind a colon.
        (_, Some(rest), Some(home)) => home.join(rest),
        (file, ..) => PathBuf::from(file.strip_prefix("//").unwrap_or(file)),
    };
    Ok(Place::file(file))
}

/// Holds the locks of the homes that a file is in, if it is in one.
fn stopped(place: &Place) -> Result<Vec<Lock>, Failure> {
    let Place::File(file) = place else {
        return Ok(Vec::new());
    };
    let homes = homes_of(file).into_iter().map(|(home, _)| home);
    let homes = homes.filter(|home| home.path(ServerFile::LOCK).exists());
    let held = homes.map(|home| no_server(&home, "migrate-store"));
    held.collect()
}

/// The folders that a file is in, and what it is called there: where it was named and, if that is a link, where the
/// file itself lies. A server may run in either.
pub fn homes_of(file: &Path) -> Vec<(Home, OsString)> {
    let at = |file: &Path| {
        let folder = file.parent().filter(|f| !f.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        // One folder under two names would be locked twice.
        let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
        let name = file.file_name().unwrap_or_default().to_owned();
        (folder, name)
    };
    let mut found = vec![at(file)];
    let itself = file.canonicalize().map(|file| at(&file));
    found.extend(itself.ok().filter(|(folder, _)| *folder != found[0].0));
    let home = |(folder, name): (PathBuf, OsString)| (Home::at(folder), name);
    found.into_iter().map(home).collect()
}

/// Keeps servers from a home while this is held for a command; refuses where one runs.
pub fn no_server(home: &Home, command: &str) -> Result<Lock, Failure> {
    let locked = home.try_lock_soon(ServerFile::LOCK, command)?;
    locked.map_err(|holder| match holder.at_work(home) {
        Some(problem) => problem.into(),
        None => Problem::new(
            Code::Conflict,
            format!(
                "a server runs on {} (pid {}); nothing was done",
                home.dir().display(),
                holder.pid
            ),
            "stop it first: `prism down`, or end the `prism serve` that runs in a terminal",
        )
        .into(),
    })
}

/// A home whose file was moved from or to goes on where its rows are now: whoever starts a server without a word
/// would else begin on what they were.
fn remember(from: &Place, to: &Place) -> anyhow::Result<()> {
    let store = match to {
        Place::File(_) => OWN_FILE.to_owned(),
        Place::Server(_) => to.shown(),
    };
    for place in [from, to] {
        let Place::File(file) = place else { continue };
        for (home, name) in homes_of(file) {
            if name == DATABASE && home.path(ServerFile::LOCK).exists() {
                let standing = Standing {
                    store: store.clone(),
                };
                standing.remember(&home)?;
            }
        }
    }
    Ok(())
}

/// What the store said, with what to do next.
pub fn failure(error: StoreError) -> Failure {
    let (message, hint): (_, Cow<'static, str>) = match error {
        StoreError::Refused(problem) => return Failure::Refused(*problem),
        StoreError::Unwritable(why) => (
            format!("cannot write: {why}"),
            "make room there, or make it writable, then run it again".into(),
        ),
        StoreError::Again(why) => {
            let next = remedy(&why).unwrap_or(
                "check host, port and network, and whether it runs; then run it again: what was done is kept".into(),
            );
            (format!("the database could not be asked: {why}"), next)
        }
        StoreError::Failed(why) | StoreError::Denied(why) => {
            let next = match why.contains("newer prism wrote it") {
                true => "use that prism for the move".into(),
                false => remedy(&why)
                    .unwrap_or("mend that, then run it again: the source is as it was".into()),
            };
            (format!("the database answered: {why}"), next)
        }
        error => (error.to_string(), "the source is as it was".into()),
    };
    Failure::Unable {
        message,
        hint: Some(hint.into_owned()),
    }
}
