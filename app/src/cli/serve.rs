//! `prism serve`.

use super::Context;
use crate::config::DEFAULT_PORT;
use crate::home::Home;
use crate::server;
use crate::ui::Outcome;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  prism serve                        on 127.0.0.1:7747, in ~/.prism
  prism serve --home /tmp/p --port 0   a throw-away one on any free port
  prism serve --host 0.0.0.0 --tls-cert prism.pem --tls-key prism.key   for other machines

It writes $PRISM_HOME/server.json once it accepts connections. `prism up` runs it in the background.")]
pub struct Serve {
    /// Where Prism keeps its files [default: PRISM_HOME, else ~/.prism]
    #[arg(long)]
    home: Option<PathBuf>,
    /// Address to listen on
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// Port to listen on; 0 takes any free one [default: 7747]
    #[arg(long)]
    port: Option<u16>,
    /// The PostgreSQL database that this and other servers stand on: postgres://user@host/name,
    /// or sqlite: for the file in the home
    /// [default: PRISM_DATABASE, else server.database in config.toml, else that file]
    #[arg(long, value_name = "URL")]
    database: Option<String>,
    /// The Redis that tells the servers of one database of each other's commits: redis://host:port
    /// [default: PRISM_REDIS, else server.redis in config.toml, else PostgreSQL's own NOTIFY]
    #[arg(long, value_name = "URL")]
    redis: Option<String>,
    /// The certificate to show, as PEM, with those between it and its authority; read again on SIGHUP
    /// [default: PRISM_TLS_CERT, else server.tls_cert in config.toml]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its private key, as PEM [default: PRISM_TLS_KEY, else server.tls_key in config.toml]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// A proxy in front ends TLS, so listening beyond this machine is safe
    #[arg(long)]
    behind_proxy: bool,
    /// Where people reach the page, if not where it listens: https://host/path [default: server.public_url in config.toml]
    #[arg(long, value_name = "URL")]
    public_url: Option<String>,
    /// Run as `prism up` does: with a log in a file, and making room for a newer version
    #[arg(long, hide = true)]
    background: bool,
    /// The version whose place it takes
    #[arg(long, hide = true)]
    replaces: Option<String>,
    /// End when standard input does, for whoever starts a server of their own
    #[arg(long, hide = true)]
    ends_with_stdin: bool,
}

impl Serve {
    /// The home that it names itself.
    pub fn home(&self) -> Option<Home> {
        self.home.clone().map(Home::at)
    }

    pub async fn run(self, context: Context) -> Outcome {
        let color = !context.env.no_color && std::io::IsTerminal::is_terminal(&std::io::stderr());
        let home = context.home;
        let background = self.background.then_some(server::Background {
            any_port: self.port.is_none(),
            replaces: self.replaces,
        });
        match background {
            Some(_) => crate::log::start_in(&home, "info")?,
            None => crate::log::start("info", color),
        }
        server::serve(
            server::Options {
                home,
                host: self.host,
                port: self.port.unwrap_or(DEFAULT_PORT),
                behind_proxy: self.behind_proxy,
                tls: (self.tls_cert, self.tls_key),
                public_url: self.public_url,
                database: self.database,
                redis: self.redis,
                ends_with_stdin: self.ends_with_stdin,
                background,
            },
            &context.env,
        )
        .await?;
        Ok(())
    }
}
