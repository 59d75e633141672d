//! `prism import`: rows from JSON lines, from Markdown, and from transcripts of agent hosts.

use super::{Context, print_json};
use crate::ui::{Failure, Outcome, Progress, note, out};
use anyhow::{Context as _, Result};
use clap::Args;
use prism_core::Moment;
use prism_core::api::memory::Imported;
use prism_core::limits::BODY_BYTES_MAX;
use prism_core::memory::import::{Line, order, target, without_nulls};
use prism_core::memory::{markdown, transcript};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// Lines and bytes of one batch; it is written whole or not at all.
const BATCH_LINES: usize = 200;
const BATCH_BYTES: usize = 100 * 1024;
/// Bytes of one line: it goes in the same call as a batch that is not quite full.
const LINE_BYTES_MAX: usize = BODY_BYTES_MAX - BATCH_BYTES - 4 * 1024;

/// The name under which lines of all transcripts are remembered.
const TRANSCRIPTS: &str = "transcripts";

#[derive(Args)]
#[command(after_help = "Examples:
  prism import memory.jsonl --dry-run      check every line, write nothing
  prism import memory.jsonl --json         and print the map from the file's ids to ours
  prism import docs/adr notes.md --as-identity Mira
  prism import ~/.claude/projects/*/*.jsonl --as-identity Mira
                                           your corrections, confirmations and changes of direction, for `prism review`

A line of JSON: id, kind, identity, created_at, text, and the fields of its verb; `refers_to` and
`supersedes` may name the id of another line. Times are kept. Run it again after a failure: what is
in already is not written twice.")]
pub struct Import {
    /// .jsonl files, .md files, folders of .md files, or transcripts of Claude Code and Codex
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check every line and write nothing
    #[arg(long)]
    dry_run: bool,
    /// The name under which lines are remembered as imported [default: the file's name; one for all
    /// transcripts]
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// Who wrote the Markdown where the file does not say [default: the operator], or whose
    /// transcript it is
    #[arg(long, value_name = "IDENTITY")]
    as_identity: Option<String>,
}

/// A row of a file and where it stands.
struct Given {
    line: u64,
    id: String,
    references: Vec<String>,
    row: Value,
}

impl Import {
    /// Transcripts of one agent's sessions.
    pub fn of_transcripts(files: Vec<PathBuf>, identity: String) -> Self {
        Self {
            files,
            dry_run: false,
            source: None,
            as_identity: Some(identity),
        }
    }

    pub async fn run(self, context: Context) -> Outcome {
        self.bring_in(&context).await
    }

    pub async fn bring_in(self, context: &Context) -> Outcome {
        let mut total = Imported {
            imported: 0,
            known: 0,
            changed: Vec::new(),
            routine: Vec::new(),
            ids: BTreeMap::new(),
        };
        let operator = crate::config::Config::load(&context.home)?.map(|c| c.operator.to_string());
        let author = self
            .as_identity
            .clone()
            .or(operator)
            .unwrap_or_else(|| "operator".into());
        for file in expand(&self.files)? {
            let name = file
                .file_name()
                .map(|n| n.to_string_lossy().into_owned())
                .unwrap_or_default();
            let text = std::fs::read_to_string(&file)
                .with_context(|| format!("cannot read {}", file.display()))?;
            // Some editors begin a file with a mark that is no part of its text.
            let text = text.trim_start_matches('\u{feff}').to_owned();
            let (name, given, broken) = match transcript(&text) {
                _ if is_markdown(&file) => (name, of_markdown(&file, &text, &author)?, None),
                // A session that was forked has the same lines in two files.
                Some(lines) => (
                    TRANSCRIPTS.to_owned(),
                    of_transcript(&lines, self.as_identity.as_deref())?,
                    None,
                ),
                None => {
                    let (given, broken) = of_lines(&text);
                    (name, given, broken)
                }
            };
            let source = self.source.clone().unwrap_or(name);
            let one = self.one(context, &file, &source, given, broken).await?;
            total.imported += one.imported;
            total.known += one.known;
            total.changed.extend(one.changed);
            total.routine.extend(one.routine);
            total.ids.extend(one.ids);
        }
        if context.json {
            print_json(&serde_json::to_value(&total).map_err(anyhow::Error::from)?);
        } else {
            let done = if self.dry_run {
                "would be imported"
            } else {
                "imported"
            };
            out(&format!(
                "{} {done}, {} already in",
                total.imported, total.known
            ));
            if !total.routine.is_empty() {
                note(&format!(
                    "{} line(s) are routine acks, which are not kept",
                    total.routine.len()
                ));
            }
            if !total.changed.is_empty() {
                let some = total
                    .changed
                    .iter()
                    .take(5)
                    .cloned()
                    .collect::<Vec<_>>()
                    .join(", ");
                note(&format!(
                    "{} line(s) have changed since they were imported and were left as they are: {some}",
                    total.changed.len()
                ));
            }
        }
        Ok(())
    }

    async fn one(
        &self,
        context: &Context,
        file: &Path,
        source: &str,
        given: Vec<Given>,
        broken: Option<Failure>,
    ) -> Result<Imported, Failure> {
        let mut total = Imported {
            imported: 0,
            known: 0,
            changed: Vec::new(),
            routine: Vec::new(),
            ids: BTreeMap::new(),
        };
        let places = ordered(file, &given)?;
        let mut progress = Progress::new(&format!("{}", file.display()), places.len());
        let mut batch: Vec<Value> = Vec::new();
        let mut bytes = 0;
        for (n, at) in places.iter().enumerate() {
            let line = json!({"line": given[*at].line, "row": given[*at].row});
            let size = line.to_string().len();
            if size > LINE_BYTES_MAX {
                let message = format!(
                    "line {} has {size} bytes and may have {LINE_BYTES_MAX}",
                    given[*at].line
                );
                return Err(resumable(
                    Failure::Unable {
                        message,
                        hint: None,
                    },
                    file,
                ));
            }
            bytes += size;
            batch.push(line);
            if batch.len() == BATCH_LINES || bytes >= BATCH_BYTES || n + 1 == places.len() {
                let body = json!({"source": source, "lines": std::mem::take(&mut batch), "dry_run": self.dry_run});
                let (answer, _): (Imported, _) = context
                    .ask("import", body)
                    .await
                    .map_err(|failure| resumable(failure, file))?;
                bytes = 0;
                total.imported += answer.imported;
                total.known += answer.known;
                total.changed.extend(answer.changed);
                total.routine.extend(answer.routine);
                total.ids.extend(answer.ids);
                progress.at(n + 1);
            }
        }
        progress.done();
        match broken {
            Some(failure) => Err(resumable(failure, file)),
            None => Ok(total),
        }
    }
}

fn resumable(failure: Failure, file: &Path) -> Failure {
    match failure.words() {
        Some((message, hint)) => Failure::Unable {
            message: format!("{}: {message}", file.display()),
            hint: Some(hint.filter(|h| !h.is_empty()).unwrap_or_else(|| {
                "mend it and import the file again: what is in already is not written twice".into()
            })),
        },
        None => failure,
    }
}

/// Folders stand for the Markdown files below them.
fn expand(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        let meta =
            std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
        if !meta.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut found: Vec<PathBuf> = std::fs::read_dir(path)
            .with_context(|| format!("cannot list {}", path.display()))?
            .flatten()
            .map(|e| e.path())
            .collect();
        found.sort();
        let below: Vec<PathBuf> = found
            .into_iter()
            .filter(|p| p.is_dir() || is_markdown(p))
            .collect();
        files.extend(expand(&below)?);
    }
    Ok(files)
}

fn is_markdown(path: &Path) -> bool {
    path.extension()
        .is_some_and(|e| e.eq_ignore_ascii_case("md") || e.eq_ignore_ascii_case("markdown"))
}

/// The lines up to the first broken one, and what is wrong with that.
fn of_lines(text: &str) -> (Vec<Given>, Option<Failure>) {
    let mut given: Vec<Given> = Vec::new();
    let mut seen: HashMap<String, u64> = HashMap::new();
    for (n, text) in text
        .lines()
        .enumerate()
        .map(|(n, t)| (n as u64 + 1, t.trim()))
    {
        if text.is_empty() {
            continue;
        }
        let broken = |what: String| {
            Some(Failure::Unable {
                message: format!("line {n}: {what}"),
                hint: None,
            })
        };
        let row: Value = match serde_json::from_str(text) {
            Ok(row) => row,
            Err(e) => return (given, broken(format!("this is not JSON: {e}"))),
        };
        let line: Line = match serde_path_to_error::deserialize(without_nulls(&row)) {
            Ok(line) => line,
            Err(e) => return (given, broken(format!("`{}`: {}", e.path(), e.inner()))),
        };
        if line.supersedes.as_deref().map(target) == Some(line.id.as_str()) {
            return (given, broken("`supersedes` names the line itself".into()));
        }
        if let Some(first) = seen.insert(line.id.clone(), n) {
            return (
                given,
                broken(format!(
                    "the id {:?} is that of line {first}, too",
                    prism_core::text::clip(&line.id, 60)
                )),
            );
        }
        given.push(Given {
            line: n,
            references: line.references().map(|r| target(r).to_owned()).collect(),
            id: line.id,
            row,
        });
    }
    (given, None)
}

/// The lines of a host's transcript, when this is one. Its last line may still be under way.
fn transcript(text: &str) -> Option<Vec<(u64, Value)>> {
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, l)| !l.trim().is_empty())
        .map(|(n, l)| (n as u64 + 1, serde_json::from_str::<Value>(l)));
    let lines: Vec<(u64, Value)> = lines.filter_map(|(n, l)| Some((n, l.ok()?))).collect();
    lines
        .iter()
        .take(5)
        .any(|(_, l)| transcript::is_line(l))
        .then_some(lines)
}

/// What the operator typed to an agent, to be reviewed before it counts.
fn of_transcript(lines: &[(u64, Value)], identity: Option<&str>) -> Result<Vec<Given>> {
    let identity =
        identity.context("this is a transcript of an agent host: say whose with --as-identity")?;
    Ok(transcript::rows(lines, identity)
        .into_iter()
        .map(|(line, id, row)| Given {
            line,
            id,
            references: Vec::new(),
            row,
        })
        .collect())
}

fn of_markdown(file: &Path, text: &str, author: &str) -> Result<Vec<Given>> {
    let changed = std::fs::metadata(file)?
        .modified()?
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap_or_default();
    let name = file
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let rows = markdown::rows(&name, text, author, Moment(changed.as_micros() as i64));
    Ok(rows
        .into_iter()
        .map(|(line, id, row)| Given {
            line,
            id,
            references: Vec::new(),
            row,
        })
        .collect())
}

/// Where each line goes in: after what it points at.
fn ordered(file: &Path, given: &[Given]) -> Result<Vec<usize>, Failure> {
    let lines: Vec<(String, Vec<String>)> = given
        .iter()
        .map(|g| (g.id.clone(), g.references.clone()))
        .collect();
    order(&lines).map_err(|circle| Failure::Unable {
        message: format!(
            "{}: these lines point at each other in a circle: {}",
            file.display(),
            circle.join(" -> ")
        ),
        hint: Some("a row can only speak of rows before it".into()),
    })
}
