"""What only a process with torch can say of an operator or of a KernelBench problem: the records, and the asking.

The process is `python -m keepfast.oracle.schema`, or `.problem`: one record in, one out, as JSON. It runs the human's code. Must not
import torch.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

import keepfast
from keepfast import settings
from keepfast.errors import MachineError, UsageError

SECONDS = 600.0  # a problem may build a large model on the CPU
Answer = TypeVar("Answer", bound=Struct)


class AskSchema(Struct, frozen=True, tag=True):
    """`name` as in "torch.ops.aten.gelu". `imports`: modules that register operators."""

    name: str
    overload: str = ""
    imports: tuple[str, ...] = ()


class Schema(Struct, frozen=True):
    """`name` with its overload, "aten.gelu.default". `error`: a sentence, and `step` what to do."""

    name: str = ""
    schema: str = ""
    random: bool = False
    error: str = ""
    step: str = ""


class Value(Struct, frozen=True):
    """An argument of a trial call: a tensor when `dtype` is given, else `value`. `below`: whole numbers below it, 0 for any."""

    name: str
    positional: bool
    dtype: str = ""
    shape: tuple[int, ...] = ()
    below: int = 0
    value: bool | int | float | str | list[int] | None = None


class AskTrial(Struct, frozen=True, tag=True):
    name: str  # with its overload
    imports: tuple[str, ...]
    values: tuple[Value, ...]


class Trial(Struct, frozen=True):
    """`exact`: what gives a float64 answer: "op", "decomposition", or "" for nothing. `ran`: whether the call ran here at all.
    `error`: why the operator refuses the arguments."""

    exact: str = ""
    ran: bool = False
    error: str = ""


class AskProblem(Struct, frozen=True, tag=True):
    """`sizes`: axes of each case to try, by the names of whole numbers of the file. Without: what the file says, and one of odd sizes."""

    path: str
    timed: tuple[dict[str, int], ...] = ()
    odd: tuple[dict[str, int], ...] = ()


class Part(Struct, frozen=True):
    """An argument of forward(), or a weight. `dtype` "" for a number, whose `kind` is int, float, bool or str."""

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    kind: str = "tensor"
    constant: bool = False  # a weight that the constructor always makes the same


class Problem(Struct, frozen=True):
    """A KernelBench file as it was found. `axes`: whole numbers that may vary, with the file's values. `init`: get_init_inputs() as a
    literal. `small`: a case of odd sizes, where one works. `evaluate`: whether forward() draws random numbers unless it is in eval mode.
    `inside`: buffers that are no arguments. `numbers`: bytes of a call of the file's sizes, without what is inside, 0 if unknown."""

    axes: tuple[tuple[str, int], ...] = ()
    inputs: tuple[Part, ...] = ()
    weights: tuple[Part, ...] = ()
    outputs: int = 1
    init: str = "[]"
    small: tuple[tuple[str, int], ...] = ()
    evaluate: bool = False
    inside: tuple[str, ...] = ()
    nbytes: int = 0
    notes: tuple[str, ...] = ()
    error: str = ""
    step: str = ""


def ask(module: str, question: Struct, kind: type[Answer]) -> Answer:
    """One question to `python -m keepfast.oracle.MODULE`. MachineError without torch, UsageError with the last line of a failure."""
    if importlib.util.find_spec("torch") is None:
        raise MachineError("torch is not installed in this Python", next_step="pip install torch")
    path = os.pathsep.join([str(Path(keepfast.__file__).parents[1]), *_given()])
    env = settings.reference_environment(1) | {"PYTHONPATH": path}
    argv = [sys.executable, "-m", f"keepfast.oracle.{module}"]
    try:
        done = subprocess.run(argv, input=msgspec.json.encode(question), capture_output=True, check=False, env=env, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise UsageError(f"torch gave no answer within {SECONDS:.0f} s", next_step="Make its sizes smaller") from None
    if done.returncode == 0:
        return msgspec.json.decode(done.stdout, type=kind)
    words = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    raise UsageError(f"it could not be tried with torch: {words[-1][:300] if words else 'it said nothing'}")


def _given() -> tuple[str, ...]:
    found = settings.reference_environment(1).get("PYTHONPATH", "")
    return (found,) if found else ()
