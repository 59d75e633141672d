//! `prism tenant`: several teams on one PostgreSQL, for whoever holds its URL.

use super::connect::{ask, is_attended};
use super::moving::failure;
use super::{Context, print_json};
use crate::clock;
use crate::config::{self, Config};
use crate::store::{KeyRow, Project, TenantCounted, tenants};
use crate::ui::{Failure, Outcome, ago, out, table};
use clap::{Args, Subcommand};
use prism_core::signal::sha256_hex;
use prism_core::tenant::{TenantName, shown_of};
use prism_core::{Code, Identity, Problem, ProjectName};
use serde_json::json;

#[derive(Args)]
#[command(after_help = "Examples:
  prism tenant add acme --database postgres://prism@127.0.0.1/prism
  prism tenant list
  prism tenant remove acme

A tenant has projects, agents, keys and memory of its own, and knows nothing of the others. Its keys carry its name;
every server of the database serves it within a second. docs/tenants.md says more.")]
pub struct Tenant {
    #[command(subcommand)]
    action: Action,
    /// The database that the tenants share [default: PRISM_DATABASE, else server.database in config.toml]
    #[arg(long, value_name = "URL", global = true)]
    database: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// Add a tenant, and print its operator's key, once
    Add {
        /// Small letters, digits and hyphens
        name: String,
    },
    /// Every tenant, and how much it has
    List,
    /// Take a tenant out, with every row it has
    Remove {
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

impl Tenant {
    pub fn run(self, context: &Context) -> Outcome {
        let config = Config::load(&context.home)?;
        let server = config.as_ref().map(|c| c.server.clone());
        let (server, home) = (server.unwrap_or_default(), &context.home);
        let named = self.database.as_deref();
        let Some(url) = config::database(named, &context.env, &server, home)? else {
            return Err(Problem::new(
                Code::InvalidRequest,
                "this home's store is a file, and a file has one tenant",
                "several need PostgreSQL: name it with --database postgres://..., PRISM_DATABASE or \
                 config.toml; `prism migrate-store` moves what there is",
            )
            .into());
        };
        match self.action {
            Action::Add { name } => add(context, &url, &name, config.map(|c| c.operator)),
            Action::List => list(context, &url),
            Action::Remove { name, yes } => remove(context, &url, &name, yes),
        }
    }
}

fn add(context: &Context, url: &str, name: &str, operator: Option<Identity>) -> Outcome {
    let name = TenantName::parse(name)?;
    let operator = match operator {
        Some(operator) => operator,
        None => Identity::parse("operator")?,
    };
    let pid = match context.project.named {
        true => context.project.pid.clone(),
        false => ProjectName::parse(name.as_str())?,
    };
    let key = name.key(&clock::new_key()?);
    let now = clock::now();
    let row = KeyRow {
        id: clock::new_id(),
        identity: None,
        key_sha256: sha256_hex(key.as_bytes()),
        prefix: shown_of(&key),
        created_at: now,
        revoked_at: None,
        browser: None,
        expires_at: None,
    };
    let project = Project {
        id: clock::new_id(),
        pid: pid.clone(),
    };
    let id = tenants::add(url, &name, operator, project, row).map_err(failure)?;
    if context.json {
        print_json(&json!({"tenant": name.as_str(), "id": id, "pid": pid.as_str(), "key": key}));
        return Ok(());
    }
    out(&format!(
        "{name} is a tenant now, with the project {pid}. Its operator's key, shown this once:"
    ));
    out(&key);
    out(
        "Next, on the operator's machine: PRISM_URL=https://... PRISM_API_KEY=<this key> prism status",
    );
    Ok(())
}

fn list(context: &Context, url: &str) -> Outcome {
    let tenants = tenants::list(url).map_err(failure)?;
    if context.json {
        let one = |t: &TenantCounted| {
            json!({
                "tenant": t.tenant.name, "id": t.tenant.id, "created_at": t.tenant.created_at,
                "projects": t.projects, "agents": t.agents, "open_sessions": t.sessions,
                "memory_rows": t.memory, "being_removed": t.being_removed,
            })
        };
        print_json(&json!({"tenants": tenants.iter().map(one).collect::<Vec<_>>()}));
        return Ok(());
    }
    let now = clock::now();
    let heading = ["tenant", "made", "projects", "agents", "sessions", "memory"];
    let row = |t: &TenantCounted| {
        let mut row = vec![
            t.tenant.name.clone(),
            ago(t.tenant.created_at, now),
            t.projects.to_string(),
            t.agents.to_string(),
            t.sessions.to_string(),
            t.memory.to_string(),
        ];
        if t.being_removed {
            row.push(format!("go on: prism tenant remove {}", t.tenant.id));
        }
        row
    };
    let heading = std::iter::once(heading.map(str::to_owned).to_vec());
    out(&table(
        &heading.chain(tenants.iter().map(row)).collect::<Vec<_>>(),
    ));
    Ok(())
}

fn remove(context: &Context, url: &str, name: &str, yes: bool) -> Outcome {
    let tenant = tenants::find(url, name).map_err(failure)?;
    if !yes {
        let question = format!("Every row of {} will be gone for good. Go on?", tenant.name);
        if !is_attended() {
            return Err(Problem::new(
                Code::InvalidRequest,
                format!("every row of {} would be gone for good", tenant.name),
                "say --yes where nobody can be asked",
            )
            .into());
        }
        if !ask(&question) {
            return Err(Failure::Negative);
        }
    }
    let rows = tenants::remove(url, name).map_err(failure)?;
    match context.json {
        true => print_json(&json!({"tenant": tenant.name, "id": tenant.id, "rows": rows})),
        false => out(&format!("{} is gone, with {rows} rows.", tenant.name)),
    }
    Ok(())
}
