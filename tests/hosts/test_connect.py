"""Connecting and disconnecting around real sessions leaves a host's files as they were."""
import json
import pathlib
import subprocess

from scripted import PATIENCE_S, Call, Say

PLUGIN = pathlib.Path(__file__).parents[2] / "plugin"


def asks_for_status(seen):
    return Say() if seen.results else Call("prism_status")


def test_claude_codes_files_are_as_they_were(world, claude):
    host = claude("Birch", script=asks_for_status)
    host.settings.parent.mkdir()
    # As a user may have written it: an order, a width and a key of their own.
    before = b'{\n    "model": "opus",\n    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "true"}]}]},\n "mine": [1,2]}\n'
    host.settings.write_bytes(before)
    host.connect()
    assert host.settings.read_bytes() != before
    session = host.stream()
    session.prompt("how is everybody?")
    host.model.saw(lambda seen: seen.results)
    session.close()
    # The host itself rewrites this one at every session: all that goes must be ours.
    config = json.loads((host.home / ".claude.json").read_text())
    assert config.pop("mcpServers").keys() == {"prism"}
    host.disconnect()
    assert host.settings.read_bytes() == before
    after = json.loads((host.home / ".claude.json").read_text())
    assert after == config and list(after) == list(config)


def test_codexs_files_are_as_they_were(world, codex):
    host = codex("Cedar", script=asks_for_status)
    with host.config.open("a") as config:
        config.write("\n# A word of the user's own.\n[tui.keymap] # and here\n")
    before = host.config.read_bytes()
    host.connect()
    assert host.config.read_bytes() != before
    host.run("how is everybody?")
    host.model.saw(lambda seen: seen.results)
    host.disconnect()
    assert host.config.read_bytes() == before


def test_codex_runs_hooks_once_its_user_approved_them(world, codex):
    host = codex("Cedar")
    host.connect()
    check = ["connect", "--check"], {"HOME": str(host.home), "CODEX_HOME": str(host.codex_home)}
    assert "not approved in Codex yet" in world.prism(*check[0], **check[1]).stdout
    host.tui()
    assert "7 of 7, approved in Codex" in world.prism(*check[0], **check[1]).stdout


def test_the_plugin_is_installed_and_brings_the_tools(world, claude):
    """Valid by the host's own word, and enough without `prism connect`."""
    host = claude("Birch", script=asks_for_status)

    def plugin(*args):
        done = subprocess.run(["claude", "plugin", *args], env=host.env(), cwd=world.project, capture_output=True, text=True,
                              timeout=PATIENCE_S)
        assert done.returncode == 0, f"claude plugin {args}: {done.stdout}{done.stderr}"

    plugin("validate", PLUGIN)
    plugin("validate", PLUGIN / "prism")
    plugin("marketplace", "add", PLUGIN)
    plugin("install", "prism@prism")
    session = host.stream("--allowedTools", "mcp__plugin_prism_prism")
    session.prompt("how is everybody?")
    answer = host.model.saw(lambda seen: seen.results).result("prism_status")
    assert [s["identity"] for s in answer["sessions"]] == ["Birch"], answer
