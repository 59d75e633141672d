//! Which session a hook speaks for: told by the host's own session id, else by the process that
//! runs both, never by a guess.

use super::{Event, Host};
use crate::presence::Surface;

/// What is known of one shim that runs here.
#[derive(Clone, Copy, Debug)]
pub struct Shim<'a> {
    /// The host's session or thread, where it is known.
    pub host_session: Option<&'a str>,
    /// The process that started the shim.
    pub host_pid: Option<u32>,
    pub cwd: Option<&'a str>,
    pub surface: Surface,
}

/// What is known of one call of a hook.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    pub event: &'a Event,
    /// The processes above the hook, nearest first.
    pub ancestors: &'a [u32],
    /// The folder that the host calls its project, where it says so.
    pub project: Option<&'a str>,
}

/// The one shim that a hook belongs to; none when there is no such, or when two could be meant.
pub fn shim_of(shims: &[Shim<'_>], caller: &Caller<'_>) -> Option<usize> {
    let of_this_host: Vec<usize> = (0..shims.len())
        .filter(|i| is_of(shims[*i].surface, caller.event))
        .collect();
    let session = caller.event.session.as_deref();
    let told = of_this_host
        .iter()
        .filter(|i| session.is_some() && shims[**i].host_session == session);
    let told: Vec<usize> = told.copied().collect();
    match told[..] {
        [one] => return Some(one),
        [] => {}
        _ => return only(nearest(shims, &told, caller)),
    }
    let open: Vec<usize> = of_this_host
        .into_iter()
        .filter(|i| may_change(caller.event.host) || shims[*i].host_session.is_none())
        .collect();
    let near = nearest(shims, &open, caller);
    let here: Vec<usize> = near
        .iter()
        .copied()
        .filter(|i| stands_in(shims[*i].cwd, caller))
        .collect();
    only(here)
}

/// Whether a shim of that surface may be this host's; what was only guessed excludes nothing.
fn is_of(surface: Surface, event: &Event) -> bool {
    !event.named || surface == Surface::Other || surface == event.host.surface()
}

/// Hosts that run one session a process, and give it a new id when its context is emptied. A
/// server of many threads has one process for all: whoever is tied there stays tied.
const fn may_change(host: Host) -> bool {
    !matches!(host, Host::Codex | Host::Opencode)
}

/// Of these, the ones whose host stands nearest above the hook. Hosts run inside hosts.
fn nearest(shims: &[Shim<'_>], among: &[usize], caller: &Caller<'_>) -> Vec<usize> {
    let distance = |i: usize| {
        let host = shims[i].host_pid?;
        caller.ancestors.iter().position(|pid| *pid == host)
    };
    let least = among.iter().filter_map(|i| distance(*i)).min();
    among
        .iter()
        .copied()
        .filter(|i| least.is_some() && distance(*i) == least)
        .collect()
}

/// Whether the shim stands in the folder of the event, or above it: agents walk downwards.
fn stands_in(cwd: Option<&str>, caller: &Caller<'_>) -> bool {
    let Some(cwd) = cwd.map(|c| c.trim_end_matches('/')) else {
        return false;
    };
    let places = [caller.event.cwd.as_deref(), caller.project];
    places.into_iter().flatten().any(|place| {
        place
            .strip_prefix(cwd)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

fn only(found: Vec<usize>) -> Option<usize> {
    match found[..] {
        [one] => Some(one),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(host: Host, session: &str, cwd: &str) -> Event {
        let json = json!({"hook_event_name": "Stop", "session_id": session, "cwd": cwd});
        super::super::parse(Some(host), json.to_string().as_bytes()).unwrap()
    }

    fn shim(
        surface: Surface,
        session: Option<&'static str>,
        pid: u32,
        cwd: &'static str,
    ) -> Shim<'static> {
        Shim {
            host_session: session,
            host_pid: Some(pid),
            cwd: Some(cwd),
            surface,
        }
    }

    fn found(shims: &[Shim<'_>], event: &Event, ancestors: &[u32]) -> Option<usize> {
        let caller = Caller {
            event,
            ancestors,
            project: None,
        };
        shim_of(shims, &caller)
    }

    #[test]
    fn two_identities_in_one_folder_are_told_apart_by_session_or_process() {
        let shims = [
            shim(Surface::ClaudeCode, Some("a"), 10, "/repo"),
            shim(Surface::ClaudeCode, Some("b"), 20, "/repo"),
        ];
        let of = |session: &str| event(Host::ClaudeCode, session, "/repo");
        assert_eq!(found(&shims, &of("a"), &[]), Some(0));
        assert_eq!(found(&shims, &of("b"), &[10]), Some(1), "the id decides");
        // After a clear the id is new, the process is not.
        assert_eq!(found(&shims, &of("c"), &[99, 20, 1]), Some(1));
        assert_eq!(found(&shims, &of("c"), &[]), None);
        assert_eq!(found(&shims, &of("c"), &[99, 1]), None);
    }

    #[test]
    fn one_process_with_two_sessions_is_ambiguous_until_they_are_told() {
        let threads = |a, b| {
            [
                shim(Surface::Codex, a, 10, "/repo"),
                shim(Surface::Codex, b, 10, "/repo"),
            ]
        };
        let of = |session: &str| event(Host::Codex, session, "/repo");
        assert_eq!(found(&threads(None, None), &of("t1"), &[10]), None);
        assert_eq!(found(&threads(Some("t2"), None), &of("t1"), &[10]), Some(1));
        assert_eq!(found(&threads(Some("t1"), None), &of("t1"), &[10]), Some(0));
        // A thread whose shim is not here yet is nobody else's.
        assert_eq!(
            found(&threads(Some("t2"), Some("t3")), &of("t1"), &[10]),
            None
        );
    }

    #[test]
    fn by_process_the_folder_must_fit_and_the_nearest_host_is_meant() {
        let shims = [
            shim(Surface::ClaudeCode, Some("a"), 10, "/repo"),
            shim(Surface::Codex, None, 30, "/repo/deep"),
        ];
        let codex = |cwd: &str| event(Host::Codex, "t", cwd);
        // Codex was started from Claude Code's shell.
        assert_eq!(
            found(&shims, &codex("/repo/deep"), &[40, 30, 20, 10]),
            Some(1)
        );
        assert_eq!(found(&shims, &codex("/repo/deep/er"), &[30, 10]), Some(1));
        assert_eq!(found(&shims, &codex("/repo"), &[30, 10]), None);
        assert_eq!(found(&shims, &codex("/repo/deeper"), &[30]), None);
        let mut unnamed = codex("/repo/deep");
        unnamed.named = false;
        assert_eq!(found(&shims, &unnamed, &[30, 10]), Some(1));
        // An agent of Claude Code that walked elsewhere is still in its project.
        let away = event(Host::ClaudeCode, "new", "/elsewhere");
        let mut caller = Caller {
            event: &away,
            ancestors: &[10],
            project: Some("/repo"),
        };
        assert_eq!(shim_of(&shims, &caller), Some(0));
        caller.project = None;
        assert_eq!(shim_of(&shims, &caller), None);
    }

    #[test]
    fn a_hook_never_speaks_for_another_kind_of_host() {
        let shims = [shim(Surface::Vscode, None, 10, "/repo")];
        let claude = event(Host::ClaudeCode, "a", "/repo");
        assert_eq!(found(&shims, &claude, &[10]), None);
        let other = [shim(Surface::Other, None, 10, "/repo")];
        assert_eq!(found(&other, &claude, &[10]), Some(0));
        assert_eq!(found(&[], &claude, &[10]), None);
    }

    #[test]
    fn two_shims_of_one_session_are_nobodys() {
        let twice = [
            shim(Surface::ClaudeCode, Some("a"), 10, "/repo"),
            shim(Surface::ClaudeCode, Some("a"), 10, "/repo"),
        ];
        let of = event(Host::ClaudeCode, "a", "/repo");
        assert_eq!(found(&twice, &of, &[10]), None);
        // One that another process resumed is told by the process.
        let resumed = [
            shim(Surface::ClaudeCode, Some("a"), 10, "/repo"),
            shim(Surface::ClaudeCode, Some("a"), 20, "/repo"),
        ];
        assert_eq!(found(&resumed, &of, &[20]), Some(1));
    }
}
