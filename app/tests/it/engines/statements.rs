//! Statements that go to PostgreSQL together: in their order, and all of them or none.

use crate::harness::engines::Postgres;
use prism::store::sql::{Connection, Server, params};

fn count(c: &Connection) -> i64 {
    let sql = "select count(*) from t";
    c.query_row(sql, [], |row| row.get(0)).unwrap()
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
