//! `prism coder`: starts an agent's host with all that Prism needs.

use super::Context;
use crate::background;
use crate::client::Locator;
use crate::coder::{Launch, become_host};
use crate::connect::{Machine, pins};
use crate::ui::{Failure, Outcome, note};
use prism_core::connect::{Host, Scope};
use prism_core::{Identity, ProjectName};
use std::ffi::OsString;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism coder --as Donna -- claude
  prism coder --as Texi --project PID-PGR01 -- codex resume --last
  prism coder --as Wren -- bash          a shell whose agents are all called Wren

It starts the server when none runs (unless PRISM_AUTOSTART=0), gives the host PRISM_AGENT_IDENTITY
and, when named, PRISM_PID, keeps the terminal's title at `[Donna] project · 🔔 2 ASK:1 TASK:1`, and
ends with the host's own exit code (128 and the signal's number when one ended it).
A host whose own files pin another identity (`prism connect HOST --as NAME`) is not started: they
would win, and the wrong agent would speak.
A Codex terminal gets an app-server of its own, so that its identity is its own and bells are fast.")]
pub struct Coder {
    /// The project to work in, whatever folder this is [default: as everywhere]
    #[arg(long, value_name = "PID")]
    project: Option<String>,
    /// Leave the terminal's title alone
    #[arg(long)]
    no_title: bool,
    /// The host and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<OsString>,
}

impl Coder {
    pub async fn run(self, context: Context) -> Outcome {
        let Some(identity) = context.identity.clone() else {
            return Err(Failure::Unable {
                message: "whose terminal is it?".into(),
                hint: Some("prism coder --as Donna -- claude".into()),
            });
        };
        if identity.is(prism_core::id::BOT) {
            return Err(Failure::Unable {
                message: format!("{identity} is an agent without a name, and has no inbox"),
                hint: Some("choose another name for --as".into()),
            });
        }
        let asked = self
            .project
            .as_deref()
            .map(ProjectName::parse)
            .transpose()?;
        let by_pid = (context.project.found.is_none()).then(|| context.project.pid.clone());
        if let (Some(asked), Some(pid)) = (&asked, &by_pid)
            && context.project.named
            && asked != pid
        {
            return Err(Failure::Unable {
                message: format!("--project says {asked} and --pid says {pid}"),
                hint: Some("they mean the same; give one of them".into()),
            });
        }
        let named = asked.or(by_pid);
        heed_pins(&context, &self.command, &identity, named.as_ref())?;
        bring_up(&context)?;
        let project = named.as_ref().unwrap_or(&context.project.pid).to_string();
        let launch = Launch {
            home: context.home,
            identity,
            named,
            project,
            command: self.command,
            title: !self.no_title,
            term: context.env.term,
            codex_home: context.env.codex_home,
            user_home: context.env.home.map(Into::into),
        };
        launch.run().await
    }
}

/// A host follows what its own files pin, whatever its shell says: it is not started as somebody else.
fn heed_pins(
    context: &Context,
    command: &[OsString],
    identity: &Identity,
    project: Option<&ProjectName>,
) -> Outcome {
    let Ok(machine) = Machine::look(&context.env, &context.home) else {
        return Ok(());
    };
    let program = command.first().map(|c| c.to_string_lossy().into_owned());
    let program = program.unwrap_or_default();
    let name = program.rsplit('/').next().unwrap_or_default();
    let named = |host: &Host| host.programs().contains(&name);
    let host = Host::ALL.into_iter().find(named);
    for looked_at in Host::ALL
        .into_iter()
        .filter(|h| host.is_none_or(|n| n == *h))
    {
        for pin in pins::pinned(&machine, looked_at) {
            let other = pin.pins.identity.filter(|name| !identity.is(name));
            let elsewhere = pin.pins.pid.filter(|pid| {
                project.is_some_and(|project| !project.as_str().eq_ignore_ascii_case(pid))
            });
            let Some(pinned) = other.as_ref().or(elsewhere.as_ref()) else {
                continue;
            };
            let title = looked_at.title();
            let (wanted, start) = match (&other, project) {
                (None, Some(project)) => (project.to_string(), format!("--project {pinned}")),
                _ => (identity.to_string(), format!("--as {pinned}")),
            };
            let message = format!(
                "{title} is pinned to {pinned} in {}, which wins over this terminal's {wanted}",
                pin.file.display()
            );
            if host.is_none() {
                // Nobody knows yet what a shell will start.
                note(&format!("prism: {message}"));
                continue;
            }
            let scope = match pin.scope {
                Scope::User => "--user",
                Scope::Project => "--project",
            };
            return Err(Failure::Unable {
                message,
                hint: Some(format!(
                    "take the pin out (`prism disconnect {looked_at} {scope}`, then connect without it), or start it \
                     as pinned: prism coder {start} -- {name}"
                )),
            });
        }
    }
    Ok(())
}

/// Starts the server unless one runs, or unless that is not ours to do.
fn bring_up(context: &Context) -> Outcome {
    if context.env.url.is_some() {
        return Ok(());
    }
    if context.env.no_autostart {
        let locator = Locator::of(&context.env, &context.home)?;
        if let Err(problem) = locator.url() {
            note(&format!("prism: {}; {}", problem.message, problem.hint));
        }
        return Ok(());
    }
    match background::ensure(&context.home, &background::Wanted::default()) {
        Ok(ready) => {
            if let Some(said) = ready.says() {
                note(&format!("prism: {said}"));
            }
            Ok(())
        }
        Err(problem) => Err(Failure::Unable {
            message: problem.message,
            hint: Some(format!(
                "{}; PRISM_AUTOSTART=0 starts the host without a server",
                problem.hint
            )),
        }),
    }
}

#[derive(clap::Args)]
pub struct CoderHost {
    #[arg(long)]
    parent: u32,
    #[arg(long)]
    on_death: i32,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

impl CoderHost {
    pub fn run(self) -> Outcome {
        Err(become_host(self.parent, self.on_death, &self.command))
    }
}
