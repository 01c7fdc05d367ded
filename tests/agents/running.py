"""`keepfast run` as a user starts it, on the softmax of the examples, with agents that a file of agents points at a model on loopback.

The task has one timed and one other case, no baselines and no deck, so that a run is over in seconds; its judge is the real one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

from keepfast import model
from keepfast.errors import MachineError
from keepfast.ledger import Ledger
from keepfast.propose.agent import Usage
from keepfast.propose.command.cage import find_cage
from keepfast.settings import agents_path
from keepfast.testing.model_server import ModelServer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "cpu" / "softmax"
DECK = EXAMPLE / "deck" / "017-vector-lanes-to-tune" / "kernel"
KERNEL, TUNABLES = "kernel/kernel.c", "kernel/tunables.toml"
START, START_TUNABLES = ((EXAMPLE / path).read_text() for path in (KERNEL, TUNABLES))
FASTER = (DECK / "kernel.c").read_text()
FASTER_TUNABLES = (
    (DECK / "tunables.toml")
    .read_text()
    .replace("value = 4", "value = 8")
    .replace("value = 1\n", "value = 4\n")
    .replace("false\n", "true\n", 1)
)  # several times as fast as the start with eight lanes, four vectors under way, and kept exponentials
CASES = ("n4096", "n1000")
MODELS = {"claude": "claude-sonnet-4-5", "gemini": "gemini-2.5-pro", "codex": "scripted"}
UNDER_V1 = ("codex", "opencode", "pi")
PRICE = {"input": 2.0, "cached": 0.5, "output": 8.0}
MOST_S = 600.0
GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


class Ran(Struct, frozen=True):
    """A run that has ended: how the command did, and what the ledger holds."""

    status: int
    output: str
    run: model.Run
    experiments: tuple[model.Experiment, ...]
    notes: tuple[model.Event, ...]
    ideas: tuple[model.Idea, ...]
    spent: tuple[float, int]

    def turns(self, name: str) -> list[model.TurnNote]:
        return [e.turn for e in self.notes if e.turn is not None and e.turn.proposer == name]

    def switches(self) -> list[tuple[str, str]]:
        return [(e.switch.proposer, e.switch.state) for e in self.notes if e.switch is not None]


class Stand:
    """A repository with the task in it."""

    def __init__(self, folder: Path, cache: Path) -> None:
        self.folder, self.cache = folder / "repository", cache
        self.task = self.folder / "softmax"
        left_out = shutil.ignore_patterns("deck", "baselines", "__pycache__", "ideas.md")
        shutil.copytree(EXAMPLE, self.task, ignore=left_out)
        (self.task / "task.toml").write_text(_shrunk((self.task / "task.toml").read_text()))
        for words in (("init", "-q", "-b", "main"), ("config", "user.name", "A User"), ("config", "user.email", "user@example.org")):
            self.git(*words)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a message that only history holds")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.folder, env=os.environ | GIT, check=True, capture_output=True, text=True)
        return done.stdout

    def run(self, proposer: str, agents: str, *options: str, environment: dict[str, str] | None = None) -> Ran:
        """`keepfast run softmax --proposer NAMES`, with the text of agents.toml. Skips where this machine cannot judge now."""
        file = self.folder.parent / "agents.toml"
        file.write_text(agents)
        given = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "KEEPFAST_AGENTS": str(file), "XDG_CACHE_HOME": str(self.cache)}
        argv = [sys.executable, "-m", "tests.agents.calmly", "run", str(self.task), "--proposer", proposer, *options]
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=os.environ | GIT | given | (environment or {}),
            capture_output=True,
            text=True,
            timeout=MOST_S,
            check=False,
        )
        if done.returncode == 5:
            pytest.skip(f"this machine is too busy to judge: {done.stderr[-300:]}")
        with Ledger.open(self.folder / ".keepfast", readonly=True) as ledger:
            run = ledger.latest()
            assert run is not None, done.stdout + done.stderr
            found = ledger.experiments(run.id)
            ran = Ran(
                done.returncode, done.stdout + done.stderr, run, found, ledger.notes(run.id), ledger.ideas(run.task), ledger.spent(run.id)
            )
        if why := next((e.verdict.detail for e in found if e.verdict.reason in UNSURE), ""):
            pytest.skip(f"this machine is too noisy to judge: {why}")
        return ran

    def kept(self, ran: Ran) -> str:
        """The kernel on the branch of keeps."""
        return self.git("show", f"keepfast/{ran.run.id}:softmax/{KERNEL}")


UNSURE = (model.Reason.MACHINE, model.Reason.AMBIGUOUS, model.Reason.NOT_CONFIRMED, model.Reason.CASE_LOSS)


def section(name: str, kind: str, server: ModelServer, **more: object) -> str:
    """A section of agents.toml: this CLI, at this server."""
    url = server.url + ("/v1" if kind in UNDER_V1 else "")
    fields = {"kind": kind, "model": MODELS.get(kind, "stub/scripted"), "base_url": url} | more
    lines = [f"{field} = {json.dumps(value)}" for field, value in fields.items()]
    price = ", ".join(f"{k} = {v}" for k, v in PRICE.items())
    return "\n".join((f"[{name}]", *lines, f"price = {{ {price} }}", "", ""))


def dollars(usage: Usage) -> float:
    """What the tokens cost by PRICE."""
    fresh = usage.input_tokens - usage.cached_tokens
    return (fresh * PRICE["input"] + usage.cached_tokens * PRICE["cached"] + usage.output_tokens * PRICE["output"]) / 1e6


def installed(name: str) -> str:
    """Skips without the CLI, or without a cage for it."""
    if shutil.which(name, path=agents_path()) is None:
        pytest.skip(f"`{name}` is neither in KEEPFAST_AGENTS_PATH nor on PATH")
    try:
        find_cage(agents_path())
    except MachineError as error:
        pytest.skip(error.what)
    return name


def _shrunk(toml: str) -> str:
    """The task with CASES alone."""
    head, *cases = toml.split("[[case]]\n")
    last, _, tail = cases[-1].partition("\n[goal]")
    kept = [c for c in (*cases[:-1], last) if any(c.startswith(f'name = "{name}"') for name in CASES)]
    return head + "".join(f"[[case]]\n{case.rstrip()}\n\n" for case in kept) + "[goal]" + tail
