//! Both engines find the same: one world, imported into a file and into PostgreSQL, and asked the same questions.

use crate::harness::engines::{Postgres, server};
use crate::harness::{PID, Server, wait_until};
use crate::recall_story::give_model;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

const QUESTIONS: usize = 20;
/// Of these, as many must be answered with the same rows in the same order.
const ALIKE: usize = 19;
const FIRST: usize = 10;

fn of_world(file: &str) -> PathBuf {
    let worlds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/operator-language");
    worlds.join("standing").join(file)
}

/// The first rows that answer each question, by their ids in the world's file.
async fn answers(server: &Server, questions: &[String]) -> Vec<Vec<String>> {
    give_model(server);
    let rows = of_world("rows.jsonl");
    let imported = server.ok(None, &["import", rows.to_str().unwrap(), "--json"]);
    let imported: Value = serde_json::from_str(&imported).unwrap();
    let ids = imported["ids"].as_object().unwrap().iter();
    let ids: HashMap<&str, &str> = ids
        .map(|(of_file, id)| (id.as_str().unwrap(), of_file.as_str()))
        .collect();
    let operator = server.operator();
    wait_until("every row has its vectors", async || {
        let stats = operator.call(PID, "memory_stats", json!({})).await.unwrap();
        (stats["embed_pending"] == 0 && stats["vectors"].as_u64() > Some(0)).then_some(())
    })
    .await;
    let mut all = Vec::new();
    for question in questions {
        let asked = json!({"query": question, "k": FIRST});
        let answer = operator.call(PID, "recall", asked).await.unwrap();
        assert_eq!(answer["legs"]["vector"]["state"], "on", "{answer}");
        let found = answer["results"].as_array().unwrap().iter();
        let found = found.map(|r| ids[r["id"].as_str().unwrap()].to_owned());
        all.push(found.collect());
    }
    all
}

#[tokio::test]
async fn a_file_and_postgresql_put_the_same_rows_first() {
    let questions = std::fs::read_to_string(of_world("questions.jsonl")).unwrap();
    let questions = questions.lines().map(|line| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["question"].as_str().unwrap().to_owned()
    });
    let questions: Vec<String> = questions.take(QUESTIONS).collect();
    let database = Postgres::shared().database();
    let here = answers(&Server::start(), &questions).await;
    let there = answers(&server(&database, None), &questions).await;
    assert!(here.iter().all(|found| found.len() == FIRST), "{here:?}");
    let others: Vec<_> = here.iter().zip(&there).filter(|(h, t)| h != t).collect();
    let alike = questions.len() - others.len();
    assert!(alike >= ALIKE, "{alike} of {QUESTIONS}: {others:#?}");
}
