"""A judge that replays: verdicts from a list, by experiment number, or from a function of the candidate.

It runs nothing and measures nothing, so the loop, the ledger and git can be tested, and timed, without a kernel. Records made here
look like those of the real judge, raw rounds included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from keepfast.model import (
    SENTENCES,
    BaselineResult,
    Begin,
    Calibration,
    Candidate,
    CaseRound,
    CaseStanding,
    CaseTime,
    Direct,
    Estimate,
    Kind,
    Phase,
    Reason,
    Round,
    Rung,
    Verdict,
)

BLOCKS = 60
CASE = "all"
Verdicts = Sequence[Verdict] | Callable[[Candidate, Candidate], Verdict]


class Asked(Struct, frozen=True):
    """One call of the judge, for a test to look at."""

    verb: str  # begin | evaluate | try | compare
    n: int  # experiment number of the subject
    opponent: str = ""
    standing: tuple[CaseStanding, ...] = ()
    final: bool = False


class RecordedJudge:
    """`loop.Judge` that answers from a record.

    `verdicts`: a list, where experiment 2 has the first one (a resumed run asks again by number); or a function of candidate and
    champion. `logs`: log-ratio of a champion against the start, for direct measurements; with a list it may be left out, then the
    gains in the list are summed up. `baselines`: log-ratio of each baseline against the start, None for one that does not pass.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        *,
        logs: Callable[[Candidate], float] | None = None,
        baselines: Mapping[str, float | None] | None = None,
        case: str = CASE,
    ) -> None:
        self.verdicts, self.case, self.asked = verdicts, case, list[Asked]()
        self.baselines = dict(baselines or {})
        if logs is None and callable(verdicts):
            raise ValueError("verdicts from a function need `logs` as well")
        self._logs = logs or self._summed

    def begin(self, start: Candidate, calibration: Calibration | None) -> Begin:
        self.asked.append(Asked("begin", start.n))
        return Begin(started(), calibration or _calibration(), tuple(_baseline(name, d) for name, d in self.baselines.items()))

    def evaluate(self, candidate: Candidate, against: Candidate, standing: tuple[CaseStanding, ...], *, only_try: bool = False) -> Verdict:
        self.asked.append(Asked("try" if only_try else "evaluate", candidate.n, f"experiment {against.n}", standing))
        if only_try:
            found = self.verdicts(candidate, against) if callable(self.verdicts) else keep(1.0)
            d = found.screen if found.screen is not None else 0.0
            return replace(_verdict(Reason.TRIED), screen=d) if found.kind in (Kind.KEEP, Kind.REVERT) else found
        return self.verdicts(candidate, against) if callable(self.verdicts) else self.verdicts[candidate.n - 2]

    def compare(self, champion: Candidate, opponent: str, rounds: int, final: bool) -> Direct:
        self.asked.append(Asked("compare", champion.n, opponent, final=final))
        other = 0.0 if opponent == "start" else self.baselines[opponent.removeprefix("baseline ")] or 0.0
        made = direct(champion.n, self._logs(champion) - other, against=opponent, rounds=rounds, final=final)
        return replace(made, cases=(_case(self.case, made.estimate),))

    def _summed(self, champion: Candidate) -> float:
        before = () if callable(self.verdicts) else self.verdicts[: champion.n - 1]
        return sum(v.gain.d for v in before if v.kept and v.gain is not None)


# --------------------------------------------------------------------------------------------- records to replay


def keep(speedup: float, *, sd: float = 0.006, case: str = CASE, opponent: str = "the champion") -> Verdict:
    """A keep with a full set of rounds: one screen, four test, six confirm."""
    d = -math.log(speedup)
    test, gain = _estimate(d, sd, 4, opponent), _estimate(d, sd, 6, opponent)
    made = replace(_verdict(Reason.FASTER), gain=gain, test=test, screen=d)
    return replace(made, rounds=_rounds(d, 6, case), cases=(_case(case, gain),))


def revert(speedup: float = 0.99, *, reason: Reason = Reason.SLOWER, case: str = CASE) -> Verdict:
    """A revert after the screening round, or after the test when it was not slower."""
    d = -math.log(speedup)
    tested = None if reason is Reason.SLOWER else _estimate(d, 0.006, 4, "the champion")
    return replace(_verdict(reason), screen=d, test=tested, rounds=_rounds(d, 0, case)[: 1 if tested is None else 5])


def reject(reason: Reason = Reason.WRONG, detail: str = "row 17: got 0.0, expected 3.1e-04", *, cheat: bool = False) -> Verdict:
    return replace(_verdict(reason, detail), cheat=cheat)


def void(detail: str = "another process used core 1") -> Verdict:
    return _verdict(Reason.MACHINE, detail)


def started() -> Verdict:
    return _verdict(Reason.START)


def direct(n: int, d: float, *, against: str = "start", rounds: int = 6, final: bool = False) -> Direct:
    """A direct measurement of champion `n`; `d` is its log-ratio against the opponent."""
    estimate = _estimate(d, 0.006, rounds, against)
    return Direct(n, against, estimate, (_case(CASE, estimate),), final, 1_700_000_000.0)


def calibration(machine: str = "recorded") -> Calibration:
    return Calibration(machine, 0.006, 0.0002, 0.001, ((CASE, 0.006),), 8, 1e6, 8.0, 1_700_000_000.0, 4)


def _calibration() -> Calibration:
    return calibration()


def _verdict(reason: Reason, detail: str = "") -> Verdict:
    rungs = (Rung("guard", True, 0.001), Rung("build", True, 0.2), Rung("correct", not detail, 0.3))
    return Verdict(SENTENCES[reason][0], reason, detail, rungs, mde=0.014, false_keep=0.0004, walls="walls", seconds=1.0)


def _estimate(d: float, sd: float, rounds: int, opponent: str) -> Estimate:
    half = 2.0 * sd / math.sqrt(rounds)
    return Estimate(d, d - half, d + half, sd, rounds, opponent)


def _case(name: str, estimate: Estimate) -> CaseTime:
    return CaseTime(name, estimate, 1e6 * math.exp(estimate.d), 1e6)


def _rounds(d: float, confirm: int, case: str) -> tuple[Round, ...]:
    phases = (Phase.SCREEN, *(Phase.TEST for _ in range(4)), *(Phase.CONFIRM for _ in range(confirm)))
    return tuple(_round(phase, d, case) for phase in phases)


def _round(phase: Phase, d: float, case: str) -> Round:
    blocks = tuple(d + 1e-4 * (i % 7 - 3) for i in range(BLOCKS))
    return Round(phase, d, (CaseRound(case, d, 1e6 * math.exp(d), 1e6, blocks),), 1e6, 0.9)


def _baseline(name: str, d: float | None) -> BaselineResult:
    if d is None:
        return BaselineResult(name, False, "wrong result", None)
    return BaselineResult(name, True, "", _estimate(d, 0.006, 3, "start"))
