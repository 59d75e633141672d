//! Hosts as a bell meets them: an inbox socket, a Codex app-server, a command called `codex`.

use super::{PATIENCE, wait_for};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio_tungstenite::tungstenite::Message;

/// The inbox socket of a Claude Code session.
pub struct Inbox {
    pub path: PathBuf,
    lines: Receiver<String>,
    /// Connections that are not read, while the host hangs.
    hung: Arc<Mutex<Option<Vec<UnixStream>>>>,
}

impl Inbox {
    pub fn listen(path: PathBuf) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let (say, lines) = channel();
        let hung: Arc<Mutex<Option<Vec<UnixStream>>>> = Arc::default();
        let hanging = hung.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.unwrap();
                if let Some(hung) = &mut *hanging.lock().unwrap() {
                    hung.push(connection);
                    continue;
                }
                let mut line = String::new();
                // Until the other side closes its half; then ours closes.
                connection.read_to_string(&mut line).unwrap();
                if say.send(line).is_err() {
                    return;
                }
            }
        });
        Self { path, lines, hung }
    }

    /// From now on it takes connections and reads nothing.
    pub fn hang(&self) {
        *self.hung.lock().unwrap() = Some(Vec::new());
    }

    pub fn is_being_rung(&self) -> bool {
        self.hung
            .lock()
            .unwrap()
            .as_ref()
            .is_some_and(|h| !h.is_empty())
    }

    pub fn go_on(&self) {
        *self.hung.lock().unwrap() = None;
    }

    #[track_caller]
    pub fn line(&self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a line");
        assert!(
            line.ends_with('\n') && line.matches('\n').count() == 1,
            "{line:?}"
        );
        serde_json::from_str(&line).unwrap()
    }

    pub fn lines_so_far(&self) -> usize {
        self.lines.try_iter().count()
    }

    /// The host is gone, and its socket with it.
    pub fn remove(&self) {
        std::fs::remove_file(&self.path).unwrap();
    }
}

/// A thread of a Codex app-server.
#[derive(Clone, Debug)]
pub struct FakeThread {
    pub id: String,
    pub cwd: String,
    pub ephemeral: bool,
    /// The turn that runs; none while it is idle.
    pub turn: Option<String>,
    pub name: Option<String>,
}

#[derive(Default)]
pub struct AppServerState {
    pub threads: Vec<FakeThread>,
    /// What was asked, without what every conversation begins with.
    pub asked: Vec<(String, Value)>,
    /// It takes questions and answers none.
    pub hangs: bool,
}

/// A Codex app-server on a Unix socket, as far as a bell needs one.
pub struct AppServer {
    pub path: PathBuf,
    state: Arc<Mutex<AppServerState>>,
    _runtime: tokio::runtime::Runtime,
}

impl AppServer {
    pub fn listen(path: PathBuf, threads: Vec<FakeThread>) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let state = Arc::new(Mutex::new(AppServerState {
            threads,
            ..AppServerState::default()
        }));
        let shared = state.clone();
        let listener = {
            let _inside = runtime.enter();
            tokio::net::UnixListener::bind(&path).unwrap()
        };
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let state = shared.clone();
                tokio::spawn(async move {
                    let mut ws = tokio_tungstenite::accept_async(stream).await.unwrap();
                    while let Some(Ok(Message::Text(text))) = ws.next().await {
                        let question: Value = serde_json::from_str(&text).unwrap();
                        let Some(id) = question.get("id").cloned() else {
                            continue;
                        };
                        let method = question["method"].as_str().unwrap();
                        let answer = state.lock().unwrap().answer(method, &question["params"]);
                        let Some(answer) = answer else {
                            continue;
                        };
                        // Others are told things at any time.
                        let told = json!({"method": "thread/status/changed", "params": {}});
                        let answer = match answer {
                            Ok(result) => json!({"id": id, "result": result}),
                            Err(why) => {
                                json!({"id": id, "error": {"code": -32600, "message": why}})
                            }
                        };
                        for message in [told, answer] {
                            let sent = ws.send(Message::Text(message.to_string().into())).await;
                            if sent.is_err() {
                                return;
                            }
                        }
                    }
                });
            }
        });
        Self {
            path,
            state,
            _runtime: runtime,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, AppServerState> {
        self.state.lock().unwrap()
    }

    /// What was asked with this method, so far.
    pub fn asked(&self, method: &str) -> Vec<Value> {
        let state = self.state();
        let asked = state.asked.iter().filter(|(m, _)| m == method);
        asked.map(|(_, params)| params.clone()).collect()
    }

    #[track_caller]
    pub fn wait_for(&self, method: &str, times: usize) -> Vec<Value> {
        wait_for(&format!("{times} of {method}"), || {
            Some(self.asked(method)).filter(|asked| asked.len() >= times)
        })
    }
}

impl AppServerState {
    fn answer(&mut self, method: &str, params: &Value) -> Option<Result<Value, String>> {
        if method != "initialize" {
            self.asked.push((method.to_owned(), params.clone()));
        }
        if self.hangs && method != "initialize" {
            return None;
        }
        if method == "initialize" {
            return Some(Ok(json!({"userAgent": "codex"})));
        }
        if method == "thread/loaded/list" {
            let ids: Vec<&str> = self.threads.iter().map(|t| t.id.as_str()).collect();
            return Some(Ok(json!({"data": ids})));
        }
        let id = params["threadId"].as_str().unwrap_or_default().to_owned();
        let Some(thread) = self.threads.iter_mut().find(|t| t.id == id) else {
            return Some(Err(format!("thread not found: {id}")));
        };
        Some(match method {
            "thread/read" => {
                let status = match thread.turn {
                    Some(_) => json!({"type": "active", "activeFlags": []}),
                    None => json!({"type": "idle"}),
                };
                Ok(
                    json!({"thread": {"id": id, "cwd": thread.cwd, "ephemeral": thread.ephemeral,
                    "status": status, "name": thread.name}}),
                )
            }
            "thread/name/set" => {
                thread.name = params["name"].as_str().map(str::to_owned);
                Ok(json!({}))
            }
            "turn/steer" => match &thread.turn {
                None => Err("no active turn to steer".into()),
                Some(turn) if params["expectedTurnId"] == turn.as_str() => {
                    Ok(json!({"turnId": turn}))
                }
                Some(turn) => Err(format!(
                    "expected active turn id `{}` but found `{turn}`",
                    params["expectedTurnId"].as_str().unwrap()
                )),
            },
            "turn/start" => Ok(json!({"turn": {"id": "turn-1", "status": "inProgress"}})),
            other => Err(format!("unknown method {other}")),
        })
    }
}

/// A command called `codex` that notes its arguments and ends so; returns what to put in `PATH`.
pub fn codex_command(folder: &Path, ends: &str) -> String {
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let noted = folder.join("codex-arguments");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > {0}.new\nmv {0}.new {0}\n{ends}\n",
        noted.display()
    );
    let program = bin.join("codex");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    format!("{}:{path}", bin.display())
}
