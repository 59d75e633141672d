//! The binary: the hot line first, then everything else.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut args = std::env::args_os();
    let is_statusline = args.nth(1).is_some_and(|a| a == "statusline");
    // Run once a second by every host: no parser, logger or runtime is set up for it.
    if is_statusline && prism::shim::statusline::run(args) {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(prism::cli::run(std::env::args_os()))
}
