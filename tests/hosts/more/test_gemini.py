"""Prism in Gemini CLI: its tools, and what its hooks tell the model. Nothing wakes an idle one."""
from scripted import Call, Say


def asks_for_status(seen):
    return Say() if seen.results else Call("prism_status")


def test_an_agent_calls_a_tool(world, gemini):
    host = gemini("Gale", script=asks_for_status)
    before = host.settings.read_bytes()
    host.connect()
    host.run("how is everybody?")
    _, text = host.model.saw(lambda seen: seen.results).results[0]
    assert "Gale" in text and "gemini_cli" in text, text
    host.disconnect()
    assert host.settings.read_bytes() == before


def test_it_is_told_at_the_start_what_an_agent_would_ask(world, gemini):
    host = gemini("Gale")
    host.connect()
    world.enrol("Gale")
    world.send("Gale", "Question", "which parser?")
    host.run("hello")
    seen = host.model.saw("hello")
    seen.tells("Prism: you are Gale", "Unread: 1 ASK")
    assert "which parser?" not in seen.new, "what others wrote is read with a verb, never slipped in"
