"""A host that dies takes with it what it and Prism started."""
import os
import signal
import time

import pytest

from scripted import Call
from world import LEFTOVER_S, figure, until


def gone(world):
    """Everything but the server that the test itself started."""
    killed = time.monotonic()
    until("nothing is left", lambda: world.processes().keys() <= {world.server.pid}, LEFTOVER_S, pause=0.05)
    figure("all gone after", time.monotonic() - killed, LEFTOVER_S)


def kill(terminal):
    os.kill(terminal.process.pid, signal.SIGKILL)


@pytest.mark.parametrize("ends", [kill, lambda terminal: terminal.hang_up()], ids=["killed", "hung-up"])
def test_claude_code_leaves_no_process(world, claude, ends):
    host = claude("Birch")
    host.connect()
    terminal = host.tui()
    world.live("Birch")
    assert any("prism mcp" in command for command in world.processes().values()), "nothing to leave behind"
    ends(terminal)
    gone(world)


@pytest.mark.parametrize("ends", [kill, lambda terminal: terminal.hang_up()], ids=["killed", "hung-up"])
def test_codex_of_the_launcher_leaves_no_process_in_the_middle_of_a_turn(world, codex, ends):
    """Asked to end, an app-server waits for the turn that runs; this one runs a command that never ends."""
    os.mkfifo(world.project / "go")
    host = codex("Cedar", script=lambda seen: Call("exec_command", {"cmd": "cat go", "login": False}))
    host.connect()
    terminal = host.coder()
    world.live("Cedar")
    terminal.submit("do the long job")
    until("the command runs", lambda: any(command == "cat go " for command in world.processes().values()))
    ends(terminal)
    gone(world)


@pytest.mark.parametrize("ends", [kill, lambda terminal: terminal.hang_up()], ids=["killed", "hung-up"])
def test_codex_of_the_launcher_leaves_no_process(world, codex, ends):
    host = codex("Cedar")
    host.connect()
    terminal = host.coder()
    world.live("Cedar")
    assert any("app-server" in command for command in world.processes().values()), "nothing to leave behind"
    ends(terminal)
    gone(world)
