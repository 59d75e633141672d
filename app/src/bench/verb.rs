//! A verb through every layer, beside an empty tool of the same protocol library in the same run.

use super::signals::Flush;
use super::{PID, Report, Server, command, ms, p50_p99, percentile};
use anyhow::{Context, Result, ensure};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData,
    ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

const AGENT: &str = "Texi";
const PEER: &str = "Donna";

/// The parts of a call that the server tells.
const PARTS: [&str; 4] = ["door", "verb", "piggyback", "store"];

/// An MCP server with one tool that does nothing.
struct EmptyTool;

impl ServerHandler for EmptyTool {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Ok(CallToolResult::success(vec![ContentBlock::text("ok")]).into())
    }
}

/// Serves the empty tool on the standard streams, until they end.
pub async fn empty_tool() -> Result<()> {
    let (stdin, stdout) = rmcp::transport::stdio_pipes();
    let pipe = rmcp::transport::async_rw::AsyncRwTransport::new_server(stdin, stdout);
    EmptyTool.serve(pipe).await?.waiting().await?;
    Ok(())
}

/// A process that speaks MCP on its standard streams.
pub struct Pipe {
    process: Child,
    stdin: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    next: usize,
}

impl Pipe {
    fn start(command: &mut Command) -> Result<Self> {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut pipe = Self {
            stdin: process.stdin.take(),
            lines: BufReader::new(process.stdout.take().context("no stdout")?),
            process,
            next: 0,
        };
        pipe.ask(
            "initialize",
            &json!({"protocolVersion": "2025-11-25", "capabilities": {},
                "clientInfo": {"name": "bench", "version": "1"}}),
        )?;
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        pipe.write(&ready.to_string())?;
        Ok(pipe)
    }

    fn write(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("no stdin")?;
        Ok(stdin.write_all(format!("{line}\n").as_bytes())?)
    }

    /// Asks and waits for the answer; how long that took, and what it was.
    fn ask(&mut self, method: &str, params: &Value) -> Result<(f64, String)> {
        self.next += 1;
        let id = self.next;
        let line = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let (line, ours) = (line.to_string(), format!("\"id\":{id},"));
        let started = Instant::now();
        self.write(&line)?;
        loop {
            let mut answer = String::new();
            ensure!(self.lines.read_line(&mut answer)? > 0, "no answer");
            if answer.contains(&ours) {
                return Ok((ms(started), answer));
            }
        }
    }

    /// Calls a tool, which must not refuse.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<f64> {
        let call = json!({"name": tool, "arguments": arguments});
        let (took, answer) = self.ask("tools/call", &call)?;
        ensure!(!answer.contains("\"isError\":true"), "{tool}: {answer}");
        Ok(took)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.stdin.take());
        drop(self.process.wait());
    }
}

/// A shim with an open session.
pub fn shim(server: &Server, identity: &str) -> Result<Pipe> {
    let mut mcp = command(&server.home)?;
    mcp.env("PRISM_AGENT_IDENTITY", identity).arg("mcp");
    let mut shim = Pipe::start(&mut mcp)?;
    shim.call("prism_start", &json!({}))?;
    Ok(shim)
}

/// One connection to the server, kept.
struct Wire {
    stream: TcpStream,
    head: String,
}

impl Wire {
    fn open(url: &str, key: &str, session: uuid::Uuid) -> Result<Self> {
        let at = url.strip_prefix("http://").context("no http")?;
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        let head = format!(
            "host: {at}\r\nauthorization: Bearer {key}\r\nprism-session: {session}\r\n\
             prism-timing: 1\r\ncontent-type: application/json\r\n"
        );
        Ok(Self { stream, head })
    }

    /// Calls a verb: how long it took here, and what the server says of its parts.
    fn call(&mut self, path: &str, body: &Value) -> Result<(f64, [f64; PARTS.len()])> {
        let body = body.to_string();
        let request = format!(
            "POST /api/v1/{PID}/{path} HTTP/1.1\r\n{}content-length: {}\r\n\r\n{body}",
            self.head,
            body.len()
        );
        let started = Instant::now();
        self.stream.write_all(request.as_bytes())?;
        let (mut answer, mut chunk) = (Vec::new(), [0; 16 * 1024]);
        let head = loop {
            let n = self.stream.read(&mut chunk)?;
            ensure!(n > 0, "the server hung up");
            answer.extend_from_slice(&chunk[..n]);
            let Some(end) = answer.windows(4).position(|w| w == b"\r\n\r\n") else {
                continue;
            };
            let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
            let length = field(&head, "content-length").and_then(|l| l.parse().ok());
            let length: usize = length.context("an answer without its length")?;
            if answer.len() >= end + 4 + length {
                break head;
            }
        };
        let took = ms(started);
        ensure!(head.starts_with("http/1.1 200"), "{path}: {head}");
        let timing = field(&head, "server-timing").context("no timing")?;
        let part = |name: &str| {
            let found = timing.split(", ").find_map(|p| p.strip_prefix(name));
            let ms = found.and_then(|p| p.strip_prefix(";dur="));
            ms.and_then(|ms| ms.parse().ok()).unwrap_or(f64::NAN)
        };
        Ok((took, PARTS.map(part)))
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// What one verb was asked for, and its samples.
struct Asked {
    tool: &'static str,
    path: &'static str,
    body: Value,
    writes: bool,
    whole: Vec<f64>,
    over_http: Vec<f64>,
    parts: [Vec<f64>; PARTS.len()],
}

impl Asked {
    fn new(tool: &'static str, path: &'static str, body: Value, writes: bool) -> Self {
        Self {
            tool,
            path,
            body,
            writes,
            whole: Vec::new(),
            over_http: Vec::new(),
            parts: Default::default(),
        }
    }
}

/// Every verb in turn, so that all of them meet the same machine.
pub async fn run(runs: usize) -> Result<Report> {
    let server = Server::start()?;
    let (_, peer) = server.session(PEER).await?;
    let key = server.key_of(PEER).await?;
    let mut wire = Wire::open(&server.url()?, &key, peer)?;
    let mut empty = Pipe::start(command(&server.home)?.args(["bench", "empty-tool"]))?;
    let mut shim = shim(&server, AGENT)?;
    let mut asked = [
        Asked::new("prism_whois", "whois", json!({"identity": PEER}), false),
        Asked::new("prism_status", "status", json!({}), false),
        Asked::new(
            "prism_note",
            "note",
            json!({"text": "the ring holds fifty"}),
            true,
        ),
        Asked::new(
            "prism_signal",
            "signal",
            // To the operator, who has no socket: nothing rings meanwhile.
            json!({"to": "operator", "signal_type": "StatusUpdate", "payload": {"summary": "on it"}}),
            true,
        ),
    ];
    let (mut nothing, mut local) = (Vec::new(), Vec::new());
    let (mut flush, mut fsync) = (Flush::new()?, Vec::new());
    // The first calls open connections and prepare statements. All reads come before all writes, so
    // that what these leave in an inbox is not counted by those.
    for round in 0..2 * (runs + 10) {
        let writes = round >= runs + 10;
        let counts = round % (runs + 10) >= 10;
        let note = |samples: &mut Vec<f64>, took: f64| {
            if counts {
                samples.push(took);
            }
        };
        note(&mut nothing, empty.call("nothing", &json!({}))?);
        note(
            &mut local,
            shim.call("prism_signals", &json!({"action": "both"}))?,
        );
        if writes {
            note(&mut fsync, flush.sample()?);
        }
        for verb in asked.iter_mut().filter(|verb| verb.writes == writes) {
            note(&mut verb.whole, shim.call(verb.tool, &verb.body)?);
            let (took, parts) = wire.call(verb.path, &verb.body)?;
            note(&mut verb.over_http, took);
            for (samples, part) in verb.parts.iter_mut().zip(parts) {
                note(samples, part);
            }
        }
    }
    let one_flush = percentile(&mut fsync, 0.5);
    let floor = percentile(&mut nothing, 0.5);
    let mut report = Report::default();
    report.add("empty rmcp tool", p50_p99(&mut nothing));
    report.add("one fsync (4 KiB, same disk)", p50_p99(&mut fsync));
    let mut figures = p50_p99(&mut local);
    figures.push(("times empty", figures[0].1 / floor));
    report.add("prism_signals, in the shim", figures);
    for mut verb in asked {
        let mut figures = p50_p99(&mut verb.whole);
        let whole = figures[0].1;
        match verb.writes {
            false => figures.push(("times empty", whole / floor)),
            true => figures.push(("less one fsync, times empty", (whole - one_flush) / floor)),
        }
        report.add(verb.tool, figures);
        let over_http = percentile(&mut verb.over_http, 0.5);
        let [door, own, piggyback, store] = verb.parts.each_mut().map(|s| percentile(s, 0.5));
        report.add(
            format!("{}: where it goes", verb.tool),
            vec![
                ("MCP", floor),
                ("shim", whole - over_http - floor),
                ("HTTP", over_http - door - own - piggyback),
                ("door", door),
                ("verb", own),
                ("piggyback", piggyback),
                ("of these the store", store),
            ],
        );
    }
    Ok(report)
}
