//! The typed way to a server: the CLI and the shim both go through here.

mod alone;
mod http;

use crate::clock;
use crate::config::ProjectChoice;
use crate::config::{self, Config, Env, ServerFile};
use crate::home::Home;
use crate::server::{
    CREATE_HEADER, ELSEWHERE_HEADER, FOLDER_HEADER, FORMERLY_HEADER, FOUND_HEADER, MACHINE_HEADER,
    SESSION_HEADER, VERSION_HEADER,
};
use crate::tls::{self, Trust};
use http::{Http, Post};
use hyper::Method;
use hyper::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use prism_core::access::may_carry_key;
use prism_core::api::page::EVERYWHERE;
use prism_core::launch::is_older;
use prism_core::limits::SEND_RETRY_S;
use prism_core::memory::surface::Warning;
use prism_core::{Code, Identity, Problem, ProjectName, api};
use serde_json::{Map, Value, json};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How long a send whose fate is unknown is retried under its key, in all.
const RETRY: Duration = Duration::from_secs(SEND_RETRY_S);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(30);
/// How long a look may take for which somebody sits at a terminal.
pub const GLANCE: Duration = Duration::from_secs(5);

/// Where the server is: asked again for each call, because a restart may move it.
#[derive(Clone, Debug)]
pub enum Locator {
    /// Wherever the environment says, with the key that the environment brings.
    Url(Target),
    /// The server of this home.
    Home(Home),
    /// `PRISM_URL` without `PRISM_API_KEY`: good while it is the server of this home.
    HomeAt(Home, String),
}

/// A server's address, and whom to believe that it is the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub url: String,
    pub trust: Trust,
}

impl<U: Into<String>> From<U> for Target {
    fn from(url: U) -> Self {
        Self {
            url: url.into(),
            trust: Trust::System,
        }
    }
}

impl Target {
    /// How to speak TLS with it; none where it is plain HTTP.
    pub fn tls(&self) -> Result<Option<Arc<rustls::ClientConfig>>, Problem> {
        let https = self.url.starts_with("https:");
        https.then(|| self.trust.config()).transpose()
    }

    /// A connection that did not come to be, for the reasons that TLS has.
    pub fn refused(&self, error: &std::io::Error) -> Option<Problem> {
        let (what, hint) = tls::said(error)?;
        let message = format!("the server at {} is not trusted: {what}", self.url);
        Some(Problem::new(Code::ServerUnreachable, message, hint))
    }
}

impl From<ServerFile> for Target {
    fn from(file: ServerFile) -> Self {
        Self {
            url: file.url,
            trust: Trust::Known(file.certificates),
        }
    }
}

impl Locator {
    pub fn of(env: &Env, home: &Home) -> Result<Self, Problem> {
        let Some(url) = &env.url else {
            return Ok(Self::Home(home.clone()));
        };
        let url = checked_url(url, env.allow_http)?;
        Ok(match env.api_key {
            Some(_) => Self::Url(Target {
                url,
                trust: match &env.ca_file {
                    Some(file) => Trust::Authority(file.into()),
                    None => Trust::System,
                },
            }),
            None => Self::HomeAt(home.clone(), url),
        })
    }

    pub fn url(&self) -> Result<String, Problem> {
        self.target().map(|target| target.url)
    }

    pub fn target(&self) -> Result<Target, Problem> {
        let of_home = |home: &Home| -> Result<Option<Target>, Problem> {
            home.check().map_err(untrusted)?;
            Ok(ServerFile::load(home).map(Target::from))
        };
        match self {
            Self::Url(target) => Ok(target.clone()),
            Self::Home(home) => of_home(home)?.ok_or_else(|| {
                not_running(&format!("no prism server runs on {}", home.dir().display()))
            }),
            // A key of this home never goes to a server that is not of this home.
            Self::HomeAt(home, url) => match of_home(home)? {
                Some(own) if own.url == *url => Ok(own),
                None => Err(not_running(&format!(
                    "no prism server runs on {}",
                    home.dir().display()
                ))),
                Some(_) => Err(Problem::new(
                    Code::MissingKey,
                    format!(
                        "PRISM_URL is {url}, which is not the running server of {}",
                        home.dir().display()
                    ),
                    "set PRISM_API_KEY to a key of that server, or unset PRISM_URL",
                )),
            },
        }
    }

    /// Whether the server of this home is being started or replaced, and comes back soon.
    fn is_changing(&self) -> bool {
        match self {
            Self::Url(_) => false,
            Self::Home(home) | Self::HomeAt(home, _) => crate::background::is_changing(home),
        }
    }
}

/// The address of `PRISM_URL`, if a key may travel to it.
fn checked_url(text: &str, allow_http: bool) -> Result<String, Problem> {
    let refuse = |why: &str, hint: &str| {
        let text = prism_core::text::clip(text, 100);
        Err(Problem::new(
            Code::InvalidRequest,
            format!("PRISM_URL is {text:?}: {why}"),
            hint,
        ))
    };
    let example = "set it like https://prism.example or http://127.0.0.1:7747";
    let Ok(url) = reqwest::Url::parse(text.trim()) else {
        return refuse("that is no address", example);
    };
    let host = url.host_str().unwrap_or_default();
    let plain = url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    if !plain || host.is_empty() {
        return refuse("only scheme, host, port and path belong there", example);
    }
    if !may_carry_key(url.scheme(), host, allow_http) {
        return refuse(
            "the key would travel in the clear",
            "use https, or set PRISM_ALLOW_HTTP=1 if the network between is yours",
        );
    }
    if !may_carry_key(url.scheme(), host, false) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            crate::ui::note(&format!(
                "prism: warning: the key travels in the clear to {host} (PRISM_ALLOW_HTTP=1)"
            ));
        });
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn untrusted(error: anyhow::Error) -> Problem {
    if let Some(problem) = error.downcast_ref::<Problem>() {
        return problem.clone();
    }
    Problem::new(
        Code::NotYours,
        format!("{error:#}"),
        "Prism uses a home only when nobody else can have written it",
    )
}

pub fn not_running(message: &str) -> Problem {
    Problem::new(
        Code::ServerUnreachable,
        message,
        "start it with `prism up` (in this terminal: `prism serve`), or set PRISM_URL to one that runs elsewhere",
    )
}

/// The one way a client is made for whatever else speaks HTTP on this machine: hosts, shims' doors.
pub fn http_client(timeout: Duration) -> Result<reqwest::Client, Problem> {
    // The first provider installed wins; a second call changes nothing.
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder()
        .timeout(timeout)
        .connect_timeout(http::CONNECT)
        .tcp_nodelay(true)
        .pool_idle_timeout(http::KEPT)
        // Wherever a server points, the key does not follow.
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        // Reading the machine's certificates takes longer than a whole call within it.
        .tls_certs_only([]);
    http.build().map_err(|e| {
        Problem::new(
            Code::Internal,
            format!("no HTTP client: {e}"),
            "report this",
        )
    })
}

#[derive(Clone)]
pub struct Client {
    http: Http,
    locator: Locator,
    key: String,
    session: Option<Uuid>,
    /// How long one request may take.
    patience: Duration,
    /// The project was found, not named: first use may create it.
    create_project: bool,
    /// Where a caller stands who found its project.
    place: Vec<(&'static str, HeaderValue)>,
    /// The folder that the server says this project belongs to, where it is another than ours.
    elsewhere: Arc<OnceLock<String>>,
}

impl Client {
    pub fn new(locator: Locator, key: String) -> Result<Self, Problem> {
        Ok(Self {
            http: Http::default(),
            locator,
            key,
            session: None,
            patience: REQUEST,
            create_project: false,
            place: Vec::new(),
            elsewhere: Arc::default(),
        })
    }

    /// For a caller who does nothing else until each answer is there.
    pub fn alone(mut self) -> Self {
        self.http.alone = true;
        self
    }

    pub fn with_session(&self, session: Option<Uuid>) -> Self {
        Self {
            session,
            ..self.clone()
        }
    }

    pub fn with_patience(&self, patience: Duration) -> Self {
        Self {
            patience,
            ..self.clone()
        }
    }

    pub fn creating_project(&self) -> Self {
        Self {
            create_project: true,
            ..self.clone()
        }
    }

    /// Looks at a project and never makes it.
    pub fn looking(&self) -> Self {
        Self {
            create_project: false,
            ..self.clone()
        }
    }

    /// Says what a found project was called by the rule of earlier versions: where that one has
    /// rows, it goes on.
    pub fn once_called(&self, project: &ProjectChoice) -> Self {
        let formerly = project.found.as_ref().and_then(|f| f.formerly.as_ref());
        let Some(formerly) = formerly else {
            let place = Vec::new();
            return Self {
                place,
                ..self.clone()
            };
        };
        let mut client = self.speaking_from(project);
        client
            .place
            .push((FORMERLY_HEADER, header(formerly.as_str())));
        client
    }

    /// Says which folder a found project was found in: the server tells when it belongs to another.
    pub fn speaking_from(&self, project: &ProjectChoice) -> Self {
        let mut client = self.clone();
        let told = client.place.iter().any(|(name, _)| *name == FOLDER_HEADER);
        if let Some(found) = project.found.as_ref().filter(|_| !told) {
            let machine = header(&config::machine_id());
            client.place.push((FOLDER_HEADER, header(&found.folder)));
            client.place.push((MACHINE_HEADER, machine));
        }
        client
    }

    /// Says how and where the project was found, to be let into it.
    pub fn standing_at(&self, project: &ProjectChoice) -> Self {
        let mut client = self.once_called(project).speaking_from(project);
        if let Some(found) = &project.found {
            client.place.push((FOUND_HEADER, header(found.by.name())));
        }
        client
    }

    /// The folder that the project belongs to, once the server has said that it is not ours.
    pub fn elsewhere(&self) -> Option<&str> {
        self.elsewhere.get().map(String::as_str)
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn locator(&self) -> &Locator {
        &self.locator
    }

    /// Calls a verb once.
    pub async fn call(&self, pid: &str, path: &str, body: Value) -> Result<Value, Problem> {
        let attempt = self.attempt(pid, path, &body, self.patience);
        attempt.await.map_err(|f| f.problem)
    }

    /// Calls a verb, again while the server is too busy to take it; then says so.
    pub async fn call_while_busy(
        &self,
        pid: &str,
        path: &str,
        body: Value,
        within: Duration,
    ) -> Result<Value, Problem> {
        let mut retries = Retries::within(within);
        loop {
            match self.call(pid, path, body.clone()).await {
                Err(problem) if problem.is_busy() && retries.wait(&problem).await => {}
                outcome => return outcome,
            }
        }
    }

    async fn attempt(
        &self,
        pid: &str,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Value, Unanswered> {
        // It becomes a part of the address.
        let pid = match pid {
            EVERYWHERE => EVERYWHERE.to_owned(),
            pid => ProjectName::parse(pid)
                .map_err(Unanswered::unsent)?
                .to_string(),
        };
        let post = Post {
            method: Method::POST,
            path: format!("/api/v1/{pid}/{path}"),
            headers: self.headers(),
            body: serde_json::to_vec(body).map_err(|e| Unanswered::unsent(unwritten(&e)))?,
            patience,
        };
        self.answer(post).await
    }

    /// What the server says of itself and of what it stands on.
    pub async fn ready(&self) -> Result<Value, Problem> {
        let look = Post {
            method: Method::GET,
            path: "/readyz".into(),
            headers: self.headers(),
            body: Vec::new(),
            patience: self.patience,
        };
        self.answer(look).await.map_err(|f| f.problem)
    }

    async fn answer(&self, post: Post) -> Result<Value, Unanswered> {
        let answered = self.http.post(&self.locator, post).await?;
        let (url, status) = (answered.url, answered.status);
        if let Some(folder) = answered.headers.get(ELSEWHERE_HEADER) {
            let folder = String::from_utf8_lossy(folder.as_bytes()).into_owned();
            self.elsewhere.get_or_init(|| folder);
        }
        let answer: Value = serde_json::from_slice(&answered.body).map_err(|e| Unanswered {
            problem: Problem::new(
                Code::Internal,
                format!("the answer of {url} ({status}) could not be read: {e}"),
                "what you asked for may have been done: look before you ask again",
            ),
            sent: WasSent::Perhaps,
        })?;
        if status.is_success() {
            return Ok(answer);
        }
        let problem = serde_json::from_value(answer.get("error").cloned().unwrap_or_default())
            .unwrap_or_else(|_| {
                Problem::new(
                    Code::Internal,
                    format!("{url} answered {status} without saying why"),
                    "is it a prism server? `prism doctor` looks",
                )
            });
        let mut problem: Problem = problem;
        let theirs = answered.headers.get(VERSION_HEADER);
        if problem.is(Code::UnknownVerb)
            && let Some(theirs) = theirs.and_then(|version| version.to_str().ok())
            && is_older(theirs, config::version())
        {
            let theirs = prism_core::text::clip(&prism_core::text::one_line(theirs), 40);
            problem.hint = format!(
                "the server is of Prism {theirs}, and this is {}: `prism restart` starts the newer one",
                config::version()
            );
        }
        problem.status = status.as_u16();
        Err(Unanswered {
            problem,
            sent: WasSent::Answered,
        })
    }

    /// Who calls, from where, and what it speaks.
    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        let mut key = header(&format!("Bearer {}", self.key));
        key.set_sensitive(true);
        headers.insert(AUTHORIZATION, key);
        let mut say = |name: &'static str, value: HeaderValue| {
            headers.insert(HeaderName::from_static(name), value);
        };
        say(VERSION_HEADER, header(config::version()));
        if let Some(session) = self.session {
            say(SESSION_HEADER, header(&session.to_string()));
        }
        if self.create_project {
            say(CREATE_HEADER, HeaderValue::from_static("true"));
        }
        for (name, value) in &self.place {
            say(name, value.clone());
        }
        headers
    }

    /// Sends a signal under an idempotency key, retrying while its fate is unknown.
    pub async fn send_signal(
        &self,
        pid: &str,
        mut body: Map<String, Value>,
        unreachable: Unreachable,
    ) -> Result<Value, Problem> {
        let given = body
            .get("idempotency_key")
            .and_then(Value::as_str)
            .map(str::to_owned);
        let key = given.unwrap_or_else(|| clock::new_id().to_string());
        body.insert("idempotency_key".into(), key.clone().into());
        let body = Value::Object(body);
        let mut retries = Retries::within(RETRY);
        let mut perhaps_sent = false;
        loop {
            // A server that took the request and says nothing is waited for as long, no longer.
            let left = retries.left();
            let attempt = self.attempt(pid, "signal", &body, left.min(self.patience));
            let failure = match tokio::time::timeout(left, attempt).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(failure)) => failure,
                Err(_) => Unanswered {
                    problem: not_running("the server did not answer in time"),
                    sent: WasSent::Perhaps,
                },
            };
            let busy = failure.problem.is_busy();
            match failure.sent {
                // Too busy to look at it: that says nothing of an earlier attempt.
                WasSent::Answered if busy => {}
                // The server itself was not told what became of it.
                WasSent::Answered if failure.problem.is(Code::OutcomeUnknown) => {
                    perhaps_sent = true;
                }
                // This attempt stored nothing. What became of an earlier one that may have been stored, only an
                // answer under its key says.
                WasSent::Answered if perhaps_sent && failure.problem.status >= 500 => {}
                WasSent::Answered => return Err(failure.problem),
                WasSent::Perhaps => perhaps_sent = true,
                // It is not the server that is missing.
                WasSent::No if !perhaps_sent && !failure.problem.is(Code::ServerUnreachable) => {
                    return Err(failure.problem);
                }
                // Nothing runs there and nothing was sent: say so at once, unless one server makes
                // room for another just now, or the caller has seen one that may come back.
                WasSent::No
                    if !perhaps_sent
                        && unreachable == Unreachable::Say
                        && !self.locator.is_changing() =>
                {
                    return Err(failure.problem);
                }
                WasSent::No => {}
            }
            if !retries.wait(&failure.problem).await {
                if !perhaps_sent {
                    return Err(failure.problem);
                }
                let message = format!(
                    "the server took the signal and gave no readable answer within {SEND_RETRY_S} s; \
                     it may or may not be stored"
                );
                return Err(Problem::new(
                    Code::OutcomeUnknown,
                    message,
                    "send it again with the same idempotency_key: it will not arrive twice",
                )
                .with("idempotency_key", key));
            }
        }
    }

    /// Adds the identity to the project, creating the project; needs the operator's key.
    pub async fn ensure_persona(
        &self,
        pid: &str,
        identity: &Identity,
    ) -> Result<api::PersonaAdded, Problem> {
        let answer = self
            .creating_project()
            .call(pid, "persona_add", json!({ "identity": identity }))
            .await?;
        serde_json::from_value(answer).map_err(|e| unwritten(&e))
    }
}

/// When to ask again, and until when.
struct Retries {
    until: Instant,
    pause: Duration,
}

impl Retries {
    fn within(time: Duration) -> Self {
        Self {
            until: Instant::now() + time,
            pause: Duration::from_millis(20),
        }
    }

    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits as long as the server says, else a little longer each time; false when the time that
    /// is left is not enough for it.
    async fn wait(&mut self, problem: &Problem) -> bool {
        let told = problem.retry_after_ms().map(Duration::from_millis);
        let pause = told.unwrap_or(self.pause);
        if pause >= self.left() {
            return false;
        }
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(500));
        true
    }
}

/// What a send does while no server can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// Says so at once: whoever types a command wants to know.
    Say,
    /// Tries again: the server of an open session was there, and comes back from a restart.
    Retry,
}

struct Unanswered {
    problem: Problem,
    sent: WasSent,
}

#[derive(Clone, Copy)]
enum WasSent {
    /// The server answered: that is the outcome.
    Answered,
    /// The connection broke after it was made, or the answer could not be read.
    Perhaps,
    /// No connection was made.
    No,
}

impl Unanswered {
    fn unsent(problem: Problem) -> Self {
        Self {
            problem,
            sent: WasSent::No,
        }
    }

    fn unreached(url: &str) -> Self {
        Self::unsent(not_running(&format!("no prism server answers at {url}")))
    }

    /// A connection was made, and then this happened.
    fn broken(url: &str, why: &str) -> Self {
        Self {
            problem: Problem::new(
                Code::ServerUnreachable,
                format!("the server at {url} {why}"),
                "it runs, or did: ask again; if it stays silent, `prism doctor` looks at it and \
                 `prism restart` starts it anew",
            ),
            sent: WasSent::Perhaps,
        }
    }
}

fn unwritten(error: &serde_json::Error) -> Problem {
    Problem::new(Code::Internal, error.to_string(), "report this")
}

/// Text as a header carries it; a folder's name may have letters of any alphabet.
fn header(text: &str) -> HeaderValue {
    let line = text.replace(|c: char| c.is_control(), "?");
    HeaderValue::from_bytes(line.as_bytes()).unwrap_or_else(|_| HeaderValue::from_static("?"))
}

/// Held by whoever makes a key for this home.
pub const MINT_LOCK: &str = "keys/mint.lock";

/// The file that holds an identity's key, whatever its spelling in the environment.
pub fn key_file(home: &Home, identity: &Identity) -> String {
    let exact = format!("{identity}.key");
    let stored = home
        .list("keys", "", ".key")
        .into_iter()
        .find(|name| name.eq_ignore_ascii_case(&exact));
    format!("keys/{}", stored.unwrap_or(exact))
}

/// The identity's key of this home.
pub fn agent_key(home: &Home, identity: &Identity) -> Result<Option<String>, Problem> {
    let key = home.read_secret(&key_file(home, identity));
    let key = key.map_err(untrusted)?.map(|k| k.trim().to_owned());
    Ok(key.filter(|k| !k.is_empty()))
}

/// The operator's key of this home, unless the environment brings its own key.
pub fn operator_key(env: &Env, home: &Home) -> Result<Option<String>, Problem> {
    if env.api_key.is_some() {
        return Ok(None);
    }
    Config::key(home).map_err(untrusted)
}

/// The key to call with: the environment's, the identity's own, or the operator's.
pub fn find_key(env: &Env, home: &Home, identity: Option<&Identity>) -> Result<String, Problem> {
    if let Some(key) = &env.api_key {
        return Ok(key.clone());
    }
    match identity {
        Some(identity) => agent_key(home, identity)?.ok_or_else(|| {
            Problem::new(
                Code::MissingKey,
                format!("{identity} has no key in {}", home.dir().display()),
                format!(
                    "start the agent once (`prism mcp` makes its key), \
                     or run `prism key mint {identity}` as the operator"
                ),
            )
        }),
        None => operator_key(env, home)?.ok_or_else(|| {
            Problem::new(
                Code::MissingKey,
                format!("there is no operator's key in {}", home.dir().display()),
                "run `prism up` once with this PRISM_HOME, or set PRISM_API_KEY",
            )
        }),
    }
}
/// Puts warnings of this side of the wire behind those of an answer.
pub fn warn_beside(answer: &mut Map<String, Value>, warnings: Vec<Warning>) {
    if warnings.is_empty() {
        return;
    }
    let said = answer.entry("warnings").or_insert_with(|| json!([]));
    if let Value::Array(said) = said {
        said.extend(warnings.into_iter().map(|warning| json!(warning)));
    }
}
