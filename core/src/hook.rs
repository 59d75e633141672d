//! What the hosts' hooks say and are told: one event, whatever host it came from, and the answer in
//! the shape that the host takes.
//!
//! Hosts give their hooks JSON of their own. Here it becomes one event; what nobody knows becomes
//! none, and nothing is said about it.

pub mod find;
pub mod hold;
pub mod left;
pub mod opening;
pub mod origin;
pub mod waits;
pub mod words;

use crate::limits::HOOK_PROMPT_CHARS_MAX;
use crate::presence::Surface;
use crate::signal::names;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

names! {
    /// The hosts whose hooks are understood, as `prism hook HOST` and `prism connect` name them.
    Host {
        ClaudeCode = "claude-code",
        Codex = "codex",
        Cursor = "cursor",
        Vscode = "vscode",
        Gemini = "gemini",
        Opencode = "opencode",
    }
}

names! {
    /// What a session waits for its human with.
    Waiting { Permission = "permission", Question = "question" }
}

impl Host {
    /// The surface that sessions of this host register.
    pub const fn surface(self) -> Surface {
        match self {
            Self::ClaudeCode => Surface::ClaudeCode,
            Self::Codex => Surface::Codex,
            Self::Cursor => Surface::Cursor,
            Self::Vscode => Surface::Vscode,
            Self::Gemini => Surface::GeminiCli,
            Self::Opencode => Surface::Opencode,
        }
    }

    pub fn of_surface(surface: Surface) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|host| host.surface() == surface)
    }

    /// By the name that people type, or that of its surface.
    pub fn named(name: &str) -> Option<Self> {
        let folded = name.to_ascii_lowercase().replace('_', "-");
        Self::ALL
            .iter()
            .copied()
            .find(|host| host.name() == folded || host.surface().name().replace('_', "-") == folded)
    }
}

/// What happened in the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    SessionStart {
        /// Its context was emptied or folded, and the session goes on.
        again: bool,
    },
    Prompt {
        /// The beginning of it; longer ones are pasted material.
        text: String,
        /// The host says that a program put it in.
        injected: bool,
    },
    ToolDone,
    /// The session waits for its human.
    Waits {
        r#for: Waiting,
    },
    /// Whatever it waited for was given or refused, or it would not have come to this.
    GoesOn,
    TurnEnd {
        /// A hook has held this turn already.
        held: bool,
    },
    SessionEnd {
        reason: String,
    },
    /// Known to come, and nothing is done about it.
    Heard,
}

/// One call of a hook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    pub host: Host,
    /// The command named the host; otherwise it was guessed from what it wrote.
    pub named: bool,
    /// As the host calls it; the answer names it.
    pub name: String,
    /// The host's own id of the session, conversation or thread.
    pub session: Option<String>,
    pub cwd: Option<String>,
    pub transcript: Option<String>,
    /// The turn, where the host numbers them.
    pub turn: Option<String>,
    /// It happened in an agent that the session's agent started.
    pub subagent: bool,
    /// That agent, where the host says which.
    #[serde(default)]
    pub agent: Option<String>,
    #[serde(flatten)]
    pub what: What,
}

/// The fields that any host gives, under whatever name. Everything else is passed over unread.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    hook_event_name: Option<String>,
    /// So VS Code wrote it at first.
    #[serde(rename = "hookEventName")]
    camel_event: Option<String>,
    session_id: Option<String>,
    #[serde(rename = "sessionId")]
    camel_session: Option<String>,
    conversation_id: Option<String>,
    cursor_version: Option<Value>,
    workspace_roots: Option<Vec<String>>,
    transcript_path: Option<String>,
    cwd: Option<String>,
    turn_id: Option<String>,
    agent_id: Option<String>,
    source: Option<String>,
    trigger: Option<String>,
    prompt: Option<String>,
    tool_name: Option<String>,
    notification_type: Option<String>,
    stop_hook_active: Option<bool>,
    loop_count: Option<u64>,
    status: Option<String>,
    reason: Option<String>,
}

/// Tools with which an agent asks its human something.
const ASKING_TOOLS: [&str; 2] = ["AskUserQuestion", "ExitPlanMode"];

/// Reads what a host wrote to its hook; none for whatever is no event of a known host.
pub fn parse(named: Option<Host>, json: &[u8]) -> Option<Event> {
    let given: Given = serde_json::from_slice(json).ok()?;
    let name = given.hook_event_name.clone();
    let name = name.or_else(|| given.camel_event.clone())?;
    let host = named.unwrap_or_else(|| guess_host(&name, &given));
    let what = what_happened(host, &name, &given)?;
    let agent = given.agent_id.clone().filter(|id| !id.is_empty());
    let subagent = agent.is_some() || name.starts_with("Subagent");
    let first_root = || given.workspace_roots.as_ref()?.first().cloned();
    let ids = [
        &given.session_id,
        &given.camel_session,
        &given.conversation_id,
    ];
    Some(Event {
        host,
        named: named.is_some(),
        session: ids.into_iter().flatten().find(|id| !id.is_empty()).cloned(),
        cwd: given
            .cwd
            .clone()
            .or_else(first_root)
            .filter(|c| !c.is_empty()),
        transcript: given.transcript_path,
        turn: given.turn_id,
        subagent,
        agent,
        what,
        name,
    })
}

/// Which host writes so, when the command does not say.
fn guess_host(event: &str, given: &Given) -> Host {
    let begins_small = event.starts_with(|c: char| c.is_ascii_lowercase());
    let of_gemini = [
        "BeforeAgent",
        "AfterAgent",
        "BeforeTool",
        "AfterTool",
        "PreCompress",
    ];
    if given.cursor_version.is_some() || given.conversation_id.is_some() || begins_small {
        Host::Cursor
    } else if of_gemini.contains(&event) {
        Host::Gemini
    } else if given.turn_id.is_some() {
        Host::Codex
    } else if given.camel_event.is_some() {
        Host::Vscode
    } else {
        Host::ClaudeCode
    }
}

fn what_happened(host: Host, name: &str, given: &Given) -> Option<What> {
    let said = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(match name {
        "SessionStart" | "sessionStart" => {
            let source = given.source.as_deref().or(given.trigger.as_deref());
            What::SessionStart {
                again: matches!(source, Some("clear" | "compact")),
            }
        }
        "UserPromptSubmit" | "BeforeAgent" | "beforeSubmitPrompt" => What::Prompt {
            text: given
                .prompt
                .as_deref()?
                .chars()
                .take(HOOK_PROMPT_CHARS_MAX + 1)
                .collect(),
            // Left out by most hosts. What was given on the command line is a person's, too.
            injected: given
                .source
                .as_deref()
                .is_some_and(|source| !matches!(source, "user" | "sdk")),
        },
        "PreToolUse" if is_asking(given) => What::Waits {
            r#for: Waiting::Question,
        },
        "PostToolUse" | "PostToolUseFailure" | "AfterTool" | "postToolUse"
        | "postToolUseFailure" => What::ToolDone,
        "PermissionRequest" if is_asking(given) => What::Waits {
            r#for: Waiting::Question,
        },
        "PermissionRequest" => What::Waits {
            r#for: Waiting::Permission,
        },
        "PermissionDenied" | "ElicitationResult" | "Interrupt" | "StopFailure" => What::GoesOn,
        "Elicitation" => What::Waits {
            r#for: Waiting::Question,
        },
        "Notification" => notified(given.notification_type.as_deref()),
        "Stop" | "AfterAgent" | "stop" => What::TurnEnd {
            held: given.stop_hook_active == Some(true)
                || given.loop_count.is_some_and(|n| n > 0)
                // A turn that broke off is not to be taken up again by us.
                || given.status.as_deref().is_some_and(|s| s != "completed"),
        },
        "SessionEnd" | "sessionEnd" => What::SessionEnd {
            reason: said(&given.reason),
        },
        _ if host == Host::Opencode => return None,
        // It comes before the host asks for the permission that the tool may need.
        "PreToolUse" | "BeforeTool" | "preToolUse" | "SubagentStop" => What::GoesOn,
        "PreCompact" | "PostCompact" | "PreCompress" | "SubagentStart" | "BeforeModel"
        | "AfterModel" => What::Heard,
        _ => return None,
    })
}

fn is_asking(given: &Given) -> bool {
    given
        .tool_name
        .as_deref()
        .is_some_and(|tool| ASKING_TOOLS.contains(&tool))
}

/// What a host's notification says of the session. A session that is only idle waits for nothing
/// in particular.
fn notified(kind: Option<&str>) -> What {
    match kind {
        Some("permission_prompt" | "worker_permission_prompt" | "ToolPermission") => What::Waits {
            r#for: Waiting::Permission,
        },
        Some("elicitation_dialog" | "agent_needs_input") => What::Waits {
            r#for: Waiting::Question,
        },
        Some("elicitation_response" | "elicitation_complete") => What::GoesOn,
        _ => What::Heard,
    }
}

/// What is to be said to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Say {
    /// Beside what it is doing.
    Context(String),
    /// Instead of ending its turn.
    Hold(String),
}

impl Event {
    /// Whether the host shows an agent what its hook says at this moment.
    pub fn takes_context(&self) -> bool {
        match (&self.what, self.host) {
            // Reported to be dropped there more often than not.
            (What::Prompt { .. }, Host::Cursor) => false,
            (What::SessionStart { .. } | What::Prompt { .. } | What::ToolDone, _) => {
                !self.name.ends_with("Failure") && !self.subagent
            }
            _ => false,
        }
    }

    pub fn takes_hold(&self) -> bool {
        matches!(self.what, What::TurnEnd { held: false }) && !self.subagent
    }

    /// The answer as the host reads it from its hook's standard output.
    pub fn answer(&self, say: &Say) -> Value {
        match (say, self.host) {
            (Say::Context(text), Host::Cursor) => json!({ "additional_context": text }),
            (Say::Context(text), _) => json!({"hookSpecificOutput": {
                "hookEventName": self.name, "additionalContext": text,
            }}),
            (Say::Hold(reason), Host::Cursor) => json!({ "followup_message": reason }),
            (Say::Hold(reason), Host::Gemini) => json!({"decision": "deny", "reason": reason}),
            (Say::Hold(reason), Host::Vscode) => json!({"hookSpecificOutput": {
                "hookEventName": self.name, "decision": "block", "reason": reason,
            }}),
            (Say::Hold(reason), _) => json!({"decision": "block", "reason": reason}),
        }
    }
}

/// What the hook process asks its session's shim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Asked {
    pub event: Event,
    /// How long the answer may take, in milliseconds.
    pub within_ms: u64,
}

/// What the shim answers when there is something to say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// For the hook's standard output.
    pub print: Value,
    /// To be told back once that was written.
    pub receipt: u64,
}

/// What the hook tells its shim once the answer was written.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Done {
    pub receipt: u64,
}

/// What a waiter is to wake its session with, and what it tells its shim before it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rings {
    pub signal_id: Uuid,
    /// Only in the shim's answer.
    #[serde(default)]
    pub sentence: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(json: Value) -> Option<Event> {
        parse(None, json.to_string().as_bytes())
    }

    fn waits(r#for: Waiting) -> What {
        What::Waits { r#for }
    }

    fn prompt(text: &str, injected: bool) -> What {
        let text = text.to_owned();
        What::Prompt { text, injected }
    }

    #[test]
    fn the_events_of_each_host_are_understood() {
        let claude = |name: &str, more: Value| {
            let mut json = json!({"session_id": "s1", "transcript_path": "/t.jsonl", "cwd": "/repo", "hook_event_name": name});
            json.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json
        };
        let codex = json!({"turn_id": "t1", "model": "m", "permission_mode": "default"});
        let mut codex_prompt = codex.clone();
        codex_prompt["prompt"] = json!("go");
        let cursor = |name: &str, more: Value| {
            let mut json = json!({"conversation_id": "c1", "generation_id": "g", "cursor_version": "3.7", "workspace_roots": ["/repo"], "hook_event_name": name});
            json.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json
        };
        let start = What::SessionStart { again: false };
        let ends = |held: bool| What::TurnEnd { held };
        for (json, host, session, what) in [
            (
                claude("SessionStart", json!({"source": "startup"})),
                Host::ClaudeCode,
                "s1",
                start.clone(),
            ),
            (
                claude("SessionStart", json!({"source": "compact"})),
                Host::ClaudeCode,
                "s1",
                What::SessionStart { again: true },
            ),
            (
                claude(
                    "UserPromptSubmit",
                    json!({"prompt": "hi", "permission_mode": "default"}),
                ),
                Host::ClaudeCode,
                "s1",
                prompt("hi", false),
            ),
            (
                claude(
                    "UserPromptSubmit",
                    json!({"prompt": "hi", "source": "user"}),
                ),
                Host::ClaudeCode,
                "s1",
                prompt("hi", false),
            ),
            (
                claude(
                    "UserPromptSubmit",
                    json!({"prompt": "hi", "source": "system"}),
                ),
                Host::ClaudeCode,
                "s1",
                prompt("hi", true),
            ),
            (
                claude(
                    "PostToolUse",
                    json!({"tool_name": "Bash", "tool_input": {"x": [1]}, "tool_response": "y"}),
                ),
                Host::ClaudeCode,
                "s1",
                What::ToolDone,
            ),
            (
                claude(
                    "Notification",
                    json!({"message": "m", "notification_type": "permission_prompt"}),
                ),
                Host::ClaudeCode,
                "s1",
                waits(Waiting::Permission),
            ),
            (
                claude(
                    "Notification",
                    json!({"message": "m", "notification_type": "idle_prompt"}),
                ),
                Host::ClaudeCode,
                "s1",
                What::Heard,
            ),
            (
                claude("PermissionRequest", json!({"tool_name": "Bash"})),
                Host::ClaudeCode,
                "s1",
                waits(Waiting::Permission),
            ),
            (
                claude("PreToolUse", json!({"tool_name": "AskUserQuestion"})),
                Host::ClaudeCode,
                "s1",
                waits(Waiting::Question),
            ),
            (
                claude("Elicitation", json!({"mcp_server_name": "x"})),
                Host::ClaudeCode,
                "s1",
                waits(Waiting::Question),
            ),
            (
                claude("ElicitationResult", json!({})),
                Host::ClaudeCode,
                "s1",
                What::GoesOn,
            ),
            (
                claude("Stop", json!({"stop_hook_active": false})),
                Host::ClaudeCode,
                "s1",
                ends(false),
            ),
            (
                claude("Stop", json!({"stop_hook_active": true})),
                Host::ClaudeCode,
                "s1",
                ends(true),
            ),
            (
                claude("SessionEnd", json!({"reason": "clear"})),
                Host::ClaudeCode,
                "s1",
                What::SessionEnd {
                    reason: "clear".into(),
                },
            ),
            (
                claude("UserPromptSubmit", codex_prompt),
                Host::Codex,
                "s1",
                prompt("go", false),
            ),
            (
                claude("PostToolUse", codex.clone()),
                Host::Codex,
                "s1",
                What::ToolDone,
            ),
            (
                claude(
                    "BeforeAgent",
                    json!({"prompt": "go", "timestamp": "2026-01-01T00:00:00Z"}),
                ),
                Host::Gemini,
                "s1",
                prompt("go", false),
            ),
            (
                claude("AfterTool", json!({"tool_name": "x"})),
                Host::Gemini,
                "s1",
                What::ToolDone,
            ),
            (
                claude(
                    "AfterAgent",
                    json!({"prompt": "go", "prompt_response": "done", "stop_hook_active": false}),
                ),
                Host::Gemini,
                "s1",
                ends(false),
            ),
            (
                cursor("sessionStart", json!({"session_id": "c1"})),
                Host::Cursor,
                "c1",
                start.clone(),
            ),
            (
                cursor(
                    "beforeSubmitPrompt",
                    json!({"prompt": "go", "attachments": []}),
                ),
                Host::Cursor,
                "c1",
                prompt("go", false),
            ),
            (
                cursor("stop", json!({"status": "completed", "loop_count": 0})),
                Host::Cursor,
                "c1",
                ends(false),
            ),
            (
                cursor("stop", json!({"status": "completed", "loop_count": 1})),
                Host::Cursor,
                "c1",
                ends(true),
            ),
            (
                cursor("stop", json!({"status": "aborted", "loop_count": 0})),
                Host::Cursor,
                "c1",
                ends(true),
            ),
            (
                json!({"timestamp": "x", "cwd": "/repo", "sessionId": "v1", "hookEventName": "SessionStart", "source": "new"}),
                Host::Vscode,
                "v1",
                start,
            ),
        ] {
            let found = event(json.clone()).unwrap_or_else(|| panic!("{json}"));
            assert_eq!(
                (
                    found.host,
                    found.session.as_deref(),
                    found.cwd.as_deref(),
                    &found.what
                ),
                (host, Some(session), Some("/repo"), &what),
                "{json}"
            );
            let again: Event =
                serde_json::from_value(serde_json::to_value(&found).unwrap()).unwrap();
            assert_eq!(again, found, "what the hook tells its shim is the event");
        }
    }

    #[test]
    fn what_is_no_event_of_a_known_host_is_none() {
        for json in [
            "",
            "null",
            "[]",
            "{}",
            "{",
            "hello",
            r#"{"session_id":"s"}"#,
            r#"{"hook_event_name":7}"#,
            r#"{"hook_event_name":"FromTheFuture","session_id":"s"}"#,
            r#"{"hook_event_name":"UserPromptSubmit","session_id":"s"}"#,
            r#"{"hook_event_name":"UserPromptSubmit","prompt":["x"]}"#,
            "\u{feff}{\"hook_event_name\":\"Stop\"}",
        ] {
            assert_eq!(parse(None, json.as_bytes()), None, "{json}");
        }
        assert_eq!(parse(None, &[0xff, 0xfe, 0x00]), None);
    }

    #[test]
    fn a_prompt_is_told_only_so_far_and_a_subagent_is_known() {
        let long = "x".repeat(50_000);
        let found =
            event(json!({"hook_event_name": "UserPromptSubmit", "prompt": long, "agent_id": "a"}));
        let found = found.unwrap();
        assert!(found.subagent && !found.takes_context());
        let What::Prompt { text, .. } = found.what else {
            panic!()
        };
        assert_eq!(text.len(), HOOK_PROMPT_CHARS_MAX + 1);
    }

    #[test]
    fn each_host_is_answered_in_its_own_shape() {
        let at = |host: Host, name: &str, what: What| Event {
            host,
            named: true,
            name: name.into(),
            session: None,
            cwd: None,
            transcript: None,
            turn: None,
            subagent: false,
            agent: None,
            what,
        };
        let context = Say::Context("c".into());
        let hold = Say::Hold("r".into());
        let ends = What::TurnEnd { held: false };
        for (event, say, shape) in [
            (
                at(Host::ClaudeCode, "UserPromptSubmit", prompt("x", false)),
                &context,
                json!({"hookSpecificOutput": {"hookEventName": "UserPromptSubmit", "additionalContext": "c"}}),
            ),
            (
                at(Host::Codex, "PostToolUse", What::ToolDone),
                &context,
                json!({"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "c"}}),
            ),
            (
                at(Host::Gemini, "BeforeAgent", prompt("x", false)),
                &context,
                json!({"hookSpecificOutput": {"hookEventName": "BeforeAgent", "additionalContext": "c"}}),
            ),
            (
                at(
                    Host::Cursor,
                    "sessionStart",
                    What::SessionStart { again: false },
                ),
                &context,
                json!({"additional_context": "c"}),
            ),
            (
                at(Host::ClaudeCode, "Stop", ends.clone()),
                &hold,
                json!({"decision": "block", "reason": "r"}),
            ),
            (
                at(Host::Codex, "Stop", ends.clone()),
                &hold,
                json!({"decision": "block", "reason": "r"}),
            ),
            (
                at(Host::Vscode, "Stop", ends.clone()),
                &hold,
                json!({"hookSpecificOutput": {"hookEventName": "Stop", "decision": "block", "reason": "r"}}),
            ),
            (
                at(Host::Gemini, "AfterAgent", ends.clone()),
                &hold,
                json!({"decision": "deny", "reason": "r"}),
            ),
            (
                at(Host::Cursor, "stop", ends.clone()),
                &hold,
                json!({"followup_message": "r"}),
            ),
        ] {
            assert_eq!(event.answer(say), shape);
            assert!(event.takes_context() || event.takes_hold(), "{event:?}");
        }
        assert!(!at(Host::Cursor, "beforeSubmitPrompt", prompt("x", false)).takes_context());
        assert!(!at(Host::ClaudeCode, "Stop", What::TurnEnd { held: true }).takes_hold());
        assert!(!at(Host::ClaudeCode, "PostToolUseFailure", What::ToolDone).takes_context());
    }

    #[test]
    fn a_host_is_named_as_connect_or_as_its_surface() {
        for (name, host) in [
            ("claude-code", Some(Host::ClaudeCode)),
            ("claude_code", Some(Host::ClaudeCode)),
            ("Codex", Some(Host::Codex)),
            ("gemini", Some(Host::Gemini)),
            ("gemini_cli", Some(Host::Gemini)),
            ("emacs", None),
        ] {
            assert_eq!(Host::named(name), host, "{name}");
        }
    }
}
