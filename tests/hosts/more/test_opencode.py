"""Prism in OpenCode: its tools, and its bell, which is a prompt given to its server."""
import json

from colleague import reads
from scripted import Call, Say
from world import bell, figure


def asks_for_status(seen):
    return Say() if seen.results else Call("prism_status")


def test_an_agent_calls_a_tool(world, opencode):
    host = opencode("Fern", script=asks_for_status)
    before = host.config.read_bytes()
    host.connect()
    host.run("how is everybody?")
    answer = host.model.saw(lambda seen: seen.results).result("prism_status")
    assert [(s["identity"], s["surface"]) for s in answer["sessions"]] == [("Fern", "opencode")], answer
    host.disconnect()
    after = json.loads(host.config.read_text())
    # The host itself may add to its file; all that goes must be ours.
    assert after.pop("$schema", None) in (None, "https://opencode.ai/config.json")
    assert after == json.loads(before)


def test_an_idle_session_is_woken_with_the_sentence_and_nothing_else(world, opencode):
    host = opencode("Fern", script=reads)
    host.connect()
    server = host.serve()
    session = server.session()
    server.prompt(session, "hello")
    host.model.saw("hello")
    world.live("Fern")
    for _ in range(3):
        signal_id, sent = world.send("Fern")
        seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
        figure("send to model, idle", seen.at - sent)
        assert seen.new.strip() == bell(world.operator, "TaskAssigned"), "exactly the sentence"
        receipt = world.reaches(signal_id, "drained")
        # Its 204 accepts a prompt, and says nothing of a model.
        assert "rung" in receipt["states"] and "rendered" not in receipt["states"], receipt
    # Its server lives on whoever looks at it.
    assert world.attention("Fern") == ["unknown"]
