//! `prism journal`, `retro`, `postmortem`, `decide`, `spec`, `plan` and `todo`.

use super::lifecycle::artifact_line;
use super::{Context, keep, print_json, print_warnings, written};
use crate::ui::{Outcome, out, short, table};
use clap::{Args, Subcommand};
use prism_core::api::memory::Artifacts;
use prism_core::text::one_line;
use serde_json::{Value, json};

#[derive(Args)]
#[command(after_help = "Examples:
  prism journal \"the seat map is calm at last\"
  prism journal - --title \"a long day\" < today.md")]
pub struct Journal {
    /// The entry; `-` reads it from standard input
    body: String,
    /// A title [default: how the entry begins]
    #[arg(long)]
    title: Option<String>,
}

impl Journal {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({"body": written(self.body)?, "title": self.title});
        keep(&context, "journal", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Example:
  prism retro --well \"tests first\" --badly \"two rewrites\" --change \"recall before planning\"")]
pub struct Retro {
    /// What went well; `-` reads it from standard input
    #[arg(long = "well", value_name = "TEXT")]
    went_well: String,
    /// What went badly
    #[arg(long = "badly", value_name = "TEXT")]
    went_badly: String,
    /// What to change
    #[arg(long, value_name = "TEXT")]
    change: String,
}

impl Retro {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({
            "went_well": written(self.went_well)?,
            "went_badly": written(self.went_badly)?,
            "change": written(self.change)?,
        });
        keep(&context, "retro", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism postmortem \"the lost migration\" --happened \"rows were gone after the upgrade\" \\
      --choice-point \"a backup could have been tried\" --prevention \"restore it once a week\"
  prism postmortem --resolve 3")]
pub struct Postmortem {
    /// What it is called
    #[arg(required_unless_present = "resolve")]
    title: Option<String>,
    /// What happened; `-` reads it from standard input
    #[arg(
        long = "happened",
        value_name = "TEXT",
        required_unless_present = "resolve"
    )]
    what_happened: Option<String>,
    /// Where checking was possible and was skipped
    #[arg(long, value_name = "TEXT", required_unless_present = "resolve")]
    choice_point: Option<String>,
    /// What keeps it from happening again
    #[arg(long, value_name = "TEXT", required_unless_present = "resolve")]
    prevention: Option<String>,
    /// A question that this answers, in the operator's words; may be given again
    #[arg(long = "asked-as", value_name = "QUESTION")]
    asked_as: Vec<String>,
    /// Close this one instead
    #[arg(
        long,
        value_name = "NUMBER",
        conflicts_with_all = ["title", "what_happened", "choice_point", "prevention"]
    )]
    resolve: Option<i64>,
}

impl Postmortem {
    pub async fn run(self, context: Context) -> Outcome {
        let request = match self.resolve {
            Some(number) => json!({ "resolve": number }),
            None => json!({
                "title": self.title,
                "what_happened": self.what_happened.map(written).transpose()?,
                "choice_point": self.choice_point.map(written).transpose()?,
                "prevention": self.prevention.map(written).transpose()?,
                "asked_as": self.asked_as,
            }),
        };
        keep(&context, "postmortem", request).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism decide \"a ring file\" --context \"a status bar asks every second\" \\
      --decision \"keep the inbox in a file\" --consequences \"a lock for its writers\"
  prism decide \"a ring in shared memory\" --context \"...\" --decision - --supersedes 4 < why.md")]
pub struct Decide {
    /// What it is called
    title: String,
    /// What made it necessary; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    context: String,
    /// What was decided; `-` reads it from standard input
    #[arg(long, value_name = "TEXT")]
    decision: String,
    /// What follows from it
    #[arg(long, value_name = "TEXT")]
    consequences: Option<String>,
    /// The decision this one replaces: its number, or its id (8 digits or more)
    #[arg(long, value_name = "NUMBER|ID")]
    supersedes: Option<String>,
    /// A question that this answers, in the operator's words; may be given again
    #[arg(long = "asked-as", value_name = "QUESTION")]
    asked_as: Vec<String>,
}

impl Decide {
    pub async fn run(self, context: Context) -> Outcome {
        let request = json!({
            "asked_as": self.asked_as,
            "title": self.title,
            "context": written(self.context)?,
            "decision": written(self.decision)?,
            "consequences": self.consequences.map(written).transpose()?,
            "supersedes": self.supersedes,
        });
        keep(&context, "decide", request).await
    }
}

#[derive(Args)]
pub struct Document {
    #[command(subcommand)]
    action: DocumentAction,
}

#[derive(Subcommand)]
enum DocumentAction {
    /// Write a new one; it gets the next number
    Create {
        /// What it is called
        title: String,
        /// The text; `-` reads it from standard input
        body: String,
    },
    /// Change one; earlier versions are kept
    Update {
        /// Which one
        number: i64,
        /// Its new title
        #[arg(long)]
        title: Option<String>,
        /// The new text; `-` reads it from standard input
        #[arg(long)]
        body: Option<String>,
        /// Such as draft, accepted or done
        #[arg(long)]
        status: Option<String>,
    },
    /// Show one
    Get {
        /// Which one
        number: i64,
        /// As it stood in this version
        #[arg(long, value_name = "VERSION")]
        at: Option<i64>,
    },
    /// List them
    List {
        /// Only those of this status
        #[arg(long)]
        status: Option<String>,
    },
}

impl Document {
    /// `kind` is `spec` or `plan`: the verb, and what it is called.
    pub async fn run(self, context: Context, kind: &str) -> Outcome {
        let request = match self.action {
            DocumentAction::Create { title, body } => {
                json!({"action": "create", "title": title, "body": written(body)?})
            }
            DocumentAction::Update {
                number,
                title,
                body,
                status,
            } => json!({
                "action": "update",
                "number": number,
                "title": title,
                "body": body.map(written).transpose()?,
                "status": status,
            }),
            DocumentAction::Get { number, at } => {
                json!({"action": "get", "number": number, "version": at})
            }
            DocumentAction::List { status } => json!({"action": "list", "status": status}),
        };
        show(&context, kind, request).await
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism todo add \"clean up old branches\"
  prism todo list
  prism todo list 4
  prism todo update 4 --status doing
  prism todo done 4")]
pub struct Todo {
    #[command(subcommand)]
    action: TodoAction,
}

#[derive(Subcommand)]
enum TodoAction {
    /// Add one; it gets the next number
    Add {
        /// What is to be done
        title: String,
        /// More about it; `-` reads it from standard input
        #[arg(long)]
        body: Option<String>,
        /// Tags, separated by commas
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        /// Files it is about, separated by commas
        #[arg(long, value_delimiter = ',')]
        paths: Vec<String>,
    },
    /// List them
    List {
        /// Only this one, whole
        #[arg(conflicts_with = "status")]
        number: Option<i64>,
        /// open, doing, blocked, done, dropped or all [default: all that are not over]
        #[arg(long)]
        status: Option<String>,
    },
    /// Change one
    Update {
        /// Which one
        number: i64,
        /// Its new title
        #[arg(long)]
        title: Option<String>,
        /// The new text; `-` reads it from standard input
        #[arg(long)]
        body: Option<String>,
        /// Its tags from now on, separated by commas
        #[arg(long, value_delimiter = ',')]
        tags: Vec<String>,
        /// Its files from now on, separated by commas
        #[arg(long, value_delimiter = ',')]
        paths: Vec<String>,
        /// open, doing, blocked, done or dropped
        #[arg(long)]
        status: Option<String>,
    },
    /// Finish one
    Done {
        /// Which one
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
            } => json!({
                "action": "add",
                "title": title,
                "body": body.map(written).transpose()?,
                "tags": tags,
                "paths": paths,
            }),
            TodoAction::List { number, status } => {
                json!({"action": "list", "number": number, "status": status})
            }
            TodoAction::Update {
                number,
                title,
                body,
                tags,
                paths,
                status,
            } => json!({
                "action": "update",
                "number": number,
                "title": title,
                "body": body.map(written).transpose()?,
                "tags": tags,
                "paths": paths,
                "status": status,
            }),
            TodoAction::Done { number } => json!({"action": "done", "number": number}),
        };
        show(&context, "todo", request).await
    }
}

/// Calls a verb of numbered things and shows what it answers: a list, one of them, or its number.
async fn show(context: &Context, kind: &str, request: Value) -> Outcome {
    let (answered, answer): (Artifacts, Value) = context.ask(kind, request).await?;
    if context.json {
        print_json(&answer);
        return Ok(());
    }
    let style = context.style;
    if let Some(items) = answered.items {
        let rows: Vec<Vec<String>> = items.iter().map(|i| artifact_line(i, style)).collect();
        out(&if rows.is_empty() {
            format!("no {kind}s")
        } else {
            table(&rows)
        });
    } else if let Some(item) = answered.item {
        out(&format!(
            "{}  {}  {}",
            style.bold(&format!("{kind} {}", item.number.unwrap_or_default())),
            one_line(&item.title),
            style.dim(&format!(
                "{}, version {}, {} {}",
                item.status,
                item.version,
                item.identity,
                short(item.id)
            ))
        ));
        for line in item.body.lines() {
            let indent = line.len() - line.trim_start_matches(' ').len();
            out(&format!("{}{}", " ".repeat(indent), one_line(line)));
        }
    } else {
        let version = answered
            .version
            .map(|v| format!(", version {v}"))
            .unwrap_or_default();
        out(&format!(
            "{kind} #{}{version}",
            answered.number.unwrap_or_default()
        ));
    }
    print_warnings(&answer);
    Ok(())
}
