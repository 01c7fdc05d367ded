"""Small tasks for the judge's tests, as records and as folders."""

from __future__ import annotations

from keepfast.model import Arg, Budget, Build, Case, Goal, Limit, Return, Rules, Signature, Task, Tolerance

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
