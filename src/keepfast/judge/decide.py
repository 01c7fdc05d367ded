"""The decision: from rounds to the next measurement or to a verdict.

Owns the rule and its constants, as one pure function: same rounds, same answer. Must not know processes, clocks, seeds or the ledger.
docs/verdict.md says every formula in words; all numbers here are log-ratios, negative is faster.
"""

from __future__ import annotations

import math
from functools import lru_cache

from msgspec import Struct

from keepfast import stats
from keepfast.model import SENTENCES, Calibration, Case, CaseRound, CaseStanding, CaseTime, Estimate, Kind, Phase, Reason, Round, percent


class Rule(Struct, frozen=True):
    """The constants of the decision. Rounds are counts, alphas one-sided, bounds log-ratios."""

    screen: int = 1
    test: int = 4  # 0: no verdict is wanted, only the screening round
    test_most: int = 8
    confirm: int = 6
    cases: int = 6
    alpha_test: float = 0.0125  # at each of the two looks
    alpha_confirm: float = 0.05
    alpha_claim: float = 0.025  # on each side of the claimed interval, which is 95 %
    alpha_case: float = 0.05
    case_floor: float = math.log(1.01)  # what a timed case may lose in total, at least
    case_sigmas: float = 3.0  # or so many SDs between rounds of that case, when they are more
    untimed_bound: float = math.log(1.25)  # what a case used for correctness only may lose
    power: float = 0.9  # of the smallest detectable gain


RULE = Rule()
TRY = Rule(test=0)  # what an agent is told within its turn


class Evidence(Struct, frozen=True):
    """What has been measured in this evaluation, in order.

    `cases` are the task's; none given means that every case in the rounds is timed. Raises ValueError for a number that is none.
    """

    rounds: tuple[Round, ...]
    cases: tuple[Case, ...] = ()
    opponent: str = "the champion"

    def __post_init__(self) -> None:
        for measured in self.rounds:
            if not all(map(math.isfinite, (measured.d, *(c.d for c in measured.cases)))):
                raise ValueError(f"a {measured.phase} round holds a log-ratio that is not a finite number")

    def of(self, phase: Phase, most: int) -> tuple[Round, ...]:
        return tuple(r for r in self.rounds if r.phase is phase)[:most]


class Measure(Struct, frozen=True):
    """Measure so many more rounds of this phase, then ask again. `cases` names those that need it, all when empty."""

    phase: Phase
    rounds: int
    cases: tuple[str, ...] = ()


class Decision(Struct, frozen=True):
    """The end of the timing rung. Fields are those of `model.Verdict`; `test` has the interval that the test used, 97.5 %."""

    kind: Kind
    reason: Reason
    detail: str
    gain: Estimate | None
    test: Estimate | None
    screen: float | None
    cases: tuple[CaseTime, ...]
    mde: float
    false_keep: float


Step = Measure | Decision


def next_step(calibration: Calibration, evidence: Evidence, standing: tuple[CaseStanding, ...], rule: Rule = RULE) -> Step:
    """What to measure next, or the decision. Ends after at most screen + test_most + confirm + cases rounds."""
    state = _State(calibration, evidence, standing, rule)
    return _screen(state) or _test(state) or _confirm(state) or _cases(state) or _faster(state)


class _State(Struct, frozen=True):
    calibration: Calibration
    evidence: Evidence
    standing: tuple[CaseStanding, ...]
    rule: Rule

    def values(self, phase: Phase, most: int) -> list[float]:
        return [r.d for r in self.evidence.of(phase, most)]

    def estimate(self, values: list[float], alpha: float) -> Estimate:
        """Two-sided, missing with `alpha` on each side."""
        return stats.estimate(values, self.evidence.opponent, self.calibration.sigma, 2 * alpha)


# ------------------------------------------------------------------------------------------------ the four stages


def _screen(state: _State) -> Step | None:
    values = state.values(Phase.SCREEN, state.rule.screen)
    if missing := state.rule.screen - len(values):
        return Measure(Phase.SCREEN, missing)
    d, sigma = stats.median(values), state.calibration.sigma
    if not state.rule.test:
        return _end(state, Reason.TRIED, f"{_signed(d)} in {_rounds(len(values))}, which vary by {_signed(sigma)}")
    if d <= sigma:
        return None
    return _end(state, Reason.SLOWER, f"{_signed(d)} in {_rounds(len(values))}; the bound is one SD between rounds, {_signed(sigma)}")


def _test(state: _State) -> Step | None:
    margin = state.calibration.margin
    for most in (state.rule.test, state.rule.test_most):
        values = state.values(Phase.TEST, most)
        if missing := most - len(values):
            return Measure(Phase.TEST, missing)
        found = state.estimate(values, state.rule.alpha_test)
        if found.high < -margin:
            return None
        if found.d >= -margin:
            break
    if found.low > -margin:
        return _end(state, Reason.NO_GAIN, f"{_interval(found)}; a keep needs more than {_signed(-margin)}")
    return _end(state, Reason.AMBIGUOUS, f"{_interval(found)}, which spans the margin of {_signed(-margin)}")


def _confirm(state: _State) -> Step | None:
    rule, sigma = state.rule, state.calibration.sigma
    values = state.values(Phase.CONFIRM, rule.confirm)
    if missing := rule.confirm - len(values):
        return Measure(Phase.CONFIRM, missing)
    if stats.mean(values) + stats.half_width(values, sigma, rule.alpha_confirm) < 0:
        return None
    found, test = state.estimate(values, rule.alpha_claim), _tested(state)
    before = f", after {_signed(test.d)} in {test.rounds} test rounds" if test else ""
    return _end(state, Reason.NOT_CONFIRMED, f"{_interval(found)}{before}")


def _cases(state: _State) -> Step | None:
    begun = state.evidence.of(Phase.CASES, state.rule.cases)
    have = len(begun)
    if 0 < have < state.rule.cases:  # all of them or none: looking in between would be one more chance
        return Measure(Phase.CASES, state.rule.cases - have, tuple(c.case for c in begun[0].cases))
    found = [_loss(state, name) for name in _names(state)]
    lost = [f for f in found if f.lost]
    undecided = [f for f in found if f.undecided]
    if undecided and not lost and have < state.rule.cases:
        return Measure(Phase.CASES, state.rule.cases - have, tuple(f.case for f in undecided))
    if unmeasured := [f.case for f in undecided if not f.rounds]:
        raise ValueError(f"the judge never measured {', '.join(unmeasured)}")
    worst = max(lost or undecided, key=lambda f: f.loss - f.bound, default=None)
    return _end(state, Reason.CASE_LOSS, worst.sentence()) if worst else None


def _faster(state: _State) -> Decision:
    found = state.estimate(state.values(Phase.CONFIRM, state.rule.confirm), state.rule.alpha_claim)
    return _end(state, Reason.FASTER, f"{_interval(found)} against {state.evidence.opponent}")


# ------------------------------------------------------------------------------------------------ one case, in total


class _Loss(Struct, frozen=True):
    """What a case lost in total, with its one-sided reach, and what it may lose."""

    case: str
    loss: float
    reach: float
    bound: float
    rounds: int
    since: str

    @property
    def lost(self) -> bool:
        """Shown to be over the bound. One round shows nothing: a small case may jump once."""
        return self.rounds > 1 and self.loss - self.reach > self.bound

    @property
    def undecided(self) -> bool:
        return not self.lost and self.loss + self.reach >= self.bound

    def sentence(self) -> str:
        low, high, most = _longer(self.loss - self.reach), _longer(self.loss + self.reach), _longer(self.bound)
        took = f"case {self.case}: {_longer(self.loss)} % time [{low}, {high}] against {self.since}, {_rounds(self.rounds)}"
        return f"{took}; {'allowed is' if self.lost else 'not shown to stay within'} {most} % in total"


def _loss(state: _State, name: str) -> _Loss:
    """The larger of two losses: against the original, and against the best that this case ever had."""
    sigma, alpha = state.calibration.sigma_of(name), state.rule.alpha_case
    values = [c.d for c in _case_rounds(state, name)]
    before = next((s for s in state.standing if s.case == name), CaseStanding(name))
    step = stats.mean(values) if values else 0.0
    reach = stats.half_width(values, sigma, alpha) if values else math.inf
    past = stats.normal_quantile(1 - alpha) * math.sqrt(before.variance)
    # A champion at its best ever is that best: then nothing of the past is uncertain between the two.
    since_best = past if before.total > before.best else 0.0
    bound, rounds = _bound(state, name, sigma), len(values)
    return max(
        _Loss(name, before.total + step, math.hypot(reach, past), bound, rounds, "the original"),
        _Loss(name, before.total - before.best + step, math.hypot(reach, since_best), bound, rounds, "its best"),
        key=lambda f: f.loss + f.reach,
    )


def _bound(state: _State, name: str, sigma: float) -> float:
    timed = next((c.timed for c in state.evidence.cases if c.name == name), True)
    return max(state.rule.case_floor, state.rule.case_sigmas * sigma) if timed else state.rule.untimed_bound


def _names(state: _State) -> tuple[str, ...]:
    named = (c.name for c in state.evidence.cases) if state.evidence.cases else (c.case for r in _latest(state) for c in r.cases)
    return tuple(dict.fromkeys(named))


def _latest(state: _State) -> tuple[Round, ...]:
    """The rounds that speak for the cases: confirm with its extension, else test, else screen."""
    rule, of = state.rule, state.evidence.of
    confirm = of(Phase.CONFIRM, rule.confirm) + of(Phase.CASES, rule.cases)
    return confirm or of(Phase.TEST, rule.test_most) or of(Phase.SCREEN, rule.screen)


def _case_rounds(state: _State, name: str) -> list[CaseRound]:
    return [c for r in _latest(state) for c in r.cases if c.case == name]


# ------------------------------------------------------------------------------------------------ what is said at the end


def _end(state: _State, reason: Reason, detail: str) -> Decision:
    screen = state.values(Phase.SCREEN, state.rule.screen)
    rule = state.rule if state.rule.test else RULE
    return Decision(
        kind=SENTENCES[reason][0],
        reason=reason,
        detail=detail,
        gain=_confirmed(state),
        test=_tested(state),
        screen=stats.median(screen) if screen else None,
        cases=tuple(_case_time(state, name) for name in _names(state) if _case_rounds(state, name)),
        mde=mde(state.calibration, rule),
        false_keep=false_keep(state.calibration, rule),
    )


def _confirmed(state: _State) -> Estimate | None:
    values = state.values(Phase.CONFIRM, state.rule.confirm)
    return state.estimate(values, state.rule.alpha_claim) if len(values) == state.rule.confirm else None


def _tested(state: _State) -> Estimate | None:
    values = state.values(Phase.TEST, state.rule.test_most)
    return state.estimate(values, state.rule.alpha_test) if values else None


def _case_time(state: _State, name: str) -> CaseTime:
    rounds = _case_rounds(state, name)
    found = stats.estimate([c.d for c in rounds], state.evidence.opponent, state.calibration.sigma_of(name))
    return CaseTime(name, found, stats.median([c.subject_ns for c in rounds]), stats.median([c.opponent_ns for c in rounds]))


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _signed(d: float) -> str:
    return f"{_gain(d)} %"


def _gain(d: float) -> str:
    return _one_decimal(percent(d))


def _longer(d: float) -> str:
    """Extra time in per cent, with its sign."""
    return _one_decimal(math.expm1(d) * 100)


def _one_decimal(value: float) -> str:
    return f"{round(value, 1) + 0.0:+.1f}"  # + 0.0: never "-0.0"


def _interval(found: Estimate) -> str:
    return f"{_signed(found.d)} [{_gain(found.high)}, {_gain(found.low)}] in {_rounds(found.rounds)}"


# ------------------------------------------------------------------------------------------------ what the rule can and cannot see


def mde(calibration: Calibration, rule: Rule = RULE) -> float:
    """Smallest gain, as a positive log-ratio, that the first look passes with `rule.power`: m + (z + z') sigma / sqrt(P)."""
    z = stats.normal_quantile(1 - rule.alpha_test) + stats.normal_quantile(rule.power)
    return calibration.margin + z * calibration.sigma / math.sqrt(rule.test)


@lru_cache(maxsize=64)  # one calibration serves many verdicts
def false_keep(calibration: Calibration, rule: Rule = RULE) -> float:
    """Expected chance that a change of no effect is kept.

    Both looks of the test and the confirm must err. What such a change does by its place in memory is drawn from N(offset, layout).
    """
    grid = [(k + 0.5) / 20 for k in range(-100, 100)] if calibration.layout else [0.0]
    weights = [math.exp(-x * x / 2) for x in grid]
    chances = [_kept(calibration, calibration.offset + x * calibration.layout, rule) for x in grid]
    return math.fsum(w * c for w, c in zip(weights, chances, strict=True)) / math.fsum(weights)


def _kept(calibration: Calibration, d: float, rule: Rule) -> float:
    """Bound on the chance that a change whose true log-ratio is d is kept, for normal noise."""
    if not calibration.sigma:
        return float(d < -calibration.margin)
    z_test, z_confirm = stats.normal_quantile(1 - rule.alpha_test), stats.normal_quantile(1 - rule.alpha_confirm)
    away = min((calibration.margin + d) * math.sqrt(p) / calibration.sigma for p in (rule.test, rule.test_most))
    passes = min(1.0, 2 * stats.normal_cdf(-(z_test + away)))
    return passes * stats.normal_cdf(-(z_confirm + d * math.sqrt(rule.confirm) / calibration.sigma))
