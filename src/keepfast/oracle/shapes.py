"""`python -m keepfast.oracle.shapes < TASK`: the layout of every case, without a GPU and mostly without memory.

The human's functions are called with tensors that have a shape and no contents; where they want contents (`.item()`), with real ones
on the CPU. The task comes as msgpack, a Described goes to standard output likewise. For the compile gate; nothing it says is a verdict.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
from msgspec.structs import replace
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from keepfast.errors import KeepfastError
from keepfast.gpu.layout import Layout, Output
from keepfast.gpu.messages import Described
from keepfast.model import Case, Task
from keepfast.oracle import draws, tensors
from keepfast.oracle.reference import Reference, Values

SEED = (0, 0, 0, 0)  # contents do not matter, and two calls must agree


class Shapes(Reference):
    """A reference that may be given tensors without memory."""

    def _unfit(self, value: Any, declared: str) -> tuple[str, str] | None:
        if not isinstance(value, FakeTensor):
            return super()._unfit(value, declared)
        name = tensors.name_of(value.dtype)
        if name and declared in ("", name):
            return None
        return f"has dtype {name or value.dtype}, [arguments] says {declared or 'nothing'}; keepfast never casts", "see docs/tasks.md"


def layouts(task: Task) -> tuple[Layout, ...]:
    """One a case. A case for which reference() wants contents has the outputs of the smallest case: their types are right."""
    reference = Shapes(task, "cpu")
    found = {case.name: _layout(reference, case) for case in task.cases}
    lacking = [name for name, layout in found.items() if task.signature.outputs and not layout.outputs]
    if lacking:
        smallest = min(task.cases, key=lambda case: found[case.name].set_bytes)
        known = found[smallest.name].outputs or _on_cpu(reference, smallest)
        found |= {name: replace(found[name], outputs=known) for name in lacking}
    return tuple(found.values())


def _layout(reference: Reference, case: Case) -> Layout:
    """Without outputs where reference() wants contents."""
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            values = reference.inputs(case, SEED)
            return draws.layout_of(reference.task, case, values, _outputs(reference, values))
    except RuntimeError:  # of torch: inputs() wants contents
        return draws.layout_of(reference.task, case, reference.inputs(case, SEED), ())


def _on_cpu(reference: Reference, case: Case) -> tuple[Output, ...]:
    return _outputs(reference, reference.inputs(case, SEED))


def _outputs(reference: Reference, values: Values) -> tuple[Output, ...]:
    """None where reference() needs a GPU, as frozen kernels do, each in its own words: what compiles is found without them."""
    try:
        return draws.outputs_of(reference.task, reference.working(values))
    except RuntimeError:
        return ()
    except KeepfastError:
        raise
    except Exception:  # the human's code may raise anything
        if reference.task.oracle != "frozen":
            raise
        return ()


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)  # what reference.py prints is no result of ours
    task = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Task)
    with open(out, "wb") as file:
        file.write(msgspec.msgpack.encode(Described(layouts(task))))


if __name__ == "__main__":
    main()
