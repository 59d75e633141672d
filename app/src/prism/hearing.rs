//! What other servers say, and what is read again for it; and what is looked at without being told.

use super::{Prism, Waiting};
use crate::bus::{Carrier, Heard, Incoming};
use crate::clock;
use crate::hub::Hub;
use crate::presence::{Learned, Reading};
use crate::store::{Copy, KeyRow, Signs, WaitingSign};
use prism_core::api::{ServerFrame, close};
use prism_core::bus::News;
use prism_core::receipt::PublishPath;
use prism_core::{Code, Moment, Problem};
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use uuid::Uuid;

/// Between two readings of all names: many may be added at once.
const NAMES_PAUSE: Duration = Duration::from_millis(100);
/// Between two looks at the store for names that memory does not know: whoever has a key may ask for any.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Between two looks for keys that memory does not know: anybody may send any.
const STRANGERS_PAUSE: Duration = Duration::from_secs(1);
/// How often a server looks whether others have changed what it has in memory, whoever has told it.
const LOOK_AROUND: Duration = Duration::from_secs(1);
/// Sessions that are read one by one; of more, all open ones are read.
const SESSIONS_HEARD_MAX: usize = 200;
/// How long ago a session may have come to another server to be looked for: longer than looks are apart, and than clocks are.
const MOVED_US: i64 = 60 * 1_000_000;
/// Signals of other servers that wait to be shown to whoever watches.
const TO_SHOW_MAX: usize = 256;

/// A signal that another server has stored.
struct ToShow {
    project: Uuid,
    persona: Uuid,
    seq: i64,
}

impl Prism {
    /// Becomes one of several servers: tells them, and hears what they say until the server stops.
    pub async fn join(self: Arc<Self>, carrier: Carrier, mut incoming: Incoming) {
        self.bus().join(carrier);
        let (show, to_show) = mpsc::channel(TO_SHOW_MAX);
        let hearing = async {
            while let Some(heard) = incoming.next().await {
                self.hear(heard, &show).await;
            }
        };
        tokio::select! {
            () = hearing => {}
            () = self.keep_names() => {}
            () = self.look_around() => {}
            () = self.show(to_show) => {}
        }
    }

    /// Sees what others have changed, even those that cannot speak: rows say so.
    async fn look_around(&self) {
        loop {
            if let Err(problem) = self.look().await {
                tracing::warn!(%problem, "Could not look for what other servers have changed");
            }
            self.pause(LOOK_AROUND).await;
        }
    }

    async fn look(&self) -> Result<(), Problem> {
        let signs = self.store.signs().await?;
        let (names, sessions) = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            (seen.names != signs.names, seen.sessions != signs.sessions)
        };
        if names {
            // All of it is read, sessions as well.
            self.names_heard();
        } else if sessions {
            self.read_sessions().await?;
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.sessions = signs.sessions;
        }
        self.embedder.answers_in(signs.generation.as_deref());
        Ok(())
    }

    /// The names in memory are of this change.
    pub(super) fn saw_names(&self, names: i64) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.names = names;
    }

    pub(super) async fn read_sessions(&self) -> Result<(), Problem> {
        let (presence, hub) = (self.presence.clone(), self.hub.clone());
        // Followed at once: a reading that breaks off is begun anew and does not see it again.
        let learn = move |reading: &mut Reading, row| {
            presence.learn(row, reading);
            follow(&hub, reading.take_learned());
        };
        let began = clock::now();
        let read = self.store.each_open_session(Reading::new(began), learn);
        let mut learned = self.presence.has_read(read.await?);
        let unsure = std::mem::take(&mut learned.unsure);
        self.learnt(learned);
        // Rows in whatever state say of those whether they have ended or are to come.
        for some in unsure.chunks(SESSIONS_HEARD_MAX) {
            let rows = self.store.sessions_of(some.to_vec()).await?;
            self.learnt(self.presence.learn_of(rows, began));
        }
        Ok(())
    }

    /// Sessions that came to other servers lately have left this one, whether or not anybody said so.
    pub(super) async fn look_for_moved(&self, now: Moment) -> Result<(), Problem> {
        let since = now.plus_us(-MOVED_US);
        for session in self.store.seated_elsewhere(since).await? {
            if self.presence.is_seated(session) {
                self.session_heard(session);
            }
        }
        Ok(())
    }

    /// Nobody here hears what becomes of signals: where something has become of what waited at the last look, sockets say hello
    /// anew, by which they agree with their inbox.
    pub(super) async fn look_at_waiting(&self) -> Result<(), Problem> {
        if !self.is_deaf() {
            *self.waiting() = None;
            return Ok(());
        }
        let reached = self.hub.reached();
        let before = self.waiting().take();
        let then = |persona| before.as_ref().and_then(|before| before.get(&persona));
        let through = |persona| then(persona).map_or(0, |(through, _)| *through);
        let inboxes = reached.iter().map(|(p, reach)| (*p, through(*p), *reach));
        let signs = self.store.waiting_signs(inboxes.collect()).await?;
        let is_other = |(persona, [up_to_then, now]): &(Uuid, [WaitingSign; 2])| {
            let reach = reached.get(persona).copied().unwrap_or_default();
            then(*persona).is_some_and(|(through, before)| {
                // Of what was sent since, each has a place of its own.
                before != up_to_then || now.count() - up_to_then.count() < reach - through
            })
        };
        let others: HashSet<Uuid> = signs.iter().filter(|s| is_other(s)).map(|s| s.0).collect();
        // What was said while it became deaf may be lost already.
        let is_new = before.is_none();
        let now = signs.iter().filter_map(|(persona, [_, now])| {
            let through = reached.get(persona)?;
            Some((*persona, (*through, *now)))
        });
        *self.waiting() = Some(now.collect());
        self.hub
            .say_again(|persona| is_new || others.contains(&persona));
        Ok(())
    }

    fn waiting(&self) -> MutexGuard<'_, Option<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sockets of sessions that are elsewhere or over have nobody left to serve.
    pub(super) fn learnt(&self, learned: Learned) {
        follow(&self.hub, learned);
    }

    /// A session was said to be another now: its row is read, with others that are said meanwhile.
    pub(super) fn session_heard(&self, session: Uuid) {
        let heard = self.sessions_heard.lock();
        heard
            .unwrap_or_else(PoisonError::into_inner)
            .insert(session);
        self.names_wake.notify_one();
    }

    pub(super) async fn read_heard_sessions(&self) -> Result<(), Problem> {
        let heard = {
            let heard = self.sessions_heard.lock();
            std::mem::take(&mut *heard.unwrap_or_else(PoisonError::into_inner))
        };
        match heard.len() {
            0 => Ok(()),
            1..=SESSIONS_HEARD_MAX => {
                let began = clock::now();
                let rows = self
                    .store
                    .sessions_of(heard.iter().copied().collect())
                    .await;
                let rows = rows.inspect_err(|_| {
                    // They are read with the next that is heard of, or the next round.
                    let again = self.sessions_heard.lock();
                    again.unwrap_or_else(PoisonError::into_inner).extend(heard);
                })?;
                self.learnt(self.presence.learn_of(rows, began));
                Ok(())
            }
            _ => self.read_sessions().await,
        }
    }

    /// Ends what was opened here with keys that rows say are revoked.
    pub(super) async fn shut_revoked(&self, keys: &[KeyRow]) {
        let used = self.hub.keys();
        let revoked = keys.iter().filter(|key| key.revoked_at.is_some());
        for key in revoked.filter(|key| used.contains(&key.id)) {
            self.end_opened_with(key.id).await;
        }
    }

    /// Whether other servers may have said something that nobody here has heard.
    pub(super) fn is_deaf(&self) -> bool {
        let health = self.bus().carrier().health();
        health.is_some_and(|health| !health.is_hearing())
    }

    /// The names of the store have changed: here and everywhere they are read again.
    pub fn names_changed(&self) {
        self.names_wanted.fetch_add(1, Ordering::AcqRel);
        self.bus().directory_changed();
    }

    /// Somebody else has changed the names of the store.
    pub(super) fn names_heard(&self) {
        self.names_wanted.fetch_add(1, Ordering::AcqRel);
        self.names_wake.notify_one();
    }

    /// Asks memory; where another server may have written the row since, the store is read first and
    /// memory asked again: whoever registered there may be here a moment later.
    pub async fn known<T>(&self, ask: impl Fn() -> Result<T, Problem>) -> Result<T, Problem> {
        self.is_asked().await?;
        let asked = Instant::now();
        match ask() {
            Err(problem) if self.may_be_news(&problem) => {
                let pause = match problem.is(Code::InvalidKey) {
                    true => STRANGERS_PAUSE,
                    false => LOOK_PAUSE,
                };
                self.look_again(asked, pause).await?;
                ask()
            }
            answer => answer,
        }
    }

    fn may_be_news(&self, problem: &Problem) -> bool {
        let unknown = [
            Code::InvalidKey,
            Code::UnknownProject,
            Code::NoPersona,
            Code::UnknownRecipient,
            Code::UnknownSession,
            Code::SessionReleased,
        ];
        self.bus().carrier().is_shared()
            && !problem.is_revoked()
            && unknown.iter().any(|code| problem.code == code.name())
    }

    /// Reads what others have changed, if they have, unless somebody has begun to since `asked`. Whoever asks again
    /// before the pause is over waits with others for the next look: it costs the store no more than one.
    pub(super) async fn look_again(&self, asked: Instant, pause: Duration) -> Result<(), Problem> {
        loop {
            let mut looked_at = self.looked_at.lock().await;
            if looked_at.is_some_and(|at| at > asked) {
                return Ok(());
            }
            let began = Instant::now();
            if let Some(next) = looked_at.map(|at| at + pause).filter(|next| *next > began) {
                drop(looked_at);
                tokio::time::sleep_until(next.into()).await;
                continue;
            }
            match self.store.is_shared() {
                true => self.look().await?,
                // Its rows say nothing of changes.
                false => self.names_heard(),
            }
            self.read_names().await?;
            *looked_at = Some(began);
            return Ok(());
        }
    }

    async fn hear(&self, heard: Heard, show: &mpsc::Sender<ToShow>) {
        let Heard::News { news, at, .. } = heard else {
            self.quiet.ends();
            return self.hear_of_a_gap().await;
        };
        if matches!(*news, News::Gone) {
            // Its sockets have ended, and their sessions will have others. Whoever comes to a quiet one is answered after a look.
            if !self.is_quiet() {
                self.names_heard();
            }
            return;
        }
        self.quiet.ends();
        match *news {
            News::Sent {
                project,
                persona,
                seq,
                ..
            } => {
                self.store.inbox_filled(persona);
                let hop_us = clock::now().since_us(at).max(0);
                self.hub.heard_by_word(persona, seq, hop_us);
                if self.hub.is_watched(project) {
                    // Who watches sees what there is time for.
                    let _ = show.try_send(ToShow {
                        project,
                        persona,
                        seq,
                    });
                }
            }
            News::Tell {
                persona,
                except,
                frame,
            } if frame.is_told() => self.hub.tell(persona, except, &frame),
            News::TellProject {
                project,
                except,
                frame,
            } if frame.is_of_the_mesh() => self.hub.tell_project(project, except, &frame),
            News::Directory => self.names_heard(),
            News::Session { session } => self.session_heard(session),
            // Rows say whether it is so: whoever may speak here may not end anything by a word.
            News::Revoked { .. } => self.names_heard(),
            News::Released { session, .. } => self.session_heard(session),
            News::Touched(rows) => self.hub.live().heard(rows),
            // No server says other frames to another: whoever does is none.
            News::Tell { .. } | News::TellProject { .. } => {}
            News::Gone | News::Lost | News::Here { .. } | News::Unknown => {}
        }
    }

    /// What was opened here with a key ends here; who revoked it ends what it knows of.
    async fn end_opened_with(&self, key: Uuid) {
        let opened = self.hub.sessions_of_key(key);
        self.hub.close_key(key, close::RELEASED, close::KEY_REVOKED);
        for session in opened.into_iter().filter_map(|id| self.presence.get(id)) {
            if let Err(problem) = self.release(&session, "key_revoked").await {
                tracing::warn!(%problem, "A session of a revoked key is still open");
            }
        }
    }

    /// Something was missed: everything that others may have changed is read again.
    async fn hear_of_a_gap(&self) {
        self.names_heard();
        self.hub.live().behind();
        self.hub.say_again(|_| true);
        if let Err(problem) = self.look_at_inboxes().await {
            tracing::warn!(%problem, "Inboxes are looked at again in two seconds");
        }
    }

    /// Whether a session of a persona has its socket at another server that can be told now.
    pub fn is_elsewhere(&self, persona: Uuid, now: Moment) -> bool {
        let carrier = self.bus().carrier();
        let reaches = |server| carrier.reaches(server, now);
        self.presence.is_elsewhere(persona, now, reaches)
    }

    /// Sees how far inboxes reach: further than their sockets were sent, or, after a failover that lost something, less far.
    pub(super) async fn look_at_inboxes(&self) -> Result<(), Problem> {
        let reached = self.hub.reached();
        let heads = self.store.heads(reached.keys().copied().collect()).await?;
        self.hub.fell_short(&reached, &heads);
        self.hub.heard_of(&heads);
        Ok(())
    }

    /// The database is the copy that it says it is. Where that is another one than before, a standby has taken over or an
    /// earlier state was brought back: commits that were told of may be gone, and their places others'. Everything is
    /// read again, and every socket says hello anew. So it is where the database was started anew: what it stands on
    /// may be an earlier state, and whoever says hello knows by its last signal whether it is.
    pub fn stands_on(&self, copy: &Copy) {
        let before = {
            let mut known = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
            if known.as_ref() == Some(copy) {
                return;
            }
            known.replace(copy.clone())
        };
        let Some(before) = before else { return };
        let is_another = before.name != copy.name;
        match is_another {
            false => tracing::info!("The database was started anew: everything is read again"),
            true => tracing::warn!(
                before = before.name,
                copy = copy.name,
                "Another copy of the database answers: everything is read again"
            ),
        }
        self.store.connect_anew();
        self.store.projects_moved();
        self.gate.forget();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Signs::default();
        self.names_heard();
        self.hub.live().behind();
        match is_another {
            true => self.hub.restart(),
            false => self.hub.restart_older(),
        }
    }

    /// Which copy of the database this is, where it says so.
    pub fn copy(&self) -> Option<String> {
        let copy = self.copy.lock().unwrap_or_else(PoisonError::into_inner);
        copy.as_ref().map(|copy| copy.name.clone())
    }

    async fn keep_names(&self) {
        loop {
            self.names_wake.notified().await;
            if let Err(problem) = self.read_names().await {
                tracing::warn!(%problem, "Names that another server changed could not be read yet");
            }
            if let Err(problem) = self.read_heard_sessions().await {
                tracing::warn!(%problem, "Sessions of another server could not be read yet");
            }
            tokio::time::sleep(NAMES_PAUSE).await;
        }
    }

    /// Shows signals of other servers to whoever watches here.
    async fn show(&self, mut signals: mpsc::Receiver<ToShow>) {
        while let Some(ToShow {
            project,
            persona,
            seq,
        }) = signals.recv().await
        {
            let page = self
                .store
                .replay(persona, None, seq.saturating_sub(1), false, 1);
            let page = page.await;
            let Ok(page) = page else { continue };
            let signal = page.rows.into_iter().find(|row| row.seq == seq);
            if let Some(signal) = signal.filter(|row| !row.envelope.is_loopback()) {
                self.hub.show(project, || ServerFrame::Watched {
                    envelope: signal.envelope,
                    publish_path: PublishPath::Published,
                });
            }
        }
    }
}

/// Closes what sockets here have nobody left to serve.
fn follow(hub: &Hub, learned: Learned) {
    for session in learned.moved {
        let why = "the session has come to another server";
        hub.close_session(session, close::MOVED, why);
    }
    for session in learned.over {
        let why = "the session is over";
        hub.close_session(session, close::RELEASED, why);
    }
}
