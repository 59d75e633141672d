//! Whether somebody is at a session's host: a host's server may live on when the terminal is gone.

use super::Surface;
use crate::signal::names;

names! {
    /// Whether the terminal that a session was begun in is still there.
    Attention { Attended = "attended", Unattended = "unattended", Unknown = "unknown" }
}

/// What a shim can see of the process that started it.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostProcess<'a> {
    /// A launcher of ours ends it with its terminal.
    pub launched: bool,
    /// Its command line, where that can be read.
    pub command: Option<&'a [String]>,
    /// Who is connected to it, where it listens and that can be seen.
    pub clients: Option<Clients<'a>>,
}

/// The connections to a host's server, by whatever tells one from another.
#[derive(Clone, Copy, Debug)]
pub struct Clients<'a> {
    /// When the session began: whoever began it is among them.
    pub at_first: &'a [u64],
    pub now: &'a [u64],
}

/// How a host's process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lives {
    /// It ends with its terminal, its editor or its caller.
    WithItsUser,
    /// It is a server that others come to and leave.
    OnItsOwn,
    Unknown,
}

/// Whether somebody is at the host. Only evidence says that nobody is: an empty server. Only
/// evidence says that somebody is: a host that would end otherwise, or that whoever was connected
/// when the session began still is.
pub fn attention(surface: Surface, host: &HostProcess<'_>) -> Attention {
    let lives = match surface {
        Surface::Codex | Surface::Opencode if host.launched => Lives::WithItsUser,
        Surface::Codex | Surface::Opencode => lives(surface, host.command),
        _ => return assumed(surface),
    };
    match (lives, host.clients) {
        (Lives::WithItsUser, _) => Attention::Attended,
        (Lives::OnItsOwn, Some(clients)) if clients.now.is_empty() => Attention::Unattended,
        (Lives::OnItsOwn, Some(clients)) => {
            let stays = |client: &u64| clients.now.contains(client);
            match !clients.at_first.is_empty() && clients.at_first.iter().all(stays) {
                true => Attention::Attended,
                false => Attention::Unknown,
            }
        }
        _ => Attention::Unknown,
    }
}

/// What holds for a session whose shim has said nothing: most hosts take their shim with them.
pub const fn assumed(surface: Surface) -> Attention {
    match surface {
        Surface::ClaudeCode
        | Surface::Cursor
        | Surface::Vscode
        | Surface::ClaudeDesktop
        | Surface::GeminiCli => Attention::Attended,
        Surface::Codex | Surface::Opencode | Surface::Other => Attention::Unknown,
    }
}

/// Told by the command line alone, and only if that is the host's.
fn lives(surface: Surface, command: Option<&[String]>) -> Lives {
    let command = command.unwrap_or_default();
    let name = surface.name();
    // The program, or what an interpreter runs.
    let is_hosts = |word: &String| word.rsplit('/').next().is_some_and(|w| w.contains(name));
    if !command.iter().take(2).any(is_hosts) {
        return Lives::Unknown;
    }
    let has = |word: &str| command.iter().any(|w| w == word);
    let on_its_own = match surface {
        // Without an address it speaks with whoever started it, and ends with them.
        Surface::Codex => has("app-server") && listens(command),
        _ => has("serve") || has("web"),
    };
    match on_its_own {
        true => Lives::OnItsOwn,
        false => Lives::WithItsUser,
    }
}

fn listens(command: &[String]) -> bool {
    const OPTION: &str = "--listen";
    let next = command.iter().position(|w| w == OPTION);
    let next = next.and_then(|at| command.get(at + 1)).map(String::as_str);
    let joined = command
        .iter()
        .find_map(|w| w.strip_prefix(OPTION)?.strip_prefix('='));
    next.or(joined).is_some_and(|at| !at.starts_with("stdio"))
}

#[cfg(test)]
mod tests {
    use super::Attention::{Attended, Unattended, Unknown};
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_host_that_ends_with_its_terminal_is_attended_and_a_server_may_not_be() {
        let shared = "/opt/codex/bin/codex app-server --listen unix:///run/s";
        for (surface, command, attention_is) in [
            (Surface::ClaudeCode, "", Attended),
            (Surface::GeminiCli, "", Attended),
            (Surface::Cursor, "", Attended),
            (Surface::Other, "", Unknown),
            (Surface::Codex, "codex", Attended),
            (Surface::Codex, "codex exec --json hello", Attended),
            (Surface::Codex, "node /bin/codex --no-daemon", Attended),
            // Beside an editor, over its standard input.
            (Surface::Codex, "codex app-server", Attended),
            (
                Surface::Codex,
                "codex app-server --listen stdio://",
                Attended,
            ),
            (Surface::Codex, shared, Unknown),
            (
                Surface::Codex,
                "codex app-server --listen=ws://127.0.0.1:1",
                Unknown,
            ),
            // Something stands between: it tells nothing of the host.
            (Surface::Codex, "sh -c prism", Unknown),
            (Surface::Codex, "", Unknown),
            (Surface::Opencode, "opencode", Attended),
            (Surface::Opencode, "opencode run hello", Attended),
            (Surface::Opencode, "opencode serve --port 1", Unknown),
        ] {
            let words = words(command);
            let host = HostProcess {
                command: (!words.is_empty()).then_some(&words),
                ..HostProcess::default()
            };
            assert_eq!(attention(surface, &host), attention_is, "{command}");
        }
        let launched = HostProcess {
            launched: true,
            command: Some(&words(shared)),
            clients: None,
        };
        assert_eq!(attention(Surface::Codex, &launched), Attended);
        assert_eq!(attention(Surface::Other, &launched), Unknown);
    }

    #[test]
    fn a_server_is_unattended_when_nobody_is_connected_and_attended_while_who_began_it_is() {
        let command = words("codex app-server --listen unix:///run/s");
        for (at_first, now, attention_is) in [
            (&[1][..], &[1][..], Attended),
            (&[1], &[1, 2], Attended),
            // Whoever began it is one of the two, and both are there.
            (&[1, 2], &[2, 1], Attended),
            (&[1, 2], &[2], Unknown),
            (&[1], &[2], Unknown),
            (&[1], &[], Unattended),
            (&[], &[1], Unknown),
            (&[], &[], Unattended),
        ] {
            let host = HostProcess {
                launched: false,
                command: Some(&command),
                clients: Some(Clients { at_first, now }),
            };
            let found = attention(Surface::Codex, &host);
            assert_eq!(found, attention_is, "{at_first:?} {now:?}");
        }
        // Who is connected to a terminal's own process says nothing about the terminal.
        let own = words("codex");
        let host = HostProcess {
            launched: false,
            command: Some(&own),
            clients: Some(Clients {
                at_first: &[1],
                now: &[],
            }),
        };
        assert_eq!(attention(Surface::Codex, &host), Attended);
    }
}
