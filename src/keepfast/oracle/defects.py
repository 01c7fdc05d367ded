"""What is weak about a KernelBench problem, in sentences: they are said when it is made a task, and change no verdict.

Must not know tasks, or how a problem was found.
"""

from __future__ import annotations

import ast
from typing import Any, Protocol

import torch

from keepfast.task.asked import Problem

UNFIT = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)  # what models raise for sizes that they cannot take
LATENCY_BYTES = 20 << 20  # a fast card moves so much in about 5 us, which is what launching a few kernels takes
LOOSE = 1e-2  # KernelBench's tolerance, absolute and relative
SPREAD = 1e-3  # of a result that hardly varies, relative to its size
MAKERS = ("rand", "randn", "randint", "rand_like", "randn_like", "ones", "zeros", "full", "empty", "arange", "linspace")
_OF = {
    "rand": "from 0 to 1: negative, large and equal values never come",
    "randn": "from one normal distribution: large values and rows of different size never come",
    "ones": "all ones",
    "zeros": "all zeros",
}


class Source(Protocol):
    """The file, as `problem.File` is one."""

    text: str

    def call(self, sizes: dict[str, int], *, evaluate: bool = False) -> Any: ...


def notes(file: Source, found: Problem, full: Any) -> tuple[str, ...]:
    said = [_alike(file.text), *_weights(found), _small(found), _mode(found), _inside(found), *_contents(file, found)]
    tolerance = f"KernelBench accepts what is off by {LOOSE:g} + {LOOSE:g} of a value (1e-4 in later versions): here docs/verdict.md holds"
    return tuple(note for note in (*said, _fixed(full), tolerance) if note)


def _alike(text: str) -> str:
    """Whether all inputs are drawn in one way."""
    body = next((n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"), None)
    calls = [n.func.attr for n in ast.walk(body) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)] if body else []
    makers = [name for name in calls if name in MAKERS]
    if not makers or len(set(makers)) > 1:
        return ""
    how = _OF.get(makers[0], f"made by torch.{makers[0]}")
    return f"all inputs are {how}. A kernel that is wrong elsewhere would pass: change inputs() in reference.py to what is used"


def _weights(found: Problem) -> list[str]:
    flat = [w.name for w in found.weights if w.constant]
    if not flat:
        return []
    names = ", ".join(f"`{name}`" for name in flat[:4]) + (", ..." if len(flat) > 4 else "")
    return [f"the constructor makes {names} the same every time (ones or zeros), so leaving it out would pass: inputs() adds noise"]


def _small(found: Problem) -> str:
    if not 0 < found.nbytes < LATENCY_BYTES:
        return ""
    size = f"{found.nbytes / (1 << 20):.1f} MiB"
    return f"a call moves {size} at least: launching takes as long as the work. Larger sizes tell more: --case"


def _mode(found: Problem) -> str:
    return "forward() draws random numbers in training mode (dropout), which nothing can be held against: eval mode here" * found.evaluate


def _inside(found: Problem) -> str:
    names = ", ".join(f"`{name}`" for name in found.inside[:4]) + (", ..." if len(found.inside) > 4 else "")
    return f"{names}: kept inside the model, given to no kernel and not compared" if found.inside else ""


def _fixed(full: Any) -> str:
    cpu = [t for t in full.inputs if isinstance(t, torch.Tensor)]
    return "get_inputs() makes its tensors on the CPU; here they are drawn on the GPU" if cpu else ""


def _contents(file: Source, found: Problem) -> list[str]:
    """What two draws of the small case show."""
    if not found.small:
        return []
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        try:
            results.append(file.call(dict(found.small), evaluate=found.evaluate).outputs)
        except UNFIT:
            return []
    return [note for i, (one, other) in enumerate(zip(*results, strict=True)) if (note := _looked(i, one, other))]


def _looked(number: int, one: torch.Tensor, other: torch.Tensor) -> str:
    which = f"output {number}"
    if not one.dtype.is_floating_point or not one.numel():
        return ""
    values, others = one.double(), other.double()
    if not bool(torch.isfinite(values).all()):
        return f"{which} has NaN or infinity, so this task will be refused: change inputs() in reference.py"
    size = float(values.abs().max())
    if torch.equal(values, others):
        return f"{which} is the same whatever the inputs are, so this task will be refused"
    if size < LOOSE:
        return f"{which} is below {LOOSE:g} everywhere: KernelBench would accept zeros. Here they fail"
    spread = float((values - others).abs().max())
    return f"{which} hardly depends on the inputs (it varies by {spread / size:.0e} of its size)" if spread < SPREAD * size else ""
