//! Two servers behind a real proxy, with the settings of `deploy/`.

use crate::harness::authority::{Authority, HERE, Pair};
use crate::harness::engines::{self, Database, Postgres};
use crate::harness::{Agent, Server, ids, wait_for, wait_until};
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A proxy that ends TLS in front of some servers, until dropped.
struct Proxy {
    process: Child,
    port: u16,
    _dir: TempDir,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Proxy {
    /// nginx with `deploy/nginx.conf`, in which nothing is changed but places.
    fn nginx(servers: [&Server; 2], pair: &Pair) -> Self {
        let program = engines::nginx();
        let dir = tempfile::tempdir().unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/nginx.conf");
        let mut conf = std::fs::read_to_string(conf).unwrap();
        for (there, here) in [
            ("127.0.0.1:7747", servers[0].url().replace("http://", "")),
            ("127.0.0.1:7748", servers[1].url().replace("http://", "")),
            ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
            ("/etc/prism/tls/prism.pem", pair.cert.display().to_string()),
            ("/etc/prism/tls/prism.key", pair.key.display().to_string()),
        ] {
            assert!(conf.contains(there), "{there}");
            conf = conf.replace(there, &here);
        }
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {}/{name};", dir.path().display()));
        let whole = format!(
            "daemon off; master_process off; pid {}/pid; events {{}}\nhttp {{ access_log off; {}\n{conf}\n}}\n",
            dir.path().display(),
            temporary.join(" ")
        );
        std::fs::write(dir.path().join("nginx.conf"), whole).unwrap();
        drop(free);
        let process = Command::new(program)
            .args(["-e", "stderr", "-p"])
            .arg(dir.path())
            .args(["-c", "nginx.conf"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the proxy listens", || {
            TcpStream::connect(("127.0.0.1", port)).ok()
        });
        Self {
            process,
            port,
            _dir: dir,
        }
    }
}

fn behind_a_proxy(database: &Database) -> Server {
    let mut server = Server::none();
    let mut serve = server.command(None);
    serve.env("PRISM_DATABASE", &database.url);
    serve.args(["serve", "--port", "0", "--behind-proxy"]);
    serve.args(["--public-url", "https://prism.example"]);
    server.resume_as(serve);
    server
}

async fn sockets(server: &Server) -> u64 {
    let ready = server.operator().ready().await.unwrap();
    ready["sockets"].as_u64().unwrap()
}

#[tokio::test]
async fn what_prometheus_asks_is_not_asked_through_nginx() {
    let database = Postgres::shared().database();
    let authority = Authority::new();
    let pair = authority.certificate("proxy", HERE);
    let (one, two) = (behind_a_proxy(&database), behind_a_proxy(&database));
    let proxy = Proxy::nginx([&one, &two], &pair);
    drop(rustls::crypto::ring::default_provider().install_default());
    let trusted = std::fs::read(authority.file()).unwrap();
    let trusted = reqwest::Certificate::from_pem(&trusted).unwrap();
    let http = reqwest::Client::builder().no_proxy();
    let http = http.tls_certs_only([trusted]).build().unwrap();
    let url = format!("https://localhost:{}", proxy.port);
    for (path, through, within) in [
        ("/healthz", 200, 200),
        ("/readyz", 200, 200),
        ("/metrics", 404, 200),
    ] {
        let asked = async |at: &str| {
            let request = http.get(format!("{at}{path}"));
            let answer = request.bearer_auth(one.operator_key()).send().await;
            answer.unwrap().status().as_u16()
        };
        assert_eq!(asked(&url).await, through, "{path}");
        assert_eq!(asked(&one.url()).await, within, "{path}");
    }
}

#[test]
fn agents_reach_two_servers_behind_nginx_and_stay_reached_when_one_of_them_goes() {
    let database = Postgres::shared().database();
    let authority = Authority::new();
    let pair = authority.certificate("proxy", HERE);
    let (mut one, mut two) = (behind_a_proxy(&database), behind_a_proxy(&database));
    let proxy = Proxy::nginx([&one, &two], &pair);
    let url = format!("https://localhost:{}", proxy.port);
    let key = one.ok(None, &["key", "mint", "Texi", "--print"]);
    let mut words = key.split_whitespace();
    let key = words.find(|word| word.starts_with("prk_")).unwrap();
    // Another machine, with homes in which there is nothing.
    let machine = Server::none();
    let elsewhere = |name: &str, identity: Option<&str>, key: &str| {
        let mut command = machine.command(identity);
        command
            .env_remove("PRISM_DATABASE")
            .env("PRISM_HOME", machine.folder().join(name))
            .env("PRISM_URL", &url)
            // As a file with a secret has it.
            .env("PRISM_API_KEY", format!("{key}\n"))
            .env("PRISM_CA_FILE", authority.file());
        command
    };
    let operator = one.operator_key();
    let mut texi = Agent::run(&mut elsewhere("texi", Some("Texi"), key));
    texi.call("prism_start", json!({}));
    let mut rings = |summary: &str| {
        let mut send = elsewhere("operator", None, &operator);
        let sent = send.args(["send", "Texi", summary]).output().unwrap();
        let said = String::from_utf8_lossy(&sent.stderr).into_owned();
        assert!(sent.status.success(), "{said}");
        let bell = texi.bell();
        assert!(bell.contains("frank"), "{bell}");
        let read = texi.call("prism_signals_pending", json!({}));
        assert_eq!(ids(&read).len(), 1, "{read}");
        // Once the ring is read, the next one rings again.
        wait_for("the ring to be read", || {
            let mut count = elsewhere("texi", Some("Texi"), key);
            let count = count.args(["signals", "count"]).output().unwrap();
            count.stdout.starts_with(b"0 unread").then_some(())
        });
    };
    rings("through the proxy");

    // The one that has the socket stops; the shim comes back by the same address, at the other.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let held = runtime.block_on(async { [sockets(&one).await, sockets(&two).await] });
    let (gone, stays) = match held {
        [1, 0] => (&mut one, &two),
        [0, 1] => (&mut two, &one),
        held => panic!("sockets: {held:?}"),
    };
    gone.terminate();
    runtime.block_on(wait_until("its socket is at the other", async || {
        (sockets(stays).await == 1).then_some(())
    }));
    rings("through the proxy, by the other one");
}
