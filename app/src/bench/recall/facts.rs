//! What the legs bring for each question, gathered once; then ranking is arithmetic.

use super::super::Server;
use super::{Corpus, K, Question, load, locomo, operator, server};
use crate::embed::Embedder;
use crate::home::Home;
use crate::store::Store;
use crate::store::memory::Filter;
use crate::ui::Progress;
use crate::verb::recall::{Asking, Chosen};
use anyhow::{Context, Result};
use prism_core::memory::question::Question as Asked;
use prism_core::memory::recall::{self, Candidates, SPARE, Standing, Told, Weights};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One question with all that a ranking needs, in the ids of its file.
pub struct Facts {
    /// The world or conversation.
    pub of: String,
    pub question: Question,
    pub asked: Asked,
    pub found: Candidates,
    pub standing: Arc<HashMap<String, Standing>>,
}

impl Facts {
    /// The signs of every row, the operator's word included.
    pub fn told(&self, weights: &Weights) -> Vec<Told> {
        let mut told = recall::tell(&self.asked, &self.found, weights);
        for (row, told) in self.found.rows.iter().zip(&mut told) {
            if let Some(standing) = self.standing.get(&row.id) {
                told.signs = told.signs.with_standing(standing, &self.asked);
            }
        }
        told
    }

    /// Which of the rows answer.
    pub fn answers(&self) -> Vec<bool> {
        let answers = |id: &str| self.question.gold.contains(id);
        self.found.rows.iter().map(|r| answers(&r.id)).collect()
    }

    /// What a recall would answer with these weights, and how sure it would be.
    pub fn answer(&self, weights: &Weights) -> (Vec<String>, f64) {
        let ranking = recall::rank(&self.asked, &self.found, weights);
        let best = ranking.rows.into_iter().take(K + SPARE).collect();
        let ranked = recall::with_standing(best, &self.standing, weights, &self.asked);
        let shown = recall::shown(&ranked, ranking.confidence, K);
        let ids = ranked.into_iter().take(shown).map(|r| r.id).collect();
        (ids, ranking.confidence)
    }
}

/// A corpus whose rows and vectors lie in a home.
pub struct Loaded {
    /// Stopped; its home goes with it unless it is kept.
    pub server: Server,
    /// Who asks.
    pub operator: &'static str,
    pub corpus: Corpus,
    /// The file's id of each row.
    pub ours: HashMap<String, String>,
}

/// Embeds every world and every conversation that has no vectors yet.
pub async fn load_all(home: &Home, file: &Path, keep: Option<&PathBuf>) -> Result<Vec<Loaded>> {
    let worlds = operator::corpora()?;
    let talks = locomo::corpora(file)?;
    let talks = talks.into_iter().map(|corpus| ("operator", corpus));
    let mut all = Vec::new();
    for (operator, corpus) in worlds.into_iter().chain(talks) {
        let of_talk = operator == "operator";
        let folder = if of_talk { "locomo" } else { &corpus.pid };
        let mut server = server(home, operator, keep.map(|within| within.join(folder)))?;
        let ours = load(&server.operator()?, &corpus).await?;
        server.stop();
        all.push(Loaded {
            server,
            operator,
            corpus,
            ours,
        });
    }
    Ok(all)
}

/// Lets the legs look for every question of a corpus.
pub async fn gather(loaded: &Loaded) -> Result<Vec<Facts>> {
    let Loaded {
        server,
        operator,
        corpus,
        ours,
    } = loaded;
    let home = &server.home;
    let store = Store::open_embedded(&home.path("prism.db"))?;
    let loaded = store.load().await?;
    let project = loaded
        .projects
        .iter()
        .find(|p| p.pid.as_str() == corpus.pid);
    let project = project.context("the project is gone")?.id;
    let names: Vec<String> = loaded
        .personas
        .iter()
        .filter(|p| p.project_id == project)
        .map(|p| p.identity.to_string())
        .collect();
    let (embedder, task) = Embedder::open(home.clone(), &store).await?;
    let running = tokio::spawn(task.run(store.clone()));
    let asking = Asking {
        store: &store,
        embedder: &embedder,
        project,
        names: &names,
        operator,
        asker: operator,
    };
    let ids: Vec<String> = ours.keys().cloned().collect();
    let theirs = |id: &str| ours.get(id).cloned().unwrap_or_else(|| id.to_owned());
    let rows = store.rows(project, ids).await?;
    let standing: Arc<HashMap<String, Standing>> = rows
        .into_iter()
        .map(|row| {
            let mut standing = row.standing;
            standing.superseded_by = standing.superseded_by.map(|by| theirs(&by));
            (theirs(&row.id.to_string()), standing)
        })
        .collect::<HashMap<_, _>>()
        .into();
    let mut bar = Progress::new(&format!("{}: facts", corpus.pid), corpus.questions.len());
    let mut facts = Vec::new();
    for question in &corpus.questions {
        let looked = asking
            .look(
                &question.text,
                &question.also,
                Filter::default(),
                &Chosen(&[]),
            )
            .await
            .map_err(|problem| anyhow::anyhow!(problem.message))?;
        let mut found = looked.found.candidates;
        for row in &mut found.rows {
            row.id = theirs(&row.id);
        }
        facts.push(Facts {
            of: corpus.pid.clone(),
            question: question.clone(),
            asked: looked.question,
            standing: standing.clone(),
            found,
        });
        bar.at(facts.len());
    }
    bar.done();
    running.abort();
    store.close().await;
    Ok(facts)
}
