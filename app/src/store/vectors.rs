//! Vectors: what is embedded, in which generation, and by what the nearest are found.

use super::{EmbedJob, Result, Store, VectorRow};
use prism_core::Moment;
use uuid::Uuid;

impl Store {
    /// What a look at signs alone keeps of the vectors nearest to some questions.
    pub async fn kept_by_signs(
        &self,
        model: &'static str,
        project: Uuid,
        questions: Vec<Vec<f32>>,
        n: usize,
    ) -> Result<Option<f64>> {
        self.0.kept_by_signs(model, project, questions, n).await
    }

    /// What PostgreSQL's own index finds of the `n` nearest vectors, as a share, and the milliseconds of each
    /// question by it and by looking at all.
    pub async fn kept_by_index(
        &self,
        model: &'static str,
        project: Uuid,
        questions: Vec<Vec<f32>>,
        n: usize,
    ) -> Result<Option<(f64, Vec<f64>, Vec<f64>)>> {
        self.0.kept_by_index(model, project, questions, n).await
    }

    /// Does the next piece of work on PostgreSQL's own index of vectors; whether there was any.
    pub async fn tend_index(&self, model: &'static str, dimensions: usize) -> Result<bool> {
        self.0.tend_index(model, dimensions).await
    }

    /// Whether PostgreSQL is to have an index of a generation's vectors before it answers in place of another.
    pub async fn awaits_index(&self, before: &'static str, model: &'static str) -> Result<bool> {
        self.0.awaits_index(before, model).await
    }

    /// The same, where the index is to be made of so many vectors: for comparing.
    pub async fn make_index(
        &self,
        model: &'static str,
        dimensions: usize,
        from: i64,
    ) -> Result<bool> {
        self.0.make_index(model, dimensions, from).await
    }

    pub async fn warm_vectors(&self, model: &'static str) -> Result<()> {
        self.0.warm_vectors(model).await
    }

    pub async fn embed_wanted(&self) {
        self.0.embed_wanted().await
    }

    pub async fn embed_jobs(&self, n: usize, attempts_max: i64) -> Result<Vec<EmbedJob>> {
        self.0.embed_jobs(n, attempts_max).await
    }

    pub async fn add_vectors(
        &self,
        model: &'static str,
        instead_of: Option<&'static str>,
        done: Vec<(EmbedJob, Vec<VectorRow>)>,
    ) -> Result<()> {
        self.0.add_vectors(model, instead_of, done).await
    }

    /// Stores vectors of another generation beside those that answer; the intents stand.
    pub async fn add_vectors_beside(
        &self,
        model: &'static str,
        done: Vec<(EmbedJob, Vec<VectorRow>)>,
    ) -> Result<()> {
        self.0.add_vectors_beside(model, done).await
    }

    /// The generation that answers, by its id.
    pub async fn generation(&self) -> Result<Option<String>> {
        self.0.generation().await
    }

    /// How many rows of one generation have the vectors of another already, of how many.
    pub async fn switch_progress(
        &self,
        from: &'static str,
        to: &'static str,
    ) -> Result<(u64, u64)> {
        self.0.switch_progress(from, to).await
    }

    /// Rows after a place that have vectors of one generation and none of the other, and how far that
    /// is.
    pub async fn rows_to_switch(
        &self,
        from: &'static str,
        to: &'static str,
        after: i64,
        n: usize,
    ) -> Result<(i64, Vec<EmbedJob>)> {
        self.0.rows_to_switch(from, to, after, n).await
    }

    /// Lets another generation answer, unless a row after this place has vectors of the old one alone.
    pub async fn switch_generation(
        &self,
        from: Option<(&'static str, i64)>,
        to: &'static str,
    ) -> Result<bool> {
        self.0.switch_generation(from, to).await
    }

    /// Removes some vectors of all other generations; answers how many.
    pub async fn remove_vectors_but(&self, stay: Vec<&'static str>, n: usize) -> Result<u64> {
        self.0.remove_vectors_but(stay, n).await
    }

    pub async fn embed_failed(&self, memory_id: String) -> Result<()> {
        self.0.embed_failed(memory_id).await
    }

    pub async fn requeue_foreign(&self, model: &'static str) -> Result<u64> {
        self.0.requeue_foreign(model).await
    }

    pub async fn reembed(
        &self,
        project: Uuid,
        model: &'static str,
        all: bool,
        now: Moment,
    ) -> Result<u64> {
        self.0.reembed(project, model, all, now).await
    }
}
