"""The OpenAI Responses API, streamed, for one scripted model."""
import json
import time

import scripted


def text_of(item):
    content = item.get("content") or item.get("output") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content if isinstance(part, dict))


def is_own(item):
    return item.get("role") == "assistant" or item["type"] in ("function_call", "custom_tool_call", "reasoning")


class ResponsesModel(scripted.Model):
    route = "/v1/responses"

    def read(self, body):
        items = body.get("input", [])
        own = [i for i, item in enumerate(items) if is_own(item)]
        new = items[own[-1] + 1 if own else 0:]
        names = {items[i]["call_id"]: items[i]["name"] for i in own if "call_id" in items[i]}
        tools = {}
        for tool in body.get("tools", []):
            # The tools of an MCP server come as a namespace, and are called by both names.
            if tool.get("type") == "namespace":
                tools |= {inner["name"]: {"name": inner["name"], "namespace": tool["name"]} for inner in tool["tools"]}
            elif "name" in tool:
                tools[tool["name"]] = {"name": tool["name"]}
        return scripted.Seen(
            at=time.monotonic(),
            new="\n".join(map(text_of, new)),
            results=[(names.get(item["call_id"], "?"), text_of(item)) for item in new if item["type"].endswith("_output")],
            whole=json.dumps([body.get("instructions"), items], ensure_ascii=False),
            tools=tools,
            body=body)

    def events(self, step, seen):
        if isinstance(step, scripted.Call):
            item = {"type": "function_call", "id": scripted.new_id("fc"), "call_id": scripted.new_id("call"),
                    "arguments": json.dumps(step.arguments)} | scripted.offered(seen.tools, step)
        else:
            item = {"type": "message", "id": scripted.new_id("msg"), "role": "assistant",
                    "content": [{"type": "output_text", "text": step.text}]}
        response = {"id": scripted.new_id("resp")}
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0},
                 "output_tokens": 1, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        return [
            {"type": "response.created", "response": response},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": response | {"usage": usage}},
        ]
