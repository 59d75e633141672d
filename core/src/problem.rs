//! What can be wrong with a request, and what to do about it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// A refusal: a stable code, a sentence for people, and the next step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    pub code: String,
    pub message: String,
    pub hint: String,
    /// Facts a program may need, such as the id of a row that was kept.
    #[serde(flatten)]
    pub facts: Map<String, Value>,
    #[serde(skip)]
    pub status: u16,
}

macro_rules! codes {
    ($($variant:ident $name:literal $status:literal),+ $(,)?) => {
        /// The closed list of refusals and their HTTP status.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $($variant),+ }
        impl Code {
            pub const ALL: &[Code] = &[$(Code::$variant),+];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name),+ } }
            pub const fn status(self) -> u16 { match self { $(Self::$variant => $status),+ } }
        }
    };
}

codes! {
    InvalidRequest "invalid_request" 400,
    UnknownType "unknown_signal_type" 400,
    UnknownCategory "unknown_category" 400,
    InvalidIdentity "invalid_identity" 400,
    NoInbox "no_inbox" 400,
    Broadcast "broadcast_unsupported" 400,
    TraceIdAsReply "trace_id_as_in_reply_to" 400,
    Ambiguous "ambiguous_reference" 400,
    MissingKey "missing_key" 401,
    InvalidKey "invalid_key" 401,
    OperatorOnly "operator_only" 403,
    NoPersona "no_persona" 403,
    ForeignOrigin "foreign_origin" 403,
    ForeignHost "foreign_host" 403,
    NotYours "not_yours" 403,
    ForeignFolder "foreign_folder" 403,
    UnknownProject "unknown_project" 404,
    UnknownRecipient "unknown_recipient" 404,
    UnknownIdentity "unknown_identity" 404,
    UnknownSignal "unknown_signal" 404,
    UnknownSession "unknown_session" 404,
    UnknownReference "unknown_reference" 404,
    UnknownVerb "unknown_verb" 404,
    NotFound "not_found" 404,
    MethodNotAllowed "method_not_allowed" 405,
    TooSlow "request_timeout" 408,
    IdentityFixed "identity_fixed" 409,
    IdempotencyConflict "idempotency_conflict" 409,
    RecipientUnavailable "recipient_unavailable" 409,
    Conflict "conflict" 409,
    SessionReleased "session_released" 410,
    TooLarge "too_large" 413,
    WrongContentType "wrong_content_type" 415,
    ClientTooOld "client_too_old" 426,
    TooManyRequests "too_many_requests" 429,
    TooManyConnections "too_many_connections" 429,
    InboxFull "inbox_full" 429,
    TooManySessions "too_many_sessions" 429,
    Internal "internal" 500,
    StorageFull "storage_unavailable" 503,
    ServerUnreachable "server_unreachable" 503,
    OutcomeUnknown "outcome_unknown" 504,
}

impl Problem {
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            code: code.name().into(),
            message: message.into(),
            hint: hint.into(),
            facts: Map::new(),
            status: code.status(),
        }
    }

    /// A field that has the wrong shape or value.
    pub fn field(field: &str, wrong: impl fmt::Display) -> Self {
        Self::new(
            Code::InvalidRequest,
            format!("`{field}` {wrong}"),
            format!("correct `{field}` and send it again"),
        )
    }

    /// What a session that has ended is told, whatever it asks for.
    pub fn session_over() -> Self {
        Self::new(
            Code::SessionReleased,
            "this session is over, or never was",
            "call prism_start to open a new one \
             (over HTTP: session_register, without the Prism-Session header)",
        )
    }

    pub fn with(mut self, fact: &str, value: impl Into<Value>) -> Self {
        self.facts.insert(fact.into(), value.into());
        self
    }

    pub fn is(&self, code: Code) -> bool {
        self.code == code.name()
    }

    /// A bound was met that passes with time: the same request, not taken now, may be taken later.
    /// A full inbox does not count: it waits for a reader, who may not come.
    pub fn is_busy(&self) -> bool {
        self.status == Code::TooManyRequests.status() && !self.is(Code::InboxFull)
    }

    /// The `reason` of a key's refusal that the operator decided, unlike that of an unknown key.
    pub const REVOKED: &str = "revoked";

    pub fn is_revoked(&self) -> bool {
        self.facts.get("reason").and_then(Value::as_str) == Some(Self::REVOKED)
    }

    /// How long to wait before asking again, in milliseconds, if that was said.
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.facts.get("retry_after_ms").and_then(Value::as_u64)
    }

    /// The body every door answers a refusal with.
    pub fn body(&self) -> Value {
        serde_json::json!({ "error": self })
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_has_its_own_name_and_an_error_status() {
        let mut names: Vec<_> = Code::ALL.iter().map(|c| c.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Code::ALL.len());
        assert!(Code::ALL.iter().all(|c| (400..600).contains(&c.status())));
    }

    #[test]
    fn every_bound_passes_with_time_but_a_full_inbox() {
        let busy = |code: &&Code| Problem::new(**code, "x", "x").is_busy();
        let busy: Vec<_> = Code::ALL.iter().filter(busy).map(|c| c.name()).collect();
        let bounds = [
            "too_many_requests",
            "too_many_connections",
            "too_many_sessions",
        ];
        assert_eq!(busy, bounds);
        let told = Problem::new(Code::TooManyRequests, "x", "x").with("retry_after_ms", 7);
        assert_eq!(told.retry_after_ms(), Some(7));
    }

    #[test]
    fn facts_stand_beside_code_message_and_hint() {
        let p = Problem::new(
            Code::RecipientUnavailable,
            "nobody is live",
            "send it async",
        )
        .with("signal_id", "x");
        assert_eq!(p.body()["error"]["signal_id"], "x");
        assert_eq!(p.body()["error"]["code"], "recipient_unavailable");
    }
}
