//! `prism hook --rewake`: waits beside an idle session of Claude Code until a bell is to be rung.
//!
//! The host runs it beside the session, and wakes the session when it ends with exit code 2: then
//! the model reads what it wrote to standard error. It ends without a word when its shim has a
//! better bell, when another waits already, and with its shim.

use super::{event_from_stdin, find, post};
use crate::config::Env;
use crate::shim::files::ShimFile;
use prism_core::hook::{Event, Host, Rings};
use prism_core::limits::REWAKE_WAIT_S;
use std::io::Write;
use std::time::{Duration, Instant};

/// What wakes the session.
const WAKES: u8 = 2;
/// How long the event may take to come.
const EVENT_WITHIN: Duration = Duration::from_secs(1);
/// A session that starts has its shim a moment later. Nothing is left of a killed host for longer.
const SHIM_WITHIN: Duration = Duration::from_secs(4);
const PAUSE: Duration = Duration::from_millis(200);
/// How long the shim may take to let it go.
const LET_GO_WITHIN: Duration = Duration::from_secs(1);
/// A person sits at such a session. Any other ends with its prompt, and would not end before us.
const INTERACTIVE: &str = "cli";

pub fn run(host: Option<Host>, began: Instant) -> u8 {
    match wait(host, began) {
        Some(()) => WAKES,
        None => 0,
    }
}

fn wait(host: Option<Host>, began: Instant) -> Option<()> {
    let env = Env::read().ok()?;
    if env.claude_entrypoint.as_deref() != Some(INTERACTIVE) {
        return None;
    }
    let event = event_from_stdin(host, began + EVENT_WITHIN)?;
    if event.host != Host::ClaudeCode || event.subagent {
        return None;
    }
    let shim = find_soon(&env, &event, began + SHIM_WITHIN)?;
    let until = began + Duration::from_secs(REWAKE_WAIT_S);
    let rings: Rings = serde_json::from_slice(&post(&shim, "/hook-wait", b"", until)?).ok()?;
    let goes = serde_json::to_vec(&rings).ok()?;
    post(&shim, "/hook-goes", &goes, Instant::now() + LET_GO_WITHIN)?;
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "{}", rings.sentence).ok()
}

fn find_soon(env: &Env, event: &Event, deadline: Instant) -> Option<ShimFile> {
    loop {
        if let Some(shim) = find(env, event) {
            return Some(shim);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(PAUSE);
    }
}
