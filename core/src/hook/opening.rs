//! What a session is told by a hook at its start: who it is, what waits, what the operator said
//! lately, what is open; as much as fits.

use crate::api::SessionBrief;
use crate::limits::{HOOK_CORRECTIONS_MAX, HOOK_OPENING_CHARS_MAX};
use crate::ring::ByCategory;
use crate::signal::Category;
use crate::text::{clip, one_line};

/// Characters of each thing that is quoted.
const CORRECTION_CHARS_MAX: usize = 160;
const TODO_CHARS_MAX: usize = 70;
/// How many are named of each.
const TODOS_MAX: usize = 5;
const PEERS_MAX: usize = 6;

/// The text for a session; `again` when it has heard it before and its context was emptied.
pub fn opening(brief: &SessionBrief, again: bool) -> String {
    let last = match again {
        true => "semantic_recall finds what was learned; prism_wrap ends the session.",
        false => {
            "prism_start tells more; ask semantic_recall before you start work, and prism_wrap at the end."
        }
    };
    let mut parts = vec![who(brief), unread(brief.started.unread)];
    parts.extend(corrections(
        brief,
        if again { 2 } else { HOOK_CORRECTIONS_MAX },
    ));
    if !again {
        parts.extend(unwrapped(brief));
        parts.extend(todos(brief));
        parts.extend(peers(brief));
    }
    let mut said = String::new();
    let room = HOOK_OPENING_CHARS_MAX - last.chars().count();
    for part in parts {
        // What does not fit is left out whole: half a line says the wrong thing.
        if said.chars().count() + part.chars().count() < room {
            said.push_str(&part);
            said.push('\n');
        }
    }
    said + last
}

fn who(brief: &SessionBrief) -> String {
    let started = &brief.started;
    format!(
        "Prism: you are {} in project {}. Other agents and the operator reach you by signals.",
        one_line(&started.identity),
        one_line(&started.pid)
    )
}

fn unread(unread: ByCategory) -> String {
    let order = [
        Category::Blocker,
        Category::Ask,
        Category::Task,
        Category::Info,
    ];
    let counts: Vec<String> = order
        .into_iter()
        .filter(|c| unread.get(*c) > 0)
        .map(|c| format!("{} {c}", unread.get(c)))
        .collect();
    match counts.is_empty() {
        true => "Nothing is unread.".into(),
        false => format!(
            "Unread: {}. Call prism_signals_pending to read.",
            counts.join(", ")
        ),
    }
}

/// The operator's own words, one line each.
fn corrections(brief: &SessionBrief, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = brief
        .corrections
        .iter()
        .take(most)
        .map(|input| {
            let words = clip(&one_line(&input.prompt_text), CORRECTION_CHARS_MAX);
            let day = input.captured_at.to_string();
            format!("- {}: \"{words}\"", day.get(..10).unwrap_or_default())
        })
        .collect();
    if !lines.is_empty() {
        lines.insert(0, "The operator corrected, newest first:".into());
    }
    if brief.corrections_unreviewed > 0 {
        let n = brief.corrections_unreviewed;
        lines.push(format!(
            "{n} more captured {} not reviewed yet (semantic_recall finds them).",
            if n == 1 {
                "correction is"
            } else {
                "corrections are"
            }
        ));
    }
    lines
}

fn unwrapped(brief: &SessionBrief) -> Option<String> {
    let before = brief.started.unwrapped_session.as_ref()?;
    let day = before.last_delta_at.to_string();
    Some(format!(
        "Your last session ({}, {} written down) ended without prism_wrap: say with prism_checkpoint what came of it.",
        day.get(..10).unwrap_or_default(),
        before.deltas
    ))
}

/// Titles as whoever wrote them down put them: data, in quotes.
fn todos(brief: &SessionBrief) -> Option<String> {
    let open = &brief.started.open_todos;
    if open.is_empty() {
        return None;
    }
    let named: Vec<String> = open
        .iter()
        .take(TODOS_MAX)
        .map(|todo| {
            let title = clip(&one_line(&todo.title), TODO_CHARS_MAX);
            format!("#{} \"{title}\"", todo.number.unwrap_or_default())
        })
        .collect();
    let more = match open.len().saturating_sub(TODOS_MAX) {
        0 => String::new(),
        n => format!(", {n} more (prism_todo list)"),
    };
    Some(format!("Open todos: {}{more}.", named.join(", ")))
}

fn peers(brief: &SessionBrief) -> Option<String> {
    let mut names: Vec<String> = brief
        .started
        .peers
        .iter()
        .map(|p| one_line(&p.identity))
        .collect();
    names.sort();
    names.dedup();
    let more = names.len().saturating_sub(PEERS_MAX);
    names.truncate(PEERS_MAX);
    let more = match more {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    (!names.is_empty()).then(|| format!("Here now: {}{more}.", names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    const ID: &str = "3f36b796-0000-4000-8000-000000000000";

    fn brief(corrections: usize, todos: usize, long: usize) -> SessionBrief {
        let at = "2026-11-16T09:30:00Z";
        let words = |what: &str| format!("{what} \u{1b}[31m{}\nend", "w".repeat(long));
        let corrections: Vec<Value> = (0..corrections)
            .map(|n| {
                json!({"id": ID, "class": "correction", "prompt_text": words(&format!("no {n}")),
                "confidence": "high", "captured_via": "Donna", "captured_at": at})
            })
            .collect();
        let todos: Vec<Value> = (1..=todos)
            .map(|n| json!({"id": ID, "kind": "todo", "number": n, "title": words("do"), "status": "open",
                "version": 1, "identity": "Ada", "created_at": at, "updated_at": at}))
            .collect();
        let peers: Vec<Value> = (0..20)
            .map(|n| json!({"identity": format!("Peer{n}"), "surface": "codex", "machine_id": "m", "state": "live"}))
            .collect();
        serde_json::from_value(json!({
            "started": {
                "session_id": ID, "pid": "PID-X", "identity": "Texi", "surface": "codex", "peers": peers,
                "unread": {"INFO": 1, "TASK": 0, "ASK": 2, "BLOCKER": 1}, "recent_deltas": [],
                "open_todos": todos, "open_postmortems": [], "anti_examples": [],
                "unwrapped_session": {"session_id": ID, "last_delta_at": at, "deltas": 4, "remediation": "x"},
            },
            "corrections": corrections, "corrections_unreviewed": 2,
        }))
        .unwrap()
    }

    #[test]
    fn a_session_is_told_who_it_is_what_waits_and_what_the_operator_said() {
        let said = opening(&brief(2, 7, 3), false);
        for part in [
            "you are Texi in project PID-X",
            "Unread: 1 BLOCKER, 2 ASK, 1 INFO. Call prism_signals_pending to read.",
            "- 2026-11-16: \"no 0 www end\"",
            "2 more captured corrections are not reviewed yet",
            "(2026-11-16, 4 written down) ended without prism_wrap",
            "#1 \"do www end\"",
            "2 more (prism_todo list)",
            "Here now: Peer0, Peer1, Peer10,",
            "and 14 more.",
            "prism_start tells more",
        ] {
            assert!(said.contains(part), "{part} in {said}");
        }
        assert!(!said.contains('\u{1b}'));
    }

    #[test]
    fn it_is_never_longer_than_its_room_and_says_the_first_things_first() {
        for again in [false, true] {
            let said = opening(&brief(40, 40, 900), again);
            assert!(said.chars().count() <= HOOK_OPENING_CHARS_MAX, "{said}");
            assert!(said.contains("Unread: 1 BLOCKER") && said.contains("no 0 www"));
        }
        let again = opening(&brief(5, 5, 3), true);
        assert!(
            again.chars().count() < 600 && !again.contains("todos"),
            "{again}"
        );
    }

    #[test]
    fn a_session_with_nothing_to_hear_hears_that() {
        let mut quiet = brief(0, 0, 0);
        quiet.started.unread = ByCategory::default();
        quiet.started.unwrapped_session = None;
        quiet.started.peers.clear();
        quiet.corrections_unreviewed = 0;
        let said = opening(&quiet, false);
        assert_eq!(said.lines().count(), 3, "{said}");
        assert!(said.contains("Nothing is unread."));
    }
}
