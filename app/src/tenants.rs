//! The tenants that a server serves: one running Prism each, found by the name that a key carries.
//!
//! A name is a claim: it says among whose keys a key is looked up, and nothing else. Tenants share the process, the
//! database's connections, the embedding worker and the limit on connections; they share no row, no name and no socket.

use crate::bus::{Carrier, Member};
use crate::config::{self, Config};
use crate::embed::{Embedder, Task};
use crate::home::Home;
use crate::prism::Prism;
use crate::server::watch;
use crate::store::{Store, StoreError, Tenant};
use prism_core::api::close;
use prism_core::gate::Mode;
use prism_core::tenant::{self, TenantName, named_in};
use prism_core::{Code, Problem};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use uuid::Uuid;

/// How often a server looks which tenants there are.
const LOOK: Duration = Duration::from_secs(1);
/// Between two looks for a name that nobody knows: anybody may send any.
const LOOK_PAUSE: Duration = Duration::from_millis(200);

/// How long sockets may take to end where a server stops.
const SOCKETS_END: Duration = Duration::from_secs(1);

/// Everybody who is served; cheap to clone.
#[derive(Clone)]
pub struct Tenants(Arc<Inner>);

struct Inner {
    /// The one that the database began with; keys without a name are its.
    first: Arc<Prism>,
    others: RwLock<HashMap<String, Served>>,
    /// What the others are made of, where there may be others.
    ground: Option<Ground>,
    /// When it was last looked which there are, and what came of it. Held while tenants come and go.
    looked: tokio::sync::Mutex<Option<(Instant, Looked)>>,
    listens: OnceLock<(String, SocketAddr)>,
}

/// Those that could not be served, by name, each with its reason; or why nobody could look.
type Looked = Result<HashMap<String, Problem>, Problem>;

/// What every tenant of a server has in common.
pub struct Ground {
    pub config: Config,
    pub home: Home,
    pub gate_mode: Mode,
    pub database: String,
    pub redis: Option<String>,
    /// What the database calls itself, where it does.
    pub called: Option<String>,
}

/// A tenant and what runs for it.
struct Served {
    prism: Arc<Prism>,
    running: Running,
}

/// The tasks of one Prism; they end with this.
pub struct Running(Vec<JoinHandle<()>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// A server that is alone with its file has one tenant.
impl From<Arc<Prism>> for Tenants {
    fn from(first: Arc<Prism>) -> Self {
        Self::new(first, None)
    }
}

impl Ground {
    /// Where the servers of one database meet. A Redis may serve a copy of the database as well, whose tenants have the same
    /// ids; a NOTIFY never leaves its database.
    fn channel(&self, tenant: Uuid) -> String {
        let tenant = tenant.simple();
        match self.called.as_ref().filter(|_| self.redis.is_some()) {
            Some(called) => format!("prism_{tenant}_{called}"),
            None => format!("prism_{tenant}"),
        }
    }

    /// Lets other servers of the same database know what one tenant commits here, and hears what they do.
    fn join(&self, prism: &Arc<Prism>) -> Result<JoinHandle<()>, Problem> {
        let tenant = prism.tenant;
        let member = Member {
            tenant,
            server: prism.bus().server(),
            name: config::server_name().to_owned(),
            channel: self.channel(tenant),
        };
        let (carrier, incoming) = match &self.redis {
            Some(url) => Carrier::redis(url, member),
            None => Carrier::pg_notify(&self.database, member),
        }?;
        Ok(tokio::spawn(prism.clone().join(carrier, incoming)))
    }
}

impl Tenants {
    pub fn new(first: Arc<Prism>, ground: Option<Ground>) -> Self {
        Self(Arc::new(Inner {
            first,
            others: RwLock::default(),
            ground,
            looked: tokio::sync::Mutex::default(),
            listens: OnceLock::new(),
        }))
    }

    pub fn first(&self) -> &Arc<Prism> {
        &self.0.first
    }

    /// Everybody, the first one first.
    pub fn all(&self) -> Vec<Arc<Prism>> {
        let others = self.others();
        let others = others.values().map(|served| served.prism.clone());
        std::iter::once(self.0.first.clone())
            .chain(others)
            .collect()
    }

    fn others(&self) -> std::sync::RwLockReadGuard<'_, HashMap<String, Served>> {
        self.0.others.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<String, Served>> {
        let others = self.0.others.write();
        others.unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom a key is to be shown to. A name that nobody has is the first one's to refuse, like any key that is not
    /// known; of one that cannot be looked up nobody can say that it is not known.
    pub async fn of_key(&self, key: &str) -> Result<Arc<Prism>, Problem> {
        let Some(name) = named_in(key).filter(|_| self.0.ground.is_some()) else {
            return Ok(self.0.first.clone());
        };
        let asked = Instant::now();
        if let Some(prism) = self.named(name) {
            return Ok(prism);
        }
        let mut unserved = self.look(asked).await?;
        match (self.named(name), unserved.remove(name)) {
            (Some(prism), _) => Ok(prism),
            (None, Some(problem)) => Err(problem),
            (None, None) => Ok(self.0.first.clone()),
        }
    }

    /// Whose link into the page it is: it carries a name as a key does.
    pub async fn of_link(&self, token: &str) -> Result<Arc<Prism>, Problem> {
        self.of_key(&format!("{}{token}", tenant::KEY)).await
    }

    fn named(&self, name: &str) -> Option<Arc<Prism>> {
        Some(self.others().get(name)?.prism.clone())
    }

    /// Runs what a Prism does by itself.
    pub fn run(&self, prism: &Arc<Prism>, embedding: Task) -> Result<Running, Problem> {
        let mut tasks = vec![
            tokio::spawn(prism.clone().keep_house()),
            tokio::spawn(watch::tell(prism.clone())),
            tokio::spawn(embedding.run(prism.store.clone())),
        ];
        if let Some(ground) = &self.0.ground {
            tasks.push(ground.join(prism)?);
        }
        Ok(Running(tasks))
    }

    pub fn listens_at(&self, url: &str, address: SocketAddr) {
        let _ = self.0.listens.set((url.to_owned(), address));
    }

    /// Keeps up with which tenants there are, until the server stops.
    pub async fn keep_up(self) {
        if self.0.ground.is_none() {
            return;
        }
        loop {
            if let Err(problem) = self.look(Instant::now()).await {
                tracing::warn!(%problem, "Which tenants there are could not be looked up");
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Looks which tenants there are, unless somebody has since `asked`: those that came are served, those that went
    /// are not.
    async fn look(&self, asked: Instant) -> Looked {
        let Some(ground) = &self.0.ground else {
            return Ok(HashMap::new());
        };
        let mut looked = self.0.looked.lock().await;
        if let Some((at, outcome)) = &*looked {
            if *at > asked {
                return outcome.clone();
            }
            tokio::time::sleep_until((*at + LOOK_PAUSE).into()).await;
        }
        let began = Instant::now();
        let outcome = self.see(ground).await;
        *looked = Some((began, outcome.clone()));
        outcome
    }

    async fn see(&self, ground: &Ground) -> Looked {
        self.see_copy().await?;
        let first = self.0.first.tenant;
        let mut there = self.0.first.store.tenants().await?;
        there.retain(|tenant| tenant.id != first);
        self.end_those_not_in(&there).await;
        let mut unserved = HashMap::new();
        for tenant in there {
            let is_served = self.others().contains_key(&tenant.name);
            if !is_served && let Err(problem) = self.begin(ground, &tenant).await {
                tracing::error!(tenant = tenant.name, %problem, "A tenant is not served");
                unserved.insert(tenant.name, problem);
            }
        }
        Ok(unserved)
    }

    /// Sees whether another copy of the database answers by now.
    async fn see_copy(&self) -> Result<(), Problem> {
        // One that did not say it at the start is not asked again.
        if self.0.first.copy().is_some()
            && let Some(copy) = self.0.first.store.which_copy().await?
        {
            self.all().iter().for_each(|prism| prism.stands_on(&copy));
        }
        Ok(())
    }

    async fn begin(&self, ground: &Ground, tenant: &Tenant) -> Result<(), Problem> {
        let name = TenantName::parse(&tenant.name)?;
        let (store, id) = (self.0.first.store.clone(), tenant.id);
        let store = tokio::task::spawn_blocking(move || store.of_tenant(id)).await;
        let store: Store = store.unwrap_or(Err(StoreError::Closed))?;
        let embedder: (Embedder, Task) = self.0.first.embedder.beside(&store).await?;
        let home = ground.home.clone();
        home.create_folder(&format!("tenants/{name}"))
            .map_err(|e| Problem::new(Code::Internal, format!("{e:#}"), "make it writable"))?;
        let (config, mode) = (&ground.config, ground.gate_mode);
        let prism = Prism::open_tenant(name, store, config, &home, mode, embedder.0).await?;
        if let Some((url, address)) = self.0.listens.get() {
            prism.browsers.listens_at(url);
            prism.listens_at(*address, None);
        }
        let running = self.run(&prism, embedder.1)?;
        tracing::info!(tenant = tenant.name, "A tenant is served from now on");
        let served = Served { prism, running };
        self.change().insert(tenant.name.clone(), served);
        Ok(())
    }

    async fn end_those_not_in(&self, there: &[Tenant]) {
        let is_there = |name: &str, id: Uuid| there.iter().any(|t| t.name == name && t.id == id);
        let gone: Vec<(String, Served)> = self
            .change()
            .extract_if(|name, served| !is_there(name, served.prism.tenant))
            .collect();
        for (name, Served { prism, running }) in gone {
            prism
                .hub
                .close_all(close::REFUSED, "this tenant was removed");
            drop(running);
            // What is under way may still say so; nothing of it stays.
            tokio::spawn(async move { prism.store.close().await });
            tracing::info!(tenant = name, "A tenant was removed, and is served no more");
        }
    }

    /// Closes every socket of everybody.
    pub fn close_all(&self, code: u16, reason: &str) {
        for prism in self.all() {
            prism.hub.close_all(code, reason);
        }
    }

    /// Ends everybody: no more verbs, then what is still to be written.
    pub async fn stop(&self, grace: Duration) {
        for served in self.change().values_mut() {
            served.running = Running(Vec::new());
        }
        let end = |prism: Arc<Prism>| async move {
            prism.finish_verbs(grace).await;
            // Who was told to go says in its row that it went.
            let gone = tokio::time::timeout(SOCKETS_END, prism.hub.is_left());
            drop(gone.await);
            let dirty = prism.presence.take_dirty();
            prism.store.touch_sessions(dirty, crate::clock::now());
            prism.store.close().await;
            prism.bus().carrier().leave().await;
        };
        let ending: Vec<_> = (self.all().into_iter())
            .map(|prism| tokio::spawn(end(prism)))
            .collect();
        for end in ending {
            drop(end.await);
        }
    }
}
