//! Which store a server of this home is to stand on, and which one it stood on last.

use super::{Config, Env, ServerConfig, ServerFile};
use crate::home::Home;
use crate::log::file as log_file;
use crate::server::DATABASE;
use crate::store::moving::Place;
use anyhow::Result;
use prism_core::launch::{Named, OWN_FILE, choose_store, stood_on};
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

    /// The store this home had, by what servers of versions that did not remember left behind.
    fn of_earlier(home: &Home) -> Result<Option<String>, Problem> {
        let log = log_file::last_lines(home, usize::MAX).unwrap_or_default();
        if let Some(place) = stood_on(log.iter().map(String::as_str)) {
            return Ok(Some(format!("postgres://{place}")));
        }
        // A server that listens keeps the operator's line, and one that stands on a file had made that before.
        let operator = Config::load(home).ok().flatten().map(|c| c.operator);
        let line = operator.map(|name| format!("signals-{name}.lock"));
        let has_run = [Some(ServerFile::LOCK.to_owned()), line]
            .into_iter()
            .all(|name| name.is_some_and(|name| home.file_id(&name).is_some()));
        let runs = home.holder(ServerFile::LOCK).is_some();
        if !has_run || runs || home.file_id(DATABASE).is_some() {
            return Ok(None);
        }
        Err(Problem::new(
            Code::InvalidRequest,
            format!(
                "a server has run in {} and left no {DATABASE}: its rows are in a PostgreSQL that nothing here names, \
                 or that file is gone",
                home.dir().display()
            ),
            format!(
                "set PRISM_DATABASE to the URL of the database, or put `database = \"URL\"` under [server] in \
                 config.toml; to begin with an empty file, say `--database {OWN_FILE}` once"
            ),
        ))
    }

    /// What is named for the servers of this home, where the one that runs stands on another: that first.
    pub fn otherwise(
        argument: Option<&str>,
        env: &Env,
        config: &ServerConfig,
        home: &Home,
    ) -> Option<(Self, Self)> {
        let stands = Self::load(home).ok().flatten()?;
        let named = choose_store(&named(argument, env, config), Some(&stands.store)).ok()?;
        let named = Self::of(named.as_deref()).ok()?;
        (named != stands).then_some((stands, named))
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
    let named = named(argument, env, config);
    let last = match named.iter().any(|(_, said)| said.is_some()) {
        true => None,
        false => match Standing::load(home)? {
            Some(standing) => Some(standing.store),
            None => Standing::of_earlier(home)?,
        },
    };
    choose_store(&named, last.as_deref())
}

/// Where a database may be named, the first that counts first.
fn named<'a>(argument: Option<&'a str>, env: &'a Env, config: &'a ServerConfig) -> [Named<'a>; 3] {
    [
        ("--database", argument),
        (Told::DATABASE, env.database.as_deref()),
        (
            "`database` under [server] in config.toml",
            config.database.as_deref(),
        ),
    ]
}

/// The Redis that tells servers of each other.
pub fn redis(
    argument: Option<&str>,
    env: &Env,
    config: &ServerConfig,
) -> Result<Option<String>, Problem> {
    let named = [
        ("--redis", argument),
        (Told::REDIS, env.redis.as_deref()),
        (
            "`redis` under [server] in config.toml",
            config.redis.as_deref(),
        ),
    ];
    let said = named
        .iter()
        .find_map(|(place, said)| Some((place, (*said)?.trim())));
    match said {
        Some((place, "")) => Err(Problem::new(
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
        // As it comes from a file.
        for said in [url, &format!("{url}\n"), &format!(" \t{url}\r\n")] {
            assert_eq!(with(Some(said)), Ok(Some(url.into())));
        }
        assert_eq!(with(Some("sqlite:\n")), Ok(None));
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
        // Nor is one that nobody lets us read: a folder in its place, or, for whom modes count, a mode of 0.
        home.remove(Standing::NAME);
        std::fs::create_dir(home.path(Standing::NAME)).unwrap();
        assert!(with(None).is_err());
        std::fs::remove_dir(home.path(Standing::NAME)).unwrap();
        Standing::of(None).unwrap().remember(&home).unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o0);
        std::fs::set_permissions(home.path(Standing::NAME), closed).unwrap();
        let opens = std::fs::read(home.path(Standing::NAME)).is_ok();
        assert_eq!(with(None).is_ok(), opens);
        assert_eq!(with(Some(url)), Ok(Some(url.into())));
        Standing::of(Some(url)).unwrap().remember(&home).unwrap();
        assert!(with(None).unwrap_err().message.contains("db.example"));
        home.remove(Standing::NAME);
        assert_eq!(with(None), Ok(None));
    }

    #[test]
    fn a_home_of_a_version_that_did_not_remember_begins_with_no_empty_file_in_place_of_a_database()
    {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.create().unwrap();
        home.folder(log_file::FOLDER).unwrap();
        let env = Env::default();
        let store = || super::database(None, &env, &ServerConfig::default(), &home);
        let config = b"operator = \"maria\"\napi_key = \"prk_x\"\n";
        home.write("config.toml", config).unwrap();
        home.write(ServerFile::LOCK, b"17").unwrap();
        // One that could not begin, whatever it was told.
        assert_eq!(store(), Ok(None));
        home.write("signals-maria.lock", b"").unwrap();
        let said = store().unwrap_err();
        assert!(said.message.contains("left no prism.db"), "{said:?}");
        assert!(said.hint.contains("--database sqlite:"), "{said:?}");
        home.write(DATABASE, b"").unwrap();
        assert_eq!(store(), Ok(None));
        let log = "  INFO The database is PostgreSQL 16.4, schema 22 database=me@db.example:5433/prism\n  INFO Prism 0.2.0 is listening url=x\n";
        home.write(log_file::NAME, log.as_bytes()).unwrap();
        let said = store().unwrap_err();
        let place = "are in postgres://db.example:5433/prism";
        assert!(said.message.contains(place), "{said:?}");
        assert!(!said.message.contains("me@"), "{said:?}");
        // A word of this version counts more than any trace.
        Standing::of(None).unwrap().remember(&home).unwrap();
        assert_eq!(store(), Ok(None));
    }

    #[test]
    fn a_database_that_is_named_while_the_server_stands_on_another_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let (one, two) = ("postgres://me:x@one:1/prism", "postgres://me:x@two:2/prism");
        let env = |database: Option<&str>| Env {
            database: database.map(str::to_owned),
            ..Env::default()
        };
        let config = |database: Option<&str>| ServerConfig {
            database: database.map(str::to_owned),
            ..ServerConfig::default()
        };
        let told = |e: Option<&str>, c: Option<&str>| {
            let told = Standing::otherwise(None, &env(e), &config(c), &home);
            told.map(|(stands, named)| (stands.store, named.store))
        };
        assert_eq!(told(None, Some(two)), None);
        Standing::of(Some(one)).unwrap().remember(&home).unwrap();
        let differs = |named: &str| Some(("postgres://one:1/prism".into(), named.into()));
        assert_eq!(told(None, None), None);
        assert_eq!(told(None, Some(one)), None);
        assert_eq!(told(None, Some(two)), differs("postgres://two:2/prism"));
        assert_eq!(
            told(Some(two), Some(one)),
            differs("postgres://two:2/prism")
        );
        assert_eq!(told(Some(one), Some(two)), None);
        assert_eq!(told(Some(OWN_FILE), None), differs(OWN_FILE));
        assert_eq!(told(Some(""), None), None);
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
        for said in ["redis://h", "redis://h\n", "  redis://h \r\n"] {
            assert_eq!(with(Some(said)), Ok(Some("redis://h".into())));
        }
        let said = with(Some("")).unwrap_err();
        assert!(said.message.contains("PRISM_REDIS"), "{}", said.message);
    }
}
