"""Kernels beside their peers, by the judge's own clock: versions of a task against each of its baselines, both arms in the same rounds.

    python benchmarks/gpu/kernels.py [softmax:010-bulk-copies rmsnorm_plain:start ...] [--rounds 3] [--seconds 240]
                                     [--only compiled,quack_cute] [--cases 1] [--out FOLDER] [--fresh]

A version is TASK:start, or TASK:ENTRY for an entry of its deck (the beginning of its name is enough). Without any, those are measured whose
figures docs/evidence.md asks for. Each version and each baseline is checked against the reference on the timed cases first; a unit is one
pair, `--rounds` fresh launchers that time all timed cases. With `--cases 1`, when time is left, versions are also checked on the cases
that are never timed.

It writes OUT/kernels.jsonl, a line a pair, and kernels.json: per case both times, the gain with its interval, bandwidth, and its share of
what a copy and a read reach on this card. No bars: where a peer wins, the table says so.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import bench
import workbench
from bench import Book, Clock, Desk, Session
from msgspec import Struct
from units import deck

from keepfast.errors import KeepfastError, MachineError, UsageError
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.arms import Artifact
from keepfast.judge.gpu.check import Correct
from keepfast.judge.gpu.judge import Checked, GpuJudge
from keepfast.model import Candidate, Kind, Phase, Round, Task, Verdict, percent
from keepfast.stats import estimate, median
from keepfast.task.load import load

DEFAULT = (
    "softmax:010", "softmax:009", "softmax:007", "rmsnorm_plain:008", "rmsnorm_plain:007", "rmsnorm_plain:006", "rmsnorm_plain:start",
    "quant:009", "quant:008", "quant:007", "matmul:009", "matmul:008", "decode_attention:011",
)  # fmt: skip
START = "start"
SIGMA = 0.0008  # between rounds on an H200: what an interval of few rounds is not narrower than
OPEN_S, CHECK_S, PAIR_S, COMPILED_S = 25.0, 5.0, 12.0, 40.0  # guesses


class Pair(Struct, frozen=True):
    """A version against a baseline; `error` instead of rounds when one of them cannot be timed here. `ceilings` of that card."""

    task: str
    version: str
    baseline: str
    rounds: tuple[Round, ...] = ()
    moved: tuple[tuple[str, float], ...] = ()  # bytes of a call, by case
    ceilings: tuple[tuple[str, float], ...] = ()
    error: str = ""


class Whole(Struct, frozen=True):
    """A version on all cases of its task, the untimed ones too."""

    task: str
    version: str
    cases: int
    error: str = ""


class Row(Struct, frozen=True):
    """A case of a pair. Gain in per cent of the baseline's time over the version's, with its 95 % interval."""

    task: str
    version: str
    case: str
    us: float
    baseline: str
    baseline_us: float
    gain: float
    low: float
    high: float
    rounds: int
    TBps: float
    of_copy: float
    of_read: float


class Summary(Struct, frozen=True):
    sessions: tuple[Session, ...]
    rows: tuple[Row, ...]
    not_timed: tuple[str, ...]
    whole: tuple[Whole, ...]


class Given(bench.Given, frozen=True, kw_only=True):
    versions: tuple[str, ...]
    rounds: int
    only: str
    cases: int


class Version(Struct, frozen=True):
    task: str
    name: str  # "start", or an entry of the deck
    made: Candidate

    def key(self, baseline: str, rounds: int) -> str:
        return f"{self.task} {self.name} {self.made.tree[:8]} against {baseline}, {rounds} rounds"

    @property
    def whole(self) -> str:
        return f"whole {self.task} {self.name} {self.made.tree[:8]}"


# --------------------------------------------------------------------------------------------- what is asked


def folder(task: str) -> Path:
    found = bench.ROOT / "examples/gpu" / task
    if not (found / "task.toml").is_file():
        raise UsageError(f"no task `{task}` under examples/gpu")
    return found


def versions(words: Sequence[str]) -> dict[str, list[Version]]:
    """By task, in the order they were named."""
    found: dict[str, list[Version]] = {}
    for word in words or DEFAULT:
        name, _, entry = word.partition(":")
        found.setdefault(name, []).append(version(load(folder(name)), entry.removeprefix("deck/") or START))
    return found


def version(task: Task, entry: str) -> Version:
    start = bench.start_of(task)
    if entry == START:
        return Version(task.name, START, bench.of_files(start.files, 1))
    known = dict(deck(task, start.files))
    name = next((name for name in known if name.startswith(entry)), "")
    if not name:
        raise UsageError(f"{task.name} has no entry `{entry}` in its deck; there are {', '.join(known)}")
    return Version(task.name, name, bench.of_files(known[name], 1))


def baselines(task: Task, only: str) -> list[str]:
    """Those wanted; what is compiled comes last, as it takes longest."""
    wanted = [b.name for b in task.baselines if not only or b.name in only.split(",")]
    return sorted(wanted, key=lambda name: "compiled" in name)


def pairs(given: Given) -> dict[str, list[tuple[str, Version, str]]]:
    """By task: key, version, baseline. Baselines take turns, so that any beginning of it has every version."""
    found: dict[str, list[tuple[str, Version, str]]] = {}
    for name, mine in versions(given.versions).items():
        names = baselines(load(folder(name)), given.only)
        found[name] = [(v.key(b, given.rounds), v, b) for b in names for v in mine]
    return found


# --------------------------------------------------------------------------------------------- one task


class Lab:
    """The judge of one task, with versions and baselines checked once."""

    def __init__(self, judge: GpuJudge, mine: Sequence[Version]) -> None:
        self.judge = judge
        judge.start = mine[0].made
        judge.arms.lasting = {v.made.tree for v in mine}
        self.peers: dict[str, tuple[Artifact, Correct] | str] = {}
        self.right: dict[str, Checked | str] = {}  # versions, by tree

    def pair(self, v: Version, baseline: str, rounds: int) -> Pair:
        judge = self.judge
        peer, checked = self._peer(baseline), self.checked(v)
        if isinstance(peer, str) or isinstance(checked, str):
            return Pair(v.task, v.name, baseline, error=peer if isinstance(peer, str) else checked)
        artifact, right = peer
        duel = judge._duel(checked, artifact, baseline, right.ns)
        found = judge._measure(duel, Phase.DIRECT, rounds)
        moved = tuple((s.name, float(s.limit[0])) for s in judge._stages() if s.limit)
        return Pair(v.task, v.name, baseline, tuple(map(bench.plain, found)), moved, judge.bench.machine.ceilings)

    def checked(self, v: Version) -> Checked | str:
        """The version, checked when it is first asked for, or what is wrong with it."""
        if v.made.tree not in self.right:
            found = self.judge._check(self.judge._ladder(), v.made, v.made)
            if isinstance(found, Verdict) and found.kind is Kind.VOID:
                raise MachineError(found.detail)
            self.right[v.made.tree] = f"{found.reason}: {found.detail}" if isinstance(found, Verdict) else found
        return self.right[v.made.tree]

    def _peer(self, name: str) -> tuple[Artifact, Correct] | str:
        """A baseline that is right, or why it is not timed."""
        if name not in self.peers:
            self.peers[name] = self._known(name)
        return self.peers[name]

    def _known(self, name: str) -> tuple[Artifact, Correct] | str:
        judge = self.judge
        if not judge.shelf.stock:
            judge._stages()
            judge._draw()
        artifact = judge._artifact(judge.arms.baseline(name))
        if isinstance(artifact, Failure):
            return f"{artifact.reason}: {artifact.detail}"
        right = judge.checker.check(judge.arms.kept(artifact, 0), judge._stages(), judge.shelf.stock)
        return f"{right.reason}: {right.detail}" if isinstance(right, Failure) else (artifact, right)


def measured(given: Given, desk: Desk, book: Book, clock: Clock) -> None:
    """Each task in turn, in an equal share of the time that is left. What ends one task is said, and the next one begins."""
    todo = {name: rest for name, keys in pairs(given).items() if (rest := [k for k in keys if not book.done_with(k[0])])}
    for number, (name, rest) in enumerate(todo.items()):
        share = Clock(clock.left / (len(todo) - number))
        if not share.room("open", OPEN_S):
            return
        try:
            with desk.judge(folder(name), given.out, cases=bench.timed_cases) as judge:
                one(Lab(judge, list(dict.fromkeys(v for _, v, _ in rest))), book, rest, (share, given.rounds))
        except (bench.Stop, KeepfastError) as error:
            print(f"{name}: ended early: {error}", file=sys.stderr, flush=True)
            book.in_a_row = 0


def one(lab: Lab, book: Book, rest: Sequence[tuple[str, Version, str]], limits: tuple[Clock, int]) -> None:
    share, rounds = limits
    for key, v, baseline in rest:
        fresh = baseline not in lab.peers
        if not share.room(
            f"first {baseline}" if fresh else "pair", (COMPILED_S if "compiled" in baseline else PAIR_S) if fresh else PAIR_S
        ):
            continue
        with share.counted(f"first {baseline}" if fresh else "pair"):
            found = book.once(key, Pair, lambda: lab.pair(v, baseline, rounds))  # noqa: B023  called at once
        if found is not None:
            for line in lines(found):
                print(line, flush=True)


def checked(given: Given, desk: Desk, book: Book, clock: Clock) -> None:
    """Versions on every case of their task, the untimed ones too."""
    todo = {name: rest for name, mine in versions(given.versions).items() if (rest := [v for v in mine if not book.done_with(v.whole)])}
    for name, rest in todo.items():
        if not clock.room("open", OPEN_S):
            return
        with clock.counted("open"), desk.judge(folder(name), given.out) as judge:
            lab = Lab(judge, rest)
            for v in rest:
                if clock.room("check", CHECK_S):
                    with clock.counted("check"):
                        book.once(v.whole, Whole, lambda: whole(lab, v))  # noqa: B023  called at once


def whole(lab: Lab, v: Version) -> Whole:
    found = lab.checked(v)
    return Whole(v.task, v.name, len(lab.judge.task.cases), found if isinstance(found, str) else "")


# --------------------------------------------------------------------------------------------- what they say


def rows(found: Pair) -> Iterator[Row]:
    moved, limits = dict(found.moved), dict(found.ceilings)
    for case in dict.fromkeys(c.case for r in found.rounds for c in r.cases):
        mine = [c for r in found.rounds for c in r.cases if c.case == case]
        e = estimate([c.d for c in mine], found.baseline, SIGMA)
        us, other = (median([ns / 1e3 for ns in times]) for times in ([c.subject_ns for c in mine], [c.opponent_ns for c in mine]))
        speed = moved.get(case, 0.0) / us / 1e6 if us else 0.0
        share = {name: 1e3 * speed / limits[f"{name}_GBps"] if limits.get(f"{name}_GBps") else 0.0 for name in ("copy", "read")}
        gains = (round(percent(e.d), 2), round(percent(e.high), 2), round(percent(e.low), 2))
        yield Row(
            found.task, found.version, case, round(us, 3), found.baseline, round(other, 3), *gains, len(mine),
            round(speed, 3), round(share["copy"], 3), round(share["read"], 3),
        )  # fmt: skip


def lines(found: Pair) -> Iterator[str]:
    if found.error:
        yield f"  {found.task} {found.version} against {found.baseline}: {found.error[:160]}"
    for r in rows(found):
        gain = f"{r.gain:+.2f} % [{r.low:+.2f}, {r.high:+.2f}]"
        speed = f"{r.TBps:.2f} TB/s, {r.of_copy:.0%} of copy"
        yield f"  {r.task} {r.version} {r.case}: {r.us:.2f} us, {r.baseline} {r.baseline_us:.2f} us, {gain}, {speed}"


def summed(book: Book, names: Sequence[str]) -> Summary:
    found = [p for name in names for p in book.all(f"{name} ", Pair).values()]
    lacking = tuple(f"{p.task} {p.version} against {p.baseline}: {p.error}" for p in found if p.error)
    return Summary(book.sessions(), tuple(r for p in found for r in rows(p)), lacking, tuple(book.all("whole ", Whole).values()))


def tell(found: Summary) -> None:
    """The best version of each case against each baseline."""
    best: dict[tuple[str, str, str], Row] = {}
    for r in found.rows:
        place = (r.task, r.case, r.baseline)
        if place not in best or r.gain > best[place].gain:
            best[place] = r
    head = ("task", "case", "version", "us", "baseline", "us", "gain %", "95 %", "TB/s", "of copy", "of read")
    table = [
        (r.task, r.case, r.version, f"{r.us:.2f}", r.baseline, f"{r.baseline_us:.2f}", f"{r.gain:+.2f}",
         f"[{r.low:+.2f}, {r.high:+.2f}]", f"{r.TBps:.3f}", f"{r.of_copy:.1%}", f"{r.of_read:.1%}")
        for r in sorted(best.values(), key=lambda r: (r.task, r.case, r.baseline))
    ]  # fmt: skip
    print("\n" + workbench.table([head, *table]))
    for text in found.not_timed:
        print(f"not timed  {text}")
    for w in found.whole:
        print(f"whole      {w.task} {w.version}: {w.error or f'right on all {w.cases} cases'}")


def run(given: Given) -> int:
    clock = Clock(given.seconds)
    names = list(versions(given.versions))
    if given.seconds > 0:
        with Desk(given.card) as desk:
            book = Book(given, "kernels", desk.session())
            measured(given, desk, book, clock)
            if given.cases:
                try:
                    checked(given, desk, book, clock)
                except (bench.Stop, KeepfastError) as error:
                    print(f"ended early: {error}", file=sys.stderr, flush=True)
    else:
        book = Book(given, "kernels", None)
    found = summed(book, names)
    tell(found)
    return bench.summary(book, found, (), "kernels")


def main(words: list[str] | None = None) -> int:
    parser = bench.arguments(__doc__, 240.0)
    parser.add_argument("versions", nargs="*", type=str, default=(), help="TASK:start, or TASK:ENTRY of its deck")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="baselines by name, with commas")
    parser.add_argument("--cases", type=int, default=1, help="1: check versions on untimed cases too, when time is left; 0: do not")
    return bench.called(parser, words, Given, run)


if __name__ == "__main__":
    sys.exit(main())
