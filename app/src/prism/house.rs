//! Housekeeping: who came and left, what expired, what goes back, what is old.

use super::Prism;
use crate::clock;
use crate::config;
use crate::presence::Came;
use crate::retention::Pruner;
use crate::store::{ReturnedRow, SessionRow};
use prism_core::api::{ServerFrame, close};
use prism_core::bus::News;
use prism_core::envelope::Envelope;
use prism_core::limits::HEARTBEAT_S;
use prism_core::receipt::State;
use prism_core::signal::SignalType;
use prism_core::{Moment, Problem};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How often the sweep looks for expired signals, returned leases and missed pushes.
const SWEEP: Duration = Duration::from_secs(2);
/// Steps of counting words in one round; each is a commit of its own.
const WORD_STEPS: usize = 20;
/// Rows that one sweep ends at the most; the rest wait two seconds.
const SWEEP_ROWS: usize = 500;

impl Prism {
    pub fn announce(&self, session: &SessionRow, event: SignalType) {
        let envelope = Envelope {
            signal_id: clock::new_id(),
            signal_type: event.name().into(),
            category: None,
            from_identity: session.identity.to_string(),
            from_session: Some(session.id),
            to_identity: "*".into(),
            payload: serde_json::Map::from_iter([
                ("surface".to_owned(), session.surface.clone().into()),
                ("machine_id".to_owned(), session.machine_id.clone().into()),
            ]),
            in_reply_to: None,
            created_at: Some(clock::now()),
            trace_id: None,
            seq: None,
            pid: None,
        };
        self.bus().tell_project(
            session.project_id,
            Some(session.id),
            ServerFrame::Event { envelope },
        );
    }

    /// Tells the peers of a session that it is there, when they do not know.
    pub fn announce_arrival(&self, session: &SessionRow, came: Came) {
        if came != Came::Known {
            self.announce(session, SignalType::PeerJoined);
        }
    }

    pub async fn release(&self, session: &SessionRow, reason: &str) -> Result<(), Problem> {
        let now = clock::now();
        let returned = self
            .store
            .release_session(session.id, reason.to_owned(), now)
            .await?;
        self.released(session, reason, returned, now);
        Ok(())
    }

    /// Tells whoever it concerns of a session that the store has just ended.
    pub fn released(
        &self,
        session: &SessionRow,
        reason: &str,
        returned: Vec<ReturnedRow>,
        now: Moment,
    ) {
        let left = self.presence.release(session.id, now);
        self.hub.close_session(session.id, close::RELEASED, reason);
        self.bus().carrier().say(|| News::Released {
            session: session.id,
            reason: reason.to_owned(),
        });
        self.tell_returned(returned);
        if let Some(left) = left {
            self.announce(&left, SignalType::PeerLeft);
        }
    }

    /// What was leased and not confirmed waits again: whoever is there marks it unread and rings.
    fn tell_returned(&self, returned: Vec<ReturnedRow>) {
        let mut by_inbox: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for row in returned {
            by_inbox
                .entry(row.to_persona)
                .or_default()
                .push(row.signal_id);
        }
        for (persona, signal_ids) in by_inbox {
            self.bus()
                .tell(persona, None, ServerFrame::Returned { signal_ids });
        }
    }

    /// One round of housekeeping: what expired, what was not confirmed, who left.
    pub async fn sweep(&self) -> Result<(), Problem> {
        let now = clock::now();
        let swept = self.store.sweep(now, SWEEP_ROWS).await?;
        for ended in swept.expired {
            self.metrics
                .expired
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.bus().tell(
                ended.to_persona,
                None,
                ServerFrame::Ended {
                    signal_ids: vec![ended.signal_id],
                    state: State::Expired,
                },
            );
        }
        self.tell_returned(swept.leases_returned);
        let heads = self.store.heads(self.hub.personas()).await?;
        self.hub.heard_of(&heads);
        self.keep_demo_awake(now);
        let (gone, silent) = self.presence.sweep(now);
        for session in gone {
            self.announce(&session, SignalType::PeerLeft);
        }
        for session in silent {
            self.release(&session, "stale").await?;
        }
        Ok(())
    }

    /// Nobody sends a sign of life for the sessions of the demonstration, which belong to no process.
    fn keep_demo_awake(&self, now: Moment) {
        let Some(project) = self.directory.project(crate::demo::PID) else {
            return;
        };
        for (_, session) in self.presence.sessions(project.id, now) {
            let silent_us = now.since_us(session.last_seen_at);
            if session.process_pid == 0 && silent_us > HEARTBEAT_S as i64 * 1_000_000 {
                self.presence.seen(session.session_id, now);
            }
        }
    }

    /// Counts the words of a home that an older prism wrote, a few steps at a time.
    async fn count_words(&self) {
        for _ in 0..WORD_STEPS {
            match self.store.count_words().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return tracing::warn!(%error, "Words are not counted for now"),
            }
        }
    }

    /// Sweeps every two seconds until told to stop.
    pub async fn keep_house(self: Arc<Self>) {
        // Where a test moves the clock, what follows from it must not take two seconds.
        let period = config::clock_file().map_or(SWEEP, |_| SWEEP / 20);
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = 0u64;
        let mut pruner = None;
        loop {
            ticks.tick().await;
            round += 1;
            if let Err(problem) = self.sweep().await {
                tracing::warn!(%problem, "A sweep failed; the next one is in two seconds");
            }
            if self.is_deaf() {
                self.names_heard();
            }
            if let Err(problem) = self.read_names().await {
                tracing::warn!(%problem, "Names that a merge changed could not be read yet");
            }
            if let Err(problem) = self.escalate().await {
                tracing::warn!(%problem, "What waits too long could not be looked at");
            }
            match &mut pruner {
                Some(pruner) => Pruner::step(pruner, &self.store).await,
                None => pruner = Pruner::open(&self.store, self.retention).await.ok(),
            }
            self.count_words().await;
            if round.is_multiple_of(15) {
                let dirty = self.presence.take_dirty();
                if !dirty.is_empty() {
                    self.store.touch_sessions(dirty);
                }
                // What the others have written of theirs.
                if self.bus().carrier().is_shared() {
                    self.names_heard();
                }
            }
        }
    }
}
