"""Small tasks, what a judge would have laid out for them, and tables as certify would have made them."""

from __future__ import annotations

from pathlib import Path

from keepfast.dispatch import shapes, space
from keepfast.dispatch.operator import read as read_operator
from keepfast.dispatch.package import Source
from keepfast.dispatch.records import Finding, Seen, Shot, Space, Table, Terms
from keepfast.dispatch.table import decided, rows
from keepfast.model import File, Task
from keepfast.task.load import load
from keepfast.task.paths import expand

C_SOFTMAX = """schema = 1
title = "row softmax"
signature = "softmax(Tensor x) -> Tensor"
languages = ["c"]
axes = ["m", "n"]
[[case]]
name = "main"
m = 16
n = 256
[[case]]
name = "odd"
m = 3
n = 7
use = "correct"
[build]
flags = ["-O2"]
libs = ["-lm"]
"""
C_KERNEL = """#include <math.h>
#include "keepfast.h"
#include "keepfast_tunables.h"
int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++, x += n, out += n) {
        float top = x[0];
        double sum = 0;
        for (int64_t j = 1; j < n; j++) top = x[j] > top ? x[j] : top;
        for (int64_t j = 0; j < n; j++) { out[j] = expf(x[j] - top); sum += out[j]; }
        for (int64_t j = 0; j < n; j++) out[j] = (float)(out[j] / sum);
    }
    return 0;
}
"""
C_REFERENCE = """import numpy as np


def inputs(case, rng):
    return {"x": rng.standard_normal((case.m, case.n), dtype=np.float32)}


def reference(x):
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)
"""
NUMPY_SOFTMAX = """import numpy as np


def kernel(x, out):
    np.subtract(x, x.max(axis=1, keepdims=True), out=out)
    np.exp(out, out=out)
    out /= out.sum(axis=1, keepdims=True)
"""
TORCH_NORM = """schema = 1
title = "add and normalise, in place"
signature = "add_norm(Tensor(a!) residual, Tensor input, Tensor weight, float eps=1e-6) -> (Tensor(a!), Tensor y)"
languages = ["torch"]
axes = ["m", "n"]
[[case]]
name = "main"
m = 8
n = 64
[[case]]
name = "odd"
m = 3
n = 7
use = "correct"
[arguments]
weight = { role = "weight" }
[dispatch]
visible = ["m"]
hidden = ["n"]
"""
TORCH_KERNEL = """import torch
from helper import mean_square
from keepfast_tunables import WAYS


def kernel(residual, input, weight, eps):
    residual += input
    scale = torch.rsqrt(mean_square(residual) + eps)
    return residual, residual * scale * weight if WAYS == 1 else residual * (scale * weight)
"""
TORCH_HELPER = "import torch\n\n\ndef mean_square(x):\n    return torch.mean(x * x, dim=1, keepdim=True)\n"
TORCH_BASELINE = """import torch


def kernel(residual, input, weight, eps):
    residual.add_(input)
    return residual / torch.sqrt(residual.pow(2).mean(-1, keepdim=True) + eps) * weight
"""
TORCH_REFERENCE = """import torch


def inputs(case, rng):
    here = {"generator": rng, "device": rng.device}
    made = {name: torch.randn(case.m, case.n, **here) for name in ("residual", "input")}
    return {**made, "weight": torch.randn(case.n, **here), "eps": 1e-6}


def reference(residual, input, weight, eps):
    total = residual + input
    return total, total / torch.sqrt(total.pow(2).mean(-1, keepdim=True) + eps) * weight
"""
OP_SOFTMAX = TORCH_NORM.replace("add and normalise, in place", "aten._softmax").replace(
    "add_norm(Tensor(a!) residual, Tensor input, Tensor weight, float eps=1e-6) -> (Tensor(a!), Tensor y)", "_softmax(Tensor x) -> Tensor"
).split("[arguments]")[0]  # fmt: skip
OP_KERNEL = """import torch


def kernel(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)
"""
OP_BASELINE = (
    '"""The operator itself: aten._softmax."""\n\nimport torch\n\n\ndef kernel(x):\n    return torch.ops.aten._softmax(x, -1, False)\n'
)
OP_REFERENCE = """import torch


def inputs(case, rng):
    return {"x": torch.randn(case.m, case.n, generator=rng, device=rng.device)}


def reference(x):
    return torch.softmax(x, dim=1)
"""


OP_NORM = TORCH_NORM.replace("add and normalise, in place", "toy.fused_add_rms_norm").replace(
    "add_norm(Tensor(a!) residual, Tensor input, Tensor weight, float eps=1e-6) -> (Tensor(a!), Tensor y)",
    "fused_add_rms_norm(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float eps=1e-6) -> ()",
)  # fmt: skip
OP_NORM_KERNEL = """import torch


def kernel(input, residual, weight, eps):
    residual += input
    input.copy_(residual * torch.rsqrt(torch.mean(residual * residual, dim=1, keepdim=True) + eps) * weight)
"""
OP_NORM_BASELINE = (
    "import torch\n\n\ndef kernel(input, residual, weight, eps):\n    torch.ops.toy.fused_add_rms_norm(input, residual, weight, eps)\n"
)
OP_NORM_REFERENCE = (
    TORCH_REFERENCE.split("def reference")[0]
    + """def reference(input, residual, weight, eps):
    total = residual + input
    return total / torch.sqrt(total.pow(2).mean(-1, keepdim=True) + eps) * weight, total
"""
)


def c_softmax(folder: Path, extra: str = "") -> Task:
    return written(folder / "softmax", {
        "task.toml": C_SOFTMAX + extra, "reference.py": C_REFERENCE, "kernel/kernel.c": C_KERNEL,
        "kernel/tunables.toml": "[BLOCK]\nchoices = [1, 2]\nvalue = 1\n", "baselines/numpy.py": NUMPY_SOFTMAX,
    })  # fmt: skip


def torch_norm(folder: Path) -> Task:
    return written(folder / "norm", {
        "task.toml": TORCH_NORM.replace('axes = ["m", "n"]', 'entry = "kernel/kernel.py:kernel"\naxes = ["m", "n"]'),
        "reference.py": TORCH_REFERENCE, "kernel/kernel.py": TORCH_KERNEL, "kernel/helper.py": TORCH_HELPER,
        "kernel/tunables.toml": "[WAYS]\nchoices = [1, 2]\nvalue = 1\n", "baselines/plain.py": TORCH_BASELINE,
    })  # fmt: skip


def op_softmax(folder: Path) -> Task:
    return written(folder / "opsoftmax", {
        "task.toml": OP_SOFTMAX.replace('axes = ["m", "n"]', 'entry = "kernel/kernel.py:kernel"\naxes = ["m", "n"]'),
        "reference.py": OP_REFERENCE, "kernel/kernel.py": OP_KERNEL, "baselines/op.py": OP_BASELINE,
    })  # fmt: skip


def op_norm(folder: Path) -> Task:
    """An operator of vLLM's kind: it writes to two arguments and returns nothing."""
    return written(folder / "opnorm", {
        "task.toml": OP_NORM.replace('axes = ["m", "n"]', 'entry = "kernel/kernel.py:kernel"\naxes = ["m", "n"]'),
        "reference.py": OP_NORM_REFERENCE, "kernel/kernel.py": OP_NORM_KERNEL, "baselines/op.py": OP_NORM_BASELINE,
    })  # fmt: skip


def written(folder: Path, files: dict[str, str]) -> Task:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return load(folder)


# --------------------------------------------------------------------------------------------- tables


def seen(task: Task, points: tuple[tuple[int, int], ...]) -> tuple[Seen, ...]:
    """What the judge would have laid out: every matrix is [m, n], `weight` is [n]."""
    found = []
    for m, n in points:
        tensors = [(a.name, "float32", (n,) if a.name == "weight" else (m, n), True) for a in task.signature.tensors]
        tensors += [(r.name, "float32", (m, n), True) for r in task.signature.outputs]
        scalars = tuple((a.name, 1e-6) for a in task.signature.args if a.kind == "float")
        found.append(Seen((("m", m), ("n", n)), tuple(tensors), scalars))
    return tuple(found)


def table(task: Task, m: tuple[int, ...] = (4, 8, 16, 32), n: tuple[int, ...] = (64, 128, 256), lost: tuple[int, ...] = (32,)) -> Table:
    """The kernel wins at every m but those `lost`. A task whose [dispatch] hides n has it hidden."""
    arguments, outputs = shapes.read(task.signature, seen(task, (*((a, b) for a in m for b in n), (3, 7))))
    grid = (("m", m), ("n", n))
    where = Space(("m", "n"), grid[:1], grid[1:]) if task.dispatch.hidden else Space(("m", "n"), grid, ())
    terms = Terms(0.05, len(m) * len(n), 0.01, 0.001)
    stock = space.fallbacks(task, task.dispatch)[0]
    findings = [
        Finding(point, "measured", "", (Shot(stock, 0.1 if dict(point)["m"] in lost else -0.5, 0.002, 6, 1e3, 2e3),))
        for cell in where.cells()
        for point in where.points(cell)
    ]
    made = rows(where, findings, terms)
    return Table(
        task=task.name, task_hash=task.hash, signature=task.signature.text, run="run-1", champion=7, tree="f" * 64, commit="c" * 40,
        device="cpu", machine="m", card="a cpu", versions=(("compiler", "gcc 1"), ("numpy", "2")), walls="walls", stock=stock,
        fallbacks=(stock,), space=where, terms=terms, rounds=6, when=1_700_000_000.0, complete=True, arguments=arguments, outputs=outputs,
        rows=made, regions=decided(where, made),
    )  # fmt: skip


def source(task: Task, name: str, made: Table | None = None) -> Source:
    root = Path(task.root)
    files = tuple(File(p, (root / p).read_bytes()) for p in expand(root, task.editable))
    op = Path(task.folder) / "baselines" / "op.py"
    override = read_operator(op.read_text(), task.signature) if op.is_file() else None
    return Source(task, made or table(task), files, name, override)
