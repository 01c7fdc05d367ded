"""Claude Code: `claude -p`, events as JSON lines, dollars of its own. Seen with 2.1.197."""

from __future__ import annotations

from keepfast.propose.command.base import Spec, Variable, w
from keepfast.propose.command.notes import Event, Notes, at, count, dollars, items, text


def hear(event: Event, notes: Notes) -> None:
    kind = text(event, "type")
    notes.open(text(event, "session_id"))
    if kind == "assistant":
        _assistant(event, notes)
    elif kind == "system" and text(event, "subtype") == "api_retry":
        notes.err(f"{text(event, 'error')}, attempt {count(event, 'attempt')}", at(event, "error_status"))
        notes.retry_s = (dollars(event, "retry_delay_ms") or 0.0) / 1000
    elif kind == "rate_limit_event" and text(event, "rate_limit_info", "status") == "rejected":
        notes.err("rate limit", 429)
        notes.resets = float(count(event, "rate_limit_info", "resetsAt")) or None
    elif kind == "result":
        _result(event, notes)


def _assistant(event: Event, notes: Notes) -> None:
    words = "\n".join(text(block, "text") for block in items(event, "message", "content") if text(block, "type") == "text")
    if text(event, "error"):
        notes.err(f"{text(event, 'error')}: {words}")
        return
    notes.well()
    notes.steps += 1
    notes.say(words)


def _result(event: Event, notes: Notes) -> None:
    """The last word. Its numbers are of the whole turn."""
    how = text(event, "subtype")
    notes.finished = True
    notes.say(text(event, "result"))
    for denied in items(event, "permission_denials"):
        notes.deny(f"{text(denied, 'tool_name')} {text(denied, 'tool_input', 'command') or text(denied, 'tool_input', 'file_path')}")
    _usage(event, notes)
    notes.spent, notes.turned_out = how == "error_max_budget_usd", how == "error_max_turns"
    if at(event, "is_error") is True or how.startswith("error"):
        said = text(event, "result") or " ".join(str(e) for e in items(event, "errors")) or how
        notes.fail(said, at(event, "api_error_status"))
    else:
        notes.well()


def _usage(event: Event, notes: Notes) -> None:
    models = at(event, "modelUsage")
    used = list(models.values()) if isinstance(models, dict) else []
    names = ("inputTokens", "cacheReadInputTokens", "cacheCreationInputTokens", "outputTokens")
    if not used:
        used, names = [at(event, "usage")], ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens")
    fresh, read, made, out = (sum(count(u, name) for u in used) for name in names)
    notes.input, notes.cached, notes.output = fresh + read + made, read, out
    notes.requests = count(event, "num_turns")
    notes.dollars = dollars(event, "total_cost_usd") or None


SPEC = Spec(
    name="claude",
    program="claude",
    argv=(
        w("-p", "{prompt}", "--output-format", "stream-json", "--verbose", "--permission-mode", "acceptEdits", "--strict-mcp-config"),
        w("--allowedTools", "Read,Edit,Write,Glob,Grep,Bash", when="caged"),
        w("--allowedTools", "Read,Edit,Write,Glob,Grep", when="!caged"),
        w("--bare", when="api_key"),  # which is all that it reads then: no login, no token of a subscription
        w("--model", "{model}"),
        w("--resume", "{session}"),
        w("--max-budget-usd", "{dollars}"),
        w("--max-turns", "{turns}"),
    ),
    environment=(
        Variable("ANTHROPIC_BASE_URL", "{base_url}"),
        Variable("CLAUDE_CONFIG_DIR", "{home}/.claude"),
        Variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        Variable("CLAUDE_CODE_MAX_RETRIES", "4"),
        Variable("DISABLE_AUTOUPDATER", "1"),
    ),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
    key_variable="ANTHROPIC_API_KEY",
    logins=(".claude/.credentials.json",),
    hear=hear,
)
