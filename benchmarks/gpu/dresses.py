"""One RMSNorm in many dresses: the same blocks, loads, stores and threads, other machine code.

A dress is a choice for each part of one Triton source: how the row is found, how the address and the mask are written, how the sum of
squares becomes a scale, which arguments there are. `DRESSES` are those whose code differs from the plain one's and from each other's
while a multiprocessor holds as many blocks as before; tests/benchmarks/test_gpu_benchmarks.py compiles them for sm_90. Parts that the
compiler sees through (names, `num_stages` without a loop, int64 written otherwise, reversed sums) are none. `more` makes a kernel do
counted work twice: blocks beyond the rows compute the first rows once more. Must not know judges.
"""

from __future__ import annotations

from msgspec import Struct

ROWS, COLUMNS = 8000, 4096
MORE = {"gain1": 100, "gain05": 200}  # one row in so many is done once more: 1 % and 0.5 %

TASK = """\
schema = 1
title = "RMSNorm, bf16, one timed case"
signature = "rms_norm(Tensor x, Tensor weight, float epsilon) -> Tensor"
languages = ["triton"]
entry = "kernel/kernel.py:kernel"
editable = ["kernel/**"]
axes = ["m", "n"]

[[case]]
name = "timed"
m = {rows}
n = {columns}

[arguments]
weight = {{ role = "weight" }}

[rules]
cuda_graphs = "required"
library_kernels = "forbidden"

[limit]
bytes = "4*m*n + 2*n"

[tolerance]
reduction = "n"
"""
REFERENCE = '''\
"""RMSNorm over the last axis."""

import torch


def inputs(case, rng):
    """x [m, n] and weight [n], bfloat16."""
    x = torch.randn(case.m, case.n, generator=rng, device=rng.device, dtype=torch.float32)
    w = 1 + torch.randn(case.n, generator=rng, device=rng.device, dtype=torch.float32) / 4
    return {"x": x.to(torch.bfloat16), "weight": w.to(torch.bfloat16), "epsilon": 1e-6}


def reference(x, weight, epsilon):
    """y [m, n] in the dtype of x."""
    wide = x if x.dtype == torch.float64 else x.float()
    scale = torch.rsqrt((wide * wide).mean(-1, keepdim=True) + epsilon)
    return (wide * scale * weight).to(x.dtype)
'''

# Of every part the first choice is the plain one.
PARTS: dict[str, dict[str, str]] = {
    "arguments": {
        "plain": "x, w, y, m, n, eps",
        "last-first": "eps, n, m, y, w, x",
        "sizes-first": "m, n, x, w, y, eps",
        "output-first": "y, x, w, eps, m, n",
        "unused-pointer": "x, w, y, again, m, n, eps",
        "unused-number": "x, w, y, m, spare, n, eps",
        "two-unused": "spare, x, w, y, again, m, n, eps",
        "fixed-n": "x, w, y, m, eps, n: tl.constexpr",
        "fixed-m": "x, w, y, n, eps, m: tl.constexpr",
        "fixed-epsilon": "x, w, y, m, n, eps: tl.constexpr",
    },
    "row": {"plain": "tl.where(block >= m, block - m, block)", "remainder": "block % m"},
    "index": {"plain": "row.to(tl.int64) * n + at", "int32": "row * n + at"},
    "mask": {"plain": "at < n", "none": "", "rows-too": "(at < n) & (row < m)", "least": "at < tl.minimum(n, BLOCK)"},
    "square": {"plain": "tl.sum(v * v)", "maximum": "tl.maximum(tl.sum(v * v), 0.0)"},
    "mean": {
        "plain": "total / n + eps",
        "factor": "total * (1.0 / n) + eps",
        "outside": "(total + n * eps) / n",
        "outside-factor": "(total + n * eps) * (1.0 / n)",
        "halves": "(0.5 * total / n + eps) + 0.5 * total / n",
    },
    "scale": {
        "plain": "tl.rsqrt(mean)",
        "division": "1.0 / tl.sqrt(mean)",
        "exact": "1.0 / tl.sqrt_rn(mean)",
        "root": "tl.sqrt(1.0 / mean)",
        "powers": "tl.exp2(-0.5 * tl.log2(mean))",
    },
    "product": {
        "plain": "v * scale * g",
        "weight-first": "v * g * scale",
        "scaled-weight": "v * (scale * g)",
        "negatives": "(-v) * (-scale) * g",
    },
    "shape": {"plain": "", "guard": "if block < 2 * m:", "store-loop": "for _ in range(0, n, BLOCK):"},
    "hint": {"plain": "", "assume": "tl.assume(n > 0)\ntl.assume(m > 0)\n"},
    "load": {"plain": "", "default-cache": ', cache_modifier=".ca"'},
}
VALUES = {"x": "x", "w": "weight", "y": "y", "m": "m", "n": "n", "eps": "epsilon", "again": "weight", "spare": "m + 1"}
SOURCE = """\
import torch
import triton
import triton.language as tl


@triton.jit
def rms({arguments}, BLOCK: tl.constexpr):
{body}

def kernel(x, weight, epsilon):
    y = torch.empty_like(x)
    m, n = x.shape
    rms[(m{more},)]({values}, BLOCK=triton.next_power_of_2(n), num_warps=8)
    return y
"""


class Dress(Struct, frozen=True):
    """`parts`: (part, choice) where it is not the plain one."""

    parts: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return ", ".join(f"{part} {choice}" for part, choice in self.parts) or "plain"


def dress(text: str) -> Dress:
    """From words as in "row remainder, mean factor"."""
    pairs: list[tuple[str, str]] = []
    for words in filter(str.strip, text.split(",")):
        part, choice = words.split()
        if choice not in PARTS[part]:
            raise ValueError(f"`{part}` has no `{choice}`")
        pairs.append((part, choice))
    return Dress(tuple(pairs))


def source(worn: Dress, more: int = 0) -> str:
    """The candidate's kernel.py. `more`: one row in so many is computed once more, 0: none."""
    chosen = dict(worn.parts)
    text = {part: choices[chosen.get(part, "plain")] for part, choices in PARTS.items()}
    named = [word.partition(":") for word in text["arguments"].split(", ")]
    values = ", ".join(VALUES[name] if not colon else f"{name}={VALUES[name]}" for name, colon, _ in named)
    return SOURCE.format(arguments=text["arguments"], body=_body(text), values=values, more=f" + m // {more}" if more else "")


def _body(text: dict[str, str]) -> str:
    """What a block does. A loop or a condition around it or around its end runs once."""
    mask = f", mask={text['mask']}" if text["mask"] else ""
    other = ", other=0.0" if mask else ""
    store = f"""\
g = tl.load(w + at{mask}{other}).to(tl.float32)
tl.store(y + offset, ({text["product"]}).to(tl.bfloat16){mask})
"""
    work = f"""\
row = {text["row"]}
offset = {text["index"]}
v = tl.load(x + offset{mask}{other}{text["load"]}).to(tl.float32)
total = {text["square"]}
mean = {text["mean"]}
scale = {text["scale"]}
{_inside(text["shape"], store) if text["shape"].startswith("for") else store}"""
    whole = _inside(text["shape"], work) if text["shape"].startswith("if") else work
    return _indented(f"block = tl.program_id(0)\nat = tl.arange(0, BLOCK)\n{text['hint']}{whole}")


def _inside(head: str, lines: str) -> str:
    return f"{head}\n{_indented(lines)}"


def _indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


# The first half changes what is done once a block, or the arguments; the other half also addresses, masks, loops and loads.
DRESSES = tuple(
    dress(words)
    for words in (
        "arguments last-first",
        "mean factor",
        "row remainder",
        "scale division",
        "arguments unused-number",
        "product scaled-weight",
        "arguments fixed-epsilon",
        "mean outside",
        "scale root",
        "arguments output-first",
        "product weight-first",
        "square maximum",
        "arguments two-unused",
        "mean halves",
        "scale exact",
        "arguments sizes-first",
        "product negatives",
        "arguments fixed-m",
        "mean outside-factor",
        "scale powers",
        "arguments unused-pointer",
        "hint assume",
        "arguments fixed-n",
        "square maximum, mean factor",
        "index int32",
        "mask none",
        "mask rows-too",
        "mask least",
        "shape guard",
        "shape store-loop",
        "load default-cache",
        "arguments unused-number, mean halves",
        "product negatives, shape store-loop",
        "arguments output-first, product scaled-weight",
        "mask rows-too, scale exact",
        "arguments fixed-n, product negatives",
        "arguments unused-pointer, mean factor",
        "arguments last-first, hint assume",
        "mask least, scale division",
        "square maximum, scale powers",
        "arguments fixed-epsilon, product weight-first",
        "index int32, hint assume",
        "arguments last-first, mean outside-factor",
        "arguments fixed-m, mask none",
        "row remainder, load default-cache",
        "mean outside, shape guard",
        "arguments fixed-n, row remainder",
        "mask least, product weight-first",
    )
)
