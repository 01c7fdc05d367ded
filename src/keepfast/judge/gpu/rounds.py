"""The clock `plan`: one round is a fresh launcher that holds both plans of each case on the same memory.

After each case the results of all calls of all launches have been compared between the arms; what differs, and one call drawn by the
judge, goes to the reference. Must not know verdict rules, git or the ledger.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from keepfast.device import lease
from keepfast.errors import MachineError
from keepfast.gpu.messages import Audit, Run, Solo, Time, Timed, Tolerance
from keepfast.judge import decide
from keepfast.judge.endings import Failure
from keepfast.judge.gpu.asking import Oracle
from keepfast.judge.gpu.check import Stock, parts, wrong
from keepfast.judge.gpu.launchers import Launcher, Launchers, Opened
from keepfast.judge.gpu.stages import Stage, timed_calls, tolerances
from keepfast.judge.gpu.workers import Captured
from keepfast.judge.ladder import Suspect, composite
from keepfast.model import CaseRound, Phase, Reason, Round, Task
from keepfast.stats import median

BLOCKS = 10  # ABBA or BAAB a round and case, after one that warms
PAUSES_S = (0.5, 2.0, 5.0, 10.0, 0.0)  # after a disturbed round, before it is measured again
HOST_SLACK = 0.05  # event times and the host's clock agree within this over whole slots
SENTINEL_SLACK = 1.25  # median over fastest sentinel of a round
ODD_ASKED = 3
ALONE_APART = 0.015  # log-ratio: shared and separate launchers may differ by this
ALONE_LAUNCHES = 24
CONFIRMING = (Phase.CONFIRM, Phase.CASES)

Take = Callable[[int], "Captured"]  # the capture number n of an arm


class Timing(Struct, frozen=True):
    """A case ready to be timed. `ns`: of a call of the slower arm, when last seen."""

    stage: Stage
    stock: Stock
    budgets: tuple[Tolerance, ...]
    ns: float

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def calls(self) -> int:
        return timed_calls(self.stage, self.ns)


class Duel(Struct, frozen=True):
    """Two arms and the cases they are timed on. Takes: which capture of each is used in the first phases, and in confirm."""

    subject: Take
    opponent: Take
    name: str  # of the opponent
    timed: tuple[Timing, ...]
    extra: tuple[Timing, ...] = ()  # cases timed once in confirm
    takes: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (1, 1))


class Disturbed(Struct, frozen=True):
    detail: str


class Rounds:
    """Measures rounds. `unfit` says why the card was not fit since it was last asked, or ""; `told` hears of each round."""

    def __init__(self, task: Task, launchers: Launchers, oracle: Oracle, rng: Random) -> None:
        self.task, self.launchers, self.oracle, self.rng = task, launchers, oracle, rng
        self.card = ""  # UUID
        self.unfit: Callable[[], str] = lambda: ""
        self.told: Callable[[Phase, Round], None] = lambda phase, made: None
        self.weights = dict(zip((c.name for c in task.timed), task.weights(), strict=True))

    def measure(self, duel: Duel, step: decide.Measure) -> list[Round] | Failure:
        found: list[Round] = []
        for number in range(step.rounds):
            whole = step.phase is Phase.CONFIRM and number == 0
            made = self._once(duel, step, duel.timed + duel.extra if whole else duel.timed)
            if isinstance(made, Failure):
                return made
            found.append(made)
            self.told(step.phase, made)
        return found

    def _once(self, duel: Duel, step: decide.Measure, cases: tuple[Timing, ...]) -> Round | Failure:
        """One round; a disturbed one is measured again after a pause."""
        wanted = tuple(t for t in duel.timed + duel.extra if t.name in step.cases) if step.phase is Phase.CASES else cases
        said = ""
        for pause_s in PAUSES_S:
            with lease.held_card(self.card):
                found = self._round(duel, step.phase, wanted)
            if not isinstance(found, Disturbed):
                return found
            said = found.detail
            time.sleep(pause_s)
        raise MachineError(
            f"{len(PAUSES_S)} rounds in a row were disturbed: {said}",
            next_step="keepfast doctor   names what else uses the card",
        )

    def _round(self, duel: Duel, phase: Phase, cases: tuple[Timing, ...]) -> Round | Failure | Disturbed:
        began = time.monotonic()
        takes = duel.takes[phase in CONFIRMING]
        found = self._cases((duel.subject(takes[0]), duel.opponent(takes[1])), cases, phase in CONFIRMING)
        unfit = self.unfit()  # asked once a round, however the round ended: the next one is not to answer for this one
        if unfit and not isinstance(found, Failure):
            return Disturbed(unfit)
        if isinstance(found, Failure | Disturbed):
            return found
        results = tuple(_case_round(case.name, timed) for case, timed in zip(cases, found, strict=True))
        d = composite(self.weights, [(r.case, r.d) for r in results])
        return Round(phase, d, results, found[-1].sentinel_ms[1] * 1e6, time.monotonic() - began)

    def _cases(self, arms: tuple[Captured, Captured], cases: tuple[Timing, ...], confirming: bool) -> list[Timed] | Failure | Disturbed:
        """One case after the other in one launcher; in confirm with a chain of some calls among what is timed."""
        made: list[Timed] = []
        with self.launchers.start() as launcher:
            for case in cases:
                found = OneCase(self, launcher, case).run(arms, self._some(case.calls) if confirming else 0)
                if not isinstance(found, Timed):
                    return found
                made.append(found)
        return made

    def _some(self, calls: int) -> int:
        sizes = parts(calls, self.rng)
        return self.rng.choice(sizes) if sizes else 0

    def interference(self, duel: Duel, rounds: Sequence[Round]) -> Suspect | None:
        """Each arm alone in a launcher of its own: the ratio must be that of the shared one."""
        for case in duel.timed:
            ms = [self._alone(take(number), case) for take, number in zip((duel.subject, duel.opponent), duel.takes[1], strict=True)]
            shared = [c.d for r in rounds for c in r.cases if c.case == case.name]
            alone, together = math.log(ms[0] / ms[1]), median(shared)
            apart = alone - together
            if abs(apart) > ALONE_APART:
                said = f"case {case.name}: alone in its launcher the subject is {100 * apart:+.1f} % away from the shared ratio"
                said += f" ({math.exp(alone):.3f}x of the opponent's time alone, {math.exp(together):.3f}x together)"
                return Suspect(Reason.INTERFERENCE, said)
        return None

    def _alone(self, captured: Captured, case: Timing) -> float:
        with lease.held_card(self.card), self.launchers.start() as launcher:
            opened = launcher.open(case.stage.layout, (captured.arm(case.name),), (case.stock.bank, case.stock.fd), case.stage.results)
            found = opened if isinstance(opened, Failure) else launcher.solo(Solo(0, case.calls, ALONE_LAUNCHES))
        if isinstance(found, Failure):
            raise MachineError(f"a launcher with one arm failed: {found.detail}")
        return found.ms


def _case_round(name: str, timed: Timed) -> CaseRound:
    return CaseRound(name, timed.d, timed.subject_ms * 1e6 / timed.calls, timed.opponent_ms * 1e6 / timed.calls, timed.pairs)


class OneCase:
    """One case of one round: times it, then looks at what was not alike."""

    def __init__(self, rounds: Rounds, launcher: Launcher, case: Timing) -> None:
        self.launcher, self.case, self.stage = launcher, case, case.stage
        self.oracle, self.rng = rounds.oracle, rounds.rng

    def run(self, arms: tuple[Captured, Captured], some: int = 0) -> Timed | Failure | Disturbed:
        """`some`: how many calls one launch of the subject has that is not timed; 0: there is none."""
        stage, stock = self.stage, self.case.stock
        known = tolerances(stage, self.case.budgets)
        opened = self.launcher.open(stage.layout, tuple(a.arm(stage.name) for a in arms), (stock.bank, stock.fd), known)
        if isinstance(opened, Failure):
            return opened
        timed = self.launcher.time(Time(BLOCKS, self.case.calls, self.rng.randrange(self.case.calls), some))
        if isinstance(timed, Failure):
            return timed
        ended = self._looked(timed, opened) or _disturbed(timed) or timed
        self.launcher.close_case()
        return ended

    def _looked(self, timed: Timed, opened: Opened) -> Failure | None:
        where = f"case {self.stage.name}, while timed"
        if timed.early:
            return Failure(Reason.OUT_OF_BOUNDS, f"{where}: a call wrote the results of other calls, which were not launched", True)
        if timed.inputs:
            return Failure(Reason.OUT_OF_BOUNDS, f"{where}: an argument that is not marked `!` was changed", True)
        if timed.unwritten:
            return Failure(Reason.WRONG, f"{where}: part of the results was never written", True)
        if failure := self._ask(opened):
            return replace(failure, detail=failure.detail.replace(f"case {self.stage.name}", where, 1), cheat=True)
        return self._odd(timed, opened) if timed.odd else None

    def _ask(self, opened: Opened) -> Failure | None:
        return wrong(self.stage, self.oracle.ask(self.stage.name, opened.audit_fd, opened.opened.audit_bytes))

    def _odd(self, timed: Timed, opened: Opened) -> Failure | None:
        """Arms that differed by more than the device allows for two right answers: who is wrong? Two right answers that differ so again
        are both right; when they do not differ again, the subject's result changes from launch to launch."""
        where = f"case {self.stage.name}, while timed"
        for odd in timed.odd[:ODD_ASKED]:
            for arm in (0, 1):
                failure = self._rerun(arm, odd.nonce, odd.index, opened)
                if isinstance(failure, Failure) and arm == 1:
                    raise MachineError(f"the opponent is wrong on timed contents: {failure.detail}")
                if isinstance(failure, Failure):
                    return Failure(failure.reason, failure.detail, True)
                if arm == 1 and odd.index not in failure:
                    return Failure(Reason.UNSTABLE, f"{where}: a call differed from the opponent's and was right when launched again")
        return None

    def _rerun(self, arm: int, nonce: int, index: int, opened: Opened) -> Failure | tuple[int, ...]:
        """Launch again and ask the reference. The sets in which the second arm then differs from the first."""
        ran = self.launcher.run(Run(arm, nonce, self.case.calls, keep=arm == 0, against=arm == 1))
        if isinstance(ran, Failure):
            return ran
        return self.launcher.audit(Audit(arm, index)) or self._ask(opened) or ran.odd


def _disturbed(timed: Timed) -> Disturbed | None:
    if abs(timed.host_ratio - 1) > HOST_SLACK:
        return Disturbed(f"the card's clock and the host's disagree by {timed.host_ratio - 1:+.1%} over a slot")
    if timed.sentinel_ms[1] > SENTINEL_SLACK * timed.sentinel_ms[0]:
        return Disturbed("a fixed piece of arithmetic took a quarter longer than it can: the card was shared or slowed down")
    return None
