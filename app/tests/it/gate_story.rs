//! The gate warns exactly where work began without a look at what was learned.

use crate::harness::{Agent, PID, Server, ids, task, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

fn assigned(server: &Server, from: &mut Agent, to: &mut Agent, payload: Value) -> String {
    let sent = from.call(
        "prism_signal",
        json!({"to": to.started["identity"], "signal_type": "TaskAssigned", "payload": payload}),
    );
    let id = sent["signal_id"].as_str().unwrap().to_owned();
    wait_for("the task", || {
        ids(&to.call("prism_signals_pending", json!({})))
            .contains(&id)
            .then_some(())
    });
    wait_for("the drain", || {
        server
            .ok(None, &["trace", &id])
            .contains("drained")
            .then_some(())
    });
    id
}

fn warnings(answer: &Value) -> Vec<String> {
    answer["warnings"]
        .as_array()
        .map(|w| {
            w.iter()
                .map(|w| w["kind"].as_str().unwrap().to_owned())
                .collect()
        })
        .unwrap_or_default()
}

fn events(server: &Server) -> Vec<(String, String, String)> {
    let answer: Value =
        serde_json::from_str(&server.ok(None, &["gate", "events", "--json", "-n", "100"])).unwrap();
    let text = |e: &Value, f: &str| e[f].as_str().unwrap().to_owned();
    answer["events"]
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|e| (text(e, "persona"), text(e, "trigger"), text(e, "outcome")))
        .collect()
}

#[test]
fn tier1_without_recall_warns_beside_an_ack_that_is_otherwise_unchanged() {
    let server = Server::start();
    let (mut frank, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let id = assigned(
        &server,
        &mut frank,
        &mut texi,
        json!({"summary": "ratify docs/specs/spec-099.md"}),
    );
    let ack = texi.call(
        "prism_signal_ack",
        json!({"signal_id": id, "state": "model_acted"}),
    );
    assert_eq!(
        (ack["ok"].as_bool(), warnings(&ack)),
        (Some(true), vec!["missing_recall_on_task_start".into()])
    );
    assert_eq!(
        (
            ack["warnings"][0]["task_class"].as_str(),
            ack["warnings"][0]["assignment_id"].as_str(),
            ack["warnings"][0]["suggested_query"].as_str()
        ),
        (
            Some("tier1"),
            Some(id.as_str()),
            Some("ratify docs/specs/spec-099.md")
        )
    );
    assert!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty(),
        "once per assignment and surface"
    );
    assert_eq!(
        texi.refused("prism_signal_ack", json!({"signal_id": "deadbeef"}))["code"],
        "unknown_signal"
    );
    assert_eq!(
        frank.refused("prism_signal_ack", json!({"signal_id": id}))["code"],
        "not_yours"
    );
    let plain = assigned(
        &server,
        &mut frank,
        &mut texi,
        json!({"summary": "run the smoke test"}),
    );
    assert!(warnings(&texi.call("prism_signal_ack", json!({"signal_id": plain}))).is_empty());
    for odd in [
        json!({}),
        json!({"summary": "x", "tags": 7, "paths": {"a": [1]}}),
        json!({"body": "y".repeat(60_000)}),
    ] {
        let id = assigned(&server, &mut frank, &mut texi, odd);
        assert!(warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty());
    }
    assert_eq!(
        events(&server),
        [("Texi".into(), "ack".into(), "warned".into())]
    );
}

/// A mixed working day of three agents: the gate warns exactly where it should.
#[test]
fn a_golden_day_is_warned_only_where_work_began_without_recall() {
    let server = Server::start();
    let (mut lola, mut texi, mut donna) = (
        server.agent("Lola"),
        server.agent("Texi"),
        server.agent("Donna"),
    );
    // Donna recalls before she starts: no warning, a satisfied event with its reference.
    let governed = assigned(
        &server,
        &mut lola,
        &mut donna,
        json!({"summary": "change the rule", "tags": ["Governance"]}),
    );
    donna.call("semantic_recall", json!({"query": "governance rule"}));
    assert!(warnings(&donna.call("prism_signal_ack", json!({"signal_id": governed}))).is_empty());
    donna.call("prism_journal", json!({"body": "wrote it down"}));
    // Texi acknowledges (a warning), then recalls: satisfied, and her journal is no miss.
    let docs = assigned(
        &server,
        &mut lola,
        &mut texi,
        json!({"summary": "fix the typo in docs/guide.md"}),
    );
    assert_eq!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": docs}))).len(),
        1
    );
    texi.call("semantic_recall", json!({"query": "typo guide"}));
    texi.call("prism_journal", json!({"body": "fixed"}));
    // Ambient traffic: answers, statuses, notes, housekeeping todos. Nothing.
    lola.call("prism_signal", json!({"to": "Texi", "signal_type": "StatusUpdate", "payload": {"summary": "docs/specs/ is moving"}}));
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "clean up old branches"})
        ))
        .is_empty()
    );
    texi.call("prism_note", json!({"text": "ratify nothing"}));
    // Lola adds a watched todo without recall, then decides: warned at the todo and at the output.
    let todo = lola.call(
        "prism_todo",
        json!({"action": "add", "title": "new panel", "paths": ["dashboard/src/x.tsx"]}),
    );
    assert_eq!(warnings(&todo), ["missing_recall_on_task_start"]);
    assert!(
        todo["warnings"][0]["assignment_id"]
            .as_str()
            .unwrap()
            .starts_with("todo:")
    );
    let decided = lola.call(
        "prism_decide",
        json!({"title": "t", "context": "c", "decision": "d"}),
    );
    assert!(
        warnings(&decided).is_empty(),
        "material output's own answer is unchanged"
    );
    lola.call(
        "prism_decide",
        json!({"title": "t2", "context": "c", "decision": "d"}),
    );
    // A recall within the minute covers the next todo.
    texi.call("semantic_recall", json!({"query": "colours"}));
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "new colour", "tags": ["ui"]})
        ))
        .is_empty()
    );
    let expect = |who: &str, trigger: &str, outcome: &str| {
        (who.to_owned(), trigger.to_owned(), outcome.to_owned())
    };
    assert_eq!(
        events(&server),
        [
            expect("Donna", "ack", "satisfied"),
            expect("Texi", "ack", "warned"),
            expect("Texi", "recall", "satisfied"),
            expect("Lola", "todo_add", "warned"),
            expect("Lola", "material_output", "warned"),
            expect("Texi", "todo_add", "satisfied"),
        ]
    );
    let db = server.rows();
    let count = |sql: &str| db.query_row(sql, [], |r| r.get::<_, i64>(0)).unwrap();
    assert_eq!(
        count("select count(*) from edges where kind = 'REFERENCES_RECALL'"),
        4,
        "the last todo is covered by both of Texi's recalls"
    );
    assert_eq!(
        count(&format!(
            "select count(*) from {} where name in ('query', 'text', 'payload', 'results')",
            db.either(
                "pragma_table_info('recallgate_events')",
                "(select attname as name from pg_attribute
                  where attrelid = 'recallgate_events'::regclass) a"
            )
        )),
        0,
        "ids and counts only"
    );
    // The operator labels a warning, and the report shows it beside the target.
    let unlabelled: Value =
        serde_json::from_str(&server.ok(None, &["gate", "events", "--unlabelled", "--json"]))
            .unwrap();
    let event = unlabelled["events"][0]["id"].as_str().unwrap();
    assert_eq!(
        server
            .cli(Some("Texi"), &["gate", "label", &event[..8], "--right"])
            .status
            .code(),
        Some(2)
    );
    server.ok(None, &["gate", "label", &event[..8], "--wrong"]);
    let report: Value =
        serde_json::from_str(&server.ok(None, &["gate", "report", "--json"])).unwrap();
    assert_eq!(
        (
            report["precision"].as_f64(),
            report["labelled"].as_u64(),
            report["verdict"].as_str(),
            report["warned"].as_u64()
        ),
        (Some(0.0), Some(1), Some("too_few_labels"), Some(3))
    );
    assert!(server.ok(None, &["gate", "report"]).contains("target 0.7"));
    assert!(
        server
            .ok(
                None,
                &["gate", "explain", "ratify docs/specs/x.md", "--tags", "ui"]
            )
            .contains("tier1: path docs/specs/x.md with “ratify”")
    );
}

#[test]
fn the_gate_remembers_across_a_restart_and_its_modes_hold() {
    let mut server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let id = assigned(
        &server,
        &mut lola,
        &mut texi,
        json!({"summary": "edit CLAUDE.md"}),
    );
    assert_eq!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).len(),
        1
    );
    assert_eq!(events(&server).len(), 1);
    server.kill();
    server.resume();
    assert!(
        warnings(&texi.call("prism_signal_ack", json!({"signal_id": id}))).is_empty(),
        "said before the restart"
    );
    texi.call("prism_journal", json!({"body": "edited"}));
    // On a store that others share the answer does not wait for this.
    wait_for("the window was still open", || {
        (events(&server).last().unwrap().1 == "material_output").then_some(())
    });
    server.kill();
    server.resume_with(&[("PRISM_RECALLGATE_MODE", "off")]);
    assert!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "x", "tags": ["governance"]})
        ))
        .is_empty()
    );
    assert_eq!(events(&server).len(), 2, "off writes nothing");
    server.kill();
    server.resume_with(&[("PRISM_RECALLGATE_MODE", "enforce")]);
    assert_eq!(
        warnings(&texi.call(
            "prism_todo",
            json!({"action": "add", "title": "y", "tags": ["governance"]})
        ))
        .len(),
        1,
        "enforce advises"
    );
    server.kill();
    let refused = server
        .command(None)
        .args(["serve", "--port", "0"])
        .env("PRISM_RECALLGATE_MODE", "strict")
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("off or advisory"));
}

const TIER1: &str = "ratify docs/specs/spec-099.md";

fn recall(agent: &mut Agent) {
    agent.call("semantic_recall", json!({"query": "what was learned"}));
}

fn acked(agent: &mut Agent, id: &str) -> Vec<String> {
    let request = json!({"signal_id": id, "state": "model_acted"});
    warnings(&agent.call("prism_signal_ack", request))
}

fn rows(server: &Server, sql: &str) -> i64 {
    server.rows().query_row(sql, [], |r| r.get(0)).unwrap()
}

#[test]
fn a_recall_counts_however_long_the_work_takes_and_across_a_restart() {
    let mut server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let id = assigned(&server, &mut lola, &mut texi, json!({"summary": TIER1}));
    recall(&mut texi);
    texi.call("prism_journal", json!({"body": "under way"}));
    server.advance(Duration::from_secs(61 * 60));
    server.kill();
    server.resume();
    assert!(
        acked(&mut texi, &id).is_empty(),
        "recalled, then worked for an hour"
    );
    server.advance(Duration::from_secs(48 * 3600));
    assert!(
        acked(&mut texi, &id).is_empty(),
        "a second ACK stays silent"
    );
    assert_eq!(
        events(&server),
        [("Texi".into(), "ack".into(), "satisfied".into())]
    );
}

#[test]
fn output_before_a_restart_is_not_forgotten() {
    let mut server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    texi.call(
        "prism_journal",
        json!({"body": "earlier work says nothing"}),
    );
    let id = assigned(&server, &mut lola, &mut texi, json!({"summary": TIER1}));
    texi.call("prism_journal", json!({"body": "began without a look"}));
    assert!(events(&server).is_empty());
    // On a store that others share the answer does not wait for the note; a server that ends does.
    if server.is_shared() {
        server.terminate();
    } else {
        server.kill();
    }
    server.resume();
    // Too late: the output came first.
    recall(&mut texi);
    assert_eq!(acked(&mut texi, &id).len(), 1);
    texi.call("prism_journal", json!({"body": "went on"}));
    assert_eq!(
        events(&server),
        [("Texi".into(), "ack".into(), "warned".into())],
        "a missed window is not open"
    );
}

#[test]
fn an_assignment_arrives_when_it_is_drained() {
    let server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    // (between recall and drain, warnings at an ACK two hours later)
    for (pause_s, expected) in [(50, 0), (90, 1)] {
        recall(&mut texi);
        server.advance(Duration::from_secs(pause_s));
        let id = assigned(&server, &mut lola, &mut texi, json!({"summary": TIER1}));
        server.advance(Duration::from_secs(2 * 3600));
        assert_eq!(acked(&mut texi, &id).len(), expected, "{pause_s} s");
    }
    // Never drained: it arrives with the ACK.
    for (pause_s, expected) in [(50, 0), (90, 1)] {
        recall(&mut texi);
        server.advance(Duration::from_secs(pause_s));
        let sent = lola.call("prism_signal", task("Texi", TIER1));
        let id = sent["signal_id"].as_str().unwrap().to_owned();
        assert_eq!(acked(&mut texi, &id).len(), expected, "{pause_s} s");
        server.advance(Duration::from_secs(3600));
    }
}

#[test]
fn only_an_assignment_is_judged_whatever_else_says() {
    let server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    for kind in ["StatusUpdate", "Question", "ReviewRequested", "Answer"] {
        let payload = json!({"summary": TIER1, "tags": ["governance"]});
        let sent = lola.call(
            "prism_signal",
            json!({"to": "Texi", "signal_type": kind, "payload": payload}),
        );
        let id = sent["signal_id"].as_str().unwrap().to_owned();
        assert!(acked(&mut texi, &id).is_empty(), "{kind}");
    }
    assert!(events(&server).is_empty());
}

#[test]
fn a_recall_is_the_sessions_that_made_it_and_a_warning_is_given_once() {
    let server = Server::start();
    let mut lola = server.agent("Lola");
    let (mut one, mut two) = (server.agent("Texi"), server.agent("Texi"));
    let id = assigned(&server, &mut lola, &mut one, json!({"summary": TIER1}));
    recall(&mut two);
    assert_eq!(acked(&mut one, &id).len(), 1, "the other session recalled");
    assert!(acked(&mut two, &id).is_empty(), "said for this assignment");
    assert_eq!(events(&server).len(), 1);
    // Each closes its own: the one that was warned recalls and is satisfied.
    two.call("prism_journal", json!({"body": "not my window"}));
    recall(&mut one);
    assert_eq!(
        events(&server)[1..],
        [("Texi".into(), "recall".into(), "satisfied".into())]
    );
}

#[test]
fn a_window_ends_with_its_session() {
    let server = Server::start();
    let (mut lola, mut texi) = (server.agent("Lola"), server.agent("Texi"));
    let open = "select count(*) from recallgate_windows";
    let id = assigned(&server, &mut lola, &mut texi, json!({"summary": TIER1}));
    assert_eq!(acked(&mut texi, &id).len(), 1);
    assert_eq!(rows(&server, open), 1);
    texi.call("prism_wrap", json!({"summary": "done for today"}));
    assert_eq!(rows(&server, open), 0);
    texi.call("prism_start", json!({}));
    texi.call("prism_journal", json!({"body": "a new day"}));
    assert_eq!(events(&server).len(), 1);
}

#[tokio::test]
async fn whoever_has_no_session_is_judged_by_the_persona() {
    let server = Server::start();
    let (lola, texi) = (server.identity("Lola").await, server.identity("Texi").await);
    let assign = || async {
        let sent = lola.call(PID, "signal", task("Texi", TIER1)).await.unwrap();
        sent["signal_id"].clone()
    };
    let ack = |id: Value| {
        let texi = &texi;
        async move {
            let answer = texi.call(PID, "signal_ack", json!({"signal_id": id})).await;
            warnings(&answer.unwrap())
        }
    };
    assert_eq!(ack(assign().await).await.len(), 1);
    let open = "select count(*) from recallgate_windows";
    assert_eq!(rows(&server, open), 1);
    lola.call(PID, "recall", json!({"query": "not Texi's"}))
        .await
        .unwrap();
    server.advance(Duration::from_secs(25 * 3600));
    assert_eq!(ack(assign().await).await.len(), 1);
    assert_eq!(rows(&server, open), 1, "a day later nobody waits for it");
    texi.call(PID, "recall", json!({"query": "specs"}))
        .await
        .unwrap();
    assert!(ack(assign().await).await.is_empty());
    assert_eq!(rows(&server, open), 0);
}

#[test]
fn the_command_line_prints_the_warning() {
    let server = Server::start();
    let mut lola = server.agent("Lola");
    server.ok(None, &["key", "mint", "Texi"]);
    let sent = lola.call("prism_signal", task("Texi", TIER1));
    let id = sent["signal_id"].as_str().unwrap();
    let acknowledge = || {
        let output = server.cli(Some("Texi"), &["signals", "ack", id]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), "noted\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let warned = acknowledge();
    assert!(
        warned.contains("semantic_recall") && warned.contains(TIER1),
        "{warned}"
    );
    assert_eq!(acknowledge(), "");
}

#[tokio::test]
async fn fifty_labels_are_a_verdict_and_one_less_is_not() {
    let mut server = Server::start();
    server.identity("Texi").await;
    server.terminate();
    let database = server.rows();
    database
        .execute_batch(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < 51)
             insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class,
                gate_mode, outcome, trigger, actor_persona, actor_surface, recall_count,
                occurred_at, is_first, label)
             select (10000000 + i) || '-0000-4000-8000-000000000000', p.tenant_id, p.id, 'a' || i,
                'tier1', 'advisory', 'warned', 'ack', 'Texi', 'cli', 0,
                (select max(created_at) from personas) + i, 1,
                case when i <= 14 then 0 when i <= 49 then 1 end
             from n, projects p;",
        )
        .unwrap();
    drop(database);
    server.resume();
    let report = || async {
        let report = server.operator().call(PID, "gate_report", json!({})).await;
        let report = report.unwrap();
        (
            report["labelled"].as_u64().unwrap(),
            report["verdict"].as_str().unwrap().to_owned(),
        )
    };
    assert_eq!(report().await, (49, "too_few_labels".to_owned()));
    let label = |i: u32, right: bool| {
        let request = json!({"event_id": format!("{}", 10_000_000 + i), "right": right});
        let operator = server.operator();
        async move { operator.call(PID, "gate_label", request).await.unwrap() }
    };
    label(50, true).await;
    assert_eq!(report().await, (50, "ok".to_owned()), "36 of 50");
    label(50, false).await;
    label(51, false).await;
    assert_eq!(report().await, (51, "low".to_owned()), "35 of 51");
}
