//! Ringing beside the stream: bells are rung in order, and a slow host holds up nobody else.

use super::{Session, Shim, probe};
use crate::{clock, config};
use prism_core::Moment;
use prism_core::api::ClientFrame;
use prism_core::bell::Notice;
use prism_core::envelope::Envelope;
use prism_core::limits::REPLAY_ROWS;
use prism_core::receipt::State;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

/// How often a bell that the host has not told of is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What the stream asks to be rung for.
pub enum ToRing {
    /// One bell for all of them, in the name of the newest.
    Signals(Vec<Notice>),
    /// The same on a further rung: they wait for too long.
    Escalated(Vec<Notice>),
    Probe {
        envelope: Box<Envelope>,
        loopback_id: Uuid,
        at: Moment,
    },
}

/// Rings for whatever the stream asks; the bell tells what was achieved.
pub async fn run(shim: Arc<Shim>, session: Arc<Session>, mut asked: UnboundedReceiver<ToRing>) {
    let bell = shim.bell();
    let look = config::clock_file().map_or(LOOK, |_| LOOK / 10);
    let mut next = None;
    loop {
        let job = match next.take() {
            Some(job) => job,
            None => tokio::select! {
                biased;
                job = asked.recv() => match job {
                    Some(job) => job,
                    None => return,
                },
                () = bell.something_is_left() => {
                    bell.ring_for_left().await;
                    continue;
                }
                () = tokio::time::sleep(look), if bell.any_unrendered() => {
                    bell.ring_overdue(clock::now()).await;
                    continue;
                }
            },
        };
        match job {
            ToRing::Signals(mut notices) => {
                // What came while the host was slow needs no bell of its own.
                while let Ok(more) = asked.try_recv() {
                    match more {
                        ToRing::Signals(more) => notices.extend(more),
                        other => {
                            next = Some(other);
                            break;
                        }
                    }
                }
                bell.ring(notices).await;
            }
            ToRing::Escalated(notices) => bell.escalate(notices).await,
            ToRing::Probe {
                envelope,
                loopback_id,
                at,
            } => probe::arrived(&shim, &session, &envelope, loopback_id, at).await,
        }
    }
}

/// Receipts in frames of a size that any server takes.
pub fn receipts(state: State, signal_ids: &[Uuid]) -> impl Iterator<Item = ClientFrame> + '_ {
    signal_ids
        .chunks(REPLAY_ROWS)
        .map(move |ids| ClientFrame::Receipt {
            state,
            signal_ids: ids.to_vec(),
            strategy: None,
            via: None,
        })
}
