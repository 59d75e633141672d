//! Links the binary at a fixed address: resolving addresses at every start
//! would cost the statusline, which starts once a second, half its time,
//! and so would looking up every library function before the first is called. The library that
//! unwinds comes with it, so that no start has to find and map it. Puts the page's built
//! files into the binary.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to it by its environment, and it writes what the compiler reads"
)]

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    embed_page();
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
        println!("cargo:rustc-link-arg-bins=-Wl,-z,lazy");
        if std::env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|env| env == "gnu") {
            println!("cargo:rustc-link-arg-bins=-static-libgcc");
            println!("cargo:rustc-link-lib=gcc_eh");
        }
    }
}

/// Lists the files of `dashboard/dist` for the binary to carry; without them the page says how to
/// build it.
fn embed_page() {
    let here = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = here.join("../dashboard/dist");
    // A folder that is missing would be looked for, and everything built again, each time.
    drop(std::fs::create_dir_all(&dist));
    println!("cargo:rerun-if-changed={}", dist.display());
    let mut files = Vec::new();
    list(&dist, "", &mut files);
    files.sort();
    if !files.iter().any(|(name, _)| name == "index.html") {
        println!(
            "cargo:warning=dashboard/dist is not built, so this prism has no page: \
             `npm ci && npm run build` in dashboard/ builds it"
        );
    }
    let mut text = String::from("static FILES: &[(&str, &[u8])] = &[\n");
    for (name, path) in files {
        text += &format!("    ({name:?}, include_bytes!({path:?})),\n");
    }
    text += "];\n";
    let out = PathBuf::from(std::env::var("OUT_DIR").unwrap_or_default());
    if let Err(error) = std::fs::write(out.join("page_files.rs"), text) {
        println!("cargo:error=the list of the page's files cannot be written: {error}");
    }
}

fn list(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        match path.is_dir() {
            true => list(&path, &format!("{name}/"), files),
            false => files.push((name, path.canonicalize().unwrap_or(path))),
        }
    }
}
