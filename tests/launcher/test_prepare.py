"""What a plan prepares: replayed before each launch on weights alone, outside the window, with nothing of the launch before."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.gpu.driver import BLOCK
from keepfast.gpu.layout import Layout, audit
from keepfast.gpu.messages import Audit, Profile, Run, Solo, Time
from keepfast.gpu.plan import Block, Kernel, Memset, Node, Plan, Segment, Work
from tests.launcher.world import FACTOR, Case, N, World, bench, layout, pointer

NONCE = 0x0123456789ABCDEF
PACK_BYTES = 1024  # of a call


def weighed() -> Layout:
    """x, and y as a weight."""
    made = layout()
    given = (replace(g, tensor=replace(g.tensor, role="weight")) if g.tensor and g.name == "y" else g for g in made.given)
    return replace(made, given=tuple(given))


class Places:
    """Addresses of one plan: x, y, the result and what is packed of a call."""

    def __init__(self, case: Case, plan: Plan, pack: int) -> None:
        self.case, self.plan, self._pack = case, plan, pack

    def x(self, call: int) -> int:
        return self.plan.sets + call * self.case.layout.set_bytes

    def y(self, call: int) -> int:
        return self.x(call) + 1536

    def out(self, call: int) -> int:
        return self.plan.results[call][0].address

    def pack(self, call: int) -> int:
        return self._pack + PACK_BYTES * call


def scale(target: int, source: int, name: str = "scale") -> Work:
    given = ((0, pointer(target)), (8, pointer(source)), (16, pointer(N)), (24, struct.pack("<f", FACTOR)))
    return Kernel(0, name, (1, 1, 1), (32, 1, 1), 0, given)


def peek(target: int, elsewhere: int) -> Work:
    given = ((0, pointer(target)), (8, pointer(elsewhere)), (16, pointer(N)), (24, pointer(elsewhere)))
    return Kernel(0, "peek", (1, 1, 1), (32, 1, 1), 0, given)


Makes = Callable[[Places, int], Work]
PACKS: Makes = lambda at, call: scale(at.pack(call), at.y(call))  # noqa: E731
READS: Makes = lambda at, call: peek(at.out(call), at.pack(call))  # noqa: E731


def prepared(case: Case, prepare: Makes | None, *work: Makes, skip: int = 1, blocks: tuple[Block, ...] = ()) -> tuple[int, Plan]:
    """(arena, plan): what each call prepares, and the nodes of each call one after the other."""
    arena, plan = case.plan("scale", skip=skip, blocks=blocks)
    pack = plan.segments[-1].address + 2 * BLOCK
    at = Places(case, plan, pack)
    nodes: list[Node] = []
    for call in range(plan.calls):
        for place, make in enumerate(work):
            nodes.append(Node(call, make(at, call), (len(nodes) - 1,) if place else ()))
    before = tuple(Node(call, prepare(at, call), ()) for call in range(plan.calls)) if prepare else ()
    segments = (*plan.segments, Segment(pack, PACK_BYTES * plan.calls))
    return arena, replace(plan, nodes=tuple(nodes), prepare=before, segments=segments)


def in_call(case: Case, skip: int = 1) -> tuple[int, Plan]:
    """The same work, all of it in the call."""
    return prepared(case, None, lambda at, call: scale(at.out(call), at.y(call)), skip=skip)


def opened(world: World, *plans: Callable[[Case], tuple[int, Plan]], **more: Any) -> Case:
    case = world.case(weighed())
    answer = world.open(case, [make(case) for make in plans], **more)
    assert answer.fault is None, answer.fault
    return case


def honest(case: Case) -> tuple[int, Plan]:
    return prepared(case, PACKS, READS)


# --------------------------------------------------------------------------------------------- right


@pytest.mark.parametrize("run", [Run(0, NONCE, 5), Run(0, NONCE, 5, alone=True), Run(0, NONCE, 3), Run(0, NONCE, 5, verbatim=True)])
def test_every_call_finds_what_was_prepared_from_its_own_weights(world: World, run: Run) -> None:
    case = opened(world, honest)
    ran = world.ask(run)
    assert (ran.fault, ran.unwritten, ran.early, ran.inputs) == (None, (), (), ())
    for call in range(run.calls):
        world.ask(Audit(0, call))
        found, places = world.audited(audit(case.layout).size), audit(case.layout)
        y, out = (found[at : at + 4 * N].view(np.float32) for at in (1536, places.results[0]))
        assert np.array_equal(out, y * np.float32(FACTOR))


def test_prepared_and_done_in_the_call_agree_on_every_launch_of_a_round(world: World) -> None:
    opened(world, honest, lambda case: in_call(case, skip=5))
    timed = world.ask(Time(3, 5, 2))
    assert (timed.fault, timed.odd, timed.differing, timed.unwritten, timed.inputs) == (None, (), 0, 0, 0)
    assert timed.launches == 4 * 4 * 4


def test_it_is_outside_the_clock(world: World) -> None:
    """A millisecond for each call that is packed, and none of it in any time."""
    world.cu.costs["scale_apart"] = 1000.0
    opened(world, lambda case: prepared(case, lambda at, call: scale(at.pack(call), at.y(call), "scale_apart"), READS), in_call, rms=1e-5)
    assert world.ask(Solo(0, 5, 3)).ms < 1
    timed = world.ask(Time(3, 5, 2))
    assert timed.subject_ms < 1
    assert timed.odd == ()
    profiled = world.ask(Profile(0))
    assert [k.name for k in profiled.kernels] == ["peek"], "nor in any share of it"


def test_weights_come_then_prepare_then_inputs_then_the_window(world: World) -> None:
    case = opened(world, honest)
    world.ask(Run(0, NONCE, 5))
    arm = bench(world).case.arms[0]
    world.cu.log.clear()
    world.ask(Run(0, NONCE, 5))
    named = {id(arm.prepared[0]): "prepare", id(arm.chains[5][0]): "calls"}
    found = [what[0] if kind == "launch" else named[id(what[0])] for kind, *what in world.cu.log if kind in ("launch", "graph")]
    kernels = [name for name in found if name in ("give", "poison", "wash", "scrub", "prepare", "calls")]
    assert kernels[:7] == ["give", "prepare", "give", "poison", "wash", "scrub", "calls"]
    assert len(case.layout.tensors) == 2


def test_a_plan_that_prepares_nothing_is_launched_as_ever(world: World) -> None:
    opened(world, in_call)
    world.cu.log.clear()
    assert world.ask(Run(0, NONCE, 5)).fault is None
    assert [what[0] for kind, *what in world.cu.log if kind == "launch"][:3] == ["sentinel", "give", "poison"]
    assert bench(world).case.arms[0].prepared == ()


def test_blocks_are_restored_before_it_and_may_be_filled_by_it(world: World) -> None:
    """`scale_once` is right while a word of a block is 7, and counts it up: once, in `prepare`."""
    counter = Block(1024, (7).to_bytes(4, "little"))

    def once(at: Places, call: int) -> Work:
        made = scale(at.pack(call), at.y(call), "scale_once")
        assert isinstance(made, Kernel)
        return replace(made, parameters=(*made.parameters, (32, pointer(at.plan.segments[0].address + 1024))))

    opened(world, lambda case: prepared(replaced(case), once, READS, blocks=(counter,)))
    for nonce in range(3):
        assert world.ask(Run(0, nonce, 1, keep=True)).unwritten == ()
        world.ask(Audit(0, 0))
        found = world.audited(8192)
        assert np.array_equal(found[4096:5120].view(np.float32), found[1536:2560].view(np.float32) * np.float32(FACTOR))


def replaced(case: Case) -> Case:
    """One call, so that there is one counter."""
    case.calls = 1
    return case


# --------------------------------------------------------------------------------------------- wrong


def test_what_it_makes_of_inputs_is_made_of_poison(world: World) -> None:
    """The cheat: the work on inputs is done in `prepare`, and the call copies it."""
    opened(
        world,
        lambda case: prepared(case, lambda at, call: scale(at.pack(call), at.x(call)), READS, skip=9),
        lambda case: case.plan("scale"),
    )
    timed = world.ask(Time(2, 5, 2))
    assert (timed.differing > 0, len(timed.odd) > 0) == (True, True)
    world.ask(Run(0, NONCE, 5))
    world.ask(Audit(0, 1))
    out = world.audited(8192)[4096:5120].view(np.float32)
    assert np.isnan(out).all()


def test_nothing_is_left_of_the_launch_before(world: World) -> None:
    """The cheat: a call packs its weights for the next launch, which has others; `prepare` does nothing."""
    noop: Makes = lambda at, call: Kernel(0, "noop", (1, 1, 1), (32, 1, 1), 0, ())  # noqa: E731
    opened(world, lambda case: prepared(case, noop, READS, lambda at, call: scale(at.pack(call), at.y(call))), in_call)
    timed = world.ask(Time(2, 5, 2))
    assert timed.unwritten == 3 * 4 * 4 // 2 * 5, "every call of every launch of the subject holds poison"


def test_an_answer_that_is_there_before_the_call_is_poisoned(world: World) -> None:
    """The result depends on weights alone, and `prepare` writes it; the call does nothing."""
    opened(
        world,
        lambda case: prepared(case, lambda at, call: scale(at.out(call), at.y(call)), lambda at, call: peek(at.pack(call), at.y(call))),
    )
    assert world.ask(Run(0, NONCE, 5)).unwritten == (0, 1, 2, 3, 4)


def test_weights_packed_in_place_are_weights_again(world: World) -> None:
    opened(
        world,
        lambda case: prepared(case, lambda at, call: scale(at.y(call), at.y(call)), lambda at, call: scale(at.out(call), at.y(call))),
        in_call,
    )
    timed = world.ask(Time(2, 5, 2))
    assert (timed.inputs, timed.differing) == (0, 0)


def test_what_it_writes_into_inputs_is_gone_and_into_gaps_as_well(world: World) -> None:
    opened(
        world,
        lambda case: prepared(
            case, lambda at, call: Memset(at.x(call), 0, 0x55, 1, 1400, 1), lambda at, call: scale(at.out(call), at.y(call))
        ),
    )
    ran = world.ask(Run(0, NONCE, 5))
    assert (ran.inputs, ran.unwritten) == ((), ())


def test_a_node_that_the_driver_does_not_take_is_named(world: World) -> None:
    case = world.case(weighed())
    wide: Makes = lambda at, call: replace(PACKS(at, call), parameters=((0, pointer(at.pack(call))),))  # noqa: E731
    answer = world.open(case, [prepared(case, wide, READS)])
    assert answer.fault is not None
    assert (answer.fault.kind, answer.fault.arm, "node 5, kernel `scale`" in answer.fault.detail) == ("not-a-plan", 0, True)
