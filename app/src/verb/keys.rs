//! Personas and keys: the operator's side of who is who.

use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::Persona;
use prism_core::api::close;
use prism_core::id::Quoted;
use prism_core::{Code, Identity, Problem, api};

pub async fn add_persona(
    prism: &Prism,
    caller: &Caller,
    request: api::PersonaAdd,
) -> Result<api::PersonaAdded, Problem> {
    let (persona, created) = ensure_persona(prism, caller, &request.identity).await?;
    Ok(api::PersonaAdded {
        identity: persona.identity.to_string(),
        pid: caller.project.pid.to_string(),
        created,
    })
}

async fn ensure_persona(
    prism: &Prism,
    caller: &Caller,
    identity: &str,
) -> Result<(Persona, bool), Problem> {
    let (persona, created) = prism
        .ensure_persona(&caller.project, &Identity::parse(identity.trim())?)
        .await?;
    if persona.is_operator {
        let message = format!("{} is the operator's name", persona.identity);
        return Err(Problem::new(
            Code::Conflict,
            message,
            "give the agent another identity, or change `operator` in config.toml before the project is first used",
        ));
    }
    Ok((persona, created))
}

pub async fn mint(
    prism: &Prism,
    caller: &Caller,
    request: api::KeyMint,
) -> Result<api::KeyMinted, Problem> {
    let (persona, _) = ensure_persona(prism, caller, &request.identity).await?;
    let key =
        clock::new_key().map_err(|e| Problem::new(Code::Internal, e.to_string(), "try again"))?;
    let row = prism.know_key(&key, Some(persona.identity.clone())).await?;
    Ok(api::KeyMinted {
        identity: persona.identity.to_string(),
        pid: caller.project.pid.to_string(),
        key_id: row.id,
        key,
    })
}

pub async fn list(prism: &Prism, _: &Caller, _: api::Nothing) -> Result<api::Keys, Problem> {
    let keys = prism.directory.keys().into_iter().map(|k| api::KeyView {
        key_id: k.id,
        prefix: k.prefix,
        operator: k.identity.is_none(),
        identity: k
            .identity
            .map_or_else(|| prism.operator.to_string(), |i| i.to_string()),
        created_at: k.created_at,
        revoked_at: k.revoked_at,
    });
    Ok(api::Keys {
        keys: keys.collect(),
    })
}

pub async fn revoke(
    prism: &Prism,
    _: &Caller,
    request: api::KeyRevoke,
) -> Result<api::Ok, Problem> {
    let quoted = Quoted::parse("key_id", &request.key_id)?;
    let keys = prism.directory.keys();
    let mut found = keys
        .iter()
        .filter(|k| k.id.to_string().starts_with(quoted.prefix()));
    let key = match (found.next(), found.next()) {
        (Some(key), None) => key,
        (None, _) => {
            return Err(Problem::new(
                Code::NotFound,
                format!("no key {}", request.key_id),
                "`prism key list` shows ids",
            ));
        }
        _ => {
            return Err(Problem::new(
                Code::Ambiguous,
                format!("{} begins more than one key's id", request.key_id),
                "quote more digits",
            ));
        }
    };
    let last_operator_key = key.identity.is_none()
        && keys
            .iter()
            .filter(|k| k.identity.is_none() && k.revoked_at.is_none())
            .count()
            == 1;
    if last_operator_key {
        return Err(Problem::new(
            Code::Conflict,
            "this is the operator's only key",
            "write another into config.toml and restart the server first",
        ));
    }
    let now = clock::now();
    prism.store.revoke_key(key.id, now).await?;
    prism.directory.revoke_key(key.id, now);
    // A revoked key must not go on listening.
    if let Some(identity) = &key.identity {
        let still = prism
            .directory
            .keys()
            .iter()
            .any(|k| k.identity.as_ref() == Some(identity) && k.revoked_at.is_none());
        if !still {
            for project in prism.directory.projects() {
                if let Some(persona) = prism.directory.persona(project.id, identity.as_str()) {
                    prism
                        .hub
                        .close_persona(persona.id, close::RELEASED, "its key was revoked");
                }
            }
        }
    }
    Ok(api::Ok { ok: true })
}
