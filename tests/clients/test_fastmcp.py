"""Two agents in fastmcp clients that stay connected, as agent hosts do."""
import asyncio
import time

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from harness import binary


def host(server, identity):
    return Client(StdioTransport(binary(), ["mcp"], env=server.env(identity), cwd=str(server.home), keep_alive=False,
                                 log_file=server.home / f"{identity}.log"), timeout=30)


async def call(client, verb, **arguments):
    return (await client.call_tool(verb, arguments)).structured_content


async def assign_and_answer(ada, birch):
    await call(ada, "prism_start")
    await call(birch, "prism_start")
    sent = await call(ada, "prism_signal", to="Birch", signal_type="TaskAssigned", payload={"summary": "port the parser"})
    arrived = []  # Any verb's answer may bring a signal along, so all of Ada's are looked at.

    async def states():
        trace = await call(ada, "prism_signal_trace", signal_id=sent["signal_id"])
        arrived.extend(trace.get("signals", []))
        return {event["state"] for event in trace["timeline"]}

    async def states_with(*wanted):
        end = time.monotonic() + 15
        while not set(wanted) <= (seen := await states()):
            assert time.monotonic() < end, f"the trace has {seen}, not {wanted}"
            await asyncio.sleep(0.02)
        return seen

    # A receipt may be behind the facts, never ahead of them.
    assert not {"drained", "acted"} & await states_with("queued")

    [task] = (await call(birch, "prism_signals_pending"))["signals"]
    assert (task["signal_id"], task["signal_type"], task["category"]) == (sent["signal_id"], "TaskAssigned", "TASK")
    assert (task["from_identity"], task["payload"]["summary"]) == ("Ada", "port the parser")
    assert (await call(birch, "prism_signals_pending"))["signals"] == []
    assert "acted" not in await states_with("drained"), "reading a task is not acting on it"

    reply = await call(birch, "prism_signal", to="Ada", signal_type="Acknowledgment", payload={"summary": "on it"},
                       in_reply_to=sent["signal_id"])
    assert "signals" not in reply, "the task came again, with the reply's answer"
    await states_with("drained", "acted")

    arrived += (await call(ada, "prism_signals_pending"))["signals"]
    assert [(got["signal_id"], got["in_reply_to"]) for got in arrived] == [(reply["signal_id"], sent["signal_id"])]


def test_task_is_read_once_and_answered(server):
    async def both():
        async with host(server, "Ada") as ada, host(server, "Birch") as birch:
            await assign_and_answer(ada, birch)

    asyncio.run(both())
