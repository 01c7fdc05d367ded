"""Cases as the GPU judge works on them: how many calls and draws fit, what is refused, and what no kernel can beat."""

from __future__ import annotations

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from keepfast.errors import TaskError
from keepfast.gpu.layout import Given, Layout
from keepfast.gpu.messages import Described, Tolerance
from keepfast.judge.gpu import stages as made
from keepfast.judge.gpu.stages import Stage, limit_ns, stages, timed_calls, tolerances, too_fast, work
from keepfast.model import Case, Limit, Machine, Task
from tests.judge.tasks import softmax_task

from . import fakes, inside

GIB = 1 << 30
CEILINGS = (("copy_GBps", 4000.0), ("read_GBps", 3500.0), ("bfloat16_TFLOPs", 800.0), ("int8_TOPs", 1600.0), ("l2_bytes", 60e6))
BARE = Machine("cpu", 2, "6", "gcc", "walls")
MACHINE = replace(BARE, ceilings=CEILINGS)
Sizes = list[tuple[int, int]]  # of a set, of its results


def task(count: int = 1) -> Task:
    return softmax_task(axes=("n",), limit=Limit(), cases=tuple(Case(f"case{i}", (("n", 8),)) for i in range(count)))


def described(sizes: Sizes, limit: tuple[float, float] = (0.0, 0.0)) -> Described:
    layouts = tuple(replace(fakes.layout(f"case{i}", 4, (out,)), set_bytes=size) for i, (size, out) in enumerate(sizes))
    return Described(layouts, (limit,) * len(sizes), ((Tolerance("uint8", 1, 0.0, 0.0),),) * len(sizes))


def one(size: int, out: int = 0, memory: int = 100 * GIB, machine: Machine = BARE, limit: tuple[float, float] = (0.0, 0.0)) -> Stage:
    (found,) = stages(task(), described([(size, out)], limit), machine, memory)
    return found


def needed(found: tuple[Stage, ...]) -> int:
    """All contents, and the largest case at work."""
    return sum(s.draws * s.layout.set_bytes for s in found) + max(2 * s.layout.set_bytes + 3 * s.layout.out_bytes for s in found)


# ---- memory

MEMORY = st.integers(1 << 20, 200 * GIB)
SIZES = st.lists(st.tuples(st.integers(0, 20 * GIB), st.integers(0, 20 * GIB)), min_size=1, max_size=5)
LIMITS = st.tuples(st.floats(0, 1e12), st.floats(0, 1e15))


@given(SIZES, MEMORY, LIMITS, st.sampled_from([BARE, MACHINE]))
def test_calls_and_draws_stay_within_their_share_or_at_their_least(
    sizes: Sizes, memory: int, limit: tuple[float, float], machine: Machine
) -> None:
    with suppress(TaskError):
        found = stages(task(len(sizes)), described(sizes, limit), machine, memory)
        check(found, sizes, memory)


def check(found: tuple[Stage, ...], sizes: Sizes, memory: int) -> None:
    assert [s.name for s in found] == [f"case{i}" for i in range(len(sizes))]
    assert needed(found) <= memory
    for stage in found:
        assert 1 <= stage.calls <= made.MOST_CALLS
        assert stage.calls == 1 or stage.calls * stage.call_bytes <= made.SHARE_SETS * memory
        assert made.LEAST_DRAWS <= stage.draws <= made.DRAWS
        assert stage.draws == made.LEAST_DRAWS or stage.draws * stage.layout.set_bytes <= made.SHARE_BANKS * memory / len(sizes)


@given(SIZES, MEMORY)
def test_refused_is_what_does_not_fit_with_the_fewest_draws_and_calls(sizes: Sizes, memory: int) -> None:
    cases, least = described(sizes), sum(2 * size for size, _ in sizes) + max(2 * size + 3 * out for size, out in sizes)
    if least <= memory:
        assert len(stages(task(len(sizes)), cases, BARE, memory)) == len(sizes)
        return
    with pytest.raises(TaskError) as error:
        stages(task(len(sizes)), cases, BARE, memory)
    assert error.value.where == "task.toml"
    assert "smaller" in error.value.next_step


@given(st.integers(1, 100 * GIB), st.integers(0, 100 * GIB))
def test_a_call_that_does_not_fit_is_refused_by_name(size: int, out: int) -> None:
    memory = 4 * size + 3 * out
    assert one(size, out, memory).calls == 1
    with pytest.raises(TaskError, match="case case0 does not fit on this card"):
        one(size, out, memory - 1)


def test_cases_that_fit_one_by_one_may_not_fit_together() -> None:
    sizes = [(20 * GIB, GIB)] * 3
    for i in range(3):
        assert stages(task(), described(sizes[i : i + 1]), BARE, 100 * GIB)
    with pytest.raises(TaskError, match=r"3 cases need 163\.0 GiB together, and this card has 100 GiB"):
        stages(task(3), described(sizes), BARE, 100 * GIB)


def test_an_empty_case_is_no_division_by_zero() -> None:
    assert (one(0).calls, one(0).draws) == (made.MOST_CALLS, made.DRAWS)


# ---- how many calls, how many draws


def test_a_launch_lasts_about_a_millisecond_where_memory_allows() -> None:
    assert one(40_000_000, 0, machine=MACHINE).calls == 100  # 10 us at 4 TB/s
    assert one(40_000_000, 0).calls == 100  # the same before anything is measured
    assert one(1 << 10, 0, machine=MACHINE).calls == made.MOST_CALLS
    assert one(1 << 10, 0, machine=MACHINE, limit=(0.0, 8e10)).calls == 20  # 50 us at 1.6e15 a second
    assert one(GIB, 0, machine=MACHINE, limit=(4e6, 0.0)).calls == 15  # 1 us at least, and memory for 15


@pytest.mark.parametrize("role", ["index", "meta"])
def test_what_is_taken_whole_has_more_draws(role: str) -> None:
    plain = fakes.layout("case0", 1 << 20, ())
    tensor = replace(plain.tensors[0].tensor, role=role)  # type: ignore[type-var]
    layout = Layout("case0", (), (Given("x", "tensor", tensor),), (), 1 << 20)
    found = stages(task(), Described((layout,), ((0.0, 0.0),), ((),)), BARE, 100 * GIB)
    assert found[0].draws == made.INDEX_DRAWS
    assert one(1 << 20).draws == made.DRAWS
    assert one(10 * GIB).draws == made.LEAST_DRAWS


@given(st.floats(0, 1e12), st.integers(1, 512))
def test_a_timed_launch_takes_some_of_the_captured_calls(ns: float, calls: int) -> None:
    found = timed_calls(inside.stage(calls=calls), ns)
    assert 1 <= found <= calls
    assert found == calls or found * ns >= 1e6 > (found - 1) * ns


# ---- limits


def test_the_work_of_a_call_is_said_by_the_reference_or_by_the_task() -> None:
    said = replace(task(), limit=Limit(bytes="16*n", flops="2*n"))
    case = Case("case0", (("n", 8),))
    assert work(task(), case, (0.0, 0.0)) == (0.0, 0.0)
    assert work(said, case, (0.0, 0.0)) == (128.0, 16.0)
    assert work(said, case, (5.0, 0.0)) == (5.0, 16.0)


def test_the_limit_is_the_slower_of_bandwidth_and_arithmetic() -> None:
    assert limit_ns(inside.stage(), MACHINE) is None
    assert limit_ns(inside.stage(limit=(4e6, 8e9)), BARE) is None
    assert limit_ns(inside.stage(limit=(4e6, 8e8)), MACHINE) == pytest.approx(1000.0)
    assert limit_ns(inside.stage(limit=(4e6, 8e9)), MACHINE) == pytest.approx(5000.0)


def test_a_time_below_the_limit_is_named_with_both_numbers() -> None:
    stage = replace(inside.stage(limit=(4e6, 0.0)), layout=fakes.layout("main", 4_000_000))
    assert (
        too_fast(stage, 960.0, MACHINE, 512) == "case main: 0.96 us a call, the measured ceilings of this card allow no less than 1.00 us"
    )
    assert too_fast(stage, 1000.0 / made.SLACK + 0.1, MACHINE, 512) == ""
    assert too_fast(stage, 960.0, BARE, 512) == ""
    assert too_fast(inside.stage(), 1.0, MACHINE, 512) == ""


def test_what_stays_in_the_l2_is_not_held_to_the_bandwidth_of_memory() -> None:
    stage = replace(inside.stage(limit=(4e6, 0.0)), layout=fakes.layout("main", 4_000_000, ()))
    most = math.ceil(made.L2_RESIDENT * 60e6 / 4_000_000)
    assert too_fast(stage, 500.0, MACHINE, most - 1) == ""
    assert too_fast(stage, 500.0, MACHINE, most) != ""
    assert too_fast(stage, 500.0, replace(MACHINE, ceilings=CEILINGS[:1]), 1) != ""  # nobody said how large it is


def test_two_right_answers_may_differ_by_twice_the_budget() -> None:
    assert tolerances(inside.stage(), ()) == inside.stage().results
    assert tolerances(inside.stage(), (Tolerance("float32", 8, 1.0, 3.0),)) == (Tolerance("float32", 8, 2.0, 6.0),)
