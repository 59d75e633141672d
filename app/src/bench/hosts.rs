//! From a send to the model's request, in real agent hosts on a loopback model: how long it takes,
//! and how often a bell is lost.

mod claude_code;
mod codex;
mod model;

use super::signals::Shim;
use super::{PID, Report, Server, command, ms, percentile, progress};
use crate::client::Client;
use crate::home::Home;
use crate::loopback::{self, Options, Witness};
use crate::ui::note;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use claude_code::ClaudeCode;
use codex::Codex;
use model::{Api, Mode, Model};
use prism_core::bell;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// A bell that no model saw within this time is lost.
const LOST: Duration = Duration::from_secs(20);
/// Anything else that a host is sure to do.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a busy model goes on thinking for after the send.
const THOUGHT: Duration = Duration::from_millis(250);
/// Signals in one long turn.
const TURN_SIGNALS: usize = 10;
const OPERATOR: &str = "operator";
const SIGNAL_TYPE: &str = "TaskAssigned";

#[derive(Args)]
pub struct Hosts {
    /// Signals in each state of each host
    #[arg(long, default_value_t = 200)]
    signals: usize,
    /// Claude Code's program [default: from PATH, else from the test cache]
    #[arg(long, value_name = "PATH")]
    claude: Option<PathBuf>,
    /// Codex's program [default: from PATH, else from the test cache]
    #[arg(long, value_name = "PATH")]
    codex: Option<PathBuf>,
    /// Keep each state's home here, with its signals' traces and the probe that ends it
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Whole processes of `prism hook` and `prism statusline`
    #[arg(long, default_value_t = 400)]
    runs: usize,
}

/// What a session is doing when a signal comes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Thinking,
    Working,
}

impl Doing {
    const ALL: [Self; 3] = [Self::Nothing, Self::Thinking, Self::Working];

    fn name(self) -> String {
        match self {
            Self::Nothing => "idle".into(),
            Self::Thinking => format!("busy, its model answers {} ms later", THOUGHT.as_millis()),
            Self::Working => "between tool calls".into(),
        }
    }
}

/// A running session of a host.
enum Session {
    ClaudeCode(ClaudeCode),
    Codex(Codex),
}

impl Session {
    async fn prompt(&mut self, text: &str) -> Result<()> {
        match self {
            Self::ClaudeCode(session) => session.prompt(text).await,
            Self::Codex(session) => session.prompt(text).await,
        }
    }

    /// Waits until the host says that a turn ended after this moment.
    async fn turn_over(&mut self, after: Instant) -> Result<()> {
        let turns = match self {
            Self::ClaudeCode(session) => &mut session.turns,
            Self::Codex(session) => &mut session.turns,
        };
        turns.over(after).await
    }

    async fn close(self) {
        match self {
            Self::ClaudeCode(session) => session.close().await,
            Self::Codex(session) => session.close().await,
        }
    }
}

/// When turns ended, as the host tells it.
pub struct Turns(mpsc::UnboundedReceiver<Instant>);

pub struct TurnEnded(mpsc::UnboundedSender<Instant>);

impl Turns {
    fn new() -> (TurnEnded, Self) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (TurnEnded(sender), Self(receiver))
    }

    async fn over(&mut self, after: Instant) -> Result<()> {
        let looking = async {
            while let Some(at) = self.0.recv().await {
                if at > after {
                    return Ok(());
                }
            }
            bail!("the host is gone")
        };
        tokio::time::timeout(PATIENCE, looking)
            .await
            .context("the host did not end its turn")?
    }
}

impl TurnEnded {
    fn now(&self) {
        let _ = self.0.send(Instant::now());
    }
}

/// A host's program, and where programs are looked for.
struct Host<'a> {
    api: Api,
    program: PathBuf,
    path: &'a [PathBuf],
}

impl Hosts {
    pub async fn run(self) -> Result<Report> {
        let path = crate::config::search_path();
        let mut report = Report::default();
        processes(&mut report, self.runs)?;
        let mut found = false;
        for (name, given, api) in [
            ("claude", self.claude, Api::Messages),
            ("codex", self.codex, Api::Responses),
        ] {
            let on_path = || path.iter().map(|dir| dir.join(name)).find(|p| p.exists());
            let Some(program) = given.or_else(on_path) else {
                note(&format!(
                    "{name} is not on this machine: name it with --{name} PATH"
                ));
                continue;
            };
            found = true;
            let host = Host {
                api,
                program,
                path: &path,
            };
            let keep = self.keep.as_deref();
            host.measure(&mut report, self.signals, keep).await?;
        }
        ensure!(found, "no agent host to measure");
        Ok(report)
    }
}

impl Host<'_> {
    /// Every state, each in a session and a home of its own.
    async fn measure(&self, report: &mut Report, n: usize, keep: Option<&Path>) -> Result<()> {
        let version = self.version()?;
        for doing in Doing::ALL {
            let name = format!("{version}, {}", doing.name());
            progress(&format!("{name}: {n} signals"));
            let kept = keep.map(|dir| dir.join(name.replace([' ', ','], "-")));
            let server = Server::of_operator(OPERATOR, kept)?.resume()?;
            let figures = state(&server, self, doing, n).await;
            report.add(&name, figures.with_context(|| name.clone())?);
        }
        Ok(())
    }

    /// The host's own word on what it is.
    fn version(&self) -> Result<String> {
        let program = self.program.display();
        let said = Command::new(&self.program)
            .env("PATH", std::env::join_paths(self.path)?)
            .arg("--version")
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{program} does not run"))?;
        let said = String::from_utf8_lossy(&said.stdout);
        let number = said
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
            .with_context(|| format!("{program} does not say its version"))?;
        let name = match self.api {
            Api::Messages => "Claude Code",
            Api::Responses => "Codex",
        };
        Ok(format!("{name} {number}"))
    }
}

/// What a host's session is started with.
struct Start<'a> {
    host: &'a Host<'a>,
    home: &'a Home,
    /// The host's own home, and the folder it works in.
    dir: PathBuf,
    model: &'a str,
}

const READER: &str = "Reader";

impl Start<'_> {
    /// A command with nothing of the caller's environment.
    fn command(&self, program: &Path) -> Result<tokio::process::Command> {
        let own = std::env::current_exe()?;
        let own = own.parent().context("this program is in no folder")?;
        let mut path = vec![own.to_owned()];
        // Codex is a script for a Node that stands beside it.
        path.extend(self.host.program.parent().map(Path::to_owned));
        path.extend_from_slice(self.host.path);
        let mut command = tokio::process::Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::join_paths(path)?)
            .env("HOME", &self.dir)
            .env("CODEX_HOME", self.dir.join(".codex"))
            .env("PRISM_HOME", self.home.dir())
            .env("PRISM_PID", PID)
            .env("PRISM_AGENT_IDENTITY", READER)
            .env("PRISM_AUTOSTART", "0")
            .current_dir(&self.dir)
            .kill_on_drop(true);
        Ok(command)
    }

    /// As a user would: the host's own files get what Prism needs.
    async fn connect(&self, host: &str) -> Result<()> {
        let done = self
            .command(&std::env::current_exe()?)?
            .args(["connect", host, "--user", "--yes"])
            .stdin(Stdio::null())
            .output()
            .await?;
        if !done.status.success() {
            bail!(
                "prism connect {host}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
        }
        Ok(())
    }
}

/// One session in one state, and the signals that it gets.
struct Measured {
    operator: Client,
    model: Model,
    session: Session,
    doing: Doing,
    sentence: String,
    samples: Samples,
}

async fn state(server: &Server, host: &Host<'_>, doing: Doing, n: usize) -> Result<Figures> {
    let sentence = bell::sentence(OPERATOR, SIGNAL_TYPE);
    let model = Model::start(host.api, sentence.clone()).await?;
    let dir = server.home.dir().join("host");
    std::fs::create_dir_all(&dir)?;
    let start = Start {
        host,
        home: &server.home,
        dir,
        model: &model.url,
    };
    let session = match host.api {
        Api::Messages => Session::ClaudeCode(ClaudeCode::start(&start).await?),
        Api::Responses => Session::Codex(Codex::start(&start).await?),
    };
    let operator = server.operator()?;
    live(&operator).await?;
    let mut measured = Measured {
        operator,
        model,
        session,
        doing,
        sentence,
        samples: Samples::default(),
    };
    let prompted = Instant::now();
    measured.session.prompt("hello").await?;
    measured.session.turn_over(prompted).await?;
    for i in 0..n {
        measured.sample(i, n).await?;
    }
    let probe = measured.probe(&server.home).await?;
    measured.session.close().await;
    let mut figures = measured.samples.figures(&measured.operator).await?;
    figures.push(("probe to bell ms", probe));
    Ok(figures)
}

/// Waits until the reader's shim has registered, and says as which session.
async fn live(operator: &Client) -> Result<String> {
    let from = Instant::now();
    loop {
        let whois = operator
            .call(PID, "whois", json!({"identity": READER}))
            .await;
        let whois = whois.unwrap_or_default();
        if let Some(session) = whois["sessions"][0]["session_id"].as_str() {
            return Ok(session.to_owned());
        }
        ensure!(
            from.elapsed() < PATIENCE,
            "the host did not start its MCP server"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

type Figures = Vec<(&'static str, f64)>;

#[derive(Default)]
struct Samples {
    /// Of those that a model saw.
    ms: Vec<f64>,
    signals: Vec<Value>,
}

impl Samples {
    async fn figures(mut self, operator: &Client) -> Result<Figures> {
        let mut rendered = 0;
        for signal in &self.signals {
            let trace = operator
                .call(PID, "signal_trace", json!({"signal_id": signal}))
                .await?;
            rendered += usize::from(!trace["receipt"]["states"]["rendered"].is_null());
        }
        let all = self.signals.len() as f64;
        Ok(vec![
            ("p50 ms", percentile(&mut self.ms, 0.5)),
            ("p95 ms", percentile(&mut self.ms, 0.95)),
            ("signals", all),
            ("dropped %", 100.0 * (all - self.ms.len() as f64) / all),
            ("confirmed %", 100.0 * rendered as f64 / all),
        ])
    }
}

impl Measured {
    /// One signal: brings the session into its state, sends, and leaves it as it was, with an empty
    /// inbox.
    async fn sample(&mut self, i: usize, n: usize) -> Result<()> {
        match self.doing {
            Doing::Nothing => self.model.now(Mode::Ends),
            Doing::Thinking => self.begin(Mode::Thinks, "ponder this").await?,
            Doing::Working if i.is_multiple_of(TURN_SIGNALS) => {
                self.begin(Mode::Works, "do the long job").await?
            }
            Doing::Working => {}
        }
        let sent = Instant::now();
        let signal = json!({"to": READER, "signal_type": SIGNAL_TYPE, "payload": {"summary": format!("signal {i}")}});
        let answer = self.operator.call(PID, "signal", signal).await?;
        let signal_id = &answer["signal_id"];
        self.samples.signals.push(signal_id.clone());
        if self.doing == Doing::Thinking {
            tokio::time::sleep(THOUGHT).await;
            self.model.go_on();
        }
        let sentence = &self.sentence;
        let seen = self.model.saw(LOST, |asked| asked.new.contains(sentence));
        let read = match seen.await {
            Some(asked) => {
                let took = asked.at.duration_since(sent);
                self.samples.ms.push(took.as_secs_f64() * 1000.0);
                let read = self.model.saw(PATIENCE, |asked| asked.drained).await;
                Some(read.context("the model did not read its inbox")?.at)
            }
            None => {
                // The next one finds an empty inbox all the same.
                let lost = json!({"signal_id": signal_id});
                self.operator.call(PID, "signal_recall", lost).await?;
                None
            }
        };
        match (self.doing, read) {
            (Doing::Nothing, None) => Ok(()),
            (Doing::Nothing, Some(read)) => self.session.turn_over(read).await,
            (Doing::Thinking, read) => self.session.turn_over(read.unwrap_or(sent)).await,
            (Doing::Working, _) if i % TURN_SIGNALS == TURN_SIGNALS - 1 || i == n - 1 => {
                let told = Instant::now();
                self.model.now(Mode::Ends);
                self.session.turn_over(told).await
            }
            (Doing::Working, _) => Ok(()),
        }
    }

    /// The same way layer by layer, kept in the home like every probe.
    async fn probe(&self, home: &Home) -> Result<f64> {
        // The model may be rung for it, and has nothing to do then.
        self.model.now(Mode::Ends);
        let session = Some(live(&self.operator).await?);
        let options = Options::new(session, None, None)?;
        let witness = Witness::Home(home.clone());
        let probe = loopback::run(&self.operator, PID, &options, &witness).await?;
        let bell = probe.layers.channel_notification.seen.elapsed_ms;
        bell.with_context(|| format!("the probe was {}: no bell", probe.outcome))
    }

    /// A turn that goes on.
    async fn begin(&mut self, mode: Mode, prompt: &str) -> Result<()> {
        self.model.now(mode);
        self.session.prompt(prompt).await?;
        let asked = self.model.saw(PATIENCE, |asked| asked.new.contains(prompt));
        asked.await.context("the host did not ask its model")?;
        Ok(())
    }
}

/// What hosts start again and again, the three taking turns so that all meet the same machine.
fn processes(report: &mut Report, runs: usize) -> Result<()> {
    let server = Server::start()?;
    // The host whose hooks these are: this process, with its shim beside it.
    let _shim = Shim::start(&server, READER)?;
    let event = |prompt: &str| {
        json!({"hook_event_name": "UserPromptSubmit", "session_id": "bench",
            "cwd": server.home.dir(), "prompt": prompt})
        .to_string()
    };
    let (ordinary, correction) = (event("go on"), event("No, that is wrong: revert it."));
    let ours = |verb: &str| -> Result<Command> {
        let mut command = command(&server.home)?;
        command.env("PRISM_AGENT_IDENTITY", READER).arg(verb);
        Ok(command)
    };
    let finish = |mut command: Command, event: &str| -> Result<(f64, String)> {
        let started = Instant::now();
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        // A program that reads nothing may be gone already.
        if let Some(mut stdin) = process.stdin.take() {
            let _ = stdin.write_all(event.as_bytes());
        }
        let done = process.wait_with_output()?;
        ensure!(done.status.success());
        Ok((ms(started), String::from_utf8_lossy(&done.stdout).into()))
    };
    // To a correction there is something to say, which shows that the hook finds its session.
    let (_, offer) = finish(ours("hook")?, &correction)?;
    ensure!(!offer.is_empty(), "the hook did not find its session");
    let mut samples: [Vec<f64>; 3] = Default::default();
    for _ in 0..runs {
        samples[0].push(finish(Command::new("/bin/true"), &ordinary)?.0);
        let (took, said) = finish(ours("hook")?, &ordinary)?;
        ensure!(said.is_empty(), "the hook had something to say: {said}");
        samples[1].push(took);
        samples[2].push(finish(ours("statusline")?, &ordinary)?.0);
    }
    let base = percentile(&mut samples[0], 0.5);
    for (name, samples) in [
        "/bin/true",
        "prism hook, nothing to say",
        "prism statusline",
    ]
    .iter()
    .zip(&mut samples)
    {
        report.add(
            *name,
            vec![
                ("p50 ms", percentile(samples, 0.5)),
                ("p95 ms", percentile(samples, 0.95)),
                ("p50 over /bin/true", percentile(samples, 0.5) - base),
            ],
        );
    }
    Ok(())
}
