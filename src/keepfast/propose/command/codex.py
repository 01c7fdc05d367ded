"""Codex: `codex exec --json`. It tells tokens, never dollars. Seen with 0.171.0.

Inside keepfast's own isolation its sandbox is switched off: it would be a second one, which hides the same things.
"""

from __future__ import annotations

from keepfast.propose.command.base import KEY, Spec, Variable, w
from keepfast.propose.command.notes import Event, Notes, at, count, text

SERVER = f'model_providers.given={{name="given",base_url="{{base_url}}",env_key="{KEY}",wire_api="responses",stream_max_retries=2}}'
COMMON = (
    w("--json", "--ignore-user-config", "--skip-git-repo-check"),
    w("--dangerously-bypass-approvals-and-sandbox", when="caged"),
    w("-m", "{model}"),
    w("-c", "model_provider=given", "-c", SERVER, when="base_url"),
)
PLAIN = w("-c", "sandbox_mode=workspace-write", "-c", "sandbox_workspace_write.network_access=false", when="!caged")

ACTIONS = ("command_execution", "file_change", "mcp_tool_call", "agent_message", "web_search")


def hear(event: Event, notes: Notes) -> None:
    kind = text(event, "type")
    if kind == "thread.started":
        notes.open(text(event, "thread_id"))
    elif kind == "item.completed":
        _item(event, notes)
    elif kind == "turn.completed":
        _completed(event, notes)
    elif kind == "error":
        notes.err(text(event, "message"))
    elif kind == "turn.failed":
        notes.finished = True
        notes.fail(text(event, "error", "message"))


def _item(event: Event, notes: Notes) -> None:
    """`error` items are warnings: the turn goes on."""
    kind = text(event, "item", "type")
    if kind not in ACTIONS:
        return
    notes.well()
    notes.steps += 1
    if kind == "agent_message":
        notes.say(text(event, "item", "text"))
    elif text(event, "item", "status") == "declined":
        notes.deny(text(event, "item", "command") or kind)


def _completed(event: Event, notes: Notes) -> None:
    notes.finished = True
    notes.well()
    if isinstance(at(event, "usage"), dict):
        used = at(event, "usage")
        notes.bill(count(used, "input_tokens"), count(used, "output_tokens"), count(used, "cached_input_tokens"))
        notes.requests = 0  # it does not say how many


SPEC = Spec(
    name="codex",
    program="codex",
    argv=(w("exec"), *COMMON, PLAIN, w("-C", "{workspace}"), w("{prompt}")),
    resume=(w("exec", "resume"), *COMMON, PLAIN, w("{session}", "{prompt}")),
    environment=(Variable("CODEX_HOME", "{home}/.codex"),),
    keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
    logins=(".codex/auth.json",),
    settings=lambda _: ((".codex/version.json", "{}"),),  # makes the folder, which it wants to find
    hear=hear,
    running_total=True,
)
