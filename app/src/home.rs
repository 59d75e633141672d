//! `$PRISM_HOME`: the only writer of files. Whole files, replaced atomically, 0600.

#![expect(clippy::disallowed_methods, reason = "the door to files")]

use anyhow::{Context, Result, bail};
use prism_core::limits::FILE_BYTES_MAX;
use prism_core::{Code, Problem};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a lock is tried for that is held for an instant, and the pause between.
const LOCK_TRIES: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Debug)]
pub struct Home {
    dir: PathBuf,
}

/// Holds a lock file until dropped.
pub struct Lock {
    file: File,
}

/// Which file stands under a name: another one in its place is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    device: u64,
    number: u64,
}

impl FileId {
    fn of(found: &fs::Metadata) -> Self {
        Self {
            device: found.dev(),
            number: found.ino(),
        }
    }
}

/// Who holds a lock, by what they left in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pub pid: String,
    /// The command that it is held for; a server says nothing.
    pub command: Option<String>,
}

impl Holder {
    fn parse(text: &str) -> Self {
        let (pid, command) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        Self {
            pid: pid.to_owned(),
            command: Some(command.to_owned()).filter(|c| !c.is_empty()),
        }
    }

    /// What keeps servers from a home meanwhile, where it is none itself.
    pub fn at_work(&self, home: &Home) -> Option<Problem> {
        let command = self.command.as_ref()?;
        Some(Problem::new(
            Code::Conflict,
            format!(
                "`prism {command}` (pid {}) is at work on {}",
                self.pid,
                home.dir().display()
            ),
            "wait for its end, then try again",
        ))
    }
}

impl Lock {
    /// The file that is held, whatever stands under its name by now.
    pub fn id(&self) -> Option<FileId> {
        self.file.metadata().ok().map(|found| FileId::of(&found))
    }
}

impl Home {
    pub fn at(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into() }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the home and its folders, for this user alone.
    pub fn create(&self) -> Result<()> {
        for dir in [self.dir.clone(), self.path("keys"), self.path("shims")] {
            make_private(&dir)?;
        }
        Ok(())
    }

    /// Makes a folder of the home, for this user alone.
    pub fn create_folder(&self, name: &str) -> Result<()> {
        let dir = self.path(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))
    }

    /// Refuses a home that somebody else could have written: its keys would be theirs to choose.
    pub fn check(&self) -> Result<()> {
        check_folder(&self.dir)?;
        for path in [
            self.dir.clone(),
            self.path("config.toml"),
            self.path("keys"),
        ] {
            check_owner(&path)?;
        }
        Ok(())
    }

    /// Reads a secret: only from a home, and a file, that nobody else could have written.
    pub fn read_secret(&self, name: &str) -> Result<Option<String>> {
        self.check()?;
        check_owner(&self.path(name))?;
        Ok(self.read(name))
    }

    /// Replaces a file whole: a reader sees the old one or the new one.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let temporary = self.path(&format!(
            "{name}.{}.{:?}.tmp",
            std::process::id(),
            std::thread::current().id()
        ));
        let result = (|| {
            let mut file = OpenOptions::new()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(bytes)?;
            fs::rename(&temporary, &path)
        })();
        if result.is_err() {
            drop(fs::remove_file(&temporary));
        }
        result.with_context(|| format!("cannot write {}", path.display()))
    }

    /// Adds to the end of a file that only its lock's holder writes.
    pub fn append(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let path = self.path(name);
        let append = || {
            OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(&path)?
                .write_all(bytes)
        };
        append().with_context(|| format!("cannot write {}", path.display()))
    }

    /// A folder of the home, made for this user alone.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.path(name);
        make_private(&path)?;
        Ok(path)
    }

    /// Opens a file that is only ever added to. Opening a pipe would wait for whoever reads it.
    pub fn open_append(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        if fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            anyhow::bail!("{} is not a file: move it away", path.display());
        }
        OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    /// Opens a file to read from; none where there is no file, or something else.
    pub fn open(&self, name: &str) -> Option<File> {
        let path = self.path(name);
        let is_file = fs::metadata(&path).is_ok_and(|found| found.is_file());
        is_file.then(|| File::open(&path).ok())?
    }

    /// Moves a file out of the way as `name.1`, and each older one a place further; the oldest goes.
    pub fn shift(&self, name: &str, keep: usize) -> Result<()> {
        let older = |n: usize| self.path(&format!("{name}.{n}"));
        for n in (1..keep).rev() {
            if older(n).exists() {
                fs::rename(older(n), older(n + 1))?;
            }
        }
        fs::rename(self.path(name), older(1))
            .with_context(|| format!("cannot rename {}", self.path(name).display()))
    }

    /// Gives a file that was written under another name its own, once it is whole.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::rename(self.path(from), self.path(to))
            .with_context(|| format!("cannot write {}", self.path(to).display()))
    }

    /// The same, unless something stands under that name already: that stays.
    pub fn put(&self, from: &str, to: &str) -> Result<()> {
        let (unfinished, path) = (self.path(from), self.path(to));
        match fs::hard_link(&unfinished, &path) {
            Ok(()) => fs::remove_file(&unfinished)?,
            // Not every file system knows a second name.
            Err(_) if !path.exists() => self.rename(from, to)?,
            Err(_) => bail!("{} exists already", path.display()),
        }
        self.settle_names()
    }

    /// Puts a file in the place of another, which is kept under a third name. There is always one or
    /// the other under `to`, whenever this is cut off.
    pub fn replace_keeping(&self, from: &str, to: &str, kept: &str) -> Result<()> {
        fs::hard_link(self.path(to), self.path(kept))
            // Not every file system knows a second name.
            .or_else(|_| fs::rename(self.path(to), self.path(kept)))
            .with_context(|| format!("cannot write {}", self.path(kept).display()))?;
        self.rename(from, to)?;
        self.settle_names()
    }

    /// Waits until names that were given are on disk.
    fn settle_names(&self) -> Result<()> {
        let shown = || format!("cannot write {}", self.dir.display());
        let folder = File::open(&self.dir).with_context(shown)?;
        folder.sync_all().with_context(shown)
    }

    /// Which file stands under this name now; none when there is none.
    pub fn file_id(&self, name: &str) -> Option<FileId> {
        let found = fs::metadata(self.path(name)).ok()?;
        Some(FileId::of(&found))
    }

    pub fn size(&self, name: &str) -> Option<u64> {
        fs::metadata(self.path(name)).ok().map(|m| m.len())
    }

    pub fn read(&self, name: &str) -> Option<String> {
        String::from_utf8(self.read_bytes(name, FILE_BYTES_MAX)?).ok()
    }

    /// Reads a plain file of at most so many bytes. A pipe or a device in its place is no file of
    /// ours, and nobody waits for it.
    pub fn read_bytes(&self, name: &str, most: u64) -> Option<Vec<u8>> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
            .open(self.path(name))
            .ok()?;
        let found = file.metadata().ok()?;
        if !found.is_file() || found.len() > most {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(found.len()).ok()? + 1);
        file.take(most).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Takes a lock, waiting for whoever has it.
    pub fn lock(&self, name: &str) -> Result<Lock> {
        let file = self.lock_file(name)?;
        file.lock()
            .with_context(|| format!("cannot lock {}", self.path(name).display()))?;
        Ok(Lock { file })
    }

    /// Takes a lock and leaves our pid in it, or says who has it.
    pub fn try_lock(&self, name: &str) -> Result<std::result::Result<Lock, Holder>> {
        self.try_lock_for(name, "")
    }

    /// The same, and leaves word of which command it is held for.
    fn try_lock_for(&self, name: &str, command: &str) -> Result<std::result::Result<Lock, Holder>> {
        let mut file = self.lock_file(name)?;
        match file.try_lock() {
            Ok(()) => {
                file.set_len(0)?;
                let held = format!("{} {command}", std::process::id());
                file.write_all(held.trim().as_bytes())?;
                Ok(Ok(Lock { file }))
            }
            Err(TryLockError::WouldBlock) => {
                Ok(Err(Holder::parse(&self.read(name).unwrap_or_default())))
            }
            Err(TryLockError::Error(e)) => {
                Err(e).with_context(|| format!("cannot lock {}", self.path(name).display()))
            }
        }
    }

    /// The same, patiently: a client that asks who holds a lock has it for an instant itself.
    pub fn try_lock_soon(
        &self,
        name: &str,
        command: &str,
    ) -> Result<std::result::Result<Lock, Holder>> {
        for _ in 0..LOCK_TRIES {
            if let Ok(lock) = self.try_lock_for(name, command)? {
                return Ok(Ok(lock));
            }
            std::thread::sleep(LOCK_PAUSE);
        }
        self.try_lock_for(name, command)
    }

    /// The pid that holds a lock now; none when nobody does.
    pub fn lock_holder(&self, name: &str) -> Option<u32> {
        self.holder(name)?.pid.parse().ok()
    }

    /// Who holds a lock now.
    pub fn holder(&self, name: &str) -> Option<Holder> {
        let file = File::open(self.path(name)).ok()?;
        match file.try_lock_shared() {
            Err(TryLockError::WouldBlock) => Some(Holder::parse(&self.read(name)?)),
            // Nobody held it; what the file says is of a holder that is gone.
            _ => None,
        }
    }

    fn lock_file(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))
    }

    /// The names in the home that match, such as ring files of any spelling.
    pub fn list(&self, folder: &str, prefix: &str, suffix: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(folder)) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|e| e.file_name().into_string().ok())
            .filter(|n| n.starts_with(prefix) && n.ends_with(suffix))
            .collect();
        names.sort();
        names
    }

    pub fn remove(&self, name: &str) {
        drop(fs::remove_file(self.path(name)));
    }

    /// The permission bits of a file, when it exists.
    pub fn mode(&self, name: &str) -> Option<u32> {
        fs::metadata(self.path(name))
            .ok()
            .map(|m| m.permissions().mode() & 0o777)
    }
}

fn make_private(dir: &Path) -> Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    check_folder(dir)?;
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .with_context(|| format!("cannot create {}", dir.display()))
}

/// Refuses something else in the place of a folder.
fn check_folder(dir: &Path) -> Result<()> {
    if dir.is_dir() || !dir.exists() {
        return Ok(());
    }
    Err(Problem::new(
        Code::Internal,
        format!("{} is not a folder", dir.display()),
        "move it away, or set PRISM_HOME to a folder of your own",
    )
    .into())
}

/// A folder for something that lives as long as this process, for this user alone; it goes when
/// this is dropped.
pub struct ShortLived {
    dir: PathBuf,
}

impl ShortLived {
    /// Makes a folder that nobody else has made before.
    pub fn make(dir: PathBuf) -> Result<Self> {
        DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self { dir })
    }

    /// Takes over a folder that another process left behind, to remove it.
    pub fn left_behind(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for ShortLived {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// What does not exist is nobody's; whoever makes it makes it private.
fn check_owner(path: &Path) -> Result<()> {
    let Ok(found) = fs::metadata(path) else {
        return Ok(());
    };
    let (shown, me) = (path.display(), rustix::process::geteuid().as_raw());
    if found.uid() != me {
        bail!("{}", not_yours(&shown, found.uid(), me));
    }
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        bail!("{shown} has mode {mode:o}, so others can write it: `chmod go-w {shown}`");
    }
    Ok(())
}

/// What is somebody else's, and what to do about it. A superuser comes to a service's home to look after it: taken over
/// by them, it would be lost to the service.
fn not_yours(shown: &impl std::fmt::Display, owner: u32, me: u32) -> String {
    let next = match me {
        0 => format!(
            "run this as that user, `sudo -u '#{owner}' --preserve-env=PRISM_HOME prism ...` (in a container \
             `docker exec -u {owner} ...`)"
        ),
        _ => format!("`chown -R {me} {shown}`"),
    };
    format!(
        "{shown} belongs to user {owner}, not to you (user {me}): {next}, or set PRISM_HOME to a folder of your own"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_of_another_is_taken_over_by_its_new_user_and_never_by_the_superuser() {
        let said = not_yours(&"/home/me/.prism", 1, 1000);
        assert!(said.contains("`chown -R 1000 /home/me/.prism`"), "{said}");
        let said = not_yours(&"/var/lib/prism", 993, 0);
        assert!(said.contains("`sudo -u '#993' "), "{said}");
        assert!(!said.contains("chown"), "{said}");
    }

    #[test]
    fn what_others_can_write_is_refused_with_the_command_that_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        home.create().unwrap();
        home.write("config.toml", b"x").unwrap();
        home.write("keys/Texi.key", b"k").unwrap();
        home.check().unwrap();
        for (name, bad, good) in [
            ("", 0o777, 0o700),
            ("", 0o720, 0o700),
            ("config.toml", 0o602, 0o600),
            ("keys", 0o770, 0o755),
            ("keys/Texi.key", 0o666, 0o600),
        ] {
            let path = dir.path().join("home").join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(bad)).unwrap();
            let said = home.read_secret("keys/Texi.key").unwrap_err().to_string();
            assert!(said.contains("chmod go-w"), "{name}: {said}");
            fs::set_permissions(&path, fs::Permissions::from_mode(good)).unwrap();
            assert!(
                home.read_secret("keys/Texi.key").unwrap().is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_lock_that_nobody_holds_names_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert_eq!(home.lock_holder("serve.lock"), None);
        let held = home.try_lock("serve.lock").unwrap().ok();
        assert_eq!(home.lock_holder("serve.lock"), Some(std::process::id()));
        drop(held);
        assert_eq!(home.lock_holder("serve.lock"), None);
    }

    #[test]
    fn files_are_private_and_a_lock_names_its_holder() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("deep/home"));
        home.create().unwrap();
        home.write("config.toml", b"x").unwrap();
        assert_eq!(
            (home.mode("config.toml"), home.mode("")),
            (Some(0o600), Some(0o700))
        );
        let held = home.try_lock("serve.lock").unwrap().ok();
        assert!(held.is_some());
        let holder = home.try_lock("serve.lock").unwrap().err().unwrap();
        assert_eq!(holder.pid, std::process::id().to_string());
        assert!(holder.at_work(&home).is_none());
        drop(held);
        let held = home.try_lock_soon("serve.lock", "restore").unwrap().ok();
        assert_eq!(home.lock_holder("serve.lock"), Some(std::process::id()));
        let holder = home.try_lock("serve.lock").unwrap().err().unwrap();
        let said = holder.at_work(&home).unwrap().message;
        assert!(said.contains("`prism restore`"), "{said}");
        drop(held);
        assert!(home.try_lock("serve.lock").unwrap().is_ok());
    }
}
