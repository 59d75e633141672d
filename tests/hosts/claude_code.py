"""Claude Code as its users have it, but in a throw-away home and with a scripted model."""
import json
import subprocess

import scripted
from messages_model import MessagesModel
from terminal import Terminal
from world import Lines, Process

# An approved dummy: the host asks about a key it does not know.
KEY = "dummy-key"


class ClaudeCode:
    def __init__(self, world, identity, script=scripted.done):
        self.world, self.identity = world, identity
        self.model = MessagesModel(script)
        world.models.append(self.model)
        self.home = world.folder(f"claude-{identity}")
        # What the first run would ask a human.
        (self.home / ".claude.json").write_text(json.dumps({
            "hasCompletedOnboarding": True, "theme": "dark",
            "customApiKeyResponses": {"approved": [KEY], "rejected": []},
            "projects": {str(world.project): {"hasTrustDialogAccepted": True}}}, indent=2))

    @property
    def settings(self):
        return self.home / ".claude/settings.json"

    def env(self, **more):
        return self.world.env(self.identity, self.home, ANTHROPIC_BASE_URL=self.model.url, ANTHROPIC_API_KEY=KEY,
                              CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", DISABLE_TELEMETRY="1", DISABLE_AUTOUPDATER="1",
                              # Otherwise tools of MCP servers are not in a request before they were searched for.
                              ENABLE_TOOL_SEARCH="false", **more)

    def connect(self, **settings):
        """Wires Prism in, into settings that the user has already."""
        if not self.settings.exists():
            self.settings.parent.mkdir()
            self.settings.write_text(json.dumps({"permissions": {"allow": ["Bash"]}} | settings, indent=2))
        self.world.prism("connect", "claude-code", "--user", "--yes", "--allow-tools", HOME=str(self.home))

    def disconnect(self):
        self.world.prism("disconnect", "claude-code", "--user", HOME=str(self.home))

    def without_inbox(self):
        """From now on the shim is not told of the inbox socket, as in sessions that have none."""
        prism = self.world.bin / "prism"
        program = prism.resolve()
        prism.unlink()
        prism.write_text(f'#!/bin/sh\n[ "$1" = mcp ] && unset CLAUDE_CODE_MESSAGING_SOCKET\nexec {program} "$@"\n')
        prism.chmod(0o755)

    def stream(self, *args, **env):
        """A session without a screen, that takes prompts on standard input until it is closed."""
        return Stream(self, args, env)

    def tui(self, *args, command=("claude",), **env):
        """A session in a terminal, ready for its first prompt."""
        terminal = Terminal([*command, *args], self.env(**env), self.world.project)
        self.world.hosts.append(terminal)
        terminal.shows("❯")
        return terminal

    def coder(self, *args, **env):
        """A session in a terminal, started by Prism's launcher."""
        return self.tui(*args, command=("prism", "coder", "--as", self.identity, "--", "claude"), **env)


class Stream:
    def __init__(self, host, args, env):
        command = ["claude", "-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose", *args]
        self.errors = (host.world.dir / f"claude-{host.identity}.err").open("a")
        self.process = Process(command, env=host.env(**env), cwd=host.world.project, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors)
        host.world.hosts.append(self)
        self.lines = Lines(self.process.popen.stdout, json.loads)

    def prompt(self, text):
        message = {"type": "user", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
        self.process.popen.stdin.write(json.dumps(message) + "\n")
        self.process.popen.stdin.flush()

    def turns_done(self):
        return sum(line.get("type") == "result" for line in list(self.lines.seen))

    def close(self):
        """Its input ends, and so does the session."""
        try:
            if self.process.running():
                self.process.popen.stdin.close()
                self.process.wait(20)
        finally:
            self.process.close()
            self.errors.close()
