//! Statements at PostgreSQL: those that go together, in their order and all of them or none; those that lost against
//! another; and how the graph is searched.

use crate::harness::engines::{Database, Postgres};
use crate::harness::{self, PID, wait_until};
use prism::store::sql::{Connection, Server, params};
use serde_json::json;

fn serving(database: &Database) -> harness::Server {
    let mut server = harness::Server::none();
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    server
}

fn count(c: &Connection) -> i64 {
    let sql = "select count(*) from t";
    c.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// It costs more than it saves where every question is a search.
#[test]
fn plans_are_not_compiled_on_any_connection() {
    let database = Postgres::shared().database();
    let there = Server::parse(&database.url).unwrap();
    let link = there.connect_apart().unwrap();
    assert_eq!(link.said("show jit").unwrap().as_deref(), Some("off"));
}

#[test]
fn what_is_put_runs_before_what_follows_and_one_that_fails_takes_all_back() {
    let database = Postgres::shared().database();
    let server = Server::parse(&database.url).unwrap();
    let link = server.connect().unwrap();
    link.stays_owner(true);
    let c = Connection::Postgres(link);
    c.execute_batch("create table t (x bigint primary key)")
        .unwrap();
    let put = |x: i64| c.put("insert into t (x) values (?)", params![x]).unwrap();

    c.begin_writing().unwrap();
    put(1);
    assert_eq!(count(&c), 1, "the next statement sees it");
    put(2);
    c.commit().unwrap();
    assert_eq!(count(&c), 2, "a commit waits for it");

    c.begin_writing().unwrap();
    put(3);
    put(1);
    let failed = c.flush().unwrap_err().to_string();
    assert!(failed.contains("23505"), "{failed}");
    c.rollback().unwrap();
    assert_eq!(count(&c), 2);

    // What goes with the commit fails it, and what failed before it is not forgotten.
    for noted in [false, true] {
        let commit = || match noted {
            true => c.commit_noted().map(drop),
            false => c.commit(),
        };
        c.begin_writing().unwrap();
        put(3);
        put(1);
        let failed = commit().unwrap_err().to_string();
        assert!(failed.contains("23505"), "{failed}");
        c.begin_writing().unwrap();
        put(3);
        assert!(c.run("insert into t values (1)").is_err());
        let failed = commit().unwrap_err().to_string();
        assert!(failed.contains("nothing was stored"), "{failed}");
        assert!(c.is_autocommit());
        assert_eq!(count(&c), 2);
    }
    c.begin_writing().unwrap();
    c.run("savepoint job").unwrap();
    assert!(c.run("insert into t values (1)").is_err());
    c.back_to("job").unwrap();
    c.commit().unwrap();

    // What is asked ahead goes with the next question, and is answered once to who asks the same.
    c.begin_writing().unwrap();
    let above = |than: i64| {
        let sql = "select count(*) from t where x > ?";
        c.query_row(sql, [than], |row| row.get::<_, i64>(0))
            .unwrap()
    };
    c.ahead("select count(*) from t", []).unwrap();
    assert_eq!(above(1), 1);
    put(3);
    assert_eq!([above(1), count(&c), count(&c)], [2, 2, 3]);
    c.ahead("select count(*) from t", []).unwrap();
    assert_eq!(count(&c), 3, "it need not wait for another");
    c.rollback().unwrap();
    c.begin_reading().unwrap();
    c.ahead("select count(*) from t", []).unwrap();
    c.leave().unwrap();
    assert!(c.is_autocommit());
    assert_eq!(count(&c), 2);

    // More than go at once, and a list of what triggers noted: none here.
    c.begin_writing().unwrap();
    (10..100).for_each(put);
    assert_eq!(c.commit_noted().unwrap(), "");
    assert_eq!(count(&c), 92);

    // What was never asked for anything leaves nothing open.
    c.begin_writing().unwrap();
    c.commit().unwrap();
    c.begin_reading().unwrap();
    c.rollback().unwrap();
    assert!(c.is_autocommit());
    let idle = "select count(*) from pg_stat_activity
        where datname = current_database() and state like 'idle in transaction%'";
    assert_eq!(database.sql(idle).trim(), "0");
}

#[tokio::test]
async fn a_write_that_lost_a_deadlock_or_a_race_is_done_again() {
    let database = Postgres::shared().database();
    let server = serving(&database);
    // A number of a sequence stays taken when its transaction is rolled back.
    database.sql(
        "create sequence tries;
         create function loses() returns trigger language plpgsql security definer as $$
             declare try bigint := nextval('tries'); begin
                 if try = 1 then raise exception 'deadlock detected' using errcode = '40P01'; end if;
                 if try = 2 then raise exception 'could not serialize' using errcode = '40001'; end if;
                 return new;
             end $$;
         create trigger loses before insert on memory for each row execute function loses()",
    );
    let operator = server.operator();
    let noted = operator
        .call(PID, "note", json!({"text": "twice lost"}))
        .await;
    noted.unwrap();
    let rows = database.sql("select count(*), (select last_value from tries) from memory");
    assert_eq!(rows.trim(), "1|3");
}

#[tokio::test]
async fn the_graph_is_searched_by_its_indexes_however_many_edges_there_are() {
    let database = Postgres::shared().database();
    let mut server = serving(&database);
    let operator = server.operator();
    let mut ids = Vec::new();
    for n in 0..3 {
        let text = format!("number {n} of SPEC-060 lives in src/shim/mcp.rs");
        let noted = operator.call(PID, "note", json!({"text": text})).await;
        ids.push(noted.unwrap()["id"].as_str().unwrap().to_owned());
    }
    let confirm = json!({"refers_to": format!("delta:{}", ids[0]), "verdict": "works"});
    operator.call(PID, "confirm", confirm).await.unwrap();
    // Few things named by many rows: what a plan made of averages gets wrong.
    database.sql(
        "set session_replication_role = replica;
         insert into edges (tenant_id, src, kind, dst, project_id, created_at)
             select e.tenant_id, 'row-' || n, e.kind, 'entity:' || n % 7, e.project_id, 0
             from generate_series(1, 20000) n, (select * from edges where kind = 'MENTIONS' limit 1) e;
         analyze",
    );
    let scans = async || {
        // Counted when its connection has ended.
        wait_until("every other connection is closed", async || {
            let others = "select count(*) from pg_stat_activity
                where datname = current_database() and pid <> pg_backend_pid()";
            (database.sql(others).trim() == "0").then_some(())
        })
        .await;
        database.sql("select seq_scan from pg_stat_user_tables where relname = 'edges'")
    };
    server.terminate();
    let before = scans().await;
    server.resume_with(&[("PRISM_DATABASE", &database.url)]);
    let operator = server.operator();
    for question in ["what did we confirm about SPEC-060", "src/shim/mcp.rs"] {
        let found = operator
            .call(PID, "recall", json!({"query": question}))
            .await;
        assert!(!found.unwrap()["results"].as_array().unwrap().is_empty());
    }
    let shown = operator.call(PID, "graph", json!({"id": ids[0]})).await;
    assert!(shown.unwrap().to_string().contains("CONFIRMS"));
    server.terminate();
    assert_eq!(scans().await, before);
}
