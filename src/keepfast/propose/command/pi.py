"""pi: `pi -p --mode json`, dollars from its own price table. Seen with 0.74.2. Its exit status is 0 whatever happened."""

from __future__ import annotations

import json
import re

from keepfast.propose.command.base import KEY, Spec, Values, Variable, w
from keepfast.propose.command.notes import Event, Notes, count, dollars, items, text


def settings(values: Values) -> tuple[tuple[str, str], ...]:
    """How long it waits for a limit; with a `base_url`, a provider of the name before the slash of the model."""
    retry = {"enabled": True, "maxRetries": 3, "provider": {"maxRetries": 0, "maxRetryDelayMs": 20000}}
    files = [(".pi/agent/settings.json", json.dumps({"retry": retry}))]
    if values["base_url"]:
        provider, _, model = values["model"].rpartition("/")
        given = {"baseUrl": values["base_url"], "api": "openai-completions", "apiKey": KEY, "models": [{"id": model}]}
        files.append((".pi/agent/models.json", json.dumps({"providers": {provider or "given": given}})))
    return tuple(files)


def hear(event: Event, notes: Notes) -> None:
    kind = text(event, "type")
    if kind == "session":
        notes.open(text(event, "id"))
    elif kind == "message_end" and text(event, "message", "role") == "assistant":
        _assistant(event, notes)
    elif kind == "agent_end":
        notes.finished = True
    elif kind in ("auto_retry_start", "agent_start"):
        notes.finished = False


def _assistant(event: Event, notes: Notes) -> None:
    def tokens(name: str) -> int:
        return count(event, "message", "usage", name)

    read = tokens("cacheRead")
    if tokens("input") + read + tokens("output"):
        notes.steps += 1
        cost = dollars(event, "message", "usage", "cost", "total")
        notes.bill(tokens("input") + read + tokens("cacheWrite"), tokens("output"), read, cost)
    if text(event, "message", "stopReason") in ("error", "aborted"):
        said = text(event, "message", "errorMessage")
        code = re.match(r"(\d{3})\b", said)
        notes.fail(said, int(code[1]) if code else None)
        return
    notes.well()
    notes.say("\n".join(text(block, "text") for block in items(event, "message", "content") if text(block, "type") == "text"))


SPEC = Spec(
    name="pi",
    program="pi",
    argv=(
        w("-p", "--mode", "json"),
        w("--tools", "read,edit,write,grep,find,ls,bash", when="caged"),
        w("--tools", "read,edit,write,grep,find,ls", when="!caged"),
        w("--model", "{model}"),
        w("--session", "{session}"),
        w("{prompt}"),
    ),
    environment=(
        Variable("PI_CODING_AGENT_DIR", "{home}/.pi/agent"),
        Variable("PI_OFFLINE", "1"),
    ),
    keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY"),
    logins=(".pi/agent/auth.json",),
    settings=settings,
    hear=hear,
)
