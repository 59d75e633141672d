//! Transcripts of agent hosts: which lines are the operator's own words, and what they may have been.
//!
//! Nothing here is certain. What is found is offered for review with low
//! confidence; bells, tool output and what a host puts in by itself are left out.

use crate::bell;
use crate::memory::operator::{Class, is_routine};
use regex::Regex;
use serde_json::{Value, json};
use std::sync::LazyLock;

/// Prompts longer than this are pasted material, not the operator's words.
const PROMPT_CHARS_MAX: usize = 1_500;

macro_rules! patterns {
    ($($name:ident = $text:expr;)+) => { $(static $name: LazyLock<Regex> = LazyLock::new(|| Regex::new($text).unwrap_or_else(|e| unreachable!("{e}")));)+ };
}

patterns! {
    CORRECTS = r"(?i)^(no|nope|stop|wait|wrong|undo|revert|don't|do not)\b|\b(not what i|i said|i told you|that's (not|wrong)|thats (not|wrong)|wrong (file|place|layer|one|branch)|you (broke|forgot|missed|removed)|still (broken|wrong|not)|why did you|should(n't| not) have|put it back|undo (that|this|it)|never do)\b";
    CONFIRMS = r"(?i)^(perfect|exactly|great|excellent|brilliant|yes!|finally|love it|beautiful|awesome)\b|\b(that works|it works|works now|working now|looks (good|great|right)|that's it|thats it|that did it|well done|now it('s| is) right)\b";
    TURNS = r"(?i)\b(instead|change of plan|new plan|let's (not|rather|switch|go with|drop)|lets (not|rather|switch|go with|drop)|forget (about )?(that|this|it|the)|scrap (that|this|it|the)|rather than|switch to|different (approach|direction|way)|drop (that|this|the idea))\b";
}

/// What a prompt may have been, when it looks like any of it.
pub fn guess(prompt: &str) -> Option<Class> {
    if is_routine(prompt) {
        return None;
    }
    [(&TURNS, Class::DirectionPivot), (&CORRECTS, Class::Correction), (&CONFIRMS, Class::Confirmation)]
        .into_iter()
        .find(|(p, _)| p.is_match(prompt))
        .map(|(_, class)| class)
}

/// Whether a file's line is one of a host's transcript.
pub fn is_line(line: &Value) -> bool {
    line.get("payload").is_some_and(Value::is_object) && line.get("type").is_some() || line.get("sessionId").is_some() && line.get("type").is_some()
}

/// A prompt that the operator typed, with its time and session.
struct Prompt<'a> {
    text: String,
    at: &'a str,
    session: Option<&'a str>,
    surface: &'static str,
}

/// The rows that a transcript offers: line, id, and an operator input of low confidence.
pub fn rows(lines: &[(u64, Value)], identity: &str) -> Vec<(u64, String, Value)> {
    // Codex writes each prompt twice, as an event and as an item; the event is what was typed.
    let has_events = lines.iter().any(|(_, l)| l["type"] == "event_msg" && l["payload"]["type"] == "user_message");
    let codex_session = lines.iter().find(|(_, l)| l["type"] == "session_meta").and_then(|(_, l)| l["payload"]["id"].as_str());
    let mut rows = Vec::new();
    for (number, line) in lines {
        let prompt = if line.get("payload").is_some() { of_codex(line, has_events, codex_session) } else { of_claude(line) };
        let Some(prompt) = prompt.filter(|p| is_typed(&p.text)) else { continue };
        let Some(class) = guess(&prompt.text) else { continue };
        let id = line["uuid"].as_str().map_or_else(|| format!("{}:{number}", prompt.session.unwrap_or("line")), str::to_owned);
        let row = json!({"id": id, "kind": "operator_input", "identity": identity, "surface": prompt.surface, "created_at": prompt.at, "session": prompt.session,
            "class": class.name(), "prompt_text": prompt.text.trim(), "confidence": "low"});
        rows.push((*number, id, row));
    }
    rows
}

fn of_claude(line: &Value) -> Option<Prompt<'_>> {
    let put_in = ["isMeta", "isSidechain", "isCompactSummary", "isVisibleInTranscriptOnly"].iter().any(|flag| line[*flag] == true);
    if line["type"] != "user" || put_in || !line["toolUseResult"].is_null() {
        return None;
    }
    let content = &line["message"]["content"];
    let text = match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) if parts.iter().all(|p| p["type"] != "tool_result") => {
            parts.iter().filter(|p| p["type"] == "text").filter_map(|p| p["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    Some(Prompt { text, at: line["timestamp"].as_str()?, session: line["sessionId"].as_str(), surface: "claude_code" })
}

fn of_codex<'a>(line: &'a Value, has_events: bool, session: Option<&'a str>) -> Option<Prompt<'a>> {
    let payload = &line["payload"];
    let text = match (line["type"].as_str()?, payload["type"].as_str()?) {
        ("event_msg", "user_message") => payload["message"].as_str()?.to_owned(),
        ("response_item", "message") if !has_events && payload["role"] == "user" => {
            payload["content"].as_array()?.iter().filter(|p| p["type"] == "input_text").filter_map(|p| p["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        _ => return None,
    };
    Some(Prompt { text, at: line["timestamp"].as_str()?, session, surface: "codex" })
}

/// Whether a person typed it: no bell, no command's echo, nothing a host wrapped in tags, nothing pasted.
fn is_typed(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && !text.starts_with('<')
        && !text.starts_with('/')
        && !text.starts_with("[Request interrupted")
        && text.chars().count() <= PROMPT_CHARS_MAX
        && !bell::is_bell(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_guessed_by_how_it_speaks() {
        for (prompt, class) in [
            ("no, the other one", Some(Class::Correction)),
            ("that's not what i asked for", Some(Class::Correction)),
            ("you forgot the tests again", Some(Class::Correction)),
            ("perfect", Some(Class::Confirmation)),
            ("ok it works now, commit", Some(Class::Confirmation)),
            ("lets go with sqlite instead", Some(Class::DirectionPivot)),
            ("forget the dashboard, do the cli first", Some(Class::DirectionPivot)),
            ("ok", None),
            ("add a button to the form", None),
        ] {
            assert_eq!(guess(prompt), class, "{prompt}");
        }
    }

    fn found(lines: &[Value]) -> Vec<String> {
        let lines: Vec<(u64, Value)> = lines.iter().cloned().enumerate().map(|(i, l)| (i as u64 + 1, l)).collect();
        assert!(lines.iter().all(|(_, l)| is_line(l)));
        rows(&lines, "Mira")
            .into_iter()
            .map(|(line, id, row)| format!("{line} {id} {} {}", row["class"].as_str().unwrap(), row["prompt_text"].as_str().unwrap()))
            .collect()
    }

    #[test]
    fn only_what_the_operator_typed_into_claude_code_is_offered() {
        let line = |uuid: &str, content: Value| json!({"type": "user", "uuid": uuid, "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "message": {"role": "user", "content": content}});
        let mut meta = line("m", json!("no, wrong"));
        meta["isMeta"] = json!(true);
        let mut result = line("r", json!("no such file"));
        result["toolUseResult"] = json!({"stdout": "x"});
        let lines = [
            line("a", json!("no, not the header")),
            line("b", json!([{"type": "text", "text": "it works now"}])),
            line("c", json!([{"type": "tool_result", "content": "no, wrong"}])),
            line("d", json!("Signal from Donna: TaskAssigned. Use prism_signals_pending to read; prism_signal to reply if needed.")),
            line("e", json!("<command-name>/clear</command-name> no, wrong")),
            line("f", json!("ok")),
            meta,
            result,
            json!({"type": "assistant", "sessionId": "s1", "message": {"content": "no, that's wrong"}}),
        ];
        assert_eq!(found(&lines), ["1 a correction no, not the header", "2 b confirmation it works now"]);
    }

    #[test]
    fn a_prompt_that_codex_wrote_down_twice_is_offered_once() {
        let event = |text: &str| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "event_msg", "payload": {"type": "user_message", "message": text}});
        let item = |text: &str| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}});
        let meta = json!({"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta", "payload": {"id": "th1", "type": "x"}});
        assert_eq!(found(&[meta.clone(), item("stop, wrong file"), event("stop, wrong file")]), ["3 th1:3 correction stop, wrong file"]);
        assert_eq!(found(&[meta, item("<environment_context>no</environment_context>"), item("stop, wrong file")]), ["3 th1:3 correction stop, wrong file"]);
    }
}
