import json
import pathlib

import pytest

from gemini import Gemini
from opencode import OpenCode

VERSIONS = json.loads((pathlib.Path(__file__).parent / "package.json").read_text())["dependencies"]


@pytest.fixture(params=[pytest.param(OpenCode, id=f"opencode-{VERSIONS['opencode-ai']}")])
def opencode(request, world):
    return lambda identity, **options: request.param(world, identity, **options)


@pytest.fixture(params=[pytest.param(Gemini, id=f"gemini-{VERSIONS['@google/gemini-cli']}")])
def gemini(request, world):
    return lambda identity, **options: request.param(world, identity, **options)
