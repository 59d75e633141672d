//! Real engines for tests: PostgreSQL with pgvector, and Redis, as `tests/engines` brings and starts them.

use super::{Server, wait_for};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tempfile::TempDir;

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../tests/engines")
        .join(name)
}

/// Where `psql` and its like are.
pub fn postgres_bin() -> &'static Path {
    static BIN: OnceLock<PathBuf> = OnceLock::new();
    BIN.get_or_init(|| {
        let installed = Command::new(script("install")).output().unwrap();
        let said = String::from_utf8_lossy(&installed.stderr);
        assert!(installed.status.success(), "{said}");
        Path::new(String::from_utf8_lossy(&installed.stdout).trim()).join("bin")
    })
}

/// Where nginx is.
pub fn nginx() -> PathBuf {
    let found = Command::new(script("nginx")).output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success(), "{said}");
    String::from_utf8_lossy(&found.stdout).trim().into()
}

/// A PostgreSQL and a Redis for all tests of this process. They end with their standard input.
struct Shared {
    postgres: String,
    redis: String,
    _run: Option<Child>,
}

fn given() -> Option<Shared> {
    Some(Shared {
        postgres: std::env::var("PRISM_TEST_POSTGRES").ok()?,
        redis: std::env::var("PRISM_TEST_REDIS").ok()?,
        _run: None,
    })
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| given().unwrap_or_else(start_shared))
}

fn start_shared() -> Shared {
    let say_where = "echo $PRISM_TEST_POSTGRES; echo $PRISM_TEST_REDIS; exec cat";
    let mut run = Command::new(script("run"))
        .args(["--", "sh", "-c", say_where])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines();
    let mut line = || lines.next().expect("the engines do not start").unwrap();
    let (postgres, redis) = (line(), line());
    Shared {
        postgres,
        redis,
        _run: Some(run),
    }
}

/// One engine of a test's own, which can be stopped and started again in its place.
struct Engine {
    script: &'static str,
    /// What the script is told besides folder and port.
    more: Vec<String>,
    folder: TempDir,
    port: u16,
    process: Option<Child>,
    answers: fn(u16) -> bool,
}

impl Engine {
    fn start(name: &'static str, more: &[&str], answers: fn(u16) -> bool) -> Self {
        postgres_bin();
        // A port that somebody else took meanwhile is given up for another.
        for _ in 0..3 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap();
            let mut engine = Self {
                script: name,
                more: more.iter().map(ToString::to_string).collect(),
                // Not in TMPDIR: the path of a socket has room for a hundred letters.
                folder: tempfile::tempdir_in("/tmp").unwrap(),
                port: port.local_addr().unwrap().port(),
                process: None,
                answers,
            };
            drop(port);
            let open = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(engine.folder.path(), open).unwrap();
            if engine.go() {
                return engine;
            }
        }
        panic!("{name} does not start");
    }

    /// False when it ended instead of answering.
    fn go(&mut self) -> bool {
        let mut process = Command::new(script(self.script))
            .arg(self.folder.path())
            .arg(self.port.to_string())
            .args(&self.more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let up = wait_for(self.script, || match process.try_wait().unwrap() {
            Some(_) => Some(false),
            None => (self.answers)(self.port).then_some(true),
        });
        self.process = Some(process);
        up
    }

    fn stop(&mut self, signal: rustix::process::Signal) {
        if let Some(mut process) = self.process.take() {
            let pid = rustix::process::Pid::from_child(&process);
            let _ = rustix::process::kill_process(pid, signal);
            process.wait().unwrap();
        }
    }
}

fn postgres_answers(port: u16) -> bool {
    let asked = Command::new(postgres_bin().join("pg_isready"))
        .args(["--quiet", "--host=127.0.0.1", "--username=prism"])
        .arg(format!("--port={port}"))
        .status();
    asked.unwrap().success()
}

fn redis_answers(port: u16) -> bool {
    let Ok(mut socket) = TcpStream::connect(("127.0.0.1", port)) else {
        return false;
    };
    let patience = Some(Duration::from_secs(1));
    socket.set_read_timeout(patience).unwrap();
    let mut said = [0; 5];
    let asked = socket.write_all(b"PING\r\n");
    asked.and_then(|()| socket.read_exact(&mut said)).is_ok() && &said == b"+PONG"
}

/// A PostgreSQL server.
pub struct Postgres {
    /// A database of its superuser, for making others.
    url: String,
    own: Option<Engine>,
}

impl Postgres {
    /// The one of `tests/engines/run`, if the tests run under it.
    pub fn given() -> Option<Self> {
        given().map(|given| Self {
            url: given.postgres,
            own: None,
        })
    }

    /// One for all tests.
    pub fn shared() -> Self {
        Self {
            url: shared().postgres.clone(),
            own: None,
        }
    }

    /// One of the test's own, to be stopped under it.
    pub fn start() -> Self {
        let own = Engine::start("postgres", &[], postgres_answers);
        Self {
            url: format!("postgres://prism@127.0.0.1:{}/postgres", own.port),
            own: Some(own),
        }
    }

    /// One that follows this one, and only reads until it is promoted.
    pub fn standby(&self) -> Self {
        let port = self.port().to_string();
        let own = Engine::start("standby", &[&port], postgres_answers);
        Self {
            url: format!("postgres://prism@127.0.0.1:{}/postgres", own.port),
            own: Some(own),
        }
    }

    /// Where one of the test's own listens.
    pub fn port(&self) -> u16 {
        self.own.as_ref().expect("a server of the test's own").port
    }

    /// Stops it as a crash would (`immediate`): all connections are cut.
    pub fn stop(&mut self) {
        let own = self.own.as_mut().expect("a shared server is not stopped");
        own.stop(rustix::process::Signal::QUIT);
    }

    /// Starts it again on the same port and data.
    pub fn start_again(&mut self) {
        let own = self.own.as_mut().expect("a shared server was not stopped");
        assert!(own.go(), "PostgreSQL does not start again");
    }

    /// Starts it again as a standby that takes over: on a timeline of its own.
    pub fn takes_over(&mut self) {
        let own = self.own.as_ref().expect("a shared server was not stopped");
        std::fs::write(own.folder.path().join("data/standby.signal"), "").unwrap();
        self.start_again();
        assert_eq!(self.sql("select pg_promote()").trim(), "t");
    }

    /// Its superuser's own database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A fresh database, which ends with the value.
    pub fn database(&self) -> Database {
        self.made_from("template1")
    }

    /// A copy of a database that nobody is connected with.
    pub fn copy_of(&self, database: &Database) -> Database {
        self.made_from(&database.name)
    }

    fn made_from(&self, template: &str) -> Database {
        let name = format!("t{}", prism::clock::new_id().simple());
        self.sql(&format!("create database {name} template {template}"));
        Database {
            url: format!("{}/{name}", self.url.rsplit_once('/').unwrap().0),
            server: self.url.clone(),
            name,
        }
    }

    /// Runs a statement as its superuser, and returns what it printed.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url, statement)
    }

    /// The same in one of its databases.
    pub fn sql_in(&self, name: &str, statement: &str) -> String {
        psql(
            &self.url.replace("/postgres", &format!("/{name}")),
            statement,
        )
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            own.stop(rustix::process::Signal::QUIT);
        }
    }
}

fn psql(url: &str, statement: &str) -> String {
    let ran = Command::new(postgres_bin().join("psql"))
        .args([
            url,
            "--no-psqlrc",
            "--quiet",
            "--no-align",
            "--tuples-only",
            "--command",
        ])
        .arg(statement)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{statement}: {said}");
    String::from_utf8(ran.stdout).unwrap()
}

/// Starts a server on a database, and on a Redis if there is one.
pub fn server(database: &Database, redis: Option<&Redis>) -> Server {
    let mut server = Server::none();
    let mut env = vec![("PRISM_DATABASE", database.url.as_str())];
    env.extend(redis.map(|redis| ("PRISM_REDIS", redis.url.as_str())));
    server.resume_with(&env);
    server
}

/// A database of one test.
pub struct Database {
    pub url: String,
    server: String,
    name: String,
}

impl Database {
    /// A database for one story, where stories are told on PostgreSQL.
    pub fn of_stories() -> Option<Self> {
        let told_on = std::env::var("PRISM_STORIES_ON").ok();
        (told_on.as_deref() == Some("postgres")).then(|| Postgres::shared().database())
    }

    /// Runs a statement in it, and returns what it printed.
    pub fn sql(&self, statement: &str) -> String {
        psql(&self.url, statement)
    }

    /// Runs a statement that must fail, and returns why it did.
    pub fn refuses(&self, statement: &str) -> String {
        let ran = Command::new(postgres_bin().join("psql"))
            .args([self.url.as_str(), "--no-psqlrc", "--quiet", "--command"])
            .arg(statement)
            .output()
            .unwrap();
        assert!(!ran.status.success(), "{statement} did not fail");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Its server may be gone already, with everything in it.
        let _ = Command::new(postgres_bin().join("psql"))
            .args([self.server.as_str(), "--quiet", "--command"])
            .arg(format!("drop database {} with (force)", self.name))
            .stderr(Stdio::null())
            .status();
    }
}

/// A Redis server.
pub struct Redis {
    pub url: String,
    own: Option<Engine>,
}

impl Redis {
    /// One for all tests, each of which uses names of its own in it.
    pub fn shared() -> Self {
        Self {
            url: shared().redis.clone(),
            own: None,
        }
    }

    /// One of the test's own, to be stopped under it.
    pub fn start() -> Self {
        let own = Engine::start("redis", &[], redis_answers);
        Self {
            url: format!("redis://127.0.0.1:{}", own.port),
            own: Some(own),
        }
    }

    pub fn stop(&mut self) {
        let own = self.own.as_mut().expect("a shared server is not stopped");
        own.stop(rustix::process::Signal::KILL);
    }

    /// Starts it again on the same port.
    pub fn start_again(&mut self) {
        let own = self.own.as_mut().expect("a shared server was not stopped");
        assert!(own.go(), "Redis does not start again");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        if let Some(own) = &mut self.own {
            own.stop(rustix::process::Signal::KILL);
        }
    }
}

/// A PgBouncer in front of a database.
pub struct Pooler {
    pub url: String,
    own: Engine,
}

impl Pooler {
    /// With a mode of `session` or `transaction`.
    pub fn before(database: &Database, mode: &str) -> Self {
        let (place, name) = database.url.rsplit_once('/').unwrap();
        let to = place.rsplit_once(':').unwrap().1;
        let answers = |port| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let own = Engine::start("pooler", &[to, mode], answers);
        let url = format!("postgres://prism@127.0.0.1:{}/{name}", own.port);
        Self { url, own }
    }

    /// Cuts everybody off and goes on in another mode.
    pub fn becomes(&mut self, mode: &str) {
        self.own.stop(rustix::process::Signal::KILL);
        self.own.more[1] = mode.to_owned();
        assert!(self.own.go(), "the pooler does not start again");
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.own.stop(rustix::process::Signal::KILL);
    }
}
