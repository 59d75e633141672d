//! What the session touched, as git sees it: noted at the start, compared at the end.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::process::Command;

/// A repository that takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// The repository as it was when the session registered.
#[derive(Clone, Debug)]
pub struct Baseline {
    root: PathBuf,
    head: Option<String>,
    /// Files that differed from HEAD already, with their size and time.
    dirty: HashMap<String, Option<(u64, SystemTime)>>,
}

impl Baseline {
    pub async fn of(cwd: &Path) -> Option<Self> {
        let root = PathBuf::from(
            git(cwd, &["rev-parse", "--show-toplevel"])
                .await?
                .trim_end()
                .to_owned(),
        );
        let head = git(&root, &["rev-parse", "--verify", "-q", "HEAD"])
            .await
            .map(|h| h.trim().to_owned());
        let dirty = changed(&root, head.as_deref())
            .await?
            .into_iter()
            .map(|path| (path.clone(), fingerprint(&root, &path)))
            .collect();
        Some(Self { root, head, dirty })
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The files that changed since, relative to the repository's root.
    pub async fn touched(&self) -> Option<Vec<String>> {
        let mut touched: Vec<String> = changed(&self.root, self.head.as_deref())
            .await?
            .into_iter()
            .filter(|path| {
                self.dirty
                    .get(path)
                    .is_none_or(|then| *then != fingerprint(&self.root, path))
            })
            .collect();
        touched.sort();
        touched.dedup();
        Some(touched)
    }
}

/// Names whole paths as the repository does. Its root is told without symbolic links; a host may
/// have come by one.
pub fn name_from(root: &Path, files: &mut [String]) {
    for file in files {
        let path = Path::new(file.as_str());
        if !path.is_absolute() {
            continue;
        }
        let real = std::fs::canonicalize(path);
        let inside = path
            .strip_prefix(root)
            .or_else(|_| real.as_deref().unwrap_or(path).strip_prefix(root));
        if let Some(named) = inside.ok().and_then(Path::to_str) {
            *file = named.to_owned();
        }
    }
}

fn fingerprint(root: &Path, path: &str) -> Option<(u64, SystemTime)> {
    let meta = std::fs::metadata(root.join(path)).ok()?;
    Some((meta.len(), meta.modified().ok()?))
}

/// What differs from `head`, committed since or not, and what is new.
async fn changed(root: &Path, head: Option<&str>) -> Option<Vec<String>> {
    let tracked = match head {
        Some(head) => git(root, &["diff", "--name-only", "-z", head, "--"]).await?,
        None => git(root, &["ls-files", "-z"]).await?,
    };
    let new = git(root, &["ls-files", "--others", "--exclude-standard", "-z"]).await?;
    Some(
        tracked
            .split('\0')
            .chain(new.split('\0'))
            .filter(|p| !p.is_empty())
            .map(str::to_owned)
            .collect(),
    )
}

async fn git(dir: &Path, args: &[&str]) -> Option<String> {
    let run = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(args)
        .env("GIT_OPTIONAL_LOCKS", "0")
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(PATIENCE, run).await.ok()?.ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}
