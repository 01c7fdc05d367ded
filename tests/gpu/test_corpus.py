"""Every cheat of the GPU corpus ends for a reason that is meant, every honest look-alike passes. Headers: keepfast.redteam.entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.redteam import attempt
from keepfast.redteam.gpu import left_behind
from keepfast.redteam.outcome import Found, Outcome, of_verdict
from keepfast.walls.base import Walls
from tests.gpu.samples import Sample, outcome, samples
from tests.gpu.stand import Stand

Stands = Callable[[str], Stand]
Write = Callable[[Outcome], None]


def marked(sample: Sample) -> object:
    open_ = sample.said.get("open", "")
    marks = [pytest.mark.xfail(reason=open_, strict=False)] if open_ else []
    marks += [pytest.mark.alone] if sample.has("timed") else []
    name = f"{sample.task}-{sample.said['id']}-{sample.name}" + ("-timed" if sample.has("timed") else "")
    return pytest.param(sample, id=name, marks=marks)


@pytest.fixture(scope="session")
def write(request: pytest.FixtureRequest) -> Write:
    """Into the file of --outcomes, so that `keepfast redteam --gpu --out` need not try it again."""
    path = str(request.config.getoption("--outcomes", ""))
    if not path:
        return lambda one: None
    here = attempt.card(Walls.detect())
    return lambda one: attempt._write(Path(path), here, one)


@pytest.mark.parametrize("sample", [marked(s) for s in samples()])
def test_the_judge_answers(sample: Sample, stands: Stands, write: Write) -> None:
    began = time.monotonic()
    found = of_verdict(stands(sample.task).of(sample))
    if left := left_behind():
        found = Found(False, "left behind", "walls", f"processes {', '.join(left)}")
    one = outcome(sample, found, time.monotonic() - began)
    if not sample.has("timed"):  # those are the redteam's own: here noise is looked at only briefly
        write(one)
    assert one.state in ("caught", "passed"), f"{one.state}: {found.reason} in {found.layer}: {found.detail}; {sample.words}"
