//! A raw MCP host: JSON lines over the standard streams of `prism mcp`.

use super::{PATIENCE, Server, wait_for};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

pub struct Agent {
    process: Child,
    stdin: Option<ChildStdin>,
    answers: Arc<Mutex<HashMap<u64, Sender<Value>>>>,
    bells: Receiver<Value>,
    deaf: Arc<AtomicBool>,
    /// Set while the host reads nothing.
    paused: Arc<AtomicBool>,
    stopped: Arc<AtomicBool>,
    closed: Receiver<()>,
    next: u64,
    pub init: Value,
    pub started: Value,
}

impl Agent {
    pub fn start(server: &Server, identity: Option<&str>) -> Self {
        let mut agent = Self::launch(server, identity, &[]);
        agent.started = agent.call("prism_start", json!({}));
        agent
    }

    /// Starts the host's side up to `initialized`.
    pub fn launch(server: &Server, identity: Option<&str>, env: &[(&str, &str)]) -> Self {
        Self::run(server.command(identity).envs(env.iter().copied()))
    }

    /// The same with a command of one's own, in another folder for instance.
    pub fn run(command: &mut Command) -> Self {
        let mut process = command
            .arg("mcp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        let answers: Arc<Mutex<HashMap<u64, Sender<Value>>>> = Arc::default();
        let (bell, bells) = channel();
        let waiting = answers.clone();
        let deaf: Arc<AtomicBool> = Arc::default();
        let (let_go, closed) = channel();
        let stop = deaf.clone();
        let paused: Arc<AtomicBool> = Arc::default();
        let stopped: Arc<AtomicBool> = Arc::default();
        let (pause, stopping) = (paused.clone(), stopped.clone());
        std::thread::spawn(move || {
            let mut lines = BufReader::with_capacity(512, stdout).lines();
            while let Some(Ok(line)) = lines.next() {
                while pause.load(Ordering::Relaxed) {
                    stopping.store(true, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let message: Value = serde_json::from_str(&line)
                    .expect("standard output carries the protocol alone");
                let waiter = message["id"]
                    .as_u64()
                    .and_then(|id| waiting.lock().unwrap().remove(&id));
                match waiter {
                    Some(waiter) => drop(waiter.send(message)),
                    None => drop(bell.send(message)),
                }
            }
            drop(lines);
            let _ = let_go.send(());
        });
        let mut agent = Self {
            process,
            stdin: Some(stdin),
            answers,
            bells,
            deaf,
            paused,
            stopped,
            closed,
            next: 0,
            init: Value::Null,
            started: Value::Null,
        };
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "claude-code", "version": "1"}});
        agent.init = agent.request("initialize", hello);
        agent.notify("notifications/initialized", json!({}));
        agent
    }

    pub fn raw(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("the host's end is open");
        stdin
            .write_all(line.as_bytes())
            .and_then(|()| stdin.write_all(b"\n"))
            .unwrap();
    }

    pub fn notify(&mut self, method: &str, params: Value) {
        self.raw(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string());
    }

    /// Sends a request without waiting for its answer.
    pub fn post(&mut self, method: &str, params: Value) -> Receiver<Value> {
        self.next += 1;
        let (answer, answered) = channel();
        self.answers.lock().unwrap().insert(self.next, answer);
        self.raw(
            &json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
                .to_string(),
        );
        answered
    }

    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.post(method, params)
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("no answer to {method}"))
    }

    fn tool(&mut self, name: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": name, "arguments": arguments}));
        assert!(answer["error"].is_null(), "{name}: {answer}");
        let result = &answer["result"];
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(
            text, result["structuredContent"],
            "text and structure say the same"
        );
        answer["result"].clone()
    }

    /// Calls a verb that must succeed.
    #[track_caller]
    pub fn call(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_ne!(result["isError"], json!(true), "{name}: {result}");
        result["structuredContent"].clone()
    }

    /// Calls a verb that must be refused.
    #[track_caller]
    pub fn refused(&mut self, name: &str, arguments: Value) -> Value {
        let result = self.tool(name, arguments);
        assert_eq!(result["isError"], json!(true), "{name}: {result}");
        let error = result["structuredContent"]["error"].clone();
        assert!(!error["hint"].as_str().unwrap().is_empty());
        error
    }

    /// The next bell handed to this host.
    #[track_caller]
    pub fn bell(&self) -> String {
        loop {
            let message = self.bells.recv_timeout(PATIENCE).expect("a bell");
            if message["method"] == "notifications/claude/channel" {
                return message["params"]["content"].as_str().unwrap().to_owned();
            }
        }
    }

    /// The bells that were handed over so far and not looked at.
    pub fn bells_so_far(&self) -> usize {
        self.bells
            .try_iter()
            .filter(|m| m["method"] == "notifications/claude/channel")
            .count()
    }

    pub fn os_pid(&self) -> u32 {
        self.process.id()
    }

    /// The host goes away politely; returns the exit code.
    pub fn close(mut self) -> Option<i32> {
        self.stdin.take();
        self.process.wait().unwrap().code()
    }

    /// The host reads nothing any more; its pipe stays open.
    pub fn stop_reading(&mut self) {
        self.paused.store(true, Ordering::Relaxed);
        // The reader notices at the next line.
        self.next += 1;
        let ping = json!({"jsonrpc": "2.0", "id": self.next, "method": "ping"});
        self.raw(&ping.to_string());
        wait_for("the reader to stop", || {
            self.stopped.load(Ordering::Relaxed).then_some(())
        });
    }

    /// Bytes that the shim wrote and the host has not read.
    pub fn unread_bytes(&self) -> u64 {
        let pipe = std::fs::File::open(format!("/proc/{}/fd/1", self.os_pid())).unwrap();
        rustix::io::ioctl_fionread(pipe).unwrap()
    }

    /// A request under way: its id, and where its answer will come.
    pub fn ask(&mut self, name: &str, arguments: Value) -> (u64, Receiver<Value>) {
        let answer = self.post("tools/call", json!({"name": name, "arguments": arguments}));
        (self.next, answer)
    }

    /// Closes the host's end of standard input alone, and waits for the shim to end.
    pub fn leave(&mut self) -> Option<i32> {
        self.stdin.take();
        let code = self.process.wait().unwrap().code();
        let read = self.closed.recv_timeout(PATIENCE);
        assert!(read.is_ok(), "everything it wrote was read");
        code
    }

    /// The host stops reading: its end of the shim's standard output is closed.
    pub fn close_stdout(&mut self) {
        self.deaf.store(true, Ordering::Relaxed);
        // The reader notices at the next line, and drops its end of the pipe.
        self.notify_ping();
    }

    fn notify_ping(&mut self) {
        self.next += 1;
        let id = self.next;
        self.raw(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}).to_string());
        let closed = self.closed.recv_timeout(PATIENCE);
        assert!(closed.is_ok(), "the reader has let go");
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.stdin.take();
        drop(self.process.kill());
        drop(self.process.wait());
    }
}
