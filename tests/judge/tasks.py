"""Small tasks for the judge's tests, as records and as folders."""

from __future__ import annotations

from pathlib import Path

from keepfast.model import Arg, Budget, Build, Candidate, Case, File, Goal, Limit, Return, Rules, Signature, Task, Tolerance
from keepfast.task.load import load

SOFTMAX = Signature("softmax", (Arg("x", "tensor"),), (Return("out"),), "softmax(Tensor x) -> Tensor")


def softmax_task(folder: str = "/nowhere", **changes: object) -> Task:
    from msgspec.structs import replace

    task = Task(
        name="softmax",
        title="softmax",
        folder=folder,
        root=folder,
        signature=SOFTMAX,
        languages=("c",),
        entry_path="kernel/kernel.c",
        entry_symbol="kernel",
        editable=("kernel/**",),
        axes=("m", "n"),
        cases=(Case("main", (("m", 32), ("n", 1024))), Case("odd", (("m", 3), ("n", 7)), use="correct")),
        arguments=(),
        goal=Goal(speedup=2.0, over="start"),
        budget=Budget(),
        rules=Rules(),
        limit=Limit(bytes="8*m*n"),
        build=Build(flags=("-O2",), libs=("-lm",)),
        tolerance=Tolerance(),
        baselines=(),
        tunables="",
        threads=1,
        oracle="reference",
        hash="h",
    )
    return replace(task, **changes)


# --------------------------------------------------------------------------------------------- a task in a folder

SIGNATURE = "square(Tensor x) -> Tensor"
CASES = '[[case]]\nname = "main"\nn = 4096\n\n[[case]]\nname = "odd"\nn = 7\nuse = "correct"\n'
GOAL = '[goal]\nspeedup = 3.0\nover = "start"\n'
REFERENCE = """import numpy as np


def inputs(case, rng):
    return {"x": rng.standard_normal(case.n, dtype=np.float32)}


def reference(x):
    return x * x + 1
"""
HEAD = '#include "keepfast.h"\n'
ENTRY = "int kernel(const float *x, float *out, int64_t n, void *stream)"
RIGHT = (
    HEAD + ENTRY + "\n{\n    (void)stream;\n    for (int64_t i = 0; i < n; i++)\n        out[i] = x[i] * x[i] + 1.0f;\n    return 0;\n}\n"
)


def kernel(body: str, before: str = "") -> str:
    """A kernel of the square task; `body` has x, out and n."""
    return f"{HEAD}{before}\n{ENTRY}\n{{\n    (void)stream;\n{body}\n    return 0;\n}}\n"


def looping(times: int) -> str:
    """A right kernel that takes about `times` times as long as need be."""
    work = f"for (int k = 0; k < {times}; k++)\n            kept = x[i] * x[i];"
    return kernel(
        f"    volatile float kept = 0;\n    for (int64_t i = 0; i < n; i++) {{\n        {work}\n        out[i] = kept + 1.0f;\n    }}"
    )


def toml(signature: str = SIGNATURE, axes: str = '["n"]', cases: str = CASES, extra: str = GOAL) -> str:
    return f'schema = 1\nsignature = "{signature}"\naxes = {axes}\n\n{cases}\n{extra}'


def write(folder: Path, *, text: str = "", reference: str = REFERENCE, code: str = RIGHT) -> Task:
    """Write a task into `folder` and load it; the square task unless told otherwise."""
    (folder / "kernel").mkdir(parents=True, exist_ok=True)
    (folder / "kernel" / "kernel.c").write_text(code)
    (folder / "reference.py").write_text(reference)
    (folder / "task.toml").write_text(text or toml())
    return load(folder)


def candidate(code: str, n: int = 0) -> Candidate:
    """Whole files of a candidate; equal code is an equal tree."""
    from keepfast.materialise import tree_hash

    files = (File("kernel/kernel.c", code.encode()),)
    return Candidate(files, tree_hash(files), "", n)
