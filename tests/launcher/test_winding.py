"""Memory that lives on between calls, as many more calls would leave it: counters, flags, turns, and what is read before it is written."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.gpu.messages import Run, Wind, Wound
from keepfast.gpu.plan import Block
from keepfast.judge.gpu.check import stateful
from keepfast.judge.gpu.stages import Stage
from keepfast.launcher import winding
from keepfast.launcher.winding import SINGLES, Steps, _cyclic, _left, _moved, _stepped
from keepfast.model import Case, Reason
from tests.launcher.world import N, World, bench, layout, opened

NONCE = 0x0123456789ABCDEF
CALLS = 7


def wound(world: World, kernel: str, data: bytes, calls: int = CALLS) -> Wound:
    opened(world, kernel, calls=calls, blocks=(Block(512, b"constants, unaligned in size"), Block(1024, data)))
    assert world.ask(Run(0, NONCE, calls, keep=True)).fault is None
    for _ in range(3):
        assert world.ask(Run(0, NONCE, calls, against=True)).identical  # nothing is seen of it
    found = world.ask(Wind(0, NONCE, calls))
    assert isinstance(found, Wound)
    assert found.fault is None
    assert world.ask(Run(0, NONCE, calls, against=True)).identical  # and all is as before
    return found


def right(found: Wound) -> bool:
    return not any(one.ran.odd or one.ran.unwritten or one.ran.inputs for one in found.ahead)


HONEST = {
    "nothing at all": ("scale", bytes(64), (0, 0, 0)),
    "a barrier by generations": ("scale_generation", bytes(12), (2, 0, 0)),
    "two buffers in turn": ("scale_ping_pong", bytes(8 + 8 * N), (0, 0, 2 * N)),
    "semaphore, ring, workspace": ("scale_workspace", bytes(8 + 4 * N), (0, 0, N)),
}


@pytest.mark.parametrize("name", HONEST)
@pytest.mark.parametrize("calls", [1, CALLS])
def test_honest_memory_may_be_wound_and_overwritten(world: World, name: str, calls: int) -> None:
    kernel, data, (counting, numbered, other) = HONEST[name]
    found = wound(world, kernel, data, calls)
    assert right(found)
    assert (found.counting, found.numbered) == (counting, numbered)
    assert other / 4 <= found.other <= other  # two draws of contents may agree in some
    wanted = [True] * winding.WOUND * (counting > 0) + [False] * len(winding.POISONS) * (other > 0)
    assert [one.wound > 0 for one in found.ahead] == wanted


@pytest.mark.parametrize("kernel", ["scale_for_5000", "scale_for_5000_down", "scale_for_5000_float"])
@pytest.mark.parametrize("calls", [1, CALLS])
def test_a_counter_that_no_launch_brings_to_its_limit(world: World, kernel: str, calls: int) -> None:
    found = wound(world, kernel, bytes(4), calls)
    assert (found.counting, found.numbered, found.other) == (1, 0, 0)
    assert not right(found)
    assert found.ahead[-1].wound * (3 if "down" in kernel else 1) >= 5000 - 2 * SINGLES
    assert len(found.ahead[-1].ran.unwritten) == calls


def test_it_would_not_be_seen_without_winding(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(winding.Winding, "_wind", lambda self, wound, poison: None)
    assert right(wound(world, "scale_for_5000", bytes(4)))


def test_a_counter_that_counts_only_where_calls_follow_each_other_is_overwritten(world: World) -> None:
    found = wound(world, "scale_for_5000_chained", bytes(16))
    assert found.counting == found.numbered == 0
    assert found.other >= 1
    assert not right(found)
    assert found.ahead[-1].wound == 0


def test_a_counter_that_is_no_sum_is_told(world: World) -> None:
    found = wound(world, "scale_for_long", bytes(4))
    assert (found.counting, found.numbered, found.other) == (0, 1, 0)


def test_what_the_call_before_left_must_not_matter(world: World) -> None:
    found = wound(world, "scale_by_last", bytes(4))
    assert (found.counting, found.numbered, found.other) == (0, 0, 1)
    assert len(found.ahead[-1].ran.odd) == 1  # the first call of the chain


def test_contents_that_may_be_the_same_twice_tell_nothing_of_a_counter(world: World) -> None:
    """Two draws that are taken whole: what looks like a counter may come from them, so it is overwritten instead."""
    plain = layout()
    given = tuple(replace(g, tensor=replace(g.tensor, refresh="whole")) for g in plain.given if g.tensor is not None)
    opened(world, "scale_for_long", calls=2, blocks=(Block(1024, bytes(4)),), made=replace(plain, given=given), draws=2)
    assert world.ask(Run(0, NONCE, 2, keep=True)).fault is None
    found = world.ask(Wind(0, NONCE, 2))
    assert (found.counting, found.numbered, found.other, right(found)) == (0, 0, 1, True)


VERDICTS = {
    "scale_generation": "",
    "scale_for_5000": "gives another result after about",
    "scale_for_5000_chained": "is overwritten",
    "scale_by_last": "is overwritten",
    "scale_for_long": "1 words of memory that lives on between calls say how many calls there were",
}


@pytest.mark.parametrize("kernel", VERDICTS)
def test_what_the_judge_makes_of_it(world: World, kernel: str) -> None:
    stage = Stage(Case("small", ()), layout(), CALLS, 4, (0.0, 0.0), ())
    failure = stateful(stage, wound(world, kernel, bytes(16)))
    assert (failure is None) == (VERDICTS[kernel] == "")
    if failure is not None:
        assert failure.reason is Reason.STATEFUL
        assert VERDICTS[kernel] in failure.detail


def test_results_have_to_be_kept_first(world: World) -> None:
    opened(world, "scale", blocks=(Block(1024, bytes(4)),))
    assert "results of 0 calls are kept" in world.ask(Wind(0, NONCE, 5)).fault.detail


def test_blocks_of_several_pieces_are_found_by_word(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The counter is in the third piece of a block; a block of no whole number of words comes before it."""
    monkeypatch.setattr("keepfast.launcher.tables.BLOCK_PIECE", 16)
    opened(world, "scale_for_5000", calls=CALLS, blocks=(Block(896, bytes(71)), Block(992, bytes(39))))
    assert world.ask(Run(0, NONCE, CALLS, keep=True)).fault is None
    found = world.ask(Wind(0, NONCE, CALLS))
    assert (found.counting, right(found)) == (1, False)
    assert len(bench(world).case.arms[0].hands.own.block_rows) == 8


# --------------------------------------------------------------------------------------------- words


COUNTS = np.array([*range(SINGLES + 1), SINGLES + CALLS, SINGLES + 2 * CALLS])


def column(value: object) -> np.ndarray:
    """A word by the number of calls."""
    assert callable(value)
    return np.array([value(int(count)) & 0xFFFFFFFF for count in COUNTS], np.uint32)[:, None]


@pytest.mark.parametrize(
    ("value", "cyclic"),
    [
        (lambda n: 5, True),
        (lambda n: n % 2, True),
        (lambda n: (3 * n + 1) % 8, True),
        (lambda n: n > 0, True),
        (lambda n: min(n, 7), True),
        (lambda n: n % 9, False),
        (lambda n: n // 2 % 5, False),
        (lambda n: n > SINGLES, False),
        (lambda n: n, False),
    ],
)
def test_words_in_a_cycle(value: object, cyclic: bool) -> None:
    assert _cyclic(column(value), COUNTS).tolist() == [cyclic]


@pytest.mark.parametrize(
    ("value", "stepped"),
    [
        (lambda n: 7 + 3 * n, True),
        (lambda n: -2 * n, True),
        (lambda n: 0xFFFFFFF0 + n, True),
        (lambda n: 5, False),
        (lambda n: n % 5, False),
        (lambda n: n + (n > SINGLES), False),
    ],
)
def test_words_that_move_by_steps(value: object, stepped: bool) -> None:
    assert _stepped(column(value), COUNTS, winding.WHOLE).tolist() == [stepped]


def test_floats_that_move_by_steps() -> None:
    seen = (np.float32(1.5) + 0.25 * COUNTS).astype(np.float32).view(np.uint32)[:, None].copy()
    assert _stepped(seen, COUNTS, winding.FLOAT).tolist() == [True]
    assert _stepped(np.sqrt(COUNTS + 1).astype(np.float32).view(np.uint32)[:, None].copy(), COUNTS, winding.FLOAT).tolist() == [False]


def steps(kind: np.dtype[np.generic], value: float, step: float) -> Steps:
    return Steps(kind, np.array([0]), np.array([value]).astype(kind), np.array([step]).astype(np.int64).astype(kind))


def test_how_far_a_counter_goes_and_where_it_is_then() -> None:
    up, down = steps(winding.WHOLE, 100, 8), steps(winding.WHOLE, 100, -1)
    assert _left(up, 50) == (2**31 - 1 - 100) // 8 - 50
    assert _left(down, 50) == winding.HALF  # and no further than a word goes
    assert _left(steps(winding.WHOLE, 5, 0x70000000), 50) == winding.HALF  # comes round within a launch anyhow
    assert _moved(up, 1000).tolist() == [8100]
    assert _moved(down, 840).tolist() == [(100 - 840) & 0xFFFFFFFF]
    real = steps(winding.FLOAT, 3, 2)
    assert _left(real, 50) == pytest.approx(2**24, rel=1e-4)
    assert struct.unpack("<f", _moved(real, 1000).tobytes()) == (2003.0,)
