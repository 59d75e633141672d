//! Tenants: two teams on one PostgreSQL, with the same names for everything, who know nothing of each other.

use crate::harness::engines::{Database, Postgres};
use crate::harness::{PATIENCE, PID, Server, task, wait_until};
use crate::stream::Stream;
use futures_util::StreamExt;
use prism::client::{Client, Locator};
use prism::clock::new_id;
use prism::verb::{Is, VERBS, Verb, Who};
use prism_core::api::ServerFrame;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use uuid::Uuid;

type Page = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// What the first tenant wrote, and nobody else ever says.
const SECRET: &str = "zanzibar";

fn serve(database: &Database) -> Server {
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    server
}

pub fn cli(server: &Server, url: &str, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = server.command(None);
    let output = command.env("PRISM_DATABASE", url).args(args).output();
    let output = output.unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// Adds a tenant as whoever holds the database's URL does, and returns its operator.
pub fn add(server: &Server, url: &str, name: &str) -> (Client, String) {
    let (code, out, err) = cli(
        server,
        url,
        &["tenant", "add", name, "--pid", PID, "--json"],
    );
    assert_eq!(code, Some(0), "{err}");
    let added: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(added["tenant"], name);
    let key = added["key"].as_str().unwrap();
    assert!(key.starts_with(&format!("prk_{name}__")), "{key}");
    let id = added["id"].as_str().unwrap().to_owned();
    (client(server, key), id)
}

fn client(server: &Server, key: &str) -> Client {
    Client::new(Locator::Home(server.home()), key.to_owned())
        .unwrap()
        .creating_project()
}

pub async fn mint(server: &Server, operator: &Client, name: &str) -> Client {
    let minted = operator.call(PID, "key_mint", json!({"identity": name}));
    let minted = minted.await.unwrap();
    let key = minted["key"].as_str().unwrap();
    Client::new(Locator::Home(server.home()), key.to_owned()).unwrap()
}

pub async fn seated(agent: &Client) -> (Client, Uuid) {
    let opened = json!({"surface": "other", "machine_id": "m", "process_pid": 1});
    let opened = agent.call(PID, "session_register", opened).await.unwrap();
    let session = opened["session_id"].as_str().unwrap().parse().unwrap();
    (agent.clone().with_session(Some(session)), session)
}

/// An open page of an operator.
async fn watch(server: &Server, operator: &Client) -> Page {
    let address = server.url().replace("http", "ws") + "/api/v1/watch";
    let mut request = address.into_client_request().unwrap();
    let bearer = format!("Bearer {}", operator.key());
    (request.headers_mut()).insert("authorization", bearer.parse().unwrap());
    let (mut page, _) = connect_async(request).await.unwrap();
    let hello = tokio::time::timeout(PATIENCE, page.next()).await;
    assert!(hello.is_ok(), "it watches once it was greeted");
    page
}

/// All that a page is told until it hears of something that its operator does now.
async fn told_of(page: &mut Page, operator: &Client) -> String {
    let send = async || {
        let sent = operator.call(PID, "signal", task("Texi", "look")).await;
        sent.unwrap()["signal_id"].as_str().unwrap().to_owned()
    };
    let (mut id, mut told) = (send().await, String::new());
    while !told.contains(&id) {
        let frame = tokio::time::timeout(PATIENCE, page.next()).await;
        let frame = frame.expect("the page is told").unwrap().unwrap();
        let text = frame.to_text().unwrap_or_default();
        // The carrier had just been found: everything is read again, and then one by one.
        if text.contains("\"behind\"") {
            id = send().await;
        }
        told.push_str(text);
    }
    told
}

/// What a caller may name of another tenant's rows; or of nobody's.
struct Named {
    signal: String,
    trace: String,
    session: String,
    delta: String,
    memory: String,
    recall: String,
    input: String,
    key: String,
    gate: String,
    lease: String,
    /// A probe under way.
    probe: Value,
    /// The ids of one that is over.
    run: [String; 2],
    number: i64,
    project: String,
    folder: String,
    key_of_send: String,
    /// Whose they are.
    texi: Client,
}

impl Named {
    fn nobodys(texi: &Client, like: &Self) -> Self {
        let id = || new_id().to_string();
        Self {
            probe: unissued(&like.probe),
            run: [id(), id()],
            signal: id(),
            trace: id(),
            session: id(),
            delta: id(),
            memory: id(),
            recall: id(),
            input: id(),
            key: id(),
            gate: id(),
            lease: id(),
            number: 4_711,
            project: "NOWHERE".into(),
            folder: "/no/where".into(),
            key_of_send: id(),
            texi: texi.clone(),
        }
    }

    fn ids(&self) -> [&str; 14] {
        let probe = |field: &str| self.probe[field].as_str().unwrap();
        [
            probe("signal_id"),
            probe("loopback_id"),
            &self.run[0],
            &self.run[1],
            &self.signal,
            &self.trace,
            &self.session,
            &self.delta,
            &self.memory,
            &self.recall,
            &self.input,
            &self.key,
            &self.gate,
            &self.lease,
        ]
    }
}

/// A lived-in tenant; what there is of it to be named.
async fn live_in(server: &Server, operator: &Client) -> Named {
    let (texi, donna) = (
        mint(server, operator, "Texi").await,
        mint(server, operator, "Donna").await,
    );
    let text = |answer: &Value, field: &str| answer[field].as_str().unwrap().to_owned();
    let (texi, session) = seated(&texi).await;
    let ask = |path: &'static str, body: Value| {
        let texi = texi.clone();
        async move {
            let answer = texi.call(PID, path, body).await;
            answer.unwrap_or_else(|p| panic!("{path}: {p:?}"))
        }
    };
    ask("start", json!({})).await;
    // What the gate warns of: work began without a look at what was learned.
    let ratify = task("Texi", &format!("ratify docs/specs/{SECRET}.md"));
    let ratify = donna.call(PID, "signal", ratify).await.unwrap();
    let drained = ask("signals_pending", json!({})).await;
    let lease = json!({"lease_id": drained["lease_id"]});
    ask("signals_confirm", lease).await;
    let acted = json!({"signal_id": ratify["signal_id"], "state": "model_acted"});
    ask("signal_ack", acted).await;
    let gate = operator.call(PID, "gate_events", json!({})).await.unwrap();
    let run = ask("signal/loopback-issue", json!({})).await;
    ask("signal/loopback-finish", json!({"probe": run})).await;
    let probe = ask("signal/loopback-issue", json!({})).await;
    operator.call(PID, "demo", json!({})).await.unwrap();
    let key_of_send = new_id().to_string();
    let mut send = task("Texi", SECRET);
    send["idempotency_key"] = json!(key_of_send);
    let sent = donna.call(PID, "signal", send).await.unwrap();
    let drained = ask("signals_pending", json!({})).await;
    let memory = ask(
        "note",
        json!({"text": format!("{SECRET} is where it is kept")}),
    )
    .await;
    let recalled = ask("recall", json!({"query": SECRET})).await;
    let done = json!({"summary": format!("{SECRET} was painted"), "touched_files": [format!("{SECRET}.rs")]});
    let delta = ask("checkpoint", done).await;
    let input = ask(
        "operator_input",
        json!({"class": "correction", "prompt_text": format!("not {SECRET}"), "confidence": "high"}),
    )
    .await;
    let spec = json!({"action": "create", "title": SECRET, "body": SECRET});
    ask("spec", spec.clone()).await;
    ask("plan", spec).await;
    ask("todo", json!({"action": "add", "title": SECRET})).await;
    let outage = json!({"title": SECRET, "what_happened": SECRET, "choice_point": SECRET, "prevention": SECRET});
    ask("postmortem", outage).await;
    let folder = format!("/{SECRET}");
    let allow = json!({"machine_id": "m", "folder": folder});
    operator.call(PID, "project_allow", allow).await.unwrap();
    let elsewhere = SECRET.to_uppercase();
    operator
        .call(&elsewhere, "status", json!({}))
        .await
        .unwrap();
    let keys = operator.call(PID, "key_list", json!({})).await.unwrap();
    let keys = keys["keys"].as_array().unwrap();
    let texis = keys.iter().find(|k| k["identity"] == "Texi").unwrap();
    Named {
        signal: text(&sent, "signal_id"),
        trace: text(&sent, "trace_id"),
        session: session.to_string(),
        delta: text(&delta, "delta_id"),
        memory: text(&memory, "id"),
        recall: text(&recalled, "recall_event_id"),
        input: text(&input, "id"),
        key: text(texis, "key_id"),
        gate: text(&gate["events"][0], "id"),
        run: [text(&run, "signal_id"), text(&run, "loopback_id")],
        probe,
        lease: text(&drained, "lease_id"),
        number: 1,
        project: elsewhere,
        folder,
        key_of_send,
        texi,
    }
}

/// Every body in which a verb can be given something of another tenant's. A verb without an entry is one that
/// nobody has thought about: the test fails.
#[rustfmt::skip]
fn bodies(verb: &Verb, of: &Named) -> Option<Vec<Value>> {
    let n = of.number;
    Some(match verb.path {
        // These take nothing that could be another's: they are asked what there is.
        "status" | "memory_stats" | "memory_metrics" | "training" | "gate_report" | "session_brief" | "heartbeat" | "ping"
        | "key_list" | "retention" | "project_list" | "now" | "agents" | "settings" | "dashboard_link" | "projects"
        | "signals_pending" => vec![json!({})],
        "start" => vec![json!({}), json!({"name": "x"})],
        "checkpoint" | "wrap" => vec![json!({"summary": format!("after {} and {}", of.delta, of.signal), "touched_files": []})],
        "pickup" => vec![json!({"from_session": of.session}), json!({"from_identity": "Donna"})],
        "whois" => vec![json!({"identity": "Donna"})],
        "signal" => vec![
            json!({"to": "Donna", "signal_type": "Answer", "payload": {"summary": "x"}, "in_reply_to": of.signal}),
            json!({"to": "Donna", "signal_type": "TaskAssigned", "payload": {"summary": "y"}, "idempotency_key": of.key_of_send}),
        ],
        "signals_ack" => vec![json!({"signal_ids": [of.signal]})],
        "signal_ack" => vec![json!({"signal_id": of.signal}), json!({"signal_id": of.signal, "state": "acted"})],
        "signal_trace" => vec![json!({"signal_id": of.signal}), json!({"trace_id": of.trace}), json!({"signal_id": &of.signal[..8]})],
        "signal_recall" | "signal_show" => vec![json!({"signal_id": of.signal}), json!({"signal_id": &of.signal[..8]})],
        "recall" => vec![json!({"query": "where was it painted"}), json!({"query": "x", "also": ["zanz"]})],
        "memory_cite" => vec![json!({"recall_event_id": of.recall, "result_id": of.memory})],
        "remember" => vec![
            json!({"kind": "note", "body": "x", "refs": [of.delta, of.memory]}),
            json!({"kind": "fact", "body": "x", "supersedes": of.memory}),
            json!({"kind": "integration_narrative", "operator_sees": "x", "pieces": [of.delta], "would_break_it": "x"}),
        ],
        "note" => vec![json!({"text": format!("see {} and {}", of.delta, of.signal)})],
        "journal" => vec![json!({"body": format!("see {}", of.delta)})],
        "retro" => vec![json!({"went_well": "x", "went_badly": "x", "change": of.delta})],
        "postmortem" => vec![json!({"resolve": n})],
        "decide" => vec![json!({"title": "x", "context": "x", "decision": "x", "supersedes": of.memory})],
        "spec" | "plan" => vec![json!({"action": "get", "number": n}), json!({"action": "update", "number": n, "status": "accepted"}), json!({"action": "list"})],
        "todo" => vec![json!({"action": "done", "number": n}), json!({"action": "update", "number": n, "title": "y"}), json!({"action": "list"})],
        "confirm" => vec![
            json!({"refers_to": format!("delta:{}", of.delta), "verdict": "broken"}),
            json!({"refers_to": format!("signal:{}", of.signal), "verdict": "works"}),
        ],
        "operator_input" => vec![json!({"class": "correction", "prompt_text": "x", "confidence": "high", "reverses_delta": of.delta})],
        "deltas" => vec![json!({}), json!({"id": of.delta})],
        "review" => vec![json!({"ids": [of.input], "action": "accept"}), json!({"ids": [&of.input[..8]], "action": "reject"})],
        "inputs" | "gate_events" => vec![json!({}), json!({"n": 100})],
        "graph" => vec![json!({"id": of.delta}), json!({"id": of.memory}), json!({"id": "spec:1"})],
        "import" => vec![json!({"source": "notes", "lines": [{"line": 1, "row": {"id": of.memory, "kind": "note", "text": "x"}}]})],
        "memory_reembed" => vec![json!({"all": true})],
        "memory_rot" => vec![json!({"surfaces": []})],
        "gate_label" => vec![json!({"event_id": of.gate, "right": true})],
        "signal/loopback-issue" => vec![json!({"session_id": of.session})],
        "signal/loopback-echo" | "signal/loopback-model" => vec![json!({"signal_id": of.signal}), json!({"signal_id": of.probe["signal_id"]})],
        "signal/loopback-finish" => vec![json!({"probe": of.probe})],
        "signal/loopback-runs" => vec![json!({}), json!({"identity": "Texi"})],
        "signals_confirm" => vec![json!({"lease_id": of.lease})],
        "session_register" => vec![json!({"surface": "other", "machine_id": "m", "process_pid": 1})],
        "session_release" => vec![json!({"session_id": of.session})],
        "session_waiting" => vec![json!({})],
        "session_attention" => vec![json!({"attention": "away"})],
        "session_left" => vec![json!({"summary": of.delta})],
        "persona_add" | "key_mint" => vec![json!({"identity": "Donna"})],
        "key_revoke" => vec![json!({"key_id": of.key}), json!({"key_id": &of.key[..8]})],
        "project_allow" | "project_forget" => vec![json!({"machine_id": "m", "folder": of.folder})],
        "project_merge" => vec![json!({"from": of.project})],
        "session_list" | "signal_list" | "memory_list" | "input_list" | "gate_list" | "probe_list" => vec![json!({}), json!({"identity": "Texi"})],
        "recall_list" => vec![json!({}), json!({"session_id": of.session})],
        "inbox" => vec![json!({}), json!({"identity": "Texi"})],
        "inbox_read" => vec![json!({"signal_ids": [of.signal]})],
        "memory_show" => vec![json!({"id": of.memory}), json!({"id": of.delta})],
        "story" => vec![json!({}), json!({"signal_id": of.signal})],
        "metrics" | "delivery" => vec![json!({})],
        "probe_run" => vec![json!({"session_id": of.session, "timeout_ms": 100})],
        "demo" => vec![json!({"remove": true})],
        _ => return None,
    })
}

/// A probe of this shape that nobody has issued.
fn unissued(like: &Value) -> Value {
    let mut probe = like.clone();
    for field in [
        "loopback_id",
        "signal_id",
        "trace_id",
        "requested_by_session",
    ] {
        assert!(probe[field].is_string(), "{field}: {probe}");
        probe[field] = json!(new_id());
    }
    probe
}

/// An answer without what differs from call to call: ids, numbers and times.
fn without_chance(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain([' ']) {
        if c.is_ascii_alphanumeric() || c == '-' {
            word.push(c);
            continue;
        }
        let hex = word.len() >= 8 && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        match hex || word.chars().any(|c| c.is_ascii_digit()) {
            true => out.push('#'),
            false => out.push_str(&word),
        }
        word.clear();
        out.push(c);
    }
    out
}

/// What every row of a tenant comes to, table by table; when a session was seen last is nobody's doing.
fn rows_of(database: &Database, tenant: &str) -> String {
    let tables = database.sql(
        "select table_name from information_schema.columns
         where column_name = 'tenant_id' and table_schema = 'public'
             and table_name <> 'duties' order by 1",
    );
    let hashes: Vec<String> = tables
        .split_whitespace()
        .map(|t| {
            let row = match t {
                "sessions" => "(to_jsonb(t) - array['last_seen_at', 'first_verb_at', 'last_verb_at', 'last_output_at'])::text",
                _ => "t::text",
            };
            format!("select '{t}', count(*), md5(string_agg({row}, '|' order by {row})) from {t} t where tenant_id = '{tenant}'")
        })
        .collect();
    assert!(hashes.len() > 30, "{tables}");
    database.sql(&hashes.join(" union all "))
}

/// The tables that show their rows to whoever asks.
pub fn open_tables(database: &Database) -> Vec<String> {
    let open = database.sql(
        "select c.relname from pg_class c where c.relnamespace = 'public'::regnamespace
             and c.relkind in ('r', 'p', 'm', 'v')
             and not (c.relrowsecurity and (c.relforcerowsecurity or c.relname = 'memory_fts')
                 and (select count(*) = 1 and bool_and(p.polcmd = '*' and p.polpermissive
                         and pg_get_expr(p.polqual, c.oid) = '(tenant_id = ( SELECT this_tenant() AS this_tenant))'
                         and pg_get_expr(p.polwithcheck, c.oid) = '(tenant_id = ( SELECT this_tenant() AS this_tenant))')
                      from pg_policy p where p.polrelid = c.oid))
         order by 1",
    );
    open.split_whitespace().map(str::to_owned).collect()
}

/// Keys and references that count for more than one tenant.
pub fn across_tenants(database: &Database) -> String {
    let across = database.sql(
        "select c.conrelid::regclass || ': ' || pg_get_constraintdef(c.oid) from pg_constraint c
         where c.connamespace = 'public'::regnamespace and c.conrelid::regclass::text <> 'tenants'
             and (c.contype = 'f' and c.confrelid <> 'tenants'::regclass or c.contype in ('p', 'u'))
             and pg_get_constraintdef(c.oid) !~ '\\(tenant_id[,)]'",
    );
    across.trim().to_owned()
}

#[test]
fn no_verb_crosses_from_one_tenant_to_another() {
    let database = Postgres::shared().database();
    let server = serve(&database);
    let (acme, _) = add(&server, &database.url, "acme");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let theirs = live_in(&server, &server.operator()).await;
        let first = database.sql("select id from tenants where name = 'default'");
        let (texi, donna) = (
            mint(&server, &acme, "Texi").await,
            mint(&server, &acme, "Donna").await,
        );
        drop(donna);
        // A lease that stands is confirmed by whoever has it, and by nobody else.
        let confirm = json!({"lease_id": theirs.lease});
        let confirmed = texi.call(PID, "signals_confirm", confirm.clone()).await;
        assert!(!confirmed.is_ok_and(|c| c["confirmed"] != 0), "{confirm}");
        // A socket that names another's session is refused as one that names nobody's; one that confirms another's
        // lease has confirmed nothing.
        let (here, session) = seated(&texi).await;
        let mut told = Vec::new();
        for named in [new_id(), theirs.session.parse().unwrap()] {
            let mut stream = Stream::open(&server, &here, Some(named), None, vec![]).await;
            told.push(stream.closed().await);
        }
        assert_eq!(told[0], told[1]);
        let lease = vec![theirs.lease.parse().unwrap()];
        let mut stream = Stream::open(&server, &here, Some(session), None, lease).await;
        assert!(stream.backlog().await.is_empty());
        drop(stream);
        let over = json!({"session_id": session.to_string()});
        here.call(PID, "session_release", over).await.unwrap();
        let confirmed = theirs.texi.call(PID, "signals_confirm", confirm).await;
        assert_eq!(confirmed.unwrap()["confirmed"], 1);
        // What rides on a later commit is on disk.
        let (operator, trace) = (server.operator(), json!({"signal_id": theirs.signal}));
        operator.call(PID, "signal_trace", trace).await.unwrap();
        let before = rows_of(&database, first.trim());
        let nobodys = Named::nobodys(&texi, &theirs);
        let (mut crossed, mut sent) = (Vec::new(), String::new());
        for verb in VERBS.iter().filter(|v| !v.is(Is::Local)) {
            let said = |of: &Named| {
                let bodies = bodies(verb, of);
                bodies.unwrap_or_else(|| panic!("say what {} can be given", verb.path))
            };
            for (theirs_body, nobodys_body) in said(&theirs).into_iter().zip(said(&nobodys)) {
                let mut answers = Vec::new();
                for body in [nobodys_body.clone(), theirs_body.clone()] {
                    let caller = match verb.who {
                        Who::Operator => acme.clone(),
                        Who::Anyone | Who::Session => seated(&texi).await.0,
                    };
                    let answer = caller.call(PID, verb.path, body).await;
                    // Nobody has many sessions.
                    drop(caller.call(PID, "session_release", json!({})).await);
                    answers.push(match answer {
                        Ok(answer) => answer.to_string(),
                        Err(problem) => format!("{} {}", problem.code, problem.message),
                    });
                }
                let [nobodys_said, theirs_said] = &answers[..] else {
                    unreachable!()
                };
                let what = format!("{} {theirs_body}: {theirs_said}", verb.path);
                // An id that was sent may come back, in what this tenant wrote itself.
                sent.push_str(&theirs_body.to_string());
                let ids = theirs.ids();
                let mut unsaid = ids.iter().filter(|id| !sent.contains(**id));
                if theirs_said.contains(SECRET) || unsaid.any(|id| theirs_said.contains(id)) {
                    crossed.push(what.clone());
                }
                // Where it names something of another's the answer is as if nobody had it.
                if theirs_body != nobodys_body {
                    let here = without_chance(nobodys_said)
                        .replace("NOWHERE", &theirs.project)
                        .replace("/no/where", &theirs.folder);
                    let there = without_chance(theirs_said);
                    if here != there {
                        crossed.push(format!("{what}\n  nobody's: {here}\n  theirs:   {there}"));
                    }
                }
            }
        }
        assert!(crossed.is_empty(), "{}", crossed.join("\n"));
        // A session, a project and a key of the other's are nobody's here.
        let elsewhere = texi
            .clone()
            .with_session(Some(theirs.session.parse().unwrap()));
        let refused = elsewhere.call(PID, "status", json!({})).await.unwrap_err();
        let nowhere = texi.clone().with_session(Some(new_id()));
        assert_eq!(
            refused,
            nowhere.call(PID, "status", json!({})).await.unwrap_err()
        );
        let refused = texi.call(&theirs.project, "status", json!({})).await;
        let refused = refused.unwrap_err();
        assert!(
            !format!("{:?}", refused.hint).contains("ZANZIBAR"),
            "{refused:?}"
        );
        let claimed = server.operator_key().replacen("prk_", "prk_acme__", 1);
        for claimed in [
            &claimed,
            &acme.key().replacen("prk_acme__", "prk_", 1),
            &acme.key().replacen("acme", "zulu", 1),
        ] {
            let refused = client(&server, claimed)
                .call(PID, "status", json!({}))
                .await;
            assert_eq!(refused.unwrap_err().code, "invalid_key", "{claimed}");
        }
        assert_eq!(rows_of(&database, first.trim()), before);
        // All of it was there to be named: whose it is names it, and is heard.
        for (caller, verb, body) in [
            (
                &operator,
                "gate_label",
                json!({"event_id": theirs.gate, "right": true}),
            ),
            (
                &theirs.texi,
                "postmortem",
                json!({"resolve": theirs.number}),
            ),
            (
                &theirs.texi,
                "signal/loopback-model",
                json!({"signal_id": theirs.probe["signal_id"]}),
            ),
            (
                &theirs.texi,
                "signal/loopback-finish",
                json!({"probe": theirs.probe}),
            ),
        ] {
            let heard = caller.call(PID, verb, body).await;
            assert!(heard.is_ok(), "{verb}: {heard:?}");
        }
        let runs = operator.call(PID, "probe_list", json!({})).await.unwrap();
        assert!(runs.to_string().contains(&theirs.run[1]), "{runs}");
        let demo = operator.call(PID, "demo", json!({"remove": true})).await;
        assert_eq!(demo.unwrap()["changed"], true);
    });
}

#[test]
fn every_table_is_behind_a_policy_and_without_a_tenant_there_is_no_row() {
    let database = Postgres::shared().database();
    let server = serve(&database);
    let (acme, acme_id) = add(&server, &database.url, "acme");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(live_in(&server, &server.operator()));
    // What is everybody's: the schema's number and the names of the tenants.
    assert_eq!(open_tables(&database), ["prism_schema", "tenants"]);
    assert_eq!(
        across_tenants(&database),
        "",
        "a key or a reference that goes across tenants"
    );
    let across = database.sql(
        "select indexdef from pg_indexes where schemaname = 'public' and indexdef ~ '^CREATE UNIQUE'
             and indexdef !~ '\\(tenant_id[,)]' and tablename <> 'tenants'",
    );
    assert_eq!(across.trim(), "");
    let member = database.sql(
        "select rolsuper or rolbypassrls or rolcanlogin from pg_roles where rolname = 'prism_member'",
    );
    assert_eq!(member.trim(), "f");
    let tables = database.sql(
        "select relname from pg_class where relnamespace = 'public'::regnamespace and relrowsecurity",
    );
    let tables: Vec<&str> = tables.split_whitespace().collect();
    assert!(tables.len() > 30);
    let as_member =
        |tenant: &str, sql: &str| format!("begin; {tenant}; set local role prism_member; {sql}");
    let of_acme = format!("set local prism.tenant = '{acme_id}'");
    let used_before = "select set_config('prism.tenant', '', false)";
    for table in &tables {
        let rows = format!("select count(tenant_id) from {table}");
        for nobody in ["select 1", used_before] {
            let why = database.refuses(&as_member(nobody, &rows));
            assert!(
                why.contains("prism.tenant") || why.contains("uuid"),
                "{table}: {why}"
            );
            database.refuses(&as_member(nobody, &format!("delete from {table}")));
        }
        let others = format!("select count(tenant_id) from {table} where tenant_id <> '{acme_id}'");
        let seen = database.sql(&as_member(&of_acme, &others));
        assert_eq!(seen.trim().lines().last(), Some("0"), "{table}");
    }
    let first = database.sql("select id from tenants where name = 'default'");
    let insert = format!(
        "insert into projects (id, tenant_id, pid, created_at) values ('x', '{}', 'X', 1)",
        first.trim()
    );
    let why = database.refuses(&as_member(&of_acme, &insert));
    assert!(why.contains("row-level security"), "{why}");
    let why = database.refuses(&as_member(&of_acme, "select held from memory_fts"));
    assert!(why.contains("permission denied"), "{why}");
    let word = "select count(*) from words_held('zanzibar'::tsquery)";
    let of_first = format!("set local prism.tenant = '{}'", first.trim());
    let holding = |tenant: &str| {
        let said = database.sql(&as_member(tenant, word));
        said.trim().lines().last().unwrap().to_owned()
    };
    assert_ne!(holding(&of_first), "0");
    assert_eq!(holding(&of_acme), "0");
    drop(acme);
}

#[test]
fn a_tenant_comes_while_servers_run_lives_beside_the_others_and_goes() {
    let database = Postgres::shared().database();
    let (one, two) = (serve(&database), serve(&database));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let (acme, acme_id) = add(&one, &database.url, "acme");
        let (code, _, again) = cli(&one, &database.url, &["tenant", "add", "acme"]);
        assert_eq!(code, Some(2), "{again}");
        assert!(again.contains("there is a tenant acme already"), "{again}");
        // The same names on both sides, and each hears its own.
        live_in(&one, &one.operator()).await;
        let theirs = mint(&one, &acme, "Texi").await;
        let at_two = Client::new(Locator::Home(two.home()), theirs.key().to_owned()).unwrap();
        let (texi, session) = seated(&at_two).await;
        let mut stream = Stream::open(&two, &texi, Some(session), None, vec![]).await;
        assert!(stream.backlog().await.is_empty());
        let mut pages = [watch(&one, &acme).await, watch(&two, &acme).await];
        let first = one
            .operator()
            .call(PID, "signal", task("Texi", SECRET))
            .await;
        let first = first.unwrap()["signal_id"].as_str().unwrap().to_owned();
        let sent = acme.call(PID, "signal", task("Texi", "go")).await.unwrap();
        // What the others write reaches none of its pages.
        for page in &mut pages {
            let told = told_of(page, &acme).await;
            assert!(!told.contains(&first), "{told}");
        }
        let heard = loop {
            if let ServerFrame::Signal { envelope, .. } = stream.next().await {
                break envelope;
            }
        };
        assert_eq!(heard.signal_id.to_string(), sent["signal_id"]);
        assert_eq!(heard.seq, Some(1), "an inbox has no gap");
        // Its page is its own.
        let linked = acme.call(PID, "dashboard_link", json!({})).await.unwrap();
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy();
        let http = http
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap();
        let entered = http
            .get(linked["url"].as_str().unwrap())
            .send()
            .await
            .unwrap();
        assert_eq!(entered.status(), 303);
        let cookie = entered.headers()["set-cookie"].to_str().unwrap();
        let cookie = cookie.split(';').next().unwrap();
        let shown = http
            .post(format!("{}/api/v1/*/signal_list", one.url()))
            .header("cookie", cookie)
            .header("origin", one.url())
            .json(&json!({}))
            .send()
            .await
            .unwrap();
        let shown = shown.text().await.unwrap();
        assert!(
            shown.contains(sent["signal_id"].as_str().unwrap()),
            "{shown}"
        );
        assert!(!shown.contains(SECRET), "{shown}");

        let (_, listed, _) = cli(&one, &database.url, &["tenant", "list"]);
        assert!(
            listed.contains("default") && listed.contains("acme"),
            "{listed}"
        );
        let (code, _, said) = cli(
            &one,
            &database.url,
            &["tenant", "remove", "default", "--yes"],
        );
        assert!(code == Some(2) && said.contains("began with"), "{said}");
        let (code, _, said) = cli(&one, &database.url, &["tenant", "remove", "acme"]);
        assert!(code == Some(2) && said.contains("--yes"), "{said}");
        let first = database.sql("select id from tenants where name = 'default'");
        let before = rows_of(&database, first.trim());
        let (code, said, err) = cli(&one, &database.url, &["tenant", "remove", "acme", "--yes"]);
        assert_eq!(code, Some(0), "{err}");
        assert!(said.contains("acme is gone"), "{said}");
        assert_eq!(stream.closed().await, "this tenant was removed");
        wait_until("its keys are nobody's", async || {
            let refused = acme.call(PID, "status", json!({})).await;
            refused
                .is_err_and(|p| p.code == "invalid_key")
                .then_some(())
        })
        .await;
        let left = rows_of(&database, &acme_id);
        assert!(left.lines().all(|line| line.contains("|0|")), "{left}");
        assert_eq!(rows_of(&database, first.trim()), before);
        let (code, _, said) = cli(&one, &database.url, &["tenant", "remove", "acme", "--yes"]);
        assert!(code == Some(2) && said.contains("known: default"), "{said}");
        // The name is free again, and nothing of the old one is under it.
        let (acme, _) = add(&two, &database.url, "acme");
        let pending = acme.call(PID, "signal_list", json!({})).await.unwrap();
        assert_eq!(pending["signals"], json!([]));
    });
}

#[test]
fn a_file_has_one_tenant_and_says_so() {
    let server = Server::none();
    for args in [
        &["tenant", "add", "acme"][..],
        &["tenant", "list"],
        &["tenant", "remove", "acme"],
    ] {
        let output = server.cli(None, args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("a file has one tenant"), "{said}");
        assert!(said.contains("migrate-store"), "{said}");
    }
}

/// A user who owns the database and is nothing else, as most people's is.
#[test]
fn a_plain_owner_serves_one_tenant_and_more_with_the_members_role() {
    let postgres = Postgres::shared();
    let database = postgres.database();
    let name = database.url.rsplit_once('/').unwrap().1.to_owned();
    let (plain, passing) = (format!("plain_{name}"), format!("passing_{name}"));
    postgres.sql(&format!(
        "create role {plain} login; create role {passing} login bypassrls;
         alter database {name} owner to {plain}"
    ));
    let as_user = |user: &str| database.url.replacen("prism@", &format!("{user}@"), 1);
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &as_user(&plain))]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(live_in(&server, &server.operator()));
    let doctor = server.cli(None, &["doctor"]);
    let doctor = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(doctor.contains("one tenant is served here"), "{doctor}");
    let (code, _, said) = cli(&server, &as_user(&plain), &["tenant", "add", "acme"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("grant prism_member to USER"), "{said}");
    server.terminate();

    // Whoever passes policies and cannot take on the role that does not is not let begin.
    postgres.sql(&format!("grant {plain} to {passing}"));
    let (code, _, said) = cli(&server, &as_user(&passing), &["serve", "--port", "0"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("BYPASSRLS"), "{said}");

    postgres.sql(&format!(
        "do $$ begin create role prism_member nologin; exception when duplicate_object or unique_violation then null; end $$;
         grant prism_member to {plain}"
    ));
    server.resume_with(&[("PRISM_DATABASE", &as_user(&plain))]);
    let (acme, _) = add(&server, &as_user(&plain), "acme");
    runtime.block_on(async {
        let listed = acme.call(PID, "memory_list", json!({})).await.unwrap();
        assert_eq!(listed["rows"], json!([]));
        live_in(&server, &acme).await;
        let recalled = acme.call(PID, "recall", json!({"query": SECRET})).await;
        assert!(recalled.unwrap().to_string().contains(SECRET));
    });
    server.terminate();
    drop(server);
    // Roles are the cluster's: they would outlive the database.
    let dropping = format!("reassign owned by {plain} to prism; drop owned by {plain}");
    database.sql(&dropping);
    postgres.sql(&format!(
        "alter database {name} owner to prism; drop role {plain}; drop role {passing}"
    ));
}

/// As on databases that somebody else runs: the user may make roles and is no superuser.
#[test]
fn a_user_who_may_make_roles_makes_the_members_role_and_serves_several_tenants() {
    let postgres = Postgres::start();
    let database = postgres.database();
    let name = database.url.rsplit_once('/').unwrap().1.to_owned();
    postgres.sql(&format!(
        "create role maker login createrole; alter database {name} owner to maker"
    ));
    let url = database.url.replacen("prism@", "maker@", 1);
    let mut server = Server::none();
    server.resume_with(&[("PRISM_DATABASE", &url)]);
    let (acme, _) = add(&server, &url, "acme");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        live_in(&server, &acme).await;
        let other = server.operator().call(PID, "memory_list", json!({})).await;
        assert!(!other.unwrap().to_string().contains(SECRET));
    });
}

#[test]
fn the_rows_of_a_database_without_tenants_are_the_first_ones() {
    let database = Postgres::shared().database();
    let (id, p, d, t) = (new_id(), new_id(), new_id(), new_id());
    database.sql(&format!(
        "begin; {} {} create table prism_schema (version bigint not null); insert into prism_schema values (20);
         insert into tenants values ('{id}', 'default', 1);
         insert into projects values ('{p}', '{id}', '{PID}', 1);
         insert into personas values ('{d}', '{id}', '{p}', 'frank', 'frank', 1, 0, 1), ('{t}', '{id}', '{p}', 'Texi', 'texi', 0, 0, 1);
         insert into memory (id, project_id, kind, identity, text, created_at) values ('m', '{p}', 'note', 'Texi', 'x', 1);
         insert into vector_generation values (1, 'old'); commit",
        include_str!("../../../migrations/postgres/0019_begin.sql"),
        include_str!("../../../migrations/postgres/0020_metrics.sql"),
    ));
    let server = serve(&database);
    let (acme, _) = add(&server, &database.url, "acme");
    for table in [
        "memory",
        "memory_counts",
        "personas",
        "retention",
        "vector_generation",
    ] {
        let others = format!("select count(*) filter (where tenant_id = '{id}') > 0 from {table}");
        assert_eq!(database.sql(&others).trim(), "t", "{table}");
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let of = |client: Client| async move {
            let stats = client.call(PID, "memory_stats", json!({})).await;
            stats.unwrap().to_string()
        };
        assert_ne!(of(server.operator()).await, of(acme).await);
    });
    let forced = "select count(*) from pg_class where relforcerowsecurity";
    assert!(database.sql(forced).trim().parse::<i64>().unwrap() > 30);
}

#[test]
fn one_of_several_tenants_moves_into_a_file_and_takes_nothing_of_the_others_along() {
    let database = Postgres::shared().database();
    let mut server = serve(&database);
    let (acme, id) = add(&server, &database.url, "acme");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        live_in(&server, &server.operator()).await;
        let note = json!({"text": "what acme knows"});
        acme.call(PID, "note", note).await.unwrap();
    });
    server.terminate();
    let file = server.folder().join("acme.db");
    let to = format!("sqlite:{}", file.display());
    let moving = ["migrate-store", &database.url, &to];
    let (code, _, said) = cli(&server, &database.url, &moving);
    assert!(code == Some(2) && said.contains("2 tenants"), "{said}");
    let moving = [&moving[..], &["--tenant", "acme"]].concat();
    let (code, _, said) = cli(&server, &database.url, &moving);
    assert_eq!(code, Some(0), "{said}");
    let moved = rusqlite::Connection::open(&file).unwrap();
    let ask = |sql: &str| -> String { moved.query_row(sql, [], |r| r.get(0)).unwrap() };
    assert_eq!(ask("select group_concat(id) from tenants"), id);
    assert_eq!(
        ask("select group_concat(text) from memory"),
        "what acme knows"
    );
    assert_eq!(ask("select group_concat(pid) from projects"), PID);
    drop(moved);

    // And from there into a database of its own, where its keys are as good as ever.
    let fresh = Postgres::shared().database();
    let (code, _, said) = cli(&server, &fresh.url, &["migrate-store", &to, &fresh.url]);
    assert_eq!(code, Some(0), "{said}");
    server.resume_with(&[("PRISM_DATABASE", &fresh.url)]);
    let known = runtime.block_on(acme.call(PID, "memory_list", json!({})));
    let known = known.unwrap();
    assert_eq!(known["rows"].as_array().map(Vec::len), Some(1), "{known}");
    assert!(known.to_string().contains("what acme knows"), "{known}");
}

/// Nobody can say that a key is not known while nobody can look.
#[test]
fn the_key_of_a_tenant_that_cannot_be_looked_up_is_not_refused_as_unknown() {
    let mut postgres = Postgres::start();
    let database = postgres.database();
    let server = serve(&database);
    let key = format!("prk_beta__{}", "0123456789abcdef".repeat(3));
    let beta = client(&server, &key);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let unknown = runtime.block_on(beta.call(PID, "status", json!({})));
    assert_eq!(unknown.unwrap_err().status, 401);
    postgres.stop();
    let away = runtime.block_on(beta.call(PID, "status", json!({})));
    let away = away.unwrap_err();
    assert_ne!(away.status, 401, "{away:?}");
    postgres.start_again();
}
