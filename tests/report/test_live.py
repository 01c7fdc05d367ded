"""What a run shows: plain lines in a pipe, two redrawn lines in a terminal."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO

from rich.console import Console

from keepfast.model import Event
from keepfast.report import numbers
from keepfast.report.live import Live
from tests.report import samples

EVENTS = [
    Event("calibrate", "10 rounds of the start against itself", calibration=samples.calibration()),
    Event("baseline", "numpy: 0.39x over start"),
    *(
        event
        for e in samples.experiments()
        for event in (Event("propose", e.title, n=e.n), Event("round", "confirm 1 of 6", n=e.n), Event("verdict", experiment=e))
    ),
    *(Event("direct", direct=d) for d in samples.directs()),
    Event("note", "budget raised: 20 more experiments"),
    Event("end", "goal met"),
]


def watched(console: Console) -> Live:
    times = iter(samples.BEGAN + i for i in range(10_000))
    with Live(samples.task(), samples.run(), console, clock=lambda: next(times)) as live:
        for event in EVENTS:
            live(event)
    return live


def test_a_pipe_gets_plain_lines(golden: Callable[[str, str], None]) -> None:
    out = StringIO()
    watched(Console(file=out, force_terminal=False, width=100))
    assert "\x1b" not in out.getvalue()
    assert all(len(one) <= 100 for one in out.getvalue().splitlines())
    golden("live-pipe.txt", out.getvalue())


def test_a_pipe_is_not_wrapped_to_the_width_of_a_terminal() -> None:
    narrow, wide = StringIO(), StringIO()
    watched(Console(file=narrow, force_terminal=False, width=40))
    watched(Console(file=wide, force_terminal=False, width=200))
    assert narrow.getvalue() == wide.getvalue()


def test_a_terminal_redraws_and_keeps_every_verdict() -> None:
    out = StringIO()
    watched(Console(file=out, force_terminal=True, width=110, height=40, color_system="standard", legacy_windows=False, _environ={}))
    plain = out.getvalue()
    assert "\x1b[" in plain
    for e in samples.experiments():
        assert e.title[:20] in plain
    assert "champion 2.31x over start [2.28, 2.34]" in plain
    assert "10 of 40 experiments" in plain


def test_the_head_says_where_the_run_stands() -> None:
    live = watched(Console(file=StringIO(), force_terminal=False))
    *first, second = live.head()
    shown = "   ".join(first)
    assert "softmax-rows  c   champion 2.31x over start [2.28, 2.34]   goal 2.20x over start   10 of 40 experiments" in shown
    assert all(len(row) <= 100 for row in first)
    margin = numbers.spread(samples.calibration().margin)
    assert second == f"machine: 2 cores, gcc 12.2, walls   gains above {margin} can be judged here (SD between rounds 0.6 %)"


def test_a_long_run_does_not_grow_what_is_remembered() -> None:
    live = Live(samples.task(), samples.run(), Console(file=StringIO()))
    for e in samples.many(400):
        live(Event("verdict", experiment=e, n=e.n))
    assert len(live.kept) == 9
    assert all(not e.verdict.rounds for e in live.kept)


def test_a_resumed_run_knows_what_is_behind_it() -> None:
    live = Live(samples.task(), samples.run(), Console(file=StringIO()), book=samples.book(), clock=lambda: samples.BEGAN + 1000)
    assert "champion 2.31x over start" in live.head()[0]
    assert "judge busy" not in live.head()[0]
