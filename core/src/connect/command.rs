//! The commands that hosts are given, and how they are known again.

/// The word that starts this program, and other words that start the same one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// `prism`, or the program's whole path where the name does not lead to it.
    pub program: String,
    /// What an earlier connect may have written and what still starts this program.
    pub same: Vec<String>,
    /// What earlier connects did write, whatever it is called and wherever it is now.
    pub earlier: Vec<String>,
}

/// The program's own name.
pub const NAME: &str = "prism";
/// What hooks run, after the program.
pub const HOOK: &str = "hook";
/// What the waiter adds to that.
pub const REWAKE: &str = "--rewake";
const STATUSLINE: &str = "statusline";
const APPEND_TO: &str = "--append-to";

impl Launch {
    pub fn hook(&self) -> String {
        format!("{} {HOOK}", shell_word(&self.program))
    }

    /// The hook that waits beside an idle session until a bell is to be rung.
    pub fn waiter(&self) -> String {
        format!("{} {REWAKE}", self.hook())
    }

    /// The status line, with the user's own inside it.
    pub fn statusline(&self, theirs: Option<&str>) -> String {
        let program = shell_word(&self.program);
        match theirs {
            Some(theirs) => format!("{program} {STATUSLINE} {APPEND_TO} {}", quoted(theirs)),
            None => format!("{program} {STATUSLINE}"),
        }
    }

    /// Whether a program that a file names is this one, so that its text can stay.
    pub fn starts(&self, program: &str) -> bool {
        program == self.program || self.same.iter().any(|s| s == program)
    }

    /// Whether a program is Prism: by its name wherever it is installed, or because it is this very
    /// one or one that was connected before. Its file may have any name.
    pub fn is_ours(&self, program: &str) -> bool {
        is_prism(program) || self.starts(program) || self.earlier.iter().any(|e| e == program)
    }
}

/// Whether a program is called as Prism is.
fn is_prism(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name == NAME || name == "prism.exe"
}

/// What a hook's command of ours does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// Answers an event at once.
    Hook,
    /// Waits until a bell is to be rung.
    Waiter,
}

/// The program of a command that runs our hook, and what it does.
pub fn hook_program(command: &str, launch: &Launch) -> Option<(String, Runs)> {
    let (program, rest) = first_word(command)?;
    let (verb, rest) = first_word(rest)?;
    if !launch.is_ours(&program) || verb != HOOK {
        return None;
    }
    let waits = first_word(rest).is_some_and(|(option, _)| option == REWAKE);
    let runs = if waits { Runs::Waiter } else { Runs::Hook };
    Some((program, runs))
}

/// A command that prints our status line.
#[derive(Clone, Debug, PartialEq)]
pub struct OurLine {
    pub program: String,
    /// The user's own command inside it.
    pub theirs: Option<String>,
}

pub fn our_line(command: &str, launch: &Launch) -> Option<OurLine> {
    let (program, rest) = first_word(command)?;
    let (verb, rest) = first_word(rest)?;
    if !launch.is_ours(&program) || verb != STATUSLINE {
        return None;
    }
    let theirs = match first_word(rest) {
        Some((option, rest)) if option == APPEND_TO => Some(first_word(rest)?.0),
        _ => None,
    };
    Some(OurLine { program, theirs })
}

/// A path as a shell reads it back.
fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@:,".contains(c);
    if word.chars().all(plain) {
        word.to_owned()
    } else {
        quoted(word)
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The first word of a command as a shell would read it, and what follows.
fn first_word(command: &str) -> Option<(String, &str)> {
    let command = command.trim_start();
    let mut word = String::new();
    let mut quote = None;
    let mut escaped = false;
    for (at, c) in command.char_indices() {
        match (quote, c) {
            (_, c) if escaped => {
                // Inside double quotes a backslash stays before what needs none.
                if quote == Some('"') && !matches!(c, '"' | '\\' | '$' | '`') {
                    word.push('\\');
                }
                word.push(c);
                escaped = false;
            }
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None | Some('"'), '\\') => escaped = true,
            (None, c) if c.is_whitespace() => return Some((word, &command[at..])),
            (_, c) => word.push(c),
        }
    }
    (!command.is_empty() && quote.is_none() && !escaped).then_some((word, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_hook_is_ours_by_its_program_and_its_verb() {
        for (command, program) in [
            ("prism hook", Some("prism")),
            ("/opt/bin/prism hook", Some("/opt/bin/prism")),
            ("'/opt/my tools/prism' hook", Some("/opt/my tools/prism")),
            (
                "\"/opt/my tools/prism\" hook --x",
                Some("/opt/my tools/prism"),
            ),
            ("prism hooks", None),
            ("prismatic hook", None),
            ("echo prism hook", None),
            ("prism", None),
            ("", None),
            ("prism 'hook", None),
        ] {
            let found = hook_program(command, &Launch::default());
            let expected = program.map(|program| (program.to_owned(), Runs::Hook));
            assert_eq!(found, expected, "{command}");
        }
    }

    #[test]
    fn a_program_of_another_name_is_ours_when_it_is_this_one_or_was_connected() {
        let launch = Launch {
            program: "/opt/prism-dev".into(),
            same: Vec::new(),
            earlier: vec!["/old/prism-0.9".into()],
        };
        let hook = |command: &str| hook_program(command, &launch).map(|(program, _)| program);
        for ours in ["/opt/prism-dev", "/old/prism-0.9", "/any/prism"] {
            assert_eq!(hook(&format!("{ours} hook")).as_deref(), Some(ours));
            let line = our_line(&format!("{ours} statusline"), &launch);
            assert_eq!(line.unwrap().program, ours);
        }
        for theirs in [
            "/opt/guard hook",
            "/opt/prism-dev2 hook",
            "/opt/prism-dev x",
        ] {
            assert_eq!(hook(theirs), None, "{theirs}");
        }
        assert_eq!(our_line("/opt/guard statusline", &launch), None);
    }

    #[test]
    fn a_status_line_is_ours_alone_or_with_the_users_inside() {
        let line = |command: &str| our_line(command, &Launch::default()).map(|l| l.theirs);
        assert_eq!(line("prism statusline"), Some(None));
        assert_eq!(line("prism statusline --color never"), Some(None));
        assert_eq!(
            line("prism statusline --append-to '~/bin/line.sh --x'"),
            Some(Some("~/bin/line.sh --x".into()))
        );
        assert_eq!(line("~/bin/line.sh"), None);
        assert_eq!(line("prism hook"), None);
    }

    proptest! {
        #[test]
        fn whatever_the_users_command_is_it_comes_back(theirs in ".{0,60}", program in "[ -~]{0,12}/[a-z-]{1,8}") {
            let launch = Launch { program: program.clone(), ..Launch::default() };
            let line = our_line(&launch.statusline(Some(&theirs)), &launch).unwrap();
            prop_assert_eq!(line, OurLine { program: program.clone(), theirs: Some(theirs) });
            prop_assert_eq!(hook_program(&launch.hook(), &launch), Some((program.clone(), Runs::Hook)));
            prop_assert_eq!(hook_program(&launch.waiter(), &launch), Some((program, Runs::Waiter)));
        }
    }
}
