//! The databases of a run: made for it, filled by moving a file into them, dropped at its end.

use super::super::signals::fsync_samples;
use super::super::{Server, ms, percentile};
use super::cores;
use crate::clock;
use crate::home::Home;
use crate::store::moving::{self, Place};
use crate::store::sql;
use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Instant;

/// A user without rights beyond its own database, as servers have it: row-level security counts for it.
const MEMBER: &str = "prism_bench_member";

/// The PostgreSQL and the Redis of a run.
pub struct Engines {
    url: String,
    pub redis: Option<String>,
    facts: Vec<(&'static str, String)>,
}

/// What durability costs here, whoever asks for it.
pub struct Floor {
    pub flush_ms: f64,
    pub commit_ms: f64,
}

/// Asks the database on a thread of its own.
async fn ask<T: Send + 'static>(
    url: &str,
    ask: impl FnOnce(&sql::Link) -> sql::Result<T> + Send + 'static,
) -> Result<T> {
    let server = sql::Server::parse(url)?;
    let asked = tokio::task::spawn_blocking(move || {
        let link = server.connect()?;
        ask(&link)
    });
    Ok(asked.await??)
}

async fn run(url: &str, statement: String) -> Result<()> {
    let what = statement.clone();
    let ran = ask(url, move |link| link.batch(&statement)).await;
    ran.with_context(|| what)
}

impl Engines {
    pub async fn at(url: String, redis: Option<String>) -> Result<Self> {
        if !url.contains("://") {
            bail!("--database takes a URL: postgres://user@host:5432/postgres");
        }
        const ASKED: [(&str, &str); 7] = [
            ("postgres", "current_setting('server_version')"),
            ("fsync", "current_setting('fsync')"),
            (
                "synchronous_commit",
                "current_setting('synchronous_commit')",
            ),
            ("shared_buffers", "current_setting('shared_buffers')"),
            ("max_connections", "current_setting('max_connections')"),
            (
                "pgvector",
                "coalesce((select default_version from pg_available_extensions where name = 'vector'), 'none')",
            ),
            (
                "superuser",
                "cast((select rolsuper from pg_roles where rolname = current_user) as text)",
            ),
        ];
        let facts = ask(&url, |link| {
            let columns = ASKED.map(|(_, what)| what).join(", ");
            let rows = link.query(&format!("select {columns}"), &[])?;
            let row = rows.first().ok_or(sql::Error::NoRows)?;
            Ok((0..ASKED.len())
                .map(|at| (ASKED[at].0, row.get::<_, String>(at)))
                .collect())
        });
        let facts = facts.await.context("the PostgreSQL of this run")?;
        Ok(Self { url, redis, facts })
    }

    fn fact(&self, name: &str) -> &str {
        let known = self.facts.iter().find(|(known, _)| *known == name);
        known.map_or("", |(_, value)| value)
    }

    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.fact("fsync") == "off" {
            warnings.push(
                "this PostgreSQL does not flush (fsync = off): figures of writes mean nothing"
                    .into(),
            );
        }
        if self.fact("pgvector") == "none" {
            warnings
                .push("this PostgreSQL has no pgvector: meaning is found by the exact scan".into());
        }
        warnings
    }

    /// Where all this was measured.
    pub fn machine(&self) -> Map<String, Value> {
        let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu
            .lines()
            .find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let mut machine = Map::new();
        machine.insert("cores".into(), json!(cores()));
        machine.insert("cpu".into(), json!(cpu.unwrap_or("unknown")));
        machine.insert("load_at_the_end".into(), json!(load.trim()));
        let facts = self.facts.iter();
        machine.extend(facts.map(|(name, value)| ((*name).to_owned(), json!(value))));
        machine.insert(
            "carried_by".into(),
            json!(if self.redis.is_some() {
                "redis"
            } else {
                "pg_notify"
            }),
        );
        machine
    }

    /// A flush of the disk, and a commit of one row with nothing around it.
    pub async fn floor(&self, n: usize) -> Result<Floor> {
        let mut flushes = tokio::task::spawn_blocking(move || fsync_samples(n)).await??;
        let database = self.database().await?;
        let mut commits = ask(&database.url, move |link| {
            link.batch("create table bare (id bigint primary key, body text)")?;
            let body = "x".repeat(300);
            let mut samples = Vec::with_capacity(n);
            for id in 0..n as i64 + 10 {
                let started = Instant::now();
                link.execute("insert into bare (id, body) values (?, ?)", &[&id, &body])?;
                samples.push(ms(started));
            }
            Ok(samples.split_off(10))
        })
        .await?;
        Ok(Floor {
            flush_ms: percentile(&mut flushes, 0.5),
            commit_ms: percentile(&mut commits, 0.5),
        })
    }

    /// A fresh database of whoever runs this.
    pub async fn database(&self) -> Result<Database> {
        self.made(None).await
    }

    /// A fresh database that belongs to a user for whom row-level security counts; none where no user can
    /// be made.
    pub async fn members_database(&self) -> Result<Option<Database>> {
        if self.fact("superuser") != "true" {
            return Ok(None);
        }
        let word = clock::new_id().simple().to_string();
        run(&self.url, format!(
            "do $$ begin create role {MEMBER} login; exception when duplicate_object then null; end $$;
             alter role {MEMBER} login nosuperuser nobypassrls nocreatedb password '{word}'"
        ))
        .await?;
        Ok(Some(self.made(Some((MEMBER, &word))).await?))
    }

    async fn made(&self, owner: Option<(&str, &str)>) -> Result<Database> {
        let name = format!("prism_bench_{}", clock::new_id().simple());
        let of = owner
            .map(|(owner, _)| format!(" owner {owner}"))
            .unwrap_or_default();
        run(&self.url, format!("create database {name}{of}")).await?;
        let (before, _) = self.url.rsplit_once('/').unwrap_or((&self.url, ""));
        let admin = format!("{before}/{name}");
        let url = match owner {
            None => admin.clone(),
            Some((user, word)) => {
                let (_, place) = admin.split_once("://").ok_or_else(|| anyhow!("no URL"))?;
                let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
                format!("postgres://{user}:{word}@{place}")
            }
        };
        let database = Database {
            url,
            admin,
            server: self.url.clone(),
            name,
        };
        if self.fact("pgvector") != "none" {
            let made = run(
                &database.admin,
                "create extension if not exists vector".into(),
            )
            .await;
            made.context("pgvector is installed, and only a superuser may take it up")?;
        }
        Ok(database)
    }

    /// A home whose server stands on this database; not started.
    pub fn server(&self, database: &Database, operator: &str) -> Result<Server> {
        let server = Server::of_operator(operator, None)?.with_env("PRISM_DATABASE", &database.url);
        Ok(match &self.redis {
            Some(redis) => server.with_env("PRISM_REDIS", redis),
            None => server,
        })
    }
}

/// One database of a run.
pub struct Database {
    pub url: String,
    /// The same, by whoever may do everything there.
    admin: String,
    server: String,
    name: String,
}

impl Database {
    /// Fills it with what is in a file.
    pub async fn take_in(&self, file: PathBuf) -> Result<()> {
        let to = Place::server(&self.url)?;
        let from = Place::file(file);
        let moved =
            tokio::task::spawn_blocking(move || moving::run(&from, &to, None, &mut |_, _, _| ()));
        moved.await??;
        Ok(())
    }

    pub async fn bytes(&self) -> Result<f64> {
        let size = ask(&self.admin, |link| {
            let rows = link.query("select pg_database_size(current_database())", &[])?;
            rows.first()
                .map(|row| row.get::<_, i64>(0))
                .ok_or(sql::Error::NoRows)
        });
        Ok(size.await? as f64)
    }

    /// Has it look at its rows, as it does by itself once it is in use: plans made for empty tables are bad ones.
    pub async fn analyze(&self) -> Result<()> {
        run(&self.admin, "analyze".to_owned()).await
    }

    /// The tables on which rows are kept apart by tenant.
    pub async fn secured_tables(&self) -> Result<Vec<String>> {
        ask(&self.admin, |link| {
            let sql = "select cast(oid as regclass)::text from pg_class
                where relrowsecurity and relnamespace = 'public'::regnamespace";
            Ok(link.query(sql, &[])?.iter().map(|row| row.get(0)).collect())
        })
        .await
    }

    /// Leaves all rows to whoever asks: for comparing, and nothing else.
    pub async fn without_security(&self) -> Result<()> {
        for table in self.secured_tables().await? {
            let off = format!(
                "alter table {table} no force row level security; alter table {table} disable row level security"
            );
            run(&self.admin, off).await?;
        }
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // On a thread of its own: whoever drops it may be inside a runtime.
        let dropped = std::thread::spawn(move || {
            if let Ok(link) = sql::Server::parse(&server).and_then(|s| s.connect()) {
                drop(link.batch(&format!("drop database if exists {name} with (force)")));
            }
        });
        drop(dropped.join());
    }
}

/// Lets a home's server use the models of another.
pub fn lend_models(from: &Home, to: &Server) -> Result<()> {
    let models = to.home.path("models");
    if !models.exists() {
        let lent = std::fs::canonicalize(from.path("models"));
        let lent = lent.context("no embedding model is installed: `prism model install`")?;
        std::os::unix::fs::symlink(lent, &models)?;
    }
    Ok(())
}
