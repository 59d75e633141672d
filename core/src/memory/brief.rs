//! What an opening or a list shows of a row: so much, however much somebody wrote.

use crate::api::memory::{ArtifactView, DeltaView, InputView};
use crate::text::within_json;
use serde_json::Value;
use std::collections::BTreeMap;

/// The room that a row has, in bytes of JSON.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// For what it says first of all: a summary, a body, what the operator typed.
    pub text: usize,
    /// For each of its other texts.
    pub line: usize,
    /// Items that are shown of each list.
    pub items: usize,
    /// For each of these.
    pub item: usize,
}

impl Room {
    /// A delta or a captured input among others.
    pub const DELTA: Self = Self {
        text: 1_000,
        line: 240,
        items: 3,
        item: 120,
    };
    /// The wrap that is picked up.
    pub const BATON: Self = Self {
        text: 8_000,
        line: 4_000,
        items: 20,
        item: 500,
    };
    /// A todo, a spec or a decision in a list.
    pub const ARTIFACT: Self = Self {
        text: 200,
        line: 160,
        items: 3,
        item: 80,
    };

    pub fn delta(self, row: &mut DeltaView) {
        let mut cut = Cut(&mut row.more);
        cut.text("summary", &mut row.summary, self.text);
        for (name, text) in [
            ("next", &mut row.next),
            ("operator_visible_effect", &mut row.operator_visible_effect),
            ("subject", &mut row.subject),
            ("operator_sees", &mut row.operator_sees),
            ("would_break_it", &mut row.would_break_it),
        ] {
            if let Some(text) = text {
                cut.text(name, text, self.line);
            }
        }
        for (name, list) in [
            ("open_loops", &mut row.open_loops),
            ("tags", &mut row.tags),
            ("pieces", &mut row.pieces),
            ("touched_files", &mut row.touched_files),
        ] {
            cut.list(name, list, self.items);
            for item in list {
                shorten(item, self.item);
            }
        }
        cut.list(
            "tried_and_ruled_out",
            &mut row.tried_and_ruled_out,
            self.items,
        );
        for attempt in &mut row.tried_and_ruled_out {
            shorten(&mut attempt.approach, self.item);
            shorten(&mut attempt.outcome, self.item);
        }
    }

    pub fn artifact(self, row: &mut ArtifactView) {
        let mut cut = Cut(&mut row.more);
        cut.text("title", &mut row.title, self.line);
        cut.text("body", &mut row.body, self.text);
        shorten(&mut row.status, self.item);
        for (name, value) in &mut row.fields {
            match value {
                Value::String(text) => cut.text(name, text, self.item),
                Value::Array(list) => {
                    cut.list(name, list, self.items);
                    for item in list {
                        if let Value::String(text) = item {
                            shorten(text, self.item);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    pub fn input(self, row: &mut InputView) {
        let mut cut = Cut(&mut row.more);
        cut.text("prompt_text", &mut row.prompt_text, self.line);
        if let Some(action) = &mut row.triggered_action {
            cut.text("triggered_action", action, self.item);
        }
    }
}

/// The first rows that fit into so many bytes of JSON, and how many did not.
pub fn first_rows<T: serde::Serialize>(mut rows: Vec<T>, bytes: usize) -> (Vec<T>, usize) {
    let mut taken = 0;
    let fits = rows.iter().take_while(|row| {
        taken += serde_json::to_vec(row).map_or(0, |json| json.len() + 1);
        taken <= bytes
    });
    let fits = fits.count();
    let more = rows.len() - fits;
    rows.truncate(fits);
    (rows, more)
}

/// Cuts, and notes how much was cut from what.
struct Cut<'a>(&'a mut BTreeMap<String, u64>);

impl Cut<'_> {
    fn text(&mut self, name: &str, text: &mut String, bytes: usize) {
        let chars = shorten(text, bytes);
        if chars > 0 {
            self.0.insert(name.to_owned(), chars as u64);
        }
    }

    fn list<T>(&mut self, name: &str, list: &mut Vec<T>, items: usize) {
        if list.len() > items {
            self.0.insert(name.to_owned(), (list.len() - items) as u64);
            list.truncate(items);
        }
    }
}

/// Ends a text that is too long in an ellipsis, and says how many characters went.
fn shorten(text: &mut String, bytes: usize) -> usize {
    if within_json(text, bytes).len() == text.len() {
        return 0;
    }
    let end = within_json(text, bytes.saturating_sub('…'.len_utf8())).len();
    let gone = text[end..].chars().count();
    text.truncate(end);
    text.push('…');
    gone
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::json_len;
    use serde_json::json;

    #[test]
    fn a_row_takes_its_room_whatever_was_written_and_says_how_much_is_missing() {
        for written in ["x", "é", "🔔", "\u{1}", "\"", "\n"] {
            let (text, line) = (written.repeat(50_000), written.repeat(1_000));
            let mut row: DeltaView = serde_json::from_value(json!({
                "id": uuid::Uuid::nil(), "kind": "wrap", "identity": "A", "surface": "other",
                "created_at": "2026-01-01T00:00:00Z", "summary": text, "next": text,
                "operator_visible_effect": text, "open_loops": vec![line.clone(); 500],
                "tried_and_ruled_out": vec![json!({"approach": line, "outcome": line}); 100],
            }))
            .unwrap();
            Room::DELTA.delta(&mut row);
            let bytes = serde_json::to_string(&row).unwrap().len();
            assert!(bytes < 3_500, "{written:?}: {bytes}");
            assert!(json_len(&row.summary) <= 1_000 && row.summary.ends_with('…'));
            let kept = row.summary.chars().count() as u64 - 1;
            assert_eq!(row.more["summary"], 50_000 - kept);
            assert_eq!((row.open_loops.len(), row.more["open_loops"]), (3, 497));
            assert_eq!(row.more["tried_and_ruled_out"], 97);

            let mut todo: ArtifactView = serde_json::from_value(json!({
                "id": uuid::Uuid::nil(), "kind": "todo", "title": text, "body": text,
                "status": "open", "version": 1, "identity": "A",
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
                "fields": {"tags": vec![line.clone(); 500], "paths": vec![line.clone(); 500]},
            }))
            .unwrap();
            Room::ARTIFACT.artifact(&mut todo);
            let bytes = serde_json::to_string(&todo).unwrap().len();
            assert!(bytes < 1_300, "{written:?}: {bytes}");
            assert_eq!(todo.more["paths"], 497);
        }
    }

    #[test]
    fn a_row_that_fits_is_shown_whole() {
        let mut todo: ArtifactView = serde_json::from_value(json!({
            "id": uuid::Uuid::nil(), "kind": "todo", "title": "t", "body": "b".repeat(200),
            "status": "open", "version": 1, "identity": "A", "fields": {"tags": ["a", "b", "c"]},
            "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
        }))
        .unwrap();
        let before = serde_json::to_string(&todo).unwrap();
        Room::ARTIFACT.artifact(&mut todo);
        assert_eq!(serde_json::to_string(&todo).unwrap(), before);
    }
}
