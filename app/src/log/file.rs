//! The log of a background server: a file that begins anew when it is long, and how it is read.

use crate::home::Home;
use anyhow::Result;
use prism_core::limits::{LOG_BYTES_MAX, LOG_GENERATIONS};
use prism_core::text::without_keys;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};

pub const FOLDER: &str = "log";
pub const NAME: &str = "log/server.log";

/// Writes lines to the log. What goes to standard error on other ways (a panic, a failed start)
/// goes to the same file.
pub struct Rotating {
    home: Home,
    file: Mutex<File>,
}

impl Rotating {
    pub fn open(home: Home) -> Result<Self> {
        home.folder(FOLDER)?;
        let file = Self::begin(&home)?;
        Ok(Self {
            home,
            file: Mutex::new(file),
        })
    }

    fn begin(home: &Home) -> Result<File> {
        let file = home.open_append(NAME)?;
        rustix::stdio::dup2_stderr(&file)?;
        Ok(file)
    }

    fn add(&self, line: &[u8]) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let found = file.metadata()?;
        if found.nlink() == 0 || found.len() >= LOG_BYTES_MAX {
            if found.nlink() > 0 {
                self.home.shift(NAME, LOG_GENERATIONS)?;
            }
            *file = Self::begin(&self.home)?;
        }
        Ok(file.write_all(without_keys(&String::from_utf8_lossy(line)).as_bytes())?)
    }
}

impl Write for &Rotating {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        // A log that cannot be written must not stop a server.
        drop(self.add(line));
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What the log and its older files hold, in bytes.
pub fn size(home: &Home) -> Option<u64> {
    let newest = home.size(NAME)?;
    let older = (1..=LOG_GENERATIONS).filter_map(|n| home.size(&format!("{NAME}.{n}")));
    Some(newest + older.sum::<u64>())
}

/// The last lines of the log, from older files too when the newest has too few.
pub fn last_lines(home: &Home, n: usize) -> Option<Vec<String>> {
    home.size(NAME)?;
    let mut lines = VecDeque::new();
    let older = (1..=LOG_GENERATIONS).map(|n| format!("{NAME}.{n}"));
    for name in std::iter::once(NAME.to_owned()).chain(older) {
        let missing = n.saturating_sub(lines.len());
        let Some(file) = home.open(&name).filter(|_| missing > 0) else {
            break;
        };
        for line in ending(file, missing).into_iter().rev() {
            lines.push_front(line);
        }
    }
    Some(lines.into())
}

/// The last lines of a file that is as long as a log may be.
fn ending(file: File, n: usize) -> VecDeque<String> {
    let mut lines = VecDeque::new();
    for line in BufReader::new(file.take(2 * LOG_BYTES_MAX)).split(b'\n') {
        let Ok(line) = line else { break };
        if lines.len() == n {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(&line).into_owned());
    }
    lines
}

/// Where the log ends now, to hear what is written from here on.
pub struct Follow {
    home: Home,
    file: Option<File>,
    /// The beginning of a line whose end is not written yet.
    begun: Vec<u8>,
}

impl Follow {
    /// From the end of the log as it stands.
    pub fn from_end(home: &Home) -> Self {
        let mut file = home.open(NAME);
        if let Some(file) = &mut file {
            drop(file.seek(SeekFrom::End(0)));
        }
        Self {
            home: home.clone(),
            file,
            begun: Vec::new(),
        }
    }

    /// The lines that were written since the last call.
    pub fn fresh(&mut self) -> Vec<String> {
        let mut lines = self.whole_lines();
        let newest = self.home.open(NAME);
        let inode = |f: &Option<File>| Some(f.as_ref()?.metadata().ok()?.ino());
        if newest.is_some() && inode(&newest) != inode(&self.file) {
            // What was written between the last look and the change is in the older file.
            lines.extend(self.whole_lines());
            self.file = newest;
            lines.extend(self.whole_lines());
        }
        lines
    }

    fn whole_lines(&mut self) -> Vec<String> {
        if let Some(file) = &mut self.file {
            drop(file.take(2 * LOG_BYTES_MAX).read_to_end(&mut self.begun));
        }
        let Some(end) = self.begun.iter().rposition(|b| *b == b'\n') else {
            return Vec::new();
        };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        String::from_utf8_lossy(&whole)
            .lines()
            .map(str::to_owned)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path());
        home.folder(FOLDER).unwrap();
        (dir, home)
    }

    #[test]
    fn the_last_lines_come_from_older_files_too() {
        let (_dir, home) = home();
        assert_eq!(last_lines(&home, 3), None);
        home.append(&format!("{NAME}.2"), b"a\n").unwrap();
        home.append(&format!("{NAME}.1"), b"b\nc\n").unwrap();
        home.append(NAME, b"d\n").unwrap();
        assert_eq!(last_lines(&home, 1).unwrap(), ["d"]);
        assert_eq!(last_lines(&home, 3).unwrap(), ["b", "c", "d"]);
        assert_eq!(last_lines(&home, 9).unwrap(), ["a", "b", "c", "d"]);
        assert_eq!(size(&home), Some(8));
    }

    #[test]
    fn whoever_follows_misses_no_line_when_a_new_file_begins() {
        let (_dir, home) = home();
        home.append(NAME, b"before\n").unwrap();
        let mut follow = Follow::from_end(&home);
        assert!(follow.fresh().is_empty());
        home.append(NAME, b"one\ntw").unwrap();
        assert_eq!(follow.fresh(), ["one"]);
        home.append(NAME, b"o\nthree\n").unwrap();
        home.shift(NAME, LOG_GENERATIONS).unwrap();
        home.append(NAME, b"four\n").unwrap();
        assert_eq!(follow.fresh(), ["two", "three", "four"]);
    }

    #[test]
    fn older_files_move_on_and_the_oldest_goes() {
        let (_dir, home) = home();
        for n in 0..LOG_GENERATIONS + 3 {
            home.append(NAME, n.to_string().as_bytes()).unwrap();
            home.shift(NAME, LOG_GENERATIONS).unwrap();
        }
        let kept: Vec<_> = home.list(FOLDER, "server.log", "");
        assert_eq!(kept, ["server.log.1", "server.log.2", "server.log.3"]);
        assert_eq!(home.read(&format!("{NAME}.1")).unwrap(), "5");
    }
}
