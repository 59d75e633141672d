//! What a Codex thread is called: who works there and what waits, as a status line would say it.
//! A name that its user gave stays.

use super::codex::{AppServer, Codex, NoAnswer, Thread};
use super::{Bell, HANDOVER};
use crate::shim::Session;
use prism_core::ring::Count;
use prism_core::statusline::{View, render};
use serde_json::json;
use std::sync::Arc;
use tokio::time::timeout;

/// Keeps the name true until the session is over.
pub async fn run(bell: &Bell, session: Arc<Session>) {
    let Some(codex) = bell.codex() else {
        return;
    };
    let mut over = session.over.subscribe();
    let mut shown = None;
    loop {
        let name = name(&session);
        if shown.as_ref() != Some(&name) {
            let own = format!("[{}] ", session.identity);
            match timeout(HANDOVER, set(bell, codex, &name, &own)).await {
                Ok(Ok(())) => shown = Some(name),
                // The next change tries again; the name is a courtesy.
                Ok(Err(why)) => {
                    tracing::debug!(why = why.reason(), "The thread's name was not set");
                }
                Err(_) => tracing::debug!("The thread's name was not set in time"),
            }
        }
        tokio::select! {
            () = bell.inbox_changed.notified() => {}
            _ = over.wait_for(|over| *over) => return,
        }
    }
}

/// Who, where and how many: no summary of anybody's words.
fn name(session: &Session) -> String {
    let count = Count {
        latest_actionable: None,
        ..session.cache.load().0.count()
    };
    render(&View {
        persona: Some(session.identity.as_str()),
        cwd: &session.pid,
        count: Some(&count),
        now: crate::clock::now(),
        color: false,
    })
}

/// Sets the name, unless the thread has one that is not ours.
async fn set(bell: &Bell, codex: &Codex, name: &str, own: &str) -> Result<(), NoAnswer> {
    let mut server = AppServer::open(codex.socket()).await?;
    let thread: Thread = match bell.thread() {
        Some(thread) => thread,
        None => {
            let found = codex.find(&mut server).await?;
            bell.found_thread(found.clone());
            found
        }
    };
    let read = json!({"threadId": thread.id});
    let read = server.ask("thread/read", read).await?;
    let thread_is = &read["thread"];
    if thread_is["status"]["type"] == "notLoaded" {
        return Err(NoAnswer::Refused("another process holds the thread".into()));
    }
    let theirs = |named: &str| !named.is_empty() && !named.starts_with(own);
    if thread_is["ephemeral"] == true || thread_is["name"].as_str().is_some_and(theirs) {
        return Ok(());
    }
    let named = json!({"threadId": thread.id, "name": name});
    server.ask("thread/name/set", named).await.map(drop)
}
