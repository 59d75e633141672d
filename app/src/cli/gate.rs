//! `prism gate`: what the gate noticed, and whether it was right.

use super::{Context, print_json};
use crate::clock;
use crate::ui::{Outcome, ago, out, short, table};
use clap::{Args, Subcommand};
use prism_core::api::gate::{GateEvents, GateReport, GateTally};
use prism_core::gate::{Assignment, classify};
use prism_core::text::one_line;
use serde_json::json;

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism gate report\n  prism gate events --unlabelled\n  prism gate label 2901d7ce --wrong\n  prism gate explain \"ratify docs/specs/spec-099.md\" --tags governance"
)]
pub struct Gate {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Precision beside its target, warned and satisfied by identity, class and day
    Report,
    /// What the gate noticed, newest first
    Events {
        /// At most so many
        #[arg(short, default_value_t = 20)]
        n: usize,
        /// Only warnings that wait for a label
        #[arg(long)]
        unlabelled: bool,
    },
    /// The same by outcome, label, agent and time, in every project if asked (operator)
    List(super::lists::GateList),
    /// Say whether a warning was right (operator)
    Label {
        /// The warning's id, or its first 8 digits
        event_id: String,
        /// Memory should have been asked first
        #[arg(long, conflicts_with = "wrong", required_unless_present = "wrong")]
        right: bool,
        /// It was a false alarm
        #[arg(long)]
        wrong: bool,
    },
    /// Show which words, tags or paths put an assignment in its class
    Explain {
        text: String,
        /// Its tags, separated by commas
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        /// The files it is about, separated by commas
        #[arg(long, value_delimiter = ',')]
        paths: Vec<String>,
    },
}

impl Gate {
    pub async fn run(self, context: Context) -> Outcome {
        match self.action {
            Action::Report => report(&context).await,
            Action::List(list) => list.run(&context).await,
            Action::Events { n, unlabelled } => events(&context, n, unlabelled).await,
            Action::Label {
                event_id, right, ..
            } => {
                let answer = context
                    .call("gate_label", json!({"event_id": event_id, "right": right}))
                    .await?;
                if context.json {
                    print_json(&answer)
                } else {
                    out(if right {
                        "labelled right"
                    } else {
                        "labelled wrong"
                    })
                }
                Ok(())
            }
            Action::Explain { text, tags, paths } => {
                let found = classify(&Assignment { text, tags, paths });
                if context.json {
                    print_json(&json!({"task_class": found.class, "because": found.because}));
                } else if found.because.is_empty() {
                    out("unmatched: nothing in it is watched");
                } else {
                    out(&format!(
                        "{}: {}",
                        context.style.bold(found.class.name()),
                        found.because.join(", ")
                    ));
                }
                Ok(())
            }
        }
    }
}

async fn report(context: &Context) -> Outcome {
    let (report, answer): (GateReport, _) = context.ask("gate_report", json!({})).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let style = context.style;
    let precision = report
        .precision
        .map_or_else(|| "not known".into(), |p| format!("{p:.2}"));
    let verdict = match report.verdict.as_str() {
        "ok" => style.paint("32", "good"),
        "low" => style.paint("31", "too many false alarms"),
        _ => style.dim(&format!(
            "{} of {} labels",
            report.labelled, report.labels_needed
        )),
    };
    out(&format!(
        "precision {precision} (target {:.1}, {} labelled)  {verdict}",
        report.precision_target, report.labelled
    ));
    out(&format!(
        "{} warned, {} satisfied",
        report.warned, report.satisfied
    ));
    for (name, tallies) in [
        ("by identity", &report.by_identity),
        ("by class", &report.by_class),
        ("by day", &report.by_day),
    ] {
        if !tallies.is_empty() {
            out(&style.bold(name));
            out(&table(&tallies.iter().map(tally).collect::<Vec<_>>()));
        }
    }
    Ok(())
}

fn tally(t: &GateTally) -> Vec<String> {
    vec![
        format!("  {}", t.name),
        format!("{} warned", t.warned),
        format!("{} satisfied", t.satisfied),
    ]
}

async fn events(context: &Context, n: usize, unlabelled: bool) -> Outcome {
    let (events, answer): (GateEvents, _) = context
        .ask("gate_events", json!({"n": n, "unlabelled": unlabelled}))
        .await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let (style, now) = (context.style, clock::now());
    let rows: Vec<Vec<String>> = events
        .events
        .iter()
        .map(|e| {
            let label = e.right.map_or(String::new(), |r| {
                if r { "right".into() } else { "wrong".into() }
            });
            vec![
                short(e.id),
                if e.outcome == "warned" {
                    style.paint("33", "warned")
                } else {
                    style.paint("32", "satisfied")
                },
                e.task_class.clone(),
                one_line(&e.persona),
                e.trigger.clone(),
                style.dim(&format!(
                    "{} {}",
                    short(&e.assignment_id),
                    ago(e.occurred_at, now)
                )),
                label,
            ]
        })
        .collect();
    out(&if rows.is_empty() {
        "the gate has noticed nothing".into()
    } else {
        table(&rows)
    });
    Ok(())
}
