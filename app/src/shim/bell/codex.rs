//! Codex: the running turn is steered, an idle thread begins one; else the message is queued.

mod app_server;

pub use app_server::{AppServer, NoAnswer};

use super::HANDOVER;
use crate::config::Env;
use prism_core::Moment;
use prism_core::bell::{Handover, LoadedThread, Notice, born, own_thread};
use prism_core::limits::{
    BELL_HANDOVER_S, CODEX_OWN_THREAD_US, CODEX_QUEUE_S, CODEX_THREAD_US, SECOND_US,
};
use prism_core::text::one_line;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;
use tokio::time::timeout;

/// Threads looked at to find the own one; only those of the right age are.
const THREADS_MAX: usize = 50;

/// Where this host's thread lives, and how to know it from the others.
#[derive(Clone, Debug)]
pub struct Codex {
    socket: PathBuf,
    /// The server holds threads of this identity alone.
    is_own: bool,
    cwd: String,
    began: Moment,
}

/// What tool calls have said of the thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thread {
    pub id: String,
    /// The turn that called last; perhaps it still runs.
    pub turn: Option<String>,
}

/// Why a thread could not be rung over the socket.
enum Miss {
    /// Another process holds the thread, or none: it can be left a message.
    Elsewhere(String),
    Failed(String),
}

impl From<NoAnswer> for Miss {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::NotThere(why) => Self::Elsewhere(why),
            NoAnswer::Refused(why) | NoAnswer::Broken(why) => Self::Failed(why),
        }
    }
}

impl Codex {
    pub fn new(env: &Env, cwd: &str, began: Moment) -> Self {
        let home = env.codex_home.as_ref().map(PathBuf::from);
        let home = home.or_else(|| Some(Path::new(env.home.as_ref()?).join(".codex")));
        let shared = home.unwrap_or_default();
        let shared = shared.join("app-server-control/app-server-control.sock");
        let own = env.codex_socket.as_deref();
        Self {
            socket: own.map_or(shared, |own| {
                own.strip_prefix("unix://").unwrap_or(own).into()
            }),
            is_own: own.is_some(),
            cwd: cwd.to_owned(),
            began,
        }
    }

    /// A turn's id is the host's word that it took the bell; a queued message is no more than that.
    pub async fn ring(&self, notice: &Notice, known: Option<Thread>) -> Handover {
        let thread = known.clone();
        let why = match timeout(HANDOVER, self.over_socket(notice, thread)).await {
            Ok(Ok(())) => return Handover::Confirmed,
            Ok(Err(Miss::Elsewhere(why))) => why,
            Ok(Err(Miss::Failed(why))) => return Handover::Failed(why),
            // It may have taken the bell all the same: a message in the queue would be a second.
            Err(_) => {
                return Handover::Failed(format!(
                    "its app-server did not answer within {BELL_HANDOVER_S} s"
                ));
            }
        };
        match known {
            Some(thread) if !self.is_own => self.queue(notice, &thread.id).await,
            _ => Handover::Failed(why),
        }
    }

    async fn over_socket(&self, notice: &Notice, known: Option<Thread>) -> Result<(), Miss> {
        let mut server = AppServer::open(&self.socket).await?;
        let thread = match known {
            Some(thread) => thread,
            None => self.find(&mut server).await?,
        };
        let read = server
            .ask("thread/read", json!({"threadId": thread.id}))
            .await;
        let read = match read {
            Err(NoAnswer::Refused(why)) => return Err(Miss::Elsewhere(why)),
            read => read?,
        };
        let read = &read["thread"];
        if read["ephemeral"] == true {
            return Err(Miss::Failed("its thread is ephemeral".into()));
        }
        let input = json!([{"type": "text", "text": notice.sentence(), "text_elements": []}]);
        match read["status"]["type"].as_str() {
            Some("notLoaded") => {
                let why = "its app-server does not hold the thread";
                return Err(Miss::Elsewhere(why.into()));
            }
            Some("active") if steer(&mut server, &thread, &input).await? => return Ok(()),
            _ => {}
        }
        let start = json!({"threadId": thread.id, "input": input});
        let started = server.ask("turn/start", start).await?;
        match started["turn"]["id"].as_str() {
            Some(_) => Ok(()),
            None => Err(Miss::Failed("no turn began".into())),
        }
    }

    /// The own thread, before any tool call has named it.
    pub async fn find(&self, server: &mut AppServer) -> Result<Thread, NoAnswer> {
        let within = match self.is_own {
            true => CODEX_OWN_THREAD_US,
            false => CODEX_THREAD_US,
        };
        let loaded = server.ask("thread/loaded/list", json!({})).await?;
        let ids = loaded["data"].as_array().into_iter().flatten();
        let of_age =
            |id: &&str| born(id).is_some_and(|at| (0..=within).contains(&self.began.since_us(at)));
        let ids: Vec<&str> = ids.filter_map(Value::as_str).filter(of_age).collect();
        let mut threads = Vec::new();
        for id in ids.iter().take(THREADS_MAX) {
            let read = server.ask("thread/read", json!({"threadId": id})).await?;
            threads.push(LoadedThread {
                id: (*id).to_owned(),
                cwd: read["thread"]["cwd"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned(),
                ephemeral: read["thread"]["ephemeral"] == true,
            });
        }
        match own_thread(&threads, &self.cwd, self.began, within) {
            Some(own) if ids.len() <= THREADS_MAX => Ok(Thread {
                id: own.id.clone(),
                turn: None,
            }),
            _ => Err(NoAnswer::Refused(format!(
                "which thread this is cannot be told before its first tool call: no single one in \
                 this folder began within {} s before this shim",
                within / SECOND_US
            ))),
        }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// `codex queue`: exit 0 says that the message is queued, and nothing about who reads it.
    async fn queue(&self, notice: &Notice, thread: &str) -> Handover {
        let sentence = notice.sentence();
        let output = Command::new("codex")
            .args(["queue", "--thread", thread, "--message", &sentence])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .output();
        match timeout(Duration::from_secs(CODEX_QUEUE_S), output).await {
            Ok(Ok(output)) if output.status.success() => Handover::Handed,
            Ok(Ok(output)) => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().rfind(|l| !l.trim().is_empty());
                let said = one_line(said.unwrap_or("it gave no reason"));
                Handover::Failed(format!("codex queue: {said}"))
            }
            Ok(Err(error)) => Handover::Failed(format!("codex queue: {error}")),
            Err(_) => Handover::Failed(format!("codex queue did not end within {CODEX_QUEUE_S} s")),
        }
    }
}

/// Puts the bell into the running turn; false when none runs any more.
async fn steer(server: &mut AppServer, thread: &Thread, input: &Value) -> Result<bool, Miss> {
    // A turn we do not know is asked for with one that cannot be: the answer names it.
    let mut turn = thread.turn.clone().unwrap_or_else(|| thread.id.clone());
    for _ in 0..2 {
        let steer = json!({"threadId": thread.id, "expectedTurnId": turn, "input": input});
        match server.ask("turn/steer", steer).await {
            Ok(_) => return Ok(true),
            Err(NoAnswer::Refused(why)) => match turn_in_force(&why) {
                Some(found) => turn = found.to_owned(),
                None if why.contains("no active turn") => return Ok(false),
                None => return Err(Miss::Failed(why)),
            },
            Err(other) => return Err(other.into()),
        }
    }
    // Turns follow one another faster than we ask: it takes a new one as well.
    Ok(false)
}

/// The turn that runs, as a refusal names it.
fn turn_in_force(refusal: &str) -> Option<&str> {
    let (_, rest) = refusal.split_once("but found `")?;
    rest.split_once('`').map(|(turn, _)| turn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_names_the_running_turn_is_understood() {
        for (said, turn) in [
            (
                "expected active turn id `x` but found `01a1-y`",
                Some("01a1-y"),
            ),
            ("no active turn to steer", None),
            ("but found nothing", None),
        ] {
            assert_eq!(turn_in_force(said), turn, "{said}");
        }
    }

    #[test]
    fn the_control_socket_is_the_launchers_else_the_homes() {
        let env = |codex_socket: Option<&str>, codex_home: Option<&str>| Env {
            home: Some("/h".into()),
            codex_home: codex_home.map(str::to_owned),
            codex_socket: codex_socket.map(str::to_owned),
            ..Env::default()
        };
        let tail = "app-server-control/app-server-control.sock";
        for (own, home, socket) in [
            (None, None, format!("/h/.codex/{tail}")),
            (None, Some("/c"), format!("/c/{tail}")),
            (Some("/run/x.sock"), Some("/c"), "/run/x.sock".into()),
            (Some("unix:///run/x.sock"), None, "/run/x.sock".into()),
        ] {
            let codex = Codex::new(&env(own, home), "/w", Moment(0));
            assert_eq!(codex.socket, Path::new(&socket));
            assert_eq!(codex.is_own, own.is_some());
        }
    }
}
