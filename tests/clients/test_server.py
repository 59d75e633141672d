"""Whoever starts prism serve for a moment stops it as soon as it has said that it is there."""
from harness import Server


def test_stop_right_after_the_start(tmp_path):
    """Several times, because a handler that is installed a moment too late loses this race only now and then."""
    server = Server(tmp_path)
    for _ in range(12):
        server.start(pause=0)
        server.stop()
