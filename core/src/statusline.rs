//! The line an operator glances at: who, where, and what waits.

use crate::limits::{PREVIEW_AGE_S, PREVIEW_CHARS_MAX, TITLE_CHARS_MAX};
use crate::moment::Moment;
use crate::ring::Count;
use crate::signal::Category;
use crate::text::{clip, one_line};

/// The order in which categories are shown.
const ORDER: [Category; 4] = [
    Category::Ask,
    Category::Blocker,
    Category::Task,
    Category::Info,
];

/// What there is to show.
pub struct View<'a> {
    pub persona: Option<&'a str>,
    pub cwd: &'a str,
    pub count: Option<&'a Count>,
    pub now: Moment,
    pub color: bool,
}

/// Renders one line without its line end.
pub fn render(view: &View<'_>) -> String {
    let cwd = one_line(view.cwd);
    let Some(persona) = view.persona else {
        return cwd;
    };
    let mut line = format!("[{}] {cwd}", one_line(persona));
    if let Some(count) = view.count.filter(|c| c.unread > 0) {
        line.push_str(" · ");
        line.push_str(&bell(count, view.color));
        if let Some(preview) = preview(count, view.now) {
            line.push_str(" · ");
            line.push_str(&preview);
        }
    }
    line
}

/// The title of an agent's terminal: who, which project, and what waits.
pub fn title(persona: &str, project: &str, count: Option<&Count>) -> String {
    let mut title = format!("[{}] {}", one_line(persona), one_line(project));
    if let Some(count) = count.filter(|c| c.unread > 0) {
        title.push_str(" · ");
        title.push_str(&bell(count, false));
    }
    clip(&title, TITLE_CHARS_MAX)
}

fn bell(count: &Count, color: bool) -> String {
    let buckets: Vec<(Category, u32)> = ORDER
        .iter()
        .map(|c| (*c, count.by_cat.get(*c)))
        .filter(|(_, n)| *n > 0)
        .collect();
    let paint = |category: Category, text: String| {
        if color {
            format!("\u{1b}[{}m{text}\u{1b}[0m", style(category))
        } else {
            text
        }
    };
    match buckets.as_slice() {
        [(category, n)] => format!("🔔 {n} {}", paint(*category, category.name().into())),
        many => {
            let parts: Vec<String> = many
                .iter()
                .map(|(c, n)| paint(*c, format!("{c}:{n}")))
                .collect();
            format!("🔔 {} {}", count.unread, parts.join(" "))
                .trim_end()
                .to_owned()
        }
    }
}

const fn style(category: Category) -> &'static str {
    match category {
        Category::Ask => "31",
        Category::Blocker => "1;35",
        Category::Task => "36",
        Category::Info => "2",
    }
}

/// A fresh ASK or BLOCKER is shown in words; an older one only as a number.
fn preview(count: &Count, now: Moment) -> Option<String> {
    let latest = count.latest_actionable.as_ref()?;
    let fresh = matches!(latest.cat, Category::Ask | Category::Blocker)
        && now.since_us(latest.ts) < PREVIEW_AGE_S * 1_000_000;
    fresh.then(|| {
        clip(
            &one_line(&format!("{}: {}", latest.from, latest.summary)),
            PREVIEW_CHARS_MAX,
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::{Actionable, ByCategory};

    const NOW: Moment = Moment(1_000_000_000);

    fn line(
        persona: Option<&str>,
        by_cat: ByCategory,
        latest: Option<(Category, i64)>,
        color: bool,
    ) -> String {
        let count = Count {
            unread: by_cat.total(),
            by_cat,
            latest_actionable: latest.map(|(cat, age_s)| Actionable {
                cat,
                from: "Lafonda".into(),
                summary: "PR #6 ready".into(),
                ts: NOW.plus_s(-age_s),
                sid: "x".into(),
            }),
            ..Default::default()
        };
        render(&View {
            persona,
            cwd: "~/prism",
            count: Some(&count),
            now: NOW,
            color,
        })
    }

    fn cats(ask: u32, blocker: u32, task: u32, info: u32) -> ByCategory {
        ByCategory {
            info,
            task,
            ask,
            blocker,
        }
    }

    #[test]
    fn the_state_matrix() {
        let rows: [(&str, ByCategory, Option<(Category, i64)>); 9] = [
            ("nothing unread", cats(0, 0, 0, 0), None),
            ("one category", cats(0, 0, 2, 0), None),
            ("breakdown", cats(1, 0, 2, 0), None),
            ("all four in order", cats(1, 2, 3, 4), None),
            ("fresh ask", cats(1, 0, 0, 0), Some((Category::Ask, 3))),
            ("ask of 29 s", cats(1, 0, 0, 0), Some((Category::Ask, 29))),
            ("ask of 30 s", cats(1, 0, 0, 0), Some((Category::Ask, 30))),
            (
                "fresh blocker",
                cats(0, 1, 0, 2),
                Some((Category::Blocker, 0)),
            ),
            (
                "blocker only, stale",
                cats(0, 1, 0, 0),
                Some((Category::Blocker, 300)),
            ),
        ];
        let table: String = rows
            .iter()
            .map(|(name, by_cat, latest)| {
                format!(
                    "{name:<22}|{}\n",
                    line(Some("Donna"), *by_cat, *latest, false)
                )
            })
            .collect();
        insta::assert_snapshot!(table, @r"
        nothing unread        |[Donna] ~/prism
        one category          |[Donna] ~/prism · 🔔 2 TASK
        breakdown             |[Donna] ~/prism · 🔔 3 ASK:1 TASK:2
        all four in order     |[Donna] ~/prism · 🔔 10 ASK:1 BLOCKER:2 TASK:3 INFO:4
        fresh ask             |[Donna] ~/prism · 🔔 1 ASK · Lafonda: PR #6 ready
        ask of 29 s           |[Donna] ~/prism · 🔔 1 ASK · Lafonda: PR #6 ready
        ask of 30 s           |[Donna] ~/prism · 🔔 1 ASK
        fresh blocker         |[Donna] ~/prism · 🔔 3 BLOCKER:1 INFO:2 · Lafonda: PR #6 ready
        blocker only, stale   |[Donna] ~/prism · 🔔 1 BLOCKER
        ");
    }

    #[test]
    fn a_title_says_who_where_and_what_waits_without_a_colour() {
        let count = |by_cat: ByCategory| Count {
            unread: by_cat.total(),
            by_cat,
            ..Default::default()
        };
        let (none, some) = (count(cats(0, 0, 0, 0)), count(cats(1, 0, 2, 0)));
        for (count, told) in [
            (None, "[Donna] PID-1"),
            (Some(&none), "[Donna] PID-1"),
            (Some(&some), "[Donna] PID-1 · 🔔 3 ASK:1 TASK:2"),
        ] {
            assert_eq!(title("Donna", "PID-1", count), told);
        }
        assert_eq!(title("D", &"x".repeat(500), None).chars().count(), 120);
        assert!(
            !title("D\u{1b}]0;x\u{7}", "p\u{9c}", None).contains(['\u{1b}', '\u{7}', '\u{9c}'])
        );
    }

    #[test]
    fn colours_are_red_bold_magenta_cyan_and_dim() {
        insta::assert_snapshot!(line(Some("Donna"), cats(1, 1, 1, 1), None, true).escape_debug(), @r"[Donna] ~/prism · 🔔 4 \u{1b}[31mASK:1\u{1b}[0m \u{1b}[1;35mBLOCKER:1\u{1b}[0m \u{1b}[36mTASK:1\u{1b}[0m \u{1b}[2mINFO:1\u{1b}[0m");
    }

    #[test]
    fn without_an_identity_there_is_only_the_folder() {
        assert_eq!(line(None, cats(3, 0, 0, 0), None, false), "~/prism");
    }

    #[test]
    fn a_preview_has_60_characters_and_no_escape_of_another_agent() {
        let count = Count {
            unread: 1,
            by_cat: cats(1, 0, 0, 0),
            latest_actionable: Some(Actionable {
                cat: Category::Ask,
                from: "X".into(),
                summary: format!("\u{1b}[31m{}", "y".repeat(100)),
                ts: NOW,
                sid: "x".into(),
            }),
            ..Default::default()
        };
        let line = render(&View {
            persona: Some("D"),
            cwd: "~",
            count: Some(&count),
            now: NOW,
            color: false,
        });
        let preview = line.rsplit(" · ").next().unwrap();
        assert_eq!(preview.chars().count(), 60);
        assert!(!line.contains('\u{1b}') && preview.starts_with("X: yyy"));
    }
}
