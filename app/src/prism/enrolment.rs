//! How keys, projects and personas come to be known.

use super::Prism;
use crate::clock;
use crate::store::{KeyRow, Persona, Project};
use prism_core::access::Place;
use prism_core::signal::sha256_hex;
use prism_core::tenant;
use prism_core::{Code, Identity, Problem, ProjectName};
use std::sync::atomic::Ordering;

/// How often names are read for one who waits, while others change them here; the next sweep goes on.
const NAMES_TRIES: usize = 3;

/// What a project was called by the rule of earlier versions, and where that was asked.
pub struct Formerly {
    pub name: ProjectName,
    pub machine_id: String,
    pub folder: String,
}

impl Prism {
    /// Stores a key's hash, unless it is known already; memory keeps what the store says.
    pub async fn know_key(&self, key: &str, identity: Option<Identity>) -> Result<KeyRow, Problem> {
        let row = KeyRow {
            id: clock::new_id(),
            identity,
            key_sha256: sha256_hex(key.as_bytes()),
            prefix: tenant::shown_of(key),
            created_at: clock::now(),
            revoked_at: None,
            browser: None,
            expires_at: None,
        };
        let row = self.store.add_key(row).await?.ok_or_else(|| {
            Problem::new(
                Code::Conflict,
                "the store has this key for a holder that cannot be read",
                "make another: `prism key mint <identity>`, or a fresh api_key in config.toml",
            )
        })?;
        self.directory.add_key(row.clone());
        self.bus().directory_changed();
        Ok(row)
    }

    /// The key of `config.toml` opens everything, so it must be the operator's and in force.
    pub(super) async fn know_operator(&self, key: &str) -> Result<(), Problem> {
        let row = self.know_key(key, None).await?;
        let wrong = match (&row.identity, row.revoked_at) {
            (Some(agent), _) => format!("is the key of the agent {agent}"),
            (None, Some(_)) => "was revoked".to_owned(),
            (None, None) => {
                // Other servers of one database have homes and keys of their own.
                if !self.store.is_shared() {
                    self.warn_of_other_operator_keys(&row);
                }
                return Ok(());
            }
        };
        Err(Problem::new(
            Code::Conflict,
            format!("the api_key in config.toml {wrong}"),
            "put the operator's key there, or a fresh one: `prk_` and 40 random letters or digits; PRISM_OPERATOR_KEY, \
             where it is set, goes before what stands there",
        ))
    }

    /// A key that left `config.toml` opens everything until it is revoked.
    fn warn_of_other_operator_keys(&self, own: &KeyRow) {
        for key in self.directory.keys() {
            let opens = key.identity.is_none() && key.revoked_at.is_none();
            if opens && key.browser.is_none() && key.id != own.id {
                let id = key.id.to_string();
                tracing::warn!(
                    "{}… is no longer in config.toml and still opens everything: \
                     `prism key revoke {}`",
                    key.prefix,
                    &id[..8]
                );
            }
        }
    }

    /// One that the environment has replaced here opens everything as well, on a database that servers share too.
    pub(super) fn warn_of_replaced_key(&self, before: &str) {
        // Where this server is alone every key that is not in use was told already.
        if !self.store.is_shared() {
            return;
        }
        let hash = sha256_hex(before.as_bytes());
        let in_force = |key: &KeyRow| {
            key.key_sha256 == hash && key.identity.is_none() && key.revoked_at.is_none()
        };
        if let Some(key) = self.directory.keys().into_iter().find(in_force) {
            tracing::warn!(
                "PRISM_OPERATOR_KEY has replaced {}… here, which still opens everything; unless another server has it: \
                 `prism key revoke {}`",
                key.prefix,
                &key.id.to_string()[..8]
            );
        }
    }

    /// Reads the names of projects and personas again, where memory's may be older than the store's. Whoever asks
    /// has what was said to be old before: it waits for whoever reads, and reads only what that one has not.
    pub async fn read_names(&self) -> Result<(), Problem> {
        let wanted = self.names_wanted.load(Ordering::Acquire);
        let mut read = self.names_read.lock().await;
        let mut tries = 0;
        while *read < wanted && tries < NAMES_TRIES {
            tries += 1;
            // Whoever says so while they are read is heard by the next one.
            let until = self.names_wanted.load(Ordering::Acquire);
            let version = self.directory.version();
            let known = self.directory.projects();
            let loaded = self.store.load().await?;
            let is_gone = |old: &Project| loaded.projects.iter().all(|p| p.id != old.id);
            let moved = known.iter().any(is_gone);
            let replaced = self.directory.replace(version, &loaded);
            if replaced {
                *read = until;
            } else {
                self.directory.take_up(&loaded);
            }
            self.presence.have_started(loaded.started_personas);
            if self.bus().carrier().is_shared() {
                if moved {
                    self.store.projects_moved();
                }
                if replaced {
                    self.saw_names(loaded.names);
                }
                self.shut_revoked(&loaded.keys).await;
                // After the keys: a session that ended with its key is told that, and not only that it is over.
                self.read_sessions().await?;
            }
        }
        Ok(())
    }

    /// The name to use for a project that was found: the one of earlier versions goes on where it
    /// has rows, until the operator merges the two.
    pub async fn name_in_use(
        &self,
        pid: String,
        formerly: Option<Formerly>,
    ) -> Result<String, Problem> {
        let Some(formerly) = formerly else {
            return Ok(pid);
        };
        let Some(old) = self.directory.project(formerly.name.as_str()) else {
            return Ok(pid);
        };
        let goes_on = self
            .store
            .goes_on(old.id, formerly.machine_id, formerly.folder)
            .await?;
        Ok(if goes_on { old.pid.to_string() } else { pid })
    }

    /// The folder that a project belongs to, where whoever speaks does so from another.
    pub async fn elsewhere(
        &self,
        project: &Project,
        speaks_from: Option<(String, String)>,
    ) -> Option<String> {
        let (machine, folder) = speaks_from?;
        let found = self.store.elsewhere(project.id, machine, folder).await;
        // Worth a word, and not worth a refusal.
        found.ok().flatten()
    }

    /// Lets whoever found a project into it, if its folder is one of the project's.
    pub async fn enter(&self, pid: &ProjectName, place: Option<Place>) -> Result<(), Problem> {
        let Some(place) = place else {
            return Ok(());
        };
        let now = clock::now();
        Ok(self.store.enter_project(pid.clone(), place, now).await?)
    }

    /// Adds a project with its operator's persona; harmless when it exists.
    pub async fn ensure_project(&self, pid: ProjectName) -> Result<Project, Problem> {
        if let Some(project) = self.directory.project(pid.as_str()) {
            return Ok(project);
        }
        let new = Project {
            id: clock::new_id(),
            pid,
        };
        let (project, operator) = self
            .store
            .add_project(new, self.operator.clone(), clock::now())
            .await?;
        self.directory.add_persona(operator);
        self.directory.add_project(project.clone());
        self.bus().directory_changed();
        Ok(project)
    }

    /// Adds an identity to a project, in the spelling its first registration fixed; says whether it
    /// is new.
    pub async fn ensure_persona(
        &self,
        project: &Project,
        identity: &Identity,
    ) -> Result<(Persona, bool), Problem> {
        let new = Persona {
            id: clock::new_id(),
            project_id: project.id,
            identity: identity.clone(),
            is_operator: false,
            created_at: clock::now(),
        };
        let (persona, created) = self.store.add_persona(new).await?;
        self.directory.add_persona(persona.clone());
        if created {
            self.bus().directory_changed();
        }
        Ok((persona, created))
    }
}
