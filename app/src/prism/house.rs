//! Housekeeping: who came and left, what expired, what goes back, what is old.

use super::Prism;
use crate::clock;
use crate::config;
use crate::presence::Came;
use crate::retention::Pruner;
use crate::store::{Duty, ReturnedRow, SessionRow};
use prism_core::api::{ServerFrame, close};
use prism_core::bus::News;
use prism_core::envelope::Envelope;
use prism_core::limits::{DUTY_US, HEARTBEAT_S, STALE_US, SWEPT_US};
use prism_core::receipt::State;
use prism_core::signal::SignalType;
use prism_core::{Moment, Problem};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
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
        self.release_if(session, reason, None).await
    }

    /// Ends a session that its row, too, says was silent since then.
    pub async fn release_silent(
        &self,
        session: &SessionRow,
        silent_since: Moment,
    ) -> Result<(), Problem> {
        // A server that is alone knows better than a row that it writes twice a minute.
        let by_row = self.store.is_shared().then_some(silent_since);
        self.release_if(session, "stale", by_row).await
    }

    async fn release_if(
        &self,
        session: &SessionRow,
        reason: &str,
        silent_since: Option<Moment>,
    ) -> Result<(), Problem> {
        let now = clock::now();
        let returned = self
            .store
            .release_session(session.id, reason.to_owned(), silent_since, now)
            .await?;
        match returned {
            Some(returned) => self.released(session, reason, returned, now),
            // It lives after all, or another server was quicker and has told everybody.
            None if silent_since.is_some() => {
                self.session_heard(session.id);
                self.read_heard_sessions().await?;
            }
            None if self.store.is_shared() => {
                self.presence.release(session.id, now);
                self.hub.close_session(session.id, close::RELEASED, reason);
            }
            None => self.released(session, reason, Vec::new(), now),
        }
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
            self.metrics.expired.fetch_add(1, Ordering::Relaxed);
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
        self.look_at_inboxes().await?;
        self.keep_demo_awake(now);
        let shared = self.store.is_shared();
        if shared {
            self.look_at_waiting().await?;
            self.look_for_moved(now).await?;
        }
        let mut now = now;
        if shared && self.presence.any_ahead(now) {
            // Was another's clock set back, or did this machine sleep? The database knows.
            self.store.follow_clock().await?;
            now = clock::now();
        }
        let (mut gone, silent) = self.presence.sweep(now, shared);
        if shared {
            gone = self.who_left(now).await?;
        }
        for session in gone {
            self.announce(&session, SignalType::PeerLeft);
        }
        for session in silent {
            self.release_silent(&session, now.plus_us(-SWEPT_US))
                .await?;
        }
        Ok(())
    }

    /// Whoever was silent at every server has left, and one of them says so.
    async fn who_left(&self, now: Moment) -> Result<Vec<SessionRow>, Problem> {
        let term_us = self.judges_from.load(Ordering::Relaxed) - now.0;
        if (1..=STALE_US).contains(&term_us) {
            return Ok(Vec::new());
        }
        let since = now.plus_us(-STALE_US);
        if !self.store.any_silent(since).await? {
            return Ok(Vec::new());
        }
        let seen = self.presence.take_seen(now);
        let mut left = self.store.left_since(since, seen, now).await?;
        for session in &left {
            self.presence.has_left(session.clone());
            self.bus().session_changed(session.id);
        }
        // Its peers never heard of one that said nothing.
        left.retain(|session| session.first_verb_at.is_some());
        Ok(left)
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

    /// Whether old rows are this server's to take out: one of several does.
    async fn keeps_history(&self) -> bool {
        let now = clock::now();
        let until = now.plus_us(DUTY_US);
        let has_it = self.store.has_duty(Duty::Retention, now, until).await;
        has_it.unwrap_or(false)
    }

    /// Sweeps every two seconds until told to stop.
    pub async fn keep_house(self: Arc<Self>) {
        // Where a test moves the clock, what follows from it must not take two seconds.
        let period = config::clock_file().map_or(SWEEP, |_| SWEEP / 20);
        let beat = period * 15;
        let mut beaten = Instant::now();
        let mut pruner = None;
        loop {
            if let Err(problem) = self.sweep().await {
                tracing::warn!(%problem, "A sweep failed; the next one is in two seconds");
                let term = clock::now().plus_us(STALE_US).0;
                self.judges_from.store(term, Ordering::Relaxed);
            }
            self.store.look_for_room().await;
            if self.is_deaf() {
                self.names_heard();
            }
            if let Err(problem) = self.read_names().await {
                tracing::warn!(%problem, "Names that a merge changed could not be read yet");
            }
            if let Err(problem) = self.escalate().await {
                tracing::warn!(%problem, "What waits too long could not be looked at");
            }
            if self.keeps_history().await {
                match &mut pruner {
                    Some(pruner) => Pruner::step(pruner, &self.store).await,
                    None => pruner = Pruner::open(&self.store, self.retention).await.ok(),
                }
                self.count_words().await;
            }
            // By time, not by rounds: those of a quiet one are long.
            if beaten.elapsed() >= beat {
                beaten = Instant::now();
                if let Err(error) = self.store.follow_clock().await {
                    tracing::warn!(%error, "The database's clock could not be read");
                }
                // Elsewhere a socket is known by its row alone: it is written before anybody may take it for stale.
                let now = clock::now();
                let dirty = match self.store.is_shared() {
                    true => self.presence.take_seen(now),
                    false => self.presence.take_dirty(),
                };
                if !dirty.is_empty() {
                    self.store.touch_sessions(dirty, now);
                }
                // What the others have written of theirs.
                if self.bus().carrier().is_shared() {
                    self.names_heard();
                }
            }
            self.pause_until_due(period).await;
        }
    }
}
