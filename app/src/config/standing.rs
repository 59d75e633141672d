//! Which store a server of this home is to stand on, and which one it stood on last.

use super::{Env, ServerConfig};
use crate::home::Home;
use crate::store::moving::Place;
use anyhow::Result;
use prism_core::launch::{OWN_FILE, choose_store};
use prism_core::{Code, Problem};
use serde::{Deserialize, Serialize};

/// `store.json`: where this home's rows are, without who comes in and with which password. A shell that lacks
/// the database's URL starts nothing else in its place.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// `sqlite:` is the file in the home.
    pub store: String,
}

impl Standing {
    const NAME: &str = "store.json";

    /// None where no server of a version that remembers has run yet; what cannot be read is not none.
    pub fn load(home: &Home) -> Result<Option<Self>, Problem> {
        if home.file_id(Self::NAME).is_none() {
            return Ok(None);
        }
        let text = home.read(Self::NAME);
        let read: Option<Self> = text.and_then(|text| serde_json::from_str(&text).ok());
        let is_one = |said: &Self| said.store == OWN_FILE || said.store.starts_with("postgres://");
        match read.filter(is_one) {
            Some(standing) => Ok(Some(standing)),
            None => Err(Problem::new(
                Code::InvalidRequest,
                format!(
                    "{} should say which store this home has, and cannot be read",
                    home.path(Self::NAME).display()
                ),
                format!(
                    "name the store once: `--database URL`, or `--database {OWN_FILE}` for the file in this home; \
                     or remove {}, if the rows are in that file",
                    Self::NAME
                ),
            )),
        }
    }

    /// The place that a URL names, or the file.
    pub fn of(database: Option<&str>) -> Result<Self, Problem> {
        let store = match database {
            None => OWN_FILE.to_owned(),
            Some(url) => Place::server(url)?.shown(),
        };
        Ok(Self { store })
    }

    pub fn remember(&self, home: &Home) -> Result<()> {
        if Self::load(home).is_ok_and(|last| last.as_ref() == Some(self)) {
            return Ok(());
        }
        let text = serde_json::to_string_pretty(self)?;
        home.write(Self::NAME, text.as_bytes())
    }
}

/// What a server is told of its store by its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    pub database: Option<String>,
    pub redis: Option<String>,
}

impl Told {
    pub const DATABASE: &str = "PRISM_DATABASE";
    pub const REDIS: &str = "PRISM_REDIS";

    /// What a server makes of it: its database, none being the file in its home, and its Redis.
    pub fn store(
        &self,
        config: &ServerConfig,
        home: &Home,
    ) -> Result<(Option<String>, Option<String>), Problem> {
        let env = Env {
            database: self.database.clone(),
            redis: self.redis.clone(),
            ..Env::default()
        };
        let redis = redis(None, &env, config)?;
        let database = database(None, &env, config, home)?;
        if redis.is_some() && database.is_none() {
            return Err(Self::redis_alone());
        }
        Ok((database, redis))
    }

    pub fn redis_alone() -> Problem {
        Problem::new(
            Code::InvalidRequest,
            "a Redis tells servers that share a database of each other, and this one is alone with its file",
            "name the database (--database), or leave out the Redis",
        )
    }
}

/// The database that a server is to stand on; none is the file in its home.
pub fn database(
    argument: Option<&str>,
    env: &Env,
    config: &ServerConfig,
    home: &Home,
) -> Result<Option<String>, Problem> {
    let named = [
        ("--database", argument),
        ("PRISM_DATABASE", env.database.as_deref()),
        (
            "`database` under [server] in config.toml",
            config.database.as_deref(),
        ),
    ];
    let last = match named.iter().any(|(_, said)| said.is_some()) {
        true => None,
        false => Standing::load(home)?.map(|standing| standing.store),
    };
    choose_store(&named, last.as_deref())
}

/// The Redis that tells servers of each other.
pub fn redis(
    argument: Option<&str>,
    env: &Env,
    config: &ServerConfig,
) -> Result<Option<String>, Problem> {
    let named = [
        ("--redis", argument),
        ("PRISM_REDIS", env.redis.as_deref()),
        (
            "`redis` under [server] in config.toml",
            config.redis.as_deref(),
        ),
    ];
    let said = named
        .iter()
        .find_map(|(place, said)| Some((place, (*said)?)));
    match said {
        Some((place, url)) if url.trim().is_empty() => Err(Problem::new(
            Code::InvalidRequest,
            format!("{place} is there and empty"),
            "give it the URL of the Redis, or take it away: without one PostgreSQL's NOTIFY carries word",
        )),
        said => Ok(said.map(|(_, url)| url.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_home_remembers_its_store_without_the_password_and_starts_no_other_in_silence() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let url = "postgres://me:s3cret@db.example:5433/prism?sslmode=require";
        let with = |database: Option<&str>| {
            let env = Env {
                database: database.map(str::to_owned),
                ..Env::default()
            };
            super::database(None, &env, &ServerConfig::default(), &home)
        };
        assert_eq!(with(None), Ok(None));
        assert_eq!(with(Some(url)), Ok(Some(url.into())));
        Standing::of(Some(url)).unwrap().remember(&home).unwrap();
        let kept = home.read(Standing::NAME).unwrap();
        assert!(kept.contains("postgres://db.example:5433/prism"), "{kept}");
        assert!(!kept.contains("s3cret"), "{kept}");
        let refused = with(None).unwrap_err();
        assert!(refused.message.contains("db.example:5433/prism"));
        assert!(with(Some(" ")).is_err());
        assert_eq!(with(Some(url)), Ok(Some(url.into())));
        assert_eq!(with(Some(OWN_FILE)), Ok(None));
        Standing::of(None).unwrap().remember(&home).unwrap();
        assert_eq!(with(None), Ok(None));
        for damaged in ["", "{", r#"{"store":""}"#, r#"{"store":"harbour"}"#, "[]"] {
            home.write(Standing::NAME, damaged.as_bytes()).unwrap();
            let refused = with(None).unwrap_err();
            let says = home.path(Standing::NAME).display().to_string();
            assert!(refused.message.contains(&says), "{damaged}: {refused:?}");
            assert!(refused.hint.contains("--database sqlite:"), "{refused:?}");
            assert_eq!(with(Some(url)), Ok(Some(url.into())));
            Standing::of(None).unwrap().remember(&home).unwrap();
            assert_eq!(with(None), Ok(None));
        }
        std::fs::remove_file(home.path(Standing::NAME)).unwrap();
        assert_eq!(with(None), Ok(None));
    }

    #[test]
    fn an_empty_redis_is_no_redis_and_said() {
        let with = |redis: Option<&str>| {
            let env = Env {
                redis: redis.map(str::to_owned),
                ..Env::default()
            };
            super::redis(None, &env, &ServerConfig::default())
        };
        assert_eq!(with(None), Ok(None));
        assert_eq!(with(Some("redis://h")), Ok(Some("redis://h".into())));
        let said = with(Some("")).unwrap_err();
        assert!(said.message.contains("PRISM_REDIS"), "{}", said.message);
    }
}
