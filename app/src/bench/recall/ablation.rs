//! `prism bench recall --ablation`: which of a row's vectors, and which model, earn their keep.
//!
//! On the tune half and LoCoMo. A role is left out by taking its vectors out of a copy of the home;
//! a model alone embeds every row anew.

use super::super::Server;
use super::asked_for;
use super::facts::{Facts, Loaded, gather, load_all};
use super::fit::{Judged, Ranked};
use crate::embed::model;
use crate::home::{Home, ShortLived};
use crate::ui::{out_anyway, table};
use anyhow::Result;
use prism_core::memory::generation::Model;
use prism_core::memory::recall::Weights;
use prism_core::memory::vector::Role;
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// Which vectors are left out, as people read it.
const WAYS: [(&str, &[Role]); 6] = [
    ("all vectors, both models", &[]),
    ("without sentences", &[Role::Sentence]),
    ("without the joined one", &[Role::Joined]),
    ("without the one in context", &[Role::Context]),
    (
        "fields and the joined one",
        &[Role::Sentence, Role::Context],
    ),
    (
        "fields alone",
        &[Role::Sentence, Role::Joined, Role::Context],
    ),
];

pub async fn run(home: &Home, file: &Path, keep: Option<PathBuf>) -> Result<()> {
    let mut rows = vec![Judged::header()];
    let counts = |name: &str, n: f64| {
        let mut cells = vec![name.to_owned()];
        cells.push(format!("{n:.2}"));
        cells
    };
    let mut a_row = vec![vec![String::new(), "vectors a row".to_owned()]];
    let all = tune_half(load_all(home, file, keep.as_ref()).await?);
    for (name, roles) in WAYS {
        let mut facts = Vec::new();
        let (mut vectors, mut of_rows) = (0, 0);
        for loaded in &all {
            let copy = without(loaded, roles)?;
            let (some, of) = counted(&copy, &loaded.corpus.pid)?;
            (vectors, of_rows) = (vectors + some, of_rows + of);
            let copied = Loaded {
                server: copy,
                operator: loaded.operator,
                corpus: loaded.corpus.clone(),
                ours: loaded.ours.clone(),
            };
            facts.extend(gather(&copied).await?);
        }
        rows.push(judged(home, facts)?.cells(name));
        a_row.push(counts(name, vectors as f64 / f64::from(of_rows.max(1))));
    }
    for alone in Model::ALL {
        let dir = std::env::temp_dir().join(format!("prism-bench-{}", crate::clock::new_id()));
        let one = ShortLived::make(dir.clone())?;
        let with_one = Home::at(&dir);
        with_one.create_folder("models")?;
        let models = model::folder(home);
        let (from, to) = (model::within(&models, alone), with_one.path("models"));
        let name = from.file_name().unwrap_or_default();
        std::os::unix::fs::symlink(std::fs::canonicalize(&from)?, to.join(name))?;
        let kept = keep.as_ref().map(|within| within.join(alone.name()));
        let mut facts = Vec::new();
        for loaded in tune_half(load_all(&with_one, file, kept.as_ref()).await?) {
            facts.extend(gather(&loaded).await?);
        }
        let name = format!("{} alone", alone.name());
        rows.push(judged(&with_one, facts)?.cells(&name));
        drop(one);
    }
    out_anyway(&table(&rows));
    out_anyway(&table(&a_row));
    Ok(())
}

/// The same without the questions of the held half, and without worlds that have no others.
fn tune_half(mut all: Vec<Loaded>) -> Vec<Loaded> {
    for loaded in &mut all {
        loaded.corpus.questions.retain(|q| q.split != "held");
    }
    all.retain(|loaded| !loaded.corpus.questions.is_empty());
    all
}

fn judged(home: &Home, mut facts: Vec<Facts>) -> Result<Judged> {
    asked_for::leave_out(home, &mut facts)?;
    let weights = Weights::default();
    let ranked: Vec<Ranked> = facts.iter().map(|f| (f, f.answer(&weights).0)).collect();
    Ok(Judged::of(&ranked))
}

/// A copy of a home in which no row has vectors of these roles.
fn without(loaded: &Loaded, roles: &[Role]) -> Result<Server> {
    let copy = Server::of_operator(loaded.operator, None)?;
    let from = Connection::open(loaded.server.home.path("prism.db"))?;
    let to = copy.home.path("prism.db");
    from.execute("vacuum into ?", [to.to_string_lossy()])?;
    let models = std::fs::canonicalize(loaded.server.home.path("models"))?;
    std::os::unix::fs::symlink(models, copy.home.path("models"))?;
    let store = Connection::open(to)?;
    for role in roles {
        let (first, beyond) = (
            role.ordinal(0),
            role.ordinal(0) + Role::ordinal(Role::Sentence, 0),
        );
        let sql = "delete from memory_vectors where ordinal >= ? and ordinal < ?";
        store.execute(sql, [first, beyond])?;
    }
    Ok(copy)
}

/// How many vectors a project has, and how many rows have one.
fn counted(server: &Server, pid: &str) -> Result<(u32, u32)> {
    let store = Connection::open(server.home.path("prism.db"))?;
    let sql = "select count(*), count(distinct v.memory_row) from memory_vectors v
        join memory m on m.rowid = v.memory_row join projects p on p.id = m.project_id where p.pid = ?";
    Ok(store.query_row(sql, [pid], |r| Ok((r.get(0)?, r.get(1)?)))?)
}
