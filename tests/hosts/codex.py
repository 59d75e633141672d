"""Codex as its users have it, but in a throw-away home and with a scripted model."""
import itertools
import json
import subprocess

import websockets.sync.client

import scripted
from responses_model import ResponsesModel
from terminal import Terminal
from world import Process, until

KEY = "dummy-key"


class Codex:
    def __init__(self, world, identity, script=scripted.done, home=None):
        self.world, self.identity = world, identity
        self.model = ResponsesModel(script)
        world.models.append(self.model)
        self.home = home or world.folder(f"codex-{identity}")
        self.codex_home = self.home / ".codex"
        self.codex_home.mkdir(exist_ok=True)
        self.config.write_text(f"""\
model = "scripted"
model_provider = "loopback"
approval_policy = "never"
sandbox_mode = "danger-full-access"

[analytics]
enabled = false

[model_providers.loopback]
name = "loopback"
base_url = "{self.model.url}/v1"
wire_api = "responses"
env_key = "LOOPBACK_KEY"
request_max_retries = 0
stream_max_retries = 0
supports_websockets = false

[projects."{world.project}"]
trust_level = "trusted"

[tui]
screen_reader_detection_done = true
""")

    @property
    def config(self):
        return self.codex_home / "config.toml"

    def env(self, **more):
        return self.world.env(self.identity, self.home, CODEX_HOME=str(self.codex_home), LOOPBACK_KEY=KEY, **more)

    def connect(self):
        """Wires Prism in."""
        self.world.prism("connect", "codex", "--user", "--yes", "--own-server", HOME=str(self.home), CODEX_HOME=str(self.codex_home))

    def disconnect(self):
        self.world.prism("disconnect", "codex", "--user", HOME=str(self.home), CODEX_HOME=str(self.codex_home))

    def run(self, prompt, *args, **env):
        """`codex exec`: one prompt, and its events."""
        done = subprocess.run(["codex", "exec", "--skip-git-repo-check", "--json", *args, prompt], env=self.env(**env),
                              cwd=self.world.project, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=scripted.PATIENCE_S)
        assert done.returncode == 0, f"codex exec ended with {done.returncode}: {done.stdout}{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def shared_server(self, *args, **env):
        """An app-server of this home, where Codex's own terminals look for it, and nobody connected to it."""
        return SharedServer(self, args, env)

    def server(self, *args, **env):
        """The same with the test as its client."""
        return AppServer(self, args, env)

    def tui(self, *args, command=("codex",), **env):
        """A session in a terminal, ready for its first prompt; hooks that are new to it are approved by hand."""
        terminal = Terminal([*command, *args], self.env(**env), self.world.project)
        self.world.hosts.append(terminal)
        if (self.codex_home / "hooks.json").exists() and "trusted_hash" not in self.config.read_text():
            terminal.answer("Hooks need review", ("2", "› 2. Trust all"), ("\r", lambda screen: "Hooks need" not in screen))
        terminal.shows("? for shortcuts")
        return terminal

    def coder(self, *args, identity=None, **env):
        """A session in a terminal, started by Prism's launcher; as somebody else, if the test says so."""
        return self.tui(*args, command=("prism", "coder", "--as", identity or self.identity, "--", "codex"), **env)


class SharedServer:
    def __init__(self, host, args, env):
        self.host = host
        folder = host.codex_home / "app-server-control"
        folder.mkdir(exist_ok=True)
        self.socket = folder / "app-server-control.sock"
        self.log = (host.world.dir / f"codex-{host.identity}.log").open("a")
        self.process = Process(["codex", "app-server", "--listen", f"unix://{self.socket}", *args], env=host.env(**env),
                               cwd=host.world.project, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        host.world.hosts.append(self)
        until("the app-server listens", self.socket.exists)

    def close(self):
        # Asked politely it waits for turns that it thinks are running.
        self.process.close(patience=1)
        self.log.close()


class AppServer(SharedServer):
    def __init__(self, host, args, env):
        super().__init__(host, args, env)
        self._ids = itertools.count(1)
        # What the server tells unasked is not waited for, so it must not pile up in front of it.
        self._socket = websockets.sync.client.unix_connect(str(self.socket), "ws://localhost/", max_size=None,
                                                             max_queue=None, legacy=True)
        self.ask("initialize", clientInfo={"name": "prism_tests", "title": "Tests", "version": "0"},
                 capabilities={"experimentalApi": True})
        self._socket.send(json.dumps({"method": "initialized"}))

    def ask(self, method, **params):
        """One request; what else the server tells meanwhile is passed over."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv(timeout=scripted.PATIENCE_S))
            if answer.get("id") == number and "method" not in answer:
                assert "result" in answer, f"{method}: {answer}"
                return answer["result"]

    def thread(self):
        return self.ask("thread/start", cwd=str(self.host.world.project), approvalPolicy="never",
                        sandbox="danger-full-access")["thread"]["id"]

    def prompt(self, thread, text):
        return self.ask("turn/start", threadId=thread, input=[{"type": "text", "text": text, "text_elements": []}])["turn"]["id"]

    def state(self, thread):
        return self.ask("thread/read", threadId=thread)["thread"]["status"]["type"]

    def idle(self, thread):
        until("the thread is idle", lambda: self.state(thread) == "idle", pause=0.05)

    def close(self):
        self._socket.close()
        super().close()
