"""One scenario's world: a folder that everything lives in, a Prism server, and account of every process."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import tomllib

from scripted import PATIENCE_S

PID = "PID-HOSTS"
BINARY = pathlib.Path(os.environ["PRISM_BIN"])
HOSTS = pathlib.Path(os.environ["PRISM_TEST_HOSTS"])
# Hosts that are tested apart, where they are.
MORE = [pathlib.Path(folder) for folder in [os.environ.get("PRISM_TEST_MORE")] if folder]
VERSIONS = json.loads((pathlib.Path(__file__).parent / "package.json").read_text())["dependencies"]
CLAUDE = f"claude-code-{VERSIONS['@anthropic-ai/claude-code']}"
CODEX = f"codex-{VERSIONS['@openai/codex']}"
# How many times as long as what is asked for means that something is broken.
BROKEN_BY = 10
# What is asked of a bell at an idle session: from the send to the model's request.
IDLE_S = 1
# Nothing that Prism or a host started may outlive a killed host by more than this.
LEFTOVER_S = 5


def until(what, look, seconds=PATIENCE_S, pause=0.02):
    """Ask again until `look` gives something; a slow machine costs time, not a failure."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(pause)
    raise AssertionError(f"not within {seconds} s: {what}")


def bell(sender, signal_type):
    return f"Signal from {sender}: {signal_type}. Use prism_signals_pending to read; prism_signal to reply if needed."


def figure(what, seconds, asked=None):
    """A measured time, for people to read. Machines are busy with other things as well, so that it took longer than
    was asked fails nothing; but an order of magnitude longer is no noise."""
    print(f"measured: {what}{f' (asked: within {asked:g} s)' if asked else ''}: {seconds:.2f} s")
    assert asked is None or seconds < asked * BROKEN_BY, f"{what} took {seconds:.1f} s, asked for were {asked:g} s"


class World:
    def __init__(self):
        # Not under /tmp: Codex will not put its helper programs there.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="prism-hosts-", dir="/var/tmp"))
        self.home = self.dir / "prism"
        self.project = self.folder("project")
        self.bin = self.folder("bin")
        (self.bin / "prism").symlink_to(BINARY)
        self.models = []
        self.hosts = []
        self.server = None

    def folder(self, name):
        path = self.dir / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    # Environment and processes

    def env(self, identity=None, home=None, **more):
        """A whole environment: nothing of the caller's own logins, hosts or Prism may leak in."""
        path = [self.bin, *(folder / "node_modules/.bin" for folder in (HOSTS, *MORE)), "/usr/local/bin", "/usr/bin", "/bin"]
        env = {"PATH": ":".join(map(str, path)), "HOME": str(home or self.folder("operator")), "LANG": "C.UTF-8",
               "TERM": "xterm-256color", "PRISM_HOME": str(self.home), "PRISM_PID": PID}
        # Whoever wants an autostarted server says so; otherwise a test must not leave one.
        env["PRISM_AUTOSTART"] = "0"
        # A hook is silent after 50 ms; a debug build on a busy machine must not be judged by that.
        env["PRISM_HOOK_MS"] = "2000"
        return env | ({"PRISM_AGENT_IDENTITY": identity} if identity else {}) | more

    def processes(self):
        """Whoever has this world's folder in the environment; hosts hand it down to all they start."""
        mine, found = str(self.dir).encode(), {}
        for entry in pathlib.Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mine in (entry / "environ").read_bytes():
                    if state(entry) != "Z":
                        found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        return found

    # Prism

    def serve(self):
        log = self.dir / "server.log"
        with log.open("a") as out:
            self.server = subprocess.Popen([BINARY, "serve", "--home", self.home, "--port", "0"], cwd=self.dir,
                                           env=self.env(), stdout=out, stderr=out, start_new_session=True)

        def announced():
            assert self.server.poll() is None, f"prism serve ended: {log.read_text()[-2000:]}"
            with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
                return json.loads((self.home / "server.json").read_text())

        until("prism serve writes server.json", announced)
        self.operator = tomllib.loads((self.home / "config.toml").read_text())["operator"]

    def stop(self):
        if self.server and self.server.poll() is None:
            self.server.send_signal(signal.SIGTERM)
            assert self.server.wait(PATIENCE_S) == 0, "prism serve did not end cleanly"

    def prism(self, *args, identity=None, cwd=None, check=True, **env):
        """The command line, as the operator or as an agent; its JSON where it gives any."""
        done = subprocess.run([BINARY, *args], env=self.env(identity, **env), cwd=cwd or self.project,
                              capture_output=True, text=True, timeout=PATIENCE_S)
        if check:
            assert done.returncode == 0, f"prism {args} ended with {done.returncode}: {done.stdout}{done.stderr}"
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(done.stdout)
        return done

    def enrol(self, identity):
        """An agent that is known and has a key, but no session."""
        self.prism("persona", "add", identity)
        self.prism("key", "mint", identity)

    def send(self, to, signal_type="TaskAssigned", summary="look at 4b", sender=None):
        """Sends as the operator, or as an agent; gives the answer and when it was asked for."""
        at = time.monotonic()
        answer = self.prism("send", to, summary, "--type", signal_type, "--json", identity=sender)
        return answer["signal_id"], at

    def receipt(self, signal_id):
        return self.prism("trace", signal_id, "--json")["receipt"]

    def reaches(self, signal_id, state, seconds=PATIENCE_S):
        """Waits until the receipt says so, and gives it."""
        def there():
            receipt = self.receipt(signal_id)
            return receipt if state in receipt["states"] else None
        return until(f"signal {signal_id} is {state}", there, seconds, pause=0.1)

    def live(self, identity):
        """The identity's session, once the server has its socket."""
        def there():
            sessions = self.prism("whois", identity, "--json", check=False)
            if isinstance(sessions, dict):
                return next((s for s in sessions.get("sessions", []) if s["state"] in ("live", "idle")), None)
        return until(f"{identity} is live", there, pause=0.1)

    def attention(self, identity):
        """What is known of who is at the hosts of that identity, the longest running first."""
        sessions = self.prism("whois", identity, "--json")["sessions"]
        return [s.get("attention") for s in sorted(sessions, key=lambda s: s["started_at"])]

    # The end

    def close(self, failed):
        """Ends everything in order; what is then still there is a failure, and ended by its pid."""
        wrong = []
        for end in [*(part.close for part in [*reversed(self.hosts), *self.models]), self.stop]:
            try:
                end()
            except BaseException as error:
                wrong.append(error)
        try:
            until("all ended", lambda: not self.processes(), LEFTOVER_S, pause=0.05)
        except AssertionError:
            left = self.processes()
            wrong.append(AssertionError(f"left behind {LEFTOVER_S} s after the end: {left}"))
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        if failed or wrong:
            print(f"the world is kept in {self.dir}")
        else:
            shutil.rmtree(self.dir)
        if wrong:
            raise wrong[0]


def state(entry):
    """One letter; the name before it may hold anything, brackets too."""
    return (entry / "stat").read_text().rpartition(")")[2].split()[0]


class Process:
    """A host's process in a session of its own, so that it can be ended with all its children."""
    def __init__(self, args, **options):
        self.popen = subprocess.Popen(args, start_new_session=True, **options)

    @property
    def pid(self):
        return self.popen.pid

    def running(self):
        return self.popen.poll() is None

    def wait(self, seconds=PATIENCE_S):
        return self.popen.wait(seconds)

    def kill_group(self, how=signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, how)

    def close(self, patience=10):
        """Asks, then makes sure."""
        if self.running():
            self.kill_group(signal.SIGTERM)
            try:
                self.popen.wait(patience)
            except subprocess.TimeoutExpired:
                self.kill_group()
                self.popen.wait()


class Lines:
    """What a process prints, line by line, to wait on."""
    def __init__(self, stream, parse=str):
        self.seen = []
        self._news = threading.Condition()
        self._parse = parse
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream):
        for line in stream:
            try:
                line = self._parse(line)
            except ValueError:
                continue
            with self._news:
                self.seen.append(line)
                self._news.notify_all()

    def wait(self, what, wanted, seconds=PATIENCE_S):
        with self._news:
            def found():
                return next((line for line in self.seen if wanted(line)), None)
            if line := self._news.wait_for(found, seconds):
                return line
            raise AssertionError(f"not printed within {seconds} s: {what}; last: {self.seen[-3:]}")
