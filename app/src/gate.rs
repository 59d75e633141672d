//! The gate at work: what each session did, which windows are open, what was said.
//!
//! Its state lives in memory and rides to the store on other commits, so an
//! acknowledgment never waits for it.

use crate::clock;
use crate::prism::Caller;
use crate::store::{GateLoaded, GateRow, Store, WindowChange, WindowRow};
use prism_core::Moment;
use prism_core::gate::{
    Assignment, AssignmentSource, BEFORE_US, Deed, GateOutcome, GateWarning, Mode, TaskClass,
    Trigger, Window, classify, judge, warning,
};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// Deeds remembered for one session.
const DEEDS_MAX: usize = 256;

pub struct Gate {
    mode: Mode,
    inner: Mutex<Inner>,
}

/// A session, or whoever acts without one.
type Actor = Uuid;

#[derive(Default)]
struct Inner {
    deeds: HashMap<Actor, VecDeque<(Moment, Deed)>>,
    /// Open windows by assignment.
    windows: HashMap<Actor, HashMap<String, WindowRow>>,
    /// What was said already: a second time would be nagging.
    said: HashSet<(String, Trigger, GateOutcome)>,
}

impl Gate {
    pub fn new(mode: Mode, loaded: GateLoaded) -> Self {
        let mut inner = Inner::default();
        for (actor, at, id) in loaded.recalls {
            inner
                .deeds
                .entry(actor)
                .or_default()
                .push_back((at, Deed::Recall(id)));
        }
        for window in loaded.windows {
            inner
                .windows
                .entry(window.actor)
                .or_default()
                .insert(window.assignment_id.clone(), window);
        }
        inner.said.extend(loaded.said);
        Self {
            mode,
            inner: Mutex::new(inner),
        }
    }

    fn held(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn is_off(&self) -> bool {
        self.mode == Mode::Off
    }

    /// An assignment met one of the two surfaces: judge it, note it, perhaps advise.
    pub fn meets(
        &self,
        store: &Store,
        caller: &Caller,
        source: &AssignmentSource,
        assignment: &Assignment,
        arrived: Moment,
        trigger: Trigger,
    ) -> Option<GateWarning> {
        if self.is_off() {
            return None;
        }
        let class = classify(assignment).class;
        if class == TaskClass::Unmatched {
            return None;
        }
        let assignment_id = match source.id() {
            Ok(id) => id,
            Err(unknown) => return Some(*unknown),
        };
        let actor = actor(caller);
        let mut inner = self.held();
        let window = judge(
            arrived,
            inner.deeds.entry(actor).or_default().make_contiguous(),
        );
        let outcome = if matches!(window, Window::Satisfied(_)) {
            GateOutcome::Satisfied
        } else {
            GateOutcome::Warned
        };
        if !inner.said.insert((assignment_id.clone(), trigger, outcome)) {
            return None;
        }
        let (recalls, opened) = match window {
            Window::Satisfied(recalls) => (recalls, None),
            Window::Open => {
                let row = WindowRow {
                    actor,
                    project_id: caller.project.id,
                    assignment_id: assignment_id.clone(),
                    class,
                    arrived,
                };
                let windows = inner.windows.entry(actor).or_default();
                let fresh = windows.insert(assignment_id.clone(), row.clone()).is_none();
                (Vec::new(), fresh.then_some(WindowChange::Opened(row)))
            }
            Window::Missed => (Vec::new(), None),
        };
        drop(inner);
        store.note_gate(
            Some(self.event(caller, &assignment_id, class, outcome, trigger, recalls)),
            opened,
        );
        (outcome == GateOutcome::Warned).then(|| warning(class, &assignment_id, assignment))
    }

    /// A recall closes every open window of its session, well.
    pub fn recalled(&self, store: &Store, caller: &Caller, recall_event_id: Uuid) {
        if self.is_off() {
            return;
        }
        for window in self.note(caller, Deed::Recall(recall_event_id)) {
            self.close(
                store,
                caller,
                window,
                GateOutcome::Satisfied,
                Trigger::Recall,
                vec![recall_event_id],
            );
        }
    }

    /// Material output closes every open window of its session; its own answer says nothing of it.
    pub fn produced(&self, store: &Store, caller: &Caller) {
        if self.is_off() {
            return;
        }
        for window in self.note(caller, Deed::Material) {
            self.close(
                store,
                caller,
                window,
                GateOutcome::Warned,
                Trigger::MaterialOutput,
                Vec::new(),
            );
        }
    }

    /// Remembers a deed and takes the windows it closes.
    fn note(&self, caller: &Caller, deed: Deed) -> Vec<WindowRow> {
        let (actor, now) = (actor(caller), clock::now());
        let mut inner = self.held();
        let deeds = inner.deeds.entry(actor).or_default();
        deeds.push_back((now, deed));
        while deeds.len() > DEEDS_MAX {
            deeds.pop_front();
        }
        let windows = inner.windows.entry(actor).or_default();
        let (mine, others): (HashMap<_, _>, _) = std::mem::take(windows)
            .into_iter()
            .partition(|(_, w)| w.project_id == caller.project.id);
        *windows = others;
        mine.into_values().collect()
    }

    fn close(
        &self,
        store: &Store,
        caller: &Caller,
        window: WindowRow,
        outcome: GateOutcome,
        trigger: Trigger,
        recalls: Vec<Uuid>,
    ) {
        let fresh = self
            .held()
            .said
            .insert((window.assignment_id.clone(), trigger, outcome));
        let event = fresh.then(|| {
            self.event(
                caller,
                &window.assignment_id,
                window.class,
                outcome,
                trigger,
                recalls,
            )
        });
        store.note_gate(event, Some(WindowChange::Closed(window)));
    }

    fn event(
        &self,
        caller: &Caller,
        assignment_id: &str,
        class: TaskClass,
        outcome: GateOutcome,
        trigger: Trigger,
        recalls: Vec<Uuid>,
    ) -> GateRow {
        GateRow {
            id: clock::new_id(),
            project_id: caller.project.id,
            assignment_id: assignment_id.to_owned(),
            class,
            mode: self.mode,
            outcome,
            trigger,
            session_id: caller.session_id(),
            persona: caller.persona.identity.to_string(),
            surface: caller
                .session
                .as_ref()
                .map_or_else(|| "cli".to_owned(), |s| s.surface.clone()),
            recalls,
            now: clock::now(),
        }
    }

    /// Forgets what can no longer matter.
    pub fn sweep(&self, now: Moment) {
        let mut inner = self.held();
        let waiting: HashSet<Actor> = inner
            .windows
            .iter()
            .filter(|(_, w)| !w.is_empty())
            .map(|(a, _)| *a)
            .collect();
        inner.deeds.retain(|actor, deeds| {
            waiting.contains(actor)
                || deeds
                    .back()
                    .is_some_and(|(at, _)| now.since_us(*at) < BEFORE_US * 60)
        });
        inner.windows.retain(|_, w| !w.is_empty());
    }
}

fn actor(caller: &Caller) -> Actor {
    caller.session_id().unwrap_or(caller.persona.id)
}
