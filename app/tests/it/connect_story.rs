//! `prism connect`: into the hosts' own files and out again, and not one byte of anybody else's.

use crate::harness::BIN;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A user's home with a repository in it, and Prism's own home beside them.
pub struct User {
    dir: TempDir,
}

const HOSTS: [&str; 6] = [
    "claude-code",
    "codex",
    "cursor",
    "vscode",
    "gemini",
    "opencode",
];

impl User {
    pub fn new() -> Self {
        let user = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(user.at("app/.git")).unwrap();
        fs::create_dir_all(user.bin()).unwrap();
        symlink(BIN, user.bin().join("prism")).unwrap();
        user
    }

    /// Where the user's files are.
    fn home(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("home")
    }

    pub fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn prism_home(&self) -> PathBuf {
        self.dir.path().join("prism")
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    pub fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.read(path)).unwrap()
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(BIN);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()))
            .env("HOME", self.home())
            .env("PRISM_HOME", self.prism_home())
            .current_dir(self.at("app"))
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "prism {args:?}: {said}");
        String::from_utf8(output.stdout).unwrap() + &said
    }

    /// Runs what must not be possible, and returns why.
    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "prism {args:?}: {said}");
        said
    }

    /// Every file, link and folder with its bytes and its mode.
    pub fn tree(&self) -> BTreeMap<PathBuf, (u32, String)> {
        fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, (u32, String)>) {
            for entry in fs::read_dir(dir).unwrap().flatten() {
                let path = entry.path();
                let meta = fs::symlink_metadata(&path).unwrap();
                let holds = if meta.is_symlink() {
                    format!("-> {}", fs::read_link(&path).unwrap().display())
                } else if meta.is_dir() {
                    walk(&path, found);
                    "folder".into()
                } else {
                    String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
                };
                found.insert(path, (meta.permissions().mode() & 0o7777, holds));
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.home(), &mut found);
        found
    }
}

fn scope(name: &str) -> String {
    format!("--{name}")
}

#[test]
fn every_host_comes_back_byte_for_byte_from_nothing() {
    for host in HOSTS {
        for scope in ["user", "project"].map(scope) {
            let user = User::new();
            let before = user.tree();
            let mut args = vec!["connect", host, &scope, "--yes"];
            if !(scope == "--user" && ["cursor", "vscode"].contains(&host)) {
                args.push("--instructions");
            }
            let said = user.ok(&args);
            assert!(said.contains("made "), "{host}: {said}");
            let connected = user.tree();
            assert_ne!(connected, before, "{host} {scope}");
            assert!(
                user.ok(&args).contains("nothing to change"),
                "{host}: twice is once"
            );
            assert_eq!(user.tree(), connected);
            user.ok(&["disconnect", host, &scope]);
            assert_eq!(
                user.tree(),
                before,
                "{host} {scope}: nothing of ours is left"
            );
        }
    }
}

/// Files as users have them: own hooks, own servers, odd layouts.
fn lived_in() -> User {
    let user = User::new();
    user.write(
        ".claude.json",
        "{\"numStartups\":3,\"mcpServers\":{\"x\":{\"command\":\"y\"}}}",
    );
    user.write(
        ".claude/settings.json",
        "{\r\n\t\"model\": \"opus\",\r\n\t\"hooks\": {\r\n\t\t\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"beep\"}]}]\r\n\t},\r\n\t\"statusLine\": {\"type\": \"command\", \"command\": \"echo 'mine'; cat >/dev/null\", \"padding\": 1}\r\n}",
    );
    user.write(".codex/config.toml", "# mine\nmodel = \"x\"\n\n[features]\nother = true # on\n\n[mcp_servers.y]\ncommand = \"z\"\n\n# the end");
    user.write(
        "dotfiles/gemini.json",
        "// with a comment\n{\n    \"theme\": \"dark\", // mine\n}\n",
    );
    fs::create_dir_all(user.at(".gemini")).unwrap();
    symlink("../dotfiles/gemini.json", user.at(".gemini/settings.json")).unwrap();
    user.write(".cursor/mcp.json", "\u{feff}{\n  \"mcpServers\": {}\n}\n");
    user.write(".cursor/hooks.json", "{\n  \"version\": 1,\n  \"hooks\": {\"stop\": [{\"command\": \"beep\", \"loop_limit\": 2}]}\n}\n");
    user.write(
        ".config/opencode/opencode.jsonc",
        "{\n  // mine\n  \"mcp\": {\"a\": {\"type\": \"remote\"},},\n}\n",
    );
    user.write(".config/Code/User/mcp.json", "{\"servers\": {}}");
    user.write("app/AGENTS.md", "# Rules\r\n\r\nBe kind.");
    user.write("app/CLAUDE.md", "@AGENTS.md\n");
    user.write("app/.mcp.json", "{}");
    for (path, mode) in [
        (".claude/settings.json", 0o640),
        ("dotfiles/gemini.json", 0o604),
    ] {
        fs::set_permissions(user.at(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    user
}

#[test]
fn files_that_are_lived_in_keep_everything_and_come_back() {
    let user = lived_in();
    let before = user.tree();
    for host in HOSTS {
        let mut args = vec!["connect", host, "--user", "--yes", "--as", "Donna"];
        args.extend((host == "codex").then_some("--own-server"));
        user.ok(&args);
        user.ok(&["connect", host, "--project", "--yes", "--instructions"]);
    }
    let check: Value = serde_json::from_str(&user.ok(&["connect", "--check", "--json"])).unwrap();
    assert_eq!(check["ok"], true, "{check:#}");
    let connected = |r: &&Value| r["connected"] == true;
    assert_eq!(
        check["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(connected)
            .count(),
        12,
        "{check:#}"
    );
    // In a file that others keep, only our parts are new.
    let settings = user.json(".claude/settings.json");
    assert_eq!(settings["hooks"]["Stop"][0]["hooks"][0]["command"], "beep");
    assert_eq!(
        settings["hooks"]["Stop"][1]["hooks"][0]["command"],
        "prism hook"
    );
    assert_eq!(settings["statusLine"]["refreshInterval"], 1);
    assert_eq!(settings["statusLine"]["padding"], 1);
    let gemini = user.read(".gemini/settings.json");
    assert!(
        gemini.starts_with("// with a comment\n{\n    \"theme\": \"dark\", // mine\n"),
        "{gemini}"
    );
    assert!(
        fs::symlink_metadata(user.at(".gemini/settings.json"))
            .unwrap()
            .is_symlink()
    );
    let codex = user.read(".codex/config.toml");
    assert!(
        codex.contains("other = true # on\ndaemon_auto_start = false\n"),
        "{codex}"
    );
    for host in HOSTS.iter().rev() {
        user.ok(&["disconnect", host]);
    }
    assert_eq!(user.tree(), before);
    let kept: Vec<_> = fs::read_dir(user.prism_home().join("backups"))
        .unwrap()
        .flatten()
        .collect();
    assert_eq!(kept.len(), 1, "only the lock: {kept:?}");
}

#[test]
fn the_order_of_leaving_does_not_matter() {
    let user = lived_in();
    let before = user.tree();
    user.ok(&["connect", "claude-code", "--user", "--yes"]);
    user.ok(&[
        "connect",
        "claude-code",
        "--project",
        "--yes",
        "--as",
        "Texi",
    ]);
    let noted = user.json(".claude.json");
    let here = user.at("app").to_string_lossy().into_owned();
    let local = &noted["projects"][&here]["mcpServers"]["prism"];
    assert_eq!(local["env"]["PRISM_AGENT_IDENTITY"], "Texi");
    user.ok(&["disconnect", "claude-code", "--user"]);
    let noted = user.json(".claude.json");
    assert!(noted["mcpServers"].get("prism").is_none(), "{noted}");
    assert_eq!(
        noted["projects"][&here]["mcpServers"]["prism"]["env"]["PRISM_AGENT_IDENTITY"],
        "Texi"
    );
    user.ok(&["disconnect", "claude-code", "--project"]);
    assert_eq!(user.tree(), before);
    // A block that two hosts wanted stays until the second goes.
    user.ok(&["connect", "codex", "--project", "--yes", "--instructions"]);
    user.ok(&[
        "connect",
        "opencode",
        "--project",
        "--yes",
        "--instructions",
    ]);
    user.ok(&["disconnect", "codex", "--project"]);
    assert!(user.read("app/AGENTS.md").contains("prism:begin"));
    user.ok(&["disconnect", "opencode", "--project"]);
    assert_eq!(user.tree(), before);
}

#[test]
fn nothing_is_written_unless_somebody_says_yes() {
    let user = lived_in();
    let before = user.tree();
    let said = user.refused(&["connect"]);
    assert!(
        said.contains("Claude Code, Codex, Cursor, VS Code, Gemini CLI, OpenCode"),
        "{said}"
    );
    assert!(said.contains("`prism connect codex --yes`"), "{said}");
    let said = user.refused(&["connect", "claude-code"]);
    assert!(
        said.contains("nothing was changed") && said.contains("--yes"),
        "{said}"
    );
    let shown = user.ok(&["connect", "claude-code", "--dry-run"]);
    assert!(
        shown.contains("+++ ") && shown.contains("\"prism hook\""),
        "{shown}"
    );
    let dry: Value = serde_json::from_str(&user.ok(&["connect", "--dry-run", "--json"])).unwrap();
    assert_eq!(dry["hosts"].as_array().unwrap().len(), 6);
    assert!(
        dry["hosts"]
            .as_array()
            .unwrap()
            .iter()
            .all(|h| h["written"] == false),
        "{dry:#}"
    );
    assert_eq!(user.tree(), before);
    assert!(
        !user.prism_home().join("backups").exists(),
        "not even a backup"
    );
    let empty = User::new();
    assert!(
        empty
            .refused(&["connect"])
            .contains("no agent host was found")
    );
}

#[test]
fn approvals_are_the_users_to_give() {
    let user = User::new();
    user.ok(&["connect", "claude-code", "--yes"]);
    assert!(
        user.json(".claude/settings.json")
            .get("permissions")
            .is_none()
    );
    user.ok(&["connect", "claude-code", "--yes", "--allow-tools"]);
    let settings = user.json(".claude/settings.json");
    assert_eq!(
        settings["permissions"]["allow"],
        serde_json::json!(["mcp__prism"])
    );
    let said = user.ok(&["connect", "codex", "--yes"]);
    assert!(said.contains("approve once in Codex"), "{said}");
    // Neither is the one server for all terminals ours to turn off.
    assert!(
        said.contains("stays on") && said.contains("--own-server"),
        "{said}"
    );
    assert!(
        !user
            .read(".codex/config.toml")
            .contains("daemon_auto_start")
    );
    let said = user.ok(&["connect", "codex", "--yes", "--keep-shared-server"]);
    assert!(!said.contains("stays on"), "{said}");
    let said = user.ok(&["connect", "codex", "--yes", "--own-server"]);
    assert!(!said.contains("stays on"), "{said}");
    assert!(
        user.read(".codex/config.toml")
            .contains("daemon_auto_start = false")
    );
    assert!(!user.read(".codex/config.toml").contains("trusted_hash"));
    let trust = |event: &str| {
        let file = user.at(".codex/hooks.json");
        format!(
            "\n[hooks.state.\"{}:{event}:0:0\"]\ntrusted_hash = \"sha256:00\"\n",
            file.display()
        )
    };
    let state = || {
        let check = user.ok(&["connect", "--check", "codex", "--user", "--json"]);
        let check: Value = serde_json::from_str(&check).unwrap();
        check["hosts"][0]["hooks"]["trusted"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(state(), "no");
    let events = [
        "session_start",
        "user_prompt_submit",
        "post_tool_use",
        "permission_request",
        "interrupt",
        "stop",
        "session_end",
    ];
    for (n, event) in events.iter().enumerate() {
        let config = user.read(".codex/config.toml") + &trust(event);
        user.write(".codex/config.toml", &config);
        assert_eq!(
            state(),
            if n + 1 == events.len() {
                "yes"
            } else {
                "partly"
            }
        );
    }
    // Another command under the same approval is one that nobody approved.
    let fits = user.read(".codex/hooks.json");
    fs::remove_file(user.bin().join("prism")).unwrap();
    user.ok(&["connect", "codex", "--yes"]);
    assert!(user.read(".codex/hooks.json").contains("/prism hook"));
    assert_eq!(state(), "again");
    let said = user.ok(&["connect", "--check", "codex", "--user"]);
    assert!(said.contains("approve once more in Codex"), "{said}");
    assert!(!said.contains(", approved in Codex"), "{said}");
    // Connecting once more does not make it approved; approving does, and so does going back.
    user.ok(&["connect", "codex", "--yes"]);
    assert_eq!(state(), "again");
    let ours = user.read(".codex/hooks.json");
    user.write(".codex/hooks.json", &fits);
    symlink(BIN, user.bin().join("prism")).unwrap();
    assert_eq!(state(), "yes");
    user.write(".codex/hooks.json", &ours);
    let config = user.read(".codex/config.toml");
    user.write(
        ".codex/config.toml",
        &config.replace("sha256:00", "sha256:22"),
    );
    assert_eq!(state(), "yes");
    // Codex changed the file, so only our parts go, with what was noted of them; the rest stays.
    let other = "\n[hooks.state.\"/x:stop:0:0\"]\ntrusted_hash = \"sha256:11\"\n";
    let config = user.read(".codex/config.toml") + other;
    user.write(".codex/config.toml", &config);
    let said = user.ok(&["disconnect", "codex"]);
    assert!(said.contains("our parts are out"), "{said}");
    let left = user.read(".codex/config.toml");
    assert!(
        !left.contains("mcp_servers") && !left.contains("daemon"),
        "{left}"
    );
    assert_eq!(left.trim(), other.trim());
    assert!(!user.at(".codex/hooks.json").exists());
}

#[test]
fn a_host_that_rewrote_its_file_keeps_what_it_wrote() {
    let user = lived_in();
    user.ok(&["connect", "claude-code", "--yes"]);
    // As Claude Code does at every session: other layout, other order, more keys.
    let mut noted = user.json(".claude.json");
    noted["numStartups"] = 4.into();
    noted["tipsHistory"] = serde_json::json!({"a": 1});
    user.write(
        ".claude.json",
        &serde_json::to_string_pretty(&noted).unwrap(),
    );
    let said = user.ok(&["disconnect", "claude-code"]);
    assert!(said.contains(".claude.json: our parts are out"), "{said}");
    assert!(said.contains("settings.json is as it was before"), "{said}");
    let left = user.json(".claude.json");
    noted["mcpServers"].as_object_mut().unwrap().remove("prism");
    assert_eq!(left, noted);
    assert!(
        said.contains("kept as"),
        "what it was can still be had: {said}"
    );
}

#[test]
fn a_program_of_another_name_comes_out_again() {
    for host in HOSTS {
        let user = lived_in();
        let before = user.tree();
        fs::remove_file(user.bin().join("prism")).unwrap();
        let own = user.dir.path().join("prism-next");
        // By a process of its own: a file that this one has open for writing cannot be run while
        // another test starts something.
        let copied = Command::new("cp").arg(BIN).arg(&own).status().unwrap();
        assert!(copied.success());
        let run = |args: &[&str]| {
            let mut command = Command::new(&own);
            let known = user.command();
            let output = command
                .env_clear()
                .envs(known.get_envs().filter_map(|(k, v)| Some((k, v?))))
                .current_dir(user.at("app"))
                .stdin(Stdio::null())
                .args(args)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{host} {args:?}: {said}");
            String::from_utf8(output.stdout).unwrap() + &said
        };
        run(&["connect", host, "--yes", "--as", "Donna"]);
        let again = run(&["connect", host, "--yes", "--as", "Donna"]);
        assert!(again.contains("nothing to change"), "{host}: {again}");
        let check = run(&["connect", "--check", host, "--user", "--json"]);
        let check: Value = serde_json::from_str(&check).unwrap();
        assert_eq!(check["hosts"][0]["connected"], true, "{check:#}");
        // Somebody else's hook with the same words stays somebody else's.
        let theirs = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"/opt/guard hook\"}]}]}}";
        if host == "claude-code" {
            user.write("app/.claude/settings.json", theirs);
        }
        // The hosts touch their files, so that the copies cannot be put back.
        for path in [
            ".claude.json",
            ".cursor/mcp.json",
            ".config/Code/User/mcp.json",
        ] {
            let text = user.read(path).trim_end().to_owned() + "\n\n";
            user.write(path, &text);
        }
        let config = user.read(".codex/config.toml") + "\n[tui]\nx = 1\n";
        user.write(".codex/config.toml", &config);
        // And it is another program of Prism that takes it out, elsewhere.
        let said = user.ok(&["disconnect", host]);
        assert!(!said.contains("is not connected"), "{host}: {said}");
        for (path, (_, holds)) in user.tree() {
            assert!(!holds.contains("prism-next"), "{host} {path:?}: {holds}");
            assert!(!holds.contains("Donna"), "{host} {path:?}: {holds}");
            let known = before.contains_key(&path) || path.starts_with(user.at("app/.claude"));
            assert!(known, "{host}: {path:?} is left");
        }
        if host == "claude-code" {
            assert_eq!(user.read("app/.claude/settings.json"), theirs);
        }
    }
}

#[test]
fn the_users_own_changes_between_two_connects_survive() {
    let user = lived_in();
    user.ok(&["connect", "claude-code", "--yes"]);
    let settings = user.read(".claude/settings.json").replace("opus", "sonnet");
    user.write(".claude/settings.json", &settings);
    user.ok(&["connect", "claude-code", "--yes", "--allow-tools"]);
    user.ok(&["disconnect", "claude-code"]);
    let left = user.read(".claude/settings.json");
    let first = lived_in()
        .read(".claude/settings.json")
        .replace("opus", "sonnet");
    assert_eq!(left, first);
    // What the user removed meanwhile is not missed, and its folder goes, too.
    let fresh = User::new();
    let before = fresh.tree();
    fresh.ok(&["connect", "gemini", "--yes"]);
    fs::remove_file(fresh.at(".gemini/settings.json")).unwrap();
    fresh.ok(&["disconnect", "gemini"]);
    assert_eq!(fresh.tree(), before);
    // Without any note of the past our parts are still known by name and command.
    user.ok(&["connect", "claude-code", "--yes"]);
    fs::remove_dir_all(user.prism_home()).unwrap();
    user.ok(&["disconnect", "claude-code"]);
    assert!(!user.read(".claude/settings.json").contains("prism"));
    assert!(!user.read(".claude.json").contains("prism"));
}

#[test]
fn a_file_that_cannot_be_changed_leaves_all_of_them_alone() {
    let big = format!("{{\"a\": {}}}", "[".repeat(500));
    for (host, path, bad, says) in [
        (
            "claude-code",
            ".claude/settings.json",
            "{\n  \"a\": 1,\n}",
            "line 2, column 9",
        ),
        (
            "claude-code",
            ".claude/settings.json",
            "{\n  // note\n}",
            "line 2, column 3: a comment",
        ),
        (
            "claude-code",
            ".claude/settings.json",
            "{\"hooks\": 1}",
            "`hooks`",
        ),
        (
            "claude-code",
            ".claude/settings.json",
            "[]",
            "an object is expected",
        ),
        (
            "claude-code",
            ".claude.json",
            "{\"mcpServers\": {\"prism\": {\"url\": \"x\"}}}",
            "another MCP server",
        ),
        ("claude-code", ".claude.json", &big, "levels"),
        ("codex", ".codex/config.toml", "a = \n", "line 1, column 5"),
        (
            "codex",
            ".codex/hooks.json",
            "{ // no\n}",
            "line 1, column 3",
        ),
        (
            "gemini",
            ".gemini/settings.json",
            "{\"a\": \"b}",
            "without an end",
        ),
    ] {
        let user = User::new();
        user.write(path, bad);
        let before = user.tree();
        let said = user.refused(&["connect", host, "--yes"]);
        assert!(said.contains(says) && said.contains(path), "{bad}: {said}");
        assert!(said.contains("nothing was changed"), "{said}");
        assert_eq!(user.tree(), before, "{bad}");
    }
    let bad: [(&str, fn(&Path)); 5] = [
        ("read-only", |p| {
            fs::write(p, "{}").unwrap();
            fs::set_permissions(p, fs::Permissions::from_mode(0o444)).unwrap();
        }),
        ("which is not there", |p| symlink("gone.json", p).unwrap()),
        ("leads nowhere", |p| symlink(p, p).unwrap()),
        ("it is a folder", |p| fs::create_dir(p).unwrap()),
        ("this is not UTF-8", |p| fs::write(p, b"{\xff}").unwrap()),
    ];
    for (says, make) in bad {
        let user = User::new();
        fs::create_dir_all(user.at(".claude")).unwrap();
        make(&user.at(".claude/settings.json"));
        let before = user.tree();
        let said = user.refused(&["connect", "claude-code", "--yes"]);
        assert!(
            said.contains(says) && said.contains("settings.json"),
            "{said}"
        );
        assert_eq!(user.tree(), before, "{says}");
    }
    // The same at the end: what broke meanwhile is not made worse.
    let user = User::new();
    user.ok(&["connect", "claude-code", "--yes"]);
    user.write(".claude/settings.json", "{ broken");
    let before = user.tree();
    let said = user.refused(&["disconnect", "claude-code"]);
    assert!(said.contains("settings.json: line 1, column 3"), "{said}");
    assert_eq!(user.tree(), before);
}

#[test]
fn a_pin_never_goes_into_the_repository() {
    for host in HOSTS {
        let user = User::new();
        let args = [
            "connect",
            host,
            "--project",
            "--yes",
            "--as",
            "Donna",
            "--pid",
            "PID-X",
        ];
        let output = user.run(&args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), host == "claude-code", "{said}");
        for (path, (_, holds)) in user.tree() {
            let inside = path.starts_with(user.at("app"));
            assert!(
                !inside || !(holds.contains("Donna") || holds.contains("PID-X")),
                "{holds}"
            );
        }
    }
    // Nor through a link out of the user's own files.
    let user = User::new();
    user.write("app/claude.json", "{}");
    symlink(user.at("app/claude.json"), user.at(".claude.json")).unwrap();
    let said = user.refused(&["connect", "claude-code", "--yes", "--as", "Donna"]);
    assert!(said.contains("must not be pinned"), "{said}");
    assert_eq!(user.read("app/claude.json"), "{}");
    for bad in ["not a name", "-x"] {
        user.refused(&["connect", "claude-code", "--yes", &format!("--as={bad}")]);
    }
}

#[test]
fn a_terminal_is_not_started_as_somebody_its_host_is_not() {
    let user = User::new();
    let host = "#!/bin/sh\necho \"I am $PRISM_AGENT_IDENTITY\"\n";
    for name in ["claude", "codex", "other"] {
        let path = user.bin().join(name);
        fs::write(&path, host).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let start = |args: &[&str]| {
        let mut command = user.command();
        command.env("PRISM_AUTOSTART", "0").arg("coder");
        let output = command.args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap() + &said,
        )
    };
    for (program, name, file) in [
        ("claude", "claude-code", ".claude.json"),
        ("codex", "codex", "config.toml"),
    ] {
        user.ok(&["connect", name, "--user", "--yes", "--as", "Donna"]);
        let (code, said) = start(&["--as", "Texi", "--", program]);
        assert_eq!(code, Some(2), "{said}");
        assert!(!said.contains("I am"), "it does not even start: {said}");
        for part in [
            "pinned to Donna",
            file,
            "Texi",
            &format!("prism disconnect {name} --user"),
            "--as Donna",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // A shell may start anything, and is only told.
        let (code, said) = start(&["--as", "Texi", "--", "other"]);
        assert_eq!(code, Some(0), "{said}");
        assert!(
            said.contains("I am Texi") && said.contains("pinned to Donna"),
            "{said}"
        );
        user.ok(&["disconnect", name]);
        let (code, said) = start(&["--as", "Texi", "--", "other"]);
        assert!(code == Some(0) && !said.contains("pinned"), "{said}");
    }
    // As the pinned one, or without a pin, it starts.
    user.ok(&["connect", "claude-code", "--user", "--yes", "--as", "Donna"]);
    let (code, said) = start(&["--as", "donna", "--", "claude"]);
    assert!(code == Some(0) && said.contains("I am"), "{said}");
    user.ok(&["disconnect", "claude-code"]);
    user.ok(&["connect", "claude-code", "--user", "--yes"]);
    let (code, said) = start(&["--as", "Texi", "--", "claude"]);
    assert!(code == Some(0) && said.contains("I am Texi"), "{said}");
    // A pin of this folder counts as well, and so does one of the user's own hand.
    let here = ["connect", "claude-code", "--project", "--yes"];
    user.ok(&[&here[..], &["--as", "Wren", "--pid", "PID-X"]].concat());
    let (code, said) = start(&["--as", "Texi", "--", "claude"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("disconnect claude-code --project"), "{said}");
    let (code, said) = start(&["--as", "Wren", "--project", "PID-Y", "--", "claude"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("pinned to PID-X"), "{said}");
    user.ok(&["disconnect", "claude-code"]);
    user.write(
        "app/.claude/settings.local.json",
        "{\"env\": {\"PRISM_AGENT_IDENTITY\": \"Mo\"}}",
    );
    let (code, said) = start(&["--as", "Texi", "--", "claude"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("settings.local.json"), "{said}");
}

#[test]
fn what_a_pin_does_not_reach_and_whom_it_replaces_is_said() {
    let user = User::new();
    let here = ["connect", "claude-code", "--project", "--yes", "--as"];
    let pin = |name: &str| user.ok(&[&here[..], &[name]].concat());
    let said = pin("Wren");
    assert!(
        said.contains("status line") && said.contains("PRISM_AGENT_IDENTITY=Wren"),
        "{said}"
    );
    assert!(!said.contains("from now on"), "{said}");
    let check = ["connect", "--check", "claude-code", "--project"];
    let said = user.ok(&check);
    assert!(said.contains("PRISM_AGENT_IDENTITY=Wren"), "{said}");
    let set = user
        .command()
        .env("PRISM_AGENT_IDENTITY", "Wren")
        .args(check)
        .output()
        .unwrap();
    let said = String::from_utf8(set.stdout).unwrap();
    assert!(
        said.contains("Wren, pinned") && !said.contains("PRISM_AGENT_IDENTITY="),
        "{said}"
    );
    // Another name in its place.
    assert!(!pin("Wren").contains("from now on"));
    let said = pin("Mo");
    assert!(
        said.contains("in this folder were Wren, and are Mo from now on"),
        "{said}"
    );
    // A pin for all folders reaches the status line, so that it says the wrong name here.
    let said = user.ok(&["connect", "claude-code", "--user", "--yes", "--as", "Donna"]);
    assert!(!said.contains("PRISM_AGENT_IDENTITY="), "{said}");
    let said = user.ok(&check);
    assert!(said.contains("say Donna here"), "{said}");
    let said = user.ok(&["connect", "claude-code", "--user", "--yes", "--as", "Texi"]);
    assert_eq!(
        said.matches("of yours were Donna, and are Texi from now on")
            .count(),
        1,
        "{said}"
    );
    // Elsewhere the same is said of every host that can be pinned.
    user.ok(&["connect", "codex", "--yes", "--as", "Donna"]);
    let said = user.ok(&["connect", "codex", "--yes", "--as", "Texi"]);
    assert!(
        said.contains("were Donna, and are Texi from now on"),
        "{said}"
    );
}

#[test]
fn a_newer_host_than_was_tried_is_mentioned_once() {
    let user = User::new();
    let path = user.bin().join("claude");
    fs::write(&path, "#!/bin/sh\necho '9.8.7 (Claude Code)'\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    for args in [
        ["connect", "claude-code", "--yes"],
        ["connect", "claude-code", "--check"],
    ] {
        let said = user.ok(&args);
        assert_eq!(said.matches("newer than").count(), 1, "{said}");
        assert!(said.contains("9.8.7") && said.contains("2.1.325"), "{said}");
    }
}

#[test]
fn a_check_says_what_is_broken_and_doctor_says_it_too() {
    let user = User::new();
    user.ok(&["connect", "claude-code", "--yes"]);
    assert!(user.ok(&["connect", "--check"]).contains("11 of 11"));
    let settings = user.read(".claude/settings.json");
    let less = settings.replace("\"SessionEnd\"", "\"SessionEnds\"");
    user.write(".claude/settings.json", &less);
    let broken = user.run(&["connect", "--check"]);
    assert_eq!(broken.status.code(), Some(1));
    let said = String::from_utf8_lossy(&broken.stdout).into_owned();
    assert!(said.contains("no hook for SessionEnd"), "{said}");
    let doctor = user.run(&["doctor", "--json"]);
    let found: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let wrong = |f: &&Value| f["about"] == "host" && f["level"] == "wrong";
    let wrong = found["findings"].as_array().unwrap().iter().find(wrong);
    assert!(
        wrong.unwrap()["says"]
            .as_str()
            .unwrap()
            .contains("SessionEnd")
    );
    user.write(".claude/settings.json", &settings);
    // A program that has gone is noticed by its name and by its path.
    fs::remove_file(user.bin().join("prism")).unwrap();
    let broken: Value = serde_json::from_slice(
        &user
            .run(&["connect", "--check", "claude-code", "--json"])
            .stdout,
    )
    .unwrap();
    assert_eq!(broken["ok"], false);
    assert_eq!(broken["hosts"][0]["server"]["resolves"], false);
    // Not on the PATH any more: connecting again names the program by its path.
    user.ok(&["connect", "claude-code", "--yes"]);
    let own = Path::new(BIN).canonicalize().unwrap();
    assert_eq!(
        user.json(".claude.json")["mcpServers"]["prism"]["command"],
        own.to_str().unwrap()
    );
    assert_eq!(user.run(&["connect", "--check"]).status.code(), Some(0));
    // And back on it, what still works keeps its text: Codex would ask for its approval again.
    symlink(BIN, user.bin().join("prism")).unwrap();
    assert!(
        user.ok(&["connect", "claude-code", "--yes"])
            .contains("nothing to change")
    );
}

#[test]
fn hosts_do_not_run_our_hooks_twice() {
    let user = User::new();
    user.ok(&["connect", "claude-code", "--yes"]);
    let said = user.ok(&["connect", "vscode", "--yes"]);
    assert!(
        said.contains("it gets no others") && !user.at(".copilot").exists(),
        "{said}"
    );
    user.ok(&["connect", "gemini", "--yes"]);
    let said = user.ok(&["connect", "gemini", "--project", "--yes"]);
    assert!(said.contains("run in all your folders already"), "{said}");
    assert!(
        user.json("app/.gemini/settings.json")
            .get("hooks")
            .is_none()
    );
    // A plugin brings server and hooks itself.
    let user = User::new();
    user.write(
        ".claude/settings.json",
        "{\"enabledPlugins\": {\"prism@market\": true}}",
    );
    user.ok(&["connect", "claude-code", "--yes"]);
    let settings = user.json(".claude/settings.json");
    assert!(settings.get("hooks").is_none() && settings.get("statusLine").is_some());
    assert!(!user.at(".claude.json").exists());
    // Codex complains about hooks in two places, so ours go where the user's are.
    let user = User::new();
    let theirs = "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"beep\"\n";
    user.write(".codex/config.toml", theirs);
    user.ok(&["connect", "codex", "--yes"]);
    assert!(!user.at(".codex/hooks.json").exists());
    assert!(
        user.read(".codex/config.toml")
            .contains("command = \"prism hook\"")
    );
    assert!(user.ok(&["connect", "--check", "codex"]).contains("7 of 7"));
    user.ok(&["disconnect", "codex"]);
    assert_eq!(user.read(".codex/config.toml"), theirs);
}

#[test]
fn the_users_own_status_line_stays_inside_ours() {
    let user = lived_in();
    user.ok(&["connect", "claude-code", "--yes"]);
    let line = user.json(".claude/settings.json")["statusLine"]["command"]
        .as_str()
        .unwrap()
        .to_owned();
    let show = |command: &str| {
        let known = user.command();
        let mut child = Command::new("sh")
            .env_clear()
            .envs(known.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .args(["-c", command])
            .env("PRISM_AGENT_IDENTITY", "Donna")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdin.take().unwrap().write_all(b"{\"cwd\": \"/x\"}"));
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(show(&line), "mine\n[Donna] /x\n");
    for (theirs, shown) in [
        ("cat", "{\"cwd\": \"/x\"}\n[Donna] /x\n"),
        ("exit 3", "[Donna] /x\n"),
        ("/no/such/program", "[Donna] /x\n"),
        ("printf half; exec sleep 600", "[Donna] /x\n"),
        (
            "trap '' TERM HUP; echo first; sleep 600",
            "first\n[Donna] /x\n",
        ),
        ("(exec sleep 600) & echo done", "done\n[Donna] /x\n"),
        ("yes", "y\ny\ny\ny\ny\n[Donna] /x\n"),
        (
            "printf '\\033[31mred\\033[0m\\n\\n'",
            "\u{1b}[31mred\u{1b}[0m\n[Donna] /x\n",
        ),
        ("", "[Donna] /x\n"),
    ] {
        let command = format!(
            "prism statusline --append-to '{}'",
            theirs.replace('\'', r"'\''")
        );
        // What is left running holds nobody up.
        assert_eq!(show(&command), shown, "{theirs}");
    }
}

#[test]
fn earlier_transcripts_are_offered() {
    let user = User::new();
    let here = user
        .at("app")
        .to_string_lossy()
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    user.write(&format!(".claude/projects/{here}/a.jsonl"), "{}\n");
    user.write(".claude/projects/-elsewhere/b.jsonl", "{}\n");
    let said = user.ok(&["connect", "claude-code", "--yes"]);
    assert!(
        said.contains("(1 transcript(s)) can be brought in: prism import"),
        "{said}"
    );
    let session = |cwd: &Path| {
        format!(
            "{{\"type\":\"session_meta\",\"payload\":{{\"cwd\":\"{}\"}}}}\n",
            cwd.display()
        )
    };
    user.write(
        ".codex/sessions/2026/11/16/a.jsonl",
        &session(&user.at("app")),
    );
    user.write(
        ".codex/sessions/2026/11/16/b.jsonl",
        &session(Path::new("/elsewhere")),
    );
    let said = user.ok(&["connect", "codex", "--yes"]);
    assert!(said.contains("(1 transcript(s))"), "{said}");
}

#[test]
fn the_plugin_brings_what_connect_writes() {
    let plugin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugin");
    let read = |path: &str| -> Value {
        serde_json::from_str(&fs::read_to_string(plugin.join(path)).unwrap()).unwrap()
    };
    let user = User::new();
    user.ok(&["connect", "claude-code", "--yes"]);
    assert_eq!(
        read("prism/hooks/hooks.json")["hooks"],
        user.json(".claude/settings.json")["hooks"]
    );
    assert_eq!(
        read("prism/.mcp.json")["mcpServers"],
        user.json(".claude.json")["mcpServers"]
    );
    assert_eq!(
        read("prism/.claude-plugin/plugin.json")["version"],
        env!("CARGO_PKG_VERSION")
    );
    let market = read(".claude-plugin/marketplace.json");
    assert_eq!(market["plugins"][0]["source"], "./prism");
}

#[test]
fn a_link_in_a_repository_leads_nobody_into_the_users_files() {
    let user = User::new();
    user.write(".bashrc", "export A=1\n");
    user.write(".claude/settings.json", "{}\n");
    symlink(user.at(".bashrc"), user.at("app/CLAUDE.md")).unwrap();
    symlink(user.at(".claude"), user.at("app/.claude")).unwrap();
    let before = user.tree();
    let connect = [
        "connect",
        "claude-code",
        "--project",
        "--instructions",
        "--yes",
    ];
    let said = user.refused(&connect);
    assert!(said.contains("outside of this repository"), "{said}");
    assert!(
        said.contains("CLAUDE.md") && said.contains("settings.json"),
        "{said}"
    );
    assert_eq!(user.tree(), before);
    // One that stays inside is the repository's own business, and the diff says where it leads.
    fs::remove_file(user.at("app/CLAUDE.md")).unwrap();
    fs::remove_file(user.at("app/.claude")).unwrap();
    user.write("app/AGENTS.md", "# ours\n");
    symlink("AGENTS.md", user.at("app/CLAUDE.md")).unwrap();
    let said = user.ok(&[&connect[..], &["--dry-run"]].concat());
    assert!(
        said.contains("CLAUDE.md -> ") && said.contains("AGENTS.md"),
        "{said}"
    );
}

#[test]
fn what_a_killed_connect_left_behind_goes_with_the_next() {
    let user = User::new();
    user.write(".claude/settings.json", "{}\n");
    let before = user.tree();
    // No process has a number like this; one that runs may still be writing.
    let gone = ".claude/.settings.json.prism-4194305.tmp";
    let writing = format!(".claude/.settings.json.prism-{}.tmp", std::process::id());
    let others = ".claude/.settings.json.tmp";
    for name in [gone, &writing, others] {
        user.write(name, "half");
    }
    user.ok(&["connect", "claude-code", "--yes"]);
    assert!(!user.at(gone).exists());
    assert!(user.at(&writing).exists() && user.at(others).exists());
    fs::remove_file(user.at(&writing)).unwrap();
    fs::remove_file(user.at(others)).unwrap();
    user.write(gone, "half");
    user.ok(&["disconnect", "claude-code"]);
    assert_eq!(user.tree(), before);
}

#[test]
fn an_older_connection_is_told_of_the_hook_that_waits_and_gets_it() {
    let user = User::new();
    let own = "{\n  \"model\": \"opus\"\n}\n";
    user.write(".claude/settings.json", own);
    user.ok(&["connect", "claude-code", "--yes"]);
    // As an earlier version wrote it.
    let mut settings = user.json(".claude/settings.json");
    for event in ["SessionStart", "Stop"] {
        let groups = settings["hooks"][event].as_array_mut().unwrap();
        assert_eq!(groups.pop().unwrap()["hooks"][0]["asyncRewake"], true);
    }
    let earlier = serde_json::to_string_pretty(&settings).unwrap() + "\n";
    user.write(".claude/settings.json", &earlier);
    let check = user.run(&["connect", "--check"]);
    let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
    assert!(
        said.contains("no hook waits beside an idle session (SessionStart, Stop)"),
        "{said}"
    );
    user.ok(&["connect", "claude-code", "--yes"]);
    let waits = &user.json(".claude/settings.json")["hooks"]["Stop"][1]["hooks"][0];
    assert_eq!(waits["command"], "prism hook --rewake");
    let said = user.ok(&["connect", "claude-code", "--yes"]);
    assert!(said.contains("nothing to change"), "{said}");
    user.ok(&["disconnect", "claude-code"]);
    assert_eq!(user.read(".claude/settings.json"), own);
}
