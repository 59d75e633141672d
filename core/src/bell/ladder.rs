//! Which bells a host has, the best first; one that fails or is not heard gives way to the next.

use super::Strategy;
use crate::presence::Surface;

/// What is known of a host's bells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostHas {
    pub surface: Surface,
    /// Claude Code named its inbox socket.
    pub inbox: bool,
    /// The operator says that Claude Code's channel is switched on; nothing else tells.
    pub channel: bool,
    /// A hook of Claude Code waits beside the session, to wake it.
    pub waiter: bool,
    /// OpenCode's server is known.
    pub opencode: bool,
    /// A hook of this host was heard: they are installed and trusted.
    pub hooks: bool,
}

impl HostHas {
    /// The same host without a bell that has just failed.
    fn without(mut self, failed: &[Strategy]) -> Self {
        self.inbox &= !failed.contains(&Strategy::ClaudeInbox);
        self.waiter &= !failed.contains(&Strategy::ClaudeRewake);
        self.opencode &= !failed.contains(&Strategy::Opencode);
        self
    }
}

/// The rungs of a host, the best first. A pinned bell is the only one.
pub fn ladder(configured: Strategy, host: HostHas) -> Vec<Strategy> {
    if configured != Strategy::Auto {
        return vec![configured];
    }
    let own = match host.surface {
        Surface::ClaudeCode if host.inbox => Some(Strategy::ClaudeInbox),
        Surface::ClaudeCode if host.channel => Some(Strategy::ClaudeChannel),
        Surface::ClaudeCode if host.waiter => Some(Strategy::ClaudeRewake),
        Surface::Codex => Some(Strategy::Codex),
        Surface::Opencode if host.opencode => Some(Strategy::Opencode),
        _ => None,
    };
    let hooks = host.hooks.then_some(Strategy::Hooks);
    own.into_iter()
        .chain(hooks)
        .chain([Strategy::None])
        .collect()
}

/// Whether a hook may wait beside the session: it stands in for the inbox and the channel, and is
/// of no use where there is one of them.
pub fn takes_waiter(configured: Strategy, host: HostHas) -> bool {
    let wanted = match configured {
        Strategy::Auto => !host.inbox && !host.channel,
        pinned => pinned == Strategy::ClaudeRewake,
    };
    wanted && host.surface == Surface::ClaudeCode
}

/// The best rung that was not tried yet; `failed` are those of the tried that did not take the
/// bell, so that what stands in for them counts.
pub fn next_rung(
    configured: Strategy,
    host: HostHas,
    tried: &[Strategy],
    failed: &[Strategy],
) -> Option<Strategy> {
    let rungs = ladder(configured, host.without(failed));
    rungs
        .into_iter()
        .find(|rung| *rung != Strategy::None && !tried.contains(rung))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strategy::{
        Auto, ClaudeChannel, ClaudeInbox, ClaudeRewake, Codex, Hooks, None as Piggyback, Opencode,
    };

    fn host(surface: Surface, has: &str) -> HostHas {
        HostHas {
            surface,
            inbox: has.contains("inbox"),
            channel: has.contains("channel"),
            waiter: has.contains("waiter"),
            opencode: has.contains("server"),
            hooks: has.contains("hooks"),
        }
    }

    #[test]
    fn a_host_is_rung_by_the_best_bell_it_has_and_piggyback_is_the_floor() {
        for (surface, has, rungs) in [
            (
                Surface::ClaudeCode,
                "inbox hooks",
                &[ClaudeInbox, Hooks, Piggyback][..],
            ),
            (Surface::ClaudeCode, "inbox", &[ClaudeInbox, Piggyback]),
            (
                Surface::ClaudeCode,
                "channel hooks",
                &[ClaudeChannel, Hooks, Piggyback],
            ),
            (Surface::ClaudeCode, "channel", &[ClaudeChannel, Piggyback]),
            // Off unless said: a bell that nobody hears would keep the hooks from carrying it.
            (Surface::ClaudeCode, "hooks", &[Hooks, Piggyback]),
            (
                Surface::ClaudeCode,
                "waiter hooks",
                &[ClaudeRewake, Hooks, Piggyback],
            ),
            (
                Surface::ClaudeCode,
                "inbox waiter hooks",
                &[ClaudeInbox, Hooks, Piggyback],
            ),
            (
                Surface::ClaudeCode,
                "channel waiter",
                &[ClaudeChannel, Piggyback],
            ),
            (Surface::Cursor, "waiter", &[Piggyback]),
            (Surface::ClaudeCode, "", &[Piggyback]),
            (Surface::Codex, "", &[Codex, Piggyback]),
            (Surface::Codex, "hooks", &[Codex, Hooks, Piggyback]),
            // Inherited from a shell inside Claude Code: not this host's inbox.
            (Surface::Codex, "inbox", &[Codex, Piggyback]),
            (Surface::Opencode, "server", &[Opencode, Piggyback]),
            (Surface::Opencode, "", &[Piggyback]),
            (Surface::GeminiCli, "hooks", &[Hooks, Piggyback]),
            (Surface::Cursor, "hooks inbox", &[Hooks, Piggyback]),
            (Surface::Other, "", &[Piggyback]),
        ] {
            assert_eq!(ladder(Auto, host(surface, has)), rungs, "{surface}: {has}");
        }
    }

    #[test]
    fn a_hook_waits_beside_a_session_only_where_there_is_no_better_bell() {
        for (configured, surface, has, waits) in [
            (Auto, Surface::ClaudeCode, "", true),
            (Auto, Surface::ClaudeCode, "hooks", true),
            (Auto, Surface::ClaudeCode, "inbox", false),
            (Auto, Surface::ClaudeCode, "channel", false),
            (Auto, Surface::Codex, "", false),
            (ClaudeRewake, Surface::ClaudeCode, "inbox", true),
            (Hooks, Surface::ClaudeCode, "", false),
            (Piggyback, Surface::ClaudeCode, "", false),
        ] {
            let waits_there = takes_waiter(configured, host(surface, has));
            assert_eq!(waits_there, waits, "{configured} {surface}: {has}");
        }
    }

    #[test]
    fn a_pinned_bell_is_the_only_rung_whatever_the_host_has() {
        let has = host(Surface::ClaudeCode, "inbox hooks");
        for pinned in Strategy::ALL.iter().filter(|s| **s != Auto) {
            assert_eq!(ladder(*pinned, has), [*pinned]);
            assert_eq!(next_rung(*pinned, has, &[*pinned], &[*pinned]), None);
        }
    }

    #[test]
    fn the_next_rung_is_one_that_was_not_tried_and_a_failed_inbox_gives_way_to_the_channel() {
        let claude = host(Surface::ClaudeCode, "inbox channel hooks");
        for (tried, failed, next) in [
            (&[][..], &[][..], Some(ClaudeInbox)),
            (&[ClaudeInbox], &[], Some(Hooks)),
            (&[ClaudeInbox], &[ClaudeInbox], Some(ClaudeChannel)),
            (&[ClaudeInbox, ClaudeChannel], &[ClaudeInbox], Some(Hooks)),
            (&[ClaudeInbox, Hooks], &[], None),
        ] {
            assert_eq!(next_rung(Auto, claude, tried, failed), next, "{tried:?}");
        }
        let no_channel = host(Surface::ClaudeCode, "inbox hooks");
        let next = next_rung(Auto, no_channel, &[ClaudeInbox], &[ClaudeInbox]);
        assert_eq!(next, Some(Hooks), "the channel is off");
        let plain = host(Surface::Other, "");
        assert_eq!(
            next_rung(Auto, plain, &[], &[]),
            None,
            "nothing rings there"
        );
    }
}
