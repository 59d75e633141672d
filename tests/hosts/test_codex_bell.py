"""Codex's threads as a doorbell: idle, busy, the right one of two, and without a shared server."""
import os
import threading

from colleague import BELL, Colleague, reads
from scripted import Call, Say
from world import BROKEN_BY, IDLE_S, bell, figure

# A plain Codex looks into its queue every 10 s.
QUEUE_S = 10


def settled(host, server):
    """A thread that had its first turn and is idle."""
    thread = server.thread()
    host.world.live(host.identity)
    server.prompt(thread, "hello")
    host.model.saw("hello")
    server.idle(thread)
    return thread


def test_an_idle_thread_is_woken(world, codex):
    host = codex("Cedar", script=reads)
    host.connect()
    settled(host, host.server())
    signal_id, sent = world.send("Cedar")
    seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    figure("send to model, idle", seen.at - sent, IDLE_S)
    assert "look at 4b" not in seen.new, "a bell carries no payload"
    receipt = world.reaches(signal_id, "drained")
    assert {"rung", "rendered"} <= receipt["states"].keys(), receipt


def test_a_thread_that_never_had_a_turn_is_woken(world, codex):
    host = codex("Cedar", script=reads)
    host.connect()
    host.server().thread()
    world.live("Cedar")
    signal_id, sent = world.send("Cedar")
    figure("send to model, thread without a turn yet",
           host.model.saw(bell(world.operator, "TaskAssigned"), after=sent).at - sent)
    assert {"rung", "rendered"} <= world.reaches(signal_id, "drained")["states"].keys()


def test_a_running_turn_is_steered(world, codex):
    os.mkfifo(world.project / "go")

    def works(seen):
        if "the long job" in seen.new and not seen.results:
            return Call("exec_command", {"cmd": "cat go", "login": False, "yield_time_ms": 30_000})
        return Call("prism_signals_pending") if bell(world.operator, "Question") in seen.new else Say()

    host = codex("Cedar", script=works)
    host.connect()
    server = host.server()
    thread = settled(host, server)
    turn = server.prompt(thread, "do the long job")
    with (world.project / "go").open("w"):  # Opens once the command reads: now the turn is in its tool.
        signal_id, sent = world.send("Cedar", "Question")
        world.reaches(signal_id, "rendered")
    seen = host.model.saw(bell(world.operator, "Question"), after=sent)
    assert seen.results and seen.results[0][0] == "exec_command", f"not in the running turn: {seen}"
    world.reaches(signal_id, "drained")
    server.idle(thread)
    turns = server.ask("thread/read", threadId=thread, includeTurns=True)["thread"]["turns"]
    assert turns[-1]["id"] == turn, "the bell started a turn of its own"


def test_a_thread_whose_model_thinks_is_woken_right_after(world, codex):
    thought = threading.Event()

    def thinks(seen):
        rung = BELL.search(seen.new)
        return Say(after=thought) if "ponder this" in seen.new and not rung else reads(seen)

    host = codex("Cedar", script=thinks)
    host.connect()
    server = host.server()
    thread = settled(host, server)
    server.prompt(thread, "ponder this")
    host.model.saw("ponder this")
    signal_id, sent = world.send("Cedar")
    world.reaches(signal_id, "rendered")
    thought.set()
    host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    world.reaches(signal_id, "drained")


def test_of_two_identities_only_the_right_terminal_is_rung(world, codex):
    """One home, two terminals started by the launcher, each with a server of its own."""
    host = codex("Cedar", script=Colleague())
    host.connect()
    for identity in ("Cedar", "Elm"):
        terminal = host.coder(identity=identity)
        world.live(identity)
        terminal.submit(f"you are {identity}")
        host.model.saw(f"you are {identity}")
    for identity, other in (("Elm", "Cedar"), ("Cedar", "Elm")):
        signal_id, sent = world.send(identity)
        seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
        figure("send to model, terminal of the launcher", seen.at - sent, IDLE_S)
        assert f"you are {identity}" in seen.whole, f"{other} was rung for {identity}"
        receipt = world.reaches(signal_id, "acted")
        assert {"rendered", "drained"} <= receipt["states"].keys(), receipt
    bells = [seen for seen in host.model.turns() if bell(world.operator, "TaskAssigned") in seen.new]
    assert len(bells) == 2, "each signal rings once"


def test_a_plain_terminal_is_woken_through_its_queue(world, codex):
    """No shared server and no launcher: the right identity, and a bell that takes its time.

    Only a tool call (or a hook that the user has approved) tells which thread it is.
    """
    host = codex("Cedar", script=Colleague(hello=[Call("prism_status")]))
    host.connect()
    terminal = host.tui()
    world.live("Cedar")
    terminal.submit("hello")
    host.model.saw(lambda seen: seen.results)
    terminal.shows("Done.")
    signal_id, sent = world.send("Cedar")
    seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent, seconds=QUEUE_S * BROKEN_BY)
    figure("send to model, plain terminal", seen.at - sent, QUEUE_S)
    receipt = world.reaches(signal_id, "drained")
    assert "rung" in receipt["states"], receipt
