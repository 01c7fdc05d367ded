"""Who else uses the cores, and how steadily they run."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from keepfast.device import health


def test_a_busy_neighbour_is_named() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            found = health.neighbours(0.5)
        finally:
            busy.kill()
    (one,) = [n for n in found if n.pid == busy.pid]
    assert one.name.startswith("python")
    assert health.BUSY_SHARE < one.share < 1.5
    assert one.core in range(os.cpu_count() or 1)


def test_this_process_is_no_neighbour_and_the_busiest_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter(
        [
            {1: (0, "idle", 0), 2: (0, "a b) c", 1), 3: (50, "busy", 0), os.getpid(): (0, "me", 0), 5: (0, "gone", 0)},
            {1: (0, "idle", 0), 2: (20, "a b) c", 1), 3: (90, "busy", 0), os.getpid(): (99, "me", 0), 6: (99, "new", 0)},
        ]
    )
    monkeypatch.setattr(health, "_times", lambda: next(looks))
    found = health.neighbours(0.05)
    assert [(n.pid, n.name, n.core) for n in found] == [(3, "busy", 0), (2, "a b) c", 1)]


def test_names_of_processes_may_hold_anything() -> None:
    with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
        assert health._times()[other.pid][1]
        other.communicate()


def test_spread_is_the_quartiles_over_the_median() -> None:
    steady = health.spread(lambda: 100.0)
    assert steady == 0.0
    values = iter([90.0, 100.0, 110.0, 100.0] * 10)
    assert health.spread(lambda: next(values)) == pytest.approx((110 - 100) / 100)
