"""The Gemini API's generateContent, streamed, for one scripted model."""
import json
import time

import scripted


def text_of(part):
    if "functionResponse" in part:
        return json.dumps(part["functionResponse"].get("response", {}), ensure_ascii=False)
    return part.get("text", "")


class GenerateModel(scripted.Model):
    def is_asked(self, path):
        return path.endswith(":streamGenerateContent")

    def frame(self, event):
        return f"data: {json.dumps(event)}\n\n"

    def read(self, body):
        contents = body.get("contents", [])
        own = [i for i, content in enumerate(contents) if content.get("role") == "model"]
        new = [part for content in contents[own[-1] + 1 if own else 0:] for part in content["parts"]]
        tools = [declared["name"] for tool in body.get("tools", []) for declared in tool.get("functionDeclarations", [])]
        return scripted.Seen(
            at=time.monotonic(),
            new="\n".join(map(text_of, new)),
            results=[(part["functionResponse"]["name"], text_of(part)) for part in new if "functionResponse" in part],
            whole=json.dumps([body.get("systemInstruction"), contents], ensure_ascii=False),
            tools={name: name for name in tools},
            body=body)

    def events(self, step, seen):
        if isinstance(step, scripted.Call):
            part = {"functionCall": {"name": scripted.offered(seen.tools, step), "args": step.arguments}}
        else:
            part = {"text": step.text}
        return [{"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
                 "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}}]
