//! Tenants, projects, personas and keys.

use super::{Result, Tables, column, failed};
use crate::clock;
use crate::store::sql::ValueRef;
use crate::store::sql::{self, Connection, OptionalExtension, Row, params};
use crate::store::{KeyRow, Loaded, Persona, Project};
use prism_core::limits::BROWSER_DAYS;
use prism_core::{Code, Identity, Moment, Problem};
use uuid::Uuid;

pub(super) const OPEN_SESSIONS: &str = "select * from sessions where released_at is null";
/// Kept on the persona: its sessions may have gone.
pub(super) const STARTED: &str = "select id from personas where started_at is not null";

impl Tables {
    pub async fn load(&self) -> Result<Loaded> {
        let load = |c: &Connection| -> Result<Loaded> {
            let tenant_id = the_tenant(c)?;
            let all = |sql: &str| c.prepare(sql).map_err(failed);
            Ok(Loaded {
                tenant_id,
                projects: rows(&mut all("select id, pid from projects")?, project)?,
                personas: rows(&mut all("select * from personas")?, persona)?,
                keys: rows(&mut all("select * from api_keys")?, key)?
                    .into_iter()
                    .flatten()
                    .collect(),
                started_personas: rows(&mut all(STARTED)?, |r| column::id(r, "id"))?,
                names: super::servers::changes(c)?.0,
            })
        };
        // A file gets its tenant on first use; elsewhere nobody waits for a snapshot.
        match self.is_shared() {
            true => self.read(load).await,
            false => self.write(load).await,
        }
    }

    /// Adds a project with its operator, or reads what is there under its name.
    pub async fn add_project(
        &self,
        new: Project,
        operator: Identity,
        now: Moment,
    ) -> Result<(Project, Persona)> {
        self.write(move |c| insert_project(c, &new, operator, now))
            .await
    }

    /// Adds an agent to a project in the spelling its first registration fixed, or reads the
    /// persona that is there; says whether it is new. The operator's name is nobody else's.
    pub async fn add_persona(&self, new: Persona) -> Result<(Persona, bool)> {
        self.write(move |c| {
            let tenant = the_tenant(c)?;
            let mut same = c
                .prepare(
                    "select * from personas where tenant_id = ? and identity_folded = ?
                     order by created_at, id",
                )
                .map_err(failed)?;
            let same = same
                .query_map([tenant.to_string(), new.identity.folded()], persona)
                .and_then(Iterator::collect::<sql::Result<Vec<_>>>)
                .map_err(failed)?;
            if let Some(operator) = same.iter().find(|p| p.is_operator) {
                return Err(operators_name(&operator.identity).into());
            }
            if let Some(known) = same.iter().find(|p| p.project_id == new.project_id) {
                return Ok((known.clone(), false));
            }
            let persona = match same.first() {
                Some(first) => Persona {
                    identity: first.identity.clone(),
                    ..new
                },
                None => new,
            };
            insert_persona(c, tenant, &persona)?;
            Ok((persona, true))
        })
        .await
    }

    /// What the operator is called, where there is a project yet.
    pub async fn operator_name(&self) -> Result<Option<Identity>> {
        self.read(|c| {
            let name = c.query_row(
                "select identity from personas where is_operator = 1 order by created_at, id limit 1",
                [],
                |r| column::parsed(r, "identity"),
            );
            name.optional().map_err(failed)
        })
        .await
    }

    /// Gives the operator one name in every project; an agent that has it already is in the way.
    pub async fn name_operator(&self, operator: Identity) -> Result<()> {
        self.write(move |c| {
            let tenant = the_tenant(c)?.to_string();
            let mut taken = c
                .prepare(
                    "select p.pid from personas a join projects p on p.id = a.project_id
                     where a.tenant_id = ? and a.identity_folded = ? and a.is_operator = 0
                     order by p.pid",
                )
                .map_err(failed)?;
            let taken = taken
                .query_map([&tenant, &operator.folded()], |r| r.get::<_, String>(0))
                .and_then(Iterator::collect::<sql::Result<Vec<_>>>)
                .map_err(failed)?;
            let has_key: bool = c
                .query_row(
                    "select exists (select 1 from api_keys
                     where tenant_id = ? and lower(identity) = ? and revoked_at is null)",
                    [&tenant, &operator.folded()],
                    |r| r.get(0),
                )
                .map_err(failed)?;
            if !taken.is_empty() || has_key {
                let place = if taken.is_empty() {
                    "with a key of its own".to_owned()
                } else {
                    format!("in {}", taken.join(", "))
                };
                return Err(Problem::new(
                    Code::Conflict,
                    format!(
                        "`operator` in config.toml is {operator}: an agent has that name {place}"
                    ),
                    "choose a name for the operator that no agent has",
                )
                .into());
            }
            // A start like any other reads no signal; a new name reads all of them, once.
            let renamed: bool = c
                .query_row(
                    "select exists (select 1 from personas
                     where tenant_id = ? and is_operator = 1 and identity <> ?)",
                    [&tenant, operator.as_str()],
                    |r| r.get(0),
                )
                .map_err(failed)?;
            if !renamed {
                return Ok(());
            }
            // What waits is shown under the name it is read by; what was read stays as it was.
            c.execute(
                "update signal_queue set to_identity = ?1
                 where drained_at is null and ended_at is null and to_identity <> ?1
                 and to_persona_id in
                     (select id from personas where tenant_id = ?2 and is_operator = 1)",
                [operator.as_str(), &tenant],
            )
            .map_err(failed)?;
            // What a sender may do with a signal goes by the name on it: the old name takes none of
            // that to whoever gets it next.
            // Where somebody of the new name once sent under the same key, only one of them can
            // keep it.
            let taken = "and not exists (select 1 from signal_queue o
                where o.idempotency_key = q.idempotency_key and o.from_identity = ?1)";
            for (keyless, where_free) in [("", taken), (", idempotency_key = null", "")] {
                let sql = format!(
                    "update signal_queue as q set from_identity = ?1{keyless}
                     where tenant_id = ?2 and from_identity <> ?1
                         and from_identity in (select identity from personas
                             where tenant_id = ?2 and is_operator = 1 and identity <> ?1) {where_free}"
                );
                c.execute(&sql, [operator.as_str(), &tenant])
                    .map_err(failed)?;
            }
            c.execute(
                "update personas set identity = ?1, identity_folded = ?2
                 where tenant_id = ?3 and is_operator = 1 and identity <> ?1",
                [operator.as_str(), &operator.folded(), &tenant],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }

    /// Stores a key, or reads the row that has its hash already; none when that row cannot be read.
    pub async fn add_key(&self, new: KeyRow) -> Result<Option<KeyRow>> {
        self.write(move |c| insert_key(c, new)).await
    }

    pub async fn revoke_key(&self, id: Uuid, now: Moment) -> Result<()> {
        self.write(move |c| {
            c.execute(
                "update api_keys set revoked_at = ? where id = ? and revoked_at is null",
                params![now.0, id.to_string()],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
    }
}

/// Whose rows these are. A file has one tenant, made on first use; elsewhere the transaction says whose it is.
pub(super) fn the_tenant(c: &Connection) -> Result<Uuid> {
    let whose = c.either(
        "select id from tenants limit 1",
        "select this_tenant() as id",
    );
    let found = c.query_row(whose, [], |r| column::id(r, "id"));
    match found {
        Err(sql::Error::NoRows) => {
            let id = clock::new_id();
            c.execute(
                "insert into tenants (id, name, created_at) values (?, 'default', ?)",
                params![id.to_string(), clock::now().0],
            )
            .map_err(failed)?;
            Ok(id)
        }
        other => other.map_err(failed),
    }
}

/// Adds a project with its operator, or reads what is there under its name.
pub(super) fn insert_project(
    c: &Connection,
    new: &Project,
    operator: Identity,
    now: Moment,
) -> Result<(Project, Persona)> {
    let tenant = the_tenant(c)?;
    c.execute(
        "insert into projects (id, tenant_id, pid, created_at) values (?, ?, ?, ?)
         on conflict do nothing",
        params![
            new.id.to_string(),
            tenant.to_string(),
            new.pid.as_str(),
            now.0
        ],
    )
    .map_err(failed)?;
    let project = c
        .query_row(
            "select id, pid from projects where tenant_id = ? and pid = ?",
            params![tenant.to_string(), new.pid.as_str()],
            project,
        )
        .map_err(failed)?;
    let known = c
        .query_row(
            "select * from personas where project_id = ? and is_operator = 1",
            [project.id.to_string()],
            persona,
        )
        .optional()
        .map_err(failed)?;
    if let Some(operator) = known {
        return Ok((project, operator));
    }
    let operator = Persona {
        id: clock::new_id(),
        project_id: project.id,
        identity: operator,
        is_operator: true,
        created_at: now,
    };
    insert_persona(c, tenant, &operator)?;
    Ok((project, operator))
}

/// Stores a key, or reads the row that has its hash already; none when that row cannot be read.
pub(super) fn insert_key(c: &Connection, new: KeyRow) -> Result<Option<KeyRow>> {
    let tenant = the_tenant(c)?;
    c.execute(
        "insert into api_keys (id, tenant_id, identity, key_sha256, prefix, created_at, browser, expires_at)
         values (?, ?, ?, ?, ?, ?, ?, ?) on conflict do nothing",
        params![
            new.id.to_string(),
            tenant.to_string(),
            new.identity.as_ref().map(Identity::as_str),
            new.key_sha256,
            new.prefix,
            new.created_at.0,
            new.browser,
            new.expires_at.map(|at| at.0)
        ],
    )
    .map_err(failed)?;
    // Browsers come and go: those that are long signed out are not listed for ever.
    c.execute(
        "delete from api_keys where browser is not null
         and coalesce(revoked_at, expires_at) < ?",
        [new.created_at.plus_s(-BROWSER_DAYS * 24 * 3600).0],
    )
    .map_err(failed)?;
    c.query_row(
        "select * from api_keys where key_sha256 = ?",
        [new.key_sha256],
        key,
    )
    .map_err(failed)
}

fn insert_persona(c: &Connection, tenant: Uuid, persona: &Persona) -> Result<()> {
    c.execute(
        "insert into personas (id, tenant_id, project_id, identity, identity_folded, is_operator, created_at) values (?, ?, ?, ?, ?, ?, ?)",
        params![
            persona.id.to_string(),
            tenant.to_string(),
            persona.project_id.to_string(),
            persona.identity.as_str(),
            persona.identity.folded(),
            persona.is_operator,
            persona.created_at.0
        ],
    )
    .map_err(failed)?;
    Ok(())
}

pub(super) fn rows<T: Send>(
    statement: &mut sql::Statement<'_>,
    map: fn(&Row<'_>) -> sql::Result<T>,
) -> Result<Vec<T>> {
    statement.collect([], map).map_err(failed)
}

fn project(row: &Row<'_>) -> sql::Result<Project> {
    Ok(Project {
        id: column::id(row, "id")?,
        pid: column::parsed(row, "pid")?,
    })
}

fn persona(row: &Row<'_>) -> sql::Result<Persona> {
    Ok(Persona {
        id: column::id(row, "id")?,
        project_id: column::id(row, "project_id")?,
        identity: column::parsed(row, "identity")?,
        is_operator: row.get("is_operator")?,
        created_at: column::moment(row, "created_at")?,
    })
}

/// A key whose holder cannot be read is no key: read as null it would be the operator's.
fn key(row: &Row<'_>) -> sql::Result<Option<KeyRow>> {
    let id = column::id(row, "id")?;
    let identity = match row.get_ref("identity")? {
        ValueRef::Null => None,
        ValueRef::Text(text) => match std::str::from_utf8(text).map(Identity::parse) {
            Ok(Ok(identity)) => Some(identity),
            _ => return Ok(unreadable(id)),
        },
        _ => return Ok(unreadable(id)),
    };
    Ok(Some(KeyRow {
        id,
        identity,
        key_sha256: row.get("key_sha256")?,
        prefix: row.get("prefix")?,
        created_at: column::moment(row, "created_at")?,
        revoked_at: column::opt_moment(row, "revoked_at")?,
        browser: row.get("browser")?,
        expires_at: column::opt_moment(row, "expires_at")?,
    }))
}

fn unreadable(id: Uuid) -> Option<KeyRow> {
    tracing::warn!(key = %id, "The identity of this key cannot be read: it opens nothing");
    None
}

fn operators_name(name: &Identity) -> Problem {
    Problem::new(
        Code::Conflict,
        format!("{name} is the operator's name"),
        "give the agent another identity, or change `operator` in config.toml and restart",
    )
}
