"""Everything a judgement needs, set up in one place: repository, task, walls, machine, judge.

Owns the order of setting up and what is torn down at the end. `run.py` tells the stories; this makes the things.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast import native
from keepfast.device import cpu
from keepfast.errors import MachineError, UsageError
from keepfast.judge.contents import Library
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.model import Event, Machine, Task
from keepfast.options import RunOptions
from keepfast.repo import Repo
from keepfast.task.checks import refuse_on_cpu
from keepfast.task.load import load
from keepfast.walls.base import Walls

Emit = Callable[[Event], None]
Known = Callable[[str], int | None]
DEFAULT = RunOptions()


class Shop(Struct, frozen=True):
    """What is set up before anything is judged."""

    repo: Repo
    task: Task
    walls: Walls
    machine: Machine
    library: Library


def task_folder(name: Path) -> Path:
    """A task given as a folder, or by its name under tasks/ or examples/cpu/ of this repository."""
    for place in (name, Path("tasks") / name, Path("examples/cpu") / name):
        if (place / "task.toml").is_file():
            return place.resolve()
    raise UsageError(f"no task at `{name}`: no task.toml there", next_step=f"keepfast init {name.name or 'NAME'}   makes one")


def open_shop(folder: Path, options: RunOptions = DEFAULT) -> Shop:
    """Load and validate the task, find its repository, detect walls, compile our helpers. Measures nothing."""
    task = with_options(load(task_folder(folder)), options)
    refuse_on_cpu(task)
    available = len(os.sched_getaffinity(0))
    if task.threads > available:
        raise MachineError(
            f"the task wants {task.threads} threads, this process may use {available} cores", where=f"{folder}/task.toml: threads"
        )
    native.compiler()  # MachineError now, not when the first kernel is built
    walls = detect_walls(options)
    return Shop(Repo.find(Path(task.folder)), task, walls, cpu.fingerprint(walls.strength), Library())


def with_options(task: Task, options: RunOptions) -> Task:
    """Budgets and goal of the command line in place of the task's."""
    given = {k: v for k in ("experiments", "hours", "dry") if (v := getattr(options, k)) is not None}
    task = replace(task, budget=replace(task.budget, **given))
    return replace(task, goal=replace(task.goal, speedup=options.goal)) if options.goal is not None else task


def detect_walls(options: RunOptions) -> Walls:
    """The walls wanted; without any, only with --trust-candidate."""
    walls = Walls.detect(options.walls)  # type: ignore[arg-type]  # one of options.WALLS, checked by the command line
    if walls.strength == "none" and not options.trust_candidate:
        raise UsageError(
            "this machine has no walls: candidates would run with your rights",
            next_step="keepfast doctor   says what is missing;   --trust-candidate   if you wrote every candidate yourself",
        )
    return walls


def measured(shop: Shop) -> Shop:
    """The shop with the machine's ceilings measured (about a second)."""
    return replace(shop, machine=replace(shop.machine, ceilings=cpu.ceilings(shop.library, shop.task.threads)))


def fresh() -> Random:
    """A generator for contents and orders, from 128 bits that nobody outside this process knows."""
    return Random(secrets.randbits(128))


@contextmanager
def judge(shop: Shop, emit: Emit, known_code: Known) -> Iterator[CpuJudge]:
    """The judge for this task on this machine; its builds are gone afterwards."""
    builds = shop.walls.folder()
    try:
        yield CpuJudge(Bench(shop.task, shop.walls, shop.machine, shop.library, builds, known_code, emit, fresh()))
    finally:
        shutil.rmtree(builds, ignore_errors=True)
