//! A home goes on with the store it had: nothing begins with an empty file in silence.

use crate::harness::engines::{Postgres, Redis};
use crate::harness::{Server, wait_for};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// A command in a shell that knows nothing of a database, unless told.
fn shell(server: &Server, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command: Command = server.command(None);
    command
        .env_remove("PRISM_DATABASE")
        .envs(env.iter().copied());
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn pid(output: &Output) -> u64 {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let up: Value = serde_json::from_slice(&output.stdout).unwrap();
    up["pid"].as_u64().unwrap()
}

#[track_caller]
fn refused(output: &Output, says: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(says), "{says}: {said}");
}

#[track_caller]
fn finds_its_rows(server: &Server, found: bool) {
    // What finds nothing ends with 1, and says so.
    let recalled = server.cli(None, &["recall", "harbour"]);
    assert_ne!(recalled.status.code(), Some(2), "{recalled:?}");
    let listed = String::from_utf8_lossy(&recalled.stdout).into_owned();
    assert_eq!(listed.contains("the harbour is closed"), found, "{listed}");
}

#[test]
fn a_home_whose_rows_are_in_postgresql_never_begins_with_an_empty_file_in_silence() {
    let postgres = Postgres::given().unwrap_or_else(Postgres::shared);
    let (database, server) = (postgres.database(), Server::none());
    let with = [("PRISM_DATABASE", database.url.as_str())];
    let first = pid(&shell(&server, &["up", "--json"], &with));
    server.ok(None, &["note", "the harbour is closed"]);

    // Whoever takes a server's place takes over its store, with or without a newer version.
    let second = pid(&shell(&server, &["restart", "--json"], &[]));
    assert_ne!(first, second);
    finds_its_rows(&server, true);
    let newer = [("PRISM_TEST_VERSION", "99.0.0")];
    let third = pid(&shell(&server, &["up", "--json"], &newer));
    assert_ne!(second, third);
    finds_its_rows(&server, true);

    // A restart that cannot know its store leaves the server alone.
    let empty = [("PRISM_DATABASE", ""), newer[0]];
    refused(&shell(&server, &["restart"], &empty), "was left alone");
    assert_eq!(pid(&shell(&server, &["up", "--json"], &newer)), third);

    shell(&server, &["down"], &[]);
    let lost = "the rows of this home are in postgres://";
    for command in [
        &["up"][..],
        &["restart"],
        &["serve", "--port", "0"],
        &["backup", "x.db"],
    ] {
        refused(&shell(&server, command, &[]), lost);
    }
    refused(
        &shell(&server, &["up"], &empty[..1]),
        "PRISM_DATABASE is there and empty",
    );
    let mut redis = with.to_vec();
    redis.push(("PRISM_REDIS", ""));
    refused(
        &shell(&server, &["up"], &redis),
        "PRISM_REDIS is there and empty",
    );
    let doctor = shell(&server, &["doctor"], &[]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains(lost), "{doctor}");
    assert!(!server.home().path("prism.db").exists());

    // The way to the file is said once, and the way back by naming the database again.
    let on_file = shell(&server, &["up", "--json", "--database", "sqlite:"], &[]);
    pid(&on_file);
    finds_its_rows(&server, false);
    shell(&server, &["down"], &[]);
    pid(&shell(&server, &["up", "--json"], &[]));
    finds_its_rows(&server, false);
    let there = ["restart", "--json", "--database", &database.url];
    pid(&shell(&server, &there, &[]));
    finds_its_rows(&server, true);

    // A shim that starts beside it starts nothing else either.
    shell(&server, &["down"], &[]);
    shim_says(&server, &[], lost);
}

/// Starts a shim that may start a server, and waits until it says something of that.
#[track_caller]
fn shim_says(server: &Server, env: &[(&str, &str)], says: &str) {
    let mut shim = server.command(Some("Texi"));
    shim.env_remove("PRISM_DATABASE")
        .env_remove("PRISM_AUTOSTART");
    shim.envs(env.iter().copied()).arg("mcp");
    let shim = shim.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut shim = shim.stdout(Stdio::null()).spawn().unwrap();
    let mut said = std::io::BufReader::new(shim.stderr.take().unwrap());
    wait_for(says, || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        line.contains(says).then_some(())
    });
    shim.kill().unwrap();
    shim.wait().unwrap();
}

#[test]
fn a_home_that_does_not_remember_its_store_is_known_by_what_its_servers_left() {
    let postgres = Postgres::given().unwrap_or_else(Postgres::shared);
    let (database, server) = (postgres.database(), Server::none());
    let with = [("PRISM_DATABASE", database.url.as_str())];
    pid(&shell(&server, &["up", "--json"], &with));
    server.ok(None, &["note", "the harbour is closed"]);
    wait_for("the operator's line", || {
        let kept = server.home().list("", "signals-", ".lock");
        (!kept.is_empty()).then_some(())
    });
    shell(&server, &["down"], &[]);
    // As a server of an earlier version leaves a home.
    server.home().remove("store.json");
    let named = "the rows of this home are in postgres://127.0.0.1:";
    for command in [&["up"][..], &["serve", "--port", "0"], &["backup", "x.db"]] {
        refused(&shell(&server, command, &[]), named);
    }
    shim_says(&server, &[], named);
    // As one leaves it that logged into a terminal.
    std::fs::remove_dir_all(server.home().path("log")).unwrap();
    for command in [&["up"][..], &["serve", "--port", "0"]] {
        refused(&shell(&server, command, &[]), "left no prism.db");
    }
    assert!(!server.home().path("prism.db").exists());
    pid(&shell(&server, &["up", "--json"], &with));
    finds_its_rows(&server, true);
    shell(&server, &["down"], &[]);
    server.home().remove("store.json");
    std::fs::remove_dir_all(server.home().path("log")).unwrap();
    pid(&shell(
        &server,
        &["up", "--json", "--database", "sqlite:"],
        &[],
    ));
    finds_its_rows(&server, false);
    // A file says enough by itself.
    shell(&server, &["down"], &[]);
    server.home().remove("store.json");
    pid(&shell(&server, &["up", "--json"], &[]));
    shell(&server, &["down"], &[]);
}

#[test]
fn a_store_that_is_named_in_the_configuration_while_a_server_runs_is_told_and_taken_by_a_restart() {
    let postgres = Postgres::given().unwrap_or_else(Postgres::shared);
    let (one, two, server) = (postgres.database(), postgres.database(), Server::none());
    let configure = |url: &str| {
        let config = server.home().read("config.toml").unwrap_or_default();
        let own = config.split("[server]").next().unwrap_or_default();
        let text = format!("{own}[server]\ndatabase = \"{url}\"\n");
        std::fs::create_dir_all(server.home().dir()).unwrap();
        server.home().write("config.toml", text.as_bytes()).unwrap();
    };
    // As some editors write it, and with an end of line from a file.
    configure(&format!("{}\\n", one.url));
    let text = server.home().read("config.toml").unwrap();
    let marked = format!("\u{feff}{text}");
    server
        .home()
        .write("config.toml", marked.as_bytes())
        .unwrap();
    let first = pid(&shell(&server, &["up", "--json"], &[]));
    server.ok(None, &["note", "the harbour is closed"]);
    let said = |args: &[&str]| {
        let output = shell(&server, args, &[]);
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    };
    assert!(!said(&["up"]).contains("it stands on"));
    assert!(!said(&["doctor"]).contains("`prism restart`"));

    configure(&two.url);
    let told = said(&["up"]);
    assert!(told.contains("`prism restart` has it stand on"), "{told}");
    let doctor = said(&["doctor"]);
    assert!(
        doctor.contains("is named for it here: `prism restart`"),
        "{doctor}"
    );
    // What only needs a server leaves it, though it is newer.
    let newer = [("PRISM_TEST_VERSION", "99.0.0")];
    shim_says(
        &server,
        &newer,
        "which does not replace it: this home stands on",
    );
    assert_eq!(pid(&shell(&server, &["up", "--json"], &[])), first);
    finds_its_rows(&server, true);
    assert_ne!(pid(&shell(&server, &["restart", "--json"], &[])), first);
    finds_its_rows(&server, false);
    shell(&server, &["down"], &[]);
}

/// What a server was told when it was started.
fn was_told(pid: u64, line: &str) -> bool {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    environment.split(|b| *b == 0).any(|l| l == line.as_bytes())
}

#[test]
fn a_server_makes_room_only_for_one_whose_store_is_known_and_can_be_used() {
    let postgres = Postgres::given().unwrap_or_else(Postgres::shared);
    let (database, other) = (postgres.database(), postgres.database());
    let (redis, server) = (Redis::shared(), Server::none());
    let on = ("PRISM_DATABASE", database.url.as_str());
    let elsewhere = ("PRISM_DATABASE", other.url.as_str());
    let bus = ("PRISM_REDIS", redis.url.as_str());
    let told = format!("PRISM_REDIS={}", redis.url);
    let first = pid(&shell(&server, &["up", "--json"], &[on, bus]));
    server.ok(None, &["note", "the harbour is closed"]);

    // The Redis goes along with its database, unless another is named.
    let second = pid(&shell(&server, &["restart", "--json"], &[on]));
    assert!(first != second && was_told(second, &told));
    let third = pid(&shell(&server, &["restart", "--json"], &[]));
    assert!(second != third && was_told(third, &told));
    let named = format!("{}/0", redis.url);
    let named = ("PRISM_REDIS", named.as_str());
    let fourth = pid(&shell(&server, &["restart", "--json"], &[named]));
    assert!(was_told(fourth, &format!("PRISM_REDIS={}", named.1)));
    assert!(was_told(
        fourth,
        &format!("PRISM_DATABASE={}", database.url)
    ));

    // What cannot be is refused while the server runs on.
    let nowhere = "postgres://prism@127.0.0.1:1/prism";
    for (args, env) in [
        (&["restart"][..], &[("PRISM_REDIS", "")][..]),
        (&["restart"], &[("PRISM_DATABASE", nowhere)]),
        (&["restart", "--database", nowhere], &[]),
        (&["restart", "--database", "sqlite:"], &[bus]),
    ] {
        let output = shell(&server, args, env);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{args:?} {env:?}: {said}");
        assert!(said.contains("was left alone"), "{args:?} {env:?}: {said}");
    }
    let up = shell(&server, &["up", "--json"], &[elsewhere]);
    assert_eq!(pid(&up), fourth);
    let said = String::from_utf8_lossy(&up.stderr);
    assert!(said.contains("note: it stands on postgres://"), "{said}");

    // What only needs a server takes over the store of the one that it replaces.
    let newer = ("PRISM_TEST_VERSION", "99.0.0");
    shim_says(
        &server,
        &[elsewhere, newer],
        "replaced the background server",
    );
    let fifth = pid(&shell(&server, &["up", "--json"], &[newer]));
    assert!(fourth != fifth && was_told(fifth, &format!("PRISM_REDIS={}", named.1)));
    finds_its_rows(&server, true);
    shell(&server, &["down"], &[]);
    shim_says(&server, &[elsewhere, newer], "what is named here is");

    // One that could not listen has changed nothing; what cannot be read is not nothing.
    let kept = server.home().read("store.json").unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let serve = shell(&server, &["serve", "--port", &port], &[elsewhere]);
    let said = String::from_utf8_lossy(&serve.stderr);
    assert!(said.contains("cannot listen"), "{said}");
    assert_eq!(server.home().read("store.json").unwrap(), kept);
    server
        .home()
        .write("store.json", b"{\"store\":\"\"}")
        .unwrap();
    for command in [&["up"][..], &["serve", "--port", "0"]] {
        refused(&shell(&server, command, &[]), "store.json should say");
    }
    assert!(!server.home().path("prism.db").exists());
    pid(&shell(&server, &["up", "--json"], &[on]));
    assert_eq!(server.home().read("store.json").unwrap(), kept);
    finds_its_rows(&server, true);
    shell(&server, &["down"], &[]);
}
