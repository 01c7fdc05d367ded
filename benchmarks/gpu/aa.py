"""A/A on a GPU: the start kernel of a task captured twice, one capture in each arm, timed as the judge times them.

    python benchmarks/gpu/aa.py [--seconds 330] [--rounds 12] [--cases 3] [--tasks norm,rmsnorm_plain] [--out FOLDER] [--fresh]

A round is a fresh launcher process that times three cases of one task, from the first to the last. After `--captures-every` rounds both
arms are captured again and contents are drawn anew. Offsets are log-ratios of the first capture over the second, in per cent of time
saved; their intervals are 95 %, over rounds. SDs are between rounds of the same two captures. It writes OUT/aa.jsonl, a line a round,
and aa.json.
Bars: SD between rounds at most 0.08 %, offset at most 0.05 %, each case.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence

import bench
import workbench
from bench import Bar, Book, Clock, Desk, Session
from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import KeepfastError, UsageError
from keepfast.judge.gpu.judge import GpuJudge
from keepfast.model import Case, Phase, Round, Task
from keepfast.stats import half_width, mean, median, sample_sd
from keepfast.task.load import load

TASKS = {
    "norm": "tests/gpu/tasks/norm",
    "rmsnorm": "examples/gpu/rmsnorm",
    "softmax": "examples/gpu/softmax",
    "rmsnorm_plain": "examples/gpu/rmsnorm_plain",
    "matmul": "examples/gpu/matmul",
    "quant": "examples/gpu/quant",
    "decode_attention": "examples/gpu/decode_attention",
}
DEFAULT = "norm,rmsnorm,softmax,matmul,quant,decode_attention"  # six kernels, their cases from 2 us to 1 ms
OPEN_S, ROUND_S = 25.0, 4.0  # guesses: a judge opened and its start checked; a round
MOST_SD, MOST_OFFSET = 0.0008, 0.0005


class Measured(Struct, frozen=True):
    """One round. Rounds of one `capture` share both captures and the contents they are drawn from."""

    task: str
    capture: str
    round: Round
    calls: dict[str, int]  # of a launch, by case


class Row(Struct, frozen=True):
    """One case. Log-ratios; `low` and `high` bound the offset."""

    task: str
    case: str
    call_us: float
    sd: float
    offset: float
    low: float
    high: float
    rounds: int
    captures: int
    round_s: float


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    rounds: int
    captures_every: int
    tasks: str
    cases: int


# --------------------------------------------------------------------------------------------- rounds


class Same:
    """One task: its start in both arms."""

    def __init__(self, judge: GpuJudge) -> None:
        self.judge, self.start = judge, bench.start_of(judge.task)
        self.opened, self.captures = time.time(), 0
        judge.start, judge.arms.lasting = self.start, {self.start.tree}
        self.checked = judge._again(self.start)
        self.begin()

    def begin(self) -> None:
        """Rounds from here on are of the captures that are made now, on the contents that were drawn last."""
        self.duel = replace(self.judge._against_itself(self.checked), takes=((0, 1), (0, 1)))
        self.captures += 1
        self.capture = f"{self.opened:.0f} {self.captures}"

    def again(self) -> None:
        self.judge._draw()
        self.checked.artifact.takes.clear()
        self.begin()

    def round(self) -> Measured:
        for take in (0, 1):
            self.judge.arms.kept(self.checked.artifact, take)
        (found,) = self.judge._measure(self.duel, Phase.CALIBRATE, 1)
        return Measured(self.judge.task.name, self.capture, found, {t.name: t.calls for t in self.duel.timed})


def prefix(name: str) -> str:
    """How keys of a task's rounds begin; another kernel or task has others."""
    task = load(bench.ROOT / TASKS[name])
    return f"{task.name} {task.hash[:8]}{bench.start_of(task).tree[:8]} round "


def measured(given: Given, desk: Desk, book: Book, clock: Clock) -> None:
    """Each task in turn, in an equal share of the time that is left. What ends one task is said, and the next one begins."""
    wanted = {name: [f"{prefix(name)}{n}" for n in range(given.rounds)] for name in given.tasks.split(",")}
    todo = [name for name, rounds in wanted.items() if not all(map(book.done_with, rounds))]
    for number, name in enumerate(todo):
        share = Clock(clock.left / (len(todo) - number))
        if not share.room("open", OPEN_S):
            return
        try:
            with desk.judge(bench.ROOT / TASKS[name], given.out, cases=lambda task: spread(task, given.cases)) as judge:
                one(Same(judge), book, [key for key in wanted[name] if not book.done_with(key)], (share, given.captures_every))
        except (bench.Stop, KeepfastError) as error:
            print(f"{name}: ended early: {error}", file=sys.stderr, flush=True)
            book.in_a_row = 0


def spread(task: Task, most: int) -> tuple[Case, ...]:
    """So many timed cases of a task, from the first to the last; 0: all."""
    timed = task.timed
    if not 0 < most < len(timed):
        return timed
    return tuple(timed[round(i * (len(timed) - 1) / max(most - 1, 1))] for i in range(most))


def one(same: Same, book: Book, todo: Sequence[str], limits: tuple[Clock, int]) -> None:
    share, every = limits

    def made(number: int) -> Measured:
        if number and number % every == 0:
            same.again()
        return same.round()

    for number, key in enumerate(todo):
        if not share.room("round", ROUND_S):
            return
        with share.counted("round"):
            found = book.once(key, Measured, lambda: made(number))  # noqa: B023  called at once
        if found is not None:
            said = ", ".join(f"{c.case} {100 * c.d:+.3f} % of {c.opponent_ns / 1e3:.1f} us" for c in found.round.cases)
            print(f"  {key}: {found.round.seconds:.2f} s  {said}", flush=True)


# --------------------------------------------------------------------------------------------- what they say


def rows(found: Sequence[Measured]) -> Iterator[Row]:
    for task in dict.fromkeys(m.task for m in found):
        mine = [m for m in found if m.task == task]
        for case in dict.fromkeys(c.case for m in mine for c in m.round.cases):
            yield row(task, case, mine)


def row(task: str, case: str, found: Sequence[Measured]) -> Row:
    seen = [(m, c) for m in found for c in m.round.cases if c.case == case]
    ds = [c.d for _, c in seen]
    groups = [[c.d for m, c in seen if m.capture == capture] for capture in dict.fromkeys(m.capture for m, _ in seen)]
    reach = half_width(ds, 0.0, 0.025) if len(ds) > 1 else math.inf
    us = median([ns / 1e3 for _, c in seen for ns in (c.subject_ns, c.opponent_ns)])
    times = median([m.round.seconds for m, _ in seen])
    return Row(task, case, us, within(groups), mean(ds), mean(ds) - reach, mean(ds) + reach, len(ds), len(groups), times)


def within(groups: Sequence[Sequence[float]]) -> float:
    """SD around the mean of each group."""
    freedom = sum(len(g) - 1 for g in groups)
    return math.sqrt(math.fsum((len(g) - 1) * sample_sd(g) ** 2 for g in groups) / freedom) if freedom else 0.0


def bars(table: Sequence[Row]) -> tuple[Bar, ...]:
    judged = [r for r in table if r.rounds > 2]
    sd, offset = max((r.sd for r in judged), default=math.inf), max((abs(r.offset) for r in judged), default=math.inf)
    return (
        Bar("cases", "at least 6", f"{len(judged)}", len(judged) >= 6),
        Bar("largest SD between rounds", f"at most {MOST_SD:.2%}", f"{sd:.3%}", sd <= MOST_SD),
        Bar("largest offset", f"at most {MOST_OFFSET:.2%}", f"{offset:.3%}", offset <= MOST_OFFSET),
    )


def tell(table: Sequence[Row]) -> None:
    head = ("task", "case", "call us", "SD of rounds", "offset", "95 %", "rounds", "captures", "round s")
    print("\n" + workbench.table([head, *map(words, table)]))


def words(r: Row) -> tuple[str, ...]:
    spread = (f"{r.sd:.3%}", f"{r.offset:+.3%}", f"[{r.low:+.3%}, {r.high:+.3%}]")
    return (r.task, r.case, f"{r.call_us:.2f}", *spread, str(r.rounds), str(r.captures), f"{r.round_s:.2f}")


def run(given: Given) -> int:
    if unknown := [name for name in given.tasks.split(",") if name not in TASKS]:
        raise UsageError(f"no task `{unknown[0]}`; there are {', '.join(TASKS)}")
    clock = Clock(given.seconds)
    if given.seconds > 0:
        with Desk(given.card) as desk:
            book = Book(given, "aa", desk.session())
            measured(given, desk, book, clock)
    else:
        book = Book(given, "aa", None)
    table = tuple(rows([m for name in TASKS for m in book.all(prefix(name), Measured).values()]))
    tell(table)
    held = bars(table)
    return bench.summary(book, Summary(book.sessions(), table, held), held, "aa")


def main(words: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 330.0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--captures-every", type=int, default=6)
    parser.add_argument("--cases", type=int, default=3, help="timed cases of a task, from the first to the last; 0: all")
    parser.add_argument("--tasks", default=DEFAULT, help=f"some of {', '.join(TASKS)}")
    return bench.called(parser, words, Given, run)


if __name__ == "__main__":
    sys.exit(main())
