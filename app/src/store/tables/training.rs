//! What the operator's words teach: every captured input with what became of it.

use super::memory::list;
use super::{Result, Tables, column};
use crate::store::sql;
use prism_core::api::memory::TrainingInput;
use sql::params;
use uuid::Uuid;

impl Tables {
    /// Every captured input with what it spoke of and what became of it, oldest first.
    pub async fn training(&self, project: Uuid) -> Result<Vec<TrainingInput>> {
        self.read_memory(move |c| {
            list(
                c,
                "select i.*, (select d.summary from edges e cross join session_deltas d on d.id = e.dst where e.src = i.id and e.kind = 'LABELS' limit 1) as about
                 from operator_inputs i where i.project_id = ? order by i.captured_at, i.id",
                params![project.to_string()],
                |r| {
                    let review: Option<String> = r.get("operator_review")?;
                    Ok(TrainingInput {
                        id: column::id(r, "id")?,
                        prompt: r.get("prompt_text")?,
                        class: r.get("class")?,
                        context: r.get("triggered_action")?,
                        about: r.get("about")?,
                        confidence: r.get("confidence")?,
                        anti_example: review.as_deref() == Some("rejected"),
                        verdict: review.unwrap_or_else(|| "unreviewed".into()),
                        captured_via: r.get("captured_via")?,
                        captured_at: column::moment(r, "captured_at")?,
                    })
                },
            )
        })
        .await
    }
}
