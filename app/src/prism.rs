//! A running Prism: the store, the hub, and who is who.

use crate::clock;
use crate::config::{self, Config, Limits};
use crate::directory::Directory;
use crate::embed::Embedder;
use crate::gate::Gate;
use crate::hub::Hub;
use crate::metrics::Metrics;
use crate::presence::{Came, Presence};
use crate::retention::Pruner;
use crate::store::{KeyRow, Persona, Project, ReturnedRow, SessionRow, Store};
use prism_core::access::{Bucket, Place};
use prism_core::api::{ServerFrame, close};
use prism_core::envelope::Envelope;
use prism_core::gate::Mode;
use prism_core::receipt::State;
use prism_core::retention::Retention;
use prism_core::signal::{SignalType, sha256_hex};
use prism_core::{Code, Identity, Moment, Problem, ProjectName};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use uuid::Uuid;

/// How often the sweep looks for expired signals, returned leases and missed pushes.
const SWEEP: Duration = Duration::from_secs(2);
/// Rows that one sweep ends at the most; the rest wait two seconds.
const SWEEP_ROWS: usize = 500;

/// Verbs under way at once; more wait for one to end.
const VERBS_UNDER_WAY_MAX: usize = 4_096;

pub struct Prism {
    pub store: Store,
    pub hub: Arc<Hub>,
    pub directory: Directory,
    pub presence: Presence,
    pub metrics: Metrics,
    pub gate: Gate,
    pub embedder: Embedder,
    pub operator: Identity,
    pub allowed_hosts: Vec<String>,
    pub started_at: Moment,
    limits: Limits,
    pub retention: Retention,
    buckets: Mutex<HashMap<Uuid, Bucket>>,
    /// One permit for each verb under way.
    under_way: Arc<Semaphore>,
}

/// Who calls: proven by the key, never taken from the body.
#[derive(Clone, Debug)]
pub struct Caller {
    pub project: Project,
    pub persona: Persona,
    pub session: Option<SessionRow>,
    pub is_operator: bool,
}

/// What a project was called by the rule of earlier versions, and where that was asked.
pub struct Formerly {
    pub name: ProjectName,
    pub machine_id: String,
    pub folder: String,
}

impl Caller {
    pub fn session_id(&self) -> Option<Uuid> {
        self.session.as_ref().map(|s| s.id)
    }
}

impl Prism {
    pub async fn open(
        store: Store,
        config: &Config,
        gate_mode: Mode,
        embedder: Embedder,
    ) -> Result<Arc<Self>, Problem> {
        store.name_operator(config.operator.clone()).await?;
        let loaded = store.load().await?;
        let now = clock::now();
        let gate = Gate::new(gate_mode);
        let prism = Arc::new(Self {
            directory: Directory::new(&loaded),
            presence: Presence::new(loaded.open_sessions, loaded.started_personas, now),
            hub: store.bus().hub().clone(),
            metrics: Metrics::default(),
            gate,
            embedder,
            operator: config.operator.clone(),
            allowed_hosts: config.server.allowed_hosts.clone(),
            started_at: now,
            limits: config.limits,
            retention: config.retention,
            buckets: Mutex::default(),
            under_way: Arc::new(Semaphore::new(VERBS_UNDER_WAY_MAX)),
            store,
        });
        prism.know_operator(&config.api_key).await?;
        Ok(prism)
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
        let running = tokio::spawn(async move {
            let answer = verb.await;
            drop(permit);
            answer
        });
        running.await.unwrap_or_else(|error| {
            tracing::error!(%error, "A verb broke off");
            Err(broken("see the server's log"))
        })
    }

    /// Admits no more verbs and waits for those under way.
    pub async fn finish_verbs(&self, at_most: Duration) {
        let all = self.under_way.acquire_many(VERBS_UNDER_WAY_MAX as u32);
        if tokio::time::timeout(at_most, all).await.is_err() {
            tracing::warn!("Stopping although verbs are still under way");
        }
        self.under_way.close();
    }

    /// Stores a key's hash, unless it is known already; memory keeps what the store says.
    pub async fn know_key(&self, key: &str, identity: Option<Identity>) -> Result<KeyRow, Problem> {
        let row = KeyRow {
            id: clock::new_id(),
            identity,
            key_sha256: sha256_hex(key.as_bytes()),
            prefix: key.chars().take(12).collect(),
            created_at: clock::now(),
            revoked_at: None,
        };
        let row = self.store.add_key(row).await?.ok_or_else(|| {
            Problem::new(
                Code::Conflict,
                "the store has this key for a holder that cannot be read",
                "make another: `prism key mint <identity>`, or a fresh api_key in config.toml",
            )
        })?;
        self.directory.add_key(row.clone());
        Ok(row)
    }

    /// The key of `config.toml` opens everything, so it must be the operator's and in force.
    async fn know_operator(&self, key: &str) -> Result<(), Problem> {
        let row = self.know_key(key, None).await?;
        let wrong = match (&row.identity, row.revoked_at) {
            (Some(agent), _) => format!("is the key of the agent {agent}"),
            (None, Some(_)) => "was revoked".to_owned(),
            (None, None) => return Ok(()),
        };
        Err(Problem::new(
            Code::Conflict,
            format!("the api_key in config.toml {wrong}"),
            "put the operator's key there, or a fresh one: `prk_` and 40 random letters or digits",
        ))
    }

    /// How many connections the configuration allows.
    pub fn connections(&self) -> usize {
        self.limits.connections
    }

    /// Finds the key a request carries and charges it for one request.
    pub fn authenticate(&self, authorization: Option<&str>) -> Result<KeyRow, Problem> {
        let hint = "send `Authorization: Bearer prk_...`; the operator's key is in $PRISM_HOME/config.toml";
        let header = authorization
            .ok_or_else(|| Problem::new(Code::MissingKey, "this needs a key", hint))?;
        let key = header
            .strip_prefix("Bearer ")
            .map(str::trim)
            .filter(|k| !k.is_empty());
        let key = key.ok_or_else(|| {
            Problem::new(
                Code::InvalidKey,
                "the Authorization header is not a bearer key",
                hint,
            )
        })?;
        // Looked up by hash: how long that takes says nothing about the key.
        let row = self
            .directory
            .key(&sha256_hex(key.as_bytes()))
            .ok_or_else(|| Problem::new(Code::InvalidKey, "this key is not known here", hint))?;
        if row.revoked_at.is_some() {
            return Err(Problem::new(
                Code::InvalidKey,
                format!("key {}… was revoked", row.prefix),
                "ask the operator for a new one: `prism key mint <identity>`",
            ));
        }
        if let Err(wait_ms) = self.charge(row.id) {
            let limits = self.limits;
            let hint = format!(
                "wait {wait_ms} ms; a key may send {} a second and {} in a burst",
                limits.requests_per_second, limits.requests_burst
            );
            return Err(Problem::new(
                Code::TooManyRequests,
                "too many requests with this key",
                hint,
            )
            .with("retry_after_ms", wait_ms));
        }
        Ok(row)
    }

    /// Charges a key for one request or one socket frame, or says how many milliseconds to wait.
    pub fn charge(&self, key: Uuid) -> Result<(), u64> {
        let (limits, now) = (self.limits, clock::now());
        self.buckets
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(key)
            .or_insert_with(|| Bucket::full(limits.requests_burst, now))
            .take(limits.requests_per_second, limits.requests_burst, now)
    }

    /// Places a key's holder in a project, and in the session it names.
    pub fn caller(
        &self,
        key: &KeyRow,
        pid: &str,
        session: Option<Uuid>,
    ) -> Result<Caller, Problem> {
        let known = || {
            self.directory
                .visible_projects(key.identity.as_ref())
                .join(", ")
        };
        let project = self.directory.project(pid).ok_or_else(|| {
            Problem::new(
                Code::UnknownProject,
                format!("there is no project {:?}", prism_core::text::clip(pid, 64)),
                format!("known: {}", known()),
            )
            .with(
                "projects",
                self.directory.visible_projects(key.identity.as_ref()),
            )
        })?;
        // The rights come with the key. An agent's key is never the operator, whatever its name.
        let persona = match &key.identity {
            None => self.directory.operator(project.id),
            Some(identity) => self
                .directory
                .persona(project.id, identity.as_str())
                .filter(|p| !p.is_operator),
        };
        let persona = persona.ok_or_else(|| {
            let who = key
                .identity
                .as_ref()
                .map_or("the operator", Identity::as_str);
            Problem::new(
                Code::NoPersona,
                format!("{who} has no persona in {pid}"),
                format!("the operator adds one: `prism persona add {who} --pid {pid}`"),
            )
        })?;
        let session = session
            .map(|id| self.session_of(id, &persona))
            .transpose()?;
        Ok(Caller {
            project,
            is_operator: key.identity.is_none(),
            persona,
            session,
        })
    }

    fn session_of(&self, id: Uuid, persona: &Persona) -> Result<SessionRow, Problem> {
        let over = || {
            Problem::new(
                Code::SessionReleased,
                "this session is over, or never was",
                "call prism_start to open a new one (over HTTP: session_register, without the Prism-Session header)",
            )
        };
        let row = self.presence.get(id).ok_or_else(over)?;
        if row.persona_id != persona.id {
            return Err(Problem::new(
                Code::NotYours,
                "this session belongs to another identity or project",
                "leave out the Prism-Session header or use your own session",
            ));
        }
        if row.released_at.is_some() {
            return Err(over());
        }
        Ok(row)
    }

    /// The name to use for a project that was found: the one of earlier versions goes on where it
    /// has rows, until the operator merges the two.
    pub async fn name_in_use(
        &self,
        pid: String,
        formerly: Option<Formerly>,
    ) -> Result<String, Problem> {
        let Some(formerly) = formerly else {
            return Ok(pid);
        };
        let Some(old) = self.directory.project(formerly.name.as_str()) else {
            return Ok(pid);
        };
        let goes_on = self
            .store
            .goes_on(old.id, formerly.machine_id, formerly.folder)
            .await?;
        Ok(if goes_on { old.pid.to_string() } else { pid })
    }

    /// Lets whoever found a project into it, if its folder is one of the project's.
    pub async fn enter(
        &self,
        pid: &str,
        place: Option<Place>,
        creates_project: bool,
    ) -> Result<(), Problem> {
        let Some(place) = place else {
            return Ok(());
        };
        let pid = ProjectName::parse(pid)?;
        if creates_project {
            self.ensure_project(pid.clone()).await?;
        }
        Ok(self.store.enter_project(pid, place, clock::now()).await?)
    }

    /// Adds a project with its operator's persona; harmless when it exists.
    pub async fn ensure_project(&self, pid: ProjectName) -> Result<Project, Problem> {
        if let Some(project) = self.directory.project(pid.as_str()) {
            return Ok(project);
        }
        let new = Project {
            id: clock::new_id(),
            pid,
        };
        let (project, operator) = self
            .store
            .add_project(new, self.operator.clone(), clock::now())
            .await?;
        self.directory.add_persona(operator);
        self.directory.add_project(project.clone());
        Ok(project)
    }

    /// Adds an identity to a project, in the spelling its first registration fixed; says whether it
    /// is new.
    pub async fn ensure_persona(
        &self,
        project: &Project,
        identity: &Identity,
    ) -> Result<(Persona, bool), Problem> {
        let new = Persona {
            id: clock::new_id(),
            project_id: project.id,
            identity: identity.clone(),
            is_operator: false,
            created_at: clock::now(),
        };
        let (persona, created) = self.store.add_persona(new).await?;
        self.directory.add_persona(persona.clone());
        Ok((persona, created))
    }

    pub fn announce(&self, session: &SessionRow, event: SignalType) {
        let envelope = Envelope {
            signal_id: clock::new_id(),
            signal_type: event.name().into(),
            category: None,
            from_identity: session.identity.to_string(),
            from_session: Some(session.id),
            to_identity: "*".into(),
            payload: serde_json::Map::from_iter([
                ("surface".to_owned(), session.surface.clone().into()),
                ("machine_id".to_owned(), session.machine_id.clone().into()),
            ]),
            in_reply_to: None,
            created_at: Some(clock::now()),
            trace_id: None,
            seq: None,
            pid: None,
        };
        self.hub.tell_project(
            session.project_id,
            Some(session.id),
            &ServerFrame::Event { envelope },
        );
    }

    /// Tells the peers of a session that it is there, when they do not know.
    pub fn announce_arrival(&self, session: &SessionRow, came: Came) {
        if came != Came::Known {
            self.announce(session, SignalType::PeerJoined);
        }
    }

    pub async fn release(&self, session: &SessionRow, reason: &str) -> Result<(), Problem> {
        let now = clock::now();
        let returned = self
            .store
            .release_session(session.id, reason.to_owned(), now)
            .await?;
        let left = self.presence.release(session.id, now);
        self.hub.close_session(session.id, close::RELEASED, reason);
        self.tell_returned(returned);
        if let Some(left) = left {
            self.announce(&left, SignalType::PeerLeft);
        }
        Ok(())
    }

    /// What was leased and not confirmed waits again: whoever is there marks it unread and rings.
    fn tell_returned(&self, returned: Vec<ReturnedRow>) {
        let mut by_inbox: HashMap<Uuid, Vec<Uuid>> = HashMap::new();
        for row in returned {
            by_inbox
                .entry(row.to_persona)
                .or_default()
                .push(row.signal_id);
        }
        for (persona, signal_ids) in by_inbox {
            self.hub
                .tell(persona, None, &ServerFrame::Returned { signal_ids });
        }
    }

    /// One round of housekeeping: what expired, what was not confirmed, who left.
    pub async fn sweep(&self) -> Result<(), Problem> {
        let now = clock::now();
        let swept = self.store.sweep(now, SWEEP_ROWS).await?;
        for ended in swept.expired {
            self.metrics
                .expired
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            self.hub.tell(
                ended.to_persona,
                None,
                &ServerFrame::Ended {
                    signal_ids: vec![ended.signal_id],
                    state: State::Expired,
                },
            );
        }
        self.tell_returned(swept.leases_returned);
        let heads = self.store.heads(self.hub.personas()).await?;
        self.hub.heard_of(&heads);
        let (gone, silent) = self.presence.sweep(now);
        for session in gone {
            self.announce(&session, SignalType::PeerLeft);
        }
        for session in silent {
            self.release(&session, "stale").await?;
        }
        Ok(())
    }

    /// Sweeps every two seconds until told to stop.
    pub async fn keep_house(self: Arc<Self>) {
        // Where a test moves the clock, what follows from it must not take two seconds.
        let period = config::clock_file().map_or(SWEEP, |_| SWEEP / 20);
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = 0u64;
        let mut pruner = None;
        loop {
            ticks.tick().await;
            round += 1;
            if let Err(problem) = self.sweep().await {
                tracing::warn!(%problem, "A sweep failed; the next one is in two seconds");
            }
            match &mut pruner {
                Some(pruner) => Pruner::step(pruner, &self.store).await,
                None => pruner = Pruner::open(&self.store, self.retention).await.ok(),
            }
            if round.is_multiple_of(15) {
                let dirty = self.presence.take_dirty();
                if !dirty.is_empty() {
                    self.store.touch_sessions(dirty);
                }
            }
        }
    }
}
