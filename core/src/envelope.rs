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

    /// The frame that pushes this signal, with a payload that is JSON text already; the same as
    /// `ServerFrame::Signal` would write it, without writing the payload again.
    pub fn push_frame(&self, payload_json: &str) -> String {
        #[derive(Serialize)]
        struct Head<'a> {
            seq: Option<i64>,
            signal_id: Uuid,
            signal_type: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            category: Option<Category>,
            from_identity: &'a str,
            from_session: Option<Uuid>,
            to_identity: &'a str,
            in_reply_to: Option<Uuid>,
            created_at: Option<Moment>,
            trace_id: Option<Uuid>,
            pid: Option<&'a str>,
        }
        let head = Head {
            seq: self.seq,
            signal_id: self.signal_id,
            signal_type: &self.signal_type,
            category: self.category,
            from_identity: &self.from_identity,
            from_session: self.from_session,
            to_identity: &self.to_identity,
            in_reply_to: self.in_reply_to,
            created_at: self.created_at,
            trace_id: self.trace_id,
            pid: self.pid.as_deref(),
        };
        let head = serde_json::to_string(&head).unwrap_or_else(|_| "{}".into());
        let head = head.trim_end_matches('}');
        format!(
            r#"{{"kind":"signal","drained":false,"envelope":{head},"payload":{payload_json}}}}}"#
        )
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
    fn a_pushed_frame_says_what_the_envelope_says() {
        let payload = json!({"summary": "a \"quoted\" {brace}", "n": [1, {"x": null}]});
        let whole = Envelope {
            signal_id: Uuid::from_u128(7),
            signal_type: "TaskAssigned".into(),
            category: Some(Category::Task),
            from_identity: "Donna".into(),
            from_session: None,
            to_identity: "Texi".into(),
            payload: payload.as_object().unwrap().clone(),
            in_reply_to: Some(Uuid::from_u128(8)),
            created_at: Some(Moment(1)),
            trace_id: Some(Uuid::from_u128(9)),
            seq: Some(4),
            pid: Some("P".into()),
        };
        let bare = Envelope {
            payload: Map::new(),
            ..whole.clone()
        };
        let frame: crate::api::ServerFrame =
            serde_json::from_str(&bare.push_frame(&payload.to_string())).unwrap();
        let crate::api::ServerFrame::Signal { envelope, drained } = frame else {
            panic!("a signal")
        };
        assert_eq!((envelope, drained), (whole, false));
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
