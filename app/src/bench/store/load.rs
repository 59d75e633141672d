//! Many at once: durable sends and drains on both engines, and one server against two.

use super::super::signals::{durable, throughput};
use super::super::{PID, Server, ms, percentile};
use super::databases::{Database, Engines, Floor};
use super::{Cores, Figures, Limit, Sizes, cores};
use crate::client::Client;
use crate::clock;
use anyhow::{Result, ensure};
use futures_util::future;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::time::Instant;

/// What a durable send may take over one commit of PostgreSQL.
const OVER_A_COMMIT_MS: f64 = 1.5;
/// How much more two servers do than one, where cores are left for the database.
const TWO_SERVERS_TIMES: f64 = 1.6;
/// Sends that do not count.
const FIRST_SENDS: usize = 600;
/// How many are drained by each reader.
const DRAINS_EACH: usize = 10;
const READERS: usize = 64;

/// A server of each engine, each on a store of its own. The database outlives its server.
async fn fresh(engines: &Engines) -> Result<(Server, Database, Server)> {
    let database = engines.database().await?;
    let shared = engines.server(&database, "operator")?.resume()?;
    Ok((Server::start()?, database, shared))
}

/// Some sends before those that count, and a look of the database at what they left.
async fn in_use(database: &Database, servers: &[Server], senders: usize) -> Result<()> {
    durable(servers, senders, FIRST_SENDS).await?;
    database.analyze().await
}

pub async fn sends(
    engines: &Engines,
    sizes: &Sizes,
    floor: &Floor,
    figures: &mut Figures,
) -> Result<()> {
    for &senders in &sizes.senders {
        let n = if senders == 1 {
            sizes.sends / 4
        } else {
            sizes.sends
        };
        let (embedded, database, shared) = fresh(engines).await?;
        let sqlite = durable(&[embedded], senders, n).await?;
        let shared = [shared];
        in_use(&database, &shared, senders).await?;
        let before = database_cpu_us();
        let postgres = durable(&shared, senders, n).await?;
        let database_us = database_cpu_since(&before) / n as f64;
        drop(shared);
        let figure = figures.add(
            format!("durable sends, {senders} senders"),
            "/s",
            Some(sqlite.per_s),
            Some(postgres.per_s),
        );
        figure.more = vec![
            ("with receipts, SQLite", sqlite.with_receipts),
            ("PostgreSQL", postgres.with_receipts),
        ];
        let figure = figures.add(
            format!("send p50, {senders} senders"),
            "ms",
            Some(sqlite.p50_ms),
            Some(postgres.p50_ms),
        );
        if senders == 1 {
            figure.limit = Some(Limit::AtMost(floor.commit_ms + OVER_A_COMMIT_MS));
        }
        figure.more = vec![
            ("p99 SQLite", sqlite.p99_ms),
            ("PostgreSQL", postgres.p99_ms),
        ];
        let figure = figures.add(
            format!("server's CPU a send, {senders} senders"),
            "us",
            Some(sqlite.cpu_us),
            Some(postgres.cpu_us),
        );
        figure.more = vec![("the database's", database_us)];
    }
    let readers = sizes
        .senders
        .iter()
        .copied()
        .max()
        .unwrap_or(1)
        .min(READERS);
    let (embedded, _database, shared) = fresh(engines).await?;
    let sqlite = drains(&embedded, readers).await?;
    let postgres = drains(&shared, readers).await?;
    figures.add(
        format!("drains (lease and confirm), {readers} readers"),
        "/s",
        Some(sqlite.0),
        Some(postgres.0),
    );
    figures.add(
        format!("drain p50, {readers} readers"),
        "ms",
        Some(sqlite.1),
        Some(postgres.1),
    );
    let (embedded, _database, shared) = fresh(engines).await?;
    let n = sizes.sends / 4;
    let sqlite = notes(&embedded, readers, n).await?;
    let before = database_cpu_us();
    let postgres = notes(&shared, readers, n).await?;
    let database_us = database_cpu_since(&before) / n as f64;
    // What is alone with everything: its rate is what one database takes of writes of memory.
    figures.add(
        format!("notes, {readers} writers"),
        "/s",
        Some(sqlite.0),
        Some(postgres.0),
    );
    let figure = figures.add(
        "server's CPU a note",
        "us",
        Some(sqlite.1),
        Some(postgres.1),
    );
    figure.more = vec![("the database's", database_us)];
    Ok(())
}

/// Notes by many at once: how many a second, and the server's CPU for each.
async fn notes(server: &Server, writers: usize, n: usize) -> Result<(f64, f64)> {
    let (writer, _) = server.session("Writer").await?;
    let cpu = server.cpu_us()?;
    let per_s = throughput(writers, n, |i| {
        let (writer, text) = (&writer, format!("the ring of {i} holds fifty"));
        async move {
            Ok(writer
                .call(PID, "note", json!({"text": text}))
                .await
                .map(drop)?)
        }
    })
    .await?;
    Ok((per_s, (server.cpu_us()? - cpu) / n as f64))
}

/// What each process of PostgreSQL on this machine has used of the CPU so far.
fn database_cpu_us() -> HashMap<OsString, f64> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let used = processes.filter_map(|process| {
        let stat = std::fs::read_to_string(process.path().join("stat")).ok()?;
        let (who, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
        let is_ours = who.ends_with("(postgres");
        is_ours.then(|| Some((process.file_name(), (ticks(11)? + ticks(12)?) * 10_000.0)))?
    });
    used.collect()
}

/// What they have used since; those that ended meanwhile are not known.
fn database_cpu_since(before: &HashMap<OsString, f64>) -> f64 {
    let now = database_cpu_us().into_iter();
    now.map(|(process, used)| used - before.get(&process).copied().unwrap_or_default())
        .sum()
}

fn signal(to: &str) -> Value {
    json!({"to": to, "signal_type": "StatusUpdate", "idempotency_key": clock::new_id(),
        "payload": {"summary": "bench", "body": "x".repeat(300)}})
}

/// Readers who empty their inboxes one signal at a time, all at once: drains a second, and the middle.
async fn drains(server: &Server, readers: usize) -> Result<(f64, f64)> {
    let (sender, _) = server.session("Sender").await?;
    let mut clients = Vec::new();
    for r in 0..readers {
        clients.push(server.session(&format!("Reader{r}")).await?.0);
    }
    throughput(readers, readers * DRAINS_EACH, |i| {
        let (sender, to) = (&sender, format!("Reader{}", i % readers));
        async move { Ok(sender.call(PID, "signal", signal(&to)).await.map(drop)?) }
    })
    .await?;
    let started = Instant::now();
    let all = future::try_join_all(clients.iter().map(emptied)).await?;
    let seconds = started.elapsed().as_secs_f64();
    let mut samples = all.concat();
    Ok((
        samples.len() as f64 / seconds,
        percentile(&mut samples, 0.5),
    ))
}

/// How long each drain of an inbox took.
async fn emptied(reader: &Client) -> Result<Vec<f64>> {
    let mut samples = Vec::with_capacity(DRAINS_EACH);
    for _ in 0..DRAINS_EACH {
        let started = Instant::now();
        let one = json!({"limit": 1});
        let drained = reader.call(PID, "signals_pending", one).await?;
        ensure!(
            !drained["lease_id"].is_null(),
            "nothing to drain: {drained}"
        );
        let lease = json!({"lease_id": drained["lease_id"]});
        reader.call(PID, "signals_confirm", lease).await?;
        samples.push(ms(started));
    }
    Ok(samples)
}

/// One server against two on the same database.
pub async fn servers(engines: &Engines, sizes: &Sizes, figures: &mut Figures) -> Result<()> {
    for &senders in sizes.senders.iter().filter(|n| **n > 1) {
        let mut runs = Vec::new();
        for n in [1, 2] {
            let database = engines.database().await?;
            let mut servers = Vec::new();
            for _ in 0..n {
                servers.push(engines.server(&database, "operator")?.resume()?);
            }
            in_use(&database, &servers, senders).await?;
            let look = Cores::look()?;
            let sent = durable(&servers, senders, sizes.sends).await?;
            runs.push((sent, look.busy_since()?));
            drop(servers);
        }
        let [(one, busy_with_one), (two, busy_with_two)] = &runs[..] else {
            continue;
        };
        let figure = figures.add(
            format!("durable sends, {senders} senders, two servers"),
            "/s",
            None,
            Some(two.per_s),
        );
        // Where one server and its database keep most cores busy, a second has nothing to run on.
        let has_room = busy_with_one * TWO_SERVERS_TIMES <= cores() as f64;
        if has_room {
            figure.limit = Some(Limit::AtLeast(TWO_SERVERS_TIMES * one.per_s));
        }
        figure.more = vec![
            ("one server", one.per_s),
            ("times", two.per_s / one.per_s),
            ("cores busy with one", *busy_with_one),
            ("with two", *busy_with_two),
            ("of", cores() as f64),
            ("p50 ms with one", one.p50_ms),
            ("with two", two.p50_ms),
        ];
    }
    Ok(())
}
