"""What is shown while a run goes on. In a terminal a few lines at the bottom redraw in place and finished experiments scroll
above them; in a pipe every line is plain, at most 100 columns wide and printed once.

Draws only when an event arrives: a refresh thread would run beside the clock that the judge reads.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from msgspec.structs import replace

from keepfast.model import Calibration, Direct, Estimate, Event, Experiment, Kind, Reason, Run, Task
from keepfast.report import book as books
from keepfast.report import numbers, text
from keepfast.report.book import Book
from keepfast.report.escape import clip, line, width

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live as RichLive
    from rich.text import Text

STYLES = {Kind.KEEP: "bold green", Kind.REVERT: "dim", Kind.REJECT: "yellow", Kind.SUSPECT: "bold magenta", Kind.VOID: "dim"}
LABELS = {"calibrate": "noise", "baseline": "versus", "switch": "roster", "turn": "agent", "returned": "back"}
SAID = ("calibrate", "baseline", "note", "direct", "turn", "switch", "idea", "returned")
WIDEST = 160


class Live:
    """The loop's `on_event`: `with Live(task, run, console) as live: ... on_event=live`.

    `book` brings what a resumed run has behind it. Remembers only what the lines at the bottom say.
    """

    def __init__(self, task: Task, run: Run, console: Console, *, book: Book | None = None, clock: Callable[[], float] = time.time) -> None:
        self.task, self.run, self.console, self.clock = task, run, console, clock
        self.directs: list[Direct] = list(book.directs) if book else []
        self.calibration: Calibration | None = book.calibration if book else None
        self.kept: list[Experiment] = [e for e in book.experiments if e.verdict.kept] if book else []
        self.last = book.experiments[-1].n if book and book.experiments else 0
        self.judged_seconds = 0.0  # by this process: a resumed run does not count its past
        self.now, self.trying = "", Event("propose", "the start", n=1)
        self.began = clock()
        self._live: RichLive | None = None

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            from rich.live import Live as RichLive

            self._live = RichLive(console=self.console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
            self._live.start()
            self._redraw()
        else:
            self._print(*self.head())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live:
            self.now = ""
            self._redraw()
            self._live.stop()
            self._live = None

    def __call__(self, event: Event) -> None:
        """Takes one event; never raises for what is inside it."""
        fresh = event.experiment if event.experiment is not None and event.experiment.n > self.last else None
        if fresh is not None:
            self._remember(fresh)
        if event.direct is not None:
            self.directs.append(event.direct)
        self.calibration = event.calibration or self.calibration
        self.trying = event if event.kind == "propose" else self.trying
        self.now = activity(event, self.trying)
        self._say(event, fresh)
        self._redraw()

    def _remember(self, experiment: Experiment) -> None:
        """Its keeps, without their raw rounds, and sums: a long run does not grow here."""
        self.last = experiment.n
        self.judged_seconds += experiment.verdict.seconds
        if experiment.verdict.kept:
            self.kept.append(replace(experiment, verdict=replace(experiment.verdict, rounds=())))

    def _say(self, event: Event, fresh: Experiment | None) -> None:
        """What stays on the screen, or goes to the pipe; progress inside an experiment does not."""
        if fresh is not None:
            self._verdict(fresh)
        elif event.direct is not None:
            self._print(f"{'':>3}  direct   {direct_text(event.direct)}")
        elif event.kind in SAID and event.text:
            self._print(f"{'':>3}  {LABELS.get(event.kind, event.kind):<7}  {line(event.text)}")

    def _verdict(self, experiment: Experiment) -> None:
        if self._live is None:
            self._print(text.verdict_line(experiment))
            return
        for one in text.verdict_lines(experiment, self.columns):
            self.console.print(paint(one, experiment.verdict.kind), soft_wrap=True)

    @property
    def columns(self) -> int:
        return min(WIDEST, self.console.width) if self.console.is_terminal else text.COLUMNS

    def _print(self, *shown: str) -> None:
        for one in shown:
            self.console.print(clip(one, self.columns), markup=False, highlight=False, soft_wrap=True)

    def _redraw(self) -> None:
        if self._live:
            from rich.text import Text

            shown = [*self.head(), *([self.now] if self.now else [])]
            self._live.update(Text("\n".join(clip(s, self.columns) for s in ["", *shown])), refresh=True)

    def head(self) -> list[str]:
        """The lines that say where the run stands (one, two when they must) and what can be told apart here."""
        spent = max(0, self.last - 1)  # the start is number 1
        most = self.task.budget.experiments or 0
        goal = books.goal_text(self.run, self.task)
        parts = [
            f"{line(self.task.name)}  {line(','.join(self.task.languages))}",
            champion_text(self.kept, self.directs),
            f"goal {goal}" if goal else "",
            f"{spent} of {most} experiments" if spent <= most else numbers.count(spent, "experiment"),
            numbers.duration(self.clock() - self.began),
            self._busy(),
        ]
        machine = f"machine: {text.machine_line(self.run.machine)}   {noise_text(self.calibration)}"
        return [*_packed([p for p in parts if p], self.columns), machine.rstrip()]

    def _busy(self) -> str:
        seconds = self.clock() - self.began
        return f"judge busy {100 * min(1.0, self.judged_seconds / seconds):.0f} %" if self.judged_seconds and seconds > 0 else ""


def _packed(parts: list[str], columns: int) -> list[str]:
    """Parts side by side, broken between two of them where a line is full."""
    rows = [parts[0]]
    for part in parts[1:]:
        longer = f"{rows[-1]}   {part}"
        if width(longer) <= columns:
            rows[-1] = longer
        else:
            rows.append(part)
    return rows


def champion_text(kept: list[Experiment], directs: list[Direct]) -> str:
    """`champion 2.31x over start [2.28, 2.34]`; with `~` while it is chained from gains. `kept` begins with the start."""
    total = books.total(tuple(kept), tuple(directs))
    if total is None:
        best = kept[-1] if kept else None
        return "champion: the start kernel" if best and best.verdict.reason is Reason.START else ""
    sign = "" if total.direct or total.estimate.rounds else "~"
    return f"champion {sign}{numbers.speedup(total.estimate)} over start {numbers.interval(total.estimate)}"


def noise_text(calibration: Calibration | None) -> str:
    """What gain can be judged here: `gains above 1.4 % can be judged here (SD between rounds 0.6 %)`."""
    if calibration is None:
        return ""
    return f"gains above {numbers.spread(calibration.margin)} can be judged here (SD between rounds {numbers.spread(calibration.sigma)})"


def direct_text(direct: Direct) -> str:
    e: Estimate = direct.estimate
    final = ", at the end" if direct.final else ""
    number = f"{numbers.speedup(e)} over {line(direct.against)} {numbers.interval(e)}"
    return f"experiment {direct.n}: {number}, {numbers.count(e.rounds, 'round')}{final}"


def activity(event: Event, trying: Event) -> str:
    """One line on what is being done now; empty when nothing is. `trying` is the last proposal."""
    facts = dict(event.numbers)
    if event.kind == "propose":
        return f"{event.n:>3}  {line(event.text)}"
    if event.kind == "rung":
        return f"{trying.n:>3}  {line(trying.text)}: {line(event.text)} {'ok' if facts.get('ok') else 'failed'}"
    if event.kind == "round":
        gain = f" {facts['gain']:+.1f} %" if "gain" in facts else ""
        return f"{trying.n:>3}  {line(trying.text)}: {line(event.text)} round{gain}"
    if event.kind == "try":
        return f"{event.n:>3}  {line(event.about)} tries: {line(event.text)}"
    return f"     {line(event.text)}" if event.kind in ("calibrate", "baseline") else ""


def paint(one: str, kind: Kind) -> Text:
    """The line with its verdict coloured; the words stay the same, so nothing is lost without colour."""
    from rich.text import Text

    shown = Text(one, no_wrap=True, overflow="ignore")
    shown.stylize(STYLES[kind], 0, min(len(one), 36))
    return shown
