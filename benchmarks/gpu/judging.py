"""What a verdict costs on a GPU: Triton, a memory-bound case, workers warm.

    python benchmarks/gpu/judging.py [--seconds 200] [--repeats 3] [--out FOLDER] [--fresh]

The task is tests/gpu/tasks/norm, an RMSNorm of 1024 x 4096. Seconds are wall time around GpuJudge.evaluate and of each rung. Before each
verdict all workers are warm, as they are when a proposer takes some seconds to think; every repeat is a new candidate, so that no build
or capture comes from an earlier one. The champions were captured twice before, as a champion in a run is. Kinds take turns.

Two kinds are judged once more without the defences that the corpus of cheats asked for (chains of some calls, memory wound forward,
Triton compiled again), to say what those cost.

It writes OUT/judging.jsonl, a line a verdict, and judging.json. Bars, on the median: compile error and wrong answer 2.5 s, screen-out
4 s, keep 25 s; the defences at most 15 % of a keep and 0.5 s of a screen-out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from unittest import mock

import bench
import workbench
from bench import Bar, Book, Clock, Desk, Session
from msgspec import Struct

from keepfast.errors import MachineError
from keepfast.judge.gpu import check, rounds
from keepfast.judge.gpu.judge import GpuJudge
from keepfast.model import Calibration, Candidate, Kind, Reason
from keepfast.stats import median

TASK = bench.ROOT / "tests/gpu/tasks/norm"
LAUNCH = "    rms[(m,)](x, weight, y, n, epsilon, BLOCK=triton.next_power_of_2(n), num_warps=8)\n"
OPEN_S = 60.0  # ceilings, start, calibration, the second champion


class Case(Struct, frozen=True):
    """A kind of verdict: what is changed in the start kernel, what must come of it, the bar in seconds (0: none), and a guess. `bare`:
    without the defences."""

    name: str
    old: str
    new: str
    reasons: tuple[Reason, ...]
    seconds: float
    guess_s: float
    against: str = "start"
    bare: bool = False


NONE = (Reason.NO_GAIN, Reason.AMBIGUOUS, Reason.SLOWER)  # a no-op may look slow in one round: then it is reverted a little earlier
KINDS = (
    Case("compile error", "tl.rsqrt(", "tl.no_such(", (Reason.BUILD,), 2.5, 6.0),
    Case("wrong answer", "/ n + eps", "/ n + 0.1", (Reason.WRONG,), 2.5, 6.0),
    Case("same code", "    return y", "    return y  # the same", (Reason.SAME_CODE,), 0.0, 6.0),
    Case("screen-out", LAUNCH, LAUNCH + LAUNCH, (Reason.SLOWER,), 4.0, 8.0),
    Case("no gain", "tl.sum(v * v) / n + eps", "(tl.sum(v * v) + n * eps) / n", NONE, 0.0, 12.0),
    Case("keep", "num_warps=8", "num_warps=4", (Reason.FASTER,), 25.0, 25.0, "slow"),
    Case("bare screen-out", LAUNCH, LAUNCH + LAUNCH, (Reason.SLOWER,), 0.0, 8.0, bare=True),
    Case("bare keep", "num_warps=8", "num_warps=4", (Reason.FASTER,), 0.0, 25.0, "slow", bare=True),
)
KEEP_SHARE, SCREEN_S = 0.15, 0.5  # that the defences may cost


class Sample(Struct, frozen=True):
    """One verdict. `wall_s` has what replaces the workers that were used, `seconds` is the verdict's own."""

    name: str
    wall_s: float
    seconds: float
    kind: Kind
    reason: Reason
    detail: str
    rungs: tuple[tuple[str, float], ...]
    rounds: int
    round_s: float  # median
    warm_s: float  # waited for before it


class Cost(Struct, frozen=True):
    name: str
    asked_s: float
    samples: int
    median_s: float
    fastest_s: float
    slowest_s: float
    rungs: dict[str, float]  # medians
    rounds: float
    round_s: float
    unexpected: tuple[str, ...]


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    costs: tuple[Cost, ...]
    bars: tuple[Bar, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    repeats: int


# --------------------------------------------------------------------------------------------- verdicts


@contextmanager
def bared() -> Iterator[None]:
    """No chains of some calls, no memory wound forward, nothing compiled again."""
    with ExitStack() as stack:
        for place in (check, rounds):
            stack.enter_context(mock.patch.object(place, "parts", return_value=()))
        stack.enter_context(mock.patch.object(check.OneCase, "_later", return_value=None))
        stack.enter_context(mock.patch.object(GpuJudge, "_named", return_value=None))
        yield


class Lab:
    """The judge with both champions ready."""

    def __init__(self, judge: GpuJudge, book: Book) -> None:
        self.judge = judge
        self.text = (TASK / "kernel" / "kernel.py").read_text()
        self.champions = {"start": self._made(self.text, 1), "slow": self._made(self.text.replace(LAUNCH, LAUNCH + LAUNCH), 2)}
        key = f"calibration {judge.bench.machine.hash}"
        workbench.passed(judge.ready(self.champions["start"], book.find(key, Calibration)))
        if book.find(key, Calibration) is None:
            book.store.add(key, judge.calibrated())
        judge.arms.lasting |= {champion.tree for champion in self.champions.values()}
        for champion in self.champions.values():
            judge.arms.kept(judge._known(champion), 1)

    def _made(self, text: str, n: int = 0) -> Candidate:
        return bench.candidate(self.judge.task, text, n)

    def sample(self, case: Case, repeat: int) -> Sample:
        made, against = self._made(changed(case, self.text) + f"# {case.name} {repeat} {time.time():.0f}\n"), self.champions[case.against]
        began = time.monotonic()
        self.judge.bench.pool.settle()
        warm = time.monotonic()
        with bared() if case.bare else nullcontext():
            found = self.judge.evaluate(made, against, ())
        wall_s = time.monotonic() - warm
        if found.kind is Kind.VOID:
            raise MachineError(f"void: {found.detail}")
        return Sample(
            name=case.name,
            wall_s=wall_s,
            seconds=found.seconds,
            kind=found.kind,
            reason=found.reason,
            detail=found.detail,
            rungs=tuple((r.name, r.seconds) for r in found.rungs),
            rounds=len(found.rounds),
            round_s=median([r.seconds for r in found.rounds]) if found.rounds else 0.0,
            warm_s=warm - began,
        )


def changed(case: Case, text: str) -> str:
    if case.old not in text:
        raise ValueError(f"the start kernel has no {case.old!r}")
    return text.replace(case.old, case.new)


def measured(given: Given, desk: Desk, book: Book, clock: Clock) -> None:
    todo = [(f"{case.name} {n}", case, n) for n in range(given.repeats) for case in KINDS if not book.done_with(f"{case.name} {n}")]
    if not todo or not clock.room("open", OPEN_S):
        return
    with desk.judge(TASK, given.out) as judge:
        lab = Lab(judge, book)
        for key, case, n in todo:
            if not clock.room(case.name, case.guess_s):
                continue
            with clock.counted(case.name):
                found = book.once(key, Sample, lambda: lab.sample(case, n))  # noqa: B023  called at once
            if found is not None:
                rungs = " ".join(f"{name} {s:.2f}" for name, s in found.rungs)
                print(f"  {key:<16} {found.wall_s:6.2f} s  {found.reason.value:<16} {rungs}; {found.rounds} rounds", flush=True)


# --------------------------------------------------------------------------------------------- what they say


def cost(case: Case, samples: Sequence[Sample]) -> Cost:
    seconds = [s.wall_s for s in samples] or [0.0]
    names = dict.fromkeys(name for s in samples for name, _ in s.rungs)
    timed = [s.round_s for s in samples if s.rounds]
    return Cost(
        name=case.name,
        asked_s=case.seconds,
        samples=len(samples),
        median_s=median(seconds),
        fastest_s=min(seconds),
        slowest_s=max(seconds),
        rungs={name: median([s for one in samples for rung, s in one.rungs if rung == name]) for name in names},
        rounds=median([float(s.rounds) for s in samples]) if samples else 0.0,
        round_s=median(timed) if timed else 0.0,
        unexpected=tuple(f"{s.reason}: {s.detail}" for s in samples if s.reason not in case.reasons),
    )


def bars(costs: Sequence[Cost]) -> tuple[Bar, ...]:
    made = []
    for found in costs:
        asked = f"at most {found.asked_s:g} s" if found.asked_s else "-"
        said = f"{found.median_s:.2f} s [{found.fastest_s:.2f}, {found.slowest_s:.2f}], n = {found.samples}"
        odd = f"; {len(found.unexpected)} unexpected: {found.unexpected[0]}" if found.unexpected else ""
        good = not found.unexpected and found.samples > 0 and (not found.asked_s or found.median_s <= found.asked_s)
        made.append(Bar(found.name, asked, said + odd, good))
    return (*made, *defences({c.name: c for c in costs if c.samples}))


def defences(costs: Mapping[str, Cost]) -> Iterator[Bar]:
    """What they add to a keep and to a screen-out, where both were measured."""
    if {"keep", "bare keep"} <= costs.keys():
        share = costs["keep"].median_s / costs["bare keep"].median_s - 1
        yield Bar("defences, of a keep", f"at most {KEEP_SHARE:.0%}", f"{share:+.1%}", share <= KEEP_SHARE)
    if {"screen-out", "bare screen-out"} <= costs.keys():
        more = costs["screen-out"].median_s - costs["bare screen-out"].median_s
        yield Bar("defences, of a screen-out", f"at most {SCREEN_S:g} s", f"{more:+.2f} s", more <= SCREEN_S)


def tell(costs: Sequence[Cost]) -> None:
    names = list(dict.fromkeys(name for c in costs for name in c.rungs))
    head = ("verdict", "n", "s", "fastest", "slowest", *names, "rounds", "round s")
    print("\n" + workbench.table([head, *(words(c, names) for c in costs)]))


def words(c: Cost, names: Sequence[str]) -> tuple[str, ...]:
    rungs = (f"{c.rungs[name]:.2f}" if name in c.rungs else "" for name in names)
    return (
        c.name,
        str(c.samples),
        f"{c.median_s:.2f}",
        f"{c.fastest_s:.2f}",
        f"{c.slowest_s:.2f}",
        *rungs,
        f"{c.rounds:g}",
        f"{c.round_s:.2f}",
    )


def run(given: Given) -> int:
    clock = Clock(given.seconds)
    if given.seconds > 0:
        with Desk(given.card) as desk:
            book = Book(given, "judging", desk.session())
            try:
                measured(given, desk, book, clock)
            except (bench.Stop, MachineError) as error:
                print(f"ended early: {error}", file=sys.stderr)
    else:
        book = Book(given, "judging", None)
    costs = tuple(cost(case, list(book.all(f"{case.name} ", Sample).values())) for case in KINDS)
    tell(costs)
    held = bars(costs)
    return bench.summary(book, Summary(book.sessions(), costs, held), held, "judging")


def main(words: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 200.0)
    parser.add_argument("--repeats", type=int, default=3)
    return bench.called(parser, words, Given, run)


if __name__ == "__main__":
    sys.exit(main())
