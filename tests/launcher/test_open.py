"""Opening a case: what is mapped where, and what is refused before anything is."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from keepfast.gpu.driver import BLOCK, RESERVE
from keepfast.gpu.layout import up
from keepfast.gpu.messages import Fault, Run, Time
from keepfast.gpu.plan import Plan, Segment
from tests.launcher import fake
from tests.launcher.world import ARENA_BYTES, World, bench, layout, opened, tensor

Change = Callable[[Any], Any]


def test_arms_share_their_pages(world: World) -> None:
    """What one arm writes into its sets, or into its nth other page, the other finds at the same place of its own."""
    opened(world, "scale", "scale_apart")
    first, second = bench(world).case.arms
    case = bench(world).case
    others = [[r for r in arm.mapped.ranges[0].mapped if r[0] != arm.plan.sets] for arm in (first, second)]
    for a, b in ((first.plan.sets, second.plan.sets), *((x[0], y[0]) for x, y in zip(*others, strict=False))):
        case.only(first)
        world.device.write(a + 4096, b"from the first")
        case.only(second)
        assert world.device.read(b + 4096, 14) == b"from the first"


def test_sets_are_on_pages_of_their_own(world: World) -> None:
    opened(world, "scale", "scale_apart")
    case = bench(world).case
    case.only(case.arms[0])
    world.device.write(case.arms[0].plan.sets, b"sets")
    others = [run for run in case.arms[0].mapped.ranges[0].mapped if run[0] != case.arms[0].plan.sets]
    assert others
    assert all(world.device.read(address, 4) != b"sets" for address, _ in others)


def test_reservations_are_rounded_and_only_what_is_needed_is_mapped(world: World) -> None:
    opened(world, "scale")
    (arm,) = bench(world).case.arms
    assert all(r.base % RESERVE == r.size % RESERVE == 0 for r in arm.mapped.ranges)
    assert sum(size for r in arm.mapped.ranges for _, size in r.mapped) == 3 * BLOCK
    assert set(arm.mapped.runs) == {Segment(arm.plan.sets - BLOCK, 2 * BLOCK), Segment(arm.plan.sets + 2 * BLOCK, BLOCK)}


def test_memory_of_ours_lies_where_no_arena_is_and_elsewhere_each_time(world: World) -> None:
    places = set()
    for seed in (1, 2):
        opened(world, "scale", seed=seed)
        case = bench(world).case
        places |= {case.own["kept"], case.audit.address}
        assert all(not arena <= at < arena + ARENA_BYTES for arena in case.order.arenas for at in case.own.values())
    assert len(places) == 4


def test_everything_is_given_back(world: World) -> None:
    opened(world, "scale", "scale_apart", kind="gpu")
    world.ask(Time(1, 3, 0))
    world.ask(Run(0, 1, 5, alone=True))
    assert world.cu.executables == 4 + 5
    world.close()
    assert (world.cu.physical, world.cu.reserved, world.cu.executables) == ({}, {}, 0)


def test_facts_of_both_arms(world: World) -> None:
    case = world.case()
    found = world.open(case, [case.plan("scale"), case.plan("scale_apart")])
    assert found.ready_s > 0
    assert [[k.name for k in arm] for arm in found.kernels] == [["scale"], ["scale_apart"]]
    assert (found.audit_bytes, found.l2_bytes) == (4096 + 1024, 1 << 16)  # of a memfd: what was asked for
    assert world.open(case, [case.plan("scale")], kind="gpu").audit_bytes == BLOCK  # exported: a whole allocation


# --------------------------------------------------------------------------------------------- refusals


def refused(world: World, change: Change, what: str = "plan") -> Fault:
    """The fault when a part of Open is changed; nothing stays mapped, and the next Open is fine."""
    case = world.case()
    arena, made = case.plan("scale")
    plans = [(arena, change(made) if what == "plan" else made), case.plan("scale")]
    order, fds = world.order(case, plans)
    if what == "order":
        order = change(order)
    if what == "fds":
        fds = change(fds)
    fault = world.server.answer(order, fds).record.fault  # type: ignore[union-attr]
    assert fault is not None
    assert (world.cu.physical, world.cu.reserved) == ({}, {})
    assert world.open(case, [case.plan("scale")]).fault is None
    return fault


def shifted(made: Plan, by: int) -> Plan:
    results = tuple(tuple(replace(r, address=r.address + by) for r in call) for call in made.results)
    return replace(made, results=results)


PLANS: dict[str, tuple[Change, str]] = {
    "another case": (lambda p: replace(p, case="other"), "plan of case 'other'"),
    "no version": (lambda p: replace(p, version=1), "version 1"),
    "sets not on a page": (lambda p: replace(p, sets=p.sets + 512), "block of whole pages"),
    "sets nowhere": (lambda p: replace(p, sets=p.sets + 64 * BLOCK), "block of whole pages"),
    "memory outside the arena": (
        lambda p: replace(p, segments=(*p.segments, Segment(p.sets + 2 * ARENA_BYTES, 512))),
        "outside its arena",
    ),
    "results of another size": (
        lambda p: replace(p, results=tuple((Segment(r[0].address, 512),) for r in p.results)),
        "1024] are asked for",
    ),
    "results missing": (lambda p: replace(p, results=((),) * p.calls), "are asked for"),
    "results not aligned": (lambda p: shifted(p, 2), "`out` is not aligned"),
    "results among arguments": (
        lambda p: replace(p, results=tuple((Segment(p.sets + 1024 * i, 1024),) for i in range(p.calls))),
        "`out` lies among the arguments",
    ),
    "no image": (lambda p: replace(p, images=(b"scale, but no image",)), "image 0"),
}


@pytest.mark.parametrize("name", PLANS)
def test_plans_that_are_refused(world: World, name: str) -> None:
    change, words = PLANS[name]
    fault = refused(world, change)
    assert (fault.kind, fault.arm) == ("machine" if name == "another case" else "not-a-plan", -1 if name == "another case" else 0)
    assert words in fault.detail


ORDERS: dict[str, tuple[Change, str]] = {
    "overlap": (lambda o: replace(o, arenas=(o.arenas[0], o.arenas[0] + RESERVE)), "overlap"),
    "odd arena": (lambda o: replace(o, arenas=(o.arenas[0] + BLOCK, o.arenas[1])), "multiple of 32 MiB"),
    "tolerances": (lambda o: replace(o, tolerances=()), "0 tolerances for 1 results"),
    "plan sizes": (lambda o: replace(o, plan_bytes=o.plan_bytes[:1]), "1 plans for 2 arms"),
    "longer plan": (lambda o: replace(o, plan_bytes=(o.plan_bytes[0] + 1, o.plan_bytes[1])), "were announced"),
    "no plan": (lambda o: replace(o, plan_bytes=(0, o.plan_bytes[1])), "a plan of 0 bytes"),
    "no draws": (lambda o: replace(o, bank=replace(o.bank, draws=0)), "bank that cannot be"),
    "short bank": (lambda o: replace(o, bank=replace(o.bank, size=o.bank.stride)), "bank that cannot be"),
    "narrow bank": (lambda o: replace(o, bank=replace(o.bank, stride=o.bank.stride - 16)), "bank that cannot be"),
    "other bank": (lambda o: replace(o, bank=replace(o.bank, size=o.bank.size + 16)), "not shared memory of"),
    "no audit": (lambda o: replace(o, audit="gpu"), "4 descriptors came with Open; it needs 3"),
    "overlapping tensors": (
        lambda o: replace(o, layout=replace(o.layout, given=(*o.layout.given, replace(o.layout.given[1], name="z")))),
        "`z` overlaps",
    ),
    "short set": (lambda o: replace(o, layout=replace(o.layout, set_bytes=1024)), "a set of 1024 bytes"),
    "not aligned": (
        lambda o: replace(o, layout=replace(o.layout, given=(replace(o.layout.given[0], tensor=tensor((4,), 8)),))),
        "not aligned",
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_orders_that_are_refused(world: World, name: str) -> None:
    change, words = ORDERS[name]
    fault = refused(world, change, "order")
    assert (fault.kind, fault.arm) == ("machine", -1)
    assert words in fault.detail


def test_descriptors_that_are_refused(world: World) -> None:
    assert "3 descriptors came" in refused(world, lambda fds: fds[:-1], "fds").detail
    small = os.memfd_create("small")
    assert "audit memory of 0 bytes" in refused(world, lambda fds: [*fds[:-1], small], "fds").detail
    os.close(small)


def test_an_address_that_is_taken(world: World) -> None:
    case = world.case()
    plans = [case.plan("scale"), case.plan("scale")]
    taken = fake._mmap(plans[1][0] + 4096, 4096, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | fake.FIXED)
    fault = world.open(case, plans).fault
    assert fault is not None
    assert (fault.kind, fault.arm) == ("collision", 1)
    assert "start anew" in fault.detail
    assert (world.cu.physical, world.cu.reserved) == ({}, {})
    fake.libc.munmap(taken, 4096)
    assert world.open(case, plans).fault is None


def test_no_memory_left_in_spite_of_the_count(world: World) -> None:
    case = world.case()
    world.cu.refusals["cuMemCreate"] = lambda size, *_: 2 if size == BLOCK else 0
    fault = world.open(case, [case.plan("scale")]).fault
    assert fault is not None
    assert (fault.kind, fault.arm) == ("memory", -1)


def test_a_second_open_without_close(world: World) -> None:
    case = opened(world, "scale")
    order, fds = world.order(case, [case.plan("scale")])
    opened(world, "scale")
    assert "Close comes before" in world.server.answer(order, fds).record.fault.detail  # type: ignore[union-attr]


def test_many_calls_and_sets_of_more_than_a_page(world: World) -> None:
    case = world.case(replace(layout(), set_bytes=8192), calls=300)
    arena, made = case.plan("scale")
    assert world.open(case, [(arena, made), case.plan("scale_apart", calls=290)], rms=1e-5).fault is None
    assert up(8192 * 300, BLOCK) == 2 * BLOCK
    for arm, calls in ((0, 300), (1, 290)):
        ran = world.ask(Run(arm, 5, calls, keep=arm == 0, against=arm == 1))
        assert (ran.inputs, ran.unwritten, ran.odd) == ((), (), ())
    assert world.ask(Run(1, 5, 300)).fault.kind == "machine"
    assert world.ask(Time(1, 290, 289)).odd == ()
