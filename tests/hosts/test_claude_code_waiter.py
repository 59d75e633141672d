"""A hook that waits beside an idle Claude Code and wakes it, where the session has no inbox socket."""
import os
import signal
import subprocess
import threading
import time

import pytest

from colleague import reads
from scripted import PATIENCE_S, Call, Say
from world import BINARY, LEFTOVER_S, bell, figure, until

CORRECTION = "No, that is wrong: never touch the release branch, always work on a copy of it."


def waiters(world):
    """Not the shells that the host runs them in."""
    ours = f"{BINARY} hook --rewake"
    return [pid for pid, command in world.processes().items() if command.startswith(ours)]


def one_waits(world):
    """A moment later than the turn ends, and never more than one."""
    until("one hook waits", lambda: len(waiters(world)) == 1, seconds=20, pause=0.1)


def test_an_idle_terminal_without_an_inbox_is_woken_again_and_again(world, claude):
    host = claude("Birch", script=reads)
    host.connect()
    host.without_inbox()
    host.tui()
    world.live("Birch")
    sentence = bell(world.operator, "TaskAssigned")
    for n in range(3):
        one_waits(world)
        signal_id, sent = world.send("Birch", summary=CORRECTION)
        seen = host.model.saw(sentence, after=sent)
        figure("send to model, a hook that waits", seen.at - sent)
        assert "release branch" not in seen.new, "a bell carries no payload"
        receipt = world.reaches(signal_id, "drained")
        assert {"rung", "rendered", "drained"} <= receipt["states"].keys(), receipt
        trace = world.prism("trace", signal_id, "--json")
        assert "claude_rewake" in str(trace), trace
    assert not any("may be a correction" in seen.new for seen in host.model.turns()), "a bell is nobody's words"
    assert sum(seen.new.count(sentence) for seen in host.model.turns()) == 3


def test_what_came_in_a_turn_wakes_the_session_after_it(world, claude):
    """No tool ran and no prompt came that could have carried it."""
    thought = threading.Event()

    def thinks(seen):
        return Say(after=thought) if "ponder this" in seen.new and "Signal from" not in seen.new else reads(seen)

    host = claude("Birch", script=thinks)
    host.connect()
    host.without_inbox()
    terminal = host.tui()
    world.live("Birch")
    one_waits(world)
    first, sent = world.send("Birch")
    world.reaches(first, "drained")
    terminal.submit("ponder this")
    host.model.saw("ponder this")
    second, sent = world.send("Birch")
    world.reaches(second, "received")
    thought.set()
    host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    assert {"rung", "rendered"} <= world.reaches(second, "drained")["states"].keys()


def test_one_prompt_and_out_is_never_held_up(world, claude):
    """`claude -p` does not end before such a hook does; ours leaves at once."""
    host = claude("Birch", script=lambda seen: Say() if seen.results else Call("prism_status"))
    host.connect()
    host.without_inbox()
    began = time.monotonic()
    done = subprocess.run(["claude", "-p", "how is everybody?"], env=host.env(), cwd=world.project, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=PATIENCE_S)
    figure("claude -p with a tool call", time.monotonic() - began)
    assert done.returncode == 0 and "Done." in done.stdout, done
    assert not waiters(world)


def test_a_session_with_an_inbox_keeps_no_hook_waiting(world, claude):
    host = claude("Birch", script=reads)
    host.connect()
    terminal = host.tui()
    world.live("Birch")
    terminal.submit("hello")
    terminal.shows("Done.")
    signal_id, _ = world.send("Birch")
    world.reaches(signal_id, "drained")
    until("no hook waits", lambda: not waiters(world))
    assert "claude_inbox" in str(world.prism("trace", signal_id, "--json"))


@pytest.mark.parametrize("ends", [lambda terminal: os.kill(terminal.process.pid, signal.SIGKILL),
                                  lambda terminal: terminal.hang_up()], ids=["killed", "hung-up"])
def test_a_host_that_dies_takes_the_hook_that_waits_along(world, claude, ends):
    host = claude("Birch", script=reads)
    host.connect()
    host.without_inbox()
    terminal = host.tui()
    world.live("Birch")
    one_waits(world)
    ends(terminal)
    until("nothing is left", lambda: world.processes().keys() <= {world.server.pid}, LEFTOVER_S, pause=0.05)
