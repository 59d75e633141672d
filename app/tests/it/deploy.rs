//! The files of `deploy/` hold together, and ask of the binary what it has.

use crate::harness::BIN;
use std::io::Write;
use std::path::Path;
use std::process::Command;

#[test]
fn what_is_deployed_uses_options_and_variables_that_exist() {
    let check = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/check");
    let ran = Command::new(check).arg(BIN).output().unwrap();
    // What it passed over is seen by whoever runs the tests, also where they are green.
    std::io::stdout().write_all(&ran.stdout).unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}
