//! The wire form of a signal, and the one line a person sees of it.

use crate::limits::SUMMARY_CHARS_MAX;
use crate::moment::Moment;
use crate::signal::{Category, SignalType};
use crate::text::{clip, one_line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

/// One signal as it travels: on the socket, on a verb's answer, to the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope {
    pub signal_id: Uuid,
    /// A name, not the closed enum: a receiver must survive types newer than itself.
    pub signal_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<Category>,
    pub from_identity: String,
    #[serde(default)]
    pub from_session: Option<Uuid>,
    pub to_identity: String,
    #[serde(default)]
    pub payload: Map<String, Value>,
    #[serde(default)]
    pub in_reply_to: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Moment>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<Uuid>,
    /// Place in the recipient's inbox; an event about the mesh has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<i64>,
    /// The project it belongs to, as people type it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<String>,
}

impl Envelope {
    pub fn known_type(&self) -> Option<SignalType> {
        SignalType::from_name(&self.signal_type)
    }

    pub fn is_system(&self) -> bool {
        self.known_type().is_some_and(SignalType::is_system)
    }

    pub fn is_loopback(&self) -> bool {
        self.known_type() == Some(SignalType::Loopback)
    }

    /// The category as sent, else the default of the type; INFO for a type we do not know.
    pub fn resolved_category(&self) -> Category {
        self.category
            .or_else(|| self.known_type().and_then(SignalType::default_category))
            .unwrap_or(Category::Info)
    }

    pub fn summary(&self) -> String {
        summary_of(&self.payload)
    }
}

/// Returns the line that stands for a payload: its summary, else the first
/// field that says something, cleaned and cut.
pub fn summary_of(payload: &Map<String, Value>) -> String {
    ["summary", "title", "message", "body", "ack", "subject"]
        .iter()
        .filter_map(|field| payload.get(*field))
        .map(|value| match value {
            Value::String(text) => one_line(text),
            Value::Null => String::new(),
            other => one_line(&other.to_string()),
        })
        .find(|line| !line.is_empty())
        .map(|line| clip(&line, SUMMARY_CHARS_MAX))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn summary(payload: Value) -> String {
        summary_of(payload.as_object().unwrap())
    }

    #[test]
    fn the_summary_falls_back_to_title_message_body_ack_subject_in_that_order() {
        let mut fields = vec!["summary", "title", "message", "body", "ack", "subject"];
        while !fields.is_empty() {
            let payload: Map<_, _> = fields
                .iter()
                .map(|f| ((*f).to_owned(), json!(format!("the {f}"))))
                .collect();
            assert_eq!(summary_of(&payload), format!("the {}", fields[0]));
            fields.remove(0);
        }
        assert_eq!(summary(json!({})), "");
        assert_eq!(summary(json!({"summary": "  ", "title": "t"})), "t");
        assert_eq!(
            summary(json!({"summary": null, "body": {"a": 1}})),
            r#"{"a":1}"#
        );
    }

    #[test]
    fn a_long_summary_is_120_characters_with_its_ellipsis() {
        let line = summary(json!({"summary": "é".repeat(200)}));
        assert_eq!(line.chars().count(), 120);
        assert!(line.ends_with('…'));
    }

    #[test]
    fn a_missing_category_resolves_by_type_and_an_unknown_type_is_info() {
        let envelope = |kind: &str| Envelope {
            signal_id: Uuid::nil(),
            signal_type: kind.into(),
            category: None,
            from_identity: "A".into(),
            from_session: None,
            to_identity: "B".into(),
            payload: Map::new(),
            in_reply_to: None,
            created_at: None,
            trace_id: None,
            seq: None,
            pid: None,
        };
        assert_eq!(envelope("TaskAssigned").resolved_category(), Category::Task);
        assert_eq!(
            envelope("FromTheFuture").resolved_category(),
            Category::Info
        );
        assert!(envelope("PeerJoined").is_system());
        assert!(
            !serde_json::to_string(&envelope("PeerJoined"))
                .unwrap()
                .contains("category")
        );
    }
}
