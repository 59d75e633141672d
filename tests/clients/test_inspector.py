"""The MCP Inspector's command line over stdio. Every call is a host that comes, asks one thing and goes."""
import json
import subprocess

import jsonschema
import pytest

from harness import PID, binary, until

VERBS = {"prism_start", "prism_status", "prism_whois", "prism_signal", "prism_signals_pending", "prism_signals_ack",
         "prism_signal_ack", "prism_signal_trace", "prism_signal_recall", "prism_signals"}
TOOL_IS_ERROR = 5


@pytest.fixture
def inspector(server):
    def run(*arguments, code=0):
        # The Inspector keeps its own environment from the servers it starts; what they should have goes in by -e.
        given = [f"-e{name}={value}" for name, value in server.env("Ada").items()]
        done = subprocess.run(["mcp-inspector", "--cli", *given, binary(), "mcp", *arguments], cwd=server.home,
                              env=server.env(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture
def call(inspector):
    def call(verb, *, fails=False, **arguments):
        given = [f"--tool-arg={name}={value if isinstance(value, str) else json.dumps(value)}"
                 for name, value in arguments.items()]
        answer = inspector("--method", "tools/call", "--tool-name", verb, *given, code=TOOL_IS_ERROR if fails else 0)
        assert answer["isError"] is fails
        # Hosts differ in which of the two they show the model, so both must say the same.
        assert [json.loads(part["text"]) for part in answer["content"]] == [answer["structuredContent"]]
        return answer["structuredContent"]

    return call


def test_tool_list_is_portable(inspector):
    """--strict ends with 6 on a schema that some hosts refuse; it does not look whether it is a schema at all."""
    tools = {tool["name"]: tool for tool in inspector("--method", "tools/list", "--strict")["tools"]}
    assert VERBS <= tools.keys()
    for name, tool in tools.items():
        assert tool["inputSchema"]["type"] == "object", name
        jsonschema.Draft202012Validator.check_schema(tool["inputSchema"])
        assert tool["description"], name
        # A result schema would make strict hosts drop answers that gained a field.
        assert "outputSchema" not in tool, name
    assert {"to", "signal_type", "payload"} <= set(tools["prism_signal"]["inputSchema"]["required"])


def test_start_and_status_agree(call, server):
    started = call("prism_start")
    assert started["identity"] == "Ada"
    assert started["unread"] == {"INFO": 0, "TASK": 0, "ASK": 0, "BLOCKER": 0}
    until("the host that went is released", lambda: all(s["state"] == "released" for s in server.post("status")["sessions"]))
    status = call("prism_status")
    assert status["pid"] == started["pid"] == PID
    live = [session for session in status["sessions"] if session["state"] == "live"]
    assert [session["identity"] for session in live] == ["Ada"]
    assert live[0]["session_id"] != started["session_id"]


def test_signal_to_the_operator(call, server):
    sent = call("prism_signal", to=server.operator, signal_type="Question", payload={"summary": "which branch?"})
    assert sent["recipient_state"] == "operator"
    assert sent["receipt"]["state"] == "queued"
    [got] = server.post("signals_pending")["signals"]
    assert (got["signal_id"], got["from_identity"], got["category"]) == (sent["signal_id"], "Ada", "ASK")
    assert got["payload"]["summary"] == "which branch?"


def test_signal_from_the_operator(call, server):
    call("prism_start")
    sent = server.post("signal", {"to": "Ada", "signal_type": "Question", "payload": {"summary": "done?"}})

    def ring(unread):
        # The ring is local: it fills once the socket brought the frame. A host that only looks is gone before that;
        # one that starts stays until its socket said hello.
        call("prism_start")
        seen = call("prism_signals", action="both")
        return seen if seen["count"]["unread"] == unread and seen["tail"] else None

    [entry] = until("the ring has the signal", lambda: ring(unread=1))["tail"]
    assert (entry["sid"], entry["from"], entry["cat"], entry["read"]) == (sent["signal_id"], server.operator, "ASK", False)
    assert [got["signal_id"] for got in call("prism_signals_pending")["signals"]] == [sent["signal_id"]]
    assert call("prism_signals_pending")["signals"] == []
    [entry] = until("the ring knows that it was read", lambda: ring(unread=0))["tail"]
    assert entry["read"] is True


@pytest.mark.parametrize("wrong, code, help", [
    ({"signal_type": "Shout"}, "unknown_signal_type", "TaskAssigned"),
    ({"category": "URGENT"}, "unknown_category", "BLOCKER"),
    ({"to": "Aad"}, "unknown_recipient", "Ada"),
    ({"colour": "red"}, "invalid_request", ""),
])
def test_wrong_argument_has_a_hint(call, wrong, code, help):
    """A model corrects itself from the hint alone, so it must name what would have been right."""
    call("prism_start")
    right = {"to": "Ada", "signal_type": "Question", "payload": {"summary": "x"}}
    error = call("prism_signal", fails=True, **right | wrong)["error"]
    assert error["code"] == code
    assert error["message"]
    assert error["hint"] and help in error["hint"]
