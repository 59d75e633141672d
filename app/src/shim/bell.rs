//! Handing the bell to the host: a closed list of ringers, each with a state of its own, tried in
//! the order of the host's ladder.

mod claude_channel;
mod claude_inbox;
mod claude_rewake;
mod codex;
mod hooks;
pub mod naming;
mod opencode;

pub use codex::{Codex, Thread};

use super::Session;
use crate::clock;
use crate::config::Env;
use claude_channel::Channel;
use claude_inbox::Inbox;
use claude_rewake::Waiter;
use hooks::ForHook;
use opencode::Opencode;
use prism_core::Moment;
use prism_core::api::ClientFrame;
use prism_core::bell::{
    BellNote, Coalescer, Handover, HostHas, Notice, Rung, RungBell, Strategy, in_notification,
    is_bell, ladder, next_rung, takes_waiter,
};
use prism_core::limits::{BELL_HANDOVER_S, BELL_UNRENDERED_US, REPLAY_ROWS, SECOND_US};
use prism_core::presence::Surface;
use prism_core::receipt::State;
use rmcp::{Peer, RoleServer};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;
use uuid::Uuid;

/// How long a host may take to accept a bell.
const HANDOVER: Duration = Duration::from_secs(BELL_HANDOVER_S);

/// A bell that was rung: by which ringer, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rang {
    pub strategy: Strategy,
    pub handover: Handover,
}

/// What can ring a host.
enum Ringer {
    ClaudeChannel(Channel),
    ClaudeInbox(Inbox),
    /// A hook that waits beside the session.
    ClaudeRewake,
    Codex(Codex),
    Opencode(Opencode),
    /// Kept until a hook asks.
    Hooks,
    /// No bell: a signal rides on the agent's next verb.
    Piggyback,
    /// A bell was pinned that this host does not have, and what it lacks.
    Missing(&'static str),
}

impl Ringer {
    fn of(strategy: Strategy, host: &Host) -> Self {
        match strategy {
            Strategy::ClaudeChannel => Self::ClaudeChannel(Channel::default()),
            Strategy::ClaudeInbox => match &host.inbox {
                Some(path) => Self::ClaudeInbox(Inbox::at(path)),
                None => Self::Missing("CLAUDE_CODE_MESSAGING_SOCKET is not set"),
            },
            Strategy::ClaudeRewake => Self::ClaudeRewake,
            Strategy::Codex => Self::Codex(host.codex.clone()),
            Strategy::Opencode => match &host.opencode {
                Some((url, session)) => {
                    Self::Opencode(Opencode::new(url, session.as_deref(), &host.cwd))
                }
                None => Self::Missing("PRISM_OPENCODE_URL is not set"),
            },
            Strategy::Hooks => Self::Hooks,
            Strategy::Auto | Strategy::None => Self::Piggyback,
        }
    }

    async fn ring(&mut self, notice: &Notice, bell: &Bell) -> Handover {
        match self {
            Self::ClaudeChannel(channel) => channel.ring(notice, bell.peer.get()).await,
            Self::ClaudeInbox(inbox) => inbox.ring(notice).await,
            Self::ClaudeRewake => bell.waiter.ring(notice).await,
            Self::Codex(codex) => codex.ring(notice, bell.thread()).await,
            Self::Opencode(opencode) => opencode.ring(notice).await,
            Self::Hooks => Handover::Waits,
            Self::Piggyback => Handover::Failed("this host has no bell".into()),
            Self::Missing(what) => Handover::Failed((*what).into()),
        }
    }
}

/// What the environment says of the host.
struct Host {
    cwd: String,
    inbox: Option<String>,
    /// The operator says that Claude Code's channel is switched on.
    channel: bool,
    codex: Codex,
    /// The server's address, and the session's id where it is known.
    opencode: Option<(String, Option<String>)>,
}

/// Whose bells these are, and where what became of them is told.
struct Attached {
    session: Arc<Session>,
    reports: UnboundedSender<ClientFrame>,
}

#[derive(Default)]
struct Standing {
    coalescer: Coalescer,
    rung: Rung,
    for_hook: ForHook,
    hooks_heard: bool,
    thread: Option<Thread>,
    attached: Option<Attached>,
}

/// Why a bell rings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Why {
    Arrived,
    NotRendered,
    Escalated,
    /// A waiter came that can carry what was kept for a hook.
    WaiterCame,
}

/// The one bell of this shim, whoever rings it.
pub struct Bell {
    configured: Strategy,
    host: Host,
    peer: OnceLock<Peer<RoleServer>>,
    standing: Mutex<Standing>,
    waiter: Waiter,
    /// One bell at a time, in the order in which they are asked for.
    ringers: tokio::sync::Mutex<Vec<(Strategy, Ringer)>>,
    left: Notify,
    /// Told whenever the inbox, or what is known of the thread, may have changed.
    pub inbox_changed: Notify,
}

impl Bell {
    pub fn new(configured: Strategy, env: &Env, cwd: &str, began: Moment) -> Self {
        let session = env.opencode_session.clone();
        Self {
            configured,
            host: Host {
                cwd: cwd.to_owned(),
                inbox: env.claude_inbox.clone(),
                channel: env.claude_channel,
                codex: Codex::new(env, cwd, began),
                opencode: env.opencode_url.clone().map(|url| (url, session)),
            },
            peer: OnceLock::new(),
            standing: Mutex::default(),
            waiter: Waiter::default(),
            ringers: tokio::sync::Mutex::default(),
            left: Notify::new(),
            inbox_changed: Notify::new(),
        }
    }

    /// Learns how to reach the host.
    pub fn connect(&self, peer: Peer<RoleServer>) {
        drop(self.peer.set(peer));
    }

    /// From now on the bells are this session's; what an earlier one was rung for is over.
    pub fn attach(&self, session: Arc<Session>, reports: UnboundedSender<ClientFrame>) {
        let mut standing = self.standing();
        *standing = Standing {
            hooks_heard: standing.hooks_heard,
            thread: standing.thread.take(),
            attached: Some(Attached { session, reports }),
            ..Standing::default()
        };
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn session(&self) -> Option<Arc<Session>> {
        self.standing().attached.as_ref().map(|a| a.session.clone())
    }

    /// Somebody drained these from the inbox: the next arrival rings again, and what came too late
    /// for that drain rings now.
    pub fn drained(&self, ids: &[Uuid]) {
        if self.standing().coalescer.drained(ids) {
            self.left.notify_one();
        }
        self.inbox_changed.notify_one();
    }

    /// Told when a drain may have left something that stood behind the bell.
    pub async fn something_is_left(&self) {
        self.left.notified().await;
    }

    /// Rings once for what stood behind a bell and is still unread after a drain.
    pub async fn ring_for_left(&self) {
        let mut left = self.standing().coalescer.take_left();
        self.take_read(&mut left);
        if !left.is_empty() {
            self.ring(left).await;
        }
    }

    /// What a tool call of Codex says of the thread it came from.
    pub fn found_thread(&self, thread: Thread) {
        let mut standing = self.standing();
        if standing.thread.as_ref() != Some(&thread) {
            standing.thread = Some(thread);
            drop(standing);
            self.inbox_changed.notify_one();
        }
    }

    fn thread(&self) -> Option<Thread> {
        self.standing().thread.clone()
    }

    /// The way to this host's Codex thread, where it is wanted.
    pub fn codex(&self) -> Option<&Codex> {
        let wanted = matches!(self.configured, Strategy::Auto | Strategy::Codex);
        wanted.then_some(&self.host.codex)
    }

    fn host_has(&self) -> HostHas {
        let standing = self.standing();
        let session = standing.attached.as_ref().map(|a| a.session.surface);
        HostHas {
            surface: session.unwrap_or(Surface::Other),
            inbox: self.host.inbox.is_some(),
            channel: self.host.channel,
            waiter: self.waiter.is_there(),
            opencode: self.host.opencode.is_some(),
            hooks: standing.hooks_heard,
        }
    }

    fn is_pinned(&self) -> bool {
        self.configured != Strategy::Auto
    }

    /// The best rung of this host.
    pub fn strategy(&self) -> Strategy {
        let rungs = ladder(self.configured, self.host_has());
        rungs.first().copied().unwrap_or(Strategy::None)
    }

    /// Rings once for all of these, unless a bell stands already.
    pub async fn ring(&self, notices: Vec<Notice>) {
        self.inbox_changed.notify_one();
        let mut ringers = self.ringers.lock().await;
        {
            let (mut standing, now) = (self.standing(), clock::now());
            if !standing.coalescer.rings(now) {
                let ids: Vec<Uuid> = notices.iter().map(|n| n.signal_id).collect();
                standing.rung.coalesced(&ids);
                standing.coalescer.came(notices);
                return;
            }
            // Noted before the host has it: it may drain before we hear that it took the bell.
            standing.coalescer.rang(now);
        }
        let tried = Vec::new();
        let taken = self.climb(&mut ringers, notices, tried, Why::Arrived).await;
        let coalescer = &mut self.standing().coalescer;
        match taken {
            true => coalescer.took(),
            false => coalescer.failed(),
        }
    }

    /// These wait for too long: rings once for all of them, on a rung that none of them had yet.
    pub async fn escalate(&self, notices: Vec<Notice>) {
        let mut ringers = self.ringers.lock().await;
        let mut tried = Vec::new();
        {
            let standing = self.standing();
            for notice in &notices {
                if let Some(bell) = standing.rung.of(notice.signal_id) {
                    tried.extend(&bell.handed);
                }
            }
        }
        self.climb(&mut ringers, notices, tried, Why::Escalated)
            .await;
    }

    /// Whether a bell may come to be overdue.
    pub fn any_unrendered(&self) -> bool {
        let standing = self.standing();
        !self.is_pinned() && standing.hooks_heard && standing.rung.any_unrendered()
    }

    /// Rings once more, on the next rung, for what the host should have told of by now. A host
    /// whose hooks were never heard tells nothing.
    pub async fn ring_overdue(&self, now: Moment) {
        if !self.any_unrendered() {
            return;
        }
        let overdue = self.standing().rung.overdue(now);
        let Some(bell) = overdue else {
            return;
        };
        let mut notices = self.notices_of(&bell.others);
        notices.push(bell.notice);
        let mut ringers = self.ringers.lock().await;
        self.climb(&mut ringers, notices, bell.handed, Why::NotRendered)
            .await;
    }

    /// What the ring knows of these.
    fn notices_of(&self, ids: &[Uuid]) -> Vec<Notice> {
        let Some(session) = self.session().filter(|_| !ids.is_empty()) else {
            return Vec::new();
        };
        let (ring, _) = session.cache.load();
        let notices = ring.entries.iter().filter_map(Notice::of_entry);
        notices.filter(|n| ids.contains(&n.signal_id)).collect()
    }

    /// Tries one rung after another until one takes the bell, in the name of the newest signal
    /// that still waits; false when none did.
    async fn climb(
        &self,
        ringers: &mut Vec<(Strategy, Ringer)>,
        mut notices: Vec<Notice>,
        mut tried: Vec<Strategy>,
        why: Why,
    ) -> bool {
        if why != Why::Arrived && self.is_pinned() {
            self.take_read(&mut notices);
            let ids: Vec<Uuid> = notices.iter().map(|n| n.signal_id).collect();
            let told = format!("the bell is pinned to {}", self.configured);
            self.note(BellNote::NoRungLeft, &ids, told);
            return false;
        }
        let (before, mut failed) = (tried.clone(), Vec::new());
        while let Some(rung) = next_rung(self.configured, self.host_has(), &tried, &failed) {
            // Looked at right before the bell is handed over: it would cost a turn for nothing.
            let read = self.take_read(&mut notices);
            if why == Why::Arrived && !read.is_empty() {
                let told = "it was read before the bell was handed over";
                self.note(BellNote::NotNeeded, &read, told.into());
            }
            let Some(newest) = notices.last() else {
                return false;
            };
            tried.push(rung);
            let handover = ringer(ringers, rung, &self.host).ring(newest, self).await;
            if let Handover::Failed(reason) = handover {
                failed.push(rung);
                let ids: Vec<Uuid> = notices.iter().map(|n| n.signal_id).collect();
                self.note(BellNote::Failed, &ids, format!("{rung}: {reason}"));
                tracing::warn!(doorbell = %rung, %reason, "A bell did not reach the host");
                continue;
            }
            self.took(&notices, &before, rung, &handover, why);
            return true;
        }
        if why != Why::Arrived {
            self.take_read(&mut notices);
            let ids: Vec<Uuid> = notices.iter().map(|n| n.signal_id).collect();
            let told = "this host has no further bell; the next verb brings the signal";
            self.note(BellNote::NoRungLeft, &ids, told.into());
        }
        false
    }

    /// A rung took the bell for these, or keeps it for a hook.
    fn took(
        &self,
        notices: &[Notice],
        before: &[Strategy],
        rung: Strategy,
        handover: &Handover,
        why: Why,
    ) {
        let Some((newest, others)) = notices.split_last() else {
            return;
        };
        let others: Vec<Uuid> = others.iter().map(|n| n.signal_id).collect();
        let ids: Vec<Uuid> = notices.iter().map(|n| n.signal_id).collect();
        let now = clock::now();
        {
            let mut standing = self.standing();
            let rung_bells = &mut standing.rung;
            rung_bells.handed(newest, others.clone(), before, rung, now);
            if why != Why::Arrived {
                standing.coalescer.rang(now);
            }
            if *handover == Handover::Waits {
                standing.for_hook.put(newest, &others);
            }
        }
        let because = match why {
            Why::Arrived => String::new(),
            Why::NotRendered => {
                let seconds = BELL_UNRENDERED_US / SECOND_US;
                format!("; the host did not tell of the bell before within {seconds} s")
            }
            Why::Escalated => "; it was not read in time".into(),
            Why::WaiterCame => "; no hook had carried it yet".into(),
        };
        if *handover == Handover::Waits {
            let told = format!("{rung}: it waits for the host's next hook event{because}");
            self.note(BellNote::Waits, &ids, told);
            return;
        }
        self.report(State::Rung, &ids, rung, None);
        if why != Why::Arrived {
            self.note(BellNote::Again, &ids, format!("{rung}{because}"));
        }
        if *handover == Handover::Confirmed {
            self.rendered(newest.signal_id, rung);
        }
    }

    /// Takes out what was read meanwhile; returns it.
    fn take_read(&self, notices: &mut Vec<Notice>) -> Vec<Uuid> {
        let Some(session) = self.session() else {
            return Vec::new();
        };
        let (ring, _) = session.cache.load();
        let is_read =
            |n: &Notice| session.was_handed(n.signal_id) || ring.is_read(&n.signal_id.to_string());
        let read = notices.extract_if(.., |n| is_read(n));
        read.map(|n| n.signal_id).collect()
    }

    /// Rings for a probe, whatever stands; it is told at once what came of it, so it does not wait
    /// for a hook.
    pub async fn ring_probe(&self, notice: &Notice) -> Rang {
        let mut ringers = self.ringers.lock().await;
        let (mut tried, mut first) = (Vec::new(), None);
        while let Some(rung) = next_rung(self.configured, self.host_has(), &tried, &tried) {
            tried.push(rung);
            let handover = ringer(&mut ringers, rung, &self.host)
                .ring(notice, self)
                .await;
            let handover = match handover {
                Handover::Waits => Handover::Failed("a probe does not wait for a hook".into()),
                other => other,
            };
            let rang = Rang {
                strategy: rung,
                handover,
            };
            if let Handover::Failed(reason) = &rang.handover {
                let ids = [notice.signal_id];
                self.note(BellNote::Failed, &ids, format!("{rung}: {reason}"));
                first.get_or_insert(rang);
                continue;
            }
            let now = clock::now();
            let others = Vec::new();
            self.standing().rung.handed(notice, others, &[], rung, now);
            self.report(State::Rung, &[notice.signal_id], rung, None);
            if rang.handover == Handover::Confirmed {
                self.rendered(notice.signal_id, rung);
            }
            return rang;
        }
        first.unwrap_or_else(|| Rang {
            strategy: self.strategy(),
            handover: Handover::Failed("this host has no bell".into()),
        })
    }

    /// A hook of this host was heard: its hooks are installed and trusted.
    pub fn hook_heard(&self) {
        self.standing().hooks_heard = true;
    }

    /// A hook came to wait beside the session; what it is told of is the next bell. None where it
    /// is not needed, or another waits.
    pub fn waiter_came(&self) -> Option<oneshot::Receiver<Notice>> {
        self.hook_heard();
        let wanted = takes_waiter(self.configured, self.host_has());
        let inbox = self.session().is_some_and(|session| session.has_inbox());
        if wanted && inbox {
            self.waiter.came()
        } else {
            None
        }
    }

    /// The waiter goes to wake the host with this bell; false when it came too late.
    pub fn waiter_goes(&self, signal_id: Uuid) -> bool {
        self.waiter.goes(signal_id)
    }

    /// Rings through the waiter for what was kept for a hook, which an idle host runs none of, or
    /// for what came when there was no bell at all.
    pub async fn ring_for_waiter(&self) {
        if self.is_pinned() || !self.waiter.is_there() {
            return;
        }
        let (kept, unrung) = {
            let standing = self.standing();
            let kept = standing.for_hook.kept(clock::now());
            let had_waiter = |bell: &RungBell| bell.handed.contains(&Strategy::ClaudeRewake);
            let never_rung = |n: &Notice| standing.rung.of(n.signal_id).is_none();
            let attached = standing.attached.as_ref();
            let unread = attached.and_then(|a| a.session.newest_unread());
            (
                kept.filter(|n| !standing.rung.of(n.signal_id).is_some_and(had_waiter)),
                unread.filter(never_rung),
            )
        };
        let Some(notice) = kept else {
            if let Some(notice) = unrung {
                self.ring(vec![notice]).await;
            }
            return;
        };
        let mut ringers = self.ringers.lock().await;
        let Some(waits) = self.standing().for_hook.take(notice.signal_id) else {
            return;
        };
        let mut notices = self.notices_of(&waits.others);
        notices.push(notice.clone());
        let tried = vec![Strategy::Hooks];
        let why = Why::WaiterCame;
        if !self.climb(&mut ringers, notices, tried, why).await {
            // The next hook may still carry it.
            self.standing().for_hook.put(&notice, &waits.others);
        }
    }

    /// The host took this text as a prompt. Says whether it was a bell of ours; one that was
    /// rung and not known to be rendered is rendered now, and what stands behind it.
    pub fn prompt_was(&self, prompt: &str) -> bool {
        let prompt = in_notification(prompt).unwrap_or(prompt);
        let prompted = self.standing().rung.prompted(prompt);
        match prompted {
            Some((bell, by)) => {
                let id = bell.notice.signal_id;
                self.standing().for_hook.take(id);
                self.report_rendered(id, &bell.others, by);
                true
            }
            None => is_bell(prompt),
        }
    }

    /// The bell that waits for a hook to carry it, if any of its signals still waits.
    pub fn take_for_hook(&self) -> Option<Notice> {
        let (notice, ids) = {
            let mut standing = self.standing();
            let waits = standing.for_hook.offer(clock::now())?;
            (waits.notice.clone(), waits.signal_ids())
        };
        let mut notices = self.notices_of(&ids);
        notices.retain(|n| n.signal_id != notice.signal_id);
        notices.push(notice.clone());
        self.take_read(&mut notices);
        if notices.is_empty() {
            self.standing().for_hook.take(notice.signal_id);
            let told = "it was read before a hook asked for its bell";
            self.note(BellNote::NotNeeded, &ids, told.into());
            return None;
        }
        Some(notice)
    }

    /// A hook's output with this bell was consumed by the host.
    pub fn hook_carried(&self, signal_id: Uuid) {
        let (waits, known) = {
            let mut standing = self.standing();
            let waits = standing.for_hook.take(signal_id);
            let before = standing.rung.of(signal_id);
            (waits, before.is_some_and(|b| b.handed.len() > 1))
        };
        let Some(waits) = waits else {
            return;
        };
        let ids = waits.signal_ids();
        self.report(State::Rung, &ids, Strategy::Hooks, None);
        if known {
            let told = format!("{}: a hook carried it", Strategy::Hooks);
            self.note(BellNote::Again, &ids, told);
        }
        self.rendered(signal_id, Strategy::Hooks);
    }

    /// The host has the bell of this signal, and with it whatever stands behind it.
    fn rendered(&self, signal_id: Uuid, by: Strategy) {
        let bell = self.standing().rung.rendered(signal_id);
        if let Some(bell) = bell {
            self.report_rendered(signal_id, &bell.others, by);
        }
    }

    fn report_rendered(&self, signal_id: Uuid, others: &[Uuid], by: Strategy) {
        self.report(State::Rendered, &[signal_id], by, None);
        self.report(State::Rendered, others, by, Some(signal_id));
    }

    fn report(&self, state: State, ids: &[Uuid], by: Strategy, via: Option<Uuid>) {
        self.tell(ids, |signal_ids| ClientFrame::Receipt {
            state,
            signal_ids,
            strategy: Some(by.name().into()),
            via,
        });
    }

    fn note(&self, note: BellNote, ids: &[Uuid], detail: String) {
        self.tell(ids, |signal_ids| ClientFrame::Bell {
            note,
            signal_ids,
            detail: detail.clone(),
        });
    }

    /// Tells the server, in frames of a size that any server takes.
    fn tell(&self, ids: &[Uuid], frame: impl Fn(Vec<Uuid>) -> ClientFrame) {
        let standing = self.standing();
        for ids in ids.chunks(REPLAY_ROWS) {
            if let Some(attached) = &standing.attached {
                // Nobody listens any more once the session is over.
                drop(attached.reports.send(frame(ids.to_vec())));
            }
        }
    }
}

/// The ringer of a rung, made when it is first needed.
fn ringer<'a>(
    ringers: &'a mut Vec<(Strategy, Ringer)>,
    rung: Strategy,
    host: &Host,
) -> &'a mut Ringer {
    let place = match ringers.iter().position(|(known, _)| *known == rung) {
        Some(place) => place,
        None => {
            ringers.push((rung, Ringer::of(rung, host)));
            ringers.len() - 1
        }
    };
    &mut ringers[place].1
}

#[cfg(test)]
mod tests;
