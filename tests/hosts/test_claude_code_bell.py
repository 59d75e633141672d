"""Claude Code's inbox as a doorbell: idle, busy, many times over, and where the user refuses it."""
import os
import threading

import pytest

from colleague import BELL, reads
from scripted import Call, Say
from world import IDLE_S, bell, figure


def settled(host, session):
    """A session that had its first turn and waits for its human."""
    session.prompt("hello")
    host.model.saw("hello")
    session.lines.wait("the first turn ends", lambda line: line.get("type") == "result")
    return host.world.live(host.identity)


def test_an_idle_session_is_woken(world, claude):
    host = claude("Birch", script=reads)
    host.connect()
    settled(host, host.stream())
    signal_id, sent = world.send("Birch")
    seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    figure("send to model, idle", seen.at - sent, IDLE_S)
    assert "look at 4b" not in seen.new, "a bell carries no payload"
    read = host.model.saw(lambda seen: seen.result("prism_signals_pending"), after=sent)
    assert read.result("prism_signals_pending")["signals"][0]["signal_id"] == signal_id
    receipt = world.reaches(signal_id, "drained")
    assert {"queued", "pushed", "received", "rung", "rendered", "drained"} <= receipt["states"].keys(), receipt


def test_a_terminal_that_never_had_a_prompt_is_woken(world, claude):
    host = claude("Birch", script=reads)
    host.connect()
    terminal = host.tui()
    world.live("Birch")
    signal_id, sent = world.send("Birch")
    seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    figure("send to model, terminal without a prompt yet", seen.at - sent)
    assert {"rung", "rendered"} <= world.reaches(signal_id, "drained")["states"].keys()
    terminal.shows("Done.")


def test_a_bell_comes_between_the_tool_calls_of_a_running_turn(world, claude):
    os.mkfifo(world.project / "go")

    def works(seen):
        if "the long job" in seen.new:
            return Call("Bash", {"command": "cat go", "description": "Wait"})
        return Call("prism_signals_pending") if bell(world.operator, "Question") in seen.new else Say()

    host = claude("Birch", script=works)
    host.connect()
    session = host.stream()
    world.live("Birch")
    session.prompt("do the long job")
    with (world.project / "go").open("w"):  # Opens once the command reads: now the turn is in its tool.
        signal_id, sent = world.send("Birch", "Question")
        world.reaches(signal_id, "rung")
    seen = host.model.saw(bell(world.operator, "Question"), after=sent)
    assert seen.results and seen.results[0][0] == "Bash", f"not in the running turn: {seen}"
    assert {"rendered", "drained"} <= world.reaches(signal_id, "drained")["states"].keys()
    session.lines.wait("the turn ends", lambda line: line.get("type") == "result")


def test_a_session_whose_model_thinks_is_woken_right_after(world, claude):
    thought = threading.Event()

    def thinks(seen):
        rung = BELL.search(seen.new)
        return Say(after=thought) if "ponder this" in seen.new and not rung else reads(seen)

    host = claude("Birch", script=thinks)
    host.connect()
    session = host.stream()
    world.live("Birch")
    session.prompt("ponder this")
    host.model.saw("ponder this")
    signal_id, sent = world.send("Birch")
    world.reaches(signal_id, "rung")
    thought.set()
    host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    assert {"rendered", "drained"} <= world.reaches(signal_id, "drained")["states"].keys()


def test_twenty_equal_bells_in_a_row_all_reach_the_model(world, claude):
    """The host drops a sentence that equals the last one of the same sender."""
    host = claude("Birch", script=reads)
    host.connect()
    settled(host, host.stream())
    sentence, times = bell(world.operator, "TaskAssigned"), []
    for n in range(20):
        signal_id, sent = world.send("Birch", summary=f"task {n}")
        times.append(host.model.saw(sentence, after=sent).at - sent)
        assert "rendered" in world.reaches(signal_id, "drained")["states"], f"bell {n}"
    rung = sum(seen.new.count(sentence) for seen in host.model.turns())
    assert rung == 20, f"{rung} bells for 20 signals"
    figure("send to model, the slowest of twenty", max(times), IDLE_S)


def test_a_session_that_refuses_messages_keeps_the_receipt_at_rung(world, claude):
    """With the bell pinned to the inbox nothing else may ring, and a written line proves nothing."""
    host = claude("Birch", script=reads)
    host.connect(crossSessionInbound="refuse")
    settled(host, host.stream(PRISM_DOORBELL="claude_inbox"))
    signal_id, sent = world.send("Birch")
    world.reaches(signal_id, "rung")
    # Longer than a bell may stay without evidence before another is tried.
    with pytest.raises(AssertionError, match="was not asked within"):
        host.model.saw(bell(world.operator, "TaskAssigned"), after=sent, seconds=12)
    receipt = world.receipt(signal_id)
    assert receipt["state"] == "rung" and not {"rendered", "drained"} & receipt["states"].keys(), receipt
