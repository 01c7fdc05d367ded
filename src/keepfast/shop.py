"""Everything a judgement needs, set up in one place: repository, task, walls, machine, judge.

Owns the order of setting up and what is torn down at the end. `run.py` tells the stories; this makes the things.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from keepfast import native, settings
from keepfast.device import cpu, nvidia
from keepfast.errors import MachineError, UsageError
from keepfast.judge.builder import Site
from keepfast.judge.contents import Library
from keepfast.judge.endings import Failure
from keepfast.judge.judge import Bench, CpuJudge
from keepfast.judge.ladder import Ladder
from keepfast.model import Candidate, Event, Machine, Reason, Task, Verdict
from keepfast.options import RunOptions
from keepfast.repo import Repo
from keepfast.task.checks import refuse_unfit
from keepfast.task.load import load
from keepfast.walls.base import Walls

if TYPE_CHECKING:
    from keepfast.judge.gpu.judge import GpuJudge
    from keepfast.station import Station

Emit = Callable[[Event], None]
Known = Callable[[str], int | None]
DEFAULT = RunOptions()


class Shop(Struct, frozen=True):
    """What is set up before anything is judged."""

    repo: Repo
    task: Task
    walls: Walls
    machine: Machine
    library: Library | None  # our C helpers, for a task of the CPU judge
    station: Station | None = None  # the card, for one of the GPU judge


def task_folder(name: Path) -> Path:
    """A task given as a folder, or by its name under tasks/ or examples/ of this repository."""
    for place in (name, Path("tasks") / name, Path("examples/cpu") / name, Path("examples/gpu") / name):
        if (place / "task.toml").is_file():
            return place.resolve()
    raise UsageError(f"no task at `{name}`: no task.toml there", next_step=f"keepfast init {name.name or 'NAME'}   makes one")


def load_task(folder: Path, options: RunOptions = DEFAULT) -> Task:
    """The task, validated, with the options' goal and budget."""
    task = with_options(load(task_folder(folder)), options)
    refuse_unfit(task)
    return task


def open_shop(folder: Path, options: RunOptions = DEFAULT) -> Shop:
    """Load and validate the task, find its repository, detect walls, compile our helpers. Measures nothing."""
    task = load_task(folder, options)
    native.compiler()  # MachineError now, not when the first kernel is built
    return _gpu(task, options) if task.gpu else _cpu(task, options)


def _cpu(task: Task, options: RunOptions) -> Shop:
    available = len(os.sched_getaffinity(0))
    if task.threads > available:
        what = f"the task wants {task.threads} threads, this process may use {available} cores"
        raise MachineError(what, where=f"{task.folder}/task.toml: threads")
    walls = detect_walls(options)
    return Shop(Repo.find(Path(task.folder)), task, walls, cpu.fingerprint(walls.strength), Library())


def _gpu(task: Task, options: RunOptions) -> Shop:
    """The card is chosen, and refused with what to do, before anything is started on it."""
    from keepfast.station import Station

    card = nvidia.choose(settings.visible_gpu() or None)
    walls = detect_walls(options)
    machine = nvidia.fingerprint(walls.strength, card.uuid)
    return Shop(Repo.find(Path(task.folder)), task, walls, machine, None, Station(task, walls, card))


def lack_of_gpu() -> str:
    """Why no GPU task can be judged here, or ""."""
    try:
        nvidia.choose(settings.visible_gpu() or None)
    except MachineError as error:
        return error.text()
    return ""


def compiled(task: Task, candidate: Candidate, options: RunOptions, why: str) -> Verdict:
    """The verdict where there is no GPU: a candidate that does not compile is refused, any other is void, for nothing was timed."""
    from keepfast.judge.gate import described, gate

    walls = detect_walls(options)
    ladder = Ladder(walls.strength, lambda event: None)
    found = gate(Site(walls, options.arch), task, candidate.files, described(task))
    if isinstance(found, Failure):
        return ladder.fail("build", found)
    ladder.rung("build", True, found)
    said = found[0].value.replace("nothing was timed", "nothing was run or timed")
    return ladder.end(Reason.MACHINE, f"it {said}: {why.splitlines()[0]}")


def with_options(task: Task, options: RunOptions) -> Task:
    """Budgets and goal of the command line in place of the task's."""
    given = {k: v for k in ("experiments", "hours", "dry", "dollars") if (v := getattr(options, k)) is not None}
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
    """The shop with the machine's ceilings measured (seconds)."""
    if shop.station is not None:
        return replace(shop, machine=replace(shop.machine, ceilings=shop.station.ceilings()))
    assert shop.library is not None
    return replace(shop, machine=replace(shop.machine, ceilings=cpu.ceilings(shop.library, shop.task.threads)))


def fresh() -> Random:
    """A generator for contents and orders, from 128 bits that nobody outside this process knows."""
    return Random(secrets.randbits(128))


@contextmanager
def judge(shop: Shop, emit: Emit, known_code: Known) -> Iterator[CpuJudge | GpuJudge]:
    """The judge for this task on this machine; its builds are gone afterwards."""
    builds = shop.walls.folder()
    try:
        if shop.station is not None:
            with closing(_gpu_judge(shop, shop.station, builds, (emit, known_code))) as made:
                yield made
        else:
            assert shop.library is not None
            yield CpuJudge(Bench(shop.task, shop.walls, shop.machine, shop.library, builds, known_code, emit, fresh()))
    finally:
        shutil.rmtree(builds, ignore_errors=True)


def _gpu_judge(shop: Shop, at: Station, builds: Path, heard: tuple[Emit, Known]) -> GpuJudge:
    from keepfast.judge.gpu.judge import GpuBench, GpuJudge

    emit, known = heard
    parts = (at, at.pool, at.launchers, at.oracle)
    return GpuJudge(GpuBench(shop.task, shop.walls, shop.machine, *parts, builds, known, emit, fresh()))
