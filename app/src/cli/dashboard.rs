//! `prism dashboard`, `prism demo`, and the lists that the page shows, for a terminal.

use super::lists::{List, MORE, Part, line as excerpt, words};
use super::{Context, print_json};
use crate::clock;
use crate::ui::{Failure, Outcome, ago, note, out, short, table};
use clap::Args;
use prism_core::api::page::EVERYWHERE;
use prism_core::api::page::house::{DashboardLink, DemoDone};
use prism_core::api::page::signals::{InboxPage, SignalPage, SignalRow, SignalShown};
use prism_core::api::page::{Agents, Now};
use prism_core::ring::ByCategory;
use prism_core::signal::Category;
use prism_core::text::one_line;
use serde_json::json;
use std::process::{Command, Stdio};

#[derive(Args)]
#[command(after_help = "Examples:
  prism dashboard            opens the page in the browser, signed in
  prism dashboard --print    prints the link: for another browser, or through an SSH tunnel

The link is good for 30 seconds and for one use. `prism key list` shows browsers, `prism key revoke` signs one out.")]
pub struct Dashboard {
    /// Print the link instead of opening it
    #[arg(long)]
    print: bool,
}

impl Dashboard {
    pub async fn run(self, context: Context) -> Outcome {
        if let Some(identity) = &context.identity {
            return Err(Failure::Unable {
                message: format!(
                    "the page is the operator's, and this would open it as {identity}"
                ),
                hint: Some("unset PRISM_AGENT_IDENTITY and leave out --as".into()),
            });
        }
        let (link, answer): (DashboardLink, _) =
            context.ask_everywhere("dashboard_link", json!({})).await?;
        if context.json {
            print_json(&answer);
        } else if self.print || !opened(&link.url) {
            out(&link.url);
            if !self.print {
                note("no browser could be opened here: open the link within 30 seconds");
            }
        } else {
            out("opened in the browser");
        }
        Ok(())
    }
}

/// Hands a link to the desktop's browser; false where there is none.
fn opened(url: &str) -> bool {
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else {
        "xdg-open"
    };
    Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism demo             a week of four agents, in the project PID-DEMO
  prism demo --remove    takes it away, with everything in it")]
pub struct Demo {
    /// Take the demonstration away
    #[arg(long)]
    remove: bool,
    /// The same week with other delays and other ids; the same number gives the same ones
    #[arg(long)]
    seed: Option<u64>,
}

impl Demo {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({"remove": self.remove, "seed": self.seed});
        let (done, answer): (DemoDone, _) = context.ask_everywhere("demo", request).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        out(&match (self.remove, done.changed) {
            (false, true) => format!(
                "{} holds a week of four agents; `prism dashboard` shows it, `prism demo --remove` takes it away",
                done.pid
            ),
            (false, false) => format!("{} is there already", done.pid),
            (true, true) => format!("{} is gone, with everything in it", done.pid),
            (true, false) => "there was no demonstration".to_owned(),
        });
        Ok(())
    }
}

#[derive(Args)]
pub struct NowArgs {
    /// Every project, not only this one
    #[arg(long)]
    all: bool,
}

impl NowArgs {
    pub async fn run(self, context: Context) -> Outcome {
        let (now, answer): (Now, _) = context.ask_about("now", json!({}), self.all).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let at = clock::now();
        let mut said = false;
        let mut part = |title: &str, rows: Vec<Vec<String>>, more: u64, which: &str| {
            if rows.is_empty() {
                return;
            }
            said = true;
            out(title);
            out(&table(&rows));
            if more > 0 {
                out(&format!("and {more} more{which}"));
            }
        };
        let rows = |signals: &[SignalRow]| signals.iter().map(line).collect();
        let which = by_category(now.to_me_left);
        part("to you", rows(&now.to_me), now.to_me_more, &which);
        let which = by_category(now.unread_left);
        part("unread", rows(&now.unread), now.unread_more, &which);
        let waiting = now.waiting.iter().map(|s| {
            vec![
                one_line(&s.identity),
                s.waits_for.map(|w| w.to_string()).unwrap_or_default(),
                s.waits_since
                    .map(|since| ago(since, at))
                    .unwrap_or_default(),
                format!("{} on {}", s.surface, one_line(&s.machine_id)),
            ]
        });
        part("waiting for you", waiting.collect(), 0, "");
        let inputs = now.inputs.iter().map(|i| {
            vec![
                short(i.id),
                i.class.to_string(),
                one_line(&i.captured_via),
                excerpt(&i.prompt_text),
            ]
        });
        part("to review", inputs.collect(), now.inputs_more, "");
        let warnings = now.warnings.iter().map(|w| {
            vec![
                short(w.id),
                one_line(&w.persona),
                w.trigger.clone(),
                w.assignment.clone().unwrap_or_default(),
            ]
        });
        part(
            "warnings to label",
            warnings.collect(),
            now.warnings_more,
            "",
        );
        if !said {
            out("nothing waits on you");
        }
        Ok(())
    }
}

#[derive(Args)]
pub struct AgentsArgs {
    /// Every project, not only this one
    #[arg(long)]
    all: bool,
}

impl AgentsArgs {
    pub async fn run(self, context: Context) -> Outcome {
        let (found, answer): (Agents, _) = context.ask_about("agents", json!({}), self.all).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        let at = clock::now();
        let rows: Vec<Vec<String>> = found
            .agents
            .iter()
            .filter(|a| !a.operator)
            .map(|a| {
                let unread = a.unread.ask + a.unread.blocker + a.unread.task + a.unread.info;
                let doing = a.task.as_ref().map(|t| t.summary.clone());
                let doing = doing.or(a.last_delta.as_ref().map(|d| d.summary.clone()));
                vec![
                    one_line(&a.identity),
                    a.state.to_string(),
                    format!("{unread} unread"),
                    a.reachable
                        .as_ref()
                        .map(|r| format!("{} {}", r.state, ago(r.at, at)))
                        .unwrap_or_default(),
                    one_line(&doing.unwrap_or_default()),
                ]
            })
            .collect();
        out(&table(&rows));
        Ok(())
    }
}

#[derive(Args)]
pub struct Inbox {
    /// Whose [default: the operator's]
    identity: Option<String>,
    /// How many
    #[arg(short, long, default_value_t = 50)]
    n: usize,
    /// Go on where a list ended (`next` of --json)
    #[arg(long)]
    cursor: Option<String>,
}

impl Inbox {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({"identity": self.identity, "limit": self.n, "cursor": self.cursor});
        let (inbox, answer): (InboxPage, _) = context.ask("inbox", request).await?;
        if context.json {
            print_json(&answer);
        } else if inbox.signals.is_empty() {
            out(&format!("nothing waits for {}", one_line(&inbox.identity)));
        } else {
            show(&inbox.signals);
            if inbox.next.is_some() {
                note(MORE);
            }
        }
        Ok(())
    }
}

/// `prism signals list`
#[derive(Args)]
pub struct ListArgs {
    /// From or to this identity
    #[arg(long)]
    identity: Option<String>,
    /// Sent by this identity
    #[arg(long)]
    from: Option<String>,
    /// Sent to this identity
    #[arg(long)]
    to: Option<String>,
    /// INFO, TASK, ASK or BLOCKER
    #[arg(long)]
    category: Option<String>,
    /// TaskAssigned, Question, ...
    #[arg(long = "type", value_name = "TYPE")]
    signal_type: Option<String>,
    /// waiting, drained, acted, dismissed, expired, recalled or failed
    #[arg(long)]
    state: Option<String>,
    /// Probes and their echoes too
    #[arg(long)]
    probes: bool,
    /// Words that stand in them
    words: Vec<String>,
    #[command(flatten)]
    part: Part,
}

impl ListArgs {
    pub async fn run(self, context: Context) -> Outcome {
        let mut ask = json!({
            "identity": self.identity,
            "from": self.from,
            "to": self.to,
            "category": self.category,
            "signal_type": self.signal_type,
            "state": self.state,
            "words": words(&self.words),
        });
        if self.probes {
            ask["probes"] = json!(true);
        }
        let list = List {
            verb: "signal_list",
            ask,
            none: "no such signals",
            rows: |page: &SignalPage| page.signals.as_slice(),
        };
        self.part
            .show(&context, list, |signal, _| line(signal))
            .await
    }
}

/// `prism signals show`
#[derive(Args)]
pub struct ShowArgs {
    /// The signal's id, or its first 8 digits
    signal_id: String,
}

impl ShowArgs {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({"signal_id": self.signal_id});
        let (shown, answer): (SignalShown, _) =
            context.ask_about("signal_show", request, true).await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        out(&line(&shown.signal).join("  "));
        if let Some(stuck) = &shown.signal.stuck {
            out(&format!("stuck: {} {}", stuck.why, stuck.what_to_do));
        }
        let events: Vec<Vec<String>> = shown
            .timeline
            .iter()
            .map(|e| {
                vec![
                    e.observed_at.to_string(),
                    one_line(&e.state),
                    e.session_id.map(short).unwrap_or_default(),
                    e.detail.as_deref().map(one_line).unwrap_or_default(),
                ]
            })
            .collect();
        out(&table(&events));
        if shown.thread.len() > 1 {
            out("thread");
            show(&shown.thread);
            if shown.thread_more > 0 {
                note(&format!(
                    "and {} more in this conversation",
                    shown.thread_more
                ));
            }
        }
        Ok(())
    }
}

/// How many of each there are, the most pressing first: ` (2 ASK, 40 INFO)`.
fn by_category(n: ByCategory) -> String {
    let some = Category::BY_URGENCY.into_iter().filter(|c| n.get(*c) > 0);
    let said: Vec<String> = some.map(|c| format!("{} {c}", n.get(c))).collect();
    format!(" ({})", said.join(", "))
}

fn show(signals: &[SignalRow]) {
    let rows: Vec<Vec<String>> = signals.iter().map(line).collect();
    out(&table(&rows));
}

fn line(signal: &SignalRow) -> Vec<String> {
    let now = clock::now();
    vec![
        short(signal.signal_id),
        signal.category.map(|c| c.to_string()).unwrap_or_default(),
        format!(
            "{} → {}",
            one_line(&signal.from_identity),
            one_line(&signal.to_identity)
        ),
        signal.state.to_string(),
        ago(signal.created_at, now),
        one_line(&signal.summary),
        signal
            .stuck
            .as_ref()
            .map(|s| format!("({})", s.cause))
            .unwrap_or_default(),
    ]
}

impl Context {
    /// Asks about this project, or about all of them.
    pub async fn ask_about<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: serde_json::Value,
        all: bool,
    ) -> Result<(T, serde_json::Value), crate::ui::Failure> {
        match all {
            true => self.ask_everywhere(path, body).await,
            false => self.ask(path, body).await,
        }
    }

    /// Asks the operator's server about all projects; no project is made by it.
    pub async fn ask_everywhere<T: serde::de::DeserializeOwned>(
        &self,
        path: &str,
        body: serde_json::Value,
    ) -> Result<(T, serde_json::Value), crate::ui::Failure> {
        let mut client = self.client()?;
        if super::GLANCES.contains(&path) {
            client = client.with_patience(crate::client::GLANCE);
        }
        let answer = client.call(EVERYWHERE, path, body).await?;
        let read = serde_json::from_value(answer.clone())
            .map_err(|e| anyhow::anyhow!("the server's answer is not understood: {e}"))?;
        Ok((read, answer))
    }
}
