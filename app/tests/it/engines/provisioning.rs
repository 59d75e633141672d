//! The engines themselves: what the other tests here stand on.

use crate::harness::engines::{Postgres, Redis};
use std::net::TcpStream;

#[test]
fn every_test_has_a_database_of_its_own_with_vectors_in_it() {
    let server = Postgres::given().unwrap_or_else(Postgres::shared);
    let (one, other) = (server.database(), server.database());
    one.sql(
        "create extension vector; create table t (v vector(2)); insert into t values ('[1,2]')",
    );
    assert_eq!(one.sql("select v <-> '[1,3]' from t").trim(), "1");
    assert_eq!(other.sql("select to_regclass('t') is null").trim(), "t");
}

#[test]
fn a_postgres_of_ones_own_is_stopped_and_keeps_its_rows() {
    let mut server = Postgres::start();
    let database = server.database();
    database.sql("create table t as select 7 as n");
    server.stop();
    server.start_again();
    assert_eq!(database.sql("select n from t").trim(), "7");
}

#[test]
fn a_redis_of_ones_own_is_stopped_and_comes_back_on_its_port() {
    let mut redis = Redis::start();
    let place = redis.url.strip_prefix("redis://").unwrap().to_owned();
    assert!(TcpStream::connect(&place).is_ok());
    redis.stop();
    assert!(TcpStream::connect(&place).is_err());
    redis.start_again();
    assert!(TcpStream::connect(&place).is_ok());
    assert!(TcpStream::connect(Redis::shared().url.strip_prefix("redis://").unwrap()).is_ok());
}
