//! What several servers on one database keep of each other: who holds which session, who does what for all.

use super::{Result, SessionRow, Store};
use prism_core::{Identity, Moment};
use uuid::Uuid;

/// The server that holds a session's socket, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub server: Uuid,
    pub since: Moment,
}

/// When a session was last seen, and when it last called.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    pub session: Uuid,
    pub at: Moment,
    pub last_verb_at: Option<Moment>,
    /// Where its socket is, while that is known.
    pub seat: Option<Seat>,
}

impl SessionRow {
    pub fn seen(&self) -> Seen {
        Seen {
            session: self.id,
            at: self.last_seen_at,
            last_verb_at: self.last_verb_at,
            seat: self.seat,
        }
    }
}

/// What a new session finds.
#[derive(Clone, Debug)]
pub enum Room {
    Taken,
    /// Its identity has as many open sessions as it may have; one that was silent for too long may go.
    Full {
        longest_silent: Option<Box<SessionRow>>,
    },
}

/// Numbers that go up when other servers change what this one has in memory, and the generation of
/// vectors that answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    pub names: i64,
    pub sessions: i64,
    pub generation: Option<String>,
}

/// Which copy of a database answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Another one where commits may be lacking that were there before.
    pub name: String,
    /// An earlier state of its files has the same name: it is brought back under a database that stands still.
    pub started_at: Moment,
}

/// What one server does for all that share a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Old rows go.
    Retention,
    /// Rows are embedded anew by other models.
    Generation,
}

impl Duty {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Generation => "generation",
        }
    }
}

impl Store {
    /// Whether other servers may stand on the same rows.
    pub fn is_shared(&self) -> bool {
        self.0.is_shared()
    }

    /// Whether anything that this server has in memory may be another's to change since.
    pub async fn signs(&self) -> Result<Signs> {
        self.0.signs().await
    }

    /// What the database calls itself: the same at a standby that takes over, another at a copy that was restored from a
    /// dump. None for a file, and where it does not say.
    pub async fn database(&self) -> Result<Option<String>> {
        self.0.database().await
    }

    /// Which copy of the database this is: another one once a standby has taken over, or an earlier state was brought back.
    pub async fn which_copy(&self) -> Result<Option<Copy>> {
        self.0.which_copy().await
    }

    /// Goes to the database by new connections from now on: the old ones may lead to one that it was before.
    pub fn connect_anew(&self) {
        self.0.connect_anew();
    }

    /// Which signal has a place in an inbox, whatever became of it; none where there is none, or none any more.
    pub async fn signal_at(&self, persona: Uuid, seq: i64) -> Result<Option<Uuid>> {
        self.0.signal_at(persona, seq).await
    }

    /// The sessions that have come to other servers since then.
    pub async fn seated_elsewhere(&self, since: Moment) -> Result<Vec<Uuid>> {
        self.0.seated_elsewhere(since).await
    }

    /// Another server has put something into an inbox.
    pub fn inbox_filled(&self, persona: Uuid) {
        self.0.inbox_filled(persona);
    }

    /// Whether this server has a duty until then: nobody else has, or no longer.
    pub async fn has_duty(&self, duty: Duty, now: Moment, until: Moment) -> Result<bool> {
        self.0.has_duty(duty, now, until).await
    }

    /// Has each open session taken in as it is read: there may be many. A read that broke off begins again with
    /// what there was before.
    pub async fn each_open_session<T: Clone + Send + 'static>(
        &self,
        into: T,
        take: impl FnMut(&mut T, SessionRow) + Clone + Send + 'static,
    ) -> Result<T> {
        self.0.each_open_session(into, take).await
    }

    /// The sessions of these ids, in whatever state.
    pub async fn sessions_of(&self, ids: Vec<Uuid>) -> Result<Vec<SessionRow>> {
        self.0.sessions_of(ids).await
    }

    /// Notes that a session's socket is here from now on; none when the session is over.
    pub async fn seat_session(&self, id: Uuid, now: Moment) -> Result<Option<Seat>> {
        self.0.seat_session(id, now).await
    }

    /// Notes, without waiting for the disk, that it is not any more, unless it is elsewhere already; other servers are told
    /// then.
    pub fn unseat_session(&self, id: Uuid, seat: Seat) {
        self.0.unseat_session(id, seat)
    }

    /// Whether any session was silent since then, as far as rows say.
    pub async fn any_silent(&self, since: Moment) -> Result<bool> {
        self.0.any_silent(since).await
    }

    /// The sessions that were silent since then at every server: each is told once, to one of them. What was
    /// seen here is noted first.
    pub async fn left_since(
        &self,
        silent_since: Moment,
        seen: Vec<Seen>,
        now: Moment,
    ) -> Result<Vec<SessionRow>> {
        self.0.left_since(silent_since, seen, now).await
    }

    /// Keeps the hash of a link that opens the page once; of too many the oldest go.
    pub async fn add_link(&self, sha256: String, until: Moment, now: Moment) -> Result<()> {
        self.0.add_link(sha256, until, now).await
    }

    /// Uses a link up; false when it is not good any more.
    pub async fn take_link(&self, sha256: String, now: Moment) -> Result<bool> {
        self.0.take_link(sha256, now).await
    }

    /// What the operator is called, where there is a project yet.
    pub async fn operator_name(&self) -> Result<Option<Identity>> {
        self.0.operator_name().await
    }

    /// Two projects have become one at another server: what is kept by project is read again.
    pub fn projects_moved(&self) {
        self.0.projects_moved();
    }

    /// Measures the database's clock, which all servers on it go by.
    pub async fn follow_clock(&self) -> Result<()> {
        self.0.follow_clock().await
    }

    /// When something that waits expires, climbs or goes back next.
    pub async fn next_due(&self) -> Result<Option<Moment>> {
        self.0.next_due().await
    }

    /// Gives rows back that were taken to be embedded, for whoever comes next.
    pub async fn give_back_jobs(&self, rows: Vec<String>) -> Result<()> {
        self.0.give_back_jobs(rows).await
    }
}
