//! The gate at work: hands what an agent meets and does to the store, which judges from its rows.
//!
//! The only state here is a cache that can be thrown away: of whom nothing new need be written.

use crate::clock;
use crate::prism::Caller;
use crate::store::Store;
use crate::store::gate::{Actor, Assigned};
use prism_core::gate::{
    Assignment, AssignmentSource, GateOutcome, GateWarning, Mode, TaskClass, Trigger, classify,
    warning,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::OwnedMutexGuard;
use uuid::Uuid;

/// Personas the cache holds; beyond that it is emptied and fills again.
const PERSONAS_CACHED_MAX: usize = 10_000;
/// Actors of one persona that it holds; sessions come and go.
const ACTORS_CACHED_MAX: usize = 64;

pub struct Gate {
    mode: Mode,
    /// By persona, the actors whose output is on record already and who have no open window: more
    /// output of theirs changes no judgement until something is drained or a window opens.
    on_record: Mutex<HashMap<Uuid, HashMap<Uuid, OnRecord>>>,
}

/// Whether an actor's output is on record; held by whoever puts it there, so that the next output
/// is answered no sooner.
type OnRecord = Arc<tokio::sync::Mutex<bool>>;

impl Gate {
    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            on_record: Mutex::default(),
        }
    }

    fn on_record(&self) -> MutexGuard<'_, HashMap<Uuid, HashMap<Uuid, OnRecord>>> {
        self.on_record
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The caller as the gate knows it; none when the gate is off.
    pub fn actor(&self, caller: &Caller) -> Option<Actor> {
        (self.mode != Mode::Off).then(|| Actor {
            project_id: caller.project.id,
            session_id: caller.session_id(),
            persona_id: caller.persona.id,
            persona: caller.persona.identity.to_string(),
            surface: caller
                .session
                .as_ref()
                .map_or_else(|| "cli".to_owned(), |s| s.surface.clone()),
            mode: self.mode,
        })
    }

    /// An assignment comes to this persona, or is about to be judged: its next output counts.
    pub fn assignment_comes(&self, persona: Uuid) {
        self.on_record().remove(&persona);
    }

    /// A todo was added: judges it, notes it, perhaps advises. The todo stands in any case.
    pub async fn todo_added(
        &self,
        store: &Store,
        caller: &Caller,
        source: &AssignmentSource,
        assignment: &Assignment,
    ) -> Option<GateWarning> {
        let actor = self.actor(caller)?;
        let class = classify(assignment).class;
        if class == TaskClass::Unmatched {
            return None;
        }
        let assignment_id = match source.id() {
            Ok(id) => id,
            Err(unknown) => return Some(*unknown),
        };
        self.settled(caller).await;
        let now = clock::now();
        let assigned = Assigned {
            actor,
            assignment_id: assignment_id.clone(),
            class,
            arrived: now,
            trigger: Trigger::TodoAdd,
            now,
        };
        let outcome = store.meet_assignment(assigned).await;
        self.assignment_comes(caller.persona.id);
        match outcome {
            Ok(Some(GateOutcome::Warned)) => Some(warning(class, &assignment_id, assignment)),
            Ok(_) => None,
            Err(error) => {
                tracing::warn!(%error, "The gate could not judge a todo");
                None
            }
        }
    }

    /// Material output closes every open window of whoever made it; its own answer says nothing.
    pub async fn produced(&self, store: &Store, caller: &Caller) {
        let Some(actor) = self.actor(caller) else {
            return;
        };
        // An assignment that comes from here on takes the note back.
        let noted = self.note_of(actor.persona_id, actor.id());
        let noted = noted.lock_owned().await;
        // Where others have the rows too, an assignment may have come without a word here.
        let is_shared = store.bus().carrier().is_shared();
        if *noted && !is_shared {
            return;
        }
        let noting = note_output(store.clone(), actor, noted);
        match is_shared {
            // Noted each time, so nobody waits for it but whoever is judged next.
            true => drop(tokio::spawn(noting)),
            false => noting.await,
        }
    }

    /// Waits until what the caller has produced is on record: it is about to be judged.
    pub async fn settled(&self, caller: &Caller) {
        if let Some(actor) = self.actor(caller) {
            drop(
                self.note_of(actor.persona_id, actor.id())
                    .lock_owned()
                    .await,
            );
        }
    }

    fn note_of(&self, persona: Uuid, actor: Uuid) -> OnRecord {
        let mut on_record = self.on_record();
        if on_record.len() >= PERSONAS_CACHED_MAX {
            on_record.clear();
        }
        let actors = on_record.entry(persona).or_default();
        if actors.len() >= ACTORS_CACHED_MAX {
            actors.clear();
        }
        actors.entry(actor).or_default().clone()
    }
}

/// Puts an output on record. Whoever comes next waits for the note.
async fn note_output(store: Store, actor: Actor, mut noted: OwnedMutexGuard<bool>) {
    match store.produced_before_gate(actor, clock::now()).await {
        Ok(()) => *noted = true,
        Err(error) => {
            tracing::warn!(%error, "The gate could not note an output; the next one is noted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Persona, Project};
    use prism_core::{Identity, Moment, ProjectName};

    #[tokio::test]
    async fn a_second_output_is_answered_no_sooner_than_the_first_is_on_record() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_embedded(&dir.path().join("x.db")).unwrap();
        let (project_id, id) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let caller = Caller {
            project: Project {
                id: project_id,
                pid: ProjectName::parse("P").unwrap(),
            },
            persona: Persona {
                id,
                project_id,
                identity: Identity::parse("Texi").unwrap(),
                is_operator: false,
                created_at: Moment(0),
            },
            session: None,
            is_operator: false,
            everywhere: false,
            from_page: false,
        };
        let gate = Gate::new(Mode::Advisory);
        let first = gate.note_of(id, gate.actor(&caller).unwrap().id());
        let mut first = first.lock_owned().await;
        let mut second = Box::pin(gate.produced(&store, &caller));
        assert!(futures_util::poll!(second.as_mut()).is_pending());
        *first = true;
        drop(first);
        assert!(futures_util::poll!(second.as_mut()).is_ready());
        let mut third = Box::pin(gate.produced(&store, &caller));
        assert!(futures_util::poll!(third.as_mut()).is_ready());
        gate.assignment_comes(id);
        let taken_back = gate.note_of(id, gate.actor(&caller).unwrap().id());
        assert!(!*taken_back.lock().await);
        gate.produced(&store, &caller).await;
        assert!(*taken_back.lock().await);
        store.close().await;
    }
}
