//! `prism recall`, `cite`, `confirm`, `input`, `remember`, `note`, `graph` and `memory`.

use super::{Context, keep, print_json, print_warnings, written};
use crate::clock;
use crate::ui::{Failure, Outcome, Progress, Style, ago, note, out, short, table};
use clap::{Args, Subcommand};
use prism_core::api::memory::{
    Captured, GraphAnswer, MemoryStats, Metrics, RecallHit, Recalled, Reembedding, Rot,
};
use prism_core::limits::ADDED_LIST_BYTES_MAX;
use prism_core::memory::question::telling_words;
use prism_core::memory::vector::RULED_OUT;
use prism_core::text::{clip, one_line};
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = "Examples:
  prism recall \"the line above the input bar that finally showed up\"
  prism recall \"why not the title bar\" --kinds decision,operator_input
  prism recall \"ring file format\" --as-of 2026-05-01T00:00:00Z

Exit: 0 something was found, 1 memory says nothing about that, 2 it could not run.")]
pub struct Recall {
    /// What was seen, said or done, in plain words
    #[arg(required = true)]
    query: Vec<String>,
    /// Another way it may have been written down; may be given again
    #[arg(long, value_name = "TEXT")]
    also: Vec<String>,
    /// Results at the most
    #[arg(short, default_value_t = 8)]
    k: usize,
    /// Only these kinds, separated by commas
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Not before this time (ISO 8601)
    #[arg(long)]
    since: Option<String>,
    /// Not after this time (ISO 8601)
    #[arg(long)]
    until: Option<String>,
    /// As memory stood at this time (ISO 8601)
    #[arg(long)]
    as_of: Option<String>,
    /// Look without a trace: nothing is recorded (the operator only)
    #[arg(long)]
    preview: bool,
}

impl Recall {
    pub async fn run(self, context: Context) -> Outcome {
        let query = self.query.join(" ");
        let request = json!({
            "query": query,
            "also": self.also,
            "k": self.k,
            "kinds": self.kinds,
            "since": self.since,
            "until": self.until,
            "as_of": self.as_of,
            "preview": self.preview,
        });
        let (recalled, answer): (Recalled, _) = context.ask("recall", request).await?;
        let found = !recalled.results.is_empty();
        if context.json {
            print_json(&answer);
        } else if found {
            show(&query, recalled, context.style);
        } else {
            out("memory says nothing about that");
        }
        if found {
            Ok(())
        } else {
            Err(Failure::Negative)
        }
    }
}

fn show(query: &str, recalled: Recalled, style: Style) {
    let words = telling_words(query);
    for hit in &recalled.results {
        out(&drawn(hit, &words, style));
    }
    if let Some(event) = recalled.recall_event_id.map(short) {
        out(&style.dim(&format!(
            "prism cite {event} <id>  says that one of them helped"
        )));
    }
    if let Some(doubt) = &recalled.note {
        note(&style.paint(
            "33",
            &format!("{doubt} (confidence {:.2})", recalled.confidence),
        ));
    }
    match (
        recalled.legs.vector.state.as_str(),
        recalled.legs.vector.reason,
    ) {
        ("off", reason) => note(&style.dim(&format!(
            "found by words and links alone: {}",
            reason.unwrap_or_default()
        ))),
        // One of the models did not take part, or not all vectors were there.
        (_, Some(reason)) => note(&style.dim(&format!("found by less than usual: {reason}"))),
        _ => {}
    }
}

/// One hit: kind, age, who, verdict; the text with the question's words marked; why.
fn drawn(hit: &RecallHit, words: &[String], style: Style) -> String {
    let badge = hit.verdicts.first().map(|v| match v.verdict.as_str() {
        "works" => style.paint("32", "✓ works"),
        "broken" => style.paint("31", "✗ broken"),
        _ => style.paint("33", "± partial"),
    });
    let superseded = hit
        .superseded_by
        .map(|id| style.paint("33", &format!("superseded by {}", short(id))));
    let head = [
        Some(style.bold(&hit.kind.replace('_', " "))),
        Some(style.dim(&format!(
            "{} · {} · {}",
            ago(hit.created_at, clock::now()),
            one_line(&hit.identity),
            short(hit.id)
        ))),
        badge,
        superseded,
    ];
    let mut lines = vec![head.into_iter().flatten().collect::<Vec<_>>().join("  ")];
    if let Some(title) = &hit.title {
        lines.push(format!("  {}", marked(&one_line(title), words, style)));
    }
    lines.extend(
        hit.text
            .lines()
            .filter(|line| hit.ruled_out.is_empty() || !line.starts_with(RULED_OUT))
            .take(6)
            .map(|line| format!("  {}", marked(&clip(&one_line(line), 160), words, style))),
    );
    for verdict in hit.verdicts.iter().filter(|v| v.notes.is_some()).take(2) {
        lines.push(format!(
            "  {} {}",
            style.paint("32", "│"),
            one_line(&format!(
                "{}: {}",
                verdict.confirmed_by,
                verdict.notes.clone().unwrap_or_default()
            ))
        ));
    }
    for attempt in hit.ruled_out.iter().take(3) {
        lines.push(format!(
            "  {} {}",
            style.paint("31", "✗ ruled out:"),
            one_line(&format!("{}: {}", attempt.approach, attempt.outcome))
        ));
    }
    lines.push(style.dim(&format!("  {:.3}  {}", hit.score, hit.why.join(", "))));
    lines.join("\n") + "\n"
}

fn marked(line: &str, words: &[String], style: Style) -> String {
    if !style.color {
        return line.to_owned();
    }
    // Endings differ: the word without its last two letters, as long as four are left.
    let stems: Vec<String> = words
        .iter()
        .map(|w| {
            w.chars()
                .take(w.chars().count().saturating_sub(2).max(4))
                .collect()
        })
        .collect();
    let matches = |word: &str| {
        stems.iter().any(|stem| {
            if stem.chars().count() < 4 {
                word.to_lowercase() == *stem
            } else {
                word.to_lowercase().starts_with(stem.as_str())
            }
        })
    };
    line.split(' ')
        .map(|word| {
            if matches(word.trim_matches(|c: char| !c.is_alphanumeric())) {
                style.paint("1;33", word)
            } else {
                word.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism confirm delta:2901d7ce works \"persona and project show above the input bar\"
  prism confirm spec:SPEC-060 partial")]
pub struct Confirm {
    /// delta:<id>, signal:<id>, spec:<name> or commit:<sha>
    refers_to: String,
    /// works, broken or partial
    verdict: String,
    /// What you saw, in your words; `-` reads it from standard input
    notes: Option<String>,
}

impl Confirm {
    pub async fn run(self, context: Context) -> Outcome {
        // Inside a host's own shell it is the agent who types.
        let direct = context.identity.is_none() && !context.env.inside_host;
        let request = json!({
            "refers_to": self.refers_to,
            "verdict": self.verdict,
            "notes": self.notes.map(written).transpose()?,
            "direct": direct,
        });
        keep(&context, "confirm", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Example:
  prism input correction \"stop, look in memory first\" --action \"reading git log\" --as Donna

Exit: 0 it was kept, 1 it is a routine acknowledgment and was not, 2 it could not run.")]
pub struct Input {
    /// correction, confirmation or direction_pivot
    class: String,
    /// What was typed, verbatim; `-` reads it from standard input
    prompt_text: String,
    /// What the agent was doing
    #[arg(long = "action")]
    triggered_action: Option<String>,
    /// The delta that is reversed
    #[arg(long)]
    reverses_delta: Option<String>,
    /// high or low
    #[arg(long, default_value = "high")]
    confidence: String,
}

impl Input {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({
            "class": self.class,
            "prompt_text": written(self.prompt_text)?,
            "triggered_action": self.triggered_action,
            "reverses_delta": self.reverses_delta,
            "confidence": self.confidence,
        });
        let (captured, answer): (Captured, _) = context.ask("operator_input", request).await?;
        if context.json {
            print_json(&answer);
        } else {
            out(&captured.id.map_or_else(
                || "not kept: a routine acknowledgment".into(),
                |id| format!("kept as {}", short(id)),
            ));
        }
        if captured.captured {
            Ok(())
        } else {
            Err(Failure::Negative)
        }
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism cite 2901d7ce 8b148959 --for \"the colour of the bell\"
  prism recall \"the bell's colour\" --json      shows recall_event_id and the results' ids")]
pub struct Cite {
    /// The recall (recall_event_id, or its first 8 digits)
    recall_event_id: String,
    /// Which of its results helped (id, or its first 8 digits)
    result_id: String,
    /// What it supported
    #[arg(long = "for", value_name = "TEXT")]
    purpose: Option<String>,
}

impl Cite {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({
            "recall_event_id": self.recall_event_id,
            "result_id": self.result_id,
            "for": self.purpose,
        });
        let answer = context.call("memory_cite", request).await?;
        if context.json {
            print_json(&answer);
        } else {
            out("noted");
        }
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism remember rule \"never push on a Friday\" --tags release
  prism remember fact - --subject \"the seat map\" < seatmap.md
  prism remember integration_narrative --sees \"the bell rings once\" \\
      --piece delta:2901d7ce --piece commit:04bf854 --breaks \"a second shim on one home\"")]
pub struct Remember {
    /// note, fact, rule, integration_narrative or other
    kind: String,
    /// The text; `-` reads it from standard input (a narrative may do without)
    body: Option<String>,
    /// What it is about
    #[arg(long, value_name = "TEXT")]
    subject: Option<String>,
    /// Tags, separated by commas
    #[arg(long, value_delimiter = ',')]
    tags: Vec<String>,
    /// What it speaks of: delta:<id>, signal:<id>, spec:<name> or commit:<sha>; may be given again
    #[arg(long = "ref", value_name = "REFERENCE")]
    refs: Vec<String>,
    /// The row this one replaces (id, or its first 8 digits)
    #[arg(long, value_name = "ID")]
    supersedes: Option<String>,
    /// Narrative: what the operator sees now
    #[arg(long = "sees", value_name = "TEXT")]
    operator_sees: Option<String>,
    /// Narrative: a delta, commit or spec that had to land with the others; may be given again
    #[arg(long = "piece", value_name = "REFERENCE")]
    pieces: Vec<String>,
    /// A question that this answers, in the operator's words; may be given again
    #[arg(long = "asked-as", value_name = "QUESTION")]
    asked_as: Vec<String>,
    /// Narrative: what would break it
    #[arg(long = "breaks", value_name = "TEXT")]
    would_break_it: Option<String>,
}

impl Remember {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({
            "kind": self.kind,
            "body": self.body.map(written).transpose()?.unwrap_or_default(),
            "subject": self.subject,
            "tags": self.tags,
            "refs": self.refs,
            "supersedes": self.supersedes,
            "operator_sees": self.operator_sees,
            "pieces": self.pieces,
            "would_break_it": self.would_break_it,
            "asked_as": self.asked_as,
        });
        keep(&context, "remember", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism note the printer wants the blue cable
  prism note - < meeting.md")]
pub struct Note {
    /// The note; `-` alone reads it from standard input
    #[arg(required = true)]
    text: Vec<String>,
    /// A question that this answers, in the operator's words; may be given again
    #[arg(long = "asked-as", value_name = "QUESTION")]
    asked_as: Vec<String>,
}

impl Note {
    pub async fn run(self, context: Context) -> Outcome {
        let text = written(self.text.join(" "))?;
        let request = json!({ "text": text, "asked_as": self.asked_as });
        keep(&context, "note", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism graph show 2901d7ce
  prism graph show path:core/src/ring.rs")]
pub struct Graph {
    #[command(subcommand)]
    action: GraphAction,
}

#[derive(Subcommand)]
enum GraphAction {
    /// Draw what stands beside a row or an entity
    Show {
        /// A row's id (or its first 8 digits), or an entity such as path:core/src/ring.rs
        id: String,
    },
}

impl Graph {
    pub async fn run(self, context: Context) -> Outcome {
        let GraphAction::Show { id } = self.action;
        let (graph, answer): (GraphAnswer, _) = context.ask("graph", json!({"id": id})).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let style = context.style;
        out(&format!(
            "{} {}",
            style.bold(&graph.node.kind),
            one_line(&graph.node.title)
        ));
        let last = graph.edges.len().saturating_sub(1);
        for (i, edge) in graph.edges.iter().enumerate() {
            let arrow = if edge.out {
                format!("─{}→", edge.kind)
            } else {
                format!("←{}─", edge.kind)
            };
            let id = if edge.node.id.contains(':') {
                String::new()
            } else {
                format!(" {}", short(&edge.node.id))
            };
            out(&format!(
                "{}{} {} {}{}",
                if i == last { "└" } else { "├" },
                style.dim(&arrow),
                style.bold(&edge.node.kind),
                one_line(&edge.node.title),
                style.dim(&id)
            ));
        }
        Ok(())
    }
}

#[derive(Args)]
pub struct Memory {
    #[command(subcommand)]
    action: MemoryAction,
}

#[derive(Subcommand)]
enum MemoryAction {
    /// How much is remembered
    Stats,
    /// Rows by kind, agent, time and words, newest first (operator)
    List(super::lists::MemoryList),
    /// One row, whole, with its verdicts (operator)
    Show(super::lists::MemoryShow),
    /// What was asked, shown and cited, newest first (operator)
    Recalls(super::lists::Recalls),
    /// Verdicts, misclassifications, corrections and dead ends
    Metrics,
    /// What has gone stale: duplicates, rows nobody finds, superseded ones in the way, effects
    /// without words
    Rot,
    /// Embed rows again: those without a vector, or all
    Reembed {
        /// Every row of the project
        #[arg(long)]
        all: bool,
        /// Queue them and return at once
        #[arg(long)]
        no_wait: bool,
    },
}

impl Memory {
    pub async fn run(self, context: Context) -> Outcome {
        match self.action {
            MemoryAction::Stats => {
                let (stats, answer): (MemoryStats, _) =
                    context.ask("memory_stats", json!({})).await?;
                if context.json {
                    print_json(&answer);
                    return Ok(());
                }
                let mut rows: Vec<Vec<String>> = stats
                    .rows
                    .iter()
                    .map(|(kind, n)| vec![kind.clone(), n.to_string()])
                    .collect();
                rows.extend(
                    [
                        ("entities", stats.entities),
                        ("edges", stats.edges),
                        ("recalls", stats.recalls),
                        ("citations", stats.citations),
                        ("vectors", stats.vectors),
                        ("rows to embed", stats.embed_pending),
                    ]
                    .map(|(name, n)| vec![context.style.dim(name), n.to_string()]),
                );
                if !stats.models.is_empty() {
                    let models = stats.models.join(" + ");
                    rows.push(vec![context.style.dim("models"), models]);
                }
                out(&table(&rows));
                if let Some(switching) = &stats.switching {
                    out(&switching.to_string());
                }
                if let Some(off) = stats.off.filter(|_| stats.embed_pending > 0) {
                    note(&format!("no row is embedded now: {off}"));
                }
            }
            MemoryAction::List(list) => return list.run(&context).await,
            MemoryAction::Show(show) => return show.run(&context).await,
            MemoryAction::Recalls(recalls) => return recalls.run(&context).await,
            MemoryAction::Rot => return rot(&context).await,
            MemoryAction::Reembed { all, no_wait } => return reembed(&context, all, no_wait).await,
            MemoryAction::Metrics => {
                let (metrics, answer): (Metrics, _) =
                    context.ask("memory_metrics", json!({})).await?;
                if context.json {
                    print_json(&answer);
                    return Ok(());
                }
                let style = context.style;
                for (name, tallies) in [
                    ("verdicts", &metrics.confirmations),
                    ("corrections", &metrics.corrections),
                    ("dead ends", &metrics.dead_ends),
                ] {
                    out(&style.bold(name));
                    out(&table(
                        &tallies
                            .iter()
                            .take(10)
                            .map(|t| {
                                vec![
                                    format!("  {}", t.n),
                                    clip(&one_line(&t.what), 70),
                                    style.dim(&t.group),
                                ]
                            })
                            .collect::<Vec<_>>(),
                    ));
                }
                out(&style.bold("inputs by agent"));
                out(&table(
                    &metrics
                        .inputs
                        .iter()
                        .map(|a| {
                            vec![
                                format!("  {}", a.agent),
                                format!("{} count", a.counted),
                                format!("{} unreviewed", a.unreviewed),
                                format!("{:.0} % rejected", a.misclassification_rate * 100.0),
                            ]
                        })
                        .collect::<Vec<_>>(),
                ));
            }
        }
        Ok(())
    }
}

fn nothing_embedded(rows: u64, reason: &str) -> Failure {
    Failure::Unable {
        message: format!("{rows} row(s) are queued, but nothing is embedded: {reason}"),
        hint: None,
    }
}

/// Queues rows and shows how the queue gets shorter.
async fn reembed(context: &Context, all: bool, no_wait: bool) -> Outcome {
    let (queued, answer): (Reembedding, _) =
        context.ask("memory_reembed", json!({"all": all})).await?;
    if let Some(reason) = &queued.off {
        return Err(nothing_embedded(queued.queued, reason));
    }
    let mut progress = Progress::new("embedding", queued.queued as usize);
    let mut left = (queued.queued, 0);
    while !no_wait && left.0 > left.1 {
        let (stats, _): (MemoryStats, _) = context.ask("memory_stats", json!({})).await?;
        left = (stats.embed_pending, stats.embed_set_aside);
        if let Some(reason) = stats.off.filter(|_| left.0 > left.1) {
            return Err(nothing_embedded(left.0, &reason));
        }
        progress.at(queued.queued.saturating_sub(left.0) as usize);
        if stats.embed_pending > stats.embed_set_aside {
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        }
    }
    progress.done();
    if context.json {
        print_json(&answer);
    } else {
        out(&format!(
            "{} row(s) {}",
            queued.queued,
            if no_wait {
                "are queued"
            } else {
                "were embedded"
            }
        ));
        if left.1 > 0 && !no_wait {
            note(&format!(
                "{} row(s) were set aside: their text breaks the embedding worker",
                left.1
            ));
        }
    }
    Ok(())
}

async fn rot(context: &Context) -> Outcome {
    let cwd = std::env::current_dir().map_err(anyhow::Error::from)?;
    let (surfaces, warnings) = crate::config::surfaces(&cwd, ADDED_LIST_BYTES_MAX);
    let (rot, mut answer): (Rot, Value) = context
        .ask("memory_rot", json!({ "surfaces": surfaces }))
        .await?;
    if let Value::Object(answer) = &mut answer {
        crate::client::warn_beside(answer, warnings);
    }
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    print_warnings(&answer);
    let style = context.style;
    out(&format!(
        "{} {:.3} of {} rows (0 is fresh, 1 is rotten)",
        style.bold("rot"),
        rot.score,
        rot.rows
    ));
    for kind in &rot.kinds {
        out(&format!(
            "  {:>5}  {} {}",
            kind.rows,
            kind.kind.replace('_', " "),
            style.dim(&format!("(each counts {})", kind.weight))
        ));
        for example in &kind.examples {
            out(&style.dim(&format!("         {example}")));
        }
    }
    Ok(())
}
