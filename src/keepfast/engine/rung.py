"""The engine proof as a rung behind a keep: the kept files and the task in, a `Proof` out, and how it is written down.

Owns when a proof is due, and the order of one. Must not know the loop. The caller holds the ledger and the machine.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from keepfast.engine import plans
from keepfast.engine.amdahl import Micro
from keepfast.engine.base import Account
from keepfast.engine.noise import Floors, Noise, floors
from keepfast.engine.plans import Kernel, Maker, Setting
from keepfast.engine.proof import Bounds, prove
from keepfast.model import Estimate, Event, File, Task
from keepfast.model.proof import Proof, Together
from keepfast.model.task import Engine as Spec
from keepfast.task.engine import unfit

if TYPE_CHECKING:
    from keepfast.ledger import Ledger

EVENT, AA = "e2e", "aa"
Known = Callable[[Account], Floors]
"""What was measured of stock against stock, in the setting of an account."""


def due(task: Task, keeps: int) -> bool:
    """Whether the newest of `keeps` keeps of a run has to be proven, as `[engine] every` says."""
    return task.engine is not None and task.engine.every > 0 and keeps > 0 and keeps % task.engine.every == 0


def unknown(account: Account) -> Floors:
    """Where there is no ledger to ask."""
    return Floors()


def bounds(spec: Spec, noise: Floors = Floors()) -> Bounds:  # noqa: B008  frozen
    named = tuple(cell.name for cell in plans.cells(spec)) if spec.kind == "transformers" else ()
    return Bounds(worst_cell=spec.worst_cell, memory=spec.memory, cells=named, unshown=spec.unshown, opponents=spec.opponents, noise=noise)


class Ways(Struct, frozen=True):
    """How a proof gets its engine, and what it knows of stock against stock."""

    make: Maker = plans.engine
    known: Known = unknown


def proven(task: Task, files: tuple[File, ...], micro: Estimate | None, setting: Setting, ways: Ways = Ways()) -> Proof:  # noqa: B008  frozen
    """Stock against these files in the engine of the task. Takes minutes, and the card.

    MachineError when the engine cannot run here, TaskError when the task's signature does not fit its slot: neither is a verdict on the
    kernel. One that does not load, or crashes, is refused.
    """
    spec = unfit(task.engine, task.folder)
    with tempfile.TemporaryDirectory(prefix="keepfast-kernel-") as place:
        kernel = Kernel(task, str(plans.lay(task, files, Path(place))), spec.slot, spec.only)
        account = ways.make(setting, (kernel,)).account(spec.rounds)
    return prove(account, bounds(spec, ways.known(account)), (Micro(task.name, micro),) if micro is not None else (), task.name)


def remember(ledger: Ledger, found: Noise) -> None:
    """Stock against stock as an artifact, and an event of no run that names it in `about`."""
    name = ledger.put_artifact(msgspec.json.encode(found))
    ledger.add_event("", Event(AA, f"stock against stock, {len(found.spreads) - 1} cells", about=name))


def known(ledger: Ledger, account: Account) -> Floors:
    """What was measured of stock against stock in the setting of this account."""
    names = [note.event.about for note in ledger.events("") if note.event.kind == AA and note.event.about]
    return floors(account, [msgspec.json.decode(ledger.artifact(name), type=Noise) for name in names])


def write_down(ledger: Ledger, run_id: str, n: int, proof: Proof | Together) -> str:
    """The proof as an artifact, and an event that names it in `about`; the artifact's name. `n`: the experiment that was proven."""
    name = ledger.put_artifact(msgspec.json.encode(proof))
    said = proof.reasons[0].said if isinstance(proof, Proof) and proof.reasons else ""
    ledger.add_event(run_id, Event(EVENT, f"{proof.outcome.value}: {said}" if said else proof.outcome.value, n=n, about=name))
    return name
