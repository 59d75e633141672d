//! Links the binary at a fixed address: resolving addresses at every start
//! would cost the statusline, which starts once a second, half its time,
//! and so would looking up every library function before the first is called.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to it by its environment"
)]

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        println!("cargo:rustc-link-arg-bins=-Wl,-z,lazy");
    }
}
