"""`prepare` beside the entry: who is called with what, which graph its work lands in, and what of its memory a plan holds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from keepfast.capture import load, prepare
from keepfast.capture.arena import Arena
from keepfast.capture.calls import PythonCalls
from keepfast.capture.case import Case, Made
from keepfast.capture.prepare import STEP, WEIGHTS, bound
from keepfast.capture.refusals import Guard, Refused
from keepfast.gpu import plan as plans
from keepfast.gpu.layout import Given, Layout
from keepfast.gpu.plan import Kernel, Node, Segment
from tests.capture.kit import FakeGpu, laid

torch = pytest.importorskip("torch")


def weighed(*names: str) -> Layout:
    """x, w, v and a number; those named are weights."""
    made = laid(
        (("x", "float32", (4, 8), False), ("w", "float32", (8,), False), ("v", "float32", (8,), False), Given("eps", "float", value=0.5)),
        (("y", "float32", (4, 8)),),
    )
    given = (replace(g, tensor=replace(g.tensor, role="weight")) if g.tensor and g.name in names else g for g in made.given)
    return replace(made, given=tuple(given))


BOTH = weighed("w", "v")


class Room:
    def __init__(self, gpu: FakeGpu, arena: Arena, tree: Path) -> None:
        self.gpu, self.arena, self.tree = gpu, arena, tree

    def run(self, source: str, layout: Layout = BOTH, mode: str = WEIGHTS, calls: int = 3) -> Made:
        load.write(self.tree, [("kernel.py", source.encode())])
        entry = load.python(self.tree, "kernel.py", "kernel")
        ready = bound(load.beside(self.tree, "kernel.py", prepare.SYMBOL), layout, mode)
        case = Case(self.gpu, self.arena, lambda phase: Guard(self.tree, phase, self.arena.short), b"", lambda: False)
        placed = case.place(layout, calls)
        made = case.run(placed, PythonCalls(entry, placed, self.gpu.tensor, self.arena, ready))
        case.release(placed)
        plans.check(made.plan)
        assert plans.decode(plans.encode(made.plan)) == made.plan
        return made

    def refused(self, source: str, layout: Layout = BOTH, mode: str = WEIGHTS) -> Refused:
        with pytest.raises(Refused) as caught:
            self.run(source, layout, mode)
        return caught.value


@pytest.fixture
def room(gpu: FakeGpu, arena: Arena, tmp_path: Path) -> Room:
    return Room(gpu, arena, tmp_path / "candidate")


PACKED = """
import card, torch

def prepare(w, v):
    both = card.empty((16,), torch.float32)
    card.kernel("scale", w.data_ptr(), v.data_ptr(), both.data_ptr(), work=lambda: torch.cat([w, v], out=both))
    return both

def kernel(x, both, eps):
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), both.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, both[:8] + both[8:] * eps, out=y))
    return y
"""
PLAIN = """
import card, torch

def kernel(x, w, v, eps):
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), w.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, w + v * eps, out=y))
    return y
"""


def words(node: Node) -> tuple[int, ...]:
    assert isinstance(node.work, Kernel)
    return tuple(int.from_bytes(data, "little") for _, data in node.work.parameters)


def names(nodes: tuple[Node, ...]) -> list[tuple[int, str]]:
    return [(n.call, n.work.name) for n in nodes if isinstance(n.work, Kernel)]


def test_weights_are_packed_once_a_call_in_a_phase_of_their_own(room: Room) -> None:
    plan = room.run(PACKED).plan
    assert names(plan.nodes) == [(0, "add"), (1, "add"), (2, "add")]
    assert names(plan.prepare) == [(0, "scale"), (1, "scale"), (2, "scale")]
    packs = []
    for call, (before, after) in enumerate(zip(plan.prepare, plan.nodes, strict=True)):
        at = plan.sets + call * BOTH.set_bytes
        w, v, pack = words(before)
        assert (w, v) == (at + 512, at + 1024)
        assert words(after) == (at, pack, plan.results[call][0].address)
        packs.append(pack)
    assert len(set(packs)) == 3
    assert all(plans.inside(plan.segments, pack, 64) for pack in packs)


def test_what_is_packed_is_not_restored_and_the_capture_leaves_nothing_behind(room: Room) -> None:
    assert room.run(PACKED).plan.blocks == (), "it is filled again for every launch"
    assert room.arena.live() == ()


def test_without_prepare_a_plan_is_what_it_was(room: Room) -> None:
    plan = room.run(PLAIN).plan
    assert plan.prepare == ()
    assert b"prepare" not in plans.encode(plan), "byte for byte"
    named = ["version", "case", "calls", "sets", "images", "nodes", "segments", "results", "blocks"]
    assert list(msgspec.msgpack.decode(plans.encode(plan))) == named


def test_nobody_calls_it_where_the_task_forbids_it(room: Room) -> None:
    source = PLAIN + "\ndef prepare(w):\n    raise RuntimeError('called')\n"
    assert room.run(source, mode="").plan.prepare == ()


def test_a_step_is_a_part_of_every_call(room: Room) -> None:
    source = """
import card, torch

def prepare(x, eps):
    order = card.empty((4,), torch.int32)
    card.kernel("scale", x.data_ptr(), order.data_ptr(), work=lambda: order.zero_())
    return x, order, eps

def kernel(taken, w, v):
    x, order, eps = taken
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", order.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, w + v * eps, out=y))
    return y
"""
    plan = room.run(source, mode=STEP).plan
    assert plan.prepare == ()
    assert names(plan.nodes) == [(c, name) for c in range(3) for name in ("scale", "add")]
    refused = room.refused(source, mode=WEIGHTS)
    assert (refused.error, "`prepare` takes `x`, which has the role `input`" in refused.detail) == ("import", True)


def test_images_of_both_phases_lie_in_one_list(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    ends, images = [], iter([(b"pack .text.scale\0",), (b"other .text.add\0",)])
    real = room.gpu.end

    def end() -> Any:
        nodes, _ = real()
        ends.append(nodes)
        return nodes, next(images)

    monkeypatch.setattr(room.gpu, "end", end)
    plan = room.run(PACKED).plan
    assert plan.images == (b"other .text.add\0", b"pack .text.scale\0")
    assert {n.work.image for n in plan.nodes if isinstance(n.work, Kernel)} == {0}
    assert {n.work.image for n in plan.prepare if isinstance(n.work, Kernel)} == {1}
    assert len(ends) == 2


@pytest.mark.parametrize(
    "returned",
    ["w", "(w, [v, 3], {'deep': (w[:4], None, 'text', True)})", "{}", "w.view(2, 4).t()"],
    ids=["view", "nested", "empty", "strided"],
)
def test_it_may_launch_nothing_and_return_what_it_likes(room: Room, returned: str) -> None:
    source = f"""
import card, torch

def prepare(w, v):
    return {returned}

def kernel(x, packed, eps):
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, 1, out=y))
    return y
"""
    assert room.run(source).plan.prepare == ()


@pytest.mark.parametrize(
    ("body", "error", "said"),
    [
        ("def prepare(w, v):\n    return object()", "result", "`prepare` returned a object"),
        ("def prepare(w, v):\n    return [torch.nn.Parameter(w)]", "result", "`prepare` returned a torch.nn.parameter.Parameter"),
        ("def prepare(w, v):\n    return torch.zeros(4)", "result", "in memory that torch's allocator did not give"),
        ("def prepare(w, n):\n    return w", "import", "`prepare` takes `n`, and the arguments are x, w, v, eps"),
        ("def prepare(w, eps):\n    return w", "import", "`prepare` takes `eps`, which is a number"),
        ("def prepare(*weights):\n    return weights", "import", "it names the arguments that it wants, one by one"),
        ("def prepare(block=64):\n    return block", "import", "`prepare` takes none of the arguments"),
        ("prepare = 3", "import", "`prepare` beside the entry is a int, not a function"),
        ("def prepare(w, v):\n    raise ValueError('no layout for 8')", "raised", "kernel.py:14: `raise ValueError('no layout for 8')`"),
    ],
)
def test_what_it_may_not_be(room: Room, body: str, error: str, said: str) -> None:
    found = room.refused(PLAIN.replace("import card, torch\n", "import card, torch\n" + "\n" * 4) + "\n" + body + "\n")
    assert (found.error, said in found.detail) == (error, True), found.detail


def test_parameters_that_are_no_arguments_keep_their_default(room: Room) -> None:
    source = PACKED.replace("def prepare(w, v):", "def prepare(v, *, w, block=64):\n    assert block == 64")
    assert len(room.run(source).plan.prepare) == 3


def test_the_first_place_is_the_signatures_and_not_the_functions(room: Room) -> None:
    source = PACKED.replace("def prepare(w, v):", "def prepare(v, w):")
    assert words(room.run(source).plan.prepare[0])[0] % 4096 == 512


def test_an_answer_in_what_was_packed_is_none(room: Room) -> None:
    source = (
        PACKED.replace("(16,)", "(4, 8)")
        .replace("torch.cat([w, v], out=both)", "both.zero_()")
        .replace("torch.add(x, both[:8] + both[8:] * eps, out=y)", "y.zero_()")
    )
    found = room.refused(source.replace("return y", "return both"))
    assert (found.error, "memory allocated during the call" in found.detail) == ("result", True)


STALE = """
import card, torch
known = {}

def prepare(w, v):
    if "pack" not in known:
        known["pack"] = card.empty((8,), torch.float32)
        card.kernel("scale", w.data_ptr(), known["pack"].data_ptr(), work=lambda: known["pack"].copy_(w))
    return known["pack"]

def kernel(x, pack, eps):
    y = card.empty((4, 8), torch.float32)
    card.kernel("add", x.data_ptr(), pack.data_ptr(), y.data_ptr(), work=lambda: torch.add(x, pack, out=y))
    return y
"""


def test_a_pack_of_earlier_weights_is_an_old_table(room: Room) -> None:
    """It goes into the plan as it was when the call was warm: right for those contents, and wrong for new ones."""
    plan = room.run(STALE).plan
    assert plan.prepare == ()
    assert [len(b.data) for b in plan.blocks] == [512]
    assert words(plan.nodes[0])[1] == plan.blocks[0].address


def test_a_pack_that_is_never_filled_while_capturing_holds_nothing(room: Room) -> None:
    source = PACKED.replace('    card.kernel("scale"', '    if not card.gpu.capturing: card.kernel("scale"')
    plan = room.run(source).plan
    assert (plan.prepare, plan.blocks) == ((), ())
    pack = words(plan.nodes[0])[1]
    assert plans.inside(plan.segments, pack, 64)
    assert not any(Segment(pack, 64).address in range(b.address, b.end) for b in plan.blocks)


@pytest.mark.parametrize("change", ["one call more", "another kernel"])
def test_calls_that_prepare_unlike_are_told(room: Room, change: str) -> None:
    plan = room.run(PACKED).plan
    odd = plan.prepare[1]
    assert isinstance(odd.work, Kernel)
    changes: dict[str, Callable[[], tuple[Node, ...]]] = {
        "one call more": lambda: (*plan.prepare, odd),
        "another kernel": lambda: (plan.prepare[0], replace(odd, work=replace(odd.work, grid=(2, 1, 1))), plan.prepare[2]),
    }
    assert plan.uneven() is None
    assert replace(plan, prepare=changes[change]()).uneven() == 1


def test_what_is_prepared_is_part_of_what_is_the_same_code(room: Room) -> None:
    plan = room.run(PACKED).plan
    assert plan.signature() != replace(plan, prepare=()).signature()
    assert plan.signature(exact_scalars=True) == room.run(PACKED).plan.signature(exact_scalars=True)
    assert len(plan.kernels()) == 6


def test_nodes_of_prepare_are_checked_as_others_are(room: Room) -> None:
    plan = room.run(PACKED).plan
    for wrong in (replace(plan.prepare[0], call=3), replace(plan.prepare[0], after=(1,)), replace(plan.prepare[2], after=(0,))):
        with pytest.raises(plans.PlanError, match="of `prepare`"):
            plans.check(replace(plan, prepare=(*plan.prepare[:2], wrong)))
