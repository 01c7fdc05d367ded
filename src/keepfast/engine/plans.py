"""From `[engine]` and the kept files of one or several tasks to an engine that is ready to measure.

Owns the folder that a kernel runs from, and which arms there are. Must not know how an engine measures, nor what makes a proof.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from msgspec import Struct

from keepfast.engine.base import AGAIN, STOCK, Cell, Engine
from keepfast.engine.campaign import together_arm
from keepfast.engine.command import CommandArm, CommandEngine, CommandPlan
from keepfast.errors import TaskError
from keepfast.model import File, Task
from keepfast.model.task import Engine as Spec
from keepfast.task import tunables
from keepfast.task.paths import expand, unfit

if TYPE_CHECKING:
    from keepfast.engine.transformers import Arm


class Kernel(Struct, frozen=True):
    """A task's kept files in a folder of their own, and where in the model they go."""

    task: Task
    folder: str
    slot: str = ""
    only: str = ""


class Setting(Struct, frozen=True):
    """What an engine needs besides its kernels. `base`: what relative paths in `spec` are relative to. `keep`: a folder for the cells of
    proofs that do not come to their end."""

    spec: Spec
    base: Path
    env: Mapping[str, str]
    machine: str
    rng: Random
    said: Callable[[str], None] = lambda line: None
    keep: Path | None = None


Maker = Callable[[Setting, tuple[Kernel, ...]], Engine]


def cells(spec: Spec) -> tuple[Cell, ...]:
    return tuple(Cell(*cell) for cell in spec.cells)


def engine(setting: Setting, kernels: tuple[Kernel, ...]) -> Engine:
    """Stock and the kernel; of several kernels stock, each alone and all together; of none stock twice (A/A)."""
    arms = _arms(kernels)
    return _command(setting, arms) if setting.spec.kind == "command" else _transformers(setting, arms)


def _arms(kernels: tuple[Kernel, ...]) -> tuple[tuple[str, tuple[Kernel, ...]], ...]:
    if not kernels:
        return ((AGAIN, ()),)
    alone = tuple((k.task.name, (k,)) for k in kernels)
    return alone if len(kernels) == 1 else (*alone, (together_arm(tuple(name for name, _ in alone)), kernels))


def _transformers(setting: Setting, arms: tuple[tuple[str, tuple[Kernel, ...]], ...]) -> Engine:
    from keepfast.engine import transformers as t

    spec = setting.spec
    model = spec.model if not (setting.base / spec.model).is_dir() else str(setting.base / spec.model)
    fills_any = any(own for _, own in arms)
    opponents = spec.opponents if fills_any else ()  # none in an A/A
    fills = {name: tuple(t.fill(k.task, k.slot, tree=Path(k.folder), only=k.only, rows=_rows(k)) for k in own) for name, own in arms}
    plan = t.Plan(
        model=model,
        cells=cells(spec),
        arms=(t.Arm(STOCK), *(t.Arm(name, fills[name]) for name, _ in arms), *(_opponent(name) for name in opponents)),
        dtype=spec.dtype,
        device=spec.device,
        rounds=spec.rounds,
        steps=spec.steps,
        tokens=spec.tokens if fills_any else 1,  # an A/A is about time: its logits are not looked at
        attention=spec.attention,
        compile=spec.compile or None,
        float32=spec.float32 and fills_any,
        weights=spec.weights,
        skip=bool(opponents),  # one that cannot run is named in the notes
    )
    return t.TransformersEngine(
        plan, python=spec.python or sys.executable, limit_s=spec.limit_seconds, said=setting.said, keep=setting.keep
    )


def _rows(kernel: Kernel) -> int:
    """How many rows a product is given at most: what the task itself says, also in a campaign."""
    return kernel.task.engine.rows if kernel.task.engine is not None else 0


def _opponent(name: str) -> Arm:
    """`sdpa_gqa max-autotune`: the library's attention, and how it is compiled."""
    from keepfast.engine.transformers import Arm

    attention, _, mode = name.partition(" ")
    return Arm(name, attention=attention, compile=mode or None)


def _command(setting: Setting, arms: tuple[tuple[str, tuple[Kernel, ...]], ...]) -> Engine:
    spec = setting.spec
    if len(arms) > 1:
        step = 'kind = "transformers" puts several kernels in; a command can be given one at a time'
        raise TaskError("a command gets one kernel: what would put several in is not known", where="campaign", next_step=step)
    (name, own), env = arms[0], dict(setting.env) | dict(spec.env)
    patched = CommandArm(name, spec.patched_args, spec.patched_env, own[0].folder, own[0].task.name) if own else CommandArm(name)
    plan = CommandPlan(
        argv=spec.argv,
        cells=cells(spec),
        arms=(CommandArm(STOCK), patched),
        env=tuple(env.items()),
        server=spec.server,
        ready=spec.ready,
        model=spec.model,
        reader=spec.reader,
        engaged=spec.engaged,
        slot=spec.slot,
        device=spec.device,
        machine=setting.machine,
        limit_s=spec.limit_seconds,
        cwd=str(setting.base),
    )
    return CommandEngine(plan, rng=setting.rng, said=setting.said)


def lay(task: Task, files: tuple[File, ...], folder: Path) -> Path:
    """The kept files with what they read of the task's root, and the tunables as a module; `folder`. TaskError for an unfit path."""
    root = Path(task.root)
    beside = (*task.build.sources, *task.build.readable, *(f"{name.rstrip('/')}/**" for name in task.build.include if name != "."))
    others = tuple(File(p, (root / p).read_bytes()) for p in expand(root, beside) if not (root / p).is_symlink()) if beside else ()
    for file in (*others, *files):
        if why := unfit(file.path):
            raise TaskError(f"a kept file cannot be laid out: {why}", where=file.path, next_step="keepfast check")
        place = folder / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(file.data)
    text = next((f.data.decode() for f in files if task.tunables and f.path == task.tunables), "")
    (folder / "keepfast_tunables.py").write_text(tunables.python(tunables.parse(text)) if text else "")
    return folder
