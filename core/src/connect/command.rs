//! The commands that hosts are given, and how they are known again.

/// The word that starts this program, and other words that start the same one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Launch {
    /// `prism`, or the program's whole path where the name does not lead to it.
    pub program: String,
    /// What an earlier connect may have written and what still starts this program.
    pub same: Vec<String>,
}

/// The program's own name.
pub const NAME: &str = "prism";
/// What hooks run, after the program.
pub const HOOK: &str = "hook";
const STATUSLINE: &str = "statusline";
const APPEND_TO: &str = "--append-to";

impl Launch {
    pub fn hook(&self) -> String {
        format!("{} {HOOK}", shell_word(&self.program))
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
}

/// Whether a program is Prism, wherever it is installed.
pub fn is_prism(program: &str) -> bool {
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    name == NAME || name == "prism.exe"
}

/// The program of a command that runs our hook.
pub fn hook_program(command: &str) -> Option<String> {
    let (program, rest) = first_word(command)?;
    (is_prism(&program) && first_word(rest)?.0 == HOOK).then_some(program)
}

/// A command that prints our status line.
#[derive(Clone, Debug, PartialEq)]
pub struct OurLine {
    pub program: String,
    /// The user's own command inside it.
    pub theirs: Option<String>,
}

pub fn our_line(command: &str) -> Option<OurLine> {
    let (program, rest) = first_word(command)?;
    let (verb, rest) = first_word(rest)?;
    if !is_prism(&program) || verb != STATUSLINE {
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
            assert_eq!(hook_program(command).as_deref(), program, "{command}");
        }
    }

    #[test]
    fn a_status_line_is_ours_alone_or_with_the_users_inside() {
        let line = |command: &str| our_line(command).map(|l| l.theirs);
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
        fn whatever_the_users_command_is_it_comes_back(theirs in ".{0,60}", program in "[ -~]{0,12}/prism") {
            let launch = Launch { program: program.clone(), same: Vec::new() };
            let line = our_line(&launch.statusline(Some(&theirs))).unwrap();
            prop_assert_eq!(line, OurLine { program: program.clone(), theirs: Some(theirs) });
            prop_assert_eq!(hook_program(&launch.hook()), Some(program));
        }
    }
}
