"""Agents in different hosts talk with each other, and no human carries a word."""
from colleague import Colleague, signal
from world import figure


def sent_ids(model):
    return [seen.result("prism_signal")["signal_id"] for seen in model.turns() if seen.result("prism_signal")]


def test_claude_code_pings_codex_and_hears_back(world, claude, codex):
    donna = claude("Donna", script=Colleague(ask=[signal("Texi", "are you there?")]))
    texi = codex("Texi", script=Colleague())
    donna.connect(), texi.connect()
    session = donna.stream()
    texi.server().thread()
    world.live("Donna"), world.live("Texi")

    session.prompt("ask Texi whether she is there")
    ping = donna.model.saw(lambda seen: seen.result("prism_signal"))
    answer = texi.model.saw(lambda seen: seen.result("prism_signal"))
    acted = donna.model.saw(lambda seen: seen.result("prism_signal_ack"))
    figure("question to answer acted on, Claude Code to Codex and back", acted.at - ping.at)

    for signal_id in (*sent_ids(donna.model), *sent_ids(texi.model)):
        receipt = world.reaches(signal_id, "acted")
        assert {"rung", "rendered", "drained"} <= receipt["states"].keys(), receipt
    assert answer.at < acted.at
    prompts = [seen for seen in texi.model.turns() if not seen.results]
    assert len(prompts) == 1, "the bell, and nobody else, woke Texi"


def test_one_pings_four_and_four_answer(world, claude, codex):
    peers = {"Lafonda": claude, "Desiree": claude, "Porsche": codex, "Texi": codex}
    donna = claude("Donna", script=Colleague(check=[signal(name, "health check") for name in peers]))
    donna.connect()
    session = donna.stream()
    hosts = {}
    for name, make in peers.items():
        hosts[name] = make(name, script=Colleague())
        hosts[name].connect()
        hosts[name].stream() if make is claude else hosts[name].server().thread()
    for name in ("Donna", *peers):
        world.live(name)

    session.prompt("check on everybody")
    for name, host in hosts.items():
        host.model.saw(lambda seen: seen.result("prism_signal"))
        (answer,) = sent_ids(host.model)
        world.reaches(answer, "acted")
    pings = sent_ids(donna.model)
    assert len(pings) == 4
    for ping in pings:
        assert {"rung", "drained"} <= world.reaches(ping, "acted")["states"].keys()
