"""How each genuine coding-agent CLI is pointed at a model server on loopback, and where its own output holds its bill.

Every CLI gets a home of its own and a key that is none, so that no login, configuration or history of the user is read or written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from keepfast.propose.agent import Usage

PROMPT = "Make kernel.c faster."
KEY = "no-key"
MOST_S = 90.0


class Place(Struct, frozen=True):
    """Where one CLI works: `work` is its workspace, `home` everything else that it may write. `url` is the model's."""

    work: Path
    home: Path
    url: str


class Driver(Struct, frozen=True):
    """One CLI. `settle` writes its settings and returns its environment; `bill` reads the usage that its output claims."""

    name: str
    settle: Callable[[Place], dict[str, str]]
    argv: Callable[[Place], list[str]]
    bill: Callable[[str], Usage]
    mends_half: bool = True  # asks again after half a stream


class Ran(Struct, frozen=True):
    status: int | None  # None: it was ended, as its time was over
    output: str
    errors: str


def run(driver: Driver, program: str, place: Place, enough: Callable[[], bool] = lambda: False) -> Ran:
    """One headless turn; the whole process group is ended a second after `enough`, or when its time is over."""
    folders = (str(Path(program).parent), "/usr/local/bin", "/usr/bin", "/bin")
    names = ("CONFIG", "DATA", "CACHE", "STATE")
    environment = {f"XDG_{n}_HOME": str(place.home / n.lower()) for n in names}
    environment |= {"PATH": os.pathsep.join(folders), "HOME": str(place.home), "TMPDIR": str(place.home), "LANG": "C.UTF-8"}
    environment |= driver.settle(place)
    argv = [program, *driver.argv(place)]
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(argv, cwd=place.work, env=environment, start_new_session=True, text=True, **pipes) as process:
        end = time.monotonic() + MOST_S
        while time.monotonic() < end:
            try:
                output, errors = process.communicate(timeout=0.2)
                return Ran(process.returncode, output, errors)
            except subprocess.TimeoutExpired:
                if enough():
                    end = min(end, time.monotonic() + 1.0)
        os.killpg(process.pid, signal.SIGKILL)
        return Ran(None, *process.communicate())


def lines(output: str) -> Iterator[dict[str, Any]]:
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value), encoding="utf-8")


def codex_settle(place: Place) -> dict[str, str]:
    home = place.home / "codex"
    home.mkdir(exist_ok=True)
    return {"CODEX_HOME": str(home), "STUB_KEY": KEY}


def codex_argv(place: Place) -> list[str]:
    # Without its own sandbox: that one refuses a home below the temporary folder, where a test has it.
    flags = ["--json", "--ephemeral", "--ignore-user-config", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
    provider = f'{{name="stub",base_url="{place.url}/v1",env_key="STUB_KEY",wire_api="responses"}}'
    config = ["-c", "model_provider=stub", "-c", f"model_providers.stub={provider}"]
    return ["exec", *flags, "-C", str(place.work), "-m", "scripted", *config, PROMPT]


def codex_bill(output: str) -> Usage:
    said = [e["usage"] for e in lines(output) if e["type"] == "turn.completed"]
    return total(Usage(u["input_tokens"], u["output_tokens"], u["cached_input_tokens"]) for u in said)


def claude_settle(place: Place) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": KEY, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def claude_argv(place: Place) -> list[str]:
    allowed = ["--permission-mode", "acceptEdits", "--allowedTools", "Edit,Write,Read,Bash"]
    flags = ["--output-format", "json", "--strict-mcp-config", "--no-session-persistence", "--bare"]
    return ["-p", PROMPT, "--model", "claude-sonnet-4-5", *flags, *allowed]


def claude_bill(output: str) -> Usage:
    # Not `usage`: it leaves out an answer that came in one piece after half a stream.
    said = json.loads(output)["modelUsage"].values()
    return total(Usage(m["inputTokens"] + m["cacheReadInputTokens"], m["outputTokens"], m["cacheReadInputTokens"]) for m in said)


COST = {"input": 1, "output": 2}


def opencode_settle(place: Place) -> dict[str, str]:
    model = {"name": "scripted", "cost": COST | {"cache_read": 0.5}, "limit": {"context": 100_000, "output": 8_000}}
    options = {"baseURL": f"{place.url}/v1", "apiKey": KEY}
    provider = {"npm": "@ai-sdk/openai-compatible", "options": options, "models": {"scripted": model}}
    write(place.home / "config" / "opencode" / "opencode.json", {"provider": {"stub": provider}})
    return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}


def opencode_argv(place: Place) -> list[str]:
    return ["run", "--format", "json", "-m", "stub/scripted", "--auto", "--dir", str(place.work), PROMPT]


def opencode_bill(output: str) -> Usage:
    said = [e["part"]["tokens"] for e in lines(output) if e["type"] == "step_finish"]
    return total(Usage(t["input"] + t["cache"]["read"], t["output"], t["cache"]["read"]) for t in said)


def pi_settle(place: Place) -> dict[str, str]:
    model = {"id": "scripted", "name": "scripted", "reasoning": False, "input": ["text"], "contextWindow": 100_000, "maxTokens": 8_000}
    model |= {"cost": COST | {"cacheRead": 0.5, "cacheWrite": 0}}
    provider = {"baseUrl": f"{place.url}/v1", "api": "openai-completions", "apiKey": KEY, "models": [model]}
    write(place.home / ".pi" / "agent" / "models.json", {"providers": {"stub": provider}})
    return {"PI_OFFLINE": "1"}


def pi_argv(place: Place) -> list[str]:
    return ["-p", "--mode", "json", "--no-session", "--provider", "stub", "--model", "scripted", "--tools", "read,edit,write,bash", PROMPT]


def pi_bill(output: str) -> Usage:
    ends = [e["message"] for e in lines(output) if e["type"] == "message_end" and e["message"]["role"] == "assistant"]
    said = [m["usage"] for m in ends]
    return total(Usage(u["input"] + u["cacheRead"], u["output"], u["cacheRead"]) for u in said)


def gemini_settle(place: Place) -> dict[str, str]:
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": False}}
    write(place.home / ".gemini" / "settings.json", settings | {"general": {"enableAutoUpdate": False}})
    return {"GOOGLE_GEMINI_BASE_URL": place.url, "GEMINI_API_KEY": KEY}


def gemini_argv(place: Place) -> list[str]:
    return ["-p", PROMPT, "-o", "json", "-m", "gemini-2.5-pro", "--approval-mode", "yolo", "--skip-trust"]


def gemini_bill(output: str) -> Usage:
    models = json.loads(output)["stats"]["models"] if output.strip() else {}
    said = [m["tokens"] for m in models.values()]
    return total(Usage(t["prompt"], t["candidates"], t["cached"], requests=0) for t in said)


def total(usages: Iterator[Usage]) -> Usage:
    found = list(usages)
    return Usage(sum(u.input_tokens for u in found), sum(u.output_tokens for u in found), sum(u.cached_tokens for u in found))


DRIVERS = (
    Driver("codex", codex_settle, codex_argv, codex_bill),
    Driver("claude", claude_settle, claude_argv, claude_bill),
    Driver("opencode", opencode_settle, opencode_argv, opencode_bill),
    Driver("pi", pi_settle, pi_argv, pi_bill),
    Driver("gemini", gemini_settle, gemini_argv, gemini_bill, mends_half=False),
)
