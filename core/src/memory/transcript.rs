//! Transcripts of agent hosts: which lines are the operator's own words, and what they may have
//! been.
//!
//! Nothing here is certain. What is found is offered for review with low
//! confidence; bells, tool output and what a host puts in by itself are left out.

use crate::bell;
use crate::limits::HOOK_PROMPT_CHARS_MAX;
use crate::memory::operator::{Class, is_routine};
use crate::memory::question::patterns;
use regex::Regex;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::LazyLock;
use uuid::Uuid;

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
    [
        (&TURNS, Class::DirectionPivot),
        (&CORRECTS, Class::Correction),
        (&CONFIRMS, Class::Confirmation),
    ]
    .into_iter()
    .find(|(p, _)| p.is_match(prompt))
    .map(|(_, class)| class)
}

/// Whether a file's line is one of a host's transcript.
pub fn is_line(line: &Value) -> bool {
    line.get("payload").is_some_and(Value::is_object) && line.get("type").is_some()
        || line.get("sessionId").is_some() && line.get("type").is_some()
}

/// Words of the operator, with their time and session.
struct Prompt<'a> {
    text: String,
    at: &'a str,
    session: Option<&'a str>,
    surface: &'static str,
}

/// The rows that a transcript offers: line, id, and an operator input of low confidence.
pub fn rows(lines: &[(u64, Value)], identity: &str) -> Vec<(u64, String, Value)> {
    let codex = Codex::of(lines);
    let mut rows = Vec::new();
    for (number, line) in lines {
        let prompt = if line.get("payload").is_some() {
            codex.prompt(line)
        } else {
            of_claude(line)
        };
        let Some(prompt) = prompt.filter(|p| is_typed(&p.text)) else {
            continue;
        };
        let Some(class) = guess(&prompt.text) else {
            continue;
        };
        let id = line["uuid"].as_str().map_or_else(
            || format!("{}:{number}", prompt.session.unwrap_or("line")),
            str::to_owned,
        );
        let row = json!({"id": id, "kind": "operator_input", "identity": identity, "surface": prompt.surface, "created_at": prompt.at, "session": prompt.session,
            "class": class.name(), "prompt_text": prompt.text.trim(), "confidence": "low"});
        rows.push((*number, id, row));
    }
    rows
}

/// Claude Code says of every turn where it came from; before it did, only its own insertions were
/// marked.
fn of_claude(line: &Value) -> Option<Prompt<'_>> {
    let put_in = [
        "isMeta",
        "isSidechain",
        "isCompactSummary",
        "isVisibleInTranscriptOnly",
    ]
    .iter()
    .any(|flag| line[*flag] == true);
    if put_in {
        return None;
    }
    let text = match line["type"].as_str()? {
        "user" => claude_turn(line)?,
        // Typed while a tool ran: the model is told of it, and there is no turn of its own.
        "attachment"
            if line["attachment"]["type"] == "queued_command"
                && line["attachment"]["origin"]["kind"] == "human" =>
        {
            line["attachment"]["prompt"].as_str()?.to_owned()
        }
        _ => return None,
    };
    Some(Prompt {
        text,
        at: line["timestamp"].as_str()?,
        session: line["sessionId"].as_str(),
        surface: "claude_code",
    })
}

fn claude_turn(line: &Value) -> Option<String> {
    let content = &line["message"]["content"];
    let has_result = content
        .as_array()
        .is_some_and(|parts| parts.iter().any(|p| p["type"] == "tool_result"));
    if has_result || !line["toolUseResult"].is_null() {
        // Only what the operator typed into a dialog of the tool.
        return line["userFeedback"]
            .as_str()
            .map(str::to_owned)
            .or_else(|| answered(&line["toolUseResult"]));
    }
    let (origin, source) = (
        line["origin"]["kind"].as_str(),
        line["promptSource"].as_str(),
    );
    // What a program sent may claim to be a person's; its source says otherwise.
    let by_a_person = match origin {
        Some(kind) => kind == "human" && matches!(source, None | Some("typed" | "queued")),
        None => source.is_none() && line["turnOrigin"].is_null(),
    };
    if !by_a_person {
        return None;
    }
    match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => Some(
            parts
                .iter()
                .filter(|p| p["type"] == "text")
                .filter_map(|p| p["text"].as_str())
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        _ => None,
    }
}

/// What was typed in answer to the agent's question, and not picked from its list.
fn answered(result: &Value) -> Option<String> {
    let options = result["questions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|q| q["options"].as_array())
        .flatten();
    let listed: Vec<&str> = options.filter_map(|o| o["label"].as_str()).collect();
    let typed: Vec<&str> = result["answers"]
        .as_object()?
        .values()
        .filter_map(Value::as_str)
        .filter(|a| !listed.contains(a))
        .collect();
    (!typed.is_empty()).then(|| typed.join("\n"))
}

/// What the lines of a Codex transcript say of each other.
struct Codex<'a> {
    session: Option<&'a str>,
    /// The thread is the operator's own, not one of an agent or of another program.
    is_theirs: bool,
    /// Turns that somebody at the keyboard began.
    begun_by_hand: HashSet<&'a str>,
    /// How this version writes prompts down: newer ones as completed items, older ones as
    /// messages, the oldest only as what the model was sent.
    items: bool,
    messages: bool,
}

impl<'a> Codex<'a> {
    fn of(lines: &'a [(u64, Value)]) -> Self {
        let payloads = |kind: &'static str| {
            lines
                .iter()
                .map(|(_, l)| &l["payload"])
                .filter(move |p| p["type"] == kind)
        };
        let meta = lines
            .iter()
            .find(|(_, l)| l["type"] == "session_meta")
            .map(|(_, l)| &l["payload"]);
        let by_hand = |p: &&Value| {
            p["turn_attribution"]["turn_trigger"] == "user"
                && p["turn_attribution"]["parent_turn_id"].is_null()
        };
        Self {
            session: meta.and_then(|m| m["id"].as_str()),
            is_theirs: meta.is_none_or(|m| {
                !m["source"].is_object() && m["thread_source"].as_str().is_none_or(|s| s == "user")
            }),
            begun_by_hand: payloads("task_started")
                .filter(by_hand)
                .filter_map(|p| p["turn_id"].as_str())
                .collect(),
            items: payloads("item_completed").next().is_some(),
            messages: payloads("user_message").next().is_some(),
        }
    }

    fn prompt(&self, line: &'a Value) -> Option<Prompt<'a>> {
        let payload = &line["payload"];
        let joined = |parts: &Value, kind: &str| {
            let texts = parts
                .as_array()?
                .iter()
                .filter(|p| p["type"] == kind)
                .filter_map(|p| p["text"].as_str());
            Some(texts.collect::<Vec<_>>().join("\n"))
        };
        let text = match (line["type"].as_str()?, payload["type"].as_str()?) {
            _ if !self.is_theirs => return None,
            ("event_msg", "item_completed") if self.by_hand(payload) => {
                joined(&payload["item"]["content"], "text")?
            }
            ("event_msg", "user_message") if !self.items => payload["message"].as_str()?.to_owned(),
            ("response_item", "message")
                if !self.items && !self.messages && payload["role"] == "user" =>
            {
                joined(&payload["content"], "input_text")?
            }
            _ => return None,
        };
        Some(Prompt {
            text,
            at: line["timestamp"].as_str()?,
            session: self.session,
            surface: "codex",
        })
    }

    /// A message from the keyboard has an id of the terminal's making, which is random; one that
    /// another program puts into the same turn has none, or one that counts time.
    fn by_hand(&self, payload: &Value) -> bool {
        let item = &payload["item"];
        let random = |id: &str| Uuid::parse_str(id).is_ok_and(|id| id.get_version_num() == 4);
        item["type"] == "UserMessage"
            && payload["turn_id"]
                .as_str()
                .is_some_and(|t| self.begun_by_hand.contains(t))
            && item["client_id"].as_str().is_some_and(random)
    }
}

/// Whether a person typed it: no bell, no command's echo, nothing a host wrapped in tags, nothing
/// pasted.
fn is_typed(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty()
        && !text.starts_with('<')
        && !text.starts_with('/')
        && !text.starts_with("[Request interrupted")
        && text.chars().count() <= HOOK_PROMPT_CHARS_MAX
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
            (
                "forget the dashboard, do the cli first",
                Some(Class::DirectionPivot),
            ),
            ("ok", None),
            ("add a button to the form", None),
        ] {
            assert_eq!(guess(prompt), class, "{prompt}");
        }
    }

    fn found(lines: &[Value]) -> Vec<String> {
        let lines: Vec<(u64, Value)> = lines
            .iter()
            .cloned()
            .enumerate()
            .map(|(i, l)| (i as u64 + 1, l))
            .collect();
        assert!(lines.iter().all(|(_, l)| is_line(l)));
        rows(&lines, "Mira")
            .into_iter()
            .map(|(line, id, row)| {
                format!(
                    "{line} {id} {} {}",
                    row["class"].as_str().unwrap(),
                    row["prompt_text"].as_str().unwrap()
                )
            })
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
            line(
                "c",
                json!([{"type": "tool_result", "content": "no, wrong"}]),
            ),
            line(
                "d",
                json!(
                    "Signal from Donna: TaskAssigned. Use prism_signals_pending to read; prism_signal to reply if needed."
                ),
            ),
            line("e", json!("<command-name>/clear</command-name> no, wrong")),
            line("f", json!("ok")),
            meta,
            result,
            json!({"type": "assistant", "sessionId": "s1", "message": {"content": "no, that's wrong"}}),
        ];
        assert_eq!(
            found(&lines),
            [
                "1 a correction no, not the header",
                "2 b confirmation it works now"
            ]
        );
    }

    #[test]
    fn where_claude_code_says_who_spoke_it_is_believed_only_if_the_source_agrees() {
        let line = |uuid: &str, more: Value| {
            let mut line = json!({"type": "user", "uuid": uuid, "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "message": {"role": "user", "content": "no, not blue"}});
            line.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            line
        };
        let lines = [
            line(
                "typed",
                json!({"origin": {"kind": "human"}, "promptSource": "typed", "turnOrigin": "human"}),
            ),
            line(
                "queued",
                json!({"origin": {"kind": "human"}, "promptSource": "queued", "turnOrigin": "human"}),
            ),
            line(
                "program",
                json!({"promptSource": "sdk", "turnOrigin": "sdk"}),
            ),
            line(
                "claims",
                json!({"origin": {"kind": "human"}, "promptSource": "sdk", "turnOrigin": "human"}),
            ),
            line(
                "peer",
                json!({"origin": {"kind": "peer"}, "promptSource": "system", "turnOrigin": "peer"}),
            ),
            line(
                "job",
                json!({"origin": {"kind": "task-notification"}, "promptSource": "system", "turnOrigin": "task_notification"}),
            ),
            line("output", json!({"turnOrigin": "human"})),
            line(
                "dialog",
                json!({"toolUseResult": "Error", "userFeedback": "no, green in that file", "holdsPersonsWords": true}),
            ),
            line(
                "picked",
                json!({"toolUseResult": {"questions": [{"options": [{"label": "no, red"}]}], "answers": {"which?": "no, red"}}}),
            ),
            line(
                "answered",
                json!({"toolUseResult": {"questions": [{"options": [{"label": "red"}]}], "answers": {"which?": "no, teal"}}}),
            ),
            line(
                "agents",
                json!({"isSidechain": true, "origin": {"kind": "human"}, "promptSource": "typed"}),
            ),
            json!({"type": "attachment", "uuid": "busy", "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "attachment": {"type": "queued_command", "prompt": "stop, wrong file", "origin": {"kind": "human"}}}),
            json!({"type": "attachment", "uuid": "rung", "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "attachment": {"type": "queued_command", "prompt": "stop, wrong file", "origin": {"kind": "peer"}, "isMeta": true}}),
            json!({"type": "queue-operation", "sessionId": "s1", "timestamp": "2026-03-01T10:00:00Z", "operation": "enqueue", "content": "no, not blue"}),
        ];
        let ids: Vec<String> = found(&lines)
            .iter()
            .map(|l| l.split(' ').nth(1).unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["typed", "queued", "dialog", "answered", "busy"]);
    }

    #[test]
    fn a_prompt_that_codex_wrote_down_twice_is_offered_once() {
        let event = |text: &str| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "event_msg", "payload": {"type": "user_message", "message": text}});
        let item = |text: &str| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}});
        let meta = json!({"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta", "payload": {"id": "th1", "type": "x"}});
        assert_eq!(
            found(&[
                meta.clone(),
                item("stop, wrong file"),
                event("stop, wrong file")
            ]),
            ["3 th1:3 correction stop, wrong file"]
        );
        assert_eq!(
            found(&[
                meta,
                item("<environment_context>no</environment_context>"),
                item("stop, wrong file")
            ]),
            ["3 th1:3 correction stop, wrong file"]
        );
    }

    #[test]
    fn only_what_was_typed_into_codex_is_offered_not_what_rang_steered_or_briefed() {
        const RANDOM: &str = "c3034ab2-4d95-4f63-9940-f39ea12eaf5b";
        let meta = |source: &str| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "session_meta", "payload": {"id": "th1", "source": "cli", "thread_source": source}});
        let turn = |id: &str, trigger: Value| json!({"timestamp": "2026-03-01T10:00:00Z", "type": "event_msg", "payload": {"type": "task_started", "turn_id": id, "turn_attribution": {"turn_trigger": trigger, "parent_turn_id": null}}});
        let said = |turn: &str, client: Value| {
            json!({"timestamp": "2026-03-01T10:00:00Z", "type": "event_msg", "payload": {"type": "item_completed", "turn_id": turn,
                "item": {"type": "UserMessage", "client_id": client, "content": [{"type": "text", "text": "stop, wrong file"}]}}})
        };
        let twin = json!({"timestamp": "2026-03-01T10:00:00Z", "type": "response_item", "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "stop, wrong file"}]}});
        let typed = [
            meta("user"),
            turn("t1", json!("user")),
            twin,
            said("t1", json!(RANDOM)),
        ];
        assert_eq!(found(&typed), ["4 th1:4 correction stop, wrong file"]);
        for (what, lines) in [
            (
                "a queue",
                [
                    meta("user"),
                    turn("t1", json!("queue")),
                    said("t1", json!("01a1e261-0e72-7ad3-a9ef-1d8a8f2ea44d")),
                ],
            ),
            (
                "a script",
                [
                    meta("user"),
                    turn("t1", json!("exec")),
                    said("t1", json!(RANDOM)),
                ],
            ),
            (
                "a bell steered into the operator's turn",
                [
                    meta("user"),
                    turn("t1", json!("user")),
                    said("t1", Value::Null),
                ],
            ),
            (
                "another program",
                [
                    meta("user"),
                    turn("t1", Value::Null),
                    said("t1", Value::Null),
                ],
            ),
            (
                "an agent's brief",
                [
                    meta("subagent"),
                    turn("t1", json!("user")),
                    said("t1", json!(RANDOM)),
                ],
            ),
        ] {
            assert_eq!(found(&lines), Vec::<String>::new(), "{what}");
        }
    }
}
