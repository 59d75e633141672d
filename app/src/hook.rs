//! `prism hook`: a host's event in, what its agent is to be told out; always exit 0, and soon.
//!
//! Hosts wait for their hooks at every step. So this is a plain process: it reads the event, asks
//! the shim of that session, prints what came back, and is silent about whatever goes wrong.

mod waiter;

use crate::config::Env;
use crate::shim::files::{self, ShimFile};
use prism_core::connect::command::REWAKE;
use prism_core::hook::find::{Caller, shim_of};
use prism_core::hook::{Answered, Asked, Done, Event, Host, parse};
use prism_core::limits::HOOK_EVENT_BYTES_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Kept for starting and ending the process.
const MARGIN: Duration = Duration::from_millis(6);
/// Kept for printing the answer, and for saying that it was printed.
const PRINTING: Duration = Duration::from_millis(4);
/// A host that has written a whole event and is then silent for so long has ended it.
const PAUSE: Duration = Duration::from_millis(5);
/// Bytes of an answer; a shim says far less.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// Processes above the hook that are looked at.
const ANCESTORS_MAX: usize = 16;

/// Answers the host, and says with which exit code; none when the arguments are not plainly those
/// that hosts are told to run: then the parser of all commands has the last word.
pub fn run(args: impl Iterator<Item = OsString>, began: Instant) -> Option<u8> {
    let (mut host, mut rewake) = (None, false);
    for arg in args {
        let arg = arg.into_string().ok()?;
        match arg.as_str() {
            REWAKE if !rewake => rewake = true,
            name if !name.starts_with('-') && host.is_none() => host = Some(arg),
            _ => return None,
        }
    }
    Some(answered(host.as_deref(), rewake, began))
}

/// Answers the host that goes by this name, and says with which exit code.
pub fn answered(host: Option<&str>, rewake: bool, began: Instant) -> u8 {
    let host = host.and_then(Host::named);
    if rewake {
        return waiter::run(host, began);
    }
    // There is nobody to tell of an error: a host would show it to its user at every step.
    let _ = answer(host, began);
    0
}

fn answer(host: Option<Host>, began: Instant) -> Option<()> {
    let env = Env::read().ok()?;
    let deadline = began + env.hook_patience().saturating_sub(MARGIN);
    let event = event_from_stdin(host, deadline)?;
    let shim = find(&env, &event)?;
    let within = left(deadline)?.saturating_sub(PRINTING);
    let asked = Asked {
        event,
        within_ms: within.as_millis() as u64,
    };
    let answer = post(&shim, "/hook", &serde_json::to_vec(&asked).ok()?, deadline)?;
    if answer.is_empty() {
        return None;
    }
    let answered: Answered = serde_json::from_slice(&answer).ok()?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", answered.print).ok()?;
    stdout.flush().ok()?;
    let done = Done {
        receipt: answered.receipt,
    };
    // The host has it: this is worth the margin.
    let done = serde_json::to_vec(&done).ok()?;
    post(&shim, "/hook-done", &done, deadline + MARGIN)?;
    Some(())
}

fn left(deadline: Instant) -> Option<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    (!left.is_zero()).then_some(left)
}

/// The event on standard input, if it is one and comes in time.
fn event_from_stdin(host: Option<Host>, deadline: Instant) -> Option<Event> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return None;
    }
    let mut bytes = Vec::new();
    let mut chunk = vec![0u8; 64 * 1024];
    let mut too_long = false;
    loop {
        let left = left(deadline)?;
        let whole = !too_long && bytes.last() == Some(&b'}');
        let patience = if whole { left.min(PAUSE) } else { left };
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        if poll(&mut waiting, Some(&timeout)).ok()? == 0 {
            match whole.then(|| parse(host, &bytes)).flatten() {
                Some(event) => return Some(event),
                None => continue,
            }
        }
        match rustix::io::read(&stdin, &mut chunk).ok()? {
            0 => break,
            // Read to its end all the same: a host does not like its pipe to break.
            n if too_long || bytes.len() + n > HOOK_EVENT_BYTES_MAX => too_long = true,
            n => bytes.extend_from_slice(&chunk[..n]),
        }
    }
    (!too_long).then(|| parse(host, &bytes)).flatten()
}

/// The shim of the session that this event is of.
fn find(env: &Env, event: &Event) -> Option<ShimFile> {
    let home = env.prism_home().ok()?;
    // Whoever can write here could speak to the agent in our name.
    home.check().ok()?;
    let (mut shims, _) = files::shims(&home);
    if shims.is_empty() {
        return None;
    }
    let facts: Vec<_> = shims.iter().map(ShimFile::facts).collect();
    let caller = Caller {
        event,
        ancestors: &ancestors(env),
        project: env.claude_project.as_deref(),
    };
    let found = shim_of(&facts, &caller)?;
    Some(shims.swap_remove(found))
}

/// The host as it names itself, then the processes above this one, nearest first.
fn ancestors(env: &Env) -> Vec<u32> {
    let mut found = Vec::new();
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    let mut next = parent;
    while let Some(pid) = next.filter(|pid| *pid > 1 && found.len() < ANCESTORS_MAX) {
        found.push(pid);
        next = parent_of(pid);
    }
    let named = env.claude_pid.as_deref().and_then(|pid| pid.parse().ok());
    // Where the processes are not told, the name is all there is.
    found.extend(named.filter(|pid| !found.contains(pid)));
    found
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in the middle may hold anything, brackets included.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// Asks the shim's door; its answer's body, or none for whatever is no success.
fn post(shim: &ShimFile, path: &str, body: &[u8], deadline: Instant) -> Option<Vec<u8>> {
    let door = SocketAddr::from((Ipv4Addr::LOCALHOST, shim.port));
    let mut stream = TcpStream::connect_timeout(&door, left(deadline)?).ok()?;
    stream.set_nodelay(true).ok()?;
    stream.set_write_timeout(Some(left(deadline)?)).ok()?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        shim.token,
        body.len()
    );
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    stream.write_all(&request).ok()?;
    let mut answer = Vec::new();
    let mut chunk = [0u8; 8 * 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?)).ok()?;
        match stream.read(&mut chunk).ok()? {
            0 => break,
            n => answer.extend_from_slice(&chunk[..n]),
        }
        if answer.len() as u64 > ANSWER_BYTES_MAX {
            return None;
        }
    }
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n")?;
    let status = answer.get(9..12)?;
    status.starts_with(b"2").then(|| answer[end + 4..].to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_those_above_it() {
        let own = std::process::id();
        let parent = parent_of(own);
        assert_eq!(
            parent,
            rustix::process::getppid().map(|p| p.as_raw_nonzero().get() as u32)
        );
        let env = Env {
            claude_pid: Some("4000000".into()),
            ..Env::default()
        };
        let above = ancestors(&env);
        assert_eq!(above.first().copied(), parent);
        assert_eq!(above.last(), Some(&4_000_000));
        assert_eq!(parent_of(u32::MAX), None);
    }
}
