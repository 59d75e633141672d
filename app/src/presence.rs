//! Live sessions: the one source of who is there, for every verb that asks.

use crate::store::SessionRow;
use prism_core::api::{SessionView, WaitsFor};
use prism_core::limits::{SESSIONS_PER_IDENTITY_MAX, STALE_US, SWEPT_US};
use prism_core::presence::{
    Attention, RecipientState, SessionFacts, SessionState, Surface, assumed, recipient_state,
};
use prism_core::{Identity, Moment};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

#[derive(Default)]
pub struct Presence {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<Uuid, Live>,
    /// Personas that ever had a session: offline, not never started.
    started: HashSet<Uuid>,
}

struct Live {
    row: SessionRow,
    sockets: usize,
    /// Known to have left, so that `PeerLeft` is said once.
    left: bool,
    dirty: bool,
    /// When its agent last asked for its inbox.
    read_at: Option<Moment>,
    /// Known from its row alone: another server hears it.
    elsewhere: bool,
}

/// How a sign of life changes what the peers of a session know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Came {
    /// Its first verb.
    First,
    /// It had gone silent, and they were told that it left.
    Back,
    /// They know.
    Known,
}

/// An identity has as many open sessions as it may have.
#[derive(Debug)]
pub struct TooMany {
    pub longest_silent: Option<Box<SessionRow>>,
}

impl Live {
    fn seen(&mut self, now: Moment) -> Came {
        self.row.last_seen_at = now;
        self.dirty = true;
        self.elsewhere = false;
        let was_gone = std::mem::replace(&mut self.left, false);
        match was_gone && self.row.first_verb_at.is_some() {
            true => Came::Back,
            false => Came::Known,
        }
    }

    fn facts(&self) -> SessionFacts {
        SessionFacts {
            released: self.row.released_at.is_some(),
            connected: self.sockets > 0,
            had_verb: self.row.first_verb_at.is_some(),
            last_seen: self.row.last_seen_at,
        }
    }

    /// Only of a session that lives: of another, nobody looks.
    fn attention(&self, now: Moment) -> Option<Attention> {
        let live = matches!(
            self.facts().state(now),
            SessionState::Live | SessionState::Idle
        );
        let surface = Surface::from_name(&self.row.surface).unwrap_or(Surface::Other);
        live.then(|| self.row.attention.unwrap_or(assumed(surface)))
    }

    fn view(&self, now: Moment) -> SessionView {
        SessionView {
            session_id: self.row.id,
            name: self.row.name.clone(),
            identity: self.row.identity.to_string(),
            surface: self.row.surface.clone(),
            machine_id: self.row.machine_id.clone(),
            process_pid: self.row.process_pid,
            state: self.facts().state(now),
            connected: self.sockets > 0,
            started_at: self.row.created_at,
            last_seen_at: self.row.last_seen_at,
            last_verb_at: self.row.last_verb_at,
            waits: self.row.waits.clone(),
            attention: self.attention(now),
            reachable: None,
        }
    }
}

impl Presence {
    /// Notes personas that had a session at some time.
    pub fn have_started(&self, personas: Vec<Uuid>) {
        self.lock().started.extend(personas);
    }

    /// After a restart every open session gets a fresh term to come back in.
    pub fn new(open: Vec<SessionRow>, started: Vec<Uuid>, now: Moment) -> Self {
        let presence = Self::default();
        {
            let mut inner = presence.lock();
            inner.started.extend(started);
            for mut row in open {
                if now.since_us(row.last_seen_at) < STALE_US {
                    row.last_seen_at = now;
                }
                inner.sessions.insert(
                    row.id,
                    Live {
                        row,
                        sockets: 0,
                        left: false,
                        dirty: false,
                        read_at: None,
                        elsewhere: false,
                    },
                );
            }
        }
        presence
    }

    /// Takes over what the rows say of sessions that other servers hear. A session that the rows have
    /// no more was released there; one that began while they were read may not be in them yet.
    pub fn learn(&self, open: Vec<SessionRow>, read_at: Moment) {
        let mut inner = self.lock();
        let known: HashSet<Uuid> = open.iter().map(|row| row.id).collect();
        for (_, live) in inner
            .sessions
            .iter_mut()
            .filter(|(id, _)| !known.contains(id))
        {
            if live.elsewhere && live.row.created_at < read_at {
                live.row.released_at.get_or_insert(read_at);
            }
        }
        for row in open {
            inner.started.insert(row.persona_id);
            let live = inner.sessions.entry(row.id).or_insert_with(|| Live {
                row: row.clone(),
                sockets: 0,
                left: false,
                dirty: false,
                read_at: None,
                elsewhere: true,
            });
            if live.elsewhere && live.row.released_at.is_none() {
                live.row = SessionRow {
                    last_seen_at: live.row.last_seen_at.max(row.last_seen_at),
                    ..row
                };
            } else if row.last_seen_at > live.row.last_seen_at {
                // It has gone to another server, or speaks with both.
                live.row.last_seen_at = row.last_seen_at;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Adds a session, unless its identity has too many open: then the longest silent of those
    /// that are stale may go to make room.
    pub fn add(&self, row: SessionRow, now: Moment) -> Result<(), TooMany> {
        let mut inner = self.lock();
        let open: Vec<&Live> = inner
            .sessions
            .values()
            .filter(|l| l.row.released_at.is_none() && l.row.identity == row.identity)
            .collect();
        if open.len() >= SESSIONS_PER_IDENTITY_MAX {
            let stale = open
                .into_iter()
                .filter(|l| l.facts().state(now) == SessionState::Stale)
                .min_by_key(|l| l.row.last_seen_at);
            return Err(TooMany {
                longest_silent: stale.map(|l| Box::new(l.row.clone())),
            });
        }
        inner.started.insert(row.persona_id);
        inner.sessions.insert(
            row.id,
            Live {
                row,
                sockets: 0,
                left: false,
                dirty: false,
                read_at: None,
                elsewhere: false,
            },
        );
        Ok(())
    }

    /// Takes back a session that could not be written.
    pub fn remove(&self, session: Uuid) {
        self.lock().sessions.remove(&session);
    }

    pub fn get(&self, session: Uuid) -> Option<SessionRow> {
        self.lock().sessions.get(&session).map(|l| l.row.clone())
    }

    /// Notes a verb, and says what its peers must hear of it.
    pub fn verb(&self, session: Uuid, now: Moment) -> Came {
        let mut inner = self.lock();
        let Some(live) = inner.sessions.get_mut(&session) else {
            return Came::Known;
        };
        live.row.last_verb_at = Some(now);
        let came = live.seen(now);
        if live.row.first_verb_at.is_none() {
            live.row.first_verb_at = Some(now);
            return Came::First;
        }
        came
    }

    /// The session could not be opened: its next verb is its first.
    pub fn not_opened(&self, session: Uuid) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.row.first_verb_at = None;
        }
    }

    pub fn named(&self, session: Uuid, name: &str) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.row.name = Some(name.to_owned());
        }
    }

    pub fn waits(&self, session: Uuid, waits: Option<WaitsFor>) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.row.waits = waits;
        }
    }

    pub fn attention(&self, session: Uuid, attention: Attention) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.row.attention = Some(attention);
        }
    }

    pub fn read(&self, session: Uuid, now: Moment) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.read_at = Some(now);
        }
    }

    pub fn last_read(&self, session: Uuid) -> Option<Moment> {
        self.lock().sessions.get(&session).and_then(|l| l.read_at)
    }

    pub fn seen(&self, session: Uuid, now: Moment) -> Came {
        match self.lock().sessions.get_mut(&session) {
            Some(live) => live.seen(now),
            None => Came::Known,
        }
    }

    pub fn connected(&self, session: Uuid, now: Moment) -> Came {
        match self.lock().sessions.get_mut(&session) {
            Some(live) => {
                live.sockets += 1;
                live.seen(now)
            }
            None => Came::Known,
        }
    }

    pub fn disconnected(&self, session: Uuid, now: Moment) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.sockets = live.sockets.saturating_sub(1);
            live.row.last_seen_at = now;
            live.dirty = true;
        }
    }

    /// The open sessions of an identity, in whatever project.
    pub fn open_sessions_of(&self, identity: &Identity) -> Vec<SessionRow> {
        let inner = self.lock();
        let open = inner
            .sessions
            .values()
            .filter(|l| l.row.released_at.is_none() && l.row.identity.is(identity.as_str()));
        open.map(|l| l.row.clone()).collect()
    }

    /// Ends a session; returns it when its peers knew of it and have not heard that it left.
    pub fn release(&self, session: Uuid, now: Moment) -> Option<SessionRow> {
        let mut inner = self.lock();
        let live = inner.sessions.get_mut(&session)?;
        live.row.released_at.get_or_insert(now);
        let told = std::mem::replace(&mut live.left, true);
        (!told && live.row.first_verb_at.is_some()).then(|| live.row.clone())
    }

    pub fn recipient_state(&self, persona: Uuid, is_operator: bool, now: Moment) -> RecipientState {
        let inner = self.lock();
        let mut states: Vec<SessionState> = inner
            .sessions
            .values()
            .filter(|l| l.row.persona_id == persona)
            .map(|l| l.facts().state(now))
            .collect();
        if inner.started.contains(&persona) {
            states.push(SessionState::Released);
        }
        recipient_state(is_operator, &states)
    }

    /// Whether a session of a persona has a socket, and whether one waits for its human.
    pub fn at_hand(&self, persona: Uuid) -> (bool, Option<prism_core::hook::Waiting>) {
        let inner = self.lock();
        let mine = inner
            .sessions
            .values()
            .filter(|l| l.row.persona_id == persona && l.row.released_at.is_none());
        mine.fold((false, None), |(connected, waits), live| {
            let waiting = live.row.waits.as_ref().map(|w| w.r#for);
            (connected || live.sockets > 0, waits.or(waiting))
        })
    }

    /// A session as it stands now, while it is remembered here.
    pub fn view(&self, session: Uuid, now: Moment) -> Option<SessionView> {
        self.lock().sessions.get(&session).map(|l| l.view(now))
    }

    /// Forgets the sessions of a project that is no more.
    pub fn forget_project(&self, project: Uuid) {
        self.lock()
            .sessions
            .retain(|_, l| l.row.project_id != project);
    }

    /// Sessions of a project that are not released, newest verb first.
    pub fn sessions(&self, project: Uuid, now: Moment) -> Vec<(Uuid, SessionView)> {
        let inner = self.lock();
        let mut views: Vec<_> = inner
            .sessions
            .values()
            .filter(|l| l.row.project_id == project && l.row.released_at.is_none())
            .map(|l| (l.row.persona_id, l.view(now)))
            .collect();
        views.sort_by_key(|(_, v)| {
            (
                std::cmp::Reverse(v.last_verb_at),
                std::cmp::Reverse(v.started_at),
            )
        });
        views
    }

    /// The open sessions of a project whose id begins so.
    pub fn beginning(&self, project: Uuid, quoted: &prism_core::id::Quoted) -> Vec<SessionRow> {
        self.lock()
            .sessions
            .values()
            .filter(|l| l.row.project_id == project && l.row.released_at.is_none())
            .filter(|l| quoted.begins(l.row.id))
            .map(|l| l.row.clone())
            .collect()
    }

    /// What changed and is worth writing down, at a time of the caller's choosing.
    pub fn take_dirty(&self) -> Vec<SessionRow> {
        let mut inner = self.lock();
        inner
            .sessions
            .values_mut()
            .filter_map(|l| std::mem::take(&mut l.dirty).then(|| l.row.clone()))
            .collect()
    }

    /// Sessions that just became stale, and those silent for a day.
    pub fn sweep(&self, now: Moment) -> (Vec<SessionRow>, Vec<SessionRow>) {
        let mut inner = self.lock();
        // A clock that was set back would keep a silent session for as long as it jumped.
        for live in inner.sessions.values_mut() {
            live.row.last_seen_at = live.row.last_seen_at.min(now);
        }
        let mut gone = Vec::new();
        let mut swept = Vec::new();
        for live in inner
            .sessions
            .values_mut()
            .filter(|l| l.row.released_at.is_none() && l.facts().state(now) == SessionState::Stale)
        {
            let told = std::mem::replace(&mut live.left, true) || live.elsewhere;
            if !told && live.row.first_verb_at.is_some() {
                gone.push(live.row.clone());
            }
            if now.since_us(live.row.last_seen_at) >= SWEPT_US {
                swept.push(live.row.clone());
            }
        }
        // A released session is remembered in the store alone after an hour.
        inner.sessions.retain(|_, l| {
            l.row
                .released_at
                .is_none_or(|at| now.since_us(at) < 3600 * 1_000_000)
        });
        (gone, swept)
    }

    pub fn live_count(&self, now: Moment) -> usize {
        self.lock()
            .sessions
            .values()
            .filter(|l| {
                matches!(
                    l.facts().state(now),
                    SessionState::Live | SessionState::Idle
                )
            })
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: u128, seen_s: i64) -> SessionRow {
        SessionRow {
            id: Uuid::from_u128(id),
            project_id: Uuid::nil(),
            persona_id: Uuid::from_u128(9),
            identity: Identity::parse("Texi").unwrap(),
            surface: "other".into(),
            machine_id: "m".into(),
            process_pid: 1,
            name: None,
            created_at: Moment(0),
            last_seen_at: Moment(0).plus_s(seen_s),
            first_verb_at: Some(Moment(0)),
            last_verb_at: None,
            released_at: None,
            waits: None,
            attention: None,
        }
    }

    fn at(s: i64) -> Moment {
        Moment(0).plus_s(s)
    }

    #[test]
    fn a_session_that_another_server_hears_is_live_by_its_row_and_nobody_here_says_that_it_left() {
        let presence = Presence::default();
        presence.learn(vec![row(1, 0)], at(1));
        let live = |now| presence.recipient_state(Uuid::from_u128(9), false, now);
        assert_eq!(live(at(2)), RecipientState::Live);
        presence.learn(vec![row(1, 80)], at(81));
        assert_eq!(live(at(120)), RecipientState::Live);
        assert_eq!(live(at(300)), RecipientState::Stale);
        assert!(presence.sweep(at(300)).0.is_empty());
        assert!(presence.take_dirty().is_empty(), "its row is another's");
        presence.learn(Vec::new(), at(301));
        assert_eq!(live(at(301)), RecipientState::Offline);
    }

    #[test]
    fn a_session_that_speaks_here_is_this_servers_and_older_rows_change_nothing() {
        let presence = Presence::default();
        presence.learn(vec![row(1, 0)], at(1));
        presence.seen(Uuid::from_u128(1), at(50));
        presence.learn(vec![row(1, 20)], at(51));
        assert_eq!(
            presence.get(Uuid::from_u128(1)).unwrap().last_seen_at,
            at(50)
        );
        presence.learn(Vec::new(), at(52));
        let state = presence.recipient_state(Uuid::from_u128(9), false, at(53));
        assert_eq!(state, RecipientState::Live, "it may not be written yet");
        assert_eq!(presence.sweep(at(300)).0.len(), 1);
    }
}
