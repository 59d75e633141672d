//! Who of a session waits for the human: its agent, or one that its agent started. Each of them
//! goes on by itself.

use super::{Event, Waiting, What};

/// Agents of one session that are remembered as waiting.
const WAITERS_MAX: usize = 32;

/// What the agents of a session wait for, the first one first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    waiting: Vec<(Waiter, Waiting)>,
}

/// None is the session's own agent.
type Waiter = Option<String>;

impl Waits {
    /// Notes what an event says of it; returns what the session waits for now.
    ///
    /// No host tells of a permission when it is given: the tool that it was for, once it is done,
    /// or the next step of the same agent does.
    pub fn heard(&mut self, event: &Event) -> Option<Waiting> {
        let who: Waiter = event
            .subagent
            .then(|| event.agent.clone().unwrap_or_default());
        match &event.what {
            What::Waits { r#for } => {
                // A notification does not say whose it is, and comes after what does.
                let again = event.name == "Notification" && !self.waiting.is_empty();
                if !again {
                    self.goes_on(&who);
                    self.waiting.push((who, *r#for));
                    let over = self.waiting.len().saturating_sub(WAITERS_MAX);
                    self.waiting.drain(..over);
                }
            }
            What::SessionStart { .. } | What::SessionEnd { .. } | What::Prompt { .. }
                if who.is_none() =>
            {
                self.waiting.clear();
            }
            // The human broke it off, and with it whatever it had under way.
            What::GoesOn if who.is_none() && event.name == "Interrupt" => self.waiting.clear(),
            What::SessionStart { .. } | What::SessionEnd { .. } | What::Prompt { .. } => {}
            What::ToolDone | What::GoesOn | What::TurnEnd { .. } => self.goes_on(&who),
            What::Heard => {}
        }
        self.waiting.first().map(|(_, r#for)| *r#for)
    }

    fn goes_on(&mut self, who: &Waiter) {
        self.waiting.retain(|(waiter, _)| waiter != who);
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;
    use serde_json::json;

    /// What a session waits for after each of these events: name, subagent, more.
    fn after(events: &[(&str, &str, &str)]) -> Option<Waiting> {
        let mut waits = Waits::default();
        let mut last = None;
        for (name, agent, more) in events {
            let json = json!({"hook_event_name": name, "agent_id": agent, "prompt": "x",
                "notification_type": more, "tool_name": more});
            let event = parse(None, json.to_string().as_bytes());
            last = waits.heard(&event.unwrap_or_else(|| panic!("{name}")));
        }
        last
    }

    const ASKS: (&str, &str, &str) = ("PermissionRequest", "", "Bash");
    const HELPER_ASKS: (&str, &str, &str) = ("PermissionRequest", "a1", "Bash");
    const PERMISSION: Option<Waiting> = Some(Waiting::Permission);

    #[test]
    fn whatever_tells_that_the_agent_goes_on_ends_its_wait() {
        for name in [
            "PostToolUse",
            "PostToolUseFailure",
            "PreToolUse",
            "PermissionDenied",
            "ElicitationResult",
            "Interrupt",
            "StopFailure",
            "Stop",
            "UserPromptSubmit",
            "SessionStart",
            "SessionEnd",
        ] {
            assert_eq!(after(&[ASKS, (name, "", "Bash")]), None, "{name}");
        }
        for name in ["PreCompact", "SubagentStart", "SubagentStop"] {
            assert_eq!(after(&[ASKS, (name, "", "Bash")]), PERMISSION, "{name}");
        }
        let asks = ("PreToolUse", "", "AskUserQuestion");
        assert_eq!(after(&[asks]), Some(Waiting::Question));
        let answered = ("PostToolUse", "", "AskUserQuestion");
        assert_eq!(after(&[asks, answered]), None);
    }

    #[test]
    fn a_subagents_steps_end_its_own_wait_and_nobody_elses() {
        for name in ["PostToolUse", "PreToolUse", "SubagentStop", "Stop"] {
            let step = |agent| (name, agent, "Bash");
            assert_eq!(after(&[ASKS, step("a1")]), PERMISSION, "{name}");
            assert_eq!(after(&[HELPER_ASKS, step("a2")]), PERMISSION, "{name}");
            assert_eq!(after(&[HELPER_ASKS, step("")]), PERMISSION, "{name}");
            assert_eq!(after(&[HELPER_ASKS, step("a1")]), None, "{name}");
        }
        for name in ["UserPromptSubmit", "Interrupt", "SessionEnd"] {
            assert_eq!(after(&[HELPER_ASKS, (name, "", "")]), None, "{name}");
        }
    }

    #[test]
    fn a_notification_about_a_known_wait_is_not_a_second_one() {
        let told = ("Notification", "", "permission_prompt");
        assert_eq!(after(&[told]), PERMISSION);
        let granted = ("PostToolUse", "a1", "Bash");
        assert_eq!(after(&[HELPER_ASKS, told, granted]), None);
    }

    #[test]
    fn waiters_that_never_tell_are_forgotten() {
        let mut waits = Waits::default();
        for n in 0..2 * WAITERS_MAX {
            let json = json!({"hook_event_name": "PermissionRequest", "agent_id": format!("a{n}")});
            waits.heard(&parse(None, json.to_string().as_bytes()).unwrap());
        }
        assert_eq!(waits.waiting.len(), WAITERS_MAX);
    }
}
