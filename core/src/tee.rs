//! The tee log: metadata of the last frames a shim received, and nothing else.

use crate::envelope::Envelope;
use crate::moment::Moment;
use crate::signal::sha256_hex;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Frames kept at the most.
pub const TEE_FRAMES_MAX: usize = 100;
/// Age at which a frame is dropped.
pub const TEE_AGE_US: i64 = 10 * 60 * 1_000_000;

/// One received frame: seven fields, no payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeeFrame {
    pub received_at: Moment,
    pub signal_id: Uuid,
    pub trace_id: Option<Uuid>,
    pub loopback_id: Option<Uuid>,
    pub signal_type: String,
    pub frame_size_bytes: usize,
    pub nonce_hash: Option<String>,
}

impl TeeFrame {
    pub fn of(envelope: &Envelope, frame_size_bytes: usize, received_at: Moment) -> Self {
        let probe = |field: &str| {
            envelope
                .payload
                .get(field)
                .and_then(|v| v.as_str())
                .filter(|_| envelope.is_loopback())
        };
        Self {
            received_at,
            signal_id: envelope.signal_id,
            trace_id: envelope.trace_id,
            loopback_id: probe("loopback_id").and_then(|id| id.parse().ok()),
            // A type is a name from a closed list; anything else could smuggle text.
            signal_type: envelope
                .known_type()
                .map_or_else(|| "unknown".to_owned(), |t| t.name().to_owned()),
            frame_size_bytes,
            nonce_hash: probe("nonce").map(|nonce| sha256_hex(nonce.as_bytes())),
        }
    }
}

/// Adds frames to a tee log's text and keeps what is young and recent enough.
pub fn append(log: &str, frames: &[TeeFrame], now: Moment) -> String {
    let mut kept: Vec<TeeFrame> = parse(log);
    kept.extend_from_slice(frames);
    kept.retain(|f| now.since_us(f.received_at) < TEE_AGE_US);
    let over = kept.len().saturating_sub(TEE_FRAMES_MAX);
    lines(&kept[over..])
}

/// The frames as the log holds them, one a line.
pub fn lines(frames: &[TeeFrame]) -> String {
    frames
        .iter()
        .filter_map(|f| serde_json::to_string(f).ok())
        .map(|line| line + "\n")
        .collect()
}

/// Halves a log that is full, so that the next frames need only be added at its end.
pub fn rotated(log: &str, frames: &[TeeFrame], now: Moment) -> (String, usize, Option<Moment>) {
    let mut kept = parse(&append(log, frames, now));
    if kept.len() >= TEE_FRAMES_MAX {
        kept.drain(..TEE_FRAMES_MAX / 2);
    }
    (
        lines(&kept),
        kept.len(),
        kept.first().map(|f| f.received_at),
    )
}

/// Reads a tee log; a torn or foreign line is skipped.
pub fn parse(log: &str) -> Vec<TeeFrame> {
    log.lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn envelope(kind: &str, payload: serde_json::Value) -> Envelope {
        serde_json::from_value(json!({"signal_id": Uuid::from_u128(1), "signal_type": kind, "from_identity": "A", "to_identity": "B", "payload": payload})).unwrap()
    }

    #[test]
    fn the_log_keeps_100_frames_and_ten_minutes() {
        let frame = |s: i64| {
            TeeFrame::of(
                &envelope("StatusUpdate", json!({})),
                10,
                Moment(s * 1_000_000),
            )
        };
        let log = append(
            "",
            &(0..150).map(frame).collect::<Vec<_>>(),
            Moment(150_000_000),
        );
        assert_eq!(parse(&log).len(), 100);
        assert_eq!(parse(&log)[0].received_at, Moment(50_000_000));
        let later = append(&log, &[frame(700)], Moment(700_000_000));
        assert_eq!(parse(&later).len(), 50);
        assert_eq!(
            parse(&append("torn {\n", &[frame(1)], Moment(1_000_000))).len(),
            1
        );
    }

    #[test]
    fn a_probe_is_found_by_its_id_and_its_nonce_only_by_hash() {
        let probe = TeeFrame::of(
            &envelope(
                "Loopback",
                json!({"loopback_id": Uuid::from_u128(7), "nonce": "abc"}),
            ),
            1,
            Moment(0),
        );
        assert_eq!(probe.loopback_id, Some(Uuid::from_u128(7)));
        assert_eq!(
            probe.nonce_hash.as_deref(),
            Some(sha256_hex(b"abc").as_str())
        );
        let other = TeeFrame::of(
            &envelope(
                "StatusUpdate",
                json!({"loopback_id": Uuid::from_u128(7), "nonce": "abc"}),
            ),
            1,
            Moment(0),
        );
        assert_eq!((other.loopback_id, other.nonce_hash), (None, None));
    }

    proptest! {
        #[test]
        fn no_byte_of_a_payload_reaches_the_log(secret in "[g-z]{6,40}", field in "[a-z_]{1,12}", kind in prop_oneof![Just("Loopback".to_owned()), Just("TaskAssigned".to_owned()), "[g-z]{6,20}"]) {
            let envelope = envelope(&kind, json!({ field: &secret, "nonce": &secret, "loopback_id": &secret, "summary": &secret }));
            let log = append("", &[TeeFrame::of(&envelope, 1, Moment(0))], Moment(0));
            prop_assert!(!log.contains(&secret), "{}", log);
        }
    }
}
