"""The whole judge on a card: what passes, what does not, and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.model import Kind, Reason
from tests.gpu.stand import Stand

pytestmark = pytest.mark.alone
NORM = (Path(__file__).parent / "tasks/norm/kernel/kernel.py").read_text()
Stands = Callable[[str], Stand]


def test_the_start_passes_and_its_resources_are_told(stands: Stands) -> None:
    found = stands("norm").ready
    assert found.kept, found.detail
    facts = {f.name: f.value for r in found.rungs for f in r.facts}
    assert "registers" in facts["rms"]


def test_the_same_kernel_under_another_name_is_the_same_code_or_no_gain(stands: Stands) -> None:
    found = stands("norm").judged(NORM.replace("y = torch.empty_like(x)", "y = torch.empty_like(x)  # the same"))
    assert found.reason is Reason.SAME_CODE, found.detail


def test_a_wrong_result_is_named(stands: Stands) -> None:
    found = stands("norm").checked(NORM.replace("/ n + eps", "/ n + 0.1"))
    assert found.reason is Reason.WRONG, found.detail


def test_a_kernel_that_does_not_compile(stands: Stands) -> None:
    found = stands("norm").checked(NORM.replace("tl.rsqrt(", "tl.no_such("))
    assert found.reason is Reason.BUILD, found.detail
    assert "no_such" in found.detail


def test_host_synchronisation_is_named_with_its_line(stands: Stands) -> None:
    found = stands("norm").checked(NORM.replace("    return y", "    x.sum().item()\n    return y"))
    assert found.reason is Reason.GRAPHS, found.detail
    assert "item()" in found.detail


def test_a_library_kernel_is_against_the_rules(stands: Stands) -> None:
    body = "    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, epsilon)\n"
    found = stands("norm").checked(f"import torch\n\n\ndef kernel(x, weight, epsilon):\n{body}")
    assert found.reason in (Reason.LANGUAGE, Reason.RULE), found.detail


def test_half_the_rows_is_slow_to_be_believed_but_twice_the_work_is_slower(stands: Stands) -> None:
    twice = NORM.replace("rms[(m,)](x, weight, y, n, epsilon", "rms[(m,)](x, weight, torch.empty_like(x), n, epsilon", 1).replace(
        "    return y", "    rms[(m,)](x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)\n    return y"
    )
    found = stands("norm").judged(twice)
    assert found.reason is Reason.SLOWER, found.detail


def test_a_slow_start_loses_to_a_better_kernel(stands: Stands) -> None:
    stand = stands("norm")
    launch = next(line for line in NORM.splitlines(keepends=True) if line.startswith("    rms[(m,)]"))
    slow = stand.candidate(NORM.replace(launch, launch + launch), n=7)
    fast = stand.candidate(NORM.replace("num_warps=8", "num_warps=4"))
    found = stand.judge.evaluate(fast, slow, ())
    assert found.kind is Kind.KEEP, found.detail
    assert found.gain is not None
    assert found.gain.d < -0.02


def test_a_calibration_knows_its_noise(stands: Stands) -> None:
    found = stands("norm").judge.calibrated()
    assert found.sigma < 0.004
    assert abs(found.offset) < 0.002


def test_in_place_arguments_are_restored(stands: Stands) -> None:
    assert stands("add").ready.kept, stands("add").ready.detail
