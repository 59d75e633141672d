//! Keys, projects and personas, held in memory: every request asks for them.

use crate::prism::Caller;
use crate::store::{KeyRow, Loaded, Persona, Project};
use prism_core::id::nearest;
use prism_core::{Code, Identity, Moment, Problem};
use std::collections::HashMap;
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use uuid::Uuid;

pub struct Directory {
    inner: RwLock<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How often anything was changed.
    version: u64,
    projects: HashMap<String, Project>,
    personas: HashMap<(Uuid, String), Persona>,
    keys: HashMap<String, KeyRow>,
}

impl Directory {
    pub fn new(loaded: &Loaded) -> Self {
        let fresh = Self {
            inner: RwLock::default(),
        };
        loaded
            .projects
            .iter()
            .cloned()
            .for_each(|p| fresh.add_project(p));
        loaded
            .personas
            .iter()
            .cloned()
            .for_each(|p| fresh.add_persona(p));
        loaded.keys.iter().cloned().for_each(|k| fresh.add_key(k));
        fresh
    }

    /// What a load must have begun after, for [`Directory::replace`] to take it.
    pub fn version(&self) -> u64 {
        self.read().version
    }

    /// Forgets everything and keeps what the store says; false when something was changed since
    /// `version`, which the store may not have said yet.
    pub fn replace(&self, version: u64, loaded: &Loaded) -> bool {
        let fresh = std::mem::take(&mut *Self::new(loaded).locked());
        let mut inner = self.locked();
        let unchanged = inner.version == version;
        if unchanged {
            *inner = Inner {
                version: version + 1,
                ..fresh
            };
        }
        unchanged
    }

    /// Takes up what the store has and memory has not, whatever was changed meanwhile: what is gone from the store
    /// stays until it is replaced. A key that was revoked is so at once.
    pub fn take_up(&self, loaded: &Loaded) {
        let fresh = std::mem::take(&mut *Self::new(loaded).locked());
        let mut inner = self.locked();
        for (pid, project) in fresh.projects {
            inner.projects.entry(pid).or_insert(project);
        }
        for (place, persona) in fresh.personas {
            inner.personas.entry(place).or_insert(persona);
        }
        for (hash, key) in fresh.keys {
            let revoked_at = key.revoked_at;
            let known = inner.keys.entry(hash).or_insert(key);
            known.revoked_at = known.revoked_at.or(revoked_at);
        }
    }

    fn read(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn locked(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// To change something.
    fn write(&self) -> RwLockWriteGuard<'_, Inner> {
        let mut inner = self.locked();
        inner.version += 1;
        inner
    }

    pub fn add_project(&self, project: Project) {
        self.write()
            .projects
            .insert(project.pid.to_string(), project);
    }

    pub fn add_persona(&self, persona: Persona) {
        let place = (persona.project_id, persona.identity.folded());
        // What is known already is no change: a load that is under way need not be thrown away for it.
        if self.read().personas.get(&place) != Some(&persona) {
            self.write().personas.insert(place, persona);
        }
    }

    pub fn add_key(&self, key: KeyRow) {
        self.write().keys.insert(key.key_sha256.clone(), key);
    }

    /// Sets or takes back when a key was revoked.
    pub fn set_revoked(&self, id: Uuid, revoked_at: Option<Moment>) {
        for key in self.write().keys.values_mut().filter(|k| k.id == id) {
            key.revoked_at = revoked_at;
        }
    }

    /// Whether a key opens anything now.
    pub fn in_force(&self, key: &KeyRow) -> bool {
        let inner = self.read();
        let known = inner.keys.get(&key.key_sha256);
        known.is_some_and(|k| k.id == key.id && k.revoked_at.is_none())
    }

    /// The key with this hash, revoked ones included.
    pub fn key(&self, sha256: &str) -> Option<KeyRow> {
        self.read().keys.get(sha256).cloned()
    }

    pub fn keys(&self) -> Vec<KeyRow> {
        let mut keys: Vec<_> = self.read().keys.values().cloned().collect();
        keys.sort_by_key(|k| (k.created_at, k.id));
        keys
    }

    pub fn project(&self, pid: &str) -> Option<Project> {
        self.read().projects.get(pid).cloned()
    }

    pub fn projects(&self) -> Vec<Project> {
        let mut projects: Vec<_> = self.read().projects.values().cloned().collect();
        projects.sort_by(|a, b| a.pid.cmp(&b.pid));
        projects
    }

    /// The projects a key may see: all for the operator, else those with its persona.
    pub fn visible_projects(&self, identity: Option<&Identity>) -> Vec<String> {
        let mine = |p: &Project, i: &Identity| {
            self.persona(p.id, i.as_str())
                .is_some_and(|persona| !persona.is_operator)
        };
        let visible = |p: &Project| identity.is_none_or(|i| mine(p, i));
        self.projects()
            .iter()
            .filter(|p| visible(p))
            .map(|p| p.pid.to_string())
            .collect()
    }

    pub fn persona(&self, project: Uuid, identity: &str) -> Option<Persona> {
        self.read()
            .personas
            .get(&(project, identity.to_ascii_lowercase()))
            .cloned()
    }

    pub fn operator(&self, project: Uuid) -> Option<Persona> {
        self.read()
            .personas
            .values()
            .find(|p| p.project_id == project && p.is_operator)
            .cloned()
    }

    /// The inboxes of whoever calls, in every project.
    pub fn personas_of(&self, caller: &Caller) -> Vec<Uuid> {
        let mine = |p: &&Persona| match caller.is_operator {
            true => p.is_operator,
            false => !p.is_operator && p.identity.is(caller.persona.identity.as_str()),
        };
        self.read()
            .personas
            .values()
            .filter(mine)
            .map(|p| p.id)
            .collect()
    }

    pub fn personas(&self, project: Uuid) -> Vec<Persona> {
        let mut personas: Vec<_> = self
            .read()
            .personas
            .values()
            .filter(|p| p.project_id == project)
            .cloned()
            .collect();
        personas.sort_by(|a, b| a.identity.cmp(&b.identity));
        personas
    }

    /// Finds a persona of the project, or says which names are nearest.
    pub fn named(&self, project: Uuid, identity: &str, code: Code) -> Result<Persona, Problem> {
        if let Some(persona) = self.persona(project, identity) {
            return Ok(persona);
        }
        let personas = self.personas(project);
        let near = nearest(identity, personas.iter().map(|p| p.identity.as_str()), 3);
        let hint = if near.is_empty() {
            let known: Vec<_> = personas.iter().map(|p| p.identity.as_str()).collect();
            format!("known here: {}", known.join(", "))
        } else {
            format!("did you mean {}?", near.join(" or "))
        };
        Err(Problem::new(
            code,
            format!(
                "nobody called {:?} was ever in this project",
                prism_core::text::clip(identity, 40)
            ),
            hint,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(keys: Vec<KeyRow>) -> Loaded {
        Loaded {
            keys,
            ..Loaded::default()
        }
    }

    fn key() -> KeyRow {
        KeyRow {
            id: Uuid::from_u128(1),
            identity: None,
            key_sha256: "x".into(),
            prefix: "prk_x".into(),
            created_at: Moment(0),
            revoked_at: None,
            browser: None,
            expires_at: None,
        }
    }

    #[test]
    fn a_load_that_began_before_a_change_does_not_undo_it() {
        let key = key();
        let before = loaded(vec![key.clone()]);
        let directory = Directory::new(&before);
        let version = directory.version();
        directory.set_revoked(key.id, Some(Moment(1)));
        assert!(!directory.replace(version, &before));
        assert!(!directory.in_force(&key), "it stays shut");
        let after = loaded(vec![KeyRow {
            revoked_at: Some(Moment(1)),
            ..key.clone()
        }]);
        assert!(directory.replace(directory.version(), &after));
        assert!(!directory.in_force(&key));
    }

    #[test]
    fn a_key_that_was_revoked_elsewhere_is_shut_though_names_change_while_they_are_read() {
        let key = key();
        let directory = Directory::new(&loaded(vec![key.clone()]));
        let version = directory.version();
        let project = Project {
            id: Uuid::from_u128(2),
            pid: prism_core::ProjectName::parse("P").unwrap(),
        };
        directory.add_project(project);
        let revoked = loaded(vec![KeyRow {
            revoked_at: Some(Moment(1)),
            ..key.clone()
        }]);
        assert!(!directory.replace(version, &revoked));
        directory.take_up(&revoked);
        assert!(!directory.in_force(&key));
    }

    #[test]
    fn a_load_that_is_not_taken_is_no_change_to_the_next_one() {
        let directory = Directory::new(&loaded(Vec::new()));
        let early = directory.version();
        directory.add_project(Project {
            id: Uuid::from_u128(1),
            pid: prism_core::ProjectName::parse("P").unwrap(),
        });
        let late = directory.version();
        assert!(!directory.replace(early, &loaded(Vec::new())));
        assert!(directory.replace(late, &loaded(Vec::new())));
        assert!(!directory.replace(late, &loaded(Vec::new())), "two loads");
    }
}
