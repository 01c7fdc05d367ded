"""OpenCode: `opencode run --format json`, dollars from its own price table. Seen with 1.18.33."""

from __future__ import annotations

import json

from keepfast.propose.command.base import KEY, Spec, Values, Variable, w
from keepfast.propose.command.notes import Event, Notes, at, count, dollars, text


def settings(values: Values) -> tuple[tuple[str, str], ...]:
    """Its configuration; with a `base_url`, a provider of the name before the slash of the model."""
    wanted: dict[str, object] = {"share": "disabled", "autoupdate": False}
    if not values["caged"]:
        wanted["permission"] = {"bash": "deny", "webfetch": "deny", "external_directory": "deny"}
    if values["base_url"]:
        provider, _, model = values["model"].rpartition("/")
        options = {"baseURL": values["base_url"], "apiKey": f"{{env:{KEY}}}"}
        wanted["provider"] = {provider or "given": {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {model: {}}}}
    return ((".config/opencode/opencode.json", json.dumps(wanted)),)


def hear(event: Event, notes: Notes) -> None:
    kind = text(event, "type")
    notes.open(text(event, "sessionID"))
    if kind == "text":
        notes.say(text(event, "part", "text"))
    elif kind == "tool_use":
        _tool(event, notes)
    elif kind == "step_finish":
        _step(event, notes)
    elif kind == "error":
        said = text(event, "error", "data", "message") or text(event, "error", "name")
        notes.fail(said, at(event, "error", "data", "statusCode"))


def _tool(event: Event, notes: Notes) -> None:
    error = text(event, "part", "state", "error")
    if "rejected permission" in error or "rule which prevents" in error:
        notes.deny(text(event, "part", "tool"))


def _step(event: Event, notes: Notes) -> None:
    def tokens(*path: str) -> int:
        return count(event, "part", "tokens", *path)

    notes.well()
    notes.steps += 1
    notes.finished = text(event, "part", "reason") != "tool-calls"
    read = tokens("cache", "read")
    spent = dollars(event, "part", "cost")
    notes.bill(tokens("input") + read + tokens("cache", "write"), tokens("output") + tokens("reasoning"), read, spent)


def mutter(line: str, notes: Notes) -> None:
    """Its log: it waits for a model server without a word on its output."""
    if "stream error" in line and "small=true" not in line:
        notes.err(line.partition("error.error=")[2] or line)


SPEC = Spec(
    name="opencode",
    program="opencode",
    argv=(
        w("run", "--format", "json", "--auto", "--dir", "{workspace}", "--print-logs", "--log-level", "ERROR"),
        w("-m", "{model}"),
        w("--session", "{session}"),
        w("{prompt}"),
    ),
    environment=(
        Variable("OPENCODE_DISABLE_MODELS_FETCH", "1", when=("base_url",)),
        Variable("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        Variable("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
    ),
    keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY", "OPENCODE_API_KEY"),
    logins=(".local/share/opencode/auth.json",),
    settings=settings,
    hear=hear,
    mutter=mutter,
)
