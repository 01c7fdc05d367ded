"""Latent attention on a GPU, as far as it shows without one: task, reference, kernels interpreted, and their machine code for Hopper.

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

import numpy as np
import pytest
from cardless import compiling, exact_products, module_at, poison, usage

TASK = Path(__file__).parents[2] / "examples" / "gpu" / "mla_decode"
WRONG = ("002-one-scale-a-token", "004-whole-pages")
REFUSED = ("001-let-torch-do-it",)  # right, but against the rules of the task
SHARED_BYTES = 232448  # that a block may have on Hopper
UNKNOWN = ("gdc_wait", "gdc_launch_dependents")  # to the interpreter: they order or hasten, and compute nothing
VERSIONS = ["start", *sorted(p.name for p in (TASK / "deck").iterdir())]
RIGHT = [v for v in VERSIONS if v not in (*WRONG, *REFUSED)]
Values = dict[str, Any]


def kernel_of(version: str) -> Path:
    return TASK / ("" if version == "start" else f"deck/{version}") / "kernel/kernel.py"


def has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None and importlib.util.find_spec("triton") is not None


needs_torch = pytest.mark.skipif(not has_torch(), reason="needs torch and triton")


# ------------------------------------------------------------------------------------------------ the task


def test_the_task_loads_and_its_limits_are_what_must_be_done() -> None:
    from keepfast.expr import parse
    from keepfast.task.load import load

    found = load(TASK)
    assert found.gpu
    assert (found.rules.cuda_graphs, found.rules.library_kernels, found.prepare) == ("required", "forbidden", "step")
    assert [b.name for b in found.baselines] == ["compiled", "eager", "flashmla"]
    assert {a.name: a.role for a in found.arguments if a.role != "input"} == {"block_table": "index", "lengths": "index", "scale": "meta"}
    for case in found.cases:
        axes = dict(case.axes)
        heads = axes["b"] * 128
        least = 656 * axes["tokens"] + heads * (2 * 576 + 2 * 512 + 4)
        assert least <= parse(found.limit.bytes, list(axes)).value(axes) <= least * 1.01, case.name
        assert parse(found.limit.flops, list(axes)).value(axes) == 2 * 128 * axes["tokens"] * (576 + 512), case.name


def test_cases_span_what_serving_asks_for() -> None:
    from keepfast.task.load import load

    cases = {c.name: dict(c.axes) for c in load(TASK).cases if c.timed}
    assert {a["b"] for a in cases.values()} >= {1, 8, 64}
    assert {a["s"] for a in cases.values()} >= {1024, 8192, 65536}
    assert any(c.use == "correct" and dict(c.axes)["s"] % 64 for c in load(TASK).cases)


def test_the_deck_is_numbered_and_its_tunables_are_valid() -> None:
    from keepfast.task import tunables

    assert [v[:4] for v in VERSIONS[1:]] == [f"{i:03}-" for i in range(1, len(VERSIONS))]
    for version in VERSIONS:
        path = kernel_of(version).with_name("tunables.toml")
        if path.exists():
            space = tunables.parse(path.read_text())
            assert space.valid({t.name: t.value for t in space.tunables}) is None, version
            used = re.search(r"from keepfast_tunables import (.*)", kernel_of(version).read_text())
            assert used is not None
            assert sorted(used[1].split(", ")) == sorted(t.name for t in space.tunables)


@needs_torch
def test_the_task_can_be_judged() -> None:
    import torch

    from keepfast.oracle.lint import Linter
    from keepfast.oracle.reference import Reference
    from keepfast.task.load import load

    found = load(TASK)
    sizes = [(c, 656 * dict(c.axes)["b"] * dict(c.axes)["s"]) for c in found.cases]
    report = Linter(Reference(found, torch.device("cpu"))).run(sizes)
    assert report.error == ""
    assert len(report.mutants) > 16


# ------------------------------------------------------------------------------------------------ the reference


@needs_torch
def test_the_bytes_of_a_token_are_read_as_the_format_says() -> None:
    """By a reader of its own, byte by byte, that knows only the table in README.md."""
    import torch

    reference = module_at(TASK / "reference.py")
    values = reference.inputs(case_of("odd", 1, 70), torch.Generator().manual_seed(3))
    tokens = values["cache"].flatten(0, 1)[:50]
    keys = reference.widened(tokens, torch.float64).numpy()
    for row, raw in zip(keys, tokens.numpy(), strict=True):
        scales = raw[512:528].copy().view("<f4")
        assert all(math.frexp(float(s))[0] == 0.5 for s in scales)
        latent = [e4m3(int(code)) * float(scales[i // 128]) for i, code in enumerate(raw[:512])]
        rope = (raw[528:].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)
        assert row.tolist() == [*latent, *rope.astype(float).tolist()]
    assert len({float(s) for raw in tokens.numpy() for s in raw[512:528].copy().view("<f4")}) > 2


def e4m3(code: int) -> float:
    sign, exponent, fraction = code >> 7, code >> 3 & 15, code & 7
    size = math.ldexp(fraction, -9) if exponent == 0 else math.ldexp(8 + fraction, exponent - 10)
    return -size if sign else size


@needs_torch
def test_the_reference_is_the_mathematics_of_the_model_page() -> None:
    """Queries and cache rows as the page's tested code makes them: `out`, through the last projections, is the same result."""
    import torch

    from keepfast.context.models import mla

    rng = np.random.default_rng(8)
    hidden, heads, plain, rope, latent = 24, 128, 128, 64, 512

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape) / math.sqrt(shape[0])

    weights = mla.Weights(
        normal(hidden, 16), np.ones(16), normal(16, heads, plain + rope), normal(hidden, latent + rope), np.ones(latent),
        normal(latent, heads, plain), normal(latent, heads, 8), normal(heads, 8, hidden),
    )  # fmt: skip
    freq = 1.0 / 10000 ** (np.arange(rope // 2) / (rope // 2))
    reference = module_at(TASK / "reference.py")
    x = rng.standard_normal((70, hidden))
    rows = torch.from_numpy(np.stack([mla.cache_row(each, weights, i, freq) for i, each in enumerate(x)]))
    pages = torch.zeros(2, 64, 576, dtype=torch.float64)
    pages.view(128, 576)[:70] = rows
    stored = reference.quantised(pages[..., :512].unflatten(-1, (4, 128)).float(), pages[..., 512:].bfloat16())
    kept = reference.widened(stored.flatten(0, 1)[:70], torch.float64)
    query = torch.from_numpy(mla.query(x[-1], weights, 69, freq))[None]
    given = (torch.tensor([[0, 1]], dtype=torch.int32), torch.tensor([70], dtype=torch.int32))
    out, _ = reference.reference(query, stored, *given, 1 / math.sqrt(plain + rope))
    answer = np.einsum("hr,rhv,hvm->m", out[0].numpy(), weights.uv, weights.o)
    assert np.allclose(answer, mla.decode(x[-1], kept.numpy(), weights, 69, freq), rtol=1e-9, atol=1e-12)
    assert 0 < float((kept - rows).abs().max() / rows.abs().max()) <= 2**-4  # half a step of three bits


@needs_torch
def test_lse_puts_parts_of_a_context_together() -> None:
    import torch

    reference = module_at(TASK / "reference.py")
    values = reference.inputs(case_of("odd", 1, 128), torch.Generator().manual_seed(4))
    values["q"] = values["q"].double()
    whole, lse = reference.reference(**values)
    parts = [
        reference.reference(**values | {"block_table": values["block_table"][:, i : i + 1], "lengths": values["lengths"] // 2})
        for i in (0, 1)
    ]
    weights = [torch.exp(part[1] - lse)[..., None] for part in parts]
    assert torch.allclose(sum(w * part[0] for w, part in zip(weights, parts, strict=True)), whole)
    assert torch.allclose(sum(weights), torch.ones_like(weights[0]))


# ------------------------------------------------------------------------------------------------ the kernels


@cache
def started(mode: str) -> dict[str, Any]:
    """What this file says as a script about every version, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | {
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        "OMP_NUM_THREADS": "1",
        **({"TRITON_INTERPRET": "1"} if mode == "interpret" else {}),
    }
    done = subprocess.run([sys.executable, __file__, mode], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_torch
@pytest.mark.parametrize("version", VERSIONS)
def test_right_is_right_and_wrong_is_wrong(version: str) -> None:
    wrong = started("interpret")[version]
    assert bool(wrong) == (version in WRONG), wrong


@needs_torch
@pytest.mark.parametrize("version", [v for v in VERSIONS if v not in REFUSED])
def test_kernels_compile_for_hopper_and_fit(version: str) -> None:
    kernels = started("compile")[version]
    assert kernels
    for name, shared, stack, local in kernels:
        assert shared <= SHARED_BYTES, name
        assert max(stack, local) == 0, f"{name} spills"


@needs_torch
def test_baselines_of_torch_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "compile", lambda **_: lambda function: function)  # what would be compiled runs as it is
    for name in ("eager", "compiled"):
        assert mistakes(module_at(TASK / "baselines" / f"{name}.py").kernel) == [], name


@needs_torch
def test_flashmla_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "flash_mla", None)
    with pytest.raises(RuntimeError, match="flash_mla is not installed"):
        module_at(TASK / "baselines/flashmla.py").kernel(*[None] * 5)


@needs_torch
def test_flashmla_is_asked_for_what_the_reference_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a library of the same interface: tokens by index, as many as `topk_length` says, lse with an axis of queries behind the heads."""
    reference = module_at(TASK / "reference.py")

    def decode(q: Any, tokens: Any, table: None, lens: None, wide: int, plan: str, *, indices: Any, **more: Any) -> Any:
        import torch

        assert (wide, plan, more["is_fp8_kvcache"], q.shape[1:], tokens.shape[1:]) == (512, "plan", True, (1, 128, 576), (64, 1, 656))
        picked = tokens.view(torch.uint8).flatten(0, 2)[indices[:, 0].long()].unflatten(1, (-1, 64)).flatten(0, 1)
        table = torch.arange(picked.shape[0], dtype=torch.int32).view(q.shape[0], -1)
        out, lse = reference.reference(q[:, 0], picked, table, more["topk_length"], more["softmax_scale"])
        return out[:, None], lse[..., None]

    library = types.SimpleNamespace(get_mla_metadata=lambda: ("plan", None), flash_mla_with_kvcache=decode)
    monkeypatch.setitem(sys.modules, "flash_mla", library)
    assert mistakes(module_at(TASK / "baselines/flashmla.py").kernel) == []


def test_what_is_refused_is_only_against_the_rules() -> None:
    for version in REFUSED:
        text = kernel_of(version).read_text()
        assert "torch.bmm" in text
        assert "@triton.jit" not in text


# ------------------------------------------------------------------------------------------------ in a process of its own


def case_of(name: str, b: int, s: int) -> types.SimpleNamespace:
    """Lengths are a ramp where there is more than one."""
    return types.SimpleNamespace(name=name, b=b, s=s, tokens=sum(-(-s * (i + 1) // b) for i in range(b)))


def small() -> Iterator[types.SimpleNamespace]:
    """Cases that the interpreter can run."""
    yield from (case_of("one", 1, 1), case_of("ramp", 2, 70), case_of("large", 1, 40))


def mistakes(call: Callable[..., Any]) -> list[str]:
    """What the judge's own comparison has against the answers."""
    import torch

    from keepfast.oracle import compare

    reference, found = module_at(TASK / "reference.py"), []
    limits = compare.Limits(576.0)
    for case in small():
        values = reference.inputs(case, torch.Generator().manual_seed(5))
        working = reference.reference(**values)
        exact = reference.reference(**values | {"q": values["q"].double()})
        got = call(*values.values())
        for name, *each in zip(("out", "lse"), got, working, exact, strict=True):
            if said := compare.judge(name, *each, limits).wrong:
                found.append(f"{case.name} b {case.b} s {case.s}: {said}")
    return found


def interpret() -> dict[str, list[str]]:
    """Mistakes of each version."""
    exact_products()
    found = {}
    poison()
    for version in VERSIONS:
        module = module_at(kernel_of(version))
        vars(module).update({name: lambda *_: None for name in UNKNOWN})
        with np.errstate(all="ignore"):
            found[version] = mistakes(module.mla_decode)
    return found


def compiled() -> dict[str, list[tuple[str, int, int, int]]]:
    """Name, shared memory, stack and local memory of every kernel that each version launches."""
    import torch

    made, found = compiling(), {}
    for version in (v for v in VERSIONS if v not in REFUSED):
        made.clear()
        q = torch.empty(8, 128, 576, dtype=torch.bfloat16, device="meta")
        pages = torch.empty(8 * 128 + 3, 64, 656, dtype=torch.uint8, device="meta")
        table, lengths = (torch.empty(shape, dtype=torch.int32, device="meta") for shape in ((8, 128), (8,)))
        module_at(kernel_of(version)).mla_decode(q, pages, table, lengths, 0.1)
        found[version] = [(k.name, k.metadata.shared, *usage(k.asm["cubin"])) for k in made.values()]
    return found


if __name__ == "__main__":
    print(json.dumps({"interpret": interpret, "compile": compiled}[sys.argv[1]]()))
