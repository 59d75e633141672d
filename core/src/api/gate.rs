//! Requests and answers about the gate.

use crate::gate::GateWarning;
use crate::moment::Moment;
use uuid::Uuid;

wire! {
    Acknowledged {
        ok: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] warnings: Vec<GateWarning>,
    }

    GateLabel {
        /// The warning's id, or its first 8 digits.
        event_id: String,
        /// Whether the warning was right.
        right: bool,
    }

    GateLabelled { event_id: Uuid, right: bool }

    ListEvents {
        #[serde(default)] n: Option<usize>,
        /// Only warnings that nobody has labelled.
        #[serde(default)] unlabelled: bool,
    }

    GateEvents { events: Vec<GateEventView> }

    GateEventView {
        id: Uuid,
        assignment_id: String,
        task_class: String,
        outcome: String,
        trigger: String,
        persona: String,
        surface: String,
        recall_count: u64,
        occurred_at: Moment,
        #[serde(default)] right: Option<bool>,
    }

    GateReport {
        warned: u64,
        satisfied: u64,
        labelled: u64,
        labelled_right: u64,
        /// None until anything is labelled.
        precision: Option<f64>,
        precision_target: f64,
        /// Labels that a verdict needs.
        labels_needed: u64,
        /// ok, low or too_few_labels
        verdict: String,
        by_identity: Vec<GateTally>,
        by_class: Vec<GateTally>,
        by_day: Vec<GateTally>,
    }

    GateTally { name: String, warned: u64, satisfied: u64 }
}
