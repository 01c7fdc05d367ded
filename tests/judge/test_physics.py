"""Physical limits from ceilings: which footprint counts, what a call must at least do, and what is too fast."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from keepfast.judge import physics, sets
from keepfast.judge.sets import Draw
from keepfast.model import Case, Limit, Machine
from tests.judge.tasks import softmax_task

CEILINGS = (
    ("copy_1MB_GBps", 20.0),
    ("read_1MB_GBps", 40.0),
    ("write_1MB_GBps", 30.0),
    ("copy_16MB_GBps", 8.0),
    ("read_16MB_GBps", 10.0),
    ("float32_GFLOPs", 100.0),
)
MACHINE = Machine("cpu", 2, "6", "gcc", "walls", ceilings=CEILINGS)
CASE = Case("main", (("m", 4), ("n", 1000)))


def draw(limit: tuple[float, float] = (0.0, 0.0)) -> Draw:
    task = softmax_task()
    values = {"x": np.zeros((4, 1000), np.float32)}
    layout, words = sets.plan(task.signature, CASE, values, {"out": values["x"]})
    return Draw(CASE, layout, words, *sets.images(task.signature, layout, values), limit=limit)


@pytest.mark.parametrize(("megabytes", "speed"), [(0.1, 40.0), (1, 40.0), (15.9, 40.0), (16, 10.0), (500, 10.0)])
def test_bandwidth_is_that_of_the_nearest_smaller_footprint(megabytes: float, speed: float) -> None:
    assert physics.bandwidth(MACHINE, int(megabytes * (1 << 20))) == speed


def test_bytes_and_flops_each_set_a_limit_and_the_longer_counts() -> None:
    task = softmax_task(limit=Limit(bytes="8*m*n", flops="20*m*n"))
    assert physics.work(task, draw().case, draw().limit) == (32000.0, 80000.0)
    assert physics.limit_ns(task, draw(), MACHINE, 1) == pytest.approx(max(32000 / 40, 80000 / 100))
    assert physics.limit_ns(softmax_task(limit=Limit(bytes="8*m*n")), draw(), MACHINE, 1000) == pytest.approx(32000 / 10)
    assert physics.limit_ns(softmax_task(limit=Limit(flops="20*m*n")), draw(), MACHINE, 1) == pytest.approx(800)


def test_what_the_tasks_own_limit_says_comes_first() -> None:
    task = softmax_task(limit=Limit(bytes="8*m*n"))
    assert physics.work(task, draw((4e6, 0.0)).case, draw((4e6, 0.0)).limit) == (4e6, 0.0)
    assert physics.limit_ns(task, draw((4e6, 0.0)), MACHINE, 1) == pytest.approx(1e5)


def test_no_limit_is_known_without_work_or_without_ceilings() -> None:
    assert physics.limit_ns(softmax_task(limit=Limit()), draw(), MACHINE, 1) is None
    assert physics.limit_ns(softmax_task(), draw(), replace(MACHINE, ceilings=()), 1) is None


def test_too_fast_is_more_than_the_slack_below_the_limit() -> None:
    assert physics.too_fast(CASE, 500.0, None) == ""
    assert physics.too_fast(CASE, 1000.0, 1000.0) == ""
    assert physics.too_fast(CASE, 1000.0 / physics.SLACK, 1000.0) == ""
    assert physics.too_fast(CASE, 900.0, 1000.0).startswith("case main: 0.9 us a call")
