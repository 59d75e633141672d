//! The honest receipt: facts with times, per session, never a promise.

use crate::moment::Moment;
use crate::signal::names;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use uuid::Uuid;

names! {
    /// What is known to have happened to a signal.
    State {
        Queued = "queued",
        Pushed = "pushed",
        Received = "received",
        Rung = "rung",
        Rendered = "rendered",
        Drained = "drained",
        Acted = "acted",
        Dismissed = "dismissed",
        Expired = "expired",
        Recalled = "recalled",
        Failed = "failed",
    }
}

names! {
    /// Where on its way a signal was seen.
    Layer {
        BackendWrite = "backend_write",
        RedisPublish = "redis_publish",
        ShimTeeReceipt = "shim_tee_receipt",
        ChannelNotification = "channel_notification",
        ModelAck = "model_ack",
    }
}

names! {
    /// What the server could do with a signal the moment it was durable: `published` says that other
    /// servers were told, one of which may hold the recipient's socket.
    PublishPath {
        PushedToWs = "pushed_to_ws",
        Published = "published",
        QueuedOffline = "queued_offline",
        NoSubscriber = "no_subscriber",
    }
}

impl PublishPath {
    /// A socket that has the frame, or reads the store and comes to it there, beats a session
    /// without one, and that beats nobody. A socket that is not here may be known to be at another
    /// server, if the signal was `carried` there.
    pub const fn of(subscribed: bool, live: bool, carried: bool) -> Self {
        match (subscribed, live, carried) {
            (true, ..) => Self::PushedToWs,
            (false, true, true) => Self::Published,
            (false, true, false) => Self::NoSubscriber,
            (false, false, _) => Self::QueuedOffline,
        }
    }
}

impl State {
    /// The layer whose evidence this state is.
    pub const fn layer(self) -> Layer {
        match self {
            Self::Queued | Self::Expired | Self::Recalled | Self::Failed => Layer::BackendWrite,
            Self::Pushed => Layer::RedisPublish,
            Self::Received => Layer::ShimTeeReceipt,
            Self::Rung | Self::Rendered => Layer::ChannelNotification,
            Self::Drained | Self::Acted | Self::Dismissed => Layer::ModelAck,
        }
    }

    /// The states that a client may report about its own session.
    pub const fn is_reported_by_shim(self) -> bool {
        matches!(self, Self::Received | Self::Rung | Self::Rendered)
    }
}

/// What one session of the recipient is known to have had.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SessionReceipt {
    pub session_id: Uuid,
    pub surface: String,
    pub machine_id: String,
    pub pushed: Option<Moment>,
    pub received: Option<Moment>,
    pub rung: Option<Moment>,
    pub rendered: Option<Moment>,
    pub drained: Option<Moment>,
    /// How the bell was handed over, when one was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// On which rung the host is known to have taken it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendered_by: Option<String>,
    /// The signal whose bell it was, when it was not this one's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<Uuid>,
    /// The server that pushed it, where there are several, and how long news takes to reach that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pushed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hop_us: Option<i64>,
}

/// The facts of the signal's own row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SignalFacts {
    pub queued: Moment,
    pub drained: Option<Moment>,
    pub acted: Option<Moment>,
    pub dismissed: Option<Moment>,
    pub expired: Option<Moment>,
    pub recalled: Option<Moment>,
    pub failed: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    pub state: State,
    pub at: Moment,
    pub states: BTreeMap<String, Moment>,
    pub sessions: Vec<SessionReceipt>,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceEvent {
    pub layer: Layer,
    /// A receipt state, or a note such as `lease_returned` or `observed`.
    pub state: String,
    pub observed_at: Moment,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The probe this belongs to, on every layer's row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loopback_id: Option<Uuid>,
}

impl SessionReceipt {
    /// Notes a fact about this session; says with what time, if it was news.
    ///
    /// The first report of a state counts. One that comes late, after a later state is known,
    /// gets that state's time: it was true by then, and nothing is refused or out of order.
    pub fn note(&mut self, state: State, at: Moment) -> Option<Moment> {
        let next_known = self
            .facts()
            .into_iter()
            .filter(|(s, _)| *s > state)
            .filter_map(|(_, at)| at)
            .min();
        let earliest = self.pushed.filter(|_| state != State::Pushed);
        let slot = match state {
            State::Pushed => &mut self.pushed,
            State::Received => &mut self.received,
            State::Rung => &mut self.rung,
            State::Rendered => &mut self.rendered,
            State::Drained => &mut self.drained,
            _ => return None,
        };
        if slot.is_some() {
            return None;
        }
        let at = earliest.map_or(at, |pushed| at.max(pushed));
        *slot = Some(next_known.map_or(at, |next| at.min(next)));
        *slot
    }

    /// By which bell the host has it, and whose that was.
    fn how_rendered(&self) -> Option<String> {
        let by = self.rendered_by.as_ref().or(self.strategy.as_ref())?;
        Some(match self.via {
            Some(via) => format!("{by} via {via}"),
            None => by.clone(),
        })
    }

    fn facts(&self) -> [(State, Option<Moment>); 5] {
        [
            (State::Pushed, self.pushed),
            (State::Received, self.received),
            (State::Rung, self.rung),
            (State::Rendered, self.rendered),
            (State::Drained, self.drained),
        ]
    }
}

impl SignalFacts {
    fn facts(&self) -> [(State, Option<Moment>); 7] {
        [
            (State::Queued, self.failed.is_none().then_some(self.queued)),
            (State::Drained, self.drained),
            (State::Acted, self.acted),
            (State::Dismissed, self.dismissed),
            (State::Expired, self.expired),
            (State::Recalled, self.recalled),
            (State::Failed, self.failed),
        ]
    }
}

impl Receipt {
    /// Assembles the receipt: each state with the first time it was seen
    /// anywhere, and the one furthest along the way as the headline.
    pub fn assemble(signal: &SignalFacts, sessions: Vec<SessionReceipt>) -> Self {
        let mut first: BTreeMap<State, Moment> = BTreeMap::new();
        let all = signal
            .facts()
            .into_iter()
            .chain(sessions.iter().flat_map(SessionReceipt::facts));
        for (state, at) in all.filter_map(|(s, at)| Some((s, at?))) {
            first
                .entry(state)
                .and_modify(|seen| *seen = at.min(*seen))
                .or_insert(at);
        }
        let (state, at) = first
            .iter()
            .next_back()
            .map_or((State::Queued, signal.queued), |(s, at)| (*s, *at));
        let states = first
            .into_iter()
            .map(|(s, at)| (s.name().to_owned(), at))
            .collect();
        Self {
            state,
            at,
            states,
            sessions,
        }
    }
}

/// Assembles the timeline of a signal, in the order things were seen.
pub fn timeline(
    signal: &SignalFacts,
    sessions: &[SessionReceipt],
    notes: Vec<TraceEvent>,
) -> Vec<TraceEvent> {
    let event = |state: State, at: Moment, session_id, detail| TraceEvent {
        layer: state.layer(),
        state: state.name().into(),
        observed_at: at,
        session_id,
        detail,
        loopback_id: None,
    };
    let mut ranked: Vec<(State, TraceEvent)> = Vec::new();
    let drained_by_session = sessions.iter().any(|s| s.drained.is_some());
    for (state, at) in signal.facts() {
        // The session's own row says more than the signal's.
        if let Some(at) = at
            && !(state == State::Drained && drained_by_session)
        {
            ranked.push((state, event(state, at, None, None)));
        }
    }
    for session in sessions {
        for (state, at) in session.facts() {
            if let Some(at) = at {
                let detail = match state {
                    State::Rung => session.strategy.clone(),
                    State::Rendered => session.how_rendered(),
                    _ => None,
                };
                ranked.push((state, event(state, at, Some(session.session_id), detail)));
            }
        }
    }
    ranked.extend(notes.into_iter().map(|note| (State::Failed, note)));
    ranked.sort_by_key(|(state, event)| (event.observed_at, *state));
    ranked.into_iter().map(|(_, event)| event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s: i64) -> Option<Moment> {
        Some(Moment(s * 1_000_000))
    }

    #[test]
    fn the_headline_is_the_furthest_fact_and_each_state_has_its_first_time() {
        let signal = SignalFacts {
            queued: Moment(0),
            ..Default::default()
        };
        let one = SessionReceipt {
            pushed: at(2),
            received: at(3),
            ..Default::default()
        };
        let two = SessionReceipt {
            pushed: at(1),
            ..Default::default()
        };
        let receipt = Receipt::assemble(&signal, vec![one, two]);
        assert_eq!(
            (receipt.state, receipt.at),
            (State::Received, Moment(3_000_000))
        );
        assert_eq!(receipt.states["pushed"], Moment(1_000_000));
        assert!(!receipt.states.contains_key("rung"));
    }

    #[test]
    fn a_bell_without_evidence_is_rung_and_never_rendered() {
        let session = SessionReceipt {
            rung: at(4),
            ..Default::default()
        };
        let receipt = Receipt::assemble(&SignalFacts::default(), vec![session]);
        assert_eq!(receipt.state, State::Rung);
        assert!(!receipt.states.contains_key("rendered"));
    }

    #[test]
    fn a_late_report_gets_the_time_of_the_next_state_known_and_a_repeat_says_nothing() {
        use State::{Drained, Pushed, Received, Rendered, Rung};
        for (reports, expected) in [
            // In order, each keeps its own time.
            (
                vec![
                    (Pushed, 1),
                    (Received, 2),
                    (Rung, 3),
                    (Rendered, 4),
                    (Drained, 5),
                ],
                [at(1), at(2), at(3), at(4), at(5)],
            ),
            // A receipt that comes after the drain was true by then.
            (
                vec![(Pushed, 1), (Drained, 3), (Received, 9)],
                [at(1), at(3), None, None, at(3)],
            ),
            (
                vec![
                    (Pushed, 1),
                    (Rendered, 4),
                    (Drained, 8),
                    (Rung, 9),
                    (Received, 9),
                ],
                [at(1), at(4), at(4), at(4), at(8)],
            ),
            // A repeat, however early or late, changes nothing.
            (
                vec![(Pushed, 2), (Received, 3), (Received, 9), (Pushed, 1)],
                [at(2), at(3), None, None, None],
            ),
            // A clock that went back does not put a report before its push.
            (
                vec![(Pushed, 5), (Rendered, 1)],
                [at(5), None, None, at(5), None],
            ),
            // Leased without a push, and offered to a socket only afterwards.
            (
                vec![(Drained, 3), (Pushed, 7)],
                [at(3), None, None, None, at(3)],
            ),
        ] {
            let mut session = SessionReceipt::default();
            for (state, s) in &reports {
                session.note(*state, Moment(s * 1_000_000));
            }
            let facts = session.facts().map(|(_, at)| at);
            assert_eq!(facts, expected, "{reports:?}");
        }
        assert_eq!(
            SessionReceipt::default().note(State::Acted, Moment(1)),
            None
        );
    }

    #[test]
    fn each_rung_of_a_timeline_says_how_and_a_coalesced_one_whose_bell_it_was() {
        let via = Uuid::from_u128(7);
        for (rendered_by, via, told) in [
            (None, None, "claude_inbox".to_owned()),
            (Some("hooks"), None, "hooks".to_owned()),
            (Some("hooks"), Some(via), format!("hooks via {via}")),
        ] {
            let session = SessionReceipt {
                rung: at(1),
                rendered: at(2),
                strategy: Some("claude_inbox".into()),
                rendered_by: rendered_by.map(str::to_owned),
                via,
                ..Default::default()
            };
            let lines = timeline(&SignalFacts::default(), &[session], vec![]);
            let details: Vec<_> = lines.into_iter().filter_map(|e| e.detail).collect();
            assert_eq!(details, ["claude_inbox".to_owned(), told]);
        }
    }

    #[test]
    fn a_path_is_the_best_that_could_be_done() {
        for (subscribed, live, carried, path) in [
            (true, true, false, PublishPath::PushedToWs),
            (true, true, true, PublishPath::PushedToWs),
            (false, true, true, PublishPath::Published),
            (false, true, false, PublishPath::NoSubscriber),
            (false, false, true, PublishPath::QueuedOffline),
            (false, false, false, PublishPath::QueuedOffline),
        ] {
            assert_eq!(PublishPath::of(subscribed, live, carried), path);
        }
    }

    #[test]
    fn an_end_is_the_headline_and_a_failed_send_was_never_queued() {
        for (facts, state) in [
            (
                SignalFacts {
                    expired: at(9),
                    ..Default::default()
                },
                State::Expired,
            ),
            (
                SignalFacts {
                    recalled: at(9),
                    ..Default::default()
                },
                State::Recalled,
            ),
            (
                SignalFacts {
                    drained: at(3),
                    dismissed: at(9),
                    ..Default::default()
                },
                State::Dismissed,
            ),
            (
                SignalFacts {
                    failed: at(9),
                    ..Default::default()
                },
                State::Failed,
            ),
        ] {
            let receipt = Receipt::assemble(&facts, vec![]);
            assert_eq!(receipt.state, state);
            assert_eq!(
                receipt.states.contains_key("queued"),
                state != State::Failed
            );
        }
    }

    #[test]
    fn a_timeline_runs_in_the_order_things_were_seen() {
        let signal = SignalFacts {
            queued: Moment(0),
            drained: at(5),
            acted: at(6),
            ..Default::default()
        };
        let session = SessionReceipt {
            pushed: at(1),
            received: at(2),
            rung: at(2),
            drained: at(5),
            strategy: Some("claude_channel".into()),
            ..Default::default()
        };
        let lines: Vec<_> = timeline(&signal, &[session], vec![])
            .into_iter()
            .map(|e| (e.state, e.layer.name()))
            .collect();
        let expected = [
            ("queued", "backend_write"),
            ("pushed", "redis_publish"),
            ("received", "shim_tee_receipt"),
            ("rung", "channel_notification"),
            ("drained", "model_ack"),
            ("acted", "model_ack"),
        ];
        assert_eq!(lines, expected.map(|(s, l)| (s.to_owned(), l)));
    }
}
