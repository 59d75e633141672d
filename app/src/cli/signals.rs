//! `prism send`, `pending`, `wait`, `trace` and `signals`.

use super::{Context, print_json, print_warnings, written};
use crate::clock;
use crate::shim::cache::Cache;
use crate::ui::{self, Failure, Outcome, Style, ago, out, short, table};
use clap::{Args, Subcommand};
use prism_core::envelope::Envelope;
use prism_core::limits::{WAIT_DEFAULT_S, WAIT_MAX_S};
use prism_core::receipt::TraceEvent;
use prism_core::ring::Which;
use prism_core::{api, text};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How often `prism wait` looks.
const WAIT_LOOK: Duration = Duration::from_millis(500);

#[derive(Args)]
#[command(after_help = "Examples:
  prism send Texi \"review the ring buffer\" --type ReviewRequested
  prism send Texi \"the build is red\" --category BLOCKER --body \"$(tail -20 build.log)\"
  prism send Donna \"looks right\" --reply-to 2901d7ce --type ReviewCompleted
  prism send Texi - < message.txt")]
pub struct Send {
    /// Identity of the recipient
    to: String,
    /// One line that says what it is about; `-` reads it from standard input
    summary: String,
    /// TaskAssigned, ReviewRequested, ReviewCompleted, Acknowledgment, StatusUpdate, Question or
    /// Answer
    #[arg(
        long = "type",
        short = 't',
        value_name = "TYPE",
        default_value = "StatusUpdate"
    )]
    signal_type: String,
    /// INFO, TASK, ASK or BLOCKER [default: by type]
    #[arg(long, short = 'c')]
    category: Option<String>,
    /// More text; `-` reads it from standard input
    #[arg(long, short = 'b')]
    body: Option<String>,
    /// Further payload fields, as a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The signal this answers (id or its first 8 digits)
    #[arg(long, value_name = "SIGNAL_ID")]
    reply_to: Option<String>,
    /// Fail when nobody is live instead of leaving it in the inbox
    #[arg(long)]
    sync: bool,
    /// Seconds until it expires unread
    #[arg(long, value_name = "SECONDS")]
    ttl: Option<i64>,
    /// The same key never sends twice
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

impl Send {
    pub async fn run(self, context: Context) -> Outcome {
        let mut payload: Map<String, Value> = match &self.payload {
            Some(json) => serde_json::from_str(json)
                .map_err(|e| anyhow::anyhow!("--payload is not a JSON object: {e}"))?,
            None => Map::new(),
        };
        payload.insert("summary".into(), written(self.summary)?.into());
        if let Some(body) = self.body {
            payload.insert("body".into(), written(body)?.into());
        }
        let mut request =
            json!({"to": self.to, "signal_type": self.signal_type, "payload": payload});
        let optional = [
            ("category", self.category.map(Value::from)),
            ("in_reply_to", self.reply_to.map(Value::from)),
            ("delivery_class", self.sync.then(|| "sync".into())),
            ("ttl_s", self.ttl.map(Value::from)),
            ("idempotency_key", self.idempotency_key.map(Value::from)),
        ];
        for (field, value) in optional {
            if let Some(value) = value {
                request[field] = value;
            }
        }
        let (sent, answer): (api::Sent, _) = context.ask("signal", request).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let told = match sent.publish_path.name() {
            "pushed_to_ws" => format!("pushed to {} session(s)", sent.receipt.sessions.len()),
            "published" => {
                "queued; told to the other servers, one of which has the recipient".into()
            }
            "no_subscriber" => "queued; the recipient is live but has no socket just now".into(),
            _ => format!("queued; the recipient is {}", sent.recipient_state),
        };
        out(&format!(
            "{}  {told}",
            context.style.bold(&short(sent.signal_id))
        ));
        out(&context.style.dim(&format!(
            "prism trace {}  shows where it got to",
            short(sent.signal_id)
        )));
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism pending                 what agents sent to the operator
  prism pending --as Texi       what waits for Texi (and takes it out of the queue)")]
pub struct Pending {
    /// At most so many
    #[arg(long, short = 'n', default_value_t = prism_core::limits::PENDING_DEFAULT)]
    limit: usize,
}

impl Pending {
    pub async fn run(self, context: Context) -> Outcome {
        heard()?;
        let (pending, answer) = context
            .ask("signals_pending", json!({"limit": self.limit}))
            .await?;
        read(&context, pending, answer).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism wait --as Texi          up to 50 seconds for what Texi is sent, then as `prism pending`
  prism wait --timeout 5        exit code 1 when nothing came")]
pub struct Wait {
    /// Seconds to wait at most: 1 to 60
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_DEFAULT_S,
          value_parser = clap::value_parser!(u64).range(1..=WAIT_MAX_S))]
    timeout: u64,
    /// At most so many
    #[arg(long, short = 'n', default_value_t = prism_core::limits::PENDING_DEFAULT)]
    limit: usize,
}

impl Wait {
    pub async fn run(self, context: Context) -> Outcome {
        heard()?;
        let until = tokio::time::Instant::now() + Duration::from_secs(self.timeout);
        loop {
            let (pending, answer): (api::Pending, Value) = context
                .ask("signals_pending", json!({"limit": self.limit}))
                .await?;
            let nothing = pending.signals.is_empty();
            let over = tokio::time::Instant::now() >= until;
            if over || !nothing {
                read(&context, pending, answer).await?;
                return match nothing {
                    true => Err(Failure::Negative),
                    false => Ok(()),
                };
            }
            let look = tokio::time::Instant::now() + WAIT_LOOK;
            tokio::time::sleep_until(look.min(until)).await;
        }
    }
}

/// Refuses to read an inbox to nobody: what is printed leaves the queue.
fn heard() -> Outcome {
    if ui::is_heard() {
        return Ok(());
    }
    Err(Failure::Unable {
        message: "standard output is closed, so nobody would see what is read".into(),
        hint: Some(
            "leave it open, or send it to a file or with `> /dev/null` to take what waits unseen"
                .into(),
        ),
    })
}

/// Shows what was drained, and only then lets it leave the queue.
async fn read(context: &Context, pending: api::Pending, mut answer: Value) -> Outcome {
    if context.json {
        if let Some(answer) = answer.as_object_mut() {
            answer.remove("lease_id");
        }
        print_json(&answer);
    } else if pending.signals.is_empty() {
        out("nothing waits");
    } else {
        for envelope in &pending.signals {
            out(&drawn(envelope, context.style));
        }
        if pending.more > 0 {
            out(&context
                .style
                .dim(&format!("{} more wait: prism pending again", pending.more)));
        }
    }
    // Printed means read: only now do they leave the queue.
    if let Some(lease_id) = pending.lease_id {
        context
            .call("signals_confirm", json!({"lease_id": lease_id}))
            .await?;
        if let Some(identity) = &context.identity {
            let sids: Vec<String> = pending
                .signals
                .iter()
                .map(|s| s.signal_id.to_string())
                .collect();
            drop(Cache::new(context.home.clone(), identity).mark_read(Which::These(&sids)));
        }
    }
    Ok(())
}

fn drawn(envelope: &Envelope, style: Style) -> String {
    let category = envelope.resolved_category();
    let age = envelope
        .created_at
        .map(|at| ago(at, clock::now()))
        .unwrap_or_default();
    let mut lines = vec![format!(
        "{} {} {}  {}  {}",
        style.category(category, &format!("{category:<7}")),
        style.bold(&text::one_line(&envelope.from_identity)),
        style.dim(&format!(
            "{} {age} {}",
            envelope.signal_type,
            short(envelope.signal_id)
        )),
        envelope.summary(),
        envelope
            .in_reply_to
            .map(|id| style.dim(&format!("(answers {})", short(id))))
            .unwrap_or_default(),
    )];
    let extra = envelope
        .payload
        .iter()
        .filter(|(field, _)| !matches!(field.as_str(), "summary" | "shape"));
    for (field, value) in extra {
        let shown = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        lines.extend(shown.lines().enumerate().map(|(i, line)| {
            format!(
                "        {} {}",
                style.dim(&if i == 0 {
                    format!("{}:", text::one_line(field))
                } else {
                    " ".into()
                }),
                text::one_line(line)
            )
        }));
    }
    lines.join("\n")
}

#[derive(Args)]
#[command(after_help = "Example:\n  prism trace 2901d7ce")]
pub struct Trace {
    /// A signal's id, its trace_id, or the first 8 digits of either
    id: String,
}

impl Trace {
    pub async fn run(self, context: Context) -> Outcome {
        let by_signal = context
            .ask::<api::Trace>("signal_trace", json!({"signal_id": self.id}))
            .await;
        let (trace, answer) = match by_signal {
            Ok(found) => found,
            Err(unknown) => context
                .ask::<api::Trace>("signal_trace", json!({"trace_id": self.id}))
                .await
                .map_err(|_| unknown)?,
        };
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        out(&timeline(&trace, context.style));
        Ok(())
    }
}

/// Draws a trace: each fact with its time after the first, and who saw it.
fn timeline(trace: &api::Trace, style: Style) -> String {
    let head = format!(
        "{}  {}  {} → {}",
        style.bold(&short(trace.signal_id)),
        trace.signal_type,
        trace.from_identity,
        trace.to_identity
    );
    let start = trace
        .timeline
        .first()
        .map(|e| e.observed_at)
        .unwrap_or_default();
    let place = |event: &TraceEvent| {
        let session = event
            .session_id
            .and_then(|id| trace.receipt.sessions.iter().find(|s| s.session_id == id));
        let session = session.map(|s| {
            format!(
                "{} on {} ({})",
                s.surface,
                s.machine_id,
                short(s.session_id)
            )
        });
        [session, event.detail.as_deref().map(text::one_line)]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    };
    let last = trace.timeline.len().saturating_sub(1);
    let rows: Vec<Vec<String>> = trace
        .timeline
        .iter()
        .enumerate()
        .map(|(i, event)| {
            let elapsed_ms = event.observed_at.since_us(start) as f64 / 1000.0;
            vec![
                format!("  {} {}", if i == last { "└●" } else { "├●" }, event.state),
                style.dim(event.layer.name()),
                format!("{elapsed_ms:>9.1} ms"),
                style.dim(&place(event)),
            ]
        })
        .collect();
    let state = trace.receipt.state;
    let verdict = match state.name() {
        "queued" | "pushed" => "No shim has confirmed it yet.",
        "received" => "A shim has it; no bell was handed to a host.",
        "rung" => {
            "The bell was handed to the host, which gave no sign of taking it; \
             nobody has drained it."
        }
        "rendered" => "The host took the bell; nobody has drained it.",
        "drained" => "The agent was given it; it has not acted on it.",
        _ => "",
    };
    format!(
        "{head}\n{}\n{}",
        table(&rows),
        if verdict.is_empty() {
            format!("  It is {state}.")
        } else {
            format!("  It is {state}. {verdict}")
        }
    )
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism signals tail --as Texi
  prism signals ack 2901d7ce --state model_acted --note \"in commit 04bf854\" --as Texi
  prism signals recall 2901d7ce")]
pub struct Signals {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// The last signals in the local ring, read and unread
    Tail {
        /// At most so many
        #[arg(short, default_value_t = 5)]
        n: usize,
    },
    /// What is unread, by category
    Count,
    /// Mark everything in the local ring read (the queue on the server is not touched)
    MarkRead,
    /// Signals of the project by identity, category, state, time and words, newest first
    List(super::dashboard::ListArgs),
    /// One signal: where it got to, its thread, and why it is stuck
    Show(super::dashboard::ShowArgs),
    /// Take back a signal that nobody has read
    Recall {
        /// The signal's id, or its first 8 digits
        signal_id: String,
    },
    /// Say that a signal was seen (`observed`) or acted on (`model_acted`)
    Ack {
        /// The signal's id, or its first 8 digits
        signal_id: String,
        /// observed or model_acted
        #[arg(long, default_value = "observed")]
        state: String,
        /// A word to its sender
        #[arg(long)]
        note: Option<String>,
    },
    /// Dismiss signals that were read; none named: all of them
    Dismiss {
        /// The signals' ids, or their first 8 digits
        signal_ids: Vec<String>,
    },
}

impl Signals {
    pub async fn run(self, context: Context) -> Outcome {
        match self.action {
            Action::Tail { n } => tail(&context, n),
            Action::Count => count(&context),
            Action::List(list) => list.run(context).await,
            Action::Show(show) => show.run(context).await,
            Action::MarkRead => {
                let changed = cache(&context)?.mark_read(Which::All)?;
                out(&format!("{changed} marked read"));
                Ok(())
            }
            Action::Recall { signal_id } => {
                let (recalled, answer): (api::Recalled, _) = context
                    .ask("signal_recall", json!({"signal_id": signal_id}))
                    .await?;
                if context.json {
                    print_json(&answer);
                } else {
                    out(&format!(
                        "{}: {}",
                        if recalled.recalled {
                            "taken back"
                        } else {
                            "not taken back"
                        },
                        recalled.reason
                    ));
                }
                if recalled.recalled {
                    Ok(())
                } else {
                    Err(Failure::Negative)
                }
            }
            Action::Ack {
                signal_id,
                state,
                note,
            } => {
                plain(
                    &context,
                    "signal_ack",
                    json!({"signal_id": signal_id, "state": state, "note": note}),
                    "noted",
                )
                .await
            }
            Action::Dismiss { signal_ids } => {
                plain(
                    &context,
                    "signals_ack",
                    json!({"signal_ids": signal_ids}),
                    "dismissed",
                )
                .await
            }
        }
    }
}

async fn plain(context: &Context, path: &str, body: Value, done: &str) -> Outcome {
    let answer = context.call(path, body).await?;
    if context.json {
        print_json(&answer);
    } else {
        let n = answer
            .get("dismissed")
            .map(|n| format!("{n} "))
            .unwrap_or_default();
        out(&format!("{n}{done}"));
        if let Some(places) = answer.get("only_newest") {
            out(&context.style.dim(&format!(
                "among the newest {places} of the inbox; older ones are dismissed by their ids"
            )));
        }
        print_warnings(&answer);
    }
    Ok(())
}

fn cache(context: &Context) -> Result<Cache, Failure> {
    let identity = context.identity.as_ref().ok_or_else(|| Failure::Unable {
        message: "the local ring belongs to an agent".into(),
        hint: Some("say whose with --as, or set PRISM_AGENT_IDENTITY".into()),
    })?;
    Ok(Cache::new(context.home.clone(), identity))
}

fn tail(context: &Context, n: usize) -> Outcome {
    let (ring, _) = cache(context)?.load();
    if context.json {
        print_json(&json!({"tail": ring.tail(n)}));
        return Ok(());
    }
    let (now, style) = (clock::now(), context.style);
    let rows: Vec<Vec<String>> = ring
        .tail(n)
        .iter()
        .map(|e| {
            vec![
                if e.read {
                    style.dim("read")
                } else {
                    style.bold("new")
                },
                style.category(e.cat, e.cat.name()),
                text::one_line(&e.from),
                text::one_line(&e.summary),
                style.dim(&format!(
                    "{} {} {}",
                    e.sig_type,
                    ago(e.ts, now),
                    short(&e.sid)
                )),
            ]
        })
        .collect();
    out(&if rows.is_empty() {
        "nothing has arrived".into()
    } else {
        table(&rows)
    });
    Ok(())
}

fn count(context: &Context) -> Outcome {
    let count = cache(context)?.load().0.count();
    if context.json {
        print_json(&json!({"count": count}));
    } else {
        let b = count.by_cat;
        out(&format!(
            "{} unread  ASK:{} BLOCKER:{} TASK:{} INFO:{}",
            count.unread, b.ask, b.blocker, b.task, b.info
        ));
    }
    Ok(())
}
