//! What is left of a session whose agent did not wrap: what the host showed of it, said to be that.

use crate::memory::redact::redact;
use crate::text;

/// Marks a row that no agent wrote.
pub const LEFT_BY_HOST: &str = "left_by_host";
/// Characters of the last prompt in it.
const PROMPT_CHARS_MAX: usize = 200;

/// What the hooks of one session have seen since its agent last wrote something down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The operator's own prompts.
    pub prompts: u64,
    pub tools: u64,
    /// The newest of the operator's prompts.
    pub last_prompt: Option<String>,
}

impl Seen {
    pub fn prompt(&mut self, text: &str) {
        self.prompts += 1;
        self.last_prompt = Some(text.to_owned());
    }

    /// Whether there is anything to tell of.
    pub fn is_nothing(&self) -> bool {
        self.prompts + self.tools == 0
    }

    /// The summary of a checkpoint that nobody wrote.
    pub fn summary(&self, reason: &str) -> String {
        let reason = text::clip(&text::one_line(reason), 40);
        let reason = match reason.as_str() {
            "" => String::new(),
            reason => format!(" ({reason})"),
        };
        let count = |n: u64, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{n} {what}s"),
        };
        let mut said = format!(
            "The host ended the session{reason} and its agent had not wrapped. Prism left this, not \
             the agent: {} and {} were seen since the agent last wrote something down.",
            count(self.prompts, "prompt"),
            count(self.tools, "tool call")
        );
        if let Some(prompt) = &self.last_prompt {
            let (clean, _) = redact(&text::one_line(prompt));
            let clean = text::clip(&clean, PROMPT_CHARS_MAX);
            said.push_str(&format!(" The operator last asked: \"{clean}\""));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_says_who_left_it_and_keeps_no_secret() {
        let mut seen = Seen::default();
        assert!(seen.is_nothing());
        seen.prompt("log in with\npassword is hunter22 and go");
        seen.tools = 1;
        assert!(!seen.is_nothing());
        let said = seen.summary("prompt_input_exit\u{1b}[31m");
        assert!(said.starts_with("The host ended the session (prompt_input_exit) and its agent"));
        assert!(said.contains("not the agent: 1 prompt and 1 tool call were"));
        assert!(
            said.ends_with("asked: \"log in with [redacted] and go\""),
            "{said}"
        );
        seen.prompt(&"x".repeat(900));
        assert!(seen.summary("").chars().count() < 500);
    }
}
