//! `prism connect`, `prism disconnect`: Prism in an agent host's own files, and out again.

use super::{Context, print_json};
use crate::connect::check::{self, Report};
use crate::connect::{self, Asked, End, Machine, Plan, Planned};
use crate::ui::{Failure, Outcome, note, out, table};
use clap::{Args, ValueEnum};
use prism_core::connect::{Host, Pins, Scope};
use prism_core::text::one_line;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

#[derive(Clone, Copy, ValueEnum)]
enum Name {
    ClaudeCode,
    Codex,
    Cursor,
    #[value(name = "vscode")]
    VsCode,
    Gemini,
    #[value(name = "opencode")]
    OpenCode,
}

impl From<Name> for Host {
    fn from(name: Name) -> Self {
        match name {
            Name::ClaudeCode => Self::ClaudeCode,
            Name::Codex => Self::Codex,
            Name::Cursor => Self::Cursor,
            Name::VsCode => Self::VsCode,
            Name::Gemini => Self::Gemini,
            Name::OpenCode => Self::OpenCode,
        }
    }
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism connect                          find what is installed, and ask for each
  prism connect claude-code              for all folders: server, hooks, status line
  prism connect codex --dry-run          show what would change, and change nothing
  prism connect claude-code --project    for this repository, in its own files
  prism connect claude-code --project --as Donna
                                         this folder's sessions are Donna; noted outside the repository
  prism connect claude-code --project --instructions --yes
  prism connect --check                  what each host has, and whether it works

Each file is copied to $PRISM_HOME/backups before its first change. `prism disconnect HOST` puts it
back byte for byte, or, where others changed it meanwhile, takes out our parts alone.")]
pub struct Connect {
    /// The host; without one, every host that is found
    host: Option<Name>,
    /// In the user's own files, for all folders [default]
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// In the files of this repository or folder
    #[arg(long)]
    project: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Do not ask; what needs an approval of its own is still left out
    #[arg(long, short)]
    yes: bool,
    /// Say what each host has, and whether it works
    #[arg(long, conflicts_with_all = ["dry_run", "instructions", "allow_tools"])]
    check: bool,
    /// Also put a marked block into CLAUDE.md, AGENTS.md or GEMINI.md that names the verbs that matter
    #[arg(long)]
    instructions: bool,
    /// Claude Code: also let it call Prism's tools without asking (permissions.allow)
    #[arg(long)]
    allow_tools: bool,
    /// Codex: turn its one server for all terminals off, so that each terminal has its own identity
    #[arg(long)]
    own_server: bool,
    /// Codex: leave its one server for all terminals on, though it gives each the identity of the first
    #[arg(long, conflicts_with = "own_server")]
    keep_shared_server: bool,
}

#[derive(Args)]
#[command(after_help = "Examples:
  prism disconnect claude-code           from the user's files and from this folder's
  prism disconnect codex --user
  prism disconnect gemini --dry-run")]
pub struct Disconnect {
    /// The host
    host: Name,
    /// Only from the user's own files [default: from both]
    #[arg(long, conflicts_with = "project")]
    user: bool,
    /// Only from the files of this repository or folder
    #[arg(long)]
    project: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Asks a question that yes or no answers; nothing is no.
pub fn ask(question: &str) -> bool {
    let mut stderr = std::io::stderr();
    drop(write!(stderr, "{} [y/N] ", one_line(question)));
    drop(stderr.flush());
    let mut answer = String::new();
    drop(std::io::stdin().lock().read_line(&mut answer));
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// Somebody is there to be asked, and to read the question and what it is about.
pub fn is_attended() -> bool {
    std::io::stdin().is_terminal()
        && std::io::stderr().is_terminal()
        && std::io::stdout().is_terminal()
}

impl Connect {
    fn scope(&self) -> Scope {
        if self.project {
            Scope::Project
        } else {
            Scope::User
        }
    }

    /// `pins` are what `--as` and `--pid` said, not what the environment does.
    pub async fn run(self, context: Context, pins: Pins) -> Outcome {
        let machine = Machine::look(&context.env, &context.home)?;
        if self.check {
            return self.run_check(&context, &machine);
        }
        let hosts = match self.host {
            Some(host) => vec![host.into()],
            None => self.found(&context, &machine)?,
        };
        let asks = is_attended() && !self.yes && !context.json;
        let mut answers = Vec::new();
        let mut undecided = false;
        for host in hosts {
            if self.host.is_none() && asks && !ask(&format!("Connect {}?", host.title())) {
                continue;
            }
            let plan = self.plan(&machine, host, &pins, asks)?;
            let done = self.settle(&context, &plan, asks)?;
            undecided |= done == Done::Unasked;
            if context.json {
                answers.push(answer(&plan, done));
            } else {
                self.tell(&context, &machine, &plan, done).await?;
            }
        }
        if context.json {
            print_json(&json!({"hosts": answers}));
        }
        if undecided {
            return Err(Failure::Unable {
                message: "nothing was changed: nobody is here to say yes".into(),
                hint: Some("add --yes, or run it in a terminal that shows what it prints".into()),
            });
        }
        Ok(())
    }

    /// Which hosts are here. Without a terminal somebody must say which are meant.
    fn found(&self, context: &Context, machine: &Machine) -> Result<Vec<Host>, Failure> {
        let installed = |host: &Host| machine.is_installed(*host);
        let found: Vec<Host> = Host::ALL.into_iter().filter(installed).collect();
        if found.is_empty() {
            return Err(Failure::Unable {
                message: "no agent host was found: neither its program nor its folder".into(),
                hint: Some("name one: `prism connect claude-code`".into()),
            });
        }
        if self.yes || self.dry_run || (is_attended() && !context.json) {
            return Ok(found);
        }
        let commands = found.iter().map(|h| format!("`prism connect {h} --yes`"));
        let commands: Vec<String> = commands.collect();
        let titles: Vec<&str> = found.iter().map(|h| h.title()).collect();
        Err(Failure::Unable {
            message: format!("nothing was changed. Found here: {}", titles.join(", ")),
            hint: Some(format!(
                "{}, or all of them: `prism connect --yes`",
                commands.join(", ")
            )),
        })
    }

    /// Puts together what to write; what is not ours to decide is asked first.
    fn plan(
        &self,
        machine: &Machine,
        host: Host,
        pins: &Pins,
        asks: bool,
    ) -> Result<Plan, Failure> {
        let mut asked = Asked {
            pins: pins.clone(),
            allow_tools: self.allow_tools,
            own_servers: false,
            instructions: self.instructions,
        };
        let report = check::check(
            machine,
            &crate::config::Env::default(),
            host,
            self.scope(),
            false,
        );
        if host == Host::ClaudeCode && asks && !self.dry_run && report.tools_allowed == Some(false)
        {
            asked.allow_tools |= ask(
                "Let Claude Code call Prism's tools without asking each time (permissions.allow \"mcp__prism\")?",
            );
        }
        if host == Host::Codex && self.scope() == Scope::User && !self.keep_shared_server {
            let question = "Turn off Codex's one server for all terminals, so that each terminal has its own \
                            identity (features.daemon_auto_start = false)?";
            let off = report.shared_server == Some(false) || self.own_server;
            asked.own_servers = off || (asks && !self.dry_run && ask(question));
        }
        let mut plan = connect::plan(machine, host, self.scope(), &asked)?;
        let pinned = pins.identity.is_some() || report.identity.from == "pinned";
        let decided =
            asked.own_servers || self.keep_shared_server || (asks && !self.dry_run) || pinned;
        if host == Host::Codex && self.scope() == Scope::User && !decided {
            plan.notes.push(
                "Codex's one server for all terminals stays on, and gives each the identity of the first: \
                 --own-server turns it off (features.daemon_auto_start = false), or start it with \
                 `prism coder --as NAME -- codex`"
                    .into(),
            );
        }
        Ok(plan)
    }

    fn settle(&self, context: &Context, plan: &Plan, asks: bool) -> Result<Done, Failure> {
        if plan.changes().next().is_none() {
            // Another host may have written what this one needs as well.
            if !self.dry_run {
                connect::apply(&context.home, plan)?;
            }
            return Ok(Done::Nothing);
        }
        if !context.json {
            for planned in plan.changes() {
                out(&painted(context, &planned.diff()));
            }
        }
        if self.dry_run {
            return Ok(Done::Shown);
        }
        if !self.yes && !asks {
            return Ok(Done::Unasked);
        }
        if asks && !ask(&format!("Write this for {}?", plan.host.title())) {
            return Ok(Done::Declined);
        }
        connect::apply(&context.home, plan)?;
        Ok(Done::Written)
    }

    async fn tell(&self, context: &Context, machine: &Machine, plan: &Plan, done: Done) -> Outcome {
        let title = plan.host.title();
        for said in &plan.notes {
            note(&format!("note: {said}"));
        }
        match done {
            Done::Nothing => out(&format!("{title} is connected already; nothing to change")),
            Done::Shown => out("nothing was changed (--dry-run)"),
            Done::Declined => out("nothing was changed"),
            Done::Unasked => {}
            Done::Written => {
                for planned in plan.changes() {
                    let what = if planned.is_new() { "made" } else { "changed" };
                    out(&format!("{what} {}", planned.seen.path.display()));
                }
                for step in self.next_steps(machine, plan) {
                    note(&step);
                }
                let usual = machine.places.home.join(".prism");
                if context.home.dir() != usual {
                    note(
                        "note: PRISM_HOME is set in this shell; the host needs it where it is started, too",
                    );
                }
                if is_attended() && !self.yes {
                    self.offer_import(context, machine, plan).await;
                } else if let Some(line) = import_hint(machine, plan.host) {
                    note(&line);
                }
            }
        }
        Ok(())
    }

    /// What is the user's to do after a connection was written.
    fn next_steps(&self, machine: &Machine, plan: &Plan) -> Vec<String> {
        let mut steps = Vec::new();
        let version = check::version(machine, plan.host);
        if machine.host_program(plan.host).is_some() || plan.host.tried().is_none() {
            steps.extend(
                check::version_note(plan.host, version.as_deref()).map(|n| format!("note: {n}")),
            );
        }
        let report = check::check(
            machine,
            &crate::config::Env::default(),
            plan.host,
            plan.scope,
            false,
        );
        steps.extend(report.problems.iter().map(|p| format!("warning: {p}")));
        match plan.host {
            Host::ClaudeCode => {
                if plan
                    .files
                    .iter()
                    .any(|f| f.file.path.ends_with(".mcp.json"))
                {
                    steps.push("next: Claude Code asks once whether it may use .mcp.json".into());
                }
                if report.tools_allowed == Some(false) {
                    steps.push(
                        "note: Claude Code asks before it calls Prism's tools; `prism connect claude-code --allow-tools` \
                         lets it call them unasked"
                            .into(),
                    );
                }
            }
            Host::Codex => {
                steps.push(
                    "next: approve once in Codex: it skips hooks until you did. Start `codex`, which asks \"Hooks need \
                     review\" (or type /hooks)"
                        .into(),
                );
                if plan.scope == Scope::Project {
                    steps.push("note: Codex reads .codex only in folders that you trust".into());
                }
            }
            _ => {}
        }
        match (report.identity.from, &report.identity.name) {
            ("pinned", Some(name)) => steps.push(format!(
                "every session of {} {} is {name} now",
                plan.host.title(),
                if plan.scope == Scope::User {
                    "of yours"
                } else {
                    "in this folder"
                }
            )),
            _ => {
                let program = plan.host.programs()[0];
                steps.push(format!(
                    "start it with a name: PRISM_AGENT_IDENTITY=Donna {program}"
                ));
            }
        }
        steps
    }

    /// Brings in what was said to this host in this folder before, if the user wants that.
    async fn offer_import(&self, context: &Context, machine: &Machine, plan: &Plan) {
        let found = transcripts(machine, plan.host);
        if found.is_empty() {
            return;
        }
        let question = format!(
            "Bring in what you said before in this folder ({} transcript(s) of {}), for `prism review`?",
            found.len(),
            plan.host.title()
        );
        if !ask(&question) {
            return;
        }
        let report = check::check(machine, &context.env, plan.host, plan.scope, false);
        let pinned = (report.identity.from == "pinned").then_some(report.identity.name);
        let name = pinned.flatten().unwrap_or_else(|| {
            let question = "Who was the agent (a name, such as Donna)? ";
            drop(write!(std::io::stderr(), "{question}"));
            let mut name = String::new();
            drop(std::io::stdin().lock().read_line(&mut name));
            name
        });
        let Ok(identity) = prism_core::Identity::parse(name.trim()) else {
            return note("that is no name; nothing was brought in");
        };
        let import = super::import::Import::of_transcripts(found, identity.to_string());
        // The connection stands whatever becomes of this.
        if let Err(failure) = import.bring_in(context).await
            && let Some((message, hint)) = failure.words()
        {
            note(&format!("not brought in: {message}"));
            note(&format!("hint: {}", hint.unwrap_or_default()));
        }
    }

    fn run_check(&self, context: &Context, machine: &Machine) -> Outcome {
        let hosts: Vec<Host> = match self.host {
            Some(host) => vec![host.into()],
            None => Host::ALL.into(),
        };
        let scopes = match (self.user, self.project) {
            (true, _) => vec![Scope::User],
            (_, true) => vec![Scope::Project],
            _ => vec![Scope::User, Scope::Project],
        };
        let mut reports = Vec::new();
        for host in hosts {
            for scope in &scopes {
                let at_home = machine.places.root == machine.places.home;
                if *scope == Scope::Project && at_home {
                    continue;
                }
                reports.push(check::check(machine, &context.env, host, *scope, true));
            }
        }
        let broken = |r: &&Report| is_broken(r);
        let ok = !reports.iter().any(|r| broken(&r));
        if context.json {
            print_json(&json!({"ok": ok, "hosts": reports}));
        } else {
            print_reports(context, &reports, self.host.is_some());
        }
        if ok { Ok(()) } else { Err(Failure::Negative) }
    }
}

/// Something is connected, and something about it does not work.
pub fn is_broken(report: &Report) -> bool {
    report.connected && !report.problems.is_empty()
}

#[derive(Clone, Copy, PartialEq)]
enum Done {
    Nothing,
    Shown,
    Declined,
    Unasked,
    Written,
}

fn answer(plan: &Plan, done: Done) -> Value {
    let file = |planned: &Planned| {
        let change = match (planned.is_change(), planned.is_new()) {
            (false, _) => "none",
            (true, true) => "made",
            (true, false) => "changed",
        };
        let diff = planned.is_change().then(|| planned.diff());
        json!({"file": planned.seen.path, "change": change, "diff": diff})
    };
    json!({
        "host": plan.host,
        "scope": plan.scope,
        "written": done == Done::Written,
        "files": plan.files.iter().map(file).collect::<Vec<_>>(),
        "notes": plan.notes,
    })
}

fn painted(context: &Context, diff: &str) -> String {
    let paint = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("+++") || line.starts_with("---") => context.style.bold(line),
        Some(b'+') => context.style.paint("32", line),
        Some(b'-') => context.style.paint("31", line),
        Some(b'@') => context.style.paint("36", line),
        _ => line.to_owned(),
    };
    diff.lines().map(paint).collect::<Vec<_>>().join("\n")
}

fn print_reports(context: &Context, reports: &[Report], named: bool) {
    let style = context.style;
    let mut nothing = true;
    for report in reports {
        let title = report.host.title();
        if !report.connected {
            let about_user = report.scope == Scope::User;
            if (report.installed || named) && about_user {
                nothing = false;
                let known = if report.installed {
                    ""
                } else {
                    ", and not installed"
                };
                out(&format!(
                    "{} {title}: not connected{known}; `prism connect {}`",
                    style.paint("33", "•"),
                    report.host
                ));
                // A file that cannot be read would keep it from being connected.
                for problem in &report.problems {
                    out(&format!("    {problem}"));
                }
            }
            continue;
        }
        nothing = false;
        let mark = if is_broken(report) {
            style.paint("31", "✗")
        } else {
            style.paint("32", "✓")
        };
        let version = report.version.as_deref().map(|v| format!(" {v}"));
        out(&format!(
            "{mark} {title}{} ({})",
            version.unwrap_or_default(),
            report.scope.name()
        ));
        out(&table(&rows(report)));
        for problem in &report.problems {
            out(&format!("    {} {problem}", style.paint("31", "✗")));
        }
        for said in &report.notes {
            out(&format!("    {} {said}", style.paint("33", "•")));
        }
    }
    if nothing {
        out("no agent host was found here");
    }
}

fn rows(report: &Report) -> Vec<Vec<String>> {
    let row = |about: &str, says: String| vec!["   ".to_owned(), about.to_owned(), says];
    let mut rows = Vec::new();
    if let Some(server) = &report.server {
        let says = format!("{} in {}", server.command, server.file.display());
        rows.push(row("server", says));
    }
    if let Some(hooks) = &report.hooks {
        let trusted = match hooks.trusted {
            Some("yes") => ", approved in Codex",
            Some("partly") => ", some approved in Codex",
            Some("again") => ", to be approved once more in Codex",
            Some(_) => ", not approved in Codex yet",
            None => "",
        };
        let all = hooks.present.len() + hooks.missing.len();
        let says = format!(
            "{} of {all}{trusted}, in {}",
            hooks.present.len(),
            hooks.file.display()
        );
        rows.push(row("hooks", says));
    }
    if let Some(line) = report.statusline {
        rows.push(row("status line", line.into()));
    }
    if let Some(allowed) = report.tools_allowed {
        let says = if allowed {
            "without asking"
        } else {
            "Claude Code asks first"
        };
        rows.push(row("tools", says.into()));
    }
    if let Some(shared) = report.shared_server {
        let says = if shared {
            "shared by all terminals"
        } else {
            "one for each terminal"
        };
        rows.push(row("Codex server", says.into()));
    }
    let identity = match (report.identity.from, &report.identity.name) {
        ("pinned", Some(name)) => format!("{name}, pinned"),
        (_, Some(name)) => format!("from PRISM_AGENT_IDENTITY ({name} in this shell)"),
        _ => "from PRISM_AGENT_IDENTITY (not set in this shell)".into(),
    };
    rows.push(row("identity", identity));
    rows
}

impl Disconnect {
    pub fn run(self, context: Context) -> Outcome {
        let machine = Machine::look(&context.env, &context.home)?;
        let host = Host::from(self.host);
        let scopes = match (self.user, self.project) {
            (true, _) => vec![Scope::User],
            (_, true) => vec![Scope::Project],
            _ if machine.places.root == machine.places.home => vec![Scope::User],
            _ => vec![Scope::User, Scope::Project],
        };
        let mut plans = Vec::new();
        for scope in scopes {
            // The second is worked out when the first is done: both may touch one file.
            let plan = connect::plan_end(&context.home, &machine, host, scope)?;
            if self.dry_run && !context.json {
                for planned in plan.changes() {
                    out(&painted(&context, &planned.diff()));
                }
            }
            let copies = match self.dry_run {
                true => Vec::new(),
                false => connect::apply_end(&context.home, &plan)?,
            };
            plans.push((plan, copies));
        }
        if context.json {
            let answers: Vec<Value> = plans.iter().map(|(p, c)| ended(p, c)).collect();
            print_json(&json!({"host": host, "written": !self.dry_run, "scopes": answers}));
            return Ok(());
        }
        let mut touched = false;
        for (plan, copies) in &plans {
            for planned in &plan.files {
                touched = true;
                tell_end(planned, self.dry_run);
            }
            for copy in copies {
                note(&format!("what it was before is kept as {}", copy.display()));
            }
            for said in &plan.notes {
                note(&format!("note: {said}"));
            }
        }
        if !touched {
            out(&format!(
                "{} is not connected here; nothing to change",
                host.title()
            ));
        } else if self.dry_run {
            out("nothing was changed (--dry-run)");
        }
        Ok(())
    }
}

fn tell_end(planned: &Planned, dry_run: bool) {
    if dry_run && !planned.is_change() {
        return;
    }
    let path = planned.seen.path.display();
    let says = match planned.end {
        End::Restored => format!("{path} is as it was before"),
        End::Removed => format!("{path} was ours alone and is gone"),
        End::TakenOut => {
            format!("{path}: our parts are out; the rest is as others left it")
        }
    };
    out(&says);
}

fn ended(plan: &Plan, copies: &[PathBuf]) -> Value {
    let file = |planned: &Planned| {
        json!({
            "file": planned.seen.path,
            "end": planned.end,
            "changed": planned.is_change(),
            "diff": planned.is_change().then(|| planned.diff()),
        })
    };
    json!({
        "scope": plan.scope,
        "files": plan.files.iter().map(file).collect::<Vec<_>>(),
        "kept_copies": copies,
        "notes": plan.notes,
    })
}

/// How many folders of sessions are looked through at most.
const TRANSCRIPTS_MAX: usize = 2_000;

/// What a host wrote down of earlier sessions in this folder.
fn transcripts(machine: &Machine, host: Host) -> Vec<PathBuf> {
    let root = machine.places.root.to_string_lossy().into_owned();
    let mut found = match host {
        Host::ClaudeCode => {
            let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
            let name: String = root.chars().map(plain).collect();
            jsonl_in(&machine.places.claude.join("projects").join(name), 0)
        }
        Host::Codex => {
            let all = jsonl_in(&machine.places.codex.join("sessions"), 3);
            all.into_iter().filter(|file| was_in(file, &root)).collect()
        }
        _ => Vec::new(),
    };
    found.sort();
    found
}

/// Codex says in a session's first line which folder it was in.
fn was_in(file: &std::path::Path, root: &str) -> bool {
    let Ok(file) = std::fs::File::open(file) else {
        return false;
    };
    let mut line = String::new();
    let limit = 1024 * 1024;
    let mut reader = std::io::BufReader::new(std::io::Read::take(file, limit));
    if reader.read_line(&mut line).is_err() {
        return false;
    }
    let first: Value = serde_json::from_str(&line).unwrap_or_default();
    let cwd = first["payload"]["cwd"].as_str().or(first["cwd"].as_str());
    cwd.is_some_and(|cwd| std::path::Path::new(cwd).starts_with(root))
}

fn jsonl_in(folder: &std::path::Path, deeper: usize) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "jsonl") {
            found.push(path);
        } else if deeper > 0 && path.is_dir() {
            found.extend(jsonl_in(&path, deeper - 1));
        }
        if found.len() >= TRANSCRIPTS_MAX {
            break;
        }
    }
    found
}

/// How to bring in earlier transcripts, when nobody is there to be asked.
fn import_hint(machine: &Machine, host: Host) -> Option<String> {
    let found = transcripts(machine, host);
    let folder = found.first()?.parent()?;
    let many = found.len();
    Some(match host {
        Host::ClaudeCode => format!(
            "what you said before in this folder ({many} transcript(s)) can be brought in: \
             prism import {}/*.jsonl --as-identity NAME",
            folder.display()
        ),
        _ => format!(
            "what you said before in this folder ({many} transcript(s)) can be brought in: \
             `prism connect {host}` in a terminal offers it"
        ),
    })
}
