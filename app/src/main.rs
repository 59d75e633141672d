//! The binary: the hot line first, then everything else.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let began = std::time::Instant::now();
    // Run once a second by every host, and at each step of its agent: no parser, logger or runtime
    // is set up for these.
    let done = match args.nth(1).as_deref().and_then(|a| a.to_str()) {
        Some("statusline") => prism::shim::statusline::run(args).then_some(0),
        Some("hook") => prism::hook::run(args, began),
        _ => None,
    };
    if let Some(code) = done {
        return ExitCode::from(code);
    }
    ExitCode::from(prism::cli::run(std::env::args_os()))
}
