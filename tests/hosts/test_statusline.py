"""The status line in a real terminal: it changes when a signal comes and when it was read."""
from scripted import Call, Say
from world import figure

# What is asked of the line.
ASKED_S = 2


def drains_when_told(seen):
    return Call("prism_signals_pending") if "read your inbox" in seen.new and not seen.results else Say()


def test_the_status_line_follows_the_inbox(world, claude):
    # No bell: the line alone is looked at.
    host = claude("Birch", script=drains_when_told)
    host.connect()
    terminal = host.tui(PRISM_DOORBELL="none")
    terminal.shows("[Birch]")
    world.live("Birch")
    for count, summary in enumerate(["look at 4b", "and at 5", "and at 6"], 1):
        _, sent = world.send("Birch", "Question", summary)
        shown = terminal.shows(f"🔔 {count} ASK · {world.operator}: {summary}") - sent
        figure("send to status line", shown, ASKED_S)
    terminal.submit("read your inbox")
    read = host.model.saw(lambda seen: seen.result("prism_signals_pending"))
    gone = terminal.shows(lambda screen: "🔔" not in screen) - read.at
    figure("drain to status line", gone, ASKED_S)
