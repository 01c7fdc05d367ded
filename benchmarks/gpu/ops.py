"""Operations as in level 1 of KernelBench, each one line of torch: a task whose reference is that line, and a candidate that is it too.

One task holds them all, a case each, so that one oracle serves them. Must not know judges.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

BF16, F16, F32, I64 = "bfloat16", "float16", "float32", "int64"
Shape = tuple[str, tuple[int, ...]]


class Op(Struct, frozen=True):
    """`text` says x, y and z. `terms`: summed for one element. An int64 tensor holds numbers below `classes`."""

    text: str
    x: Shape
    y: Shape | None = None
    z: Shape | None = None
    terms: int = 1
    classes: int = 1

    @property
    def tensors(self) -> tuple[Shape | None, ...]:
        return (self.x, self.y, self.z)


IMAGE = (16, 64, 56, 56)
OPS = {
    "matmul": Op("x @ y", (BF16, (2048, 1024)), (BF16, (1024, 2048)), terms=1024),
    "matmul-transposed": Op("x.T @ y.T", (F16, (1024, 2048)), (F16, (2048, 1024)), terms=1024),
    "matmul-batched": Op("torch.bmm(x, y)", (BF16, (32, 256, 512)), (BF16, (32, 512, 256)), terms=512),
    "matmul-tall": Op("x @ y", (F32, (16384, 32)), (F32, (32, 64)), terms=32),
    "matmul-lower": Op("torch.tril(torch.tril(x) @ torch.tril(y))", (F32, (1024, 1024)), (F32, (1024, 1024)), terms=1024),
    "matrix-vector": Op("F.linear(x, y)", (F32, (1, 8192)), (F32, (2048, 8192)), terms=8192),
    "gelu": Op("F.gelu(x)", (BF16, (2048, 8192))),
    "softmax": Op("torch.softmax(x, 1)", (F32, (1024, 8192)), terms=8192),
    "log-softmax": Op("torch.log_softmax(x, 1)", (F32, (1024, 8192)), terms=8192),
    "layer-norm": Op("F.layer_norm(x, (4096,), y, z)", (F32, (1024, 4096)), (F32, (4096,)), (F32, (4096,)), terms=4096),
    "batch-norm": Op("F.batch_norm(x, None, None, y, z, True)", (F32, IMAGE), (F32, (64,)), (F32, (64,)), terms=50176),
    "group-norm": Op("F.group_norm(x, 8, y, z)", (F32, IMAGE), (F32, (64,)), (F32, (64,)), terms=25088),
    "max-pool": Op("F.max_pool2d(x, 3, 2, 1)", (F32, IMAGE)),
    "average-pool": Op("F.avg_pool1d(x, 8, 1, 4)", (F32, (16, 64, 4096)), terms=8),
    "convolution": Op("F.conv2d(x, y, padding=1)", (F16, (8, 64, 56, 56)), (F16, (64, 64, 3, 3)), terms=576),
    "depthwise": Op("F.conv2d(x, y, padding=1, groups=64)", (F32, (8, 64, 56, 56)), (F32, (64, 1, 3, 3)), terms=9),
    "cumulative-sum": Op("torch.cumsum(x, 1)", (F32, (2048, 4096)), terms=4096),
    "argmax": Op("torch.argmax(x, 1)", (F32, (64, 256, 1024))),
    "minimum": Op("torch.amin(x, 1)", (F32, (64, 256, 1024))),
    "cross-entropy": Op("F.cross_entropy(x, y).reshape(1)", (F32, (4096, 1024)), (I64, (4096,)), terms=4096, classes=1024),
    "mean-squares": Op("F.mse_loss(x, y).reshape(1)", (F32, (2048, 4096)), (F32, (2048, 4096)), terms=2048 * 4096),
}
TASK = """\
schema = 1
title = "operations as in level 1 of KernelBench"
signature = "op(int which, Tensor x, Tensor? y, Tensor? z) -> Tensor"
languages = ["torch"]
entry = "kernel/kernel.py:kernel"
editable = ["kernel/**"]
axes = ["terms"]

{cases}[tolerance]
reduction = "terms"
"""
CASE = """\
[[case]]
name = "{name}"
terms = {terms}

"""
REFERENCE = '''\
"""Each case is one operation of torch."""

import torch
import torch.nn.functional as F

TENSORS = {tensors}


def inputs(case, rng):
    """The number of the operation, and its tensors: floats are normal, whole numbers below `classes`."""

    def drawn(dtype, shape, classes):
        if dtype == "int64":
            return torch.randint(classes, shape, generator=rng, device=rng.device)
        return torch.randn(shape, generator=rng, device=rng.device).to(getattr(torch, dtype))

    which, tensors = TENSORS[case.name]
    given = [None if one is None else drawn(*one) for one in tensors]
    return {{"which": which, "x": given[0], "y": given[1], "z": given[2]}}


OPS = [
{operations}]


def reference(which, x, y, z):
    """In the dtype of x."""
    return OPS[which](x, y, z)
'''
KERNEL = """\
import torch
import torch.nn.functional as F


def kernel(which, x, y, z):
    return {text}
"""


def make_task(folder: Path) -> Path:
    """Writes the task into an empty folder; its kernel is the first operation."""
    (folder / "kernel").mkdir(parents=True)
    cases = "".join(CASE.format(name=name, terms=op.terms) for name, op in OPS.items())
    (folder / "task.toml").write_text(TASK.format(cases=cases))
    tensors = {name: (i, [None if t is None else (*t, op.classes) for t in op.tensors]) for i, (name, op) in enumerate(OPS.items())}
    operations = "".join(f"    lambda x, y, z: {op.text},\n" for op in OPS.values())
    (folder / "reference.py").write_text(REFERENCE.format(tensors=tensors, operations=operations))
    (folder / "kernel" / "kernel.py").write_text(source(next(iter(OPS))))
    return folder


def source(name: str) -> str:
    """A candidate that is one operation."""
    return KERNEL.format(text=OPS[name].text)
