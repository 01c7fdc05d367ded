"""The rung `correct` on a GPU: a captured subject alone in a launcher, every case, on contents it has never seen.

A few calls run in graphs of their own first, and are held against the reference; then all in a chain, with a call drawn for the
reference; then chains of some of the calls, so that no call can do another's work; then all again and again on the same contents, which
must not vary, at last with the memory that lives on between calls as it would be much later. Must not know how a gain is decided.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast.gpu.messages import Answer, Audit, Bank, KernelFacts, Profile, Ran, Run, Solo, Tolerance, Wind, Wound
from keepfast.judge.endings import MAX_DETAIL, Failure
from keepfast.judge.gpu import watched
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.launchers import RUN_S, Launcher, Launchers
from keepfast.judge.gpu.stages import Stage, tolerances
from keepfast.judge.gpu.watched import Watched
from keepfast.judge.gpu.workers import Captured
from keepfast.model import Fact, Reason

AGAIN = 19  # launches more on the same contents: 20 must agree
AGAIN_S = 20.0  # but no longer than this
VERBATIM = 4  # draws that are checked as they are
SOLO_LAUNCHES = 6
LATER = "with the memory that lives on between calls as more calls would leave it, or overwritten"


class Stock(Struct, frozen=True):
    """Contents of a case drawn for one evaluation. `fd` stays open as long as the evaluation."""

    bank: Bank
    fd: int


class Right(Struct, frozen=True):
    """What timing needs to know of a case that passed."""

    case: str
    call_ns: float
    budgets: tuple[Tolerance, ...]
    kernels: tuple[KernelFacts, ...]
    watched: Watched = Watched()


class Correct(Struct, frozen=True):
    cases: tuple[Right, ...]

    def of(self, case: str) -> Right:
        return next(r for r in self.cases if r.case == case)

    @property
    def ns(self) -> dict[str, float]:
        return {r.case: r.call_ns for r in self.cases}

    def facts(self) -> tuple[Fact, ...]:
        """Checked cases, then each kernel with its resources."""
        kernels = {k.name: k for r in self.cases for k in r.kernels}
        made = (Fact(k.name, resources(k)) for k in kernels.values())
        return (Fact("checked", f"{len(self.cases)} cases, chains of some calls, {AGAIN + 1} launches of all"), *made)


def resources(kernel: KernelFacts) -> str:
    spills = f", {kernel.spill_bytes} bytes spilled" if kernel.spill_bytes else ""
    return f"{kernel.registers} registers{spills}, {kernel.shared_bytes / 1024:.1f} KiB shared, {kernel.threads} threads"


class Checker:
    def __init__(self, launchers: Launchers, oracle: Oracle, rng: Random) -> None:
        self.launchers, self.oracle, self.rng = launchers, oracle, rng

    def check(self, captured: Captured, stages: Sequence[Stage], stock: dict[str, Stock]) -> Correct | Failure:
        found: list[Right] = []
        for stage in stages:
            right = self._case(captured, stage, stock[stage.name])
            if isinstance(right, Failure):
                return right
            found.append(right)
        return Correct(tuple(found))

    def pace(self, captured: Captured, stages: Sequence[Stage], stock: dict[str, Stock]) -> dict[str, float] | Failure:
        """Time of a call of each case in ns, nothing checked: to choose among configurations."""
        found: dict[str, float] = {}
        for stage in stages:
            with self.launchers.start() as launcher:
                failure = OneCase(self, launcher, stage).open(captured, stock[stage.name])
                solo = failure or launcher.solo(Solo(0, stage.calls, SOLO_LAUNCHES))
            if isinstance(solo, Failure):
                return solo
            found[stage.name] = solo.ms * 1e6 / stage.calls
        return found

    def _case(self, captured: Captured, stage: Stage, stock: Stock) -> Right | Failure:
        with self.launchers.start() as launcher:
            return OneCase(self, launcher, stage).run(captured, stock)


class OneCase:
    """One case of one subject in a launcher of its own."""

    def __init__(self, checker: Checker, launcher: Launcher, stage: Stage) -> None:
        self.launcher, self.stage = launcher, stage
        self.oracle, self.rng = checker.oracle, checker.rng
        self.audit_fd = -1

    def open(self, captured: Captured, stock: Stock, budgets: tuple[Tolerance, ...] = ()) -> Failure | None:
        known = tolerances(self.stage, budgets)
        found = self.launcher.open(self.stage.layout, (captured.arm(self.stage.name),), (stock.bank, stock.fd), known)
        if isinstance(found, Failure):
            return found
        self.audit_fd, self.audit_bytes = found.audit_fd, found.opened.audit_bytes
        return None

    def run(self, captured: Captured, stock: Stock) -> Right | Failure:
        if failure := self.open(captured, stock):
            return failure
        budgets = self._verbatim(min(VERBATIM, stock.bank.draws, self.stage.calls))
        if isinstance(budgets, Failure):
            return budgets
        self.launcher.close_case()
        if failure := self.open(captured, stock, budgets):
            return failure
        ns = self._mixed(keeps=bool(captured.arm(self.stage.name).plan.blocks))
        if isinstance(ns, Failure):
            return ns
        profiled = self.launcher.profile(Profile(0))
        if isinstance(profiled, Failure):
            return profiled
        return Right(self.stage.name, ns, budgets, profiled.kernels, watched.of(profiled))

    def _nonce(self) -> int:
        return self.rng.getrandbits(63)

    def _verbatim(self, count: int) -> tuple[Tolerance, ...] | Failure:
        """Draws as they are, each call alone, each held against the reference. The widest budgets found."""
        ran = self._ran(Run(0, self._nonce(), count, verbatim=True, alone=True))
        if isinstance(ran, Failure):
            return ran
        widest: tuple[Tolerance, ...] = ()
        for index in range(count):
            answer = self._asked(index)
            if isinstance(answer, Failure):
                return answer
            widest = wider(widest, answer.budgets)
        return widest

    def _mixed(self, keeps: bool) -> float | Failure:
        """New mixtures: in a chain, with a call drawn for the reference; in chains of some calls; again and again; much later, where
        something is kept between calls. About the time of a call in ns."""
        nonce, calls = self._nonce(), self.stage.calls
        first = self._ran(Run(0, nonce, calls, keep=True))
        if isinstance(first, Failure):
            return first
        wrong = self._asked(self.rng.randrange(calls))
        if isinstance(wrong, Failure):
            return wrong
        for some in parts(calls, self.rng):
            ran = self._ran(Run(0, nonce, calls, some=some, against=True))
            if isinstance(ran, Failure):
                return ran
        best, end = first.ms, time.monotonic() + AGAIN_S
        for _ in range(AGAIN):
            if time.monotonic() > end:
                break  # what takes so long is as it is: a launch has a limit of its own
            ran = self._ran(Run(0, nonce, calls, against=True))
            if isinstance(ran, Failure):
                return ran
            best = min(best, ran.ms)
        return (self._later(nonce, best) if keeps else None) or best * 1e6 / calls

    def _later(self, nonce: int, ms: float) -> Failure | None:
        """As many more calls would leave the memory that is kept between them. `ms`: of a launch; some 100 calls and 15 launches come."""
        patience_s = RUN_S + 0.1 * ms * (15 + 100 / self.stage.calls)  # a hundred times as long as they should take
        found = self.launcher.wind(Wind(0, nonce, self.stage.calls), patience_s)
        if isinstance(found, Failure):
            said = found.detail.replace(f"case {self.stage.name}", f"case {self.stage.name}, {LATER}", 1)
            return replace(found, detail=said[:MAX_DETAIL])
        return stateful(self.stage, found)

    def _asked(self, index: int) -> Answer | Failure:
        """Put a call into the audit memory and ask the reference."""
        if failure := self.launcher.audit(Audit(0, index)):
            return failure
        answer = self.oracle.ask(self.stage.name, self.audit_fd, self.audit_bytes)
        return wrong(self.stage, answer) or answer

    def _ran(self, run: Run) -> Ran | Failure:
        found = self.launcher.run(run)
        return found if isinstance(found, Failure) else misbehaved(self.stage, found) or found


def wrong(stage: Stage, answer: Answer) -> Failure | None:
    if not answer.wrong:
        return None
    if answer.stale:
        return Failure(Reason.STATEFUL, f"case {stage.name}: new contents, and an old answer came back", True)
    return Failure(Reason.WRONG, f"case {stage.name}: {answer.wrong}")


def misbehaved(stage: Stage, ran: Ran) -> Failure | None:
    """What a launch did that no right one does."""
    where = f"case {stage.name}"
    if ran.early:
        return Failure(Reason.OUT_OF_BOUNDS, f"{where}: a call wrote the results of other calls, of call {ran.early[0]} first", True)
    if ran.inputs:
        return Failure(Reason.OUT_OF_BOUNDS, f"{where}: an argument that is not marked `!` was changed, in call {ran.inputs[0]}")
    if ran.unwritten:
        return Failure(Reason.WRONG, f"{where}: part of the results was never written, in call {ran.unwritten[0]} first")
    if ran.odd:
        return Failure(Reason.UNSTABLE, f"{where}: call {ran.odd[0]} gives another result when launched again on the same contents")
    return None


def stateful(stage: Stage, wound: Wound) -> Failure | None:
    """Whether what calls keep for later ones matters to a result."""
    where = f"case {stage.name}"
    if wound.numbered:
        what = f"{wound.numbered} words of memory that lives on between calls say how many calls there were"
        return Failure(Reason.STATEFUL, f"{where}: {what}, and not by steps that could be wound forward")
    for one in wound.ahead:
        bad = (*one.ran.unwritten, *one.ran.inputs, *one.ran.odd)
        when = f"after about {one.wound:,} calls" if one.wound else "when what earlier calls left in memory that lives on is overwritten"
        if bad:
            return Failure(Reason.STATEFUL, f"{where}: call {bad[0]} gives another result {when}")
    return None


def parts(calls: int, rng: Random) -> tuple[int, ...]:
    """How many calls the chains of some calls have: about half, and one less or more, for who puts work off in groups leaves some undone
    in one of the two; then more, and all but one, for who begins late in a launch."""
    if calls < 2:
        return ()
    half = rng.randint(max(1, 3 * calls // 8), max(1, 5 * calls // 8))
    return half, half - 1 or min(2, calls - 1), rng.randint(half, calls - 1), calls - 1


def wider(one: tuple[Tolerance, ...], other: tuple[Tolerance, ...]) -> tuple[Tolerance, ...]:
    """The wider budget of each result."""
    if not one:
        return other
    pairs = zip(one, other, strict=True)
    return tuple(Tolerance(a.dtype, a.columns, max(a.rms, b.rms), max(a.worst, b.worst)) for a, b in pairs)
