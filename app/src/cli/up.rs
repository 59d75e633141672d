//! `prism up`, `down`, `restart` and `logs`: the background server of this home.

use super::{Context, print_json, print_json_line};
use crate::background::{self, How, Ready, Wanted};
use crate::config::{Config, ServerFile, Standing};
use crate::log::file as log_file;
use crate::ui::{Failure, Outcome, note, out};
use prism_core::Problem;
use prism_core::launch::choose_store;
use serde_json::json;
use std::time::Duration;

/// The pause between two looks at a log that is followed.
const LOOK: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism up                 one server for this home, found again if it runs
  prism up --port 8080     on this port and no other

It stays until `prism down`, and logs to $PRISM_HOME/log/server.log. A newer prism replaces an
older server of the background, after copying its database to $PRISM_HOME/backups if the upgrade
changes it; a server that runs in a terminal (`prism serve`) is never replaced.
`prism coder` and a starting `prism mcp` do the same unless PRISM_AUTOSTART=0.")]
pub struct Up {
    /// Port to listen on [default: 7747, or any free one when that is taken]
    #[arg(long)]
    port: Option<u16>,
    /// The PostgreSQL database to stand on, or sqlite: for the file in this home
    /// [default: PRISM_DATABASE, else server.database in config.toml, else the file]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism down
  prism down --force       also one that runs in a terminal

Nothing that was sent is lost: agents' shims find the next server by themselves.")]
pub struct Down {
    /// Also stop a server that was not started in the background
    #[arg(long)]
    force: bool,
}

#[derive(clap::Args)]
#[command(after_help = "Example:
  prism restart            after a change in config.toml

It stands on the store that it had, unless the environment, config.toml or --database name one.")]
pub struct Restart {
    /// Port to listen on [default: the one it had]
    #[arg(long)]
    port: Option<u16>,
    /// The PostgreSQL database to stand on, or sqlite: for the file in this home
    /// [default: PRISM_DATABASE, else server.database in config.toml, else the store it had]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism logs
  prism logs -n 200
  prism logs -f            goes on until Ctrl-C

The log is $PRISM_HOME/log/server.log and up to three older files of 4 MiB each.")]
pub struct Logs {
    /// How many lines
    #[arg(short = 'n', long = "lines", default_value_t = 50)]
    lines: usize,
    /// Go on with what is logged from now on
    #[arg(short = 'f', long)]
    follow: bool,
}

impl Up {
    pub fn run(self, context: &Context) -> Outcome {
        of_this_home(context, "start or stop", OWN)?;
        check_named(self.database.as_deref())?;
        context.env.given_key()?;
        let argument = self.database.clone();
        let wanted = Wanted {
            port: self.port,
            database: self.database,
            by_name: true,
        };
        let ready = background::ensure(&context.home, &wanted)?;
        let ran = matches!(ready.how, How::Ran | How::RanOlder);
        if let Some(problem) = ran.then(|| background::silence(&ready.server)).flatten() {
            return Err(problem.into());
        }
        tell(context, &ready);
        if let (Some(port), How::Ran | How::RanOlder) = (self.port, &ready.how)
            && !ready.server.url.ends_with(&format!(":{port}"))
        {
            note(&format!(
                "note: it listens elsewhere than on {port}; `prism restart --port {port}` moves it"
            ));
        }
        let config = Config::load(&context.home).ok().flatten();
        let config = config.map(|config| config.server).unwrap_or_default();
        let (argument, env) = (argument.as_deref(), &context.env);
        if let Some((stands, named)) = Standing::otherwise(argument, env, &config, &context.home) {
            let restart = match argument {
                Some(_) => "prism restart --database URL",
                None => "prism restart",
            };
            note(&format!(
                "note: it stands on {}; `{restart}` has it stand on {}, which is named here",
                stands.store, named.store
            ));
        }
        Ok(())
    }
}

impl Down {
    pub fn run(self, context: &Context) -> Outcome {
        of_this_home(context, "start or stop", OWN)?;
        let pid = background::down(&context.home, self.force)?;
        if context.json {
            print_json(&json!({"stopped": pid.is_some(), "pid": pid}));
        } else {
            out(&match pid {
                Some(pid) => format!("Stopped (pid {pid})."),
                None => format!("No prism server runs on {}.", context.home.dir().display()),
            });
        }
        Ok(())
    }
}

impl Restart {
    pub fn run(self, context: &Context) -> Outcome {
        of_this_home(context, "start or stop", OWN)?;
        check_named(self.database.as_deref())?;
        context.env.given_key()?;
        let wanted = Wanted {
            port: self.port,
            database: self.database,
            by_name: true,
        };
        let ready = background::restart(&context.home, &wanted)?;
        tell(context, &ready);
        Ok(())
    }
}

/// Refuses what is no store before anything is done about it.
fn check_named(database: Option<&str>) -> Result<(), Problem> {
    let chosen = choose_store(&[("--database", database)], None)?;
    Standing::of(chosen.as_deref()).map(drop)
}

/// What whoever wants a server of their own does about a variable that names another.
const OWN: &str = "unset PRISM_URL to run one of your own";

/// Some commands are about processes and files of this home; another machine's server is not theirs.
pub fn of_this_home(context: &Context, cannot: &str, hint: &str) -> Outcome {
    match &context.env.url {
        None => Ok(()),
        Some(url) => Err(Failure::Unable {
            message: format!("PRISM_URL names a server ({url}) that this command cannot {cannot}"),
            hint: Some(hint.to_owned()),
        }),
    }
}

fn tell(context: &Context, ready: &Ready) {
    let server = &ready.server;
    if context.json {
        let (state, replaced) = match &ready.how {
            How::Ran | How::RanOlder | How::Left(_) => ("running", None),
            How::Started => ("started", None),
            How::Replaced { version, pid } => {
                ("replaced", Some(json!({"version": version, "pid": pid})))
            }
        };
        return print_json(&json!({
            "state": state,
            "url": server.url,
            "pid": server.pid,
            "version": server.version,
            "started_at": server.started_at,
            "autostarted": server.autostarted,
            "replaced": replaced,
            "backup": server.backup,
            "log": server.autostarted.then(|| context.home.path(log_file::NAME)),
        }));
    }
    let place = if server.autostarted {
        "background"
    } else {
        "terminal"
    };
    out(&format!(
        "Prism {} runs at {} (pid {}, {place}).",
        server.version, server.url, server.pid
    ));
    if let Some(said) = ready
        .says()
        .filter(|_| ready.how != How::Started || server.backup.is_some())
    {
        note(&format!("prism: {said}"));
    }
}

impl Logs {
    pub fn run(self, context: &Context) -> Outcome {
        let server = ServerFile::load(&context.home);
        if let Some(server) = server.filter(|s| !s.autostarted) {
            note(&format!(
                "note: the server (pid {}) logs to the terminal it runs in; this is what earlier \
                 ones of the background left",
                server.pid
            ));
        }
        let mut following = self
            .follow
            .then(|| log_file::Follow::from_end(&context.home));
        let lines = log_file::last_lines(&context.home, self.lines);
        let Some(lines) = lines.or_else(|| self.follow.then(Vec::new)) else {
            if context.json {
                print_json(&json!({"file": context.home.path(log_file::NAME), "lines": []}));
            } else {
                note("There is no log: no server has run in the background yet (`prism up`).");
            }
            return Err(Failure::Negative);
        };
        match (context.json, self.follow) {
            (true, false) => {
                let file = context.home.path(log_file::NAME);
                print_json(&json!({"file": file, "lines": lines}));
            }
            _ => print(context, &lines),
        }
        while let Some(follow) = &mut following {
            print(context, &follow.fresh());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

fn print(context: &Context, lines: &[String]) {
    for line in lines {
        match context.json {
            true => print_json_line(&json!({ "line": line })),
            false => out(line),
        }
    }
}
