"""OpenCode as its users have it, but in a throw-away home and with a scripted model."""
import http.client
import json
import socket
import subprocess

import scripted
from messages_model import MessagesModel
from world import Process, until


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


class OpenCode:
    def __init__(self, world, identity, script=scripted.done):
        self.world, self.identity = world, identity
        self.model = MessagesModel(script)
        world.models.append(self.model)
        self.home = world.folder(f"opencode-{identity}")
        self.config = self.home / ".config/opencode/opencode.json"
        self.config.parent.mkdir(parents=True)
        self.config.write_text(json.dumps({
            "autoupdate": False, "share": "disabled", "model": "loopback/scripted", "small_model": "loopback/scripted",
            "provider": {"loopback": {
                "npm": "@ai-sdk/anthropic", "options": {"baseURL": f"{self.model.url}/v1", "apiKey": "dummy-key"},
                "models": {"scripted": {"tool_call": True}}}}}, indent=2) + "\n")

    def env(self, **more):
        return self.world.env(self.identity, self.home, OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_AUTOUPDATE="1",
                              OPENCODE_DISABLE_LSP_DOWNLOAD="1", **more)

    def connect(self):
        self.world.prism("connect", "opencode", "--user", "--yes", HOME=str(self.home))

    def disconnect(self):
        self.world.prism("disconnect", "opencode", "--user", HOME=str(self.home))

    def run(self, prompt, **env):
        """`opencode run`: one prompt, and what is printed."""
        done = subprocess.run(["opencode", "run", prompt], env=self.env(**env), cwd=self.world.project,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scripted.PATIENCE_S)
        assert done.returncode == 0, f"opencode ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def serve(self, **env):
        return Server(self, env)


class Server:
    """`opencode serve`, which tells the shim its own address: nothing else does."""
    def __init__(self, host, env):
        self.port = free_port()
        self.log = (host.world.dir / f"opencode-{host.identity}.log").open("a")
        self.process = Process(["opencode", "serve", "--port", str(self.port)],
                               env=host.env(PRISM_OPENCODE_URL=f"http://127.0.0.1:{self.port}", **env),
                               cwd=host.world.project, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        host.world.hosts.append(self)
        # A request that comes before it says so is never answered.
        until("the server listens", lambda: "listening on" in open(self.log.name).read(), pause=0.1)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=scripted.PATIENCE_S)
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        assert answer.status < 300, f"{method} {path}: {answer.status} {text}"
        return json.loads(text) if text else None

    def session(self):
        return self.ask("POST", "/session", {})["id"]

    def prompt(self, session, text):
        """Waits until the turn is over."""
        return self.ask("POST", f"/session/{session}/message", {"parts": [{"type": "text", "text": text}]})

    def close(self):
        self.process.close()
        self.log.close()
