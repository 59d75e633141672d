//! `prism status`, `whois` and `session`.

use super::{Context, print_json};
use crate::clock;
use crate::ui::{Outcome, Style, ago, out, short, table};
use clap::{Args, Subcommand};
use prism_core::Moment;
use prism_core::api::{self, Reachable, SessionView};
use prism_core::presence::Attention;
use prism_core::ring::ByCategory;
use prism_core::signal::Category;
use serde_json::json;

pub async fn status(context: Context) -> Outcome {
    let (status, answer): (api::Status, _) = context.ask("status", json!({})).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let (style, now) = (context.style, clock::now());
    out(&format!(
        "{}  {}",
        style.bold(&status.pid),
        style.dim(&format!("prism {}", status.server_version))
    ));
    let mut rows = vec![heading(
        style,
        &[
            "WHO",
            "STATE",
            "WAITING",
            "SURFACE",
            "MACHINE",
            "LAST VERB",
            "LAST PROVEN",
            "SESSION",
        ],
    )];
    for persona in &status.personas {
        let name = if persona.operator {
            format!("{} (operator)", persona.identity)
        } else {
            persona.identity.clone()
        };
        let sessions: Vec<&SessionView> = status
            .sessions
            .iter()
            .filter(|s| s.identity == persona.identity)
            .collect();
        let waiting = buckets(persona.pending, style);
        if sessions.is_empty() {
            rows.push(vec![
                name.clone(),
                style.dim(persona.recipient_state.name()),
                waiting.clone(),
            ]);
        }
        for (i, session) in sessions.iter().enumerate() {
            let first = i == 0;
            rows.push(
                [
                    vec![
                        if first { name.clone() } else { String::new() },
                        state(session, now, style),
                        if first {
                            waiting.clone()
                        } else {
                            String::new()
                        },
                    ],
                    session_cells(session, now, style),
                ]
                .concat(),
            );
        }
    }
    out(&table(&rows));
    Ok(())
}

fn heading(style: Style, names: &[&str]) -> Vec<String> {
    names.iter().map(|n| style.dim(n)).collect()
}

/// Whether it runs, whether somebody is there, and whether it waits for the operator.
fn state(session: &SessionView, now: Moment, style: Style) -> String {
    let mut said = vec![session.state.to_string()];
    match session.attention {
        Some(Attention::Unattended) => said.push(Attention::Unattended.to_string()),
        Some(Attention::Unknown) => said.push("attention unknown".into()),
        Some(Attention::Attended) | None => {}
    }
    if let Some(waits) = &session.waits {
        let since = ago(waits.since, now);
        let waits = format!("waits for you: {}, since {since}", waits.r#for);
        said.push(style.bold(&waits));
    }
    said.join(", ")
}

fn session_cells(session: &SessionView, now: Moment, style: Style) -> Vec<String> {
    vec![
        session.surface.clone(),
        session.machine_id.clone(),
        session
            .last_verb_at
            .map_or_else(|| "-".into(), |at| ago(at, now)),
        session
            .reachable
            .as_ref()
            .map_or_else(|| style.dim("nothing yet"), |r| proven(r, now)),
        match &session.name {
            Some(name) => format!(
                "{} {}",
                style.dim(&short(session.session_id)),
                prism_core::text::one_line(name)
            ),
            None => style.dim(&short(session.session_id)),
        },
    ]
}

fn proven(reachable: &Reachable, now: Moment) -> String {
    format!("{} {}", reachable.state, ago(reachable.at, now))
}

/// What waits, by category, most urgent first.
pub fn buckets(n: ByCategory, style: Style) -> String {
    let order = [
        Category::Ask,
        Category::Blocker,
        Category::Task,
        Category::Info,
    ];
    let parts: Vec<String> = order
        .iter()
        .filter(|c| n.get(**c) > 0)
        .map(|c| style.category(*c, &format!("{c}:{}", n.get(*c))))
        .collect();
    if parts.is_empty() {
        "-".into()
    } else {
        parts.join(" ")
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  prism whois Texi")]
pub struct Whois {
    /// The agent's or the operator's name
    identity: String,
}

impl Whois {
    pub async fn run(self, context: Context) -> Outcome {
        let (whois, answer): (api::WhoisAnswer, _) = context
            .ask("whois", json!({"identity": self.identity}))
            .await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let (style, now) = (context.style, clock::now());
        out(&format!(
            "{}  {}  {}",
            style.bold(&whois.identity),
            whois.recipient_state,
            style.dim(&format!("since {}", ago(whois.since, now)))
        ));
        out(&match &whois.reachable {
            Some(r) => format!("last proven: {} ({}) {}", r.state, r.layer, ago(r.at, now)),
            None => "last proven: nothing yet".into(),
        });
        if !whois.sessions.is_empty() {
            let mut rows = vec![heading(
                style,
                &[
                    "STATE",
                    "SURFACE",
                    "MACHINE",
                    "LAST VERB",
                    "LAST PROVEN",
                    "SESSION",
                ],
            )];
            rows.extend(
                whois
                    .sessions
                    .iter()
                    .map(|s| [vec![state(s, now, style)], session_cells(s, now, style)].concat()),
            );
            out(&table(&rows));
        }
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism session list --which released\n  prism session release 3f36b796"
)]
pub struct Session {
    #[command(subcommand)]
    action: SessionAction,
}

#[derive(Subcommand)]
enum SessionAction {
    /// Sessions past and present, newest first (operator)
    List(super::lists::Sessions),
    /// Release a session by force (operator)
    Release {
        /// The session's id, or its first 8 digits as `prism status` shows them
        session_id: String,
    },
}

impl Session {
    pub async fn run(self, context: Context) -> Outcome {
        let session_id = match self.action {
            SessionAction::List(list) => return list.run(&context).await,
            SessionAction::Release { session_id } => session_id,
        };
        let answer = context
            .call(
                "session_release",
                json!({"session_id": session_id, "reason": "forced"}),
            )
            .await?;
        if context.json {
            print_json(&answer)
        } else {
            out("released")
        }
        Ok(())
    }
}
