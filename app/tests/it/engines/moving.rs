//! Moving house: SQLite to PostgreSQL and back, cut off and gone on with, proven; and PostgreSQL's own copies.

use crate::harness::engines::{Database, Postgres, postgres_bin};
use crate::harness::{Pty, Server};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const QUESTION: &str = "why does the seat map jump";

fn database() -> Database {
    Postgres::given()
        .unwrap_or_else(Postgres::shared)
        .database()
}

fn serve(server: &mut Server, database: Option<&str>) {
    let mut serve = server.command(None);
    serve.env_remove("PRISM_DATABASE");
    serve.args(["serve", "--port", "0"]);
    serve.args(["--database", database.unwrap_or("sqlite:")]);
    server.resume_as(serve);
}

/// A home whose rows are in a SQLite file, with something in nearly every table, and no server.
fn lived_in() -> Server {
    let mut server = Server::none();
    serve(&mut server, None);
    server.ok(None, &["demo"]);
    let hostile = "the seat map jumps: a\ttab, a \\N, a\r\nline, a bézier and \"'quotes'\"";
    server.ok(None, &["note", hostile]);
    server.ok(None, &["note", "the harbour is closed"]);
    server.terminate();
    let rows = "
        insert into memory_vectors (memory_row, ordinal, model, vector)
            select rowid, 0, 'm', randomblob(384) from memory limit 5;
        insert into memory_words (stem, project_id, rows) select 'jump', id, 7 from projects;
        insert into vector_generation (one, generation) values (1, 'm');
        insert into loopback_days (project_id, day, identity, outcome, runs)
            select id, '2026-01-01', 'Texi', 'complete', 3 from projects;
        insert into project_folders (project_id, machine_id, folder, since)
            select id, 'm', '/a/b', 1 from projects;
        insert into recallgate_windows (project_id, assignment_id, session_id, task_class, arrived_at)
            select id, 'a', 's', 'tier1', 1 from projects;
        insert into signal_trace_events (signal_id, layer, state, observed_at)
            select id, 'x', 'y', 1 from signal_queue limit 3;";
    let c = rusqlite::Connection::open(file_of(&server)).unwrap();
    c.execute_batch(rows).unwrap();
    c.close().unwrap();
    server
}

fn file_of(server: &Server) -> PathBuf {
    server.home().path("prism.db")
}

fn sqlite(file: &Path) -> String {
    format!("sqlite:{}", file.display())
}

fn moving(server: &Server, from: &str, to: &str) -> Command {
    let mut command = server.command(None);
    command.args(["migrate-store", from, to, "--json"]);
    command
}

fn moved(server: &Server, from: &str, to: &str) -> Value {
    let output = moving(server, from, to).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[track_caller]
fn refused(server: &Server, from: &str, to: &str, says: &str) {
    let output = moving(server, from, to).output().unwrap();
    let said = stderr(&output);
    assert!(said.contains(says) && said.contains("hint: "), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
}

/// Killed after the first rows of memory.
fn cut_off(server: &Server, from: &str, to: &str) {
    let mut command = moving(server, from, to);
    let output = command.env("PRISM_FAILPOINTS", "moving.killed").output();
    assert_eq!(output.unwrap().status.code(), Some(137));
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Tables with their rows and hashes.
fn tables(moved: &Value) -> Vec<(String, u64, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let tables = moved["tables"].as_array().unwrap().iter();
    let one = |t: &Value| {
        (
            text(&t["table"]),
            t["rows"].as_u64().unwrap(),
            text(&t["sha256"]),
        )
    };
    tables.map(one).collect()
}

fn copied(moved: &Value) -> u64 {
    let tables = moved["tables"].as_array().unwrap().iter();
    tables.map(|t| t["copied"].as_u64().unwrap()).sum()
}

fn recalled(server: &Server) -> Vec<String> {
    let found: Value =
        serde_json::from_str(&server.ok(None, &["recall", QUESTION, "--json"])).unwrap();
    let ids = found["results"].as_array().unwrap().iter();
    ids.map(|r| r["id"].as_str().unwrap().to_owned()).collect()
}

fn hash(file: &Path) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    Sha256::digest(std::fs::read(file).unwrap()).to_vec()
}

#[test]
fn every_row_of_every_table_goes_to_postgresql_and_back() {
    let mut server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let was = hash(&file);
    let there = moved(&server, &sqlite(&file), &database.url);
    assert!(was == hash(&file), "the source was changed");
    assert!(!there.to_string().contains("prism@"), "{there}");

    // Listed here by another way than the move lists them.
    let c = rusqlite::Connection::open(&file).unwrap();
    let listed: String = c
        .query_row(
            "select group_concat(name, ' ') from sqlite_schema where type = 'table'
             and name not like 'sqlite_%' and name not like 'memory_fts%'",
            [],
            |r| r.get(0),
        )
        .unwrap();
    let listed: BTreeSet<String> = listed.split(' ').map(str::to_owned).collect();
    let told: BTreeSet<String> = tables(&there).into_iter().map(|t| t.0).collect();
    assert_eq!(told, listed);
    for (table, rows, _) in tables(&there) {
        let count = format!("select count(*) from {table}");
        let here: i64 = c.query_row(&count, [], |r| r.get(0)).unwrap();
        assert_eq!(database.sql(&count).trim(), here.to_string(), "{table}");
        assert_eq!(rows, here as u64, "{table}");
    }

    let back = server.folder().join("back.db");
    let back_again = moved(&server, &database.url, &sqlite(&back));
    assert_eq!(tables(&back_again), tables(&there));
    drop(c);

    // Without a word a server goes on where the rows are now, or not at all.
    let mut unsaid = server.command(None);
    unsaid.env_remove("PRISM_DATABASE");
    let said = unsaid.args(["serve", "--port", "0"]).output().unwrap();
    let said = stderr(&said);
    assert!(
        said.contains("the rows of this home are in postgres://"),
        "{said}"
    );

    // Each of the three goes on as if nothing had been.
    serve(&mut server, None);
    let found = recalled(&server);
    assert!(!found.is_empty());
    server.terminate();
    serve(&mut server, Some(&database.url));
    assert_eq!(recalled(&server), found);
    server.ok(None, &["note", "written after the move"]);
    server.terminate();
    let counts = "select sum(rows) from memory_counts";
    assert_eq!(
        database.sql(counts),
        database.sql("select count(*) from memory")
    );
    let number = "select rowid from memory where text = 'written after the move'";
    let highest = "select max(rowid) from memory";
    assert_eq!(database.sql(number), database.sql(highest));
    let home = server.home();
    std::fs::rename(&file, server.folder().join("old.db")).unwrap();
    for end in ["-wal", "-shm"] {
        home.remove(&format!("prism.db{end}"));
    }
    std::fs::rename(&back, &file).unwrap();
    serve(&mut server, None);
    assert_eq!(recalled(&server), found);
    server.ok(None, &["note", "written after the way back"]);
}

#[test]
fn how_far_a_move_is_shows_on_a_terminal_and_nowhere_else() {
    let server = lived_in();
    let from = sqlite(&file_of(&server));
    let moving = |to: &Database| {
        let mut command = server.command(None);
        command.args(["migrate-store", &from, &to.url]);
        command
    };
    let (shown, quiet) = (database(), database());
    let mut terminal = Pty::run(&moving(&shown));
    assert_eq!(terminal.code(), 0, "{}", terminal.written());
    let written = terminal.written();
    let rows = written.split("Copying [").last().unwrap();
    let rows = rows.split_whitespace().nth(1).unwrap_or_default();
    let (at, of) = rows.split_once('/').unwrap_or_default();
    let of: String = of.chars().take_while(char::is_ascii_digit).collect();
    assert!(at == of && of.len() > 1, "{written:?}");
    let verified = format!("Verifying [{}] {at}/{of}", "#".repeat(30));
    assert!(written.contains(&verified), "{written:?}");
    let piped = moving(&quiet).output().unwrap();
    assert!(piped.status.success());
    assert_eq!(stderr(&piped), "");
}

#[test]
fn a_move_that_was_cut_off_goes_on_and_doubles_nothing() {
    let mut server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let from = sqlite(&file);
    cut_off(&server, &from, &database.url);
    let half: u64 = database
        .sql("select count(*) from memory")
        .trim()
        .parse()
        .unwrap();
    assert_eq!(half, 2);
    // Nobody works on half of the rows.
    let mut start = server.command(None);
    start.args(["serve", "--port", "0", "--database", &database.url]);
    let mut start = start.stderr(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(start.stderr.take().unwrap()).lines();
    let ended = ["is listening", "migrate-store"];
    let last = said.find_map(|line| {
        let line = line.unwrap();
        ended.iter().any(|end| line.contains(end)).then_some(line)
    });
    start.kill().unwrap();
    start.wait().unwrap();
    assert!(last.as_ref().unwrap().contains("migrate-store"), "{last:?}");
    let back = server.folder().join("back.db");
    refused(&server, &database.url, &sqlite(&back), "is not done");
    cut_off(&server, &from, &database.url);
    let there = moved(&server, &from, &database.url);
    assert_eq!(
        (&there["resumed"], &there["began_anew"]),
        (&true.into(), &false.into())
    );
    assert!(copied(&there) < there["rows"].as_u64().unwrap(), "{there}");

    let home = server.folder().join("other");
    std::fs::create_dir(&home).unwrap();
    cut_off(&server, &database.url, &sqlite(&home.join("prism.db")));
    let mut start = server.command(None);
    let start = start.args(["serve", "--port", "0", "--home"]).arg(&home);
    let start = start.output().unwrap();
    assert!(stderr(&start).contains("migrate-store"), "{start:?}");
    assert!(!home.join("prism.db").exists());
    cut_off(&server, &database.url, &sqlite(&back));
    assert!(!back.exists());
    let again = moved(&server, &database.url, &sqlite(&back));
    assert_eq!(again["resumed"], true);
    assert_eq!(tables(&again), tables(&there));
    assert!(!server.folder().join("back.db.moving").exists());
    serve(&mut server, Some(&database.url));
    assert!(!recalled(&server).is_empty());
}

#[test]
fn a_move_that_was_cut_off_before_its_file_got_its_name_goes_on_with_what_is_there() {
    let server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let there = moved(&server, &sqlite(&file), &database.url);
    let home = server.folder().join("other");
    std::fs::create_dir(&home).unwrap();
    let back = home.join("prism.db");
    let mut last = moving(&server, &database.url, &sqlite(&back));
    let last = last.env("PRISM_FAILPOINTS", "moving.unnamed").output();
    assert_eq!(last.unwrap().status.code(), Some(137));
    assert!(!back.exists() && home.join("prism.db.moving").exists());
    // As whoever starts a server on it is told to.
    let mut start = server.command(None);
    let start = start.args(["serve", "--port", "0", "--home"]).arg(&home);
    let start = start.output().unwrap();
    assert!(stderr(&start).contains("migrate-store"), "{start:?}");
    let again = moved(&server, &database.url, &sqlite(&back));
    assert_eq!((&again["resumed"], copied(&again)), (&true.into(), 0));
    assert_eq!(tables(&again), tables(&there));
    assert!(back.exists() && !home.join("prism.db.moving").exists());

    // What is another store's is not taken for one's own, and stays.
    std::fs::copy(&back, home.join("next.db.moving")).unwrap();
    let c = rusqlite::Connection::open(home.join("next.db.moving")).unwrap();
    c.execute_batch("pragma foreign_keys = off; update tenants set id = 'x'")
        .unwrap();
    c.close().unwrap();
    let next = sqlite(&home.join("next.db"));
    refused(&server, &database.url, &next, "a part of another store");
    assert!(home.join("next.db.moving").exists());
}

#[test]
fn what_changed_since_a_move_was_cut_off_makes_it_begin_anew() {
    let mut server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let from = sqlite(&file);
    let change = "update projects set created_at = created_at + 1";
    cut_off(&server, &from, &database.url);
    let c = rusqlite::Connection::open(&file).unwrap();
    c.execute_batch(change).unwrap();
    c.close().unwrap();
    let there = moved(&server, &from, &database.url);
    assert_eq!(
        (&there["resumed"], &there["began_anew"]),
        (&false.into(), &true.into())
    );
    assert_eq!(copied(&there), there["rows"].as_u64().unwrap());

    let back = server.folder().join("back.db");
    cut_off(&server, &database.url, &sqlite(&back));
    database.sql(change);
    let again = moved(&server, &database.url, &sqlite(&back));
    assert_eq!(again["began_anew"], true);
    assert_ne!(tables(&again), tables(&there));
    serve(&mut server, Some(&database.url));
    assert!(!recalled(&server).is_empty());
}

#[test]
fn rows_that_change_while_they_are_copied_are_noticed() {
    let server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let mut moving = moving(&server, &sqlite(&file), &database.url)
        .env("PRISM_FAILPOINTS", "moving.waits")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(moving.stderr.take().unwrap()).lines();
    assert_eq!(said.next().unwrap().unwrap(), "waiting");
    let c = rusqlite::Connection::open(&file).unwrap();
    c.execute_batch("update projects set created_at = created_at + 1")
        .unwrap();
    // Whoever comes meanwhile is told what is under way, and nobody takes it for a server.
    let meanwhile = "`prism migrate-store` (pid";
    refused(&server, &sqlite(&file), &database.url, meanwhile);
    for command in [&["up"][..], &["down"], &["serve", "--port", "0"]] {
        let told = stderr(&server.cli(None, command));
        assert!(told.contains(meanwhile), "{command:?}: {told}");
    }
    moving.stdin.take().unwrap().write_all(b"\n").unwrap();
    let rest: Vec<String> = said.map(Result::unwrap).collect();
    assert_eq!(moving.wait().unwrap().code(), Some(2));
    assert!(rest.join("\n").contains("projects has"), "{rest:?}");
    let there = moved(&server, &sqlite(&file), &database.url);
    assert_eq!(there["began_anew"], true);
}

#[test]
fn a_move_is_refused_where_something_could_be_lost() {
    let mut server = lived_in();
    let (empty, full, file) = (database(), database(), file_of(&server));
    let from = sqlite(&file);
    let away = server.folder().join("away");
    std::fs::create_dir(&away).unwrap();
    let copy = |name: &str, sql: &str| {
        std::fs::copy(&file, away.join(name)).unwrap();
        let c = rusqlite::Connection::open(away.join(name)).unwrap();
        c.execute_batch(sql).unwrap();
        c.close().unwrap();
        sqlite(&away.join(name))
    };
    let older = copy("older.db", "pragma user_version = 18");
    let newer = copy("newer.db", "pragma user_version = 999");
    let dangling = copy(
        "dangling.db",
        "pragma foreign_keys = off; delete from tenants",
    );
    let other = copy("other.db", "pragma foreign_keys = off; update tenants set id = 'x';
        update projects set tenant_id = 'x'; update personas set tenant_id = 'x';
        update api_keys set tenant_id = 'x'; update sessions set tenant_id = 'x';
        update signal_queue set tenant_id = 'x'; update session_deltas set tenant_id = 'x';
        update operator_confirmations set tenant_id = 'x'; update operator_inputs set tenant_id = 'x';
        update artifacts set tenant_id = 'x'; update memory_recall_events set tenant_id = 'x';
        update recallgate_events set tenant_id = 'x'");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0x55);
    std::fs::write(away.join("damaged.db"), bytes).unwrap();
    let nobody = empty.url.replace("prism@", "nobody-of-that-name@");
    let nowhere = format!("{}-nowhere", empty.url);
    let fresh = sqlite(&away.join("fresh.db"));
    for (from, to, says) in [
        (older.as_str(), empty.url.as_str(), "schema 18"),
        (&newer, &empty.url, "newer prism"),
        (&dangling, &empty.url, "is damaged"),
        (&sqlite(&away.join("damaged.db")), &empty.url, "is damaged"),
        (
            &sqlite(&away.join("none.db")),
            &empty.url,
            "there is no file",
        ),
        (&from, &from, "both are SQLite"),
        (&empty.url, &empty.url, "both are PostgreSQL"),
        (&from, "mysql://x", "sqlite:FILE or postgres://"),
        (&from, "postgres://h:notaport/x", "not the URL"),
        (&from, "postgres://prism@127.0.0.1:1/x", "refused"),
        (
            &from,
            &nobody,
            "role \"nobody-of-that-name\" does not exist",
        ),
        (&from, &nowhere, "does not exist"),
        (&empty.url, &fresh, "is not a Prism database"),
    ] {
        refused(&server, from, to, says);
    }
    let left = empty.sql("select count(*) from pg_tables where schemaname = 'public'");
    assert_eq!(left.trim(), "0", "a refused move left tables");

    // A target that another store lives in, and one that is half of another.
    // Named by a variable, a password is in no list of processes; there it may come from a file.
    refused(&server, &from, "env:THERE", "THERE is not set");
    let mut by_name = moving(&server, &from, "env:THERE");
    let by_name = by_name.env("THERE", format!("{}\n", full.url)).output();
    let there: Value = serde_json::from_slice(&by_name.unwrap().stdout).unwrap();
    refused(&server, &from, &full.url, "holds rows already");
    refused(&server, &full.url, &older, "exists already");
    cut_off(&server, &from, &empty.url);
    refused(&server, &other, &empty.url, "part of another store");
    empty.sql("drop table prism_moving");
    refused(&server, &from, &empty.url, "holds rows already");

    // Others' tables: refused before anything is made beside them.
    let (shared, tables) = (
        database(),
        "select string_agg(tablename, ' ') from pg_tables where schemaname = 'public'",
    );
    shared.sql("create table orders (n int); insert into orders values (1)");
    refused(&server, &from, &shared.url, "not Prism's: orders");
    assert_eq!(shared.sql(tables).trim(), "orders");
    full.sql("create table orders (n int)");
    refused(&server, &full.url, &fresh, "not Prism's: orders");
    full.sql("drop table orders");

    // Servers on either side.
    serve(&mut server, None);
    refused(&server, &from, &empty.url, "a server runs on");
    server.terminate();
    // Whatever its URL calls it.
    for said in ["", "?application_name=ours"] {
        serve(&mut server, Some(&format!("{}{said}", full.url)));
        refused(&server, &full.url, &fresh, "a server runs on");
        server.terminate();
    }
    let newest = full.sql("select version from prism_schema");
    full.sql("update prism_schema set version = 999");
    refused(&server, &full.url, &fresh, "newer prism");
    refused(&server, &from, &full.url, "newer prism");
    full.sql("update prism_schema set version = 18");
    refused(&server, &full.url, &fresh, "schema 18");
    full.sql(&format!(
        "update prism_schema set version = {newest};
         insert into tenants values (gen_random_uuid(), 'b', 1)"
    ));
    refused(&server, &full.url, &fresh, "2 tenants");
    assert!(!away.join("fresh.db").exists() && !away.join("fresh.db.moving").exists());
    assert!(there["rows"].as_u64() > Some(0));
}

#[test]
fn a_file_that_a_home_links_to_is_moved_only_while_that_home_has_no_server() {
    let mut server = lived_in();
    let (link, database) = (file_of(&server), database());
    let far = server.folder().join("far");
    std::fs::create_dir(&far).unwrap();
    let file = far.join("prism.db");
    std::fs::rename(&link, &file).unwrap();
    std::os::unix::fs::symlink(&file, &link).unwrap();
    serve(&mut server, None);
    refused(&server, &sqlite(&link), &database.url, "a server runs on");
    server.terminate();
    moved(&server, &sqlite(&link), &database.url);
    let kept = server.home().read("store.json").unwrap_or_default();
    assert!(kept.contains("postgres://"), "{kept}");
    // Where nobody serves there is nothing to remember it by.
    assert!(!far.join("store.json").exists());
}

#[test]
fn what_postgresql_cannot_keep_is_moved_with_another_sign_and_told() {
    let server = lived_in();
    let (database, file) = (database(), file_of(&server));
    let c = rusqlite::Connection::open(&file).unwrap();
    c.execute_batch(
        "update session_deltas set summary = 'a' || char(0) || 'b' where rowid in
            (select rowid from session_deltas limit 1);
         update signal_queue set payload = '{\"summary\":\"c\\u0000d\"}' where rowid in
            (select rowid from signal_queue limit 1);",
    )
    .unwrap();
    c.close().unwrap();
    let there = moved(&server, &sqlite(&file), &database.url);
    assert_eq!(there["changed"], 2, "{there}");
    let kept = database.sql(
        "select (select count(*) from session_deltas where summary = 'a\u{fffd}b'),
            (select count(*) from signal_queue where payload::jsonb->>'summary' = 'c\u{fffd}d')",
    );
    assert_eq!(kept.trim(), "1|1");
}

/// What docs/moving.md tells people to type.
#[test]
fn pg_dump_and_pg_restore_copy_a_store_as_the_page_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/moving.md");
    let page = std::fs::read_to_string(page).unwrap();
    let typed = |program: &str| {
        let line = page.lines().map(str::trim).find(|l| l.starts_with(program));
        line.unwrap_or_else(|| panic!("docs/moving.md has no line with {program}"))
            .to_owned()
    };
    let mut server = lived_in();
    let (one, two) = (database(), database());
    moved(&server, &sqlite(&file_of(&server)), &one.url);
    serve(&mut server, Some(&one.url));
    let found = recalled(&server);
    // The copy is to be its owner's, who is no superuser.
    let role = format!("owner{}", prism::clock::new_id().simple());
    let copy = two.sql("select current_database()");
    two.sql(&format!("create role {role} login"));
    two.sql(&format!("alter database {} owner to {role}", copy.trim()));
    two.sql(&format!("grant prism_member to {role}"));
    two.sql("create extension if not exists vector");
    let restore = typed("pg_restore ").replace("--role=prism ", &format!("--role={role} "));
    // While a server runs.
    for (line, url) in [(typed("pg_dump "), &one.url), (restore, &two.url)] {
        let path = format!("{}:/usr/bin:/bin", postgres_bin().display());
        let ran = Command::new("sh")
            .args(["-ec", &line])
            .env("PATH", path)
            .env("URL", url)
            .current_dir(server.folder())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{line}: {}", stderr(&ran));
    }
    server.terminate();
    let (_, at) = two.url.rsplit_once('@').unwrap();
    let as_owner = format!("postgres://{role}@{at}");
    serve(&mut server, Some(&as_owner));
    assert_eq!(recalled(&server), found);
    server.ok(None, &["note", "written after the copy"]);
    server.terminate();
    two.sql(&format!("reassign owned by {role} to current_user"));
    two.sql(&format!("drop owned by {role}"));
    two.sql(&format!("drop role {role}"));
}
