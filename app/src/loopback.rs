//! Running a probe from outside the server: the shim for its agent, the CLI for the operator.

use crate::client::Client;
use crate::clock;
use crate::home::Home;
use crate::shim::files::{self, ShimFile};
use crate::shim::probe::Probes;
use prism_core::loopback::{Probe, ShimEvidence, TIMEOUT_MS, TIMEOUT_MS_MAX};
use prism_core::{Code, Problem};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How a probe is run.
#[derive(Clone, Debug)]
pub struct Options {
    pub session_id: Option<Uuid>,
    pub echo: bool,
    pub ring: bool,
    pub timeout: Duration,
    /// How long to wait for the model; nought is not at all.
    pub wait_model: Duration,
}

impl Options {
    pub fn new(
        session_id: Option<Uuid>,
        timeout_ms: Option<u64>,
        wait_model_ms: Option<u64>,
    ) -> Result<Self, Problem> {
        let within = |field: &str, ms: u64| match ms <= TIMEOUT_MS_MAX {
            true => Ok(Duration::from_millis(ms)),
            false => Err(Problem::field(
                field,
                format!("is {ms} and may be {TIMEOUT_MS_MAX} ms"),
            )),
        };
        Ok(Self {
            session_id,
            echo: true,
            ring: true,
            timeout: within("timeout_ms", timeout_ms.unwrap_or(TIMEOUT_MS))?,
            wait_model: within("drain_timeout_ms", wait_model_ms.unwrap_or(0))?,
        })
    }
}

/// Issues a probe, gathers what the shim saw, and ends it.
pub async fn run(
    client: &Client,
    pid: &str,
    options: &Options,
    source: &Source,
) -> Result<Probe, Problem> {
    let request =
        json!({"session_id": options.session_id, "echo": options.echo, "ring": options.ring});
    let issued: Probe = read(client.call(pid, "signal/loopback-issue", request).await?)?;
    let shim = gather(&issued, options, source).await;
    let model_ack = match issued.requested_by_session {
        Some(session) => model_ack(client, pid, session, &issued, options.wait_model).await?,
        None => None,
    };
    let probe = issued.finish(&shim, model_ack, clock::now());
    // The result stands whether or not the server could keep it.
    if let Err(problem) = client
        .call(pid, "signal/loopback-finish", json!({ "probe": probe }))
        .await
    {
        tracing::warn!(%problem, "The probe's result was not kept");
    }
    Ok(probe)
}

fn read<T: serde::de::DeserializeOwned>(answer: Value) -> Result<T, Problem> {
    serde_json::from_value(answer).map_err(|e| {
        Problem::new(
            Code::Internal,
            format!("the server's answer is not understood: {e}"),
            "are server and client of one version?",
        )
    })
}

async fn gather(issued: &Probe, options: &Options, source: &Source) -> ShimEvidence {
    let mut seen = ShimEvidence::default();
    if issued.requested_by_session.is_none() {
        return seen;
    }
    let deadline = Instant::now() + options.timeout;
    let mut pause = Duration::from_micros(500);
    loop {
        if let Some(now) = source.evidence(issued.loopback_id).await {
            seen = now;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if seen.is_whole(issued.echo.expected) || left.is_zero() {
            return seen;
        }
        tokio::time::sleep(pause.min(left)).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

async fn model_ack(
    client: &Client,
    pid: &str,
    session: Uuid,
    issued: &Probe,
    wait: Duration,
) -> Result<Option<prism_core::Moment>, Problem> {
    let deadline = Instant::now() + wait;
    while !wait.is_zero() {
        let answer: prism_core::api::LoopbackModelSeen = read(
            client
                .call(
                    pid,
                    "signal/loopback-model",
                    json!({"session_id": session, "since": issued.started_at}),
                )
                .await?,
        )?;
        let left = deadline.saturating_duration_since(Instant::now());
        if answer.model_ack.is_some() || left.is_zero() {
            return Ok(answer.model_ack);
        }
        tokio::time::sleep(Duration::from_millis(50).min(left)).await;
    }
    Ok(None)
}

/// Where the shim's side is known.
pub enum Source {
    /// This process is the shim.
    Own(Probes),
    /// A shim on this machine, asked through its door.
    Door(Door),
}

impl Source {
    async fn evidence(&self, loopback_id: Uuid) -> Option<ShimEvidence> {
        match self {
            Self::Own(probes) => probes.get(loopback_id),
            Self::Door(door) => door.evidence(loopback_id).await,
        }
    }
}

/// Asks the shim of a session on this machine through its own door.
pub struct Door {
    http: reqwest::Client,
    file: Option<ShimFile>,
}

impl Door {
    pub fn of(home: &Home, session: Option<Uuid>) -> Result<Self, Problem> {
        let (alive, _) = files::shims(home);
        // A shim that hangs must not hang the probe.
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_millis(250))
            .build()
            .map_err(|e| {
                Problem::new(
                    Code::Internal,
                    format!("no HTTP client: {e}"),
                    "report this",
                )
            })?;
        Ok(Self {
            http,
            file: alive.into_iter().find(|f| Some(f.session_id) == session),
        })
    }

    async fn evidence(&self, loopback_id: Uuid) -> Option<ShimEvidence> {
        let file = self.file.as_ref()?;
        let url = format!(
            "http://127.0.0.1:{}/tee-frames?loopback_id={loopback_id}",
            file.port
        );
        let response = self
            .http
            .get(url)
            .bearer_auth(&file.token)
            .send()
            .await
            .ok()?;
        if !response.status().is_success() {
            return None;
        }
        let answer: Value = response.json().await.ok()?;
        // Only a frame of this very probe counts; a forged answer about another proves nothing.
        if answer["frame"]["loopback_id"].as_str()? != loopback_id.to_string() {
            return None;
        }
        Some(ShimEvidence {
            received_at: serde_json::from_value(answer["frame"]["received_at"].clone()).ok(),
            notification: serde_json::from_value(answer["notification"].clone()).ok(),
            echo: serde_json::from_value(answer["echo"].clone()).ok(),
        })
    }
}
