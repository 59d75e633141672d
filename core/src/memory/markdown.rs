//! Markdown notes and decisions as rows: a decision record is one decision, anything else a note a
//! section.

use crate::moment::Moment;
use serde_json::{Map, Value, json};

/// A heading and what stands below it.
struct Section<'a> {
    line: u64,
    level: usize,
    heading: &'a str,
    body: String,
}

/// The rows of a file, each with the line it begins in and an id of its own.
///
/// Author and time come from the front matter (`author`, `date`), the time
/// else from a day in the file's name, else from when the file was changed.
pub fn rows(name: &str, text: &str, author: &str, changed: Moment) -> Vec<(u64, String, Value)> {
    let (front, skipped, body) = front_matter(text);
    let said = |key: &str| {
        front
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.clone())
            .filter(|v| !v.is_empty())
    };
    let created_at = said("date")
        .or_else(|| said("created_at"))
        .or_else(|| day_in(name))
        .unwrap_or_else(|| changed.to_string());
    let identity = said("author")
        .or_else(|| said("identity"))
        .unwrap_or_else(|| author.to_owned());
    let tags: Vec<String> = said("tags")
        .map(|t| {
            t.trim_matches(['[', ']'])
                .split(',')
                .map(|t| t.trim().trim_matches(['"', '\'']).to_owned())
                .filter(|t| !t.is_empty())
                .collect()
        })
        .unwrap_or_default();
    let sections = sections(body, skipped);
    let title = said("title").or_else(|| {
        sections
            .iter()
            .find(|s| s.level == 1)
            .map(|s| s.heading.to_owned())
    });
    let base = || {
        Map::from_iter([
            ("identity".to_owned(), json!(identity)),
            ("created_at".to_owned(), json!(created_at)),
            ("tags".to_owned(), json!(tags)),
        ])
    };
    let row =
        |line: u64, id: String, kind: &str, fields: Vec<(&str, Option<String>)>| {
            let mut row = base();
            row.insert("id".into(), json!(id));
            row.insert("kind".into(), json!(kind));
            row.extend(fields.into_iter().filter_map(|(k, v)| {
                Some((k.to_owned(), json!(v.filter(|v| !v.trim().is_empty())?)))
            }));
            (line, id, Value::Object(row))
        };
    let under = |heading: &str| {
        sections
            .iter()
            .find(|s| bare(s.heading).starts_with(heading))
            .map(|s| s.body.clone())
    };
    if let Some(decision) = under("decision").filter(|d| !d.trim().is_empty()) {
        let first = sections.first().map_or(1, |s| s.line);
        let context = under("context")
            .or_else(|| under("problem"))
            .or_else(|| under("status quo"));
        let title = title.map(|t| {
            t.trim_start_matches(|c: char| c.is_ascii_digit() || ". ".contains(c))
                .to_owned()
        });
        let status = under("status")
            .map(|s| s.trim().to_lowercase())
            .filter(|s| s.len() <= 40);
        let fields = vec![
            ("title", title),
            ("context", context),
            ("decision", Some(decision)),
            ("consequences", under("consequences")),
            ("status", status),
        ];
        return vec![row(first, name.to_owned(), "decision", fields)];
    }
    let mut rows = Vec::new();
    for section in sections.iter().filter(|s| !s.body.trim().is_empty()) {
        let id = if section.heading.is_empty() {
            name.to_owned()
        } else {
            format!("{name}#{}", bare(section.heading))
        };
        // Two sections may bear one heading.
        let id = if rows.iter().any(|(_, taken, _)| *taken == id) {
            format!("{id}@{}", section.line)
        } else {
            id
        };
        let subject = match (&title, section.heading) {
            (Some(title), "") => Some(title.clone()),
            (Some(title), heading) if title != heading => Some(format!("{title}: {heading}")),
            (_, heading) => Some(heading.to_owned()),
        };
        rows.push(row(
            section.line,
            id,
            "note",
            vec![
                ("subject", subject),
                ("text", Some(section.body.trim().to_owned())),
            ],
        ));
    }
    rows
}

fn bare(heading: &str) -> String {
    heading
        .trim_matches(|c: char| !c.is_alphanumeric())
        .to_lowercase()
}

/// The `key: value` lines between two `---`, how many lines they took, and the rest.
fn front_matter(text: &str) -> (Vec<(String, String)>, u64, &str) {
    let none = (Vec::new(), 0, text);
    let Some(rest) = text
        .strip_prefix("---\n")
        .or_else(|| text.strip_prefix("---\r\n"))
    else {
        return none;
    };
    let Some((head, body)) = rest.split_once("\n---") else {
        return none;
    };
    let pairs = head
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(k, v)| {
            (
                k.trim().to_lowercase(),
                v.trim().trim_matches(['"', '\'']).to_owned(),
            )
        });
    (
        pairs.collect(),
        head.lines().count() as u64 + 2,
        body.split_once('\n').map_or("", |(_, b)| b),
    )
}

fn sections(body: &str, skipped: u64) -> Vec<Section<'_>> {
    let mut sections = vec![Section {
        line: skipped + 1,
        level: 0,
        heading: "",
        body: String::new(),
    }];
    let mut fenced = false;
    for (n, line) in body.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let level = line.chars().take_while(|c| *c == '#').count();
        if !fenced && (1..=6).contains(&level) && line[level..].starts_with(' ') {
            sections.push(Section {
                line: skipped + n as u64 + 1,
                level,
                heading: line[level..].trim().trim_end_matches('#').trim(),
                body: String::new(),
            });
        } else if let Some(section) = sections.last_mut() {
            section.body.push_str(line);
            section.body.push('\n');
        }
    }
    sections
}

/// A day at the beginning of a file's name, or anywhere in it: `2026-03-14-printer.md`.
fn day_in(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    (0..bytes.len().saturating_sub(9))
        .filter_map(|i| name.get(i..i + 10))
        .find(|d| Moment::parse(&format!("{d}T00:00:00Z")).is_some())
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> Vec<(u64, String, Value)> {
        rows(name, text, "Lena", Moment(0))
    }

    #[test]
    fn a_note_is_a_row_a_section_with_the_files_title() {
        let rows = of(
            "2026-03-14-printer.md",
            "# Printer\nIt jams.\n\n## What helped\nA new driver.\n```\n# not a heading\n```\n\n## Empty\n",
        );
        assert_eq!(rows.len(), 2);
        assert_eq!(
            (
                rows[0].0,
                rows[0].1.as_str(),
                rows[0].2["created_at"].as_str()
            ),
            (1, "2026-03-14-printer.md#printer", Some("2026-03-14"))
        );
        assert_eq!(rows[1].2["subject"], "Printer: What helped");
        assert!(
            rows[1].2["text"]
                .as_str()
                .unwrap()
                .contains("# not a heading")
        );
        assert_eq!(
            (rows[1].2["kind"].as_str(), rows[1].2["identity"].as_str()),
            (Some("note"), Some("Lena"))
        );
    }

    #[test]
    fn a_decision_record_is_one_decision() {
        let text = "---\ndate: 2026-05-01\nauthor: Mira\ntags: [db, store]\n---\n# 7. One database\n\n## Status\nAccepted\n\n## Context\nTwo drift apart.\n\n## Decision\nWe keep one.\n\n## Consequences\nOne backup.\n";
        let rows = of("0007-one-database.md", text);
        assert_eq!(rows.len(), 1);
        let row = &rows[0].2;
        assert_eq!(
            (
                row["kind"].as_str(),
                row["title"].as_str(),
                row["status"].as_str()
            ),
            (Some("decision"), Some("One database"), Some("accepted"))
        );
        assert_eq!(
            (
                row["identity"].as_str(),
                row["created_at"].as_str(),
                row["tags"].to_string().as_str()
            ),
            (Some("Mira"), Some("2026-05-01"), "[\"db\",\"store\"]")
        );
        assert_eq!(
            row["decision"].as_str().map(str::trim),
            Some("We keep one.")
        );
    }

    #[test]
    fn a_file_without_headings_is_one_note_and_an_empty_one_none() {
        assert_eq!(of("todo.md", "buy paper\n")[0].1, "todo.md");
        assert!(of("empty.md", "\n# Only a title\n").is_empty());
        assert_eq!(of("twice.md", "## A\nx\n## A\ny\n")[1].1, "twice.md#a@3");
    }
}
