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
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Personas the cache holds; beyond that it is emptied and fills again.
const PERSONAS_CACHED_MAX: usize = 10_000;
/// Actors of one persona that it holds; sessions come and go.
const ACTORS_CACHED_MAX: usize = 64;

pub struct Gate {
    mode: Mode,
    /// By persona, the actors whose output is on record already and who have no open window: more
    /// output of theirs changes no judgement until something is drained or a window opens.
    on_record: Mutex<HashMap<Uuid, HashSet<Uuid>>>,
}

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

    fn on_record(&self) -> MutexGuard<'_, HashMap<Uuid, HashSet<Uuid>>> {
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
        let (persona, id) = (actor.persona_id, actor.id());
        {
            // Before it is written: an assignment that comes meanwhile takes the note back.
            let mut on_record = self.on_record();
            if on_record.len() >= PERSONAS_CACHED_MAX {
                on_record.clear();
            }
            let actors = on_record.entry(persona).or_default();
            if actors.len() >= ACTORS_CACHED_MAX {
                actors.clear();
            }
            if !actors.insert(id) {
                return;
            }
        }
        if let Err(error) = store.produced_before_gate(actor, clock::now()).await {
            tracing::warn!(%error, "The gate could not note an output; the next one is noted");
            self.assignment_comes(persona);
        }
    }
}
