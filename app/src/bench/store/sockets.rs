//! Idle agents with their sockets, and the memory that they cost a server.

use super::super::signals::open;
use super::super::{PID, Server, progress};
use super::databases::Engines;
use super::verbs::metric;
use super::{Figures, Limit, Sizes};
use crate::client::{Client, Locator};
use anyhow::{Context, Result, ensure};
use futures_util::{StreamExt, TryStreamExt, stream};
use serde_json::json;
use std::time::Duration;
use tokio::task::JoinHandle;

/// What a server with ten thousand sockets may hold, in megabytes.
const MB_MAX: f64 = 150.0;
/// Sessions of one identity, as a fleet has several terminals each.
const SESSIONS_EACH: usize = 50;
/// Identities that come at once.
const AT_ONCE: usize = 8;
/// How long a server is left alone before it is looked at.
const SETTLES: Duration = Duration::from_secs(2);

pub async fn held(engines: &Engines, sizes: &Sizes, figures: &mut Figures) -> Result<()> {
    for &n in &sizes.sockets {
        let sqlite = memory_of(&Server::start()?, n).await?;
        let database = engines.database().await?;
        let shared = engines.server(&database, "operator")?.resume()?;
        let postgres = memory_of(&shared, n).await?;
        drop(shared);
        let figure = figures.add(
            format!("server memory, {n} sockets"),
            "MB",
            Some(sqlite.0),
            Some(postgres.0),
        );
        figure.limit = Some(Limit::AtMost(MB_MAX));
        let each = |(held, alone): (f64, f64)| (held - alone) * 1024.0 / n as f64;
        figure.more = vec![
            ("KB a socket, SQLite", each(sqlite)),
            ("PostgreSQL", each(postgres)),
        ];
    }
    Ok(())
}

/// What a server holds with so many sockets, and what it held without.
async fn memory_of(server: &Server, n: usize) -> Result<(f64, f64)> {
    server.operator()?.call(PID, "ping", json!({})).await?;
    let alone = server.rss_mb()?;
    let identities = n.div_ceil(SESSIONS_EACH);
    let come = (0..identities).map(|i| {
        let here = SESSIONS_EACH.min(n - i * SESSIONS_EACH);
        comes(server, i, here)
    });
    let mut sockets = Vec::with_capacity(n);
    let mut coming = stream::iter(come).buffer_unordered(AT_ONCE);
    while let Some(more) = coming.try_next().await? {
        sockets.extend(more);
        if sockets.len() % 500 < SESSIONS_EACH {
            progress(&format!("  {} of {n} sockets", sockets.len()));
        }
    }
    tokio::time::sleep(SETTLES).await;
    let open = metric(server, "sockets")?;
    ensure!(open as usize == n, "{open} of {n} sockets are open");
    let held = server.rss_mb()?;
    sockets.iter().for_each(JoinHandle::abort);
    Ok((held, alone))
}

/// One identity with its sessions and a socket each, read as a shim does.
async fn comes(server: &Server, number: usize, sessions: usize) -> Result<Vec<JoinHandle<()>>> {
    let key = server.key_of(&format!("Idle{number}")).await?;
    let client = Client::new(Locator::Home(server.home.clone()), key)?;
    let mut sockets = Vec::with_capacity(sessions);
    for process in 1..=sessions {
        let session = json!({"surface": "other", "machine_id": "bench", "process_pid": process});
        let registered = client.call(PID, "session_register", session).await?;
        let id = registered["session_id"]
            .as_str()
            .and_then(|s| s.parse().ok());
        let mut socket = open(server, &client, id.context("no session")?).await?;
        sockets.push(tokio::spawn(async move {
            while let Some(Ok(_)) = socket.next().await {}
        }));
    }
    Ok(sockets)
}
