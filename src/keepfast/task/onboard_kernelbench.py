"""`keepfast init NAME --kernelbench FILE`: a task around a KernelBench problem, and around a ModelNew that somebody wrote for it.

The problem is kept as it was, in frozen/; its weights become arguments, so that a kernel cannot have them before it is called. The
problem's file is run by another process; a ModelNew is only read.
"""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

from msgspec import Struct

from keepfast.errors import UsageError, nearest
from keepfast.task import asked, kernelbench_texts, newfolder, pysource, texts, torch_texts
from keepfast.task.asked import AskProblem, Part, Problem
from keepfast.task.file import NAME
from keepfast.task.given import Cases
from keepfast.task.kernelbench_texts import Call, Weight
from keepfast.task.newfolder import Made
from keepfast.task.places import FROZEN, REFERENCE
from keepfast.task.signature import parse, reserved

PROBLEM, MODEL = f"{FROZEN}/problem.py", "kernel/model.py"
_WHOLE = ("int64", "int32", "int16", "uint16", "uint32", "uint64", "bool")


class KernelBenchOrigin(Struct, frozen=True):
    """A problem, as the human types it on the command line."""

    problem: str
    candidate: str = ""
    cases: tuple[str, ...] = ()
    odd: tuple[str, ...] = ()
    language: str = ""  # of the start kernel; "" as the candidate is written, else torch


def files(origin: KernelBenchOrigin) -> Made:
    """Contents of every file of the task, by name, and what is weak about the problem."""
    path = newfolder.existing(origin.problem, "--kernelbench")
    text = _text(path)
    timed, odd = _said(origin.cases, "--case"), _said(origin.odd, "--odd")
    found = asked.ask("problem", AskProblem(str(path), timed, odd), Problem)
    if found.error:
        raise UsageError(found.error, where=str(path), next_step=found.step)
    cases, call = _cases(found, timed, odd), _call(found)
    candidate = newfolder.existing(origin.candidate, "--candidate") if origin.candidate else None
    source, model = (_text(candidate), "ModelNew") if candidate else (text, "Model")
    if candidate is not None and "ModelNew" not in pysource.classes(source, candidate):
        raise UsageError("no class `ModelNew` is defined", where=str(candidate), next_step="It is what KernelBench calls in place of Model")
    made = {
        NAME: _task(origin, path, (found, call, cases), source),
        REFERENCE: kernelbench_texts.reference(path.name, call, _noisy(found)),
        PROBLEM: text,
        MODEL: source,
        "kernel/kernel.py": kernelbench_texts.adapter(call, model),
        "baselines/eager.py": kernelbench_texts.baseline(text, call, compiled=False),
        "baselines/compile.py": kernelbench_texts.baseline(text, call, compiled=True),
    }
    return Made({name: contents.encode() for name, contents in made.items()}, found.notes)


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except (SyntaxError, ValueError) as problem:
        raise UsageError(f"not Python: {problem}", where=str(path)) from None
    return text


# --------------------------------------------------------------------------------------------- cases


def _said(said: tuple[str, ...], option: str) -> tuple[dict[str, int], ...]:
    """Each combination of what the options bind, which may be part of the axes."""
    if not said:
        return ()
    axes, rows = texts.cases(said, option)
    return tuple(dict(zip(axes, row, strict=True)) for row in rows)


def _cases(found: Problem, timed: tuple[dict[str, int], ...], odd: tuple[dict[str, int], ...]) -> Cases:
    """The axes that the file lets vary, with its own values where nothing else is said."""
    own = {name: value for name, value in found.axes if reserved(name) is None and name not in ("name", "weight", "use")}
    for row in (*timed, *odd):
        for name in row:
            if name not in own:
                step = f"Sizes that inputs have and the constructor does not take: {', '.join(own) or 'none'}"
                raise UsageError(f"`{name}` is no size that may vary.{nearest(name, tuple(own))}", where="--case", next_step=step)
    small = [dict(found.small)] if found.small and not odd else []
    return Cases(tuple(own), _rows(own, timed or ({},)), _rows(own, (*odd, *small)))


def _rows(own: dict[str, int], said: tuple[dict[str, int], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(dict.fromkeys(tuple(row.get(axis, value) for axis, value in own.items()) for row in said))


# --------------------------------------------------------------------------------------------- arguments


def _call(found: Problem) -> Call:
    """Names of the arguments: of forward(), then of the weights, each fit for C and Python and taken once."""
    taken = {name for name, _ in found.axes}
    inputs = tuple((_name(part.name, taken), part.name) for part in found.inputs)
    weights = tuple(Weight(_name(w.name.replace(".", "_"), taken), w.name) for w in found.weights)
    floats = [name for (name, _), part in zip(inputs, found.inputs, strict=True) if part.dtype and part.dtype not in _WHOLE]
    floats += [w.name for w in weights]
    tensors = [name for (name, _), part in zip(inputs, found.inputs, strict=True) if part.dtype] + [w.name for w in weights]
    if not tensors:
        raise UsageError("get_inputs() makes no tensor, and the model has no weights: there is nothing to compute with")
    kinds = tuple(part.kind for part in found.inputs)
    return Call(tuple(name for name, _ in inputs), kinds, weights, found.init, found.evaluate, tensors[0], floats[0] if floats else "")


def _name(name: str, taken: set[str]) -> str:
    plain = re.sub(r"\W", "_", name)
    while plain in taken or reserved(plain) is not None:
        plain += "_"
    taken.add(plain)
    return plain


def _noisy(found: Problem) -> frozenset[str]:
    return frozenset(w.name for w in found.weights if w.constant)


def _signature(path: Path, found: Problem, call: Call) -> str:
    kinds = {"tensor": "Tensor"}
    args = [f"{kinds.get(kind, kind)} {name}" for name, kind in zip(call.inputs, call.kinds, strict=True)]
    args += [f"Tensor {w.name}" for w in call.weights]
    name = re.sub(r"\W", "_", path.stem.lstrip("0123456789_")) or "model"
    outputs = "Tensor" if found.outputs == 1 else f"({', '.join(['Tensor'] * found.outputs)})"
    text = f"{name}({', '.join(args)}) -> {outputs}"
    return parse(text).text


def _task(origin: KernelBenchOrigin, path: Path, plan: tuple[Problem, Call, Cases], source: str) -> str:
    found, call, cases = plan
    written = pysource.language(source) if origin.candidate else "torch"
    languages = (origin.language,) if origin.language else tuple(dict.fromkeys((written, "torch")))
    roles = [(name, _role(part)) for name, part in zip(call.inputs, found.inputs, strict=True)]
    facts = torch_texts.Facts(
        title=f"KernelBench {path.stem}",
        signature=_signature(path, found, call),
        languages=languages,
        entry="kernel/kernel.py:kernel",
        cases=cases,
        over="baseline",
        roles=(*roles, *((w.name, "weight") for w in call.weights)),
        reduction=_reduction(found, cases),
        notes=found.notes,
    )
    return torch_texts.task_text(facts)


def _reduction(found: Problem, cases: Cases) -> str:
    """How many terms may be summed for one element: with weights, as many as the largest of them has for one of its rows."""
    terms = max((math.prod(w.shape[1:]) for w in found.weights), default=0)
    return f"max({', '.join((*cases.axes, str(terms)))})" if terms > 1 and cases.axes else str(terms) if terms > 1 else ""


def _role(part: Part) -> str:
    return "index" if part.dtype in _WHOLE else "input"
