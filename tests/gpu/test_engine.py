"""The engine `transformers` on a card, two layers: graphs on, the kernel counted, stock as fast as stock, and what must be refused is.

One account for all: it also shows that a capture that breaks harms no later one.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from keepfast import stats  # noqa: E402
from keepfast.engine import noise, slots  # noqa: E402
from keepfast.engine.base import AGAIN, STOCK, Account, Cell  # noqa: E402
from keepfast.engine.laps import Times  # noqa: E402
from keepfast.engine.proof import Bounds, prove  # noqa: E402
from keepfast.engine.torch_account import account  # noqa: E402
from keepfast.engine.transformers import Arm, Fill, Plan, TransformersEngine  # noqa: E402
from keepfast.model.proof import Outcome, Why  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

DEVICE = "cuda"
MODEL = (
    '{"architecture": "LlamaForCausalLM", "layers": 2, "hidden": 1024, "heads": 8, "kv_heads": 2, "intermediate": 4096, "vocab": 32000, '
    '"max_position_embeddings": 4096}'
)
DECODE, LONG, PREFILL = Cell("decode", 1024, 1), Cell("decode", 2048, 4), Cell("prefill", 512, 1)
HEAD = """
import torch, triton, triton.language as tl

@triton.jit
def silu_times(gate, up, out, n, turns, away, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    g = tl.load(gate + at, mask=at < n).to(tl.float32)
    u = tl.load(up + at, mask=at < n).to(tl.float32)
    lost = g
    for _ in range(turns):
        lost = tl.sin(lost)
    made = (g * tl.sigmoid(g)).to(out.dtype.element_ty).to(tl.float32) * u + lost * 1e-30
    tl.store(out + at + away, made.to(out.dtype.element_ty), mask=at < n)

def launch(gate, up, turns=0, away=0):
    out = torch.empty_like(gate)
    n = out.numel()
    silu_times[(triton.cdiv(n, 1024),)](gate, up, out, n, turns, away, BLOCK=1024)
    return out

def kernel(gate, up):
"""
BODIES = {
    "waits": "    gate.sum().item()\n    return launch(gate, up)\n",
    "stops": "    torch.cuda.synchronize()\n    return launch(gate, up)\n",
    "raises": "    raise ValueError('no such block')\n",
    "zeros": "    return launch(gate, up) * 0\n",
    "slow": "    return launch(gate, up, turns=20000)\n",
    "good": "    return launch(gate, up)\n",
    "lost": "    return launch(gate, up, away=1 << 40)\n",
}


def fill(folder: Path, name: str) -> Fill:
    path = folder / f"{name}.py"
    path.write_text(HEAD + BODIES[name])
    return Fill("mlp_activation", str(path), "kernel", slots.kind("mlp_activation").signature, name)


def plan(folder: Path, *names: str, **more: object) -> Plan:
    arms = (Arm(STOCK), Arm(AGAIN), Arm("eager", attention="eager"), *(Arm(name, (fill(folder, name),)) for name in names))
    given = {"model": MODEL, "cells": (DECODE, LONG, PREFILL), "arms": arms, "device": DEVICE, "rounds": 6, "steps": 40, "tokens": 16}
    return Plan(**(given | {"skip": True} | more))


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Account:
    names = [name for name in BODIES if name != "lost"]
    return account(plan(tmp_path_factory.mktemp("kernels"), *names), print)


def reasons(made: Account, arm: str) -> set[Why]:
    return {r.why for r in prove(made, Bounds(), (), arm).reasons}


def test_both_arms_ran_inside_graphs_and_the_kernel_is_counted(found: Account):
    for cell in (DECODE, LONG):
        shares = {g.arm: g.share for g in found.graphs if g.cell == cell.name}
        assert set(shares) >= {STOCK, AGAIN, "good", "slow"}
        assert min(share or 0.0 for share in shares.values()) >= 0.95, shares
    launches = {(g.cell, g.arm): dict(g.launches) for g in found.graphs}
    assert launches[DECODE.name, "good"]["silu_times"] == launches[PREFILL.name, "good"]["silu_times"] == 2
    assert "silu_times" not in launches[DECODE.name, STOCK]


def test_a_kernel_that_is_right_is_refused_for_nothing_but_its_speed(found: Account):
    proof = prove(found, Bounds(cells=(DECODE.name, LONG.name), worst_cell=0.1, memory=0.05), (), "good")
    assert [(c.name, c.said) for c in proof.checks if c.name != "speed" and c.state != "ok"] == []
    assert {r.why for r in proof.reasons} <= {Why.FASTER, Why.NO_GAIN, Why.CELL_UNSURE, Why.SLOWER, Why.CELL_LOSS}, "its speed is open"
    assert proof.evidence == "engine with graphs"


def test_stock_is_as_fast_as_stock(found: Account):
    spreads = noise.measured(found).spreads
    print(spreads)
    assert all(s.sd < 0.03 and abs(s.offset) < 0.02 for s in spreads if s.cell != PREFILL.name), spreads


@pytest.mark.parametrize(
    ("arm", "why"),
    [("slow", Why.SLOWER), ("zeros", Why.OUTPUTS_DIFFER), ("waits", Why.CRASHED), ("stops", Why.CRASHED), ("raises", Why.CRASHED)],
)
def test_what_must_be_refused_is_refused(found: Account, arm: str, why: Why):
    assert prove(found, Bounds(), (), arm).outcome is Outcome.REFUSED
    assert why in reasons(found, arm)


def test_what_broke_says_why_and_an_opponent_that_cannot_be_captured_is_named(found: Account):
    notes = " | ".join(found.notes)
    assert "synchronizing" in next(n for n in found.notes if n.startswith("waits: "))
    assert "ValueError: no such block" in notes
    captured = [g.share for g in found.graphs if (g.cell, g.arm) == (DECODE.name, "eager")]  # where the library's mask can be by now
    assert captured or "arm eager left out: decode 1024 x 1: RuntimeError: called a synchronizing" in notes


def test_a_replay_takes_what_its_kernels_take(found: Account):
    """Events against CUPTI: a step is at least as long as its longest kernels together, and not several times as long."""
    times = Times(found, "good")
    kernels = next(sum(s for _, s in g.seconds) for g in found.graphs if (g.cell, g.arm) == (LONG.name, STOCK))
    assert 0.8 < times.typical(LONG.name, STOCK) / kernels < 4.0
    slow = Times(found, "slow")
    assert stats.mean(slow.ratios(DECODE.name)) > math.log(1.2)


def test_peak_memory_is_counted(found: Account):
    peaks = dict(found.peak_bytes)
    assert peaks["good"] <= 1.05 * peaks[STOCK]
    assert peaks[STOCK] > 100 << 20


def test_an_illegal_address_is_the_kernels_verdict(tmp_path: Path):
    made = TransformersEngine(plan(tmp_path, "lost", cells=(DECODE,), rounds=3), limit_s=300, said=print).account(3)
    proof = prove(made, Bounds(cells=(DECODE.name,)), (), "lost")
    assert proof.outcome is Outcome.REFUSED
    assert proof.reasons[0].why is Why.CRASHED, proof.reasons
