"""Gemini CLI as its users have it, but in a throw-away home and with a scripted model."""
import json
import subprocess

import scripted
from generate_model import GenerateModel


class Gemini:
    def __init__(self, world, identity, script=scripted.done):
        self.world, self.identity = world, identity
        self.model = GenerateModel(script)
        world.models.append(self.model)
        self.home = world.folder(f"gemini-{identity}")
        self.settings = self.home / ".gemini/settings.json"
        self.settings.parent.mkdir()
        # What the first run would ask a human; a model that is named needs no other one to choose it.
        self.settings.write_text(json.dumps({
            "security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False},
            "model": {"name": "gemini-2.5-flash"},
            "general": {"enableAutoUpdate": False}}, indent=2) + "\n")

    def env(self, **more):
        return self.world.env(self.identity, self.home, GEMINI_API_KEY="dummy-key", GOOGLE_GEMINI_BASE_URL=self.model.url,
                              GEMINI_CLI_TRUST_WORKSPACE="true", **more)

    def connect(self):
        self.world.prism("connect", "gemini", "--user", "--yes", HOME=str(self.home))

    def disconnect(self):
        self.world.prism("disconnect", "gemini", "--user", HOME=str(self.home))

    def run(self, prompt, *args, **env):
        """One prompt, and what is printed."""
        done = subprocess.run(["gemini", "-y", *args, "-p", prompt], env=self.env(**env), cwd=self.world.project,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=scripted.PATIENCE_S)
        assert done.returncode == 0, f"gemini ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout
