//! The door to the files of agent hosts: through symlinks, with their modes, whole or not at all.

#![expect(clippy::disallowed_methods, reason = "the door to hosts' files")]

use anyhow::{Context, Result, bail};
use prism_core::connect::Refusal;
use prism_core::limits::HOST_FILE_BYTES_MAX;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A host's file as it was found.
#[derive(Clone, Debug)]
pub struct Seen {
    /// As the host names it.
    pub path: PathBuf,
    /// Where it really is.
    pub real: PathBuf,
    /// Nothing: it does not exist.
    pub text: Option<String>,
    mode: u32,
    /// Other names lead to the same file, so it must stay the same file.
    linked: bool,
}

/// What a text is known by.
pub fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|b| format!("{b:02x}")).collect()
}

impl Seen {
    pub fn hash(&self) -> Option<String> {
        self.text.as_deref().map(hash)
    }

    pub fn text(&self) -> &str {
        self.text.as_deref().unwrap_or_default()
    }
}

/// Reads a file to change it; whatever would keep it from being changed is said now.
pub fn see(path: &Path) -> Result<Seen> {
    let seen = look(path)?;
    let mut folder = seen.real.parent().unwrap_or(Path::new("/"));
    if seen.text.is_some() {
        let found = fs::metadata(&seen.real)?;
        let me = rustix::process::geteuid().as_raw();
        if found.uid() != me {
            bail!("it belongs to user {}, not to you (user {me})", found.uid());
        }
        if found.mode() & 0o200 == 0 {
            bail!(
                "it is read-only: `chmod u+w {}` if Prism may change it",
                seen.real.display()
            );
        }
    }
    while fs::symlink_metadata(folder).is_err() {
        folder = folder.parent().unwrap_or(Path::new("/"));
    }
    let way = fs::metadata(folder)
        .with_context(|| format!("{} leads nowhere: it is a broken symlink", folder.display()))?;
    if !way.is_dir() {
        bail!("{} is in the way: it is not a folder", folder.display());
    }
    if rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_err() {
        bail!("you may not write in {}", folder.display());
    }
    Ok(seen)
}

/// Reads a file, only to look at it.
pub fn look(path: &Path) -> Result<Seen> {
    let missing = Seen {
        path: path.to_owned(),
        real: settled(path),
        text: None,
        mode: 0,
        linked: false,
    };
    let link = match fs::symlink_metadata(path) {
        Ok(found) => found.is_symlink(),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(missing);
        }
        Err(e) => bail!("it cannot be looked at: {e}"),
    };
    let real = fs::canonicalize(path).map_err(|e| {
        let to = fs::read_link(path).unwrap_or_default();
        let to = to.display();
        match e.kind() {
            ErrorKind::NotFound if link => anyhow::anyhow!(
                "it is a symlink to {to}, which is not there: mend or remove the link"
            ),
            _ if link => anyhow::anyhow!("it is a symlink that leads nowhere ({e})"),
            _ => anyhow::anyhow!("{e}"),
        }
    })?;
    let found = fs::metadata(&real)?;
    if found.is_dir() {
        bail!("it is a folder, where a file is expected");
    }
    if !found.is_file() {
        bail!("it is not a plain file");
    }
    if found.len() > HOST_FILE_BYTES_MAX {
        bail!(
            "it has {} bytes, more than any host's file has",
            found.len()
        );
    }
    let bytes = fs::read(&real).context("it cannot be read")?;
    let text = String::from_utf8(bytes).map_err(|e| {
        let good = String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]);
        anyhow::anyhow!("{}", Refusal::at(&good, good.len(), "this is not UTF-8"))
    })?;
    Ok(Seen {
        text: Some(text),
        real,
        mode: found.mode() & 0o7777,
        linked: found.nlink() > 1,
        ..missing
    })
}

/// Where a path leads that need not exist: as far as it does, as it really is.
fn settled(path: &Path) -> PathBuf {
    let known = path
        .ancestors()
        .find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    match known.and_then(|(above, real)| Some(real.join(path.strip_prefix(above).ok()?))) {
        Some(real) => real,
        None => path.to_owned(),
    }
}

/// A change to one file: its new text, or that it goes.
#[derive(Clone, Debug)]
pub struct Change {
    pub seen: Seen,
    pub after: Option<String>,
    /// Others read it, too.
    pub shared: bool,
    /// Folders that go with it, when nothing else is in them; the deepest first.
    pub folders: Vec<PathBuf>,
}

impl Change {
    /// Whether the file still is what it was when it was looked at.
    pub fn is_current(&self) -> Result<()> {
        let now = look(&self.seen.path)?;
        if now.hash() != self.seen.hash() || now.real != self.seen.real {
            bail!("it was changed while this was going on: look at the change again");
        }
        Ok(())
    }

    /// The folders that must be made first, the outermost first.
    pub fn missing_folders(&self) -> Vec<PathBuf> {
        let above = self.seen.real.ancestors().skip(1);
        let mut missing: Vec<PathBuf> = above
            .take_while(|d| !d.exists())
            .map(Path::to_owned)
            .collect();
        missing.reverse();
        missing
    }

    /// Makes the change. A reader sees the old file or the new one.
    pub fn write(&self) -> Result<()> {
        let path = &self.seen.real;
        sweep(path);
        let Some(after) = &self.after else {
            self.is_current()?;
            match fs::remove_file(path) {
                Err(e) if e.kind() != ErrorKind::NotFound => return Err(e.into()),
                _ => {}
            }
            remove_empty(&self.folders);
            return Ok(());
        };
        for folder in self.missing_folders() {
            let mode = if self.shared { 0o755 } else { 0o700 };
            let made = DirBuilder::new().mode(mode).create(&folder);
            made.with_context(|| format!("cannot create {}", folder.display()))?;
        }
        if self.seen.linked {
            self.is_current()?;
            let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
            file.write_all(after.as_bytes())?;
            return Ok(file.sync_all()?);
        }
        let (begin, end) = temporary_name(path);
        let temporary = path.with_file_name(format!("{begin}{}{end}", std::process::id()));
        let result = self.replace(&temporary, after);
        if result.is_err() {
            drop(fs::remove_file(&temporary));
        }
        result
    }

    fn replace(&self, temporary: &Path, after: &str) -> Result<()> {
        let mode = match (&self.seen.text, self.shared) {
            (Some(_), _) => self.seen.mode,
            (None, true) => 0o644,
            (None, false) => 0o600,
        };
        let mut file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(temporary)?;
        file.write_all(after.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.sync_all()?;
        self.is_current()?;
        Ok(fs::rename(temporary, &self.seen.real)?)
    }

    /// Undoes a change that was made; whoever calls it has an error to tell already.
    fn take_back(&self) {
        let Some(after) = &self.after else {
            // Its folders may be gone as well.
            if let Some(parent) = self.seen.real.parent() {
                drop(fs::create_dir_all(parent));
            }
            let back = Change {
                seen: Seen {
                    text: None,
                    ..self.seen.clone()
                },
                after: self.seen.text.clone(),
                shared: self.shared,
                folders: Vec::new(),
            };
            drop(back.write());
            return;
        };
        let back = Change {
            seen: Seen {
                text: Some(after.clone()),
                ..self.seen.clone()
            },
            after: self.seen.text.clone(),
            shared: self.shared,
            folders: self.folders.clone(),
        };
        drop(back.write());
    }
}

/// What stands before and after the process in the name of a file that is not whole yet.
fn temporary_name(path: &Path) -> (String, &'static str) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    (format!(".{name}.prism-"), ".tmp")
}

/// Removes what a process left that was killed while it wrote this file.
fn sweep(path: &Path) {
    let (begin, end) = temporary_name(path);
    let folder = path.parent().map(fs::read_dir);
    let Some(Ok(entries)) = folder else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let pid = name.strip_prefix(&begin).and_then(|n| n.strip_suffix(end));
        let pid = pid.and_then(|pid| pid.parse().ok());
        if pid.is_some_and(|pid| !crate::shim::files::alive(pid)) {
            drop(fs::remove_file(entry.path()));
        }
    }
}

/// Removes folders that nobody put anything into.
pub fn remove_empty(folders: &[PathBuf]) {
    for folder in folders {
        drop(fs::remove_dir(folder));
    }
}

/// Makes all changes, or none: what was changed before one failed is put back.
pub fn write_all(changes: &[Change]) -> Result<()> {
    for change in changes {
        change
            .is_current()
            .with_context(|| change.seen.path.display().to_string())?;
    }
    for (n, change) in changes.iter().enumerate() {
        if let Err(e) = change.write() {
            changes[..n].iter().rev().for_each(Change::take_back);
            return Err(e.context(change.seen.path.display().to_string()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn change(path: &Path, after: Option<&str>) -> Change {
        Change {
            seen: see(path).unwrap(),
            after: after.map(str::to_owned),
            shared: false,
            folders: Vec::new(),
        }
    }

    #[test]
    fn a_file_is_changed_through_its_link_and_keeps_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real.json"), dir.path().join("link.json"));
        fs::write(&real, "{}").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("real.json", &link).unwrap();
        write_all(&[change(&link, Some("{1}"))]).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "{1}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().mode() & 0o777, 0o640);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing is left behind"
        );
        let twin = dir.path().join("twin.json");
        fs::hard_link(&real, &twin).unwrap();
        write_all(&[change(&real, Some("{2}"))]).unwrap();
        assert_eq!(fs::read_to_string(&twin).unwrap(), "{2}", "still one file");
    }

    #[test]
    fn what_cannot_be_changed_is_said_before_anything_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("folder")).unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("round", at("round")).unwrap();
        fs::write(at("locked"), "{}").unwrap();
        fs::set_permissions(at("locked"), fs::Permissions::from_mode(0o444)).unwrap();
        fs::write(at("binary"), b"{\n\xff}").unwrap();
        for (name, says) in [
            ("folder", "it is a folder"),
            ("dangling", "a symlink to nowhere"),
            ("round", "leads nowhere"),
            ("locked", "read-only"),
            ("binary", "line 2, column 1: this is not UTF-8"),
            ("locked/x.json", "not a folder"),
            ("dangling/x.json", "broken symlink"),
        ] {
            let said = format!("{:#}", see(&at(name)).unwrap_err());
            assert!(said.contains(says), "{name}: {said}");
        }
    }

    #[test]
    fn a_file_that_changed_in_between_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "1").unwrap();
        fs::write(&b, "1").unwrap();
        let changes = [change(&a, Some("2")), change(&b, Some("2"))];
        fs::write(&b, "other").unwrap();
        let said = format!("{:#}", write_all(&changes).unwrap_err());
        assert!(said.contains("/b: it was changed"), "{said}");
        assert_eq!(
            fs::read_to_string(&a).unwrap(),
            "1",
            "neither was the other"
        );
        // One that appeared where there was none.
        let new = change(&dir.path().join("new"), Some("x"));
        fs::write(dir.path().join("new"), "theirs").unwrap();
        assert!(write_all(&[new]).is_err());
    }

    #[test]
    fn when_one_change_fails_those_before_it_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("kept"), "1").unwrap();
        fs::write(at("gone"), "1").unwrap();
        let bad = Change {
            seen: Seen {
                real: at("kept").join("x"),
                ..see(&at("never")).unwrap()
            },
            ..change(&at("never"), Some("x"))
        };
        let changes = [
            change(&at("kept"), Some("2")),
            change(&at("gone"), None),
            change(&at("deep/er/new"), Some("2")),
            bad,
        ];
        // What is looked at before the first write says nothing; the write itself fails.
        let failed = changes
            .iter()
            .enumerate()
            .find_map(|(n, c)| Some((n, c.write().err()?)));
        let (n, _) = failed.unwrap();
        assert_eq!(n, 3);
        changes[..n].iter().rev().for_each(Change::take_back);
        assert_eq!(fs::read_to_string(at("kept")).unwrap(), "1");
        assert_eq!(fs::read_to_string(at("gone")).unwrap(), "1");
        assert!(!at("deep/er/new").exists());
    }
}
