//! The real binary in a throw-away home: a server, agents, and the command line.

mod agent;
pub mod authority;
pub mod cable;
pub mod engines;
pub mod hosts;
mod pty;
mod wire;

pub use agent::Agent;
pub use pty::Pty;
pub use wire::{Sockets, Wire};

use prism::client::{Client, Locator};
use prism::config::{Config, ServerFile};
use prism::home::Home;
use prism::store::sql;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const PID: &str = "PID-TEST";
pub const BIN: &str = env!("CARGO_BIN_EXE_prism");
/// How long anything that must happen may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server process and the home it owns; both end with the test.
pub struct Server {
    process: Option<Child>,
    dir: TempDir,
    /// Where its rows are, if not in the home.
    database: Option<engines::Database>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with("")
    }

    /// A home on which no server runs yet; one that a story starts in the background ends with it.
    pub fn none() -> Self {
        Self {
            process: None,
            dir: tempfile::tempdir().unwrap(),
            database: engines::Database::of_stories(),
        }
    }

    /// Starts with extra lines in `config.toml`.
    pub fn start_with(config: &str) -> Self {
        let mut server = Self {
            process: None,
            dir: tempfile::tempdir().unwrap(),
            database: engines::Database::of_stories(),
        };
        if !config.is_empty() {
            let key = prism::clock::new_key().unwrap();
            server.home().create().unwrap();
            server
                .home()
                .write(
                    "config.toml",
                    format!("operator = \"frank\"\napi_key = \"{key}\"\n{config}").as_bytes(),
                )
                .unwrap();
        }
        server.resume();
        server
    }

    pub fn home(&self) -> Home {
        Home::at(self.dir.path().join("home"))
    }

    fn clock_file(&self) -> std::path::PathBuf {
        self.dir.path().join("clock")
    }

    /// Moves the clock of the server, its agents and its command line forward.
    pub fn advance(&self, by: Duration) {
        self.move_clock(by.as_micros() as i64);
    }

    /// Moves it back.
    pub fn set_back(&self, by: Duration) {
        self.move_clock(-(by.as_micros() as i64));
    }

    fn move_clock(&self, by_us: i64) {
        let moved = std::fs::read_to_string(self.clock_file()).unwrap_or_default();
        let moved = moved.parse::<i64>().unwrap_or(0) + by_us;
        let fresh = self.dir.path().join("clock.new");
        std::fs::write(&fresh, moved.to_string()).unwrap();
        std::fs::rename(fresh, self.clock_file()).unwrap();
    }

    pub fn folder(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process again on the same home.
    pub fn resume(&mut self) {
        self.resume_with(&[]);
    }

    pub fn resume_with(&mut self, env: &[(&str, &str)]) {
        let mut serve = self.command(None);
        serve
            .envs(env.iter().copied())
            .args(["serve", "--port", "0"]);
        self.resume_as(serve);
    }

    /// Starts the process again with a command of the test's own.
    pub fn resume_as(&mut self, mut serve: Command) {
        self.home().remove(ServerFile::NAME);
        let mut process = serve
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let home = self.home();
        wait_for("server.json", || {
            if let Some(status) = process.try_wait().unwrap() {
                panic!("the server ended at once: {status}");
            }
            ServerFile::load(&home)
        });
        self.process = Some(process);
    }

    /// Whether this story is told on a store that other servers may share.
    pub fn is_shared(&self) -> bool {
        self.database.is_some()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// SIGTERM, and the exit code.
    pub fn terminate(&mut self) -> Option<i32> {
        let mut process = self.process.take()?;
        let pid = rustix::process::Pid::from_child(&process);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        process.wait().unwrap().code()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_raw(self.pid() as i32).unwrap();
        rustix::process::kill_process(process, signal).unwrap();
    }

    /// From now on it takes connections and answers nothing.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub fn go_on(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    pub fn pid(&self) -> u32 {
        self.process.as_ref().map_or(0, Child::id)
    }

    pub fn url(&self) -> String {
        ServerFile::load(&self.home()).unwrap().url
    }

    /// The binary with a clean environment that knows only this home.
    pub fn command(&self, identity: Option<&str>) -> Command {
        let mut command = Command::new(BIN);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.dir.path())
            .env("USER", "frank");
        command
            .env("PRISM_HOME", self.home().dir())
            .env("PRISM_PID", PID)
            .env("PRISM_DOORBELL", "claude_channel")
            // A story that wants a server in the background says so.
            .env("PRISM_AUTOSTART", "0")
            .env("PRISM_CLOCK_FILE", self.clock_file())
            .current_dir(self.dir.path());
        if let Some(database) = &self.database {
            command.env("PRISM_DATABASE", &database.url);
        }
        if let Some(identity) = identity {
            command
                .env("PRISM_AGENT_IDENTITY", identity)
                .env("PRISM_AGENT_SURFACE", "claude_code");
        }
        command
    }

    /// Runs the command line to its end.
    pub fn cli(&self, identity: Option<&str>, args: &[&str]) -> Output {
        self.command(identity)
            .args(args)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub fn ok(&self, identity: Option<&str>, args: &[&str]) -> String {
        let output = self.cli(identity, args);
        assert!(
            output.status.success(),
            "prism {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Its rows, for a story that looks at them or spoils them.
    pub fn rows(&self) -> sql::Connection {
        match &self.database {
            None => sql::Connection::open(self.home().path("prism.db")).unwrap(),
            Some(database) => {
                let there = sql::Server::parse(&database.url).unwrap();
                let link = there.connect_apart().unwrap();
                // As the tables' owner, for the tenant that every database begins with.
                link.stays_owner(true);
                link.batch(
                    "select set_config('prism.tenant', (select id from tenants limit 1), false)",
                )
                .unwrap();
                sql::Connection::Postgres(link)
            }
        }
    }

    /// Whether its rows are in a file of its home, which a story about that file needs.
    pub fn is_embedded(&self) -> bool {
        self.database.is_none()
    }

    pub fn operator_key(&self) -> String {
        Config::load(&self.home()).unwrap().unwrap().api_key
    }

    /// The operator's client, on the test project.
    pub fn operator(&self) -> Client {
        Client::new(Locator::Home(self.home()), self.operator_key())
            .unwrap()
            .creating_project()
    }

    /// A client with a key of its own, without a session.
    pub async fn identity(&self, name: &str) -> Client {
        let minted = self
            .operator()
            .call(PID, "key_mint", json!({"identity": name}))
            .await
            .unwrap();
        Client::new(
            Locator::Home(self.home()),
            minted["key"].as_str().unwrap().to_owned(),
        )
        .unwrap()
    }

    /// A client with a registered session.
    pub async fn session(&self, name: &str) -> (Client, uuid::Uuid) {
        let client = self.identity(name).await;
        let registered = client
            .call(
                PID,
                "session_register",
                json!({"surface": "other", "machine_id": "m", "process_pid": 1}),
            )
            .await
            .unwrap();
        let id: uuid::Uuid = registered["session_id"].as_str().unwrap().parse().unwrap();
        (client.with_session(Some(id)), id)
    }

    pub fn agent(&self, identity: &str) -> Agent {
        Agent::start(self, Some(identity))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // Whatever a story started in the background.
        let pid = self.home().lock_holder(ServerFile::LOCK);
        if let Some(pid) = pid.and_then(|pid| rustix::process::Pid::from_raw(pid as i32)) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Waits for something to become true; fails the test when it does not.
#[track_caller]
pub fn wait_for<T>(what: &str, mut test: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = test() {
            return value;
        }
        assert!(Instant::now() < deadline, "did not happen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same for things that must be asked for.
pub async fn wait_until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut test: impl FnMut() -> F,
) -> T {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = Duration::from_millis(5);
    loop {
        if let Some(value) = test().await {
            return value;
        }
        assert!(Instant::now() < deadline, "did not happen: {what}");
        tokio::time::sleep(pause).await;
        // Whoever asks long asks less often: a key may ask fifty times a second.
        pause = (pause * 11 / 10).min(Duration::from_millis(30));
    }
}

pub fn task(to: &str, summary: &str) -> Value {
    json!({"to": to, "signal_type": "TaskAssigned", "payload": {"summary": summary}})
}

/// The states of a trace, in order.
pub fn states(trace: &Value) -> Vec<String> {
    trace["timeline"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["state"].as_str().unwrap().to_owned())
        .collect()
}

pub fn ids(answer: &Value) -> Vec<String> {
    answer["signals"]
        .as_array()
        .map(|s| {
            s.iter()
                .map(|e| e["signal_id"].as_str().unwrap().to_owned())
                .collect()
        })
        .unwrap_or_default()
}
