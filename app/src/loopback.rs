//! Running a probe from outside the server: the shim for its agent, the CLI for the operator.

use crate::client::{self, Client};
use crate::clock;
use crate::home::Home;
use crate::shim::files::{self, ShimFile};
use crate::shim::probe::Probes;
use prism_core::api::LoopbackModelSeen;
use prism_core::loopback::{Probe, ShimEvidence, TIMEOUT_MS, TIMEOUT_MS_MAX};
use prism_core::{Code, Moment, Problem};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a shim may take to say what it saw: one that hangs must not hang the probe.
const DOOR: Duration = Duration::from_millis(250);

/// How a probe is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The session, or at least the first 8 digits of its id.
    pub session_id: Option<String>,
    pub echo: bool,
    pub ring: bool,
    pub timeout: Duration,
    /// How long to wait for the model; nought is not at all.
    pub wait_model: Duration,
}

impl Options {
    pub fn new(
        session_id: Option<String>,
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
    witness: &Witness,
) -> Result<Probe, Problem> {
    let request =
        json!({"session_id": options.session_id, "echo": options.echo, "ring": options.ring});
    let issued: Probe = read(client.call(pid, "signal/loopback-issue", request).await?)?;
    let (shim, model_ack) = match issued.requested_by_session {
        Some(session) => {
            let shim = gather(&issued, options, &witness.of(session)?).await;
            let model_ack = model_ack(client, pid, &issued, options.wait_model).await;
            (shim, model_ack)
        }
        None => Default::default(),
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

async fn gather(issued: &Probe, options: &Options, source: &Source<'_>) -> ShimEvidence {
    let mut seen = ShimEvidence::default();
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

/// Waits for the model. What the shim saw stands whatever comes of this, so a server that cannot
/// say is a model that was not seen.
async fn model_ack(client: &Client, pid: &str, issued: &Probe, wait: Duration) -> Option<Moment> {
    let deadline = Instant::now() + wait;
    while !wait.is_zero() {
        let request = json!({"signal_id": issued.signal_id});
        let answer = client.call(pid, "signal/loopback-model", request).await;
        let answer: LoopbackModelSeen = match answer.and_then(read) {
            Ok(answer) => answer,
            Err(problem) => {
                tracing::warn!(%problem, "Whether the model answered is not known");
                return None;
            }
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if answer.model_ack.is_some() || answer.session_over || left.is_zero() {
            return answer.model_ack;
        }
        tokio::time::sleep(Duration::from_millis(50).min(left)).await;
    }
    None
}

/// Who can say what the shim saw.
pub enum Witness {
    /// This process is the shim.
    Own(Probes),
    /// The shims of this home, each asked through its own door.
    Home(Home),
}

impl Witness {
    fn of(&self, session: Uuid) -> Result<Source<'_>, Problem> {
        Ok(match self {
            Self::Own(probes) => Source::Own(probes),
            Self::Home(home) => Source::Door(Door::of(home, session)?),
        })
    }
}

enum Source<'a> {
    Own(&'a Probes),
    Door(Door),
}

impl Source<'_> {
    async fn evidence(&self, loopback_id: Uuid) -> Option<ShimEvidence> {
        match self {
            Self::Own(probes) => probes.get(loopback_id),
            Self::Door(door) => door.evidence(loopback_id).await,
        }
    }
}

/// Asks the shim of a session on this machine through its own door.
struct Door {
    http: reqwest::Client,
    file: Option<ShimFile>,
}

impl Door {
    fn of(home: &Home, session: Uuid) -> Result<Self, Problem> {
        Ok(Self {
            http: client::http_client(DOOR)?,
            file: files::of_session(home, session),
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
