"""What hooks tell the model in a real host, and what they take for the operator's words."""
import json
import statistics
import subprocess
import threading
import time

from colleague import reads
from scripted import PATIENCE_S, Call, Say
from world import BINARY, bell, figure, until

# What a hook may take of its host's time.
HOOK_S = 0.05

CORRECTION = "No, that is wrong: never touch the release branch, always work on a copy of it."
TRUSTED = ("--dangerously-bypass-hook-trust",)


def test_claude_code_is_told_at_the_start_what_an_agent_would_ask(world, claude):
    host = claude("Birch")
    host.connect()
    world.enrol("Birch")
    world.send("Birch", "Question", "which parser?")
    host.stream(PRISM_DOORBELL="none").prompt("hello")
    seen = host.model.saw("hello")
    seen.tells("hook additional context: Prism: you are Birch", "Unread: 1 ASK")
    assert "which parser?" not in seen.new, "what others wrote is read with a verb, never slipped in"


def test_within_its_own_limit_a_hook_says_it_now_or_with_the_next_prompt(world, claude):
    """Everywhere else hooks are given more time than they ask of a host, for the sake of busy machines. Here not."""
    host = claude("Birch")
    host.connect()
    world.enrol("Birch")
    world.send("Birch", "Question", "which parser?")
    session = host.stream(PRISM_DOORBELL="none", PRISM_HOOK_MS="")
    prompts = [f"prompt {n}" for n in range(8)]
    for n, prompt in enumerate(prompts, 1):
        session.prompt(prompt)
        host.model.saw(prompt)
        until("the turn ends", lambda: session.turns_done() == n)
    told = [seen.new.count("Prism: you are Birch") for seen in host.model.turns()]
    print(f"measured: prompt that brought the opening: {told.index(1) + 1 if 1 in told else 'none'} of {len(prompts)}")
    assert sum(told) == 1, f"told once, with whichever prompt: {told}"


def test_a_hook_that_has_nothing_to_say_is_gone_at_once(world, claude):
    host = claude("Birch")
    host.connect()
    session = host.stream(PRISM_DOORBELL="none")
    session.prompt("hello")
    session.lines.wait("the turn ends", lambda line: line.get("type") == "result")
    event = json.dumps({"session_id": "somebody else's", "hook_event_name": "PostToolUse", "cwd": str(world.project)})
    took = []
    for _ in range(20):
        began = time.monotonic()
        done = subprocess.run([BINARY, "hook"], input=event, env=host.env(PRISM_HOOK_MS=""), cwd=world.project,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        took.append(time.monotonic() - began)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    figure("a hook's process, the median of twenty", statistics.median(took), HOOK_S)


def test_codex_is_told_at_the_start_what_an_agent_would_ask(world, codex):
    host = codex("Cedar")
    host.connect()
    world.enrol("Cedar")
    world.send("Cedar", "Question", "which parser?")
    host.run("hello", *TRUSTED, PRISM_DOORBELL="none")
    seen = host.model.saw("hello")
    seen.tells("Prism: you are Cedar", "Unread: 1 ASK")


def test_a_tool_result_of_claude_code_brings_what_is_unread(world, claude):
    started = threading.Event()

    def works(seen):
        if "the long job" in seen.new:
            return Call("Bash", {"command": "true", "description": "Work"}, after=started)
        return Say()

    host = claude("Birch", script=works)
    host.connect()
    session = host.stream(PRISM_DOORBELL="hooks")
    world.live("Birch")
    session.prompt("do the long job")
    host.model.saw("the long job")
    signal_id, sent = world.send("Birch", "Question")
    world.reaches(signal_id, "received")
    started.set()
    seen = host.model.saw(lambda seen: seen.results, after=sent)
    seen.tells(bell(world.operator, "Question"))
    world.reaches(signal_id, "rendered")


def test_a_tool_result_of_codex_brings_what_is_unread(world, codex):
    started = threading.Event()

    def works(seen):
        if "the long job" in seen.new:
            return Call("exec_command", {"cmd": "true", "login": False}, after=started)
        return Say()

    host = codex("Cedar", script=works)
    host.connect()
    running = threading.Thread(target=host.run, args=("do the long job", *TRUSTED), kwargs={"PRISM_DOORBELL": "hooks"})
    running.start()
    host.model.saw("the long job")
    world.live("Cedar")
    signal_id, sent = world.send("Cedar", "Question")
    world.reaches(signal_id, "received")
    started.set()
    seen = host.model.saw(lambda seen: seen.results, after=sent)
    seen.tells(bell(world.operator, "Question"))
    running.join()


def test_the_end_of_a_turn_is_held_once_for_an_unread_question(world, claude):
    thought = threading.Event()

    def thinks(seen):
        return Say(after=thought) if "ponder this" in seen.new else Say()

    host = claude("Birch", script=thinks)
    host.connect()
    session = host.stream(PRISM_DOORBELL="hooks")
    world.live("Birch")
    session.prompt("ponder this")
    host.model.saw("ponder this")
    signal_id, sent = world.send("Birch", "Question")
    world.reaches(signal_id, "received")
    thought.set()
    seen = host.model.saw("Stop hook feedback", after=sent)
    seen.tells(bell(world.operator, "Question"))
    # This model does not read it: it is held once, not for ever.
    session.lines.wait("the turn ends", lambda line: line.get("type") == "result")
    assert sum("Stop hook feedback" in seen.new for seen in host.model.turns()) == 1


OFFER = "the operator's prompt may be a correction"
NEXT = "list the files in this folder"
# It quotes the prompt that it speaks of.
LATE_OFFER = "may be a correction"


def test_only_the_operator_is_taken_for_the_operator(world, claude):
    """A correction brings the offer to keep it; a bell does not, whatever its signal says."""
    host = claude("Birch", script=reads)
    host.connect()
    session = host.stream()
    world.live("Birch")
    session.prompt(CORRECTION)
    until("the turn ends", lambda: session.turns_done() == 1)
    # Whose words they were stands in the transcript by now, so the offer comes with the next prompt.
    session.prompt(NEXT)
    host.model.saw(NEXT).tells(LATE_OFFER, "prism_operator_input")
    until("the next turn ends", lambda: session.turns_done() == 2)
    signal_id, sent = world.send("Birch", "TaskAssigned", CORRECTION)
    rung = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    assert LATE_OFFER not in rung.new, rung
    read = host.model.saw(lambda seen: seen.result("prism_signals_pending"), after=sent)
    assert LATE_OFFER not in read.new, read
    world.reaches(signal_id, "drained")


def test_only_the_operator_is_taken_for_the_operator_in_codex(world, codex):
    host = codex("Cedar", script=reads)
    host.connect()
    terminal = host.coder()
    world.live("Cedar")
    terminal.submit(CORRECTION)
    host.model.saw(CORRECTION).tells(OFFER, "prism_operator_input")
    terminal.shows("Done.")
    signal_id, sent = world.send("Cedar", "TaskAssigned", CORRECTION)
    rung = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    assert OFFER not in rung.new, rung
    world.reaches(signal_id, "drained")
