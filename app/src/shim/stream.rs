//! The shim's side of the stream: connect, hello, frames, and again.

use super::bell::naming;
use super::cache::Arrival;
use super::ringing::{self, ToRing, receipts};
use super::session::Unconfirmed;
use super::socket::{self, Socket};
use super::{Session, Shim, probe};
use crate::{clock, config};
use futures_util::{SinkExt, StreamExt};
use prism_core::Moment;
use prism_core::api::{ClientFrame, ServerFrame, close};
use prism_core::bell::Notice;
use prism_core::envelope::Envelope;
use prism_core::limits::{
    HEARTBEAT_S, HELLO_CONFIRMS_MAX, REPLAY_ROWS, SECOND_US, STREAM_SILENCE_US,
};
use prism_core::presence::Surface;
use prism_core::receipt::State;
use prism_core::ring::{InboxState, Recorded, Which};
use prism_core::tee::TeeFrame;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use uuid::Uuid;

/// The pause before the first try to reconnect, and the longest one.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// How long opening a socket, writing to it or a heartbeat over HTTP may take.
const ANSWER: Duration = Duration::from_secs(10);
/// How often the pulse of a socket is felt.
const PULSE: Duration = Duration::from_secs(5);

enum End {
    /// The session is over; the shim does not come back as it.
    Over,
    /// The socket broke; try again.
    Broken,
}

/// A signal of the backlog or off the live stream.
struct Arrived {
    envelope: Envelope,
    drained: bool,
    bytes: usize,
}

/// What comes between hello and live: recorded page by page, and rung for as one.
struct Backlog {
    page: Vec<Arrived>,
    /// What must not overtake the signals it speaks of.
    control: Vec<ServerFrame>,
    /// How far the inbox reached at the hello.
    head_seq: i64,
    head_id: Option<Uuid>,
    /// What waits from before, for a host that was not told of it yet.
    waiting: Vec<String>,
}

/// When to send a heartbeat, and when to give a silent socket up.
///
/// Told by the wall clock: a machine that slept knows at once that its socket is old.
#[derive(Clone, Copy, Debug)]
struct Pulse {
    heard: Moment,
    sent: Moment,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Beat {
    Fine,
    /// Say that we are here; the answer says that the server is.
    Send,
    /// Nothing was heard for too long.
    Dead,
}

impl Pulse {
    fn new(now: Moment) -> Self {
        Self {
            heard: now,
            sent: now,
        }
    }

    fn feel(&mut self, now: Moment) -> Beat {
        if now < self.heard || now < self.sent {
            // The clock was set back: count from here.
            *self = Self::new(now);
        }
        if now.since_us(self.heard) >= STREAM_SILENCE_US {
            return Beat::Dead;
        }
        if now.since_us(self.sent) >= HEARTBEAT_S as i64 * SECOND_US {
            self.sent = now;
            return Beat::Send;
        }
        Beat::Fine
    }
}

/// How often the pulse is felt; where a test moves the clock, what follows must not take long.
fn pulse_period() -> Duration {
    config::clock_file().map_or(PULSE, |_| PULSE / 100)
}

/// Keeps the session's socket up until the session is over.
pub async fn run(shim: Arc<Shim>, session: Arc<Session>) {
    let (bells, asked) = unbounded_channel();
    let (reports, reported) = unbounded_channel();
    shim.bell().attach(session.clone(), reports.clone());
    tokio::spawn(ringing::run(shim.clone(), session.clone(), asked));
    if session.surface == Surface::Codex && session.has_inbox() {
        let (shim, session) = (shim.clone(), session.clone());
        tokio::spawn(async move { naming::run(shim.bell(), session).await });
    }
    let mut over = session.over.subscribe();
    let mut stream = Stream {
        shim,
        session,
        bells,
        reports,
        reported,
        unrung: Vec::new(),
    };
    let mut pause = PAUSE;
    let mut last_beat = clock::now();
    loop {
        let end = tokio::select! {
            end = stream.connected(&mut pause, &mut last_beat) => end,
            _ = over.wait_for(|over| *over) => return,
        };
        stream.session.connected.send_replace(false);
        tracing::debug!("The stream broke");
        // What was recorded before the socket broke has waited for its bell.
        stream.ring_for_arrived();
        let end = match end {
            End::Over => End::Over,
            End::Broken => stream.beat_over_http(&mut last_beat).await,
        };
        if matches!(end, End::Over) {
            stream.shim.released(&stream.session).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => pause = (pause * 2).min(PAUSE_MAX),
            _ = over.wait_for(|over| *over) => return,
        }
    }
}

struct Stream {
    shim: Arc<Shim>,
    session: Arc<Session>,
    bells: UnboundedSender<ToRing>,
    /// What ringing achieved, on its way to the server; it outlives a broken socket.
    reports: UnboundedSender<ClientFrame>,
    reported: UnboundedReceiver<ClientFrame>,
    /// Recorded, and not asked a bell for yet.
    unrung: Vec<Notice>,
}

impl Stream {
    /// One connection, from hello to its end.
    async fn connected(&mut self, pause: &mut Duration, last_beat: &mut Moment) -> End {
        let session = self.session.clone();
        let Ok(server) = session.client.locator().target() else {
            return End::Broken;
        };
        let opened = timeout(ANSWER, socket::connect(server, session.client.key())).await;
        let mut ws = match opened {
            Ok(Ok(ws)) => ws,
            Ok(Err(problem)) => {
                tracing::debug!(%problem, "No stream yet");
                return End::Broken;
            }
            Err(_) => return End::Broken,
        };
        let confirmed = confirmed_by_hello(session.unconfirmed(), &session.pid);
        let project = session.project_id.to_string();
        let before = session.cache.before_hello(&session.pid, &project);
        let cursor = session.cursor();
        let hello = ClientFrame::Hello {
            pid: session.pid.clone(),
            session_id: Some(session.id),
            last_seq: cursor.map(|at| at.seq),
            last_id: cursor.and_then(|at| at.id),
            copy: session.copy(),
            confirm: confirmed.iter().map(|u| u.lease_id).collect(),
        };
        if !say(&mut ws, &hello).await {
            return End::Broken;
        }
        let mut pulse = Pulse::new(clock::now());
        let mut ticks = tokio::time::interval(pulse_period());
        let mut welcome = false;
        let mut backlog: Option<Backlog> = None;
        loop {
            let message = tokio::select! {
                message = ws.next() => message,
                Some(report) = self.reported.recv(), if welcome => {
                    if say(&mut ws, &report).await {
                        continue;
                    }
                    drop(self.reports.send(report));
                    return End::Broken;
                }
                _ = ticks.tick() => match pulse.feel(clock::now()) {
                    Beat::Fine => continue,
                    Beat::Send if say(&mut ws, &ClientFrame::Ping).await => continue,
                    Beat::Send | Beat::Dead => return End::Broken,
                },
            };
            let message = match message {
                Some(Ok(Message::Close(Some(frame)))) => {
                    if close::ends_session(frame.code.into()) {
                        return self.over_because(frame.reason.as_str());
                    }
                    tracing::debug!(reason = %frame.reason, "The server closed the stream");
                    return End::Broken;
                }
                Some(Ok(message)) => message,
                Some(Err(_)) | None => return End::Broken,
            };
            pulse.heard = clock::now();
            *last_beat = pulse.heard;
            let Some(frame) = socket::decode(&message) else {
                continue;
            };
            match (frame, &mut backlog) {
                (
                    ServerFrame::Hello {
                        head_seq,
                        head_id,
                        pending,
                        restarted,
                        copy,
                        ..
                    },
                    _,
                ) => {
                    let pending: Vec<String> = pending.iter().map(Uuid::to_string).collect();
                    let inbox = InboxState {
                        project: &project,
                        head_seq,
                        pending: &pending,
                        restarted,
                        copy: copy.as_deref(),
                    };
                    let agreed = logged(
                        "agree with the server",
                        session.cache.reconcile(&before, inbox),
                    );
                    let again = agreed.unwrap_or_default();
                    session.take_back(&ids(&again));
                    session.forget_cursor_of_another(head_seq, restarted);
                    session.reads(copy);
                    session.note_confirmed(&confirmed);
                    // A new session is told of what an earlier one saw and never drained.
                    let greeted = session.greeted.load(Ordering::Relaxed);
                    backlog = Some(Backlog {
                        page: Vec::new(),
                        control: Vec::new(),
                        head_seq,
                        head_id,
                        waiting: if greeted { again } else { pending },
                    });
                    tracing::debug!(head_seq, cursor = ?session.cursor(), "The stream is open");
                    welcome = true;
                    *pause = PAUSE;
                    session.connected.send_replace(true);
                }
                (ServerFrame::Signal { envelope, drained }, backlog) => {
                    let arrived = Arrived {
                        envelope,
                        drained,
                        bytes: message.len(),
                    };
                    match backlog {
                        Some(backlog) => {
                            backlog.page.push(arrived);
                            if backlog.page.len() >= REPLAY_ROWS {
                                let page = std::mem::take(&mut backlog.page);
                                self.arrive(&mut ws, page).await;
                            }
                        }
                        None => {
                            self.arrive(&mut ws, vec![arrived]).await;
                            self.ring_for_arrived();
                        }
                    }
                }
                (ServerFrame::Live, _) => {
                    if let Some(backlog) = backlog.take() {
                        self.end_backlog(&mut ws, backlog).await;
                    }
                }
                (ServerFrame::Released { reason, .. }, _) => return self.over_because(&reason),
                // A hello settles whatever was not heard of what is unread or handed over here.
                (ServerFrame::Again, _) => {
                    if session.has_something_open() {
                        return End::Broken;
                    }
                }
                (frame, Some(backlog)) => backlog.control.push(frame),
                (frame, None) => self.control(frame),
            }
        }
    }

    /// Notes why the session is over, where its agent is to be told.
    fn over_because(&self, reason: &str) -> End {
        let revoked = reason == close::KEY_REVOKED;
        self.session.revoked.store(revoked, Ordering::Relaxed);
        End::Over
    }

    /// Says that the session lives, where no socket can be had.
    async fn beat_over_http(&self, last_beat: &mut Moment) -> End {
        let now = clock::now();
        if now >= *last_beat && now.since_us(*last_beat) < HEARTBEAT_S as i64 * SECOND_US {
            return End::Broken;
        }
        *last_beat = now;
        let session = &self.session;
        let beat = session.client.call(&session.pid, "heartbeat", json!({}));
        match timeout(ANSWER, beat).await {
            Ok(Err(problem)) if problem.is(prism_core::Code::SessionReleased) => End::Over,
            _ => End::Broken,
        }
    }

    /// Tee, ring and count, then what was received; the bell is asked for by whoever called.
    async fn arrive(&mut self, ws: &mut Socket, mut arrived: Vec<Arrived>) {
        let session = &self.session;
        // A probe is for one session; the other shims of the identity leave it alone.
        arrived.retain(|a| {
            !a.envelope.is_loopback() || probe::belongs(session, &a.envelope).is_some()
        });
        if arrived.is_empty() || !session.has_inbox() {
            return;
        }
        let now = clock::now();
        let tee = |a: &Arrived| TeeFrame::of(&a.envelope, a.bytes, now);
        let frames: Vec<TeeFrame> = arrived.iter().map(tee).collect();
        logged("write the tee log", session.tee.record(&frames));
        // What a verb has handed over already is no news to the host.
        let known = |a: &Arrived| a.drained || session.was_handed(a.envelope.signal_id);
        let arrivals: Vec<Arrival<'_>> = arrived
            .iter()
            .map(|a| Arrival {
                envelope: &a.envelope,
                drained: known(a),
            })
            .collect();
        let project = session.project_id.to_string();
        let recorded = logged("write the ring", session.cache.arrived(&arrivals, &project));
        for (i, arrived) in arrived.iter().enumerate() {
            let waits = match recorded.as_ref().map(|r| r[i]) {
                // Another shim of this identity may have recorded it first; our host still
                // needs its bell.
                Some(recorded) => matches!(recorded, Recorded::Added | Recorded::Known),
                // A home that cannot be written costs the history, not the bell.
                None => session.identity.is(&arrived.envelope.to_identity),
            };
            if waits && !known(arrived) && !arrived.envelope.is_loopback() {
                self.unrung.push(Notice::of(&arrived.envelope));
            }
        }
        let ids: Vec<Uuid> = arrived
            .iter()
            .filter(|a| !a.drained)
            .map(|a| a.envelope.signal_id)
            .collect();
        for receipt in receipts(State::Received, &ids) {
            if !say(ws, &receipt).await {
                // The cursor has come past these signals, so no replay repeats the receipt: it
                // waits for the next socket.
                drop(self.reports.send(receipt));
            }
        }
        for Arrived { envelope, .. } in arrived {
            if let Some(seq) = envelope.seq {
                session.has_come_to(seq, Some(envelope.signal_id));
            }
            if !envelope.is_loopback() {
                continue;
            }
            if let Some(loopback_id) = probe::belongs(session, &envelope) {
                self.ask(ToRing::Probe {
                    envelope: Box::new(envelope),
                    loopback_id,
                    at: now,
                });
            }
        }
    }

    /// Everything from before is here: what was said of it meanwhile, then one bell.
    async fn end_backlog(&mut self, ws: &mut Socket, backlog: Backlog) {
        self.arrive(ws, backlog.page).await;
        for frame in backlog.control {
            self.control(frame);
        }
        self.session.has_come_to(backlog.head_seq, backlog.head_id);
        self.session.greeted.store(true, Ordering::Relaxed);
        let (ring, _) = self.session.cache.load();
        self.unrung
            .retain(|n| !ring.is_read(&n.signal_id.to_string()));
        if self.unrung.is_empty() {
            self.ring_for_waiting(&backlog.waiting);
        } else {
            self.ring_for_arrived();
        }
    }

    /// What the server says about signals that were there before.
    fn control(&self, frame: ServerFrame) {
        match frame {
            ServerFrame::Drained { signal_ids, .. } | ServerFrame::Ended { signal_ids, .. } => {
                let sids: Vec<String> = signal_ids.iter().map(Uuid::to_string).collect();
                let marked = self.session.cache.mark_read(Which::These(&sids));
                logged("mark signals read", marked);
                self.shim.bell().drained(&signal_ids);
            }
            // A drain was not confirmed in time: the signals wait again, so the bell rings again.
            ServerFrame::Returned { signal_ids } => {
                let sids: Vec<String> = signal_ids.iter().map(Uuid::to_string).collect();
                self.session.take_back(&signal_ids);
                logged("mark signals unread", self.session.cache.mark_unread(&sids));
                self.shim.bell().drained(&signal_ids);
                self.ring_for_waiting(&sids);
            }
            ServerFrame::Escalated { notices } => self.ask(ToRing::Escalated(notices)),
            _ => {}
        }
    }

    /// One bell for what has arrived, in the name of the newest.
    fn ring_for_arrived(&mut self) {
        let arrived = std::mem::take(&mut self.unrung);
        if !arrived.is_empty() {
            self.ask(ToRing::Signals(arrived));
        }
    }

    /// One bell for the newest of these that is unread in the ring.
    fn ring_for_waiting(&self, sids: &[String]) {
        let (ring, _) = self.session.cache.load();
        let mut entries = ring.entries.iter().rev();
        let newest = entries.find(|e| !e.read && sids.contains(&e.sid));
        if let Some(newest) = newest.and_then(Notice::of_entry) {
            self.ask(ToRing::Signals(vec![newest]));
        }
    }

    fn ask(&self, bell: ToRing) {
        // The other end lives as long as this one.
        drop(self.bells.send(bell));
    }
}

/// Writes a frame; false when the socket does not take it.
async fn say(ws: &mut Socket, frame: &ClientFrame) -> bool {
    timeout(ANSWER, ws.send(socket::encode(frame)))
        .await
        .is_ok_and(|sent| sent.is_ok())
}

/// The leases that a hello confirms: those of its own project, as many as the server reads. Every
/// other one is confirmed by its own call.
fn confirmed_by_hello(mut unconfirmed: Vec<Unconfirmed>, pid: &str) -> Vec<Unconfirmed> {
    unconfirmed.retain(|lease| lease.pid == pid);
    unconfirmed.truncate(HELLO_CONFIRMS_MAX);
    unconfirmed
}

fn ids(sids: &[String]) -> Vec<Uuid> {
    sids.iter().filter_map(|sid| sid.parse().ok()).collect()
}

fn logged<T>(what: &str, result: anyhow::Result<T>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(error = %format!("{error:#}"), "Could not {what}"))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_given_up_after_75_silent_seconds_and_not_before() {
        let at = |s: i64| Moment(s * SECOND_US);
        let mut pulse = Pulse::new(at(0));
        assert_eq!(pulse.feel(at(29)), Beat::Fine);
        assert_eq!(pulse.feel(at(30)), Beat::Send);
        assert_eq!(pulse.feel(at(31)), Beat::Fine);
        pulse.heard = at(31);
        assert_eq!(pulse.feel(at(60)), Beat::Send);
        assert_eq!(pulse.feel(at(105)), Beat::Send);
        assert_eq!(pulse.feel(at(106)), Beat::Dead);
    }

    #[test]
    fn a_hello_confirms_its_own_projects_leases_and_no_more_than_the_server_reads() {
        let lease = |n: usize| Unconfirmed {
            pid: if n.is_multiple_of(2) { "OWN" } else { "OTHER" }.into(),
            lease_id: Uuid::from_u128(n as u128),
        };
        let few = confirmed_by_hello((0..4).map(lease).collect(), "OWN");
        assert_eq!(few, [lease(0), lease(2)]);
        let many = (0..2 * HELLO_CONFIRMS_MAX + 2).map(lease).collect();
        assert_eq!(confirmed_by_hello(many, "OWN").len(), HELLO_CONFIRMS_MAX);
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_end_a_socket() {
        let mut pulse = Pulse::new(Moment(3_600 * SECOND_US));
        assert_eq!(pulse.feel(Moment(0)), Beat::Fine);
        assert_eq!(pulse.feel(Moment(30 * SECOND_US)), Beat::Send);
    }
}
