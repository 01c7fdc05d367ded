"""What is done when: order of slots, of executables, of accesses; ratios, by a card whose time is counted."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest

from keepfast.gpu.messages import Odd, Run, Solo, Time
from keepfast.launcher.arm import Arm
from keepfast.launcher.bench import MOST_ODD, Round
from keepfast.launcher.case import Case as OpenCase
from tests.launcher.world import World, bench, opened

PREPARED = ["give", "poison", "wash", "scrub", "|"]
AUDITED = ["give", "keep"]  # one call, into the audit memory


def slots(log: list[tuple[Any, ...]], case: OpenCase) -> list[list[str]]:
    """What happened in each slot, from its sentinel on: names of kernels, "|" for an event, "A0" for the first executable of arm 0."""
    names = {id(graph): f"{letter}{i}" for letter, arm in zip("AB", case.arms, strict=True) for i, graph in enumerate(arm.chains[5])}
    found: list[list[str]] = []
    for kind, *what in log:
        if kind == "launch":
            found += [[]] if what[0] == "sentinel" else []
            found[-1].append(what[0])
        elif found and kind in ("graph", "record"):
            found[-1].append("|" if kind == "record" else names[id(what[0])])
    return found


@pytest.fixture
def timed(world: World) -> list[list[str]]:
    opened(world, "scale", "scale_apart", rms=1e-5)
    case = bench(world).case
    case.build(5)
    world.cu.log.clear()
    assert world.ask(Time(6, 5, 1)).fault is None
    return slots(world.cu.log, case)


def launched(slot: list[str]) -> str:
    (name,) = {s for s in slot if s[0] in "AB"}
    return name


def test_each_launch_is_prepared_and_looked_at(timed: list[list[str]]) -> None:
    assert len(timed) == 7 * 4
    audits = 0
    for number, slot in enumerate(timed):
        after = ["verify", "untouched", *(["keep"] if number % 2 == 0 else ["differ", "rows"])]
        assert slot[:2] == ["sentinel", "|"]
        left = slot[2:]
        for _ in range(4):
            wanted = [*PREPARED, launched(slot), "|", *after]
            assert left[: len(wanted)] == wanted
            left = left[len(wanted) :]
            if left[:2] == AUDITED:
                audits += 1
                assert launched(slot)[0] == "A"
                left = left[2:]
        # What is left is the end of this slot and the start of the next.
        assert left == ["|"] + (["|", "|"] if number < len(timed) - 1 else [])
    assert audits == 1


def test_slots_go_a_b_b_a_or_b_a_a_b(timed: list[list[str]]) -> None:
    names = [launched(slot) for slot in timed]
    blocks = ["".join(n[0] for n in names[i : i + 4]) for i in range(0, 28, 4)]
    assert set(blocks) == {"ABBA", "BAAB"}
    assert {"".join(n[1] for n in names[i : i + 4]) for i in range(0, 28, 4)} == {"0011", "1100"}  # halves take turns


def test_executables_are_made_in_the_order_a_b_b_a(world: World) -> None:
    opened(world, "scale", "scale_apart")
    case = bench(world).case
    world.cu.log.clear()
    case.build(4)
    made = [entry[1] for entry in world.cu.log if entry[0] == "instantiate"]
    assert "".join("A" if graph in case.arms[0].chains[4] else "B" for graph in made) in ("ABBA", "BAAB")
    assert order_of(made[0], case.arms) == order_of(made[1], case.arms) != order_of(made[2], case.arms)
    assert order_of(made[2], case.arms) == order_of(made[3], case.arms)
    case.build(4)
    assert len([e for e in world.cu.log if e[0] == "instantiate"]) == 4


def order_of(graph: Any, arms: list[Arm]) -> list[int]:
    """Calls in the order of an executable, by the parameters of its kernels."""
    places = {arm.rebuilt._parameters[index].kernelParams: arm.plan.nodes[index].call for arm in arms for index in range(5)}
    return [places[node.what.kernelParams] for node in graph.nodes]


def test_the_other_arm_is_closed_while_one_runs(world: World) -> None:
    opened(world, "scale", "scale_apart")
    case = bench(world).case
    world.cu.log.clear()
    world.ask(Time(2, 5, 0))
    owner = {address: arm.index for arm in case.arms for r in arm.mapped.ranges for address, _ in r.mapped}
    open_: set[int] = set()
    launches = 0
    for kind, *what in world.cu.log:
        if kind == "access":
            (open_.add if what[2] else open_.discard)(owner[what[0]])
        if kind == "graph":
            launches += 1
            assert open_ == {next(a.index for a in case.arms if what[0] in a.chains[5])}
    assert launches == 3 * 4 * 4


def test_the_ratio_is_that_of_the_costs(world: World) -> None:
    opened(world, "scale", "scale_apart", rms=1e-5)
    world.cu.costs = {"scale": 20.2, "scale_apart": 20.0, "sentinel": 350.0}
    inside = bench(world)
    inside.clock = inside.slots.clock = world.cu.clock
    timed = world.ask(Time(4, 5, 0))
    assert timed.d == pytest.approx(math.log(1.01))
    assert timed.subject_ms == pytest.approx(0.101)
    assert timed.opponent_ms == pytest.approx(0.1)
    assert timed.host_ratio == pytest.approx(1.0)
    assert timed.sentinel_ms == pytest.approx((0.35, 0.35, 0.35))
    world.cu.host_factor = 1.1
    assert world.ask(Time(1, 5, 0)).host_ratio == pytest.approx(1 / 1.1)


def test_only_the_calls_asked_for_run(world: World) -> None:
    opened(world, "scale", "scale_apart", rms=1e-5)
    world.cu.costs = {"scale": 20.0, "scale_apart": 20.0}
    assert world.ask(Time(1, 2, 1)).subject_ms == pytest.approx(0.04)
    assert world.ask(Solo(0, 3, 4)).ms == pytest.approx(0.06)
    assert world.ask(Run(0, 1, 1)).ms == pytest.approx(0.02)


def test_launches_of_a_slot_and_memory(world: World) -> None:
    case = world.case()
    plans = [case.plan("scale"), case.plan("scale")]
    world.open(case, plans)
    assert bench(world).case.launches == 4
    used = world.cu.total - world.device.memory()[0]
    world.close()
    world.cu.total = used + (256 << 20) + (4 << 20)  # what is left to the driver, and rounding
    assert world.open(case, plans).fault is None
    world.close()
    world.cu.total = 64 << 20
    fault = world.open(case, plans).fault
    assert fault is not None
    assert fault.kind == "memory"
    assert "case small needs" in fault.detail
    assert (world.cu.physical, world.cu.reserved) == ({}, {})


def test_odd_sets_are_remembered_as_if_drawn_from_all() -> None:
    counts = np.zeros(40)
    for seed in range(2000):
        one = Round.__new__(Round)
        one.rng, one.odd, one.seen_odd = Random(seed), [], 0
        for n in range(40):
            one._remember(Odd(n, n))
        counts[[o.nonce for o in one.odd]] += 1
    assert counts.sum() == 2000 * MOST_ODD
    assert counts.min() > 300
    assert counts.max() < 500
