//! Who is there: the state of a session, and what it means for a sender.

mod attention;

pub use attention::{Attention, Clients, HostProcess, assumed, attention};

use crate::limits::STALE_US;
use crate::moment::Moment;
use crate::signal::names;

names! {
    /// The hosts that Prism knows by name.
    Surface {
        ClaudeCode = "claude_code",
        Codex = "codex",
        Cursor = "cursor",
        Vscode = "vscode",
        ClaudeDesktop = "claude_desktop",
        GeminiCli = "gemini_cli",
        Opencode = "opencode",
        Other = "other",
    }
}

names! {
    SessionState { Idle = "idle", Live = "live", Stale = "stale", Released = "released" }
}

names! {
    RecipientState {
        Live = "live",
        Stale = "stale",
        Offline = "offline",
        NeverStarted = "never_started",
        Operator = "operator",
    }
}

/// What is known of one session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionFacts {
    pub released: bool,
    pub connected: bool,
    pub had_verb: bool,
    pub last_seen: Moment,
}

impl SessionFacts {
    pub fn state(self, now: Moment) -> SessionState {
        if self.released {
            SessionState::Released
        } else if !self.connected && now.since_us(self.last_seen) >= STALE_US {
            SessionState::Stale
        } else if self.had_verb {
            SessionState::Live
        } else {
            SessionState::Idle
        }
    }
}

/// Says what a sender can expect of a recipient with these sessions.
pub fn recipient_state(is_operator: bool, sessions: &[SessionState]) -> RecipientState {
    let any = |wanted: &[SessionState]| sessions.iter().any(|s| wanted.contains(s));
    if is_operator {
        RecipientState::Operator
    } else if any(&[SessionState::Live, SessionState::Idle]) {
        RecipientState::Live
    } else if any(&[SessionState::Stale]) {
        RecipientState::Stale
    } else if sessions.is_empty() {
        RecipientState::NeverStarted
    } else {
        RecipientState::Offline
    }
}

impl Surface {
    /// Guesses the host from the name its MCP client gave.
    pub fn of_client(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let table = [
            ("claude-code", Self::ClaudeCode),
            ("claude code", Self::ClaudeCode),
            ("codex", Self::Codex),
            ("cursor", Self::Cursor),
            ("visual studio code", Self::Vscode),
            ("vscode", Self::Vscode),
            ("claude-ai", Self::ClaudeDesktop),
            ("claude desktop", Self::ClaudeDesktop),
            ("gemini", Self::GeminiCli),
            ("opencode", Self::Opencode),
        ];
        table
            .iter()
            .find(|(part, _)| name.contains(part))
            .map_or(Self::Other, |(_, surface)| *surface)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_idle_until_its_first_verb_and_stale_after_90_seconds_of_silence() {
        let seen = Moment(0);
        let facts = SessionFacts {
            last_seen: seen,
            ..Default::default()
        };
        assert_eq!(facts.state(seen.plus_s(1)), SessionState::Idle);
        let facts = SessionFacts {
            had_verb: true,
            ..facts
        };
        assert_eq!(facts.state(seen.plus_s(89)), SessionState::Live);
        assert_eq!(facts.state(seen.plus_s(90)), SessionState::Stale);
        assert_eq!(
            SessionFacts {
                connected: true,
                ..facts
            }
            .state(seen.plus_s(900)),
            SessionState::Live
        );
        assert_eq!(
            SessionFacts {
                released: true,
                connected: true,
                ..facts
            }
            .state(seen),
            SessionState::Released
        );
    }

    #[test]
    fn a_recipient_is_as_reachable_as_its_best_session() {
        use SessionState as S;
        for (operator, sessions, state) in [
            (false, vec![], RecipientState::NeverStarted),
            (false, vec![S::Released], RecipientState::Offline),
            (false, vec![S::Released, S::Stale], RecipientState::Stale),
            (false, vec![S::Stale, S::Idle], RecipientState::Live),
            (true, vec![], RecipientState::Operator),
        ] {
            assert_eq!(recipient_state(operator, &sessions), state);
        }
    }

    #[test]
    fn hosts_are_recognised_by_the_name_of_their_client() {
        for (name, surface) in [
            ("claude-code", Surface::ClaudeCode),
            ("codex-mcp-client", Surface::Codex),
            ("cursor-vscode", Surface::Cursor),
            ("inspector", Surface::Other),
        ] {
            assert_eq!(Surface::of_client(name), surface);
        }
    }
}
