"""schemathesis against the server's own OpenAPI document, once with the operator's key and once with an agent's.

The seed is fixed, so a failure comes back on the next run; the report has a curl line for it, without the key.
"""
import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
import uuid

import pytest

from harness import PID, Server

SEED, EXAMPLES = 1, 6
CHECKS = [
    "not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance",
    "negative_data_rejection", "unsupported_method", "ignored_auth",
]
PREFIX = "/api/v1/{pid}/"
HOST = {"surface": "other", "machine_id": "m", "process_pid": 1}
ENDS_A_SESSION = ["session_release", "wrap"]
OPERATOR_ONLY = {"key_list", "key_mint", "key_revoke", "persona_add", "inputs", "review", "gate_label",
                 "import", "memory_reembed", "training"}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("openapi"))
    server.start()
    server.post("ping", **{"Prism-Create-Project": "true"})
    server.stop()
    # One key sends more in a few seconds than the default limits let any one client send.
    config = server.home / "config.toml"
    text, raised = re.subn(r"(?m)^(requests_(?:per_second|burst)) = \d+", r"\1 = 100000", config.read_text())
    assert raised == 2, text
    config.write_text(text)
    server.start()
    server.post("persona_add", {"identity": "Fuzz"})
    yield server
    server.stop()


@pytest.fixture(scope="module")
def agent_key(server):
    return server.post("key_mint", {"identity": "Fuzz"})["key"]


@pytest.fixture(scope="module")
def new_session(server, agent_key):
    return lambda: server.post("session_register", HOST, agent_key)["session_id"]


@pytest.fixture(scope="module")
def document(server):
    with urllib.request.urlopen(f"{server.url}/api/v1/openapi.json", timeout=15) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def verbs(document):
    return {path.removeprefix(PREFIX) for path in document["paths"] if path.startswith(PREFIX)}


@pytest.fixture(scope="module")
def session(new_session):
    return new_session()


@pytest.fixture(scope="module")
def known_values(server, agent_key, session, new_session):
    """Values that exist, by role and field, or verb and field. Made-up ones seldom get past a verb's first check,
    and then nothing but its errors is compared with the document."""
    def as_agent(verb, **body):
        return server.post(verb, body, agent_key, **{"Prism-Session": session})

    def signals(to, key):
        body = {"to": to, "signal_type": "TaskAssigned", "payload": {"summary": "known"}}
        ids = [server.post("signal", body, key)["signal_id"] for _ in range(4)]
        return {"signal_id": ids, "in_reply_to": ids}

    # The gate warns about a task on such a path that nobody looked anything up for; recalling comes after it.
    as_agent("todo", action="add", title="known words", paths=["docs/adrs/0001.md"])
    [warning, *_] = server.post("gate_events")["events"]
    note = as_agent("note", text="known words")
    heard = as_agent("operator_input", prompt_text="no, the other one", confidence="high", **{"class": "correction"})
    recalled = as_agent("recall", query="known words")
    probes = [as_agent("signal/loopback-issue") for _ in range(2)]
    names = ["Fuzz", server.operator]
    both = {
        "to": names, "identity": names, "from_identity": names, "signal_type": ["TaskAssigned", "Question", "Answer"],
        "category": ["INFO", "BLOCKER"], "delivery_class": ["async"], "ttl_s": [60], "state": ["observed", "model_acted"],
        "surface": ["other", "codex"], "key_id": [server.post("key_mint", {"identity": "Spare"})["key_id"]],
        "action": ["create", "list"], "todo.action": ["add", "list"], "review.action": ["accept", "undo"],
        "kind": ["note", "fact"], "verdict": ["works", "broken"], "refers_to": ["commit:0123abc"],
        "class": ["correction"], "confidence": ["high", "low"], "event_id": [warning["id"]],
        "id": [note["id"]], "ids": [[heard["id"]]], "recall_event_id": [recalled["recall_event_id"]],
        "result_id": [recalled["results"][0]["id"]], "signal/loopback-echo.signal_id": [probes[0]["signal_id"]],
        "signal/loopback-finish.probe": [probes[1]], "signal/loopback-model.signal_id": [probes[0]["signal_id"]],
        "project_merge.from": [server.other_project("PID-OLD")],
        "import.source": ["known"], "import.lines": [[{"line": 1, "row": {"id": "known", "kind": "note", "identity": "Fuzz",
                                                                          "created_at": "2026-01-01T00:00:00Z", "text": "known words"}}]],
    }
    both |= dict.fromkeys(["title", "body", "query", "text", "what_happened", "choice_point", "prevention", "context", "decision"],
                          ["known words"])
    both |= dict.fromkeys(["also", "asked_as"], [["known words"]])
    to_operator = signals(server.operator, agent_key)
    page = {"inbox_read.signal_ids": [to_operator["signal_id"][:1]], "probe_run.session_id": [session], "probe_run.timeout_ms": [50]}
    return {"operator": both | to_operator | page | {"session_release.session_id": [new_session()]},
            "agent": both | signals("Fuzz", server.key)}


def with_examples(document, known):
    document = json.loads(json.dumps(document))
    for path in document["paths"]:
        if not path.startswith(PREFIX):
            continue
        operation = document["paths"][path]["post"]
        # A made-up session is refused before the body is looked at, so this header is not schemathesis' to make up.
        operation["parameters"] = [p for p in operation["parameters"] if p["name"] != "Prism-Session"]
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        for field, schema in body.get("properties", {}).items():
            if values := known.get(f"{path.removeprefix(PREFIX)}.{field}") or known.get(field):
                schema["examples"] = values
    return document


def config(key, session=None, doomed_sessions=None):
    lines = ["[headers]", f'Authorization = "Bearer {key}"']
    if session:
        lines += [f'Prism-Session = "{session}"']
        # A verb that ends its session gets one of its own: with the common one it would end the run.
        for verb, doomed in doomed_sessions.items():
            lines += ["[[operations]]", f'include-operation-id = "prism_{verb}"', f'headers = {{ Prism-Session = "{doomed}" }}']
    else:
        # The long list of wrong bodies is the same for everyone, so the operator sends it only where agents may not.
        theirs = json.dumps([f"prism_{verb}" for verb in sorted(OPERATOR_ONLY)])
        lines += ["[[operations]]", f"exclude-operation-id = {theirs}", "phases.coverage.enabled = false"]
    lines += ["[parameters]", f'"path.pid" = "{PID}"']
    # Which refusal does not matter here: a wrong body from a session that is over may be told about the session.
    lines += ["[checks.negative_data_rejection]", 'expected-statuses = ["4xx"]']
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def runs(server, document, agent_key, session, new_session, known_values, tmp_path_factory):
    """Per role: how schemathesis ended, and the statuses that each verb answered with."""
    # The agent goes first: the operator's run may find its key or its session in a list, and end them.
    configs = {"agent": config(agent_key, session, {verb: new_session() for verb in ENDS_A_SESSION}),
               "operator": config(server.key)}
    runs = {}
    for role in configs:
        folder = tmp_path_factory.mktemp(role)
        (folder / "openapi.json").write_text(json.dumps(with_examples(document, known_values[role])))
        (folder / "schemathesis.toml").write_text(configs[role])
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml", "run", "openapi.json",
             "--url", server.url, "--checks", ",".join(CHECKS), "--seed", str(SEED), "--max-examples", str(EXAMPLES),
             "--generation-database", "none", "--request-timeout", "10", "--warnings", "off", "--no-color",
             "--report", "har", "--report-har-path", "run.har"],
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


def test_every_verb_was_answered(runs, verbs):
    """Without a 200 nothing compared that verb's answer with the document: it needs a value in known_values."""
    answered = {verb for _, statuses in runs.values() for verb in statuses if 200 in statuses[verb]}
    assert verbs and verbs <= answered, f"never answered 200: {sorted(verbs - answered)}"


def test_agents_cannot_act_as_the_operator(runs, verbs):
    _, statuses = runs["agent"]
    assert OPERATOR_ONLY <= verbs
    for verb in OPERATOR_ONLY:
        assert 403 in statuses[verb] and 200 not in statuses[verb], verb


@pytest.mark.parametrize("whose, refusals", [("nobody's", {404, 410}), ("another's", {403}), ("nonsense", {400})])
def test_session_header_is_checked(server, new_session, whose, refusals):
    session = {"nobody's": str(uuid.uuid4()), "another's": new_session(), "nonsense": "nonsense"}[whose]
    with pytest.raises(urllib.error.HTTPError) as refused:
        server.post("status", **{"Prism-Session": session})
    with refused.value as answer:
        assert answer.status in refusals
        assert json.load(answer)["error"]["hint"]
