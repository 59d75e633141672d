//! Beyond loopback: a server that speaks TLS, and those who call it from elsewhere.

use crate::harness::authority::{Authority, HERE, Pair};
use crate::harness::{Agent, PATIENCE, PID, Server, task, wait_for};
use futures_util::{SinkExt, StreamExt};
use prism::client::{Client, Locator, Target};
use prism::config::ServerFile;
use prism::shim::socket;
use prism::tls::Trust;
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::limits::FIRST_REQUEST_S;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;
use tokio_tungstenite::tungstenite::Message;

fn start(pair: &Pair, more: &[&str]) -> Server {
    let mut server = Server::none();
    let mut serve = server.command(None);
    serve.args(["serve", "--port", "0"]).args(pair.arguments());
    serve.args(more);
    server.resume_as(serve);
    server
}

fn port(server: &Server) -> String {
    server.url().rsplit_once(':').unwrap().1.to_owned()
}

/// The command line on another machine: with a home of its own, in which there is nothing.
fn elsewhere(server: &Server, url: &str, authority: Option<&Authority>) -> Command {
    let mut command = server.command(None);
    command
        .env("PRISM_HOME", server.folder().join("elsewhere"))
        .env("PRISM_URL", url)
        .env("PRISM_API_KEY", server.operator_key());
    if let Some(authority) = authority {
        command.env("PRISM_CA_FILE", authority.file());
    }
    command
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[test]
fn a_server_with_a_certificate_is_reached_from_here_and_from_elsewhere() {
    let authority = Authority::new();
    // Nothing in it names this machine's loopback, and nobody here knows the authority.
    let pair = authority.certificate("prism", "DNS:prism.example");
    let server = start(&pair, &["--host", "0.0.0.0"]);
    assert!(server.url().starts_with("https://127.0.0.1:"));
    server.ok(None, &["status"]);
    let texi = server.agent("Texi");
    server.ok(None, &["send", "Texi", "over TLS"]);
    let bell = texi.bell();
    assert!(bell.contains("frank"), "{bell}");
    drop(texi);
    let said_by = |args: &[&str]| {
        let output = server.cli(None, args);
        (output.status.code(), said(&output))
    };
    let (_, doctor) = said_by(&["doctor"]);
    assert!(
        doctor.contains(&format!("{}, version", server.url())),
        "{doctor}"
    );
    let (code, ready) = said_by(&["ready"]);
    assert!(code == Some(0) && ready.contains("ready: "), "{ready}");

    let pair = authority.certificate("other", HERE);
    let mut server = start(&pair, &["--host", "0.0.0.0"]);
    let url = format!("https://localhost:{}", port(&server));
    let status = elsewhere(&server, &url, Some(&authority))
        .arg("status")
        .output()
        .unwrap();
    assert!(status.status.success(), "{}", said(&status));
    let minted = server.ok(None, &["key", "mint", "Donna", "--json"]);
    let key: serde_json::Value = serde_json::from_str(&minted).unwrap();
    let mut host = elsewhere(&server, &url, Some(&authority));
    host.env("PRISM_AGENT_IDENTITY", "Donna")
        .env("PRISM_AGENT_SURFACE", "claude_code")
        .env("PRISM_API_KEY", key["key"].as_str().unwrap());
    let mut donna = Agent::run(&mut host);
    donna.call("prism_start", json!({}));
    server.ok(None, &["send", "Donna", "far away"]);
    let bell = donna.bell();
    assert!(bell.contains("frank"), "{bell}");
    drop(donna);
    server.terminate();
    let over = server.cli(None, &["ready"]);
    assert_eq!(over.status.code(), Some(1), "{}", said(&over));
}

#[test]
fn a_certificate_that_is_not_good_is_told_by_what_is_wrong_with_it() {
    let authority = Authority::new();
    let tell = |pair: &Pair, authority: Option<&Authority>, says: &[&str]| {
        let server = start(pair, &[]);
        let url = format!("https://localhost:{}", port(&server));
        let mut status = elsewhere(&server, &url, authority);
        let told = status.arg("status").output().unwrap();
        let told = (told.status.code(), said(&told));
        assert_eq!(told.0, Some(2), "{}", told.1);
        for words in says {
            assert!(told.1.contains(words), "{words}: {}", told.1);
        }
        let key = server.operator_key();
        assert!(!told.1.contains(&key), "the key is not said");
        // What is on the same machine goes on.
        server.ok(None, &["status"]);
    };
    let good = authority.certificate("good", HERE);
    tell(
        &good,
        None,
        &["authority that is not known", "PRISM_CA_FILE"],
    );
    let stranger = Authority::new();
    tell(&good, Some(&stranger), &["authority that is not known"]);
    let other = authority.certificate("named", "DNS:prism.example");
    tell(&other, Some(&authority), &["for another name", "localhost"]);
    let old = authority.expired("old", HERE);
    tell(&old, Some(&authority), &["has expired", "SIGHUP"]);

    let server = start(&good, &[]);
    let url = format!("https://localhost:{}", port(&server));
    let mut missing = elsewhere(&server, &url, None);
    missing.env("PRISM_CA_FILE", "/no/such/file.pem");
    let told = said(&missing.arg("status").output().unwrap());
    assert!(told.contains("/no/such/file.pem"), "{told}");
    let mut key_file = elsewhere(&server, &url, None);
    key_file.env("PRISM_CA_FILE", &good.key);
    let told = said(&key_file.arg("status").output().unwrap());
    assert!(told.contains("holds no certificate"), "{told}");

    let plain = Server::start();
    let url = plain.url().replacen("http:", "https:", 1);
    let told = elsewhere(&plain, &url, Some(&authority))
        .arg("status")
        .output()
        .unwrap();
    assert!(
        said(&told).contains("does not speak TLS"),
        "{}",
        said(&told)
    );
}

#[tokio::test]
async fn a_new_certificate_is_shown_after_a_hangup_and_a_bad_one_never() {
    let authority = Authority::new();
    let pair = authority.certificate("shown", HERE);
    let mut server = Server::none();
    let log = server.folder().join("log");
    let mut serve = server.command(None);
    let out = log.display().to_string();
    let line = format!("exec {} serve --port 0 \"$@\" 2>{out}", crate::harness::BIN);
    let mut shell = Command::new("sh");
    shell.env_clear();
    for (name, value) in serve.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    shell.current_dir(server.folder());
    shell.args(["-c", &line, "sh"]).args(pair.arguments());
    serve = shell;
    server.resume_as(serve);
    let target = |server: &Server| Target {
        url: format!("https://localhost:{}", port(server)),
        trust: Trust::Authority(authority.file()),
    };
    let client = |server: &Server| {
        Client::new(Locator::Url(target(server)), server.operator_key())
            .unwrap()
            .creating_project()
    };
    client(&server).call(PID, "ping", json!({})).await.unwrap();
    let told = |words: &str| {
        wait_for(words, || {
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            log.contains(words).then_some(())
        });
    };
    let shown = |server: &Server| ServerFile::load(&server.home()).unwrap().certificates;
    let first = shown(&server);

    // The key of another certificate, one whose time is over, and no certificate at all.
    let other = authority.certificate("other", HERE);
    std::fs::copy(&other.key, &pair.key).unwrap();
    server.hang_up();
    told("is not the key of the certificate");
    let old = authority.expired("old", HERE);
    pair.become_like(&old.cert, &old.key);
    server.hang_up();
    told("has expired");
    std::fs::write(&pair.cert, "nothing").unwrap();
    server.hang_up();
    told("holds no certificate");
    assert_eq!(shown(&server), first);
    client(&server).call(PID, "ping", json!({})).await.unwrap();

    pair.become_like(&other.cert, &other.key);
    server.hang_up();
    told("new certificate is shown");
    assert_ne!(shown(&server)[0], first[0]);
    client(&server).call(PID, "ping", json!({})).await.unwrap();
    server.ok(None, &["status"]);
    // Only the new one is shown: whoever knows the old one alone is not let on.
    let outdated = Target {
        trust: Trust::Known(first),
        ..target(&server)
    };
    let outdated = Client::new(Locator::Url(outdated), server.operator_key()).unwrap();
    let refused = outdated.call(PID, "ping", json!({})).await.unwrap_err();
    assert!(refused.message.contains("another certificate"), "{refused}");
}

#[test]
fn a_server_starts_beyond_loopback_only_with_what_keeps_keys_secret() {
    let authority = Authority::new();
    let (one, other) = (
        authority.certificate("one", HERE),
        authority.certificate("two", HERE),
    );
    let (cert, key) = (one.cert.to_str().unwrap(), one.key.to_str().unwrap());
    let wrong = other.key.to_str().unwrap();
    let server = Server::none();
    for (args, says) in [
        (vec!["--host", "0.0.0.0"], "--tls-cert"),
        (vec!["--tls-cert", cert], "without its key"),
        (vec!["--tls-key", key], "without its certificate"),
        (
            vec!["--tls-cert", cert, "--tls-key", wrong],
            "is not the key",
        ),
        (
            vec!["--tls-cert", "/none.pem", "--tls-key", key],
            "/none.pem",
        ),
        (
            vec!["--tls-cert", cert, "--tls-key", cert],
            "no private key",
        ),
    ] {
        let mut serve = server.command(None);
        serve.args(["serve", "--port", "0"]).args(&args);
        let output = serve.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{args:?}: {}", said(&output));
    }
}

#[test]
fn who_begins_a_handshake_and_does_not_go_on_is_not_waited_for() {
    let authority = Authority::new();
    let server = start(&authority.certificate("silent", HERE), &[]);
    let address = server.url().replace("https://", "");
    let mut silent = TcpStream::connect(address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    silent.write_all(&[0x16, 3, 1]).unwrap();
    server.advance(Duration::from_secs(FIRST_REQUEST_S + 1));
    let ended = match silent.read(&mut [0; 64]) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    };
    assert!(ended, "it is still open");
}

#[tokio::test]
async fn the_page_behind_tls_has_a_secure_cookie_and_sockets_end_with_their_key() {
    let authority = Authority::new();
    let pair = authority.certificate("page", &format!("{HERE},DNS:prism.example"));
    let config = format!(
        "[server]\ntls_cert = {:?}\ntls_key = {:?}\n",
        pair.cert, pair.key
    );
    let server = Server::start_with(&config);
    assert!(server.url().starts_with("https:"));
    let root = std::fs::read(authority.file()).unwrap();
    let root = reqwest::Certificate::from_pem(&root).unwrap();
    drop(rustls::crypto::ring::default_provider().install_default());
    let browser = reqwest::Client::builder()
        .tls_certs_only([root])
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
        .unwrap();
    let link = server.ok(None, &["dashboard", "--print"]);
    let entered = browser.get(link.trim()).send().await.unwrap();
    let cookie = entered.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.ends_with("; Secure"), "{cookie}");
    // A name of the certificate is a name of the server, and no other is.
    let named = format!("https://localhost:{}/healthz", port(&server));
    for (host, status) in [("prism.example", 200), ("evil.example", 403)] {
        let called = browser.get(&named).header("host", host);
        assert_eq!(called.send().await.unwrap().status(), status, "{host}");
    }

    let (texi, session) = server.session("Texi").await;
    let to = texi.locator().target().unwrap();
    let mut ws = socket::connect(to, texi.key()).await.unwrap();
    let hello = ClientFrame::Hello {
        pid: PID.into(),
        session_id: Some(session),
        last_seq: None,
        last_id: None,
        copy: None,
        confirm: vec![],
    };
    ws.send(socket::encode(&hello)).await.unwrap();
    server
        .operator()
        .call(PID, "signal", task("Texi", "through TLS"))
        .await
        .unwrap();
    let mut next = async || {
        let frame = tokio::time::timeout(PATIENCE, ws.next()).await;
        frame.unwrap().unwrap().unwrap()
    };
    loop {
        if let Some(ServerFrame::Signal { .. }) = socket::decode(&next().await) {
            break;
        }
    }
    let keys = server.operator().call(PID, "key_list", json!({})).await;
    let keys = keys.unwrap();
    let of_texi = |k: &&serde_json::Value| k["identity"] == "Texi";
    let key = keys["keys"].as_array().unwrap().iter().find(of_texi);
    let revoked = json!({"key_id": key.unwrap()["key_id"]});
    server
        .operator()
        .call(PID, "key_revoke", revoked)
        .await
        .unwrap();
    loop {
        if let Message::Close(Some(frame)) = next().await {
            assert_eq!(u16::from(frame.code), close::RELEASED);
            break;
        }
    }
}
