//! Personas and keys: the operator's side of who is who.

use crate::clock;
use crate::prism::{Caller, Prism};
use prism_core::api::close;
use prism_core::id::Quoted;
use prism_core::{Code, Identity, Problem, api};

pub async fn add_persona(
    prism: &Prism,
    caller: &Caller,
    request: api::PersonaAdd,
) -> Result<api::PersonaAdded, Problem> {
    let identity = Identity::parse(request.identity.trim())?;
    let (persona, created) = prism.ensure_persona(&caller.project, &identity).await?;
    Ok(api::PersonaAdded {
        identity: persona.identity.to_string(),
        pid: caller.project.pid.to_string(),
        created,
    })
}

pub async fn mint(
    prism: &Prism,
    caller: &Caller,
    request: api::KeyMint,
) -> Result<api::KeyMinted, Problem> {
    let identity = Identity::parse(request.identity.trim())?;
    let (persona, _) = prism.ensure_persona(&caller.project, &identity).await?;
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
        browser: None,
        expires_at: None,
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
    if key.revoked_at.is_some() {
        return Ok(api::Ok { ok: true });
    }
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
    // Shut first, then written down: whatever happens in between, the key opens nothing.
    let now = clock::now();
    prism.directory.set_revoked(key.id, Some(now));
    if let Err(error) = prism.store.revoke_key(key.id, now).await {
        prism.directory.set_revoked(key.id, None);
        return Err(error.into());
    }
    // Once more: what was read from the store before this was written may have come in between.
    prism.directory.set_revoked(key.id, Some(now));
    prism
        .hub
        .close_key(key.id, close::RELEASED, "its key was revoked");
    Ok(api::Ok { ok: true })
}
