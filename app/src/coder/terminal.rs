//! The terminal that a host runs in: its title, and what it was before.

use rustix::fd::BorrowedFd;
use rustix::process::getpgrp;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcsetattr};

/// Keeps the window's title on the terminal's own stack, and takes it back from there.
const PUSH_TITLE: &str = "\u{1b}[22;2t";
/// A terminal without such a stack is left without a title rather than with ours.
const POP_TITLE: &str = "\u{1b}]2;\u{7}\u{1b}[23;2t";
/// Terminals that show what they do not understand.
const WITHOUT_TITLE: [&str; 3] = ["dumb", "linux", "unknown"];

pub struct Terminal {
    /// None without a terminal.
    out: Option<BorrowedFd<'static>>,
    /// Whether it is to have a title, and knows what that is.
    titles: bool,
    /// How the terminal was before the host had it.
    modes: Option<Termios>,
    shown: Option<String>,
}

impl Terminal {
    /// The terminal behind standard output or standard error, if there is one.
    pub fn here(titles: bool, term: Option<&str>) -> Self {
        let (stdout, stderr) = (rustix::stdio::stdout(), rustix::stdio::stderr());
        let out = [stdout, stderr].into_iter().find(|fd| isatty(fd));
        Self {
            out,
            titles: titles && term.is_some_and(|term| !WITHOUT_TITLE.contains(&term)),
            modes: out.and_then(|fd| tcgetattr(fd).ok()),
            shown: None,
        }
    }

    /// Whether titles are shown here.
    pub fn has_title(&self) -> bool {
        self.titles && self.out.is_some()
    }

    /// Whether this job has the terminal: another's must not be written to.
    fn is_ours(out: BorrowedFd<'_>) -> bool {
        tcgetpgrp(out).is_ok_and(|group| group == getpgrp())
    }

    /// One write, whole, so that it stands between two of the host's.
    fn write(out: BorrowedFd<'_>, text: &str) {
        // A terminal that is gone needs no title.
        let _ = rustix::io::write(out, text.as_bytes());
    }

    /// Shows a title, if it is another than the one that is shown.
    pub fn show(&mut self, title: &str) {
        let Some(out) = self.out.filter(|_| self.titles) else {
            return;
        };
        if self.shown.as_deref() == Some(title) || !Self::is_ours(out) {
            return;
        }
        let first = if self.shown.is_none() { PUSH_TITLE } else { "" };
        Self::write(out, &format!("{first}\u{1b}]2;{title}\u{7}"));
        self.shown = Some(title.to_owned());
    }

    /// The title is what it was before; whoever takes the terminal next finds it so.
    pub fn give_back(&mut self) {
        if let (Some(out), Some(_)) = (self.out, self.shown.take()) {
            Self::write(out, POP_TITLE);
        }
    }

    /// The terminal may be ours again: the next title is shown whatever was shown before.
    pub fn take(&mut self) {
        self.shown = None;
    }

    /// The host has ended. One that was killed could not put the terminal back into order.
    pub fn end(&mut self, killed: bool) {
        self.give_back();
        if let (Some(out), Some(modes)) = (self.out, self.modes.take())
            && killed
            && Self::is_ours(out)
        {
            let _ = tcsetattr(out, OptionalActions::Now, &modes);
        }
    }
}
