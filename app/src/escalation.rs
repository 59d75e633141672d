//! What nobody reads climbs: one rung up, then onto the operator's own line and to their command.
//!
//! Where a signal stands is in its row; the operator's line is a copy of rows, made again at every
//! start. What is in memory only saves work.

use crate::clock;
use crate::config::Config;
use crate::home::Home;
use crate::prism::Prism;
use crate::shim::cache::Cache;
use crate::store::{DueRow, Escalated};
use prism_core::api::ServerFrame;
use prism_core::bell::Notice;
use prism_core::escalation::{self, Due, Escalation, Program, Reach, Step, Told};
use prism_core::limits::{ESCALATION_ROWS, NOTIFY_RETRY_US, NOTIFY_S, RING_ENTRIES_MAX};
use prism_core::presence::RecipientState;
use prism_core::ring::Entry;
use prism_core::{Moment, Problem};
use std::collections::HashMap;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use uuid::Uuid;

pub struct Escalator {
    pub settings: Escalation,
    /// The operator's ring and count, for their own status line.
    line: Cache,
    /// What the line shows; unknown until the first look.
    shown: Mutex<Option<Vec<String>>>,
    /// Whether the operator's command may not have been run for something.
    to_notify: AtomicBool,
    /// The command runs: one at a time.
    notifying: Arc<AtomicBool>,
    /// When it could not be started last.
    not_started: Mutex<Option<Moment>>,
}

impl Escalator {
    pub fn new(config: &Config, home: &Home) -> Self {
        Self {
            settings: config.escalation.clone(),
            line: Cache::new(home.clone(), &config.operator),
            shown: Mutex::default(),
            to_notify: AtomicBool::new(true),
            notifying: Arc::default(),
            not_started: Mutex::default(),
        }
    }

    /// Whether the command may be tried; a clock that was set back asks for no patience.
    fn may_notify(&self, now: Moment) -> bool {
        let last = self.not_started.lock();
        let last = *last.unwrap_or_else(PoisonError::into_inner);
        last.is_none_or(|at| !(0..NOTIFY_RETRY_US).contains(&now.since_us(at)))
    }

    fn not_started(&self, now: Moment) {
        let last = self.not_started.lock();
        *last.unwrap_or_else(PoisonError::into_inner) = Some(now);
    }
}

impl Prism {
    /// One round: what is due takes its step, and the operator's line says what waits.
    pub async fn escalate(&self) -> Result<(), Problem> {
        let now = clock::now();
        let latest = now.plus_us(self.escalator.settings.ahead_us());
        let due = self.store.escalation_due(now, latest, ESCALATION_ROWS);
        let mut due = due.await?;
        // Whoever sits at a server that cannot be told from here is that server's to ring: to put it off would take
        // the step from it. Once nothing is heard of them they are nobody's.
        due.retain(|row| !self.is_beyond_reach(row.to_persona, now));
        if !due.is_empty() {
            let steps = due.into_iter().map(|row| self.step_of(row, now)).collect();
            let taken = self.store.escalate(steps, now).await?;
            self.tell_escalated(taken);
        }
        let told = self.store.at_operator().await?;
        self.show_operator(&told);
        self.notify_operator(now).await
    }

    fn step_of(&self, row: DueRow, now: Moment) -> Escalated {
        let due = Due {
            climbed: row.climbed,
            leased_until: row.leased_until,
            reach: self.reach(&row, now),
        };
        let step = escalation::step(due, now);
        let window = self.escalator.settings.window_us(row.notice.category);
        let again_at = match step {
            // Switched off meanwhile: it stays where it is.
            Step::Climb => window.map(|us| now.plus_us(us)),
            Step::Operator => None,
            Step::Later(at) => Some(at),
        };
        Escalated {
            row,
            step,
            again_at,
        }
    }

    fn is_beyond_reach(&self, persona: Uuid, now: Moment) -> bool {
        !self
            .hub
            .is_subscribed(persona, crate::store::Audience::Everybody)
            && self.presence.is_elsewhere(persona, now, |_| true)
            && !self.is_elsewhere(persona, now)
    }

    fn reach(&self, row: &DueRow, now: Moment) -> Reach {
        let everybody = crate::store::Audience::Everybody;
        if row.to_operator {
            Reach::Nobody
        } else if self.hub.is_subscribed(row.to_persona, everybody)
            || self.is_elsewhere(row.to_persona, now)
        {
            Reach::Connected
        } else {
            let state = self.presence.recipient_state(row.to_persona, false, now);
            match state {
                RecipientState::Live => Reach::Live,
                _ => Reach::Nobody,
            }
        }
    }

    /// One frame an inbox for all that climb: its sessions ring once for them.
    fn tell_escalated(&self, taken: Vec<Escalated>) {
        let mut climbing: HashMap<Uuid, Vec<Notice>> = HashMap::new();
        for escalated in taken {
            match escalated.step {
                Step::Climb => {
                    let row = escalated.row;
                    climbing.entry(row.to_persona).or_default().push(row.notice);
                }
                Step::Operator => self.escalator.to_notify.store(true, Ordering::Relaxed),
                Step::Later(_) => {}
            }
        }
        for (persona, notices) in climbing {
            let frame = ServerFrame::Escalated { notices };
            self.bus().tell(persona, None, frame);
        }
    }

    /// The operator's ring holds exactly what waits; a home that cannot be written costs the line.
    fn show_operator(&self, told: &[Told]) {
        let waiting: Vec<String> = told.iter().map(|t| t.entry.sid.clone()).collect();
        let shown = &self.escalator.shown;
        let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.as_ref() == Some(&waiting) {
            return;
        }
        let entries: Vec<Entry> = told.iter().map(Told::entry).collect();
        match self.escalator.line.shows(&entries) {
            Ok(()) => *shown = Some(waiting),
            Err(error) => {
                tracing::warn!(error = %format!("{error:#}"), "Could not write the operator's line");
            }
        }
    }

    /// Runs the operator's command for what is new, all of it at once. That is noted first, so that one of
    /// several servers runs it; a command that cannot be started is tried again.
    async fn notify_operator(&self, now: Moment) -> Result<(), Problem> {
        let escalator = &self.escalator;
        let Some(program) = escalator.settings.notify.clone() else {
            return Ok(());
        };
        if program.parts().is_none()
            || escalator.notifying.load(Ordering::Relaxed)
            || !escalator.may_notify(now)
            // Of several servers, another may have taken the step.
            || !(escalator.to_notify.swap(false, Ordering::Relaxed) || self.store.is_shared())
        {
            return Ok(());
        }
        let again = || escalator.to_notify.store(true, Ordering::Relaxed);
        let told = self.store.unnotified(RING_ENTRIES_MAX).await;
        let told = told.inspect_err(|_| again())?;
        if told.is_empty() {
            return Ok(());
        }
        // There may be more than one command can tell, and this one may not start.
        again();
        let signals = told.iter().map(|t| t.entry.sid.clone()).collect();
        let mine = self.store.notified(signals, now).await?;
        let told: Vec<Told> = told
            .into_iter()
            .filter(|t| mine.contains(&t.entry.sid))
            .collect();
        let Some((title, body)) = escalation::notification(&told) else {
            return Ok(());
        };
        let child = match start(&program, &title, &body) {
            Ok(child) => child,
            Err(error) => {
                escalator.not_started(now);
                tracing::warn!(%error, "The operator's notify command cannot be started");
                return Ok(self.store.not_notified(mine).await?);
            }
        };
        escalator.notifying.store(true, Ordering::Relaxed);
        let running = escalator.notifying.clone();
        tokio::spawn(async move {
            to_its_end(child).await;
            running.store(false, Ordering::Relaxed);
        });
        Ok(())
    }
}

/// Starts a command, without a shell; what it prints is not read.
fn start(program: &Program, title: &str, body: &str) -> std::io::Result<Child> {
    let (name, arguments) = program.parts().ok_or(std::io::ErrorKind::InvalidInput)?;
    Command::new(name)
        .args(arguments)
        .args([title, body])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
}

/// Lets a command come to its end, for a limited time.
async fn to_its_end(mut child: Child) {
    let ended = tokio::time::timeout(Duration::from_secs(NOTIFY_S), child.wait()).await;
    let failed = match ended {
        Ok(Ok(status)) if status.success() => return,
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it did not end within {NOTIFY_S} s"),
    };
    tracing::warn!(%failed, "The operator's notify command failed");
}
