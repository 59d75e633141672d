//! What a signal is: its type, its category, its life.

use crate::limits::{
    IDEMPOTENCY_KEY_CHARS_MAX, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX, TTL_INFO_S, TTL_LOOPBACK_S,
    TTL_S, TTL_S_MAX,
};
use crate::problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! names {
    ($(#[$doc:meta])* $enum:ident { $($variant:ident = $name:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[schemars(inline)]
        pub enum $enum { $(#[serde(rename = $name)] $variant),+ }
        impl $enum {
            pub const ALL: &[$enum] = &[$($enum::$variant),+];
            pub const fn name(self) -> &'static str { match self { $(Self::$variant => $name),+ } }
            pub fn from_name(name: &str) -> Option<Self> { Self::ALL.iter().copied().find(|v| v.name() == name) }
            pub fn names() -> String { Self::ALL.iter().map(|v| v.name()).collect::<Vec<_>>().join(", ") }
        }
        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.pad(self.name()) }
        }
    };
}
pub(crate) use names;

names! {
    /// What kind of message a signal is.
    SignalType {
        TaskAssigned = "TaskAssigned",
        ReviewRequested = "ReviewRequested",
        ReviewCompleted = "ReviewCompleted",
        Acknowledgment = "Acknowledgment",
        StatusUpdate = "StatusUpdate",
        Question = "Question",
        Answer = "Answer",
        Loopback = "Loopback",
        PeerJoined = "PeerJoined",
        PeerLeft = "PeerLeft",
        MasterPreempted = "MasterPreempted",
    }
}

names! {
    /// What the operator should do about a signal.
    Category { Info = "INFO", Task = "TASK", Ask = "ASK", Blocker = "BLOCKER" }
}

impl Category {
    /// Whoever is stuck comes before whoever only tells.
    pub const BY_URGENCY: [Self; 4] = [Self::Blocker, Self::Ask, Self::Task, Self::Info];
}

names! {
    /// Whether a send may wait for a recipient who is away.
    DeliveryClass { Async = "async", Sync = "sync" }
}

names! {
    /// What an acknowledgment says the recipient did.
    AckState { Observed = "observed", ModelActed = "model_acted" }
}

impl SignalType {
    /// The types that an agent or the operator may send.
    pub fn sendable() -> impl Iterator<Item = Self> {
        Self::ALL
            .iter()
            .copied()
            .filter(|t| !t.is_system() && *t != Self::Loopback)
    }

    /// Says whether this is an event about the mesh: a frame, never a message.
    pub const fn is_system(self) -> bool {
        self.default_category().is_none()
    }

    /// Returns the category of a signal whose sender named none.
    ///
    /// No type defaults to BLOCKER: escalating is the sender's explicit act.
    pub const fn default_category(self) -> Option<Category> {
        match self {
            Self::TaskAssigned => Some(Category::Task),
            Self::ReviewRequested | Self::Question => Some(Category::Ask),
            Self::ReviewCompleted
            | Self::Acknowledgment
            | Self::StatusUpdate
            | Self::Answer
            | Self::Loopback => Some(Category::Info),
            Self::PeerJoined | Self::PeerLeft | Self::MasterPreempted => None,
        }
    }

    const fn default_shape(self) -> Option<&'static str> {
        match self {
            Self::ReviewRequested => Some("review"),
            Self::Question => Some("question"),
            _ => None,
        }
    }
}

/// What a sender asks for, as it came through a door.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SendSignal {
    /// Identity of the recipient.
    pub to: String,
    /// TaskAssigned, ReviewRequested, ReviewCompleted, Acknowledgment, StatusUpdate, Question or
    /// Answer.
    pub signal_type: String,
    /// `summary` (one line) and whatever the recipient needs.
    pub payload: Map<String, Value>,
    /// INFO, TASK, ASK or BLOCKER; default by type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    /// `signal_id` this answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_reply_to: Option<String>,
    /// `sync` fails when nobody is live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// A send that passed every rule that needs no store.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckedSend {
    pub to: crate::Identity,
    pub signal_type: SignalType,
    pub category: Category,
    /// Compact JSON: written once, for the bound, the hash, the row and the socket alike.
    pub payload_json: String,
    pub in_reply_to: Option<String>,
    pub delivery_class: DeliveryClass,
    pub ttl_s: i64,
    pub idempotency_key: Option<String>,
    /// SHA-256 of everything above but the key: two sends with one key must agree on it.
    pub body_sha256: String,
}

/// Reads a type's name; an unknown one is answered with the known ones.
pub fn parse_type(name: &str) -> Result<SignalType, Problem> {
    SignalType::from_name(name).ok_or_else(|| {
        let known: Vec<_> = SignalType::sendable().map(SignalType::name).collect();
        Problem::new(
            Code::UnknownType,
            format!("{:?} is not a signal type", crate::text::clip(name, 40)),
            format!("use one of {}", known.join(", ")),
        )
    })
}

/// Reads a category's name; an unknown one is answered with the known ones.
pub fn parse_category(name: &str) -> Result<Category, Problem> {
    Category::from_name(name).ok_or_else(|| {
        Problem::new(
            Code::UnknownCategory,
            format!("{:?} is not a category", crate::text::clip(name, 40)),
            format!("use one of {}", Category::names()),
        )
    })
}

impl SendSignal {
    /// Applies every rule of a send that needs neither store nor clock.
    pub fn check(self) -> Result<CheckedSend, Problem> {
        if self.to.trim() == "*" {
            return Err(Problem::new(
                Code::Broadcast,
                "a signal goes to one identity, not to `*`",
                "send it to each recipient; `prism status` lists them",
            ));
        }
        let to = crate::Identity::parse(self.to.trim())?;
        if to.is(crate::id::BOT) {
            return Err(Problem::new(
                Code::NoInbox,
                "`Bot` is an agent that never said who it is and has no inbox",
                "start that agent with PRISM_AGENT_IDENTITY set, then send to that name",
            ));
        }
        let signal_type = parse_type(&self.signal_type)?;
        if signal_type.is_system() || signal_type == SignalType::Loopback {
            return Err(Problem::new(
                Code::UnknownType,
                format!("{signal_type} is not sent by hand"),
                if signal_type.is_system() {
                    "Prism sends it when the mesh changes"
                } else {
                    "`prism loopback-test` sends a probe"
                },
            ));
        }
        let category = match self.category.as_deref() {
            Some(name) => parse_category(name)?,
            None => signal_type.default_category().unwrap_or(Category::Info),
        };
        let payload_json = checked_payload(signal_type, self.payload)?;
        let delivery_class = match self.delivery_class.as_deref() {
            None => DeliveryClass::Async,
            Some(name) => DeliveryClass::from_name(name).ok_or_else(|| {
                Problem::field(
                    "delivery_class",
                    format!(
                        "{:?} is not one of {}",
                        crate::text::clip(name, 20),
                        DeliveryClass::names()
                    ),
                )
            })?,
        };
        let in_reply_to = self.in_reply_to.map(|id| id.trim().to_owned());
        let ttl_s = checked_ttl(self.ttl_s, signal_type, category, in_reply_to.is_some())?;
        let idempotency_key = match self.idempotency_key {
            Some(key) if key.is_empty() || key.chars().count() > IDEMPOTENCY_KEY_CHARS_MAX => {
                return Err(Problem::field(
                    "idempotency_key",
                    format!("must have 1 to {IDEMPOTENCY_KEY_CHARS_MAX} characters"),
                ));
            }
            key => key,
        };
        let body_sha256 = body_hash(
            &to,
            signal_type,
            category,
            &payload_json,
            in_reply_to.as_deref(),
            delivery_class,
            self.ttl_s,
        );
        Ok(CheckedSend {
            to,
            signal_type,
            category,
            payload_json,
            in_reply_to,
            delivery_class,
            ttl_s,
            idempotency_key,
            body_sha256,
        })
    }
}

fn checked_payload(
    signal_type: SignalType,
    mut payload: Map<String, Value>,
) -> Result<String, Problem> {
    if let Some(shape) = signal_type.default_shape() {
        payload.entry("shape").or_insert_with(|| shape.into());
    }
    if let Some(shape) = payload.get("shape")
        && !matches!(shape.as_str(), Some("review" | "question"))
    {
        return Err(Problem::field(
            "payload.shape",
            "must be `review` (until consensus) or `question` (one answer)",
        ));
    }
    if let Some(summary) = payload.get("summary")
        && !summary.is_string()
    {
        return Err(Problem::field("payload.summary", "must be text"));
    }
    let payload = Value::Object(payload);
    let depth = depth(&payload);
    if depth > PAYLOAD_DEPTH_MAX {
        return Err(Problem::field(
            "payload",
            format!("is nested {depth} levels deep and may be {PAYLOAD_DEPTH_MAX}"),
        ));
    }
    let json = payload.to_string();
    let bytes = json.len();
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(Problem::new(
            Code::TooLarge,
            format!("the payload has {bytes} bytes and may have {PAYLOAD_BYTES_MAX}"),
            "send a summary and put the rest where the recipient can read it (a file, a note, a spec)",
        ));
    }
    Ok(json)
}

/// How many objects and arrays stand inside one another; a bare value is 0 deep.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn checked_ttl(
    asked: Option<i64>,
    signal_type: SignalType,
    category: Category,
    replies: bool,
) -> Result<i64, Problem> {
    match asked {
        Some(s) if (1..=TTL_S_MAX).contains(&s) => Ok(s),
        Some(s) => Err(Problem::field(
            "ttl_s",
            format!("is {s} and must be 1 to {TTL_S_MAX} seconds"),
        )),
        None if signal_type == SignalType::Loopback => Ok(TTL_LOOPBACK_S),
        None if category == Category::Info && !replies => Ok(TTL_INFO_S),
        None => Ok(TTL_S),
    }
}

/// The hash of a JSON array of everything that makes two sends the same one.
fn body_hash(
    to: &crate::Identity,
    signal_type: SignalType,
    category: Category,
    payload_json: &str,
    in_reply_to: Option<&str>,
    class: DeliveryClass,
    ttl_s: Option<i64>,
) -> String {
    let before = serde_json::json!([to.folded(), signal_type, category]).to_string();
    let after = serde_json::json!([in_reply_to, class, ttl_s]).to_string();
    let (before, after) = (&before[..before.len() - 1], &after[1..]);
    sha256_hex(format!("{before},{payload_json},{after}").as_bytes())
}

/// SHA-256 as 64 hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha256};
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        text.push(HEX[usize::from(byte >> 4)].into());
        text.push(HEX[usize::from(byte & 15)].into());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn send(value: Value) -> Result<CheckedSend, Problem> {
        serde_json::from_value::<SendSignal>(value).unwrap().check()
    }

    #[test]
    fn each_type_has_the_category_of_the_table() {
        let table = [
            ("TaskAssigned", Some("TASK")),
            ("ReviewRequested", Some("ASK")),
            ("ReviewCompleted", Some("INFO")),
            ("Acknowledgment", Some("INFO")),
            ("StatusUpdate", Some("INFO")),
            ("Question", Some("ASK")),
            ("Answer", Some("INFO")),
            ("Loopback", Some("INFO")),
            ("PeerJoined", None),
            ("PeerLeft", None),
            ("MasterPreempted", None),
        ];
        assert_eq!(table.len(), SignalType::ALL.len());
        for (name, category) in table {
            assert_eq!(
                SignalType::from_name(name)
                    .unwrap()
                    .default_category()
                    .map(Category::name),
                category,
                "{name}"
            );
        }
    }

    #[test]
    fn no_type_defaults_to_blocker_and_an_explicit_category_wins() {
        assert!(
            SignalType::ALL
                .iter()
                .all(|t| t.default_category() != Some(Category::Blocker))
        );
        let s = send(json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": {}, "category": "BLOCKER"})).unwrap();
        assert_eq!(s.category, Category::Blocker);
    }

    #[test]
    fn an_unknown_type_or_category_is_answered_with_the_known_ones() {
        let p = send(json!({"to": "Texi", "signal_type": "Veto", "payload": {}})).unwrap_err();
        assert!(
            p.is(Code::UnknownType)
                && p.hint.contains("TaskAssigned")
                && !p.hint.contains("PeerJoined")
        );
        let p = send(json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": {}, "category": "URGENT"})).unwrap_err();
        assert!(p.is(Code::UnknownCategory) && p.hint.contains("BLOCKER"));
    }

    #[test]
    fn a_broadcast_the_bot_and_a_system_type_are_refused() {
        for (to, kind, code) in [
            ("*", "StatusUpdate", Code::Broadcast),
            ("Bot", "StatusUpdate", Code::NoInbox),
            ("bot", "StatusUpdate", Code::NoInbox),
            ("Texi", "PeerJoined", Code::UnknownType),
            ("Texi", "Loopback", Code::UnknownType),
            ("no such", "StatusUpdate", Code::InvalidIdentity),
        ] {
            assert!(
                send(json!({"to": to, "signal_type": kind, "payload": {}}))
                    .unwrap_err()
                    .is(code),
                "{to} {kind}"
            );
        }
    }

    #[test]
    fn the_shape_of_an_ask_is_review_or_question() {
        let shape = |kind: &str, payload: Value| {
            send(json!({"to": "Texi", "signal_type": kind, "payload": payload})).map(|s| {
                let payload: Value = serde_json::from_str(&s.payload_json).unwrap();
                payload.get("shape").cloned()
            })
        };
        assert_eq!(
            shape("ReviewRequested", json!({})).unwrap(),
            Some(json!("review"))
        );
        assert_eq!(
            shape("Question", json!({})).unwrap(),
            Some(json!("question"))
        );
        assert_eq!(
            shape("Question", json!({"shape": "review"})).unwrap(),
            Some(json!("review"))
        );
        assert_eq!(shape("StatusUpdate", json!({})).unwrap(), None);
        assert!(shape("Question", json!({"shape": "poll"})).is_err());
    }

    #[test]
    fn life_is_a_week_a_day_for_plain_info_and_what_the_sender_asks_within_bounds() {
        let ttl = |v: Value| send(v).map(|s| s.ttl_s);
        assert_eq!(
            ttl(json!({"to": "T", "signal_type": "TaskAssigned", "payload": {}})).unwrap(),
            TTL_S
        );
        assert_eq!(
            ttl(json!({"to": "T", "signal_type": "StatusUpdate", "payload": {}})).unwrap(),
            TTL_INFO_S
        );
        assert_eq!(
            ttl(json!({"to": "T", "signal_type": "Answer", "payload": {}, "in_reply_to": "x"}))
                .unwrap(),
            TTL_S
        );
        assert_eq!(
            ttl(json!({"to": "T", "signal_type": "Answer", "payload": {}, "ttl_s": 5})).unwrap(),
            5
        );
        for bad in [0, -1, TTL_S_MAX + 1] {
            assert!(
                ttl(json!({"to": "T", "signal_type": "Answer", "payload": {}, "ttl_s": bad}))
                    .is_err()
            );
        }
    }

    #[test]
    fn the_hash_of_a_body_is_that_of_a_plain_json_array() {
        let payload = json!({"b": "text, [and] \"more\"", "a": {"n": 1}});
        let sent = send(json!({
            "to": "Texi", "signal_type": "Answer", "payload": payload, "in_reply_to": "abc", "ttl_s": 5
        }))
        .unwrap();
        let whole = json!(["texi", "Answer", "INFO", payload, "abc", "async", 5]);
        assert_eq!(sent.body_sha256, sha256_hex(whole.to_string().as_bytes()));
        assert_eq!(
            sha256_hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn a_payload_over_its_limit_says_its_size() {
        let p = send(json!({"to": "T", "signal_type": "StatusUpdate", "payload": {"body": "x".repeat(PAYLOAD_BYTES_MAX)}})).unwrap_err();
        assert!(p.is(Code::TooLarge) && p.message.contains("65536"));
    }

    #[test]
    fn a_payload_nested_deeper_than_the_limit_says_how_deep_it_is() {
        let nested = |levels: usize| {
            let inner = (1..levels).fold(json!("x"), |inner, _| json!([inner]));
            send(json!({"to": "T", "signal_type": "StatusUpdate", "payload": {"deep": inner}}))
        };
        assert!(nested(PAYLOAD_DEPTH_MAX).is_ok());
        let p = nested(PAYLOAD_DEPTH_MAX + 1).unwrap_err();
        assert_eq!(p.status, 400);
        assert!(
            p.message.contains("payload") && p.message.contains("33") && p.message.contains("32"),
            "{p:?}"
        );
    }

    #[test]
    fn two_sends_have_one_hash_only_when_their_meaning_is_the_same() {
        let hash = |v: Value| send(v).unwrap().body_sha256;
        let a = hash(
            json!({"to": "Texi", "signal_type": "TaskAssigned", "payload": {"summary": "a"}, "idempotency_key": "1"}),
        );
        assert_eq!(
            a,
            hash(
                json!({"to": "texi", "signal_type": "TaskAssigned", "payload": {"summary": "a"}, "category": "TASK", "idempotency_key": "2"})
            )
        );
        assert_ne!(
            a,
            hash(json!({"to": "Texi", "signal_type": "TaskAssigned", "payload": {"summary": "b"}}))
        );
    }
}
