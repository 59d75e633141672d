//! The server: one door in front of every route, one line per request.

mod assets;
mod connections;
mod door;
mod openapi;
mod sign_in;
mod stream;
pub mod typescript;
mod upgrade;
pub mod watch;
mod wire;

pub use upgrade::DATABASE;

use crate::clock;
use crate::config::{self, Config, Env, ServerFile, Standing, Told};
use crate::embed::Embedder;
use crate::home::{FileId, Home, Lock};
use crate::metrics::{Carrying, Metrics, Now};
use crate::prism::{Formerly, Prism};
use crate::store::{Store, StoreError};
use crate::tenants::{Ground, Tenants};
use crate::timing;
use crate::tls::Shown;
use crate::verb;
use anyhow::{Context, Result, bail};
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use connections::{Connection, Limited};
use door::Whose;
use prism_core::access::{FoundBy, Place};
use prism_core::api::close;
use prism_core::api::page::EVERYWHERE;
use prism_core::database::remedy;
use prism_core::limits::{BODY_BYTES_MAX, FIRST_REQUEST_S};
use prism_core::{Code, Problem, ProjectName};
use serde_json::{Map, Value};
use std::future::Future;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use uuid::Uuid;

/// How often, and with what pause, a starting server asks for its home's lock.
const LOCK_TRIES: usize = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(10);
/// How long a stopping server waits for requests that are under way.
const GRACE: Duration = Duration::from_secs(5);

/// How often a server looks whether its files are still there.
const HOME_LOOK: Duration = Duration::from_secs(1);

/// Which session of its identity a call comes from.
pub const SESSION_HEADER: &str = "prism-session";
/// Set by the operator's client when the project was not named but found.
pub const CREATE_HEADER: &str = "prism-create-project";

/// Where a caller stands whose project was found, not named; `file` or `folder` says how.
pub const FOUND_HEADER: &str = "prism-found";
pub const FOLDER_HEADER: &str = "prism-folder";
pub const MACHINE_HEADER: &str = "prism-machine";
/// Asks where the time of this call went; `Server-Timing` tells.
pub const TIMING_HEADER: &str = "prism-timing";
/// In an answer to the operator: the folder that the project belongs to, where the one that speaks
/// is another.
pub const ELSEWHERE_HEADER: &str = "prism-elsewhere";
/// Which version of Prism speaks, in both directions.
pub const VERSION_HEADER: &str = "prism-version";
/// What the found project was called by the rule of earlier versions.
pub const FORMERLY_HEADER: &str = "prism-formerly";

pub struct Options {
    pub home: Home,
    pub host: String,
    pub port: u16,
    pub behind_proxy: bool,
    /// A certificate and its key, if it speaks TLS itself.
    pub tls: (Option<PathBuf>, Option<PathBuf>),
    /// Where people reach the page when a proxy stands in front.
    pub public_url: Option<String>,
    /// A database that other servers stand on as well.
    pub database: Option<String>,
    /// What tells those servers of each other's commits.
    pub redis: Option<String>,
    /// Whoever started it holds the other end of its standard input: it ends with them, however
    /// they end.
    pub ends_with_stdin: bool,
    /// Nobody looks at it: it logs into a file, and makes room for a newer version.
    pub background: Option<Background>,
}

/// How a server runs that was started in the background.
pub struct Background {
    /// Nobody named the port, so another than the usual one is as good.
    pub any_port: bool,
    /// The version whose place it takes.
    pub replaces: Option<String>,
}

/// Opens the home, listens, and serves until SIGINT or SIGTERM.
pub async fn serve(options: Options, env: &Env) -> Result<()> {
    let (gate_mode, gate_note) = prism_core::gate::parse_mode(env.recallgate_mode.as_deref())
        .map_err(|p| anyhow::anyhow!(p.message))?;
    if let Some(note) = gate_note {
        tracing::warn!("{note}");
    }
    // Whatever is written from here on, the database first of all, is for this user alone.
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let home = &options.home;
    let mut config = Config::load_or_create(home, env)?;
    let tls = config::tls_files(options.tls.clone(), env, &config.server, home)?;
    config::check_bind(&options.host, options.behind_proxy, tls.is_some())?;
    let tls = tls
        .map(Shown::open)
        .transpose()
        .context("TLS cannot begin")?;
    if options.public_url.is_some() {
        config.server.public_url = options.public_url.clone();
    }
    let database = config::database(options.database.as_deref(), env, &config.server, home)
        .map_err(anyhow_of)?;
    let redis = config::redis(options.redis.as_deref(), env, &config.server).map_err(anyhow_of)?;
    let lock = only_server(home).await?;
    // A file that outlived its server; the one of this server comes when it listens.
    home.remove(ServerFile::NAME);
    let replaces = options
        .background
        .as_ref()
        .and_then(|b| b.replaces.as_deref());
    if redis.is_some() && database.is_none() {
        return Err(anyhow_of(Told::redis_alone()));
    }
    let (store, backup) = match database.clone() {
        None => upgrade::open(home, replaces)?,
        Some(url) => {
            let store = tokio::task::spawn_blocking(move || Store::open_shared(&url)).await?;
            let store = store.map_err(|error| match error {
                StoreError::Refused(p) => anyhow_of(*p),
                error => {
                    let next = remedy(&error.to_string()).map(|next| format!("; {next}"));
                    let next = next.unwrap_or_default();
                    anyhow::anyhow!("cannot open the database: {error}{next}")
                }
            });
            (store?, None)
        }
    };
    let standing = Standing::of(database.as_deref()).map_err(anyhow_of)?;
    let on_file = database.is_none();
    let (embedder, embedding) = Embedder::open(home.clone(), &store).await?;
    if let Some(reason) = embedder.off() {
        tracing::warn!("Recall works without meaning: {reason}");
    } else if let Some(lacking) = crate::embed::model::lacking(home) {
        tracing::info!("Recall works with one model: {lacking}");
    }
    let prism = Prism::open(store, &config, home, gate_mode, embedder);
    let prism = prism.await.map_err(anyhow_of)?;
    let operator = prism.operator.clone();
    let called = prism.store.database().await;
    let called = called.map_err(|e| anyhow_of(e.into()))?;
    if called.is_none() && redis.is_some() {
        tracing::warn!(
            "The database does not let this user ask which one it is (pg_control_system): on this Redis, servers \
             whose user may ask do not hear this one, and a copy of the database does"
        );
    }
    let ground = database.map(|database| Ground {
        called,
        config,
        home: home.clone(),
        gate_mode,
        database,
        redis,
    });
    let tenants = Tenants::new(prism.clone(), ground);
    let running = tenants.run(&prism, embedding).map_err(anyhow_of)?;
    let any_port = options.background.as_ref().is_some_and(|b| b.any_port);
    let listener = match bind(&options.host, options.port).await {
        Err(_) if any_port => bind(&options.host, 0).await?,
        bound => bound?,
    };
    // Whoever sees server.json may stop the server at once: it must be listening for that already.
    let stop = stop_signal(options.ends_with_stdin)?;
    let of_background = options.background.is_some();
    // A terminal or a login that ends is none of its business.
    let hangup = (of_background || tls.is_some()).then(hangup).transpose()?;
    let files = Files::of(home, &lock, on_file);
    let (lost, mut was_lost) = tokio::sync::oneshot::channel();
    let stop = async move {
        tokio::select! {
            () = stop => {}
            name = files.lost() => {
                tracing::error!("{name} is gone or another file by now: this server stops");
                let _ = lost.send(name);
            }
        }
    };
    let address = listener.local_addr()?;
    let file = ServerFile {
        url: own_url(address, tls.is_some()),
        pid: std::process::id(),
        version: config::version().into(),
        started_at: prism.started_at,
        autostarted: of_background,
        certificates: tls.iter().map(|shown| shown.fingerprint()).collect(),
        backup,
    };
    prism.browsers.listens_at(&file.url);
    prism.listens_at(address, tls.clone());
    tenants.listens_at(&file.url, address);
    // Not before: one that could not begin has changed nothing.
    let last = Standing::load(home).unwrap_or_default();
    if let Some(last) = last.filter(|last| *last != standing) {
        tracing::warn!(
            "This home stands on {} from now on, and no longer on {}",
            standing.store,
            last.store
        );
    }
    standing.remember(home)?;
    home.write(
        ServerFile::NAME,
        serde_json::to_string_pretty(&file)?.as_bytes(),
    )?;
    tracing::info!(url = %file.url, home = %home.dir().display(), operator = %operator, "Prism {} is listening", config::version());
    let hangups = hangup.map(|h| tokio::spawn(hear_hangups(h, tls.clone(), home.clone(), file)));
    let result = run(listener, tenants.clone(), tls, stop).await;
    drop(running);
    if let Some(hangups) = hangups {
        hangups.abort();
    }
    let was_lost = was_lost.try_recv().ok();
    // Without its lock, the home may have another server by now, and that file may be its.
    if was_lost != Some(ServerFile::LOCK) {
        home.remove(ServerFile::NAME);
    }
    tenants.stop(GRACE).await;
    tracing::info!("Stopped");
    drop(lock);
    if let Some(name) = was_lost {
        bail!(
            "{} was taken away from under this server, which stopped: what it holds since then is \
             lost; put the file back, or start again",
            home.path(name).display()
        );
    }
    result
}

/// A refusal as whoever starts a server reads it.
fn anyhow_of(problem: Problem) -> anyhow::Error {
    anyhow::anyhow!("{}; {}", problem.message, problem.hint)
}

/// The files that a server stands on. Nobody would find it, or what it writes, without them.
struct Files {
    home: Home,
    files: Vec<(&'static str, Option<FileId>)>,
}

impl Files {
    /// A file that was left behind for a database elsewhere is none of them.
    fn of(home: &Home, lock: &Lock, on_file: bool) -> Self {
        let mut files = vec![(ServerFile::LOCK, lock.id())];
        if on_file {
            files.push((upgrade::DATABASE, home.file_id(upgrade::DATABASE)));
        }
        Self {
            home: home.clone(),
            files,
        }
    }

    fn first_lost(&self) -> Option<&'static str> {
        let moved = |(name, id): &&(&str, _)| self.home.file_id(name) != *id;
        self.files.iter().find(moved).map(|(name, _)| *name)
    }

    /// Ends when one of them is gone, or another stands in its place; says which.
    async fn lost(self) -> &'static str {
        loop {
            if let Some(name) = self.first_lost() {
                return name;
            }
            tokio::time::sleep(HOME_LOOK).await;
        }
    }
}

/// Takes the lock that says: this server runs on this home.
async fn only_server(home: &Home) -> Result<Lock> {
    // A client that asks who holds the lock has it for an instant itself.
    for _ in 0..LOCK_TRIES {
        if let Ok(lock) = home.try_lock(ServerFile::LOCK)? {
            return Ok(lock);
        }
        tokio::time::sleep(LOCK_PAUSE).await;
    }
    match home.try_lock(ServerFile::LOCK)? {
        Ok(lock) => Ok(lock),
        Err(holder) => match holder.at_work(home) {
            Some(problem) => Err(anyhow_of(problem)),
            None => bail!(
                "{} is held by the prism server with pid {}: stop that one first, \
                 or use another --home",
                home.dir().display(),
                holder.pid
            ),
        },
    }
}

async fn bind(host: &str, port: u16) -> Result<TcpListener> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    TcpListener::bind((host, port)).await.with_context(|| {
        format!("cannot listen on {host}:{port}; choose another --port, or 0 for any free one")
    })
}

/// Serves requests until `stop` resolves, then lets those under way finish.
async fn run(
    listener: TcpListener,
    tenants: Tenants,
    tls: Option<Arc<Shown>>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> Result<()> {
    let tls = tls.map(|shown| shown.acceptor()).transpose()?;
    let keeping_up = tokio::spawn(tenants.clone().keep_up());
    let everybody = tenants.clone();
    let (stopped, stopping) = tokio::sync::oneshot::channel();
    let most = connections::capped(tenants.first().connections());
    let listener = Limited::new(listener, tls, most);
    let ending = listener.ending();
    let routes = router(tenants).into_make_service_with_connect_info::<Connection>();
    let server = axum::serve(listener, routes).with_graceful_shutdown(async move {
        stop.await;
        tracing::info!("Stopping");
        let _ = stopped.send(());
        ending.begin();
        let close_all = || everybody.close_all(close::GOING_AWAY, "the server stops");
        close_all();
        ending.everybody_left().await;
        // Those that were opened meanwhile.
        close_all();
    });
    let deadline = async {
        drop(stopping.await);
        tokio::time::sleep(GRACE).await;
    };
    let result = tokio::select! {
        result = server => result.context("the server failed"),
        () = deadline => Ok(()),
    };
    keeping_up.abort();
    result
}

/// Where what runs on this machine finds the server: not at "everywhere", which is no place.
fn own_url(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

/// Reads the certificate again at every SIGHUP. What runs on this machine knows the new one before
/// anybody is shown it.
async fn hear_hangups(
    mut hangup: tokio::signal::unix::Signal,
    tls: Option<Arc<Shown>>,
    home: Home,
    file: ServerFile,
) {
    while hangup.recv().await.is_some() {
        let Some(shown) = &tls else { continue };
        let known = |prints: [String; 2]| {
            let file = ServerFile {
                certificates: prints.into(),
                ..file.clone()
            };
            home.write(
                ServerFile::NAME,
                serde_json::to_string_pretty(&file)?.as_bytes(),
            )
        };
        match shown.read_again(known) {
            Ok(true) => tracing::info!("The new certificate is shown from now on"),
            Ok(false) => tracing::info!("The certificate is the same as before"),
            Err(error) => tracing::error!(
                "The certificate was not replaced, the one before it stays: {error:#}; mend the files and send SIGHUP again"
            ),
        }
    }
}

fn hangup() -> Result<tokio::signal::unix::Signal> {
    use tokio::signal::unix::{SignalKind, signal};
    Ok(signal(SignalKind::hangup())?)
}

/// Listens for SIGINT, SIGTERM and, if asked to, the end of standard input from this moment on.
fn stop_signal(with_stdin: bool) -> Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut terminate, mut interrupt) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    let (closed, stdin_closed) = tokio::sync::oneshot::channel();
    if with_stdin {
        // A thread of its own: the runtime would wait for a read that never returns.
        std::thread::spawn(move || {
            drop(std::io::copy(
                &mut std::io::stdin().lock(),
                &mut std::io::sink(),
            ));
            let _ = closed.send(());
        });
    }
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            Ok(()) = stdin_closed => {}
        }
    })
}

pub fn router(tenants: impl Into<Tenants>) -> Router {
    let tenants = tenants.into();
    let mut routes = Router::new()
        // Agents, the operator's CLI and the dashboard: every verb is one POST.
        .route("/api/v1/{pid}/{*verb}", post(call).fallback(wrong_method))
        .route("/api/v1/stream", get(stream::open))
        .route("/api/v1/watch", get(watch::open))
        .route("/api/v1/openapi.json", get(openapi::document))
        // Whoever watches over the process.
        .route(
            "/healthz",
            get(|| async { Json(serde_json::json!({"ok": true, "version": config::version()})) }),
        )
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        // The operator's page: its way in, itself, and its files.
        .route("/sign-in/{token}", get(sign_in::enter))
        .route("/sign-out", post(sign_in::leave))
        .route("/assets/{*name}", get(assets::asset));
    for name in [
        "favicon.ico",
        "favicon.svg",
        "icon.svg",
        "manifest.webmanifest",
    ] {
        routes = routes.route(&format!("/{name}"), get(assets::beside));
    }
    routes = routes.route("/", get(assets::index));
    for part in assets::PARTS {
        routes = routes
            .route(&format!("/{part}"), get(assets::index))
            .route(&format!("/{part}/{{*rest}}"), get(assets::index));
    }
    let under = tenants.first().browsers.path().trim_matches('/').to_owned();
    if !under.is_empty() {
        routes = routes.route(&format!("/{under}/"), get(assets::index));
    }
    let routes = routes
        .fallback(not_found)
        .layer(middleware::from_fn_with_state(tenants.clone(), door::check))
        .with_state(tenants);
    match under.as_str() {
        "" => routes,
        // A proxy may pass its path on or take it away.
        under => Router::new()
            .nest(&format!("/{under}"), routes.clone())
            .fallback_service(routes),
    }
}

/// A refusal as HTTP says it.
pub struct Refusal(pub Problem);

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(problem)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self.0.body())).into_response();
        if let Some(ms) = self.0.retry_after_ms()
            && let Ok(seconds) = ms.div_ceil(1000).to_string().parse()
        {
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// The straight line of a request: key, project and session, verb, answer.
async fn call(
    Whose(prism): Whose,
    Path((pid, path)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let verb = verb::by_path(&path);
    let began = Instant::now();
    let asked = headers.contains_key(TIMING_HEADER);
    let answering = answer(&prism, pid, &path, &headers, body);
    let (answered, spent) = match asked {
        true => timing::measured(began, answering).await,
        false => (answering.await, None),
    };
    let (outcome, elsewhere) = match answered {
        Ok(answered) => (answered.outcome, answered.elsewhere),
        Err(problem) => (Err(problem), None),
    };
    let mut response = match outcome {
        Ok(value) => Json(value).into_response(),
        Err(problem) => Refusal(problem).into_response(),
    };
    let elsewhere = elsewhere.and_then(|folder| HeaderValue::from_bytes(folder.as_bytes()).ok());
    if let Some(folder) = elsewhere {
        response.headers_mut().insert(ELSEWHERE_HEADER, folder);
    }
    if let Some(spent) = spent {
        response.headers_mut().insert("server-timing", spent);
    }
    prism.metrics.request(
        verb.map_or("unknown", |v| v.path),
        response.status().as_u16(),
    );
    response
}

/// What an admitted call came to.
struct Answered {
    outcome: Result<Value, Problem>,
    /// The folder that the operator's project belongs to, where they speak from another.
    elsewhere: Option<String>,
}

async fn answer(
    prism: &Arc<Prism>,
    pid: String,
    path: &str,
    headers: &HeaderMap,
    body: Body,
) -> Result<Answered, Problem> {
    let key = prism.known(|| sign_in::who(prism, headers)).await?;
    let verb = verb::by_path(path).ok_or_else(|| {
        let paths = verb::VERBS.iter().map(|v| v.path);
        let near = prism_core::id::nearest(path, paths.filter(|p| !p.is_empty()), 3);
        Problem::new(
            Code::UnknownVerb,
            format!("there is no verb {:?}", prism_core::text::clip(path, 60)),
            if near.is_empty() {
                "/api/v1/openapi.json lists them".into()
            } else {
                format!("did you mean {}?", near.join(" or "))
            },
        )
    })?;
    let creates_project = key.identity.is_none() && headers.contains_key(CREATE_HEADER);
    let session = session_of(headers)?;
    let (place, formerly) = (place_of(headers)?, formerly_of(headers)?);
    let speaks_from = key.identity.is_none().then(|| folder_of(headers)).flatten();
    let body = read_body(body).await?;
    // A body may take its time, and a key may be revoked meanwhile.
    prism.still_in_force(&key)?;
    let running = prism.clone();
    prism
        .to_its_end(async move {
            if pid == EVERYWHERE {
                let caller = running.caller_everywhere(&key)?;
                timing::admitted();
                let outcome = verb.call(&running, &caller, body).await;
                return Ok(Answered {
                    outcome,
                    elsewhere: None,
                });
            }
            let pid = running.name_in_use(pid, formerly).await?;
            // A demonstration that was taken away does not come back, empty, by a look at it.
            let looks = verb.is(verb::Is::ReadOnly) && pid.eq_ignore_ascii_case(crate::demo::PID);
            if creates_project && !looks {
                running.ensure_project(ProjectName::parse(&pid)?).await?;
            }
            // Whoever is nobody here binds no folder, and learns of none.
            let caller = running
                .known(|| running.caller(&key, &pid, session))
                .await?;
            running.enter(&caller.project.pid, place).await?;
            let elsewhere = running.elsewhere(&caller.project, speaks_from).await;
            timing::admitted();
            let outcome = verb.call(&running, &caller, body).await;
            Ok(Answered { outcome, elsewhere })
        })
        .await
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| v.to_str().ok())
}

fn session_of(headers: &HeaderMap) -> Result<Option<Uuid>, Problem> {
    let Some(header) = headers.get(SESSION_HEADER) else {
        return Ok(None);
    };
    let session = header.to_str().ok().and_then(|text| text.parse().ok());
    session.map(Some).ok_or_else(|| {
        Problem::field(
            "Prism-Session",
            "must be the session_id that a registration answered",
        )
    })
}

/// How and where a project was found; none where somebody named it.
fn place_of(headers: &HeaderMap) -> Result<Option<Place>, Problem> {
    let Some(by) = text(headers, FOUND_HEADER) else {
        return Ok(None);
    };
    let by = FoundBy::from_name(by)
        .ok_or_else(|| Problem::field("Prism-Found", "must be `file` or `folder`"))?;
    let (machine_id, folder) = (
        letters(headers, MACHINE_HEADER),
        letters(headers, FOLDER_HEADER),
    );
    if machine_id.is_empty() || folder.is_empty() {
        return Err(Problem::field(
            "Prism-Found",
            "comes with Prism-Machine and Prism-Folder",
        ));
    }
    Ok(Some(Place {
        machine_id,
        folder,
        by,
    }))
}

/// The machine and folder that a call comes from, where it says so.
fn folder_of(headers: &HeaderMap) -> Option<(String, String)> {
    let place = (
        letters(headers, MACHINE_HEADER),
        letters(headers, FOLDER_HEADER),
    );
    (!place.0.is_empty() && !place.1.is_empty()).then_some(place)
}

/// The project's name of earlier versions, with the machine and folder that asks.
fn formerly_of(headers: &HeaderMap) -> Result<Option<Formerly>, Problem> {
    let name = text(headers, FORMERLY_HEADER).map(ProjectName::parse);
    Ok(name.transpose()?.map(|name| Formerly {
        name,
        machine_id: letters(headers, MACHINE_HEADER),
        folder: letters(headers, FOLDER_HEADER),
    }))
}

/// A header that may hold letters of any alphabet.
fn letters(headers: &HeaderMap, name: &str) -> String {
    let value = headers.get(name).map(|v| v.as_bytes()).unwrap_or_default();
    prism_core::text::clip(
        &prism_core::text::one_line(&String::from_utf8_lossy(value)),
        4096,
    )
}

async fn read_body(body: Body) -> Result<Map<String, Value>, Problem> {
    let patience = Duration::from_secs(FIRST_REQUEST_S);
    let bytes = tokio::time::timeout(patience, to_bytes(body, BODY_BYTES_MAX));
    let bytes = bytes.await.map_err(|_| {
        Problem::new(
            Code::TooSlow,
            format!("the body did not arrive within {FIRST_REQUEST_S} s"),
            "send it again, whole",
        )
    })?;
    let bytes = bytes.map_err(|error| {
        let too_large = std::error::Error::source(&error)
            .is_some_and(|s| s.to_string().contains("length limit"));
        match too_large {
            true => Problem::new(
                Code::TooLarge,
                format!("the body is over {BODY_BYTES_MAX} bytes"),
                "send less; long text belongs in a file that the recipient can read",
            ),
            false => Problem::new(
                Code::InvalidRequest,
                "the body did not arrive whole",
                "send it again",
            ),
        }
    })?;
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(&bytes) {
        Ok(body @ Value::Object(_)) if prism_core::text::may_hold_nul(&bytes) => {
            match prism_core::text::nul_in(&body) {
                Some(field) => Err(Problem::field(
                    &field,
                    "holds the character U+0000, which no text may",
                )),
                None => Ok(body.as_object().cloned().unwrap_or_default()),
            }
        }
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(Problem::new(
            Code::InvalidRequest,
            "the body is JSON but not an object",
            "send `{...}` with the verb's fields",
        )),
        Err(e) => Err(Problem::new(
            Code::InvalidRequest,
            format!("the body is not JSON: {e}"),
            "send `{...}` with the verb's fields",
        )),
    }
}

/// How long whoever asks whether this server is ready waits for the database.
const READY: Duration = Duration::from_secs(3);

async fn ready(State(tenants): State<Tenants>) -> Response {
    let looked = tokio::time::timeout(READY, tenants.first().ready()).await;
    let silent = |_| {
        Err(Problem::new(
            Code::StorageFull,
            format!("the database said nothing for {} s", READY.as_secs()),
            "look at its machine; callers wait for it, and go on when it does",
        ))
    };
    match looked.unwrap_or_else(silent) {
        Ok(facts) => Json(serde_json::json!({
            "ready": true,
            "store": facts.engine,
            "database": facts,
            "notes": facts.notes(),
            "sockets": tenants.all().iter().map(|prism| prism.hub.sockets()).sum::<usize>(),
            "tenants": tenants.all().len(),
            "carrier": tenants.first().bus().carrier().report(),
        }))
        .into_response(),
        Err(problem) => Refusal(problem).into_response(),
    }
}

/// Counted over all tenants: whoever reads it watches over the process.
async fn metrics(State(tenants): State<Tenants>) -> Response {
    let (all, now) = (tenants.all(), clock::now());
    let carriers = all.iter().filter_map(|prism| {
        let condition = prism.bus().carrier().health()?.condition();
        Some(Carrying {
            connected: condition.connected,
            lost: condition.lost,
        })
    });
    let waiting = futures_util::future::join_all(all.iter().map(|prism| prism.embed_waiting()));
    let text = Metrics::sum(all.iter().map(|prism| &prism.metrics)).text(&Now {
        sockets: all.iter().map(|prism| prism.hub.sockets()).sum(),
        live_sessions: all.iter().map(|prism| prism.presence.live_count(now)).sum(),
        carrier: Carrying::sum(carriers),
        // Less than all of it would look like progress.
        embed_waiting: waiting.await.into_iter().sum(),
    });
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn wrong_method() -> Refusal {
    Refusal(Problem::new(
        Code::MethodNotAllowed,
        "verbs are called with POST",
        "POST a JSON object to /api/v1/{pid}/<verb>",
    ))
}

async fn not_found(request: Request) -> Refusal {
    let path = prism_core::text::clip(request.uri().path(), 80);
    Refusal(Problem::new(
        Code::NotFound,
        format!("there is nothing at {path}"),
        "verbs are POST /api/v1/{pid}/<verb>; /api/v1/openapi.json lists them",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_stands_on_the_database_in_its_home_only_where_its_rows_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let lock = home.try_lock(ServerFile::LOCK).unwrap().ok().unwrap();
        let [elsewhere, here] = [false, true].map(|on_file| Files::of(&home, &lock, on_file));
        home.write(upgrade::DATABASE, b"").unwrap();
        assert_eq!(elsewhere.first_lost(), None);
        assert_eq!(here.first_lost(), Some(upgrade::DATABASE));
        home.remove(ServerFile::LOCK);
        assert_eq!(elsewhere.first_lost(), Some(ServerFile::LOCK));
    }
}
