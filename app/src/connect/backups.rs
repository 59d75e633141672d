//! `$PRISM_HOME/backups`: what hosts' files were before Prism, and what it did to them.

use super::files::{Seen, hash};
use crate::clock;
use crate::home::Home;
use anyhow::{Context, Result};
use prism_core::Moment;
use prism_core::connect::parts::Undo;
use prism_core::connect::{Host, Scope};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const FOLDER: &str = "backups";
const MANIFEST: &str = "backups/manifest.json";
const LOCK: &str = "backups/connect.lock";

/// On whose behalf something stands in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Owner {
    pub host: Host,
    pub scope: Scope,
    /// The folder, when it is about one.
    pub root: Option<PathBuf>,
}

/// One file that Prism changed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// Where it really is.
    pub path: PathBuf,
    pub owners: Vec<Owner>,
    /// SHA-256 before the first change; nothing: there was no file.
    pub before: Option<String>,
    /// SHA-256 after our last change.
    pub after: String,
    /// The copy of what was there.
    pub backup: Option<String>,
    /// Somebody else changed the file between two changes of ours.
    pub mixed: bool,
    pub undo: Vec<Undo>,
    /// Folders that were made for it, the deepest first.
    pub folders: Vec<PathBuf>,
    pub at: Moment,
}

/// What Codex's user approved, as far as it is known: the hash that stood beside a hook.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    /// Where Codex keeps it.
    pub key: String,
    pub hash: String,
    /// The hook as it was written then.
    pub hook: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Manifest {
    pub files: Vec<Kept>,
    /// The programs that hosts were given: ours under whatever name.
    #[serde(default)]
    pub programs: Vec<String>,
    #[serde(default)]
    pub approvals: Vec<Approval>,
}

/// Keeps other connects away while one changes files.
pub fn lock(home: &Home) -> Result<crate::home::Lock> {
    home.create()?;
    home.create_folder(FOLDER)?;
    home.lock(LOCK)
}

impl Manifest {
    pub fn load(home: &Home) -> Result<Self> {
        match home.read(MANIFEST) {
            Some(text) => serde_json::from_str(&text).with_context(|| {
                let file = home.path(MANIFEST);
                format!(
                    "{} is not what Prism wrote: mend or remove it",
                    file.display()
                )
            }),
            None => Ok(Self::default()),
        }
    }

    pub fn save(&self, home: &Home) -> Result<()> {
        if self.files.is_empty() {
            home.remove(MANIFEST);
            return Ok(());
        }
        let text = serde_json::to_string_pretty(self)?;
        home.write(MANIFEST, text.as_bytes())
    }

    pub fn of(&self, path: &Path) -> Option<&Kept> {
        self.files.iter().find(|k| k.path == path)
    }

    /// Notes what hosts start from now on.
    pub fn knows(&mut self, program: &str) {
        if !self.programs.iter().any(|p| p == program) {
            self.programs.push(program.to_owned());
        }
    }

    /// Notes which hook a hash was first seen with; the same hash says nothing about a later one.
    pub fn approved(&mut self, seen: &[Approval]) {
        for one in seen {
            let same = |a: &Approval| a.key == one.key && a.hash == one.hash;
            if !self.approvals.iter().any(same) {
                self.approvals.push(one.clone());
            }
        }
    }

    /// Notes a change that is about to be made, with a copy of what is there.
    pub fn note(
        &mut self,
        home: &Home,
        seen: &Seen,
        after: &str,
        owner: &Owner,
        undo: &[Undo],
        folders: Vec<PathBuf>,
    ) -> Result<()> {
        let now = seen.hash();
        let known = self.files.iter_mut().find(|k| k.path == seen.real);
        // What was put back by hand is as if we had never been there.
        let known = known.filter(|k| now != k.before);
        if let Some(kept) = known {
            kept.mixed |= now.as_deref() != Some(&kept.after);
            kept.after = hash(after);
            for undo in undo {
                if !kept.undo.iter().any(|u| u.at == undo.at) {
                    kept.undo.push(undo.clone());
                }
            }
            if !kept.owners.contains(owner) {
                kept.owners.push(owner.clone());
            }
            return Ok(());
        }
        self.files.retain(|k| k.path != seen.real);
        let backup = seen.text.as_ref().map(|text| {
            let name = seen.real.file_name().unwrap_or_default().to_string_lossy();
            let path = hash(&seen.real.to_string_lossy());
            (
                format!("{FOLDER}/{}-{}-{name}", &path[..8], &hash(text)[..8]),
                text,
            )
        });
        if let Some((name, text)) = &backup {
            home.write(name, text.as_bytes())?;
        }
        self.files.push(Kept {
            path: seen.real.clone(),
            owners: vec![owner.clone()],
            before: now,
            after: hash(after),
            backup: backup.map(|(name, _)| name),
            mixed: false,
            undo: undo.to_vec(),
            folders,
            at: clock::now(),
        });
        Ok(())
    }

    /// Notes that one more owner needs what stands in a file already.
    pub fn share(&mut self, path: &Path, owner: &Owner) {
        if let Some(kept) = self.files.iter_mut().find(|k| k.path == path)
            && !kept.owners.contains(owner)
        {
            kept.owners.push(owner.clone());
        }
    }

    /// Notes that an owner went; `now` is what the file is from now on. Returns the copy that is kept.
    pub fn release(
        &mut self,
        home: &Home,
        path: &Path,
        owner: &Owner,
        was: Option<&str>,
        now: Option<&str>,
    ) -> Option<PathBuf> {
        let at = self.files.iter().position(|k| k.path == path)?;
        let kept = &mut self.files[at];
        kept.owners.retain(|o| o != owner);
        if !kept.owners.is_empty() {
            kept.mixed |= was != Some(&kept.after);
            kept.after = now.unwrap_or_default().to_owned();
            return None;
        }
        let kept = self.files.remove(at);
        let backup = kept.backup?;
        if now == kept.before.as_deref() {
            home.remove(&backup);
            return None;
        }
        Some(home.path(&backup))
    }
}

impl Kept {
    /// What the file was before, if nobody else changed it since and the copy is whole.
    pub fn original(&self, home: &Home, seen: &Seen) -> Option<Original> {
        if self.mixed || seen.hash().as_deref() != Some(&self.after) {
            return None;
        }
        let Some(before) = &self.before else {
            return Some(Original::Nothing);
        };
        let text = home.read(self.backup.as_deref()?)?;
        (hash(&text) == *before).then_some(Original::Text(text))
    }
}

pub enum Original {
    Nothing,
    Text(String),
}
