//! Who calls: a key, charged for each request, placed in a project and a session.

use super::Prism;
use crate::clock;
use crate::store::{KeyRow, Persona, Project, SessionRow};
use prism_core::access::{Bucket, share};
use prism_core::signal::sha256_hex;
use prism_core::{Code, Identity, Problem, ProjectName};
use uuid::Uuid;

/// Who calls: proven by the key, never taken from the body.
#[derive(Clone, Debug)]
pub struct Caller {
    pub project: Project,
    pub persona: Persona,
    pub session: Option<SessionRow>,
    pub is_operator: bool,
    /// The operator asks about every project; `project` and `persona` are nobody's.
    pub everywhere: bool,
    /// It came from a browser, with its cookie.
    pub from_page: bool,
}

impl Caller {
    pub fn session_id(&self) -> Option<Uuid> {
        self.session.as_ref().map(|s| s.id)
    }
}

impl Prism {
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
        self.still_in_force(&row)?;
        if row.browser.is_some() {
            return Err(Problem::new(
                Code::InvalidKey,
                "this key is a browser's, and counts only in its cookie",
                hint,
            ));
        }
        self.charge_for(&row)?;
        Ok(row)
    }

    /// Charges a key for one request, or refuses it.
    pub fn charge_for(&self, row: &KeyRow) -> Result<(), Problem> {
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
        Ok(())
    }

    /// The operator, asking about every project at once.
    pub fn caller_everywhere(&self, key: &KeyRow) -> Result<Caller, Problem> {
        if key.identity.is_some() {
            return Err(Problem::new(
                Code::OperatorOnly,
                "only the operator asks about every project at once",
                "unset PRISM_AGENT_IDENTITY and leave out --as to act as the operator, or name one project",
            ));
        }
        let nowhere = Project {
            id: Uuid::nil(),
            pid: ProjectName::parse("everywhere")?,
        };
        Ok(Caller {
            persona: Persona {
                id: Uuid::nil(),
                project_id: nowhere.id,
                identity: self.operator.clone(),
                is_operator: true,
                created_at: self.started_at,
            },
            project: nowhere,
            session: None,
            is_operator: true,
            everywhere: true,
            from_page: key.browser.is_some(),
        })
    }

    /// The projects that a caller asks about.
    pub fn scope(&self, caller: &Caller) -> Vec<Project> {
        match caller.everywhere {
            true => self.directory.projects(),
            false => vec![caller.project.clone()],
        }
    }

    /// Refuses a key that was revoked.
    pub fn still_in_force(&self, key: &KeyRow) -> Result<(), Problem> {
        if self.directory.in_force(key) {
            return Ok(());
        }
        Err(Problem::new(
            Code::InvalidKey,
            format!("key {}… was revoked", key.prefix),
            "ask the operator for a new one: `prism key mint <identity>`",
        )
        .with("reason", Problem::REVOKED))
    }

    /// Charges a key for one request or one socket frame, or says how many milliseconds to wait.
    pub fn charge(&self, key: Uuid) -> Result<(), u64> {
        let (limits, now) = (self.limits, clock::now());
        let servers = self.bus().carrier().servers();
        let per_s = share(limits.requests_per_second, servers);
        let burst = share(limits.requests_burst, servers);
        self.buckets
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .entry(key)
            .or_insert_with(|| Bucket::full(burst, now))
            .take(per_s, burst, now)
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
            everywhere: false,
            from_page: key.browser.is_some(),
        })
    }

    fn session_of(&self, id: Uuid, persona: &Persona) -> Result<SessionRow, Problem> {
        let row = self.presence.get(id).ok_or_else(Problem::session_over)?;
        if row.persona_id != persona.id {
            return Err(Problem::new(
                Code::NotYours,
                "this session belongs to another identity or project",
                "leave out the Prism-Session header or use your own session",
            ));
        }
        if row.released_at.is_some() {
            return Err(Problem::session_over());
        }
        Ok(row)
    }
}
