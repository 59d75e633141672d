//! `prism mcp`: the shim beside one agent host.
//!
//! It speaks MCP to the host, holds one socket to the server, and keeps the
//! identity's ring, count and tee files. Per frame, in this order: tee, ring,
//! count, bell; whoever hears the bell finds the files.

mod attention;
pub mod bell;
pub mod cache;
pub mod endpoint;
pub mod files;
mod git;
pub mod hooks;
pub mod mcp;
pub mod probe;
mod ringing;
pub mod session;
pub mod socket;
pub mod statusline;
mod stream;
pub mod tee;

use crate::background::Autostart;
use crate::client::{self, Client, Locator};
use crate::clock;
use crate::config::{self, Env, ProjectChoice};
use crate::home::Home;
use crate::ui::{Failure, Outcome};
use attention::HostProcessSeen;
use bell::Bell;
use cache::Cache;
use files::ShimFile;
use prism_core::bell::Strategy;
use prism_core::presence::Surface;
use prism_core::{Code, Identity, Problem, api};
use serde_json::{Value, json};
use session::Registered;
pub use session::Session;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tee::Tee;
use tokio::sync::Mutex;

/// How long a shim whose host is gone may take to say goodbye.
const GOODBYE: Duration = Duration::from_millis(500);

/// The pause between two attempts to open a session, at first and at most.
const OPEN_PAUSE: Duration = Duration::from_millis(100);
const OPEN_PAUSE_MAX: Duration = Duration::from_secs(2);

pub struct Shim {
    env: Env,
    home: Home,
    /// Which project, or why nobody can tell: then every verb that needs one says so.
    project: Result<ProjectChoice, Problem>,
    fixed_identity: Option<Identity>,
    client_name: OnceLock<String>,
    bell: Bell,
    host_process: HostProcessSeen,
    phase: Mutex<Phase>,
    /// The server that this shim starts when none runs; once, at its own start.
    autostart: Autostart,
    /// What the host calls its session, as far as it is known.
    host_session: std::sync::Mutex<Option<String>>,
}

/// Where the session of this host stands.
enum Phase {
    /// Not registered yet.
    New,
    Open(Arc<Session>),
    /// Over for good; only `prism_start` opens another, as whom the agent was.
    Released(Option<Identity>),
    /// Over because the operator revoked the key of whom the agent was.
    Revoked(Identity),
}

impl Phase {
    /// Whom the agent of this host has been.
    fn identity(&self) -> Option<&Identity> {
        match self {
            Self::New => None,
            Self::Open(session) => Some(&session.identity),
            Self::Released(identity) => identity.as_ref(),
            Self::Revoked(identity) => Some(identity),
        }
    }
}

pub async fn run(env: Env) -> Outcome {
    // Standard output is the protocol: not one byte of ours may reach it.
    crate::log::start("warn", false);
    let shim = Arc::new(Shim::new(env)?);
    mcp::serve(shim.clone()).await?;
    shim.host_gone().await;
    Ok(())
}

impl Shim {
    pub fn new(env: Env) -> Result<Self, Failure> {
        let home = env.prism_home()?;
        home.create()?;
        home.check()?;
        files::sweep(&home);
        let fixed_identity = env.identity()?;
        if let Some(name) = env.surface.as_deref()
            && Surface::from_name(name).is_none()
        {
            return Err(Failure::Unable {
                message: format!("PRISM_AGENT_SURFACE is {name:?}"),
                hint: Some(format!("use one of {}", Surface::names())),
            });
        }
        let strategy = match env.doorbell.as_deref() {
            None => Strategy::Auto,
            Some(name) => Strategy::from_name(name).ok_or_else(|| Failure::Unable {
                message: format!("PRISM_DOORBELL is {name:?}"),
                hint: Some(format!("use one of {}", Strategy::names())),
            })?,
        };
        let cwd = std::env::current_dir()
            .map_err(|e| anyhow::anyhow!("cannot tell the working directory: {e}"))?;
        let project = config::choose_project(None, &env, &cwd).map_err(|error| {
            Problem::new(
                Code::InvalidRequest,
                prism_core::text::one_line(&format!("{error:#}")),
                "mend it, or set PRISM_PID, and start this host again",
            )
        });
        Ok(Self {
            project,
            fixed_identity,
            client_name: OnceLock::new(),
            bell: Bell::new(strategy, &env, &cwd.to_string_lossy(), clock::now()),
            host_process: HostProcessSeen::begin(&env),
            phase: Mutex::new(Phase::New),
            autostart: Autostart::begin(&env, &home),
            home,
            host_session: std::sync::Mutex::new(env.claude_session.clone()),
            env,
        })
    }

    pub fn env(&self) -> &Env {
        &self.env
    }

    pub fn home(&self) -> &Home {
        &self.home
    }

    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The project this host works in.
    pub fn pid(&self) -> Result<&str, Problem> {
        Ok(self.project()?.pid.as_str())
    }

    fn project(&self) -> Result<&ProjectChoice, Problem> {
        self.project.as_ref().map_err(Clone::clone)
    }

    /// The host introduced itself. With an identity in the environment the
    /// session opens now, so that signals arrive before the first verb.
    pub fn host_is_ready(self: &Arc<Self>, client_name: &str) {
        drop(self.client_name.set(client_name.to_owned()));
        if self.fixed_identity.is_none() {
            return;
        }
        let shim = self.clone();
        tokio::spawn(async move {
            let mut pause = OPEN_PAUSE;
            let mut reported = String::new();
            // The server may come later than the host, or have no room yet; a verb that comes
            // first opens the session itself.
            while let Err(problem) = shim.session().await {
                if !problem.is_busy() && problem.status < 500 {
                    tracing::warn!(%problem, "Could not open a session");
                    return;
                }
                if !problem.is(Code::ServerUnreachable) && reported != problem.code {
                    tracing::warn!(%problem, "No session yet; this is tried again");
                    reported.clone_from(&problem.code);
                }
                let told = problem.retry_after_ms().map(Duration::from_millis);
                tokio::time::sleep(told.unwrap_or(pause)).await;
                pause = (pause * 2).min(OPEN_PAUSE_MAX);
            }
        });
    }

    fn surface(&self) -> Surface {
        let named = self.env.surface.as_deref().and_then(Surface::from_name);
        named.unwrap_or_else(|| {
            self.client_name
                .get()
                .map_or(Surface::Other, |name| Surface::of_client(name))
        })
    }

    /// The open session; opens it when there is none, refuses when it was released.
    pub async fn session(self: &Arc<Self>) -> Result<Arc<Session>, Problem> {
        let mut phase = self.phase.lock().await;
        match &*phase {
            Phase::Open(session) if !session.is_over() => Ok(session.clone()),
            Phase::Revoked(identity) => Err(Problem::new(
                Code::InvalidKey,
                format!("the key of {identity} was revoked"),
                format!("ask the operator for a new one (`prism key mint {identity}`), then call prism_start"),
            )
            .with("reason", Problem::REVOKED)),
            Phase::Open(_) | Phase::Released(_) => Err(Problem::new(
                Code::SessionReleased,
                "this session is over",
                "call prism_start to open a new one",
            )),
            Phase::New => {
                let identity = self
                    .fixed_identity
                    .clone()
                    .map_or_else(|| Identity::parse(prism_core::id::BOT), Ok)?;
                let session = self.open(identity).await?;
                *phase = Phase::Open(session.clone());
                Ok(session)
            }
        }
    }

    /// The open session, if there is one; opens none.
    pub async fn open_session(&self) -> Option<Arc<Session>> {
        match &*self.phase.lock().await {
            Phase::Open(session) if !session.is_over() => Some(session.clone()),
            _ => None,
        }
    }

    /// `prism_start`: the open session, or a new one after a release; an agent that names nobody
    /// stays who it was.
    pub async fn start(self: &Arc<Self>, asked: Option<&str>) -> Result<Arc<Session>, Problem> {
        let asked = asked.map(Identity::parse).transpose()?;
        if let (Some(fixed), Some(asked)) = (&self.fixed_identity, &asked)
            && !fixed.is(asked.as_str())
        {
            return Err(Problem::new(
                Code::IdentityFixed,
                format!("this host runs as {fixed}, so it cannot start as {asked}"),
                "leave `identity` out, or start the host with another PRISM_AGENT_IDENTITY",
            ));
        }
        let wanted = self.fixed_identity.clone().or(asked);
        let mut phase = self.phase.lock().await;
        if let Phase::Open(session) = &*phase
            && !session.is_over()
        {
            if wanted
                .as_ref()
                .is_none_or(|w| w.is(session.identity.as_str()))
            {
                return Ok(session.clone());
            }
            self.close(session, "superseded").await;
        }
        let identity = match wanted.or_else(|| phase.identity().cloned()) {
            Some(identity) => identity,
            None => Identity::parse(prism_core::id::BOT)?,
        };
        let session = self.open(identity).await?;
        *phase = Phase::Open(session.clone());
        Ok(session)
    }

    /// The session is over: by `prism_wrap`, or because the server says so.
    pub async fn released(&self, session: &Session) {
        session.end();
        self.home.remove(&ShimFile::name(session.id));
        let mut phase = self.phase.lock().await;
        if matches!(&*phase, Phase::Open(open) if open.id == session.id) {
            let identity = session.identity.clone();
            *phase = match session.revoked.load(Ordering::Relaxed) {
                true => Phase::Revoked(identity),
                false => Phase::Released(Some(identity)),
            };
        }
    }

    async fn close(&self, session: &Session, reason: &str) {
        let request = json!({ "reason": reason });
        let goodbye = async {
            // What is not confirmed when the session ends goes back to the queue.
            tokio::join!(
                session.all_confirmed(GOODBYE / 2),
                hooks::leave(session, reason, GOODBYE / 2)
            );
            session.end();
            self.home.remove(&ShimFile::name(session.id));
            let released = session
                .client
                .call(&session.pid, "session_release", request);
            released.await
        };
        if let Ok(Err(problem)) = tokio::time::timeout(GOODBYE, goodbye).await {
            tracing::debug!(%problem, "The server did not hear that the session is over");
        }
    }

    /// Standard input closed, or a signal came: the session ends with its host.
    pub async fn host_gone(&self) {
        // A session that is only being opened has nothing to lose; the server sees it go stale.
        let Ok(mut phase) = tokio::time::timeout(GOODBYE, self.phase.lock()).await else {
            return;
        };
        let phase = std::mem::replace(&mut *phase, Phase::Released(None));
        if let Phase::Open(session) = phase
            && !session.is_over()
        {
            self.close(&session, "host_exit").await;
        }
    }

    /// Registers a session, making whatever it needs: key, project, persona.
    async fn open(self: &Arc<Self>, identity: Identity) -> Result<Arc<Session>, Problem> {
        let project = self.project()?;
        let not_started = self.autostart.ended().await;
        let locator = Locator::of(&self.env, &self.home)?;
        // Before anything else is missing, the server is.
        if let Err(not_running) = locator.url() {
            return Err(not_started.unwrap_or(not_running));
        }
        let key = self.key_of(&identity, &locator, None).await?;
        let mut client = Client::new(locator.clone(), key)?;
        let surface = self.surface();
        let request = json!({"surface": surface.name(), "machine_id": config::machine_id(), "process_pid": std::process::id()});
        let register = |client: Client| {
            let request = request.clone();
            async move {
                client
                    .standing_at(project)
                    .call(project.pid.as_str(), "session_register", request)
                    .await
            }
        };
        let answer = match register(client.clone()).await {
            Err(p) if p.is(Code::UnknownProject) || p.is(Code::NoPersona) => {
                self.operator(&locator, &p)?
                    .ensure_persona(project.pid.as_str(), &identity)
                    .await?;
                register(client.clone()).await?
            }
            // A key that was revoked stays so: only the operator gives this identity another.
            Err(p)
                if p.is(Code::InvalidKey) && !p.is_revoked() && self.operator_key().is_some() =>
            {
                // The database was replaced under this home; the old key means nothing to it.
                client = Client::new(
                    locator.clone(),
                    self.key_of(&identity, &locator, Some(client.key())).await?,
                )?;
                register(client.clone()).await?
            }
            other => other?,
        };
        let registered: api::SessionRegistered = serde_json::from_value(answer).map_err(|e| {
            Problem::new(
                Code::Internal,
                format!("the registration's answer is not understood: {e}"),
                "are server and shim of one version?",
            )
        })?;
        let identity = Identity::parse(&registered.identity)?;
        let tee = Tee::new(self.home.clone(), identity.as_str());
        let session = Arc::new(Session::new(Registered {
            id: registered.session_id,
            pid: registered.pid,
            project_id: registered.project_id,
            surface,
            client: client.with_session(Some(registered.session_id)),
            cache: Cache::new(self.home.clone(), &identity),
            tee,
            identity,
        }));
        self.publish(&session).await;
        tokio::spawn(session.tee.clone().keep_trimmed(session.over.subscribe()));
        tokio::spawn(stream::run(self.clone(), session.clone()));
        tokio::spawn(attention::run(self.clone(), session.clone()));
        // Asking git may take a while in a large repository; nobody waits for it until a wrap does.
        let noting = session.clone();
        tokio::spawn(async move { noting.baseline().await.is_some() });
        tokio::task::spawn_blocking(prism_core::hook::words::prepare);
        Ok(session)
    }

    /// How to join two names of one project, while the older one goes on.
    pub fn old_name_note(&self, session: &Session) -> Option<Value> {
        let project = self.project().ok()?;
        let (old, new) = (&session.pid, project.pid.as_str());
        (project.found.is_some() && old != new).then(|| {
            json!({
                "kind": "project_has_an_older_name",
                "remediation": format!(
                    "This repository's project is called {new} now; {old} has rows already and \
                     stays in use. The operator joins them with `prism project merge {old} {new}`."
                ),
            })
        })
    }

    /// The host's name for its session: told by its environment, a call or a hook.
    pub fn host_calls_it(&self, session: &Session, host_session: Option<&str>) {
        let mut known = self
            .host_session
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(told) = host_session {
            *known = Some(told.to_owned());
        }
        if let Some(known) = known.as_deref() {
            session.is_called(&self.home, known);
        }
    }

    /// Leaves the shim file; a home that cannot be written costs probes and hooks, not the session.
    async fn publish(self: &Arc<Self>, session: &Arc<Session>) {
        let written: anyhow::Result<()> = async {
            let token = clock::new_key()?.replacen("prk_", "shim_", 1);
            let door = endpoint::start(self.clone(), session.clone(), token.clone());
            let (port, task) = door.await?;
            if let Ok(mut slot) = session.endpoint.lock() {
                *slot = Some(task);
            }
            let file = ShimFile {
                session_id: session.id,
                port,
                token,
                pid: std::process::id(),
                identity: session.identity.to_string(),
                project: session.pid.clone(),
                surface: session.surface.name().into(),
                host_session: None,
                host_pid: rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32),
                cwd: std::env::current_dir()
                    .ok()
                    .map(|dir| dir.to_string_lossy().into_owned()),
            };
            if let Ok(mut slot) = session.file.lock() {
                *slot = Some(file.clone());
            }
            self.home
                .write(&ShimFile::name(session.id), &serde_json::to_vec(&file)?)?;
            self.host_calls_it(session, None);
            Ok(())
        }
        .await;
        if let Err(error) = written {
            tracing::warn!(%error, "Probes and hooks will not find this shim");
        }
    }

    /// Read when it is needed: the first server of a home makes it.
    fn operator_key(&self) -> Option<String> {
        client::operator_key(&self.env, &self.home).ok().flatten()
    }

    /// What became of the server when this shim started, if the operator should know.
    pub fn server_note(&self) -> Option<Value> {
        let said = self.autostart.note()?;
        Some(json!({"kind": "server_version", "remediation": format!("Prism {said}.")}))
    }

    fn operator(&self, locator: &Locator, otherwise: &Problem) -> Result<Client, Problem> {
        match self.operator_key() {
            Some(key) => Ok(Client::new(locator.clone(), key)?.standing_at(self.project()?)),
            None => Err(otherwise.clone()),
        }
    }

    /// The identity's key of this home, minted on its first use.
    async fn key_of(
        &self,
        identity: &Identity,
        locator: &Locator,
        refused: Option<&str>,
    ) -> Result<String, Problem> {
        if let Some(key) = &self.env.api_key {
            return Ok(key.clone());
        }
        let known = || -> Result<Option<String>, Problem> {
            let key = client::agent_key(&self.home, identity)?;
            Ok(key.filter(|k| Some(k.as_str()) != refused))
        };
        if let Some(key) = known()? {
            return Ok(key);
        }
        let unwritable = |e: anyhow::Error| {
            Problem::new(
                Code::StorageFull,
                format!("{e:#}"),
                "make $PRISM_HOME writable",
            )
        };
        // Two hosts of one identity may start together: one of them mints, while the other waits
        // beside whatever else its shim does.
        let home = self.home.clone();
        let lock = tokio::task::spawn_blocking(move || home.lock(client::MINT_LOCK)).await;
        let _lock = lock
            .map_err(anyhow::Error::from)
            .and_then(|lock| lock)
            .map_err(unwritable)?;
        if let Some(key) = known()? {
            return Ok(key);
        }
        let missing = Problem::new(
            Code::MissingKey,
            format!(
                "{identity} has no key, and {} has no operator's key to make one with",
                self.home.dir().display()
            ),
            "run `prism up` with this PRISM_HOME, or set PRISM_URL and PRISM_API_KEY",
        );
        let operator = self.operator(locator, &missing)?.creating_project();
        // The place first: a shim that tries again and again must not leave a row for each key
        // that it could not keep.
        let place = client::key_file(&self.home, identity);
        self.home.write(&place, b"").map_err(unwritable)?;
        self.home.remove(&place);
        let answer: Value = operator
            .call(self.pid()?, "key_mint", json!({ "identity": identity }))
            .await?;
        let key = answer["key"]
            .as_str()
            .ok_or_else(|| Problem::new(Code::Internal, "the server minted no key", "see its log"))?
            .to_owned();
        let canonical = answer["identity"]
            .as_str()
            .and_then(|i| Identity::parse(i).ok())
            .unwrap_or_else(|| identity.clone());
        let kept = self
            .home
            .write(&client::key_file(&self.home, &canonical), key.as_bytes());
        if let Err(error) = kept {
            // Nobody will have it after this session: it must not stay in force.
            let request = json!({ "key_id": answer["key_id"] });
            operator.call(self.pid()?, "key_revoke", request).await?;
            return Err(unwritable(error));
        }
        Ok(key)
    }
}
