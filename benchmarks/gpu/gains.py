"""No-ops and true gains on a GPU: is what does nothing reverted, and what does 1 % or 0.5 % less kept?

    python benchmarks/gpu/gains.py [--seconds 240] [--noops 48] [--gains 12] [--part 1/2 --card 0] [--out FOLDER] [--fresh]

One task with one timed case, an RMSNorm of 8000 x 4096. Every decision is a whole GpuJudge.evaluate: check, screen, test, confirm.
A no-op is the start in another dress (dresses.py): other machine code, the same work. A gain does 8000 rows against a champion that does
8080 (gain1) or 8040 (gain05): blocks beyond the rows compute the first rows once more. Its dress is another one as well. Units are in
an order that makes any part of it a fair sample. No-ops that ended before they had the rounds of screen and first test are measured on
until they have them: benchmarks/gpu/resample.py draws from those. `--part 1/2` does every second unit, for two cards at a time.

It writes OUT/gains.jsonl, a line a unit, and gains.json. Bars: no no-op kept, at most one gain of each size not kept.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench
import dresses
import workbench
from bench import Bar, Book, Clock, Desk, Session
from dresses import COLUMNS, DRESSES, MORE, ROWS, Dress
from msgspec import Struct
from msgspec.structs import replace

from keepfast.errors import MachineError
from keepfast.gpu.messages import KernelFacts
from keepfast.judge import decide
from keepfast.judge.decide import RULE, false_keep, mde
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.arms import Artifact
from keepfast.judge.gpu.judge import Checked, GpuJudge
from keepfast.judge.ladder import Outcome
from keepfast.model import Calibration, Candidate, Estimate, Kind, Phase, Reason, Round, Verdict, percent
from keepfast.stats import mean, median, sample_sd
from keepfast.task.load import load

NOOP, GAINS = "noop", tuple(MORE)
CYCLE = ("gain1", NOOP, "gain05", NOOP, NOOP, NOOP)
STRIDE = 7  # through the dresses of no-ops: any part of the order has some of each kind
FULL = RULE.screen + RULE.test  # rounds that every no-op has
GUESS_S = {NOOP: 10.0, "gain1": 20.0, "gain05": 20.0}
OPEN_S = 60.0  # ceilings, start, calibration


class Unit(Struct, frozen=True):
    """One decision to be made."""

    group: str
    n: int
    dress: Dress

    @property
    def key(self) -> str:
        return f"{self.group} {self.n}: {self.dress.name}"

    @property
    def truth(self) -> float:
        """Log-ratio of the work that is done, counted."""
        return math.log(ROWS / (ROWS + ROWS // MORE[self.group])) if self.group in MORE else 0.0


class Item(Struct, frozen=True):
    """One decision. `rungs` in seconds; `more` are rounds measured on after it, as of the test; `wall_s` with what replaces workers."""

    group: str
    dress: str
    truth: float
    kind: Kind
    reason: Reason
    detail: str
    seconds: float
    wall_s: float
    rungs: tuple[tuple[str, float], ...]
    code: str
    registers: int
    machine: str
    calibration: Calibration
    rounds: tuple[Round, ...] = ()
    more: tuple[Round, ...] = ()
    gain: Estimate | None = None
    test: Estimate | None = None
    screen: float | None = None
    when: float = 0.0

    @property
    def kept(self) -> bool:
        return self.kind is Kind.KEEP

    @property
    def covered(self) -> bool:
        """Whether the interval that is claimed holds the counted work."""
        return self.gain is not None and self.gain.low <= self.truth <= self.gain.high


class Group(Struct, frozen=True):
    """Gains of one size, or no-ops. Percentages as claimed, median and range; `covered`: intervals that hold the truth."""

    name: str
    done: int
    kept: int
    reasons: dict[str, int]
    codes: int  # different ones
    true_percent: float
    claimed: tuple[float, float, float] | None
    claims: int
    covered: int
    registers: tuple[int, ...]  # different numbers
    seconds: float
    lost: tuple[str, ...]  # no-ops kept, or gains not kept


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    groups: tuple[Group, ...]
    sd_of_rounds: float  # of no-ops, around each one's mean
    sd_of_noops: float  # of their means, chance included
    calibration: Calibration | None
    mde: float | None
    expected_false_keep: float | None
    seconds_of_rungs: dict[str, float]  # medians over all units
    bars: tuple[Bar, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    noops: int
    gains: int
    part: str


# --------------------------------------------------------------------------------------------- the order


def units(noops: int, gains: int) -> list[Unit]:
    """gain1, no-op, gain05, no-op, no-op, no-op, and again; then what is left of each."""
    half = len(DRESSES) // 2
    left = {
        NOOP: [Unit(NOOP, n, DRESSES[(half + n * STRIDE) % len(DRESSES)]) for n in range(min(noops, len(DRESSES)))],
        **{name: [Unit(name, n, DRESSES[(n + i * half // 2) % half]) for n in range(gains)] for i, name in enumerate(GAINS)},
    }
    order: list[Unit] = []
    while any(left.values()):
        order += [left[name].pop(0) for name in CYCLE if left[name]]
    return order


def part(order: Sequence[Unit], text: str) -> list[Unit]:
    """Every K-th unit, from the n-th on, of "n/K". Whole groups of two keep their mix: units are dealt out group by group."""
    number, _, count = text.partition("/")
    dealt: Counter[str] = Counter()
    mine: list[Unit] = []
    for unit in order:
        if dealt[unit.group] % int(count or 1) == int(number) - 1:
            mine.append(unit)
        dealt[unit.group] += 1
    return mine


# --------------------------------------------------------------------------------------------- judging


class Watched(GpuJudge):
    """Remembers what it timed last, so that more rounds of the same can be measured."""

    last: tuple[Checked, Artifact] | None = None

    def _tried(self, checked: Checked, champion: Artifact, *more: Any) -> Outcome:
        self.last = (checked, champion)
        return super()._tried(checked, champion, *more)


class Lab:
    """The judge, begun on the plain start, and its champions with work to spare."""

    def __init__(self, judge: Watched, book: Book) -> None:
        self.judge, self.book = judge, book
        self.champions = {name: self._made(Dress(), more, n) for n, (name, more) in enumerate({NOOP: 0, **MORE}.items(), 1)}
        key = f"calibration {judge.bench.machine.hash}"
        workbench.passed(judge.ready(self.champions[NOOP], book.find(key, Calibration)))
        judge.arms.lasting |= {champion.tree for champion in self.champions.values()}
        self.calibration = judge.calibrated()
        if book.find(key, Calibration) is None:
            book.store.add(key, self.calibration)

    def _made(self, worn: Dress, more: int, n: int, note: str = "") -> Candidate:
        return bench.candidate(self.judge.task, dresses.source(worn, more) + note, n)

    def decide(self, unit: Unit) -> Item:
        """The judge's verdict. MachineError when the machine spoiled it. The note makes it a build of its own."""
        self.judge.last = None
        made, champion = self._made(unit.dress, 0, 0, f"# {unit.group} {unit.n}\n"), self.champions[unit.group]
        began = time.monotonic()
        verdict = self.judge.evaluate(made, champion, ())
        wall_s = time.monotonic() - began
        if verdict.kind is Kind.VOID:
            raise MachineError(f"void: {verdict.detail}")
        item = self._item(unit, verdict, wall_s)
        return replace(item, more=self._more(len(item.rounds))) if unit.group == NOOP and item.rounds else item

    def _item(self, unit: Unit, verdict: Verdict, wall_s: float) -> Item:
        kernels: tuple[KernelFacts, ...] = self.judge.last[0].correct.cases[0].kernels if self.judge.last else ()
        return Item(
            group=unit.group,
            dress=unit.dress.name,
            truth=unit.truth,
            kind=verdict.kind,
            reason=verdict.reason,
            detail=verdict.detail,
            seconds=verdict.seconds,
            wall_s=wall_s,
            rungs=tuple((r.name, r.seconds) for r in verdict.rungs),
            code=verdict.code,
            registers=max((k.registers for k in kernels), default=0),
            machine=self.judge.bench.machine.hash,
            calibration=self.judge.calibrated(),
            rounds=tuple(bench.plain(r) for r in verdict.rounds),
            gain=verdict.gain,
            test=verdict.test,
            screen=verdict.screen,
            when=time.time(),
        )

    def _more(self, had: int) -> tuple[Round, ...]:
        """Rounds up to FULL, of the arms that were just timed. Fewer when they fail: the verdict stands without them."""
        if had >= FULL or self.judge.last is None:
            return ()
        (checked, champion), judge = self.judge.last, self.judge
        duel = judge._duel(checked, champion, "the champion", judge.expected[self.champions[NOOP].tree])
        judge._quiet()
        found = judge.rounds.measure(duel, decide.Measure(Phase.TEST, FULL - had))
        return () if isinstance(found, Failure) else tuple(bench.plain(r) for r in found)


def judged(given: Given, desk: Desk, book: Book, clock: Clock) -> None:
    todo = [unit for unit in part(units(given.noops, given.gains), given.part) if not book.done_with(unit.key)]
    if not todo or not clock.room("open", OPEN_S):
        return
    with workbench.room() as room, desk.judge(make_task(room / "rms_norm"), given.out, Watched) as judge:
        assert isinstance(judge, Watched)
        lab = Lab(judge, book)
        for unit in todo:
            if not clock.room(unit.group, GUESS_S[unit.group]):
                return
            with clock.counted(unit.group):
                found = book.once(unit.key, Item, lambda: lab.decide(unit))  # noqa: B023  called at once
            if found is not None:
                print(line(unit, found), flush=True)


def make_task(folder: Path) -> Path:
    """Writes the task into an empty folder."""
    (folder / "kernel").mkdir(parents=True)
    (folder / "task.toml").write_text(dresses.TASK.format(rows=ROWS, columns=COLUMNS))
    (folder / "reference.py").write_text(dresses.REFERENCE)
    (folder / "kernel" / "kernel.py").write_text(dresses.source(Dress()))
    load(folder)
    return folder


def digest() -> str:
    """Of everything that units are made from."""
    return hashlib.sha256(Path(dresses.__file__).read_bytes()).hexdigest()[:12]


def line(unit: Unit, found: Item) -> str:
    ds = " ".join(f"{percent(r.d):+.2f}" for r in (*found.rounds, *found.more))
    claim = f"{percent(found.gain.d):+.2f} [{percent(found.gain.high):+.2f}, {percent(found.gain.low):+.2f}] %" if found.gain else ""
    return f"  {unit.key:<58} {found.seconds:5.1f} s  {found.reason.value:<13} {claim} ({ds})"


# --------------------------------------------------------------------------------------------- what they say


def group(name: str, items: Sequence[Item]) -> Group:
    claims = sorted(percent(i.gain.d) for i in items if i.gain)
    wrong = [i for i in items if i.kept == (name == NOOP)]
    return Group(
        name=name,
        done=len(items),
        kept=sum(i.kept for i in items),
        reasons=dict(Counter(i.reason.value for i in items)),
        codes=len({i.code for i in items}),
        true_percent=percent(items[0].truth) if items else 0.0,
        claimed=(median(claims), claims[0], claims[-1]) if claims else None,
        claims=len(claims),
        covered=sum(i.covered for i in items),
        registers=tuple(sorted({i.registers for i in items if i.registers})),
        seconds=median([i.seconds for i in items]) if items else 0.0,
        lost=tuple(f"{i.dress}: {i.reason}, {i.detail}" for i in wrong),
    )


def spread(noops: Sequence[Item]) -> tuple[float, float]:
    """SD of rounds around each no-op's mean, and of the means. Over the rounds that every no-op has."""
    tables = [table for i in noops if len(table := [r.d for r in full(i)]) == FULL]
    if len(tables) < 2:
        return 0.0, 0.0
    return math.sqrt(mean([sample_sd(t) ** 2 for t in tables])), sample_sd([mean(t) for t in tables])


def full(noop: Item) -> tuple[Round, ...]:
    """The first FULL rounds, which do not depend on what they showed."""
    return (*noop.rounds, *noop.more)[:FULL]


def bars(groups: Sequence[Group], wanted: dict[str, int]) -> tuple[Bar, ...]:
    """Of what is done so far; how many are still to come is said and is no bar."""
    made = []
    for g in groups:
        found = f"{g.kept} of {g.done}, {wanted[g.name]} wanted"
        if g.name == NOOP:
            made.append(Bar("no-ops kept", "0", found, g.kept == 0))
        else:
            made.append(Bar(f"{g.name} kept", "all but one", found, g.done - g.kept <= 1))
            inside = f"{g.covered} of {g.claims}"
            made.append(Bar(f"{g.name}: {g.true_percent:+.2f} % within the claim", "all but one", inside, g.claims - g.covered <= 1))
    return tuple(made)


def summed(book: Book, wanted: dict[str, int]) -> Summary:
    items = {name: list(book.all(f"{name} ", Item).values()) for name in (NOOP, *GAINS)}
    everything = [i for group_ in items.values() for i in group_]
    groups = tuple(group(name, found) for name, found in items.items())
    latest = max(everything, key=lambda i: i.when).calibration if everything else None
    within, between = spread(items[NOOP])
    names = dict.fromkeys(name for i in everything for name, _ in i.rungs)
    return Summary(
        sessions=book.sessions(),
        groups=groups,
        sd_of_rounds=within,
        sd_of_noops=between,
        calibration=latest,
        mde=mde(latest) if latest else None,
        expected_false_keep=false_keep(latest) if latest else None,
        seconds_of_rungs={name: median([s for i in everything for rung, s in i.rungs if rung == name]) for name in names},
        bars=bars(groups, wanted),
    )


def tell(found: Summary) -> None:
    if c := found.calibration:
        print(f"\nnoise    SD between rounds {c.sigma:.3%}, layout {c.layout:.3%}, offset {c.offset:+.3%}, margin {c.margin:.3%}")
        print(f"printed  smallest gain likely seen {found.mde:.2%}, false keeps expected {found.expected_false_keep:.5f}")
    print(f"no-ops   SD of rounds {found.sd_of_rounds:.3%}, of the means of no-ops {found.sd_of_noops:.3%}")
    for g in found.groups:
        middle, least, most = g.claimed or (0.0, 0.0, 0.0)
        claim = f"; claimed {middle:+.2f} % [{least:+.2f}, {most:+.2f}], true {g.true_percent:+.2f} %" if g.claimed else ""
        said = ", ".join(f"{n} {reason}" for reason, n in g.reasons.items()) or "none"
        print(f"{g.name:<8} {g.done} ({g.codes} codes): {said}; {g.seconds:.1f} s each{claim}")
        for lost in g.lost:
            print(f"         {lost}")
    print(f"rungs    {', '.join(f'{name} {s:.2f} s' for name, s in found.seconds_of_rungs.items())}")


def run(given: Given) -> int:
    clock = Clock(given.seconds)
    if given.seconds > 0:
        with Desk(given.card) as desk:
            book = Book(given, "gains", desk.session(), digest())
            try:
                judged(given, desk, book, clock)
            except (bench.Stop, MachineError) as error:
                print(f"ended early: {error}", file=sys.stderr)
    else:
        book = Book(given, "gains", None, digest())
    found = summed(book, {NOOP: given.noops, **dict.fromkeys(GAINS, given.gains)})
    tell(found)
    return bench.summary(book, found, found.bars, "gains")


def main(words: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 240.0)
    parser.add_argument("--noops", type=int, default=len(DRESSES))
    parser.add_argument("--gains", type=int, default=12)
    parser.add_argument("--part", default="1/1", help="which part of the units, as in 1/2")
    return bench.called(parser, words, Given, run)


if __name__ == "__main__":
    sys.exit(main())
