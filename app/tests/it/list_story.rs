//! Every filter of every list: rows that differ in one thing alone, and who of them is in and who is
//! out, on the verb and on the command's flag.

use crate::harness::{PID, Server, wait_until};
use prism::client::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// A list, and the rows that a story has put into it, by id.
struct List<'a> {
    server: &'a Server,
    verb: &'static str,
    /// None where there is none.
    command: &'static [&'static str],
    /// Where an answer has its rows, what a row is called by, and when it was.
    rows: &'static str,
    id: &'static str,
    at: &'static str,
    names: BTreeMap<String, &'static str>,
}

impl List<'_> {
    fn add(&mut self, name: &'static str, id: &Value) {
        self.names.insert(id.as_str().unwrap().to_owned(), name);
    }

    fn id_of(&self, name: &str) -> String {
        let mut rows = self.names.iter();
        rows.find(|(_, known)| **known == name).unwrap().0.clone()
    }

    fn within(&self, answer: &Value) -> Vec<&'static str> {
        let rows = answer[self.rows].as_array().unwrap().iter();
        let mut names: Vec<_> = rows
            .map(|row| self.names[row[self.id].as_str().unwrap()])
            .collect();
        names.sort_unstable();
        names
    }

    async fn asked(&self, pid: &str, filter: &Value) -> Value {
        let operator = self.server.operator();
        let answer = operator.call(pid, self.verb, filter.clone()).await;
        answer.unwrap()
    }

    /// Only these are in, whoever asks.
    async fn has(&self, filter: Value, flags: &[&str], wanted: &[&str]) {
        let mut wanted = wanted.to_vec();
        wanted.sort_unstable();
        let answer = self.asked(PID, &filter).await;
        assert_eq!(self.within(&answer), wanted, "{} {filter}", self.verb);
        if self.command.is_empty() {
            return;
        }
        let args = [self.command, flags, &["--json"]].concat();
        let printed: Value = serde_json::from_str(&self.server.ok(None, &args)).unwrap();
        assert_eq!(self.within(&printed), wanted, "prism {args:?}");
    }

    /// When a row was, as the list says it.
    async fn time_of(&self, name: &str) -> String {
        let all = self.asked(PID, &json!({})).await;
        let mut rows = all[self.rows].as_array().unwrap().iter();
        let row = rows.find(|row| self.names.get(row[self.id].as_str().unwrap()) == Some(&name));
        row.unwrap()[self.at].as_str().unwrap().to_owned()
    }

    /// A range begins with its first moment and ends before its last; a page ends where it was cut,
    /// and goes on from there.
    async fn ranges_and_pages(&self, oldest: &str, newest: &str) {
        let (first, last) = (self.time_of(oldest).await, self.time_of(newest).await);
        let all = self.within(&self.asked(PID, &json!({})).await);
        let but = |out: &str| -> Vec<&str> { all.iter().copied().filter(|n| *n != out).collect() };
        self.has(json!({"since": first}), &["--since", &first], &all)
            .await;
        self.has(json!({"since": last}), &["--since", &last], &[newest])
            .await;
        self.has(json!({"until": last}), &["--until", &last], &but(newest))
            .await;
        self.has(json!({"until": first}), &["--until", &first], &[])
            .await;
        let both = json!({"since": first, "until": last});
        let flags = ["--since", &first, "--until", &last];
        self.has(both, &flags, &but(newest)).await;

        let one = self.asked(PID, &json!({"limit": 1})).await;
        assert_eq!(self.within(&one), [newest], "the newest first");
        let next = one["next"].as_str().unwrap();
        let further = json!({"cursor": next});
        self.has(further, &["--cursor", next], &but(newest)).await;
        if !self.command.is_empty() {
            let args = [self.command, &["-n", "1", "--json"]].concat();
            let printed: Value = serde_json::from_str(&self.server.ok(None, &args)).unwrap();
            assert_eq!(
                (self.within(&printed), &printed["next"]),
                (vec![newest], &json!(next))
            );
        }
        // Another list's cursor means nothing here.
        for foreign in ["inbox.0.1", "other.1.1", "1.1"] {
            let ask = json!({"cursor": foreign});
            let refused = self.server.operator().call(PID, self.verb, ask).await;
            let refused = refused.unwrap_err();
            assert!(refused.message.contains("cursor"), "{refused:?}");
        }
    }
}

async fn said(client: &Client, verb: &str, body: Value, id: &str) -> Value {
    client.call(PID, verb, body).await.unwrap()[id].clone()
}

/// One moment after the other, none of them long ago.
fn just_now(n: usize) -> i64 {
    prism::clock::now().plus_s(n as i64 - 60).0
}

fn signal(to: &str, kind: &str, category: &str, summary: &str) -> Value {
    json!({"to": to, "signal_type": kind, "category": category, "payload": {"summary": summary}})
}

#[tokio::test]
async fn signals_by_who_what_when_and_words() {
    let server = Server::start();
    let (donna, mike) = (
        server.identity("Donna").await,
        server.identity("Mike").await,
    );
    server.identity("Texi").await;
    let mut list = List {
        server: &server,
        verb: "signal_list",
        command: &["signals", "list"],
        rows: "signals",
        id: "signal_id",
        at: "created_at",
        names: BTreeMap::new(),
    };
    let task = |to, summary| signal(to, "TaskAssigned", "TASK", summary);
    for (name, from, body) in [
        ("plain", &donna, task("Texi", "paint the ring")),
        ("to Mike", &donna, task("Mike", "paint the ring")),
        ("from Mike", &mike, task("Texi", "paint the ring")),
        (
            "an ASK",
            &donna,
            signal("Texi", "TaskAssigned", "ASK", "paint the ring"),
        ),
        (
            "a review",
            &donna,
            signal("Texi", "ReviewRequested", "TASK", "paint the ring"),
        ),
        ("of a bell", &donna, task("Texi", "paint the BELL")),
        ("a probe", &donna, task("Texi", "paint the ring")),
        ("last", &donna, task("Texi", "paint the ring")),
    ] {
        list.add(name, &said(from, "signal", body, "signal_id").await);
    }
    let as_probe = "update signal_queue set signal_type = 'Loopback' where id = ?";
    server
        .rows()
        .execute(as_probe, [&list.id_of("a probe")])
        .unwrap();

    let all = [
        "plain",
        "to Mike",
        "from Mike",
        "an ASK",
        "a review",
        "of a bell",
        "last",
    ];
    let but = |out: &[&str]| -> Vec<&str> {
        all.iter()
            .copied()
            .filter(|name| !out.contains(name))
            .collect()
    };
    list.has(json!({}), &[], &all).await;
    let theirs = ["to Mike", "from Mike"];
    list.has(
        json!({"identity": "mike"}),
        &["--identity", "mike"],
        &theirs,
    )
    .await;
    list.has(json!({"from": "Mike"}), &["--from", "Mike"], &["from Mike"])
        .await;
    list.has(json!({"to": "MIKE"}), &["--to", "MIKE"], &["to Mike"])
        .await;
    list.has(json!({"identity": "Mi"}), &["--identity", "Mi"], &[])
        .await;
    list.has(
        json!({"category": "ASK"}),
        &["--category", "ASK"],
        &["an ASK"],
    )
    .await;
    list.has(
        json!({"category": "TASK"}),
        &["--category", "TASK"],
        &but(&["an ASK"]),
    )
    .await;
    let review = json!({"signal_type": "ReviewRequested"});
    list.has(review, &["--type", "ReviewRequested"], &["a review"])
        .await;
    list.has(
        json!({"words": "bell Paint"}),
        &["bell", "Paint"],
        &["of a bell"],
    )
    .await;
    list.has(json!({"words": "mike ring"}), &["mike", "ring"], &theirs)
        .await;
    list.has(
        json!({"words": "paint missing"}),
        &["paint", "missing"],
        &[],
    )
    .await;
    let everything = [&all[..], &["a probe"]].concat();
    list.has(json!({"probes": true}), &["--probes"], &everything)
        .await;
    list.has(
        json!({"signal_type": "Loopback"}),
        &["--type", "Loopback"],
        &["a probe"],
    )
    .await;
    let both = json!({"from": "Donna", "to": "Texi", "category": "TASK", "words": "ring"});
    let flags = [
        "--from",
        "Donna",
        "--to",
        "Texi",
        "--category",
        "TASK",
        "ring",
    ];
    list.has(both, &flags, &["plain", "a review", "last"]).await;
    list.ranges_and_pages("plain", "last").await;

    // Another project's is in where all are asked about, and nowhere else.
    let elsewhere = task("Texi", "paint the ring");
    let operator = server.operator();
    let added = operator.call("PID-OTHER", "persona_add", json!({"identity": "Texi"}));
    added.await.unwrap();
    let sent = operator
        .call("PID-OTHER", "signal", elsewhere)
        .await
        .unwrap();
    list.add("elsewhere", &sent["signal_id"]);
    list.has(json!({}), &[], &all).await;
    let wide = list.within(&list.asked("*", &json!({})).await);
    assert_eq!(wide.len(), all.len() + 1, "{wide:?}");
    let printed = server.ok(None, &["signals", "list", "--all", "--json"]);
    assert_eq!(list.within(&serde_json::from_str(&printed).unwrap()), wide);
    assert_eq!(
        list.within(&list.asked("PID-OTHER", &json!({})).await),
        ["elsewhere"]
    );
}

#[tokio::test]
async fn signals_by_where_they_stand() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let mut list = List {
        server: &server,
        verb: "signal_list",
        command: &["signals", "list"],
        rows: "signals",
        id: "signal_id",
        at: "created_at",
        names: BTreeMap::new(),
    };
    let send = async |names: &[&'static str], list: &mut List<'_>| {
        for name in names {
            let body = signal("Texi", "TaskAssigned", "TASK", "the same");
            list.add(name, &said(&donna, "signal", body, "signal_id").await);
        }
    };
    send(&["expired"], &mut list).await;
    server.advance(Duration::from_secs(400 * 86_400));
    wait_until("what waited too long ends", async || {
        let ended = list.asked(PID, &json!({"state": "expired"})).await;
        (!ended["signals"].as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let (texi, _) = server.session("Texi").await;
    send(&["drained", "acted", "dismissed"], &mut list).await;
    let read = texi.call(PID, "signals_pending", json!({})).await.unwrap();
    let lease = json!({"lease_id": read["lease_id"]});
    texi.call(PID, "signals_confirm", lease).await.unwrap();
    let [acted, dismissed] = ["acted", "dismissed"].map(|name| list.id_of(name));
    let acted = json!({"signal_id": acted, "state": "model_acted"});
    texi.call(PID, "signal_ack", acted).await.unwrap();
    let away = json!({"signal_ids": [dismissed]});
    texi.call(PID, "signals_ack", away).await.unwrap();
    // Nobody's answer takes these along.
    send(&["waiting", "recalled", "failed"], &mut list).await;
    let back = json!({"signal_id": list.id_of("recalled")});
    donna.call(PID, "signal_recall", back).await.unwrap();
    let fails = "update signal_queue set ended_at = created_at, ended_as = 'failed' where id = ?";
    server
        .rows()
        .execute(fails, [&list.id_of("failed")])
        .unwrap();
    for state in [
        "waiting",
        "drained",
        "acted",
        "dismissed",
        "expired",
        "recalled",
        "failed",
    ] {
        list.has(json!({"state": state}), &["--state", state], &[state])
            .await;
    }
}

#[tokio::test]
async fn memory_by_kind_identity_time_words_and_id() {
    let server = Server::start();
    let (donna, texi) = (
        server.identity("Donna").await,
        server.identity("Texi").await,
    );
    let mut list = List {
        server: &server,
        verb: "memory_list",
        command: &["memory", "list"],
        rows: "rows",
        id: "id",
        at: "created_at",
        names: BTreeMap::new(),
    };
    let note = |text: &str| json!({"text": text});
    let mut journal = json!({"title": "ring", "body": "the ring is kept"});
    for (name, by, verb, body) in [
        ("plain", &donna, "note", note("the ring is kept")),
        ("of Texi", &texi, "note", note("the ring is kept")),
        ("a journal", &donna, "journal", journal.clone()),
        ("of a bell", &donna, "note", note("the BELL is kept")),
    ] {
        list.add(name, &said(by, verb, body, "id").await);
    }
    journal["title"] = json!("Bell, in its title alone");
    list.add("titled", &said(&donna, "journal", journal, "id").await);
    list.add(
        "last",
        &said(&donna, "note", note("the ring is kept"), "id").await,
    );
    let kinds = json!({"kinds": ["journal"]});
    list.has(kinds, &["--kinds", "journal"], &["a journal", "titled"])
        .await;
    let kinds = json!({"kinds": ["note", "journal"], "identity": "donna"});
    let flags = ["--kinds", "note,journal", "--identity", "donna"];
    let donnas = ["plain", "a journal", "of a bell", "titled", "last"];
    list.has(kinds, &flags, &donnas).await;
    list.has(json!({"kinds": ["spec"]}), &["--kinds", "spec"], &[])
        .await;
    list.has(
        json!({"identity": "Texi"}),
        &["--identity", "Texi"],
        &["of Texi"],
    )
    .await;
    list.has(
        json!({"words": "bell"}),
        &["bell"],
        &["of a bell", "titled"],
    )
    .await;
    list.has(
        json!({"words": "KEPT bell"}),
        &["KEPT", "bell"],
        &["of a bell", "titled"],
    )
    .await;
    list.ranges_and_pages("plain", "last").await;
    // One by its id, or by its first digits; another's digits are nobody's.
    for (id, name) in &list.names {
        for quoted in [id.as_str(), &id[..8]] {
            let operator = server.operator();
            let shown = operator.call(PID, "memory_show", json!({"id": quoted}));
            let shown = shown.await.unwrap();
            assert_eq!(shown["row"]["id"], id.as_str(), "{name}");
            let printed = server.ok(None, &["memory", "show", quoted, "--json"]);
            let printed: Value = serde_json::from_str(&printed).unwrap();
            assert_eq!(printed["row"]["id"], id.as_str(), "{name}");
        }
    }
    let operator = server.operator();
    let refused = operator.call(PID, "memory_list", json!({"kinds": ["mood"]}));
    assert!(refused.await.unwrap_err().message.contains("mood"));
}

#[tokio::test]
async fn recalls_by_who_session_words_time_and_what_was_cited() {
    let server = Server::start();
    let (donna, _) = server.session("Donna").await;
    let (texi, other) = server.session("Texi").await;
    let row = said(
        &donna,
        "note",
        json!({"text": "the ring is kept after a restart"}),
        "id",
    )
    .await;
    let mut list = List {
        server: &server,
        verb: "recall_list",
        command: &["memory", "recalls"],
        rows: "events",
        id: "id",
        at: "at",
        names: BTreeMap::new(),
    };
    for (name, by, query) in [
        ("plain", &donna, "the ring after a restart"),
        ("of Texi", &texi, "the ring after a restart"),
        ("of a bell", &donna, "the BELL after a restart"),
        ("cited", &donna, "the ring after a restart"),
        ("last", &donna, "the ring after a restart"),
    ] {
        let asked = said(by, "recall", json!({"query": query}), "recall_event_id").await;
        if name == "cited" {
            let cites = json!({"recall_event_id": asked, "result_id": row, "for": "the mend"});
            donna.call(PID, "memory_cite", cites).await.unwrap();
        }
        list.add(name, &asked);
    }
    list.has(
        json!({"identity": "TEXI"}),
        &["--identity", "TEXI"],
        &["of Texi"],
    )
    .await;
    let session = other.to_string();
    for quoted in [session.as_str(), &session[..8]] {
        let asks = json!({"session_id": quoted});
        list.has(asks, &["--session", quoted], &["of Texi"]).await;
    }
    list.has(json!({"words": "bell"}), &["bell"], &["of a bell"])
        .await;
    list.has(json!({"cited": true}), &["--cited"], &["cited"])
        .await;
    let uncited = ["plain", "of Texi", "of a bell", "last"];
    list.has(json!({"cited": false}), &["--uncited"], &uncited)
        .await;
    list.ranges_and_pages("plain", "last").await;
    // What was shown, what of it was cited and what for, and how long it took.
    let found = list.asked(PID, &json!({"cited": true})).await;
    let event = &found["events"][0];
    assert_eq!(event["results"][0]["id"], row, "{event}");
    assert_eq!(event["results"][0]["cited_for"], "the mend", "{event}");
    assert!(event["latency_ms"].as_f64().unwrap() > 0.0, "{event}");
}

#[tokio::test]
async fn inputs_by_review_class_agent_surface_and_time() {
    let server = Server::start();
    let (donna, _) = server.session("Donna").await;
    let (texi, _) = server.session("Texi").await;
    let bare = server.identity("Donna").await;
    let mut list = List {
        server: &server,
        verb: "input_list",
        command: &[],
        rows: "inputs",
        id: "id",
        at: "captured_at",
        names: BTreeMap::new(),
    };
    for (name, by, class) in [
        ("plain", &donna, "correction"),
        ("of Texi", &texi, "correction"),
        ("a yes", &donna, "confirmation"),
        ("a turn", &donna, "direction_pivot"),
        ("without a host", &bare, "correction"),
        ("accepted", &donna, "correction"),
        ("rejected", &donna, "correction"),
        ("last", &donna, "correction"),
    ] {
        let body =
            json!({"class": class, "prompt_text": "not the title bar", "confidence": "high"});
        list.add(name, &said(by, "operator_input", body, "id").await);
    }
    for (name, action) in [("accepted", "accept"), ("rejected", "reject")] {
        let review = json!({"ids": [list.id_of(name)], "action": action});
        server.operator().call(PID, "review", review).await.unwrap();
    }
    let all = [
        "plain",
        "of Texi",
        "a yes",
        "a turn",
        "without a host",
        "accepted",
        "rejected",
        "last",
    ];
    let but = |out: &[&str]| -> Vec<&str> {
        all.iter()
            .copied()
            .filter(|name| !out.contains(name))
            .collect()
    };
    list.has(json!({"review": "all"}), &[], &all).await;
    list.has(json!({"review": "accepted"}), &[], &["accepted"])
        .await;
    list.has(json!({"review": "rejected"}), &[], &["rejected"])
        .await;
    list.has(
        json!({"review": "unreviewed"}),
        &[],
        &but(&["accepted", "rejected"]),
    )
    .await;
    list.has(json!({"class": "confirmation"}), &[], &["a yes"])
        .await;
    list.has(json!({"class": "direction_pivot"}), &[], &["a turn"])
        .await;
    list.has(
        json!({"class": "correction"}),
        &[],
        &but(&["a yes", "a turn"]),
    )
    .await;
    list.has(json!({"identity": "texi"}), &[], &["of Texi"])
        .await;
    list.has(json!({"surface": "other"}), &[], &but(&["without a host"]))
        .await;
    let both = json!({"review": "unreviewed", "class": "correction", "identity": "Donna"});
    list.has(both, &[], &["plain", "without a host", "last"])
        .await;
    list.ranges_and_pages("plain", "last").await;
}

#[tokio::test]
async fn sessions_by_agent_host_end_and_time() {
    let server = Server::start();
    let mut list = List {
        server: &server,
        verb: "session_list",
        command: &["session", "list"],
        rows: "sessions",
        id: "session_id",
        at: "started_at",
        names: BTreeMap::new(),
    };
    for (name, by, surface) in [
        ("plain", "Donna", "codex"),
        ("of Texi", "Texi", "codex"),
        ("in Cursor", "Donna", "cursor"),
        ("over", "Donna", "codex"),
        ("last", "Donna", "codex"),
    ] {
        let client = server.identity(by).await;
        let body = json!({"surface": surface, "machine_id": "m", "process_pid": 1});
        let id = said(&client, "session_register", body, "session_id").await;
        if name == "over" {
            let over = client.with_session(Some(id.as_str().unwrap().parse().unwrap()));
            over.call(PID, "session_release", json!({})).await.unwrap();
        }
        list.add(name, &id);
    }
    let open = ["plain", "of Texi", "in Cursor", "last"];
    list.has(json!({"which": "open"}), &["--which", "open"], &open)
        .await;
    list.has(
        json!({"which": "released"}),
        &["--which", "released"],
        &["over"],
    )
    .await;
    let all = [&open[..], &["over"]].concat();
    list.has(json!({"which": "all"}), &["--which", "all"], &all)
        .await;
    list.has(
        json!({"identity": "texi"}),
        &["--identity", "texi"],
        &["of Texi"],
    )
    .await;
    list.has(
        json!({"surface": "cursor"}),
        &["--surface", "cursor"],
        &["in Cursor"],
    )
    .await;
    list.ranges_and_pages("plain", "last").await;
}

#[tokio::test]
async fn gate_events_by_outcome_label_agent_and_time() {
    let server = Server::start();
    server.identity("Donna").await;
    let mut list = List {
        server: &server,
        verb: "gate_list",
        command: &["gate", "list"],
        rows: "events",
        id: "id",
        at: "occurred_at",
        names: BTreeMap::new(),
    };
    let rows = server.rows();
    for (n, (name, who, outcome, label)) in [
        ("plain", "Donna", "warned", None),
        ("of Texi", "Texi", "warned", None),
        ("satisfied", "Donna", "satisfied", None),
        ("right", "Donna", "warned", Some(1)),
        ("wrong", "Donna", "warned", Some(0)),
        ("last", "Donna", "warned", None),
    ]
    .into_iter()
    .enumerate()
    {
        let id = uuid::Uuid::from_u128(1 + n as u128).to_string();
        let (label, at) = (label.map_or("null".into(), |l| l.to_string()), just_now(n));
        let sql = format!(
            "insert into recallgate_events (id, tenant_id, project_id, assignment_id, task_class,
                 gate_mode, outcome, trigger, actor_session_id, actor_persona, actor_surface,
                 recall_count, occurred_at, label, labelled_at, is_first)
             select '{id}', tenant_id, id, '{id}', 'tier1', 'advisory', '{outcome}', 'ack', '{id}',
                 '{who}', 'codex', 0, {at}, {label}, null, 1 from projects where pid = '{PID}'"
        );
        rows.execute_batch(&sql).unwrap();
        list.add(name, &json!(id));
    }
    let warned = ["plain", "of Texi", "right", "wrong", "last"];
    list.has(
        json!({"outcome": "warned"}),
        &["--outcome", "warned"],
        &warned,
    )
    .await;
    let satisfied = json!({"outcome": "satisfied"});
    list.has(satisfied, &["--outcome", "satisfied"], &["satisfied"])
        .await;
    list.has(
        json!({"labelled": true}),
        &["--labelled"],
        &["right", "wrong"],
    )
    .await;
    let left = ["plain", "of Texi", "last"];
    list.has(json!({"labelled": false}), &["--unlabelled"], &left)
        .await;
    list.has(
        json!({"identity": "texi"}),
        &["--identity", "texi"],
        &["of Texi"],
    )
    .await;
    list.ranges_and_pages("plain", "last").await;
}

#[tokio::test]
async fn probes_by_agent_outcome_host_machine_and_time() {
    let server = Server::start();
    let (_, session) = server.session("Donna").await;
    let run = json!({"session_id": session, "timeout_ms": 1});
    let first = server.operator().call(PID, "probe_run", run).await.unwrap();
    let mut list = List {
        server: &server,
        verb: "probe_list",
        command: &["delivery", "--runs"],
        rows: "runs",
        id: "loopback_id",
        at: "finished_at",
        names: BTreeMap::new(),
    };
    let rows = server.rows();
    rows.execute_batch("delete from loopback_runs").unwrap();
    for (n, (name, who, outcome, surface, machine)) in [
        ("plain", "Donna", "partial", "codex", "desk"),
        ("of Texi", "Texi", "partial", "codex", "desk"),
        ("complete", "Donna", "complete", "codex", "desk"),
        ("timeout", "Donna", "timeout", "codex", "desk"),
        ("in Cursor", "Donna", "partial", "cursor", "desk"),
        ("in the hall", "Donna", "partial", "codex", "hall"),
        ("last", "Donna", "partial", "codex", "desk"),
    ]
    .into_iter()
    .enumerate()
    {
        let id = uuid::Uuid::from_u128(1 + n as u128).to_string();
        let mut probe = first.clone();
        for (field, value) in [
            ("loopback_id", id.as_str()),
            ("outcome", outcome),
            ("surface", surface),
            ("machine_id", machine),
            ("requested_by_identity", who),
        ] {
            probe[field] = json!(value);
        }
        let envelope = probe.to_string().replace('\'', "''");
        let (signal, at) = (&first["signal_id"].as_str().unwrap(), just_now(n));
        let sql = format!(
            "insert into loopback_runs (loopback_id, project_id, session_id, identity, signal_id,
                 outcome, envelope, finished_at)
             select '{id}', id, '{session}', '{who}', '{signal}', '{outcome}', '{envelope}', {at}
             from projects where pid = '{PID}'"
        );
        rows.execute_batch(&sql).unwrap();
        list.add(name, &json!(id));
    }
    let partial = ["plain", "of Texi", "in Cursor", "in the hall", "last"];
    list.has(
        json!({"outcome": "partial"}),
        &["--outcome", "partial"],
        &partial,
    )
    .await;
    list.has(
        json!({"outcome": "complete"}),
        &["--outcome", "complete"],
        &["complete"],
    )
    .await;
    list.has(
        json!({"outcome": "timeout"}),
        &["--outcome", "timeout"],
        &["timeout"],
    )
    .await;
    list.has(
        json!({"identity": "TEXI"}),
        &["--identity", "TEXI"],
        &["of Texi"],
    )
    .await;
    list.has(
        json!({"surface": "cursor"}),
        &["--surface", "cursor"],
        &["in Cursor"],
    )
    .await;
    list.has(
        json!({"machine_id": "hall"}),
        &["--machine", "hall"],
        &["in the hall"],
    )
    .await;
    list.ranges_and_pages("plain", "last").await;
}

#[tokio::test]
async fn a_story_by_agent_conversation_and_time() {
    let server = Server::start();
    let (donna, _) = server.session("Donna").await;
    // Whose name begins another's.
    let (don, _) = server.session("Don").await;
    let mut list = List {
        server: &server,
        verb: "story",
        command: &["story"],
        rows: "items",
        id: "id",
        at: "at",
        names: BTreeMap::new(),
    };
    let task = |to| signal(to, "TaskAssigned", "TASK", "paint the ring");
    let operator = server.operator();
    let sent = said(&operator, "signal", task("Donna"), "signal_id").await;
    list.add("a task", &sent);
    let other = said(&operator, "signal", task("Don"), "signal_id").await;
    list.add("another", &other);
    let read = donna.call(PID, "signals_pending", json!({})).await.unwrap();
    let lease = json!({"lease_id": read["lease_id"]});
    donna.call(PID, "signals_confirm", lease).await.unwrap();
    let recalled = said(
        &donna,
        "recall",
        json!({"query": "the ring"}),
        "recall_event_id",
    )
    .await;
    list.add("looked up", &recalled);
    let done = json!({"summary": "painted the ring", "operator_visible_effect": "it is red"});
    let delta = donna.call(PID, "checkpoint", done).await.unwrap();
    let delta = &delta["delta_id"];
    list.add("done", delta);
    let reply = json!({"to": "frank", "signal_type": "Answer", "in_reply_to": sent,
        "payload": {"summary": "it is painted"}});
    list.add(
        "an answer",
        &said(&donna, "signal", reply, "signal_id").await,
    );
    let about = format!("delta:{}", delta.as_str().unwrap());
    let verdict = json!({"refers_to": about, "verdict": "works"});
    list.add(
        "a verdict",
        &said(&operator, "confirm", verdict, "id").await,
    );
    let own = json!({"refers_to": about, "verdict": "partial"});
    list.add("by Donna", &said(&donna, "confirm", own, "id").await);
    let reported = don
        .call(PID, "checkpoint", json!({"summary": "wrote it down"}))
        .await;
    let reported = &reported.unwrap()["delta_id"];
    list.add("of Don", reported);
    let on_don =
        json!({"refers_to": format!("delta:{}", reported.as_str().unwrap()), "verdict": "works"});
    list.add(
        "by Donna on Don",
        &said(&donna, "confirm", on_don, "id").await,
    );
    let words = json!({"class": "correction", "prompt_text": "not so red", "confidence": "high",
        "reverses_delta": delta});
    list.add(
        "your words",
        &said(&donna, "operator_input", words, "id").await,
    );

    let conversation = [
        "a task",
        "looked up",
        "done",
        "an answer",
        "a verdict",
        "by Donna",
        "your words",
    ];
    list.has(
        json!({"signal_id": sent}),
        &["--signal", sent.as_str().unwrap()],
        &conversation,
    )
    .await;
    let short = &other.as_str().unwrap()[..8];
    list.has(
        json!({"signal_id": short}),
        &["--signal", short],
        &["another"],
    )
    .await;
    let donnas = [&conversation[..], &["by Donna on Don"]].concat();
    list.has(
        json!({"identity": "donna"}),
        &["--identity", "donna"],
        &donnas,
    )
    .await;
    // What Donna took down is no doing of Don's, but for the verdict on what Don did.
    let dons = ["another", "of Don", "by Donna on Don"];
    list.has(json!({"identity": "Don"}), &["--identity", "Don"], &dons)
        .await;
    list.ranges_and_pages("a task", "your words").await;
}

#[tokio::test]
async fn an_inbox_goes_on_where_it_ended_and_takes_no_other_lists_place() {
    let server = Server::start();
    let donna = server.identity("Donna").await;
    server.identity("Texi").await;
    let body = |n: usize| signal("Texi", "TaskAssigned", "TASK", &format!("number {n}"));
    for n in 0..3 {
        donna.call(PID, "signal", body(n)).await.unwrap();
    }
    let operator = server.operator();
    let summaries = |page: &Value| -> Vec<String> {
        let rows = page["signals"].as_array().unwrap().iter();
        rows.map(|s| s["summary"].as_str().unwrap().to_owned())
            .collect()
    };
    let ask = json!({"identity": "Texi", "limit": 2});
    let first = operator.call(PID, "inbox", ask).await.unwrap();
    assert_eq!(
        summaries(&first),
        ["number 0", "number 1"],
        "as they would be read"
    );
    let next = first["next"].as_str().unwrap();
    let ask = json!({"identity": "Texi", "cursor": next});
    let second = operator.call(PID, "inbox", ask).await.unwrap();
    assert_eq!(
        (summaries(&second), &second["next"]),
        (vec!["number 2".into()], &Value::Null)
    );
    // The command that says that there is more takes what it says.
    let cut = server.cli(None, &["inbox", "Texi", "-n", "2"]);
    assert!(
        String::from_utf8_lossy(&cut.stderr).contains("--cursor"),
        "{cut:?}"
    );
    let printed = server.ok(None, &["inbox", "Texi", "--cursor", next, "--json"]);
    assert_eq!(
        summaries(&serde_json::from_str(&printed).unwrap()),
        ["number 2"]
    );
    let listed = operator
        .call(PID, "signal_list", json!({"limit": 1}))
        .await
        .unwrap();
    for (verb, foreign) in [("inbox", &listed["next"]), ("signal_list", &first["next"])] {
        let refused = operator.call(PID, verb, json!({"cursor": foreign})).await;
        let refused = refused.unwrap_err();
        assert!(
            refused.message.contains("another list's"),
            "{verb}: {refused:?}"
        );
    }
}

#[test]
fn a_nonsense_filter_is_refused_where_there_is_no_project_yet_too() {
    let server = Server::start();
    let folder = server.folder().join("not-used-yet");
    std::fs::create_dir(&folder).unwrap();
    let run = |args: &[&str]| {
        let mut command = server.command(None);
        command.env_remove("PRISM_PID").current_dir(&folder);
        command.args(args).output().unwrap()
    };
    for (args, named) in [
        (&["session", "list", "--which", "lost"][..], "which"),
        (&["signals", "list", "--state", "lost"], "state"),
        (&["signals", "list", "--category", "URGENT"], "category"),
        (&["signals", "list", "-n", "0"], "limit"),
        (&["memory", "list", "--kinds", "mood"], "mood"),
        (&["memory", "recalls", "--since", "yesterday"], "since"),
        (&["gate", "list", "--outcome", "lost"], "outcome"),
        (&["delivery", "--runs", "--outcome", "lost"], "outcome"),
        (&["metrics", "--bucket", "fortnight"], "bucket"),
        (&["story", "--cursor", "x"], "cursor"),
    ] {
        let refused = run(args);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(named), "{args:?}: {said}");
    }
    assert!(
        run(&["signals", "list", "--state", "waiting"])
            .status
            .success()
    );
    let projects = server.ok(None, &["project", "list"]).to_lowercase();
    assert!(!projects.contains("not-used-yet"), "{projects}");
}
