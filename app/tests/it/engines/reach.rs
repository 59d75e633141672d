//! How a database is reached, and what is said of one that cannot be used.

use crate::door::http;
use crate::harness::authority::{Authority, HERE, Pair};
use crate::harness::cable::Cable;
use crate::harness::engines::{Pooler, Postgres, Redis};
use crate::harness::{Server, engines, wait_for, wait_until};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

/// Starts a server that must refuse, and returns what it and `prism doctor` say.
fn refused(server: &Server, url: &str) -> [String; 2] {
    let mut serve = server.command(None);
    serve.env("PRISM_DATABASE", url);
    let output = serve.args(["serve", "--port", "0"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{url}: {said}");
    assert!(!said.contains("s3cret"), "the password is said: {said}");
    let mut doctor = server.command(None);
    let doctor = doctor.env("PRISM_DATABASE", url).arg("doctor").output();
    let doctor = String::from_utf8_lossy(&doctor.unwrap().stdout).into_owned();
    assert!(!doctor.contains("s3cret"), "the password is said: {doctor}");
    let to_itself = doctor.contains("`prism doctor`");
    assert!(!to_itself, "the doctor sends to itself: {doctor}");
    [said, doctor]
}

#[track_caller]
fn both_say(said: &[String; 2], words: &str) {
    assert!(said.iter().all(|s| s.contains(words)), "{words}: {said:?}");
}

#[test]
fn a_database_that_cannot_be_used_is_told_by_what_is_wrong_with_it() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let server = Server::none();
    let at = |user: &str, name: &str| {
        let place = database.url.split_once('@').unwrap().1;
        let host = place.split_once('/').unwrap().0;
        format!("postgres://{user}@{host}/{name}")
    };
    let name = database.url.rsplit_once('/').unwrap().1;

    let said = refused(&server, "postgres://prism:s3cret@127.0.0.1:1/x");
    both_say(&said, "prism@127.0.0.1:1/x cannot be used");
    let said = refused(&server, "postgres://prism:s3cret@no.such.host.invalid/x");
    both_say(&said, "no.such.host.invalid");
    let said = refused(&server, &at("prism:s3cret", "not_there"));
    both_say(&said, "createdb");
    let said = refused(&server, "mysql://prism:s3cret@127.0.0.1/x");
    both_say(&said, "not the URL of a PostgreSQL database");
    let said = refused(&server, "postgres://prism:p@s3cret/w@127.0.0.1:1/x");
    both_say(&said, "%40");
    // Something that takes connections and never says anything.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at_mute = mute.local_addr().unwrap();
    let said = refused(&server, &format!("postgres://prism:s3cret@{at_mute}/x"));
    drop(mute);
    both_say(&said, "said nothing for");
    let said = refused(&server, &format!("{}?sslmode=require", database.url));
    both_say(&said, "does not support TLS");
    both_say(&said, "switch TLS on there");

    database.sql(
        "create role limited login password 'other';
         copy (values ('host all limited all scram-sha-256'), ('host all all all trust'),
                      ('local all all trust'))
         to program 'cat > pg_hba.conf';
         select pg_reload_conf()",
    );
    let said = refused(&server, &at("limited:s3cret", name));
    both_say(&said, "password authentication failed");
    both_say(&said, "pg_hba.conf");

    // As PostgreSQL 15 and later have it for whoever does not own the database.
    database.sql("create role guest login");
    let said = refused(&server, &at("guest", name));
    both_say(&said, "grant create, usage on schema public");
    database.sql("create role crowd login connection limit 1; alter role crowd connection limit 0");
    let said = refused(&server, &at("crowd", name));
    both_say(&said, "max_connections");

    database.sql(&format!(
        "alter database {name} set default_transaction_read_only = on"
    ));
    both_say(&refused(&server, &database.url), "only be read");
    // To read only what says so is nothing that can be said once it is so.
    postgres.sql(&format!(
        "alter database {name} reset default_transaction_read_only"
    ));
    database
        .sql("create table prism_schema (version bigint); insert into prism_schema values (999)");
    both_say(&refused(&server, &database.url), "schema 999");
}

/// A way to a PostgreSQL on which it is as old as 10 in what is asked here: it knows no jit, and says so of itself. What
/// is said on the way stays as long as it was.
fn aged(port: u16) -> u16 {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    const AS_OLD: [(&str, &str); 3] = [
        ("jit", "jut"),
        (">= 110000", "<       0"),
        (
            "current_setting('server_version')",
            "'10.23'::text                    ",
        ),
    ];
    fn carry(mut from: TcpStream, mut to: TcpStream, is_asked: bool) {
        let mut buffer = [0; 65_536];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            let said = &mut buffer[..n];
            for (now, then) in AS_OLD.iter().filter(|_| is_asked) {
                assert_eq!(now.len(), then.len());
                while let Some(at) = said.windows(now.len()).position(|w| w == now.as_bytes()) {
                    said[at..at + now.len()].copy_from_slice(then.as_bytes());
                }
            }
            if to.write_all(said).is_err() {
                break;
            }
        }
        let _ = to.shutdown(std::net::Shutdown::Both);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near_port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for near in listener.incoming() {
            let near = near.unwrap();
            let far = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (back, forth) = (near.try_clone().unwrap(), far.try_clone().unwrap());
            std::thread::spawn(move || carry(near, forth, true));
            std::thread::spawn(move || carry(far, back, false));
        }
    });
    near_port
}

#[test]
fn a_postgresql_that_is_too_old_is_told_by_its_version_and_not_by_what_it_does_not_know() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let server = Server::none();
    let (there, name) = database.url.rsplit_once('/').unwrap();
    let (user, place) = there.rsplit_once('@').unwrap();
    let port = place.rsplit(':').next().unwrap().parse().unwrap();
    let url = format!("{user}@127.0.0.1:{}/{name}?sslmode=disable", aged(port));
    let said = refused(&server, &url);
    both_say(&said, "PostgreSQL 10.23, and Prism needs 14 or later");
}

#[test]
fn a_pooler_that_keeps_no_sessions_is_refused_and_one_that_does_is_as_good_as_none() {
    let database = Postgres::shared().database();
    let mut pooler = Pooler::before(&database, "transaction");
    let mut server = Server::none();
    both_say(&refused(&server, &pooler.url), "pool_mode = session");
    pooler.becomes("session");
    server.resume_with(&[("PRISM_DATABASE", &pooler.url)]);
    let note = |said: &str| server.cli(None, &["note", said]).status.success();
    assert!(note("one"));
    // Somebody sets it wrong under a running server: what is refused is said, and once it is right again all goes on.
    pooler.becomes("transaction");
    let meanwhile = note("two");
    pooler.becomes("session");
    wait_for("notes are taken again", || note("three").then_some(()));
    let kept = |said: &str| {
        let sql = format!("select count(*) from memory where text like '%{said}%'");
        database.sql(&sql).trim() != "0"
    };
    assert!(kept("one") && kept("three"));
    assert!(!meanwhile || kept("two"), "what was accepted is kept");
}

#[test]
fn a_running_server_says_what_it_stands_on() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let url = database.url.replacen("prism@", "prism:s3cret@", 1);
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &url)]);
    let doctor = |server: &Server| {
        let output = server.cli(None, &["doctor"]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = doctor(&server);
    assert!(said.contains("database  PostgreSQL 1"), "{said}");
    assert!(said.contains("exact scan"), "{said}");
    assert!(!said.contains("clock is"), "{said}");
    database.sql("create extension vector");
    server.terminate();
    server.resume_with(&[("PRISM_DATABASE", &url), ("PRISM_CLOCK_OFF_MS", "60000")]);
    let said = doctor(&server);
    assert!(said.contains("pgvector 0."), "{said}");
    assert!(
        said.contains("s behind this server's") && !said.contains("exact scan"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
}

#[test]
fn a_standby_is_refused_and_stood_on_once_it_is_promoted() {
    let mut primary = Postgres::start();
    let database = primary.database();
    let name = database.url.rsplit_once('/').unwrap().1;
    let standby = primary.standby();
    let at_standby = standby.url().replace("/postgres", &format!("/{name}"));
    let said = refused(&Server::none(), &at_standby);
    both_say(&said, "only be read: it is a replica");
    both_say(&said, "target_session_attrs=read-write");

    let url = format!(
        "postgres://prism@127.0.0.1:{},127.0.0.1:{}/{name}?target_session_attrs=read-write",
        primary.port(),
        standby.port()
    );
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &url)]);
    let kept = |said: &str| {
        let sql = format!("select count(*) from memory where text like '%{said}%'");
        standby.sql_in(name, &sql).trim() == "1"
    };
    server.ok(None, &["note", "before the switch"]);
    wait_for("the standby has it", || kept("before the").then_some(()));
    primary.stop();
    standby.sql("select pg_promote()");
    wait_for("the server finds the one that writes", || {
        let noted = server.cli(None, &["note", "after the switch"]);
        noted.status.success().then_some(())
    });
    assert!(kept("after the switch"));
    wait_for("it is ready", || {
        let ready = server.cli(None, &["ready"]);
        (ready.status.code() == Some(0)).then_some(())
    });
}

/// As after a password was changed, or whoever may come in was: what stood open is closed, and nobody new is let in.
#[test]
fn a_running_server_that_is_let_in_no_more_says_why_and_goes_on_once_it_is() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let (place, name) = database.url.rsplit_once('/').unwrap();
    let host = place.rsplit_once('@').unwrap().1;
    let role = format!("{name}_server");
    postgres.sql(&format!("create role {role} login superuser"));
    let url = format!("postgres://{role}@{host}/{name}");
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &url)]);
    server.ok(None, &["note", "before"]);
    postgres.sql(&format!("alter role {role} nologin"));
    postgres.sql(&format!(
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"
    ));
    for args in [&["note", "meanwhile"][..], &["ready"]] {
        let said = server.cli(None, args);
        assert!(!said.status.success(), "{args:?}");
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        assert!(said.contains("(28000)"), "{said}");
        assert!(said.contains("pg_hba.conf"), "what to do: {said}");
    }
    postgres.sql(&format!("alter role {role} login"));
    server.ok(None, &["note", "after"]);
}

/// After a switch the way may lead to the old primary, which follows by then: whoever reads there stays behind.
#[test]
fn nobody_reads_from_a_standby_that_the_way_has_led_to() {
    let primary = Postgres::start();
    let database = primary.database();
    let name = database.url.rsplit_once('/').unwrap().1;
    let standby = primary.standby();
    let place = |port| format!("postgres://127.0.0.1:{port}");
    let cable = Cable::to(&place(primary.port()));
    let url = format!("postgres://prism@{}/{name}", cable.address);
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &url)]);
    server.ok(None, &["note", "before"]);
    let there = || {
        let sql = "select count(*) from memory where text like '%before%'";
        standby.sql_in(name, sql).trim() == "1"
    };
    wait_for("the standby has it", || there().then_some(()));
    standby.sql("select pg_wal_replay_pause()");
    cable.cut();
    cable.lead_to(&place(standby.port()));
    cable.mend();
    let refused = server.cli(None, &["recall", "before"]);
    assert!(!refused.status.success(), "it answers from a standby");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("is a standby"), "{said}");
    // Those who came to the standby stay connected with it.
    cable.lead_to(&place(primary.port()));
    wait_for("it is written", || {
        let noted = server.cli(None, &["note", "after"]);
        noted.status.success().then_some(())
    });
    let found = server.ok(None, &["recall", "after"]);
    assert!(found.contains("after"), "{found}");
}

/// As PostgreSQL says it where a disk fails; and a look for room that fails for another reason has found none.
#[test]
fn a_disk_that_fails_is_not_told_as_full_and_a_look_that_fails_finds_no_room() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let fails = |code: &str, what: &str| {
        format!("returns {code} language plpgsql as $$ begin raise exception {what}; end $$")
    };
    let broken = fails(
        "trigger",
        "'could not write block 7: Input/output error' using errcode = '58030'",
    );
    let unseen = fails("event_trigger", "'nobody may look' using errcode = 'P0001'");
    database.sql(&format!(
        "create function broken() {broken};
         create trigger broken before insert on memory for each row execute function broken();
         create function unseen() {unseen};
         create event trigger unseen on ddl_command_start when tag in ('CREATE TABLE AS')
             execute function unseen()"
    ));
    let refused = server.cli(None, &["note", "one"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        said.contains("the disk that the database is on fails"),
        "{said}"
    );
    assert!(
        !said.contains("room") && !said.contains("free space"),
        "{said}"
    );
    database.sql("drop trigger broken on memory");
    wait_for("it has looked", || {
        let ready = server.cli(None, &["ready"]);
        let said = [ready.stdout, ready.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_ne!(ready.status.code(), Some(0), "{said}");
        said.contains("the store failed").then_some(())
    });
    // Who may make no table sees whether anything is taken.
    database.sql(&format!(
        "create or replace function unseen() {}",
        fails(
            "event_trigger",
            "'permission denied' using errcode = '42501'"
        )
    ));
    wait_for("it is ready again", || {
        let ready = server.cli(None, &["ready"]);
        (ready.status.code() == Some(0)).then_some(())
    });
    server.ok(None, &["note", "two"]);
}

/// As PostgreSQL says it where its disk is full, without filling one.
#[test]
fn a_database_without_room_is_told_by_everything_and_goes_on_by_itself() {
    let postgres = Postgres::shared();
    let (database, server) = (postgres.database(), Server::none());
    let mut up = server.command(None);
    let up = up.env("PRISM_DATABASE", &database.url).arg("up").output();
    assert!(up.unwrap().status.success());
    database.sql(
        "create function no_room() returns trigger language plpgsql as $$ begin
             raise exception 'could not extend file: No space left on device' using errcode = '53100';
         end $$;
         create trigger no_room before insert on memory for each row execute function no_room()",
    );
    let says = |args: &[&str]| {
        let output = server.cli(None, args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    };
    for args in [
        &["note", "one"][..],
        &["note", "two"],
        &["ready"],
        &["doctor"],
    ] {
        let (code, said) = says(args);
        assert_ne!(code, Some(0), "{args:?}: {said}");
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
    }
    let log = || server.home().read("log/server.log").unwrap();
    assert_eq!(log().matches("The database cannot be written").count(), 1);
    database.sql("drop trigger no_room on memory");
    wait_for("it is ready again", || {
        (says(&["ready"]).0 == Some(0)).then_some(())
    });
    assert_eq!(says(&["note", "three"]).0, Some(0));
    assert!(log().contains("The database can be written again"));
}

#[test]
fn rights_that_are_taken_away_are_told_by_everything_with_what_gives_them_back() {
    let postgres = Postgres::shared();
    let (database, server) = (postgres.database(), Server::none());
    let up = || {
        let mut up = server.command(None);
        let up = up
            .env("PRISM_DATABASE", &database.url)
            .args(["up", "--json"]);
        assert!(up.output().unwrap().status.success());
    };
    up();
    // What others keep in the same schema is none of Prism's business.
    database.sql("create table orders (n int); revoke all on orders from public");
    let says = |args: &[&str]| {
        let output = server.cli(None, args);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.code(), said)
    };
    assert_eq!(says(&["ready"]).0, Some(0));
    let ready_with = |code| {
        wait_for("what `prism ready` says", || {
            let (ended, said) = says(&["ready"]);
            (ended == Some(code)).then_some(said)
        })
    };
    let denied = |verb: &[&str], of: &str| {
        let (code, said) = says(verb);
        assert_eq!(code, Some(2), "{said}");
        let table = format!("permission denied for table {of}");
        assert!(said.contains(&table), "{said}");
        let grant = format!("delete on {of} to prism_member");
        assert!(said.contains(&grant), "{said}");
    };
    // A verb that fails keeps `prism doctor` from nothing, whatever its shell knows of a database.
    for (taken, of, verb) in [
        ("insert", "memory", Some(&["note", "one"][..])),
        ("select, update", "personas", Some(&["status"])),
        ("select, update", "prism_schema", None),
    ] {
        database.sql(&format!("revoke {taken} on {of} from prism_member"));
        if let Some(verb) = verb {
            denied(verb, of);
        }
        let grant = format!("`grant {taken} on {of} to prism_member`");
        let said = ready_with(1);
        assert!(said.contains(&grant), "{said}");
        let (code, doctor) = says(&["doctor"]);
        assert_eq!(code, Some(1), "{doctor}");
        assert!(doctor.contains(&grant), "{doctor}");
        let unknown = "nothing here names that database";
        assert!(!doctor.contains(unknown), "{doctor}");
        database.sql(grant.trim_matches('`'));
        ready_with(0);
        if let Some(verb) = verb {
            assert_eq!(says(verb).0, Some(0));
        }
    }
    let log = server.home().read("log/server.log").unwrap();
    assert_eq!(log.matches("What callers send is refused").count(), 1);
    // A server that starts takes back what it may.
    database.sql("revoke insert on memory from prism_member");
    assert!(server.cli(None, &["down"]).status.success());
    up();
    assert_eq!(says(&["ready"]).0, Some(0));
    assert_eq!(says(&["note", "two"]).0, Some(0));
}

/// Anybody may ask whether a server is ready, however often; what is refused is asked no more often than what is well.
#[tokio::test]
async fn whoever_asks_again_and_again_whether_a_server_is_ready_costs_the_database_a_question_a_second()
 {
    let database = Postgres::shared().database();
    let server = engines::server(&database, None);
    let readyz = format!("{}/readyz", server.url());
    let status = async || http().get(&readyz).send().await.unwrap().status().as_u16();
    for (statement, expected) in [
        ("select 1", 200),
        ("revoke insert on memory from prism_member", 503),
    ] {
        database.sql(statement);
        wait_until("what /readyz says", async || {
            (status().await == expected).then_some(())
        })
        .await;
        let (before, began) = (
            gauge(&server, "database_round_trips_total").await,
            Instant::now(),
        );
        for _ in 0..50 {
            assert_eq!(status().await, expected);
        }
        let grown = gauge(&server, "database_round_trips_total").await.unwrap() - before.unwrap();
        // A look is some questions, and the server does its own work meanwhile.
        let most = 40 * (began.elapsed().as_secs() + 2);
        assert!(
            grown < most,
            "{expected}: {grown} round trips, {most} at the most"
        );
    }
}

#[tokio::test]
async fn a_server_whose_database_a_newer_prism_has_upgraded_stays_ready_and_says_so() {
    let database = Postgres::shared().database();
    let server = engines::server(&database, None);
    let readyz = format!("{}/readyz", server.url());
    let notes = async || {
        let answer = http().get(&readyz).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        let answer: serde_json::Value = answer.json().await.unwrap();
        answer["notes"].to_string()
    };
    let is_newer = "the database is of a newer prism (schema ";
    let doctor = || {
        let output = server.cli(None, &["doctor"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said)
    };
    let told = async |is: bool| {
        wait_until("what /readyz notes", async || {
            (notes().await.contains(is_newer) == is).then_some(())
        })
        .await;
    };
    told(false).await;
    assert!(!doctor().1.contains(is_newer));
    database.sql("update prism_schema set version = version + 1");
    told(true).await;
    let (code, said) = doctor();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains(is_newer) && said.contains("replace this server"),
        "{said}"
    );
    database.sql("update prism_schema set version = version - 1");
    told(false).await;
}

/// A figure of `/metrics`.
async fn gauge(server: &Server, name: &str) -> Option<u64> {
    let metrics = http().get(format!("{}/metrics", server.url())).send().await;
    let metrics = metrics.unwrap().text().await.unwrap();
    let mut lines = metrics.lines();
    let figure = lines.find_map(|line| line.strip_prefix(&format!("prism_{name} ")))?;
    figure.parse().ok()
}

/// What carries word between servers is told by `/metrics` and by `prism doctor`.
#[test]
fn a_redis_that_is_cut_off_is_told_by_the_metrics_and_the_doctor_until_it_is_back() {
    let (redis, database) = (Redis::shared(), Postgres::shared().database());
    let cable = Cable::to(&redis.url);
    let by_cable = format!("redis://{}", cable.address);
    let mut one = Server::none();
    one.resume_with(&[
        ("PRISM_DATABASE", &database.url),
        ("PRISM_REDIS", &by_cable),
    ]);
    let two = engines::server(&database, Some(&redis));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let doctor = || {
        let output = one.cli(None, &["doctor"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find(|line| line.contains("carrier"));
        (output.status.code(), line.unwrap_or_default().to_owned())
    };
    let is = async |connected: u64| {
        wait_until("what the metrics say of the carrier", async || {
            (gauge(&one, "carrier_connected").await? == connected).then_some(())
        })
        .await;
    };
    let peer = format!(":{}", two.pid());
    let names_peer = async || {
        is(1).await;
        wait_until("the doctor names the other server", async || {
            let (code, said) = doctor();
            (code == Some(0) && said.contains(&peer)).then_some(())
        })
        .await;
    };
    runtime.block_on(async {
        names_peer().await;
        assert_eq!(gauge(&one, "carrier_lost_total").await, Some(0));
        cable.cut();
        is(0).await;
        let (code, said) = doctor();
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("does not carry word between servers"),
            "{said}"
        );
        cable.mend();
        names_peer().await;
    });
}

#[test]
fn a_redis_that_is_configured_is_looked_at_by_the_doctor_while_no_server_runs() {
    let (redis, database) = (Redis::start(), Postgres::shared().database());
    let server = Server::none();
    let doctor = |url: &str, with_database: bool| {
        let mut doctor = server.command(None);
        doctor.env("PRISM_REDIS", url);
        if with_database {
            doctor.env("PRISM_DATABASE", &database.url);
        } else {
            doctor.env_remove("PRISM_DATABASE");
        }
        let output = doctor.arg("doctor").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!said.contains("s3cret"), "the password is said: {said}");
        let line = said.lines().find(|line| line.contains("carrier"));
        line.unwrap_or(&said).to_owned()
    };
    let good = doctor(&redis.url, true);
    assert!(good.contains("✓") && good.contains("answers"), "{good}");
    // Nobody listens there; one listens and says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = format!("redis://:s3cret@{}", silent.local_addr().unwrap());
    let place = redis.url.trim_start_matches("redis://");
    for (url, says) in [
        ("redis://:s3cret@127.0.0.1:1", "redis-cli ping"),
        (&silent, "said nothing for"),
        (&format!("redis://:s3cret@{place}"), "user and password"),
        ("http://s3cret@h", "redis://[[user]"),
    ] {
        let said = doctor(url, true);
        assert!(said.contains("✗") && said.contains(says), "{url}: {said}");
    }
    let alone = doctor(&redis.url, false);
    assert!(
        alone.contains("✗") && alone.contains("--database"),
        "{alone}"
    );
}

#[test]
fn a_server_is_not_ready_while_its_database_is_away_and_ready_once_it_is_back() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let is_ready = |code| {
        wait_for("what `prism ready` says", || {
            let output = server.cli(None, &["ready"]);
            (output.status.code() == Some(code)).then_some(())
        });
    };
    is_ready(0);
    postgres.stop();
    is_ready(1);
    postgres.start_again();
    is_ready(0);
}

/// Stands in front of a PostgreSQL without TLS and gives it a certificate.
async fn secured(to: String, pair: &Pair) -> u16 {
    let chain = CertificateDer::pem_file_iter(&pair.cert).unwrap();
    let chain = chain.collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(&pair.key).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let tls = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (tls, to) = (tls.clone(), to.clone());
            tokio::spawn(async move {
                // "Do you speak TLS?" "Yes."
                let mut question = [0; 8];
                stream.read_exact(&mut question).await?;
                assert_eq!(question[4..], 80_877_103_u32.to_be_bytes());
                stream.write_all(b"S").await?;
                let mut stream = tls.accept(stream).await?;
                let mut there = TcpStream::connect(to).await?;
                copy_bidirectional(&mut stream, &mut there).await
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_reached_over_tls_and_its_certificate_is_checked_as_asked_for() {
    let authority = Authority::new();
    let postgres = Postgres::shared();
    let database = postgres.database();
    let (place, name) = database.url.rsplit_once('/').unwrap();
    let there = place.rsplit_once('@').unwrap().1.to_owned();
    let good = secured(there.clone(), &authority.certificate("good", HERE)).await;
    let named = authority.certificate("named", "DNS:db.example");
    let named = secured(there, &named).await;
    let root = authority.file().display().to_string().replace('/', "%2F");
    let url =
        |port: u16, options: &str| format!("postgres://prism@localhost:{port}/{name}?{options}");
    for (port, options) in [
        (good, "sslmode=require".to_owned()),
        (good, format!("sslmode=verify-full&sslrootcert={root}")),
        (named, format!("sslmode=verify-ca&sslrootcert={root}")),
    ] {
        let url = url(port, &options);
        let ran = tokio::task::spawn_blocking(move || {
            let mut server = Server::none();
            server.resume_with(&[("PRISM_DATABASE", &url)]);
            server.ok(None, &["status"]);
        });
        ran.await.unwrap();
    }
    for (port, options, says) in [
        (good, "sslmode=verify-full".to_owned(), "sslrootcert=FILE"),
        (
            named,
            format!("sslmode=verify-full&sslrootcert={root}"),
            "or say sslmode=verify-ca",
        ),
    ] {
        let url = url(port, &options);
        let said = tokio::task::spawn_blocking(move || refused(&Server::none(), &url));
        both_say(&said.await.unwrap(), says);
    }
}
