"""The story: the plan's model, each cell made ready, every arm captured, held against stock, timed in interleaved rounds, and profiled.

One model object for all arms; a cell's graphs are dropped before the next cell. Must not know slots from the inside.
"""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import transformers
from msgspec import Struct

from keepfast.engine import torch_model as models
from keepfast.engine.base import Account, Cell, Graphs, Lap, Likeness, Planted, Slot, runs
from keepfast.engine.shelf import Shelf
from keepfast.engine.torch_cells import ROOMS, Room
from keepfast.engine.torch_graph import Backend, backend
from keepfast.engine.torch_probe import probe
from keepfast.engine.torch_seat import Broke, Tally
from keepfast.engine.torch_slots import Wardrobe
from keepfast.engine.transformers import Plan
from keepfast.errors import MachineError

Said = Callable[[str], None]


class CellAccount(Struct, frozen=True):
    laps: tuple[Lap, ...] = ()
    graphs: tuple[Graphs, ...] = ()
    likeness: tuple[Likeness, ...] = ()
    planted: tuple[Planted, ...] = ()
    peaks: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


class Standing(Struct, frozen=True):
    """A cell that was measured, and which arms had ended by then, with why."""

    cell: CellAccount
    crashed: dict[str, str]
    dropped: tuple[tuple[str, str], ...]


class Watch:
    """Says what was done and how many seconds it took: minutes of a card are dear."""

    def __init__(self, said: Said) -> None:
        self.said, self.since = said, time.monotonic()

    def __call__(self, what: str) -> None:
        now = time.monotonic()
        self.said(f"{what}, {now - self.since:.1f} s")
        self.since = now


def account(plan: Plan, said: Said, worn: Said = lambda arm: None, kept: Path | None = None) -> Account:
    """MachineError when the machine cannot do it, TaskError when a slot does not fit: before anything is measured. `worn` is told of
    each arm before its code runs. A kernel that leaves nothing to go on with ends it early: the account is then of what there is.
    `kept`: the folder of cells that were measured before an earlier account of this plan was interrupted; new ones are put there."""
    run_on, watch = _device(plan), Watch(said)
    if plan.threads:
        torch.set_num_threads(plan.threads)
    with torch.no_grad():
        models.refuse_what_does_not_fit(models.load(plan, "meta"), plan, run_on.free())
        model = models.load(plan, plan.device)
        title, machine = models.title(plan, model), _machine(plan)
        watch(f"{title} on {plan.device}")
        wardrobe = Wardrobe(model, plan, Tally(timed=plan.device == "cpu"), worn)
        probe(model, wardrobe)
        watch("kernels loaded, slots fit")
        found = _cells(plan, wardrobe, run_on, watch, Shelf(kept, (("machine", machine), *_versions())))
    return _put_together(plan, wardrobe, found, (title, machine))


def _cells(plan: Plan, wardrobe: Wardrobe, run_on: Backend, watch: Watch, shelf: Shelf) -> list[CellAccount]:
    found: list[CellAccount] = []
    if wardrobe.patched and set(wardrobe.patched) <= set(wardrobe.crashed):  # nothing is left to be held against stock
        return found
    try:
        for number, cell in enumerate(plan.cells):
            watch.said(f"{cell.name} ({number + 1} of {len(plan.cells)})")
            if (before := _before(cell, wardrobe, watch, shelf)) is not None:
                found.append(before)
                continue
            found.append(_cell(cell, plan, wardrobe, run_on, watch))
            shelf.put(cell.name, Standing(found[-1], wardrobe.crashed, tuple(wardrobe.dropped)))
            torch._dynamo.reset()
            run_on.tidy()
    except Broke as error:
        watch(f"ended: {error.what}")
    return found


def _before(cell: Cell, wardrobe: Wardrobe, watch: Watch, shelf: Shelf) -> CellAccount | None:
    """The cell as an earlier account measured it before it was interrupted."""
    found = shelf.find(cell.name, Standing)
    if found is None:
        return None
    standing, age = found
    wardrobe.crashed.update(standing.crashed)
    wardrobe.dropped += [one for one in standing.dropped if one not in wardrobe.dropped]
    watch.said(f"  as it was measured {age / 60:.0f} minutes ago, before the proof was interrupted")
    return standing.cell


def _device(plan: Plan) -> Backend:
    if plan.device == "cuda" and not torch.cuda.is_available():
        step = 'keepfast doctor, or device = "cpu"'
        raise MachineError(f"torch {torch.__version__} sees no CUDA card", where="engine transformers", next_step=step)
    torch._dynamo.config.recompile_limit = 64  # arms share the code of the model's functions
    return backend(plan.device)


def _machine(plan: Plan) -> str:
    return torch.cuda.get_device_name() if plan.device == "cuda" else platform.processor() or platform.machine()


def _cell(cell: Cell, plan: Plan, wardrobe: Wardrobe, run_on: Backend, watch: Watch) -> CellAccount:
    """Each arm of one cell. Likeness comes first: what does not compute the same is not worth a clock, but is said all the same. The
    profile comes last: a profiler that was there once may cost every launch after it something."""
    room = ROOMS[cell.phase](cell, plan, wardrobe, run_on)
    watch("  cache filled, stock in float32")
    standing = [arm for arm in wardrobe.dresses if arm not in wardrobe.crashed]
    peaks = [(arm, peak) for arm in standing for peak in room.tried(arm, lambda arm=arm: (room.peak(arm),)) or ()]  # type: ignore[misc]
    watch("  every arm called")
    for arm, _ in peaks:
        room.tried(arm, lambda arm=arm: room.capture(arm))  # type: ignore[misc]
        watch(f"  {arm} captured")
    likeness = tuple(room.likeness())
    watch("  likeness")
    planted = tuple(room.sensitivity())
    watch(f"  {len(planted)} planted faults")
    laps = tuple(lap for number in range(plan.rounds) for lap in _round(room, number))
    watch(f"  {plan.rounds} rounds")
    notes: list[str] = []
    graphs = tuple(g for arm in list(room.runs) if (g := room.tried(arm, lambda arm=arm: _graphs(room, arm, notes))))  # type: ignore[misc]
    watch("  profiles")
    return CellAccount(laps, graphs, likeness, planted, tuple((arm, peak) for arm, peak in peaks if peak is not None), tuple(notes))


def _graphs(room: Room, arm: str, notes: list[str]) -> Graphs | None:
    """None, with a note, where the profiler saw nothing: laps and logits are not lost for it, and graphs are not shown."""
    try:
        ran = room.profile(arm)
    except MachineError as error:
        notes.append(f"no profile of {arm} at {room.cell.name}: {error.what}; {error.next_step}")
        return None
    return Graphs(room.cell.name, arm, ran.share, ran.launches, ran.seconds)


def _round(room: Room, number: int) -> Iterator[Lap]:
    """Every arm once, in an order drawn for this round."""
    arms = list(room.runs)
    for arm in random.Random(f"{room.plan.seed} {room.cell.name} {number}").sample(arms, len(arms)):
        if times := room.tried(arm, lambda arm=arm: room.lap(arm)):  # type: ignore[misc]
            yield Lap(room.cell.name, arm, number, statistics.median(times), len(times))


# --------------------------------------------------------------------------------------------- the account


def _put_together(plan: Plan, wardrobe: Wardrobe, cells: list[CellAccount], about: tuple[str, str]) -> Account:
    """`about`: title of the model, and the machine. Asks nothing of a card, which may compute no more."""
    graphs = tuple(g for c in cells for g in c.graphs)
    peaks = {arm.name: max(found) for arm in plan.arms if (found := [b for c in cells for name, b in c.peaks if name == arm.name])}
    return Account(
        engine="transformers",
        model=about[0],
        machine=about[1],
        versions=_versions(),
        settings=_settings(plan),
        arms=wardrobe.named,
        cells=plan.cells,
        slots=_slots(plan, wardrobe, graphs),
        laps=tuple(lap for c in cells for lap in c.laps),
        graphs=graphs,
        likeness=tuple(alike for c in cells for alike in c.likeness),
        planted=tuple(one for c in cells for one in c.planted),
        peak_bytes=tuple(peaks.items()),
        notes=(
            *(f"{arm}: {what}" for arm, what in wardrobe.crashed.items()),
            *(note for c in cells for note in c.notes),
            *_notes(plan),
            *(f"arm {arm} left out: {why}" for arm, why in wardrobe.dropped),
        ),
    )


def _slots(plan: Plan, wardrobe: Wardrobe, graphs: tuple[Graphs, ...]) -> tuple[Slot, ...]:
    """Each filled slot once. Without a card its name stands for its kernels; with one, those Triton functions that were launched,
    or all of them when none was: then the proof says that the kernel never ran."""
    seen: dict[tuple[str, str], Slot] = {}
    for dress in wardrobe.dresses.values():
        launched = [name for g in graphs if g.arm == dress.arm.name for name, _ in g.launches]
        for seat in dress.seats:
            kernels = seat.entry.kernels if plan.device == "cuda" else (seat.fill.slot,)
            ran = tuple(k for k in kernels if any(runs(k, name) for name in launched))
            seen[(seat.fill.slot, seat.fill.task)] = Slot(seat.fill.slot, seat.fill.task, ran or kernels, seat.expected)
    return tuple(seen.values())


def _versions() -> tuple[tuple[str, str], ...]:
    found = [("python", platform.python_version()), ("torch", str(torch.__version__)), ("transformers", transformers.__version__)]
    if torch.version.cuda:
        found.append(("cuda", torch.version.cuda))
    try:
        import triton
    except ImportError:
        return tuple(found)
    return (*found, ("triton", triton.__version__))


def _settings(plan: Plan) -> tuple[tuple[str, str], ...]:
    """What makes two accounts comparable."""
    shown = ("model", "dtype", "device", "attention", "compile", "steps", "tokens", "fill", "weights", "seed", "threads")
    own = [(f"arm {a.name}", f"attention {a.attention or plan.attention}, compile {a.compile or plan.compile}") for a in plan.arms]
    return (*((name, str(getattr(plan, name))) for name in shown), *own)


def _notes(plan: Plan) -> tuple[str, ...]:
    found = []
    if plan.device == "cpu":
        found.append("no graphs on a CPU: steps are called one by one, and `graphs` counts calls of slots")
    if any((arm.attention or plan.attention) == "sdpa_gqa_exact" for arm in plan.arms):
        found.append("sdpa_gqa_exact: a decode graph that is right for one length only; likeness is taken at that length")
    return tuple(found)
