//! Whether somebody is at this shim's host, as far as its process tells: looked at for as long as
//! the session is open, and told to the server when it changes.

use super::{Session, Shim};
use crate::config::Env;
use prism_core::Problem;
use prism_core::presence::{Attention, Clients, HostProcess, assumed, attention};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// How often a host's server is looked at. What changed must be seen twice in a row: a shim that
/// rings a bell is connected for a moment, too.
const LOOK: Duration = Duration::from_secs(2);
/// Of `/proc/net/unix`: a socket that listens, and one that is connected.
const LISTENS: &str = "01";
const CONNECTED: &str = "03";

/// The process that started this shim, and who was connected to it at that time.
pub struct HostProcessSeen {
    pid: Option<u32>,
    launched: bool,
    command: Option<Vec<String>>,
    at_first: Option<Vec<u64>>,
}

impl HostProcessSeen {
    pub fn begin(env: &Env) -> Self {
        let parent = rustix::process::getppid();
        let pid = parent.map(|pid| pid.as_raw_nonzero().get() as u32);
        Self {
            pid,
            launched: env.codex_socket.is_some(),
            command: pid.and_then(command),
            at_first: pid.and_then(clients),
        }
    }
}

/// Tells the server whenever it is something else than what it knows, until the session is over.
pub async fn run(shim: Arc<Shim>, session: Arc<Session>) {
    let host = &shim.host_process;
    let mut over = session.over.subscribe();
    let mut at_first = host.at_first.clone();
    let mut told = assumed(session.surface);
    if told != Attention::Unknown {
        return;
    }
    let mut seen_before = None;
    loop {
        let now = host.pid.and_then(clients);
        // Whoever has left since the start may have been another shim, come to ring.
        if let (None, Some(first), Some(now)) = (seen_before, &mut at_first, &now) {
            first.retain(|client| now.contains(client));
        }
        let seen = attention(
            session.surface,
            &HostProcess {
                launched: host.launched,
                command: host.command.as_deref(),
                clients: at_first.as_deref().zip(now.as_deref()).map(pair),
            },
        );
        let may_change = now.is_some() && !host.launched;
        if seen != told && (seen_before == Some(seen) || !may_change) {
            match tell(&session, seen).await {
                Ok(()) => told = seen,
                Err(problem) if problem.status >= 500 || problem.is_busy() => {}
                Err(problem) => {
                    tracing::debug!(%problem, "The server does not hear who is at the host");
                    return;
                }
            }
        }
        if !may_change && told == seen {
            return;
        }
        seen_before = Some(seen);
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = over.wait_for(|over| *over) => return,
        }
    }
}

fn pair<'a>((at_first, now): (&'a [u64], &'a [u64])) -> Clients<'a> {
    Clients { at_first, now }
}

async fn tell(session: &Session, attention: Attention) -> Result<(), Problem> {
    let request = json!({ "attention": attention });
    let told = session
        .client
        .call(&session.pid, "session_attention", request);
    told.await.map(drop)
}

/// The command line of a process; none where the system does not tell.
fn command(pid: u32) -> Option<Vec<String>> {
    let bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = bytes.split(|b| *b == 0).filter(|word| !word.is_empty());
    Some(
        words
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect(),
    )
}

/// The connections to the Unix sockets that a process listens on; none where it listens on none,
/// or the system does not tell.
fn clients(pid: u32) -> Option<Vec<u64>> {
    let mut own = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).ok()? {
        let Ok(target) = std::fs::read_link(entry.ok()?.path()) else {
            continue;
        };
        let target = target.to_string_lossy();
        let inode = target
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        own.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    let table = std::fs::read_to_string("/proc/net/unix").ok()?;
    connected(&table, &own)
}

/// The same from the system's table and the sockets of the process.
fn connected(table: &str, own: &[u64]) -> Option<Vec<u64>> {
    // Number, references, protocol, flags, type, state, inode, path.
    let rows = table.lines().filter_map(|line| {
        let mut columns = line.split_whitespace().skip(5);
        let (state, inode) = (columns.next()?, columns.next()?.parse::<u64>().ok()?);
        let path = columns.next()?;
        own.contains(&inode).then_some((state, inode, path))
    });
    let rows: Vec<_> = rows.collect();
    let listens = |path: &str| rows.iter().any(|(s, _, p)| *s == LISTENS && *p == path);
    if !rows.iter().any(|(state, ..)| *state == LISTENS) {
        return None;
    }
    let clients = rows
        .iter()
        .filter(|(state, _, path)| *state == CONNECTED && listens(path));
    Some(clients.map(|(_, inode, _)| *inode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_of_a_server_are_the_connections_to_what_it_listens_on() {
        let table = "\
Num       RefCount Protocol Flags    Type St Inode Path
00000000d7520273: 00000003 00000000 00000000 0001 03 11
00000000843dc6ba: 00000003 00000000 00000000 0001 03 12 /run/server
00000000b62c6b21: 00000002 00000000 00010000 0001 01 13 /run/server
00000000071c7772: 00000002 00000000 00010000 0001 01 14 /run/other
00000000071c7773: 00000003 00000000 00000000 0001 03 15 /run/other
00000000071c7774: 00000003 00000000 00000000 0001 03 16 /run/server
torn
";
        assert_eq!(connected(table, &[11, 12, 13, 16]), Some(vec![12, 16]));
        assert_eq!(connected(table, &[13]), Some(vec![]));
        assert_eq!(connected(table, &[11, 12]), None, "it listens on nothing");
        assert_eq!(connected("", &[13]), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_very_process_is_seen_to_have_a_client_and_to_lose_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = std::process::id();
        assert!(command(own).unwrap()[0].contains("prism"));
        let listener = std::os::unix::net::UnixListener::bind(dir.path().join("s")).unwrap();
        let path = dir.path().join("s");
        let client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        let (taken, _) = listener.accept().unwrap();
        let connection = rustix::fs::fstat(&taken).unwrap().st_ino;
        assert!(clients(own).unwrap().contains(&connection));
        drop((client, taken));
        assert!(!clients(own).unwrap().contains(&connection));
    }
}
