//! Personas and keys: the operator's side of who is who.

use crate::clock;
use crate::prism::{Caller, Prism};
use crate::store::KeyRow;
use prism_core::api::close;
use prism_core::bus::News;
use prism_core::id::Quoted;
use prism_core::{Code, Identity, Problem, api};
use uuid::Uuid;

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
    let key = prism.new_key()?;
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
        browser: k.browser,
        expires_at: k.expires_at,
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
    let opens_everything =
        |k: &KeyRow| k.identity.is_none() && k.browser.is_none() && k.revoked_at.is_none();
    let last_operator_key =
        opens_everything(key) && keys.iter().filter(|k| opens_everything(k)).count() == 1;
    if last_operator_key {
        return Err(Problem::new(
            Code::Conflict,
            "this is the operator's only key",
            "write another into config.toml and restart the server first",
        ));
    }
    shut(prism, key.id).await?;
    Ok(api::Ok { ok: true })
}

/// Revokes a key, and ends what was opened with it.
pub async fn shut(prism: &Prism, key: Uuid) -> Result<(), Problem> {
    // Shut first, then written down: whatever happens in between, the key opens nothing.
    let now = clock::now();
    prism.directory.set_revoked(key, Some(now));
    if let Err(error) = prism.store.revoke_key(key, now).await {
        prism.directory.set_revoked(key, None);
        return Err(error.into());
    }
    // Once more: what was read from the store before this was written may have come in between.
    prism.directory.set_revoked(key, Some(now));
    let opened = prism.hub.sessions_of_key(key);
    prism
        .hub
        .close_key(key, close::RELEASED, close::KEY_REVOKED);
    prism.bus().carrier().say(|| News::Revoked { key });
    release_opened(prism, key, &opened).await
}

/// Ends the sessions that were opened with a key: those of its sockets, and all of its identity where
/// no other key is left to speak for them.
async fn release_opened(prism: &Prism, key: Uuid, opened: &[Uuid]) -> Result<(), Problem> {
    let keys = prism.directory.keys();
    let Some(identity) = keys
        .iter()
        .find(|k| k.id == key)
        .and_then(|k| k.identity.clone())
    else {
        return Ok(());
    };
    let last = !keys
        .iter()
        .any(|k| k.revoked_at.is_none() && k.identity.as_ref() == Some(&identity));
    for session in prism.presence.open_sessions_of(&identity) {
        if last || opened.contains(&session.id) {
            prism.release(&session, "key_revoked").await?;
        }
    }
    Ok(())
}
