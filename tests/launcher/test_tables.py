"""What the kernels read: every byte of a set belongs to one part; results and blocks lie where they are kept."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keepfast.gpu.layout import Given, Layout, up
from keepfast.gpu.messages import Tolerance
from keepfast.gpu.plan import Block
from keepfast.launcher import tables
from tests.launcher.fake import CONTENTS
from tests.launcher.world import layout, tensor

ROLES = ("input", "weight", "scratch", "index", "meta")


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    at, made = 0, []
    for i in range(draw(st.integers(0, 5))):
        at = up(at, draw(st.sampled_from([16, 512])))
        shape = draw(st.lists(st.integers(0, 9), max_size=3))
        more = {
            "role": draw(st.sampled_from(ROLES)),
            "written": draw(st.booleans()),
            "refresh": draw(st.sampled_from(["element", "whole"])),
        }
        made.append(Given(f"t{i}", "tensor", tensor(shape, at, itemsize=draw(st.sampled_from([1, 2, 4, 8])), **more)))
        at += made[-1].tensor.nbytes if made[-1].tensor else 0
    return Layout("small", (), tuple(draw(st.permutations(made))), (), up(at) + draw(st.sampled_from([0, 512])))


@given(layouts())
def test_every_byte_of_a_set_belongs_to_one_part(made: Layout) -> None:
    rows = tables.parts(made)
    at = 0
    for row in rows:
        assert row.offset == at
        assert row.bytes > 0
        at += row.bytes
    assert at == made.set_bytes
    owned = {(r.offset, r.bytes): r for r in rows if r.owner != tables.GAP}
    tensors = [g.tensor for g in made.tensors if g.tensor is not None and g.tensor.nbytes]
    assert set(owned) == {(t.offset, t.nbytes) for t in tensors}
    for t in tensors:
        row = owned[t.offset, t.nbytes]
        assert (row.owner == tables.SCRATCH) == (row.mode == tables.POISON) == (t.role == "scratch")
        if row.mode == tables.MIX:
            assert t.role in ("input", "weight")
            assert t.refresh == "element"
            assert t.nbytes % (16 * row.row) == 0


def test_results_are_kept_one_after_the_other() -> None:
    made = layout(written=True)
    rows, size = tables.results(made, [Tolerance("bfloat16", 64, 0.1, 0.2)])
    assert [(r.bytes, r.place, r.columns, r.kind, r.fresh) for r in rows] == [(1024, 0, 64, 3, 0)]
    assert size == 1024
    rows, size = tables.results(layout(), [Tolerance("int64", 64, 0.0, 0.0)])
    assert (rows[0].kind, rows[0].fresh) == (tables.EXACT, 1)


def test_large_blocks_are_restored_in_pieces() -> None:
    data = np.random.default_rng(0).integers(0, 256, (2 << 20) + 7, np.uint8).tobytes()
    rows, store = tables.blocks([Block(1 << 42, data), Block(1 << 43, b"abc")])
    assert [r.bytes for r in rows] == [1 << 20, 1 << 20, 7, 3]
    assert [r.place % 16 for r in rows] == [0] * 4
    assert b"".join(store[r.place : r.place + r.bytes] for r in rows) == data + b"abc"
    assert [r.address for r in rows] == [1 << 42, (1 << 42) + (1 << 20), (1 << 42) + (2 << 20), 1 << 43]


def test_counters_of_a_launch_do_not_overlap() -> None:
    counts = tables.Counts(300, 3)
    words = np.zeros(counts.words, np.uint32)
    for number, section in enumerate(counts.SECTIONS):
        at = counts.offset(section) // 4
        width = 900 if section == "differ" else 300
        assert not words[at : at + width].any()
        words[at : at + width] = number + 1
    assert counts.offset("differ") // 4 + 900 <= counts.words
    assert counts.read(words, "odd").tolist() == [4] * 300
    assert counts.read(words, "differ").tolist() == [15] * 300


@pytest.mark.parametrize("arch", ["compute_80,code=sm_80", "compute_90a,code=sm_90a"])
def test_our_kernels_compile_without_spills_and_the_scrub_takes_all_registers(arch: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    argv = [nvcc, "-cubin", f"-gencode=arch={arch}", "-Xptxas", "-v", "-o", str(tmp_path / "made.cubin"), str(CONTENTS)]
    said = subprocess.run(argv, capture_output=True, text=True, check=True).stderr
    if "sm_80" in arch and "Unsupported" in said:
        pytest.skip("this nvcc knows no sm_80")
    assert "warning" not in said
    assert set(re.findall(r"(\d+) bytes spill stores", said)) == {"0"}
    registers = dict(re.findall(r"Compiling entry function '(\w+)'.*?Used (\d+) registers", said, re.DOTALL))
    assert int(registers["scrub"]) >= 246
    assert max(int(n) for name, n in registers.items() if name != "scrub") <= 64  # so that 1024 threads fit everywhere
