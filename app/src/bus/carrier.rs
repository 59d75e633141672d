//! What takes news to other servers: nothing, Redis, or PostgreSQL's own NOTIFY.
//!
//! Whoever has news hands it over and goes on: a queue takes it, or, when that is full, everybody is
//! told later that something was lost. Nothing here is ever the only copy of anything.

use super::health::Health;
use super::{pg_notify, redis};
use crate::clock;
use crate::config;
use prism_core::Moment;
use prism_core::Problem;
use prism_core::bus::{Message, News};
use prism_core::limits::{
    BUS_BATCH_MAX, BUS_BEAT_S, BUS_PAUSE_MAX_MS, BUS_PAUSE_MS, BUS_WAITING_MAX,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use uuid::Uuid;

/// How long a server that stops tries to say so.
const LEAVING: Duration = Duration::from_secs(1);

pub enum Carrier {
    /// One server has nobody to tell.
    Alone,
    Redis(Line),
    PgNotify(Line),
}

/// Who speaks, and with whom.
#[derive(Clone, Debug)]
pub struct Member {
    pub tenant: Uuid,
    /// This process.
    pub server: Uuid,
    /// What people call it.
    pub name: String,
    /// The servers of one database share a channel, and no others.
    pub channel: String,
}

impl Member {
    fn says(&self, news: News) -> Message {
        Message {
            tenant: self.tenant,
            server: self.server,
            at: clock::now(),
            news,
        }
    }
}

/// Something from another server.
#[derive(Debug)]
pub enum Heard {
    News {
        server: Uuid,
        at: Moment,
        news: Box<News>,
    },
    /// Some of it was missed: everything is read again.
    Gap,
}

/// A carrier at work; it ends with this.
pub struct Line {
    member: Arc<Member>,
    waiting: mpsc::Sender<String>,
    /// Something did not fit into the queue, and nobody was told yet.
    lost: Arc<AtomicBool>,
    health: Arc<Health>,
    leaves: Arc<Notify>,
    /// The last word was said.
    has_left: Arc<Notify>,
    tasks: [tokio::task::JoinHandle<()>; 2],
}

impl Drop for Line {
    fn drop(&mut self) {
        self.tasks.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// What other servers say, in their order.
pub struct Incoming {
    heard: mpsc::Receiver<Heard>,
    missed: Arc<AtomicBool>,
}

impl Incoming {
    /// The next thing heard; none when the carrier has ended.
    pub async fn next(&mut self) -> Option<Heard> {
        if self.missed.swap(false, Ordering::AcqRel) {
            return Some(Heard::Gap);
        }
        self.heard.recv().await
    }
}

/// Where a carrier puts what it hears.
pub(super) struct Ear {
    member: Arc<Member>,
    heard: mpsc::Sender<Heard>,
    missed: Arc<AtomicBool>,
    asked: Arc<Notify>,
    pub(super) health: Arc<Health>,
}

impl Ear {
    /// Listens from now on: what was said before is read from the store.
    pub(super) fn listens(&self) {
        self.health.hears();
        self.put(Heard::Gap);
    }

    pub(super) fn hear(&self, text: &str) {
        let Some(Message {
            server,
            at,
            news,
            tenant,
        }) = Message::decode(text)
        else {
            return;
        };
        let own = server == self.member.server;
        match news {
            News::Here { name } => {
                // One that has just come is told at once who is here.
                if self.health.beat(own, server, name, at) {
                    self.asked.notify_one();
                }
            }
            News::Unknown => {}
            _ if own || tenant != self.member.tenant => {}
            News::Gone => {
                self.health.gone(server);
                self.put(Heard::News {
                    server,
                    at,
                    news: Box::new(News::Gone),
                });
            }
            News::Lost => self.put(Heard::Gap),
            news => {
                let news = Box::new(news);
                self.put(Heard::News { server, at, news });
            }
        }
    }

    fn put(&self, heard: Heard) {
        if self.heard.try_send(heard).is_err() {
            self.missed.store(true, Ordering::Release);
        }
    }
}

/// What a carrier is to say, oldest first. What could not be said is said again.
pub(super) struct Mouth {
    member: Arc<Member>,
    waiting: mpsc::Receiver<String>,
    batch: Vec<String>,
    lost: Arc<AtomicBool>,
    beat: tokio::time::Interval,
    /// Somebody is to hear of this server before its next sign of life.
    asked: Arc<Notify>,
    /// The server stops.
    leaves: Arc<Notify>,
    /// The last word was said, or is about to be.
    has_left: bool,
    pub(super) health: Arc<Health>,
}

impl Mouth {
    /// Waits for something to say, a sign of life if nothing else; none when nobody has anything to say any more.
    pub(super) async fn next(&mut self) -> Option<&[String]> {
        if self.batch.is_empty() {
            if self.has_left {
                return None;
            }
            let here = || {
                let name = self.member.name.clone();
                self.member.says(News::Here { name }).encode()
            };
            let said = tokio::select! {
                biased;
                _ = self.beat.tick() => {
                    self.batch.extend(here());
                    true
                }
                _ = self.asked.notified() => {
                    self.batch.extend(here());
                    true
                }
                n = self.waiting.recv_many(&mut self.batch, BUS_BATCH_MAX) => n > 0,
                () = self.leaves.notified() => {
                    self.has_left = true;
                    self.batch.extend(self.member.says(News::Gone).encode());
                    true
                }
            };
            if !said {
                return None;
            }
            if self.lost.swap(false, Ordering::AcqRel) {
                self.batch.extend(self.member.says(News::Lost).encode());
            }
        }
        Some(&self.batch)
    }

    /// There is a way to say something. Whether it is let through shows when something was said.
    pub(super) fn opens(&self) {
        self.asked.notify_one();
    }

    /// It was said.
    pub(super) fn said(&mut self) {
        self.batch.clear();
        self.health.speaks();
    }
}

/// By which way.
#[derive(Clone)]
enum Way {
    Redis(Box<redis::Place>),
    PgNotify(Box<pg_notify::Place>),
}

impl Way {
    /// Says what there is to say, until nobody has anything to say any more or the carrier fails.
    async fn speak(&self, channel: &str, mouth: &mut Mouth) -> Result<(), String> {
        match self {
            Self::Redis(place) => redis::speak(place, channel, mouth).await,
            Self::PgNotify(place) => pg_notify::speak(place, channel, mouth).await,
        }
    }

    /// Listens until the carrier fails.
    async fn listen(&self, channel: &str, ear: &Ear) -> Result<(), String> {
        match self {
            Self::Redis(place) => redis::listen(place, channel, ear).await,
            Self::PgNotify(place) => pg_notify::listen(place, channel, ear).await,
        }
    }
}

impl Line {
    fn start(way: Way, member: Member) -> (Self, Incoming) {
        let member = Arc::new(member);
        let health = Arc::new(Health::new(clock::now()));
        let (waiting, to_say) = mpsc::channel(BUS_WAITING_MAX);
        let (heard, hearing) = mpsc::channel(BUS_WAITING_MAX);
        let (lost, missed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let mut beat = tokio::time::interval(Duration::from_secs(BUS_BEAT_S));
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let asked = Arc::<Notify>::default();
        let (leaves, has_left) = (Arc::<Notify>::default(), Arc::<Notify>::default());
        let mouth = Mouth {
            member: member.clone(),
            waiting: to_say,
            batch: Vec::new(),
            lost: lost.clone(),
            beat,
            asked: asked.clone(),
            leaves: leaves.clone(),
            has_left: false,
            health: health.clone(),
        };
        let ear = Ear {
            member: member.clone(),
            heard,
            missed: missed.clone(),
            asked,
            health: health.clone(),
        };
        let tasks = [
            tokio::spawn(keep_speaking(way.clone(), mouth, has_left.clone())),
            tokio::spawn(keep_listening(way, ear)),
        ];
        let line = Self {
            member,
            waiting,
            lost,
            health,
            leaves,
            has_left,
            tasks,
        };
        (
            line,
            Incoming {
                heard: hearing,
                missed,
            },
        )
    }

    fn say(&self, news: News) {
        for piece in news.pieces() {
            let kept = match self.member.says(piece).encode() {
                Some(text) => self.waiting.try_send(text).is_ok(),
                None => false,
            };
            if !kept {
                self.lost.store(true, Ordering::Release);
                self.health.lost();
            }
        }
    }
}

/// How long to wait before the carrier is tried again: longer each time it fails again.
struct Pause(Duration);

impl Pause {
    const FIRST: Duration = Duration::from_millis(BUS_PAUSE_MS);

    async fn after(&mut self, first_failure: bool) {
        if first_failure {
            self.0 = Self::FIRST;
        }
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(Duration::from_millis(BUS_PAUSE_MAX_MS));
    }
}

async fn keep_speaking(way: Way, mut mouth: Mouth, has_left: Arc<Notify>) {
    let channel = mouth.member.channel.clone();
    let mut pause = Pause(Pause::FIRST);
    while let Err(why) = way.speak(&channel, &mut mouth).await {
        let first = mouth.health.cannot_speak(why);
        pause.after(first).await;
    }
    has_left.notify_one();
}

async fn keep_listening(way: Way, ear: Ear) {
    let channel = ear.member.channel.clone();
    let mut pause = Pause(Pause::FIRST);
    while let Err(why) = way.listen(&channel, &ear).await {
        let first = ear.health.cannot_hear(why);
        pause.after(first).await;
    }
}

impl Carrier {
    /// Redis at `url`, which need not be there yet.
    pub fn redis(url: &str, member: Member) -> Result<(Self, Incoming), Problem> {
        let (line, incoming) = Line::start(Way::Redis(Box::new(redis::place(url)?)), member);
        Ok((Self::Redis(line), incoming))
    }

    /// The PostgreSQL at `url`, on connections of its own.
    pub fn pg_notify(url: &str, member: Member) -> Result<(Self, Incoming), Problem> {
        let place = Box::new(pg_notify::place(url)?);
        let (line, incoming) = Line::start(Way::PgNotify(place), member);
        Ok((Self::PgNotify(line), incoming))
    }

    fn line(&self) -> Option<&Line> {
        match self {
            Self::Alone => None,
            Self::Redis(line) | Self::PgNotify(line) => Some(line),
        }
    }

    /// As a probe calls it.
    pub fn transport(&self) -> &'static str {
        match self {
            Self::Alone => "in_process",
            Self::Redis(_) => "redis",
            Self::PgNotify(_) => "pg_notify",
        }
    }

    /// How something came that was pushed by this server, or by another which was told of it or saw it by itself. A carrier
    /// that is down carries nothing.
    pub fn brought(&self, by_this: bool, was_told: bool) -> &'static str {
        match (self, by_this) {
            (Self::Redis(_) | Self::PgNotify(_), false) if !was_told => "sweep",
            (Self::Redis(_) | Self::PgNotify(_), true) if !self.reaches_others() => "in_process",
            _ => self.transport(),
        }
    }

    /// Whether other servers may share the rows.
    pub fn is_shared(&self) -> bool {
        self.line().is_some()
    }

    /// Whether other servers may be told of something now.
    pub fn reaches_others(&self) -> bool {
        self.line().is_some_and(|line| line.health.is_up())
    }

    /// Whether another server can be told of something now: word goes, and it was heard of lately. One that was killed has
    /// left its seats in rows.
    pub fn reaches(&self, server: Uuid, now: Moment) -> bool {
        self.reaches_others() && self.health().is_some_and(|h| h.knows(server, now))
    }

    /// Takes news along without waiting; it is put into words only where somebody may hear it.
    pub fn say(&self, news: impl FnOnce() -> News) {
        if let Some(line) = self.line() {
            line.say(news());
        }
    }

    /// Says what is still to be said, and that this server stops: nobody is to count on it any more. Nothing is said
    /// after that.
    pub async fn leave(&self) {
        if let Some(line) = self.line().filter(|_| self.reaches_others()) {
            line.leaves.notify_one();
            let left = tokio::time::timeout(LEAVING, line.has_left.notified());
            drop(left.await);
        }
    }

    /// How it does, for whoever watches over the server; none for one that is alone.
    pub fn report(&self) -> Option<serde_json::Value> {
        let condition = self.health()?.condition();
        let says = match (&condition.why, condition.peers.as_slice()) {
            (Some(why), _) => format!(
                "{} does not carry word between servers since {}: {why}; they look every two seconds",
                self.transport(),
                condition.since
            ),
            (None, []) => format!("{}, no other server is there", self.transport()),
            (None, peers) => {
                let shown = peers.join(", ");
                let more = match condition.peers_more {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!("{}, with {shown}{more}", self.transport())
            }
        };
        let hop = condition
            .hop_ms
            .map(|ms| format!("; word takes {ms:.1} ms"));
        let lost = (condition.lost > 0).then(|| {
            format!(
                "; {} piece(s) of news were lost and looked up",
                condition.lost
            )
        });
        let says = says + &hop.unwrap_or_default() + &lost.unwrap_or_default();
        Some(serde_json::json!({
            "ok": condition.connected,
            "transport": self.transport(),
            "server": config::server_name(),
            "connected": condition.connected,
            "since": condition.since,
            "why": condition.why,
            "hop_ms": condition.hop_ms,
            "peers": condition.peers,
            "peers_more": condition.peers_more,
            "lost": condition.lost,
            "says": says,
        }))
    }

    /// How many servers there are, this one included, as far as is known.
    pub fn servers(&self) -> usize {
        1 + self.health().map_or(0, Health::peers)
    }

    /// How it does; none for a server that is alone.
    pub fn health(&self) -> Option<&Health> {
        self.line().map(|line| &*line.health)
    }
}
