//! What the host's hooks say, and what its agent is told through them.
//!
//! A hook is a process that ends within milliseconds; what a session knows between two of its hooks
//! is kept here. Nothing counts as said before the hook has written it.

use super::bell::Thread;
use super::{Session, Shim};
use crate::clock;
use crate::config::{Config, HooksConfig};
use crate::verb::{Is, Verb};
use prism_core::api::SessionBrief;
use prism_core::hook::hold::Held;
use prism_core::hook::left::Seen;
use prism_core::hook::opening::opening;
use prism_core::hook::origin::{self, Origin};
use prism_core::hook::waits::Waits;
use prism_core::hook::words::{Looks, is_operators, looks_like};
use prism_core::hook::{Answered, Asked, Event, Host, Say, Waiting, What};
use prism_core::limits::SECOND_US;
use prism_core::{Moment, Problem};
use serde_json::json;
use std::collections::VecDeque;
use std::io::{Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use uuid::Uuid;

/// Answers whose writing was not told of yet.
const UNTOLD_MAX: usize = 16;
/// Prompts that wait for their transcript to tell whose they are.
const UNOFFERED_MAX: usize = 4;
/// How long an opening that came too late may be told afterwards.
const LATE_US: i64 = 60 * SECOND_US;
/// Bytes of a transcript's end that are read.
const TRANSCRIPT_BYTES_MAX: u64 = 512 * 1024;
/// The first and the longest pause between two tries to report that a session waits.
const REPORT_PAUSE: Duration = Duration::from_millis(200);
const REPORT_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long a session that ended may take to write down what is left of it.
const LEAVING: Duration = Duration::from_secs(10);

/// Whether the agent is still to be told what a start tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Opening {
    #[default]
    Owed,
    /// Its context was emptied: shorter.
    OwedAgain,
    Said,
}

/// What an answer carried, to be noted when it was written.
#[derive(Clone, Debug, Default)]
struct Carried {
    opening: bool,
    /// The prompt that was offered for keeping.
    offer: Option<u64>,
    bell: Option<Uuid>,
    /// The signals that the end of the turn was held for.
    held: Vec<String>,
}

/// A prompt that may be the operator's.
#[derive(Clone, Debug)]
struct Prompted {
    number: u64,
    event: Event,
    text: String,
    /// How long the transcript was when it came.
    written: u64,
}

/// One line about one prompt.
struct Offer {
    of: u64,
    line: String,
}

#[derive(Default)]
struct Memory {
    opening: Opening,
    /// The opening that came too late for the hook that asked for it.
    late: Option<(Opening, Moment, String)>,
    held: Held,
    waits: Waits,
    seen: Seen,
    prompts: u64,
    newest: Option<Prompted>,
    /// Prompts worth keeping that nobody was told of yet.
    unoffered: VecDeque<(Prompted, Looks)>,
    untold: VecDeque<(u64, Carried)>,
    receipts: u64,
}

/// What a session knows of its hooks.
pub struct Hooks {
    memory: Mutex<Memory>,
    waiting: watch::Sender<Option<Waiting>>,
    reporting: AtomicBool,
    /// Held while what is left of the session is written down.
    leaving: tokio::sync::Mutex<()>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            memory: Mutex::default(),
            waiting: watch::Sender::new(None),
            reporting: AtomicBool::new(false),
            leaving: tokio::sync::Mutex::default(),
        }
    }
}

impl Hooks {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The agent called a verb by itself.
    pub fn agent_called(&self, verb: &Verb) {
        if verb.is(Is::Start) {
            self.memory().opening = Opening::Said;
        }
        if verb.is(Is::Record) {
            self.memory().seen = Seen::default();
        }
    }
}

/// Notes an event of the host, and says what its hook is to print.
pub async fn heard(shim: &Arc<Shim>, session: &Arc<Session>, asked: Asked) -> Option<Answered> {
    let mut event = asked.event;
    shim.bell().hook_heard();
    if !event.named
        && let Some(host) = Host::of_surface(session.surface)
    {
        event.host = host;
    }
    if !event.subagent {
        shim.host_calls_it(session, event.session.as_deref());
        tell_thread(shim, &event);
    }
    note_waiting(session, &event);
    let settings = settings(shim);
    let (say, carried) = match &event.what {
        What::SessionStart { again } => {
            session.hooks.memory().opening = match again {
                true => Opening::OwedAgain,
                false => Opening::Owed,
            };
            beside(shim, session, &event, None).await?
        }
        What::Prompt { text, injected } => {
            if shim.bell().prompt_was(text) {
                return None;
            }
            let offer = prompted(session, &event, text, *injected, settings);
            beside(shim, session, &event, offer).await?
        }
        What::ToolDone => {
            session.hooks.memory().seen.tools += 1;
            let offer = known_by_now(&mut session.hooks.memory(), settings);
            beside(shim, session, &event, offer).await?
        }
        What::TurnEnd { .. } => held(shim, session, &event, settings)?,
        What::SessionEnd { reason } => {
            let (session, reason) = (session.clone(), reason.clone());
            tokio::spawn(async move { leave(&session, &reason, LEAVING).await });
            return None;
        }
        What::Waits { .. } | What::GoesOn | What::Heard => return None,
    };
    let mut memory = session.hooks.memory();
    memory.receipts += 1;
    let receipt = memory.receipts;
    memory.untold.push_back((receipt, carried));
    let over = memory.untold.len().saturating_sub(UNTOLD_MAX);
    memory.untold.drain(..over);
    Some(Answered {
        print: event.answer(&say),
        receipt,
    })
}

/// Codex's own id of the thread is what its bell needs, and a hook knows it before any call.
fn tell_thread(shim: &Shim, event: &Event) {
    let ended = matches!(event.what, What::SessionEnd { .. });
    if event.host == Host::Codex
        && !ended
        && let Some(id) = &event.session
    {
        shim.bell().found_thread(Thread {
            id: id.clone(),
            turn: event.turn.clone(),
        });
    }
}

/// The hook has written what it was answered.
pub fn was_said(shim: &Shim, session: &Session, receipt: u64) {
    let carried = {
        let mut memory = session.hooks.memory();
        let Some(at) = memory.untold.iter().position(|(r, _)| *r == receipt) else {
            return;
        };
        let Some((_, mut carried)) = memory.untold.remove(at) else {
            return;
        };
        memory.held.said(std::mem::take(&mut carried.held));
        if carried.opening {
            memory.opening = Opening::Said;
            memory.late = None;
        }
        if let Some(number) = carried.offer {
            memory.unoffered.retain(|(p, _)| p.number != number);
        }
        carried
    };
    if let Some(signal_id) = carried.bell {
        shim.bell().hook_carried(signal_id);
    }
}

/// The home's settings, as they stand now: whoever turns one off is rid of it at once.
fn settings(shim: &Shim) -> HooksConfig {
    let config = Config::load(shim.home()).ok().flatten();
    config.map(|config| config.hooks).unwrap_or_default()
}

/// What is said beside what the agent does: the start if it was never told, the offer to keep the
/// operator's words, else a bell that waits for a hook. A bell stands alone.
async fn beside(
    shim: &Shim,
    session: &Session,
    event: &Event,
    offer: Option<Offer>,
) -> Option<(Say, Carried)> {
    if !event.takes_context() {
        return None;
    }
    let mut carried = Carried {
        offer: offer.as_ref().map(|offer| offer.of),
        ..Carried::default()
    };
    let opening = owed_opening(session).await;
    carried.opening = opening.is_some();
    let line = offer.map(|offer| offer.line);
    let said: Vec<String> = opening.into_iter().chain(line).collect();
    if !said.is_empty() {
        return Some((Say::Context(said.join("\n")), carried));
    }
    let bell = shim.bell().take_for_hook()?;
    carried.bell = Some(bell.signal_id);
    Some((Say::Context(bell.sentence()), carried))
}

async fn owed_opening(session: &Session) -> Option<String> {
    let owed = {
        let memory = session.hooks.memory();
        match &memory.late {
            _ if memory.opening == Opening::Said => return None,
            Some((of, at, text)) if *of == memory.opening => {
                let age = clock::now().since_us(*at);
                if (0..LATE_US).contains(&age) {
                    return Some(text.clone());
                }
            }
            _ => {}
        }
        memory.opening
    };
    let call = session
        .client
        .call(&session.pid, "session_brief", json!({}));
    let brief: Result<SessionBrief, Problem> = call.await.and_then(|answer| {
        serde_json::from_value(answer).map_err(|e| {
            Problem::new(
                prism_core::Code::Internal,
                format!("the brief is not understood: {e}"),
                "are server and shim of one version?",
            )
        })
    });
    match brief {
        Ok(brief) => {
            let text = opening(&brief, owed == Opening::OwedAgain);
            // Should the hook have left by now, the next one need not wait.
            session.hooks.memory().late = Some((owed, clock::now(), text.clone()));
            Some(text)
        }
        Err(problem) => {
            tracing::debug!(%problem, "No opening for a hook yet");
            None
        }
    }
}

/// Notes a prompt that is no bell. Offers to keep it where it is known to be the operator's, else
/// one before it that has come to be known since.
fn prompted(
    session: &Session,
    event: &Event,
    text: &str,
    injected: bool,
    settings: HooksConfig,
) -> Option<Offer> {
    let mut memory = session.hooks.memory();
    memory.seen.prompts += 1;
    if injected || event.subagent || !is_operators(text) {
        return known_by_now(&mut memory, settings);
    }
    let (tail, written) = transcript(event, 0);
    // Without a transcript nothing tells yet whose words they are, where another agent's may come.
    let origin = origin::now(tail.as_deref().unwrap_or_default(), event, text);
    if origin == Origin::PutIn {
        return known_by_now(&mut memory, settings);
    }
    memory.prompts += 1;
    let prompted = Prompted {
        number: memory.prompts,
        event: event.clone(),
        text: text.to_owned(),
        written,
    };
    memory.newest = Some(prompted.clone());
    if origin == Origin::Person {
        memory.seen.last_prompt = Some(text.to_owned());
    }
    let looks = looks_like(text).filter(|_| settings.offer_capture);
    let earlier = known_by_now(&mut memory, settings);
    let Some(looks) = looks else {
        return earlier;
    };
    let of = prompted.number;
    memory.unoffered.push_back((prompted, looks));
    let over = memory.unoffered.len().saturating_sub(UNOFFERED_MAX);
    memory.unoffered.drain(..over);
    match origin {
        Origin::Person => Some(Offer {
            of,
            line: looks.offer(),
        }),
        _ => earlier,
    }
}

/// An offer for the first prompt of which the transcript says by now that it was the operator's.
fn known_by_now(memory: &mut Memory, settings: HooksConfig) -> Option<Offer> {
    if !settings.offer_capture {
        memory.unoffered.clear();
    }
    memory
        .unoffered
        .retain(|(p, _)| origin_of(p) != Origin::PutIn);
    let known = |(p, _): &&(Prompted, Looks)| origin_of(p) == Origin::Person;
    let (prompted, looks) = memory.unoffered.iter().find(known)?;
    Some(Offer {
        of: prompted.number,
        line: looks.offer_later(&prompted.text),
    })
}

/// Whose a prompt was, as far as its transcript has told since.
fn origin_of(prompted: &Prompted) -> Origin {
    let (since, _) = transcript(&prompted.event, prompted.written);
    since.map_or(Origin::Unknown, |since| {
        origin::later(&since, &prompted.event, &prompted.text)
    })
}

/// The end of the event's transcript, from a place on, and how long it is; none when there is none.
fn transcript(event: &Event, from: u64) -> (Option<String>, u64) {
    let read = || -> std::io::Result<(String, u64)> {
        let path = event.transcript.as_deref().unwrap_or_default();
        // Opening a pipe would wait for whoever writes into it.
        if !std::fs::metadata(path)?.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let mut file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        let start = from.max(len.saturating_sub(TRANSCRIPT_BYTES_MAX)).min(len);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TRANSCRIPT_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok((String::from_utf8_lossy(&bytes).into_owned(), len))
    };
    match read() {
        Ok((tail, len)) => (Some(tail), len),
        Err(_) => (None, 0),
    }
}

/// Holds the end of a turn once while somebody waits for an answer.
fn held(
    shim: &Shim,
    session: &Session,
    event: &Event,
    settings: HooksConfig,
) -> Option<(Say, Carried)> {
    if !settings.hold_turn || !event.takes_hold() || !session.has_inbox() {
        return None;
    }
    let (ring, _) = session.cache.load();
    let held = session.hooks.memory().held.reason(&ring, &session.pid);
    let (reason, sids) = held?;
    // Where a bell waits for a hook, this is the hook that carries it.
    let bell = shim.bell().take_for_hook();
    let carried = Carried {
        bell: bell.as_ref().map(|bell| bell.signal_id),
        held: sids,
        ..Carried::default()
    };
    let reason = bell.map_or(reason, |bell| bell.sentence());
    Some((Say::Hold(reason), carried))
}

/// Notes whether the session waits for its human, and tells the server when that changes.
fn note_waiting(session: &Arc<Session>, event: &Event) {
    let hooks = &session.hooks;
    let mut memory = hooks.memory();
    let waits = memory.waits.heard(event);
    let changed = hooks.waiting.send_if_modified(|known| {
        let changed = *known != waits;
        *known = waits;
        changed
    });
    drop(memory);
    if changed && !hooks.reporting.swap(true, Ordering::Relaxed) {
        tokio::spawn(report_waiting(session.clone()));
    }
}

/// Keeps the server told of what the session waits for, as long as the session is open.
async fn report_waiting(session: Arc<Session>) {
    let mut waiting = session.hooks.waiting.subscribe();
    let mut over = session.over.subscribe();
    let mut pause = REPORT_PAUSE;
    waiting.mark_changed();
    loop {
        tokio::select! {
            _ = waiting.changed() => {}
            _ = over.wait_for(|over| *over) => return,
        }
        let now = *waiting.borrow_and_update();
        let request = json!({ "for": now });
        let told = session
            .client
            .call(&session.pid, "session_waiting", request)
            .await;
        match told {
            Ok(_) => pause = REPORT_PAUSE,
            Err(problem) if problem.status >= 500 || problem.is_busy() => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(REPORT_PAUSE_MAX);
                waiting.mark_changed();
            }
            Err(problem) => {
                tracing::debug!(%problem, "The server does not hear that the session waits");
            }
        }
    }
}

/// Writes down what is known of a session whose agent did not; nothing where nothing happened.
pub async fn leave(session: &Session, reason: &str, within: Duration) {
    let leaving = async {
        let _one = session.hooks.leaving.lock().await;
        let seen = {
            let mut memory = session.hooks.memory();
            if memory.seen.is_nothing() || session.is_over() {
                return;
            }
            let newest = memory.newest.take();
            if let Some(newest) = newest.filter(|p| origin_of(p) == Origin::Person) {
                memory.seen.last_prompt = Some(newest.text);
            }
            std::mem::take(&mut memory.seen)
        };
        // A repository that takes longer than half the time is left out.
        let files = tokio::time::timeout(within / 2, async {
            let baseline = session.baseline().await?;
            Some((baseline.touched().await?, baseline.root().to_owned()))
        });
        let (files, root) = files.await.ok().flatten().unzip();
        let request = json!({
            "summary": seen.summary(reason), "touched_files": files, "root": root,
        });
        let left = session.client.call(&session.pid, "session_left", request);
        if let Err(problem) = left.await {
            tracing::warn!(%problem, "What is left of the session could not be written down");
        }
    };
    drop(tokio::time::timeout(within, leaving).await);
}
