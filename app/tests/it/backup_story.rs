//! `prism backup` and `prism restore`: one whole file, taken while a server writes, put back while none runs.

use crate::harness::{BIN, Server};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// The command line on the embedded store, whatever stories are told on.
fn prism(server: &Server, args: &[&str]) -> Output {
    let mut command = server.command(None);
    command.env_remove("PRISM_DATABASE").args(args);
    command.output().unwrap()
}

fn serve(server: &mut Server) {
    let mut serve = server.command(None);
    serve.env_remove("PRISM_DATABASE");
    serve.args(["serve", "--port", "0"]);
    server.resume_as(serve);
}

fn answer(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// What is remembered in a database.
fn notes(file: &Path) -> Vec<String> {
    let c = rusqlite::Connection::open(file).unwrap();
    let mut found = c.prepare("select text from memory order by rowid").unwrap();
    let texts = found.query_map([], |r| r.get(0)).unwrap();
    texts.collect::<rusqlite::Result<_>>().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_backup_is_taken_beside_a_server_and_put_back_when_none_runs() {
    let mut server = Server::none();
    serve(&mut server);
    server.ok(None, &["note", "before the backup"]);
    let folder = server.folder().join("copies");
    std::fs::create_dir(&folder).unwrap();
    // One that was killed left this; nobody has such a pid.
    std::fs::write(folder.join("a.db.999999999.tmp"), "half").unwrap();
    let copy = folder.join("a.db");
    let shown = copy.to_str().unwrap();
    let made = answer(&prism(&server, &["backup", shown, "--json"]));
    assert_eq!(made["file"], shown);
    assert_eq!(names(&folder), ["a.db"]);
    assert_eq!(notes(&copy), ["before the backup"]);
    server.ok(None, &["note", "after the backup"]);

    let refused = prism(&server, &["restore", shown]);
    let pid = format!("pid {}", server.pid());
    let said = stderr(&refused);
    assert!(said.contains(&pid) && said.contains("prism down"), "{said}");
    assert_eq!(refused.status.code(), Some(2));

    // Killed, so that what came last is only in the log of the database that is replaced.
    server.kill();
    let restored = answer(&prism(&server, &["restore", shown, "--json"]));
    let replaced = restored["replaced"].as_str().unwrap();
    assert_eq!(
        notes(Path::new(replaced)),
        ["before the backup", "after the backup"]
    );
    let home = server.home();
    assert_eq!(notes(&home.path("prism.db")), ["before the backup"]);
    assert_eq!(home.mode("prism.db"), Some(0o600));
    serve(&mut server);
    server.ok(None, &["note", "goes on"]);
    let found = server.ok(None, &["recall", "what goes on"]);
    assert!(found.contains("goes on"), "{found}");
    server.terminate();
    assert_eq!(
        notes(&home.path("prism.db")),
        ["before the backup", "goes on"]
    );
}

#[test]
fn a_database_that_the_home_links_to_is_copied_whole_and_replaced_where_it_lies() {
    let mut server = Server::none();
    let (home, far) = (server.home(), server.folder().join("far"));
    home.create().unwrap();
    std::fs::create_dir(&far).unwrap();
    let (link, file) = (home.path("prism.db"), far.join("rows.db"));
    // As somebody writes it who stands in the home.
    std::os::unix::fs::symlink("../far/rows.db", &link).unwrap();
    let copy = far.join("a.db").to_str().unwrap().to_owned();
    serve(&mut server);
    server.ok(None, &["note", "before the backup"]);
    // Nothing of it need be in the file yet: its log lies beside the file, and not beside the link.
    assert!(far.join("rows.db-wal").exists());
    answer(&prism(&server, &["backup", &copy, "--json"]));
    assert_eq!(notes(Path::new(&copy)), ["before the backup"]);
    server.ok(None, &["note", "after the backup"]);
    server.kill();

    let restored = answer(&prism(&server, &["restore", &copy, "--json"]));
    let replaced = Path::new(restored["replaced"].as_str().unwrap());
    assert!(replaced.starts_with(far.canonicalize().unwrap().join("backups")));
    let all = ["before the backup", "after the backup"];
    assert_eq!(notes(replaced), all);
    assert!(link.is_symlink() && !file.is_symlink());
    assert_eq!(notes(&file), ["before the backup"]);
    assert!(!far.join("rows.db.restoring").exists());
    serve(&mut server);
    server.ok(None, &["note", "goes on"]);
    server.terminate();
    assert_eq!(notes(&file), ["before the backup", "goes on"]);

    // What is not mounted is not replaced by a file in the home.
    std::fs::rename(&file, far.join("elsewhere.db")).unwrap();
    let refused = prism(&server, &["restore", &copy]);
    let said = stderr(&refused);
    assert!(said.contains("leads to no file"), "{said}");
    assert!(link.is_symlink(), "{said}");
}

#[test]
fn a_server_elsewhere_is_neither_copied_nor_put_back_here() {
    let mut server = Server::none();
    serve(&mut server);
    server.ok(None, &["note", "kept"]);
    let copy = server.folder().join("a.db");
    let shown = copy.to_str().unwrap();
    for command in ["backup", "restore"] {
        let mut elsewhere = server.command(None);
        elsewhere.env_remove("PRISM_DATABASE");
        elsewhere.env("PRISM_URL", "https://prism.example");
        let refused = elsewhere.args([command, shown]).output().unwrap();
        let said = stderr(&refused);
        assert!(said.contains("PRISM_URL names a server"), "{said}");
        assert!(said.contains("hint: unset PRISM_URL"), "{said}");
        assert!(!refused.status.success() && !copy.exists());
    }
}

#[test]
fn a_backup_makes_a_home_where_there_was_none() {
    let mut server = Server::none();
    serve(&mut server);
    server.ok(None, &["note", "kept"]);
    let copy = server.folder().join("a.db");
    let shown = copy.to_str().unwrap().to_owned();
    answer(&prism(&server, &["backup", &shown, "--json"]));
    let other = Server::none();
    let restored = answer(&prism(&other, &["restore", &shown, "--json"]));
    assert_eq!(restored["replaced"], Value::Null);
    assert_eq!(restored["will_be_upgraded"], false);
    assert_eq!(notes(&other.home().path("prism.db")), ["kept"]);
}

#[test]
fn what_cannot_be_copied_or_put_back_is_said_and_leaves_everything_as_it_was() {
    let mut server = Server::none();
    let none = prism(&server, &["backup", "x.db"]);
    assert!(stderr(&none).contains("there is no database"), "{none:?}");
    serve(&mut server);
    server.ok(None, &["note", "kept"]);
    let folder = server.folder().join("copies");
    std::fs::create_dir(&folder).unwrap();
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    answer(&prism(&server, &["backup", &file("good.db"), "--json"]));
    server.terminate();
    let change = |name: &str, sql: &str| {
        std::fs::copy(file("good.db"), file(name)).unwrap();
        let c = rusqlite::Connection::open(file(name)).unwrap();
        c.execute_batch(sql).unwrap();
    };
    change("newer.db", "pragma user_version = 999");
    change("older.db", "pragma user_version = 7");
    change("stranger.db", "pragma user_version = 0");
    std::fs::write(
        file("text.db"),
        "not a database at all, only some text".repeat(50),
    )
    .unwrap();
    let mut damaged = std::fs::read(file("good.db")).unwrap();
    let middle = damaged.len() / 2;
    damaged[middle..middle + 8192].fill(0x55);
    std::fs::write(file("damaged.db"), damaged).unwrap();
    let there = names(&folder);
    let home = server.home();
    let was = std::fs::read(home.path("prism.db")).unwrap();
    for (args, says) in [
        (["backup", &file("good.db")], "exists already"),
        (["backup", "/nowhere/at/all.db"], "there is no folder"),
        (["backup", "/"], "no name for a file"),
        (["restore", &file("none.db")], "there is no file"),
        (["restore", folder.to_str().unwrap()], "there is no file"),
        (["restore", &file("newer.db")], "newer prism"),
        (["restore", &file("stranger.db")], "not a Prism database"),
        (["restore", &file("text.db")], "not a Prism database"),
        (["restore", &file("damaged.db")], "is damaged"),
    ] {
        let refused = prism(&server, &args);
        let said = stderr(&refused);
        assert!(
            said.contains(says) && said.contains("hint: "),
            "{args:?}: {said}"
        );
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
    }
    // A disk that is full: no file may be longer than this.
    let full = |args: [&str; 2]| {
        let mut sh = Command::new("sh");
        let given = server.command(None);
        sh.env_clear()
            .envs(given.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env_remove("PRISM_DATABASE")
            .args(["-c", "trap '' XFSZ; ulimit -f 100; exec \"$0\" \"$@\"", BIN])
            .args(args);
        stderr(&sh.output().unwrap())
    };
    let said = full(["backup", &file("full.db")]);
    assert!(
        said.contains("cannot write") && said.contains("make room"),
        "{said}"
    );
    let said = full(["restore", &file("good.db")]);
    assert!(said.contains("cannot write"), "{said}");
    assert_eq!(names(&folder), there);
    assert!(!home.path("prism.db.restoring").exists());
    assert!(was == std::fs::read(home.path("prism.db")).unwrap());
    let mut shared = server.command(None);
    shared.env("PRISM_DATABASE", "postgres://localhost/x");
    let refused = shared.args(["backup", &file("x.db")]).output().unwrap();
    assert!(stderr(&refused).contains("pg_dump"), "{refused:?}");
    let older = answer(&prism(&server, &["restore", &file("older.db"), "--json"]));
    assert_eq!(older["will_be_upgraded"], true);
}
