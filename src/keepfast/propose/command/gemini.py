"""Gemini CLI: `gemini -p -o stream-json`. It tells tokens, never dollars. Seen with 0.61.0."""

from __future__ import annotations

import json
import re

from keepfast.propose.command.base import Spec, Values, Variable, w
from keepfast.propose.command.notes import Event, Notes, at, count, text

UNREGISTERED = ("tool_not_registered", "policy_violation")


def settings(values: Values) -> tuple[tuple[str, str], ...]:
    """It refuses to start when the way of its login is not named, even with a key in the environment."""
    way = "oauth-personal" if values["login"] else "gemini-api-key"
    wanted = {
        "security": {"auth": {"selectedType": way}},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 4},
    }
    return ((".gemini/settings.json", json.dumps(wanted)),)


def hear(event: Event, notes: Notes) -> None:
    kind = text(event, "type")
    if kind == "init":
        notes.open(text(event, "session_id"))
        notes.model = text(event, "model")[:100]
    elif kind == "message" and text(event, "role") == "assistant":
        notes.well()
        notes.go_on(text(event, "content"))
    elif kind == "tool_use":
        notes.well()
        notes.steps += 1
        notes.said = ""  # what comes after it is another message
    elif kind == "tool_result" and text(event, "error", "type") in UNREGISTERED:
        notes.deny(text(event, "error", "message"))
    elif kind == "error":
        notes.err(text(event, "message"))
    elif kind == "result":
        _result(event, notes)


def _result(event: Event, notes: Notes) -> None:
    notes.finished = True
    notes.bill(count(event, "stats", "input_tokens"), count(event, "stats", "output_tokens"), count(event, "stats", "cached"))
    notes.requests = 0  # it does not say how many
    if text(event, "status") == "success":
        notes.well()
    else:
        said = text(event, "error", "message")
        notes.turned_out = "max session turns" in said.lower() or text(event, "error", "type") == "FatalTurnLimitedError"
        code = re.search(r'"code":\s*(\d{3})\b', said)
        notes.fail(said, int(code[1]) if code else at(event, "error", "code"))


def mutter(line: str, notes: Notes) -> None:
    """Its error output: it waits for a model server without a word on its output."""
    if re.match(r"Attempt \d+ failed", line):
        found = re.search(r"status:? (\d{3})", line)
        notes.err(line, int(found[1]) if found else None)


SPEC = Spec(
    name="gemini",
    program="gemini",
    argv=(
        w("-p", "{prompt}", "-o", "stream-json", "--skip-trust"),
        w("--approval-mode", "yolo", when="caged"),
        w("--approval-mode", "auto_edit", when="!caged"),
        w("-m", "{model}"),
        w("--resume", "{session}"),
    ),
    environment=(
        Variable("GOOGLE_GEMINI_BASE_URL", "{base_url}"),
        Variable("GEMINI_CLI_HOME", "{home}"),
    ),
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    key_variable="GEMINI_API_KEY",
    logins=(".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
    settings=settings,
    hear=hear,
    mutter=mutter,
)
