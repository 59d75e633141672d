//! A running Prism: what it is made of, and how a verb runs to its end.

mod browsers;
mod caller;
mod enrolment;
mod hearing;
mod house;
mod quiet;

pub use browsers::Browsers;
pub use caller::Caller;
pub use enrolment::Formerly;

use crate::bus::Bus;
use crate::clock;
use crate::config::{Config, Limits};
use crate::directory::Directory;
use crate::embed::Embedder;
use crate::escalation::Escalator;
use crate::gate::Gate;
use crate::home::Home;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::presence::Presence;
use crate::store::{Copy, Signs, Store, StoreError, WaitingSign};
use crate::tls::Shown;
use futures_util::FutureExt;
use prism_core::access::Bucket;
use prism_core::database::Facts;
use prism_core::gate::Mode;
use prism_core::limits::STALE_US;
use prism_core::retention::Retention;
use prism_core::tenant::TenantName;
use prism_core::{Code, Identity, Moment, Problem};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use uuid::Uuid;

/// Verbs under way at once; more wait for one to end.
const VERBS_UNDER_WAY_MAX: usize = 4_096;
/// How long a write that was taken, or refused, shows what would become of the next one.
const READY_FOR: Duration = Duration::from_secs(1);
/// How long the count of rows that wait for vectors is good enough for whoever watches it, and how long they wait for it.
const WAITING_FOR: Duration = Duration::from_secs(10);
const WAITING_ANSWER: Duration = Duration::from_secs(1);

/// What waited in the inboxes of sockets here at the last look, and up to which place.
type Waiting = HashMap<Uuid, (i64, WaitingSign)>;

pub struct Prism {
    pub store: Store,
    pub hub: Arc<Hub>,
    pub directory: Directory,
    pub presence: Arc<Presence>,
    pub metrics: Metrics,
    pub gate: Gate,
    pub embedder: Embedder,
    /// Whose rows these are.
    pub tenant: Uuid,
    /// What that tenant's keys carry; the first one's carry nothing.
    tenant_name: Option<TenantName>,
    pub operator: Identity,
    pub home: Home,
    pub allowed_hosts: Vec<String>,
    pub started_at: Moment,
    limits: Limits,
    pub retention: Retention,
    pub escalator: Escalator,
    pub browsers: Browsers,
    /// Where it listens and what it shows there, once it does.
    listens: OnceLock<(SocketAddr, Option<Arc<Shown>>)>,
    buckets: Mutex<HashMap<Uuid, Bucket>>,
    /// One permit for each verb under way.
    under_way: Arc<Semaphore>,
    /// When the store was last asked to take a write, and what became of that.
    ready_at: tokio::sync::Mutex<Option<(Instant, Result<Facts, Problem>)>>,
    /// When it was last counted how many rows wait for vectors, and how many did if that could be done.
    waiting_at: tokio::sync::Mutex<Option<(Instant, Option<u64>)>>,
    /// Held by whoever writes or removes the demonstration.
    pub demo: tokio::sync::Mutex<()>,
    pub counting: crate::verb::page::metrics::Counting,
    /// How often the names in memory were said to be older than those of the store, and up to which time they were
    /// read since. Held while they are read.
    names_wanted: AtomicU64,
    names_read: tokio::sync::Mutex<u64>,
    names_wake: Notify,
    /// How far others' changes are known here.
    seen: Mutex<Signs>,
    /// While nobody hears what becomes of signals.
    waiting: Mutex<Option<Waiting>>,
    /// Which copy of the database was last seen, where it says so.
    copy: Mutex<Option<Copy>>,
    /// Sessions that others say are another now.
    sessions_heard: Mutex<HashSet<Uuid>>,
    /// When it may be said of others' sessions that they have left: after a start, and after the store was
    /// away, everybody has a term to come back in.
    judges_from: AtomicI64,
    quiet: quiet::Quiet,
    /// When the store was last asked for names that memory did not know.
    looked_at: tokio::sync::Mutex<Option<Instant>>,
}

impl Prism {
    pub async fn open(
        store: Store,
        config: &Config,
        home: &Home,
        gate_mode: Mode,
        embedder: Embedder,
    ) -> Result<Arc<Self>, Problem> {
        let prism = Self::make(store, config, home, gate_mode, embedder, None).await?;
        prism.know_operator(&config.api_key).await?;
        if let Some(before) = &config.replaced_key {
            prism.warn_of_replaced_key(before);
        }
        Ok(prism)
    }

    /// A Prism of another tenant, which has keys of its own. Of this machine's files it has what is under
    /// its name: what the operator's line shows is not the first operator's to see.
    pub async fn open_tenant(
        name: TenantName,
        store: Store,
        config: &Config,
        home: &Home,
        gate_mode: Mode,
        embedder: Embedder,
    ) -> Result<Arc<Self>, Problem> {
        let home = Home::at(home.path("tenants").join(name.as_str()));
        let mut config = config.clone();
        // It is a program of the first operator's.
        config.escalation.notify = None;
        Self::make(store, &config, &home, gate_mode, embedder, Some(name)).await
    }

    async fn make(
        store: Store,
        config: &Config,
        home: &Home,
        gate_mode: Mode,
        embedder: Embedder,
        tenant_name: Option<TenantName>,
    ) -> Result<Arc<Self>, Problem> {
        let mut config = config.clone();
        // Servers of one database run under many logins; its operator has one name until somebody chooses another.
        if store.is_shared()
            && config.named_by_login
            && let Some(name) = store.operator_name().await?
        {
            config.operator = name;
        }
        let config = &config;
        store.name_operator(config.operator.clone()).await?;
        let loaded = store.load().await?;
        let now = clock::now();
        let gate = Gate::new(gate_mode);
        let take = |all: &mut Vec<_>, row| all.push(row);
        let open = store.each_open_session(Vec::new(), take).await?;
        let started = loaded.started_personas.clone();
        let presence = match store.is_shared() {
            true => Presence::of_rows(open, started, store.bus().server()),
            false => Presence::new(open, started, now),
        };
        let copy = store.which_copy().await?;
        let public = config.server.public_url()?;
        let mut allowed_hosts = config.server.allowed_hosts.clone();
        allowed_hosts.extend(public.iter().map(|p| p.authority.clone()));
        let prism = Arc::new(Self {
            directory: Directory::new(&loaded),
            presence: Arc::new(presence),
            hub: store.bus().hub().clone(),
            metrics: Metrics::default(),
            gate,
            embedder,
            tenant: loaded.tenant_id,
            tenant_name,
            operator: config.operator.clone(),
            home: home.clone(),
            allowed_hosts,
            browsers: Browsers::new(loaded.tenant_id, public),
            listens: OnceLock::new(),
            started_at: now,
            limits: config.limits,
            retention: config.retention,
            escalator: Escalator::new(config, home),
            buckets: Mutex::default(),
            under_way: Arc::new(Semaphore::new(VERBS_UNDER_WAY_MAX)),
            ready_at: tokio::sync::Mutex::default(),
            waiting_at: tokio::sync::Mutex::default(),
            demo: tokio::sync::Mutex::default(),
            counting: Default::default(),
            names_wanted: AtomicU64::new(0),
            names_read: tokio::sync::Mutex::default(),
            names_wake: Notify::new(),
            seen: Mutex::new(Signs {
                names: loaded.names,
                ..Signs::default()
            }),
            waiting: Mutex::default(),
            copy: Mutex::new(copy),
            sessions_heard: Mutex::default(),
            judges_from: AtomicI64::new(now.plus_us(STALE_US).0),
            quiet: quiet::Quiet::default(),
            looked_at: tokio::sync::Mutex::default(),
            store,
        });
        Ok(prism)
    }

    /// A fresh key, which says whose tenant it is.
    pub fn new_key(&self) -> Result<String, Problem> {
        let key = clock::new_key();
        let key = key.map_err(|e| Problem::new(Code::Internal, e.to_string(), "try again"))?;
        Ok(match &self.tenant_name {
            Some(name) => name.key(&key),
            None => key,
        })
    }

    /// Whether its rows are another tenant's than the one that this server's home belongs to.
    pub fn is_guest(&self) -> bool {
        self.tenant_name.is_some()
    }

    /// How others are told, here and at other servers.
    pub fn bus(&self) -> &Bus {
        self.store.bus()
    }

    /// Runs what was admitted to its end, whether or not its client still listens: what follows a
    /// commit in memory must not depend on somebody waiting for the answer.
    pub async fn to_its_end<T: Send + 'static>(
        &self,
        verb: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let broken = |why: &str| {
            Problem::new(
                Code::Internal,
                format!("the verb did not come to its end: {why}"),
                "whether it was stored is not known; look before you send it again",
            )
        };
        let permit = self.under_way.clone().acquire_owned().await;
        let permit = permit.map_err(|_| broken("the server stops"))?;
        let verb = AssertUnwindSafe(async move {
            let answer = verb.await;
            drop(permit);
            answer
        });
        let ended = Unstopped(Some(Box::pin(verb.catch_unwind()))).await;
        ended.unwrap_or_else(|_| {
            tracing::error!("A verb broke off");
            Err(broken("see the server's log"))
        })
    }

    /// Admits no more verbs and waits for those under way, and for what they left to be noted.
    pub async fn finish_verbs(&self, at_most: Duration) {
        let all = self.under_way.acquire_many(VERBS_UNDER_WAY_MAX as u32);
        let finish = async {
            let _all = all.await;
            self.gate.finish().await;
        };
        if tokio::time::timeout(at_most, finish).await.is_err() {
            tracing::warn!("Stopping although verbs are still under way");
        }
        self.under_way.close();
    }

    /// Whether a write would be taken now, and by what. Anybody may ask, so the database is asked once a
    /// second.
    pub async fn ready(&self) -> Result<Facts, Problem> {
        let mut ready_at = self.ready_at.lock().await;
        if let Some((at, answer)) = ready_at.as_ref()
            && at.elapsed() < READY_FOR
        {
            return answer.clone();
        }
        *ready_at = None;
        let answer = self.ask_whether_ready().await;
        *ready_at = Some((Instant::now(), answer.clone()));
        answer
    }

    async fn ask_whether_ready(&self) -> Result<Facts, Problem> {
        let denied = match self.store.ready().await {
            Ok(()) => None,
            Err(error @ StoreError::Denied(_)) => Some(error),
            Err(error) => return Err(error.into()),
        };
        let facts = self.store.facts().await?;
        // What may be done everywhere is known more closely than what was refused first.
        let denied = facts.denial().or(denied.map(Problem::from));
        match denied {
            Some(denied) => Err(denied),
            None => Ok(facts),
        }
    }

    /// How many rows wait for vectors, as it was some seconds ago; none where that could not be counted. One that is
    /// quiet and had none has none.
    pub async fn embed_waiting(&self) -> Option<u64> {
        let mut waiting_at = self.waiting_at.lock().await;
        if let Some((at, waiting)) = *waiting_at
            && (at.elapsed() < WAITING_FOR || waiting == Some(0) && self.is_quiet())
        {
            return waiting;
        }
        let asked = tokio::time::timeout(WAITING_ANSWER, self.store.embed_waiting()).await;
        let waiting = asked.ok().and_then(Result::ok);
        // A database that is away is asked no more often than one that answers.
        *waiting_at = Some((Instant::now(), waiting));
        waiting
    }

    pub fn listens_at(&self, address: SocketAddr, tls: Option<Arc<Shown>>) {
        let _ = self.listens.set((address, tls));
    }

    /// Whether a host is this server without anybody having said so: the very address it listens on,
    /// or what its certificate is for. Neither can be another's.
    pub fn is_called(&self, host: &str) -> bool {
        self.listens.get().is_some_and(|(address, tls)| {
            host == address.to_string()
                || host == address.ip().to_string()
                || tls.as_ref().is_some_and(|shown| shown.is_for(host))
        })
    }

    /// How many connections the configuration allows.
    pub fn connections(&self) -> usize {
        self.limits.connections
    }
}

/// Something that comes to its end: on its caller's own task while that one waits, and by itself
/// once the caller has gone.
struct Unstopped<F: Future<Output: Send + 'static> + Send + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for Unstopped<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(running) = &mut self.0 else {
            return Poll::Pending;
        };
        let polled = running.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for Unstopped<F> {
    fn drop(&mut self) {
        if let Some(left) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_was_begun_comes_to_its_end_whoever_waits() {
        let (go_on, wait) = oneshot::channel::<()>();
        let (done, end) = oneshot::channel();
        let mut begun = Box::pin(Unstopped(Some(Box::pin(async move {
            drop(wait.await);
            let _ = done.send(7);
        }))));
        assert!(futures_util::poll!(begun.as_mut()).is_pending());
        drop(begun);
        drop(go_on);
        assert_eq!(end.await, Ok(7));
        assert_eq!(Unstopped(Some(Box::pin(async { 8 }))).await, 8);
    }
}
