//! `prism start`, `checkpoint`, `wrap`, `pickup` and `deltas`: what an agent's session did.

use super::{Context, print_json, print_warnings, written};
use crate::clock;
use crate::ui::{Failure, Outcome, Style, ago, note, out, short, table};
use clap::Args;
use prism_core::api::memory::{ArtifactView, DeltaView, DeltasAnswer, PickedUp, RuledOut, Wrapped};
use prism_core::api::{SessionBrief, SessionView, WhoisAnswer};
use prism_core::id::Quoted;
use prism_core::limits::ADDED_LIST_BYTES_MAX;
use prism_core::presence::SessionState;
use prism_core::text::{clip, one_line};
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = "Examples:
  prism start --as Texi                      the newest live session of Texi on this machine
  prism start --as Texi --session 3f36b796   another one

It shows what the session's agent was told at its start. Sessions are opened by agent hosts,
never from here.")]
pub struct Start {
    #[command(flatten)]
    which: WhichSession,
}

/// Whose work it is.
#[derive(Args)]
struct WhichSession {
    /// The session (id or its first 8 digits) [default: the newest live one on this machine]
    #[arg(long, value_name = "SESSION_ID")]
    session: Option<String>,
}

impl WhichSession {
    /// The named session of the identity, else its newest live one on this machine.
    async fn choose(&self, context: &Context) -> Result<SessionView, Failure> {
        let Some(identity) = &context.identity else {
            return Err(Failure::Unable {
                message: "this acts on an agent's session; the operator has none".into(),
                hint: Some("say whose with --as, or set PRISM_AGENT_IDENTITY".into()),
            });
        };
        let (whois, _): (WhoisAnswer, _) = context
            .ask("whois", json!({ "identity": identity }))
            .await?;
        let mut matching: Vec<SessionView> = match &self.session {
            Some(text) => {
                let quoted = Quoted::parse("--session", text)?;
                let named = whois.sessions.into_iter();
                named.filter(|s| quoted.begins(s.session_id)).collect()
            }
            None => {
                let here = crate::config::machine_id();
                let live = whois.sessions.into_iter();
                live.filter(|s| s.machine_id == here && s.state != SessionState::Stale)
                    // They come newest verb first.
                    .take(1)
                    .collect()
            }
        };
        match (matching.pop(), matching.is_empty(), &self.session) {
            (Some(session), true, _) => Ok(session),
            (Some(_), false, _) => Err(Failure::Unable {
                message: format!("more than one open session of {identity} begins so"),
                hint: Some("quote more digits of its id".into()),
            }),
            (None, _, Some(text)) => Err(Failure::Unable {
                message: format!("{identity} has no open session {text:?}"),
                hint: Some(format!("`prism whois {identity}` lists them")),
            }),
            (None, _, None) => Err(Failure::Unable {
                message: format!("{identity} has no live session on this machine"),
                hint: Some(format!(
                    "start its agent host, or name a session with --session; \
                     `prism whois {identity}` lists them"
                )),
            }),
        }
    }
}

impl Start {
    pub async fn run(self, context: Context) -> Outcome {
        let session = self.which.choose(&context).await?;
        // Looking is no verb of the agent's: it must not open the session in its place.
        let (brief, answer): (SessionBrief, Value) = context
            .ask_in(Some(session.session_id), "session_brief", json!({}))
            .await?;
        if context.json {
            print_json(&answer["started"]);
            return Ok(());
        }
        let started = brief.started;
        let style = context.style;
        out(&format!(
            "{}  {}  {}",
            style.bold(&started.identity),
            started.pid,
            style.dim(&format!(
                "{} {}",
                started.surface,
                short(started.session_id)
            ))
        ));
        let unread = super::roster::buckets(started.unread, style);
        out(&format!("waiting: {unread}"));
        for peer in &started.peers {
            out(&style.dim(&format!(
                "beside it: {} on {} ({}, {})",
                peer.identity, peer.machine_id, peer.surface, peer.state
            )));
        }
        section("recent deltas", &started.recent_deltas, style, delta_line);
        section("open todos", &started.open_todos, style, artifact_line);
        section(
            "open postmortems",
            &started.open_postmortems,
            style,
            artifact_line,
        );
        section(
            "not to be captured again",
            &started.anti_examples,
            style,
            |input, style| {
                vec![
                    short(input.id),
                    input.class.clone(),
                    style.dim(&clip(&one_line(&input.prompt_text), 80)),
                ]
            },
        );
        if let Some(unwrapped) = &started.unwrapped_session {
            crate::ui::note(&format!(
                "warning: session {} ended without a wrap. {}",
                short(unwrapped.session_id),
                unwrapped.remediation
            ));
        }
        Ok(())
    }
}

/// A heading and a table below it; nothing when there is nothing to show.
fn section<T>(name: &str, items: &[T], style: Style, row: impl Fn(&T, Style) -> Vec<String>) {
    if items.is_empty() {
        return;
    }
    out(&style.bold(name));
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| {
            let mut cells = row(item, style);
            cells[0].insert_str(0, "  ");
            cells
        })
        .collect();
    out(&table(&rows));
}

fn delta_line(delta: &DeltaView, style: Style) -> Vec<String> {
    vec![
        style.dim(&short(delta.id)),
        delta.kind.replace('_', " "),
        clip(&one_line(&delta.summary), 80),
        style.dim(&format!(
            "{} {}",
            delta.identity,
            ago(delta.created_at, clock::now())
        )),
    ]
}

/// A todo, spec, plan, decision or postmortem in one line.
pub fn artifact_line(item: &ArtifactView, style: Style) -> Vec<String> {
    vec![
        format!("#{}", item.number.unwrap_or_default()),
        item.status.clone(),
        clip(&one_line(&item.title), 80),
        style.dim(&format!(
            "{} {}",
            item.identity,
            ago(item.created_at, clock::now())
        )),
    ]
}

#[derive(Args)]
pub struct Record {
    /// What happened; `-` reads it from standard input
    summary: String,
    /// What comes next
    #[arg(long, value_name = "TEXT")]
    next: Option<String>,
    /// Something that stays open; may be given again
    #[arg(long = "open-loop", value_name = "TEXT")]
    open_loops: Vec<String>,
    /// A file that was changed; may be given again
    #[arg(long = "file", value_name = "PATH")]
    touched_files: Vec<String>,
    /// What the operator sees now, in their words
    #[arg(long = "effect", value_name = "TEXT")]
    operator_visible_effect: Option<String>,
    /// A dead end: what was tried and what came of it; may be given again
    #[arg(long = "ruled-out", num_args = 2, value_names = ["APPROACH", "OUTCOME"])]
    ruled_out: Vec<String>,
    /// The delta that ruled it out, one for each --ruled-out in turn
    #[arg(long, value_name = "DELTA_ID", requires = "ruled_out")]
    ruled_out_in: Vec<String>,
    /// A question that this answers, in the operator's words; may be given again
    #[arg(long = "asked-as", value_name = "QUESTION")]
    asked_as: Vec<String>,
    #[command(flatten)]
    which: WhichSession,
}

impl Record {
    /// Writes the session's work down; `verb` is `checkpoint` or `wrap`.
    pub async fn run(self, context: Context, verb: &str) -> Outcome {
        let session = self.which.choose(&context).await?;
        let cwd = std::env::current_dir().map_err(anyhow::Error::from)?;
        let mut delta_of = self.ruled_out_in.into_iter();
        let ruled_out: Vec<RuledOut> = self
            .ruled_out
            .chunks_exact(2)
            .map(|pair| RuledOut {
                approach: pair[0].clone(),
                outcome: pair[1].clone(),
                ruled_out_in_delta: delta_of.next(),
            })
            .collect();
        let (surfaces, warnings) = crate::config::surfaces(&cwd, ADDED_LIST_BYTES_MAX);
        let mut request = json!({
            "summary": written(self.summary)?,
            "next": self.next,
            "open_loops": self.open_loops,
            "operator_visible_effect": self.operator_visible_effect,
            "tried_and_ruled_out": ruled_out,
            "asked_as": self.asked_as,
            "surfaces": surfaces,
            "root": crate::config::repository(&cwd),
        });
        // What the session had found at its start is known to its host alone: nobody guesses here.
        if !self.touched_files.is_empty() {
            request["touched_files"] = json!(self.touched_files);
        }
        let (kept, mut answer): (Wrapped, Value) = context
            .ask_in(Some(session.session_id), verb, request)
            .await?;
        if let Value::Object(answer) = &mut answer {
            crate::client::warn_beside(answer, warnings);
        }
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let ended = if verb == "wrap" {
            format!("; session {} is over", short(session.session_id))
        } else {
            String::new()
        };
        out(&format!("kept as {}{ended}", short(kept.delta_id)));
        print_warnings(&answer);
        Ok(())
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism pickup Donna                         where Donna left off
  prism pickup --from-session 3f36b796       where one session left off
  prism pickup --as Texi                     where Texi left off itself")]
pub struct Pickup {
    /// Whose work to take over [default: your own]
    from_identity: Option<String>,
    /// Take over from this session (id or its first 8 digits)
    #[arg(long, value_name = "SESSION_ID", conflicts_with = "from_identity")]
    from_session: Option<String>,
}

impl Pickup {
    pub async fn run(self, context: Context) -> Outcome {
        let request =
            json!({"from_identity": self.from_identity, "from_session": self.from_session});
        let (picked, answer): (PickedUp, _) = context.ask("pickup", request).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let style = context.style;
        if let Some(wrap) = &picked.wrap {
            out(&whole(wrap, style));
        }
        section("deltas", &picked.deltas, style, delta_line);
        section("open todos", &picked.open_todos, style, artifact_line);
        section("decisions", &picked.decisions, style, artifact_line);
        print_warnings(&answer);
        Ok(())
    }
}

/// One delta with everything it says.
fn whole(delta: &DeltaView, style: Style) -> String {
    let mut lines = vec![format!(
        "{}  {}",
        style.bold(&delta.kind.replace('_', " ")),
        style.dim(&format!(
            "{} · {} · {}",
            ago(delta.created_at, clock::now()),
            delta.identity,
            short(delta.id)
        ))
    )];
    lines.extend(
        delta
            .summary
            .lines()
            .map(|line| format!("  {}", one_line(line))),
    );
    let mut say = |name: &str, text: &str| {
        lines.push(format!("  {} {}", style.dim(name), one_line(text)));
    };
    for (name, text) in [
        ("about:", &delta.subject),
        ("the operator sees:", &delta.operator_sees),
        ("would break it:", &delta.would_break_it),
    ] {
        if let Some(text) = text {
            say(name, text);
        }
    }
    for (name, list) in [
        ("piece:", &delta.pieces),
        ("tag:", &delta.tags),
        ("file:", &delta.touched_files),
    ] {
        list.iter().for_each(|item| say(name, item));
    }
    if let Some(next) = &delta.next {
        say("next:", next);
    }
    for open in &delta.open_loops {
        say("open:", open);
    }
    if let Some(effect) = &delta.operator_visible_effect {
        say("the operator sees:", effect);
    }
    for attempt in &delta.tried_and_ruled_out {
        say(
            "ruled out:",
            &format!("{}: {}", attempt.approach, attempt.outcome),
        );
    }
    lines.join("\n")
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism deltas
  prism deltas 2901d7ce            one of them, whole
  prism deltas --kind wrap -n 5
  prism deltas --since 2026-03-01T00:00:00Z --json")]
pub struct Deltas {
    /// Only this one, and all of it
    id: Option<String>,
    /// At most so many
    #[arg(short, default_value_t = 20)]
    n: usize,
    /// Only this kind, such as wrap, checkpoint or note
    #[arg(long)]
    kind: Option<String>,
    /// Not before this time (ISO 8601)
    #[arg(long)]
    since: Option<String>,
}

impl Deltas {
    pub async fn run(self, context: Context) -> Outcome {
        let one = self.id.is_some();
        let request = json!({"id": self.id, "n": self.n, "kind": self.kind, "since": self.since});
        let (listed, answer): (DeltasAnswer, _) = context.ask("deltas", request).await?;
        if context.json {
            print_json(&answer);
        } else if one {
            for delta in &listed.deltas {
                out(&whole(delta, context.style));
            }
        } else if listed.deltas.is_empty() {
            out("no deltas");
        } else {
            let rows: Vec<Vec<String>> = listed
                .deltas
                .iter()
                .map(|d| delta_line(d, context.style))
                .collect();
            out(&table(&rows));
            if let Some(more) = listed.more {
                note(&format!(
                    "{more} more did not fit into one answer: name one, or a --kind"
                ));
            }
        }
        Ok(())
    }
}
