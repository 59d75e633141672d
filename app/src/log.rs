//! The log: what `PRISM_LOG` asks for, without what carries keys.

pub mod file;

use crate::home::Home;
use std::sync::Arc;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;

/// Libraries that print requests and values whole at their lowest levels, keys and all.
const WIRES: [&str; 8] = [
    "tungstenite",
    "tokio_tungstenite",
    "hyper",
    "hyper_util",
    "reqwest",
    "h2",
    "rustls",
    "tokio_postgres",
];

/// Starts logging to standard error; `otherwise` is the level without `PRISM_LOG`.
pub fn start(otherwise: &str, color: bool) {
    tracing_subscriber::fmt()
        .with_env_filter(filter(crate::config::log_filter().as_deref(), otherwise))
        .with_writer(std::io::stderr)
        .with_ansi(color)
        .with_target(false)
        // A line that cannot be written is lost: told on standard error, which may be gone as well, it would end what logs.
        .log_internal_errors(false)
        .init();
}

/// Starts logging into the home's log file, which standard error becomes as well.
pub fn start_in(home: &Home, otherwise: &str) -> anyhow::Result<()> {
    let file = Arc::new(file::Rotating::open(home.clone())?);
    tracing_subscriber::fmt()
        .with_env_filter(filter(crate::config::log_filter().as_deref(), otherwise))
        .with_writer(file)
        .with_ansi(false)
        .with_target(false)
        // A line that cannot be written is lost: told on standard error, which may be gone as well, it would end what logs.
        .log_internal_errors(false)
        .init();
    Ok(())
}

fn filter(asked: Option<&str>, otherwise: &str) -> EnvFilter {
    // A directive for a part of a wire would be more exact than ours, and win.
    let asked = asked.unwrap_or(otherwise).split(',');
    let asked: Vec<&str> = asked
        .filter(|d| !WIRES.iter().any(|wire| d.trim().starts_with(wire)))
        .collect();
    let mut filter =
        EnvFilter::try_new(asked.join(",")).unwrap_or_else(|_| EnvFilter::new(otherwise));
    for wire in WIRES {
        if let Ok(directive) = format!("{wire}={}", LevelFilter::INFO).parse() {
            filter = filter.add_directive(directive);
        }
    }
    filter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_never_logs_below_info() {
        for asked in [
            "trace",
            "tungstenite=trace",
            "info,tungstenite::handshake=trace",
        ] {
            let filter = filter(Some(asked), "warn").to_string();
            for wire in WIRES {
                assert!(
                    filter.contains(&format!("{wire}=info")),
                    "{asked}: {filter}"
                );
            }
            assert!(!filter.contains("handshake"), "{filter}");
        }
        assert!(filter(None, "warn").to_string().contains("warn"));
    }
}
