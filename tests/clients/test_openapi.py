"""schemathesis against the server's own OpenAPI document, once with the operator's key and once with an agent's.

The seed is fixed, so a failure comes back on the next run; the report ends with a curl line that reproduces it.
"""
import json
import re
import subprocess
import sys
import urllib.request

import pytest

from harness import PID, Server

SEED, EXAMPLES = 1, 6
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "unsupported_method", "ignored_auth",
]
OPERATOR_ONLY = {"key_list", "key_mint", "key_revoke", "persona_add"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("openapi"))
    server.start()
    server.stop()
    # One key sends more in a few seconds than the default limits let any one client send.
    config = server.home / "config.toml"
    config.write_text(re.sub(r"(?m)^(requests_\w+) = \d+", r"\1 = 100000", config.read_text()))
    server.start()
    yield server
    server.stop()


def known_values(server):
    """Values that exist. Made-up ones never get past the first check of a verb, and then only errors are compared."""
    server.post("ping", **{"Prism-Create-Project": "true"})
    server.post("persona_add", {"identity": "Fuzz"})
    agent_key = server.post("key_mint", {"identity": "Fuzz"})["key"]

    def session():
        return server.post("session_register", {"surface": "other", "machine_id": "m", "process_pid": 1}, agent_key)["session_id"]

    def signals(to, key):
        body = {"to": to, "signal_type": "TaskAssigned", "payload": {"summary": "known"}}
        return [server.post("signal", body, key)["signal_id"] for _ in range(4)]

    spare_keys = [server.post("key_mint", {"identity": "Spare"})["key_id"] for _ in range(2)]
    everyone = {
        "body.to": ["Fuzz", server.operator], "body.identity": ["Fuzz", server.operator],
        "body.signal_type": ["TaskAssigned", "Question", "Answer"], "body.category": ["INFO", "BLOCKER"],
        "body.delivery_class": ["async", "sync"], "body.state": ["observed", "model_acted"], "body.surface": ["other", "codex"],
    }
    for_operator, for_agent = signals(server.operator, agent_key), signals("Fuzz", server.key)
    return {
        "operator": (server.key, session(), everyone | {
            "body.signal_id": for_operator, "body.in_reply_to": for_operator, "body.key_id": spare_keys}),
        "agent": (agent_key, session(), everyone | {
            "body.signal_id": for_agent, "body.in_reply_to": for_agent, "header.Prism-Session": [session()]}),
    }


def config(values, doomed_session):
    """session_release gets a session of its own: with the others' it would answer for every verb after it."""
    lines = ["[parameters]", f'"path.pid" = "{PID}"']
    lines += [f'"{where}" = {{ dictionary = "{where.split(".")[1]}", probability = 0.8 }}' for where in values]
    for where, known in values.items():
        lines += [f"[dictionaries.{where.split('.')[1]}]", f"values = {json.dumps(known)}"]
    lines += ["[[operations]]", 'include-operation-id = "prism_session_release"', "[operations.parameters]"]
    where = "header.Prism-Session" if "header.Prism-Session" in values else "body.session_id"
    lines += [f'"{where}" = "{doomed_session}"']
    # Any refusal will do: a wrong body sent from a session that is over is told about the session, with 410.
    lines += ["[checks.negative_data_rejection]", 'expected-statuses = ["4xx"]']
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def runs(server, tmp_path_factory):
    """Per role: how schemathesis ended, and the statuses that each verb answered with."""
    runs = {}
    for role, (key, doomed_session, values) in known_values(server).items():
        folder = tmp_path_factory.mktemp(role)
        (folder / "schemathesis.toml").write_text(config(values, doomed_session))
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run",
             f"{server.url}/api/v1/openapi.json", "--header", f"Authorization: Bearer {key}", "--checks", ",".join(CHECKS),
             "--seed", str(SEED), "--max-examples", str(EXAMPLES), "--generation-database", "none", "--request-timeout", "10",
             "--warnings", "off", "--no-color", "--report", "har", "--report-har-path", "run.har"],
            cwd=folder, env=server.env(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        statuses = {}
        if (folder / "run.har").exists():
            for entry in json.loads((folder / "run.har").read_text())["log"]["entries"]:
                if verb := re.search(rf"/api/v1/{PID}/([^?]+)", entry["request"]["url"]):
                    statuses.setdefault(verb[1], set()).add(entry["response"]["status"])
        runs[role] = (done, statuses)
    return runs


@pytest.mark.parametrize("role", ["operator", "agent"])
def test_answers_keep_to_the_document(runs, role):
    done, _ = runs[role]
    assert done.returncode == 0, done.stdout


def test_every_verb_was_answered(runs, server):
    """Without a 200 nothing compared that verb's answer with the document: it needs a known value above."""
    with urllib.request.urlopen(f"{server.url}/api/v1/openapi.json", timeout=15) as answer:
        verbs = {path.removeprefix("/api/v1/{pid}/") for path in json.load(answer)["paths"] if "{pid}" in path}
    assert OPERATOR_ONLY <= verbs
    answered = {verb for _, statuses in runs.values() for verb in statuses if 200 in statuses[verb]}
    assert verbs - answered == set()


def test_agents_cannot_act_as_the_operator(runs):
    _, statuses = runs["agent"]
    for verb in OPERATOR_ONLY:
        assert 403 in statuses[verb] and 200 not in statuses[verb], verb
