//! What the gate asks of the store: who acts, and the assignments they meet.

use prism_core::Moment;
use prism_core::gate::{Mode, TaskClass, Trigger};
use uuid::Uuid;

/// Who acts before the gate: a session, or a persona without one.
#[derive(Clone, Debug)]
pub struct Actor {
    pub project_id: Uuid,
    pub session_id: Option<Uuid>,
    pub persona_id: Uuid,
    pub persona: String,
    pub surface: String,
    pub mode: Mode,
}

impl Actor {
    /// What its open windows are kept under.
    pub fn id(&self) -> Uuid {
        self.session_id.unwrap_or(self.persona_id)
    }
}

/// A watched assignment at one of the gate's surfaces.
#[derive(Clone, Debug)]
pub struct Assigned {
    pub actor: Actor,
    pub assignment_id: String,
    pub class: TaskClass,
    pub arrived: Moment,
    pub trigger: Trigger,
    pub now: Moment,
}
