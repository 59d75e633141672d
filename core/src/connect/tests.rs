//! The rules of connecting: in and out again is the same file, twice is once, nobody else's byte moves.

use super::json::Dialect;
use super::parts::{Line, Undo};
use super::*;
use proptest::prelude::*;
use serde_json::Value;

fn launch() -> Launch {
    Launch {
        program: "prism".into(),
        same: vec!["/opt/bin/prism".into()],
        ..Launch::default()
    }
}

fn places() -> Places {
    Places {
        home: "/home/f".into(),
        claude: "/home/f/.claude".into(),
        claude_json: "/home/f/.claude.json".into(),
        codex: "/home/f/.codex".into(),
        config: "/home/f/.config".into(),
        code_user: "/home/f/.config/Code/User".into(),
        root: "/home/f/app".into(),
    }
}

/// Everything that can be asked for.
fn everything() -> Wish {
    Wish {
        pins: Pins {
            identity: Some("Donna".into()),
            pid: Some("PID-X".into()),
        },
        allow_tools: true,
        own_servers: true,
        ..Wish::default()
    }
}

/// In, in again, and out: the same bytes, and all of ours found in between.
#[track_caller]
fn in_and_out(text: &str, file: &HostFile) -> Added {
    let added = add(text, file.format, &file.parts, &launch()).unwrap();
    let again = add(&added.text, file.format, &file.parts, &launch()).unwrap();
    assert_eq!(again.text, added.text, "twice is once: {text:?}");
    assert!(again.undo.is_empty(), "{again:?}");
    let found = look(&added.text, file.format, &file.parts, &launch()).unwrap();
    for part in &file.parts {
        match part {
            Part::Server(_, _, pins) => {
                let server = found.server.as_ref().unwrap();
                assert_eq!(server.program.as_deref(), Some("prism"));
                assert_eq!(&server.pins, pins);
            }
            Part::Hooks(..) => assert_eq!(found.hooks.missing, [""; 0]),
            Part::Waiters(..) => assert_eq!(found.waiters.missing, [""; 0]),
            Part::StatusLine => assert!(matches!(found.line, Some(Line::Ours(_)))),
            Part::Allow => assert!(found.allowed),
            Part::Env(pins) => assert_eq!(&found.pins, pins),
            Part::OwnServers => assert_eq!(found.daemon, Some(false)),
            Part::Block => assert!(found.block),
            Part::Trust(_) => {}
        }
    }
    let out = remove(
        &added.text,
        file.format,
        &file.parts,
        Some(&added.undo),
        &launch(),
    )
    .unwrap();
    assert_eq!(out, text, "from {:?}", added.text);
    added
}

fn one(host: Host, scope: Scope, name: &str) -> HostFile {
    let wish = match scope {
        Scope::User => everything(),
        Scope::Project => Wish::default(),
    };
    let files = files(host, scope, &places(), &wish).unwrap();
    let found = files.into_iter().find(|f| f.path.ends_with(name));
    found.unwrap_or_else(|| panic!("{host} has no {name}"))
}

#[test]
fn what_each_host_gets_where() {
    let mut table = String::new();
    for host in Host::ALL {
        for scope in [Scope::User, Scope::Project] {
            let wish = Wish {
                instructions: instructions(host, scope, &places()).is_some(),
                ..Wish::default()
            };
            for file in files(host, scope, &places(), &wish).unwrap() {
                let parts: Vec<&str> = file
                    .parts
                    .iter()
                    .map(|p| match p {
                        Part::Server(..) => "server",
                        Part::Hooks(..) => "hooks",
                        Part::Waiters(..) => "waiters",
                        Part::StatusLine => "line",
                        Part::Allow => "allow",
                        Part::Env(_) => "env",
                        Part::OwnServers => "own servers",
                        Part::Block => "block",
                        Part::Trust(_) => "trust",
                    })
                    .collect();
                table += &format!(
                    "{host} {}: {} ({})\n",
                    scope.name(),
                    file.path.display(),
                    parts.join(", ")
                );
            }
        }
    }
    insta::assert_snapshot!(table, @r"
    claude-code user: /home/f/.claude.json (server)
    claude-code user: /home/f/.claude/settings.json (hooks, waiters, line)
    claude-code user: /home/f/.claude/CLAUDE.md (block)
    claude-code project: /home/f/app/.mcp.json (server)
    claude-code project: /home/f/app/.claude/settings.json (hooks, waiters, line)
    claude-code project: /home/f/app/CLAUDE.md (block)
    codex user: /home/f/.codex/config.toml (server)
    codex user: /home/f/.codex/hooks.json (hooks)
    codex user: /home/f/.codex/AGENTS.md (block)
    codex project: /home/f/app/.codex/config.toml (server)
    codex project: /home/f/app/.codex/hooks.json (hooks)
    codex project: /home/f/app/AGENTS.md (block)
    cursor user: /home/f/.cursor/mcp.json (server)
    cursor user: /home/f/.cursor/hooks.json (hooks)
    cursor project: /home/f/app/.cursor/mcp.json (server)
    cursor project: /home/f/app/.cursor/hooks.json (hooks)
    cursor project: /home/f/app/AGENTS.md (block)
    vscode user: /home/f/.config/Code/User/mcp.json (server)
    vscode user: /home/f/.copilot/hooks/prism.json (hooks)
    vscode project: /home/f/app/.vscode/mcp.json (server)
    vscode project: /home/f/app/.github/hooks/prism.json (hooks)
    vscode project: /home/f/app/AGENTS.md (block)
    gemini user: /home/f/.gemini/settings.json (server, hooks)
    gemini user: /home/f/.gemini/GEMINI.md (block)
    gemini project: /home/f/app/.gemini/settings.json (server, hooks)
    gemini project: /home/f/app/GEMINI.md (block)
    opencode user: /home/f/.config/opencode/opencode.json (server)
    opencode user: /home/f/.config/opencode/AGENTS.md (block)
    opencode project: /home/f/app/opencode.json (server)
    opencode project: /home/f/app/AGENTS.md (block)
    ");
}

#[test]
fn an_identity_is_never_pinned_in_a_file_under_the_repository() {
    for host in Host::ALL {
        let wish = everything();
        match files(host, Scope::Project, &places(), &wish) {
            Err(refusal) => {
                assert_ne!(host, Host::ClaudeCode);
                assert!(refusal.message.contains("--user"), "{refusal}");
            }
            Ok(files) => {
                assert_eq!(host, Host::ClaudeCode);
                for file in files {
                    let added = add("", file.format, &file.parts, &launch()).unwrap();
                    let here = is_under(&file.path, &places().root);
                    assert_eq!(here, !added.text.contains("Donna"), "{}", added.text);
                    assert_eq!(here, !added.text.contains("PID-X"));
                }
            }
        }
    }
}

#[test]
fn whatever_can_be_written_is_looked_for_at_the_end() {
    for host in Host::ALL {
        for scope in [Scope::User, Scope::Project] {
            let all = everywhere(host, scope, &places());
            let pins = [everything().pins, Pins::default()];
            let wishes = pins.into_iter().flat_map(|pins| {
                [true, false].map(|hooks_in_toml| Wish {
                    pins: pins.clone(),
                    instructions: instructions(host, scope, &places()).is_some(),
                    hooks_in_toml,
                    ..everything()
                })
            });
            for file in wishes
                .filter_map(|w| files(host, scope, &places(), &w).ok())
                .flatten()
            {
                let added = add("", file.format, &file.parts, &launch()).unwrap();
                let at_end = all.iter().find(|f| f.path == file.path);
                let parts = &at_end
                    .unwrap_or_else(|| panic!("{}", file.path.display()))
                    .parts;
                let out = remove(
                    &added.text,
                    file.format,
                    parts,
                    Some(&added.undo),
                    &launch(),
                )
                .unwrap();
                assert!(
                    !out.contains("prism") && !out.contains("PRISM"),
                    "{host}: {out}"
                );
                assert!(!out.contains(toml::DAEMON), "{host}: {out}");
            }
        }
    }
}

#[test]
fn a_new_file_of_each_kind() {
    let text = |host, scope, name| in_and_out("{}\n", &one(host, scope, name)).text;
    insta::assert_snapshot!(text(Host::ClaudeCode, Scope::Project, ".mcp.json"), @r#"
    {
      "mcpServers": {
        "prism": {
          "type": "stdio",
          "command": "prism",
          "args": [
            "mcp"
          ]
        }
      }
    }
    "#);
    insta::assert_snapshot!(text(Host::OpenCode, Scope::User, "opencode.json"), @r#"
    {
      "mcp": {
        "prism": {
          "type": "local",
          "command": [
            "prism",
            "mcp"
          ],
          "enabled": true,
          "environment": {
            "PRISM_AGENT_IDENTITY": "Donna",
            "PRISM_PID": "PID-X"
          }
        }
      }
    }
    "#);
    let toml = in_and_out("", &one(Host::Codex, Scope::User, "config.toml")).text;
    insta::assert_snapshot!(toml, @r#"
    [features]
    daemon_auto_start = false

    [mcp_servers.prism]
    command = "prism"
    args = ["mcp"]
    env_vars = ["PRISM_HOME", "PRISM_AGENT_SURFACE", "CODEX_HOME", "PRISM_DOORBELL", "PRISM_AUTOSTART", "PRISM_URL", "PRISM_API_KEY", "PRISM_ALLOW_HTTP", "PRISM_CA_FILE"]
    env = { PRISM_AGENT_IDENTITY = "Donna", PRISM_PID = "PID-X" }
    "#);
    let cursor = text(Host::Cursor, Scope::Project, "hooks.json");
    assert!(cursor.starts_with("{\n  \"version\": 1,\n  \"hooks\": {\n    \"sessionStart\": [\n"));
    let settings: Value =
        serde_json::from_str(&text(Host::ClaudeCode, Scope::Project, "settings.json")).unwrap();
    let hook =
        serde_json::json!({"hooks": [{"type": "command", "command": "prism hook", "timeout": 3}]});
    let waiter = serde_json::json!({"hooks": [{"type": "command", "command": "prism hook --rewake", "asyncRewake": true, "timeout": 86_400}]});
    assert_eq!(settings["hooks"]["Stop"], serde_json::json!([hook, waiter]));
    assert_eq!(settings["hooks"]["PostToolUse"], serde_json::json!([hook]));
    let line = serde_json::json!({"type": "command", "command": "prism statusline", "refreshInterval": 1, "padding": 0});
    assert_eq!(settings["statusLine"], line);
}

#[test]
fn whatever_a_json_file_looks_like_only_our_parts_come_and_go() {
    let file = one(Host::ClaudeCode, Scope::User, "settings.json");
    for text in [
        "{}",
        "{}\n",
        "{\"a\":1}",
        "{\"a\": 1}\n",
        "{ \"a\": 1 }",
        "{\n  \"a\": 1\n}\n",
        "{\n\t\"a\": [],\n\t\"b\": {}\n}",
        "{\r\n    \"model\": \"opus\",\r\n    \"hooks\": {}\r\n}\r\n",
        "\u{feff}{\n  \"a\": 1\n}\n",
        "{\n  \"hooks\": {\n    \"Stop\": [\n      {\n        \"hooks\": [\n          {\n            \"type\": \"command\",\n            \"command\": \"beep\"\n          }\n        ]\n      }\n    ]\n  }\n}\n",
        "{\"hooks\":{\"Stop\":[{\"hooks\":[{\"type\":\"command\",\"command\":\"beep\"}]}],\"Other\":[]},\"x\":null}",
        "{\n  \"permissions\": {\n    \"allow\": [\"Bash(ls:*)\"],\n    \"deny\": []\n  }\n}\n",
        "{\n  \"permissions\": {},\n  \"env\": {\"A\": \"b\"}\n}\n",
        "{\n  \"statusLine\": {\n    \"type\": \"command\",\n    \"command\": \"~/bin/line.sh 'a b' \\\"c\\\"\",\n    \"padding\": 2\n  }\n}\n",
        "{\"statusLine\":{\"type\":\"command\",\"command\":\"x\",\"refreshInterval\":5}}",
        "{\n  \"statusLine\": null,\n  \"env\": {\"PRISM_AGENT_IDENTITY\": \"Old\"}\n}",
    ] {
        in_and_out(text, &file);
    }
}

#[test]
fn comments_and_last_commas_stay_where_the_host_takes_them() {
    let file = one(Host::Gemini, Scope::User, "settings.json");
    for text in [
        "// mine\n{\n  // about a\n  \"a\": 1, // and more\n}\n// end\n",
        "{\n  /* none */\n}\n",
        "{\n  \"mcpServers\": {\n    // others\n    \"x\": {\"command\": \"y\"}, // why\n  },\n}\n",
        "{\n  \"mcpServers\": {\n    \"x\": {\"command\": \"y\"} // why\n  }\n}\n",
        "{\"hooks\": {/* later */}}",
    ] {
        let added = in_and_out(text, &file);
        let comments = |t: &str| t.matches("//").count() + t.matches("/*").count();
        assert_eq!(comments(text), comments(&added.text));
    }
}

#[test]
fn a_file_that_cannot_be_read_is_refused_with_its_place() {
    let plain = one(Host::ClaudeCode, Scope::User, "settings.json");
    for (text, line, column, says) in [
        ("{\n  // note\n}", 2, 3, "comment"),
        ("{\n  \"a\": 1,\n}", 2, 9, "comma"),
        ("{\"a\": }", 1, 7, "no value"),
        ("{\"a\" 1}", 1, 6, "colon"),
        ("{\"a\": \"x\n\"}", 1, 7, "without an end"),
        ("[1]", 1, 1, "an object is expected"),
        ("{} {}", 1, 4, "after the end"),
        ("{\"a\": 1", 1, 8, "ends before"),
        (
            "{\"hooks\": []}",
            1,
            11,
            "an object is expected for `hooks`",
        ),
        (
            "{\"hooks\": {\"Stop\": 3}}",
            1,
            20,
            "a list is expected for `Stop`",
        ),
        ("{\"permissions\": null}", 1, 17, "`permissions`"),
    ] {
        let refusal = add(text, plain.format, &plain.parts, &launch()).unwrap_err();
        assert_eq!(refusal.place, Some((line, column)), "{text}: {refusal}");
        assert!(refusal.message.contains(says), "{text}: {refusal}");
    }
    let toml = one(Host::Codex, Scope::User, "config.toml");
    for (text, line) in [("a = 1\nb = \n", 2), ("[x]\n[x]\n", 2), ("a = 'x\n", 1)] {
        let refusal = add(text, toml.format, &toml.parts, &launch()).unwrap_err();
        assert_eq!(refusal.place.map(|p| p.0), Some(line), "{text}: {refusal}");
    }
    let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
    assert!(json::parse(&deep, Dialect::Plain).is_err());
}

#[test]
fn somebody_elses_server_of_our_name_is_not_touched() {
    let file = one(Host::ClaudeCode, Scope::User, ".claude.json");
    let text = "{\n  \"mcpServers\": {\n    \"prism\": {\"command\": \"npx\", \"args\": [\"prism-lens\"]}\n  }\n}";
    let refusal = add(text, file.format, &file.parts, &launch()).unwrap_err();
    assert_eq!(refusal.place, Some((3, 14)));
    assert!(refusal.message.contains("another MCP server"), "{refusal}");
    assert_eq!(
        remove(text, file.format, &file.parts, None, &launch()).unwrap(),
        text
    );
    let file = one(Host::Codex, Scope::User, "config.toml");
    let text = "[mcp_servers.prism]\nurl = \"http://x\"\n";
    assert!(add(text, file.format, &file.parts, &launch()).is_err());
    assert_eq!(
        remove(text, file.format, &file.parts, None, &launch()).unwrap(),
        text
    );
}

#[test]
fn a_command_that_still_starts_this_program_keeps_its_text() {
    let file = one(Host::ClaudeCode, Scope::Project, "settings.json");
    let older = |program: &str| Launch {
        program: program.into(),
        ..Launch::default()
    };
    for (program, stays) in [("/opt/bin/prism", true), ("/gone/prism", false)] {
        let text = add("{}", file.format, &file.parts, &older(program))
            .unwrap()
            .text;
        let now = add(&text, file.format, &file.parts, &launch())
            .unwrap()
            .text;
        assert_eq!(now == text, stays, "{program}");
        assert_eq!(now.contains("\"prism hook\""), !stays);
        let out = remove(&now, file.format, &file.parts, None, &launch()).unwrap();
        assert_eq!(out, "{}");
    }
    let file = one(Host::Codex, Scope::Project, "config.toml");
    let text = add("", file.format, &file.parts, &older("/gone/prism"))
        .unwrap()
        .text;
    let now = add(&text, file.format, &file.parts, &launch())
        .unwrap()
        .text;
    assert!(
        now.contains("command = \"prism\"") && !now.contains("/gone"),
        "{now}"
    );
}

#[test]
fn what_the_user_changed_meanwhile_stays_when_we_go() {
    let file = one(Host::ClaudeCode, Scope::User, "settings.json");
    let text =
        "{\n  \"statusLine\": {\"type\": \"command\", \"command\": \"mine\", \"padding\": 3}\n}\n";
    let added = add(text, file.format, &file.parts, &launch()).unwrap();
    // As a host writes it anew: other layout, an own rule, our hook beside another.
    let mut value: Value = serde_json::from_str(&added.text).unwrap();
    value["permissions"]["allow"]
        .as_array_mut()
        .unwrap()
        .push("Bash(ls)".into());
    value["hooks"]["Stop"][0]["hooks"]
        .as_array_mut()
        .unwrap()
        .push(serde_json::json!({"type": "command", "command": "beep"}));
    value["theme"] = "dark".into();
    let rewritten = serde_json::to_string_pretty(&value).unwrap();
    for undo in [Some(added.undo.as_slice()), None] {
        let out = remove(&rewritten, file.format, &file.parts, undo, &launch()).unwrap();
        let out: Value = serde_json::from_str(&out).unwrap();
        let beep =
            serde_json::json!({"Stop": [{"hooks": [{"type": "command", "command": "beep"}]}]});
        assert_eq!(out["hooks"], beep);
        assert_eq!(out["permissions"]["allow"], serde_json::json!(["Bash(ls)"]));
        assert_eq!(out["theme"], "dark");
        assert_eq!(out["statusLine"]["command"], "mine");
        assert_eq!(out["statusLine"]["padding"], 3);
        assert!(out.get("env").is_none(), "{out}");
    }
}

#[test]
fn what_was_there_before_us_is_not_ours_to_remove() {
    let file = one(Host::ClaudeCode, Scope::User, "settings.json");
    let text =
        "{\n  \"permissions\": {\"allow\": [\"mcp__prism\"]},\n  \"hooks\": {\"Stop\": []}\n}\n";
    in_and_out(text, &file);
    let toml = one(Host::Codex, Scope::User, "config.toml");
    in_and_out("[features]\ndaemon_auto_start = false\nx = 1\n", &toml);
}

#[test]
fn a_table_that_is_written_in_parts_is_left_to_the_user() {
    let file = one(Host::Codex, Scope::User, "config.toml");
    let text = "[features.multi_agent_v2]\nenabled = true\n";
    let refused = add(text, file.format, &file.parts, &launch()).unwrap_err();
    assert!(refused.to_string().contains("`[features]`"), "{refused}");
}

#[test]
fn the_ways_a_toml_file_can_be_written() {
    let file = one(Host::Codex, Scope::User, "config.toml");
    let hooks = {
        let wish = Wish {
            hooks_in_toml: true,
            ..everything()
        };
        files(Host::Codex, Scope::User, &places(), &wish)
            .unwrap()
            .remove(0)
    };
    for text in [
        "",
        "model = \"x\"",
        "model = \"x\"\n",
        "# only a comment\n",
        "# top\nmodel = \"x\" # why\n\n# about the end\n",
        "[features]\n",
        "[features]\nx = true # keep\n\n[other]\ny = 1\n",
        "[features]\ndaemon_auto_start = true # on\n",
        "features = { x = true }\n",
        "features = {}\n",
        "features.x = true\nmodel = \"y\"\n",
        "[mcp_servers]\n\n[mcp_servers.other] # theirs\ncommand = \"o\"\n\n\n[tui]\nnotify = [\n  \"a\", # b\n]\n",
        "mcp_servers.x.command = \"y\"\n",
        "a = '''\n[mcp_servers.prism]\n'''\n",
        "[hooks.state.\"/x:stop:0:0\"]\ntrusted_hash = \"sha256:1\"\n",
        "[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = \"command\"\ncommand = \"beep\"\n",
    ] {
        for newline in ["\n", "\r\n"] {
            let text = text.replace('\n', newline);
            in_and_out(&text, &file);
            in_and_out(&text, &hooks);
            let with_mark = format!("\u{feff}{text}");
            in_and_out(&with_mark, &file);
        }
    }
    let on_one_line = "mcp_servers = { x = { command = \"y\" } }\n";
    let refusal = add(on_one_line, file.format, &file.parts, &launch()).unwrap_err();
    assert!(refusal.message.contains("[mcp_servers.prism]"), "{refusal}");
}

#[test]
fn a_comment_at_the_end_does_not_become_our_servers() {
    let file = one(Host::Codex, Scope::Project, "config.toml");
    let text = add(
        "a = 1\n\n# to do: more\n",
        file.format,
        &file.parts,
        &launch(),
    )
    .unwrap()
    .text;
    assert!(text.starts_with("a = 1\n\n[mcp_servers.prism]\n"), "{text}");
    assert!(text.ends_with("]\n\n# to do: more\n"), "{text}");
}

#[test]
fn our_server_goes_however_codex_wrote_it_anew() {
    let file = one(Host::Codex, Scope::User, "config.toml");
    for (text, left) in [
        (
            "a = 1\n\n[mcp_servers.prism]\ncommand = \"prism\"\nargs = [\"mcp\"]\n\n[mcp_servers.prism.env]\nX = \"1\"\n\n[b]\nc = 1\n",
            "a = 1\n\n[b]\nc = 1\n",
        ),
        (
            "[mcp_servers]\nprism = { command = \"/x/prism\", args = [\"mcp\"] }\nz = { command = \"z\" }\n",
            "[mcp_servers]\nz = { command = \"z\" }\n",
        ),
        (
            "[mcp_servers]\nprism.command = \"prism\"\nprism.args = [\"mcp\"]\nz.command = \"z\"\n",
            "[mcp_servers]\nz.command = \"z\"\n",
        ),
    ] {
        assert_eq!(
            remove(text, file.format, &file.parts, None, &launch()).unwrap(),
            left
        );
    }
}

#[test]
fn approvals_of_our_hooks_go_with_them_and_others_stay() {
    let key = toml::trust_key("/h/hooks.json", "UserPromptSubmit", 0, 0);
    assert_eq!(key, "/h/hooks.json:user_prompt_submit:0:0");
    let trust = Part::Trust(vec![key, toml::trust_key("/h/hooks.json", "Stop", 1, 0)]);
    let note = |key: &str| format!("[hooks.state.\"/h/hooks.json:{key}\"]\ntrusted_hash = \"x\"\n");
    let (ours, more) = (note("user_prompt_submit:0:0"), note("stop:1:0"));
    let theirs = note("stop:0:0");
    let out = |text: &str| {
        let parts = std::slice::from_ref(&trust);
        assert!(
            look(text, Format::Toml, parts, &launch()).unwrap().any(),
            "{text}"
        );
        remove(text, Format::Toml, parts, None, &launch()).unwrap()
    };
    assert_eq!(
        out(&format!("a = 1\n\n[hooks.state]\n\n{ours}\n{more}")),
        "a = 1\n"
    );
    assert_eq!(
        out(&format!(
            "a = 1\n\n[hooks.state]\n\n{ours}\n{theirs}\n{more}\n[b]\n"
        )),
        format!("a = 1\n\n[hooks.state]\n\n{theirs}\n[b]\n")
    );
}

#[test]
fn a_pin_can_be_added_and_changed_later() {
    for (host, name) in [
        (Host::ClaudeCode, ".claude.json"),
        (Host::Codex, "config.toml"),
        (Host::OpenCode, "opencode.json"),
    ] {
        let file = |identity: Option<&str>| {
            let wish = Wish {
                pins: Pins {
                    identity: identity.map(str::to_owned),
                    pid: None,
                },
                ..Wish::default()
            };
            let files = files(host, Scope::User, &places(), &wish).unwrap();
            files.into_iter().find(|f| f.path.ends_with(name)).unwrap()
        };
        let mut text = String::new();
        for (asked, pinned) in [
            (None, None),
            (Some("Donna"), Some("Donna")),
            (Some("Texi"), Some("Texi")),
            (None, Some("Texi")),
        ] {
            let file = file(asked);
            text = add(&text, file.format, &file.parts, &launch())
                .unwrap()
                .text;
            let server = look(&text, file.format, &file.parts, &launch())
                .unwrap()
                .server
                .unwrap();
            assert_eq!(server.pins.identity.as_deref(), pinned, "{text}");
            assert_eq!(
                text.matches("\"PRISM_AGENT_IDENTITY").count(),
                usize::from(host != Host::Codex || pinned.is_none())
                    * usize::from(pinned.is_some() || host == Host::Codex),
                "{text}"
            );
        }
    }
}

/// JSON as people and programs write it.
fn json_text() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z\"\\\\/é\n ]{0,6}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,4}", inner, 0..4)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    });
    let theirs =
        serde_json::json!([{"matcher": "x", "hooks": [{"type": "command", "command": "beep"}]}]);
    let known = prop::sample::subsequence(
        vec![
            ("hooks".to_owned(), serde_json::json!({})),
            (
                "hooks".to_owned(),
                serde_json::json!({"Stop": theirs, "X": []}),
            ),
            (
                "mcpServers".to_owned(),
                serde_json::json!({"x": {"command": "y"}}),
            ),
            (
                "permissions".to_owned(),
                serde_json::json!({"allow": ["a"]}),
            ),
            ("env".to_owned(), serde_json::json!({"PRISM_PID": "old"})),
            (
                "statusLine".to_owned(),
                serde_json::json!({"type": "command", "command": "l 'x'"}),
            ),
        ],
        0..=6,
    );
    let others = prop::collection::btree_map("[b-z]{1,5}", value, 0..4);
    let layout = (0..4usize, any::<bool>(), any::<bool>(), any::<bool>());
    (known, others, layout).prop_map(|(known, others, (indent, crlf, end, mark))| {
        let mut object = serde_json::Map::from_iter(others);
        object.extend(known);
        let value = Value::Object(object);
        let mut text = match indent {
            0 => value.to_string(),
            n => {
                let indent = ["  ", "\t", "    "][n - 1];
                let mut out = Vec::new();
                let pretty = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
                let mut writer = serde_json::Serializer::with_formatter(&mut out, pretty);
                serde::Serialize::serialize(&value, &mut writer).unwrap();
                String::from_utf8(out).unwrap()
            }
        };
        if end {
            text.push('\n');
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        if mark {
            text.insert(0, '\u{feff}');
        }
        text
    })
}

fn toml_text() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("# note"),
        Just(""),
        Just("k1 = 1"),
        Just("k2 = \"a # b\" # c"),
        Just("k3 = [\n  1,\n  2, # two\n]"),
        Just("k4 = '''\n[x]\n'''"),
    ];
    let head = prop::sample::subsequence(
        vec![
            "[features]",
            "[mcp_servers.other]",
            "[tui]",
            "[[hooks.Stop]]",
            "[hooks.state.\"a:b\"]",
        ],
        0..4,
    );
    let body = prop::collection::vec(prop::collection::vec(line, 0..4), 5);
    (head, body, any::<bool>(), any::<bool>()).prop_map(|(heads, body, end, crlf)| {
        let mut lines: Vec<&str> = Vec::new();
        let mut bodies = body.iter();
        let mut add = |lines: &mut Vec<&'static str>| {
            let mut seen = Vec::new();
            for line in bodies.next().into_iter().flatten() {
                let key = line.split('=').next().unwrap_or_default().trim();
                if !key.starts_with('k') || !seen.contains(&key) {
                    seen.push(key);
                    lines.push(line);
                }
            }
        };
        add(&mut lines);
        for head in heads {
            lines.push(head);
            add(&mut lines);
        }
        let mut text = lines.join("\n");
        if end && !text.is_empty() {
            text.push('\n');
        }
        if crlf {
            text = text.replace('\n', "\r\n");
        }
        text
    })
}

proptest! {
    #[test]
    fn any_json_comes_back_byte_for_byte(text in json_text()) {
        in_and_out(&text, &one(Host::ClaudeCode, Scope::User, "settings.json"));
        in_and_out(&text, &one(Host::Gemini, Scope::User, "settings.json"));
        in_and_out(&text, &one(Host::ClaudeCode, Scope::User, ".claude.json"));
    }

    #[test]
    fn any_toml_comes_back_byte_for_byte(text in toml_text()) {
        in_and_out(&text, &one(Host::Codex, Scope::User, "config.toml"));
    }

    #[test]
    fn what_others_wrote_means_the_same_with_us_beside_it(text in json_text()) {
        let file = one(Host::Gemini, Scope::User, "settings.json");
        let value = |t: &str| json::parse(t.trim_start_matches('\u{feff}'), Dialect::Plain).unwrap().to_value();
        let before = value(&text);
        let after = value(&add(&text, file.format, &file.parts, &launch()).unwrap().text);
        for (key, theirs) in before.as_object().unwrap() {
            if !["hooks", "mcpServers"].contains(&key.as_str()) {
                prop_assert_eq!(&after[key], theirs);
            }
        }
        for (event, theirs) in before["hooks"].as_object().into_iter().flatten() {
            let groups = theirs.as_array().unwrap();
            prop_assert_eq!(&after["hooks"][event].as_array().unwrap()[..groups.len()], &groups[..]);
        }
    }

    #[test]
    fn no_text_makes_the_readers_fall_over(text in ".{0,80}") {
        drop(json::parse(&text, Dialect::Commented));
        drop(add(&text, Format::Json(Dialect::Commented), &one(Host::Gemini, Scope::User, "settings.json").parts, &launch()));
        drop(add(&text, Format::Toml, &one(Host::Codex, Scope::User, "config.toml").parts, &launch()));
    }
}

#[test]
fn a_note_of_the_past_reads_back() {
    let undo = vec![Undo {
        at: vec!["a".into()],
        before: None,
    }];
    let text = serde_json::to_string(&undo).unwrap();
    assert_eq!(serde_json::from_str::<Vec<Undo>>(&text).unwrap(), undo);
}
