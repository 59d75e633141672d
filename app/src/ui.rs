//! The only printer: colours, tables, times, and how a command ends.

use prism_core::signal::Category;
use prism_core::{Moment, Problem, text};
use rustix::fs::OFlags;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

/// How a command can end other than well.
pub enum Failure {
    /// It ran, and the answer is no.
    Negative,
    /// It could not run.
    Unable {
        message: String,
        hint: Option<String>,
    },
    /// The server, or what asks it, refused.
    Refused(Problem),
    /// It ran another program, and ends as that one did.
    Exit(u8),
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::Refused(problem)
    }
}

impl Failure {
    /// What to say of it, and what to do next; nothing where the exit code says it all.
    pub fn words(&self) -> Option<(String, Option<String>)> {
        match self {
            Self::Negative | Self::Exit(_) => None,
            Self::Unable { message, hint } => Some((message.clone(), hint.clone())),
            Self::Refused(problem) => {
                // What somebody needs to look for a signal, or to send it once and not twice.
                let fact = |name: &str, shown: &str| {
                    let fact = problem.facts.get(name).and_then(|v| v.as_str());
                    fact.map(|fact| format!(" ({shown} {fact})"))
                        .unwrap_or_default()
                };
                let (id, key) = (
                    fact("signal_id", "signal"),
                    fact("idempotency_key", "idempotency_key"),
                );
                let message = format!("{}{id}{key}", problem.message);
                Some((message, Some(problem.hint.clone())))
            }
        }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Unable {
            message: format!("{error:#}"),
            hint: next_step(&error),
        }
    }
}

/// What to do about an error that does not say so itself.
fn next_step(error: &anyhow::Error) -> Option<String> {
    use std::io::ErrorKind as E;
    if let Some(problem) = error.chain().find_map(|e| e.downcast_ref::<Problem>()) {
        return Some(problem.hint.clone());
    }
    let kind = error
        .chain()
        .find_map(|e| e.downcast_ref::<std::io::Error>())
        .map(std::io::Error::kind);
    let by_kind = kind.and_then(|kind| match kind {
        E::IsADirectory => Some("a folder stands where Prism keeps a file: move it away"),
        E::NotADirectory => Some("a file stands where a folder is needed: move it away"),
        E::ReadOnlyFilesystem | E::PermissionDenied => {
            Some("make that place writable for you, or set PRISM_HOME to one that is")
        }
        E::NotFound => Some("check that path; PRISM_HOME must be a folder that can be made"),
        E::StorageFull | E::QuotaExceeded => Some("make room on that disk"),
        _ => None,
    });
    // SQLite speaks in words alone.
    let said = format!("{error:#}");
    let by_words = [
        (
            "file is not a database",
            "move it away (with its -wal and -shm) and put a copy back, such as one of `backups`; \
             without one, Prism begins anew",
        ),
        (
            "unable to open database file",
            "it must be a file that you may write, in a folder that you may write: move away what \
             stands there, or set PRISM_HOME to another",
        ),
        (
            "readonly database",
            "make it writable for you, or set PRISM_HOME to another",
        ),
    ];
    let by_words = || by_words.iter().find(|(words, _)| said.contains(words));
    by_kind
        .or_else(|| by_words().map(|(_, step)| *step))
        .map(str::to_owned)
}

pub type Outcome = Result<(), Failure>;

/// Whether colours leave this process; it does not print any before that was decided.
static COLOR: OnceLock<bool> = OnceLock::new();
/// Our own colours: the only escape sequences that leave this process.
const COLORS: [&str; 9] = ["0", "1", "2", "31", "32", "33", "36", "1;33", "1;35"];

/// Text as it may be printed: whole escape sequences and controls of others are gone.
fn printable(text: &str, color: bool) -> String {
    if !color {
        return text::lines(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut others = 0;
    for (at, _) in text.match_indices("\u{1b}[") {
        let code = text[at + 2..].split('m').next().unwrap_or_default();
        if at >= others && COLORS.contains(&code) {
            out.push_str(&text::lines(&text[others..at]));
            others = at + 3 + code.len();
            out.push_str(&text[at..others]);
        }
    }
    out.push_str(&text::lines(&text[others..]));
    out
}

/// Whether to colour, decided once.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    pub color: bool,
}

impl Style {
    pub fn of_stdout(no_color: bool) -> Self {
        Self {
            color: *COLOR.get_or_init(|| !no_color && std::io::stdout().is_terminal()),
        }
    }

    /// Colours text that may be somebody else's: theirs is cleaned, ours goes around it.
    pub fn paint(self, code: &str, text: &str) -> String {
        if self.color {
            let text = text::lines(text);
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    pub fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }

    pub fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }

    pub fn category(self, category: Category, text: &str) -> String {
        let code = match category {
            Category::Ask => "31",
            Category::Blocker => "1;35",
            Category::Task => "36",
            Category::Info => "2",
        };
        self.paint(code, text)
    }
}

/// Prints to stdout; a reader that went away ends the command well, a full disk does not.
pub fn out(text: &str) {
    match print(text) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => {
            note(&format!("prism: cannot write to standard output: {e}"));
            std::process::exit(2);
        }
    }
}

/// Whether anybody chose where standard output goes. A process that is started without one is given
/// the null device, open in both directions; whoever throws output away opens it to write.
pub fn is_heard() -> bool {
    let stdout = std::io::stdout();
    let (Ok(here), Ok(null)) = (rustix::fs::fstat(&stdout), rustix::fs::stat("/dev/null")) else {
        return false;
    };
    let both_ways =
        || rustix::fs::fcntl_getfl(&stdout).is_ok_and(|f| f & OFlags::RWMODE == OFlags::RDWR);
    !((here.st_dev, here.st_ino) == (null.st_dev, null.st_ino) && both_ways())
}

/// Prints to stdout; a reader that went away changes nothing, for there is still something to tidy
/// up.
pub fn out_anyway(text: &str) {
    drop(print(text));
}

fn print(text: &str) -> std::io::Result<()> {
    let text = printable(text, COLOR.get() == Some(&true));
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.write_all(b"\n")?;
    stdout.flush()
}

pub fn note(text: &str) {
    let text = printable(text, COLOR.get() == Some(&true));
    // Nobody can be told that stderr is closed.
    drop(writeln!(std::io::stderr(), "{text}"));
}

/// How far long work is: one line on a terminal, nothing in a pipe.
pub struct Progress {
    what: String,
    total: usize,
    shown: bool,
}

impl Progress {
    pub fn new(what: &str, total: usize) -> Self {
        Self {
            what: what.to_owned(),
            total,
            shown: std::io::stderr().is_terminal(),
        }
    }

    pub fn at(&mut self, n: usize) {
        if !self.shown {
            return;
        }
        let share = if self.total == 0 {
            1.0
        } else {
            n as f64 / self.total as f64
        };
        let filled = (share * 30.0).round() as usize;
        drop(write!(
            std::io::stderr(),
            "\r\u{1b}[K{} [{}{}] {n}/{}",
            self.what,
            "#".repeat(filled.min(30)),
            ".".repeat(30 - filled.min(30)),
            self.total
        ));
    }

    pub fn done(&mut self) {
        if self.shown {
            drop(write!(std::io::stderr(), "\r\u{1b}[K"));
        }
    }
}

/// Columns padded to their widest cell; colour codes do not count.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|i| {
            rows.iter()
                .filter_map(|r| r.get(i))
                .map(|c| width(c))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(|(i, cell)| format!("{cell}{}", " ".repeat(widths[i] - width(cell))))
            .collect();
        cells.join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn width(cell: &str) -> usize {
    let mut visible = 0;
    let mut escape = false;
    for c in cell.chars() {
        match c {
            '\u{1b}' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            _ => visible += 1,
        }
    }
    visible
}

/// How long ago, in the largest unit that fits.
pub fn ago(then: Moment, now: Moment) -> String {
    match now.since_us(then).max(0) / 1_000_000 {
        0..=1 => "now".into(),
        s @ 2..=119 => format!("{s} s ago"),
        s @ 120..=7199 => format!("{} min ago", s / 60),
        s @ 7200..=172_799 => format!("{} h ago", s / 3600),
        s => format!("{} d ago", s / 86400),
    }
}

/// The first digits of an id, enough to quote it.
pub fn short(id: impl ToString) -> String {
    id.to_string().chars().take(8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_whatever_its_colours() {
        let rows = vec![
            vec!["a".into(), "bb".into()],
            vec!["\u{1b}[31mccc\u{1b}[0m".into(), "d".into()],
        ];
        assert_eq!(table(&rows), "a    bb\n\u{1b}[31mccc\u{1b}[0m  d");
    }

    #[test]
    fn only_our_own_colours_reach_a_terminal_and_nothing_a_pipe() {
        let hostile = "\u{1b}]0;title\u{7}a\u{1b}[2J\u{9b}31m\u{202e}b\u{1b}]8;;x\r";
        let line = format!("\u{1b}[31mred\u{1b}[0m {hostile}\n\u{1b}[2mdim\u{1b}[0m");
        assert_eq!(printable(&line, false), "red ab");
        assert_eq!(
            printable(&format!("{hostile}\n\u{1b}[2mdim\u{1b}[0m"), true),
            "ab\u{1b}[2mdim\u{1b}[0m",
            "an unended sequence takes what follows it, but not our colours"
        );
        let painted = Style { color: true }.paint("31", "\u{1b}[2mx\u{1b}[5my");
        assert_eq!(painted, "\u{1b}[31mxy\u{1b}[0m");
    }

    #[test]
    fn ages_are_told_in_one_unit() {
        let at = |s: i64| ago(Moment(0), Moment(s * 1_000_000));
        assert_eq!(
            [at(1), at(30), at(600), at(10_000), at(1_000_000)],
            ["now", "30 s ago", "10 min ago", "2 h ago", "11 d ago"]
        );
    }
}
