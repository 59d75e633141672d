//! `prism statusline`: one small file read, one line printed, always exit 0; the user's own line before it.

use crate::config::Env;
use crate::home::Home;
use crate::shim::cache::{Cache, read_count_file};
use prism_core::Identity;
use prism_core::limits::{OWN_LINE_BYTES_MAX, OWN_LINES_MAX};
use prism_core::ring::Count;
use prism_core::statusline::{View, render};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the host may take to hand over its JSON.
const STDIN: Duration = Duration::from_millis(50);
/// How long the user's own command may take; ours is shown without it then.
const OWN_LINE: Duration = Duration::from_millis(700);
/// How long to wait for its output before looking whether it has ended.
const SLICE: Duration = Duration::from_millis(10);
/// More than any host writes; the rest is not read.
const STDIN_BYTES_MAX: usize = 256 * 1024;

/// Prints the line; false when the arguments are not plainly those of a host's bar.
pub fn run(args: impl Iterator<Item = OsString>) -> bool {
    match Line::read(args) {
        Some(line) => {
            line.print();
            true
        }
        None => false,
    }
}

/// What the line is to look like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Line {
    /// Whose it is; else the environment says so.
    pub identity: Option<String>,
    /// `always` or `never`.
    pub color: Option<String>,
    /// The user's own command.
    pub append_to: Option<String>,
}

impl Line {
    /// Reads what hosts are told to run. It never has the last word: whatever else is said, and
    /// said twice, is for the parser of all commands.
    fn read(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut line = Self::default();
        while let Some(arg) = args.next() {
            let arg = arg.to_str()?;
            let (option, joined) = match arg.split_once('=') {
                Some((option, value)) => (option, Some(value.to_owned())),
                None => (arg, None),
            };
            let place = match option {
                "--color" => &mut line.color,
                "--append-to" => &mut line.append_to,
                _ => return None,
            };
            let value = match joined {
                Some(value) => value,
                None => {
                    let next = args.next()?.into_string().ok()?;
                    (!next.starts_with('-')).then_some(next)?
                }
            };
            if place.replace(value).is_some() {
                return None;
            }
        }
        let color = line.color.as_deref();
        matches!(color, None | Some("always" | "never")).then_some(line)
    }

    pub fn print(&self) {
        drop(writeln!(std::io::stdout(), "{}", self.text()));
    }

    /// The user's own lines, and ours.
    pub fn text(&self) -> String {
        // Whatever is wrong with the environment, a bar shows a line.
        let env = Env::read().unwrap_or_default();
        let identity = match &self.identity {
            Some(named) => Identity::parse(named).ok(),
            None => env.identity().ok().flatten(),
        };
        let count = identity
            .as_ref()
            .and_then(|i| read_count(&env.prism_home().ok()?, i));
        let json = read_stdin();
        // The user's command runs while ours is put together.
        let command = self.append_to.as_deref().filter(|c| !c.trim().is_empty());
        let own = command.and_then(|command| Own::start(command, &json));
        let cwd = folder(&json)
            .or_else(|| {
                std::env::current_dir()
                    .ok()
                    .map(|d| d.to_string_lossy().into_owned())
            })
            .unwrap_or_default();
        let cwd = shortened(&cwd, env.home.as_deref());
        let line = render(&View {
            persona: identity.as_ref().map(Identity::as_str),
            cwd: &cwd,
            count: count.as_ref(),
            now: crate::clock::now(),
            // Its output is always a pipe, so a terminal is no measure.
            color: match self.color.as_deref() {
                Some("always") => true,
                Some("never") => false,
                _ => !env.no_color,
            },
        });
        let own = own.map(Own::lines).unwrap_or_default();
        format!("{own}{line}")
    }
}

/// The user's own status line, being made.
struct Own {
    child: Child,
    deadline: Instant,
}

impl Own {
    /// Starts it in a group of its own, so that all of it can be ended, with what the host said.
    fn start(command: &str, json: &[u8]) -> Option<Self> {
        let mut child = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok()?;
        if let Some(mut stdin) = child.stdin.take() {
            let json = json.to_vec();
            // One that does not read must not hold up the line: this ends with the process.
            std::thread::spawn(move || drop(stdin.write_all(&json)));
        }
        Some(Self {
            child,
            deadline: Instant::now() + OWN_LINE,
        })
    }

    /// Its first lines, each with its end, as far as they came in time.
    fn lines(mut self) -> String {
        let mut bytes = Vec::new();
        let in_time = self.read(&mut bytes);
        if !in_time {
            let group = rustix::process::Pid::from_child(&self.child);
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).ok();
            drop(self.child.wait());
            // Half a line says something else than a whole one.
            let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |n| n + 1);
            bytes.truncate(whole);
        }
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.trim_end().lines().take(OWN_LINES_MAX);
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// Reads until the command has ended, whatever it left running; false when it had to be left.
    fn read(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Some(stdout) = self.child.stdout.take() else {
            return false;
        };
        let mut chunk = [0u8; 8192];
        let (mut ended, mut closed) = (false, false);
        while bytes.len() < OWN_LINE_BYTES_MAX {
            ended = ended || !matches!(self.child.try_wait(), Ok(None));
            let now = Instant::now();
            if (ended && closed) || now >= self.deadline {
                return ended;
            }
            if closed {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            // What an ended command wrote is there already.
            let look = if ended {
                now
            } else {
                self.deadline.min(now + SLICE)
            };
            match wait_for_input(&stdout, look) {
                None if ended => return true,
                None => continue,
                Some(()) => {}
            }
            match rustix::io::read(&stdout, &mut chunk) {
                Ok(n) if n > 0 => bytes.extend_from_slice(&chunk[..n]),
                Err(rustix::io::Errno::INTR) => {}
                _ => closed = true,
            }
        }
        bytes.truncate(OWN_LINE_BYTES_MAX);
        false
    }
}

/// Waits until there is something to read; nothing when the time is up.
fn wait_for_input(from: &impl AsFd, deadline: Instant) -> Option<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [PollFd::new(from, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(0),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut waiting, Some(&timeout)) {
            Ok(0) => return None,
            Ok(_) => return Some(()),
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            Err(_) => return None,
        }
    }
}

/// The count file; without one, what the ring says.
pub fn read_count(home: &Home, identity: &Identity) -> Option<Count> {
    let exact =
        read_count_file(home, identity.as_str()).and_then(|text| serde_json::from_str(&text).ok());
    exact.or_else(|| {
        let cache = Cache::new(home.clone(), identity);
        cache
            .stored_count()
            .or_else(|| Some(cache.load().0.count()))
    })
}

/// What the host says on standard input. One that sends nothing is not waited for.
fn read_stdin() -> Vec<u8> {
    let stdin = std::io::stdin();
    let mut bytes = Vec::new();
    if stdin.is_terminal() {
        return bytes;
    }
    // Whoever holds stdin open without writing must not hold up the line.
    let deadline = Instant::now() + STDIN;
    let mut chunk = [0u8; 8192];
    while bytes.len() < STDIN_BYTES_MAX {
        if wait_for_input(&stdin, deadline).is_none() {
            break;
        }
        match rustix::io::read(&stdin, &mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
    }
    bytes
}

/// The folder the host says it works in.
fn folder(json: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(json);
    let json: serde_json::Value = serde_json::from_str(&text).ok()?;
    let folder = json["workspace"]["current_dir"]
        .as_str()
        .or_else(|| json["cwd"].as_str());
    folder.map(str::to_owned)
}

fn shortened(cwd: &str, home: Option<&str>) -> String {
    let Some(rest) = home
        .filter(|h| h.len() > 1)
        .and_then(|home| cwd.strip_prefix(home.trim_end_matches('/')))
    else {
        return cwd.to_owned();
    };
    if rest.is_empty() || rest.starts_with('/') {
        format!("~{rest}")
    } else {
        cwd.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_bar_is_told_to_run_is_read_in_a_hurry() {
        let read = |args: &[&str]| Line::read(args.iter().map(OsString::from));
        let line = |color: Option<&str>, append_to: Option<&str>| {
            Some(Line {
                identity: None,
                color: color.map(str::to_owned),
                append_to: append_to.map(str::to_owned),
            })
        };
        for (args, expected) in [
            (&[][..], line(None, None)),
            (&["--color", "never"], line(Some("never"), None)),
            (&["--color=always"], line(Some("always"), None)),
            (&["--append-to", "a --b=c"], line(None, Some("a --b=c"))),
            (
                &["--append-to=a=b", "--color=never"],
                line(Some("never"), Some("a=b")),
            ),
            (&["-V"], None),
            (&["-h"], None),
            (&["--json"], None),
            (&["--color", "blue"], None),
            (&["--color"], None),
            (&["--append-to", "--color"], None),
            (&["--", "--append-to", "a"], None),
            (&["--append-to", "a", "--append-to", "b"], None),
            (&["--color=never", "--color=never"], None),
            (&["x"], None),
        ] {
            assert_eq!(read(args), expected, "{args:?}");
        }
    }

    #[test]
    fn the_home_folder_is_a_tilde_and_a_namesake_is_not() {
        for (cwd, short) in [
            ("/home/f", "~"),
            ("/home/f/prism", "~/prism"),
            ("/home/frank", "/home/frank"),
            ("/tmp", "/tmp"),
        ] {
            assert_eq!(shortened(cwd, Some("/home/f")), short);
        }
        assert_eq!(shortened("/x", None), "/x");
    }
}
