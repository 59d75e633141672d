//! `prism export --training`: the operator's words as examples, with a card that says what they
//! are.

#![expect(
    clippy::disallowed_methods,
    reason = "it writes where the operator points, outside the home"
)]

use super::{Context, print_json};
use crate::ui::{Failure, Outcome, out};
use anyhow::Context as _;
use clap::Args;
use prism_core::api::memory::{Training, TrainingInput};
use prism_core::memory::redact::redact;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
#[command(after_help = "Examples:
  prism export --training --out training/

It writes inputs.jsonl (one captured input a line; rejected ones are anti-examples) and CARD.md.
What looks like a secret is replaced by [redacted]; read the files before you give them away.")]
pub struct Export {
    /// Captured inputs with class, context and verdict
    #[arg(long, required = true)]
    training: bool,
    /// The folder to write to; it is made, and its two files are replaced
    #[arg(long, default_value = "prism-training", value_name = "DIR")]
    out: PathBuf,
}

impl Export {
    pub async fn run(self, context: Context) -> Outcome {
        let (training, _): (Training, _) = context.ask("training", json!({})).await?;
        if training.inputs.is_empty() {
            return Err(Failure::Unable {
                message: "no input was captured in this project".into(),
                hint: Some("`prism_operator_input` and `prism input` capture them".into()),
            });
        }
        let mut redacted = 0;
        let mut clean = |text: &str| {
            let (clean, taken) = redact(text);
            redacted += taken;
            clean
        };
        let mut lines = String::new();
        for input in &training.inputs {
            let input = TrainingInput {
                prompt: clean(&input.prompt),
                context: input.context.as_deref().map(&mut clean),
                about: input.about.as_deref().map(&mut clean),
                ..input.clone()
            };
            lines.push_str(&serde_json::to_string(&input).map_err(anyhow::Error::from)?);
            lines.push('\n');
        }
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot create {}", self.out.display()))?;
        for (name, text) in [
            ("inputs.jsonl", lines),
            ("CARD.md", card(&context, &training.inputs, redacted)),
        ] {
            let path = self.out.join(name);
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if context.json {
            print_json(
                &json!({"folder": self.out, "inputs": training.inputs.len(), "redacted": redacted}),
            );
        } else {
            out(&format!(
                "{} inputs in {}, {redacted} secret(s) taken out",
                training.inputs.len(),
                self.out.display()
            ));
        }
        Ok(())
    }
}

fn card(context: &Context, inputs: &[TrainingInput], redacted: usize) -> String {
    let tally = |of: fn(&TrainingInput) -> &str| {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for input in inputs {
            *counts.entry(of(input)).or_default() += 1;
        }
        counts
            .iter()
            .map(|(what, n)| format!("| {what} | {n} |\n"))
            .collect::<String>()
    };
    let (first, last) = (
        inputs.first().map(|i| i.captured_at.to_string()),
        inputs.last().map(|i| i.captured_at.to_string()),
    );
    format!(
        "# What the operator said, project {}\n\n{} prompts that agents captured because they corrected, confirmed or redirected them, from {} to {}.\n\n\
         - `prompt`: the operator's words. `class`: what the agent took them for. `context`: what the agent was doing. `about`: the work they spoke of.\n\
         - `verdict`: `accepted` or `rejected` when the operator reviewed the capture, else `unreviewed`. `anti_example`: rejected; the class is wrong, learn what not to capture.\n\
         - `confidence`: the agent's own, `high` or `low`. An unreviewed one of low confidence is a guess.\n\
         - {redacted} piece(s) that looked like secrets were replaced by `[redacted]`. That is a rule, not a proof: read the file before you give it away.\n\
         - One operator, one project: it teaches this operator's taste, not people's.\n\n| class | inputs |\n|---|---|\n{}\n| verdict | inputs |\n|---|---|\n{}",
        context.pid(),
        inputs.len(),
        first.unwrap_or_default(),
        last.unwrap_or_default(),
        tally(|i| &i.class),
        tally(|i| &i.verdict)
    )
}
