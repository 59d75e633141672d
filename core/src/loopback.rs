//! The loopback probe: what each layer saw, what is missing, and what that usually means.

use crate::moment::Moment;
use crate::receipt::Layer;
use crate::signal::names;
use crate::text::{clip, one_line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How long the shim is asked unless told otherwise, in milliseconds.
pub const TIMEOUT_MS: u64 = 2_000;
/// The longest a caller may wait.
pub const TIMEOUT_MS_MAX: u64 = 120_000;
/// The strategy of a probe that rings no bell.
pub const SUPPRESSED: &str = "suppressed";
/// Random bytes of a probe's nonce.
pub const NONCE_BYTES: usize = 16;
/// Characters that the name of a bell may have in a result that somebody sends.
const CLAIM_CHARS_MAX: usize = 40;
/// How a bell is known to have been taken.
const EVIDENCE: [&str; 2] = ["accepted", "sent"];

names! {
    Outcome { Complete = "complete", Partial = "partial", Timeout = "timeout" }
}

/// What one layer is known to have seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    pub observed: bool,
    pub observed_at: Option<Moment>,
    pub elapsed_ms: Option<f64>,
}

/// The publish layer, with the bus it went over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    #[serde(flatten)]
    pub seen: Seen,
    /// `in_process`, `redis` or `pg_notify`.
    pub transport: Option<String>,
    /// The server that pushed, where there are several, and how long news takes to reach it.
    pub server: Option<String>,
    pub hop_ms: Option<f64>,
}

/// The bell's layer, with how it was handed over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Notified {
    #[serde(flatten)]
    pub seen: Seen,
    /// The bell in force; `suppressed` in a series.
    pub strategy: Option<String>,
    /// `accepted` when the host took it, `sent` when it cannot say.
    pub evidence: Option<String>,
}

impl Notified {
    /// Says whether the bell was left out on purpose.
    pub fn is_suppressed(&self) -> bool {
        self.strategy.as_deref() == Some(SUPPRESSED)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Layers {
    pub backend_write: Seen,
    pub redis_publish: Published,
    pub shim_tee_receipt: Seen,
    pub channel_notification: Notified,
    pub model_ack: Seen,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Echo {
    pub expected: bool,
    pub signal_id: Option<Uuid>,
    pub observed_at: Option<Moment>,
}

/// The result envelope: every key is always there, null when not observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    pub spec: String,
    pub version: String,
    pub loopback_id: Uuid,
    pub signal_id: Uuid,
    pub trace_id: Uuid,
    pub requested_by_identity: String,
    pub requested_by_session: Option<Uuid>,
    pub surface: String,
    pub machine_id: String,
    pub started_at: Moment,
    pub finished_at: Option<Moment>,
    pub outcome: Outcome,
    pub layers: Layers,
    pub missing_layers: Vec<Layer>,
    pub echo: Echo,
    /// What a sender would have been told about the recipient.
    #[serde(default)]
    pub recipient_state: Option<String>,
}

/// What the shim saw of a probe.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ShimEvidence {
    pub received_at: Option<Moment>,
    pub notification: Option<Notification>,
    pub echo: Option<EchoSeen>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Notification {
    pub observed_at: Moment,
    pub strategy: String,
    pub evidence: Option<String>,
    /// The bell reached the host's transport.
    pub handed: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EchoSeen {
    pub signal_id: Uuid,
    pub observed_at: Moment,
}

impl ShimEvidence {
    /// Says whether there is nothing left to wait for.
    pub fn is_whole(&self, echo_expected: bool) -> bool {
        self.received_at.is_some()
            && self.notification.is_some()
            && (!echo_expected || self.echo.is_some())
    }
}

impl Layers {
    pub fn each(&self) -> [(Layer, &Seen); 5] {
        [
            (Layer::BackendWrite, &self.backend_write),
            (Layer::RedisPublish, &self.redis_publish.seen),
            (Layer::ShimTeeReceipt, &self.shim_tee_receipt),
            (Layer::ChannelNotification, &self.channel_notification.seen),
            (Layer::ModelAck, &self.model_ack),
        ]
    }
}

impl Probe {
    /// Notes that a layer saw the probe, counting from its start. A clock that
    /// jumped back never makes a layer earlier than the one before it.
    pub fn seen(&self, at: Moment, not_before: f64) -> Seen {
        let elapsed = (at.since_us(self.started_at) as f64 / 1000.0).max(not_before);
        Seen {
            observed: true,
            observed_at: Some(at),
            elapsed_ms: Some((elapsed * 1000.0).round() / 1000.0),
        }
    }

    /// Adds what the shim and the server saw afterwards, and judges.
    pub fn finish(
        mut self,
        shim: &ShimEvidence,
        model_ack: Option<Moment>,
        finished_at: Moment,
    ) -> Self {
        let mut floor = self
            .layers
            .redis_publish
            .seen
            .elapsed_ms
            .or(self.layers.backend_write.elapsed_ms)
            .unwrap_or(0.0);
        if let Some(at) = shim.received_at {
            self.layers.shim_tee_receipt = self.seen(at, floor);
            floor = self.layers.shim_tee_receipt.elapsed_ms.unwrap_or(floor);
        }
        if let Some(bell) = &shim.notification {
            self.layers.channel_notification = Notified {
                seen: if bell.handed {
                    self.seen(bell.observed_at, floor)
                } else {
                    Seen::default()
                },
                strategy: Some(bell.strategy.clone()),
                evidence: bell.evidence.clone().filter(|_| bell.handed),
            };
        }
        if let Some(at) = model_ack {
            self.layers.model_ack = self.seen(at, floor);
        }
        if let Some(echo) = &shim.echo {
            (self.echo.signal_id, self.echo.observed_at) =
                (Some(echo.signal_id), Some(echo.observed_at));
        }
        self.finished_at = Some(finished_at);
        self.judge();
        self
    }

    /// What a finished probe says the shim saw, as far as it can be believed: times between its
    /// start and now, words that are ours or short, and nothing of a probe that was never pushed.
    pub fn claimed(&self, pushed: bool, started_at: Moment, now: Moment) -> ShimEvidence {
        if !pushed {
            return ShimEvidence::default();
        }
        let within = |at: Option<Moment>| at.unwrap_or(now).clamp(started_at, now.max(started_at));
        let short = |text: &String| clip(&one_line(text), CLAIM_CHARS_MAX);
        let (tee, bell) = (
            &self.layers.shim_tee_receipt,
            &self.layers.channel_notification,
        );
        let notification = bell.strategy.as_ref().map(|strategy| Notification {
            observed_at: within(bell.seen.observed_at),
            strategy: short(strategy),
            evidence: (bell.evidence.clone()).filter(|e| EVIDENCE.contains(&e.as_str())),
            handed: bell.seen.observed,
        });
        let echo = self.echo.signal_id.map(|signal_id| EchoSeen {
            signal_id,
            observed_at: within(self.echo.observed_at),
        });
        ShimEvidence {
            received_at: tee.observed.then(|| within(tee.observed_at)),
            notification,
            echo,
        }
    }

    fn judge(&mut self) {
        let suppressed = self.layers.channel_notification.is_suppressed();
        self.missing_layers = self
            .layers
            .each()
            .iter()
            .filter(|(layer, seen)| {
                !(seen.observed || suppressed && *layer == Layer::ChannelNotification)
            })
            .map(|(layer, _)| *layer)
            .collect();
        let required_missing = self.missing_layers.iter().any(|l| *l != Layer::ModelAck);
        let past_the_server = self.layers.shim_tee_receipt.observed
            || self.layers.channel_notification.seen.observed
            || self.echo.observed_at.is_some();
        self.outcome = match (required_missing, past_the_server) {
            (false, _) => Outcome::Complete,
            (true, true) => Outcome::Partial,
            (true, false) => Outcome::Timeout,
        };
    }

    /// The first required layer that saw nothing.
    pub fn broken_at(&self) -> Option<Layer> {
        self.missing_layers
            .iter()
            .copied()
            .find(|l| *l != Layer::ModelAck)
    }
}

/// What a miss at this layer usually means, and what to do about it.
pub fn diagnosis(layer: Layer) -> (&'static str, &'static str) {
    match layer {
        Layer::BackendWrite => (
            "the server did not store the probe",
            "look at the server's log and at the free space of $PRISM_HOME",
        ),
        Layer::RedisPublish => (
            "nothing was pushed: the session has no socket, or the bus is down",
            "`prism status` shows whether it is connected; restart the agent host, or the bus",
        ),
        Layer::ShimTeeReceipt => (
            "the frame was pushed and no shim received it: the shim hangs, or the connection died without a word",
            "`prism doctor` lists live shims; restart the agent host",
        ),
        Layer::ChannelNotification => (
            "the shim has it, and the host did not take the bell: its pipe is closed, or this host has no bell",
            "set PRISM_DOORBELL for this host; until then signals ride on the agent's next verb",
        ),
        Layer::ModelAck => (
            "the model has not read its inbox since",
            "a host may drop bells silently; ask the agent to call prism_signals_pending",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(pushed: bool) -> Probe {
        let mut probe = Probe {
            spec: "SPEC-100".into(),
            version: "0.1".into(),
            loopback_id: Uuid::from_u128(1),
            signal_id: Uuid::from_u128(2),
            trace_id: Uuid::from_u128(3),
            requested_by_identity: "Donna".into(),
            requested_by_session: Some(Uuid::from_u128(4)),
            surface: "claude_code".into(),
            machine_id: "m".into(),
            started_at: Moment(1_000_000),
            finished_at: None,
            outcome: Outcome::Timeout,
            layers: Layers::default(),
            missing_layers: Vec::new(),
            echo: Echo {
                expected: true,
                ..Echo::default()
            },
            recipient_state: None,
        };
        probe.layers.backend_write = probe.seen(Moment(1_000_400), 0.0);
        if pushed {
            probe.layers.redis_publish.seen = probe.seen(Moment(1_000_500), 0.4);
        }
        probe
    }

    fn evidence(received: bool, handed: Option<bool>, strategy: &str) -> ShimEvidence {
        ShimEvidence {
            received_at: received.then_some(Moment(1_001_100)),
            notification: handed.map(|handed| Notification {
                observed_at: Moment(1_001_300),
                strategy: strategy.into(),
                evidence: Some("sent".into()),
                handed,
            }),
            echo: received.then_some(EchoSeen {
                signal_id: Uuid::from_u128(9),
                observed_at: Moment(1_002_000),
            }),
        }
    }

    #[test]
    fn the_outcome_follows_the_first_four_layers() {
        for (name, pushed, shim, outcome, broken) in [
            (
                "all seen",
                true,
                evidence(true, Some(true), "claude_channel"),
                Outcome::Complete,
                None,
            ),
            (
                "suppressed bell",
                true,
                evidence(true, Some(false), "suppressed"),
                Outcome::Complete,
                None,
            ),
            (
                "bell refused",
                true,
                evidence(true, Some(false), "claude_channel"),
                Outcome::Partial,
                Some(Layer::ChannelNotification),
            ),
            (
                "no shim",
                true,
                evidence(false, None, ""),
                Outcome::Timeout,
                Some(Layer::ShimTeeReceipt),
            ),
            (
                "not pushed",
                false,
                evidence(false, None, ""),
                Outcome::Timeout,
                Some(Layer::RedisPublish),
            ),
        ] {
            let probe = probe(pushed).finish(&shim, None, Moment(2_000_000));
            assert_eq!(
                (probe.outcome, probe.broken_at()),
                (outcome, broken),
                "{name}"
            );
            assert!(
                probe.missing_layers.contains(&Layer::ModelAck),
                "{name}: a silent model is named, and is no failure"
            );
        }
    }

    #[test]
    fn what_somebody_claims_of_a_probe_is_short_in_time_and_never_more_than_was_pushed() {
        let mut lie = probe(true).finish(
            &evidence(true, Some(true), "claude_channel"),
            None,
            Moment(2_000_000),
        );
        lie.layers.channel_notification.strategy = Some("\u{1b}[31mred\n".repeat(1_000));
        lie.layers.channel_notification.evidence = Some("proven".into());
        lie.layers.shim_tee_receipt.observed_at = Some(Moment(i64::MAX));
        let (start, now) = (Moment(1_000_000), Moment(3_000_000));
        let claimed = lie.claimed(true, start, now);
        assert_eq!(claimed.received_at, Some(now));
        let bell = claimed.notification.unwrap();
        assert!(bell.strategy.chars().count() <= 40 && !bell.strategy.contains('\u{1b}'));
        assert_eq!((bell.evidence, bell.handed), (None, true));
        assert_eq!(lie.claimed(false, start, now), ShimEvidence::default());
    }

    #[test]
    fn layers_never_run_backwards_even_when_a_clock_jumps() {
        let mut shim = evidence(true, Some(true), "claude_channel");
        shim.received_at = Some(Moment(0));
        let probe = probe(true).finish(&shim, None, Moment(2_000_000));
        let times: Vec<f64> = probe
            .layers
            .each()
            .iter()
            .filter_map(|(_, s)| s.elapsed_ms)
            .collect();
        assert!(times.is_sorted(), "{times:?}");
    }

    #[test]
    fn a_model_that_answered_is_the_fifth_layer() {
        let probe = probe(true).finish(
            &evidence(true, Some(true), "claude_channel"),
            Some(Moment(1_500_000)),
            Moment(2_000_000),
        );
        assert!(probe.missing_layers.is_empty() && probe.layers.model_ack.observed);
    }

    /// The keys of ruling and documentation, layer by layer.
    #[test]
    fn every_key_is_there_whatever_was_seen() {
        let nothing = probe(false).finish(&ShimEvidence::default(), None, Moment(2_000_000));
        let everything = probe(true).finish(
            &evidence(true, Some(true), "claude_channel"),
            Some(Moment(1_500_000)),
            Moment(2_000_000),
        );
        let open = probe(false);
        let keys = |value: &serde_json::Value| -> Vec<String> {
            value.as_object().unwrap().keys().cloned().collect()
        };
        for (probe, seen) in [(&nothing, false), (&everything, true), (&open, false)] {
            let value = serde_json::to_value(probe).unwrap();
            insta::allow_duplicates! {
                insta::assert_snapshot!(keys(&value).join(" "), @"echo finished_at layers loopback_id machine_id missing_layers outcome recipient_state requested_by_identity requested_by_session signal_id spec started_at surface trace_id version");
                insta::assert_snapshot!(keys(&value["echo"]).join(" "), @"expected observed_at signal_id");
            }
            for (layer, more) in [
                ("backend_write", &[][..]),
                ("redis_publish", &["hop_ms", "server", "transport"]),
                ("shim_tee_receipt", &[]),
                ("channel_notification", &["evidence", "strategy"]),
                ("model_ack", &[]),
            ] {
                let layer_value = &value["layers"][layer];
                let mut expected = vec!["elapsed_ms", "observed", "observed_at"];
                expected.extend(more);
                expected.sort_unstable();
                assert_eq!(keys(layer_value), expected, "{layer}");
                if !seen && layer != "backend_write" {
                    assert!(
                        expected
                            .iter()
                            .filter(|key| **key != "observed")
                            .all(|key| layer_value[key].is_null()),
                        "{layer}: {layer_value}"
                    );
                }
            }
        }
        let read: Probe =
            serde_json::from_value(serde_json::to_value(&everything).unwrap()).unwrap();
        assert_eq!(read, everything, "whoever reads it back reads the same");
    }
}
