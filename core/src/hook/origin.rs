//! Where a prompt came from, as the host's own transcript tells it: hooks are mostly not told.
//!
//! Another agent's message reaches a hook as a plain prompt. The transcript says whose it was, but
//! Claude Code writes it a moment later than a hook may wait.

use super::{Event, Host};
use serde_json::Value;

/// Lines of a transcript that are looked at, from its end.
const LINES_MAX: usize = 400;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A person gave it, at the keyboard or as an argument.
    Person,
    /// Another agent, a queue, a notification.
    PutIn,
    /// The transcript does not say, or not yet.
    Unknown,
}

/// What is known when the prompt comes: of Claude Code only if its newest prompt is this one
/// already.
pub fn now(tail: &str, event: &Event, prompt: &str) -> Origin {
    match event.host {
        Host::ClaudeCode => newest(tail)
            .and_then(|line| of_claude(&line, prompt))
            .unwrap_or(Origin::Unknown),
        Host::Codex => of_turn(tail, event.turn.as_deref()),
        // Nobody but the person in front of them prompts these.
        _ => Origin::Person,
    }
}

/// What is known later, from what was written since the prompt.
pub fn later(since: &str, event: &Event, prompt: &str) -> Origin {
    match event.host {
        Host::ClaudeCode => prompts(since)
            .find_map(|line| of_claude(&line, prompt))
            .unwrap_or(Origin::Unknown),
        Host::Codex => of_turn(since, event.turn.as_deref()),
        _ => Origin::Person,
    }
}

/// The lines that are prompts, newest first.
fn prompts(tail: &str) -> impl Iterator<Item = Value> {
    tail.lines()
        .rev()
        .take(LINES_MAX)
        .filter(|line| line.contains("\"user\"") || line.contains("queued_command"))
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| {
            line["type"] == "user" && said(line).is_some()
                || line["attachment"]["type"] == "queued_command"
        })
}

fn newest(tail: &str) -> Option<Value> {
    prompts(tail).next()
}

/// What a line of Claude Code's transcript has the user say; nothing for a tool's result.
fn said(line: &Value) -> Option<String> {
    if let Some(queued) = line["attachment"]["prompt"].as_str() {
        return Some(queued.to_owned());
    }
    match &line["message"]["content"] {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) if parts.iter().all(|p| p["type"] != "tool_result") => {
            let texts = parts.iter().filter_map(|p| p["text"].as_str());
            Some(texts.collect::<Vec<_>>().join("\n"))
        }
        _ => None,
    }
}

/// Whose words a line is, if it is this prompt or something wrapped around it.
fn of_claude(line: &Value, prompt: &str) -> Option<Origin> {
    let (text, prompt) = (said(line)?, prompt.trim());
    let kind = line["origin"]["kind"]
        .as_str()
        .or_else(|| line["attachment"]["origin"]["kind"].as_str());
    if text.trim() != prompt {
        // The host puts words of its own around another agent's message.
        let wrapped = kind.is_some_and(|kind| kind != "human") && text.contains(prompt);
        return wrapped.then_some(Origin::PutIn);
    }
    let source = line["promptSource"].as_str();
    Some(match kind {
        Some("human") => Origin::Person,
        Some(_) => Origin::PutIn,
        None if line["isMeta"] == true => Origin::PutIn,
        None => match source {
            None | Some("typed" | "queued" | "sdk") => Origin::Person,
            Some(_) => Origin::PutIn,
        },
    })
}

/// Codex writes down what began a turn before it asks its hooks.
fn of_turn(tail: &str, turn: Option<&str>) -> Origin {
    let Some(turn) = turn else {
        return Origin::Unknown;
    };
    let begun = tail
        .lines()
        .rev()
        .filter(|line| line.contains("task_started") && line.contains(turn))
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|line| line["payload"].clone())
        .find(|payload| payload["type"] == "task_started" && payload["turn_id"] == turn);
    match begun.map(|payload| payload["turn_attribution"]["turn_trigger"].clone()) {
        None => Origin::Unknown,
        Some(Value::String(by)) if by == "user" || by == "exec" => Origin::Person,
        Some(_) => Origin::PutIn,
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    fn claude() -> Event {
        let json = json!({"hook_event_name": "UserPromptSubmit", "prompt": "x"}).to_string();
        parse(Some(Host::ClaudeCode), json.as_bytes()).unwrap()
    }

    fn tail(lines: &[Value]) -> String {
        lines.iter().map(|l| format!("{l}\n")).collect()
    }

    #[test]
    fn claude_code_says_of_each_prompt_whose_it_was() {
        let typed = json!({"type": "user", "origin": {"kind": "human"}, "promptSource": "typed", "turnOrigin": "human", "message": {"role": "user", "content": "stop, wrong file"}});
        let program = json!({"type": "user", "promptSource": "sdk", "turnOrigin": "sdk", "message": {"content": [{"type": "text", "text": "stop, wrong file"}]}});
        let old = json!({"type": "user", "message": {"content": "stop, wrong file"}});
        let peer = json!({"type": "user", "isMeta": true, "origin": {"kind": "peer", "from": "x"}, "promptSource": "system", "turnOrigin": "peer",
            "message": {"content": "Another Claude session sent a message:\nstop, wrong file\n\nThis came from another Claude session"}});
        let raw_peer = json!({"type": "user", "origin": {"kind": "peer"}, "message": {"content": "stop, wrong file"}});
        let busy = json!({"type": "attachment", "attachment": {"type": "queued_command", "prompt": "stop, wrong file", "origin": {"kind": "human"}}});
        let rung = json!({"type": "attachment", "attachment": {"type": "queued_command", "prompt": "stop, wrong file", "origin": {"kind": "peer"}, "isMeta": true}});
        let result = json!({"type": "user", "message": {"content": [{"type": "tool_result", "content": "stop, wrong file"}]}});
        let waits = json!({"type": "queue-operation", "operation": "enqueue", "content": "stop, wrong file"});
        let before =
            json!({"type": "user", "origin": {"kind": "human"}, "message": {"content": "begin"}});
        for (what, lines, expected) in [
            ("typed", vec![&before, &typed, &result], Origin::Person),
            ("by a program", vec![&program], Origin::Person),
            ("an older version", vec![&old], Origin::Person),
            ("typed while busy", vec![&busy], Origin::Person),
            ("a peer's", vec![&before, &peer], Origin::PutIn),
            ("a peer's, bare", vec![&raw_peer], Origin::PutIn),
            ("a peer's while busy", vec![&rung], Origin::PutIn),
            ("only queued", vec![&before, &waits], Origin::Unknown),
            ("a tool's result", vec![&result], Origin::Unknown),
            ("nothing", vec![], Origin::Unknown),
        ] {
            let lines: Vec<Value> = lines.into_iter().cloned().collect();
            let lines = tail(&lines);
            let prompt = "stop, wrong file ";
            assert_eq!(later(&lines, &claude(), prompt), expected, "{what}");
            assert_eq!(now(&lines, &claude(), prompt), expected, "{what}");
        }
        // What was typed once says nothing about who says it now.
        let again = tail(&[typed, before]);
        assert_eq!(now(&again, &claude(), "stop, wrong file"), Origin::Unknown);
    }

    #[test]
    fn codex_says_of_each_turn_what_began_it() {
        let mut event = claude();
        event.host = Host::Codex;
        event.turn = Some("t1".into());
        let turn = |id: &str, by: Value| json!({"type": "event_msg", "payload": {"type": "task_started", "turn_id": id, "turn_attribution": {"turn_trigger": by}}});
        for (by, expected) in [
            (json!("user"), Origin::Person),
            (json!("exec"), Origin::Person),
            (json!("queue"), Origin::PutIn),
            (Value::Null, Origin::PutIn),
        ] {
            let lines = tail(&[turn("t0", json!("user")), turn("t1", by.clone())]);
            assert_eq!(now(&lines, &event, "x"), expected, "{by}");
        }
        let other = tail(&[turn("t0", json!("user"))]);
        assert_eq!(now(&other, &event, "x"), Origin::Unknown);
        event.turn = None;
        assert_eq!(now(&other, &event, "x"), Origin::Unknown);
    }

    #[test]
    fn a_torn_or_foreign_transcript_says_nothing() {
        for text in [
            "",
            "{",
            "\u{0}\u{1}",
            "{\"type\":\"user\"",
            "[1,2]\n\"user\"",
        ] {
            assert_eq!(now(text, &claude(), "x"), Origin::Unknown, "{text}");
            assert_eq!(later(text, &claude(), "x"), Origin::Unknown, "{text}");
        }
    }
}
