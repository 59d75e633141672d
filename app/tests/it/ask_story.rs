//! What `prism connect` asks on a terminal: what is installed, what would change, and only then.

use crate::connect_story::User;
use crate::harness::Pty;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const TOOLS: &str = "Let Claude Code call Prism's tools without asking each time";
const SHARED: &str = "Turn off Codex's one server for all terminals";

/// A user who has Claude Code and Codex, with settings of their own.
fn user() -> User {
    let user = User::new();
    for program in ["claude", "codex"] {
        let path = user.bin().join(program);
        fs::write(&path, "#!/bin/sh\necho 0.0.0\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    user.write(".claude/settings.json", "{\n  \"model\": \"opus\"\n}\n");
    user.write(".codex/config.toml", "# mine\nmodel = \"m\"\n");
    user
}

fn terminal(user: &User, args: &[&str]) -> Pty {
    let mut connect = user.command();
    connect.arg("connect").args(args);
    Pty::run(&connect)
}

/// Reads each question before it answers it.
fn answer(terminal: &mut Pty, answers: &[(&str, &str)]) {
    for (question, keys) in answers {
        terminal.shows(question);
        terminal.types(keys);
    }
}

#[test]
fn it_finds_what_is_installed_and_asks_for_each() {
    let user = user();
    let before = user.tree();
    let mut terminal = terminal(&user, &[]);
    answer(
        &mut terminal,
        &[
            ("Connect Claude Code? [y/N]", "\n"),
            ("Connect Codex? [y/N]", "no\n"),
        ],
    );
    assert_eq!(terminal.code(), 0);
    let written = terminal.written();
    assert!(!written.contains("Cursor"), "it is not here: {written}");
    assert!(!written.contains("Write this"), "{written}");
    assert_eq!(user.tree(), before);
}

#[test]
fn the_change_is_shown_before_the_question_and_a_no_changes_nothing() {
    let user = user();
    let before = user.tree();
    let mut terminal = terminal(&user, &["claude-code"]);
    answer(
        &mut terminal,
        &[(TOOLS, "n\n"), ("Write this for Claude Code? [y/N]", "n\n")],
    );
    assert_eq!(terminal.code(), 0);
    let written = terminal.written();
    let at = |text: &str| {
        let found = written.find(text);
        found.unwrap_or_else(|| panic!("{text:?} in {written}"))
    };
    assert!(at("\"command\": \"prism hook\"") < at("Write this for"));
    assert!(at("mcpServers") < at("Write this for"));
    assert!(at("Write this for") < at("nothing was changed"));
    let named = written.matches("mcp__prism").count();
    assert_eq!(named, 1, "in the question alone: {written}");
    assert_eq!(user.tree(), before);
}

#[test]
fn a_yes_writes_what_was_shown_and_what_was_agreed_to() {
    let user = user();
    let mut terminal = terminal(&user, &[]);
    answer(
        &mut terminal,
        &[
            ("Connect Claude Code? [y/N]", "y\n"),
            (TOOLS, "yes\n"),
            ("Write this for Claude Code? [y/N]", "Y\n"),
            ("Connect Codex? [y/N]", "y\n"),
            (SHARED, "y\n"),
            ("Write this for Codex? [y/N]", "y\n"),
        ],
    );
    assert_eq!(terminal.code(), 0, "{}", terminal.written());
    let settings = user.json(".claude/settings.json");
    assert_eq!(settings["permissions"]["allow"][0], "mcp__prism");
    assert_eq!(settings["model"], "opus");
    assert!(settings["hooks"]["Stop"].is_array());
    let codex = user.read(".codex/config.toml");
    assert!(codex.starts_with("# mine\nmodel = \"m\"\n"), "{codex}");
    assert!(codex.contains("daemon_auto_start = false"), "{codex}");
    // Asked again, there is nothing left to write.
    let mut again = self::terminal(&user, &["claude-code"]);
    assert_eq!(again.code(), 0);
    assert!(again.written().contains("nothing to change"));
    user.ok(&["disconnect", "claude-code"]);
    user.ok(&["disconnect", "codex"]);
    let own = "{\n  \"model\": \"opus\"\n}\n";
    assert_eq!(user.read(".claude/settings.json"), own);
    assert_eq!(user.read(".codex/config.toml"), "# mine\nmodel = \"m\"\n");
}

#[test]
fn whoever_leaves_instead_of_answering_has_changed_nothing() {
    /// What a terminal sends for the end of its input; it goes for one question.
    const END: &str = "\u{4}";
    const INTERRUPT: &str = "\u{3}";
    const CONNECT: &str = "Connect Claude Code? [y/N]";
    const WRITE: &str = "Write this for Claude Code? [y/N]";
    for (args, answers, code) in [
        (&[][..], &[(CONNECT, END), ("Connect Codex?", END)][..], 0),
        (&["claude-code"], &[(TOOLS, END), (WRITE, END)], 0),
        (&["claude-code"], &[(TOOLS, "y\n"), (WRITE, END)], 0),
        (&[], &[(CONNECT, INTERRUPT)], 130),
        (&["claude-code"], &[(TOOLS, INTERRUPT)], 130),
        (&["claude-code"], &[(TOOLS, "y\n"), (WRITE, INTERRUPT)], 130),
    ] {
        let user = user();
        let before = user.tree();
        let mut terminal = terminal(&user, args);
        answer(&mut terminal, answers);
        assert_eq!(terminal.code(), code, "{answers:?}: {}", terminal.written());
        assert_eq!(user.tree(), before, "{answers:?}");
    }
}
