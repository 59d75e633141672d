//! Ringing beside the stream: bells are rung in order, and a slow host holds up nobody else.

use super::{Session, Shim, probe};
use prism_core::Moment;
use prism_core::api::ClientFrame;
use prism_core::bell::Notice;
use prism_core::envelope::Envelope;
use prism_core::limits::REPLAY_ROWS;
use prism_core::receipt::State;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use uuid::Uuid;

/// What the stream asks to be rung for.
pub enum ToRing {
    /// One bell for all of them, in the name of the newest.
    Signals {
        newest: Notice,
        signal_ids: Vec<Uuid>,
    },
    Probe {
        envelope: Envelope,
        loopback_id: Uuid,
        at: Moment,
    },
}

/// Rings for whatever the stream asks, and leaves what was achieved for the stream to report.
pub async fn run(
    shim: Arc<Shim>,
    session: Arc<Session>,
    mut asked: UnboundedReceiver<ToRing>,
    reports: UnboundedSender<ClientFrame>,
) {
    let mut next = asked.recv().await;
    while let Some(job) = next.take() {
        match job {
            ToRing::Signals {
                mut newest,
                mut signal_ids,
            } => {
                // What came while the host was slow needs no bell of its own.
                while let Ok(more) = asked.try_recv() {
                    match more {
                        ToRing::Signals {
                            newest: newer,
                            signal_ids: more,
                        } => {
                            newest = newer;
                            signal_ids.extend(more);
                        }
                        probe @ ToRing::Probe { .. } => {
                            next = Some(probe);
                            break;
                        }
                    }
                }
                if let Some(rang) = shim.bell().ring(&newest, session.surface).await
                    && rang.handover.evidence().is_some()
                {
                    report_rung(&reports, &signal_ids, rang.strategy.name());
                }
            }
            ToRing::Probe {
                envelope,
                loopback_id,
                at,
            } => {
                let rung = probe::arrived(&shim, &session, &envelope, loopback_id, at).await;
                if let Some(strategy) = rung {
                    report_rung(&reports, &[envelope.signal_id], &strategy);
                }
            }
        }
        if next.is_none() {
            next = asked.recv().await;
        }
    }
}

fn report_rung(reports: &UnboundedSender<ClientFrame>, signal_ids: &[Uuid], strategy: &str) {
    for frame in receipts(State::Rung, signal_ids, Some(strategy)) {
        // Nobody listens any more once the session is over.
        drop(reports.send(frame));
    }
}

/// Receipts in frames of a size that any server takes.
pub fn receipts<'a>(
    state: State,
    signal_ids: &'a [Uuid],
    strategy: Option<&'a str>,
) -> impl Iterator<Item = ClientFrame> + 'a {
    signal_ids
        .chunks(REPLAY_ROWS)
        .map(move |ids| ClientFrame::Receipt {
            state,
            signal_ids: ids.to_vec(),
            strategy: strategy.map(str::to_owned),
        })
}
