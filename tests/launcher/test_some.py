"""Chains of some of the calls: who does the work of others, in advance or afterwards, is seen however well it tells chains from calls."""

from __future__ import annotations

import pytest

from keepfast.gpu.messages import Run, Time
from keepfast.gpu.plan import Block
from keepfast.launcher.bench import Bench
from tests.launcher.world import World, layout, opened

NONCE = 0x0123456789ABCDEF
STATE = (Block(1024, bytes(24)),)


def some(world: World, sizes: tuple[int, ...], **more: bool) -> list[tuple[int, int]]:
    """(sets touched, sets unwritten) of chains of so many calls."""
    found = [world.ask(Run(0, NONCE, 8, some=size, **more)) for size in sizes]
    assert all(ran.fault is None for ran in found)
    return [(len(ran.early), len(ran.unwritten)) for ran in found]


@pytest.mark.parametrize(("kernel", "written"), [("scale", False), ("add_to", True)])
def test_an_honest_call_leaves_the_others_as_they_were(world: World, kernel: str, written: bool) -> None:
    opened(world, kernel, calls=8, made=layout(written=written))
    assert world.ask(Run(0, NONCE, 8, keep=True)).fault is None
    for size in (1, 4, 7):
        ran = world.ask(Run(0, NONCE, 8, some=size, against=True))
        assert (ran.fault, ran.early, ran.unwritten, ran.inputs, ran.odd, ran.identical) == (None, (), (), (), (), True)
    assert world.cu.executables == 1  # the chain of all: the others are gone


def test_work_that_is_done_in_advance_only_in_a_chain(world: World) -> None:
    opened(world, "scale_ahead", calls=8, blocks=STATE)
    assert world.ask(Run(0, NONCE, 8, alone=True)).early == ()  # it tells by the time between calls
    assert world.ask(Run(0, NONCE, 8)).unwritten == ()
    assert some(world, (4, 5, 7)) == [(4, 0), (3, 0), (1, 0)]


def test_work_that_is_put_off_is_left_undone_in_one_of_two_sizes(world: World) -> None:
    opened(world, "scale_in_pairs", calls=8, blocks=STATE)
    assert world.ask(Run(0, NONCE, 8)).unwritten == ()
    assert some(world, (4, 5)) == [(0, 0), (0, 1)]


def test_a_written_argument_of_a_call_that_did_not_run(world: World) -> None:
    """All that is known of it is that it must be as it was given."""
    case = world.case(layout(written=True), calls=8)
    arena, made = case.plan("scale_all")  # writes to the results' place, which here is nobody's
    assert world.open(case, [(arena, made)]).fault is None
    assert some(world, (4,)) == [(0, 0)]


def test_results_are_compared_with_those_of_the_whole_chain(world: World) -> None:
    opened(world, "scale", "scale_apart", calls=8)
    world.ask(Run(0, NONCE, 8, keep=True))
    ran = world.ask(Run(1, NONCE, 8, some=5, against=True))
    assert len(ran.odd) == 5


@pytest.mark.parametrize(
    ("order", "words"),
    [
        (Run(0, NONCE, 8, some=8), "a chain of 8 of 8 calls"),
        (Run(0, NONCE, 8, some=-1), "a chain of -1 of 8 calls"),
        (Run(0, NONCE, 8, some=3, alone=True), "not alone"),
        (Run(0, NONCE, 8, some=3, keep=True), "not kept"),
        (Time(2, 8, 0, some=8), "a chain of 8 of 8 calls"),
    ],
)
def test_what_cannot_be_asked(world: World, order: Run | Time, words: str) -> None:
    opened(world, "scale", "scale_apart", calls=8)
    fault = world.ask(order).fault
    assert (fault.kind, fault.arm) == ("machine", -1)
    assert words in fault.detail


# --------------------------------------------------------------------------------------------- while timed


def test_a_round_with_a_chain_of_some_times_no_more_than_one_without(world: World) -> None:
    opened(world, "scale", "scale_apart", calls=8, rms=1e-5)
    plain, timed = world.ask(Time(3, 8, 2)), world.ask(Time(3, 8, 2, some=5))
    assert (timed.fault, timed.early, timed.unwritten, timed.inputs, timed.odd) == (None, 0, 0, 0, ())
    assert timed.launches == plain.launches + 8
    assert (len(timed.pairs), timed.d) == (3, pytest.approx(plain.d))


@pytest.mark.parametrize(("kernel", "some", "fields"), [("scale_ahead", 5, ("early", 3)), ("scale_in_pairs", 5, ("unwritten", 1))])
def test_what_is_shared_while_timed(world: World, kernel: str, some: int, fields: tuple[str, int]) -> None:
    opened(world, kernel, "scale", calls=8, rms=1e-5, blocks=STATE)
    assert world.ask(Time(3, 8, 2)).early == 0
    timed = world.ask(Time(3, 8, 2, some=some))
    assert timed.fault is None
    assert getattr(timed, fields[0]) == fields[1]


def test_the_launch_of_some_is_one_of_a_slot_like_any_other(world: World) -> None:
    opened(world, "scale", "scale_apart", calls=8, rms=1e-5)
    bench: Bench | None = world.server.bench
    assert bench is not None
    world.cu.log.clear()
    assert world.ask(Time(3, 8, 2, some=5)).fault is None
    graphs = [(i, what[0]) for i, (kind, *what) in enumerate(world.cu.log) if kind == "graph"]
    sizes = [len(graph.nodes) for _, graph in graphs]
    assert len(graphs) == 4 * 4 * 4 + 8
    assert sorted(set(sizes)) == [5, 8]
    assert sizes.count(5) == 1
    at = sizes.index(5)
    slot = [names(graph, bench) for _, graph in graphs][at // 4 * 4 : at // 4 * 4 + 4]
    assert slot.count("?") == 1
    assert set(slot) == {"A", "?"}


def names(graph: object, bench: Bench) -> str:
    found = [letter for letter, arm in zip("AB", bench.case.arms, strict=True) if graph in arm.chains[8]]
    return found[0] if found else "?"
