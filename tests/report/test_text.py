"""The tables and lines that people read, against golden files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from keepfast.model import Reason, Run
from keepfast.report import book as books
from keepfast.report import numbers, show, summary, text
from keepfast.report.escape import width
from tests.report import samples

Golden = Callable[[str, str], None]


def joined(lines: list[str]) -> str:
    assert all(width(one) <= 100 for one in lines), [one for one in lines if width(one) > 100]
    return "\n".join(lines) + "\n"


def test_log(golden: Golden) -> None:
    golden("log.txt", joined(text.log(samples.experiments(), left_out=3)))


@pytest.mark.parametrize("n", [1, 2, 5, 6, 7, 8, 9, 11])
def test_show(golden: Golden, n: int) -> None:
    book = samples.book()
    golden(f"show-{n}.txt", joined(show.show(book, book.experiments[n - 1], rounds=n == 2)))


def test_status(golden: Golden) -> None:
    book = samples.book(run=samples.run(state="running"))
    golden("status-running.txt", joined(text.status(book, "pid 8123, started 22:41")))
    golden("status-interrupted.txt", joined(text.status(book, "")))
    golden("status-goal.txt", joined(text.status(samples.book(), "")))
    golden("status-empty.txt", joined(text.status(samples.book(experiments=(), directs=(), task=None), "")))


def test_summaries(golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / ".keepfast/report/softmax-1.html"
    golden("end.txt", joined(summary.end(samples.book(), "goal met", page)))
    golden("morning.txt", joined(summary.morning(samples.book(), page)))
    golden("end-nothing.txt", joined(summary.end(samples.book(experiments=samples.experiments()[:1], directs=()), "budget spent")))


def test_in_a_terminal_a_long_reason_goes_on_in_a_second_line() -> None:
    shown = text.verdict_lines(samples.experiments()[5], 100)
    assert len(shown) == 2
    assert shown[1].startswith(" " * 40)
    assert all(width(s) <= 100 for s in shown)


def test_a_total_between_direct_measurements_is_marked_as_chained() -> None:
    experiments = samples.experiments()
    chained = books.total(experiments, ())
    assert chained is not None
    assert not chained.direct
    assert chained.estimate.d == pytest.approx(experiments[1].verdict.gain.d + experiments[6].verdict.gain.d)  # type: ignore[union-attr]
    assert "not measured directly" in text.total_text(chained)
    assert text.total_text(chained).startswith("~2.30x")
    measured = books.total(experiments, samples.directs())
    assert measured is not None
    assert measured.direct
    assert "measured directly, 6 rounds" in text.total_text(measured)


def test_gains_after_a_direct_measurement_are_chained_onto_it() -> None:
    first = samples.directs()[0]
    early = samples.Direct(2, "start", samples.estimate(40.0, opponent="start"), (), False, first.when - 100)
    total = books.total(samples.experiments(), (early,))
    assert total is not None
    assert not total.direct
    assert total.estimate.speedup == pytest.approx(1.4 * 1.624)


def test_a_champion_that_loses_to_a_baseline_is_said_to_lose() -> None:
    slower = samples.Direct(7, "baseline blas", samples.estimate(-40.0, opponent="baseline blas"), (), True, samples.BEGAN)
    assert "the baseline is faster" in summary.baseline_text(slower)
    assert "the baseline is faster" not in summary.baseline_text(samples.directs()[1])


def test_the_tally_counts_every_experiment_once() -> None:
    t = books.tally(samples.experiments())
    assert (t.tried, t.kept, t.reverted, t.rejected, t.suspect, t.void, t.cheats, t.searched) == (10, 2, 3, 3, 1, 1, 2, 1)
    assert t.tried == t.kept + t.reverted + t.rejected + t.suspect + t.void


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.04, "0.0 s"),
        (0.42, "0.4 s"),
        (9.97, "10 s"),
        (59.6, "1m00s"),
        (64, "1m04s"),
        (3599.7, "1 h 00 min"),
        (27600, "7 h 40 min"),
        (float("nan"), "?"),
    ],
)
def test_durations(seconds: float, shown: str) -> None:
    assert numbers.duration(seconds) == shown


@pytest.mark.parametrize(
    ("ns", "shown"),
    [(0.5, "0.50 ns"), (18_800, "18.8 us"), (9.02e6, "9.02 ms"), (999_600, "1.00 ms"), (123e6, "123 ms"), (2.5e9, "2.50 s")],
)
def test_times(ns: float, shown: str) -> None:
    assert numbers.nanoseconds(ns) == shown


def test_numbers_never_fail_for_a_float() -> None:
    for d in (float("inf"), float("-inf"), 1e6, -1e6, 0.0):
        e = samples.Estimate(d, d, d, d, 1, "start")
        assert numbers.gain(e)
        assert numbers.speedup(e) + numbers.interval(e) + numbers.bare_gain(d)
    assert numbers.bare_gain(0.0) == "0.0 %"


def test_what_to_type_next_is_quoted_for_a_shell() -> None:
    run: Run = samples.run(state="stopped")
    assert "keepfast run '/home/me/tasks/softmax rows' --resume" in text.next_step(samples.book(run=run))


def test_every_reason_has_a_line() -> None:
    for reason in Reason:
        e = samples.experiment(3, "title", samples.verdict(reason), 1.0)
        assert str(e.n) in text.verdict_line(e)
