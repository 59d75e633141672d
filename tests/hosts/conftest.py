import os

import pytest

from claude_code import ClaudeCode
from codex import Codex
from world import CLAUDE, CODEX, World


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    item.failed = getattr(item, "failed", False) or report.failed
    # Figures are for people: shown for tests that pass, too.
    if report.when == "call":
        for line in report.capstdout.splitlines():
            if line.startswith("measured:"):
                item.config.stash.setdefault(FIGURES, []).append(f"{item.name}: {line.removeprefix('measured: ')}")


FIGURES = pytest.StashKey()
# Hosts of their own, installed only when they are asked for.
collect_ignore = [] if "PRISM_TEST_MORE" in os.environ else ["more"]


def pytest_terminal_summary(terminalreporter, config):
    if figures := config.stash.get(FIGURES, None):
        terminalreporter.section("measured on this machine")
        for line in figures:
            terminalreporter.line(line)


@pytest.fixture
def world(request):
    world = World()
    world.serve()
    yield world
    world.close(failed=getattr(request.node, "failed", False))


@pytest.fixture(params=[pytest.param(ClaudeCode, id=CLAUDE)])
def claude(request, world):
    """Makes a Claude Code of that identity; the test's name says which version."""
    return lambda identity, **options: request.param(world, identity, **options)


@pytest.fixture(params=[pytest.param(Codex, id=CODEX)])
def codex(request, world):
    return lambda identity, **options: request.param(world, identity, **options)
