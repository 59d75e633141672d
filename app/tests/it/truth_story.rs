//! What memory writes is what it shows: verdicts on anything, warnings that never block, batons
//! however old, and nothing of what the operator rejected.

use crate::harness::{Agent, PID, Server, task};
use prism::client::{Client, Locator};
use prism_core::Code;
use serde_json::{Value, json};

const FAST: &str = "[limits]\nrequests_per_second = 100000\nrequests_burst = 100000\n";

async fn ask(client: &Client, verb: &str, request: Value) -> Value {
    client
        .call(PID, verb, request)
        .await
        .unwrap_or_else(|p| panic!("{verb}: {p:?}"))
}

async fn recall(client: &Client, query: &str) -> Vec<Value> {
    let answer = ask(client, "recall", json!({"query": query, "k": 10})).await;
    answer["results"].as_array().unwrap().clone()
}

#[track_caller]
fn hit<'a>(hits: &'a [Value], id: &Value) -> &'a Value {
    hits.iter()
        .find(|h| h["id"] == *id)
        .unwrap_or_else(|| panic!("{id} is not among {hits:#?}"))
}

fn edges(graph: &Value, kind: &str, out: bool) -> Vec<Value> {
    let all = graph["edges"].as_array().unwrap().iter();
    all.filter(|e| e["kind"] == kind && e["out"] == out)
        .map(|e| e["node"].clone())
        .collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[tokio::test]
async fn a_verdict_on_a_spec_a_commit_or_a_signal_is_found_by_recalling_it() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let sha = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432";
    let sent = ask(&donna, "signal", task("Texi", "paint the fence")).await["signal_id"].clone();
    for (refers_to, asked, nodes) in [
        (
            "spec:SPEC-060".to_owned(),
            vec!["SPEC-060", "spec 60", "what did frank say of spec-060"],
            vec!["spec:60", "spec:SPEC-060", "spec:060"],
        ),
        (
            format!("commit:{}", &sha[..10].to_uppercase()),
            vec!["commit 9f8e7d6", sha, "commit 9f8e7d6c5b"],
            vec!["commit:9f8e7d6", &sha[..0], "commit:9f8e7d6c5b4a"],
        ),
        (
            format!("signal:{}", &text(&sent)[..8]),
            vec![&text(&sent)[..8], "the fence that was to be painted"],
            vec![],
        ),
    ] {
        let request = json!({"refers_to": refers_to, "verdict": "works"});
        let id = ask(&texi, "confirm", request).await["id"].clone();
        for question in asked {
            let hits = recall(&texi, question).await;
            let found = hit(&hits, &id);
            assert_eq!(found["kind"], "confirmation", "{question}");
            assert!(!text(&found["text"]).is_empty(), "{question}");
        }
        let signal = format!("signal:{}", text(&sent));
        let nodes = nodes.into_iter().filter(|n| !n.is_empty());
        let nodes: Vec<&str> = if refers_to.starts_with("signal") {
            vec![&refers_to, &signal]
        } else {
            nodes.collect()
        };
        for node in nodes {
            let graph = ask(&texi, "graph", json!({"id": node})).await;
            let by = edges(&graph, "CONFIRMS", false);
            assert_eq!(by.len(), 1, "{node}: {graph}");
            assert_eq!(by[0]["id"], id, "{node}");
        }
    }
    assert!(
        server
            .ok(None, &["graph", "show", "spec:SPEC-060"])
            .contains("CONFIRMS")
    );
    let unknown = texi.call(PID, "graph", json!({"id": "spec:999"})).await;
    let unknown = unknown.unwrap_err();
    assert!(unknown.is(Code::UnknownReference), "{unknown:?}");
}

#[tokio::test]
async fn a_commit_is_found_by_however_much_of_its_hash_is_written() {
    let server = Server::start();
    let (texi, _) = server.session("Texi").await;
    let sha = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432";
    let verdict = json!({"refers_to": format!("commit:{sha}"), "verdict": "works"});
    let id = ask(&texi, "confirm", verdict).await["id"].clone();
    for written in [
        "9f8e7d6",
        "9f8e7d6c",
        "9f8e7d6c5b",
        "9F8E7D6C5B4A",
        "what about 9f8e7d6c5b4a3928",
        sha,
    ] {
        let hits = recall(&texi, written).await;
        assert!(hits.iter().any(|h| h["id"] == id), "{written}: {hits:?}");
    }
}

#[tokio::test]
async fn verdicts_are_shown_on_what_they_are_about_whatever_that_is() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let spec = json!({"action": "create", "title": "Lighthouse", "body": "how the lamp turns"});
    let spec = ask(&donna, "spec", spec).await;
    let commit = "lamp motor fixed in commit 9f8e7d6c5b";
    let done = ask(&donna, "checkpoint", json!({"summary": commit})).await["delta_id"].clone();
    let of_spec = format!("spec:SPEC-{:03}", spec["number"].as_i64().unwrap());
    for (refers_to, verdict) in [(of_spec.as_str(), "works"), ("commit:9f8e7d6", "broken")] {
        let request = json!({"refers_to": refers_to, "verdict": verdict, "notes": "seen at dusk"});
        ask(&texi, "confirm", request).await;
    }
    let hits = recall(&texi, "how the lamp turns lighthouse").await;
    let row = hit(&hits, &spec["id"]);
    assert_eq!(row["verdicts"][0]["verdict"], "works", "{row}");
    assert!(row["verdicts"][0]["on"].is_null(), "it is about the row");
    assert!(row["why"].to_string().contains("operator: works"), "{row}");
    let hits = recall(&texi, "lamp motor fixed").await;
    let row = hit(&hits, &done);
    let said = &row["verdicts"][0];
    assert_eq!(
        (&said["verdict"], &said["on"]),
        (&json!("broken"), &json!("commit:9f8e7d6"))
    );
    assert!(!row["why"].to_string().contains("operator: broken"));
}

#[tokio::test]
async fn a_verdict_on_a_spec_by_its_id_is_one_on_the_spec() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let spec = json!({"action": "create", "title": "Lighthouse", "body": "how the lamp turns"});
    let spec = ask(&texi, "spec", spec).await["id"].clone();
    let id = text(&spec);
    let ways = [("1", "works"), (&id[..8], "broken"), (id, "partial")];
    let mut verdicts = Vec::new();
    for (name, verdict) in ways {
        let request = json!({"refers_to": format!("spec:{name}"), "verdict": verdict});
        verdicts.push(ask(&texi, "confirm", request).await["id"].clone());
        let hits = recall(&texi, "how the lamp turns lighthouse").await;
        let said = &hit(&hits, &spec)["verdicts"];
        assert_eq!(said[0]["verdict"], verdict, "spec:{name}: {said}");
        assert_eq!(said.as_array().unwrap().len(), verdicts.len(), "{said}");
    }
    let named = format!("spec:{id}");
    for node in [id, &id[..8], "spec:SPEC-001", &named[..13], &named] {
        let graph = ask(&texi, "graph", json!({"id": node})).await;
        assert_eq!(graph["node"]["id"], spec, "{node}");
        let confirming = edges(&graph, "CONFIRMS", false);
        assert_eq!(confirming.len(), verdicts.len(), "{node}: {graph}");
        assert!(confirming.iter().all(|n| verdicts.contains(&n["id"])));
    }
    // Nothing was made up beside it: every verdict speaks of the spec by its number.
    for verdict in &verdicts {
        let graph = ask(&texi, "graph", json!({"id": verdict})).await;
        let confirmed = edges(&graph, "CONFIRMS", true);
        assert_eq!(confirmed[0]["id"], "spec:1", "{graph}");
        let mentioned = edges(&graph, "MENTIONS", true);
        assert!(mentioned.iter().all(|n| n["id"] == "spec:1"), "{graph}");
    }
    // A name that is no row's id is of a spec that is kept elsewhere.
    let elsewhere = json!({"refers_to": "spec:deadbeef", "verdict": "works"});
    ask(&texi, "confirm", elsewhere).await;
    let graph = ask(&texi, "graph", json!({"id": "spec:deadbeef"})).await;
    assert_eq!(edges(&graph, "CONFIRMS", false).len(), 1, "{graph}");
}

#[tokio::test]
async fn pieces_and_refs_on_specs_and_commits_do_not_dangle() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let narrative = json!({"kind": "integration_narrative", "subject": "lamp", "tags": ["coast"],
        "operator_sees": "the lamp turns", "pieces": ["commit:ABCDEF1234", "spec:SPEC-060"],
        "would_break_it": "salt"});
    let id = ask(&texi, "remember", narrative).await["id"].clone();
    let note = json!({"kind": "note", "body": "more on it", "refs": ["spec:60", "commit:abcdef1"]});
    let note = ask(&texi, "remember", note).await["id"].clone();
    let graph = ask(&texi, "graph", json!({"id": id})).await;
    let mut named: Vec<String> = edges(&graph, "COMBINES", true)
        .iter()
        .map(|n| format!("{}:{}", text(&n["kind"]), text(&n["title"])))
        .collect();
    named.sort();
    assert_eq!(named, ["commit:abcdef1", "spec:60"]);
    for node in ["commit:abcdef1234", "spec:SPEC-060"] {
        let graph = ask(&texi, "graph", json!({"id": node})).await;
        assert_eq!(edges(&graph, "COMBINES", false)[0]["id"], id, "{graph}");
        let mentions = edges(&graph, "MENTIONS", false);
        assert!(mentions.iter().any(|n| n["id"] == note), "{graph}");
    }
    let shown = ask(&texi, "deltas", json!({"kind": "integration_narrative"})).await;
    let shown = &shown["deltas"][0];
    for (field, value) in [
        ("operator_sees", json!("the lamp turns")),
        ("pieces", json!(["commit:ABCDEF1234", "spec:SPEC-060"])),
        ("would_break_it", json!("salt")),
        ("tags", json!(["coast"])),
        ("subject", json!("lamp")),
    ] {
        assert_eq!(shown[field], value, "{field}");
    }
}

#[test]
fn a_bad_glob_and_too_many_warn_and_a_whole_path_is_a_surface_inside_the_repository() {
    let server = Server::start();
    let folder = std::fs::canonicalize(server.folder()).unwrap();
    let git = std::process::Command::new("git")
        .args(["init", "-q"])
        .current_dir(&folder)
        .status();
    assert!(git.unwrap().success());
    std::fs::create_dir_all(folder.join(".prism")).unwrap();
    let surfaces = |list: &[String]| {
        let file = folder.join(".prism/project.toml");
        std::fs::write(file, format!("surfaces = {}", json!(list))).unwrap();
    };
    surfaces(&["ui/{".into(), "ui/**".into()]);
    let mut donna = server.agent("Donna");
    let inside = folder.join("ui/page.rs");
    let touched = json!([inside, "/elsewhere/ui/page.rs"]);
    let answer = donna.call(
        "prism_checkpoint",
        json!({"summary": "x", "touched_files": touched}),
    );
    let warnings = answer["warnings"].as_array().unwrap();
    assert_eq!(warnings[0]["kind"], "missing_operator_visible_effect");
    assert_eq!(warnings[0]["paths"], json!(["ui/page.rs"]));
    assert_eq!(warnings[1]["kind"], "bad_surface_glob");
    assert_eq!(warnings[1]["paths"], json!(["ui/{"]));

    surfaces(&(0..300).map(|n| format!("d{n}/*")).collect::<Vec<_>>());
    let answer = donna.call("prism_wrap", json!({"summary": "all", "touched_files": []}));
    assert_eq!(answer["warnings"][0]["kind"], "too_many_surface_globs");
    let said = text(&answer["warnings"][0]["remediation"]);
    assert!(said.contains("300") && said.contains("200"), "{said}");
}

#[tokio::test]
async fn a_whole_path_is_a_surface_where_nobody_knows_the_folder() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let path = "/home/x/repo/bin/coder.sh";
    let request = json!({"summary": "x", "touched_files": [path]});
    let answer = ask(&donna, "checkpoint", request).await;
    assert_eq!(answer["warnings"][0]["paths"], json!([path]));
    let request = json!({"surfaces": vec!["x"; 201]});
    let refused = server.operator().call(PID, "memory_rot", request).await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("201") && refused.message.contains("200"));
}

#[tokio::test]
async fn a_pickup_finds_the_newest_wrap_however_old_and_says_what_it_does_not_know() {
    let server = Server::start_with(FAST);
    let (donna, donnas) = server.session("Donna").await;
    ask(&donna, "wrap", json!({"summary": "the old baton"})).await;
    let (texi, texis) = server.session("Texi").await;
    for n in 0..230 {
        ask(&texi, "note", json!({"text": format!("note {n}")})).await;
    }
    let decide = |title: &str, supersedes: Option<&str>| json!({"title": title, "context": "c", "decision": "d", "supersedes": supersedes});
    ask(&texi, "decide", decide("lamps", None)).await;
    ask(&texi, "decide", decide("bells", Some("1"))).await;
    for from in [
        json!({"from_identity": "donna"}),
        json!({"from_session": donnas.to_string()[..8]}),
        json!({"from_session": donnas}),
    ] {
        let baton = ask(&texi, "pickup", from.clone()).await;
        assert_eq!(baton["wrap"]["summary"], "the old baton", "{from}");
        assert_eq!(baton["deltas"].as_array().unwrap().len(), 1, "{from}");
        let standing = baton["decisions"].as_array().unwrap();
        assert_eq!(standing.len(), 1, "what was superseded stands no more");
        assert_eq!(standing[0]["title"], "bells");
    }
    let own = ask(&texi, "pickup", json!({"from_session": texis})).await;
    assert_eq!(own["warnings"][0]["kind"], "no_wrap");
    assert_eq!(own["deltas"][0]["summary"], "note 229");
    assert_eq!(own["deltas"].as_array().unwrap().len(), 10);
    let before = ask(&texi, "deltas", json!({"kind": "pickup"})).await;
    let request = json!({"from_session": "deadbeef"});
    let refused = texi.call(PID, "pickup", request).await.unwrap_err();
    assert!(refused.is(Code::UnknownSession), "{refused:?}");
    assert_eq!(refused.status, 404);
    let after = ask(&texi, "deltas", json!({"kind": "pickup"})).await;
    assert_eq!(before, after, "what was refused left no row");
}

#[tokio::test]
async fn an_unwrapped_session_is_over_and_did_something() {
    let server = Server::start_with(FAST);
    let (first, forgotten) = server.session("Donna").await;
    ask(&first, "note", json!({"text": "half done"})).await;
    let other = server.session("Donna").await.0;
    let started = ask(&other, "start", json!({})).await;
    assert!(
        started["unwrapped_session"].is_null(),
        "who is still here has not forgotten to wrap: {started}"
    );
    ask(&first, "session_release", json!({})).await;
    // A later session that only looked around hides nothing.
    let empty = server.session("Donna").await.0;
    ask(&empty, "pickup", json!({})).await;
    ask(&empty, "session_release", json!({})).await;
    let started = ask(&other, "start", json!({})).await;
    let unwrapped = &started["unwrapped_session"];
    assert_eq!(unwrapped["session_id"], forgotten.to_string(), "{started}");
    assert_eq!(unwrapped["deltas"], 1);
    let wrapped = server.session("Donna").await.0;
    ask(&wrapped, "wrap", json!({"summary": "now it is told"})).await;
    let started = ask(&other, "start", json!({})).await;
    assert!(started["unwrapped_session"].is_null(), "{started}");
}

#[tokio::test]
async fn a_todo_is_open_until_it_is_done_or_dropped_and_its_tags_stay_a_list() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    for (n, status) in ["open", "doing", "blocked", "done", "dropped"]
        .iter()
        .enumerate()
    {
        let add = json!({"action": "add", "title": format!("job {n}"), "tags": ["roof", "east wing"], "paths": ["src/a.rs"]});
        let number = ask(&texi, "todo", add).await["number"].clone();
        let update = json!({"action": "update", "number": number, "status": status});
        ask(&texi, "todo", update).await;
    }
    let titles = |list: &Value| -> Vec<String> {
        let mut titles: Vec<String> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|t| text(&t["title"]).to_owned())
            .collect();
        titles.sort();
        titles
    };
    let open = ["job 0", "job 1", "job 2"];
    let listed = ask(&texi, "todo", json!({"action": "list"})).await;
    assert_eq!(titles(&listed["items"]), open);
    let started = ask(&texi, "start", json!({})).await;
    assert_eq!(titles(&started["open_todos"]), open);
    let baton = ask(&texi, "pickup", json!({})).await;
    assert_eq!(titles(&baton["open_todos"]), open);
    for (status, shown) in [("doing", vec!["job 1"]), ("dropped", vec!["job 4"])] {
        let request = json!({"action": "list", "status": status});
        let listed = ask(&texi, "todo", request).await;
        assert_eq!(titles(&listed["items"]), shown);
    }
    let all = ask(&texi, "todo", json!({"action": "list", "status": "all"})).await;
    assert_eq!(titles(&all["items"]).len(), 5);

    let fields = async || {
        let listed = ask(&texi, "todo", json!({"action": "list"})).await;
        listed["items"][0]["fields"].clone()
    };
    let added = json!({"tags": ["roof", "east wing"], "paths": ["src/a.rs"]});
    assert_eq!(fields().await, added, "as they were given");
    let update = json!({"action": "update", "number": 3, "tags": ["gutter"]});
    ask(&texi, "todo", update).await;
    assert_eq!(fields().await["tags"], json!(["gutter"]));
    let found = recall(&texi, "gutter").await;
    assert_eq!(found[0]["title"], "job 2", "found by its new tag");
    let db = server.rows();
    let held = |word: &str| -> i64 {
        let sql = "select count(*) from memory_fts f cross join memory m on m.rowid = f.rowid
             where memory_fts match ? and m.id = ?";
        let id = text(&found[0]["id"]);
        db.query_row(sql, [word, id], |r| r.get(0)).unwrap()
    };
    assert_eq!(
        (held("gutter"), held("roof")),
        (1, 0),
        "by its old one no more"
    );
}

#[test]
fn what_was_proven_of_an_agent_outlives_its_session() {
    let server = Server::start();
    let mut texi = server.agent("Texi");
    server.ok(None, &["send", "Texi", "hello"]);
    let got = texi.call("prism_signals_pending", json!({}));
    assert_eq!(got["signals"].as_array().unwrap().len(), 1);
    let whois = |what: &str| -> Value {
        let printed = server.ok(None, &["whois", "Texi", "--json"]);
        let answer: Value = serde_json::from_str(&printed).unwrap();
        assert!(answer["reachable"].is_object(), "{what}: {answer}");
        answer
    };
    let proven = crate::harness::wait_for("the drain", || {
        let answer = whois("while it is here");
        (answer["reachable"]["state"] == "drained").then_some(answer["reachable"].clone())
    });
    assert_eq!(proven["surface"], "claude_code");
    texi.call("prism_wrap", json!({"summary": "done"}));
    assert_eq!(texi.close(), Some(0));
    let left = whois("after it left");
    assert!(left["sessions"].as_array().unwrap().is_empty(), "{left}");
    let known = &left["reachable"];
    assert_eq!(known["session_id"], proven["session_id"]);
    assert!(text(&known["at"]) >= text(&proven["at"]), "{known}");
    let mut again = Agent::launch(&server, Some("Texi"), &[]);
    again.call("prism_status", json!({}));
    assert_eq!(whois("in a new session")["reachable"], *known);
}

/// The bits of a row that say whether it answers "what works".
fn works(server: &Server, id: &Value) -> u32 {
    use prism_core::memory::question::cue::{CONFIRMATION, HALF_CONFIRMED};
    let db = server.rows();
    let cues: u32 = db
        .query_row("select cues from memory where id = ?", [text(id)], |r| {
            r.get(0)
        })
        .unwrap();
    cues & (CONFIRMATION | HALF_CONFIRMED)
}

#[tokio::test]
async fn the_newest_verdict_decides_and_a_report_on_own_work_counts_by_half_everywhere() {
    use prism_core::memory::question::cue::{CONFIRMATION, HALF_CONFIRMED};
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let done = "the lamp on the north tower turns at dusk again";
    let delta = ask(&donna, "checkpoint", json!({ "summary": done })).await["delta_id"].clone();
    let say = async |client: &Client, verdict: &str| {
        let refers_to = format!("delta:{}", text(&delta));
        let request = json!({"refers_to": refers_to, "verdict": verdict});
        ask(client, "confirm", request).await;
        let asked = format!("did frank approve that {done}");
        let request = json!({"query": asked, "kinds": ["checkpoint"]});
        let hits = ask(client, "recall", request).await["results"].clone();
        let hits = hits.as_array().unwrap().clone();
        hit(&hits, &delta)["why"].to_string()
    };
    let why = say(&donna, "works").await;
    assert_eq!(works(&server, &delta), HALF_CONFIRMED);
    assert!(
        why.contains("operator: works (reported, own work: half)"),
        "{why}"
    );
    assert!(why.contains("the kind asked for, by half"), "{why}");
    let why = say(&texi, "works").await;
    assert_eq!(works(&server, &delta), CONFIRMATION);
    assert!(
        why.contains("the kind asked for") && !why.contains("half"),
        "{why}"
    );
    let why = say(&texi, "broken").await;
    assert_eq!(works(&server, &delta), 0, "a later verdict takes it back");
    assert!(why.contains("operator: broken"), "{why}");
    assert!(
        !why.contains("works") && !why.contains("the kind asked for"),
        "{why}"
    );
    let why = say(&donna, "works").await;
    assert_eq!(works(&server, &delta), HALF_CONFIRMED);
    assert!(!why.contains("broken"), "{why}");
}

#[tokio::test]
async fn the_operators_own_input_is_the_operators_and_every_input_says_where_it_was_captured() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let delta =
        ask(&donna, "checkpoint", json!({"summary": "went to git"})).await["delta_id"].clone();
    server.ok(None, &["input", "correction", "memory before git"]);
    let reversing = json!({"class": "correction", "prompt_text": "no git at all", "confidence": "high", "reverses_delta": delta});
    ask(&server.operator(), "operator_input", reversing).await;
    let by_donna =
        json!({"class": "correction", "prompt_text": "look up first", "confidence": "high"});
    ask(&donna, "operator_input", by_donna).await;
    let file = server.folder().join("inputs.jsonl");
    let line = json!({"id": "a", "kind": "operator_input", "identity": "Mira", "surface": "codex", "created_at": "2026-01-01T00:00:00Z", "class": "correction", "prompt_text": "bells not lamps"});
    std::fs::write(&file, line.to_string()).unwrap();
    server.ok(None, &["import", file.to_str().unwrap()]);
    let inputs = ask(&server.operator(), "inputs", json!({})).await["inputs"].clone();
    for (prompt, via, surface, title) in [
        ("memory before git", "frank", "cli", "frank corrected"),
        ("no git at all", "frank", "cli", "frank corrected Donna"),
        ("look up first", "Donna", "other", "frank corrected Donna"),
        ("bells not lamps", "Mira", "codex", "frank corrected Mira"),
    ] {
        let input = inputs.as_array().unwrap().iter();
        let mut input = input.filter(|i| i["prompt_text"] == prompt);
        let input = input.next().expect(prompt);
        assert_eq!(input["captured_via"], via, "{prompt}");
        assert_eq!(input["surface"], surface, "{prompt}");
        let hits = recall(&donna, prompt).await;
        assert_eq!(hit(&hits, &input["id"])["title"], title, "{prompt}");
    }
}

#[tokio::test]
async fn a_label_never_points_at_bookkeeping() {
    let server = Server::start_with(FAST);
    let (donna, session) = server.session("Donna").await;
    let say = async |prompt: &str| {
        let request = json!({"class": "correction", "prompt_text": prompt, "confidence": "high"});
        let id = ask(&donna, "operator_input", request).await["id"].clone();
        let graph = ask(&donna, "graph", json!({"id": id})).await;
        edges(&graph, "LABELS", true)[0]["id"].clone()
    };
    ask(&donna, "pickup", json!({})).await;
    assert_eq!(say("not that one").await, format!("session:{session}"));
    let work = ask(&donna, "note", json!({"text": "work"})).await["id"].clone();
    ask(&donna, "pickup", json!({})).await;
    assert_eq!(say("nor that one").await, work);
}

#[tokio::test]
async fn a_rejected_input_leaves_the_graph_and_what_was_said_around_it_and_undo_restores() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let delta = ask(&donna, "checkpoint", json!({"summary": "painted"})).await["delta_id"].clone();
    let request =
        json!({"class": "correction", "prompt_text": "not that wall", "confidence": "high"});
    let input = ask(&donna, "operator_input", request).await["id"].clone();
    let after = ask(&donna, "note", json!({"text": "the other wall"})).await["id"].clone();
    let operator = server.operator();
    let queued = || -> Vec<String> {
        let db = server.rows();
        let mut ids = db.prepare("select memory_id from embed_intents").unwrap();
        let ids = ids.query_map([], |r| r.get(0)).unwrap();
        ids.collect::<Result<_, _>>().unwrap()
    };
    let embedded = || {
        let db = server.rows();
        db.execute("delete from embed_intents", []).unwrap();
    };
    let seen = async || {
        let graph = ask(&donna, "graph", json!({"id": delta})).await;
        edges(&graph, "LABELS", false).len()
    };
    assert_eq!(seen().await, 1);
    embedded();
    for (action, labels) in [("reject", 0), ("undo", 1)] {
        let request = json!({"ids": [input], "action": action});
        ask(&operator, "review", request).await;
        assert_eq!(seen().await, labels, "{action}");
        let own = donna.call(PID, "graph", json!({"id": input})).await;
        assert_eq!(own.is_ok(), labels == 1, "{action}: {own:?}");
        assert_eq!(queued(), [text(&after)], "{action}: its context changed");
        embedded();
    }
}

#[tokio::test]
async fn a_decision_of_digits_is_a_number_or_an_id_and_says_when_it_may_be_either() {
    let server = Server::start_with(FAST);
    let (texi, _) = server.session("Texi").await;
    let decide = |title: &str, supersedes: Value| json!({"title": title, "context": "c", "decision": "d", "supersedes": supersedes});
    // One id in forty-three begins with eight digits.
    let mut digits = None;
    for n in 0..2_000 {
        let made = ask(&texi, "decide", decide(&format!("d{n}"), Value::Null)).await;
        let prefix = text(&made["id"])[..8].to_owned();
        // The first one is renumbered below: it must be another.
        if n > 0 && prefix.bytes().all(|b| b.is_ascii_digit()) {
            digits = Some((made["id"].clone(), prefix));
            break;
        }
    }
    let (old, prefix) = digits.expect("an id that begins with digits");
    let number: i64 = prefix.parse().unwrap();
    {
        let db = server.rows();
        let renumber = "update artifacts set number = ? where number = 1 and kind = 'decision'";
        if number > 2_000 {
            db.execute(renumber, [number]).unwrap();
            let refused = texi.call(PID, "decide", decide("x", json!(prefix))).await;
            assert!(refused.unwrap_err().is(Code::Ambiguous));
            let back = "update artifacts set number = 1 where number = ? and kind = 'decision'";
            db.execute(back, [number]).unwrap();
        }
    }
    let new = ask(&texi, "decide", decide("by id", json!(prefix))).await["id"].clone();
    let graph = ask(&texi, "graph", json!({"id": new})).await;
    assert_eq!(edges(&graph, "SUPERSEDES", true)[0]["id"], old);
    let refused = texi.call(PID, "decide", decide("x", json!("99999"))).await;
    let refused = refused.unwrap_err();
    assert!(refused.message.contains("no decision 99999"), "{refused:?}");
}

#[tokio::test]
async fn a_verdict_on_the_id_of_another_projects_row_changes_nothing_there() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let delta = ask(&donna, "checkpoint", json!({"summary": "theirs"})).await["delta_id"].clone();
    let spec = json!({"action": "create", "title": "theirs", "body": "b"});
    let spec = ask(&donna, "spec", spec).await["id"].clone();
    let minted = server
        .operator()
        .call("PID-OTHER", "key_mint", json!({"identity": "Eve"}))
        .await
        .unwrap();
    let key = text(&minted["key"]).to_owned();
    let eve = Client::new(Locator::Home(server.home()), key).unwrap();
    for id in [&delta, &spec] {
        let request = json!({"refers_to": format!("spec:{}", text(id)), "verdict": "works"});
        eve.call("PID-OTHER", "confirm", request).await.unwrap();
        assert_eq!(works(&server, id), 0, "another project's word");
        let hits = recall(&donna, "theirs").await;
        assert_eq!(hit(&hits, id)["verdicts"], json!([]));
    }
    let request = json!({"refers_to": format!("spec:{}", text(&spec)), "verdict": "works"});
    let (texi, _) = server.session("Texi").await;
    ask(&texi, "confirm", request).await;
    let hits = recall(&donna, "theirs").await;
    assert_eq!(hit(&hits, &spec)["verdicts"][0]["verdict"], "works");
}

#[tokio::test]
async fn the_metrics_count_what_was_said_by_whom() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    for (client, verdict) in [(&donna, "works"), (&donna, "works"), (&texi, "broken")] {
        let request = json!({"refers_to": "spec:SPEC-001", "verdict": verdict});
        ask(client, "confirm", request).await;
    }
    let mut inputs = Vec::new();
    for (client, class, action, confidence) in [
        (&donna, "correction", "Reading git", "high"),
        (&donna, "correction", "reading git", "high"),
        (&donna, "correction", "reading git", "low"),
        (&donna, "confirmation", "reading git", "high"),
        (&texi, "correction", "reading git", "high"),
    ] {
        let request = json!({"class": class, "prompt_text": format!("say {}", inputs.len()), "triggered_action": action, "confidence": confidence});
        inputs.push(ask(client, "operator_input", request).await["id"].clone());
    }
    let attempt = json!({"approach": "Polling", "outcome": "slow"});
    for _ in 0..2 {
        let request = json!({"summary": "x", "tried_and_ruled_out": [attempt]});
        ask(&donna, "checkpoint", request).await;
    }
    let operator = server.operator();
    let review = |n: usize, action: &str| json!({"ids": [inputs[n]], "action": action});
    ask(&operator, "review", review(1, "reject")).await;
    ask(&operator, "review", review(3, "accept")).await;
    let metrics = ask(&operator, "memory_metrics", json!({})).await;
    let expected = json!({
        "confirmations": [
            {"what": "works", "group": "Donna/other", "n": 2},
            {"what": "broken", "group": "Texi/other", "n": 1}],
        "inputs": [
            {"agent": "Donna", "counted": 2, "unreviewed": 2, "rejected": 1, "misclassification_rate": 0.5},
            {"agent": "Texi", "counted": 1, "unreviewed": 1, "rejected": 0, "misclassification_rate": 0.0}],
        "corrections": [
            {"what": "reading git", "group": "Donna", "n": 1},
            {"what": "reading git", "group": "Texi", "n": 1}],
        "dead_ends": [{"what": "polling", "group": "ruled_out", "n": 2}],
    });
    assert_eq!(metrics["confirmations"], expected["confirmations"]);
    assert_eq!(metrics["inputs"], expected["inputs"]);
    assert_eq!(metrics["dead_ends"], expected["dead_ends"]);
    let mut corrections = metrics["corrections"].as_array().unwrap().clone();
    corrections.sort_by_key(|c| c["group"].to_string());
    assert_eq!(json!(corrections), expected["corrections"]);
}

#[tokio::test]
async fn a_recalls_event_keeps_who_asked_what_and_what_came() {
    let server = Server::start_with(FAST);
    let (texi, session) = server.session("Texi").await;
    for text in ["the zebra crossing at night", "a zebra in the zoo"] {
        ask(&texi, "note", json!({ "text": text })).await;
    }
    let answer = ask(&texi, "recall", json!({"query": "zebra crossing"})).await;
    let results = answer["results"].as_array().unwrap();
    assert_eq!(results.len(), 2);
    let db = server.rows();
    let event = db
        .query_row(
            "select e.*, p.pid from memory_recall_events e join projects p on p.id = e.project_id
             where e.id = ?",
            [text(&answer["recall_event_id"])],
            |r| {
                Ok(json!({
                    "pid": r.get::<_, String>("pid")?, "session": r.get::<_, String>("session_id")?,
                    "identity": r.get::<_, String>("identity")?, "surface": r.get::<_, String>("surface")?,
                    "query": r.get::<_, String>("query")?, "results": r.get::<_, String>("results")?,
                    "latency_us": r.get::<_, i64>("latency_us")?, "tokens": r.get::<_, i64>("tokens")?,
                    "occurred_at": r.get::<_, i64>("occurred_at")?,
                }))
            },
        )
        .unwrap();
    for (field, value) in [
        ("pid", json!(PID)),
        ("session", json!(session.to_string())),
        ("identity", json!("Texi")),
        ("surface", json!("other")),
        ("query", json!("zebra crossing")),
    ] {
        assert_eq!(event[field], value, "{field}");
    }
    let kept: Vec<Value> = serde_json::from_str(text(&event["results"])).unwrap();
    for (n, (kept, shown)) in kept.iter().zip(results).enumerate() {
        assert_eq!(kept["id"], shown["id"]);
        assert_eq!(kept["rank"], n + 1);
        assert_eq!(kept["score"], shown["score"]);
        assert_eq!(kept["lexical"], n + 1, "both hold a word of it: {kept}");
        assert!(kept["vector"].is_null(), "no model here: {kept}");
    }
    assert_eq!(kept.len(), 2);
    let chars: usize = results
        .iter()
        .map(|r| text(&r["text"]).len().div_ceil(4))
        .sum();
    assert_eq!(event["tokens"], chars);
    assert!(event["latency_us"].as_i64().unwrap() > 0);
    assert!(event["occurred_at"].as_i64().unwrap() > 0);
}

#[tokio::test]
async fn a_session_is_wrapped_once_however_many_try_and_then_writes_no_checkpoint() {
    let server = Server::start_with(FAST);
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let mut tries = Vec::new();
    for n in 0..10 {
        let texi = texi.clone();
        let wrap = json!({"summary": format!("wrap {n}")});
        tries.push(tokio::spawn(
            async move { texi.call(PID, "wrap", wrap).await },
        ));
    }
    let mut wrapped = Vec::new();
    for each in tries {
        match each.await.unwrap() {
            Ok(answer) => wrapped.push(answer["delta_id"].clone()),
            Err(refused) => assert!(
                refused.is(Code::SessionReleased) && refused.status == 410,
                "{refused:?}"
            ),
        }
    }
    let written = ask(&donna, "deltas", json!({"kind": "wrap"})).await;
    let written: Vec<_> = written["deltas"].as_array().unwrap().iter().collect();
    assert_eq!((wrapped.len(), written.len()), (1, 1), "{written:#?}");
    assert_eq!(written[0]["id"], wrapped[0]);
    // A request that came in before the session ended, and is written after it.
    let db = server.rows();
    let release = "update sessions set released_at = 1 where identity = 'Donna'";
    assert_eq!(db.execute(release, []).unwrap(), 1);
    for verb in ["wrap", "checkpoint"] {
        let late = donna.call(PID, verb, json!({"summary": "late"})).await;
        let late = late.unwrap_err();
        assert!(late.is(Code::SessionReleased), "{verb}: {late:?}");
    }
    let late = "select count(*) from session_deltas where summary = 'late'";
    let late: i64 = db.query_row(late, [], |r| r.get(0)).unwrap();
    assert_eq!(late, 0);
}
