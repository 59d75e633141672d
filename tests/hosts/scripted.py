"""A model that follows a script: a loopback server that notes what it is asked and answers what the script says.

A script is a function from what the model sees to its next step. The two APIs differ only in how they spell
requests and answers; that is in messages_model.py and responses_model.py.
"""
import dataclasses
import http.server
import itertools
import json
import threading
import time
import typing

# How long tests wait for something that a host is sure to do. Only a broken run takes that long.
PATIENCE_S = 60
_ids = itertools.count(1)


@dataclasses.dataclass
class Say:
    """Ends the turn with a text."""
    text: str = "Done."
    # Answers only once this is set: a model that thinks for as long as the test wants.
    after: threading.Event | None = None


@dataclasses.dataclass
class Call:
    """Asks for one tool, by the end of the name that the host offers it under."""
    tool: str
    arguments: dict = dataclasses.field(default_factory=dict)
    after: threading.Event | None = None


@dataclasses.dataclass(repr=False)
class Seen:
    """One request, as the model sees it."""
    at: float
    # What stands behind the model's own last words: prompts, notes of the host, results of tools.
    new: str
    # The results among it: which tool, and what it said.
    results: list[tuple[str, str]]
    # Everything the request holds, instructions included.
    whole: str
    # Short name -> how the host wants it called.
    tools: dict[str, typing.Any]
    body: dict

    def __repr__(self):
        return f"...{self.new[-800:]}"

    def tells(self, *texts):
        """Fails with a part that can be read when one of them is not in what is new."""
        missing = [text for text in texts if text not in self.new]
        assert not missing, f"the model was not told {missing}, but {self}"

    @property
    def is_turn(self):
        """Hosts also ask for titles and guesses, without tools: no script is about those."""
        return bool(self.tools)

    def result(self, tool):
        """The newest result of that tool as JSON, if this request brings one."""
        for name, text in reversed(self.results):
            if name.endswith(tool):
                # Codex puts how long it took before it.
                return json.loads(text[text.index("{"):])
        return None


def done(_seen):
    return Say()


class Model:
    """One scripted model on a port of its own."""
    # Set by each API: the route that asks for an answer, and the two spellings.
    route = None

    def __init__(self, script=done):
        self.script = script
        self.asked: list[Seen] = []
        self.mistakes: list[BaseException] = []
        self._news = threading.Condition()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def is_asked(self, path):
        return path == self.route

    def frame(self, event):
        """One event as the API streams it."""
        return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"

    def read(self, body) -> Seen:
        raise NotImplementedError

    def events(self, step, seen):
        """The server-sent events of an answer, each with its type inside."""
        raise NotImplementedError

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        assert not self.mistakes, f"a script went wrong: {self.mistakes[0]!r}"

    def turns(self):
        with self._news:
            return [seen for seen in self.asked if seen.is_turn]

    def saw(self, what, after=0.0, seconds=PATIENCE_S):
        """Waits for the first request since `after` that brings this text (or meets this condition)."""
        wanted = what if callable(what) else lambda seen: what in seen.new

        def found():
            return next((s for s in self.asked if s.is_turn and s.at >= after and wanted(s)), None)

        with self._news:
            if seen := self._news.wait_for(found, seconds):
                return seen
            last = self.asked[-1] if self.asked else "nothing at all"
        raise AssertionError(f"the model was not asked within {seconds} s: {what}; last it saw: {last}")

    def _answer(self, body):
        seen = self.read(body)
        with self._news:
            self.asked.append(seen)
            self._news.notify_all()
        try:
            step = self.script(seen) if seen.is_turn else Say()
            if isinstance(step, Call):
                assert any(name.endswith(step.tool) for name in seen.tools), f"{step.tool} is not among {sorted(seen.tools)}"
        except BaseException as mistake:
            self.mistakes.append(mistake)
            step = Say("The script went wrong.")
        if step.after is not None:
            step.after.wait(PATIENCE_S)
        return self.events(step, seen)

    def _handler(model):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.whole({})

            def do_GET(self):
                self.whole({"object": "list", "data": [], "models": []})

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if not model.is_asked(self.path.split("?")[0]):
                    return self.whole({"input_tokens": 1})
                events = model._answer(json.loads(body))
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for event in events:
                    self.wfile.write(model.frame(event).encode())
                    self.wfile.flush()
                self.close_connection = True

            def whole(self, answer):
                body = json.dumps(answer).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def handle(self):
                # A host that stops in the middle of an answer is an ordinary end.
                try:
                    super().handle()
                except (BrokenPipeError, ConnectionResetError):
                    pass

        return Handler


def new_id(prefix):
    return f"{prefix}_{time.time_ns():x}{next(_ids)}"


def offered(tools, step):
    """The host's own spelling of the tool that a step asks for."""
    return next(how for name, how in tools.items() if name.endswith(step.tool))
