//! `prism statusline`: one small file read, one line printed, always exit 0.

use crate::config::Env;
use crate::home::Home;
use crate::shim::cache::Cache;
use prism_core::Identity;
use prism_core::ring::Count;
use prism_core::statusline::{View, render};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How long the host may take to hand over its JSON.
const STDIN: Duration = Duration::from_millis(50);
/// More than any host writes; the rest is not read.
const STDIN_BYTES_MAX: usize = 256 * 1024;

/// Prints the line; false when the arguments ask for help instead.
pub fn run(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<String> = args.map(|a| a.to_string_lossy().into_owned()).collect();
    if args
        .iter()
        .any(|a| a == "--help" || a == "-h" || a == "--version")
    {
        return false;
    }
    // Whatever is wrong with the environment, a bar shows a line.
    let env = Env::read().unwrap_or_default();
    let never = args.windows(2).any(|w| w == ["--color", "never"])
        || args.iter().any(|a| a == "--color=never");
    let always = args.windows(2).any(|w| w == ["--color", "always"])
        || args.iter().any(|a| a == "--color=always");
    let identity = env.identity().ok().flatten();
    let count = identity
        .as_ref()
        .and_then(|i| read_count(&env.prism_home(), i));
    let cwd = folder_from_stdin()
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
        color: always || (!never && !env.no_color),
    });
    drop(writeln!(std::io::stdout(), "{line}"));
    true
}

/// The count file; without one, what the ring says.
pub fn read_count(home: &Home, identity: &Identity) -> Option<Count> {
    let exact = home
        .read(&format!("sigcount-{identity}.json"))
        .and_then(|text| serde_json::from_str(&text).ok());
    exact.or_else(|| {
        let cache = Cache::new(home.clone(), identity);
        cache
            .stored_count()
            .or_else(|| Some(cache.load().0.count()))
    })
}

/// The folder the host says it works in. A host that sends nothing is not waited for.
fn folder_from_stdin() -> Option<String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return None;
    }
    // Whoever holds stdin open without writing must not hold up the line.
    let deadline = Instant::now() + STDIN;
    let mut bytes = Vec::new();
    let mut chunk = [0u8; 8192];
    while bytes.len() < STDIN_BYTES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waiting = [PollFd::new(&stdin, PollFlags::IN)];
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: left.subsec_nanos().into(),
        };
        if poll(&mut waiting, Some(&timeout)).ok()? == 0 {
            break;
        }
        match rustix::io::read(&stdin, &mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
    }
    let text = String::from_utf8_lossy(&bytes);
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
