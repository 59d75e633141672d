//! The bus: tells whoever holds the recipient's sockets what was committed, here and at other servers.
//!
//! The store publishes in commit order, right after the commit. The bus is a doorbell: what it
//! loses, a socket reads from the store. In one process it is the hub; where several servers share
//! a database, a carrier takes the same to the others, and nothing else knows which one is in use.

mod carrier;
mod health;
mod pg_notify;
mod redis;

pub use carrier::{Carrier, Heard, Incoming, Member};
pub use health::{Condition, Health};

use crate::clock;
use crate::hub::Hub;
use crate::store::{Committed, NewSignal};
use prism_core::Moment;
use prism_core::api::ServerFrame;
use prism_core::bus::News;
use prism_core::receipt::PublishPath;
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

#[derive(Clone)]
pub struct Bus {
    /// This process, among others that share its rows.
    server: Uuid,
    hub: Arc<Hub>,
    /// Set once, when the server joins others.
    carrier: Arc<OnceLock<Carrier>>,
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
        Self {
            server: clock::new_id(),
            hub: Arc::default(),
            carrier: Arc::default(),
        }
    }
}

impl Bus {
    pub fn server(&self) -> Uuid {
        self.server
    }

    /// The sockets of this process.
    pub fn hub(&self) -> &Arc<Hub> {
        &self.hub
    }

    /// From now on others are told, too.
    pub fn join(&self, carrier: Carrier) {
        let others = !matches!(carrier, Carrier::Alone);
        if self.carrier.set(carrier).is_ok() && others {
            self.hub.live().tells_others();
        }
    }

    pub fn carrier(&self) -> &Carrier {
        self.carrier.get().unwrap_or(&Carrier::Alone)
    }

    /// What a push will most likely come to, so that the row can say it from the start.
    pub fn expects(&self, new: &NewSignal) -> PublishPath {
        let subscribed = self.hub.is_subscribed(new.to_persona.id, new.audience);
        let carried = new.recipient_elsewhere && self.carrier().reaches_others();
        PublishPath::of(subscribed, new.recipient_live, carried)
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
        let carried = committed.recipient_elsewhere && self.carrier().reaches_others();
        let path = PublishPath::of(subscribed, committed.recipient_live, carried);
        // Probes are no signals of the mesh, and what failed never went anywhere.
        if envelope.seq.is_some() && !envelope.is_loopback() {
            hub.show(committed.project, || ServerFrame::Watched {
                envelope: committed.whole(),
                publish_path: path,
            });
        }
        if let Some(seq) = envelope.seq {
            self.carrier().say(|| News::Sent {
                project: committed.project,
                persona: committed.to_persona,
                seq,
                signal_id: envelope.signal_id,
            });
        }
        Pushed {
            at,
            took: offered.took,
            reading: offered.reading,
            path,
        }
    }

    /// Tells the sessions of an identity, except one, wherever they are.
    pub fn tell(&self, persona: Uuid, except: Option<Uuid>, frame: ServerFrame) {
        self.hub.tell(persona, except, &frame);
        self.carrier().say(|| News::Tell {
            persona,
            except,
            frame,
        });
    }

    /// Tells everybody in a project, except one session, wherever they are.
    pub fn tell_project(&self, project: Uuid, except: Option<Uuid>, frame: ServerFrame) {
        self.hub.tell_project(project, except, &frame);
        self.carrier().say(|| News::TellProject {
            project,
            except,
            frame,
        });
    }

    /// Says that keys, projects or personas are others in the store now.
    pub fn directory_changed(&self) {
        self.carrier().say(|| News::Directory);
    }

    /// Says that a session is another in the store now: begun, moved, gone silent.
    pub fn session_changed(&self, session: Uuid) {
        self.carrier().say(|| News::Session { session });
    }
}
