"""An agent in a real host calls Prism's tools, and its model gets the answer."""
import json

from scripted import Call, Say


def asks_for_status(seen):
    return Say() if seen.results else Call("prism_status")


def test_claude_code_calls_a_tool(world, claude):
    host = claude("Birch", script=asks_for_status)
    host.connect()
    session = host.stream()
    session.prompt("how is everybody?")
    answer = host.model.saw(lambda seen: seen.results).result("prism_status")
    assert [s["identity"] for s in answer["sessions"]] == ["Birch"], answer
    assert answer["sessions"][0]["surface"] == "claude_code", answer
    session.lines.wait("the turn ends", lambda line: line.get("type") == "result")


def test_codex_calls_a_tool(world, codex):
    host = codex("Cedar", script=asks_for_status)
    host.connect()
    events = host.run("how is everybody?")
    answer = host.model.saw(lambda seen: seen.results).result("prism_status")
    assert [s["identity"] for s in answer["sessions"]] == ["Cedar"], answer
    assert answer["sessions"][0]["surface"] == "codex", answer
    assert any(event["type"] == "turn.completed" for event in events), events
