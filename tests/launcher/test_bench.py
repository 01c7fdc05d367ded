"""Run, Audit, Time, Solo and Profile on an open case, through the server's answers. tests/gpu/test_launcher.py runs these on a card."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.gpu.driver import BLOCK
from keepfast.gpu.layout import audit
from keepfast.gpu.messages import Audit, Close, Profile, Run, Solo, Time
from keepfast.gpu.plan import Block, Plan, Segment
from keepfast.launcher.bench import MOST_ODD
from keepfast.launcher.memory import Mapped
from tests.launcher.reference import contents
from tests.launcher.world import FACTOR, Case, N, World, bench, layout, opened, peeking_at, pointer

NONCE = 0x0123456789ABCDEF


def floats(data: np.ndarray, at: int) -> np.ndarray:
    return data[at : at + 4 * N].view(np.float32)


# --------------------------------------------------------------------------------------------- Run, Audit


@pytest.mark.parametrize("alone", [False, True])
def test_a_right_kernel(world: World, alone: bool) -> None:
    opened(world, "scale")
    ran = world.ask(Run(0, NONCE, 5, alone=alone))
    assert ran.ms > 0
    assert (ran.fault, ran.unwritten, ran.early, ran.inputs, ran.odd, ran.identical) == (None, (), (), (), (), True)


def test_a_call_goes_into_the_audit_memory_as_it_was_given(world: World) -> None:
    for kind in ("host", "gpu"):
        case = opened(world, "scale", kind=kind)
        world.ask(Run(0, NONCE, 4))
        assert world.ask(Audit(0, 3)).fault is None
        assert bench(world).slots.last is not None
        pattern = bench(world).slots.last.contents.pattern
        places = audit(case.layout)
        found = world.audited(places.size) if kind == "host" else read_audit(world, places.size)
        given = contents(case.layout, world.bank, 3, NONCE, (pattern, False))
        assert np.array_equal(found[: case.layout.set_bytes], given)
        assert np.array_equal(floats(found, places.results[0]), floats(given, 0) * np.float32(FACTOR))


def read_audit(world: World, size: int) -> np.ndarray:
    """What the launcher exported, seen through its own mapping."""
    return np.frombuffer(world.device.read(bench(world).case.audit.address, size), np.uint8)


@pytest.mark.parametrize("alone", [False, True])
def test_arguments_written_in_place_are_results(world: World, alone: bool) -> None:
    case = opened(world, "add_to", made=layout(written=True))
    ran = world.ask(Run(0, NONCE, 5, alone=alone))
    assert (ran.inputs, ran.early, ran.unwritten) == ((), (), ())
    world.ask(Audit(0, 1))
    found = world.audited(audit(case.layout).size)
    assert np.array_equal(floats(found, 4096), floats(found, 0) + floats(found, 1536))


def test_verbatim_draws(world: World) -> None:
    case = opened(world, "scale", draws=3)
    world.ask(Run(0, NONCE, 5, verbatim=True))
    world.ask(Audit(0, 4))
    found = world.audited(audit(case.layout).size)
    assert np.array_equal(floats(found, 0), floats(world.bank[1], 0))


def test_what_was_not_written(world: World) -> None:
    opened(world, "scale_half")
    assert world.ask(Run(0, NONCE, 3)).unwritten == (0, 1, 2)
    opened(world, "noop")
    assert world.ask(Run(0, NONCE, 5, alone=True)).unwritten == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("kernel", ["scale_and_spoil", "scale_past"])
def test_arguments_and_gaps_that_were_changed(world: World, kernel: str) -> None:
    opened(world, kernel)
    assert world.ask(Run(0, NONCE, 4)).inputs == (0, 1, 2, 3)


def test_scratch_is_poisoned_and_may_be_written(world: World) -> None:
    opened(world, "scale", made=layout(scratch=True))
    assert world.ask(Run(0, NONCE, 5)).inputs == ()
    world.ask(Audit(0, 0))
    assert np.isnan(world.audited(8192)[3072:3472].view(np.float32)).all()


def test_work_done_for_other_calls_is_seen_when_each_runs_alone(world: World) -> None:
    opened(world, "scale_all")
    assert world.ask(Run(0, NONCE, 5)).early == ()  # in a chain it cannot be told
    early = world.ask(Run(0, NONCE, 5, alone=True)).early
    assert len(early) == 4  # all but the one that came first


def test_launches_are_compared_with_what_was_kept(world: World) -> None:
    opened(world, "scale", "scale_apart", rms=1e-5)
    assert world.ask(Run(0, NONCE, 5, keep=True)).fault is None
    for run in (Run(0, NONCE, 5, against=True), Run(0, NONCE, 3, against=True, alone=True)):
        ran = world.ask(run)
        assert (ran.odd, ran.identical) == ((), True)
    ran = world.ask(Run(1, NONCE, 5, against=True))
    assert (ran.odd, ran.identical) == ((), False)
    ran = world.ask(Run(0, NONCE + 1, 5, against=True))
    assert (ran.odd, ran.identical) == ((0, 1, 2, 3, 4), False)


def test_without_a_tolerance_every_difference_is_odd(world: World) -> None:
    opened(world, "scale", "scale_apart")
    world.ask(Run(0, NONCE, 5, keep=True))
    assert world.ask(Run(1, NONCE, 2, against=True)).odd == (0, 1)


def test_blocks_are_restored_before_every_launch(world: World) -> None:
    blocks = (Block(1024, (7).to_bytes(4, "little")), Block(1040, bytes(33)))
    opened(world, "scale_once", calls=1, blocks=blocks)
    world.ask(Run(0, NONCE, 1, keep=True))
    for _ in range(3):
        assert world.ask(Run(0, NONCE, 1, against=True)).identical


def peeking(case: Case) -> list[tuple[int, Plan]]:
    """Two arms: the second has a page that is the physical page of the first one's results, and copies what it finds there."""
    honest, (arena, made) = peeking_at(case, lambda _, call: 0)
    work = made.sets + 4 * BLOCK
    nodes = tuple(
        replace(n, work=replace(n.work, parameters=(*n.work.parameters[:3], (24, pointer(work + 1024 * n.call))))) for n in made.nodes
    )
    segments = tuple(sorted((*made.segments, Segment(work, BLOCK)), key=lambda s: s.address))
    return [honest, (arena, replace(made, nodes=nodes, segments=segments))]


def test_nothing_of_the_other_arm_is_left_on_the_shared_pages(world: World) -> None:
    """A kernel that copies what lies where the other arm had its results for the same contents gets nothing."""
    case = world.case()
    assert world.open(case, peeking(case), rms=1e-5).fault is None
    world.ask(Run(0, NONCE, 5, keep=True))
    assert world.ask(Run(1, NONCE, 5, against=True)).odd == (0, 1, 2, 3, 4)
    timed = world.ask(Time(2, 5, 0))
    assert timed.differing == timed.launches // 2 * 5


def test_the_attack_would_succeed_if_pages_were_not_wiped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    case = world.case()
    assert world.open(case, peeking(case), rms=1e-5).fault is None
    monkeypatch.setattr(Mapped, "wipe", lambda self, word: None)
    world.ask(Run(0, NONCE, 5, keep=True))
    assert world.ask(Run(1, NONCE, 5, against=True)).identical


ASKED_WRONGLY = [
    (Run(2, NONCE, 5), "arm 2 of 1"),
    (Run(0, NONCE, 6), "6 calls; the plan of arm 0 has 5"),
    (Run(0, NONCE, 0), "0 calls"),
    (Run(0, NONCE, 5, against=True), "results of 0 calls are kept"),
    (Run(0, NONCE, 5, keep=True, against=True), "cannot be kept and compared"),
    (Audit(0, 1), "comes right after a Run"),
    (Audit(0, 5), "6 calls"),
    (Time(3, 5, 0), "two arms"),
    (Solo(0, 5, 0), "no launches"),
    (Solo(0, 9, 1), "9 calls"),
    (Profile(1), "arm 1 of 1"),
]


@pytest.mark.parametrize(("order", "words"), ASKED_WRONGLY)
def test_what_cannot_be_asked(world: World, order: Any, words: str) -> None:
    opened(world, "scale")
    fault = world.ask(order).fault
    assert (fault.kind, fault.arm) == ("machine", -1)
    assert words in fault.detail
    assert world.ask(Run(0, NONCE, 5)).fault is None  # the case goes on


def test_results_of_an_arm_are_gone_when_the_other_ran(world: World) -> None:
    opened(world, "scale", "scale_apart")
    world.ask(Run(0, NONCE, 5))
    world.ask(Run(1, NONCE, 5))
    assert "no results of call 1 of arm 0" in world.ask(Audit(0, 1)).fault.detail
    assert world.ask(Audit(1, 1)).fault is None
    world.ask(Run(1, NONCE, 3))
    assert "no results of call 3 of arm 1" in world.ask(Audit(1, 3)).fault.detail


# --------------------------------------------------------------------------------------------- Time


def test_a_round_of_equal_arms(world: World) -> None:
    case = opened(world, "scale", "scale_apart", rms=1e-5)
    timed = world.ask(Time(3, 4, 2))
    assert timed.fault is None
    assert (timed.calls, timed.launches, len(timed.pairs)) == (4, 64, 3)
    assert timed.differing == 32 * 4
    assert (timed.odd, timed.unwritten, timed.inputs) == ((), 0, 0)
    assert 0 < timed.sentinel_ms[0] <= timed.sentinel_ms[1] <= timed.sentinel_ms[2]
    assert timed.subject_ms > 0
    assert timed.opponent_ms > 0
    places = audit(case.layout)
    found = world.audited(places.size)
    assert np.array_equal(floats(found, places.results[0]), floats(found, 0) * np.float32(FACTOR))  # the subject's


def test_odd_sets_are_reported_with_their_nonce_and_can_be_run_again(world: World) -> None:
    case = opened(world, "scale_wrong", "scale", rms=1e-5)
    timed = world.ask(Time(2, 3, 0))
    assert timed.fault is None
    assert len(timed.odd) == MOST_ODD
    assert len(set(timed.odd)) == MOST_ODD
    assert {o.index for o in timed.odd} == {0, 1, 2}
    odd = timed.odd[3]
    world.ask(Run(0, odd.nonce, 3))
    world.ask(Audit(0, odd.index))
    found = world.audited(audit(case.layout).size)
    off = floats(found, 4096) - floats(found, 0) * np.float32(FACTOR)
    assert np.flatnonzero(np.abs(off) > 0.5).tolist() == [N // 2]


@pytest.mark.parametrize(("kernel", "field"), [("scale_half", "unwritten"), ("scale_and_spoil", "inputs")])
def test_a_subject_that_misbehaves_while_timed(world: World, kernel: str, field: str) -> None:
    opened(world, kernel, "scale", rms=1e-5)
    timed = world.ask(Time(2, 5, 0))
    assert getattr(timed, field) == timed.launches // 2 * 5
    opened(world, "scale", kernel, rms=1e-5)
    assert getattr(world.ask(Time(2, 5, 0)), field) == 0  # the opponent's are not the subject's


def test_solo_and_profile(world: World) -> None:
    opened(world, "scale", "scale_apart")
    assert world.ask(Solo(1, 5, 6)).ms > 0
    (facts,) = world.ask(Profile(1)).kernels
    assert (facts.name, facts.launches, facts.threads) == ("scale_apart", 1, 32)
    assert facts.share == pytest.approx(1.0)


def test_a_case_after_a_case_takes_the_same_addresses(world: World) -> None:
    case = world.case()
    plans = [case.plan("scale"), case.plan("scale")]
    for _ in range(3):
        assert world.open(case, plans).fault is None
        assert world.ask(Time(1, 5, 0)).fault is None
        assert world.ask(Close()) is None
