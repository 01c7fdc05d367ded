"""Shares of GPU time over a chain, by a card whose time is counted: what waits only where it is looked at, and what overlaps."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from keepfast.gpu.messages import Profile, Profiled
from keepfast.gpu.plan import Block, Kernel, Memset, Node, Plan
from keepfast.launcher import profile
from tests.launcher.world import World, bench, opened

STATE = (Block(1024, bytes(24)),)
COSTS = {"scale": 20.0, "leaf_first": 1.0, "leaf_watched": 1.0, "noop": 4.0}


def profiled(world: World) -> Profiled:
    world.cu.costs = COSTS
    found = world.ask(Profile(0))
    assert isinstance(found, Profiled)
    assert found.fault is None
    return found


def shares(found: Profiled) -> dict[str, float]:
    return {k.name: k.share for k in found.kernels}


def test_shares_of_kernels_and_of_what_is_none(world: World) -> None:
    case = world.case()
    arena, made = case.plan("scale")
    noop = Kernel(0, "noop", (1, 1, 1), (64, 1, 1), 0, ())
    nodes: list[Node] = []
    for scale in made.nodes:
        at, call = len(nodes), scale.call
        clear = Memset(made.results[call][0].address, 0, 0, 4, 1, 1)
        nodes += [scale, Node(call, noop, (at,)), Node(call, clear, (at + 1,)), Node(call, noop, (at + 2,))]
    assert world.open(case, [(arena, replace(made, nodes=tuple(nodes)))]).fault is None
    found = profiled(world)
    scale_, noops = found.kernels
    assert noops.launches == 2
    assert (scale_.share, noops.share) == (pytest.approx(20 / 29), pytest.approx(8 / 29))
    assert found.call_us == pytest.approx(29)
    assert found.room_us == pytest.approx(1.1 * 29 + 4 * 0.5)  # the timed chain, and what events cost


def test_what_happens_in_the_first_call_of_a_launch_does_not_count(world: World) -> None:
    opened(world, "leaf_first+scale", blocks=STATE)
    found = profiled(world)
    assert shares(found) == {"leaf_first": pytest.approx(1 / 21), "scale": pytest.approx(20 / 21)}
    assert found.call_us == pytest.approx(21)


def test_the_first_call_would_count_if_it_alone_was_looked_at(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "NODES", 2)
    monkeypatch.setattr(profile, "LEAST", 1)
    opened(world, "leaf_first+scale", blocks=STATE)
    assert shares(profiled(world))["leaf_first"] > 0.8


def test_what_waits_only_while_it_is_watched_takes_time_that_is_not_there(world: World) -> None:
    opened(world, "leaf_watched+scale", blocks=STATE)
    found = profiled(world)
    assert shares(found)["leaf_watched"] > 0.8
    assert found.call_us == pytest.approx(121)
    assert found.room_us == pytest.approx(1.1 * 21 + 2 * 0.5)


def side_by_side(made: Plan, early: bool = False) -> Plan:
    """Two kernels a call that depend on nothing, or of which the second may start early."""
    nodes = [replace(n, after=n.after if early else (), early=n.after if early else ()) for n in made.nodes]
    return replace(made, nodes=tuple(nodes))


@pytest.mark.parametrize("early", [False, True])
def test_kernels_that_may_overlap_have_the_room_that_they_have_one_after_the_other(world: World, early: bool) -> None:
    case = world.case()
    arena, made = case.plan("scale+noop")
    assert world.open(case, [(arena, side_by_side(made, early))]).fault is None
    found = profiled(world)
    assert found.call_us == pytest.approx(24)
    assert found.room_us == pytest.approx(1.1 * 24 + 2 * 0.5)


def test_kernels_that_overlap_fit_side_by_side_into_the_chain_that_is_timed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this card nothing overlaps, so a chain that is half as long stands for one in which they do."""
    case = world.case()
    arena, made = case.plan("scale+scale")
    assert world.open(case, [(arena, side_by_side(made))]).fault is None
    launched = profile.Watch._launched
    monkeypatch.setattr(profile.Watch, "_launched", lambda self, made: [*(ms := launched(self, made))[:-1], ms[-1] / 2])
    found = profiled(world)
    assert (found.call_us, found.room_us) == (pytest.approx(40), pytest.approx(1.1 * 40 + 2 * 0.5))
    monkeypatch.setattr(profile.Watch, "_launched", lambda self, made: [*(ms := launched(self, made))[:-1], ms[-1] / 8])
    assert profiled(world).room_us == pytest.approx(1.1 * 10 + 2 * 0.5)


def test_nothing_is_left_and_no_more_is_watched_than_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "NODES", 14)
    opened(world, "scale+noop", calls=9)
    world.cu.log.clear()
    profiled(world)
    sizes = {len(what[0].nodes) for kind, *what in world.cu.log if kind == "graph"}
    assert sizes == {7 * (2 + 2 * 2), 9 * 2}
    assert world.cu.executables == 1
    assert bench(world).case.arms[0].passing == []
