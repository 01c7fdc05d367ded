"""The CPU as a device: a fingerprint that changes with what matters, and ceilings that are there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from keepfast.device import cpu
from keepfast.judge.contents import Library


def test_a_fingerprint_is_the_same_twice_and_does_not_depend_on_the_walls() -> None:
    one, other = cpu.fingerprint("walls"), cpu.fingerprint("partial")
    assert one.cpu
    assert one.cores == len(os.sched_getaffinity(0))
    assert one.hash == other.hash == cpu.fingerprint("walls").hash
    assert (one.walls, other.walls) == ("walls", "partial")


def test_another_compiler_or_another_number_of_cores_is_another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = cpu.fingerprint("walls")
    monkeypatch.setattr(cpu, "compiler", lambda: "gcc 99")
    assert cpu.fingerprint("walls").hash != here.hash
    monkeypatch.undo()
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(77)))
    assert cpu.fingerprint("walls").hash != here.hash


def test_no_compiler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cpu.compiler() == "none"


def test_runners_get_the_last_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {7, 0, 3, 5})
    assert cpu.last_cores(1) == (7,)
    assert cpu.last_cores(2) == (5, 7)
    assert cpu.last_cores(9) == (0, 3, 5, 7)


def test_ceilings_are_measured_per_kind_and_footprint(library: Library) -> None:
    found = dict(cpu.ceilings(library, 1))
    expected = [f"{kind}_{size}MB_GBps" for size in cpu.FOOTPRINTS_MB for kind in cpu.KINDS]
    assert list(found) == [*expected, "float32_GFLOPs"]
    assert all(0.05 < value < 1e5 for value in found.values())


def test_ceilings_of_more_threads_are_a_multiple(library: Library) -> None:
    class Bench:
        """Times that do not depend on the machine."""

        class lib:
            kf_bandwidth = staticmethod(lambda buffer, size, what, repeats: size)
            kf_gflops32 = staticmethod(lambda rounds, repeats: 50.0)

    found = dict(cpu.ceilings(Bench(), 4))  # type: ignore[arg-type]
    assert found["copy_4MB_GBps"] == 4.0
    assert found["float32_GFLOPs"] == 200.0
