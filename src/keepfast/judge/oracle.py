"""The reference worker: the human's reference.py in a process of its own, run as `python oracle.py`, one batch and out.

Reads one request from the channel, answers one message a job, exits. Holds answers, so it is never alive while a subject
runs. Must not know candidates, clocks or verdicts.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import socket
from types import ModuleType
from typing import Any

import msgspec
import numpy as np

from keepfast import wire
from keepfast.errors import KeepfastError, TaskError
from keepfast.judge import sets
from keepfast.judge.oracle_records import Answer, Job, Piece, Request
from keepfast.model import Arg, Case, Signature, Task
from keepfast.task.reference import CaseView, load_module


def inputs_of(module: ModuleType, task: Task, case: Case, seed: tuple[int, ...]) -> dict[str, Any]:
    """Call inputs(case, rng) and hold it to the signature: names, order, kinds, declared dtypes. Never casts."""
    maker = getattr(module, "inputs", None)
    if maker is None:
        raise TaskError("reference.py has no inputs(case, rng)", where="reference.py", next_step="see docs/tasks.md")
    made = maker(CaseView(case), np.random.default_rng(list(seed)))
    names = [a.name for a in task.signature.args]
    if not isinstance(made, Mapping):
        what, step = f"inputs() returned a {type(made).__name__}", f"return a dict with {', '.join(names)}"
        raise TaskError(what, where=f"reference.py, case {case.name}", next_step=step)
    values = {str(name): value for name, value in made.items()}
    for arg in task.signature.args:
        if arg.name not in values and arg.has_default:
            values[arg.name] = arg.default
    if sorted(values) != sorted(names):
        what = f"inputs() returned {sorted(values)}, the signature has {sorted(names)}"
        raise TaskError(what, where=f"reference.py, case {case.name}", next_step="let inputs() return exactly the arguments, by name")
    return {name: _checked(task, case, name, values[name]) for name in names}


def _checked(task: Task, case: Case, name: str, value: Any) -> Any:
    arg = next(a for a in task.signature.args if a.name == name)
    if value is None and arg.optional:
        return None
    if why := _unfit(arg, value, task.argument(name).dtype):
        raise TaskError(why[0], where=f"reference.py, case {case.name}, `{name}`", next_step=why[1])
    return value


KINDS: dict[str, tuple[type, ...]] = {
    "int": (int, np.integer),
    "float": (float, int, np.floating),
    "bool": (bool, np.bool_),
    "str": (str,),
}


def _unfit(arg: Arg, value: Any, declared: str) -> tuple[str, str] | None:
    """What is wrong with an argument's value, and what to do about it."""
    if value is None:
        return "is None, but the signature does not say `?`", "return a value, or make it optional in the signature: `Tensor? bias`"
    if arg.kind != "tensor":
        fits = isinstance(value, KINDS[arg.kind])
        return None if fits else (f"is a {type(value).__name__}, the signature says {arg.kind}", f"return a Python {arg.kind}")
    if type(value) is not np.ndarray:
        return f"is a {type(value).__name__}, not a NumPy array", "return np.array(...) of the element type that the kernel gets"
    if declared and str(value.dtype) != declared:
        what = f"has dtype {value.dtype}, [arguments] says {declared}; keepfast never casts"
        return what, f"draw it as {declared}, or change [arguments]"
    return None


def widen(value: Any) -> Any:
    """A private copy, floating arrays in float64; strides do not matter to a reference."""
    if type(value) is not np.ndarray:
        return value
    return value.astype(np.float64) if value.dtype.kind == "f" else value.copy()


def copy(value: Any) -> Any:
    return value.copy() if type(value) is np.ndarray else value


def results_of(module: ModuleType, sig: Signature, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Call reference() and name what it returned: written arguments first, then outputs."""
    raw = module.reference(**values)
    parts = [] if raw is None else list(raw) if isinstance(raw, tuple | list) else [raw]
    outputs, written = [r.name for r in sig.outputs], [a.name for a in sig.written]
    if len(parts) == len(outputs) and written:
        parts = [values[name] for name in written] + parts
    if len(parts) != len(written) + len(outputs):
        raise TaskError(
            f"reference() returned {len(parts)} arrays, the signature has {len(written)} written arguments and {len(outputs)} outputs",
            where="reference.py",
            next_step="return the new values of the `!` arguments in schema order, then the outputs",
        )
    return {name: np.asarray(part) for name, part in zip(written + outputs, parts, strict=True)}


def frozen_results(
    library: str, task: Task, case: Case, values: Mapping[str, Any], shapes: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the frozen kernel computes for these inputs: called through the same entry as a candidate."""
    import ctypes

    layout, words = sets.plan(task.signature, case, values, shapes)
    in_image, out_image = sets.images(task.signature, layout, values)
    base = {"in": in_image.ctypes.data, "out": out_image.ctypes.data}
    call = (ctypes.c_uint64 * len(words))(*[w.value + base[w.kind] if w.kind in base else w.value for w in words])
    code = int(ctypes.CDLL(library).keepfast_call(call))
    if code != 0:
        step = "inputs() must draw what the kernel can compute; an adapter whose function returns a result, and no error code, returns 0"
        raise TaskError(f"the frozen kernel returned {code}", where=f"frozen oracle, case {case.name}", next_step=step)
    return {name: sets.view(out_image, layout.slot(name)).copy() for name in task.signature.results}


class Oracle:
    """Answers for one task: `both` gives results at working precision and in float64."""

    def __init__(self, request: Request) -> None:
        self.task, self.frozen = request.task, request.frozen
        self.module = load_module(Path(request.task.folder) / "reference.py")

    def both(self, case: Case, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        sig = self.task.signature
        if self.frozen:
            found = frozen_results(self.frozen, self.task, case, values, self.outputs(case, values))
            return found, {k: widen(v) for k, v in found.items()}
        working = results_of(self.module, sig, {k: copy(v) for k, v in values.items()})
        _hold_to_dtypes(self.task, working)
        exact = results_of(self.module, sig, {k: widen(v) for k, v in values.items()})
        for name, array in exact.items():
            if array.dtype.kind == "f" and array.dtype != np.float64:
                raise TaskError(
                    f"reference() was given float64 and returned {array.dtype} for `{name}`",
                    where="reference.py",
                    next_step="compute in the dtype of the arguments: no .astype(np.float32) inside",
                )
        return working, exact

    def outputs(self, case: Case, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Arrays with the shapes and dtypes of fresh outputs; their contents mean nothing."""
        sig = self.task.signature
        if not sig.outputs:
            return {}
        if self.task.oracle == "frozen":
            return dict(self.module.outputs(CaseView(case)))
        working = results_of(self.module, sig, {k: copy(v) for k, v in values.items()})
        return {r.name: working[r.name] for r in sig.outputs}


def _hold_to_dtypes(task: Task, working: Mapping[str, np.ndarray]) -> None:
    for name, array in working.items():
        declared = task.argument(name).dtype
        if declared and str(array.dtype) != declared:
            what = f"reference() returned {array.dtype} for `{name}`, [arguments] says {declared}; keepfast never casts"
            raise TaskError(what, where="reference.py", next_step="compute in the dtype of the arguments, or change [arguments]")


def _pack(parts: list[np.ndarray]) -> tuple[int, int, list[int]]:
    """A memfd that holds the arrays one after the other; (fd, size, offsets)."""
    offsets, size = [], 0
    for part in parts:
        offsets.append(size)
        size += -(-part.nbytes // sets.ALIGN) * sets.ALIGN
    size = max(size, sets.ALIGN)
    fd = wire.memfd("answer", size)
    import mmap

    with mmap.mmap(fd, size) as memory:
        for part, at in zip(parts, offsets, strict=True):
            memory[at : at + part.nbytes] = np.ascontiguousarray(part).tobytes()
    return fd, size, offsets


def _pieces(arrays: list[np.ndarray], offsets: list[int]) -> tuple[Piece, ...]:
    return tuple(Piece(str(a.dtype), a.shape, at) for a, at in zip(arrays, offsets, strict=True))


def make(oracle: Oracle, job: Job) -> tuple[Answer, list[int]]:
    sig = oracle.task.signature
    values = inputs_of(oracle.module, oracle.task, job.case, job.seed)
    working, exact = oracle.both(job.case, values) if job.oracle else ({}, {})
    outputs = {r.name: working[r.name] for r in sig.outputs} if working else oracle.outputs(job.case, values)
    layout, words = sets.plan(sig, job.case, values, outputs)
    in_image, out_image = sets.images(sig, layout, values)
    w, e = list(working.values()), list(exact.values())
    fd, size, at = _pack([in_image, out_image, *w, *e])
    pieces = _pieces(w, at[2 : 2 + len(w)]), _pieces(e, at[2 + len(w) :])
    limit_bytes, limit_flops = own_limit(oracle.module, job.case, values)
    return Answer(layout, words, size, *pieces, at[0], at[1], limit_bytes=limit_bytes, limit_flops=limit_flops), [fd]


def own_limit(module: ModuleType, case: Case, values: Mapping[str, Any]) -> tuple[float, float]:
    """The task's limit(case, inputs) -> {"bytes": ..., "flops": ...}, for limits that depend on contents."""
    if not hasattr(module, "limit"):
        return 0.0, 0.0
    found = module.limit(CaseView(case), dict(values))
    return float(found.get("bytes", 0.0)), float(found.get("flops", 0.0))


def values_from(sig: Signature, job: Job, fds: list[int]) -> dict[str, Any]:
    """Arguments read back from images that the judge handed over (timed sets)."""
    import struct

    assert job.layout is not None
    images = {}
    for region, fd, size in zip(("in", "out"), fds, (job.layout.in_bytes, job.layout.out_bytes), strict=True):
        images[region] = np.fromfile(f"/proc/self/fd/{fd}", np.uint8, size)
    values: dict[str, Any] = {}
    for arg, word in zip(sig.args, job.words, strict=False):
        if word.kind == "null":
            values[arg.name] = None
        elif arg.kind == "tensor":
            slot = job.layout.slot(arg.name)
            values[arg.name] = sets.view(images[slot.region], slot).copy()
        else:
            slot_bytes = images["in"][word.value :].tobytes() if word.kind == "in" else struct.pack("<Q", word.value)
            values[arg.name] = _scalar(arg.kind, slot_bytes)
    return values


def _scalar(kind: str, data: bytes) -> Any:
    import struct

    if kind == "str":
        return data.split(b"\0", 1)[0].decode()
    if kind == "float":
        return struct.unpack("<d", data[:8])[0]
    number = struct.unpack("<q", data[:8])[0]
    return bool(number) if kind == "bool" else number


def check(oracle: Oracle, job: Job, fds: list[int]) -> tuple[Answer, list[int]]:
    working, exact = oracle.both(job.case, values_from(oracle.task.signature, job, fds))
    w, e = list(working.values()), list(exact.values())
    fd, size, at = _pack([*w, *e])
    return Answer(size=size, working=_pieces(w, at[: len(w)]), exact=_pieces(e, at[len(w) :])), [fd]


def compare(oracle: Oracle, job: Job, fds: list[int]) -> tuple[Answer, list[int]]:
    """The task's own compare(case, inputs, got, expected) -> None or a sentence that says what is wrong."""
    sig = oracle.task.signature
    assert job.layout is not None
    values = values_from(sig, job, fds[:2])
    _, exact = oracle.both(job.case, values)
    image = np.fromfile(f"/proc/self/fd/{fds[2]}", np.uint8, job.layout.out_bytes)
    got = {name: sets.view(image, job.layout.slot(name)).copy() for name in sig.results}
    said = oracle.module.compare(CaseView(job.case), values, got, exact)
    if said is None or isinstance(said, bool | np.bool_):
        return Answer(verdict="compare() said no" if said is not None and not said else ""), []
    return Answer(verdict=str(said) or "compare() said no"), []


def answer(oracle: Oracle, job: Job, fds: list[int]) -> tuple[Answer, list[int]]:
    steps: dict[str, Callable[[], tuple[Answer, list[int]]]] = {
        "make": lambda: make(oracle, job),
        "check": lambda: check(oracle, job, fds),
        "compare": lambda: compare(oracle, job, fds),
    }
    return steps[job.kind]()


def said(error: BaseException, folder: str) -> str:
    """An exception of the human's code as one sentence with the place in reference.py, or in a file beside it."""
    if isinstance(error, KeepfastError):
        return error.text()
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(folder)]
    place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}: " if frames else "reference.py: "
    return f"{place}{type(error).__name__}: {error}\n  mend it, then: keepfast check"


def serve(channel: socket) -> None:
    import os

    request, fds = wire.receive(channel, timeout_s=30.0, max_bytes=8 << 20)
    asked = msgspec.convert(request, Request)
    try:
        oracle = Oracle(asked)
        for job in asked.jobs:
            take = {"make": 0, "check": 2, "compare": 3}[job.kind]
            lent, fds = fds[:take], fds[take:]
            reply, handed = answer(oracle, job, lent)
            wire.send(channel, msgspec.to_builtins(reply), handed)
            for fd in (*lent, *handed):
                os.close(fd)
    except Exception as error:  # noqa: BLE001  the human's code may raise anything; it is said, not hidden
        wire.send(channel, msgspec.to_builtins(Answer(error=said(error, asked.task.folder))))


if __name__ == "__main__":
    with contextlib.suppress(wire.Closed):  # the judge had no more use for the answers
        serve(socket(fileno=int(sys.argv[1])))
