//! The gate at work: hands what an agent meets and does to the store, which judges from its rows.
//!
//! The only state here is a cache that can be thrown away: of whom nothing new need be written.

use crate::clock;
use crate::prism::Caller;
use crate::store::Store;
use crate::store::gate::{Actor, Assigned};
use prism_core::Moment;
use prism_core::gate::{
    Assignment, AssignmentSource, GateOutcome, GateWarning, Mode, TaskClass, Trigger, classify,
    warning,
};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// Personas the cache holds; beyond that it is emptied and fills again.
const PERSONAS_CACHED_MAX: usize = 10_000;
/// Actors of one persona that it holds; sessions come and go.
const ACTORS_CACHED_MAX: usize = 64;
/// How long outputs that nobody waits for are gathered: to note one keeps whoever writes to all of memory waiting.
const GATHERING: Duration = Duration::from_millis(20);

pub struct Gate {
    mode: Mode,
    /// By persona, the actors whose output is on record already and who have no open window: more
    /// output of theirs changes no judgement until something is drained or a window opens.
    on_record: Mutex<HashMap<Uuid, HashMap<Uuid, OnRecord>>>,
    waits: Arc<Waits>,
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
            waits: Arc::default(),
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

    /// What is on record may be gone.
    pub fn forget(&self) {
        self.on_record().clear();
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
        if store.bus().carrier().is_shared() {
            // Where others have the rows too, an assignment may have come without a word here: each output is
            // noted, and nobody waits for it but whoever is judged next.
            if let Some(noting) = self.waits.add(actor.id(), clock::now()) {
                drop(tokio::spawn(note_waiting(store.clone(), actor, noting)));
            }
            return;
        }
        // An assignment that comes from here on takes the note back.
        let noted = self.note_of(actor.persona_id, actor.id());
        let mut noted = noted.lock().await;
        if !*noted {
            *noted = note_output(store, actor, clock::now()).await;
        }
    }

    /// Waits until what the caller has produced is on record: it is about to be judged.
    pub async fn settled(&self, caller: &Caller) {
        let Some(actor) = self.actor(caller) else {
            return;
        };
        let noted = self.note_of(actor.persona_id, actor.id());
        drop(noted.lock().await);
        self.waits.noted(actor.id()).await;
    }

    /// Waits until everything that was produced so far is on record: the server stops.
    pub async fn finish(&self) {
        let actors: Vec<Uuid> = self.waits.outputs().keys().copied().collect();
        for actor in actors {
            self.waits.noted(actor).await;
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

/// By actor, the outputs that wait to be noted.
#[derive(Default)]
struct Waits(Mutex<HashMap<Uuid, Outputs>>);

/// Of several outputs of one actor the last one is enough.
struct Outputs {
    newest: Moment,
    /// Up to where they are on record, or cannot be; it ends with whoever notes them.
    noted: watch::Sender<Moment>,
    /// Told when somebody waits for that.
    wanted: Arc<Notify>,
}

impl Waits {
    fn outputs(&self) -> MutexGuard<'_, HashMap<Uuid, Outputs>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Has an output wait to be noted; whoever gets the turn notes it, unless somebody has it already.
    fn add(self: &Arc<Self>, actor: Uuid, at: Moment) -> Option<Noting> {
        match self.outputs().entry(actor) {
            Entry::Occupied(mut waits) => {
                let outputs = waits.get_mut();
                outputs.newest = outputs.newest.max(at);
                None
            }
            Entry::Vacant(free) => {
                free.insert(Outputs {
                    newest: at,
                    noted: watch::Sender::new(Moment(i64::MIN)),
                    wanted: Arc::default(),
                });
                Some(Noting {
                    waits: self.clone(),
                    actor,
                    is_over: false,
                })
            }
        }
    }

    /// Waits until what the actor has produced so far is on record, or nobody notes it any more.
    async fn noted(&self, actor: Uuid) {
        let waits = self.outputs().get(&actor).map(|o| {
            o.wanted.notify_one();
            (o.newest, o.noted.subscribe())
        });
        if let Some((newest, mut noted)) = waits {
            drop(noted.wait_for(|noted| *noted >= newest).await);
        }
    }
}

/// The turn to note an actor's outputs; whoever loses it lets go those who wait.
struct Noting {
    waits: Arc<Waits>,
    actor: Uuid,
    is_over: bool,
}

impl Noting {
    /// Waits a moment for more of them, unless somebody waits for these.
    async fn gather(&self) {
        let wanted = (self.waits.outputs().get(&self.actor)).map(|o| o.wanted.clone());
        if let Some(wanted) = wanted {
            drop(tokio::time::timeout(GATHERING, wanted.notified()).await);
        }
    }

    /// The newest output that is to be noted, after this one; with the last of them the turn is over.
    fn next(&mut self, noted: Option<Moment>) -> Option<Moment> {
        let mut all = self.waits.outputs();
        let outputs = all.get(&self.actor)?;
        if let Some(noted) = noted {
            outputs.noted.send_replace(noted);
            if outputs.newest <= noted {
                self.is_over = true;
                all.remove(&self.actor);
                return None;
            }
        }
        Some(outputs.newest)
    }
}

impl Drop for Noting {
    fn drop(&mut self) {
        if !self.is_over {
            self.waits.outputs().remove(&self.actor);
        }
    }
}

/// Puts an output on record, if it can.
async fn note_output(store: &Store, actor: Actor, at: Moment) -> bool {
    let noted = store.produced_before_gate(actor, at).await;
    if let Err(error) = &noted {
        tracing::warn!(%error, "The gate could not note an output; the next one is noted");
    }
    noted.is_ok()
}

/// Notes the newest output that waits, until none does.
async fn note_waiting(store: Store, actor: Actor, mut noting: Noting) {
    let mut noted = None;
    noting.gather().await;
    while let Some(at) = noting.next(noted) {
        note_output(&store, actor.clone(), at).await;
        noted = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Persona, Project};
    use prism_core::{Identity, ProjectName};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    fn caller(id: Uuid) -> Caller {
        let project_id = Uuid::from_u128(1);
        Caller {
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
        }
    }

    /// Counts how often a task is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn whoever_is_judged_sleeps_until_the_outputs_so_far_are_on_record() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_embedded(&dir.path().join("x.db")).unwrap();
        let caller = caller(Uuid::from_u128(2));
        let gate = Gate::new(Mode::Advisory);
        let actor = gate.actor(&caller).unwrap();
        let noting = gate.waits.add(actor.id(), Moment(1)).unwrap();
        assert!(gate.waits.add(actor.id(), Moment(2)).is_none(), "one notes");
        // What is known in memory may be thrown away while somebody waits.
        gate.assignment_comes(caller.persona.id);
        let mut judged = Box::pin(gate.settled(&caller));
        let woken = Arc::<Woken>::default();
        let waker = woken.clone().into();
        let poll = judged.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
        let mut stops = Box::pin(gate.finish());
        assert!(futures_util::poll!(stops.as_mut()).is_pending());
        tokio::task::yield_now().await;
        assert_eq!(woken.0.load(Ordering::Relaxed), 0);
        note_waiting(store.clone(), actor, noting).await;
        judged.await;
        stops.await;
        assert!(gate.waits.outputs().is_empty());
        store.close().await;
    }

    #[tokio::test]
    async fn nobody_waits_for_an_output_that_nobody_notes_any_more() {
        let gate = Gate::new(Mode::Advisory);
        let caller = caller(Uuid::from_u128(2));
        let actor = gate.actor(&caller).unwrap().id();
        let noting = gate.waits.add(actor, Moment(1)).unwrap();
        let mut judged = Box::pin(gate.settled(&caller));
        assert!(futures_util::poll!(judged.as_mut()).is_pending());
        drop(noting);
        judged.await;
        assert!(gate.waits.add(actor, Moment(2)).is_some());
    }

    #[tokio::test]
    async fn a_second_output_is_answered_no_sooner_than_the_first_is_on_record() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open_embedded(&dir.path().join("x.db")).unwrap();
        let id = Uuid::from_u128(2);
        let caller = caller(id);
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
