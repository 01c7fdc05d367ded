"""Arguments of role `meta`: memory of the host, with the values of the sample, the same for all calls of a capture."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from keepfast.capture import load
from keepfast.capture.arena import Arena
from keepfast.capture.calls import CCalls, PythonCalls, Work
from keepfast.capture.case import Case
from keepfast.capture.refusals import Guard
from keepfast.gpu.layout import Layout
from keepfast.gpu.plan import Kernel
from tests.capture.kit import FakeGpu, laid
from tests.capture.test_calls import Called

torch = pytest.importorskip("torch")


def readable() -> Layout:
    made = laid((("x", "float32", (4, 8), False), ("lengths", "int32", (3,), False)), (("y", "float32", (4, 8)),))
    given = tuple(replace(g, tensor=replace(g.tensor, role="meta")) if g.tensor and g.name == "lengths" else g for g in made.given)
    return replace(made, given=given)


LAYOUT = readable()
SAMPLE = bytes(512) + struct.pack("<3i", 5, 6, 70000)
SOURCE = """
import card, torch

def kernel(x, lengths):
    assert lengths.device.type == "cpu" and lengths.dtype == torch.int32
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), y.data_ptr(), *lengths.tolist(), work=lambda: torch.add(x, 1, out=y))
    return y
"""


def test_host_code_reads_the_values_and_chooses_by_them(gpu: FakeGpu, arena: Arena, tmp_path: Path) -> None:
    tree = tmp_path / "candidate"
    load.write(tree, [("kernel.py", SOURCE.encode())])
    case = Case(gpu, arena, lambda phase: Guard(tree, phase, arena.short), SAMPLE, lambda: False)
    work = case.place(LAYOUT, 3)
    made = case.run(work, PythonCalls(load.python(tree, "kernel.py", "kernel"), work, gpu.tensor, arena))
    assert len(made.plan.nodes) == 3
    for node in made.plan.nodes:
        assert isinstance(node.work, Kernel)
        assert [int.from_bytes(data, "little") for _, data in node.work.parameters[2:]] == [5, 6, 70000]


def test_without_a_sample_they_are_zeros(gpu: FakeGpu, arena: Arena) -> None:
    seen: list[list[int]] = []

    def kernel(x: object, lengths: torch.Tensor) -> None:
        seen.append(lengths.tolist())

    PythonCalls(kernel, Work(LAYOUT, 1, arena.block(LAYOUT.set_bytes)), gpu.tensor, arena).launch(0)
    assert seen == [[0, 0, 0]]


def test_in_the_c_abi_the_pointer_is_one_of_the_host(arena: Arena) -> None:
    sets = arena.block(2 * LAYOUT.set_bytes)
    function = Called(2 + 1 + 2 + 1)
    calls = CCalls(function, Work(LAYOUT, 2, sets, SAMPLE), arena, 0x5EED)
    places = []
    for number in range(2):
        calls.launch(number)
        assert function.words[0] == sets + number * LAYOUT.set_bytes
        places.append(function.words[1])
    assert len(set(places)) == 1
    assert not sets <= places[0] < sets + 2 * LAYOUT.set_bytes
    assert list((ctypes.c_int32 * 3).from_address(places[0])) == [5, 6, 70000]
