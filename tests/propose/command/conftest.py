"""A fake CLI: a small Python script on a PATH of its own, told what to print and what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.model import File
from keepfast.propose.agent import Job, Limits, Page
from keepfast.propose.command import named
from keepfast.propose.command.agent import CommandAgent, Setup
from keepfast.propose.command.base import Options, Spec
from keepfast.propose.command.cage import Cage, Plain

RECORDED = Path(__file__).parent / "recorded"
EDIT = "open('kernel/kernel.c', 'w').write('int x; // NEW')"
SCRIPT = """\
#!{python} -IS
import os, subprocess, sys, time
if "--version" in sys.argv:
    open({folder!r} + "/asked", "a").write("x")
    print("fake 1.2.3 (Fake CLI)")
    sys.exit(0)
def show(name):
    sys.stdout.write(open({recorded!r} + "/" + name + ".jsonl").read())
    sys.stdout.flush()
{body}
"""

Fake = Callable[..., CommandAgent]


def job(**changes: object) -> Job:
    """A kernel to edit, a reference to read, one page."""
    known: dict[str, object] = {
        "files": (File("kernel/kernel.c", b"int x; // OLD\n"), File("kernel/build.sh", b"#!/bin/sh\n", executable=True)),
        "readable": (File("reference.py", b"ref"),),
        "brief": "Replace OLD by NEW.",
        "pages": (Page("card.md", "a page"),),
        "limits": Limits(seconds=20.0),
        "editable": ("kernel/**",),
    }
    return Job(**(known | changes))  # type: ignore[arg-type]


@pytest.fixture
def fake(tmp_path: Path) -> Fake:
    """fake(body, name): an agent whose CLI runs `body`. `spec`, `cage`, `options`, `environment` as in the agent."""

    def make(body: str, name: str = "claude", **given: object) -> CommandAgent:
        spec = given.get("spec") or named(name)
        assert isinstance(spec, Spec)
        program = tmp_path / "bin" / spec.program
        program.parent.mkdir(exist_ok=True)
        text = SCRIPT.format(python=sys.executable, folder=str(tmp_path), recorded=str(RECORDED), body=body)
        program.write_text(text, encoding="utf-8")
        program.chmod(0o755)
        environment: dict[str, str] = given.get("environment") or {}  # type: ignore[assignment]

        def seen(names: tuple[str, ...]) -> dict[str, str]:
            return {"PATH": f"{program.parent}:/usr/bin:/bin"} | {k: v for k, v in environment.items() if k in names}

        cage: Cage = given.get("cage") or Plain()  # type: ignore[assignment]
        options = given.get("options") or Options()
        assert isinstance(options, Options)
        price = given.get("price")
        return CommandAgent(spec, Setup(tmp_path / "run", cage, seen, price=price), options)  # type: ignore[arg-type]

    return make


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))
