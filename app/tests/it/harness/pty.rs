//! A real terminal for a story: what a program in it sees, and what it writes.

use super::wait_for;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};

pub struct Pty {
    master: File,
    child: Child,
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Pty {
    /// Runs a command as the first one of a terminal of its own.
    pub fn run(command: &Command) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = File::from(rustix::fs::open(&name, flags, Mode::empty()).unwrap());
        let end = || Stdio::from(slave.try_clone().unwrap());
        // A session of its own, and the terminal that it controls; what whoever runs the tests ignores (by `nohup`, or `&`) it does not.
        let mut session = Command::new("env");
        session.args(["--default-signal", "setsid", "--ctty"]);
        session.arg(command.get_program());
        session.args(command.get_args()).env_clear();
        for (name, value) in command.get_envs() {
            if let Some(value) = value {
                session.env(name, value);
            }
        }
        session.env("TERM", "xterm-256color");
        if let Some(dir) = command.get_current_dir() {
            session.current_dir(dir);
        }
        let child = session
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .unwrap();
        let master = File::from(master);
        let written: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut from, into) = (master.try_clone().unwrap(), written.clone());
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The last one to leave the terminal ends it, with an error.
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        Self {
            master,
            child,
            written,
            reader: Some(reader),
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until this was written to the terminal.
    #[track_caller]
    pub fn shows(&self, text: &str) {
        let shown = || self.written().contains(text).then_some(());
        let what = format!("{text:?} on the terminal");
        let all = std::panic::AssertUnwindSafe(|| wait_for(&what, shown));
        if std::panic::catch_unwind(all).is_err() {
            panic!("{what}: {:?}", self.written());
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).unwrap();
    }

    /// Whether the terminal hands over whole lines and echoes them.
    pub fn is_cooked(&self) -> bool {
        use rustix::termios::{LocalModes, tcgetattr};
        let modes = tcgetattr(&self.master).unwrap().local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO)
    }

    /// Waits for the first command's end, and for all that was written.
    pub fn ends(&mut self) -> ExitStatus {
        let status = wait_for("the end of the terminal's command", || {
            self.child.try_wait().unwrap()
        });
        if let Some(reader) = self.reader.take() {
            wait_for("everybody to leave the terminal", || {
                reader.is_finished().then_some(())
            });
        }
        status
    }

    /// The exit code as a shell would tell it.
    pub fn code(&mut self) -> i32 {
        let status = self.ends();
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::KILL);
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
