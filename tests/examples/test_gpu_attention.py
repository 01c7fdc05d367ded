"""Decode attention on a GPU, as far as it shows without one: tasks, references, kernels interpreted, and their machine code for Hopper.

Run as a script it is what the tests start in processes of their own: `interpret` and `compile` cannot share one with each other.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cardless import compiling, exact_products, module_at, poison, usage

EXAMPLES = Path(__file__).parents[2] / "examples" / "gpu"
TASKS = ("decode_attention", "decode_attention_paged")
WRONG = {
    "decode_attention": ("003-no-maximum", "005-whole-blocks"),
    "decode_attention_paged": ("004-one-look-a-step",),
}
REFUSED = {  # right, but against the rules of the task
    "decode_attention": ("002-let-torch-do-it",),
    "decode_attention_paged": ("001-gather-the-pages", "002-lengths-on-the-host"),
}
SHARED_BYTES = 232448  # that a block may have on Hopper
RMS, WORST = 4 * 2**-7, 40 * 2**-7  # docs/verdict.md, for bfloat16 and a reduction of 64
UNKNOWN = ("gdc_wait", "gdc_launch_dependents", "ask")  # to the interpreter: they order or hasten, and compute nothing
PAD = 64  # rows behind a cache, so that a wrong kernel reads memory of ours


def versions(task: str) -> list[str]:
    return ["start", *sorted(p.name for p in (EXAMPLES / task / "deck").iterdir())]


def kernel_of(task: str, version: str) -> Path:
    return EXAMPLES / task / ("" if version == "start" else f"deck/{version}") / "kernel/kernel.py"


def compiles(task: str, version: str) -> bool:
    """Whether a version has kernels of its own, and launches them without asking the device first."""
    text = kernel_of(task, version).read_text()
    return "@triton.jit" in text and "int(seq_lens" not in text


EVERY = [(task, version) for task in TASKS for version in versions(task)]


# ------------------------------------------------------------------------------------------------ the tasks


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None and importlib.util.find_spec("triton") is not None


needs_torch = pytest.mark.skipif(not has_torch(), reason="needs torch and triton")


@pytest.mark.parametrize("task", TASKS)
def test_the_task_loads_and_its_limit_is_what_must_be_moved(task: str) -> None:
    from keepfast.expr import parse
    from keepfast.task.load import load

    found = load(EXAMPLES / task)
    assert found.gpu
    assert {b.language for b in found.baselines} == {"torch"}
    for case in found.cases:
        axes = dict(case.axes)
        tokens = axes.get("tokens", axes["b"] * axes["s"])
        moved = parse(found.limit.bytes, list(axes)).value(axes)
        least = 2 * 2 * tokens * 8 * 128 + 2 * 2 * axes["b"] * 32 * 128
        assert least <= moved <= least * 1.01, case.name


@pytest.mark.parametrize("task", TASKS)
def test_decks_are_numbered_and_their_tunables_are_valid(task: str) -> None:
    from keepfast.task import tunables

    assert [v[:4] for v in versions(task)[1:]] == [f"{i:03}-" for i in range(1, len(versions(task)))]
    for version in versions(task):
        path = kernel_of(task, version).with_name("tunables.toml")
        if path.exists():
            space = tunables.parse(path.read_text())
            assert space.valid({t.name: t.value for t in space.tunables}) is None, version
            used = re.search(r"from keepfast_tunables import (.*)", kernel_of(task, version).read_text())
            assert used is not None
            assert sorted(used[1].split(", ")) == sorted(t.name for t in space.tunables)


@needs_torch
@pytest.mark.parametrize("task", TASKS)
def test_the_task_can_be_judged(task: str) -> None:
    import torch

    from keepfast.oracle.lint import Linter
    from keepfast.oracle.reference import Reference
    from keepfast.task.load import load

    found = load(EXAMPLES / task)
    sizes = [(c, 4096 * dict(c.axes)["b"] * dict(c.axes)["s"]) for c in found.cases]
    report = Linter(Reference(found, torch.device("cpu"))).run(sizes)
    assert report.error == ""
    assert len(report.mutants) > 8


# ------------------------------------------------------------------------------------------------ the kernels


@cache
def started(mode: str, task: str) -> dict[str, Any]:
    """What this file says as a script about every version of a task, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | (
        {"TRITON_INTERPRET": "1"} if mode == "interpret" else {}
    )
    done = subprocess.run([sys.executable, __file__, mode, task], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


SPARE = {"011-one-warp": 16}  # bytes: one odd length spills four registers; it was the fastest on an H200 all the same


@needs_torch
@pytest.mark.parametrize(("task", "version"), EVERY)
def test_right_is_right_and_wrong_is_wrong(task: str, version: str) -> None:
    wrong = started("interpret", task)[version]
    assert bool(wrong) == (version in WRONG[task]), wrong


@needs_torch
@pytest.mark.parametrize(("task", "version"), [(t, v) for t, v in EVERY if compiles(t, v)])
def test_kernels_compile_for_hopper_and_fit(task: str, version: str) -> None:
    kernels = started("compile", task)[version]
    assert kernels
    for name, shared, stack, local in kernels:
        assert shared <= SHARED_BYTES, name
        assert max(stack, local) <= SPARE.get(version, 0), f"{name} spills"


@needs_torch
@pytest.mark.parametrize("task", TASKS)
def test_baselines_are_right(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "compile", lambda **_: lambda function: function)  # what would be compiled runs as it is
    for path in sorted((EXAMPLES / task / "baselines").glob("*.py")):
        if not path.name.startswith("flashinfer"):
            assert mistakes(task, module_at(path).kernel) == [], path.name


@pytest.mark.parametrize("task", TASKS)
def test_what_is_refused_is_only_against_the_rules(task: str) -> None:
    for version in REFUSED[task]:
        text = kernel_of(task, version).read_text()
        assert "scaled_dot_product_attention" in text or "int(seq_lens.max())" in text


# ------------------------------------------------------------------------------------------------ in a process of its own


def small(task: str) -> Iterator[types.SimpleNamespace]:
    """Cases that the interpreter can run."""
    if task == "decode_attention":
        for name, b, s in (("one", 1, 1), ("odd", 2, 70), ("whole", 1, 128), ("large", 1, 40), ("late", 1, 100)):
            yield types.SimpleNamespace(name=name, b=b, s=s)
        return
    for name, b, s, page in (("one", 1, 1, 16), ("ramp", 2, 45, 16), ("ramp", 2, 90, 64), ("large", 1, 40, 16)):
        ramp = sum(-(-s * (i + 1) // b) for i in range(b))
        yield types.SimpleNamespace(name=name, b=b, s=s, page=page, tokens=ramp)


def mistakes(task: str, call: Callable[..., Any]) -> list[str]:
    """Cases in which the answer is beyond the budget of docs/verdict.md. Batches are called twice: counters must be at zero again."""
    import torch

    reference = module_at(EXAMPLES / task / "reference.py")
    found = []
    for case in small(task):
        values = padded(reference.inputs(case, torch.Generator().manual_seed(5)))
        exact = reference.reference(
            **{k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in values.items()}
        )
        size = exact.square().mean(-1, keepdim=True).sqrt()
        for _ in range(min(case.b, 2)):
            error = ((call(*values.values()).double() - exact) / size).abs().nan_to_num(nan=math.inf)
            rms, worst = float(error.square().mean(-1).sqrt().max()), float(error.max())
            if rms > RMS or worst > WORST:
                found.append(f"{case.name} b {case.b} s {case.s}: rms {rms:.3g}, worst {worst:.3g}")
    return found


def padded(values: dict[str, Any]) -> dict[str, Any]:
    """The same contents with memory behind them, which a kernel that reads too far finds."""
    import torch

    def one(tensor: torch.Tensor) -> torch.Tensor:
        behind = torch.zeros(PAD * 8 * 128, dtype=tensor.dtype)
        return torch.cat([tensor.flatten(), behind])[: tensor.numel()].view(tensor.shape)

    return {name: one(v) if isinstance(v, torch.Tensor) else v for name, v in values.items()}


def interpret(task: str) -> dict[str, list[str]]:
    """Mistakes of each version. The interpreter knows no assembly."""
    import numpy as np

    exact_products()
    found = {}
    poison()
    for version in versions(task):
        module = module_at(kernel_of(task, version))
        vars(module).update({name: lambda *_: None for name in UNKNOWN})
        with np.errstate(all="ignore"):
            found[version] = mistakes(task, getattr(module, task))
    return found


def compiled(task: str) -> dict[str, list[tuple[str, int, int, int]]]:
    """Name, shared memory, stack and local memory of every kernel that each version launches for two shapes."""
    made, found = compiling(), {}
    for version in filter(lambda v: compiles(task, v), versions(task)):
        made.clear()
        entry = getattr(module_at(kernel_of(task, version)), task)
        for b, s in ((8, 8192), (40, 1001)):
            entry(*shapes(task, b, s))
        found[version] = [(k.name, k.metadata.shared, *usage(k.asm["cubin"])) for k in made.values()]
    return found


def shapes(task: str, b: int, s: int) -> tuple[Any, ...]:
    """Arguments without memory."""
    import torch

    q = torch.empty(b, 32, 128, dtype=torch.bfloat16, device="meta")
    if task == "decode_attention":
        k = torch.empty(b, 8, s, 128, dtype=torch.bfloat16, device="meta")
        return q, k, k, 0.1
    cache = torch.empty(b * -(-s // 16) + 3, 16, 8, 128, dtype=torch.bfloat16, device="meta")
    table = torch.empty(b, -(-s // 16), dtype=torch.int32, device="meta")
    return q, cache, cache, table, torch.empty(b, dtype=torch.int32, device="meta"), 0.1


if __name__ == "__main__":
    print(json.dumps({"interpret": interpret, "compile": compiled}[sys.argv[1]](*sys.argv[2:])))
