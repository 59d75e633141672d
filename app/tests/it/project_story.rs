//! Which folder is which project: found, named, allowed and merged.

use crate::harness::{Agent, PATIENCE, PID, Server, task, wait_for};
use crate::loopback_story::get;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder(server: &Server, path: &str) -> PathBuf {
    let folder = server.folder().join(path);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn file_says(folder: &Path, pid: &str) {
    std::fs::create_dir_all(folder.join(".prism")).unwrap();
    let file = folder.join(".prism/project.toml");
    std::fs::write(file, format!("pid = {pid:?}\n")).unwrap();
}

/// An agent in a folder whose project nobody named.
fn finds(server: &Server, identity: &str, folder: &Path) -> Agent {
    let mut command = server.command(Some(identity));
    Agent::run(command.env_remove("PRISM_PID").current_dir(folder))
}

fn cli(server: &Server, folder: &Path, args: &[&str]) -> Output {
    let mut command = server.command(None);
    command.env_remove("PRISM_PID").current_dir(folder);
    command.args(args).output().unwrap()
}

#[track_caller]
fn ok(server: &Server, folder: &Path, args: &[&str]) -> String {
    let output = cli(server, folder, args);
    assert!(output.status.success(), "prism {args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_file_in_a_repository_enrols_nobody_in_a_project_that_is_in_use() {
    let server = Server::start();
    drop(server.agent("Texi"));
    let repository = folder(&server, "cloned");
    file_says(&repository, PID);
    let mut eve = finds(&server, "Eve", &repository);
    for verb in ["prism_start", "prism_status"] {
        let refused = eve.refused(verb, json!({}));
        assert_eq!(refused["code"], "foreign_folder", "{refused}");
        let hint = refused["hint"].as_str().unwrap();
        assert!(hint.contains("prism project allow PID-TEST"), "{hint}");
    }
    assert!(
        !server.home().path("keys/Eve.key").exists(),
        "nor has a key"
    );
    let status = server.ok(None, &["--json", "status"]);
    assert!(!status.contains("Eve"), "{status}");
    // Named by the operator, it may; allowed once, too.
    let mut named = server.command(Some("Donna"));
    let mut named = Agent::run(named.current_dir(&repository));
    assert_eq!(named.call("prism_start", json!({}))["pid"], PID);
    let said = ok(&server, &repository, &["project", "allow", PID]);
    assert!(said.contains("cloned may use PID-TEST"), "{said}");
    assert_eq!(eve.call("prism_start", json!({}))["pid"], PID);
    let listed = ok(&server, &repository, &["project", "list"]);
    assert!(
        listed.contains("cloned") && listed.contains("allowed"),
        "{listed}"
    );
    ok(&server, &repository, &["project", "forget", PID]);
    let refused = finds(&server, "Eve", &repository).refused("prism_start", json!({}));
    assert_eq!(refused["code"], "foreign_folder", "{refused}");
    let unknown = cli(&server, &repository, &["project", "allow", "PID-NONE"]);
    assert_eq!(unknown.status.code(), Some(2));
}

#[tokio::test]
async fn whoever_is_nobody_in_a_project_binds_no_folder_and_learns_of_none() {
    let server = Server::start();
    let operator = server.operator();
    for (who, pid) in [("Eve", PID), ("Zed", "SECRET")] {
        let mint = json!({"identity": who});
        operator.call(pid, "key_mint", mint).await.unwrap();
    }
    let eve = server.identity("Eve").await;
    let ask = |by: &'static str, machine: String, at: &'static str| {
        let url = format!("{}/api/v1/SECRET/status", server.url());
        let request = prism::client::http_client(PATIENCE).unwrap();
        let request = request.post(url).bearer_auth(eve.key());
        let request = request.header("prism-found", by);
        let request = request.header("prism-machine", machine);
        let request = request.header("prism-folder", at).json(&json!({}));
        async move {
            let answer = request.send().await.unwrap();
            answer.json::<Value>().await.unwrap()["error"].clone()
        }
    };
    let here = prism::config::machine_id();
    for i in 0..5 {
        let refused = ask("folder", format!("made-up-{i}"), "/eve/SECRET").await;
        assert_eq!(refused["code"], "no_persona", "{refused}");
    }
    let refused = ask("folder", here.clone(), "/eve/SECRET").await;
    assert_eq!(refused["code"], "no_persona", "{refused}");
    let secret = folder(&server, "private/SECRET");
    let started = finds(&server, "Zed", &secret).call("prism_start", json!({}));
    assert_eq!(started["pid"], "SECRET", "its own folder is still free");
    for by in ["folder", "file"] {
        let refused = ask(by, here.clone(), "/eve/SECRET").await;
        assert_eq!(refused["code"], "no_persona", "{refused}");
        assert!(!refused.to_string().contains("private"), "{refused}");
    }
    let list = operator.call(PID, "project_list", json!({})).await.unwrap();
    let list = list.to_string();
    assert!(
        !list.contains("/eve/") && !list.contains("made-up"),
        "{list}"
    );
}

#[test]
fn who_has_a_key_and_no_persona_is_told_of_the_foreign_folder_and_joins_its_own() {
    let server = Server::start();
    let (first, second) = (folder(&server, "a/app"), folder(&server, "b/app"));
    finds(&server, "Texi", &first).call("prism_start", json!({}));
    // Donna's key is of another project.
    server.agent("Donna").call("prism_start", json!({}));
    let refused = finds(&server, "Donna", &second).refused("prism_start", json!({}));
    assert_eq!(refused["code"], "foreign_folder", "{refused}");
    let status = cli(&server, &first, &["--json", "status"]);
    let status = String::from_utf8(status.stdout).unwrap();
    assert!(!status.contains("Donna"), "{status}");
    let started = finds(&server, "Donna", &first).call("prism_start", json!({}));
    assert_eq!(started["pid"], "app");
}

#[test]
fn a_file_names_a_project_that_is_not_there_yet_and_binds_it() {
    let server = Server::start();
    let (one, two) = (folder(&server, "one/deep"), folder(&server, "two"));
    file_says(&server.folder().join("one"), "PID-NEW");
    file_says(&two, "PID-NEW");
    // The operator looked first; that binds nothing and takes nothing away.
    ok(&server, &one, &["status"]);
    let started = finds(&server, "Texi", &one).call("prism_start", json!({}));
    assert_eq!(started["pid"], "PID-NEW");
    let again = finds(&server, "Donna", &server.folder().join("one"));
    assert_eq!({ again }.call("prism_start", json!({}))["pid"], "PID-NEW");
    let refused = finds(&server, "Donna", &two).refused("prism_start", json!({}));
    assert_eq!(refused["code"], "foreign_folder", "{refused}");
}

#[test]
fn two_folders_of_one_name_are_never_one_project_by_accident() {
    let server = Server::start();
    let (first, second) = (folder(&server, "a/app"), folder(&server, "b/app"));
    // As in an older home: in use, and bound to nothing.
    let named = [("PRISM_PID", "app")];
    let mut older = Agent::launch(&server, Some("Texi"), &named);
    older.call("prism_start", json!({}));
    let started = finds(&server, "Donna", &first).call("prism_start", json!({}));
    assert_eq!(started["pid"], "app", "its folder gives the name");
    let refused = finds(&server, "Donna", &second).refused("prism_start", json!({}));
    assert_eq!(refused["code"], "foreign_folder", "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("a/app"),
        "{refused}"
    );
    assert!(
        refused["hint"].as_str().unwrap().contains("PRISM_PID"),
        "{refused}"
    );
    file_says(&second, "app-two");
    let started = finds(&server, "Donna", &second).call("prism_start", json!({}));
    assert_eq!(started["pid"], "app-two");
}

fn git(folder: &Path, args: &[&str]) {
    let done = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example"])
        .args(args)
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {done:?}");
}

/// A repository `main` with a worktree `fix` beside it.
fn worktrees(server: &Server) -> (PathBuf, PathBuf) {
    let main = folder(server, "main");
    git(&main, &["init", "-q"]);
    git(&main, &["commit", "-q", "--allow-empty", "-m", "first"]);
    git(&main, &["worktree", "add", "-q", "../fix"]);
    (main, server.folder().join("fix"))
}

#[test]
fn all_worktrees_of_a_repository_are_one_project() {
    let server = Server::start();
    let (main, fix) = worktrees(&server);
    for (who, place) in [("Texi", &fix), ("Donna", &main)] {
        let started = finds(&server, who, place).call("prism_start", json!({}));
        assert_eq!(started["pid"], "main", "{who}");
        assert!(started["warnings"].is_null(), "{started}");
    }
}

#[tokio::test]
async fn an_older_name_goes_on_until_the_operator_merges_it() {
    let server = Server::start();
    let (main, fix) = worktrees(&server);
    // The project of earlier versions, with a memory, a todo and a signal that waits.
    let older = [("PRISM_PID", "fix")];
    let mut texi = Agent::launch(&server, Some("Texi"), &older);
    texi.call("prism_start", json!({}));
    texi.call("prism_note", json!({"text": "the kettle whistles at noon"}));
    texi.call(
        "prism_todo",
        json!({"action": "add", "title": "descale the kettle"}),
    );
    let mut donna = Agent::launch(&server, Some("Donna"), &older);
    donna.call("prism_start", json!({}));
    donna.call("prism_signal", task("Texi", "waits in the older project"));
    donna.close();
    texi.close();
    let mut other = finds(&server, "Texi", &main);
    assert_eq!(other.call("prism_start", json!({}))["pid"], "main");
    other.call(
        "prism_todo",
        json!({"action": "add", "title": "fill the kettle"}),
    );
    let mut found = finds(&server, "Donna", &fix);
    let started = found.call("prism_start", json!({}));
    assert_eq!(started["pid"], "fix", "it has rows, so it stays in use");
    assert!(
        started["warnings"]
            .to_string()
            .contains("prism project merge fix main"),
        "{started}"
    );
    // By its old name, or by the one this repository would have, it is the same session.
    for pid in ["fix", "main"] {
        let again = found.call("prism_start", json!({ "pid": pid }));
        assert_eq!(again["session_id"], started["session_id"], "{pid}: {again}");
        found.call(
            "prism_loopback_test",
            json!({"pid": pid, "timeout_ms": 20_000}),
        );
    }
    for verb in ["prism_start", "prism_loopback_test"] {
        let refused = found.refused(verb, json!({"pid": "PID-ELSEWHERE"}));
        let said = refused["message"].as_str().unwrap();
        assert!(said.contains("this session is in fix"), "{verb}: {said}");
    }
    let busy = cli(&server, &main, &["project", "merge", "fix", "main"]);
    assert_eq!(busy.status.code(), Some(2), "a session is open there");
    found.call("prism_wrap", json!({"summary": "done here"}));
    let empty = other.call("prism_signals_pending", json!({}));
    assert_eq!(empty["signals"], json!([]), "{empty}");
    ok(&server, &main, &["project", "merge", "fix", "main"]);
    let started = finds(&server, "Donna", &fix).call("prism_start", json!({}));
    assert_eq!(
        (&started["pid"], &started["warnings"]),
        (&json!("main"), &Value::Null)
    );
    // It knew its inbox to be empty; any verb brings what the merge put there.
    let waiting = other.call("prism_status", json!({}));
    assert_eq!(
        waiting["signals"][0]["payload"]["summary"], "waits in the older project",
        "{waiting}"
    );
    let recalled = other.call("semantic_recall", json!({"query": "kettle whistles"}));
    assert!(recalled.to_string().contains("at noon"), "{recalled}");
    let todos = other
        .call("prism_todo", json!({"action": "list"}))
        .to_string();
    assert!(
        todos.contains("descale") && todos.contains("fill"),
        "{todos}"
    );
    let gone = cli(&server, &main, &["--pid", "fix", "status"]);
    assert_eq!(gone.status.code(), Some(2));
    // What is in the store afterwards holds together, also for the next start.
    if server.is_embedded() {
        let broken: i64 = server
            .rows()
            .query_row("select count(*) from pragma_foreign_key_check", [], |r| {
                r.get(0)
            })
            .unwrap();
        assert_eq!(broken, 0);
    }
}

#[test]
fn a_verdict_stays_on_its_spec_when_a_merge_gives_that_another_number() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    let spec = |title: &str| json!({"action": "create", "title": title, "body": title});
    texi.call("prism_spec", spec("Giraffe feeder"));
    texi.call("prism_note", json!({"text": "spec 1 is for giraffes"}));
    let mut donna = Agent::launch(&server, Some("Donna"), &[("PRISM_PID", "OLD")]);
    donna.call("prism_start", json!({}));
    donna.call("prism_spec", spec("Penguin pool"));
    let verdict = json!({"refers_to": "spec:SPEC-001", "verdict": "broken", "notes": "it leaks"});
    donna.call("prism_confirm", verdict);
    donna.call("prism_note", json!({"text": "spec 1 needs a plumber"}));
    // A number somebody speaks of is not given to another spec.
    donna.call("prism_note", json!({"text": "spec 2 lives elsewhere"}));
    donna.call("prism_wrap", json!({"summary": "done here"}));
    donna.close();
    server.ok(None, &["project", "merge", "OLD", PID]);
    let mut found = |query: &str, kind: &str| -> Value {
        let asked = json!({"query": query, "kinds": [kind]});
        let answer = texi.call("semantic_recall", asked);
        let hits = answer["results"].as_array().unwrap();
        let hit = hits.iter().find(|h| h.to_string().contains(query));
        hit.unwrap_or_else(|| panic!("no {query}: {answer}"))
            .clone()
    };
    let giraffe = found("Giraffe feeder", "spec");
    assert!(!giraffe.to_string().contains("it leaks"), "{giraffe}");
    let penguin = found("Penguin pool", "spec");
    assert_eq!(penguin["verdicts"][0]["notes"], "it leaks", "{penguin}");
    let told = found("it leaks", "confirmation").to_string();
    assert!(
        told.contains("spec:3") && !told.contains("SPEC-001"),
        "{told}"
    );
    let graph = server.ok(None, &["graph", "show", "spec:3"]);
    assert!(
        graph.contains("plumber") && graph.contains("CONFIRMS"),
        "{graph}"
    );
    let graph = server.ok(None, &["graph", "show", "spec:1"]);
    assert!(
        graph.contains("for giraffes") && !graph.contains("plumber") && !graph.contains("CONFIRMS"),
        "{graph}"
    );
}

#[test]
fn a_project_file_with_a_typo_costs_the_verbs_and_not_the_shim() {
    let server = Server::start();
    let place = folder(&server, "typo");
    std::fs::create_dir_all(place.join(".prism")).unwrap();
    for text in ["pid = ", "pid = 5", "pid = \"../x\""] {
        std::fs::write(place.join(".prism/project.toml"), text).unwrap();
        let mut texi = finds(&server, "Texi", &place);
        let counted = texi.call("prism_signals", json!({"action": "count"}));
        assert!(counted["count"].is_object(), "{counted}");
        for verb in ["prism_start", "prism_status", "prism_loopback_test"] {
            let refused = texi.refused(verb, json!({}));
            let message = refused["message"].as_str().unwrap();
            assert!(message.contains(".prism/project.toml"), "{refused}");
        }
    }
}

#[test]
fn the_operator_is_told_when_the_project_of_a_folder_is_another_folders() {
    let server = Server::start();
    let (first, second) = (folder(&server, "a/app"), folder(&server, "b/app"));
    finds(&server, "Texi", &first).call("prism_start", json!({}));
    let told = |folder: &Path, args: &[&str]| {
        let output = cli(&server, folder, args);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let warned = told(&second, &["note", "whose is this?"]);
    for part in ["a/app", "b/app", "--pid", "prism project allow app"] {
        assert!(warned.contains(part), "{part}: {warned}");
    }
    assert_eq!(told(&first, &["note", "this is ours"]), "");
    assert_eq!(told(&second, &["--pid", "app", "note", "meant so"]), "");
    told(&second, &["project", "allow", "app"]);
    assert_eq!(told(&second, &["note", "ours as well"]), "");
}

#[test]
fn names_that_a_merge_could_not_read_again_are_read_later() {
    let mut server = Server::start();
    server.kill();
    server.resume_with(&[("PRISM_FAILPOINTS", "merge.names_stay_old")]);
    for pid in ["OLD", "NEW"] {
        let mut donna = Agent::launch(&server, Some("Donna"), &[("PRISM_PID", pid)]);
        donna.call("prism_start", json!({}));
        donna.call("prism_wrap", json!({"summary": "done here"}));
        donna.close();
    }
    server.ok(None, &["project", "merge", "OLD", "NEW"]);
    wait_for("the old name is gone", || {
        let list = server.ok(None, &["project", "list", "--json"]);
        (!list.contains("OLD")).then_some(())
    });
}

#[test]
fn the_operator_is_told_of_a_foreign_folder_without_a_call_of_its_own() {
    let server = Server::start();
    let (first, second) = (folder(&server, "a/shop"), folder(&server, "b/shop"));
    drop(finds(&server, "Texi", &first).call("prism_start", json!({})));
    let told = cli(&server, &second, &["send", "Texi", "which shop is this?"]);
    assert!(told.status.success(), "{told:?}");
    let said = String::from_utf8_lossy(&told.stderr);
    let there = first.canonicalize().unwrap();
    assert!(
        said.contains(&format!("is the project of {}", there.display())),
        "{said}"
    );
    let at_home = cli(&server, &first, &["send", "Texi", "this one"]);
    assert!(
        at_home.status.success() && at_home.stderr.is_empty(),
        "{at_home:?}"
    );
    let (_, metrics) = get(&format!("{}/metrics", server.url()), "");
    assert!(metrics.contains("verb=\"signal\""), "{metrics}");
    assert!(!metrics.contains("project_list"), "{metrics}");
}
