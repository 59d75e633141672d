//! The operator's lists, for a terminal: the story, metrics, memory, recalls, sessions, gate events,
//! probes and settings, as the page reads them.

use super::{Context, print_json};
use crate::clock;
use crate::ui::{Failure, Outcome, ago, note, out, short, table};
use clap::Args;
use prism_core::Moment;
use prism_core::api::page::house::{ProbePage, ProbeRow, Settings as Stored};
use prism_core::api::page::memory::{MemoryPage, MemoryShown, MemoryView, RecallPage, RecallRow};
use prism_core::api::page::metrics::{DeliveryAnswer, MetricsAnswer};
use prism_core::api::page::story::{StoryItem, StoryPage};
use prism_core::api::page::{GatePage, GateRow, SessionPage, SessionRow};
use prism_core::limits::PAGE_ROWS;
use prism_core::text::{clip, one_line};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Characters of a text on one line of a list.
const LINE_CHARS: usize = 100;

// Which part of a list is shown. (What flattens it must not be described by this.)
#[derive(Args)]
pub struct Part {
    /// Every project, not only this one
    #[arg(long)]
    all: bool,
    /// Not before this time (ISO 8601)
    #[arg(long)]
    since: Option<String>,
    /// Before this time (ISO 8601)
    #[arg(long)]
    until: Option<String>,
    /// How many: 1 to 200 [default: 50]
    #[arg(short, long)]
    n: Option<usize>,
    /// Go on where a list ended (`next` of --json)
    #[arg(long)]
    cursor: Option<String>,
}

/// Said where a list was cut.
pub const MORE: &str = "there are more: --json shows `next`, which --cursor takes";

/// A list of the server's.
pub struct List<T, Row> {
    pub verb: &'static str,
    pub ask: Value,
    /// Said of an empty one.
    pub none: &'static str,
    /// Where an answer has its rows.
    pub rows: fn(&T) -> &[Row],
}

impl Part {
    /// Asks for this part of a list, and draws it, a line a row.
    pub async fn show<T: DeserializeOwned, Row>(
        self,
        context: &Context,
        list: List<T, Row>,
        line: impl Fn(&Row, Moment) -> Vec<String>,
    ) -> Outcome {
        let mut ask = list.ask;
        // Without a filter there is nothing; with one, nothing like that.
        let asks = |value: &Value| match value {
            Value::Null => false,
            Value::Array(some) => !some.is_empty(),
            _ => true,
        };
        let fields = ask
            .as_object()
            .into_iter()
            .flat_map(|fields| fields.values());
        let filtered = fields.into_iter().any(asks)
            || self.since.is_some()
            || self.until.is_some()
            || self.cursor.is_some();
        ask["since"] = json!(self.since);
        ask["until"] = json!(self.until);
        ask["limit"] = json!(self.n.unwrap_or(PAGE_ROWS));
        ask["cursor"] = json!(self.cursor);
        let (found, answer): (T, Value) = context.ask_about(list.verb, ask, self.all).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let now = clock::now();
        let rows = (list.rows)(&found).iter();
        let rows: Vec<Vec<String>> = rows.map(|row| line(row, now)).collect();
        let none = if filtered {
            "nothing matches"
        } else {
            list.none
        };
        let more = answer["next"].is_string();
        match (rows.is_empty(), more) {
            (true, false) => out(none),
            (true, true) => out("nothing in the rows that were looked at"),
            (false, _) => out(&table(&rows)),
        }
        if more {
            note(MORE);
        }
        Ok(())
    }
}

pub fn words(words: &[String]) -> Option<String> {
    Some(words.join(" ")).filter(|w| !w.is_empty())
}

/// Two flags of which one says yes and the other no.
fn either(yes: bool, no: bool) -> Option<bool> {
    (yes || no).then_some(yes)
}

pub fn line(text: &str) -> String {
    clip(&one_line(text), LINE_CHARS)
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism story                      what happened here lately, newest first
  prism story --signal 2901d7ce    one task: who looked what up, what was done, what you said of it")]
pub struct Story {
    /// Only what belongs to this signal's conversation (id, or its first 8 digits)
    #[arg(long, value_name = "SIGNAL_ID")]
    signal: Option<String>,
    /// Only what this agent did
    #[arg(long)]
    identity: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Story {
    pub async fn run(self, context: Context) -> Outcome {
        let list = List {
            verb: "story",
            ask: json!({"signal_id": self.signal, "identity": self.identity}),
            none: "nothing has happened here yet",
            rows: |story: &StoryPage| story.items.as_slice(),
        };
        let drawn = |item: &StoryItem, now| {
            let to = item.to.as_deref().map(|to| format!(" → {}", one_line(to)));
            let from = item.links.first().map(|l| {
                let why = l.why.name().replace('_', " ");
                format!("({why} {} {})", l.kind, short(l.id))
            });
            vec![
                ago(item.at, now),
                item.kind.to_string(),
                short(item.id),
                format!("{}{}", one_line(&item.identity), to.unwrap_or_default()),
                item.what.clone(),
                line(item.effect.as_deref().unwrap_or(&item.text)),
                from.unwrap_or_default(),
            ]
        };
        self.part.show(&context, list, drawn).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism metrics                                  the last 28 days
  prism metrics --only repeats,corrections --json
  prism metrics --since 2026-01-01T00:00:00Z --bucket week --all

docs/metrics.md says what each counts.")]
pub struct Metrics {
    /// Every project, not only this one
    #[arg(long)]
    all: bool,
    /// Not before this time (ISO 8601) [default: 28 days ago]
    #[arg(long)]
    since: Option<String>,
    /// Before this time (ISO 8601) [default: now]
    #[arg(long)]
    until: Option<String>,
    /// hour, day or week
    #[arg(long)]
    bucket: Option<String>,
    /// Only these, separated by commas: confirmations, misclassification, corrections, dead_ends,
    /// surfaces, repeats, recall, gate
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Metrics {
    pub async fn run(self, context: Context) -> Outcome {
        let ask = json!({"since": self.since, "until": self.until, "bucket": self.bucket, "only": self.only});
        let (metrics, answer): (MetricsAnswer, _) =
            context.ask_about("metrics", ask, self.all).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        out(&table(&drawn(&metrics)));
        for back in &metrics.looked_back {
            let metric = back.metric.name().replace('_', " ");
            note(&format!(
                "{metric}: there is more than counts at once; the newest {} do, from {} on",
                back.rows, back.to
            ));
        }
        Ok(())
    }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".into(), |s| format!("{:.0} %", s * 100.0))
}

fn drawn(m: &MetricsAnswer) -> Vec<Vec<String>> {
    let mut rows: Vec<[String; 3]> = Vec::new();
    let mut say = |what: &str, figure: String, of: String| rows.push([what.into(), figure, of]);
    let share = |part: u64, whole: u64| percent((whole > 0).then(|| part as f64 / whole as f64));
    if let Some(c) = &m.confirmations {
        say(
            "verdicts that say works",
            share(c.works, c.total),
            format!("of {}", c.total),
        );
    }
    for agent in m.misclassification.iter().flatten() {
        let of = format!("of {} reviewed", agent.reviewed);
        let what = format!("rejected, captured by {}", one_line(&agent.agent));
        say(&what, percent(agent.rate), of);
    }
    for pattern in m.corrections.iter().flatten().take(5) {
        say(
            "corrections while",
            pattern.total.to_string(),
            line(&pattern.label),
        );
    }
    if let Some(d) = &m.dead_ends {
        let again = format!("{} walked into again", d.again_total);
        say("dead ends", d.total.to_string(), again);
    }
    for s in m.surfaces.iter().flatten() {
        let of = format!(
            "{} confirmations, {} corrections",
            s.confirmations, s.corrections
        );
        say(&format!("confirmed on {}", s.surface), percent(s.rate), of);
    }
    if let Some(r) = &m.repeats {
        let (repeated, all) = r
            .weeks
            .iter()
            .fold((0, 0), |(r, n), w| (r + w.repeated, n + w.corrections));
        say(
            "corrections typed again",
            share(repeated, all),
            format!("of {all}"),
        );
    }
    if let Some(r) = &m.recall {
        say(
            "recalls of which anything was cited",
            share(r.cited_total, r.total),
            format!("of {}", r.total),
        );
        let of = format!("of {} rows", r.rows);
        say("never recalled", r.rows_never_recalled.to_string(), of);
        let rot = r.rot.map_or_else(|| "–".into(), |rot| format!("{rot:.2}"));
        say("memory rot", rot, "0 is fresh, 1 is rotten".into());
    }
    if let Some(g) = &m.gate {
        let precision = g
            .precision
            .map_or_else(|| "–".into(), |p| format!("{p:.2}"));
        let of = format!(
            "target {:.1}, {} of {} labels",
            g.precision_target, g.labelled, g.labels_needed
        );
        say("precision of the gate", precision, of);
    }
    rows.into_iter().map(Vec::from).collect()
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism delivery           drops and times by surface and machine
  prism delivery --runs    each probe, newest first")]
pub struct Delivery {
    /// The probes themselves
    #[arg(long)]
    runs: bool,
    /// complete, partial or timeout; with --runs
    #[arg(long, requires = "runs")]
    outcome: Option<String>,
    /// Probes of this identity; with --runs
    #[arg(long, requires = "runs")]
    identity: Option<String>,
    /// Probes on this kind of host; with --runs
    #[arg(long, requires = "runs")]
    surface: Option<String>,
    /// Probes on this machine; with --runs
    #[arg(long, requires = "runs")]
    machine: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Delivery {
    pub async fn run(self, context: Context) -> Outcome {
        if self.runs {
            let list = List {
                verb: "probe_list",
                ask: json!({"outcome": self.outcome, "identity": self.identity,
                    "surface": self.surface, "machine_id": self.machine}),
                none: "no probe has run: `prism loopback-test --as <identity>` runs one",
                rows: |page: &ProbePage| page.runs.as_slice(),
            };
            let drawn = |run: &ProbeRow, now| {
                let missing: Vec<_> = run.missing_layers.iter().map(|l| l.name()).collect();
                vec![
                    short(run.loopback_id),
                    run.outcome.to_string(),
                    one_line(&run.identity),
                    format!("{} on {}", run.surface, one_line(&run.machine_id)),
                    ago(run.finished_at, now),
                    match missing.is_empty() {
                        true => String::new(),
                        false => format!("without {}", missing.join(", ")),
                    },
                ]
            };
            return self.part.show(&context, list, drawn).await;
        }
        if self.part.n.is_some() || self.part.cursor.is_some() {
            return Err(Failure::Unable {
                message: "-n and --cursor go through the probes".into(),
                hint: Some("add --runs, or leave them out".into()),
            });
        }
        let ask = json!({"since": self.part.since, "until": self.part.until});
        let filtered = self.part.since.is_some() || self.part.until.is_some();
        let (found, answer): (DeliveryAnswer, _) =
            context.ask_about("delivery", ask, self.part.all).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let rows: Vec<Vec<String>> = found
            .places
            .iter()
            .map(|place| {
                let times = place.signals.iter().filter_map(|s| {
                    let p50 = s.p50_ms?;
                    Some(format!("{} {p50:.0} ms", s.state))
                });
                vec![
                    format!("{} on {}", place.surface, one_line(&place.machine_id)),
                    format!("{} dropped", percent(place.drop_rate)),
                    format!("{} probes", place.runs),
                    times.collect::<Vec<_>>().join(", "),
                ]
            })
            .collect();
        match (rows.is_empty(), filtered) {
            (true, true) => out("nothing was sent or probed in this time"),
            (true, false) => out("nothing was sent or probed in the last 28 days"),
            (false, _) => out(&table(&rows)),
        }
        for (what, from) in [
            ("probes", found.probes_from),
            ("signals", found.signals_from),
        ] {
            if let Some(from) = from {
                note(&format!(
                    "there are more {what} than count at once: these are those from {from} on"
                ));
            }
        }
        Ok(())
    }
}

/// `prism memory list`
#[derive(Args)]
pub struct MemoryList {
    /// Only these kinds, separated by commas
    #[arg(long, value_delimiter = ',')]
    kinds: Vec<String>,
    /// Written by this agent
    #[arg(long)]
    identity: Option<String>,
    /// Words that stand in them
    words: Vec<String>,
    #[command(flatten)]
    part: Part,
}

impl MemoryList {
    pub async fn run(self, context: &Context) -> Outcome {
        let list = List {
            verb: "memory_list",
            ask: json!({"kinds": self.kinds, "identity": self.identity, "words": words(&self.words)}),
            none: "nothing of the kind is remembered",
            rows: |page: &MemoryPage| page.rows.as_slice(),
        };
        let drawn = |row: &MemoryView, now| {
            vec![
                short(row.id),
                row.kind.clone(),
                one_line(&row.identity),
                ago(row.created_at, now),
                row.verdict.clone().unwrap_or_default(),
                match &row.title {
                    Some(title) => line(&format!("{title}: {}", row.text)),
                    None => line(&row.text),
                },
            ]
        };
        self.part.show(context, list, drawn).await
    }
}

/// `prism memory show`
#[derive(Args)]
pub struct MemoryShow {
    /// The row's id, or its first 8 digits
    id: String,
}

impl MemoryShow {
    pub async fn run(self, context: &Context) -> Outcome {
        let ask = json!({"id": self.id});
        let (shown, answer): (MemoryShown, _) = context.ask_about("memory_show", ask, true).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let (style, now) = (context.style, clock::now());
        let row = &shown.row;
        out(&format!(
            "{} {}  {}",
            style.bold(&short(row.id)),
            row.kind,
            style.dim(&format!(
                "{} {}, {}",
                one_line(&row.identity),
                ago(row.created_at, now),
                row.pid
            ))
        ));
        if let Some(title) = &row.title {
            out(&style.bold(&one_line(title)));
        }
        for text in row.text.lines() {
            out(&one_line(text));
        }
        let verdicts: Vec<Vec<String>> = shown
            .verdicts
            .iter()
            .map(|v| {
                let notes = v.notes.as_deref().map(line).unwrap_or_default();
                vec![format!("  {}", v.verdict), one_line(&v.confirmed_by), notes]
            })
            .collect();
        if !verdicts.is_empty() {
            out(&style.bold("verdicts"));
            out(&table(&verdicts));
        }
        if shown.versions.len() > 1 {
            out(&format!(
                "{} versions: `prism {} get` shows each",
                shown.versions.len(),
                row.kind
            ));
        }
        let r = &shown.recalls;
        out(&style.dim(&format!(
            "recalled {} times lately, cited {}",
            r.shown, r.cited
        )));
        Ok(())
    }
}

/// `prism memory recalls`
#[derive(Args)]
pub struct Recalls {
    /// Asked by this agent
    #[arg(long)]
    identity: Option<String>,
    /// Asked in this session (id, or its first 8 digits)
    #[arg(long)]
    session: Option<String>,
    /// Only those of which something was cited
    #[arg(long, conflicts_with = "uncited")]
    cited: bool,
    /// Only those of which nothing was cited
    #[arg(long)]
    uncited: bool,
    /// Words that stand in the question
    words: Vec<String>,
    #[command(flatten)]
    part: Part,
}

impl Recalls {
    pub async fn run(self, context: &Context) -> Outcome {
        let list = List {
            verb: "recall_list",
            ask: json!({"identity": self.identity, "session_id": self.session,
                "cited": either(self.cited, self.uncited), "words": words(&self.words)}),
            none: "nobody has asked memory anything",
            rows: |page: &RecallPage| page.events.as_slice(),
        };
        let drawn = |event: &RecallRow, now| {
            let cited = event.results.iter().filter(|r| r.cited).count();
            vec![
                short(event.id),
                one_line(&event.identity),
                ago(event.at, now),
                format!("{:.0} ms", event.latency_ms),
                format!("{} shown, {cited} cited", event.results.len()),
                line(&event.query),
            ]
        };
        self.part.show(context, list, drawn).await
    }
}

/// `prism session list`
#[derive(Args)]
pub struct Sessions {
    /// open, released or all
    #[arg(long, default_value = "all")]
    which: String,
    /// Of this agent
    #[arg(long)]
    identity: Option<String>,
    /// On this kind of host
    #[arg(long)]
    surface: Option<String>,
    #[command(flatten)]
    part: Part,
}

impl Sessions {
    pub async fn run(self, context: &Context) -> Outcome {
        let list = List {
            verb: "session_list",
            ask: json!({"which": self.which, "identity": self.identity, "surface": self.surface}),
            none: "no session has been opened",
            rows: |page: &SessionPage| page.sessions.as_slice(),
        };
        let drawn = |s: &SessionRow, now| {
            vec![
                short(s.session_id),
                one_line(&s.identity),
                s.state.to_string(),
                format!("{} on {}", s.surface, one_line(&s.machine_id)),
                format!("from {}", ago(s.started_at, now)),
                match s.released_at {
                    Some(at) => format!("to {}", ago(at, now)),
                    None => format!("seen {}", ago(s.last_seen_at, now)),
                },
                s.release_reason.clone().unwrap_or_default(),
            ]
        };
        self.part.show(context, list, drawn).await
    }
}

/// `prism gate list`
#[derive(Args)]
pub struct GateList {
    /// warned or satisfied
    #[arg(long)]
    outcome: Option<String>,
    /// Of this agent
    #[arg(long)]
    identity: Option<String>,
    /// Only warnings that have a label
    #[arg(long, conflicts_with = "unlabelled")]
    labelled: bool,
    /// Only warnings that wait for one
    #[arg(long)]
    unlabelled: bool,
    #[command(flatten)]
    part: Part,
}

impl GateList {
    pub async fn run(self, context: &Context) -> Outcome {
        let labelled = either(self.labelled, self.unlabelled);
        let list = List {
            verb: "gate_list",
            ask: json!({"outcome": self.outcome, "identity": self.identity, "labelled": labelled}),
            none: "the gate has noticed nothing",
            rows: |page: &GatePage| page.events.as_slice(),
        };
        let drawn = |e: &GateRow, now| {
            let label = e.right.map(|right| if right { "right" } else { "wrong" });
            vec![
                short(e.id),
                e.outcome.to_string(),
                e.task_class.clone(),
                one_line(&e.persona),
                e.trigger.clone(),
                ago(e.occurred_at, now),
                label.unwrap_or_default().to_owned(),
                e.assignment.as_deref().map(line).unwrap_or_default(),
            ]
        };
        self.part.show(context, list, drawn).await
    }
}

/// Projects, keys, hosts, what is kept, and how large it is
pub async fn settings(context: Context) -> Outcome {
    let (s, answer): (Stored, _) = context.ask_everywhere("settings", json!({})).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let (style, now) = (context.style, clock::now());
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    out(&format!(
        "{}  operator {}, up since {}",
        style.bold(&format!("prism {}", s.server_version)),
        one_line(&s.operator),
        ago(s.started_at, now)
    ));
    let projects = s.projects.iter().map(|p| {
        vec![
            format!("  {}", p.pid),
            format!("{} personas", p.personas.len()),
            format!("{} folders", p.folders.len()),
            format!("{} rows of memory", p.memory_rows),
            if p.demo {
                "demonstration".into()
            } else {
                String::new()
            },
        ]
    });
    let hosts = s.hosts.iter().map(|h| {
        let state = if h.connected {
            "connected"
        } else {
            "not connected"
        };
        vec![format!("  {}", h.host), state.into(), h.problems.join("; ")]
    });
    let kept = s.retention.iter().map(|r| {
        let days = if r.days == 0 {
            "for ever".into()
        } else {
            format!("{} days", r.days)
        };
        vec![
            format!("  {}", r.kind),
            format!("{} rows", r.rows),
            days,
            format!("{} go next", r.going),
        ]
    });
    let stored = s.stored.rows.iter().map(|(kind, n)| {
        let at_most = s.stored.at_most.contains(kind);
        let at_most = if at_most { "at most " } else { "" };
        vec![format!("  {kind}"), format!("{at_most}{n}")]
    });
    let size = [vec![
        "  database".into(),
        mb(s.stored.database_bytes),
        format!("{} of journal", mb(s.stored.journal_bytes)),
    ]];
    for (title, rows) in [
        ("projects", projects.collect::<Vec<_>>()),
        ("hosts on this machine", hosts.collect()),
        ("kept", kept.collect()),
        ("stored", size.into_iter().chain(stored).collect()),
    ] {
        if !rows.is_empty() {
            out(&style.bold(title));
            out(&table(&rows));
        }
    }
    let browsers = s
        .keys
        .iter()
        .filter(|k| k.browser.is_some() && k.revoked_at.is_none());
    out(&style.dim(&format!(
        "{} keys, {} of them browsers (`prism key list`)",
        s.keys.iter().filter(|k| k.revoked_at.is_none()).count(),
        browsers.count()
    )));
    Ok(())
}
