//! `prism recall`, `confirm`, `input`, `review`, `note`, `todo`, `graph` and `memory`.

use super::{Context, print_json};
use crate::clock;
use crate::ui::{Failure, Outcome, Progress, Style, ago, note, out, short, table};
use clap::{Args, Subcommand};
use prism_core::api::memory::{
    Artifacts, Captured, GraphAnswer, Id, InputView, InputsAnswer, MemoryStats, Metrics, RecallHit,
    Recalled, Reembedding, Reviewed, Rot,
};
use prism_core::memory::question::telling_words;
use prism_core::memory::vector::RULED_OUT;
use prism_core::text::{clip, one_line};
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism recall \"the line above the input bar that finally showed up\"\n  prism recall \"why not the title bar\" --kinds decision,operator_input\n  prism recall \"ring file format\" --as-of 2026-05-01T00:00:00Z"
)]
pub struct Recall {
    /// What was seen, said or done, in plain words
    #[arg(required = true)]
    query: Vec<String>,
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
}

impl Recall {
    pub async fn run(self, context: Context) -> Outcome {
        let query = self.query.join(" ");
        let request = json!({"query": query, "k": self.k, "kinds": self.kinds, "since": self.since, "until": self.until, "as_of": self.as_of});
        let (recalled, answer): (Recalled, _) = context.ask("recall", request).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        if recalled.results.is_empty() {
            out("memory says nothing about that");
            return Err(Failure::Negative);
        }
        let words = telling_words(&query);
        for hit in &recalled.results {
            out(&drawn(hit, &words, context.style));
        }
        if let Some(doubt) = &recalled.note {
            note(&context.style.paint(
                "33",
                &format!("{doubt} (confidence {:.2})", recalled.confidence),
            ));
        }
        if recalled.legs.vector.state == "off" {
            note(&context.style.dim(&format!(
                "found by words and links alone: {}",
                recalled.legs.vector.reason.unwrap_or_default()
            )));
        }
        Ok(())
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
#[command(
    after_help = "Examples:\n  prism confirm delta:2901d7ce works \"a line with persona and project shows above the input bar\"\n  prism confirm spec:SPEC-060 partial"
)]
pub struct Confirm {
    /// delta:<id>, signal:<id>, spec:<name> or commit:<sha>
    refers_to: String,
    /// works, broken or partial
    verdict: String,
    /// What you saw, in your words
    notes: Option<String>,
}

impl Confirm {
    pub async fn run(self, context: Context) -> Outcome {
        // Inside a host's own shell it is the agent who types.
        let direct = context.identity.is_none() && !context.env.inside_host;
        keep(&context, "confirm", json!({"refers_to": self.refers_to, "verdict": self.verdict, "notes": self.notes, "direct": direct})).await
    }
}

/// Writes a row and says under which id it is kept.
async fn keep(context: &Context, path: &str, body: Value) -> Outcome {
    let (id, answer): (Id, _) = context.ask(path, body).await?;
    if context.json {
        print_json(&answer)
    } else {
        out(&format!("kept as {}", short(id.id)))
    }
    Ok(())
}

#[derive(Args)]
#[command(
    after_help = "Example:\n  prism input correction \"stop, look in memory first\" --action \"reading git log\" --as Donna"
)]
pub struct Input {
    /// correction, confirmation or direction_pivot
    class: String,
    /// What was typed, verbatim
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
        let request = json!({"class": self.class, "prompt_text": self.prompt_text, "triggered_action": self.triggered_action, "reverses_delta": self.reverses_delta, "confidence": self.confidence});
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
#[command(
    after_help = "Examples:\n  prism review                      one key per row: a accept, r reject, s skip, u undo, q quit\n  prism review 2901d7ce 8b148959 --accept\n  prism review --list"
)]
pub struct Review {
    /// The inputs to review; none: go through them one by one
    ids: Vec<String>,
    #[arg(long, group = "what")]
    accept: bool,
    #[arg(long, group = "what")]
    reject: bool,
    /// Take an earlier review back
    #[arg(long, group = "what")]
    undo: bool,
    /// Only list what waits for review
    #[arg(long)]
    list: bool,
}

impl Review {
    pub async fn run(self, context: Context) -> Outcome {
        let action = if self.accept {
            "accept"
        } else if self.reject {
            "reject"
        } else if self.undo {
            "undo"
        } else {
            ""
        };
        if !self.ids.is_empty() {
            if action.is_empty() {
                return Err(Failure::Unable {
                    message: "what shall become of them?".into(),
                    hint: Some("add --accept, --reject or --undo".into()),
                });
            }
            let (reviewed, answer): (Reviewed, _) = context
                .ask("review", json!({"ids": self.ids, "action": action}))
                .await?;
            if context.json {
                print_json(&answer)
            } else {
                out(&format!("{} reviewed", reviewed.reviewed.len()))
            }
            return Ok(());
        }
        let (waiting, answer): (InputsAnswer, _) = context
            .ask("inputs", json!({"review": "unreviewed"}))
            .await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        if waiting.inputs.is_empty() {
            out("nothing waits for review");
            return Ok(());
        }
        if self.list || !std::io::stdin().is_terminal() {
            for input in &waiting.inputs {
                out(&input_line(input, context.style));
            }
            return Ok(());
        }
        interactively(&context, &waiting.inputs).await
    }
}

fn input_line(input: &InputView, style: Style) -> String {
    let doing = input
        .triggered_action
        .as_deref()
        .map(|a| style.dim(&format!("\n          while {}", one_line(a))))
        .unwrap_or_default();
    let confidence = if input.confidence == "low" {
        style.paint("33", " low")
    } else {
        String::new()
    };
    format!(
        "{} {}{confidence}  “{}”  {}{doing}",
        short(input.id),
        style.bold(&input.class),
        one_line(&input.prompt_text),
        style.dim(&format!(
            "by {} {}",
            input.captured_via,
            ago(input.captured_at, clock::now())
        ))
    )
}

/// One key per row; `u` takes the last one back.
async fn interactively(context: &Context, inputs: &[InputView]) -> Outcome {
    let keys = Keys::raw()?;
    let (mut at, mut done): (usize, Vec<(usize, bool)>) = (0, Vec::new());
    while at < inputs.len() {
        let input = &inputs[at];
        out(&format!(
            "{}/{}  {}\r",
            at + 1,
            inputs.len(),
            input_line(input, context.style).replace('\n', "\r\n")
        ));
        drop(
            write!(
                std::io::stdout(),
                "  [a]ccept [r]eject [s]kip [u]ndo [q]uit "
            )
            .and_then(|()| std::io::stdout().flush()),
        );
        let key = keys.next()?;
        out("\r");
        match key {
            b'a' | b'r' => {
                let action = if key == b'a' { "accept" } else { "reject" };
                context
                    .call("review", json!({"ids": [input.id], "action": action}))
                    .await?;
                done.push((at, true));
                at += 1;
            }
            b's' | b' ' => {
                done.push((at, false));
                at += 1;
            }
            b'u' => {
                if let Some((previous, reviewed)) = done.pop() {
                    if reviewed {
                        context
                            .call(
                                "review",
                                json!({"ids": [inputs[previous].id], "action": "undo"}),
                            )
                            .await?;
                    }
                    at = previous;
                }
            }
            b'q' | 3 | 4 => break,
            _ => {}
        }
    }
    drop(keys);
    out(&format!(
        "{} reviewed",
        done.iter().filter(|(_, reviewed)| *reviewed).count()
    ));
    Ok(())
}

/// The terminal without line editing, given back when dropped.
struct Keys {
    before: rustix::termios::Termios,
}

impl Keys {
    fn raw() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin)
            .map_err(|e| anyhow::anyhow!("this terminal cannot be read key by key: {e}"))?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Now, &raw)
            .map_err(|e| anyhow::anyhow!("this terminal cannot be read key by key: {e}"))?;
        Ok(Self { before })
    }

    fn next(&self) -> Result<u8, Failure> {
        let mut byte = [0u8];
        let n = std::io::Read::read(&mut std::io::stdin(), &mut byte)
            .map_err(|e| anyhow::anyhow!("cannot read a key: {e}"))?;
        Ok(if n == 0 { b'q' } else { byte[0] })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(
            std::io::stdin(),
            rustix::termios::OptionalActions::Now,
            &self.before,
        );
    }
}

#[derive(Args)]
pub struct Note {
    text: Vec<String>,
}

impl Note {
    pub async fn run(self, context: Context) -> Outcome {
        keep(&context, "note", json!({"text": self.text.join(" ")})).await
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism todo add \"clean up old branches\"\n  prism todo list\n  prism todo done 4"
)]
pub struct Todo {
    #[command(subcommand)]
    action: TodoAction,
}

#[derive(Subcommand)]
enum TodoAction {
    Add {
        title: String,
        #[arg(long)]
        body: Option<String>,
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        #[arg(long, value_delimiter = ',')]
        paths: Vec<String>,
    },
    List {
        /// open, doing, blocked, done, dropped or all
        #[arg(long)]
        status: Option<String>,
    },
    Done {
        number: i64,
    },
}

impl Todo {
    pub async fn run(self, context: Context) -> Outcome {
        let request = match self.action {
            TodoAction::Add {
                title,
                body,
                tags,
                paths,
            } => {
                json!({"action": "add", "title": title, "body": body, "tags": tags, "paths": paths})
            }
            TodoAction::List { status } => json!({"action": "list", "status": status}),
            TodoAction::Done { number } => json!({"action": "done", "number": number}),
        };
        let (answered, answer): (Artifacts, Value) = context.ask("todo", request).await?;
        if context.json {
            print_json(&answer);
        } else if let Some(items) = answered.items {
            let rows: Vec<Vec<String>> = items
                .iter()
                .map(|i| {
                    vec![
                        format!("#{}", i.number.unwrap_or_default()),
                        i.status.clone(),
                        one_line(&i.title),
                        context.style.dim(&format!(
                            "{} {}",
                            i.identity,
                            ago(i.created_at, clock::now())
                        )),
                    ]
                })
                .collect();
            out(&if rows.is_empty() {
                "no todos".into()
            } else {
                table(&rows)
            });
        } else {
            out(&format!("todo #{}", answered.number.unwrap_or_default()));
            for warning in &answered.warnings {
                note(&warning.remediation);
            }
        }
        Ok(())
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  prism graph show 2901d7ce\n  prism graph show path:core/src/ring.rs"
)]
pub struct Graph {
    #[command(subcommand)]
    action: GraphAction,
}

#[derive(Subcommand)]
enum GraphAction {
    /// Draw what stands beside a row or an entity
    Show { id: String },
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
                out(&table(&rows));
            }
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

/// Queues rows and shows how the queue gets shorter.
async fn reembed(context: &Context, all: bool, no_wait: bool) -> Outcome {
    let (queued, answer): (Reembedding, _) =
        context.ask("memory_reembed", json!({"all": all})).await?;
    if let Some(reason) = &queued.off {
        return Err(Failure::Unable {
            message: format!(
                "{} row(s) are queued, but nothing is embedded: {reason}",
                queued.queued
            ),
            hint: None,
        });
    }
    let mut progress = Progress::new("embedding", queued.queued as usize);
    let mut left = (queued.queued, 0);
    while !no_wait && left.0 > left.1 {
        let (stats, _): (MemoryStats, _) = context.ask("memory_stats", json!({})).await?;
        left = (stats.embed_pending, stats.embed_set_aside);
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
    let (rot, answer): (Rot, _) = context
        .ask(
            "memory_rot",
            json!({"surfaces": crate::config::surfaces(&cwd)}),
        )
        .await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
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
