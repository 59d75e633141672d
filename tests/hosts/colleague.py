"""What scripted models do when a bell rings: read, answer, act; and nothing without being asked."""
import json
import re

from scripted import Call, Say

BELL = re.compile(r"Signal from \S+: \w+\. Use prism_signals_pending to read; prism_signal to reply if needed\.")


def reads(seen):
    """Reads its inbox when a bell rings."""
    return Call("prism_signals_pending") if BELL.search(seen.new) else Say()


class Colleague:
    """Reads when a bell rings, answers what asks for an answer, and says of an answer that it acted on it."""
    def __init__(self, **errands):
        # A word in a prompt, and the calls that it starts, one after the other, once.
        self.errands = errands
        self.to_do = []

    def __call__(self, seen):
        for tool, text in seen.results:
            if "prism" in tool and "{" in text:
                self.to_do += map(self.respond, json.loads(text[text.index("{"):]).get("signals", []))
        if not seen.results:
            for word in [word for word in self.errands if word in seen.new]:
                self.to_do += self.errands.pop(word)
        if BELL.search(seen.new):
            self.to_do.append(Call("prism_signals_pending"))
        return self.to_do.pop(0) if self.to_do else Say()

    @staticmethod
    def respond(envelope):
        if envelope["signal_type"] == "Acknowledgment":
            return Call("prism_signal_ack", {"signal_id": envelope["signal_id"], "state": "model_acted"})
        return Call("prism_signal", {"to": envelope["from_identity"], "signal_type": "Acknowledgment",
                                     "payload": {"summary": "heard you"}, "in_reply_to": envelope["signal_id"]})


def signal(to, summary, signal_type="StatusUpdate"):
    return Call("prism_signal", {"to": to, "signal_type": signal_type, "payload": {"summary": summary}})
