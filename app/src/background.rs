//! The one background server of a home: how it is started, found, stopped and replaced.
//!
//! A starter runs `prism background`, which opens a session of its own, starts
//! `prism serve --background` in it and waits until that one listens or ends.
//! The server is nobody's child then: it stays when its starter ends, and holds
//! nothing of it open. Starters take turns under a lock, so that several of them
//! end with one server.

use crate::client;
use crate::config::{self, Config, Env, ServerFile, Standing, Told};
use crate::home::{Home, Lock};
use crate::log::file as log_file;
use crate::store::{self, Store, StoreError};
use anyhow::{Context as _, Result};
use prism_core::database::remedy;
use prism_core::launch::{Meeting, is_older, meet};
use prism_core::text::one_line;
use prism_core::{Code, Problem};
use rustix::process::{Pid, Signal, kill_process};
use rustls::{ClientConnection, StreamOwned};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Held by whoever starts, stops or replaces the server of a home.
const LOCK: &str = "start.lock";
/// How long a server may take until it listens; upgrading a large database is part of it.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// How long a server that was asked to stop may take: its own grace, twice, and a little.
const STOPPED_WITHIN: Duration = Duration::from_secs(20);
/// How long a server that runs may take to say that it does.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);
/// How long a verb waits for the server that its shim has started.
const VERB_WAITS: Duration = Duration::from_secs(20);
/// The pause between two looks at a file.
const PAUSE: Duration = Duration::from_millis(20);
/// Lines of the log that a failed start is told with.
const LINES_TOLD: usize = 8;

/// A server that runs, and how it came to.
#[derive(Clone, Debug)]
pub struct Ready {
    pub server: ServerFile,
    pub how: How,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How {
    /// It ran already.
    Ran,
    /// It runs already in somebody's terminal, and is older than this program.
    RanOlder,
    /// It is older, and stays: nobody knows how to go on with its store, and why.
    Left(String),
    Started,
    /// In place of a server of this version.
    Replaced {
        version: String,
        pid: u32,
    },
}

impl Ready {
    /// What was done, for whoever asked for a server and got another than was there.
    pub fn says(&self) -> Option<String> {
        let backup = self.server.backup.as_ref().map(|file| {
            let file = file.display();
            format!("; the database was upgraded, and a copy of the old one is {file}")
        });
        let backup = backup.unwrap_or_default();
        match &self.how {
            How::Ran => None,
            How::RanOlder => Some(format!(
                "the server is {} and runs in a terminal (pid {}); this prism is {}: restart it there",
                self.server.version,
                self.server.pid,
                config::version()
            )),
            How::Left(why) => Some(format!(
                "the server is {} and this prism {}, which does not replace it: {why}",
                self.server.version,
                config::version()
            )),
            How::Started => Some(format!(
                "started prism {} in the background (pid {}){backup}",
                self.server.version, self.server.pid
            )),
            How::Replaced { version, pid } => Some(format!(
                "replaced the background server {version} (pid {pid}) by {} (pid {}){backup}",
                self.server.version, self.server.pid
            )),
        }
    }
}

/// What somebody who starts a server wants of it.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub port: Option<u16>,
    pub database: Option<String>,
    /// Somebody asks for the server by its name (`up`, `restart`), and not for something that needs one: only then
    /// may it stand on another store than it did.
    pub by_name: bool,
}

/// What a server to come is told of its store. Refused is what would have it stand on another than this home's
/// without anybody having said so, or, in the place of one that runs, on one that cannot be used.
fn store_of(home: &Home, wanted: &Wanted, before: Option<&ServerFile>) -> Result<Told, Problem> {
    let env = Env::read().map_err(unable)?;
    let own = Told {
        database: wanted.database.clone().or(env.database),
        redis: env.redis,
    };
    let Some(before) = before else {
        return first_store(home, wanted, own);
    };
    next_store(home, wanted, own, before).map_err(|mut problem| {
        let pid = before.pid;
        problem.message += &format!("; the server that runs (pid {pid}) was left alone");
        problem
    })
}

/// Where no server runs.
fn first_store(home: &Home, wanted: &Wanted, own: Told) -> Result<Told, Problem> {
    // What is wrong with the configuration the server says, and its log keeps it.
    if let Ok(config) = Config::load(home) {
        let config = config.map(|config| config.server).unwrap_or_default();
        let (database, _) = own.store(&config, home)?;
        if !wanted.by_name {
            stays(home, database.as_deref())?;
        }
    }
    Ok(own)
}

/// Where one runs, whose place is to be taken.
fn next_store(
    home: &Home,
    wanted: &Wanted,
    own: Told,
    before: &ServerFile,
) -> Result<Told, Problem> {
    let config = Config::load(home).map_err(unable)?;
    let config = config.map(|config| config.server).unwrap_or_default();
    let ran = config::store_of_process(before.pid);
    if !wanted.by_name {
        let told = ran.unwrap_or(own);
        let (database, _) = told.store(&config, home)?;
        stays(home, database.as_deref())?;
        return Ok(told);
    }
    let ran = ran.unwrap_or_default();
    let mut told = own;
    let named = told.database.is_some() || config.database.is_some();
    if !named {
        told.database = ran.database.clone();
    }
    // Without the Redis that may still have to be taken over, to know whether the store is the same.
    let (database, redis) = told.store(&config, home)?;
    let stood = match Standing::load(home) {
        Ok(Some(stood)) => Some(stood),
        _ => ran
            .database
            .as_deref()
            .and_then(|url| Standing::of(Some(url)).ok()),
    };
    let is_same = !named || stood == Some(Standing::of(database.as_deref())?);
    if redis.is_none() && is_same && database.is_some() {
        told.redis = ran.redis;
    }
    match database {
        Some(url) if ran.database.as_ref() != Some(&url) => can_be_used(url)?,
        _ => {}
    }
    Ok(told)
}

/// Refuses a store that is not the one this home had.
fn stays(home: &Home, database: Option<&str>) -> Result<(), Problem> {
    let Some(last) = Standing::load(home)? else {
        return Ok(());
    };
    let next = Standing::of(database)?;
    if last == next {
        return Ok(());
    }
    let (last, next) = (last.store, next.store);
    Err(Problem::new(
        Code::Conflict,
        format!("this home stands on {last}, and what is named here is {next}"),
        "`prism up`, or `prism restart` where a server runs, has it stand on that",
    ))
}

/// Asks a database, before a server that runs makes room for one that would stand on it.
fn can_be_used(url: String) -> Result<(), Problem> {
    // Its own thread: whoever calls may be inside an asynchronous runtime.
    let looked = std::thread::spawn(move || Store::look_at_shared(&url)).join();
    let refusal = match looked.unwrap_or(Err(StoreError::Closed)) {
        Ok(facts) => facts.refusal(store::NEWEST_SCHEMA),
        Err(StoreError::Refused(problem)) => Some(*problem),
        Err(error) => {
            let why = error.to_string();
            let next =
                remedy(&why).unwrap_or("check host, port and name, and whether it runs".into());
            let message = format!("the database cannot be used: {why}");
            Some(Problem::new(Code::ServerUnreachable, message, next))
        }
    };
    refusal.map_or(Ok(()), Err)
}

/// Makes sure that a server runs on this home. It waits, so it needs a thread of its own.
///
/// An older server of the background makes room; every other one that runs is good as it is.
pub fn ensure(home: &Home, wanted: &Wanted) -> Result<Ready, Problem> {
    if let Some(ready) = running(home) {
        return Ok(ready);
    }
    home.create().and_then(|()| home.check()).map_err(unable)?;
    let _turn = take_turn(home)?;
    start(home, wanted, None)
}

/// The server that runs and need not make room.
fn running(home: &Home) -> Option<Ready> {
    let server = ServerFile::load(home)?;
    let how = match meet(&server.version, server.autostarted, config::version()) {
        Meeting::Use => How::Ran,
        Meeting::Leave => How::RanOlder,
        Meeting::Replace => return None,
    };
    Some(Ready { server, how })
}

/// Stops the server and starts another; one that runs in a terminal is left alone.
pub fn restart(home: &Home, wanted: &Wanted) -> Result<Ready, Problem> {
    home.create().and_then(|()| home.check()).map_err(unable)?;
    let _turn = take_turn(home)?;
    let mut same = wanted.clone();
    if let Some(server) = ServerFile::load(home) {
        if !server.autostarted {
            return Err(in_a_terminal(&server, "restart it there"));
        }
        if is_older(config::version(), &server.version) {
            return Err(Problem::new(
                Code::Conflict,
                format!(
                    "the server is of Prism {}, and this is {}",
                    server.version,
                    config::version()
                ),
                "restart it with the newer prism, or `prism down` first",
            ));
        }
        let told = store_of(home, wanted, Some(&server))?;
        same.port = wanted.port.or_else(|| port_of(&server.url));
        stop(home, server.pid)?;
        return match start(home, &same, Some(told.clone())) {
            // Somebody else may have taken the port meanwhile; any other is as good.
            Err(_) if wanted.port.is_none() && same.port.is_some() => {
                same.port = None;
                start(home, &same, Some(told))
            }
            outcome => outcome,
        };
    }
    start(home, &same, None)
}

/// Stops the server of this home, if one runs; returns the pid it had.
pub fn down(home: &Home, force: bool) -> Result<Option<u32>, Problem> {
    home.check().map_err(unable)?;
    if home.lock_holder(ServerFile::LOCK).is_none() {
        return Ok(None);
    }
    let _turn = take_turn(home)?;
    let holder = home.holder(ServerFile::LOCK).filter(|_| !force);
    if let Some(problem) = holder.and_then(|holder| holder.at_work(home)) {
        return Err(problem);
    }
    let patience = Instant::now() + STOPPED_WITHIN;
    while let Some(pid) = home.lock_holder(ServerFile::LOCK) {
        match ServerFile::load(home) {
            Some(server) if !server.autostarted && !force => {
                let other = "end it there, or use `prism down --force`";
                return Err(in_a_terminal(&server, other));
            }
            Some(_) => {
                stop(home, pid)?;
                return Ok(Some(pid));
            }
            // It starts, and is not known yet, or it stops already.
            None if !force && Instant::now() < patience => std::thread::sleep(PAUSE),
            None => {
                stop(home, pid)?;
                return Ok(Some(pid));
            }
        }
    }
    Ok(None)
}

fn in_a_terminal(server: &ServerFile, instead: &str) -> Problem {
    Problem::new(
        Code::Conflict,
        format!(
            "the server at {} (pid {}) was not started in the background",
            server.url, server.pid
        ),
        instead,
    )
}

fn port_of(url: &str) -> Option<u16> {
    url.rsplit(':').next()?.parse().ok()
}

fn unable(error: anyhow::Error) -> Problem {
    Problem::new(
        Code::ServerUnreachable,
        format!("{error:#}"),
        "mend it, or set PRISM_HOME to a folder of your own",
    )
}

fn too_slow(what: String) -> Problem {
    Problem::new(
        Code::ServerUnreachable,
        what,
        "look at `prism logs`, and try again",
    )
}

/// What is wrong with a server that holds its home and answers nothing; none when it answers.
pub fn silence(server: &ServerFile) -> Option<Problem> {
    let asked = || -> std::io::Result<()> {
        let address = server.url.split_once("://").map_or("", |(_, at)| at);
        let address: SocketAddr = address.parse().map_err(std::io::Error::other)?;
        let mut stream = TcpStream::connect_timeout(&address, ANSWERS_WITHIN)?;
        stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
        let request =
            format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        let tls = client::Target::from(server.clone()).tls();
        // Any word of it will do.
        match tls.map_err(std::io::Error::other)? {
            None => {
                stream.write_all(request.as_bytes())?;
                stream.read_exact(&mut [0])
            }
            Some(tls) => {
                let tls = ClientConnection::new(tls, address.ip().into());
                let mut stream = StreamOwned::new(tls.map_err(std::io::Error::other)?, stream);
                stream.write_all(request.as_bytes())?;
                stream.read_exact(&mut [0])
            }
        }
    };
    asked().is_err().then(|| {
        let (url, pid) = (&server.url, server.pid);
        Problem::new(
            Code::ServerUnreachable,
            format!(
                "the server at {url} (pid {pid}) has this home and did not answer within {} s",
                ANSWERS_WITHIN.as_secs()
            ),
            format!("ask again; if it stays silent, end it with `kill -9 {pid}`, then `prism up`: what it answered is kept"),
        )
    })
}

/// Waits for whoever starts or stops a server of this home right now.
fn take_turn(home: &Home) -> Result<Lock, Problem> {
    let patience = Instant::now() + READY_WITHIN + STOPPED_WITHIN;
    loop {
        match home.try_lock(LOCK).map_err(unable)? {
            Ok(lock) => return Ok(lock),
            Err(holder) if Instant::now() > patience => {
                return Err(too_slow(format!(
                    "another prism (pid {}) has been starting the server for too long",
                    holder.pid
                )));
            }
            Err(_) => std::thread::sleep(PAUSE),
        }
    }
}

/// Whether somebody starts, stops or replaces the server of this home right now.
pub fn is_changing(home: &Home) -> bool {
    home.lock_holder(LOCK).is_some()
}

/// Asks a server to stop, and waits until it has gone.
fn stop(home: &Home, pid: u32) -> Result<(), Problem> {
    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let process = process.ok_or_else(|| too_slow(format!("{pid} is no process")))?;
    // Whoever has this number now need not be the server any more.
    if home.lock_holder(ServerFile::LOCK) != Some(pid) {
        return Ok(());
    }
    match kill_process(process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => {
            return Err(Problem::new(
                Code::NotYours,
                format!("the server with pid {pid} cannot be stopped: {error}"),
                "stop it as the user who started it",
            ));
        }
    }
    let patience = Instant::now() + STOPPED_WITHIN;
    while home.lock_holder(ServerFile::LOCK) == Some(pid) {
        if Instant::now() > patience {
            return Err(Problem::new(
                Code::ServerUnreachable,
                format!(
                    "the server with pid {pid} was asked to stop and is still there after {} s",
                    STOPPED_WITHIN.as_secs()
                ),
                format!(
                    "look at `prism logs`; `kill -9 {pid}` ends it, and what it answered is kept"
                ),
            ));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Starts a server, replacing an older one of the background; needs the turn.
fn start(home: &Home, wanted: &Wanted, told: Option<Told>) -> Result<Ready, Problem> {
    let patience = Instant::now() + READY_WITHIN;
    let (mut told, mut replaced, mut started) = (told, None::<ServerFile>, false);
    loop {
        if let Some(Ready { server, how }) = running(home) {
            let how = match replaced {
                _ if !started => how,
                None => How::Started,
                Some(old) => How::Replaced {
                    version: old.version,
                    pid: old.pid,
                },
            };
            return Ok(Ready { server, how });
        }
        if let Some(old) = ServerFile::load(home) {
            // Before it is gone, and what it stands on with it.
            match store_of(home, wanted, Some(&old)) {
                Ok(of_old) => told = Some(of_old),
                Err(problem) if wanted.by_name => return Err(problem),
                Err(problem) => {
                    let how = How::Left(format!("{}; {}", problem.message, problem.hint));
                    return Ok(Ready { server: old, how });
                }
            }
            // Should it not stop, it serves on: nothing was lost.
            stop(home, old.pid)?;
            replaced = Some(old);
            continue;
        }
        if Instant::now() > patience {
            return Err(too_slow(format!(
                "the server did not listen within {} s",
                READY_WITHIN.as_secs()
            )));
        }
        // One that starts or stops in a terminal has the home's lock, and is found or gone soon.
        if let Some(holder) = home.holder(ServerFile::LOCK) {
            if let Some(problem) = holder.at_work(home) {
                return Err(problem);
            }
            std::thread::sleep(PAUSE);
            continue;
        }
        let mut lines = log_file::Follow::from_end(home);
        let told = match &told {
            Some(told) => told,
            None => told.insert(store_of(home, wanted, None)?),
        };
        let launched = launch(home, wanted.port, told, replaced.as_ref());
        started = launched.map_err(unable)?;
        if !started && home.lock_holder(ServerFile::LOCK).is_none() {
            return Err(did_not_start(home, &lines.fresh(), replaced.as_ref()));
        }
    }
}

fn did_not_start(home: &Home, lines: &[String], replaced: Option<&ServerFile>) -> Problem {
    // How it ended is the last thing it says; what it said before is told where that is missing.
    let end = lines.iter().rposition(|line| line.starts_with("prism: "));
    let from = end.unwrap_or(lines.len().saturating_sub(LINES_TOLD));
    let lines = lines[from..].iter().take(LINES_TOLD);
    let lines: Vec<String> = lines.map(|l| one_line(l)).collect();
    let why = match lines.is_empty() {
        true => "it said nothing".to_owned(),
        false => lines.join("\n  "),
    };
    let stopped = replaced.map(|old| {
        let version = &old.version;
        format!("; the server {version} that ran before has stopped: `prism up` of {version} starts it again")
    });
    Problem::new(
        Code::ServerUnreachable,
        format!(
            "the server of {} did not start:\n  {why}",
            home.dir().display()
        ),
        format!(
            "mend that and run `prism up`; `prism logs` shows more, `prism serve` runs it in this terminal{}",
            stopped.unwrap_or_default()
        ),
    )
}

/// Runs `prism background` to its end; true when a server listens.
fn launch(
    home: &Home,
    port: Option<u16>,
    told: &Told,
    replaced: Option<&ServerFile>,
) -> Result<bool> {
    home.folder(log_file::FOLDER)?;
    let log = home.open_append(log_file::NAME)?;
    let dir = std::path::absolute(home.dir()).context("cannot tell where the home is")?;
    let mut command = Command::new(config::this_program()?);
    command.arg("background").arg("--home").arg(&dir);
    if let Some(port) = port {
        command.args(["--port", &port.to_string()]);
    }
    if let Some(old) = replaced {
        command.args(["--replaces", &old.version]);
    }
    command
        .env_clear()
        .envs(config::server_environment())
        .env("PRISM_HOME", &dir)
        .current_dir(&dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log);
    // Theirs alone counts, not the starter's.
    for (name, said) in [(Told::DATABASE, &told.database), (Told::REDIS, &told.redis)] {
        match said {
            Some(said) => command.env(name, said),
            None => command.env_remove(name),
        };
    }
    let status = command.status().context("cannot start a server")?;
    Ok(status.success())
}

/// `prism background`: between a starter and the server.
#[derive(clap::Args)]
pub struct Between {
    #[arg(long)]
    home: PathBuf,
    #[arg(long)]
    port: Option<u16>,
    #[arg(long)]
    replaces: Option<String>,
}

impl Between {
    /// Starts the server in a session of its own, and stays until it listens; true when it does.
    pub fn run(self) -> Result<bool> {
        // Refused only to whoever leads a group already; then it has left its terminal as well.
        let _ = rustix::process::setsid();
        // Whatever a host left open for its children must not stay open with the server.
        close_fds::set_fds_cloexec(3, &[]);
        let home = Home::at(&self.home);
        let mut command = Command::new(config::this_program()?);
        command
            .args(["serve", "--background", "--home"])
            .arg(&self.home);
        if let Some(port) = self.port {
            command.args(["--port", &port.to_string()]);
        }
        if let Some(version) = &self.replaces {
            command.args(["--replaces", version]);
        }
        let mut server = command.spawn().context("cannot start the server")?;
        let patience = Instant::now() + READY_WITHIN;
        loop {
            let ended = server.try_wait()?.is_some();
            if ServerFile::load(&home).is_some_and(|file| file.pid == server.id()) {
                return Ok(true);
            }
            if ended || Instant::now() > patience {
                return Ok(false);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// The one attempt of a starting shim to have a server; nobody makes another.
#[derive(Clone)]
pub struct Autostart {
    /// None while it is under way.
    outcome: watch::Receiver<Option<Arc<Result<Option<Ready>, Problem>>>>,
}

impl Autostart {
    /// Begins beside whatever the caller does; with `PRISM_URL`, or where it is switched off,
    /// there is nothing to do.
    pub fn begin(env: &Env, home: &Home) -> Self {
        let (done, outcome) = watch::channel(None);
        if env.url.is_some() || env.no_autostart {
            done.send_replace(Some(Arc::new(Ok(None))));
            return Self { outcome };
        }
        let home = home.clone();
        std::thread::spawn(move || {
            let ready = ensure(&home, &Wanted::default());
            match &ready {
                Ok(ready) => {
                    if let Some(said) = ready.says() {
                        tracing::warn!("Prism {said}");
                    }
                }
                Err(problem) => tracing::warn!(%problem, "No server could be started"),
            }
            done.send_replace(Some(Arc::new(ready.map(Some))));
        });
        Self { outcome }
    }

    /// Waits until the attempt has ended; says why it failed, if it did.
    pub async fn ended(&self) -> Option<Problem> {
        let mut outcome = self.outcome.clone();
        let ended = outcome.wait_for(Option::is_some);
        match tokio::time::timeout(VERB_WAITS, ended).await {
            Ok(Ok(outcome)) => outcome.as_ref()?.as_ref().as_ref().err().cloned(),
            Ok(Err(_)) => None,
            Err(_) => Some(client::not_running("the server is still starting")),
        }
    }

    /// What an agent's operator should know of how its server came to be.
    pub fn note(&self) -> Option<String> {
        let outcome = self.outcome.borrow().clone()?;
        let ready = outcome.as_ref().as_ref().ok()?.as_ref()?;
        match ready.how {
            How::RanOlder | How::Left(_) | How::Replaced { .. } => ready.says(),
            How::Ran | How::Started => None,
        }
    }
}
