"""`prism coder` around a real host: a server when none runs, and a terminal that says whose it is."""
from colleague import reads
from world import PID, bell, figure, until


def test_the_launcher_starts_the_server_and_names_the_terminal(world, claude):
    world.stop()
    host = claude("Birch", script=reads)
    host.connect()
    terminal = host.coder(PRISM_AUTOSTART="1", PRISM_DOORBELL="none")
    terminal.shows("[Birch]")
    world.live("Birch")
    until("the title says whose it is", lambda: f"[Birch] {PID}" in terminal.titles())
    _, sent = world.send("Birch", "Question", "which parser?")
    until("and what waits", lambda: f"[Birch] {PID} · 🔔 1 ASK" in terminal.titles())
    terminal.close()
    # It is the one thing that stays, and goes when it is told to.
    assert (world.home / "server.json").exists()
    world.prism("down")


def test_codex_of_the_launcher_is_woken_at_once(world, codex):
    host = codex("Cedar", script=reads)
    host.connect()
    terminal = host.coder()
    world.live("Cedar")
    signal_id, sent = world.send("Cedar")
    seen = host.model.saw(bell(world.operator, "TaskAssigned"), after=sent)
    figure("send to model, terminal of the launcher without a prompt yet", seen.at - sent)
    assert {"rung", "rendered"} <= world.reaches(signal_id, "drained")["states"].keys()
    terminal.shows("Done.")
