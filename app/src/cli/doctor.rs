//! `prism doctor`: looks at this machine's Prism and says what is wrong.

use super::keys::other_operator_keys;
use super::{Context, print_json};
use crate::background;
use crate::client::{self, Client, Locator};
use crate::clock;
use crate::config::{self, Config, ServerFile, Standing, Told};
use crate::connect::Machine;
use crate::connect::check::check;
use crate::embed::model;
use crate::log::file as log_file;
use crate::shim::cache::Cache;
use crate::shim::files;
use crate::store::{self, Store, StoreError};
use crate::ui::{Failure, Outcome, out, table};
use prism_core::api::Retained;
use prism_core::api::memory::MemoryStats;
use prism_core::connect::{Host, Scope};
use prism_core::database::Facts;
use prism_core::launch::is_older;
use prism_core::limits::BUS_ANSWER_S;
use prism_core::memory::generation::Model;
use prism_core::{Code, Identity, Moment, Problem};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a Redis may take to be reached and to answer.
const REDIS_ANSWER: Duration = Duration::from_secs(BUS_ANSWER_S);

#[derive(Clone, Copy, PartialEq)]
enum Level {
    Good,
    Note,
    Wrong,
}

struct Finding {
    level: Level,
    about: String,
    says: String,
}

pub async fn run(context: Context) -> Outcome {
    let mut findings = Vec::new();
    let mut add = |level, about: &str, says: String| {
        findings.push(Finding {
            level,
            about: about.into(),
            says,
        })
    };
    look_at_home(&context, &mut add);
    let runs = look_at_server(&context, &mut add).await;
    if !runs {
        look_at_configured(&context, &mut add).await;
    }
    look_at_log(&context, &mut add);
    look_at_model(&context, &mut add);
    look_at_keys(&context, &mut add);
    look_at_rings(&context, &mut add);
    look_at_shims(&context, &mut add);
    look_at_hosts(&context, &mut add);
    let wrong = findings.iter().any(|f| f.level == Level::Wrong);
    if context.json {
        let name = |l| {
            if l == Level::Good {
                "ok"
            } else if l == Level::Note {
                "note"
            } else {
                "wrong"
            }
        };
        let rows: Vec<Value> = findings
            .iter()
            .map(|f| json!({"level": name(f.level), "about": f.about, "says": f.says}))
            .collect();
        print_json(&json!({"ok": !wrong, "findings": rows}));
    } else {
        let style = context.style;
        let mark = |l| match l {
            Level::Good => style.paint("32", "✓"),
            Level::Note => style.paint("33", "•"),
            Level::Wrong => style.paint("31", "✗"),
        };
        out(&table(
            &findings
                .iter()
                .map(|f| vec![mark(f.level), f.about.clone(), f.says.clone()])
                .collect::<Vec<_>>(),
        ));
    }
    if wrong {
        Err(Failure::Negative)
    } else {
        Ok(())
    }
}

/// `prism ready`: the answer of `/readyz`, for a probe that has no other way to ask.
pub async fn ready(context: Context) -> Outcome {
    let locator = Locator::of(&context.env, &context.home)?;
    // Anybody may ask this: no key leaves this machine for it.
    let answer = Client::new(locator, String::new())?.ready().await;
    match (answer, context.json) {
        (Ok(answer), true) => print_json(&answer),
        (Ok(answer), false) => {
            let facts = serde_json::from_value::<Facts>(answer["database"].clone());
            out(&facts.map_or_else(|_| "ready".into(), |f| format!("ready: {}", f.line())));
        }
        (Err(problem), _) => {
            crate::ui::note(&format!(
                "prism: not ready: {}; {}",
                problem.message, problem.hint
            ));
            return Err(Failure::Negative);
        }
    }
    Ok(())
}

/// A refusal in one line, without what sends whoever reads it here.
fn says_of(problem: &Problem) -> String {
    let hint = problem.hint.split_inclusive(&[';', '?'][..]);
    let mut said = problem.message.clone();
    for part in hint.filter(|part| !part.contains("`prism doctor`")) {
        let part = part.trim().trim_end_matches(';');
        let asked = said.ends_with('?');
        said.push_str(if asked { " " } else { "; " });
        said.push_str(part);
    }
    said
}

fn look_at_home(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let dir = context.home.dir().display().to_string();
    match context.home.mode("") {
        None => add(
            Level::Note,
            "home",
            format!("{dir} does not exist yet; `prism up` makes it"),
        ),
        Some(0o700) => add(Level::Good, "home", dir),
        Some(mode) => add(
            Level::Wrong,
            "home",
            format!("{dir} has mode {mode:o}, so others may read keys: chmod 700 {dir}"),
        ),
    }
    match Config::load(&context.home) {
        Ok(Some(config)) if config.api_key.is_empty() => add(
            Level::Note,
            "config",
            "it has no key yet; the next `prism up` writes one into it".into(),
        ),
        Ok(Some(config)) => match config.check() {
            Ok(()) => add(
                Level::Good,
                "config",
                format!("the operator is {}", config.operator),
            ),
            Err(e) => add(Level::Wrong, "config", format!("{e:#}")),
        },
        Ok(None) => add(
            Level::Note,
            "config",
            "none yet; the first `prism up` writes it".into(),
        ),
        Err(e) => add(Level::Wrong, "config", format!("{e:#}")),
    }
    for name in ["config.toml"] {
        if let Some(mode) = context.home.mode(name).filter(|m| m & 0o077 != 0) {
            add(
                Level::Wrong,
                "config",
                format!("{name} has mode {mode:o} and holds the operator's key: chmod 600 it"),
            );
        }
    }
}

/// False when no server of this home answers.
async fn look_at_server(context: &Context, add: &mut impl FnMut(Level, &str, String)) -> bool {
    let located = Locator::of(&context.env, &context.home).and_then(|l| Ok((l.url()?, l)));
    let (url, locator) = match located {
        Ok(found) => found,
        Err(problem) => {
            let says = says_of(&problem);
            add(Level::Wrong, "server", says);
            return false;
        }
    };
    let own = ServerFile::load(&context.home).filter(|f| f.url == url);
    if let Some(problem) = own.as_ref().and_then(background::silence) {
        let says = says_of(&problem);
        add(Level::Wrong, "server", says);
        return false;
    }
    let key = client::find_key(&context.env, &context.home, None);
    let client = key.and_then(|key| Client::new(locator.clone(), key));
    let asked = match client.map(|c| c.creating_project()) {
        Ok(client) => {
            let answer = client.call(context.pid(), "status", json!({})).await;
            answer.map(|answer| (client, answer))
        }
        Err(problem) => Err(problem),
    };
    match asked {
        Ok((client, answer)) => {
            let version = answer["server_version"].as_str().unwrap_or("?");
            let mine = config::version();
            let (level, differs) = match &own {
                _ if version == mine => (Level::Good, String::new()),
                _ if is_older(mine, version) => {
                    (Level::Note, format!(", newer than this binary ({mine})"))
                }
                Some(f) if f.autostarted => (
                    Level::Wrong,
                    format!(", but this binary is {mine}: `prism up` replaces it"),
                ),
                _ => (
                    Level::Wrong,
                    format!(", but this binary is {mine}: restart the server"),
                ),
            };
            let place = own.map(|f| match f.autostarted {
                true => format!(" in the background (pid {})", f.pid),
                false => format!(" in a terminal (pid {})", f.pid),
            });
            let place = place.unwrap_or_default();
            add(
                level,
                "server",
                format!("{url}, version {version}{differs}{place}"),
            );
            let sessions = answer["sessions"].as_array().map_or(0, Vec::len);
            look_at_database(&client, add).await;
            look_at_named_store(context, add);
            look_at_history(&client, context.pid(), add).await;
            look_at_switch(&client, context.pid(), add).await;
            look_at_operator_keys(&client, context.pid(), add).await;
            add(
                Level::Good,
                "project",
                format!("{}: {sessions} open session(s)", context.pid()),
            );
            true
        }
        Err(problem) => {
            let held = ServerFile::load(&context.home)
                .map(|f| format!(" (server.json names pid {})", f.pid))
                .unwrap_or_default();
            add(
                Level::Wrong,
                "server",
                says_of(&Problem {
                    message: format!("{}{held}", problem.message),
                    ..problem
                }),
            );
            // What it stands on it says itself, whoever asks and whatever keeps it from answering verbs.
            let Ok(client) = Client::new(locator, String::new()) else {
                return false;
            };
            let is_one = own.is_some() || client.ready().await.is_ok();
            if is_one {
                look_at_database(&client, add).await;
            }
            is_one
        }
    }
}

/// What the running server stands on, in its own words.
async fn look_at_database(client: &Client, add: &mut impl FnMut(Level, &str, String)) {
    let answer = match client.ready().await {
        Ok(answer) => answer,
        Err(problem) => {
            let says = says_of(&problem);
            return add(Level::Wrong, "database", says);
        }
    };
    // A server of an earlier version does not say.
    if let Ok(facts) = serde_json::from_value::<Facts>(answer["database"].clone()) {
        add(Level::Good, "database", facts.line());
        for note in facts.notes() {
            add(Level::Note, "database", note);
        }
    }
    // What carries word between servers says how it is in the same form.
    let carrier = &answer["carrier"];
    if let Some(says) = carrier["says"].as_str() {
        let level = match carrier["ok"].as_bool() {
            Some(false) => Level::Wrong,
            _ => Level::Good,
        };
        add(level, "carrier", says.to_owned());
    }
}

/// What is named for servers of this home may be another store than the one that runs stands on.
fn look_at_named_store(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let config = Config::load(&context.home).ok().flatten();
    let config = config.map(|c| c.server).unwrap_or_default();
    let (env, home) = (&context.env, &context.home);
    if env.url.is_none()
        && let Some((stands, named)) = Standing::otherwise(None, env, &config, home)
    {
        let says = format!(
            "the server stands on {}, and {} is named for it here: `prism restart` has it stand on that",
            stands.store, named.store
        );
        add(Level::Note, "database", says);
    }
}

/// What no server stands on now may be why there is none.
async fn look_at_configured(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let configured = Config::load(&context.home).ok().flatten();
    let configured = configured.map(|c| c.server).unwrap_or_default();
    let database = config::database(None, &context.env, &configured, &context.home);
    let redis = match config::redis(None, &context.env, &configured) {
        // A server that is alone with its file would not start with one.
        Ok(Some(_)) if database == Ok(None) => Err(Told::redis_alone()),
        redis => redis,
    };
    match database {
        Ok(Some(url)) => look_at_configured_database(url, add).await,
        Ok(None) => {}
        Err(p) => add(Level::Wrong, "database", says_of(&p)),
    }
    match redis {
        Ok(Some(url)) => match ping(&url).await {
            Ok(place) => add(Level::Good, "carrier", format!("Redis at {place} answers")),
            Err(p) => add(Level::Wrong, "carrier", says_of(&p)),
        },
        Ok(None) => {}
        Err(p) => add(Level::Wrong, "carrier", says_of(&p)),
    }
}

/// Asks a Redis whether it is there; says where that is, without user and password.
async fn ping(url: &str) -> Result<String, Problem> {
    let client = redis::Client::open(url).map_err(|error| {
        let said = format!("this is no address of a Redis: {error}");
        let form = "write it as redis://[[user]:password@]host[:port][/database], or rediss:// where it speaks TLS";
        Problem::new(Code::InvalidRequest, said, form)
    })?;
    let place = client.get_connection_info().addr().to_string();
    let patient = redis::AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None);
    let asked = tokio::time::timeout(REDIS_ANSWER, async {
        let connecting = client.get_multiplexed_async_connection_with_config(&patient);
        let mut connection = connecting.await?;
        redis::cmd("PING").exec_async(&mut connection).await
    });
    let (said, next) = match asked.await {
        Ok(Ok(())) => return Ok(place),
        Err(_) => (
            format!("it said nothing for {} s", REDIS_ANSWER.as_secs()),
            "is it a Redis, and does a firewall let answers through?",
        ),
        Ok(Err(error)) => {
            let of_key = error.kind() == redis::ErrorKind::AuthenticationFailed
                || matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
            let next = match of_key {
                true => {
                    "check user and password of the URL (letters such as @ : / are written %40 %3A %2F there)"
                }
                false => {
                    "is it running, and is host and port right? `redis-cli ping` asks from here"
                }
            };
            (error.to_string(), next)
        }
    };
    let message = format!(
        "Redis at {place} cannot be used: {said}; servers start without it, and look for each other's word every two seconds"
    );
    Err(Problem::new(Code::StorageFull, message, next))
}

async fn look_at_configured_database(url: String, add: &mut impl FnMut(Level, &str, String)) {
    let looked = tokio::task::spawn_blocking(move || Store::look_at_shared(&url)).await;
    let looked = looked.unwrap_or(Err(StoreError::Closed));
    match looked.map_err(Problem::from) {
        Ok(facts) => {
            match facts.refusal(store::NEWEST_SCHEMA).or(facts.denial()) {
                None => add(Level::Good, "database", facts.line()),
                Some(p) => add(Level::Wrong, "database", says_of(&p)),
            }
            for note in facts.notes() {
                add(Level::Note, "database", note);
            }
        }
        Err(p) => add(Level::Wrong, "database", says_of(&p)),
    }
}

fn look_at_log(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    if let Some(bytes) = log_file::size(&context.home) {
        let path = context.home.path(log_file::NAME);
        let says = format!(
            "{}, {} KiB with older ones",
            path.display(),
            bytes.div_ceil(1024)
        );
        match context.home.mode(log_file::NAME).filter(|m| m & 0o077 != 0) {
            None => add(Level::Good, "log", says),
            Some(mode) => {
                let says = format!("{says}, has mode {mode:o}: chmod 600 it");
                add(Level::Wrong, "log", says);
            }
        }
    }
}

async fn look_at_operator_keys(
    client: &Client,
    pid: &str,
    add: &mut impl FnMut(Level, &str, String),
) {
    // An agent's key may not ask; there is nothing wrong with that.
    let answer = client.call(pid, "key_list", json!({})).await.ok();
    if let Some(keys) = answer.and_then(|a| serde_json::from_value(a).ok()) {
        for warning in other_operator_keys(&keys, client.key()) {
            add(Level::Note, "keys", warning);
        }
    }
}

/// Whether rows are being embedded anew, and how far that is; and whether some cannot be.
async fn look_at_switch(client: &Client, pid: &str, add: &mut impl FnMut(Level, &str, String)) {
    let Ok(answer) = client.call(pid, "memory_stats", json!({})).await else {
        return;
    };
    let Ok(stats) = serde_json::from_value::<MemoryStats>(answer) else {
        return;
    };
    if let Some(switching) = &stats.switching {
        add(Level::Note, "model", switching.to_string());
    }
    if stats.embed_set_aside > 0 {
        let says = format!(
            "{} row(s) of {pid} broke the embedder and were set aside: recall finds them by words \
             alone; `prism memory reembed --pid {pid}` tries again",
            stats.embed_set_aside
        );
        add(Level::Note, "rows", says);
    }
}

/// What is kept and since when, and what goes next.
async fn look_at_history(client: &Client, pid: &str, add: &mut impl FnMut(Level, &str, String)) {
    let answer = match client.call(pid, "retention", json!({})).await {
        Ok(answer) => answer,
        // An agent's key may not ask; there is nothing wrong with that.
        Err(_) => return,
    };
    let Ok(history) = serde_json::from_value::<Retained>(answer) else {
        let odd = "the server says it in a way that this binary does not know: restart it";
        return add(Level::Note, "history", odd.into());
    };
    let day = |at: Moment| at.to_string()[..10].to_owned();
    for kind in &history.kinds {
        let since = kind.oldest.map(|at| format!(" since {}", day(at)));
        let kept = match kind.days {
            0 => "kept for ever".to_owned(),
            days => format!("kept {days} days"),
        };
        let says = format!(
            "{}: {} row(s){}, {kept}",
            kind.kind,
            kind.rows,
            since.unwrap_or_default()
        );
        add(Level::Good, "history", says);
    }
    let going = history.kinds.iter().filter(|k| k.going > 0);
    let going: Vec<_> = going.map(|k| format!("{} {}", k.going, k.kind)).collect();
    if history.begins_at > clock::now() {
        let what = match going.is_empty() {
            true => "nothing so far".to_owned(),
            false => format!("up to {}", going.join(", ")),
        };
        let says = format!(
            "from {} on old rows go: {what}; [retention] in config.toml keeps them longer",
            day(history.begins_at)
        );
        add(Level::Note, "history", says);
    }
}

fn look_at_model(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let (home, models) = (&context.home, model::folder(&context.home));
    for one in Model::ALL {
        let begun = model::within(&models, one).join("model.onnx").exists();
        match model::verify(&models, one) {
            Ok(()) => add(
                Level::Good,
                "model",
                format!("{} is here and whole", one.name()),
            ),
            Err(e) if begun => add(Level::Wrong, "model", format!("{e:#}")),
            Err(_) => {}
        }
    }
    // Without a model recall works by words, with one it finds less; that is a choice, not a fault.
    if let Some(lacking) = model::lacking(home) {
        add(Level::Note, "model", lacking);
    } else if let Err(e) = model::wanted(home) {
        let says = format!("recall finds words but not meaning: {e:#}");
        add(Level::Note, "model", says);
    }
}

fn look_at_keys(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let keys = context.home.list("keys", "", ".key");
    for name in &keys {
        if let Some(mode) = context
            .home
            .mode(&format!("keys/{name}"))
            .filter(|m| m & 0o077 != 0)
        {
            add(
                Level::Wrong,
                "keys",
                format!("keys/{name} has mode {mode:o}: chmod 600 it"),
            );
        }
    }
    let names: Vec<_> = keys.iter().map(|k| k.trim_end_matches(".key")).collect();
    add(
        Level::Good,
        "keys",
        if names.is_empty() {
            "no agent has one yet".into()
        } else {
            names.join(", ")
        },
    );
}

fn look_at_rings(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    for file in context.home.list("", "signals-", ".jsonl") {
        let Ok(identity) = Identity::parse(
            file.trim_start_matches("signals-")
                .trim_end_matches(".jsonl"),
        ) else {
            add(Level::Note, "ring", format!("{file} is nobody's"));
            continue;
        };
        let cache = Cache::new(context.home.clone(), &identity);
        let (ring, skipped) = cache.load();
        let count = ring.count();
        if skipped > 0 {
            add(
                Level::Note,
                "ring",
                format!(
                    "{identity}: {skipped} torn or foreign line(s) were skipped; the next signal rewrites the file"
                ),
            );
        }
        match cache.stored_count() {
            Some(stored) if stored.unread == count.unread => add(
                Level::Good,
                "ring",
                format!(
                    "{identity}: {} entries, {} unread",
                    ring.entries.len(),
                    count.unread
                ),
            ),
            Some(stored) => add(
                Level::Wrong,
                "ring",
                format!(
                    "{identity}: the count file says {} unread and the ring {}; the next signal mends it, or `prism signals mark-read --as {identity}`",
                    stored.unread, count.unread
                ),
            ),
            None => add(
                Level::Note,
                "ring",
                format!("{identity}: no count file; the statusline reads the ring instead"),
            ),
        }
    }
}

fn look_at_shims(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let (alive, dead) = files::shims(&context.home);
    for shim in &alive {
        add(
            Level::Good,
            "shim",
            format!(
                "{} on {} in {} (pid {}, session {})",
                shim.identity,
                shim.surface,
                shim.project,
                shim.pid,
                crate::ui::short(shim.session_id)
            ),
        );
    }
    if alive.is_empty() {
        add(Level::Note, "shim", "no agent host runs here".into());
    }
    if dead > 0 {
        add(
            Level::Note,
            "shim",
            format!("{dead} file(s) of shims that died; the next shim sweeps them"),
        );
    }
}

/// What `prism connect --check` would say, for hosts that are connected or could be.
fn look_at_hosts(context: &Context, add: &mut impl FnMut(Level, &str, String)) {
    let machine = match Machine::look(&context.env, &context.home) {
        Ok(machine) => machine,
        Err(e) => return add(Level::Note, "host", format!("{e:#}")),
    };
    let at_home = machine.places.root == machine.places.home;
    for host in Host::ALL {
        for scope in [Scope::User, Scope::Project] {
            if scope == Scope::Project && at_home {
                continue;
            }
            let report = check(&machine, &context.env, host, scope, false);
            let name = format!("{} ({})", host.title(), scope.name());
            if !report.connected {
                if report.installed && scope == Scope::User {
                    let says = format!("{} is not connected: `prism connect {host}`", host.title());
                    add(Level::Note, "host", says);
                }
                continue;
            }
            for problem in &report.problems {
                add(Level::Wrong, "host", format!("{name}: {problem}"));
            }
            if report.problems.is_empty() {
                add(Level::Good, "host", format!("{name} is connected"));
            }
            for note in &report.notes {
                add(Level::Note, "host", format!("{name}: {note}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_from_here_to_here() {
        let says = |hint: &str| says_of(&Problem::new(Code::Internal, "it failed", hint));
        for (hint, expected) in [
            ("try again", "it failed; try again"),
            ("try again; or look", "it failed; try again; or look"),
            (
                "`prism doctor` looks at the database; the log has the cause",
                "it failed; the log has the cause",
            ),
            (
                "is it prism? `prism doctor` looks",
                "it failed; is it prism?",
            ),
            ("see `prism doctor`", "it failed"),
            (
                "is it there? `pg_isready` asks; or look",
                "it failed; is it there? `pg_isready` asks; or look",
            ),
        ] {
            assert_eq!(says(hint), expected);
        }
    }
}
