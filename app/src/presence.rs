//! Live sessions: the one source of who is there, for every verb that asks.

use crate::store::{Seat, Seen, SessionRow};
use prism_core::api::{SessionView, WaitsFor};
use prism_core::limits::{CLOCK_AHEAD_US, SESSIONS_PER_IDENTITY_MAX, STALE_US, SWEPT_US};
use prism_core::presence::{
    Attention, RecipientState, SessionFacts, SessionState, Surface, assumed, recipient_state,
};
use prism_core::{Identity, Moment};
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use uuid::Uuid;

/// How long a session may be known here before its row is.
const UNWRITTEN_US: i64 = 60 * 1_000_000;

#[derive(Default)]
pub struct Presence {
    inner: Mutex<Inner>,
    /// This server, among several.
    server: Option<Uuid>,
}

#[derive(Default)]
struct Inner {
    /// A box each: a table that grows holds each place twice, and half of its places may be empty.
    sessions: HashMap<Uuid, Box<Live>>,
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
    /// Since when its newest socket is here.
    seated_at: Option<Moment>,
    /// When its name, what it waits for or who looks was last said here.
    said_at: Option<Moment>,
    /// When its first verb came here, while nobody knows whether its row says so: its peers have still to hear of it.
    opening: Option<Moment>,
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

/// How far the rows of all open sessions have been read, one after the other.
#[derive(Clone)]
pub struct Reading {
    began: Moment,
    open: HashSet<Uuid>,
    learned: Learned,
}

impl Reading {
    pub fn new(began: Moment) -> Self {
        Self {
            began,
            open: HashSet::new(),
            learned: Learned::default(),
        }
    }

    /// What was learned since it was last taken.
    pub fn take_learned(&mut self) -> Learned {
        std::mem::take(&mut self.learned)
    }
}

/// What rows say of sessions that have sockets here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Learned {
    /// Their socket is at another server now.
    pub moved: Vec<Uuid>,
    /// They have ended.
    pub over: Vec<Uuid>,
    /// They are not among those that are open, and began so lately that their rows may not be written yet.
    pub unsure: Vec<Uuid>,
}

/// Whether a clock that was set back since noted this, and not another server whose clock is a little off.
fn is_ahead(noted: Moment, now: Moment) -> bool {
    noted.since_us(now) > CLOCK_AHEAD_US
}

/// An identity has as many open sessions as it may have.
#[derive(Debug)]
pub struct TooMany {
    pub longest_silent: Option<Box<SessionRow>>,
}

impl Live {
    fn new(row: SessionRow) -> Self {
        Self {
            left: row.left_at.is_some(),
            row,
            sockets: 0,
            dirty: false,
            read_at: None,
            seated_at: None,
            said_at: None,
            opening: None,
        }
    }

    /// Takes over what its row said when it was read, and answers whether its socket has gone to another server.
    fn learn(&mut self, row: SessionRow, own: Option<Uuid>, read_at: Moment) -> bool {
        let seat = row.seat.filter(|seat| Some(seat.server) != own);
        let moved = seat.zip(self.seated_at);
        let moved = moved.is_some_and(|(seat, here)| seat.since > here);
        let known = &mut self.row;
        // Wherever its socket is, it may call any server. What was heard here may not be written yet.
        // A row from before a clock was set back says nothing of when it was seen.
        if !is_ahead(row.last_seen_at, read_at) {
            known.last_seen_at = known.last_seen_at.max(row.last_seen_at);
        }
        known.released_at = known.released_at.or(row.released_at);
        known.first_verb_at = row.first_verb_at.or(known.first_verb_at);
        known.last_verb_at = row.last_verb_at.max(known.last_verb_at);
        known.project_id = row.project_id;
        known.persona_id = row.persona_id;
        // A text that is the same stays where it is: all of them are read again and again.
        if known.identity != row.identity {
            known.identity = row.identity;
        }
        if self.said_at.is_none_or(|said| said < read_at) {
            if known.name != row.name {
                known.name = row.name;
            }
            known.waits = row.waits;
            known.attention = row.attention;
        }
        if self.sockets == 0 || moved {
            known.seat = row.seat;
            known.left_at = row.left_at;
            self.left = row.left_at.is_some_and(|at| at >= known.last_seen_at);
        } else if row.left_at.is_some() && known.left_at != row.left_at {
            // Its socket is here all the same: others took it for silent while this server could not write. Its peers
            // hear that it is back with its next sign of life.
            known.left_at = row.left_at;
            self.left = true;
        }
        moved
    }

    fn is_connected(&self, now: Moment) -> bool {
        // Another server says so, as long as it says anything.
        let there = self.row.seat.is_some() && now.since_us(self.row.last_seen_at) < STALE_US;
        self.sockets > 0 || there
    }

    fn seen(&mut self, now: Moment) -> Came {
        self.row.last_seen_at = now;
        self.dirty = true;
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
            connected: self.is_connected(now),
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
                inner.sessions.insert(row.id, Live::new(row).into());
            }
        }
        presence
    }

    /// What the rows say, where other servers hear sessions as well.
    pub fn of_rows(open: Vec<SessionRow>, started: Vec<Uuid>, server: Uuid) -> Self {
        let presence = Self {
            server: Some(server),
            ..Self::default()
        };
        {
            let mut inner = presence.lock();
            inner.started.extend(started);
            let known = open.into_iter().map(|row| (row.id, Live::new(row).into()));
            inner.sessions.extend(known);
        }
        presence
    }

    /// Takes over what the row of one open session says, of all that are read.
    pub fn learn(&self, row: SessionRow, reading: &mut Reading) {
        reading.open.insert(row.id);
        self.learn_one(&mut self.lock(), row, reading.began, &mut reading.learned);
    }

    /// All open sessions were read. One that rows have no more was released; one that began lately may not be in
    /// them yet.
    pub fn has_read(&self, reading: Reading) -> Learned {
        let Reading {
            began,
            open,
            mut learned,
        } = reading;
        let mut inner = self.lock();
        let gone = |l: &&mut Box<Live>| !open.contains(&l.row.id) && l.row.released_at.is_none();
        for live in inner.sessions.values_mut().filter(gone) {
            if began.since_us(live.row.created_at) < UNWRITTEN_US {
                learned.unsure.push(live.row.id);
                continue;
            }
            live.row.released_at = Some(began);
            learned
                .over
                .extend((live.sockets > 0).then_some(live.row.id));
        }
        learned
    }

    /// Takes over what the rows of some sessions say, in whatever state they are.
    pub fn learn_of(&self, rows: Vec<SessionRow>, read_at: Moment) -> Learned {
        let mut inner = self.lock();
        let mut learned = Learned::default();
        for row in rows {
            self.learn_one(&mut inner, row, read_at, &mut learned);
        }
        learned
    }

    fn learn_one(
        &self,
        inner: &mut Inner,
        row: SessionRow,
        read_at: Moment,
        learned: &mut Learned,
    ) {
        inner.started.insert(row.persona_id);
        let Some(live) = inner.sessions.get_mut(&row.id) else {
            inner.sessions.insert(row.id, Live::new(row).into());
            return;
        };
        let was_open = live.row.released_at.is_none();
        if live.learn(row, self.server, read_at) {
            live.seated_at = None;
            learned.moved.push(live.row.id);
        }
        let is_over = was_open && live.row.released_at.is_some();
        let over = (is_over && live.sockets > 0).then_some(live.row.id);
        learned.over.extend(over);
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
            .map(AsRef::as_ref)
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
        inner.sessions.insert(row.id, Live::new(row).into());
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
        if live.row.first_verb_at.is_none() || live.opening.is_some() {
            live.row.first_verb_at = live.opening.or(Some(now));
            return Came::First;
        }
        came
    }

    /// When the first verb of a session came, of which nobody knows whether it has opened the session.
    pub fn opening(&self, session: Uuid) -> Option<Moment> {
        self.lock().sessions.get(&session)?.opening
    }

    /// Whether its first verb has opened a session is known, or is not since then. Answers since when it was not.
    pub fn is_opening(&self, session: Uuid, since: Option<Moment>) -> Option<Moment> {
        let mut inner = self.lock();
        let live = inner.sessions.get_mut(&session)?;
        std::mem::replace(&mut live.opening, since)
    }

    /// The session could not be opened: its next verb is its first.
    pub fn not_opened(&self, session: Uuid) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.row.first_verb_at = None;
        }
    }

    pub fn named(&self, session: Uuid, name: &str, now: Moment) {
        self.say(session, now, |row| row.name = Some(name.to_owned()));
    }

    pub fn waits(&self, session: Uuid, waits: Option<WaitsFor>, now: Moment) {
        self.say(session, now, |row| row.waits = waits);
    }

    pub fn attention(&self, session: Uuid, attention: Attention, now: Moment) {
        self.say(session, now, |row| row.attention = Some(attention));
    }

    /// Follows what was just written to a session's row.
    fn say(&self, session: Uuid, now: Moment, what: impl FnOnce(&mut SessionRow)) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            what(&mut live.row);
            live.said_at = Some(now);
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

    /// Its newest socket is here since then, as its row says.
    pub fn seated(&self, session: Uuid, seat: Seat) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.seated_at = live.seated_at.max(Some(seat.since));
            live.row.seat = Some(seat);
        }
    }

    /// Whether its socket is here, as far as anybody knows.
    pub fn is_seated(&self, session: Uuid) -> bool {
        let inner = self.lock();
        let live = inner.sessions.get(&session);
        live.is_some_and(|l| l.seated_at.is_some())
    }

    /// Its peers were told that it has left, here or by another server.
    pub fn has_left(&self, row: SessionRow) {
        if let Some(live) = self.lock().sessions.get_mut(&row.id) {
            live.left = true;
            live.row.left_at = row.left_at;
        }
    }

    pub fn disconnected(&self, session: Uuid, now: Moment) {
        if let Some(live) = self.lock().sessions.get_mut(&session) {
            live.sockets = live.sockets.saturating_sub(1);
            if live.sockets == 0 && live.seated_at.take().is_some() {
                live.row.seat = None;
            }
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
    pub fn at_hand(&self, persona: Uuid, now: Moment) -> (bool, Option<prism_core::hook::Waiting>) {
        let inner = self.lock();
        let mine = inner
            .sessions
            .values()
            .filter(|l| l.row.persona_id == persona && l.row.released_at.is_none());
        mine.fold((false, None), |(connected, waits), live| {
            let waiting = live.row.waits.as_ref().map(|w| w.r#for);
            (connected || live.is_connected(now), waits.or(waiting))
        })
    }

    /// Whether a session of a persona is known to have its socket at another server that can be reached.
    pub fn is_elsewhere(&self, persona: Uuid, now: Moment, reaches: impl Fn(Uuid) -> bool) -> bool {
        self.lock().sessions.values().any(|l| {
            let seat = l.row.seat.filter(|s| Some(s.server) != self.server);
            l.row.persona_id == persona
                && l.row.released_at.is_none()
                && l.sockets == 0
                && l.is_connected(now)
                && seat.is_some_and(|s| reaches(s.server))
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

    /// What changed and is worth writing down, and whoever has a socket here: they are there, although they
    /// may have nothing to say.
    pub fn take_seen(&self, now: Moment) -> Vec<Seen> {
        let mut inner = self.lock();
        for live in inner.sessions.values_mut().filter(|l| l.sockets > 0) {
            live.row.last_seen_at = now;
            live.dirty = true;
        }
        drop(inner);
        self.take_dirty()
    }

    /// What changed and is worth writing down, at a time of the caller's choosing.
    pub fn take_dirty(&self) -> Vec<Seen> {
        let mut inner = self.lock();
        inner
            .sessions
            .values_mut()
            .filter_map(|l| std::mem::take(&mut l.dirty).then(|| l.row.seen()))
            .collect()
    }

    /// Whether a session was seen later than now.
    pub fn any_ahead(&self, now: Moment) -> bool {
        let inner = self.lock();
        let mut seen = inner.sessions.values().map(|l| l.row.last_seen_at);
        seen.any(|at| is_ahead(at, now))
    }

    /// Sessions that just became stale, and those silent for a day. Where several servers share the rows, those say
    /// who has left.
    pub fn sweep(&self, now: Moment, shared: bool) -> (Vec<SessionRow>, Vec<SessionRow>) {
        let mut inner = self.lock();
        // A clock that was set back would keep a silent session for as long as it jumped.
        for live in inner.sessions.values_mut() {
            let seen_at = live.row.last_seen_at;
            live.row.last_seen_at = seen_at.min(now);
            live.dirty |= is_ahead(seen_at, now);
        }
        let mut gone = Vec::new();
        let mut swept = Vec::new();
        for live in inner
            .sessions
            .values_mut()
            .filter(|l| l.row.released_at.is_none() && l.facts().state(now) == SessionState::Stale)
        {
            let told = shared || std::mem::replace(&mut live.left, true);
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
            seat: None,
            left_at: None,
        }
    }

    /// All open sessions are read from rows, and these are they.
    fn learn(presence: &Presence, open: Vec<SessionRow>, read_at: Moment) -> Learned {
        let mut reading = Reading::new(read_at);
        for row in open {
            presence.learn(row, &mut reading);
        }
        presence.has_read(reading)
    }

    fn at(s: i64) -> Moment {
        Moment(0).plus_s(s)
    }

    fn at_server(id: u128, seen_s: i64, server: u128, since_s: i64) -> SessionRow {
        SessionRow {
            seat: Some(Seat {
                server: Uuid::from_u128(server),
                since: at(since_s),
            }),
            ..row(id, seen_s)
        }
    }

    #[test]
    fn a_session_that_another_server_hears_is_live_by_its_row_and_nobody_here_says_that_it_left() {
        let presence = Presence::default();
        learn(&presence, vec![row(1, 0)], at(1));
        let live = |now| presence.recipient_state(Uuid::from_u128(9), false, now);
        assert_eq!(live(at(2)), RecipientState::Live);
        learn(&presence, vec![row(1, 80)], at(81));
        assert_eq!(live(at(120)), RecipientState::Live);
        assert_eq!(live(at(300)), RecipientState::Stale);
        assert!(presence.sweep(at(300), true).0.is_empty());
        assert!(presence.take_dirty().is_empty(), "its row is another's");
        learn(&presence, Vec::new(), at(301));
        assert_eq!(live(at(301)), RecipientState::Offline);
    }

    #[test]
    fn a_session_that_speaks_here_is_this_servers_and_older_rows_change_nothing() {
        let presence = Presence::default();
        learn(&presence, vec![row(1, 0)], at(1));
        presence.seen(Uuid::from_u128(1), at(50));
        learn(&presence, vec![row(1, 20)], at(51));
        assert_eq!(
            presence.get(Uuid::from_u128(1)).unwrap().last_seen_at,
            at(50)
        );
        learn(&presence, Vec::new(), at(52));
        let state = presence.recipient_state(Uuid::from_u128(9), false, at(53));
        assert_eq!(state, RecipientState::Live, "it may not be written yet");
        assert_eq!(presence.sweep(at(300), false).0.len(), 1);
        assert!(presence.sweep(at(301), false).0.is_empty(), "said once");
    }

    #[test]
    fn a_session_is_where_it_was_seated_last_and_connected_while_that_server_says_so() {
        let presence = Presence::default();
        let id = Uuid::from_u128(1);
        let connected = |now| presence.view(id, now).unwrap().connected;
        let moves = |row, now| learn(&presence, vec![row], now).moved;
        assert!(moves(at_server(1, 0, 2, 0), at(1)).is_empty());
        assert!(connected(at(30)) && !connected(at(90)), "by its row");
        presence.connected(id, at(40));
        let here = Seat {
            server: Uuid::from_u128(1),
            since: at(40),
        };
        presence.seated(id, here);
        let older = moves(at_server(1, 39, 2, 0), at(41));
        assert!(older.is_empty(), "a row that was read before it came here");
        let newer = moves(at_server(1, 60, 2, 60), at(61));
        assert_eq!(newer, [id], "it has gone to the other server");
        assert!(moves(at_server(1, 60, 2, 60), at(62)).is_empty());
        presence.disconnected(id, at(63));
        assert!(connected(at(64)), "there");
    }

    #[test]
    fn a_session_that_rows_have_no_more_is_over_wherever_its_socket_is() {
        let presence = Presence::default();
        presence.learn_of(vec![row(1, 0), row(2, 0)], at(1));
        presence.connected(Uuid::from_u128(1), at(10));
        presence.connected(Uuid::from_u128(2), at(10));
        let ended = SessionRow {
            released_at: Some(at(20)),
            ..row(2, 20)
        };
        let over = |ended| presence.learn_of(vec![ended], at(21)).over;
        assert_eq!(over(ended.clone()), [Uuid::from_u128(2)]);
        assert!(over(ended).is_empty(), "once");
        // One that began lately is asked for by itself: its row may be on its way, or say that it is over.
        let unsure = learn(&presence, Vec::new(), at(30));
        assert_eq!(unsure.unsure, [Uuid::from_u128(1)]);
        assert!(unsure.over.is_empty());
        let learned = learn(&presence, Vec::new(), at(70));
        assert_eq!(learned.over, [Uuid::from_u128(1)]);
        assert!(learn(&presence, Vec::new(), at(71)).over.is_empty(), "once");
    }

    #[test]
    fn a_row_from_before_the_clock_was_set_back_keeps_no_session_and_is_mended() {
        let presence = Presence::default();
        let live = |now| presence.recipient_state(Uuid::from_u128(9), false, now);
        learn(&presence, vec![row(1, 3600)], at(3601));
        presence.sweep(at(10), true);
        let mended = presence.take_dirty();
        assert_eq!(mended[0].at, at(10));
        learn(&presence, vec![row(1, 3600)], at(11));
        assert_eq!(live(at(12)), RecipientState::Live);
        assert_eq!(live(at(110)), RecipientState::Stale);
        // A server whose clock is a little ahead is believed, and its rows are left alone.
        learn(&presence, vec![row(1, 121)], at(120));
        presence.sweep(at(120), true);
        assert!(presence.take_dirty().is_empty());
        assert_eq!(live(at(121)), RecipientState::Live);
    }

    #[test]
    fn who_comes_back_is_told_of_again_wherever_it_was_said_to_have_left() {
        let presence = Presence::default();
        let left = SessionRow {
            left_at: Some(at(200)),
            ..row(1, 0)
        };
        presence.learn_of(vec![left], at(201));
        assert_eq!(presence.seen(Uuid::from_u128(1), at(210)), Came::Back);
        assert_eq!(presence.seen(Uuid::from_u128(1), at(211)), Came::Known);
    }

    #[test]
    fn who_was_said_to_have_left_while_its_socket_was_here_is_told_of_again_once() {
        let presence = Presence::default();
        let id = Uuid::from_u128(1);
        presence.learn_of(vec![row(1, 0)], at(1));
        presence.connected(id, at(10));
        let left = SessionRow {
            left_at: Some(at(200)),
            ..row(1, 0)
        };
        presence.learn_of(vec![left.clone()], at(201));
        assert_eq!(presence.seen(id, at(210)), Came::Back);
        presence.learn_of(vec![left], at(211));
        assert_eq!(presence.seen(id, at(220)), Came::Known);
    }

    #[test]
    fn a_first_verb_of_which_nobody_knows_whether_it_was_stored_is_first_again() {
        let presence = Presence::default();
        let id = Uuid::from_u128(1);
        let silent = SessionRow {
            first_verb_at: None,
            ..row(1, 0)
        };
        learn(&presence, vec![silent], at(1));
        assert_eq!(presence.verb(id, at(2)), Came::First);
        presence.is_opening(id, Some(at(2)));
        presence.not_opened(id);
        // It was stored: its row says so before the next verb comes.
        let opened = SessionRow {
            first_verb_at: Some(at(2)),
            ..row(1, 2)
        };
        learn(&presence, vec![opened], at(3));
        assert_eq!(presence.verb(id, at(4)), Came::First, "nobody was told");
        assert_eq!(presence.opening(id), Some(at(2)));
        presence.is_opening(id, None);
        assert_eq!(presence.verb(id, at(5)), Came::Known);
    }

    #[test]
    fn a_call_through_another_server_is_seen_where_the_socket_is_and_what_was_said_here_since_stays()
     {
        let presence = Presence::of_rows(Vec::new(), Vec::new(), Uuid::from_u128(1));
        let id = Uuid::from_u128(1);
        let idle = SessionRow {
            first_verb_at: None,
            ..row(1, 0)
        };
        learn(&presence, vec![idle], at(1));
        presence.connected(id, at(2));
        let here = Seat {
            server: Uuid::from_u128(1),
            since: at(2),
        };
        presence.seated(id, here);
        let asks = WaitsFor {
            r#for: prism_core::hook::Waiting::Permission,
            since: at(3),
        };
        let called = SessionRow {
            first_verb_at: Some(at(3)),
            last_verb_at: Some(at(3)),
            name: Some("there".into()),
            waits: Some(asks.clone()),
            attention: Some(Attention::Attended),
            ..row(1, 3)
        };
        learn(&presence, vec![called.clone()], at(4));
        let seen = presence.get(id).unwrap();
        assert_eq!(seen.first_verb_at, Some(at(3)));
        assert_eq!(seen.last_verb_at, Some(at(3)));
        assert_eq!(seen.name.as_deref(), Some("there"));
        assert_eq!(seen.waits, Some(asks));
        assert_eq!(seen.attention, Some(Attention::Attended));
        assert_eq!(seen.seat, Some(here), "its socket is here");
        presence.waits(id, None, at(6));
        presence.learn_of(vec![called.clone()], at(5));
        assert_eq!(presence.get(id).unwrap().waits, None, "read before");
        presence.learn_of(vec![called], at(7));
        assert!(presence.get(id).unwrap().waits.is_some(), "said since");
    }

    #[test]
    fn a_socket_is_elsewhere_while_the_row_of_a_live_session_says_so_and_its_server_is_there() {
        let presence = Presence::of_rows(Vec::new(), Vec::new(), Uuid::from_u128(1));
        let texi = Uuid::from_u128(9);
        let elsewhere = |persona, now| presence.is_elsewhere(persona, now, |_| true);
        learn(&presence, vec![row(1, 0)], at(1));
        assert!(!elsewhere(texi, at(2)), "it has no socket");
        learn(&presence, vec![at_server(1, 2, 1, 2)], at(3));
        assert!(!elsewhere(texi, at(3)), "a seat that was here");
        learn(&presence, vec![at_server(1, 4, 2, 4)], at(5));
        assert!(elsewhere(texi, at(5)));
        let killed = |server| server != Uuid::from_u128(2);
        assert!(!presence.is_elsewhere(texi, at(5), killed));
        assert!(!elsewhere(Uuid::from_u128(8), at(5)));
        assert!(!elsewhere(texi, at(95)), "nothing was heard");
    }
}
