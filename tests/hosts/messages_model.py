"""The Anthropic Messages API, streamed, for one scripted model."""
import json
import time

import scripted


def parts(message):
    content = message["content"]
    return content if isinstance(content, list) else [{"type": "text", "text": content}]


def text_of(part):
    if part["type"] == "text":
        return part["text"]
    if part["type"] == "tool_result":
        return "\n".join(text_of(inner) for inner in parts(part)) if part.get("content") else ""
    return ""


class MessagesModel(scripted.Model):
    route = "/v1/messages"

    def read(self, body):
        messages = body["messages"]
        # The host puts notes of its own, role "system", behind what the user or a tool said: all that is new.
        own = [i for i, message in enumerate(messages) if message["role"] == "assistant"]
        new = [part for message in messages[own[-1] + 1 if own else 0:] for part in parts(message)]
        names = {part["id"]: part["name"] for i in own for part in parts(messages[i]) if part["type"] == "tool_use"}
        return scripted.Seen(
            at=time.monotonic(),
            new="\n".join(map(text_of, new)),
            results=[(names.get(part["tool_use_id"], "?"), text_of(part)) for part in new if part["type"] == "tool_result"],
            whole=json.dumps([body.get("system"), messages], ensure_ascii=False),
            tools={tool["name"]: tool["name"] for tool in body.get("tools", []) if "name" in tool},
            body=body)

    def events(self, step, seen):
        if isinstance(step, scripted.Call):
            stop = "tool_use"
            block = {"type": "tool_use", "id": scripted.new_id("toolu"), "name": scripted.offered(seen.tools, step), "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(step.arguments)}
        else:
            stop, block, delta = "end_turn", {"type": "text", "text": ""}, {"type": "text_delta", "text": step.text}
        usage = {"input_tokens": 1, "output_tokens": 1, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
        return [
            {"type": "message_start", "message": {
                "id": scripted.new_id("msg"), "type": "message", "role": "assistant", "model": seen.body.get("model"),
                "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}},
            {"type": "content_block_start", "index": 0, "content_block": block},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]
