"""`python -m tests.gpu_records.forked compiled|interpreted OUT`: every file of the corpus on a machine without a GPU.

compiled     for sm_90, as the compile gate does: {"error": sentence or "", "kernels": names}
interpreted  by Triton's interpreter on the CPU, on fresh contents, outputs poisoned: {"error": what is wrong with the answers or ""}

One process with torch and Triton imported forks a child for each file: a file may end its process, patch what it likes, or start
threads. Writes a JSON object to OUT, by the names of the files; one that is not tried, or has ended its process, has no entry.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from keepfast.gpu.layout import Given, Layout, Output, Tensor, contiguous, up
from keepfast.judge.gpu.provenance import jitted
from keepfast.model import File
from tests.gpu.samples import HERE, Sample, samples

CAPABILITY = 90
SECONDS = 40
AT_ONCE = 2
SIZES = {"bfloat16": 2, "float32": 4}
CASES = {"norm": (("wide", 1024, 4096), ("odd", 33, 1000)), "add": (("wide", 512, 4096),), "rows": (("long", 64, 65536), ("odd", 5, 1001))}
SMALLER = {"norm": ((8, 4096), (33, 1000)), "add": ((4, 4096),), "rows": ((2, 65536), (5, 1001))}
CALLS = 2
OUTSIDE = "Popen"  # it starts processes that live on: nothing to be run without walls
# What only a card can do, or several programs at a time; and what reaches for something outside, or for the functions that compare.
NOT_HERE = ("torch.cuda", "tl.extra", "launch_", "autotune", "TensorDescriptor", "while ", "REACHED", "import compare", "torch.equal")


# --------------------------------------------------------------------------------------------- compiled


def shapes(task: str, m: int, n: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Tensors of a task in schema order."""
    if task == "add":
        return ("input", (m, n)), ("residual", (m, n)), ("weight", (n,))
    return (("x", (m, n)),) if task == "rows" else (("x", (m, n)), ("weight", (n,)))


def laid(task: str, case: str, m: int, n: int) -> Layout:
    """As the oracle lays out a case of tests/gpu/tasks."""
    dtype = "float32" if task == "rows" else "bfloat16"
    at, given = 0, list[Given]()
    for name, shape in shapes(task, m, n):
        size = SIZES[dtype] * (shape[0] if len(shape) == 1 else m * n)
        written = task == "add" and name != "weight"
        role = "weight" if name == "weight" else "input"
        given.append(Given(name, "tensor", Tensor(dtype, shape, contiguous(shape), at, at, size, written, role)))
        at += up(size)
    outputs = () if task == "add" else (Output("y", dtype, (m, n), SIZES[dtype] * m * n),)
    return Layout(case, (("m", m), ("n", n)), (*given, Given("epsilon", "float", value=1e-6)), outputs, at)


def compiled(sample: Sample) -> dict[str, object]:
    """For one case after the other, until every kernel was compiled."""
    from keepfast.capture.compile_only import Job, report

    path, error, kernels = sample.path, "", set[str]()
    for case in CASES[sample.task]:
        found = report(Job(str(path.parent), path.name, "kernel", ("",), CAPABILITY, (laid(sample.task, *case),)))
        error = f"{found.error}: {found.detail}" if found.error else ""
        kernels |= {k.name for k in found.kernels}
        if error or launched(sample) <= kernels:
            break
    return {"error": error, "kernels": sorted(kernels)}


def launched(sample: Sample) -> frozenset[str]:
    """Triton functions of a file, less those that its header calls idle."""
    return jitted([File("kernel.py", sample.source.encode())]) - set(sample.several("idle"))


# --------------------------------------------------------------------------------------------- interpreted


def interpreted(sample: Sample) -> dict[str, object]:
    """Some calls a case, each on contents of its own."""
    import torch

    from keepfast.capture import load

    torch.set_num_threads(1)
    reference = load.python(HERE, f"tasks/{sample.task}/reference.py", "reference")
    inputs = load.python(HERE, f"tasks/{sample.task}/reference.py", "inputs")
    poison(torch)
    kernel = prepared(sample, load.python(sample.path.parent, sample.path.name, "kernel"))
    rng = torch.Generator().manual_seed(int.from_bytes(os.urandom(6), "little"))
    for m, n in SMALLER[sample.task]:
        for _ in range(CALLS):
            values = inputs(type("Case", (), {"m": m, "n": n}), rng)
            if said := difference(sample.task, n, kernel, (reference, values)):
                return {"error": f"{m} x {n}: {said}"}
    return {"error": ""}


def prepared(sample: Sample, kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, with what its `prepare` makes of the weights where it has one."""
    from keepfast.capture import load, prepare

    layout = laid(sample.task, *CASES[sample.task][0])
    ready = prepare.bound(load.beside(sample.path.parent, sample.path.name, prepare.SYMBOL), layout, prepare.WEIGHTS)
    return kernel if ready is None else lambda *given: kernel(*ready.instead(given, ready(given)))


def poison(torch: Any) -> None:
    """Memory that was not written holds NaN, as in the launcher."""
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")):
        plain = getattr(owner, name)

        def filled(*args: Any, _plain: Callable[..., Any] = plain, **named: Any) -> Any:
            made = _plain(*args, **named)
            return made.fill_(float("nan")) if made.dtype.is_floating_point else made

        setattr(owner, name, filled)


def difference(task: str, n: int, kernel: Callable[..., Any], asked: tuple[Callable[..., Any], dict[str, Any]]) -> str:
    """What the oracle would say to one call, or ""."""
    import torch

    from keepfast.oracle import compare

    reference, values = asked
    before = {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in values.items()}
    working = reference(**before)
    exact = reference(**{k: v.double() if isinstance(v, torch.Tensor) else v for k, v in before.items()})
    got = kernel(*values.values())
    if task == "add":
        got = values["input"], values["residual"]
    elif any(not torch.equal(v, before[k]) for k, v in values.items() if isinstance(v, torch.Tensor)):
        return "an argument was changed"
    limits = compare.Limits(float(n))
    rows = zip(*(t if isinstance(t, tuple) else (t,) for t in (got, working, exact)), strict=True)
    return next((said for g, w, e in rows if (said := compare.judge("y", g, w, e, limits).wrong)), "")


# --------------------------------------------------------------------------------------------- children


def wanted(how: str) -> list[Sample]:
    """Compiled: those with a kernel that no file before has. Interpreted: honest ones, and cheats whose answer is simply wrong."""
    found = [s for s in samples() if OUTSIDE not in s.source]
    if how == "compiled":
        seen: set[tuple[str, str]] = set()
        return [s for s in found if new(s, seen)]
    tried = [s for s in found if not any(word in s.source for word in NOT_HERE)]
    return [s for s in tried if s.honest or (s.said["layer"], s.said["expect"]) == ("correct", "wrong")]


def new(sample: Sample, seen: set[tuple[str, str]]) -> bool:
    """Whether a file has a kernel for its task that is not among `seen`, which grows."""
    names = launched(sample)
    defined = [node for node in ast.walk(ast.parse(sample.source)) if isinstance(node, ast.FunctionDef) and node.name in names]
    kernels = {(sample.task, ast.dump(node)) for node in defined}
    fresh = bool(kernels - seen)
    seen |= kernels
    return fresh


def forked(work: Callable[[Sample], dict[str, object]], sample: Sample, out: Path) -> int:
    """A child that writes what `work` says of a file, if it lives to tell."""
    number = os.fork()
    if number:
        return number
    try:
        os.closerange(3, 256)  # some files write to whatever descriptor there is
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        signal.alarm(SECONDS)
        out.write_text(json.dumps(work(sample)))
    except BaseException as problem:  # noqa: BLE001  # a file of the corpus may raise anything
        out.write_text(json.dumps({"error": type(problem).__name__, "kernels": []}))
    finally:
        os._exit(0)


def main(how: str, target: str) -> None:
    if how == "interpreted":
        os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported
    for name in ("torch._dynamo", "triton", "keepfast.capture.compile_only", "keepfast.oracle.compare", "keepfast.capture.no_gpu"):
        importlib.import_module(name)  # once, for all children
    work = compiled if how == "compiled" else interpreted
    with tempfile.TemporaryDirectory() as place:
        os.environ["TRITON_CACHE_DIR"] = place
        outs = {sample: Path(place) / f"{sample.path.parent.name}-{sample.name}.json" for sample in wanted(how)}
        running: set[int] = set()
        for sample, out in outs.items():
            if len(running) >= AT_ONCE:
                running.discard(os.wait()[0])
            running.add(forked(work, sample, out))
        while running:
            running.discard(os.wait()[0])
        said = {sample.name: json.loads(out.read_text()) for sample, out in outs.items() if out.exists()}
    Path(target).write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
