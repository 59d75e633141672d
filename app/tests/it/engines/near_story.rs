//! pgvector's index of meaning: taken up when the extension comes, left alone when it goes.

use super::tenants;
use crate::harness::engines::{Database, Postgres};
use crate::harness::{PID, Server, wait_until};
use crate::recall_story::give_model;
use prism::client::Client;
use serde_json::{Value, json};

const TEXTS: [&str; 8] = [
    "debounced the resize observer in SeatMap.tsx, layout now computed once per animation frame",
    "raised the connection pool of the ledger service to 40 and added a circuit breaker",
    "the courier mail template uses tables again because of old clients",
    "moved the feature flags to a typed registry",
    "the nightly export streams rows instead of holding them all",
    "search suggestions wait for three letters before they ask",
    "the login page keeps what was typed when a session ran out",
    "invoices are numbered by the ledger, not by the shop",
];
const QUESTIONS: [&str; 3] = [
    "why the picture of chairs no longer shakes when the window changes its width",
    "what keeps the bookkeeping alive when too many come at once",
    "letters to customers that looked broken in ancient programs",
];

async fn noted(client: &Client, text: &str) -> String {
    let noted = client
        .call(PID, "note", json!({"text": text}))
        .await
        .unwrap();
    noted["id"].as_str().unwrap().to_owned()
}

async fn embedded(client: &Client) {
    wait_until("every row has its vectors", || async {
        let stats = client.call(PID, "memory_stats", json!({})).await.unwrap();
        (stats["embed_pending"] == 0 && stats["vectors"].as_u64() > Some(0)).then_some(())
    })
    .await;
}

/// The rows that answer by meaning alone, the best first.
async fn answers(client: &Client) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for question in QUESTIONS {
        let asked = json!({"query": question, "k": 5, "legs": ["vector"]});
        let answer = client.call(PID, "recall", asked).await.unwrap();
        assert_eq!(answer["legs"]["vector"]["state"], "on", "{answer}");
        let ids = answer["results"].as_array().unwrap().iter();
        all.push(
            ids.map(|r: &Value| r["id"].as_str().unwrap().to_owned())
                .collect(),
        );
    }
    all
}

fn indexed(database: &Database) -> bool {
    let sql = "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
        where c.relname like 'ix_memory_near_%' and c.relname <> 'ix_memory_near_row' and i.indisvalid";
    database.sql(sql).trim() == "1"
}

/// How often the index was asked, as told by a server that has ended: PostgreSQL counts late for one that goes on.
async fn asked_by_then(database: &Database, server: &mut Server) -> i64 {
    assert_eq!(server.terminate(), Some(0));
    wait_until("every other connection is closed", || async {
        let others = "select count(*) from pg_stat_activity
            where datname = current_database() and pid <> pg_backend_pid()";
        (database.sql(others).trim() == "0").then_some(())
    })
    .await;
    let scans = "select coalesce(sum(idx_scan), 0) from pg_stat_user_indexes
        where indexrelname like 'ix_memory_near_%' and indexrelname <> 'ix_memory_near_row'";
    database.sql(scans).trim().parse().unwrap()
}

/// How many vectors the index's table lacks.
fn lacking(database: &Database) -> String {
    let sql = "select count(*) from memory_vectors v left join memory_near n on n.id = v.id
        where n.id is null";
    database.sql(sql).trim().to_owned()
}

/// Servers with few vectors, which are enough for an index that is looked for at once.
fn with_few(database: &Database) -> [(&'static str, &str); 2] {
    [
        ("PRISM_DATABASE", database.url.as_str()),
        ("PRISM_FAILPOINTS", "near.from_few"),
    ]
}

/// A connection that somebody else has to the database.
async fn other(database: &Database) -> tokio_postgres::Client {
    let connected = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await;
    let (client, connection) = connected.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn rows_are_embedded_while_the_index_is_made_and_copied_while_another_is() {
    let database = Postgres::shared().database();
    let mut server = Server::none();
    server.resume_with(&with_few(&database));
    give_model(&server);
    let (mira, _) = server.session("Mira").await;
    for text in TEXTS {
        noted(&mira, text).await;
    }
    embedded(&mira).await;

    // To make an index ends when whoever looks at the database from before has gone.
    let other = other(&database).await;
    let look = "begin isolation level repeatable read; select 1";
    other.batch_execute(look).await.unwrap();
    database.sql("create extension vector");
    noted(&mira, "the extension has come").await;
    wait_until("the index is being made", || async {
        let sql = "select count(*) from pg_stat_activity
            where query like 'create index concurrently%' and wait_event_type = 'Lock'
                and datname = current_database()";
        (database.sql(sql).trim() == "1").then_some(())
    })
    .await;
    noted(&mira, "a row that came meanwhile").await;
    embedded(&mira).await;
    assert!(!indexed(&database));
    other.batch_execute("commit").await.unwrap();
    wait_until("the index is made", || async {
        indexed(&database).then_some(())
    })
    .await;

    // Another tenant's index is being made somewhere: this one's vectors are copied all the same.
    let making = "select pg_advisory_lock(hashtextextended('prism near', 0))";
    other.batch_execute(making).await.unwrap();
    noted(&mira, "one more").await;
    embedded(&mira).await;
    wait_until("all is copied", || async {
        (lacking(&database) == "0").then_some(())
    })
    .await;

    // What was copied of a tenant that has too few is let go of.
    let (acme, _) = tenants::add(&server, &database.url, "acme");
    let copied = "insert into memory_near_state (tenant_id, model)
        select t.id, s.model from tenants t, memory_near_state s where t.name = 'acme'";
    database.sql(copied);
    let ada = tenants::mint(&server, &acme, "Ada").await;
    let (ada, _) = tenants::seated(&ada).await;
    noted(&ada, "a single row").await;
    wait_until("nothing of it is copied", || async {
        let states = database.sql("select count(*) from memory_near_state");
        (states.trim() == "1").then_some(())
    })
    .await;

    // A tenant goes while an index is being made: its own stays until later, and recall goes on.
    let (_, gone) = tenants::add(&server, &database.url, "gone");
    database.sql(&format!(
        "create index ix_of_gone on memory_near (id) where tenant_id = '{gone}'"
    ));
    other.batch_execute(look).await.unwrap();
    let maker = self::other(&database).await;
    let making = tokio::spawn(async move {
        let make = "create index concurrently ix_made on memory_near (ordinal)";
        maker.batch_execute(make).await
    });
    wait_until("another index is being made", || async {
        let sql = "select count(*) from pg_index where indexrelid = to_regclass('ix_made')";
        (database.sql(sql).trim() == "1").then_some(())
    })
    .await;
    let remove = ["tenant", "remove", "gone", "--yes"];
    let (code, _, err) = tenants::cli(&server, &database.url, &remove);
    assert_eq!(code, Some(0), "{err}");
    let there = "select to_regclass('ix_of_gone')";
    assert_eq!(database.sql(there).trim(), "ix_of_gone");
    assert!(!answers(&mira).await[0].is_empty());
    other.batch_execute("commit").await.unwrap();
    making.await.unwrap().unwrap();
    other
        .batch_execute("select pg_advisory_unlock_all()")
        .await
        .unwrap();
    noted(&mira, "it is tended again").await;
    wait_until("the index of nobody is gone", || async {
        (database.sql(there).trim() == "").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_project_whose_vectors_are_few_among_nearer_ones_of_others_finds_its_own() {
    let database = Postgres::shared().database();
    let mut server = Server::none();
    server.resume_with(&with_few(&database));
    give_model(&server);
    let (mira, _) = server.session("Mira").await;
    for text in TEXTS {
        noted(&mira, text).await;
    }
    embedded(&mira).await;
    let by_scan = answers(&mira).await;
    assert!(by_scan.iter().all(|found| !found.is_empty()), "{by_scan:?}");

    // Another project says each of these things five hundred times.
    server.kill();
    database.sql(
        "select set_config('prism.tenant', (select id from tenants), false);
         insert into projects (id, tenant_id, pid, created_at)
            select '01890000-0000-7000-8000-000000000001', id, 'CROWD', 0 from tenants;
         insert into memory (tenant_id, id, project_id, kind, identity, text, created_at)
            select p.tenant_id, 'crowd' || n, p.id, 'note', 'A', 'x', n
            from projects p, generate_series(1, 500) n where p.pid = 'CROWD';
         insert into memory_vectors (tenant_id, memory_row, ordinal, model, vector)
            select m.tenant_id, m.rowid, row_number() over (partition by m.rowid), v.model, v.vector
            from memory m, memory_vectors v join memory o on o.rowid = v.memory_row
            where m.id like 'crowd%' and o.id not like 'crowd%' and v.ordinal = 0;
         create extension vector",
    );
    server.resume_with(&with_few(&database));
    wait_until("the index is made of all of them", || async {
        (indexed(&database) && lacking(&database) == "0").then_some(())
    })
    .await;
    assert_eq!(answers(&mira).await, by_scan);
    let asked = asked_by_then(&database, &mut server).await;
    assert!(asked >= QUESTIONS.len() as i64, "asked {asked} times");
}

#[tokio::test]
async fn an_extension_that_comes_later_is_taken_up_and_finds_what_the_scan_found() {
    let database = Postgres::shared().database();
    let mut server = Server::none();
    let env = with_few(&database);
    server.resume_with(&env);
    give_model(&server);
    let (mira, _) = server.session("Mira").await;
    for text in TEXTS {
        noted(&mira, text).await;
    }
    embedded(&mira).await;
    let by_scan = answers(&mira).await;
    assert_eq!(database.sql("select to_regclass('memory_near')").trim(), "");

    database.sql("create extension vector");
    noted(&mira, "the extension has come").await;
    wait_until("the index is made", || async {
        indexed(&database).then_some(())
    })
    .await;
    embedded(&mira).await;
    assert_eq!(answers(&mira).await, by_scan);
    wait_until("all is copied", || async {
        (lacking(&database) == "0").then_some(())
    })
    .await;
    assert_eq!(answers(&mira).await, by_scan);

    // What was written a moment ago is found before it was copied.
    let newest = noted(
        &mira,
        "chairs on the plan of the hall shook on every change of width",
    )
    .await;
    embedded(&mira).await;
    assert!(answers(&mira).await[0].contains(&newest));

    // Tables that came while servers ran are kept apart as all others; another tenant finds nothing by them.
    let everybodys = ["prism_schema", "tenants"];
    assert_eq!(tenants::open_tables(&database), everybodys);
    assert_eq!(tenants::across_tenants(&database), "");
    let (acme, _) = tenants::add(&server, &database.url, "acme");
    let asked = json!({"query": QUESTIONS[0], "k": 5});
    let answer = acme.call(PID, "recall", asked).await.unwrap();
    assert_eq!(answer["results"], json!([]));

    // A server that starts on it uses it; without the extension the scan answers as before.
    let before = asked_by_then(&database, &mut server).await;
    assert!(before > 0, "the index was never asked");
    server.resume_with(&env);
    let with_index = answers(&mira).await;
    assert!(with_index[0].contains(&newest));
    assert!(asked_by_then(&database, &mut server).await > before);
    server.resume_with(&env);
    assert_eq!(answers(&mira).await, with_index);
    database.sql("drop extension vector cascade");
    assert_eq!(answers(&mira).await, with_index);
    let ready = server.ok(None, &["ready", "--json"]);
    assert!(ready.contains("exact scan"), "{ready}");
}
