//! Tenants, projects, personas and keys.

use super::{Result, Sqlite, column, failed};
use crate::clock;
use crate::store::{KeyRow, Loaded, Persona, Project, StoreError};
use prism_core::{Identity, Moment};
use rusqlite::{Connection, Row, params};
use uuid::Uuid;

pub(super) const OPEN_SESSIONS: &str = "select * from sessions where released_at is null";
/// Kept on the persona: its sessions may have gone.
pub(super) const STARTED: &str = "select id from personas where started_at is not null";

impl Sqlite {
    pub async fn load(&self) -> Result<Loaded> {
        self.write(|c| {
            let tenant_id = the_tenant(c)?;
            let all = |sql: &str| c.prepare(sql).map_err(failed);
            Ok(Loaded {
                tenant_id,
                projects: rows(&mut all("select id, pid from projects")?, project)?,
                personas: rows(&mut all("select * from personas")?, persona)?,
                keys: rows(&mut all("select * from api_keys")?, key)?,
                open_sessions: rows(&mut all(OPEN_SESSIONS)?, super::sessions::session)?,
                started_personas: rows(&mut all(STARTED)?, |r| column::id(r, "id"))?,
            })
        })
        .await
    }

    /// Adds a project with its operator; answers none when it was there already.
    pub async fn add_project(
        &self,
        project: Project,
        operator: Identity,
        now: Moment,
    ) -> Result<Option<Persona>> {
        self.write(move |c| {
            let tenant = the_tenant(c)?;
            let added = c
                .execute(
                    "insert into projects (id, tenant_id, pid, created_at) values (?, ?, ?, ?) on conflict do nothing",
                    params![project.id.to_string(), tenant.to_string(), project.pid.as_str(), now.0],
                )
                .map_err(failed)?;
            if added == 0 {
                return Ok(None);
            }
            let operator = Persona { id: clock::new_id(), project_id: project.id, identity: operator, is_operator: true, created_at: now };
            insert_persona(c, tenant, &operator)?;
            Ok(Some(operator))
        })
        .await
    }

    pub async fn add_persona(&self, persona: Persona) -> Result<()> {
        self.write(move |c| insert_persona(c, the_tenant(c)?, &persona))
            .await
    }

    pub async fn add_key(&self, key: KeyRow) -> Result<()> {
        self.write(move |c| {
            let tenant = the_tenant(c)?;
            c.execute(
                "insert into api_keys (id, tenant_id, identity, key_sha256, prefix, created_at) values (?, ?, ?, ?, ?, ?)",
                params![key.id.to_string(), tenant.to_string(), key.identity.as_ref().map(Identity::as_str), key.key_sha256, key.prefix, key.created_at.0],
            )
            .map_err(failed)?;
            Ok(())
        })
        .await
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

/// The embedded store has one tenant, made on first use.
fn the_tenant(c: &Connection) -> Result<Uuid> {
    let found = c.query_row("select id from tenants limit 1", [], |r| {
        column::id(r, "id")
    });
    match found {
        Err(rusqlite::Error::QueryReturnedNoRows) => {
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

pub(super) fn rows<T>(
    statement: &mut rusqlite::Statement<'_>,
    map: fn(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let rows = statement.query_map([], map).map_err(failed)?;
    rows.collect::<rusqlite::Result<Vec<_>>>()
        .map_err(|e| StoreError::Failed(e.to_string()))
}

fn project(row: &Row<'_>) -> rusqlite::Result<Project> {
    Ok(Project {
        id: column::id(row, "id")?,
        pid: column::parsed(row, "pid")?,
    })
}

fn persona(row: &Row<'_>) -> rusqlite::Result<Persona> {
    Ok(Persona {
        id: column::id(row, "id")?,
        project_id: column::id(row, "project_id")?,
        identity: column::parsed(row, "identity")?,
        is_operator: row.get("is_operator")?,
        created_at: column::moment(row, "created_at")?,
    })
}

fn key(row: &Row<'_>) -> rusqlite::Result<KeyRow> {
    let identity: Option<String> = row.get("identity")?;
    Ok(KeyRow {
        id: column::id(row, "id")?,
        identity: identity.and_then(|i| Identity::parse(&i).ok()),
        key_sha256: row.get("key_sha256")?,
        prefix: row.get("prefix")?,
        created_at: column::moment(row, "created_at")?,
        revoked_at: column::opt_moment(row, "revoked_at")?,
    })
}
