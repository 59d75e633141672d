//! The embedder: questions at once, and the rows that wait for their vectors.
//!
//! Rows keep their intent in the store until their vectors are on disk, so nothing
//! is lost with a worker, a server or a disk. When other models are installed than
//! made the store's vectors, every row is embedded anew beside them; the old
//! generation answers until the new one is whole.

pub mod child;
pub mod encoder;
pub mod model;
mod turns;
pub mod worker;

use crate::clock;
use crate::home::Home;
use crate::store::{Duty, EmbedJob, Store, VectorRow};
use child::{Fault, Workers};
use prism_core::api::memory::Switching;
use prism_core::limits::EMBED_TAKEN_US;
use prism_core::memory::generation::{Generation, Model};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use turns::Turns;

/// A worker that was not asked for so long ends itself.
pub const WORKER_IDLE: Duration = Duration::from_secs(300);
/// How long a question, with the loading of the models, may take before the worker counts as hung.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long a batch of rows may take: they run niced, on machines that are busy.
const ROWS_PATIENCE: Duration = Duration::from_secs(120);
/// How long a recall waits for its question's vector; then it goes on without.
pub const QUESTION_PATIENCE: Duration = Duration::from_secs(4);
/// How long the embedder keeps away from what failed: a model that cannot be loaded, a disk that is
/// full.
const SETBACK: Duration = Duration::from_secs(5);
/// How often waiting rows, and other models, are looked for without being told.
const LOOK_AROUND: Duration = Duration::from_secs(30);
/// How long rows that wait are gathered where several servers look for them.
const GATHERING: Duration = Duration::from_millis(20);
/// How often it is looked whether PostgreSQL's index of vectors is behind without being told.
const TEND: Duration = Duration::from_secs(20);
/// How often in a row an index that new vectors wait for may fail until they answer without it.
const INDEX_TRIES: u32 = 5;
/// Rows taken from the queue at once, embedded at once and written at once.
const BATCH_ROWS: usize = 16;
/// Vectors of a generation that has gone which are removed at once, and the pause after that in
/// which everybody else writes.
const REMOVED_AT_ONCE: usize = 200;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);
/// A row whose text broke the worker so often is set aside.
const ATTEMPTS_MAX: i64 = 3;
/// What any worker can embed.
const HARMLESS: &str = "a text";
/// Questions whose vectors are kept: agents of one task ask alike.
const REMEMBERED_QUESTIONS: usize = 64;

/// Asks the embedder; cheap to clone.
#[derive(Clone)]
pub struct Embedder(Arc<Shared>);

struct Shared {
    home: Home,
    /// One worker for all tenants, and one row of askers before it.
    workers: Arc<Workers>,
    turns: Turns,
    /// Whose questions these are: people of different tenants may have the same name.
    of: String,
    state: Mutex<State>,
    /// Vectors were stored, which an index may lack.
    added: Notify,
}

#[derive(Default)]
struct State {
    /// The generation that questions are asked in; none before the first row was embedded.
    answering: Option<&'static Generation>,
    switching: Option<Switch>,
    /// Why there are no vectors now; empty when there are.
    trouble: Option<String>,
    not_before: Option<Instant>,
    remembered: VecDeque<Remembered>,
}

/// A generation that is being made beside the one that answers.
struct Switch {
    to: &'static Generation,
    /// Rows that have their vectors, of so many.
    done: u64,
    rows: u64,
    /// How far the walk over all rows has come.
    after: i64,
    /// How often in a row its index could not be made.
    unindexed: u32,
}

struct Remembered {
    generation: &'static str,
    models: Vec<&'static str>,
    text: String,
    vector: Vec<f32>,
}

/// A question as the vectors of a generation can be asked it.
pub struct AskedBy {
    pub generation: &'static Generation,
    /// The models that took part, and why another did not.
    pub models: Vec<String>,
    pub lacks: Option<String>,
    pub vectors: Vec<Vec<f32>>,
}

/// What works through the queue.
pub struct Task(Arc<Shared>);

impl Embedder {
    /// An embedder that knows which generation answers, before anybody asks.
    pub async fn open(home: Home, store: &Store) -> crate::store::Result<(Self, Task)> {
        let workers = Arc::new(Workers::new(home.clone()));
        Self::start(home, workers, Turns::default(), store).await
    }

    /// One for another tenant's rows, by the same worker.
    pub async fn beside(&self, store: &Store) -> crate::store::Result<(Self, Task)> {
        let (home, workers) = (self.0.home.clone(), self.0.workers.clone());
        Self::start(home, workers, self.0.turns.clone(), store).await
    }

    async fn start(
        home: Home,
        workers: Arc<Workers>,
        turns: Turns,
        store: &Store,
    ) -> crate::store::Result<(Self, Task)> {
        let answering = store.generation().await?;
        let state = State {
            answering: answering.as_deref().and_then(Generation::of),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            workers,
            home,
            turns,
            of: store
                .tenant()
                .map(|id| format!("{id} "))
                .unwrap_or_default(),
            state: Mutex::new(state),
            added: Notify::new(),
        });
        Ok((Self(shared.clone()), Task(shared)))
    }

    /// Why the vector leg is off, when it is.
    pub fn off(&self) -> Option<String> {
        match self.0.can_ask() {
            Ok(_) => self.0.state().trouble.clone(),
            Err(reason) => Some(reason),
        }
    }

    /// Why no row is embedded until something changes; a row that broke the worker holds up no other.
    pub fn waits(&self) -> Option<String> {
        self.0.can_ask().err().or_else(|| {
            let state = self.0.state();
            state.not_before.and(state.trouble.clone())
        })
    }

    /// The generation that answers now, or would with the models that are here.
    pub fn generation(&self) -> Option<&'static Generation> {
        let answering = self.0.state().answering;
        answering.or_else(|| model::wanted(&self.0.home).ok())
    }

    /// The store says which generation answers: another server may have switched.
    pub fn answers_in(&self, generation: Option<&str>) {
        self.0.answers_in(generation);
    }

    /// The generation that is being made beside the one that answers.
    pub fn switching(&self) -> Option<Switching> {
        let state = self.0.state();
        let switch = state.switching.as_ref()?;
        let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        Some(Switching {
            from: names(state.answering.map(Generation::names).unwrap_or_default()),
            to: names(switch.to.names()),
            done: switch.done,
            rows: switch.rows,
        })
    }

    /// The vectors of a question's phrasings, or why there are none.
    pub async fn question(&self, asker: &str, texts: Vec<String>) -> Result<AskedBy, String> {
        let (generation, models) = self.0.can_ask()?;
        let models: Vec<&'static str> = models.into_iter().map(Model::name).collect();
        let shared = self.0.clone();
        let asking = async {
            if let Some(known) = shared.known(generation, &models, &texts) {
                return Ok(known);
            }
            let turn = shared.turns.take(&format!("{}{asker}", shared.of)).await;
            let Some(turn) = turn else {
                return Err("too many questions of this asker wait already".into());
            };
            let shared = shared.clone();
            // It goes on when nobody waits any more: whether the worker hangs must be found out.
            let asking = tokio::spawn(async move {
                let asked = shared.ask(generation, models, texts).await;
                drop(turn);
                asked
            });
            let asked = asking.await;
            asked.unwrap_or_else(|_| Err("the embedder has stopped".into()))
        };
        match tokio::time::timeout(QUESTION_PATIENCE, asking).await {
            Ok(asked) => asked,
            Err(_) => Err(format!(
                "the embedder did not answer within {} s",
                QUESTION_PATIENCE.as_secs()
            )),
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answers_in(&self, generation: Option<&str>) {
        let Some(said) = generation.and_then(Generation::of) else {
            return;
        };
        let mut state = self.state();
        if state.answering != Some(said) {
            tracing::info!(
                generation = said.id,
                "The rows' vectors are of this generation"
            );
            state.answering = Some(said);
            state.switching = None;
        }
    }

    /// In which generation a question can be asked, and by which models of it; or why it cannot.
    fn can_ask(&self) -> Result<(&'static Generation, Vec<Model>), String> {
        let wanted = || model::wanted(&self.home).map_err(|e| e.to_string());
        let answering = self.state().answering;
        let generation = match answering {
            Some(generation) => generation,
            None => wanted()?,
        };
        let here = model::installed(&self.home);
        let models: Vec<Model> = generation.models().filter(|m| here.contains(m)).collect();
        if models.is_empty() {
            let next = wanted()?;
            let switching = self.state().switching.is_some();
            let then = match switching {
                true => format!("they are being embedded by {}", next.names().join(" and ")),
                false => "`prism model install` fetches it".to_owned(),
            };
            return Err(format!(
                "the rows were embedded by {}, which is not here; {then}",
                generation.names().join(" and ")
            ));
        }
        Ok((generation, models))
    }

    /// A question that was asked before, by the same models.
    fn known(
        &self,
        generation: &'static Generation,
        models: &[&'static str],
        texts: &[String],
    ) -> Option<AskedBy> {
        let known = texts.iter().map(|t| self.remembered(generation, models, t));
        Some(AskedBy {
            generation,
            models: models.iter().map(|&name| name.to_owned()).collect(),
            lacks: None,
            vectors: known.collect::<Option<_>>()?,
        })
    }

    fn remembered(
        &self,
        generation: &'static Generation,
        models: &[&'static str],
        text: &str,
    ) -> Option<Vec<f32>> {
        let state = self.state();
        let known = state.remembered.iter().find(|known| {
            known.generation == generation.id && known.models == models && known.text == text
        });
        known.map(|known| known.vector.clone())
    }

    async fn ask(
        &self,
        generation: &'static Generation,
        models: Vec<&'static str>,
        texts: Vec<String>,
    ) -> Result<AskedBy, String> {
        let known = |text: &String| self.remembered(generation, &models, text);
        let mut vectors: Vec<Option<Vec<f32>>> = texts.iter().map(known).collect();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let (mut made_by, mut lacks): (Vec<String>, _) = (names(&models), None);
        let unknown: Vec<usize> = (0..texts.len())
            .filter(|at| vectors[*at].is_none())
            .collect();
        let new: Vec<String> = unknown.iter().map(|at| texts[*at].clone()).collect();
        if !new.is_empty() {
            let asked = self
                .workers
                .embed(generation, Some(&models), &new, PATIENCE)
                .await;
            let asked = match asked {
                Ok(asked) => asked,
                Err(fault) => {
                    self.set_back(fault.to_string());
                    return Err(fault.to_string());
                }
            };
            // A full disk is still full when a question was answered.
            let not_before = self.state().not_before;
            if not_before.is_none_or(|at| Instant::now() >= at) {
                self.trouble(None);
            }
            // What one model could not say is asked again when it is back.
            let whole = asked.models == models;
            (made_by, lacks) = (asked.models, asked.lacks);
            let mut state = self.state();
            for ((at, text), vector) in unknown.into_iter().zip(new).zip(asked.vectors) {
                vectors[at] = Some(vector.clone());
                if whole {
                    state.remembered.push_front(Remembered {
                        generation: generation.id,
                        models: models.clone(),
                        text,
                        vector,
                    });
                }
            }
            state.remembered.truncate(REMEMBERED_QUESTIONS);
        }
        Ok(AskedBy {
            generation,
            models: made_by,
            lacks,
            vectors: vectors.into_iter().flatten().collect(),
        })
    }

    fn trouble(&self, reason: Option<String>) {
        let mut state = self.state();
        if state.trouble != reason {
            match &reason {
                Some(reason) => tracing::warn!("No vectors: {reason}"),
                None => tracing::info!("Vectors are back"),
            }
            state.trouble = reason;
        }
    }

    fn set_back(&self, reason: String) {
        self.state().not_before = Some(Instant::now() + SETBACK);
        self.trouble(Some(reason));
    }

    /// Whether nothing that failed is to be kept away from.
    fn ready(&self) -> bool {
        let mut state = self.state();
        if state.not_before.is_some_and(|at| Instant::now() < at) {
            return false;
        }
        state.not_before = None;
        true
    }
}

/// What became of a row.
enum Embedded {
    Vectors(Vec<VectorRow>),
    /// One of its texts broke the worker.
    Broke,
}

impl Task {
    /// Works through the queue and keeps up the index of vectors, until dropped. To make an index takes long, and
    /// rows are embedded meanwhile.
    pub async fn run(self, store: Store) {
        tokio::join!(self.work(&store), self.tend(&store));
    }

    async fn work(&self, store: &Store) {
        let answering = self.0.state().answering;
        if let Some(answering) = answering {
            if let Err(error) = store.requeue_foreign(answering.id).await {
                tracing::warn!(%error, "Could not look for vectors of other models");
            }
            warm(store, answering);
        }
        let mut clean = None;
        loop {
            let worked = match self.0.ready() {
                true => self.step(store, &mut clean).await,
                false => false,
            };
            if worked {
                continue;
            }
            let set_back = self.0.state().not_before.is_some();
            tokio::select! {
                () = store.embed_wanted() => {
                    // Rows that come one after the other are looked for once, where that is a way to the database.
                    if store.is_shared() {
                        tokio::time::sleep(GATHERING).await;
                    }
                }
                () = tokio::time::sleep(if set_back { SETBACK } else { LOOK_AROUND }) => {}
            }
        }
    }

    /// One piece of work; whether there was any.
    async fn step(&self, store: &Store, clean: &mut Option<&'static str>) -> bool {
        if store.is_shared() {
            match store.generation().await {
                Ok(said) => self.0.answers_in(said.as_deref()),
                Err(error) => {
                    self.0.set_back(error.to_string());
                    return false;
                }
            }
        }
        let Ok(wanted) = model::wanted(&self.0.home) else {
            return false;
        };
        let answering = self.0.state().answering;
        let Some(answering) = answering else {
            return self.first(store, wanted).await;
        };
        let is_clean = *clean == Some(answering.id);
        // A model that is not here may be at another server: what several share never goes back to fewer, or two of them
        // would embed it anew by turns.
        let switches =
            answering != wanted && (!store.is_shared() || wanted.is_better_than(answering));
        let has_duty = (switches || !is_clean) && has_duty(store).await;
        // One of several servers embeds anew, by its models; the others go on as before.
        let next = (switches && has_duty).then_some(wanted);
        let (next, clearing) = match self.note_switch(store, answering, next).await {
            // It begins when what is in its way has gone; meanwhile rows are embedded as before.
            Ok(true) => (None, true),
            Ok(false) => (next, false),
            Err(error) => {
                self.0.set_back(error.to_string());
                return false;
            }
        };
        let here = model::installed(&self.0.home);
        let can_be_made = answering.models().all(|model| here.contains(&model));
        if clearing && !can_be_made {
            return true;
        }
        if store.is_shared() && !can_be_made && next.is_none() {
            // Whoever took rows that it cannot embed would keep them from a server that can.
            self.0.set_back("a model that rows are embedded by is not installed here: they wait for a server that has it".into());
            return false;
        }
        let jobs = store.embed_jobs(BATCH_ROWS, ATTEMPTS_MAX).await;
        let jobs = jobs.inspect_err(|error| tracing::warn!(%error, "The queue cannot be read"));
        let jobs = jobs.unwrap_or_default();
        if !jobs.is_empty() {
            self.embed_new(store, answering, next, jobs).await;
            return true;
        }
        if clearing {
            return true;
        }
        if let Some(next) = next {
            let done = self.embed_anew(store, answering, next).await;
            if done {
                *clean = None;
            }
            return done;
        }
        if !is_clean && has_duty {
            match store
                .remove_vectors_but(vec![answering.id], REMOVED_AT_ONCE)
                .await
            {
                Ok(0) => *clean = Some(answering.id),
                Ok(_) => tokio::time::sleep(REMOVAL_PAUSE).await,
                Err(error) => self.0.set_back(error.to_string()),
            }
            return clean.is_none() && self.0.ready();
        }
        false
    }

    /// Keeps PostgreSQL's index of vectors up with those that are there, also of the generation that is being made.
    async fn tend(&self, store: &Store) {
        if !store.is_shared() {
            return;
        }
        loop {
            let generations = {
                let state = self.0.state();
                let next = state.switching.as_ref().map(|switch| switch.to);
                [state.answering, next]
            };
            let mut worked = false;
            for generation in generations.into_iter().flatten() {
                let tended = store.tend_index(generation.id, generation.dimensions());
                let tended = tended
                    .await
                    .inspect_err(|error| tracing::warn!(%error, "The index of vectors waits"));
                if let Some(switch) = &mut self.0.state().switching
                    && switch.to == generation
                {
                    switch.unindexed = match &tended {
                        Ok(true) => 0,
                        Ok(false) => switch.unindexed,
                        Err(_) => switch.unindexed + 1,
                    };
                }
                worked |= tended.unwrap_or_default();
            }
            if worked {
                continue;
            }
            tokio::select! {
                () = self.0.added.notified() => {}
                () = tokio::time::sleep(TEND) => {}
            }
        }
    }

    /// A store without vectors begins with what is installed.
    async fn first(&self, store: &Store, wanted: &'static Generation) -> bool {
        let begun = async {
            let begun = store.switch_generation(None, wanted.id).await?;
            if begun {
                store.requeue_foreign(wanted.id).await?;
            }
            Ok::<_, crate::store::StoreError>(begun)
        };
        match begun.await {
            Ok(begun) => {
                // Else another server has begun with other models, which the next step sees.
                if begun {
                    self.0.state().answering = Some(wanted);
                }
                begun
            }
            Err(error) => {
                self.0.set_back(error.to_string());
                false
            }
        }
    }

    /// Begins, goes on with or gives up a switch, as the models that are here ask for; whether
    /// something that is in its way is still being removed.
    async fn note_switch(
        &self,
        store: &Store,
        answering: &'static Generation,
        next: Option<&'static Generation>,
    ) -> crate::store::Result<bool> {
        let known = self.0.state().switching.as_ref().map(|switch| switch.to);
        if known == next {
            return Ok(false);
        }
        let Some(next) = next else {
            tracing::info!("The models of the rows' vectors are back");
            // Rows that were written or changed meanwhile have vectors of the other generation alone.
            store.requeue_foreign(answering.id).await?;
            self.0.state().switching = None;
            return Ok(false);
        };
        // What a switch that was given up has left would be in the way of this one.
        let stay = vec![answering.id, next.id];
        if store.remove_vectors_but(stay, REMOVED_AT_ONCE).await? > 0 {
            tokio::time::sleep(REMOVAL_PAUSE).await;
            return Ok(true);
        }
        let (done, rows) = store.switch_progress(answering.id, next.id).await?;
        tracing::info!(
            from = answering.id,
            to = next.id,
            rows,
            done,
            "Rows are embedded anew; the old vectors answer until all have new ones"
        );
        self.0.state().switching = Some(Switch {
            to: next,
            done,
            rows,
            after: 0,
            unindexed: 0,
        });
        Ok(false)
    }

    /// Embeds rows that were written or changed, in the generation that answers and in the next.
    async fn embed_new(
        &self,
        store: &Store,
        answering: &'static Generation,
        next: Option<&'static Generation>,
        jobs: Vec<EmbedJob>,
    ) {
        let here = model::installed(&self.0.home);
        let can_be_made = answering.models().all(|model| here.contains(&model));
        let ends = match next {
            Some(next) if !can_be_made => next,
            _ => answering,
        };
        let mut jobs = jobs;
        if let Some(next) = next.filter(|next| *next != ends) {
            let Some(done) = self.embed(store, next, jobs).await else {
                return;
            };
            jobs = done.iter().map(|(job, _)| job.clone()).collect();
            if jobs.is_empty() || !self.kept(store.add_vectors_beside(next.id, done).await) {
                return;
            }
        }
        let Some(done) = self.embed(store, ends, jobs).await else {
            return;
        };
        if !done.is_empty() {
            // What a row said before it changed must not answer again when its model comes back.
            let gone = (ends != answering).then_some(answering.id);
            self.kept(store.add_vectors(ends.id, gone, done).await);
        }
    }

    /// Embeds some rows of the old generation in the next, and switches when there are none left;
    /// whether anything was done.
    async fn embed_anew(
        &self,
        store: &Store,
        from: &'static Generation,
        to: &'static Generation,
    ) -> bool {
        if crate::config::failpoint("embed.switch_waits") {
            return false;
        }
        let after = self.0.state().switching.as_ref().map_or(0, |s| s.after);
        let rows = store
            .rows_to_switch(from.id, to.id, after, BATCH_ROWS)
            .await;
        let (reached, jobs) = match rows {
            Ok(rows) => rows,
            Err(error) => {
                self.0.set_back(error.to_string());
                return false;
            }
        };
        if jobs.is_empty() {
            return self.switch(store, from, to).await;
        }
        let Some(done) = self.embed(store, to, jobs).await else {
            return false;
        };
        let count = done.len() as u64;
        if !self.kept(store.add_vectors_beside(to.id, done).await) {
            return false;
        }
        let mut state = self.0.state();
        if let Some(switch) = &mut state.switching {
            let tenth = |done: u64| done * 10 / switch.rows.max(1);
            let before = tenth(switch.done);
            switch.after = reached;
            switch.done += count;
            if tenth(switch.done) > before {
                tracing::info!(done = switch.done, rows = switch.rows, "Rows embedded anew");
            }
        }
        true
    }

    /// The one moment at which the next generation begins to answer.
    async fn switch(
        &self,
        store: &Store,
        from: &'static Generation,
        to: &'static Generation,
    ) -> bool {
        let switched = async {
            // As the one before it, it has its index first; meanwhile the one before answers. One that cannot be made is
            // not waited for: the scan answers without it.
            let unindexed = self.0.state().switching.as_ref().map_or(0, |s| s.unindexed);
            if store.awaits_index(from.id, to.id).await? {
                if unindexed < INDEX_TRIES {
                    return Ok(None);
                }
                tracing::error!(
                    to = to.id,
                    "The index of new vectors cannot be made: they are read into memory, and answer without it"
                );
            }
            store.warm_vectors(to.id).await?;
            let after = self.0.state().switching.as_ref().map_or(0, |s| s.after);
            let switched = store.switch_generation(Some((from.id, after)), to.id);
            switched.await.map(Some)
        };
        match switched.await {
            Ok(None) => false,
            Ok(Some(true)) => {
                let mut state = self.0.state();
                state.answering = Some(to);
                state.switching = None;
                tracing::info!(from = from.id, to = to.id, "Every row is embedded anew");
                true
            }
            // A row was embedded meanwhile that the walk did not see: it walks again.
            Ok(Some(false)) => {
                if let Some(switch) = &mut self.0.state().switching {
                    switch.after = 0;
                }
                true
            }
            Err(error) => {
                self.0.set_back(error.to_string());
                false
            }
        }
    }

    /// Whether vectors were stored. The intents stand, so nothing is lost but the work.
    fn kept(&self, stored: crate::store::Result<()>) -> bool {
        match stored {
            Ok(()) => {
                self.0.trouble(None);
                self.0.added.notify_one();
                true
            }
            Err(error) => {
                self.0.set_back(error.to_string());
                false
            }
        }
    }

    /// The vectors of some rows; those whose texts break the worker are left out, and that is noted.
    /// None when no text is to blame.
    async fn embed(
        &self,
        store: &Store,
        generation: &'static Generation,
        jobs: Vec<EmbedJob>,
    ) -> Option<Vec<(EmbedJob, Vec<VectorRow>)>> {
        let workers = &self.0.workers;
        let texts: Vec<String> = jobs
            .iter()
            .flat_map(|job| job.texts.iter().map(|(_, text)| text.clone()))
            .collect();
        let together = workers.embed(generation, None, &texts, ROWS_PATIENCE).await;
        let mut together = match together {
            Ok(made) => Some(made.vectors.into_iter()),
            Err(Fault::NoModel(reason)) => {
                self.0.set_back(reason);
                // Another server may have the models.
                let rows = jobs.into_iter().map(|job| job.memory_id).collect();
                if let Err(error) = store.give_back_jobs(rows).await {
                    tracing::warn!(%error, "Rows wait until they may be taken again");
                }
                return None;
            }
            // Text by text, so that only the row of the one that breaks it is set aside.
            Err(_) => None,
        };
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            let embedded = match &mut together {
                Some(vectors) => {
                    let ordinals = job.texts.iter().map(|(ordinal, _)| *ordinal);
                    let rows = ordinals.zip(vectors);
                    let rows = rows.map(|(ordinal, vector)| VectorRow { ordinal, vector });
                    Embedded::Vectors(rows.collect())
                }
                None => self.embed_alone(generation, &job).await?,
            };
            match embedded {
                Embedded::Vectors(rows) => done.push((job, rows)),
                Embedded::Broke => {
                    if let Err(error) = store.embed_failed(job.memory_id).await {
                        tracing::warn!(%error, "Could not note a failed row");
                    }
                }
            }
        }
        Some(done)
    }

    async fn embed_alone(
        &self,
        generation: &'static Generation,
        job: &EmbedJob,
    ) -> Option<Embedded> {
        let mut rows = Vec::with_capacity(job.texts.len());
        for (ordinal, text) in &job.texts {
            let text = std::slice::from_ref(text);
            match self.0.workers.embed(generation, None, text, PATIENCE).await {
                Ok(mut made) => rows.extend(made.vectors.pop().map(|vector| VectorRow {
                    ordinal: *ordinal,
                    vector,
                })),
                Err(Fault::NoModel(reason)) => {
                    self.0.set_back(reason);
                    return None;
                }
                Err(fault) => {
                    // It is to blame only if another text comes through: a worker that keeps dying
                    // says nothing about any row.
                    let harmless = [HARMLESS.to_owned()];
                    let workers = &self.0.workers;
                    let other = workers.embed(generation, None, &harmless, PATIENCE).await;
                    if other.is_err() {
                        self.0.set_back(fault.to_string());
                        return None;
                    }
                    self.0.trouble(Some(fault.to_string()));
                    return Some(Embedded::Broke);
                }
            }
        }
        Some(Embedded::Vectors(rows))
    }
}

/// Whether this server is the one that embeds anew and clears up.
async fn has_duty(store: &Store) -> bool {
    let now = clock::now();
    let until = now.plus_us(EMBED_TAKEN_US);
    let has_it = store.has_duty(Duty::Generation, now, until).await;
    has_it.unwrap_or(false)
}

fn warm(store: &Store, generation: &'static Generation) {
    let store = store.clone();
    tokio::spawn(async move {
        if let Err(error) = store.warm_vectors(generation.id).await {
            tracing::warn!(%error, "Could not read the vectors");
        }
    });
}
