//! `prism review`: what agents captured of the operator's words, one key a row.

use super::{Context, print_json};
use crate::clock;
use crate::ui::{Failure, Outcome, Style, ago, out, short};
use clap::Args;
use prism_core::api::memory::{InputView, InputsAnswer, Reviewed};
use prism_core::text::one_line;
use serde_json::json;
use std::io::{IsTerminal, Write};

#[derive(Args)]
#[command(after_help = "Examples:
  prism review                      one key per row: a accept, r reject, s skip, u undo, q quit
  prism review 2901d7ce 8b148959 --accept
  prism review --list")]
pub struct Review {
    /// The inputs to review; none: go through them one by one
    ids: Vec<String>,
    /// They are what the operator meant
    #[arg(long, group = "what")]
    accept: bool,
    /// They are not; they stay as examples of what not to capture
    #[arg(long, group = "what")]
    reject: bool,
    /// Take an earlier review back
    #[arg(long, group = "what")]
    undo: bool,
    /// Only list what waits for review
    #[arg(long)]
    list: bool,
}

impl Review {
    pub async fn run(self, context: Context) -> Outcome {
        let action = if self.accept {
            "accept"
        } else if self.reject {
            "reject"
        } else if self.undo {
            "undo"
        } else {
            ""
        };
        if !self.ids.is_empty() {
            if action.is_empty() {
                return Err(Failure::Unable {
                    message: "what shall become of them?".into(),
                    hint: Some("add --accept, --reject or --undo".into()),
                });
            }
            let (reviewed, answer): (Reviewed, _) = context
                .ask("review", json!({"ids": self.ids, "action": action}))
                .await?;
            if context.json {
                print_json(&answer)
            } else {
                out(&format!("{} reviewed", reviewed.reviewed.len()))
            }
            return Ok(());
        }
        let (waiting, answer): (InputsAnswer, _) = context
            .ask("inputs", json!({"review": "unreviewed"}))
            .await?;
        if context.json {
            print_json(&answer);
            return Ok(());
        }
        if waiting.inputs.is_empty() {
            out("nothing waits for review");
            return Ok(());
        }
        if self.list || !std::io::stdin().is_terminal() {
            for input in &waiting.inputs {
                out(&input_line(input, context.style));
            }
            return Ok(());
        }
        interactively(&context, &waiting.inputs).await
    }
}

fn input_line(input: &InputView, style: Style) -> String {
    let doing = input
        .triggered_action
        .as_deref()
        .map(|a| style.dim(&format!("\n          while {}", one_line(a))))
        .unwrap_or_default();
    let confidence = if input.confidence == "low" {
        style.paint("33", " low")
    } else {
        String::new()
    };
    format!(
        "{} {}{confidence}  “{}”  {}{doing}",
        short(input.id),
        style.bold(&input.class),
        one_line(&input.prompt_text),
        style.dim(&format!(
            "by {} {}",
            input.captured_via,
            ago(input.captured_at, clock::now())
        ))
    )
}

/// One key per row; `u` takes the last one back.
async fn interactively(context: &Context, inputs: &[InputView]) -> Outcome {
    let keys = Keys::raw()?;
    let (mut at, mut done): (usize, Vec<(usize, bool)>) = (0, Vec::new());
    while at < inputs.len() {
        let input = &inputs[at];
        out(&format!(
            "{}/{}  {}\r",
            at + 1,
            inputs.len(),
            input_line(input, context.style).replace('\n', "\r\n")
        ));
        drop(
            write!(
                std::io::stdout(),
                "  [a]ccept [r]eject [s]kip [u]ndo [q]uit "
            )
            .and_then(|()| std::io::stdout().flush()),
        );
        let key = keys.next()?;
        out("\r");
        match key {
            b'a' | b'r' => {
                let action = if key == b'a' { "accept" } else { "reject" };
                context
                    .call("review", json!({"ids": [input.id], "action": action}))
                    .await?;
                done.push((at, true));
                at += 1;
            }
            b's' | b' ' => {
                done.push((at, false));
                at += 1;
            }
            b'u' => {
                if let Some((previous, reviewed)) = done.pop() {
                    if reviewed {
                        context
                            .call(
                                "review",
                                json!({"ids": [inputs[previous].id], "action": "undo"}),
                            )
                            .await?;
                    }
                    at = previous;
                }
            }
            b'q' | 3 | 4 => break,
            _ => {}
        }
    }
    drop(keys);
    out(&format!(
        "{} reviewed",
        done.iter().filter(|(_, reviewed)| *reviewed).count()
    ));
    Ok(())
}

/// The terminal without line editing, given back when dropped.
struct Keys {
    before: rustix::termios::Termios,
}

impl Keys {
    fn raw() -> Result<Self, Failure> {
        let stdin = std::io::stdin();
        let before = rustix::termios::tcgetattr(&stdin)
            .map_err(|e| anyhow::anyhow!("this terminal cannot be read key by key: {e}"))?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Now, &raw)
            .map_err(|e| anyhow::anyhow!("this terminal cannot be read key by key: {e}"))?;
        Ok(Self { before })
    }

    fn next(&self) -> Result<u8, Failure> {
        let mut byte = [0u8];
        let n = std::io::Read::read(&mut std::io::stdin(), &mut byte)
            .map_err(|e| anyhow::anyhow!("cannot read a key: {e}"))?;
        Ok(if n == 0 { b'q' } else { byte[0] })
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = rustix::termios::tcsetattr(
            std::io::stdin(),
            rustix::termios::OptionalActions::Now,
            &self.before,
        );
    }
}
