//! Browsers that the operator let in: links for one use, and keys that only a cookie carries.

use super::Prism;
use crate::clock;
use crate::store::KeyRow;
use prism_core::access::PublicUrl;
use prism_core::limits::{BROWSER_DAYS, BROWSERS_MAX, LINK_S};
use prism_core::signal::sha256_hex;
use prism_core::tenant;
use prism_core::{Code, Moment, Problem};
use std::sync::OnceLock;
use uuid::Uuid;

pub struct Browsers {
    /// Browsers keep cookies by host, whatever the port: each store's is called otherwise.
    cookie: String,
    public: Option<PublicUrl>,
    /// Where the server listens, once it does.
    listens: OnceLock<String>,
}

impl Browsers {
    pub fn new(tenant: Uuid, public: Option<PublicUrl>) -> Self {
        let id = tenant.simple().to_string();
        Self {
            cookie: format!("prism_{}", &id[..8]),
            public,
            listens: OnceLock::new(),
        }
    }

    pub fn cookie(&self) -> &str {
        &self.cookie
    }

    pub fn public(&self) -> Option<&PublicUrl> {
        self.public.as_ref()
    }

    /// The path under which the page stands, with a slash at either end.
    pub fn path(&self) -> &str {
        self.public.as_ref().map_or("/", |p| p.path.as_str())
    }

    pub fn secure(&self) -> bool {
        let https = |url: &String| url.starts_with("https:");
        self.public.as_ref().is_some_and(|p| p.secure) || self.listens.get().is_some_and(https)
    }

    pub fn listens_at(&self, url: &str) {
        let _ = self.listens.set(url.to_owned());
    }

    /// The page's address, with a slash at its end.
    pub fn url(&self) -> String {
        match &self.public {
            Some(public) => format!("{}{}", public.origin, public.path),
            None => {
                let listens = self.listens.get().map_or("http://127.0.0.1", |url| url);
                format!("{listens}/")
            }
        }
    }
}

impl Prism {
    /// Makes a link good for one use, at whichever server; answers until when.
    pub async fn add_link(&self, token: &str) -> Result<Moment, Problem> {
        let now = clock::now();
        let until = now.plus_s(LINK_S);
        let link = sha256_hex(token.as_bytes());
        self.store.add_link(link, until, now).await?;
        Ok(until)
    }

    /// Uses a link up; false when it is not good any more.
    pub async fn take_link(&self, token: &str) -> Result<bool, Problem> {
        let link = sha256_hex(token.as_bytes());
        Ok(self.store.take_link(link, clock::now()).await?)
    }

    /// The key of the first of a browser's cookies that is good, charged for one request.
    pub fn authenticate_browser<'a>(
        &self,
        secrets: impl Iterator<Item = &'a str>,
    ) -> Result<KeyRow, Problem> {
        let mut refused = None;
        for secret in secrets {
            match self.browser(secret) {
                Ok(row) => {
                    self.charge_for(&row)?;
                    return Ok(row);
                }
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        Err(refused.unwrap_or_else(|| signed_out("this browser is not signed in")))
    }

    /// The key that a browser's cookie stands for, while it is good.
    pub fn browser(&self, secret: &str) -> Result<KeyRow, Problem> {
        let row = self
            .directory
            .key(&sha256_hex(secret.as_bytes()))
            .filter(|row| row.browser.is_some())
            .ok_or_else(|| signed_out("this browser is not signed in"))?;
        if !self.directory.in_force(&row) {
            let over = signed_out("this browser was signed out");
            return Err(over.with("reason", Problem::REVOKED));
        }
        if row.expires_at.is_some_and(|at| at <= clock::now()) {
            return Err(signed_out("this browser's session has ended"));
        }
        Ok(row)
    }

    /// Makes a key for a browser; only its cookie has it.
    pub async fn know_browser(&self, name: String) -> Result<String, Problem> {
        let secret = self.new_key()?;
        let now = clock::now();
        let row = KeyRow {
            id: clock::new_id(),
            identity: None,
            key_sha256: sha256_hex(secret.as_bytes()),
            prefix: tenant::shown_of(&secret),
            created_at: now,
            revoked_at: None,
            browser: Some(name),
            expires_at: Some(now.plus_s(BROWSER_DAYS * 24 * 3600)),
        };
        let row = self.store.add_key(row).await?;
        if let Some(row) = row {
            self.directory.add_key(row);
            self.bus().directory_changed();
        }
        for oldest in beyond_room(&self.directory.keys(), now) {
            crate::verb::keys::shut(self, oldest).await?;
        }
        Ok(secret)
    }
}

fn signed_out(why: &str) -> Problem {
    let hint = "sign in again: `prism dashboard` opens the page";
    Problem::new(Code::InvalidKey, why, hint)
}

/// The browsers that have to give way, so that no more are signed in than may be.
fn beyond_room(keys: &[KeyRow], now: Moment) -> Vec<Uuid> {
    let good = |k: &&KeyRow| {
        k.browser.is_some() && k.revoked_at.is_none() && k.expires_at.is_some_and(|at| at > now)
    };
    let mut signed_in: Vec<&KeyRow> = keys.iter().filter(good).collect();
    signed_in.sort_by_key(|k| k.created_at);
    let beyond = signed_in.len().saturating_sub(BROWSERS_MAX);
    signed_in.iter().take(beyond).map(|k| k.id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_browsers_the_first_give_way_and_no_other_key() {
        let key = |n: u128, browser: Option<&str>| KeyRow {
            id: Uuid::from_u128(n),
            identity: None,
            key_sha256: n.to_string(),
            prefix: String::new(),
            created_at: Moment(n as i64),
            revoked_at: None,
            browser: browser.map(str::to_owned),
            expires_at: browser.map(|_| Moment(1_000)),
        };
        let mut keys: Vec<KeyRow> = (10..10 + BROWSERS_MAX as u128)
            .map(|n| key(n, Some("one")))
            .collect();
        keys.push(key(1, None));
        assert!(beyond_room(&keys, Moment(500)).is_empty());
        keys.insert(0, key(99, Some("the newest")));
        assert_eq!(beyond_room(&keys, Moment(500)), [Uuid::from_u128(10)]);
        // One that has ended, or was signed out, takes no room.
        keys[5].revoked_at = Some(Moment(400));
        assert!(beyond_room(&keys, Moment(500)).is_empty());
    }
}
