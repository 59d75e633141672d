"""The real binary from outside: a server in a throw-away home, and what its clients need to reach it."""
import contextlib
import json
import os
import pathlib
import subprocess
import time
import tomllib
import urllib.request

PID = "PID-CLIENTS"


def binary():
    path = os.environ.get("PRISM_BIN")
    if not path:
        raise SystemExit("PRISM_BIN is not set: start the tests with tests/clients/run")
    return path


def until(what, look, seconds=15, pause=0.02):
    """Ask again until `look` gives something; a slow machine costs time, not a failure."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {what}")


class Server:
    def __init__(self, home: pathlib.Path):
        self.home = home
        self.process = None

    def start(self, pause=0.02):
        log = self.home / "server.log"
        with log.open("a") as out:
            self.process = subprocess.Popen([binary(), "serve", "--home", str(self.home), "--port", "0"],
                                            env=self.env(), cwd=self.home, stdout=out, stderr=out)

        def announced():
            assert self.process.poll() is None, f"prism serve ended: {log.read_text()[-2000:]}"
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads((self.home / "server.json").read_text())

        try:
            self.url = until("prism serve writes server.json", announced, pause=pause)["url"]
        except BaseException:
            self.kill()
            raise
        config = tomllib.loads((self.home / "config.toml").read_text())
        self.operator, self.key = config["operator"], config["api_key"]

    def stop(self):
        """A server that died meanwhile, or does not end cleanly when asked to, is a failure of its own."""
        try:
            assert self.process.poll() is None, "prism serve ended during the test"
            self.process.terminate()
            assert self.process.wait(10) == 0, "prism serve did not end cleanly"
            assert not (self.home / "server.json").exists(), "server.json outlived its server"
        finally:
            self.kill()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def env(self, identity=None):
        """Nothing of the caller's own Prism or login may leak into a test, so this is a whole environment."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "PRISM_HOME": str(self.home), "PRISM_PID": PID,
               "PRISM_AUTOSTART": "0"}
        return env | ({"PRISM_AGENT_IDENTITY": identity} if identity else {})

    def other_project(self, pid):
        """Makes a project besides the one that every test works in."""
        self.post("ping", pid=pid, **{"Prism-Create-Project": "1"})
        return pid

    def post(self, verb, body=None, key=None, pid=PID, **headers):
        request = urllib.request.Request(f"{self.url}/api/v1/{pid}/{verb}", json.dumps(body or {}).encode(), headers | {
            "Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=15) as answer:
            return json.load(answer)
