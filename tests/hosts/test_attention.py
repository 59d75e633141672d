"""Whether somebody is at an agent's host: a Codex server lives on when its terminal is closed."""
from world import until


def says(world, *expected):
    world.live("Cedar")
    until(f"the sessions of Cedar are {expected}", lambda: world.attention("Cedar") == list(expected), pause=0.2)


def test_a_closed_terminal_leaves_its_thread_unattended(world, codex):
    host = codex("Cedar")
    host.connect()
    host.shared_server()
    terminal = host.tui()
    says(world, "attended")
    terminal.hang_up()
    says(world, "unattended")
    for command in (["status"], ["whois", "Cedar"]):
        assert "idle, unattended" in world.prism(*command).stdout
    # It is a fact of the session, not of the server that happens to run.
    world.stop()
    world.serve()
    assert world.attention("Cedar") == ["unattended"]
    # Somebody is connected again, but nothing says to which of the two threads.
    host.tui()
    says(world, "unknown", "attended")
    assert "attention unknown" in world.prism("whois", "Cedar").stdout


def test_a_second_terminal_that_goes_leaves_the_first_attended(world, codex):
    host = codex("Cedar")
    host.connect()
    host.shared_server()
    host.tui()
    says(world, "attended")
    second = host.tui()
    says(world, "attended", "attended")
    second.hang_up()
    says(world, "attended", "unknown")


def test_a_terminal_that_takes_its_host_along_is_attended(world, claude, codex):
    birch, cedar = claude("Birch"), codex("Cedar")
    birch.connect(), cedar.connect()
    birch.tui()
    world.live("Birch")
    assert world.attention("Birch") == ["attended"]
    # The launcher's server ends with the terminal; a plain one has none.
    cedar.coder()
    says(world, "attended")
    cedar.tui()
    says(world, "attended", "attended")
