//! The bus: tells whoever holds the recipient's sockets that a signal was committed.
//!
//! The store publishes in commit order, right after the commit. The bus is a doorbell: what it
//! loses, a socket reads from the store. In one process it is the hub; an engine that several
//! servers share puts its own arm here, and nothing else knows which one is in use.

use crate::clock;
use crate::hub::Hub;
use crate::store::{Audience, Committed};
use prism_core::Moment;
use prism_core::api::ServerFrame;
use prism_core::receipt::PublishPath;
use std::sync::Arc;
use uuid::Uuid;

#[derive(Clone)]
pub enum Bus {
    InProcess(Arc<Hub>),
}

/// What became of the push of one signal.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// When it was offered.
    pub at: Moment,
    /// Sessions whose socket has the frame in its queue.
    pub took: Vec<Uuid>,
    /// Sessions whose socket is reading the store and comes to it there.
    pub reading: Vec<Uuid>,
    pub path: PublishPath,
}

impl Default for Bus {
    fn default() -> Self {
        Self::InProcess(Arc::default())
    }
}

impl Bus {
    /// The sockets of this process.
    pub fn hub(&self) -> &Arc<Hub> {
        match self {
            Self::InProcess(hub) => hub,
        }
    }

    /// What a push will most likely come to, so that the row can say it from the start.
    pub fn expects(&self, persona: Uuid, audience: Audience, live: bool) -> PublishPath {
        PublishPath::of(self.hub().is_subscribed(persona, audience), live)
    }

    /// Offers a committed signal to the recipient's sockets and shows it to the project's watchers.
    pub fn publish(&self, committed: &Committed) -> Pushed {
        let hub = self.hub();
        let at = clock::now();
        let envelope = &committed.envelope;
        let offered = match envelope.seq {
            Some(seq) => hub.offer(committed.to_persona, committed.audience, seq, || {
                envelope.push_frame(&committed.payload_json).into()
            }),
            None => Default::default(),
        };
        let subscribed = !offered.took.is_empty() || !offered.reading.is_empty();
        let path = PublishPath::of(subscribed, committed.recipient_live);
        // Probes are no signals of the mesh, and what failed never went anywhere.
        if envelope.seq.is_some() && !envelope.is_loopback() {
            hub.show(committed.project, || ServerFrame::Watched {
                envelope: committed.whole(),
                publish_path: path,
            });
        }
        Pushed {
            at,
            took: offered.took,
            reading: offered.reading,
            path,
        }
    }
}
