"""One case from entry to plan, with torch on the CPU and a GPU that is not there."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.capture import case as cases
from keepfast.capture import load
from keepfast.capture.arena import Arena
from keepfast.capture.calls import Calls, CCalls, PythonCalls, Work
from keepfast.capture.case import Case, Made
from keepfast.capture.refusals import Guard, NotAPlan, Refused
from keepfast.gpu import plan as plans
from keepfast.gpu.layout import Given, Layout
from keepfast.gpu.plan import Block, Empty, Node, Segment
from tests.capture.kit import MIB, FakeGpu, laid

torch = pytest.importorskip("torch")

ADD = laid((("x", "float32", (4, 8), False), ("w", "float32", (8,), False)), (("y", "float32", (4, 8)),))
IN_PLACE = laid((("x", "float32", (8,), True), ("at", "int64", (2,), False), Given("eps", "float", value=0.5)), ())


class Room:
    """A worker's case, with what a test wants to look at."""

    def __init__(self, gpu: FakeGpu, arena: Arena, tree: Path) -> None:
        self.gpu, self.arena, self.tree = gpu, arena, tree
        self.again: Callable[[], bool] = lambda: False
        self.work: Work | None = None

    def case(self, sample: bytes = b"") -> Case:
        return Case(self.gpu, self.arena, lambda phase: Guard(self.tree, phase, self.arena.short), sample, lambda: self.again())

    def run(self, source: str, layout: Layout = ADD, calls: int = 3, sample: bytes = b"") -> Made:
        load.write(self.tree, [("kernel.py", source.encode())])
        entry, case = load.python(self.tree, "kernel.py", "kernel"), self.case(sample)
        self.work = case.place(layout, calls)
        made = case.run(self.work, PythonCalls(entry, self.work, self.gpu.tensor, self.arena))
        plans.check(made.plan)
        assert plans.decode(plans.encode(made.plan)) == made.plan
        return made

    def refused(self, source: str, layout: Layout = ADD, calls: int = 3) -> Refused:
        with pytest.raises(Refused) as caught:
            self.run(source, layout, calls)
        return caught.value


@pytest.fixture
def room(gpu: FakeGpu, arena: Arena, tmp_path: Path) -> Room:
    return Room(gpu, arena, tmp_path / "candidate")


PLAIN = """
import card, torch

def kernel(x, w):
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), w.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, w, out=y))
    return y
"""


def test_every_call_has_its_set_its_nodes_and_its_result(room: Room) -> None:
    made = room.run(PLAIN, calls=4)
    plan, work = made.plan, room.work
    assert work is not None
    assert (plan.calls, plan.sets, plan.case, len(plan.nodes)) == (4, work.sets, "c1", 4)
    assert plan.sets % (2 * MIB) == 0
    assert [n.call for n in plan.nodes] == [0, 1, 2, 3]
    for i, node in enumerate(plan.nodes):
        x, w, y = (int.from_bytes(data, "little") for _, data in node.work.parameters)  # type: ignore[union-attr]
        assert (x, w) == (plan.sets + i * ADD.set_bytes, plan.sets + i * ADD.set_bytes + 512)
        assert plan.results[i] == (Segment(y, 128),)
    assert plan.blocks == ()
    assert plan.segments == (Segment(plan.sets, 2 * MIB + 4 * 512),) or len(plan.segments) == 2
    assert made.host_us > 0
    assert room.gpu.eager >= 2, "warm before it is captured"


def test_sets_hold_the_sample_and_are_restored_while_warming(room: Room) -> None:
    sample = bytes(torch.arange(8, dtype=torch.float32).view(torch.uint8).tolist()).ljust(512, b"\0") + (5).to_bytes(8, "little") * 2
    source = """
import card
seen = []

def kernel(x, at, eps):
    assert at.tolist() == [5, 5], "an index that is valid"
    if not card.gpu.capturing:
        assert x.tolist() == list(range(8)), "as it was given"
    def work():
        x.add_(eps)
        at.add_(0)
    card.kernel("add", x.data_ptr(), work=work)
"""
    made = room.run(source, IN_PLACE, 5, sample)
    assert made.plan.results == ((),) * 5
    for i in range(1, 5):
        assert room.gpu.read(made.plan.sets + i * IN_PLACE.set_bytes, len(sample)) == sample


def test_a_case_without_a_sample_is_zeros(room: Room) -> None:
    ctypes.memset(room.arena.block(4 * MIB), 0xFF, 4 * MIB)
    room.arena.free(room.arena.live()[0].address)
    made = room.run(PLAIN)
    assert not any(room.gpu.read(made.plan.sets, 3 * ADD.set_bytes))


CONSTANT = """
import card, torch
table = {}

def kernel(x, w):
    if "t" not in table:
        table["t"] = card.empty((300,), torch.float32).fill_(2.5)
    y = card.empty((4, 8), torch.float32)
    scratch = card.empty((1000,), torch.float32)
    card.kernel("add", table["t"].data_ptr(), scratch.data_ptr(), work=lambda: torch.mul(x, 2.5, out=y))
    card.kernel("scale", scratch.data_ptr(), y.data_ptr())
    return y
"""


def test_what_lives_on_is_restored_and_scratch_is_not(room: Room) -> None:
    plan = room.run(CONSTANT).plan
    assert len(plan.blocks) == 1
    block = plan.blocks[0]
    assert torch.frombuffer(bytearray(block.data), dtype=torch.float32)[:300].eq(2.5).all()
    scratch = [int.from_bytes(n.work.parameters[1][1], "little") for n in plan.nodes[::2]]  # type: ignore[union-attr]
    assert len(set(scratch)) == 3, "calls run in any order: none takes what another one freed"
    assert all(plans.inside(plan.segments, at, 4000) for at in scratch)


def test_memory_freed_inside_a_call_is_not_used_again_inside_it(room: Room) -> None:
    source = """
import card, torch

def kernel(x, w):
    a = card.empty((1000,), torch.float32)
    at = a.data_ptr()
    del a
    b = card.empty((1000,), torch.float32)
    assert at != b.data_ptr()
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", at, b.data_ptr(), y.data_ptr())
    return y
"""
    room.run(source)


def test_memory_made_while_capturing_that_lives_on_is_no_number(room: Room) -> None:
    source = PLAIN.replace("def kernel", "kept = []\ndef kernel").replace(
        "    return y", "    if card.gpu.capturing:\n        kept.append(card.empty((512,), torch.uint8).fill_(7))\n    return y"
    )
    plan = room.run(source, calls=2).plan
    assert [b.data for b in plan.blocks] == [b"\xff" * 512] * 2


def test_a_result_may_be_part_of_a_block(room: Room) -> None:
    source = PLAIN.replace("y = card.empty((4, 8), torch.float32)", "y = card.empty((3, 4, 8), torch.float32)[1]")
    plan = room.run(source).plan
    assert plan.blocks == (), "the rest of it holds nothing that anybody wrote"
    assert [r[0].address % 512 for r in plan.results] == [128] * 3


def test_what_is_freed_while_capturing_was_there_before_and_is_kept(room: Room) -> None:
    """The last output is held until the next call: it lives when the capture begins, and is freed in the middle of it."""
    source = PLAIN.replace("def kernel", "last = []\ndef kernel").replace("    return y", "    last[:] = [y]\n    return y")
    plan = room.run(source, calls=4).plan
    assert len(plan.blocks) == 1
    homes = [r[0].address for r in plan.results]
    assert plan.blocks[0].address not in homes
    assert len(set(homes)) == 4


def test_memory_comes_back_for_the_next_case(room: Room) -> None:
    load.write(room.tree, [("kernel.py", PLAIN.encode())])
    entry = load.python(room.tree, "kernel.py", "kernel")
    places = []
    for _ in range(3):
        case = room.case()
        work = case.place(ADD, 5000)
        calls: Calls | None = PythonCalls(entry, work, room.gpu.tensor, room.arena)
        assert calls is not None
        case.run(replace(work, calls=40), calls)
        calls = None
        case.release(work)
        places.append(work.sets)
    assert len(set(places)) == 1
    assert room.arena.mapped == 64 * MIB


# ------------------------------------------------------------------------------------------------ refused

FAILING = "assert not card.gpu.cut, 'cudaMalloc failed'"


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (("return y", "return y.double()"), "result", "`y`: expected a contiguous float32 tensor of shape (4, 8) on cpu, got a float64"),
        (("return y", "return None"), "result", "expected `y`, got nothing"),
        (("return y", "return x"), "result", "`y`: expected memory of its own, got memory of an argument"),
        (("return y", "return torch.zeros(4, 8)"), "result", "`y`: expected memory of torch's allocator"),
        (("    y = ", "    raise ValueError('no')\n    y = "), "raised", "kernel.py:5: `raise ValueError('no')`: ValueError: no"),
        (("    return y", "    if card.gpu.capturing: raise RuntimeError('CUDA error: operation not permitted when stream is capturing')\n"
          "    return y"), "graph", "kernel.py:7: `if card.gpu.capturing: raise RuntimeError('CUDA error:"),
        (("    return y", "    if card.gpu.capturing: card.gpu.astray = 'kernel.py:9: cuLaunchKernel'\n    return y"), "graph",
         "kernel.py:9: cuLaunchKernel: work on another stream is not joined"),
        (("    return y", "    card.gpu.cut = 'it synchronised'\n    return y"), "graph", "it synchronised"),
        (("    return y", f"    if card.gpu.capturing:\n        card.gpu.cut = 'x'\n        {FAILING}\n    return y"),
         "graph", f"kernel.py:9: `{FAILING}`: AssertionError: cudaMalloc failed"),
        (("    return y", "    card.gpu.fault = 'cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS'\n    return y"), "fault",
         "a kernel failed while the case was called to warm up: cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS"),
        (("    card.kernel(", "    if not card.gpu.capturing: card.kernel("), "nothing", "call 0 launched nothing"),
        (("    card.kernel(", "    if len(card.gpu.nodes) < 2: card.kernel("), "nothing", "call 2 launched nothing"),
        (("    y = card.empty((4, 8)", "    card.empty((1 << 30,)"), "memory", "4,294,967,296 bytes were asked for"),
    ],
)  # fmt: skip
def test_what_cannot_be_captured_says_why(room: Room, change: tuple[str, str], error: str, words: str) -> None:
    found = room.refused(PLAIN.replace(*change))
    assert found.error == error
    assert words in found.detail


def test_an_output_that_is_kept_and_given_again_is_refused(room: Room) -> None:
    source = PLAIN.replace("    y = card.empty((4, 8), torch.float32)", "    y = cache.setdefault(0, card.empty((4, 8), torch.float32))")
    source = source.replace("def kernel", "cache = {}\ndef kernel")
    found = room.refused(source)
    assert (found.error, "`y` of call 1 lies in the memory of `y` of call 0" in found.detail) == ("result", True)
    found = room.refused(source, calls=1)
    assert (found.error, "got memory that was there before" in found.detail) == ("result", True)


def test_a_cache_by_contents_of_arguments_is_found(room: Room) -> None:
    """Memory of an earlier call, handed out again for the same address."""
    source = PLAIN.replace(
        "def kernel(x, w):", "seen = {}\ndef kernel(x, w):\n    if w.data_ptr() in seen:\n        return seen[w.data_ptr()]"
    )
    source = source.replace("    return y", "    seen[w.data_ptr()] = y\n    return y")
    assert room.refused(source).error == "nothing"


def test_what_lives_on_has_a_cap(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MAX_BLOCK_BYTES", 1024)
    found = room.refused(CONSTANT)
    assert (found.error, "live on between calls; a plan can restore 0 MiB" in found.detail) == ("memory", True)


def test_what_a_plan_cannot_say_is_refused(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    def no() -> Any:
        raise NotAPlan("a host node")

    monkeypatch.setattr(room.gpu, "end", no)
    found = room.refused(PLAIN)
    assert (found.error, found.detail) == ("not-a-plan", "a host node")
    assert gc.isenabled()


def test_calls_that_only_join_do_nothing(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.gpu, "end", lambda: (tuple(Node(i, Empty(), ()) for i in range(3)), ()))
    assert room.refused(PLAIN).error == "nothing"


def test_a_plan_that_does_not_hold_together_is_refused(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room.gpu, "end", lambda: (tuple(Node(i, plans.Memset(64, 0, 0, 1, 8, 1), ()) for i in range(3)), ()))
    found = room.refused(PLAIN)
    assert (found.error, found.detail) == ("not-a-plan", "node 0: touches memory that is in no segment")


def test_a_call_is_made_anew_when_something_is_found_to_hold_still(room: Room) -> None:
    asked: list[int] = []
    room.again = lambda: not asked.append(room.gpu.eager)  # type: ignore[func-returns-value]
    room.run(PLAIN)
    assert asked == [1]


# ------------------------------------------------------------------------------------------------ the C ABI


def test_the_c_abi_makes_plans_too(room: Room) -> None:
    def call(words: Any) -> int:
        x, w, y = words[0], words[1], words[2]
        room.gpu.kernel("add", x, w, y, words[5], work=lambda: ctypes.memmove(y, x, 128))
        return 0

    case = room.case(bytes(range(256)) * 4)
    work = case.place(ADD, 3)
    plan = case.run(work, CCalls(call, work, room.arena, room.gpu.stream)).plan
    assert len(plan.results) == len({r[0].address for r in plan.results}) == 3
    for i, node in enumerate(plan.nodes):
        words = [int.from_bytes(data, "little") for _, data in node.work.parameters]  # type: ignore[union-attr]
        assert words == [work.at(i), work.at(i) + 512, plan.results[i][0].address, room.gpu.stream]
    assert isinstance(plan.blocks, tuple)
    assert not any(isinstance(b, Block) for b in plan.blocks)
